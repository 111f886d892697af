"""JSON over HTTP: one request, tried again while that can help, and one clear line when it cannot.

| the server | what happens |
|---|---|
| 408, 429, 500–599, a broken connection, no answer in time, half a body | tried again |
| an answer that is not JSON, or not of the shape that was asked for | tried again |
| any other status: 400, 401, 403, 404, 422, a redirection | an error at once |

Between two tries the client waits 1, 2, 4, … seconds (60 at most), less a random part so that many
clients do not come back together; or as long as Retry-After says. The key is read from the
environment when the client is made, and no message, repr or file holds it.
"""

from __future__ import annotations

import json
import random
import re
import time
import weakref
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, TypeVar

from rankproof.config import Count, Seconds, Settings, secret
from rankproof.errors import InputError, MissingExtra, shorten

T = TypeVar("T")

PATIENCE_S = 300.0  # a server that asks for more is left alone
_SLOWEST_S = 60.0
_QUOTED = 100  # characters of an answer that an error quotes
_TRIED_AGAIN = {408, 429}


class Unreadable(ValueError):
    """An answer that is JSON, but not of the shape that was asked for."""


class _Again(Exception):
    """This try failed, the next may not."""

    def __init__(self, problem: str, after_s: float | None = None):
        self.after_s = after_s
        super().__init__(problem)


class Endpoint(Settings):
    """A server that speaks JSON over HTTP. The key is in the environment, never in a file."""

    operation: ClassVar[frozenset[str]] = frozenset(
        {"url", "key_env", "timeout_s", "attempts", "batch"}
    )

    url: str
    model: str
    key_env: str | None = None  # the environment variable that holds the key
    timeout_s: Seconds = 60.0
    attempts: Count = 6  # of one request: 429, 5xx and broken connections are tried again
    batch: Count = 64


class JsonClient:
    """Posts to one URL. `sleep`, `now` and `seed` decide the waiting, for tests and repeatability.

    A `url` may be the address of the service (`https://host/v1`), to which `path` is added, or
    already end in `path`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        path: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
        seed: int | None = None,
    ):
        httpx = _httpx()
        self.endpoint = endpoint
        self._url = _full(endpoint.url, path)
        self.host = f"{self._url.host}:{self._url.port}" if self._url.port else self._url.host
        self._sleep, self._now, self._draw = sleep, now, random.Random(seed)
        self._key = _key(endpoint.key_env, self.host)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._client = httpx.Client(timeout=endpoint.timeout_s, headers=headers)
        weakref.finalize(self, self._client.close)

    def __repr__(self) -> str:
        return f"JsonClient({self.host!r})"

    def post(self, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
        """What `read` makes of the answer; it raises Unreadable where the shape is wrong."""
        from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

        tries = Retrying(
            sleep=self._sleep,
            stop=stop_after_attempt(self.endpoint.attempts),
            wait=self._wait,
            retry=retry_if_exception_type(_Again),
            reraise=True,
        )
        try:
            answer: T = tries(self._once, body, read)
        except _Again as last:
            count = self.endpoint.attempts
            raise InputError(
                f"{last} ({count} {'attempts' if count > 1 else 'attempt'})",
                place=self.host,
                remedy="see that the server is up and the url right, then run again",
            ) from None
        return answer

    def _once(self, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
        httpx = _httpx()
        try:
            response = self._client.post(self._url, json=body)
        except httpx.TimeoutException:
            raise _Again(f"no answer within {self.endpoint.timeout_s:g} s") from None
        except httpx.RequestError as error:
            reason = self._clean(str(error)) or type(error).__name__
            raise _Again(f"the connection failed: {reason}") from None
        if not response.is_success:
            raise self._refusal(response)
        try:
            answer = json.loads(response.content)
        except (ValueError, RecursionError):
            raise _Again(f"the answer is not JSON{self._words(response)}") from None
        try:
            return read(answer)
        except Unreadable as error:
            raise _Again(self._clean(str(error))) from None

    def _refusal(self, response: Any) -> Exception:
        status = response.status_code
        problem = f"the server answers {status}{self._words(response)}"
        if status in _TRIED_AGAIN or status >= 500:
            after_s = self._after_s(response.headers.get("Retry-After"))
            if after_s is None or after_s <= PATIENCE_S:
                return _Again(problem, after_s)
            remedy = f"it asks for {after_s:.0f} s of rest: run again after that"
            return InputError(problem, place=self.host, remedy=remedy)
        return InputError(problem, place=self.host, remedy=self._remedy(status))

    def _remedy(self, status: int) -> str:
        if status in (401, 403):
            variable = self.endpoint.key_env
            if variable is None:
                return "give key_env, the name of the environment variable that holds the key"
            return f"check the key in ${variable}"
        if status == 413:
            return f"send less at once: a batch below {self.endpoint.batch}"
        if 300 <= status < 400:
            return "give the url it redirects to"
        if status in (404, 405):
            return "check the url and the model"
        return "check the model and its settings"

    def _wait(self, state: Any) -> float:
        """Seconds before the next try."""
        failure = state.outcome.exception()
        backoff = min(_SLOWEST_S, 2.0 ** (state.attempt_number - 1))
        jittered = backoff * self._draw.uniform(0.5, 1.0)
        after_s = getattr(failure, "after_s", None)
        return jittered if after_s is None else float(after_s)

    def _after_s(self, value: str | None) -> float | None:
        """Retry-After in seconds from now; it is a number or a date. None where it says nothing."""
        if value is None:
            return None
        if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value, re.ASCII):
            return float(value)
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - self._now())
        except (ValueError, OverflowError):
            return None

    def _words(self, response: Any) -> str:
        """The first words of an answer, for an error; of HTML nothing."""
        text = response.text.strip()
        if not text or text.startswith("<"):
            return ""
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None
        while isinstance(said, dict):  # {"error": {"message": …}}, {"detail": …}, {"message": …}
            said = next((said[k] for k in ("error", "message", "detail") if k in said), None)
        return f": {shorten(self._clean(said if isinstance(said, str) else text), _QUOTED)}"

    def _clean(self, text: str) -> str:
        """On one line, and without the key: servers echo it, whole or with its middle starred."""
        if self._key:
            text = text.replace(self._key, "…")
            if len(self._key) >= 8:
                text = re.sub(rf"{re.escape(self._key[:4])}\S*", "…", text)
        return " ".join(text.split())


def _httpx() -> Any:
    try:
        import httpx2
        import tenacity  # noqa: F401
    except ImportError as absent:
        raise MissingExtra("an endpoint", absent.name or "httpx2", "retrieval") from None
    return httpx2


def _full(url: str, path: str) -> Any:
    """The URL to post to."""
    httpx = _httpx()
    try:
        base = httpx.URL(url.strip())
    except httpx.InvalidURL:
        base = None
    if base is None or base.scheme not in ("http", "https") or not base.host:
        raise InputError(
            "the url of an endpoint is no address",  # not quoted: it may hold a password
            remedy="write it as https://host/v1",
        )
    own = base.path.rstrip("/")
    return base.copy_with(path=own if own.endswith(path) else own + path)


def _key(variable: str | None, host: str) -> str | None:
    key = (secret(variable, host) or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError(
            f"the key in ${variable} has characters that no header takes",
            place=host,
            remedy="copy it again",
        )
    return key or None
