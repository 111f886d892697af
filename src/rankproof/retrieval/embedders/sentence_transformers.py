"""Embedder that runs a sentence-transformers model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from rankproof.foundation.config import Count, ModelName, Settings
from rankproof.foundation.errors import InputError
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import part
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.model_calls import Role, embed_texts
from rankproof.retrieval.protocols import Vectors
from rankproof.retrieval.sentence_models import (
    REQUIREMENTS,
    count_tokens,
    load_model,
    model_errors,
    short_name,
    token_limit,
)

_TOKENS_AT_ONCE = 1 << 16  # of a padded batch, so that long texts make small batches
_BATCHES_PER_CALL = 8  # the model sorts the texts of a call by length


class SentenceTransformersSettings(Settings):
    """Any sentence-transformers model, by name or folder. A prompt of None is the model's own."""

    operation: ClassVar[frozenset[str]] = frozenset({"batch"})

    type: Literal["sentence-transformers"]
    model: ModelName
    dimensions: Count | None = None  # keep the first ones (Matryoshka)
    query_prompt: str | None = None
    passage_prompt: str | None = None
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    max_tokens: Count | None = None
    normalise: bool = True  # to length 1; an audit takes vectors as they are
    batch: Count = 32
    device: str | None = None  # cpu or cuda:1, say; None: the GPU that torch finds, or the CPU


@part("embedder", "sentence-transformers", **REQUIREMENTS)
class SentenceTransformersEmbedder:
    """Embeds texts after their prompt; `dimensions` keeps the first ones at length 1 again."""

    def __init__(
        self,
        settings: SentenceTransformersSettings,
        cache: Cache | None = None,
    ):
        self.settings = settings
        self.name = short_name(settings.model)
        self._cache = cache
        self._model = load_model(
            "SentenceTransformer",
            settings.model,
            settings.dtype,
            max_tokens=settings.max_tokens,
            device=settings.device,
        )
        self._width = self._dimensions()
        self.reads = token_limit(self._model)
        self.cut = 0  # passages embedded here that exceed the limit and were truncated
        trained_for = str(getattr(self._model, "similarity_fn_name", "cosine"))
        self.similarity = "dot" if trained_for == "dot" else "cosine"
        self.fingerprint = fingerprint(settings)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        # Newer versions encode queries and documents differently where the model does.
        encode = getattr(self._model, "encode_query", self._model.encode)
        return self._embed(texts, encode, self.settings.query_prompt, "query")

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        encode = getattr(self._model, "encode_document", self._model.encode)
        return self._embed(texts, encode, self.settings.passage_prompt, "passage")

    def _embed(self, texts: Sequence[str], encode: Any, prompt: str | None, role: Role) -> Vectors:
        """Embed texts with one of the model's methods, in batches that fit into memory."""

        def compute(batch: list[str]) -> Vectors:
            """Run the model on a batch of texts."""
            if role == "passage":
                self.cut += self._count_truncated(batch)
            longest = min(self.reads or _TOKENS_AT_ONCE, max(map(len, batch)) // 2 + 1)
            with model_errors(self.name):
                vectors = encode(
                    batch,
                    prompt=prompt,
                    batch_size=max(1, min(self.settings.batch, _TOKENS_AT_ONCE // longest)),
                    convert_to_tensor=True,
                    show_progress_bar=False,
                )
            wide: Vectors = vectors.float().cpu().numpy()
            return wide[:, : self._width].astype(np.float32)

        return embed_texts(
            texts,
            compute,
            place=self.name,
            batch=self.settings.batch * _BATCHES_PER_CALL,
            dimensions=self._width,
            cache=self._cache,
            fingerprint=self.fingerprint,
            role=role,
            normalise=self.settings.normalise,
        )

    def _count_truncated(self, texts: list[str]) -> int:
        """Return how many texts have more tokens than the model reads."""
        limit = self.reads
        if limit is None:
            return 0
        # A token has at least one character, so only these need to be tokenized.
        long_texts = [text for text in texts if len(text) > limit]
        return sum(count > limit for count in count_tokens(self._model, long_texts, whole=True))

    def _dimensions(self) -> int | None:
        """Return how many dimensions are kept; refuse more than the model has."""
        get_dimension = getattr(self._model, "get_embedding_dimension", None)
        get_dimension = get_dimension or self._model.get_sentence_embedding_dimension
        full, kept = get_dimension(), self.settings.dimensions
        if kept is not None and full is not None and kept > full:
            raise InputError(
                f"{kept} dimensions of a model that has {full}",
                place=self.settings.model,
                remedy=f"ask for {full} or fewer",
            )
        return kept or full
