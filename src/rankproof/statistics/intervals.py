"""95% intervals over queries.

Of a mean, and so of a difference of means on shared queries, Student's

    x̄ ± t_{n−1} · s/√n

Measured on lattices and on differences of which few are not 0, it covers .95 where the percentile
bootstrap covers .81 and less; it needs no draw, so that the same difference has the same interval
wherever it is printed, and swapping the runs turns its sign and nothing else.

Of what is no mean (a ratio, a rank, a coefficient of agreement) the percentile interval of the
bootstrap, its tails widened from α/2 to Φ(−√(n/(n−1)) · t_{n−1}), which for a mean makes it as wide
as Student's.
"""

from __future__ import annotations

import math

import numpy as np

from rankproof.arrays import Array, Float, Int
from rankproof.statistics.distributions import normal_cdf, t_quantile

CONFIDENCE = 0.95
FEW = 6  # queries that differ: with fewer no interval can be trusted, nor can p fall below .05

Interval = tuple[float, float]


def t_halfwidth(n: Array, spread: Array, confidence: float = CONFIDENCE) -> Float:
    """(…) t_{n−1} · s/√n; NaN below two values."""
    count = np.asarray(n, np.int64)
    known, at = np.unique(count, return_inverse=True)
    level = (1.0 + confidence) / 2.0
    t = np.array([t_quantile(level, k - 1.0) if k > 1 else math.nan for k in known.tolist()])
    with np.errstate(invalid="ignore", divide="ignore"):
        width: Float = t[at].reshape(count.shape) * spread / np.sqrt(count)
    return width


def spread_of(values: Float) -> tuple[Int, Float, Float]:
    """(C,) how many values of each row of (C, Q) are defined, their mean and deviation."""
    defined = ~np.isnan(values)
    n = defined.sum(axis=-1)
    filled = np.where(defined, values, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(n > 0, filled.sum(axis=-1) / n, np.nan)
        apart = np.where(defined, values - mean[..., None], 0.0)
        sd = np.where(n > 1, np.sqrt((apart * apart).sum(axis=-1) / (n - 1)), np.nan)
    return n, mean, sd


def mean_intervals(values: Float) -> Float:
    """(C, 2) of the means of rows (C, Q) of a measure; NaN values are left out.

    A measure lies between 0 and 1, or between 0 and the most that was seen: so does its mean.
    """
    n, mean, sd = spread_of(values)
    half = t_halfwidth(n, sd)
    with np.errstate(invalid="ignore"):
        most = np.fmax(1.0, np.fmax.reduce(values, axis=-1, initial=-np.inf))
        least = np.fmin(0.0, np.fmin.reduce(values, axis=-1, initial=np.inf))
        return np.stack([np.maximum(mean - half, least), np.minimum(mean + half, most)], axis=-1)


def difference_intervals(differences: Float, confidence: float = CONFIDENCE) -> Float:
    """(C, 2) of the mean differences of rows (C, Q); NaN where fewer than six queries differ."""
    n, mean, sd = spread_of(differences)
    half = t_halfwidth(n, sd, confidence)
    ends = np.stack([mean - half, mean + half], axis=-1)
    with np.errstate(invalid="ignore"):
        differing = (np.abs(differences) > 0).sum(axis=-1)
    ends[differing < FEW] = np.nan
    return ends


def t_interval(values: Float) -> Interval:
    """Of one mean of values (Q,) that may have any sign."""
    n, mean, sd = spread_of(values[None])
    half = float(t_halfwidth(n, sd)[0])
    return (float(mean[0]) - half, float(mean[0]) + half)


def tail(n: int, confidence: float = CONFIDENCE) -> float:
    """Of a percentile interval over n queries: Φ(−√(n/(n−1)) · t_{n−1})."""
    if n < 2:
        return math.nan
    t = t_quantile((1.0 + confidence) / 2.0, n - 1.0)
    return float(normal_cdf(np.array(-math.sqrt(n / (n - 1.0)) * t)))


def percentile_intervals(samples: Array, n: int) -> Float:
    """(2, …) along the first axis of resamples over n queries; NaN where none defines it."""
    ends = np.full((2, *samples.shape[1:]), np.nan)
    known = ~np.isnan(samples).all(axis=0)
    if n < 2 or not known.any():
        return ends
    low = tail(n)
    ends[..., known] = np.nanquantile(samples[..., known], [low, 1.0 - low], axis=0)
    return ends


def percentile_interval(samples: Array, n: int) -> Interval:
    """Of one figure."""
    low, high = percentile_intervals(np.asarray(samples), n)
    return (float(low), float(high))
