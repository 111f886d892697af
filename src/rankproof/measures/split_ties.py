"""Lists that end inside a tie: which of its documents are in the list is as random as their order.

A list that ends after rank N keeps t of the g documents of the tie group at its end. Most measures
read ranks, and ignore those past the end (`splits_ties=True`). Of any other measure, each number of
documents of each grade among the t makes a list of its own, whose tie at the end has t documents:

    P(k_1, k_2, …) = Π C(n_i, k_i) / C(g, t),   E[M] = Σ P · E[M | k],   lowest and highest alike

Where a query has too many of them, some are drawn at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rankproof.data.ties import Pool, TieGroups
from rankproof.foundation.arrays import Float, Int
from rankproof.measures.hypergeometric import log_factorials
from rankproof.measures.outcomes import Outcomes, Sampling
from rankproof.measures.random_orders import content_key, deciding_groups, select_queries

if TYPE_CHECKING:
    from rankproof.measures.registry import Measure

_QUERY_CELLS = 1 << 20  # documents in all lists of a query
_CALL_CELLS = 1 << 24  # in those of all queries
_DRAWN = 256  # lists drawn of a query that has more, if these are not too many
_FEWEST_DRAWN = 8


def split_outcomes(measure: Measure, groups: TieGroups) -> Outcomes:
    """Compute a measure that cannot read a part of a tie, for lists that may end inside one."""
    base = deciding_groups(groups, measure)
    base = base.chosen(base.first <= base.listed[base.query])
    is_split = np.zeros(base.queries, np.bool_)
    is_split[base.query[base.first + base.size - 1 > base.listed[base.query]]] = True
    if not is_split.any():
        return measure.outcomes(base)
    whole, split = np.flatnonzero(~is_split), np.flatnonzero(is_split)
    only_split = select_queries(base, split)
    parts = [measure.outcomes(select_queries(base, whole))]
    cells = min(_QUERY_CELLS, _CALL_CELLS // len(split))
    for number in range(len(split)):
        lists = _lists_of(select_queries(only_split, np.array([number])), cells)
        parts.append(_combine(lists, measure.outcomes(lists.groups)))
    order = np.argsort(np.concatenate([whole, split]), kind="stable")
    return Outcomes.concatenate(parts).select(order)


@dataclass(frozen=True, slots=True)
class _Lists:
    """What a query's list can be, one query each; the last is that of the stated tie-break."""

    groups: TieGroups
    chance: Float  # (L − 1,)
    key: int  # of the query
    is_drawn: bool  # True if these are a sample


def _lists_of(query: TieGroups, cells: int) -> _Lists:
    """Return the lists that the tie at the end of one query's list allows.

    If they have more documents than `cells`, some are drawn.
    """
    end = len(query.size) - 1
    documents = slice(int(query.start[end]), int(query.start[end + 1]))
    tied = query.grade[documents]
    grades, counts = np.unique(tied, return_counts=True)
    counts = np.append(counts, query.size[end] - len(tied))
    t = int(query.listed[0] - query.first[end] + 1)
    key = content_key(query)
    most = cells // (len(query.grade) + len(query.pool.unsorted))
    is_drawn = bool(np.prod(np.minimum(counts[:-1], t) + 1.0) > most)
    if is_drawn:
        lists = int(np.clip(most, _FEWEST_DRAWN, _DRAWN))
        draws = np.random.default_rng(key).multivariate_hypergeometric(counts, t, lists)
        chance = np.full(lists, 1.0 / lists)
    else:
        draws, chance = _every_draw(counts, t)
    stated = tied[query.rank[documents] <= query.listed[0]]
    kept = [*(np.repeat(grades, draw[:-1]) for draw in draws), stated]
    ranks = [query.first[end] + np.arange(len(grade)) for grade in kept[:-1]]
    ranks.append(query.rank[documents][query.rank[documents] <= query.listed[0]])
    return _Lists(_with_endings(query, t, kept, ranks), chance, key, is_drawn)


def _every_draw(counts: Int, drawn: int) -> tuple[Int, Float]:
    """(L, kinds) how many of each kind are among the drawn, and (L,) the chance of each."""
    most = (np.minimum(counts[:-1], drawn) + 1).tolist()
    first = np.indices(most).reshape(len(most), -1).T
    draws = np.column_stack([first, drawn - first.sum(axis=1)])
    draws = draws[(draws[:, -1] >= 0) & (draws[:, -1] <= counts[-1])]
    logs = log_factorials(int(counts.max()))
    ways = (logs[counts] - logs[draws] - logs[counts - draws]).sum(axis=1)
    chance = np.exp(ways - ways.max())
    return draws, chance / chance.sum()


def _with_endings(query: TieGroups, size: int, grades: list[Int], ranks: list[Int]) -> TieGroups:
    """Return copies of one query whose last group has `size` documents, judged ones as given."""
    end = len(query.size) - 1
    before = int(query.start[end])
    copies = len(grades)
    judged = [np.append(query.judged[:end], len(grade)) for grade in grades]
    has_judged = np.concatenate(judged) > 0  # only the last group of a copy may have none

    def column(values: Int, last: int) -> Int:
        return np.tile(np.append(values[:end], last), copies)[has_judged]

    pooled = len(query.pool.unsorted)
    pool = Pool(
        np.arange(copies + 1) * pooled, query.pool.max_grade, np.tile(query.pool.unsorted, copies)
    )
    return TieGroups(
        listed=np.repeat(query.listed, copies),
        size=column(query.size, size),
        first=column(query.first, int(query.first[end])),
        query=np.repeat(np.arange(copies), end + 1)[has_judged],
        start=np.append(0, np.cumsum(np.concatenate(judged)[has_judged])),
        grade=np.concatenate([np.append(query.grade[:before], grade) for grade in grades]),
        rank=np.concatenate([np.append(query.rank[:before], rank) for rank in ranks]),
        pool=pool,
    )


def _combine(lists: _Lists, outcomes: Outcomes) -> Outcomes:
    """Return the outcomes of one query from those of the lists that it can have."""
    chance, each = lists.chance, outcomes.select(np.arange(len(lists.chance)))
    mean = float(chance @ each.expected)
    variance = None
    if each.variance is not None:
        variance = np.array([chance @ (each.variance + (each.expected - mean) ** 2)])
    sampling = None
    if lists.is_drawn or each.sampling is not None:
        error = 0.0 if each.sampling is None else chance @ each.sampling.error
        orders = len(chance) if each.sampling is None else int(each.sampling.orders.max())
        if lists.is_drawn:
            error += float(each.expected.std(ddof=1)) / np.sqrt(len(chance))
        sampling = Sampling(np.array([error]), np.array([orders]), np.array([lists.key]))
    return Outcomes(
        expected=np.array([mean]),
        min=np.array([each.min.min()]),
        max=np.array([each.max.max()]),
        oblivious=outcomes.oblivious[-1:],
        variance=variance,
        sampling=sampling,
        powers=None if each.powers is None else (chance @ each.powers)[None],
    )
