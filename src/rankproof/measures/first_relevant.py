"""Measures of the first relevant document: reciprocal rank and success.

Only the first group that holds a relevant document matters. Of its g documents m are relevant;
c ranks lie before it. The first relevant one is at position t+1 of the group with probability

    [C(g−m, t) / C(g, t)] · m / (g−t)

where the ratio is kept as a running product, since binomials overflow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankproof.data.ties import TieGroups
from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.measures.hypergeometric import none_drawn
from rankproof.measures.linear import REL, last_listed_rank
from rankproof.measures.outcomes import Outcomes
from rankproof.measures.padded_rows import row_sum, tables
from rankproof.measures.registry import measure


@dataclass(frozen=True, slots=True)
class _FirstGroup:
    """The first group with a relevant document, of each query that has one."""

    query: Int  # (F,)
    before: Int  # (F,) c: ranks before the group
    size: Int  # (F,) g
    relevant: Int  # (F,) m


def _first_relevant_group(groups: TieGroups, rel: int) -> _FirstGroup:
    relevant: Array = groups.grade >= rel
    if not groups.alone:
        relevant = groups.sum_by_group(relevant).astype(np.int64)
    with_relevant = np.flatnonzero(relevant)
    query = groups.query[with_relevant]
    is_first = np.ones(len(with_relevant), np.bool_)
    is_first[1:] = query[1:] != query[:-1]
    at = with_relevant[is_first]
    return _FirstGroup(groups.query[at], groups.first[at] - 1, groups.size[at], 1 * relevant[at])


@measure(
    "RR",
    at="cutoff",
    limits=REL,
    aliases=("MRR", "recip_rank", "reciprocal_rank"),
    meaning="One over the rank of the first relevant passage: 1 where it stands first, 0.5 second.",
    rising=True,
    unjudged="first relevant",
    reads="first",
    splits_ties=True,
)
def reciprocal_rank(groups: TieGroups, cutoff: int | None, rel: int = 1) -> Outcomes:
    """One over the rank of the first relevant document [T 17–21]; 0 if it is not in the top k.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "RR")["RR"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.333, 0.417, 0.5)
    """
    cut = last_listed_rank(groups, cutoff)
    first = _first_relevant_group(groups, rel)
    last = cut[first.query]

    def at(rank: Int) -> Float:
        value = np.zeros(groups.queries)
        value[first.query] = np.where(rank <= last, 1.0 / rank, 0.0)
        return value

    if groups.alone:
        return Outcomes.certain(at(first.before + 1))
    mean = np.zeros(groups.queries)
    square = np.zeros(groups.queries)
    # Positions that the first relevant document can have, as far as they count.
    positions = np.clip(np.minimum(first.size - first.relevant + 1, last - first.before), 0, None)
    for chosen, step, valid in tables(positions):
        g, m, c = (x[chosen, None] for x in (first.size, first.relevant, first.before))
        with np.errstate(divide="ignore", invalid="ignore"):
            missed = np.where(valid, (g - m - step) / (g - step), 0.0)
            chance = np.where(valid, m / (g - step), 0.0)
        chance[:, 1:] *= np.cumprod(missed[:, :-1], axis=1)
        at_rank = chance / (c + step + 1)
        mean[first.query[chosen]] = row_sum(at_rank)
        square[first.query[chosen]] = row_sum(at_rank / (c + step + 1))
    is_relevant = groups.grade >= rel
    oblivious = np.full(groups.queries, np.iinfo(np.int64).max)
    np.minimum.at(oblivious, groups.doc_query[is_relevant], groups.rank[is_relevant])
    return Outcomes(
        expected=mean,
        min=at(first.before + first.size - first.relevant + 1),
        max=at(first.before + 1),
        oblivious=at(oblivious[first.query]),
        variance=square - mean**2,
    )


@measure(
    "Success",
    at="cutoff",
    limits=REL,
    aliases=("success", "hit_rate", "hitrate"),
    meaning="1 where any passage of the top k is relevant, else 0.",
    step=1.0,
    rising=True,
    unjudged="first relevant",
    reads="listed",
    splits_ties=True,
)
def success(groups: TieGroups, cutoff: int, rel: int = 1) -> Outcomes:
    """1 if any of the top k is relevant, else 0: E = 1 − C(g−m, t)/C(g, t), t of g in the top k.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "Success@2")["Success@2"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.0, 0.5, 1.0)
    """
    first = _first_relevant_group(groups, rel)
    last = last_listed_rank(groups, cutoff)

    def any_within(rank: Array) -> Float:
        value = np.zeros(groups.queries)
        value[first.query] = rank <= last[first.query]
        return value

    if groups.alone:
        return Outcomes.certain(any_within(first.before + 1))
    inside = np.clip(last[first.query] - first.before, 0, first.size)
    none_relevant = none_drawn(first.size, first.relevant, inside)
    expected = np.zeros(groups.queries)
    expected[first.query] = 1.0 - none_relevant
    is_relevant: Bool = (groups.grade >= rel) & (groups.rank <= last[groups.doc_query])
    oblivious = np.zeros(groups.queries)
    oblivious[groups.doc_query[is_relevant]] = 1.0
    return Outcomes(
        expected=expected,
        min=any_within(first.before + first.size - first.relevant + 1),
        max=any_within(first.before + 1),
        oblivious=oblivious,
        variance=expected * (1.0 - expected),
    )
