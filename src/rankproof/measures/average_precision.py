"""Average precision under every order of ties: mean, variance, lowest and highest value.

    R·AP@k = Σ_groups A,   A = Σ_i a_i X_i (B + Σ_{j≤i} X_j)

X_i is 1 if the document at position i of the group is relevant, else 0; a_i = 1/(c+i) up to rank k
and 0 past it; c counts the ranks and B the relevant documents before the group. Groups are
independent, so means and variances add. With p_j the chance that j given positions of the group
all hold relevant documents, and L = Σ a_i X_i, Q = Σ_{j<i} a_i X_i X_j, A = (B+1)·L + Q. The
moments of L and Q are sums over single positions, pairs, triples and quadruples of them.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from rankproof.data.ties import TieGroups
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Float, Int
from rankproof.measures.hypergeometric import log_factorials
from rankproof.measures.linear import REL, last_listed_rank
from rankproof.measures.outcomes import POWERS, SMALLEST, Outcomes, root_powers
from rankproof.measures.padded_rows import row_sum, tables
from rankproof.measures.random_orders import too_expensive
from rankproof.measures.registry import measure


@measure(
    "AP",
    at="cutoff",
    limits=REL,
    aliases=("MAP", "map_cut", "average_precision"),
    meaning="Precision at the rank of each relevant passage, averaged over all relevant ones.",
    unjudged="average precision",
    reads="relevant",
    splits_ties=True,
)
def average_precision(groups: TieGroups, cutoff: int | None, rel: int = 1) -> Outcomes:
    """Average precision [T 22–24]: precision at the rank of each relevant document, over R.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "AP")["AP"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.417, 0.458, 0.5)
    """
    cut = last_listed_rank(groups, cutoff)
    relevant = groups.relevant(rel).astype(np.float64)
    relevant[relevant == 0] = np.nan
    if groups.alone:
        total = kernels.precision_sum(groups.query, groups.rank, groups.grade, rel, cut)
        return Outcomes.certain(total / relevant)
    columns = groups.size, groups.first, groups.query, groups.start, groups.rank
    sums = kernels.average_precision_sums(groups.grade, rel, cut, *columns)
    if sums is not None:
        return Outcomes.from_sums(sums, relevant)
    documents = np.flatnonzero(groups.grade >= rel)  # relevant ones, by query and rank
    query = groups.doc_query[documents]
    number = kernels.count_within(query)  # 1 for the first relevant document of its query

    def precision_sum(rank: Int) -> Float:
        """(Q,) R·AP@k with the relevant documents at these ranks."""
        precision = np.where(rank <= cut[query], number / rank, 0.0)
        return groups.sum_by_query(query, precision)

    group = groups.doc_group[documents]
    in_group = np.bincount(group, minlength=len(groups.size))  # m
    before = np.zeros(len(groups.size), np.int64)  # B
    np.maximum.at(before, group, number)
    before = np.where(in_group > 0, before - in_group, 0)
    best = groups.first[group] - 1 + number - before[group]
    worst = best + (groups.size - in_group)[group]

    depth = np.clip(cut[groups.query] - groups.first + 1, 0, groups.size)  # (G,) ranks that count
    expected = np.where((in_group > 0) & (depth > 0), (before + 1) / groups.first, 0.0)
    variance = np.zeros(len(groups.size))
    tied = np.flatnonzero((in_group > 0) & (depth > 0) & (groups.size > 1))
    expected[tied], variance[tied] = _moments(
        groups.first[tied], groups.size[tied], depth[tied], in_group[tied], before[tied]
    )
    return Outcomes(
        expected=groups.sum_by_query(groups.query, expected) / relevant,
        min=precision_sum(worst) / relevant,
        max=precision_sum(best) / relevant,
        oblivious=precision_sum(groups.rank[documents]) / relevant,
        variance=groups.sum_by_query(groups.query, variance) / relevant**2,
    )


_QUERY_STEPS = 1 << 22  # most steps to enumerate the orders of a query: a tenth of a second
_CALL_STEPS = 1 << 28  # most steps for all queries


@measure(
    "GMAP",
    limits=REL,
    aliases=("gm_map",),
    geometric=True,
    unjudged="average precision",
    reads="relevant",
)
def geometric(groups: TieGroups, rel: int = 1) -> Outcomes:
    """Geometric mean of AP over queries, where an AP below 0.00001 counts as 0.00001.

    The orders of n queries are independent: E = Π E[max(AP, 0.00001)^(1/n)], which is less than
    the geometric mean of E[AP].

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "GMAP")["GMAP"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.417, 0.458, 0.5)
    """
    listed = average_precision(rel=rel).outcomes(groups)
    low, high, oblivious = (
        np.maximum(values, SMALLEST) for values in (listed.min, listed.max, listed.oblivious)
    )
    expected, variance = high.copy(), 0.0 * high
    powers = root_powers(high[:, None])
    is_tied = low < high
    in_group = groups.sum_by_group(groups.grade >= rel)
    logs = groups.sum_by_query(groups.query, _log_orders(groups.size, in_group))
    steps = np.exp(np.minimum(logs, 700.0)) * (POWERS + groups.sum_by_query(groups.query, in_group))
    expensive = too_expensive(np.where(is_tied, steps, 0.0), _QUERY_STEPS, _CALL_STEPS)
    relevant = groups.relevant(rel)
    start = np.searchsorted(groups.query, np.arange(groups.queries + 1))
    for query in np.flatnonzero(is_tied & ~expensive):
        chosen = slice(start[query], start[query + 1])
        m = in_group[chosen].astype(np.int64)
        sums = _sums_of_all_orders(groups.first[chosen], groups.size[chosen], m)
        values = np.maximum(sums / relevant[query], SMALLEST)
        expected[query], variance[query] = values.mean(), values.var()
        powers[query] = root_powers(values[None])
    return Outcomes(expected, low, high, oblivious, variance, expensive=expensive, powers=powers)


def _log_orders(size: Int, relevant: Float) -> Float:
    """(G,) ln C(g, m): the logarithm of the number of different orders of each group."""
    factorials = log_factorials(int(size.max(initial=0)))
    m = relevant.astype(np.int64)
    return np.asarray(factorials[size] - factorials[m] - factorials[size - m])


def _sums_of_all_orders(first: Int, size: Int, relevant: Int) -> Float:
    """R·AP in every order of one query's tie groups, `relevant` documents of which are relevant."""
    sums, before = np.zeros(1), 0
    for c, g, m in zip((first - 1).tolist(), size.tolist(), relevant.tolist(), strict=True):
        positions = np.array(list(combinations(range(1, g + 1), m))).reshape(math.comb(g, m), m)
        precision = (before + np.arange(1, m + 1)) / (c + positions)
        sums = (sums[:, None] + precision.sum(axis=1)).ravel()
        before += m
    return sums


def _moments(first: Int, size: Int, depth: Int, relevant: Int, before: Int) -> tuple[Float, Float]:
    """(T,) E[A] and var A of tied groups, `depth` of whose ranks count; in O(size) each."""
    mean = np.empty(len(first))
    variance = np.empty(len(first))
    chances = _all_relevant(size, relevant)
    for chosen, column, real in tables(depth):
        p1, p2, p3, p4 = (p[chosen] for p in chances)
        lead = before[chosen] + 1.0  # B + 1
        weight = np.where(real, 1.0 / (first[chosen, None] + column), 0.0)
        total = row_sum(weight)
        mean[chosen] = p1 * lead * total + p2 * row_sum(weight * column)

        # A constant added to every a_i of a group adds a constant to A, so weights are centred for
        # the variance: no large terms cancel then. A group that the cutoff splits keeps its
        # weights, since those past the cutoff would not be 0 any more.
        is_whole = depth[chosen] == size[chosen]
        centre = np.where(is_whole, total / depth[chosen], 0.0)
        a = np.where(real, weight - centre[:, None], 0.0)
        square = a * a
        s1, s2 = np.cumsum(a, axis=1), np.cumsum(square, axis=1)
        after = np.where(real, s1[:, -1:] - s1, 0.0)  # T
        after_square = np.where(real, s2[:, -1:] - s2, 0.0)  # U
        s1, s2 = s1[:, -1], s2[:, -1]
        d, f = row_sum(a * column), row_sum(square * column)
        triple = row_sum(
            square * column * (column - 1) + (after * after - after_square) + 2 * a * column * after
        )
        h = (s1 * s1 - s2) / 2
        l_l = p1 * s2 + p2 * (s1 * s1 - s2)
        l_q = p2 * (f + h) + p3 * (s1 * d - f - h)
        q_q = p2 * f + p3 * triple + p4 * (d * d - f - triple)
        spread = lead * lead * l_l + 2 * lead * l_q + q_q - (lead * p1 * s1 + p2 * d) ** 2
        variance[chosen] = np.where(relevant[chosen] == size[chosen], 0.0, spread)
    return mean, variance


def _all_relevant(size: Int, relevant: Int) -> list[Float]:
    """p_1 … p_4 (T,): p_j is the chance that j given positions all hold relevant documents."""
    chances = []
    chance = np.ones(len(size))
    for j in range(4):
        chance = chance * np.maximum(relevant - j, 0) / np.maximum(size - j, 1)
        chances.append(chance)
    return chances
