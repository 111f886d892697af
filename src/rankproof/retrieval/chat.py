"""One question to a chat model behind any server that speaks OpenAI's chat shape.

How it is asked, and how patiently, is the HTTP client's (`retrieval/http.py`); here is what to say,
and the dialect that the server is found to speak.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from rankproof.retrieval.http import Address, JsonClient, Refused, Unreadable

OPENAI = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said, and what it took."""

    text: str
    tokens_in: int
    tokens_out: int
    seconds: float  # of the request that was answered; waiting between attempts is not counted
    model: str  # as the server names it
    counted: bool = True  # False: the server did not count tokens, and these are estimates
    tries: int = 1


def estimate_tokens(text: str) -> int:
    """About one token for four bytes of UTF-8, rounded up: for plans, never for bills."""
    return -(-len(text.encode("utf-8", "replace")) // 4)


def unused(text: str) -> str:
    """A code that the text does not hold, so that nothing in it can close the marks around it."""
    code = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
    while code in text:
        code = hashlib.sha256(code.encode()).hexdigest()[:8]
    return code


@dataclass(frozen=True, slots=True)
class _Served(Address):
    model: str = ""  # for errors that name it


class Chat:
    """A model behind a chat endpoint. Threads may share one."""

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        key_env: str | None = None,
        *,
        timeout_s: float = 60.0,
        attempts: int = 6,
        temperature: float | None = 0.0,
        max_tokens: int | None = 1024,
        **client: Any,
    ):
        """`client` are options of `JsonClient`: requests_per_minute, tokens_per_minute, sleep, …"""
        self.model = model
        server = _Served(base_url or OPENAI, key_env, timeout_s, attempts, model)
        self._client = JsonClient(server, "/chat/completions", **client)
        self._limits: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
        self._structured: bool | None = None  # not yet known whether the server takes a schema

    def __repr__(self) -> str:
        return f"Chat({self.model!r}, {self._client.host!r})"

    def close(self) -> None:
        self._client.close()

    def stop(self) -> None:
        """Have nobody wait any longer who is asking now: what is sent already is still answered."""
        self._client.stop()

    def ask(self, system: str, user: str, schema: dict[str, Any] | None = None) -> Answer:
        """One answer, in the dialect that the server has been found to speak.

        With a JSON schema, the server is held to it where it can be.
        """
        held = schema is not None and self._structured is not False
        limits = self._limits  # other threads may learn a better name while this one is under way
        try:
            answer = self._send(system, user, schema if held else None, limits)
        except Refused as refusal:
            if refusal.status not in (400, 422):
                raise
            # Newer models call the limit of a reply max_completion_tokens, and say so.
            if "max_completion_tokens" in refusal.problem and "max_tokens" in limits:
                self._limits = {
                    "max_completion_tokens" if name == "max_tokens" else name: value
                    for name, value in limits.items()
                }
                return self.ask(system, user, schema)
            if not held or self._structured:
                raise
            # If it is the schema, this goes well.
            answer = self._send(system, user, None, limits)
            self._structured = False
            return answer
        if held:
            self._structured = True
        return answer

    def _send(
        self, system: str, user: str, schema: dict[str, Any] | None, limits: dict[str, Any]
    ) -> Answer:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": user},
            ],
            **{name: value for name, value in limits.items() if value is not None},
        }
        if schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "strict": True, "schema": schema},
            }
        planned = estimate_tokens(system) + estimate_tokens(user)
        heard = self._client.ask(
            body, read_answer, tokens=planned, spent=lambda said: _total(said, planned)
        )
        text, told, said, model = heard.value
        return Answer(
            text,
            planned if told is None else told,
            estimate_tokens(text) if said is None else said,
            heard.seconds,
            model or self.model,
            told is not None and said is not None,
            heard.tries,
        )


Said = tuple[str, int | None, int | None, str | None]
"""Text, tokens in, tokens out, model: what a server does not say is None."""


def read_answer(answer: Any) -> Said:
    """The first choice of a reply of the chat's shape."""
    try:
        text = answer["choices"][0]["message"].get("content") or ""
        usage = answer.get("usage") or {}
        tokens = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
        model = answer.get("model")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise Unreadable("the reply is not of a chat's shape") from None
    if not isinstance(text, str):
        raise Unreadable("the reply is not text")
    told, said = (count if type(count) is int and count >= 0 else None for count in tokens)
    return text, told, said, model if isinstance(model, str) and model else None


def _total(said: Said, planned: int) -> int:
    text, told, spoken, _ = said
    return (planned if told is None else told) + (
        estimate_tokens(text) if spoken is None else spoken
    )
