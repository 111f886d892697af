"""Means over queries and runs, with 95% intervals over queries."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rankproof.foundation.arrays import Float
from rankproof.statistics.intervals import (
    ROUNDING,
    Interval,
    constant_interval,
    percentile_intervals,
)
from rankproof.statistics.resampling import resampled_means

SHARE: Interval = (0.0, 1.0)
CHANGE: Interval = (-1.0, 1.0)  # of a share; so does τ lie


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over queries and runs.

    >>> from rankproof.diagnostics import Figure
    >>> Figure(0.4, 0.1, (0.3, 0.5)).ci
    (0.3, 0.5)
    """

    mean: float  # NaN where it is undefined
    sd: float  # between runs, of their means; NaN for one run
    ci: Interval  # 95%, over queries; NaN for fewer than six


def figures(
    values: Float, seed: int, within: Interval | None = None, base: int = 0
) -> list[Figure]:
    """A Figure for each of (F, R, Q) values: the mean of the means of R runs over Q queries.

    A value that is NaN is left out of its run's mean. Values that lie within two ends, and are all
    one value, have the interval of what may be unseen; but for the first `base` figures, of what is
    set against itself.
    """
    count, runs, queries = values.shape
    columns = values.reshape(count * runs, queries).T
    by_run = mean_of(values, axis=2)  # (F, R)
    drawn = mean_of(resampled_means(columns, seed).reshape(-1, count, runs), axis=2)  # (B, F)
    known = (~np.isnan(values)).any(axis=1).sum(axis=1)  # (F,) queries behind each figure
    ends = np.stack(
        [percentile_intervals(drawn[:, f], int(known[f])) for f in range(count)], axis=1
    )
    if within is not None:
        low, high = (end(values, axis=(1, 2)) for end in (np.fmin.reduce, np.fmax.reduce))
        steady = high - low <= ROUNDING
        steady[:base] = False
        for f in np.flatnonzero(steady):
            ends[:, f] = constant_interval(float(low[f]), int(known[f]), *within)
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


def mean_of(values: Float, axis: int | tuple[int, ...]) -> Float:
    """Means of what is defined; NaN where nothing is."""
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        mean: Float = np.where(defined, values, 0.0).sum(axis=axis) / defined.sum(axis=axis)
    return mean


def _sd(values: Float) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan
