"""Words and patterns of English and French: what people write around a question.

The patterns are data, in `resources/words/patterns.*.toml`; here they become the regular
expressions by which the rules cut a question (`rewriters/rules.py`). They ignore case, except
inside (?-i:…): `um` is a hesitation, `UM` may be a university.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any, Literal

Name = Literal["en", "fr"]

# Chinese and Japanese put no blanks between words: there each character is one.
_UNSPACED = "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U000323af"
WORD = re.compile(rf"[^\W_{_UNSPACED}]+|[{_UNSPACED}]")


@dataclass(frozen=True)
class Language:
    """Words and patterns of one language; every pattern is a regular expression."""

    asks: str  # words that begin a question
    greetings: str
    addressees: str  # whom a greeting may greet
    lead_ins: str  # "could you tell me": cut where a question word follows
    joints: str  # "if", "about": cut together with the lead-in before them
    openers: str  # "quick question:"; cut with the punctuation that follows
    fillers: str  # cut at the start of a sentence, with the punctuation that follows
    hurried: str  # fillers that are also cut without punctuation, before a question word
    asides: str  # cut between two commas
    hesitations: str  # cut anywhere
    closings: str  # "thanks in advance": cut at the end of a sentence
    mentions: str  # words before a closing that make it the subject of the question
    courtesies: str  # sentences without a topic, some of them questions
    links: str  # words that join an aside to the question
    refers: str  # words that point back to an earlier sentence
    askers: str  # words for the person who asks, about whom an earlier sentence may matter
    empty: frozenset[str]  # a sentence of these words alone names no topic

    def compile(self, pattern: str) -> re.Pattern[str]:
        return re.compile(pattern, re.IGNORECASE)

    @cached_property
    def starter(self) -> re.Pattern[str]:
        """The beginning of a question, or of something that leads to one."""
        leads = "|".join((self.lead_ins, self.openers, self.greetings, self.hesitations))
        return self.compile(rf"(?:(?:{self.asks})\b|(?:{leads})(?![\w-]))")

    @cached_property
    def lead_in(self) -> re.Pattern[str]:
        question = rf"(?=(?:{self.asks})\b)"
        return self.compile(rf"(?:{self.lead_ins})\s*[:,…]?\s+(?:{question}|(?:{self.joints})\s+)")

    @cached_property
    def opener(self) -> re.Pattern[str]:
        return self.compile(rf"(?:{self.openers})\s*[:,.!…–—-]+\s+")

    @cached_property
    def greeting(self) -> re.Pattern[str]:
        return self.compile(
            rf"(?:{self.greetings})(?:,?\s+(?:{self.addressees}))?(?:\s*[,.!…:;–—-]+\s+|\s+)"
        )

    @cached_property
    def filler(self) -> re.Pattern[str]:
        return self.compile(rf"(?:{self.fillers})\s*[,.…!]+\s*|(?:{self.hurried})\s+")

    @cached_property
    def between(self) -> re.Pattern[str]:
        """An aside between two commas."""
        return self.compile(rf",\s*(?:{self.asides})\s*,\s*")

    @cached_property
    def hesitation(self) -> re.Pattern[str]:
        return re.compile(rf"(?:^|(?<=\s))(?:{self.hesitations})(?![\w'’-])[,.…]*\s*")

    @cached_property
    def closing(self) -> re.Pattern[str]:
        return self.compile(
            rf"(?:^|[\s,;:.!–—-]{{1,8}})\b(?:{self.closings})(?P<end>[\s,.!…]*\??)$"
        )

    @cached_property
    def mention(self) -> re.Pattern[str]:
        return self.compile(rf"\b(?:{self.mentions})[\s:,]*$")

    @cached_property
    def courtesy(self) -> re.Pattern[str]:
        sentences = f"{self.courtesies}|{self.closings}"
        greeted = rf"(?:{self.greetings})(?:,?\s+(?:{self.addressees}))?"
        return self.compile(rf"(?:(?:{sentences}|{greeted}|{self.fillers})[\s,.!?…]*){{1,4}}")

    @cached_property
    def link(self) -> re.Pattern[str]:
        return self.compile(rf"[,;]?\s+(?:{self.links})\s*,?\s+")

    @cached_property
    def reference(self) -> re.Pattern[str]:
        # Not after a hyphen: "est-il" points to the subject of its own sentence.
        return self.compile(rf"(?<![\w-])(?:{self.refers})\b")

    @cached_property
    def asker(self) -> re.Pattern[str]:
        return self.compile(rf"(?<![\w-])(?:{self.askers})(?!\w)")


def _read_language(name: Name) -> Language:
    """Read the patterns and words that the package ships for a language."""
    folder = files("rankproof") / "resources" / "words"
    table = tomllib.loads((folder / f"patterns.{name}.toml").read_text(encoding="utf-8"))
    parts = table.pop("parts")
    patterns: dict[str, Any] = {}
    for field, alternatives in table.items():
        pattern = "|".join(alternatives)
        while (expanded := re.sub(r"%(\w+)%", lambda part: parts[part[1]], pattern)) != pattern:
            pattern = expanded
        patterns[field] = pattern
    words = (folder / f"empty.{name}.txt").read_text(encoding="utf-8").split()
    return Language(**patterns, empty=frozenset(words))


LANGUAGES: dict[Name, Language] = {"en": _read_language("en"), "fr": _read_language("fr")}


def language_of(text: str) -> Name:
    """Return the language with more words in the text that the other lacks; English in doubt."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    english_words, french_words = LANGUAGES["en"].empty, LANGUAGES["fr"].empty
    english = sum(word in english_words and word not in french_words for word in words)
    french = sum(word in french_words and word not in english_words for word in words)
    has_accents = re.search(r"[éèêëàâçùûîïôœ]", text.lower()) is not None
    return "fr" if french > english or (french == english and has_accents) else "en"
