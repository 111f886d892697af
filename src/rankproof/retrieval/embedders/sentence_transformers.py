"""A sentence-transformers model as an embedder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from rankproof.foundation.config import Count, ModelName, Settings
from rankproof.foundation.errors import InputError
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import part
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.protocols import Vectors
from rankproof.retrieval.sentence_models import (
    TRANSFORMERS,
    count_tokens,
    load_model,
    most_tokens,
    running,
    short_name,
)
from rankproof.retrieval.texts import Progress, Role, embed_texts

_TOKENS = 1 << 16  # that the model reads at a time, padded; a long text takes fewer beside it
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
    normalise: bool = True  # to length 1; an audit takes vectors as they are
    batch: Count = 32
    device: str | None = None  # cpu or cuda:1, say; None: the GPU that torch finds, or the CPU


@part("embedder", "sentence-transformers", **TRANSFORMERS)
class SentenceTransformersEmbedder:
    """Prompts are put before the text; `dimensions` keeps the first ones and renormalises."""

    def __init__(
        self,
        settings: SentenceTransformersSettings,
        cache: Cache | None = None,
        progress: Progress | None = None,
    ):
        self.settings = settings
        self.name = short_name(settings.model)
        self._cache, self._progress = cache, progress
        self._model = load_model(
            *("SentenceTransformer", settings.model, settings.dtype),
            *(settings.max_tokens, settings.device),
        )
        self._width = self._dimensions()
        self.reads = most_tokens(self._model)  # of a text; the rest of it is not seen
        self.cut = 0  # passages that are longer, of those embedded here
        own = str(getattr(self._model, "similarity_fn_name", "cosine"))
        self.similarity = "dot" if own == "dot" else "cosine"  # that it was trained for
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
            self.cut += self._longer(some) if role == "passage" else 0
            longest = min(self.reads or _TOKENS, max(map(len, some)) // 2 + 1)
            with running(self.name):
                vectors = encode(
                    some,
                    prompt=prompt,
                    batch_size=max(1, min(self.settings.batch, _TOKENS // longest)),
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
            normalise=self.settings.normalise,
        )

    def _longer(self, texts: list[str]) -> int:
        limit = self.reads
        if limit is None:
            return 0
        long = [text for text in texts if len(text) > limit]  # a token has a character or more
        return sum(count > limit for count in count_tokens(self._model, long, whole=True))

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
