"""Linear measures: M = (1/Z) · Σ_r w(r) · x(r).

The weight w depends on the rank alone and never rises with it; the gain x ≥ 0 on the document
alone, and is 0 for an unjudged one; the norm Z on the query alone. Then, over all orders of ties,

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
from rankproof.measures.outcomes import Outcomes
from rankproof.measures.properties import CountOverNorm, CountOverRelevant, Extremes, GainSum
from rankproof.measures.registry import Measure, measure

Gain = str | tuple[tuple[int, float], ...]  # linear, exp, or pairs of grade and gain
Weigh = Callable[[Float | float, Int], Float]  # gain, rank → weighted gain

_BLOCK = 1 << 21  # ranks in memory at a time
_COUNTED_GRADES = 64  # up to this grade the ideal order is counted rather than sorted
_LARGEST_EXPONENT = 500  # the grade up to which squares of 2^grade are finite


def last_rank(groups: TieGroups, cutoff: Int | int | None) -> Int:
    """(Q,) the last rank that counts: the cutoff, or the end of the list."""
    if cutoff is None:
        return groups.listed
    return np.broadcast_to(np.asarray(cutoff, np.int64), groups.queries)


def last_listed_rank(groups: TieGroups, cutoff: Int | int | None) -> Int:
    """(Q,) the last rank that counts and is listed, which may be inside a tie."""
    return np.minimum(last_rank(groups, cutoff), groups.listed)


def linear(
    groups: TieGroups,
    gain: Float,
    norm: Array | float,
    cutoff: Int | int | None,
    weigh: Weigh | None = None,
    by: Literal["grade", "gain"] = "grade",
) -> Outcomes:
    """Compute a linear measure; it is undefined where `norm` is 0.

    `gain` (J,) belongs to the judged documents. A gain that can fall as the grade rises needs
    by="gain", which sorts once more. Without `weigh` every rank up to the cutoff weighs 1.

    >>> from rankproof.measures.linear import linear
    >>> @rp.measure("Early", at="cutoff")
    ... def early(groups: rp.TieGroups, cutoff: int) -> rp.Outcomes:
    ...     return linear(groups, groups.grade * 1.0, 1.0, cutoff, weigh=lambda g, rank: g / rank)
    >>> rp.evaluate_arrays([[2, 1, 1]], [[0, 1, 0]], "Early@2")["Early@2"].expected
    0.25
    """
    last = last_listed_rank(groups, cutoff)
    norm = _positive_norm(groups, norm)

    def total(gain: Float, rank: Int) -> Float:
        """(Q,) sums in rank order: then no order can exceed the best by a rounding error."""
        weighted = gain if weigh is None else weigh(gain, rank)
        within = np.where(rank <= last[groups.doc_query], weighted, 0.0)
        if by == "gain" and weigh is None:  # fractions: equal sets give equal sums
            within = within[np.lexsort((-within, groups.doc_query))]
        return groups.sum_by_query(groups.doc_query, within)

    if groups.alone and isinstance(weigh, _Discount):
        sums = kernels.discounted_sum(groups.query, groups.rank, gain, weigh.table, last)
        return Outcomes.certain(sums / norm)
    if groups.alone:
        return Outcomes.certain(total(gain, groups.rank) / norm)
    place = groups.place_by_grade if by == "grade" else groups.place(gain)
    descending = groups.by_place(place)
    ascending = groups.by_place(groups.judged[groups.doc_group] - 1 - place)
    expected, variance = _moments(groups, gain[descending], last, weigh)
    return Outcomes(
        expected=groups.sum_by_query(groups.query, expected) / norm,
        min=total(gain[ascending], groups.worst_rank(place)[ascending]) / norm,
        max=total(gain[descending], groups.best_rank(place)[descending]) / norm,
        oblivious=total(gain, groups.rank) / norm,
        variance=groups.sum_by_query(groups.query, variance) / norm**2,
    )


def _positive_norm(groups: TieGroups, norm: Array | float) -> Float:
    """(Q,) the norm, NaN where it is 0."""
    norm = np.broadcast_to(np.asarray(norm, np.float64), groups.queries)
    return np.where(norm > 0, norm, np.nan)


def _moments(groups: TieGroups, gain: Float, last: Int, weigh: Weigh | None) -> tuple[Float, Float]:
    """(G,) mean and variance of each group's part, without the norm; `gain` falls in each group."""
    size = groups.size
    inside = np.clip(last[groups.query] - groups.first + 1, 0, size)  # (G,) ranks that count
    total_gain = groups.sum_by_group(gain)
    tied = np.flatnonzero((size > 1) & (inside > 0) & (total_gain > 0))
    if weigh is None:
        expected = total_gain * inside / size
        spread = (inside * (size - inside) / size)[tied]
    else:
        expected = np.where(inside > 0, weigh(total_gain, groups.first), 0.0)
        weight, spread = _weights(groups.first[tied], inside[tied], size[tied], weigh)
        expected[tied] = total_gain[tied] / size[tied] * weight
    variance = np.zeros(len(size))
    variance[tied] = spread * _dispersion(groups, gain, total_gain)[tied] / (size[tied] - 1)
    return expected, variance


def counted(
    groups: TieGroups, chosen: Bool, norm: Array | float, cutoff: Int | int | None
) -> Outcomes:
    """Compute how many chosen documents (J,) are in the top k, over `norm`.

    The case of `linear` with gains of 0 and 1. A group of g documents, m of them chosen and t of
    its ranks in the top k, adds a hypergeometric number with mean m·t/g, at least max(0, m+t−g) and
    at most min(m, t).
    """
    last = last_listed_rank(groups, cutoff)
    norm = _positive_norm(groups, norm)
    g = groups.size
    sums = kernels.count_in_top(
        chosen, last, g, groups.first, groups.query, groups.start, groups.rank
    )
    if sums is not None:
        return Outcomes.from_sums(sums, norm)
    inside = chosen & (groups.rank <= last[groups.doc_query])
    t = np.clip(last[groups.query] - groups.first + 1, 0, g)
    m = np.bincount(groups.doc_group[chosen], minlength=len(g))
    variance = m * (g - m) / g * (t * (g - t) / g) / np.maximum(g - 1, 1)
    return Outcomes(
        expected=groups.sum_by_query(groups.query, m * t / g) / norm,
        min=groups.sum_by_query(groups.query, np.maximum(m + t - g, 0)) / norm,
        max=groups.sum_by_query(groups.query, np.minimum(m, t)) / norm,
        oblivious=groups.sum_by_query(groups.doc_query, inside) / norm,
        variance=groups.sum_by_query(groups.query, variance) / norm**2,
    )


def _dispersion(groups: TieGroups, gain: Float, total_gain: Float) -> Float:
    """(G,) Σ(x−x̄)², in two passes so that equal gains give exactly 0."""
    mean = total_gain / groups.size
    judged = groups.sum_by_group((gain - mean[groups.doc_group]) ** 2)
    return judged + (groups.size - groups.judged) * mean**2


def _weights(first: Int, inside: Int, size: Int, weigh: Weigh) -> tuple[Float, Float]:
    """(T,) Σw and Σ(w−w̄)² over each group's ranks; ranks past the cutoff weigh 0."""
    total = np.empty(len(first))
    spread = np.empty(len(first))
    for chosen, rank, begin in consecutive_ranks(first, inside):
        weight = weigh(1.0, rank)
        total[chosen] = np.add.reduceat(weight, begin)
        mean = total[chosen] / size[chosen]
        squares = (weight - np.repeat(mean, inside[chosen])) ** 2
        spread[chosen] = np.add.reduceat(squares, begin) + (size[chosen] - inside[chosen]) * mean**2
    return total, spread


def consecutive_ranks(first: Int, count: Int) -> Iterator[tuple[slice, Int, Int]]:
    """Yield the ranks first, first+1, … of each row (`count` ≥ 1 of them), in blocks of rows.

    A block is a slice of rows, all their ranks in one array, and the index where each row starts.
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


# --------------------------------------------------------------------- relevant documents counted

REL = {"rel": (1, math.inf)}


def within_cutoff(measure: Measure, rank: Int) -> Bool:
    """(N,) ranks that count; an unlisted document has a rank past every cutoff."""
    return rank < (1 << 59) if measure.cutoff is None else rank <= measure.cutoff


def one(groups: TieGroups, cutoff: int | None) -> float:
    """The norm of measures that are counts."""
    return 1.0


def places(groups: TieGroups, cutoff: int | None) -> float:
    """The norm of measures that are a share of the top k, even where the list is shorter."""
    return float(cutoff or 1)


def all_relevant(relevant: Int, cutoff: Int) -> Float:
    """The norm of recall: R."""
    return relevant.astype(np.float64)


def _mean_of_both(relevant: Int, cutoff: Int) -> Float:
    """The norm of F1: (k + R)/2."""
    return np.asarray((cutoff + relevant) / 2.0, np.float64)


def _one_each(measure: Measure, rank: Int) -> Float:
    return within_cutoff(measure, rank) / 1.0


def _share_each(measure: Measure, rank: Int) -> Float:
    return within_cutoff(measure, rank) / float(measure.cutoff or 1)


@measure(
    "Hits",
    at="cutoff",
    limits=REL,
    endless=True,
    step=1.0,
    rising=True,
    additive=_one_each,
    unjudged=CountOverNorm(one),
    reads="listed",
    splits_ties=True,
)
def hits(groups: TieGroups, cutoff: int | None, rel: int = 1) -> Outcomes:
    """Relevant documents in the top k [T 9]: Σ_{r≤k} x(r).

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "Hits@2")["Hits@2"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.0, 0.5, 1.0)
    """
    return counted(groups, groups.grade >= rel, 1.0, cutoff)


@measure(
    "P",
    at="cutoff",
    limits=REL,
    aliases=("precision", "prec"),
    meaning="The share of the top k that is relevant.",
    step="1/k",
    rising=True,
    additive=_share_each,
    unjudged=CountOverNorm(places),
    reads="listed",
    splits_ties=True,
)
def precision(groups: TieGroups, cutoff: int, rel: int = 1) -> Outcomes:
    """Precision: the share of the top k that is relevant [T 11]; k counts even past the list.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "P@2")["P@2"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.0, 0.25, 0.5)
    """
    return counted(groups, groups.grade >= rel, cutoff, cutoff)


@measure(
    "R",
    at="cutoff",
    limits=REL,
    aliases=("recall",),
    meaning="The share of all relevant passages that is in the top k.",
    unjudged=CountOverRelevant(all_relevant),
    reads="relevant",
    splits_ties=True,
)
def recall(groups: TieGroups, cutoff: int | None, rel: int = 1) -> Outcomes:
    """Recall: the share of the R relevant documents that is in the top k [T 10].

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "R@2")["R@2"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.0, 0.25, 0.5)
    """
    return counted(groups, groups.grade >= rel, groups.relevant(rel), cutoff)


@measure(
    "F1",
    at="cutoff",
    limits=REL,
    aliases=("f", "f_score", "f1_score"),
    rising=True,
    unjudged=CountOverRelevant(_mean_of_both),
    reads="relevant",
    splits_ties=True,
)
def f1(groups: TieGroups, cutoff: int, rel: int = 1) -> Outcomes:
    """Harmonic mean of P@k and R@k [T 12]: 2 · Hits / (k + R).

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "F1@2")["F1@2"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.0, 0.25, 0.5)
    """
    return counted(groups, groups.grade >= rel, (cutoff + groups.relevant(rel)) / 2, cutoff)


@measure(
    "Rprec",
    limits=REL,
    aliases=("r_precision", "R-precision", "r-prec"),
    unjudged="R-precision",
    reads="relevant",
    splits_ties=True,
)
def r_precision(groups: TieGroups, rel: int = 1) -> Outcomes:
    """R-precision: precision at rank R, the number of relevant documents.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "Rprec")["Rprec"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.0, 0.25, 0.5)
    """
    relevant = groups.relevant(rel)
    return counted(groups, groups.grade >= rel, relevant, relevant)


@measure(
    "Judged",
    at="cutoff",
    aliases=("judged_docs",),
    meaning="The share of the top k that somebody judged.",
    unjudged=Extremes(low=None, high="lowest"),
    best_by_grade=False,
    splits_ties=True,
)
def judged(groups: TieGroups, cutoff: int) -> Outcomes:
    """The share of the top k that has a judgement; of a shorter list, the share of all of it.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "Judged@2")["Judged@2"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (1.0, 1.0, 1.0)
    """
    shown = np.clip(groups.listed, 1, cutoff)  # nothing listed: 0 of 1
    return counted(groups, groups.grade >= 0, shown, cutoff)


# ------------------------------------------------------------------------- rank-biased precision

_PERSISTENCE = {"p": (0.0, 1.0), "rel": (1, math.inf), "max": (1, math.inf)}


def _persistence(p: float) -> Weigh:
    """x · (1−p) · p^(r−1)."""

    def weigh(gain: Float | float, rank: Int) -> Float:
        return np.asarray(gain * (1.0 - p) * p ** (rank - 1.0))

    return weigh


def _rbp_gain(measure: Measure, grade: Int) -> Float:
    rel, top = measure.parameters["rel"], measure.parameters["max"]
    if top is None:
        return np.asarray(grade >= rel, np.float64)
    return np.asarray(np.minimum(grade, top) / top, np.float64)


def _rbp_weight(measure: Measure, rank: Int) -> Float:
    p = measure.parameters["p"]
    inside = within_cutoff(measure, rank) & (rank > 0)
    weight: Float = (1.0 - p) * p ** np.where(inside, rank - 1.0, 0.0)
    return np.where(inside, weight, 0.0)


@measure(
    "RBP",
    at="cutoff",
    limits=_PERSISTENCE,
    rising=True,
    additive=_rbp_weight,
    unjudged=GainSum(_rbp_gain, _rbp_weight),
    reads="listed",
    splits_ties=True,
)
def rbp(
    groups: TieGroups,
    cutoff: int | None,
    p: float = 0.8,
    rel: int = 1,
    max: int | None = None,  # noqa: A002
) -> Outcomes:
    """Rank-biased precision: (1−p) Σ_r p^(r−1) x(r); a reader goes on with probability p.

    x is 1 for a relevant document; with `max`, the highest grade of the scale, x = grade/max: the
    graded form, as in TREC-COVID's RBP(p=0.5,max=2).

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "RBP(p=0.5)")["RBP(p=0.5)"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.188, 0.25, 0.312)
    """
    gain = (groups.grade >= rel).astype(np.float64)
    if max is not None:
        gain = np.minimum(groups.grade, max) / max
    return linear(groups, gain, 1.0, cutoff, _persistence(p))


@measure(
    "RBPResidual",
    at="cutoff",
    limits=_PERSISTENCE,
    aliases=("rbp_resid",),
    unjudged=Extremes(low="lowest", high=None),
    splits_ties=True,
)
def rbp_residual(groups: TieGroups, cutoff: int | None, p: float = 0.8) -> Outcomes:
    """The most that RBP could rise: the weight of unjudged ranks and of those past the end.

    1 − (1−p) Σ_r p^(r−1) [judged].

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "RBPResidual")["RBPResidual"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.41, 0.41, 0.41)
    """
    known = linear(groups, (groups.grade >= 0).astype(np.float64), 1.0, cutoff, _persistence(p))
    return Outcomes(
        expected=1.0 - known.expected,
        min=1.0 - known.max,
        max=1.0 - known.min,
        oblivious=1.0 - known.oblivious,
        variance=known.variance,
    )


# ---------------------------------------------------------------------- discounted cumulative gain


@measure(
    "nDCG",
    at="cutoff",
    limits=REL,
    aliases=("ndcg_cut", "ndcg_burges(gain='exp')"),
    meaning="How near the order of the top k is to the best order, from 0 to 1; what stands first "
    "counts most.",
    unjudged="ideal gain",
    reads="best",
    splits_ties=True,
)
def ndcg(
    groups: TieGroups,
    cutoff: int | None,
    gain: Literal["linear", "exp"] | tuple[tuple[int, float], ...] = "linear",
    rel: int = 1,
) -> Outcomes:
    """Normalised discounted cumulative gain [T 14–16]: Σ_{r≤k} x(r)/log₂(r+1) over the ideal.

    The gain x of a document is its grade, 2^grade − 1 with gain='exp', or as in gain={1: 1, 2: 3},
    where a grade that is not listed is its own gain. Grades are counted from `rel`, the lowest that
    gains anything: with rel=3 grade 3 counts as 1, and 2 as 0. A cutoff also cuts the ideal order;
    without one the ideal has every judged document.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "nDCG@3")["nDCG@3"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.307, 0.347, 0.387)
    """
    pool = groups.pool
    longest = int(max(groups.listed.max(initial=0), np.diff(pool.start).max(initial=0)))
    if cutoff is not None:
        longest = min(longest, cutoff)
    weigh = _Discount(log_discount(longest))
    top = np.zeros(groups.queries, np.int64)
    if gain == "exp":
        top = counted_from(rel, _highest_grade(pool))
    gains = gain_of(counted_from(rel, groups.grade), gain, top[groups.doc_query])
    ideal = _ideal(pool, gain, rel, top, weigh, longest)
    by: Literal["grade", "gain"] = "grade" if isinstance(gain, str) else "gain"
    return linear(groups, gains, ideal, cutoff, weigh, by=by)


def _ideal(pool: Pool, gain: Gain, rel: int, top: Int, weigh: _Discount, longest: int) -> Float:
    """(Q,) DCG of the best order."""
    grades = int(pool.unsorted.max(initial=0)) + 1
    if gain == "linear" and grades <= _COUNTED_GRADES:
        gains = counted_from(rel, np.arange(grades)).astype(np.float64)
        ideal = kernels.ideal_gain(pool.start, pool.unsorted, gains, weigh.table, longest)
        if ideal is not None:
            return ideal
    inside: Bool = pool.place <= longest
    query = pool.query[inside]
    if isinstance(gain, str):
        best = gain_of(counted_from(rel, pool.grade[inside]), gain, top[query])
    elif rel != 1:
        raise InputError("rel beside gains of their own", place="nDCG", remedy="leave rel out")
    else:  # a higher grade may be worth less
        gains = gain_of(pool.unsorted, gain, top[pool.query])
        best = gains[np.lexsort((-gains, pool.query))][inside]
    sums = np.bincount(query, weights=weigh(best, pool.place[inside]), minlength=len(top))
    return sums.astype(np.float64)


def _dcg_gain(measure: Measure, grade: Int) -> Float:
    rel, gain = measure.parameters["rel"], measure.parameters["gain"]
    return gain_of(counted_from(rel, grade), gain, np.zeros(1, np.int64))


def _dcg_weight(measure: Measure, rank: Int) -> Float:
    return discounts(rank, measure.cutoff)


@measure(
    "DCG",
    at="cutoff",
    limits=REL,
    aliases=("dcg_burges(gain='exp')",),
    endless=True,
    rising=True,
    unjudged=GainSum(_dcg_gain, _dcg_weight),
    reads="listed",
    splits_ties=True,
)
def dcg(
    groups: TieGroups, cutoff: int | None, gain: Literal["linear", "exp"] = "linear", rel: int = 1
) -> Outcomes:
    """Discounted cumulative gain [T 14]: Σ_{r≤k} x(r)/log₂(r+1), with the gains of nDCG.

    It has no upper bound, and a query with more relevant documents weighs more: compare by nDCG.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "DCG@3")["DCG@3"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.5, 0.565, 0.631)
    """
    grade = counted_from(rel, groups.grade)
    if gain == "exp" and grade.max(initial=0) > _LARGEST_EXPONENT:
        raise InputError(
            f"2^grade of grade {grade.max()}", place="DCG", remedy="use gain='linear', or nDCG"
        )
    longest = int(groups.listed.max(initial=0))
    gains = gain_of(grade, gain, np.zeros(1, np.int64))
    return linear(groups, gains, 1.0, cutoff, _Discount(log_discount(longest)))


@dataclass(frozen=True, slots=True)
class _Discount:
    """Divides gains by the discount of their rank; ranks past the table have its last one."""

    table: Float  # by rank

    def __call__(self, gain: Float | float, rank: Int) -> Float:
        return np.asarray(gain / self.table[np.minimum(rank, len(self.table) - 1)])


def counted_from(rel: int, grade: Int) -> Int:
    """Return grades shifted so that `rel`, the lowest that gains anything, becomes 1."""
    return grade if rel == 1 else np.maximum(grade - (rel - 1), 0)


def gain_of(grade: Int, gain: Gain, top: Int) -> Float:
    """The gain of each grade; 2^grade − 1 is scaled by 2^−top, which keeps every ratio.

    `top` is the highest grade of the query, so that nothing overflows, whatever the grades are.
    """
    if gain == "exp":
        return np.asarray(np.exp2(grade - top) - np.exp2(-top))
    gains = grade.astype(np.float64)
    for level, value in () if isinstance(gain, str) else gain:
        gains[grade == level] = value
    return gains


def _highest_grade(pool: Pool) -> Int:
    """(Q,) the highest grade of each query."""
    top = np.zeros(len(pool.start) - 1, np.int64)
    np.maximum.at(top, pool.query, pool.unsorted)
    return top


def discounts(rank: Int, cutoff: int | None) -> Float:
    """(N,) 1/log₂(r + 1); 0 past the cutoff and for documents that are not listed."""
    inside = rank < (1 << 59) if cutoff is None else rank <= cutoff
    last = int(rank[inside].max(initial=0)) if cutoff is None else cutoff
    last = min(last, int(rank.max(initial=0)))
    weight = np.append(1.0 / np.maximum(log_discount(last), 1.0), 0.0)
    return weight[np.minimum(rank, last + 1)]


def log_discount(ranks: int) -> Float:
    """log₂(r+1) by rank, r = 0 … ranks, from the C library as in trec_eval."""
    return _log_discounts(ranks.bit_length())[: ranks + 1]


@cache
def _log_discounts(bits: int) -> Float:
    """Discounts of all ranks below 2^bits, computed once: math.log2 takes single numbers."""
    table = np.fromiter(map(math.log2, range(1, (1 << bits) + 1)), np.float64, 1 << bits)
    table.flags.writeable = False
    return table
