"""Questions to a chat model behind any server with OpenAI's chat interface.

Servers and models differ in what they accept: a JSON schema, the name of the token limit, a
temperature. The client begins with all options, and drops or renames one that a refusal names; this
then holds for all later questions. Retries are those of the HTTP client (`http.py`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from rankproof.retrieval.http import (
    Address,
    JsonClient,
    Refused,
    Unanswered,
    Unreadable,
    quote_message,
)

_TOKEN_LIMIT = 1 << 40  # larger counts are ignored as errors of the server
OPENAI = "https://api.openai.com/v1"
TokenLogs = tuple[tuple[str, dict[str, float]], ...]  # each token, and log P of its likeliest


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply of a model, and what it cost.

    >>> from rankproof.retrieval.chat import Answer
    >>> Answer("yes", tokens_in=12, tokens_out=1, seconds=0.2, model="mine").counted
    True
    """

    text: str
    tokens_in: int
    tokens_out: int
    seconds: float  # of the request that was answered, without the waiting between tries
    model: str  # as the server names it
    counted: bool = True  # False: the server did not count tokens, and these are estimates
    tries: int = 1
    cut: bool = False  # True: it was cut off at the limit of tokens
    chances: TokenLogs = ()
    unread: str | None = None  # why a paid answer could not be read; None if it could


def estimate_tokens(text: str) -> int:
    """Estimate one token for four bytes of UTF-8, rounded up: for plans, never for bills."""
    return -(-len(text.encode("utf-8", "replace")) // 4)


def unused_code(text: str) -> str:
    """Return a code that the text does not contain, for marks that nothing in it can close."""
    code = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
    while code in text:
        code = hashlib.sha256(code.encode()).hexdigest()[:8]
    return code


@dataclass(frozen=True, slots=True)
class _ModelAddress(Address):
    """An address, and the model that errors name."""

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
        """Prepare the client; nothing is sent.

        `chances` is the number of likeliest tokens to report at each place. With `paid`, an answer
        that cannot be read is returned as such instead of being requested again, since it may have
        cost something. `client` are options of `JsonClient`.
        """
        self.model = model
        server = _ModelAddress(base_url or OPENAI, key_env, timeout_s, attempts, model)
        self._client = JsonClient(server, "/chat/completions", **client)
        self._options: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
        if chances:
            self._options |= {"logprobs": True, "top_logprobs": chances}
        self._paid = paid
        self._takes_schema: bool | None = None  # None: not yet known

    def __repr__(self) -> str:
        return f"Chat({self.model!r}, {self._client.host!r})"

    def close(self) -> None:
        self._client.close()

    def stop(self) -> None:
        """End all waiting between tries; requests that are already sent are still answered."""
        self._client.stop()

    def ask(self, system: str, user: str, schema: dict[str, Any] | None = None) -> Answer:
        """Ask the model, in the form that its server is known to accept.

        A JSON schema is enforced by the server where it can.
        """
        sends_schema = schema is not None and self._takes_schema is not False
        options = self._options  # another thread may replace them during this request
        try:
            answer = self._send(system, user, schema if sends_schema else None, options)
        except Refused as refusal:
            if refusal.status not in (400, 403, 422):
                raise
            accepted = _accepted_options(refusal.problem, options)
            if accepted is not None:
                self._options = accepted
                return self.ask(system, user, schema)
            if refusal.status == 403 or not sends_schema or self._takes_schema:
                raise
            # Without the schema this succeeds, unless the server refuses something else as well.
            answer = self.ask(system, user)
            self._takes_schema = False
            return answer
        if sends_schema:
            self._takes_schema = True
        return answer

    def _send(
        self, system: str, user: str, schema: dict[str, Any] | None, options: dict[str, Any]
    ) -> Answer:
        """Send one request; return its answer and cost, also if it is unreadable but paid for."""
        body = self._body(system, user, schema, options)
        planned = estimate_tokens(system) + estimate_tokens(user)
        try:
            response = self._client.ask(
                body,
                read_reply,
                tokens=planned,
                spent=lambda reply: sum(reply.tokens.or_estimates(planned, reply.text)),
                paid=self._paid,
            )
        except Unanswered as failure:
            if failure.unread is None:
                raise
            usage = _read_usage(failure.unread)
            return Answer(
                "",
                *usage.or_estimates(planned, str(failure.unread)),
                seconds=0.0,
                model=self.model,
                counted=usage.is_complete,
                unread=failure.problem,
            )
        reply = response.value
        return Answer(
            reply.text,
            *reply.tokens.or_estimates(planned, reply.text),
            seconds=response.seconds,
            model=reply.model or self.model,
            counted=reply.tokens.is_complete,
            tries=response.tries,
            cut=reply.cut,
            chances=reply.chances,
        )

    def _body(
        self, system: str, user: str, schema: dict[str, Any] | None, options: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the JSON body of a request."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            **{name: value for name, value in options.items() if value is not None},
        }
        if schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "strict": True, "schema": schema},
            }
        return body


def _accepted_options(problem: str, options: dict[str, Any]) -> dict[str, Any] | None:
    """Return the options that a server accepts, if its refusal names one that it does not."""
    # Newer models call the limit of a reply max_completion_tokens, and say so.
    if "max_completion_tokens" in problem and "max_tokens" in options:
        return {
            "max_completion_tokens" if name == "max_tokens" else name: value
            for name, value in options.items()
        }
    for refused in (("logprobs", "top_logprobs"), ("temperature",)):  # as reasoning models do
        if refused[0] in problem and options.get(refused[0]) is not None:
            return {name: value for name, value in options.items() if name not in refused}
    return None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counts them; None where it does not."""

    read: int | None
    written: int | None

    @property
    def is_complete(self) -> bool:
        return self.read is not None and self.written is not None

    def or_estimates(self, planned: int, text: str) -> tuple[int, int]:
        """Return tokens read and written, estimated where the server did not count."""
        return (
            planned if self.read is None else self.read,
            estimate_tokens(text) if self.written is None else self.written,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """The first choice of a server's answer."""

    text: str
    tokens: Usage
    model: str | None
    cut: bool
    chances: TokenLogs


def read_reply(answer: Any) -> Reply:
    """Read the first choice of an answer of the chat's shape.

    Some servers return the text as a list of parts, a refusal beside the text, or the whole answer
    of a reasoning model as its reasoning. If the reply was cut off, its reasoning is not
    used as an answer.
    """
    if isinstance(answer, dict) and "choices" not in answer and "error" in answer:
        raise _ServerError(f"the server says{quote_message(answer)}")
    try:
        choice = answer["choices"][0]
        message = choice["message"]
        is_cut = choice.get("finish_reason") == "length"
        text = message.get("content") or message.get("refusal") or ""
        if isinstance(text, list):
            text = "".join(part["text"] for part in text if part["type"] == "text")
        if not text and not is_cut:
            text = message.get("reasoning_content") or message.get("reasoning") or ""
        model = answer.get("model")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise Unreadable("the reply is not of a chat's shape") from None
    if not isinstance(text, str):
        raise Unreadable("the reply is not text")
    return Reply(
        text=text,
        tokens=_read_usage(answer),
        model=model if isinstance(model, str) and model else None,
        cut=is_cut,
        chances=_read_logprobs(choice.get("logprobs")),
    )


class _ServerError(Unreadable):
    """An error of the server in an answer with status 200."""

    is_error = True


def _read_usage(answer: Any) -> Usage:
    """Return the tokens that an answer counts; counts that are no whole numbers are ignored."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    counts = [
        usage.get(key) if isinstance(usage, dict) else None
        for key in ("prompt_tokens", "completion_tokens")
    ]
    return Usage(*(n if type(n) is int and 0 <= n < _TOKEN_LIMIT else None for n in counts))


def _read_logprobs(logprobs: Any) -> TokenLogs:
    """Read log probabilities in OpenAI's form; empty if the answer has none in that form."""
    try:
        return tuple(
            (
                str(place["token"]),
                {str(t["token"]): _log_probability(t["logprob"]) for t in place["top_logprobs"]},
            )
            for place in logprobs["content"]
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return ()


def _log_probability(logprob: Any) -> float:
    """Return a log probability; raise ValueError for a number above 0 or NaN."""
    value = float(logprob)
    if not value <= 0:  # also NaN
        raise ValueError
    return value
