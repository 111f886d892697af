"""Every passage of a set, kept between requests: found, counted, told question by question."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from rankproof.foundation.errors import InputError, shorten
from rankproof.golden.annotators import Key, labels_by_person, settled_labels
from rankproof.golden.instructions import instruction
from rankproof.golden.judgments import Correction
from rankproof.golden.result import read_queries
from rankproof.golden.store import Store
from rankproof.golden.viewer.desk import Seat
from rankproof.golden.viewer.passages import Filter, Passage, fold, passages
from rankproof.presentation.json_values import told

if TYPE_CHECKING:
    import polars as pl

UNGRADED = 0  # among the grades of a filter
_HELD = 200_000_000  # bytes of passages that are held for searching
_LIKE_JUDGE = 4.0  # labels' worth of the guess that people agree with the judge, or nearly


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
        said = labels_by_person(active)
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
                    **told(p, "doc", "text", "source"),
                    **told(mark, "grade", "judged"),
                    "again": mark.others,
                    "failure": mark.failure,
                    **(dict.fromkeys(_ORDER) if hidden else told(p, *_ORDER)),
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
            **told(found, "query", "text", "asked", "reason", "calls", "failed", "overlap"),
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
        seed, gains = int(self.store.meta("config")["seed"]), _gains(every)

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
        done = set(settled_labels(active))
        found = {}
        for key, each in labels_by_person(active).items():
            grades = [c.new for c in each.values() if c.new is not None]
            apart = (max(grades) - min(grades) if grades else 0.0) + 0.5 * any(
                not c.sure for c in each.values()
            )
            if apart and key not in done:
                found[key] = float(apart)
        return found


_ORDER = ("rank", "judged_rank", "low", "high", "top")  # which the blind are not shown
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
    for judged, seen in enumerate(counts):
        guess = [math.exp(-abs(judged - grade)) for grade in range(5)]
        added = [n + _LIKE_JUDGE * g / sum(guess) for n, g in zip(seen, guess, strict=True)]
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


def _depth(store: Store) -> int:
    """The ranks that were to be right."""
    config = store.meta("config")
    return int(config["ranking"]["depth"] or config["pruning"]["target"])


def _all_in(words: tuple[str, ...], text: str) -> bool:
    folded = fold(text)
    return all(word in folded for word in words)
