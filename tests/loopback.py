"""A real HTTP server on loopback that misbehaves as it is told."""

from __future__ import annotations

import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PATIENCE = 300.0  # seconds to wait for what will come, however busy the machine is


@dataclass(frozen=True)
class Request:
    """What a client sent; `number` counts requests from 0."""

    number: int
    path: str
    headers: Mapping[str, str]
    body: bytes
    method: str = "POST"

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """What the server answers. `claim` is a Content-Length that the body may fall short of."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    claim: int | None = None  # then the connection closes mid-reply
    silent: bool = False  # never answers, until the server is closed

    @staticmethod
    def of(value: Any, status: int = 200, **headers: str) -> Reply:
        """A JSON reply; `retry_after="1"` becomes a Retry-After header."""
        named = {name.replace("_", "-").title(): text for name, text in headers.items()}
        return Reply(json.dumps(value).encode(), status, named)


@dataclass
class Loopback:
    """A running server: where it is, and what it was asked."""

    url: str
    requests: list[Request]


@contextmanager
def loopback(
    answer: Callable[[Request], Reply], certificate: tuple[Path, Path] | None = None
) -> Iterator[Loopback]:
    """Serve `answer` on a free port of 127.0.0.1 until the block ends; over TLS if so."""
    requests: list[Request] = []
    lock = threading.Lock()
    closing = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length)
            if len(body) < length:  # the client died while it was asking
                self.close_connection = True
                return
            with lock:
                request = Request(
                    len(requests), self.path, dict(self.headers.items()), body, self.command
                )
                requests.append(request)
            reply = answer(request)
            if reply.silent:
                closing.wait(PATIENCE)
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if "Content-Type" not in reply.headers:
                self.send_header("Content-Type", "application/json")
            claimed = len(reply.body) if reply.claim is None else reply.claim
            self.send_header("Content-Length", str(claimed))
            try:
                self.end_headers()
                self.wfile.write(reply.body)
            except (BrokenPipeError, ConnectionResetError):  # the client had seen enough
                self.close_connection = True
            if reply.claim is not None:
                self.close_connection = True

        do_GET = do_PUT = do_DELETE = do_POST  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(sys.exception(), ConnectionError | ssl.SSLError):  # it may be killed
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        scheme = "http" if certificate is None else "https"
        yield Loopback(f"{scheme}://127.0.0.1:{server.server_address[1]}", requests)
    finally:
        closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
