"""Whole queries → figures, and the figures of all parts as one Evaluation."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import polars as pl

from rankproof.data.tables import Qrels, Run, Sampled, build_run
from rankproof.data.ties import Pool, TieGroups, joined
from rankproof.evaluation import (
    Evaluation,
    Policy,
    check_scale,
    evaluate_some,
    notes_on,
    odd_pair,
    odd_scores,
    seen_together,
    strangers,
)
from rankproof.evaluation.streaming.rows import Rows
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Bool, Int
from rankproof.foundation.errors import InputError, shorten
from rankproof.measures import Measure, Outcomes

FEW = 4  # ids, one more than a message shows
Pair: TypeAlias = tuple[str, str]  # a query and a document


class RepeatedPair(Exception):
    """A query lists a document twice."""

    def __init__(self, pair: Pair):
        self.pair = pair
        super().__init__(pair)


def part_of(queries: pl.Series, parts: int) -> Int:
    """(n,) which of `parts` each query id belongs to: CRC-32 of its UTF-8, the same everywhere."""
    hashes = (zlib.crc32(query.encode()) for query in queries)
    return np.fromiter(hashes, np.int64, len(queries)) % parts


def split(rows: Rows, parts: int) -> list[pl.DataFrame]:
    """Rows of a chunk by the part of their query, each in the order given."""
    owner = part_of(rows.queries, parts)[rows.codes]
    start, order = kernels.query_groups(owner, parts)
    frame = rows.frame()
    moved = frame if order is None else frame[pl.Series(order)]
    return [moved.slice(int(a), int(b - a)) for a, b in pairwise(start)]


def evaluate_part(
    rows: Rows,
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    name: str,
    dtype: str,
) -> Evaluation:
    """The figures of every judged query in `rows`, which hold all documents of their queries."""
    run = part_as_run(rows, name, dtype)
    listed = qrels.queries.is_in(run.queries.implode())
    return evaluate_some(run, some_of(qrels, listed.to_numpy()), measures, policy)


def part_as_run(rows: Rows, name: str, dtype: str) -> Run:
    """Some queries of a run as a run of their own."""
    try:
        return build_run(name, rows.queries, rows.codes, rows.doc, rows.score, dtype)
    except kernels.RepeatedDocument as again:
        query = rows.queries[int(rows.codes[again.row])]
        raise RepeatedPair((query, rows.doc[again.row])) from None


def some_of(qrels: Qrels, chosen: Bool) -> Qrels:
    """The judgements of some queries; grades keep their scale, which is that of all."""
    sizes = np.diff(qrels.start)
    rows = np.repeat(chosen, sizes)
    start = np.zeros(int(chosen.sum()) + 1, np.int64)
    np.cumsum(sizes[chosen], out=start[1:])
    grade = qrels.grade[rows]
    pool = Pool(start, int(qrels.grade.max(initial=0)), grade)
    sampled = qrels.sampled
    if sampled is not None:
        place, some = np.cumsum(chosen) - 1, np.flatnonzero(chosen[sampled.query])
        sampled = Sampled(place[sampled.query[some]], sampled.doc.gather(some).rechunk())
    return Qrels(
        qrels.name,
        qrels.queries.filter(pl.Series(chosen)),
        start,
        qrels.doc.filter(pl.Series(rows)).rechunk(),
        grade,
        sampled,
        cache={"pool": pool},
    )


def merge(
    parts: Iterable[Evaluation],
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    name: str,
    dtype: str,
    first: pl.Series,
    *,
    notes: Iterable[str],
    strange: Callable[[], pl.DataFrame | None],
) -> Evaluation:
    """All parts as the evaluation of the whole run, queries in the order of the judgements.

    `first` are the first queries of the run, for the message that it shares none with them; `notes`
    are of those who read it. `strange`, which reads the run once more, is asked only where no
    relevant document was found.
    """
    found = list(parts)
    at = [qrels.queries.search_sorted(part.queries).to_numpy() for part in found]
    listed = np.zeros(len(qrels.queries), np.bool_)
    for places in at:
        if listed[places].any():  # two parts held one query: nothing may be counted twice
            raise AssertionError("a query was evaluated in two parts")
        listed[places] = True
    if not listed.any():
        raise strangers(name, first, qrels)
    missing = int((~listed).sum())
    if missing and policy.missing == "zero":
        empty = part_as_run(Rows.none(), name, dtype)
        found.append(evaluate_some(empty, some_of(qrels, ~listed), measures, policy))
        at.append(np.flatnonzero(~listed))
    retrieved = sum(part.retrieved for part in found)
    seen = seen_together(part.seen for part in found if part.seen is not None)
    unknown = None if retrieved else strange()
    odd = odd_pair(name, seen, qrels, None if unknown is None else unknown["doc"].head(FEW))
    order = np.argsort(np.concatenate(at), kind="stable")
    kept = qrels.queries if policy.missing == "zero" else qrels.queries.filter(pl.Series(listed))
    return replace(
        found[0],
        name=name,
        queries=kept,
        outcomes={
            m: Outcomes.concatenate([part.outcomes[m] for part in found]).select(order)
            for m in measures
        },
        missing=missing,
        unjudged=sum(part.unjudged for part in found),
        tied=sum(part.tied for part in found),
        policy=policy,
        dtype=policy.score_dtype or dtype,
        notes=(*notes_on(qrels, measures), *notes, *odd_scores(name, dtype, seen), *odd),
        ties=_ties(found, order),
        relevant=sum(part.relevant for part in found),
        retrieved=retrieved,
        seen=seen,
        _summaries={},
    )


def _ties(found: Sequence[Evaluation], order: Int) -> TieGroups | None:
    """What the parts kept to draw orders of; None where one has ties and kept nothing."""
    ends = np.cumsum([len(part.queries) for part in found])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))  # of each query, parts one after the other
    at = np.split(place, ends[:-1])
    kept = [(part.ties, where) for part, where in zip(found, at, strict=True)]
    open_ = [
        any((outcome.max > outcome.min).any() for outcome in part.outcomes.values())
        for part in found
    ]
    if not any(open_) or any(o and ties is None for o, (ties, _) in zip(open_, kept, strict=True)):
        return None
    known = [(ties, where) for ties, where in kept if ties is not None]
    return joined([ties for ties, _ in known], [where for _, where in known], len(order))


def strange(rows: Iterable[Rows], qrels: Qrels) -> pl.DataFrame | None:
    """Rows that a run, of whose documents none is judged, begins with where it is read whole: a
    query's stand together then. None where one is judged.
    """
    first = pl.DataFrame(schema={"query": pl.String, "doc": pl.String})
    for some in rows:
        if some.doc.is_in(qrels.doc.implode()).any():
            return None
        if first.height < FEW or first["query"].head(FEW).n_unique() > 1:
            first = first_of_each(pl.concat([first, some.frame().select("query", "doc")]))
    return first


def first_of_each(rows: pl.DataFrame) -> pl.DataFrame:
    """A few rows of each of the first queries, those of each together."""
    queries = first_queries([rows["query"]])
    some = rows.filter(pl.col("query").is_in(queries.implode()))
    return some.group_by("query", maintain_order=True).head(FEW)


def first_queries(queries: Sequence[pl.Series]) -> pl.Series:
    """The first few of these, for a message."""
    return pl.concat(queries).unique(maintain_order=True).head(FEW)


def check_grades(qrels: Qrels, measures: Sequence[Measure]) -> None:
    for measure in measures:
        check_scale(measure, qrels.grade, qrels.place)


def repeated(pair: Pair, place: str) -> InputError:
    query, doc = pair
    return InputError(
        f"query {shorten(query)} lists document {shorten(doc)} a second time",
        place=place,
        remedy="keep one of the two",
    )
