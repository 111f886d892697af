"""Bounds of nDCG over all grades of unjudged documents, which change its denominator, too.

The ideal is additive over grades: IDCG = Σ_g Δ_g · W(min(k, N_g + n_g)), with Δ_g = v_g − v_{g−1},
W(n) the discounts of the first n ranks, N_g the judged documents of at least grade g and n_g the
unjudged documents graded so. δ is what one unit of gain of an unjudged document adds to the
numerator, S(n) the sum of the n largest δ. Highest value, for each query:

    corners      (D + v_G · S(j)) / Σ_g Δ_g W(min(k, N_g + j)),  j = 0 … m
    Dinkelbach   from there, if it is ≥ 0: n_g = argmax_n S(n) − t · W(min(k, N_g + n)),
                 t ← (D + Σ_g Δ_g S(n_g)) / Σ_g Δ_g W(min(k, N_g + n_g)) until it no longer rises

The lowest is minus the highest of −δ, −D. Only grades that occur, and the top of the scale, are
levels: the optimum needs no grade between them.

If unjudged documents tie with judged ones, the best order of a group puts higher grades first, and
its gain is additive over levels, too: the n-th unjudged document of at least grade g stands behind
the judged documents of at least g. So δ depends on the level. Each level then chooses for itself,
which grades need not be able to do: a bound.
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
from rankproof.unjudged.unjudged_documents import PartlyJudged

_CELLS = 1 << 15  # of a table whose sums fit into a processor's cache
_MAX_STEPS = 200  # of Dinkelbach's algorithm, which needs a handful


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """The grades that occur, and what they are worth."""

    grade: Int  # (L,) ascending, from the lowest that gains anything to the top of the scale
    step: Float  # (L,) Δ, the gain of each level above the one below
    judged: Int  # (L, Q) judged documents of at least this grade
    gain_kind: Gain
    rel: int  # the grade that counts as 1

    def cumulative_discounts(self, unjudged: Int, cutoff: int | None) -> Float:
        """W(n) for every n an ideal list can need, with (Q,) unjudged documents in each query."""
        most = int((self.judged + unjudged).max(initial=0))
        most = most if cutoff is None else min(most, cutoff)
        return np.concatenate([[0.0], np.cumsum(1.0 / log_discount(most)[1:])])

    def gain(self, grade: Int) -> Float:
        """The gain of each grade, scaled by the top grade so that none overflows."""
        return gain_of(
            counted_from(self.rel, np.maximum(grade, 0)),
            self.gain_kind,
            counted_from(self.rel, self.grade[-1:]),
        )


def ndcg_levels(run: PartlyJudged, measure: Measure) -> Levels:
    """The levels of these judgments and the top of the scale, with the gains of an nDCG."""
    settings = measure.parameters
    gain, rel = settings["gain"], settings["rel"]
    return run.cached(("levels", gain, rel), lambda: _levels(run.groups, run.top, gain, rel))


def _levels(groups: TieGroups, top: int, gain: Gain, rel: int) -> Levels:
    present = groups.pool.unsorted
    if 0 <= present.max(initial=0) < len(present):  # to count is faster than to sort
        present = np.flatnonzero(np.bincount(present))
    grades = np.unique(np.append(present, top))
    lowest = 0 if not isinstance(gain, str) and dict(gain).get(0) else rel
    grades = grades[grades >= lowest].astype(np.int64)
    if not len(grades):  # nothing can gain: one level that is worth nothing
        none = np.zeros((1, groups.queries), np.int64)
        return Levels(np.array([rel]), np.zeros(1), none, gain, rel)
    worth = gain_of(counted_from(rel, grades), gain, counted_from(rel, grades[-1:]))
    step = np.diff(worth, prepend=0.0)
    if (step < 0).any() or not lowest:
        raise MeasureError(
            "gains that fall as the grade rises, or that a grade of 0 has",
            place="nDCG",
            remedy="worst cases need gains that rise from 0: leave those grades out",
        )
    judged = np.stack([groups.pool.count(int(g)) for g in grades])
    return Levels(grades, step, judged, gain, rel)


def ndcg_highest(
    known: Float,
    delta: Float,
    count: Int,
    extra: Int,
    levels: Levels,
    cutoff: int | None,
    sign: float = 1.0,
) -> Float:
    """(Q,) the highest (D + Σ gains · sign · δ)/IDCG; NaN where nothing is ever relevant.

    `known` (Q,) is D; `delta` (1, H), or (L, H) where it depends on the level, belongs to the
    unjudged documents, of which each query has `count` (Q,); `extra` (Q,) counts further ones with
    δ = 0, for queries in which no δ is above that.
    """
    highest = np.full(len(known), np.nan)
    begin = np.cumsum(count) - count
    total = levels.cumulative_discounts(count + extra, cutoff)
    most = len(total) - 1
    if kernels.native is not None and len(delta) == 1:
        starts, one_level = np.append(begin, delta.shape[1]), np.ascontiguousarray(delta[0])
        kernels.map_ranges(
            lambda first, last: kernels.native.gain(
                *(
                    one_level,
                    sign,
                    starts,
                    known,
                    levels.judged,
                    levels.step,
                    total,
                    extra,
                    highest,
                ),
                *(first, last),
            ),
            *(len(known), kernels.thread_count(delta.shape[1])),
        )
        return highest
    delta = sign * delta
    # Once the ideal list is full of the highest grade, only what adds to the sum can still help:
    # so only small numbers of documents matter, and the number of all with δ > 0.
    room = np.clip(most - levels.judged[-1] - extra, 0, count)
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
        ideal = [
            total[np.minimum(held[:, None] + number, most)] for held in levels.judged[:, chosen]
        ]
        level = [sums[at if nested else 0] for at in range(len(ideal))]
        above = known[chosen, None] + sum(
            step * s for step, s in zip(levels.step, level, strict=True)
        )
        below = sum(step * i for step, i in zip(levels.step, ideal, strict=True))
        with np.errstate(invalid="ignore", divide="ignore"):
            corner = np.where(below > 0, above / below, -np.inf)
        best = corner.max(axis=1)
        active = np.isfinite(best) & ((best >= 0) | nested)
        _dinkelbach(best, np.flatnonzero(active), known[chosen], level, ideal, levels.step, nested)
        highest[chosen] = np.where(np.isfinite(best), best, np.nan)
    return highest


def ndcg_by_rank(
    run: PartlyJudged, known: Float, levels: Levels, cutoff: int | None, best: bool
) -> Float:
    """(Q,) the highest or lowest nDCG, if nothing ties and all other ranks are unjudged."""
    total = levels.cumulative_discounts(run.unjudged_in_query + run.unlisted, cutoff)
    sums = np.cumsum(discounts(np.arange(int(run.span.max(initial=0)) + 1), cutoff))
    value = np.empty(len(known))
    kernels.map_ranges(
        lambda low, high: kernels.native.gain_in_rows(
            *(run.groups.rank, run.begin, run.span, sums, known, levels.judged, levels.step),
            *(total, run.unlisted, best, value, low, high),
        ),
        *(len(value), kernels.thread_count(len(run.groups.rank))),
    )
    return value


def _rows(count: Int) -> Iterator[tuple[Int, Int, Bool]]:
    """`tables`, and before them the queries without an unjudged document."""
    none = np.flatnonzero(count == 0)
    if len(none):
        yield none, np.zeros((1, 0), np.int64), np.zeros((len(none), 0), np.bool_)
    yield from tables(count, _CELLS)


def _best_counts(worth: list[Float]) -> list[Int]:
    """How many documents reach each level for the highest total, never more than the level below.

    `worth` (rows, n) of each level is what n documents of at least this level are worth.
    """
    best: list[Int] = []  # from the highest level down: the best count up to each number
    above = np.zeros_like(worth[0])
    for own_worth in reversed(worth):
        total = own_worth + above
        above = np.maximum.accumulate(total, axis=1)
        at = np.where(total == above, np.arange(total.shape[1]), 0)
        best.append(np.maximum.accumulate(at, axis=1))
    row = np.arange(len(worth[0]))
    counts = [best.pop()[:, -1]]
    while best:
        counts.append(best.pop()[row, counts[-1]])
    return counts


def _dinkelbach(
    best: Float,
    active: Int,
    known: Float,
    level: list[Float],
    ideal: list[Float],
    step: Float,
    nested: bool,
) -> None:
    """Dinkelbach's steps in place, for the rows `active`, until none rises.

    UnjudgedSet of a grade are holes of every lower one; where all levels have the same δ that is so
    without being asked for.
    """
    for _ in range(_MAX_STEPS):
        if not len(active):
            return
        above, under = known[active].copy(), np.zeros(len(active))
        worth = [
            times * (sums[active] - best[active, None] * norm[active])
            for sums, norm, times in zip(level, ideal, step, strict=True)
        ]
        counts = _best_counts(worth) if nested else [level.argmax(axis=1) for level in worth]
        for n, sums, norm, times in zip(counts, level, ideal, step, strict=True):
            above += times * sums[active, n]
            under += times * norm[active, n]
        with np.errstate(invalid="ignore", divide="ignore"):
            reached = np.where(under > 0, above / under, -np.inf)
        rises = reached > best[active]
        best[active[rises]] = reached[rises]
        active = active[rises]
