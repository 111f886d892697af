"""Measures that only trec_eval has, for `rankproof trec_eval`; new evaluations should not use them.

Each takes lists whose ties are broken, so that every group is one document, and returns a value for
every query (Q,). The docstrings begin with the name that trec_eval prints. `rel` is the lowest
grade that counts as relevant (-l).
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
from rankproof.measures.interpolated_precision import highest
from rankproof.measures.linear import log_discount
from rankproof.measures.padded_rows import tables

Gains = Sequence[tuple[int, float]]
_KEY = np.int64(1) << 40  # ranks stay below it


def raise_grades(groups: TieGroups) -> TieGroups:
    """Return groups with every grade one higher, so that grade 0 is relevant, too (-l 0)."""
    pool = replace(
        groups.pool, max_grade=groups.pool.max_grade + 1, unsorted=groups.pool.unsorted + 1
    )
    grade = np.where(groups.grade >= 0, groups.grade + 1, groups.grade)
    sampled = None if groups.sampled is None else raise_grades(groups.sampled)
    return replace(groups, grade=grade, pool=pool, sampled=sampled)


def _relevant_within(groups: TieGroups, rel: int, cut: Int | int) -> Int:
    """Return the relevant documents (Q,) up to rank `cut`."""
    query = groups.doc_query
    inside = (groups.grade >= rel) & (groups.rank <= np.broadcast_to(cut, groups.queries)[query])
    return np.bincount(query[inside], minlength=groups.queries)


def _ratio(above: Array, below: Array) -> Float:
    """Return above/below, 0 where the denominator is 0."""
    return np.where(below > 0, above / np.maximum(below, 1), 0.0)


def multiple_r_precision(groups: TieGroups, rel: int, multiple: float) -> Float:
    """Rprec_mult: precision at rank ⌊x·R + 0.9⌋."""
    cut = np.asarray(multiple * groups.relevant(rel) + 0.9, np.int64)
    return _ratio(_relevant_within(groups, rel, cut), cut)


def relative_precision(groups: TieGroups, rel: int, cutoff: int) -> Float:
    """relative_P: precision over the best there could be, Hits/min(k, R)."""
    return _ratio(_relevant_within(groups, rel, cutoff), np.minimum(cutoff, groups.relevant(rel)))


def set_relative_precision(groups: TieGroups, rel: int) -> Float:
    """set_relative_P: Hits/min(listed, R)."""
    found = _relevant_within(groups, rel, groups.listed)
    return _ratio(found, np.minimum(groups.listed, groups.relevant(rel)))


def judged_others(groups: TieGroups, rel: int) -> Float:
    """num_nonrel_judged_ret: judged documents that are listed and not relevant."""
    return groups.sum_by_query(groups.doc_query, groups.grade < rel)


def utility(groups: TieGroups, rel: int, parameters: Sequence[float]) -> Float:
    """Σ weight · (relevant and listed, others listed, relevant not listed, the rest of N)."""
    found, listed, wanted = (
        _relevant_within(groups, rel, groups.listed),
        groups.listed,
        groups.relevant(rel),
    )
    a, b, c, d, documents = parameters
    rest = documents + found - listed - wanted
    return np.asarray(a * found + b * (listed - found) + c * (wanted - found) + d * rest)


def averaged_precision(groups: TieGroups, rel: int, levels: Sequence[float]) -> Float:
    """11pt_avg with levels of recall of one's own."""
    chosen = np.flatnonzero(groups.grade >= rel)
    ranks = groups.rank[chosen]
    return np.nan_to_num(highest(groups, ranks, chosen, groups.relevant(rel), tuple(levels)))


def log_odds(groups: TieGroups, rel: int) -> Float:
    """yaap: log((1 + S)/(1 + R − S)), S the sum that AP divides by R."""
    chosen = np.flatnonzero(groups.grade >= rel)
    query = groups.doc_query[chosen]
    total = groups.sum_by_query(query, count_within(query) / groups.rank[chosen])
    odds = (1.0 + total) / (1.0 + groups.relevant(rel) - total)
    return np.fromiter(map(math.log, odds.tolist()), np.float64, len(odds))


def binary_gain(groups: TieGroups, rel: int) -> Float:
    """binG: Σ 1/log₂(2 + others above) over relevant documents, over R."""
    chosen = np.flatnonzero(groups.grade >= rel)
    query = groups.doc_query[chosen]
    others = groups.rank[chosen] - count_within(query)
    discount = log_discount(int(others.max(initial=0)) + 1)
    total = groups.sum_by_query(query, 1.0 / discount[others + 1])
    return _ratio(total, groups.relevant(rel))


class _Graded:
    """Gains of listed documents and of the ideal list, and their discounted sums by rank."""

    def __init__(self, groups: TieGroups, gains: Gains):
        worth, pooled = _gains_of(groups.grade, gains), _gains_of(groups.pool.unsorted, gains)
        gaining = np.flatnonzero(worth)
        self.groups = groups
        self.query, self.rank, self.gain = (
            groups.doc_query[gaining],
            groups.rank[gaining],
            worth[gaining],
        )
        good = np.flatnonzero(pooled > 0)
        good = good[np.lexsort((-pooled[good], groups.pool.query[good]))]
        self.owner, self.ideal = groups.pool.query[good], pooled[good]
        self.place = count_within(self.owner)
        self.wanted = np.bincount(self.owner, minlength=groups.queries)  # P
        longest = int(max(groups.listed.max(initial=0), self.wanted.max(initial=0)))
        discount = log_discount(longest)
        self.found = _running_sums(
            self.gain / discount[self.rank], self.query
        )  # DCG at each document
        self.best = _running_sums(
            self.ideal / discount[self.place], self.owner
        )  # of the ideal list

    def at(self, sums: Float, query: Int, rank: Int) -> Float:
        """Return a sum over the ideal list up to a rank."""
        start = np.append(0, np.cumsum(self.wanted))
        last = np.minimum(rank, self.wanted[query])
        return np.where(last > 0, np.append(sums, 0.0)[start[query] + last - 1], 0.0)

    def reached(self, query: Int, rank: Int) -> Float:
        """Return the DCG of the list up to a rank."""
        keys = self.query * _KEY + self.rank
        after = np.searchsorted(keys, query * _KEY + np.minimum(rank, _KEY - 1), side="right")
        inside = after > np.searchsorted(keys, query * _KEY)
        return np.where(inside, np.append(0.0, self.found)[after], 0.0)


def _graded(groups: TieGroups, gains: Gains) -> _Graded:
    """Return the gains of the groups, made once and kept with them."""
    kept: dict[Any, _Graded] = groups.__dict__.setdefault("graded by trec_eval", {})
    key = tuple(gains)
    if key not in kept:
        kept[key] = _Graded(groups, gains)
    return kept[key]


def _gains_of(grade: Int, gains: Gains) -> Float:
    worth = np.maximum(grade, 0).astype(np.float64)
    for level, parameters in gains:
        worth[grade == level] = parameters
    return worth


def _running_sums(values: Float, query: Int) -> Float:
    """Return running sums within each query, added in order."""
    length = np.bincount(query) if len(query) else np.zeros(0, np.int64)
    begin = np.cumsum(length) - length
    sums = np.zeros(len(values))
    for chosen, column, real in tables(length):
        row = np.where(real, begin[chosen, None] + column, 0)
        sums[row[real]] = np.cumsum(np.where(real, values[row], 0.0), axis=1)[real]
    return sums


def gain_over_cost(groups: TieGroups, rel: int, gains: Gains) -> Float:
    """G: Σ gain/log₂(2 + cost − gains so far), over the gains there are.

    The cost of a rank is the gain that the ideal list has there, at least 1.
    """
    graded = _graded(groups, gains)
    cost = graded.at(
        _running_sums(np.maximum(graded.ideal, 1.0), graded.owner), graded.query, graded.rank
    )
    cost += np.maximum(graded.rank - graded.wanted[graded.query], 0)
    lost = 2.0 + cost - _running_sums(graded.gain, graded.query)
    value = graded.gain / _log2(lost)
    ideal = groups.sum_by_query(graded.owner, graded.ideal)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(ideal > 0, groups.sum_by_query(graded.query, value) / ideal, 0.0)


def _log2(values: Float) -> Float:
    """Return log₂ by the C library; whole numbers, as these mostly are, are looked up."""
    whole = values.astype(np.int64)
    if np.array_equal(whole, values) and whole.max(initial=1) <= len(values):
        return log_discount(int(whole.max(initial=1)))[whole - 1]
    return np.fromiter(map(math.log2, values.tolist()), np.float64, len(values))


def ndcg_at_relevant(groups: TieGroups, rel: int, gains: Gains) -> Float:
    """ndcg_rel: nDCG at the rank of each document with a gain, at the end for those not listed."""
    graded = _graded(groups, gains)
    good = graded.gain > 0
    query, rank = graded.query[good], graded.rank[good]
    everyone = np.arange(groups.queries)
    ideal = graded.at(graded.best, everyone, graded.wanted)
    missing = graded.wanted - np.bincount(query, minlength=groups.queries)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = groups.sum_by_query(query, graded.found[good] / graded.at(graded.best, query, rank))
        total = total + missing * graded.reached(everyone, groups.listed) / ideal
        return np.where(total > 0, total / graded.wanted, 0.0)


def ndcg_at_levels(groups: TieGroups, rel: int, gains: Gains) -> Float:
    """Rndcg: the mean of nDCG at the ranks where the ideal list changes its gain and at the end."""
    graded = _graded(groups, gains)
    last = np.ones(len(graded.owner), np.bool_)
    last[:-1] = (graded.owner[1:] != graded.owner[:-1]) | (graded.ideal[1:] != graded.ideal[:-1])
    longer = np.flatnonzero((groups.listed > graded.wanted + 1) & (graded.wanted > 0))
    query = np.concatenate([graded.owner[last], longer])
    rank = np.concatenate([graded.place[last], groups.listed[longer]])
    value = graded.reached(query, rank) / graded.at(graded.best, query, rank)
    counted = np.bincount(query, minlength=groups.queries)
    mean = _ratio(groups.sum_by_query(query, value), counted)
    nothing = np.where(counted > 0, mean, -np.nan)  # 0/0 by -l 0
    return np.where(groups.relevant(rel) > 0, nothing, 0)


def first_grades(groups: TieGroups, _: int, parameters: Sequence[float]) -> list[str]:
    """relstring: the grades of the first documents; - is not pooled, . pooled and not judged."""
    groups, length = groups.sampled or groups, max(int(parameters[0]), 0)
    shown = [["-"] * int(min(length, listed)) for listed in groups.listed]
    inside = groups.rank <= length
    columns = (groups.doc_query[inside], groups.rank[inside], groups.grade[inside])
    for query, rank, grade in zip(*(column.tolist() for column in columns), strict=True):
        shown[query][rank - 1] = "." if grade < 0 else ">" if grade > 9 else str(grade)
    return ["".join(each) for each in shown]
