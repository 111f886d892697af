"""Access to the viewer: only the people whose addresses were printed, only from its own page.

Any program of this machine, and any web page in its browsers, can reach a port of 127.0.0.1. So

- every path begins with a token that only the printed address holds;
- the Host header must name this machine, against DNS rebinding by a foreign page;
- a request that changes the store carries the token in a header, too, which a foreign page may
  only send where CORS permits it, and it never does.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN = "x-rankproof-token"  # name of the header
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware: requires a valid token, and adds security headers to every response.

    `/TOKEN/PATH` is passed as `/PATH` to the app of the token; each person has one.
    """

    def __init__(self, apps: Mapping[str, ASGIApp], hosts: Collection[str]):
        self.apps = apps
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it with status 403."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        token, slash, path_below = scope["path"].removeprefix("/").partition("/")
        refusal = self._refusal(scope["method"], Headers(scope=scope), token if slash else "")
        if refusal is not None:
            await PlainTextResponse(f"{refusal}\n", 403)(scope, receive, send_with_headers)
            return
        path = f"/{path_below}"
        inner_scope = {**scope, "path": path, "raw_path": path.encode(errors="replace")}
        await self.apps[token](inner_scope, receive, send_with_headers)

    def _refusal(self, method: str, headers: Headers, token: str) -> str | None:
        """Why a request is refused; None if it is allowed."""
        if headers.get("host", "") not in self.hosts:
            return "This server answers to its own machine alone."
        if not any(_is_same_token(token, valid) for valid in self.apps):
            return "The address is not the one that rankproof printed."
        if method not in ("GET", "HEAD") and not _is_same_token(headers.get(TOKEN, ""), token):
            return f"A change needs the token in {TOKEN}."
        return None


def _is_same_token(token: str, valid: str) -> bool:
    """Compare in constant time, so that response times do not reveal a valid token."""
    return hmac.compare_digest(token.encode(errors="replace"), valid.encode())
