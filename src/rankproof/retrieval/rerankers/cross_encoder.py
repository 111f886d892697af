"""Reranker that runs a sentence-transformers CrossEncoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar, Literal

import numpy as np

from rankproof.data.ties import round_scores
from rankproof.foundation.arrays import Array
from rankproof.foundation.config import Count, ModelName, Settings
from rankproof.foundation.errors import InputError
from rankproof.precision import sigmoid
from rankproof.precision.model_patching import find_logit_score, high_precision
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import part
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.model_calls import PairScore, score_pairs
from rankproof.retrieval.protocols import Scored
from rankproof.retrieval.sentence_models import (
    REQUIREMENTS,
    count_tokens,
    load_model,
    model_errors,
    short_name,
)


class CrossEncoderSettings(Settings):
    """A sentence-transformers CrossEncoder, scored in high precision."""

    operation: ClassVar[frozenset[str]] = frozenset({"batch"})

    type: Literal["cross-encoder"]
    model: ModelName
    high_precision: bool = True
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    max_tokens: Count | None = None
    batch: Count = 32
    device: str | None = None  # cpu or cuda:1, say; None: the GPU that torch finds, or the CPU


@part("reranker", "cross-encoder", **REQUIREMENTS)
class CrossEncoderReranker:
    """Scores pairs of query and passage.

    In high precision the score is the float32 logit (of two logits, yes − no). It orders passages
    as the probability does, which a float32 sigmoid would round to 1. Otherwise the score is the
    probability in the model's own format, as libraries compute it. A language model's logits are
    those of the words yes and no.
    """

    def __init__(self, settings: CrossEncoderSettings, cache: Cache | None = None):
        self.settings = settings
        self.name = short_name(settings.model)
        self._cache = cache
        self._model = load_model(
            "CrossEncoder",
            settings.model,
            settings.dtype,
            max_tokens=settings.max_tokens,
            device=settings.device,
        )
        labels = getattr(self._model, "num_labels", None) or self._model.config.num_labels
        if labels not in (1, 2):
            raise InputError(
                f"the model has {labels} labels", place=settings.model, remedy="use one with 1 or 2"
            )
        # None unless the model is a language model that answers yes or no.
        logit_score = self._logit_score = find_logit_score(self._model)
        if logit_score is not None and logit_score.true_token_id == logit_score.false_token_id:
            raise InputError(
                "its tokenizer has one token for both yes and no",
                place=settings.model,
                remedy="name a language model that was trained to answer yes or no",
            )
        self.fingerprint = fingerprint(settings)

    def logits(self, pairs: Sequence[tuple[str, str]]) -> Array:
        """Return (N, 1) float32 outputs before any activation, or (N, 2) for no and yes."""
        identity = import_module("torch").nn.Identity()
        with model_errors(self.name), high_precision(self._model) as model, self._both_logits():
            output = model.predict(
                list(pairs),
                activation_fn=identity,
                batch_size=self.settings.batch,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        return np.asarray(output, np.float32).reshape(len(pairs), -1)

    @contextmanager
    def _both_logits(self) -> Iterator[None]:
        """Make a language model return its two logits instead of their difference."""
        if self._logit_score is None or self._logit_score.false_token_id is None:
            yield
            return
        hook = self._logit_score.register_forward_hook(_no_and_yes)
        try:
            yield
        finally:
            hook.remove()

    def score(self, query: str, passages: Sequence[str]) -> Scored:
        """Return the scores of the passages for a query, from the cache where it has them."""
        scored, _ = score_pairs(
            query,
            passages,
            lambda batch: self._score(query, batch),
            place=self.name,
            dtype="float32" if self.settings.high_precision else self.settings.dtype,
            fingerprint=self.fingerprint,
            cache=self._cache,
        )
        return scored

    def _score(self, query: str, passages: list[str]) -> list[PairScore]:
        """Score passages with the model."""
        logits = self.logits([(query, passage) for passage in passages])
        logit = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        score = logit.astype(np.float64)
        if not self.settings.high_precision:
            score = round_scores(sigmoid(logit).astype(np.float64), self.settings.dtype)
        tokens = count_tokens(self._model, [query] * len(passages), passages)
        return [PairScore(float(s), float(t)) for s, t in zip(score, tokens, strict=True)]


def _no_and_yes(module: Any, inputs: Any, output: Any) -> Any:
    """Forward hook: replace the scores by the logits of no and yes at the last token."""
    last = inputs[0][module.module_input_name][:, -1]
    return {**output, "scores": last[:, [module.false_token_id, module.true_token_id]]}
