"""The suite itself: the same everywhere, whatever the machine is doing meanwhile."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from loopback import PATIENCE
from optional_packages import DISTRIBUTIONS

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.py"))
FUZZ = FOLDER.parent / "fuzz"


@cache
def programs(file: Path) -> list[tuple[str, ast.Module]]:
    """The file, and what it gives other processes to run."""
    tree = ast.parse(file.read_text())
    found = [(file.name, tree)]
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text), lineno=line) if "import " in text:
                with suppress(SyntaxError):  # a sentence
                    found.append((f"{file.name}:{line}", ast.parse(text)))
    return found


def modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_test_sleeps_or_reads_a_clock(file: Path) -> None:
    """What has no clock can neither wait for a while nor be too slow."""
    for place, tree in programs(file):
        assert not {"time", "timeit", "asyncio", "sched"} & set(modules(tree)), place


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_text_holds_the_path_of_python_without_quotes(file: Path) -> None:
    """A shell would split it where the folder of the checkout has a blank in its name."""
    for node in ast.walk(ast.parse(file.read_text())):
        parts: list[ast.expr] = []
        match node:
            case ast.JoinedStr(values=values):
                parts = [part.value for part in values if isinstance(part, ast.FormattedValue)]
            case ast.Call(func=ast.Attribute(attr="join", value=ast.Constant()), args=[argument]):
                parts = getattr(argument, "elts", [])
        for part in parts:
            assert ast.unparse(part) != "sys.executable", f"{file.name}:{part.lineno}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_waited_for_is_given_the_time_of_a_busy_machine(file: Path) -> None:
    """A `timeout=` that should never be reached is PATIENCE."""
    for place, tree in programs(file):
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "timeout":
                given = node.value
                assert not isinstance(given, ast.Constant), f"{place}:{given.lineno}"
    assert PATIENCE >= 120


def test_the_check_sees_what_it_is_there_for(tmp_path: Path) -> None:
    file = tmp_path / "sleepy.py"
    file.write_text('CODE = """\nimport time\ntime.sleep(1)\n"""\n')
    found = [set(modules(tree)) for _, tree in programs(file)]
    assert found == [set(), {"time"}]


def test_tests_and_their_children_receive_ctrl_c_where_a_shell_has_it_ignored() -> None:
    child = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    program = "import conftest, subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]])"
    result = subprocess.run(
        [sys.executable, "-c", program, "-c", child],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        check=False,
    )
    assert result.stdout == "True\n", result.stderr


ABSENT = {
    "test_file.py": "import not_there\n\ndef test(): pass\n",
    "test_cases.py": """
import subprocess, sys
import pytest
import rankproof as rp
from rankproof.foundation.errors import import_extra

@pytest.fixture
def needed(): return import_extra("not_there.part", "a chart", "report")

def test_import(): import not_there.part
def test_extra(): import_extra("not_there", "a chart", "report")
def test_fixture(needed): pass
def test_child():
    command = [sys.executable, "-c", "import not_there"]
    done = subprocess.run(command, capture_output=True)
    assert done.returncode == 0, done.stderr
""",
    "test_failures.py": """
import pytest

def test_misspelt(): import not_their
def test_broken(): raise ImportError("No module named 'numpy'", name="numpy")
def test_fallback():
    try:
        import not_there
    except ImportError:
        raise ValueError("the fallback is wrong")
""",
}


def test_an_absent_optional_package_is_a_skip_and_any_other_import_error_a_failure(
    tmp_path: Path,
) -> None:
    for name, text in ABSENT.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "absent.py").write_text(
        "import optional_packages\noptional_packages.OPTIONAL.add('not-there')\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "absent", "-p", "conftest", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(FOLDER), str(tmp_path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.endswith("\n"), result.stderr
    summary = result.stdout.splitlines()
    skipped = {line for line in summary if line.startswith("SKIPPED")}
    assert len(skipped) == 5, result.stdout
    assert all(line.endswith(": needs not-there") for line in skipped)
    failed = [line.split()[1] for line in summary if line.startswith("FAILED")]
    assert sorted(failed) == [
        f"test_failures.py::test_{name}" for name in ("broken", "fallback", "misspelt")
    ]


def test_every_optional_package_is_known_by_the_name_of_its_module() -> None:
    """Else a test that needs it would fail where it is absent."""
    modules: dict[str, set[str]] = {}
    for module, packages in packages_distributions().items():
        for package in packages:
            modules.setdefault(package.lower().replace("_", "-"), set()).add(module)
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text("utf-8"))
    groups = [*project["project"]["optional-dependencies"].values()]
    groups.append(project["dependency-groups"]["test"])
    for requirement in {text for group in groups for text in group}:
        package = re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")
        if package in modules:
            names = {module.lower().replace("_", "-") for module in modules[package]}
            assert package in {DISTRIBUTIONS.get(name, name) for name in names}, requirement


READERS = ["trec-run", "trec-qrels", "json-run", "jsonl-run", "jsonl-qrels", "beir"]


def test_mutated_files_are_read_alike_by_every_reader(tmp_path: Path) -> None:
    """`make fuzz` in small: the same few hundred files each time."""
    done = subprocess.run(
        [sys.executable, str(FUZZ / "mutate.py"), "--files", "40", "--seed", "0", *READERS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
