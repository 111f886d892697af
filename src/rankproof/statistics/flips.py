"""The probability that a random order of the ties reverses the sign of a difference.

Over random orders of both runs' ties, the difference of two means has its expectation E and the
variance Σ v_q/Q², v_q = Var_A + Var_B. Where many queries contribute, (Σv)²/Σv² ≥ 20, it is nearly
normal:

    P(flip) = Φ(−|E|/σ),   on a lattice of step h   Φ(−(|E| + h/2)/σ)

Otherwise orders are drawn: for each run, the sum of the measure over the queries with most of the
variance, under random orders; a pair's difference is that of two such sums. P(flip) is 0 where
every order gives the same sign.
"""

from __future__ import annotations

import math
import zlib

import numpy as np

from rankproof.data.ties import TieGroups
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.measures import Measure
from rankproof.measures.random_orders import break_ties, deciding_groups, select_queries
from rankproof.statistics.distributions import normal_cdf
from rankproof.statistics.resampling import CELLS

ORDERS = 4_000  # drawn where few queries tie
ENOUGH = 20.0  # effective number of queries from which a sum is nearly normal
LIKELY = 0.001  # a flip below this is no real possibility

_NEGLIGIBLE = 1e-4  # share of the variance: a hundredth of the deviation
_ROUNDING = 1e-9  # a sum below this is 0


def normal_flips(total: Float, variance: Float, squares: Float, step: float) -> Float:
    """(C,) P(flip) by the normal approximation; NaN where too few queries have the variance.

    `total` is Σ E_q, `variance` Σ v_q and `squares` Σ v_q².
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        enough = variance * variance >= ENOUGH * squares
        z = -(np.abs(total) + step / 2.0) / np.sqrt(variance)
    flips = np.where(variance <= 0, 0.0, np.nan)  # a variance without a closed form stays NaN
    chosen = enough & (variance > 0)
    flips[chosen] = normal_cdf(z[chosen])
    return flips


def simulated_flip(total: float, deviations: Float) -> float:
    """Return the share of drawn orders in which total + deviation has the other sign than `total`.

    `total` is Σ E_q; a deviation is run A's sum less its expectation, minus the same of run B.
    """
    sums = total + deviations
    if abs(total) <= _ROUNDING:  # neither run leads: half of the orders with a leader count
        return float((np.abs(sums) > _ROUNDING).mean() / 2.0)
    flipped = sums < -_ROUNDING if total > _ROUNDING else sums > _ROUNDING
    return float(flipped.mean())


def run_generator(name: str, seed: int) -> np.random.Generator:
    """Return the random generator of a run's orders, which depends on no other run."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def drawn_sums(
    groups: TieGroups,
    measure: Measure,
    queries: Int,
    expected: Float,
    variance: Float | None,
    generator: np.random.Generator,
) -> Float:
    """(ORDERS,) a measure minus its expectation, summed over tied queries, under random orders.

    `expected` and `variance` are those of the queries. If the variances are known, orders are drawn
    only for the queries with most of it; the sum of the others is nearly normal, or negligible.
    """
    is_dominant = np.ones(len(queries), np.bool_)
    if variance is not None and not measure.step:
        is_dominant = _dominant_queries(variance)
    dominant = select_queries(deciding_groups(groups, measure), queries[is_dominant])
    sums = np.zeros(ORDERS)
    if variance is not None:
        remaining = math.fsum(variance[~is_dominant])
        sums += generator.normal(0.0, math.sqrt(max(remaining, 0.0)), ORDERS)
    if not is_dominant.any():
        return sums
    block = max(1, CELLS // (8 * max(1, len(dominant.grade), dominant.pool.unsorted.size)))
    for low in range(0, ORDERS, block):
        copies = min(block, ORDERS - low)
        values = measure.outcomes(break_ties(dominant, copies, generator)).oblivious
        sums[low : low + copies] += values.reshape(copies, -1).sum(axis=1)
    return sums - math.fsum(expected[is_dominant])


def _dominant_queries(variance: Float) -> Bool:
    """(Q,) True for the queries of highest variance, until the sum over the others is nearly normal
    or negligible.
    """
    falling = np.argsort(-variance, kind="stable")
    v = np.append(variance[falling], 0.0)
    remaining, squares = np.cumsum(v[::-1])[::-1], np.cumsum((v * v)[::-1])[::-1]
    is_normal = remaining * remaining >= ENOUGH * squares
    enough = is_normal | (remaining <= _NEGLIGIBLE * remaining[0])
    is_dominant = np.zeros(len(variance), np.bool_)
    is_dominant[falling[: int(enough.argmax())]] = True
    return is_dominant
