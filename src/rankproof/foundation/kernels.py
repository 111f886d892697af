"""The inner loops over all rows, each compiled and in polars or numpy.

Compiled code (`_native.c` and native/) runs where it was built; RANKPROOF_NATIVE=0 turns it off.
Both give the same arrays to the last bit.

Notation: Q queries, G tie groups, J judged documents that a run lists. A list of rows by query is
described by its offsets `start` (Q+1,): query q owns rows start[q]:start[q+1].
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import polars as pl

from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.lines import CORES, compiled

if TYPE_CHECKING:
    from rankproof.foundation._native import Strings

Ids: TypeAlias = "pl.Series | Strings"  # text, as polars or the compiled reader holds it

native: Any = compiled()  # None if it was not built

SLOW_ROWS = 1_000_000  # rows of a run that take seconds without compiled code

_A = TypeVar("_A")
_T = TypeVar("_T")

THREADS = CORES
_ROWS_PER_THREADING = 100_000  # rows below which a second thread costs more than it saves


def warn_if_slow(rows: int) -> None:
    """Write one line to stderr, once, if a run this long is read without compiled code."""
    if native is None and rows >= SLOW_ROWS:
        _warn_of_interpreted_code()


@cache
def _warn_of_interpreted_code() -> None:
    # The logger writes the line for Python's users too, who can turn it off.
    logging.getLogger("rankproof").warning(
        "rankproof: runs of a million rows take about 7 times as long without compiled code; "
        "`rankproof doctor` says how to get it"
    )


def map_ranges(work: Callable[[int, int], _T], count: int, parts: int) -> list[_T]:
    """Return the results of `work(first, last)` on at most `parts` ranges of [0, count)."""
    parts = min(parts, THREADS, count)
    if parts <= 1:
        return [work(0, count)]
    cuts = [count * i // parts for i in range(parts + 1)]
    with ThreadPoolExecutor(parts) as pool:
        return list(pool.map(work, cuts[:-1], cuts[1:]))


def thread_count(rows: int) -> int:
    """Return how many threads are worth starting for so many rows."""
    return THREADS if rows >= _ROWS_PER_THREADING else 1


def map_in_threads(work: Callable[[_A], _T], items: Sequence[_A], rows: int) -> list[_T]:
    """Return the results of `work` on each item, in threads if all items have enough rows."""
    parts = min(thread_count(rows), len(items))
    if parts <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(parts) as pool:
        return list(pool.map(work, items))


def is_compiled(ids: Ids) -> bool:
    """True if a column of text is held by the compiled reader."""
    return native is not None and type(ids) is native.Strings


def as_polars(ids: Any, name: str) -> pl.Series:
    """Return a column of text as a polars series, without copying."""
    return pl.Series(name, ids, dtype=pl.String) if is_compiled(ids) else ids


def contiguous(ids: Any) -> Any:
    """Return ids in one chunk, as compiled code takes them."""
    return ids if is_compiled(ids) else ids.rechunk()


def _starts(codes: Array, queries: int) -> Int | None:
    """Return offsets (Q+1,) if the rows are sorted by `codes`, else None."""
    if native is not None:
        start = np.empty(queries + 1, np.int64)
        return start if native.starts(np.ascontiguousarray(codes, np.int32), start) else None
    begins = np.append(0, np.flatnonzero(codes[1:] != codes[:-1]) + 1)[: len(codes)]
    in_order = np.array_equal(codes[begins], np.arange(queries))
    return np.append(begins, len(codes)) if in_order else None


def query_groups(codes: Array, queries: int) -> tuple[Int, Int | None]:
    """Return the offsets (Q+1,) of rows sorted by query, and the rows in that order.

    The rows are None if they are already sorted.
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


def group_rows(codes: Array, queries: int, doc: Any, value: Array) -> tuple[Int, Any, Array]:
    """Return offsets (Q+1,), and documents and values sorted by query."""
    if native is None or not is_compiled(doc):
        start, rows = query_groups(codes, queries)
        return (start, doc, value) if rows is None else (start, doc.gather(rows), value[rows])
    in_order = _starts(codes, queries)
    if in_order is not None:
        return in_order, doc, value
    codes, value = np.ascontiguousarray(codes, np.int32), np.ascontiguousarray(value)
    sorted_doc, sorted_value = doc.like(len(doc)), np.empty_like(value)

    def count_queries(first: int, last: int) -> tuple[int, int, Int]:
        offsets = np.empty(queries + 1, np.int64)
        native.group(codes[first:last], offsets, None)
        return first, last, np.diff(offsets)

    parts = map_ranges(count_queries, len(codes), thread_count(len(codes)))
    start = np.zeros(queries + 1, np.int64)
    np.cumsum(sum(count for *_, count in parts), out=start[1:])
    # (parts+1, Q) where each part writes its first row of each query, and where it ends.
    targets = np.cumsum([start[:-1], *(count for *_, count in parts)], axis=0)

    def scatter(number: int) -> None:
        first, last, _ = parts[number]
        begin, end = targets[number], targets[number + 1]
        native.scatter(codes, begin, end, value, doc, sorted_value, sorted_doc, first, last)

    map_in_threads(scatter, range(len(parts)), len(codes))
    return start, sorted_doc, sorted_value


_CONTROL = r"[\x00-\x1f\x7f-\x9f]"


def first_invalid_id(ids: pl.Series) -> int | None:
    """Return the first row whose id is missing, empty or has a control character."""
    if native is not None and not ids.null_count():
        rows_before = 0
        for chunk in ids.get_chunks():
            row: int = native.first_unfit(chunk)
            if row >= 0:
                return rows_before + row
            rows_before += len(chunk)
        return None
    invalid = ids.is_null() | (ids == "") | ids.str.contains(_CONTROL)
    return int(invalid.arg_max() or 0) if invalid.any() else None


@dataclass(frozen=True, slots=True)
class DocumentIndex:
    """Hash tables, one per query, from document to its row in the query's list."""

    slot_start: Int  # (Q+1,) query q owns slots[slot_start[q]:slot_start[q+1]]
    slots: Array  # (S,) row of the query counted from 1, or 0


class _RowError(Exception):
    """An error of one row, which the caller knows how to name to the user."""

    def __init__(self, row: int):
        self.row = row
        super().__init__(row)


class RepeatedDocument(_RowError):
    """A query lists a document twice; `row` is the second time."""


class InvalidId(_RowError):
    """The id in `row` is missing, empty or has a control character."""


def index_documents(doc: Ids, start: Int, check: bool = False) -> DocumentIndex | None:
    """Return the index of every list, or raise RepeatedDocument.

    With `check`, an id that `first_invalid_id` finds raises InvalidId; the same pass sees it.
    Without compiled code only these checks are made, and None is returned.
    """
    sizes = np.diff(start)
    if native is None:
        if check and (row := first_invalid_id(as_polars(doc, "doc"))) is not None:
            raise InvalidId(row)
        row = first_repeated_row(np.repeat(np.arange(len(sizes)), sizes), doc)
        if row is not None:
            raise RepeatedDocument(row)
        return None
    # A power of two of slots, of which a quarter to a half will be used.
    slot_count = np.where(
        sizes > 0, 2 << np.frexp(np.maximum(sizes, 1) - 0.5)[1].astype(np.int64), 0
    )
    slot_start = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(slot_count, out=slot_start[1:])
    fits_16_bits = sizes.max(initial=0) < 1 << 16
    slots = np.empty(int(slot_start[-1]), np.uint16 if fits_16_bits else np.uint32)
    doc = contiguous(doc)
    codes = map_ranges(  # -1, a repeated row, or -2 - an invalid row; see native.index
        lambda first, last: native.index(doc, start, slot_start, slots, first, last, check),
        len(sizes),
        thread_count(len(doc)),
    )
    invalid = min((-2 - code for code in codes if code < -1), default=None)
    repeated = min((code for code in codes if code >= 0), default=None)
    if check and repeated is not None:  # the pass stopped there
        invalid = first_invalid_id(as_polars(doc, "doc"))
    if invalid is not None:
        raise InvalidId(invalid)
    if repeated is not None:
        raise RepeatedDocument(repeated)
    return DocumentIndex(slot_start, slots)


def first_repeated_row(query: Array, doc: Ids) -> int | None:
    """Return the first row that repeats the query and document of an earlier row."""
    pairs = pl.DataFrame({"query": query, "doc": as_polars(doc, "doc")})
    repeats = pairs.select(~pl.struct("query", "doc").is_first_distinct()).to_series()
    return int(repeats.arg_max() or 0) if repeats.any() else None


def find_rows(table: DocumentIndex | None, doc: Ids, start: Int, searched: Ids, query: Int) -> Int:
    """Return the row (W,) of `doc` that holds searched[i] in the list of query[i], or −1."""
    if native is not None and table is not None:
        rows = np.empty(len(searched), np.int64)
        doc, searched, query = contiguous(doc), contiguous(searched), np.ascontiguousarray(query)
        map_ranges(
            lambda first, last: native.lookup(
                doc, start, table.slot_start, table.slots, searched, query, rows, first, last
            ),
            len(searched),
            thread_count(len(searched)),
        )
        return rows
    listed = pl.DataFrame(
        {
            "query": np.repeat(np.arange(len(start) - 1), np.diff(start)),
            "doc": as_polars(doc, "doc"),
            "row": np.arange(len(doc)),
        }
    )
    matches = pl.DataFrame({"query": query, "doc": as_polars(searched, "doc")}).join(
        listed, on=["query", "doc"], how="left", maintain_order="left"
    )
    return matches["row"].fill_null(-1).to_numpy().astype(np.int64)


def match_ids(searched: Ids, among: Ids) -> Int:
    """Return the position (W,) of each searched id among distinct ids, or −1."""
    start = np.array([0, len(among)])
    return find_rows(
        index_documents(among, start), among, start, searched, np.zeros(len(searched), np.int64)
    )


def _close_gaps(columns: Sequence[Array], parts: Sequence[tuple[int, int]]) -> list[Array]:
    """Return columns that threads filled, without the gaps; a part is (first row, row count)."""
    end = 0
    for begin, count in parts:
        for column in columns if begin > end else ():
            column[end : end + count] = column[begin : begin + count]
        end += count
    return [column[:end] for column in columns]


def tie_group_starts(score: Float, start: Int) -> Int | None:
    """Return the rows (G+1,) where a tie group begins, and N: a new query or a lower score.

    None if a score rises inside a query, so that the rows are not sorted.
    """
    if native is not None:
        groups = np.empty(len(score) + 1, np.int64)
        parts = map_ranges(
            lambda first, last: (
                int(start[first]),
                int(native.falls(score, start, groups, first, last)),
            ),
            len(start) - 1,
            thread_count(len(score)),
        )
        return None if any(count < 0 for _, count in parts) else _with_end(groups, parts)
    begins = np.zeros(len(score) + 1, np.bool_)
    begins[start] = True
    begins[-1] = True
    if ((score[1:] > score[:-1]) & ~begins[1:-1]).any():
        return None
    begins[1:-1] |= score[1:] < score[:-1]
    return np.flatnonzero(begins)


def _with_end(groups: Int, parts: Sequence[tuple[int, int]]) -> Int:
    """Return the starts of the groups that threads found, followed by the number of rows."""
    (starts,) = _close_gaps([groups], parts)
    groups[len(starts)] = len(groups) - 1
    return groups[: len(starts) + 1]


def rank_rows(score: Float, start: Int, doc: Ids | None, descending: bool) -> tuple[Int, Int]:
    """Return the position (N,) of each row when queries are sorted best first, and the
    `tie_group_starts` (G+1,) of the sorted rows.

    Ties are broken by document id, or left in input order if `doc` is None.
    """
    position = np.empty(len(score), np.int64)
    if native is not None:
        ids = None if doc is None else contiguous(doc)
        direction, groups = -1 if descending else 1, np.empty(len(score) + 1, np.int64)
        parts = map_ranges(
            lambda first, last: (
                int(start[first]),
                int(native.place(score, start, ids, direction, position, groups, first, last)),
            ),
            len(start) - 1,
            thread_count(len(score)),
        )
        return position, _with_end(groups, parts)
    frame = pl.DataFrame(
        {"query": np.repeat(np.arange(len(start) - 1), np.diff(start)), "score": score + 0.0}
    )
    keys, is_descending = ["query", "score"], [False, True]
    if doc is not None:
        frame = frame.with_columns(as_polars(doc, "doc").alias("doc"))
        keys, is_descending = [*keys, "doc"], [*is_descending, descending]
    rows = frame.with_row_index("row").sort(keys, descending=is_descending, maintain_order=True)[
        "row"
    ]
    position[rows.to_numpy()] = np.arange(len(score))
    starts = tie_group_starts(score[rows.to_numpy()], start)
    assert starts is not None  # the rows are sorted now
    return position, starts


class GroupColumns(NamedTuple):
    """The six columns of `data.ties.TieGroups`, which describes them."""

    size: Int  # (G,)
    first: Int  # (G,)
    query: Int  # (G,)
    start: Int  # (G+1,)
    grade: Int  # (J,)
    rank: Int  # (J,)


def group_judged(
    query: Int,
    row: Int,
    grade: Int,
    listed: Int,
    list_start: Int,
    position: Int | None,
    group_start: Int,
) -> GroupColumns:
    """Return the tie groups of judged documents.

    `query`, `row` and `grade` describe judgments sorted by query (row: of the run, −1 if it lacks
    the document); `listed` (Q,) is the list of each query in the ranking, whose offsets, positions
    and tie groups follow.
    """
    first_group = np.searchsorted(group_start, list_start)[listed]
    start = np.searchsorted(query, np.arange(len(listed) + 1))
    if native is not None:
        row, grade, listed = _columns(row, grade, listed)
        by_group = [np.empty(len(row) + 1, np.int64) for _ in range(4)]
        by_document = [np.empty(len(row), np.int64) for _ in range(2)]
        ranking = row, grade, start, listed, first_group, list_start, position, group_start
        results = map_ranges(
            lambda first, last: (
                int(start[first]),
                native.grouped(*ranking, *by_group, *by_document, first, last),
            ),
            len(listed),
            thread_count(len(row)),
        )
        parts = [(low, *counts) for low, counts in results if counts is not None]
        if len(parts) == len(results):
            return _join_groups(by_group, by_document, parts)
    # Without compiled code, or where a document is judged twice.
    retrieved = np.flatnonzero(row >= 0)
    query, grade, place = query[retrieved], grade[retrieved], row[retrieved]
    if position is not None:
        place = position[place]
    by_rank = np.lexsort((place, query))  # within a query positions ascend with rank
    query, grade, place = query[by_rank], grade[by_rank], place[by_rank]
    group = np.searchsorted(group_start, place, side="right") - 1
    is_first = np.ones(len(group), np.bool_)
    # Two evaluated queries may share a list, as when judgments are tried out on it.
    is_first[1:] = (group[1:] != group[:-1]) | (query[1:] != query[:-1])
    heads = np.flatnonzero(is_first)
    group_begin, list_begin = group_start[group[heads]], list_start[listed[query]]
    return GroupColumns(
        size=group_start[group[heads] + 1] - group_begin,
        first=group_begin - list_begin[heads] + 1,
        query=query[heads],
        start=np.append(heads, len(group)),
        grade=grade,
        rank=place - list_begin + 1,
    )


def _join_groups(
    by_group: list[Int], by_document: list[Int], parts: Sequence[tuple[int, int, int]]
) -> GroupColumns:
    """Return the columns that threads filled; a part is (first row, groups, documents)."""
    documents = 0
    for low, group_count, document_count in parts:
        by_group[3][low : low + group_count] += documents
        documents += document_count
    size, first, query, _ = _close_gaps(by_group, [(low, groups) for low, groups, _ in parts])
    grade, rank = _close_gaps(by_document, [(low, judged) for low, _, judged in parts])
    by_group[3][len(size)] = documents
    return GroupColumns(size, first, query, by_group[3][: len(size) + 1], grade, rank)


def select_groups(
    flags: Bool, size: Int, first: Int, query: Int, start: Int, grade: Int, rank: Int
) -> GroupColumns:
    """Return the columns of the groups whose flag (G,) is set."""
    if native is not None:
        columns = _columns(size, first, query, start, grade, rank)
        by_group = [np.empty(len(size) + 1, np.int64) for _ in range(4)]
        by_document = [np.empty(len(grade), np.int64) for _ in range(2)]
        groups, documents = native.chosen(flags, *columns, *by_group, *by_document)
        size, first, query = (column[:groups] for column in by_group[:3])
        grade, rank = (column[:documents] for column in by_document)
        return GroupColumns(size, first, query, by_group[3][: groups + 1], grade, rank)
    judged = np.diff(start)
    in_group = np.repeat(flags, judged)
    selected_start = np.zeros(int(flags.sum()) + 1, np.int64)
    np.cumsum(judged[flags], out=selected_start[1:])
    return GroupColumns(
        size[flags], first[flags], query[flags], selected_start, grade[in_group], rank[in_group]
    )


class Sums(NamedTuple):
    """A sum over the documents of each query, under every order of ties."""

    expected: Float  # (Q,)
    min: Float  # (Q,)
    max: Float  # (Q,)
    oblivious: Float  # (Q,) as listed
    variance: Float  # (Q,)


def count_in_top(
    is_counted: Bool, cut: Int, size: Int, first: Int, query: Int, start: Int, rank: Int
) -> Sums | None:
    """Return how many of the counted documents (J,) are in the top `cut` (Q,).

    None without compiled code: `measures.linear` has the Python twin.
    """
    if native is None:
        return None
    sums = Sums(*np.zeros((5, len(cut))))
    native.counted(*_columns(is_counted, cut, size, first, query, start, rank), *sums)
    return sums


def average_precision_sums(
    grade: Int, rel: int, cut: Int, size: Int, first: Int, query: Int, start: Int, rank: Int
) -> Sums | None:
    """Return R·AP of each query; None without compiled code (see measures.average_precision)."""
    if native is None:
        return None
    sums = Sums(*np.zeros((5, len(cut))))
    native.averages(*_columns(grade, cut, size, first, query, start, rank), rel, *sums)
    return sums


def precision_sum(query: Int, rank: Int, grade: Int, rel: int, cut: Int) -> Float:
    """Return (Q,) Σ number/rank over the relevant documents of each query, up to rank cut (Q,)."""
    if native is not None:
        total = np.zeros(len(cut))
        native.precisions(*_columns(query, rank, grade), rel, np.ascontiguousarray(cut), total)
        return total
    relevant = np.flatnonzero(grade >= rel)
    query, rank = query[relevant], rank[relevant]
    share = np.where(rank <= cut[query], count_within(query) / rank, 0.0)
    return np.bincount(query, weights=share, minlength=len(cut)).astype(np.float64)


def discounted_sum(query: Int, rank: Int, gain: Float, discount: Float, cut: Int) -> Float:
    """Return (Q,) Σ gain/discount[rank] over the documents of each query, up to rank cut (Q,)."""
    if native is not None:
        total = np.zeros(len(cut))
        columns = _columns(query, rank, gain)
        native.discounted(*columns, discount, np.ascontiguousarray(cut), total)
        return total
    inside = rank <= cut[query]
    share = np.where(inside, gain / discount[np.where(inside, rank, 1)], 0.0)
    return np.bincount(query, weights=share, minlength=len(cut)).astype(np.float64)


def count_grades(start: Int, grade: Int, low: int, high: int | None) -> Int:
    """Return (Q,) how many grades of each query are at least `low` and at most `high`."""
    if native is not None:
        count = np.empty(len(start) - 1, np.int64)
        native.tally(*_columns(start, grade), low, 2**63 - 1 if high is None else high, count)
        return count
    is_counted = grade >= low if high is None else (grade >= low) & (grade <= high)
    return np.diff(np.append(0, np.cumsum(is_counted))[start])


def ideal_gain(start: Int, grade: Int, worth: Float, discount: Float, cut: int) -> Float | None:
    """Return (Q,) the ideal Σ gain/discount[rank] up to rank `cut`: the highest grades first.

    `worth` has the gain of grades 0, 1, 2, … None without compiled code.
    """
    if native is None:
        return None
    total = np.zeros(len(start) - 1)
    native.ideal(*_columns(start, grade, worth, discount), cut, total)
    return total


def trec_eval_values(
    retrieved: tuple[Int, Int, Int, Int],
    pool: tuple[Int, Int],
    rel: int,
    measures: Int,
    parameters: Float,
) -> Float | None:
    """Return (Q, L) trec_eval's measures by number, each at a rank or a share of recall.

    `retrieved` holds the length of each list (Q,), and query, rank and grade (J,) of the judged
    documents by rank; `pool` the offsets and grades of all judgments. None without compiled code,
    or where grades are too high for it.
    """
    if native is None or pool[1].max(initial=0) >= native.GRADES:
        return None
    values = np.empty((len(retrieved[0]), len(measures)))
    native.figures(*_columns(*retrieved, *pool), rel, measures, parameters, values)
    return values


def _columns(*columns: Array) -> tuple[Array, ...]:
    return tuple(np.ascontiguousarray(column) for column in columns)


def count_within(query: Int) -> Int:
    """Return 1, 2, 3, … within each stretch of equal values."""
    is_first = np.ones(len(query), np.bool_)
    is_first[1:] = query[1:] != query[:-1]
    row = np.arange(len(query))
    return row - np.maximum.accumulate(np.where(is_first, row, 0)) + 1


@dataclass(frozen=True, slots=True)
class MergedLists:
    """The union of several lists for each query, best document first."""

    start: Int  # (Q+1,)
    row: Int  # (M,) the first row that holds the document
    score: Float  # (M,) its values, summed


def merge_lists(doc: pl.Series, first: Int, last: Int, value: Int, by_lists: bool) -> MergedLists:
    """Sum the values of equal documents over the lists of each query; equal sums go by id.

    List l of query q is rows first[l, q]:last[l, q] of `doc`; rows with a negative value are
    skipped. Values are integers, so that their sum does not depend on the order. With `by_lists`
    it is multiplied by the number of lists that hold the document.
    """
    sizes = (last - first).sum(axis=0)
    start = np.zeros(len(sizes) + 1, np.int64)
    if native is not None:
        space, counts = np.zeros(len(sizes) + 1, np.int64), np.zeros(len(sizes), np.int64)
        np.cumsum(sizes, out=space[1:])  # before duplicates are merged
        row, score = np.empty(int(space[-1]), np.int64), np.empty(int(space[-1]), np.float64)
        doc, first, last = doc.rechunk(), np.ascontiguousarray(first), np.ascontiguousarray(last)

        lists = doc, first, last, value, by_lists

        def merge_queries(low: int, high: int) -> slice:
            native.merge(*lists, space, row, score, counts, low, high)
            return slice(int(space[low]), int(space[low] + counts[low:high].sum()))

        parts = map_ranges(merge_queries, len(sizes), thread_count(int(space[-1])))
        np.cumsum(counts, out=start[1:])
        if len(parts) == 1:
            return MergedLists(start, row[parts[0]], score[parts[0]])
        rows = np.concatenate([row[part] for part in parts])
        return MergedLists(start, rows, np.concatenate([score[part] for part in parts]))
    queries = np.tile(np.arange(len(sizes)), len(first))
    counts = (last - first).ravel()
    list_begin = np.repeat(np.cumsum(counts) - counts, counts)
    rows = np.arange(len(list_begin)) - list_begin + np.repeat(first.ravel(), counts)
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
    position, _ = rank_rows(sums, start, merged["doc"], descending=False)
    row, score = np.empty(len(sums), np.int64), np.empty(len(sums), np.float64)
    row[position], score[position] = merged["row"].to_numpy(), sums
    return MergedLists(start, row, score)
