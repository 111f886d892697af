"""What the page is told: the questions with counts first, the passages of one when it is opened.

What is told depends on who looks (`Seat`). Who labels is told what the judge said and what they
said themselves; who settles, what everybody said. A passage is *validated* when they, or for who
settles anybody, graded it, be it as the judge did. It *differs* when they or the judge asked again
gave another grade than the judge at first, and for who settles when people disagree and nobody
settled it. It is *unsure* when they (for who settles: anybody) said so, and *unclear* while nobody
graded it and its judgement failed, or the order leaves open whether it belongs to the top:
0.05 < P(in the top) < 0.95.
"""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from rankproof.errors import InputError, shorten
from rankproof.golden.instructions import instruction
from rankproof.golden.kept import Correction, Reply, undone
from rankproof.golden.people import (
    JUDGE,
    PAIR_FIGURES,
    Key,
    assigned,
    between,
    everyone,
    held,
    labels,
    settled,
)
from rankproof.golden.requests import label
from rankproof.golden.result import read_queries
from rankproof.golden.store import Store
from rankproof.statistics.agreement import agreement
from rankproof.tables import SET_SCALE
from rankproof.viewer.desk import Seat

if TYPE_CHECKING:
    import polars as pl

    from rankproof.measures.registry import Measure
    from rankproof.tables import Run

State = Literal[
    "unsure", "differs", "validated", "open", "unclear", "noted", "queue", "holes", "flagged"
]
Found = Literal["dense", "bm25", "both"]

UNGRADED = 0  # among the grades of a filter
SURE = 0.95
SOURCES = 200  # more are no choice for a menu; the search finds them by name
LAST = 20  # of one's own changes, to look at again
_HELD = 200_000_000  # bytes of passages that are held for searching
_LIKE_JUDGE = 4.0  # labels' worth of the guess that people agree with the judge, or nearly


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


class Passage(NamedTuple):  # of which there are many
    """What a filter and the counts go by."""

    query: str
    doc: str
    judged: int | None
    failure: str | None
    top: float | None
    others: tuple[int, ...]  # what the judge said when it was asked again
    grade: int | None  # that holds: people's, else the judge's
    validated: bool
    differs: bool
    unsure: bool
    unclear: bool
    noted: bool
    queue: bool


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
    unclear: int = 0
    queue: int = 0

    def add(self, passage: Passage) -> None:
        self.passages += 1
        if passage.grade is not None:
            self.grades[passage.grade - 1] += 1
        self.failed += passage.grade is None and passage.failure is not None
        self.validated += passage.validated
        self.differs += passage.differs
        self.unsure += passage.unsure
        self.unclear += passage.unclear
        self.queue += passage.queue


def fold(text: str) -> str:
    """As it is searched: case does not count, nor how an accent is encoded."""
    if text.isascii():
        return text.lower()  # the same, and ten times as fast
    return unicodedata.normalize("NFC", text).casefold()


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


def passages(
    store: Store, seat: Seat, active: Sequence[Correction], query: str | None = None
) -> Iterator[Passage]:
    """Of all pools, or one, without their texts; `active` is what people said of them."""
    one, given = ("TRUE", ()) if query is None else ("pool.query = ?", (query,))
    rows = store.rows(
        "SELECT pool.query, pool.doc, grade, failure, top FROM pool "
        "LEFT JOIN grades USING (query, doc) LEFT JOIN ranking USING (query, doc) "
        f"WHERE {one}",
        given,
    )
    repeated = again(store, query)
    said = labels(active)
    queue = assigned(store, seat.who)
    holding = (
        held(active, {(asked, doc): judged for asked, doc, judged, _, _ in rows})
        if seat.settles
        else {}
    )
    for asked, doc, judged, failure, top in rows:
        key = (asked, doc)
        mine = said.get(key)
        if seat.settles:
            chosen = holding.get(key)
            grade = None if chosen is None else chosen.grade
            done = chosen is not None and chosen.settled
            people = [] if mine is None else list(mine.values())
            apart = len({c.new for c in people if c.new is not None}) > 1 and not done
            unsure = not done and any(not c.sure for c in people)
        else:
            people = [mine[seat.who]] if mine is not None and seat.who in mine else []
            grade = people[0].new if people else None
            done, apart, unsure = False, False, bool(people) and not people[0].sure
        validated = grade is not None
        noted = any(c.note for c in people)
        wanted = key in queue and not people
        others = tuple(repeated.get(key, ()))
        if seat.blind and not validated:
            judged = failure = top = None
            others = ()
        final = grade if validated else judged
        differs = apart or (
            not done
            and judged is not None
            and (final != judged or any(other != judged for other in others))
        )
        unclear = not validated and (
            (judged is None and failure is not None) or (top is not None and 1 - SURE < top < SURE)
        )
        yield Passage(
            *(asked, doc, judged, failure, top, others, final),
            *(validated, differs, unsure, unclear, noted, wanted),
        )


class Index:
    """Every passage as one seat sees it, kept between requests: only what changed is read again."""

    def __init__(self, store: Store, seat: Seat, holes: Mapping[Key, float]):
        self.store = store
        self.seat = seat
        self.holes = holes  # of a comparison: passages that nobody graded, by their effect
        self._built: Any = None
        self._last = 0  # correction that is in
        self._found: dict[str, list[Passage]] = {}
        self._active: dict[str, list[Correction]] = {}
        self._texts: dict[str, str] = {}
        self._counts: dict[str, dict[str, Any]] = {}
        self._folded: pl.DataFrame | None = None
        self._flagged: set[str] | None = None
        self.fresh()

    def fresh(self) -> dict[str, list[Passage]]:
        """The passages of each question, in the set's order."""
        store = self.store
        (built,) = store.rows(
            "SELECT (SELECT value FROM meta WHERE key = 'done'), (SELECT MAX(id) FROM replies), "
            "(SELECT COUNT(*) FROM assigned)"
        )
        ((last,),) = store.rows("SELECT COALESCE(MAX(id), 0) FROM corrections")
        if built != self._built:
            self._folded = self._flagged = None
            self._counts = {}
            self._texts = dict(store.rows("SELECT query, text FROM queries ORDER BY position"))
            self._found = {query: [] for query in self._texts}
            active = store.active_corrections()
            self._active = {}
            for said in active:
                self._active.setdefault(said.query, []).append(said)
            for each in passages(store, self.seat, active):
                self._found[each.query].append(each)
        elif last != self._last:
            since = "SELECT DISTINCT query FROM corrections WHERE id > ?"
            for (query,) in store.rows(since, (self._last,)):
                if query in self._found:
                    self._active[query] = active = store.active_corrections(query)
                    self._found[query] = list(passages(store, self.seat, active, query))
                    self._counts.pop(query, None)
        self._built, self._last = built, last
        return self._found

    def active(self) -> list[Correction]:
        """What people said, and holds."""
        self.fresh()
        return [each for said in self._active.values() for each in said]

    def told(self, made: Correction) -> dict[str, Any]:
        """A row as its author is told it: who is blind not what there was before, nor ranks."""
        said = asdict(made)
        here = {p.doc: p for p in self.fresh().get(made.query, [])}.get(made.doc)
        if self.seat.blind and not (here is not None and here.validated):
            said["old"] = None
            if made.field == "rank" or made.undoes is not None:
                said["new"] = None
        return said

    def fits(self, passage: Passage, wanted: Filter) -> bool:
        """Whether a filter wants it, by grade and state."""
        if wanted.grades and (passage.grade or UNGRADED) not in wanted.grades:
            return False
        if wanted.state is None:
            return True
        if wanted.state == "open":
            return not passage.validated
        if wanted.state == "holes":
            return not passage.validated and (passage.query, passage.doc) in self.holes
        if wanted.state == "flagged":
            return passage.doc in self.flagged()
        return bool(getattr(passage, wanted.state))

    def flagged(self) -> Set[str]:
        """Passages that speak to the judge; looked for when somebody asks."""
        if self._flagged is None:
            rows = self.store.rows("SELECT doc, text FROM passages")
            self._flagged = {doc for doc, text in rows if instruction(text) is not None}
        return self._flagged

    def matching(self, wanted: Filter, query: str | None = None) -> dict[str, Set[str]] | None:
        """The passages of each question that a filter finds by text, source and list; None: all.

        What it finds by grade and state `fits` sees.
        """
        if not (wanted.words or wanted.source or wanted.found):
            return None
        here = self._found if query is None else {query: self._found[query]}
        found: dict[str, Set[str]] = {asked: {p.doc for p in here[asked]} for asked in here}
        if wanted.source or wanted.found:
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
            where = " AND ".join(parts)
            kept: dict[str, set[str]] = {asked: set() for asked in here}
            for asked, doc in self.store.rows(
                f"SELECT query, doc FROM pool {join}WHERE {where}", values
            ):
                kept[asked].add(doc)
            found = {asked: found[asked] & kept[asked] for asked in here}
        if wanted.words:
            hits = self._holding(wanted.words, None if query is None else found[query])
            found = {
                asked: docs
                if _all_in(wanted.words, f"{self._texts[asked]} {asked}")
                else docs & hits
                for asked, docs in found.items()
            }
        return found

    def folded(self) -> pl.DataFrame:
        """Every passage (doc, text) as it is searched; kept, unless there are too many."""
        import polars as pl

        found = self._folded
        if found is None:
            sql = "SELECT doc, text || ' ' || doc || ' ' || IFNULL(source, '') FROM passages"
            rows = self.store.rows(sql)
            columns = {"doc": [doc for doc, _ in rows], "text": [fold(text) for _, text in rows]}
            found = pl.DataFrame(columns, {"doc": pl.String, "text": pl.String})
            if found["text"].str.len_bytes().sum() <= _HELD:
                self._folded = found
        return found

    def _holding(self, words: Sequence[str], among: Set[str] | None) -> Set[str]:
        """Passages with each of the words in their text, name or source."""
        import polars as pl

        left = self.folded()
        if among is not None:
            left = left.filter(pl.col("doc").is_in(list(among)))
        for word in words:
            left = left.filter(pl.col("text").str.contains(word, literal=True))
        return set(left["doc"].to_list())

    def summaries(self, wanted: Filter, query: str | None = None) -> list[dict[str, Any]]:
        """Every question that has a passage which is wanted, or one; in the set's order."""
        found = self.fresh()
        keys = self.matching(wanted, query)
        by_marks = bool(wanted.grades or wanted.state)
        told = []
        for asked in found if query is None else [query]:
            here = found[asked]
            if by_marks:
                fitting = (p for p in here if self.fits(p, wanted))
                count = sum(keys is None or p.doc in keys[asked] for p in fitting)
            else:
                count = len(here if keys is None else keys[asked])
            if count or wanted.empty or query:
                told.append(self._counted(asked) | {"matches": count})
        return told

    def _counted(self, query: str) -> dict[str, Any]:
        """What a question holds, whatever the filter."""
        if query not in self._counts:
            each = Summary(query, self._texts[query])
            for passage in self._found[query]:
                each.add(passage)
            self._counts[query] = asdict(each)
        return self._counts[query]

    def question(self, query: str, wanted: Filter) -> dict[str, Any]:
        """A question with its passages in order: everything but the judge's replies."""
        marks = {each.doc: each for each in self.fresh().get(query, [])}
        if not marks:
            raise InputError(f"there is no question {shorten(query)}", place=str(self.store.path))
        (found,) = read_queries(self.store, query, self.seat.alone)
        active = self._active.get(query, [])
        said = labels(active)
        last = {
            c.doc: c
            for c in active
            if c.field == "grade"
            and (c.settles if self.seat.settles else c.who == self.seat.who and not c.settles)
        }
        moves = [
            c.id
            for c in active
            if c.field == "rank" and (c.settles if self.seat.settles else c.who == self.seat.who)
        ]
        keys = self.matching(wanted, query)
        lists: dict[str, dict[str, int]] = {}
        for name, doc, rank in self.store.rows(
            "SELECT list, doc, rank FROM retrieved WHERE query = ? ORDER BY list DESC", (query,)
        ):
            lists.setdefault(doc, {})[name] = rank
        shown = []
        for p in found.passages:
            mark, mine = marks[p.doc], last.get(p.doc)
            hidden = self.seat.blind and not mark.validated
            people = said.get((query, p.doc), {}) if self.seat.settles else {}
            shown.append(
                {
                    "doc": p.doc,
                    "text": p.text,
                    "source": p.source,
                    "grade": mark.grade,
                    "judged": mark.judged,
                    "again": mark.others,
                    "failure": mark.failure,
                    "rank": None if hidden else p.rank,
                    "judged_rank": None if hidden else p.judged_rank,
                    "low": None if hidden else p.low,
                    "high": None if hidden else p.high,
                    "top": None if hidden else p.top,
                    "lists": {} if hidden else lists.get(p.doc, {}),
                    "mine": None if mine is None else _label(mine),
                    "people": [_label(c) for _, c in sorted(people.items())],
                    "seen": 0 if mine is None else mine.id,
                    **{name: getattr(mark, name) for name in _MARKS},
                    "instruction": instruction(p.text),
                    "hole": self.holes.get((query, p.doc)) if not mark.validated else None,
                    "matches": self.fits(mark, wanted) and (keys is None or p.doc in keys[query]),
                }
            )
        if self.seat.blind:
            shown.sort(key=lambda p: p["doc"])  # the judge's order would tell what it thinks
        return {
            "query": found.query,
            "text": found.text,
            "asked": found.asked,
            "reason": found.reason,
            "calls": found.calls,
            "failed": found.failed,
            "overlap": found.overlap,
            "depth": _depth(self.store),
            "ranked": sum(p.rank is not None for p in found.passages),
            "moves": moves[-1] if moves else 0,
            "passages": shown,
        }

    def next(self, by: Literal["gain", "random"]) -> dict[str, str] | None:
        """What to look at next: what would change most, or a passage drawn by the set's seed.

        Of one's own queue first; who settles is offered what people disagree on.
        """
        every = [p for found in self.fresh().values() for p in found]
        if self.seat.settles and by == "gain":
            spread = self._spreads()
            todo = [p for p in every if (p.query, p.doc) in spread]
        else:
            todo = [p for p in every if not p.validated and not p.unsure]
            todo = [p for p in todo if p.queue] or todo
            spread = {}
        if not todo:
            return None
        seed, gains = _seed(self.store), _gains(every)

        def worth(p: Passage) -> float:
            key = (p.query, p.doc)
            return spread[key] if spread else gains(p) + 100 * self.holes.get(key, 0.0)

        def drawn(p: Passage) -> bytes:
            return hashlib.sha256(repr((seed, (p.query, p.doc))).encode()).digest()

        if by == "gain":
            values = [worth(p) for p in todo]
            best = max(values) - 1e-12
            todo = [p for p, value in zip(todo, values, strict=True) if value >= best]
        chosen = min(todo, key=drawn)
        return {"query": chosen.query, "doc": chosen.doc}

    def _spreads(self) -> dict[Key, float]:
        """How far apart people are on what is not settled; to be unsure is half a step."""
        active = self.active()
        done = set(settled(active))
        found = {}
        for key, each in labels(active).items():
            grades = [c.new for c in each.values() if c.new is not None]
            apart = (max(grades) - min(grades) if grades else 0.0) + 0.5 * any(
                not c.sure for c in each.values()
            )
            if apart and key not in done:
                found[key] = float(apart)
        return found


_MARKS = ("validated", "differs", "unsure", "unclear", "noted", "queue")


def _label(each: Correction) -> dict[str, Any]:
    told = {"who": each.who, "grade": each.new, "sure": each.sure}
    return {**told, "note": each.note, "at": each.at}


def _gains(every: Sequence[Passage]) -> Callable[[Passage], float]:
    """The bits that a person's grade of a passage would tell.

    Entropy of the grade it would be, given the judge's (what people gave where the judge said the
    same, and four more who mostly agree: weight e^−|d| at d grades apart), the mean of these
    where the judge contradicted itself; and that of whether it belongs to the top.
    """
    counts = [[0.0] * 5 for _ in range(5)]
    for p in every:
        if p.validated and p.judged is not None and p.grade is not None:
            counts[p.judged - 1][p.grade - 1] += 1
    rows = []
    for judged, told in enumerate(counts):
        guess = [math.exp(-abs(judged - grade)) for grade in range(5)]
        added = [n + _LIKE_JUDGE * g / sum(guess) for n, g in zip(told, guess, strict=True)]
        rows.append([n / sum(added) for n in added])

    @cache
    def grade(said: tuple[int, ...]) -> float:
        of = [rows[judged - 1] for judged in said] or rows
        return _entropy([sum(row[g] for row in of) / len(of) for g in range(5)])

    def gain(p: Passage) -> float:
        said = p.others if p.judged is None else (p.judged, *p.others)
        return grade(said) + (0.0 if p.top is None else _entropy([p.top, 1 - p.top]))

    return gain


def _entropy(shares: Sequence[float]) -> float:
    return -sum(p * math.log2(p) for p in shares if p > 0)


def evidence(store: Store, seat: Seat, query: str, doc: str) -> dict[str, Any]:
    """What a passage's grade and rank rest on: the judge's words, and what people changed.

    Who is blind is told the words that speak of passages they graded, and of no other.
    """
    every = [
        each
        for each in store.corrections(query)
        if each.doc == doc and (seat.settles or each.who == seat.who)
    ]
    said = labels(store.active_corrections(query)) if seat.blind else {}
    graded = {d for (_, d), by in said.items() if seat.who in by and by[seat.who].new is not None}
    if seat.blind and doc not in graded:
        raise InputError("the judge is hidden", remedy="grade the passage first")
    judges = ", ".join(map(str, store.in_force("grade")))
    grade = store.replies(
        "id IN (SELECT reply FROM pairs JOIN answers USING (pair) "
        f"WHERE pairs.query = ? AND pairs.doc = ? AND answers.judge IN ({judges}))",
        (query, doc),
    )
    orders = [reply for reply in _orders(store, query) if doc in reply.documents]
    hidden = 0
    if seat.blind:
        told = [[r for r in each if graded.issuperset(r.documents)] for each in (grade, orders)]
        hidden = len(grade) + len(orders) - sum(map(len, told))
        grade, orders = told
    gone = undone(every)
    panel = (store.meta("judge") or {}).get("members", [])
    names = {number: each["name"] for each in panel for number in each["numbers"].values()}
    return {
        "grade": [_told(reply, names) for reply in grade],
        "orders": [_told(reply, names) for reply in orders],
        "hidden": hidden,
        "history": [
            asdict(each) | {"undone": each.id in gone, "mine": each.who == seat.who}
            for each in every
        ],
    }


def recent(index: Index) -> list[dict[str, Any]]:
    """One's own last twenty words that hold, newest first; of a passage's label the last alone."""
    store = index.store
    own = sorted((c for c in index.active() if c.who == index.seat.who), key=lambda c: c.id)
    last = {(c.query, c.doc, c.settles) if c.field == "grade" else c.id: c for c in own}
    mine = sorted(last.values(), key=lambda c: c.id)[-LAST:]
    asked: dict[str, str] = dict(store.rows("SELECT query, text FROM queries"))
    texts: dict[str, str] = dict(
        store.rows(
            "SELECT doc, text FROM json_each(?) JOIN passages ON doc = value",
            (json.dumps([c.doc for c in mine]),),
        )
    )
    return [
        index.told(c) | {"question": asked.get(c.query, ""), "text": texts.get(c.doc, "")[:300]}
        for c in reversed(mine)
    ]


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


def comparison_holes(store: Store, runs: Sequence[Run], measure: Measure) -> dict[Key, float]:
    """Passages of the pools that no person graded, by how far a grade could move a comparison.

    Holes as `rankproof holes` knows them, with people's grades as all that is known.
    """
    from rankproof.evaluation import Policy
    from rankproof.records import read_qrels
    from rankproof.unjudged.bounds import View
    from rankproof.unjudged.judging import judge_next

    # A query that nobody labelled has a judgement, too, of a passage that no run can hold.
    least = 1 if measure.definition.grades else 0
    known: dict[str, dict[str, int]] = {
        query: {"no run holds this": least} for (query,) in store.rows("SELECT query FROM queries")
    }
    for (query, doc), each in held(store.active_corrections()).items():
        known.setdefault(query, {})[doc] = each.grade
    view = View(runs, read_qrels(known), Policy(), scale=SET_SCALE.highest)
    view.check([measure])
    pooled = set(store.rows("SELECT query, doc FROM pool"))
    rows = judge_next(view, measure).iter_rows()
    return {(query, doc): effect for query, doc, effect in rows if (query, doc) in pooled}


def sources(store: Store) -> list[list[Any]]:
    """(name, passages) of the most frequent sources."""
    rows = store.rows(
        "SELECT source, COUNT(*) FROM passages WHERE source NOT NULL "
        "GROUP BY source ORDER BY 2 DESC, 1 LIMIT ?",
        (SOURCES,),
    )
    return [list(row) for row in sorted(rows)]


def live_agreement(index: Index) -> dict[str, Any]:
    """The judge beside people, over what they validated so far; who settles sees each person."""
    pairs = [
        (p.query, p.judged, p.grade)
        for found in index.fresh().values()
        for p in found
        if p.validated and p.judged is not None and p.grade is not None
    ]
    people = _between(index) if index.seat.settles else []
    if not pairs:
        empty: dict[str, Any] = {"pairs": 0, "coefficients": {}, "levels": [], "confusion": []}
        return empty | {"people": people}
    queries, judge, person = zip(*pairs, strict=True)
    found = agreement(judge, person, queries=queries)
    changed = sum(j != g for _, j, g in pairs)
    return {"pairs": len(pairs), "changed": changed, **found.to_dict(), "people": people}


def _between(index: Index) -> list[dict[str, Any]]:
    """Every two people, each person and the judge, and all people together."""
    judged = {(p.query, p.doc): p.judged for found in index.fresh().values() for p in found}
    active = index.active()
    told = []
    for one, other, found in between(active, {JUDGE: judged}):
        figures = {name: found.coefficients[name].to_dict() for name in PAIR_FIGURES}
        told.append({"who": one, "with": other, "figures": figures})
    alpha = everyone(active)
    if alpha is not None:
        told.append({"who": "all", "with": "all", "figures": {alpha.name: alpha.to_dict()}})
    return told


def _orders(store: Store, query: str) -> list[Reply]:
    """The replies that the order of a question rests on."""
    return store.replies("id IN (SELECT reply FROM orders WHERE query = ?)", (query,))


def _told(reply: Reply, names: Mapping[int, str]) -> dict[str, Any]:
    """A reply as the page shows it, of a panel by whom; labels say which passage is meant."""
    return {
        "text": reply.text,
        "failure": reply.failure,
        "labels": [[label(at), doc] for at, doc in enumerate(reply.documents)],
        "result": reply.result,
        "model": ": ".join(filter(None, [names.get(reply.judge), reply.model])),
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
