"""How many queries would tell a difference."""

from __future__ import annotations

import math

import numpy as np

from rankproof.foundation.arrays import Array, Float
from rankproof.statistics.distributions import normal_quantile
from rankproof.statistics.intervals import FEW

POWER = 0.8
ALPHA = 0.05


def queries_needed(difference: Array, spread: Array, share: Array) -> Float:
    """(…) (z_{α/2} + z_β)²·s²/δ², rounded up; inf where the difference is 0: there is none to see.

    s is the standard deviation of the per-query differences, δ the difference to be seen, `share`
    that of the queries that differ: before six do, no p falls below .05.
    """
    z = normal_quantile(1.0 - ALPHA / 2.0) + normal_quantile(POWER)
    wanted, s = np.asarray(difference, np.float64), np.asarray(spread, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.ceil(np.maximum(np.square(z * s / wanted), FEW / share))
    return np.where(wanted == 0, np.inf, needed)


def whole(number: float) -> int | None:
    """A count for JSON: None where no number of queries is enough."""
    return None if math.isnan(number) or math.isinf(number) else int(number)
