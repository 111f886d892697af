"""Whether the candidate was evaluated on all that the baseline was.

A difference is a mean over the queries for which both have a value. A candidate that leaves out
queries it is bad at, or, where only retrieved documents count as relevant, relevant documents that
it does not find, would look no worse than the baseline; such a candidate cannot pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from rankproof.comparison.gate_inputs import Side
from rankproof.data.tables import Qrels, Run
from rankproof.evaluation import Policy
from rankproof.foundation.arrays import Bool, Float
from rankproof.foundation.phrasing import plural
from rankproof.measures import Measure
from rankproof.presentation.lead_wording import ZERO


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What counts for the baseline and not for the candidate, in one measure."""

    queries: int = 0  # without a value, or with one that is better for being missing
    relevant: int = 0  # documents
    reason: str = ""  # why the candidate cannot pass, and what to do; empty where it can

    def to_dict(self) -> dict[str, int]:
        return {"queries": self.queries, "relevant": self.relevant}


def shortfall(
    qrels: Qrels,
    baseline: Side,
    candidate: Side,
    measure: Measure,
    queries: pl.Series,
    values: Float,
) -> Shortfall:
    """Count what counts for the baseline alone.

    `values` are those of the candidate and of the baseline, (2, Q) over `queries`.
    """
    policy = candidate.evaluation.policy
    known: Bool = ~np.isnan(values[1])
    lost = known & np.isnan(values[0])
    better = known & _missing(candidate, queries, values[0])
    better &= measure.sign * (values[0] - values[1]) > ZERO
    relevant = 0
    if policy.candidates_only:
        relevant = _relevant_lost(qrels, baseline, candidate, measure)
    short = int((lost | better).sum())
    names = candidate.evaluation.name, baseline.evaluation.name
    reason = ""
    if lost.any():
        reason = _unanswered(int(lost.sum()), int(known.sum()), *names, policy)
    elif better.any():
        reason = (
            f"{names[0]} lacks {plural(short, 'query')} of {names[1]}, and there a "
            f"missing query, which counts 0, is better in {measure}; run it on all queries"
        )
    elif relevant:
        reason = (
            f"{names[0]} lists {plural(relevant, 'relevant document')} fewer than {names[1]}, "
            f"and no others count as relevant; {_SAME_CANDIDATES}"
        )
    return Shortfall(short, relevant, reason)


_SAME_CANDIDATES = "rerank the same candidates, or gate without --candidates-only"


def _unanswered(lost: int, known: int, candidate: str, baseline: str, policy: Policy) -> str:
    """Say why queries of the baseline have no value in the candidate, and what to do."""
    some = f"{lost:,} of the {plural(known, 'query')} of {baseline}"
    if policy.candidates_only:
        return (
            f"{candidate} lists no relevant document for {some}, which leaves them out; "
            f"{_SAME_CANDIDATES}"
        )
    zero = "" if policy.missing == "zero" else ", or count missing queries as 0 (--missing zero)"
    return f"{candidate} has no value for {some}; run it on all queries{zero}"


def _missing(candidate: Side, queries: pl.Series, values: Float) -> Bool:
    """Return the (Q,) queries that the candidate's run lacks.

    Of a stored result only their number is known: then those with the value of an empty list.
    """
    if candidate.run is not None:
        return ~queries.is_in(candidate.run.queries.implode()).to_numpy()
    if not candidate.evaluation.missing:
        return np.zeros(len(queries), np.bool_)
    return np.asarray(values == 0.0, np.bool_)


def _relevant_lost(qrels: Qrels, baseline: Side, candidate: Side, measure: Measure) -> int:
    """Count the relevant documents by which the candidate's lists fall short of the baseline's.

    Between two runs they are counted query by query and grade by grade, so that more on one query
    do not hide fewer on another. Of a stored result only the total is known.
    """
    least = measure.threshold
    if baseline.run is not None and candidate.run is not None:
        before, after = (_listed(qrels, run) for run in (baseline.run, candidate.run))
        levels = [
            _fewer(before, after, grade)
            for grade in before["grade"].unique().to_list()
            if grade >= least
        ]
        worst = pl.concat(levels).group_by("query").agg(pl.col("fewer").max()) if levels else None
        return 0 if worst is None else int(worst["fewer"].sum())
    total = baseline.evaluation.relevant
    if candidate.run is None:
        return max(0, total - candidate.evaluation.relevant)
    found = _listed(qrels, candidate.run).filter(
        (pl.col("grade") >= 1)
        & pl.col("query").cast(pl.String).is_in(baseline.evaluation.queries.implode())
    )
    return max(0, total - len(found))


def _fewer(before: pl.DataFrame, after: pl.DataFrame, grade: int) -> pl.DataFrame:
    """Return by query how many fewer documents of at least a grade are listed after than before."""
    counts = [
        side.filter(pl.col("grade") >= grade).group_by("query").agg(n=pl.len().cast(pl.Int64))
        for side in (before, after)
    ]
    fewer = (pl.col("n") - pl.col("n_right").fill_null(0)).clip(lower_bound=0)
    return counts[0].join(counts[1], on="query", how="left").select("query", fewer=fewer)


def _listed(qrels: Qrels, run: Run) -> pl.DataFrame:
    """Return the judgements of the documents that a run lists."""
    return qrels.to_frame().join(
        run.to_frame().select("query", "doc"), on=["query", "doc"], how="semi"
    )
