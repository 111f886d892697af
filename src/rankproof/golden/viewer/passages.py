"""Passages as one person sees them: their marks, and which of them a filter selects.

Who labels sees what the judge said and their own labels; who settles sees everybody's (`Seat`). A
passage is

    validated  if they graded it, even if as the judge did (who settles: if anybody did)
    differs    if they, or the judge asked again, gave another grade than the judge at first; who
               settles: also if people disagree and nobody settled it
    unsure     if they said so (who settles: anybody)
    unclear    while nobody graded it and its judgment failed, or the order leaves open whether it
               belongs to the top: 0.05 < P(in the top) < 0.95
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from rankproof.foundation.errors import InputError, shorten
from rankproof.golden.annotators import (
    Key,
    PeopleGrade,
    assigned_passages,
    labels_by_person,
    people_grades,
)
from rankproof.golden.judgments import Correction
from rankproof.golden.store import Store, of_query
from rankproof.golden.viewer.desk import Seat

State = Literal[
    "unsure", "differs", "validated", "open", "unclear", "noted", "queue", "holes", "flagged"
]
Found = Literal["dense", "bm25", "both"]

_CERTAIN = 0.95


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions that the page filters passages by; an empty filter selects all."""

    words: tuple[str, ...] = ()  # all in the question, or all in the passage
    grades: frozenset[int] = frozenset()
    state: State | None = None
    found: Found | None = None  # by this list alone, or by both
    source: str | None = None

    @staticmethod
    def of(parameters: Mapping[str, str]) -> Filter:
        """Read a filter from the page's parameters."""
        state, list_name = parameters.get("state") or None, parameters.get("found") or None
        for name, value, allowed in (
            ("state", state, get_args(State)),
            ("found", list_name, get_args(Found)),
        ):
            if value is not None and value not in allowed:
                raise InputError(
                    f"{name} {shorten(value)}", remedy=f"give one of {', '.join(allowed)}"
                )
        digits = parameters.get("grades", "")
        return Filter(
            words=tuple(fold(parameters.get("text", "")).split()),
            grades=frozenset(int(digit) for digit in digits if digit in "012345"),
            state=state,  # type: ignore[arg-type]
            found=list_name,  # type: ignore[arg-type]
            source=parameters.get("source") or None,
        )

    @property
    def empty(self) -> bool:
        """True if every passage passes."""
        return self == Filter()


class Passage(NamedTuple):  # a tuple, because there are many
    """A pooled passage without its text: what filters and counts depend on."""

    query: str
    doc: str
    judged: int | None
    failure: str | None
    top: float | None
    others: tuple[int, ...]  # the judge's grades when it was asked again
    grade: int | None  # the final one: people's, else the judge's
    validated: bool
    differs: bool
    unsure: bool
    unclear: bool
    noted: bool
    queue: bool


def fold(text: str) -> str:
    """The text as it is searched: neither case nor the encoding of accents matters."""
    if text.isascii():
        return text.lower()  # the same, and ten times as fast
    return unicodedata.normalize("NFC", text).casefold()


def _repeated_grades(store: Store, query: str | None) -> dict[Key, list[int]]:
    """The judge's grades when it was asked again, in the order of asking."""
    condition, parameters = of_query(query)
    rows = store.rows(
        "SELECT query, result FROM replies "
        "WHERE repeat > 0 AND retired = 0 AND kind = 'grade' AND result NOT NULL "
        f"AND {condition} ORDER BY id",
        parameters,
    )
    repeated: dict[Key, list[int]] = {}
    for name, result in rows:
        for doc, grade in json.loads(result).items():
            repeated.setdefault((name, doc), []).append(grade)
    return repeated


class _Judgment(NamedTuple):
    """What the judge said of one passage; nothing for the blind."""

    grade: int | None = None
    repeats: tuple[int, ...] = ()  # grades when it was asked again
    failure: str | None = None
    top: float | None = None  # P(among the top)


class _Labels(NamedTuple):
    """What a person may know of people's labels of one passage."""

    grade: int | None = None
    settled: bool = False
    disagree: bool = False
    unsure: bool = False
    noted: bool = False
    exist: bool = False


def _own_labels(label: Correction | None) -> _Labels:
    """The labels as one annotator sees them: their own alone."""
    if label is None:
        return _Labels()
    return _Labels(label.new, unsure=not label.sure, noted=bool(label.note), exist=True)


def _all_labels(labels: Sequence[Correction], grade: PeopleGrade | None) -> _Labels:
    """The labels as who settles sees them: everybody's."""
    settled = grade is not None and grade.settled
    return _Labels(
        grade=None if grade is None else grade.grade,
        settled=settled,
        disagree=not settled and len({c.new for c in labels if c.new is not None}) > 1,
        unsure=not settled and any(not c.sure for c in labels),
        noted=any(c.note for c in labels),
        exist=bool(labels),
    )


def passages(
    store: Store, seat: Seat, active: Sequence[Correction], query: str | None = None
) -> Iterator[Passage]:
    """The pooled passages of one query or all, as a person sees them; `active` corrections."""
    condition, parameters = of_query(query, "pool.query")
    rows = store.rows(
        "SELECT pool.query, pool.doc, grade, failure, top FROM pool "
        "LEFT JOIN grades USING (query, doc) LEFT JOIN ranking USING (query, doc) "
        f"WHERE {condition}",
        parameters,
    )
    repeated = _repeated_grades(store, query)
    labels = labels_by_person(active)
    queue = assigned_passages(store, seat.who)
    people: dict[Key, PeopleGrade] = {}
    if seat.settles:
        people = people_grades(active, {(name, doc): judged for name, doc, judged, _, _ in rows})
    for name, doc, judged, failure, top in rows:
        key = (name, doc)
        by_person = labels.get(key, {})
        if seat.settles:
            visible = _all_labels(list(by_person.values()), people.get(key))
        else:
            visible = _own_labels(by_person.get(seat.who))
        judgment = _Judgment(judged, tuple(repeated.get(key, ())), failure, top)
        if seat.blind and visible.grade is None:
            judgment = _Judgment()
        yield _describe(key, judgment, visible, is_queued=key in queue)


def _describe(key: Key, judgment: _Judgment, labels: _Labels, is_queued: bool) -> Passage:
    """Combine what the judge and people said of a passage."""
    is_validated = labels.grade is not None
    grade, top = labels.grade if is_validated else judgment.grade, judgment.top
    is_contradicted = judgment.grade is not None and any(
        other != judgment.grade for other in (grade, *judgment.repeats)
    )
    is_failed = judgment.grade is None and judgment.failure is not None
    is_open = top is not None and 1 - _CERTAIN < top < _CERTAIN
    return Passage(
        query=key[0],
        doc=key[1],
        judged=judgment.grade,
        failure=judgment.failure,
        top=top,
        others=judgment.repeats,
        grade=grade,
        validated=is_validated,
        differs=labels.disagree or (not labels.settled and is_contradicted),
        unsure=labels.unsure,
        unclear=not is_validated and (is_failed or is_open),
        noted=labels.noted,
        queue=is_queued and not labels.exist,
    )
