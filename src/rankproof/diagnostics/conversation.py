"""A question as people type it: five levels of conversational noise, each keeping the one below.

0  the question
1  a greeting and thanks
2  a filler before the question, a hedge after it
3  a sentence about the person who asks
4  a digression, emoji, a lower-case question with slips of the keyboard
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from rankproof.diagnostics.name_lists import check_language

LEVELS = (0, 1, 2, 3, 4)
"""Levels of noise, from none to the most.

>>> from rankproof.diagnostics import LEVELS
>>> LEVELS
(0, 1, 2, 3, 4)
"""

Kind = Literal[
    "greetings", "polite", "fillers", "hedges", "contexts", "digressions", "emoji", "emoji_end"
]

# In the order of the text; the question stands where the two meet.
BEFORE: tuple[tuple[Kind, int], ...] = (
    ("greetings", 1),
    ("emoji", 4),
    ("contexts", 3),
    ("fillers", 2),
)
AFTER: tuple[tuple[Kind, int], ...] = (
    ("hedges", 2),
    ("digressions", 4),
    ("polite", 1),
    ("emoji_end", 4),
)
_TYPOS = 0.2  # share of the long words that get one, at least one


@dataclass(frozen=True, slots=True)
class Noised:
    """What was put before and after a question, and what became of the question."""

    before: tuple[str, ...]
    question: str
    after: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join((*self.before, self.question, *self.after))


def noised(question: str, level: int, language: str, seed: int = 0) -> Noised:
    """The question at a level of noise; the same seed draws the same words at every level.

    >>> from rankproof.diagnostics import noised
    >>> noised("How do bees sleep?", 1, "en").text
    'Hey there, How do bees sleep? Thanks!'
    """
    pieces = fragments(check_language(language))
    # A question draws its own noise, whatever stands beside it in a list.
    own = int.from_bytes(hashlib.sha256(question.encode()).digest()[:8])
    random = np.random.default_rng([seed, 3, own])
    drawn: dict[str, str] = {}
    for kind, _ in (*BEFORE, *AFTER):
        choices = pieces["emoji" if kind == "emoji_end" else kind]
        drawn[kind] = choices[int(random.integers(len(choices)))]
    return Noised(
        tuple(drawn[kind] for kind, least in BEFORE if level >= least),
        misspelt(question.lower(), random) if level >= 4 else question,
        tuple(drawn[kind] for kind, least in AFTER if level >= least),
    )


def misspelt(text: str, random: np.random.Generator) -> str:
    """A slip in one of five words of four letters or more: swapped, dropped or doubled letters."""
    words = list(re.finditer(r"[^\W\d_]{4,}", text))
    if not words:
        return text
    count = max(1, round(_TYPOS * len(words)))
    letters = list(text)
    for at in random.permutation(len(words))[:count]:
        first, last = words[at].span()
        place = int(random.integers(first + 1, last - 1))  # the ends of a word are rarely wrong
        slip = _SLIPS[int(random.integers(len(_SLIPS)))]
        letters[place], letters[place + 1] = slip(text[place], text[place + 1])
    return "".join(letters)


_SLIPS: tuple[Callable[[str, str], tuple[str, str]], ...] = (
    lambda a, b: (b, a) if a != b else (a + a, b),  # swapped
    lambda a, b: ("", b),  # dropped
    lambda a, b: (a + a, b),  # doubled
)


@cache
def fragments(language: str) -> dict[str, Any]:
    """What ships with the package for a language: fragments by kind, and questions."""
    data = files("rankproof") / "resources" / f"noise.{check_language(language)}.toml"
    return tomllib.loads(data.read_text("utf-8"))


def questions(language: str) -> list[tuple[str, str]]:
    """The questions of the package, each with a passage that answers it."""
    return [(pair["question"], pair["passage"]) for pair in fragments(language)["questions"]]
