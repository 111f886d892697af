"""A sentence-transformers model as an embedder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from rankproof.config import Count, ModelName, Settings
from rankproof.errors import InputError
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.models import load_model
from rankproof.retrieval.parts import part
from rankproof.retrieval.protocols import Vectors
from rankproof.retrieval.texts import Progress, Role, embed_texts

_BATCHES = 8  # handed to the model together, which sorts them by length


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
    batch: Count = 32


@part(
    "embedder",
    "sentence-transformers",
    extra="torch",
    imports=("torch", "sentence_transformers"),
    packages=("sentence-transformers",),
)
class SentenceTransformersEmbedder:
    """Prompts are put before the text; `dimensions` keeps the first ones and renormalises."""

    def __init__(
        self,
        settings: SentenceTransformersSettings,
        cache: Cache | None = None,
        progress: Progress | None = None,
    ):
        self.settings = settings
        self.name = settings.model.rstrip("/").rpartition("/")[2] or settings.model
        self._cache, self._progress = cache, progress
        self._model = load_model(
            "SentenceTransformer", settings.model, settings.dtype, settings.max_tokens
        )
        self._width = self._dimensions()
        self.fingerprint = fingerprint(settings)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        # Newer versions tell queries from documents, for models with a prompt or a way for each.
        encode = getattr(self._model, "encode_query", self._model.encode)
        return self._embed(texts, encode, self.settings.query_prompt, "query")

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        encode = getattr(self._model, "encode_document", self._model.encode)
        return self._embed(texts, encode, self.settings.passage_prompt, "passage")

    def _embed(self, texts: Sequence[str], encode: Any, prompt: str | None, role: Role) -> Vectors:
        def compute(some: list[str]) -> Vectors:
            vectors = encode(
                some,
                prompt=prompt,
                batch_size=self.settings.batch,
                convert_to_tensor=True,
                show_progress_bar=False,
            )
            wide: Vectors = vectors.float().cpu().numpy()
            return wide[:, : self._width].astype(np.float32)

        return embed_texts(
            texts,
            compute,
            place=self.name,
            batch=self.settings.batch * _BATCHES,
            dimensions=self._width,
            cache=self._cache,
            fingerprint=self.fingerprint,
            role=role,
            progress=self._progress,
        )

    def _dimensions(self) -> int | None:
        ask = getattr(self._model, "get_embedding_dimension", None)
        ask = ask or self._model.get_sentence_embedding_dimension
        full, wanted = ask(), self.settings.dimensions
        if wanted is not None and full is not None and wanted > full:
            raise InputError(
                f"{wanted} dimensions of a model that has {full}",
                place=self.settings.model,
                remedy=f"ask for {full} or fewer",
            )
        return wanted or full
