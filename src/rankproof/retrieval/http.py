"""JSON over HTTP, for chat, embeddings, reranking and engines: one request, tried again while that
can help, and one clear line when it cannot.

| the server | what happens |
|---|---|
| 408, 409, 429, 500–599, a broken connection, no answer in time, half a body | tried again |
| an answer that is not JSON, or not of the shape that was asked for | tried again; not if `paid` |
| one that comes byte by byte, headers too, ten times as long as `timeout_s` | tried again |
| any other status: 400, 401, 403, 404, 422, a redirection | `Refused` at once |
| a certificate that does not hold, an account without credit, over a gigabyte | refused at once |
| still no answer after `attempts` | `Unanswered` |

Between two tries the client waits 1, 2, 4, … seconds (60 at most), less a random part so that many
clients do not come back together; or as long as Retry-After says. Nothing but what the caller gives
goes into a request: no proxy, `.netrc` or key of the environment that was not named. The key is
read from the environment when the client is made; no message, repr or file holds it, and what a
server says of it is taken out of its answers before anybody reads them.
"""

from __future__ import annotations

import base64
import functools
import json
import logging
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
from rankproof.foundation.redaction import (
    MARK,
    redact,
    register_address,
    register_secret,
    remove_secrets,
)

T = TypeVar("T")

PATIENCE_S = 600.0  # a server that asks for more is left alone
PROXY = "RANKPROOF_PROXY"  # the environment's own proxies are meant for others
_SLOWEST_S = 60.0
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # whole pairs too: they are few
_QUOTED = 160  # characters of an answer that an error quotes
_DRIPPING = 10  # times the timeout, which is that of one read: servers send blanks meanwhile
_LARGEST = 1 << 30  # bytes of an answer
_LISTEN_S = 0.2  # a wait in one piece may not hear Ctrl-C
_TRIED_AGAIN = {408, 409, 429}


class Refused(InputError):
    """The server will not answer this request, however often it is asked."""

    def __init__(self, status: int, problem: str, *, place: str, remedy: str):
        super().__init__(problem, place=place, remedy=remedy)
        self.status = status


class Unanswered(InputError):
    """The server gave no usable answer in as many attempts as were allowed."""

    unread: Any = None  # the answer that it did give, where each is paid for


class Unreadable(ValueError):
    """An answer that is JSON, but not of the shape that was asked for."""

    trouble = False  # it says that there is none


class Server(Protocol):
    """Where to ask and how patiently: settings of any part that asks a server are one."""

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


@dataclass(frozen=True, slots=True)
class Heard(Generic[T]):
    """What was made of an answer, and what it took."""

    value: T
    seconds: float  # of the request that was answered; waiting between attempts is not counted
    tries: int


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


class _Again(Exception):
    """This try failed, the next may not."""

    def __init__(self, problem: str, after_s: float | None = None, unread: Any = None):
        self.after_s = after_s
        self.unread = unread  # what the server answered nevertheless
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
    """Asks one server; threads may share a client.

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
        url = _full(server.url, path)
        self._url = url.copy_with(username=None, password=None)
        self.host = f"{url.host}:{url.port}" if url.port else url.host
        self._stopping = threading.Event()
        self._mine = threading.local()  # the event that a thread's own request listens to
        self._sleep = sleep or self._pause
        self._now, self._clock, self._draw = now, clock, random.Random(seed)
        self._requests, self._tokens = (
            Bucket(limit, clock, self._sleep) if limit else None
            for limit in (requests_per_minute, tokens_per_minute)
        )
        self._client = httpx.Client(
            timeout=server.timeout_s,
            headers={**(headers or {}), **self._authorization(url)},
            follow_redirects=False,
            trust_env=False,
            verify=_certificates(),
            proxy=_proxy(),
        )
        weakref.finalize(self, self._client.close)

    def __repr__(self) -> str:
        return f"JsonClient({self.host!r})"

    def close(self) -> None:
        self._client.close()

    def stop(self) -> None:
        """Have nobody wait any longer who is asking now: what is sent already is still answered."""
        asking, self._stopping = self._stopping, threading.Event()
        asking.set()

    def post(self, body: Any, read: Callable[[Any], T]) -> T:
        """What `read` makes of the answer; it raises Unreadable where the shape is wrong."""
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
    ) -> Heard[T]:
        """The same with what it took. `path` comes after the url; a body of None is not sent.

        Of a rate of tokens, `tokens` are taken beforehand; `spent` says how many it were. Where
        every answer is `paid` for, one that cannot be read is told at once: whoever asks counts it.
        """
        from tenacity import RetryCallState, Retrying, retry_if_exception

        url = self._url if not path else _full(str(self._url), path)
        stopping = self._mine.stopping = self._stopping
        tries = 0

        def once() -> Heard[T]:
            nonlocal tries
            tries += 1
            if self._requests is not None:
                self._requests.take()
            if self._tokens is not None:
                self._tokens.take(tokens)
            if stopping.is_set() or (tries > 1 and interrupts.stopping()):
                raise _Again("stopped while it waited")
            begin = time.perf_counter()
            value = self._once(method, url, body, read)
            if self._tokens is not None and spent is not None:
                self._tokens.correct(spent(value) - tokens)
            return Heard(value, time.perf_counter() - begin, tries)

        def again(failure: BaseException) -> bool:
            return isinstance(failure, _Again) and not (paid and failure.unread is not None)

        def enough(state: RetryCallState) -> bool:
            last = state.attempt_number >= self.server.attempts
            return last or stopping.is_set() or interrupts.stopping()

        try:
            return Retrying(
                retry=retry_if_exception(again),
                stop=enough,
                wait=self._wait,
                sleep=self._sleep,
                reraise=True,
            )(once)
        except _Again as last:
            if interrupts.stopping():
                raise KeyboardInterrupt from None
            failure = Unanswered(
                f"{last} ({tries} {'attempts' if tries > 1 else 'attempt'})",
                place=self.host,
                remedy="see that the server is up and the url right, then run again",
            )
            failure.unread = last.unread if paid else None
            raise failure from None

    def _once(self, method: str, url: Any, body: Any, read: Callable[[Any], T]) -> T:
        httpx = _httpx()
        try:
            with interrupts.waiting_for(self.host):
                response = self._whole(method, url, {} if body is None else {"json": body})
        except httpx.TimeoutException:
            raise _Again(f"no answer within {self.server.timeout_s:g} s") from None
        except httpx.RequestError as error:
            reason = _line(str(error)) or type(error).__name__
            if "CERTIFICATE_VERIFY_FAILED" in reason:
                raise InputError(
                    f"its certificate is not valid: {shorten(reason, _QUOTED)}",
                    place=self.host,
                    remedy="check the url, or name its authority's file in $SSL_CERT_FILE",
                ) from None
            raise _Again(f"the connection failed: {reason}") from None
        if not response.is_success:
            raise self._refusal(response)
        try:
            answer = _read_json(response.content)
        except (ValueError, RecursionError):
            words = _words(response)  # none of a page, which is somebody's on the way
            raise _Again(f"the answer is not JSON{words}", unread=words or None) from None
        try:
            return read(remove_secrets(answer))
        except Unreadable as error:
            unread = None if error.trouble else answer
            raise _Again(_line(str(error)), unread=unread) from None
        except RecursionError:
            raise _Again("the answer is nested too deeply", unread="") from None

    def _whole(self, method: str, url: Any, sent: dict[str, Any]) -> Any:
        """An answer with all of its headers and body, unless that takes too long or too much."""
        most = _DRIPPING * self.server.timeout_s
        last, clock = self._clock() + most, self._clock

        def in_time() -> None:
            if clock() > last:
                raise _Again(f"no complete answer within {most:g} s")

        self._mine.in_time = in_time
        sent["extensions"] = {"trace": functools.partial(_watch, self._mine)}
        held = bytearray()
        with self._client.stream(method, url, **sent) as response:
            for some in response.iter_bytes():
                held += some
                if len(held) > _LARGEST:
                    raise InputError(
                        f"its answer is larger than {_LARGEST >> 20} MB",
                        place=self.host,
                        remedy="check the url, or ask for less at once",
                    )
        said = [(k, v) for k, v in response.headers.raw if k.lower() != b"content-encoding"]
        return _httpx().Response(response.status_code, headers=said, content=bytes(held))

    def _refusal(self, response: Any) -> Exception:
        status = response.status_code
        problem = f"the server answers {status}{_words(response)}"
        if status == 429 and "insufficient_quota" in response.text:
            return Refused(
                status, problem, place=self.host, remedy="the account has no credit left"
            )
        if status in _TRIED_AGAIN or status >= 500:
            after_s = retry_after(response.headers.get("Retry-After"), self._now())
            if after_s is None or after_s <= PATIENCE_S:
                return _Again(problem, after_s)
            remedy = f"it asks for {after_s:.0f} s of rest: run again after that"
            return Refused(status, problem, place=self.host, remedy=remedy)
        return Refused(status, problem, place=self.host, remedy=self._remedy(status))

    def _remedy(self, status: int) -> str:
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
        key = (read_secret(self.server.key_env, self.host) or "").strip()
        pair = f"{unquote(url.username)}:{unquote(url.password)}"
        if key and pair != ":":
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
        if pair != ":":
            encoded = base64.b64encode(pair.encode()).decode()
            return {"Authorization": f"Basic {encoded}"}
        return {}

    def _wait(self, state: Any) -> float:
        """Seconds before the next try."""
        failure = state.outcome.exception()
        backoff = min(_SLOWEST_S, 2.0 ** (state.attempt_number - 1))
        jittered = backoff * self._draw.uniform(0.5, 1.0)
        after_s = getattr(failure, "after_s", None)
        return jittered if after_s is None else float(after_s)

    def _pause(self, seconds: float) -> None:
        """Sleep, until somebody says stop."""
        stopping, end = self._mine.stopping, time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not stopping.wait(min(left, _LISTEN_S)):
            pass


def _watch(mine: threading.local, event: str, info: dict[str, Any]) -> None:
    """Have each read of a new connection, also those of headers, look whether it is still in time:
    the library's own timeout begins anew with every byte."""
    if event not in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
        return
    stream = info["return_value"]
    read = stream.read

    def looking(most: int, timeout: float | None = None) -> bytes:
        mine.in_time()
        some: bytes = read(most, timeout)
        return some

    stream.read = looking


def retry_after(value: str | None, now: float) -> float | None:
    """Retry-After in seconds from now; it is a number or a date. None where it says nothing."""
    if value is None:
        return None
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value, re.ASCII):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _httpx() -> Any:
    try:
        import httpx2
        import tenacity  # noqa: F401
    except ImportError as absent:
        raise MissingExtra("a server", absent.name or "httpx2", "retrieval") from None
    for name in _LOGS:
        logging.getLogger(name).addFilter(_REDACTING)  # once: a filter is there or it is not
    return httpx2


class _Redacting(logging.Filter):
    """The library writes each address that it asks to its log, whoever listens."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redact(record.getMessage()), ()
        return True


_REDACTING = _Redacting()
_LOGS = ("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "proxy", "socks")))


@functools.cache
def _certificates() -> Any:
    """The authorities that the system trusts, or those of $SSL_CERT_FILE."""
    return _httpx().create_ssl_context()


def _proxy() -> Any:
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


def _full(url: str, path: str) -> Any:
    """The URL to ask."""
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
    own = base.path.rstrip("/")
    return base.copy_with(path=own if own.endswith(path) else own + path)


def _read_json(content: bytes) -> Any:
    """An answer without halves of surrogate pairs, which JSON can hold and nothing can write: a
    model that stops inside an emoji leaves one."""
    answer = json.loads(content)
    if not _SURROGATE.search(content):
        return answer
    return json.loads(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))


def _words(response: Any) -> str:
    """The first words of an answer, for an error; of HTML nothing."""
    text = response.text.strip()
    if not text or text.startswith("<"):
        return ""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    return quoted(said, text)


def quoted(said: Any, instead: str = "") -> str:
    """The words of an error as servers wrap them, after a colon."""
    while isinstance(said, dict):  # {"error": {"message": …}}, {"detail": …}, {"message": …}
        said = next((said[k] for k in ("error", "message", "detail") if k in said), None)
    return f": {shorten(_line(said if isinstance(said, str) else instead), _QUOTED)}"


def _line(text: str) -> str:
    """On one line, and without secrets."""
    return " ".join(str(redact(text)).split())
