"""Whether a random order of the ties would turn the sign of a difference.

Over random orders of both runs' ties the difference of two means has its expectation E and the
variance Σ v_q/Q², v_q = Var_A + Var_B. Where many queries share the variance, (Σv)²/Σv² ≥ 20, it is
nearly normal:

    P(flip) = Φ(−|E|/σ),   on a lattice of step h   Φ(−(|E| + h/2)/σ)

Where few queries share it, orders are drawn: for each run the sum of the measure over the queries
that carry the variance, under random orders; a pair is the difference of two such sums. 0 where
every order gives the same sign.
"""

from __future__ import annotations

import math
import zlib

import numpy as np

from rankproof.data.ties import TieGroups, pool_of
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.measures import Measure
from rankproof.statistics.distributions import normal_cdf
from rankproof.statistics.resampling import CELLS

ORDERS = 4_000  # drawn where few queries tie
ENOUGH = 20.0  # effective number of queries for the normal distribution to hold
LIKELY = 0.001  # a flip below this is no real possibility

_NEGLIGIBLE = 1e-4  # share of the variance: a hundredth of the deviation
_ROUNDING = 1e-9  # a sum below this is 0


def normal_flips(total: Float, variance: Float, squares: Float, step: float) -> Float:
    """(C,) P(flip) of sums over queries; NaN where too few queries carry the variance.

    `total` is Σ E_q, `variance` Σ v_q and `squares` Σ v_q².
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        enough = variance * variance >= ENOUGH * squares
        z = -(np.abs(total) + step / 2.0) / np.sqrt(variance)
    flips = np.where(variance <= 0, 0.0, np.nan)  # a variance without a closed form stays NaN
    chosen = enough & (variance > 0)
    flips[chosen] = normal_cdf(z[chosen])
    return flips


def simulated_flip(total: float, deviations: Float) -> float:
    """The share of drawn orders in which Σ E_q plus a's deviation less b's has the other sign."""
    sums = total + deviations
    if abs(total) <= _ROUNDING:  # neither run leads: either may
        return float((np.abs(sums) > _ROUNDING).mean() / 2.0)
    flipped = sums < -_ROUNDING if total > _ROUNDING else sums > _ROUNDING
    return float(flipped.mean())


def run_generator(name: str, seed: int) -> np.random.Generator:
    """A run's own stream of random orders, which no other run changes."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def drawn_sums(
    groups: TieGroups,
    measure: Measure,
    queries: Int,
    expected: Float,
    variance: Float | None,
    generator: np.random.Generator,
) -> Float:
    """(ORDERS,) a measure minus its expectation, summed over tied queries, under random orders.

    `expected` and `variance` are those of the queries. If the variances are known, orders are drawn
    for the queries that carry them; the others together are nearly normal, or negligible.
    """
    carrying = np.ones(len(queries), np.bool_)
    if variance is not None and not measure.step:
        carrying = _carrying(variance)
    few = select_queries(deciding_groups(groups, measure), queries[carrying])
    sums = np.zeros(ORDERS)
    if variance is not None:
        remaining = math.fsum(variance[~carrying])
        sums += generator.normal(0.0, math.sqrt(max(remaining, 0.0)), ORDERS)
    if not carrying.any():
        return sums
    block = max(1, CELLS // (8 * max(1, len(few.grade), few.pool.unsorted.size)))
    for low in range(0, ORDERS, block):
        copies = min(block, ORDERS - low)
        values = measure.outcomes(shuffled(few, copies, generator)).oblivious
        sums[low : low + copies] += values.reshape(copies, -1).sum(axis=1)
    return sums - math.fsum(expected[carrying])


def _carrying(variance: Float) -> Bool:
    """(Q,) the fewest queries without which the others are nearly normal in sum, or negligible."""
    falling = np.argsort(-variance, kind="stable")
    v = np.append(variance[falling], 0.0)
    remaining, squares = np.cumsum(v[::-1])[::-1], np.cumsum((v * v)[::-1])[::-1]
    is_normal = remaining * remaining >= ENOUGH * squares
    enough = is_normal | (remaining <= _NEGLIGIBLE * remaining[0])
    carrying = np.zeros(len(variance), np.bool_)
    carrying[falling[: int(enough.argmax())]] = True
    return carrying


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
        pool=pool_of(
            place[pool.query[pooled]], pool.unsorted[pooled], len(queries), pool.max_grade
        ),
    )


def shuffled(groups: TieGroups, copies: int, generator: np.random.Generator) -> TieGroups:
    """Repeat the queries `copies` times, each time with all ties broken at random."""
    owner = groups.doc_group
    position = np.tile(groups.rank - groups.first[owner], (copies, 1))
    grade = np.tile(groups.grade, (copies, 1))
    tied = np.flatnonzero(groups.size > 1)
    for many in np.unique(groups.judged[tied]).tolist():
        alike = tied[groups.judged[tied] == many]
        at = groups.start[alike][:, None] + np.arange(many)  # (g, many) documents
        places = _distinct_places(groups.size[alike], many, copies, generator)
        by_place = np.argsort(places, axis=2)
        position[:, at] = np.take_along_axis(places, by_place, axis=2)
        grade[:, at] = groups.grade[at][np.arange(len(alike))[None, :, None], by_place]
    block = np.arange(copies)[:, None]
    rank = (position + groups.first[owner]).ravel()
    return TieGroups(
        listed=np.tile(groups.listed, copies),
        size=np.ones(len(rank), np.int64),
        first=rank,
        query=(groups.doc_query + block * groups.queries).ravel(),
        start=np.arange(len(rank) + 1),
        grade=grade.ravel(),
        rank=rank,
        pool=groups.pool.repeated(copies),
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
