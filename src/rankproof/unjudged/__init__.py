"""Holes: what documents that nobody judged could change."""

from __future__ import annotations

from rankproof.unjudged.bounds import Bound, PairHoles, RunHoles, Unjudged, holes, holes_of

__all__ = ["Bound", "PairHoles", "RunHoles", "Unjudged", "holes", "holes_of"]
