"""The column of judged shares: when a table has it, and the notes that explain it."""

from __future__ import annotations

import math
from collections.abc import Iterable

NOTE = "judged: share of the top k that has a judgement; no other counts as relevant"
CONDENSED = "condensed lists: documents that nobody judged are left out"


def bounds_clause(measures: Iterable[str]) -> str:
    """Return a clause naming the measures whose worst cases are bounds; "" where there are none."""
    names = ", ".join(dict.fromkeys(measures))
    return f"; those of {names} are at most so far apart" if names else ""


def any_unjudged(shares: Iterable[float]) -> bool:
    """True if a judged share is below 1, so that a table needs the column; NaN is unknown."""
    return any(share < 1 for share in shares if not math.isnan(share))
