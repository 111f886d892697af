"""Means over queries and runs, with 95% intervals over queries.

A value of each query in each run is averaged over queries, then over runs. The interval is a
percentile bootstrap that resamples queries; all runs of a query are resampled together.
"""

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
CHANGE: Interval = (-1.0, 1.0)  # of a share; the range of τ, too


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over queries and runs.

    >>> from rankproof.diagnostics import Estimate
    >>> Estimate(0.4, 0.1, (0.3, 0.5)).ci
    (0.3, 0.5)
    """

    mean: float  # NaN where it is undefined
    sd: float  # standard deviation of the means of runs; NaN for one run
    ci: Interval  # 95%, over queries; NaN for fewer than six queries


def estimate_means(
    values: Float, seed: int, within: Interval | None = None, references: int = 0
) -> list[Estimate]:
    """Estimate the mean of each of F statistics from its values (F, R, Q) in R runs of Q queries.

    NaN values do not count. If `within` names the range of a statistic, one whose values are all
    equal gets an interval that allows for values not seen. The first `references` statistics do
    not: they compare a list with itself, so that their value is certain.
    """
    count, runs, queries = values.shape
    columns = values.reshape(count * runs, queries).T
    run_means = defined_mean(values, axis=2)  # (F, R)
    resampled = defined_mean(resampled_means(columns, seed).reshape(-1, count, runs), axis=2)
    known = (~np.isnan(values)).any(axis=1).sum(axis=1)  # (F,) queries with a value
    ends = np.stack([percentile_intervals(resampled[:, f], int(known[f])) for f in range(count)])
    if within is not None:
        low, high = np.fmin.reduce(values, axis=(1, 2)), np.fmax.reduce(values, axis=(1, 2))
        is_constant = high - low <= ROUNDING
        is_constant[:references] = False
        for f in np.flatnonzero(is_constant):
            ends[f] = constant_interval(float(low[f]), int(known[f]), *within)
    means = defined_mean(run_means, axis=1)
    return [
        Estimate(float(means[f]), _deviation(run_means[f]), (float(ends[f, 0]), float(ends[f, 1])))
        for f in range(count)
    ]


def defined_mean(values: Float, axis: int | tuple[int, ...]) -> Float:
    """Return means of the values that are not NaN; NaN where there are none."""
    is_defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        sums = np.where(is_defined, values, 0.0).sum(axis=axis)
        mean: Float = sums / is_defined.sum(axis=axis)
    return mean


def _deviation(run_means: Float) -> float:
    """Return the standard deviation of the means of runs; NaN for fewer than two."""
    defined = run_means[~np.isnan(run_means)]
    return float(defined.std(ddof=1)) if len(defined) > 1 else math.nan
