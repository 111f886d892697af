"""Inferred average precision: what AP would be, were all of a sampled pool judged.

A relevant document at rank k, below r relevant and n other judged documents and d documents of the
pool, judged or not, is worth the precision that is to be expected at its rank:

    f = 1/k + (d/k) · p,   p = (r + ε)/(r + n + 2ε),   ε = 0.00001 as trec_eval has it

What is outside the pool counts as not relevant. Documents that were pooled and not judged, those of
negative grade in TREC's files, count as relevant as often as the judged ones above.

In a group of g ties, m of its J judged documents relevant and u others pooled, each relevant one is
equally likely the (s+1)-th judged one, s = 0 … J−1, and has s(m−1)/(J−1) relevant ones above on
average, whatever the ranks. Its position i in the group has the weight C(i−1, s) · C(g−i, J−1−s),
and (i−1−s) · u/(g−J) pooled ones stand above it, so that the mean of f needs that of 1/k alone.
With c ranks above the group, those of neighbours hang together, as their weights do:

    (s+1)(g − J + 2 + s + c) · h(s+1) = J − (J−1−s)(c+1+s) · h(s),   h(s) = E[1/k]

Errors shrink from some s on as it is followed upwards, and below it as it is followed downwards:
the h of that s is summed, and all others follow from it.

The rank less d is the same for all of a group, t, wherever its pooled documents stand, and
f = p + (1 − t·p)/k: pooled ones above raise f where t·p > 1, and p rises down the group. So the
best order puts them between the relevant documents that they would harm and those they help; the
worst puts them all in one place, before the same relevant documents. 1 − t·p changes its sign once
down the group, so that the sum falls and then rises with how many stand there: 1/(k(k+1)) is
totally positive, and makes of one change of sign no more than one.
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
    """Inferred average precision: AP of a pool of which a sample was judged; others are negative.

    No std: documents that were pooled and not judged hang together.

    >>> run, qrels = {"q": {"a": 3, "b": 2, "c": 1}}, {"q": {"a": 0, "b": -1, "c": 1}}
    >>> round(rp.evaluate(qrels, run, "infAP")["infAP"].expected, 3)
    0.333
    """
    groups = groups.sampled or groups
    good, pooled = groups.grade >= rel, groups.grade < 0
    bad = ~(good | pooled)
    relevant = groups.relevant(rel).astype(np.float64)
    relevant[relevant == 0] = np.nan
    chosen = np.flatnonzero(good)

    def total(value: Array) -> Float:
        return groups.sum_by_query(groups.doc_query[chosen], value) / relevant

    oblivious = total(_as_listed(groups, good, bad, chosen))
    if groups.alone:
        return replace(Outcomes.certain(oblivious), variance=None)
    m, n, u = (groups.sum_by_group(kind) for kind in (good, bad, pooled))
    held = m.astype(np.int64)
    r, others, unknown = (before(count, groups.query) for count in (m, n, u))
    c = groups.first - 1.0  # ranks above
    group = groups.doc_group[chosen]
    a = count_within(group) - 1.0  # relevant ones of the group above
    d = (r + others + unknown)[group] + a  # of the pool above, where relevant ones lead

    sure = _chance(r[group] + a, others[group])
    first = _precision(sure, d, c[group] + a)
    high = np.maximum(first, _precision(sure, d + u[group], c[group] + a + u[group]))

    free = groups.size - m - n - u  # neither judged nor pooled: above all others at the worst
    low = _lowest(
        held,
        u.astype(np.int64),
        _chance(r[group] + a, (others + n)[group]),
        d + n[group],
        (c + free + n)[group] + a,
        group,
    )

    tied = np.flatnonzero((held > 0) & (groups.size > 1))
    expected = np.zeros(len(groups.size))
    np.add.at(expected, group, first)  # right where nothing ties
    expected[tied] = _mean(
        np.stack([groups.size, held, n.astype(np.int64)])[:, tied],
        np.stack([u, r, others, unknown, c])[:, tied],
    )
    return Outcomes(
        expected=groups.sum_by_query(groups.query, expected) / relevant,
        min=total(low),
        max=total(high),
        oblivious=oblivious,
        variance=None,
    )


def _chance(r: Float, n: Float) -> Float:
    """p: how likely a pooled document above is relevant."""
    return np.asarray((r + EPSILON) / (r + n + 2 * EPSILON))


def _precision(p: Float, d: Float, above: Float) -> Float:
    """f of documents with so many above them, d of these pooled, in trec_eval's own steps."""
    share = above / (above + 1.0) * (d / np.maximum(above, 1.0)) * p
    return np.asarray(1.0 / (above + 1.0) + share)


def _as_listed(groups: TieGroups, good: Array, bad: Array, chosen: Int) -> Float:
    """(R,) f of each relevant document under the stated tie-break."""
    everyone = np.ones(len(good))
    r, n, d = (before(x, groups.doc_query)[chosen] for x in (1.0 * good, 1.0 * bad, everyone))
    return _precision(_chance(r, n), d, groups.rank[chosen].astype(np.float64) - 1.0)


def _lowest(held: Int, pooled: Int, p: Float, d: Float, above: Float, group: Int) -> Float:
    """(R,) f of each where so many of 0 … u pooled documents stand before the relevant ones of a
    group that the sum is least.
    """
    some = np.flatnonzero(pooled[group])
    of, rank = group[some], above[some] + 1.0
    harm = (rank - d[some]) * p[some] - 1.0
    least, most = np.zeros_like(pooled), np.where(held > 0, pooled, 0)
    while (unsure := least < most).any():  # where the sum begins to rise is found by halves
        half = (least + most) // 2
        k = rank + half[of]
        rises = np.bincount(of, harm / (k * (k + 1.0)), len(held)) >= 0
        most = np.where(unsure & rises, half, most)
        least = np.where(unsure & ~rises, half + 1, least)
    return _precision(p, d + least[group], above + least[group])


def _mean(counts: Int, above: Float) -> Float:
    """(T,) the mean of Σ f over every order of each group."""
    size, held, n = counts
    u, r, others, unknown, c = above
    judged = held + n  # J
    free = size - judged
    at = np.repeat(np.arange(len(size)), judged)
    s = count_within(at) - 1
    rate = np.where(free > 0, u / np.maximum(free, 1), 0.0)[at]
    upper = r[at] + s * (held[at] - 1) / np.maximum(judged[at] - 1, 1)
    p = (upper + EPSILON) / (r[at] + others[at] + s + 2 * EPSILON)
    d = r[at] + others[at] + unknown[at] + s
    inverse = _inverse_ranks(judged, free, c, at, s)
    f = rate * p + (1.0 + (d - (c[at] + 1.0 + s) * rate) * p) * inverse
    return np.asarray(np.bincount(at, held[at] / judged[at] * f, len(size)), np.float64)


def _inverse_ranks(judged: Int, free: Int, c: Float, at: Int, s: Int) -> Float:
    """(S,) h(s): the mean of 1/k of the (s+1)-th judged document of each group."""
    other = judged - 2 * c - free - 1.0
    root = np.ceil((other + np.sqrt(other * other + 8.0 * judged * c)) / 4.0)
    turn = np.clip(root.astype(np.int64) - 1, 0, judged - 1)  # upwards from there errors shrink
    j, ahead, begun = judged[at], c[at], s - turn[at]
    known = np.where(begun == 0, _one_inverse_rank(judged, free, c, turn)[at], 0.0)
    longest = int(judged.max(initial=1))
    below = np.maximum(s, 1) * (free[at] + 1.0 + s + ahead)
    up = _followed(
        np.where(begun > 0, -(j - s) * (ahead + s) / below, 0.0),
        np.where(begun > 0, j / below, known),
        longest,
    )
    below = np.maximum(j - 1 - s, 1) * (ahead + 1.0 + s)
    down = _followed(
        np.where(begun < 0, -(s + 1) * (free[at] + 2.0 + s + ahead) / below, 0.0)[::-1],
        np.where(begun < 0, j / below, known)[::-1],
        longest,
    )[::-1]
    return np.where(begun < 0, down, up)


def _followed(factor: Float, term: Float, longest: int) -> Float:
    """(S,) x where x(i) = term(i) + factor(i) · x(i−1); of no more than so many in a row."""
    factor, term, step = factor.copy(), term.copy(), 1
    while step < longest:  # over twice as many each time
        term[step:] += factor[step:] * term[:-step]
        factor[step:] *= factor[:-step]
        step *= 2
    return term


def _one_inverse_rank(judged: Int, free: Int, c: Float, s: Int) -> Float:
    """(T,) h of one s of each group, by the weights of its positions."""
    found = np.empty(len(judged))
    for chosen, column, real in tables(free + 1):
        left, place = free[chosen, None], s[chosen, None]
        below = column * (judged[chosen, None] + left - place - column)
        grows = real & (column > 0)  # from one position to the next
        step = np.where(grows, (place + column) * (left - column + 1) / np.maximum(below, 1), 1.0)
        logs = np.where(real, np.cumsum(np.log(step), axis=1), -np.inf)
        weight = np.exp(logs - logs.max(axis=1, keepdims=True))
        k = c[chosen, None] + place + column + 1.0
        found[chosen] = row_sum(weight / k) / row_sum(weight)
    return found
