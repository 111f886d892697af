"""The paired randomisation test: how often random signs give a sum as large as the one seen.

    p = P(|Σ s_q d_q| ≥ |Σ d_q|),   s_q = ±1 with probability ½ each, independently

Sums that are equal in exact arithmetic count as equal, though floats differ in the last bits: a
column is rounded to whole multiples of a unit of 2⁻⁴⁰ of its largest value, so that sums are exact
in whatever order they are taken, and sums that lie within the rounding of all terms are level. Two
different sums of real data are not that near.

How a column is computed depends on the column alone, never on what else is in the call:

    up to 14 queries differ    every assignment of signs, all such columns at once
    up to 28                   every assignment: two halves of 2¹⁴, one sorted, one looked up
    a lattice of small steps   exact: the distribution of the sum, one query after the other
    else                       100,000 assignments drawn from the seed, 10,000 where p is .1 or
                               more by then; the one observed counts too

p assumes that without a difference between the runs a query's d would be as likely to have the
other sign: that differences are symmetric about 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.statistics.distributions import t_tail
from rankproof.statistics.intervals import ROUNDING, spread_of
from rankproof.statistics.resampling import CELLS

PERMUTATIONS = 100_000

_ENUMERATED = 14
_HALVED = 28
_UNIT = 40  # bits of a unit below the largest value
_LATTICE = 1e-9  # of the largest value: a remainder below this is rounding
_WIDEST = 1 << 13  # steps of a lattice from the least to the largest sum
_BLOCK = 1000  # assignments drawn at a time, however many rows there are: the stream stays the same
_ROWS = 128  # whose sums under a block of assignments fit into a processor's cache
_QUERIES = 1 << 12  # whose signs are held at a time, by eights
_ENOUGH, _EVIDENT = 10_000, 0.1  # a row with so large a p after so many assignments is done

Progress = Callable[[float], None]


def randomisation(
    differences: Float, *, seed: int = 0, permutations: int = PERMUTATIONS
) -> tuple[Float, Bool]:
    """(C,) two-sided p of rows (C, Q) of differences, and whether each is exact.

    NaN, a query without a value, counts nothing.
    """
    rows = np.nan_to_num(np.asarray(differences, np.float64))
    count = (rows != 0).sum(axis=1)
    p = np.ones(len(rows))
    exact = np.ones(len(rows), np.bool_)
    packed = np.take_along_axis(rows, np.argsort(rows == 0, axis=1, kind="stable"), axis=1)
    for differing in np.unique(count[count > 0]).tolist():
        at = np.flatnonzero(count == differing)
        step = max(1, CELLS // differing)
        for low in range(0, len(at), step):
            chosen = at[low : low + step]
            p[chosen], exact[chosen] = _alike(packed[chosen, :differing], seed, permutations)
    return p, exact


def _alike(d: Float, seed: int, permutations: int) -> tuple[Float, Bool]:
    """Rows (C, m) without a zero."""
    columns, m = d.shape
    whole = _whole(d)
    if m <= _ENUMERATED:
        return _enumerated(whole), np.ones(columns, np.bool_)
    if m <= _HALVED:
        return np.array([_halved(row) for row in whole]), np.ones(columns, np.bool_)
    steps, level = _lattice(d)
    p = np.empty(columns)
    for at in np.flatnonzero(level):
        p[at] = _by_sums(steps[at])
    if not level.all():
        p[~level] = _sampled(whole[~level], seed, permutations)
    return p, level


def _whole(d: Float) -> Float:
    """Rows in units of 2⁻⁴⁰ of their largest value: whole numbers, so that sums are exact."""
    largest = np.abs(d).max(axis=1)
    whole: Float = np.rint(np.ldexp(d, (_UNIT - np.frexp(largest)[1])[:, None]))
    return whole


def _observed(whole: Float) -> Float:
    """(C,) the least size of a sum that counts as large as the one seen."""
    # Rounding moves each term by half a unit in either sum; what is nearer is level.
    least: Float = np.abs(whole.sum(axis=1)) - whole.shape[1]
    return least


def _enumerated(whole: Float) -> Float:
    """Every assignment but for the sign of them all."""
    columns, m = whole.shape
    flips = 1.0 - 2.0 * ((np.arange(2 ** (m - 1))[:, None] >> np.arange(m)) & 1)
    least = _observed(whole)
    p = np.empty(columns)
    step = max(1, CELLS // len(flips))
    for low in range(0, columns, step):
        some = slice(low, low + step)
        p[some] = (np.abs(whole[some] @ flips.T) >= least[some, None]).mean(axis=1)
    return p


def _halved(row: Float) -> float:
    """Every assignment, by the sums of two halves."""
    half = len(row) // 2
    one, other = _sums(row[:half]), np.sort(_sums(row[half:]))
    least = float(_observed(row[None])[0])
    if least <= 0:
        return 1.0
    # |x + y| ≥ least: y ≥ least − x, and as many again with every sign turned.
    above = len(other) - np.searchsorted(other, least - one, side="left")
    return float(2 * above.sum() / (len(one) * len(other)))


def _sums(values: Float) -> Float:
    sums = np.zeros(1)
    for value in values.tolist():
        sums = np.concatenate([sums + value, sums - value])
    return sums


def _lattice(d: Float) -> tuple[Int, Bool]:
    """Rows as whole steps of their greatest common divisor, and which have one worth counting by.

    Euclid's algorithm, where a remainder below 10⁻⁹ of the largest value is none.
    """
    if d.shape[1] > _WIDEST:  # each query moves the sum by a step or more: too many to count by
        return np.zeros(d.shape, np.int64), np.zeros(len(d), np.bool_)
    size = np.abs(d)
    largest = size.max(axis=1)
    none = _LATTICE * largest
    step = size[:, 0].copy()
    for column in size.T[1:]:
        if not step.any():  # every row was given up
            break
        a, b = np.maximum(step, column), np.minimum(step, column)
        while (going := b > none).any():
            rest = np.zeros_like(a)
            rest[going] = a[going] - b[going] * np.rint(a[going] / b[going])
            a, b = np.where(going, b, a), np.where(going, np.abs(rest), b)
            a = np.where(a * _WIDEST < largest, 0.0, a)  # too fine: give this row up
            b = np.where(a == 0.0, 0.0, b)
        step = np.where(step == 0.0, 0.0, a)
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(step[:, None] > 0, np.rint(d / step[:, None]), 0.0)
    fits = np.abs(times * step[:, None] - d) <= none[:, None]
    level = (step > 0) & fits.all(axis=1) & (np.abs(times).sum(axis=1) <= _WIDEST)
    return times.astype(np.int64), level


def _by_sums(steps: Int) -> float:
    """The distribution of Σ s_q k_q, one query after the other."""
    sizes = np.abs(steps)
    width = int(sizes.sum())
    chance = np.zeros(width + 1)  # of the steps whose sign is plus
    chance[0] = 1.0
    reached = 0
    for size in np.sort(sizes).tolist():
        moved = chance[: reached + 1].copy()
        chance[: reached + 1] *= 0.5
        chance[size : size + reached + 1] += 0.5 * moved
        reached += size
    sums = np.abs(2 * np.arange(width + 1) - width)
    return min(1.0, float(chance[sums >= abs(int(steps.sum()))].sum()))


def _sampled(whole: Float, seed: int, permutations: int) -> Float:
    """A sample of assignments, the same for all rows with as many queries that differ.

    Rows that are no evidence of anything, p ≥ .1 after the first 10,000, need no more.
    """
    columns, m = whole.shape
    least = _observed(whole)
    generator = np.random.default_rng([seed, m])
    extreme, drawn = np.zeros(columns), np.zeros(columns)
    going = np.arange(columns)
    for low in range(0, permutations, _BLOCK):
        size = min(_BLOCK, permutations - low)
        bits = generator.integers(0, 256, (size, (m + 7) // 8), np.uint8)
        flips = lru_cache(1)(partial(_flips, bits, m))  # one where all queries are of one stretch
        for first in range(0, len(going), _ROWS):
            some = going[first : first + _ROWS]
            sums = whole[some, :_QUERIES] @ flips(0)
            for at in range(_QUERIES, m, _QUERIES):
                sums += whole[some, at : at + _QUERIES] @ flips(at)
            np.abs(sums, out=sums)
            extreme[some] += np.count_nonzero(sums >= least[some, None], axis=1)
        drawn[going] += size
        if low + size == _ENOUGH:
            going = going[extreme[going] < _EVIDENT * _ENOUGH]
    return (extreme + 1.0) / (drawn + 1.0)


def _flips(bits: Array, m: int, at: int) -> Float:
    """(q, assignments) the signs of a stretch of m queries."""
    some = bits[:, at // 8 : (at + _QUERIES) // 8]
    flips = np.unpackbits(some, axis=1, count=min(_QUERIES, m - at)).astype(np.float64)
    flips *= -2.0
    flips += 1.0
    return flips.T


def t_test(differences: Float) -> Float:
    """(C,) two-sided p of Student's paired test of rows (C, Q); 1 where no query differs, NaN where
    all differ alike: without a spread there is no t."""
    n, mean, sd = spread_of(differences)
    steady = ~(sd > ROUNDING)
    p = np.ones(len(n))
    for count in np.unique(n[n > 1]).tolist():
        at = np.flatnonzero((n == count) & ~steady)
        p[at] = t_tail(mean[at] / sd[at] * np.sqrt(count), count - 1.0)
    p[(n > 1) & steady & (np.abs(mean) > ROUNDING)] = np.nan
    return p


def holm(p: Array) -> Float:
    """Holm's step-down correction."""
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def tukey_ranges(
    values: list[Float], *, seed: int = 0, permutations: int, progress: Progress | None = None
) -> Float:
    """(M, permutations) ascending ranges of the runs' means where runs are shuffled by query.

    `values` are (R, Q) of each of M measures, all defined. Randomised Tukey HSD: if all runs were
    alike, a query's values could have belonged to any of them; a difference is told apart where it
    is larger than the range between the best and the worst run in 95% of the shuffles. All
    measures share the shuffles.
    """
    runs = len(values[0])
    queries = values[0].shape[1]
    generator = np.random.default_rng([seed, runs, queries])
    found = np.empty((len(values), permutations))
    columns = [np.ascontiguousarray(v.T) for v in values]
    block = max(1, (CELLS >> 1) // runs)
    for low in range(0, permutations, block):
        size = min(block, permutations - low)
        sums = np.zeros((len(values), size, runs))
        order = np.broadcast_to(np.arange(runs, dtype=np.int32), (size, runs)).copy()
        for query in range(queries):
            generator.permuted(order, axis=1, out=order)
            for at, column in enumerate(columns):
                sums[at] += column[query][order]
        found[:, low : low + size] = np.ptp(sums, axis=2) / queries
        if progress is not None:
            progress(size / permutations)
    found.sort(axis=1)
    return found


def hsd_p(differences: Array, ranges: Float) -> Float:
    """(…) how often the range of shuffled means (B,) reaches a difference; never 0."""
    size = np.abs(differences)
    least = size - 1e-9 * np.maximum(size, float(ranges[-1]))  # sums equal but for rounding
    above = len(ranges) - np.searchsorted(ranges, least, side="left")
    return np.asarray((above + 1.0) / (len(ranges) + 1.0), np.float64)
