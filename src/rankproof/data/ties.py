"""Scores → tie groups: the only place that ranks.

A query's documents, sorted by score, fall into groups of equal score. What is random is the order
inside a group; which ranks a group takes is not. Measures read groups and never sort.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

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
    if order not in TIE_BREAKS:
        raise InputError(
            f"tie-break {shorten(order)} is unknown", remedy=f"use one of {', '.join(TIE_BREAKS)}"
        )


def round_scores(score: Float, dtype: str) -> Float:
    """Scores as a narrower format would hold them, widened back to float64.

    Halves go to the even neighbour. bfloat16 and float16 round the float32 value, as a model
    whose scores are float32 would.
    """
    if dtype == "float64":
        return score
    with np.errstate(over="ignore"):  # past the largest float16 lies inf, which is an order
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
    """Every list of a run from best to worst, with its tie groups.

    Positions count through all lists: query q holds start[q]:start[q+1].
    """

    start: Int  # (Q+1,)
    position: Int | None  # (N,) of each row; None where rows stand in rank order already
    group_start: Int  # (G+1,) position at which each tie group begins, and N

    @property
    def groups_of(self) -> Int:
        """(Q,) how many tie groups each query has: its distinct scores."""
        return np.diff(np.searchsorted(self.group_start, self.start))

    @property
    def tied(self) -> Bool:
        """(Q,) whether a query has a group of two or more."""
        return self.groups_of < np.diff(self.start)


def rank(start: Int, score: Float, doc: kernels.Ids | None, order: Order) -> Ranking:
    """Rank rows that stand together by query; `doc` is read only to break ties by it."""
    group_start = kernels.tie_group_starts(score, start)
    position: Int | None = None
    if group_start is None or (order != "input" and len(group_start) <= len(score)):
        by_doc = doc if order != "input" else None
        position, group_start = kernels.rank_rows(score, start, by_doc, order == "trec_eval")
    return Ranking(start, position, group_start)


def rank_run(run: Run, order: Order = "input", dtype: str | None = None) -> Ranking:
    """Rank a run once for each tie-break and score format; later calls reuse it."""
    exact = dtype is None and run.rest is not None
    key = (order, dtype or run.dtype, exact)
    if key not in run.cache:
        score = round_scores(run.score, dtype) if dtype else run.score
        if run.rest is not None and exact:
            score = _told_apart(score, run.rest)
        run.cache[key] = rank(run.start, score, ids_of(run, "doc"), order)
    ranking: Ranking = run.cache[key]
    return ranking


def _told_apart(score: Float, rest: Float) -> Float:
    """Numbers in the order of score + rest, equal where both are: 0, 1, 2, … through all rows."""
    ascending = np.lexsort((rest, score))
    score, rest = score[ascending], rest[ascending]
    level = np.zeros(len(score))
    np.cumsum((score[1:] != score[:-1]) | (rest[1:] != rest[:-1]), out=level[1:])
    place = np.empty(len(score))
    place[ascending] = level
    return place


def in_order(
    run: Run, order: Order, dtype: str | None = None, depth: int | None = None, settle: bool = False
) -> Run:
    """The run with each list in rank order, cut behind rank `depth`.

    `cut` counts what was left out though it ties with the last one kept. With `settle` the scores
    become minus the rank, so that the ties are broken for good.
    """
    ranking = rank_run(run, order, dtype)
    row = np.arange(len(run))
    if ranking.position is not None:
        row[ranking.position] = np.arange(len(run))
    sizes = np.diff(run.start)
    rank = np.arange(len(run)) - np.repeat(run.start[:-1], sizes)  # from 0
    start, cut = run.start, run.cut
    if depth is not None and (sizes > depth).any():
        last = run.start[:-1] + np.minimum(sizes, depth)  # the first position left out
        group = np.searchsorted(ranking.group_start, last - 1, side="right")
        end = ranking.group_start[np.minimum(group, len(ranking.group_start) - 1)]
        left, before = np.maximum(end - last, 0), np.int64(0) if cut is None else cut
        # The tie may go on past the list's own end.
        cut = np.where((sizes > depth) & (end < run.start[1:]), left, before + left)
        kept = rank < depth
        row, rank = row[kept], rank[kept]
        start = np.zeros_like(run.start)
        np.cumsum(np.minimum(sizes, depth), out=start[1:])
    doc = kernels.contiguous(ids_of(run, "doc").gather(row))
    score: Float = np.asarray(-(rank + 1.0) if settle else run.score[row], np.float64)
    rest = None if run.rest is None or settle else run.rest[row]
    index: Any = Later(lambda: kernels.index_documents(doc, start))
    made: dict[str, Any] = {"start": start, "doc": doc, "score": score, "cut": cut, "rest": rest}
    made["queries"] = ids_of(run, "queries")  # which `replace` would look at as a Series
    return replace(run, **made, index=index, cache={})


@dataclass(frozen=True, eq=False)
class Pool:
    """Every judged document of the evaluated queries, retrieved or not."""

    start: Int  # (Q+1,) query q owns start[q]:start[q+1]
    max_grade: int  # highest grade in the whole qrels
    unsorted: Int  # (P,) grades, ascending by query

    @cached_property
    def query(self) -> Int:
        """(P,) query of each document."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    @cached_property
    def grade(self) -> Int:
        """(P,) the grades of each query from the highest down."""
        top = int(self.unsorted.max(initial=0))
        if (top + 1) * len(self.start) >= 2**62:
            return self.unsorted[np.lexsort((-self.unsorted, self.query))]
        # Query and grade in one number: a plain sort is several times faster than an indirect one.
        keys = self.query * (top + 1) + (top - self.unsorted)
        cells = (len(self.start) - 1) * (top + 1)
        if cells <= 4 * len(keys):  # and to count is faster still
            keys = np.repeat(np.arange(cells), np.bincount(keys, minlength=cells))
        else:
            keys.sort()
        return np.asarray(top - keys % (top + 1))

    @cached_property
    def place(self) -> Int:
        """(P,) 1, 2, 3, … within each query."""
        return np.arange(len(self.unsorted)) - self.start[self.query] + 1

    def repeated(self, copies: int) -> Pool:
        """The same queries so many times over, sorted once."""
        queries, size = len(self.start) - 1, len(self.unsorted)
        block = np.arange(copies)[:, None]
        start = np.append((self.start[:-1] + block * size).ravel(), copies * size)
        pool = Pool(start, self.max_grade, np.tile(self.unsorted, copies))
        pool.__dict__["query"] = (self.query + block * queries).ravel()
        pool.__dict__["grade"] = np.tile(self.grade, copies)
        pool.__dict__["place"] = np.tile(self.place, copies)
        return pool

    @cached_property
    def _counts(self) -> dict[tuple[int, int | None], Int]:
        return {}

    def count(self, low: int, high: int | None = None) -> Int:
        """(Q,) how many grades are at least `low`, and at most `high`."""
        if (low, high) not in self._counts:
            found = kernels.count_grades(self.start, self.unsorted, low, high)
            found.flags.writeable = False  # all who ask get the same one
            self._counts[low, high] = found
        return self._counts[low, high]


@dataclass(frozen=True, eq=False)
class TieGroups:
    """The tie groups that hold a judged document, in rank order, for all evaluated queries.

    Groups without one change no measure: their documents only take up ranks. A group's unjudged
    documents are those of `size` that `start` does not count.

    >>> @rp.measure("Largest")
    ... def largest(groups: rp.TieGroups) -> rp.Outcomes:
    ...     most = np.zeros(groups.queries)
    ...     np.maximum.at(most, groups.query, groups.size)
    ...     return rp.Outcomes(most, most, most, most, None)
    >>> rp.evaluate_arrays([[2, 1, 1]], [[0, 1, 0]], "Largest")["Largest"].expected
    2.0
    """

    listed: Int  # (Q,) documents the run lists for the query; 0 where it has none
    size: Int  # (G,) documents that tie
    first: Int  # (G,) rank of the group's first document, from 1
    query: Int  # (G,) index of its query
    start: Int  # (G+1,) judged documents of group g are start[g]:start[g+1] of the next two
    grade: Int  # (J,) in the order of `rank`
    rank: Int  # (J,) under the stated tie-break
    pool: Pool
    # The same with the documents that were pooled and not judged among them, of grade −1, where
    # there are any: what infAP reads.
    sampled: TieGroups | None = None

    @property
    def queries(self) -> int:
        return len(self.listed)

    @cached_property
    def _shorter(self) -> dict[int | None, TieGroups]:
        return {}

    def within(self, cutoff: int | None) -> TieGroups:
        """The groups that begin at rank `cutoff` or before; no other can change the top."""
        if cutoff is None:
            return self
        if cutoff not in self._shorter:
            inside = self.first <= cutoff
            if self.alone and 2 * np.count_nonzero(inside) > len(inside):
                return self  # to look at all of them is less work
            shorter = self.chosen(inside)
            if shorter is self:
                return self
            self._shorter[cutoff] = shorter
        return self._shorter[cutoff]

    def chosen(self, chosen: Bool) -> TieGroups:
        """Some of the groups (G,), of the same queries."""
        if chosen.all():
            return self
        columns = self.size, self.first, self.query, self.start, self.grade, self.rank
        return TieGroups(self.listed, *kernels.select_groups(chosen, *columns), self.pool)

    @cached_property
    def alone(self) -> bool:
        """Whether no judged document ties with another, so that no order changes anything."""
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
        """(J,) how many judged documents of the same group come before when gains descend."""
        if len(self.grade) == len(self.size):
            return np.zeros(len(self.size), np.int64)
        inside = np.arange(len(self.grade)) - self.start[self.doc_group]
        mixed = np.flatnonzero(self.judged[self.doc_group] > 1)
        by_gain = mixed[np.lexsort((-gain[mixed], self.doc_group[mixed]))]
        place = inside.copy()
        place[by_gain] = inside[mixed]
        return place

    def by_place(self, place: Int) -> Int:
        """(J,) the judged documents of each group by their place.

        What is summed in this order comes out the same to the last bit in whatever order the run
        listed the documents.
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
        """(Q,) documents of the pool with at least grade `rel`: R."""
        return self.pool.count(rel)

    def sum_by_query(self, query: Int, values: Array) -> Float:
        """(Q,) sums in row order, one addition after the other, as a plain loop would do them."""
        return np.bincount(query, weights=values, minlength=self.queries).astype(np.float64)

    def sum_by_group(self, values: Array) -> Float:
        """(G,) sums over the judged documents of each group."""
        sums = np.bincount(self.doc_group, weights=values, minlength=len(self.size))
        return sums.astype(np.float64)


def pool_of(query: Int, grade: Int, queries: int, max_grade: int) -> Pool:
    """The pool of judgements that ascend by query."""
    start = np.zeros(queries + 1, np.int64)
    np.cumsum(np.bincount(query, minlength=queries), out=start[1:])
    return Pool(start, max_grade, grade)


def joined(parts: Sequence[TieGroups], at: Sequence[Int], queries: int) -> TieGroups:
    """Groups of parts as those of one run of so many queries; `at` numbers each part's queries."""

    def together(columns: Iterable[Array]) -> Int:
        return np.concatenate([np.empty(0, np.int64), *columns])

    listed = np.zeros(queries, np.int64)
    for part, places in zip(parts, at, strict=True):
        listed[places] = part.listed
    pairs = list(zip(parts, at, strict=True))
    query = together(places[part.query] for part, places in pairs)
    by_query = np.argsort(query, kind="stable")
    documents = np.argsort(together(p[part.doc_query] for part, p in pairs), kind="stable")
    sampled = None
    if any(part.sampled is not None for part in parts):
        sampled = joined([part.sampled or part for part in parts], at, queries)
    start = np.zeros(len(query) + 1, np.int64)
    np.cumsum(together(part.judged for part in parts)[by_query], out=start[1:])
    owner = together(places[part.pool.query] for part, places in pairs)
    pooled = np.argsort(owner, kind="stable")
    grades = together(part.pool.unsorted for part in parts)[pooled]
    return TieGroups(
        listed=listed,
        size=together(part.size for part in parts)[by_query],
        first=together(part.first for part in parts)[by_query],
        query=query[by_query],
        start=start,
        grade=together(part.grade for part in parts)[documents],
        rank=together(part.rank for part in parts)[documents],
        pool=pool_of(
            owner[pooled], grades, queries, max((p.pool.max_grade for p in parts), default=0)
        ),
        sampled=sampled,
    )


def tie_groups(
    ranking: Ranking,
    listed: Int,
    query: Int,
    row: Int,
    grade: Int,
    pool: Pool,
    sampled: tuple[Int, Int] | None = None,
) -> TieGroups:
    """The groups of judged documents.

    `listed` (Q,) is the ranking's index of each evaluated query, or −1; `query`, `row` and `grade`
    (P,) are the judgements, with the row of the run that holds the document, or −1. `sampled` are
    query and row of documents that were pooled and not judged.
    """
    if sampled is not None:
        rows = int(ranking.start[-1]) + 1  # of a query and a row: a row may be in several
        left = ~np.isin(sampled[0] * rows + sampled[1], query * rows + row) & (sampled[1] >= 0)
        judged = tie_groups(ranking, listed, query, row, grade, pool)
        if not left.any():
            return judged
        query = np.concatenate([query, sampled[0][left]])
        row = np.concatenate([row, sampled[1][left]])
        grade = np.concatenate([grade, np.full(int(left.sum()), -1)])
        return replace(judged, sampled=tie_groups(ranking, listed, query, row, grade, pool))
    if (query[1:] < query[:-1]).any():
        by_query = np.argsort(query, kind="stable")
        query, row, grade = query[by_query], row[by_query], grade[by_query]
    sizes = np.append(np.diff(ranking.start), 0)  # index −1: a query without a list
    found = kernels.group_judged(
        query, row, grade, listed, ranking.start, ranking.position, ranking.group_start
    )
    return TieGroups(sizes[listed], *found, pool)
