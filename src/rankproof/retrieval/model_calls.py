"""Calls of embedding and reranking models: batches, cache, and checks of the output.

Every embedder and reranker calls its model through these functions. A text that occurs twice, or
that is in the cache, is not computed again. Missing texts go to the model in batches, and each is
stored before the next is computed, so that an interrupted run loses at most one batch.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from rankproof.foundation.errors import InputError, shorten
from rankproof.precision import fixed_sum
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.protocols import Scored, Vectors

_BATCH_CHARACTERS = 1 << 20  # of a batch whose texts are padded to the longest

Role = Literal["query", "passage"]
T = TypeVar("T")


def compute_missing(
    texts: Iterable[str],
    compute: Callable[[list[str]], Iterable[T]],
    split: Callable[[Sequence[str]], Iterable[list[str]]],
    *,
    pack: Callable[[T], bytes],
    unpack: Callable[[bytes], T],
    cache: Cache | None,
    key: tuple[str, str],
) -> dict[str, T]:
    """Return the result of each distinct text, from the cache or computed batch by batch.

    `split` makes batches of the texts that are not in the cache; `key` is (fingerprint, role).
    """
    distinct = list(dict.fromkeys(texts))
    results: dict[str, T] = {}
    if cache is not None:
        stored = zip(distinct, cache.get_many(*key, distinct), strict=True)
        results = {text: unpack(value) for text, value in stored if value is not None}
    for batch in split([text for text in distinct if text not in results]):
        computed = dict(zip(batch, compute(batch), strict=True))
        if cache is not None:
            cache.put_many(*key, {text: pack(value) for text, value in computed.items()})
        results |= computed
    return results


# ------------------------------------------------------------------------------------ embedding


def embed_texts(
    texts: Sequence[str],
    compute: Callable[[list[str]], Vectors],
    *,
    place: str,
    batch: int,
    dimensions: int | None = None,
    cache: Cache | None = None,
    fingerprint: str = "",
    role: Role = "passage",
    normalise: bool = True,
) -> Vectors:
    """Return (n, D) vectors of the texts, of length 1 unless `normalise` is false.

    Blank texts get zeros and are not computed. `dimensions` is D where it is known beforehand.
    """

    def compute_checked(batch_texts: list[str]) -> Vectors:
        """Compute a batch of vectors; refuse numbers that are not finite."""
        computed = _check_finite(compute(batch_texts), batch_texts, place)
        vectors: Vectors = unit_vectors(computed) if normalise else computed.astype(np.float32)
        return vectors

    vectors = compute_missing(
        (text for text in texts if text.strip()),
        compute_checked,
        lambda missing: padded_batches(missing, batch),
        pack=lambda vector: vector.astype("<f4").tobytes(),
        unpack=lambda value: np.frombuffer(value, "<f4").astype(np.float32),
        cache=cache,
        key=(fingerprint, role),
    )
    return _stack_vectors(texts, vectors, dimensions, place)


def _stack_vectors(
    texts: Sequence[str], vectors: dict[str, Any], dimensions: int | None, place: str
) -> Vectors:
    """Return the vector of each text as rows (n, D), zeros for blank texts; D must be unique."""
    widths = {len(vector) for vector in vectors.values()}
    if len(widths) > 1:
        raise InputError(
            f"vectors of {min(widths)} and of {max(widths)} dimensions",
            place=place,
            remedy="give `dimensions`, or a cache of its own: the model has changed",
        )
    if not widths and dimensions is None and len(texts):
        raise InputError(
            "every text is blank, and how long a vector would be is not known",
            place=place,
            remedy="give a text",
        )
    embedded = np.zeros((len(texts), widths.pop() if widths else dimensions or 0), np.float32)
    for row, text in enumerate(texts):
        if text in vectors:
            embedded[row] = vectors[text]
    return embedded


def padded_batches(texts: Sequence[str], count: int) -> Iterator[list[str]]:
    """Yield batches of at most `count` texts, in their order.

    Long texts, of which a whole padded batch would not fit into memory, come last, sorted by length
    and in smaller batches.
    """
    longest = _BATCH_CHARACTERS // count
    short = [text for text in texts if len(text) <= longest]
    for first in range(0, len(short), count):
        yield short[first : first + count]
    batch: list[str] = []
    for text in sorted((text for text in texts if len(text) > longest), key=len):
        if batch and (len(batch) + 1) * len(text) > _BATCH_CHARACTERS:
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch


def _check_finite(vectors: Any, texts: Sequence[str], place: str) -> Any:
    """Return the vectors as float64; refuse NaN and infinity, naming the text."""
    wide = np.asarray(vectors, np.float64)
    invalid = np.flatnonzero(~np.isfinite(wide).all(axis=1))
    if len(invalid):
        raise InputError(
            f"the vector of {shorten(texts[invalid[0]])} holds NaN or infinity",
            place=place,
            remedy="load the model in float32, or leave the text out",
        )
    return wide


def unit_vectors(vectors: Any) -> Vectors:
    """Scale rows to length 1, leaving zeros as they are; the same bits on every machine."""
    return fixed_sum.normalize(np.asarray(vectors, np.float32))


# ------------------------------------------------------------------------------------ reranking


class PairScore(NamedTuple):
    """Score of one passage for a query, and its share of what the request cost."""

    score: float
    tokens: float
    tokens_are_estimated: bool = False
    searches: float = math.nan  # billed; NaN if the server does not say


_ENTRY = struct.Struct("<dd?d")
_OLD_ENTRY = struct.Struct("<dd?")  # as it was stored before searches were counted


def _unpack_pair(value: bytes) -> PairScore:
    """Return a stored score, also one stored without its searches."""
    entry = _OLD_ENTRY if len(value) == _OLD_ENTRY.size else _ENTRY
    return PairScore(*entry.unpack(value))


def score_pairs(
    query: str,
    passages: Sequence[str],
    compute: Callable[[list[str]], list[PairScore]],
    *,
    place: str,
    batch: int | None = None,
    dtype: str,
    fingerprint: str,
    cache: Cache | None = None,
) -> tuple[Scored, bool]:
    """Return the scores of the passages, and whether any count of tokens is an estimate.

    Without `batch` all passages go to the model at once, which then makes its own batches. A
    passage that occurs twice is computed once and its tokens count twice.
    """

    def compute_checked(texts: list[str]) -> list[PairScore]:
        """Score a batch; refuse scores that are not finite."""
        scores = compute(texts)
        for text, result in zip(texts, scores, strict=True):
            if not np.isfinite(result.score):
                raise InputError(
                    f"the score of {shorten(text)} is {result.score}",
                    place=place,
                    remedy="load the model in float32, or leave the passage out",
                )
        return scores

    size = batch or max(len(passages), 1)
    results = compute_missing(
        passages,
        compute_checked,
        lambda missing: (missing[i : i + size] for i in range(0, len(missing), size)),  # type: ignore[misc]
        pack=lambda result: _ENTRY.pack(*result),
        unpack=_unpack_pair,
        cache=cache,
        key=(fingerprint, f"rerank {query}"),
    )
    pairs = [results[text] for text in passages]
    return _add_costs(pairs, dtype), any(pair.tokens_are_estimated for pair in pairs)


def _add_costs(pairs: Sequence[PairScore], dtype: str) -> Scored:
    """Return the scores of a query's passages with the sums of their costs."""
    score = np.array([pair.score for pair in pairs], np.float64)
    tokens = round(float(np.array([pair.tokens for pair in pairs], np.float64).sum()))
    searches = np.array([pair.searches for pair in pairs], np.float64)
    billed = float(searches.sum())  # NaN if any is
    if math.isnan(billed):
        return Scored(score, tokens, dtype)
    share = float(searches[searches > 0].min()) if billed > 0 else 0.0
    return Scored(score, tokens, dtype, searches=billed, share=share)
