"""The values of one measure for every query, over all orders of its tied documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float, Int


@dataclass(frozen=True, slots=True)
class Outcomes:
    """A measure of every query over all orders of its ties; NaN where it is undefined.

    >>> found = rp.evaluate("try/qrels.txt", "try/saturated.trec", "nDCG@5")
    >>> found.outcomes[rp.nDCG @ 5].expected.shape
    (30,)
    """

    expected: Float  # (Q,) mean over orders
    min: Float  # (Q,)
    max: Float  # (Q,)
    oblivious: Float  # (Q,) under the stated tie-break
    variance: Float | None  # (Q,) over orders; None where there is no closed form
    counted: Bool | None = None  # (Q,) queries that a mean is over; None: all that are defined

    def in_mean(self, statistic: str = "expected") -> Float:
        """(Q,) values of one statistic, NaN for queries that a mean leaves out."""
        values: Float = getattr(self, statistic)
        return values if self.counted is None else np.where(self.counted, values, np.nan)

    @staticmethod
    def certain(values: Float) -> Outcomes:
        """Outcomes that are the same in every order of the ties."""
        return Outcomes(values, values, values, values, np.where(np.isnan(values), np.nan, 0.0))

    @staticmethod
    def from_sums(sums: tuple[Float, Float, Float, Float, Float], norm: Float) -> Outcomes:
        """Divide sums over tie groups, in the order of the fields, by a norm (Q,)."""
        expected, low, high, oblivious, variance = sums
        return Outcomes(
            expected / norm, low / norm, high / norm, oblivious / norm, variance / norm**2
        )

    @staticmethod
    def concatenate(parts: Sequence[Outcomes]) -> Outcomes:
        """Outcomes of all queries, from those of consecutive parts of them."""
        if len(parts) == 1:
            return parts[0]

        def column(statistic: str) -> Array:
            return np.concatenate([getattr(part, statistic) for part in parts])

        counted = None
        if any(part.counted is not None for part in parts):
            columns = [
                np.ones(len(part.expected), np.bool_) if part.counted is None else part.counted
                for part in parts
            ]
            counted = np.concatenate(columns)
        has_variance = all(part.variance is not None for part in parts)
        return Outcomes(
            column("expected"),
            column("min"),
            column("max"),
            column("oblivious"),
            variance=column("variance") if has_variance else None,
            counted=counted,
        )

    def select(self, queries: Int) -> Outcomes:
        """Outcomes of these queries, in this order."""
        columns = {column.name: getattr(self, column.name) for column in fields(self)}
        return replace(self, **{n: c[queries] for n, c in columns.items() if c is not None})

    def consistent(self) -> Outcomes:
        """The same with min ≤ oblivious, expected ≤ max, which rounding may have violated."""
        low = np.fmin(self.min, self.oblivious)
        high = np.fmax(self.max, self.oblivious)
        low, high = (np.where(np.isnan(self.expected), np.nan, x) for x in (low, high))
        variance = None
        if self.variance is not None:
            variance = np.where(low == high, 0.0 * low, np.maximum(self.variance, 0.0))
        oblivious = np.where(np.isnan(self.expected), np.nan, self.oblivious)
        return Outcomes(np.clip(self.expected, low, high), low, high, oblivious, variance)
