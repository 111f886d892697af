"""Late interaction over the token vectors of a sentence-transformers model.

    score(q, d) = 1/|q| · Σ_i max_j cos(q_i, d_j)

over the tokens of query and passage. A MultiVectorEncoder chooses and scales its token vectors
itself; then their product stands for the cosine.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

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
from rankproof.retrieval.pairs import Pair, score_pairs
from rankproof.retrieval.protocols import Scored
from rankproof.retrieval.sentence_models import (
    TRANSFORMERS,
    kind_of,
    load_model,
    running,
    short_name,
)

Tokens = NDArray[Any]  # (t, D) unit vectors of one text's tokens


class MaxSimSettings(Settings):
    """Late interaction: each query token takes its best passage token; their mean.

    >>> from rankproof.retrieval.rerankers.maxsim import MaxSimSettings
    >>> MaxSimSettings(type="maxsim", model="all-MiniLM-L6-v2").tokens
    'float16'
    """

    keeps: ClassVar[bool] = True  # passages, in memory: it is timed warm
    operation: ClassVar[frozenset[str]] = frozenset({"batch", "memory_mb"})

    type: Literal["maxsim"]
    model: ModelName  # a sentence-transformers model; its token vectors are used
    special_tokens: bool = False  # whether [CLS], [SEP] and the like count as tokens
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"  # that the model runs in
    tokens: Literal["float32", "float16", "bfloat16"] = "float16"  # what vectors are rounded to
    max_tokens: Count | None = None
    batch: Count = 32
    device: str | None = None  # cpu or cuda:1, say; None: the GPU that torch finds, or the CPU
    memory_mb: Count = 1024  # for the token vectors of passages


@part("reranker", "maxsim", **TRANSFORMERS)
class MaxSimReranker:
    """Token vectors of passages stay in memory, up to `memory_mb`, so that a sweep embeds each
    passage once; those not asked for longest go first.
    """

    def __init__(self, settings: MaxSimSettings, cache: Cache | None = None):
        self.settings = settings
        self.name = f"maxsim {short_name(settings.model)}"
        self.embedded = 0  # passages whose tokens were embedded
        self._cache = cache
        self._kept: OrderedDict[str, tuple[Tokens, int]] = OrderedDict()
        self._bytes = 0
        self._chooses = kind_of(settings.model) == "late interaction"  # the tokens that count
        self._model = load_model(
            "MultiVectorEncoder" if self._chooses else "SentenceTransformer",
            *(settings.model, settings.dtype, settings.max_tokens, settings.device),
        )
        self.fingerprint = fingerprint(settings)

    def score(self, query: str, passages: Sequence[str]) -> Scored:
        scored, _ = score_pairs(
            query,
            passages,
            lambda some: self._score(query, some),
            place=self.name,
            batch=max(len(passages), 1),
            dtype="float32",
            fingerprint=self.fingerprint,
            cache=self._cache,
        )
        return scored

    @property
    def bytes_each(self) -> float | None:
        """What the token vectors of a passage take in memory, on average; None: none is held."""
        return self._bytes / len(self._kept) if self._kept else None

    def logits(self, pairs: Sequence[tuple[str, str]]) -> Array:
        """(N, 2) float32: the score with every cosine and their mean rounded to the model's format,
        as a library that stays in it has them, and the score in high precision."""
        queries, passages = (list(dict.fromkeys(side)) for side in zip(*pairs, strict=True))
        asked = dict(zip(queries, self._embed(queries, "query"), strict=True))
        held = dict(zip(passages, self._passages(passages), strict=True))
        places: dict[str, list[int]] = {}
        for place, (query, _) in enumerate(pairs):
            places.setdefault(query, []).append(place)
        found = np.empty((len(pairs), 2), np.float32)
        for query, some in places.items():
            best = closest(asked[query][0], [held[pairs[place][1]][0] for place in some])
            low = _mean(round_to(best.astype(np.float32), self.settings.dtype))
            found[some, 0] = round_to(low, self.settings.dtype)
            found[some, 1] = _mean(best)
        return found

    def _score(self, query: str, passages: list[str]) -> list[Pair]:
        asked, read = self._embed([query], "query")[0]
        found = self._passages(passages)
        scores = max_sim(asked, [vectors for vectors, _ in found])
        return [
            (float(score), float(read + tokens), False, math.nan)
            for score, (_, tokens) in zip(scores, found, strict=True)
        ]

    def _passages(self, texts: list[str]) -> list[tuple[Tokens, int]]:
        missing = [text for text in texts if text not in self._kept]
        made = dict(zip(missing, self._embed(missing, "document"), strict=True))
        self.embedded += len(missing)
        found = [made[text] if text in made else self._kept[text] for text in texts]
        for text, entry in zip(texts, found, strict=True):
            if text in made:
                self._kept[text] = entry
                self._bytes += entry[0].nbytes
            else:
                self._kept.move_to_end(text)
        while self._kept and self._bytes > self.settings.memory_mb << 20:
            _, (vectors, _) = self._kept.popitem(last=False)
            self._bytes -= vectors.nbytes
        return found

    def _embed(self, texts: list[str], kind: str) -> list[tuple[Tokens, int]]:
        """The vectors that count, and how many tokens the model read."""
        if not texts:
            return []
        encode = getattr(self._model, f"encode_{kind}", self._model.encode)
        asked: dict[str, Any] = {"batch_size": self.settings.batch, "show_progress_bar": False}
        if not self._chooses:
            asked["output_value"] = None
        with running(self.name):
            try:
                outputs = encode(texts, **asked)
            except IndexError:  # sentence-transformers 6.0 shares "text" out by its four letters
                outputs = encode(texts, **asked | {"batch_size": 4})
        if not self._chooses:
            return [self._tokens(output) for output in outputs]
        chosen = (vectors.float().cpu().numpy() for vectors in outputs)
        return [(self._rounded(vectors), len(vectors)) for vectors in chosen]

    def _rounded(self, vectors: NDArray[np.float32]) -> Tokens:
        rounded = round_to(vectors, self.settings.tokens)
        return rounded.astype(np.float16) if self.settings.tokens == "float16" else rounded

    def _tokens(self, output: Any) -> tuple[Tokens, int]:
        if not {"token_embeddings", "attention_mask", "input_ids"} <= set(output):
            raise InputError(
                "the model has no vectors of single tokens",
                place=self.settings.model,
                remedy="use a transformer, not static word vectors",
            )
        read = output["attention_mask"].bool()
        ids = output["input_ids"][read].cpu().numpy()
        vectors = output["token_embeddings"][read].float().cpu().numpy()
        if not self.settings.special_tokens:
            vectors = vectors[~np.isin(ids, self._model.tokenizer.all_special_ids)]
        return self._rounded(fixed_sum.normalize(vectors)), len(ids)


def max_sim(query: NDArray[Any], passages: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
    """(n,) the mean over query tokens of the largest cosine to a token of each passage.

    Unit vectors in. Without a token on either side there is nothing alike: 0.
    """
    return _mean(closest(query, passages))


def closest(query: NDArray[Any], passages: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """(t, n) the largest cosine of each query token to a token of each passage.

    Products of float16 are whole multiples of 2⁻⁴⁸, and so are their sums, which float64 holds
    exactly up to 32: of such unit vectors the cosines are the same to the last bit on every
    processor, beside whatever other passages.
    """
    best = np.zeros((len(query), len(passages)))
    some = [place for place, passage in enumerate(passages) if len(passage)]
    if some and len(query):
        starts = np.cumsum([0, *(len(passages[place]) for place in some)])[:-1]
        stacked = np.concatenate([passages[place] for place in some]).astype(np.float64)
        best[:, some] = np.maximum.reduceat(query.astype(np.float64) @ stacked.T, starts, axis=1)
    return best


def _mean(best: NDArray[Any]) -> NDArray[np.float32]:
    if not len(best):
        return np.zeros(best.shape[1], np.float32)
    summed = np.cumsum(best, axis=0, dtype=np.float64)[-1]  # one order of adding, always
    mean: NDArray[np.float32] = (summed / len(best)).astype(np.float32)
    return mean
