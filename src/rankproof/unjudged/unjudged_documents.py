"""The unjudged documents of a run within a depth, as tie groups see them.

Bounds need to know how many unjudged documents each query has and at which ranks they can stand,
rarely which ones they are. So an unjudged document is **implicit** where possible: the tie groups
hold the judged documents alone, as in an evaluation, and every rank that these leave open belongs
to an unjudged one. Only some rules, and bounds over documents of other runs, spell them out as
documents of grade UNJUDGED.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rankproof.data.tables import Qrels, Run, ids_of
from rankproof.data.ties import Pool, TieGroups, pool_of, tie_groups
from rankproof.evaluation import (
    EvaluatedRun,
    MatchedJudgments,
    Policy,
    averaged_queries,
    fill_undefined,
    match_judgments,
)
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.measures import Measure, Outcomes
from rankproof.measures.preference import before

if TYPE_CHECKING:
    from rankproof.unjudged.shared_documents import UnjudgedSet

_T = TypeVar("_T")

UNJUDGED = -1  # in place of a grade
UNLISTED = np.int64(1) << 60  # the rank of a document that a run does not list


@dataclass(frozen=True, slots=True)
class QueryBounds:
    """Lowest and highest value of a measure for every query, over all grades and orders of ties."""

    low: Float  # (Q,)
    high: Float  # (Q,)
    exact: bool = True  # some grades and order reach them; else they may be too wide


@dataclass(frozen=True, slots=True, eq=False)
class TiedRanks:
    """The tie group of each of some documents in a run."""

    first: Int  # (H,) rank of the group's first document; UNLISTED if the run lacks the document
    size: Int  # (H,)

    @property
    def last(self) -> Int:
        return self.first + self.size - 1


@dataclass(frozen=True, eq=False)
class TopSpan:
    """How many documents of each list count for a depth: those whose tie group begins within it."""

    begin: Int  # (Q,) position of each list's first document in the ranking
    count: Int  # (Q,)
    ties: Bool  # (Q,) True if any of their tie groups has two documents
    cache: dict[Any, Any] = field(default_factory=dict)  # what rules compute once

    @cached_property
    def tied(self) -> bool:
        return bool(self.ties.any())

    @cached_property
    def start(self) -> Int:
        """(Q+1,) query q owns start[q]:start[q+1] of all these documents."""
        return np.append(0, np.cumsum(self.count))


@dataclass(frozen=True, eq=False)
class TopDocuments:
    """The documents of a run that count for a depth, in rank order by query."""

    begin: Int  # (Q,) position of each list's first document in the ranking
    start: Int  # (Q+1,) query q owns start[q]:start[q+1] of the next two
    row: Int  # (F,) of the run
    groups: TieGroups  # of all of them, J = F; unjudged ones have grade UNJUDGED
    cache: dict[Any, Any] = field(default_factory=dict)  # what rules compute once

    @cached_property
    def unjudged(self) -> Int:
        """(H,) places of the unjudged documents."""
        return np.flatnonzero(self.groups.grade == UNJUDGED)

    def tied_ranks(self, place: Int) -> TiedRanks:
        """The tie groups of the documents at these places; −1 is a document that is not here."""
        groups = self.groups
        first = np.append(groups.first[groups.doc_group], UNLISTED)[place]
        if len(groups.grade) == len(groups.size):
            return TiedRanks(first, np.broadcast_to(np.int64(1), len(first)))
        return TiedRanks(first, np.append(groups.size[groups.doc_group], 1)[place])


class MatchedRun:
    """One run on the judged queries, with its unjudged documents at every depth.

    Every judged query has its place, even if the run lacks it, so that the columns of several runs
    line up.
    """

    def __init__(
        self, run: Run, qrels: Qrels, policy: Policy, evaluated: EvaluatedRun | None = None
    ):
        self.run = run
        self.policy = policy
        matching_policy = replace(policy, missing="zero", condensed=False)
        is_reusable = evaluated is not None and evaluated.policy == matching_policy
        self._evaluated = evaluated if is_reusable else None
        self._reported: dict[Measure, Outcomes] = {}
        self.matching: MatchedJudgments
        if self._evaluated is None:
            self.matching = match_judgments(run, qrels, matching_policy)
        else:
            self.matching = self._evaluated.matched
            self._reported |= self._evaluated.outcomes
        self._spans: dict[int | None, TopSpan] = {}
        self._judged_within: dict[int | None, TieGroups] = {}
        self._top_documents: dict[int | None, TopDocuments] = {}
        self.is_counted: Bool = np.ones(len(self.matching.listed), np.bool_)
        if policy.missing == "skip":
            self.is_counted = self.matching.listed >= 0

    @property
    def queries(self) -> int:
        return len(self.matching.listed)

    @cached_property
    def judged(self) -> TieGroups:
        """The tie groups as an evaluation has them, of judged documents alone."""
        if self._evaluated is not None:
            return self._evaluated.groups
        groups = self.matching.groups()
        return groups if self.policy.depth is None else groups.until(self.policy.depth)

    def is_cut_in_tie(self, measure: Measure) -> Bool:
        """(Q,) True if the list ends inside a tie, and the measure reads it to its end.

        Lists are read to the end of the tie group that holds the policy's depth.
        """
        depth = self.policy.depth
        if depth is None or (measure.cutoff is not None and measure.cutoff <= depth):
            return np.zeros(self.queries, np.bool_)
        return self.top_span(None).count > depth

    def judged_within(self, depth: int | None) -> TieGroups:
        """The tie groups that begin at rank `depth` or before, of judged documents alone."""
        if depth not in self._judged_within:
            groups = self.judged
            within = groups if depth is None else groups.chosen(groups.first <= depth)
            self._judged_within[depth] = within
        return self._judged_within[depth]

    def reported(self, measure: Measure) -> Outcomes:
        """What an evaluation reports for every query: unjudged documents as not relevant."""
        if measure not in self._reported:
            outcomes = self.policy.apply(measure).outcomes(self.judged)
            if self.policy.undefined == "zero":
                outcomes = fill_undefined(outcomes)
            self._reported[measure] = outcomes
        return self._reported[measure]

    @cached_property
    def row_at(self) -> Int | None:
        """(N,) the row at each position; None where they are the same."""
        position = self.matching.ranking.position
        if position is None:
            return None
        row = np.empty(len(position), np.int64)
        row[position] = np.arange(len(position))
        return row

    @cached_property
    def is_judged(self) -> Bool:
        """(N,) True if the document at this position is judged."""
        judged = np.zeros(len(self.run), np.bool_)
        judged[self._position(self.matching.row[self.matching.row >= 0])] = True
        return judged

    def _position(self, row: Int) -> Int:
        """Positions in the ranking of some rows of the run."""
        position = self.matching.ranking.position
        return row if position is None else position[row]

    def top_span(self, depth: int | None) -> TopSpan:
        """How many documents of each list count for a depth."""
        if depth not in self._spans:
            self._spans[depth] = self._measure_top(depth)
        return self._spans[depth]

    def _measure_top(self, depth: int | None) -> TopSpan:
        """Find where each list ends for a depth: after the tie group that straddles it."""
        ranking, listed = self.matching.ranking, self.matching.listed
        is_listed = listed >= 0
        begin = np.where(is_listed, ranking.start[listed], 0)
        end = np.where(is_listed, ranking.start[listed + 1], 0)
        has_ties = len(ranking.group_start) <= len(self.run)
        if depth is not None:
            longer = np.flatnonzero(end - begin > depth)
            end[longer] = begin[longer] + depth
            if has_ties:
                next_group = np.searchsorted(ranking.group_start, end[longer] - 1, side="right")
                end[longer] = ranking.group_start[next_group]
        ties = np.zeros(len(begin), np.bool_)
        if has_ties:
            first, last = (np.searchsorted(ranking.group_start, x) for x in (begin, end))
            ties = np.asarray(last - first < end - begin)
        return TopSpan(begin, end - begin, ties)

    def top_documents(self, depth: int | None) -> TopDocuments:
        """Every document whose tie group begins at rank `depth` or before."""
        if depth not in self._top_documents:
            self._top_documents[depth] = self._read_top(depth)
        return self._top_documents[depth]

    def _read_top(self, depth: int | None) -> TopDocuments:
        """Build the tie groups of all documents that count for a depth, unjudged ones included."""
        ranking, pool = self.matching.ranking, self.matching.pool
        span = self.top_span(depth)
        begin, start = span.begin, span.start
        query = np.repeat(np.arange(self.queries), span.count)
        rank = np.arange(1, len(query) + 1) - start[query]
        position = rank + (begin - 1)[query]
        grade = self._top_grades(span)
        row = position if self.row_at is None else self.row_at[position]
        sizes = np.append(np.diff(ranking.start), 0)[self.matching.listed]  # −1: not listed
        if self.policy.depth is not None:
            sizes = np.minimum(sizes, self.policy.depth)
        if len(ranking.group_start) > len(self.run):  # nothing ties
            one = np.ones(len(query), np.int64)
            group_start = np.arange(len(query) + 1)
            groups = TieGroups(sizes, one, rank, query, group_start, grade, rank, pool)
            return TopDocuments(begin, start, row, groups)
        low, high = (np.searchsorted(ranking.group_start, x) for x in (begin, begin + span.count))
        count = high - low
        owner = np.repeat(np.arange(self.queries), count)
        group = np.arange(len(owner)) + (low - np.cumsum(count) + count)[owner]
        size = ranking.group_start[group + 1] - ranking.group_start[group]
        groups = TieGroups(
            listed=sizes,
            size=size,
            first=ranking.group_start[group] - begin[owner] + 1,
            query=owner,
            start=np.append(0, np.cumsum(size)),
            grade=grade,
            rank=rank,
            pool=pool,
        )
        return TopDocuments(begin, start, row, groups)

    def _top_grades(self, span: TopSpan) -> Int:
        """(F,) the grades of all documents that count, UNJUDGED where there is none."""
        matching = self.matching
        listed = np.flatnonzero(matching.row >= 0)
        position, query = self._position(matching.row[listed]), matching.query[listed]
        counts = position < (span.begin + span.count)[query]
        grade = np.full(int(span.start[-1]), UNJUDGED)
        offset = (span.start[:-1] - span.begin)[query[counts]]
        grade[offset + position[counts]] = matching.grade[listed[counts]]
        return grade

    def rows_of(self, documents: UnjudgedSet) -> Int:
        """(H,) the row of each document in this run's list of its query, or −1."""
        if self not in documents.rows:
            run, listed = self.run, self.matching.listed[documents.query]
            documents.rows[self] = kernels.find_rows(
                run.index, run.doc, run.start, documents.doc, listed
            )
        return documents.rows[self]

    def places(self, other: MatchedRun, query: Int, row: Int, depth: int | None) -> Int:
        """(H,) the place of another run's documents among this run's top documents, or −1.

        `row` (H,) is where the other run has them, `query` (H,) the evaluated query.
        """
        run, top = self.run, self.top_documents(depth)
        doc, other_doc = ids_of(run, "doc"), ids_of(other.run, "doc")
        listed = self.matching.listed[query]
        if 4 * len(row) >= len(other.run):  # most of its documents: looked up without a copy
            list_of_row = np.full(len(other.run), -1)
            list_of_row[row] = listed
            own_row = kernels.find_rows(run.index, doc, run.start, other_doc, list_of_row)[row]
        else:
            own_row = kernels.find_rows(run.index, doc, run.start, other_doc.gather(row), listed)
        place = np.full(len(row), -1)
        shared = np.flatnonzero(own_row >= 0)
        query = query[shared]
        shared_place = self._position(own_row[shared]) + (top.start[:-1] - top.begin)[query]
        place[shared] = np.where(shared_place < top.start[query + 1], shared_place, -1)
        return place

    def tied_ranks(self, documents: UnjudgedSet) -> TiedRanks:
        """The tie groups of these documents in this run."""
        row = self.rows_of(documents)
        ranking = self.matching.ranking
        first = np.full(len(row), UNLISTED)
        size = np.ones(len(row), np.int64)
        listed = np.flatnonzero(row >= 0)
        position = self._position(row[listed])
        group = np.searchsorted(ranking.group_start, position, side="right") - 1
        begin = ranking.group_start[group]
        first[listed] = begin - ranking.start[self.matching.listed[documents.query[listed]]] + 1
        size[listed] = ranking.group_start[group + 1] - begin
        return TiedRanks(first, size)

    def groups_with_unjudged(self, query: Int, row: Int) -> TieGroups:
        """The tie groups with these unjudged rows among them, of grade UNJUDGED."""
        matching = self.matching
        return tie_groups(
            matching.ranking,
            matching.listed,
            np.concatenate([matching.query, query]),
            np.concatenate([matching.row, row]),
            np.concatenate([matching.grade, np.full(len(row), UNJUDGED)]),
            matching.pool,
        )

    def groups_when_judged(self, documents: UnjudgedSet, grade: Int, top_grade: int) -> TieGroups:
        """The tie groups if each of these documents had a grade; below 0 it stays unjudged."""
        matching = self.matching
        query = np.concatenate([matching.query, documents.query])
        row = np.concatenate([matching.row, self.rows_of(documents)])
        grades = np.concatenate([matching.grade, grade])
        judged = grades >= 0
        query, row, grades = query[judged], row[judged], grades[judged]
        pooled = row >= 0 if self.policy.candidates_only else np.ones(len(row), np.bool_)
        by_query = np.argsort(query[pooled], kind="stable")
        highest = max(matching.pool.max_grade, top_grade)
        pool = pool_of(query[pooled][by_query], grades[pooled][by_query], self.queries, highest)
        return tie_groups(
            matching.ranking, matching.listed, query, row, grades, pool, matching.sampled
        )


@dataclass(frozen=True, eq=False)
class PartlyJudged:
    """The tie groups of a run up to a cutoff with its unjudged documents, as rules read them.

    If they are implicit, the groups hold the judged documents alone and every other rank in `span`
    is an unjudged one. Else unjudged documents have grade UNJUDGED, and ranks that no group has
    belong to documents that stay as they are.
    """

    groups: TieGroups
    span: Int  # (Q,) documents that count
    is_implicit: bool
    ties: Bool  # (Q,) True if the order of a group could matter
    reported: Callable[[Measure], Outcomes]  # with unjudged documents as they are
    unlisted: Int  # (Q,) unjudged documents of other runs that this one lacks in its top k
    top: int  # the highest grade an unjudged document can have
    skips_undefined: bool  # a mean leaves out queries with nothing relevant
    sampled: bool  # documents were pooled and not judged
    top_documents: Callable[[], TopDocuments] = field(repr=False)
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)  # independent of `unlisted`

    def cached(self, key: Hashable, compute: Callable[[], _T]) -> _T:
        """Return what `compute` returns, computed once: it depends on the groups alone."""
        if (key, self.top) not in self.cache:
            self.cache[key, self.top] = compute()
        value: _T = self.cache[key, self.top]
        return value

    @cached_property
    def tied(self) -> bool:
        return bool(self.ties.any())

    @property
    def explicit(self) -> PartlyJudged:
        """The same with each unjudged document spelled out in the groups."""
        if not self.is_implicit:
            return self
        top = self.top_documents()
        return replace(self, groups=top.groups, is_implicit=False, cache=top.cache)

    @property
    def is_unjudged(self) -> Bool:
        """(J,) True for documents of grade UNJUDGED."""
        return self.cached("hole", lambda: np.asarray(self.groups.grade == UNJUDGED, np.bool_))

    @property
    def implicit_in_group(self) -> Int:
        """(G,) unjudged documents of each group that are not among its documents."""
        groups = self.groups
        if not (self.is_implicit and self.tied):
            return np.broadcast_to(np.int64(0), len(groups.size))
        return self.cached("free", lambda: groups.size - groups.judged)

    @property
    def unjudged_in_group(self) -> Int:
        """(G,) unjudged documents of each group."""

        def count() -> Int:
            if self.is_implicit:
                return self.implicit_in_group
            groups = self.groups
            if len(groups.grade) == len(groups.size):
                return self.is_unjudged.astype(np.int64)
            return np.bincount(groups.doc_group[self.is_unjudged], minlength=len(groups.size))

        return self.cached("of group", count)

    @property
    def unjudged_in_query(self) -> Int:
        """(Q,) unjudged documents of the run."""
        groups = self.groups

        def count() -> Int:
            if self.is_implicit:
                return self.span - np.bincount(groups.doc_query, minlength=groups.queries)
            return np.bincount(groups.doc_query[self.is_unjudged], minlength=groups.queries)

        return self.cached("of query", count)

    @property
    def any(self) -> Bool:
        """(Q,) True if unjudged documents could change anything."""
        return np.asarray(self.unjudged_in_query + self.unlisted > 0, np.bool_)

    def without_relevant(self, measure: Measure) -> Bool:
        """(Q,) queries that count in a mean only if an unjudged document is relevant."""
        if not self.skips_undefined:
            return np.zeros(self.groups.queries, np.bool_)
        return ~averaged_queries(self.groups, measure)

    def last_graded(self, grade: int, chosen: Bool) -> TieGroups:
        """Tie groups of the chosen queries (Q,) if the last unjudged document alone had a grade."""
        groups, pool = self.groups, self.groups.pool
        last_rank = self._last_unjudged_rank()
        query = np.flatnonzero(chosen & (last_rank > 0))
        rank, one = last_rank[query], np.ones(len(query), np.int64)
        start = np.append(0, np.cumsum(chosen))
        pool = replace(pool, start=start, unsorted=np.full(int(chosen.sum()), grade))
        return TieGroups(
            listed=groups.listed,
            size=one,
            first=rank,
            query=query,
            start=np.arange(len(query) + 1),
            grade=grade * one,
            rank=rank,
            pool=extend_scale(pool, self.top),
        )

    def _last_unjudged_rank(self) -> Int:
        """(Q,) the last rank that an unjudged document of the list can have; 0 without one."""
        groups = self.groups
        end = groups.first + groups.size - 1
        rank = np.zeros(groups.queries, np.int64)
        has_unjudged = self.unjudged_in_group > 0
        np.maximum.at(rank, groups.query[has_unjudged], end[has_unjudged])
        if self.is_implicit:  # ranks that no group has: between two groups, or behind all
            last_group_end, is_first = np.zeros_like(rank), np.diff(groups.query, prepend=-1) != 0
            np.maximum.at(last_group_end, groups.query, end)
            has_gap = groups.first > np.where(is_first, 0, np.append(0, end[:-1])) + 1
            np.maximum.at(rank, groups.query[has_gap], groups.first[has_gap] - 1)
            rank = np.where(last_group_end < self.span, self.span, rank)
        return rank

    def judged_with(self, lowest: int, highest: int | None = None) -> Int:
        """(G,) judged documents of each group with a grade from `lowest` to `highest`."""
        grade = self.groups.grade
        chosen = grade >= lowest
        if highest is not None:
            chosen &= grade <= highest
        if len(grade) == len(self.groups.size):
            return chosen.astype(np.int64)
        return np.bincount(self.groups.doc_group[chosen], minlength=len(self.groups.size))

    def all_graded(self, grade: int) -> TieGroups:
        """The tie groups if every unjudged document had this grade, on the scale up to `top`."""
        explicit = self.explicit
        groups = explicit.groups
        pool = extend_scale(groups.pool, self.top)
        return replace(groups, grade=np.where(explicit.is_unjudged, grade, groups.grade), pool=pool)

    def number_in_group(self) -> Int:
        """(J,) the number of each unjudged document among those of its group, from 0."""
        groups = self.groups
        place = groups.place_by_grade  # UNJUDGED is the lowest grade, so these are last
        return place - (groups.judged - self.unjudged_in_group)[groups.doc_group]

    def extreme_order(
        self, worth: Array, unjudged_worth: float, best: bool = True
    ) -> tuple[Int | slice, Int]:
        """(J,) the documents in the best or worst order of their ties, and their ranks.

        In the best order `worth` falls inside each group; unjudged documents are worth the same.
        """
        groups = self.groups
        if not self.tied:
            return slice(None), groups.rank
        place = groups.place(worth)
        behind = self.implicit_in_group[groups.doc_group] * (worth < unjudged_worth)
        if best:
            rank, order = groups.best_rank(place) + behind, groups.by_place(place)
        else:
            rank = groups.worst_rank(place) - behind
            order = groups.by_place(groups.judged[groups.doc_group] - 1 - place)
        return order, rank[order]

    @property
    def begin(self) -> Int:
        """(Q+1,) query q owns begin[q]:begin[q+1] of the documents."""
        groups = self.groups

        def starts() -> Int:
            return np.append(0, np.cumsum(np.bincount(groups.doc_query, minlength=groups.queries)))

        return self.cached("begin", starts)


def extend_scale(pool: Pool, top_grade: int) -> Pool:
    """The same pool on a scale that goes up to at least `top_grade`."""
    return pool if pool.max_grade >= top_grade else replace(pool, max_grade=top_grade)


def running_total(counts: Int, query: Int) -> Int:
    """(G,) sums within a query up to and including each group."""
    return before(counts, query).astype(np.int64) + counts
