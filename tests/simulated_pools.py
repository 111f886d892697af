"""Pools whose true order is known, and judges who see it through noise.

They stand in for a judge where one costs money: to measure how well a way of asking finds the
true order, and whether what it says of its own certainty holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rankproof.foundation.arrays import Float, Int
from rankproof.golden.refinement import Batch

_GUMBEL_SD = np.pi / np.sqrt(6)


@dataclass(frozen=True, slots=True)
class SimulatedPool:
    """Passages with their true utilities, and the grade and RRF score that hint at them."""

    utility: Float  # (n,)
    grade: Int  # (n,) 1–5
    rrf: Float  # (n,)

    def gains(self, depth: int = 20) -> Float:
        """(n,) depth for the truly best, one less for each rank, 0 below the depth."""
        rank = np.empty(len(self.utility))
        rank[np.argsort(-self.utility, kind="stable")] = np.arange(len(self.utility))
        return np.maximum(depth - rank, 0.0)

    def ndcg(self, order: Sequence[int] | Int, depth: int = 20) -> float:
        """nDCG@depth of an order, on `gains`."""
        gains = self.gains(depth)
        discount = 1 / np.log2(np.arange(depth) + 2)
        seen, best = gains[np.asarray(order)[:depth]], np.sort(gains)[::-1][:depth]
        return float(seen @ discount[: len(seen)] / (best @ discount[: len(best)]))

    def overlap(self, order: Sequence[int] | Int, depth: int = 20) -> float:
        """The share of the top `depth` of an order that truly belongs there."""
        true = np.argsort(-self.utility, kind="stable")[:depth]
        return len(np.intersect1d(np.asarray(order)[:depth], true)) / len(true)


def simulate_pool(
    generator: np.random.Generator,
    items: tuple[int, int] = (42, 50),
    spread: float = 0.75,
    grade_noise: float = 0.62,
    rrf_noise: float = 1.5,
) -> SimulatedPool:
    """Normal utilities; grades cut them, RRF follows them, each through its own noise."""
    n = int(generator.integers(items[0], items[1] + 1))
    utility = spread * generator.standard_normal(n)
    seen = utility + grade_noise * generator.standard_normal(n)
    cuts = spread * np.array([-1.2, -0.4, 0.4, 1.2])
    rrf = utility + rrf_noise * generator.standard_normal(n)
    return SimulatedPool(utility, np.digitize(seen, cuts).astype(np.int64) + 1, rrf)


@dataclass(frozen=True, slots=True)
class SimulatedJudge:
    """Orders items by β · utility + noise, drawn afresh for each call.

    Gumbel noise makes it Plackett–Luce exactly; normal noise of the same spread, Thurstone.
    `position` logits favour what is shown first over what is shown last; the noise is multiplied
    by (items/5)^growth.
    """

    beta: float = 3.0
    noise: Literal["gumbel", "normal"] = "gumbel"
    position: float = 0.0
    growth: float = 0.0

    def order(self, utility: Float, shown: Sequence[int], generator: np.random.Generator) -> Batch:
        """The items of `shown`, best first."""
        items = np.asarray(shown, np.int64)
        size = len(items)
        if self.noise == "gumbel":
            error = generator.gumbel(size=size)
        else:
            error = generator.normal(scale=_GUMBEL_SD, size=size)
        seen = self.beta * utility[items] + error * (size / 5) ** self.growth
        seen -= self.position * np.arange(size) / max(size - 1, 1)
        return tuple(int(item) for item in items[np.argsort(-seen, kind="stable")])
