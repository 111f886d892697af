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
from rankproof.foundation.phrasing import out_of, plural
from rankproof.measures import Measure
from rankproof.presentation.json_values import plain, plain_fields
from rankproof.presentation.lead_wording import ZERO
from rankproof.statistics.distributions import t_quantile
from rankproof.statistics.intervals import CONFIDENCE, Interval, possible_range
from rankproof.statistics.labels import Label, label_of
from rankproof.statistics.resampling import draw_sample, uniform_numbers
from rankproof.unjudged.bounds import WorstCases, lowest_mean
from rankproof.unjudged.shared_documents import UnjudgedSet
from rankproof.unjudged.unjudged_documents import UNLISTED, QueryBounds

MIN_QUERIES = 8  # in a sample; with fewer the interval covers too rarely
_DRAWS = 40  # of the model's grades for each document
_MIN_DIFFERENT = 3  # sampled queries: fewer show too little of the model's errors
_RIDGE = 1.0  # keeps the fit finite if a run lists nothing relevant
_INTERCEPT_RIDGE = 1e-3  # the overall share of a grade is nearly free


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, or a difference of means, as it would be if every document were judged."""

    estimate: float
    ci: Interval  # for these queries
    ci_new: Interval  # for queries like them
    reported: float  # with unjudged documents as they are: not relevant

    def label(self, better: int) -> Label:
        """The label of run a for these queries; `better` is 1 if larger values are better."""
        return label_of(self.ci, better)

    def clipped(self, these: Interval, every: Interval) -> Estimate:
        """The estimate clipped to the bounds of these queries, and to those of any queries."""
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

    def to_dict(self) -> dict[str, Any]:
        return {
            **plain_fields(self, "queries", "sampled", "judged", "holes"),
            "runs": [{"name": n, "measures": plain(f)} for n, f in self.runs.items()],
            "pairs": [{"a": a, "b": b, "measures": plain(f)} for (a, b), f in self.pairs.items()],
        }


def _all_unjudged(worst_cases: WorstCases, measures: Sequence[Measure]) -> UnjudgedSet:
    """The unjudged documents of all runs for the deepest of the measures."""
    runs = list(range(len(worst_cases.runs)))
    return max((worst_cases.unjudged(runs, m) for m in measures), key=len)


def draw(
    worst_cases: WorstCases, measures: Sequence[Measure], count: int, seed: int = 0
) -> pl.DataFrame:
    """query, doc: all unjudged documents of `count` queries, drawn from those that have any."""
    documents = _all_unjudged(worst_cases, measures)
    sample = _draw_queries(documents, count, seed)
    return documents.to_frame(worst_cases.qrels).filter(np.isin(documents.query, sample))


def queries_to_draw(
    worst_cases: WorstCases,
    measures: Sequence[Measure],
    labels: Qrels,
    count: int,
    *,
    seed: int = 0,
) -> int:
    """How many queries must be drawn: `count`, or more where too few of these have a value.

    `labels` are of all unjudged documents of a sample of `count`.
    """
    documents = _all_unjudged(worst_cases, measures)
    sample = _draw_queries(documents, count, seed)
    grade = _sample_grades(worst_cases, documents, np.isin(documents.query, sample), labels)
    top = max(worst_cases.top(m) for m in measures)
    runs = [(run, run.groups_when_judged(documents, grade, top)) for run in worst_cases.matched]

    def fewest_defined(measure: Measure) -> int:
        """The fewest sampled queries for which a run, or two runs, have a value."""
        values = [
            np.where(run.is_counted, _query_values(worst_cases, groups, measure), np.nan)[sample]
            for run, groups in runs
        ]
        is_defined = ~np.isnan(values)
        return int((is_defined[:, None] & is_defined).sum(axis=2).min())

    return count + max(0, MIN_QUERIES - min(map(fewest_defined, measures)))


def _draw_queries(documents: UnjudgedSet, count: int, seed: int) -> Int:
    """Draw `count` of the queries that have unjudged documents."""
    candidates = np.unique(documents.query)
    if count < MIN_QUERIES:
        raise InputError(
            f"a sample of {plural(count, 'query')} is too small to estimate from",
            remedy=f"draw {MIN_QUERIES} or more",
        )
    if len(candidates) <= count:
        raise InputError(
            f"{plural(len(candidates), 'query has', 'queries have')} unjudged documents, fewer "
            f"than {count + 1}",
            remedy="judge them all: then nothing need be estimated",
        )
    return draw_sample(candidates, count, seed)


@dataclass(frozen=True, slots=True, eq=False)
class _Values:
    """A measure of a run, or its difference of two; NaN where a mean skips the query."""

    predicted: Float  # (DRAWS, Q) with the model's grades for documents without a label
    judged: Float  # (Q,) with the labels of the sample
    reported: Float  # (Q,) with unjudged documents as they are: not relevant

    def __sub__(self, other: _Values) -> _Values:
        return _Values(
            self.predicted - other.predicted,
            self.judged - other.judged,
            self.reported - other.reported,
        )


def estimate(
    worst_cases: WorstCases,
    measures: Sequence[Measure],
    labels: Qrels,
    count: int,
    *,
    seed: int = 0,
) -> Sampled:
    """Estimate every measure and difference as if all were judged, from `labels` for a sample.

    The sample is that of `draw` with the same seed; labels of other queries are not used.
    """
    worst_cases.check(measures)
    documents = _all_unjudged(worst_cases, measures)
    sample = _draw_queries(documents, count, seed)
    is_sampled = np.isin(documents.query, sample)
    grade = _sample_grades(worst_cases, documents, is_sampled, labels)
    values = _evaluate(worst_cases, measures, documents, grade, seed)
    estimator = _Estimator(worst_cases, documents, sample, values)
    queries = worst_cases.qrels.queries
    runs = [(index, run.name) for index, run in enumerate(worst_cases.runs)]
    return Sampled(
        queries=len(queries),
        sampled=tuple(queries.gather(sample)),
        judged=int(is_sampled.sum()),
        holes=len(documents),
        runs={name: {m: estimator.of_run(a, m) for m in measures} for a, name in runs},
        pairs={
            (name_a, name_b): {m: estimator.of_pair(a, b, m) for m in measures}
            for (a, name_a), (b, name_b) in combinations(runs, 2)
        },
    )


def _evaluate(
    worst_cases: WorstCases,
    measures: Sequence[Measure],
    documents: UnjudgedSet,
    grade: Int,
    seed: int,
) -> dict[tuple[int, Measure], _Values]:
    """Evaluate each run with the labels of the sample, and with grades drawn from the model.

    `grade` (H,) is −1 for documents outside the sample.
    """
    lowest = min([m.definition.grades[0] for m in measures if m.definition.grades] or [0])
    top = max(worst_cases.top(m) for m in measures)
    levels = range(lowest + 1, top + 1)
    probabilities = _grade_probabilities(worst_cases, documents, grade, levels)
    keys = [(run, m) for run in range(len(worst_cases.runs)) for m in measures]

    def values_with(grades: Int) -> dict[tuple[int, Measure], Float]:
        groups = [run.groups_when_judged(documents, grades, top) for run in worst_cases.matched]
        return {(run, m): _query_values(worst_cases, groups[run], m) for run, m in keys}

    draws = [
        values_with(lowest + (uniform[:, None] < probabilities).sum(axis=1))
        for uniform in uniform_numbers(len(documents), seed, _DRAWS)
    ]
    judged = values_with(grade)
    return {
        (run, m): _Values(
            predicted=np.stack([values[run, m] for values in draws]),
            judged=judged[run, m],
            reported=_query_values(worst_cases, worst_cases.matched[run].judged, m),
        )
        for run, m in keys
    }


def _query_values(worst_cases: WorstCases, groups: TieGroups, measure: Measure) -> Float:
    """(Q,) expected values as an evaluation averages them: NaN where a mean skips the query."""
    expected = measure.outcomes(groups).expected
    if worst_cases.policy.undefined == "zero":
        return np.nan_to_num(expected)
    return np.where(averaged_queries(groups, measure), expected, np.nan)


class _Estimator:
    """Estimates of means and differences from the values of runs on one sample of queries."""

    def __init__(
        self,
        worst_cases: WorstCases,
        documents: UnjudgedSet,
        sample: Int,
        values: dict[tuple[int, Measure], _Values],
    ):
        self.worst_cases, self.documents, self.values = worst_cases, documents, values
        self.runs = range(len(worst_cases.runs))
        queries = len(worst_cases.qrels.queries)
        self.has_unjudged = np.bincount(documents.query, minlength=queries) > 0  # (Q,)
        self.in_sample = np.isin(np.arange(queries), sample)  # (Q,)

    def of_run(self, run: int, measure: Measure) -> Estimate:
        """The estimate of a run's mean, clipped to what is possible."""
        values = self.values[run, measure]
        bounds = self.worst_cases.run_bounds_by_query(run, measure, self.runs)
        is_counted = self.worst_cases.matched[run].is_counted
        estimate = _estimate_mean(values, bounds, self._query_groups(is_counted))
        possible = self._possible_values(measure)
        within = possible
        if len(self.worst_cases.unjudged(self.runs, measure)) == len(self.documents):
            within = self._mean_bounds(values, bounds, is_counted)
        return estimate.clipped(within, possible)

    def of_pair(self, a: int, b: int, measure: Measure) -> Estimate:
        """The estimate of the mean of a − b, clipped to what is possible."""
        values = self.values[a, measure] - self.values[b, measure]
        bounds = self.worst_cases.pair_bounds_by_query(a, b, measure)
        is_counted = np.logical_and(*(self.worst_cases.matched[run].is_counted for run in (a, b)))
        estimate = _estimate_mean(values, bounds, self._query_groups(is_counted))
        lowest, highest = self._possible_values(measure)
        within = possible = lowest - highest, highest - lowest
        if len(self.worst_cases.unjudged([a, b], measure)) == len(self.documents):
            within = self._mean_bounds(values, bounds, is_counted)
        return estimate.clipped(within, possible)

    def _query_groups(self, is_counted: Bool) -> _QueryGroups:
        return _QueryGroups(
            judged=self.in_sample & is_counted,
            predicted=self.has_unjudged & ~self.in_sample & is_counted,
            complete=~self.has_unjudged & is_counted,
        )

    def _possible_values(self, measure: Measure) -> Interval:
        """The lowest and highest value that the measure can have on any query."""
        values = [self.values[run, measure] for run in self.runs]
        columns = [*(v.judged for v in values), *(v.reported for v in values)]
        return possible_range(np.stack(columns), measure.upper)

    def _mean_bounds(self, values: _Values, bounds: QueryBounds, is_counted: Bool) -> Interval:
        """The bounds of the mean with the sample's labels, over the grades of other queries.

        They hold only if `bounds` are over all documents that the sample was drawn from.
        """
        is_known = self.in_sample | ~self.has_unjudged
        low, high = (
            np.where(is_known, values.judged, end)[is_counted] for end in (bounds.low, bounds.high)
        )
        is_defined = ~np.isnan(np.where(is_known, values.judged, values.reported))[is_counted]
        return lowest_mean(low, is_defined), -lowest_mean(-high, is_defined)


def _sample_grades(
    worst_cases: WorstCases, documents: UnjudgedSet, is_sampled: Bool, labels: Qrels
) -> Int:
    """(H,) the grades of the sample's documents; −1 for all other documents."""
    frame = documents.to_frame(worst_cases.qrels)
    labeled = frame.join(labels.to_frame(), on=["query", "doc"], how="left", maintain_order="left")
    grade = labeled["grade"].fill_null(-1).to_numpy().astype(np.int64)
    missing = np.flatnonzero(is_sampled & (grade < 0))
    if len(missing):
        query, doc = frame.row(int(missing[0]))
        without = out_of(len(missing), int(is_sampled.sum()), "unjudged document", "has", "have")
        raise InputError(
            f"{without} no label, such as query {shorten(query)}, document {shorten(doc)}",
            place=labels.name,
            remedy="judge them all: a sample of the easy ones is not a random one",
        )
    return np.where(is_sampled, grade, -1)


# ------------------------------------------------------------------------------------- the model


def _grade_probabilities(
    worst_cases: WorstCases, documents: UnjudgedSet, grade: Int, levels: range
) -> Float:
    """(H, L) the probability of at least each grade above the lowest, in falling order.

    `grade` is −1 outside the sample. A query of the sample is predicted from the other queries of
    the sample, a query outside it from the whole sample.
    """
    is_sampled = grade >= 0
    features = _features(worst_cases, documents)
    probabilities = np.zeros((len(documents), len(levels)))
    for column, level in enumerate(levels):
        reached = (grade >= level).astype(np.float64)
        fitted = _fit_logistic(features[is_sampled], reached[is_sampled])
        probabilities[~is_sampled, column] = _logistic(features[~is_sampled], fitted)
        for query in np.unique(documents.query[is_sampled]):
            held_out = is_sampled & (documents.query == query)
            remaining = is_sampled & (documents.query != query)
            refitted = _fit_logistic(features[remaining], reached[remaining], fitted)
            probabilities[held_out, column] = _logistic(features[held_out], refitted)
    return np.minimum.accumulate(probabilities, axis=1)


def _features(worst_cases: WorstCases, documents: UnjudgedSet) -> Float:
    """(H, 1 + 2·runs) 1, and for each run whether it lists the document, and its log rank.

    The rank of a tied document is the middle of its tie group.
    """
    columns = [np.ones(len(documents))]
    for run in worst_cases.matched:
        ranks = run.tied_ranks(documents)
        is_listed = ranks.first < UNLISTED
        middle = np.where(is_listed, ranks.first + (ranks.size - 1) / 2.0, 1.0)
        columns += [is_listed.astype(np.float64), np.where(is_listed, np.log(middle), 0.0)]
    return np.stack(columns, axis=1)


def _fit_logistic(features: Float, reached: Float, begin: Float | None = None) -> Float:
    """Fit a logistic regression with a ridge penalty, by Newton's method."""
    beta = np.zeros(features.shape[1]) if begin is None else begin.copy()
    ridge = np.full(features.shape[1], _RIDGE)
    ridge[0] = _INTERCEPT_RIDGE
    for _ in range(30):
        probability = _logistic(features, beta)
        gradient = features.T @ (reached - probability) - ridge * beta
        information = (features * (probability * (1.0 - probability))[:, None]).T @ features
        step = np.linalg.solve(information + np.diag(ridge), gradient)
        beta += np.clip(step, -4.0, 4.0)
        if np.abs(step).max() < 1e-8:
            break
    return beta


def _logistic(features: Float, beta: Float) -> Float:
    """1/(1 + exp(−x·β)), without overflow."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(features @ beta, -30.0, 30.0))), np.float64)


# ----------------------------------------------------------------------------------- the estimate


@dataclass(frozen=True, slots=True, eq=False)
class _QueryGroups:
    """The counted queries by how their values are known: (Q,) each."""

    judged: Bool  # in the sample: with labels
    predicted: Bool  # outside the sample: by the model
    complete: Bool  # without unjudged documents


def _estimate_mean(values: _Values, bounds: QueryBounds, queries: _QueryGroups) -> Estimate:
    """Estimate one mean: total over count, since judging also decides which queries count.

    The formulas are those of the module's docstring.
    """
    has_value = ~np.isnan(values.judged)
    known = values.judged[queries.judged & has_value]
    if len(known) < MIN_QUERIES:
        raise InputError(
            f"a measure is defined on {len(known)} of the {int(queries.judged.sum())} sampled "
            f"queries, and {MIN_QUERIES} are needed",
            remedy="draw more: those of this sample stay in it",
        )
    is_defined = ~np.isnan(values.predicted)
    predicted = np.where(is_defined, values.predicted, 0.0).mean(axis=0)
    total, total_errors = _correct_total(np.nan_to_num(values.judged), predicted, queries)
    count, count_errors = _correct_total(
        has_value.astype(np.float64), is_defined.mean(axis=0), queries
    )
    mean = total / count
    spread = float((total_errors - mean * count_errors).std(ddof=1))
    spread = max(spread, _unseen_spread(values, bounds, queries))
    m, remaining = int(queries.judged.sum()), int(queries.predicted.sum())
    error = spread * remaining / count * math.sqrt(1.0 / m + 1.0 / max(remaining, 1))
    error = math.hypot(error, mean * math.sqrt(_count_variance(values, queries)) / count)
    between_queries = float(known.var(ddof=1)) / count
    t = t_quantile((1.0 + CONFIDENCE) / 2.0, m - 1.0)
    half, half_new = t * error, t * math.sqrt(error**2 + between_queries)
    is_counted = queries.judged | queries.predicted | queries.complete
    reported = values.reported[is_counted & ~np.isnan(values.reported)]
    return Estimate(
        estimate=mean,
        ci=(mean - half, mean + half),
        ci_new=(mean - half_new, mean + half_new),
        reported=float(reported.mean()) if len(reported) else math.nan,
    )


def _correct_total(judged: Float, model: Float, queries: _QueryGroups) -> tuple[float, Float]:
    """The total over queries, the model's values corrected by its mean error; and its errors."""
    errors = (judged - model)[queries.judged]
    corrected = model[queries.predicted] + errors.mean()
    parts = [judged[queries.complete], judged[queries.judged], corrected]
    return math.fsum(np.concatenate(parts)), errors


def _count_variance(values: _Values, queries: _QueryGroups) -> float:
    """The variance of how many of the predicted queries turn out undefined.

    Whether a query with nothing relevant yet counts is decided by few: a small sample may hold
    none that does not. Their number is beta-binomial, from a uniform prior.
    """
    is_unsure = np.isnan(values.reported)
    sampled = int((queries.judged & is_unsure).sum())
    ahead = int((queries.predicted & is_unsure).sum())
    undefined = int((queries.judged & is_unsure & np.isnan(values.judged)).sum())
    share = (undefined + 1.0) / (sampled + 2.0)
    return ahead * share * (1.0 - share) * (1.0 + ahead / (sampled + 2.0))


def _unseen_spread(values: _Values, bounds: QueryBounds, queries: _QueryGroups) -> float:
    """The spread of the model's errors if one more query had the largest possible error.

    0 if enough of the judged queries differ from what was reported, and from both bounds.
    """
    judged, reported, low, high = map(
        np.nan_to_num, (values.judged, values.reported, bounds.low, bounds.high)
    )
    different = [
        int((np.abs(judged - other)[queries.judged] > ZERO).sum())
        for other in (reported, low, high)
    ]
    if min(different) >= _MIN_DIFFERENT or not queries.predicted.any():
        return 0.0
    largest = float(np.sqrt(np.square(high - low)[queries.predicted].mean()))
    return largest / math.sqrt(queries.judged.sum() + 1.0)
