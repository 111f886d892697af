"""Texts → unit vectors: static word vectors, sentence-transformers models, HTTP endpoints.

Every embedder here returns float32 vectors of length 1, so that a dot product is a cosine. A blank
text, in which there is nothing to find, gets zeros: its cosine to everything is 0.
"""

from __future__ import annotations

from rankproof.retrieval.cache import Cache
from rankproof.retrieval.embedders.texts import Progress
from rankproof.retrieval.protocols import Embedder
from rankproof.retrieval.settings import (
    EmbedderSettings,
    EmbeddingEndpointSettings,
    SentenceTransformersSettings,
)


def make_embedder(
    settings: EmbedderSettings, cache: Cache | None = None, progress: Progress | None = None
) -> Embedder:
    """The embedder that `settings` describe; models are loaded, servers not yet asked.

    With `cache`, vectors are stored batch by batch as they are made, and not made again.
    `progress` is told how many texts are done.
    """
    if isinstance(settings, SentenceTransformersSettings):
        from rankproof.retrieval.embedders.sentence_transformers import SentenceTransformersEmbedder

        return SentenceTransformersEmbedder(settings, cache, progress)
    if isinstance(settings, EmbeddingEndpointSettings):
        from rankproof.retrieval.embedders.endpoint import EndpointEmbedder

        return EndpointEmbedder(settings, cache, progress)
    from rankproof.retrieval.embedders.wordllama import WordllamaEmbedder

    return WordllamaEmbedder(settings, progress)
