"""Read dicts of dicts straight into tie groups of one document each, under one tie-break.

A measure needs the ranks of the judged documents, and only the scores of the others. So no column
of ids is made, even for a run of a million rows: judged documents are looked up in the dicts, and
the scores of each list are sorted as `data/ties.py` sorts them. Only compiled code does this; where
there is none, callers take the way through tables, which gives the same groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import polars as pl

from rankproof.data import read_run
from rankproof.data.tables import Run, build_run
from rankproof.data.ties import Pool, TieGroups, pool_of
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Int


def groups_of_dicts(
    run: Mapping[str, Mapping[str, Any]],
    qrels: Mapping[str, Mapping[str, Any]],
    order: Literal["trec_eval", "input"] = "trec_eval",
) -> tuple[list[str], TieGroups] | None:
    """Return the queries that run and judgments share, in the run's order, and their tie groups.

    With "trec_eval" scores are compared as float32, and ties are broken by descending id; with
    "input" scores are compared as they are, and tied documents stay in the order of the dict.
    Returns None for a score that is not a number or an id that is not text: reading the same dicts
    through tables explains the problem.
    """
    if kernels.native is None or not (isinstance(run, dict) and isinstance(qrels, dict)):
        return None
    is_trec_eval = order == "trec_eval"
    # The two flags: round scores to float32; break ties by descending id.
    settled = kernels.native.settle(run, qrels, is_trec_eval, is_trec_eval)
    if settled is None:
        return None
    queries, *buffers = settled
    listed, judged_counts, pool_grade, query, rank, grade = (
        np.frombuffer(buffer, np.int64) for buffer in buffers
    )
    max_grade = int(pool_grade.max(initial=0))
    is_judged = pool_grade >= 0  # grade -1: pooled, not judged
    if is_judged.all():
        pool = Pool(np.append(0, np.cumsum(judged_counts)), max_grade, pool_grade)
        return queries, _single_document_groups(listed, query, rank, grade, pool)
    pool_query = np.repeat(np.arange(len(listed)), judged_counts)
    pool = pool_of(pool_query[is_judged], pool_grade[is_judged], len(listed), max_grade)
    sampled = _single_document_groups(listed, query, rank, np.maximum(grade, -1), pool)
    is_judged = grade >= 0
    judged = _single_document_groups(
        listed, query[is_judged], rank[is_judged], grade[is_judged], pool
    )
    return queries, replace(judged, sampled=sampled)


def _single_document_groups(
    listed: Int, query: Int, rank: Int, grade: Int, pool: Pool
) -> TieGroups:
    """Return a tie group for each document, given its query, rank and grade (J,)."""
    return TieGroups(
        listed=listed,
        size=np.broadcast_to(np.int64(1), len(rank)),
        first=rank,
        query=query,
        start=np.arange(len(rank) + 1),
        grade=grade,
        rank=rank,
        pool=pool,
    )


def read_lists(rows: Any) -> Run:
    """Read a run; a dict whose lists are all empty is a run without documents, not an error."""
    if isinstance(rows, Mapping) and not any(map(len, rows.values())):
        ids = pl.Series([], dtype=pl.String)
        return build_run("run", ids, np.zeros(0, np.int32), ids, np.zeros(0), "float64")
    return read_run(rows)


def nest_columns(
    queries: list[Any], docs: list[Any], values: list[Any]
) -> dict[Any, dict[Any, Any]]:
    """Return {query: {document: value}}; of a repeated document the last value counts."""
    nested: dict[Any, dict[Any, Any]] = {}
    if not queries:
        return nested
    # Rows of a query usually follow one another: whole blocks are added at once.
    changes = (row for row, (a, b) in enumerate(pairwise(queries), 1) if a is not b and a != b)
    for first, end in pairwise([0, *changes, len(queries)]):
        rows = zip(docs[first:end], values[first:end], strict=True)
        nested.setdefault(queries[first], {}).update(rows)
    return nested
