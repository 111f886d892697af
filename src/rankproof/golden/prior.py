"""The prior of utilities, learned from what judges said of all pools together.

    θ = c · (w_grade · (grade − mean grade) + w_rrf · standardised RRF + σ · noise)

w and σ are shared by the pools, the factor c is a pool's own, and judge j multiplies θ by a
sharpness β_j. None is set by hand: they go to where the evidence of the orders is highest, from a
weak guess. The pools are worked on side by side, those of like size in one stack of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.errors import InputError
from rankproof.golden.plackett_luce import Judgements, Posterior, inverse, modes

_SWEEPS = 4  # steps of the scale after a round, at most
_SETTLED = 0.01  # relative change of the scale at which it is left until the next round
_GUESS_WEIGHTS = 4.0  # items' worth of evidence that the first guess of w counts for
_GUESS_SPREAD = 1.0  # and that of σ
_GUESS_APART = 0.35  # τ: how far pools differ in spread, in logarithms
_APART_POOLS = 4.0  # pools' worth of evidence that this guess counts for
_BELL = 0.1  # standard deviation of the bells that make up how pools differ
_FAR = 3.0  # the farthest that one of them stands
_BELLS = np.linspace(-_FAR, _FAR, 61)
_TURNS = 20  # of expectation–maximisation, by which their weights are found
_LEAST = 1e-6  # curvature of a pool that says nothing of its spread
_WIDEST = 20.0  # σ: a judge who never errs, of whom no orders tell how far he is from erring
_STRIDE = 0.5  # the most that a logarithm moves at once
_TURNED = 0.1  # change of log c at which it is left until the next round
_LIKE = 0.7  # how far judges differ in sharpness beforehand, in logarithms
_LISTENED = 30  # draws of the posterior that say how likely a judge's orders are
_PROBE = 0.25  # step of log β by which its slope is taken
_TOGETHER = 250_000  # numbers of a stack's covariances: they stay near the processor


@dataclass(frozen=True, slots=True)
class Scale:
    """The prior's constants, in the judge's logits. A judge with little noise has large ones."""

    grade: float = 1.0  # per step of the grade
    rrf: float = 0.3  # per standard deviation of RRF in the pool
    spread: float = 1.0  # σ: what grade and RRF do not say

    @property
    def weights(self) -> Float:
        return np.array([self.grade, self.rrf])


def features(grade: Sequence[float] | Array, rrf: Sequence[float] | Array) -> Float:
    """(n, 2) centred grades and standardised RRF scores of a pool; NaN, unknown, says nothing."""
    columns = np.array([grade, rrf], np.float64).T.reshape(-1, 2)
    known = ~np.isnan(columns)
    if np.isinf(columns).any():
        raise InputError("a grade or an RRF score is infinite", remedy="give finite numbers")
    count = np.maximum(known.sum(axis=0), 1)
    away = np.where(known, columns - np.where(known, columns, 0.0).sum(axis=0) / count, 0.0)
    size = np.abs(np.where(known, columns, 0.0)).max(axis=0, initial=0.0)
    away[np.abs(away) <= 1e-12 * size] = 0.0  # all the same, but for rounding
    deviation = float(np.sqrt((away[:, 1] ** 2).sum() / count[1]))
    away[:, 1] /= deviation or 1.0
    return away


class Learner(Protocol):
    """A pool as the prior sees it: what hints at its utilities, and who ordered what."""

    features: Float  # (n, 2)
    doubt: Float | None  # (n,) standard deviation of each grade, where the judge said it
    seed: int
    scale: Scale
    factor: float  # c
    sharpness: Float  # (judges,) β
    by: list[int]  # which judge gave each order

    @property
    def table(self) -> Judgements: ...

    @property
    def start(self) -> Float | None:
        """(n,) the last mode, if there is one."""

    def found(self, posterior: Posterior) -> None:
        """Take the posterior under the scale, factor and sharpness that it now has."""


class Stack:
    """Pools of like size side by side; the smaller are filled up with items that nobody ordered,
    of which the posterior is the prior."""

    def __init__(self, pools: Sequence[Learner]):
        self.pools = pools
        self.scale, self.sharpness = pools[0].scale, pools[0].sharpness
        self.factor: Float = np.array([pool.factor for pool in pools])
        size = [len(pool.features) for pool in pools]
        n = max(size)
        self.real: Bool = np.arange(n) < np.array(size)[:, None]  # (P, n)
        self.features: Float = np.zeros((len(pools), n, 2))
        self.features[self.real] = np.concatenate([pool.features for pool in pools])
        self.doubt: Float = np.zeros((len(pools), n))
        for at, pool in enumerate(pools):
            if pool.doubt is not None:
                self.doubt[at, : size[at]] = pool.doubt
        tables = [pool.table for pool in pools]
        self.told: Bool = np.array([len(table.items) > 0 for table in tables])
        self.judged = Judgements.side_by_side(tables, n)
        self.by: Int = np.array([judge for pool in pools for judge in pool.by], np.int64)
        self.unsure: Float = np.zeros(len(pools))  # (P,) variance of the logarithm of cσ
        self.alone = np.zeros(len(pools)), np.ones(len(pools))  # (P,) of log c: mode, variance
        self.mean: Float = self.prior.copy()  # (P, n)
        for at, pool in enumerate(pools):
            if pool.start is not None:
                self.mean[at, : size[at]] = pool.start
        self.fit()

    @property
    def prior(self) -> Float:
        """(P, n) its mean."""
        hints: Float = self.features @ self.scale.weights
        return self.factor[:, None] * hints

    @property
    def variance(self) -> Float:
        """(P, n) of the prior: what grade and RRF do not say, and how unsure the grade is."""
        found: Float = self.scale.spread**2 + (self.scale.grade * self.doubt) ** 2
        return self.factor[:, None] ** 2 * found

    def fit(self) -> None:
        self.mean, hessian = modes(self.judged, self.prior, 1 / self.variance, self.mean)
        self.covariance: Float = inverse(hessian)  # (P, n, n)
        self._flatter: Float | None = None

    def sharpen(self, sharpness: Float) -> None:
        """Take another sharpness of the judges."""
        if len(sharpness) > 1:
            self.sharpness = sharpness
            self.judged = replace(self.judged, sharp=sharpness[self.by][:, None])

    def give(self, learned: Float) -> None:
        """Hand every pool what was found of it.

        The scale is not known exactly, and where it is wider the mode lies elsewhere, by v: to the
        covariance at the scale that was found comes vvᵀ·Var(log cσ).
        """
        moved = self.moved()
        wider = moved[:, :, None] * moved[:, None, :] * self.unsure[:, None, None]
        covariance = self.covariance + wider
        for at, pool in enumerate(self.pools):
            n = len(pool.features)
            pool.scale, pool.sharpness = self.scale, self.sharpness
            pool.factor = float(learned[at])
            pool.found(Posterior(self.mean[at, :n].copy(), covariance[at, :n, :n].copy()))

    def decided(self) -> Float:
        """(P,) tr(I − ΣV⁻¹), V the prior's: items that the judge, not the prior, has decided."""
        left = np.diagonal(self.covariance, axis1=1, axis2=2) / self.variance
        found: Float = np.sum(np.where(self.real, 1 - left, 0.0), axis=1)
        return found

    def bend(self) -> Float:
        """(P,) 2 tr S², S = I − ΣV⁻¹: how the log evidence curves in the logarithm of σ.

        Steps by it are Fisher's; those of expectation–maximisation, by 2 tr S, are far shorter
        where the prior decides more than the judge.
        """
        share = np.eye(self.mean.shape[1]) - self.covariance / self.variance[:, None]
        found: Float = 2 * np.sum(share * share.swapaxes(1, 2), axis=(1, 2))
        return found

    def lean(self, towards: Float) -> Float:
        """(P,) what moving the prior's pull by `towards` (P, n), and so the mode by Σ·towards, adds
        to the log evidence by making the likelihood flatter: judges who are sure of widely spread
        utilities tell less of them."""
        if self._flatter is None:
            slope = self.judged.flattening(self.mean, self.covariance)
            self._flatter = (self.covariance @ slope[..., None])[..., 0]
        found: Float = np.sum(self._flatter * towards, axis=1)
        return found

    def moved(self) -> Float:
        """(P, n) by which the mode moves for each unit of log c: v = Σ V⁻¹(2μ − m), m and V the
        prior's mean and variance."""
        pull = (2 * self.mean - self.prior) / self.variance
        found: Float = (self.covariance @ pull[..., None])[..., 0]
        return found

    def heard(self) -> Float:
        """(3, judges) E[log P(orders | θ)] of each under the posterior, were it e^-step, as, or
        e^step as sharp."""
        root = np.linalg.cholesky(self.covariance)
        noise = np.stack(  # the same in every sweep
            [
                np.random.default_rng([pool.seed, len(pool.by), 3]).standard_normal(
                    (_LISTENED, root.shape[-1])
                )
                for pool in self.pools
            ]
        )
        drawn = self.mean[:, None] + noise @ root.swapaxes(1, 2)  # (P, draws, n)
        flat = drawn.swapaxes(0, 1).reshape(_LISTENED, -1)
        return np.stack(
            [
                np.bincount(
                    self.by,
                    replace(self.judged, sharp=self.judged.sharp * np.exp(step))
                    .each(flat)
                    .mean(axis=0),
                    len(self.sharpness),
                )
                for step in (-_PROBE, 0.0, _PROBE)
            ]
        )


def improve(scale: Scale, stacks: Sequence[Stack]) -> Scale:
    """One step towards the w and σ of the highest evidence (Laplace), by its gradient.

    With m = c·Xw and V the prior's, N(μ, Σ) the posterior, r = μ − m, S = I − ΣV⁻¹ what share of
    each direction the judge, not the prior, has decided, and l(x) what the likelihoods' own
    curvature adds where the prior's pull moves by x (`Stack.lean`):

        ∂w     = Σ c·XᵀV⁻¹r + l(c·V⁻¹X),    about −Σ c²·XᵀV⁻¹SX when it is differentiated again
        ∂log σ = Σ rᵀV⁻¹r − tr S + l(2V⁻¹r),  about −Σ 2 tr S²

    The first guess w₀, σ₀ counts as ν decided items; that of w goes with σ, since a noisier judge
    shrinks both.
    """
    first = Scale()
    variance = scale.spread**2
    guess = first.weights * scale.spread / first.spread
    gram = _GUESS_WEIGHTS * np.eye(2) / variance
    slope = gram @ (guess - scale.weights)
    bend = 2 * _GUESS_SPREAD
    steep = bend * np.log(first.spread / scale.spread)
    for stack in stacks:
        x = stack.features * stack.factor[:, None, None]
        prior, told = stack.variance, stack.told
        rest = stack.mean - stack.prior
        pull = x / prior[..., None]
        gram += np.einsum("pni,pnj->ij", pull, x - stack.covariance @ pull)
        slope += np.einsum("pni,pn->i", pull, rest)
        slope += [float(np.sum(stack.lean(pull[..., at]))) for at in (0, 1)]
        gained = np.sum(rest**2 / prior, axis=1) - stack.decided()
        gained += stack.lean(2 * rest / prior)
        steep += float(np.sum(gained[told]))
        bend += float(np.sum(stack.bend()))
    for stack in stacks:
        stack.unsure = np.where(stack.told, 1 / bend, 0.0)
    step = np.clip(np.linalg.solve(gram, slope), -3 * scale.spread, 3 * scale.spread)
    grade, rrf = (scale.weights + step).tolist()
    spread = scale.spread * float(np.exp(np.clip(steep / bend, -_STRIDE, _STRIDE)))
    return Scale(grade, rrf, min(spread, _WIDEST))


def apart(stacks: Sequence[Stack]) -> Float:
    """(pools,) one step of each pool's factor c, by which its utilities spread more than others'.

    θ ~ N(c·Xw, c²σ²): weights and noise alike, for grades are given within a pool. The evidence,
    with log c ~ N(0, τ²), has in log c

        gradient rᵀV⁻¹(r + m) − tr S + l(V⁻¹(2r + m)) − log c/τ²,
        curvature about 2 tr S² + mᵀV⁻¹Sm + 1/τ²

    and τ² is the mean of (log c)² + 1/curvature over the pools, with a first guess among them. What
    a pool says by itself, without τ, is kept (`Stack.alone`).
    """
    told = np.concatenate([stack.told for stack in stacks])
    logs = np.log(np.concatenate([stack.factor for stack in stacks]))
    slopes, bends = [], []
    for stack in stacks:
        hint, prior = stack.prior, stack.variance
        rest = stack.mean - hint
        sure = hint - (stack.covariance @ (hint / prior)[..., None])[..., 0]
        slope = np.sum(rest * (rest + hint) / prior, axis=1) - stack.decided()
        slopes.append(slope + stack.lean((2 * rest + hint) / prior))
        bends.append(stack.bend() + np.maximum(0.0, np.sum(hint * sure / prior, axis=1)))
    slope, bend = (np.concatenate(each)[told] for each in (slopes, bends))
    logs = logs[told]
    spread = _GUESS_APART**2
    for _ in range(3):  # what τ is, given each other
        left = logs**2 + 1 / (bend + 1 / spread)
        spread = float(_APART_POOLS * _GUESS_APART**2 + left.sum()) / (_APART_POOLS + len(logs))
    for stack, own, pull in zip(stacks, bends, slopes, strict=True):
        known = np.maximum(own, _LEAST)
        stack.alone = np.clip(np.log(stack.factor) + pull / known, -_FAR, _FAR), 1 / known
    moved = logs + np.clip((slope - logs / spread) / (bend + 1 / spread), -_STRIDE, _STRIDE)
    found = np.ones(len(told))
    found[told] = np.exp(moved - (moved.mean() if len(moved) else 0.0))  # what they share: σ's
    return found


def _together(said: Float, variance: Float) -> tuple[Float, Float]:
    """(pools,) mean and variance of each log c, where each pool by itself says N(said, variance).

    They are drawn from one distribution of any shape, a mixture of narrow bells: there may be two
    kinds of pools, and one that seems to spread more than others of its kind does so by chance. Its
    weights are those of the highest likelihood (expectation–maximisation), with a first guess.
    """
    wide = variance + _BELL**2
    likely = np.exp(-0.5 * (said[:, None] - _BELLS) ** 2 / wide[:, None])
    guess = np.exp(-0.5 * (_BELLS / _GUESS_APART) ** 2)
    guess *= _APART_POOLS / guess.sum()
    share: Float = np.full(len(_BELLS), 1 / len(_BELLS))
    for _ in range(_TURNS):
        whose = likely * share
        whose /= whose.sum(axis=1, keepdims=True)
        share = (whose.sum(axis=0) + guess) / (len(said) + _APART_POOLS)
    narrow = variance * _BELL**2 / wide
    middle = narrow[:, None] * (said[:, None] / variance[:, None] + _BELLS / _BELL**2)
    mean = np.sum(whose * middle, axis=1)
    return mean, narrow + np.sum(whose * (middle - mean[:, None]) ** 2, axis=1)


def _beside_others(stacks: Sequence[Stack]) -> None:
    """Fit each pool under the factor that it is to have, given what all pools say of theirs.

    The mode that `apart` steps to would do as a guess; but of pools that are alike the one which
    seems to spread most does so by chance, and it is there that most pairs would be locked.
    """
    told = np.concatenate([stack.told for stack in stacks])
    said, variance = (np.concatenate([stack.alone[n] for stack in stacks])[told] for n in (0, 1))
    mean, left = np.zeros(len(told)), np.zeros(len(told))
    mean[told], left[told] = _together(said, variance)
    ends = np.cumsum([len(stack.told) for stack in stacks])[:-1]
    for stack, log, own in zip(stacks, np.split(mean, ends), np.split(left, ends), strict=True):
        stack.factor = np.exp(log)
        stack.unsure = stack.unsure + own
        stack.fit()


def sharpness(stacks: Sequence[Stack]) -> Float:
    """(judges,) one step of each judge's β towards where its orders are likeliest.

    E[log P(orders of j | β_j θ)] under the posterior, with log β_j ~ N(0, τ²): a step of
    expectation–maximisation, by Newton's method. What all share is the scale's.
    """
    logs = np.log(stacks[0].sharpness)
    if len(logs) < 2:
        return stacks[0].sharpness
    less, here, more = np.sum([stack.heard() for stack in stacks], axis=0)
    slope = (more - less) / (2 * _PROBE) - logs / _LIKE**2
    bend = np.maximum(2 * here - less - more, 0.0) / _PROBE**2 + 1 / _LIKE**2
    logs = logs + np.clip(slope / bend, -_STRIDE, _STRIDE)
    found: Float = np.exp(logs - logs.mean())
    return found


def settle(pools: Sequence[Learner], sweeps: int = _SWEEPS) -> None:
    """Improve the scale that the pools share, and what sets each apart, until it hardly moves; in
    no sweep, only fit each posterior to what its judges said."""
    stacks = [Stack(some) for some in _alike(pools)]
    heard = any(stack.told.any() for stack in stacks)
    for _ in range(sweeps if heard else 0):
        before = stacks[0].scale
        scale, sharp = improve(before, stacks), sharpness(stacks)
        count = np.cumsum([len(stack.factor) for stack in stacks])
        factors = apart(stacks) if len(pools) > 1 else np.ones(1)
        moved = [*(scale.weights - before.weights), scale.spread - before.spread]
        turned = np.log(factors / np.concatenate([stack.factor for stack in stacks]))
        judged = np.log(sharp / stacks[0].sharpness)
        for stack, factor in zip(stacks, np.split(factors, count[:-1]), strict=True):
            stack.scale, stack.factor = scale, factor
            stack.sharpen(sharp)
            stack.fit()
        near = np.abs(moved).max() <= _SETTLED * scale.spread
        if near and max(np.abs(turned).max(), np.abs(judged).max()) <= _TURNED:
            break
    learned = [stack.factor for stack in stacks]
    if heard and sweeps and len(pools) > 1:
        _beside_others(stacks)
    for stack, factor in zip(stacks, learned, strict=True):
        stack.give(factor)


def _alike(pools: Sequence[Learner]) -> Iterator[list[Learner]]:
    """The pools in groups of about one size, none of them too large."""
    group: list[Learner] = []
    for pool in sorted(pools, key=lambda pool: len(pool.features)):
        n = len(pool.features)
        wide = group and n > 1.25 * len(group[0].features) + 4
        if wide or (len(group) + 1) * n**2 > _TOGETHER:
            if group:
                yield group
            group = []
        group.append(pool)
    if group:
        yield group
