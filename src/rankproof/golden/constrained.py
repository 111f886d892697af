"""A posterior of utilities, given also what people said of the order.

The judge leaves θ ~ N(μ, Σ). A person who puts passage i above passage j says θ_i > θ_j, without
noise: the posterior is the same Gaussian where all of these hold, and nothing elsewhere. It has no
closed form; it is drawn from, one utility after the other (Gibbs), each given all others between
the highest that must lie below it and the lowest that must lie above:

    θ_i | rest ~ N(μ_i − Σ_j≠i P_ij(θ_j − μ_j)/P_ii, 1/P_ii) inside (low_i, high_i),  P = Σ⁻¹

A step of it is a slice: with z the utility in its own deviations, draw r² = z² + 2·Exp(1), then z
evenly from where |z| < r and the bounds hold. Every draw obeys every statement.

The order that is stated must obey them too, and should change no more than it has to: passages of
which people said the same keep the order that the judge left (`order_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rankproof.foundation.arrays import Bool, Float, Int

_CHAINS = 100  # side by side
_WARM = 20  # sweeps until they have forgotten where they began
_KEPT = 10  # sweeps of which every draw is kept


@dataclass(frozen=True, slots=True)
class Constrained:
    """What the draws say of a pool."""

    order: Int  # (n,) items, best first: never against what people said
    mean: Float  # (n,)
    sd: Float
    low: Int  # (n,) 95% interval of each item's rank, from 1
    high: Int
    top: Float  # (n,) P(the item is truly among the top `depth`)
    overlap: float  # expected share of the stated top `depth` that truly belongs there
    certainty: Float  # (n, n) P(θ_i > θ_j)

    def locks(self, certainty: float) -> Bool:
        """(n, n) pairs along the order that hold with this probability."""
        place = np.empty_like(self.order)
        place[self.order] = np.arange(len(place))
        along: Bool = place[:, None] < place
        return along & (self.certainty >= certainty)


def acyclic(claims: Sequence[tuple[int, int]], n: int) -> Bool:
    """(n, n) who stands above whom by claims (above, below), the weightiest first.

    A claim against what weightier ones say, or what follows from them, is left out.
    """
    above = np.zeros((n, n), np.bool_)
    for i, j in claims:
        if i == j or above[j, i] or above[i, j]:
            continue
        upper, lower = above[:, i].copy(), above[j].copy()
        upper[i] = lower[j] = True
        above |= upper[:, None] & lower
    return above


def extended(above: Bool, score: Float) -> Int:
    """(n,) the best-scored item that nothing left stands above, again and again."""
    waiting = above.sum(axis=0)
    order = np.empty(len(score), np.int64)
    left = np.array(score, np.float64)
    for place in range(len(order)):
        item = int(np.argmax(np.where(waiting == 0, left, -np.inf)))
        order[place] = item
        waiting = waiting - above[item]
        left[item], waiting[item] = -np.inf, 1
    return order


def constrain(
    mean: Float, covariance: Float, above: Bool, depth: int, seed: int = 0
) -> Constrained:
    """The posterior N(mean, covariance) where every θ_i > θ_j of a transitive `above` holds."""
    n = len(mean)
    held = [np.ascontiguousarray(x, np.float64).tobytes() for x in (mean, covariance)]
    drawn = _drawn(*held, above.tobytes(), seed)
    ranks = np.argsort(np.argsort(-drawn, axis=1, kind="stable"), axis=1)
    order = order_of(mean, above)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    depth = min(depth, n)
    top = (ranks < depth).mean(axis=0)
    low, high = np.quantile(ranks, [0.025, 0.975], axis=0, method="nearest").astype(np.int64)
    low, high = np.minimum(low, place) + 1, np.maximum(high, place) + 1
    over = np.stack([(drawn[:, [i]] > drawn).mean(axis=0) for i in range(n)])
    overlap = float(top[order[:depth]].mean())
    centre, spread = drawn.mean(axis=0), drawn.std(axis=0)
    return Constrained(order, centre, spread, low, high, top, overlap, over)


def order_of(mean: Float, above: Bool) -> Int:
    """(n,) items, best first: by the judge's mean as far as a transitive `above` allows.

    A passage must reach what it stands above, max μ, and stay under what stands above it, min μ;
    it is taken to lie half way. Both rise with the order, so no statement is contradicted; of two
    that disagree with the judge each moves half the way; what nobody touched stays.
    """
    within = above | np.eye(len(mean), dtype=np.bool_)
    reach = np.where(within, mean, -np.inf).max(axis=1)
    under = np.where(within, mean[:, None], np.inf).min(axis=0)
    score = np.empty(len(mean))
    score[np.lexsort((-mean, -(reach + under) / 2))] = -np.arange(float(len(mean)))
    return extended(above, score)


@lru_cache(maxsize=256)
def _drawn(mean: bytes, covariance: bytes, above: bytes, seed: int) -> Float:
    """`draws`, kept: a page asks for the same order again and again."""
    centre = np.frombuffer(mean)
    n = len(centre)
    spread = np.frombuffer(covariance).reshape(n, n)
    found = draws(centre, spread, np.frombuffer(above, np.bool_).reshape(n, n), seed)
    found.flags.writeable = False
    return found


def draws(mean: Float, covariance: Float, above: Bool, seed: int) -> Float:
    """(draws, n) of the utilities; each obeys `above`."""
    n = len(mean)
    generator = np.random.default_rng(seed)
    precision = np.linalg.inv(covariance)
    root = np.linalg.cholesky(covariance)
    # Each chain begins with a draw of the judge's posterior, its values dealt out in an order that
    # people would agree with.
    theta = np.empty((n, _CHAINS))
    begun = generator.standard_normal((_CHAINS, n)) @ root.T + mean
    theta[extended(above, mean)] = -np.sort(-begun, axis=1).T
    spread = 1 / np.sqrt(np.diag(precision))
    pull = precision * spread[:, None] ** 2
    np.fill_diagonal(pull, 0.0)
    over = [np.flatnonzero(above[:, i]) for i in range(n)]
    under = [np.flatnonzero(above[i]) for i in range(n)]
    kept = np.empty((_KEPT, n, _CHAINS))
    for sweep in range(_WARM + _KEPT):
        slices = generator.standard_exponential((n, _CHAINS))
        places = generator.random((n, _CHAINS))
        for i in range(n):
            centre = mean[i] - pull[i] @ (theta - mean[:, None])
            reach = np.sqrt((theta[i] - centre) ** 2 + 2 * slices[i] * spread[i] ** 2)
            low, high = centre - reach, centre + reach
            if len(over[i]):
                high = np.minimum(high, theta[over[i]].min(axis=0))
            if len(under[i]):
                low = np.maximum(low, theta[under[i]].max(axis=0))
            theta[i] = low + places[i] * (high - low)
        if sweep >= _WARM:
            kept[sweep - _WARM] = theta
    return kept.transpose(0, 2, 1).reshape(-1, n)
