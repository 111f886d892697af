"""The one bootstrap: queries drawn with replacement, once for all columns.

A resample is a row of counts, so that its sums are a matrix product and the sum of a difference is
the difference of sums. The same seed and number of queries give the same draws wherever they are
asked for, so that any two figures of the same queries are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rankproof.arrays import Array, Float

RESAMPLES = 10_000

CELLS = 1 << 22  # of a table held at a time


def draws(count: int, seed: int, resamples: int = RESAMPLES) -> Iterator[Float]:
    """(b, count) how often each query is drawn, a block of resamples at a time."""
    generator = np.random.default_rng(seed)
    step = max(1, CELLS // max(count, 1))
    for low in range(0, resamples, step):
        size = min(step, resamples - low)
        drawn = generator.integers(0, count, (size, count)) + np.arange(size)[:, None] * count
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        yield times.astype(np.float64)


def resampled(
    columns: Array,
    statistic: Callable[[Float], Float],
    seed: int,
    resamples: int = RESAMPLES,
) -> Float:
    """(resamples, …) a statistic of the sums (b, C) of the columns (Q, C) over drawn queries."""
    values = np.asarray(columns, np.float64)
    found = []
    for times in draws(len(values), seed, resamples):
        with np.errstate(divide="ignore", invalid="ignore"):
            found.append(statistic(times @ values))
    return np.concatenate(found)


def resampled_means(columns: Float, seed: int, resamples: int = RESAMPLES) -> Float:
    """(resamples, C) means of the columns (Q, C), each over Q queries drawn with replacement.

    NaN in a column is a query for which it is undefined: the mean is over the others.
    """
    defined = ~np.isnan(columns)
    if defined.all():
        count = float(len(columns))
        return resampled(columns, lambda sums: sums / count, seed, resamples)
    width = columns.shape[1]
    both = np.concatenate([np.where(defined, columns, 0.0), defined], axis=1)

    def means(sums: Float) -> Float:
        total, over = sums[:, :width], sums[:, width:]
        return np.where(over > 0, total / over, np.nan)

    return resampled(both, means, seed, resamples)


def best_out_of_bag(values: Float, seed: int, resamples: int = 2_000) -> float:
    """What the best of several (C, Q) is worth on queries that did not choose it.

    The winner on the queries it was chosen by is flattered by chance. Here it is chosen on each
    resample and scored on the queries that the resample left out; the mean of that.
    """
    scores = []
    for times in draws(values.shape[1], seed, resamples):
        best = (times @ values.T).argmax(axis=1)
        out = times == 0
        kept = out.any(axis=1)
        chosen = values[best[kept]]
        scores.append((chosen * out[kept]).sum(axis=1) / out[kept].sum(axis=1))
    return float(np.concatenate(scores).mean())
