"""The column that says what is judged: when a table has it, and what it says."""

from __future__ import annotations

import math
from collections.abc import Iterable

NOTE = "judged: share of the top k that has a judgement; no other counts as relevant"
CONDENSED = "condensed lists: documents that nobody judged are left out"


def at_most(names: Iterable[str]) -> str:
    """That no grades reach the ends of some measures; nothing where there is none."""
    found = ", ".join(dict.fromkeys(names))
    return f"; those of {found} are at most so far apart" if found else ""


def some_unjudged(shares: Iterable[float]) -> bool:
    """Whether a table needs the column; a share that is not known (NaN) needs none."""
    return any(share < 1 for share in shares if not math.isnan(share))
