"""The page's server: on 127.0.0.1, for as long as the command runs."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankproof.foundation.errors import InputError, MissingExtra, import_extra, shorten
from rankproof.foundation.locks import lock_owner
from rankproof.foundation.printable import escape_controls
from rankproof.golden.annotators import annotator_progress
from rankproof.golden.health import health_lines
from rankproof.golden.judgments import Correction
from rankproof.golden.store import ConcurrentChange, Store
from rankproof.golden.viewer import reading
from rankproof.golden.viewer.desk import Desk, Seat
from rankproof.golden.viewer.index import Index
from rankproof.golden.viewer.passages import Filter

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

_TYPES = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
_LONGEST = 1 << 16  # bytes of a change


def serve(
    path: str | Path,
    seats: Sequence[Seat],
    port: int,
    opened: Callable[[Seat, str], object],
    holes: Mapping[tuple[str, str], float] | None = None,
) -> None:
    """Serve a golden set until Ctrl-C; `opened` is told everybody's address."""
    with Store(path) as store, listen(port) as listener:
        server, urls = make_server(store, seats, listener, holes)
        for seat, url in zip(seats, urls, strict=True):
            opened(seat, url)
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


def has_screen() -> bool:
    """True if a browser would open a window; one in the terminal would take it over."""
    is_desktop = sys.platform in ("darwin", "win32")
    return is_desktop or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def login_name() -> str:
    """The name of the user who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may know no names
        raise InputError("your login has no name", remedy="say who corrects: --as NAME") from None


def make_server(
    store: Store,
    seats: Sequence[Seat],
    listener: socket.socket,
    holes: Mapping[tuple[str, str], float] | None = None,
) -> tuple[uvicorn.Server, list[str]]:
    """A server that is to run on a socket, and the address of each seat, with its token."""
    uvicorn = import_extra("uvicorn", "the viewer", "viewer")
    from rankproof.golden.viewer.guard import Guard

    names = [seat.who for seat in seats]
    if len(set(names)) < len(names):
        raise InputError(f"people {', '.join(names)}", place="--as", remedy="name each one once")
    port = listener.getsockname()[1]
    hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
    views = {secrets.token_urlsafe(24): View(store, seat, holes or {}) for seat in seats}
    config = uvicorn.Config(
        Guard({token: each.app() for token, each in views.items()}, hosts),
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=1,  # a browser keeps its connections
    )
    return uvicorn.Server(config), [f"http://127.0.0.1:{port}/{token}/" for token in views]


def listen(port: int) -> socket.socket:
    """A socket of this machine alone; port 0 is any that is free."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()  # a browser that is quick waits
    except (OSError, OverflowError) as error:
        listener.close()
        raise InputError(
            f"port {port} cannot be used ({getattr(error, 'strerror', None) or error})",
            place="--port",
            remedy="name another, or 0 for any that is free",
        ) from None
    return listener


class View:
    """A golden set as one person's page asks for it."""

    def __init__(self, store: Store, seat: Seat, holes: Mapping[tuple[str, str], float]):
        if store.meta("judge") is None or "grade" not in store.meta("done", {}):
            raise InputError(
                "nothing is graded yet",
                place=str(store.path),
                remedy="run `rankproof golden build` until grading is done",
            )
        self.store = store
        self.seat = seat
        self.desk = Desk(store.path, seat)
        self.index = Index(store, seat, holes)  # before anybody waits for it
        self.index.folded()
        self._mutex = threading.Lock()

    def app(self) -> ASGIApp:
        """Everything below /TOKEN/."""
        try:
            from starlette.applications import Starlette
            from starlette.responses import JSONResponse, Response
            from starlette.routing import Route
        except ImportError:
            raise MissingExtra("the viewer", "starlette", "viewer") from None

        assets = files("rankproof.golden.viewer") / "assets"

        def asset(name: str) -> Route:
            def read(request: Request) -> Response:
                return Response((assets / name).read_bytes(), media_type=_TYPES[name])

            return Route("/" if name == "page.html" else f"/{name}", read)

        def told(answer: Callable[[dict[str, str]], Any]) -> Callable[[Request], Response]:
            def endpoint(request: Request) -> Response:
                with self._mutex:
                    return JSONResponse(answer(dict(request.query_params)))

            return endpoint

        def change(answer: Callable[[dict[str, Any]], Any]) -> Callable[[Request], Any]:
            async def endpoint(request: Request) -> Response:
                from starlette.concurrency import run_in_threadpool

                return JSONResponse(await run_in_threadpool(answer, await _body(request)))

            return endpoint

        def refused(request: Request, error: Exception) -> Response:
            meanwhile = isinstance(error, ConcurrentChange)
            return JSONResponse({"error": escape_controls(str(error)), "meanwhile": meanwhile}, 409)

        routes = [asset(name) for name in _TYPES]
        routes += [
            Route(f"/api/{name}", told(answer))
            for name, answer in (
                ("set", self.set),
                ("questions", self.questions),
                ("question", self.question),
                ("evidence", self.evidence),
                ("pair", self.pair),
                ("sources", lambda given: reading.sources(self.store)),
                ("agreement", lambda given: reading.live_agreement(self.index)),
                ("health", lambda given: health_lines(self.store)),
                ("recent", lambda given: reading.recent_labels(self.index)),
                ("next", self.next),
            )
        ]
        routes += [
            Route(f"/api/{name}", change(answer), methods=["POST"])
            for name, answer in (
                ("label", self.label),
                ("move", self.move),
                ("prefer", self.prefer),
                ("undo", self.undo),
            )
        ]
        inner = Starlette(routes=routes, exception_handlers={InputError: refused})
        inner.router.redirect_slashes = False
        return inner

    # -------------------------------------------------------------------------------- reading

    def set(self, given: dict[str, str]) -> dict[str, Any]:
        judge = self.store.meta("judge")
        return {
            "name": self.store.path.name,
            "judge": judge["name"],
            "simulated": bool(judge.get("simulated")),
            "who": self.seat.who,
            "settles": self.seat.settles,
            "blind": self.seat.blind,
            "holes": len(self.index.holes),
            "readonly": self.readonly(),
            "progress": self.progress(),
            "questions": self.index.summaries(Filter()),
        }

    def progress(self) -> list[dict[str, Any]]:
        """Of everybody who labels, or is to."""
        return [
            asdict(each) for each in annotator_progress(self.store, self.index.active_corrections())
        ]

    def questions(self, given: dict[str, str]) -> Any:
        return self.index.summaries(Filter.of(given))

    def question(self, given: dict[str, str]) -> Any:
        return self.index.question(_named(given, "query"), Filter.of(given))

    def evidence(self, given: dict[str, str]) -> Any:
        query, doc = _named(given, "query"), _named(given, "doc")
        return reading.evidence(self.store, self.seat, query, doc)

    def pair(self, given: dict[str, str]) -> Any:
        query, first, second = (_named(given, name) for name in ("query", "first", "second"))
        if self.seat.blind:
            return {"together": 0, "first": 0}
        return reading.compared_pair(self.store, query, first, second)

    def next(self, given: dict[str, str]) -> Any:
        return self.index.next("random" if given.get("by") == "random" else "gain")

    def readonly(self) -> str | None:
        """Why nothing can be corrected now; None if it can."""
        path = self.store.path
        if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            return "you may not write to the file or its folder"
        writer = lock_owner(path)
        return None if writer is None else f"{writer} writes to it"

    # ------------------------------------------------------------------------------- changing

    def label(self, given: dict[str, Any]) -> dict[str, Any]:
        query, doc = _named(given, "query"), _named(given, "doc")
        grade, sure, note = given.get("grade"), given.get("sure"), given.get("note")
        if grade is not None and type(grade) is not int:
            raise InputError(f"grade {shorten(grade)}", remedy="give a whole number from 1 to 5")
        if sure is not None and type(sure) is not bool:
            raise InputError(f"sure {shorten(sure)}", remedy="give true or false")
        if note is not None:
            note = _named(given, "note").strip()
        return self._changed(self.desk.label(query, doc, grade, sure, note, _number(given, "seen")))

    def move(self, given: dict[str, Any]) -> dict[str, Any]:
        query, doc, rank = _named(given, "query"), _named(given, "doc"), _number(given, "rank")
        if rank is None:
            raise InputError("no rank is given", remedy="give one, a whole number")
        return self._changed(self.desk.move(query, doc, rank, _number(given, "seen")))

    def prefer(self, given: dict[str, Any]) -> dict[str, Any]:
        query, doc, over = (_named(given, name) for name in ("query", "doc", "over"))
        return self._changed(self.desk.prefer(query, doc, over, _number(given, "seen")))

    def undo(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._changed(self.desk.undo(_number(given, "correction")))

    def _changed(self, made: Correction) -> dict[str, Any]:
        with self._mutex:
            return {
                "made": self.index.correction_for_author(made),
                "question": self.index.question(made.query, Filter()),
                "summary": self.index.summaries(Filter(), made.query)[0],
                "progress": self.progress(),
            }


async def _body(request: Request) -> dict[str, Any]:
    """What a change says."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise InputError("the change is not JSON", remedy="send application/json")
    from starlette.requests import ClientDisconnect

    text = b""
    try:
        async for part in request.stream():
            text += part
            if len(text) > _LONGEST:
                raise InputError("the change is too long", remedy=f"send at most {_LONGEST} bytes")
    except ClientDisconnect:  # a page that was closed, to which nothing can be said
        raise InputError("the change did not arrive", remedy="send it again") from None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InputError("the change cannot be read", remedy="send one JSON object")
    return value


def _named(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise InputError(f"no {name} is given", remedy="name one")
    if any("\ud800" <= sign <= "\udfff" for sign in value):
        raise InputError(f"{name} {shorten(value)} is not text", remedy="send whole characters")
    return value


def _number(given: dict[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is not None and not (type(value) is int and 0 <= value < 1 << 63):
        raise InputError(f"{name} {shorten(value)}", remedy="give a whole number")
    return value
