"""Rewriter that asks a chat model, and refuses replies that lose the question or answer it.

The question is shown as data between marks that it does not contain, with the instruction after it,
since models answer a bare question. The question stays as typed where the reply

    is empty                    or longer than three times the question
    drops the question          the text asks and the reply states
    adds a number or a name     that the text does not contain
    loses the topic             more than half of the content words of what is asked (two thirds
                                where it takes several sentences, and of those that ask), or
                                all that the question points back to
    adds new words              more than half of its own content words
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

_MAX_LENGTH = 3  # times the question: a longer reply is an answer, or chat
_MIN_KEPT = 0.5  # share of the content words of one sentence
_MIN_KEPT_OF_SEVERAL = 1 / 3  # share of the content words of several sentences
_MAX_NEW = 0.5  # share of the reply's content words
_STEM = 5  # letters in which two forms of a word agree
_GENERAL = {"happe", "occur", "mean", "passe", "arriv", "signi"}  # stems that fit any topic
_IMPERSONAL = re.compile(  # "is it safe to": such an "it" points to nothing
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
        """The prompts that ship with the package."""
        return {"prompts": digest([template(name) for name in LANGUAGES])}


class ChatModel(Protocol):
    """Anything that answers a prompt; the answer has a `text`."""

    def ask(self, system: str, user: str) -> Any: ...


class LlmRewriter:
    """Rewrites questions with a chat model; `reasons` counts why replies were refused."""

    def __init__(
        self, chat: ChatModel, language: Literal["en", "fr", "auto"] = "auto", *, name: str = "llm"
    ):
        self.name = name
        self.reasons: Counter[Kept] = Counter()
        self._chat, self._language = chat, language

    @property
    def kept(self) -> int:
        """Number of questions that stayed as typed, because the reply was refused."""
        return self.reasons.total()

    def rewrite(self, query: str) -> str:
        return self.rewritten(query).text

    def rewritten(self, query: str) -> Rewritten:
        """Return the question as it is searched, and why it stayed as typed if it did."""
        if not query.strip():
            return Rewritten(query)
        name = language_of(query) if self._language == "auto" else self._language
        answer = self._chat.ask(*prompt(name, query))
        reply, tokens = answer.text, _counted_tokens(answer)
        text = _strip_marks(reply) if isinstance(reply, str) else ""
        reason = refusal_reason(query, text, LANGUAGES[name], name)
        if reason is None:
            return Rewritten(text, tokens=tokens)
        self.reasons[reason] += 1
        return Rewritten(query, reason, reply if isinstance(reply, str) else None, tokens)


def _counted_tokens(answer: Any) -> tuple[float, float] | None:
    """Return tokens read and written, if they are not estimates."""
    if not getattr(answer, "counted", False):
        return None
    return float(answer.tokens_in), float(answer.tokens_out)


def prompt(language: Name, text: str) -> tuple[str, str]:
    """Return the system prompt, and the user prompt with the question in it."""
    system, user = template(language)
    return system, user.replace("{code}", unused_code(text)).replace("{text}", text.strip())


@cache
def template(language: Name) -> tuple[str, str]:
    """Read the system and the user prompt that the package ships."""
    file = files("rankproof") / "resources" / "prompts" / f"rewrite.{language}.txt"
    system, _, user = file.read_text(encoding="utf-8").partition("\n---\n")
    return system.strip(), user.strip()


def refusal_reason(query: str, text: str, language: Language, name: Name) -> Kept | None:
    """Return why a reply cannot be a rewriting of the question; None if it can."""
    if not text:
        return "empty"
    if len(text) > _MAX_LENGTH * len(query):
        return "too long"
    if _asks(query, language) and not _is_question(text, language):
        return "no question"
    if not set(_numbers(text)) <= set(_numbers(query)):
        return "a new number"
    folded_query = _fold(query)
    if any(_fold(word) not in folded_query for word in _names(text, language)):
        return "a new name"
    stems = _topic_stems(text, language)
    if _loses_topic(query, stems, language, name):
        return "lost its topic"
    new = stems - _topic_stems(query, language)
    return "new words" if len(new) > _MAX_NEW * len(stems) else None


def _loses_topic(query: str, stems: set[str], language: Language, name: Name) -> bool:
    """True if the stems of a reply lack too many of the question's content words."""
    # If the question refers to earlier sentences, these stay in its core, with further words.
    core = RulesRewriter(name, "question").rewrite(query)
    topic = _topic_stems(core, language)
    has_one_sentence = len(re.findall(r"[.!?…]+(?:\s|$)", core)) < 2
    min_kept = _MIN_KEPT if has_one_sentence else _MIN_KEPT_OF_SEVERAL
    if topic and len(topic & stems) < min_kept * len(topic):
        return True
    sentences = _split_sentences(query)
    questions = [sentence for sentence in sentences if _asks(sentence, language)]
    question_stems = _stems_of_all(questions, language) - _GENERAL
    if len(question_stems & stems) < _MIN_KEPT_OF_SEVERAL * len(question_stems):
        return True  # the reply asks for something else
    context = _stems_of_all([s for s in sentences if s not in questions], language)
    refers_back = any(
        language.reference.search(_IMPERSONAL.sub("", question)) for question in questions
    )
    # "Which of these cities" is lost without the sentence that names the cities.
    return refers_back and bool(context) and stems.isdisjoint(context)


def _strip_marks(reply: str) -> str:
    """Return a reply on one line, without marks, a label or quotation marks around it."""
    lines = (line for line in reply.splitlines() if not line.strip().startswith(("<<<", "```")))
    text = _LABEL.sub("", " ".join(" ".join(lines).split()))
    inner = text[1:-1]
    if len(text) > 2 and _QUOTES.get(text[0]) == text[-1] and text[0] not in inner:
        text = inner.strip()
    return text


def _split_sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.!?…])\s+", text)


def _asks(text: str, language: Language) -> bool:
    """True if a text asks anywhere, with or without a question mark."""
    begins = language.compile(rf"(?:(?:{language.asks})\b|(?:{language.lead_ins})(?![\w-]))")
    clauses = re.split(r"[.!…;:,]\s+", text)
    return "?" in text or any(begins.match(clause) for clause in clauses)


def _is_question(text: str, language: Language) -> bool:
    """True if a reply has a question mark, or begins with a question word."""
    return "?" in text or language.compile(rf"(?:{language.asks})\b").match(text) is not None


def _numbers(text: str) -> list[str]:
    return [number.replace(",", "").replace(".", "") for number in _NUMBER.findall(text)]


def _names(text: str, language: Language) -> list[str]:
    """Return words in capitals, and words with a capital inside a sentence."""
    names = []
    for sentence in _split_sentences(text):
        for position, word in enumerate(_WORD.findall(sentence)):
            if len(word) < 2:
                continue
            is_acronym = word.isupper() and not word.isdigit()
            is_ordinary = word.lower() in language.empty
            if is_acronym or (position > 0 and word[0].isupper() and not is_ordinary):
                names.append(word)
    return names


def _topic_stems(text: str, language: Language) -> set[str]:
    """Return the stems of the words that name a topic."""
    words = [word.lower() for word in _WORD.findall(text)]
    content = [w for w in words if (len(w) > 2 or w.isdigit()) and w not in language.empty]
    return {_fold(word).rstrip("s")[:_STEM] for word in content}


def _stems_of_all(sentences: list[str], language: Language) -> set[str]:
    """Return the topic stems of several sentences."""
    return set().union(*(_topic_stems(sentence, language) for sentence in sentences))


def _fold(text: str) -> str:
    """Return a text without accents and capitals, as people may type it."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in decomposed if not unicodedata.combining(c))


@part("rewriter", "llm", extra="judge", imports=("httpx2",), network=True)
def make_llm(settings: LlmRewriterSettings) -> LlmRewriter:
    """Return a rewriter that sends questions to the chat model of the settings."""
    chat = Chat(
        model=settings.model,
        base_url=settings.url,
        key_env=settings.key_env,
        timeout_s=settings.timeout_s,
        attempts=settings.attempts,
    )
    return LlmRewriter(chat, settings.language, name=f"llm {settings.model}")
