"""Which configurations no other dominates, given the noise of their measurements.

Configuration a dominates b if it costs no more, is no larger, has no lower quality, is not slower
by more than the jitter, and is clearly better in at least one of these: cheaper, smaller, faster by
more than the jitter, or of higher quality beyond chance (the lower end of its interval lies above
b's upper end). The jitter of a pair is the larger of the two; where both answer over a network, it
is that of networks. So a difference that may be noise never dominates. Dominance has no cycles:
along one, cost, memory and quality would have to stay the same while latency falls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float
from rankproof.foundation.errors import InputError
from rankproof.measures import Measure, parse

_PAIRS = 1 << 18  # pairs of a tree node and a row that are compared at a time
_STRONG_ROWS = 8  # rows that are compared with all others before the tree is built


def quality_measure(name: str) -> Measure:
    """Return the measure of this name; raise InputError if lower values of it are better."""
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
    """Return (N,) which configurations no other dominates.

    `low` and `high` are the ends of the interval of each quality; `jitter` is the difference in
    latency that means nothing; `among_network` is the jitter between two configurations that both
    answer over a network, and 0 for one that does not. Without these, all values are exact.
    Configurations that are equal in everything do not dominate each other.

    >>> from rankproof.tradeoffs import pareto_front
    >>> pareto_front(cost=[1, 2, 2], latency=[5, 5, 9], quality=[0.5, 0.7, 0.6]).tolist()
    [True, True, False]
    """
    zeros = np.zeros(len(cost))
    by_name = {
        "cost": cost,
        "latency": latency,
        "quality": quality,
        "memory": zeros if memory is None else memory,
        "low": quality if low is None else low,
        "high": quality if high is None else high,
        "jitter": zeros if jitter is None else jitter,
        "among_network": zeros if among_network is None else among_network,
    }
    columns: dict[str, Float] = {name: np.asarray(x, np.float64) for name, x in by_name.items()}
    _check_columns(columns)
    exact = np.stack([columns.pop("cost"), columns.pop("memory")], axis=1)
    return undominated(exact, **columns)


def _check_columns(columns: dict[str, Float]) -> None:
    """Raise InputError unless all columns have one length and hold numbers."""
    arrays = list(columns.values())
    if any(x.ndim != 1 for x in arrays) or len({len(x) for x in arrays}) != 1:
        shapes = ", ".join(str(x.shape) for x in arrays[:3])
        raise InputError(
            f"cost, latency and quality of shapes {shapes}",
            remedy="give three columns of the same length",
        )
    for name, column in columns.items():
        if np.isnan(column).any():
            raise InputError(
                f"{name} is not a number",
                place=f"row {int(np.isnan(column).argmax()) + 1}",
                remedy="measure it, or leave the configuration out",
            )


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
    """Return (N,) which rows no other dominates; the columns of `exact` (N, E) are costs.

    The arguments after it are those of `pareto_front`, which checks them.
    """
    is_undominated = np.ones(len(latency), np.bool_)
    is_remote = among_network > 0
    network_jitter = np.maximum(jitter, among_network)
    for noise, dominating, dominated in (
        (jitter, ~is_remote, np.ones_like(is_remote)),
        (jitter, is_remote, ~is_remote),
        (network_jitter, is_remote, is_remote),
    ):
        shared = [exact, -quality, latency]
        rows = np.column_stack([*shared, latency - noise, -low, latency + noise])
        others = np.column_stack([*shared, latency + noise, -high, latency - noise])
        _drop_dominated(is_undominated, rows[dominating], others, dominated)
    return is_undominated


def _dominates(rows: Float, others: Float) -> Bool:
    """Return (M,) which rows dominate the other row at the same position.

    The first columns of both are costs, −quality and latency. The last three of `rows` are latency
    − jitter, −low and latency + jitter; of `others` latency + jitter, −high and latency − jitter.
    """
    costs, other_costs = rows[:, :-5], others[:, :-5]
    latency, other_latency = rows[:, -4], others[:, -4]
    no_worse = (rows[:, :-4] <= others[:, :-4]).all(axis=1)
    no_slower = (latency <= others[:, -3]) | (rows[:, -3] <= other_latency)
    cheaper = (costs < other_costs).any(axis=1)
    of_higher_quality = rows[:, -2] < others[:, -2]
    faster = (latency < others[:, -1]) & (rows[:, -1] < other_latency)
    return np.asarray(no_worse & no_slower & (cheaper | of_higher_quality | faster))


def _drop_dominated(is_undominated: Bool, rows: Float, others: Float, candidates: Bool) -> None:
    """Set `is_undominated` to False for the candidates that one of the rows dominates.

    The rows form a tree in which similar ones are close. Whatever a row dominates, a row that is
    better in every column dominates too. So if the best values within a node do not dominate a
    candidate, no row of the node does; if the worst values do, every row does. Only the nodes in
    between are split.
    """
    if not len(rows):
        return
    # Most candidates are far from the front: a few rows that are good in all columns exclude them.
    in_tree = np.ones(len(rows), np.bool_)
    by_strength = np.argsort(_column_ranks(rows).sum(axis=1), kind="stable")
    for strong in rows[by_strength[:_STRONG_ROWS], None]:
        is_undominated[candidates & _dominates(strong, others)] = False
        in_tree &= ~((strong <= rows).all(axis=1) & (strong < rows).any(axis=1))
    levels = _build_tree(rows[in_tree])
    remaining = np.flatnonzero(is_undominated & candidates)
    pending = [(0, np.zeros_like(remaining), remaining)]  # level, and pairs of a node and a row
    while pending:
        level, node, other = pending.pop()
        best, worst = levels[level]
        is_undominated[other[_dominates(worst[node], others[other])]] = False
        # At a leaf best and worst are the same row, so that nothing is open.
        is_open = is_undominated[other] & _dominates(best[node], others[other])
        node, other = node[is_open], other[is_open]
        for first in range(0, len(other), _PAIRS):
            part = slice(first, first + _PAIRS)
            children = np.concatenate([2 * node[part], 2 * node[part] + 1])
            pending.append((level + 1, children, np.tile(other[part], 2)))


def _column_ranks(rows: Float) -> Array:
    """Return (N, C) the number of rows with a lower value in each column."""
    return np.column_stack([np.searchsorted(np.sort(column), column) for column in rows.T])


def _build_tree(rows: Float) -> list[tuple[Float, Float]]:
    """Return the best and the worst value of each column in every node, level by level.

    Level l has 2^l nodes: all rows, their halves, … single rows. A node is halved along the column
    in which the ranks of its rows are furthest apart.
    """
    depth = max(0, len(rows) - 1).bit_length()
    rows = rows[np.minimum(np.arange(1 << depth), len(rows) - 1)]  # padded with the last row
    ranks = _column_ranks(rows)
    levels = []
    for level in range(depth + 1):
        nodes = rows.reshape(1 << level, -1, rows.shape[1])
        levels.append((nodes.min(axis=1), nodes.max(axis=1)))
        node_ranks = ranks.reshape(nodes.shape)
        widest = np.argmax(node_ranks.max(axis=1) - node_ranks.min(axis=1), axis=1)
        key = np.take_along_axis(node_ranks, widest[:, None, None], axis=2)
        order = np.argsort(key, axis=1, kind="stable")
        rows = np.take_along_axis(nodes, order, axis=1).reshape(rows.shape)
        ranks = np.take_along_axis(node_ranks, order, axis=1).reshape(rows.shape)
    return levels
