"""Bounds of measures that are computed for each number of relevant unjudged documents.

With i of them relevant, the value is highest if these are the first i unjudged documents of the
list, and lowest if they are the last. Compiled code goes from one number to the next, or skips
numbers between which nothing changes; numpy tries all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rankproof.foundation import kernels
from rankproof.foundation.arrays import Float, Int
from rankproof.measures import AP, Measure
from rankproof.measures.inferred_precision import EPSILON
from rankproof.measures.interpolated_precision import LEVELS, extremes
from rankproof.measures.linear import last_rank
from rankproof.measures.padded_rows import row_sum, tables
from rankproof.unjudged.unjudged_documents import UNJUDGED, PartlyJudged, QueryBounds, running_total

_CELLS = 1 << 15  # of a table that fits into a processor's cache
_KEY = np.int64(1) << 40  # ranks stay below it


# ------------------------------------------------------------------------------- levels of recall


def interpolated(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound interpolated precision at each level of recall, and AP11 by the mean of its levels.

    Rank r gives most if the unjudged documents down to r are relevant, and no other: c(r)/r, where
    that reaches the level. With T relevant ones the value is lowest if as many as possible are not
    listed, and the others are the last of the list. As T rises, known documents count less, since
    the level needs more, and unjudged ones more: the lowest value is where these cross.
    """
    rel = measure.threshold
    given = measure.parameters.get("recall")
    levels = (float(given),) if isinstance(given, int | float) else LEVELS
    exact = len(levels) == 1
    if run.top < rel:
        now = run.reported(measure)
        return QueryBounds(now.min, now.max)
    if kernels.native is None:
        found = [_one_recall_level(run.explicit, rel, level) for level in reversed(levels)]
        low, high = (sum(x) / len(levels) for x in zip(*found, strict=True))
        return QueryBounds(low, high, exact)

    def end(highest: bool) -> Float:
        return _by_kernel(
            kernels.native.interpolated,
            *(run, rel, highest),
            *(np.array(levels), run.groups.relevant(rel), run.unlisted, highest),
        )

    return QueryBounds(end(False), end(True), exact)


def _one_recall_level(run: PartlyJudged, rel: int, level: float) -> tuple[Float, Float]:
    """(Q,) both bounds at one level, trying each number of relevant unjudged documents."""
    groups = run.groups
    inside, extra = run.unjudged_in_query, run.unlisted
    total = inside + extra
    number = running_total(run.unjudged_in_group, groups.query) - run.unjudged_in_group
    number = (
        number[groups.doc_group] + run.number_in_group() + 1
    )  # 1 for the first hole of its query
    known = groups.relevant(rel)
    low, high = np.full(groups.queries, np.nan), np.full(groups.queries, np.nan)
    query = groups.doc_query
    for more in range(int(total.max(initial=0)) + 1):
        possible = total >= more
        lucky = run.is_unjudged & (number <= more)
        unlucky = run.is_unjudged & (number > (inside - np.maximum(more - extra, 0))[query])
        for chosen, end in ((lucky, 1), (unlucky, 0)):
            good = np.flatnonzero((groups.grade >= rel) | chosen)
            value = extremes(groups, good, known + more, (level,))[end]
            if end:
                high = np.where(possible, np.fmax(high, value), high)
            else:
                low = np.where(possible, np.fmin(low, value), low)
    return low, high


def _by_kernel(
    walk: Callable[..., None], run: PartlyJudged, rel: int, highest: bool, *given: Any
) -> Float:
    """(Q,) results of a kernel on lists whose ties are broken for the best, or the worst, value."""
    worth = _worth_by_kind(run, rel) if run.tied else run.groups.grade  # else nobody asks
    order, rank = run.extreme_order(worth, 1, best=highest)
    grade, value = run.groups.grade[order], np.empty(run.groups.queries)
    given = tuple(np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x for x in given)
    kernels.map_ranges(
        lambda low, high: walk(
            *(
                grade,
                rank,
                run.begin,
                run.span,
                run.is_implicit,
                rel,
                *given,
                value,
                low,
                high,
            )
        ),
        *(len(value), kernels.thread_count(len(rank))),
    )
    return value


def r_precision(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound Rprec: for each T, precision at rank R + T with most, or fewest, of these above it."""
    rel, run = measure.threshold, run.explicit
    groups = run.groups
    relevant = groups.relevant(rel)
    possible = run.top >= rel
    inside = run.unjudged_in_query * possible
    total = inside + run.unlisted * possible
    query = np.repeat(np.arange(groups.queries), total + 1)
    begin = np.cumsum(total + 1) - (total + 1)
    more = np.arange(len(query)) - begin[query]  # T
    cut = relevant[query] + more
    worth = _worth_by_kind(run, rel)
    place = groups.place(worth)

    def above(rank: Int, kind: int) -> Int:
        """How many documents of a kind stand at `cut` or above."""
        of = worth == kind
        keys = np.sort(groups.doc_query[of] * _KEY + np.minimum(rank[of], _KEY - 1))
        first = np.searchsorted(keys, np.arange(groups.queries) * _KEY)
        to_cut = np.searchsorted(keys, query * _KEY + cut, side="right")
        return np.asarray(to_cut - first[query], np.int64)

    best, worst = groups.best_rank(place), groups.worst_rank(place)
    taken = np.minimum(more, above(best, 1)) if possible else np.zeros_like(more)
    forced = np.maximum(more - (total[query] - above(worst, 1)), 0) if possible else taken
    with np.errstate(invalid="ignore", divide="ignore"):
        high = (above(best, 2) + taken) / cut
        low = (above(worst, 2) + forced) / cut
    return QueryBounds(np.fmin.reduceat(low, begin), np.fmax.reduceat(high, begin))


def _worth_by_kind(run: PartlyJudged, rel: int) -> Int:
    """(J,) 2 for a relevant document, 1 for an unjudged one, 0 for the others.

    In this order any of a tie group's unjudged documents may be relevant, and no order is better.
    """
    return np.where(run.is_unjudged, 1, np.where(run.groups.grade >= rel, 2, 0))


# ------------------------------------------------------------------------------- average precision


def average_precision(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound AP: for each number i of relevant unjudged documents, the first i or the last i.

    Weights never rise with the rank, and a relevant document that moves up past x others adds
    to each of them what it loses by standing behind x fewer, or more. So the sums for i = 1, 2, …
    follow from each other; at the end each is divided by R + i.
    """
    rel = measure.threshold
    if run.top < rel:
        now = run.reported(measure)
        return QueryBounds(now.min, now.max)
    high = run.cached(measure, lambda: _precision_bound(measure, run, rel, highest=True))
    # Nothing listed is relevant, but an unjudged document that the run does not list may be.
    high = np.where(np.isnan(high) & (run.unlisted > 0), 0.0, high)
    return QueryBounds(_precision_bound(measure, run, rel, highest=False), high)


def inferred(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound infAP, which is AP if every listed document gets a grade.

    If no document was pooled without being judged, each precision is within ε of that of AP. Else
    the pooled documents among those that stay unjudged count, and any value is possible.
    """
    groups = run.groups
    known = np.bincount(groups.doc_query, minlength=groups.queries)
    if run.is_implicit or not (known < groups.listed)[run.any].any():
        return average_precision(measure, run)
    if run.sampled:
        nothing = np.zeros(groups.queries)
        return QueryBounds(nothing, nothing + 1.0, exact=False)
    found = average_precision(AP(rel=measure.threshold), run)
    return QueryBounds(
        np.fmax(found.low - EPSILON, 0.0), np.fmin(found.high + EPSILON, 1.0), exact=False
    )


def _precision_bound(measure: Measure, run: PartlyJudged, rel: int, *, highest: bool) -> Float:
    """(Q,) the highest or lowest value over grades and ties; NaN where nothing is ever relevant.

    infAP of a list that is judged whole is Σ (k−1)/(k(k−1+2ε)) · (relevant so far) + rest(k).
    """
    relevant, cut = run.groups.relevant(rel), last_rank(run.groups, measure.cutoff)
    longest = int(run.span.max(initial=0))
    rank = np.maximum(np.arange(longest + 1.0), 1.0)
    weight, rest = 1.0 / rank, np.zeros(longest + 1)
    if measure.name == "infAP":
        weight = (rank - 1.0) / (rank * (rank - 1.0 + 2 * EPSILON))
        rest = 1.0 / rank - (1.0 - EPSILON) * weight
    if kernels.native is not None:
        weight[0] = rest[0] = 0.0
        sums = np.cumsum([weight, rest, weight * rank + rest], axis=1)
        table = np.stack([weight, rest, *sums, np.cumsum(sums[0])])
        return _by_kernel(
            kernels.native.precision,
            *(run, rel, highest, table, cut, relevant, run.unlisted, highest),
        )
    run = run.explicit
    order, rank = run.extreme_order(_worth_by_kind(run, rel), 1, best=highest)
    grade, begin = run.groups.grade[order], run.begin[:-1]
    length = np.diff(run.begin)
    known = relevant if highest else relevant + run.unlisted
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.where(known > 0, 0.0 / known, np.nan)
    for chosen, column, real in tables(length, _CELLS):
        row = np.where(real, begin[chosen, None] + column, 0)
        counts = real & (rank[row] <= cut[chosen, None])
        w, more = (np.where(counts, x[rank[row]], 0.0) for x in (weight, rest))
        taken, good = real & (grade[row] == UNJUDGED), real & (grade[row] >= rel)
        above = np.cumsum(good, axis=1)  # relevant for certain, at this rank or above
        none = row_sum(np.where(good, w * above + more, 0.0))[:, None]
        below = np.cumsum(np.where(good, w, 0.0)[:, ::-1], axis=1)[:, ::-1]
        number = np.cumsum(taken, axis=1)
        if highest:
            more = np.where(taken, w * (above + number) + below + more, 0.0)
            sums = none + np.cumsum(more, axis=1)
        else:
            number = number[:, -1:] - number + 1  # from the last hole up
            held = np.zeros((len(chosen), column.shape[1] + 1))  # by those below
            held[:, :-1] = np.cumsum(np.where(taken, w, 0.0)[:, ::-1], axis=1)[:, ::-1]
            more = np.where(taken, w * (above + 1) + below + held[:, 1:] + more, 0.0)
            sums = none + np.cumsum(more[:, ::-1], axis=1)[:, ::-1]
        over = known[chosen, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = np.where(taken, sums / (over + number), np.nan)
            alone = np.where(over > 0, none / over, np.nan)
        better = np.fmax if highest else np.fmin
        value[chosen] = better.reduce(np.concatenate([alone, shares], axis=1), axis=1)
    return value


# ----------------------------------------------------------------------------------- preference


def preference(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound bpref: for each number of relevant unjudged documents, the first or the last of these.

    Moving a relevant document up, or a non-relevant one down, never lowers it. Documents that the
    run does not list count in R or in N alone. What is reported now ignores unjudged documents, so
    it need not lie within the bounds.
    """
    rel = measure.threshold
    relevant = run.groups.relevant(rel)
    others = np.diff(run.groups.pool.start) - relevant
    possible = run.top >= rel
    if kernels.native is not None:

        def end(highest: bool) -> Float:
            return _by_kernel(
                kernels.native.preference,
                *(run, rel, highest, relevant, others, run.unlisted, possible, highest),
            )

        return QueryBounds(end(False), end(True))
    run = run.explicit
    groups = run.groups
    unwanted = run.judged_with(0) - run.judged_with(rel)
    bad_to, holes_to = (running_total(x, groups.query) for x in (unwanted, run.unjudged_in_group))
    bad_before, holes_before = bad_to - unwanted, holes_to - run.unjudged_in_group
    good, hole = np.flatnonzero(groups.grade >= rel), np.flatnonzero(run.is_unjudged)
    number = (
        holes_before[groups.doc_group] + run.number_in_group() + 1
    )  # 1 for the first hole, and so on
    inside, extra = run.unjudged_in_query, run.unlisted
    total = inside + extra
    low, high = np.full(groups.queries, np.nan), np.full(groups.queries, np.nan)

    def mean(count: Int, over: Int, cap: Int, r: Int) -> Float:
        found = np.bincount(over, minlength=groups.queries)
        cost = groups.sum_by_query(over, np.minimum(count, cap[over]))
        over_all = np.where(cap > 0, found * 1.0 * cap - cost, found)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(r > 0, over_all / (np.maximum(cap, 1) * 1.0 * r), np.nan)

    for i in range(int(total.max(initial=0)) + 1 if possible else 1):
        r = relevant + i
        cap = np.minimum(r, others + total - i)
        reachable = total >= i
        best = np.minimum(i, inside)  # the first of the list are relevant
        worst = inside - np.maximum(i - extra, 0)  # the first of the list are not
        group, query = groups.doc_group[good], groups.doc_query[good]
        hole_group, hole_query = groups.doc_group[hole], groups.doc_query[hole]
        lucky = number[hole] <= best[hole_query]
        unlucky = number[hole] > worst[hole_query]
        above = bad_before[group] + np.maximum(holes_before[group] - best[query], 0)
        value = mean(
            np.concatenate([above, bad_before[hole_group[lucky]]]),
            np.concatenate([query, hole_query[lucky]]),
            cap,
            r,
        )
        high = np.where(reachable, np.fmax(high, value), high)
        above = bad_to[group] + np.minimum(holes_to[group], worst[query])
        value = mean(
            np.concatenate([above, bad_to[hole_group[unlucky]] + worst[hole_query[unlucky]]]),
            np.concatenate([query, hole_query[unlucky]]),
            cap,
            r,
        )
        low = np.where(reachable, np.fmin(low, value), low)
    return QueryBounds(low, high)
