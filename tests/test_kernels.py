"""The compiled inner loops and their second implementation give the same arrays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rankproof.data.ties import Pool, TieGroups
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Int
from rankproof.measures import parse

T = TypeVar("T")

needs_compiled = pytest.mark.skipif(kernels.native is None, reason="not compiled here")

# Ids around the 12 bytes that a string view holds inline, some that differ in the last byte or in
# length alone, some of more than one word, some not ASCII.
IDS = st.one_of(
    st.sampled_from(["a", "b", "ab", "a\0", "é", "日本語テキスト"]),
    st.integers(9, 14).map(lambda n: "x" * n),
    st.integers(9, 14).map(lambda n: "x" * (n - 1) + "y"),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
)
LISTS = st.lists(st.lists(IDS, unique=True, max_size=40), min_size=1, max_size=8)
SCORES = st.sampled_from([1.5, 1.0, 0.0, -0.0, -1.0, float("inf"), float("-inf"), 5e-324])


def both(work: Callable[[], T]) -> tuple[T, T]:
    """The compiled result and the other one."""
    compiled = work()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "native", None)
        return compiled, work()


def columns(lists: list[list[str]]) -> tuple[pl.Series, Int]:
    start = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return pl.Series([doc for documents in lists for doc in documents], dtype=pl.String), start


@needs_compiled
@given(st.integers(1, 9).flatmap(lambda q: st.tuples(st.just(q), st.lists(st.integers(0, q - 1)))))
def test_grouping_is_a_stable_sort_by_query(case: tuple[int, list[int]]) -> None:
    queries, askedcodes = case
    codes = np.array(askedcodes, np.int32)
    for start, rows in both(lambda: kernels.query_groups(codes, queries)):
        assert start.dtype == np.int64
        assert start.tolist() == [int((codes < q).sum()) for q in range(queries + 1)]
        expected = sorted(range(len(codes)), key=lambda row: askedcodes[row])
        assert (list(range(len(codes))) if rows is None else rows.tolist()) == expected


def test_rows_that_are_sorted_already_are_not_moved() -> None:
    start, rows = kernels.query_groups(np.array([0, 0, 1, 2, 2], np.int32), 3)
    assert rows is None
    assert start.tolist() == [0, 2, 3, 5]


@needs_compiled
@given(LISTS, st.lists(st.tuples(st.integers(-1, 7), IDS), max_size=60), st.integers(1, 3))
def test_a_document_is_found_only_in_the_list_of_its_query(
    lists: list[list[str]], extra: list[tuple[int, str]], threads: int
) -> None:
    doc, start = columns(lists)
    pairs = [(min(q, len(lists) - 1), wanted) for q, wanted in extra]
    pairs += [(q, wanted) for q, documents in enumerate(lists) for wanted in documents]
    query = np.array([q for q, _ in pairs], np.int64)
    wanted = pl.Series([w for _, w in pairs], dtype=pl.String)
    expected = [
        int(start[q]) + lists[q].index(w) if q >= 0 and w in lists[q] else -1 for q, w in pairs
    ]

    def find() -> list[int]:
        return list(
            kernels.find_rows(kernels.index_documents(doc, start), doc, start, wanted, query)
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_ROWS_PER_THREADING", 0)
        patch.setattr(kernels, "THREADS", threads)
        assert both(find) == (expected, expected)


@needs_compiled
@given(LISTS, st.data())
def test_the_first_repeated_document_is_named(lists: list[list[str]], data: st.DataObject) -> None:
    lists = [documents or ["a"] for documents in lists]
    for _ in range(data.draw(st.integers(1, 3))):
        documents = lists[data.draw(st.integers(0, len(lists) - 1))]
        at = data.draw(st.integers(0, len(documents)))
        documents.insert(at, data.draw(st.sampled_from(documents)))
    doc, start = columns(lists)
    expected = next(
        int(start[q]) + at
        for q, documents in enumerate(lists)
        for at, wanted in enumerate(documents)
        if wanted in documents[:at]
    )

    def repeated() -> int:
        with pytest.raises(kernels.RepeatedDocument) as caught:
            kernels.index_documents(doc, start)
        return caught.value.row

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_ROWS_PER_THREADING", 0)
        patch.setattr(kernels, "THREADS", 3)
        assert both(repeated) == (expected, expected)


@needs_compiled
@given(LISTS, st.data(), st.booleans(), st.booleans(), st.integers(1, 3))
def test_ordering_is_a_stable_sort_by_score_then_document(
    lists: list[list[str]], data: st.DataObject, by_doc: bool, descending: bool, threads: int
) -> None:
    doc, start = columns(lists)
    score = np.array(data.draw(st.lists(SCORES, min_size=len(doc), max_size=len(doc))), np.float64)

    def listed() -> list[int]:
        return list(
            np.argsort(kernels.rank_rows(score, start, doc if by_doc else None, descending)[0])
        )

    expected = []
    for q in range(len(lists)):
        rows = list(range(start[q], start[q + 1]))
        if by_doc:  # bytes, as Python orders text by code point and UTF-8 keeps that order
            rows.sort(key=lambda row: doc[row].encode(), reverse=descending)
        rows.sort(key=lambda row: -score[row])
        expected += rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_ROWS_PER_THREADING", 0)
        patch.setattr(kernels, "THREADS", threads)
        assert both(listed) == (expected, expected)


@needs_compiled
@settings(max_examples=settings().max_examples // 8)
@given(st.integers(0, 2**32))
def test_long_lists_are_sorted_and_searched_correctly(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 3000, 6)
    start = np.concatenate([[0], np.cumsum(sizes)])
    ids = [f"document-{i}" for size in sizes for i in random.permutation(size)]
    doc = pl.Series(ids, dtype=pl.String)
    score = random.integers(-25, 25, len(ids)) / 7 * random.choice([1e-300, 1, 1e300], len(ids))
    score[::9] = random.choice([0.0, -0.0, np.inf, -np.inf], len(score[::9]))
    wanted = pl.Series([f"document-{i}" for i in random.integers(0, 3000, 5000)])
    query = random.integers(-1, 6, 5000)

    def work() -> tuple[Any, ...]:
        table = kernels.index_documents(doc, start)
        return (
            kernels.find_rows(table, doc, start, wanted, query),
            *kernels.rank_rows(score, start, doc, True),
            kernels.tie_group_starts(score, start),
            kernels.tie_group_starts(np.sort(score)[::-1].copy(), start),
        )

    compiled, other = both(work)
    for one, same in zip(compiled, other, strict=True):
        np.testing.assert_array_equal(one, same)
    assert (compiled[0] >= 0).any()


@given(
    st.lists(st.lists(st.integers(1, 4), max_size=40), min_size=1, max_size=6),
    st.randoms(),
    st.integers(1, 3),
)
def test_judged_documents_are_found_in_their_tie_groups(
    lists: list[list[int]], chance: Random, threads: int
) -> None:
    """A list is the sizes of its groups; some of its rows are judged, in any order, and others
    that no list holds. One list is read by two queries."""
    group_start, list_start = [0], [0]
    for sizes in lists:
        for size in sizes:
            group_start.append(group_start[-1] + size)
        list_start.append(group_start[-1])
    position = list(range(list_start[-1]))
    for begin, end in pairwise(list_start):
        position[begin:end] = chance.sample(position[begin:end], end - begin)
    listed = [-1, *range(len(lists)), 0]
    query, row = [], []
    for q, held in enumerate(listed):
        rows = [] if held < 0 else range(list_start[held], list_start[held + 1])
        chosen = [*chance.sample(rows, chance.randint(0, len(rows))), -1]
        query += [q] * len(chosen)
        row += chance.sample(chosen, len(chosen))
    grade = [chance.randint(0, 3) for _ in row]
    expected: list[list[int]] = [[], [], [], [], [], []]
    for q, held in enumerate(listed):
        begin = list_start[held] if held >= 0 else 0
        found = sorted(
            (position[r], g) for o, r, g in zip(query, row, grade, strict=True) if o == q and r >= 0
        )
        before = -1
        for at, value in found:
            low = max(start for start in group_start if start <= at)
            if low != before:
                high = min(start for start in group_start if start > at)
                group = high - low, low - begin + 1, q, len(expected[4])
                for column, figure in zip(expected, group, strict=False):
                    column.append(figure)
            before = low
            expected[4].append(value)
            expected[5].append(at - begin + 1)
    expected[3].append(len(expected[4]))
    asked = (query, row, grade, listed, list_start, position, group_start)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_ROWS_PER_THREADING", 0)
        patch.setattr(kernels, "THREADS", threads)
        for result in both(lambda: kernels.group_judged(*(np.array(c, np.int64) for c in asked))):
            assert [column.tolist() for column in result] == expected


@needs_compiled
@given(st.lists(st.lists(st.integers(0, 1), max_size=9), min_size=1, max_size=6))
@example([[1], [1, 1, 1]])  # one longer than twice as long: what was made for the first just holds
def test_ties_in_dicts_are_broken_by_id_after_lists_of_any_length(lists: list[list[int]]) -> None:
    assert kernels.native is not None
    run = {str(q): {str(d): 1.0 for d in range(len(own))} for q, own in enumerate(lists)}
    qrels = {
        str(q): {str(d): d for d, known in enumerate(own) if known} for q, own in enumerate(lists)
    }
    _, *columns = kernels.native.settle(run, qrels, 1, 1)
    *_, rank, held = (np.frombuffer(column, np.int64).tolist() for column in columns)
    judged = [(len(own), d) for own in lists for d in reversed(range(len(own))) if own[d]]
    assert held == [d for _, d in judged]
    assert rank == [length - d for length, d in judged]


@needs_compiled
@given(st.lists(st.lists(st.integers(1, 6), max_size=12), min_size=1, max_size=6), st.randoms())
def test_sums_over_tie_groups_are_the_same_to_the_last_bit(
    lists: list[list[int]], chance: Random
) -> None:
    """A list is the sizes of its groups, some of whose documents are judged."""
    size, first, query, judged, rank, listed = [], [], [], [0], [], []
    for q, sizes in enumerate(lists):
        begin = 1
        for each in sizes:
            held = sorted(chance.sample(range(begin, begin + each), chance.randint(0, each)))
            if held:
                size.append(each)
                first.append(begin)
                query.append(q)
                rank += held
                judged.append(len(rank))
            begin += each
        listed.append(begin - 1)
    grade = [chance.randint(0, 3) for _ in rank]
    pooled = np.bincount(np.repeat(query, np.diff(judged)).astype(int), minlength=len(lists))
    start = np.append(0, np.cumsum(pooled))

    def work() -> list[Any]:
        columns = (listed, size, first, query, judged, grade, rank)
        a, b, c, d, e, f, g = (np.array(column, np.int64) for column in columns)
        pool = Pool(start, 3, f)
        groups = TieGroups(a, b, c, d, e, f, g, pool)
        names = ["AP", "AP@3", "AP(rel=2)@7", "R@4", "Rprec", "Judged@5", "P(rel=3)@2"]
        found = [parse(name).outcomes(groups) for name in names]
        figures = ("expected", "min", "max", "oblivious", "variance")
        short = groups.chosen(groups.first <= 4)
        return [
            *(getattr(each, figure) for each in found for figure in figures),
            *(getattr(short, each.name) for each in fields(short) if each.name != "pool"),
            *(pool.count(1), pool.count(1, 2)),
        ]

    for one, same in zip(*both(work), strict=True):
        np.testing.assert_array_equal(one, same)


@needs_compiled
def test_a_list_too_long_for_16_bit_slots_has_wider_ones() -> None:
    long = pl.Series([f"d{i}" for i in range(1 << 16)])
    start = np.array([0, len(long)])
    for count in (len(long) - 1, len(long)):
        end = np.array([0, count])
        table = kernels.index_documents(long[:count], end)
        assert table is not None
        assert table.slots.dtype == (np.uint16 if count < 1 << 16 else np.uint32)
        found = kernels.find_rows(table, long[:count], end, long, np.zeros(len(long), np.int64))
        assert found.tolist() == [*range(count), *[-1] * (len(long) - count)]
    slots = np.zeros(1 << 18, np.uint16)
    with pytest.raises(ValueError, match="too narrow"):
        kernels.native.index(long, start, np.array([0, 1 << 18]), slots, 0, 1)


@needs_compiled
def test_columns_may_be_slices_or_in_several_chunks() -> None:
    ids = pl.Series(["z", "a-document-with-a-long-id", "b", "c-document-with-a-long-id", "z"])
    for doc in (ids[1:4], pl.concat([ids[1:2], ids[2:4]], rechunk=False)):
        start = np.array([0, 3])
        table = kernels.index_documents(doc, start)
        wanted, query = ids[1:], np.zeros(4, np.int64)
        assert kernels.find_rows(table, doc, start, wanted, query).tolist() == [0, 1, 2, -1]
        assert kernels.rank_rows(np.zeros(3), start, doc, True)[0].tolist() == [2, 1, 0]


@needs_compiled
def test_an_empty_list_is_a_list() -> None:
    none = pl.Series([], dtype=pl.String)
    start = np.zeros(3, np.int64)
    table = kernels.index_documents(none, start)
    assert kernels.find_rows(table, none, start, pl.Series(["a"]), np.array([1])).tolist() == [-1]
    assert kernels.find_rows(table, none, start, none, np.zeros(0, np.int64)).tolist() == []
    assert kernels.rank_rows(np.zeros(0), start, none, False)[0].tolist() == []


@needs_compiled
def test_compiled_code_refuses_arrays_that_are_too_short() -> None:
    native = kernels.native
    assert native is not None
    doc, one = pl.Series(["a", "b"]), np.array([0, 3])
    slots, query = np.zeros(8, np.int32), np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="not all there"):  # three rows of two documents
        native.index(doc, one, np.array([0, 8]), slots, 0, 1)
    with pytest.raises(ValueError, match="expected 16 items of 4 bytes"):
        native.index(doc, np.array([0, 2]), np.array([0, 16]), slots, 0, 1)
    with pytest.raises(ValueError, match="expected 2 items of 8 bytes"):
        native.place(
            *(np.zeros(2, np.float32), np.array([0, 2]), None, 1, np.zeros(2, int)),
            *(np.zeros(2, int), 0, 1),
        )
    with pytest.raises(ValueError, match="no query"):
        native.group(np.array([0, 5], np.int32), np.zeros(3, np.int64), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="not all there"):  # two ids are wanted, one is given
        native.lookup(
            doc, np.array([0, 2]), np.array([0, 8]), slots, doc[:1], *[np.zeros(2, int)] * 2, 0, 2
        )
    with pytest.raises(ValueError, match="without nulls"):
        native.index(pl.Series(["a", None]), np.array([0, 2]), np.array([0, 8]), slots, 0, 1)
    with pytest.raises(TypeError, match="string views"):
        native.index(pl.Series([1, 2]), np.array([0, 2]), np.array([0, 8]), slots, 0, 1)
    out_of_range = np.array([7])
    native.lookup(
        doc, np.array([0, 2]), np.array([0, 8]), slots, doc[:1], out_of_range, query, 0, 1
    )
    assert query.tolist() == [-1]


@needs_compiled
def test_the_environment_turns_compiled_code_off() -> None:
    code = "from rankproof.foundation import kernels; print(kernels.native)"
    for setting, expected in (("0", True), ("1", False)):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "RANKPROOF_NATIVE": setting},
            capture_output=True,
            text=True,
            check=True,
        )
        assert (done.stdout.strip() == "None") == expected


# A command with fewer rows to a million than there are in a real one.
FEWER = """
import sys
from rankproof import cli
from rankproof.foundation import kernels
kernels.SLOW_ROWS = int(sys.argv.pop(1))
cli.run()
"""
READING = [
    ["eval", "q.txt", "a.trec", "b.trec"],
    ["eval", "q.txt", "a.trec", "--memory", "64MiB"],
    ["eval", "q.txt", "shards"],
    ["compare", "q.txt", "a.trec", "b.trec"],
    ["leaderboard", "q.txt", "a.trec", "b.trec"],
    ["gate", "q.txt", "a.trec", "a.trec", "--allow-undecided"],
    ["holes", "q.txt", "a.trec"],
    ["ties", "a.trec"],
    ["ceilings", "q.txt", "a.trec", "-m", "P@1"],
    ["trec_eval", "q.txt", "a.trec"],
]


def _said_of_speed(arguments: list[str], folder: Path, many: int = 3, native: str = "0") -> int:
    """Return how often a command whose run has three rows says that it is slow."""
    rows = "q1 Q0 d1 1 0.9 t\nq1 Q0 d2 2 0.8 t\nq2 Q0 d1 1 0.5 t\n"
    (folder / "shards").mkdir(exist_ok=True)
    for name in ("a.trec", "b.trec", "shards/a.trec"):
        (folder / name).write_text(rows)
    (folder / "q.txt").write_text("q1 0 d1 1\nq2 0 d1 2\n")
    done = subprocess.run(
        [sys.executable, "-c", FEWER, str(many), *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "RANKPROOF_NATIVE": native},
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.count("7 times as long without compiled code; `rankproof doctor` says how")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_every_command_warns_once_of_a_long_run_without_compiled_code(
    tmp_path: Path, arguments: list[str]
) -> None:
    assert _said_of_speed(arguments, tmp_path) == 1


def test_short_runs_without_compiled_code_give_no_warning(tmp_path: Path) -> None:
    assert _said_of_speed(READING[0], tmp_path, many=4) == 0
    assert kernels.SLOW_ROWS == 1_000_000


@needs_compiled
def test_long_runs_with_compiled_code_give_no_warning(tmp_path: Path) -> None:
    assert _said_of_speed(READING[0], tmp_path, native="1") == 0
