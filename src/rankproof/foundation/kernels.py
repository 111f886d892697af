"""The inner loops over all rows, each twice: compiled, and in polars or numpy.

The compiled one (`_native.c`) is used where it was built; `RANKPROOF_NATIVE=0` in the environment
turns it off. Both give the same arrays to the last bit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import polars as pl

from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.lines import CORES, compiled

if TYPE_CHECKING:
    from rankproof.foundation._native import Strings

Ids: TypeAlias = "pl.Series | Strings"  # text: polars', or as the compiled reader has it

native: Any = compiled()  # None where it was not built

MANY = 1_000_000  # rows of a run that take seconds without compiled code

_A = TypeVar("_A")
_T = TypeVar("_T")

THREADS = CORES
_SMALL = 100_000  # rows below which a second thread costs more than it saves


def warn_if_slow(rows: int) -> None:
    """Write a line to stderr, once, where a run this long is read without compiled code."""
    if native is None and rows >= MANY:
        _warn_of_interpreted_code()


@cache
def _warn_of_interpreted_code() -> None:
    # The logger writes the line for Python's users too, who can turn it off.
    logging.getLogger("rankproof").warning(
        "rankproof: runs of a million rows take about 7 times as long without compiled code; "
        "`rankproof doctor` says how to get it"
    )


def in_threads(work: Callable[[int, int], _T], count: int, parts: int) -> list[_T]:
    """`work(first, last)` over [0, count) in that many pieces, or as many as there are threads."""
    parts = min(parts, THREADS, count)
    if parts <= 1:
        return [work(0, count)]
    cuts = [count * i // parts for i in range(parts + 1)]
    with ThreadPoolExecutor(parts) as pool:
        return list(pool.map(work, cuts[:-1], cuts[1:]))


def pieces(rows: int) -> int:
    """Into how many pieces work on so many rows is worth cutting."""
    return THREADS if rows >= _SMALL else 1


def each(work: Callable[[_A], _T], items: Sequence[_A], rows: int) -> list[_T]:
    """`work` of each item, on so many rows; several at a time where that is worth it."""
    parts = min(pieces(rows), len(items))
    if parts <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(parts) as pool:
        return list(pool.map(work, items))


def is_compiled(ids: Ids) -> bool:
    """Whether a column of text is as the compiled reader has it."""
    return native is not None and type(ids) is native.Strings


def series(ids: Any, name: str) -> pl.Series:
    """A column of text as polars', without copying."""
    return pl.Series(name, ids, dtype=pl.String) if is_compiled(ids) else ids


def whole(ids: Any) -> Any:
    """Ids in one piece, as compiled code takes them."""
    return ids if is_compiled(ids) else ids.rechunk()


def _starts(codes: Array, queries: int) -> Int | None:
    """Offsets (Q+1,) where each query's rows stand together in order of `codes`, else None."""
    if native is not None:
        start = np.empty(queries + 1, np.int64)
        return start if native.starts(np.ascontiguousarray(codes, np.int32), start) else None
    begins = np.append(0, np.flatnonzero(codes[1:] != codes[:-1]) + 1)[: len(codes)]
    in_order = np.array_equal(codes[begins], np.arange(queries))
    return np.append(begins, len(codes)) if in_order else None


def group(codes: Array, queries: int) -> tuple[Int, Int | None]:
    """Bring each query's rows together: offsets (Q+1,), and the rows in that order.

    The rows are None where each query's rows already stand together in order of `codes`.
    """
    start = _starts(codes, queries)
    if start is not None:
        return start, None
    start = np.empty(queries + 1, np.int64)
    if native is not None:
        rows = np.empty(len(codes), np.int64)
        native.group(np.ascontiguousarray(codes, np.int32), start, rows)
        return start, rows
    start[0] = 0
    np.cumsum(np.bincount(codes, minlength=queries), out=start[1:])
    return start, np.argsort(codes, kind="stable")


def together(codes: Array, queries: int, doc: Any, value: Array) -> tuple[Int, Any, Array]:
    """`group` done: offsets (Q+1,), documents and values in that order."""
    if native is None or not is_compiled(doc):
        start, rows = group(codes, queries)
        return (start, doc, value) if rows is None else (start, doc.gather(rows), value[rows])
    in_order = _starts(codes, queries)
    if in_order is not None:
        return in_order, doc, value
    codes, value = np.ascontiguousarray(codes, np.int32), np.ascontiguousarray(value)
    into, to = doc.like(len(doc)), np.empty_like(value)

    def counted(first: int, last: int) -> tuple[int, int, Int]:
        own = np.empty(queries + 1, np.int64)
        native.group(codes[first:last], own, None)
        return first, last, np.diff(own)

    parts = in_threads(counted, len(codes), pieces(len(codes)))
    start = np.zeros(queries + 1, np.int64)
    np.cumsum(sum(count for *_, count in parts), out=start[1:])
    begins = np.cumsum([start[:-1], *(count for *_, count in parts)], axis=0)

    def moved(number: int) -> None:
        first, last, _ = parts[number]
        native.scatter(codes, begins[number], begins[number + 1], value, doc, to, into, first, last)

    each(moved, range(len(parts)), len(codes))
    return start, into, to


_CONTROL = r"[\x00-\x1f\x7f-\x9f]"


def first_unfit(ids: pl.Series) -> int | None:
    """The first id that is missing, empty, or holds a control character (U+0000–1F, U+007F–9F)."""
    if native is not None and not ids.null_count():
        before = 0
        for chunk in ids.get_chunks():
            found: int = native.first_unfit(chunk)
            if found >= 0:
                return before + found
            before += len(chunk)
        return None
    unfit = ids.is_null() | (ids == "") | ids.str.contains(_CONTROL)
    return int(unfit.arg_max() or 0) if unfit.any() else None


@dataclass(frozen=True, slots=True)
class Index:
    """Where each document stands in its query's list; a hash table per query."""

    slot_start: Int  # (Q+1,) query q owns slots[slot_start[q]:slot_start[q+1]]
    slots: Array  # (S,) row of the query counted from 1, or 0


class _AtRow(Exception):
    def __init__(self, row: int):
        self.row = row
        super().__init__(row)


class Repeated(_AtRow):
    """A query lists a document twice; `row` is where it stands again."""


class Unfit(_AtRow):
    """An id is missing, empty or holds a control character; `row` is where it stands."""


def index(doc: Ids, start: Int, check: bool = False) -> Index | None:
    """Index every list, or raise Repeated. Without compiled code there is only the check.

    With `check` an id that `first_unfit` would find raises Unfit: the same pass sees it, and where
    a document comes again before, a second one.
    """
    sizes = np.diff(start)
    if native is None:
        if check and (at := first_unfit(series(doc, "doc"))) is not None:
            raise Unfit(at)
        again = first_again(np.repeat(np.arange(len(sizes)), sizes), doc)
        if again is not None:
            raise Repeated(again)
        return None
    # The power of two that leaves between a quarter and a half of the slots taken.
    room = np.where(sizes > 0, 2 << np.frexp(np.maximum(sizes, 1) - 0.5)[1].astype(np.int64), 0)
    slot_start = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(room, out=slot_start[1:])
    narrow = sizes.max(initial=0) < 1 << 16
    slots = np.empty(int(slot_start[-1]), np.uint16 if narrow else np.uint32)
    doc = whole(doc)
    found = in_threads(
        lambda first, last: native.index(doc, start, slot_start, slots, first, last, check),
        len(sizes),
        pieces(len(doc)),
    )
    unfit = min((-2 - row for row in found if row < -1), default=None)
    repeated = min((row for row in found if row >= 0), default=None)
    if check and repeated is not None:  # behind which nobody looked
        unfit = first_unfit(series(doc, "doc"))
    if unfit is not None:
        raise Unfit(unfit)
    if repeated is not None:
        raise Repeated(repeated)
    return Index(slot_start, slots)


def first_again(query: Array, doc: Ids) -> int | None:
    """The first row whose query and document stand in a row before."""
    pairs = pl.DataFrame({"query": query, "doc": series(doc, "doc")})
    again = pairs.select(~pl.struct("query", "doc").is_first_distinct()).to_series()
    return int(again.arg_max() or 0) if again.any() else None


def lookup(table: Index | None, doc: Ids, start: Int, wanted: Ids, query: Int) -> Int:
    """The row of `doc` that holds wanted[i] in the list of query[i], or −1; query −1 has none."""
    if native is not None and table is not None:
        rows = np.empty(len(wanted), np.int64)
        doc, wanted, query = whole(doc), whole(wanted), np.ascontiguousarray(query)
        in_threads(
            lambda first, last: native.lookup(
                doc, start, table.slot_start, table.slots, wanted, query, rows, first, last
            ),
            len(wanted),
            pieces(len(wanted)),
        )
        return rows
    listed = pl.DataFrame(
        {
            "query": np.repeat(np.arange(len(start) - 1), np.diff(start)),
            "doc": series(doc, "doc"),
            "row": np.arange(len(doc)),
        }
    )
    found = pl.DataFrame({"query": query, "doc": series(wanted, "doc")}).join(
        listed, on=["query", "doc"], how="left", maintain_order="left"
    )
    return found["row"].fill_null(-1).to_numpy().astype(np.int64)


def match(wanted: Ids, among: Ids) -> Int:
    """(W,) where each wanted id stands among the others, all different, or −1."""
    start = np.array([0, len(among)])
    return lookup(index(among, start), among, start, wanted, np.zeros(len(wanted), np.int64))


def _moved_up(columns: Sequence[Array], parts: Sequence[tuple[int, int]]) -> list[Array]:
    """What threads wrote, each from a place of its own on (`parts`: the place, and how many), one
    after the other."""
    end = 0
    for begin, count in parts:
        for column in columns if begin > end else ():
            column[end : end + count] = column[begin : begin + count]
        end += count
    return [column[:end] for column in columns]


def falls(score: Float, start: Int) -> Int | None:
    """(G+1,) the rows where a query begins or a score is below the one before, and N; None where
    a score rises inside a query.
    """
    if native is not None:
        groups = np.empty(len(score) + 1, np.int64)
        found = in_threads(
            lambda first, last: (
                int(start[first]),
                int(native.falls(score, start, groups, first, last)),
            ),
            len(start) - 1,
            pieces(len(score)),
        )
        return None if any(count < 0 for _, count in found) else _closed(groups, found)
    begins = np.zeros(len(score) + 1, np.bool_)
    begins[start] = True
    begins[-1] = True
    if ((score[1:] > score[:-1]) & ~begins[1:-1]).any():
        return None
    begins[1:-1] |= score[1:] < score[:-1]
    return np.flatnonzero(begins)


def _closed(groups: Int, parts: Sequence[tuple[int, int]]) -> Int:
    """The beginnings of groups that threads found, and behind them the end of all."""
    (found,) = _moved_up([groups], parts)
    groups[len(found)] = len(groups) - 1
    return groups[: len(found) + 1]


def place(score: Float, start: Int, doc: Ids | None, descending: bool) -> tuple[Int, Int]:
    """Where each row stands when the rows of each query go from best to worst, and (G+1,) at which
    of these places a query begins or a score is below the one before, and N.

    Ties are broken by document id, or left in input order.
    """
    position = np.empty(len(score), np.int64)
    if native is not None:
        ids = None if doc is None else whole(doc)
        direction, groups = -1 if descending else 1, np.empty(len(score) + 1, np.int64)
        found = in_threads(
            lambda first, last: (
                int(start[first]),
                int(native.place(score, start, ids, direction, position, groups, first, last)),
            ),
            len(start) - 1,
            pieces(len(score)),
        )
        return position, _closed(groups, found)
    frame = pl.DataFrame(
        {"query": np.repeat(np.arange(len(start) - 1), np.diff(start)), "score": score + 0.0}
    )
    keys, down = ["query", "score"], [False, True]
    if doc is not None:
        frame = frame.with_columns(series(doc, "doc").alias("doc"))
        keys, down = [*keys, "doc"], [*down, descending]
    rows = frame.with_row_index("row").sort(keys, descending=down, maintain_order=True)["row"]
    position[rows.to_numpy()] = np.arange(len(score))
    begins = falls(score[rows.to_numpy()], start)
    assert begins is not None  # they are sorted
    return position, begins


Six: TypeAlias = tuple[Int, Int, Int, Int, Int, Int]


def grouped(
    query: Int,
    row: Int,
    grade: Int,
    listed: Int,
    list_start: Int,
    position: Int | None,
    group_start: Int,
) -> Six:
    """Of judgements that ascend by query: size, first, query, start, grade and rank of
    `ties.TieGroups`, which says what they are; the rest is of a ranking.
    """
    first_group = np.searchsorted(group_start, list_start)[listed]
    start = np.searchsorted(query, np.arange(len(listed) + 1))
    if native is not None:
        row, grade, listed = _columns(row, grade, listed)
        by_group = [np.empty(len(row) + 1, np.int64) for _ in range(4)]
        by_document = [np.empty(len(row), np.int64) for _ in range(2)]
        given = row, grade, start, listed, first_group, list_start, position, group_start
        found = in_threads(
            lambda first, last: (
                int(start[first]),
                native.grouped(*given, *by_group, *by_document, first, last),
            ),
            len(listed),
            pieces(len(row)),
        )
        parts = [(low, *counts) for low, counts in found if counts is not None]
        if len(parts) == len(found):
            documents = 0
            for low, groups, held in parts:
                by_group[3][low : low + groups] += documents
                documents += held
            size, first, owner, _ = _moved_up(by_group, [part[:2] for part in parts])
            grade, rank = _moved_up(by_document, [part[::2] for part in parts])
            by_group[3][len(size)] = documents
            return size, first, owner, by_group[3][: len(size) + 1], grade, rank
    # Without compiled code, and where a document is judged twice.
    retrieved = np.flatnonzero(row >= 0)
    query, grade, at = query[retrieved], grade[retrieved], row[retrieved]
    if position is not None:
        at = position[at]
    by_rank = np.lexsort((at, query))  # within a query positions ascend with rank
    query, grade, at = query[by_rank], grade[by_rank], at[by_rank]
    group = np.searchsorted(group_start, at, side="right") - 1
    new = np.ones(len(group), np.bool_)
    # Two evaluated queries may read the same list, as when judgements are tried out on it.
    new[1:] = (group[1:] != group[:-1]) | (query[1:] != query[:-1])
    heads = np.flatnonzero(new)
    begin, before = group_start[group[heads]], list_start[listed[query]]
    return (
        group_start[group[heads] + 1] - begin,
        begin - before[heads] + 1,
        query[heads],
        np.append(heads, len(group)),
        grade,
        at - before + 1,
    )


def chosen(
    flags: Bool, size: Int, first: Int, query: Int, start: Int, grade: Int, rank: Int
) -> Six:
    """Some of the groups (G,) that `grouped` found, in the same columns."""
    if native is not None:
        columns = _columns(size, first, query, start, grade, rank)
        by_group = [np.empty(len(size) + 1, np.int64) for _ in range(4)]
        by_document = [np.empty(len(grade), np.int64) for _ in range(2)]
        groups, documents = native.chosen(flags, *columns, *by_group, *by_document)
        size, first, query = (column[:groups] for column in by_group[:3])
        grade, rank = (column[:documents] for column in by_document)
        return size, first, query, by_group[3][: groups + 1], grade, rank
    judged = np.diff(start)
    held = np.repeat(flags, judged)
    begins = np.zeros(int(flags.sum()) + 1, np.int64)
    np.cumsum(judged[flags], out=begins[1:])
    return size[flags], first[flags], query[flags], begins, grade[held], rank[held]


Sums: TypeAlias = tuple[
    Float, Float, Float, Float, Float
]  # (Q,) expected, min, max, oblivious, variance


def _sums(queries: int) -> Sums:
    expected, low, high, oblivious, variance = np.zeros((5, queries))
    return expected, low, high, oblivious, variance


def counted(
    chosen: Bool, cut: Int, size: Int, first: Int, query: Int, start: Int, rank: Int
) -> Sums | None:
    """How many of the chosen documents (J,) are in the top `cut` (Q,); see `linear.counted`.

    None where there is no compiled code, here and below.
    """
    if native is None:
        return None
    sums = _sums(len(cut))
    native.counted(*_columns(chosen, cut, size, first, query, start, rank), *sums)
    return sums


def averages(
    grade: Int, rel: int, cut: Int, size: Int, first: Int, query: Int, start: Int, rank: Int
) -> Sums | None:
    """R·AP of each query; see `precision.average_precision`."""
    if native is None:
        return None
    sums = _sums(len(cut))
    native.averages(*_columns(grade, cut, size, first, query, start, rank), rel, *sums)
    return sums


def precisions(query: Int, rank: Int, grade: Int, rel: int, cut: Int) -> Float:
    """(Q,) Σ number/rank over the relevant documents of each query, by rank, up to its cut (Q,)."""
    if native is not None:
        total = np.zeros(len(cut))
        native.precisions(*_columns(query, rank, grade), rel, np.ascontiguousarray(cut), total)
        return total
    chosen = np.flatnonzero(grade >= rel)
    query, rank = query[chosen], rank[chosen]
    share = np.where(rank <= cut[query], numbered(query) / rank, 0.0)
    return np.bincount(query, weights=share, minlength=len(cut)).astype(np.float64)


def discounted(query: Int, rank: Int, gain: Float, discount: Float, cut: Int) -> Float:
    """(Q,) Σ gain/discount[rank] over the documents of each query, up to its cut (Q,)."""
    if native is not None:
        total = np.zeros(len(cut))
        columns = _columns(query, rank, gain)
        native.discounted(*columns, discount, np.ascontiguousarray(cut), total)
        return total
    inside = rank <= cut[query]
    share = np.where(inside, gain / discount[np.where(inside, rank, 1)], 0.0)
    return np.bincount(query, weights=share, minlength=len(cut)).astype(np.float64)


def tally(start: Int, grade: Int, low: int, high: int | None) -> Int:
    """(Q,) how many grades of each query are at least `low`, and at most `high`."""
    if native is not None:
        count = np.empty(len(start) - 1, np.int64)
        native.tally(*_columns(start, grade), low, 2**63 - 1 if high is None else high, count)
        return count
    chosen = grade >= low if high is None else (grade >= low) & (grade <= high)
    return np.diff(np.append(0, np.cumsum(chosen))[start])


def ideal(start: Int, grade: Int, worth: Float, discount: Float, cut: int) -> Float | None:
    """(Q,) what grades are worth, the highest first, over the discount of their places up to `cut`.

    `worth` is that of grades 0, 1, 2, … None where there is no compiled code.
    """
    if native is None:
        return None
    total = np.zeros(len(start) - 1)
    native.ideal(*_columns(start, grade, worth, discount), cut, total)
    return total


def figures(
    found: tuple[Int, Int, Int, Int], pool: tuple[Int, Int], rel: int, which: Int, at: Float
) -> Float | None:
    """(Q, L) trec_eval's figures by their number, each at a rank or a share of recall.

    Documents that each query lists (Q,); query, rank and grade (J,) of those judged among them, by
    rank; where the pool's grades begin, and these. None where there is no compiled code, or grades
    are too high for it.
    """
    if native is None or pool[1].max(initial=0) >= native.GRADES:
        return None
    table = np.empty((len(found[0]), len(which)))
    native.figures(*_columns(*found, *pool), rel, which, at, table)
    return table


def _columns(*columns: Array) -> tuple[Array, ...]:
    return tuple(np.ascontiguousarray(column) for column in columns)


def numbered(query: Int) -> Int:
    """1, 2, 3, … within each stretch of equal values."""
    new = np.ones(len(query), np.bool_)
    new[1:] = query[1:] != query[:-1]
    row = np.arange(len(query))
    return row - np.maximum.accumulate(np.where(new, row, 0)) + 1


@dataclass(frozen=True, slots=True)
class Merged:
    """The documents of several lists for each query, each document once, best first."""

    start: Int  # (Q+1,) query q owns start[q]:start[q+1] of the others
    row: Int  # (M,) the first row that holds the document
    score: Float  # (M,) its values, summed


def merge(doc: pl.Series, first: Int, last: Int, value: Int, by_lists: bool) -> Merged:
    """Sum the values of equal documents over the lists of each query; equal sums go by id.

    List l of query q is rows first[l, q]:last[l, q] of `doc`; a row whose value is negative is
    passed over. Sums are of integers, and so the same in whatever order they are made. With
    `by_lists` they are multiplied by the number of lists that hold the document.
    """
    sizes = (last - first).sum(axis=0)
    start = np.zeros(len(sizes) + 1, np.int64)
    if native is not None:
        room, counts = np.zeros(len(sizes) + 1, np.int64), np.zeros(len(sizes), np.int64)
        np.cumsum(sizes, out=room[1:])
        row, score = np.empty(int(room[-1]), np.int64), np.empty(int(room[-1]), np.float64)
        doc, first, last = doc.rechunk(), np.ascontiguousarray(first), np.ascontiguousarray(last)

        def some(low: int, high: int) -> slice:
            native.merge(*(doc, first, last, value, by_lists, room, row, score, counts, low, high))
            return slice(int(room[low]), int(room[low] + counts[low:high].sum()))

        parts = in_threads(some, len(sizes), pieces(int(room[-1])))
        np.cumsum(counts, out=start[1:])
        if len(parts) == 1:
            return Merged(start, row[parts[0]], score[parts[0]])
        return Merged(start, *(np.concatenate([c[part] for part in parts]) for c in (row, score)))
    queries = np.tile(np.arange(len(sizes)), len(first))
    counts = (last - first).ravel()
    before = np.repeat(np.cumsum(counts) - counts, counts)
    rows = np.arange(len(before)) - before + np.repeat(first.ravel(), counts)
    merged = (
        pl.DataFrame({"query": np.repeat(queries, counts), "row": rows, "value": value[rows]})
        .with_columns(doc.gather(pl.Series(rows)).alias("doc"))
        .filter(pl.col("value") >= 0)
        .group_by("query", "doc", maintain_order=True)
        .agg(pl.col("row").first(), pl.col("value").sum(), pl.len().alias("lists"))
        .sort("query", maintain_order=True)
    )
    np.cumsum(np.bincount(merged["query"].to_numpy(), minlength=len(sizes)), out=start[1:])
    sums = merged["value"].to_numpy().astype(np.float64)
    if by_lists:
        sums *= merged["lists"].to_numpy()
    position, _ = place(sums, start, merged["doc"], descending=False)
    row, score = np.empty(len(sums), np.int64), np.empty(len(sums), np.float64)
    row[position], score[position] = merged["row"].to_numpy(), sums
    return Merged(start, row, score)
