"""Questions as people type them: five levels of conversational noise, each including the lower one.

0  the question
1  a greeting and thanks
2  a filler before the question, a hedge after it
3  a sentence about the person who asks
4  a digression, emoji, a lower-case question with typing errors
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

# Kinds of fragments around the question, in the order of the text, with the level that adds them.
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
_TYPO_SHARE = 0.2  # of the long words; at least one word has a typing error


@dataclass(frozen=True, slots=True)
class NoisyQuestion:
    """A question, perhaps misspelled, with the fragments put before and after it."""

    before: tuple[str, ...]
    question: str
    after: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join((*self.before, self.question, *self.after))


def add_noise(question: str, level: int, language: str, seed: int = 0) -> NoisyQuestion:
    """Return the question at a level of noise; a seed draws the same fragments at every level.

    >>> from rankproof.diagnostics import add_noise
    >>> add_noise("How do bees sleep?", 1, "en").text
    'Hey there, How do bees sleep? Thanks!'
    """
    fragments = shipped_texts(language)
    # Seeded by the question: its noise does not depend on the other questions.
    question_seed = int.from_bytes(hashlib.sha256(question.encode()).digest()[:8])
    random = np.random.default_rng([seed, 3, question_seed])
    drawn: dict[str, str] = {}
    for kind, _ in (*BEFORE, *AFTER):
        choices = fragments["emoji" if kind == "emoji_end" else kind]
        drawn[kind] = choices[int(random.integers(len(choices)))]
    return NoisyQuestion(
        before=tuple(drawn[kind] for kind, first_level in BEFORE if level >= first_level),
        question=misspell(question.lower(), random) if level >= 4 else question,
        after=tuple(drawn[kind] for kind, first_level in AFTER if level >= first_level),
    )


def misspell(text: str, random: np.random.Generator) -> str:
    """Return the text with an error in a fifth of its words of four letters or more, at least one.

    An error swaps two letters, drops one or doubles one.
    """
    words = list(re.finditer(r"[^\W\d_]{4,}", text))
    if not words:
        return text
    count = max(1, round(_TYPO_SHARE * len(words)))
    letters = list(text)
    for at in random.permutation(len(words))[:count]:
        start, end = words[at].span()
        place = int(random.integers(start + 1, end - 1))  # people rarely err at the ends of a word
        error = _TYPING_ERRORS[int(random.integers(len(_TYPING_ERRORS)))]
        letters[place], letters[place + 1] = error(text[place], text[place + 1])
    return "".join(letters)


# From two letters that follow one another to the text that replaces each.
_TYPING_ERRORS: tuple[Callable[[str, str], tuple[str, str]], ...] = (
    lambda a, b: (b, a) if a != b else (a + a, b),  # swapped
    lambda a, b: ("", b),  # dropped
    lambda a, b: (a + a, b),  # doubled
)


@cache
def shipped_texts(language: str) -> dict[str, Any]:
    """Return the fragments by kind, and the questions, that ship with rankproof for a language."""
    data = files("rankproof") / "resources" / f"noise.{check_language(language)}.toml"
    return tomllib.loads(data.read_text("utf-8"))


def shipped_questions(language: str) -> list[tuple[str, str]]:
    """Return the questions that ship with rankproof, each with a passage that answers it."""
    return [(pair["question"], pair["passage"]) for pair in shipped_texts(language)["questions"]]
