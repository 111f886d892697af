"""Ranks of means, and their 95% intervals over queries.

Resampled means m* scatter around the observed m as m does around the truth, so that the ranks of m*
scatter about ranks that are themselves wrong by chance, and their percentiles cover .83. Ranks of
m + √2·(m* − m) allow for both. Two rows that differ on fewer than six queries may be in either
order: no resample can show what these queries did not.
"""

from __future__ import annotations

import math

import numpy as np

from rankproof.foundation.arrays import Float, Int
from rankproof.statistics.groups import Groups, count_groups, count_units
from rankproof.statistics.intervals import MIN_QUERIES, NO_DIFFERENCE, percentile_intervals
from rankproof.statistics.resampling import JOINT_RESAMPLES, resampled_means


def ranks_of(means: Float) -> Int:
    """(…, R) ranks of means (…, R), 1 for the largest; equal but for rounding, they share one."""
    order = np.argsort(-means, axis=-1, kind="stable")
    descending = np.take_along_axis(means, order, axis=-1)
    is_lower = np.diff(descending, axis=-1, prepend=np.inf) < -NO_DIFFERENCE
    places = np.where(is_lower, np.arange(1, means.shape[-1] + 1), 0)
    ranks = np.empty(means.shape, np.int64)
    np.put_along_axis(ranks, order, np.maximum.accumulate(places, axis=-1), axis=-1)
    return ranks


def rank_intervals(gain: Float, groups: Groups | None = None, seed: int = 0) -> tuple[Int, Int]:
    """(R,) ends of the intervals of the ranks of rows (R, Q), all defined, more being better.

    With fewer than six queries, or groups of them, every rank is possible.
    """
    rows, queries = gain.shape
    units = count_units(queries, groups)
    if units < MIN_QUERIES:
        return np.ones(rows, np.int64), np.full(rows, rows)
    observed = gain.mean(axis=1)
    means = resampled_means(gain.T, seed, JOINT_RESAMPLES, groups)
    means = observed + math.sqrt(2.0) * (means - observed)
    ranks = ranks_of(means).astype(np.float32)
    few_differ = np.stack(
        [count_groups(np.abs(gain - row) > NO_DIFFERENCE, groups) < MIN_QUERIES for row in gain]
    )
    either_order = few_differ.sum(axis=1) - 1  # other rows that may be before or behind
    for row in np.flatnonzero(either_order).tolist():
        is_ahead = means[:, ~few_differ[row]] > means[:, row, None] + NO_DIFFERENCE
        ranks[:, row] = 1 + is_ahead.sum(axis=1)
    low, high = percentile_intervals(ranks, units)
    rank = ranks_of(observed)
    return (
        np.fmin(np.floor(low), rank).astype(np.int64),
        np.fmax(np.ceil(high) + either_order, rank).astype(np.int64),
    )
