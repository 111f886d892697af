"""A chat model rewrites the question; what it may not do is lose it, or answer it.

The text is shown as data between marks that it does not hold, with the instruction after it: a bare
question is answered. A reply is taken only where it can be a rewriting; the question stays as it
was where the reply

    is empty                    or longer than three times the question
    drops the question          the text asks and the reply states
    brings a number or a name   that the text does not hold
    loses the topic             more than half of the content words of what is asked (two thirds
                                where it takes several sentences, and of those that ask), or
                                all that the question points back to
    brings new words            more than half of its own content words
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cache
from importlib.resources import files
from typing import Any, Literal, Protocol

from rankproof.foundation.manifest import digest
from rankproof.retrieval.chat import Chat, unused_code
from rankproof.retrieval.components import part
from rankproof.retrieval.http import Endpoint
from rankproof.retrieval.languages import LANGUAGES, Language, Name, language_of
from rankproof.retrieval.protocols import Rewritten
from rankproof.retrieval.rewriters.rules import RulesRewriter

_LONGEST = 3  # times the question: past that it is an answer, or chat
_LEAST_KEPT = 0.5  # of the content words of a sentence
_LEAST_OF_MANY = 1 / 3  # and of several
_MOST_NEW = 0.5  # of its own
_STEM = 5  # letters in which two forms of a word agree
_GENERAL = {"happe", "occur", "mean", "passe", "arriv", "signi"}  # stems: of whatever was said
_IMPERSONAL = re.compile(  # "is it safe to": it points to nothing
    r"\bit(?= (?:\w+ ){1,3}(?:to|that)\b)|\bil(?= (?:est|faut|y)\b)", re.IGNORECASE
)
_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_LABEL = re.compile(
    r"^(?:(?:the|a|la|une)\s+)?(?:(?:rewritten|plain|search|réécrite)\s+)*"
    r"(?:question|query|text|texte|requête)(?:\s+(?:rewritten|réécrite|simple))?\s*:\s+",
    re.IGNORECASE,
)
_QUOTES = {'"': '"', "“": "”", "«": "»", "`": "`", "'": "'", "‘": "’"}

Kept = Literal[
    "empty", "too long", "no question", "a new number", "a new name", "lost its topic", "new words"
]


class LlmRewriterSettings(Endpoint):
    """An OpenAI-compatible chat endpoint rewrites the question."""

    type: Literal["llm"]
    language: Literal["en", "fr", "auto"] = "auto"

    @property
    def decides(self) -> dict[str, Any]:
        """All that the model may be told: it decides what comes of a question."""
        return {"prompts": digest([template(name) for name in LANGUAGES])}


class Asks(Protocol):
    """Anything that answers a prompt; the answer has a `text`."""

    def ask(self, system: str, user: str) -> Any: ...


class LlmRewriter:
    """`rewritten` says what came of a question; `kept` counts those that stayed as they were, and
    `reasons` why.
    """

    def __init__(
        self, chat: Asks, language: Literal["en", "fr", "auto"] = "auto", *, name: str = "llm"
    ):
        self.name = name
        self.reasons: Counter[Kept] = Counter()
        self._chat, self._language = chat, language

    @property
    def kept(self) -> int:
        """Questions that stayed as they were, since the reply could not be used."""
        return self.reasons.total()

    def rewrite(self, query: str) -> str:
        return self.rewritten(query).text

    def rewritten(self, query: str) -> Rewritten:
        """The question as it is searched, and whether it had to be kept as it was."""
        if not query.strip():
            return Rewritten(query)
        name = language_of(query) if self._language == "auto" else self._language
        answer = self._chat.ask(*prompt(name, query))
        reply, taken = answer.text, _taken(answer)
        text = _plain(reply) if isinstance(reply, str) else ""
        reason = refusal(query, text, LANGUAGES[name], name)
        if reason is None:
            return Rewritten(text, tokens=taken)
        self.reasons[reason] += 1
        return Rewritten(query, reason, reply if isinstance(reply, str) else None, taken)


def _taken(answer: Any) -> tuple[float, float] | None:
    """Tokens read and written, where whoever answered counted them."""
    if not getattr(answer, "counted", False):
        return None
    return float(answer.tokens_in), float(answer.tokens_out)


def prompt(language: Name, text: str) -> tuple[str, str]:
    """What the model is told, and the text with what to do with it."""
    system, user = template(language)
    return system, user.replace("{code}", unused_code(text)).replace("{text}", text.strip())


@cache
def template(language: Name) -> tuple[str, str]:
    """The two parts of the file that the package ships."""
    file = files("rankproof") / "resources" / "prompts" / f"rewrite.{language}.txt"
    system, _, user = file.read_text(encoding="utf-8").partition("\n---\n")
    return system.strip(), user.strip()


def refusal(query: str, text: str, language: Language, name: Name) -> Kept | None:
    """Why a reply is no rewriting of a question; None where it can be one."""
    if not text:
        return "empty"
    if len(text) > _LONGEST * len(query):
        return "too long"
    if _asks(query, language) and not _is_question(text, language):
        return "no question"
    held = _folded(query)
    if not set(_numbers(text)) <= set(_numbers(query)):
        return "a new number"
    if any(_folded(word) not in held for word in _names(text, language)):
        return "a new name"
    asked = RulesRewriter(name, "question").rewrite(query)  # without what people write around it
    topic = {_stem(word) for word in _content(asked, language)}
    found = {_stem(word) for word in _content(text, language)}
    # Where the question points back to other sentences, they stay, and with them what is not asked.
    least = _LEAST_KEPT if len(re.findall(r"[.!?…]+(?:\s|$)", asked)) < 2 else _LEAST_OF_MANY
    if topic and len(topic & found) < least * len(topic):
        return "lost its topic"
    sentences = re.split(r"(?<=[.!?…])\s+", query)
    asking = [some for some in sentences if _asks(some, language)]
    core = {_stem(word) for some in asking for word in _content(some, language)} - _GENERAL
    if len(core & found) < _LEAST_OF_MANY * len(core):  # asks for something else that was said
        return "lost its topic"
    before = [word for some in sentences if some not in asking for word in _content(some, language)]
    back = any(language.reference.search(_IMPERSONAL.sub("", some)) for some in asking)
    if back and before and found.isdisjoint(map(_stem, before)):  # "which of these cities"
        return "lost its topic"
    new = found - {_stem(word) for word in _content(query, language)}
    return "new words" if len(new) > _MOST_NEW * len(found) else None


def _plain(reply: str) -> str:
    """A reply on one line, without marks, a label or quotation marks around it."""
    lines = (line for line in reply.splitlines() if not line.strip().startswith(("<<<", "```")))
    text = _LABEL.sub("", " ".join(" ".join(lines).split()))
    inner = text[1:-1]
    if len(text) > 2 and _QUOTES.get(text[0]) == text[-1] and text[0] not in inner:
        text = inner.strip()
    return text


def _asks(text: str, language: Language) -> bool:
    """Whether a text asks, somewhere: people forget the question mark."""
    leads = "|".join(language.lead_ins)
    begins = language.compiled(rf"(?:(?:{language.asks})\b|(?:{leads})(?![\w-]))")
    return "?" in text or any(begins.match(some) for some in re.split(r"[.!…;:,]\s+", text))


def _is_question(text: str, language: Language) -> bool:
    """Whether a reply does: with its mark, or from its first word on."""
    return "?" in text or language.compiled(rf"(?:{language.asks})\b").match(text) is not None


def _numbers(text: str) -> list[str]:
    return [number.replace(",", "").replace(".", "") for number in _NUMBER.findall(text)]


def _names(text: str, language: Language) -> list[str]:
    """Words with a capital inside a sentence, or in capitals."""
    found = []
    for sentence in re.split(r"(?<=[.!?…])\s+", text):
        for at, word in enumerate(_WORD.findall(sentence)):
            acronym = word.isupper() and len(word) > 1 and not word.isdigit()
            capital = at > 0 and word[0].isupper() and word.lower() not in language.empty
            if acronym or (capital and len(word) > 1):
                found.append(word)
    return found


def _content(text: str, language: Language) -> list[str]:
    """Words that name a topic."""
    words = [word.lower() for word in _WORD.findall(text)]
    return [w for w in words if (len(w) > 2 or w.isdigit()) and w not in language.empty]


def _folded(text: str) -> str:
    """Without accents and capitals: people type as they can."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in plain if not unicodedata.combining(c))


def _stem(word: str) -> str:
    return _folded(word).rstrip("s")[:_STEM]


@part("rewriter", "llm", extra="judge", imports=("httpx2",), network=True)
def make_llm(settings: LlmRewriterSettings) -> LlmRewriter:
    chat = Chat(
        model=settings.model,
        base_url=settings.url,
        key_env=settings.key_env,
        timeout_s=settings.timeout_s,
        attempts=settings.attempts,
    )
    return LlmRewriter(chat, settings.language, name=f"llm {settings.model}")
