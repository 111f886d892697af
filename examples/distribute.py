"""Build what is published, in dist/, and try it as a user would who has nothing else.

    python examples/distribute.py

auditwheel, where installed, gives the wheel its manylinux tag. The wheel with the newest libraries,
the wheel with the oldest that it accepts, and the sdist without a compiler are each installed into
an environment of their own. All must print the same evaluation of the demo's runs, the last without
compiled code; the first two must also run the demo.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
from environment import Environment, pip_settings, uv_variables  # noqa: E402

DIST = ROOT / "dist"
EVALUATION = """
import json, pathlib, subprocess, sys
import rankproof as rp
data = pathlib.Path(rp.__file__).parent / "data"
runs = [str(data / "demo-saturated.trec"), str(data / "demo-plain.trec")]
command = [sys.executable, "-m", "rankproof"]
options = ["-m", "nDCG@5", "--format", "json"]
evaluation = [*command, "eval", str(data / "demo-qrels.txt"), *runs, *options]
evaluations = json.loads(subprocess.check_output(evaluation))["runs"]
checks = json.loads(subprocess.check_output([*command, "doctor", "--format", "json"]))["checks"]
compiled = [check["well"] for check in checks if check["about"] == "compiled"]
print(json.dumps({"runs": [run["measures"] for run in evaluations], "compiled": compiled}))
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


def missing_files(sdist: Path) -> list[str]:
    """Return the tracked files that the sdist lacks."""
    tracked = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    return sorted(name for name in tracked if name and name[0] != "." and name not in packed)


def try_package(package: str, resolution: str = "highest", compiler: bool = True) -> dict[str, Any]:
    """Install a package into an empty environment; return what it says of the demo's runs there."""
    uv = Environment(".venv").find_uv() or sys.exit("make dist needs uv; install it first")
    with tempfile.TemporaryDirectory() as folder:
        variables = {**uv_variables(pip_settings()), **os.environ}
        variables.pop("PYTHONPATH", None)
        if not compiler:
            variables |= {"CC": "no-such-compiler", "CXX": "no-such-compiler"}

        def run(*command: str) -> str:
            return subprocess.check_output(command, env=variables, cwd=folder, text=True)

        python = f"{folder}/environment/bin/python"
        run(uv, "venv", "--quiet", "--python", sys.executable, f"{folder}/environment")
        run(
            uv, "pip", "install", "--quiet", "--python", python, "--resolution", resolution, package
        )
        if package.endswith("[demo]"):
            run(python, "-m", "rankproof", "demo")
        evaluation: dict[str, Any] = json.loads(run(python, "-c", EVALUATION))
    return evaluation


def main() -> None:
    wheel, sdist = build()
    missing = missing_files(sdist)
    if missing:
        sys.exit(f"{sdist.name} lacks {', '.join(missing[:10])}")
    newest, oldest = (try_package(f"{wheel}[demo]", name) for name in ("highest", "lowest-direct"))
    plain = try_package(str(sdist), compiler=False)
    if not all(newest["compiled"]) or any(plain["compiled"]):
        sys.exit(f"compiled code: wheel {newest['compiled']}, sdist {plain['compiled']}")
    if newest["runs"] != plain["runs"]:
        sys.exit("the wheel and the sdist without a compiler do not say the same")
    if newest != oldest:
        sys.exit("the wheel does not say the same with the oldest libraries that it accepts")
    for path in (wheel, sdist):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
