"""Leave one out: how a system looks on a pool to which it did not contribute.

A system whose own documents were judged has an advantage over any that comes later. Without the
judgments that it alone contributed, it is evaluated as these are.
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
    frames = []
    for run in runs:
        met = MatchedRun(run, qrels, Policy()).met
        found = np.flatnonzero(met.row >= 0)
        position = met.row[found]
        if met.ranking.position is not None:
            position = met.ranking.position[position]
        group = np.searchsorted(met.ranking.group_start, position, side="right") - 1
        begin = met.ranking.start[met.listed[met.query[found]]]
        inside = found[met.ranking.group_start[group] - begin < depth]
        frames.append(
            pl.DataFrame(
                {
                    "query": qrels.queries.gather(met.query[inside]),
                    "doc": qrels.doc.gather(inside),
                    "system": pl.repeat(run.name, len(inside), eager=True),
                }
            )
        )
    return pl.concat(frames)


def read_provenance(path: Path) -> pl.DataFrame:
    """query, doc, system: the provenance.tsv of a golden set's export."""
    from rankproof.foundation.files import read_text

    rows = [line.split("\t") for line in read_text(path).splitlines()]
    names = ["query", "doc", "system"]
    wrong = next((at for at, row in enumerate(rows, 1) if len(row) != len(names)), None)
    if not rows or rows[0] != names or wrong:
        raise InputError(
            "is not the provenance of a golden set",
            place=f"{path}:{wrong or 1}",
            remedy="name provenance.tsv of `rankproof golden export`",
        )
    return pl.DataFrame(rows[1:], dict.fromkeys(names, pl.String), orient="row")


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
    judgements (taken away), value, without, change, rank, rank_without: ranks are among all runs,
    each time on the same judgements; null where nothing relevant is left to measure by.

    >>> from rankproof.unjudged.leave_one_out import contributions, leave_one_out
    >>> runs = [rp.read_run(f"try/{name}.trec", name=name) for name in ("plain", "saturated")]
    >>> qrels = rp.read_qrels("try/qrels.txt")
    >>> found = leave_one_out(runs, qrels, [rp.nDCG @ 5], contributions(runs, qrels, depth=5))
    >>> found["rank_without"].to_list()
    [1, 2]
    """
    lacking = {"query", "doc", "system"} - set(provenance.columns)
    if lacking:
        raise InputError(
            f"the provenance has no column {shorten(min(lacking))}",
            remedy="give query, doc and system",
        )
    policy = policy or Policy()
    alone = (
        provenance.unique(["query", "doc", "system"])
        .group_by("query", "doc")
        .agg(pl.col("system").first(), pl.len().alias("systems"))
        .filter(pl.col("systems") == 1)
    )
    whole = _evaluate_all(runs, qrels, measures, policy)
    rows = []
    for at, run in enumerate(runs):
        own = alone.filter(pl.col("system") == run.name)
        shorter, taken = _drop_judgments(qrels, own)
        figures = _evaluate_all(runs, shorter, measures, policy) if taken else whole
        for number, measure in enumerate(measures):
            before, after = whole[:, number], figures[:, number]
            rows.append(
                (
                    *(run.name, str(measure), taken, float(before[at]), float(after[at])),
                    float(after[at] - before[at]),
                    *(_rank(measure.sign * values, at) for values in (before, after)),
                )
            )
    return pl.DataFrame(rows, _SCHEMA, orient="row").fill_nan(None)


def _rank(values: np.ndarray[tuple[int], np.dtype[np.float64]], at: int) -> int | None:
    """Among these, from 1; None where nothing relevant is left to measure by."""
    return None if np.isnan(values[at]) else 1 + int((values > values[at]).sum())


def words(left: pl.DataFrame) -> list[str]:
    """Who is ahead of others only at home; from `leave_one_out`."""
    said = [
        f"{row['measure']}: {row['system']} falls from rank {row['rank']} to {row['rank_without']} "
        f"without the {plural(row['judgements'], 'judgement')} that it alone brought in."
        for row in left.iter_rows(named=True)
        if None not in (row["rank_without"], row["rank"]) and row["rank_without"] > row["rank"]
    ]
    said += [
        f"{row['measure']}: without the {plural(row['judgements'], 'judgement')} that "
        f"{row['system']} alone "
        "brought in nothing relevant is left."
        for row in left.iter_rows(named=True)
        if row["without"] is None and row["value"] is not None
    ]
    return said or ["No run falls behind another without the judgements that it alone brought in."]


def _evaluate_all(
    runs: Sequence[Run], qrels: Qrels, measures: Sequence[Measure], policy: Policy
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """(runs, measures) expected values."""
    evaluations = [evaluate_tables(run, qrels, measures, policy) for run in runs]
    return np.array([[e[m].expected for m in measures] for e in evaluations])


def _drop_judgments(qrels: Qrels, rows: pl.DataFrame) -> tuple[Qrels, int]:
    """The judgements less some, and how many those were; every query stays."""
    marked = qrels.to_frame().join(
        rows.select("query", "doc", pl.lit(True).alias("gone")),
        on=["query", "doc"],
        how="left",
        maintain_order="left",
    )
    keep = marked["gone"].is_null().to_numpy()
    kept = np.append(0, np.cumsum(keep))
    shorter = replace(
        qrels,
        start=kept[qrels.start],
        doc=qrels.doc.filter(pl.Series(keep)).rechunk(),
        grade=qrels.grade[keep],
        cache={},
    )
    return shorter, int((~keep).sum())
