"""The order-refining rule of the rag-gs pipeline (arXiv 2511.09545, stage 6), for comparison.

Scores start at the grades. Each call orders the batch least seen so far; the scores then move one
stochastic gradient step of Plackett–Luce (step η, clipped, recentred now and then), Fisher
information accumulates on the diagonal, and a pair is locked, for ever, once it was won twice or
its confidence bounds are apart. The order is a topological sort by score that obeys the locks; it
is done when the top `depth` stays the same for a number of turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.golden.constrained import extended
from rankproof.golden.plackett_luce import Posterior
from rankproof.golden.refinement import (
    Batch,
    Known,
    Part,
    Ranking,
    Reason,
    RefineSettings,
    alone,
    answered,
    ranking,
)

_NO_INFORMATION = 1e-6


@dataclass(frozen=True, slots=True)
class SeedConstants:
    """The constants; where paper and published code differ, those of the paper's pseudocode."""

    step: float = 0.05  # η at turn t is step/√(1 + t/50), at least least_step
    least_step: float = 0.01
    clip: float = 0.2
    recentre: int = 50  # turns
    margin: float = 1.0  # standard deviations on each side
    confirmations: int = 2
    stable: int = 3  # turns
    lock_after: bool = True  # a pair is locked by the scores after a turn's step, not before it


PUBLISHED = SeedConstants(stable=15, lock_after=False)
"""As the pipeline's code ships them."""


@dataclass(slots=True)
class SeedRefiner:
    """One pool, refined by the seed's rule: one call a round.

    A failed reply counts as a call and changes nothing but what is drawn next.
    """

    grade: Sequence[float] | Array
    settings: RefineSettings = field(default_factory=RefineSettings)
    seed: int = 0
    constants: SeedConstants = field(default_factory=SeedConstants)
    calls: int = field(default=0, init=False)
    failed: int = field(default=0, init=False)
    score: Float = field(init=False)
    information: Float = field(init=False)
    exposures: Int = field(init=False)
    above: Bool = field(init=False)  # (n, n) locked, and all that follows from it
    locked: Bool = field(init=False)  # (n, n) locked itself
    orders: list[Batch] = field(default_factory=list, init=False)
    mute: set[int] = field(default_factory=set, init=False)  # items that cannot be judged
    _wins: Int = field(init=False)  # (n, n) of pairs not locked yet
    _streak: int = field(default=0, init=False)
    _free: int = field(default=0, init=False)  # calls that do not count against the budget
    _closed: Reason | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        grade = np.asarray(self.grade, np.float64)
        known = grade[~np.isnan(grade)]
        self.score = np.where(np.isnan(grade), known.mean() if len(known) else 0.0, grade)
        n = len(grade)
        self.information = np.full(n, _NO_INFORMATION)
        self.exposures = np.zeros(n, np.int64)
        self.above = np.zeros((n, n), bool)
        self.locked = np.zeros((n, n), bool)
        self._wins = np.zeros((n, n), np.int64)

    def next_round(self) -> list[Batch]:
        if self.done:
            return []
        generator = np.random.default_rng([self.seed, self.calls])
        draw = generator.random(len(self.score))
        seen = self.exposures + 0.3 * np.log1p(self.information) + draw
        seen[list(self.mute)] = np.inf
        size = min(self.settings.batch, len(seen) - len(self.mute))
        batch = np.argsort(seen, kind="stable")[:size]
        return [tuple(int(item) for item in generator.permutation(batch))]

    def begin(self, known: Known) -> None:
        self.take([tuple(order) for order in known.orders])
        self.calls += known.failed
        self.failed += known.failed
        self._free = 0 if known.spent is None else self.calls - known.spent
        self._closed = known.closed
        self.mute = set(known.mute)

    def add(
        self, orders: Sequence[Sequence[int] | None], parts: Sequence[Sequence[Part]] = ()
    ) -> None:
        replies = answered(self.next_round(), orders)
        self.take(replies)
        self.calls += len(orders) - len(replies)
        self.failed += len(orders) - len(replies)
        for items, order in (each for some in parts for each in some):
            if order is not None:
                self.take([order])
                continue
            self.calls += 1
            self.failed += 1
            self.mute |= alone(items)

    def take(self, replies: Sequence[Batch]) -> None:
        for reply in replies:
            before = self.order()[: self.settings.depth]
            if self.constants.lock_after:
                self._step(reply)
                self._lock(reply)
            else:
                self._lock(reply)
                self._step(reply)
            self.orders.append(reply)
            same = np.array_equal(before, self.order()[: self.settings.depth])
            if len(reply) > 1:  # of one alone nothing was said
                self._streak = self._streak + 1 if same else 0
            self.calls += 1

    @property
    def done(self) -> Reason | None:
        if len(self.score) - len(self.mute) <= 1:
            return "order"
        if self._streak >= self.constants.stable:
            return "stable"
        over = self.calls >= self.settings.budget + self._free
        return self._closed or ("budget" if over else None)

    def order(self) -> Int:
        """(n,) the best-scored item that nothing locked stands above, again and again."""
        return extended(self.above, self.score)

    def ranking(self) -> Ranking:
        """Its order; the spread is what its diagonal information says, and too narrow."""
        covariance = np.diag(1 / self.information)
        posterior = Posterior(self.score.copy(), covariance)
        generator = np.random.default_rng([self.seed, self.calls, 1])
        return ranking(
            posterior, self.settings, generator, self.calls, self.failed, order=self.order()
        )

    def _lock(self, reply: Batch) -> None:
        reach = self.constants.margin / np.sqrt(self.information)
        for place, winner in enumerate(reply):
            for loser in reply[place + 1 :]:
                if self.above[winner, loser] or self.above[loser, winner]:
                    continue
                self._wins[winner, loser] += 1
                apart = self.score[winner] - reach[winner] > self.score[loser] + reach[loser]
                if apart or self._wins[winner, loser] >= self.constants.confirmations:
                    self.locked[winner, loser] = True
                    upper = self.above[:, winner].copy()
                    lower = self.above[loser].copy()
                    upper[winner] = lower[loser] = True
                    self.above |= upper[:, None] & lower

    def _step(self, reply: Batch) -> None:
        constants = self.constants
        step = max(constants.step / np.sqrt(1 + self.calls / 50), constants.least_step)
        items = np.array(reply)
        weight = np.exp(self.score[items] - self.score[items].max())
        left = np.cumsum(weight[::-1])[::-1]
        share = np.triu(weight / left[:, None])  # (stage, place)
        moved = step * (1 - share.sum(axis=0))
        self.score[items] += np.clip(moved, -constants.clip, constants.clip)
        self.information[items] += (share * (1 - share)).sum(axis=0)
        self.exposures[items] += 1
        if constants.recentre and (self.calls + 1) % constants.recentre == 0:
            self.score -= self.score.mean()
