"""The posterior of utilities, given also what people said about the order.

The judge leaves θ ~ N(μ, Σ). A person who puts passage i above passage j says θ_i > θ_j, without
noise: the posterior is the same Gaussian restricted to where all statements hold. It has no closed
form, so it is sampled (Gibbs): one utility after the other is drawn given all others, between the
highest that must lie below it and the lowest that must lie above:

    θ_i | others ~ N(μ_i − Σ_j≠i P_ij(θ_j − μ_j)/P_ii, 1/P_ii) inside (low_i, high_i),  P = Σ⁻¹

Each draw is a step of slice sampling (Neal 2003): with z the utility in its own standard
deviations, draw r² = z² + 2·Exp(1), then z uniformly from where |z| < r and the bounds hold. So
every draw obeys every statement.

The stated order must obey them, too, and should change no more than necessary: passages of which
people said the same keep the judge's order (`closest_order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rankproof.foundation.arrays import Bool, Float, Int

_CHAINS = 100  # in parallel
_WARM_UP_SWEEPS = 20  # until the chains have forgotten where they began
_KEPT_SWEEPS = 10  # every draw of these is used


@dataclass(frozen=True, slots=True)
class ConstrainedRanking:
    """A pool's order and its uncertainty, given people's statements."""

    order: Int  # (n,) items, best first; obeys every statement
    mean: Float  # (n,)
    sd: Float  # (n,)
    low: Int  # (n,) 95% interval of each item's rank, from 1
    high: Int
    top: Float  # (n,) P(the item is truly among the top `depth`)
    overlap: float  # expected share of the stated top `depth` that truly belongs there
    certainty: Float  # (n, n) P(θ_i > θ_j)

    def locks(self, certainty: float) -> Bool:
        """(n, n) pairs in the stated order that hold with at least this probability."""
        position = np.empty_like(self.order)
        position[self.order] = np.arange(len(position))
        in_order: Bool = position[:, None] < position
        return in_order & (self.certainty >= certainty)


def add_to_closure(above: Bool, i: int, j: int) -> None:
    """Add "i above j", and all that follows from it, to a transitive relation, in place."""
    upper, lower = above[:, i].copy(), above[j].copy()
    upper[i] = lower[j] = True
    above |= upper[:, None] & lower


def consistent_claims(claims: Sequence[tuple[int, int]], n: int) -> Bool:
    """(n, n) transitive closure of claims (above, below), given the weightiest first.

    A claim that contradicts weightier ones, or what follows from them, is ignored.
    """
    above = np.zeros((n, n), np.bool_)
    for i, j in claims:
        if i != j and not above[j, i] and not above[i, j]:
            add_to_closure(above, i, j)
    return above


def sort_topologically(above: Bool, score: Float) -> Int:
    """(n,) items, each time the best-scored one that no remaining item must precede."""
    predecessors = above.sum(axis=0)
    order = np.empty(len(score), np.int64)
    remaining_score = np.array(score, np.float64)
    for position in range(len(order)):
        item = int(np.argmax(np.where(predecessors == 0, remaining_score, -np.inf)))
        order[position] = item
        predecessors = predecessors - above[item]
        remaining_score[item], predecessors[item] = -np.inf, 1
    return order


def constrain(
    mean: Float, covariance: Float, above: Bool, depth: int, seed: int = 0
) -> ConstrainedRanking:
    """Rank by the posterior N(mean, covariance) where θ_i > θ_j for every pair in `above`."""
    n = len(mean)
    mean_bytes = np.ascontiguousarray(mean, np.float64).tobytes()
    covariance_bytes = np.ascontiguousarray(covariance, np.float64).tobytes()
    samples = _cached_samples(mean_bytes, covariance_bytes, above.tobytes(), seed)
    ranks = np.argsort(np.argsort(-samples, axis=1, kind="stable"), axis=1)
    order = closest_order(mean, above)
    position = np.empty(n, np.int64)
    position[order] = np.arange(n)
    depth = min(depth, n)
    top = (ranks < depth).mean(axis=0)
    low, high = np.quantile(ranks, [0.025, 0.975], axis=0, method="nearest").astype(np.int64)
    return ConstrainedRanking(
        order=order,
        mean=samples.mean(axis=0),
        sd=samples.std(axis=0),
        low=np.minimum(low, position) + 1,
        high=np.maximum(high, position) + 1,
        top=top,
        overlap=float(top[order[:depth]].mean()),
        certainty=np.stack([(samples[:, [i]] > samples).mean(axis=0) for i in range(n)]),
    )


def closest_order(mean: Float, above: Bool) -> Int:
    """(n,) items, best first: by the judge's mean, as far as the transitive `above` allows.

    A passage must reach what it is above, max μ, and stay below what is above it, min μ; it is
    scored half way between. Both bounds rise with the order, so that no statement is contradicted;
    of two passages that disagree with the judge each moves half the way; all others stay.
    """
    above_or_self = above | np.eye(len(mean), dtype=np.bool_)
    lower_bound = np.where(above_or_self, mean, -np.inf).max(axis=1)
    upper_bound = np.where(above_or_self, mean[:, None], np.inf).min(axis=0)
    score = np.empty(len(mean))
    by_midpoint = np.lexsort((-mean, -(lower_bound + upper_bound) / 2))
    score[by_midpoint] = -np.arange(float(len(mean)))
    return sort_topologically(above, score)


@lru_cache(maxsize=256)
def _cached_samples(mean: bytes, covariance: bytes, above: bytes, seed: int) -> Float:
    """`sample_constrained`, cached because the viewer asks for the same order again and again."""
    center = np.frombuffer(mean)
    shape = len(center), len(center)
    above_matrix = np.frombuffer(above, np.bool_).reshape(shape)
    samples = sample_constrained(
        center, np.frombuffer(covariance).reshape(shape), above_matrix, seed
    )
    samples.flags.writeable = False
    return samples


def sample_constrained(mean: Float, covariance: Float, above: Bool, seed: int) -> Float:
    """(draws, n) samples of the utilities; each obeys `above`."""
    n = len(mean)
    generator = np.random.default_rng(seed)
    precision = np.linalg.inv(covariance)
    root = np.linalg.cholesky(covariance)
    # Each chain begins with a draw of the judge's posterior, whose values are then assigned to
    # the items in an order that obeys people's statements.
    theta = np.empty((n, _CHAINS))
    unconstrained = generator.standard_normal((_CHAINS, n)) @ root.T + mean
    theta[sort_topologically(above, mean)] = -np.sort(-unconstrained, axis=1).T
    sd = 1 / np.sqrt(np.diag(precision))  # of each item given all others
    weights = precision * sd[:, None] ** 2
    np.fill_diagonal(weights, 0.0)
    items_above = [np.flatnonzero(above[:, i]) for i in range(n)]
    items_below = [np.flatnonzero(above[i]) for i in range(n)]
    draws = np.empty((_KEPT_SWEEPS, n, _CHAINS))
    for sweep in range(_WARM_UP_SWEEPS + _KEPT_SWEEPS):
        slices = generator.standard_exponential((n, _CHAINS))
        uniforms = generator.random((n, _CHAINS))
        for i in range(n):
            center = mean[i] - weights[i] @ (theta - mean[:, None])
            radius = np.sqrt((theta[i] - center) ** 2 + 2 * slices[i] * sd[i] ** 2)
            low, high = center - radius, center + radius
            if len(items_above[i]):
                high = np.minimum(high, theta[items_above[i]].min(axis=0))
            if len(items_below[i]):
                low = np.maximum(low, theta[items_below[i]].max(axis=0))
            theta[i] = low + uniforms[i] * (high - low)
        if sweep >= _WARM_UP_SWEEPS:
            draws[sweep - _WARM_UP_SWEEPS] = theta
    return draws.transpose(0, 2, 1).reshape(-1, n)
