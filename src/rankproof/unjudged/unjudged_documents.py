"""The holes of a run: the unjudged documents in reach of a rank, as tie groups see them."""

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
    MatchedRun,
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
    from rankproof.unjudged.shared_documents import Holes

_T = TypeVar("_T")

HOLE = -1  # in the place of a grade
NOWHERE = np.int64(1) << 60  # the rank of a document that a run does not list


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Where a run has documents: the tie group of each; `first` is NOWHERE where it has none."""

    first: Int  # (H,) rank of the group's first document
    size: Int  # (H,)

    @property
    def last(self) -> Int:
        return self.first + self.size - 1


@dataclass(frozen=True, eq=False)
class Span:
    """What is in reach of a depth: every document whose tie group begins there or before."""

    begin: Int  # (Q,) position of each list's first document in the ranking
    count: Int  # (Q,)
    ties: Bool  # (Q,) whether any of its groups has two documents
    kept: dict[Any, Any] = field(default_factory=dict)  # what rules find out once

    @cached_property
    def tied(self) -> bool:
        return bool(self.ties.any())

    @cached_property
    def start(self) -> Int:
        """(Q+1,)"""
        return np.append(0, np.cumsum(self.count))


@dataclass(frozen=True, eq=False)
class Front:
    """Every document of a run that is in reach of a depth, in rank order by query."""

    begin: Int  # (Q,) position of each list's first document in the ranking
    start: Int  # (Q+1,) query q owns start[q]:start[q+1] of the next two
    row: Int  # (F,) of the run
    groups: TieGroups  # of all of them, J = F; a hole has grade HOLE
    kept: dict[Any, Any] = field(default_factory=dict)  # what rules find out once

    @cached_property
    def hole(self) -> Int:
        """(H,) the places of the holes."""
        return np.flatnonzero(self.groups.grade == HOLE)

    def see(self, place: Int) -> Seen:
        """Where the run has documents at these places; −1 is nowhere."""
        groups = self.groups
        first = np.append(groups.first[groups.doc_group], NOWHERE)[place]
        if len(groups.grade) == len(groups.size):
            return Seen(first, np.broadcast_to(np.int64(1), len(first)))
        return Seen(first, np.append(groups.size[groups.doc_group], 1)[place])


class Reach:
    """One run on the judged queries, its unjudged documents within reach among them."""

    def __init__(self, run: Run, qrels: Qrels, policy: Policy, seen: EvaluatedRun | None = None):
        # Every judged query keeps its place, so that the columns of several runs line up.
        self.policy = policy
        self.run = run
        way = replace(policy, missing="zero", condensed=False)
        self._seen = seen if seen is not None and seen.policy == way else None
        self.met: MatchedRun = (
            match_judgments(run, qrels, way) if self._seen is None else self._seen.matched
        )
        self._now: dict[Measure, Outcomes] = {} if self._seen is None else {**self._seen.outcomes}
        self._spans: dict[int | None, Span] = {}
        self._within: dict[int | None, TieGroups] = {}
        self._fronts: dict[int | None, Front] = {}
        self.counted: Bool = np.ones(len(self.met.listed), np.bool_)
        if policy.missing == "skip":
            self.counted = self.met.listed >= 0

    @property
    def queries(self) -> int:
        return len(self.met.listed)

    @cached_property
    def judged(self) -> TieGroups:
        """The tie groups as an evaluation has them: no hole in them."""
        return self.met.groups() if self._seen is None else self._seen.groups

    def judged_within(self, depth: int | None) -> TieGroups:
        """Those that begin at rank `depth` or before, and no other."""
        if depth not in self._within:
            groups = self.judged
            self._within[depth] = groups if depth is None else groups.chosen(groups.first <= depth)
        return self._within[depth]

    def now(self, measure: Measure) -> Outcomes:
        """What an evaluation reports of every query."""
        if measure not in self._now:
            found = measure.outcomes(self.judged)
            zero = self.policy.undefined == "zero"
            self._now[measure] = fill_undefined(found) if zero else found
        return self._now[measure]

    @cached_property
    def row_at(self) -> Int | None:
        """(N,) the row at each position; None where they are the same."""
        position = self.met.ranking.position
        if position is None:
            return None
        row = np.empty(len(position), np.int64)
        row[position] = np.arange(len(position))
        return row

    @cached_property
    def known(self) -> Bool:
        """(N,) whether the document at each position is judged."""
        row = self.met.row[self.met.row >= 0]
        known = np.zeros(len(self.run), np.bool_)
        known[row if self.met.ranking.position is None else self.met.ranking.position[row]] = True
        return known

    def span(self, depth: int | None) -> Span:
        """Where the documents in reach of a depth stand."""
        if depth not in self._spans:
            ranking, listed = self.met.ranking, self.met.listed
            there = listed >= 0
            begin = np.where(there, ranking.start[listed], 0)
            end = np.where(there, ranking.start[listed + 1], 0)
            tied = len(ranking.group_start) <= len(self.run)
            ties = np.zeros(len(begin), np.bool_)
            if depth is not None:
                far = np.flatnonzero(end - begin > depth)
                end[far] = begin[far] + depth
                if tied:
                    after = np.searchsorted(ranking.group_start, end[far] - 1, side="right")
                    end[far] = ranking.group_start[after]
            if tied:
                low, high = (np.searchsorted(ranking.group_start, x) for x in (begin, end))
                ties = np.asarray(high - low < end - begin)
            self._spans[depth] = Span(begin, end - begin, ties)
        return self._spans[depth]

    def front(self, depth: int | None) -> Front:
        """Every document whose tie group begins at rank `depth` or before."""
        if depth not in self._fronts:
            self._fronts[depth] = self._read(depth)
        return self._fronts[depth]

    def _read(self, depth: int | None) -> Front:
        met, ranking, group_start = self.met, self.met.ranking, self.met.ranking.group_start
        span = self.span(depth)
        begin, count, start = span.begin, span.count, span.start
        end = begin + count
        query = np.repeat(np.arange(self.queries), count)
        rank = np.arange(1, len(query) + 1) - start[query]
        position = rank + (begin - 1)[query]
        # What is judged is laid in; all the rest are holes.
        found = np.flatnonzero(met.row >= 0)
        at, of = met.row[found], met.query[found]
        if ranking.position is not None:
            at = ranking.position[at]
        inside = at < end[of]
        grade = np.full(len(query), HOLE)
        grade[(start[:-1] - begin)[of[inside]] + at[inside]] = met.grade[found[inside]]
        row = position if self.row_at is None else self.row_at[position]
        sizes = np.append(np.diff(ranking.start), 0)[met.listed]  # −1: a query without a list
        if len(group_start) > len(self.run):  # nothing ties
            alone = np.arange(len(query) + 1)
            one = np.ones(len(query), np.int64)
            groups = TieGroups(sizes, one, rank, query, alone, grade, rank, met.pool)
        else:
            low, high = (np.searchsorted(group_start, x) for x in (begin, end))
            held = high - low
            owner = np.repeat(np.arange(self.queries), held)
            which = np.arange(len(owner)) + (low - np.cumsum(held) + held)[owner]
            size = group_start[which + 1] - group_start[which]
            first = group_start[which] - begin[owner] + 1
            starts = np.append(0, np.cumsum(size))
            groups = TieGroups(sizes, size, first, owner, starts, grade, rank, met.pool)
        return Front(begin, start, row, groups)

    def find(self, holes: Holes) -> Int:
        """(H,) the row of each document in this run's list of its query, or −1."""
        if self not in holes.rows:
            run, listed = self.run, self.met.listed[holes.query]
            holes.rows[self] = kernels.find_rows(run.index, run.doc, run.start, holes.doc, listed)
        return holes.rows[self]

    def places(self, other: Reach, query: Int, row: Int, depth: int | None) -> Int:
        """(H,) where the front has the documents that another run holds at `row`, or −1."""
        run, front = self.run, self.front(depth)
        doc, theirs, listed = ids_of(run, "doc"), ids_of(other.run, "doc"), self.met.listed[query]
        if 4 * len(row) >= len(other.run):  # most of its documents: none need be copied
            wanted = np.full(len(other.run), -1)
            wanted[row] = listed
            found = kernels.find_rows(run.index, doc, run.start, theirs, wanted)[row]
        else:
            found = kernels.find_rows(run.index, doc, run.start, theirs.gather(row), listed)
        place = np.full(len(row), -1)
        there = np.flatnonzero(found >= 0)
        at, of = found[there], query[there]
        if self.met.ranking.position is not None:
            at = self.met.ranking.position[at]
        at += (front.start[:-1] - front.begin)[of]
        place[there] = np.where(at < front.start[of + 1], at, -1)
        return place

    def see(self, holes: Holes) -> Seen:
        """Where the run has these documents."""
        row = self.find(holes)
        ranking = self.met.ranking
        first = np.full(len(row), NOWHERE)
        size = np.ones(len(row), np.int64)
        found = np.flatnonzero(row >= 0)
        at = row[found] if ranking.position is None else ranking.position[row[found]]
        group = np.searchsorted(ranking.group_start, at, side="right") - 1
        begin = ranking.group_start[group]
        first[found] = begin - ranking.start[self.met.listed[holes.query[found]]] + 1
        size[found] = ranking.group_start[group + 1] - begin
        return Seen(first, size)

    def holed(self, query: Int, row: Int) -> TieGroups:
        """The tie groups with these unjudged rows among them, of grade HOLE."""
        met = self.met
        return tie_groups(
            met.ranking,
            met.listed,
            np.concatenate([met.query, query]),
            np.concatenate([met.row, row]),
            np.concatenate([met.grade, np.full(len(row), HOLE)]),
            met.pool,
        )

    def filled(self, holes: Holes, grade: Int, top: int) -> TieGroups:
        """The tie groups after each of `holes` was judged; grades below 0 stay unjudged."""
        met = self.met
        row = self.find(holes)
        query = np.concatenate([met.query, holes.query])
        rows = np.concatenate([met.row, row])
        grades = np.concatenate([met.grade, grade])
        known = grades >= 0
        query, rows, grades = query[known], rows[known], grades[known]
        pooled = rows >= 0 if self.policy.candidates_only else np.ones(len(rows), np.bool_)
        by_query = np.argsort(query[pooled], kind="stable")
        most = max(met.pool.max_grade, top)
        pool = pool_of(query[pooled][by_query], grades[pooled][by_query], self.queries, most)
        return tie_groups(met.ranking, met.listed, query, rows, grades, pool, met.sampled)


@dataclass(frozen=True, slots=True)
class Ends:
    """Both ends of a measure for every query, over completions and ties."""

    low: Float  # (Q,)
    high: Float  # (Q,)
    exact: bool = True  # else a completion may not reach them


@dataclass(frozen=True, eq=False)
class Holed:
    """The tie groups of a run up to a cutoff, with its holes, and the holes it does not list.

    With `gaps` the groups hold what is judged alone, and all else in reach are holes: an evaluation
    reads no more. Without them a hole is a document of grade HOLE, and all else stays as it is.
    """

    groups: TieGroups
    span: Int  # (Q,) documents in reach
    gaps: bool
    ties: Bool  # (Q,) whether the order of a group could matter
    now: Callable[[Measure], Outcomes]  # what is reported, holes as they are
    extra: Int  # (Q,) holes of other runs that this one does not list in its top k
    top: int  # the highest grade a hole can have
    skips: bool  # a mean leaves out queries with nothing relevant
    sampled: bool  # documents were pooled and not judged
    front: Callable[[], Front] = field(repr=False)
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)  # of the groups, not of `extra`

    def once(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """What the groups alone decide, and several pairs of runs ask for."""
        if (key, self.top) not in self.kept:
            self.kept[key, self.top] = make()
        found: _T = self.kept[key, self.top]
        return found

    @cached_property
    def tied(self) -> bool:
        return bool(self.ties.any())

    @property
    def spelled(self) -> Holed:
        """The same with each hole a document of the groups."""
        if not self.gaps:
            return self
        front = self.front()
        return replace(self, groups=front.groups, gaps=False, kept=front.kept)

    @property
    def is_hole(self) -> Bool:
        """(J,)"""
        return self.once("hole", lambda: np.asarray(self.groups.grade == HOLE, np.bool_))

    @property
    def free(self) -> Int:
        """(G,) documents of each group that are holes without being among its documents."""
        groups = self.groups
        if not (self.gaps and self.tied):
            return np.broadcast_to(np.int64(0), len(groups.size))
        return self.once("free", lambda: groups.size - groups.judged)

    @property
    def of_group(self) -> Int:
        """(G,) holes in each group."""

        def count() -> Int:
            if self.gaps:
                return self.free
            if len(self.groups.grade) == len(self.groups.size):
                return self.is_hole.astype(np.int64)
            return np.bincount(self.groups.doc_group[self.is_hole], minlength=len(self.groups.size))

        return self.once("of group", count)

    @property
    def of_query(self) -> Int:
        """(Q,) holes of the run in each query."""
        groups = self.groups

        def count() -> Int:
            if self.gaps:
                return self.span - np.bincount(groups.doc_query, minlength=groups.queries)
            return np.bincount(groups.doc_query[self.is_hole], minlength=groups.queries)

        return self.once("of query", count)

    @property
    def any(self) -> Bool:
        """(Q,) whether a completion could change anything."""
        return np.asarray(self.of_query + self.extra > 0, np.bool_)

    def barren(self, measure: Measure) -> Bool:
        """(Q,) queries that a mean is over only if a hole is relevant."""
        if not self.skips:
            return np.zeros(self.groups.queries, np.bool_)
        return ~averaged_queries(self.groups, measure)

    def with_last(self, grade: int, which: Bool) -> TieGroups:
        """Of some queries (Q,) one hole judged, where the last group that has any ends."""
        groups, pool = self.groups, self.groups.pool
        end = groups.first + groups.size - 1
        rank = np.zeros(groups.queries, np.int64)
        held = self.of_group > 0
        np.maximum.at(rank, groups.query[held], end[held])
        if self.gaps:
            last, new = np.zeros_like(rank), np.diff(groups.query, prepend=-1) != 0
            np.maximum.at(last, groups.query, end)
            gap = groups.first > np.where(new, 0, np.append(0, end[:-1])) + 1
            np.maximum.at(rank, groups.query[gap], groups.first[gap] - 1)
            rank = np.where(last < self.span, self.span, rank)
        query = np.flatnonzero(which & (rank > 0))
        rank, one = rank[query], np.ones(len(query), np.int64)
        start = np.append(0, np.cumsum(which))
        pool = replace(pool, start=start, unsorted=np.full(int(which.sum()), grade))
        return TieGroups(
            *(groups.listed, one, rank, query, np.arange(len(query) + 1), grade * one, rank),
            replace_top(pool, self.top),
        )

    def chosen(self, least: int, most: int | None = None) -> Int:
        """(G,) judged documents of each group with at least, and at most, these grades."""
        grade = self.groups.grade
        wanted = grade >= least
        if most is not None:
            wanted &= grade <= most
        if len(grade) == len(self.groups.size):
            return wanted.astype(np.int64)
        return np.bincount(self.groups.doc_group[wanted], minlength=len(self.groups.size))

    def with_all(self, grade: int) -> TieGroups:
        """Every hole of the run judged alike; the pool stays as it is but for its scale."""
        spelled = self.spelled
        groups = spelled.groups
        pool = replace_top(groups.pool, self.top)
        return replace(groups, grade=np.where(spelled.is_hole, grade, groups.grade), pool=pool)

    def alone(self) -> Int:
        """(J,) the number of each hole among those of its group, from 0."""
        groups = self.groups
        place = groups.place_by_grade  # HOLE is the lowest grade, so holes stand last
        return place - (groups.judged - self.of_group)[groups.doc_group]

    def line(self, worth: Array, hole: float, best: bool = True) -> tuple[Int | slice, Int]:
        """(J,) the documents in an order of the ties, and their ranks.

        Worth falls inside each group, or rises where that is not best; a hole is worth `hole`.
        """
        groups = self.groups
        if not self.tied:
            return slice(None), groups.rank
        place = groups.place(worth)
        behind = self.free[groups.doc_group] * (worth < hole)  # the holes stand before it
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
        return self.once(
            "begin",
            lambda: np.append(
                0, np.cumsum(np.bincount(groups.doc_query, minlength=groups.queries))
            ),
        )


def replace_top(pool: Pool, top: int) -> Pool:
    """The same pool on a scale that reaches at least `top`."""
    return pool if pool.max_grade >= top else replace(pool, max_grade=max(pool.max_grade, top))


def up_to(counts: Int, query: Int) -> Int:
    """(G,) sums within a query up to and with each group."""
    return before(counts, query).astype(np.int64) + counts
