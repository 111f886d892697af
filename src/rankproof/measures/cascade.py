"""Expected reciprocal rank: a reader goes down the list and stops where an answer satisfies.

For a uniformly random order of a group, the expected product of the first t values of
u = 1 − stop is the mean of the product over all t-subsets, e_t(u)/C(g, t) with e_t the elementary
symmetric polynomial. That mean follows a recurrence of convex combinations, so it is stable where
e_t alone would overflow: one more document with value u turns the means M of n documents into

    M'_t = (1 − t/(n+1)) · M_t + (t/(n+1)) · u · M_{t−1}.
"""

from __future__ import annotations

import numpy as np

from rankproof.arrays import Float, Int
from rankproof.measures.linear import limit
from rankproof.measures.ragged import row_product, row_sum, tables
from rankproof.measures.registry import Outcomes, measure
from rankproof.ties import TieGroups


@measure("ERR", at="cutoff", limits={"max": (1, 1000)}, aliases=("expected_reciprocal_rank",))
def err(groups: TieGroups, cutoff: int | None, max: int | None = None) -> Outcomes:  # noqa: A002
    """Expected reciprocal rank: Σ_r (1/r) · P(the reader stops at rank r).

    A document of grade g stops the reader with probability (2^g − 1)/2^max; `max` is the highest
    grade of the scale, by default the highest in the judgements. No std: the variance over
    orderings has no closed form in O(g).
    """
    top = groups.pool.max_grade if max is None else max
    stop = np.exp2(np.minimum(groups.grade, top) - top) - np.exp2(-top)
    falling = stop[groups.by_place(groups.place_by_grade)]
    cut = limit(groups, cutoff)

    def total(rank: Int) -> Float:
        """The measure of one order of the judged documents."""
        by_rank = np.lexsort((rank, groups.doc_query))
        rank, stops = rank[by_rank], stop[by_rank]
        reached = _running_product(1.0 - stops, groups.doc_query)
        value = np.where(rank <= cut[groups.doc_query], reached * stops / rank, 0.0)
        return groups.sum_by_query(groups.doc_query, value)

    passed = _passed(groups, falling)
    reached = _running_product(passed, groups.query)
    inside = np.clip(cut[groups.query] - groups.first + 1, 0, groups.size)
    expected = np.where(inside > 0, reached * groups.sum_by_group(falling) / groups.first, 0.0)
    tied = np.flatnonzero((groups.size > 1) & (inside > 0))
    expected[tied] = reached[tied] * _stops_within(groups, falling, tied, inside[tied])
    return Outcomes(
        expected=groups.sum_by_query(groups.query, expected),
        min=total(groups.worst_rank(groups.place_by_grade)),
        max=total(groups.best_rank(groups.place_by_grade)),
        oblivious=total(groups.rank),
        variance=None,
    )


def _passed(groups: TieGroups, stop: Float) -> Float:
    """(G,) the chance to get past every document of a group."""
    passed = np.ones(len(groups.size))
    for chosen, column, real in tables(groups.judged):
        doc = np.where(real, groups.start[chosen, None] + column, 0)
        passed[chosen] = row_product(np.where(real, 1.0 - stop[doc], 1.0))
    return passed


def _running_product(values: Float, query: Int) -> Float:
    """For each value, the product of those before it in its query; values ascend by query."""
    length = np.bincount(query, minlength=int(query.max(initial=-1)) + 1)
    begin = np.cumsum(length) - length
    product = np.ones(len(values))
    for chosen, column, real in tables(length):
        row = np.where(real, begin[chosen, None] + column, 0)
        running = np.cumprod(np.where(real, values[row], 1.0), axis=1)
        later = real[:, 1:]
        product[row[:, 1:][later]] = running[:, :-1][later]
    return product


def _stops_within(groups: TieGroups, stop: Float, tied: Int, inside: Int) -> Float:
    """(T,) Σ_t (M_{t−1} − M_t)/(c+t) of each tied group, over the positions that count.

    `stop` falls inside each group.
    """
    value = np.empty(len(tied))
    stopping = groups.sum_by_group(stop > 0).astype(np.int64)
    inside = np.minimum(inside, _reach(groups, stop)[tied])
    for chosen, column, real in tables(inside):
        at = tied[chosen]
        size, first = groups.size[at], groups.first[at]
        t = column + 1  # (1, width); M_0 = 1 is not stored
        mean = np.ones((len(at), t.shape[1]))
        held = size - stopping[at]  # those that never stop come first: their means are all 1
        for number in range(int(stopping[at].max())):
            going = np.flatnonzero(stopping[at] > number)
            u = 1.0 - stop[groups.start[at[going]] + number]
            share = np.minimum(t / (held[going] + 1)[:, None], 1.0)  # past n+1 there is no subset
            shifted = np.concatenate([np.ones((len(going), 1)), mean[going, :-1]], axis=1)
            mean[going] = (1.0 - share) * mean[going] + share * u[:, None] * shifted
            held[going] += 1
        before = np.concatenate([np.ones((len(at), 1)), mean[:, :-1]], axis=1)
        value[chosen] = row_sum(np.where(real, (before - mean) / (first[:, None] + column), 0.0))
    return value


_NOTHING = -64.0 * np.log(2.0)  # a share of the whole that no float64 holds beside it


def _reach(groups: TieGroups, stop: Float) -> Int:
    """(G,) the position in a group past which no reader is left, to the last bit.

    By Maclaurin's inequality M_t ≤ M_1^t, and M_1 is the mean of u. Past t at most M_t/(c+t) is to
    come, where the first position alone gave (1 − M_1)/(c+1). Of a group with many documents that
    stop a reader, few positions matter.
    """
    passing = 1.0 - groups.sum_by_group(stop) / groups.size
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.ceil((_NOTHING + np.log1p(-passing)) / np.log(passing)) + 1
    certain = np.where(passing > 0, steps, 1.0)
    return np.where(passing < 1, np.minimum(certain, groups.size), groups.size).astype(np.int64)
