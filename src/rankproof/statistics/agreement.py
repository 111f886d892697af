"""How far annotators (raters) agree beyond chance, with intervals over queries.

    Cohen's κ         (p − e)/(1 − e),  p = Σ w_ab t_ab,  e = Σ w_ab t_a· t_·b,  t the shared table
    Gwet's AC1, AC2   (p − e)/(1 − e),  e = T_w/(q(q − 1)) · Σ π_k(1 − π_k),  T_w = Σ w_kl
    Krippendorff's α  1 − observed/expected disagreement, over all pairs of ratings of an item

A missing rating is NaN. An undefined coefficient is NaN, with the reason.

Grades of passages of one query are correlated, so the interval is over queries (an item without a
query counts as one), by the jackknife: z_−q is computed without query q, for each of the Q queries.
With z = atanh of the coefficient, or of 2p − 1 for a share p,

    tanh(z ± t_{Q−1} · se),  se² = (Q − 1)/Q · Σ (z_−q − z̄)²

With ten passages per query the coverage is .92 to .95 from 10 queries on; resampling of passages
covers .6. There is no interval for fewer than six queries, nor if some z_−q is undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.errors import InputError, shorten
from rankproof.statistics.distributions import t_quantile
from rankproof.statistics.intervals import (
    CONFIDENCE,
    MIN_QUERIES,
    interval_or_none,
    none_if_nan,
)

Weights = Literal["none", "linear", "quadratic", "ordinal"]
Level = Literal["nominal", "ordinal", "interval"]
Ratings: TypeAlias = Sequence[float | None] | Array
Queries: TypeAlias = Sequence[Hashable] | None  # one per item; None: each item is a query
Scale = Literal["atanh", "share", "plain"]  # the transformation under which intervals are symmetric

GRADES = (1.0, 2.0, 3.0, 4.0, 5.0)

_ROUNDING = 1e-12  # values that differ by less are equal
_MAX_LEVELS = 100  # more levels are measurements, not categories


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A coefficient with its interval; NaN, with the reason, where it is undefined."""

    name: str
    value: float
    low: float  # 95% over queries; NaN if there is no interval
    high: float
    items: int  # rated twice or more
    undefined: str | None = None  # the reason
    queries: int = 0  # of these items

    def to_dict(self) -> dict[str, Any]:
        """Return the coefficient for JSON, with null where it is undefined."""
        return {
            "value": none_if_nan(self.value),
            "ci": interval_or_none((self.low, self.high)),
            "items": self.items,
            "queries": self.queries,
            "undefined": self.undefined,
        }


@dataclass(frozen=True, slots=True)
class Confusion:
    """How often the first rater gave the row's level and the second the column's."""

    levels: Float  # (q,)
    counts: Int  # (q, q)


def confusion(first: Ratings, second: Ratings, levels: Sequence[float] | None = None) -> Confusion:
    """Count the pairs of levels over the items that both rated."""
    scale, counts = _level_counts(_ratings_table([first, second]), levels)
    both = (counts.sum(axis=2) > 0).all(axis=0)
    return Confusion(scale, np.einsum("ia,ib->ab", counts[0][both], counts[1][both]))


def cohen_kappa(
    first: Ratings,
    second: Ratings,
    weights: Weights = "none",
    levels: Sequence[float] | None = None,
    *,
    queries: Queries = None,
) -> Coefficient:
    """Return Cohen's κ of two raters, over the items that both rated.

    `weights` give partial credit to unequal levels, by the distance of their values.

    >>> from rankproof.statistics.agreement import cohen_kappa
    >>> cohen_kappa([1, 1, 0, 0], [1, 0, 0, 0]).value
    0.5
    """
    scale, counts = _level_counts(_ratings_table([first, second]), levels)
    both = (counts.sum(axis=2) > 0).all(axis=0)
    q = len(scale)
    weight = _level_agreement(scale, weights)
    joint = counts[0][both, :, None] * counts[1][both, None, :]
    parts = joint.reshape(len(joint), q * q)

    def statistic(sums: Float) -> Float:
        table = sums.reshape(-1, q, q)
        share = table / table.sum(axis=(1, 2), keepdims=True)
        expected = np.einsum("ba,bc,ac->b", share.sum(axis=2), share.sum(axis=1), weight)
        return _beyond_chance(np.einsum("bac,ac->b", share, weight), expected)

    return _estimate(
        name="κ" if weights == "none" else f"κ, {weights}",
        parts=parts,
        statistic=statistic,
        items=int(both.sum()),
        why_undefined="chance alone would agree: both raters gave one label to every item",
        query=_query_numbers(queries, both),
    )


def gwet_ac(
    ratings: Sequence[Ratings] | Array,
    weights: Weights = "none",
    levels: Sequence[float] | None = None,
    *,
    queries: Queries = None,
) -> Coefficient:
    """Return Gwet's AC1 (no weights) or AC2 of two raters or more, (raters, items).

    `levels` are those of the scale; by default those that occur in the ratings.
    """
    scale, by_rater = _level_counts(_ratings_table(ratings), levels)
    counts = by_rater.sum(axis=0).astype(np.float64)  # (I, q) raters who gave each level
    rated = counts.sum(axis=1) > 0
    counts = counts[rated]
    raters = counts.sum(axis=1)
    q = len(scale)
    weight = _level_agreement(scale, weights)
    is_repeated = raters >= 2
    agreed = (counts * (counts @ weight - 1)).sum(axis=1) / np.maximum(raters * (raters - 1), 1)
    parts = np.column_stack([agreed * is_repeated, is_repeated, counts / raters[:, None]])

    def statistic(sums: Float) -> Float:
        if q < 2:
            return np.full(len(sums), np.nan)
        pi = sums[:, 2:] / sums[:, 2:].sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            observed = sums[:, 0] / sums[:, 1]  # 0/0 if one query has all repeated items
        expected = weight.sum() / (q * (q - 1)) * (pi * (1 - pi)).sum(axis=1)
        return _beyond_chance(observed, expected)

    return _estimate(
        name="AC1" if weights == "none" else f"AC2, {weights}",
        parts=parts,
        statistic=statistic,
        items=int(is_repeated.sum()),
        why_undefined="there is one level alone: name the levels of the scale",
        query=_query_numbers(queries, rated),
    )


def krippendorff_alpha(
    ratings: Sequence[Ratings] | Array,
    level: Level = "ordinal",
    levels: Sequence[float] | None = None,
    *,
    queries: Queries = None,
) -> Coefficient:
    """Return Krippendorff's α of two raters or more, (raters, items).

    α = 1 − (n − 1) Σ o_ck δ²_ck / Σ n_c n_k δ²_ck, o the coincidences inside items, n_c = Σ_k o_ck.
    """
    scale, by_rater = _level_counts(_ratings_table(ratings), levels)
    counts = by_rater.sum(axis=0).astype(np.float64)
    is_repeated = counts.sum(axis=1) >= 2
    counts = counts[is_repeated]
    q = len(scale)
    pairs = counts[:, :, None] * counts[:, None, :]
    pairs[:, np.arange(q), np.arange(q)] -= counts
    pairs /= (counts.sum(axis=1) - 1)[:, None, None]
    parts = pairs.reshape(len(pairs), q * q)

    def statistic(sums: Float) -> Float:
        coincidences = sums.reshape(-1, q, q)
        totals = coincidences.sum(axis=2)
        if level == "nominal":
            squared = np.broadcast_to(1 - np.eye(q), coincidences.shape)
        else:
            position = scale if level == "interval" else np.cumsum(totals, axis=1) - totals / 2
            position = np.broadcast_to(position, totals.shape)
            squared = (position[:, :, None] - position[:, None, :]) ** 2
        observed = (coincidences * squared).sum(axis=(1, 2))
        expected = (totals[:, :, None] * totals[:, None, :] * squared).sum(axis=(1, 2))
        with np.errstate(divide="ignore", invalid="ignore"):
            alpha = 1 - (totals.sum(axis=1) - 1) * observed / expected
        return np.where(expected > 0, alpha, np.nan)

    return _estimate(
        name=f"α, {level}",
        parts=parts,
        statistic=statistic,
        items=len(counts),
        why_undefined="every rating is the same: nothing could disagree",
        query=_query_numbers(queries, is_repeated),
    )


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of two raters on one scale: their confusion table and every coefficient."""

    confusion: Confusion
    coefficients: dict[str, Coefficient]

    def to_dict(self) -> dict[str, Any]:
        """Return the table and the coefficients for JSON."""
        return {
            "levels": self.confusion.levels.tolist(),
            "confusion": self.confusion.counts.tolist(),
            "coefficients": {name: c.to_dict() for name, c in self.coefficients.items()},
        }


def agreement(
    first: Ratings,
    second: Ratings,
    *,
    levels: Sequence[float] = GRADES,
    relevant: float = 4,
    queries: Queries = None,
) -> Agreement:
    """Compute all coefficients of two raters, on all levels and on "at least `relevant`" or not.

    >>> from rankproof.statistics.agreement import agreement
    >>> result = agreement([5, 4, 4, 2, 1, 3], [5, 5, 4, 1, 1, 3])
    >>> round(result.coefficients["κ, quadratic"].value, 3)
    0.928
    """
    ratings = _ratings_table([first, second])
    kinds: tuple[Weights, ...] = ("none", "linear", "quadratic", "ordinal")
    scales: tuple[Level, ...] = ("nominal", "ordinal", "interval")
    coefficients = [
        _exact_agreement(ratings, queries),
        *(cohen_kappa(ratings[0], ratings[1], kind, levels, queries=queries) for kind in kinds[:3]),
        *(gwet_ac(ratings, kind, levels, queries=queries) for kind in kinds),
        *(krippendorff_alpha(ratings, scale, levels, queries=queries) for scale in scales),
        *_binary_coefficients(ratings, relevant, queries),
    ]
    return Agreement(confusion(ratings[0], ratings[1], levels), {c.name: c for c in coefficients})


def _binary_coefficients(ratings: Float, relevant: float, queries: Queries) -> list[Coefficient]:
    """Return κ and AC1 of the two labels "at least `relevant`" and "below".

    They have no interval if too few queries have passages with one of the labels.
    """
    binary = np.where(np.isnan(ratings), np.nan, ratings >= relevant)
    both_rated = ~np.isnan(binary).any(axis=0)
    queries_of_rarer = min(
        len(np.unique(_query_numbers(queries, (binary == label).any(axis=0) & both_rated)))
        for label in (0, 1)
    )
    coefficients = []
    for coefficient in (
        cohen_kappa(binary[0], binary[1], levels=(0, 1), queries=queries),
        gwet_ac(binary, levels=(0, 1), queries=queries),
    ):
        named = replace(coefficient, name=f"{coefficient.name}, {relevant:g}+")
        if queries_of_rarer < MIN_QUERIES:
            named = replace(named, low=math.nan, high=math.nan)
        coefficients.append(named)
    return coefficients


@dataclass(frozen=True, slots=True)
class SelfConsistency:
    """How far repeated ratings of the same items by one rater agree."""

    exact: Coefficient  # share of pairs of repeats that are equal, mean over items
    difference: Coefficient  # mean absolute difference of two repeats
    sd: Coefficient  # of a repeat: root of the mean variance inside items
    alpha: Coefficient  # Krippendorff's, ordinal


def self_consistency(
    ratings: Sequence[Ratings] | Array, *, queries: Queries = None
) -> SelfConsistency:
    """Compare one rater's repeats (repeats, items); items with fewer than two ratings are ignored.

    >>> from rankproof.statistics.agreement import self_consistency
    >>> self_consistency([[5, 4, 2, 1], [5, 3, 2, 1]]).exact.value
    0.75
    """
    table = _ratings_table(ratings)
    repeats = (~np.isnan(table)).sum(axis=0)
    repeated = repeats >= 2
    query = _query_numbers(queries, repeated)
    table, repeats = table[:, repeated], repeats[repeated]
    pairs = repeats * (repeats - 1) / 2
    first, second = np.triu_indices(len(table), 1)
    difference = np.nansum(np.abs(table[first] - table[second]), axis=0) / pairs
    variance = np.nanvar(table, axis=0, ddof=1) if len(repeats) else np.zeros(0)
    return SelfConsistency(
        _exact_agreement(table, query.tolist()),
        _mean_estimate("mean absolute difference", difference, query, "plain"),
        _mean_estimate("sd", variance, query, "plain", np.sqrt),
        krippendorff_alpha(table, "ordinal", queries=query.tolist()),
    )


def _mean_estimate(
    name: str,
    values: Float,
    query: Int,
    scale: Scale,
    transform: Callable[[Float], Float] = np.asarray,
) -> Coefficient:
    """Return the mean of values (items,), or a transform of it, with its interval over queries."""

    def statistic(sums: Float) -> Float:
        return transform(sums[:, 0] / sums[:, 1])

    parts = np.column_stack([values, np.ones(len(values))])
    return _estimate(name, parts, statistic, len(values), "", query, scale)


def _exact_agreement(ratings: Float, queries: Queries) -> Coefficient:
    """Return the share of equal pairs of ratings, as a mean over items with two or more."""
    raters = (~np.isnan(ratings)).sum(axis=0)
    first, second = np.triu_indices(len(ratings), 1)
    equal = (ratings[first] == ratings[second]).sum(axis=0)
    is_repeated = raters >= 2
    share = equal[is_repeated] / (raters * (raters - 1) / 2)[is_repeated]
    return _mean_estimate("exact", share, _query_numbers(queries, is_repeated), "share")


def _query_numbers(queries: Queries, chosen: Bool) -> Int:
    """Return the number of the query of each chosen item; queries are numbered from 0."""
    if queries is None:
        return np.arange(int(chosen.sum()))
    if len(queries) != len(chosen):
        raise InputError(
            f"{len(queries)} queries of {len(chosen)} items",
            place="agreement",
            remedy="give the query of each item",
        )
    number: dict[Hashable, int] = {}
    numbers = np.array([number.setdefault(query, len(number)) for query in queries], np.int64)
    return np.unique(numbers[chosen], return_inverse=True)[1].reshape(-1)


def _ratings_table(ratings: Sequence[Ratings] | Array) -> Float:
    """(raters, items) ratings as numbers, NaN where one is missing."""
    lengths = {len(by_rater) for by_rater in ratings}
    if len(lengths) > 1:
        raise InputError(
            f"raters rated {', '.join(str(n) for n in sorted(lengths))} items",
            place="agreement",
            remedy="give every rater's list the same items, NaN where one is missing",
        )
    try:
        table = np.array([list(by_rater) for by_rater in ratings], np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "a rating is not a number", place="agreement", remedy="code the levels as numbers"
        ) from None
    if np.isinf(table).any():
        raise InputError("a rating is infinite", place="agreement", remedy="give finite numbers")
    return table if table.ndim == 2 else table.reshape(0, 0)  # no rater at all


def _level_counts(ratings: Float, levels: Sequence[float] | None) -> tuple[Float, Int]:
    """Return the levels in order (q,), and (raters, items, q) 1 at the level of each rating."""
    present = ratings[~np.isnan(ratings)]
    scale = np.unique(present if levels is None else np.asarray(levels, np.float64))
    if len(scale) > _MAX_LEVELS:
        raise InputError(
            f"{len(scale)} different ratings", place="agreement", remedy="round them to levels"
        )
    unknown = present[~np.isin(present, scale)]
    if len(unknown):
        raise InputError(
            f"rating {unknown[0]:g} is not one of the levels {shorten([float(x) for x in scale])}",
            place="agreement",
            remedy="correct it, or name it as a level",
        )
    return scale, (ratings[:, :, None] == scale).astype(np.int64)


def _level_agreement(levels: Float, kind: Weights) -> Float:
    """(q, q) agreement of two levels: 1 for equal ones, 0 for the two that are farthest apart.

    Linear and quadratic weights use the levels' values; ordinal ones, 1 − C(d+1, 2)/C(q, 2), the
    difference d of their ranks.
    """
    q = len(levels)
    if kind == "none" or q < 2:
        return np.eye(q)
    if kind == "ordinal":
        steps = np.abs(np.subtract.outer(np.arange(q), np.arange(q)))
        distance: Float = steps * (steps + 1) / (q * (q - 1))
    else:
        distance = np.abs(np.subtract.outer(levels, levels)) / (levels[-1] - levels[0])
    return 1 - (distance**2 if kind == "quadratic" else distance)


def _beyond_chance(observed: Float, expected: Float) -> Float:
    """(p − e)/(1 − e): agreement beyond chance; NaN where chance would always agree."""
    possible = 1 - expected
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(possible > _ROUNDING, (observed - expected) / possible, np.nan)


def _estimate(
    name: str,
    parts: Array,
    statistic: Callable[[Float], Float],
    items: int,
    why_undefined: str,
    query: Int,
    scale: Scale = "atanh",
) -> Coefficient:
    """Return a coefficient and its jackknife interval over queries.

    `statistic` computes it from column sums (b, f); `parts` (rows, f) are what each item adds to
    these, `query` (rows,) the query of each item.
    """
    nan = math.nan
    if items == 0:
        return Coefficient(name, nan, nan, nan, 0, "no item was rated twice")
    queries = int(query.max()) + 1
    sums = np.stack(
        [np.bincount(query, column, queries) for column in parts.astype(np.float64).T], axis=1
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(sums.sum(axis=0)[None])[0])
        without_query = statistic(sums.sum(axis=0) - sums)
    if math.isnan(value):
        return Coefficient(name, nan, nan, nan, items, why_undefined, queries)
    low, high = _jackknife(value, without_query, scale) if queries >= MIN_QUERIES else (nan, nan)
    return Coefficient(name, value, low, high, items, None, queries)


def _jackknife(value: float, without_query: Float, scale: Scale) -> tuple[float, float]:
    """Return the interval of a coefficient from its values (Q,) without each of the queries."""
    n = len(without_query)

    def to_scale(x: Float) -> Float:
        return x if scale == "plain" else np.arctanh(2 * x - 1 if scale == "share" else x)

    def from_scale(z: float) -> float:
        if scale == "plain":
            return max(z, 0.0)
        return (math.tanh(z) + 1) / 2 if scale == "share" else math.tanh(z)

    with np.errstate(divide="ignore", invalid="ignore"):
        center = float(to_scale(np.array(value)))
        z = to_scale(without_query)
    if not (math.isfinite(center) and np.isfinite(z).all() and np.ptp(z) > _ROUNDING):
        return math.nan, math.nan  # without variation there is no estimate of the spread
    half = t_quantile((1.0 + CONFIDENCE) / 2.0, n - 1.0) * math.sqrt((n - 1) * float(np.var(z)))
    return from_scale(center - half), from_scale(center + half)
