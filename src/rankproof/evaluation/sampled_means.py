"""Means over queries that need more than each query's own mean: geometric ones, and sampled ones.

A geometric mean over n queries expects E = Π E[M^(1/n)], since the orders of different queries are
independent. A query with too many orders has an expectation from a random sample of them, whose
standard error belongs to the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankproof.foundation.arrays import Float
from rankproof.foundation.phrasing import amount, plural
from rankproof.measures import Outcomes
from rankproof.measures.outcomes import SMALLEST


@dataclass(frozen=True, slots=True)
class SampledMean:
    """How an expectation was estimated that takes too long in closed form."""

    queries: int  # whose ties were ordered at random
    orders: int  # of each of them, at least
    error: float  # standard error of the mean over all queries


def sampled_mean(outcomes: Outcomes, weight: Float | None = None) -> SampledMean | None:
    """Return how the mean of some outcomes was estimated; None if it is exact.

    `weight` (Q,) is what an error of one in the value of a query adds to the sum, if not one.
    """
    defined = ~np.isnan(outcomes.in_mean())
    if outcomes.sampling is None or not outcomes.sampling.orders[defined].any():
        return None
    chosen = np.flatnonzero(defined & (outcomes.sampling.orders > 0))
    sampling = outcomes.sampling[chosen]
    error = sampling.error if weight is None else sampling.error * weight[chosen]
    return SampledMean(
        queries=len(chosen),
        orders=int(sampling.orders.min()),
        error=sampling.total_error(error) / int(defined.sum()),
    )


def geometric_mean(outcomes: Outcomes) -> dict[str, Any]:
    """Return expected, oblivious, min, max, std and sampled of a geometric mean, by name."""
    defined = ~np.isnan(outcomes.in_mean())
    count = int(defined.sum())

    def mean(logs: Float) -> float:
        return math.exp(math.fsum(logs[defined].tolist()) / count)

    low, high, oblivious = (
        np.log(np.maximum(values, SMALLEST))
        for values in (outcomes.min, outcomes.max, outcomes.oblivious)
    )
    root, square = (outcomes.power_mean(exponent / count) for exponent in (1, 2))
    is_tied = outcomes.min < outcomes.max
    expected = mean(np.where(is_tied, count * np.log(root), high))
    expected = min(max(expected, mean(low)), mean(high))
    ratio = np.where(is_tied, square / root**2, 1.0)[defined]  # E[X²]/E[X]² of the roots X
    spread = math.expm1(math.fsum(np.log(ratio).tolist()))
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = expected / outcomes.expected  # by its logarithm, if n is not small
    return {
        "expected": expected,
        "oblivious": mean(oblivious),
        "min": mean(low),
        "max": mean(high),
        "std": expected * math.sqrt(max(spread, 0.0)),
        "sampled": sampled_mean(outcomes, weight),
    }


def sampling_notes(name: str, outcomes: Mapping[Any, Outcomes]) -> list[str]:
    """Return a note for each measure of a run whose mean rests on a sample of orders."""
    notes = []
    for measure, values in outcomes.items():
        if values.sampling is None:
            continue
        is_geometric = values.powers is not None
        sampled = geometric_mean(values)["sampled"] if is_geometric else sampled_mean(values)
        if sampled is not None:
            notes.append(
                f"{measure} of {name}: estimated from {sampled.orders:,} random orders of "
                f"{plural(sampled.queries, 'query')} with too many; the standard error of the mean "
                f"is {amount(sampled.error)}"
            )
    return notes
