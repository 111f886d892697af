"""Many differences at once: critical values with which all their intervals hold together.

Max-T of bootstrap-t over groups of queries. In each resample every difference of the family is
divided by its standard error in that resample, and the largest of them is kept:

    t* = max |d̄* − d̄| / max(se*, .6·se)

95% of resamples stay below the critical value c, and d̄ ± max(c, t_df)·√V are the simultaneous
intervals (`intervals.difference_intervals`). It steps down (Westfall and Young 1993): differences
whose |d̄|/se exceeds c are claimed, and the others need only exceed the c of those that are left. A
run of zeros, far from all others, is claimed at once and then no longer widens their intervals.

Differences on few queries have resamples with almost no spread, which without the .6·se inflate c
for all others. Of 17 runs on 30 SciFact queries .5 shows .58 of the differences that Holm shows, .6
shows .99, with a false claim in .00 and .01 of families of equal means. (Tukey's HSD by shuffling
has .03 to .147 on TREC residuals.)

Differences on fewer than six groups are never claimed (`intervals.difference_intervals`), and do
not count. One difference alone is no family: its c is 0, and its interval that of a single one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from rankproof.foundation.arrays import Float, Int
from rankproof.statistics.groups import (
    Groups,
    count_units,
    group_means,
    group_sums,
    means_of,
    numbered,
)
from rankproof.statistics.intervals import (
    CONFIDENCE,
    MIN_QUERIES,
    NO_DIFFERENCE,
    ROUNDING,
    count_differing,
)
from rankproof.statistics.resampling import JOINT_RESAMPLES, draw_counts

LEAST_ERROR = 0.6  # of the observed standard error: the least that a resampled one counts
_CELLS = 1 << 20  # of a table of (resample, pair) in memory at a time
_STEPS = 32  # at which the critical value may step down


class _Differences:
    """Differences of pairs of rows (R, Q), summed by group and centered, as factors of products."""

    def __init__(self, values: Float, first: Int, second: Int, groups: Groups | None):
        differences = values[first] - values[second]
        defined = ~np.isnan(differences)
        differences[~defined] = 0.0
        sums, sizes = group_sums(differences, groups), group_sums(defined.astype(float), groups)
        self.n = sizes.sum(axis=1)  # (p,)
        self.residuals = sums - sizes * (sums.sum(axis=1) / self.n)[:, None]  # (p, G)
        self.floor = LEAST_ERROR**2 * np.square(self.residuals).sum(axis=1) / self.n**2
        units = (sizes > 0).sum(axis=1)
        self.correction = units / (units - 1.0)
        self.weighted = groups is not None
        self.is_complete = bool(defined.all())
        self.sizes = sizes[:1] if self.is_complete else sizes

    def largest_t(self, times: Float) -> Float:
        """(b,) the largest |t*| of resamples (b, G) of the groups."""
        n = times @ self.sizes.T  # (b, p), or (b, 1) where all queries are defined
        if self.is_complete and not self.weighted:
            n = n[:1]  # every resample has as many queries
        np.maximum(n, 1.0, out=n)
        sums = times @ self.residuals.T
        squares = times @ np.square(self.residuals).T  # Σ(S_g − m_g·d̄*)², below
        if self.weighted:
            squares -= 2.0 * (sums / n) * (times @ (self.sizes * self.residuals).T)
            squares += np.square(sums / n) * (times @ np.square(self.sizes).T)
            np.square(sums, out=sums)
        else:
            np.square(sums, out=sums)
            squares -= sums / n
        np.maximum(squares, np.square(n) * self.floor, out=squares)
        squares *= self.correction
        sums /= squares
        return np.asarray(np.sqrt(sums.max(axis=1)), np.float64)


def critical_values(
    measures: Sequence[Float],
    first: Int,
    second: Int,
    groups: Groups | None = None,
    seed: int = 0,
) -> list[Float]:
    """(P,) critical values of the differences of pairs of rows, for each of the measures.

    `measures` are (R, Q) each, on the same queries, NaN where a row has no value; pair number i is
    row first[i] − row second[i]. All pairs on all measures are one family; 0 if it is none.
    """
    members = [_claimable(values, first, second, groups) for values in measures]
    measure_of = np.repeat(np.arange(len(measures)), [len(pairs) for pairs in members])
    pair_of = np.concatenate([*members, np.empty(0, np.int64)])
    critical = np.zeros((len(measures), len(first)))
    if len(pair_of) < 2:
        return list(critical)
    parts = [(v, first[pairs], second[pairs]) for v, pairs in zip(measures, members, strict=True)]
    t = np.concatenate([_observed_t(v, a, b, groups) for v, a, b in parts])
    ascending = np.argsort(t, kind="stable")
    units = count_units(measures[0].shape[1], groups)
    steps = [
        ascending[step]
        for step in _blocks(len(t), max(units, JOINT_RESAMPLES), -(-len(t) // _STEPS))
    ]
    blocks = [
        [
            (measures[m], first[pairs], second[pairs])
            for m in np.unique(measure_of[step]).tolist()
            for pairs in [pair_of[step[measure_of[step] == m]]]
        ]
        for step in steps
    ]
    limits = _limits(blocks, units, groups, seed)
    critical[:] = limits[-1]
    limit, all_claimed = math.inf, True
    for step, reached in zip(steps[::-1], limits[::-1], strict=True):
        limit = reached if all_claimed else limit
        critical[measure_of[step], pair_of[step]] = limit
        all_claimed = all_claimed and bool((t[step] > limit).all())
    return list(critical)


def _limits(
    steps: list[list[tuple[Float, Int, Int]]], units: int, groups: Groups | None, seed: int
) -> list[float]:
    """For each step the critical value of the differences of this step and all before it."""
    numbers = numbered(groups)
    largest: list[list[Float]] = [[] for _ in steps]
    for times in draw_counts(units, seed, JOINT_RESAMPLES):
        largest_t = np.zeros(len(times))
        for step, blocks in zip(largest, steps, strict=True):
            for values, a, b in blocks:
                t = _Differences(values, a, b, numbers).largest_t(times)
                largest_t = np.maximum(largest_t, t)
            step.append(largest_t)
    return [_quantile(np.concatenate(step)) for step in largest]


def _observed_t(values: Float, first: Int, second: Int, groups: Groups | None) -> Float:
    """(p,) |d̄|/√V of pairs of rows; 0 where all queries differ alike."""
    t = np.zeros(len(first))
    for pairs in _blocks(len(first), values.shape[1], len(first)):
        means = means_of(values[first[pairs]] - values[second[pairs]], groups)
        np.divide(np.abs(means.mean), means.error, out=t[pairs], where=means.error > NO_DIFFERENCE)
    return t


def critical_values_of_best(values: Float, groups: Groups | None = None, seed: int = 0) -> Float:
    """(C,) critical values of the differences of the best row of (C, Q) from all others.

    The best row was chosen by the same queries: with all means equal, another is best in each
    resample, and it is that one whose t* counts. It steps down, too: rows that are significantly
    worse no longer count for the others. Every value is defined; more is better.
    """
    best = int(values.mean(axis=1).argmax())
    rows = np.arange(len(values))
    t = _observed_t(values, np.full(len(values), best), rows, groups)
    critical, remaining = np.zeros(len(values)), rows
    while len(remaining) > 1:
        limit = _limit_of_best(values[remaining], groups, seed)
        critical[remaining] = limit
        worse = (t[remaining] > limit) & (remaining != best)
        if not limit or not worse.any():
            break
        remaining = remaining[~worse]
    critical[best] = 0.0
    return critical


def _limit_of_best(values: Float, groups: Groups | None, seed: int) -> float:
    """The critical value of the row that is best in each resample against all others."""
    rows, numbers = len(values), numbered(groups)
    if len(_claimable(values, *np.triu_indices(rows, 1), groups)) < 2:
        return 0.0
    centered = group_sums(values - values.mean(axis=1, keepdims=True), numbers).T
    largest = []
    for times in draw_counts(len(centered), seed, JOINT_RESAMPLES):
        sums = times @ centered
        best = (sums >= sums.max(axis=1, keepdims=True) - ROUNDING).argmax(axis=1)  # the first
        block = np.zeros(len(times))
        for row in np.unique(best).tolist():
            others = np.flatnonzero(np.arange(rows) != row)
            others = others[_claimable(values, np.full(rows - 1, row), others, groups)]
            if len(others):
                pairs = _Differences(values, np.full(len(others), row), others, numbers)
                block[best == row] = pairs.largest_t(times[best == row])
        largest.append(block)
    return _quantile(np.concatenate(largest))


def _claimable(values: Float, first: Int, second: Int, groups: Groups | None) -> Int:
    """The numbers of the pairs that differ on six groups or more, and not by a constant."""
    chosen = []
    for pairs in _blocks(len(first), values.shape[1], len(first)):
        differences = values[first[pairs]] - values[second[pairs]]
        units = group_means(differences, groups)
        spread = np.fmax.reduce(units, axis=1) - np.fmin.reduce(units, axis=1)
        enough = count_differing(differences, groups) >= MIN_QUERIES
        chosen.append(pairs.start + np.flatnonzero(enough & (spread > NO_DIFFERENCE)))
    return np.concatenate(chosen) if chosen else np.empty(0, np.int64)


def _blocks(count: int, width: int, most: int) -> Iterator[slice]:
    """Yield slices of at most `most` of `count` pairs, for tables of `width` that stay small."""
    step = max(1, min(most, _CELLS // max(width, 1)))
    for low in range(0, count, step):
        yield slice(low, min(low + step, count))


def _quantile(largest: Float) -> float:
    return float(np.quantile(largest, CONFIDENCE, method="higher"))
