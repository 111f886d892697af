"""Inferred average precision: an estimate of AP where only a sample of the pool was judged.

A relevant document at rank k is worth the expected precision at its rank. With r relevant and n
other judged documents above it, and d documents of the pool, judged or not,

    f = 1/k + (d/k) · p,   p = (r + ε)/(r + n + 2ε),   ε = 0.00001 as in trec_eval

Documents outside the pool count as not relevant. Pooled documents without a judgment (grade below
0 in TREC's files) count as relevant as often as the judged ones above. (Yilmaz and Aslam, CIKM
2006.)

Mean. Of a group of g tied documents, J are judged, m of these relevant, and u pooled but unjudged.
A relevant one is equally likely to be the (s+1)-th judged one, s = 0 … J−1, and then has on average
s(m−1)/(J−1) relevant ones of the group above, whatever the ranks. Its position i in the group has
the weight C(i−1, s) · C(g−i, J−1−s), and (i−1−s) · u/(g−J) pooled unjudged ones are above it, so
the mean of f needs only h(s) = E[1/k]. With c ranks above the group,

    (s+1)(g − J + 2 + s + c) · h(s+1) = J − (J−1−s)(c+1+s) · h(s)

Errors shrink upwards from some s on, and downwards below it: h is summed directly for that s, and
the recurrence gives all others.

Lowest and highest value. k − d = t is the same for the whole group, wherever its pooled documents
are, and f = p + (1 − t·p)/k: pooled documents above raise f where t·p > 1, and p rises down the
group. So the best order puts them between the relevant documents that they would lower and those
that they raise. The worst order puts all of them at one place, before the same relevant documents:
1 − t·p changes its sign once down the group and 1/(k(k+1)) is totally positive, so the sum falls
and then rises with the number of pooled documents there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankproof.data.ties import TieGroups
from rankproof.foundation.arrays import Array, Float, Int
from rankproof.foundation.kernels import count_within
from rankproof.measures.linear import REL
from rankproof.measures.outcomes import Outcomes
from rankproof.measures.padded_rows import row_sum, tables
from rankproof.measures.preference import before
from rankproof.measures.registry import measure

EPSILON = 0.00001


@measure(
    "infAP",
    limits=REL,
    unjudged="inferred precision",
    ignores_unjudged=True,
    best_by_grade=False,
)
def inferred_average_precision(groups: TieGroups, rel: int = 1) -> Outcomes:
    """Inferred average precision: AP estimated from judgments of a sample of the pool.

    Pooled documents outside the sample have a negative grade. No std: their ranks are correlated.

    >>> run, qrels = {"q": {"a": 3, "b": 2, "c": 1}}, {"q": {"a": 0, "b": -1, "c": 1}}
    >>> round(rp.evaluate(qrels, run, "infAP")["infAP"].expected, 3)
    0.333
    """
    groups = groups.sampled or groups
    is_relevant, is_unjudged = groups.grade >= rel, groups.grade < 0
    is_nonrelevant = ~(is_relevant | is_unjudged)
    relevant = groups.relevant(rel).astype(np.float64)
    relevant[relevant == 0] = np.nan
    documents = np.flatnonzero(is_relevant)

    def average(precision: Float) -> Float:
        """(Q,) the sum over the relevant documents of each query, over R."""
        return groups.sum_by_query(groups.doc_query[documents], precision) / relevant

    oblivious = average(_as_listed(groups, is_relevant, is_nonrelevant, documents))
    if groups.alone:
        return replace(Outcomes.certain(oblivious), variance=None)
    m, n, u = (groups.sum_by_group(kind) for kind in (is_relevant, is_nonrelevant, is_unjudged))
    m_before, n_before, u_before = (before(count, groups.query) for count in (m, n, u))
    c = groups.first - 1.0  # ranks above
    group = groups.doc_group[documents]
    a = count_within(group) - 1.0  # relevant documents of the group that are above
    d = (m_before + n_before + u_before)[group] + a  # pooled above, if relevant ones come first

    share = _relevant_share(m_before[group] + a, n_before[group])
    first = _precision(share, d, c[group] + a)
    after_unjudged = _precision(share, d + u[group], c[group] + a + u[group])

    outside = groups.size - m - n - u  # not pooled: above all others in the worst order
    low = _lowest(
        m,
        u.astype(np.int64),
        _relevant_share(m_before[group] + a, (n_before + n)[group]),
        d + n[group],
        (c + outside + n)[group] + a,
        group,
    )

    tied = np.flatnonzero((m > 0) & (groups.size > 1))
    expected = np.zeros(len(groups.size))
    np.add.at(expected, group, first)  # correct for groups of one document
    expected[tied] = _mean(
        np.stack([groups.size, m.astype(np.int64), n.astype(np.int64)])[:, tied],
        np.stack([u, m_before, n_before, u_before, c])[:, tied],
    )
    return Outcomes(
        expected=groups.sum_by_query(groups.query, expected) / relevant,
        min=average(low),
        max=average(np.maximum(first, after_unjudged)),
        oblivious=oblivious,
        variance=None,
    )


def _relevant_share(r: Float, n: Float) -> Float:
    """p: the estimated share of relevant documents in the pool above."""
    return np.asarray((r + EPSILON) / (r + n + 2 * EPSILON))


def _precision(p: Float, d: Float, above: Float) -> Float:
    """f of documents with `above` documents above them, d of these pooled; rounds as trec_eval."""
    share = above / (above + 1.0) * (d / np.maximum(above, 1.0)) * p
    return np.asarray(1.0 / (above + 1.0) + share)


def _as_listed(
    groups: TieGroups, is_relevant: Array, is_nonrelevant: Array, documents: Int
) -> Float:
    """(R,) f of each relevant document under the stated tie-break."""
    counts = (1.0 * is_relevant, 1.0 * is_nonrelevant, np.ones(len(is_relevant)))
    r, n, d = (before(count, groups.doc_query)[documents] for count in counts)
    return _precision(_relevant_share(r, n), d, groups.rank[documents].astype(np.float64) - 1.0)


def _lowest(m: Float, unjudged: Int, p: Float, d: Float, above: Float, group: Int) -> Float:
    """(R,) f of each relevant document in the order of its group with the lowest sum.

    All other documents that are not relevant are above the group's relevant ones; of its pooled
    unjudged ones, the number from 0 to u that makes the sum lowest. `m` and `unjudged` are (G,).
    """
    rows = np.flatnonzero(unjudged[group])
    row_group, rank = group[rows], above[rows] + 1.0
    slope = (rank - d[rows]) * p[rows] - 1.0
    least, most = np.zeros_like(unjudged), np.where(m > 0, unjudged, 0)
    while (is_open := least < most).any():  # bisect for the first number where the sum rises
        half = (least + most) // 2
        k = rank + half[row_group]
        rises = np.bincount(row_group, slope / (k * (k + 1.0)), len(m)) >= 0
        most = np.where(is_open & rises, half, most)
        least = np.where(is_open & ~rises, half + 1, least)
    return _precision(p, d + least[group], above + least[group])


def _mean(counts: Int, before_group: Float) -> Float:
    """(T,) the mean of Σ f over every order of each tied group.

    Rows of `counts` are g, m and the judged nonrelevant n; of `before_group` u of the group itself,
    then what precedes it: relevant, nonrelevant and pooled unjudged documents, and ranks c.
    """
    size, m, n = counts
    u, m_before, n_before, u_before, c = before_group
    judged = m + n  # J
    others = size - judged
    group = np.repeat(np.arange(len(size)), judged)
    s = count_within(group) - 1
    rate = np.where(others > 0, u / np.maximum(others, 1), 0.0)[group]
    r = m_before[group] + s * (m[group] - 1) / np.maximum(judged[group] - 1, 1)
    p = (r + EPSILON) / (m_before[group] + n_before[group] + s + 2 * EPSILON)
    d = m_before[group] + n_before[group] + u_before[group] + s
    inverse = _inverse_ranks(judged, others, c, group, s)
    f = rate * p + (1.0 + (d - (c[group] + 1.0 + s) * rate) * p) * inverse
    return np.asarray(np.bincount(group, m[group] / judged[group] * f, len(size)), np.float64)


def _inverse_ranks(judged: Int, others: Int, c: Float, group: Int, s: Int) -> Float:
    """(S,) h(s): the mean of 1/k of the (s+1)-th judged document of each group."""
    linear = judged - 2 * c - others - 1.0
    root = np.ceil((linear + np.sqrt(linear * linear + 8.0 * judged * c)) / 4.0)
    start = np.clip(root.astype(np.int64) - 1, 0, judged - 1)  # upwards from there errors shrink
    j, above, distance = judged[group], c[group], s - start[group]
    known = np.where(distance == 0, _one_inverse_rank(judged, others, c, start)[group], 0.0)
    longest = int(judged.max(initial=1))
    divisor = np.maximum(s, 1) * (others[group] + 1.0 + s + above)
    upwards = _solve_recurrence(
        np.where(distance > 0, -(j - s) * (above + s) / divisor, 0.0),
        np.where(distance > 0, j / divisor, known),
        longest,
    )
    divisor = np.maximum(j - 1 - s, 1) * (above + 1.0 + s)
    downwards = _solve_recurrence(
        np.where(distance < 0, -(s + 1) * (others[group] + 2.0 + s + above) / divisor, 0.0)[::-1],
        np.where(distance < 0, j / divisor, known)[::-1],
        longest,
    )[::-1]
    return np.where(distance < 0, downwards, upwards)


def _solve_recurrence(factor: Float, term: Float, longest: int) -> Float:
    """(S,) x with x(i) = term(i) + factor(i) · x(i−1), where at most `longest` factors in a row
    are not 0.
    """
    factor, term, step = factor.copy(), term.copy(), 1
    while step < longest:  # each round doubles the number of terms that x(i) includes
        term[step:] += factor[step:] * term[:-step]
        factor[step:] *= factor[:-step]
        step *= 2
    return term


def _one_inverse_rank(judged: Int, others: Int, c: Float, s: Int) -> Float:
    """(T,) h(s) for one s of each group: the mean of 1/k by the weights of all positions."""
    mean = np.empty(len(judged))
    for chosen, column, real in tables(others + 1):
        other, place = others[chosen, None], s[chosen, None]
        divisor = column * (judged[chosen, None] + other - place - column)
        is_next = real & (column > 0)
        ratio = np.where(  # of the weight of a position to that of the one before
            is_next, (place + column) * (other - column + 1) / np.maximum(divisor, 1), 1.0
        )
        logs = np.where(real, np.cumsum(np.log(ratio), axis=1), -np.inf)
        weight = np.exp(logs - logs.max(axis=1, keepdims=True))
        k = c[chosen, None] + place + column + 1.0
        mean[chosen] = row_sum(weight / k) / row_sum(weight)
    return mean
