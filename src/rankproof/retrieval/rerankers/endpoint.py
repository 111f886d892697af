"""A reranking server: POST {model, query, documents} → an index and a relevance_score each.

| shape | sent | answered |
|---|---|---|
| cohere, jina | model, query, documents, top_n | results[]: index, relevance_score |
| voyage | model, query, documents, top_k | data[]: index, relevance_score |
| tei | query, texts, truncate | []: index, score |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from rankproof.foundation.phrasing import plural
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import part
from rankproof.retrieval.http import Endpoint, JsonClient, Unreadable
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.pairs import Pair, score_pairs
from rankproof.retrieval.protocols import Scored

_BYTES_PER_TOKEN = 4  # of English, about; used, and said, only where a server counts nothing


class RerankEndpointSettings(Endpoint):
    """POST {model, query, documents} in the shape of Cohere, Jina, Voyage or TEI."""

    type: Literal["endpoint"]
    shape: Literal["cohere", "jina", "voyage", "tei"] = "cohere"


@part("reranker", "endpoint", extra="retrieval", imports=("httpx2",), network=True)
class EndpointReranker:
    """Every batch goes to the cache as it arrives, so that a run that stops is not paid twice.

    Tokens are those the server says a request took, shared out among its passages by length. Where
    it does not say, they are estimated as a quarter of the bytes, and `estimated` counts the
    queries of which that is so. A blank passage is not sent: it scores 0 and takes no tokens.
    Searches are those the server says it bills, shared out equally.
    """

    def __init__(
        self,
        settings: RerankEndpointSettings,
        cache: Cache | None = None,
        **client: Any,  # options of JsonClient
    ):
        self.settings = settings
        self.name = settings.model
        self.fingerprint = fingerprint(settings)
        self.tokens = 0  # that the server said it read, in this process
        self.searches = 0.0  # that it said it bills
        self.estimated = 0  # queries whose tokens the server did not count
        self._cache = cache
        self._client = JsonClient(settings, "/rerank", **client)

    def score(self, query: str, passages: Sequence[str]) -> Scored:
        scored, estimated = score_pairs(
            query,
            passages,
            lambda some: self._score(query, some),
            place=self._client.host,
            batch=self.settings.batch,
            dtype="float64",  # as JSON writes numbers
            fingerprint=self.fingerprint,
            cache=self._cache,
        )
        self.estimated += estimated
        return scored

    def _score(self, query: str, passages: list[str]) -> list[Pair]:
        sent = [passage for passage in passages if passage.strip()]
        scores, total, billed = self._ask(query, sent) if sent else ([], 0, 0.0)
        self.tokens += total or 0
        self.searches += billed or 0.0
        searches = math.nan if billed is None else billed / max(len(sent), 1)
        length = {p: len(query.encode()) + len(p.encode("utf-8", "replace")) for p in sent}
        rate = 1 / _BYTES_PER_TOKEN if total is None else total / max(sum(length.values()), 1)
        made = dict(zip(sent, scores, strict=True))
        return [
            (made.get(p, 0.0), rate * length.get(p, 0), total is None, searches * (p in made))
            for p in passages
        ]

    def _ask(self, query: str, passages: list[str]) -> Read:
        body: dict[str, Any] = {"query": query}
        if self.settings.shape == "tei":  # it refuses long texts unless it may cut them
            body |= {"texts": passages, "truncate": True}
            key, name = None, "score"
        else:
            voyage = self.settings.shape == "voyage"
            body |= {"model": self.settings.model, "documents": passages}
            body["top_k" if voyage else "top_n"] = len(passages)
            key, name = "data" if voyage else "results", "relevance_score"
        return self._client.post(body, lambda answer: read_scores(answer, key, name, len(passages)))


Read = tuple[list[float], int | None, float | None]
"""Scores, tokens and searches billed, where the answer says."""


def read_scores(answer: Any, key: str | None, name: str, count: int) -> Read:
    """(count,) scores by their index; a `key` of None is an answer that is the list itself."""
    inside = answer.get(key) if isinstance(answer, dict) and key is not None else None
    results = answer if key is None else inside
    if not isinstance(results, list):
        named = "is no list" if key is None else f"has no list `{key}`"
        raise Unreadable(f"the answer {named} of scores")
    found: dict[int, float] = {}
    for item in results:
        index = item.get("index") if isinstance(item, dict) else None
        score: Any = item.get(name) if isinstance(item, dict) else None
        if type(index) is not int or not 0 <= index < count or index in found:
            raise Unreadable(f"the scores of the answer are not numbered 0 to {count - 1}")
        is_number = isinstance(score, int | float) and not isinstance(score, bool)
        if not is_number or not math.isfinite(score):
            raise Unreadable(f"a {name} of the answer is not a number")
        found[index] = float(score)
    if len(found) != count:
        raise Unreadable(f"{plural(len(found), 'score')} for {plural(count, 'passage')}")
    tokens, searches = _said(answer, *_TOKENS), _said(answer, _SEARCHES)
    scores = [found[index] for index in range(count)]
    return scores, None if tokens is None else int(tokens), searches


_TOKENS = (("usage", "total_tokens"), ("meta", "tokens", "input_tokens"))  # Voyage, Jina; Cohere
_SEARCHES = ("meta", "billed_units", "search_units")  # Cohere


def _said(answer: Any, *paths: tuple[str, ...]) -> float | None:
    """The first of these counts that the answer holds."""
    for path in paths:
        value: Any = answer
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and math.isfinite(value) and value >= 0:
            return float(value)
    return None
