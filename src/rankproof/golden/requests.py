"""What the judge is asked: passages without their ids, fenced as data, known by a digest.

A prompt is a text file of three parts, each ended by a line `---`: the system's message, the
user's, and what is added when a reply could not be used. `{question}`, `{passages}`, `{labels}`
and `{fence}` are filled in. The system's message that ships is the same for every request, so that
a server which keeps the beginnings of prompts reads it once.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from rankproof.foundation.errors import InputError
from rankproof.foundation.files import read_text
from rankproof.foundation.manifest import digest
from rankproof.golden.judgments import Kind, cut, pair

Edition = Literal[1, 2, 3]
EDITIONS: tuple[Edition, ...] = get_args(Edition)
NEWEST = EDITIONS[-1]
_OLDER = {1: "first", 2: "second"}  # folders; what is not there did not change since
PROMPTS = Path(__file__).parents[1] / "resources" / "prompts"
_PLACES = re.compile(r"\{(question|passages|labels|fence)\}")


@dataclass(frozen=True, slots=True)
class Prompt:
    """The wording of a kind of request."""

    system: str
    user: str
    again: str
    digest: str  # of the file
    code: int = 4  # characters of the fence's code; more where a text holds them all


def read_prompt(
    kind: Kind, language: str = "en", path: Path | None = None, edition: Edition = NEWEST
) -> Prompt:
    """A prompt that ships with rankproof, or a user's own.

    Of those that ship, older editions stay, so that sets which were begun with them can go on.

    >>> from rankproof.golden.requests import read_prompt
    >>> "{passages}" in read_prompt("grade").user
    True
    """
    file = path or PROMPTS / _OLDER.get(edition, "") / f"{kind}.{language}.txt"
    if path is None and not file.exists():
        file = PROMPTS / file.name
    text = read_text(file)
    parts = [part.strip() for part in re.split(r"^---[ \t]*$", text, flags=re.M)]
    if len(parts) != 3 or not all(parts):
        raise InputError(
            f"the prompt has {len(parts)} parts, or an empty one",
            place=str(file),
            remedy="write three, a line --- after the first and the second",
        )
    absent = [
        name
        for name, part in (
            *((name, parts[1]) for name in ("fence", "question", "passages")),
            ("labels", parts[2]),
        )
        if f"{{{name}}}" not in part
    ]
    if absent:
        raise InputError(
            f"the prompt has no {{{absent[0]}}} where it belongs",
            place=str(file),
            remedy="{fence}, {question} and {passages} belong in the second part, {labels} in "
            "the third",
        )
    known = hashlib.sha256(text.encode()).hexdigest()
    size = 16 if path is None and edition == 1 else 4
    return Prompt(parts[0], parts[1], parts[2], known, size)


@dataclass(frozen=True)
class Request:
    """One question to the judge. `documents` and `texts` are in the order of `labels`."""

    kind: Kind
    query: str
    question: str
    documents: tuple[str, ...]
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    system: str
    user: str
    note: str  # added when it is asked again
    schema: dict[str, Any]
    prompt: Prompt
    attempt: int = 1
    repeat: int = 0
    part: bool = False  # of a batch that nobody could judge as a whole

    @cached_property
    def content(self) -> str:
        """A digest of all that the judge is shown."""
        return digest(
            {
                "kind": self.kind,
                "system": self.system,
                "user": self.user,
                "schema": self.schema,
                "attempt": self.attempt,
                "repeat": self.repeat,
            }
        )

    @cached_property
    def pairs(self) -> tuple[str, ...]:
        """What the word on each passage rests on, in the order of the documents."""
        return tuple(pair(self.question, text) for text in self.texts)

    def again(self) -> Request:
        """The same, after a reply that could not be used."""
        return replace(self, user=f"{self.user}\n\n{self.note}", attempt=self.attempt + 1)

    def halves(self) -> list[Request]:
        """The first half of its passages and the second, each by itself."""
        passages = list(zip(self.documents, self.texts, strict=True))
        middle = -(-len(passages) // 2)
        asked = (self.kind, self.prompt, self.query, self.question)
        return [
            replace(make_request(*asked, some, repeat=self.repeat, shuffle=False), part=True)
            for some in (passages[:middle], passages[middle:])
        ]


def label(number: int) -> str:
    """A, B, …, Z, AA, AB, … of 0, 1, …"""
    name = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        name = chr(65 + letter) + name
    return name


def make_request(
    kind: Kind,
    prompt: Prompt,
    query: str,
    question: str,
    passages: Sequence[tuple[str, str]],
    *,
    seed: int = 0,
    repeat: int = 0,
    shuffle: bool = True,
    passage_chars: int | None = None,
) -> Request:
    """(document, text) of some passages as a request, shuffled by a seed of its own.

    >>> from rankproof.golden.requests import make_request, read_prompt
    >>> passages = [("d1", "So."), ("d2", "Because.")]
    >>> request = make_request("grade", read_prompt("grade"), "q", "Why?", passages)
    >>> request.labels, sorted(request.documents)
    (('A', 'B'), ['d1', 'd2'])
    """
    if not passages:
        raise InputError(f"no passages to {kind}", place=f"query {query!r}")
    drawn = random.Random(digest([seed, kind, query, sorted(d for d, _ in passages), repeat]))
    shuffled = list(passages)
    if shuffle:
        drawn.shuffle(shuffled)
    documents = tuple(document for document, _ in shuffled)
    texts = tuple(cut(text, passage_chars) for _, text in shuffled)
    labels = tuple(label(n) for n in range(len(shuffled)))
    fence = _fence(drawn, [question, *texts], prompt.code)
    filled = {
        "fence": fence,
        "labels": ", ".join(labels),
        "question": _block("question", question, fence),
        "passages": "\n\n".join(
            _block(f"passage {name}", text, fence) for name, text in zip(labels, texts, strict=True)
        ),
    }

    def fill(part: str) -> str:  # at one go: what is filled in is not looked at again
        return _PLACES.sub(lambda found: filled[found[1]], part)

    return Request(
        *(kind, query, question, documents, texts, labels),
        *(fill(prompt.system), fill(prompt.user), fill(prompt.again)),
        *(_schema(kind, labels), prompt),
        repeat=repeat,
    )


def _fence(drawn: random.Random, texts: Sequence[str], size: int) -> str:
    """A code that stands in none of the texts, so that none of them can close its fence."""
    tries = 0
    while True:
        code = f"{drawn.getrandbits(4 * size):0{size}x}"
        if not any(code in text.lower() for text in texts):
            return code
        tries += 1
        size += tries % 8 == 0  # a long text may hold every short one


def _block(name: str, text: str, fence: str) -> str:
    return f"<<< {name} {fence} >>>\n{text}\n<<< end of {name} {fence} >>>"


def _schema(kind: Kind, labels: tuple[str, ...]) -> dict[str, Any]:
    properties: dict[str, Any]
    if kind == "grade":
        properties = {name: {"type": "integer", "enum": [1, 2, 3, 4, 5]} for name in labels}
    else:
        each = {"type": "string", "enum": list(labels)}
        properties = {"order": {"type": "array", "items": each}}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
