"""Texts → unit vectors: static word vectors, sentence-transformers models, HTTP endpoints.

Every embedder here returns float32 vectors of length 1, so that a dot product is a cosine. A blank
text, in which there is nothing to find, gets zeros: its cosine to everything is 0.
"""

from __future__ import annotations

from typing import Any

from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import make
from rankproof.retrieval.protocols import Embedder
from rankproof.retrieval.texts import Progress


def make_embedder(
    chosen: Any, cache: Cache | None = None, progress: Progress | None = None
) -> Embedder:
    """The embedder that settings describe; models are loaded, servers not yet asked.

    With `cache`, vectors are stored batch by batch as they are made, and not made again.
    `progress` is told how many texts are done.

    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> make_embedder(WordllamaSettings()).embed_queries(["What do whales breathe?"]).shape
    (1, 256)
    """
    found: Embedder = make("embedder", chosen, cache=cache, progress=progress)
    return found
