"""Files however they are stored: compressed, piped, watched, cut short or out of reach."""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import polars as pl
import pytest
from progress_display import reporting_to

from rankproof import (
    InputError,
    compare,
    evaluate,
    leaderboard,
    read_qrels,
    read_run,
    tie_statistics,
)
from rankproof.data import sources, trec
from rankproof.foundation import kernels

zstd = importlib.import_module(
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstd.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
ROWS = [(f"q{q}", f"document-{q}-{d}", 1 / (1 + d)) for q in range(40) for d in range(50)]
TEXT = "".join(f"{q} Q0 {d} 1 {s!r} tag\n" for q, d, s in ROWS).encode()


@pytest.mark.parametrize("name", ["run.trec{}", "run{}", "{}", "RUN.TXT{}"])
@pytest.mark.parametrize("ending", COMPRESS)
def test_compressed_files_read_as_plain_ones_do(tmp_path: Path, ending: str, name: str) -> None:
    path = tmp_path / name.format(ending)
    path.write_bytes(COMPRESS[ending](TEXT))
    assert read_run(path).to_frame().rows() == ROWS


@pytest.mark.parametrize("ending", COMPRESS)
def test_compression_is_told_by_content_not_by_name(tmp_path: Path, ending: str) -> None:
    named_plain, named_compressed = tmp_path / "run.trec", tmp_path / f"plain.trec{ending}"
    named_plain.write_bytes(COMPRESS[ending](TEXT))
    named_compressed.write_bytes(TEXT)
    assert read_run(named_plain).to_frame().rows() == ROWS
    assert read_run(named_compressed).to_frame().rows() == ROWS


@pytest.mark.parametrize("ending", COMPRESS)
def test_compressed_parts_one_after_the_other_are_one_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "run"
    half = TEXT.index(b"\n", len(TEXT) // 2) - 3  # inside a line
    path.write_bytes(COMPRESS[ending](TEXT[:half]) + COMPRESS[ending](TEXT[half:]))
    assert read_run(path).to_frame().rows() == ROWS


@pytest.mark.skipif(not Path("/proc/version").is_file(), reason="Linux has it")
def test_a_file_that_tells_no_size_is_read_all_the_same() -> None:
    for read in (read_run, read_qrels):
        with pytest.raises(InputError, match=r"^/proc/version:1: "):
            read("/proc/version")
    assert sources.Source("/proc/version").read() == Path("/proc/version").read_bytes()


def test_a_query_may_be_named_as_a_bzip2_file_begins(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("BZh9 Q0 d 1 0.5 t\n")
    assert read_run(path).to_frame().rows() == [("BZh9", "d", 0.5)]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_dash_is_standard_input(
    monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(compress(TEXT))))
    run = read_run("-")
    assert run.to_frame().rows() == ROWS
    assert run.name == "stdin"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_pipe_can_be_read_though_only_once(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    data = compress(TEXT + TEXT[:40].split(b"\n")[0])  # the first row again: an error needs lines
    writer = Thread(target=path.write_bytes, args=[data])
    writer.start()
    with pytest.raises(InputError) as caught:
        read_run(path)
    writer.join()
    assert str(caught.value).startswith(f"{path}:2001: query 'q0' lists document 'document-0-0'")


# -------------------------------------------------------------------------------------- progress


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("ending", ["", *COMPRESS])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_progress_adds_up_to_the_file_as_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, native: bool, threads: int
) -> None:
    monkeypatch.setattr(sources, "CHUNK", 1000)
    monkeypatch.setattr(trec, "CHUNK", 1000)
    monkeypatch.setattr(kernels, "THREADS", threads)
    if not native:
        monkeypatch.setattr(kernels, "native", None)
    for text in (TEXT, TEXT[:-1], b"\xef\xbb\xbf" + TEXT):
        path = tmp_path / f"run{ending}"
        path.write_bytes(COMPRESS.get(ending, bytes)(text))
        amounts: list[float] = []
        with reporting_to(amounts.append):
            read_run(path)
        assert sum(amounts) == path.stat().st_size
        assert len(amounts) > 1 or ending
        assert min(amounts) >= 0


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("run.parquet", pl.DataFrame.write_parquet),
        ("run.arrow", pl.DataFrame.write_ipc),
        ("run.csv", pl.DataFrame.write_csv),
        ("run.jsonl", pl.DataFrame.write_ndjson),
    ],
)
def test_progress_is_reported_for_every_format(
    tmp_path: Path, name: str, write: Callable[[pl.DataFrame, Path], None]
) -> None:
    path = tmp_path / name
    write(pl.DataFrame(ROWS, schema=["query", "doc", "score"], orient="row"), path)
    amounts: list[float] = []
    with reporting_to(amounts.append):
        assert read_run(path).to_frame().rows() == ROWS
    assert sum(amounts) == path.stat().st_size


def test_progress_never_exceeds_the_file_when_a_second_reader_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trec, "CHUNK", 1000)
    path = tmp_path / "run"
    path.write_bytes(TEXT + b"q Q0 d 1 0." + b"1" * 99 + b" t\n")
    amounts: list[float] = []
    with reporting_to(amounts.append):
        assert len(read_run(path)) == len(ROWS) + 1
    assert 0 < sum(amounts) <= path.stat().st_size


# --------------------------------------------------------------------------------------- trouble


def refused(path: Path | str) -> str:
    with pytest.raises(InputError) as caught:
        read_run(path)
    assert "\n" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return str(caught.value)


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.99])
def test_compressed_data_that_ends_too_early_is_refused(
    tmp_path: Path, ending: str, kept: float
) -> None:
    path = tmp_path / f"run{ending}"
    data = COMPRESS[ending](TEXT)
    path.write_bytes(data[: int(len(data) * kept)])
    kind = ending.removeprefix(".")
    expected = f"{path}: the {kind} data ends too early; the file was cut short; fetch or write it"
    assert refused(path).startswith(expected)


@pytest.mark.parametrize("ending", COMPRESS)
def test_damaged_compressed_data_is_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"run{ending}"
    data = bytearray(COMPRESS[ending](TEXT))
    data[len(data) // 2 : len(data) // 2 + 8] = b"\xff" * 8
    path.write_bytes(data)
    kind = ending.removeprefix(".")
    assert refused(path).startswith(f"{path}: the {kind} data is damaged (")
    assert refused(path).endswith("); fetch or write the file again")


def test_bytes_after_gzip_data_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "run.gz"
    path.write_bytes(gzip.compress(TEXT) + b"q1 Q0 d 1 0.5 t")
    assert "the gz data is damaged (Not a gzipped file" in refused(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.trec"
    assert refused(path) == f"{path}: there is no such file; check the path"
    assert refused("a\0b") == "a\0b: there is no such file; check the path"
    assert refused("") == "'': there is no such file; check the path"


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"{tmp_path}: this is a directory; name a file inside it"


def test_content_given_for_a_path_is_not_printed_whole() -> None:
    message = refused(TEXT.decode())
    assert "File name too long" in message
    assert len(message) < 200


@pytest.mark.parametrize(
    "verb",
    [
        read_run,
        read_qrels,
        tie_statistics,
        lambda path: evaluate(path, {"q": {"d": 1}}, "RR"),
        lambda path: evaluate({"q": {"d": 1}}, path, "RR"),
        lambda path: evaluate([path, "other"], {"q": {"d": 1}}, "RR"),
        lambda path: compare({"a": path, "b": path}, {"q": {"d": 1}}, "RR"),
        lambda path: leaderboard({"q": {"d": 1}}, [path, "other"], "RR"),
        lambda path: leaderboard(path, ["other", "another"], "RR"),
    ],
)
def test_no_verb_takes_content_or_a_nul_for_a_path(verb: Callable[[str], object]) -> None:
    for path in (TEXT.decode(), "a\0b"):
        with pytest.raises(InputError) as refused:
            verb(path)
        assert len(str(refused.value)) < 300


def test_a_file_without_permission_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.trec"
    path.write_bytes(TEXT)

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbidden)
    assert refused(path) == f"{path}: no permission to read it; chmod it or run as its owner"


def test_a_disk_that_fails_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.trec"
    path.write_bytes(TEXT)

    def broken(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "open", broken)
    assert refused(path) == f"{path}: Input/output error; check the path and the disk"


@pytest.mark.parametrize("compress", [bytes, *COMPRESS.values()])
def test_an_empty_file_is_refused_however_it_is_stored(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "run"
    path.write_bytes(compress(b""))
    assert refused(path) == f"{path}: the file is empty; check how it was made"


def test_empty_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert refused("-") == "<stdin>: the file is empty; check how it was made"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files cannot be listed here")
def test_no_file_is_left_open(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(TEXT)
    bad.write_bytes(TEXT + b"short line\n")
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(TEXT)[:-9])
    before = len([*Path("/proc/self/fd").iterdir()])
    for path in (good, bad, cut):
        for reader in (read_run, read_qrels):
            try:
                reader(path)
            except InputError:
                assert path != good or reader is read_qrels
    assert len([*Path("/proc/self/fd").iterdir()]) == before
