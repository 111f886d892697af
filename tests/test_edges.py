"""The edges of every verb: what may go wrong, and that it is one line and an exit code.

Three tables of verbs × faults. Nothing is destroyed, nothing is half written, no traceback.
"""

from __future__ import annotations

import errno
import json
import os
import re
import select
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from golden_sets import settings, write_corpus
from private_postgres import start_postgres
from rankproof_cli import rankproof

import rankproof as rp
from rankproof import cli
from rankproof.cli.command_line import GeneratedCommand
from rankproof.commands import registry
from rankproof.commands.verification import UNMADE, Verification
from rankproof.foundation.arrays import Int
from rankproof.foundation.version import __version__
from rankproof.golden.building import Build
from rankproof.golden.store import Store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="pipes and devices of a Unix"),
]

RUN = "q1 Q0 d1 1 0.9 t\nq1 Q0 d2 2 0.8 t\nq2 Q0 d1 1 0.5 t\n"
OTHER = "q1 Q0 d2 1 0.9 t\nq1 Q0 d1 2 0.8 t\nq2 Q0 d2 1 0.5 t\n"
QRELS = "q1 0 d1 1\nq2 0 d1 2\n"


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    def refuses(self, *words: str) -> None:
        """One line with all the words, exit code 2, nothing on standard output."""
        assert self.code == 2, self
        assert self.err.startswith("rankproof: "), self.err
        assert self.err.count("\n") == 1, self.err
        assert self.out == ""
        assert "Traceback" not in self.err
        for word in words:
            assert word in self.err


Asked = Callable[..., Ended]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Asked:
    """The command line in this process, which is quick."""

    def asked(*arguments: object) -> Ended:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["rankproof", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capfd.readouterr()
        return Ended(code, out, err)

    return asked


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small golden set, judged by a simulation."""
    folder = tmp_path_factory.mktemp("golden")
    corpus = write_corpus(folder / "corpus")
    with Store(folder / "set.golden", create=True) as store:
        Build(settings(corpus), store).run()
    return folder / "set.golden"


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, golden: Path) -> Path:
    """A folder with an input for every verb."""
    folder = tmp_path_factory.mktemp("template")
    (folder / "a.trec").write_text(RUN)
    (folder / "b.trec").write_text(OTHER)
    (folder / "q.txt").write_text(QRELS)
    logits = pl.DataFrame({"query": ["q1", "q1"], "doc": ["d1", "d2"], "logit": [1.0, 2.0]})
    logits.write_csv(folder / "logits.csv")
    (folder / "results").mkdir()
    inputs = [str(folder / name) for name in ("q.txt", "a.trec")]
    made = rankproof("eval", *inputs, "--out", str(folder / "results" / "eval.json"))
    assert made.returncode == 0, made.stderr
    (folder / "sweep.yaml").write_text("corpus: corpus\nmodes: [sparse]\n")
    (folder / "set.golden").write_bytes(golden.read_bytes())
    write_corpus(folder / "corpus")
    return folder


@pytest.fixture
def place(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to work in."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "whales.md").write_text("# Whales\n\nWhales are mammals of the sea.\n")
    (tmp_path / "notes" / "mice.txt").write_text("Mice are mammals of the field.\n")
    (tmp_path / "asked.txt").write_text("Are whales fish?\nWhere do mice live?\n")
    return tmp_path


def names(folder: Path) -> set[str]:
    """What a folder holds, but for the log of a store that was read."""
    return {file.name for file in folder.iterdir() if ".golden-" not in file.name}


def _commands() -> Iterator[str]:
    """Every command of the command line."""
    yield from (command.name for command in registry.all_commands())


def _command(verb: str) -> Any:
    registered = registry.find_command(verb)
    assert registered is not None
    return GeneratedCommand(registered)


def _options(verb: str, paths: bool = False) -> list[str]:
    """The options of a verb, or those that take a path."""
    found = _command(verb)
    return [
        name
        for option in found.params
        if not paths or "path" in repr(option.type).lower()
        for name in option.opts
        if name.startswith("--")
    ]


# --------------------------------------------------------------------- verbs × streams that fail

VERBS: dict[str, list[str]] = {
    "eval": ["eval", "q.txt", "a.trec"],
    "eval json": ["eval", "q.txt", "a.trec", "--format", "json"],
    "eval per query": ["eval", "q.txt", "a.trec", "--per-query", "-"],
    "compare": ["compare", "q.txt", "a.trec", "b.trec"],
    "compare --out -": ["compare", "q.txt", "a.trec", "b.trec", "--out", "-"],
    "ties": ["ties", "a.trec", "b.trec"],
    "ceilings": ["ceilings", "q.txt", "a.trec", "-m", "nDCG@10"],
    "verify": ["verify", "results/eval.json", "q.txt", "a.trec"],
    "measures": ["measures"],
    "report": ["report", "results", "--out", "-"],
    "audit": ["audit", "logits", "q.txt", "logits.csv", "-m", "RR"],
    "sweep --plan": ["sweep", "sweep.yaml", "--plan"],
    "golden status": ["golden", "status", "set.golden"],
    "--help": ["--help"],
}

# What the shell does with the command, and the exit codes and words that may come of it.
STREAMS: dict[str, tuple[str, set[int], str]] = {
    "stdout is closed": ("{} >&-", {2}, "standard output: Bad file descriptor"),
    "stdout is full": ("{} >/dev/full", {2}, "standard output: No space left on device"),
    "the reader went away": ("{} | true; exit ${{PIPESTATUS[0]}}", {0, 141}, ""),
    "ascii alone": ("PYTHONIOENCODING=ascii {}", {0}, ""),
    "all are closed": ("{} <&- >&- 2>&-", {2}, ""),
}


# A full disk and a narrow alphabet are met where a verb writes; the others before it, by all alike.
FAULTS = [
    (verb, fault)
    for verb, fault in product(VERBS, STREAMS)
    if fault in ("stdout is full", "ascii alone") or verb in ("eval", "report", "--help")
]


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "fault"), FAULTS)
def test_a_stream_that_fails_is_one_line(place: Path, verb: str, fault: str) -> None:
    script, codes, words = STREAMS[fault]
    command = shlex.join([sys.executable, "-W", "error", "-m", "rankproof", *VERBS[verb]])
    before = contents(place)
    done = subprocess.run(["bash", "-c", script.format(command)], capture_output=True, text=True)
    assert done.returncode in codes, done
    assert "Traceback" not in done.stderr
    if words:
        assert done.stderr.count("\n") == 1, done.stderr
        assert words in done.stderr
    else:
        assert done.stderr == ""
    assert contents(place) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder; a store's write-ahead log comes and goes."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file): file.read_bytes() for file in files if ".golden-" not in file.name}


# --------------------------------------------------------------- verbs × inputs that are not one

INPUTS: dict[str, list[str]] = {
    "eval's run": ["eval", "q.txt", "BAD"],
    "eval's judgements": ["eval", "BAD", "a.trec"],
    "eval's second run": ["eval", "q.txt", "a.trec", "BAD", "--per-query", "new.csv"],
    "eval in parts": ["eval", "q.txt", "BAD", "--memory", "16MiB"],
    "compare": ["compare", "q.txt", "a.trec", "BAD", "--out", "new.json"],
    "ties": ["ties", "BAD"],
    "ceilings": ["ceilings", "q.txt", "BAD"],
    "ceilings' answers": ["ceilings", "q.txt", "a.trec", "-m", "nDCG@3", "--correct", "BAD"],
    "verify": ["verify", "BAD"],
    "audit's logits": ["audit", "logits", "q.txt", "BAD", "--out", "new.json"],
    "audit's vectors": ["audit", "vectors", "q.txt", "--queries", "BAD", "--documents", "BAD"],
    "audit's dataset": ["audit", "model", "corpus", "--dataset", "BAD"],
    "sweep": ["sweep", "BAD", "--out", "new"],
    "recommend": ["recommend", "BAD"],
    "golden build": ["golden", "build", "BAD"],
    "golden status": ["golden", "status", "BAD"],
    "golden export": ["golden", "export", "BAD", "--out", "new"],
    "golden diff": ["golden", "diff", "set.golden", "BAD"],
    "golden try": ["golden", "try", "BAD"],
    "golden agreement": ["golden", "agreement", "set.golden", "--human", "BAD"],
    "diagnose names": ["diagnose", "names", "--authors", "BAD", "--out", "new"],
    "report": ["report", "BAD", "--out", "new.html"],
}

BAD: dict[str, Callable[[Path], object]] = {
    "not there": lambda path: None,
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(bytes(range(256)) * 40),
    "a control character": lambda path: path.write_bytes(b"q1 Q0 d\x00 1 1.0 t\n"),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a loop of links": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize(("verb", "fault"), list(product(INPUTS, BAD)))
def test_an_input_that_is_none_is_one_line_and_writes_nothing(
    place: Path, ask: Asked, verb: str, fault: str
) -> None:
    bad = place / "bad"
    BAD[fault](bad)
    before = names(place)
    ask(*(str(bad) if word == "BAD" else word for word in INPUTS[verb])).refuses("bad")
    assert names(place) == before


# ------------------------------------------------------------ verbs × places not to be written to

OUTPUTS: dict[str, list[str]] = {
    "eval --out": ["eval", "q.txt", "a.trec", "--out", "OUT"],
    "eval --per-query": ["eval", "q.txt", "a.trec", "--per-query", "OUT"],
    "compare --out": ["compare", "q.txt", "a.trec", "b.trec", "--out", "OUT"],
    "audit logits --out": ["audit", "logits", "q.txt", "logits.csv", "-m", "RR", "--out", "OUT"],
    "report --out": ["report", "results", "--out", "OUT"],
    "leaderboard --out": ["leaderboard", "q.txt", "a.trec", "b.trec", "--out", "OUT"],
    "leaderboard --plot": ["leaderboard", "q.txt", "a.trec", "b.trec", "--plot", "OUT"],
    "gate --out": ["gate", "q.txt", "a.trec", "a.trec", "--allow-undecided", "--out", "OUT"],
    "gate --junit": ["gate", "q.txt", "a.trec", "a.trec", "--allow-undecided", "--junit", "OUT"],
    "holes --out": ["holes", "q.txt", "a.trec", "--out", "OUT"],
    "holes --to": ["holes", "q.txt", "a.trec", "-m", "nDCG", "--judge-next", "1", "--to", "OUT"],
    "search --out": ["search", "corpus", "--queries", "corpus/queries.jsonl", "--out", "OUT"],
}
# An input of the verb; q.txt of the others.
PRECIOUS = {"report --out": "results/eval.json", "search --out": "corpus/corpus.jsonl"}
ENDINGS = {"leaderboard --plot": "svg", "holes --to": "tsv"}  # csv of the others
ELSEWHERE = {  # scratch, a golden set, inputs
    *("--spill-dir", "--store", "--human", "--queries", "--judge", "--prompt", "--provenance"),
    "--questions",
}


def test_every_option_that_names_a_place_to_write_is_in_a_table() -> None:
    paths = {f"{verb} {o}" for verb in _commands() for o in _options(verb, paths=True)}
    folders = {
        f"{verb.split(' --')[0]} --{'plots' if 'plots' in verb else 'out'}" for verb in FOLDERS
    }
    named = {path for path in paths if path.split()[-1] not in ELSEWHERE}
    generated = {  # one place writes them all
        f"{c.name} {option}" for c in registry.all_commands() for option in ("--out", "--plots")
    }
    sources = {
        f"{c.name} {a.flag}" for c in registry.all_commands() for a in c.arguments() if a.source
    }
    assert named - generated - sources == {*OUTPUTS, *folders} - generated


def _fifo(out: Path, precious: Path) -> None:
    os.mkfifo(out)


REFUSED: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "a link to an input": (lambda out, precious: out.symlink_to(precious), "this is an input"),
    "a hard link to it": (lambda out, precious: out.hardlink_to(precious), "this is an input"),
    "a link to a link": (
        lambda out, precious: out.symlink_to(_linked(out.with_name("l"), precious)),
        "this is an input",
    ),
    "a pipe": (_fifo, "not a regular file"),
    "a link to a device": (lambda out, precious: out.symlink_to("/dev/null"), "not a regular file"),
    "a folder": (lambda out, precious: out.mkdir(), "directory"),
    "a link to a folder": (lambda out, precious: out.symlink_to(out.parent), "directory"),
    "a loop of links": (lambda out, precious: out.symlink_to(out), "cannot write it"),
    "below a file": (lambda out, precious: None, "cannot write it"),
}


def _linked(link: Path, target: Path) -> Path:
    link.symlink_to(target)
    return link


@pytest.mark.parametrize(("verb", "fault"), list(product(OUTPUTS, REFUSED)))
def test_what_must_not_be_written_to_is_refused_and_left_as_it_was(
    place: Path, ask: Asked, verb: str, fault: str
) -> None:
    make, words = REFUSED[fault]
    precious = place / PRECIOUS.get(verb, "q.txt")
    name = f"out.{ENDINGS.get(verb, 'csv')}"
    out = place / (f"q.txt/{name}" if fault == "below a file" else name)
    make(out, precious)
    before, status = contents(place), os.lstat(out) if fault != "below a file" else None
    ended = ask(*(str(out) if word == "OUT" else word for word in OUTPUTS[verb]))
    ended.refuses(name, "folder" if ended.err.endswith("make it first\n") else words)
    assert contents(place) == before
    if status is not None:
        assert os.lstat(out).st_mode == status.st_mode


@pytest.mark.parametrize("verb", OUTPUTS)
def test_a_name_that_ends_in_a_slash_is_a_folders(place: Path, ask: Asked, verb: str) -> None:
    before = contents(place)
    name = f"new.{ENDINGS.get(verb, 'csv')}/"
    ended = ask(*(name if word == "OUT" else word for word in OUTPUTS[verb]))
    ended.refuses(name, "this names a folder; name a file inside it")
    assert contents(place) == before


@pytest.mark.parametrize("verb", OUTPUTS)
def test_a_link_is_followed_and_an_earlier_result_replaced(
    place: Path, ask: Asked, verb: str
) -> None:
    end = ENDINGS.get(verb, "csv")
    (place / f"earlier.{end}").write_text("earlier")
    (place / f"earlier.{end}").chmod(0o640)
    (place / f"out.{end}").symlink_to(f"earlier.{end}")
    (place / f"new.{end}").symlink_to(f"later.{end}")  # which is not there yet
    for name in (f"out.{end}", f"new.{end}"):
        ended = ask(*(name if word == "OUT" else word for word in OUTPUTS[verb]))
        assert ended.code == 0, ended.err
        assert (place / name).is_symlink()
        assert len((place / name).read_bytes()) > 20
    assert stat.S_IMODE((place / f"earlier.{end}").stat().st_mode) == 0o640
    assert not list(place.glob(".*"))


@pytest.mark.parametrize("verb", OUTPUTS)
def test_a_dash_is_standard_output_which_then_holds_that_alone(
    place: Path, ask: Asked, verb: str
) -> None:
    ended = ask(*("-" if word == "OUT" else word for word in OUTPUTS[verb]))
    assert ended.code == 0, ended.err
    assert names(place) == names(place) - {"-"}
    begins = {
        "--junit": "<?xml",
        "--plot": "<svg",
        "--to": "query\tdoc",
        "--per-query": "run,query",
    }
    first = {"report --out": "<!doctype", "search --out": "q"}
    expected = first.get(verb, begins.get(verb.split()[-1], "{"))
    assert ended.out.lower().startswith(expected), ended.out[:80]
    if expected == "{":
        json.loads(ended.out)


@pytest.mark.parametrize("what", ["an input", "a pipe", "a folder"])
def test_a_gates_summary_goes_nowhere_else(
    place: Path, ask: Asked, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    os.mkfifo("a pipe")
    Path("a folder").mkdir()
    Path("an input").symlink_to("q.txt")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", what)
    before = contents(place)
    ended = ask("gate", "q.txt", "a.trec", "a.trec", "--allow-undecided")
    assert ended.code == 0
    assert f"{what}: no summary was written (this is" in ended.err
    assert contents(place) == before


def test_nothing_is_written_into_a_folder_that_is_read(place: Path, ask: Asked) -> None:
    (place / "shards").mkdir()
    (place / "shards" / "a.trec").write_text(RUN)
    for out in ("shards/a.trec", "shards/new.json"):
        ask("eval", "q.txt", "shards", "--out", out).refuses(out, "this lies in an input")
    assert names(place / "shards") == {"a.trec"}


# --------------------------------------------------------------- folders that somebody else filled

FOLDERS: dict[str, list[str]] = {
    "diagnose names": ["diagnose", "names", "--queries", "3", "--runs", "1", "--out", "full"],
    "diagnose noise": ["diagnose", "noise", "--queries", "3", "--runs", "1", "--out", "full"],
    "golden export": ["golden", "export", "set.golden", "--out", "full"],
    "sweep": ["sweep", "sweep.yaml", "--out", "full"],
    "audit logits --plots": [*VERBS["audit"], "-m", "R@5", "--plots", "full"],
    "demo": ["demo", "--out", "full"],
    "init": ["init", "notes", "--out", "full"],
}


@pytest.mark.parametrize("verb", FOLDERS)
def test_a_folder_that_holds_something_else_is_refused(place: Path, ask: Asked, verb: str) -> None:
    (place / "full").mkdir()
    (place / "full" / "thesis.tex").write_text("ten years of work")
    before = contents(place)
    ask(*FOLDERS[verb]).refuses("full", "thesis.tex")
    assert contents(place) == before


def test_a_folder_of_the_verbs_own_is_filled_again(place: Path, ask: Asked) -> None:
    for _ in range(2):
        for verb in ("diagnose names", "diagnose noise"):
            assert ask(*FOLDERS[verb]).code == 0
    (place / "full" / "report.html").touch()  # of `rankproof report`
    assert ask(*FOLDERS["diagnose names"]).code == 0


# ---------------------------------------------------------- disks that are full, folders of others

WRITES: dict[str, list[str]] = {
    "eval --out": ["eval", "q.txt", "big.trec", "--out", "OUT/x.json"],
    "eval --per-query csv": ["eval", "q.txt", "big.trec", "--per-query", "OUT/x.csv"],
    "eval --per-query parquet": ["eval", "q.txt", "big.trec", "--per-query", "OUT/x.parquet"],
    "compare --out": ["compare", "q.txt", "big.trec", "a.trec", "--out", "OUT/x.json"],
    "report": ["report", "results", "--out", "OUT/x.html"],
    "golden export": ["golden", "export", "set.golden", "--out", "OUT/x"],
}

# The command twice: as it is, so that everything is loaded, then where it cannot write.
TWICE = """
import os, resource, sys
from rankproof import cli
fault, good, bad, *arguments = sys.argv[1:]
def ask(folder):
    sys.argv = ["rankproof", *(word.replace("OUT", folder) for word in arguments)]
    try:
        cli.main()
    except SystemExit as stop:
        return stop.code or 0
    return 0
assert ask(good) == 0
sys.stdout.flush()
if fault == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
elif os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
print("----", file=sys.stderr, flush=True)
os._exit(ask(bad))
"""


@pytest.fixture
def open_place(place: Path) -> Iterator[Path]:
    """The inputs where every user can read them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        subprocess.run(["cp", "-r", f"{place}/.", name], check=True)
        judged = [f"q{i}" for i in range(50)]
        (folder / "q.txt").write_text("".join(f"{q} 0 d1 1\n" for q in ["q1", *judged[2:]]))
        (folder / "big.trec").write_text("".join(f"{q} Q0 d1 1 1.0 t\n" for q in judged))
        for file in folder.rglob("*"):
            file.chmod(0o755 if file.is_dir() else 0o644)
        for made in ("good", "bad"):
            (folder / made).mkdir(mode=0o755)
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "fault"), list(product(WRITES, ["a file may not grow", "a folder is read-only"]))
)
def test_a_place_without_room_or_rights_is_one_line_and_stays_as_it_was(
    open_place: Path, verb: str, fault: str
) -> None:
    bad = open_place / "bad"
    earlier = bad / WRITES[verb][-1].removeprefix("OUT/")
    if verb != "golden export":
        earlier.write_text("earlier")
    bad.chmod(0o755 if fault == "a file may not grow" else 0o555)
    before = contents(bad)
    word = "full" if fault == "a file may not grow" else "rights"
    arguments = [word, str(open_place / "good"), str(bad), *WRITES[verb]]
    done = subprocess.run(
        [sys.executable, "-c", TWICE, *arguments], capture_output=True, text=True, cwd=open_place
    )
    assert done.returncode == 2, done
    line = done.stderr.split("----\n")[1]
    assert line.startswith("rankproof: "), line
    assert line.count("\n") == 1, line
    full = ("File too large", "os error 27", "could not be written")
    assert any(words in line for words in (full if word == "full" else ("Permission denied",)))
    assert word != "full" or "; make room" in line, line
    assert contents(bad) == before, "an earlier result is replaced whole or not at all"


# ------------------------------------------------------------------- names that are not UTF-8

UNDECODED = os.fsdecode(b"r\xe9.trec")
NAMING = [
    ["eval", "q.txt", UNDECODED],
    ["compare", "q.txt", UNDECODED, "b.trec"],
    ["leaderboard", "q.txt", UNDECODED, "b.trec"],
    ["gate", "q.txt", UNDECODED, "a.trec", "--allow-undecided"],
    ["holes", "q.txt", UNDECODED, "b.trec"],
]
linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")


@linux
@pytest.mark.parametrize("arguments", NAMING, ids=lambda arguments: arguments[0])
def test_a_run_whose_name_is_not_utf8_is_written_and_found_again(
    place: Path, ask: Asked, arguments: list[str]
) -> None:
    (place / UNDECODED).write_text(RUN)
    out = os.fsdecode(b"o\xe8.json")
    assert ask(*arguments, "--out", out).code == 0
    text = (place / out).read_text(encoding="utf-8")
    assert '"r%E9"' in text
    assert r"\ud" not in text
    inputs = json.loads(text)["manifest"]["inputs"]
    assert "r%E9.trec" in {file["file"] for file in inputs.values()}
    assert ask("verify", out).code == 0
    (place / "elsewhere").mkdir()
    (place / out).rename(place / "elsewhere" / "o.json")
    assert ask("verify", "elsewhere/o.json", ".").code == 0
    (place / UNDECODED).write_text(OTHER)
    assert "Not the file that was read: r%E9.trec" in ask("verify", "elsewhere/o.json").out


@linux
@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "latex", "html"])
def test_a_run_whose_name_is_not_utf8_has_one_name_in_every_format(
    place: Path, ask: Asked, form: str
) -> None:
    (place / UNDECODED).write_text(RUN)
    written = r"r\%E9" if form == "latex" else "r%E9"
    assert written in ask("eval", "q.txt", UNDECODED, "b.trec", "--format", form).out


@linux
def test_a_run_whose_name_is_not_utf8_is_a_row_of_frames_and_pages(place: Path, ask: Asked) -> None:
    (place / UNDECODED).write_text(RUN)
    frames = [os.fsdecode(b"p\xe9.csv"), os.fsdecode(b"p\xe9.parquet")]
    for name in frames:
        assert ask("eval", "q.txt", UNDECODED, "--per-query", name).code == 0
    assert set(pl.read_csv((place / frames[0]).read_bytes())["run"]) == {"r%E9"}
    assert set(pl.read_parquet((place / frames[1]).read_bytes())["run"]) == {"r%E9"}
    assert ask("eval", "q.txt", UNDECODED, "--out", "results/o.json").code == 0
    assert ask("report", "results", "--out", "page.html").code == 0
    assert "r%E9" in (place / "page.html").read_text(encoding="utf-8")
    evaluation = rp.evaluate(place / "q.txt", place / UNDECODED, "RR")
    assert evaluation.name == "r%E9"
    assert rp.compare("q.txt", [UNDECODED, "b.trec"], "RR").to_polars().height == 1
    pl.DataFrame({"query": ["q1"], "doc": ["d1"], "score": [1.0]}).write_parquet("r.parquet")
    (place / "r.parquet").rename(place / os.fsdecode(b"r\xe9.parquet"))
    streamed = ask("eval", "q.txt", os.fsdecode(b"r\xe9.parquet"), "--memory", "64MiB")
    assert streamed.code == 0


@linux
@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_values_of_queries_are_written_into_a_folder_whose_name_is_not_utf8(
    place: Path, ask: Asked, name: str
) -> None:
    folder = place / os.fsdecode(b"d\xe9")
    folder.mkdir()
    assert ask("eval", "q.txt", "a.trec", "--per-query", folder / name).code == 0
    assert names(folder) == {name}


def test_an_input_is_found_by_a_name_that_is_also_a_pattern(place: Path, ask: Asked) -> None:
    (place / "deep").mkdir()
    (place / "deep" / "a[1].trec").write_text(RUN)
    assert ask("eval", "q.txt", "deep/a[1].trec", "--out", "o.json").code == 0
    assert ask("verify", "o.json", "q.txt", "deep").code == 0


# --------------------------------------------------------------------- what else was a traceback


def _npy(path: Path) -> None:
    """A header that promises 364 TiB."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000, 500), }"
    header += b" " * (118 - len(header)) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


ONCE: dict[str, tuple[Callable[[Path], object], list[str], str]] = {
    "memory of 400 digits": (
        lambda folder: None,
        ["eval", "q.txt", "none.trec", "--memory", "9" * 400],
        "none.trec",
    ),
    "no memory": (
        lambda folder: None,
        ["eval", "q.txt", "a.trec", "--memory", "1KB"],
        "too little to work in",
    ),
    "a cutoff past 64 bits": (
        lambda folder: None,
        ["ties", "a.trec", "--at", "99999999999999999999"],
        "is past any list",
    ),
    "an array that is not there": (
        lambda folder: _npy(folder / "v.npy"),
        ["audit", "vectors", "q.txt", "--queries", "v.npy", "--documents", "v.npy"],
        "v.npy",
    ),
    "a carriage return alone": (
        lambda folder: (folder / "r.csv").write_bytes(b"query,doc,score\nq1,d\r1,x\n"),
        ["eval", "q.txt", "r.csv"],
        "r.csv",
    ),
    "a name on the command line that acts": (
        lambda folder: None,
        ["eval", "q.txt", "\x1b[2J\u202ename"],
        "\\x1b[2J\\u202ename",
    ),
    "a cluster that is not there": (
        lambda folder: None,
        ["eval", "q.txt", "a.trec", "--cluster", "127.0.0.1:1"],
        "127.0.0.1:1",
    ),
    "standard output twice": (
        lambda folder: None,
        ["eval", "q.txt", "a.trec", "--out", "-", "--per-query", "-"],
        "named twice",
    ),
    "one file for two outputs": (
        lambda folder: None,
        ["eval", "q.txt", "a.trec", "--out", "x.csv", "--per-query", "x.csv"],
        "named twice",
    ),
    "a model that was mistyped": (
        lambda folder: None,
        ["audit", "model", "no-such/modle", "--dataset", "corpus", "--offline"],
        "this machine has",
    ),
    "a cutoff of 40 digits": (
        lambda folder: None,
        ["audit", "logits", "q.txt", "logits.csv", "--decimals", "9" * 40],
        "use whole numbers from 0 to 12",
    ),
    "more passages than there can be": (
        lambda folder: None,
        ["search", "corpus", "whales", "-k", "9" * 20],
        "ask for 1 document or more, below 2^31",
    ),
    "a list that ends before it begins": (
        lambda folder: None,
        ["trec_eval", "-M", "-5", "q.txt", "a.trec"],
        "'-M'",
    ),
    "a list that ends nowhere": (
        lambda folder: None,
        ["eval", "q.txt", "a.trec", "--depth", "9" * 20],
        "read 1 document or more of a list",
    ),
    "a gate's result without runs": (
        lambda folder: (folder / "g.json").write_text('{"manifest": {}, "runs": 5}'),
        ["gate", "q.txt", "g.json", "a.trec"],
        "g.json: no values of single queries",
    ),
    "a NUL in the id of a passage": (
        lambda folder: (folder / "corpus" / "corpus.jsonl").write_text(
            '{"_id": "d\\u0000", "text": "x"}\n'
        ),
        ["search", "corpus", "whales"],
        "corpus.jsonl:1: the text's id 'd\\x00' holds a control character",
    ),
    "a file without end of brackets": (
        lambda folder: (folder / "deep.jsonl").write_text('{"id": ' + "[" * 100_000),
        ["audit", "scores", "q.txt", "deep.jsonl"],
        "deep",
    ),
    "no such verb": (lambda folder: None, ["evaluate"], "evaluate"),
    "all that a pattern of the shell's stands for": (
        lambda folder: None,
        ["report", "corpus", *(f"results/{n}.json" for n in range(4_000))],
        "unexpected results/0.json, results/1.json, results/2.json and 3997 more; see",
    ),
    "no such option": (lambda folder: None, ["eval", "--nope"], "--nope"),
    "a port that is not a number": (
        lambda folder: None,
        ["golden", "view", "set.golden", "--port", "x"],
        "--port",
    ),
}


@pytest.mark.parametrize("case", ONCE)
def test_what_once_was_a_traceback_is_one_line(place: Path, ask: Asked, case: str) -> None:
    make, arguments, words = ONCE[case]
    make(place)
    ask(*arguments).refuses(words)


def test_ray_that_does_not_start_is_one_line_and_leaves_nobody_behind(place: Path) -> None:
    marked = f"edges-{os.getpid()}"
    done = subprocess.run(
        [sys.executable, "-m", "rankproof", "eval", "q.txt", "a.trec", "--cluster", "auto"],
        capture_output=True,
        text=True,
        env=os.environ | {"RAY_TMPDIR": str(place / "q.txt" / "below a file"), "MARKED": marked},
    )
    Ended(done.returncode, done.stdout, done.stderr).refuses("Ray does not start", "below a file")
    assert not _marked(marked)


def _marked(word: str) -> list[Path]:
    """The processes that have a word in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended, or is another's
            if word.encode() in (process / "environ").read_bytes():
                found.append(process)
    return found


def _named(word: str, below: int) -> list[int]:
    """The processes below one that are called so, or have a file of that name open."""
    parents, named = {}, []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stat = (process / "stat").read_text()
            parents[int(process.name)] = int(stat.rpartition(")")[2].split()[1])
            files = [file.readlink().name for file in (process / "fd").iterdir()]
            if word in ((process / "comm").read_text().strip(), *files):
                named.append(int(process.name))

    def is_below(pid: int) -> bool:  # a child may have a smaller number: they begin anew
        parent = parents.get(pid)
        return parent is not None and (parent == below or is_below(parent))

    return list(filter(is_below, named))


# Who is killed while a worker reads the run, how often, and what is then said of it.
KILLED = {
    "Ray's head": ("gcs_server", 1, "Ray"),
    "Ray's node": ("raylet", 1, "Ray"),
    "every worker that comes": ("run.trec", 4, "a worker died again and again"),
}


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes as Linux tells them")
@pytest.mark.parametrize("who", KILLED)
def test_whoever_of_ray_is_killed_it_is_one_line_and_leaves_nobody_behind(
    place: Path, who: str
) -> None:
    name, times, words = KILLED[who]
    os.mkfifo("run.trec")
    pipe = os.open("run.trec", os.O_RDWR)  # whoever reads it waits for us
    marked = f"edges-{who}-{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "rankproof", "eval", "q.txt", "run.trec", "--cluster", "auto"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"MARKED": marked},
    )
    ended = os.pidfd_open(process.pid)
    killed: set[int] = set()
    for _ in range(times):
        while not (readers := set(_named("run.trec", process.pid)) - killed):
            assert not select.select([ended], [], [], 0.25)[0], process.communicate()
        for victim in readers if name == "run.trec" else _named(name, process.pid):
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
    out, err = process.communicate()
    os.close(ended)
    os.close(pipe)
    assert len(killed) >= times
    Ended(process.returncode, out, err).refuses("cluster: ", words)
    assert not _marked(marked)


@pytest.mark.parametrize("failing", [1, 2])
def test_ray_that_a_busy_machine_starts_too_slowly_is_started_once_more(
    monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    from types import SimpleNamespace

    from rankproof.cluster.session import connected
    from rankproof.foundation.errors import InputError

    begun: list[Any] = []

    def init(**settings: Any) -> None:
        begun.append(settings)
        if len(begun) <= failing:
            raise RuntimeError("The current node timed out during startup.\nMore of it")

    ray = SimpleNamespace(init=init, shutdown=lambda: None, is_initialized=lambda: False)
    monkeypatch.setattr("rankproof.cluster.session.load_ray", lambda _: ray)
    if failing == 1:
        with connected() as found:
            assert found is ray
    else:
        with pytest.raises(InputError, match="Ray does not start on this machine"), connected():
            pass
    assert len(begun) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="Ray uses no shell there")
@pytest.mark.parametrize(
    ("python", "address", "expected"),
    [
        ("/a b/python", None, "'/a b/python'"),
        ("/a b/python", "127.0.0.1:6379", "'/a b/python'"),
        ("/a b/python", "127.0.1.1:6379", None),  # stands for another machine
        ("/ab/python", None, None),
    ],
)
def test_ray_starts_the_workers_of_this_machine_from_a_folder_with_a_blank(
    monkeypatch: pytest.MonkeyPatch, python: str, address: str | None, expected: str | None
) -> None:
    from types import SimpleNamespace

    from rankproof.cluster.session import connected

    calls: list[dict[str, Any]] = []
    ray = SimpleNamespace(
        init=lambda **settings: calls.append(settings),
        shutdown=lambda: None,
        is_initialized=lambda: False,
    )
    monkeypatch.setattr("rankproof.cluster.session.load_ray", lambda _: ray)
    monkeypatch.setattr("rankproof.cluster.session._check_address", lambda _: None)
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with connected(address):
        assert calls[0]["runtime_env"].get("py_executable") == expected


def test_a_node_of_ray_that_dies_is_told_in_one_line() -> None:
    from types import SimpleNamespace

    from rankproof.cluster.session import explain_ray_errors
    from rankproof.foundation.errors import InputError

    names = ("RayTaskError", "WorkerCrashedError", "ActorDiedError", "OutOfMemoryError")
    kinds: dict[str, type[Exception]] = {"RayError": type("RayError", (Exception,), {})}
    for name in (*names, "OutOfDiskError", "LocalRayletDiedError"):
        kinds[name] = type(name, (kinds["RayError"],), {})

    def fails() -> None:
        with explain_ray_errors(SimpleNamespace(exceptions=SimpleNamespace(**kinds))):
            raise kinds["LocalRayletDiedError"]("the raylet died\nCheck raylet.out")

    with pytest.raises(InputError, match=r"^cluster: Ray failed \('the raylet died Check") as error:
        fails()
    assert "\n" not in str(error.value)


def test_a_server_that_dies_in_the_middle_is_one_line(
    place: Path,
    ask: Asked,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
    folder = tmp_path_factory.mktemp("dying")
    server = start_postgres(folder)
    monkeypatch.setenv("RANKPROOF_POSTGRES", server.get_uri())
    pid = int((folder / "postmaster.pid").read_text().split()[0])
    assert os.getpgid(pid) != os.getpgid(0)  # else it would be us who are killed
    from rankproof.retrieval.indexes.pgvector import PgvectorIndex

    answered = PgvectorIndex._best

    def last(*given: Any) -> Any:
        with suppress(ProcessLookupError):
            os.killpg(os.getpgid(pid), signal.SIGKILL)
        return answered(*given)

    monkeypatch.setattr(PgvectorIndex, "_best", last)
    (place / "s.yaml").write_text(
        "corpus: corpus\nmodes: [dense]\nindexes: {server: {type: pgvector}}\n"
    )
    try:
        ask("sweep", "s.yaml", "--out", "new").refuses("PostgreSQL ($RANKPROOF_POSTGRES): ")
    finally:
        with suppress(Exception):  # there is nothing left to be stopped
            server.cleanup()


class Deadly:
    """Something for another process to do, which ends that process."""

    def __reduce__(self) -> tuple[Any, ...]:
        return signal.raise_signal, (signal.SIGKILL,)


def test_a_share_of_an_audit_that_is_killed_is_one_line(
    place: Path, ask: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentence_transformers")
    from tiny_models import write

    write(place / "model", None)
    monkeypatch.setenv("RANKPROOF_CACHE", str(place / "cache"))
    monkeypatch.setattr("rankproof.audit.model_audit.run_part", Deadly())
    ask("audit", "model", "model", "--dataset", "corpus", "--shards", "2").refuses(
        "model: a process that ran a share of it ended by itself"
    )


UNLOADED = """
import sys
from rankproof import cli
sys.argv = ["rankproof", *sys.argv[1:]]
try:
    cli.main()
finally:
    print({"torch", "transformers"} & set(sys.modules))
"""


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["audit", "diagnose", "embedder", "reranker"])
def test_a_mistyped_model_is_told_of_before_torch_is_imported(place: Path, verb: str) -> None:
    name = "no-such/modle"
    chosen = "{{x: {{type: {}, model: " + name + "}}}}"
    stacks = {
        "embedder": f"modes: [dense]\nembedders: {chosen.format('sentence-transformers')}",
        "reranker": f"modes: [sparse]\nrerankers: {chosen.format('cross-encoder')}",
    }
    (place / "s.yaml").write_text(f"corpus: corpus\nat: []\n{stacks.get(verb, '')}\n")
    words = {
        "audit": ["audit", "model", name, "--dataset", "corpus", "--candidates", "a.trec"],
        "diagnose": ["diagnose", "names", "--embedder", name],
    }.get(verb, ["sweep", "s.yaml", "--out", "new"])
    done = subprocess.run(
        [sys.executable, "-c", UNLOADED, *words, "--offline"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "this machine has" in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == "set()\n"


def test_a_damaged_table_is_one_line_whatever_its_reader_prints(place: Path, ask: Asked) -> None:
    """polars panics at some of these, and writes fifty lines to stderr past Python."""
    rows = {"query": ["q1"] * 300, "doc": [f"d{at}" for at in range(300)], "score": [1.0] * 300}
    pl.DataFrame(rows).write_ipc("whole.arrow", compression="zstd")
    whole = Path("whole.arrow").read_bytes()
    refused = 0
    for at in range(len(whole) - 400, len(whole), 9):
        Path("run.arrow").write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        ended = ask("eval", "q.txt", "run.arrow")
        if ended.code:
            ended.refuses("run.arrow")
            refused += 1
        else:
            assert ended.err == ""
    assert refused > 9


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            MemoryError("unable to allocate 3 TiB"),
            2,
            "not enough memory (unable to allocate 3 TiB)",
        ),
        (OSError(errno.EIO, "Input/output error", "disk"), 2, "disk: Input/output error"),
        (UnicodeEncodeError("ascii", "é", 0, 1, "ordinal not in range"), 2, "cannot be written"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, ""),
        (KeyboardInterrupt(), 130, "rankproof: stopped"),
        (KeyError("x"), 2, "KeyError: 'x'; RANKPROOF_DEBUG=1 shows where"),
        (RecursionError("too deep"), 2, "nested too deeply to be read (too deep)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_whatever_a_verb_raises_is_one_line(
    place: Path,
    ask: Asked,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    words: str,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("rankproof.cli.delivery.check_stdin", fails)
    ended = ask("eval", "q.txt", "a.trec")
    assert ended.code == code
    assert words in ended.err
    assert ended.err.count("\n") == bool(words)
    monkeypatch.setenv("RANKPROOF_DEBUG", "1")
    assert "Traceback (most recent call last)" in ask("eval", "q.txt", "a.trec").err


def test_ctrl_c_says_a_word_and_exits_with_130(place: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rankproof", "eval", "q.txt", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(b"x" * (1 << 20))  # more than the pipe holds: it is reading by now
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"rankproof: stopped\n")


# ------------------------------------------------------------------------------ bounds on memory

BOMB = """
import re, sys
from pathlib import Path
from rankproof import cli
sys.argv = ["rankproof", *sys.argv[1:]]
try:
    cli.main()
except SystemExit as stop:
    most = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
    print(stop.code, most[1], flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is told by Linux")
@pytest.mark.parametrize("verb", ["eval", "ties", "eval's judgements"])
def test_a_line_without_end_takes_no_memory(place: Path, verb: str) -> None:
    """A few kB that decompress to one line of 512 MB."""
    from rankproof.data.sources import _zstd

    part = _zstd().compress(b"x" * (1 << 24))
    (place / "bomb.zst").write_bytes(part * 32)
    arguments = {
        "eval": ["eval", "q.txt", "bomb.zst"],
        "ties": ["ties", "bomb.zst"],
        "eval's judgements": ["eval", "bomb.zst", "a.trec"],
    }[verb]
    done = subprocess.run(
        [sys.executable, "-c", BOMB, *arguments, "--memory", "50MB"], capture_output=True, text=True
    )
    assert "bomb.zst:1: a line of more than 4 MiB" in done.stderr
    code, kilobytes = map(int, done.stdout.split())
    assert code == 2
    assert kilobytes < 300_000  # the interpreter and polars take half of it


# ----------------------------------------------------------------------- text that would act


@pytest.fixture
def acting(place: Path) -> str:
    """A run whose name holds a line feed, an escape, an override, a formula and TeX."""
    name = "=HYPERLINK(1)|a\nb\x1b[31m\u202e\\end{x}"
    (place / f"{name}.trec").write_text(RUN)
    return f"{name}.trec"


@pytest.mark.parametrize("form", ["table", "csv", "md", "latex"])
def test_a_name_never_acts(place: Path, ask: Asked, acting: str, form: str) -> None:
    ended = ask("eval", "q.txt", acting, "-m", "RR", "--format", form)
    assert ended.code == 0
    if form == "csv":
        import csv

        table, mark, notes = ended.out.partition("\n# ")
        _, row = csv.reader(table.splitlines(keepends=True))
        assert row[0].startswith("'=HYPERLINK(1)|a")
        assert all(line.startswith("# ") for line in f"{mark[1:]}{notes}".splitlines())
        return
    assert not {"\x1b", "\u202e"} & set(ended.out)
    assert "\\x1b" in ended.out or "textbackslash{}x1b" in ended.out
    if form == "md":
        _, table, notes = ended.out.split("\n\n")
        bars = {line.count("|") - line.count("\\|") for line in table.splitlines()}
        assert len(bars) == 1
        assert table.count("\n") == 2
        assert all(line.startswith("- ") for line in notes.splitlines())
    if form == "latex":
        code = [line for line in ended.out.splitlines() if not line.startswith("%")]
        environments = re.findall(r"\\end\{(\w+)\}", "\n".join(code))
        assert environments == ["tabular", "tablenotes", "threeparttable"]


def test_per_query_csv_is_neutralised_and_parquet_is_exact(place: Path, ask: Asked) -> None:
    (place / "f.trec").write_text("=cmd() Q0 d1 1 1.0 t\n-5 Q0 d1 1 1.0 t\n")
    (place / "f.txt").write_text("=cmd() 0 d1 1\n-5 0 d1 1\n")
    for ending, first in (("csv", "'=cmd()"), ("parquet", "=cmd()")):
        out = f"f.{ending}"
        assert ask("eval", "f.txt", "f.trec", "-m", "RR", "--per-query", out).code == 0
        frame = pl.read_csv(out) if ending == "csv" else pl.read_parquet(out)
        assert sorted(frame["query"]) == sorted([first, "-5"])


def test_the_report_writes_out_what_would_act(place: Path, ask: Asked, acting: str) -> None:
    assert ask("eval", "q.txt", acting, "-m", "RR", "--out", "results/x.json").code == 0
    assert ask("report", "results", "--out", "page.html").code == 0
    page = Path("page.html").read_text()
    assert "\\x1b[31m\\u202e" in page
    assert not {"\x1b", "\u202e"} & set(page)


# ------------------------------------------------------------------------------------- stores


def test_a_store_with_passages_is_its_owners_alone(tmp_path: Path) -> None:
    from rankproof.retrieval.cache import Cache

    with Store(tmp_path / "set.golden", create=True) as store:
        store.execute("CREATE TABLE one (more TEXT)")
    with Cache(tmp_path / "cache") as cache:
        cache.put_many("who", "query", {"text": b"1"})
    files = [tmp_path / "set.golden", *(f for f in (tmp_path / "cache").rglob("*") if f.is_file())]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


# --------------------------------------------------------------------------- the compiled code


def test_compiled_functions_refuse_arguments_that_do_not_fit() -> None:
    from rankproof.foundation import kernels

    native = kernels.native
    if native is None:
        pytest.skip("not compiled here")
    doc = pl.Series(["a", "b", "c"])

    def array(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(values, np.int64)

    def slots(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        return np.array(values or [0] * 8, np.int32)

    good, room = array(0, 3), array(0, 8)
    score, rows, flags = np.zeros(3), np.zeros(3, np.int64), np.zeros(3, np.bool_)
    groups = np.zeros(3, np.int64)
    parser = native.TrecParser(4)
    assert parser.feed(b"q 0 a 1\nq 0 b 1\nq 0 a-document-of-many-bytes 1")
    ids = parser.finish()[2]

    def grouped(
        row: Int, listed: Int, group: Int | None = None, position: Int | None = None, room: int = 1
    ) -> object:
        """Two lists of a document each, the first of which is judged."""
        ranked = array(0) if group is None else group, array(0, 1, 2), position, array(0, 1, 2)
        into = [np.zeros(room, np.int64) for _ in range(6)]
        return native.grouped(row, array(0), array(0, 1), listed, *ranked, *into, 0, 1)

    def chosen(flags: Any, start: Int | None = None, room: int = 1) -> object:
        """A group of one document."""
        begins = array(0, 1) if start is None else start
        into = [np.zeros(room + 1, np.int64)] * 4 + [np.zeros(room, np.int64)] * 2
        return native.chosen(flags, array(1), array(1), array(0), begins, *[array(1)] * 2, *into)

    def counted(query: Int, size: Int | None = None) -> object:
        columns = array(1) if size is None else size, array(1), query, array(0, 1), array(1)
        return native.counted(flags[:1], array(9), *columns, *[np.zeros(1)] * 5)

    def averages(query: Int, start: Int | None = None) -> object:
        columns = array(1), array(1), query, array(0, 1) if start is None else start, array(1)
        return native.averages(array(1), array(9), *columns, 1, *[np.zeros(1)] * 5)

    calls: dict[str, Callable[[], object]] = {
        "index: falls": lambda: native.index(doc, array(0, 3, 1), array(0, 4, 8), slots(), 0, 2),
        "index: negative": lambda: native.index(doc, array(-3, 3), room, slots(), 0, 1),
        "index: last below 0": lambda: native.index(doc, good, room, slots(), 0, -5),
        "index: last past all": lambda: native.index(doc, good, room, slots(), 0, 2**62),
        "index: first after last": lambda: native.index(doc, good, room, slots(), 1, 0),
        "index: too many rows": lambda: native.index(doc, array(0, 9), room, slots(), 0, 1),
        "index: no power of two": lambda: native.index(doc, good, array(0, 6), slots(), 0, 1),
        "index: full table": lambda: native.index(doc, good, array(0, 2), slots(), 0, 1),
        "index: slots negative": lambda: native.index(doc, good, array(-8, 0), slots(), 0, 1),
        "lookup: slot past the list": lambda: native.lookup(
            doc, good, room, slots(*[99] * 8), doc, array(0, 0, 0), rows, 0, 3
        ),
        "lookup: full table": lambda: native.lookup(
            doc, good, array(0, 4), slots(1, 1, 1, 1), pl.Series(["x"]), array(0), rows, 0, 1
        ),
        "lookup: falls": lambda: native.lookup(
            doc, array(3, 0), room, slots(), doc, array(0, 0, 0), rows, 0, 3
        ),
        "lookup: last below 0": lambda: native.lookup(
            doc, good, room, slots(), doc, array(0), rows, 0, -1
        ),
        "place: falls": lambda: native.place(score, array(2, 0, 3), None, 1, rows, groups, 0, 2),
        "place: negative": lambda: native.place(score, array(-1, 3), None, 1, rows, groups, 0, 1),
        "place: too few ids": lambda: native.place(score, good, doc.head(2), 1, rows, groups, 0, 1),
        "place: last below 0": lambda: native.place(score, good, None, 1, rows, groups, 0, -7),
        "group: a code past all": lambda: native.group(slots(7), array(0, 0), rows),
        "group: a negative code": lambda: native.group(slots(-1), array(0, 0), rows),
        "falls: too few scores": lambda: native.falls(score, array(0, 9), groups, 0, 1),
        "falls: no room": lambda: native.falls(score, good, groups[:2], 0, 1),
        "grouped: a row of no list": lambda: grouped(array(3), array(0)),
        "grouped: a row of another list": lambda: grouped(array(0), array(1)),
        "grouped: a place past its list": lambda: grouped(
            array(0), array(0), array(0), array(7, 7)
        ),
        "grouped: a group past all": lambda: grouped(array(0), array(0), array(9)),
        "grouped: no room": lambda: grouped(array(0), array(0), room=0),
        "grouped: too few places": lambda: grouped(array(0), array(0), array(0), array(0)),
        "chosen: too few flags": lambda: chosen(flags[:0]),
        "chosen: no room": lambda: chosen(flags, room=0),
        "chosen: documents past all": lambda: chosen(flags, start=array(0, 9)),
        "counted: no such query": lambda: counted(array(1)),
        "counted: no such group": lambda: counted(array(0), size=array(0)),
        "averages: no such query": lambda: averages(array(-1)),
        "averages: documents past all": lambda: averages(array(0), start=array(0, 2)),
        "fetch: no such reader": lambda: native.TrecParser(6).fetch(0, 0, 9, 0, 4, 9, 1, 1),
        "fetch: no step": lambda: native.TrecParser(6).fetch(0, 0, 9, 0, 0, 9, 0, 1),
        "fetch: ends before it begins": lambda: native.TrecParser(6).fetch(0, 5, 4, 0, 1, 9, 0, 1),
        "tally: grades past all": lambda: native.tally(array(0, 9), rows, 0, 1, array(0)),
        "starts: no room": lambda: native.starts(slots(0), array()),
        "scatter: more rows than strings": lambda: native.scatter(
            slots(0, 0, 0, 0), array(0), array(3), np.zeros(4), ids, score, ids.like(3), 0, 4
        ),
        "scatter: a query has more rows": lambda: native.scatter(
            slots(0, 0, 1), array(0, 1), array(1, 3), score, ids, np.zeros(3), ids.like(3), 0, 3
        ),
        "scatter: no room": lambda: native.scatter(
            slots(0, 0, 0), array(0), array(3), score, ids, np.zeros(2), ids.like(3), 0, 3
        ),
        "scatter: a place past all": lambda: native.scatter(
            slots(0, 0, 0), array(1), array(4), score, ids, np.zeros(3), ids.like(3), 0, 3
        ),
        "scatter: a code past all": lambda: native.scatter(
            slots(0, 0, 1), array(0), array(3), score, ids, np.zeros(3), ids.like(3), 0, 3
        ),
        "scatter: last below 0": lambda: native.scatter(
            slots(0, 0, 0), array(0), array(3), score, ids, np.zeros(3), ids.like(3), 0, -1
        ),
        "like: below 0": lambda: ids.like(-1),
        "merge: falls": lambda: native.merge(
            doc, good[:1], good[1:], rows, False, array(3, 0), rows, score, rows, 0, 1
        ),
        "merge: rows past all": lambda: native.merge(
            doc, array(0), array(9), rows, False, array(0, 9), rows, score, rows, 0, 1
        ),
        "merge: last below 0": lambda: native.merge(
            doc, array(0), array(3), rows, False, good, rows, score, rows, 0, -2
        ),
    }
    weight, value = np.ones(4), np.zeros(1)
    twice, far, no = array(2, 2), array(9), array(0)
    gains = weight, value, array(0).reshape(1, 1), value, weight, no, True, value, 0, 1
    for case, path in {
        "ranks that do not ascend": (rows, twice, array(0, 2), array(3), True, 1),
        "ranks past the reach": (rows, far, array(0, 1), array(3), True, 1),
        "a rank of 0": (rows, no, array(0, 1), array(3), True, 1),
        "too few ranks": (rows, array(1), array(0, 3), array(3), True, 1),
        "starts that fall": (rows, array(1), array(1, 0), array(3), True, 1),
    }.items():
        calls |= {
            f"precision: {case}": partial(
                native.precision, *path, weight, no, no, no, True, value, 0, 1
            ),
            f"preference: {case}": partial(
                native.preference, *path, no, no, no, True, True, value, 0, 1
            ),
            f"interpolated: {case}": partial(
                native.interpolated, *path, weight, no, no, True, value, 0, 1
            ),
            f"cascade: {case}": partial(native.cascade, score, *path[1:4], 0.5, no, value, 0, 1),
            f"gain_in_rows: {case}": partial(native.gain_in_rows, *path[1:4], *gains),
        }
    kept = array(1), array(0, 1), array(3)
    shared = np.zeros(3, np.int32), np.zeros(3, np.bool_), *(np.zeros(1, np.int64),) * 2
    calls |= {
        "precision: too few weights": lambda: native.precision(
            rows, *kept, True, 1, np.ones(3), no, no, no, True, value, 0, 1
        ),
        "gain_in_rows: too few sums": lambda: native.gain_in_rows(*kept, np.ones(2), *gains[1:]),
        "share: past the list": lambda: native.share(
            *(doc, None, flags, array(2), good, no, doc, good, room, slots(), None, flags, no),
            *(good, *shared, 0, 1),
        ),
        "share: a slot past the list": lambda: native.share(
            *(doc, None, flags, no, good, no, doc, good, room, slots(*[99] * 8), None, flags, no),
            *(good, *shared, 0, 1),
        ),
        "share: a row past all": lambda: native.share(
            *(doc, array(7, 7, 7), flags, no, good, no, doc, good, room, slots(), None, flags, no),
            *(good, *shared, 0, 1),
        ),
    }
    nobody = np.full(3, 9, np.int32)
    for name, call, rest in (
        ("lead", native.lead, [np.zeros(1)] * 4),
        ("gains", native.gains, [value, array(0).reshape(1, 1), value, weight, *[np.zeros(1)] * 2]),
    ):
        calls |= {
            f"{name}: {case}": partial(call, *path, *rest, 0, 1)
            for case, path in {
                "ranks past the weights": (*shared[:2], good, good, value),
                "fewer holes": (shared[0], shared[1][:1], good, good, weight),
                "a rank of nobody": (nobody, shared[1], good, good, weight),
            }.items()
        }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=r"\w"):
            print(name, call())  # the name is seen where nothing was raised


# ------------------------------------------------------------------------------- verification


VERIFIED = [
    "eval q.txt a.trec b.trec -m nDCG@10 -m ERR",
    "eval q.txt a.trec --like trec_eval --holes",
    "eval q.txt - -m RR",
    "compare q.txt a.trec b.trec --seed 7",
    "leaderboard q.txt a.trec b.trec --seed 3 --holes",
    "gate q.txt a.trec b.trec -m nDCG@10 -m RR@10 --margin 0.2 --allow-undecided",
    "holes q.txt a.trec b.trec -m nDCG@5 --judge-next 2 --leave-one-out 1 --judged b.txt",
    "ties a.trec --at 1,2 --score-dtype float16",
    "ceilings q.txt a.trec -m R --at 2,3 --pool b.trec --correct right.csv --sources of.csv "
    "--sensitivity",
    "audit logits q.txt logits.csv -m RR --formats float32,float16",
    "audit vectors q.txt --queries v.npy --documents mine=v.npy --query-ids ids.txt "
    "--document-ids docs.txt -m RR --k 2 --metric cosine --dimensions 1",
    "golden agreement set.golden --human people.txt",
]


def _first_float(data: Any, change: Callable[[float], float]) -> bool:
    """Change the first figure that is found."""
    for key, value in list(data.items() if isinstance(data, dict) else enumerate(data)):
        if isinstance(value, float) and key != "seconds":
            data[key] = change(value)
            return True
        if isinstance(value, dict | list) and key != "manifest" and _first_float(value, change):
            return True
    return False


@pytest.mark.parametrize("line", VERIFIED)
def test_a_result_verifies_until_a_figure_or_an_input_changes(
    place: Path, ask: Asked, line: str
) -> None:
    arguments = line.split()
    piped = "-" in arguments
    Path("b.txt").write_text("q1 0 d2 1\n")
    Path("right.csv").write_text("query,correct\nq1,1\nq2,0\n")
    Path("of.csv").write_text("doc,source\nd1,x\nd2,x\n")
    Path("ids.txt").write_text("q1\nq2\n")
    Path("docs.txt").write_text("d1\nd2\n")
    np.save("v.npy", np.array([[1.0, 2.0], [3.0, 1.0]], np.float32))
    queries = pl.read_ndjson("corpus/queries.jsonl")["_id"]
    texts = pl.read_ndjson("corpus/corpus.jsonl")["_id"]
    Path("people.txt").write_text(
        "".join(
            f"{q} 0 {d} {(a + b) % 5 + 1}\n"
            for a, q in enumerate(queries)
            for b, d in enumerate(texts)
        )
    )
    done = rankproof(*arguments, "--format", "json", stdin=RUN.encode() if piped else b"")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    made = result["manifest"]
    assert made["command"][0] == arguments[0]
    assert all(given["size"] and len(given["sha256"]) == 64 for given in made["inputs"].values())
    Path("result.json").write_bytes(done.stdout)
    ended = ask("verify", "result.json", *(["a.trec"] if piped else []))
    assert ended.code == 0, ended
    assert "the same to the last bit" in ended.out

    beside = ["a.trec"] if piped else []
    forged = json.loads(json.dumps(result))
    assert _first_float(forged, lambda value: float(np.nextafter(value, 9.0)))
    shortened = {key: value for key, value in result.items() if key in ("manifest", "policy")}
    for changed in (forged, shortened):
        Path("forged.json").write_text(json.dumps(changed))
        ended = ask("verify", "forged.json", *beside, "--format", "json")
        if ended.code != 1:
            ended.refuses("no values")
            continue
        said = json.loads(ended.out)
        assert said["differences"]
        assert said["manifest"]["kind"] == "verification"

    name = next(given["file"] for given in made["inputs"].values())
    Path("a.trec" if piped else name).write_text(
        "q1 0 d1 1\nq2 0 d1 1\n" if name == "q.txt" and not piped else RUN.replace("0.9", "0.1")
    )
    if name != "set.golden":
        assert ask("verify", "result.json", *beside).code == 1


def test_verification_says_what_is_not_made_again(place: Path, ask: Asked) -> None:
    assert ask("sweep", "sweep.yaml", "--out", "swept").code == 0
    ended = ask("verify", "swept/sweep.json", "corpus")
    assert ended.code == 0, ended
    said = " ".join(ended.out.split())
    assert (
        "3 inputs have their digests. No value was computed again: a sweep measures times" in said
    )
    bare = Verification("a.json", "diagnosis", __version__, (), 0, (), "an embedder was run")
    assert bare.words() == ["No value was computed again: an embedder was run."]
    done = rankproof("recommend", "swept", "--sla-ms", "1e9", "--format", "json")
    Path("choice.json").write_bytes(done.stdout)
    assert "the same to the last bit" in ask("verify", "choice.json").out
    (place / "swept" / "report.html").touch()  # what was added later decides nothing
    assert ask("verify", "choice.json").code == 0
    judged = Path("corpus/qrels/test.tsv")
    judged.write_text(judged.read_text() + "more\td\t1\n")
    assert ask("verify", "swept/sweep.json", "corpus").code == 1


def test_an_input_that_is_not_found_is_asked_for_by_a_command_to_type(
    place: Path, ask: Asked
) -> None:
    for folder in ("-my results", "runs"):
        Path(folder).mkdir()
    for name in ("a", "b"):
        Path(f"{name}.trec").rename(f"runs/run {name}.trec")
    runs = ["runs/run a.trec", "runs/run b.trec"]
    assert ask("eval", "q.txt", *runs, "--out", "./-my results/made.json").code == 0
    ended = ask("verify", "./-my results/made.json")
    ended.refuses("name it: rankproof verify './-my results/made.json' PATH/'run a.trec'")
    for _ in runs:  # what was named stays named
        typed = shlex.split(ended.err.partition("name it: rankproof ")[2].replace("PATH", "runs"))
        ended = ask(*typed)
    assert ended.code == 0


def test_a_run_may_be_called_like_something_else(place: Path, ask: Asked) -> None:
    for name in ("qrels", "judged", "run x", "pool 1", "sources"):
        Path(f"{name}.trec").write_text(RUN)
    runs = ["qrels.trec", "judged.trec", "run x.trec", "pool 1.trec"]
    more = ["--pool", "b.trec", "-m", "RR", "--at", "2"]
    for verb, inputs in ((["eval", "q.txt", *runs], 5), (["ceilings", "q.txt", *runs, *more], 6)):
        done = rankproof(*verb, "--format", "json")
        assert len(json.loads(done.stdout)["manifest"]["inputs"]) == inputs
        Path("result.json").write_bytes(done.stdout)
        assert ask("verify", "result.json").code == 0


def test_a_result_is_not_verified_without_its_inputs(place: Path, ask: Asked) -> None:
    ask("verify", "results/eval.json", "a.trec", "b.trec")
    Path("q.txt").rename("elsewhere.txt")
    ask("verify", "results/eval.json").refuses("q.txt", "name it")
    assert ask("verify", "results/eval.json", "elsewhere.txt").code == 0
    Path("x.json").write_text('{"manifest": {"kind": "evaluation", "inputs": {"a": 1}}}')
    ask("verify", "x.json").refuses("not a result that rankproof wrote")


# What was changed in a result, where, and how `verify` ends: 1 a difference, 2 no result of ours.
TAMPERED: dict[str, tuple[tuple[str | int, ...], Any, int]] = {
    "a zero has a sign": (("runs", 0, "measures", "nDCG@10", "std"), -0.0, 1),
    "true for one": (("runs", 0, "measures", "nDCG@10", "queries"), True, 1),
    "a measure more": (("runs", 0, "measures", "XX"), {"expected": 1.0}, 1),
    "no runs": (("runs",), [], 1),
    "a kind that nobody writes": (("manifest", "kind"), "evaluatio", 2),
    "measures that are none": (("manifest", "config", "measures"), 5, 2),
    "a cutoff of many digits": (("manifest", "config", "measures"), [f"RR@{'9' * 40}"], 2),
    "an order that is none": (("manifest", "config", "order"), "sideways", 2),
    "a list of inputs": (("manifest", "inputs"), [], 2),
    "a digest that is none": (("manifest", "inputs", "qrels", "sha256"), None, 1),
    "a name with a NUL": (("manifest", "inputs", "qrels", "file"), "q\0.txt", 2),
    "a name that leads away": (("manifest", "inputs", "qrels", "file"), "../../etc/hosts", 2),
    "half a surrogate": (("manifest", "inputs", "qrels", "file"), "\ud800", 2),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_a_result_that_was_tampered_with_is_not_verified(
    place: Path, ask: Asked, case: str
) -> None:
    where, value, code = TAMPERED[case]
    assert ask("eval", "q.txt", "a.trec", "-m", "nDCG@10", "--out", "result.json").code == 0
    data = at = json.loads(Path("result.json").read_text())
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    Path("result.json").write_text(json.dumps(data))
    ended = ask("verify", "result.json")
    if code == 2:
        ended.refuses()
    assert ended.code == code, ended


# ------------------------------------------------------------------- how every result was made

GROUPED = ("golden", "diagnose", "audit")  # first words of several commands
SHOWN = [
    *VERIFIED,
    "audit scores q.txt a.trec",
    "measures",
    "parts",
    "sweep sweep.yaml --plan",
    "sweep sweep.yaml --out swept",
    "search corpus whales",
    "golden status set.golden",
    "golden diff set.golden set.golden",
    "golden try golden.yaml --sample 2",
    "golden build golden.yaml --dry-run",
    "golden build golden.yaml",
    "verify results/eval.json",
    "diagnose names --queries 2 --runs 1",
    "diagnose noise --queries 2 --runs 1",
    "recommend swept",
    "golden assign set.golden --to ada --to bob",
    "doctor",
    "init notes --questions asked.txt",
    "choose notes-rankproof --judge simulated --yes",
]


def _judged(folder: Path) -> None:
    """Judgements for a corpus that has none: each question's passage is that of its number."""
    ids = [pl.read_ndjson(folder / f"{name}.jsonl")["_id"] for name in ("queries", "corpus")]
    rows = [f"{query}\t{doc}\t1\n" for query, doc in zip(*ids, strict=True)]
    (folder / "qrels").mkdir()
    text = "".join(["query-id\tcorpus-id\tscore\n", *rows])
    (folder / "qrels" / "test.tsv").write_text(text)


def test_every_verb_that_prints_json_says_how_it_was_made(place: Path, ask: Asked) -> None:
    (place / "golden.yaml").write_text("corpus: corpus\njudge: {type: simulated}\n")
    taking = {name for name in _commands() if "--format" in _options(name)}
    assert {
        " ".join(line.split()[: 1 + (line.split()[0] in GROUPED)]) for line in SHOWN
    } == taking - {"report", "demo", "golden import", "golden export", "audit model"}
    for line in SHOWN[len(VERIFIED) :]:
        if line.startswith("choose"):  # what the simulated judge knows
            _judged(Path("notes-rankproof"))
        ended = ask(*line.split(), "--format", "json")
        assert ended.code == 0, ended
        made = json.loads(ended.out)["manifest"]
        assert {"kind", "rankproof", "made", "command", "inputs", "versions"} <= made.keys(), line
        assert made["command"][0] == line.split()[0]
        assert "call" in made or made["kind"] in UNMADE, "which verify cannot repeat"
