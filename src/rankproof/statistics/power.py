"""How many queries would tell a difference."""

from __future__ import annotations

import math

import numpy as np

from rankproof.arrays import Array, Float
from rankproof.statistics.distributions import normal_quantile

POWER = 0.8
ALPHA = 0.05


def queries_needed(
    difference: Array, spread: Array, power: float = POWER, alpha: float = ALPHA
) -> Float:
    """(…) (z_{α/2} + z_β)²·s²/δ², rounded up; inf where the difference is 0 and s is not.

    s is the standard deviation of the per-query differences, δ the difference to be seen.
    """
    z = normal_quantile(1.0 - alpha / 2.0) + normal_quantile(power)
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.square(z * np.asarray(spread, np.float64) / np.asarray(difference, np.float64))
    return np.where(np.asarray(spread) == 0, 2.0, np.ceil(np.maximum(needed, 2.0)))


def whole(number: float) -> int | None:
    """A count for JSON: None where no number of queries is enough."""
    return None if math.isnan(number) or math.isinf(number) else int(number)
