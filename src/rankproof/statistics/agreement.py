"""How far raters agree beyond chance, each coefficient with an interval over queries.

    Cohen's κ         (p − e)/(1 − e),  p = Σ w_ab t_ab,  e = Σ w_ab t_a· t_·b,  t the shared table
    Gwet's AC1, AC2   (p − e)/(1 − e),  e = T_w/(q(q − 1)) · Σ π_k(1 − π_k),  T_w = Σ w_kl
    Krippendorff's α  1 − observed/expected disagreement, over all pairs of ratings of an item

A rating that is missing is NaN. A coefficient that is not defined is NaN and says why.

Passages of one query are graded alike: the interval is over queries (an item that names none is
its own), by leaving each of the Q out in turn. With z = atanh of the coefficient, of 2p − 1 for a
share p,

    tanh(z ± t_{Q−1} · se),  se² = (Q − 1)/Q · Σ (z_−q − z̄)²

Ten passages a query: it covers .92 to .95 from 10 queries on, where resampling passages covers .6.
With fewer than six queries, and where leaving one out leaves nothing defined, there is none.
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
from rankproof.statistics.intervals import CONFIDENCE, FEW, known, known_ends

Weights = Literal["none", "linear", "quadratic", "ordinal"]
Level = Literal["nominal", "ordinal", "interval"]
Ratings: TypeAlias = Sequence[float | None] | Array
Queries: TypeAlias = Sequence[Hashable] | None  # of each item; None: each is its own
Scale = Literal["atanh", "share", "plain"]  # on which an interval is symmetric

GRADES = (1.0, 2.0, 3.0, 4.0, 5.0)

_SAME = 1e-12  # figures that differ by rounding alone
_LEVELS = 100  # more are measurements, not categories


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A figure with its interval; NaN, with the reason, where it is not defined."""

    name: str
    value: float
    low: float  # 95% over queries; NaN where they cannot tell
    high: float
    items: int  # rated often enough to count
    undefined: str | None = None
    queries: int = 0  # that they are of

    def to_dict(self) -> dict[str, Any]:
        """For JSON: null where it is not defined."""
        return {
            "value": known(self.value),
            "ci": known_ends((self.low, self.high)),
            "items": self.items,
            "queries": self.queries,
            "undefined": self.undefined,
        }


@dataclass(frozen=True, slots=True)
class Confusion:
    """How often the first rater said the row's level and the second the column's."""

    levels: Float  # (q,)
    counts: Int  # (q, q)


def confusion(first: Ratings, second: Ratings, levels: Sequence[float] | None = None) -> Confusion:
    """Over the items that both rated."""
    ratings = _table([first, second])
    known, counts = _counts(ratings, levels)
    both = (counts.sum(axis=2) > 0).all(axis=0)
    return Confusion(known, np.einsum("ia,ib->ab", counts[0][both], counts[1][both]))


def cohen_kappa(
    first: Ratings,
    second: Ratings,
    weights: Weights = "none",
    levels: Sequence[float] | None = None,
    *,
    queries: Queries = None,
) -> Coefficient:
    """Cohen's κ of two raters, over the items that both rated. Weights go by the levels' values.

    >>> from rankproof.statistics.agreement import cohen_kappa
    >>> cohen_kappa([1, 1, 0, 0], [1, 0, 0, 0]).value
    0.5
    """
    ratings = _table([first, second])
    known, counts = _counts(ratings, levels)
    both = (counts.sum(axis=2) > 0).all(axis=0)
    q = len(known)
    weight = _weights(known, weights)
    joint = counts[0][both, :, None] * counts[1][both, None, :]
    parts = joint.reshape(len(joint), q * q)

    def statistic(sums: Float) -> Float:
        table = sums.reshape(-1, q, q)
        share = table / table.sum(axis=(1, 2), keepdims=True)
        expected = np.einsum("ba,bc,ac->b", share.sum(axis=2), share.sum(axis=1), weight)
        return _corrected(np.einsum("bac,ac->b", share, weight), expected)

    name = "κ" if weights == "none" else f"κ, {weights}"
    why = "chance alone would agree: both raters gave one label to every item"
    return _estimate(name, parts, statistic, int(both.sum()), why, _of(queries, both))


def gwet_ac(
    ratings: Sequence[Ratings] | Array,
    weights: Weights = "none",
    levels: Sequence[float] | None = None,
    *,
    queries: Queries = None,
) -> Coefficient:
    """Gwet's AC1 (no weights) or AC2 of two raters or more, (raters, items).

    `levels` are those of the scale; where not given, those that occur.
    """
    known, each = _counts(_table(ratings), levels)
    counts = each.sum(axis=0).astype(np.float64)  # (I, q) raters who gave each level
    rated = counts.sum(axis=1) > 0
    counts = counts[rated]
    raters = counts.sum(axis=1)
    q = len(known)
    weight = _weights(known, weights)
    several = raters >= 2
    agreed = (counts * (counts @ weight - 1)).sum(axis=1) / np.maximum(raters * (raters - 1), 1)
    parts = np.column_stack([agreed * several, several, counts / raters[:, None]])

    def statistic(sums: Float) -> Float:
        if q < 2:
            return np.full(len(sums), np.nan)
        pi = sums[:, 2:] / sums[:, 2:].sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            observed = sums[:, 0] / sums[:, 1]  # a resample may hold no pair: not defined
        expected = weight.sum() / (q * (q - 1)) * (pi * (1 - pi)).sum(axis=1)
        return _corrected(observed, expected)

    name = "AC1" if weights == "none" else f"AC2, {weights}"
    why = "there is one level alone: name the levels of the scale"
    return _estimate(name, parts, statistic, int(several.sum()), why, _of(queries, rated))


def krippendorff_alpha(
    ratings: Sequence[Ratings] | Array,
    level: Level = "ordinal",
    levels: Sequence[float] | None = None,
    *,
    queries: Queries = None,
) -> Coefficient:
    """Krippendorff's α of two raters or more, (raters, items).

    α = 1 − (n − 1) Σ o_ck δ²_ck / Σ n_c n_k δ²_ck, o the coincidences inside items, n_c = Σ_k o_ck.
    """
    known, each = _counts(_table(ratings), levels)
    counts = each.sum(axis=0).astype(np.float64)
    several = counts.sum(axis=1) >= 2
    counts = counts[several]
    q = len(known)
    pairs = counts[:, :, None] * counts[:, None, :]
    pairs[:, np.arange(q), np.arange(q)] -= counts
    pairs /= (counts.sum(axis=1) - 1)[:, None, None]
    parts = pairs.reshape(len(pairs), q * q)

    def statistic(sums: Float) -> Float:
        together = sums.reshape(-1, q, q)
        each = together.sum(axis=2)
        if level == "nominal":
            squared = np.broadcast_to(1 - np.eye(q), together.shape)
        else:
            place = known if level == "interval" else np.cumsum(each, axis=1) - each / 2
            place = np.broadcast_to(place, each.shape)
            squared = (place[:, :, None] - place[:, None, :]) ** 2
        observed = (together * squared).sum(axis=(1, 2))
        expected = (each[:, :, None] * each[:, None, :] * squared).sum(axis=(1, 2))
        with np.errstate(divide="ignore", invalid="ignore"):
            found = 1 - (each.sum(axis=1) - 1) * observed / expected
        return np.where(expected > 0, found, np.nan)

    why = "every rating is the same: nothing could disagree"
    return _estimate(f"α, {level}", parts, statistic, len(counts), why, _of(queries, several))


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two raters on one scale: every coefficient, and the table behind them."""

    confusion: Confusion
    coefficients: dict[str, Coefficient]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
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
    """All coefficients of two raters; also κ and AC1 of `relevant` or above against below.

    >>> from rankproof.statistics.agreement import agreement
    >>> found = agreement([5, 4, 4, 2, 1, 3], [5, 5, 4, 1, 1, 3])
    >>> round(found.coefficients["κ, quadratic"].value, 3)
    0.928
    """
    ratings = _table([first, second])
    one, other = ratings
    binary = np.where(np.isnan(ratings), np.nan, ratings >= relevant)
    kinds: tuple[Weights, ...] = ("none", "linear", "quadratic", "ordinal")
    scales: tuple[Level, ...] = ("nominal", "ordinal", "interval")
    found = [_exact(ratings, queries)]
    found += [cohen_kappa(one, other, weights, levels, queries=queries) for weights in kinds[:3]]
    found += [gwet_ac(ratings, weights, levels, queries=queries) for weights in kinds]
    found += [krippendorff_alpha(ratings, level, levels, queries=queries) for level in scales]
    rare = [
        len(np.unique(_of(queries, (binary == kind).any(axis=0) & ~np.isnan(binary).any(axis=0))))
        for kind in (0, 1)
    ]
    for coefficient in (
        cohen_kappa(binary[0], binary[1], levels=(0, 1), queries=queries),
        gwet_ac(binary, levels=(0, 1), queries=queries),
    ):
        named = replace(coefficient, name=f"{coefficient.name}, {relevant:g}+")
        if min(rare) < FEW:  # so few queries hold what is relevant, or what is not
            named = replace(named, low=math.nan, high=math.nan)
        found.append(named)
    return Agreement(confusion(one, other, levels), {one.name: one for one in found})


@dataclass(frozen=True, slots=True)
class SelfConsistency:
    """One rater, asked again and again."""

    exact: Coefficient  # share of pairs of repeats that are equal, mean over items
    difference: Coefficient  # mean absolute difference of two repeats
    sd: Coefficient  # of a repeat: root of the mean variance inside items
    alpha: Coefficient  # Krippendorff's, ordinal


def self_consistency(
    ratings: Sequence[Ratings] | Array, *, queries: Queries = None
) -> SelfConsistency:
    """Repeats (repeats, items) of the same judgements; an item counts from two repeats on.

    >>> from rankproof.statistics.agreement import self_consistency
    >>> self_consistency([[5, 4, 2, 1], [5, 3, 2, 1]]).exact.value
    0.75
    """
    table = _table(ratings)
    repeats = (~np.isnan(table)).sum(axis=0)
    several = repeats >= 2
    of = _of(queries, several)
    table = table[:, several]
    kept = repeats[several]
    pairs = kept * (kept - 1) / 2
    first, second = np.triu_indices(len(table), 1)
    apart = np.nansum(np.abs(table[first] - table[second]), axis=0) / pairs
    variance = np.nanvar(table, axis=0, ddof=1) if len(kept) else np.zeros(0)

    def mean(name: str, values: Float, root: bool = False) -> Coefficient:
        def statistic(sums: Float) -> Float:
            each = sums[:, 0] / sums[:, 1]
            return np.sqrt(each) if root else each

        parts = np.column_stack([values, np.ones(len(values))])
        return _estimate(name, parts, statistic, len(values), "", of, "plain")

    return SelfConsistency(
        _exact(table, of.tolist()),
        mean("mean absolute difference", apart),
        mean("sd", variance, root=True),
        krippendorff_alpha(table, "ordinal", queries=of.tolist()),
    )


def _exact(ratings: Float, queries: Queries) -> Coefficient:
    """Share of pairs of ratings that are equal, mean over items with two or more."""
    raters = (~np.isnan(ratings)).sum(axis=0)
    first, second = np.triu_indices(len(ratings), 1)
    equal = (ratings[first] == ratings[second]).sum(axis=0)
    several = raters >= 2
    share = equal[several] / (raters * (raters - 1) / 2)[several]
    parts = np.column_stack([share, np.ones(len(share))])

    def statistic(sums: Float) -> Float:
        return sums[:, 0] / sums[:, 1]

    return _estimate("exact", parts, statistic, len(share), "", _of(queries, several), "share")


def _of(queries: Queries, kept: Bool) -> Int:
    """Which query each of the items that are kept is of, as numbers from 0."""
    if queries is None:
        return np.arange(int(kept.sum()))
    if len(queries) != len(kept):
        raise InputError(
            f"{len(queries)} queries of {len(kept)} items",
            place="agreement",
            remedy="give the query of each item",
        )
    number: dict[Hashable, int] = {}
    every = np.array([number.setdefault(query, len(number)) for query in queries], np.int64)
    return np.unique(every[kept], return_inverse=True)[1].reshape(-1)


def _table(ratings: Sequence[Ratings] | Array) -> Float:
    """(raters, items) as numbers, NaN where missing."""
    lengths = {len(one) for one in ratings}
    if len(lengths) > 1:
        raise InputError(
            f"raters rated {', '.join(str(n) for n in sorted(lengths))} items",
            place="agreement",
            remedy="give every rater's list the same items, NaN where one is missing",
        )
    try:
        table = np.array([list(one) for one in ratings], np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "a rating is not a number", place="agreement", remedy="code the levels as numbers"
        ) from None
    if np.isinf(table).any():
        raise InputError("a rating is infinite", place="agreement", remedy="give finite numbers")
    return table if table.ndim == 2 else table.reshape(0, 0)  # no rater at all


def _counts(ratings: Float, levels: Sequence[float] | None) -> tuple[Float, Int]:
    """The levels in order (q,), and (raters, items, q) which one each rating is."""
    given = ratings[~np.isnan(ratings)]
    known = np.unique(given if levels is None else np.asarray(levels, np.float64))
    if len(known) > _LEVELS:
        raise InputError(
            f"{len(known)} different ratings", place="agreement", remedy="round them to levels"
        )
    strange = given[~np.isin(given, known)]
    if len(strange):
        raise InputError(
            f"rating {strange[0]:g} is not one of the levels {shorten([float(x) for x in known])}",
            place="agreement",
            remedy="correct it, or name it as a level",
        )
    return known, (ratings[:, :, None] == known).astype(np.int64)


def _weights(levels: Float, kind: Weights) -> Float:
    """(q, q) agreement of two levels: 1 for the same one, 0 for the two farthest apart.

    Linear and quadratic go by the levels' values; ordinal, 1 − C(d+1, 2)/C(q, 2), by their ranks.
    """
    q = len(levels)
    if kind == "none" or q < 2:
        return np.eye(q)
    if kind == "ordinal":
        steps = np.abs(np.subtract.outer(np.arange(q), np.arange(q)))
        away: Float = steps * (steps + 1) / (q * (q - 1))
    else:
        away = np.abs(np.subtract.outer(levels, levels)) / (levels[-1] - levels[0])
    return 1 - (away**2 if kind == "quadratic" else away)


def _corrected(observed: Float, expected: Float) -> Float:
    """(p − e)/(1 − e); NaN where chance would always agree."""
    room = 1 - expected
    with np.errstate(divide="ignore", invalid="ignore"):
        # Below, e is 1 but for rounding.
        return np.where(room > 1e-12, (observed - expected) / room, np.nan)


def _estimate(
    name: str,
    parts: Array,
    statistic: Callable[[Float], Float],
    items: int,
    why: str,
    of: Int,
    scale: Scale = "atanh",
) -> Coefficient:
    """A statistic of the sums of `parts` (items, f), with its interval over queries (items,)."""
    nan = math.nan
    if items == 0:
        return Coefficient(name, nan, nan, nan, 0, "no item was rated twice")
    queries = int(of.max()) + 1
    sums = np.stack(
        [np.bincount(of, column, queries) for column in parts.astype(np.float64).T], axis=1
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(sums.sum(axis=0)[None])[0])
        without = statistic(sums.sum(axis=0) - sums)
    if math.isnan(value):
        return Coefficient(name, nan, nan, nan, items, why, queries)
    low, high = _jackknife(value, without, scale) if queries >= FEW else (nan, nan)
    return Coefficient(name, value, low, high, items, None, queries)


def _jackknife(value: float, without: Float, scale: Scale) -> tuple[float, float]:
    """The interval of a figure from its values without each query."""
    n = len(without)

    def there(x: Float) -> Float:
        return x if scale == "plain" else np.arctanh(2 * x - 1 if scale == "share" else x)

    def back(x: float) -> float:
        if scale == "plain":
            return max(x, 0.0)
        return (math.tanh(x) + 1) / 2 if scale == "share" else math.tanh(x)

    with np.errstate(divide="ignore", invalid="ignore"):
        centre = float(there(np.array(value)))
        left = there(without)
    if not (math.isfinite(centre) and np.isfinite(left).all() and np.ptp(left) > _SAME):
        return math.nan, math.nan  # all alike: what has not varied tells nothing of its spread
    half = t_quantile((1.0 + CONFIDENCE) / 2.0, n - 1.0) * math.sqrt((n - 1) * float(np.var(left)))
    return back(centre - half), back(centre + half)
