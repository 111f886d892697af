"""Expected reciprocal rank: a reader goes down the list and stops at a satisfying document.

For a uniformly random order of a group, the expected product of the first t values of
u = 1 − stop is the mean of the product over all t-subsets, e_t(u)/C(g, t) with e_t the elementary
symmetric polynomial. That mean follows a recurrence of convex combinations, so it is stable where
e_t alone would overflow: one more document with value u turns the means M of n documents into

    M'_t = (1 − t/(n+1)) · M_t + (t/(n+1)) · u · M_{t−1}.

Products of two such means follow the same with two sets of documents, which gives the variance.
"""

from __future__ import annotations

import math

import numpy as np

from rankproof.data.ties import TieGroups
from rankproof.foundation.arrays import Float, Int
from rankproof.measures.linear import last_listed_rank
from rankproof.measures.outcomes import Outcomes
from rankproof.measures.padded_rows import alike, row_product, row_sum, tables
from rankproof.measures.random_orders import too_expensive
from rankproof.measures.registry import measure


@measure(
    "ERR",
    at="cutoff",
    limits={"max": (1, 1000)},
    aliases=("expected_reciprocal_rank",),
    rising=True,
    unjudged="stopping",
    open_scale="max",
    reads="listed",
    splits_ties=True,
)
def err(groups: TieGroups, cutoff: int | None, max: int | None = None) -> Outcomes:  # noqa: A002
    """Expected reciprocal rank: Σ_r (1/r) · P(the reader stops at rank r).

    A document of grade g stops the reader with probability (2^g − 1)/2^max; `max` is the highest
    grade of the scale, by default the highest in the judgements (gdeval and TREC's web tracks take
    4, whatever the judgements hold: ERR(max=4)). No std where thousands of documents tie.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "ERR")["ERR"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.229, 0.271, 0.312)
    """
    top = groups.pool.max_grade if max is None else max
    stop = np.exp2(np.minimum(groups.grade, top) - top) - np.exp2(-top)
    place = groups.place_by_grade
    best, worst = (
        groups.by_place(place),
        groups.by_place(groups.judged[groups.doc_group] - 1 - place),
    )
    falling_stop = stop[best]
    cut = last_listed_rank(groups, cutoff)

    def total(order: Int, rank: Int) -> Float:
        """The measure of one order of the judged documents."""
        return stopping(groups, stop[order], rank[order], cut)

    passed = _passed(groups, falling_stop)
    reached = _running_product(passed, groups.query)
    inside = np.clip(cut[groups.query] - groups.first + 1, 0, groups.size)
    expected = np.where(inside > 0, reached * groups.sum_by_group(falling_stop) / groups.first, 0.0)
    inside = np.minimum(inside, _reach(groups, falling_stop))
    stoppers = groups.sum_by_group(falling_stop > 0).astype(np.int64)
    steps = np.where(groups.size > 1, np.minimum(1.0 * inside * stoppers, _LONG_TIE), 0.0)
    expensive = too_expensive(groups.sum_by_query(groups.query, steps), _QUERY_STEPS, _CALL_STEPS)
    tied = np.flatnonzero((groups.size > 1) & (inside > 0) & ~expensive[groups.query])
    variance = np.zeros(len(groups.size))
    expected[tied], spread = _stops_within(
        groups, falling_stop, tied, inside=inside[tied], stoppers=stoppers[tied]
    )
    expected[tied] *= reached[tied]
    # The probability to pass a whole group does not depend on its order: groups are independent.
    variance[tied] = reached[tied] ** 2 * spread
    known = not np.isnan(spread).any()
    return Outcomes(
        expected=groups.sum_by_query(groups.query, expected),
        min=total(worst, groups.worst_rank(place)),
        max=total(best, groups.best_rank(place)),
        oblivious=stopping(groups, stop, groups.rank, cut),
        variance=groups.sum_by_query(groups.query, variance) if known else None,
        expensive=expensive,
    )


def stopping(groups: TieGroups, stop: Float, rank: Int, cut: Int) -> Float:
    """(Q,) ERR of one order: `stop` and `rank` of each document, ascending by rank."""
    value = _running_product(1.0 - stop, groups.doc_query)
    value *= stop
    value /= rank
    value[rank > cut[groups.doc_query]] = 0.0
    return groups.sum_by_query(groups.doc_query, value)


def _passed(groups: TieGroups, stop: Float) -> Float:
    """(G,) the probability that the reader passes every document of a group."""
    passed = np.ones(len(groups.size))
    for chosen, column, real in tables(groups.judged):
        doc = np.where(real, groups.start[chosen, None] + column, 0)
        passed[chosen] = row_product(np.where(real, 1.0 - stop[doc], 1.0))
    return passed


def _running_product(values: Float, query: Int) -> Float:
    """For each value, the product of those before it in its query; values ascend by query."""
    length = np.bincount(query, minlength=int(query.max(initial=-1)) + 1)
    begin = np.cumsum(length) - length
    product = np.ones(len(values))
    for chosen, column, real in tables(length):
        row = np.where(real, begin[chosen, None] + column, 0)
        running = np.cumprod(np.where(real, values[row], 1.0), axis=1)
        later = real[:, 1:]
        product[row[:, 1:][later]] = running[:, :-1][later]
    return product


def _stops_within(
    groups: TieGroups, stop: Float, tied: Int, *, inside: Int, stoppers: Int
) -> tuple[Float, Float]:
    """(T,) mean and variance of S = Σ_t (M_{t−1} − M_t)/(c+t) over the positions that count.

    `stop` falls inside each group, and `stoppers` (T,) of its documents may stop a reader; the
    first `inside` (T,) positions count. The variance is NaN where it would take too long.
    """
    value, spread = np.empty(len(tied)), np.zeros(len(tied))
    for one in np.flatnonzero(inside * stoppers > _CELLS):
        value[one] = _long_tie(groups, stop, int(tied[one]), int(inside[one]))
        inside[one] = 0
    for chosen, column, real in tables(inside):
        at = tied[chosen]
        size, first = groups.size[at], groups.first[at]
        t = column + 1  # (1, width); M_0 = 1 is not stored
        mean = np.ones((len(at), t.shape[1]))
        held = size - stoppers[chosen]  # those that never stop come first: their means are all 1
        for number in range(int(stoppers[chosen].max())):
            active = np.flatnonzero(stoppers[chosen] > number)
            u = 1.0 - stop[groups.start[at[active]] + number]
            share = np.minimum(t / (held[active] + 1)[:, None], 1.0)  # past n+1 there is no subset
            shifted = np.concatenate([np.ones((len(active), 1)), mean[active, :-1]], axis=1)
            mean[active] = (1.0 - share) * mean[active] + share * u[:, None] * shifted
            held[active] += 1
        before = np.concatenate([np.ones((len(at), 1)), mean[:, :-1]], axis=1)
        value[chosen] = row_sum(np.where(real, (before - mean) / (first[:, None] + column), 0.0))
    # Where all documents of a group stop alike, no order differs.
    lowest = stop[groups.start[tied + 1] - 1] * (groups.judged[tied] == groups.size[tied])
    inside = np.minimum(inside, _reach(groups, stop, _LITTLE)[tied])
    differs = np.flatnonzero((inside > 0) & (lowest < stop[groups.start[tied]]))
    steps = inside[differs].astype(np.float64) ** 2 * np.maximum(stoppers[differs], _TABLES)
    slow = too_expensive(steps, _VARIANCE_STEPS, _CALL_STEPS)
    spread[differs[slow]] = np.nan
    differs = differs[~slow]
    kinds = (groups.size[tied[differs]], stoppers[differs], inside[differs])
    for (wide, many, deep), chosen in alike(kinds, (inside[differs] + 1) ** 2):
        some = differs[chosen]
        at = tied[some, None]
        passing = 1.0 - stop[groups.start[at] + np.arange(many)]
        weight = 1.0 / (groups.first[at] + np.arange(deep))
        spread[some] = _mean_square(passing, wide, weight) - value[some] ** 2
    return value, spread


def _mean_square(passing: Float, size: int, weight: Float) -> Float:
    """(N,) E[S²] of groups, from E[M_a · M_b]: a documents count squared and b − a once.

    The mean over disjoint sets of s and r documents follows the recurrence of one set above:
    N'_{s,r} = (1 − (s+r)/(n+1)) N_{s,r} + s/(n+1) · u² · N_{s−1,r} + r/(n+1) · u · N_{s,r−1}.
    """
    many, deep = passing.shape[1], weight.shape[1]
    s, r = np.ogrid[: deep + 1, : deep + 1]
    # Those that let everybody pass come first; of more than there are, no sets can be made.
    mean = np.where(s + r <= size - many, 1.0, 0.0)[None].repeat(len(passing), 0)
    for held, u in enumerate(passing.T[:, :, None, None], size - many + 1):
        grown = np.maximum(1.0 - (s + r) / held, 0.0) * mean
        grown[:, 1:] += s[1:] / held * (u * u) * mean[:, :-1]
        grown[:, :, 1:] += r[:, 1:] / held * u * mean[:, :, :-1]
        mean = np.where(s + r <= held, grown, 0.0)
    a, b = np.ogrid[: deep + 1, : deep + 1]
    both = mean[:, np.minimum(a, b), np.abs(a - b)]
    gaps = both[:, :-1, :-1] - both[:, 1:, :-1] - both[:, :-1, 1:] + both[:, 1:, 1:]
    gaps *= weight[:, :, None] * weight[:, None, :]
    return row_sum(gaps.reshape(len(gaps), -1))


_CELLS = 1 << 22  # steps of the recurrence from which on single positions are faster
_NODES = 32  # positions that stand for all of an interval


def _long_tie(groups: TieGroups, stop: Float, group: int, inside: int) -> float:
    """Σ_{t≤T} (M_{t−1} − M_t)/(c+t) of a group's first T positions, few of which are computed.

    With D_t = 1 − M_t it is D_T/(c+T) + Σ_{t<T} D_t/((c+t)(c+t+1)), all of it positive. D_t is a
    polynomial in t: on intervals that double, Gauss's rule for sums needs few values of it.
    """
    own = stop[groups.start[group] : groups.start[group + 1]]
    size, c = int(groups.size[group]), int(groups.first[group]) - 1
    kinds, counts = np.unique(own[own > 0], return_counts=True)
    kinds = np.append(0.0, kinds)
    each = np.append(size - counts.sum(), counts).astype(np.float64)
    terms = [_stopped(float(inside), kinds, each) / (c + inside)]
    low = 1
    while low < inside:
        # Near the ends of the group only whole positions have a value.
        end = min(2 * low, size - 2 * _NODES)
        if low < 2 * _NODES or end <= low:
            end = low + 2 * _NODES
        points, weights = _sum_rule(low, min(end, inside) - low)
        at = c + points
        values = [_stopped(float(t), kinds, each) for t in points]
        terms.extend((weights * values / (at * (at + 1.0))).tolist())
        low = end
    return math.fsum(terms)


def _sum_rule(low: int, count: int) -> tuple[Float, Float]:
    """Points and weights of Σ f(t), t = low … low + count − 1: Gauss's rule for whole numbers."""
    if count <= 2 * _NODES:
        return low + np.arange(count, dtype=np.float64), np.ones(count)
    k = np.arange(1, _NODES, dtype=np.float64)
    beside = np.sqrt(k * k * (float(count) ** 2 - k * k) / (4.0 * (4.0 * k * k - 1.0)))
    points, vectors = np.linalg.eigh(np.diag(beside, 1) + np.diag(beside, -1))
    return low + (count - 1) / 2.0 + points, count * vectors[0] ** 2


def _stopped(t: float, stop: Float, counts: Float) -> float:
    """D_t = 1 − e_t(u)/C(g, t) of documents of few kinds, u = 1 − stop.

    Both coefficients are integrals over a circle whose radius is their saddle point, p/(1 − p) and
    q/(1 − q), q = t/g. With r = 1 − p, w = 1 − q and δ = w − r, each of which is computed by
    itself where it is small, nothing cancels:

        ln (1 − D_t) = −g·ln(1 − δ/w) − t·ln(1 + δ/(q·r)) + Σ ln(1 − p·stop) + ln(I_p/I_q)

    where I is the probability of t successes: of documents that each succeed with p·u/(1 − p·stop),
    over that of documents that succeed with q.
    """
    size = counts.sum()
    q, w = t / size, (size - t) / size
    if w <= 0.0:
        return float(-np.expm1((counts * np.log1p(-stop)).sum()))
    low, high = -700.0, 0.0  # of ln(r/w)
    for _ in range(64):  # halves it to the last bit
        r = w * math.exp((low + high) / 2.0)
        above = (counts * (1.0 - r) * (1.0 - stop) / (1.0 - stop + r * stop)).sum() > t
        low, high = ((low + high) / 2.0, high) if above else (low, (low + high) / 2.0)
    weight = counts / (1.0 - stop + r * stop)
    delta = w * (1.0 - r) * (weight * stop).sum() / weight.sum()
    r = r if r < w / 2.0 else w - delta
    share = 1.0 - stop + r * stop
    passing = np.where(stop < 0.5, np.log1p((r - 1.0) * stop), np.log(share))
    log = (counts * passing).sum() - t * np.log1p((w - r) / (q * r))
    log -= size * (np.log(r / w) if r < w / 2.0 else np.log1p(-delta / w))
    chance = _chance_of(t, (1.0 - r) * (1.0 - stop) / share, counts)
    alike = _chance_of(t, np.array([q]), np.array([size]))
    return float(-np.expm1(log + np.log(chance / alike)))


_RADIANS = 0.5  # of the angle times the deviation, from one point to the next
_FARTHEST = 15.0  # past which nothing is left of the integrand


def _chance_of(t: float, success: Float, counts: Float) -> float:
    """P(t successes), t the mean: the mean of the characteristic function over the circle."""
    deviation = float(np.sqrt((counts * success * (1.0 - success)).sum()))
    points = int(2.0 * np.pi * deviation / _RADIANS) + 65 | 1  # odd: each but 0 has its mirror
    last = points // 2
    if deviation > 1.0:
        last = min(last, int(_FARTHEST * points / (2.0 * np.pi * deviation)))
    angle = 2.0 * np.pi / points * np.arange(last + 1)
    logs = (counts * np.log1p(success * np.expm1(1j * angle[:, None]))).sum(axis=1)
    values = np.exp(logs - 1j * t * angle).real
    return float((2.0 * values[1:].sum() + values[0]) / points)


_NOTHING = -64.0 * np.log(2.0)  # a share of the whole that no float64 holds beside it
_LITTLE = -32.0 * np.log(2.0)  # enough for a variance, whose squares then are as small


_LONG_TIE = 1 << 27  # what a long tie is worth in steps of the recurrence
_QUERY_STEPS = 1 << 28  # of the recurrence: half a second
_VARIANCE_STEPS = 1 << 27  # of the variance of a group
_CALL_STEPS = 1 << 31  # of all queries
_TABLES = 1 << 5  # of the size of a variance's table are in memory at once


def _reach(groups: TieGroups, stop: Float, share: float = _NOTHING) -> Int:
    """(G,) the position in a group past which no reader is left, to the last bit.

    By Maclaurin's inequality M_t ≤ M_1^t, and M_1 is the mean of u. Past t at most M_t/(c+t) is to
    come, where the first position alone gave (1 − M_1)/(c+1). Of a group with many documents that
    stop a reader, few positions matter.
    """
    passing = 1.0 - groups.sum_by_group(stop) / groups.size
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.ceil((share + np.log1p(-passing)) / np.log(passing)) + 1
    certain = np.where(passing > 0, steps, 1.0)
    return np.where(passing < 1, np.minimum(certain, groups.size), groups.size).astype(np.int64)
