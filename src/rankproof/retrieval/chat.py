"""One question to a chat model behind any server that speaks OpenAI's chat shape.

How it is asked, and how patiently, is the HTTP client's (`retrieval/http.py`); here is what to say,
and the dialect that the server is found to speak.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from rankproof.retrieval.http import Address, JsonClient, Refused, Unanswered, Unreadable, quoted

_MOST = 1 << 40  # tokens; nobody counts more
OPENAI = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said, and what it took.

    >>> from rankproof.retrieval.chat import Answer
    >>> Answer("yes", tokens_in=12, tokens_out=1, seconds=0.2, model="mine").counted
    True
    """

    text: str
    tokens_in: int
    tokens_out: int
    seconds: float  # of the request that was answered; waiting between attempts is not counted
    model: str  # as the server names it
    counted: bool = True  # False: the server did not count tokens, and these are estimates
    tries: int = 1
    cut: bool = False  # it ended at the limit of tokens, not by itself
    chances: tuple[tuple[str, dict[str, float]], ...] = ()  # each token, and log P of the likeliest
    unread: str | None = None  # why the server's answer could not be read, where that is told


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
        chances: int = 0,
        paid: bool = False,
        **client: Any,
    ):
        """With `paid`, an answer that cannot be read is handed over as such, and not asked for
        again: it may have cost something. `client` are options of `JsonClient`: sleep, …"""
        self.model = model
        server = _Served(base_url or OPENAI, key_env, timeout_s, attempts, model)
        self._client = JsonClient(server, "/chat/completions", **client)
        self._limits: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
        if chances:  # of so many tokens at each place
            self._limits |= {"logprobs": True, "top_logprobs": chances}
        self._paid = paid
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
            if refusal.status not in (400, 403, 422):
                raise
            learned = _understood(refusal.problem, limits)
            if learned is not None:
                self._limits = learned
                return self.ask(system, user, schema)
            if refusal.status == 403 or not held or self._structured:
                raise
            # If it is the schema, this goes well; it may refuse more, one thing after another.
            answer = self.ask(system, user)
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
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            **{name: value for name, value in limits.items() if value is not None},
        }
        if schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "strict": True, "schema": schema},
            }
        planned = estimate_tokens(system) + estimate_tokens(user)
        try:
            heard = self._client.ask(
                *(body, read_answer),
                tokens=planned,
                spent=lambda said: _total(said, planned),
                paid=self._paid,
            )
        except Unanswered as failure:
            if failure.unread is None:
                raise
            told, spoken = _usage(failure.unread)
            counted = told is not None and spoken is not None
            if spoken is None:
                spoken = estimate_tokens(str(failure.unread))
            taken = (planned if told is None else told, spoken)
            return Answer("", *taken, 0.0, self.model, counted, unread=failure.problem)
        said = heard.value
        told, spoken = said.tokens_in, said.tokens_out
        return Answer(
            said.text,
            planned if told is None else told,
            estimate_tokens(said.text) if spoken is None else spoken,
            heard.seconds,
            said.model or self.model,
            told is not None and spoken is not None,
            heard.tries,
            said.cut,
            said.chances,
        )


def _understood(problem: str, limits: dict[str, Any]) -> dict[str, Any] | None:
    """The limits as a server wants them that refused these, where it says what it refused."""
    # Newer models call the limit of a reply max_completion_tokens, and say so.
    if "max_completion_tokens" in problem and "max_tokens" in limits:
        name = {"max_tokens": "max_completion_tokens"}
        return {name.get(limit, limit): value for limit, value in limits.items()}
    for words in (("logprobs", "top_logprobs"), ("temperature",)):  # models that reason take none
        if words[0] in problem and limits.get(words[0]) is not None:
            return {limit: value for limit, value in limits.items() if limit not in words}
    return None


@dataclass(frozen=True, slots=True)
class Said:
    """What a server said; None where it does not say."""

    text: str
    tokens_in: int | None
    tokens_out: int | None
    model: str | None
    cut: bool
    chances: tuple[tuple[str, dict[str, float]], ...]


def read_answer(answer: Any) -> Said:
    """The first choice of a reply of the chat's shape.

    A model that reasons may say its whole answer there, where its server keeps the two apart; of
    one that was cut off while it did, there are only drafts. Some servers give what it thought and
    what it says as a list of parts; what it will not answer, others say beside the text.
    """
    if isinstance(answer, dict) and "choices" not in answer and "error" in answer:
        raise _Trouble(f"the server says{quoted(answer)}")
    try:
        choice = answer["choices"][0]
        message = choice["message"]
        cut = choice.get("finish_reason") == "length"
        text = message.get("content") or message.get("refusal") or ""
        if isinstance(text, list):
            text = "".join(part["text"] for part in text if part["type"] == "text")
        if not text and not cut:
            text = message.get("reasoning_content") or message.get("reasoning") or ""
        model = answer.get("model")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise Unreadable("the reply is not of a chat's shape") from None
    if not isinstance(text, str):
        raise Unreadable("the reply is not text")
    told, said = _usage(answer)
    name = model if isinstance(model, str) and model else None
    return Said(text, told, said, name, cut, _chances(choice.get("logprobs")))


class _Trouble(Unreadable):
    """An error that comes as an answer: nothing was said."""

    trouble = True


def _usage(answer: Any) -> tuple[int | None, int | None]:
    """Tokens in and out as the server counts them; None where it does not."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    counts = usage if isinstance(usage, dict) else {}
    told, said = (
        count if type(count) is int and 0 <= count < _MOST else None
        for count in map(counts.get, ("prompt_tokens", "completion_tokens"))
    )
    return told, said


def _chances(given: Any) -> tuple[tuple[str, dict[str, float]], ...]:
    """Token by token, as OpenAI's servers and those like them say it; nothing where they do not."""
    try:
        return tuple(
            (
                str(each["token"]),
                {str(one["token"]): _log_p(one["logprob"]) for one in each["top_logprobs"]},
            )
            for each in given["content"]
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return ()


def _log_p(given: Any) -> float:
    value = float(given)
    if not value <= 0:
        raise ValueError
    return value


def _total(said: Said, planned: int) -> int:
    told, spoken = said.tokens_in, said.tokens_out
    return (planned if told is None else told) + (
        estimate_tokens(said.text) if spoken is None else spoken
    )
