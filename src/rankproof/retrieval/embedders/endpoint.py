"""An embedding server: POST {model, input} → data[].embedding, in OpenAI's shape or Voyage's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from rankproof.foundation.config import Count
from rankproof.foundation.phrasing import plural
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import part
from rankproof.retrieval.http import Endpoint, JsonClient, Unreadable, find_count
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.model_calls import Role, embed_texts
from rankproof.retrieval.protocols import Vectors


class EmbeddingEndpointSettings(Endpoint):
    """POST {model, input}: OpenAI's shape, or Voyage's with input_type."""

    type: Literal["endpoint"]
    shape: Literal["openai", "voyage"] = "openai"
    dimensions: Count | None = None
    query_prompt: str = ""
    passage_prompt: str = ""


@part("embedder", "endpoint", extra="retrieval", imports=("httpx2",), network=True)
class EndpointEmbedder:
    """Embeds texts on a server; each batch is cached as it arrives, so nothing is paid twice."""

    def __init__(
        self,
        settings: EmbeddingEndpointSettings,
        cache: Cache | None = None,
        **client: Any,  # options of JsonClient
    ):
        self.settings = settings
        self.name = settings.model
        self.fingerprint = fingerprint(settings)
        self.tokens = 0  # that the server counted
        self.uncounted = 0  # answers without a count of tokens
        self._cache = cache
        self._client = JsonClient(settings, "/embeddings", **client)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts, "query")

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts, "passage")

    def _prompt(self, role: Role) -> str:
        return self.settings.query_prompt if role == "query" else self.settings.passage_prompt

    def _embed(self, texts: Sequence[str], role: Role) -> Vectors:
        """Return vectors of texts after their prompt, requested in batches and cached."""
        prompt = self._prompt(role)
        return embed_texts(
            texts,
            lambda batch: self._request([prompt + text for text in batch], role),
            place=self._client.host,
            batch=self.settings.batch,
            dimensions=self.settings.dimensions,
            cache=self._cache,
            fingerprint=self.fingerprint,
            role=role,
        )

    def _request(self, texts: list[str], role: Role) -> Vectors:
        """Embed one batch on the server; count its tokens and cache the share of each text."""
        body: dict[str, Any] = {"model": self.settings.model, "input": texts}
        dimensions = self.settings.dimensions
        is_voyage = self.settings.shape == "voyage"
        if is_voyage:
            body["input_type"] = "query" if role == "query" else "document"
        if dimensions is not None:
            body["output_dimension" if is_voyage else "dimensions"] = dimensions
        vectors, tokens = self._client.post(
            body, lambda answer: read_embeddings(answer, len(texts), dimensions)
        )
        self.tokens += tokens or 0
        self.uncounted += tokens is None
        if tokens is not None and self._cache is not None:
            lengths = {text: len(text.encode("utf-8", "replace")) for text in texts}
            tokens_per_byte = tokens / max(sum(lengths.values()), 1)
            shares = {text: repr(tokens_per_byte * n).encode() for text, n in lengths.items()}
            self._cache.put_many(self.fingerprint, f"{role} tokens", shares)
        return vectors

    def tokens_of(self, texts: Sequence[str], role: Role) -> list[float | None]:
        """Return each text's share, by length, of the tokens the server counted; None: unknown."""
        if self._cache is None:
            return [None] * len(texts)
        prompt = self._prompt(role)
        shares = self._cache.get_many(
            self.fingerprint, f"{role} tokens", [prompt + text for text in texts]
        )
        return [None if share is None else float(share) for share in shares]


def read_embeddings(
    answer: Any, count: int, dimensions: int | None = None
) -> tuple[Vectors, int | None]:
    """Return (count, D) vectors in the order of their index, and the tokens that were counted."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list):
        raise Unreadable("the answer has no list `data` of embeddings")
    if len(data) != count:
        raise Unreadable(f"{plural(len(data), 'vector')} for {plural(count, 'text')}")
    rows: list[Any] = [None] * count
    for position, item in enumerate(data):
        index = item.get("index", position) if isinstance(item, dict) else None
        if type(index) is not int or not 0 <= index < count or rows[index] is not None:
            raise Unreadable("the vectors of the answer are not numbered 0, 1, 2, …")
        rows[index] = item.get("embedding")
    vectors = _to_float32(rows)
    if vectors is None or not np.isfinite(vectors).all():
        raise Unreadable("the vectors of the answer are not numbers, or differ in length")
    if dimensions is not None and vectors.shape[1] != dimensions:
        raise Unreadable(f"vectors of {vectors.shape[1]} dimensions where {dimensions} were asked")
    tokens = find_count(answer, ("usage", "total_tokens"))
    return vectors, tokens if isinstance(tokens, int) else None


def _to_float32(rows: list[Any]) -> Vectors | None:
    """Return the rows as a matrix; None if they are not numbers or differ in length."""
    try:
        values = np.array(rows)
    except ValueError:  # rows of different lengths
        return None
    if values.ndim != 2 or not values.size or values.dtype.kind not in "if":
        return None
    with np.errstate(over="ignore"):  # beyond float32 lies infinity, which the caller refuses
        return values.astype(np.float32)
