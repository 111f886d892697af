"""The holes of a run: the unjudged documents in reach of a rank, as tie groups see them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import polars as pl

from rankproof import kernels
from rankproof.arrays import Bool, Int
from rankproof.evaluation import Met, Policy, counts, meet, undefined_is_zero
from rankproof.measures.registry import Measure, Outcomes
from rankproof.tables import Qrels, Run, ids_of
from rankproof.ties import Pool, TieGroups, pool_of, tie_groups

_T = TypeVar("_T")

HOLE = -1  # in the place of a grade
NOWHERE = np.int64(1) << 60  # the rank of a document that a run does not list


@dataclass(frozen=True, eq=False)
class Holes:
    """Unjudged documents, by query."""

    query: Int  # (H,) index of the evaluated query, ascending
    count: Int  # (Q,) how many each query has
    name: Callable[[], pl.Series] = field(repr=False)  # their ids, where somebody asks
    depth: int | None = None  # these are all holes within it of the runs of `near`
    near: dict[Reach, Int] = field(default_factory=dict, repr=False)  # their places in each front
    rows: dict[Reach, Int] = field(default_factory=dict, repr=False)  # and in whole lists

    @cached_property
    def doc(self) -> pl.Series:
        """(H,)"""
        return self.name()

    def __len__(self) -> int:
        return len(self.query)


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Where a run has documents: the tie group of each; `first` is NOWHERE where it has none."""

    first: Int  # (H,) rank of the group's first document
    size: Int  # (H,)

    @property
    def last(self) -> Int:
        return self.first + self.size - 1


@dataclass(frozen=True, eq=False)
class Front:
    """Every document of a run whose tie group begins within a depth, in rank order by query."""

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

    def __init__(self, run: Run, qrels: Qrels, policy: Policy):
        # Every judged query keeps its place, so that the columns of several runs line up.
        self.policy = policy
        self.run = run
        self.met: Met = meet(run, qrels, replace(policy, missing="zero", condensed=False))
        self._now: dict[Measure, Outcomes] = {}
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
        return self.met.groups()

    def now(self, measure: Measure) -> Outcomes:
        """What an evaluation reports of every query."""
        if measure not in self._now:
            found = measure.outcomes(self.judged)
            zero = self.policy.undefined == "zero"
            self._now[measure] = undefined_is_zero(found) if zero else found
        return self._now[measure]

    @cached_property
    def _row_at(self) -> Int | None:
        """(N,) the row at each position; None where they are the same."""
        position = self.met.ranking.position
        if position is None:
            return None
        row = np.empty(len(position), np.int64)
        row[position] = np.arange(len(position))
        return row

    def front(self, depth: int | None) -> Front:
        """Every document whose tie group begins at rank `depth` or before."""
        if depth not in self._fronts:
            self._fronts[depth] = self._read(depth)
        return self._fronts[depth]

    def _read(self, depth: int | None) -> Front:
        met, ranking, group_start = self.met, self.met.ranking, self.met.ranking.group_start
        there = met.listed >= 0
        begin = np.where(there, ranking.start[met.listed], 0)
        end = np.where(there, ranking.start[met.listed + 1], 0)
        if depth is not None:
            long = np.flatnonzero(end - begin > depth)
            after = np.searchsorted(group_start, begin[long] + depth - 1, side="right")
            end[long] = group_start[after]
        count = end - begin
        start = np.append(0, np.cumsum(count))
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
        row = position if self._row_at is None else self._row_at[position]
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

    def holes(self, depth: int | None) -> Holes:
        """The holes within `depth`."""
        front = self.front(depth)
        row, query = front.row[front.hole], front.groups.doc_query[front.hole]
        count = np.bincount(query, minlength=self.queries)
        return Holes(
            query, count, lambda: self.run.doc.gather(row), depth, {self: front.hole}, {self: row}
        )

    def find(self, holes: Holes) -> Int:
        """(H,) the row of each document in this run's list of its query, or −1."""
        if self not in holes.rows:
            run, listed = self.run, self.met.listed[holes.query]
            holes.rows[self] = kernels.lookup(run.index, run.doc, run.start, holes.doc, listed)
        return holes.rows[self]

    def places(self, other: Reach, query: Int, row: Int, depth: int | None) -> Int:
        """(H,) where the front has the documents that another run holds at `row`, or −1."""
        run, front = self.run, self.front(depth)
        doc, theirs, listed = ids_of(run, "doc"), ids_of(other.run, "doc"), self.met.listed[query]
        if 4 * len(row) >= len(other.run):  # most of its documents: none need be copied
            wanted = np.full(len(other.run), -1)
            wanted[row] = listed
            found = kernels.lookup(run.index, doc, run.start, theirs, wanted)[row]
        else:
            found = kernels.lookup(run.index, doc, run.start, theirs.gather(row), listed)
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


@dataclass(frozen=True, eq=False)
class Holed:
    """The tie groups of a run up to a cutoff, with its holes, and the holes it does not list."""

    groups: TieGroups  # a hole has grade HOLE
    now: Callable[[Measure], Outcomes]  # what is reported, holes as they are
    extra: Int  # (Q,) holes of other runs that this one does not list in its top k
    top: int  # the highest grade a hole can have
    skips: bool  # a mean leaves out queries with nothing relevant
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)  # of the groups, not of `extra`

    def once(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """What the groups alone decide, and several pairs of runs ask for."""
        if (key, self.top) not in self.kept:
            self.kept[key, self.top] = make()
        found: _T = self.kept[key, self.top]
        return found

    @property
    def tied(self) -> bool:
        """Whether the order of a group could matter."""
        return self.once("tied", lambda: bool((self.groups.size > 1).any()))

    @property
    def is_hole(self) -> Bool:
        """(J,)"""
        return self.once("hole", lambda: np.asarray(self.groups.grade == HOLE, np.bool_))

    @property
    def of_group(self) -> Int:
        """(G,) holes in each group."""

        def count() -> Int:
            if len(self.groups.grade) == len(self.groups.size):
                return self.is_hole.astype(np.int64)
            return np.bincount(self.groups.doc_group[self.is_hole], minlength=len(self.groups.size))

        return self.once("of group", count)

    @property
    def of_query(self) -> Int:
        """(Q,) holes of the run in each query."""
        groups = self.groups
        return self.once(
            "of query",
            lambda: np.bincount(groups.doc_query[self.is_hole], minlength=groups.queries),
        )

    @property
    def any(self) -> Bool:
        """(Q,) whether a completion could change anything."""
        return np.asarray(self.of_query + self.extra > 0, np.bool_)

    def barren(self, measure: Measure) -> Bool:
        """(Q,) queries that a mean is over only if a hole is relevant."""
        if not self.skips:
            return np.zeros(self.groups.queries, np.bool_)
        return ~counts(self.groups, measure)

    def with_last(self, grade: int, which: Bool) -> TieGroups:
        """Of some queries (Q,) one hole judged, of the last group that has any, and no other."""
        groups, pool = self.groups, self.groups.pool
        held = np.flatnonzero(self.of_group * which[groups.query])
        last = np.zeros(len(groups.size), np.bool_)
        last[held[np.diff(groups.query[held], append=-1) != 0]] = True
        few = groups.chosen(last)
        grades = np.zeros(len(few.grade), np.int64)
        grades[few.start[:-1]] = grade
        start = np.append(0, np.cumsum(which))
        pool = replace(pool, start=start, unsorted=np.full(int(which.sum()), grade))
        return replace(few, grade=grades, pool=replace_top(pool, self.top))

    def chosen(self, least: int, most: int | None = None) -> Int:
        """(G,) judged documents of each group with at least, and at most, these grades."""
        grade = self.groups.grade
        wanted = grade >= least
        if most is not None:
            wanted &= grade <= most
        return np.bincount(self.groups.doc_group[wanted], minlength=len(self.groups.size))

    def with_all(self, grade: int) -> TieGroups:
        """Every hole of the run judged alike; the pool stays as it is but for its scale."""
        groups = self.groups
        pool = replace_top(groups.pool, self.top)
        return replace(groups, grade=np.where(self.is_hole, grade, groups.grade), pool=pool)

    def alone(self) -> Int:
        """(J,) the number of each hole among those of its group, from 0."""
        groups = self.groups
        place = groups.place_by_grade  # HOLE is the lowest grade, so holes stand last
        return place - (groups.judged - self.of_group)[groups.doc_group]


def replace_top(pool: Pool, top: int) -> Pool:
    """The same pool on a scale that reaches at least `top`."""
    return pool if pool.max_grade >= top else replace(pool, max_grade=max(pool.max_grade, top))
