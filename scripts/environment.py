"""Make the environments that the Makefile uses, with uv or, where uv cannot be had, with pip.

    python scripts/environment.py demo|test|dist|fuzz    make .venv for this target of the Makefile
    python scripts/environment.py versions               run the tests on every other Python
    python scripts/environment.py lock                   write constraints.txt

Both installers use constraints.txt and the same package indexes: pip's settings (PIP_INDEX_URL and
the like, pip.conf) are translated for uv. uv's cache is shared by all checkouts, so that a second
environment costs seconds and little disk. An interrupted set-up starts
again, from the cache.

The code before `check_python` runs on any Python 3, to say which one is needed.
"""

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = "constraints.txt"
BASE_PYTHON: str = getattr(sys, "_base_executable", sys.executable)  # outside of .venv
INTERRUPTED = "interrupted"  # this file lies in an environment while packages are installed

# What each target needs: the extras of rankproof and the dependency groups.
KINDS: Dict[str, Tuple[List[str], List[str]]] = {
    "demo": (["demo"], []),
    "test": (["all"], ["test", "peers", "lint", "docs"]),
    "dist": ([], ["dist"]),
    "fuzz": (["all"], ["test", "fuzz"]),
    "portable": ([], ["test", "peers"]),  # and every extra that brings no torch
}
INCLUDED = {"test": ["demo"]}  # an environment for the tests also serves the demo
HEAVY = {"torch", "mteb", "audit", "all"}  # the extras that bring torch

# Settings of pip, the variable of uv that means the same, and what separates several values there.
UV_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "no-index": ("UV_NO_INDEX", ""),
    "cert": ("SSL_CERT_FILE", ""),
    "default-timeout": ("UV_HTTP_TIMEOUT", ""),
    "timeout": ("UV_HTTP_TIMEOUT", ""),
}


def check_python(version: Tuple[int, ...], project: str) -> Optional[str]:
    """Return why this Python cannot be used, with a remedy, or None where it can."""
    match = re.search(r'requires-python = ">=(\d+)\.(\d+)"', project)
    assert match, "pyproject.toml states requires-python"
    required = (int(match.group(1)), int(match.group(2)))
    if version[:2] >= required:
        return None
    names = ["python3.%d" % minor for minor in range(required[1] + 3, required[1] - 1, -1)]
    usable = [name for name in names if version_of(name)]
    remedy = "name a newer one: make %s PYTHON=%s" % (sys.argv[-1], (usable or names[-1:])[0])
    return "%s is Python %s; rankproof needs %d.%d or newer; %s" % (
        sys.executable,
        ".".join(map(str, version[:3])),
        required[0],
        required[1],
        remedy,
    )


def version_of(python: str) -> str:
    """Return the version of an interpreter, for example "3.12", or "" where it does not run."""
    command = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        output = subprocess.check_output(command, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return output.decode("ascii").strip()


def pip_settings() -> Dict[str, List[str]]:
    """Return pip's settings from its files and from the environment, which comes first."""
    command = [BASE_PYTHON, "-m", "pip", "config", "list"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return parse_settings(listing)


def parse_settings(listing: str) -> Dict[str, List[str]]:
    """Parse the output of `pip config list`, lines such as global.index-url='https://…'."""
    settings: Dict[str, List[str]] = {}
    for section in ("global", "install", ":env:"):
        for line in listing.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(section + "."):
                settings[name[len(section) + 1 :]] = str(ast.literal_eval(value)).split()
    return settings


def uv_variables(settings: Dict[str, List[str]]) -> Dict[str, str]:
    """Translate pip's settings into variables of uv."""
    variables = {"UV_PYTHON_DOWNLOADS": "never", "UV_INDEX_STRATEGY": "unsafe-best-match"}
    for setting, values in settings.items():
        if setting == "find-links":  # pip passes over a folder that is not there, uv fails
            values = [value for value in values if "://" in value or Path(value).exists()]
        if setting in UV_VARIABLES and values:
            name, separator = UV_VARIABLES[setting]
            variables[name] = separator.join(values) if separator else values[-1]
    return variables


def digest(python: str) -> str:
    """Return a digest of all that an environment depends on; another one means to install again."""
    sources = [ROOT / "pyproject.toml", ROOT / CONSTRAINTS, ROOT / "setup.py"]
    sources += sorted((ROOT / "src").rglob("*.c"))
    content = b"".join(path.read_bytes() for path in sources)
    return hashlib.sha256(content + os.fsencode("%s %s" % (ROOT, python))).hexdigest()


class Environment:
    """A virtual environment of the running Python, in a folder of the checkout."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = ROOT / name
        self.python = self.folder / "bin" / "python"
        self.interrupted = self.folder / INTERRUPTED

    def stamp(self, kind: str) -> Path:
        """The file that holds the digest of what is installed for a kind."""
        return self.folder / ("installed-" + kind)

    def is_current(self, kind: str) -> bool:
        """True if everything of this kind is installed and nothing has changed since."""
        stamp = self.stamp(kind)
        return stamp.exists() and stamp.read_text() == digest(sys.version) and self.is_usable()

    def is_usable(self) -> bool:
        """True if the environment is whole and of this very Python."""
        command = [str(self.python), "-c", "import sys; print(sys.version)"]
        try:
            version = subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True)
        except (OSError, subprocess.CalledProcessError):
            return False
        return version.strip() == sys.version and not self.interrupted.exists()

    def make(self) -> None:
        """Make the environment; replace one that is unusable, but nothing else of that name."""
        if self.is_usable():
            return
        if self.folder.exists():
            is_environment = (self.folder / "pyvenv.cfg").exists() or not any(self.folder.iterdir())
            if not is_environment:
                sys.exit("%s: is not a virtual environment; move it away" % self.folder)
            print("Replacing %s, which is incomplete or of another Python." % self.name)
            shutil.rmtree(self.folder)
        run([BASE_PYTHON, "-m", "venv", "--without-pip", str(self.folder)])

    def install(self, kind: str) -> None:
        """Install rankproof in editable mode, with the extras and groups of a kind."""
        start = time.monotonic()
        extras, groups = KINDS[kind]
        if kind == "portable":
            extras = [name for name in project()["optional-dependencies"] if name not in HEAVY]
        self.make()
        self.interrupted.touch()
        environment = dict(os.environ)
        if kind != "demo":
            environment["RANKPROOF_REQUIRE_NATIVE"] = "1"
        if not str(ROOT).isascii():  # setuptools writes this path with the locale's encoding
            environment["LC_ALL"] = "C.UTF-8"
        uv = self.find_uv()
        if uv:
            environment = {**uv_variables(pip_settings()), **environment}
            self.announce_copies(uv, environment)
            command = [uv, "pip", "install", "--quiet", "--python", str(self.python)]
            command += ["--reinstall-package", "rankproof"]
        else:
            command = [*self.pip(), "install", "--quiet"]
            run([*command, "--upgrade", "pip", "--constraint", CONSTRAINTS])
        command += ["--editable", ".[%s]" % ",".join(extras), "--constraint", CONSTRAINTS]
        command += ["--build-constraint%s" % ("s" if uv else ""), CONSTRAINTS]
        if kind == "fuzz":  # atheris has wheels for some versions of Python only
            command += ["--only-binary", "atheris"]
        for group in groups:
            command += ["--group", group]
        run(command, environment)
        self.shorten_path()
        for name in [kind, *INCLUDED.get(kind, [])]:
            self.stamp(name).write_text(digest(sys.version))
        self.interrupted.unlink()
        installer = "uv" if uv else "pip"
        seconds = time.monotonic() - start
        print("%s is ready: installed with %s in %.0f s." % (self.name, installer, seconds))

    def pip(self) -> List[str]:
        """Return the command of the environment's own pip, which it gets here."""
        command = [str(self.python), "-m", "pip"]
        if subprocess.run([*command, "--version"], capture_output=True, check=False).returncode:
            run([str(self.python), "-m", "ensurepip"], quiet=True)
        return command

    def find_uv(self) -> Optional[str]:
        """Return uv from PATH or from the environment, where pip installs it; None if it cannot."""
        own = self.python.with_name("uv")
        path = shutil.which("uv") or (str(own) if own.exists() else None)
        if path is None:
            command = [*self.pip(), "install", "--quiet", "--upgrade", "pip", "uv"]
            command += ["--constraint", CONSTRAINTS]
            installed = subprocess.run(
                command, cwd=str(ROOT), stderr=subprocess.DEVNULL, check=False
            )
            path = str(own) if installed.returncode == 0 else None
        return path

    def announce_copies(self, uv: str, environment: Dict[str, str]) -> None:
        """Say so where uv cannot link files from its cache."""
        output = subprocess.check_output([uv, "cache", "dir"], env=environment)
        cache = Path(os.fsdecode(output).strip())
        cache.mkdir(parents=True, exist_ok=True)
        if cache.stat().st_dev != self.folder.stat().st_dev and "UV_LINK_MODE" not in environment:
            environment["UV_LINK_MODE"] = "copy"
            print(
                "Files are copied: uv's cache %s is on another file system (UV_CACHE_DIR)." % cache
            )

    def shorten_path(self) -> None:
        """Make the path to the sources relative: Python reads it with the locale's encoding."""
        for path in self.folder.glob("lib/python*/site-packages/__editable__.rankproof-*.pth"):
            relative = os.path.relpath(str(ROOT / "src"), str(path.parent))
            path.write_text(relative + "\n", encoding="ascii")


def run(command: List[str], env: Optional[Dict[str, str]] = None, quiet: bool = False) -> None:
    """Run a command in the checkout; end with its exit status where it fails."""
    output = subprocess.DEVNULL if quiet else None
    status = subprocess.run(command, cwd=str(ROOT), env=env, stdout=output, check=False).returncode
    if status:
        sys.exit("%s failed (exit status %d); see above" % (" ".join(command[:4]), status))


def project() -> Dict[str, Any]:
    """Return the tables of pyproject.toml that name dependencies."""
    import tomllib

    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    table: Dict[str, Any] = content["project"]
    return {**table, "dependency-groups": content["dependency-groups"]}


def lock(uv: str, output: str) -> None:
    """Solve every extra and group for all systems and Pythons; pins that still fit are kept."""
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    command += ["pyproject.toml", "--all-extras", "--constraint", "constraints.in"]
    for group in project()["dependency-groups"]:
        command += ["--group", group]
    command += ["--no-annotate", "--no-emit-index-url", "--custom-compile-command", "make lock"]
    variables = {**uv_variables(pip_settings()), **os.environ}
    variables.pop("UV_FIND_LINKS", None)  # wheels of this machine are not for everybody
    run([*command, "--output-file", output], variables)


def test_versions() -> None:
    """Run the suite without torch on each other Python that is found on PATH or in pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    names = ["python3.%d" % minor for minor in range(11, 30)]
    pythons = [path for path in map(shutil.which, names) if path]
    pythons += map(str, sorted(pyenv.glob("versions/3.*/bin/python")))
    found = {version_of(python): python for python in pythons}
    own = "%d.%d" % sys.version_info[:2]
    versions = [version for version in found if version.partition(".")[2].isdigit()]
    versions = [version for version in versions if int(version[2:]) >= 11 and version != own]
    if not versions:
        sys.exit("no Python 3.11 or newer but %s on PATH or in pyenv; install another" % own)
    for version in sorted(versions):
        folder = ".venv-" + version
        print("Python %s, without torch:" % version, flush=True)
        run([found[version], __file__, "portable", folder])
        run([folder + "/bin/python", "-m", "pytest", "-q", "-n", "auto", "--dist", "loadfile"])


def main() -> None:
    problem = check_python(sys.version_info[:3], (ROOT / "pyproject.toml").read_text("utf-8"))
    if problem:
        sys.exit(problem)
    kind = sys.argv[1]
    if kind == "lock":
        environment = Environment(".venv")
        environment.make()
        lock(environment.find_uv() or sys.exit("make lock needs uv; install it first"), CONSTRAINTS)
    elif kind == "versions":
        test_versions()
    else:
        environment = Environment(sys.argv[2] if len(sys.argv) > 2 else ".venv")
        if not environment.is_current(kind):
            environment.install(kind)


if __name__ == "__main__":
    main()
