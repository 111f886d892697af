"""Who is ahead: the sign of a difference, and what turns it."""

from __future__ import annotations

import math

ZERO = 1e-12  # a difference or a range below this is rounding, not a lead


def sign(value: float) -> int:
    return 0 if abs(value) < ZERO else int(math.copysign(1, value))


def turned(now: float, tied: tuple[float, float], ends: tuple[float, float]) -> bool:
    """Whether the ends over unjudged documents turn the sign of a difference, past those over ties.

    One that is not defined now (NaN) is turned by whatever defines it.
    """
    if math.isnan(now):
        return True
    falls = tied[0] - ends[0] > ZERO and sign(ends[0]) < sign(now)
    return falls or (ends[1] - tied[1] > ZERO and sign(ends[1]) > sign(now))
