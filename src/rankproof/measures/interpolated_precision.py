"""Interpolated precision: the highest precision from a level of recall on.

    V = max of j / rank(j) over relevant documents j ≥ t,   t = ⌊λ·R + 0.9⌋ as trec_eval 9 has it

Tie groups are independent, so P(V < x) is the product over groups of the chance that none of a
group's relevant documents lifts the precision to x. That chance falls at the values alone which the
group's own orders reach: m relevant ones of g have m(g − m + 1) places to stand. So the places of
all groups of a query are walked from the highest value down, each multiplies what is left by what
its group loses there, and E[V] = Σ x · P(V = x) costs as much as there are places. Only groups that
mix relevant documents with others have such places, and only those above what every order reaches
count. The walk is one for all levels of recall, but for the group in which a level's target t lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rankproof.data.ties import TieGroups
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.kernels import count_within
from rankproof.measures.linear import REL
from rankproof.measures.outcomes import Outcomes
from rankproof.measures.padded_rows import alike, row_sum, tables
from rankproof.measures.random_orders import too_expensive
from rankproof.measures.registry import measure

_PLACES = 1 << 18  # of the relevant documents of tied queries in one walk
_QUERY_STEPS = 1 << 28  # of the mean of one query: half a second
_CALL_STEPS = 1 << 31  # of all queries
_PLACE_STEPS = 1 << 8  # what the memory of a place is worth
TENTHS = tuple(number / 10 for number in range(11))
Rounding = Literal["up", "nearest"]


@dataclass(frozen=True, slots=True)
class RecallLevels:
    """Levels of recall, and how many relevant documents reach each."""

    shares: tuple[float, ...]
    rounding: Rounding = "up"

    def __len__(self) -> int:
        return len(self.shares)

    def targets(self, relevant: Int) -> list[Int]:
        """(Q,) of each level: which relevant document, counted from 1, reaches it."""
        needed = [share * relevant for share in self.shares]
        if self.rounding == "nearest":
            targets = [np.floor(n) + (n - np.floor(n) >= 0.5) for n in needed]
        else:
            targets = [np.floor(n + 0.9) for n in needed]
        return [np.maximum(target, 1).astype(np.int64) for target in targets]


@measure(
    "IPrec",
    at="recall",
    limits={"recall": (0.0, 1.0), **REL},
    aliases=("iprec_at_recall", "interpolated_precision_at_recall"),
    unjudged="interpolated precision",
    reads="relevant",
)
def interpolated_precision(
    groups: TieGroups, recall: float = 0.0, rel: int = 1, rounding: Rounding = "up"
) -> Outcomes:
    """Interpolated precision at a level of recall (@0.1): the highest precision from there on.

    Of R relevant documents ⌊recall · R + 0.9⌋ reach the level, as in trec_eval 9; with
    rounding='nearest' recall · R rounded, as in trec_eval 10.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "IPrec@0.5")["IPrec@0.5"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.5, 0.5, 0.5)
    """
    return _mean(groups, RecallLevels((recall,), rounding), rel)


@measure(
    "AP11",
    limits=REL,
    aliases=("11pt_avg", "11pt"),
    unjudged="interpolated precision",
    reads="relevant",
)
def eleven_points(groups: TieGroups, rel: int = 1, rounding: Rounding = "up") -> Outcomes:
    """Mean of interpolated precision at recall 0, 0.1, …, 1 (11-point average).

    No std: the points hang together.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "AP11")["AP11"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.5, 0.5, 0.5)
    """
    return _mean(groups, RecallLevels(TENTHS, rounding), rel)


def _mean(groups: TieGroups, levels: RecallLevels, rel: int) -> Outcomes:
    chosen = np.flatnonzero(groups.grade >= rel)
    relevant = groups.relevant(rel)
    peaks_by_rel: dict[int, Peaks] = groups.__dict__.setdefault(
        "peaks", {}
    )  # which each level needs
    if rel not in peaks_by_rel:
        peaks_by_rel[rel] = _running_peaks(groups, groups.rank[chosen], chosen)
    oblivious = _at_levels(peaks_by_rel[rel], relevant, levels)
    low = high = oblivious
    worst = peaks_by_rel[rel]
    if not groups.alone:
        worst, best = (_running_peaks(groups, rank, chosen) for rank in _end_ranks(groups, chosen))
        low, high = (_at_levels(peaks, relevant, levels) for peaks in (worst, best))
    expected, variance = high.copy(), 0.0 * high
    is_tied = low < high
    held = groups.sum_by_group(groups.grade >= rel).astype(np.int64)
    expensive = is_tied & too_expensive(
        groups.sum_by_query(groups.query, _steps(groups.size, held)), _QUERY_STEPS, _CALL_STEPS
    )
    for query, ties in _tied_queries(groups, held, np.flatnonzero(is_tied & ~expensive)):
        targets = levels.targets(relevant[query])
        lowest = [_at(worst, target, query) for target in targets]
        moments = list(_moments_by_level(ties, targets, lowest))
        expected[query] = sum(mean for mean, _ in reversed(moments)) / len(levels)
        variance[query] = moments[0][1]
    has_variance = len(levels) == 1
    return Outcomes(
        expected, low, high, oblivious, variance if has_variance else None, expensive=expensive
    )


def _end_ranks(groups: TieGroups, chosen: Int) -> tuple[Int, Int]:
    """Of the chosen documents of each group, with those of it last, and first."""
    group = groups.doc_group[chosen]
    held = np.bincount(group, minlength=len(groups.size))
    first = groups.first[group] + count_within(group) - 1
    return first + (groups.size - held)[group], first


def extremes(
    groups: TieGroups, chosen: Int, relevant: Int, levels: RecallLevels
) -> tuple[Float, Float]:
    """(Q,) lowest and highest: the chosen documents of each group last, and first."""
    last, first = _end_ranks(groups, chosen)
    return (
        highest(groups, last, chosen, relevant, levels),
        highest(groups, first, chosen, relevant, levels),
    )


def highest(
    groups: TieGroups, rank: Int, chosen: Int, relevant: Int, levels: RecallLevels
) -> Float:
    """(Q,) the mean over levels of the highest precision there; NaN where nothing is relevant."""
    return _at_levels(_running_peaks(groups, rank, chosen), relevant, levels)


Peaks = tuple[Float, Int, Int]  # the highest precision from each chosen document on; (Q,) how many
# there are of a query, and where they begin


def _running_peaks(groups: TieGroups, rank: Int, chosen: Int) -> Peaks:
    query = groups.doc_query[chosen]
    best = np.append(_from_here_on(query, count_within(query) / rank), 0.0)
    held = np.bincount(query, minlength=groups.queries)
    return best, held, np.cumsum(held) - held


def _at_levels(peaks: Peaks, relevant: Int, levels: RecallLevels) -> Float:
    query = np.arange(len(relevant))
    total = np.zeros(len(query))
    for target in reversed(levels.targets(relevant)):  # as trec_eval adds them
        total += _at(peaks, target, query)
    return np.where(relevant > 0, total / len(levels), np.nan)


def _at(peaks: Peaks, target: Int, query: Int) -> Float:
    """The highest precision of each query from its target on; 0 if the target is not reached."""
    best, held, start = peaks
    is_reached = target <= held[query]
    return np.asarray(best[np.where(is_reached, start[query] + target - 1, len(best) - 1)])


def _from_here_on(query: Int, values: Float) -> Float:
    """The highest of each value and those that follow in its query, which is one stretch."""
    highest, step = values.copy(), 1
    longest = int(np.bincount(query).max(initial=0))
    while step < longest:  # over twice as many each time
        same = query[step:] == query[:-step]
        np.maximum(highest[:-step], highest[step:], out=highest[:-step], where=same)
        step *= 2
    return highest


@dataclass(frozen=True, slots=True)
class _Ties:
    """Groups that mix relevant documents with others, of some queries."""

    query: Int  # (G,) numbered among those walked
    size: Int  # (G,)
    held: Int  # (G,) relevant documents in it
    before: Int  # (G,) and before it
    ahead: Int  # (G,) documents before it

    @property
    def places(self) -> Int:
        """(G,) where a relevant document may stand: the j-th of m has g − m + 1 positions."""
        return self.held * (self.size - self.held + 1)

    def chosen(self, rows: Int) -> _Ties:
        columns = self.query, self.size, self.held, self.before, self.ahead
        return _Ties(*(column[rows] for column in columns))


def _steps(size: Int, held: Int) -> Float:
    """(G,) steps that a group's places take together, at most; each place also takes memory."""
    places = np.where(held < size, held * (size - held + 1), 0)
    steps = held * np.where(_few(size, held), held**2, size)
    return places * np.maximum(steps, _PLACE_STEPS).astype(np.float64)


def _tied_queries(groups: TieGroups, held: Int, queries: Int) -> Iterator[tuple[Int, _Ties]]:
    """The queries and their ties, as many at a time as have few places together.

    `held` (G,) counts the relevant documents of each group.
    """
    before = np.cumsum(held) - held
    of_query = np.searchsorted(groups.query, np.arange(groups.queries + 1))
    before -= np.append(before, held.sum())[of_query[groups.query]]
    is_chosen = np.zeros(groups.queries, bool)
    is_chosen[queries] = True
    mixed = np.flatnonzero(is_chosen[groups.query] & (held > 0) & (held < groups.size))
    number = np.searchsorted(queries, groups.query[mixed])
    ties = _Ties(number, groups.size[mixed], held[mixed], before[mixed], groups.first[mixed] - 1)
    places = np.bincount(number, ties.places, len(queries))
    part = np.cumsum(places) // _PLACES
    for some in np.split(np.arange(len(queries)), np.flatnonzero(np.diff(part)) + 1):
        if len(some):
            own = ties.chosen(np.arange(*np.searchsorted(number, [some[0], some[-1] + 1])))
            yield queries[some], replace(own, query=own.query - some[0])


def _moments_by_level(
    ties: _Ties, targets: list[Int], lowest: list[Float]
) -> Iterator[tuple[Float, Float]]:
    """(Q,) mean and variance of V for each level: the targets of the queries, and the values that
    every order reaches.
    """
    group = np.repeat(np.arange(len(ties.size)), ties.places)
    inside = count_within(group) - 1
    wide = (ties.size - ties.held + 1)[group]
    j, shift = inside // wide + 1, inside % wide
    top, bottom = ties.before[group] + j, ties.ahead[group] + j + shift
    value = top / bottom
    kept = np.flatnonzero(value > np.minimum.reduce(lowest)[ties.query[group]])
    order = kept[np.lexsort((-value[kept], group[kept]))]  # each group from its highest value on
    group, top, bottom, value = group[order], top[order], bottom[order], value[order]
    own = ties.chosen(group)
    least = [target[own.query] for target in targets]
    above = [value > floor[own.query] for floor in lowest]
    whole = [  # all documents of the group count
        some & (target <= own.before + 1) for some, target in zip(above, least, strict=True)
    ]
    shared = np.flatnonzero(np.logical_or.reduce(whole))
    falls = np.ones(len(group))
    falls[shared] = _fall_factors(own, group, top, bottom, shared, np.zeros_like(group))
    downwards = np.lexsort((-value, own.query))  # each query from its highest value on
    for target, every, some, floor in zip(least, whole, above, lowest, strict=True):
        last = own.before + own.held
        part = np.flatnonzero(some & (own.before + 1 < target) & (target <= last))
        fall = falls.copy()
        fall[part] = _fall_factors(own, group, top, bottom, part, target)
        counts = every.copy()
        counts[part] = True
        walked = downwards[counts[downwards]]
        yield _moments(own.query[walked], fall[walked], value[walked], floor)


def _moments(query: Int, fall: Float, value: Float, floor: Float) -> tuple[Float, Float]:
    """(Q,) mean and variance: what is left of 1 after every fall is the chance of the floor."""
    mean, variance = floor.copy(), np.zeros(len(floor))
    length = np.bincount(query, minlength=len(floor))
    start = np.cumsum(length) - length
    for chosen, column, real in tables(length):
        at = np.where(real, start[chosen, None] + column, 0)
        left = np.cumprod(np.where(real, fall[at], 1.0), axis=1)
        share = np.concatenate([1.0 - left[:, :1], left[:, :-1] - left[:, 1:]], axis=1)
        over = np.where(real, value[at] - floor[chosen, None], 0.0)
        more = row_sum(share * over)
        mean[chosen] += more
        variance[chosen] = row_sum(share * over * over) - more * more
    return mean, variance


def _fall_factors(own: _Ties, group: Int, top: Int, bottom: Int, rows: Int, target: Int) -> Float:
    """What a group's chance to stay below the value of a row is to that of the row before."""
    chance = np.empty(len(rows))
    for (size, held), some in alike((own.size[rows], own.held[rows]), own.held[rows] + 1):
        at = rows[some]
        some_own = own.chosen(at)
        chance[some] = _stays_below(
            size, held, top[at], bottom[at], some_own.before, some_own.ahead, target[at]
        )
    first = np.append(True, group[rows][1:] != group[rows][:-1])
    return np.asarray(chance / np.where(first, 1.0, np.append(1.0, chance[:-1])))


def _few(size: Int, held: Int) -> Bool:
    """Whether documents are fewer steps than positions, and their chances large enough to hold."""
    return np.asarray((held * held <= size) & (held <= 512))


def _stays_below(
    size: int, held: int, top: Int, bottom: Int, before: Int, ahead: Int, target: Int
) -> Float:
    """(X,) the chance that no relevant document of a group lifts the precision to top/bottom."""
    number = before[:, None] + np.arange(1, held + 1)
    reach = number * bottom[:, None] // top[:, None] - ahead[:, None]
    barred = np.clip(np.where(number >= target[:, None], reach, 0), 0, size)  # positions of each
    if _few(np.array(size), np.array(held)):
        return _by_document(size, barred)
    return _by_position(size, barred)


def _by_position(size: int, barred: Int) -> Float:
    """The chance, position by position, by the number of relevant documents so far."""
    held = barred.shape[1]
    chance = np.zeros((len(barred), held + 1))
    chance[:, 0] = 1.0
    for position in range(1, size + 1):
        meets = np.minimum(np.maximum(held - np.arange(held + 1), 0) / (size - position + 1), 1.0)
        one_more = np.where(position <= barred, 0.0, chance[:, :-1] * meets[:-1])
        chance *= 1.0 - meets
        chance[:, 1:] += one_more
    return np.asarray(chance[:, held])


def _by_document(size: int, barred: Int) -> Float:
    """Document after document: the chance of i others on the positions barred to it.

    These are less than its number. As if each position were relevant by itself with the chance m/g;
    what comes out is over the chance that there are m in all.
    """
    held = barred.shape[1]
    chance = np.ones((len(barred), 1))
    for j, positions in enumerate(np.diff(barred, axis=1, prepend=0).T):
        weight = _binomial(positions, j, held / size)
        more = np.zeros((len(barred), j + 1))
        for i in range(chance.shape[1]):
            more[:, i:] += chance[:, i, None] * weight[:, : j + 1 - i]
        chance = more
    last = _binomial(size - barred[:, -1], held, held / size)[:, ::-1]
    every = _binomial(np.array([size]), held, held / size)[0, held]
    return np.asarray(row_sum(chance * last[:, :held]) / every)


def _binomial(draws: Int, most: int, share: float) -> Float:
    """(X, most + 1) the chance of 0, 1, 2, … of so many draws."""
    number = np.arange(1, most + 1)
    step = np.maximum(draws[:, None] - number + 1, 0) / number * (share / (1.0 - share))
    none = (1.0 - share) ** draws[:, None]
    return np.cumprod(np.concatenate([none, step], axis=1), axis=1)
