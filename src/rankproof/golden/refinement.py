"""Refine the order of pools by asking a judge to order small batches.

A pool's utilities θ have a Gaussian prior around what grades and RRF say of them,

    θ = w_grade · (grade − mean grade) + w_rrf · standardised RRF + σ · noise,

the judge's orders update it (`plackett_luce.fit`), and samples of the posterior choose what to ask
next: half of the batches straddle the depth that is to be right, half lie above it. The constants
w and σ are not set by hand: they are estimated from the judgements of all pools together, by their
evidence, starting from a weak guess. So is, of several judges who take turns, the sharpness of
each: one who contradicts the others, or itself, counts for less.

Everything is a function of the pools, the settings, the seed and the replies so far: a process
that was killed is resumed by asking for the same rounds again and adding the recorded replies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Literal, Protocol

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import plural
from rankproof.golden.plackett_luce import Judgements, Posterior, separation
from rankproof.golden.prior import Scale, fit_pools, pool_features

Batch = tuple[int, ...]
Part = tuple[Batch, Batch | None]  # items that were shown, and their order; None: it failed
MethodName = Literal["posterior", "seed", "seed-code"]
Reason = Literal["overlap", "budget", "order", "stable"]

_FORETOLD = 60  # replies that are drawn to say how surprising one is


@dataclass(frozen=True, slots=True)
class RefineSettings:
    """What is asked, and when it is enough.

    >>> from rankproof.golden.refinement import RefineSettings
    >>> RefineSettings(budget=40).batch
    5
    """

    batch: int = 5  # items that the judge orders in one call
    depth: int = 20  # ranks that are to be right; two thirds of a pool at most
    per_round: int = 4  # calls of one pool that may run side by side
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
        """The depth in a pool: in a small one, the top 20 would be right whatever the order."""
        return min(self.depth, max(1, 2 * items // 3))


def _check(good: bool, name: str, value: float, wanted: str) -> None:
    if not good:
        raise InputError(f"{name} is {value}", place="refinement", remedy=f"give {wanted}")


@dataclass(frozen=True, slots=True)
class Ranking:
    """A pool's order and how sure it is."""

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
        needed = NormalDist().inv_cdf(certainty)
        return np.asarray(separation(self.posterior.mean, self.posterior.covariance) >= needed)


def reduced(locks: Bool) -> Bool:
    """Transitive reduction of a transitive relation: pairs with nothing locked in between.

    >>> from rankproof.golden.refinement import reduced
    >>> before = np.triu(np.ones((3, 3), bool), 1)  # 0 before 1 before 2
    >>> np.argwhere(reduced(before)).tolist()
    [[0, 1], [1, 2]]
    """
    between: Float = locks.astype(np.float64) @ locks.astype(np.float64)
    direct: Bool = locks & (between == 0)
    return direct


def ranking(
    posterior: Posterior,
    settings: RefineSettings,
    generator: np.random.Generator,
    calls: int = 0,
    failed: int = 0,
    order: Int | None = None,
) -> Ranking:
    """What a posterior says of the order: by mean where no order is given, ties by item."""
    n = len(posterior.mean)
    stated = np.argsort(-posterior.mean, kind="stable") if order is None else order
    depth = settings.depth_of(n)
    ranks = _ranks(posterior.sample(generator, settings.samples)) if n else np.zeros((1, 0))
    top = (ranks < depth).mean(axis=0)
    overlap = float(top[stated[:depth]].mean()) if n else 1.0
    low, high = np.quantile(ranks, [0.025, 0.975], axis=0, method="nearest").astype(np.int64) + 1
    return Ranking(stated, posterior, depth, top, overlap, low, high, calls, failed)


def expected_overlap(
    posterior: Posterior, settings: RefineSettings, generator: np.random.Generator
) -> float:
    """`Ranking.overlap` alone, of the same samples and without sorting them."""
    n = len(posterior.mean)
    depth = settings.depth_of(n)
    samples = posterior.sample(generator, settings.samples)
    last = np.partition(samples, n - depth, axis=1)[:, n - depth]
    stated = np.argsort(-posterior.mean, kind="stable")[:depth]
    return float((samples[:, stated] >= last[:, None]).mean())


def _ranks(samples: Float) -> Int:
    """(S, n) the rank from 0 of every item in each sample."""
    placed = np.argsort(-samples, axis=1, kind="stable")
    ranks = np.empty_like(placed)
    np.put_along_axis(ranks, placed, np.arange(samples.shape[1])[None, :], axis=1)
    return ranks


@dataclass(frozen=True, slots=True)
class Known:
    """What a judge said of a pool, or of a part of it, before."""

    orders: Sequence[Sequence[int]]  # of items of the pool, best first
    failed: int = 0  # calls that came to nothing
    spent: int | None = None  # calls that count against the budget; all of them, if not given
    closed: Reason | None = None  # why nothing more is asked, where nothing is
    by: Sequence[int] = ()  # which judge gave each order; the first, if not given
    turns: Sequence[int] = ()  # calls of each judge, failed ones included; of one alone, not given
    mute: Sequence[int] = ()  # items that cannot be judged, not even alone


class Method(Protocol):
    """How one pool is refined. `next_round` may be called again until `add` answers it."""

    calls: int
    failed: int

    def next_round(self) -> list[Batch]:
        """Batches to be ordered side by side, in the order they are to be shown; [] when done."""

    def add(
        self, orders: Sequence[Sequence[int] | None], parts: Sequence[Sequence[Part]] = ()
    ) -> None:
        """One reply for each batch of the round: its items, best first; None where it failed, and
        then what was said of parts of it. An item that fails alone is not asked for again."""

    def begin(self, known: Known) -> None:
        """Take what was judged before, at the beginning."""

    @property
    def done(self) -> Reason | None:
        """Why nothing more is asked; None while there is."""

    def ranking(self) -> Ranking: ...


@dataclass(slots=True)
class Refiner:
    """One pool, refined by its posterior.

    A failed reply (None) counts as a call and says nothing; the next round is drawn afresh, so
    that a batch which cannot be judged is not asked for ever. `learn=False` leaves the scale to
    whoever holds the pool (`Refinement`).
    """

    features: Float  # (n, 2), of `features`
    settings: RefineSettings = field(default_factory=RefineSettings)
    seed: int = 0
    scale: Scale = field(default_factory=Scale)
    learn: bool = True
    grade_sd: Float | None = None  # (n,) standard deviation of each grade, where the judge said it
    judges: int = 1  # who take turns
    first: int = 0  # of them
    mute: set[int] = field(default_factory=set, init=False)  # items that cannot be judged
    sharpness: Float = field(init=False)  # (judges,) β, 1 on geometric average
    factor: float = field(default=1.0, init=False)  # c: its spread beside that of other pools
    orders: list[Batch] = field(default_factory=list, init=False)
    judge_of_order: list[int] = field(default_factory=list, init=False)
    turns: list[int] = field(init=False)  # calls of each judge
    calls: int = field(default=0, init=False)
    failed: int = field(default=0, init=False)
    _free: int = field(default=0, init=False)  # calls that do not count against the budget
    _closed: Reason | None = field(default=None, init=False)
    _round: int = field(default=0, init=False)
    _asked: list[Batch] | None = field(default=None, init=False)
    _ranking: Ranking | None = field(default=None, init=False)
    _expected: float | None = field(default=None, init=False)
    _judgements: Judgements | None = field(default=None, init=False)  # of the orders so far
    _posterior: Posterior | None = field(default=None, init=False)
    _mode: Float | None = field(default=None, init=False)  # of the last posterior
    surprise: list[tuple[int, float]] = field(
        default_factory=list, init=False
    )  # judge, and how surprising each reply was; see `_surprise`

    def __post_init__(self) -> None:
        self.sharpness = np.ones(self.judges)
        self.turns = [0] * self.judges

    def next_round(self) -> list[Batch]:
        if self.done:
            return []
        if self._asked is None:
            self._asked = self._choose()
        return list(self._asked)

    def asked(self) -> list[int]:
        """Which judge each batch of the round is for: who had the fewest of this pool."""
        turns, found = list(self.turns), []
        for _ in self.next_round():
            order = [(self.first + n) % self.judges for n in range(self.judges)]
            found.append(min(order, key=lambda judge: turns[judge]))
            turns[found[-1]] += 1
        return found

    def add(
        self, orders: Sequence[Sequence[int] | None], parts: Sequence[Sequence[Part]] = ()
    ) -> None:
        replies = answered(self.next_round(), orders)
        whose = self.asked()
        by = [judge for judge, order in zip(whose, orders, strict=True) if order is not None]
        self.calls += len(orders) - len(replies)
        self.failed += len(orders) - len(replies)
        for judge, order in zip(whose, orders, strict=True):
            self.turns[judge] += order is None
        by_size: dict[int, list[int]] = {}
        for at, reply in enumerate(replies):
            by_size.setdefault(len(reply), []).append(at)
        generator = self._generator(2)
        for some in by_size.values() if self._round else ():  # at first the scale is a guess
            given = [by[at] for at in some]
            found = self._surprise(np.array([replies[at] for at in some]), given, generator)
            self.surprise += zip(given, found, strict=True)
        for judge, pieces in zip(whose, parts, strict=bool(parts)):
            for items, said in pieces:
                if said is None:
                    self.calls += 1
                    self.failed += 1
                    self.turns[judge] += 1
                    self.mute |= alone(items)
                else:
                    replies.append(said)
                    by.append(judge)
        self.take(replies, by)

    def _surprise(
        self, items: Int, by: Sequence[int], generator: np.random.Generator
    ) -> list[float]:
        """(C − E[C])²/Var[C] of the pairs C that each reply puts as the posterior before it does,
        expectation and variance over the posterior and the judge's noise."""
        count, size = items.shape
        mean = self.posterior.mean[items]  # (replies, size)
        covariance = self.posterior.covariance[items[:, :, None], items[:, None, :]]
        noise = generator.standard_normal((count, _FORETOLD, size))
        drawn = mean[:, None] + noise @ np.linalg.cholesky(covariance).transpose(0, 2, 1)
        drawn += generator.gumbel(size=drawn.shape) / self.sharpness[list(by)][:, None, None]
        above, below = np.triu_indices(size, 1)
        expected = np.sign(mean[:, above] - mean[:, below])
        agree = np.sign(drawn[..., above] - drawn[..., below]) @ expected[:, :, None]
        variance = agree.var(axis=(1, 2))
        away = (expected.sum(axis=1) - agree.mean(axis=(1, 2))) ** 2
        found: Float = away / np.where(variance > 0, variance, np.inf)
        return [float(value) for value in found]

    def begin(self, known: Known) -> None:
        self.calls = self.failed = known.failed
        self.mute = set(known.mute)
        self._closed = known.closed
        self.take([tuple(order) for order in known.orders], known.by or None)
        self.turns = list(known.turns) or self.turns
        self._free = 0 if known.spent is None else self.calls - known.spent

    def take(self, orders: Sequence[Batch], by: Sequence[int] | None = None) -> None:
        """Judgements made elsewhere, of any items; each counts as a call of its judge."""
        whose = [0] * len(orders) if by is None else list(by)
        self.orders += orders
        self.judge_of_order += whose
        for judge in whose:
            self.turns[judge] += 1
        self.calls += len(orders)
        self._round += 1
        self._asked = None
        self._judgements = self._posterior = self._ranking = self._expected = None
        if self.learn:
            fit_pools([self])

    @property
    def posterior(self) -> Posterior:
        """Of all orders so far."""
        if self._posterior is None:
            fit_pools([self], max_sweeps=0)
        assert self._posterior is not None
        return self._posterior

    @property
    def judgements(self) -> Judgements:
        if self._judgements is None:
            self._judgements = Judgements.of(self.orders, len(self.features))
        return replace(self._judgements, sharp=self.sharpness[self.judge_of_order][:, None])

    @property
    def last_mode(self) -> Float | None:
        return self._mode

    def set_posterior(self, posterior: Posterior) -> None:
        self._posterior, self._mode = posterior, posterior.mean
        self._ranking = self._expected = None

    @property
    def done(self) -> Reason | None:
        if len(self.features) - len(self.mute) <= 1:
            return "order"  # there is one alone
        if self.orders and self._overlap() >= self.settings.target:
            return "overlap"
        return self._closed or ("budget" if self._left <= 0 else None)

    def _overlap(self) -> float:
        if self._expected is None:
            self._expected = expected_overlap(self.posterior, self.settings, self._generator(1))
        return self._expected

    @property
    def _left(self) -> int:
        return self.settings.budget + self._free - self.calls

    def ranking(self) -> Ranking:
        if self._ranking is None:
            self._ranking = ranking(
                self.posterior, self.settings, self._generator(1), self.calls, self.failed
            )
        return self._ranking

    def _generator(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self._round, purpose])

    def _choose(self) -> list[Batch]:
        """Windows of sampled orders: around the depth, or above it; apart within the round."""
        generator = self._generator(0)
        n, settings = len(self.features), self.settings
        size = min(settings.batch, n - len(self.mute))
        count = min(settings.per_round, self._left)
        depth = settings.depth_of(n)
        may = np.ones(n, bool)
        may[list(self.mute)] = False
        free = may.copy()
        batches: list[Batch] = []
        for theta, mark in zip(
            self.posterior.sample(generator, count), generator.random(count), strict=True
        ):
            if free.sum() < size:
                free[:] = may
            order = np.argsort(-theta, kind="stable")
            before = int(free[order[:depth]].sum())  # free items above the depth
            order = order[free[order]]
            if _due(self.calls + len(batches), settings.boundary):
                first = before - (size + (mark < 0.5)) // 2
            else:
                first = int(mark * max(1, before - size + 1))
            first = min(max(first, 0), len(order) - size)
            chosen = order[first : first + size]
            free[chosen] = False
            batches.append(tuple(int(i) for i in generator.permutation(chosen)))
        return batches


def _due(index: int, share: float) -> bool:
    """Whether call `index` is one of the share, spread evenly."""
    return int((index + 1) * share) > int(index * share)


def alone(items: Batch) -> set[int]:
    """The one that is to blame for what could not be judged, where it stood alone."""
    return set(items) if len(items) == 1 else set()


def answered(asked: Sequence[Batch], orders: Sequence[Sequence[int] | None]) -> list[Batch]:
    """The replies that did not fail, checked against the batches that were asked."""
    if len(orders) != len(asked):
        raise InputError(
            f"{plural(len(orders), 'reply')} to {plural(len(asked), 'batch', 'batches')}",
            place="refinement",
            remedy="give one for each batch of the round, None where the judge failed",
        )
    for batch, order in zip(asked, orders, strict=True):
        if order is not None and sorted(order) != sorted(batch):
            raise InputError(
                f"the reply {tuple(order)} does not order the batch {batch}",
                place="refinement",
                remedy="give its items, best first",
            )
    return [tuple(order) for order in orders if order is not None]


@dataclass(frozen=True, slots=True)
class Pool:
    """What is known of a query's passages before their order is judged; NaN where it is not.

    >>> from rankproof.golden.refinement import Pool
    >>> Pool(grade=[5, 4, 4, 1], rrf=[0.03, 0.03, 0.02, 0.01]).doubt is None
    True
    """

    grade: Sequence[float] | Array  # (n,)
    rrf: Sequence[float] | Array  # (n,)
    doubt: Sequence[float] | None = None  # (n,) standard deviation of each grade; 0: it is sure


class Refinement:
    """All pools of a golden set, round by round, each learning its prior's scale from all.

    refinement = Refinement(pools, settings, seed)
    while asked := refinement.next_round():      # [(pool, batch), …]
        refinement.add([judge(pool, batch) for pool, batch in asked])
    rankings = refinement.rankings()

    >>> from rankproof.golden.refinement import Pool, Refinement, RefineSettings
    >>> pool = Pool(grade=[1, 3, 5, 4, 2], rrf=[0.01, 0.01, 0.03, 0.02, 0.02])
    >>> refinement = Refinement([pool], RefineSettings(budget=4))
    >>> while asked := refinement.next_round():
    ...     refinement.add([sorted(batch, key=[2, 3, 1, 4, 0].index) for _, batch in asked])
    >>> refinement.rankings()[0].order.tolist()
    [2, 3, 1, 4, 0]
    """

    def __init__(
        self,
        pools: Sequence[Pool],
        settings: RefineSettings | None = None,
        seed: int = 0,
        method: MethodName = "posterior",
        known: Mapping[int, Known] | None = None,
        judges: int = 1,
    ):
        from rankproof.golden.rag_gs_ordering import PUBLISHED, SeedConstants, SeedRefiner

        chosen = settings or RefineSettings()
        self._learners: list[Refiner] = []
        self._pools: list[Method] = []
        for at, pool in enumerate(pools):
            if method != "posterior":
                constants = PUBLISHED if method == "seed-code" else SeedConstants()
                own = SeedRefiner(pool.grade, chosen, _mixed(seed, at), constants)
                self._pools.append(own)
                continue
            hints = pool_features(pool.grade, pool.rrf)
            grade_sd = None if pool.doubt is None else np.asarray(pool.doubt, np.float64)
            refiner = Refiner(
                *(hints, chosen, _mixed(seed, at)),
                learn=False,
                grade_sd=grade_sd,
                judges=judges,
                first=at % judges,
            )
            self._learners.append(refiner)
            self._pools.append(refiner)
        for at, before in (known or {}).items():
            self._pools[at].begin(before)
        fit_pools(self._learners)

    def next_round(self) -> list[tuple[int, Batch]]:
        """(pool, batch) of every call that may run now; [] when every pool is done."""
        return [(at, batch) for at, pool in enumerate(self._pools) for batch in pool.next_round()]

    def asked(self) -> list[int]:
        """Which judge each call of the round is for; the first, where there is one alone."""
        if not self._learners:
            return [0] * len(self.next_round())
        return [judge for pool in self._learners for judge in pool.asked()]

    def add(
        self, orders: Sequence[Sequence[int] | None], parts: Sequence[Sequence[Part]] = ()
    ) -> None:
        """One reply for each call of the round: items, best first; None where the judge failed,
        and then what it said of `parts` of the batch, calls of their own."""
        asked = self.next_round()
        answered([batch for _, batch in asked], orders)  # all of them, before any is taken
        replies: dict[int, list[int]] = {}
        for call, (at, _) in enumerate(asked):
            replies.setdefault(at, []).append(call)
        for at, mine in replies.items():
            self._pools[at].add(
                [orders[call] for call in mine], [parts[call] for call in mine] if parts else ()
            )
        fit_pools(self._learners)

    @property
    def scale(self) -> Scale:
        """What the pools have taught of the prior; the first guess under the seed's rule."""
        return self._learners[0].scale if self._learners else Scale()

    @property
    def sharpness(self) -> list[float]:
        """β of each judge, 1 on geometric average; [1] under the seed's rule."""
        return self._learners[0].sharpness.tolist() if self._learners else [1.0]

    @property
    def done(self) -> list[Reason | None]:
        """Why each pool asks nothing more; None while it does.

        What other pools teach of the scale can reopen a pool that had enough.
        """
        return [pool.done for pool in self._pools]

    @property
    def surprise(self) -> list[tuple[int, float]]:
        """(judge, how surprising) each reply of the rounds was, beside what was expected."""
        return [value for pool in self._learners for value in pool.surprise]

    def rankings(self) -> list[Ranking]:
        """Each pool's order and how sure it is."""
        return [pool.ranking() for pool in self._pools]


def _mixed(seed: int, pool: int) -> int:
    return int(np.random.SeedSequence([seed, pool]).generate_state(1, np.uint64)[0])
