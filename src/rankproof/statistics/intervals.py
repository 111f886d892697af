"""95% intervals over queries.

Of a mean, and so of a difference of means on shared queries, Student's

    x̄ ± t_{n−1} · s/√n

Measured on lattices and on differences of which few are not 0, it covers .95 where the percentile
bootstrap covers .81 and less; it needs no draw, so that the same difference has the same interval
wherever it is printed, and swapping the runs turns its sign and nothing else.

Where all n values are one value c, s is 0 and Student's knows nothing. Queries unlike all that were
seen may yet be a share of up to u = 1 − (α/2)^{1/n}, or n like these had been too lucky; of values
from a to b the mean then lies from c − u·(c − a) to c + u·(b − c). Of n ones that is the binomial's
exact interval, [(α/2)^{1/n}, 1]. Ten queries that all find it say .69 to 1; Student's 1 to 1 covers
a true .99 in a tenth of such samples. So it is with differences, from −1 to 1: six queries that all
differ by 1 say .08 to 1.

Where all but a few are one value, s is the matter of these few: nine ones and .99 are no better a
witness than ten ones. Where fewer than six, and no more than a third, do not share the value of
the others, the interval reaches as far as Student's and as what may be unseen does, of the mean in
place of c. Where one query in fifty finds nothing and one in ten .99, Student's alone covers .4 to
.6. (With more than a third two runs that differ by .3 or not at all would not be told apart.)

Of what is no mean (a ratio, a rank, a coefficient of agreement) the percentile interval of the
bootstrap, its tails widened from α/2 to Φ(−√(n/(n−1)) · t_{n−1}), which for a mean makes it as wide
as Student's. No resample goes beyond the values that were seen, and in 2^{1−n} of samples all of
these lie on one side of the middle: of two queries it covers a half. Fewer than six have none.
"""

from __future__ import annotations

import math

import numpy as np

from rankproof.foundation.arrays import Array, Float, Int
from rankproof.statistics.distributions import normal_cdf, t_quantile

CONFIDENCE = 0.95
FEW = 6  # queries that differ: with fewer no interval can be trusted, nor can p fall below .05

ROUNDING = 1e-9  # values that differ by no more are one value
NONE = 1e-12  # a difference below this is none

Interval = tuple[float, float]


def known(value: float) -> float | None:
    """For JSON: null where a figure is not defined."""
    return None if math.isnan(value) else value


def known_ends(ci: Interval) -> list[float] | None:
    """For JSON: null where an end is not known."""
    return None if any(map(math.isnan, ci)) else list(ci)


def t_halfwidth(n: Array, spread: Array) -> Float:
    """(…) t_{n−1} · s/√n; NaN below two values."""
    count = np.asarray(n, np.int64)
    known, at = np.unique(count, return_inverse=True)
    level = (1.0 + CONFIDENCE) / 2.0
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


def steady_interval(c: float, n: int, least: float, most: float) -> Interval:
    """Of a figure c that was the same on all n queries: as far as unseen ones between `least` and
    `most` could move it; NaN where c itself lies outside, and where one of these is endless."""
    if not (n and math.isfinite(most - least) and least - ROUNDING <= c <= most + ROUNDING):
        return (math.nan, math.nan)
    c = min(max(c, least), most)
    unseen = 1.0 - ((1.0 - CONFIDENCE) / 2.0) ** (1.0 / n)
    return (c - unseen * (c - least), c + unseen * (most - c))


def range_of(values: Float, most: float) -> Interval:
    """What a measure can be: from 0 to 1, but for one that has no end (`most`); of one that was
    seen beyond nobody knows how far it goes."""
    low = np.fmin.reduce(values, axis=None, initial=np.inf)
    high = np.fmax.reduce(values, axis=None, initial=-np.inf)
    return (
        0.0 if low >= -ROUNDING else -math.inf,
        most if high <= most + ROUNDING else math.inf,
    )


def mean_intervals(values: Float, most: float = 1.0) -> Float:
    """(C, 2) of the means of rows (C, Q) of a measure, none of them past what it can be; NaN values
    are left out."""
    n, mean, sd = spread_of(values)
    half = t_halfwidth(n, sd)
    least, most = range_of(values, most)
    ends = np.stack([np.maximum(mean - half, least), np.minimum(mean + half, most)], axis=-1)
    return _widened(ends, values, n, mean, least, most)


def difference_intervals(differences: Float, span: float) -> Float:
    """(C, 2) of the mean differences of rows (C, Q); NaN where fewer than six queries differ, and
    where all differ alike in a measure whose range, `span`, is above 1: it has no end."""
    n, mean, sd = spread_of(differences)
    half = t_halfwidth(n, sd)
    reach = 1.0 if span <= 1.0 + ROUNDING else math.inf
    ends = np.stack([np.maximum(mean - half, -reach), np.minimum(mean + half, reach)], axis=-1)
    ends = _widened(ends, differences, n, mean, -reach, reach)
    with np.errstate(invalid="ignore"):
        differing = (np.abs(differences) >= NONE).sum(axis=-1)
    ends[differing < FEW] = np.nan
    return ends


def _widened(ends: Float, values: Float, n: Int, mean: Float, least: float, most: float) -> Float:
    """The ends (C, 2); where hardly a value differs from the others, what may be unseen."""
    if not values.shape[-1]:
        return ends
    # A value that most queries share stands in the middle.
    middle = np.take_along_axis(np.sort(values, axis=-1), n[..., None] // 2, axis=-1)
    others = (np.abs(values - middle) > ROUNDING).sum(axis=-1)
    for at in np.argwhere((n > 0) & (others < FEW) & (3 * others <= n)):
        unseen = steady_interval(float(mean[*at]), int(n[*at]), least, most)
        known = not math.isnan(unseen[0])
        if others[*at] and known:
            low, high = ends[*at]
            ends[*at] = np.minimum(low, unseen[0]), np.maximum(high, unseen[1])
        elif not others[*at]:
            ends[*at] = unseen
    return ends


def tail(n: int) -> float:
    """Of a percentile interval over n queries: Φ(−√(n/(n−1)) · t_{n−1})."""
    if n < 2:
        return math.nan
    t = t_quantile((1.0 + CONFIDENCE) / 2.0, n - 1.0)
    return float(normal_cdf(np.array(-math.sqrt(n / (n - 1.0)) * t)))


def percentile_intervals(samples: Array, n: int) -> Float:
    """(2, …) along the first axis of resamples over n queries; NaN where none defines it, and of
    fewer than six."""
    ends = np.full((2, *samples.shape[1:]), np.nan)
    known = ~np.isnan(samples).all(axis=0)
    if n < FEW or not known.any():
        return ends
    low = tail(n)
    ends[..., known] = np.nanquantile(samples[..., known], [low, 1.0 - low], axis=0)
    return ends


def percent_intervals(samples: Array, actual: Float, best: Float) -> Float:
    """The same of what rows (C, Q) are in percent of others, (2, C); of those that hardly vary as
    far as unseen queries allow, too."""
    ends = percentile_intervals(samples, int((~np.isnan(actual)).sum(axis=-1).max(initial=0))).T
    some = best > 0
    ratio = np.full(actual.shape, np.nan)
    np.divide(100.0 * actual, best, out=ratio, where=some)
    n = (~np.isnan(ratio)).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = 100.0 * np.nansum(actual, axis=-1) / np.nansum(best, axis=-1)
    return _widened(ends, ratio, n, share, 0.0, 100.0).T


def percentile_interval(samples: Array, n: int) -> Interval:
    """Of one figure."""
    low, high = percentile_intervals(np.asarray(samples), n)
    return (float(low), float(high))
