"""A chat model rewrites the question; what it may not do is lose it."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Literal, Protocol

from rankproof.retrieval.http import Endpoint
from rankproof.retrieval.languages import language_of
from rankproof.retrieval.parts import part

_LONGEST = 3  # times the question: past that it is an answer, or chat


class LlmRewriterSettings(Endpoint):
    """An OpenAI-compatible chat endpoint rewrites the question."""

    type: Literal["llm"]
    language: Literal["en", "fr", "auto"] = "auto"


class Asks(Protocol):
    """Anything that answers a prompt; the answer has a `text`."""

    def ask(self, system: str, user: str) -> Any: ...


class LlmRewriter:
    """A reply that is empty, or longer than three times the question, is not taken: the question
    stays as it was, and `kept` counts it.
    """

    def __init__(
        self, chat: Asks, language: Literal["en", "fr", "auto"] = "auto", *, name: str = "llm"
    ):
        self.name = name
        self.kept = 0  # questions that stayed as they were, since the reply could not be used
        self._chat, self._language = chat, language

    def rewrite(self, query: str) -> str:
        if not query.strip():
            return query
        language = language_of(query) if self._language == "auto" else self._language
        reply = self._chat.ask(prompt(language), query).text
        text = " ".join(reply.split()) if isinstance(reply, str) else ""
        if not text or len(text) > _LONGEST * len(query):
            self.kept += 1
            return query
        return text


def prompt(language: str) -> str:
    """What the model is told, from the file that the package ships."""
    file = files("rankproof") / "data" / "prompts" / f"rewrite.{language}.txt"
    return file.read_text(encoding="utf-8").strip()


@part("rewriter", "llm", extra="judge", imports=("httpx2",), network=True)
def make_llm(settings: LlmRewriterSettings) -> LlmRewriter:
    from rankproof.retrieval.chat import Chat

    chat = Chat(
        model=settings.model,
        base_url=settings.url,
        key_env=settings.key_env,
        timeout_s=settings.timeout_s,
        attempts=settings.attempts,
    )
    return LlmRewriter(chat, settings.language, name=f"llm {settings.model}")
