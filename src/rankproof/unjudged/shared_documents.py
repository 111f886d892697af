"""The holes of several runs: how many there are, which of them two runs share, and who they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import polars as pl

from rankproof.data.tables import ids_of
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Float, Int
from rankproof.unjudged.gains import Levels
from rankproof.unjudged.unjudged_documents import Holed, Reach


class Holes:
    """Every unjudged document within a depth of some runs, each once, ascending by query.

    Most bounds ask how many there are alone; who they are is spelled out where somebody asks.
    """

    def __init__(self, reaches: Sequence[Reach], depth: int | None):
        self.reaches, self.depth = tuple(reaches), depth

    def __len__(self) -> int:
        return int(self.count.sum())

    @cached_property
    def count(self) -> Int:
        """(Q,) how many each query has."""
        if len(self.reaches) > 1 and self.shared is None:
            return self._spelled.count
        counts = [_open(reach, self.depth) for reach in self.reaches]
        return counts[0] if self.shared is None else sum(counts) - self.shared.count

    @cached_property
    def query(self) -> Int:
        """(H,) index of the evaluated query, ascending."""
        return np.repeat(np.arange(len(self.count)), self.count)

    @cached_property
    def doc(self) -> pl.Series:
        """(H,)"""
        return self._spelled.name()

    @property
    def near(self) -> dict[Reach, Int]:
        """(H,) their places in each front, or −1."""
        return self._spelled.near

    @property
    def rows(self) -> dict[Reach, Int]:
        """(H,) their rows in whole lists, as far as they were looked for."""
        return self._spelled.rows

    @cached_property
    def _spelled(self) -> Spelled:
        return _spell(self.reaches, self.depth)

    @cached_property
    def shared(self) -> Shared | None:
        """What two runs share; None for other numbers of them, and without compiled code."""
        if kernels.native is None or len(self.reaches) != 2 or self.reaches[1].run.index is None:
            return None
        a, b = self.reaches
        spans = [reach.span(self.depth) for reach in self.reaches]
        table = b.run.index
        shared, level = (np.empty(a.queries, np.int64) for _ in range(2))
        assert table is not None
        theirs = np.empty(int(spans[0].start[-1]), np.int32)
        own = np.empty(int(spans[1].start[-1]), np.bool_)
        ids = [kernels.contiguous(ids_of(reach.run, "doc")) for reach in self.reaches]
        kernels.map_ranges(
            lambda first, last: kernels.native.share(
                *(ids[0], a.row_at, a.known, spans[0].begin, spans[0].start),
                *(b.met.listed, ids[1], b.run.start, table.slot_start, table.slots),
                *(b.met.ranking.position, b.known, spans[1].begin, spans[1].start),
                *(theirs, own, shared, level, first, last),
            ),
            *(a.queries, kernels.thread_count(len(theirs))),
        )
        return Shared(theirs, own, spans[0].start, spans[1].start, shared, level)


@dataclass(frozen=True, eq=False)
class Spelled:
    """Who the holes are."""

    count: Int  # (Q,)
    name: Callable[[], pl.Series] = field(repr=False)  # their ids, where somebody asks
    near: dict[Reach, Int]
    rows: dict[Reach, Int]


@dataclass(frozen=True, eq=False)
class Lead:
    """(Q,) What holes weigh in one run less what they weigh in another."""

    gained: Float  # the sum of what is above 0
    lost: Float  # of what is below, turned positive
    most: Float
    least: Float

    def turned(self) -> Lead:
        """The other run before the one."""
        return Lead(self.lost, self.gained, -self.least, -self.most)


@dataclass(frozen=True, eq=False)
class Shared:
    """Which holes two runs share, rank by rank; nothing ties."""

    theirs: Array  # (FA,) int32: the rank in b of what a has there, 0 if nowhere, −1 if judged
    own: Array  # (FB,) bool: a hole that a does not have
    start_a: Int  # (Q+1,)
    start_b: Int  # (Q+1,)
    count: Int  # (Q,)
    level: Int  # (Q,) of which so many stand at the same place in both

    def lead(self, weight: Float) -> Lead:
        """a − b, where a hole weighs weight[rank]."""
        gained, lost, most, least = (np.empty(len(self.count)) for _ in range(4))
        kernels.map_ranges(
            lambda first, last: kernels.native.lead(
                *(self.theirs, self.own, self.start_a, self.start_b, weight),
                *(gained, lost, most, least, first, last),
            ),
            *(len(self.count), kernels.thread_count(len(self.theirs) + len(self.own))),
        )
        return Lead(gained, lost, most, least)

    def gains(self, weight: Float, known: Float, steps: Levels, total: Float) -> Lead:
        """`most` and `least`: the ends of (known + Σ gains · what holes weigh in a less b)/IDCG."""
        high, low = np.empty(len(known)), np.empty(len(known))
        kernels.map_ranges(
            lambda first, last: kernels.native.gains(
                *(self.theirs, self.own, self.start_a, self.start_b, weight, known),
                *(steps.held, steps.step, total, high, low, first, last),
            ),
            *(len(known), kernels.thread_count(len(self.theirs) + len(self.own))),
        )
        return Lead(known, known, high, low)


def _open(reach: Reach, depth: int | None) -> Int:
    """(Q,) holes of a run."""
    groups = reach.judged_within(depth)
    return reach.span(depth).count - np.bincount(groups.doc_query, minlength=groups.queries)


def holed(reach: Reach, holes: Holes, cutoff: int | None, top: int) -> Holed:
    """A run's tie groups with those of `holes` that it lists; the others are extra.

    Where only candidates are relevant, those are that it lists further down.
    """
    settings = top, reach.policy.undefined == "skip", reach.met.sampled is not None
    if cutoff == holes.depth and reach in holes.reaches:  # whatever others list, these are its own
        span = reach.span(cutoff)
        found = Holed(
            *(reach.judged_within(cutoff), span.count, True, span.ties, reach.now, holes.count),
            *(*settings, lambda: reach.front(cutoff), span.kept),
        )
    else:
        row = reach.find(holes)
        groups = reach.holed(holes.query[row >= 0], row[row >= 0])
        groups = groups if cutoff is None else groups.chosen(groups.first <= cutoff)
        ties = np.zeros(reach.queries, np.bool_)
        ties[groups.query[groups.size > 1]] = True
        found = Holed(
            *(groups, groups.listed, False, ties, reach.now, holes.count),
            *(*settings, lambda: reach.front(cutoff)),
        )
    known = holes.count
    if reach.policy.candidates_only:
        known = np.bincount(holes.query[reach.find(holes) >= 0], minlength=reach.queries)
    return replace(found, extra=known - found.of_query)


def _spell(reaches: Sequence[Reach], depth: int | None) -> Spelled:
    """Every hole of the runs: first those of the first run, then what others add."""
    queries = reaches[0].queries
    parts: list[tuple[Reach, Int, Int]] = []  # whose, query and row of those no run before has
    near: dict[Reach, list[Int]] = {}
    for reach in reaches:
        front = reach.front(depth)
        places = [reach.places(other, query, row, depth) for other, query, row in parts]
        new = np.zeros(len(front.row) + 1, np.bool_)  # the last is for −1
        new[front.hole] = True
        for place in places:
            new[place] = False
        own = np.flatnonzero(new[:-1])
        for earlier in near.values():  # they do not have these within the depth
            earlier.append(np.full(len(own), -1))
        near[reach] = [*places, own]
        parts.append((reach, front.groups.doc_query[own], front.row[own]))
    counts = np.stack([np.bincount(query, minlength=queries) for _, query, _ in parts])
    count = counts.sum(axis=0)
    ahead = np.cumsum(counts, axis=0) - counts + np.cumsum(count) - count  # part by part
    to = [
        np.arange(len(query)) + (before - np.cumsum(own) + own)[query]
        for (_, query, _), own, before in zip(parts, counts, ahead, strict=True)
    ]

    def together(columns: list[Int]) -> Int:
        column = np.empty(sum(map(len, columns)), np.int64)
        for place, values in zip(to, columns, strict=True):
            column[place] = values
        return column

    def names() -> pl.Series:
        docs = pl.concat([reach.run.doc.gather(row) for reach, _, row in parts], rechunk=True)
        return docs.gather(np.argsort(np.concatenate(to)))

    found = {reach: together(columns) for reach, columns in near.items()}
    rows = {}
    if depth is None or len(reaches) == 1:  # a front has all that is asked for
        for reach, place in found.items():
            rows[reach] = np.append(reach.front(depth).row, -1)[place]
    return Spelled(count, names, found, rows)
