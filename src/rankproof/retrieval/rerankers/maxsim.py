"""Late interaction over the token vectors of a sentence-transformers model.

    score(q, d) = 1/|q| · Σ_i max_j cos(q_i, d_j)

over the token vectors q_i of the query and d_j of the passage. A MultiVectorEncoder chooses and
scales its token vectors itself; their product then takes the place of the cosine.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankproof.foundation.arrays import Array
from rankproof.foundation.config import Count, ModelName, Settings
from rankproof.foundation.errors import InputError
from rankproof.precision import fixed_sum
from rankproof.precision.formats import round_to
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import part
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.model_calls import PairScore, score_pairs
from rankproof.retrieval.protocols import Scored
from rankproof.retrieval.sentence_models import (
    REQUIREMENTS,
    load_model,
    model_errors,
    model_kind,
    short_name,
)


class TokenVectors(NamedTuple):
    """Token vectors of one text, and how many tokens the model read of it."""

    vectors: NDArray[Any]  # (t, D) of length 1; without special tokens unless asked for
    tokens_read: int


class MaxSimSettings(Settings):
    """Late interaction: each query token takes its best passage token; their mean.

    >>> from rankproof.retrieval.rerankers.maxsim import MaxSimSettings
    >>> MaxSimSettings(type="maxsim", model="all-MiniLM-L6-v2").tokens
    'float16'
    """

    keeps: ClassVar[bool] = True  # it keeps passages in memory, so it is timed warm
    operation: ClassVar[frozenset[str]] = frozenset({"batch", "memory_mb"})

    type: Literal["maxsim"]
    model: ModelName  # a sentence-transformers model
    special_tokens: bool = False  # whether [CLS], [SEP] and the like count as tokens
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"  # of the model
    tokens: Literal["float32", "float16", "bfloat16"] = "float16"  # token vectors are rounded to it
    max_tokens: Count | None = None
    batch: Count = 32
    device: str | None = None  # cpu or cuda:1, say; None: the GPU that torch finds, or the CPU
    memory_mb: Count = 1024  # for the token vectors of passages


@part("reranker", "maxsim", **REQUIREMENTS)
class MaxSimReranker:
    """Scores by late interaction.

    Token vectors of passages stay in memory, up to `memory_mb`, so that a sweep embeds each passage
    once; the least recently used are dropped first.
    """

    def __init__(self, settings: MaxSimSettings, cache: Cache | None = None):
        self.settings = settings
        self.name = f"maxsim {short_name(settings.model)}"
        self.embedded = 0  # passages embedded so far
        self._cache = cache
        self._vectors: OrderedDict[str, TokenVectors] = OrderedDict()  # by passage
        self._bytes = 0  # of these vectors
        # A late-interaction model itself chooses the tokens that count.
        self._chooses_tokens = model_kind(settings.model) == "late interaction"
        self._model = load_model(
            "MultiVectorEncoder" if self._chooses_tokens else "SentenceTransformer",
            settings.model,
            settings.dtype,
            max_tokens=settings.max_tokens,
            device=settings.device,
        )
        self.fingerprint = fingerprint(settings)

    def score(self, query: str, passages: Sequence[str]) -> Scored:
        """Return the scores of the passages for a query, from the cache where it has them."""
        scored, _ = score_pairs(
            query,
            passages,
            lambda batch: self._score(query, batch),
            place=self.name,
            dtype="float32",
            fingerprint=self.fingerprint,
            cache=self._cache,
        )
        return scored

    @property
    def bytes_each(self) -> float | None:
        """Average size of a passage's token vectors in memory; None if there are none."""
        return self._bytes / len(self._vectors) if self._vectors else None

    def logits(self, pairs: Sequence[tuple[str, str]]) -> Array:
        """Return (N, 2) float32: the score in the model's format, and in high precision.

        In the model's format every cosine and their mean are rounded to it, as in a library that
        stays in that format.
        """
        queries, passages = (list(dict.fromkeys(texts)) for texts in zip(*pairs, strict=True))
        query_vectors = dict(zip(queries, self._embed(queries, "query"), strict=True))
        passage_vectors = dict(zip(passages, self._embed_passages(passages), strict=True))
        rows_of_query: dict[str, list[int]] = {}
        for row, (query, _) in enumerate(pairs):
            rows_of_query.setdefault(query, []).append(row)
        scores = np.empty((len(pairs), 2), np.float32)
        for query, rows in rows_of_query.items():
            candidates = [passage_vectors[pairs[row][1]].vectors for row in rows]
            cosines = best_cosines(query_vectors[query].vectors, candidates)
            low = _mean(round_to(cosines.astype(np.float32), self.settings.dtype))
            scores[rows, 0] = round_to(low, self.settings.dtype)
            scores[rows, 1] = _mean(cosines)
        return scores

    def _score(self, query: str, passages: list[str]) -> list[PairScore]:
        """Score passages by the token vectors of the query and of each passage."""
        (embedded_query,) = self._embed([query], "query")
        embedded = self._embed_passages(passages)
        scores = max_sim(embedded_query.vectors, [passage.vectors for passage in embedded])
        return [
            PairScore(float(score), float(embedded_query.tokens_read + passage.tokens_read))
            for score, passage in zip(scores, embedded, strict=True)
        ]

    def _embed_passages(self, texts: list[str]) -> list[TokenVectors]:
        """Return the token vectors of passages, embedding those that are not in memory."""
        missing = [text for text in texts if text not in self._vectors]
        new = dict(zip(missing, self._embed(missing, "document"), strict=True))
        self.embedded += len(missing)
        embedded = [new[text] if text in new else self._vectors[text] for text in texts]
        for text, entry in zip(texts, embedded, strict=True):
            if text in new:
                self._vectors[text] = entry
                self._bytes += entry.vectors.nbytes
            else:
                self._vectors.move_to_end(text)
        while self._vectors and self._bytes > self.settings.memory_mb << 20:
            _, dropped = self._vectors.popitem(last=False)
            self._bytes -= dropped.vectors.nbytes
        return embedded

    def _embed(self, texts: list[str], kind: Literal["query", "document"]) -> list[TokenVectors]:
        """Return the token vectors of texts."""
        if not texts:
            return []
        encode = getattr(self._model, f"encode_{kind}", self._model.encode)
        options: dict[str, Any] = {"batch_size": self.settings.batch, "show_progress_bar": False}
        if not self._chooses_tokens:
            options["output_value"] = None
        with model_errors(self.name):
            try:
                outputs = encode(texts, **options)
            except IndexError:
                # sentence-transformers 6.0 spreads the key "text" over the batch by its letters,
                # which fits batches of four.
                outputs = encode(texts, **options | {"batch_size": 4})
        if not self._chooses_tokens:
            return [self._select_tokens(output) for output in outputs]
        arrays = (vectors.float().cpu().numpy() for vectors in outputs)
        return [TokenVectors(self._round(vectors), len(vectors)) for vectors in arrays]

    def _round(self, vectors: NDArray[np.float32]) -> NDArray[Any]:
        """Return vectors rounded to the format of tokens, held in float16 if that is the format."""
        rounded = round_to(vectors, self.settings.tokens)
        return rounded.astype(np.float16) if self.settings.tokens == "float16" else rounded

    def _select_tokens(self, output: Any) -> TokenVectors:
        """Return the vectors of a bi-encoder's tokens, without padding and special tokens."""
        if not {"token_embeddings", "attention_mask", "input_ids"} <= set(output):
            raise InputError(
                "the model has no vectors of single tokens",
                place=self.settings.model,
                remedy="use a transformer, not static word vectors",
            )
        is_read = output["attention_mask"].bool()
        ids = output["input_ids"][is_read].cpu().numpy()
        vectors = output["token_embeddings"][is_read].float().cpu().numpy()
        if not self.settings.special_tokens:
            vectors = vectors[~np.isin(ids, self._model.tokenizer.all_special_ids)]
        return TokenVectors(self._round(fixed_sum.normalize(vectors)), len(ids))


def max_sim(query: NDArray[Any], passages: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
    """Return (n,) the mean over query tokens of the largest cosine to a token of each passage.

    Vectors have length 1. A query or passage without tokens scores 0.
    """
    return _mean(best_cosines(query, passages))


def best_cosines(query: NDArray[Any], passages: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """Return (t, n) the largest cosine of each query token to a token of each passage.

    Products of float16 are whole multiples of 2⁻⁴⁸, and so are their sums, which float64 represents
    exactly up to 32. Cosines of such unit vectors therefore agree to the last bit on every
    processor, whatever other passages are in the call.
    """
    best = np.zeros((len(query), len(passages)))
    filled = [column for column, passage in enumerate(passages) if len(passage)]
    if filled and len(query):
        starts = np.cumsum([0, *(len(passages[column]) for column in filled)])[:-1]
        stacked = np.concatenate([passages[column] for column in filled]).astype(np.float64)
        best[:, filled] = np.maximum.reduceat(query.astype(np.float64) @ stacked.T, starts, axis=1)
    return best


def _mean(cosines: NDArray[Any]) -> NDArray[np.float32]:
    """Return the mean over query tokens, added in one fixed order."""
    if not len(cosines):
        return np.zeros(cosines.shape[1], np.float32)
    total = np.cumsum(cosines, axis=0, dtype=np.float64)[-1]
    mean: NDArray[np.float32] = (total / len(cosines)).astype(np.float32)
    return mean
