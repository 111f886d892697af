"""Estimate a measure's mean by annotators' labels of a sample and a judge's labels of all queries.

A judge labels N queries, annotators n of them. With f the measure by the judge's labels, y by the
annotators', and λ the least-squares slope of y on f over the n queries,

    θ = ȳ_n − λ(f̄_n − f̄_N)
    Var θ = s_e²·[1/n − 1/N + (f̄_n − f̄_N)²/Σ(f_i − f̄_n)²] + s_y²/N,  s_e² = RSS/(n − 2)

and θ ± t_{n−2}·√Var (prediction-powered inference where the n are among the N; Angelopoulos et al.
2023). The annotators' queries must be drawn at random. A biased judge does no harm: only the
correlation ρ of f and y matters. The n queries are worth as many as n/(1 − ρ²(1 − n/N)) that only
annotators label.

**Queries that count.** A query counts if the annotators' labels define the measure (d = 1): θ is
the ratio of the estimates of the means of d·y and d, its variance that of d·(y − θ)/d̄. If the
judge's labels leave it undefined, f is 0, which predicts as well as any number. To drop such
queries would be to select by the judge; such intervals covered 0 of 1,000 times on SciFact.

**When the judge is not used.** The estimate is the annotators' alone if θ ± … lies outside the
measure's range (which does not happen if queries are drawn at random), and if the annotators' or
the judge's values never vary. Below six queries it has no interval either.

**Unseen errors.** s_e² is at least 2s_y²/(n + 1), as if on one more query the judge's label said
nothing: ten queries on which a judge is nearly exact do not show that it never fails. (If it fails
on one in ten, the coverage is .72 without this and .95 with it; the lowest, over four judges that
fail rarely and always in one direction, with 10 to 60 queries, is .895.) Errors on fewer than one
query in n/3 may be unseen.

**Groups.** Let ψ_g be what the queries of a group add to θ: λ(f_i − f̄_N)/N each, and for queries
with an annotator's label also e_i·(1/n − (f_i − f̄_n)(f̄_n − f̄_N)/Σ(f_j − f̄_n)²). The variance is
at least Σ a_g² ψ_g² with the a_g of `groups`, and t has the degrees of freedom of the annotators'
queries less one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float
from rankproof.statistics.distributions import t_quantile
from rankproof.statistics.groups import Groups, group_sums, means_of, numbered
from rankproof.statistics.intervals import (
    CONFIDENCE,
    MIN_QUERIES,
    NO_DIFFERENCE,
    ROUNDING,
    Interval,
    difference_intervals,
    interval_or_none,
    mean_intervals,
    none_if_nan,
    possible_range,
)

if TYPE_CHECKING:
    from rankproof.evaluation import Evaluation
    from rankproof.measures import Measure

WEAK = 0.5  # ρ below which the judge saves few annotations
UNSEEN = 2.0  # E(y − f)² of a query where f is independent of y, in variances of y


@dataclass(frozen=True, slots=True)
class TwoPhase:
    """The estimate, and the means by the annotators' and by the judge's labels alone."""

    estimate: float
    ci: Interval  # NaN for fewer than six of the annotators' queries
    people: float  # mean over the annotators' queries alone
    people_ci: Interval
    judge: float  # mean over all queries by the judge's labels, which may be biased
    rho: float  # correlation of the two, over the annotators' queries
    worth: float  # annotators' queries that alone would give an interval as narrow
    n: int
    total: int
    used: bool = True  # False if the estimate is the mean by the annotators' labels alone
    df: float = math.nan  # degrees of freedom of the interval
    # (N,) what each query adds to the estimate, beyond what it adds to every one
    influence: Float | None = field(default=None, repr=False, compare=False)

    def words(self) -> str:
        """Return how much the judge's labels added to the annotators', in a sentence."""
        if self.n < MIN_QUERIES:
            return f"{self.n} of people's queries are too few: label {MIN_QUERIES} or more"
        if math.isnan(self.rho):
            return "on people's queries a figure never varies: the judge tells nothing of it"
        if not self.used:
            return (
                "by the judge's labels people's queries are unlike the others: "
                "the estimate is people's alone; label more, drawn at random"
            )
        weak = f"; below {WEAK} the judge saves little" if abs(self.rho) < WEAK else ""
        rare = max(2, self.n // 3)
        return (
            f"{self.n} queries that people labelled, with the judge's {self.total}, are worth "
            f"{self.worth:.0f} of people's alone (ρ {self.rho:.2f}{weak}); what the judge gets "
            f"wrong in fewer than one query of {rare} may not be among them"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate for JSON, with null where a value is undefined."""
        return {
            "estimate": none_if_nan(self.estimate),
            "ci": interval_or_none(self.ci),
            "people": none_if_nan(self.people),
            "people_ci": interval_or_none(self.people_ci),
            "judge": none_if_nan(self.judge),
            "rho": none_if_nan(self.rho),
            "worth": none_if_nan(self.worth),
            "people_queries": self.n,
            "queries": self.total,
            "judge_used": self.used,
        }


def two_phase(
    judge: Sequence[float] | Array,
    people: Sequence[float] | Array,
    labelled: Array | None = None,
    upper: float = 1.0,
    groups: Groups | None = None,
) -> TwoPhase:
    """Estimate a mean from per-query values (N,), NaN where the measure is undefined.

    `labelled` marks the annotators' queries; by default those with a value of theirs. `upper` is
    the measure's highest value.
    """
    y = np.asarray(people, np.float64)
    chosen: Bool = ~np.isnan(y) if labelled is None else np.asarray(labelled, np.bool_)
    has_value = chosen & ~np.isnan(y)
    values, value_groups = y[has_value], None if groups is None else groups[has_value]
    low, high = math.nan, math.nan
    if len(values):
        low, high = mean_intervals(values[None], upper, value_groups)[0].tolist()
    ends = possible_range(values, upper)
    return _combined(np.asarray(judge, np.float64), y, chosen, ends, (low, high), groups)


def two_phase_difference(
    judge: Float, people: Float, span: float = 1.0, groups: Groups | None = None
) -> TwoPhase:
    """Estimate a mean difference of two runs from differences per query (N,).

    `people` is NaN for queries without annotators' labels, `span` the range of the measure. There
    is no interval if queries of fewer than six groups differ.
    """
    chosen = ~np.isnan(people)
    chosen_groups = None if groups is None else groups[chosen]
    low, high = difference_intervals(people[chosen][None], span, chosen_groups)[0].tolist()
    most = span if span <= 1.0 + ROUNDING else math.inf
    estimate = _combined(judge, people, chosen, (-most, most), (low, high), groups)
    return replace(estimate, ci=(low, high)) if math.isnan(low) else estimate


def _combined(
    judge: Float,
    y: Float,
    chosen: Bool,
    ends: Interval,
    unaided_ci: Interval,
    groups: Groups | None = None,
) -> TwoPhase:
    """Combine the judge's values (N,) with the annotators' y of the chosen queries.

    `ends` are the least and the largest mean that the measure can have, `unaided_ci` the interval
    from the annotators' values alone.
    """
    f = np.nan_to_num(judge, nan=0.0)
    f_n, y_n = f[chosen], y[chosen]
    values = y_n[~np.isnan(y_n)]
    mean, no_interval = _mean(values), (math.nan, math.nan)
    unaided = TwoPhase(
        estimate=mean,
        ci=no_interval,
        people=mean,
        people_ci=no_interval,
        judge=_mean(judge[~np.isnan(judge)]),
        rho=_correlation(f_n[~np.isnan(y_n)], values),
        worth=math.nan,
        n=len(values),
        total=len(f),
        used=False,
        influence=np.where(chosen & ~np.isnan(y), y - mean, 0.0) / max(1, len(values)),
    )
    if len(values) < MIN_QUERIES:
        return unaided
    df = _mean_df(chosen & ~np.isnan(y), groups)
    unaided = replace(unaided, ci=unaided_ci, people_ci=unaided_ci, worth=float(len(values)), df=df)
    aided = None
    if float(np.ptp(values)) > NO_DIFFERENCE:
        aided = _regression_estimate(f, y_n, chosen, groups)
    if aided is None:
        return unaided
    (theta, half, df, influence), (least, most) = aided, ends
    if theta - half > most or theta + half < least:  # the sample is unlike the other queries
        return unaided
    n, rho = len(f_n), unaided.rho
    explained = 0.0 if math.isnan(rho) else min(rho * rho, 1 - UNSEEN / (n + 1))
    return replace(
        unaided,
        estimate=min(max(theta, least), most),
        ci=(max(theta - half, least), min(theta + half, most)),
        worth=n / (1 - explained * (1 - n / len(f))),
        used=True,
        df=df,
        influence=influence,
    )


def _mean_df(chosen: Bool, groups: Groups | None) -> float:
    """Degrees of freedom of a mean over the chosen queries."""
    chosen_groups = None if groups is None else groups[chosen]
    return float(means_of(np.zeros((1, int(chosen.sum()))), chosen_groups).df[0])


def _regression_estimate(
    f: Float, y_n: Float, chosen: Bool, groups: Groups | None
) -> tuple[float, float, float, Float] | None:
    """θ, the half-width of its interval, df and (N,) influences; None if f never varies."""
    f_n, n, total = f[chosen], len(y_n), len(f)
    shift = float(f_n.mean() - f.mean())
    centered = f_n - f_n.mean()
    square = float(centered @ centered)
    if square <= 1e-24 * n:
        return None

    def slope(values: Float) -> float:
        return float(centered @ values) / square

    def estimate(values: Float) -> float:
        return float(values.mean()) - slope(values) * shift

    defined = ~np.isnan(y_n)  # d
    defined_share = estimate(defined.astype(np.float64))
    if defined_share <= 0:
        return None
    theta = estimate(np.where(defined, y_n, 0.0)) / defined_share
    residual = np.where(defined, np.where(defined, y_n, 0.0) - theta, 0.0) / defined_share
    error = residual - residual.mean() - slope(residual) * centered
    residual_variance = float(np.var(residual, ddof=1))  # s_y²
    error_variance = max(float(error @ error) / (n - 2), UNSEEN * residual_variance / (n + 1))
    leverage = shift * shift / square
    variance = error_variance * (1 / n - 1 / total + leverage) + residual_variance / total
    df = n - 2.0
    influence = slope(residual) * (f - f.mean()) / total
    influence[chosen] += error * (1 / n - centered * shift / square)
    if groups is not None:
        variance = max(variance, _group_variance(influence, groups))
        df = min(df, max(float(np.nan_to_num(_mean_df(chosen, groups))) - 1.0, 1.0))
    half = t_quantile((1 + CONFIDENCE) / 2, df) * math.sqrt(variance)
    return theta, half, df, influence


def _group_variance(influence: Float, groups: Groups) -> float:
    """Σ a_g² ψ_g², the variance of the estimate where the queries of a group are dependent."""
    numbers = numbered(groups)
    sizes = np.ones(len(groups)) if numbers is None else np.bincount(numbers)
    squares = np.square(group_sums(influence, groups))
    with np.errstate(divide="ignore"):
        return float((squares / (1.0 - sizes / len(groups))).sum())


def two_phase_of(
    judged: Evaluation, labelled: Evaluation, rescaled: Mapping[Measure, Measure]
) -> dict[Measure, TwoPhase]:
    """Estimate a run's measures from the judge's labels of all queries and annotators' of some.

    `rescaled` gives each measure on the scale of the annotators' labels. The queries that count are
    those in the mean by these labels.
    """
    import polars as pl

    estimates = {}
    for by_judge, by_people in rescaled.items():
        people = labelled.outcomes[by_people].in_mean()
        by_query = pl.DataFrame({"query": labelled.queries, "people": people})
        queries = pl.DataFrame({"query": judged.queries})
        joined = queries.join(by_query, on="query", how="left", maintain_order="left")["people"]
        estimates[by_judge] = two_phase(
            judged.outcomes[by_judge].in_mean(),
            joined.fill_null(math.nan).to_numpy(),
            joined.is_not_null().to_numpy(),
            by_people.upper,
            groups=judged.groups,
        )
    return estimates


def _correlation(f: Float, y: Float) -> float:
    if not len(f) or min(np.ptp(f), np.ptp(y)) <= 1e-12:
        return math.nan
    return float(np.corrcoef(f, y)[0, 1])


def _mean(values: Float) -> float:
    return float(values.mean()) if len(values) else math.nan
