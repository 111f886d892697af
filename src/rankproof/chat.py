"""One question to a chat model over HTTP: patient with a busy server, plain about a refusal.

Any server that speaks OpenAI's chat shape will do. Waiting is injected (`sleep`, `clock`), so that
tests of patience take no time.

    429, 5xx, timeouts, broken connections, half replies    asked again: Retry-After, or backoff
    400, 401, 403, 404, 422 and the rest                    `Refused` at once, in one line
    still no answer after `attempts`                        `Unanswered`
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from rankproof.errors import InputError, MissingExtra

OPENAI = "https://api.openai.com/v1"
LONGEST_WAIT = 600.0  # seconds; a server that asks for more is not waited for


class Refused(InputError):
    """The server will not answer this request, however often it is asked."""

    def __init__(self, status: int, problem: str, *, place: str, remedy: str):
        super().__init__(problem, place=place, remedy=remedy)
        self.status = status


class Unanswered(InputError):
    """The server gave no usable answer in as many attempts as were allowed."""


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


class Bucket:
    """So many units a minute: a second's worth may be taken at once, the rest is waited for.

    In any minute at most `per_minute` + max(1, per_minute/60) units are let through, plus what one
    request larger than that takes; its debt is paid before the next one goes.
    """

    def __init__(
        self,
        per_minute: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = time.sleep,
    ):
        self._rate = per_minute / 60
        self._most = max(1.0, self._rate)
        self._level = self._most
        self._clock, self._sleep = clock, sleep
        self._then = clock()
        self._lock = threading.Lock()

    def take(self, amount: float = 1.0) -> None:
        """Wait until `amount` may go."""
        with self._lock:
            now = self._clock()
            self._level = min(self._most, self._level + (now - self._then) * self._rate)
            self._then = now
            # A request larger than the bucket goes once the bucket is full.
            wait = (min(amount, self._most) - self._level) / self._rate
            self._level -= amount
        if wait > 0:
            self._sleep(wait)

    def correct(self, amount: float) -> None:
        """Charge what a request turned out to take beyond its estimate (or give it back)."""
        with self._lock:
            self._level = min(self._most, self._level - amount)


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
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        sleep: Callable[[float], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
        seed: int = 0,
    ):
        try:
            import openai
        except ImportError:
            raise MissingExtra("a chat model", "openai", "judge") from None
        self.model = model
        self.attempts = attempts
        self._openai = openai
        self._key_env = key_env
        self._place = urlsplit(base_url or OPENAI).netloc.rpartition("@")[2] or "the chat endpoint"
        self._key = _key(key_env, self._place)
        self._limits: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
        self._structured: bool | None = None  # not yet known whether the server takes a schema
        self._stopping = threading.Event()
        self._sleep: Callable[[float], Any] = sleep or (lambda s: self._stopping.wait(s))
        self._jitter = random.Random(seed)
        self._requests, self._tokens = (
            Bucket(limit, clock, self._sleep) if limit else None
            for limit in (requests_per_minute, tokens_per_minute)
        )
        # A key in the environment is meant for its own server: one without `key_env` gets no
        # Authorization at all.
        self._headers: Any = {} if self._key else {"Authorization": openai.Omit()}
        try:
            self._client = openai.OpenAI(
                api_key=self._key or "none",
                base_url=base_url or OPENAI,
                timeout=timeout_s,
                max_retries=0,
            )
        except Exception as error:
            raise InputError(
                f"not the address of a server ({error})",
                place=str(base_url),
                remedy="write http://host:port/v1",
            ) from None

    def __repr__(self) -> str:
        return f"Chat({self.model!r}, {self._place!r})"

    def close(self) -> None:
        self._client.close()

    def stop(self) -> None:
        """Have nobody wait any longer who is asking now: what is sent already is still answered."""
        asking, self._stopping = self._stopping, threading.Event()
        asking.set()

    def ask(self, system: str, user: str, schema: dict[str, Any] | None = None) -> Answer:
        """One answer. With a JSON schema, the server is held to it where it can be."""
        from tenacity import (
            RetryCallState,
            Retrying,
            retry_if_exception_type,
            stop_after_attempt,
            stop_when_event_set,
        )

        planned = estimate_tokens(system) + estimate_tokens(user)
        stopping = self._stopping
        tries = 0

        def once() -> Answer:
            nonlocal tries
            tries += 1
            if self._requests is not None:
                self._requests.take()
            if self._tokens is not None:
                self._tokens.take(planned)
            if stopping.is_set():
                raise _TryAgain("stopped while it waited")
            answer = self._once(system, user, schema, tries)
            if self._tokens is not None:
                self._tokens.correct(answer.tokens_in + answer.tokens_out - planned)
            return answer

        def wait(state: RetryCallState) -> float:
            failure = state.outcome.exception() if state.outcome is not None else None
            asked = failure.wait if isinstance(failure, _TryAgain) else None
            if asked is not None:
                return asked
            longest = min(60.0, 0.5 * 2.0 ** (state.attempt_number - 1))
            return longest * (0.5 + 0.5 * self._jitter.random())

        try:
            return Retrying(
                retry=retry_if_exception_type(_TryAgain),
                stop=stop_after_attempt(self.attempts) | stop_when_event_set(stopping),
                wait=wait,
                sleep=self._sleep,
                reraise=True,
            )(once)
        except _TryAgain as failure:
            times = "once" if tries == 1 else f"{tries} times"
            raise Unanswered(
                f"{failure} ({times})",
                place=self._place,
                remedy="see that the server runs and has room, then run again",
            ) from None

    def _once(self, system: str, user: str, schema: dict[str, Any] | None, tries: int) -> Answer:
        """One request, in the dialect that the server has been found to speak."""
        held = schema is not None and self._structured is not False
        limits = self._limits  # other threads may learn a better name while this one is under way
        try:
            answer = self._send(system, user, schema if held else None, tries, limits)
        except Refused as refusal:
            if refusal.status not in (400, 422):
                raise
            # Newer models call the limit of a reply max_completion_tokens, and say so.
            if "max_completion_tokens" in refusal.problem and "max_tokens" in limits:
                self._limits = {
                    "max_completion_tokens" if name == "max_tokens" else name: value
                    for name, value in limits.items()
                }
                return self._once(system, user, schema, tries)
            if not held or self._structured:
                raise
            # If it is the schema, this goes well.
            answer = self._send(system, user, None, tries, limits)
            self._structured = False
            return answer
        if held:
            self._structured = True
        return answer

    def _send(
        self,
        system: str,
        user: str,
        schema: dict[str, Any] | None,
        tries: int,
        limits: dict[str, Any],
    ) -> Answer:
        openai = self._openai
        options = {name: value for name, value in limits.items() if value is not None}
        if schema is not None:
            options["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "strict": True, "schema": schema},
            }
        messages: Any = [
            {"role": "system", "content": system},
            {"role": "user", "content": user},
        ]
        begin = time.perf_counter()
        try:
            reply = self._client.chat.completions.with_raw_response.create(
                model=self.model, messages=messages, extra_headers=self._headers, **options
            )
            body = reply.content
        except openai.APITimeoutError:
            raise _TryAgain("no answer in time") from None
        except openai.APIConnectionError as error:
            raise _TryAgain(_broken(error)) from None
        except openai.APIStatusError as error:
            raise self._judged(error.status_code, error.response) from None
        seconds = time.perf_counter() - begin
        return self._read(body, seconds, tries, estimate_tokens(system) + estimate_tokens(user))

    def _judged(self, status: int, response: Any) -> Exception:
        """Whether a status is worth another attempt."""
        said = self._said(response)
        if status in (408, 409, 429) or status >= 500:
            wait = retry_after(response.headers)
            spent = status == 429 and "insufficient_quota" in said
            if not spent and (wait is None or wait <= LONGEST_WAIT):
                return _TryAgain(f"the server answered {status}", wait)
            if wait is not None and not spent:
                return Refused(
                    status,
                    f"the server answered {status} and asks to wait {wait:,.0f} s",
                    place=self._place,
                    remedy="run again then",
                )
        if status in (401, 403):  # what it says may hold a part of the key
            remedy = (
                f"check the key in ${self._key_env}"
                if self._key_env
                else "name the environment variable that holds the key in key_env"
            )
            return Refused(
                status, f"the server answered {status}", place=self._place, remedy=remedy
            )
        remedies = {
            404: f"check the address, and whether it serves the model {self.model}",
            429: "the account has no credit left",
        }
        remedy = remedies.get(status, f"check the settings of the model {self.model}")
        words = f": {said}" if said else ""
        return Refused(
            status, f"the server answered {status}{words}", place=self._place, remedy=remedy
        )

    def _said(self, response: Any) -> str:
        """The first words of an error, without the key."""
        try:
            value = json.loads(response.content)
            error = value.get("error", value) if isinstance(value, dict) else value
            said = error.get("message", error) if isinstance(error, dict) else error
            code = error.get("code") if isinstance(error, dict) else None
            text = f"{code}: {said}" if code == "insufficient_quota" else str(said)
        except (ValueError, RecursionError):
            text = response.text
        if self._key:
            text = text.replace(self._key, "…")
        line = " ".join(text.split())
        return line if len(line) <= 160 else f"{line[:159]}…"

    def _read(self, body: bytes, seconds: float, tries: int, planned: int) -> Answer:
        try:
            value = json.loads(body)
            text = value["choices"][0]["message"].get("content") or ""
            usage = value.get("usage") or {}
            tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
            model = value.get("model")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            raise _TryAgain("the reply is not of a chat's shape") from None
        if not isinstance(text, str):
            raise _TryAgain("the reply is not text")
        told, said = (
            count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None
            for count in tokens
        )
        return Answer(
            text,
            planned if told is None else told,
            estimate_tokens(text) if said is None else said,
            seconds,
            model if isinstance(model, str) and model else self.model,
            told is not None and said is not None,
            tries,
        )


class _TryAgain(Exception):
    """A failure that may pass; the server may have said how long to wait."""

    def __init__(self, what: str, wait: float | None = None):
        super().__init__(what)
        self.wait = wait


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After header, which holds seconds or a date."""
    text = headers.get("retry-after")
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            date = parsedate_to_datetime(text)
        except ValueError:
            return None
        aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        seconds = (aware - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if seconds == seconds else None


def _key(variable: str | None, place: str) -> str | None:
    from rankproof.config import secret

    return secret(variable, place)


def _broken(error: Exception) -> str:
    """Why there was no connection, in a few words."""
    cause = error.__cause__
    words = " ".join(str(cause or error).split())[:80]
    return f"the connection failed ({words})" if words else "the connection failed"
