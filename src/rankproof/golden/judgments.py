"""What a golden set keeps of judges and people, as values: replies and corrections."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

LONGEST = 100_000  # characters of a reply; more is never an answer, and one more is kept
ATTEMPTS = 2  # a reply that cannot be used is asked for once more
UNHEARD = ("refused", "unanswered", "cut off")  # failures for which asking anew changes nothing
_PAIR = 24  # hexadecimal digits of each half of a pair

Kind = Literal["grade", "order"]
Field = Literal["grade", "rank"]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the judge answered to one request, and what that took."""

    request: str  # digest of the content, the judge's model and its parameters
    content: str  # digest of the exact messages, the schema, the attempt and the repeat
    kind: Kind
    query: str
    documents: tuple[str, ...]  # as labelled: A, B, C, …
    attempt: int  # 1, or 2 for the second asking after a reply that could not be used
    repeat: int  # 0; 1, 2, … where the judge is asked the same again, past what is stored
    prompt: str  # digest of the prompt file
    model: str
    parameters: dict[str, Any]
    text: str
    result: dict[str, int] | list[str] | None  # grade of each document, or documents best first
    failure: str | None  # why there is no result
    tokens_in: int
    tokens_out: int
    counted: bool  # by the server; else estimated
    cost: float | None  # US dollars; None where no price is known
    seconds: float
    tries: int  # requests it took until one was answered
    at: str = field(default_factory=lambda: now())
    judge: int = 0  # of the store's judges
    pairs: tuple[str, ...] = ()  # of the question with each document's text
    spread: dict[str, tuple[float, float]] | None = None  # mean and sd of each grade, if it says
    id: int = 0  # given by the store
    parts: tuple[Reply, ...] = ()  # to its halves, and theirs, where it could not be used

    @property
    def grades(self) -> dict[str, int]:
        """Of each passage that has one: in this reply, or in those to a part of the request."""
        found = self.result if isinstance(self.result, dict) else {}
        return {doc: grade for part in self.parts for doc, grade in part.grades.items()} | found

    @property
    def final(self) -> bool:
        """Whether nothing is left to ask: a result, or a failure that is the last word."""
        unheard = self.failure is not None and self.failure.startswith(UNHEARD)
        return self.result is not None or unheard or self.attempt >= ATTEMPTS


@dataclass(frozen=True, slots=True)
class Correction:
    """What a person said. `undoes` names the correction that this one takes back."""

    id: int
    query: str
    doc: str
    field: Field
    old: int | None
    new: int | None  # None: no grade, but a note or that one is not sure
    who: str
    at: str
    note: str | None
    undoes: int | None
    pair: str | None = None  # of the texts that the person saw
    sure: bool = True
    settles: bool = False  # said to settle what others said
    above: tuple[str, ...] = ()  # passages that this one was put above
    below: tuple[str, ...] = ()


def pair(question: str, text: str) -> str:
    """What a word on a passage rests on: digests of the question and of the text, side by side."""
    halves = (
        hashlib.sha256(part.encode("utf-8", "replace")).hexdigest() for part in (question, text)
    )
    return "".join(half[:_PAIR] for half in halves)


def storable(text: str) -> str:
    """Text without lone surrogates, which JSON can hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def cut(text: str, most: int | None) -> str:
    """The first characters of a text, where only so many are shown."""
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"


def undone(rows: Sequence[Correction]) -> set[int]:
    """Those that are taken back, oldest first: by an undo that was not itself taken back."""
    found: set[int] = set()
    for row in reversed(rows):
        if row.undoes is not None and row.id not in found:
            found.add(row.undoes)
    return found


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by their first column."""
    found: dict[str, list[Row]] = {}
    for first, *rest in rows:
        found.setdefault(first, []).append(tuple(rest))
    return found
