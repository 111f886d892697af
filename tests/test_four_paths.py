"""The four ways in on the front page run in an empty folder, and print what it shows.

python tests/test_four_paths.py ["You build RAG"]    # writes what is printed now into README.md
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from demo_folder import demo_folder
from loopback import loopback
from mixed_documents import QUESTIONS, write_documents
from rankproof_cli import rankproof
from test_choose import answer

from rankproof.commands import health
from rankproof.commands.registry import Needs
from rankproof.presentation.terminal import wrap

README = Path(__file__).parents[1] / "README.md"
WHO = (
    "You publish numbers",
    "You train or quantize embedders",
    "You build RAG",
    "You keep a platform from getting worse",
)
FAILS = "$ rankproof gate "  # it finds the candidate worse, and says so by its exit code
BLOCK = re.compile(r"^\*\*(?P<who>.*?)\.\*\*.*?^```console\n(?P<said>.*?)^```", re.S | re.M)
TIMES = re.compile(r"\d+(?:\.\d+)? (?:ms|minutes)\b")
# Who is dominated, and so what is shown beside the choice, rests on latencies.
RESTS = re.compile(r"Not significantly|Also not|Not dominated|  \d+ dominated ")


def timeless(lines: list[str]) -> list[str]:
    """Without what differs from run to run: times, and what rests on them alone."""
    kept: list[str] = []
    columns: list[tuple[int, int]] = []  # of times, in the table that is being read
    is_skipped = False
    for line in lines:
        continues = line[:1].islower() and not line.startswith("page: ")
        is_skipped = bool(RESTS.match(line)) or (is_skipped and continues)
        heads = [head.span() for head in re.finditer(r"p\d\d ms", line)]
        columns = heads or (columns if line.strip() else [])
        if heads or (columns and "─" in line):  # as wide as the names that are shown
            line = re.sub("[ ─]+", " ", line)
        elif columns:
            for begin, end in columns:
                line = f"{line[:begin]}{'…':>{end - begin}}{line[end:]}"
            if not line.endswith(" SLA"):
                continue
            line = re.sub(" +", " ", line)
        elif is_skipped:
            continue
        kept.append(TIMES.sub("… ms", line))
    return kept


def section() -> str:
    text = README.read_text(encoding="utf-8")
    return text.partition("## Four ways in\n")[2].partition("\n## ")[0]


def paths() -> dict[str, list[str]]:
    """Who you are → the lines for you: commands, and what they print."""
    return {found["who"]: found["said"].splitlines() for found in BLOCK.finditer(section())}


@contextmanager
def at_hand(who: str) -> Iterator[dict[str, str]]:
    """What somebody has in a folder that is empty otherwise; what the environment says."""
    if who != "You build RAG":
        shutil.copytree(demo_folder(), ".", dirs_exist_ok=True)
        yield {}
        return
    write_documents(Path("documents"))
    Path("questions.txt").write_text("\n".join(QUESTIONS), encoding="utf-8")
    with loopback(answer) as server:
        yield {"JUDGE_URL": server.url, "JUDGE_MODEL": "m"}


def wrapped(line: str) -> list[str]:
    """What goes to stderr, as a terminal of that width shows it."""
    return wrap(line, 80)


def printed(who: str, lines: list[str]) -> list[str]:
    """Commands, each with what a terminal of 80 columns shows of it."""
    commands = [line for line in lines if line.startswith("$ ")]
    assert 1 < len(commands) <= 5
    assert commands[0].startswith("$ pip install ")  # as the extras of test_extras_fit_the_paths
    found = commands[:1]
    with at_hand(who) as known:
        for line in commands[1:]:
            words = shlex.split(line[2:])
            assert words[0] == "rankproof"
            words = [known.get(word.removeprefix("$"), word) for word in words]
            done = rankproof(*words[1:], env={"COLUMNS": "80", "NO_COLOR": "1"})
            assert done.returncode == int(line.startswith(FAILS)), (line, done.stderr.decode())
            told = [part for each in done.stderr.decode().splitlines() for part in wrapped(each)]
            shown = done.stdout.decode().rstrip().splitlines()
            found += [line, *told, *(each.rstrip() for each in shown)]
    return found


def test_there_are_four() -> None:
    assert tuple(paths()) == WHO


@pytest.mark.parametrize("who", WHO)
def test_extras_fit_the_paths(who: str) -> None:
    """What a path installs is what its verbs cannot do without."""
    said = tomllib.loads((README.parent / "pyproject.toml").read_text(encoding="utf-8"))
    extras = said["project"]["optional-dependencies"]

    def packages(extra: str) -> set[str]:
        found: set[str] = set()
        for line in extras[extra]:
            name, inner = re.match(r"([\w-]+)(?:\[(.*)\])?", line).groups()  # type: ignore[union-attr]
            found |= (
                set().union(*map(packages, inner.split(","))) if name == "rankproof" else {name}
            )
        return found

    install, *commands = [line for line in paths()[who] if line.startswith("$ ")]
    named = re.fullmatch(r"\$ pip install '?\.(?:\[(\w+)\]')?", install)
    assert named is not None
    held = packages(named[1] or "eval")
    for line in commands:
        needs = health.command_needs().get(line.split()[2], Needs()).modules
        assert {{"yaml": "PyYAML"}.get(module, module) for module in needs} <= held, line


@pytest.mark.slow
@pytest.mark.parametrize("who", WHO)
def test_a_path_prints_what_the_front_page_shows(
    who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("lxml", "pypdfium2", "wordllama", "jinja2", "ml_dtypes"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    shown = paths()[who]
    assert timeless(printed(who, shown)) == timeless(shown)
    commands = ("$ ", "Next: ", "      ")  # stay whole, to be copied
    assert all(len(line) <= 80 for line in shown if not line.startswith(commands))


def rewrite(some: list[str]) -> None:
    """What the commands print now, on the front page: of all four, or of some."""
    text = README.read_text(encoding="utf-8")
    for who, lines in paths().items():
        if some and who not in some:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            now = printed(who, lines)
            os.chdir(README.parent)
        text = text.replace("\n".join(lines), "\n".join(now))
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as shared:
        os.environ["RANKPROOF_TESTS"] = shared
        rewrite(sys.argv[1:])
