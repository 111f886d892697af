"""Embed texts as unit vectors, each text once, so that equal texts have equal vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rankproof.foundation.arrays import Array, Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.progress import advance
from rankproof.retrieval.protocols import Embedder
from rankproof.retrieval.workshop import check_rows

_BATCH = 512  # texts between two updates of the progress display


class Embedded:
    """Unit vectors of texts, looked up by text."""

    def __init__(self, embed: Callable[[Sequence[str]], Array], texts: Sequence[str], name: str):
        """Embed each distinct text once, in batches; `name` is the embedder's, for messages."""
        unique = list(dict.fromkeys(texts))
        self._row = {text: row for row, text in enumerate(unique)}
        parts = []
        for first in range(0, len(unique), _BATCH):
            batch = unique[first : first + _BATCH]
            parts.append(_unit(embed(batch), batch, name))
            advance(len(batch) * len(texts) / len(unique))  # repeated texts count as done
        if len({part.shape[1] for part in parts}) > 1:
            raise InputError(
                "vectors of different lengths", place=name, remedy="check the embedder"
            )
        self.vectors = np.concatenate(parts)  # (unique texts, D)

    def rows(self, texts: Sequence[str]) -> Array:
        """Return (n,) the row of each text in `vectors`."""
        return np.array([self._row[text] for text in texts], np.int64)

    def __call__(self, texts: Sequence[str]) -> Float:
        """Return (n, D) the vectors of these texts."""
        vectors: Float = self.vectors[self.rows(texts)]
        return vectors


def embed_queries(embedder: Embedder, texts: Sequence[str]) -> Embedded:
    """Embed texts as queries."""
    return Embedded(embedder.embed_queries, texts, embedder.name)


def embed_passages(embedder: Embedder, texts: Sequence[str]) -> Embedded:
    """Embed texts as passages."""
    return Embedded(embedder.embed_passages, texts, embedder.name)


def cosines(one: Float, other: Float) -> Float:
    """Return (n,) cosines of unit vectors, row by row."""
    products: Float = (one * other).sum(axis=-1)
    return products


def _unit(values: Array, texts: Sequence[str], name: str) -> Float:
    """Scale vectors to length 1; raise InputError for one that is zero or not finite."""
    vectors = check_rows(values, np.float64, len(texts), name)
    length = np.sqrt((vectors * vectors).sum(axis=1))
    is_blank = np.array([not text.strip() for text in texts])  # may stay zero
    wrong = ~np.isfinite(length) | ((length == 0) & ~is_blank)
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
