"""A reranking server: POST {model, query, documents} → an index and a relevance_score each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from rankproof.retrieval.cache import Cache
from rankproof.retrieval.http import Endpoint, JsonClient, Unreadable
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.pairs import Pair, score_pairs
from rankproof.retrieval.parts import part
from rankproof.retrieval.protocols import Scored

_BYTES_PER_TOKEN = 4  # of English, about; used, and said, only where a server counts nothing


class RerankEndpointSettings(Endpoint):
    """POST {model, query, documents} in the shape of Cohere or Voyage."""

    type: Literal["endpoint"]
    shape: Literal["cohere", "voyage"] = "cohere"


@part("reranker", "endpoint", extra="retrieval", imports=("httpx2",), network=True)
class EndpointReranker:
    """Every batch goes to the cache as it arrives, so that a run that stops is not paid twice.

    Tokens are those the server says a request took, shared out among its passages by length. Where
    it does not say, they are estimated as a quarter of the bytes, and `estimated` counts the
    queries of which that is so. A blank passage is not sent: it scores 0 and takes no tokens.
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
        scores, total = self._ask(query, sent) if sent else ([], 0)
        self.tokens += total or 0
        length = {p: len(query.encode()) + len(p.encode("utf-8", "replace")) for p in sent}
        rate = 1 / _BYTES_PER_TOKEN if total is None else total / max(sum(length.values()), 1)
        made = dict(zip(sent, scores, strict=True))
        return [(made.get(p, 0.0), rate * length.get(p, 0), total is None) for p in passages]

    def _ask(self, query: str, passages: list[str]) -> tuple[list[float], int | None]:
        voyage = self.settings.shape == "voyage"
        body = {
            "model": self.settings.model,
            "query": query,
            "documents": passages,
            "top_k" if voyage else "top_n": len(passages),
        }
        key = "data" if voyage else "results"
        return self._client.post(body, lambda answer: read_scores(answer, key, len(passages)))


def read_scores(answer: Any, key: str, count: int) -> tuple[list[float], int | None]:
    """(count,) scores by their index, and the tokens read, where the answer says."""
    results = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise Unreadable(f"the answer has no list `{key}` of scores")
    found: dict[int, float] = {}
    for item in results:
        index = item.get("index") if isinstance(item, dict) else None
        score: Any = item.get("relevance_score") if isinstance(item, dict) else None
        if type(index) is not int or not 0 <= index < count or index in found:
            raise Unreadable(f"the scores of the answer are not numbered 0 to {count - 1}")
        is_number = isinstance(score, int | float) and not isinstance(score, bool)
        if not is_number or not math.isfinite(score):
            raise Unreadable("a relevance_score of the answer is not a number")
        found[index] = float(score)
    if len(found) != count:
        raise Unreadable(f"{len(found)} scores for {count} passages")
    return [found[index] for index in range(count)], _tokens(answer)


def _tokens(answer: dict[str, Any]) -> int | None:
    """Of Voyage's usage.total_tokens and Cohere's meta.tokens.input_tokens the one there is."""
    for path in (("usage", "total_tokens"), ("meta", "tokens", "input_tokens")):
        value: Any = answer
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if type(value) is int and value >= 0:
            return value
    return None
