"""A sentence-transformers CrossEncoder as a reranker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from typing import ClassVar, Literal

import numpy as np

from rankproof.config import Count, ModelName, Settings
from rankproof.errors import InputError
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.models import count_tokens, load_model
from rankproof.retrieval.pairs import Pair, score_pairs
from rankproof.retrieval.parts import part
from rankproof.retrieval.protocols import Scored
from rankproof.scoring import sigmoid
from rankproof.scoring.models import high_precision
from rankproof.ties import round_scores


class CrossEncoderSettings(Settings):
    """A sentence-transformers CrossEncoder, scored in high precision."""

    operation: ClassVar[frozenset[str]] = frozenset({"batch"})

    type: Literal["cross-encoder"]
    model: ModelName
    high_precision: bool = True
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    max_tokens: Count | None = None
    batch: Count = 32


@part(
    "reranker",
    "cross-encoder",
    extra="torch",
    imports=("torch", "sentence_transformers"),
    packages=("sentence-transformers",),
)
class CrossEncoderReranker:
    """In high precision the score is the float32 logit (of two logits, yes − no): the order of the
    probability, which a sigmoid would round to 1 past a logit of 17. Plainly it is the probability
    in the model's own format, as it has long been done.
    """

    def __init__(self, settings: CrossEncoderSettings, cache: Cache | None = None):
        self.settings = settings
        self.name = settings.model.rstrip("/").rpartition("/")[2] or settings.model
        self._cache = cache
        self._model = load_model(
            "CrossEncoder", settings.model, settings.dtype, settings.max_tokens
        )
        labels = getattr(self._model, "num_labels", None) or self._model.config.num_labels
        if labels not in (1, 2):
            raise InputError(
                f"the model has {labels} labels", place=settings.model, remedy="use one with 1 or 2"
            )
        self.fingerprint = fingerprint(settings)

    def score(self, query: str, passages: Sequence[str]) -> Scored:
        scored, _ = score_pairs(
            query,
            passages,
            lambda some: self._score(query, some),
            place=self.name,
            batch=max(len(passages), 1),  # the model makes its own batches, sorted by length
            dtype="float32" if self.settings.high_precision else self.settings.dtype,
            fingerprint=self.fingerprint,
            cache=self._cache,
        )
        return scored

    def _score(self, query: str, passages: list[str]) -> list[Pair]:
        identity = import_module("torch").nn.Identity()
        with high_precision(self._model) as model:
            output = model.predict(
                [(query, passage) for passage in passages],
                activation_fn=identity,
                batch_size=self.settings.batch,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        logits = np.asarray(output, np.float32).reshape(len(passages), -1)
        logit = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        score = logit.astype(np.float64)
        if not self.settings.high_precision:
            score = round_scores(sigmoid(logit).astype(np.float64), self.settings.dtype)
        tokens = count_tokens(self._model, [query] * len(passages), passages)
        return [(float(s), float(t), False, math.nan) for s, t in zip(score, tokens, strict=True)]
