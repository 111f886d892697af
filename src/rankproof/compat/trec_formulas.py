"""Measures that only trec_eval has, for `rankproof trec_eval`; new evaluations should not use them.

Each takes lists whose ties are broken, so that every tie group is one document, and returns a value
for each query (Q,). A docstring begins with the name that trec_eval prints.

Notation: `rel` is the lowest grade that counts as relevant (-l), R the number of relevant documents
in the pool, k a cutoff, Hits the relevant documents in the list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rankproof.data.ties import TieGroups
from rankproof.foundation.arrays import Array, Float, Int
from rankproof.foundation.kernels import count_within
from rankproof.measures.interpolated_precision import RecallLevels, highest
from rankproof.measures.linear import log_discount
from rankproof.measures.padded_rows import tables

Gains = Sequence[tuple[int, float]]
_RANK_LIMIT = np.int64(1) << 40  # above every rank: query · limit + rank sorts by both


def raise_grades(groups: TieGroups) -> TieGroups:
    """Return groups with every grade raised by one, so that grade 0 is relevant, too (-l 0)."""
    pool = replace(
        groups.pool, max_grade=groups.pool.max_grade + 1, unsorted=groups.pool.unsorted + 1
    )
    grade = np.where(groups.grade >= 0, groups.grade + 1, groups.grade)
    sampled = None if groups.sampled is None else raise_grades(groups.sampled)
    return replace(groups, grade=grade, pool=pool, sampled=sampled)


def _relevant_within(groups: TieGroups, rel: int, cutoff: Int | int) -> Int:
    """Return the number of relevant documents (Q,) up to rank `cutoff`, one or one per query."""
    query = groups.doc_query
    cutoffs = np.broadcast_to(cutoff, groups.queries)
    inside = (groups.grade >= rel) & (groups.rank <= cutoffs[query])
    return np.bincount(query[inside], minlength=groups.queries)


def _ratio(numerator: Array, denominator: Array) -> Float:
    """Return numerator/denominator, 0 where the denominator is 0."""
    return np.where(denominator > 0, numerator / np.maximum(denominator, 1), 0.0)


def multiple_r_precision(groups: TieGroups, rel: int, multiple: float) -> Float:
    """Rprec_mult: precision at rank ⌊x·R + 0.9⌋, where x is the multiple."""
    cutoff = np.asarray(multiple * groups.relevant(rel) + 0.9, np.int64)
    return _ratio(_relevant_within(groups, rel, cutoff), cutoff)


def relative_precision(groups: TieGroups, rel: int, cutoff: int) -> Float:
    """relative_P: precision relative to its maximum, Hits/min(k, R)."""
    return _ratio(_relevant_within(groups, rel, cutoff), np.minimum(cutoff, groups.relevant(rel)))


def set_relative_precision(groups: TieGroups, rel: int) -> Float:
    """set_relative_P: Hits/min(listed, R)."""
    hits = _relevant_within(groups, rel, groups.listed)
    return _ratio(hits, np.minimum(groups.listed, groups.relevant(rel)))


def judged_non_relevant(groups: TieGroups, rel: int) -> Float:
    """num_nonrel_judged_ret: number of listed documents that are judged and not relevant."""
    return groups.sum_by_query(groups.doc_query, groups.grade < rel)


def utility(groups: TieGroups, rel: int, parameters: Sequence[float]) -> Float:
    """utility: a·(relevant listed) + b·(others listed) + c·(relevant not listed) + d·(others).

    The parameters are a, b, c, d and N, the documents in the collection (-N).
    """
    hits = _relevant_within(groups, rel, groups.listed)
    listed, relevant = groups.listed, groups.relevant(rel)
    a, b, c, d, collection_size = parameters
    others_not_listed = collection_size + hits - listed - relevant
    return np.asarray(
        a * hits + b * (listed - hits) + c * (relevant - hits) + d * others_not_listed
    )


def averaged_precision(groups: TieGroups, rel: int, levels: RecallLevels) -> Float:
    """11pt_avg: mean interpolated precision at the levels of recall that the user names."""
    relevant = np.flatnonzero(groups.grade >= rel)
    ranks = groups.rank[relevant]
    return np.nan_to_num(highest(groups, ranks, relevant, groups.relevant(rel), levels))


def unjudged_share(groups: TieGroups, _: int, cutoff: int) -> Float:
    """unj: unjudged documents of the top k over k, also of a shorter list."""
    judged = np.bincount(groups.doc_query[groups.rank <= cutoff], minlength=groups.queries)
    return np.asarray((np.minimum(groups.listed, cutoff) - judged) / cutoff)


def rbp_residual(groups: TieGroups, _: int, p: float) -> Float:
    """rbp_resid: what unjudged documents and the ranks past the list could add to RBP.

    0 where every listed document is judged.
    """
    start = np.append(0, np.cumsum(groups.listed))
    query = np.repeat(np.arange(groups.queries), groups.listed)
    weight = np.cumprod(np.append(1.0, np.full(int(groups.listed.max(initial=0)), p)))
    is_unjudged = np.ones(len(query), np.bool_)
    is_unjudged[start[groups.doc_query] + groups.rank - 1] = False
    rows = np.flatnonzero(is_unjudged)
    unjudged = groups.sum_by_query(query[rows], weight[rows - start[query[rows]]])
    return np.where(unjudged > 0, weight[groups.listed] + (1.0 - p) * unjudged, 0.0)


def log_odds(groups: TieGroups, rel: int) -> Float:
    """yaap: log((1 + S)/(1 + R − S)), where S is the sum of precisions that AP divides by R."""
    relevant = np.flatnonzero(groups.grade >= rel)
    query = groups.doc_query[relevant]
    precision_sum = groups.sum_by_query(query, count_within(query) / groups.rank[relevant])
    odds = (1.0 + precision_sum) / (1.0 + groups.relevant(rel) - precision_sum)
    return np.fromiter(map(math.log, odds.tolist()), np.float64, len(odds))


def binary_gain(groups: TieGroups, rel: int) -> Float:
    """binG: 1/R · Σ 1/log₂(2 + n) over relevant documents, n the others ranked above each."""
    relevant = np.flatnonzero(groups.grade >= rel)
    query = groups.doc_query[relevant]
    others_above = groups.rank[relevant] - count_within(query)
    discount = log_discount(int(others_above.max(initial=0)) + 1)
    total = groups.sum_by_query(query, 1.0 / discount[others_above + 1])
    return _ratio(total, groups.relevant(rel))


class _GradedLists:
    """The documents with a gain, in each list and in its ideal order, and their DCG by rank.

    L documents in the lists have a gain other than 0, I documents in the pool one above 0.
    """

    def __init__(self, groups: TieGroups, gains: Gains):
        gain, pool_gain = _gain_of(groups.grade, gains), _gain_of(groups.pool.unsorted, gains)
        gaining = np.flatnonzero(gain)
        self.query: Int = groups.doc_query[gaining]  # (L,)
        self.rank: Int = groups.rank[gaining]  # (L,)
        self.gain: Float = gain[gaining]  # (L,)
        positive = np.flatnonzero(pool_gain > 0)
        ideal_order = np.lexsort((-pool_gain[positive], groups.pool.query[positive]))
        ideal = positive[ideal_order]
        self.ideal_query: Int = groups.pool.query[ideal]  # (I,)
        self.ideal_gain: Float = pool_gain[ideal]  # (I,)
        self.ideal_rank: Int = count_within(self.ideal_query)  # (I,)
        self.ideal_length: Int = np.bincount(self.ideal_query, minlength=groups.queries)  # (Q,)
        discount = log_discount(
            int(max(groups.listed.max(initial=0), self.ideal_length.max(initial=0)))
        )
        self.dcg: Float = _running_sums(self.gain / discount[self.rank], self.query)  # (L,)
        self.ideal_dcg: Float = _running_sums(  # (I,)
            self.ideal_gain / discount[self.ideal_rank], self.ideal_query
        )

    def ideal_sum(self, sums: Float, query: Int, rank: Int) -> Float:
        """Look up running sums (I,) over the ideal lists, at a rank of each of these queries."""
        start = np.append(0, np.cumsum(self.ideal_length))
        last = np.minimum(rank, self.ideal_length[query])
        return np.where(last > 0, np.append(sums, 0.0)[start[query] + last - 1], 0.0)

    def ideal_dcg_at(self, query: Int, rank: Int) -> Float:
        """Look up the DCG of the ideal list, at a rank of each of these queries."""
        return self.ideal_sum(self.ideal_dcg, query, rank)

    def dcg_at(self, query: Int, rank: Int) -> Float:
        """Look up the DCG of the list, at a rank of each of these queries."""
        keys = self.query * _RANK_LIMIT + self.rank
        wanted_keys = query * _RANK_LIMIT + np.minimum(rank, _RANK_LIMIT - 1)
        end = np.searchsorted(keys, wanted_keys, side="right")
        has_gain = end > np.searchsorted(keys, query * _RANK_LIMIT)
        return np.where(has_gain, np.append(0.0, self.dcg)[end], 0.0)


def _graded(groups: TieGroups, gains: Gains) -> _GradedLists:
    """Return the graded lists of the groups, computed once for all measures with these gains."""
    cache: dict[Any, _GradedLists] = groups.__dict__.setdefault("graded by trec_eval", {})
    key = tuple(gains)
    if key not in cache:
        cache[key] = _GradedLists(groups, gains)
    return cache[key]


def _gain_of(grade: Int, gains: Gains) -> Float:
    """Return the gain of each grade: the grade itself unless `gains` has another."""
    gain = np.maximum(grade, 0).astype(np.float64)
    for level, level_gain in gains:
        gain[grade == level] = level_gain
    return gain


def _running_sums(values: Float, query: Int) -> Float:
    """Return running sums within each query, added one by one as trec_eval does."""
    length = np.bincount(query) if len(query) else np.zeros(0, np.int64)
    start = np.cumsum(length) - length
    sums = np.zeros(len(values))
    for queries, column, is_filled in tables(length):
        row = np.where(is_filled, start[queries, None] + column, 0)
        sums[row[is_filled]] = np.cumsum(np.where(is_filled, values[row], 0.0), axis=1)[is_filled]
    return sums


def gain_over_cost(groups: TieGroups, rel: int, gains: Gains) -> Float:
    """G: Σ gain/log₂(2 + cost − gains so far), divided by the sum of all gains in the pool.

    The cost is summed over the ranks so far; that of a rank is the gain of the ideal list there, at
    least 1.
    """
    graded = _graded(groups, gains)
    ideal_cost = _running_sums(np.maximum(graded.ideal_gain, 1.0), graded.ideal_query)
    cost = graded.ideal_sum(ideal_cost, graded.query, graded.rank)
    cost += np.maximum(graded.rank - graded.ideal_length[graded.query], 0)
    lost = 2.0 + cost - _running_sums(graded.gain, graded.query)
    total = groups.sum_by_query(graded.query, graded.gain / _log2(lost))
    all_gains = groups.sum_by_query(graded.ideal_query, graded.ideal_gain)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(all_gains > 0, total / all_gains, 0.0)


def _log2(values: Float) -> Float:
    """Return log₂ as the C library rounds it; integers, which these mostly are, are looked up."""
    integers = values.astype(np.int64)
    if np.array_equal(integers, values) and integers.max(initial=1) <= len(values):
        return log_discount(int(integers.max(initial=1)))[integers - 1]
    return np.fromiter(map(math.log2, values.tolist()), np.float64, len(values))


def ndcg_at_relevant(groups: TieGroups, rel: int, gains: Gains) -> Float:
    """ndcg_rel: mean nDCG at the ranks of all documents with a gain above 0.

    A document that is not listed counts with nDCG at the end of the list.
    """
    graded = _graded(groups, gains)
    positive = graded.gain > 0
    query, rank = graded.query[positive], graded.rank[positive]
    all_queries = np.arange(groups.queries)
    full_ideal = graded.ideal_dcg_at(all_queries, graded.ideal_length)
    not_listed = graded.ideal_length - np.bincount(query, minlength=groups.queries)
    with np.errstate(invalid="ignore", divide="ignore"):
        ndcg = graded.dcg[positive] / graded.ideal_dcg_at(query, rank)
        total = groups.sum_by_query(query, ndcg)
        total = total + not_listed * graded.dcg_at(all_queries, groups.listed) / full_ideal
        return np.where(total > 0, total / graded.ideal_length, 0.0)


def ndcg_at_levels(groups: TieGroups, rel: int, gains: Gains) -> Float:
    """Rndcg: mean nDCG at the ranks where the gain of the ideal list falls, and at the list's end.

    The end counts only for lists that are longer than the ideal one by two or more documents.
    """
    graded = _graded(groups, gains)
    falls = np.ones(len(graded.ideal_query), np.bool_)
    falls[:-1] = (graded.ideal_query[1:] != graded.ideal_query[:-1]) | (
        graded.ideal_gain[1:] != graded.ideal_gain[:-1]
    )
    longer = np.flatnonzero((groups.listed > graded.ideal_length + 1) & (graded.ideal_length > 0))
    query = np.concatenate([graded.ideal_query[falls], longer])
    rank = np.concatenate([graded.ideal_rank[falls], groups.listed[longer]])
    value = graded.dcg_at(query, rank) / graded.ideal_dcg_at(query, rank)
    counts = np.bincount(query, minlength=groups.queries)
    mean = _ratio(groups.sum_by_query(query, value), counts)
    # A query can have relevant documents but no gain (-l 0): trec_eval then prints 0/0.
    mean_or_nan = np.where(counts > 0, mean, -np.nan)
    return np.where(groups.relevant(rel) > 0, mean_or_nan, 0)


def first_grades(groups: TieGroups, _: int, parameters: Sequence[float]) -> list[str]:
    """relstring: the grades of the first documents of each list as one text.

    "-" stands for a document that was not pooled, "." for one pooled and not judged, ">" for a
    grade above 9.
    """
    groups, length = groups.sampled or groups, max(int(parameters[0]), 0)
    marks = [["-"] * int(min(length, listed)) for listed in groups.listed]
    inside = groups.rank <= length
    columns = (groups.doc_query[inside], groups.rank[inside], groups.grade[inside])
    for query, rank, grade in zip(*(column.tolist() for column in columns), strict=True):
        marks[query][rank - 1] = "." if grade < 0 else ">" if grade > 9 else str(grade)
    return ["".join(row) for row in marks]
