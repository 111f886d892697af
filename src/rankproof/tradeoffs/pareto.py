"""Which configurations no other dominates, knowing what noise there is.

a dominates b where it is no dearer, no larger, of no less quality and no slower than b by more than
the jitter, and clearly better in one of these: cheaper, smaller, faster by more than the jitter, or
its quality told apart, the lower end of its interval above b's upper end. The jitter of two is the
larger one, and where both answer over a network that of networks. What differs by noise alone does
not dominate. There are no cycles: along one, cost, memory and quality would have to stay the same,
and latency to fall.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float
from rankproof.foundation.errors import InputError
from rankproof.measures import Measure, parse

_PAIRS = 1 << 18  # compared at a time
_STRONG = 8  # rows that are set against all


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

    Rows that are near each other are gathered in a tree. Whoever is better dominates what a worse
    one dominates: where a row with the best figures of some would not dominate b, none of them
    does, and where one with their worst would, all of them do. Only what lies between is split.
    """
    kept = np.ones(len(latency), np.bool_)
    far = among_network > 0
    for both in (False, True):
        noise = np.maximum(jitter, among_network) if both else jitter
        fixed = [exact, -quality, latency]
        own: Any = np.column_stack([*fixed, latency - noise, -low, latency + noise])
        seen = np.column_stack([*fixed, latency + noise, -high, latency - noise])
        if both:
            _drop_dominated(kept, own[far], seen, far)
        else:
            _drop_dominated(kept, own[~far], seen, np.ones_like(far))
            _drop_dominated(kept, own[far], seen, ~far)
    return kept


def _dominate(rows: Float, others: Float) -> Bool:
    """Which rows dominate the other beside them.

    Columns of both: what is exact, −quality, latency; then of a row what it may be less by, its
    lower end, what it may be more by; of the other the opposite.
    """
    less, most = rows[:, :-4], others[:, :-4]
    latency, its = (x[:, -4] for x in (rows, others))
    no_slower = (latency <= others[:, -3]) | (rows[:, -3] <= its)
    faster = (latency < others[:, -1]) & (rows[:, -1] < its)
    better = (less[:, :-1] < most[:, :-1]).any(axis=1) | (rows[:, -2] < others[:, -2]) | faster
    return np.asarray((less <= most).all(axis=1) & no_slower & better)


def _drop_dominated(kept: Bool, rows: Float, others: Float, among: Bool) -> None:
    """Marks those among the others that one of the rows dominates."""
    if not len(rows):
        return
    # Most of most tables is far from the front: a few rows that are good in all settle it.
    rest = np.ones(len(rows), np.bool_)
    for strong in rows[np.argsort(_places(rows).sum(axis=1), kind="stable")[:_STRONG], None]:
        kept[among & _dominate(strong, others)] = False
        rest &= ~((strong <= rows).all(axis=1) & (strong < rows).any(axis=1))
    levels = _levels(rows[rest])
    b = np.flatnonzero(kept & among)
    waiting = [(0, np.zeros_like(b), b)]
    while waiting:
        level, node, b = waiting.pop()
        best, worst = levels[level]
        kept[b[_dominate(worst[node], others[b])]] = False
        unsure = kept[b] & _dominate(best[node], others[b])  # never where both are a row
        node, b = node[unsure], b[unsure]
        for first in range(0, len(b), _PAIRS):
            part = slice(first, first + _PAIRS)
            halves = np.concatenate([2 * node[part], 2 * node[part] + 1])
            waiting.append((level + 1, halves, np.tile(b[part], 2)))


def _places(rows: Float) -> Array:
    """(N, E) how many rows are below each, in each column."""
    return np.column_stack([np.searchsorted(np.sort(column), column) for column in rows.T])


def _levels(rows: Float) -> list[tuple[Float, Float]]:
    """The best and the worst figures of all rows, of either half, of each quarter, … of each row.

    What is halved is so by the column in which its rows are furthest apart.
    """
    depth = max(0, len(rows) - 1).bit_length()
    rows = rows[np.minimum(np.arange(1 << depth), len(rows) - 1)]  # the last again: nothing new
    place = _places(rows)
    found = []
    for level in range(depth + 1):
        parts = rows.reshape(1 << level, -1, rows.shape[1])
        found.append((parts.min(axis=1), parts.max(axis=1)))
        places = place.reshape(parts.shape)
        widest = np.argmax(places.max(axis=1) - places.min(axis=1), axis=1)
        key = np.take_along_axis(places, widest[:, None, None], axis=2)
        order = np.argsort(key, axis=1, kind="stable")
        rows = np.take_along_axis(parts, order, axis=1).reshape(rows.shape)
        place = np.take_along_axis(places, order, axis=1).reshape(rows.shape)
    return found
