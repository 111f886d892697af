"""Learn how far grades, retrieval scores and judges can be trusted when passages are put in order.

A judge orders only a few small batches of a pool, so each passage's utility θ (in the judge's
logits, see `plackett_luce`) has a Gaussian prior:

    θ = c · (w_grade · (grade − mean grade) + w_rrf · standardized RRF + σ · noise)

How well grades and RRF predict orders differs between judges and corpora, so no constant is set by
hand: `fit_pools` moves them from a weak guess towards the highest evidence of the orders (empirical
Bayes, Laplace's approximation: MacKay 1992, "Bayesian interpolation"; Rasmussen and Williams 2006,
section 5.5). All pools share w and σ (`Scale`), each has a factor c, and judge j orders by β_j·θ.

Notation for a pool of n items: X (n, 2) its features; m = c·Xw and the diagonal matrix V its
prior's mean and variance; μ and Σ its posterior's, μ being the mode; r = μ − m; S = I − ΣV⁻¹, the
share of each direction that the orders determine and the prior does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.errors import InputError
from rankproof.golden.plackett_luce import OrderTable, Posterior, find_modes, invert_symmetric

if TYPE_CHECKING:
    from rankproof.golden.refinement import Refiner

_MAX_SWEEPS = 4  # steps of all parameters after a round of orders
_SCALE_TOLERANCE = 0.01  # change of w and σ, relative to σ, below which the sweeps end
_LOG_TOLERANCE = 0.1  # change of log c and log β below which they end
_WEIGHTS_GUESS_ITEMS = 4.0  # strength of the first guess of w, in items
_SPREAD_GUESS_ITEMS = 1.0  # strength of the first guess of σ, in items
_FACTOR_SD = 0.35  # first guess of τ, the standard deviation of log c over the pools
_FACTOR_GUESS_POOLS = 4.0  # strength of that guess, in pools
_MAX_LOG_FACTOR = 3.0
_COMPONENT_SD = 0.1  # of the narrow normals that are mixed into the distribution of log c
_COMPONENT_MEANS = np.linspace(-_MAX_LOG_FACTOR, _MAX_LOG_FACTOR, 61)
_EM_STEPS = 20  # of expectation–maximization
_MIN_INFORMATION = 1e-6  # for pools whose orders say nothing about their factor
_MAX_SPREAD = 20.0  # σ has no upper bound where a judge never contradicts itself
_MAX_LOG_STEP = 0.5  # of log σ, log c and log β in one sweep
_SHARPNESS_SD = 0.7  # prior standard deviation of log β over the judges
_SHARPNESS_DRAWS = 30  # draws of the posterior over which the log likelihood is averaged
_SHARPNESS_DELTA = 0.25  # of log β, for finite differences
_MAX_STACK_SIZE = 250_000  # covariances of a stack, as numbers: few enough for the CPU's cache


@dataclass(frozen=True, slots=True)
class Scale:
    """The prior's parameters that all pools share, in the judge's logits."""

    grade: float = 1.0  # w_grade: utility per step of the grade
    rrf: float = 0.3  # w_rrf: utility per standard deviation of RRF in the pool
    spread: float = 1.0  # σ: standard deviation of what grade and RRF do not explain

    @property
    def weights(self) -> Float:
        """(2,) w_grade and w_rrf."""
        return np.array([self.grade, self.rrf])


def pool_features(grade: Sequence[float] | Array, rrf: Sequence[float] | Array) -> Float:
    """(n, 2) centered grades and standardized RRF scores of a pool.

    An unknown value (NaN) becomes 0, the mean of its column; so do values that are all equal.
    """
    columns = np.array([grade, rrf], np.float64).T.reshape(-1, 2)
    if np.isinf(columns).any():
        raise InputError("a grade or an RRF score is infinite", remedy="give finite numbers")
    known = ~np.isnan(columns)
    known_count = np.maximum(known.sum(axis=0), 1)
    values = np.where(known, columns, 0.0)
    centered = np.where(known, columns - values.sum(axis=0) / known_count, 0.0)
    magnitude = np.abs(values).max(axis=0, initial=0.0)
    centered[np.abs(centered) <= 1e-12 * magnitude] = 0.0  # equal values, but for rounding
    rrf_sd = float(np.sqrt((centered[:, 1] ** 2).sum() / known_count[1]))
    centered[:, 1] /= rrf_sd or 1.0
    return centered


class PoolStack:
    """Pools of similar size in one set of arrays, so that numpy fits them together.

    P pools, n items in the largest. Smaller pools are padded with items that have no features and
    no orders; the posterior of such an item is its prior.
    """

    def __init__(self, pools: Sequence[Refiner]):
        """Stack the pools' data, padded to the largest, and fit their posteriors."""
        self.pools = pools
        self.scale, self.sharpness = pools[0].scale, pools[0].sharpness
        self.factor: Float = np.array([pool.factor for pool in pools])  # (P,)
        sizes = [len(pool.features) for pool in pools]
        n = max(sizes)
        self.is_item: Bool = np.arange(n) < np.array(sizes)[:, None]  # (P, n) False where padded
        self.features: Float = np.zeros((len(pools), n, 2))
        self.features[self.is_item] = np.concatenate([pool.features for pool in pools])
        self.grade_sd: Float = np.zeros((len(pools), n))
        for index, pool in enumerate(pools):
            if pool.grade_sd is not None:
                self.grade_sd[index, : sizes[index]] = pool.grade_sd
        tables = [pool.order_table for pool in pools]
        self.has_orders: Bool = np.array([len(table.items) > 0 for table in tables])  # (P,)
        self.orders = OrderTable.stack(tables, n)
        judges = [judge for pool in pools for judge in pool.judge_of_order]
        self.judge_of_order: Int = np.array(judges, np.int64)
        self.log_scale_variance: Float = np.zeros(len(pools))  # (P,) Var(log cσ)
        self.own_log_factor = np.zeros(len(pools)), np.ones(len(pools))  # (P,) estimate, variance
        self.mean: Float = self.prior_mean.copy()  # (P, n) μ
        for index, pool in enumerate(pools):
            if pool.last_mode is not None:
                self.mean[index, : sizes[index]] = pool.last_mode
        self.fit()

    @property
    def prior_mean(self) -> Float:
        """(P, n) m = c·Xw."""
        unscaled: Float = self.features @ self.scale.weights
        return self.factor[:, None] * unscaled

    @property
    def prior_variance(self) -> Float:
        """(P, n) diagonal of V: c²(σ² + (w_grade · standard deviation of the grade)²)."""
        unscaled: Float = self.scale.spread**2 + (self.scale.grade * self.grade_sd) ** 2
        return self.factor[:, None] ** 2 * unscaled

    def fit(self) -> None:
        """Compute the posterior of every pool under the current parameters."""
        precision = 1 / self.prior_variance
        self.mean, hessian = find_modes(self.orders, self.prior_mean, precision, self.mean)
        self.covariance: Float = invert_symmetric(hessian)  # (P, n, n) Σ
        self._implicit_slope: Float | None = None  # computed when first needed

    def refit(self, scale: Scale, factor: Float, sharpness: Float) -> None:
        """Fit under new parameters; the sharpness of a single judge is always 1."""
        self.scale, self.factor = scale, factor
        if len(sharpness) > 1:
            self.sharpness = sharpness
            order_sharpness = sharpness[self.judge_of_order][:, None]
            self.orders = replace(self.orders, sharpness=order_sharpness)
        self.fit()

    def update_pools(self, factor: Float) -> None:
        """Assign to every pool its posterior and parameters; its next fit starts from `factor`.

        Because cσ is itself uncertain, the covariance is Σ + vvᵀ·Var(log cσ), where
        v = ΣV⁻¹(2μ − m) is the derivative of the mode in log cσ.
        """
        pull_slope = (2 * self.mean - self.prior_mean) / self.prior_variance
        v = (self.covariance @ pull_slope[..., None])[..., 0]
        added = v[:, :, None] * v[:, None, :] * self.log_scale_variance[:, None, None]
        covariance = self.covariance + added
        for index, pool in enumerate(self.pools):
            n = len(pool.features)
            pool.scale, pool.sharpness = self.scale, self.sharpness
            pool.factor = float(factor[index])
            mean = self.mean[index, :n].copy()
            pool.set_posterior(Posterior(mean, covariance[index, :n, :n].copy()))

    def effective_items(self) -> Float:
        """(P,) tr S: how many items the orders determine (MacKay's effective parameters, γ)."""
        prior_share = np.diagonal(self.covariance, axis1=1, axis2=2) / self.prior_variance
        effective: Float = np.sum(np.where(self.is_item, 1 - prior_share, 0.0), axis=1)
        return effective

    def log_spread_information(self) -> Float:
        """(P,) 2 tr S²: the Fisher information about log σ."""
        # With MacKay's 2 tr S steps are far shorter where the prior determines most.
        share = np.eye(self.mean.shape[1]) - self.covariance / self.prior_variance[:, None]
        information: Float = 2 * np.sum(share * share.swapaxes(1, 2), axis=(1, 2))
        return information

    def implicit_slope(self, pull_slope: Float) -> Float:
        """(P,) l(x) = gᵀΣx: slope of the log evidence that is due to the mode's movement alone.

        A parameter that changes the prior's pull V⁻¹(m − μ) by x = `pull_slope` (P, n) per unit
        moves the mode by Σx. That changes the term −½ log det(V⁻¹ + H) of the log evidence, whose
        gradient in the mode is g: orders have less curvature H where utilities lie far apart.
        """
        if self._implicit_slope is None:
            gradient = self.orders.curvature_gradient(self.mean, self.covariance)
            self._implicit_slope = (self.covariance @ gradient[..., None])[..., 0]
        slope: Float = np.sum(self._implicit_slope * pull_slope, axis=1)
        return slope

    def log_factor_derivatives(self) -> tuple[Float, Float]:
        """(P,) slope and information of the log evidence in log c, without the prior of log c.

        The slope is rᵀV⁻¹(r + m) − tr S + l(V⁻¹(2r + m)), where l is the `implicit_slope`; the
        information, which approximates the negative second derivative, is 2 tr S² + mᵀV⁻¹Sm.
        """
        prior_mean, prior_variance = self.prior_mean, self.prior_variance
        residual = self.mean - prior_mean
        prior_part = (self.covariance @ (prior_mean / prior_variance)[..., None])[..., 0]
        mean_information = np.sum(prior_mean * (prior_mean - prior_part) / prior_variance, axis=1)
        information = self.log_spread_information() + np.maximum(0.0, mean_information)
        slope = np.sum(residual * (residual + prior_mean) / prior_variance, axis=1)
        slope = slope - self.effective_items()
        slope = slope + self.implicit_slope((2 * residual + prior_mean) / prior_variance)
        return slope, information

    def expected_log_likelihoods(self, log_changes: Sequence[float]) -> Float:
        """(changes, judges) E[log P(orders of a judge | θ)] under the posterior, at β·exp(change).

        All changes share the same draws, so that differences between them are free of noise.
        """
        root = np.linalg.cholesky(self.covariance)
        shape = _SHARPNESS_DRAWS, root.shape[-1]
        seeds = [[pool.seed, len(pool.judge_of_order), 3] for pool in self.pools]
        noise = np.stack([np.random.default_rng(seed).standard_normal(shape) for seed in seeds])
        draws = self.mean[:, None] + noise @ root.swapaxes(1, 2)  # (P, draws, n)
        utilities = draws.swapaxes(0, 1).reshape(_SHARPNESS_DRAWS, -1)
        sums = []
        for change in log_changes:
            orders = replace(self.orders, sharpness=self.orders.sharpness * np.exp(change))
            by_order = orders.log_likelihood_by_order(utilities).mean(axis=0)
            sums.append(np.bincount(self.judge_of_order, by_order, len(self.sharpness)))
        return np.stack(sums)


def scale_step(scale: Scale, stacks: Sequence[PoolStack]) -> tuple[Scale, float]:
    """Return the scale one step closer to the highest evidence, and the variance of its log σ.

    The step is slope by information (negative second derivative) of the log evidence, to which each
    pool adds (notation: the module's docstring; l is `PoolStack.implicit_slope`)

        for w      slope c·XᵀV⁻¹r + l(c·V⁻¹X)       information c²·XᵀV⁻¹SX
        for log σ  slope rᵀV⁻¹r − tr S + l(2V⁻¹r)   information 2 tr S²

    and the first guess as much as a few items. The guess of w is scaled with σ, because a noisier
    judge shrinks both.
    """
    guess = Scale()
    weights_information = _WEIGHTS_GUESS_ITEMS * np.eye(2) / scale.spread**2
    guess_weights = guess.weights * scale.spread / guess.spread
    weights_slope = weights_information @ (guess_weights - scale.weights)
    spread_information = 2 * _SPREAD_GUESS_ITEMS
    spread_slope = spread_information * np.log(guess.spread / scale.spread)
    for stack in stacks:
        residual, variance = stack.mean - stack.prior_mean, stack.prior_variance
        scaled_features = stack.features * stack.factor[:, None, None]
        pull_slope = scaled_features / variance[..., None]  # (P, n, 2) c·V⁻¹X
        explained = scaled_features - stack.covariance @ pull_slope  # c·SX
        weights_information += np.einsum("pni,pnj->ij", pull_slope, explained)
        weights_slope += np.einsum("pni,pn->i", pull_slope, residual)
        weights_slope += [float(np.sum(stack.implicit_slope(pull_slope[..., i]))) for i in (0, 1)]
        pool_slope = np.sum(residual**2 / variance, axis=1) - stack.effective_items()
        pool_slope += stack.implicit_slope(2 * residual / variance)
        spread_slope += float(np.sum(pool_slope[stack.has_orders]))
        spread_information += float(np.sum(stack.log_spread_information()))
    limit = 3 * scale.spread
    weights_step = np.clip(np.linalg.solve(weights_information, weights_slope), -limit, limit)
    grade, rrf = (scale.weights + weights_step).tolist()
    log_step = np.clip(spread_slope / spread_information, -_MAX_LOG_STEP, _MAX_LOG_STEP)
    spread = scale.spread * float(np.exp(log_step))
    return Scale(grade, rrf, min(spread, _MAX_SPREAD)), 1 / spread_information


def factor_step(stacks: Sequence[PoolStack]) -> list[Float]:
    """Return the factors of each stack's pools, one Newton step closer to the highest evidence.

    c scales weights and noise alike, θ ~ N(c·Xw, c²σ²), because grades are relative to their pool.
    With log c ~ N(0, τ²), the step in log c is (slope − log c/τ²)/(information + 1/τ²), of
    `PoolStack.log_factor_derivatives`. The estimate without τ is kept in `own_log_factor`. A pool
    without orders has c = 1, and so has a single pool, because there c and σ cannot be separated.
    """
    if sum(len(stack.pools) for stack in stacks) == 1:
        return [np.ones(1)]
    derivatives = [stack.log_factor_derivatives() for stack in stacks]
    for stack, (slope, information) in zip(stacks, derivatives, strict=True):
        information = np.maximum(information, _MIN_INFORMATION)
        estimate = np.log(stack.factor) + slope / information
        estimate = np.clip(estimate, -_MAX_LOG_FACTOR, _MAX_LOG_FACTOR)
        stack.own_log_factor = estimate, 1 / information
    has_orders = np.concatenate([stack.has_orders for stack in stacks])
    log_factors = np.log(np.concatenate([stack.factor for stack in stacks]))[has_orders]
    slope, information = np.concatenate(derivatives, axis=1)[:, has_orders]
    tau_squared = _factor_variance(log_factors, information)
    step = (slope - log_factors / tau_squared) / (information + 1 / tau_squared)
    log_factors = log_factors + np.clip(step, -_MAX_LOG_STEP, _MAX_LOG_STEP)
    factors = np.ones(len(has_orders))
    if has_orders.any():  # what all factors have in common belongs to σ
        factors[has_orders] = np.exp(log_factors - log_factors.mean())
    return _split_by_stack(factors, stacks)


def _factor_variance(log_factors: Float, information: Float) -> float:
    """τ²: mean of (log c)² + Var(log c) over the pools, a first guess counting as a few of them."""
    variance = _FACTOR_SD**2
    for _ in range(3):  # because Var(log c) depends on τ²
        squares = log_factors**2 + 1 / (information + 1 / variance)
        total = float(_FACTOR_GUESS_POOLS * _FACTOR_SD**2 + squares.sum())
        variance = total / (_FACTOR_GUESS_POOLS + len(log_factors))
    return variance


def _split_by_stack(values: Float, stacks: Sequence[PoolStack]) -> list[Float]:
    """Values of all pools, in one array for each stack."""
    ends = np.cumsum([len(stack.pools) for stack in stacks])
    return np.split(values, ends[:-1])


def shrink_log_factors(estimate: Float, variance: Float) -> tuple[Float, Float]:
    """Return mean and variance of each pool's log c, given its estimate ~ N(log c, variance).

    The pools' log c come from one distribution, a mixture of narrow normals at fixed places, since
    there may be two kinds of pools. Its proportions are fitted to all estimates, with N(0, τ²) as
    pseudo-counts, by expectation–maximization (Laird 1978, JASA 73, 805–811).
    """
    marginal_variance = variance + _COMPONENT_SD**2
    distance = estimate[:, None] - _COMPONENT_MEANS
    likelihood = np.exp(-0.5 * distance**2 / marginal_variance[:, None])  # (pools, components)
    pseudo_counts = np.exp(-0.5 * (_COMPONENT_MEANS / _FACTOR_SD) ** 2)
    pseudo_counts *= _FACTOR_GUESS_POOLS / pseudo_counts.sum()
    proportions: Float = np.full(len(_COMPONENT_MEANS), 1 / len(_COMPONENT_MEANS))
    for _ in range(_EM_STEPS):
        membership = likelihood * proportions
        membership /= membership.sum(axis=1, keepdims=True)
        counts = membership.sum(axis=0) + pseudo_counts
        proportions = counts / (len(estimate) + _FACTOR_GUESS_POOLS)
    within = variance * _COMPONENT_SD**2 / marginal_variance  # Var(log c), given its component
    precision_weighted = estimate[:, None] / variance[:, None] + _COMPONENT_MEANS / _COMPONENT_SD**2
    component_mean = within[:, None] * precision_weighted
    mean = np.sum(membership * component_mean, axis=1)
    between = np.sum(membership * (component_mean - mean[:, None]) ** 2, axis=1)
    return mean, within + between


def _fit_with_shrunk_factors(stacks: Sequence[PoolStack]) -> None:
    """Fit every pool once more, its factor shrunk towards those of similar pools.

    Of pools that are alike, one seems to spread most by chance. Without shrinking, its ranking
    would be reported with too much certainty.
    """
    has_orders = np.concatenate([stack.has_orders for stack in stacks])
    estimate, variance = np.concatenate([s.own_log_factor for s in stacks], axis=1)[:, has_orders]
    mean, remaining_variance = np.zeros(len(has_orders)), np.zeros(len(has_orders))
    mean[has_orders], remaining_variance[has_orders] = shrink_log_factors(estimate, variance)
    log_factors = _split_by_stack(mean, stacks)
    variances = _split_by_stack(remaining_variance, stacks)
    for stack, log_factor, log_factor_variance in zip(stacks, log_factors, variances, strict=True):
        stack.factor = np.exp(log_factor)
        stack.log_scale_variance = stack.log_scale_variance + log_factor_variance
        stack.fit()


def sharpness_step(stacks: Sequence[PoolStack]) -> Float:
    """Return each judge's β, one step closer to where its orders are likeliest.

    A step of expectation–maximization: by Newton's method it raises E[log P(orders of j | β_j·θ)]
    under the posterior, with log β_j ~ N(0, τ²). The geometric mean of all β is 1.
    """
    log_sharpness = np.log(stacks[0].sharpness)
    if len(log_sharpness) < 2:
        return stacks[0].sharpness
    changes = (-_SHARPNESS_DELTA, 0.0, _SHARPNESS_DELTA)
    by_stack = [stack.expected_log_likelihoods(changes) for stack in stacks]
    lower, current, upper = np.sum(by_stack, axis=0)
    slope = (upper - lower) / (2 * _SHARPNESS_DELTA) - log_sharpness / _SHARPNESS_SD**2
    information = np.maximum(2 * current - lower - upper, 0.0) / _SHARPNESS_DELTA**2
    information = information + 1 / _SHARPNESS_SD**2
    log_sharpness = log_sharpness + np.clip(slope / information, -_MAX_LOG_STEP, _MAX_LOG_STEP)
    sharpness: Float = np.exp(log_sharpness - log_sharpness.mean())
    return sharpness


def fit_pools(pools: Sequence[Refiner], max_sweeps: int = _MAX_SWEEPS) -> None:
    """Fit the prior to the orders of all pools, then each pool's posterior, and assign both to it.

    Scale, factors and sharpness take at most `max_sweeps` steps together; with 0 they stay.
    """
    stacks = [PoolStack(group) for group in _group_by_size(pools)]
    learns = max_sweeps > 0 and any(stack.has_orders.any() for stack in stacks)
    for _ in range(max_sweeps if learns else 0):
        if _sweep(stacks):
            break
    factors = [stack.factor for stack in stacks]
    if learns and len(pools) > 1:
        _fit_with_shrunk_factors(stacks)
    for stack, factor in zip(stacks, factors, strict=True):
        stack.update_pools(factor)


def _sweep(stacks: Sequence[PoolStack]) -> bool:
    """Take one step of all parameters and refit the pools; True if the parameters hardly moved."""
    old_scale, old_sharpness = stacks[0].scale, stacks[0].sharpness
    old_factors = np.concatenate([stack.factor for stack in stacks])
    scale, log_spread_variance = scale_step(old_scale, stacks)
    sharpness = sharpness_step(stacks)
    factors = factor_step(stacks)
    for stack, factor in zip(stacks, factors, strict=True):
        stack.log_scale_variance = np.where(stack.has_orders, log_spread_variance, 0.0)
        stack.refit(scale, factor, sharpness)
    steps = [*(scale.weights - old_scale.weights), scale.spread - old_scale.spread]
    log_moves = np.log([*np.concatenate(factors) / old_factors, *sharpness / old_sharpness])
    scale_converged = np.abs(steps).max() <= _SCALE_TOLERANCE * scale.spread
    return bool(scale_converged and np.abs(log_moves).max() <= _LOG_TOLERANCE)


def _group_by_size(pools: Sequence[Refiner]) -> Iterator[list[Refiner]]:
    """Groups of pools of similar size, each small enough for one `PoolStack`."""
    group: list[Refiner] = []
    for pool in sorted(pools, key=lambda pool: len(pool.features)):
        n = len(pool.features)
        too_wide = group and n > 1.25 * len(group[0].features) + 4
        if too_wide or (len(group) + 1) * n**2 > _MAX_STACK_SIZE:
            if group:
                yield group
            group = []
        group.append(pool)
    if group:
        yield group
