"""Leave one out: the score of a system on a pool to which it did not contribute.

A system whose own documents were judged has an advantage over any that comes later (Zobel 1998).
Without the judgments that it alone contributed, it is evaluated as a later system would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from rankproof.data.tables import Qrels, Run
from rankproof.evaluation import Policy, evaluate_tables
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import plural
from rankproof.measures import Measure
from rankproof.unjudged.unjudged_documents import MatchedRun


def contributions(runs: Sequence[Run], qrels: Qrels, depth: int) -> pl.DataFrame:
    """query, doc, system: the judged documents in the top `depth` of each run.

    >>> from rankproof.unjudged.leave_one_out import contributions
    >>> runs = [rp.read_run(f"try/{name}.trec", name=name) for name in ("plain", "saturated")]
    >>> contributions(runs, rp.read_qrels("try/qrels.txt"), depth=5).columns
    ['query', 'doc', 'system']
    """
    if depth < 1:
        raise InputError(f"a pool of depth {depth}", remedy="name a rank such as 20")
    return pl.concat(_contributions_of(run, qrels, depth) for run in runs)


def _contributions_of(run: Run, qrels: Qrels, depth: int) -> pl.DataFrame:
    """query, doc, system: the judged documents whose tie group begins within the depth."""
    matching = MatchedRun(run, qrels, Policy()).matching
    ranking = matching.ranking
    is_listed = matching.row >= 0
    position = matching.row[is_listed]
    if ranking.position is not None:
        position = ranking.position[position]
    group = np.searchsorted(ranking.group_start, position, side="right") - 1
    list_start = ranking.start[matching.listed[matching.query[is_listed]]]
    judged = np.flatnonzero(is_listed)
    judged = judged[ranking.group_start[group] - list_start < depth]
    return pl.DataFrame(
        {
            "query": qrels.queries.gather(matching.query[judged]),
            "doc": qrels.doc.gather(judged),
            "system": pl.repeat(run.name, len(judged), eager=True),
        }
    )


def read_provenance(path: Path) -> pl.DataFrame:
    """query, doc, system: the provenance.tsv of a golden set's export."""
    from rankproof.foundation.files import read_text

    rows = [line.split("\t") for line in read_text(path).splitlines()]
    columns = ["query", "doc", "system"]
    wrong_line = next((n for n, row in enumerate(rows, 1) if len(row) != len(columns)), None)
    if not rows or rows[0] != columns or wrong_line:
        raise InputError(
            "is not the provenance of a golden set",
            place=f"{path}:{wrong_line or 1}",
            remedy="name provenance.tsv of `rankproof golden export`",
        )
    return pl.DataFrame(rows[1:], dict.fromkeys(columns, pl.String), orient="row")


_SCHEMA = {
    "system": pl.String,
    "measure": pl.String,
    "judgements": pl.Int64,
    "value": pl.Float64,
    "without": pl.Float64,
    "change": pl.Float64,
    "rank": pl.Int64,
    "rank_without": pl.Int64,
}


def leave_one_out(
    runs: Sequence[Run],
    qrels: Qrels,
    measures: Sequence[Measure],
    provenance: pl.DataFrame,
    *,
    policy: Policy | None = None,
) -> pl.DataFrame:
    """What each system loses when the judgments that it alone contributed are removed.

    `provenance` has a row of query, doc and system for each contribution. Returns system, measure,
    judgements (removed), value, without, change, rank, rank_without: ranks are among all runs,
    each time on the same judgments; null where no relevant document remains.

    >>> from rankproof.unjudged.leave_one_out import contributions, leave_one_out
    >>> runs = [rp.read_run(f"try/{name}.trec", name=name) for name in ("plain", "saturated")]
    >>> qrels = rp.read_qrels("try/qrels.txt")
    >>> rows = leave_one_out(runs, qrels, [rp.nDCG @ 5], contributions(runs, qrels, depth=5))
    >>> rows["rank_without"].to_list()
    [1, 2]
    """
    missing = {"query", "doc", "system"} - set(provenance.columns)
    if missing:
        raise InputError(
            f"the provenance has no column {shorten(min(missing))}",
            remedy="give query, doc and system",
        )
    policy = policy or Policy()
    unique = (
        provenance.unique(["query", "doc", "system"])
        .group_by("query", "doc")
        .agg(pl.col("system").first(), pl.len().alias("systems"))
        .filter(pl.col("systems") == 1)
    )
    with_all = _evaluate_all(runs, qrels, measures, policy)
    rows = []
    for index, run in enumerate(runs):
        reduced, removed = _drop_judgments(qrels, unique.filter(pl.col("system") == run.name))
        without = _evaluate_all(runs, reduced, measures, policy) if removed else with_all
        for column, measure in enumerate(measures):
            before, after = with_all[:, column], without[:, column]
            rows.append(
                {
                    "system": run.name,
                    "measure": str(measure),
                    "judgements": removed,
                    "value": float(before[index]),
                    "without": float(after[index]),
                    "change": float(after[index] - before[index]),
                    "rank": _rank(measure.sign * before, index),
                    "rank_without": _rank(measure.sign * after, index),
                }
            )
    return pl.DataFrame(rows, _SCHEMA, orient="row").fill_nan(None)


def _rank(values: np.ndarray[tuple[int], np.dtype[np.float64]], index: int) -> int | None:
    """The rank of one value among all, from 1; None if it is undefined."""
    return None if np.isnan(values[index]) else 1 + int((values > values[index]).sum())


def words(rows: pl.DataFrame) -> list[str]:
    """Which runs fall behind others without their own judgments, from rows of `leave_one_out`."""
    sentences = [
        f"{row['measure']}: {row['system']} falls from rank {row['rank']} to {row['rank_without']} "
        f"without the {plural(row['judgements'], 'judgment')} that it alone contributed."
        for row in rows.iter_rows(named=True)
        if None not in (row["rank_without"], row["rank"]) and row["rank_without"] > row["rank"]
    ]
    sentences += [
        f"{row['measure']}: without the {plural(row['judgements'], 'judgment')} that "
        f"{row['system']} alone contributed nothing relevant is left."
        for row in rows.iter_rows(named=True)
        if row["without"] is None and row["value"] is not None
    ]
    return sentences or [
        "No run falls behind another without the judgments that it alone contributed."
    ]


def _evaluate_all(
    runs: Sequence[Run], qrels: Qrels, measures: Sequence[Measure], policy: Policy
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """(runs, measures) expected values."""
    evaluations = [evaluate_tables(run, qrels, measures, policy) for run in runs]
    return np.array([[e[m].expected for m in measures] for e in evaluations])


def _drop_judgments(qrels: Qrels, dropped: pl.DataFrame) -> tuple[Qrels, int]:
    """The judgments without those of `dropped` (query, doc), and how many these were.

    A query that loses all its judgments stays.
    """
    marked = qrels.to_frame().join(
        dropped.select("query", "doc", pl.lit(True).alias("is_dropped")),
        on=["query", "doc"],
        how="left",
        maintain_order="left",
    )
    remains = marked["is_dropped"].is_null().to_numpy()
    remaining_before = np.append(0, np.cumsum(remains))
    reduced = replace(
        qrels,
        start=remaining_before[qrels.start],
        doc=qrels.doc.filter(pl.Series(remains)).rechunk(),
        grade=qrels.grade[remains],
        aspect_row=None if qrels.aspect_row is None else qrels.aspect_row[remains],
        cache={},
    )
    return reduced, int((~remains).sum())
