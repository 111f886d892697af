"""Runs in parts: the figures of the whole, to the last bit."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from progress_display import reporting_to
from rankproof_cli import rankproof

import rankproof as rp
from rankproof.evaluation import Evaluation, Policy, parse_all, streaming
from rankproof.evaluation.streaming import evaluate as module
from rankproof.evaluation.streaming import merging, shards
from rankproof.foundation import memory
from rankproof.foundation.lines import LINE
from rankproof.measures import REGISTRY

EVERY = [
    f"{name}@5" if definition.needs_cutoff else name
    for name, definition in REGISTRY.items()
    if definition.reads != "aspects"  # test_diversity.py
] + ["nDCG@10", "RR@3", "AP(rel=2)@20", "ERR@10", "RAnWG@30", "nDCG(gain='exp')@5"]


def workload(seed: int, queries: int = 23, longest: int = 40) -> tuple[pl.DataFrame, Any]:
    """A run full of ties in scattered order, and judgements that overlap it in part."""
    generator = np.random.default_rng(seed)
    rows: list[tuple[str, str, float]] = []
    judged: dict[str, dict[str, int]] = {}
    for q in range(queries):
        docs = generator.permutation(60)[: generator.integers(1, longest)]
        scores = generator.integers(0, 9, len(docs)) / 8
        rows += [(f"q{q}", f"d{d}", float(s)) for d, s in zip(docs, scores, strict=True)]
        if q % 5:  # every fifth query of the run has no judgements
            pooled = generator.permutation(60)[:18]  # of which the last were not judged
            judged[f"q{q}"] = {f"d{d}": int(generator.integers(1, 6)) for d in pooled[:12]}
            judged[f"q{q}"] |= {f"d{d}": -1 for d in pooled[12:]}
    judged |= {f"lost{q}": {"d1": 3, "d2": 1} for q in range(3)}  # the run lacks these
    random.Random(seed).shuffle(rows)
    return pl.DataFrame(rows, ["query", "doc", "score"], orient="row"), judged


def grouped(run: pl.DataFrame) -> pl.DataFrame:
    return pl.concat(run.partition_by("query", maintain_order=True))


def write_trec(run: pl.DataFrame, path: Path) -> Path:
    path.write_text("".join(f"{q} Q0 {d} 1 {s!r} tag\n" for q, d, s in run.iter_rows()))
    return path


def write_parquet(run: pl.DataFrame, path: Path) -> Path:
    run.write_parquet(path, row_group_size=7)
    return path


def same(a: Evaluation, b: Evaluation) -> None:
    """Equal to the last bit, whatever order the queries were read in."""
    assert a.queries.to_list() == b.queries.to_list()
    assert (a.missing, a.unjudged, a.tied, a.dtype, a.notes) == (
        *(b.missing, b.unjudged, b.tied, b.dtype, b.notes),
    )
    assert list(a) == list(b)
    for measure in a:
        one, other = a.outcomes[measure], b.outcomes[measure]
        for figure in ("expected", "min", "max", "oblivious"):
            x, y = getattr(one, figure), getattr(other, figure)
            assert x.tobytes() == y.tobytes(), (str(measure), figure)
        assert (one.variance is None) == (other.variance is None)
        if one.variance is not None and other.variance is not None:
            assert one.variance.tobytes() == other.variance.tobytes(), str(measure)
    # `rp.evaluate` adds Judged@k, which a stream computes only if it is among the measures.
    first, second = (replace(x, judged={}).to_dict(per_query=True) for x in (a, b))
    assert first == second


def streamed(
    run: Any, judged: Any, measures: Any, step: int, spill: Path, **settings: Any
) -> Evaluation:
    """`evaluate_stream` with chunks of about `step` rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BYTES_PER_ROW", memory.MINIMUM // (3 * step))
        patch.setattr(shards, "MIN_TEXT", 1)
        return streaming.evaluate_stream(
            run,
            rp.read_qrels(judged),
            parse_all(measures),
            Policy.of(**settings),
            memory=memory.MINIMUM,
            spill_dir=spill,
            name="run",
        )


WRITERS: dict[str, Callable[[pl.DataFrame, Path], Path]] = {
    "run.parquet": write_parquet,
    "run.trec": write_trec,
}


@settings(max_examples=settings().max_examples // 3)
@given(
    seed=st.integers(0, 10**6),
    step=st.integers(10, 300),
    ordered=st.booleans(),
    name=st.sampled_from(sorted(WRITERS)),
    order=st.sampled_from(["input", "docid", "trec_eval"]),
    missing=st.sampled_from(["zero", "skip"]),
    candidates_only=st.booleans(),
    score_dtype=st.sampled_from([None, "bfloat16"]),
)
def test_a_run_in_parts_has_the_figures_of_the_whole_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    step: int,
    ordered: bool,
    name: str,
    **policy: Any,
) -> None:
    folder = tmp_path_factory.mktemp("stream")
    run, judged = workload(seed)
    path = WRITERS[name](grouped(run) if ordered else run, folder / name)
    found = streamed(path, judged, EVERY, step, folder, **policy)
    same(found, rp.evaluate(judged, path, EVERY, **policy))
    assert [file.name for file in folder.iterdir()] == [name]  # nothing spilled is left


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "press"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)],
)
@pytest.mark.parametrize("ordered", [True, False])
def test_a_compressed_file_is_streamed_too(
    tmp_path: Path, ending: str, press: Callable[[bytes], bytes], ordered: bool
) -> None:
    run, judged = workload(1, queries=200)
    plain = write_trec(grouped(run) if ordered else run, tmp_path / "run.trec")
    pressed = tmp_path / f"run.trec{ending}"
    pressed.write_bytes(press(plain.read_bytes()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rankproof.data.sources.CHUNK", 1 << 12)
        found = streamed(pressed, judged, EVERY, 100, tmp_path)
    same(found, rp.evaluate(judged, plain, EVERY))


@pytest.mark.slow
@pytest.mark.parametrize("step", [5, 17, 10_000])
def test_a_query_may_be_spread_over_the_files_of_a_folder(tmp_path: Path, step: int) -> None:
    run, judged = workload(2)
    folder = tmp_path / "shards" / "inner"
    folder.mkdir(parents=True)
    for at, begin in enumerate(range(0, run.height, 50)):
        name = f"part-{at:03}.{'parquet' if at % 2 else 'trec'}"
        WRITERS[f"run{Path(name).suffix}"](run[begin : begin + 50], folder / name)
    (folder / "_SUCCESS").touch()
    (folder / ".part-000.crc").write_bytes(b"\0\1")
    spill = tmp_path / "spill"
    spill.mkdir()
    found = streamed(tmp_path / "shards", judged, EVERY, step, spill)
    same(found, rp.evaluate(judged, run, EVERY).renamed("run"))
    whole = rp.evaluate(judged, tmp_path / "shards", EVERY)
    assert whole.name == "shards"
    same(whole.renamed("run"), found)


def test_shards_of_different_score_formats_are_compared_in_the_widest(tmp_path: Path) -> None:
    run = {"q": {"a": 0.1, "b": 0.25}}
    frame = pl.DataFrame(
        {"query": ["q"], "doc": ["a"], "score": pl.Series([0.1], dtype=pl.Float32)}
    )
    frame.write_parquet(tmp_path / "0.parquet")
    pl.DataFrame({"query": ["q"], "doc": ["b"], "score": [0.25]}).write_parquet(
        tmp_path / "1.parquet"
    )
    assert rp.evaluate({"q": {"a": 1}}, tmp_path, "RR").dtype == "float64"
    assert rp.evaluate({"q": {"a": 1}}, run, "RR")["RR"].expected == 0.5


def test_nothing_is_spilled_where_the_rows_of_each_query_stand_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("spilled")

    monkeypatch.setattr(module, "spill_folder", refuse)
    run, judged = workload(3)
    path = write_parquet(grouped(run), tmp_path / "run.parquet")
    same(streamed(path, judged, "AP", 20, tmp_path), rp.evaluate(judged, path, "AP"))
    scattered = write_parquet(run, tmp_path / "scattered.parquet")
    with pytest.raises(AssertionError, match="spilled"):
        streamed(scattered, judged, "AP", 20, tmp_path)


def test_a_false_alarm_of_the_hash_costs_time_but_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module._DistinctIds, "add", lambda *_, **__: False)
    run, judged = workload(4)
    path = write_parquet(grouped(run), tmp_path / "run.parquet")
    same(streamed(path, judged, EVERY, 20, tmp_path), rp.evaluate(judged, path, EVERY))


def test_the_part_of_a_query_is_the_same_everywhere() -> None:
    ids = pl.Series(["q1", "q2", "été", ""])
    # CRC-32 as zip files define it: 0xCBF43926 is its published check value for "123456789".
    assert merging.hash_parts(pl.Series(["123456789"]), 2**32).tolist() == [0xCBF43926]
    assert (merging.hash_parts(ids, 7) == merging.hash_parts(ids, 2**32) % 7).all()


def lists(scores: str, more: str = " t") -> bytes:
    rows = [f"q{q} Q0 d{d} 1 {s}{more}\n" for q in range(9) for d, s in enumerate(scores.split())]
    return "".join(rows).encode()


JUDGED = {f"q{q}": {"d1": 1, "d2": 0} for q in range(9)}
RANKED = {f"q{q}": {"d1": 3, "d2": 2, "d3": 1} for q in range(9)}
# A run by what is said of it: its file, its content, judgements, settings.
NOTED: dict[str, tuple[str, bytes, Any, dict[str, Any]]] = {
    "look like ranks": ("run.trec", lists("5 4 3 2"), JUDGED, {}),
    "look like ranks: ties": ("run.json", b'{"q1": ["a", "d1"], "q2": ["d1"]}', JUDGED, {}),
    "five columns are read": ("run.trec", lists("0.5 0.4 0.1", ""), JUDGED, {}),
    "words behind a run's tag": ("run.trec", lists("0.5 0.4 0.1", " t u"), JUDGED, {}),
    "9 lists of run end inside": (
        "run.trec",
        lists("0.5 0.5 0.5"),
        JUDGED,
        {"depth": 2, "condensed": True},
    ),
    "1 of 1 query returns no document that the judgments know": (
        "run.trec",
        lists("0.5 0.4 0.1"),
        {"q1": {"z": 1, "y": 0}},
        {},
    ),
    "2 of 2 queries return no document that the judgments know": (
        "run.trec",
        "".join(f"{q} Q0 {d} 1 0.5 t\n" for q, d in ("qb", "rx", "qc", "qd", "qe")).encode(),
        {"q": {"z": 1}, "r": {"z": 1}},
        {},
    ),
    "are run and judgments swapped?": ("run.trec", lists("1 0 1 1"), RANKED, {}),
    "": ("run.trec", lists("5 4 3 2") + b"z Q0 a 1 3 t\nz Q0 b 1 2.5 t\n", JUDGED, {}),
}


@pytest.mark.parametrize("said", sorted(NOTED))
@pytest.mark.parametrize("step", [1, 5, 1000])
def test_what_is_said_of_a_run_is_said_of_its_parts(tmp_path: Path, said: str, step: int) -> None:
    name, data, judged, policy = NOTED[said]
    path = tmp_path / name
    path.write_bytes(data)
    whole = rp.evaluate(judged, path, "RR", **policy)
    same(streamed(path, judged, "RR", step, tmp_path, **policy), whole)
    notes = [*whole.notes, *filter(None, [whole.id_problem])]
    assert [said in note for note in notes] == ([True] if said else [])


BAD: dict[str, tuple[str, str]] = {
    "q0 Q0 x 1 nan t\n": ("score 'nan' is not a number", "drop the line or rescore it"),
    "q0 Q0 x 1\n": ("4 columns where a TREC run has 6", "fix the line"),
    "q0 Q0 d1 1 0.5 t\nq0 Q0 d1 2 0.4 t\n": ("lists document 'd1' a second time", "keep one"),
}


@pytest.mark.parametrize("line", sorted(BAD))
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_bad_line_is_named_as_when_the_file_is_read_whole(
    tmp_path: Path, line: str, ending: str
) -> None:
    text = "# made by hand\n" + "".join(
        f"r{q} Q0 d{d} 1 0.5 t\n\n" for q in range(30) for d in range(5)
    )
    data = (text + line + "z Q0 d1 1 0.5 t\n").encode()
    path = tmp_path / f"run.trec{ending}"
    path.write_bytes(gzip.compress(data) if ending else data)
    judged = {"r1": {"d1": 1}}
    with pytest.raises(rp.InputError) as whole:
        rp.evaluate(judged, path, "RR")
    with pytest.raises(rp.InputError) as inparts:
        streamed(path, judged, "RR", 8, tmp_path)
    assert str(inparts.value) == str(whole.value)
    for words in BAD[line]:
        assert words in str(inparts.value)


# Wrong lines, the first of which is the one that a message names; a pair listed twice comes last.
SEVERAL: dict[str, tuple[str, list[bytes]]] = {
    "an id, then columns": ("14: the query id 'a\\x01b'", [b"a\1b Q0 d 1 1 t", b"r1 Q0 x 1"]),
    "a number, then columns": ("14: score 'x' is", [b"r1 Q0 x 1 x t", b"r1 Q0 y"]),
    "a number, then no text": ("14: score 'x' is", [b"r1 Q0 x 1 x t", b"\xff Q0 d 1 1 t"]),
    "no text, then columns": ("14: byte 0xff is not", [b"\xff\xfe Q0 d 1 1 t", b"r1 Q0 y"]),
    "a document, then a query": ("14: the document id", [b"r Q0 \1 1 1 t", b"\1 Q0 y 1 1 t"]),
    "a pair, then a number": ("17: score 'x' is", [b"r0 Q0 d0 1 1 t", b"r1 Q0 x 1 x t"]),
    "columns, in a part of their own": (
        "14: 4 columns where a TREC run has 6 (query Q0 doc rank score tag): 'r1 Q0 a-long-id-of-"
        "a-document 1'; fix",
        [b"r1 Q0 a-long-id-of-a-document 1"],
    ),
}


@pytest.mark.parametrize("case", sorted(SEVERAL))
@pytest.mark.parametrize("native", [True, False])
def test_of_several_wrong_lines_every_way_of_reading_names_the_same(
    tmp_path: Path, case: str, native: bool
) -> None:
    words, wrong = SEVERAL[case]
    good = b"".join(b"r%d Q0 d%d 1 0.5 t\n" % (at // 5, at) for at in range(13))
    path = tmp_path / "run.trec"
    path.write_bytes(good + b"\nz Q0 d 1 0 t\ny Q0 d 1 0 t\n".join(wrong) + b"\n" + good[:1])
    with pytest.MonkeyPatch.context() as patch:
        if not native:
            patch.setattr("rankproof.foundation.kernels.native", None)
        for step in (0, 1, 3, 99):
            with pytest.raises(rp.InputError, match=re.escape(f"run.trec:{words}")):
                in_steps(path, {"r1": {"d1": 1}}, step)


# Rows of a run, the first that comes again, and where.
TWICE: dict[str, tuple[str, str, int]] = {
    "of the third query": ("a-x b-x c-x b-y c-x a-x b-y", "c-x", 5),
    "of a query that came again": ("a-x b-y a-x c-z c-z", "a-x", 3),
    "where rows stand together": ("a-x a-y b-x b-y b-x c-x c-x a-z", "b-x", 5),
    "in another part": ("a-x b-x c-x d-x e-x f-x f-x e-x d-x c-x b-x a-x", "f-x", 7),
}


@pytest.mark.parametrize("case", sorted(TWICE))
@pytest.mark.parametrize("native", [True, False])
def test_of_pairs_that_are_listed_twice_the_first_to_come_again_is_named(
    tmp_path: Path, case: str, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, pair, line = TWICE[case]
    path = twice(rows, tmp_path)
    if not native:
        monkeypatch.setattr("rankproof.foundation.kernels.native", None)
    for step in (0, 1, 2, 5, 99):
        with pytest.raises(rp.InputError) as refused:
            in_steps(path, {"a": {"x": 1}}, step)
        assert str(refused.value) == named_twice(path, pair, line)


def test_a_query_that_comes_again_in_the_chunk_behind_is_measured_once(tmp_path: Path) -> None:
    """As long as few queries were seen since the last look, nobody has noticed yet."""
    judged = {"a": {"d0": 1}, "f": {"d3": 1, "d8": 1}, "d": {"d7": 1}}
    for queries in ("affgdedf", "affgdef", "afffgdedf", "bcdefghabcadaaf"):
        path = twice(" ".join(f"{query}-d{at}" for at, query in enumerate(queries)), tmp_path)
        whole = rp.evaluate(judged, path, "RR")
        for step in range(1, 9):
            same(streamed(path, judged, "RR", step, tmp_path), whole)


def twice(rows: str, folder: Path) -> Path:
    path = folder / "run.trec"
    listed = (pair.split("-") for pair in rows.split())
    path.write_text("".join(f"{query} Q0 {doc} 1 0.5 t\n" for query, doc in listed))
    return path


def named_twice(path: Path, pair: str, line: int) -> str:
    query, doc = pair.split("-")
    return (
        f"{path}:{line}: query {query!r} lists document {doc!r} a second time; keep one of the two"
    )


def in_steps(path: Path, judged: Any, step: int) -> Evaluation:
    """So many rows at a time, or with 0 all at once."""
    if not step:
        return rp.evaluate(judged, path, "RR")
    return streamed(path, judged, "RR", step, path.parent)


@pytest.mark.parametrize("step", [1, 2, 3, 4, 7])
def test_a_line_that_begins_with_blanks_is_counted_wherever_a_chunk_begins(
    tmp_path: Path, step: int
) -> None:
    path = tmp_path / "run.trec"
    for blanks in range(20, 30, 3):
        rows = [f"{' ' * blanks}q{at} Q0 d 1 0.5 t\n" for at in range(20)]
        path.write_text("".join([*rows, "q3 Q0 d 1 1 t"]))
        with pytest.raises(rp.InputError, match=r"run.trec:21: query 'q3' lists document 'd' a "):
            streamed(path, {"q3": {"d": 1}}, "RR", step, tmp_path)


def test_what_comes_before_a_chunk_is_read_again_for_a_message_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the cost of lines that only the general reader understands grows with their square."""
    path = tmp_path / "run.trec"
    path.write_bytes(lists("0.5 0.4", "") + b"z Q0 d 1 0.5\n")
    monkeypatch.setattr(shards.Shard, "_text_before", None)
    assert len(streamed(path, JUDGED, "RR", 2, tmp_path).queries) == 9
    path.write_bytes(lists("0.5 0.4", " \xff").replace("\xff".encode(), b"\xff"))
    assert len(streamed(path, JUDGED, "RR", 2, tmp_path).queries) == 9


def appended(path: Path) -> None:
    with path.open("a") as file:
        file.write("z Q0 d1 1 0.25 t\n")


def cut_short(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes().replace(b" 0.5 ", b" 0.1 "))
    other.replace(path)


@pytest.mark.parametrize("change", [appended, cut_short, replaced])
@pytest.mark.parametrize("whole", [True, False])
def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, change: Callable[[Path], None], whole: bool
) -> None:
    run, judged = workload(3)
    path = write_trec(grouped(run), tmp_path / "run.trec")
    once = iter([path])  # changed when the first bytes are reported

    def change_once(_: float) -> None:
        for one in once:
            change(one)

    def read() -> object:
        if whole:
            return rp.read_run(path)
        asked = rp.read_qrels(judged), parse_all("RR"), Policy()
        return streaming.evaluate_stream(path, *asked, spill_dir=tmp_path)

    refused = pytest.raises(rp.InputError, match=r"run\.trec: the file changed while it was read; ")
    with refused, reporting_to(change_once):
        read()


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("press", [bytes, gzip.compress])
@pytest.mark.parametrize("native", [True, False])
def test_the_longest_line_is_the_same_in_every_way_of_reading(
    tmp_path: Path, more: int, press: Callable[[bytes], bytes], native: bool
) -> None:
    line = b"q1 Q0 d1 1 0.5 "
    path = tmp_path / "run.trec"
    path.write_bytes(press(b"q1 Q0 d 1 1 t\n" + line + b"t" * (LINE - len(line) + more) + b"\n"))
    with pytest.MonkeyPatch.context() as patch:
        if not native:
            patch.setattr("rankproof.foundation.kernels.native", None)
        for step in (0, 10**4):
            if not more:
                assert in_steps(path, {"q1": {"d1": 1}}, step)["RR"].expected == 0.5
                continue
            with pytest.raises(rp.InputError, match=r"run.trec:2: a line of more than 4 MiB; "):
                in_steps(path, {"q1": {"d1": 1}}, step)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_lines_are_counted_wherever_a_chunk_begins(tmp_path: Path, mark: bytes, step: int) -> None:
    rows = [b"q%d Q0 d%d 1 0.5 t\n" % (at, at * at) for at in range(20)]
    path = tmp_path / "run.trec"
    for bad, words in (
        (b"q\xff Q0 d 1 0.5 t\n", "run.trec:18: byte 0xff is not UTF-8"),
        (b"q Q0 d 1 nan t\n", "run.trec:18: score 'nan' is not a number"),
        (b"q3 Q0 d9 1 1.5 t\n", "run.trec:18: query 'q3' lists document 'd9' a second time"),
    ):
        path.write_bytes(mark + b"".join([*rows[:17], bad, *rows[17:]]))
        with pytest.raises(rp.InputError, match=words):
            streamed(path, {"q": {"d": 1}}, "RR", step, tmp_path)


def test_lines_that_only_the_general_reader_understands_are_streamed(tmp_path: Path) -> None:
    run, judged = workload(5)
    path = write_trec(run, tmp_path / "run.trec")
    plain = path.read_text()
    path.write_text(plain.replace(" Q0 ", "\t  Q0\x0b ").replace("\n", "\r\n"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rankproof.foundation.kernels.native", None)
        found = streamed(path, judged, EVERY, 20, tmp_path)
        whole = rp.evaluate(judged, path, EVERY)
    same(found, whole)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (pl.DataFrame({"query": ["q"], "doc": ["d"]}), "no column 'score'"),
        (pl.DataFrame({"query": ["q", ""], "doc": ["d", "e"], "score": [1.0, 2.0]}), "row 2"),
        (pl.DataFrame({"query": ["q"], "doc": ["d"], "score": [float("nan")]}), "row 1: score nan"),
        (pl.DataFrame({"query": ["q"], "doc": ["d"], "score": ["1"]}), "not numbers"),
        (pl.DataFrame(schema={"query": pl.String, "doc": pl.String, "score": pl.Float64}), "no ro"),
    ],
)
def test_a_bad_parquet_file_is_named_as_when_it_is_read_whole(
    tmp_path: Path, frame: pl.DataFrame, words: str
) -> None:
    path = tmp_path / "run.parquet"
    frame.write_parquet(path)
    with pytest.raises(rp.InputError) as whole:
        rp.evaluate({"q": {"d": 1}}, path, "RR")
    with pytest.raises(rp.InputError, match=words) as inparts:
        streamed(path, {"q": {"d": 1}}, "RR", 8, tmp_path)
    assert str(inparts.value) == str(whole.value)


@pytest.mark.slow
def test_a_run_that_shares_no_query_with_the_judgements_is_refused(tmp_path: Path) -> None:
    run, _ = workload(6)
    path = write_parquet(run, tmp_path / "run.parquet")
    for judged in ({"other": {"d": 1}}, {"x": {"d": 1}, "y": {"d": 1}}):
        with pytest.raises(rp.InputError) as whole:
            rp.evaluate(judged, path, "RR")
        for step in (50, 1):  # a query may fill more than a chunk
            with pytest.raises(rp.InputError) as inparts:
                streamed(path, judged, "RR", step, tmp_path)
            assert str(inparts.value) == str(whole.value)


def test_a_grade_outside_the_scale_of_a_measure_is_refused_before_reading(tmp_path: Path) -> None:
    run, _ = workload(6)
    path = write_parquet(run, tmp_path / "run.parquet")
    with pytest.raises(rp.InputError, match="outside 1–5"):
        streamed(path, {"q1": {"d1": 9}}, "RAnWG@5", 50, tmp_path)


@pytest.mark.parametrize("words", ["", "2 apples", "-1GB", "GB", "1e9", "10"])
def test_an_amount_of_memory_is_checked(words: str) -> None:
    with pytest.raises(rp.InputError, match="memory"):
        memory.parse_memory(words)


def test_amounts_of_memory_are_read_as_people_write_them() -> None:
    amounts: dict[int | str, int] = {"2GB": 2 * 10**9, "1.5g": 15 * 10**8, "512 MiB": 2**29}
    amounts |= {"64000000": 64_000_000, 64_000_000: 64_000_000, "1TiB": 2**40}
    assert {words: memory.parse_memory(words) for words in amounts} == amounts


def test_a_file_is_streamed_when_it_would_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_parquet(workload(7)[0], tmp_path / "run.parquet")
    assert not streaming.needs_parts(path, None)
    assert not streaming.needs_parts(path, "16MiB")
    monkeypatch.setattr(module, "BYTES_PER_ROW", 10**6)
    assert streaming.needs_parts(path, "16MiB")
    assert not streaming.needs_parts(path, "10GB")
    assert not streaming.needs_parts("-", "16MiB")
    assert not streaming.needs_parts({"q": {"d": 1.0}}, "16MiB")
    table = tmp_path / "run.csv"
    table.write_text("query,doc,score\nq,d,1\n")
    assert not streaming.needs_parts(table, "16MiB")


def test_the_command_line_streams_a_folder_and_a_file_alike(tmp_path: Path) -> None:
    run, judged = workload(8, queries=60)
    qrels = tmp_path / "qrels.txt"
    qrels.write_text("".join(f"{q} 0 {d} {g}\n" for q, ds in judged.items() for d, g in ds.items()))
    folder = tmp_path / "run"
    folder.mkdir()
    write_parquet(run[:300], folder / "a.parquet")
    write_trec(run[300:], folder / "b.trec")
    write_parquet(run, tmp_path / "run.parquet")
    arguments = ("--format", "json", "--memory", "16MiB", "--spill-dir", str(tmp_path))
    found = rankproof("eval", str(qrels), str(folder), *arguments)
    assert (found.returncode, found.stderr.count(b"\n")) == (0, 1)  # negative grades
    whole = rankproof("eval", str(qrels), str(tmp_path / "run.parquet"), "--format", "json")
    apart, together = (json.loads(run.stdout) for run in (found, whole))
    for said in (apart, together):
        del said["manifest"]  # another command, at another time
    assert apart == together
    for folder_name, words in (("nowhere", b"no such folder"), ("run.parquet", b"no such folder")):
        refused = rankproof(
            *("eval", str(qrels), str(folder), "--spill-dir", str(tmp_path / folder_name))
        )
        assert (refused.returncode, refused.stdout) == (2, b"")
        assert words in refused.stderr
        assert refused.stderr.count(b"\n") == 1


PEAK = """
import re, sys
from pathlib import Path
import rankproof as rp
rp.evaluate({"1": {"2": 1}}, sys.argv[1], "nDCG@10", memory=sys.argv[2], spill_dir=sys.argv[3])
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
@pytest.mark.parametrize("ordered", [True, False])
def test_streaming_takes_the_memory_it_is_given_and_little_more(
    tmp_path: Path, ordered: bool
) -> None:
    at = np.arange(4_000_000)
    query, doc = (at // 1000, at % 1000) if ordered else (at % 4000, at // 4000)
    path = tmp_path / "run.parquet"
    pl.DataFrame({"query": query, "doc": doc, "score": -doc / 8}).write_parquet(path)
    whole, streamed = (
        1024
        * int(subprocess.check_output([sys.executable, "-c", PEAK, str(path), size, str(tmp_path)]))
        for size in ("100GB", "32MB")
    )
    assert streamed < 32e6 + 150e6  # the interpreter, numpy and polars take about 100 MB
    assert whole > streamed + 100e6


def test_a_comparison_streams_its_runs_and_says_the_same(tmp_path: Path) -> None:
    data = Path(rp.__file__).parent / "resources"
    runs, folders = {}, {}
    for name in ("saturated", "plain"):
        runs[name] = data / f"demo-{name}.trec"
        lines = runs[name].read_text().splitlines(keepends=True)
        folders[name] = tmp_path / name
        folders[name].mkdir()
        for at in (0, 1):
            (folders[name] / f"{at}.trec").write_text("".join(lines[at::2]))
    measures, qrels = ["nDCG@10", "AP(rel=2)"], data / "demo-qrels.txt"
    whole = rp.compare(qrels, runs, measures, order="docid", holes=False)
    streamed = rp.compare(
        qrels, folders, measures, order="docid", memory="16MiB", spill_dir=tmp_path
    )
    assert streamed.to_dict() == whole.to_dict()
    files = [str(folder) for folder in folders.values()]
    done = rankproof("compare", str(qrels), *files, "-m", "nDCG@10", "--memory", "16MiB")
    assert done.returncode == 0, done.stderr
