"""How alike two rankings are: Kendall's τ, Pearson's r and Spearman's ρ, with intervals.

A correlation of n points has Fisher's interval, tanh(atanh r ± z/√(n − 3)), with 1 + ρ²/2 in place
of 1 under the root for Spearman's ρ (Bonett and Wright 2000). Where points are queries, each under
several conditions, whole queries are resampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankproof.foundation.arrays import Array, Float
from rankproof.statistics.distributions import normal_quantile
from rankproof.statistics.intervals import CONFIDENCE, Interval, none_if_nan, percentile_interval
from rankproof.statistics.resampling import resampled

MIN_POINTS = 12  # with fewer, a correlation is too uncertain to interpret
_INFLUENTIAL = 0.2  # r rests on one point if it changes by more without that point


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pearson's and Spearman's correlation of two measurements, and what one point adds to it.

    >>> from rankproof.diagnostics import Correlation
    >>> Correlation(0.9, (0.5, 1.0), 0.8, (0.4, 1.0), points=8).few
    True
    """

    pearson: float
    pearson_ci: Interval
    spearman: float
    spearman_ci: Interval
    points: int
    carried: str | None = None  # the most influential point
    without: float = math.nan  # r without it

    @property
    def few(self) -> bool:
        return self.points < MIN_POINTS

    @property
    def rests_on_one(self) -> bool:
        """True if r changes its sign, or by more than 0.2, without its most influential point."""
        return self.carried is not None and (
            self.pearson * self.without <= 0 or abs(self.pearson - self.without) > _INFLUENTIAL
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "pearson": none_if_nan(self.pearson),
            "pearson_ci": [none_if_nan(end) for end in self.pearson_ci],
            "spearman": none_if_nan(self.spearman),
            "spearman_ci": [none_if_nan(end) for end in self.spearman_ci],
            "points": self.points,
            "few": self.few,
            "carried": self.carried,
            "without": none_if_nan(self.without),
        }


def mean_correlation(x: Float, y: Float, labels: Sequence[str] | None = None) -> Correlation:
    """Correlate the means over queries of rows (C, Q): one point per condition.

    `x` and `y` may have different queries.
    """
    x_means, y_means = _means(x), _means(y)
    points = len(x_means)
    r = float(pearson(x_means[None], y_means[None])[0])
    rho = float(pearson(ranks(x_means[None]), ranks(y_means[None]))[0])
    influential, without = None, math.nan
    if points > 3 and not math.isnan(r):
        others = ~np.eye(points, dtype=np.bool_)
        r_without = pearson(*(np.array([v[row] for row in others]) for v in (x_means, y_means)))
        if not np.isnan(r_without).all():
            at = int(np.nanargmax(np.abs(r_without - r)))
            influential = str(at) if labels is None else labels[at]
            without = float(r_without[at])
    return Correlation(
        pearson=r,
        pearson_ci=fisher_interval(r, points),
        spearman=rho,
        spearman_ci=fisher_interval(rho, points, 1.0 + rho * rho / 2.0),
        points=points,
        carried=influential,
        without=without,
    )


def fisher_interval(r: float, points: int, variance: float = 1.0) -> Interval:
    """tanh(atanh r ± z·√(variance/(n − 3))).

    NaN for fewer than four points, and for r = ±1: points on a line do not show how far others may
    be from it.
    """
    if math.isnan(r) or points < 4 or abs(r) >= 1.0 - 1e-12:
        return (math.nan, math.nan)
    half = normal_quantile((1.0 + CONFIDENCE) / 2.0) * math.sqrt(variance / (points - 3))
    return (math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half))


def query_correlation(x: Float, y: Float, seed: int) -> Correlation:
    """Correlate the values of rows (C, Q): one point per condition and query.

    Whole queries are resampled; the ranks behind Spearman's ρ are those of the original sample.
    """
    known = ~(np.isnan(x) | np.isnan(y))
    queries = int(known.any(axis=0).sum())

    def correlate(x: Float, y: Float) -> tuple[float, Interval]:
        moments = [np.where(known, m, 0.0) for m in (x, y, x * x, y * y, x * y)]
        # Sums over the conditions of a query, and their number: r is a function of their ratios.
        sums = np.stack([m.sum(axis=0) for m in (*moments, known.astype(np.float64))], axis=1)
        drawn = resampled(sums, _from_moments, seed)
        return float(_from_moments(sums.sum(axis=0)[None])[0]), percentile_interval(drawn, queries)

    r, r_interval = correlate(x, y)
    rho, rho_interval = correlate(_ranked(x, known), _ranked(y, known))
    return Correlation(r, r_interval, rho, rho_interval, int(known.sum()))


def pearson(x: Float, y: Float) -> Float:
    """(B,) Pearson's r of each pair of rows; NaN where one of them does not vary."""
    x = x - x.mean(axis=1, keepdims=True)
    y = y - y.mean(axis=1, keepdims=True)
    squares = (x * x).sum(axis=1) * (y * y).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(squares > 1e-30, (x * y).sum(axis=1) / np.sqrt(squares), np.nan)


def ranks(values: Float) -> Float:
    """(B, C) ranks within each row from 1; equal values share their mean rank."""
    below = (values[:, None, :] < values[:, :, None]).sum(axis=2)
    equal = (values[:, None, :] == values[:, :, None]).sum(axis=2)
    ranked: Float = below + (equal + 1) / 2.0
    return ranked


def kendall_tau(x: Array, y: Array, counted: Array | None = None, tolerance: float = 0.0) -> Float:
    """(B,) Kendall's τ-b of rows (B, n) of values, over the items that are `counted`.

    τ = Σ s·t / √(Σ s² · Σ t²) over pairs, where s and t are −1, 0 or 1 as the rows order the pair;
    values that differ by no more than the tolerance tie. NaN where a row orders no pair.
    """
    s, t = _pair_order(x, tolerance), _pair_order(y, tolerance)
    if counted is not None:
        pairs = counted[:, :, None] & counted[:, None, :]
        s, t = s * pairs, t * pairs
    squares = (s * s).sum(axis=(1, 2)) * (t * t).sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        tau: Float = np.where(squares > 0, (s * t).sum(axis=(1, 2)) / np.sqrt(squares), np.nan)
    return tau


def _pair_order(values: Array, tolerance: float) -> Float:
    """(B, n, n) 1 where the first of a pair has the higher value, −1 the lower, 0 in a tie."""
    first, second = values[:, :, None], values[:, None, :]
    return (first > second + tolerance).astype(np.float64) - (first < second - tolerance)


def _means(values: Float) -> Float:
    """(C,) means of the defined values of rows (C, Q)."""
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        mean: Float = np.where(defined, values, 0.0).sum(axis=1) / defined.sum(axis=1)
    return mean


def _ranked(values: Float, known: Array) -> Float:
    """Rank the known values from 1 over all rows; equal values share their mean rank."""
    ranked = np.zeros(values.shape)
    _, level, repeats = np.unique(values[known], return_inverse=True, return_counts=True)
    last = np.cumsum(repeats)
    ranked[known] = (last - (repeats - 1) / 2.0)[level.ravel()]
    return ranked


def _from_moments(sums: Float) -> Float:
    """(b,) Pearson's r from sums (b, 6) of x, y, x², y², xy and 1."""
    x, y, xx, yy, xy, count = sums.T
    with np.errstate(invalid="ignore", divide="ignore"):
        x, y, xx, yy, xy = (m / count for m in (x, y, xx, yy, xy))
        variances = (xx - x * x) * (yy - y * y)
        return np.where(variances > 1e-30, (xy - x * y) / np.sqrt(np.abs(variances)), np.nan)
