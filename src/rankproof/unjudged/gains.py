"""nDCG over every completion: a ratio whose denominator the holes change too.

The ideal is additive over grades: IDCG = Σ_g Δ_g · W(min(k, N_g + n_g)), with Δ_g = v_g − v_{g−1},
W(n) the discounts of the first n ranks, N_g the judged documents of at least grade g and n_g the
holes graded so. δ is what a hole's unit of gain adds to the numerator, S(n) the sum of the n
largest. Highest value, for each query:

    corners      (D + v_G · S(j)) / Σ_g Δ_g W(min(k, N_g + j)),  j = 0 … m
    Dinkelbach   from there, if it is ≥ 0: n_g = argmax_n S(n) − t · W(min(k, N_g + n)),
                 t ← (D + Σ_g Δ_g S(n_g)) / Σ_g Δ_g W(min(k, N_g + n_g)) until it no longer rises

The lowest is minus the highest of −δ, −D. Grades that no judgement has lie between others: only
those that occur, and the top of the scale, are levels.

Where holes tie with judged documents, the best order of a group puts higher grades first, and its
gain is additive over levels too: the n-th hole of at least grade g stands behind the judged
documents of at least g. So δ depends on the level. Each level then chooses for itself, which no
completion need do: a bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankproof.data.ties import TieGroups
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.errors import MeasureError
from rankproof.measures import Measure
from rankproof.measures.linear import Gain, counted_from, discounts, gain_of, log_discount
from rankproof.measures.padded_rows import tables
from rankproof.unjudged.unjudged_documents import Holed

_CELLS = 1 << 15  # of a table whose sums fit into a processor's cache
_STEPS = 200  # of Dinkelbach's, which needs a handful


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """The grades that occur, and what they are worth."""

    grade: Int  # (L,) ascending, from the lowest that gains anything to the top of the scale
    step: Float  # (L,) Δ
    held: Int  # (L, Q) judged documents of at least this grade
    how: Gain
    rel: int  # the grade that counts as 1

    def ideal(self, more: Int, cutoff: int | None) -> Float:
        """W(n), as far as it is asked for if each query (Q,) has so many more documents."""
        most = int((self.held + more).max(initial=0))
        most = most if cutoff is None else min(most, cutoff)
        return np.concatenate([[0.0], np.cumsum(1.0 / log_discount(most)[1:])])

    def gain(self, grade: Int) -> Float:
        """What a grade is worth, on one scale for all queries, which no grade overflows."""
        return gain_of(
            counted_from(self.rel, np.maximum(grade, 0)),
            self.how,
            counted_from(self.rel, self.grade[-1:]),
        )


def levels(holed: Holed, measure: Measure) -> Levels:
    """The levels of these judgements on a scale up to the highest grade, as a nDCG counts them."""
    settings = measure.parameters
    gain, rel = settings["gain"], settings["rel"]
    return holed.once(("levels", gain, rel), lambda: _levels(holed.groups, holed.top, gain, rel))


def _levels(groups: TieGroups, top: int, gain: Gain, rel: int) -> Levels:
    found = groups.pool.unsorted
    if 0 <= found.max(initial=0) < len(found):  # to count is faster than to sort
        found = np.flatnonzero(np.bincount(found))
    grades = np.unique(np.append(found, top))
    lowest = 0 if not isinstance(gain, str) and dict(gain).get(0) else rel
    grades = grades[grades >= lowest].astype(np.int64)
    if not len(grades):  # nothing can gain: one level that is worth nothing
        held = np.zeros((1, groups.queries), np.int64)
        return Levels(np.array([rel]), np.zeros(1), held, gain, rel)
    worth = gain_of(counted_from(rel, grades), gain, counted_from(rel, grades[-1:]))
    step = np.diff(worth, prepend=0.0)
    if (step < 0).any() or not lowest:
        raise MeasureError(
            "gains that fall as the grade rises, or that a grade of 0 has",
            place="nDCG",
            remedy="holes are bounded for gains that rise from 0: leave those grades out",
        )
    held = np.stack([groups.pool.count(int(g)) for g in grades])
    return Levels(grades, step, held, gain, rel)


def ndcg_highest(
    known: Float,
    delta: Float,
    count: Int,
    extra: Int,
    steps: Levels,
    cutoff: int | None,
    sign: float = 1.0,
) -> Float:
    """(Q,) the highest (D + Σ gains · sign · δ)/IDCG; NaN where nothing is ever relevant.

    `known` (Q,) is D; `delta` (1, H), or (L, H) where it depends on the level, belongs to the
    holes, of which each query has `count` (Q,); `extra` (Q,) counts holes with δ = 0, where no δ
    of the others is above that.
    """
    highest = np.full(len(known), np.nan)
    begin = np.cumsum(count) - count
    total = steps.ideal(count + extra, cutoff)
    most = len(total) - 1
    if kernels.native is not None and len(delta) == 1:
        starts, each = np.append(begin, delta.shape[1]), np.ascontiguousarray(delta[0])
        kernels.map_ranges(
            lambda first, last: kernels.native.gain(
                *(each, sign, starts, known, steps.held, steps.step, total, extra, highest),
                *(first, last),
            ),
            *(len(known), kernels.thread_count(delta.shape[1])),
        )
        return highest
    delta = sign * delta
    # Once the ideal list is full of the highest grade, only what adds to the sum can still help:
    # so the first few numbers of holes matter, and that of all with δ > 0.
    room = np.clip(most - steps.held[-1] - extra, 0, count)
    query = np.repeat(np.arange(len(extra)), count)
    helping = np.bincount(query[delta[-1] > 0], minlength=len(extra))
    last = np.maximum(room, helping)
    nested = len(delta) > 1
    for chosen, column, real in _rows(count):
        wide = int(room[chosen].max(initial=0))
        row = np.where(real, begin[chosen, None] + column, 0)
        rising = np.where(real, delta[:, row], -np.inf)  # what is not there comes last
        rising.sort(axis=2)
        sums = np.zeros((len(delta), len(chosen), column.shape[1] + 1))  # S
        np.cumsum(rising[:, :, ::-1], axis=2, out=sums[:, :, 1:])
        number = np.concatenate(
            [np.broadcast_to(np.arange(wide + 1), (len(chosen), wide + 1)), last[chosen, None]],
            axis=1,
        )
        number[:, :-1] = np.minimum(number[:, :-1], last[chosen, None])
        sums = np.take_along_axis(sums, number[None], axis=2)
        number += extra[chosen, None]
        ideal = [total[np.minimum(held[:, None] + number, most)] for held in steps.held[:, chosen]]
        level = [sums[at if nested else 0] for at in range(len(ideal))]
        above = known[chosen, None] + sum(
            step * s for step, s in zip(steps.step, level, strict=True)
        )
        below = sum(step * i for step, i in zip(steps.step, ideal, strict=True))
        with np.errstate(invalid="ignore", divide="ignore"):
            corner = np.where(below > 0, above / below, -np.inf)
        best = corner.max(axis=1)
        going = np.isfinite(best) & ((best >= 0) | nested)
        _climb(best, np.flatnonzero(going), known[chosen], level, ideal, steps.step, nested)
        highest[chosen] = np.where(np.isfinite(best), best, np.nan)
    return highest


def discounted(holed: Holed, known: Float, steps: Levels, cutoff: int | None, best: bool) -> Float:
    """(Q,) the highest nDCG, or the lowest, where nothing ties and all else in reach are holes."""
    total = steps.ideal(holed.of_query + holed.extra, cutoff)
    sums = np.cumsum(discounts(np.arange(int(holed.span.max(initial=0)) + 1), cutoff))
    value = np.empty(len(known))
    kernels.map_ranges(
        lambda low, high: kernels.native.gain_in_rows(
            *(holed.groups.rank, holed.begin, holed.span, sums, known, steps.held, steps.step),
            *(total, holed.extra, best, value, low, high),
        ),
        *(len(value), kernels.thread_count(len(holed.groups.rank))),
    )
    return value


def _rows(count: Int) -> Iterator[tuple[Int, Int, Bool]]:
    """`tables`, and before them the queries without a hole."""
    none = np.flatnonzero(count == 0)
    if len(none):
        yield none, np.zeros((1, 0), np.int64), np.zeros((len(none), 0), np.bool_)
    yield from tables(count, _CELLS)


def _nested(worth: list[Float]) -> list[Int]:
    """How many holes reach each level, for the most worth in all: never more than the one below."""
    found: list[Int] = []  # from the highest level down: the best count not above each one
    above = np.zeros_like(worth[0])
    for each in reversed(worth):
        whole = each + above
        above = np.maximum.accumulate(whole, axis=1)
        at = np.where(whole == above, np.arange(whole.shape[1]), 0)
        found.append(np.maximum.accumulate(at, axis=1))
    row = np.arange(len(worth[0]))
    counts = [found.pop()[:, -1]]
    while found:
        counts.append(found.pop()[row, counts[-1]])
    return counts


def _climb(
    best: Float,
    going: Int,
    known: Float,
    level: list[Float],
    ideal: list[Float],
    step: Float,
    nested: bool,
) -> None:
    """Dinkelbach's steps in place, for the rows `going`, until none rises.

    Holes of a grade are holes of every lower one; where all levels have the same δ that is so
    without being asked for.
    """
    for _ in range(_STEPS):
        if not len(going):
            return
        above, under = known[going].copy(), np.zeros(len(going))
        worth = [
            times * (sums[going] - best[going, None] * norm[going])
            for sums, norm, times in zip(level, ideal, step, strict=True)
        ]
        counts = _nested(worth) if nested else [each.argmax(axis=1) for each in worth]
        for n, sums, norm, times in zip(counts, level, ideal, step, strict=True):
            above += times * sums[going, n]
            under += times * norm[going, n]
        with np.errstate(invalid="ignore", divide="ignore"):
            reached = np.where(under > 0, above / under, -np.inf)
        rises = reached > best[going]
        best[going[rises]] = reached[rises]
        going = going[rises]
