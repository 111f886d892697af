"""A dict of dicts, in one order of its ties, straight to tie groups.

Of a run of a million rows a measure needs the ranks of the judged documents and nothing of the
others but their scores. So no id is turned into a column: the judged ones are looked up in the
dicts, and the scores of each list are sorted, to find how many are higher.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from rankproof import kernels
from rankproof.arrays import Array, Float, Int
from rankproof.measures.ragged import tables
from rankproof.ties import Pool, TieGroups, pool_of

_FEW = 1000  # judged documents in ties that are put into order one by one


class _Found(NamedTuple):
    """Judged documents, and where they stand."""

    queries: list[str]  # Q that both have
    listed: Int  # (Q,) documents of each
    judged: Int  # (Q,)
    grade: Int  # (J,) query by query
    query: Int  # (F,) of those that are listed, by rank
    rank: Int  # (F,)
    held: Int  # (F,) grade


def settled(
    run: Mapping[str, Mapping[str, Any]],
    qrels: Mapping[str, Mapping[str, Any]],
    order: Literal["trec_eval", "input"] = "trec_eval",
) -> tuple[list[str], TieGroups] | None:
    """The queries that both have, as the run has them, and their groups: one document each.

    With trec_eval's order scores are compared as float32 and ties go by id descending; else they
    are compared as they are and ties stand as they are listed. None where that is not all there is
    to it: what is not a number, many ties, ids that are not text. The long way then says what.
    """
    found = _compiled(run, qrels, order) or _plain(run, qrels, order)
    if found is None:
        return None
    queries, sizes, counts, grade, owner, rank, held = found
    top, known = int(grade.max(initial=0)), grade.min(initial=0) >= 0
    if known:
        pool = Pool(np.append(0, np.cumsum(counts)), top, grade)
    else:
        of, judged = np.repeat(np.arange(len(sizes)), counts), grade >= 0
        pool = pool_of(of[judged], grade[judged], len(sizes), top)

    def groups(owner: Int, rank: Int, grade: Int, sampled: TieGroups | None) -> TieGroups:
        return TieGroups(
            listed=sizes,
            size=np.broadcast_to(np.int64(1), len(rank)),
            first=rank,
            query=owner,
            start=np.arange(len(rank) + 1),
            grade=grade,
            rank=rank,
            pool=pool,
            sampled=sampled,
        )

    if known:
        return queries, groups(owner, rank, held, None)
    every = groups(owner, rank, np.maximum(held, -1), None)
    mine = held >= 0
    return queries, groups(owner[mine], rank[mine], held[mine], every)


def nested(queries: list[Any], docs: list[Any], values: list[Any]) -> dict[Any, dict[Any, Any]]:
    """Three columns as a dict of dicts; of a document that comes twice, the last value."""
    found: dict[Any, dict[Any, Any]] = {}
    begins = [0, *(at for at, (a, b) in enumerate(pairwise(queries), 1) if a is not b and a != b)]
    for first, last in pairwise([*begins, len(queries)] if queries else []):
        rows = zip(docs[first:last], values[first:last], strict=True)
        found.setdefault(queries[first], {}).update(rows)
    return found


def _compiled(run: Any, qrels: Any, order: str) -> _Found | None:
    if kernels.native is None or not (isinstance(run, dict) and isinstance(qrels, dict)):
        return None
    by_id = order == "trec_eval"
    found = kernels.native.settle(run, qrels, by_id, by_id)
    if found is None:
        return None
    return _Found(found[0], *(np.frombuffer(column, np.int64) for column in found[1:]))


def _plain(run: Any, qrels: Any, order: str) -> _Found | None:
    """`_compiled` in numpy; None where many tie."""
    queries = [query for query in run if query in qrels]
    try:
        lists, judged = (list(map(table.__getitem__, queries)) for table in (run, qrels))
        sizes, counts = (np.fromiter(map(len, x), np.int64, len(x)) for x in (lists, judged))
    except (TypeError, AttributeError):
        return None
    if not queries or set(map(type, queries)) != {str}:
        return None
    try:
        values = chain.from_iterable(listed.values() for listed in lists)
        score = np.fromiter(values, np.float64, int(sizes.sum()))
        total = int(counts.sum())
        grade = np.fromiter(chain.from_iterable(j.values() for j in judged), np.int64, total)
        pairs = zip(lists, judged, strict=True)
        held = np.array(list(chain.from_iterable(map(x.get, j) for x, j in pairs)), np.float64)
        texts = set(map(type, chain.from_iterable(judged))) <= {str}
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    if not texts or np.isnan(score).any():
        return None
    listed = np.flatnonzero(~np.isnan(held))  # None became NaN
    of = np.repeat(np.arange(len(lists)), counts)[listed]
    score, wanted = (_narrow(x) if order == "trec_eval" else x for x in (score, held[listed]))
    first = np.cumsum(sizes) - sizes
    ascending = _sorted(score, sizes)
    below, up_to = (_search(ascending, first[of], sizes[of], wanted, side) for side in (0, 1))
    place = sizes[of] - up_to + 1
    several = np.flatnonzero(up_to - below > 1)
    if len(several) > _FEW:
        return None
    if len(several):
        docs = np.array(list(chain.from_iterable(judged)), dtype=object)[listed]
        place[several] += _before(lists, of, docs, score, first, several, order == "input")
    by_rank = np.lexsort((place, of))
    found = of[by_rank], place[by_rank], grade[listed[by_rank]]
    return _Found(queries, sizes, counts, grade, *found)


def _narrow(score: Float) -> Array:
    """As float32, in which −0 is 0."""
    with np.errstate(over="ignore"):
        return score.astype(np.float32) + np.float32(0)


def _sorted(score: Array, sizes: Int) -> Array:
    """The scores of each list, ascending: short sorts, side by side."""
    ascending = score.copy()
    if (sizes == sizes[0]).all() and len(score):
        ascending.reshape(len(sizes), -1).sort(axis=1)
        return ascending
    begin = np.cumsum(sizes) - sizes
    for chosen, column, real in tables(sizes):
        row = np.where(real, begin[chosen, None] + column, 0)
        table = np.where(real, score[row], score.dtype.type(np.inf))
        table.sort(axis=1)
        ascending[row[real]] = table[real]
    return ascending


def _search(ascending: Array, first: Int, size: Int, wanted: Array, above: int) -> Int:
    """(W,) how many scores of its list lie below each one wanted; with `above`, or are equal."""
    low, high = np.zeros_like(size), size.copy()
    for _ in range(int(size.max(initial=0)).bit_length()):
        middle = (low + high) // 2
        here = ascending[np.minimum(first + middle, len(ascending) - 1)]
        passed = (here <= wanted if above else here < wanted) & (low < high)
        low, high = np.where(passed, middle + 1, low), np.where(passed, high, middle)
    return low


def _before(
    lists: Any, of: Int, docs: Any, score: Array, first: Int, several: Int, listed: bool
) -> Int:
    """(S,) how many documents that tie with each come first: by id, or as they are listed."""
    counted = np.zeros(len(several), np.int64)
    for at, row in enumerate(several):
        own, begin = docs[row], int(first[of[row]])
        names = list(lists[of[row]])
        place = names.index(own)
        mine = score[begin : begin + len(names)]
        same = np.flatnonzero(mine == mine[place]).tolist()
        counted[at] = sum(other < place if listed else names[other] > own for other in same)
    return counted
