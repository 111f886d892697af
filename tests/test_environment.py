"""The set-up of a checkout: which Python, which versions, from which index, into which folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import unquote

import pytest
from loopback import PATIENCE, Reply, Request, loopback
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import environment  # noqa: E402

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
TESTED = re.findall(r"Python :: (3\.\d+)", PROJECT)


def pins() -> dict[str, list[Requirement]]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if not line.startswith("#")]
    grouped: dict[str, list[Requirement]] = {}
    for requirement in requirements:
        grouped.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return grouped


@pytest.fixture
def uv() -> str:
    path = shutil.which("uv", path=os.pathsep.join([os.environ["PATH"], f"{sys.prefix}/bin"]))
    return path or pytest.skip("needs uv")


@pytest.fixture
def online_uv(uv: str) -> str:
    """uv, where it reaches a package index."""
    command = [uv, "pip", "compile", "--quiet", "--no-deps", "--no-cache", "-"]
    variables = {**environment.uv_variables(environment.pip_settings()), **os.environ}
    online = subprocess.run(
        command, input=b"wheel", env=variables, capture_output=True, timeout=PATIENCE, check=False
    )
    if online.returncode:
        pytest.skip("needs a package index")
    return uv


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that the set-up takes for the checkout."""
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    return tmp_path


def test_an_old_python_is_refused_with_both_versions_and_a_remedy() -> None:
    message = environment.check_python((3, 9, 18), PROJECT)
    assert message is not None
    assert "is Python 3.9.18; rankproof needs 3.11 or newer; name a newer one: make " in message
    assert "PYTHON=python3." in message
    assert environment.check_python((3, 11, 0), PROJECT) is None


def test_an_old_python_cannot_build_the_package_and_says_why() -> None:
    program = "import sys; sys.version_info = (3, 10, 13); exec(open('setup.py').read())"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stderr == "rankproof needs Python 3.11 or newer; this is Python 3.10.13\n"


@pytest.mark.parametrize(("value", "fails"), [("true", True), ("1", True), ("no", False)])
def test_compiled_code_can_be_required(tmp_path: Path, value: str, fails: bool) -> None:
    pytest.importorskip("setuptools")
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(tmp_path)]
    variables = {**os.environ, "CC": "/bin/false", "RANKPROOF_REQUIRE_NATIVE": value}
    result = subprocess.run(
        [*command, "--build-temp", str(tmp_path)],
        cwd=ROOT, env=variables, capture_output=True, check=False,
    )  # fmt: skip
    assert bool(result.returncode) == fails, result.stderr.decode()


def test_an_unclear_requirement_of_compiled_code_is_refused() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[1:] = ['-V']; exec(open('setup.py').read())"],
        cwd=ROOT, env={**os.environ, "RANKPROOF_REQUIRE_NATIVE": "perhaps"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.stderr == "RANKPROOF_REQUIRE_NATIVE: 'perhaps' is neither 0 nor 1\n"


def test_uv_uses_the_indexes_and_folders_that_pip_uses(tmp_path: Path) -> None:
    listing = (
        ":env:.index-url='https://mirror.test/simple'\n"
        "global.cert='/etc/ca.pem'\n"
        "global.extra-index-url='\\nhttps://a.test\\nhttps://b.test'\n"
        f"global.find-links='/no/such/folder {tmp_path}'\n"
        "global.index-url='https://other.test/simple'\n"
        "global.progress-bar='off'\n"
    )
    variables = environment.uv_variables(environment.parse_settings(listing))
    assert variables == {
        "SSL_CERT_FILE": "/etc/ca.pem",
        "UV_DEFAULT_INDEX": "https://mirror.test/simple",
        "UV_FIND_LINKS": str(tmp_path),
        "UV_INDEX": "https://a.test https://b.test",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_PYTHON_DOWNLOADS": "never",
    }


def test_an_extra_index_with_a_cpu_build_of_torch_is_enough_to_get_it(
    uv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: Request) -> Reply:
        version = "2.13.0%2Bcpu" if request.path.startswith("/cpu/") else "2.13.0"
        if request.path.endswith(".metadata"):
            return Reply(f"Name: torch\nVersion: {unquote(version)}\n".encode())
        wheel = f"torch-{version}-py3-none-any.whl"
        link = f'<a href="{wheel}" data-core-metadata="true">{unquote(wheel)}</a>'
        return Reply(link.encode(), headers={"Content-Type": "text/html"})

    with loopback(answer) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/all/")
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{server.url}/cpu/")
        variables = {**os.environ, **environment.uv_variables(environment.pip_settings())}
        result = subprocess.run(
            [uv, "pip", "install", "--dry-run", "--no-cache", "--target", str(tmp_path), "torch",
             "--constraint", str(ROOT / "constraints.txt"), "--python", sys.executable],
            env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
    assert " + torch==2.13.0+cpu" in result.stderr


def test_a_folder_that_is_no_environment_is_left_alone(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "notes").write_text("mine")
    with pytest.raises(SystemExit, match="is not a virtual environment; move it away"):
        environment.Environment(".venv").make()
    assert (checkout / ".venv" / "notes").read_text() == "mine"


@pytest.mark.parametrize("damage", ["interrupted", "of another Python", "without a Python"])
def test_an_environment_that_cannot_be_used_is_replaced(checkout: Path, damage: str) -> None:
    folder = environment.Environment(".venv")
    folder.make()
    assert folder.is_usable()
    (folder.folder / "kept").touch()
    folder.make()
    assert (folder.folder / "kept").exists()
    if damage == "interrupted":
        folder.interrupted.touch()
    else:
        folder.python.unlink()
        if damage == "of another Python":
            folder.python.write_text("#!/bin/sh\necho 3.9.18\n")
            folder.python.chmod(0o755)
    assert not folder.is_usable()
    folder.make()
    assert folder.is_usable()
    assert not (folder.folder / "kept").exists()


def test_the_path_to_the_sources_is_ascii_in_any_folder(checkout: Path) -> None:
    packages = checkout / ".venv" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    path = packages / "__editable__.rankproof-0.1.0.pth"
    path.write_text("/home/jürgen/rankproof/src", encoding="utf-8")
    environment.Environment(".venv").shorten_path()
    assert path.read_bytes() == b"../../../../src\n"


def test_the_set_up_runs_again_when_a_requirement_changes(checkout: Path) -> None:
    for name in ("pyproject.toml", "constraints.txt", "setup.py"):
        (checkout / name).write_text("1")
    folder = environment.Environment(".venv")
    folder.make()
    folder.stamp("demo").write_text(environment.digest(sys.version))
    assert folder.is_current("demo")
    assert not folder.is_current("test")
    (checkout / "constraints.txt").write_text("2")
    assert not folder.is_current("demo")


def test_every_installed_distribution_is_pinned() -> None:
    if not any(Path(sys.prefix).glob("installed-*")):
        pytest.skip("this environment was not made by make")
    pinned = pins()
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    for distribution in distributions(path=list(folders)):
        name = canonicalize_name(distribution.metadata["Name"])
        if name != "rankproof":
            applicable = [pin for pin in pinned[name] if not pin.marker or pin.marker.evaluate()]
            assert applicable, name
            assert applicable[0].specifier.contains(distribution.version, prereleases=True), name


def test_every_requirement_of_the_build_is_pinned() -> None:
    [listing] = re.findall(r"\[build-system\]\nrequires = \[(.*)\]", PROJECT)
    assert {Requirement(text.strip(' "')).name for text in listing.split(",")} <= pins().keys()


@pytest.mark.slow
def test_solving_again_gives_the_same_versions(online_uv: str, tmp_path: Path) -> None:
    again = tmp_path / "constraints.txt"
    shutil.copy(ROOT / "constraints.txt", again)
    environment.lock(online_uv, str(again))
    assert again.read_text() == (ROOT / "constraints.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("version", TESTED)
def test_every_distribution_has_a_wheel_for_each_tested_python(
    online_uv: str, version: str
) -> None:
    command = [online_uv, "pip", "compile", "--quiet", "--only-binary", ":all:", "--python-version"]
    command += [version, "--python-platform", "x86_64-manylinux_2_28", "pyproject.toml"]
    command += ["--extra", "all", "--extra", "demo", "--constraint", "constraints.txt"]
    for group in ("test", "peers", "lint", "docs"):
        command += ["--group", group]
    variables = {**environment.uv_variables(environment.pip_settings()), **os.environ}
    result = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_readme_names_the_tested_versions_of_python() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Python {', '.join(TESTED[:-1])} and {TESTED[-1]}" in readme


def test_readme_states_the_time_and_the_disk_of_both_commands() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert re.search(r"make demo # [^`]*?; \d+ s, [\d.]+ GB", readme)
    assert re.search(r"make test # [^`]*?: [\w ]+ and [\d.]+ GB to install", readme)
    assert "PIP_EXTRA_INDEX_URL" in readme
