"""Differences with annotators' labels: a judge labeled every query, annotators some of them.

Of each pair the judge's differences f and the annotators' y give the estimate and its interval I
(`statistics.two_phase`). The family of all pairs needs values of single queries, whose mean is the
estimate of a run: with ψ_q what query q adds to the estimate θ (its influence),

    z_q = θ + N·ψ_q,   Σψ_q = 0

Their resamples give the critical value c of the family. They are as many as the judge's queries, so
that c is one of normal values: of the n queries of annotators it is T⁻¹(Φ(c)), and F is I, wider by
that over t. Five equal runs, 15 or 30 annotated queries of 200: a false claim in .04 to .08 of
families, with c itself in .07 to .14. W is I: annotators labeled what the runs list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rankproof.foundation.arrays import Float
from rankproof.foundation.phrasing import plural
from rankproof.statistics.distributions import normal_cdf, t_quantile
from rankproof.statistics.groups import Groups, count_units
from rankproof.statistics.intervals import (
    CONFIDENCE,
    count_differing,
    few_changes_bound,
    queries_needed_range,
)
from rankproof.statistics.two_phase import TwoPhase, two_phase, two_phase_difference

if TYPE_CHECKING:
    import polars as pl

    from rankproof.evaluation import Evaluation
    from rankproof.measures import Measure

_LARGEST = 8.0  # critical value: Φ of larger ones is 1


def annotator_note(evaluations: Sequence[Evaluation], columns: Mapping[str, Float]) -> list[str]:
    """Return how many queries annotators labeled, and what they are worth with the judge's."""
    if "annotated" not in columns:
        return []
    labeled = int(columns["annotated"].max(initial=0))
    worth = columns["worth"][~np.isnan(columns["worth"])]
    total = plural(len(evaluations[0].queries), "query")
    note = f"Annotators labeled {labeled} of {total}, the judge all"
    if len(worth):
        low, high = round(float(worth.min())), round(float(worth.max()))
        span = f"{low}" if low == high else f"{low} to {high}"
        note += f"; that is worth {span} annotated queries"
    return [f"{note}."]


def labels_prefix(evaluations: Sequence[Evaluation]) -> str:
    """Return whose labels decide, where they are a judge's alone; else ""."""
    is_judge_alone = any(e.by_judge and e.annotators is None for e in evaluations)
    return "By this judge's labels: " if is_judge_alone else ""


def annotated_values(
    evaluations: Sequence[Evaluation],
    measure: Measure,
    queries: pl.Series,
    groups: Groups | None = None,
) -> Float:
    """Return (R, Q) values whose means are the runs' estimates with annotators' labels."""
    rows = []
    for evaluation in evaluations:
        assert evaluation.annotators is not None
        judge = np.full(len(queries), np.nan)
        at = queries.search_sorted(evaluation.queries).to_numpy()
        judge[at] = evaluation.outcomes[measure].in_mean()
        own = evaluation.annotators.values(measure, queries)
        rows.append(pseudo_values(judge, own, measure.upper, groups))
    return np.stack(rows)


def pseudo_values(
    judge: Float, own: Float, upper: float = 1.0, groups: Groups | None = None
) -> Float:
    """Return (Q,) values z of a run, from those by the judge's and by the annotators' labels."""
    estimate = two_phase(judge, own, upper=upper, groups=groups)
    assert estimate.influence is not None
    return np.asarray(estimate.estimate + len(judge) * estimate.influence, np.float64)


def annotated_columns(
    judge: Float, own: Float, span: float, groups: Groups | None, *, critical: Float
) -> dict[str, Float]:
    """Return the columns (P,) that annotators' labels replace.

    `judge` and `own` are (P, Q) differences by the labels of both, NaN where there is none;
    `critical` is that of the family.
    """
    rows = [
        _annotated_row(f, y, span, groups, critical=float(limit))
        for f, y, limit in zip(judge, own, critical, strict=True)
    ]
    return {name: np.array([row[name] for row in rows], np.float64) for name in rows[0]}


def _annotated_row(
    judge: Float, own: Float, span: float, groups: Groups | None, *, critical: float
) -> dict[str, float]:
    """Return the columns of one pair."""
    estimate = two_phase_difference(judge, own, span, groups)
    is_labeled = ~np.isnan(own)
    own_groups = None if groups is None else groups[is_labeled]
    labeled = own[is_labeled]
    differing = int(count_differing(labeled[None], own_groups)[0])
    family, needed = _family_and_needed(estimate, span, differing / max(1, estimate.n), critical)
    bound = few_changes_bound(labeled, own_groups) if differing else (math.nan, math.nan)
    is_equal = not differing and not int(count_differing(judge[None], groups)[0])
    return {
        "expected": estimate.estimate,
        "judge_estimate": estimate.judge,
        "annotated": estimate.n,
        "worth": estimate.worth,
        "low": estimate.ci[0],
        "high": estimate.ci[1],
        "family_low": family[0],
        "family_high": family[1],
        "bound_low": bound[0],
        "bound_high": bound[1],
        "needed_low": needed[0],
        "needed_high": needed[1],
        "units": float(count_units(estimate.n, own_groups)),
        # Runs that differ by the judge's labels alone are not shown to be equal.
        "differing_units": float(differing or not is_equal),
    }


def family_width(critical: float, df: float) -> float:
    """Return by how much F is wider than I, of a critical value of normal values: T⁻¹(Φ(c))/t."""
    t = t_quantile((1 + CONFIDENCE) / 2, df)
    family_t = t_quantile(float(normal_cdf(np.array(max(0.0, min(critical, _LARGEST))))), df)
    return max(1.0, family_t / t)


def _family_and_needed(
    estimate: TwoPhase, span: float, share: float, critical: float
) -> tuple[list[float], list[float]]:
    """Return the ends of F, and the fewest and most queries that annotators should add."""
    low, high = estimate.ci
    if math.isnan(low):
        return [math.nan] * 2, [math.nan] * 2
    t = t_quantile((1 + CONFIDENCE) / 2, estimate.df)
    most = span if span <= 1.0 else math.inf
    wider = family_width(critical, estimate.df)
    ends = estimate.estimate + wider * (np.array([low, high]) - estimate.estimate)
    deviation = (high - low) / 2 / t * math.sqrt(estimate.n)
    needed = queries_needed_range(
        np.array(estimate.ci), np.array(deviation), np.array(share), np.array(estimate.n)
    )
    return np.clip(ends, -most, most).tolist(), needed.tolist()
