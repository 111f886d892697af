"""Passages as one person sees them: what is marked, and which a filter wants.

What is told depends on who looks (`Seat`). Who labels is told what the judge said and what they
said themselves; who settles, what everybody said. A passage is *validated* when they, or for who
settles anybody, graded it, be it as the judge did. It *differs* when they or the judge asked again
gave another grade than the judge at first, and for who settles when people disagree and nobody
settled it. It is *unsure* when they (for who settles: anybody) said so, and *unclear* while nobody
graded it and its judgement failed, or the order leaves open whether it belongs to the top:
0.05 < P(in the top) < 0.95.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from rankproof.foundation.errors import InputError, shorten
from rankproof.golden.annotators import Key, assigned_passages, labels_by_person, people_grades
from rankproof.golden.judgments import Correction
from rankproof.golden.store import Store
from rankproof.golden.viewer.desk import Seat

State = Literal[
    "unsure", "differs", "validated", "open", "unclear", "noted", "queue", "holes", "flagged"
]
Found = Literal["dense", "bm25", "both"]

SURE = 0.95


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
    said = labels_by_person(active)
    queue = assigned_passages(store, seat.who)
    holding = (
        people_grades(active, {(asked, doc): judged for asked, doc, judged, _, _ in rows})
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
