"""JSON over HTTP, for chat, embeddings, reranking and search engines.

One request is tried again while that can help, and ends in one clear line when it cannot:

| the server | what happens |
|---|---|
| 408, 409, 429, 500–599, a broken connection, no answer in time, half a body | tried again |
| an answer that is not JSON, or not of the shape that was asked for | tried again; not if `paid` |
| one that comes byte by byte, headers too, ten times as long as `timeout_s` | tried again |
| any other status: 400, 401, 403, 404, 422, a redirection | `Refused` at once |
| a certificate that does not hold, an account without credit, over a gigabyte | refused at once |
| still no answer after `attempts` | `Unanswered` |

Between two tries the client waits 1, 2, 4, … seconds (60 at most), less a random part so that many
clients do not come back together; or as long as Retry-After says. A request contains only what the
caller gives: no proxy, `.netrc` or key of the environment that was not named. The key is read from
the environment when the client is made. No message, repr or file contains it, and it is removed
from the server's answers before anybody reads them.
"""

from __future__ import annotations

import base64
import functools
import json
import logging
import math
import os
import random
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Generic, Protocol, TypeVar
from urllib.parse import unquote

from rankproof.foundation import interrupts
from rankproof.foundation.config import Count, Seconds, Settings, read_secret
from rankproof.foundation.errors import InputError, MissingExtra, shorten
from rankproof.foundation.phrasing import plural
from rankproof.foundation.redaction import (
    MARK,
    redact,
    register_address,
    register_secret,
    remove_secrets,
)

T = TypeVar("T")

PROXY = "RANKPROOF_PROXY"  # the environment's usual proxy variables are meant for other programs
_LONGEST_RETRY_AFTER = 600.0  # seconds; a server that asks for more is not waited for
_LONGEST_BACKOFF = 60.0  # seconds
_TIMEOUTS_PER_ANSWER = 10  # timeout_s limits a single read, and servers may send blanks meanwhile
_LARGEST = 1 << 30  # bytes of an answer
_LISTEN = 0.2  # seconds of one wait; a single long wait would not notice Ctrl-C
_QUOTED = 160  # characters of an answer that an error quotes
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # also matches valid pairs, which are rare
_RETRIED = {408, 409, 429}


class Refused(InputError):
    """The server will not answer this request, however often it is sent."""

    def __init__(self, status: int, problem: str, *, place: str, remedy: str):
        super().__init__(problem, place=place, remedy=remedy)
        self.status = status


class Unanswered(InputError):
    """The server gave no usable answer in as many attempts as were allowed."""

    unread: Any = None  # the unusable answer, if answers are paid for


class Unreadable(ValueError):
    """An answer that is JSON, but not of the shape that was asked for."""

    is_error = False  # True if the answer reports an error of the server, so that it costs nothing


class Server(Protocol):
    """Address and timeouts of a server; the settings of components that call one satisfy it."""

    @property
    def url(self) -> str: ...
    @property
    def key_env(self) -> str | None: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def attempts(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Address:
    """A server for callers without settings."""

    url: str
    key_env: str | None = None  # the environment variable that holds the key
    timeout_s: float = 60.0
    attempts: int = 6


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


@dataclass(frozen=True, slots=True)
class Response(Generic[T]):
    """What was read from an answer, and what it took."""

    value: T
    seconds: float  # of the try that was answered, without the waiting between tries
    tries: int


class RateLimit:
    """Lets at most so many units pass in a minute; a token bucket that holds a second's worth.

    In any minute at most `per_minute` + max(1, per_minute/60) units pass, plus the excess of one
    request larger than the bucket; its debt is paid before the next request passes.
    """

    def __init__(
        self,
        per_minute: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = time.sleep,
    ):
        self._rate = per_minute / 60
        self._capacity = max(1.0, self._rate)
        self._level = self._capacity
        self._clock, self._sleep = clock, sleep
        self._updated = clock()
        self._lock = threading.Lock()

    def take(self, amount: float = 1.0) -> None:
        """Wait until `amount` units may pass."""
        with self._lock:
            now = self._clock()
            refilled = self._level + (now - self._updated) * self._rate
            self._level = min(self._capacity, refilled)
            self._updated = now
            # A request larger than the bucket passes once the bucket is full.
            wait = (min(amount, self._capacity) - self._level) / self._rate
            self._level -= amount
        if wait > 0:
            self._sleep(wait)

    def correct(self, amount: float) -> None:
        """Charge what a request took beyond its estimate, or return what it did not take."""
        with self._lock:
            self._level = min(self._capacity, self._level - amount)


class _TryAgain(Exception):
    """This try failed, the next may succeed."""

    def __init__(self, problem: str, after_s: float | None = None, unread: Any = None):
        self.after_s = after_s  # as the server's Retry-After says
        self.unread = unread  # an answer that could not be used
        super().__init__(problem)


@dataclass(slots=True)
class _Request(Generic[T]):
    """One request with its state over all tries."""

    method: str
    url: Any
    body: Any  # None: no body is sent
    read: Callable[[Any], T]
    planned_tokens: int
    count_tokens: Callable[[T], int] | None
    is_paid: bool
    stopping: threading.Event
    tries: int = 0

    @property
    def is_stopped(self) -> bool:
        return self.stopping.is_set() or interrupts.stopping()


class JsonClient:
    """Sends requests to one server; threads may share a client.

    A `url` may be the address of the service (`https://host/v1`), to which `path` is added, or
    already end in `path`. A user and password in it become an Authorization header. `sleep`, `now`,
    `clock` and `seed` decide the waiting, for tests and repeatability.
    """

    def __init__(
        self,
        server: Server,
        path: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        sleep: Callable[[float], Any] | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        seed: int | None = None,
    ):
        httpx = _httpx()
        self.server = server
        url = _full_url(server.url, path)
        self._url = url.copy_with(username=None, password=None)
        self.host = f"{url.host}:{url.port}" if url.port else url.host
        self._stopping = threading.Event()
        # Attributes by thread: `stopping`, the event of its request; `check_time`, see _receive.
        self._thread = threading.local()
        self._sleep = sleep or self._pause
        self._now, self._clock, self._random = now, clock, random.Random(seed)
        self._request_limit, self._token_limit = (
            RateLimit(limit, clock, self._sleep) if limit else None
            for limit in (requests_per_minute, tokens_per_minute)
        )
        self._client = httpx.Client(
            timeout=server.timeout_s,
            headers={**(headers or {}), **self._authorization(url)},
            follow_redirects=False,
            trust_env=False,
            verify=_trusted_certificates(),
            proxy=_proxy(),
        )
        weakref.finalize(self, self._client.close)

    def __repr__(self) -> str:
        return f"JsonClient({self.host!r})"

    def close(self) -> None:
        self._client.close()

    def stop(self) -> None:
        """End all waiting between tries; requests that are already sent are still answered."""
        current, self._stopping = self._stopping, threading.Event()
        current.set()

    def post(self, body: Any, read: Callable[[Any], T]) -> T:
        """Return what `read` makes of the answer; it raises Unreadable if the shape is wrong."""
        return self.ask(body, read).value

    def ask(
        self,
        body: Any,
        read: Callable[[Any], T],
        *,
        method: str = "POST",
        path: str = "",
        tokens: int = 0,
        spent: Callable[[T], int] | None = None,
        paid: bool = False,
    ) -> Response[T]:
        """Send a request, again if that can help; return the answer as read, with its cost.

        `path` is added to the url; a body of None is not sent. `tokens` is the estimate that the
        rate limit is charged beforehand, and `spent` returns the number of tokens of an answer. If
        answers are `paid` for, one that cannot be read is reported at once instead of requested
        again, so that the caller can count its cost.
        """
        request = _Request(
            method=method,
            url=self._url if not path else _full_url(str(self._url), path),
            body=body,
            read=read,
            planned_tokens=tokens,
            count_tokens=spent,
            is_paid=paid,
            stopping=self._stopping,
        )
        self._thread.stopping = request.stopping
        send: Callable[..., Response[T]] = self._retrying(request)
        try:
            return send(self._try, request)
        except _TryAgain as failure:
            if interrupts.stopping():
                raise KeyboardInterrupt from None
            error = Unanswered(
                f"{failure} ({plural(request.tries, 'attempt')})",
                place=self.host,
                remedy="see that the server is up and the url right, then run again",
            )
            error.unread = failure.unread if paid else None
            raise error from None

    def _retrying(self, request: _Request[T]) -> Any:
        """Return the loop that tries a request until it is answered, stopped or given up."""
        from tenacity import Retrying, retry_if_exception

        def can_retry(failure: BaseException) -> bool:
            is_charged = request.is_paid and getattr(failure, "unread", None) is not None
            return isinstance(failure, _TryAgain) and not is_charged

        def is_last(state: Any) -> bool:
            return state.attempt_number >= self.server.attempts or request.is_stopped

        return Retrying(
            retry=retry_if_exception(can_retry),
            stop=is_last,
            wait=self._seconds_to_wait,
            sleep=self._sleep,
            reraise=True,
        )

    def _try(self, request: _Request[T]) -> Response[T]:
        """Send the request once, as soon as the rate limits let it pass."""
        request.tries += 1
        if self._request_limit is not None:
            self._request_limit.take()
        if self._token_limit is not None:
            self._token_limit.take(request.planned_tokens)
        if request.stopping.is_set() or (request.tries > 1 and interrupts.stopping()):
            raise _TryAgain("stopped while it waited")
        start = time.perf_counter()
        value = self._exchange(request)
        if self._token_limit is not None and request.count_tokens is not None:
            self._token_limit.correct(request.count_tokens(value) - request.planned_tokens)
        return Response(value, time.perf_counter() - start, request.tries)

    def _exchange(self, request: _Request[T]) -> T:
        """Send the request and return its answer; raise `_TryAgain` if another try may help."""
        httpx = _httpx()
        try:
            with interrupts.waiting_for(self.host):
                response = self._receive(request)
        except httpx.TimeoutException:
            raise _TryAgain(f"no answer within {self.server.timeout_s:g} s") from None
        except httpx.RequestError as error:
            reason = _one_line(str(error)) or type(error).__name__
            if "CERTIFICATE_VERIFY_FAILED" in reason:
                raise InputError(
                    f"its certificate is not valid: {shorten(reason, _QUOTED)}",
                    place=self.host,
                    remedy="check the url, or name its authority's file in $SSL_CERT_FILE",
                ) from None
            raise _TryAgain(f"the connection failed: {reason}") from None
        if not response.is_success:
            raise self._failure(response)
        try:
            answer = _parse_json(response.content)
        except (ValueError, RecursionError):
            # A web page has no message: some proxy sent it, and it cost nothing.
            message = _error_message(response)
            raise _TryAgain(f"the answer is not JSON{message}", unread=message or None) from None
        try:
            return request.read(remove_secrets(answer))
        except Unreadable as error:
            unread = None if error.is_error else answer
            raise _TryAgain(_one_line(str(error)), unread=unread) from None
        except RecursionError:
            raise _TryAgain("the answer is nested too deeply", unread="") from None

    def _receive(self, request: _Request[Any]) -> Any:
        """Return the whole response, unless it takes too long or is too large."""
        limit = _TIMEOUTS_PER_ANSWER * self.server.timeout_s
        deadline, clock = self._clock() + limit, self._clock

        def check_time() -> None:
            if clock() > deadline:
                raise _TryAgain(f"no complete answer within {limit:g} s")

        self._thread.check_time = check_time
        options: dict[str, Any] = {} if request.body is None else {"json": request.body}
        options["extensions"] = {"trace": functools.partial(_check_time_of_reads, self._thread)}
        content = bytearray()
        with self._client.stream(request.method, request.url, **options) as response:
            for block in response.iter_bytes():
                content += block
                if len(content) > _LARGEST:
                    raise InputError(
                        f"its answer is larger than {_LARGEST >> 20} MB",
                        place=self.host,
                        remedy="check the url, or ask for less at once",
                    )
        # The content is decompressed already.
        headers = [(k, v) for k, v in response.headers.raw if k.lower() != b"content-encoding"]
        return _httpx().Response(response.status_code, headers=headers, content=bytes(content))

    def _failure(self, response: Any) -> Exception:
        """Return the exception for an unsuccessful response."""
        status = response.status_code
        problem = f"the server answers {status}{_error_message(response)}"
        remedy = self._remedy(status)
        if status == 429 and "insufficient_quota" in response.text:
            remedy = "the account has no credit left"
        elif status in _RETRIED or status >= 500:
            after_s = retry_after(response.headers.get("Retry-After"), self._now())
            if after_s is None or after_s <= _LONGEST_RETRY_AFTER:
                return _TryAgain(problem, after_s)
            remedy = f"it asks for {after_s:.0f} s of rest: run again after that"
        return Refused(status, problem, place=self.host, remedy=remedy)

    def _remedy(self, status: int) -> str:
        """Return what the user can do about a refusal with this status."""
        if status in (401, 403):
            variable = self.server.key_env
            if variable is None:
                return "give key_env, the name of the environment variable that holds the key"
            return f"check the key in ${variable}"
        if status == 413:
            batch = getattr(self.server, "batch", None)
            return "send less at once" + (f": a batch below {batch}" if batch else "")
        if 300 <= status < 400:
            return "give the url it redirects to"
        model = getattr(self.server, "model", None)
        if status in (404, 405):
            return "check the url" + (f", and whether it serves the model {model}" if model else "")
        return f"check the settings of the model {model}" if model else "check the settings"

    def _authorization(self, url: Any) -> dict[str, str]:
        """Return the Authorization header, from the key or from user and password in the url."""
        key = (read_secret(self.server.key_env, self.host) or "").strip()
        user_and_password = f"{unquote(url.username)}:{unquote(url.password)}"
        if key and user_and_password != ":":
            raise InputError(
                f"both a key (${self.server.key_env}) and a user in the url",
                place=self.host,
                remedy="give one of them",
            )
        if not (key.isascii() and key.isprintable()):
            raise InputError(
                f"the key in ${self.server.key_env} has characters that no header takes",
                place=self.host,
                remedy="copy it again",
            )
        if key:
            register_secret(key)
            return {"Authorization": f"Bearer {key}"}
        if user_and_password != ":":
            encoded = base64.b64encode(user_and_password.encode()).decode()
            return {"Authorization": f"Basic {encoded}"}
        return {}

    def _seconds_to_wait(self, state: Any) -> float:
        """Return the seconds before the next try: Retry-After, or a jittered backoff."""
        backoff = min(_LONGEST_BACKOFF, 2.0 ** (state.attempt_number - 1))
        jittered = backoff * self._random.uniform(0.5, 1.0)
        after_s = getattr(state.outcome.exception(), "after_s", None)
        return jittered if after_s is None else float(after_s)

    def _pause(self, seconds: float) -> None:
        """Sleep until the time is over or the thread's request is stopped."""
        stopping, end = self._thread.stopping, time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            if stopping.wait(min(remaining, _LISTEN)):
                return


def _check_time_of_reads(thread: threading.local, event: str, info: dict[str, Any]) -> None:
    """Trace hook: make each read of a new connection check the time, also reads of headers.

    The library's own timeout starts again with every byte.
    """
    if event not in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
        return
    stream = info["return_value"]
    read = stream.read

    def timed_read(max_bytes: int, timeout: float | None = None) -> bytes:
        thread.check_time()
        block: bytes = read(max_bytes, timeout)
        return block

    stream.read = timed_read


def retry_after(value: str | None, now: float) -> float | None:
    """Return Retry-After (a number or a date) as seconds from now; None if it is neither."""
    if value is None:
        return None
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value, re.ASCII):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def find_count(answer: Any, *paths: tuple[str, ...]) -> int | float | None:
    """Return the first number of 0 or more at one of these paths of keys in a JSON answer."""
    for path in paths:
        value: Any = answer
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and math.isfinite(value) and value >= 0:
            number: int | float = value
            return number
    return None


# --------------------------------------------------------------------------------- the library


def _httpx() -> Any:
    """Import the HTTP library, and remove secrets from what it logs."""
    try:
        import httpx2
        import tenacity  # noqa: F401
    except ImportError as absent:
        raise MissingExtra("a server", absent.name or "httpx2", "retrieval") from None
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_REDACTING)  # adding it again changes nothing
    return httpx2


class _Redacting(logging.Filter):
    """Removes secrets from log records: the library logs the address of each request."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redact(record.getMessage()), ()
        return True


_REDACTING = _Redacting()
_LOGGERS = ("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "proxy", "socks")))


@functools.cache
def _trusted_certificates() -> Any:
    """Return the authorities that the system trusts, or those of $SSL_CERT_FILE."""
    return _httpx().create_ssl_context()


def _proxy() -> Any:
    """Return the proxy that the environment names for rankproof, or None."""
    httpx = _httpx()
    address = os.environ.get(PROXY) or None
    if address is None:
        return None
    register_secret(address)
    try:
        return httpx.Proxy(address)
    except (ValueError, httpx.InvalidURL):
        raise InputError(
            f"the environment variable {PROXY} does not hold the address of a proxy",
            remedy="write http://host:port into it",
        ) from None


def _full_url(url: str, path: str) -> Any:
    """Return the url with `path` at its end."""
    httpx = _httpx()
    register_address(url)
    try:
        base = httpx.URL(url.strip())
    except httpx.InvalidURL:
        base = None
    if base is None or base.scheme not in ("http", "https") or not base.host:
        raise InputError(
            "the url of a server is not an address",  # not quoted: it may hold a password
            remedy="write it as https://host/v1",
        )
    if MARK in unquote(url):
        raise InputError(
            "the url came from a store, which keeps no password",
            place=base.host,
            remedy="give the key by key_env, and build again with that",
        )
    base_path = base.path.rstrip("/")
    return base.copy_with(path=base_path if base_path.endswith(path) else base_path + path)


# ------------------------------------------------------------------------------------- answers


def _parse_json(content: bytes) -> Any:
    """Parse an answer, replacing unpaired surrogates.

    JSON can hold halves of surrogate pairs, which cannot be written to a file; a model that stops
    inside an emoji leaves one.
    """
    answer = json.loads(content)
    if not _SURROGATE.search(content):
        return answer
    return json.loads(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))


def _error_message(response: Any) -> str:
    """Return the message of a response for an error, after a colon; nothing of a web page."""
    text = response.text.strip()
    if not text or text.startswith("<"):
        return ""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    return quote_message(answer, text)


def quote_message(answer: Any, default: str = "") -> str:
    """Return the message that an error answer wraps, or the default, after a colon.

    Servers write {"error": {"message": …}}, {"detail": …} or {"message": …}.
    """
    while isinstance(answer, dict):
        answer = next((answer[k] for k in ("error", "message", "detail") if k in answer), None)
    return f": {shorten(_one_line(answer if isinstance(answer, str) else default), _QUOTED)}"


def _one_line(text: str) -> str:
    """Return the text on one line, without secrets."""
    return " ".join(str(redact(text)).split())
