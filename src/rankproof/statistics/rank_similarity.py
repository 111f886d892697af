"""How alike two rankings are: overlap, Kendall's τ, Pearson's r and Spearman's ρ, with intervals.

A correlation over n points has an interval over n points: Fisher's, tanh(atanh r ± z/√(n − 3)),
with 1 + ρ²/2 in place of 1 under the root for Spearman's ρ (Bonett and Wright). Of single queries
that come in several conditions each, queries are resampled whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankproof.foundation.arrays import Array, Float
from rankproof.statistics.distributions import normal_quantile
from rankproof.statistics.intervals import CONFIDENCE, Interval, known, percentile_interval
from rankproof.statistics.resampling import resampled

FEW = 12  # points: a correlation of fewer says little
_CARRIES = 0.2  # r changes by more where one point is left out


@dataclass(frozen=True, slots=True)
class Correlation:
    """How far a cheap figure follows a dear one.

    >>> from rankproof.diagnostics import Correlation
    >>> Correlation(0.9, (0.5, 1.0), 0.8, (0.4, 1.0), points=8).few
    True
    """

    pearson: float
    pearson_ci: Interval
    spearman: float
    spearman_ci: Interval
    points: int
    carried: str | None = None  # the point that r rests on most
    without: float = math.nan  # r without it

    @property
    def few(self) -> bool:
        return self.points < FEW

    @property
    def rests_on_one(self) -> bool:
        """Whether one point alone makes r what it is."""
        return self.carried is not None and (
            self.pearson * self.without <= 0 or abs(self.pearson - self.without) > _CARRIES
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "pearson": known(self.pearson),
            "pearson_ci": [known(end) for end in self.pearson_ci],
            "spearman": known(self.spearman),
            "spearman_ci": [known(end) for end in self.spearman_ci],
            "points": self.points,
            "few": self.few,
            "carried": self.carried,
            "without": known(self.without),
        }


def across(cheap: Float, dear: Float, labels: Sequence[str] | None = None) -> Correlation:
    """Of the means over queries, a point for each condition; (C, Q), with queries of their own."""
    one, other = _means(cheap), _means(dear)
    points = len(one)
    r = float(pearson(one[None], other[None])[0])
    rho = float(pearson(ranks(one[None]), ranks(other[None]))[0])
    carried, without = None, math.nan
    if points > 3 and not math.isnan(r):
        left = ~np.eye(points, dtype=np.bool_)
        each = pearson(*(np.array([v[row] for row in left]) for v in (one, other)))
        if not np.isnan(each).all():
            most = int(np.nanargmax(np.abs(each - r)))
            carried = str(most) if labels is None else labels[most]
            without = float(each[most])
    return Correlation(
        r, fisher(r, points), rho, fisher(rho, points, 1.0 + rho * rho / 2.0), points,
        carried, without,
    )  # fmt: skip


def fisher(r: float, points: int, variance: float = 1.0) -> Interval:
    """tanh(atanh r ± z·√(variance/(n − 3))); NaN for fewer than four points, and of ±1: points that
    all lie on a line tell nothing of how far from it others lie."""
    if math.isnan(r) or points < 4 or abs(r) >= 1.0 - 1e-12:
        return (math.nan, math.nan)
    half = normal_quantile((1.0 + CONFIDENCE) / 2.0) * math.sqrt(variance / (points - 3))
    return (math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half))


def within(cheap: Float, dear: Float, seed: int) -> Correlation:
    """Of single queries, a point for each condition and query; queries are resampled whole.

    The ranks behind Spearman's ρ are those of the sample itself.
    """
    known = ~(np.isnan(cheap) | np.isnan(dear))
    found: list[tuple[float, Interval]] = []
    for one, other in ((cheap, dear), (_ranked(cheap, known), _ranked(dear, known))):
        moments = [
            np.where(known, m, 0.0) for m in (one, other, one * one, other * other, one * other)
        ]
        # Sums over the conditions of a query, and how many there are: ratios of means.
        sums = np.stack([m.sum(axis=0) for m in (*moments, known.astype(np.float64))], axis=1)
        drawn = resampled(sums, _from_moments, seed)
        value = float(_from_moments(sums.sum(axis=0)[None])[0])
        found.append((value, percentile_interval(drawn, int(known.any(axis=0).sum()))))
    (r, ends), (rho, rank_ends) = found
    return Correlation(r, ends, rho, rank_ends, int(known.sum()))


def pearson(one: Float, other: Float) -> Float:
    """(B,) of the rows; NaN where one of them does not vary."""
    x = one - one.mean(axis=1, keepdims=True)
    y = other - other.mean(axis=1, keepdims=True)
    squares = (x * x).sum(axis=1) * (y * y).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(squares > 1e-30, (x * y).sum(axis=1) / np.sqrt(squares), np.nan)


def ranks(values: Float) -> Float:
    """(B, C) ranks within each row; equal values share theirs."""
    below = (values[:, None, :] < values[:, :, None]).sum(axis=2)
    equal = (values[:, None, :] == values[:, :, None]).sum(axis=2)
    ranked: Float = below + (equal + 1) / 2.0
    return ranked


def kendall(one: Array, other: Array, counted: Array | None = None, level: float = 0.0) -> Float:
    """(B,) τ-b of rows (B, n) of values, over the items that count.

    τ = Σ s·s′ / √(Σ s² · Σ s′²) over pairs, s = −1, 0, 1 as a row orders the pair; values no
    further apart than `level` tie. NaN where a row orders no pair.
    """
    s, t = _order(one, level), _order(other, level)
    if counted is not None:
        pairs = counted[:, :, None] & counted[:, None, :]
        s, t = s * pairs, t * pairs
    squares = (s * s).sum(axis=(1, 2)) * (t * t).sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        tau: Float = np.where(squares > 0, (s * t).sum(axis=(1, 2)) / np.sqrt(squares), np.nan)
    return tau


def _order(values: Array, level: float) -> Float:
    """(B, n, n) 1 where the first of a pair stands above the second, −1 below, 0 in a tie."""
    first, second = values[:, :, None], values[:, None, :]
    return (first > second + level).astype(np.float64) - (first < second - level)


def _means(values: Float) -> Float:
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        mean: Float = np.where(defined, values, 0.0).sum(axis=1) / defined.sum(axis=1)
    return mean


def _ranked(values: Float, known: Array) -> Float:
    ranked = np.zeros(values.shape)
    _, at, times = np.unique(values[known], return_inverse=True, return_counts=True)
    last = np.cumsum(times)
    ranked[known] = (last - (times - 1) / 2.0)[at.ravel()]
    return ranked


def _from_moments(sums: Float) -> Float:
    x, y, xx, yy, xy, count = sums.T
    with np.errstate(invalid="ignore", divide="ignore"):
        x, y, xx, yy, xy = (m / count for m in (x, y, xx, yy, xy))
        variances = (xx - x * x) * (yy - y * y)
        return np.where(variances > 1e-30, (xy - x * y) / np.sqrt(np.abs(variances)), np.nan)
