"""Measures whose ends are found number by number of relevant holes.

For each number the first so many holes of the list are best, and the last so many worst: compiled
code walks from one number to the next, or jumps where it knows what lies between; numpy tries them.
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
from rankproof.unjudged.unjudged_documents import HOLE, Ends, Holed, up_to

_CELLS = 1 << 15  # of a table that fits into a processor's cache
_KEY = np.int64(1) << 40  # ranks stay below it


# ------------------------------------------------------------------------------- levels of recall


def interpolated(measure: Measure, holed: Holed) -> Ends:
    """The ends of each level of recall; their means where there are several, which is a bound.

    Rank r is worth most if its holes down to r are relevant, and no other: c(r)/r, where that
    reaches the level. A completion is worth least if of its T relevant holes as many as can be are
    not listed, and the others the last of the list; with more of them the documents that are known
    count less, for the level asks for more, and the holes more. So the least is where these cross.
    """
    rel = measure.threshold
    given = measure.parameters.get("recall")
    levels = (float(given),) if isinstance(given, int | float) else LEVELS
    exact = len(levels) == 1
    if holed.top < rel:
        now = holed.now(measure)
        return Ends(now.min, now.max)
    if kernels.native is None:
        found = [_one_level(holed.spelled, rel, level) for level in reversed(levels)]
        low, high = (sum(x) / len(levels) for x in zip(*found, strict=True))
        return Ends(low, high, exact)

    def end(highest: bool) -> Float:
        return _walked(
            kernels.native.interpolated,
            *(holed, rel, highest),
            *(np.array(levels), holed.groups.relevant(rel), holed.extra, highest),
        )

    return Ends(end(False), end(True), exact)


def _one_level(holed: Holed, rel: int, level: float) -> tuple[Float, Float]:
    """(Q,) both ends at one level, number by number of relevant holes."""
    groups = holed.groups
    inside, extra = holed.of_query, holed.extra
    total = inside + extra
    number = up_to(holed.of_group, groups.query) - holed.of_group
    number = number[groups.doc_group] + holed.alone() + 1  # 1 for the first hole of its query
    known = groups.relevant(rel)
    low, high = np.full(groups.queries, np.nan), np.full(groups.queries, np.nan)
    query = groups.doc_query
    for more in range(int(total.max(initial=0)) + 1):
        possible = total >= more
        lucky = holed.is_hole & (number <= more)
        unlucky = holed.is_hole & (number > (inside - np.maximum(more - extra, 0))[query])
        for chosen, end in ((lucky, 1), (unlucky, 0)):
            good = np.flatnonzero((groups.grade >= rel) | chosen)
            value = extremes(groups, good, known + more, (level,))[end]
            if end:
                high = np.where(possible, np.fmax(high, value), high)
            else:
                low = np.where(possible, np.fmin(low, value), low)
    return low, high


def _walked(walk: Callable[..., None], holed: Holed, rel: int, highest: bool, *given: Any) -> Float:
    """(Q,) what compiled code makes of lists whose ties are broken for the best, or the worst."""
    worth = _worth(holed, rel) if holed.tied else holed.groups.grade  # else nobody asks
    order, rank = holed.line(worth, 1, best=highest)
    grade, value = holed.groups.grade[order], np.empty(holed.groups.queries)
    given = tuple(np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x for x in given)
    kernels.map_ranges(
        lambda low, high: walk(
            *(grade, rank, holed.begin, holed.span, holed.gaps, rel, *given, value, low, high)
        ),
        *(len(value), kernels.thread_count(len(rank))),
    )
    return value


def r_precision(measure: Measure, holed: Holed) -> Ends:
    """For every number T of relevant holes: rank R + T, with as many of them above it as can be."""
    rel, holed = measure.threshold, holed.spelled
    groups = holed.groups
    relevant = groups.relevant(rel)
    possible = holed.top >= rel
    inside = holed.of_query * possible
    total = inside + holed.extra * possible
    query = np.repeat(np.arange(groups.queries), total + 1)
    begin = np.cumsum(total + 1) - (total + 1)
    more = np.arange(len(query)) - begin[query]  # T
    cut = relevant[query] + more
    worth = _worth(holed, rel)
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
    return Ends(np.fmin.reduceat(low, begin), np.fmax.reduceat(high, begin))


def _worth(holed: Holed, rel: int) -> Int:
    """(J,) 2 for a relevant document, 1 for a hole, 0 for the others.

    Placed by it, the relevant ones of a tie group come first and its others last, with the holes
    between: then any of the holes may be relevant, and no order of the group is better.
    """
    return np.where(holed.is_hole, 1, np.where(holed.groups.grade >= rel, 2, 0))


# ------------------------------------------------------------------------------- average precision


def average_precision(measure: Measure, holed: Holed) -> Ends:
    """For every number i of relevant holes the first i of the list are best, and the last i worst.

    Weights never rise with the rank, and a relevant document that moves up past x others adds
    to each of them what it loses by standing behind x fewer, or more. So the sums for i = 1, 2, …
    follow from each other; at the end each is divided by R + i.
    """
    rel = measure.threshold
    if holed.top < rel:
        now = holed.now(measure)
        return Ends(now.min, now.max)
    high = holed.once(measure, lambda: _precisions(measure, holed, rel, highest=True))
    # Nothing relevant listed or taken, but a hole that the run does not list may be.
    high = np.where(np.isnan(high) & (holed.extra > 0), 0.0, high)
    return Ends(_precisions(measure, holed, rel, highest=False), high)


def inferred(measure: Measure, holed: Holed) -> Ends:
    """As AP, where holes are all that nobody judged: then no pool is sampled any more.

    Nor is it where no document was pooled and not judged; then each precision is within ε of that
    of AP. Else the sampled ones among the others count, and anything is possible.
    """
    groups = holed.groups
    known = np.bincount(groups.doc_query, minlength=groups.queries)
    if holed.gaps or not (known < groups.listed)[holed.any].any():
        return average_precision(measure, holed)
    if holed.sampled:
        nothing = np.zeros(groups.queries)
        return Ends(nothing, nothing + 1.0, exact=False)
    found = average_precision(AP(rel=measure.threshold), holed)
    return Ends(np.fmax(found.low - EPSILON, 0.0), np.fmin(found.high + EPSILON, 1.0), exact=False)


def _precisions(measure: Measure, holed: Holed, rel: int, *, highest: bool) -> Float:
    """(Q,) the highest value, or the lowest, over completions and ties; NaN where there is none.

    infAP of a list that is judged whole is Σ (k−1)/(k(k−1+2ε)) · (relevant so far) + rest(k).
    """
    relevant, cut = holed.groups.relevant(rel), last_rank(holed.groups, measure.cutoff)
    longest = int(holed.span.max(initial=0))
    rank = np.maximum(np.arange(longest + 1.0), 1.0)
    weight, rest = 1.0 / rank, np.zeros(longest + 1)
    if measure.name == "infAP":
        weight = (rank - 1.0) / (rank * (rank - 1.0 + 2 * EPSILON))
        rest = 1.0 / rank - (1.0 - EPSILON) * weight
    if kernels.native is not None:
        weight[0] = rest[0] = 0.0
        sums = np.cumsum([weight, rest, weight * rank + rest], axis=1)
        table = np.stack([weight, rest, *sums, np.cumsum(sums[0])])
        return _walked(
            kernels.native.precision,
            *(holed, rel, highest, table, cut, relevant, holed.extra, highest),
        )
    holed = holed.spelled
    order, rank = holed.line(_worth(holed, rel), 1, best=highest)
    grade, begin = holed.groups.grade[order], holed.begin[:-1]
    length = np.diff(holed.begin)
    known = relevant if highest else relevant + holed.extra
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.where(known > 0, 0.0 / known, np.nan)
    for chosen, column, real in tables(length, _CELLS):
        row = np.where(real, begin[chosen, None] + column, 0)
        counts = real & (rank[row] <= cut[chosen, None])
        w, more = (np.where(counts, x[rank[row]], 0.0) for x in (weight, rest))
        taken, good = real & (grade[row] == HOLE), real & (grade[row] >= rel)
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


def preference(measure: Measure, holed: Holed) -> Ends:
    """For every number of relevant holes: the first so many of the list, and the last so many.

    A relevant document higher up, and a non-relevant one lower down, never cost anything. Holes
    that the run does not list count in R or in N alone. What is reported now ignores holes, so it
    is no completion and may lie outside.
    """
    rel = measure.threshold
    relevant = holed.groups.relevant(rel)
    others = np.diff(holed.groups.pool.start) - relevant
    possible = holed.top >= rel
    if kernels.native is not None:

        def end(highest: bool) -> Float:
            return _walked(
                kernels.native.preference,
                *(holed, rel, highest, relevant, others, holed.extra, possible, highest),
            )

        return Ends(end(False), end(True))
    holed = holed.spelled
    groups = holed.groups
    unwanted = holed.chosen(0) - holed.chosen(rel)
    bad_to, holes_to = (up_to(x, groups.query) for x in (unwanted, holed.of_group))
    bad_before, holes_before = bad_to - unwanted, holes_to - holed.of_group
    good, hole = np.flatnonzero(groups.grade >= rel), np.flatnonzero(holed.is_hole)
    number = holes_before[groups.doc_group] + holed.alone() + 1  # 1 for the first hole, and so on
    inside, extra = holed.of_query, holed.extra
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
    return Ends(low, high)
