"""Who is ahead, in words: the sign of a difference, what could change it, and how sure that is.

Differences are a − b. Their worst cases over unjudged documents are `ends` (low, high): `exact`
where some grades reach them, so that something "could" happen; else bounds, and it "might".
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from rankproof.foundation.errors import first_few

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


def dependence_verb(exact: bool | None) -> str:
    """Return how a lead that grades change depends on them: "rests on" or "might rest on"."""
    return "rests on" if exact else "might rest on"


def open_question(a: str, b: str, ends: tuple[float, float], better: int) -> str:
    """Return what the ends of a − b leave open; `better` is 1 if larger values are better.

    Where one end is level, only whether the other run leads is open.
    """
    low, high = map(sign, ends)
    if low * high or low == high:
        return f"which of {a} and {b} is ahead"
    ahead, behind = (a, b) if better * (low + high) > 0 else (b, a)
    return f"whether {ahead} is ahead of {behind}"


def ahead_clause(others: Iterable[tuple[str, bool]]) -> str:
    """Return whom grades could and whom they might put ahead; each run comes with `exact`."""
    runs = list(others)
    clauses = []
    for exact in (True, False):
        names = [name for name, is_exact in runs if is_exact is exact]
        if names:
            clauses.append(f"{modal_verb(exact)} put {first_few(names)} ahead")
    return " and ".join(clauses)
