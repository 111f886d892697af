"""Expected reciprocal rank: a reader goes down the list and stops at a satisfying document.

A document stops the reader with probability `stop` and is passed with u = 1 − stop. In a random
order of a tie group of g, the chance M_t to pass the first t is the mean of the product of u over
all t-subsets, e_t(u)/C(g, t) with e_t the elementary symmetric polynomial. It follows a recurrence
of convex combinations, which is stable where e_t alone would overflow: one more document, with
value u, turns the means M of n documents into

    M'_t = (1 − t/(n+1)) · M_t + (t/(n+1)) · u · M_{t−1}.

The mean over two disjoint subsets follows the same recurrence, and gives the variance.
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
    depth = np.clip(cut[groups.query] - groups.first + 1, 0, groups.size)  # (G,) ranks that count
    expected = np.where(depth > 0, reached * groups.sum_by_group(falling_stop) / groups.first, 0.0)
    depth = np.minimum(depth, _last_position(groups, falling_stop))
    stoppers = groups.sum_by_group(falling_stop > 0).astype(np.int64)
    steps = np.where(groups.size > 1, np.minimum(1.0 * depth * stoppers, _LONG_TIE), 0.0)
    expensive = too_expensive(groups.sum_by_query(groups.query, steps), _QUERY_STEPS, _CALL_STEPS)
    tied = np.flatnonzero((groups.size > 1) & (depth > 0) & ~expensive[groups.query])
    variance = np.zeros(len(groups.size))
    expected[tied], spread = _stops_within(
        groups, falling_stop, tied, depth=depth[tied], stoppers=stoppers[tied]
    )
    expected[tied] *= reached[tied]
    # The probability to pass a whole group does not depend on its order: groups are independent.
    variance[tied] = reached[tied] ** 2 * spread
    has_variance = not np.isnan(spread).any()
    return Outcomes(
        expected=groups.sum_by_query(groups.query, expected),
        min=total(worst, groups.worst_rank(place)),
        max=total(best, groups.best_rank(place)),
        oblivious=stopping(groups, stop, groups.rank, cut),
        variance=groups.sum_by_query(groups.query, variance) if has_variance else None,
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
        document = np.where(real, groups.start[chosen, None] + column, 0)
        passed[chosen] = row_product(np.where(real, 1.0 - stop[document], 1.0))
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
    groups: TieGroups, stop: Float, tied: Int, *, depth: Int, stoppers: Int
) -> tuple[Float, Float]:
    """(T,) mean and variance of S, the ERR that a reader who reaches a tied group gains there.

    E[S] = Σ_t (M_{t−1} − M_t)/(c+t) over the first `depth` (T,) positions. `stop` falls inside each
    group; `stoppers` (T,) of its documents may stop a reader. The variance is NaN where it would
    take too long. Sets `depth` to 0 for long ties, whose variance is not computed.
    """
    value, spread = np.empty(len(tied)), np.zeros(len(tied))
    for row in np.flatnonzero(depth * stoppers > _CELLS):
        value[row] = _long_tie(groups, stop, int(tied[row]), int(depth[row]))
        depth[row] = 0
    for chosen, column, real in tables(depth):
        at = tied[chosen]
        size, first = groups.size[at], groups.first[at]
        t = column + 1  # (1, width); M_0 = 1 is not stored
        mean = np.ones((len(at), t.shape[1]))
        included = size - stoppers[chosen]  # documents that never stop first: their M is 1
        for number in range(int(stoppers[chosen].max())):
            active = np.flatnonzero(stoppers[chosen] > number)
            u = 1.0 - stop[groups.start[at[active]] + number]
            share = np.minimum(t / (included[active] + 1)[:, None], 1.0)  # no subset past n+1
            shifted = np.concatenate([np.ones((len(active), 1)), mean[active, :-1]], axis=1)
            mean[active] = (1.0 - share) * mean[active] + share * u[:, None] * shifted
            included[active] += 1
        before = np.concatenate([np.ones((len(at), 1)), mean[:, :-1]], axis=1)
        value[chosen] = row_sum(np.where(real, (before - mean) / (first[:, None] + column), 0.0))
    # Where all documents of a group stop with the same chance, every order has the same value.
    lowest = stop[groups.start[tied + 1] - 1] * (groups.judged[tied] == groups.size[tied])
    depth = np.minimum(depth, _last_position(groups, stop, _LOG_SQUARE_ROUNDING)[tied])
    differs = np.flatnonzero((depth > 0) & (lowest < stop[groups.start[tied]]))
    steps = depth[differs].astype(np.float64) ** 2 * np.maximum(stoppers[differs], _TABLES)
    slow = too_expensive(steps, _VARIANCE_STEPS, _CALL_STEPS)
    spread[differs[slow]] = np.nan
    differs = differs[~slow]
    shapes = (groups.size[tied[differs]], stoppers[differs], depth[differs])
    for (group_size, stopper_count, positions), chosen in alike(shapes, (depth[differs] + 1) ** 2):
        rows = differs[chosen]
        at = tied[rows, None]
        passing = 1.0 - stop[groups.start[at] + np.arange(stopper_count)]
        weight = 1.0 / (groups.first[at] + np.arange(positions))
        spread[rows] = _mean_square(passing, group_size, weight) - value[rows] ** 2
    return value, spread


def _mean_square(passing: Float, size: int, weight: Float) -> Float:
    """(N,) E[S²] of groups of `size` documents, from E[P_a · P_b] over positions a and b.

    P_a is the product of u over the first a documents: in P_a · P_b with a ≤ b, a documents count
    squared and b − a once. N_{s,r} is its mean over disjoint sets of s and r documents, and follows
    N'_{s,r} = (1 − (s+r)/(n+1)) N_{s,r} + s/(n+1) · u² · N_{s−1,r} + r/(n+1) · u · N_{s,r−1}.
    """
    stoppers, depth = passing.shape[1], weight.shape[1]
    s, r = np.ogrid[: depth + 1, : depth + 1]
    # Documents that stop nobody (u = 1) come first; sets of more documents than included are empty.
    mean = np.where(s + r <= size - stoppers, 1.0, 0.0)[None].repeat(len(passing), 0)
    for included, u in enumerate(passing.T[:, :, None, None], size - stoppers + 1):
        following = np.maximum(1.0 - (s + r) / included, 0.0) * mean
        following[:, 1:] += s[1:] / included * (u * u) * mean[:, :-1]
        following[:, :, 1:] += r[:, 1:] / included * u * mean[:, :, :-1]
        mean = np.where(s + r <= included, following, 0.0)
    a, b = np.ogrid[: depth + 1, : depth + 1]
    product = mean[:, np.minimum(a, b), np.abs(a - b)]  # E[P_a · P_b]
    falls = product[:, :-1, :-1] - product[:, 1:, :-1] - product[:, :-1, 1:] + product[:, 1:, 1:]
    falls *= weight[:, :, None] * weight[:, None, :]
    return row_sum(falls.reshape(len(falls), -1))


_CELLS = 1 << 22  # steps of the recurrence; beyond, _long_tie is faster
_NODES = 32  # positions at which _long_tie evaluates an interval


def _long_tie(groups: TieGroups, stop: Float, group: int, depth: int) -> float:
    """E[S] = Σ_{t≤T} (M_{t−1} − M_t)/(c+t) of a group's first T = `depth` positions, by quadrature.

    With D_t = 1 − M_t it is D_T/(c+T) + Σ_{t<T} D_t/((c+t)(c+t+1)), all terms positive. D_t is a
    polynomial in t: on intervals that double in length, Gauss's rule for sums needs few D_t.
    """
    group_stop = stop[groups.start[group] : groups.start[group + 1]]
    size, c = int(groups.size[group]), int(groups.first[group]) - 1
    stops, repeats = np.unique(group_stop[group_stop > 0], return_counts=True)
    stops = np.append(0.0, stops)
    counts = np.append(size - repeats.sum(), repeats).astype(np.float64)
    terms = [_stopped(float(depth), stops, counts) / (c + depth)]
    low = 1
    while low < depth:
        # Near the ends of the group D_t can be computed at whole positions only.
        end = min(2 * low, size - 2 * _NODES)
        if low < 2 * _NODES or end <= low:
            end = low + 2 * _NODES
        points, weights = _sum_rule(low, min(end, depth) - low)
        rank = c + points
        values = [_stopped(float(t), stops, counts) for t in points]
        terms.extend((weights * values / (rank * (rank + 1.0))).tolist())
        low = end
    return math.fsum(terms)


def _sum_rule(low: int, count: int) -> tuple[Float, Float]:
    """Points and weights of Gauss's rule for Σ f(t), t = low … low + count − 1.

    The points are eigenvalues of the Jacobi matrix of the discrete Chebyshev polynomials (Golub and
    Welsch, 1969); up to 2 · _NODES terms are summed one by one.
    """
    if count <= 2 * _NODES:
        return low + np.arange(count, dtype=np.float64), np.ones(count)
    k = np.arange(1, _NODES, dtype=np.float64)
    off_diagonal = np.sqrt(k * k * (float(count) ** 2 - k * k) / (4.0 * (4.0 * k * k - 1.0)))
    points, vectors = np.linalg.eigh(np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
    return low + (count - 1) / 2.0 + points, count * vectors[0] ** 2


def _stopped(t: float, stop: Float, counts: Float) -> float:
    """D_t = 1 − e_t(u)/C(g, t): the chance that one of the first t documents stops the reader.

    `counts` documents have each of the values `stop`; u = 1 − stop. Both e_t and C(g, t) are
    integrals over a circle whose radius is their saddle point, p/(1 − p) and q/(1 − q), q = t/g.
    With r = 1 − p, w = 1 − q and δ = w − r, each computed directly where it is small, nothing
    cancels:

        ln (1 − D_t) = −g·ln(1 − δ/w) − t·ln(1 + δ/(q·r)) + Σ ln(1 − p·stop) + ln(I_p/I_q)

    where I is the probability of t successes, I_p of documents that each succeed with chance
    p·u/(1 − p·stop), I_q of documents that all succeed with chance q.
    """
    size = counts.sum()
    q, w = t / size, (size - t) / size
    if w <= 0.0:
        return float(-np.expm1((counts * np.log1p(-stop)).sum()))
    low, high = -700.0, 0.0  # bounds of ln(r/w)
    for _ in range(64):  # bisect to the last bit
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
    i_p = _chance_of_sum(t, (1.0 - r) * (1.0 - stop) / share, counts)
    i_q = _chance_of_sum(t, np.array([q]), np.array([size]))
    return float(-np.expm1(log + np.log(i_p / i_q)))


_STEP = 0.5  # between two points: angle times standard deviation
_LAST_POINT = 15.0  # angle times standard deviation past which the integrand is 0 in float64


def _chance_of_sum(t: float, success: Float, counts: Float) -> float:
    """P(t successes) of independent trials with mean t: `counts` with each chance `success`.

    The mean over the unit circle of their characteristic function times e^(−i·t·angle).
    """
    deviation = float(np.sqrt((counts * success * (1.0 - success)).sum()))
    points = int(2.0 * np.pi * deviation / _STEP) + 65 | 1  # odd: all but 0 come in ± pairs
    last = points // 2
    if deviation > 1.0:
        last = min(last, int(_LAST_POINT * points / (2.0 * np.pi * deviation)))
    angle = 2.0 * np.pi / points * np.arange(last + 1)
    logs = (counts * np.log1p(success * np.expm1(1j * angle[:, None]))).sum(axis=1)
    values = np.exp(logs - 1j * t * angle).real
    return float((2.0 * values[1:].sum() + values[0]) / points)


_LOG_ROUNDING = -64.0 * np.log(2.0)  # ln of a ratio that is lost in a float64 sum
_LOG_SQUARE_ROUNDING = -32.0 * np.log(2.0)  # enough for a variance: the squares are lost then

_LONG_TIE = 1 << 27  # steps of the recurrence that take as long as a long tie
_QUERY_STEPS = 1 << 28  # most steps of the recurrence for a query: half a second
_VARIANCE_STEPS = 1 << 27  # most steps for the variance of a group
_CALL_STEPS = 1 << 31  # most steps for all queries
_TABLES = 1 << 5  # tables of a variance in memory at once


def _last_position(groups: TieGroups, stop: Float, log_ratio: float = _LOG_ROUNDING) -> Int:
    """(G,) the position in a group after which all further ones add less than rounding errors.

    By Maclaurin's inequality M_t ≤ M_1^t, and M_1 is the mean of u. Positions after t add at most
    M_t/(c+t), the first alone (1 − M_1)/(c+1); `log_ratio` is the ln of their negligible ratio. In
    a group with many documents that stop a reader, few positions matter.
    """
    passing = 1.0 - groups.sum_by_group(stop) / groups.size  # M_1
    with np.errstate(divide="ignore", invalid="ignore"):
        positions = np.ceil((log_ratio + np.log1p(-passing)) / np.log(passing)) + 1
    last = np.where(passing > 0, positions, 1.0)
    return np.where(passing < 1, np.minimum(last, groups.size), groups.size).astype(np.int64)
