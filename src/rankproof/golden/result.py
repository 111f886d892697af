"""What a golden set says, with what people corrected in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rankproof.errors import InputError
from rankproof.golden.store import Correction, Store


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
    corrections: tuple[Correction, ...] = ()


@dataclass(frozen=True, slots=True)
class GoldenQuery:
    """A query and its passages: those in order first, then the rest by grade and RRF."""

    query: str
    text: str
    asked: str
    passages: list[GoldenPassage]
    reason: str | None  # why its refinement ended
    calls: int
    overlap: float | None  # expected, of the top with the true top


@dataclass(frozen=True, slots=True)
class Counts:
    """graded + failed + waiting = total."""

    total: int
    graded: int
    failed: int
    corrected: int

    @property
    def waiting(self) -> int:
        return self.total - self.graded - self.failed

    @property
    def failed_share(self) -> float:
        return self.failed / self.total if self.total else 0.0


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
    every = [passage for query in queries for passage in query.passages]
    counts = Counts(
        total=len(every),
        graded=sum(p.grade is not None for p in every),
        failed=sum(p.grade is None and p.failure is not None for p in every),
        corrected=sum(bool(p.corrections) for p in every),
    )
    ((cost, unpriced),) = store.rows("SELECT SUM(cost), SUM(cost IS NULL) FROM replies")
    return Golden(
        queries,
        judge,
        store.meta("config"),
        store.meta("inputs"),
        counts,
        None if unpriced else float(cost or 0.0),
        store.corrections(),
    )


def read_queries(store: Store, only: str | None = None) -> list[GoldenQuery]:
    """Every query, or one, with its passages; corrections applied."""
    one, given = ("TRUE", ()) if only is None else ("query = ?", (only,))
    active = store.active_corrections()
    rows = store.rows(
        "SELECT pool.query, doc, text, source, rrf, grade, failure, rank, mean, sd, low, high "
        "FROM pool JOIN passages USING (doc) LEFT JOIN grades USING (query, doc) "
        "LEFT JOIN ranking USING (query, doc) "
        f"WHERE {one} ORDER BY pool.query, pool.position",
        given,
    )
    passages: dict[str, dict[str, GoldenPassage]] = {}
    for query, doc, text, source, rrf, grade, failure, rank, mean, sd, low, high in rows:
        passages.setdefault(query, {})[doc] = GoldenPassage(
            *(doc, text, source, rrf, grade, grade, failure, rank, rank, mean, sd, low, high)
        )
    for correction in active:
        found = passages.get(correction.query, {})
        if correction.doc in found:
            _apply(found, correction)
    refined = {
        query: (reason, calls, overlap)
        for query, reason, calls, overlap in store.rows(
            f"SELECT query, reason, calls, overlap FROM refined WHERE {one}", given
        )
    }
    return [
        GoldenQuery(
            *(query, text, asked or text, _ordered(passages.get(query, {}))),
            *refined.get(query, (None, 0, None)),
        )
        for query, text, asked in store.rows(
            f"SELECT query, text, asked FROM queries WHERE {one} ORDER BY position", given
        )
    ]


def _apply(found: dict[str, GoldenPassage], correction: Correction) -> None:
    """A grade is replaced; a rank moves the passage there, and those between make room."""
    here = found[correction.doc]
    here = replace(here, corrections=(*here.corrections, correction))
    found[correction.doc] = here
    if correction.field == "grade":
        found[correction.doc] = replace(here, grade=correction.new)
        return
    ranked = sorted((p for p in found.values() if p.rank is not None), key=_rank)
    if here.rank is None or correction.new is None:
        return
    ranked.insert(correction.new - 1, ranked.pop(here.rank - 1))
    for rank, passage in enumerate(ranked, 1):
        found[passage.doc] = replace(found[passage.doc], rank=rank)


def _rank(passage: GoldenPassage) -> int:
    return passage.rank or 0


def _ordered(found: dict[str, GoldenPassage]) -> list[GoldenPassage]:
    return sorted(
        found.values(),
        key=lambda p: (p.rank is None, p.rank or 0, -(p.grade or 0), -p.rrf, p.doc),
    )
