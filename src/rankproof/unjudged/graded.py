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
_UNJUDGED, _POOLED = 7, slice(9, 12)  # columns of `_rarity_counts`


def ndcg(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound nDCG as gains.py says; exact where no unjudged document ties with a judged one."""
    levels = ndcg_levels(run, measure)
    groups, exact = run.groups, True
    if run.is_implicit and not run.tied and kernels.native is not None:
        high = run.cached(measure, lambda: _ndcg_by_rank(measure, run, levels, best=True))
        low = _ndcg_by_rank(measure, run, levels, best=False)
    else:
        unjudged = run.explicit.unjudged_in_group
        exact = not (run.tied and ((unjudged > 0) & (unjudged < run.explicit.groups.size)).any())
        no_unlisted = np.zeros(groups.queries, np.int64)
        high = run.cached(measure, lambda: _ndcg_end(measure, run, levels, no_unlisted, 1.0))
        low = _ndcg_end(measure, run, levels, run.unlisted, -1.0)
    # Nothing listed is relevant, but an unjudged document that the run does not list may be.
    high = np.where(np.isnan(high) & (run.unlisted > 0) & (levels.step.sum() > 0), 0.0, high)
    return QueryBounds(np.maximum(low, 0.0), np.minimum(high, 1.0), exact)


def _ndcg_end(
    measure: Measure, run: PartlyJudged, levels: Levels, unlisted: Int, sign: float
) -> Float:
    """(Q,) the highest nDCG (sign 1) or the lowest (sign −1)."""
    lists = run.explicit
    groups = lists.groups
    judged = np.flatnonzero(~lists.is_unjudged)
    judged_weight, delta = _ndcg_weights(measure, lists, levels, highest=sign > 0)
    gained = levels.gain(groups.grade[judged]) * judged_weight
    known = groups.sum_by_query(groups.doc_query[judged], gained)
    count = run.unjudged_in_query
    return sign * ndcg_highest(
        *(sign * known, delta, count, unlisted, levels, measure.cutoff, sign)
    )


def _ndcg_weights(
    measure: Measure, lists: PartlyJudged, levels: Levels, *, highest: bool
) -> tuple[Float, Float]:
    """Discounts of the judged documents, and of the unjudged ones: (1, H), or (L, H) by level."""
    groups, cutoff = lists.groups, measure.cutoff
    judged, unjudged = np.flatnonzero(~lists.is_unjudged), np.flatnonzero(lists.is_unjudged)
    if not lists.tied:
        weight = lists.cached(("ranks", measure), lambda: discounts(groups.rank, cutoff))
        return weight[judged], weight[None, unjudged]
    rank = groups.best_rank if highest else groups.worst_rank
    number = lists.number_in_group()
    # An unjudged document stands behind the judged ones of at least the level's grade in its group.
    has_mixed_groups = (lists.unjudged_in_group > 0) & (lists.unjudged_in_group < groups.size)
    judged_ahead: list[Int] = [np.zeros(len(number), np.int64)]
    if has_mixed_groups.any():
        judged_ahead = [lists.judged_with(int(grade))[groups.doc_group] for grade in levels.grade]
    delta = [discounts(rank(number + ahead)[unjudged], cutoff) for ahead in judged_ahead]
    return discounts(rank(groups.place_by_grade)[judged], cutoff), np.stack(delta)


def _ndcg_by_rank(measure: Measure, run: PartlyJudged, levels: Levels, *, best: bool) -> Float:
    """(Q,) the highest or lowest nDCG if nothing ties, by compiled code."""
    groups = run.groups

    def judged_gain() -> Float:
        weighted = levels.gain(groups.grade) * discounts(groups.rank, measure.cutoff)
        return groups.sum_by_query(groups.doc_query, weighted)

    known = run.cached(("known", measure), judged_gain)
    return ndcg_by_rank(run, known, levels, measure.cutoff, best)


def ra_nwg(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound RAnWG by trying every number of unjudged documents of grade 3, 4 and 5.

    If a tie group straddles K, or another run has unjudged documents, what fits is chosen from all
    documents that might: a bound. A query with too many unjudged documents has the bounds 0 and 1.
    """
    k = measure.cutoff
    assert k is not None
    settings = measure.parameters
    alpha, cap4, cap3 = (float(settings[name] or 0.0) for name in ("alpha", "cap4", "cap3"))
    counts, exact = _rarity_counts(run, k)
    distinct, query_row = _distinct_rows(counts)
    unjudged = distinct[:, _UNJUDGED]
    most = int(unjudged.max(initial=0))
    is_feasible = np.array([comb(n + 3, 3) <= _MAX_COMBINATIONS for n in range(most + 1)])
    feasible = np.flatnonzero(is_feasible[unjudged])
    low, high = np.zeros(len(distinct)), np.ones(len(distinct))
    low[feasible], high[feasible] = _rarity_bounds(distinct[feasible], k, alpha, cap4, cap3)
    return QueryBounds(low[query_row], high[query_row], exact=exact and bool(is_feasible[-1]))


def _rarity_counts(run: PartlyJudged, k: int) -> tuple[Int, bool]:
    """(Q, 12) the numbers that decide the bounds of RAnWG@k, and whether these are exact.

    Documents of grades 3, 4 and 5 in tie groups that lie in the top k; the same in groups that
    straddle k; documents of grades 1 and 2 in these; unjudged documents, listed or not; ranks of
    the top k that are open; documents of grades 3, 4 and 5 in the pool.
    """
    groups = run.groups
    fitting = np.clip(k - groups.first + 1, 0, groups.size)
    is_whole = fitting == groups.size

    def by_query(values: Array) -> Int:
        return groups.sum_by_query(groups.query, values).astype(np.int64)

    certain = [by_query(run.judged_with(g, g) * is_whole) for g in (3, 4, 5)]
    straddling = [by_query(run.judged_with(g, g) * ~is_whole) for g in (3, 4, 5)]
    worthless = by_query(run.judged_with(1, 2) * ~is_whole)
    unjudged = run.unjudged_in_query + run.unlisted
    open_ranks = by_query(run.unjudged_in_group * is_whole) + by_query(fitting * ~is_whole)
    must_choose = bool((~is_whole).any() or run.unlisted.any())
    if run.is_implicit:  # unjudged documents that tie with nothing judged
        alone = run.span - by_query(groups.size)
        inside = np.minimum(k, run.span) - by_query(fitting)
        open_ranks = open_ranks + inside
        must_choose |= bool((inside < alone).any())
    pooled = [groups.pool.count(g, g) for g in (3, 4, 5)]
    columns = [*certain, *straddling, worthless, unjudged, open_ranks, *pooled]
    return np.stack(columns, axis=1), not (must_choose and bool(unjudged.any()))


def _distinct_rows(counts: Int) -> tuple[Int, Int]:
    """The distinct rows of a table, and the number of the one that each row equals."""
    # Each row is packed into one number if that fits: it is much faster to sort.
    sizes = counts.max(axis=0, initial=0).astype(object) + 1
    if sizes.prod() < 2**62:
        packed = counts @ (np.cumprod(sizes) // sizes).astype(np.int64)
        _, first, number = np.unique(packed, return_index=True, return_inverse=True)
        return counts[first], number.reshape(-1)
    distinct, number = np.unique(counts, axis=0, return_inverse=True)
    return distinct, number.reshape(-1)


def _grade_counts(unjudged: int) -> Int:
    """(V, 3) how many of the unjudged have grade 3, 4 and 5, in every way."""
    three, four, five = np.meshgrid(*(np.arange(unjudged + 1),) * 3, indexing="ij")
    is_possible = three + four + five <= unjudged
    return np.stack([three[is_possible], four[is_possible], five[is_possible]], axis=1)


def _rarity_bounds(
    counts: Int, k: int, alpha: float, cap4: float, cap3: float
) -> tuple[Float, Float]:
    """(S,) lowest and highest RAnWG for each row of `_rarity_counts`, over all grades."""
    low, high = np.full(len(counts), np.nan), np.full(len(counts), np.nan)
    unjudged, pooled = counts[:, _UNJUDGED], counts[:, _POOLED]
    sizes = (pooled + unjudged[:, None]).max(axis=0, initial=0) + 1  # for grades 3, 4 and 5
    if kernels.native is not None and sizes[2] * (sizes[0] + sizes[1]) <= _MAX_WEIGHTS:
        three, four, five = (np.arange(size) for size in sizes)
        w4 = _weight4(four, five[:, None], alpha, cap4)
        w3 = _weight3(three, five[:, None], alpha, cap3)
        kernels.map_ranges(
            lambda first, last: kernels.native.sets(
                *(counts, w4, w4.shape[1], w3, w3.shape[1], k, low, high, first, last)
            ),
            *(len(counts), kernels.thread_count(1000 * len(counts))),
        )
        return low, high
    for count in np.unique(unjudged):
        rows, graded = np.flatnonzero(unjudged == count), _grade_counts(int(count))
        step = max(1, _CELLS // len(graded))
        for begin in range(0, len(rows), step):
            block = rows[begin : begin + step]
            columns = [counts[block, column, None] for column in range(counts.shape[1])]
            low[block], high[block] = _rarity_bounds_by_enumeration(
                columns, graded, k, alpha, cap4, cap3
            )
    return low, high


def _weight4(n4: Int, n5: Int, alpha: float, cap: float) -> Float:
    """w4 = r_4/r_5 = b_4 · (n_5/n_4)^alpha: the size of the pool cancels."""
    return _weight(n4, n5, 0.5, alpha, cap, 1.0)


def _weight3(n3: Int, n5: Int, alpha: float, cap: float) -> Float:
    """w3 = r_3/r_5, as `_weight4`."""
    return _weight(n3, n5, 0.1, alpha, cap, 0.2)


def _weight(n: Int, n5: Int, base: float, alpha: float, cap: float, without: float) -> Float:
    """min(base · (n5/n)^alpha, cap); `without` where nothing has grade 5."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        weight = np.where(n > 0, np.fmin(base * (n5 / n) ** alpha, cap), 0.0)
    return np.where(n5 > 0, weight, without)


def _rarity_bounds_by_enumeration(
    columns: list[Int], graded: Int, k: int, alpha: float, cap4: float, cap3: float
) -> tuple[Float, Float]:
    """The numpy twin of the kernel `sets`: (S,) both bounds, trying all `graded` (V, 3).

    s, l, a and n are the documents of each grade: certain in the top k, straddling k, among the
    unjudged ones, and in the pool with these.
    """
    s3, s4, s5, l3, l4, l5, worthless, unjudged, open_ranks, n3, n4, n5 = columns
    a3, a4, a5 = (graded[None, :, column] for column in range(3))
    n3, n4, n5 = n3 + a3, n4 + a4, n5 + a5
    w4, w3 = _weight4(n4, n5, alpha, cap4), _weight3(n3, n5, alpha, cap3)
    heavy, light = np.maximum(w3, w4), np.minimum(w3, w4)
    is_three_heavy = w3 > w4  # a rare grade 3 can outweigh a common grade 4

    def fill(ranks: Int, worthless: Int, *kinds: tuple[Int, Float]) -> Float:
        """The weight on some ranks if worthless documents come first, then each kind in turn."""
        ranks = np.maximum(ranks - worthless, 0)
        total = np.zeros(np.broadcast_shapes(ranks.shape, n5.shape))
        for count, weight in kinds:
            filled = np.minimum(count, ranks)
            total = total + filled * weight
            ranks = ranks - filled
        return total

    def heavy_and_light(x3: Int, x4: Int) -> tuple[Int, Int]:
        return np.where(is_three_heavy, x3, x4), np.where(is_three_heavy, x4, x3)

    zero, one = np.zeros_like(open_ranks), np.ones_like(w4)
    pool_heavy, pool_light = heavy_and_light(n3, n4)
    ideal = fill(zero + k, zero, (n5, one), (pool_heavy, heavy), (pool_light, light))
    known = s5 + s4 * w4 + s3 * w3
    fit_heavy, fit_light = heavy_and_light(l3 + a3, l4 + a4)
    best = known + fill(open_ranks, zero, (l5 + a5, one), (fit_heavy, heavy), (fit_light, light))
    worthless = worthless + unjudged - a3 - a4 - a5
    worst = known + fill(
        *(open_ranks, worthless, (fit_light, light), (fit_heavy, heavy), (l5 + a5, one))
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        low = np.where(ideal > 0, worst / ideal, np.nan)
        high = np.where(ideal > 0, best / ideal, np.nan)
    return np.fmin.reduce(low, axis=1), np.minimum(np.fmax.reduce(high, axis=1), 1.0)
