"""Interpolated precision: the highest precision from a level of recall on.

    V = max of j / rank(j) over relevant documents j ≥ t,   t = ⌊λ·R + 0.9⌋ as in trec_eval 9

Tie groups are independent, so P(V < x) is the product over groups of the chance that none of a
group's relevant documents lifts the precision to x. That chance falls only at the precisions that
the group's own orders reach: the j-th of m relevant documents in a group of g has g − m + 1
possible positions, a group m(g − m + 1) such places. All places of a query are visited from the
highest precision down; each multiplies P(V < x) by the factor by which its group's chance falls
there. E[V] = Σ x · P(V = x) then takes time linear in the number of places. Only groups that mix
relevant with other documents have places, and only those above the lowest value of V count. All
levels of recall share these factors, except in the group in which a level's target t lies.
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

_BLOCK_PLACES = 1 << 18  # places in memory at a time
_QUERY_STEPS = 1 << 28  # most steps for the mean of one query: half a second
_CALL_STEPS = 1 << 31  # most steps for all queries
_PLACE_STEPS = 1 << 8  # steps that cost as much as the memory of a place
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
        """For each level, (Q,) the number t of the relevant document that reaches it, from 1."""
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
    return _mean_over_levels(groups, RecallLevels((recall,), rounding), rel)


@measure(
    "AP11",
    limits=REL,
    aliases=("11pt_avg", "11pt"),
    unjudged="interpolated precision",
    reads="relevant",
)
def eleven_points(groups: TieGroups, rel: int = 1, rounding: Rounding = "up") -> Outcomes:
    """Mean of interpolated precision at recall 0, 0.1, …, 1 (11-point average).

    No std: the precisions at different levels are correlated.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "AP11")["AP11"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.5, 0.5, 0.5)
    """
    return _mean_over_levels(groups, RecallLevels(TENTHS, rounding), rel)


def _mean_over_levels(groups: TieGroups, levels: RecallLevels, rel: int) -> Outcomes:
    """Compute the mean of interpolated precision over recall levels, under every order of ties."""
    documents = np.flatnonzero(groups.grade >= rel)
    relevant = groups.relevant(rel)
    listed = _cached_peaks(groups, documents, rel)
    oblivious = _mean_at_levels(listed, relevant, levels)
    low = high = oblivious
    worst = listed
    if not groups.alone:
        last, first = _extreme_ranks(groups, documents)
        worst = _find_peaks(groups, last, documents)
        low = _mean_at_levels(worst, relevant, levels)
        high = highest(groups, first, documents, relevant, levels)
    expected, variance = high.copy(), 0.0 * high
    is_tied = low < high
    in_group = groups.sum_by_group(groups.grade >= rel).astype(np.int64)
    expensive = is_tied & too_expensive(
        groups.sum_by_query(groups.query, _steps(groups.size, in_group)), _QUERY_STEPS, _CALL_STEPS
    )
    for query, ties in _tied_queries(groups, in_group, np.flatnonzero(is_tied & ~expensive)):
        targets = levels.targets(relevant[query])
        lowest = [_precision_from(worst, target, query) for target in targets]
        moments = list(_moments_by_level(ties, targets, lowest))
        expected[query] = sum(mean for mean, _ in reversed(moments)) / len(levels)
        variance[query] = moments[0][1]
    has_variance = len(levels) == 1
    return Outcomes(
        expected, low, high, oblivious, variance if has_variance else None, expensive=expensive
    )


def _extreme_ranks(groups: TieGroups, documents: Int) -> tuple[Int, Int]:
    """(D,) ranks of these documents when each tie group ranks them last, and first."""
    group = groups.doc_group[documents]
    in_group = np.bincount(group, minlength=len(groups.size))
    first = groups.first[group] + count_within(group) - 1
    return first + (groups.size - in_group)[group], first


def extremes(
    groups: TieGroups, documents: Int, relevant: Int, levels: RecallLevels
) -> tuple[Float, Float]:
    """(Q,) lowest and highest mean over levels: the relevant documents of each tie last, first."""
    last, first = _extreme_ranks(groups, documents)
    return (
        highest(groups, last, documents, relevant, levels),
        highest(groups, first, documents, relevant, levels),
    )


def highest(
    groups: TieGroups, rank: Int, documents: Int, relevant: Int, levels: RecallLevels
) -> Float:
    """(Q,) mean over levels of interpolated precision, the relevant documents at ranks `rank`.

    `relevant` (Q,) counts those of the judgments; NaN where there are none.
    """
    return _mean_at_levels(_find_peaks(groups, rank, documents), relevant, levels)


@dataclass(frozen=True, slots=True)
class Peaks:
    """The highest precision at each listed relevant document or a later one of its query."""

    precision: Float  # (D + 1,) ascending by query and rank; the last entry is 0
    count: Int  # (Q,) relevant documents listed
    start: Int  # (Q,) index of the first of them


def _cached_peaks(groups: TieGroups, documents: Int, rel: int) -> Peaks:
    """Return the peaks under the stated tie-break, computed once for all levels."""
    peaks_by_rel: dict[int, Peaks] = groups.__dict__.setdefault("peaks", {})
    if rel not in peaks_by_rel:
        peaks_by_rel[rel] = _find_peaks(groups, groups.rank[documents], documents)
    return peaks_by_rel[rel]


def _find_peaks(groups: TieGroups, rank: Int, documents: Int) -> Peaks:
    query = groups.doc_query[documents]
    precision = np.append(_suffix_maximum(query, count_within(query) / rank), 0.0)
    count = np.bincount(query, minlength=groups.queries)
    return Peaks(precision, count, np.cumsum(count) - count)


def _mean_at_levels(peaks: Peaks, relevant: Int, levels: RecallLevels) -> Float:
    query = np.arange(len(relevant))
    total = np.zeros(len(query))
    for target in reversed(levels.targets(relevant)):  # the order in which trec_eval adds
        total += _precision_from(peaks, target, query)
    return np.where(relevant > 0, total / len(levels), np.nan)


def _precision_from(peaks: Peaks, target: Int, query: Int) -> Float:
    """Highest precision of each query from its target on; 0 if the target is not reached."""
    is_reached = target <= peaks.count[query]
    index = np.where(is_reached, peaks.start[query] + target - 1, len(peaks.precision) - 1)
    return np.asarray(peaks.precision[index])


def _suffix_maximum(query: Int, values: Float) -> Float:
    """Return the maximum of each value and all later ones of its query; rows ascend by query."""
    maximum, step = values.copy(), 1
    longest = int(np.bincount(query).max(initial=0))
    while step < longest:  # each round doubles the span that a maximum covers
        same = query[step:] == query[:-step]
        np.maximum(maximum[:-step], maximum[step:], out=maximum[:-step], where=same)
        step *= 2
    return maximum


@dataclass(frozen=True, slots=True)
class _MixedTies:
    """Tie groups of some queries that mix relevant with other documents."""

    query: Int  # (G,) numbered from 0 within a block of queries
    size: Int  # (G,)
    relevant: Int  # (G,) m
    relevant_before: Int  # (G,) relevant documents of earlier groups
    documents_before: Int  # (G,) documents of earlier groups

    @property
    def places(self) -> Int:
        """(G,) m(g − m + 1): each relevant document has g − m + 1 possible positions."""
        return self.relevant * (self.size - self.relevant + 1)

    def select(self, rows: Int) -> _MixedTies:
        columns = self.query, self.size, self.relevant, self.relevant_before, self.documents_before
        return _MixedTies(*(column[rows] for column in columns))


def _steps(size: Int, relevant: Int) -> Float:
    """(G,) upper bound of the steps for all places of a group, their memory included."""
    places = np.where(relevant < size, relevant * (size - relevant + 1), 0)
    steps = relevant * np.where(_goes_by_document(size, relevant), relevant**2, size)
    return places * np.maximum(steps, _PLACE_STEPS).astype(np.float64)


def _tied_queries(
    groups: TieGroups, relevant: Int, queries: Int
) -> Iterator[tuple[Int, _MixedTies]]:
    """Yield blocks of queries with their mixed ties; a block has at most _BLOCK_PLACES places.

    `relevant` (G,) counts the relevant documents of each group.
    """
    before = np.cumsum(relevant) - relevant
    first_group = np.searchsorted(groups.query, np.arange(groups.queries + 1))
    before -= np.append(before, relevant.sum())[first_group[groups.query]]
    is_chosen = np.zeros(groups.queries, bool)
    is_chosen[queries] = True
    mixed = np.flatnonzero(is_chosen[groups.query] & (relevant > 0) & (relevant < groups.size))
    number = np.searchsorted(queries, groups.query[mixed])
    ties = _MixedTies(
        number, groups.size[mixed], relevant[mixed], before[mixed], groups.first[mixed] - 1
    )
    places = np.bincount(number, ties.places, len(queries))
    number_of_block = np.cumsum(places) // _BLOCK_PLACES
    for block in np.split(np.arange(len(queries)), np.flatnonzero(np.diff(number_of_block)) + 1):
        if len(block):
            of_block = ties.select(np.arange(*np.searchsorted(number, [block[0], block[-1] + 1])))
            yield queries[block], replace(of_block, query=of_block.query - block[0])


def _moments_by_level(
    ties: _MixedTies, targets: list[Int], lowest: list[Float]
) -> Iterator[tuple[Float, Float]]:
    """Yield (Q,) mean and variance of V for each level of recall.

    `targets` (Q,) of each level are the t; `lowest` (Q,) the value that every order reaches.
    """
    group = np.repeat(np.arange(len(ties.size)), ties.places)
    place = count_within(group) - 1
    positions = (ties.size - ties.relevant + 1)[group]  # for each relevant document
    j, shift = place // positions + 1, place % positions
    number, rank = ties.relevant_before[group] + j, ties.documents_before[group] + j + shift
    value = number / rank
    above_all = np.flatnonzero(value > np.minimum.reduce(lowest)[ties.query[group]])
    order = above_all[np.lexsort((-value[above_all], group[above_all]))]  # highest value first
    group, number, rank, value = group[order], number[order], rank[order], value[order]
    tie = ties.select(group)
    place_targets = [target[tie.query] for target in targets]
    is_above = [value > low[tie.query] for low in lowest]
    is_past_target = [  # the whole group lies past the target: all its relevant documents count
        above & (target <= tie.relevant_before + 1)
        for above, target in zip(is_above, place_targets, strict=True)
    ]
    shared = np.flatnonzero(np.logical_or.reduce(is_past_target))
    shared_factors = np.ones(len(group))
    shared_factors[shared] = _fall_factors(tie, group, number, rank, shared, np.zeros_like(group))
    downwards = np.lexsort((-value, tie.query))  # each query from its highest value on
    for target, past, above, low in zip(
        place_targets, is_past_target, is_above, lowest, strict=True
    ):
        last = tie.relevant_before + tie.relevant
        around = np.flatnonzero(above & (tie.relevant_before + 1 < target) & (target <= last))
        factors = shared_factors.copy()
        factors[around] = _fall_factors(tie, group, number, rank, around, target)
        counts = past.copy()
        counts[around] = True
        visited = downwards[counts[downwards]]
        yield _moments(tie.query[visited], factors[visited], value[visited], low)


def _moments(query: Int, factor: Float, value: Float, lowest: Float) -> tuple[Float, Float]:
    """(Q,) mean and variance of V, whose values fall within each query.

    P(V < x) is the product of the factors down to x; what remains is the chance of `lowest`.
    """
    mean, variance = lowest.copy(), np.zeros(len(lowest))
    length = np.bincount(query, minlength=len(lowest))
    start = np.cumsum(length) - length
    for chosen, column, real in tables(length):
        at = np.where(real, start[chosen, None] + column, 0)
        below = np.cumprod(np.where(real, factor[at], 1.0), axis=1)  # P(V < x)
        chance = np.concatenate([1.0 - below[:, :1], below[:, :-1] - below[:, 1:]], axis=1)
        excess = np.where(real, value[at] - lowest[chosen, None], 0.0)
        mean_excess = row_sum(chance * excess)
        mean[chosen] += mean_excess
        variance[chosen] = row_sum(chance * excess * excess) - mean_excess * mean_excess
    return mean, variance


def _fall_factors(
    tie: _MixedTies, group: Int, number: Int, rank: Int, rows: Int, target: Int
) -> Float:
    """For each of `rows`, the chance that its group stays below its value, over the row before's.

    Rows ascend by group and fall in value; the first row of a group is over 1.
    """
    chance = np.empty(len(rows))
    kinds = (tie.size[rows], tie.relevant[rows])
    for (size, relevant), chosen in alike(kinds, kinds[1] + 1):
        at = rows[chosen]
        allowed = number[at], rank[at], target[at]
        chance[chosen] = _chance_below(size, relevant, tie.select(at), *allowed)
    first = np.append(True, group[rows][1:] != group[rows][:-1])
    return np.asarray(chance / np.where(first, 1.0, np.append(1.0, chance[:-1])))


def _goes_by_document(size: Int, relevant: Int) -> Bool:
    """True where _by_document takes fewer steps than _by_position, and does not underflow."""
    return np.asarray((relevant * relevant <= size) & (relevant <= 512))


def _chance_below(
    size: int, relevant: int, tie: _MixedTies, number: Int, rank: Int, target: Int
) -> Float:
    """(X,) the chance that no relevant document of a group lifts the precision to number/rank."""
    document = tie.relevant_before[:, None] + np.arange(1, relevant + 1)
    last_rank = document * rank[:, None] // number[:, None]  # that still lifts it so far
    reach = last_rank - tie.documents_before[:, None]
    excluded = np.clip(np.where(document >= target[:, None], reach, 0), 0, size)
    if _goes_by_document(np.array(size), np.array(relevant)):
        return _by_document(size, excluded)
    return _by_position(size, excluded)


def _by_position(size: int, excluded: Int) -> Float:
    """(X,) the chance that the j-th relevant document is past the first excluded[:, j] positions.

    Position after position: P(i relevant documents so far, none of them at an excluded position).
    """
    relevant = excluded.shape[1]
    chance = np.zeros((len(excluded), relevant + 1))
    chance[:, 0] = 1.0
    for position in range(1, size + 1):
        unplaced = np.maximum(relevant - np.arange(relevant + 1), 0)
        is_next = np.minimum(unplaced / (size - position + 1), 1.0)
        one_more = np.where(position <= excluded, 0.0, chance[:, :-1] * is_next[:-1])
        chance *= 1.0 - is_next
        chance[:, 1:] += one_more
    return np.asarray(chance[:, relevant])


def _by_document(size: int, excluded: Int) -> Float:
    """(X,) the same chance, document after document.

    The j-th relevant document is past the first e_j positions if these hold fewer than j. Positions
    are relevant independently, each with chance m/g, given that m are: P(i in the first e_j) is
    summed over i < j from one j to the next, and divided by the chance of m in all.
    """
    relevant = excluded.shape[1]
    chance = np.ones((len(excluded), 1))
    for j, positions in enumerate(np.diff(excluded, axis=1, prepend=0).T):
        weight = _binomial(positions, j, relevant / size)
        following = np.zeros((len(excluded), j + 1))
        for i in range(chance.shape[1]):
            following[:, i:] += chance[:, i, None] * weight[:, : j + 1 - i]
        chance = following
    last = _binomial(size - excluded[:, -1], relevant, relevant / size)[:, ::-1]
    in_all = _binomial(np.array([size]), relevant, relevant / size)[0, relevant]
    return np.asarray(row_sum(chance * last[:, :relevant]) / in_all)


def _binomial(draws: Int, most: int, share: float) -> Float:
    """(X, most + 1) the chance of 0, 1, 2, … successes, each draw one with chance `share`."""
    number = np.arange(1, most + 1)
    ratio = np.maximum(draws[:, None] - number + 1, 0) / number * (share / (1.0 - share))
    none = (1.0 - share) ** draws[:, None]
    return np.cumprod(np.concatenate([none, ratio], axis=1), axis=1)
