"""Pieces of a run, wherever they are cut: the figures of streaming, to the last bit.

Ray's calls are answered in this process here; tests/test_cluster.py makes them of Ray itself.
"""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_streaming import (
    EVERY,
    NOTED,
    TWICE,
    appended,
    grouped,
    named_twice,
    same,
    streamed,
    twice,
    workload,
    write_parquet,
    write_trec,
)

import rankproof as rp
from rankproof import cluster
from rankproof.cluster import runs, shards
from rankproof.cluster.session import load_ray
from rankproof.data.sources import _zstd
from rankproof.evaluation.streaming import shards as files
from rankproof.foundation.progress import progress, show_progress

FEW = ["nDCG@10", "AP", "RR@3"]


class Here:
    """Ray without Ray: a task is done when it is asked for, and what it gives is copied."""

    def __init__(self) -> None:
        self.exceptions = load_ray().exceptions
        self.done: list[str] = []  # the names of the tasks

    def put(self, value: Any) -> Any:
        return value

    def cluster_resources(self) -> dict[str, float]:
        return {}

    def get(self, value: Any) -> Any:
        return value

    def wait(self, values: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return values[:1], values[1:]

    def remote(self, function: Any = None, **_: Any) -> Any:
        if function is None:
            return self.remote

        def call(*given: Any) -> Any:
            self.done.append(function.__name__)
            return pickle.loads(pickle.dumps(function(*given)))

        return SimpleNamespace(remote=call)


@contextmanager
def here(cuts: Sequence[int] | None = None, step: int = 1 << 20) -> Iterator[Here]:
    """Pieces cut at these rows or bytes, read so many rows at a time."""
    ray = Here()

    @contextmanager
    def connected(_: str | None = None) -> Iterator[Here]:
        yield ray

    def cut_file(file: shards.File, form: Any, rows: int) -> list[shards.Piece]:
        assert cuts is not None
        return [shards.Piece(file, form, a, b, rows) for a, b in pairwise(cuts)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "connected", connected)
        patch.setattr(shards, "ROWS_PER_CHUNK", step)
        patch.setattr(files, "MIN_TEXT", 1)
        if cuts is not None:
            patch.setattr(runs, "cut_file", cut_file)
        yield ray


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "step"),
    [(write_parquet, 1), (write_parquet, 3), (write_parquet, 100), (write_trec, 3)],
)
def test_a_cut_at_every_row_and_at_every_byte_changes_no_bit(
    tmp_path: Path, write: Callable[[pl.DataFrame, Path], Path], step: int
) -> None:
    run, judged = workload(1, queries=5, longest=5)
    path = write(grouped(run), tmp_path / "run")
    whole = streamed(path, judged, FEW, 10, tmp_path)
    end = run.height if write is write_parquet else path.stat().st_size
    for cut in range(1, end):
        with here([0, cut, end], step) as ray:
            same(cluster.evaluate(judged, path, FEW), whole)
        assert "_split_piece" not in ray.done  # nothing was shuffled


@pytest.mark.parametrize("case", sorted(TWICE))
def test_the_first_repeated_pair_is_named(tmp_path: Path, case: str) -> None:
    rows, pair, line = TWICE[case]
    path = twice(rows, tmp_path)
    for cut in range(1, path.stat().st_size, 17):
        with here([0, cut, path.stat().st_size], 1), pytest.raises(rp.InputError) as refused:
            cluster.evaluate({"a": {"x": 1}}, path, "RR", rows_per_task=3)
        assert str(refused.value) == named_twice(path, pair, line)


def test_a_run_that_shares_no_query_with_the_judgements_names_its_first(tmp_path: Path) -> None:
    path = twice("a-x b-x a-y c-x d-x", tmp_path)
    with pytest.raises(rp.InputError) as whole:
        rp.evaluate({"z": {"x": 1}}, path, "RR")
    for cut in (1, 20, 40):
        with here([0, cut, path.stat().st_size], 1), pytest.raises(rp.InputError) as refused:
            cluster.evaluate({"z": {"x": 1}}, path, "RR")
        assert str(refused.value) == str(whole.value)


def test_queries_cut_into_pieces_of_one_row_are_joined(tmp_path: Path) -> None:
    run, judged = workload(2)
    path = write_parquet(grouped(run), tmp_path / "run.parquet")
    with here(range(run.height + 1)) as ray:
        found = cluster.evaluate(judged, path, EVERY, rows_per_task=30)
    same(found, streamed(path, judged, EVERY, 10, tmp_path))
    assert "_split_piece" not in ray.done
    longest = run["query"].value_counts()["count"].max()
    assert isinstance(longest, int)
    assert ray.done.count("_measure_packed") >= run.height // (
        30 + longest
    )  # not all rows in one task


def pressed(press: Callable[[bytes], bytes]) -> Callable[[pl.DataFrame, Path], Any]:
    def write(run: pl.DataFrame, path: Path) -> None:
        path.write_bytes(press(write_trec(run, path).read_bytes()))

    return write


WRITERS: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    "trec": write_trec,
    "trec.gz": pressed(gzip.compress),
    "trec.zst": pressed(_zstd().compress),
    "parquet": write_parquet,
    "csv": pl.DataFrame.write_csv,
    "tsv": lambda run, path: run.write_csv(path, separator="\t"),
    "jsonl": pl.DataFrame.write_ndjson,
    "arrow": pl.DataFrame.write_ipc,
}


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 2)
@given(
    seed=st.integers(0, 10**6),
    cuts=st.sets(st.integers(1, 200), max_size=6),
    ordered=st.booleans(),
    formats=st.lists(st.sampled_from(sorted(WRITERS)), min_size=7, max_size=7),
    rows=st.sampled_from([7, 40, 10**6]),
    step=st.sampled_from([1, 5, 10**6]),
    order=st.sampled_from(["input", "docid", "trec_eval"]),
    missing=st.sampled_from(["zero", "skip"]),
)
def test_files_of_every_format_cut_anywhere_have_the_figures_of_streaming(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    cuts: set[int],
    ordered: bool,
    formats: list[str],
    rows: int,
    step: int,
    **policy: Any,
) -> None:
    run, judged = workload(seed, queries=12, longest=20)
    run = grouped(run) if ordered else run
    ends = [0, *sorted(cut for cut in cuts if cut < run.height), run.height]
    folder = tmp_path_factory.mktemp("pieces")
    for at, ((a, b), ending) in enumerate(zip(pairwise(ends), formats, strict=False)):
        WRITERS[ending](run[a:b], folder / f"{at}.{ending}")
    with here(step=step) as ray:
        found = cluster.evaluate(judged, folder, FEW, name="run", rows_per_task=rows, **policy)
    same(found, streamed(folder, judged, FEW, 10, tmp_path_factory.mktemp("spill"), **policy))
    same(found, rp.evaluate(judged, run, FEW, **policy))
    assert not (ordered and "_split_piece" in ray.done)


@pytest.mark.parametrize("scattered", ["in a piece", "over pieces"])
def test_rows_are_sent_by_hash_if_a_query_occurs_again_after_others(
    tmp_path: Path, scattered: str
) -> None:
    run, judged = workload(3)
    run = grouped(run)
    again = [*range(1, run.height), 0]  # the first row of the first query comes last
    path = write_parquet(run[again], tmp_path / "run.parquet")
    cuts = [0, run.height] if scattered == "in a piece" else [0, run.height // 2, run.height]
    with here(cuts) as ray:
        found = cluster.evaluate(judged, path, EVERY)
    assert ray.done.count("_split_piece") == len(cuts) - 1
    same(found, streamed(path, judged, EVERY, 10, tmp_path))


@pytest.mark.parametrize("said", sorted(NOTED))
@pytest.mark.parametrize("scattered", [False, True])
def test_notes_on_a_run_are_those_on_its_pieces(tmp_path: Path, said: str, scattered: bool) -> None:
    name, data, judged, policy = NOTED[said]
    path = tmp_path / name
    rows = data.splitlines(keepends=True)
    path.write_bytes(b"".join(rows[1:] + rows[:1] if scattered else rows))
    whole = rp.evaluate(judged, path, "RR", **policy)
    with here(step=2):
        same(cluster.evaluate(judged, path, "RR", rows_per_task=3, **policy), whole)


@pytest.mark.parametrize("cut", [1, 5, 9, 10, 15])
def test_a_pair_listed_twice_is_named_wherever_the_pieces_are_cut(tmp_path: Path, cut: int) -> None:
    text = [f"q{q} Q0 d{d} 1 0.5 t\n" for q in range(4) for d in range(5)]
    text.insert(9, "q1 Q0 d1 1 0.5 t\n")
    path = tmp_path / "run.trec"
    path.write_text("".join(text))
    with (
        here([0, cut * len(text[0]), path.stat().st_size]),
        pytest.raises(rp.InputError, match=r"run\.trec:10: query 'q1' lists document 'd1' a sec"),
    ):
        cluster.evaluate({"q1": {"d1": 1}}, path, "RR")


def test_the_first_error_in_a_run_is_reported_even_after_repeated_queries(tmp_path: Path) -> None:
    path = tmp_path / "run.trec"
    rows = [f"q{at % 3} Q0 d{at} 1 0.5 t\n" for at in range(30)]
    rows[7], rows[25] = "q1 Q0 d\n", "q1 Q0 d 1 nan t\n"
    path.write_text("".join(rows))
    with (
        here(step=2),
        pytest.raises(rp.InputError, match=r"run\.trec:8: 3 columns where a TREC run has"),
    ):
        cluster.evaluate({"q1": {"d1": 1}}, path, "RR", rows_per_task=10)


def test_a_file_that_changes_while_tasks_read_it_is_refused(tmp_path: Path) -> None:
    run, judged = workload(4)
    path = write_trec(grouped(run), tmp_path / "run.trec")
    with (
        here(),
        reporting_progress(lambda _: appended(path)),
        pytest.raises(rp.InputError, match=r"run\.trec: the file changed while it was read"),
    ):
        cluster.evaluate(judged, path, "RR", rows_per_task=100)


@contextmanager
def reporting_progress(report: Callable[[float], Any]) -> Iterator[None]:
    """An open task of progress whose advances are passed to `report`."""

    @contextmanager
    def display(label: str, total: float) -> Iterator[Callable[[float], None]]:
        yield report

    show_progress(display)
    try:
        with progress("evaluating", 1):
            yield
    finally:
        show_progress(None)


def test_progress_adds_up_to_one_run_and_an_empty_run_is_an_error_of_one_line(
    tmp_path: Path,
) -> None:
    run, judged = workload(4)
    path = write_parquet(grouped(run), tmp_path / "run.parquet")
    advances: list[float] = []
    cuts = range(0, run.height + 1, run.height // 3)
    with here(cuts), reporting_progress(advances.append):
        cluster.evaluate(judged, path, "AP")
    # Reading reports bytes, which workers of Ray, as other processes, show nowhere.
    assert sum(share for share in advances if share < 1) == pytest.approx(1)
    write_parquet(run[:0], tmp_path / "none.parquet")
    with here([0, 0]), pytest.raises(rp.InputError, match=r"none\.parquet: no rows"):
        cluster.evaluate(judged, tmp_path / "none.parquet", "AP")
