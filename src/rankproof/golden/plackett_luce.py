"""Posterior of utilities under the Plackett–Luce model, given orders of small batches.

A judge who orders a batch takes the best remaining item, again and again:

    log P(o₁ > o₂ > … > o_m | θ) = Σ_t (θ_{o_t} − log Σ_{u ≥ t} exp θ_{o_u})

(Plackett 1975, "The analysis of permutations"). It is concave in θ, so with a Gaussian prior there
is one mode, which Newton's method finds. The posterior is approximated by a Gaussian there
(Laplace): its mean is the mode, its covariance the inverse Hessian. θ is in the judge's logits:
with a less noisy judge, utilities lie farther apart. Each of several judges has a sharpness β, by
which θ is multiplied in the orders it gives.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.errors import InputError, shorten

_MAX_NEWTON_STEPS = 100  # about six are needed
_MAX_HALVINGS = 40  # of one step
_LINE_SEARCH_GAIN = 0.1  # from twice this predicted gain on, a step is checked and perhaps halved
_SINGLE_THREAD_SIZE = 60_000  # multiplications of a product that BLAS computes in one thread


@dataclass(frozen=True, slots=True)
class Posterior:
    """N(mean, covariance) of the utilities, by Laplace's approximation."""

    mean: Float  # (n,)
    covariance: Float  # (n, n)

    @property
    def sd(self) -> Float:
        """(n,) standard deviation of each utility."""
        return np.sqrt(np.diag(self.covariance))

    def sample(self, generator: np.random.Generator, count: int) -> Float:
        """(count, n) draws of the utilities."""
        root = np.linalg.cholesky(self.covariance)
        samples: Float = generator.standard_normal((count, len(self.mean)))
        # In chunks, because waiting for BLAS's threads takes longer than products of this size.
        step = max(1, _SINGLE_THREAD_SIZE // max(1, root.size))
        for start in range(0, count, step):
            chunk = slice(start, start + step)
            samples[chunk] = self.mean + samples[chunk] @ root.T
        return samples

    def certainty(self) -> Float:
        """(n, n) P(θ_i > θ_j); ½ on the diagonal."""
        z = standardized_differences(self.mean, self.covariance)
        error: Float = np.vectorize(math.erf, otypes=[float])(z / math.sqrt(2))
        return 0.5 * (1 + error)


def standardized_differences(mean: Float, covariance: Float) -> Float:
    """(n, n) (θ̄_i − θ̄_j)/sd(θ_i − θ_j); 0 on the diagonal."""
    variance = np.diag(covariance)
    sd = np.sqrt(np.maximum(variance[:, None] + variance - 2 * covariance, 0.0))
    difference = mean[:, None] - mean
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(difference == 0, 0.0, difference / sd)


@dataclass(frozen=True, slots=True)
class OrderTable:
    """Orders as arrays: a row for each of J orders, best item first, padded with item 0.

    Several pools of n items may share a table (`stack`): item i of pool p is then p·n + i, and
    utilities θ are (pools, n) instead of (n,).
    """

    items: Int  # (J, m)
    is_item: Bool  # (J, m) False where padded
    sharpness: Float  # (J, 1) β of the judge that gave the order

    @classmethod
    def from_orders(
        cls, orders: Sequence[Sequence[int]], pool_size: int, sharpness: Float | None = None
    ) -> OrderTable:
        """Make a table of orders, each with its judge's β in `sharpness` (J,); None: β = 1.

        Raise InputError for an item that is outside the pool, or twice in an order.
        """
        length = np.array([len(order) for order in orders], np.int64)
        width = int(length.max(initial=0))
        is_item = np.arange(width) < length[:, None]
        items = np.zeros((len(orders), width), np.int64)
        items[is_item] = [item for order in orders for item in order]
        is_outside = is_item & ((items < 0) | (items >= pool_size))
        distinct = np.sort(np.where(is_item, items, pool_size + np.arange(width)), axis=1)
        repeats = (distinct[:, 1:] == distinct[:, :-1]).any(axis=1)
        is_wrong = repeats | is_outside.any(axis=1)
        if is_wrong.any():
            row = int(is_wrong.argmax())
            problem = "repeats an item"
            if is_outside[row].any():
                problem = "holds an item outside the pool"
            raise InputError(
                f"order {shorten(tuple(orders[row]))} {problem}",
                place=f"judgement {row + 1}",
                remedy=f"give each of the items 0 to {pool_size - 1} at most once",
            )
        beta = np.ones(len(orders)) if sharpness is None else sharpness
        return cls(items, is_item, beta[:, None])

    @classmethod
    def stack(cls, tables: Sequence[OrderTable], pool_size: int) -> OrderTable:
        """One table for several pools, each padded to `pool_size` items."""
        counts = [len(table.items) for table in tables]
        first_item = pool_size * np.repeat(np.arange(len(tables)), counts)[:, None]
        width = max((table.items.shape[1] for table in tables), default=0)
        items = np.zeros((sum(counts), width), np.int64) + first_item
        is_item = np.zeros(items.shape, bool)
        for table, end in zip(tables, np.cumsum(counts).tolist(), strict=True):
            rows, columns = slice(end - len(table.items), end), slice(table.items.shape[1])
            items[rows, columns] += table.items
            is_item[rows, columns] = table.is_item
        return cls(items, is_item, np.concatenate([table.sharpness for table in tables]))

    def log_likelihood(self, theta: Float) -> Float:
        """(…) log P(all orders of a pool | θ), for θ (…, n)."""
        scaled, log_remaining, _ = self._stages(theta)
        by_order = np.where(self.is_item, scaled - log_remaining, 0.0).sum(axis=1)
        return self._sum_by_pool(by_order, theta)

    def log_likelihood_by_order(self, theta: Float) -> Float:
        """(S, J) log P(order | θ) of every order under each of (S, n) utilities."""
        scaled = self.sharpness * theta[:, self.items]
        value = np.where(self.is_item, scaled, -np.inf)
        log_remaining = np.logaddexp.accumulate(value[:, :, ::-1], axis=2)[:, :, ::-1]
        by_order: Float = np.where(self.is_item, scaled - log_remaining, 0.0).sum(axis=2)
        return by_order

    def curvature_gradient(self, theta: Float, covariance: Float) -> Float:
        """(…, n) gradient in θ of −½ tr(Σ·H), where H is the negative Hessian.

        It says how the log determinant of the covariance, a part of the log evidence, changes with
        the mode. With A = β²Σ of an order's items, p_t the softmax of what remains at stage t and
        u_t = diag A − 2Ap_t, an order adds −½ β Σ_t p_t∘(u_t − p_t·u_t).
        """
        _, _, softmax = self._stages(theta)
        cells = self._matrix_cells(theta.shape[-1])
        scaled_covariance = self.sharpness[:, :, None] ** 2 * covariance.ravel()[cells]
        u = np.diagonal(scaled_covariance, axis1=1, axis2=2)[:, None]
        u = u - 2 * (softmax @ scaled_covariance)
        terms = softmax * (u - np.sum(softmax * u, axis=2, keepdims=True))
        return _sum_by_cell(-0.5 * self.sharpness * terms.sum(axis=1), self.items, theta.shape)

    def derivatives(self, theta: Float) -> tuple[Float, Float, Float]:
        """(…) log likelihood, (…, n) its gradient and (…, n, n) its negative Hessian.

        With p_t the softmax of what remains at stage t:
        ∇ = β Σ_t (e_{o_t} − p_t),  −∇² = β² Σ_t (diag p_t − p_t p_tᵀ)
        """
        n = theta.shape[-1]
        scaled, log_remaining, softmax = self._stages(theta)
        by_order = np.where(self.is_item, scaled - log_remaining, 0.0).sum(axis=1)
        value = self._sum_by_pool(by_order, theta)
        expected = softmax.sum(axis=1)  # (J, m) Σ_t p_t
        gradient = _sum_by_cell(self.sharpness * (self.is_item - expected), self.items, theta.shape)
        square = self.sharpness**2
        outer = square[:, :, None] * (softmax.transpose(0, 2, 1) @ softmax)  # β² Σ_t p_t p_tᵀ
        hessian = _sum_by_cell(-outer, self._matrix_cells(n), (*theta.shape, n))
        diagonal = _sum_by_cell(square * expected, self.items, theta.shape)
        hessian[..., np.arange(n), np.arange(n)] += diagonal
        return value, gradient, hessian

    def _stages(self, theta: Float) -> tuple[Float, Float, Float]:
        """For each stage t: (J, m) βθ, log Σ exp βθ of what remains; (J, m, m) its softmax."""
        scaled = self.sharpness * theta.ravel()[self.items]
        value = np.where(self.is_item, scaled, -np.inf)
        log_remaining = np.logaddexp.accumulate(value[:, ::-1], axis=1)[:, ::-1]
        normalizer = np.where(self.is_item, log_remaining, np.inf)[:, :, None]
        remains = _upper_triangle(value.shape[1])
        softmax = np.exp(np.where(remains, value[:, None, :] - normalizer, -np.inf))
        return scaled, log_remaining, softmax

    def _matrix_cells(self, n: int) -> Int:
        """(J, m, m) flat index of each pair of an order's items in (…, n, n)."""
        return self.items[:, :, None] * n + self.items[:, None, :] % n

    def _sum_by_pool(self, by_order: Float, theta: Float) -> Float:
        if not self.items.size:
            return _sum_by_cell(by_order[:0], self.items, theta.shape[:-1])
        pool = self.items[:, :1] // max(1, theta.shape[-1])
        return _sum_by_cell(by_order, pool, theta.shape[:-1])


def _sum_by_cell(weights: Float, cell: Int, shape: tuple[int, ...]) -> Float:
    """An array of this shape with the sum of the weights of each flat index."""
    sums = np.bincount(cell.ravel(), weights.ravel(), math.prod(shape))
    return sums.astype(np.float64, copy=False).reshape(shape)


@functools.cache
def _upper_triangle(size: int) -> Bool:
    """(size, size) True where an item's place is not before the stage."""
    return np.triu(np.ones((size, size), bool))


def find_modes(
    orders: OrderTable, prior_mean: Float, prior_precision: Float, start: Float | None = None
) -> tuple[Float, Float]:
    """(…, n) the mode of each pool's posterior, and (…, n, n) its negative Hessian.

    The prior is N(mean, precision⁻¹) with diagonal precision (…, n); `start` only saves steps.
    """
    diagonal = np.arange(prior_mean.shape[-1])

    def log_posterior(theta: Float) -> Float:
        penalty: Float = 0.5 * np.sum(prior_precision * (theta - prior_mean) ** 2, axis=-1)
        return orders.log_likelihood(theta) - penalty

    theta = prior_mean if start is None else start
    for _ in range(_MAX_NEWTON_STEPS):
        value, gradient, hessian = orders.derivatives(theta)
        residual = theta - prior_mean
        value = value - 0.5 * np.sum(prior_precision * residual**2, axis=-1)
        hessian[..., diagonal, diagonal] += prior_precision
        slope = gradient - prior_precision * residual
        step = np.linalg.solve(hessian, slope[..., None])[..., 0]
        gain = np.asarray(np.sum(step * slope, axis=-1))  # twice what a quadratic would gain
        size = np.ones_like(gain)
        # Close to the mode a full step is right, and finally rounding hides what it gains.
        unchecked = gain >= _LINE_SEARCH_GAIN
        for _ in range(_MAX_HALVINGS):
            if not unchecked.any():
                break
            new_value = log_posterior(theta + size[..., None] * step)
            unchecked = unchecked & (new_value < value + 1e-4 * size * gain)
            size = np.where(unchecked, size / 2, size)
        theta = theta + size[..., None] * step
        if gain.max(initial=0.0) < 1e-9:  # this last step has squared the error
            break
    return theta, hessian  # the last step was too small to change the Hessian


def invert_symmetric(hessian: Float) -> Float:
    """(…, n, n) the inverse, symmetric to the last bit."""
    inverse = np.linalg.inv(hessian)
    return (inverse + inverse.swapaxes(-1, -2)) / 2
