"""Which configurations no other dominates, knowing what noise there is.

a dominates b where it is no dearer, no larger, of no less quality and no slower than b by more than
the jitter, and clearly better in one of these: cheaper, smaller, faster by more than the jitter, or
its quality told apart, the lower end of its interval above b's upper end. What differs by noise
alone does not dominate. There are no cycles: along one, cost, memory and quality would have to stay
the same, and latency to fall.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankproof.arrays import Array, Bool, Float
from rankproof.errors import InputError
from rankproof.measures.registry import Measure, parse

_CELLS = 1 << 22  # of the comparisons held at a time


def quality_measure(name: str) -> Measure:
    """A measure of which more is better, so that it can be a quality."""
    measure = parse(name)
    if measure.definition.less_is_better:
        raise InputError(
            f"{measure} does not measure quality: less is better", remedy="use P4@10, say"
        )
    return measure


def pareto_front(
    cost: Sequence[float] | Array,
    latency: Sequence[float] | Array,
    quality: Sequence[float] | Array,
    *,
    memory: Sequence[float] | Array | None = None,
    low: Sequence[float] | Array | None = None,
    high: Sequence[float] | Array | None = None,
    jitter: Sequence[float] | Array | None = None,
    among_network: Sequence[float] | Array | None = None,
) -> Bool:
    """(N,) whether no other dominates it.

    `low` and `high` are the ends of the quality's interval, `jitter` is what the latency of each
    may differ by and mean nothing; without them figures count as they are. `among_network` is the
    jitter where both answer over a network (0 for one that does not). Configurations that are
    equal in all do not dominate each other: all are kept.

    >>> from rankproof.tradeoffs import pareto_front
    >>> pareto_front(cost=[1, 2, 2], latency=[5, 5, 9], quality=[0.5, 0.7, 0.6]).tolist()
    [True, True, False]
    """
    columns = {
        "cost": cost,
        "latency": latency,
        "quality": quality,
        "memory": np.zeros(len(cost)) if memory is None else memory,
        "low": quality if low is None else low,
        "high": quality if high is None else high,
        "jitter": np.zeros(len(cost)) if jitter is None else jitter,
        "among_network": np.zeros(len(cost)) if among_network is None else among_network,
    }
    found: dict[str, Float] = {name: np.asarray(x, np.float64) for name, x in columns.items()}
    if any(x.ndim != 1 for x in found.values()) or len({len(x) for x in found.values()}) != 1:
        shapes = ", ".join(str(x.shape) for x in list(found.values())[:3])
        raise InputError(
            f"cost, latency and quality of shapes {shapes}",
            remedy="give three columns of the same length",
        )
    for name, column in found.items():
        if np.isnan(column).any():
            raise InputError(
                f"{name} is not a number",
                place=f"row {int(np.isnan(column).argmax()) + 1}",
                remedy="measure it, or leave the configuration out",
            )
    exact = np.stack([found.pop("cost"), found.pop("memory")], axis=1)
    return undominated(exact, **found)


def undominated(
    exact: Float,
    *,
    latency: Float,
    quality: Float,
    low: Float,
    high: Float,
    jitter: Float,
    among_network: Float,
) -> Bool:
    """`pareto_front` with any number of exact columns (N, E), of which less is better.

    Whoever is no worse than a in every figure that a dominates by, and answers over a network as a
    does, dominates what a dominates: only those that nobody so beats are set against all.
    """
    kept = np.ones(len(latency), np.bool_)
    own: Any = np.column_stack([exact, latency, -quality, -low])  # by which one dominates
    far = among_network > 0
    for network in (False, True):
        some = np.flatnonzero(far == network)
        best = some[_minimal(own[some])]
        slack = np.maximum(jitter, among_network) if network else jitter
        step = max(1, _CELLS // max(1, len(best)))
        for first in range(0, len(kept), step):
            b = slice(first, first + step)
            no_worse = quality[best, None] >= quality[None, b]
            no_worse &= latency[best, None] <= latency[None, b] + slack[None, b]
            better = latency[best, None] < latency[None, b] - jitter[None, b]
            better |= low[best, None] > high[None, b]
            for column in exact.T:
                no_worse &= column[best, None] <= column[None, b]
                better |= column[best, None] < column[None, b]
            kept[b] &= ~(no_worse & better).any(axis=0)
    return kept


def _minimal(rows: Float) -> Array:
    """Which rows (N, E) no other is below or equal to in every column; of equals the first."""
    order = np.lexsort(rows.T[::-1])  # whoever is below another comes before it
    kept = np.empty(0, np.int64)
    for first in range(0, len(order), 256):
        block = order[first : first + 256]
        block = block[~_beaten(rows[block], rows[kept])]
        among = np.all(rows[block][None, :, :] <= rows[block][:, None, :], axis=2)
        kept = np.concatenate([kept, block[~np.any(np.tril(among, -1), axis=1)]])
    return kept


def _beaten(rows: Float, by: Float) -> Bool:
    """(N,) whether one of the others is below or equal in every column."""
    found = np.zeros(len(rows), np.bool_)
    step = max(1, _CELLS // max(1, len(rows) * rows.shape[1]))
    for first in range(0, len(by), step):
        some = by[first : first + step]
        found |= np.all(some[None, :, :] <= rows[:, None, :], axis=2).any(axis=1)
    return found
