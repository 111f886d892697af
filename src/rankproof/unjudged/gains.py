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
    """The grades that occur, with their gains."""

    grade: Int  # (L,) ascending, from the lowest that gains anything to the top of the scale
    step: Float  # (L,) Δ, the gain of each level above the one below
    judged: Int  # (L, Q) judged documents of at least this grade
    gain_kind: Gain
    rel: int  # the grade that counts as 1

    def cumulative_discounts(self, unjudged: Int, cutoff: int | None) -> Float:
        """W(n) for every n an ideal list can need, with (Q,) unjudged documents in each query."""
        longest = int((self.judged + unjudged).max(initial=0))
        longest = longest if cutoff is None else min(longest, cutoff)
        return np.concatenate([[0.0], np.cumsum(1.0 / log_discount(longest)[1:])])

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
    occurring = groups.pool.unsorted
    if 0 <= occurring.max(initial=0) < len(occurring):  # counting is faster than sorting
        occurring = np.flatnonzero(np.bincount(occurring))
    grades = np.unique(np.append(occurring, top))
    lowest = 0 if not isinstance(gain, str) and dict(gain).get(0) else rel
    grades = grades[grades >= lowest].astype(np.int64)
    if not len(grades):  # nothing can gain: one level that is worth nothing
        no_judged = np.zeros((1, groups.queries), np.int64)
        return Levels(np.array([rel]), np.zeros(1), no_judged, gain, rel)
    gains = gain_of(counted_from(rel, grades), gain, counted_from(rel, grades[-1:]))
    step = np.diff(gains, prepend=0.0)
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
    unlisted: Int,
    levels: Levels,
    cutoff: int | None,
    sign: float = 1.0,
) -> Float:
    """(Q,) the highest (D + Σ gains · sign · δ)/IDCG; NaN where nothing is ever relevant.

    `known` (Q,) is D; `delta` (1, H), or (L, H) where it depends on the level, belongs to the
    unjudged documents, of which each query has `count` (Q,); `unlisted` (Q,) counts further ones
    with δ = 0, for queries in which no δ is above that.
    """
    highest = np.full(len(known), np.nan)
    begin = np.cumsum(count) - count
    total = levels.cumulative_discounts(count + unlisted, cutoff)  # W
    if kernels.native is not None and len(delta) == 1:
        starts, one_level = np.append(begin, delta.shape[1]), np.ascontiguousarray(delta[0])
        kernels.map_ranges(
            lambda first, last: kernels.native.gain(
                *(one_level, sign, starts, known, levels.judged, levels.step),
                *(total, unlisted, highest, first, last),
            ),
            *(len(known), kernels.thread_count(delta.shape[1])),
        )
        return highest
    delta = sign * delta
    # Once the ideal list is full of the highest grade, only documents with δ > 0 can still help:
    # so only small numbers of documents matter, and the number of all with δ > 0.
    longest = len(total) - 1
    room = np.clip(longest - levels.judged[-1] - unlisted, 0, count)
    query = np.repeat(np.arange(len(unlisted)), count)
    helping = np.bincount(query[delta[-1] > 0], minlength=len(unlisted))
    last = np.maximum(room, helping)
    for chosen, column, is_cell in _rows(count):
        row = np.where(is_cell, begin[chosen, None] + column, 0)
        rising = np.sort(np.where(is_cell, delta[:, row], -np.inf), axis=2)
        sums = np.zeros((len(delta), len(chosen), column.shape[1] + 1))  # S
        np.cumsum(rising[:, :, ::-1], axis=2, out=sums[:, :, 1:])
        width = int(room[chosen].max(initial=0)) + 1
        number = np.broadcast_to(np.arange(width), (len(chosen), width))
        number = np.minimum(number, last[chosen, None])
        number = np.concatenate([number, last[chosen, None]], axis=1)
        sums = np.take_along_axis(sums, number[None], axis=2)
        number += unlisted[chosen, None]
        ideal = total[np.minimum(levels.judged[:, chosen, None] + number, longest)]
        fraction = _LevelSums(known[chosen], sums, ideal, levels.step)
        highest[chosen] = fraction.maximum()
    return highest


def ndcg_by_rank(
    run: PartlyJudged, known: Float, levels: Levels, cutoff: int | None, best: bool
) -> Float:
    """(Q,) the highest or lowest nDCG of lists without ties, by compiled code.

    Every rank of the list without a judged document has an unjudged one; `known` (Q,) is the gain
    of the judged documents.
    """
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
    empty = np.flatnonzero(count == 0)
    if len(empty):
        yield empty, np.zeros((1, 0), np.int64), np.zeros((len(empty), 0), np.bool_)
    yield from tables(count, _CELLS)


def _best_counts(worth: Float) -> Int:
    """(L, rows) how many documents reach each level for the highest total.

    `worth` (L, rows, n) of each level is what n documents of at least this level are worth. No
    level has more documents than the level below.
    """
    best_to: list[Int] = []  # from the highest level down: the best count up to each number
    above = np.zeros_like(worth[0])
    for level_worth in reversed(worth):
        total = level_worth + above
        above = np.maximum.accumulate(total, axis=1)
        is_best = np.where(total == above, np.arange(total.shape[1]), 0)
        best_to.append(np.maximum.accumulate(is_best, axis=1))
    row = np.arange(worth.shape[1])
    counts = [best_to.pop()[:, -1]]
    while best_to:
        counts.append(best_to.pop()[row, counts[-1]])
    return np.stack(counts)


@dataclass(frozen=True, slots=True, eq=False)
class _LevelSums:
    """(D + Σ_g Δ_g S_g(n_g)) / Σ_g Δ_g W(N_g + n_g) for some queries (rows) and numbers n (N)."""

    known: Float  # (rows,) D
    sums: Float  # (L, rows, N) S of each level; (1, rows, N) if it is the same for all
    ideal: Float  # (L, rows, N) W
    step: Float  # (L,) Δ

    def maximum(self) -> Float:
        """(rows,) the highest value: from the best corner on, by Dinkelbach's algorithm.

        Documents of a grade are documents of every lower level. If all levels have the same δ, the
        best numbers fulfill that by themselves; else `_best_counts` chooses among those that do.
        """
        depends_on_level = len(self.sums) > 1
        best = self._best_corner()
        active = np.flatnonzero(np.isfinite(best) & ((best >= 0) | depends_on_level))
        for _ in range(_MAX_STEPS):
            if not len(active):
                break
            gap = self.sums[:, active] - best[active, None] * self.ideal[:, active]
            worth = self.step[:, None, None] * gap
            counts = _best_counts(worth) if depends_on_level else worth.argmax(axis=2)
            value = self._value(active, counts)
            rises = value > best[active]
            best[active[rises]] = value[rises]
            active = active[rises]
        return np.where(np.isfinite(best), best, np.nan)

    def _best_corner(self) -> Float:
        """(rows,) the highest value with the same number of documents on all levels."""
        levels = list(zip(self.step, self._sums_by_level(), self.ideal, strict=True))
        gained = sum(step * sums for step, sums, _ in levels)
        norm = sum(step * ideal for step, _, ideal in levels)
        best: Float = _quotient(self.known[:, None] + gained, norm).max(axis=1)
        return best

    def _value(self, rows: Int, counts: Int) -> Float:
        """The value of these rows with `counts` (L, rows) documents on each level."""
        numerator, denominator = self.known[rows].copy(), np.zeros(len(rows))
        levels = zip(self.step, self._sums_by_level(), self.ideal, counts, strict=True)
        for step, sums, ideal, count in levels:
            numerator += step * sums[rows, count]
            denominator += step * ideal[rows, count]
        return _quotient(numerator, denominator)

    def _sums_by_level(self) -> Float:
        return np.broadcast_to(self.sums, self.ideal.shape)


def _quotient(numerator: Float, denominator: Float) -> Float:
    """The quotient; −∞ where the denominator is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(denominator > 0, numerator / denominator, -np.inf)
