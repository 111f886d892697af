"""Bounds of nDCG and RAnWG: unjudged documents change the ideal they are divided by, too."""

from __future__ import annotations

from math import comb

import numpy as np

from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Float, Int
from rankproof.measures import Measure
from rankproof.measures.linear import discounts
from rankproof.unjudged.gains import Levels, ndcg_by_rank, ndcg_highest, ndcg_levels
from rankproof.unjudged.unjudged_documents import PartlyJudged, QueryBounds

_CELLS = 1 << 15  # of a table that fits into a processor's cache
_MAX_COMBINATIONS = 200_000  # of grades of one query's documents that are tried one by one
_MAX_WEIGHTS = 1 << 22  # of a table of weights for all numbers of documents


def ndcg(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Exact where no hole ties with anything but unjudged; see gains.py."""
    levels = ndcg_levels(run, measure)
    if run.is_implicit and not run.tied and kernels.native is not None:
        high = run.cached(measure, lambda: _ndcg_by_rank(measure, run, levels, best=True))
        return _clipped_ndcg(_ndcg_by_rank(measure, run, levels, best=False), high, run, levels)
    lists = run.explicit
    groups = lists.groups
    judged, unjudged = np.flatnonzero(~lists.is_unjudged), np.flatnonzero(lists.is_unjudged)
    gains, query = levels.gain(groups.grade[judged]), groups.doc_query
    none, exact = np.zeros(groups.queries, np.int64), True

    def end(sign: float, extra: Int) -> Float:
        sums, delta = ranked(sign)
        sums = groups.sum_by_query(query[judged], gains * sums)
        return sign * ndcg_highest(
            *(sign * sums, delta, run.unjudged_in_query, extra, levels, measure.cutoff, sign)
        )

    def ranked(sign: float) -> tuple[Float, Float]:
        """Weights of the judged documents, and of the unjudged ones: (1, H), or (L, H) by level."""
        if not lists.tied:
            weight = lists.cached(
                ("ranks", measure), lambda: discounts(groups.rank, measure.cutoff)
            )
            return weight[judged], weight[None, unjudged]
        rank = groups.best_rank if sign > 0 else groups.worst_rank
        delta = [discounts(rank(alone + a)[unjudged], measure.cutoff) for a in ahead]
        return discounts(rank(groups.place_by_grade)[judged], measure.cutoff), np.stack(delta)

    if lists.tied:
        alone = lists.number_in_group()
        exact = not ((lists.unjudged_in_group > 0) & (lists.unjudged_in_group < groups.size)).any()
        # How many judged documents of at least the level's grade tie with each.
        ahead = [np.zeros(len(query), np.int64)]
        if not exact:
            ahead = [lists.judged_with(int(grade))[groups.doc_group] for grade in levels.grade]
    high = run.cached(measure, lambda: end(1.0, none))
    return _clipped_ndcg(end(-1.0, run.unlisted), high, run, levels, exact)


def _clipped_ndcg(
    low: Float, high: Float, run: PartlyJudged, levels: Levels, exact: bool = True
) -> QueryBounds:
    # Nothing listed is relevant, but an unjudged document that the run does not list may be.
    high = np.where(np.isnan(high) & (run.unlisted > 0) & (levels.step.sum() > 0), 0.0, high)
    return QueryBounds(np.maximum(low, 0.0), np.minimum(high, 1.0), exact)


def _ndcg_by_rank(measure: Measure, run: PartlyJudged, levels: Levels, *, best: bool) -> Float:
    groups = run.groups

    def known() -> Float:
        weighted = levels.gain(groups.grade) * discounts(groups.rank, measure.cutoff)
        return groups.sum_by_query(groups.doc_query, weighted)

    sums = run.cached(("known", measure), known)
    return ndcg_by_rank(run, sums, levels, measure.cutoff, best)


def ra_nwg(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound RAnWG by trying every number of unjudged documents of grade 3, 4 and 5.

    If a tie group straddles K, or another run has unjudged documents, what fits is chosen from all
    documents that might: a bound.
    """
    groups, k = run.groups, measure.cutoff
    assert k is not None
    parameters = measure.parameters
    alpha, cap4, cap3 = (float(parameters[p] or 0.0) for p in ("alpha", "cap4", "cap3"))
    fits = np.clip(k - groups.first + 1, 0, groups.size)
    whole = fits == groups.size

    def by_query(values: Array) -> Int:
        return groups.sum_by_query(groups.query, values).astype(np.int64)

    sure = [by_query(run.judged_with(g, g) * whole) for g in (3, 4, 5)]
    loose = [by_query(run.judged_with(g, g) * ~whole) for g in (3, 4, 5)]
    nothing = by_query(run.judged_with(1, 2) * ~whole)
    unjudged = run.unjudged_in_query + run.unlisted
    slots = by_query(run.unjudged_in_group * whole) + by_query(fits * ~whole)
    cut_off = False  # unjudged documents that tie with nothing judged
    if run.is_implicit:
        between = run.span - by_query(groups.size)
        inside = np.minimum(k, run.span) - by_query(fits)
        slots, cut_off = slots + inside, bool((inside < between).any())
    pooled = [groups.pool.count(g, g) for g in (3, 4, 5)]
    kinds = np.stack([*sure, *loose, nothing, unjudged, slots, *pooled], axis=1)
    # The numbers of a query are packed into one if they fit: it is much faster to sort.
    most = kinds.max(axis=0, initial=0).astype(object) + 1
    if most.prod() < 2**62:
        _, at, which = np.unique(
            kinds @ (np.cumprod(most) // most).astype(np.int64),
            return_index=True,
            return_inverse=True,
        )
        keys = kinds[at]
    else:
        keys, which = np.unique(kinds, axis=0, return_inverse=True)
    low, high = np.zeros(len(keys)), np.ones(len(keys))
    tried = np.array(
        [comb(n + 3, 3) <= _MAX_COMBINATIONS for n in range(int(unjudged.max(initial=0)) + 1)]
    )
    some = np.flatnonzero(tried[keys[:, 7]])
    low[some], high[some] = _rarity_bounds(keys[some], k, alpha, cap4, cap3)
    which = which.reshape(-1)
    crowded = bool((run.unjudged_in_query + run.unlisted >= 1).any()) and bool(
        (~whole).any() or cut_off or run.unlisted.any()
    )
    too_many = comb(int(unjudged.max(initial=0)) + 3, 3) > _MAX_COMBINATIONS
    return QueryBounds(low[which], high[which], exact=not (crowded or too_many))


def _grade_counts(unjudged: int) -> Int:
    """(V, 3) how many of the unjudged have grade 3, 4 and 5, in every way."""
    a, b, c = np.meshgrid(*(np.arange(unjudged + 1),) * 3, indexing="ij")
    keep = a + b + c <= unjudged
    return np.stack([a[keep], b[keep], c[keep]], axis=1)


def _rarity_bounds(
    keys: Int, k: int, alpha: float, cap4: float, cap3: float
) -> tuple[Float, Float]:
    """(S,) lowest and highest RAnWG over all ways to grade the unjudged."""
    low, high = np.full(len(keys), np.nan), np.full(len(keys), np.nan)
    most = (keys[:, 9:] + keys[:, 7:8]).max(axis=0, initial=0) + 1  # of grades 3, 4 and 5 in a pool
    if kernels.native is not None and most[2] * (most[0] + most[1]) <= _MAX_WEIGHTS:
        three, four, five = (np.arange(n) for n in most)
        w4, w3 = (
            _weight4(four, five[:, None], alpha, cap4),
            _weight3(three, five[:, None], alpha, cap3),
        )
        kernels.map_ranges(
            lambda first, last: kernels.native.sets(
                *(keys, w4, w4.shape[1], w3, w3.shape[1], k, low, high, first, last)
            ),
            *(len(keys), kernels.thread_count(1000 * len(keys))),
        )
        return low, high
    for count in np.unique(keys[:, 7]):
        chosen, given = np.flatnonzero(keys[:, 7] == count), _grade_counts(int(count))
        step = max(1, _CELLS // len(given))
        for begin in range(0, len(chosen), step):
            some = chosen[begin : begin + step]
            columns = [keys[some, c, None] for c in range(keys.shape[1])]
            low[some], high[some] = _rarity_bounds_by_enumeration(
                columns, given, k, alpha, cap4, cap3
            )
    return low, high


def _weight4(n4: Int, n5: Int, alpha: float, cap: float) -> Float:
    """w4 = r_4/r_5 = b_4 · (n_5/n_4)^alpha: the size of the pool cancels."""
    return _weight(n4, n5, 0.5, alpha, cap, 1.0)


def _weight3(n3: Int, n5: Int, alpha: float, cap: float) -> Float:
    return _weight(n3, n5, 0.1, alpha, cap, 0.2)


def _weight(n: Int, n5: Int, base: float, alpha: float, cap: float, without: float) -> Float:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        weight = np.where(n > 0, np.fmin(base * (n5 / n) ** alpha, cap), 0.0)
    return np.where(n5 > 0, weight, without)


def _rarity_bounds_by_enumeration(
    columns: list[Int], given: Int, k: int, alpha: float, cap4: float, cap3: float
) -> tuple[Float, Float]:
    s3, s4, s5, l3, l4, l5, nothing, unjudged, slots, n3, n4, n5 = columns
    a3, a4, a5 = (given[None, :, g] for g in range(3))
    n3, n4, n5 = n3 + a3, n4 + a4, n5 + a5
    w4, w3 = _weight4(n4, n5, alpha, cap4), _weight3(n3, n5, alpha, cap3)
    heavy, light = np.maximum(w3, w4), np.minimum(w3, w4)
    three = w3 > w4  # a rare grade 3 can outweigh a common grade 4

    def fill(room: Int, first: Int, *rest: tuple[Int, Float]) -> Float:
        """`first` takes room and weighs nothing; then each kind in turn."""
        room = np.maximum(room - first, 0)
        total = np.zeros(np.broadcast_shapes(room.shape, n5.shape))
        for count, weight in rest:
            taken = np.minimum(count, room)
            total = total + taken * weight
            room = room - taken
        return total

    def sides(x3: Int, x4: Int) -> tuple[Int, Int]:
        return np.where(three, x3, x4), np.where(three, x4, x3)

    none = np.zeros_like(slots)
    one = np.ones_like(w4)
    pool_heavy, pool_light = sides(n3, n4)
    ideal = fill(none + k, none, (n5, one), (pool_heavy, heavy), (pool_light, light))
    known = s5 + s4 * w4 + s3 * w3
    fit_heavy, fit_light = sides(l3 + a3, l4 + a4)
    best = known + fill(slots, none, (l5 + a5, one), (fit_heavy, heavy), (fit_light, light))
    zeros = nothing + unjudged - a3 - a4 - a5
    worst = known + fill(slots, zeros, (fit_light, light), (fit_heavy, heavy), (l5 + a5, one))
    with np.errstate(invalid="ignore", divide="ignore"):
        low = np.where(ideal > 0, worst / ideal, np.nan)
        high = np.where(ideal > 0, best / ideal, np.nan)
    return np.fmin.reduce(low, axis=1), np.minimum(np.fmax.reduce(high, axis=1), 1.0)
