"""95% intervals over queries, and how many queries would narrow one.

**Means**, and so differences of means on shared queries, have Student's interval

    x̄ ± t_{n−1} · s/√n

Measured on lattices and on differences of which few are not 0, it covers .95 where the percentile
bootstrap covers .81 and less. It needs no random draw, so the same difference has the same interval
wherever it is printed, and swapping the runs changes its sign and nothing else.

**Constant values.** Where all n values are one value c, s is 0 and Student's interval is empty.
Unlike queries may yet be a share of up to u = 1 − (α/2)^{1/n}. With values from a to b the mean
then lies from c − u·(c − a) to c + u·(b − c). For n ones that is the binomial's exact interval,
[(α/2)^{1/n}, 1]: ten queries that all succeed give .69 to 1, where Student's 1 to 1 covers a true
.99 in a tenth of such samples. Differences go from −1 to 1: six queries that all differ by 1 give
.08 to 1.

**Nearly constant values.** Where fewer than six values, and no more than a third, are unlike the
others, s rests on these few. The interval then reaches as far as Student's and as what may be
unseen does, with the mean in place of c. Where one query in fifty finds nothing and one in ten
.99, Student's alone covers .4 to .6. (With more than a third, two runs that differ by .3 or not at
all would never differ significantly.)

**Other statistics** (a ratio, a rank, a coefficient of agreement) have the percentile interval of
the bootstrap, its tails widened from α/2 to Φ(−√(n/(n−1)) · t_{n−1}), which makes it as wide as
Student's for a mean. No resample goes beyond the values that were seen, and in 2^{1−n} of samples
all of these lie on one side of the median: of two queries it covers a half. Fewer than six queries
have none.
"""

from __future__ import annotations

import math

import numpy as np

from rankproof.foundation.arrays import Array, Float, Int
from rankproof.statistics.distributions import normal_cdf, normal_quantile, t_quantile

CONFIDENCE = 0.95
POWER = 0.8
MIN_QUERIES = 6  # that differ: with fewer no interval is trusted, nor can p fall below .05

ROUNDING = 1e-9  # values that differ by no more are one value
NO_DIFFERENCE = 1e-12  # a difference below this is none

Interval = tuple[float, float]


def none_if_nan(value: float) -> float | None:
    """A value for JSON: None where it is undefined."""
    return None if math.isnan(value) else value


def interval_or_none(ci: Interval) -> list[float] | None:
    """An interval for JSON: None where an end is unknown."""
    return None if any(map(math.isnan, ci)) else list(ci)


def t_halfwidth(n: Array, deviation: Array) -> Float:
    """Return t_{n−1} · s/√n, NaN below two values."""
    count = np.asarray(n, np.int64)
    sizes, at = np.unique(count, return_inverse=True)
    level = (1.0 + CONFIDENCE) / 2.0
    t = np.array([t_quantile(level, k - 1.0) if k > 1 else math.nan for k in sizes.tolist()])
    with np.errstate(invalid="ignore", divide="ignore"):
        width: Float = t[at].reshape(count.shape) * deviation / np.sqrt(count)
    return width


def mean_and_deviation(values: Float) -> tuple[Int, Float, Float]:
    """(C,) number, mean and standard deviation of the defined values of rows (C, Q)."""
    defined = ~np.isnan(values)
    n = defined.sum(axis=-1)
    filled = np.where(defined, values, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(n > 0, filled.sum(axis=-1) / n, np.nan)
        centered = np.where(defined, values - mean[..., None], 0.0)
        deviation = np.where(n > 1, np.sqrt((centered * centered).sum(axis=-1) / (n - 1)), np.nan)
    return n, mean, deviation


def constant_interval(c: float, n: int, least: float, most: float) -> Interval:
    """The interval of a value c that all n queries share, when unseen ones lie in [least, most].

    NaN where c lies outside of these, and where one of them is infinite.
    """
    if not (n and math.isfinite(most - least) and least - ROUNDING <= c <= most + ROUNDING):
        return (math.nan, math.nan)
    c = min(max(c, least), most)
    unseen = 1.0 - ((1.0 - CONFIDENCE) / 2.0) ** (1.0 / n)
    return (c - unseen * (c - least), c + unseen * (most - c))


def possible_range(values: Float, upper: float) -> Interval:
    """The range of a measure, 0 to `upper`; an end that values pass is unknown, so infinite."""
    low = np.fmin.reduce(values, axis=None, initial=np.inf)
    high = np.fmax.reduce(values, axis=None, initial=-np.inf)
    return (
        0.0 if low >= -ROUNDING else -math.inf,
        upper if high <= upper + ROUNDING else math.inf,
    )


def mean_intervals(values: Float, upper: float = 1.0) -> Float:
    """(C, 2) intervals of the means of rows (C, Q) of a measure, within its possible range."""
    n, mean, deviation = mean_and_deviation(values)
    half = t_halfwidth(n, deviation)
    least, most = possible_range(values, upper)
    ends = np.stack([np.maximum(mean - half, least), np.minimum(mean + half, most)], axis=-1)
    return _with_unseen_values(ends, values, n, mean, (least, most))


def difference_intervals(differences: Float, span: float) -> Float:
    """(C, 2) intervals of mean differences, of rows (C, Q).

    NaN where fewer than six queries differ, and where all differ alike in a measure whose range
    (`span`) is above 1: it has no end.
    """
    n, mean, deviation = mean_and_deviation(differences)
    half = t_halfwidth(n, deviation)
    most = 1.0 if span <= 1.0 + ROUNDING else math.inf
    ends = np.stack([np.maximum(mean - half, -most), np.minimum(mean + half, most)], axis=-1)
    ends = _with_unseen_values(ends, differences, n, mean, (-most, most))
    with np.errstate(invalid="ignore"):
        differing = (np.abs(differences) >= NO_DIFFERENCE).sum(axis=-1)
    ends[differing < MIN_QUERIES] = np.nan
    return ends


def _with_unseen_values(
    ends: Float, values: Float, n: Int, mean: Float, possible: Interval
) -> Float:
    """Widen the ends (C, 2), in place, where hardly a value differs from the others."""
    if not values.shape[-1]:
        return ends
    # A value that most queries share is the median.
    median = np.take_along_axis(np.sort(values, axis=-1), n[..., None] // 2, axis=-1)
    unlike = (np.abs(values - median) > ROUNDING).sum(axis=-1)
    for at in np.argwhere((n > 0) & (unlike < MIN_QUERIES) & (3 * unlike <= n)):
        unseen = constant_interval(float(mean[*at]), int(n[*at]), *possible)
        if not unlike[*at]:
            ends[*at] = unseen
        elif not math.isnan(unseen[0]):
            low, high = ends[*at]
            ends[*at] = np.minimum(low, unseen[0]), np.maximum(high, unseen[1])
    return ends


def percentile_tail(n: int) -> float:
    """The tail of a percentile interval over n queries: Φ(−√(n/(n−1)) · t_{n−1})."""
    if n < 2:
        return math.nan
    t = t_quantile((1.0 + CONFIDENCE) / 2.0, n - 1.0)
    return float(normal_cdf(np.array(-math.sqrt(n / (n - 1.0)) * t)))


def percentile_intervals(samples: Array, n: int) -> Float:
    """(2, …) intervals from resamples (first axis) of n queries.

    NaN where no resample defines the statistic, and for fewer than six queries.
    """
    ends = np.full((2, *samples.shape[1:]), np.nan)
    defined = ~np.isnan(samples).all(axis=0)
    if n < MIN_QUERIES or not defined.any():
        return ends
    low = percentile_tail(n)
    ends[..., defined] = np.nanquantile(samples[..., defined], [low, 1.0 - low], axis=0)
    return ends


def percent_intervals(samples: Array, actual: Float, best: Float) -> Float:
    """(2, C) intervals of Σ actual as a percentage of Σ best, for rows (C, Q) and their resamples.

    Where the percentages of single queries hardly vary, as far as unseen queries allow, too.
    """
    ends = percentile_intervals(samples, int((~np.isnan(actual)).sum(axis=-1).max(initial=0))).T
    ratio = np.full(actual.shape, np.nan)
    np.divide(100.0 * actual, best, out=ratio, where=best > 0)
    n = (~np.isnan(ratio)).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        percentage = 100.0 * np.nansum(actual, axis=-1) / np.nansum(best, axis=-1)
    return _with_unseen_values(ends, ratio, n, percentage, (0.0, 100.0)).T


def percentile_interval(samples: Array, n: int) -> Interval:
    """`percentile_intervals` of a single statistic."""
    low, high = percentile_intervals(np.asarray(samples), n)
    return (float(low), float(high))


def queries_needed(difference: Array, deviation: Array, share: Array) -> Float:
    """Estimate how many queries would show a difference δ: (z_{α/2} + z_β)² · s²/δ², rounded up.

    s is the standard deviation of the per-query differences, `share` the share of queries that
    differ: before six do, no p falls below .05. Infinite where δ is 0.
    """
    z = normal_quantile((1.0 + CONFIDENCE) / 2.0) + normal_quantile(POWER)
    delta, s = np.asarray(difference, np.float64), np.asarray(deviation, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.ceil(np.maximum(np.square(z * s / delta), MIN_QUERIES / share))
    return np.where(delta == 0, np.inf, needed)


def count_or_none(number: float) -> int | None:
    """A number of queries for JSON: None where no number is enough."""
    return None if math.isnan(number) or math.isinf(number) else int(number)
