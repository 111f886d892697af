"""Interpolated precision: the highest precision from a level of recall on.

    V = max of j / rank(j) over relevant documents j ≥ t,   t = ⌊λ·R + 0.9⌋ as trec_eval has it

Tie groups are independent, so P(V ≤ x) is the product over groups of the chance that none of a
group's relevant documents stands too high: the positions of m relevant ones among g are walked one
after the other, and the chance of having met j without passing x is kept. x takes the values that
some order reaches; E[V] = Σ x · P(V = x). A group costs O(g²·m²), which is why only groups that mix
relevant documents with others are walked, and only for values above what every order reaches. The
walk is one for all levels of recall, but for the group in which a level's target t lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankproof.arrays import Bool, Float, Int
from rankproof.errors import InputError
from rankproof.kernels import numbered
from rankproof.measures.linear import REL
from rankproof.measures.ragged import alike
from rankproof.measures.registry import Outcomes, measure
from rankproof.ties import TieGroups

_CELLS = 1 << 20  # of one table of chances
_VALUES = 1 << 18  # which some order reaches, of the queries of one walk
_MOST = 1 << 22  # values of one query: more could not be walked in time
_STEPS = 1 << 32  # of the mean of one query: some ten seconds
LEVELS = tuple(number / 10 for number in range(11))


@measure(
    "IPrec",
    at="recall",
    limits={"recall": (0.0, 1.0), **REL},
    aliases=("iprec_at_recall", "interpolated_precision_at_recall"),
)
def interpolated_precision(groups: TieGroups, recall: float = 0.0, rel: int = 1) -> Outcomes:
    """Interpolated precision at a level of recall (@0.1): the highest precision from there on.

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "IPrec@0.5")
    >>> found = found["IPrec@0.5"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (0.5, 0.5, 0.5)
    """
    return _mean(groups, (recall,), rel)


@measure("AP11", limits=REL, aliases=("11pt_avg", "11pt"))
def eleven_points(groups: TieGroups, rel: int = 1) -> Outcomes:
    """Mean of interpolated precision at recall 0, 0.1, …, 1 (11-point average).

    No std: the points hang together.

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "AP11")["AP11"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (0.5, 0.5, 0.5)
    """
    return _mean(groups, LEVELS, rel)


def _mean(groups: TieGroups, levels: tuple[float, ...], rel: int) -> Outcomes:
    chosen = np.flatnonzero(groups.grade >= rel)
    relevant = groups.relevant(rel)
    kept: dict[int, Peaks] = groups.__dict__.setdefault("peaks", {})  # which each level needs
    if rel not in kept:
        kept[rel] = _peaks(groups, groups.rank[chosen], chosen)
    oblivious = _at_levels(kept[rel], relevant, levels)
    low = high = oblivious
    worst = best = kept[rel]
    if not groups.alone:
        worst, best = (_peaks(groups, rank, chosen) for rank in _end_ranks(groups, chosen))
        low, high = (_at_levels(peaks, relevant, levels) for peaks in (worst, best))
    expected, square = high.copy(), high * high
    for walk in _walks(groups, rel, np.flatnonzero(low < high)):
        query = walk.query
        ends = [
            (target, _at(worst, target, query), _at(best, target, query))
            for target in (_target(relevant[query], level) for level in levels)
        ]
        moments = list(walk.moments(ends))
        expected[query] = sum(mean for mean, _ in reversed(moments)) / len(levels)
        square[query] = moments[0][1]
    variance = square - expected * expected if len(levels) == 1 else None
    return Outcomes(expected, low, high, oblivious, variance)


def _end_ranks(groups: TieGroups, chosen: Int) -> tuple[Int, Int]:
    """Of the chosen documents of each group, with those of it last, and first."""
    group = groups.doc_group[chosen]
    held = np.bincount(group, minlength=len(groups.size))
    first = groups.first[group] + numbered(group) - 1
    return first + (groups.size - held)[group], first


def extremes(
    groups: TieGroups, chosen: Int, relevant: Int, levels: tuple[float, ...]
) -> tuple[Float, Float]:
    """(Q,) lowest and highest: the chosen documents of each group last, and first."""
    last, first = _end_ranks(groups, chosen)
    return (
        highest(groups, last, chosen, relevant, levels),
        highest(groups, first, chosen, relevant, levels),
    )


def highest(
    groups: TieGroups, rank: Int, chosen: Int, relevant: Int, levels: tuple[float, ...]
) -> Float:
    """(Q,) the mean over levels of the highest precision there; NaN where nothing is relevant."""
    return _at_levels(_peaks(groups, rank, chosen), relevant, levels)


Peaks = tuple[Float, Int, Int]  # the highest precision from each chosen document on; (Q,) how many
# there are of a query, and where they begin


def _peaks(groups: TieGroups, rank: Int, chosen: Int) -> Peaks:
    query = groups.doc_query[chosen]
    best = np.append(_from_here_on(query, numbered(query) / rank), 0.0)
    held = np.bincount(query, minlength=groups.queries)
    return best, held, np.cumsum(held) - held


def _at_levels(peaks: Peaks, relevant: Int, levels: tuple[float, ...]) -> Float:
    query = np.arange(len(relevant))
    total = np.zeros(len(query))
    for level in reversed(levels):  # as trec_eval adds them
        total += _at(peaks, _target(relevant, level), query)
    return np.where(relevant > 0, total / len(levels), np.nan)


def _at(peaks: Peaks, target: Int, query: Int) -> Float:
    """The highest precision of each query from its target on; 0 where it is not met."""
    best, held, start = peaks
    met = target <= held[query]
    return np.asarray(best[np.where(met, start[query] + target - 1, len(best) - 1)])


def _from_here_on(query: Int, values: Float) -> Float:
    """The highest of each value and those that follow in its query, which is one stretch."""
    highest, step = values.copy(), 1
    longest = int(np.bincount(query).max(initial=0))
    while step < longest:  # over twice as many each time
        same = query[step:] == query[:-step]
        np.maximum(highest[:-step], highest[step:], out=highest[:-step], where=same)
        step *= 2
    return highest


def _target(relevant: Int, level: float) -> Int:
    """(Q,) which relevant document, counted from 1, reaches the level."""
    return np.asarray(np.maximum(np.floor(level * relevant + 0.9), 1), np.int64)


@dataclass(frozen=True, slots=True)
class _Walk:
    """Some queries' tie groups that mix relevant documents with others, and the values that the
    queries' orders reach."""

    query: Int  # (Q,)
    of: Int  # (G,) the query of each group, by number in `query`
    size: Int  # (G,)
    held: Int  # (G,) relevant documents in it
    before: Int  # (G,) and before it
    ahead: Int  # (G,) documents before it
    peak: Int  # (G,) the value that no order of it lifts its precision above
    owner: Int  # (X,) the query of each value; values ascend in each
    top: Int  # (X,) the value as a fraction
    bottom: Int  # (X,)

    def moments(self, ends: list[tuple[Int, Float, Float]]) -> Iterator[tuple[Float, Float]]:
        """(Q,) E[V] and E[V²] for each level: its targets, lowest and highest values."""
        value = self.top / self.bottom
        begins = np.append(True, self.owner[1:] != self.owner[:-1])
        asked = [(value >= low[self.owner]) & (value < high[self.owner]) for _, low, high in ends]
        targets = [target for target, _, _ in ends]
        for (_, _, high), chance in zip(ends, self._chances(targets, asked), strict=True):
            chance[value >= high[self.owner]] = 1.0
            share = chance - np.where(begins, 0.0, np.append(0.0, chance[:-1]))
            yield self._sum(share * value), self._sum(share * value * value)

    def _sum(self, values: Float) -> Float:
        return np.asarray(np.bincount(self.owner, values, len(self.query)), np.float64)

    def _chances(self, targets: list[Int], asked: list[Bool]) -> list[Float]:
        """For each level, (X,) P(V ≤ x) where it is asked for, elsewhere 0."""
        found = [some.astype(np.float64) for some in asked]
        anywhere = np.logical_or.reduce(asked)
        first = np.minimum.reduceat(
            np.where(anywhere, np.arange(len(anywhere)), len(anywhere)),
            np.searchsorted(self.owner, np.arange(len(self.query))),
        )[self.of]
        many = np.maximum(self.peak - first, 0)
        if (np.bincount(self.of, many * self.size * self.held) > _STEPS).any():
            raise _too_many(self.size, self.held)
        part = np.cumsum(many) // _CELLS
        for some in np.split(np.arange(len(many)), np.flatnonzero(np.diff(part)) + 1):
            group = np.repeat(some, many[some])
            row = first[group] + numbered(group) - 1
            before, owner = self.before[group], self.of[group]
            past = [
                asks[row] & (target[owner] <= before + 1)  # all its documents count
                for target, asks in zip(targets, asked, strict=True)
            ]
            shared = np.flatnonzero(np.logical_or.reduce(past))
            passed = np.ones(len(row))
            passed[shared] = self._passed(row[shared], group[shared], np.zeros_like(shared))
            last = before + self.held[group]
            for chance, target, asks, whole in zip(found, targets, asked, past, strict=True):
                least = target[owner]
                inside = np.flatnonzero(asks[row] & (least > before + 1) & (least <= last))
                own = passed.copy()
                own[~whole] = 1.0
                own[inside] = self._passed(row[inside], group[inside], least[inside])
                np.multiply.at(chance, row, own)
        return found

    def _passed(self, row: Int, group: Int, target: Int) -> Float:
        """The chance that no relevant document of the group, from the target on, lifts the
        precision above the row's value; groups of one kind at once."""
        found = np.empty(len(row))
        size, held = self.size[group], self.held[group]
        for (wide, many), some in alike((size, held), held + 1):
            at, of = row[some], group[some]
            found[some] = _none_passes(
                *(self.top[at], self.bottom[at], wide, many),
                *(self.before[of], self.ahead[of], target[some]),
            )
        return found


def _walks(groups: TieGroups, rel: int, queries: Int) -> Iterator[_Walk]:
    """The queries, as many at a time as have few values together."""
    held = groups.sum_by_group(groups.grade >= rel).astype(np.int64)
    before = np.cumsum(held) - held
    of_query = np.searchsorted(groups.query, np.arange(groups.queries + 1))
    before -= np.append(before, held.sum())[of_query[groups.query]]
    reached = held * (groups.size - held + 1)
    values = np.append(0, np.cumsum(reached))
    values = (values[of_query[1:]] - values[of_query[:-1]])[queries]
    if (values > _MOST).any():
        raise _too_many(groups.size, held)
    part = np.cumsum(values) // _VALUES
    for some in np.split(queries, np.flatnonzero(np.diff(part)) + 1):
        if not len(some):
            continue
        chosen = np.zeros(groups.queries, bool)
        chosen[some] = True
        own = np.flatnonzero(chosen[groups.query] & (held > 0))
        yield _walk(groups, some, own, held[own], before[own])


def _too_many(size: Int, held: Int) -> InputError:
    return InputError(
        f"a tie of {size.max()} documents, {held[size.argmax()]} of them relevant, has too many "
        "orders for the mean of an interpolated precision",
        remedy="ask for AP, or for scores that tell more documents apart",
    )


def _walk(groups: TieGroups, query: Int, own: Int, held: Int, before: Int) -> _Walk:
    size, ahead = groups.size[own], groups.first[own] - 1
    owner = np.searchsorted(query, groups.query[own])
    # Document j of m stands at one of g − m + 1 positions.
    group = np.repeat(np.arange(len(own)), held * (size - held + 1))
    inside = numbered(group) - 1
    wide = (size - held + 1)[group]
    j, shift = inside // wide + 1, inside % wide
    nothing = np.arange(len(query))  # the value 0, which every query has
    of = np.concatenate([nothing, owner[group]])
    top = np.concatenate([np.zeros_like(nothing), before[group] + j])
    bottom = np.concatenate([np.ones_like(nothing), ahead[group] + j + shift])
    value = top / bottom
    order = np.lexsort((value, of))
    fresh = np.append(True, (np.diff(of[order]) != 0) | (np.diff(value[order]) != 0))
    number = np.empty_like(order)  # of each value among those that differ
    number[order] = np.cumsum(fresh) - 1
    order = order[fresh]
    mixed = held < size
    return _Walk(
        query=query,
        of=owner[mixed],
        size=size[mixed],
        held=held[mixed],
        before=before[mixed],
        ahead=ahead[mixed],
        peak=number[len(query) :][(j == held[group]) & (shift == 0)][mixed],  # all of it first
        owner=of[order],
        top=top[order],
        bottom=bottom[order],
    )


def _none_passes(
    top: Int, bottom: Int, size: int, held: int, before: Int, ahead: Int, target: Int
) -> Float:
    """(X,) the chance that no relevant document of a group lifts the precision above top/bottom."""
    number = np.arange(1, held + 1)
    counts = before[:, None] + number >= target[:, None]
    reach = (before[:, None] + number) * bottom[:, None]
    chance = np.zeros((len(top), held + 1))
    chance[:, 0] = 1.0
    for position in range(1, size + 1):
        left = size - position + 1
        meets = np.minimum(np.maximum(held - np.arange(held + 1), 0) / left, 1.0)
        passes = counts & (reach > (top * (ahead + position))[:, None])
        met = np.where(passes, 0.0, chance[:, :-1] * meets[:-1])
        chance *= 1.0 - meets
        chance[:, 1:] += met
    return np.asarray(chance[:, held])
