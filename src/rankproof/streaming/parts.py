"""Whole queries → figures, and the figures of all parts as one Evaluation."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl

from rankproof import kernels
from rankproof.arrays import Bool, Int
from rankproof.errors import InputError, shorten
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
from rankproof.measures.registry import Measure, Outcomes
from rankproof.records.columns import encode
from rankproof.tables import Qrels, Run, Sampled, build_run
from rankproof.ties import Pool, TieGroups, joined


class RepeatedPair(Exception):
    """A query lists a document twice."""

    def __init__(self, query: str, doc: str):
        self.query = query
        self.doc = doc
        super().__init__(query, doc)  # so that it can be pickled


def part_of(queries: pl.Series, parts: int) -> Int:
    """(n,) which of `parts` each query id belongs to: CRC-32 of its UTF-8, the same everywhere."""
    hashes = (zlib.crc32(query.encode()) for query in queries)
    return np.fromiter(hashes, np.int64, len(queries)) % parts


def split(rows: pl.DataFrame, parts: int) -> list[pl.DataFrame]:
    """Rows of a chunk by the part of their query, each in the order given."""
    queries, codes = encode(rows["query"])
    owner = part_of(queries, parts)[codes]
    start, order = kernels.group(owner, parts)
    moved = rows if order is None else rows[pl.Series(order)]
    return [moved.slice(int(a), int(b - a)) for a, b in pairwise(start)]


def evaluate_part(
    rows: pl.DataFrame,
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


def part_as_run(rows: pl.DataFrame, name: str, dtype: str) -> Run:
    """Some queries of a run as a run of their own."""
    queries, codes = encode(rows["query"])
    try:
        return build_run(name, queries, codes, rows["doc"], rows["score"].to_numpy(), dtype)
    except kernels.Repeated as repeated:
        again = rows.row(repeated.row)
        raise RepeatedPair(again[0], again[1]) from None


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
    strange: Callable[[], pl.Series | None],
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
        nothing = pl.DataFrame(schema={"query": pl.String, "doc": pl.String, "score": pl.Float64})
        queries, codes = encode(nothing["query"])
        empty = build_run(name, queries, codes, nothing["doc"], nothing["score"].to_numpy(), dtype)
        found.append(evaluate_some(empty, some_of(qrels, ~listed), measures, policy))
        at.append(np.flatnonzero(~listed))
    retrieved = sum(part.retrieved for part in found)
    seen = seen_together(part.seen for part in found if part.seen is not None)
    odd = odd_pair(name, seen, qrels, None if retrieved else strange())
    order = np.argsort(np.concatenate(at), kind="stable")
    kept = qrels.queries if policy.missing == "zero" else qrels.queries.filter(pl.Series(listed))
    return replace(
        found[0],
        name=name,
        queries=kept,
        outcomes={
            m: Outcomes.together([part.outcomes[m] for part in found]).taken(order)
            for m in measures
        },
        missing=missing,
        unjudged=sum(part.unjudged for part in found),
        tied=sum(part.tied for part in found),
        policy=policy,
        dtype=policy.score_dtype or dtype,
        notes=(*notes_on(qrels, measures), *notes, *odd_scores(name, dtype, seen), *odd),
        ties=_ties(found, order),
        relevant=int((qrels.grade >= 1).sum()),
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


def strange(docs: Iterable[pl.Series], qrels: Qrels) -> pl.Series | None:
    """The first documents of a run, of which none is judged; None where one is."""
    first = pl.Series("doc", [], pl.String)
    for some in docs:
        if some.is_in(qrels.doc.implode()).any():
            return None
        first = pl.concat([first, some.head(4 - len(first))])
    return first


def check_grades(qrels: Qrels, measures: Sequence[Measure]) -> None:
    for measure in measures:
        check_scale(measure, qrels.grade, qrels.place)


def repeated(pair: RepeatedPair, place: str) -> InputError:
    return InputError(
        f"query {shorten(pair.query)} lists document {shorten(pair.doc)} a second time",
        place=place,
        remedy="keep one of the two",
    )
