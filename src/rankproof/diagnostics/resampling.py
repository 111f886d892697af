"""Bootstrap over queries: means, and correlations of means, with 95% intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankproof.arrays import Array, Float
from rankproof.comparison import CONFIDENCE, RESAMPLES

_CELLS = 1 << 22  # of the weights held at a time
FEW = 12  # points: a correlation of fewer says little


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over queries and runs."""

    mean: float  # NaN where it is undefined
    sd: float  # between runs, of their means; NaN for one run
    ci: tuple[float, float]  # 95%, over queries

    def to_dict(self) -> dict[str, Any]:
        return {
            "mean": number(self.mean),
            "sd": number(self.sd),
            "ci": [number(end) for end in self.ci],
        }


def number(value: float) -> float | None:
    """JSON has no NaN: what is undefined is null."""
    return None if math.isnan(value) else value


def weighted_means(values: Float, seed: int, resamples: int = RESAMPLES) -> Float:
    """(B, C) means of the columns (Q, C) over resampled queries; NaN is left out.

    The same seed draws the same queries: columns of two calls are paired.
    """
    queries = len(values)
    random = np.random.default_rng([seed, 2])
    defined = ~np.isnan(values)
    filled = np.where(defined, values, 0.0)
    every = bool(defined.all())
    means = np.empty((resamples, values.shape[1]))
    step = max(1, _CELLS // max(1, queries))
    for first in range(0, resamples, step):
        size = min(step, resamples - first)
        drawn = random.integers(0, queries, (size, queries)) + np.arange(size)[:, None] * queries
        weights = np.bincount(drawn.ravel(), minlength=size * queries).reshape(size, queries)
        times = weights.astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            over = float(queries) if every else times @ defined.astype(np.float64)
            means[first : first + size] = (times @ filled) / over
    return means


def figures(values: Float, seed: int) -> list[Figure]:
    """A Figure for each of (F, R, Q) values: the mean of the means of R runs over Q queries.

    A value that is NaN is left out of its run's mean.
    """
    count, runs, queries = values.shape
    columns = values.reshape(count * runs, queries).T
    by_run = mean_of(values, axis=2)  # (F, R)
    drawn = mean_of(weighted_means(columns, seed).reshape(-1, count, runs), axis=2)  # (B, F)
    ends = interval(drawn)
    spread = (
        np.full(count, np.nan)
        if runs < 2
        else np.array([_sd(row[~np.isnan(row)]) for row in by_run])
    )
    means = mean_of(by_run, axis=1)
    return [
        Figure(float(means[f]), float(spread[f]), (float(ends[0, f]), float(ends[1, f])))
        for f in range(count)
    ]


def interval(drawn: Array) -> Float:
    """(2, …) percentile interval along the first axis; NaN where nothing was defined."""
    tail = (1.0 - CONFIDENCE) / 2.0
    ends = np.full((2, *drawn.shape[1:]), np.nan)
    known = ~np.isnan(drawn).all(axis=0)
    if known.any():
        ends[..., known] = np.nanquantile(drawn[..., known], [tail, 1.0 - tail], axis=0)
    return ends


@dataclass(frozen=True, slots=True)
class Correlation:
    """How far a cheap figure follows a dear one."""

    pearson: float
    pearson_ci: tuple[float, float]
    spearman: float
    spearman_ci: tuple[float, float]
    points: int

    @property
    def few(self) -> bool:
        return self.points < FEW

    def to_dict(self) -> dict[str, Any]:
        return {
            "pearson": number(self.pearson),
            "pearson_ci": [number(end) for end in self.pearson_ci],
            "spearman": number(self.spearman),
            "spearman_ci": [number(end) for end in self.spearman_ci],
            "points": self.points,
            "few": self.few,
        }


def across(cheap: Float, dear: Float, seed: int) -> Correlation:
    """Of the means over queries, a point for each condition; (C, Q), with queries of their own."""
    ours, theirs = weighted_means(cheap.T, seed), weighted_means(dear.T, seed)
    one, other = mean_of(cheap, axis=1)[None], mean_of(dear, axis=1)[None]
    low, high = interval(pearson(ours, theirs))
    low_rank, high_rank = interval(pearson(ranks(ours), ranks(theirs)))
    return Correlation(
        float(pearson(one, other)[0]),
        (float(low), float(high)),
        float(pearson(ranks(one), ranks(other))[0]),
        (float(low_rank), float(high_rank)),
        len(cheap),
    )


def within(cheap: Float, dear: Float, seed: int) -> Correlation:
    """Of single queries, a point for each condition and query; queries are resampled whole.

    The ranks behind Spearman's ρ are those of the sample itself.
    """
    known = ~(np.isnan(cheap) | np.isnan(dear))
    found = []
    for one, other in ((cheap, dear), (_ranked(cheap, known), _ranked(dear, known))):
        moments = [
            np.where(known, m, np.nan) for m in (one, other, one * one, other * other, one * other)
        ]
        # Sums over the conditions of a query, and how many there are: ratios of means.
        counts = known.sum(axis=0).astype(np.float64)
        sums = np.stack([np.nansum(m, axis=0) for m in moments] + [counts], axis=1)
        drawn = weighted_means(sums, seed)
        found.append((_from_moments(sums.mean(axis=0)[None])[0], interval(_from_moments(drawn))))
    (r, ends), (rho, rank_ends) = found
    return Correlation(
        float(r),
        (float(ends[0]), float(ends[1])),
        float(rho),
        (float(rank_ends[0]), float(rank_ends[1])),
        int(known.sum()),
    )


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


def _ranked(values: Float, known: Array) -> Float:
    ranked = np.full(values.shape, np.nan)
    flat = values[known]
    _, at, times = np.unique(flat, return_inverse=True, return_counts=True)
    last = np.cumsum(times)
    ranked[known] = (last - (times - 1) / 2.0)[at.ravel()]
    return ranked


def _from_moments(sums: Float) -> Float:
    x, y, xx, yy, xy, count = sums.T
    with np.errstate(invalid="ignore", divide="ignore"):
        x, y, xx, yy, xy = (m / count for m in (x, y, xx, yy, xy))
        variances = (xx - x * x) * (yy - y * y)
        return np.where(variances > 1e-30, (xy - x * y) / np.sqrt(np.abs(variances)), np.nan)


def mean_of(values: Float, axis: int | tuple[int, ...]) -> Float:
    """Means of what is defined; NaN where nothing is."""
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        mean: Float = np.where(defined, values, 0.0).sum(axis=axis) / defined.sum(axis=axis)
    return mean


def _sd(values: Float) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan
