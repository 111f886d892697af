"""What a golden set says, with what people corrected in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError
from rankproof.golden.annotators import JUDGE, Held, Key, claims, held
from rankproof.golden.constrained import acyclic, constrain
from rankproof.golden.judgments import Correction
from rankproof.golden.plackett_luce import Posterior
from rankproof.golden.pruning import prune
from rankproof.golden.refinement import RefineSettings, reduced
from rankproof.golden.settings import PruningSettings
from rankproof.golden.store import Store

LOCK = 0.95  # certainty of a pair from which it is said to be locked


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
    low: int | None  # 95% interval of the rank, given what people said
    high: int | None
    top: float | None = None  # P(it is truly in the top)
    corrections: tuple[Correction, ...] = ()  # those that hold
    systems: tuple[str, ...] = ()  # whose lists brought it into the pool
    validated: bool = False  # a person graded it, be it as the judge did
    votes: Mapping[str, int] = field(default_factory=dict)  # of a panel, each judge's grade

    @property
    def people(self) -> int | None:
        """The grade of people alone, to be held beside the judge's; None if nobody graded it."""
        return next((each.grade for each in held(self.corrections).values()), None)

    @property
    def corrected(self) -> bool:
        """Whether a person gave it another grade than the judge, or a place in the order."""
        moved = any(c.field == "rank" for c in self.corrections)
        return moved or (self.validated and self.grade != self.judged)


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

    def judged(self) -> dict[str, dict[Key, int | None]]:
        """The judge's own grades; of a panel, also those of each who is in it."""
        every = [(q.query, p) for q in self.queries for p in q.passages]
        found = {JUDGE: {(query, p.doc): p.judged for query, p in every}}
        for name in (each["name"] for each in self.judge.get("members", [])):
            found[name] = {(query, p.doc): p.votes.get(name) for query, p in every}
        return found


def read_golden(store: Store) -> Golden:
    """Everything, corrections applied.

    >>> from rankproof.golden.result import read_golden
    >>> from rankproof.golden.store import Store
    >>> with Store("try/corpus/simulated.golden") as store:
    ...     golden = read_golden(store)
    >>> golden.simulated, golden.counts.failed
    (True, 0)
    """
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


def read_queries(
    store: Store, only: str | None = None, who: str | None = None, order: bool = True
) -> list[GoldenQuery]:
    """Every query, or one, with its passages; what people said applied, or what one of them said.

    `order=False` leaves the order as the judge has it, which saves drawing from the posterior.
    """
    one, given = ("TRUE", ()) if only is None else ("query = ?", (only,))
    rows = store.rows(
        "SELECT pool.query, doc, text, source, rrf, grade, failure, rank, mean, sd, low, high, top "
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
    votes = _votes(store)
    passages: dict[str, dict[str, GoldenPassage]] = {}
    for query, doc, text, source, rrf, grade, failure, rank, mean, sd, low, high, top in rows:
        passages.setdefault(query, {})[doc] = GoldenPassage(
            *(doc, text, source, rrf, grade, grade, failure, rank, rank, mean, sd, low, high, top),
            systems=tuple(systems.get((query, doc), ())),
            votes=votes.get((query, doc), {}),
        )
    refined = {
        query: (reason, calls, failed, overlap, json.loads(locks))
        for query, reason, calls, failed, overlap, locks in store.rows(
            f"SELECT query, reason, calls, failed, overlap, locks FROM refined WHERE {one}", given
        )
    }
    said: dict[str, list[Correction]] = {}
    for correction in store.active_corrections(only):
        if correction.query in passages and who in (None, correction.who):
            said.setdefault(correction.query, []).append(correction)
    for query, corrections in said.items():
        people = _grade(query, passages[query], corrections)
        if order and query in refined:
            again = _order(store, query, passages[query], corrections, people)
            if again is not None:
                reason, calls, failed, *_ = refined[query]
                refined[query] = (reason, calls, failed, *again)
    return [
        GoldenQuery(
            *(query, text, asked or text, _ordered(passages.get(query, {}))),
            *refined.get(query, (None, 0, 0, None, [])),
        )
        for query, text, asked in store.rows(
            f"SELECT query, text, asked FROM queries WHERE {one} ORDER BY position", given
        )
    ]


def _votes(store: Store) -> dict[tuple[str, str], dict[str, int]]:
    """What each judge of a panel graded; nothing where one judges alone."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for each in (store.meta("judge") or {}).get("members", []):
        for query, doc, grade in store.rows(
            "SELECT pairs.query, pairs.doc, grade FROM pairs JOIN answers USING (pair) "
            "WHERE judge = ? AND grade NOT NULL",
            (each["numbers"]["grade"],),
        ):
            found.setdefault((query, doc), {})[each["name"]] = grade
    return found


def _grade(
    query: str, found: dict[str, GoldenPassage], corrections: Sequence[Correction]
) -> dict[str, Held]:
    """Give passages the grades that people gave them; these."""
    judged = {(query, doc): p.judged for doc, p in found.items()}
    people = {doc: each for (_, doc), each in held(corrections, judged).items() if doc in found}
    for correction in corrections:
        if (here := found.get(correction.doc)) is not None:
            kept = (*here.corrections, correction)
            found[here.doc] = replace(here, corrections=kept)
    for doc, each in people.items():
        found[doc] = replace(found[doc], grade=each.grade, validated=True)
    return people


def _order(
    store: Store,
    query: str,
    found: dict[str, GoldenPassage],
    corrections: Sequence[Correction],
    people: dict[str, Held],
) -> tuple[float, list[list[Any]]] | None:
    """Put the passages in the order that the judge and people leave; its overlap and locks.

    What pruning would keep by the grades of people comes in, though the judge never ordered it:
    its utility is taken to lie with those of the same grade, as widely as all of them do.
    """
    config = store.meta("config")
    ranked = sorted((p for p in found.values() if p.rank is not None), key=lambda p: p.rank or 0)
    pool = sorted(found.values(), key=lambda p: (-p.rrf, p.doc))
    kept = prune([p.grade for p in pool], PruningSettings(**config["pruning"]))
    more = [pool[at] for at in sorted(kept) if pool[at].rank is None and pool[at].doc in people]
    docs = [p.doc for p in (*ranked, *more)]
    grades = {p.doc: p.grade for p in found.values()}
    above = acyclic(claims(docs, corrections, grades, people), len(docs))
    if not (more or above.any()):
        return None
    mean = np.array([p.mean or 0.0 for p in ranked])
    spread = float(np.std(mean)) if len(mean) > 1 else 0.0
    wide = spread or 1.0
    level = np.array([float(p.judged or 0) for p in ranked])
    for p in more:
        near = np.abs(level - (p.grade or 0))
        mean = np.append(mean, mean[: len(level)][near == near.min()].mean() if len(level) else 0.0)
    covariance = np.diag(np.full(len(docs), wide * wide))
    covariance[: len(ranked), : len(ranked)] = _covariance(store, query, ranked)
    size = int(config["ranking"]["depth"] or config["pruning"]["target"])
    depth = RefineSettings(depth=size).depth_of(len(docs))
    result = constrain(mean, covariance, above, depth, int(config["seed"]))
    for rank, item in enumerate(result.order.tolist(), 1):
        figures = (result.mean, result.sd, result.low, result.high, result.top)
        names = ("mean", "sd", "low", "high", "top")
        told = {name: x[item].item() for name, x in zip(names, figures, strict=True)}
        found[docs[item]] = replace(found[docs[item]], rank=rank, **told)
    locks = [
        [docs[i], docs[j], round(float(result.certainty[i, j]), 6)]
        for i, j in np.argwhere(reduced(result.locks(LOCK))).tolist()
    ]
    return result.overlap, locks


def _covariance(store: Store, query: str, ranked: Sequence[GoldenPassage]) -> Float:
    """Of the judge's posterior; of a store that does not hold it, by the deviations alone."""
    known = store.rows("SELECT documents, covariance FROM posteriors WHERE query = ?", (query,))
    alone = np.diag([(p.sd or 1.0) ** 2 for p in ranked])
    if not known:
        return alone
    names = json.loads(known[0][0])
    place = {doc: at for at, doc in enumerate(names)}
    if any(p.doc not in place for p in ranked):
        return alone
    whole = _unpacked(len(names), known[0][1])
    at = np.array([place[p.doc] for p in ranked])
    return np.asarray(whole[np.ix_(at, at)])


def read_posteriors(store: Store) -> Iterator[tuple[str, list[str], Posterior]]:
    """Each query that was put in order: its passages, and what the judge's orders say of them; of a
    store that does not hold their covariance, by the deviations alone."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for query, doc, mean, sd in store.rows("SELECT query, doc, mean, sd FROM ranking"):
        found.setdefault(query, {})[doc] = mean, sd
    kept = {query: row for query, *row in store.rows("SELECT * FROM posteriors")}
    for query, known in found.items():
        docs, covariance = list(known), np.diag([sd * sd for _, sd in known.values()])
        if query in kept:
            docs = json.loads(kept[query][0])
            covariance = _unpacked(len(docs), kept[query][1])
        yield query, docs, Posterior(np.array([known[doc][0] for doc in docs]), covariance)


def _unpacked(size: int, packed: bytes) -> Float:
    whole = np.zeros((size, size))
    whole[np.triu_indices(size)] = np.frombuffer(packed)
    return whole + np.triu(whole, 1).T


def posterior_row(query: str, docs: Sequence[str], covariance: Float) -> tuple[Any, ...]:
    """A row of `posteriors`."""
    packed = np.ascontiguousarray(covariance[np.triu_indices(len(docs))])
    return query, json.dumps(list(docs), ensure_ascii=False), packed.tobytes()


def _ordered(found: dict[str, GoldenPassage]) -> list[GoldenPassage]:
    return sorted(
        found.values(), key=lambda p: (p.rank is None, p.rank or 0, -(p.grade or 0), -p.rrf, p.doc)
    )
