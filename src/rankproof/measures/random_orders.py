"""Random orders of ties, and expectations estimated from a sample of them.

An expectation whose closed form would take too long is the mean over a sample of orders, with its
standard error, for those queries alone. A query's orders depend on nothing but the query's own tie
groups, so other queries, other measures and parts of a run change none of them.
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
_ORDERS = 1_000  # drawn of a query, if that is not too many documents
_FEWEST_ORDERS = 8
_QUERY_CELLS = 1 << 20  # documents in all orders of a query: half a second
_CALL_CELLS = 1 << 23  # documents in all orders of all queries
_BLOCK_CELLS = 1 << 18  # documents in memory at a time


def too_expensive(cost: Float, per_query: float, per_call: float) -> Bool:
    """(Q,) queries that a closed form cannot afford: the dearest ones, until the others fit.

    >>> too_expensive(np.array([5.0, 90.0, 30.0, 20.0]), 80.0, 50.0).tolist()
    [False, True, True, False]
    """
    ascending = np.argsort(cost, kind="stable")
    is_expensive = cost > per_query
    is_expensive[ascending[np.cumsum(cost[ascending]) > per_call]] = True
    return is_expensive


def sample_powers(outcomes: Outcomes) -> Outcomes:
    """Have the powers that a geometric mean needs sampled, of a measure that computes none."""
    powers = root_powers(outcomes.max[:, None])
    return replace(outcomes, powers=powers, expensive=outcomes.min < outcomes.max)


def estimate_expensive(measure: Measure, groups: TieGroups, outcomes: Outcomes) -> Outcomes:
    """Fill in what `outcomes` lacks of its expensive queries from a sample of orders.

    Lowest and highest value and that of the stated order stay.
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
        one = _in_order_of_grade(select_queries(deciding, np.array([number])))
        key = content_key(one)
        values = _sampled_values(measure, one, int(count), np.random.default_rng([_SEED, key]))
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
    """A number that decides the random orders of a query, the same on every machine."""
    columns = groups.listed, groups.size, groups.first, groups.start, groups.grade
    return zlib.crc32(b"".join(column.astype("<i8").tobytes() for column in columns))


def deciding_groups(groups: TieGroups, measure: Measure) -> TieGroups:
    """The groups and documents whose order can change a measure, as it declares by `reads`."""
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
    # The first relevant document is in the first group that holds one.
    last = np.full(groups.queries, np.iinfo(np.int64).max)
    relevant = groups.doc_group[groups.grade >= measure.threshold]
    np.minimum.at(last, groups.query[relevant], groups.first[relevant])
    return groups.chosen(groups.first <= last[groups.query])


def _without_grade_0(groups: TieGroups, pool_depth: int | None) -> TieGroups:
    """Drop documents of grade 0, which only take up ranks; keep the best `pool_depth` of a pool."""
    kept = groups.grade > 0
    judged = np.bincount(groups.doc_group[kept], minlength=len(groups.size))
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
        grade=groups.grade[kept],
        rank=groups.rank[kept],
        pool=pool_of(pool.query[pooled], pool.grade[pooled], groups.queries, pool.max_grade),
    )


def select_queries(groups: TieGroups, queries: Int) -> TieGroups:
    """The groups of some queries, which ascend, numbered from 0."""
    place = np.full(groups.queries, -1)
    place[queries] = np.arange(len(queries))
    kept = place[groups.query] >= 0
    documents = np.repeat(kept, groups.judged)
    pool = groups.pool
    pooled = place[pool.query] >= 0
    start = np.zeros(int(kept.sum()) + 1, np.int64)
    np.cumsum(groups.judged[kept], out=start[1:])
    return TieGroups(
        listed=groups.listed[queries],
        size=groups.size[kept],
        first=groups.first[kept],
        query=place[groups.query[kept]],
        start=start,
        grade=groups.grade[documents],
        rank=groups.rank[documents],
        pool=subset_of(pool, pooled, place[pool.query[pooled]], len(queries)),
        judgment=None if groups.judgment is None else groups.judgment[documents],
    )


def break_ties(groups: TieGroups, copies: int, generator: np.random.Generator) -> TieGroups:
    """Repeat the queries `copies` times, each time with all ties broken at random."""
    owner = groups.doc_group
    position = np.tile(groups.rank - groups.first[owner], (copies, 1))
    document = np.tile(np.arange(len(groups.grade)), (copies, 1))
    tied = np.flatnonzero(groups.size > 1)
    for many in np.unique(groups.judged[tied]).tolist():
        alike = tied[groups.judged[tied] == many]
        at = groups.start[alike][:, None] + np.arange(many)  # (g, many) documents
        places = _distinct_places(groups.size[alike], many, copies, generator)
        by_place = np.argsort(places, axis=2)
        position[:, at] = np.take_along_axis(places, by_place, axis=2)
        document[:, at] = at[np.arange(len(alike))[None, :, None], by_place]
    block = np.arange(copies)[:, None]
    rank = (position + groups.first[owner]).ravel()
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


def _distinct_places(size: Int, many: int, copies: int, generator: np.random.Generator) -> Int:
    """(copies, g, many) distinct places below each group's size, every choice equally likely.

    The i-th document takes one of the places still free; its number among these is drawn.
    """
    shape = (copies, len(size))
    free = np.empty((*shape, many), np.int64)
    for i in range(many):
        free[..., i] = generator.integers(0, size - i, shape)
    return _places_of(free.reshape(-1, many), int(size.max())).reshape(free.shape)


def _places_of(free: Int, limit: int) -> Int:
    """Turn numbers (N, many) among the places that earlier columns left free into places < limit.

    The later half of the columns counts places that the earlier half left free: each place of the
    earlier half, in ascending order, that is not above it moves it on by one. Halving again and
    again, a long tie takes n log n steps and not n².
    """
    half = free.shape[1] // 2
    if not half:
        return free
    before, after = _places_of(free[:, :half], limit), _places_of(free[:, half:], limit)
    row = np.arange(len(free))[:, None]
    moves_from = np.sort(before, axis=1) - np.arange(half)  # the number from which each moves
    passed = np.searchsorted((moves_from + row * limit).ravel(), after + row * limit, side="right")
    return np.concatenate([before, after + passed - row * half], axis=1)
