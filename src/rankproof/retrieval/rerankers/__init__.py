"""A query and its candidates → scores: cross-encoders, late interaction, HTTP endpoints."""

from __future__ import annotations

from rankproof.retrieval.cache import Cache
from rankproof.retrieval.protocols import Reranker
from rankproof.retrieval.settings import (
    CrossEncoderSettings,
    RerankEndpointSettings,
    RerankerSettings,
)


def make_reranker(settings: RerankerSettings, cache: Cache | None = None) -> Reranker:
    """The reranker that `settings` describe; models are loaded, servers not yet asked.

    With `cache`, the score of a query and passage is stored as it is made, and not made again.
    """
    if isinstance(settings, CrossEncoderSettings):
        from rankproof.retrieval.rerankers.cross_encoder import CrossEncoderReranker

        return CrossEncoderReranker(settings, cache)
    if isinstance(settings, RerankEndpointSettings):
        from rankproof.retrieval.rerankers.endpoint import EndpointReranker

        return EndpointReranker(settings, cache)
    from rankproof.retrieval.rerankers.maxsim import MaxSimReranker

    return MaxSimReranker(settings, cache)
