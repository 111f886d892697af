"""Nobody but the person at this machine, and no page but ours.

Any program here, and any web page in the same browser, can reach a port of 127.0.0.1. So every
address begins with a token that only the printed URL holds; the Host must be this machine, which a
rebound name of a foreign page is not; and what changes the store must carry the token in a header,
which no foreign page may send without being allowed to. None is: there is no CORS.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN = "x-rankproof-token"
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
    """Passes on what begins with /TOKEN/, without it, and gives every answer its headers.

    Each person has a token, and behind it a page of their own.
    """

    def __init__(self, apps: Mapping[str, ASGIApp], hosts: Collection[str]):
        self.apps = apps
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        headers = Headers(scope=scope)
        _, given, rest = found if len(found := scope["path"].split("/", 2)) == 3 else ("", "", "")
        refusal = self._refusal(scope["method"], headers, given)
        if refusal is not None:
            await PlainTextResponse(f"{refusal}\n", 403)(scope, receive, sending)
            return
        path = f"/{rest}"
        await self.apps[given](
            {**scope, "path": path, "raw_path": path.encode(errors="replace")}, receive, sending
        )

    def _refusal(self, method: str, headers: Headers, given: str) -> str | None:
        if headers.get("host", "") not in self.hosts:
            return "This server answers to its own machine alone."
        if not any(_same(given, token) for token in self.apps):
            return "The address is not the one that rankproof printed."
        if method not in ("GET", "HEAD") and not _same(headers.get(TOKEN, ""), given):
            return f"A change needs the token in {TOKEN}."
        return None


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())
