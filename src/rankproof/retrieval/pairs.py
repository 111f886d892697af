"""What all rerankers do around their model: each passage once, the cache, batches."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

import numpy as np

from rankproof.foundation.errors import InputError, shorten
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.protocols import Scored

_ENTRY = struct.Struct("<dd?d")
_FIRST = struct.Struct("<dd?")  # what a cache of before searches were counted holds
Pair = tuple[float, float, bool, float]
"""Score, tokens (a share of its request's, so not whole), whether those were estimated, and
searches billed (a share too; NaN where nobody says)."""


def score_pairs(
    query: str,
    passages: Sequence[str],
    compute: Callable[[list[str]], list[Pair]],
    *,
    place: str,
    batch: int,
    dtype: str,
    fingerprint: str,
    cache: Cache | None = None,
) -> tuple[Scored, bool]:
    """The scores of the passages, in their order, and whether any of the tokens were estimated.

    `compute` gets each passage that is not in the cache once, `batch` at a time, and every batch
    is stored before the next. A passage that is given twice is counted twice.
    """
    distinct = list(dict.fromkeys(passages))
    role = f"rerank {query}"
    known: dict[str, Pair] = {}
    if cache is not None:
        stored = cache.get_many(fingerprint, role, distinct)
        known = {
            text: _unpack(value)
            for text, value in zip(distinct, stored, strict=True)
            if value is not None
        }
    missing = [text for text in distinct if text not in known]
    for first in range(0, len(missing), batch):
        some = missing[first : first + batch]
        made = dict(zip(some, compute(some), strict=True))
        for text, (score, *_) in made.items():
            if not np.isfinite(score):
                raise InputError(
                    f"the score of {shorten(text)} is {score}",
                    place=place,
                    remedy="load the model in float32, or leave the passage out",
                )
        if cache is not None:
            values = {text: _ENTRY.pack(*pair) for text, pair in made.items()}
            cache.put_many(fingerprint, role, values)
        known |= made
    pairs = [known[text] for text in passages]
    columns = [np.array([pair[at] for pair in pairs], np.float64) for at in range(4)]
    scores, tokens, estimated, searches = columns
    read, billed = round(float(tokens.sum())), float(searches.sum())  # NaN where any is
    said: tuple[float | None, float | None] = (None, None)
    if not math.isnan(billed):
        said = billed, float(searches[searches > 0].min()) if billed > 0 else 0.0
    return Scored(scores, read, dtype, *said), bool(estimated.any())


def _unpack(value: bytes) -> Pair:
    if len(value) == _FIRST.size:
        return (*_FIRST.unpack(value), math.nan)
    return _ENTRY.unpack(value)
