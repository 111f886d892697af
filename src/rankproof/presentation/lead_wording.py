"""Who is ahead, in words: the sign of a difference, what could change it, and how sure that is.

Differences are a − b. Their worst cases over unjudged documents are `ends` (low, high): `exact`
where some grades reach them, so that something "could" happen; else bounds, and it "might".
"""

from __future__ import annotations

import math

ZERO = 1e-12  # a difference or a range below this is rounding, not a lead


def sign(value: float) -> int:
    """Return 1, −1, or 0 for a difference that is only rounding."""
    return 0 if abs(value) < ZERO else int(math.copysign(1, value))


def may_change_sign(
    difference: float, tie_range: tuple[float, float], ends: tuple[float, float]
) -> bool:
    """True if unjudged documents, beyond what ties do already, could change who is ahead.

    An undefined difference (NaN) may become anything.
    """
    if math.isnan(difference):
        return True
    falls = tie_range[0] - ends[0] > ZERO and sign(ends[0]) < sign(difference)
    return falls or (ends[1] - tie_range[1] > ZERO and sign(ends[1]) > sign(difference))


def modal_verb(exact: bool | None) -> str:
    """Return "could" where some grades reach the ends, "might" where they are bounds."""
    return "could" if exact else "might"
