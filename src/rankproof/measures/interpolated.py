"""Interpolated precision: the highest precision from a level of recall on.

    V = max of j / rank(j) over relevant documents j ≥ t,   t = ⌊λ·R + 0.9⌋ as trec_eval has it

Tie groups are independent, so P(V ≤ x) is the product over groups of the chance that none of a
group's relevant documents stands too high: the positions of m relevant ones among g are walked one
after the other, and the chance of having met j without passing x is kept. x takes the values that
some order reaches; E[V] = Σ x · P(V = x). A group costs O(g²·m²), which is why only groups that mix
relevant documents with others are walked, and only for values above what every order reaches.
"""

from __future__ import annotations

import math

import numpy as np

from rankproof.arrays import Float, Int
from rankproof.errors import InputError
from rankproof.kernels import numbered
from rankproof.measures.linear import REL
from rankproof.measures.registry import Outcomes, measure
from rankproof.ties import TieGroups

_CELLS = 1 << 20  # of one table of chances
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
    if not groups.alone:
        low, high = extremes(groups, chosen, relevant, levels)
    expected, square = high.copy(), high * high
    mixed = np.unique(groups.query[_mixed(groups, rel)]) if not groups.alone else chosen[:0]
    for query in mixed[np.isfinite(high[mixed]) & (low[mixed] < high[mixed])]:
        moments = [_moments(groups, int(query), rel, t) for t in _targets(relevant[query], levels)]
        expected[query] = sum(mean for mean, _ in reversed(moments)) / len(levels)
        square[query] = moments[0][1]
    variance = square - expected * expected if len(levels) == 1 else None
    return Outcomes(expected, low, high, oblivious, variance)


def extremes(
    groups: TieGroups, chosen: Int, relevant: Int, levels: tuple[float, ...]
) -> tuple[Float, Float]:
    """(Q,) lowest and highest: the chosen documents of each group last, and first."""
    group = groups.doc_group[chosen]
    inside = numbered(group) - 1
    held = np.bincount(group, minlength=len(groups.size))
    first = groups.first[group] + inside
    last = first + (groups.size - held)[group]
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
    best, held, start = peaks
    total = np.zeros(len(held))
    for level in reversed(levels):  # as trec_eval adds them
        target = _target(relevant, level)
        total += best[np.where(target <= held, start + target - 1, len(best) - 1)]
    return np.where(relevant > 0, total / len(levels), np.nan)


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


def _targets(relevant: int, levels: tuple[float, ...]) -> list[int]:
    return [max(1, math.floor(level * int(relevant) + 0.9)) for level in levels]


def _mixed(groups: TieGroups, rel: int) -> Int:
    """The groups in which relevant documents tie with others."""
    held = groups.sum_by_group(groups.grade >= rel)
    return np.flatnonzero((held > 0) & (held < groups.size))


def _moments(groups: TieGroups, query: int, rel: int, target: int) -> tuple[float, float]:
    """E[V] and E[V²] of one query."""
    own = np.flatnonzero(groups.query == query)
    held = np.array(
        [np.count_nonzero(groups.grade[groups.start[g] : groups.start[g + 1]] >= rel) for g in own]
    )
    own, held = own[held > 0], held[held > 0]
    size, ahead = groups.size[own], groups.first[own] - 1
    before = np.cumsum(held) - held
    above, below = [np.zeros(1, np.int64)], [np.ones(1, np.int64)]  # every value as a fraction
    floor = 0.0
    for g, m, b, c in zip(size, held, before, ahead, strict=True):
        number = np.arange(max(1, target - b), m + 1)
        if len(number):
            floor = max(floor, float(((b + number) / (c + g - m + number)).max()))
            position = number[:, None] + np.arange(g - m + 1)[None, :]
            above.append(np.broadcast_to((b + number)[:, None], position.shape).ravel())
            below.append((c + position).ravel())
    top, bottom = np.concatenate(above), np.concatenate(below)
    value, first = np.unique(top / bottom, return_index=True)
    top, bottom = top[first][value >= floor], bottom[first][value >= floor]
    value = value[value >= floor]
    if len(value) * int((size * held).sum()) > _STEPS:
        raise InputError(
            f"a tie of {size.max()} documents, {held.max()} of them relevant, has too many orders "
            "for the mean of an interpolated precision",
            remedy="ask for AP, or for scores that tell more documents apart",
        )
    chance = np.ones(len(value))
    for g, m, b, c in zip(size, held, before, ahead, strict=True):
        step = max(1, _CELLS // (int(m) + 1))
        for begin in range(0, len(value), step):
            some = slice(begin, begin + step)
            chance[some] *= _none_passes(
                top[some], bottom[some], int(g), int(m), int(b), int(c), target
            )
    share = np.diff(chance, prepend=0.0)
    return float((share * value).sum()), float((share * value * value).sum())


def _none_passes(
    top: Int, bottom: Int, size: int, held: int, before: int, ahead: int, target: int
) -> Float:
    """(X,) the chance that no relevant document of a group lifts the precision above top/bottom."""
    number = np.arange(1, held + 1)
    counts = before + number >= target
    chance = np.zeros((len(top), held + 1))
    chance[:, 0] = 1.0
    for position in range(1, size + 1):
        left = size - position + 1
        meets = np.minimum(np.maximum(held - np.arange(held + 1), 0) / left, 1.0)
        passes = counts & ((before + number) * bottom[:, None] > top[:, None] * (ahead + position))
        met = np.where(passes, 0.0, chance[:, :-1] * meets[:-1])
        chance *= 1.0 - meets
        chance[:, 1:] += met
    return np.asarray(chance[:, held])
