"""Plackett–Luce with a Gaussian prior: the posterior of utilities, given orders of some items.

A judge who orders a batch takes the best of what is left, again and again:

    log P(o₁ > o₂ > … > o_m | θ) = Σ_t (θ_{o_t} − log Σ_{u ≥ t} exp θ_{o_u})

It is concave in θ, so with a Gaussian prior there is one mode, and Newton's method finds it. The
posterior is taken to be Gaussian there (Laplace): mean the mode, covariance the inverse Hessian.
θ is in the judge's own logits: a judge with less noise shows as a wider spread of θ. Of several
judges each has a sharpness β, by which θ is multiplied in what it orders.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankproof.arrays import Bool, Float, Int
from rankproof.errors import InputError, shorten

_STEPS = 100  # Newton needs about six
_HALVINGS = 40
_FAR = 0.1  # twice what a quadratic would gain, from which a step is looked at
_ONE_THREAD = 60_000  # multiplications of a product that no library shares out


@dataclass(frozen=True, slots=True)
class Posterior:
    """N(mean, covariance), and the log evidence of the judgements under the prior (Laplace)."""

    mean: Float  # (n,)
    covariance: Float  # (n, n)
    evidence: float

    @property
    def sd(self) -> Float:
        """(n,) standard deviation of each utility."""
        return np.sqrt(np.diag(self.covariance))

    def sample(self, generator: np.random.Generator, count: int) -> Float:
        """(count, n) draws of the utilities."""
        root = np.linalg.cholesky(self.covariance)
        drawn: Float = generator.standard_normal((count, len(self.mean)))
        # A product that is large enough for several threads costs more in waiting than in sums.
        step = max(1, _ONE_THREAD // max(1, root.size))
        for at in range(0, count, step):
            drawn[at : at + step] = self.mean + drawn[at : at + step] @ root.T
        return drawn

    def certainty(self) -> Float:
        """(n, n) P(θ_i > θ_j); ½ on the diagonal."""
        z = separation(self.mean, self.covariance)
        error: Float = np.vectorize(math.erf, otypes=[float])(z / math.sqrt(2))
        return 0.5 * (1 + error)


def separation(mean: Float, covariance: Float) -> Float:
    """(n, n) of (θ̄_i − θ̄_j)/sd(θ_i − θ_j); 0 on the diagonal."""
    variance = np.diag(covariance)
    spread = np.sqrt(np.maximum(variance[:, None] + variance - 2 * covariance, 0.0))
    difference = mean[:, None] - mean
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(difference == 0, 0.0, difference / spread)


@dataclass(frozen=True, slots=True)
class Judgements:
    """Orders as a table: one row each, best first, short rows filled up with item 0."""

    items: Int  # (J, m)
    real: Bool  # (J, m) False where filled up
    sharp: Float  # (J, 1) β of whoever gave the order

    @classmethod
    def of(
        cls, orders: Sequence[Sequence[int]], pool: int, sharp: Float | None = None
    ) -> Judgements:
        """Checked: every item is in the pool and stands once in its order."""
        length = np.array([len(order) for order in orders], np.int64)
        widest = int(length.max(initial=0))
        real = np.arange(widest) < length[:, None]
        items = np.zeros((len(orders), widest), np.int64)
        items[real] = [item for order in orders for item in order]
        outside = real & ((items < 0) | (items >= pool))
        apart = np.sort(np.where(real, items, pool + np.arange(widest)), axis=1)
        repeated = (apart[:, 1:] == apart[:, :-1]).any(axis=1) | outside.any(axis=1)
        if repeated.any():
            at = int(repeated.argmax())
            what = "holds an item outside the pool" if outside[at].any() else "repeats an item"
            raise InputError(
                f"order {shorten(tuple(orders[at]))} {what}",
                place=f"judgement {at + 1}",
                remedy=f"give each of the items 0 to {pool - 1} at most once",
            )
        return cls(items, real, (np.ones(len(orders)) if sharp is None else sharp)[:, None])

    def log_likelihood(self, theta: Float) -> float:
        """Σ over judgements of log P(order | θ)."""
        value, left, _ = self._stages(theta)
        return float(np.sum(np.where(self.real, value - left, 0.0)))

    def each(self, theta: Float) -> Float:
        """(S, J) log P(order | θ) of every judgement under each of (S, n) utilities."""
        value = np.where(self.real, self.sharp * theta[:, self.items], -np.inf)
        left = np.logaddexp.accumulate(value[:, :, ::-1], axis=2)[:, :, ::-1]
        placed = np.where(self.real, self.sharp * theta[:, self.items] - left, 0.0)
        found: Float = placed.sum(axis=2)
        return found

    def bent(self, theta: Float, covariance: Float, moved: Float) -> float:
        """tr(Σ·∂H), by how the negative Hessian H changes as θ moves: ∂p = p∘(βv − p·βv)."""
        _, _, share = self._stages(theta)
        away = (self.sharp * moved[self.items])[:, None, :]
        turned = share * (away - np.sum(share * away, axis=2, keepdims=True))
        around = (
            self.sharp[:, :, None] ** 2 * covariance[self.items[:, :, None], self.items[:, None, :]]
        )
        straight = np.sum(turned.sum(axis=1) * np.diagonal(around, axis1=1, axis2=2))
        return float(straight - 2 * np.sum((turned @ around) * share))

    def derivatives(self, theta: Float) -> tuple[float, Float, Float]:
        """The log likelihood, its gradient (n,) and its negative Hessian (n, n).

        With p_t the softmax over what is left at stage t:
        ∇ = β Σ_t (e_{o_t} − p_t),  −∇² = β² Σ_t (diag p_t − p_t p_tᵀ)
        """
        n = len(theta)
        scaled, left, share = self._stages(theta)
        value = float(np.sum(np.where(self.real, scaled - left, 0.0)))
        taken = share.sum(axis=1)  # (J, m) Σ_t p_t of each place

        def total(weights: Float, cell: Int, cells: int) -> Float:
            return np.bincount(cell.ravel(), weights.ravel(), cells).astype(np.float64)

        gradient = total(self.sharp * (self.real - taken), self.items, n)
        square = self.sharp**2
        outer = square[:, :, None] * (share.transpose(0, 2, 1) @ share)  # (J, m, m) Σ_t p_t p_tᵀ
        cell = self.items[:, :, None] * n + self.items[:, None, :]
        hessian = np.diag(total(square * taken, self.items, n))
        hessian -= total(outer, cell, n * n).reshape(n, n)
        return value, gradient, hessian

    def _stages(self, theta: Float) -> tuple[Float, Float, Float]:
        """(J, m) βθ, and log Σ exp of what is left at each stage; (J, m, m) its softmax, 0 where
        absent."""
        scaled = self.sharp * theta[self.items]
        value = np.where(self.real, scaled, -np.inf)
        left = np.logaddexp.accumulate(value[:, ::-1], axis=1)[:, ::-1]
        stage = np.where(self.real, left, np.inf)
        present = _later(value.shape[1])
        share = np.exp(np.where(present, value[:, None, :] - stage[:, :, None], -np.inf))
        return scaled, left, share


@functools.cache
def _later(size: int) -> Bool:
    """(size, size) whether a place is not before a stage."""
    return np.triu(np.ones((size, size), bool))


def fit(
    orders: Sequence[Sequence[int]] | Judgements,
    prior_mean: Float,
    prior_precision: Float | float,
    start: Float | None = None,
    weigh: bool = True,
) -> Posterior:
    """The posterior of utilities under the prior N(prior_mean, prior_precision⁻¹).

    The precision is a number, a diagonal (n,) or a matrix (n, n). `start` only saves steps; so does
    `weigh=False`, which leaves the evidence out.
    """
    mean = np.asarray(prior_mean, np.float64)
    n = len(mean)
    precision = np.asarray(prior_precision, np.float64)
    matrix = precision if precision.ndim == 2 else np.diag(np.broadcast_to(precision, n))
    judged = orders if isinstance(orders, Judgements) else Judgements.of(orders, n)

    def objective(theta: Float) -> float:
        away = theta - mean
        return judged.log_likelihood(theta) - 0.5 * float(away @ matrix @ away)

    theta = mean.copy() if start is None else np.array(start, np.float64)
    for _ in range(_STEPS):
        value, gradient, hessian = judged.derivatives(theta)
        away = theta - mean
        pull = matrix @ away
        value -= 0.5 * float(away @ pull)
        hessian += matrix
        step = np.linalg.solve(hessian, gradient - pull)
        gain = float(step @ (gradient - pull))  # twice what a quadratic would still gain
        size = 1.0
        if gain >= _FAR:  # nearer, a full step is right, and at last rounding hides its gain
            for _ in range(_HALVINGS):
                if objective(theta + size * step) >= value + 1e-4 * size * gain:
                    break
                size /= 2
        theta = theta + size * step
        if gain < 1e-9:  # the error is squared by that last step
            break
    if not weigh:  # the last step was too small to change the Hessian
        covariance = np.linalg.inv(hessian)
        return Posterior(theta, (covariance + covariance.T) / 2, math.nan)
    value, _, hessian = judged.derivatives(theta)
    hessian += matrix
    away = theta - mean
    evidence = value - 0.5 * float(away @ matrix @ away)
    evidence += 0.5 * float(np.linalg.slogdet(matrix)[1] - np.linalg.slogdet(hessian)[1])
    covariance = np.linalg.inv(hessian)
    return Posterior(theta, (covariance + covariance.T) / 2, evidence)
