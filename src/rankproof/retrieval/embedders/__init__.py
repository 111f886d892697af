"""Embedders: static word vectors, sentence-transformers models, HTTP endpoints.

Every embedder here returns float32 vectors of length 1, so that a dot product is a cosine. A blank
text contains nothing to find and gets zeros: its cosine to everything is 0.
"""

from __future__ import annotations

from typing import Any

from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import make_component
from rankproof.retrieval.protocols import Embedder


def make_embedder(chosen: Any, cache: Cache | None = None) -> Embedder:
    """Make the embedder that settings describe; models are loaded, servers not yet asked.

    With `cache`, vectors are stored batch by batch and not computed again.

    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> make_embedder(WordllamaSettings()).embed_queries(["What do whales breathe?"]).shape
    (1, 256)
    """
    embedder: Embedder = make_component("embedder", chosen, cache=cache)
    return embedder
