"""`make fuzz`: look for what the tests do not think of, for as long as it is told.

    python fuzz/run.py --seconds 600 [--seed 7] [properties sanitised mutation guided]

properties  the suite's hypothesis tests with other and many more examples
sanitised   those of the readers and of the C code, with it built for ASan and UBSan
mutation    files with a few bytes changed, through the same build (mutate.py)
guided      files led by the code they reach, where atheris installs (guided.py)

Each gets its share of the time. The seed is printed, and the same one makes the same examples
again. Exit code 1: something was found.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from seeds import SEEDS, WORDS

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "fuzz"
# The tests that run through _native.c or _topk.c.
COMPILED = [
    *("kernels", "records_trec", "records_errors", "records_formats", "records_sources"),
    *("scoring_search", "retrieval_fusion", "streaming"),
]
SANITISE = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g"


def environment(more: dict[str, str] | None = None) -> dict[str, str]:
    """Small files are read faster by one thread than by many that wait for each other."""
    return {**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", **(more or {})}


def run(command: list[str], more: dict[str, str] | None = None, limit: float | None = None) -> bool:
    """Whether the command went well, or had not gone wrong when its time was up."""
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment(more), timeout=limit)
    except subprocess.TimeoutExpired:
        print("\nits time is up", flush=True)
        return True
    return done.returncode == 0


def rounds(tests: list[Path], seed: int, seconds: float, more: dict[str, str]) -> bool:
    """Hypothesis tests again and again, each time from the next seed and in another order."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        print(f"--hypothesis-seed={seed}", flush=True)
        order = [str(test) for test in random.Random(seed).sample(tests, len(tests))]
        options = ["-q", "-x", "-p", "no:cacheprovider", "-n", "0", "-m", "hypothesis"]
        examples = ["--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}"]
        if not run([sys.executable, "-m", "pytest", *options, *examples, *order], more, left):
            return False
        seed += 1
    return True


def properties(seed: int, seconds: float) -> bool:
    tests = sorted((ROOT / "tests").glob("test_*.py"))
    return rounds([test for test in tests if "hypothesis" in test.read_text()], seed, seconds, {})


def sanitised_build() -> dict[str, str]:
    """Build the C code with the sanitisers in a folder of its own: what it takes to run there."""
    folder, compiler = BUILD / "sanitised", os.environ.get("CC", "gcc")
    shutil.rmtree(folder, ignore_errors=True)  # of sources that may since have gone
    command = [sys.executable, "setup.py", "-q", "build", "--build-base", str(folder)]
    flags = {"CC": compiler, "CFLAGS": f"{SANITISE} -O1", "RANKPROOF_REQUIRE_NATIVE": "1"}
    subprocess.run(
        [*command, "--build-lib", str(folder / "lib")],
        cwd=ROOT,
        env={**os.environ, **flags},
        check=True,
        capture_output=True,
    )
    libraries = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return {
        "PYTHONPATH": str(folder / "lib"),
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python itself keeps things to the end
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",  # so that reading past a bytes object is seen
    }


def sanitised(seed: int, seconds: float) -> bool:
    tests = [ROOT / "tests" / f"test_{name}.py" for name in COMPILED]
    return rounds(tests, seed, seconds, sanitised_build())


def mutation(seed: int, seconds: float) -> bool:
    command = [sys.executable, "fuzz/mutate.py", "--seed", str(seed), "--seconds", f"{seconds:.0f}"]
    return run(command, sanitised_build())


def guided(seed: int, seconds: float) -> bool:
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed here (pip install --group fuzz): passed over")
        return True
    good = True
    for target, files in SEEDS.items():
        corpus, found = BUILD / "corpus" / target, BUILD / "found"
        for folder in (corpus, found):
            folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(files):
            (corpus / f"seed-{number}").write_bytes(data)
        limit = max(1, round(seconds / len(SEEDS)))
        words = BUILD / "words"
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in WORDS))
        options = [f"-max_total_time={limit}", f"-seed={seed}", f"-artifact_prefix={found}/"]
        options += [f"-dict={words}", "-max_len=2000", "-rss_limit_mb=4096", "-verbosity=0"]
        command = [sys.executable, "fuzz/guided.py", target, str(corpus), *options]
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, errors="replace"
        )
        print(f"  {target}: {len(list(corpus.iterdir())):,} files reach different code", flush=True)
        if done.returncode:
            good = False
            print(f"FOUND by {target}\n{done.stdout}\n{done.stderr}", flush=True)
    return good


def _escaped(word: bytes) -> str:
    """As libFuzzer's dictionaries write it."""
    return "".join(f"\\x{byte:02x}" for byte in word)


PARTS: dict[str, Callable[[int, float], bool]] = {
    "properties": properties,
    "sanitised": sanitised,
    "mutation": mutation,
    "guided": guided,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    given = parser.parse_args()
    chosen = given.parts or list(PARTS)
    print(f"make fuzz SEED={given.seed} SECONDS={given.seconds:.0f}", flush=True)
    wrong = []
    for part in chosen:
        print(f"\n== {part}", flush=True)
        if not PARTS[part](given.seed, given.seconds / len(chosen)):
            wrong.append(part)
    print(f"\nfound by {', '.join(wrong)}" if wrong else "\nnothing found")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
