"""Measures of a list whose documents cover aspects of their query (FORMULAS §13).

    V = (1/Z) Σ_r w(r) Σ_i S_ri · f_i(n_ri),   n_ri = earlier documents that cover aspect i,

where S_ri says whether the document at rank r covers aspect i. With f(n) = (1−α)^n this is α-DCG,
ERR-IA (w = 1/r), aspect recall (α = 1) and P-IA (α = 0); with f_i(n) = (n+1)/R_i and w = 1/r it is
AP-IA. Of a tie group of g documents after rank c, m of which cover aspect i after s earlier ones,

    E = Σ_t w(c+t) · (m/g) · E[f(s+J)],   J ~ Hypergeometric(g−1, m−1, t−1).

What a whole group adds to n does not depend on its order, so the lowest and highest value are sums
over groups: exact, by dynamic programming over the numbers of documents of each kind that are
placed (a kind: the aspects that a document covers). Where that takes too many states, each aspect
gets its own best (worst) order, which is a bound.

Values without ties are those of ndeval 4.5 (Clarke et al., SIGIR 2008), to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np

from rankproof.data.aspects import NOT_COVERED, PARTIAL, Aspects, Covered
from rankproof.data.ties import Pool, TieGroups
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.errors import MeasureError
from rankproof.measures.linear import REL, linear
from rankproof.measures.outcomes import Outcomes
from rankproof.measures.padded_rows import row_sum, tables
from rankproof.measures.registry import Measure, measure

_ALPHA = 0.5  # of ERR_IA, as in ndeval whatever its options
_LIMITS = {"alpha": (0.0, 1.0), **REL}
_GREEDY = math.e / (math.e - 1.0)  # limit of the ratio of the best order's value to the greedy's
_TINY = np.finfo(np.float64).tiny
_STATES = 1 << 12  # most states in the exact search for the best order of a tie group
_LAST = 1 << 20  # largest cutoff: the weights of all ranks up to it are summed


@dataclass(frozen=True, slots=True)
class Slots:
    """A slot is an aspect of one query that some judged document covers; S slots in all."""

    key: Int  # (S,) query · width + aspect, ascending
    width: int
    query: Int  # (S,)
    documents: Int  # (S,) judged documents that cover it
    count: Int  # (Q,) aspects of each query
    covered: Covered

    @staticmethod
    def of(pool: Pool, rel: int, vital_only: bool = False) -> Slots:
        """Return the slots of a pool; they are computed once."""
        key = "slots", rel, vital_only
        if key not in pool.results:
            original, copies = pool.original, pool.copies
            if original is None:
                pool.results[key] = Slots._of(pool, rel, vital_only)
            else:
                pool.results[key] = Slots.of(original, rel, vital_only)._repeated(copies)
        slots: Slots = pool.results[key]
        return slots

    def _repeated(self, copies: int) -> Slots:
        """Return the slots of so many copies of all queries."""
        block = np.arange(copies)[:, None] * len(self.count)
        return Slots(
            key=(self.key + block * self.width).ravel(),
            width=self.width,
            query=(self.query + block).ravel(),
            documents=np.tile(self.documents, copies),
            count=np.tile(self.count, copies),
            covered=self.covered,
        )

    @staticmethod
    def _of(pool: Pool, rel: int, vital_only: bool) -> Slots:
        aspects = _aspects(pool)
        covered = aspects.covered(rel, vital_only)
        width = int(aspects.aspect.max(initial=0)) + 1
        document, aspect = _pairs(covered, pool.judgment)
        key, documents = np.unique(pool.query[document] * width + aspect, return_counts=True)
        query = key // width
        count = np.bincount(query, minlength=len(pool.start) - 1)
        return Slots(key, width, query, documents, count, covered)


def _aspects(pool: Pool) -> Aspects:
    assert pool.aspects is not None  # Measure.outcomes has looked
    return pool.aspects


def _pairs(covered: Covered, judgment: Int | None) -> tuple[Int, Int]:
    """(E,) document, as an index of `judgment`, and aspect of every pair that is covered."""
    assert judgment is not None
    begin = covered.start[judgment]
    counts = covered.start[judgment + 1] - begin
    document = np.repeat(np.arange(len(judgment)), counts)
    inside = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    return document, covered.aspect[begin[document] + inside]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The listed documents that cover an aspect: E pairs of both, H pairs of group and aspect."""

    groups: TieGroups
    slots: Slots
    document: Int  # (E,)
    slot: Int  # (E,)
    earlier: Int  # (E,) documents that cover the same aspect and are listed before
    group: Int  # (H,)
    group_slot: Int  # (H,)
    many: Int  # (H,) m, documents of the group that cover the aspect
    before: Int  # (H,) s, those of earlier groups

    @staticmethod
    def of(groups: TieGroups, slots: Slots) -> Coverage:
        document, aspect = _pairs(slots.covered, groups.judgment)
        slot = np.searchsorted(slots.key, groups.doc_query[document] * slots.width + aspect)
        by_slot = np.argsort(slot, kind="stable")  # documents ascend by rank
        earlier = np.empty(len(slot), np.int64)
        earlier[by_slot] = _within(slot[by_slot])
        factor = len(groups.size) + 1
        pair, many = np.unique(slot * factor + groups.doc_group[document], return_counts=True)
        group_slot = pair // factor
        total = np.cumsum(many) - many
        before = total - total[np.searchsorted(group_slot, group_slot)]
        return Coverage(
            groups=groups,
            slots=slots,
            document=document,
            slot=slot,
            earlier=earlier,
            group=pair % factor,
            group_slot=group_slot,
            many=many,
            before=before,
        )


def _within(ascending: Int) -> Int:
    """(N,) 0, 1, 2, … inside each run of equal values."""
    return np.arange(len(ascending)) - np.searchsorted(ascending, ascending)


# ------------------------------------------------------------------------- weights of ranks, f(n)


@dataclass(frozen=True, slots=True)
class Weights:
    """w(r), which never rises and is 0 past the last rank that counts."""

    table: Float  # (L+2,) by rank; the first entry is not used, the last one is 0
    is_reciprocal: bool = False  # 1/r: gains are divided, as ndeval does

    @staticmethod
    def logarithmic(last: int) -> Weights:
        return Weights(np.append(_logarithmic(last.bit_length())[: last + 1], 0.0))

    @staticmethod
    def reciprocal(last: int) -> Weights:
        rank = np.arange(last + 2.0)
        rank[[0, -1]] = np.inf
        return Weights(1.0 / rank, is_reciprocal=True)

    @staticmethod
    def equal(last: int) -> Weights:
        return Weights(np.append(np.ones(last + 1), 0.0))

    @property
    def last(self) -> int:
        return len(self.table) - 2

    def at(self, rank: Int) -> Float:
        return self.table[np.minimum(rank, self.last + 1)]

    def __call__(self, gain: Float, rank: Int) -> Float:
        if self.is_reciprocal:
            return np.where(rank <= self.last, gain / rank, 0.0)
        return gain * self.at(rank)


@cache
def _logarithmic(bits: int) -> Float:
    """log 2 / log(r+1) of all ranks of so many bits, as ndeval computes it."""
    weights = (math.log(2.0) / math.log(r + 1.0) for r in range(2, 1 << bits))
    table = np.fromiter((1.0, 1.0, *weights), np.float64)[: 1 << bits]
    table.flags.writeable = False
    return table


@dataclass(frozen=True, slots=True)
class Novelty:
    """f(n) = β^n."""

    beta: float
    power: Float  # β^n, multiplied up as ndeval does

    @staticmethod
    def of(alpha: float, documents: int) -> Novelty:
        beta = 1.0 - alpha
        return Novelty(beta, np.cumprod(np.append(1.0, np.full(documents, beta))))

    def gain(self, earlier: Int, slot: Int) -> Float:
        return self.power[np.minimum(earlier, len(self.power) - 1)]

    def mean(self, pairs: Coverage, chosen: Int, drawn: Int) -> Float:
        """(H′, T) E[f(s+J)] after 0, 1, 2, … other documents of the group.

        E[β^J] follows the recurrence of expected_reciprocal_rank.py, with u = β for the m−1 others.
        """
        covering = pairs.many[chosen] - 1
        included = pairs.groups.size[pairs.group[chosen]] - 1 - covering  # u = 1: they come first
        mean = np.ones((len(chosen), drawn.shape[1]))
        for number in range(int(covering.max(initial=0))):
            active = np.flatnonzero(covering > number)
            share = np.minimum(drawn / (included[active] + 1)[:, None], 1.0)
            shifted = np.concatenate([np.ones((len(active), 1)), mean[active, :-1]], axis=1)
            mean[active] = (1.0 - share) * mean[active] + share * self.beta * shifted
            included[active] += 1
        return self.power[pairs.before[chosen], None] * mean


@dataclass(frozen=True, slots=True)
class Rising:
    """f(n) = (n+1)/R."""

    relevant: Int  # (S,) R

    def gain(self, earlier: Int, slot: Int) -> Float:
        return np.asarray((earlier + 1) / self.relevant[slot], np.float64)

    def mean(self, pairs: Coverage, chosen: Int, drawn: Int) -> Float:
        """(H′, T) E[f(s+J)] after 0, 1, 2, … other documents of the group."""
        others = np.maximum(pairs.groups.size[pairs.group[chosen]] - 1, 1)
        growth = drawn * ((pairs.many[chosen] - 1) / others)[:, None]
        relevant = self.relevant[pairs.group_slot[chosen], None]
        return np.asarray((pairs.before[chosen, None] + 1 + growth) / relevant, np.float64)


# --------------------------------------------------------------------------- sums over a list


def _sums(pairs: Coverage, f: Novelty | Rising, w: Weights) -> Outcomes:
    """Σ_r w(r) Σ_i f of every query, under every order of its ties."""
    groups = pairs.groups
    weights = f.gain(pairs.earlier, pairs.slot)
    gain = np.bincount(pairs.document, weights, len(groups.rank)).astype(np.float64)
    end = np.minimum(groups.listed, w.last)  # (Q,) the last rank that counts
    weighted = np.where(groups.rank <= end[groups.doc_query], w(gain, groups.rank), 0.0)
    listed = groups.sum_by_query(groups.doc_query, weighted)
    if groups.alone:
        return Outcomes.certain(listed)
    inside = np.clip(end[groups.query] - groups.first + 1, 0, groups.size)  # (G,) its ranks
    first, size, depth = (x[pairs.group] for x in (groups.first, groups.size, inside))
    expected = np.zeros(len(pairs.group))
    for chosen, column, real in tables(depth):
        value = w.at(first[chosen, None] + column) * f.mean(pairs, chosen, column)
        total = row_sum(np.where(real, value, 0.0))
        expected[chosen] = pairs.many[chosen] / size[chosen] * total
    others = size - pairs.many
    low = _in_own_order(pairs, f, w, rank=first + others, count=np.maximum(depth - others, 0))
    high = _in_own_order(pairs, f, w, rank=first, count=np.minimum(depth, pairs.many))
    is_bound = _search_mixed_groups(pairs, f, w, inside, (low, high))
    has_ties = np.bincount(groups.query, groups.size > 1, groups.queries) > 0

    def total_of(query: Int, values: Float) -> Float:
        """(Q,) sums; the last bit of a query without ties depends on no other query."""
        return np.where(has_ties, groups.sum_by_query(query, values), listed)

    return Outcomes(
        expected=total_of(groups.query[pairs.group], expected),
        min=total_of(groups.query, low),
        max=total_of(groups.query, high),
        oblivious=listed,
        variance=None,
        is_bound=is_bound if is_bound.any() else None,
    )


def _in_own_order(pairs: Coverage, f: Novelty | Rising, w: Weights, rank: Int, count: Int) -> Float:
    """(G,) sums if each aspect's documents are at `count` (H,) ranks from `rank` (H,) on."""
    total = np.zeros(len(pairs.group))
    for chosen, column, real in tables(count):
        slot = pairs.group_slot[chosen, None]
        value = f.gain(pairs.before[chosen, None] + column, slot) * w.at(
            rank[chosen, None] + column
        )
        total[chosen] = row_sum(np.where(real, value, 0.0))
    return np.bincount(pairs.group, total, minlength=len(pairs.groups.size)).astype(np.float64)


def _search_mixed_groups(
    pairs: Coverage, f: Novelty | Rising, w: Weights, inside: Int, ends: tuple[Float, Float]
) -> Bool:
    """Set both `ends` (G,) of groups whose aspects compete for ranks to their exact values.

    `inside` (G,) of their ranks count. Return (Q,) queries with a group that is too large for
    that, whose values stay bounds.
    """
    low, high = ends
    groups, covered = pairs.groups, pairs.slots.covered
    assert groups.judgment is not None
    kind = covered.kind[groups.judgment]
    several = np.unique(np.stack([groups.doc_group, kind])[:, kind >= 0], axis=1)[0]
    is_mixed = np.bincount(several, minlength=len(groups.size)) > 1
    last = groups.first + groups.size - 1
    is_mixed &= (inside < groups.size) | (w.at(groups.first) > w.at(last))  # else orders are alike
    is_bound = np.zeros(groups.queries, np.bool_)
    for group in np.flatnonzero(is_mixed).tolist():
        documents = np.arange(groups.start[group], groups.start[group + 1])
        search = _Search.of(pairs, documents[kind[documents] >= 0], kind, f)
        if search is None:
            is_bound[groups.query[group]] = True
            continue
        ranks = np.arange(groups.first[group], groups.first[group] + inside[group])
        others = int(groups.size[group]) - search.documents
        low[group] = search.extreme(w.at(ranks[others:]), np.minimum)
        high[group] = search.extreme(w.at(ranks), np.maximum)
    return is_bound


@dataclass(frozen=True, slots=True)
class _Search:
    """Dynamic program over a tie group's covering documents: U kinds, N states.

    A state counts the placed documents of each kind; the next document takes the next rank.
    """

    documents: int
    count: Int  # (U,) documents of each kind
    state: Int  # (N, U) documents of each kind that are placed
    stride: Int  # (U,) from a state to the one with one more of a kind
    worth: Float  # (N, U) Σ_i f of the next document, if it is of this kind
    layers: list[Int]  # states by how many documents are placed

    @staticmethod
    def of(pairs: Coverage, documents: Int, kind: Int, f: Novelty | Rising) -> _Search | None:
        """Return the states of a group's covering documents, or None if there are too many."""
        _, at, count = np.unique(kind[documents], return_index=True, return_counts=True)
        if np.log(count + 1.0).sum() > math.log(_STATES):
            return None
        shape = tuple((count + 1).tolist())
        low, high = np.searchsorted(pairs.document, [documents[0], documents[-1] + 1])
        slot, column = np.unique(pairs.slot[low:high], return_inverse=True)
        owner = pairs.document[low:high]
        covers = np.zeros((len(count), len(slot)), np.int64)
        for row, document in enumerate(documents[at].tolist()):
            covers[row, column[owner == document]] = 1
        before = np.full(len(slot), np.iinfo(np.int64).max)
        np.minimum.at(before, column, pairs.earlier[low:high])
        state = np.indices(shape).reshape(len(shape), -1).T
        placed = state.sum(axis=1)
        by_placed = np.argsort(placed, kind="stable")
        ends = np.searchsorted(placed[by_placed], np.arange(1, placed[-1] + 1))
        return _Search(
            documents=len(documents),
            count=count,
            state=state,
            stride=np.append(np.cumprod(count[:0:-1] + 1)[::-1], 1),
            worth=f.gain(before + state @ covers, slot) @ covers.T,
            layers=np.split(by_placed, ends),
        )

    def extreme(self, weight: Float, pick: np.ufunc) -> float:
        """Return the lowest or highest sum of gains if they take the ranks with these weights.

        `pick` is np.minimum or np.maximum.
        """
        value = np.zeros(len(self.state))
        empty = -np.inf if pick is np.maximum else np.inf
        for placed in range(min(self.documents, len(weight)) - 1, -1, -1):
            at = self.layers[placed]
            following = np.minimum(at[:, None] + self.stride, len(value) - 1)
            sums = weight[placed] * self.worth[at] + value[following]
            value[at] = pick.reduce(np.where(self.state[at] < self.count, sums, empty), axis=1)
        return float(value[0])


# ---------------------------------------------------------------------------------------- norms


def _divided(outcomes: Outcomes, *norms: Float) -> Outcomes:
    """Divide values by each norm (Q,) in turn; undefined where one is 0."""
    for norm in norms:
        norm = np.where(norm > 0, norm, np.nan)
        columns = (outcomes.expected, outcomes.min, outcomes.max, outcomes.oblivious)
        expected, low, high, listed = (column / norm for column in columns)
        variance = outcomes.variance
        outcomes = Outcomes(
            *(expected, low, high, listed),
            variance=None if variance is None else variance / norm**2,
            is_bound=outcomes.is_bound,
        )
    return outcomes


@dataclass(frozen=True, slots=True)
class _Cascade:
    """α-DCG or ERR-IA: both discount a rank, and an aspect by its earlier coverage."""

    cutoff: int
    alpha: float
    rel: int
    discount: Literal["logarithmic", "reciprocal"] = "logarithmic"

    def outcomes(self, groups: TieGroups, is_normalized: bool) -> Outcomes:
        """Compute the value over that of a list in which every document covers every aspect.

        If `is_normalized`, that is divided by the same ratio for the greedy order.
        """
        if self.cutoff > _LAST:
            raise MeasureError(f"the cutoff {self.cutoff} is too large", remedy=f"up to {_LAST}")
        slots = Slots.of(groups.pool, self.rel)
        f = Novelty.of(self.alpha, int(slots.documents.max(initial=0)))
        w = getattr(Weights, self.discount)(self.cutoff)
        sums = _sums(Coverage.of(groups, slots), f, w)
        # ndeval divides from rank 2 on.
        full = _full_value(slots.count, f, w) if self.cutoff > 1 else np.sign(slots.count)
        if not is_normalized:
            return _divided(sums, full)
        ideal = self._ideal(groups.pool, f, w)
        normalized = _divided(sums, full, ideal / np.maximum(full, _TINY))
        return replace(normalized, max=np.minimum(normalized.max, _GREEDY))

    def _ideal(self, pool: Pool, f: Novelty, w: Weights) -> Float:
        """(Q,) the value of the greedy order of all judged documents; computed once."""
        if pool.original is not None:
            return np.tile(self._ideal(pool.original, f, w), pool.copies)
        if self not in pool.results:
            pool.results[self] = _greedy_value(pool, Slots.of(pool, self.rel), f, w)
        value: Float = pool.results[self]
        return value


def _full_value(count: Int, f: Novelty, w: Weights) -> Float:
    """(Q,) the value of a list in which every document covers all `count` (Q,) aspects."""
    rank = np.arange(1, w.last + 1)
    full = np.zeros(len(count))
    for aspects in np.unique(count).tolist():
        gain = np.full(w.last, f.beta)
        gain[0] = aspects
        full[count == aspects] = np.cumsum(w(np.cumprod(gain), rank))[-1]
    return full


def _greedy_value(pool: Pool, slots: Slots, f: Novelty, w: Weights) -> Float:
    """(Q,) the value of the order that takes at each rank the document that adds most.

    Among equals it takes the last id, as ndeval does. To find the best order is NP-hard.
    """
    assert pool.judgment is not None
    covering = np.flatnonzero(slots.covered.kind[pool.judgment] >= 0)
    covering = covering[
        np.lexsort((_aspects(pool).by_id[pool.judgment[covering]], pool.query[covering]))
    ]
    query = pool.query[covering]
    owner, aspect = _pairs(slots.covered, pool.judgment[covering])
    slot = np.searchsorted(slots.key, query[owner] * slots.width + aspect)
    queries, begin = np.unique(query, return_index=True)
    number = np.repeat(np.arange(len(queries)), np.diff(np.append(begin, len(query))))
    placed = np.zeros(len(slots.key), np.int64)
    is_free = np.ones(len(covering), np.bool_)
    value = np.zeros(len(slots.count))
    for rank in range(1, min(w.last, int(np.bincount(number).max(initial=0))) + 1):
        gain = np.bincount(owner, f.gain(placed[slot], slot), minlength=len(covering))
        gain[~is_free] = -1.0
        best = np.maximum.reduceat(gain, begin)
        is_best = np.flatnonzero(gain == best[number])
        chosen = is_best[np.unique(number[is_best], return_index=True)[1]]
        is_free[chosen] = False
        value[queries] += w(np.maximum(best, 0.0), np.array(rank))
        placed[slot[np.isin(owner, chosen)]] += 1
    return value


# ------------------------------------------------------------------------------------ the measures


def _one_at_first_rank(measure: Measure) -> float:
    """The highest value; ndeval counts the aspects of the first document for a cutoff of 1."""
    return math.inf if measure.cutoff == 1 else 1.0


@measure(
    "alpha_nDCG",
    at="cutoff",
    limits=_LIMITS,
    aliases=("α_nDCG", "alpha-nDCG"),
    meaning="How near the top k is to the best order where a document that repeats what earlier "
    "ones say is worth less.",
    upper=_GREEDY,
    unjudged="covered aspects, ideal",
    best_by_grade=False,
    reads="aspects",
    splits_ties=True,
)
def alpha_ndcg(groups: TieGroups, cutoff: int, alpha: float = 0.5, rel: int = 1) -> Outcomes:
    """α-nDCG: α-DCG over that of the greedy order of all judged documents.

    >>> qrels = rp.read_qrels([("q", "1", "a", 1), ("q", "2", "b", 1)], aspects=True)
    >>> result = rp.evaluate(qrels, {"q": {"a": 2, "x": 1, "b": 1}}, "alpha_nDCG@3")["alpha_nDCG@3"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.92, 0.96, 1.0)
    """
    return _Cascade(cutoff, alpha, rel).outcomes(groups, is_normalized=True)


@measure(
    "alpha_DCG",
    at="cutoff",
    limits=_LIMITS,
    aliases=("α_DCG", "alpha-DCG"),
    upper=_one_at_first_rank,
    unjudged="covered aspects",
    best_by_grade=False,
    reads="aspects",
    splits_ties=True,
)
def alpha_dcg(groups: TieGroups, cutoff: int, alpha: float = 0.5, rel: int = 1) -> Outcomes:
    """α-DCG: Σ_r Σ_i (1−α)^(earlier documents that cover aspect i)/log₂(r+1), over its limit.

    The inner sum goes over the aspects that the document at rank r covers. The limit is the value
    of a list in which every document covers every aspect; @1 is not divided, as in ndeval.

    >>> qrels = rp.read_qrels([("q", "1", "a", 1), ("q", "2", "b", 1)], aspects=True)
    >>> result = rp.evaluate(qrels, {"q": {"a": 2, "x": 1, "b": 1}}, "alpha_DCG@3")["alpha_DCG@3"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.521, 0.543, 0.566)
    """
    return _Cascade(cutoff, alpha, rel).outcomes(groups, is_normalized=False)


@measure(
    "ERR_IA",
    at="cutoff",
    limits=REL,
    aliases=("ERR-IA",),
    upper=_one_at_first_rank,
    unjudged="covered aspects",
    best_by_grade=False,
    reads="aspects",
    splits_ties=True,
)
def err_ia(groups: TieGroups, cutoff: int, rel: int = 1) -> Outcomes:
    """Intent-aware ERR as ndeval has it: α-DCG with weights 1/r and α = 0.5, over its limit.

    The mean of ERR over aspects is another measure. @1 is not divided, as in ndeval.

    >>> qrels = rp.read_qrels([("q", "1", "a", 1), ("q", "2", "b", 1)], aspects=True)
    >>> result = rp.evaluate(qrels, {"q": {"a": 2, "x": 1, "b": 1}}, "ERR_IA@3")["ERR_IA@3"]
    >>> round(result.min, 2), round(result.expected, 2), round(result.max, 2)
    (0.5, 0.53, 0.56)
    """
    return _Cascade(cutoff, _ALPHA, rel, "reciprocal").outcomes(groups, is_normalized=False)


@measure(
    "nERR_IA",
    at="cutoff",
    limits=REL,
    aliases=("nERR-IA",),
    upper=_GREEDY,
    unjudged="covered aspects, ideal",
    best_by_grade=False,
    reads="aspects",
    splits_ties=True,
)
def n_err_ia(groups: TieGroups, cutoff: int, rel: int = 1) -> Outcomes:
    """ERR_IA over that of the greedy order of all judged documents.

    >>> qrels = rp.read_qrels([("q", "1", "a", 1), ("q", "2", "b", 1)], aspects=True)
    >>> result = rp.evaluate(qrels, {"q": {"a": 2, "x": 1, "b": 1}}, "nERR_IA@3")["nERR_IA@3"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.889, 0.944, 1.0)
    """
    return _Cascade(cutoff, _ALPHA, rel, "reciprocal").outcomes(groups, is_normalized=True)


@measure(
    "P_IA",
    at="cutoff",
    limits=REL,
    aliases=("P-IA",),
    unjudged="covered aspects",
    best_by_grade=False,
    reads="aspects",
    splits_ties=True,
)
def precision_ia(groups: TieGroups, cutoff: int, rel: int = 1) -> Outcomes:
    """Intent-aware precision: the mean of P@k over aspects.

    >>> qrels = rp.read_qrels([("q", "1", "a", 1), ("q", "2", "b", 1)], aspects=True)
    >>> result = rp.evaluate(qrels, {"q": {"a": 2, "x": 1, "b": 1}}, "P_IA@2")["P_IA@2"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.25, 0.375, 0.5)
    """
    slots = Slots.of(groups.pool, rel)
    covered = np.diff(slots.covered.start)[groups.judgment].astype(np.float64)
    return linear(groups, covered, slots.count * cutoff, cutoff, by="gain")


@measure(
    "AP_IA",
    at="cutoff",
    limits=REL,
    aliases=("MAP_IA", "MAP-IA"),
    unjudged="covered aspects, ideal",
    best_by_grade=False,
    reads="aspects",
    splits_ties=True,
)
def average_precision_ia(groups: TieGroups, cutoff: int | None, rel: int = 1) -> Outcomes:
    """Intent-aware average precision: the mean of AP over aspects.

    >>> qrels = rp.read_qrels([("q", "1", "a", 1), ("q", "2", "b", 1)], aspects=True)
    >>> result = rp.evaluate(qrels, {"q": {"a": 2, "x": 1, "b": 1}}, "AP_IA")["AP_IA"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.667, 0.708, 0.75)
    """
    slots = Slots.of(groups.pool, rel)
    w = Weights.reciprocal(_last_listed(groups, cutoff))
    sums = _sums(Coverage.of(groups, slots), Rising(slots.documents), w)
    return _divided(sums, slots.count.astype(np.float64))


@measure(
    "StRecall",
    at="cutoff",
    limits={**REL, "partial": (0, 1)},
    aliases=("strec", "subtopic_recall"),
    meaning="The share of a question's aspects, or nuggets, that the top k cover.",
    unjudged="covered aspects",
    best_by_grade=False,
    reads="aspects",
    splits_ties=True,
)
def subtopic_recall(
    groups: TieGroups,
    cutoff: int,
    rel: int = 1,
    nuggets: Literal["all", "vital"] = "all",
    partial: int = 0,
) -> Outcomes:
    """Aspect recall: the share of a query's aspects, or nuggets, that the top k cover.

    Aspects are those that some judged document covers; nuggets are all of the query, or the vital
    ones. A nugget is covered where a passage supports it; with partial=1 partial support is enough.

    >>> qrels = rp.read_qrels([("q", "1", "a", 1), ("q", "2", "b", 1)], aspects=True)
    >>> result = rp.evaluate(qrels, {"q": {"a": 2, "x": 1, "b": 1}}, "StRecall@2")["StRecall@2"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.5, 0.75, 1.0)
    """
    pool, vital_only = groups.pool, nuggets == "vital"
    has_nuggets = _aspects(pool).vital is not None
    if not has_nuggets and (vital_only or partial):
        raise MeasureError(
            "StRecall with nuggets or partial needs nuggets",
            remedy="name nuggetizer's retrieval assignments (JSON lines), or write StRecall@10",
        )
    slots = Slots.of(pool, PARTIAL if partial else rel, vital_only)
    f = Novelty.of(1.0, int(slots.documents.max(initial=0)))
    sums = _sums(Coverage.of(groups, slots), f, Weights.equal(_last_listed(groups, cutoff)))
    count = slots.count
    if has_nuggets:  # nuggets that no passage supports count, too
        count = np.where(count > 0, Slots.of(pool, NOT_COVERED, vital_only).count, 0)
    return _divided(sums, count.astype(np.float64))


def _last_listed(groups: TieGroups, cutoff: int | None) -> int:
    """The last rank that counts of the longest list."""
    longest = int(groups.listed.max(initial=0))
    return longest if cutoff is None else min(longest, cutoff)
