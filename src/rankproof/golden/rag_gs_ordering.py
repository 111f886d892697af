"""The ranking rule of the rag-gs pipeline (arXiv 2511.09545, stage 6), for comparison.

Scores start at the grades. Each call orders the batch that was shown least so far. The scores then
move by one stochastic gradient step of Plackett–Luce (step η, clipped, recentered now and then),
and Fisher information accumulates on the diagonal. A pair is locked for ever once it was won twice
or its confidence bounds do not overlap. The order is a topological sort by score that obeys the
locks; a pool is done when its top `depth` stays the same for a number of turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.golden.constrained import add_to_closure, sort_topologically
from rankproof.golden.plackett_luce import Posterior
from rankproof.golden.refinement import (
    Batch,
    Known,
    Part,
    Ranking,
    Reason,
    RefineSettings,
    make_ranking,
    single_item,
    usable_orders,
)

_NO_INFORMATION = 1e-6


@dataclass(frozen=True, slots=True)
class RagGsConstants:
    """The rule's constants; where paper and code differ, those of the paper's pseudocode."""

    step: float = 0.05  # η at turn t is step/√(1 + t/50), at least min_step
    min_step: float = 0.01
    clip: float = 0.2
    recenter: int = 50  # turns
    margin: float = 1.0  # standard deviations on each side
    confirmations: int = 2
    stable: int = 3  # turns
    lock_after: bool = True  # pairs are locked by the scores after a turn's step, not before it


AS_PUBLISHED = RagGsConstants(stable=15, lock_after=False)
"""The constants of the pipeline's code."""


@dataclass(slots=True)
class RagGsRefiner:
    """One pool, put in order by rag-gs's rule, with one call a round; methods are as in `Refiner`.

    A failed reply counts as a call and changes only which batch is drawn next.
    """

    grade: Sequence[float] | Array
    settings: RefineSettings = field(default_factory=RefineSettings)
    seed: int = 0
    constants: RagGsConstants = field(default_factory=RagGsConstants)
    calls: int = field(default=0, init=False)
    failed: int = field(default=0, init=False)
    score: Float = field(init=False)
    information: Float = field(init=False)
    exposures: Int = field(init=False)  # (n,) how often each item was shown
    above: Bool = field(init=False)  # (n, n) locked pairs, and all that follow from them
    locked: Bool = field(init=False)  # (n, n) locked pairs alone
    orders: list[Batch] = field(default_factory=list, init=False)
    unjudgeable: set[int] = field(default_factory=set, init=False)  # items that failed even alone
    _wins: Int = field(init=False)  # (n, n) of pairs that are not locked yet
    _stable_turns: int = field(default=0, init=False)
    _free_calls: int = field(default=0, init=False)  # that do not count against the budget
    _closed: Reason | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Start with the grades as scores; an unknown grade becomes the mean of the others."""
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
        """One batch, of the items that were shown least; [] if the pool is done."""
        if self.done:
            return []
        generator = np.random.default_rng([self.seed, self.calls])
        noise = generator.random(len(self.score))
        exposure = self.exposures + 0.3 * np.log1p(self.information) + noise
        exposure[list(self.unjudgeable)] = np.inf
        size = min(self.settings.batch, len(exposure) - len(self.unjudgeable))
        batch = np.argsort(exposure, kind="stable")[:size]
        return [tuple(int(item) for item in generator.permutation(batch))]

    def resume(self, known: Known) -> None:
        """Continue from the orders of earlier builds."""
        self.add_orders([tuple(order) for order in known.orders])
        self.calls += known.failed
        self.failed += known.failed
        self._free_calls = 0 if known.spent is None else self.calls - known.spent
        self._closed = known.closed
        self.unjudgeable = set(known.unjudgeable)

    def add(
        self, orders: Sequence[Sequence[int] | None], parts: Sequence[Sequence[Part]] = ()
    ) -> None:
        """Add the reply to the batch; None, and each failed part, counts as a failed call."""
        usable = usable_orders(self.next_round(), orders)
        self.add_orders(usable)
        self.calls += len(orders) - len(usable)
        self.failed += len(orders) - len(usable)
        for items, order in (part for batch_parts in parts for part in batch_parts):
            if order is not None:
                self.add_orders([order])
                continue
            self.calls += 1
            self.failed += 1
            self.unjudgeable |= single_item(items)

    def add_orders(self, orders: Sequence[Batch]) -> None:
        """Add orders of any items; each counts as a call."""
        depth = self.settings.depth
        for order in orders:
            before = self.order()[:depth]
            if not self.constants.lock_after:
                self._lock_pairs(order)
            self._move_scores(order)
            if self.constants.lock_after:
                self._lock_pairs(order)
            self.orders.append(order)
            is_same = np.array_equal(before, self.order()[:depth])
            if len(order) > 1:  # a single item has no order
                self._stable_turns = self._stable_turns + 1 if is_same else 0
            self.calls += 1

    @property
    def done(self) -> Reason | None:
        """Why the pool needs no more calls; None if it does."""
        if len(self.score) - len(self.unjudgeable) <= 1:
            return "order"
        if self._stable_turns >= self.constants.stable:
            return "stable"
        is_spent = self.calls >= self.settings.budget + self._free_calls
        return self._closed or ("budget" if is_spent else None)

    def order(self) -> Int:
        """(n,) items by score, as far as the locks allow."""
        return sort_topologically(self.above, self.score)

    def ranking(self) -> Ranking:
        """The order; its uncertainty comes from diagonal information, and is too small."""
        posterior = Posterior(self.score.copy(), np.diag(1 / self.information))
        return make_ranking(
            posterior,
            self.settings,
            np.random.default_rng([self.seed, self.calls, 1]),
            calls=self.calls,
            failed=self.failed,
            order=self.order(),
        )

    def _lock_pairs(self, order: Batch) -> None:
        """Lock pairs that were won often enough, or whose confidence bounds do not overlap."""
        half_width = self.constants.margin / np.sqrt(self.information)
        lower, upper = self.score - half_width, self.score + half_width
        for place, winner in enumerate(order):
            for loser in order[place + 1 :]:
                if self.above[winner, loser] or self.above[loser, winner]:
                    continue
                self._wins[winner, loser] += 1
                is_confirmed = self._wins[winner, loser] >= self.constants.confirmations
                if lower[winner] > upper[loser] or is_confirmed:
                    self.locked[winner, loser] = True
                    add_to_closure(self.above, winner, loser)

    def _move_scores(self, order: Batch) -> None:
        """One clipped gradient step of the order's log likelihood."""
        constants = self.constants
        step = max(constants.step / np.sqrt(1 + self.calls / 50), constants.min_step)
        items = np.array(order)
        weight = np.exp(self.score[items] - self.score[items].max())
        remaining = np.cumsum(weight[::-1])[::-1]
        softmax = np.triu(weight / remaining[:, None])  # (stage, place)
        gradient = 1 - softmax.sum(axis=0)
        self.score[items] += np.clip(step * gradient, -constants.clip, constants.clip)
        self.information[items] += (softmax * (1 - softmax)).sum(axis=0)
        self.exposures[items] += 1
        if constants.recenter and (self.calls + 1) % constants.recenter == 0:
            self.score -= self.score.mean()
