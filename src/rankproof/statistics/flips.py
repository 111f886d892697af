"""Whether a random order of the ties would turn the sign of a difference.

Over random orders of both runs' ties the difference of two means has its expectation E and the
variance Σ v_q/Q², v_q = Var_A + Var_B. Where many queries share the variance, (Σv)²/Σv² ≥ 20, it is
nearly normal:

    P(flip) = Φ(−|E|/σ),   on a lattice of step h   Φ(−(|E| + h/2)/σ)

Where few queries share it, orders are drawn: for each run the sum of the measure over the queries
that carry the variance, under random orders; a pair is the difference of two such sums. 0 where
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
ENOUGH = 20.0  # effective number of queries for the normal distribution to hold
LIKELY = 0.001  # a flip below this is no real possibility

_NEGLIGIBLE = 1e-4  # share of the variance: a hundredth of the deviation
_ROUNDING = 1e-9  # a sum below this is 0


def normal_flips(total: Float, variance: Float, squares: Float, step: float) -> Float:
    """(C,) P(flip) of sums over queries; NaN where too few queries carry the variance.

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
    """The share of drawn orders in which Σ E_q plus a's deviation less b's has the other sign."""
    sums = total + deviations
    if abs(total) <= _ROUNDING:  # neither run leads: either may
        return float((np.abs(sums) > _ROUNDING).mean() / 2.0)
    flipped = sums < -_ROUNDING if total > _ROUNDING else sums > _ROUNDING
    return float(flipped.mean())


def run_generator(name: str, seed: int) -> np.random.Generator:
    """A run's own stream of random orders, which no other run changes."""
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
    for the queries that carry them; the others together are nearly normal, or negligible.
    """
    carrying = np.ones(len(queries), np.bool_)
    if variance is not None and not measure.step:
        carrying = _carrying(variance)
    few = select_queries(deciding_groups(groups, measure), queries[carrying])
    sums = np.zeros(ORDERS)
    if variance is not None:
        remaining = math.fsum(variance[~carrying])
        sums += generator.normal(0.0, math.sqrt(max(remaining, 0.0)), ORDERS)
    if not carrying.any():
        return sums
    block = max(1, CELLS // (8 * max(1, len(few.grade), few.pool.unsorted.size)))
    for low in range(0, ORDERS, block):
        copies = min(block, ORDERS - low)
        values = measure.outcomes(break_ties(few, copies, generator)).oblivious
        sums[low : low + copies] += values.reshape(copies, -1).sum(axis=1)
    return sums - math.fsum(expected[carrying])


def _carrying(variance: Float) -> Bool:
    """(Q,) the fewest queries without which the others are nearly normal in sum, or negligible."""
    falling = np.argsort(-variance, kind="stable")
    v = np.append(variance[falling], 0.0)
    remaining, squares = np.cumsum(v[::-1])[::-1], np.cumsum((v * v)[::-1])[::-1]
    is_normal = remaining * remaining >= ENOUGH * squares
    enough = is_normal | (remaining <= _NEGLIGIBLE * remaining[0])
    carrying = np.zeros(len(variance), np.bool_)
    carrying[falling[: int(enough.argmax())]] = True
    return carrying
