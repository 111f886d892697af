"""Evaluate a run a few whole queries at a time, and merge the parts.

A query's values depend on its own rows and on its judgments alone, so parts that hold whole
queries give the values of the whole run. Means are correctly rounded sums, which do not depend on
how the queries were divided.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import polars as pl

from rankproof.data.tables import Qrels, Run, Sampled, build_run
from rankproof.data.ties import Pool, TieGroups, joined
from rankproof.evaluation import Evaluation, Policy, evaluate_some, sampling_notes
from rankproof.evaluation.checks import (
    bound_notes,
    input_notes,
    merge_profiles,
    no_common_query,
    pair_warnings,
    score_warnings,
)
from rankproof.evaluation.id_profile import merge_id_profiles
from rankproof.evaluation.streaming.rows import Rows
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Bool, Int
from rankproof.foundation.errors import InputError, shorten
from rankproof.measures import Measure, Outcomes

EXAMPLE_COUNT = 4  # ids, one more than a message shows
Pair: TypeAlias = tuple[str, str]  # a query and a document


class RepeatedPair(Exception):
    """A query lists a document twice."""

    def __init__(self, pair: Pair):
        self.pair = pair
        super().__init__(pair)


@dataclass(frozen=True, slots=True)
class PartwiseEvaluation:
    """What a run is evaluated on, whichever part of it is read."""

    qrels: Qrels
    measures: Sequence[Measure]
    policy: Policy
    name: str

    def evaluate(self, rows: Rows) -> Evaluation:
        """Return the values of every judged query in rows that hold all of their queries."""
        run = build_partial_run(rows, self.name)
        return self._evaluate(run, self.qrels.queries.is_in(run.queries.implode()).to_numpy())

    def _evaluate(self, run: Run, queries: Bool) -> Evaluation:
        return evaluate_some(run, select_queries(self.qrels, queries), self.measures, self.policy)

    def merge(
        self,
        parts: Iterable[Evaluation],
        dtype: str,
        first: pl.Series,
        *,
        notes: Iterable[str],
    ) -> Evaluation:
        """Return the evaluation of the whole run, its queries in the order of the judgments.

        `first` has the first queries of the run, for the error that none is judged; `notes` are
        those of reading it.
        """
        qrels, name = self.qrels, self.name
        parts = list(parts)
        numbers = [qrels.queries.search_sorted(part.queries).to_numpy() for part in parts]
        is_listed = np.zeros(len(qrels.queries), np.bool_)
        for number in numbers:
            if is_listed[number].any():
                raise AssertionError("a query was evaluated in two parts")
            is_listed[number] = True
        if not is_listed.any():
            raise no_common_query(name, first, qrels)
        missing = int((~is_listed).sum())
        if missing and self.policy.missing == "zero":
            parts.append(self._evaluate(build_partial_run(Rows.empty(), name), ~is_listed))
            numbers.append(np.flatnonzero(~is_listed))
        retrieved = sum(part.retrieved for part in parts)
        profile = merge_profiles(p.score_profile for p in parts if p.score_profile is not None)
        order = np.argsort(np.concatenate(numbers), kind="stable")
        queries = qrels.queries
        outcomes = {
            m: Outcomes.concatenate([part.outcomes[m] for part in parts]).select(order)
            for m in self.measures
        }
        if self.policy.missing == "skip":
            queries = queries.filter(pl.Series(is_listed))
        outcomes = {
            m: Outcomes.concatenate([part.outcomes[m] for part in parts]).select(order)
            for m in self.measures
        }
        return replace(
            parts[0],
            name=name,
            queries=queries,
            outcomes=outcomes,
            missing_queries=qrels.queries.filter(pl.Series(~is_listed)),
            unjudged_queries=pl.concat(part.unjudged_queries for part in parts).sort(),
            is_tied=np.concatenate([_tied(part) for part in parts])[order],
            policy=self.policy,
            dtype=self.policy.score_dtype or dtype,
            notes=(
                *input_notes(qrels, self.measures),
                *notes,
                *score_warnings(name, dtype, profile),
                *bound_notes(outcomes),
                *pair_warnings(profile, qrels),
                *sampling_notes(name, outcomes),
            ),
            ties=_merge_ties(parts, order),
            relevant=sum(part.relevant for part in parts),
            retrieved=retrieved,
            relevant_listed=_relevant_listed(parts, order),
            score_profile=profile,
            id_profile=merge_id_profiles(p.id_profile for p in parts if p.id_profile is not None),
            _summaries={},
        )


def _relevant_listed(parts: Sequence[Evaluation], order: Int) -> Int | None:
    """(Q, G) relevant documents listed, from those of the parts; None if a part did not count."""
    counts = [part.relevant_listed for part in parts]
    known = [count for count in counts if count is not None]
    return np.concatenate(known)[order] if len(known) == len(counts) else None


def _tied(part: Evaluation) -> Bool:
    """(Q,) whether each query of a part has a tie."""
    return np.zeros(len(part.queries), np.bool_) if part.is_tied is None else part.is_tied


def build_partial_run(rows: Rows, name: str) -> Run:
    """Return the rows of some queries as a run; raise RepeatedPair if a query lists one twice."""
    try:
        return build_run(name, rows.queries, rows.codes, rows.doc, rows.score, "float64")
    except kernels.RepeatedDocument as repeated:
        query = rows.queries[int(rows.codes[repeated.row])]
        raise RepeatedPair((query, rows.doc[repeated.row])) from None


def select_queries(qrels: Qrels, selected: Bool) -> Qrels:
    """Return the judgments of the queries whose flag (Q,) is set, on the scale of all."""
    sizes = np.diff(qrels.start)
    rows = np.repeat(selected, sizes)
    start = np.zeros(int(selected.sum()) + 1, np.int64)
    np.cumsum(sizes[selected], out=start[1:])
    grade, highest = qrels.grade[rows], int(qrels.grade.max(initial=0))
    aspect_row = None if qrels.aspect_row is None else qrels.aspect_row[rows]
    sampled = qrels.sampled
    if sampled is not None:
        number, kept = np.cumsum(selected) - 1, np.flatnonzero(selected[sampled.query])
        sampled = Sampled(number[sampled.query[kept]], sampled.doc.gather(kept).rechunk())
    return Qrels(
        qrels.name,
        qrels.queries.filter(pl.Series(selected)),
        start,
        qrels.doc.filter(pl.Series(rows)).rechunk(),
        grade,
        sampled,
        cache={"pool": Pool(start, highest, grade, qrels.aspects, aspect_row)},
        aspects=qrels.aspects,
        aspect_row=aspect_row,
    )


def _merge_ties(parts: Sequence[Evaluation], order: Int) -> TieGroups | None:
    """Return the tie groups that random orders are drawn of, from those of the parts.

    None if no order changes a score, or if a part did not keep its groups.
    """
    number = np.empty(len(order), np.int64)  # of each query, one part after the other
    number[order] = np.arange(len(order))
    numbers = np.split(number, np.cumsum([len(part.queries) for part in parts])[:-1])
    has_orders = [
        any((outcomes.max > outcomes.min).any() for outcomes in part.outcomes.values())
        for part in parts
    ]
    is_lost = [part.ties is None for part in parts]
    if not any(has_orders) or any(map(all, zip(has_orders, is_lost, strict=True))):
        return None
    pairs = zip(parts, numbers, strict=True)
    kept = [(part.ties, number) for part, number in pairs if part.ties is not None]
    return joined([ties for ties, _ in kept], [number for _, number in kept], len(order))


# --------------------------------------------------------------------------- parts by hash


def hash_parts(queries: pl.Series, parts: int) -> Int:
    """Return (n,) the part of each query id: CRC-32 of its UTF-8, the same on every machine."""
    hashes = (zlib.crc32(query.encode()) for query in queries)
    return np.fromiter(hashes, np.int64, len(queries)) % parts


def split_by_hash(rows: Rows, parts: int) -> list[pl.DataFrame]:
    """Return the rows of each part, in input order."""
    part = hash_parts(rows.queries, parts)[rows.codes]
    start, order = kernels.query_groups(part, parts)
    frame = rows.frame()
    by_part = frame if order is None else frame[pl.Series(order)]
    return [by_part.slice(int(low), int(high - low)) for low, high in pairwise(start)]


# ----------------------------------------------------------------- examples for error messages


def example_queries(queries: Sequence[pl.Series]) -> pl.Series:
    """Return the first few distinct queries."""
    return pl.concat(queries).unique(maintain_order=True).head(EXAMPLE_COUNT)


def repeated_pair_error(pair: Pair, place: str) -> InputError:
    """Return the error for a query that lists a document twice."""
    query, doc = pair
    return InputError(
        f"query {shorten(query)} lists document {shorten(doc)} a second time",
        place=place,
        remedy="keep one of the two",
    )
