"""Bounds of measures that are computed for each number i of relevant unjudged documents.

With i of them relevant, the value is highest if these are the first i unjudged documents of the
list, and lowest if as many as possible are not listed and the others are the last of the list.
Compiled code walks from one number to the next, or skips numbers between which nothing changes;
numpy tries all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rankproof.foundation import kernels
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.measures import AP, Measure
from rankproof.measures.inferred_precision import EPSILON
from rankproof.measures.interpolated_precision import TENTHS, RecallLevels, extremes
from rankproof.measures.linear import last_rank
from rankproof.measures.padded_rows import row_sum, tables
from rankproof.unjudged.unjudged_documents import UNJUDGED, PartlyJudged, QueryBounds, running_total

_CELLS = 1 << 15  # of a table that fits into a processor's cache
_KEY = np.int64(1) << 40  # sort keys are query · _KEY + rank: ranks stay below it


# ------------------------------------------------------------------------------- levels of recall


def interpolated(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound interpolated precision at each level of recall, and AP11 by the mean of its levels.

    Rank r gives most if the unjudged documents down to r are relevant, and no other: c(r)/r, where
    that reaches the level. With T relevant ones the value is lowest if as many as possible are not
    listed, and the others are the last of the list. As T rises, known documents count less, since
    the level needs more, and unjudged ones more: the lowest value is where these cross.
    """
    rel = measure.threshold
    recall = measure.parameters.get("recall")
    shares = (float(recall),) if isinstance(recall, int | float) else TENTHS
    levels = RecallLevels(shares, measure.parameters["rounding"])
    exact = len(levels) == 1
    if run.top < rel:
        reported = run.reported(measure)
        return QueryBounds(reported.min, reported.max)
    if kernels.native is None or levels.rounding != "up":
        each = [replace(levels, shares=(share,)) for share in reversed(shares)]
        ends = [_bound_one_level(run.explicit, rel, level) for level in each]
        low, high = (sum(end) / len(levels) for end in zip(*ends, strict=True))
        return QueryBounds(low, high, exact)

    def bound(highest: bool) -> Float:
        return _by_kernel(
            kernels.native.interpolated,
            *(run, rel, highest),
            *(np.array(shares), run.groups.relevant(rel), run.unlisted, highest),
        )

    return QueryBounds(bound(False), bound(True), exact)


def _bound_one_level(run: PartlyJudged, rel: int, level: RecallLevels) -> tuple[Float, Float]:
    """(Q,) lowest and highest precision at one level, trying each number of relevant documents."""
    groups, query = run.groups, run.groups.doc_query
    listed, unlisted = run.unjudged_in_query, run.unlisted
    total = listed + unlisted
    number = _unjudged_number(run)
    known = groups.relevant(rel)
    low, high = np.full(groups.queries, np.nan), np.full(groups.queries, np.nan)
    for relevant in range(int(total.max(initial=0)) + 1):
        is_possible = total >= relevant
        nonrelevant = listed - np.maximum(relevant - unlisted, 0)
        first = run.is_unjudged & (number <= relevant)
        last = run.is_unjudged & (number > nonrelevant[query])
        least, most = (
            extremes(
                groups, np.flatnonzero((groups.grade >= rel) | chosen), known + relevant, level
            )[end]
            for chosen, end in ((last, 0), (first, 1))
        )
        low = np.where(is_possible, np.fmin(low, least), low)
        high = np.where(is_possible, np.fmax(high, most), high)
    return low, high


def _unjudged_number(run: PartlyJudged) -> Int:
    """(J,) the number of each unjudged document in its query, from 1 at the top of the list."""
    in_group = run.unjudged_in_group
    before_group = running_total(in_group, run.groups.query) - in_group
    return before_group[run.groups.doc_group] + run.number_in_group() + 1


def _by_kernel(
    kernel: Callable[..., None], run: PartlyJudged, rel: int, highest: bool, *arguments: Any
) -> Float:
    """(Q,) results of a kernel on lists whose ties are broken for the best, or the worst, value."""
    worth = _worth_by_kind(run, rel) if run.tied else run.groups.grade  # unused without ties
    order, rank = run.extreme_order(worth, 1, best=highest)
    grade, value = run.groups.grade[order], np.empty(run.groups.queries)
    contiguous = [np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x for x in arguments]
    kernels.map_ranges(
        lambda low, high: kernel(
            *(grade, rank, run.begin, run.span, run.is_implicit, rel),
            *contiguous,
            *(value, low, high),
        ),
        *(len(value), kernels.thread_count(len(rank))),
    )
    return value


def r_precision(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound Rprec: for each number T of relevant unjudged documents, precision at rank R + T.

    It is highest with as many of the T documents as possible above that rank, lowest with as few.
    """
    rel, run = measure.threshold, run.explicit
    groups = run.groups
    relevant = groups.relevant(rel)
    is_possible = run.top >= rel
    total = (run.unjudged_in_query + run.unlisted) * is_possible
    query = np.repeat(np.arange(groups.queries), total + 1)
    begin = np.cumsum(total + 1) - (total + 1)
    new_relevant = np.arange(len(query)) - begin[query]  # T
    cutoff = relevant[query] + new_relevant
    worth = _worth_by_kind(run, rel)
    place = groups.place(worth)

    def count_above(rank: Int, kind: int) -> Int:
        """Documents of a kind of `_worth_by_kind` at the cutoff rank or above, for each T."""
        is_kind = worth == kind
        keys = np.sort(groups.doc_query[is_kind] * _KEY + np.minimum(rank[is_kind], _KEY - 1))
        first = np.searchsorted(keys, np.arange(groups.queries) * _KEY)
        to_cutoff = np.searchsorted(keys, query * _KEY + cutoff, side="right")
        return np.asarray(to_cutoff - first[query], np.int64)

    best, worst = groups.best_rank(place), groups.worst_rank(place)
    most = least = np.zeros_like(new_relevant)
    if is_possible:
        most = np.minimum(new_relevant, count_above(best, 1))
        room_elsewhere = total[query] - count_above(worst, 1)
        least = np.maximum(new_relevant - room_elsewhere, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        high = (count_above(best, 2) + most) / cutoff
        low = (count_above(worst, 2) + least) / cutoff
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
        reported = run.reported(measure)
        return QueryBounds(reported.min, reported.max)
    high = run.cached(measure, lambda: _precision_bound(measure, run, highest=True))
    # Nothing listed is relevant, but an unjudged document that the run does not list may be.
    high = np.where(np.isnan(high) & (run.unlisted > 0), 0.0, high)
    return QueryBounds(_precision_bound(measure, run, highest=False), high)


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
        zero = np.zeros(groups.queries)
        return QueryBounds(zero, zero + 1.0, exact=False)
    of_ap = average_precision(AP(rel=measure.threshold), run)
    low, high = np.fmax(of_ap.low - EPSILON, 0.0), np.fmin(of_ap.high + EPSILON, 1.0)
    return QueryBounds(low, high, exact=False)


def _rank_weights(measure: Measure, longest: int) -> tuple[Float, Float]:
    """What a relevant document at each rank k adds to the sum: weight[k] · c(k) + constant[k].

    c(k) is the number of relevant documents down to rank k. AP: weight 1/k. infAP of a list that is
    judged whole: weight (k−1)/(k(k−1+2ε)), and what remains of the precision as a constant.
    """
    rank = np.maximum(np.arange(longest + 1.0), 1.0)
    weight, constant = 1.0 / rank, np.zeros(longest + 1)
    if measure.name == "infAP":
        weight = (rank - 1.0) / (rank * (rank - 1.0 + 2 * EPSILON))
        constant = 1.0 / rank - (1.0 - EPSILON) * weight
    return weight, constant


def _precision_bound(measure: Measure, run: PartlyJudged, *, highest: bool) -> Float:
    """(Q,) the highest or lowest value over grades and ties; NaN where nothing is ever relevant."""
    weight, constant = _rank_weights(measure, int(run.span.max(initial=0)))
    if kernels.native is None:
        return _precision_bound_by_rows(measure, run.explicit, weight, constant, highest=highest)
    rank = np.maximum(np.arange(float(len(weight))), 1.0)
    weight[0] = constant[0] = 0.0
    sums = np.cumsum([weight, constant, weight * rank + constant], axis=1)
    table = np.stack([weight, constant, *sums, np.cumsum(sums[0])])
    rel, cutoff = measure.threshold, last_rank(run.groups, measure.cutoff)
    return _by_kernel(
        kernels.native.precision,
        *(run, rel, highest),
        *(table, cutoff, run.groups.relevant(rel), run.unlisted, highest),
    )


def _precision_bound_by_rows(
    measure: Measure, run: PartlyJudged, weight: Float, constant: Float, *, highest: bool
) -> Float:
    """The numpy twin of the kernel `precision`: a row of a table for each query."""
    rel, cutoff = measure.threshold, last_rank(run.groups, measure.cutoff)
    order, rank = run.extreme_order(_worth_by_kind(run, rel), 1, best=highest)
    grade, begin = run.groups.grade[order], run.begin[:-1]
    known = run.groups.relevant(rel) + (0 if highest else run.unlisted)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.where(known > 0, 0.0 / known, np.nan)
    for chosen, column, is_cell in tables(np.diff(run.begin), _CELLS):
        row = np.where(is_cell, begin[chosen, None] + column, 0)
        counts = is_cell & (rank[row] <= cutoff[chosen, None])
        lists = _ListRows(
            weight=np.where(counts, weight[rank[row]], 0.0),
            constant=np.where(counts, constant[rank[row]], 0.0),
            is_relevant=is_cell & (grade[row] >= rel),
            is_unjudged=is_cell & (grade[row] == UNJUDGED),
        )
        base = lists.base_sum()
        sums, number = lists.first_relevant() if highest else lists.last_relevant()
        over = known[chosen, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            precisions = np.where(lists.is_unjudged, (base + sums) / (over + number), np.nan)
            without = np.where(over > 0, base / over, np.nan)
        better = np.fmax if highest else np.fmin
        value[chosen] = better.reduce(np.concatenate([without, precisions], axis=1), axis=1)
    return value


@dataclass(frozen=True, slots=True, eq=False)
class _ListRows:
    """Lists as rows of a table: (rows, columns) each, one column for each document."""

    weight: Float
    constant: Float
    is_relevant: Bool  # for certain
    is_unjudged: Bool

    def base_sum(self) -> Float:
        """(rows, 1) the sum of the documents that are relevant for certain."""
        relevant_above = np.cumsum(self.is_relevant, axis=1)
        terms = np.where(self.is_relevant, self.weight * relevant_above + self.constant, 0.0)
        return row_sum(terms)[:, None]

    def first_relevant(self) -> tuple[Float, Int]:
        """What the unjudged documents down to each add if they are relevant, and their number."""
        number = np.cumsum(self.is_unjudged, axis=1, dtype=np.int64)
        relevant_above = np.cumsum(self.is_relevant, axis=1)
        added = self.weight * (relevant_above + number) + self._relevant_below() + self.constant
        return np.cumsum(np.where(self.is_unjudged, added, 0.0), axis=1), number

    def last_relevant(self) -> tuple[Float, Int]:
        """What the unjudged documents from each down add if they are relevant, and their number."""
        number = np.cumsum(self.is_unjudged, axis=1, dtype=np.int64)
        number = number[:, -1:] - number + 1
        relevant_above = np.cumsum(self.is_relevant, axis=1)
        unjudged_below = np.zeros((self.weight.shape[0], self.weight.shape[1] + 1))
        unjudged_below[:, :-1] = _sum_to_end(np.where(self.is_unjudged, self.weight, 0.0))
        added = (
            self.weight * (relevant_above + 1)
            + self._relevant_below()
            + unjudged_below[:, 1:]
            + self.constant
        )
        return _sum_to_end(np.where(self.is_unjudged, added, 0.0)), number

    def _relevant_below(self) -> Float:
        """What each document, if relevant, adds to the relevant ones at its rank or below."""
        return _sum_to_end(np.where(self.is_relevant, self.weight, 0.0))


def _sum_to_end(values: Float) -> Float:
    """Sums from each column to the last."""
    return np.cumsum(values[:, ::-1], axis=1)[:, ::-1]


# ----------------------------------------------------------------------------------- preference


def preference(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound bpref: for each number of relevant unjudged documents, the first or the last of these.

    Moving a relevant document up, or a non-relevant one down, never lowers it. Documents that the
    run does not list count in R or in N alone. What is reported now ignores unjudged documents, so
    it need not lie within the bounds.
    """
    rel = measure.threshold
    relevant = run.groups.relevant(rel)
    nonrelevant = np.diff(run.groups.pool.start) - relevant
    is_possible = run.top >= rel
    if kernels.native is None:
        return _PreferenceBounds(run.explicit, rel, relevant, nonrelevant).over_all_counts()

    def bound(highest: bool) -> Float:
        return _by_kernel(
            kernels.native.preference,
            *(run, rel, highest),
            *(relevant, nonrelevant, run.unlisted, is_possible, highest),
        )

    return QueryBounds(bound(False), bound(True))


class _PreferenceBounds:
    """The numpy twin of the kernel `preference`: bpref for each number i of relevant ones.

    bpref = Σ_relevant (1 − min(n, cap)/cap)/r, where n counts the non-relevant documents above, r
    the relevant ones, and cap = min(r, non-relevant ones).
    """

    def __init__(self, run: PartlyJudged, rel: int, relevant: Int, nonrelevant: Int):
        groups = run.groups
        self.run, self.relevant, self.nonrelevant = run, relevant, nonrelevant
        self.is_possible = run.top >= rel
        in_group = run.judged_with(0) - run.judged_with(rel)
        self.nonrelevant_to = running_total(in_group, groups.query)  # (G,) with the group's own
        self.nonrelevant_before = self.nonrelevant_to - in_group
        self.unjudged_to = running_total(run.unjudged_in_group, groups.query)
        self.unjudged_before = self.unjudged_to - run.unjudged_in_group
        judged_relevant = np.flatnonzero(groups.grade >= rel)
        self.relevant_group, self.relevant_query = (
            column[judged_relevant] for column in (groups.doc_group, groups.doc_query)
        )
        unjudged = np.flatnonzero(run.is_unjudged)
        self.unjudged_group = groups.doc_group[unjudged]
        self.unjudged_query = groups.doc_query[unjudged]
        self.number = _unjudged_number(run)[unjudged]

    def over_all_counts(self) -> QueryBounds:
        """The lowest and highest value over all i."""
        listed, unlisted = self.run.unjudged_in_query, self.run.unlisted
        total = listed + unlisted
        low, high = (np.full(len(total), np.nan) for _ in range(2))
        for i in range(int(total.max(initial=0)) + 1 if self.is_possible else 1):
            relevant = self.relevant + i
            cap = np.minimum(relevant, self.nonrelevant + total - i)
            is_reachable = total >= i
            most = self._with_first(np.minimum(i, listed), cap, relevant)
            high = np.where(is_reachable, np.fmax(high, most), high)
            least = self._with_last(listed - np.maximum(i - unlisted, 0), cap, relevant)
            low = np.where(is_reachable, np.fmin(low, least), low)
        return QueryBounds(low, high)

    def _with_first(self, count: Int, cap: Int, relevant: Int) -> Float:
        """bpref if the first `count` (Q,) unjudged documents are relevant, ties broken for it."""
        chosen = self.number <= count[self.unjudged_query]
        skipped = self.unjudged_before[self.relevant_group] - count[self.relevant_query]
        above_relevant = self.nonrelevant_before[self.relevant_group] + np.maximum(skipped, 0)
        above_chosen = self.nonrelevant_before[self.unjudged_group[chosen]]
        return self._value(above_relevant, above_chosen, chosen, cap, relevant)

    def _with_last(self, count: Int, cap: Int, relevant: Int) -> Float:
        """bpref if all but the first `count` (Q,) are relevant, ties broken against it."""
        chosen = self.number > count[self.unjudged_query]
        unjudged_above = np.minimum(
            self.unjudged_to[self.relevant_group], count[self.relevant_query]
        )
        above_relevant = self.nonrelevant_to[self.relevant_group] + unjudged_above
        above_chosen = self.nonrelevant_to[self.unjudged_group[chosen]]
        above_chosen = above_chosen + count[self.unjudged_query[chosen]]
        return self._value(above_relevant, above_chosen, chosen, cap, relevant)

    def _value(
        self, above_relevant: Int, above_chosen: Int, chosen: Bool, cap: Int, relevant: Int
    ) -> Float:
        """(Q,) bpref from the non-relevant documents above each relevant one."""
        groups = self.run.groups
        above = np.concatenate([above_relevant, above_chosen])
        query = np.concatenate([self.relevant_query, self.unjudged_query[chosen]])
        listed = np.bincount(query, minlength=groups.queries)
        cost = groups.sum_by_query(query, np.minimum(above, cap[query]))
        total = np.where(cap > 0, listed * 1.0 * cap - cost, listed)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = total / (np.maximum(cap, 1) * 1.0 * relevant)
        return np.where(relevant > 0, value, np.nan)
