"""Who is ahead: the sign of a difference, what turns it, and how sure that is in words."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rankproof.foundation.errors import first_few

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


def could(exact: bool | None) -> str:
    """What grades do by ends that some of them reach; by ends that are bounds they only might."""
    return "could" if exact else "might"


def rests(exact: bool | None) -> str:
    """The same of a lead that grades turn."""
    return "rests on" if exact else "might rest on"


def asked(a: str, b: str, ends: tuple[float, float], better: int) -> str:
    """What these ends of a − b leave open: where one of them is level, only whether one leads."""
    low, high = map(sign, ends)
    if low * high or low == high:
        return f"which of {a} and {b} is ahead"
    ahead, behind = (a, b) if better * (low + high) > 0 else (b, a)
    return f"whether {ahead} is ahead of {behind}"


def put_ahead(others: Iterable[tuple[str, bool]]) -> str:
    """Whom grades could put ahead, and whom they might, each with whether its end is reached."""
    found = list(others)
    said = []
    for exact in (True, False):
        names = [name for name, reached in found if reached is exact]
        if names:
            said.append(f"{could(exact)} put {first_few(names)} ahead")
    return " and ".join(said)
