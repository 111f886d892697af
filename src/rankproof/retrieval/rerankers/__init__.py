"""A query and its candidates → scores: cross-encoders, late interaction, HTTP endpoints."""

from __future__ import annotations

from typing import Any

from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import make
from rankproof.retrieval.protocols import Reranker


def make_reranker(chosen: Any, cache: Cache | None = None) -> Reranker:
    """The reranker that settings describe; models are loaded, servers not yet asked.

    With `cache`, the score of a query and passage is stored as it is made, and not made again.

    >>> from rankproof.retrieval.rerankers import make_reranker
    >>> from rankproof.retrieval.rerankers.endpoint import RerankEndpointSettings
    >>> asked = RerankEndpointSettings(type="endpoint", url="http://localhost:8080", model="bge")
    >>> make_reranker(asked).name
    'bge'
    """
    found: Reranker = make("reranker", chosen, cache=cache)
    return found
