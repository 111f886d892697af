"""What a golden set says, with what people corrected in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rankproof.errors import InputError
from rankproof.golden.store import Correction, Store, moved


@dataclass(frozen=True, slots=True)
class GoldenPassage:
    """A passage of a query's pool. Grades and ranks are the final ones; `judged` the judge's."""

    doc: str
    text: str
    source: str | None
    rrf: float
    grade: int | None  # None: the judge failed, and nobody corrected it
    judged: int | None
    failure: str | None
    rank: int | None  # None: it was not among those put in order
    judged_rank: int | None
    mean: float | None
    sd: float | None
    low: int | None  # 95% interval of the judge's rank
    high: int | None
    corrections: tuple[Correction, ...] = ()  # those that hold
    systems: tuple[str, ...] = ()  # whose lists brought it into the pool

    @property
    def validated(self) -> bool:
        """Whether a person graded it, be it as the judge did."""
        return any(c.field == "grade" for c in self.corrections)

    @property
    def corrected(self) -> bool:
        """Whether a person gave it another grade than the judge, or another place in the order."""
        moved = any(c.field == "rank" for c in self.corrections)
        regraded = self.validated and self.grade != self.judged
        return regraded or (moved and self.rank != self.judged_rank)


@dataclass(frozen=True, slots=True)
class GoldenQuery:
    """A query and its passages: those in order first, then the rest by grade and RRF."""

    query: str
    text: str
    asked: str
    passages: list[GoldenPassage]
    reason: str | None  # why its refinement ended
    calls: int
    failed: int  # of the calls
    overlap: float | None  # expected, of the top with the true top
    locks: list[list[Any]]  # above, below, certainty: pairs of which the order is sure


@dataclass(frozen=True, slots=True)
class Counts:
    """graded + failed + waiting = total."""

    total: int
    graded: int
    failed: int
    validated: int  # by people: graded, be it as the judge did
    corrected: int  # by people: another grade, or another place in the order
    orders: int  # calls for an order
    orders_failed: int

    @property
    def waiting(self) -> int:
        return self.total - self.graded - self.failed

    @property
    def failed_share(self) -> float:
        return self.failed / self.total if self.total else 0.0

    @property
    def orders_failed_share(self) -> float:
        return self.orders_failed / self.orders if self.orders else 0.0


@dataclass(frozen=True, slots=True)
class Golden:
    """A golden set as it is exported."""

    queries: list[GoldenQuery]
    judge: dict[str, Any]
    config: dict[str, Any]
    inputs: dict[str, Any]
    counts: Counts
    cost: float | None
    corrections: list[Correction]  # all of them, those undone included

    @property
    def simulated(self) -> bool:
        return bool(self.judge.get("simulated"))


def read_golden(store: Store) -> Golden:
    """Everything, corrections applied."""
    judge = store.meta("judge")
    if judge is None or "grade" not in store.meta("done", {}):
        raise InputError(
            "nothing is graded yet",
            place=str(store.path),
            remedy="run `rankproof golden build` to its end",
        )
    queries = read_queries(store)
    ((cost, unpriced),) = store.rows("SELECT SUM(cost), SUM(cost IS NULL) FROM replies")
    return Golden(
        queries,
        judge,
        store.meta("config"),
        store.meta("inputs"),
        count(queries),
        None if unpriced else float(cost or 0.0),
        store.corrections(),
    )


def count(queries: Sequence[GoldenQuery]) -> Counts:
    """How many passages are what, and how many calls failed."""
    every = [passage for query in queries for passage in query.passages]
    return Counts(
        total=len(every),
        graded=sum(p.grade is not None for p in every),
        failed=sum(p.grade is None and p.failure is not None for p in every),
        validated=sum(p.validated for p in every),
        corrected=sum(p.corrected for p in every),
        orders=sum(query.calls for query in queries),
        orders_failed=sum(query.failed for query in queries),
    )


def read_queries(store: Store, only: str | None = None) -> list[GoldenQuery]:
    """Every query, or one, with its passages; corrections applied."""
    one, given = ("TRUE", ()) if only is None else ("query = ?", (only,))
    rows = store.rows(
        "SELECT pool.query, doc, text, source, rrf, grade, failure, rank, mean, sd, low, high "
        "FROM pool JOIN passages USING (doc) LEFT JOIN grades USING (query, doc) "
        "LEFT JOIN ranking USING (query, doc) "
        f"WHERE {one} ORDER BY pool.query, pool.position",
        given,
    )
    systems: dict[tuple[str, str], dict[str, None]] = {}
    for query, name, doc in store.rows(
        f"SELECT query, list, doc FROM retrieved JOIN pool USING (query, doc) WHERE {one} "
        "ORDER BY list",
        given,
    ):  # a list that changed is an older one of the same name
        systems.setdefault((query, doc), {})[name.split("~")[0]] = None
    passages: dict[str, dict[str, GoldenPassage]] = {}
    for query, doc, text, source, rrf, grade, failure, rank, mean, sd, low, high in rows:
        passages.setdefault(query, {})[doc] = GoldenPassage(
            *(doc, text, source, rrf, grade, grade, failure, rank, rank, mean, sd, low, high),
            systems=tuple(systems.get((query, doc), ())),
        )
    active: dict[str, list[Correction]] = {}
    for correction in store.active_corrections():
        active.setdefault(correction.query, []).append(correction)
    for query, corrections in active.items():
        if query in passages:
            _apply(passages[query], corrections)
    refined = {
        query: (reason, calls, failed, overlap, json.loads(locks))
        for query, reason, calls, failed, overlap, locks in store.rows(
            f"SELECT query, reason, calls, failed, overlap, locks FROM refined WHERE {one}", given
        )
    }
    return [
        GoldenQuery(
            *(query, text, asked or text, _ordered(passages.get(query, {}))),
            *refined.get(query, (None, 0, 0, None, [])),
        )
        for query, text, asked in store.rows(
            f"SELECT query, text, asked FROM queries WHERE {one} ORDER BY position", given
        )
    ]


def _apply(found: dict[str, GoldenPassage], corrections: Sequence[Correction]) -> None:
    """Grades are replaced, and passages moved in the order."""
    for correction in corrections:
        here = found.get(correction.doc)
        if here is None:
            continue
        grade = correction.new if correction.field == "grade" else here.grade
        found[here.doc] = replace(here, grade=grade, corrections=(*here.corrections, correction))
    ranked = sorted((p for p in found.values() if p.rank is not None), key=_rank)
    for rank, doc in enumerate(moved([p.doc for p in ranked], corrections), 1):
        found[doc] = replace(found[doc], rank=rank)


def _rank(passage: GoldenPassage) -> int:
    return passage.rank or 0


def _ordered(found: dict[str, GoldenPassage]) -> list[GoldenPassage]:
    return sorted(
        found.values(),
        key=lambda p: (p.rank is None, p.rank or 0, -(p.grade or 0), -p.rrf, p.doc),
    )
