"""Unjudged documents of several runs: how many there are, which two runs share, and their ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import polars as pl

from rankproof.data.tables import Qrels, ids_of
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Float, Int
from rankproof.unjudged.gains import Levels
from rankproof.unjudged.unjudged_documents import UNLISTED, MatchedRun, PartlyJudged


class UnjudgedSet:
    """Every unjudged document within a depth of some runs, each once, ascending by query.

    Most bounds need only their number; the documents themselves are identified when needed.
    """

    def __init__(self, runs: Sequence[MatchedRun], depth: int | None):
        self.runs, self.depth = tuple(runs), depth

    def __len__(self) -> int:
        return int(self.count.sum())

    @cached_property
    def count(self) -> Int:
        """(Q,) unjudged documents of each query."""
        if len(self.runs) > 1 and self.shared is None:
            return self._documents.count
        counts = [_unjudged_counts(run, self.depth) for run in self.runs]
        return counts[0] if self.shared is None else sum(counts) - self.shared.count

    @cached_property
    def query(self) -> Int:
        """(H,) index of the evaluated query, ascending."""
        return np.repeat(np.arange(len(self.count)), self.count)

    @cached_property
    def doc(self) -> pl.Series:
        """(H,) ids."""
        return self._documents.ids()

    def to_frame(self, qrels: Qrels) -> pl.DataFrame:
        """query, doc: the ids of these documents; `qrels` are the judgments they lack."""
        return pl.DataFrame({"query": qrels.queries.gather(self.query), "doc": self.doc})

    @property
    def places(self) -> dict[MatchedRun, Int]:
        """(H,) their places among each run's top documents, or −1."""
        return self._documents.places

    @property
    def rows(self) -> dict[MatchedRun, Int]:
        """(H,) their rows in whole lists, for the runs in which they were looked up."""
        return self._documents.rows

    @cached_property
    def _documents(self) -> _Documents:
        return _identify(self.runs, self.depth)

    @cached_property
    def shared(self) -> SharedDocuments | None:
        """Which documents two runs share; None unless there are two, and compiled code."""
        if kernels.native is None or len(self.runs) != 2 or self.runs[1].run.index is None:
            return None
        a, b = self.runs
        span_a, span_b = (run.top_span(self.depth) for run in self.runs)
        table = b.run.index
        shared, same_rank = (np.empty(a.queries, np.int64) for _ in range(2))
        assert table is not None
        rank_in_b = np.empty(int(span_a.start[-1]), np.int32)
        only_in_b = np.empty(int(span_b.start[-1]), np.bool_)
        ids_a, ids_b = (kernels.contiguous(ids_of(run.run, "doc")) for run in self.runs)
        kernels.map_ranges(
            lambda first, last: kernels.native.share(
                *(ids_a, a.row_at, a.is_judged, span_a.begin, span_a.start),
                *(b.matching.listed, ids_b, b.run.start, table.slot_start, table.slots),
                *(b.matching.ranking.position, b.is_judged, span_b.begin, span_b.start),
                *(rank_in_b, only_in_b, shared, same_rank, first, last),
            ),
            *(a.queries, kernels.thread_count(len(rank_in_b))),
        )
        return SharedDocuments(
            rank_in_b=rank_in_b,
            only_in_b=only_in_b,
            start_a=span_a.start,
            start_b=span_b.start,
            count=shared,
            same_rank=same_rank,
        )


@dataclass(frozen=True, eq=False)
class _Documents:
    """The unjudged documents themselves."""

    count: Int  # (Q,)
    ids: Callable[[], pl.Series] = field(repr=False)  # (H,) copied when needed
    places: dict[MatchedRun, Int]
    rows: dict[MatchedRun, Int]


@dataclass(frozen=True, eq=False)
class WeightGap:
    """(Q,) the weights that unjudged documents have in one run less those in another."""

    gained: Float  # sum of the positive ones
    lost: Float  # minus the sum of the negative ones
    most: Float
    least: Float

    def swapped(self) -> WeightGap:
        """The same for the other order of the two runs."""
        return WeightGap(self.lost, self.gained, -self.least, -self.most)


@dataclass(frozen=True, eq=False)
class SharedDocuments:
    """Which unjudged documents two runs share, rank by rank; nothing ties."""

    rank_in_b: Array  # (FA,) int32: rank in b of what a has at this rank, 0 if none, −1 if judged
    only_in_b: Array  # (FB,) bool: an unjudged document that a lacks
    start_a: Int  # (Q+1,)
    start_b: Int  # (Q+1,)
    count: Int  # (Q,) that both have
    same_rank: Int  # (Q,) of these, at the same rank

    @cached_property
    def ranks(self) -> tuple[Int, Int, Int]:
        """(H,) query, rank in a, and rank in b of each document, ascending by query."""
        in_a, in_b = np.flatnonzero(self.rank_in_b >= 0), np.flatnonzero(self.only_in_b)
        columns = []
        for place, start in ((in_a, self.start_a), (in_b, self.start_b)):
            query = np.searchsorted(start, place, side="right") - 1
            columns.append((query, place - start[query] + 1))
        (query_a, rank_a), (query_b, rank_b) = columns
        rank_of_shared = self.rank_in_b[in_a].astype(np.int64)
        rank_of_shared[rank_of_shared == 0] = UNLISTED
        query = np.concatenate([query_a, query_b])
        by_query = np.argsort(query, kind="stable")
        of_a = np.concatenate([rank_a, np.full(len(rank_b), UNLISTED)])
        of_b = np.concatenate([rank_of_shared, rank_b])
        return query[by_query], of_a[by_query], of_b[by_query]

    def weight_gap(self, weight: Float) -> WeightGap:
        """The gap of a − b if an unjudged document weighs weight[rank]."""
        gained, lost, most, least = (np.empty(len(self.count)) for _ in range(4))
        kernels.map_ranges(
            lambda first, last: kernels.native.lead(
                *(self.rank_in_b, self.only_in_b, self.start_a, self.start_b, weight),
                *(gained, lost, most, least, first, last),
            ),
            *(len(self.count), kernels.thread_count(len(self.rank_in_b) + len(self.only_in_b))),
        )
        return WeightGap(gained, lost, most, least)

    def ndcg_gap(self, weight: Float, known: Float, levels: Levels, total: Float) -> WeightGap:
        """The highest and lowest (known + Σ gain · (weight in a − weight in b))/IDCG.

        Over all grades of the unjudged documents. `weight` is that of each rank, `known` (Q,) the
        gap of the judged documents, `total` W of gains.py.
        """
        high, low = np.empty(len(known)), np.empty(len(known))
        kernels.map_ranges(
            lambda first, last: kernels.native.gains(
                *(self.rank_in_b, self.only_in_b, self.start_a, self.start_b, weight, known),
                *(levels.judged, levels.step, total, high, low, first, last),
            ),
            *(len(known), kernels.thread_count(len(self.rank_in_b) + len(self.only_in_b))),
        )
        return WeightGap(known, known, high, low)


def _unjudged_counts(run: MatchedRun, depth: int | None) -> Int:
    """(Q,) unjudged documents of a run within a depth."""
    groups = run.judged_within(depth)
    return run.top_span(depth).count - np.bincount(groups.doc_query, minlength=groups.queries)


def partly_judged(
    run: MatchedRun, documents: UnjudgedSet, cutoff: int | None, top_grade: int
) -> PartlyJudged:
    """A run's tie groups with those unjudged documents that it lists; the others are unlisted.

    If only candidates are relevant, documents that it lists further down are not counted at all.
    """
    is_own = cutoff == documents.depth and run in documents.runs
    if is_own:  # whatever others list, these are its own
        span = run.top_span(cutoff)
        groups, ties = run.judged_within(cutoff), span.ties
    else:
        row = run.rows_of(documents)
        groups = run.groups_with_unjudged(documents.query[row >= 0], row[row >= 0])
        groups = groups if cutoff is None else groups.chosen(groups.first <= cutoff)
        ties = np.zeros(run.queries, np.bool_)
        ties[groups.query[groups.size > 1]] = True
    partly = PartlyJudged(
        groups=groups,
        span=span.count if is_own else groups.listed,
        is_implicit=is_own,
        ties=ties,
        reported=run.reported,
        unlisted=documents.count,
        top=top_grade,
        skips_undefined=run.policy.undefined == "skip",
        sampled=run.matching.sampled is not None,
        top_documents=lambda: run.top_documents(cutoff),
        cache=span.cache if is_own else {},
    )
    relevant = documents.count
    if run.policy.candidates_only:
        listed = run.rows_of(documents) >= 0
        relevant = np.bincount(documents.query[listed], minlength=run.queries)
    return replace(partly, unlisted=relevant - partly.unjudged_in_query)


def _identify(runs: Sequence[MatchedRun], depth: int | None) -> _Documents:
    """Identify the unjudged documents: those of the first run, then what each other run adds."""
    queries = runs[0].queries
    added: list[tuple[MatchedRun, Int, Int]] = []  # run, query and row of those no run before has
    places: dict[MatchedRun, list[Int]] = {}
    for run in runs:
        top = run.top_documents(depth)
        earlier = [run.places(other, query, row, depth) for other, query, row in added]
        is_new = np.zeros(len(top.row) + 1, np.bool_)  # the last is for −1
        is_new[top.unjudged] = True
        for place in earlier:
            is_new[place] = False
        own = np.flatnonzero(is_new[:-1])
        for columns in places.values():  # earlier runs do not have these within the depth
            columns.append(np.full(len(own), -1))
        places[run] = [*earlier, own]
        added.append((run, top.groups.doc_query[own], top.row[own]))
    counts = np.stack([np.bincount(query, minlength=queries) for _, query, _ in added])
    count = counts.sum(axis=0)
    ahead = np.cumsum(counts, axis=0) - counts + np.cumsum(count) - count  # run by run
    targets = [
        np.arange(len(query)) + (before - np.cumsum(own) + own)[query]
        for (_, query, _), own, before in zip(added, counts, ahead, strict=True)
    ]

    def by_query(columns: list[Int]) -> Int:
        column = np.empty(sum(map(len, columns)), np.int64)
        for target, values in zip(targets, columns, strict=True):
            column[target] = values
        return column

    def ids() -> pl.Series:
        docs = pl.concat([run.run.doc.gather(row) for run, _, row in added], rechunk=True)
        return docs.gather(np.argsort(np.concatenate(targets)))

    place_of = {run: by_query(columns) for run, columns in places.items()}
    rows = {}
    if depth is None or len(runs) == 1:  # the top documents are all there are to look up
        rows = {
            run: np.append(run.top_documents(depth).row, -1)[at] for run, at in place_of.items()
        }
    return _Documents(count, ids, place_of, rows)
