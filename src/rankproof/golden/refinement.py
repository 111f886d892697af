"""Rank the passages of pools by asking judges to order small batches, until the ranks are certain.

A pool's utilities θ have a Gaussian prior around what grades and RRF predict,

    θ = w_grade · (grade − mean grade) + w_rrf · standardized RRF + σ · noise,

which the judge's orders update (`plackett_luce`). Samples of the posterior choose the next batches:
half of them straddle the depth that is to be right, half lie above it. The prior's parameters are
estimated from the orders of all pools together (`prior`), and so is the sharpness of each of
several judges who take turns: one who contradicts the others, or itself, counts for less.

Everything is a function of the pools, the settings, the seed and the replies so far. A killed
process resumes by asking for the same rounds and adding the stored replies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import plural
from rankproof.golden.plackett_luce import OrderTable, Posterior, standardized_differences
from rankproof.golden.prior import Scale, fit_pools, pool_features

if TYPE_CHECKING:
    from rankproof.golden.rag_gs_ordering import RagGsRefiner

Batch = tuple[int, ...]
Part = tuple[Batch, Batch | None]  # items that were shown, and their order; None: it failed
MethodName = Literal["posterior", "seed", "seed-code"]
Reason = Literal["overlap", "budget", "order", "stable"]

_SURPRISE_DRAWS = 60  # simulated replies that a reply is compared with


@dataclass(frozen=True, slots=True)
class RefineSettings:
    """How batches are chosen, and when a pool is done.

    >>> from rankproof.golden.refinement import RefineSettings
    >>> RefineSettings(budget=40).batch
    5
    """

    batch: int = 5  # items that the judge orders in one call
    depth: int = 20  # top ranks that should be right; two thirds of a pool at most
    per_round: int = 4  # calls of one pool that may run in parallel
    budget: int = 80  # calls of one pool
    target: float = 0.9  # posterior-expected overlap of the top `depth` at which a pool is done
    boundary: float = 0.5  # share of the calls spent on who is in the top `depth`
    samples: int = 500  # of the posterior, behind every expectation

    def __post_init__(self) -> None:
        for name in ("depth", "per_round", "samples"):
            _check(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        _check(self.batch >= 2, "batch", self.batch, "2 or more")
        _check(self.budget >= 0, "budget", self.budget, "0 or more")
        _check(0 <= self.boundary <= 1, "boundary", self.boundary, "a share from 0 to 1")
        _check(0 < self.target <= 1, "target", self.target, "a share above 0, up to 1")

    def depth_of(self, items: int) -> int:
        """The depth in a pool of this size: in a small one, any order has the top 20 right."""
        return min(self.depth, max(1, 2 * items // 3))


def _check(valid: bool, name: str, value: float, allowed: str) -> None:
    if not valid:
        raise InputError(f"{name} is {value}", place="refinement", remedy=f"give {allowed}")


@dataclass(frozen=True, slots=True)
class Ranking:
    """A pool's order and how certain it is."""

    order: Int  # (n,) items, best first
    posterior: Posterior
    depth: int  # `settings.depth_of` the pool
    top: Float  # (n,) P(the item is truly among the top `depth`)
    overlap: float  # expected share of the stated top `depth` that truly belongs there
    low: Int  # (n,) 95% interval of each item's rank, from 1
    high: Int
    calls: int  # replies, failed ones included
    failed: int

    def locks(self, certainty: float = 0.95) -> Bool:
        """(n, n) pairs i > j with P(θ_i > θ_j) ≥ certainty.

        They cannot form a cycle and are transitive: standard deviations obey the triangle
        inequality, so z_ij ≥ z and z_jk ≥ z give z_ik ≥ z.
        """
        if not 0.5 < certainty < 1:
            raise InputError(
                f"certainty {certainty} of a lock", remedy="give a probability between 0.5 and 1"
            )
        z = standardized_differences(self.posterior.mean, self.posterior.covariance)
        return np.asarray(z >= NormalDist().inv_cdf(certainty))


def transitive_reduction(locks: Bool) -> Bool:
    """The pairs of a transitive relation that have no item in between.

    >>> from rankproof.golden.refinement import transitive_reduction
    >>> before = np.triu(np.ones((3, 3), bool), 1)  # 0 before 1 before 2
    >>> np.argwhere(transitive_reduction(before)).tolist()
    [[0, 1], [1, 2]]
    """
    items_between: Float = locks.astype(np.float64) @ locks.astype(np.float64)
    direct: Bool = locks & (items_between == 0)
    return direct


def make_ranking(
    posterior: Posterior,
    settings: RefineSettings,
    generator: np.random.Generator,
    *,
    calls: int = 0,
    failed: int = 0,
    order: Int | None = None,
) -> Ranking:
    """Summarize a posterior; the order is by mean (ties by item) unless another is given."""
    n = len(posterior.mean)
    if order is None:
        order = np.argsort(-posterior.mean, kind="stable")
    depth = settings.depth_of(n)
    ranks = _ranks(posterior.sample(generator, settings.samples)) if n else np.zeros((1, 0))
    top = (ranks < depth).mean(axis=0)
    low, high = np.quantile(ranks, [0.025, 0.975], axis=0, method="nearest").astype(np.int64) + 1
    return Ranking(
        order=order,
        posterior=posterior,
        depth=depth,
        top=top,
        overlap=float(top[order[:depth]].mean()) if n else 1.0,
        low=low,
        high=high,
        calls=calls,
        failed=failed,
    )


def expected_overlap(
    posterior: Posterior, settings: RefineSettings, generator: np.random.Generator
) -> float:
    """`Ranking.overlap` alone, from the same samples but without sorting them."""
    n = len(posterior.mean)
    depth = settings.depth_of(n)
    samples = posterior.sample(generator, settings.samples)
    last_in_top = np.partition(samples, n - depth, axis=1)[:, n - depth]
    stated_top = np.argsort(-posterior.mean, kind="stable")[:depth]
    return float((samples[:, stated_top] >= last_in_top[:, None]).mean())


def _ranks(samples: Float) -> Int:
    """(S, n) rank from 0 of every item in each sample."""
    order = np.argsort(-samples, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(samples.shape[1])[None, :], axis=1)
    return ranks


@dataclass(frozen=True, slots=True)
class Known:
    """Orders of a pool from earlier builds, and the calls that they took."""

    orders: Sequence[Sequence[int]]  # of items of the pool, best first
    failed: int = 0  # calls without an order
    spent: int | None = None  # calls that count against the budget; None: all
    closed: Reason | None = None  # why nothing more is asked
    judge_of_order: Sequence[int] = ()  # empty: the first judge gave all
    calls_by_judge: Sequence[int] = ()  # failed ones included; empty: there is one judge
    unjudgeable: Sequence[int] = ()  # items that failed even alone


@dataclass(slots=True)
class Refiner:
    """One pool, put in order by the posterior of its utilities.

    `next_round` returns the same batches until `add` is called with their orders. A failed reply
    (None) counts as a call; the next round has other batches, so that none is asked for ever. With
    `learn=False` the prior's parameters are fitted by the owner of the pool (`Refinement`).
    """

    features: Float  # (n, 2), from `pool_features`
    settings: RefineSettings = field(default_factory=RefineSettings)
    seed: int = 0
    scale: Scale = field(default_factory=Scale)
    learn: bool = True
    grade_sd: Float | None = None  # (n,) standard deviation of each grade; None: grades are exact
    judges: int = 1  # who take turns
    first_judge: int = 0
    unjudgeable: set[int] = field(default_factory=set, init=False)  # items that failed even alone
    sharpness: Float = field(init=False)  # (judges,) β, 1 on geometric average
    factor: float = field(default=1.0, init=False)  # c: how far utilities spread in this pool
    orders: list[Batch] = field(default_factory=list, init=False)
    judge_of_order: list[int] = field(default_factory=list, init=False)
    calls_by_judge: list[int] = field(init=False)
    calls: int = field(default=0, init=False)
    failed: int = field(default=0, init=False)
    last_mode: Float | None = field(default=None, init=False)  # where the next fit starts
    surprise: list[tuple[int, float]] = field(default_factory=list, init=False)
    """(judge, surprise) of each reply; see `_surprise`."""
    _free_calls: int = field(default=0, init=False)  # that do not count against the budget
    _closed: Reason | None = field(default=None, init=False)
    _round: int = field(default=0, init=False)
    _batches: list[Batch] | None = field(default=None, init=False)  # of the round
    _ranking: Ranking | None = field(default=None, init=False)
    _overlap: float | None = field(default=None, init=False)
    _order_table: OrderTable | None = field(default=None, init=False)
    _posterior: Posterior | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.sharpness = np.ones(self.judges)
        self.calls_by_judge = [0] * self.judges

    def next_round(self) -> list[Batch]:
        """Batches to be ordered in parallel, as they are to be shown; [] if the pool is done."""
        if self.done:
            return []
        if self._batches is None:
            self._batches = self._choose_batches()
        return list(self._batches)

    def judges_of_round(self) -> list[int]:
        """The judge of each batch of the round: whoever had the fewest calls of this pool."""
        calls = list(self.calls_by_judge)
        turn_order = [(self.first_judge + n) % self.judges for n in range(self.judges)]
        chosen = []
        for _ in self.next_round():
            judge = min(turn_order, key=calls.__getitem__)
            calls[judge] += 1
            chosen.append(judge)
        return chosen

    def add(
        self, orders: Sequence[Sequence[int] | None], parts: Sequence[Sequence[Part]] = ()
    ) -> None:
        """Add one reply for each batch of the round: its items, best first; None if it failed.

        `parts` are the replies to parts of each failed batch, if it was asked again in parts. An
        item that fails alone is not asked for again.
        """
        usable = usable_orders(self.next_round(), orders)
        judges = self.judges_of_round()
        judge_of_order = []
        for judge, order in zip(judges, orders, strict=True):
            if order is None:
                self._count_failure(judge)
            else:
                judge_of_order.append(judge)
        if self._round:  # in the first round the scale is a guess
            self._record_surprise(usable, judge_of_order)
        for judge, batch_parts in zip(judges, parts, strict=bool(parts)):
            for items, order in batch_parts:
                if order is None:
                    self._count_failure(judge)
                    self.unjudgeable |= single_item(items)
                else:
                    usable.append(order)
                    judge_of_order.append(judge)
        self.add_orders(usable, judge_of_order)

    def _count_failure(self, judge: int) -> None:
        self.calls += 1
        self.failed += 1
        self.calls_by_judge[judge] += 1

    def _record_surprise(self, orders: Sequence[Batch], judge_of_order: Sequence[int]) -> None:
        indexes_by_size: dict[int, list[int]] = {}
        for index, order in enumerate(orders):
            indexes_by_size.setdefault(len(order), []).append(index)
        generator = self._generator(2)
        for indexes in indexes_by_size.values():
            judges = [judge_of_order[index] for index in indexes]
            items = np.array([orders[index] for index in indexes])
            self.surprise += zip(judges, self._surprise(items, judges, generator), strict=True)

    def _surprise(
        self, items: Int, judges: Sequence[int], generator: np.random.Generator
    ) -> list[float]:
        """(C − E[C])²/Var[C] of each order, where C counts pairs ordered as the posterior has them.

        Mean and variance are over the posterior before the reply and over the judge's noise.
        """
        count, size = items.shape
        mean = self.posterior.mean[items]  # (orders, size)
        covariance = self.posterior.covariance[items[:, :, None], items[:, None, :]]
        noise = generator.standard_normal((count, _SURPRISE_DRAWS, size))
        draws = mean[:, None] + noise @ np.linalg.cholesky(covariance).transpose(0, 2, 1)
        draws += generator.gumbel(size=draws.shape) / self.sharpness[list(judges)][:, None, None]
        above, below = np.triu_indices(size, 1)
        sign = np.sign(mean[:, above] - mean[:, below])
        agreement = np.sign(draws[..., above] - draws[..., below]) @ sign[:, :, None]
        variance = agreement.var(axis=(1, 2))
        squared_error = (sign.sum(axis=1) - agreement.mean(axis=(1, 2))) ** 2
        surprise: Float = squared_error / np.where(variance > 0, variance, np.inf)
        return [float(value) for value in surprise]

    def resume(self, known: Known) -> None:
        """Continue from the orders of earlier builds; called before the first round."""
        self.calls = self.failed = known.failed
        self.unjudgeable = set(known.unjudgeable)
        self._closed = known.closed
        self.add_orders([tuple(order) for order in known.orders], known.judge_of_order or None)
        self.calls_by_judge = list(known.calls_by_judge) or self.calls_by_judge
        self._free_calls = 0 if known.spent is None else self.calls - known.spent

    def add_orders(self, orders: Sequence[Batch], judges: Sequence[int] | None = None) -> None:
        """Add orders of any items; each counts as a call of its judge (None: the first)."""
        judges = [0] * len(orders) if judges is None else list(judges)
        self.orders += orders
        self.judge_of_order += judges
        for judge in judges:
            self.calls_by_judge[judge] += 1
        self.calls += len(orders)
        self._round += 1
        self._batches = None
        self._order_table = self._posterior = self._ranking = self._overlap = None
        if self.learn:
            fit_pools([self])

    @property
    def posterior(self) -> Posterior:
        """The posterior given all orders so far."""
        if self._posterior is None:
            fit_pools([self], max_sweeps=0)
        assert self._posterior is not None
        return self._posterior

    @property
    def order_table(self) -> OrderTable:
        """All orders so far, with the current sharpness of their judges."""
        if self._order_table is None:
            self._order_table = OrderTable.from_orders(self.orders, len(self.features))
        return replace(self._order_table, sharpness=self.sharpness[self.judge_of_order][:, None])

    def set_posterior(self, posterior: Posterior) -> None:
        """Store a new posterior; scale, factor and sharpness have just been assigned."""
        self._posterior, self.last_mode = posterior, posterior.mean
        self._ranking = self._overlap = None

    @property
    def done(self) -> Reason | None:
        """Why the pool needs no more calls; None if it does."""
        if len(self.features) - len(self.unjudgeable) <= 1:
            return "order"  # a single item is in order
        if self.orders and self._expected_overlap() >= self.settings.target:
            return "overlap"
        return self._closed or ("budget" if self._remaining_calls <= 0 else None)

    def _expected_overlap(self) -> float:
        if self._overlap is None:
            self._overlap = expected_overlap(self.posterior, self.settings, self._generator(1))
        return self._overlap

    @property
    def _remaining_calls(self) -> int:
        return self.settings.budget + self._free_calls - self.calls

    def ranking(self) -> Ranking:
        """The order so far, and how certain it is."""
        if self._ranking is None:
            self._ranking = make_ranking(
                self.posterior,
                self.settings,
                self._generator(1),
                calls=self.calls,
                failed=self.failed,
            )
        return self._ranking

    def _generator(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self._round, purpose])

    def _choose_batches(self) -> list[Batch]:
        """Draw orders from the posterior, and choose a window of `batch` items from each.

        A share `boundary` of the windows straddles the depth, to settle which items belong to the
        top; the others lie above it. An item is in one batch of a round, as long as items last.
        """
        generator, settings = self._generator(0), self.settings
        n = len(self.features)
        size = min(settings.batch, n - len(self.unjudgeable))
        count = min(settings.per_round, self._remaining_calls)
        depth = settings.depth_of(n)
        judgeable = np.ones(n, bool)
        judgeable[list(self.unjudgeable)] = False
        unused = judgeable.copy()
        batches: list[Batch] = []
        samples = self.posterior.sample(generator, count)
        for theta, uniform in zip(samples, generator.random(count), strict=True):
            if unused.sum() < size:
                unused[:] = judgeable
            order = np.argsort(-theta, kind="stable")
            unused_above_depth = int(unused[order[:depth]].sum())
            order = order[unused[order]]
            if _is_due(self.calls + len(batches), settings.boundary):
                first = unused_above_depth - (size + (uniform < 0.5)) // 2
            else:
                first = int(uniform * max(1, unused_above_depth - size + 1))
            first = min(max(first, 0), len(order) - size)
            window = order[first : first + size]
            unused[window] = False
            batches.append(tuple(int(item) for item in generator.permutation(window)))
        return batches


def _is_due(index: int, share: float) -> bool:
    """True for this share of all call indexes, evenly spread."""
    return int((index + 1) * share) > int(index * share)


def single_item(items: Batch) -> set[int]:
    """The item of a batch of one, which is at fault if the batch fails; else an empty set."""
    return set(items) if len(items) == 1 else set()


def usable_orders(batches: Sequence[Batch], orders: Sequence[Sequence[int] | None]) -> list[Batch]:
    """The orders that did not fail, checked against their batches."""
    if len(orders) != len(batches):
        raise InputError(
            f"{plural(len(orders), 'reply')} to {plural(len(batches), 'batch', 'batches')}",
            place="refinement",
            remedy="give one for each batch of the round, None where the judge failed",
        )
    for batch, order in zip(batches, orders, strict=True):
        if order is not None and sorted(order) != sorted(batch):
            raise InputError(
                f"the reply {tuple(order)} does not order the batch {batch}",
                place="refinement",
                remedy="give its items, best first",
            )
    return [tuple(order) for order in orders if order is not None]


@dataclass(frozen=True, slots=True)
class Pool:
    """What is known of a query's passages before their order is judged; NaN where unknown.

    >>> from rankproof.golden.refinement import Pool
    >>> Pool(grade=[5, 4, 4, 1], rrf=[0.03, 0.03, 0.02, 0.01]).grade_sd is None
    True
    """

    grade: Sequence[float] | Array  # (n,)
    rrf: Sequence[float] | Array  # (n,)
    grade_sd: Sequence[float] | None = None  # (n,) standard deviation of each grade; 0: exact


class Refinement:
    """All pools of a golden set, round by round; the prior's parameters are learned from all.

    refinement = Refinement(pools, settings, seed)
    while batches := refinement.next_round():      # [(pool, batch), …]
        refinement.add([judge(pool, batch) for pool, batch in batches])
    rankings = refinement.rankings()

    >>> from rankproof.golden.refinement import Pool, Refinement, RefineSettings
    >>> pool = Pool(grade=[1, 3, 5, 4, 2], rrf=[0.01, 0.01, 0.03, 0.02, 0.02])
    >>> refinement = Refinement([pool], RefineSettings(budget=4))
    >>> while batches := refinement.next_round():
    ...     refinement.add([sorted(batch, key=[2, 3, 1, 4, 0].index) for _, batch in batches])
    >>> refinement.rankings()[0].order.tolist()
    [2, 3, 1, 4, 0]
    """

    def __init__(
        self,
        pools: Sequence[Pool],
        settings: RefineSettings | None = None,
        seed: int = 0,
        method: MethodName = "posterior",
        *,
        known: Mapping[int, Known] | None = None,
        judges: int = 1,
    ):
        """`known` are earlier orders by the pool's index; `judges` take turns in each pool."""
        from rankproof.golden.rag_gs_ordering import AS_PUBLISHED, RagGsConstants, RagGsRefiner

        settings = settings or RefineSettings()
        self._refiners: list[Refiner] = []  # none with the rule of rag-gs
        self._pools: list[Refiner | RagGsRefiner] = []
        for index, pool in enumerate(pools):
            pool_seed = _pool_seed(seed, index)
            if method != "posterior":
                constants = AS_PUBLISHED if method == "seed-code" else RagGsConstants()
                self._pools.append(RagGsRefiner(pool.grade, settings, pool_seed, constants))
                continue
            grade_sd = None if pool.grade_sd is None else np.asarray(pool.grade_sd, np.float64)
            refiner = Refiner(
                pool_features(pool.grade, pool.rrf),
                settings,
                pool_seed,
                learn=False,
                grade_sd=grade_sd,
                judges=judges,
                first_judge=index % judges,
            )
            self._refiners.append(refiner)
            self._pools.append(refiner)
        for index, earlier in (known or {}).items():
            self._pools[index].resume(earlier)
        fit_pools(self._refiners)

    def next_round(self) -> list[tuple[int, Batch]]:
        """(pool, batch) of every call that may run now; [] if every pool is done."""
        rounds = (pool.next_round() for pool in self._pools)
        return [(index, batch) for index, batches in enumerate(rounds) for batch in batches]

    def judges_of_round(self) -> list[int]:
        """The judge of each call of the round; the first if there is only one."""
        if not self._refiners:
            return [0] * len(self.next_round())
        return [judge for refiner in self._refiners for judge in refiner.judges_of_round()]

    def add(
        self, orders: Sequence[Sequence[int] | None], parts: Sequence[Sequence[Part]] = ()
    ) -> None:
        """Add one reply for each call of the round: items, best first; None if the judge failed.

        `parts` are the replies to parts of each failed batch, which are calls of their own.
        """
        calls = self.next_round()
        usable_orders([batch for _, batch in calls], orders)  # check all before adding any
        calls_by_pool: dict[int, list[int]] = {}
        for call, (pool, _) in enumerate(calls):
            calls_by_pool.setdefault(pool, []).append(call)
        for pool, own_calls in calls_by_pool.items():
            own_orders = [orders[call] for call in own_calls]
            self._pools[pool].add(own_orders, [parts[call] for call in own_calls] if parts else ())
        fit_pools(self._refiners)

    @property
    def scale(self) -> Scale:
        """The prior's parameters as learned from all pools; the first guess with rag-gs's rule."""
        return self._refiners[0].scale if self._refiners else Scale()

    @property
    def sharpness(self) -> list[float]:
        """β of each judge, 1 on geometric average; [1] with rag-gs's rule."""
        return self._refiners[0].sharpness.tolist() if self._refiners else [1.0]

    @property
    def done(self) -> list[Reason | None]:
        """Why each pool needs no more calls; None if it does.

        What other pools teach of the prior can reopen a pool that was certain enough.
        """
        return [pool.done for pool in self._pools]

    @property
    def surprise(self) -> list[tuple[int, float]]:
        """(judge, surprise) of each reply of the rounds; see `Refiner`."""
        return [value for refiner in self._refiners for value in refiner.surprise]

    def rankings(self) -> list[Ranking]:
        """Each pool's order and how certain it is."""
        return [pool.ranking() for pool in self._pools]


def _pool_seed(seed: int, pool: int) -> int:
    return int(np.random.SeedSequence([seed, pool]).generate_state(1, np.uint64)[0])
