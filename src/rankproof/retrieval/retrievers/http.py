"""Retriever that calls a user's search server: POST {query, k} → {hits: [{id, score}]}."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from rankproof.data.hits import Hits, read_hits
from rankproof.foundation.config import Count, NonNegative, Seconds, Settings
from rankproof.foundation.errors import InputError
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import is_local_host, part
from rankproof.retrieval.http import JsonClient, Unreadable
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.protocols import Retrieved
from rankproof.retrieval.ranked_lists import check_depth, run_from_hits, time_each


class HttpRetrieverSettings(Settings):
    """A search server: POST {query, k} → {hits: [{id, score}]}."""

    operation: ClassVar[frozenset[str]] = frozenset(
        {"url", "key_env", "timeout_s", "attempts", "identity", "cost_per_1000"}
    )

    type: Literal["http"]
    url: str
    key_env: str | None = None  # the environment variable that holds the key
    timeout_s: Seconds = 60.0
    attempts: Count = 6  # of one request
    identity: str | None = None  # name of its contents; a new name is searched again
    cost_per_1000: NonNegative | None = None  # in the currency of the prices

    @property
    def over_network(self) -> bool:
        return on_network(self.url)

    @property
    def decides(self) -> dict[str, Any]:
        """The server is identified by `identity`, else by its address: no model name says more."""
        return {"identity": self.identity or plain_address(self.url)}


def plain_address(url: str) -> str:
    """Return the address without user, password and query string, which may be secret."""
    try:
        parts = urlsplit(url.strip())
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "?"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path.rstrip('/')}"


def on_network(url: str) -> bool:
    """True if an address leads away from this machine."""
    try:
        return not is_local_host(urlsplit(url.strip()).hostname)
    except ValueError:
        return True


@part("retriever", "http", extra="retrieval", imports=("httpx2", "tenacity"), network=True)
class HttpRetriever:
    """Sends one request per query; every answer is cached as it arrives."""

    bytes = 0  # unknown
    build_seconds = 0.0

    def __init__(
        self,
        settings: HttpRetrieverSettings,
        documents: Sequence[str] = (),
        document_ids: Sequence[str] | None = None,
        cache: Cache | None = None,
        **client: Any,  # options of JsonClient
    ):
        self.settings = settings
        self.fingerprint = fingerprint(settings)
        self._cache = cache
        self._client = JsonClient(settings, **client)

    @property
    def name(self) -> str:
        return f"http {self._client.host}"

    def search(
        self, queries: Sequence[str], k: int, query_ids: Sequence[str] | None = None
    ) -> Retrieved:
        """Search one query after the other, each timed by itself, the network included."""
        check_depth(k)
        hits, seconds = time_each(queries, lambda text: self._request(text, k))
        return Retrieved(run_from_hits(self.name, query_ids, hits), seconds)

    def _request(self, text: str, k: int) -> Hits:
        """Return the hits of one query, from the cache or from the server."""
        role = f"hits {k}"
        if self._cache is not None:
            (entry,) = self._cache.get_many(self.fingerprint, role, [text])
            if entry is not None:
                return Hits(**json.loads(entry))
        hits = self._client.post({"query": text, "k": k}, _read_answer)
        if self._cache is not None:
            value = {"ids": hits.ids, "scores": hits.scores, "ranked": hits.ranked}
            self._cache.put_many(self.fingerprint, role, {text: json.dumps(value).encode()})
        return hits


def _read_answer(answer: Any) -> Hits:
    """Return the hits of an answer; Unreadable has the request tried again."""
    hits = answer.get("hits") if isinstance(answer, dict) else None
    if not isinstance(hits, list):
        raise Unreadable("the answer has no list `hits`")
    try:
        return read_hits(hits, "the answer")
    except InputError as error:
        raise Unreadable(f"in the answer, {error.problem}") from None
