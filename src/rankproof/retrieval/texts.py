"""What all embedders do around their model: each text once, the cache, batches, unit length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from rankproof.foundation.errors import InputError, shorten
from rankproof.precision import fixed_sum
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.protocols import Vectors

_CHARACTERS = 1 << 20  # of a batch, once its texts are padded to the longest

Role = Literal["query", "passage"]
Progress = Callable[[float], None]  # told how many texts were done since it was last told


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
    progress: Progress | None = None,
    normalise: bool = True,
) -> Vectors:
    """(n, D) unit vectors of the texts, in their order; `compute` gets each text that is not blank
    and not in the cache once, `batch` at a time, and every batch is stored before the next.

    `dimensions` is D where it is known before any text was embedded.
    """
    distinct = list(dict.fromkeys(text for text in texts if text.strip()))
    vectors: dict[str, Vectors] = {}
    if cache is not None:
        stored = cache.get_many(fingerprint, role, distinct)
        vectors = {
            text: np.frombuffer(value, "<f4").astype(np.float32)
            for text, value in zip(distinct, stored, strict=True)
            if value is not None
        }
    missing = [text for text in distinct if text not in vectors]
    if progress is not None:
        progress(len(texts) - len(missing))
    for some in batches(missing, batch):
        made = _finite(compute(some), some, place)
        made = unit(made) if normalise else made.astype(np.float32)
        vectors.update(zip(some, made, strict=True))
        if cache is not None:
            values = {text: vectors[text].astype("<f4").tobytes() for text in some}
            cache.put_many(fingerprint, role, values)
        if progress is not None:
            progress(len(some))
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
    found = np.zeros((len(texts), widths.pop() if widths else dimensions or 0), np.float32)
    for row, text in enumerate(texts):
        if text in vectors:
            found[row] = vectors[text]
    return found


def batches(texts: Sequence[str], count: int) -> Iterator[list[str]]:
    """At most `count` texts at a time, in their order; those so long that a whole batch, padded to
    them, would not fit into memory come last and fewer at a time."""
    usual = _CHARACTERS // count
    short = [text for text in texts if len(text) <= usual]
    for first in range(0, len(short), count):
        yield short[first : first + count]
    some: list[str] = []
    for text in sorted((text for text in texts if len(text) > usual), key=len):
        if some and (len(some) + 1) * len(text) > _CHARACTERS:
            yield some
            some = []
        some.append(text)
    if some:
        yield some


def _finite(vectors: Any, texts: Sequence[str], place: str) -> Any:
    """A value that is not a number names its text."""
    wide = np.asarray(vectors, np.float64)
    bad = np.flatnonzero(~np.isfinite(wide).all(axis=1))
    if len(bad):
        raise InputError(
            f"the vector of {shorten(texts[bad[0]])} holds NaN or infinity",
            place=place,
            remedy="load the model in float32, or leave the text out",
        )
    return wide


def unit(vectors: Any) -> Vectors:
    """Rows of length 1, zeros left as they are; the same bits on every machine."""
    return fixed_sum.normalize(np.asarray(vectors, np.float32))
