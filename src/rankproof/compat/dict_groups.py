"""Tie groups straight from dicts of dicts, in one order of the ties.

Of a run of a million rows a measure needs the ranks of the judged documents, and only the scores of
the others. So no column of ids is made: judged documents are looked up in the dicts, and the scores
of each list are sorted as `ties.py` sorts. Only compiled code does this; the general way, through
tables, gives the same groups.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """Return the queries that both have, in the run's order, and groups of one document each.

    With trec_eval's order scores are compared as float32 and ties go by descending id; with "input"
    they are compared as they are and ties keep their order. Returns None for scores that are no
    numbers and ids that are not text: reading them through tables explains the problem.
    """
    if kernels.native is None or not (isinstance(run, dict) and isinstance(qrels, dict)):
        return None
    by_id = order == "trec_eval"
    found = kernels.native.settle(run, qrels, by_id, by_id)
    if found is None:
        return None
    queries, *columns = found
    sizes, counts, grade, owner, rank, held = (np.frombuffer(each, np.int64) for each in columns)
    top, known = int(grade.max(initial=0)), grade.min(initial=0) >= 0
    if known:
        pool = Pool(np.append(0, np.cumsum(counts)), top, grade)
    else:
        of, judged = np.repeat(np.arange(len(sizes)), counts), grade >= 0
        pool = pool_of(of[judged], grade[judged], len(sizes), top)

    def groups(owner: Int, rank: Int, grade: Int, sampled: TieGroups | None) -> TieGroups:
        return TieGroups(
            listed=sizes,
            size=np.broadcast_to(np.int64(1), len(rank)),
            first=rank,
            query=owner,
            start=np.arange(len(rank) + 1),
            grade=grade,
            rank=rank,
            pool=pool,
            sampled=sampled,
        )

    if known:
        return queries, groups(owner, rank, held, None)
    every = groups(owner, rank, np.maximum(held, -1), None)
    mine = held >= 0
    return queries, groups(owner[mine], rank[mine], held[mine], every)


def read_lists(rows: Any) -> Run:
    """Return `read_run` of the rows; a run without documents where every list is empty."""
    if isinstance(rows, Mapping) and not any(map(len, rows.values())):
        ids = pl.Series([], dtype=pl.String)
        return build_run("run", ids, np.zeros(0, np.int32), ids, np.zeros(0), "float64")
    return read_run(rows)


def nest_columns(
    queries: list[Any], docs: list[Any], values: list[Any]
) -> dict[Any, dict[Any, Any]]:
    """Return three columns as a dict of dicts; a document that comes twice has its last value."""
    found: dict[Any, dict[Any, Any]] = {}
    begins = [0, *(at for at, (a, b) in enumerate(pairwise(queries), 1) if a is not b and a != b)]
    for first, last in pairwise([*begins, len(queries)] if queries else []):
        rows = zip(docs[first:last], values[first:last], strict=True)
        found.setdefault(queries[first], {}).update(rows)
    return found
