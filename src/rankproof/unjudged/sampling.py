"""Estimates from a sample of queries that are judged completely, where bounds say little.

Draw m queries and judge all their unjudged documents. A model of grades, by log rank in each run
and by which runs list the document, predicts the other queries; its error on each judged query,
with the model fitted without that query, corrects it:

    r_q      = F_q(true) − E F_q(model without q)
    estimate = [Σ_judged F_q + Σ_others (E F_q + r̄)] / Q
    ±          t_{m−1} · s_r · (Q−m)/Q · √(1/m + 1/(Q−m))

Q is estimated in the same way where judging decides which queries count (those with a relevant
document); then r_q is what the model misses of F_q − estimate · [q counts].

With a bad model the correction makes the interval wider, not wrong. Queries without unjudged
documents are known and not drawn from.

Eight queries without a relevant document among the unjudged ones are predicted without an error,
and s_r is 0; if one query in twenty has some, that covered .4. If fewer than three of the sample
differ from what was reported, or from a bound, s_r is at least what one more query would make of it
that goes from bound to bound: the root of the mean square of (highest − lowest), over √(m + 1).

No estimate is beyond what the measure can be, nor beyond the bounds over the same documents with
the sample's labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.tables import Qrels
from rankproof.data.ties import TieGroups
from rankproof.evaluation import averaged_queries
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import amount, out_of, plural, signed
from rankproof.measures import Measure
from rankproof.presentation.json_values import plain, plain_fields
from rankproof.presentation.lead_wording import ZERO
from rankproof.statistics.distributions import t_quantile
from rankproof.statistics.intervals import CONFIDENCE, Interval, possible_range
from rankproof.statistics.resampling import draw_sample, uniform_numbers
from rankproof.unjudged.bounds import WorstCases, lowest_mean
from rankproof.unjudged.shared_documents import UnjudgedSet
from rankproof.unjudged.unjudged_documents import UNLISTED, QueryBounds

LEAST = 8  # queries, below which the interval does not cover
DRAWS = 40  # of the model's grades for each document
TELLING = 3  # queries must differ: fewer show too little of the model's errors
_RIDGE = 1.0  # keeps the fit finite if a run lists nothing relevant


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, or a difference of means, as it would be if every document were judged."""

    estimate: float
    ci: Interval  # for these queries
    ci_new: Interval  # for queries like them
    reported: float  # with unjudged documents as they are: not relevant

    def inside(self, these: Interval, every: Interval) -> Estimate:
        """The estimate clipped to what these queries, and any queries, can have."""
        value, *ci = np.clip([self.estimate, *self.ci], *these).tolist()
        new = np.clip(self.ci_new, *every).tolist()
        return Estimate(value, (ci[0], ci[1]), (new[0], new[1]), self.reported)


@dataclass(frozen=True, slots=True)
class Sampled:
    """Estimates for all runs and pairs at once, from one sample of queries."""

    queries: int
    sampled: tuple[str, ...]
    judged: int  # unjudged documents of the sample, all judged now
    holes: int  # unjudged documents in all
    runs: Mapping[str, dict[Measure, Estimate]]
    pairs: Mapping[tuple[str, str], dict[Measure, Estimate]]

    def words(self) -> list[str]:
        """Which run is ahead by these estimates, in sentences."""
        said = []
        for (a, b), found in self.pairs.items():
            for m, e in found.items():
                low, high = e.ci
                if low <= 0 <= high:
                    told = f"the sample does not tell {a} and {b} apart"
                else:
                    ahead, behind = (a, b) if m.sign * low > 0 else (b, a)
                    told = f"{ahead} is ahead of {behind} by {amount(abs(e.estimate))}"
                said.append(
                    f"{m}: {told}, as if every hole were judged ({a} − {b} is "
                    f"{signed(e.estimate)}, 95% from {signed(low)} to {signed(high)})."
                )
        return said

    def to_dict(self) -> dict[str, Any]:
        return {
            **plain_fields(self, "queries", "sampled", "judged", "holes"),
            "runs": [{"name": n, "measures": plain(f)} for n, f in self.runs.items()],
            "pairs": [{"a": a, "b": b, "measures": plain(f)} for (a, b), f in self.pairs.items()],
        }


def _all_unjudged(view: WorstCases, measures: Sequence[Measure]) -> UnjudgedSet:
    """The unjudged documents of all runs for the deepest of the measures."""
    everyone = list(range(len(view.runs)))
    found = [view.unjudged(everyone, m) for m in measures]
    return max(found, key=len)


def draw(view: WorstCases, measures: Sequence[Measure], count: int, seed: int = 0) -> pl.DataFrame:
    """query, doc: all unjudged documents of `count` queries, drawn from those that have any."""
    documents = _all_unjudged(view, measures)
    chosen = _draw_queries(documents, count, seed)
    rows = np.flatnonzero(np.isin(documents.query, chosen))
    return pl.DataFrame(
        {
            "query": view.qrels.queries.gather(documents.query[rows]),
            "doc": documents.doc.gather(rows),
        }
    )


def _draw_queries(documents: UnjudgedSet, count: int, seed: int) -> Int:
    open_ = np.unique(documents.query)
    if count < LEAST:
        raise InputError(
            f"a sample of {plural(count, 'query')} is too small to estimate from",
            remedy=f"draw {LEAST} or more",
        )
    if len(open_) <= count:
        raise InputError(
            f"{plural(len(open_), 'query has', 'queries have')} holes, and {count} were to be "
            "drawn",
            remedy="judge all holes: then nothing need be estimated",
        )
    return draw_sample(open_, count, seed)


def estimate(
    view: WorstCases, measures: Sequence[Measure], labels: Qrels, count: int, *, seed: int = 0
) -> Sampled:
    """Estimate every measure and difference as if all were judged, from `labels` for a sample.

    The sample is that of `draw` with the same seed; labels of other queries are not used.
    """
    view.check(measures)
    documents = _all_unjudged(view, measures)
    chosen = _draw_queries(documents, count, seed)
    inside = np.isin(documents.query, chosen)
    grade = _sample_grades(view, documents, inside, labels)
    lowest = min([m.definition.grades[0] for m in measures if m.definition.grades] or [0])
    top = max(view.top(m) for m in measures)
    chances = _grade_probabilities(view, documents, inside, grade, range(lowest + 1, top + 1))

    def value(groups: TieGroups, m: Measure) -> Float:
        """(Q,) as an evaluation takes the mean of them: NaN where a query does not count."""
        found = m.outcomes(groups).expected
        if view.policy.undefined == "zero":
            return np.nan_to_num(found)
        return np.where(averaged_queries(groups, m), found, np.nan)

    everyone = range(len(view.runs))
    drawn: dict[tuple[int, Measure], list[Float]] = {(a, m): [] for a in everyone for m in measures}
    for uniform in uniform_numbers(len(documents), seed, DRAWS):
        guessed = lowest + (uniform[:, None] < chances).sum(axis=1)
        for a in everyone:
            groups = view.matched[a].groups_when_judged(documents, guessed, top)
            for m in measures:
                drawn[a, m].append(value(groups, m))
    known = np.where(inside, grade, -1)
    truth = {}
    now = {}
    for a in everyone:
        groups = view.matched[a].groups_when_judged(documents, known, top)
        for m in measures:
            truth[a, m] = value(groups, m)
            now[a, m] = value(view.matched[a].judged, m)

    open_ = np.bincount(documents.query, minlength=len(view.qrels.queries)) > 0
    in_sample = np.zeros(len(open_), np.bool_)
    in_sample[chosen] = True

    def one(of: tuple[int, ...], m: Measure) -> Estimate:
        is_counted = np.logical_and.reduce([view.matched[a].counted for a in of])
        if len(of) == 1:
            guesses, true, reported = drawn[of[0], m], truth[of[0], m], now[of[0], m]
            bounds, alike = view.run_bounds_by_query(of[0], m, everyone), view.unjudged(everyone, m)
        else:
            a, b = of
            guesses = [x - y for x, y in zip(drawn[a, m], drawn[b, m], strict=True)]
            true, reported = truth[a, m] - truth[b, m], now[a, m] - now[b, m]
            bounds, alike = view.pair_bounds_by_query(a, b, m), view.unjudged([a, b], m)
        found = _estimate_mean(guesses, true, reported, bounds, open_, in_sample, is_counted)
        seen = np.stack([x[a, m] for x in (truth, now) for a in everyone])
        least, most = possible_range(seen, m.upper)
        every = (least, most) if len(of) == 1 else (least - most, most - least)
        within = every
        if len(alike) == len(documents):
            settled = in_sample | ~open_
            low, high = (np.where(settled, true, x)[is_counted] for x in (bounds.low, bounds.high))
            defined = ~np.isnan(np.where(settled, true, reported))[is_counted]
            within = (lowest_mean(low, defined), -lowest_mean(-high, defined))
        return found.inside(within, every)

    names = [run.name for run in view.runs]
    return Sampled(
        queries=len(view.qrels.queries),
        sampled=tuple(view.qrels.queries.gather(chosen)),
        judged=int(inside.sum()),
        holes=len(documents),
        runs={names[a]: {m: one((a,), m) for m in measures} for a in everyone},
        pairs={
            (names[a], names[b]): {m: one((a, b), m) for m in measures}
            for a, b in combinations(everyone, 2)
        },
    )


def _sample_grades(view: WorstCases, documents: UnjudgedSet, sampled: Bool, labels: Qrels) -> Int:
    """(H,) the grades of the sample's documents; −1 for the others."""
    frame = pl.DataFrame(
        {"query": view.qrels.queries.gather(documents.query), "doc": documents.doc}
    )
    found = frame.join(labels.to_frame(), on=["query", "doc"], how="left", maintain_order="left")
    grade = found["grade"].fill_null(-1).to_numpy().astype(np.int64)
    missing = np.flatnonzero(sampled & (grade < 0))
    if len(missing):
        query, doc = frame.row(int(missing[0]))
        raise InputError(
            f"{out_of(len(missing), int(sampled.sum()), 'hole', 'has', 'have')} no label, such as "
            f"query {shorten(query)}, document {shorten(doc)}",
            place=labels.name,
            remedy="judge them all: a sample of the easy ones is not a random one",
        )
    return np.where(sampled, grade, -1)


# ------------------------------------------------------------------------------------- the model


def _grade_probabilities(
    view: WorstCases, documents: UnjudgedSet, sampled: Bool, grade: Int, levels: range
) -> Float:
    """(H, L) the probability of at least each grade above the lowest, in falling order.

    A query of the sample is predicted from the others; queries outside it from the whole sample.
    """
    features = _features(view, documents)
    chances = np.zeros((len(documents), len(levels)))
    for at, level in enumerate(levels):
        reached = (grade >= level).astype(np.float64)
        fitted = _fit_logistic(features[sampled], reached[sampled])
        chances[~sampled, at] = _logistic(features[~sampled], fitted)
        for query in np.unique(documents.query[sampled]):
            own = sampled & (documents.query == query)
            rest = sampled & (documents.query != query)
            chances[own, at] = _logistic(
                features[own], _fit_logistic(features[rest], reached[rest], fitted)
            )
    return np.minimum.accumulate(chances, axis=1)


def _features(view: WorstCases, documents: UnjudgedSet) -> Float:
    """(H, 1 + 2·runs) 1, and for each run whether it lists the document, and its log rank."""
    columns = [np.ones(len(documents))]
    for reach in view.matched:
        seen = reach.tied_ranks(documents)
        listed = seen.first < UNLISTED
        middle = np.where(listed, seen.first + (seen.size - 1) / 2.0, 1.0)
        columns += [listed.astype(np.float64), np.where(listed, np.log(middle), 0.0)]
    return np.stack(columns, axis=1)


def _fit_logistic(features: Float, reached: Float, begin: Float | None = None) -> Float:
    """Fit a logistic regression with a ridge penalty, by Newton's method."""
    beta = np.zeros(features.shape[1]) if begin is None else begin.copy()
    ridge = np.full(features.shape[1], _RIDGE)
    ridge[0] = 1e-3  # the level is nearly free
    for _ in range(30):
        chance = _logistic(features, beta)
        gradient = features.T @ (reached - chance) - ridge * beta
        hessian = (features * (chance * (1.0 - chance))[:, None]).T @ features + np.diag(ridge)
        step = np.linalg.solve(hessian, gradient)
        beta += np.clip(step, -4.0, 4.0)
        if np.abs(step).max() < 1e-8:
            break
    return beta


def _logistic(features: Float, beta: Float) -> Float:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(features @ beta, -30.0, 30.0))), np.float64)


# ----------------------------------------------------------------------------------- the estimate


def _estimate_mean(
    draws: list[Float],
    true: Float,
    reported: Float,
    bounds: QueryBounds,
    open_: Bool,
    in_sample: Bool,
    is_counted: Bool,
) -> Estimate:
    """Estimate one mean: a ratio, since judging also decides which queries count."""
    stacked = np.stack(draws)
    defined = ~np.isnan(stacked)
    counts_true = ~np.isnan(true)
    judged, other = in_sample & is_counted, open_ & ~in_sample & is_counted
    whole = ~open_ & is_counted
    mean_now = reported[is_counted & ~np.isnan(reported)]
    said = float(mean_now.mean()) if len(mean_now) else math.nan
    known = true[judged & counts_true]
    if len(known) < LEAST:
        raise InputError(
            f"a measure is defined on {len(known)} of the sampled queries",
            remedy=f"draw more than {LEAST}",
        )
    m, rest = int(judged.sum()), int(other.sum())
    missed, totals = [], []
    for truth, model in (
        (np.nan_to_num(true), np.where(defined, stacked, 0.0).mean(axis=0)),
        (counts_true.astype(np.float64), defined.mean(axis=0)),
    ):
        residual = (truth - model)[judged]
        missed.append(residual)
        parts = [truth[whole], truth[judged], model[other] + residual.mean()]
        totals.append(math.fsum(np.concatenate(parts)))
    centre, total = totals[0] / totals[1], totals[1]
    spread = float((missed[0] - centre * missed[1]).std(ddof=1))
    spread = max(spread, _unseen_spread(true, reported, bounds, judged, other))
    error = spread * rest / total * math.sqrt(1.0 / m + 1.0 / max(rest, 1))
    # Whether a query with nothing relevant yet counts is decided by few: a small sample may hold
    # none that does not. Their number is beta-binomial, from a uniform prior.
    unsure = np.isnan(reported)
    seen, ahead = int((judged & unsure).sum()), int((other & unsure).sum())
    share = (int((judged & unsure & ~counts_true).sum()) + 1.0) / (seen + 2.0)
    number = ahead * share * (1.0 - share) * (1.0 + ahead / (seen + 2.0))
    error = math.hypot(error, centre * math.sqrt(number) / total)
    between = float(known.var(ddof=1)) / total
    t = t_quantile((1.0 + CONFIDENCE) / 2.0, m - 1.0)
    half, wide = t * error, t * math.sqrt(error**2 + between)
    return Estimate(centre, (centre - half, centre + half), (centre - wide, centre + wide), said)


def _unseen_spread(
    true: Float, reported: Float, bounds: QueryBounds, judged: Bool, other: Bool
) -> float:
    """The spread of the model's errors if one more query had the largest possible error.

    0 if enough of the judged queries differ from what was reported, and from both bounds.
    """
    truth, now, low, high = map(np.nan_to_num, (true, reported, bounds.low, bounds.high))
    apart = [int((np.abs(truth - same)[judged] > ZERO).sum()) for same in (now, low, high)]
    if min(apart) >= TELLING or not other.any():
        return 0.0
    reach = float(np.sqrt(np.square(high - low)[other].mean()))
    return reach / math.sqrt(judged.sum() + 1.0)
