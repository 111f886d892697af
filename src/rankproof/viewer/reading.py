"""What the page is told: the questions with counts first, the passages of one when it is opened.

A passage is *validated* when a person graded it, be it as the judge did. It *differs* when the
person, or the judge asked again, gave another grade than the judge did at first. It is *unsure*
when its judgement failed, or when the order leaves open whether it belongs to the top:
0.05 < P(in the top) < 0.95.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from rankproof.errors import InputError, shorten
from rankproof.golden.requests import label
from rankproof.golden.result import read_queries
from rankproof.golden.store import Correction, Reply, Store
from rankproof.statistics.agreement import agreement

Key = tuple[str, str]  # query, document
State = Literal["unsure", "differs", "validated", "open"]
Found = Literal["dense", "bm25", "both"]

UNGRADED = 0  # among the grades of a filter
SURE = 0.95
SOURCES = 200  # more are no choice for a menu; the search finds them by name
_RESAMPLES = 1000  # of the live agreement, which is computed after every grade


@dataclass(frozen=True, slots=True)
class Filter:
    """Which passages are wanted; an empty one wants all."""

    words: tuple[str, ...] = ()  # each of them in the question, or each in the passage
    grades: frozenset[int] = frozenset()
    state: State | None = None
    found: Found | None = None  # by this list alone, or by both
    source: str | None = None

    @staticmethod
    def of(given: Mapping[str, str]) -> Filter:
        """From the page's words."""
        state, found = given.get("state") or None, given.get("found") or None
        grades = frozenset(int(digit) for digit in given.get("grades", "") if digit in "012345")
        for name, value, known in (
            ("state", state, get_args(State)),
            ("found", found, get_args(Found)),
        ):
            if value is not None and value not in known:
                raise InputError(
                    f"{name} {shorten(value)}", remedy=f"give one of {', '.join(known)}"
                )
        words = tuple(fold(given.get("text", "")).split())
        return Filter(words, grades, state, found, given.get("source") or None)  # type: ignore[arg-type]

    @property
    def empty(self) -> bool:
        return self == Filter()


class Passage(NamedTuple):  # of which there are many, made for every view of the list
    """What a filter and the counts go by."""

    query: str
    doc: str
    judged: int | None
    failure: str | None
    grade: int | None  # that holds: the person's, else the judge's
    validated: bool
    differs: bool
    unsure: bool


@dataclass(slots=True)
class Summary:
    """A question in the list."""

    query: str
    text: str
    passages: int = 0
    grades: list[int] = field(default_factory=lambda: [0] * 5)  # how many of grade 1, 2, …, 5
    failed: int = 0
    validated: int = 0
    differs: int = 0
    unsure: int = 0
    matches: int = 0

    def add(self, passage: Passage, matches: bool) -> None:
        self.passages += 1
        if passage.grade is not None:
            self.grades[passage.grade - 1] += 1
        self.failed += passage.grade is None and passage.failure is not None
        self.validated += passage.validated
        self.differs += passage.differs
        self.unsure += passage.unsure
        self.matches += matches


def fold(text: str) -> str:
    """As it is searched: case does not count, nor how an accent is encoded."""
    if text.isascii():
        return text.lower()  # the same, and ten times as fast
    return unicodedata.normalize("NFC", text).casefold()


def people(store: Store) -> dict[Key, Correction]:
    """The grade of a person that holds, of each passage that has one."""
    return {(c.query, c.doc): c for c in store.active_corrections() if c.field == "grade"}


def again(store: Store, query: str | None = None) -> dict[Key, list[int]]:
    """What the judge said when it was asked again, in the order of asking."""
    one, given = ("TRUE", ()) if query is None else ("query = ?", (query,))
    rows = store.rows(
        "SELECT query, result FROM replies "
        "WHERE repeat > 0 AND retired = 0 AND kind = 'grade' AND result NOT NULL "
        f"AND {one} ORDER BY id",
        given,
    )
    found: dict[Key, list[int]] = {}
    for asked, result in rows:
        for doc, grade in json.loads(result).items():
            found.setdefault((asked, doc), []).append(grade)
    return found


def passages(store: Store, query: str | None = None) -> Iterator[Passage]:
    """Of all pools, or one, without their texts."""
    held, repeated = people(store), again(store, query)
    one, given = ("TRUE", ()) if query is None else ("pool.query = ?", (query,))
    rows = store.rows(
        "SELECT pool.query, pool.doc, grade, failure, top FROM pool "
        "LEFT JOIN grades USING (query, doc) LEFT JOIN ranking USING (query, doc) "
        f"WHERE {one}",
        given,
    )
    for asked, doc, judged, failure, top in rows:
        person = held.get((asked, doc))
        grade = judged if person is None else person.new
        others = repeated.get((asked, doc), ())
        differs = judged is not None and (grade != judged or any(o != judged for o in others))
        unsure = (grade is None and failure is not None) or (
            top is not None and 1 - SURE < top < SURE
        )
        yield Passage(asked, doc, judged, failure, grade, person is not None, differs, unsure)


def matching(store: Store, wanted: Filter, query: str | None = None) -> set[Key] | None:
    """The passages that a filter finds by their texts, sources and lists; None: by none of these.

    What it finds by grade and state `fits` sees.
    """
    if not (wanted.words or wanted.source or wanted.found):
        return None
    one, given = ("TRUE", ()) if query is None else ("pool.query = ?", (query,))
    parts, values = [one], list(given)
    if wanted.source:
        parts.append("source = ?")
        values.append(wanted.source)
    if wanted.found:
        listed = (
            "EXISTS (SELECT 1 FROM retrieved AS r "
            "WHERE r.query = pool.query AND r.list = '{}' AND r.doc = pool.doc)"
        )
        for name in ("dense", "bm25"):
            needed = "" if wanted.found in (name, "both") else "NOT "
            parts.append(needed + listed.format(name))
    join = "JOIN passages USING (doc) " if wanted.source else ""
    found: set[Key] = set(
        store.rows(
            f"SELECT pool.query, pool.doc FROM pool {join}WHERE {' AND '.join(parts)}", values
        )
    )
    if not wanted.words:
        return found
    docs = {doc for _, doc in found} if query is not None else None
    hits = {
        doc
        for doc, text, source in store.rows(
            "SELECT doc, text, source FROM passages"
            if docs is None
            else "SELECT doc, text, source FROM json_each(?) JOIN passages ON doc = value",
            () if docs is None else (json.dumps(sorted(docs)),),
        )
        if _all_in(wanted.words, f"{text} {doc} {source or ''}")
    }
    questions = {
        asked
        for asked, text in store.rows("SELECT query, text FROM queries")
        if _all_in(wanted.words, f"{text} {asked}")
    }
    return {key for key in found if key[1] in hits or key[0] in questions}


def fits(passage: Passage, wanted: Filter) -> bool:
    """Whether a filter wants it, by grade and state."""
    if wanted.grades and (passage.grade or UNGRADED) not in wanted.grades:
        return False
    if wanted.state is None:
        return True
    if wanted.state == "open":
        return not passage.validated
    return bool(getattr(passage, wanted.state))


def summaries(store: Store, wanted: Filter, query: str | None = None) -> list[dict[str, Any]]:
    """Every question that has a passage which is wanted, or one; in the set's order."""
    one, given = ("TRUE", ()) if query is None else ("query = ?", (query,))
    found = {
        asked: Summary(asked, text)
        for asked, text in store.rows(
            f"SELECT query, text FROM queries WHERE {one} ORDER BY position", given
        )
    }
    keys = matching(store, wanted, query)
    for passage in passages(store, query):
        matches = fits(passage, wanted) and (keys is None or (passage.query, passage.doc) in keys)
        found[passage.query].add(passage, matches)
    return [asdict(each) for each in found.values() if each.matches or wanted.empty or query]


def question(store: Store, query: str, wanted: Filter) -> dict[str, Any]:
    """A question with its passages in order: everything but the judge's replies."""
    read = read_queries(store, query)
    if not read:
        raise InputError(f"there is no question {shorten(query)}", place=str(store.path))
    found = read[0]
    held, repeated = people(store), again(store, query)
    marks = {each.doc: each for each in passages(store, query)}
    keys = matching(store, wanted, query)
    lists: dict[str, dict[str, int]] = {}
    for name, doc, rank in store.rows(
        "SELECT list, doc, rank FROM retrieved WHERE query = ? ORDER BY list DESC", (query,)
    ):
        lists.setdefault(doc, {})[name] = rank
    top: dict[str, float] = dict(
        store.rows("SELECT doc, top FROM ranking WHERE query = ?", (query,))
    )
    shown = []
    for p in found.passages:
        person = held.get((query, p.doc))
        mark = marks[p.doc]
        shown.append(
            {
                "doc": p.doc,
                "text": p.text,
                "source": p.source,
                "grade": p.grade,
                "judged": p.judged,
                "again": repeated.get((query, p.doc), []),
                "failure": p.failure,
                "rank": p.rank,
                "judged_rank": p.judged_rank,
                "low": p.low,
                "high": p.high,
                "top": top.get(p.doc),
                "lists": lists.get(p.doc, {}),
                "validated": None if person is None else {"who": person.who, "at": person.at},
                "differs": mark.differs,
                "unsure": mark.unsure,
                "matches": fits(mark, wanted) and (keys is None or (query, p.doc) in keys),
            }
        )
    return {
        "query": found.query,
        "text": found.text,
        "asked": found.asked,
        "reason": found.reason,
        "calls": found.calls,
        "failed": found.failed,
        "overlap": found.overlap,
        "depth": _depth(store),
        "passages": shown,
    }


def evidence(store: Store, query: str, doc: str) -> dict[str, Any]:
    """What a passage's grade and rank rest on: the judge's words, and what people changed."""
    grade = store.replies(
        "id = (SELECT reply FROM grades WHERE query = ? AND doc = ?)", (query, doc)
    )
    orders = [reply for reply in _orders(store, query) if doc in reply.documents]
    active = {each.id for each in store.active_corrections()}
    undone = {each.undoes for each in store.corrections()}
    history = [
        asdict(each) | {"holds": each.id in active, "undone": each.id in undone}
        for each in store.corrections()
        if (each.query, each.doc) == (query, doc)
    ]
    return {
        "grade": [_told(reply) for reply in grade],
        "orders": [_told(reply) for reply in orders],
        "history": history,
    }


def pair(store: Store, query: str, first: str, second: str) -> dict[str, int]:
    """How often the judge saw both passages in one call, and put the first before the second."""
    both = [
        reply.result
        for reply in _orders(store, query)
        if isinstance(reply.result, list) and first in reply.result and second in reply.result
    ]
    return {
        "together": len(both),
        "first": sum(order.index(first) < order.index(second) for order in both),
    }


def sources(store: Store) -> list[list[Any]]:
    """(name, passages) of the most frequent sources."""
    rows = store.rows(
        "SELECT source, COUNT(*) FROM passages WHERE source NOT NULL "
        "GROUP BY source ORDER BY 2 DESC, 1 LIMIT ?",
        (SOURCES,),
    )
    return [list(row) for row in sorted(rows)]


def progress(store: Store) -> dict[str, int]:
    """How much people have looked at: passages they graded, and those graded other than before."""
    pairs = _pairs(store)
    return {
        "validated": len(pairs),
        "changed": sum(judge is not None and judge != person for judge, person in pairs),
    }


def live_agreement(store: Store) -> dict[str, Any]:
    """The judge beside people, over what they validated so far."""
    pairs = [(judge, person) for judge, person in _pairs(store) if judge is not None]
    if not pairs:
        return {"pairs": 0, "coefficients": {}, "levels": [], "confusion": []}
    judge, person = zip(*pairs, strict=True)
    found = agreement(judge, person, seed=_seed(store), resamples=_RESAMPLES)
    return {"pairs": len(pairs), **found.to_dict()}


def next_open(store: Store) -> dict[str, str] | None:
    """A passage that nobody validated yet, drawn at random by the set's seed."""
    seed = _seed(store)
    keys = [(p.query, p.doc) for p in passages(store) if not p.validated and p.grade is not None]
    if not keys:
        return None
    query, doc = min(keys, key=lambda key: hashlib.sha256(repr((seed, key)).encode()).digest())
    return {"query": query, "doc": doc}


def _pairs(store: Store) -> list[tuple[int | None, int]]:
    """(judge, person) of every passage that people graded."""
    held = people(store)
    rows = store.rows(
        "SELECT query, doc, grade FROM json_each(?) AS each JOIN pool "
        "ON query = json_extract(each.value, '$[0]') AND doc = json_extract(each.value, '$[1]') "
        "LEFT JOIN grades USING (query, doc)",
        (json.dumps(list(held)),),
    )
    return [(judged, held[query, doc].new or 0) for query, doc, judged in rows]


def _orders(store: Store, query: str) -> list[Reply]:
    """The replies that the order of a question rests on."""
    return store.replies("id IN (SELECT reply FROM orders WHERE query = ?)", (query,))


def _told(reply: Reply) -> dict[str, Any]:
    """A reply as the page shows it; labels say which passage is meant."""
    return {
        "text": reply.text,
        "failure": reply.failure,
        "labels": [[label(at), doc] for at, doc in enumerate(reply.documents)],
        "result": reply.result,
        "model": reply.model,
        "attempt": reply.attempt,
        "tokens": [reply.tokens_in, reply.tokens_out],
        "cost": reply.cost,
        "seconds": reply.seconds,
        "at": reply.at,
    }


def _depth(store: Store) -> int:
    """The ranks that were to be right."""
    config = store.meta("config")
    return int(config["ranking"]["depth"] or config["pruning"]["target"])


def _seed(store: Store) -> int:
    return int(store.meta("config")["seed"])


def _all_in(words: tuple[str, ...], text: str) -> bool:
    folded = fold(text)
    return all(word in folded for word in words)
