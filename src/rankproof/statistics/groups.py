"""The error of a mean over queries, some of which share a source.

Scores of two questions about one document, or of paraphrases, are correlated. With n queries in G
groups of m_g, values d and their mean d̄, s_g the sum of a group's d − d̄, a_g = 1/√(1 − m_g/n):

    V  = Σ a_g² s_g² / n²                                                (CR2)
    df = tr(P)²/tr(P²),   P_gh = a_g a_h (δ_gh m_g − m_g m_h/n) / n²     (Bell and McCaffrey 2002)

With one query in each group V is s²/n and df is n − 1. `groups` is everywhere (Q,) the number of
each query's group, or None where each query is its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rankproof.foundation.arrays import Bool, Float, Int

Groups = Int  # (Q,) the number of each query's group


@dataclass(frozen=True, slots=True)
class Means:
    """Means of the defined values of rows (C, Q), and what is needed for their intervals."""

    n: Int  # (C,) defined values
    mean: Float  # (C,)
    deviation: Float  # (C,) √(n·V), of single queries their standard deviation; NaN: unknown
    df: Float  # (C,) degrees of freedom of the deviation
    units: Int  # (C,) groups with a defined value

    @property
    def error(self) -> Float:
        """(C,) √V, the standard error of each mean."""
        with np.errstate(invalid="ignore", divide="ignore"):
            error: Float = self.deviation / np.sqrt(self.n)
        return error


def means_of(values: Float, groups: Groups | None = None) -> Means:
    """Return mean and error of the defined values of rows (C, Q)."""
    defined = ~np.isnan(values)
    n = defined.sum(axis=-1)
    filled = np.where(defined, values, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(n > 0, filled.sum(axis=-1) / n, np.nan)
        centered = np.where(defined, values - mean[..., None], 0.0)
        deviation = np.where(n > 1, np.sqrt((centered * centered).sum(axis=-1) / (n - 1)), np.nan)
    singles = Means(n, mean, deviation, n - 1.0, n)
    if groups is None:
        return singles
    deviation, df, units = deviation.copy(), singles.df.copy(), n.copy()
    masks, mask_of = np.unique(defined, axis=0, return_inverse=True)
    for number, mask in enumerate(masks):
        rows = np.flatnonzero(mask_of.ravel() == number)
        numbers = numbered(groups[mask])
        if numbers is None:  # every query is its own group: the same to the last bit
            continue
        sizes = np.bincount(numbers)
        sums = group_sums(centered[np.ix_(rows, np.flatnonzero(mask))], numbers)
        deviation[rows], df[rows] = _cr2(sums, sizes)
        units[rows] = len(sizes)
    return Means(n, mean, deviation, df, units)


def _cr2(sums: Float, sizes: Int) -> tuple[Float, float]:
    """√(n·V) of rows (C, G) of sums of centered values, and df; NaN for a single group."""
    n = float(sizes.sum())
    m = sizes.astype(np.float64)
    if len(m) < 2:
        return np.full(len(sums), np.nan), math.nan
    a2 = 1.0 / (1.0 - m / n)  # a_g²
    trace_of_square = float(
        (a2 * a2 * (m * m - 2.0 * m**3 / n)).sum() + (a2 * m * m).sum() ** 2 / n**2
    )
    df = n * n / trace_of_square  # n²·tr(P) is n
    deviation: Float = np.sqrt((a2 * sums * sums).sum(axis=-1) / n)
    return deviation, df


def numbered(groups: Groups | None) -> Int | None:
    """(Q,) groups numbered from 0 without gaps; None where no group has two queries."""
    if groups is None:
        return None
    unique, numbers = np.unique(groups, return_inverse=True)
    return None if len(unique) == len(groups) else np.asarray(numbers, np.int64).ravel()


def count_units(queries: int, groups: Groups | None) -> int:
    """Return the number of groups, or of queries without any."""
    return queries if groups is None else len(np.unique(groups))


def group_sums(values: Float, groups: Groups | None) -> Float:
    """(…, G) sums of (…, Q) over the queries of each group; without groups the values."""
    numbers = numbered(groups)
    if numbers is None:
        return values
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    return np.asarray(np.add.reduceat(values[..., order], starts, axis=-1), np.float64)


def group_means(values: Float, groups: Groups | None) -> Float:
    """(…, G) means of the defined values (…, Q) of each group, NaN without any; or the values."""
    if numbered(groups) is None:
        return values
    defined = ~np.isnan(values)
    sums = group_sums(np.where(defined, values, 0.0), groups)
    sizes = group_sums(defined.astype(np.float64), groups)
    return np.asarray(np.divide(sums, sizes, out=np.full(sums.shape, np.nan), where=sizes > 0))


def count_groups(flags: Bool, groups: Groups | None) -> Int:
    """(…) groups with a flagged query, of flags (…, Q)."""
    if groups is not None:
        flags = group_sums(flags.astype(np.float64), groups) > 0
    count: Int = flags.sum(axis=-1)
    return count
