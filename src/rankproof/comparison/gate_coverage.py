"""Check that the candidate was evaluated on everything that the baseline was evaluated on.

A difference is a mean over the queries for which both sides have a value. A candidate that lacks
the queries it is bad at would look as good as the baseline; so would one that does not retrieve
relevant documents, if only retrieved documents count as relevant. Such a candidate cannot pass.
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
    """What counts for the baseline but not for the candidate, on one measure."""

    queries: int = 0  # without a value, or missing with a better one
    relevant: int = 0  # documents
    reason: str = ""  # why the candidate cannot pass and what to do; "" if it can

    def to_dict(self) -> dict[str, int]:
        """Return the counts as JSON has them."""
        return {"queries": self.queries, "relevant": self.relevant}


def shortfall(
    qrels: Qrels,
    baseline: Side,
    candidate: Side,
    measure: Measure,
    queries: pl.Series,
    values: Float,
) -> Shortfall:
    """Return what counts for the baseline only.

    `values` (2, Q) are those of the candidate and of the baseline over `queries`.
    """
    policy = candidate.evaluation.policy
    has_baseline: Bool = ~np.isnan(values[1])
    is_lost = has_baseline & np.isnan(values[0])
    is_missing = has_baseline & _missing(candidate, queries, values[0])
    is_better_missing = is_missing & (measure.sign * (values[0] - values[1]) > ZERO)
    relevant = 0
    if policy.candidates_only:
        relevant = _lost_relevant(qrels, baseline, candidate, measure)
    count = int((is_lost | is_better_missing).sum())
    names = candidate.evaluation.name, baseline.evaluation.name
    reason = ""
    if is_lost.any():
        reason = _no_value_reason(int(is_lost.sum()), int(has_baseline.sum()), *names, policy)
    elif is_better_missing.any():
        reason = (
            f"{names[0]} lacks {plural(count, 'query')} of {names[1]}, and there a "
            f"missing query, which counts 0, is better in {measure}; run it on all queries"
        )
    elif relevant:
        reason = (
            f"{names[0]} lists {plural(relevant, 'relevant document')} fewer than {names[1]}, "
            f"and no others count as relevant; {_SAME_CANDIDATES}"
        )
    return Shortfall(count, relevant, reason)


_SAME_CANDIDATES = "rerank the same candidates, or gate without --candidates-only"


def _no_value_reason(lost: int, total: int, candidate: str, baseline: str, policy: Policy) -> str:
    """Return why queries of the baseline have no value in the candidate, and what to do."""
    queries = f"{lost:,} of the {plural(total, 'query')} of {baseline}"
    if policy.candidates_only:
        return (
            f"{candidate} lists no relevant document for {queries}, which leaves them out; "
            f"{_SAME_CANDIDATES}"
        )
    option = "" if policy.missing == "zero" else ", or count missing queries as 0 (--missing zero)"
    return f"{candidate} has no value for {queries}; run it on all queries{option}"


def _missing(candidate: Side, queries: pl.Series, values: Float) -> Bool:
    """Return (Q,) which queries the candidate's run lacks.

    For a stored result only their number is known; then those with the value of an empty list.
    """
    if candidate.run is not None:
        return ~queries.is_in(candidate.run.queries.implode()).to_numpy()
    if not candidate.evaluation.missing:
        return np.zeros(len(queries), np.bool_)
    return np.asarray(values == 0.0, np.bool_)


def _lost_relevant(qrels: Qrels, baseline: Side, candidate: Side, measure: Measure) -> int:
    """Return how many relevant documents fewer the candidate lists than the baseline.

    Two runs are compared for each query and grade, so that more on one query do not hide fewer on
    another. For a stored result only the total is known.
    """
    if baseline.run is not None and candidate.run is not None:
        before, after = (_listed(qrels, run) for run in (baseline.run, candidate.run))
        levels = [
            _fewer(before, after, grade)
            for grade in before["grade"].unique().to_list()
            if grade >= measure.threshold
        ]
        worst = pl.concat(levels).group_by("query").agg(pl.col("fewer").max()) if levels else None
        return 0 if worst is None else int(worst["fewer"].sum())
    total = baseline.evaluation.relevant
    if candidate.run is None:
        return max(0, total - candidate.evaluation.relevant)
    listed = _listed(qrels, candidate.run).filter(
        (pl.col("grade") >= 1)
        & pl.col("query").cast(pl.String).is_in(baseline.evaluation.queries.implode())
    )
    return max(0, total - len(listed))


def _fewer(before: pl.DataFrame, after: pl.DataFrame, grade: int) -> pl.DataFrame:
    """Return, for each query, how many documents of at least a grade fewer `after` lists."""
    counts = [
        side.filter(pl.col("grade") >= grade).group_by("query").agg(n=pl.len().cast(pl.Int64))
        for side in (before, after)
    ]
    fewer = (pl.col("n") - pl.col("n_right").fill_null(0)).clip(lower_bound=0)
    return counts[0].join(counts[1], on="query", how="left").select("query", fewer=fewer)


def _listed(qrels: Qrels, run: Run) -> pl.DataFrame:
    """Return the judgments of the documents that a run lists."""
    return qrels.to_frame().join(
        run.to_frame().select("query", "doc"), on=["query", "doc"], how="semi"
    )
