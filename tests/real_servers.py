"""Real servers of Elasticsearch and OpenSearch on loopback, from jars in a folder.

The environment variable RANKPROOF_ENGINES names the folder. In it, `elasticsearch/start` and
`opensearch/start` take a home, a port for HTTP and one for the transport between nodes, keep a
server in the foreground, and print "listening" when it answers; SIGTERM ends it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request as Asked
from urllib.request import urlopen

from loopback import PATIENCE, Loopback, Reply, Request, loopback

ENGINES = os.environ.get("RANKPROOF_ENGINES")
_HEADERS = ("Content-Type", "X-Elastic-Product")


def missing() -> str | None:
    """Return why no server can be started; None where one can."""
    if not ENGINES:
        return "RANKPROOF_ENGINES names no folder of search servers"
    if not Path(ENGINES).is_dir():
        return f"RANKPROOF_ENGINES: there is no folder {ENGINES}"
    return None


@contextmanager
def real_servers(folder: Path) -> Iterator[dict[str, str]]:
    """Start one server of each kind, both at once, and end them; addresses by kind."""
    with ExitStack() as running:
        urls: dict[str, str] = {}
        waiting = []
        for kind in ("elasticsearch", "opensearch"):
            http, transport = _free_ports(2)
            home = folder / kind
            home.mkdir()
            log = running.enter_context((folder / f"{kind}.log").open("w+"))
            process = subprocess.Popen(
                [str(Path(str(ENGINES)) / kind / "start"), str(home), str(http), str(transport)],
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=home,  # Java cannot start in a folder whose name the locale cannot write
                text=True,
                start_new_session=True,  # an interrupt ends it here, when the tests are done
            )
            running.callback(_end, process)
            waiting.append((kind, process, log))
            urls[kind] = f"http://127.0.0.1:{http}"
        for kind, process, log in waiting:
            _wait(kind, process, log)
            ask(urls[kind], "GET", "/_cluster/health?wait_for_status=yellow&timeout=60s")
        yield urls


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _wait(kind: str, process: subprocess.Popen[str], log: Any) -> None:
    """Read what the server prints until it listens, and throw away the rest."""
    assert process.stdout is not None
    late = threading.Timer(PATIENCE, process.kill)
    late.start()
    said = next((line for line in process.stdout if line.startswith("listening")), None)
    late.cancel()
    if said is None:
        log.seek(0)
        raise RuntimeError(f"{kind} did not start:\n{log.read()[-2000:]}")
    threading.Thread(target=process.stdout.readlines, daemon=True).start()


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    """What a server answers to JSON, or to lines of it; AssertionError where it refuses."""
    lines = isinstance(body, list)
    text = "".join(f"{json.dumps(line)}\n" for line in body) if lines else json.dumps(body)
    headers = {"Content-Type": "application/x-ndjson" if lines else "application/json"}
    data = None if body is None else text.encode()
    with urlopen(Asked(url + path, data, headers, method=method), timeout=PATIENCE) as answer:
        found = json.load(answer)
    assert not (isinstance(found, dict) and found.get("errors")), found
    return found


@contextmanager
def before(url: str, change: Any) -> Iterator[Loopback]:
    """A proxy before a server: `change(request)` is its own reply, or the headers to send on."""

    def forward(request: Request) -> Reply:
        changed = change(request)
        if isinstance(changed, Reply):
            return changed
        asked = Asked(url + request.path, request.body or None, changed, method=request.method)
        try:
            answer = urlopen(asked, timeout=PATIENCE)
        except HTTPError as error:
            answer = error
        with answer:
            kept = {name: answer.headers[name] for name in _HEADERS if name in answer.headers}
            return Reply(answer.read(), answer.status, kept)

    with loopback(forward) as server:
        yield server
