"""Lists that end inside a tie: which of its documents they include is as random as their order.

A list that ends after rank N includes t of the g documents of the tie group at its end. Most
measures read ranks, and ignore those past the end (`splits_ties=True`). Any other measure is
computed for every list that is possible: k_i of the n_i documents of each grade are among the t,

    P(k_1, k_2, …) = Π C(n_i, k_i) / C(g, t),   E[M] = Σ P · E[M | k]

and the lowest and highest value are those over all lists. If a query has too many possible lists,
a sample of them is drawn.
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

_QUERY_CELLS = 1 << 20  # documents in all possible lists of a query
_CALL_CELLS = 1 << 24  # documents in those of all queries
_DRAWN = 256  # lists in a sample, unless these have too many documents
_FEWEST_DRAWN = 8


def split_outcomes(measure: Measure, groups: TieGroups) -> Outcomes:
    """Compute a measure with `splits_ties=False` for lists that may end inside a tie."""
    base = deciding_groups(groups, measure)
    base = base.chosen(base.first <= base.listed[base.query])
    is_split = np.zeros(base.queries, np.bool_)
    is_split[base.query[base.first + base.size - 1 > base.listed[base.query]]] = True
    if not is_split.any():
        return measure.outcomes(base)
    unsplit, split = np.flatnonzero(~is_split), np.flatnonzero(is_split)
    only_split = select_queries(base, split)
    parts = [measure.outcomes(select_queries(base, unsplit))]
    cells = min(_QUERY_CELLS, _CALL_CELLS // len(split))
    for number in range(len(split)):
        lists = _possible_lists(select_queries(only_split, np.array([number])), cells)
        parts.append(_combine(lists, measure.outcomes(lists.groups)))
    order = np.argsort(np.concatenate([unsplit, split]), kind="stable")
    return Outcomes.concatenate(parts).select(order)


@dataclass(frozen=True, slots=True)
class _PossibleLists:
    """The L lists that a query can have, by which documents of the tie at its end it includes."""

    groups: TieGroups  # one query per list; one more, at the end, for the stated tie-break
    chance: Float  # (L,)
    key: int  # seed of the query's random draws
    is_drawn: bool  # True if the lists are a sample


def _possible_lists(query: TieGroups, cells: int) -> _PossibleLists:
    """Return the possible lists of one query; a sample if all have more documents than `cells`."""
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
    included = [*(np.repeat(grades, draw[:-1]) for draw in draws), stated]
    ranks = [query.first[end] + np.arange(len(grade)) for grade in included[:-1]]
    ranks.append(query.rank[documents][query.rank[documents] <= query.listed[0]])
    return _PossibleLists(_with_endings(query, t, included, ranks), chance, key, is_drawn)


def _every_draw(counts: Int, drawn: int) -> tuple[Int, Float]:
    """(L, kinds) every possible number of documents of each kind among `drawn`; (L,) its chance."""
    most = (np.minimum(counts[:-1], drawn) + 1).tolist()
    first = np.indices(most).reshape(len(most), -1).T
    draws = np.column_stack([first, drawn - first.sum(axis=1)])
    draws = draws[(draws[:, -1] >= 0) & (draws[:, -1] <= counts[-1])]
    logs = log_factorials(int(counts.max()))
    ways = (logs[counts] - logs[draws] - logs[counts - draws]).sum(axis=1)
    chance = np.exp(ways - ways.max())
    return draws, chance / chance.sum()


def _with_endings(query: TieGroups, size: int, grades: list[Int], ranks: list[Int]) -> TieGroups:
    """Return copies of one query whose last group has `size` documents, judged as in `grades`.

    `grades` and `ranks` have one array per copy, for the judged documents of its last group.
    """
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


def _combine(lists: _PossibleLists, outcomes: Outcomes) -> Outcomes:
    """Return the outcomes of one query from those of its possible lists."""
    chance, by_list = lists.chance, outcomes.select(np.arange(len(lists.chance)))
    mean = float(chance @ by_list.expected)
    variance = None
    if by_list.variance is not None:
        variance = np.array([chance @ (by_list.variance + (by_list.expected - mean) ** 2)])
    sampling = None
    if lists.is_drawn or by_list.sampling is not None:
        error = 0.0 if by_list.sampling is None else chance @ by_list.sampling.error
        orders = len(chance) if by_list.sampling is None else int(by_list.sampling.orders.max())
        if lists.is_drawn:
            error += float(by_list.expected.std(ddof=1)) / np.sqrt(len(chance))
        sampling = Sampling(np.array([error]), np.array([orders]), np.array([lists.key]))
    return Outcomes(
        expected=np.array([mean]),
        min=np.array([by_list.min.min()]),
        max=np.array([by_list.max.max()]),
        oblivious=outcomes.oblivious[-1:],
        variance=variance,
        sampling=sampling,
        powers=None if by_list.powers is None else (chance @ by_list.powers)[None],
    )
