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

from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.errors import InputError, shorten

_STEPS = 100  # Newton needs about six
_HALVINGS = 40
_FAR = 0.1  # twice what a quadratic would gain, from which a step is looked at
_ONE_THREAD = 60_000  # multiplications of a product that no library shares out


@dataclass(frozen=True, slots=True)
class Posterior:
    """N(mean, covariance), and the log evidence of the judgements under the prior (Laplace)."""

    mean: Float  # (n,)
    covariance: Float  # (n, n)
    evidence: float = math.nan  # where nobody asked for it

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
    """Orders as a table: one row each, best first, short rows filled up with the pool's item 0.

    Several pools of n items may share one (`side_by_side`): item i of pool p is then p·n + i, and
    utilities are (pools, n) instead of (n,).
    """

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

    @classmethod
    def side_by_side(cls, tables: Sequence[Judgements], size: int) -> Judgements:
        """Tables of several pools, of `size` items at most each, as one."""
        count = [len(table.items) for table in tables]
        first = size * np.repeat(np.arange(len(tables)), count)[:, None]
        shape = (sum(count), max((table.items.shape[1] for table in tables), default=0))
        items, real = np.zeros(shape, np.int64) + first, np.zeros(shape, bool)
        for table, end in zip(tables, np.cumsum(count).tolist(), strict=True):
            rows, width = slice(end - len(table.items), end), table.items.shape[1]
            items[rows, :width] += table.items
            real[rows, :width] = table.real
        return cls(items, real, np.concatenate([table.sharp for table in tables]))

    def log_likelihood(self, theta: Float) -> Float:
        """(…) Σ over the judgements of a pool of log P(order | θ); θ (…, n)."""
        scaled, left, _ = self._stages(theta)
        return self._total(np.where(self.real, scaled - left, 0.0).sum(axis=1), theta)

    def each(self, theta: Float) -> Float:
        """(S, J) log P(order | θ) of every judgement under each of (S, n) utilities."""
        value = np.where(self.real, self.sharp * theta[:, self.items], -np.inf)
        left = np.logaddexp.accumulate(value[:, :, ::-1], axis=2)[:, :, ::-1]
        placed = np.where(self.real, self.sharp * theta[:, self.items] - left, 0.0)
        found: Float = placed.sum(axis=2)
        return found

    def flattening(self, theta: Float, covariance: Float) -> Float:
        """(…, n) gradient of −½ tr(Σ·H) in θ, H the negative Hessian: by how much the determinant
        of the posterior's covariance, a part of the evidence, grows as the mode moves.

        With A = β²Σ of a judgement's items and u_t = diag A − 2Ap_t: −½ β Σ_t p_t∘(u_t − p_t·u_t)
        """
        _, _, share = self._stages(theta)
        around = self.sharp[:, :, None] ** 2 * covariance.ravel()[self._cells(theta.shape[-1])]
        turned = np.diagonal(around, axis1=1, axis2=2)[:, None] - 2 * (share @ around)
        turned = share * (turned - np.sum(share * turned, axis=2, keepdims=True))
        return _counted(-0.5 * self.sharp * turned.sum(axis=1), self.items, theta.shape)

    def derivatives(self, theta: Float) -> tuple[Float, Float, Float]:
        """(…) the log likelihood, (…, n) its gradient and (…, n, n) its negative Hessian.

        With p_t the softmax over what is left at stage t:
        ∇ = β Σ_t (e_{o_t} − p_t),  −∇² = β² Σ_t (diag p_t − p_t p_tᵀ)
        """
        n = theta.shape[-1]
        scaled, left, share = self._stages(theta)
        value = self._total(np.where(self.real, scaled - left, 0.0).sum(axis=1), theta)
        taken = share.sum(axis=1)  # (J, m) Σ_t p_t of each place
        gradient = _counted(self.sharp * (self.real - taken), self.items, theta.shape)
        square = self.sharp**2
        outer = square[:, :, None] * (share.transpose(0, 2, 1) @ share)  # (J, m, m) Σ_t p_t p_tᵀ
        hessian = _counted(-outer, self._cells(n), (*theta.shape, n))
        hessian[..., np.arange(n), np.arange(n)] += _counted(
            square * taken, self.items, theta.shape
        )
        return value, gradient, hessian

    def _stages(self, theta: Float) -> tuple[Float, Float, Float]:
        """(J, m) βθ, and log Σ exp of what is left at each stage; (J, m, m) its softmax, 0 where
        absent."""
        scaled = self.sharp * theta.ravel()[self.items]
        value = np.where(self.real, scaled, -np.inf)
        left = np.logaddexp.accumulate(value[:, ::-1], axis=1)[:, ::-1]
        stage = np.where(self.real, left, np.inf)
        present = _later(value.shape[1])
        share = np.exp(np.where(present, value[:, None, :] - stage[:, :, None], -np.inf))
        return scaled, left, share

    def _cells(self, n: int) -> Int:
        """(J, m, m) where each two items of an order stand in (…, n, n)."""
        return self.items[:, :, None] * n + self.items[:, None, :] % n

    def _total(self, rows: Float, theta: Float) -> Float:
        """(…) a figure of every judgement, summed by pool."""
        pool = self.items[:, :1] // max(1, theta.shape[-1]) if self.items.size else self.items
        return _counted(rows if self.items.size else rows[:0], pool, theta.shape[:-1])


def _counted(weights: Float, cell: Int, shape: tuple[int, ...]) -> Float:
    """Weights summed by cell."""
    found = np.bincount(cell.ravel(), weights.ravel(), math.prod(shape))
    return found.astype(np.float64, copy=False).reshape(shape)


@functools.cache
def _later(size: int) -> Bool:
    """(size, size) whether a place is not before a stage."""
    return np.triu(np.ones((size, size), bool))


def modes(
    judged: Judgements, mean: Float, precision: Float, start: Float | None = None
) -> tuple[Float, Float]:
    """(…, n) the mode of the posterior of each pool under the prior N(mean, precision⁻¹), and
    (…, n, n) its negative Hessian; `start` only saves steps."""
    at = np.arange(mean.shape[-1])

    def objective(theta: Float) -> Float:
        away: Float = 0.5 * np.sum(precision * (theta - mean) ** 2, axis=-1)
        return judged.log_likelihood(theta) - away

    theta = mean if start is None else start
    for _ in range(_STEPS):
        value, gradient, hessian = judged.derivatives(theta)
        away = theta - mean
        value = value - 0.5 * np.sum(precision * away**2, axis=-1)
        hessian[..., at, at] += precision
        slope = gradient - precision * away
        step = np.linalg.solve(hessian, slope[..., None])[..., 0]
        gain = np.asarray(np.sum(step * slope, axis=-1))  # twice what a quadratic would still gain
        size = np.ones_like(gain)
        far = gain >= _FAR  # nearer, a full step is right, and at last rounding hides its gain
        for _ in range(_HALVINGS):
            if not far.any():
                break
            far = far & (objective(theta + size[..., None] * step) < value + 1e-4 * size * gain)
            size = np.where(far, size / 2, size)
        theta = theta + size[..., None] * step
        if gain.max(initial=0.0) < 1e-9:  # the error is squared by that last step
            break
    return theta, hessian  # the last step was too small to change the Hessian


def inverse(hessian: Float) -> Float:
    """(…, n, n) the covariance, symmetric to the last bit."""
    found = np.linalg.inv(hessian)
    return (found + found.swapaxes(-1, -2)) / 2


def fit(
    orders: Sequence[Sequence[int]],
    prior_mean: Float,
    prior_precision: Float | float,
    start: Float | None = None,
) -> Posterior:
    """One pool's posterior under the prior N(prior_mean, prior_precision⁻¹), with its evidence.

    The precision is a number or a diagonal (n,).
    """
    mean = np.asarray(prior_mean, np.float64)
    precision = np.broadcast_to(np.asarray(prior_precision, np.float64), mean.shape)
    judged = Judgements.of(orders, len(mean))
    theta, _ = modes(judged, mean, precision, start)
    value, _, hessian = judged.derivatives(theta)
    hessian += np.diag(precision)
    evidence = float(value) - 0.5 * float(np.sum(precision * (theta - mean) ** 2))
    evidence += 0.5 * float(np.sum(np.log(precision)) - np.linalg.slogdet(hessian)[1])
    return Posterior(theta, inverse(hessian), evidence)
