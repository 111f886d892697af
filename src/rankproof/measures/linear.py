"""Linear measures: M = (1/Z) · Σ_r w(r) · x(r).

The weight w depends on the rank alone and never rises with it; the gain x ≥ 0 on the document
alone, and is 0 for an unjudged one; Z on the query alone. Then, over all orderings of ties,

    E[M]   = (1/Z) Σ_groups x̄ · Σw
    var M  = (1/Z²) Σ_groups Σ(w−w̄)² · Σ(x−x̄)² / (g−1)
    max, min: the highest gains of each group first, last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from rankproof.data.ties import Pool, TieGroups
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.errors import InputError
from rankproof.measures.registry import Outcomes, measure

Gain = str | tuple[tuple[int, float], ...]  # linear, exp, or pairs of grade and gain
Weigh = Callable[[Float | float, Int], Float]  # gain, rank → weighted gain

_BLOCK = 1 << 21  # ranks spelled out at a time
_LEVELS = 64  # grades that are counted rather than sorted
_STEEPEST = 500  # the grade up to which squares of 2^grade are numbers


def limit(groups: TieGroups, cutoff: Int | int | None) -> Int:
    """(Q,) the last rank that counts."""
    if cutoff is None:
        return groups.listed
    return np.broadcast_to(np.asarray(cutoff, np.int64), groups.queries)


def linear(
    groups: TieGroups,
    gain: Float,
    norm: Array | float,
    cutoff: Int | int | None,
    weigh: Weigh | None = None,
    by: Literal["grade", "gain"] = "grade",
) -> Outcomes:
    """All figures of a linear measure; undefined where `norm` is 0.

    `gain` (J,) belongs to the judged documents. A gain that can fall as the grade rises needs
    by="gain", which sorts once more. Without `weigh` every rank up to the cutoff weighs 1.

    >>> from rankproof.measures.linear import linear
    >>> @rp.measure("Early", at="cutoff")
    ... def early(groups: rp.TieGroups, cutoff: int) -> rp.Outcomes:
    ...     return linear(groups, groups.grade * 1.0, 1.0, cutoff, weigh=lambda g, rank: g / rank)
    >>> rp.evaluate_arrays([[2, 1, 1]], [[0, 1, 0]], "Early@2")["Early@2"].expected
    0.25
    """
    cut = limit(groups, cutoff)
    doc_cut = cut[groups.doc_query]
    norm = np.broadcast_to(np.asarray(norm, np.float64), groups.queries)
    norm = np.where(norm > 0, norm, np.nan)

    def total(gain: Float, rank: Int) -> Float:
        """Both in rank order: then no order can exceed the best by a rounding error."""
        weighted = gain if weigh is None else weigh(gain, rank)
        counted = np.where(rank <= doc_cut, weighted, 0.0)
        if by == "gain" and weigh is None:  # fractions: equal sets give equal sums
            counted = counted[np.lexsort((-counted, groups.doc_query))]
        return groups.sum_by_query(groups.doc_query, counted)

    if groups.alone and isinstance(weigh, _Discount):
        columns = groups.query, groups.rank, gain
        return Outcomes.certain(kernels.discounted(*columns, weigh.table, cut) / norm)
    if groups.alone:
        return Outcomes.certain(total(gain, groups.rank) / norm)
    place = groups.place_by_grade if by == "grade" else groups.place(gain)
    descending = groups.by_place(place)
    ascending = groups.by_place(groups.judged[groups.doc_group] - 1 - place)
    inside = np.clip(cut[groups.query] - groups.first + 1, 0, groups.size)  # (G,) ranks that count
    gains = groups.sum_by_group(gain[descending])
    size = groups.size
    tied = np.flatnonzero((size > 1) & (inside > 0) & (gains > 0))
    if weigh is None:
        expected = gains * inside / size
        spread = (inside * (size - inside) / size)[tied]
    else:
        expected = np.where(inside > 0, weigh(gains, groups.first), 0.0)
        weight, spread = _weights(groups.first[tied], inside[tied], size[tied], weigh)
        expected[tied] = gains[tied] / size[tied] * weight
    variance = np.zeros(len(size))
    variance[tied] = spread * _dispersion(groups, gain[descending], gains)[tied] / (size[tied] - 1)
    return Outcomes(
        expected=groups.sum_by_query(groups.query, expected) / norm,
        min=total(gain[ascending], groups.worst_rank(place)[ascending]) / norm,
        max=total(gain[descending], groups.best_rank(place)[descending]) / norm,
        oblivious=total(gain, groups.rank) / norm,
        variance=groups.sum_by_query(groups.query, variance) / norm**2,
    )


def counted(
    groups: TieGroups, chosen: Bool, norm: Array | float, cutoff: Int | int | None
) -> Outcomes:
    """All figures of how many chosen documents are in the top k, over `norm`.

    `linear` for gains of 0 and 1, where a group with m of g documents chosen, t of which fit, adds
    a hypergeometric number: mean m·t/g, between max(0, m+t−g) and min(m, t).
    """
    cut = limit(groups, cutoff)
    norm = np.broadcast_to(np.asarray(norm, np.float64), groups.queries)
    norm = np.where(norm > 0, norm, np.nan)
    columns = groups.size, groups.first, groups.query, groups.start, groups.rank
    sums = kernels.counted(chosen, cut, *columns)
    if sums is not None:
        return Outcomes.of_sums(sums, norm)
    inside = chosen & (groups.rank <= cut[groups.doc_query])
    oblivious = groups.sum_by_query(groups.doc_query, inside) / norm
    g = groups.size
    t = np.clip(cut[groups.query] - groups.first + 1, 0, g)
    m = np.bincount(groups.doc_group[chosen], minlength=len(g))
    variance = m * (g - m) / g * (t * (g - t) / g) / np.maximum(g - 1, 1)
    return Outcomes(
        expected=groups.sum_by_query(groups.query, m * t / g) / norm,
        min=groups.sum_by_query(groups.query, np.maximum(m + t - g, 0)) / norm,
        max=groups.sum_by_query(groups.query, np.minimum(m, t)) / norm,
        oblivious=oblivious,
        variance=groups.sum_by_query(groups.query, variance) / norm**2,
    )


def _dispersion(groups: TieGroups, gain: Float, gains: Float) -> Float:
    """(G,) Σ(x−x̄)², in two passes so that equal gains give nothing."""
    mean = gains / groups.size
    judged = groups.sum_by_group((gain - mean[groups.doc_group]) ** 2)
    return judged + (groups.size - groups.judged) * mean**2


def _weights(first: Int, inside: Int, size: Int, weigh: Weigh) -> tuple[Float, Float]:
    """(T,) Σw and Σ(w−w̄)² over each group's ranks; ranks past the cutoff weigh 0."""
    total = np.empty(len(first))
    spread = np.empty(len(first))
    for chosen, rank, begin in spelled_out(first, inside):
        weight = weigh(1.0, rank)
        total[chosen] = np.add.reduceat(weight, begin)
        mean = total[chosen] / size[chosen]
        squares = (weight - np.repeat(mean, inside[chosen])) ** 2
        spread[chosen] = np.add.reduceat(squares, begin) + (size[chosen] - inside[chosen]) * mean**2
    return total, spread


def spelled_out(first: Int, count: Int) -> Iterator[tuple[slice, Int, Int]]:
    """Runs of ranks first, first+1, … (`count` ≥ 1 each), one after the other, in blocks.

    Yields which runs, their ranks, and where each run begins among these.
    """
    end = np.cumsum(count)
    low = 0
    while low < len(first):
        before = end[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(end, before + _BLOCK, side="right")))
        chosen = slice(low, high)
        begin = end[chosen] - count[chosen] - before
        rank = np.repeat(first[chosen] - begin, count[chosen]) + np.arange(end[high - 1] - before)
        yield chosen, rank, begin
        low = high


REL = {"rel": (1, math.inf)}


@measure("Hits", at="cutoff", limits=REL, endless=True)
def hits(groups: TieGroups, cutoff: int | None, rel: int = 1) -> Outcomes:
    """Relevant documents in the top k [T 9]: Σ_{r≤k} x(r).

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "Hits@2")["Hits@2"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (0.0, 0.5, 1.0)
    """
    return counted(groups, groups.grade >= rel, 1.0, cutoff)


@measure("P", at="cutoff", limits=REL, aliases=("precision", "prec"))
def precision(groups: TieGroups, cutoff: int, rel: int = 1) -> Outcomes:
    """Precision: the share of the top k that is relevant [T 11]; k counts even past the list.

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "P@2")["P@2"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (0.0, 0.25, 0.5)
    """
    return counted(groups, groups.grade >= rel, cutoff, cutoff)


@measure("R", at="cutoff", limits=REL, aliases=("recall",))
def recall(groups: TieGroups, cutoff: int | None, rel: int = 1) -> Outcomes:
    """Recall: the share of the R relevant documents that is in the top k [T 10].

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "R@2")["R@2"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (0.0, 0.25, 0.5)
    """
    return counted(groups, groups.grade >= rel, groups.relevant(rel), cutoff)


@measure("F1", at="cutoff", limits=REL, aliases=("f", "f_score", "f1_score"))
def f1(groups: TieGroups, cutoff: int, rel: int = 1) -> Outcomes:
    """Harmonic mean of P@k and R@k [T 12]: 2 · Hits / (k + R).

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "F1@2")["F1@2"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (0.0, 0.25, 0.5)
    """
    return counted(groups, groups.grade >= rel, (cutoff + groups.relevant(rel)) / 2, cutoff)


@measure("Rprec", limits=REL, aliases=("r_precision", "R-precision", "r-prec"))
def r_precision(groups: TieGroups, rel: int = 1) -> Outcomes:
    """R-precision: precision at rank R, the number of relevant documents.

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "Rprec")["Rprec"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (0.0, 0.25, 0.5)
    """
    relevant = groups.relevant(rel)
    return counted(groups, groups.grade >= rel, relevant, relevant)


@measure("Judged", at="cutoff", aliases=("judged_docs",))
def judged(groups: TieGroups, cutoff: int) -> Outcomes:
    """The share of the top k that has a judgement; of a shorter list, the share of all of it.

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "Judged@2")
    >>> found = found["Judged@2"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (1.0, 1.0, 1.0)
    """
    shown = np.clip(groups.listed, 1, cutoff)  # nothing listed: 0 of 1
    return counted(groups, groups.grade >= 0, shown, cutoff)


_PERSISTENCE = {"p": (0.0, 1.0), "rel": (1, math.inf), "max": (1, math.inf)}


@measure("RBP", at="cutoff", limits=_PERSISTENCE)
def rbp(
    groups: TieGroups,
    cutoff: int | None,
    p: float = 0.8,
    rel: int = 1,
    max: int | None = None,  # noqa: A002
) -> Outcomes:
    """Rank-biased precision: (1−p) Σ_r p^(r−1) x(r), a reader who goes on with probability p.

    x is 1 for a relevant document; with `max`, the highest grade of the scale, x = grade/max: the
    graded form, as in TREC-COVID's RBP(p=0.5,max=2).

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "RBP(p=0.5)")
    >>> found = found["RBP(p=0.5)"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (0.188, 0.25, 0.312)
    """
    gain = (groups.grade >= rel).astype(np.float64)
    if max is not None:
        gain = np.minimum(groups.grade, max) / max
    return linear(groups, gain, 1.0, cutoff, _patience(p))


@measure("RBPResidual", at="cutoff", limits=_PERSISTENCE, aliases=("rbp_resid",))
def rbp_residual(groups: TieGroups, cutoff: int | None, p: float = 0.8) -> Outcomes:
    """What RBP may still gain: the weight of ranks that nobody judged, past the end included.

    1 − (1−p) Σ_r p^(r−1) [judged].

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "RBPResidual")
    >>> found = found["RBPResidual"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (0.41, 0.41, 0.41)
    """
    known = linear(groups, (groups.grade >= 0).astype(np.float64), 1.0, cutoff, _patience(p))
    return Outcomes(
        1.0 - known.expected,
        1.0 - known.max,
        1.0 - known.min,
        1.0 - known.oblivious,
        known.variance,
    )


def _patience(p: float) -> Weigh:
    def weigh(gain: Float | float, rank: Int) -> Float:
        return np.asarray(gain * (1.0 - p) * p ** (rank - 1.0))

    return weigh


@measure("nDCG", at="cutoff", limits=REL, aliases=("ndcg_cut", "ndcg_burges(gain='exp')"))
def ndcg(
    groups: TieGroups,
    cutoff: int | None,
    gain: Literal["linear", "exp"] | tuple[tuple[int, float], ...] = "linear",
    rel: int = 1,
) -> Outcomes:
    """Normalised discounted cumulative gain [T 14–16]: Σ_{r≤k} x(r)/log₂(r+1) over the ideal.

    The gain x of a document is its grade, or 2^grade − 1 with gain='exp', or what gain={1: 1, 2: 3}
    says; a grade that is not named there is worth itself. Grades are counted from `rel`, the lowest
    that gains anything: with rel=3 grade 3 counts as 1, and 2 as nothing. A cutoff also cuts the
    ideal order; without one the ideal holds every judged document.

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "nDCG@3")["nDCG@3"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (0.307, 0.347, 0.387)
    """
    pool = groups.pool
    longest = int(max(groups.listed.max(initial=0), np.diff(pool.start).max(initial=0)))
    if cutoff is not None:
        longest = min(longest, cutoff)
    weigh = _Discount(log_discount(longest))
    top = counted_from(rel, _highest(pool)) if gain == "exp" else np.zeros(groups.queries, np.int64)
    worth = graded(counted_from(rel, groups.grade), gain, top[groups.doc_query])
    return linear(
        groups,
        worth,
        _ideal(pool, gain, rel, top, weigh, longest),
        cutoff,
        weigh,
        by="grade" if isinstance(gain, str) else "gain",
    )


def _ideal(pool: Pool, gain: Gain, rel: int, top: Int, weigh: _Discount, longest: int) -> Float:
    """(Q,) DCG of the best order."""
    levels = int(pool.unsorted.max(initial=0)) + 1
    if gain == "linear" and levels <= _LEVELS:
        worth = counted_from(rel, np.arange(levels)).astype(np.float64)
        found = kernels.ideal(pool.start, pool.unsorted, worth, weigh.table, longest)
        if found is not None:
            return found
    counts: Bool = pool.place <= longest
    query = pool.query[counts]
    if isinstance(gain, str):
        best = graded(counted_from(rel, pool.grade[counts]), gain, top[query])
    elif rel != 1:
        raise InputError("rel beside gains of their own", place="nDCG", remedy="leave rel out")
    else:  # a higher grade may be worth less
        worth = graded(pool.unsorted, gain, top[pool.query])
        best = worth[np.lexsort((-worth, pool.query))][counts]
    sums = np.bincount(query, weights=weigh(best, pool.place[counts]), minlength=len(top))
    return sums.astype(np.float64)


@measure("DCG", at="cutoff", limits=REL, aliases=("dcg_burges(gain='exp')",), endless=True)
def dcg(
    groups: TieGroups, cutoff: int | None, gain: Literal["linear", "exp"] = "linear", rel: int = 1
) -> Outcomes:
    """Discounted cumulative gain [T 14]: Σ_{r≤k} x(r)/log₂(r+1), with the gains of nDCG.

    It has no upper bound, and a query with more to find weighs more: nDCG is what to compare.

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "DCG@3")["DCG@3"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (0.5, 0.565, 0.631)
    """
    grade = counted_from(rel, groups.grade)
    if gain == "exp" and grade.max(initial=0) > _STEEPEST:
        raise InputError(
            f"2^grade of grade {grade.max()}", place="DCG", remedy="use gain='linear', or nDCG"
        )
    longest = int(groups.listed.max(initial=0))
    worth = graded(grade, gain, np.zeros(1, np.int64))
    return linear(groups, worth, 1.0, cutoff, _Discount(log_discount(longest)))


@dataclass(frozen=True, slots=True)
class _Discount:
    """Gains over what their rank costs; past the end of the table as at its end."""

    table: Float  # by rank

    def __call__(self, gain: Float | float, rank: Int) -> Float:
        return np.asarray(gain / self.table[np.minimum(rank, len(self.table) - 1)])


def counted_from(rel: int, grade: Int) -> Int:
    """Grades counted from the lowest that gains anything."""
    return grade if rel == 1 else np.maximum(grade - (rel - 1), 0)


def graded(grade: Int, gain: Gain, top: Int) -> Float:
    """The gain of a grade; 2^grade − 1 is scaled by 2^−top, which leaves every ratio as it is.

    `top` is the highest grade of the query, so that nothing overflows, whatever the grades are.
    """
    if gain == "exp":
        return np.asarray(np.exp2(grade - top) - np.exp2(-top))
    worth = grade.astype(np.float64)
    for level, told in () if isinstance(gain, str) else gain:
        worth[grade == level] = told
    return worth


def _highest(pool: Pool) -> Int:
    """(Q,) the highest grade of each query."""
    top = np.zeros(len(pool.start) - 1, np.int64)
    np.maximum.at(top, pool.query, pool.unsorted)
    return top


def log_discount(ranks: int) -> Float:
    """log₂(r+1) for r = 0 … ranks, from the C library as trec_eval has it; index is the rank."""
    return _log_discounts(ranks.bit_length())[: ranks + 1]


@cache
def _log_discounts(bits: int) -> Float:
    """Of all ranks of so many bits: one number after the other takes its time, so but once."""
    found = np.fromiter(map(math.log2, range(1, (1 << bits) + 1)), np.float64, 1 << bits)
    found.flags.writeable = False
    return found
