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
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankproof.arrays import Float, Int
from rankproof.measures.linear import log_discount
from rankproof.measures.ragged import tables
from rankproof.ties import TieGroups

_STEPS = 200  # of Dinkelbach's, which needs a handful


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """The grades that occur, and what they are worth."""

    grade: Int  # (L,) ascending, from the lowest above 0 to the top of the scale
    step: Float  # (L,) Δ
    held: Int  # (L, Q) judged documents of at least this grade
    exponential: bool

    def gain(self, grade: Int) -> Float:
        grade = np.maximum(grade, 0)
        return np.exp2(grade) - 1.0 if self.exponential else grade.astype(np.float64)


def levels(groups: TieGroups, top: int, gain: str) -> Levels:
    """The levels of these judgements on a scale up to `top`."""
    grades = np.unique(np.append(groups.pool.unsorted, top))
    grades = grades[grades > 0].astype(np.int64)
    exponential = gain == "exp"
    worth = np.exp2(grades) - 1.0 if exponential else grades.astype(np.float64)
    held = np.stack([groups.pool.count(int(g)) for g in grades])
    return Levels(grades, np.diff(worth, prepend=0.0), held, exponential)


def weights(rank: Int, cutoff: int | None) -> Float:
    """1/log₂(r + 1), 0 past the cutoff; ranks that are nowhere weigh 0."""
    inside = rank < (1 << 59) if cutoff is None else rank <= cutoff
    weight = np.zeros(len(rank))
    weight[inside] = 1.0 / np.log2(rank[inside] + 1.0)
    return weight


def _rows(query: Int, value: Float, extra: Int) -> Iterator[tuple[Int, Float]]:
    """Queries of like size, and S(0) … S(m) of each, −inf past its holes."""
    queries = len(extra)
    query = np.concatenate([query, np.repeat(np.arange(queries), extra)])
    value = np.concatenate([value, np.zeros(int(extra.sum()))])
    value = value[np.lexsort((-value, query))]
    count = np.bincount(query, minlength=queries)
    begin = np.cumsum(count) - count
    none = np.flatnonzero(count == 0)
    if len(none):
        yield none, np.zeros((len(none), 1))
    for chosen, column, real in tables(count):
        row = np.where(real, begin[chosen, None] + column, 0)
        sums = np.zeros((len(chosen), column.shape[1] + 1))
        np.cumsum(np.where(real, value[row], 0.0), axis=1, out=sums[:, 1:])
        sums[:, 1:][~real] = -np.inf
        yield chosen, sums


def ndcg_highest(
    known: Float, delta: Float, query: Int, extra: Int, steps: Levels, cutoff: int | None
) -> Float:
    """(Q,) the highest (D + Σ gains · δ)/IDCG; NaN where nothing is ever relevant.

    `known` (Q,) is D, `delta` and `query` (H,) belong to the holes, `extra` (Q,) counts holes with
    δ = 0.
    """
    highest = np.full(len(known), np.nan)
    most = int(steps.held.max(initial=0) + np.bincount(query, minlength=1).max() + extra.max())
    most = most if cutoff is None else min(most, cutoff)
    total = np.concatenate([[0.0], np.cumsum(1.0 / log_discount(most)[1:])])  # W
    last = len(total) - 1
    worth = float(steps.step.sum())
    for chosen, sums in _rows(query, delta, extra):
        number = np.arange(sums.shape[1])[None, :]
        held = steps.held[:, chosen]

        def ideal(at: int, n: Int) -> Float:
            return total[np.minimum(held[at][:, None] + n, last)]  # noqa: B023

        below = np.zeros(sums.shape)
        for at, step in enumerate(steps.step):
            below += step * ideal(at, number)
        with np.errstate(invalid="ignore", divide="ignore"):
            corner = (known[chosen, None] + worth * sums) / below
        corner = np.where((below > 0) & np.isfinite(sums), corner, -np.inf)
        best = corner.max(axis=1)
        going = np.flatnonzero(np.isfinite(best) & (best >= 0) & (sums.shape[1] > 1))
        for _ in range(_STEPS):
            if not len(going):
                break
            above, under = known[chosen[going]].copy(), np.zeros(len(going))
            for at, step in enumerate(steps.step):
                norm = total[np.minimum(held[at][going, None] + number, last)]
                n = (sums[going] - best[going, None] * norm).argmax(axis=1)
                rows = np.arange(len(going))
                above += step * sums[going, n]
                under += step * norm[rows, n]
            with np.errstate(invalid="ignore", divide="ignore"):
                next_ = np.where(under > 0, above / under, -np.inf)
            rises = next_ > best[going]
            best[going[rises]] = next_[rises]
            going = going[rises]
        highest[chosen] = np.where(np.isfinite(best), best, np.nan)
    return highest
