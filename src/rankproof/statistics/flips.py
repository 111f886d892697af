"""Whether a random order of the ties would turn the sign of a difference.

Over random orders of both runs' ties the difference of two means has its expectation E and the
variance Σ v_q/Q², v_q = Var_A + Var_B. Where many queries share the variance, (Σv)²/Σv² ≥ 20, it is
nearly normal:

    P(flip) = Φ(−|E|/σ),   on a lattice of step h   Φ(−(|E| + h/2)/σ)

Where few do, orders are drawn: for each run the measure of the queries that carry the variance,
under random orders, summed; a pair is the difference of two such sums. 0 where every order gives
the same sign.
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
ENOUGH = 20.0  # queries, in effect, for the normal distribution to hold
LIKELY = 0.001  # a flip below this is no real possibility

_NOTHING = 1e-4  # of the variance: a hundredth of the deviation
_LEVEL = 1e-9  # a sum below this is none: rounding


def normal_flips(total: Float, variance: Float, squares: Float, step: float) -> Float:
    """(C,) P(flip) of sums over queries; NaN where too few queries carry the variance.

    `total` is Σ E_q, `variance` Σ v_q and `squares` Σ v_q².
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        enough = variance * variance >= ENOUGH * squares
        z = -(np.abs(total) + step / 2.0) / np.sqrt(variance)
    found = np.where(variance <= 0, 0.0, np.nan)  # NaN, a variance without a closed form, stays
    chosen = enough & (variance > 0)
    found[chosen] = normal_cdf(z[chosen])
    return found


def simulated_flip(total: float, apart: Float) -> float:
    """How often E + (a's deviation − b's), drawn, has the other sign."""
    sums = total + apart
    turned = sums < -_LEVEL if total > _LEVEL else sums > _LEVEL
    if abs(total) <= _LEVEL:  # nobody leads: either may
        return float((np.abs(sums) > _LEVEL).mean() / 2.0)
    return float(turned.mean())


def generator_of(name: str, seed: int) -> np.random.Generator:
    """A run's own stream of orders, so that no other run changes what is drawn for it."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def drawn_sums(
    groups: TieGroups,
    measure: Measure,
    queries: Int,
    expected: Float,
    variance: Float | None,
    generator: np.random.Generator,
) -> Float:
    """(ORDERS,) a measure less its expectation, summed over tied queries, under random orders.

    `expected` and `variance` are those of the queries. Where the variances are known, orders are
    drawn of the queries that carry them; the others together are nearly normal, or next to nothing.
    """
    carrying = np.ones(len(queries), np.bool_)
    if variance is not None and not measure.step:
        carrying = _carrying(variance)
    few = only(deciding_groups(groups, measure), queries[carrying])
    sums = np.zeros(ORDERS)
    if variance is not None:
        rest = math.fsum(variance[~carrying])
        sums += generator.normal(0.0, math.sqrt(max(rest, 0.0)), ORDERS)
    if not carrying.any():
        return sums
    block = max(1, CELLS // (8 * max(1, len(few.grade), few.pool.unsorted.size)))
    for low in range(0, ORDERS, block):
        copies = min(block, ORDERS - low)
        values = measure.outcomes(shuffled(few, copies, generator)).oblivious
        sums[low : low + copies] += values.reshape(copies, -1).sum(axis=1)
    return sums - math.fsum(expected[carrying])


def _carrying(variance: Float) -> Bool:
    """(Q,) the fewest queries without which the others are as many as normal needs, or nothing."""
    falling = np.argsort(-variance, kind="stable")
    v = np.append(variance[falling], 0.0)
    left, squares = np.cumsum(v[::-1])[::-1], np.cumsum((v * v)[::-1])[::-1]
    enough = (left * left >= ENOUGH * squares) | (left <= _NOTHING * left[0])
    carrying = np.zeros(len(variance), np.bool_)
    carrying[falling[: int(enough.argmax())]] = True
    return carrying


def deciding_groups(groups: TieGroups, measure: Measure) -> TieGroups:
    """The groups and documents whose order can change a measure, as it declares by `reads`."""
    reads = measure.definition.reads
    if reads in ("listed", "first"):
        groups = _relevant(groups, 1)
    elif reads == "best":
        groups = _relevant(groups, measure.cutoff)
    elif reads == "relevant":
        groups = _relevant(groups, None)
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


def _relevant(groups: TieGroups, most: int | None) -> TieGroups:
    """Without the documents of grade 0, which only take up ranks; the `most` best of the pool."""
    kept = groups.grade > 0
    judged = np.bincount(groups.doc_group[kept], minlength=len(groups.size))
    some = judged > 0
    pool = groups.pool
    pooled = pool.grade > 0
    if most is not None:
        pooled &= pool.place <= most
    return TieGroups(
        listed=groups.listed,
        size=groups.size[some],
        first=groups.first[some],
        query=groups.query[some],
        start=np.append(0, np.cumsum(judged[some])),
        grade=groups.grade[kept],
        rank=groups.rank[kept],
        pool=pool_of(pool.query[pooled], pool.grade[pooled], groups.queries, pool.max_grade),
    )


def only(groups: TieGroups, queries: Int) -> TieGroups:
    """The groups of some queries, which ascend, numbered anew."""
    place = np.full(groups.queries, -1)
    place[queries] = np.arange(len(queries))
    kept = place[groups.query] >= 0
    documents = np.repeat(kept, groups.judged)
    pooled = place[groups.pool.query] >= 0
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
            place[groups.pool.query[pooled]],
            groups.pool.unsorted[pooled],
            len(queries),
            groups.pool.max_grade,
        ),
    )


def shuffled(groups: TieGroups, copies: int, generator: np.random.Generator) -> TieGroups:
    """The same queries so many times over, their ties broken at random: none is left."""
    owner = groups.doc_group
    position = np.tile(groups.rank - groups.first[owner], (copies, 1))
    grade = np.tile(groups.grade, (copies, 1))
    tied = np.flatnonzero(groups.size > 1)
    for many in np.unique(groups.judged[tied]).tolist():
        some = tied[groups.judged[tied] == many]
        at = groups.start[some][:, None] + np.arange(many)  # (g, many) documents
        places = _places(groups.size[some], many, copies, generator)
        by_place = np.argsort(places, axis=2)
        position[:, at] = np.take_along_axis(places, by_place, axis=2)
        grade[:, at] = groups.grade[at][np.arange(len(some))[None, :, None], by_place]
    queries = groups.queries
    block = np.arange(copies)[:, None]
    rank = (position + groups.first[owner]).ravel()
    return TieGroups(
        listed=np.tile(groups.listed, copies),
        size=np.ones(len(rank), np.int64),
        first=rank,
        query=(groups.doc_query + block * queries).ravel(),
        start=np.arange(len(rank) + 1),
        grade=grade.ravel(),
        rank=rank,
        pool=groups.pool.repeated(copies),
    )


def _places(size: Int, many: int, copies: int, generator: np.random.Generator) -> Int:
    """(copies, g, many) different places below each group's size, every choice equally likely.

    The i-th takes one of the places still free: its number among them is drawn.
    """
    shape = (copies, len(size))
    free = np.empty((*shape, many), np.int64)
    for i in range(many):
        free[..., i] = generator.integers(0, size - i, shape)
    return _taken(free.reshape(-1, many), int(size.max())).reshape(free.shape)


def _taken(free: Int, below: int) -> Int:
    """(N, many) numbers among the places that those before left free → places, all below a number.

    The later half is numbered among what the earlier half left; then each place of that, ascending,
    that is not above it moves it on by one. So half by half, a long tie costs no square.
    """
    half = free.shape[1] // 2
    if not half:
        return free
    before, after = _taken(free[:, :half], below), _taken(free[:, half:], below)
    row = np.arange(len(free))[:, None]
    moves = np.sort(before, axis=1) - np.arange(half)  # from which number on each does
    passed = np.searchsorted((moves + row * below).ravel(), after + row * below, side="right")
    return np.concatenate([before, after + passed - row * half], axis=1)
