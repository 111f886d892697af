"""Queries drawn. The one bootstrap: with replacement, once for all columns.

A resample is a row of counts, so that its sums are a matrix product and the sum of a difference is
the difference of sums. The same seed and number of queries give the same draws wherever they are
asked for, so that any two figures of the same queries are paired. Samples are nested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.statistics.distributions import normal_cdf, t_quantile
from rankproof.statistics.intervals import CONFIDENCE, FEW, NONE

RESAMPLES = 10_000
BAGS = 2_000  # by which many are told apart, and the best of them is judged
_SUMS = 1e-9  # so of sums over queries

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


def origin(seed: int) -> tuple[int, int]:
    """State and increment of the generator (PCG64) that `draws` begins with: for a page that draws
    the same queries."""
    inside = np.random.default_rng(seed).bit_generator.state["state"]
    return int(inside["state"]), int(inside["inc"])


def first_of_permutation(total: int, count: int, seed: int | list[int]) -> Int:
    """(count,) the first numbers of the seed's permutation of 0 … total − 1, in its order.

    Every sample of queries or documents is drawn here, so that a larger sample holds the smaller
    one, and what was judged or paid for the smaller one counts.
    """
    return np.random.default_rng(seed).permutation(total)[:count]


def sampled(among: Int, count: int, seed: int | list[int]) -> Int:
    """(count,) some of the queries, drawn without replacement, ascending."""
    return np.sort(among[first_of_permutation(len(among), count, seed)])


def uniforms(count: int, seed: int, times: int) -> Iterator[Float]:
    """(count,) numbers from 0 to 1, so many times; not those that drew a sample with the seed."""
    generator = np.random.default_rng([seed, count])
    for _ in range(times):
        yield generator.random(count)


def resampled(
    columns: Array, statistic: Callable[[Float], Float], seed: int, resamples: int = RESAMPLES
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


def best_out_of_bag(values: Float, seed: int) -> float:
    """What the best of several (C, Q) is worth on queries that did not choose it.

    The winner on the queries it was chosen by is flattered by chance. Here it is chosen on each
    resample and scored on the queries that the resample left out; the mean of that, and of several
    that are level on a resample theirs: one that is first on all queries is not so on these.
    """
    scores = []
    for times in draws(values.shape[1], seed, BAGS):
        sums = times @ values.T
        best = sums >= sums.max(axis=1, keepdims=True) - _SUMS  # whatever the last bits
        out = times == 0
        kept = out.any(axis=1)
        best, out = best[kept], out[kept].astype(np.float64)
        outside = np.where(best, out @ values.T, 0.0).sum(axis=1)
        scores.append(outside / (best.sum(axis=1) * out.sum(axis=1)))
    return float(np.concatenate(scores).mean())


def lower_ends(values: Float, seed: int) -> Float:
    """(C,) what the means of several (C, Q) all reach, together at 97.5%.

    mean − t · standard error, where t is Student's scale of the largest |resampled − seen| mean
    over its standard error that chance makes of them, 95 of 100: max-T. One of twenty that lies
    above a target by chance alone does not meet it so. One more query worth nothing is counted:
    thirty of which all went well do not rule it out, and have no error of their own.
    """
    nothing = np.minimum(values.min(axis=1, keepdims=True), 0.0)
    values = np.concatenate([values, nothing], axis=1)
    n = values.shape[1]
    means = values.mean(axis=1)
    error = values.std(axis=1) / math.sqrt(n)
    steady = error < NONE
    drawn = resampled_means((values - means[:, None]).T, seed, BAGS)
    over = np.where(steady, 0.0, np.abs(drawn) / np.where(steady, 1.0, error)).max(axis=1)
    t = student(float(np.quantile(over, CONFIDENCE)), n)  # both sides, for values near their end
    ends: Float = np.maximum(means - t * error * math.sqrt(n / (n - 1.0)), nothing[:, 0])
    return ends


def told_apart_from(chosen: int, values: Float, seed: int, resamples: int = BAGS) -> Bool:
    """(C,) which of several (C, Q) differ from the chosen one, all claims together at 95%.

    max-T: each summed difference over its size, z = |Σ d_q|/√(Σ d_q²), against the largest z that
    chance makes where all are equal: each query's differences as they are, their sign at random,
    that of all at once. Who is chosen is chosen by the same queries, and so under each set of signs
    the best and the worst are set against all others. Values of 0 and 1, whose z can only take
    some steps, have the same steps there. Where fewer than six queries differ nothing is told
    apart. Measured: docs/recommend.md.
    """
    if not (_differing(chosen, values) >= FEW).any():
        return np.zeros(len(values), np.bool_)
    return _past(chosen, values, _critical(values, seed, resamples))


def told_apart_pairs(values: Float, seed: int) -> Bool:
    """(C, C) which of several (C, Q) differ from which, all claims together at 95% as above."""
    if values.shape[1] < 2:
        return np.zeros((len(values), len(values)), np.bool_)
    limit = _critical(values, seed, BAGS, every=True)
    return np.stack([_past(one, values, limit) for one in range(len(values))])


def _critical(values: Float, seed: int, resamples: int, every: bool = False) -> float:
    """The largest z that chance makes of equals, in 95 of 100 sets of signs no more: of the best
    and the worst, or of every two."""
    apart = (values - values.mean(axis=0)).T  # only differences count
    largest = []
    for signs in _signs(len(apart), seed, resamples):
        sums = signs @ apart
        best, worst = sums.argmax(axis=1), sums.argmin(axis=1)
        most = np.zeros(len(sums))
        for one in range(len(values)) if every else np.unique([best, worst]).tolist():
            some = slice(None) if every else (best == one) | (worst == one)
            rest = slice(one if every else 0, None)  # two are set against each other once
            z = np.abs(sums[some, rest] - sums[some, one, None]) / _sizes(one, values)[rest]
            most[some] = np.maximum(most[some], z.max(axis=1))
        largest.append(most)
    return float(np.quantile(np.concatenate(largest), CONFIDENCE, method="higher"))


def _signs(count: int, seed: int, resamples: int) -> Iterator[Float]:
    """(b, count) 1 or −1 for each query, a block at a time."""
    generator = np.random.default_rng(seed)
    step = max(1, CELLS // max(count, 1))
    for low in range(0, resamples, step):
        turned = generator.integers(0, 2, (min(step, resamples - low), count))
        yield 1.0 - 2.0 * turned.astype(np.float64)


def _differing(chosen: int, values: Float) -> Int:
    """(C,) queries on which each differs from the chosen."""
    counted: Int = (np.abs(values[chosen] - values) >= NONE).sum(axis=1)
    return counted


def _past(chosen: int, values: Float, limit: float) -> Bool:
    """(C,) which differ from the chosen by more than the limit."""
    z = np.abs((values[chosen] - values).sum(axis=1)) / _sizes(chosen, values)
    past: Bool = z > limit * (1.0 + _SUMS)  # level is not more
    return past & (_differing(chosen, values) >= FEW)


def _sizes(one: int, values: Float) -> Float:
    """(C,) √(Σ d²) of the differences from one of the rows; infinite where there are none."""
    sizes: Float = np.sqrt(np.square(values[one] - values).sum(axis=1))
    return np.where(sizes < NONE, np.inf, sizes)


def student(q: float, count: int) -> float:
    """T_{n−1}⁻¹(Φ(q)): a critical value of draws of n queries on Student's scale."""
    return t_quantile(float(normal_cdf(np.array(q))), count - 1.0)
