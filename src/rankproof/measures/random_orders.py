"""Random orders of ties, and expectations estimated from a sample of them.

Where the closed form of an expectation would take too long for a query, it is the mean over a
sample of orders, with its standard error. A query's orders depend only on its own tie groups: they
are the same with other queries, other measures, and when a run is evaluated in parts.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rankproof.data.ties import TieGroups, pool_of, subset_of
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.measures.outcomes import Outcomes, Sampling, root_powers

if TYPE_CHECKING:
    from rankproof.measures.registry import Measure

_SEED = 47
_ORDERS = 1_000  # drawn for a query, unless these have too many documents
_FEWEST_ORDERS = 8
_QUERY_CELLS = 1 << 20  # documents in all orders of a query: half a second
_CALL_CELLS = 1 << 23  # documents in all orders of all queries
_BLOCK_CELLS = 1 << 18  # documents in memory at a time


def too_expensive(cost: Float, per_query: float, per_call: float) -> Bool:
    """(Q,) True for queries whose closed form costs too much: the most expensive ones.

    These are all above `per_query`, and as many more as it takes until the others cost less than
    `per_call` together.

    >>> too_expensive(np.array([5.0, 90.0, 30.0, 20.0]), 80.0, 50.0).tolist()
    [False, True, True, False]
    """
    ascending = np.argsort(cost, kind="stable")
    is_expensive = cost > per_query
    is_expensive[ascending[np.cumsum(cost[ascending]) > per_call]] = True
    return is_expensive


def sample_powers(outcomes: Outcomes) -> Outcomes:
    """Mark all tied queries as expensive, so that the powers for a geometric mean are sampled."""
    powers = root_powers(outcomes.max[:, None])
    return replace(outcomes, powers=powers, expensive=outcomes.min < outcomes.max)


def estimate_expensive(measure: Measure, groups: TieGroups, outcomes: Outcomes) -> Outcomes:
    """Estimate mean, variance and powers of the expensive queries from a sample of orders.

    Their lowest and highest value, and that under the stated tie-break, stay.
    """
    assert outcomes.expensive is not None
    queries = np.flatnonzero(outcomes.expensive)
    deciding = select_queries(deciding_groups(groups, measure), queries)
    size = np.bincount(deciding.query, deciding.judged, len(queries)) + 1
    limit = _QUERY_CELLS if not len(queries) else min(_QUERY_CELLS, _CALL_CELLS // len(queries))
    orders = np.clip(limit // size, _FEWEST_ORDERS, _ORDERS).astype(np.int64)
    sampling = Sampling.none(groups.queries)
    expected = outcomes.expected.copy()
    variance, powers = (
        None if column is None else column.copy() for column in (outcomes.variance, outcomes.powers)
    )
    for number, (query, count) in enumerate(zip(queries, orders, strict=True)):
        single = _in_order_of_grade(select_queries(deciding, np.array([number])))
        key = content_key(single)
        values = _sampled_values(measure, single, int(count), np.random.default_rng([_SEED, key]))
        expected[query] = values.mean()
        deviation = values.std(ddof=1)
        sampling.error[query] = deviation / np.sqrt(count)
        sampling.orders[query], sampling.key[query] = count, key
        if variance is not None:
            variance[query] = deviation**2
        if powers is not None:
            powers[query] = root_powers(values[None])
    return replace(outcomes, expected=expected, variance=variance, powers=powers, sampling=sampling)


def _sampled_values(
    measure: Measure, query: TieGroups, orders: int, generator: np.random.Generator
) -> Float:
    """(orders,) the measure of one query in random orders of its ties."""
    block = max(1, _BLOCK_CELLS // max(1, len(query.grade), query.pool.unsorted.size))
    values = [
        measure.outcomes(break_ties(query, min(block, orders - low), generator)).oblivious
        for low in range(0, orders, block)
    ]
    return np.concatenate(values)


def _in_order_of_grade(groups: TieGroups) -> TieGroups:
    """The groups with the documents of each tie sorted by grade, however the run lists them."""
    return replace(groups, grade=groups.grade[groups.by_place(groups.place_by_grade)])


def content_key(groups: TieGroups) -> int:
    """Return the seed of a query's random orders: a checksum of its groups, on any machine."""
    columns = groups.listed, groups.size, groups.first, groups.start, groups.grade
    return zlib.crc32(b"".join(column.astype("<i8").tobytes() for column in columns))


def deciding_groups(groups: TieGroups, measure: Measure) -> TieGroups:
    """Return the groups and documents whose order can change a measure, by its `reads`."""
    reads = measure.definition.reads
    if reads in ("listed", "first"):
        groups = _without_grade_0(groups, 1)
    elif reads == "best":
        groups = _without_grade_0(groups, measure.cutoff)
    elif reads == "relevant":
        groups = _without_grade_0(groups, None)
    elif measure.definition.unjudged == "inferred precision":
        groups = groups.sampled or groups
    if measure.cutoff is not None:
        return groups.within(measure.cutoff)
    if reads != "first":
        return groups
    # Groups after the first that has a relevant document do not matter.
    last = np.full(groups.queries, np.iinfo(np.int64).max)  # first rank of that group
    with_relevant = groups.doc_group[groups.grade >= measure.threshold]
    np.minimum.at(last, groups.query[with_relevant], groups.first[with_relevant])
    return groups.chosen(groups.first <= last[groups.query])


def _without_grade_0(groups: TieGroups, pool_depth: int | None) -> TieGroups:
    """Drop listed documents of grade 0, which only take up ranks, and groups without others.

    Of the pool, only the best `pool_depth` documents of a positive grade stay.
    """
    is_positive = groups.grade > 0
    judged = np.bincount(groups.doc_group[is_positive], minlength=len(groups.size))
    nonempty = judged > 0
    pool = groups.pool
    pooled = pool.grade > 0
    if pool_depth is not None:
        pooled &= pool.place <= pool_depth
    return TieGroups(
        listed=groups.listed,
        size=groups.size[nonempty],
        first=groups.first[nonempty],
        query=groups.query[nonempty],
        start=np.append(0, np.cumsum(judged[nonempty])),
        grade=groups.grade[is_positive],
        rank=groups.rank[is_positive],
        pool=pool_of(pool.query[pooled], pool.grade[pooled], groups.queries, pool.max_grade),
    )


def select_queries(groups: TieGroups, queries: Int) -> TieGroups:
    """Return the groups of some queries (ascending), which are numbered from 0 in the result."""
    new_number = np.full(groups.queries, -1)
    new_number[queries] = np.arange(len(queries))
    is_chosen = new_number[groups.query] >= 0
    documents = np.repeat(is_chosen, groups.judged)
    pool = groups.pool
    pooled = new_number[pool.query] >= 0
    start = np.zeros(int(is_chosen.sum()) + 1, np.int64)
    np.cumsum(groups.judged[is_chosen], out=start[1:])
    return TieGroups(
        listed=groups.listed[queries],
        size=groups.size[is_chosen],
        first=groups.first[is_chosen],
        query=new_number[groups.query[is_chosen]],
        start=start,
        grade=groups.grade[documents],
        rank=groups.rank[documents],
        pool=subset_of(pool, pooled, new_number[pool.query[pooled]], len(queries)),
        judgment=None if groups.judgment is None else groups.judgment[documents],
    )


def break_ties(groups: TieGroups, copies: int, generator: np.random.Generator) -> TieGroups:
    """Repeat the queries `copies` times, each time with all ties broken at random."""
    group = groups.doc_group
    position = np.tile(groups.rank - groups.first[group], (copies, 1))
    document = np.tile(np.arange(len(groups.grade)), (copies, 1))
    tied = np.flatnonzero(groups.size > 1)
    for judged in np.unique(groups.judged[tied]).tolist():
        alike = tied[groups.judged[tied] == judged]
        at = groups.start[alike][:, None] + np.arange(judged)  # (g, judged) documents
        places = _distinct_places(groups.size[alike], judged, copies, generator)
        by_place = np.argsort(places, axis=2)
        position[:, at] = np.take_along_axis(places, by_place, axis=2)
        document[:, at] = at[np.arange(len(alike))[None, :, None], by_place]
    block = np.arange(copies)[:, None]
    rank = (position + groups.first[group]).ravel()
    return TieGroups(
        listed=np.tile(groups.listed, copies),
        size=np.ones(len(rank), np.int64),
        first=rank,
        query=(groups.doc_query + block * groups.queries).ravel(),
        start=np.arange(len(rank) + 1),
        grade=groups.grade[document].ravel(),
        rank=rank,
        pool=groups.pool.repeated(copies),
        judgment=None if groups.judgment is None else groups.judgment[document].ravel(),
    )


def _distinct_places(size: Int, count: int, copies: int, generator: np.random.Generator) -> Int:
    """(copies, g, count) distinct places below each group's size, every choice equally likely.

    The i-th document takes one of the places still free; its number among these is drawn.
    """
    shape = (copies, len(size))
    number = np.empty((*shape, count), np.int64)
    for i in range(count):
        number[..., i] = generator.integers(0, size - i, shape)
    return _places_of(number.reshape(-1, count), int(size.max())).reshape(number.shape)


def _places_of(number: Int, limit: int) -> Int:
    """Return the places (below `limit`) of numbers (N, count) among those still free.

    A number counts the places that earlier columns of its row did not take. The columns are halved
    recursively: the places of the first half, in ascending order, each move a number of the second
    half on by one if they are not above it. A long tie takes n log n steps instead of n².
    """
    half = number.shape[1] // 2
    if not half:
        return number
    before, after = _places_of(number[:, :half], limit), _places_of(number[:, half:], limit)
    row = np.arange(len(number))[:, None]
    moves_from = np.sort(before, axis=1) - np.arange(half)  # the number from which each moves
    passed = np.searchsorted((moves_from + row * limit).ravel(), after + row * limit, side="right")
    return np.concatenate([before, after + passed - row * half], axis=1)
