"""What judges and annotators said, as the store keeps it: replies and corrections.

A reply is one answer of a judge to one request; a correction is one statement of a person about one
passage. Neither is ever deleted. What they rest on is known by a digest of question and passage, so
that they count only while both texts are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

MAX_REPLY_CHARS = 100_000  # a longer reply is never an answer; one character more is stored
MAX_ATTEMPTS = 2  # a reply that cannot be used is asked for once more
NO_ANSWER_FAILURES = ("refused", "unanswered", "cut off")  # asking again would change nothing
_PAIR_HALF_DIGITS = 24  # hexadecimal

Kind = Literal["grade", "order"]
Field = Literal["grade", "rank"]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a judge, and what it cost."""

    request: str  # digest of the content, the judge's model and its parameters
    content: str  # digest of the exact messages, the schema, the attempt and the repeat
    kind: Kind
    query: str
    documents: tuple[str, ...]  # as labeled: A, B, C, …
    attempt: int  # 1, or 2 after a reply that could not be used
    repeat: int  # 0; 1, 2, … if the judge was asked the same on purpose
    prompt: str  # digest of the prompt file
    model: str
    parameters: dict[str, Any]
    text: str
    result: dict[str, int] | list[str] | None  # grade of each document, or documents best first
    failure: str | None  # why there is no result
    tokens_in: int
    tokens_out: int
    counted: bool  # by the server; else estimated
    cost: float | None  # US dollars; None if no price is known
    seconds: float
    tries: int  # HTTP requests until one was answered
    at: str = field(default_factory=lambda: utc_now())
    judge: int = 0  # id in the table `judges`
    pairs: tuple[str, ...] = ()  # of the question with each document's text
    spread: dict[str, tuple[float, float]] | None = None  # mean and sd of each grade, if known
    id: int = 0  # given by the store
    parts: tuple[Reply, ...] = ()  # replies to parts of a batch that failed as a whole

    @property
    def grades(self) -> dict[str, int]:
        """Grades by document, from this reply or from those to parts of its batch."""
        grades = self.result if isinstance(self.result, dict) else {}
        return {doc: grade for part in self.parts for doc, grade in part.grades.items()} | grades

    @property
    def final(self) -> bool:
        """True if the request is not asked again: it has a result, or its last attempt failed."""
        no_answer = self.failure is not None and self.failure.startswith(NO_ANSWER_FAILURES)
        return self.result is not None or no_answer or self.attempt >= MAX_ATTEMPTS


@dataclass(frozen=True, slots=True)
class Correction:
    """One statement of a person about a passage: a grade, or a place in the order."""

    id: int
    query: str
    doc: str
    field: Field
    old: int | None
    new: int | None  # None: no grade, but a note or doubt
    who: str
    at: str
    note: str | None
    undoes: int | None  # id of the correction that this one takes back
    pair: str | None = None  # of the texts that the person saw
    sure: bool = True
    settles: bool = False  # decides a disagreement between other people
    above: tuple[str, ...] = ()  # passages that this one was put above
    below: tuple[str, ...] = ()


def pair_digest(question: str, text: str) -> str:
    """Digest of a question followed by that of a passage's text: what a judgment rests on."""
    halves = (
        hashlib.sha256(part.encode("utf-8", "replace")).hexdigest() for part in (question, text)
    )
    return "".join(half[:_PAIR_HALF_DIGITS] for half in halves)


def replace_surrogates(text: str) -> str:
    """Return the text without lone surrogates, which JSON can hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def utc_now() -> str:
    """The current time, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def truncate(text: str, max_chars: int | None) -> str:
    """Return the first `max_chars` characters, the last one an ellipsis; None keeps all."""
    return text if max_chars is None or len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def undone_ids(corrections: Sequence[Correction]) -> set[int]:
    """Ids of corrections (given oldest first) that are undone; an undo may itself be undone."""
    undone: set[int] = set()
    for correction in reversed(corrections):
        if correction.undoes is not None and correction.id not in undone:
            undone.add(correction.undoes)
    return undone


def group_rows(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows without their first column, by its value."""
    groups: dict[str, list[Row]] = {}
    for key, *remaining in rows:
        groups.setdefault(key, []).append(tuple(remaining))
    return groups
