"""The paired randomization test: how often random signs give a sum as large as the observed one.

    p = P(|Σ s_q d_q| ≥ |Σ d_q|),   s_q = ±1 with probability ½ each, independently

Sums that are equal in exact arithmetic count as equal, although floats differ in the last bits: a
row is rounded to whole multiples of 2⁻⁴⁰ of its largest value, so that sums are exact in any order,
and sums that differ by no more than the rounding of all terms count as equal. Different sums of
real data are not that close.

How a row is computed depends on the row alone, never on the others in the call:

    up to 14 queries differ    every assignment of signs, all such rows at once
    up to 28                   every assignment: two halves of 2¹⁴, one sorted, one looked up
    a lattice of small steps   exact: the distribution of the sum, one query after the other
    else                       100,000 assignments drawn from the seed, 10,000 where p is .1 or
                               more by then; the observed one counts too

p assumes that without a difference between the runs a query's d would be as likely to have the
other sign: that differences are symmetric about 0.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.statistics.distributions import t_tail
from rankproof.statistics.groups import Groups, group_sums, means_of, numbered
from rankproof.statistics.intervals import NO_DIFFERENCE, ROUNDING
from rankproof.statistics.resampling import CELLS

PERMUTATIONS = 100_000

_MAX_ENUMERATED = 14
_MAX_HALVED = 28
_UNIT_BITS = 40  # the unit is 2⁻⁴⁰ of the largest value
_LATTICE_ROUNDING = 1e-9  # share of the largest value below which a remainder is rounding
_MAX_LATTICE_STEPS = 1 << 13  # from the least to the largest sum
_BLOCK = 1000  # assignments drawn at a time; fixed, since it decides the random stream
_ROWS = 128  # rows whose sums under a block of assignments fit into a processor's cache
_QUERIES = 1 << 12  # queries whose signs are in memory at a time; a multiple of 8
_EARLY, _EVIDENT_P = 10_000, 0.1  # stop a row if its p is as large after so many assignments


def randomization_test(
    differences: Float,
    groups: Groups | None = None,
    *,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> tuple[Float, Bool]:
    """(C,) two-sided p of rows (C, Q) of differences, and whether each is exact.

    NaN, a query without a value, counts as 0. The queries of a group share one sign.
    """
    rows = np.nan_to_num(np.asarray(differences, np.float64))
    numbers = numbered(groups)
    if numbers is not None:
        rows = group_sums(rows, numbers)
        rows[np.abs(rows) < NO_DIFFERENCE] = 0.0  # sums that cancel but for rounding
    count = (rows != 0).sum(axis=1)
    p = np.ones(len(rows))
    exact = np.ones(len(rows), np.bool_)
    packed = np.take_along_axis(rows, np.argsort(rows == 0, axis=1, kind="stable"), axis=1)
    for differing in np.unique(count[count > 0]).tolist():
        at = np.flatnonzero(count == differing)
        step = max(1, CELLS // differing)
        for low in range(0, len(at), step):
            chosen = at[low : low + step]
            p[chosen], exact[chosen] = _test_rows(packed[chosen, :differing], seed, permutations)
    return p, exact


def _test_rows(d: Float, seed: int, permutations: int) -> tuple[Float, Bool]:
    """(C,) p and exactness of rows (C, m) without a zero."""
    rows, m = d.shape
    whole = _in_units(d)
    if m <= _MAX_ENUMERATED:
        return _p_by_enumeration(whole), np.ones(rows, np.bool_)
    if m <= _MAX_HALVED:
        return np.array([_p_by_halves(row) for row in whole]), np.ones(rows, np.bool_)
    steps, is_lattice = _lattice(d)
    p = np.empty(rows)
    for at in np.flatnonzero(is_lattice):
        p[at] = _p_on_lattice(steps[at])
    if not is_lattice.all():
        p[~is_lattice] = _p_by_sampling(whole[~is_lattice], seed, permutations)
    return p, is_lattice


def _in_units(d: Float) -> Float:
    """Round rows to whole multiples of 2⁻⁴⁰ of their largest value, so that sums are exact."""
    largest = np.abs(d).max(axis=1)
    whole: Float = np.rint(np.ldexp(d, (_UNIT_BITS - np.frexp(largest)[1])[:, None]))
    return whole


def _least_extreme(whole: Float) -> Float:
    """(C,) the least absolute sum that counts as being as large as the observed one."""
    # Rounding moves each term by up to half a unit, in this sum and in the observed one.
    least: Float = np.abs(whole.sum(axis=1)) - whole.shape[1]
    return least


def _p_by_enumeration(whole: Float) -> Float:
    """(C,) p over every assignment; the last sign is fixed, since −s gives the same |sum| as s."""
    rows, m = whole.shape
    signs = 1.0 - 2.0 * ((np.arange(2 ** (m - 1))[:, None] >> np.arange(m)) & 1)
    least = _least_extreme(whole)
    p = np.empty(rows)
    step = max(1, CELLS // len(signs))
    for low in range(0, rows, step):
        block = slice(low, low + step)
        p[block] = (np.abs(whole[block] @ signs.T) >= least[block, None]).mean(axis=1)
    return p


def _p_by_halves(row: Float) -> float:
    """Return p over every assignment: sums of one half are looked up among those of the other."""
    half = len(row) // 2
    left, right = _signed_sums(row[:half]), np.sort(_signed_sums(row[half:]))
    least = float(_least_extreme(row[None])[0])
    if least <= 0:
        return 1.0
    # |x + y| ≥ least: y ≥ least − x, and as many again with every sign reversed.
    above = len(right) - np.searchsorted(right, least - left, side="left")
    return float(2 * above.sum() / (len(left) * len(right)))


def _signed_sums(values: Float) -> Float:
    """(2^n,) the sums under every assignment of signs."""
    sums = np.zeros(1)
    for value in values.tolist():
        sums = np.concatenate([sums + value, sums - value])
    return sums


def _lattice(d: Float) -> tuple[Int, Bool]:
    """Return rows as multiples of their greatest common divisor, and (C,) which rows have one.

    Euclid's algorithm, where a remainder below 10⁻⁹ of the largest value is 0. A divisor so small
    that sums have more than _MAX_LATTICE_STEPS multiples of it does not count.
    """
    if d.shape[1] > _MAX_LATTICE_STEPS:  # each query moves the sum by a step or more
        return np.zeros(d.shape, np.int64), np.zeros(len(d), np.bool_)
    size = np.abs(d)
    largest = size.max(axis=1)
    rounding = _LATTICE_ROUNDING * largest
    step = size[:, 0].copy()
    for column in size.T[1:]:
        if not step.any():  # every row was given up
            break
        a, b = np.maximum(step, column), np.minimum(step, column)
        while (unfinished := b > rounding).any():
            remainder = np.zeros_like(a)
            remainder[unfinished] = a[unfinished] - b[unfinished] * np.rint(
                a[unfinished] / b[unfinished]
            )
            a, b = np.where(unfinished, b, a), np.where(unfinished, np.abs(remainder), b)
            a = np.where(a * _MAX_LATTICE_STEPS < largest, 0.0, a)  # too fine: give this row up
            b = np.where(a == 0.0, 0.0, b)
        step = np.where(step == 0.0, 0.0, a)
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(step[:, None] > 0, np.rint(d / step[:, None]), 0.0)
    fits = np.abs(times * step[:, None] - d) <= rounding[:, None]
    is_short = np.abs(times).sum(axis=1) <= _MAX_LATTICE_STEPS
    return times.astype(np.int64), (step > 0) & fits.all(axis=1) & is_short


def _p_on_lattice(steps: Int) -> float:
    """Return p from the exact distribution of Σ s_q k_q, convolved one query at a time."""
    sizes = np.abs(steps)
    width = int(sizes.sum())
    chance = np.zeros(width + 1)  # by the sum of the steps whose sign is plus
    chance[0] = 1.0
    reached = 0
    for size in np.sort(sizes).tolist():
        before = chance[: reached + 1].copy()
        chance[: reached + 1] *= 0.5
        chance[size : size + reached + 1] += 0.5 * before
        reached += size
    sums = np.abs(2 * np.arange(width + 1) - width)
    return min(1.0, float(chance[sums >= abs(int(steps.sum()))].sum()))


def _p_by_sampling(whole: Float, seed: int, permutations: int) -> Float:
    """(C,) p from a random sample of assignments, the same for all rows of equal length.

    Rows with p ≥ .1 after the first 10,000 assignments, which is no evidence, are not continued.
    """
    rows, m = whole.shape
    least = _least_extreme(whole)
    generator = np.random.default_rng([seed, m])
    extreme, drawn = np.zeros(rows), np.zeros(rows)
    unfinished = np.arange(rows)
    for low in range(0, permutations, _BLOCK):
        size = min(_BLOCK, permutations - low)
        bits = generator.integers(0, 256, (size, (m + 7) // 8), np.uint8)
        signs = lru_cache(1)(partial(_signs, bits, m))  # computed once up to _QUERIES queries
        for first in range(0, len(unfinished), _ROWS):
            block = unfinished[first : first + _ROWS]
            sums = whole[block, :_QUERIES] @ signs(0)
            for at in range(_QUERIES, m, _QUERIES):
                sums += whole[block, at : at + _QUERIES] @ signs(at)
            np.abs(sums, out=sums)
            extreme[block] += np.count_nonzero(sums >= least[block, None], axis=1)
        drawn[unfinished] += size
        if low + size == _EARLY:
            unfinished = unfinished[extreme[unfinished] < _EVIDENT_P * _EARLY]
    return (extreme + 1.0) / (drawn + 1.0)


def _signs(bits: Array, m: int, at: int) -> Float:
    """(q, assignments) signs of up to _QUERIES of m queries, from number `at` on."""
    stretch = bits[:, at // 8 : (at + _QUERIES) // 8]
    signs = np.unpackbits(stretch, axis=1, count=min(_QUERIES, m - at)).astype(np.float64)
    signs *= -2.0
    signs += 1.0
    return signs.T


def t_test(differences: Float, groups: Groups | None = None) -> Float:
    """(C,) two-sided p of Student's paired test of rows (C, Q), with the V and df of `groups`.

    1 where no query differs, NaN where all have the same difference: without spread there is no t.
    """
    means = means_of(differences, groups)
    constant = ~(means.deviation > ROUNDING)
    p = np.ones(len(means.n))
    for df in np.unique(means.df[means.df > 0]).tolist():
        at = np.flatnonzero((means.df == df) & ~constant)
        t = means.mean[at] / means.deviation[at] * np.sqrt(means.n[at])
        p[at] = t_tail(t, df)
    p[(means.n > 1) & constant & (np.abs(means.mean) > ROUNDING)] = np.nan
    return p


def holm(p: Array) -> Float:
    """Return p-values corrected for their number by Holm's step-down procedure."""
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
