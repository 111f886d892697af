"""Builds what is published, in dist/, and tries it as somebody would who has nothing else.

    python examples/distribute.py

The wheel gets a manylinux tag through auditwheel where that is installed. The wheel, the wheel with
the oldest libraries that it says it takes, and the sdist without a compiler are each installed into
an environment of their own and evaluate the demo's runs: all must say the same, the last without
compiled code.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
TRIED = """
import json, pathlib, subprocess, sys
import rankproof as rp
data = pathlib.Path(rp.__file__).parent / "data"
runs = [str(data / "demo-saturated.trec"), str(data / "demo-plain.trec")]
words = [sys.executable, "-m", "rankproof"]
asked = [*words, "eval", str(data / "demo-qrels.txt"), *runs, "-m", "nDCG@5", "--format", "json"]
said = json.loads(subprocess.check_output(asked))["runs"]
checks = json.loads(subprocess.check_output([*words, "doctor", "--format", "json"]))["checks"]
compiled = [check["well"] for check in checks if check["about"] == "compiled"]
print(json.dumps({"runs": [run["measures"] for run in said], "compiled": compiled}))
"""


def build() -> tuple[Path, Path]:
    """dist/*.whl and dist/*.tar.gz, alone there."""
    shutil.rmtree(DIST, ignore_errors=True)
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # an older wheel's files would be packed too
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT)], check=True)
    wheel, sdist = next(DIST.glob("*.whl")), next(DIST.glob("*.tar.gz"))
    if sys.platform == "linux" and shutil.which("patchelf"):
        audit = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(DIST), str(wheel)]
        if subprocess.run(audit, check=False).returncode == 0:
            repaired = [path for path in DIST.glob("*.whl") if path != wheel]
            if repaired:
                wheel.unlink()
                wheel = repaired[0]
    return wheel, sdist


def complete(sdist: Path) -> list[str]:
    """Tracked files that the sdist lacks."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    return sorted(name for name in listed if name and name[0] != "." and name not in held)


def oldest() -> list[str]:
    """The libraries that the package needs, each at the first version that it says it takes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [needed.replace(">=", "==") for needed in project["dependencies"]]


def tried(package: Path, *needs: str, compiler: bool = True) -> dict[str, Any]:
    """What an environment says that holds the package and what it needs, and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if not compiler:
            clean |= {"CC": "no-such-compiler", "CXX": "no-such-compiler"}
        install = [str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir"]
        subprocess.run([*install, str(package), *needs], check=True, env=clean, cwd=folder)
        said = subprocess.check_output([python, "-c", TRIED], env=clean, cwd=folder, text=True)
    found: dict[str, Any] = json.loads(said)
    return found


def main() -> None:
    wheel, sdist = build()
    lacks = complete(sdist)
    if lacks:
        sys.exit(f"{sdist.name} lacks {', '.join(lacks[:10])}")
    compiled, plain = tried(wheel), tried(sdist, compiler=False)
    if not all(compiled["compiled"]) or any(plain["compiled"]):
        sys.exit(f"compiled code: wheel {compiled['compiled']}, sdist {plain['compiled']}")
    if compiled["runs"] != plain["runs"]:
        sys.exit("the wheel and the sdist without a compiler do not say the same")
    if tried(wheel, *oldest()) != compiled:
        sys.exit("the wheel does not say the same with the oldest libraries that it takes")
    for path in (wheel, sdist):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
