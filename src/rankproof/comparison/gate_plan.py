"""Say, before any candidate exists, what margin a gate can decide with the given queries.

A harmless change moves single queries up and down, by s on average, and the mean by nothing. With n
queries (or groups of them) the gate passes it if the mean difference d̄ ~ N(0, s²/n) lies above
t·s/√n − m, so that it stays undecided with probability

    1 − Φ(m·√n/s − t),      t = t_{n−1} at 97.5%
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rankproof.foundation.phrasing import plural
from rankproof.measures import Measure
from rankproof.presentation.display import Displayed
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Column, Table
from rankproof.statistics.distributions import normal_cdf, normal_quantile, t_quantile
from rankproof.statistics.intervals import CONFIDENCE, MIN_QUERIES, POWER

CHANGES = (0.02, 0.04, 0.1, 0.2)  # per query, of harmless changes
_TYPICAL = 0.04  # that the answer is about
_BLIND = 3.0  # a loss on fewer than 3/n of the queries is missed in more than 5% of samples


@dataclass(frozen=True, slots=True, repr=False)
class GatePlan(Displayed):
    """What a gate can decide on one measure with so many queries."""

    kind: ClassVar[str] = "gate plan"

    measure: Measure
    margin: float
    units: int  # queries, or groups of them
    unit: str  # "query" or "group"

    def undecided_share(self, change: float) -> float:
        """Return how often a harmless change stays undecided, if it moves queries by `change`."""
        if self.units < MIN_QUERIES:
            return 1.0
        t = t_quantile((1.0 + CONFIDENCE) / 2.0, self.units - 1.0)
        z = self.margin * math.sqrt(self.units) / change - t
        return 1.0 - float(normal_cdf(np.array(z)))

    def decidable_margin(self, change: float) -> float:
        """Return the margin with which four of five harmless changes pass."""
        if self.units < MIN_QUERIES:
            return math.inf
        t = t_quantile((1.0 + CONFIDENCE) / 2.0, self.units - 1.0)
        return (t + normal_quantile(POWER)) * change / math.sqrt(self.units)

    def units_for(self, change: float) -> int:
        """Return how many queries let four of five harmless changes pass at this margin."""
        if self.margin == 0.0:
            return 0
        z = normal_quantile((1.0 + CONFIDENCE) / 2.0) + normal_quantile(POWER)
        return max(MIN_QUERIES, math.ceil((z * change / self.margin) ** 2))

    def summary(self) -> Summary:
        """How often a harmless change would stay undecided, and what would help."""
        count = plural(self.units, self.unit)
        share = self.undecided_share(_TYPICAL)
        answer = (
            f"With {count} and margin {self.margin:g} on {self.measure}, {share:.0%} of harmless "
            f"changes that move single queries by ±{_TYPICAL:g} stay undecided."
        )
        blind = min(1.0, _BLIND / max(1, self.units))
        several = "queries" if self.unit == "query" else "groups"
        notes = [f"A loss on fewer than {blind:.0%} of the {several} cannot be seen."]
        needed = self.units_for(_TYPICAL)
        step = f"use {needed:,} {several}" if needed > self.units else ""
        margin = self.decidable_margin(_TYPICAL)
        if step and math.isfinite(margin):
            step += f", or --margin {math.ceil(margin * 1000) / 1000:g}"
        return Summary.of(answer, notes, next_step=step, details=[__doc__ or ""])

    def tables(self) -> list[Table]:
        """A row for each size of a change."""
        columns = [
            Column("change per query", "text"),
            Column("undecided", digits=2),
            Column("margin that passes 80%", digits=3),
            Column("needed at this margin"),
        ]
        rows = [
            [
                f"±{change:g}",
                round(self.undecided_share(change), 2),
                self.decidable_margin(change),
                self.units_for(change) or None,
            ]
            for change in CHANGES
        ]
        return [Table(columns, rows)]

    def figures(self) -> dict[str, float]:
        """The share of undecided harmless changes, by their size."""
        return {f"undecided/{change:g}": self.undecided_share(change) for change in CHANGES}

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof gate --plan --format json` prints."""
        return {
            "measure": str(self.measure),
            "margin": self.margin,
            f"{'queries' if self.unit == 'query' else 'groups'}": self.units,
            "changes": [
                {
                    "change": change,
                    "undecided": self.undecided_share(change),
                    "decidable_margin": None
                    if math.isinf(self.decidable_margin(change))
                    else self.decidable_margin(change),
                    "needed": self.units_for(change) or None,
                }
                for change in CHANGES
            ],
        }
