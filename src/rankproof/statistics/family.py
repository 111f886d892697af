"""Many differences at once: a critical value with which all their intervals hold together.

Max-T of bootstrap-t over groups of queries. In each resample every difference of the family is
divided by its standard error in that resample, and the largest of them is kept:

    t* = max |d̄* − d̄| / max(se*, .6·se)

95% of resamples stay below the critical value c, and d̄ ± max(c, t_df)·√V are the simultaneous
intervals (`intervals.difference_intervals`). Real TREC residuals with equal means: any false claim
in .035 to .06 of families, where Tukey's HSD by shuffling has .03 to .147, and max-T without a
standard error in each resample .06 to .28.

Differences on few queries have resamples with almost no spread, which without the .6·se inflate c
for all others. Of 17 runs on 30 SciFact queries .5 shows .58 of the differences that Holm shows, .6
shows .99, with a false claim in .00 and .01 of families of equal means.

Differences on fewer than six groups are never claimed (`intervals.difference_intervals`), and do
not count. One difference alone is no family: its c is 0, and its interval that of a single one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rankproof.foundation.arrays import Float, Int
from rankproof.statistics.groups import Groups, group_sums, numbered
from rankproof.statistics.intervals import CONFIDENCE, MIN_QUERIES, NO_DIFFERENCE, count_differing
from rankproof.statistics.resampling import JOINT_RESAMPLES, draw_counts

_FLOOR = 0.6  # of the observed standard error: the least that a resampled one counts
_CELLS = 1 << 20  # of a table of (resample, pair) in memory at a time


class _Differences:
    """Differences of pairs of rows (R, Q), summed by group and centered, as factors of products."""

    def __init__(self, values: Float, first: Int, second: Int, groups: Groups | None):
        differences = values[first] - values[second]
        defined = ~np.isnan(differences)
        differences[~defined] = 0.0
        sums, sizes = group_sums(differences, groups), group_sums(defined.astype(float), groups)
        self.n = sizes.sum(axis=1)  # (p,)
        self.residuals = sums - sizes * (sums.sum(axis=1) / self.n)[:, None]  # (p, G)
        self.floor = _FLOOR**2 * np.square(self.residuals).sum(axis=1) / self.n**2
        units = (sizes > 0).sum(axis=1)
        self.correction = units / (units - 1.0)
        self.weighted = groups is not None
        self.sizes = sizes[:1] if bool(defined.all()) else sizes

    def largest_t(self, times: Float) -> Float:
        """(b,) the largest |t*| of resamples (b, G) of the groups."""
        n = times @ self.sizes.T  # (b, p), or (b, 1) where all queries are defined
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


def critical_value(
    measures: Sequence[Float],
    first: Int,
    second: Int,
    groups: Groups | None = None,
    seed: int = 0,
) -> float:
    """The critical value of the differences of pairs of rows on all measures together.

    `measures` are (R, Q) each, on the same queries, NaN where a row has no value; pair number i is
    row first[i] − row second[i].
    """
    numbers = numbered(groups)
    families = [
        (values, first[chosen], second[chosen])
        for values in measures
        if len(chosen := _claimable(values, first, second, groups))
    ]
    if sum(len(a) for _, a, _ in families) < 2:
        return 0.0
    count = measures[0].shape[1] if numbers is None else int(numbers.max()) + 1
    largest = []
    for times in draw_counts(count, seed, JOINT_RESAMPLES):
        block = np.zeros(len(times))
        for values, a, b in families:
            for pairs in _blocks(len(a), max(count, len(times))):
                differences = _Differences(values, a[pairs], b[pairs], numbers)
                np.maximum(block, differences.largest_t(times), out=block)
        largest.append(block)
    return _quantile(np.concatenate(largest))


def critical_value_of_best(values: Float, groups: Groups | None = None, seed: int = 0) -> float:
    """The critical value of the differences of the best row of (C, Q) from all others.

    The best row was chosen by the same queries: with all means equal, another is best in each
    resample, and it is that one whose t* counts. Every value is defined.
    """
    numbers = numbered(groups)
    rows = len(values)
    first, second = np.triu_indices(rows, 1)
    if len(_claimable(values, first, second, groups)) < 2:
        return 0.0
    centered = group_sums(values - values.mean(axis=1, keepdims=True), numbers).T
    largest = []
    for times in draw_counts(len(centered), seed, JOINT_RESAMPLES):
        best = (times @ centered).argmax(axis=1)
        block = np.zeros(len(times))
        for row in np.unique(best).tolist():
            others = np.flatnonzero(np.arange(rows) != row)
            others = others[_claimable(values, np.full(rows - 1, row), others, groups)]
            if len(others):
                chosen = best == row
                pairs = _Differences(values, np.full(len(others), row), others, numbers)
                block[chosen] = pairs.largest_t(times[chosen])
        largest.append(block)
    return _quantile(np.concatenate(largest))


def _claimable(values: Float, first: Int, second: Int, groups: Groups | None) -> Int:
    """The numbers of the pairs that differ, by more than a constant, on six groups or more."""
    chosen = []
    for pairs in _blocks(len(first), values.shape[1]):
        differences = values[first[pairs]] - values[second[pairs]]
        with np.errstate(invalid="ignore"):
            spread = np.nanmax(differences, axis=1) - np.nanmin(differences, axis=1)
        enough = count_differing(differences, groups) >= MIN_QUERIES
        chosen.append(pairs.start + np.flatnonzero(enough & (spread > NO_DIFFERENCE)))
    return np.concatenate(chosen) if chosen else np.empty(0, np.int64)


def _blocks(count: int, width: int) -> Iterator[slice]:
    """Yield slices of `count` pairs, each of a size at which a table of `width` stays small."""
    step = max(1, _CELLS // max(width, 1))
    for low in range(0, count, step):
        yield slice(low, min(low + step, count))


def _quantile(largest: Float) -> float:
    return float(np.quantile(largest, CONFIDENCE, method="higher"))
