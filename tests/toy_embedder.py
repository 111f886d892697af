"""An embedder that needs no model: counts of letter triples, hashed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from rankproof.retrieval.protocols import Vectors

WIDTH = 256


class Toy:
    """Texts that share triples of letters are near. Counts what it is asked."""

    name = "toy"
    fingerprint = "toy"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts)

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts)

    def _embed(self, texts: Sequence[str]) -> Vectors:
        self.asked += texts
        vectors = np.zeros((len(texts), WIDTH), np.float32)
        for row, text in enumerate(texts):
            for at in range(len(text) - 2):
                vectors[row, zlib.crc32(text[at : at + 3].encode()) % WIDTH] += 1
        return vectors
