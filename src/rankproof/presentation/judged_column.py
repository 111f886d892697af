"""What is said of judged shares: when a table needs the column, and the notes about it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankproof.measures import Measure

NOTE = "judged: share of the top k that has a judgement; no other counts as relevant"
CONDENSED = "Unjudged documents are removed from the lists (condensed)."


def any_unjudged(shares: Iterable[float]) -> bool:
    """True if a judged share is below 1, so that a table needs the column; NaN is unknown."""
    return any(share < 1 for share in shares if not math.isnan(share))


def judged_note(
    shares: Mapping[str, Mapping[Measure, float]], condensed: bool = False
) -> list[str]:
    """Return how much of the top k is judged, if not all is.

    `shares` has the judged shares by run and measure; the note is on the first measure.
    """
    measure = next((m for by_measure in shares.values() for m in by_measure), None)
    if measure is None:
        return []
    known = [s[measure] for s in shares.values() if not math.isnan(s.get(measure, math.nan))]
    if not any_unjudged(known):
        return []
    low, high = f"{min(known):.0%}", f"{max(known):.0%}"
    share = low if low == high else f"{low.rstrip('%')}–{high}"
    top = "list" if measure.cutoff is None else f"top {measure.cutoff}"
    fate = "are removed" if condensed else f"count as {measure.unjudged_count_as}"
    return [f"{share} of each {top} is judged; unjudged documents {fate}."]
