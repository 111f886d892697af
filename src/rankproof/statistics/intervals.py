"""95% intervals over queries, and how many queries would narrow one.

**Differences** of means on shared queries have Student's interval, with V and df of `groups`

    d̄ ± t_df · √V            V = s²/n and df = n − 1 where each query is its own group

Measured on lattices and on differences of which few are not 0, it covers .95 where the percentile
bootstrap covers .81 and less. It needs no random draw, so the same difference has the same interval
wherever it is printed, and swapping the runs changes its sign and nothing else.

**Means** of a measure with two ends are skewed near an end. Theirs is Student's on the logit scale:
with p the mean rescaled to 0 … 1 and ℓ = ln(p/(1 − p))

    1/(1 + e^{−(ℓ ± h)}),   h = t_df · √V / (p(1 − p))

It passes no end. Values from Beta(.3, 3) are covered in .91 of samples of 6, where Student's covers
.83. A measure without an end has Student's.

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
all would never differ significantly.) With groups of queries these values are the means of groups.

**Other statistics** (a ratio, a rank, a coefficient of agreement) have the percentile interval of
the bootstrap, its tails widened from α/2 to Φ(−√(n/(n−1)) · t_{n−1}), which makes it as wide as
Student's for a mean. No resample goes beyond the values that were seen, and in 2^{1−n} of samples
all of these lie on one side of the median: of two queries it covers a half. Fewer than six queries
have none.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from rankproof.foundation.arrays import Array, Float
from rankproof.statistics.distributions import (
    normal_cdf,
    normal_quantile,
    share_upper_bound,
    t_quantile,
    t_tail,
)
from rankproof.statistics.groups import (
    Groups,
    Means,
    count_groups,
    group_means,
    group_sums,
    means_of,
)

CONFIDENCE = 0.95
POWER = 0.8
MIN_QUERIES = 6  # that differ: with fewer no interval is trusted, nor can p fall below .05

_FIRST_LOOK = 8  # queries before a sequential interval

ROUNDING = 1e-9  # values that differ by no more are one value
NO_DIFFERENCE = 1e-12  # a difference below this is none

Interval = tuple[float, float]


def none_if_nan(value: float) -> float | None:
    """A value for JSON: None where it is undefined."""
    return None if math.isnan(value) else value


def interval_or_none(ci: Interval) -> list[float] | None:
    """An interval for JSON: None where an end is unknown."""
    return None if any(map(math.isnan, ci)) else list(ci)


def t_halfwidth(means: Means, critical: float | Float = 0.0) -> Float:
    """(C,) t_df · √V, with max(t_df, critical) in place of t_df."""
    degrees, at = np.unique(means.df, return_inverse=True)
    level = (1.0 + CONFIDENCE) / 2.0
    t = np.array([t_quantile(level, df) if df > 0 else math.nan for df in degrees.tolist()])
    t = np.maximum(t[at].reshape(means.df.shape), critical)
    with np.errstate(invalid="ignore", divide="ignore"):
        width: Float = t * means.deviation / np.sqrt(means.n)
    return width


def constant_interval(
    c: float, n: int, least: float, most: float, alpha: float = 1.0 - CONFIDENCE
) -> Interval:
    """The interval of a value c that all n queries share, when unseen ones lie in [least, most].

    `alpha` is the chance of missing. NaN where c lies outside of these, and where one is infinite.
    """
    if not (n and math.isfinite(most - least) and least - ROUNDING <= c <= most + ROUNDING):
        return (math.nan, math.nan)
    c = min(max(c, least), most)
    unseen = 1.0 - (alpha / 2.0) ** (1.0 / n)
    return (c - unseen * (c - least), c + unseen * (most - c))


def possible_range(values: Float, upper: float) -> Interval:
    """The range of a measure, 0 to `upper`; an end that values pass is unknown, so infinite."""
    low = np.fmin.reduce(values, axis=None, initial=np.inf)
    high = np.fmax.reduce(values, axis=None, initial=-np.inf)
    return (
        0.0 if low >= -ROUNDING else -math.inf,
        upper if high <= upper + ROUNDING else math.inf,
    )


def mean_intervals(values: Float, upper: float = 1.0, groups: Groups | None = None) -> Float:
    """(C, 2) intervals of the means of rows (C, Q) of a measure from 0 to `upper`."""
    means = means_of(values, groups)
    least, most = possible_range(values, upper)
    if math.isfinite(most - least):
        ends = _logit_ends(means, least, most)
    else:
        half = t_halfwidth(means)
        ends = np.stack([means.mean - half, means.mean + half], axis=-1).clip(least, most)
    return _with_unseen_values(ends, values, means, (least, most), groups)


def _logit_ends(means: Means, least: float, most: float) -> Float:
    """(C, 2) Student's intervals on the logit scale, of means between two ends."""
    span = most - least
    p = np.clip((means.mean - least) / span, 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        half = t_halfwidth(means) / span / (p * (1.0 - p))
        logit = np.log(p / (1.0 - p))
        ends = [1.0 / (1.0 + np.exp(-(logit + side))) for side in (-half, half)]
    return least + span * np.stack(ends, axis=-1)


def difference_intervals(
    differences: Float,
    span: float,
    groups: Groups | None = None,
    critical: float | Float = 0.0,
) -> Float:
    """(C, 2) intervals of mean differences, of rows (C, Q), in a measure that spans `span`.

    `critical`, one or (C,), are those of a family (`family.critical_values`): the intervals then
    hold together, and none is narrower than without them. NaN where queries of fewer than six
    groups differ, and where all differ alike in a measure whose span is above 1: it has no end.
    """
    means = means_of(differences, groups)
    half = t_halfwidth(means, critical)
    most = 1.0 if span <= 1.0 + ROUNDING else math.inf
    ends = np.stack(
        [np.maximum(means.mean - half, -most), np.minimum(means.mean + half, most)], axis=-1
    )
    ends = _with_unseen_values(ends, differences, means, (-most, most), groups, critical)
    ends[count_differing(differences, groups) < MIN_QUERIES] = np.nan
    return ends


def count_differing(differences: Float, groups: Groups | None = None) -> Array:
    """(C,) queries that differ, of rows (C, Q); with groups the groups with such a query."""
    with np.errstate(invalid="ignore"):
        return count_groups(np.abs(differences) >= NO_DIFFERENCE, groups)


def few_changes_bound(differences: Float, groups: Groups | None = None) -> Interval:
    """Bound the mean of defined differences (Q,) where queries of fewer than six groups differ.

    ± the largest share of groups that could differ (Clopper and Pearson) times the largest change
    of a group, Σ|d| over the mean size of a group; at least the observed mean. NaN where six or
    more differ: they have an interval.
    """
    differing = int(count_differing(differences, groups))
    if differing >= MIN_QUERIES:
        return (math.nan, math.nan)
    if differing == 0:
        return (0.0, 0.0)
    sizes = group_sums(np.abs(differences), groups)
    largest = float(sizes.max()) * (len(sizes) / len(differences))
    share = share_upper_bound(differing, len(sizes), (1.0 + CONFIDENCE) / 2.0)
    bound = max(share * largest, abs(float(differences.mean())))
    return (-bound, bound)


def _with_unseen_values(
    ends: Float,
    values: Float,
    means: Means,
    possible: Interval,
    groups: Groups | None,
    critical: float | Float = 0.0,
) -> Float:
    """Widen the ends (C, 2), in place, where hardly a value differs from the others."""
    if not values.shape[-1]:
        return ends
    values = group_means(values, groups)
    # A value that most queries, or groups of them, share is the median.
    median = np.take_along_axis(np.sort(values, axis=-1), means.units[..., None] // 2, axis=-1)
    unlike = (np.abs(values - median) > ROUNDING).sum(axis=-1)
    nearly_constant = (means.n > 0) & (unlike < MIN_QUERIES) & (3 * unlike <= means.units)
    for at in np.argwhere(nearly_constant):
        mean, units, df = float(means.mean[*at]), int(means.units[*at]), float(means.df[*at])
        alpha, limit = 1.0 - CONFIDENCE, np.broadcast_to(critical, means.n.shape)[*at]
        if limit > 0.0 and df > 0.0:
            alpha = min(alpha, float(t_tail(limit, df)))
        unseen = constant_interval(mean, units, *possible, alpha=alpha)
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
    with np.errstate(invalid="ignore", divide="ignore"):
        percentage = 100.0 * np.nansum(actual, axis=-1) / np.nansum(best, axis=-1)
    means = replace(means_of(ratio), mean=percentage)
    return _with_unseen_values(ends, ratio, means, (0.0, 100.0), None).T


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


def queries_needed_range(
    interval: Array, deviation: Array, share: Array, n: Array, margin: float = 0.0
) -> Float:
    """(…, 2) the fewest (≥ 1) and the most queries to add, if the true value is in an interval.

    `queries_needed` for the values of `interval` (…, 2) furthest from what decides, and nearest to
    it, less the n that exist. A difference δ is decided if it is shown not to be 0; with a margin
    also if −margin is excluded, so that max(δ + margin, −δ) is what must be shown. The most is
    infinite where the nearest value is 0: no number of queries shows a difference that is none.
    """
    low, high = np.asarray(interval, np.float64)[..., 0], np.asarray(interval, np.float64)[..., 1]
    if margin > 0.0:
        ends = np.maximum(np.stack([low, high]) + margin, -np.stack([low, high]))
        middle = np.clip(-margin / 2.0, low, high)
        nearest = np.maximum(middle + margin, -middle)
    else:
        ends = np.abs(np.stack([low, high]))
        nearest = np.abs(np.clip(0.0, low, high))
    needed = [
        queries_needed(distance, deviation, share) for distance in (ends.max(axis=0), nearest)
    ]
    more: Float = np.maximum(np.stack(needed, axis=-1) - np.asarray(n)[..., None], 1.0)
    return more


def sequential_interval(differences: Float, planned: int) -> Interval:
    """The interval of the mean of differences (n,) that holds at every look while n grows.

        s·√(2(nρ² + 1)/(n²ρ²) · ln(√(nρ² + 1)/α)) · t_{n−1}/z,   ρ² = (−2 ln α + ln(1 − 2 ln α))/n₀

    on both sides, an asymptotic confidence sequence (Waudby-Smith et al. 2021) that is narrowest
    near the planned n₀. NaN before eight queries, and before six that differ.
    """
    n = len(differences)
    if n < _FIRST_LOOK or int(count_differing(differences)) < MIN_QUERIES:
        return (math.nan, math.nan)
    alpha, level = 1.0 - CONFIDENCE, (1.0 + CONFIDENCE) / 2.0
    rho2 = (-2.0 * math.log(alpha) + math.log(1.0 - 2.0 * math.log(alpha))) / planned
    grown = n * rho2 + 1.0
    scale = math.sqrt(2.0 * grown / (n * n * rho2) * math.log(math.sqrt(grown) / alpha))
    mean, deviation = float(differences.mean()), float(differences.std(ddof=1))
    half = deviation * scale * t_quantile(level, n - 1.0) / normal_quantile(level)
    return (mean - half, mean + half)


def count_or_none(number: float) -> int | None:
    """A number of queries for JSON: None where no number is enough."""
    return None if math.isnan(number) or math.isinf(number) else int(number)
