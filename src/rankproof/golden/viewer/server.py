"""The HTTP server of the viewer, on 127.0.0.1 for as long as the command runs."""

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
from rankproof.golden.annotators import Key, annotator_progress
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
    from starlette.routing import Route
    from starlette.types import ASGIApp

_ASSET_TYPES = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
_MAX_BODY_BYTES = 1 << 16


def serve(
    path: str | Path,
    seats: Sequence[Seat],
    port: int,
    on_ready: Callable[[Seat, str], object],
    holes: Mapping[Key, float] | None = None,
) -> None:
    """Serve a golden set until Ctrl-C; `on_ready` is called with each seat and its address.

    `holes` are unlabeled passages, by their effect on a comparison of runs.
    """
    with Store(path) as store, listen(port) as listener:
        server, urls = make_server(store, seats, listener, holes)
        for seat, url in zip(seats, urls, strict=True):
            on_ready(seat, url)
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


def has_screen() -> bool:
    """True if a browser would open a window; one in the terminal would cover the addresses."""
    is_desktop = sys.platform in ("darwin", "win32")
    return is_desktop or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def login_name() -> str:
    """The name of the user who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # users of a container may have none
        raise InputError("your login has no name", remedy="say who corrects: --as NAME") from None


def make_server(
    store: Store,
    seats: Sequence[Seat],
    listener: socket.socket,
    holes: Mapping[Key, float] | None = None,
) -> tuple[uvicorn.Server, list[str]]:
    """Make a server for a socket, and an address with a secret token for each seat."""
    uvicorn = import_extra("uvicorn", "the viewer", "viewer")
    from rankproof.golden.viewer.guard import Guard

    names = [seat.who for seat in seats]
    if len(set(names)) < len(names):
        raise InputError(f"people {', '.join(names)}", place="--as", remedy="name each one once")
    port = listener.getsockname()[1]
    hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
    views = {secrets.token_urlsafe(24): View(store, seat, holes or {}) for seat in seats}
    config = uvicorn.Config(
        Guard({token: view.app() for token, view in views.items()}, hosts),
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=1,  # browsers keep connections open
    )
    return uvicorn.Server(config), [f"http://127.0.0.1:{port}/{token}/" for token in views]


def listen(port: int) -> socket.socket:
    """Open a socket that only this machine can reach; port 0 means any free one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()  # from now on a browser can connect, and waits for the server
    except (OSError, OverflowError) as error:
        listener.close()
        raise InputError(
            f"port {port} cannot be used ({getattr(error, 'strerror', None) or error})",
            place="--port",
            remedy="name another, or 0 for any that is free",
        ) from None
    return listener


class View:
    """What one person's page requests: the methods are the endpoints of `/api/`."""

    def __init__(self, store: Store, seat: Seat, holes: Mapping[Key, float]):
        """Read the whole set into memory; raise InputError if nothing is graded yet."""
        if store.meta("judge") is None or "grade" not in store.meta("done", {}):
            raise InputError(
                "nothing is graded yet",
                place=str(store.path),
                remedy="run `rankproof golden build` until grading is done",
            )
        self.store = store
        self.seat = seat
        self.desk = Desk(store.path, seat)
        self.index = Index(store, seat, holes)
        self.index.folded()  # now, so that the first search is fast
        self._mutex = threading.Lock()

    def app(self) -> ASGIApp:
        """Return the app with the page's files and endpoints."""
        try:
            from starlette.applications import Starlette
        except ImportError:
            raise MissingExtra("the viewer", "starlette", "viewer") from None

        queries: dict[str, Callable[[dict[str, str]], Any]] = {
            "set": self.set,
            "questions": self.questions,
            "question": self.question,
            "evidence": self.evidence,
            "pair": self.pair,
            "sources": lambda _: reading.sources(self.store),
            "agreement": lambda _: reading.live_agreement(self.index),
            "health": lambda _: health_lines(self.store),
            "recent": lambda _: reading.recent_labels(self.index),
            "next": self.next,
        }
        changes = {
            "label": self.label,
            "move": self.move,
            "prefer": self.prefer,
            "undo": self.undo,
        }
        routes = [
            *(_asset_route(name) for name in _ASSET_TYPES),
            *(_query_route(name, answer, self._mutex) for name, answer in queries.items()),
            *(_change_route(name, answer) for name, answer in changes.items()),
        ]
        app = Starlette(routes=routes, exception_handlers={InputError: _refuse})
        app.router.redirect_slashes = False
        return app

    # -------------------------------------------------------------------------------- reading

    def set(self, parameters: dict[str, str]) -> dict[str, Any]:
        """The set, its judge, what this person may do, and every query."""
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
        """How much everybody has labeled who did or was assigned passages."""
        corrections = self.index.active_corrections()
        return [asdict(person) for person in annotator_progress(self.store, corrections)]

    def questions(self, parameters: dict[str, str]) -> Any:
        """The queries with passages that a filter selects."""
        return self.index.summaries(Filter.of(parameters))

    def question(self, parameters: dict[str, str]) -> Any:
        """A query and its passages."""
        return self.index.question(_text(parameters, "query"), Filter.of(parameters))

    def evidence(self, parameters: dict[str, str]) -> Any:
        """What a passage's grade and rank rest on."""
        query, doc = _text(parameters, "query"), _text(parameters, "doc")
        return reading.evidence(self.store, self.seat, query, doc)

    def pair(self, parameters: dict[str, str]) -> Any:
        """How often the judge preferred one passage to another; hidden from the blind."""
        query, first, second = (_text(parameters, name) for name in ("query", "first", "second"))
        if self.seat.blind:
            return {"together": 0, "first": 0}
        return reading.compared_pair(self.store, query, first, second)

    def next(self, parameters: dict[str, str]) -> Any:
        """The passage to label next."""
        return self.index.next("random" if parameters.get("by") == "random" else "gain")

    def readonly(self) -> str | None:
        """Why nothing can be corrected now; None if something can."""
        path = self.store.path
        if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            return "you may not write to the file or its folder"
        writer = lock_owner(path)
        return None if writer is None else f"{writer} writes to it"

    # ------------------------------------------------------------------------------- changing

    def label(self, body: dict[str, Any]) -> dict[str, Any]:
        """Store a grade, doubt or a note."""
        query, doc = _text(body, "query"), _text(body, "doc")
        grade, sure, note = body.get("grade"), body.get("sure"), body.get("note")
        if grade is not None and type(grade) is not int:
            raise InputError(f"grade {shorten(grade)}", remedy="give a whole number from 1 to 5")
        if sure is not None and type(sure) is not bool:
            raise InputError(f"sure {shorten(sure)}", remedy="give true or false")
        if note is not None:
            note = _text(body, "note").strip()
        seen = _whole_number(body, "seen")
        correction = self.desk.label(query, doc, grade, sure=sure, note=note, seen=seen)
        return self._view_after(correction)

    def move(self, body: dict[str, Any]) -> dict[str, Any]:
        """Put a passage at a rank."""
        query, doc, rank = _text(body, "query"), _text(body, "doc"), _whole_number(body, "rank")
        if rank is None:
            raise InputError("no rank is given", remedy="give one, a whole number")
        return self._view_after(self.desk.move(query, doc, rank, _whole_number(body, "seen")))

    def prefer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Put a passage above another."""
        query, doc, over = (_text(body, name) for name in ("query", "doc", "over"))
        return self._view_after(self.desk.prefer(query, doc, over, _whole_number(body, "seen")))

    def undo(self, body: dict[str, Any]) -> dict[str, Any]:
        """Undo a correction, or the last one of this sitting."""
        return self._view_after(self.desk.undo(_whole_number(body, "correction")))

    def _view_after(self, correction: Correction) -> dict[str, Any]:
        """What the page shows after a change: the correction, its query, everybody's progress."""
        with self._mutex:
            return {
                "made": self.index.correction_for_author(correction),
                "question": self.index.question(correction.query, Filter()),
                "summary": self.index.summaries(Filter(), correction.query)[0],
                "progress": self.progress(),
            }


def _asset_route(name: str) -> Route:
    """Serve a file of the page."""
    from starlette.responses import Response
    from starlette.routing import Route

    def read(request: Request) -> Response:
        content = (files("rankproof.golden.viewer") / "assets" / name).read_bytes()
        return Response(content, media_type=_ASSET_TYPES[name])

    return Route("/" if name == "page.html" else f"/{name}", read)


def _query_route(
    name: str, answer: Callable[[dict[str, str]], Any], mutex: threading.Lock
) -> Route:
    """Answer GET requests with what a function returns for their parameters, one at a time."""
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    def endpoint(request: Request) -> Response:
        with mutex:
            return JSONResponse(answer(dict(request.query_params)))

    return Route(f"/api/{name}", endpoint)


def _change_route(name: str, answer: Callable[[dict[str, Any]], Any]) -> Route:
    """Answer POST requests with what a function returns for their JSON."""
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def endpoint(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(answer, await _read_body(request)))

    return Route(f"/api/{name}", endpoint, methods=["POST"])


def _refuse(request: Request, error: Exception) -> Response:
    """Answer a request that raised InputError with its message and status 409."""
    from starlette.responses import JSONResponse

    is_concurrent = isinstance(error, ConcurrentChange)
    return JSONResponse({"error": escape_controls(str(error)), "meanwhile": is_concurrent}, 409)


async def _read_body(request: Request) -> dict[str, Any]:
    """Read a request for a change: one JSON object."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise InputError("the change is not JSON", remedy="send application/json")
    from starlette.requests import ClientDisconnect

    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_BODY_BYTES:
                remedy = f"send at most {_MAX_BODY_BYTES} bytes"
                raise InputError("the change is too long", remedy=remedy)
    except ClientDisconnect:  # the page was closed, so nobody reads the response
        raise InputError("the change did not arrive", remedy="send it again") from None
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InputError("the change cannot be read", remedy="send one JSON object")
    return value


def _text(parameters: dict[str, Any], name: str) -> str:
    """A required text among the parameters of a request."""
    value = parameters.get(name)
    if not isinstance(value, str):
        raise InputError(f"no {name} is given", remedy="name one")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise InputError(f"{name} {shorten(value)} is not text", remedy="send whole characters")
    return value


def _whole_number(parameters: dict[str, Any], name: str) -> int | None:
    """An optional whole number among the parameters of a request, one that SQLite can hold."""
    value = parameters.get(name)
    if value is not None and not (type(value) is int and 0 <= value < 1 << 63):
        raise InputError(f"{name} {shorten(value)}", remedy="give a whole number")
    return value
