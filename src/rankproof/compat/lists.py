"""A dict of dicts, in one order of its ties, straight to tie groups.

Of a run of a million rows a measure needs the ranks of the judged documents and nothing of the
others but their scores. So no id is turned into a column: the judged ones are looked up in the
dicts, and all scores are sorted once, as numbers that hold query and score.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from rankproof.arrays import Array, Float, Int
from rankproof.measures.ragged import tables
from rankproof.ties import TieGroups, pool_of

_FEW = 1000  # judged documents in ties that are put into order one by one


def settled(
    run: Mapping[str, Mapping[str, Any]], qrels: Mapping[str, Mapping[str, Any]]
) -> tuple[list[str], TieGroups] | None:
    """The queries that both have, ascending, and their groups: one document each, at its rank.

    Scores are compared as float32, ties go by id descending. None where that is not all there is to
    it: what is no number, many ties, ids that are no text. The long way then says what is wrong.
    """
    queries = [query for query in run if query in qrels]
    try:
        queries.sort()
        lists = [run[query] for query in queries]
        sizes = np.fromiter(map(len, lists), np.int64, len(lists))
        values = chain.from_iterable(listed.values() for listed in lists)
        score = np.fromiter(values, np.float64, int(sizes.sum()))
        judged = [qrels[query] for query in queries]
        counts = np.fromiter(map(len, judged), np.int64, len(judged))
        total = int(counts.sum())
        grade = np.fromiter(chain.from_iterable(j.values() for j in judged), np.int64, total)
        pairs = zip(lists, judged, strict=True)
        held = np.array(list(chain.from_iterable(map(x.get, j) for x, j in pairs)), np.float64)
        texts = set(map(type, chain(queries, chain.from_iterable(judged)))) == {str}
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    if not len(score) or not texts or np.isnan(score).any():
        return None
    owner = np.repeat(np.arange(len(lists)), counts)
    found = ~np.isnan(held)  # None became NaN
    known = grade >= 0
    pool = pool_of(owner[known], grade[known], len(lists), int(grade.max(initial=0)))
    found &= known
    of = owner[found]
    keys = _keys(np.repeat(np.arange(len(lists)), sizes), _sorted(score, sizes))
    wanted = _keys(of, _narrow(held[found]))
    after = np.searchsorted(keys, wanted, side="right")
    tied = after - np.searchsorted(keys, wanted)
    rank = np.cumsum(sizes)[of] - after + 1
    several = np.flatnonzero(tied > 1)
    if len(several) > _FEW:
        return None
    if len(several):
        docs = np.array(list(chain.from_iterable(judged)), dtype=object)[found]
        rank[several] += _above(lists, of, docs, score, sizes, several)
    by_rank = np.lexsort((rank, of))
    one = np.ones(len(of), np.int64)
    return queries, TieGroups(
        listed=sizes,
        size=one,
        first=rank[by_rank],
        query=of[by_rank],
        start=np.arange(len(of) + 1),
        grade=grade[found][by_rank],
        rank=rank[by_rank],
        pool=pool,
    )


def _narrow(score: Float) -> Array:
    """As float32, in which −0 is 0."""
    with np.errstate(over="ignore"):
        return score.astype(np.float32) + np.float32(0)


def _sorted(score: Float, sizes: Int) -> Array:
    """The scores of each list as float32, ascending: short sorts, side by side."""
    narrow = _narrow(score)
    if (sizes == sizes[0]).all():
        narrow.reshape(len(sizes), -1).sort(axis=1)
        return narrow
    begin = np.cumsum(sizes) - sizes
    for chosen, column, real in tables(sizes):
        row = np.where(real, begin[chosen, None] + column, 0)
        table = np.where(real, narrow[row], np.float32(np.inf))
        table.sort(axis=1)
        narrow[row[real]] = table[real]
    return narrow


def _keys(query: Int, narrow: Array) -> Int:
    """Query and score as one number, in the order of both."""
    bits = narrow.view(np.int32).astype(np.int64)
    ordered = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return np.asarray((query << 33) + ordered + (1 << 32))


def _above(lists: Any, of: Int, docs: Any, score: Any, sizes: Int, several: Int) -> Int:
    """(S,) how many documents that tie with each have a greater id."""
    start = np.cumsum(sizes) - sizes
    narrow = _narrow(score)
    counted = np.zeros(len(several), np.int64)
    for at, row in enumerate(several):
        query = int(of[row])
        listed = lists[query]
        own = docs[row]
        mine = narrow[start[query] : start[query] + sizes[query]]
        same = np.flatnonzero(mine == np.float32(listed[own])).tolist()
        names = list(listed)
        counted[at] = sum(names[place] > own for place in same)
    return counted
