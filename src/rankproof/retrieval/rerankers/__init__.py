"""Rerankers: cross-encoders, late interaction, HTTP endpoints."""

from __future__ import annotations

from typing import Any

from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import make_component
from rankproof.retrieval.protocols import Reranker


def make_reranker(chosen: Any, cache: Cache | None = None) -> Reranker:
    """Make the reranker that settings describe; models are loaded, servers not yet asked.

    With `cache`, the score of a query and passage is stored and not computed again.

    >>> from rankproof.retrieval.rerankers import make_reranker
    >>> from rankproof.retrieval.rerankers.endpoint import RerankEndpointSettings
    >>> settings = RerankEndpointSettings(type="endpoint", url="http://localhost:8080", model="bge")
    >>> make_reranker(settings).name
    'bge'
    """
    reranker: Reranker = make_component("reranker", chosen, cache=cache)
    return reranker
