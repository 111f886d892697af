"""Texts → unit vectors, each text once: equal texts get equal vectors, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rankproof.foundation.arrays import Array, Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.retrieval.protocols import Embedder
from rankproof.retrieval.workshop import check_rows

BATCH = 512  # texts handed over at a time, so that progress can be told


class Embedded:
    """Vectors of many texts, looked up by text."""

    def __init__(
        self,
        embed: Callable[[Sequence[str]], Array],
        texts: Sequence[str],
        name: str,
        progress: Callable[[float], None] | None = None,
    ):
        unique = list(dict.fromkeys(texts))
        self._row = {text: row for row, text in enumerate(unique)}
        told = len(texts) / len(unique) if unique else 0.0
        parts = []
        for first in range(0, len(unique), BATCH):
            batch = unique[first : first + BATCH]
            parts.append(_unit(embed(batch), batch, name))
            if progress is not None:
                progress(len(batch) * told)
        if len({part.shape[1] for part in parts}) > 1:
            raise InputError(
                "vectors of different lengths", place=name, remedy="check the embedder"
            )
        self.vectors = np.concatenate(parts)  # (unique texts, D)

    def __len__(self) -> int:
        return len(self.vectors)

    def rows(self, texts: Sequence[str]) -> Array:
        """(n,) where each text stands in `vectors`."""
        return np.array([self._row[text] for text in texts], np.int64)

    def __call__(self, texts: Sequence[str]) -> Float:
        """(n, D)"""
        found: Float = self.vectors[self.rows(texts)]
        return found


def embed_queries(
    embedder: Embedder, texts: Sequence[str], progress: Callable[[float], None] | None = None
) -> Embedded:
    return Embedded(embedder.embed_queries, texts, embedder.name, progress)


def embed_passages(
    embedder: Embedder, texts: Sequence[str], progress: Callable[[float], None] | None = None
) -> Embedded:
    return Embedded(embedder.embed_passages, texts, embedder.name, progress)


def cosines(one: Float, other: Float) -> Float:
    """(n,) of unit vectors, row by row."""
    products: Float = (one * other).sum(axis=-1)
    return products


def _unit(values: Array, texts: Sequence[str], name: str) -> Float:
    vectors = check_rows(values, np.float64, len(texts), name)
    length = np.sqrt((vectors * vectors).sum(axis=1))
    blank = np.array([not text.strip() for text in texts])  # nothing to find: zeros will do
    wrong = ~np.isfinite(length) | ((length == 0) & ~blank)
    if wrong.any():
        at = int(wrong.argmax())
        problem = "a zero vector" if length[at] == 0 else "a number that is not finite"
        raise InputError(
            f"{problem} for the text {shorten(texts[at])}",
            place=name,
            remedy="check the embedder, or leave the text out",
        )
    scaled: Float = vectors / np.where(length > 0, length, 1.0)[:, None]
    return scaled
