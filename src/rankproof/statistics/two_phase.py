"""A measure as people would have it, from people's labels of some queries and a judge's of all.

A judge labels N queries, people n of them. With f the measure by the judge's labels and y by
people's, λ the least-squares slope of y on f over the n,

    θ = ȳ_n − λ(f̄_n − f̄_N)
    Var θ = s_e²·[1/n − 1/N + (f̄_n − f̄_N)²/Σ(f_i − f̄_n)²] + s_y²/N,  s_e² = RSS/(n − 2)

and θ ± t_{n−2}·√Var (prediction-powered inference with the n inside the N). People's queries are to
be drawn at random. A judge that is biased, even badly, does no harm: only how well f tells y does,
ρ, and with it people's n queries are worth n/(1 − ρ²(1 − n/N)) of theirs alone.

A query counts where people's labels define the measure (d = 1): θ is the ratio of the estimates of
the means of d·y and d, its variance that of d·(y − θ)/d̄. Where the judge's labels leave it
undefined f is 0, which predicts as any number may; to leave such queries out would be to choose by
the judge, and covered 0 of 1,000 times on SciFact.

A judge that is nearly always right, and seldom far off, shows too little of how it errs: with the
few such queries that a sample holds the interval covers .62 to .92. What is left of people's values
beside the judge's, e, is the matter of k = (Σe²)²/Σe⁴ queries (n for equal ones, 1 for a single
one); below three the judge is not used, and what is told is people's alone. So it is where θ ± … is
beyond what the measure can be, which queries drawn at random do not do; where people's values never
vary; and below six queries, there without an interval. Nor is s_e² taken to be
less than 2s_y²/(n + 1), what one query more would add of which the judge knows nothing: ten queries
on which a judge is nearly exact do not show that it never fails (where it fails on one in ten, .72
were covered without this, .95 are with it). Errors of fewer than one query in n/3 may be unseen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float
from rankproof.statistics.distributions import t_quantile
from rankproof.statistics.intervals import (
    CONFIDENCE,
    FEW,
    Interval,
    known,
    known_ends,
    mean_intervals,
)

if TYPE_CHECKING:
    from rankproof.evaluation import Evaluation
    from rankproof.measures import Measure

WEAK = 0.5  # ρ below which the judge saves little
TELLING = 3.0  # queries that must show how the judge errs
UNSEEN = 2.0  # (y − f)² of a query on which the judge fails, in variances of y: f tells nothing


@dataclass(frozen=True, slots=True)
class TwoPhase:
    """The estimate, beside what people and the judge say alone."""

    estimate: float
    ci: Interval  # NaN for fewer than six of people's queries
    people: float  # mean over people's queries alone
    people_ci: Interval
    judge: float  # mean over all queries by the judge's labels: where it is biased, no estimate
    rho: float  # correlation of the two, over people's queries
    worth: float  # people's queries that alone would tell as much
    n: int
    total: int
    used: bool = True  # the judge; else the estimate is people's

    def words(self) -> str:
        """What the judge was worth."""
        if self.n < FEW:
            return f"{self.n} of people's queries are too few: label {FEW} or more"
        if math.isnan(self.rho):
            return "on people's queries a figure never varies: the judge tells nothing of it"
        if not self.used:
            return (
                "people's queries, too few or unlike the others, do not show how the judge errs: "
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
        """For JSON: null where it is not known."""
        return {
            "estimate": known(self.estimate),
            "ci": known_ends(self.ci),
            "people": known(self.people),
            "people_ci": known_ends(self.people_ci),
            "judge": known(self.judge),
            "rho": known(self.rho),
            "worth": known(self.worth),
            "people_queries": self.n,
            "queries": self.total,
            "judge_used": self.used,
        }


def two_phase(
    judge: Sequence[float] | Array,
    people: Sequence[float] | Array,
    labelled: Array | None = None,
    most: float = 1.0,
) -> TwoPhase:
    """Of per-query values (N,), NaN where the measure is not defined.

    `labelled` says which queries people labelled; by default those with a value of theirs. `most`
    is what the measure can be.
    """
    told = np.asarray(judge, np.float64)
    f = np.nan_to_num(told, nan=0.0)
    y = np.asarray(people, np.float64)
    asked: Bool = ~np.isnan(y) if labelled is None else np.asarray(labelled, np.bool_)
    f_n, defined = f[asked], ~np.isnan(y[asked])
    own = y[asked][defined]
    n, total = len(f_n), len(f)
    alone, by_judge = _mean(own), _mean(told[~np.isnan(told)])
    rho = _correlation(f_n[defined], own)
    if len(own) < FEW:
        none = (math.nan, math.nan)
        return TwoPhase(alone, none, alone, none, by_judge, rho, math.nan, len(own), total, False)
    varies = float(np.ptp(own)) > 1e-12
    bounds = mean_intervals(own[None], most)[0]
    people_ci = (float(bounds[0]), float(bounds[1]))
    unaided = TwoPhase(
        *(alone, people_ci, alone, people_ci, by_judge, rho, float(len(own)), len(own), total),
        used=False,
    )
    shift = float(f_n.mean() - f.mean())
    away = f_n - f_n.mean()
    square = float(away @ away)
    if not varies or square <= 1e-24 * n:
        return unaided

    def slope(values: Float) -> float:
        return float(away @ values) / square

    def estimate(values: Float) -> float:
        return float(values.mean()) - slope(values) * shift

    filled = np.where(defined, y[asked], 0.0)
    counted = estimate(defined.astype(np.float64))
    if counted <= 0:  # but for the few that people's labels define
        return unaided
    theta = estimate(filled) / counted
    residual = np.where(defined, filled - theta, 0.0) / counted
    rest = residual - residual.mean() - slope(residual) * away
    squares = rest * rest
    left = float(squares.sum())
    if left <= 1e-18 * n or left * left < TELLING * float(squares @ squares):
        return unaided
    lever = shift * shift / square
    own_variance = float(np.var(residual, ddof=1))
    error = max(left / (n - 2), UNSEEN * own_variance / (n + 1))
    variance = error * (1 / n - 1 / total + lever) + own_variance / total
    half = t_quantile((1 + CONFIDENCE) / 2, n - 2.0) * math.sqrt(variance)
    low = 0.0 if own.min() >= 0.0 else -math.inf  # so is every mean
    high = most if own.max() <= most else math.inf
    if theta - half > high or theta + half < low:  # people's queries are unlike the others
        return unaided
    ends = (max(theta - half, low), min(theta + half, high))
    told_of = 0.0 if math.isnan(rho) else min(rho * rho, 1 - UNSEEN / (n + 1))
    worth = n / (1 - told_of * (1 - n / total))
    theta = min(max(theta, low), high)
    return TwoPhase(theta, ends, alone, people_ci, by_judge, rho, worth, len(own), total)


def two_phase_of(
    judged: Evaluation, labelled: Evaluation, theirs: Mapping[Measure, Measure]
) -> dict[Measure, TwoPhase]:
    """A run's figures, from the judge's labels of all queries and people's of some.

    `theirs` says of each measure what it is on the scale of people's labels. A query counts where
    it does in the mean of people's.
    """
    import polars as pl

    found = {}
    for mine, other in theirs.items():
        people = labelled.outcomes[other].in_mean()
        own = pl.DataFrame({"query": labelled.queries, "people": people})
        told = pl.DataFrame({"query": judged.queries})
        both = told.join(own, on="query", how="left", maintain_order="left")["people"]
        asked = both.is_not_null().to_numpy()
        values = both.fill_null(math.nan).to_numpy()
        found[mine] = two_phase(judged.outcomes[mine].in_mean(), values, asked, other.upper)
    return found


def with_people(figures: dict[str, Any], found: Mapping[Measure, TwoPhase], theirs: Any) -> None:
    """Add to what JSON says of a run's measures what people would make of each."""
    for measure, each in found.items():
        figures[str(measure)]["as_people"] = {"measure": str(theirs[measure])} | each.to_dict()


def _correlation(f: Float, y: Float) -> float:
    if not len(f) or min(np.ptp(f), np.ptp(y)) <= 1e-12:
        return math.nan
    return float(np.corrcoef(f, y)[0, 1])


def _mean(values: Float) -> float:
    return float(values.mean()) if len(values) else math.nan
