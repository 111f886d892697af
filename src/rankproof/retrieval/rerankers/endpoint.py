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
from typing import Any, Literal, NamedTuple

from rankproof.foundation.phrasing import plural
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import part
from rankproof.retrieval.http import Endpoint, JsonClient, Unreadable, find_count
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.model_calls import PairScore, score_pairs
from rankproof.retrieval.protocols import Scored

_BYTES_PER_TOKEN = 4  # of English, about; an estimate where the server counts no tokens
_TOKENS = (("usage", "total_tokens"), ("meta", "tokens", "input_tokens"))  # Voyage, Jina; Cohere
_SEARCHES = ("meta", "billed_units", "search_units")  # Cohere


class RerankEndpointSettings(Endpoint):
    """POST {model, query, documents} in the shape of Cohere, Jina, Voyage or TEI."""

    type: Literal["endpoint"]
    shape: Literal["cohere", "jina", "voyage", "tei"] = "cohere"


@part("reranker", "endpoint", extra="retrieval", imports=("httpx2",), network=True)
class EndpointReranker:
    """Scores passages on a server; each batch is cached as it arrives, so nothing is paid twice.

    The tokens that the server counts for a request are shared among its passages by length, the
    searches it bills equally. Where it counts no tokens they are estimated from the bytes, and
    `estimated` counts these queries. A blank passage is not sent: it scores 0 and costs nothing.
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
        self.tokens = 0  # counted by the server, in this process
        self.searches = 0.0  # billed by the server
        self.estimated = 0  # queries whose tokens the server did not count
        self._cache = cache
        self._client = JsonClient(settings, "/rerank", **client)

    def score(self, query: str, passages: Sequence[str]) -> Scored:
        """Return the scores of the passages for a query, from the cache where it has them."""
        scored, is_estimated = score_pairs(
            query,
            passages,
            lambda batch: self._score(query, batch),
            place=self._client.host,
            batch=self.settings.batch,
            dtype="float64",  # as JSON writes numbers
            fingerprint=self.fingerprint,
            cache=self._cache,
        )
        self.estimated += is_estimated
        return scored

    def _score(self, query: str, passages: list[str]) -> list[PairScore]:
        """Score a batch, and share what its request cost among the passages."""
        not_blank = [passage for passage in passages if passage.strip()]
        reply = self._request(query, not_blank) if not_blank else RerankReply([], 0, 0.0)
        self.tokens += reply.tokens or 0
        self.searches += reply.searches or 0.0
        searches = math.nan if reply.searches is None else reply.searches / max(len(not_blank), 1)
        length = {
            passage: len(query.encode()) + len(passage.encode("utf-8", "replace"))
            for passage in not_blank
        }
        tokens_per_byte = 1 / _BYTES_PER_TOKEN
        if reply.tokens is not None:
            tokens_per_byte = reply.tokens / max(sum(length.values()), 1)
        scores = dict(zip(not_blank, reply.scores, strict=True))
        return [
            PairScore(
                score=scores.get(passage, 0.0),
                tokens=tokens_per_byte * length.get(passage, 0),
                tokens_are_estimated=reply.tokens is None,
                searches=searches * (passage in scores),
            )
            for passage in passages
        ]

    def _request(self, query: str, passages: list[str]) -> RerankReply:
        """Send one request in the shape of the server, and return its scores and cost."""
        body: dict[str, Any] = {"query": query}
        results_key, score_key = None, "score"
        if self.settings.shape == "tei":  # it refuses long texts unless told to truncate them
            body |= {"texts": passages, "truncate": True}
        else:
            is_voyage = self.settings.shape == "voyage"
            body |= {"model": self.settings.model, "documents": passages}
            body["top_k" if is_voyage else "top_n"] = len(passages)
            results_key, score_key = "data" if is_voyage else "results", "relevance_score"
        return self._client.post(
            body, lambda answer: read_scores(answer, results_key, score_key, len(passages))
        )


class RerankReply(NamedTuple):
    """Scores of a request, and what the server says it cost (None: it does not say)."""

    scores: list[float]
    tokens: int | None
    searches: float | None


def read_scores(answer: Any, results_key: str | None, score_key: str, count: int) -> RerankReply:
    """Return the scores in the order of their index; without a key the answer is the list."""
    results = answer
    if results_key is not None:
        results = answer.get(results_key) if isinstance(answer, dict) else None
    if not isinstance(results, list):
        problem = "is no list" if results_key is None else f"has no list `{results_key}`"
        raise Unreadable(f"the answer {problem} of scores")
    scores: dict[int, float] = {}
    for item in results:
        index = item.get("index") if isinstance(item, dict) else None
        score: Any = item.get(score_key) if isinstance(item, dict) else None
        if type(index) is not int or not 0 <= index < count or index in scores:
            raise Unreadable(f"the scores of the answer are not numbered 0 to {count - 1}")
        is_number = isinstance(score, int | float) and not isinstance(score, bool)
        if not is_number or not math.isfinite(score):
            raise Unreadable(f"a {score_key} of the answer is not a number")
        scores[index] = float(score)
    if len(scores) != count:
        raise Unreadable(f"{plural(len(scores), 'score')} for {plural(count, 'passage')}")
    tokens, searches = find_count(answer, *_TOKENS), find_count(answer, _SEARCHES)
    return RerankReply(
        scores=[scores[index] for index in range(count)],
        tokens=None if tokens is None else int(tokens),
        searches=None if searches is None else float(searches),
    )
