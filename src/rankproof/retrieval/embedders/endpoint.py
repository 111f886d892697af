"""An embedding server: POST {model, input} → data[].embedding, in OpenAI's shape or Voyage's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from rankproof.foundation.config import Count
from rankproof.foundation.phrasing import plural
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import part
from rankproof.retrieval.http import Endpoint, JsonClient, Unreadable
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.protocols import Vectors
from rankproof.retrieval.texts import Progress, Role, embed_texts


class EmbeddingEndpointSettings(Endpoint):
    """POST {model, input}: OpenAI's shape, or Voyage's with input_type."""

    type: Literal["endpoint"]
    shape: Literal["openai", "voyage"] = "openai"
    dimensions: Count | None = None
    query_prompt: str = ""
    passage_prompt: str = ""


@part("embedder", "endpoint", extra="retrieval", imports=("httpx2",), network=True)
class EndpointEmbedder:
    """Every batch goes to the cache as it arrives, so that a run that stops is not paid twice."""

    def __init__(
        self,
        settings: EmbeddingEndpointSettings,
        cache: Cache | None = None,
        progress: Progress | None = None,
        **client: Any,  # options of JsonClient
    ):
        self.settings = settings
        self.name = settings.model
        self.fingerprint = fingerprint(settings)
        self.tokens = 0  # that the server said it read
        self.uncounted = 0  # answers that did not say
        self._cache, self._progress = cache, progress
        self._client = JsonClient(settings, "/embeddings", **client)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts, self.settings.query_prompt, "query")

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts, self.settings.passage_prompt, "passage")

    def _embed(self, texts: Sequence[str], prompt: str, role: Role) -> Vectors:
        return embed_texts(
            texts,
            lambda some: self._ask([prompt + text for text in some], role),
            place=self._client.host,
            batch=self.settings.batch,
            dimensions=self.settings.dimensions,
            cache=self._cache,
            fingerprint=self.fingerprint,
            role=role,
            progress=self._progress,
        )

    def _ask(self, texts: list[str], role: Role) -> Vectors:
        body: dict[str, Any] = {"model": self.settings.model, "input": texts}
        dimensions = self.settings.dimensions
        if self.settings.shape == "voyage":
            body["input_type"] = "query" if role == "query" else "document"
        if dimensions is not None:
            name = "output_dimension" if self.settings.shape == "voyage" else "dimensions"
            body[name] = dimensions
        vectors, tokens = self._client.post(
            body, lambda answer: read_embeddings(answer, len(texts), dimensions)
        )
        self.tokens += tokens or 0
        self.uncounted += tokens is None
        if tokens is not None and self._cache is not None:
            length = {text: len(text.encode("utf-8", "replace")) for text in texts}
            rate = tokens / max(sum(length.values()), 1)
            said = {text: repr(rate * size).encode() for text, size in length.items()}
            self._cache.put_many(self.fingerprint, f"{role} tokens", said)
        return vectors

    def tokens_of(self, texts: Sequence[str], role: Role) -> list[float | None]:
        """What the server said that each of these took, shared out by length; None: it did not."""
        if self._cache is None:
            return [None] * len(texts)
        prompt = self.settings.query_prompt if role == "query" else self.settings.passage_prompt
        held = self._cache.get_many(
            self.fingerprint, f"{role} tokens", [prompt + text for text in texts]
        )
        return [None if value is None else float(value) for value in held]


def read_embeddings(
    answer: Any, count: int, dimensions: int | None = None
) -> tuple[Vectors, int | None]:
    """(count, D) vectors by their index, and the tokens read, where the answer says."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list):
        raise Unreadable("the answer has no list `data` of embeddings")
    if len(data) != count:
        raise Unreadable(f"{plural(len(data), 'vector')} for {plural(count, 'text')}")
    rows: list[Any] = [None] * count
    for place, item in enumerate(data):
        index = item.get("index", place) if isinstance(item, dict) else None
        if type(index) is not int or not 0 <= index < count or rows[index] is not None:
            raise Unreadable("the vectors of the answer are not numbered 0, 1, 2, …")
        rows[index] = item.get("embedding")
    try:
        given = np.array(rows)
    except ValueError:  # of different lengths
        given = np.array(None)
    with np.errstate(over="ignore"):  # past the largest float32 lies inf, which is refused
        numeric = given.ndim == 2 and given.size > 0 and given.dtype.kind in "if"
        vectors = given.astype(np.float32) if numeric else np.full((1, 1), np.nan, np.float32)
    if not np.isfinite(vectors).all():
        raise Unreadable("the vectors of the answer are not numbers, or differ in length")
    if dimensions is not None and vectors.shape[1] != dimensions:
        raise Unreadable(f"vectors of {vectors.shape[1]} dimensions where {dimensions} were asked")
    return vectors, used_tokens(answer)


def used_tokens(answer: Any) -> int | None:
    """usage.total_tokens, where the server says."""
    usage = answer.get("usage")
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if type(total) is int and total >= 0 else None
