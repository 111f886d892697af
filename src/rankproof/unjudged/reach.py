"""The holes of a run: the unjudged documents in reach of a rank, as tie groups see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import polars as pl

from rankproof import kernels
from rankproof.arrays import Bool, Int
from rankproof.evaluation import Met, Policy, meet
from rankproof.measures.registry import Measure, Outcomes
from rankproof.tables import Qrels, Run
from rankproof.ties import Pool, TieGroups, pool_of, tie_groups

HOLE = -1  # in the place of a grade
NOWHERE = np.int64(1) << 60  # the rank of a document that a run does not list


@dataclass(frozen=True, eq=False)
class Holes:
    """Unjudged documents, by query."""

    query: Int  # (H,) index of the evaluated query, ascending
    name: Callable[[], pl.Series] = field(repr=False)  # their ids, where somebody asks
    rows: dict[Reach, Int] = field(default_factory=dict, repr=False)  # where runs have them
    depth: int | None = None  # these are all holes of some runs within it, of `whose` among them
    whose: frozenset[Reach] = frozenset()

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


class Reach:
    """One run on the judged queries, its unjudged documents within reach among them."""

    def __init__(self, run: Run, qrels: Qrels, policy: Policy):
        # Every judged query keeps its place, so that the columns of several runs line up.
        self.policy = policy
        self.run = run
        self.met: Met = meet(run, qrels, replace(policy, missing="zero", condensed=False))
        self._now: dict[Measure, Outcomes] = {}
        self._rows: dict[int | None, tuple[Int, Int]] = {}
        self._within: dict[int, TieGroups] = {}
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
            self._now[measure] = measure.outcomes(self.judged)
        return self._now[measure]

    @cached_property
    def _judged_row(self) -> Bool:
        """(N,) whether a row of the run is judged."""
        marked = np.zeros(len(self.run), np.bool_)
        marked[self.met.row[self.met.row >= 0]] = True
        return marked

    @cached_property
    def _row_at(self) -> Int | None:
        """(N,) the row at each position; None where they are the same."""
        position = self.met.ranking.position
        if position is None:
            return None
        row = np.empty(len(position), np.int64)
        row[position] = np.arange(len(position))
        return row

    def rows(self, depth: int | None) -> tuple[Int, Int]:
        """Query and row of every hole whose tie group begins at rank `depth` or before."""
        if depth not in self._rows:
            self._rows[depth] = self._find_rows(depth)
        return self._rows[depth]

    def _find_rows(self, depth: int | None) -> tuple[Int, Int]:
        ranking, listed = self.met.ranking, self.met.listed
        query = np.flatnonzero(listed >= 0)
        start, end = ranking.start[listed[query]], ranking.start[listed[query] + 1]
        if depth is not None:
            last = np.maximum(np.minimum(end, start + depth) - 1, 0)
            after = np.searchsorted(ranking.group_start, last, side="right")
            after = np.minimum(after, len(ranking.group_start) - 1)  # a run may be empty
            end = np.where(end > start, ranking.group_start[after], end)
        count = end - start
        before = np.cumsum(count) - count
        position = np.repeat(start - before, count) + np.arange(int(count.sum()))
        row = position if self._row_at is None else self._row_at[position]
        hole = ~self._judged_row[row]
        return np.repeat(query, count)[hole], row[hole]

    def has(self, row: Int, depth: int | None) -> Bool:
        """(H,) whether these rows, −1 where there is none, are holes within `depth`."""
        marked = np.zeros(len(self.run) + 1, np.bool_)  # the last is for −1
        marked[self.rows(depth)[1]] = True
        return marked[row]

    def holes(self, depth: int | None) -> Holes:
        """The holes within `depth`."""
        query, row = self.rows(depth)
        own = frozenset([self])
        return Holes(query, lambda: self.run.doc.gather(row), {self: row}, depth, own)

    def find(self, holes: Holes) -> Int:
        """(H,) the row of each document in this run's list of its query, or −1."""
        if self not in holes.rows:
            run, listed = self.run, self.met.listed[holes.query]
            holes.rows[self] = kernels.lookup(run.index, run.doc, run.start, holes.doc, listed)
        return holes.rows[self]

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

    def within(self, cutoff: int) -> TieGroups:
        """The tie groups up to a cutoff with all holes among them."""
        if cutoff not in self._within:
            self._within[cutoff] = self.holed(*self.rows(cutoff)).within(cutoff)
        return self._within[cutoff]

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

    @cached_property
    def is_hole(self) -> Bool:
        """(J,)"""
        return np.asarray(self.groups.grade == HOLE, np.bool_)

    @cached_property
    def of_group(self) -> Int:
        """(G,) holes in each group."""
        return np.bincount(self.groups.doc_group[self.is_hole], minlength=len(self.groups.size))

    @cached_property
    def of_query(self) -> Int:
        """(Q,) holes of the run in each query."""
        return np.bincount(
            self.groups.doc_query[self.is_hole], minlength=self.groups.queries
        ).astype(np.int64)

    @property
    def any(self) -> Bool:
        """(Q,) whether a completion could change anything."""
        return np.asarray(self.of_query + self.extra > 0, np.bool_)

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
