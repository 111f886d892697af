"""Samples of queries: the one bootstrap, nested samples, and many differences at once.

A resample is a row of counts, so that its sums are a matrix product and the sum of a difference is
the difference of sums. The same seed and number of queries give the same draws in every function,
so that any two statistics of the same queries are paired. Samples without replacement are nested:
a larger one contains the smaller one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from rankproof.foundation.arrays import Array, Float, Int
from rankproof.statistics.distributions import normal_cdf, t_quantile
from rankproof.statistics.groups import Groups, group_sums, numbered
from rankproof.statistics.intervals import CONFIDENCE, NO_DIFFERENCE

RESAMPLES = 10_000  # for an interval
JOINT_RESAMPLES = 2_000  # for claims about many columns at once
_ROUNDING = 1e-9  # sums over queries that differ by no more are equal

CELLS = 1 << 22  # of a table in memory at a time


# ------------------------------------------------------------------------------- samples, bootstrap


def draw_counts(count: int, seed: int, resamples: int = RESAMPLES) -> Iterator[Float]:
    """Yield (b, count) how often each query is drawn with replacement, in blocks of resamples."""
    generator = np.random.default_rng(seed)
    step = max(1, CELLS // max(count, 1))
    for low in range(0, resamples, step):
        size = min(step, resamples - low)
        drawn = generator.integers(0, count, (size, count)) + np.arange(size)[:, None] * count
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        yield times.astype(np.float64)


def generator_state(seed: int) -> tuple[int, int]:
    """State and increment of the generator (PCG64) that `draw_counts` begins with.

    A report's page draws the same queries with them.
    """
    state = np.random.default_rng(seed).bit_generator.state["state"]
    return int(state["state"]), int(state["inc"])


def first_of_permutation(total: int, count: int, seed: int | list[int]) -> Int:
    """(count,) the first numbers of the seed's permutation of 0 … total − 1, in its order.

    Every sample of queries or documents is drawn here, so that a larger sample contains the smaller
    one, and what was judged or paid for the smaller one counts.
    """
    return np.random.default_rng(seed).permutation(total)[:count]


def draw_sample(among: Int, count: int, seed: int | list[int]) -> Int:
    """(count,) numbers drawn from `among`, ascending."""
    return np.sort(among[first_of_permutation(len(among), count, seed)])


def uniform_numbers(count: int, seed: int, times: int) -> Iterator[Float]:
    """Yield (count,) numbers from 0 to 1, `times` times; not those that drew a sample by `seed`."""
    generator = np.random.default_rng([seed, count])
    for _ in range(times):
        yield generator.random(count)


def resampled(
    columns: Array, statistic: Callable[[Float], Float], seed: int, resamples: int = RESAMPLES
) -> Float:
    """(resamples, …) a statistic of the sums (b, C) of the columns (Q, C) over drawn queries."""
    values = np.asarray(columns, np.float64)
    blocks = []
    for times in draw_counts(len(values), seed, resamples):
        with np.errstate(divide="ignore", invalid="ignore"):
            blocks.append(statistic(times @ values))
    return np.concatenate(blocks)


def resampled_means(
    columns: Float, seed: int, resamples: int = RESAMPLES, groups: Groups | None = None
) -> Float:
    """(resamples, C) means of the columns (Q, C), each over Q queries drawn with replacement.

    NaN in a column is a query for which it is undefined: the mean is over the others. With groups,
    whole groups are drawn, as many as there are.
    """
    defined = ~np.isnan(columns)
    numbers = numbered(groups)
    if numbers is None and defined.all():
        count = float(len(columns))
        return resampled(columns, lambda sums: sums / count, seed, resamples)
    width = columns.shape[1]
    values_and_counts = np.concatenate([np.where(defined, columns, 0.0), defined], axis=1)
    if numbers is not None:
        values_and_counts = group_sums(values_and_counts.T, numbers).T

    def means(sums: Float) -> Float:
        total, over = sums[:, :width], sums[:, width:]
        return np.where(over > 0, total / over, np.nan)

    return resampled(values_and_counts, means, seed, resamples)


def best_out_of_bag(values: Float, seed: int) -> float:
    """Estimate the mean of the best of several rows (C, Q) on new queries.

    On the queries by which it was selected, its mean is biased upwards. Here a row is selected on
    each resample and scored on the queries that the resample does not contain. Rows that are equal
    on a resample count by their mean.
    """
    scores = []
    for times in draw_counts(values.shape[1], seed, JOINT_RESAMPLES):
        sums = times @ values.T
        best = sums >= sums.max(axis=1, keepdims=True) - _ROUNDING
        out = times == 0
        usable = out.any(axis=1)
        best, out = best[usable], out[usable].astype(np.float64)
        outside = np.where(best, out @ values.T, 0.0).sum(axis=1)
        scores.append(outside / (best.sum(axis=1) * out.sum(axis=1)))
    return float(np.concatenate(scores).mean())


# ---------------------------------------------------------------------------- many columns at once


def joint_lower_bounds(values: Float, seed: int) -> Float:
    """(C,) lower bounds that the means of all rows (C, Q) reach together, at 97.5%.

    mean − t · standard error, where t is Student's scale of the largest |resampled − observed| mean
    over its standard error in 95 of 100 resamples (max-T): one of twenty rows that lies above a
    target by chance alone does not reach it. One more query worth nothing is counted: thirty
    successes do not rule it out, and have no error of their own.
    """
    nothing = np.minimum(values.min(axis=1, keepdims=True), 0.0)
    values = np.concatenate([values, nothing], axis=1)
    n = values.shape[1]
    means = values.mean(axis=1)
    error = values.std(axis=1) / math.sqrt(n)
    constant = error < NO_DIFFERENCE
    drawn = resampled_means((values - means[:, None]).T, seed, JOINT_RESAMPLES)
    scaled = np.where(constant, 0.0, np.abs(drawn) / np.where(constant, 1.0, error))
    # Both sides count, for values near the end of their range.
    q = float(np.quantile(scaled.max(axis=1), CONFIDENCE))
    t = t_quantile(float(normal_cdf(np.array(q))), n - 1.0)
    bounds: Float = np.maximum(means - t * error * math.sqrt(n / (n - 1.0)), nothing[:, 0])
    return bounds
