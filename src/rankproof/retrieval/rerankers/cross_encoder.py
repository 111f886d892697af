"""A sentence-transformers CrossEncoder as a reranker."""

from __future__ import annotations

import math
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
from rankproof.precision.model_patching import answers_of, high_precision
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import part
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.pairs import Pair, score_pairs
from rankproof.retrieval.protocols import Scored
from rankproof.retrieval.sentence_models import (
    TRANSFORMERS,
    count_tokens,
    load_model,
    running,
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


@part("reranker", "cross-encoder", **TRANSFORMERS)
class CrossEncoderReranker:
    """In high precision the score is the float32 logit (of two logits, yes − no): the order of the
    probability, which a float32 sigmoid would round to 1. Plainly it is the probability in the
    model's own format, as it has long been done. A language model's logits are those of the words
    yes and no.
    """

    def __init__(self, settings: CrossEncoderSettings, cache: Cache | None = None):
        self.settings = settings
        self.name = short_name(settings.model)
        self._cache = cache
        self._model = load_model(
            *("CrossEncoder", settings.model, settings.dtype),
            *(settings.max_tokens, settings.device),
        )
        labels = getattr(self._model, "num_labels", None) or self._model.config.num_labels
        if labels not in (1, 2):
            raise InputError(
                f"the model has {labels} labels", place=settings.model, remedy="use one with 1 or 2"
            )
        self._answers = answers_of(self._model)
        if self._answers is not None and (
            self._answers.true_token_id == self._answers.false_token_id
        ):
            raise InputError(
                "its tokenizer has one token for both yes and no",
                place=settings.model,
                remedy="name a language model that was trained to answer yes or no",
            )
        self.fingerprint = fingerprint(settings)

    def logits(self, pairs: Sequence[tuple[str, str]]) -> Array:
        """(N, 1), or (N, 2) of no and yes: float32, before any activation and subtraction."""
        identity = import_module("torch").nn.Identity()
        with running(self.name), high_precision(self._model) as model, self._both():
            output = model.predict(
                list(pairs),
                activation_fn=identity,
                batch_size=self.settings.batch,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        return np.asarray(output, np.float32).reshape(len(pairs), -1)

    @contextmanager
    def _both(self) -> Iterator[None]:
        """Have a language model give its two logits, not their difference."""
        part = self._answers
        if part is None or part.false_token_id is None:
            yield
            return
        hook = part.register_forward_hook(_no_and_yes)
        try:
            yield
        finally:
            hook.remove()

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
        logits = self.logits([(query, passage) for passage in passages])
        logit = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        score = logit.astype(np.float64)
        if not self.settings.high_precision:
            score = round_scores(sigmoid(logit).astype(np.float64), self.settings.dtype)
        tokens = count_tokens(self._model, [query] * len(passages), passages)
        return [(float(s), float(t), False, math.nan) for s, t in zip(score, tokens, strict=True)]


def _no_and_yes(part: Any, inputs: Any, output: Any) -> Any:
    last = inputs[0][part.module_input_name][:, -1]
    return {**output, "scores": last[:, [part.false_token_id, part.true_token_id]]}
