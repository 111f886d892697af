"""Turn scores into tie groups: the only place that ranks.

A query's documents, sorted by score, fall into groups of equal score. The order inside a group is
arbitrary, so measures treat it as random; the ranks that a group occupies are certain. Measures
read groups and never sort.

Notation: N rows of the run, Q queries, G tie groups, J judged documents that the run lists,
P judged documents of the evaluated queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from rankproof.data.aspects import Aspects
from rankproof.data.tables import Later, Run, ids_of
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.errors import InputError, shorten

Order = Literal["input", "docid", "trec_eval"]
ScoreType = Literal["float64", "float32", "float16", "bfloat16"]

TIE_BREAKS: dict[Order, str] = {
    "input": "the order in which the run lists them",
    "docid": "document id ascending",
    "trec_eval": "document id descending, as trec_eval does",
}


def check_order(order: str) -> None:
    """Refuse an unknown tie-break."""
    if order not in TIE_BREAKS:
        raise InputError(
            f"tie-break {shorten(order)} is unknown", remedy=f"use one of {', '.join(TIE_BREAKS)}"
        )


def round_scores(score: Float, dtype: str) -> Float:
    """Return scores rounded to a narrower format, widened back to float64.

    Halves are rounded to the even neighbor. bfloat16 and float16 round the float32 value, as a
    model with float32 scores would.
    """
    if dtype == "float64":
        return score
    with np.errstate(
        over="ignore"
    ):  # above the largest float16 scores become inf, which still sorts
        if dtype == "float32":
            return score.astype(np.float32).astype(np.float64)
        if dtype == "float16":
            return score.astype(np.float32).astype(np.float16).astype(np.float64)
        if dtype == "bfloat16":
            bits = score.astype(np.float32).view(np.uint32).astype(np.uint64)
            bits = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(
                0xFFFF0000
            )
            return bits.astype(np.uint32).view(np.float32).astype(np.float64)
    known = ", ".join(get_args(ScoreType))
    raise InputError(f"score format {shorten(dtype)} is unknown", remedy=f"use one of {known}")


@dataclass(frozen=True, slots=True)
class Ranking:
    """Every list of a run sorted from best to worst, with its tie groups.

    Positions count through all lists: query q has positions start[q]:start[q+1].
    """

    start: Int  # (Q+1,)
    position: Int | None  # (N,) of each row; None if rows are already sorted
    group_start: Int  # (G+1,) position at which each tie group begins, and N

    @property
    def groups_of(self) -> Int:
        """(Q,) number of tie groups of each query, that is, of distinct scores."""
        return np.diff(np.searchsorted(self.group_start, self.start))

    @property
    def tied(self) -> Bool:
        """(Q,) True if a query has a group of two or more documents."""
        return self.groups_of < np.diff(self.start)


def rank(start: Int, score: Float, doc: kernels.Ids | None, order: Order) -> Ranking:
    """Rank rows that are grouped by query; `doc` is needed only to break ties by document id."""
    group_start = kernels.tie_group_starts(score, start)
    position: Int | None = None
    if group_start is None or (order != "input" and len(group_start) <= len(score)):
        by_doc = doc if order != "input" else None
        position, group_start = kernels.rank_rows(score, start, by_doc, order == "trec_eval")
    return Ranking(start, position, group_start)


def rank_run(run: Run, order: Order = "input", dtype: str | None = None) -> Ranking:
    """Rank a run; each combination of tie-break and score format is computed once."""
    exact = dtype is None and run.rest is not None
    key = (order, dtype or run.dtype, exact)
    if key not in run.cache:
        score = round_scores(run.score, dtype) if dtype else run.score
        if run.rest is not None and exact:
            score = _dense_levels(score, run.rest)
        run.cache[key] = rank(run.start, score, ids_of(run, "doc"), order)
    ranking: Ranking = run.cache[key]
    return ranking


def _dense_levels(score: Float, rest: Float) -> Float:
    """Return 0, 1, 2, … in the order of score + rest, equal where both are equal.

    `rest` is what float64 cannot hold of a score that was written with more digits.
    """
    ascending = np.lexsort((rest, score))
    score, rest = score[ascending], rest[ascending]
    level = np.zeros(len(score))
    np.cumsum((score[1:] != score[:-1]) | (rest[1:] != rest[:-1]), out=level[1:])
    levels = np.empty(len(score))
    levels[ascending] = level
    return levels


def in_order(
    run: Run,
    order: Order,
    dtype: str | None = None,
    depth: int | Int | None = None,
    settle: bool = False,
) -> Run:
    """Return a run with each list in rank order, cut after rank `depth`, one or one for each list.

    Its `cut` counts the dropped documents that tie with the last one kept. With `settle` the scores
    become minus the rank, which breaks the ties for good.
    """
    ranking = rank_run(run, order, dtype)
    row = np.arange(len(run))
    if ranking.position is not None:
        row[ranking.position] = np.arange(len(run))
    sizes = np.diff(run.start)
    rank = np.arange(len(run)) - np.repeat(run.start[:-1], sizes)  # from 0
    start, cut = run.start, run.cut
    if depth is not None and (sizes > depth).any():
        first_dropped = run.start[:-1] + np.minimum(sizes, depth)
        next_group = np.searchsorted(ranking.group_start, first_dropped - 1, side="right")
        group_end = ranking.group_start[np.minimum(next_group, len(ranking.group_start) - 1)]
        dropped_ties = np.maximum(group_end - first_dropped, 0)
        cut_before = np.int64(0) if cut is None else cut
        # A tie that reaches the list's end goes on among the documents cut before.
        ends_inside = (sizes > depth) & (group_end < run.start[1:])
        cut = np.where(ends_inside, dropped_ties, cut_before + dropped_ties)
        is_kept = rank < np.repeat(np.broadcast_to(depth, len(sizes)), sizes)
        row, rank = row[is_kept], rank[is_kept]
        start = np.zeros_like(run.start)
        np.cumsum(np.minimum(sizes, depth), out=start[1:])
    doc = kernels.contiguous(ids_of(run, "doc").gather(row))
    score: Float = np.asarray(-(rank + 1.0) if settle else run.score[row], np.float64)
    rest = None if run.rest is None or settle else run.rest[row]
    index: Any = Later(lambda: kernels.index_documents(doc, start))
    columns: dict[str, Any] = {"start": start, "doc": doc, "score": score, "cut": cut, "rest": rest}
    columns["queries"] = ids_of(run, "queries")  # `replace` would convert them to a Series
    return replace(run, **columns, index=index, cache={})


def end_after_ties(run: Run, order: Order, dtype: str | None, depth: int) -> Run:
    """Return a run with each list cut after the tie group that holds its rank `depth`."""
    ranking = rank_run(run, order, dtype)
    last = run.start[:-1] + np.minimum(np.diff(run.start), depth) - 1
    next_group = np.searchsorted(ranking.group_start, last, side="right")
    return in_order(run, order, dtype, ranking.group_start[next_group] - run.start[:-1])


@dataclass(frozen=True, eq=False)
class Pool:
    """All judged documents of the evaluated queries, retrieved or not."""

    start: Int  # (Q+1,) query q owns documents start[q]:start[q+1]
    max_grade: int  # the highest in all judgments
    unsorted: Int  # (P,) grades by query, in input order
    aspects: Aspects | None = None  # of all judgments
    judgment: Int | None = None  # (P,) row of each document in `aspects`
    original: Pool | None = None  # that this one repeats

    @cached_property
    def query(self) -> Int:
        """(P,) query of each document."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    @cached_property
    def grade(self) -> Int:
        """(P,) grades of each query, highest first."""
        top = int(self.unsorted.max(initial=0))
        if (top + 1) * len(self.start) >= 2**62:
            return self.unsorted[np.lexsort((-self.unsorted, self.query))]
        # Sorting query and grade as one number is several times faster than lexsort,
        # and counting is faster still where few combinations are possible.
        keys = self.query * (top + 1) + (top - self.unsorted)
        combinations = (len(self.start) - 1) * (top + 1)
        if combinations <= 4 * len(keys):
            counts = np.bincount(keys, minlength=combinations)
            keys = np.repeat(np.arange(combinations), counts)
        else:
            keys.sort()
        return np.asarray(top - keys % (top + 1))

    @cached_property
    def place(self) -> Int:
        """(P,) 1, 2, 3, … within each query."""
        return np.arange(len(self.unsorted)) - self.start[self.query] + 1

    def repeated(self, copies: int) -> Pool:
        """Return `copies` copies of all queries, without sorting each again."""
        queries, size = len(self.start) - 1, len(self.unsorted)
        block = np.arange(copies)[:, None]
        start = np.append((self.start[:-1] + block * size).ravel(), copies * size)
        judgment = None if self.judgment is None else np.tile(self.judgment, copies)
        unsorted = np.tile(self.unsorted, copies)
        pool = Pool(start, self.max_grade, unsorted, self.aspects, judgment, original=self)
        pool.__dict__["query"] = (self.query + block * queries).ravel()
        pool.__dict__["grade"] = np.tile(self.grade, copies)
        pool.__dict__["place"] = np.tile(self.place, copies)
        return pool

    @property
    def copies(self) -> int:
        """How often it repeats `original`."""
        return (
            1 if self.original is None else (len(self.start) - 1) // (len(self.original.start) - 1)
        )

    @cached_property
    def results(self) -> dict[Any, Any]:
        """What measures compute from the pool alone, by keys of their own."""
        return {}

    @cached_property
    def _counts(self) -> dict[tuple[int, int | None], Int]:
        return {}

    def count(self, low: int, high: int | None = None) -> Int:
        """(Q,) number of grades from `low` to `high`."""
        if (low, high) not in self._counts:
            counts = kernels.count_grades(self.start, self.unsorted, low, high)
            counts.flags.writeable = False  # it is shared by all callers
            self._counts[low, high] = counts
        return self._counts[low, high]


@dataclass(frozen=True, eq=False)
class TieGroups:
    """The tie groups with a judged document, in rank order, of all evaluated queries.

    Other groups change no measure: their documents only occupy ranks. A group of `size` documents
    has start[g+1] − start[g] judged ones; the rest are unjudged.

    >>> @rp.measure("Largest")
    ... def largest(groups: rp.TieGroups) -> rp.Outcomes:
    ...     most = np.zeros(groups.queries)
    ...     np.maximum.at(most, groups.query, groups.size)
    ...     return rp.Outcomes(most, most, most, most, None)
    >>> rp.evaluate_arrays([[2, 1, 1]], [[0, 1, 0]], "Largest")["Largest"].expected
    2.0
    """

    listed: Int  # (Q,) documents of the list, which may end inside a group; 0 where there is none
    size: Int  # (G,) documents that tie
    first: Int  # (G,) rank of the group's first document, from 1
    query: Int  # (G,) index of its query
    start: Int  # (G+1,) judged documents of group g are start[g]:start[g+1] of the next two
    grade: Int  # (J,) in the order of `rank`
    rank: Int  # (J,) under the stated tie-break
    pool: Pool
    # The same groups including documents that were pooled but not judged (grade −1), if there are
    # any; infAP needs them.
    sampled: TieGroups | None = None
    judgment: Int | None = None  # (J,) row of each document in `pool.aspects`, if there are any

    @property
    def queries(self) -> int:
        return len(self.listed)

    @cached_property
    def _shorter(self) -> dict[int | None, TieGroups]:
        return {}

    def within(self, cutoff: int | None) -> TieGroups:
        """Return the groups that begin at rank `cutoff` or before; others cannot change the top."""
        if cutoff is None:
            return self
        if cutoff not in self._shorter:
            inside = self.first <= cutoff
            if self.alone and 2 * np.count_nonzero(inside) > len(inside):
                return self  # copying most of them costs more than reading all
            shorter = self.chosen(inside)
            if shorter is self:
                return self
            self._shorter[cutoff] = shorter
        return self._shorter[cutoff]

    def until(self, depth: int) -> TieGroups:
        """Return the groups of lists that end after rank `depth`, maybe inside a group."""
        sampled = None if self.sampled is None else self.sampled.until(depth)
        inside = self.chosen(self.first <= depth)
        return replace(inside, listed=np.minimum(self.listed, depth), sampled=sampled)

    @cached_property
    def reaches_past_end(self) -> bool:
        """True if some group has ranks past the end of its list."""
        return bool((self.first + self.size - 1 > self.listed[self.query]).any())

    def chosen(self, chosen: Bool) -> TieGroups:
        """Return the groups whose flag (G,) is set."""
        if chosen.all():
            return self
        columns = self.size, self.first, self.query, self.start, self.grade, self.rank
        selected = TieGroups(self.listed, *kernels.select_groups(chosen, *columns), self.pool)
        if self.judgment is None:
            return selected
        return replace(selected, judgment=self.judgment[np.repeat(chosen, self.judged)])

    @cached_property
    def alone(self) -> bool:
        """True if no group has two documents, so that no order changes anything."""
        return int(self.size.max(initial=1)) == 1

    @cached_property
    def judged(self) -> Int:
        """(G,) judged documents in each group."""
        return np.diff(self.start)

    @cached_property
    def doc_group(self) -> Int:
        """(J,) group of each judged document."""
        if len(self.grade) == len(self.size):  # one each
            return np.arange(len(self.size))
        return np.repeat(np.arange(len(self.size)), self.judged)

    @cached_property
    def doc_query(self) -> Int:
        """(J,) query of each judged document."""
        if len(self.grade) == len(self.size):
            return self.query
        return self.query[self.doc_group]

    @cached_property
    def place_by_grade(self) -> Int:
        """(J,) `place` for any gain that never falls with the grade."""
        return self.place(self.grade)

    def place(self, gain: Array) -> Int:
        """(J,) number of judged documents of the same group before each, highest gain first."""
        if len(self.grade) == len(self.size):
            return np.zeros(len(self.size), np.int64)
        index_in_group = np.arange(len(self.grade)) - self.start[self.doc_group]
        shared = np.flatnonzero(self.judged[self.doc_group] > 1)  # not alone in their group
        by_gain = shared[np.lexsort((-gain[shared], self.doc_group[shared]))]
        place = index_in_group.copy()
        place[by_gain] = index_in_group[shared]
        return place

    def by_place(self, place: Int) -> Int:
        """(J,) the judged documents of each group, sorted by their place.

        A sum in this order has the same last bit in whatever order the run lists the documents.
        """
        if len(self.grade) == len(self.size):
            return self.doc_group
        rows = np.empty(len(place), np.int64)
        rows[self.start[self.doc_group] + place] = np.arange(len(place))
        return rows

    def best_rank(self, place: Int) -> Int:
        """(J,) rank of each judged document when the highest gains of a group come first."""
        return self.first[self.doc_group] + place

    def worst_rank(self, place: Int) -> Int:
        """(J,) rank of each judged document when the highest gains of a group come last."""
        return (self.first + self.size - 1)[self.doc_group] - place

    def relevant(self, rel: int = 1) -> Int:
        """(Q,) R, the number of documents in the pool with at least grade `rel`."""
        return self.pool.count(rel)

    def sum_by_query(self, query: Int, values: Array) -> Float:
        """(Q,) sums, added one by one in row order."""
        return np.bincount(query, weights=values, minlength=self.queries).astype(np.float64)

    def sum_by_group(self, values: Array) -> Float:
        """(G,) sums over the judged documents of each group."""
        sums = np.bincount(self.doc_group, weights=values, minlength=len(self.size))
        return sums.astype(np.float64)


def pool_of(query: Int, grade: Int, queries: int, max_grade: int) -> Pool:
    """Return the pool of judgments that are sorted by query."""
    start = np.zeros(queries + 1, np.int64)
    np.cumsum(np.bincount(query, minlength=queries), out=start[1:])
    return Pool(start, max_grade, grade)


def subset_of(pool: Pool, rows: Bool | Int, query: Int, queries: int) -> Pool:
    """Return the pool of some rows of another; `query` has the new query of each, ascending."""
    subset = pool_of(query, pool.unsorted[rows], queries, pool.max_grade)
    if pool.judgment is None:
        return subset
    return replace(subset, aspects=pool.aspects, judgment=pool.judgment[rows])


def joined(parts: Sequence[TieGroups], query_numbers: Sequence[Int], queries: int) -> TieGroups:
    """Return the groups of several parts of a run as those of the whole run.

    `query_numbers` has, for each part, the number of each of its queries in the whole.
    """

    def concatenate(columns: Iterable[Array | None]) -> Int:
        return np.concatenate([np.empty(0, np.int64), *(c for c in columns if c is not None)])

    listed = np.zeros(queries, np.int64)
    pairs = list(zip(parts, query_numbers, strict=True))
    for part, numbers in pairs:
        listed[numbers] = part.listed
    query = concatenate(numbers[part.query] for part, numbers in pairs)
    by_query = np.argsort(query, kind="stable")
    doc_query = concatenate(numbers[part.doc_query] for part, numbers in pairs)
    documents = np.argsort(doc_query, kind="stable")
    sampled = None
    if any(part.sampled is not None for part in parts):
        sampled = joined([part.sampled or part for part in parts], query_numbers, queries)
    start = np.zeros(len(query) + 1, np.int64)
    np.cumsum(concatenate(part.judged for part in parts)[by_query], out=start[1:])
    pool_query = concatenate(numbers[part.pool.query] for part, numbers in pairs)
    pooled = np.argsort(pool_query, kind="stable")
    grades = concatenate(part.pool.unsorted for part in parts)[pooled]
    max_grade = max((part.pool.max_grade for part in parts), default=0)
    pool, judgment = pool_of(pool_query[pooled], grades, queries, max_grade), None
    if parts and parts[0].judgment is not None:
        judgment = concatenate(part.judgment for part in parts)[documents]
        of_pool = concatenate(part.pool.judgment for part in parts)[pooled]
        pool = replace(pool, aspects=parts[0].pool.aspects, judgment=of_pool)
    return TieGroups(
        listed=listed,
        size=concatenate(part.size for part in parts)[by_query],
        first=concatenate(part.first for part in parts)[by_query],
        query=query[by_query],
        start=start,
        grade=concatenate(part.grade for part in parts)[documents],
        rank=concatenate(part.rank for part in parts)[documents],
        pool=pool,
        sampled=sampled,
        judgment=judgment,
    )


def tie_groups(
    ranking: Ranking,
    listed: Int,
    query: Int,
    row: Int,
    grade: Int,
    pool: Pool,
    sampled: tuple[Int, Int] | None = None,
    judgment: Int | None = None,
) -> TieGroups:
    """Return the tie groups of the judged documents.

    `listed` (Q,) is the ranking's index of each evaluated query, or −1. `query`, `row` and `grade`
    (P,) describe the judgments; `row` is the run's row of the document, or −1; `judgment` (P,) are
    their rows in `pool.aspects`. `sampled` has query and row of the documents that were pooled but
    not judged.
    """
    if sampled is not None:
        # One number for query and row, since queries may share a list and so a row.
        factor = int(ranking.start[-1]) + 1
        is_judged = np.isin(sampled[0] * factor + sampled[1], query * factor + row)
        added = ~is_judged & (sampled[1] >= 0)
        judged = tie_groups(ranking, listed, query, row, grade, pool, judgment=judgment)
        if not added.any():
            return judged
        query = np.concatenate([query, sampled[0][added]])
        row = np.concatenate([row, sampled[1][added]])
        grade = np.concatenate([grade, np.full(int(added.sum()), -1)])
        return replace(judged, sampled=tie_groups(ranking, listed, query, row, grade, pool))
    if (query[1:] < query[:-1]).any():
        by_query = np.argsort(query, kind="stable")
        query, row, grade = query[by_query], row[by_query], grade[by_query]
        judgment = None if judgment is None else judgment[by_query]
    sizes = np.append(np.diff(ranking.start), 0)  # index −1 is a query without a list
    carried = grade if judgment is None else np.arange(len(grade))
    columns = kernels.group_judged(
        query, row, carried, listed, ranking.start, ranking.position, ranking.group_start
    )
    groups = TieGroups(sizes[listed], *columns, pool)
    if judgment is None:
        return groups
    return replace(groups, grade=grade[groups.grade], judgment=judgment[groups.grade])
