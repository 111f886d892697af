"""Requests to a judge: passages without their ids, fenced as data, known by a digest.

A passage may contain instructions or look like a part of the prompt. So each request draws a code
that occurs in none of its texts, and only a fence with this code begins or ends a text.

A prompt is a text file of three parts, each ended by a line `---`: the system's message, the
user's, and what is added when a reply could not be used. `{question}`, `{passages}`, `{labels}`
and `{fence}` are filled in. The system's message that ships is the same for every request, so that
a server which caches the beginnings of prompts reads it once.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from rankproof.foundation.errors import InputError
from rankproof.foundation.files import read_text
from rankproof.foundation.manifest import digest
from rankproof.golden.judgments import Kind, pair_digest, truncate

_PROMPTS = Path(__file__).parents[1] / "resources" / "prompts"
_PLACEHOLDERS = re.compile(r"\{(question|passages|labels|fence)\}")
_FENCE_CHARS = 4  # of the code; more if the texts hold every short code


@dataclass(frozen=True, slots=True)
class Prompt:
    """The wording of one kind of request."""

    system: str
    user: str
    retry: str  # added after a reply that could not be used
    digest: str  # of the file


def read_prompt(kind: Kind, language: str = "en", path: Path | None = None) -> Prompt:
    """Read a built-in prompt, or the file of a user's own; raise InputError if it is incomplete.

    >>> from rankproof.golden.requests import read_prompt
    >>> "{passages}" in read_prompt("grade").user
    True
    """
    file = path or _PROMPTS / f"{kind}.{language}.txt"
    text = read_text(file)
    parts = [part.strip() for part in re.split(r"^---[ \t]*$", text, flags=re.M)]
    if len(parts) != 3 or not all(parts):
        raise InputError(
            f"the prompt has {len(parts)} parts, or an empty one",
            place=str(file),
            remedy="write three, a line --- after the first and the second",
        )
    system, user, retry = parts
    missing = [name for name in ("fence", "question", "passages") if f"{{{name}}}" not in user]
    if "{labels}" not in retry:
        missing.append("labels")
    if missing:
        raise InputError(
            f"the prompt has no {{{missing[0]}}} where it belongs",
            place=str(file),
            remedy="{fence}, {question} and {passages} belong in the second part, {labels} in "
            "the third",
        )
    return Prompt(system, user, retry, hashlib.sha256(text.encode()).hexdigest())


@dataclass(frozen=True)
class Request:
    """One request to a judge; `documents` and `texts` are in the order of `labels`."""

    kind: Kind
    query: str
    question: str
    documents: tuple[str, ...]
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    system: str
    user: str
    retry_note: str  # added in the next attempt
    schema: dict[str, Any]
    prompt: Prompt
    attempt: int = 1  # 2: after a reply that could not be used
    repeat: int = 0  # 1, 2, … if the judge is asked the same on purpose
    is_part: bool = False  # of a batch that failed as a whole

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
        """The pair (see `pair_digest`) of each document, in their order."""
        return tuple(pair_digest(self.question, text) for text in self.texts)

    def retry(self) -> Request:
        """The next attempt, which asks the judge to mind the form of its reply."""
        user = f"{self.user}\n\n{self.retry_note}"
        return replace(self, user=user, attempt=self.attempt + 1)

    def halves(self) -> list[Request]:
        """Two requests with the first and the second half of the passages."""
        passages = list(zip(self.documents, self.texts, strict=True))
        middle = -(-len(passages) // 2)
        requests = [
            make_request(
                self.kind,
                self.prompt,
                query=self.query,
                question=self.question,
                passages=half,
                repeat=self.repeat,
                shuffle=False,
            )
            for half in (passages[:middle], passages[middle:])
        ]
        return [replace(request, is_part=True) for request in requests]


def letter_label(number: int) -> str:
    """A, B, …, Z, AA, AB, … for 0, 1, …"""
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
    """Make a request about (document, text) pairs, shuffled by `seed` and the request itself.

    >>> from rankproof.golden.requests import make_request, read_prompt
    >>> passages = [("d1", "So."), ("d2", "Because.")]
    >>> request = make_request("grade", read_prompt("grade"), "q", "Why?", passages)
    >>> request.labels, sorted(request.documents)
    (('A', 'B'), ['d1', 'd2'])
    """
    if not passages:
        raise InputError(f"no passages to {kind}", place=f"query {query!r}")
    generator = random.Random(digest([seed, kind, query, sorted(d for d, _ in passages), repeat]))
    shown = list(passages)
    if shuffle:
        generator.shuffle(shown)
    texts = tuple(truncate(text, passage_chars) for _, text in shown)
    labels = tuple(letter_label(index) for index in range(len(shown)))
    code = _draw_code(generator, [question, *texts])
    fill = _prompt_filler(question, dict(zip(labels, texts, strict=True)), code)
    return Request(
        kind=kind,
        query=query,
        question=question,
        documents=tuple(document for document, _ in shown),
        texts=texts,
        labels=labels,
        system=fill(prompt.system),
        user=fill(prompt.user),
        retry_note=fill(prompt.retry),
        schema=_schema(kind, labels),
        prompt=prompt,
        repeat=repeat,
    )


def _prompt_filler(question: str, texts: dict[str, str], code: str) -> Callable[[str], str]:
    """A function that fills the placeholders of a prompt with these texts, fenced by a code."""
    blocks = [_fence(f"passage {label}", text, code) for label, text in texts.items()]
    values = {
        "fence": code,
        "labels": ", ".join(texts),
        "question": _fence("question", question, code),
        "passages": "\n\n".join(blocks),
    }
    # All placeholders at once, so that those in a passage's text are not filled in.
    return partial(_PLACEHOLDERS.sub, lambda match: values[match[1]])


def _draw_code(generator: random.Random, texts: Sequence[str]) -> str:
    """Draw a hexadecimal code that none of the texts contains, so that none can close its fence."""
    size, tries = _FENCE_CHARS, 0
    while True:
        code = f"{generator.getrandbits(4 * size):0{size}x}"
        if not any(code in text.lower() for text in texts):
            return code
        tries += 1
        size += tries % 8 == 0  # a long text may hold every short code


def _fence(name: str, text: str, code: str) -> str:
    """Return a text between marks that only this request uses."""
    return f"<<< {name} {code} >>>\n{text}\n<<< end of {name} {code} >>>"


def _schema(kind: Kind, labels: tuple[str, ...]) -> dict[str, Any]:
    """JSON schema of a usable reply."""
    properties: dict[str, Any]
    if kind == "grade":
        properties = {name: {"type": "integer", "enum": [1, 2, 3, 4, 5]} for name in labels}
    else:
        label_item = {"type": "string", "enum": list(labels)}
        properties = {"order": {"type": "array", "items": label_item}}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
