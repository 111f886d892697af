"""Bad input through the command line: one line with place, value and remedy; exit code 2."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rankproof_cli import rankproof

RUN = "q1 Q0 d1 1 0.9 t\nq1 Q0 d2 2 0.8 t\nq2 Q0 d1 1 0.5 t\n"
QRELS = "q1 0 d1 1\nq2 0 d9 2\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run.trec").write_text(RUN)
    (tmp_path / "qrels.txt").write_text(QRELS)
    return tmp_path


def refuses(result: subprocess.CompletedProcess[bytes], *words: str) -> None:
    """One line on stderr with all the words, nothing on stdout, exit code 2."""
    error = result.stderr.decode()
    assert result.returncode == 2, error
    assert result.stdout == b""
    assert error.count("\n") == 1, error
    for word in words:
        assert word in error


def _lines(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def _bytes(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


BAD_RUNS: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "empty file": (_bytes(b""), ("bad.trec", "empty")),
    "only blank lines": (_lines("\n \n"), ("bad.trec", "no rows")),
    "five columns": (_lines(RUN + "q2 Q0 d2 2 0.4\n"), ("bad.trec:4", "5 columns", "6")),
    "text for a score": (_lines(RUN + "q2 Q0 d2 2 high t\n"), ("bad.trec:4", "'high'", "number")),
    "nan": (_lines(RUN + "q2 Q0 d2 2 nan t\n"), ("bad.trec:4", "'nan'", "drop the line")),
    "document twice": (
        _lines("# made by hand\n" + RUN + "q1 Q0 d2 3 0.1 t\n"),
        ("bad.trec:5", "'q1'", "'d2'", "second time"),
    ),
    "invalid utf-8": (_bytes(RUN.encode() + b"q2 Q0 d\xff 2 0.1 t\n"), ("bad.trec:4", "0xff")),
    "truncated gzip": (
        lambda path: path.write_bytes(gzip.compress(RUN.encode() * 999)[:-20]),
        ("bad.trec", "ends too early", "cut short"),
    ),
    "directory": (lambda path: path.mkdir(), ("bad.trec", "directory")),
    "no such file": (lambda path: None, ("bad.trec", "no such file")),
}


@pytest.mark.parametrize("case", BAD_RUNS)
def test_a_bad_run_is_refused_in_one_line(folder: Path, case: str) -> None:
    make, words = BAD_RUNS[case]
    make(folder / "bad.trec")
    written = folder / "per-query.csv"
    refuses(
        rankproof(
            *("eval", str(folder / "qrels.txt"), str(folder / "run.trec")),
            *(str(folder / "bad.trec"), "--per-query", str(written)),
        ),
        *words,
    )
    assert not written.exists(), "nothing is written when an input is bad"
    assert not list(folder.glob(".per-query*"))


BAD_QRELS = {
    "three columns": (QRELS + "q3 d1 1\n", ("bad.qrels:3", "3 columns")),
    "text for a grade": (QRELS + "q3 0 d1 good\n", ("bad.qrels:3", "'good'")),
    "fraction": (QRELS + "q3 0 d1 0.5\n", ("bad.qrels:3", "0.5", "whole number")),
    "pair twice": (QRELS + "q1 0 d1 0\n", ("bad.qrels:3", "'q1'", "'d1'", "second time")),
    "infinite grade": (QRELS + "q3 0 d1 inf\n", ("bad.qrels:3", "inf", "whole number")),
    "no common query": ("x 0 d1 1\n", ("'q1'", "'x'", "belong together")),
}


@pytest.mark.parametrize("case", BAD_QRELS)
def test_bad_qrels_are_refused_in_one_line(folder: Path, case: str) -> None:
    text, words = BAD_QRELS[case]
    (folder / "bad.qrels").write_text(text)
    refuses(rankproof("eval", str(folder / "bad.qrels"), str(folder / "run.trec")), *words)


def test_negative_grades_mean_unjudged_and_this_is_said(folder: Path) -> None:
    (folder / "n.qrels").write_text("q1 0 d1 -1\nq1 0 d2 1\n")
    result = rankproof("eval", str(folder / "n.qrels"), str(folder / "run.trec"), "-m", "RR")
    assert result.returncode == 0
    assert "1 negative grade" in result.stderr.decode()
    assert "0.5000" in result.stdout.decode()


BAD_MEASURES = {
    "nDGC@10": ("'nDGC'", "did you mean nDCG@10?"),
    "nDCG@0": ("nDCG@0", "from 1"),
    "P": ("needs a cutoff", "P@10"),
    "RAnWG@10": ("grade 2", "RAnWG@10", "1–5"),
    "Quality": ("unknown measure 'Quality'",),
    "RBP(p=2)": ("p=2", "between 0 and 1"),
}


@pytest.mark.parametrize("measure", BAD_MEASURES)
def test_a_bad_measure_is_refused_in_one_line(folder: Path, measure: str) -> None:
    (folder / "zero.qrels").write_text(QRELS.replace("d9 2", "d9 0"))
    qrels = "zero.qrels" if measure == "RAnWG@10" else "qrels.txt"
    words = BAD_MEASURES[measure] if measure != "RAnWG@10" else ("grade 0", "RAnWG@10", "1–5")
    refuses(rankproof("eval", str(folder / qrels), str(folder / "run.trec"), "-m", measure), *words)


def test_a_run_that_may_not_be_read_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root may read everything, so the refusal is staged."""
    from rankproof import cli

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    run = folder / "run.trec"
    monkeypatch.setattr(sys, "argv", ["rankproof", "ties", str(run)])
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert "run.trec: no permission to read it" in capsys.readouterr().err


def test_contradictions_are_refused(folder: Path) -> None:
    qrels, run = str(folder / "qrels.txt"), str(folder / "run.trec")
    refuses(rankproof("eval", qrels, run, "--like", "trec_eval", "--order", "docid"), "contradicts")
    refuses(rankproof("eval", "-", "-"), "standard input (-) is named twice")
    refuses(rankproof("eval", qrels, run, run), "named twice")
    refuses(rankproof("compare", qrels, run), "two runs")
    refuses(rankproof("ties", run, "--at", "10,x"), "'x'")
    refuses(rankproof("ties", run, "--at", "0"), "0 is not in the range")


def test_a_place_that_cannot_take_per_query_results_is_refused_before_any_work(
    folder: Path,
) -> None:
    qrels, run = str(folder / "qrels.txt"), str(folder / "run.trec")
    refuses(rankproof("eval", qrels, run, "--per-query", "x.xlsx"), "x.xlsx", ".csv or .parquet")
    (folder / "d.csv").mkdir()
    refuses(rankproof("eval", qrels, run, "--per-query", str(folder / "d.csv")), "directory")


def test_an_unknown_option_exits_with_2(folder: Path) -> None:
    result = rankproof("eval", str(folder / "qrels.txt"), str(folder / "run.trec"), "--nope")
    assert result.returncode == 2
    assert "--nope" in result.stderr.decode()


def test_a_full_disk_leaves_nothing_half_written(
    folder: Path,
) -> None:
    from rankproof.foundation.errors import InputError
    from rankproof.foundation.files import write_atomically

    def fill_disk(file: Path) -> None:
        file.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    before = sorted(folder.iterdir())
    with pytest.raises(InputError, match="No space left on device"):
        write_atomically(folder / "out.csv", fill_disk)
    assert sorted(folder.iterdir()) == before
