"""Bootstrap over queries: what other queries of the same kind might have given."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankproof.arrays import Float

RESAMPLES = 10_000
CONFIDENCE = 0.95

_CELLS = 1 << 22  # of the counts held at a time

Interval = tuple[float, float]


def resampled_means(columns: Float, seed: int, resamples: int = RESAMPLES) -> Float:
    """(resamples, C) means of the columns (Q, C), each over Q queries drawn with replacement.

    All columns share the draws, so that a difference or a ratio of two means is paired. NaN in a
    column is a query for which it is undefined: the mean is over the others.
    """
    defined = ~np.isnan(columns)
    filled = np.where(defined, columns, 0.0)
    means = np.empty((resamples, columns.shape[1]))
    at = 0
    for times in _draws(len(columns), resamples, seed):
        over = times @ defined.astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            means[at : at + len(times)] = np.where(over > 0, times @ filled / over, np.nan)
        at += len(times)
    return means


def _draws(count: int, resamples: int, seed: int) -> Iterator[Float]:
    """How often each query is drawn, a block of resamples at a time."""
    generator = np.random.default_rng(seed)
    step = max(1, _CELLS // max(count, 1))
    for low in range(0, resamples, step):
        size = min(step, resamples - low)
        drawn = generator.integers(0, count, (size, count)) + np.arange(size)[:, None] * count
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        yield times.astype(np.float64)


def interval(samples: Float) -> Interval:
    """The percentile interval of one figure over resamples; NaN where none defines it."""
    defined = samples[~np.isnan(samples)]
    if not len(defined):
        return (np.nan, np.nan)
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(defined, [tail, 1.0 - tail])
    return (float(low), float(high))
