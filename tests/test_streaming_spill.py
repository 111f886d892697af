"""The spill folder goes away with the process, however it ends."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from loopback import PATIENCE

import rankproof as rp
from rankproof.evaluation.streaming.spill import PREFIX, spill_folder

# Spills something, says so, and waits to be ended.
WAITS = """
import sys
from pathlib import Path
from rankproof.evaluation.streaming.spill import spill_folder
with spill_folder(sys.argv[1]) as folder:
    (folder / "rows.arrow").write_bytes(b"x" * 1000)
    print("spilled", flush=True)
    sys.stdin.readline()
"""

# Evaluates a run whose queries are scattered, in chunks of few rows.
EVALUATES = """
import sys
from rankproof.foundation import memory
from rankproof.evaluation.streaming import evaluate
evaluate.BYTES_PER_ROW = memory.MINIMUM // (3 * 2000)
from rankproof.cli import run
run()
"""


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    names = (signal.SIGINT, signal.SIGHUP)  # which nohup, or a shell in the background, ignores
    before = {name: signal.signal(name, signal.SIG_DFL) for name in names}
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    for name, handler in before.items():
        signal.signal(name, handler)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"spilled\n"
        yield process
        process.kill()


def spilled(folder: Path) -> list[Path]:
    return list(folder.glob(f"{PREFIX}*"))


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_leaves_no_spill(
    waiting: subprocess.Popen[bytes], tmp_path: Path, name: str
) -> None:
    assert len(spilled(tmp_path)) == 1
    number = getattr(signal, name)
    waiting.send_signal(number)
    waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode in (-number, 128 + number)
    assert spilled(tmp_path) == []


def test_the_spill_of_a_killed_process_is_removed_by_the_next_and_that_of_a_living_one_kept(
    waiting: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (theirs,) = spilled(tmp_path)
    with spill_folder(tmp_path) as ours:
        assert sorted(spilled(tmp_path)) == sorted([theirs, ours])
    assert spilled(tmp_path) == [theirs]
    waiting.kill()
    waiting.wait(timeout=PATIENCE)
    assert spilled(tmp_path) == [theirs]  # nobody was left to remove it
    with spill_folder(tmp_path) as ours:
        assert spilled(tmp_path) == [ours]
    assert spilled(tmp_path) == []


def test_a_folder_that_was_never_locked_is_removed_only_if_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}empty").mkdir()
    other = tmp_path / f"{PREFIX}photographs"
    other.mkdir()
    (other / "cat.jpg").touch()
    with spill_folder(tmp_path):
        pass
    assert spilled(tmp_path) == [other]


def test_an_error_leaves_no_spill(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), spill_folder(tmp_path):
        _ = 1 / 0
    assert spilled(tmp_path) == []


def scattered(folder: Path, rows: int) -> list[str]:
    run = pl.DataFrame({"i": range(rows)}).select(
        query=pl.format("q{}", pl.col("i") % 97),
        doc=pl.format("document-with-a-long-name-{}", "i"),
        score=(pl.col("i") * 7919 % 1000) / 1000,
    )
    run.write_parquet(folder / "run.parquet")
    (folder / "qrels.txt").write_text("".join(f"q{q} 0 x 1\n" for q in range(97)))
    return ["eval", str(folder / "qrels.txt"), str(folder / "run.parquet"), "--memory", "16MiB"]


def evaluate(arguments: list[str], limit: int | None = None) -> subprocess.CompletedProcess[str]:
    def narrow() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-W", "error", "-c", EVALUATES, *arguments],
        capture_output=True,
        text=True,
        preexec_fn=narrow,
    )


def one_line(done: subprocess.CompletedProcess[str], spill: Path) -> None:
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"rankproof: {spill}: cannot spill there (")
    assert "make room, or name another folder" in done.stderr
    assert spilled(spill) == []


def test_a_file_that_may_not_grow_is_one_line(tmp_path: Path) -> None:
    arguments = scattered(tmp_path, 40_000)
    spill = tmp_path / "spill"
    spill.mkdir()
    arguments += ["--spill-dir", str(spill)]
    assert evaluate(arguments).returncode == 0
    one_line(evaluate(arguments, limit=1000), spill)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    arguments = scattered(tmp_path, 40_000)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this container may not mount")
    try:
        one_line(evaluate([*arguments, "--spill-dir", str(disk)]), disk)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_an_existing_handler_of_sigterm_is_left_alone(tmp_path: Path) -> None:
    def mine(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGTERM, mine)
    try:
        with spill_folder(tmp_path):
            assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
    with spill_folder(tmp_path):
        pass
    assert signal.getsignal(signal.SIGTERM) is before


def test_there_must_be_a_folder_to_spill_into(tmp_path: Path) -> None:
    with pytest.raises(rp.InputError, match="no such folder"), spill_folder(tmp_path / "none"):
        pass
