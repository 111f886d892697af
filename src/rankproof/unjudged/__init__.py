"""Holes: what documents that nobody judged could change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankproof.unjudged.bounds import Bound, PairHoles, RunHoles, Unjudged, holes_of

__all__ = ["Bound", "PairHoles", "RunHoles", "Unjudged", "holes_of"]


def __getattr__(name: str) -> Any:
    """Loaded when used: an evaluation says what is judged, and asks nothing of the holes."""
    if name not in __all__:
        raise AttributeError(f"module 'rankproof.unjudged' has no attribute {name!r}")
    from rankproof.unjudged import bounds

    return getattr(bounds, name)
