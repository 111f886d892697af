"""The page's server: on 127.0.0.1, for as long as the command runs."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankproof.errors import InputError, MissingExtra, shorten
from rankproof.golden.store import Store
from rankproof.locks import owner
from rankproof.viewer import reading
from rankproof.viewer.desk import Desk
from rankproof.viewer.reading import Filter
from rankproof.visible import visible

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

_TYPES = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
_LONGEST = 1 << 16  # bytes of a change


def view(path: str | Path, who: str, port: int, opened: Callable[[str], object]) -> None:
    """Serve a golden set until Ctrl-C; `opened` is told the address."""
    with Store(path) as store, listen(port) as listener:
        server, url = make_server(store, who, listener)
        opened(url)
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


def make_server(store: Store, who: str, listener: socket.socket) -> tuple[uvicorn.Server, str]:
    """A server that is to run on a socket, and the address with its token."""
    try:
        import uvicorn
    except ImportError:
        raise MissingExtra("the viewer", "uvicorn", "viewer") from None
    token = secrets.token_urlsafe(24)
    port = listener.getsockname()[1]
    hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
    config = uvicorn.Config(
        View(store, Desk(store.path, who)).app(token, hosts),
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=1,  # a browser keeps its connections
    )
    return uvicorn.Server(config), f"http://127.0.0.1:{port}/{token}/"


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
            f"port {port} cannot be had ({getattr(error, 'strerror', None) or error})",
            place="--port",
            remedy="name another, or 0 for any that is free",
        ) from None
    return listener


class View:
    """A golden set as the page asks for it."""

    def __init__(self, store: Store, desk: Desk):
        if store.meta("judge") is None or "grade" not in store.meta("done", {}):
            raise InputError(
                "nothing is graded yet",
                place=str(store.path),
                remedy="run `rankproof golden build` until grading is done",
            )
        self.store = store
        self.desk = desk
        self._listed: tuple[int, list[dict[str, Any]]] = (-1, [])
        self._all()  # before anybody waits for it

    def app(self, token: str, hosts: set[str]) -> ASGIApp:
        """Everything below /TOKEN/."""
        try:
            from starlette.applications import Starlette
            from starlette.responses import JSONResponse, Response
            from starlette.routing import Route
        except ImportError:
            raise MissingExtra("the viewer", "starlette", "viewer") from None
        from rankproof.viewer.guard import Guard

        assets = files("rankproof.viewer") / "assets"

        def asset(name: str) -> Route:
            def read(request: Request) -> Response:
                return Response((assets / name).read_bytes(), media_type=_TYPES[name])

            return Route("/" if name == "page.html" else f"/{name}", read)

        def told(answer: Callable[[dict[str, str]], Any]) -> Callable[[Request], Response]:
            def endpoint(request: Request) -> Response:
                return JSONResponse(answer(dict(request.query_params)))

            return endpoint

        def change(answer: Callable[[dict[str, Any]], Any]) -> Callable[[Request], Any]:
            async def endpoint(request: Request) -> Response:
                from starlette.concurrency import run_in_threadpool

                return JSONResponse(await run_in_threadpool(answer, await _body(request)))

            return endpoint

        def refused(request: Request, error: Exception) -> Response:
            return JSONResponse({"error": visible(str(error))}, 409)

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
                ("agreement", lambda given: reading.live_agreement(self.store)),
                ("next", lambda given: reading.next_open(self.store)),
            )
        ]
        routes += [
            Route("/api/correct", change(self.correct), methods=["POST"]),
            Route("/api/undo", change(self.undo), methods=["POST"]),
        ]
        inner = Starlette(routes=routes, exception_handlers={InputError: refused})
        inner.router.redirect_slashes = False
        return Guard(inner, token, hosts)

    # -------------------------------------------------------------------------------- reading

    def set(self, given: dict[str, str]) -> dict[str, Any]:
        judge = self.store.meta("judge")
        return {
            "name": self.store.path.name,
            "judge": judge["name"],
            "simulated": bool(judge.get("simulated")),
            "who": self.desk.who,
            "readonly": self.readonly(),
            "progress": reading.progress(self.store),
            "questions": self._all(),
        }

    def questions(self, given: dict[str, str]) -> Any:
        wanted = Filter.of(given)
        return self._all() if wanted.empty else reading.summaries(self.store, wanted)

    def _all(self) -> list[dict[str, Any]]:
        """Every question, counted anew when somebody has written since."""
        ((version,),) = self.store.rows("PRAGMA data_version")
        if self._listed[0] != version:
            self._listed = (version, reading.summaries(self.store, Filter()))
        return self._listed[1]

    def question(self, given: dict[str, str]) -> Any:
        return reading.question(self.store, _named(given, "query"), Filter.of(given))

    def evidence(self, given: dict[str, str]) -> Any:
        return reading.evidence(self.store, _named(given, "query"), _named(given, "doc"))

    def pair(self, given: dict[str, str]) -> Any:
        query, first, second = (_named(given, name) for name in ("query", "first", "second"))
        return reading.pair(self.store, query, first, second)

    def readonly(self) -> str | None:
        """Why nothing can be corrected now; None if it can."""
        path = self.store.path
        if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            return "you may not write to the file or its folder"
        writer = owner(path)
        return None if writer is None else f"{writer} writes to it"

    # ------------------------------------------------------------------------------- changing

    def correct(self, given: dict[str, Any]) -> dict[str, Any]:
        query, doc, field = (_named(given, name) for name in ("query", "doc", "field"))
        new = given.get("new")
        if field not in ("grade", "rank") or type(new) is not int:
            raise InputError(f"{field} {new!r}", remedy="give a grade or a rank, a whole number")
        made = self.desk.correct(query, doc, field, new)  # type: ignore[arg-type]
        return self._changed(made.query, made.doc, made.field, made.old, made.new)

    def undo(self, given: dict[str, Any]) -> dict[str, Any]:
        number = given.get("correction")
        if number is not None and type(number) is not int:
            raise InputError(f"correction {number!r}", remedy="give its number")
        made = self.desk.undo(number)
        return self._changed(made.query, made.doc, made.field, made.old, made.new)

    def _changed(
        self, query: str, doc: str, field: str, old: int | None, new: int | None
    ) -> dict[str, Any]:
        return {
            "doc": doc,
            "field": field,
            "old": old,
            "new": new,
            "question": reading.question(self.store, query, Filter()),
            "summary": reading.summaries(self.store, Filter(), query)[0],
            "progress": reading.progress(self.store),
        }


async def _body(request: Request) -> dict[str, Any]:
    """What a change says."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise InputError("the change is not JSON", remedy="send application/json")
    text = b""
    async for part in request.stream():
        text += part
        if len(text) > _LONGEST:
            raise InputError("the change is too long", remedy=f"send at most {_LONGEST} bytes")
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
        raise InputError(f"{name} {shorten(value)} is no text", remedy="send whole characters")
    return value
