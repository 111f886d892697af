"""The values of one measure for every query, over all orders of its tied documents."""

from __future__ import annotations

import math
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
    expensive: Bool | None = None  # (Q,) whose mean and variance are missing: closed form too slow
    sampling: Sampling | None = None  # of the expensive queries
    powers: Float | None = None  # (Q, POWERS) E[M^s], for a geometric mean over queries
    # (Q,) queries whose min and max are bounds that no order need reach; None: none
    is_bound: Bool | None = None

    def power_mean(self, exponent: float) -> Float:
        """(Q,) E[M^s] for an exponent s in (0, 2]; of stored values without `powers`, E[M]^s."""
        if self.powers is None:
            return np.asarray(np.maximum(self.expected, SMALLEST) ** exponent, np.float64)
        return _power_mean(self.powers, exponent)

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

        def flags(name: str, default: bool) -> Bool | None:
            columns = [getattr(part, name) for part in parts]
            if all(flag is None for flag in columns):
                return None
            lengths = [len(part.expected) for part in parts]
            filled = zip(columns, lengths, strict=True)
            return np.concatenate([np.full(n, default) if c is None else c for c, n in filled])

        has_variance = all(part.variance is not None for part in parts)
        has_powers = all(part.powers is not None for part in parts)
        return Outcomes(
            column("expected"),
            column("min"),
            column("max"),
            column("oblivious"),
            variance=column("variance") if has_variance else None,
            counted=flags("counted", default=True),
            is_bound=flags("is_bound", default=False),
            sampling=Sampling.concatenate(parts),
            powers=column("powers") if has_powers else None,
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
        expected = np.clip(self.expected, low, high)
        return Outcomes(
            expected,
            low,
            high,
            oblivious,
            variance,
            sampling=self.sampling,
            powers=self.powers,
            is_bound=self.is_bound,
        )


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the expectations of queries that are too expensive in closed form were estimated.

    >>> from rankproof.measures import Sampling
    >>> Sampling.none(2).orders.tolist()
    [0, 0]
    """

    error: Float  # (Q,) standard error of the expectation; 0 where it is exact
    orders: Int  # (Q,) orders drawn; 0 where none were
    key: Int  # (Q,) queries of one key have the same orders, and so the same error

    @staticmethod
    def none(queries: int) -> Sampling:
        """No query is sampled."""
        return Sampling(np.zeros(queries), np.zeros(queries, np.int64), np.zeros(queries, np.int64))

    @staticmethod
    def concatenate(parts: Sequence[Outcomes]) -> Sampling | None:
        """That of all queries, from consecutive parts of them."""
        if all(part.sampling is None for part in parts):
            return None
        filled = [part.sampling or Sampling.none(len(part.expected)) for part in parts]
        return Sampling(
            np.concatenate([part.error for part in filled]),
            np.concatenate([part.orders for part in filled]),
            np.concatenate([part.key for part in filled]),
        )

    def __getitem__(self, queries: Int) -> Sampling:
        return Sampling(self.error[queries], self.orders[queries], self.key[queries])

    def total_error(self, error: Float) -> float:
        """The standard error of a sum over queries, from those (Q,) of its terms."""
        _, number = np.unique(self.key, return_inverse=True)
        by_key = np.bincount(number, error)  # equal queries err alike
        return math.sqrt(math.fsum((by_key * by_key).tolist()))


# A geometric mean over n queries is Π E[M^(1/n)], and n is not known before all were read. E[M^s]
# is an entire function of s, so that its values at Chebyshev's points of [0, 2] give it for every s
# to the last bits (values are no less than 10^-5, so that ln M has a range of 12).
SMALLEST = 1e-5  # of a value in a geometric mean
POWERS = 40
_ANGLES = (np.arange(POWERS) + 0.5) * np.pi / POWERS
_POINTS = 1.0 + np.cos(_ANGLES)
_BARYCENTRIC = np.sin(_ANGLES) * (-1.0) ** np.arange(POWERS)


def root_powers(values: Float) -> Float:
    """(Q, POWERS) mean of M^s over equally likely values (Q, O), at the points of `power_mean`."""
    logs = np.log(np.maximum(values, SMALLEST))
    return np.asarray(np.exp(logs[..., None] * _POINTS).mean(axis=1), np.float64)


def _power_mean(powers: Float, exponent: float) -> Float:
    """(Q,) E[M^s] for an exponent in (0, 2], from values at Chebyshev's points."""
    difference = exponent - _POINTS
    if (difference == 0).any():
        return np.asarray(powers[:, int(np.argmin(np.abs(difference)))], np.float64)
    weight = _BARYCENTRIC / difference
    return np.asarray(powers @ (weight / weight.sum()), np.float64)
