"""A search server of the user's own: POST {query, k} → {hits: [{id, score}]}."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from rankproof.data.hits import Hits, read_hits
from rankproof.foundation.config import Count, NonNegative, Seconds, Settings
from rankproof.foundation.errors import InputError
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import is_here, part
from rankproof.retrieval.hits import run_of_hits
from rankproof.retrieval.http import JsonClient, Unreadable
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.protocols import Retrieved
from rankproof.retrieval.row_lists import check_depth, timed


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
    identity: str | None = None  # what it is, wherever it is: a new one is asked anew
    cost_per_1000: NonNegative | None = None  # in the currency of the prices

    @property
    def over_network(self) -> bool:
        return on_network(self.url)

    @property
    def decides(self) -> dict[str, Any]:
        """No name of a model says what answers: the address does, unless the user says more."""
        return {"identity": self.identity or plain_address(self.url)}


def plain_address(url: str) -> str:
    """Without user, password and what follows `?`: they may be secret."""
    try:
        parts = urlsplit(url.strip())
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "?"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path.rstrip('/')}"


def on_network(url: str) -> bool:
    """Whether an address leads away from this machine."""
    try:
        return not is_here(urlsplit(url.strip()).hostname)
    except ValueError:
        return True


@part("retriever", "http", extra="retrieval", imports=("httpx2", "tenacity"), network=True)
class HttpRetriever:
    """One request a query; every answer is kept as it arrives."""

    bytes = 0  # nobody can tell
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
        """One query after the other, each timed by itself, the way to the server included."""
        check_depth(k)
        found, seconds = timed(queries, lambda text: self._ask(text, k))
        return Retrieved(run_of_hits(self.name, query_ids, found), seconds)

    def _ask(self, text: str, k: int) -> Hits:
        role = f"hits {k}"
        if self._cache is not None:
            (kept,) = self._cache.get_many(self.fingerprint, role, [text])
            if kept is not None:
                return Hits(**json.loads(kept))
        hits = self._client.post({"query": text, "k": k}, lambda answer: _read(answer, k))
        if self._cache is not None:
            value = {"ids": hits.ids, "scores": hits.scores, "ranked": hits.ranked}
            self._cache.put_many(self.fingerprint, role, {text: json.dumps(value).encode()})
        return hits


def _read(answer: Any, k: int) -> Hits:
    """The hits of an answer; one that cannot be read may be better the next time."""
    listed = answer.get("hits") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        raise Unreadable("the answer has no list `hits`")
    try:
        return read_hits(listed, "the answer")
    except InputError as error:
        raise Unreadable(f"in the answer, {error.problem}") from None
