"""Speed and memory beside the peers, from files to figures; writes bench/RESULTS.md.

    make bench                          # everything, some ten minutes on two cores
    .venv/bin/python bench/peers.py --rounds 1 --skip tie-aware-retrieval-metrics

Ratios are what counts, since machines are noisy: all tools take turns in every round, and each
time is the median over rounds. Every tool runs in a process of its own; `total` counts from its
start to its end and `memory` is its peak.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import results

HERE = Path(__file__).parent
CLI = "rankproof (command line)"
ONCE = {"tie-aware-retrieval-metrics", "mteb", "ir_measures"}  # too slow to repeat
QUICK = {CLI, "rankproof", "pytrec_eval"}  # each timed right after a run of its own
MEASURES = ["-m", "nDCG@10", "-m", "RR@10", "-m", "AP@100", "-m", "R@1000"]
PACKAGES = {"pytrec_eval": "pytrec-eval-terrier", "ir_measures": "ir-measures"}


@dataclass(frozen=True)
class Outcome:
    total: float
    memory: float  # MB
    inside: dict[str, Any]


def warm(*files: Path) -> None:
    """Read files once, so that every tool finds them in memory, whoever ran before."""
    for file in files:
        with file.open("rb") as stream:
            while stream.read(1 << 24):
                pass


def run(command: list[str]) -> Outcome:
    """Run a process to its end; its wall-clock time, peak memory and what it printed."""
    warm(*(Path(word) for word in command if word.endswith((".trec", ".qrels"))))
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    total = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    inside = json.loads(printed) if printed.startswith(b"{") else {}
    return Outcome(total, usage.ru_maxrss / 1e3, inside)


def make(queries: int, documents: int) -> Path:
    """The workload, made in a process of its own: a child's peak memory counts what its parent
    held when it was born."""
    call = f"import workload; print(workload.make({queries}, {documents}))"
    return Path(subprocess.check_output([sys.executable, "-c", call], cwd=HERE, text=True).strip())


def command(tool: str, qrels: Path, file: Path, form: str = "table") -> list[str]:
    if tool == CLI:
        start = [sys.executable, "-m", "rankproof", "eval", str(qrels), str(file)]
        return [*start, *MEASURES, "--format", form]
    # Two evaluations inside the process are for `again`; `total` then counts one too many.
    return [sys.executable, str(HERE / "contenders.py"), tool, str(qrels), str(file)]


def total_of(tool: str, outcome: Outcome) -> float:
    return outcome.total - (0.0 if tool == CLI else outcome.inside["again"])


def median(outcomes: list[float]) -> float:
    return statistics.median(outcomes)


def race(tools: list[str], qrels: Path, file: Path, rounds: int) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {tool: [] for tool in tools}
    for number in range(rounds):
        for tool in tools[number:] + tools[:number]:  # whoever follows a greedy one pays for it
            if tool in ONCE and number:
                continue
            print(f"  round {number + 1}: {tool}", file=sys.stderr, flush=True)
            asked = command(tool, qrels, file)
            if tool in QUICK:
                run(asked)  # a system that takes freed memory back makes whoever comes next pay
            found[tool].append(run(asked))
    return found


def table(title: str, found: dict[str, list[Outcome]]) -> list[str]:
    own = median([o.total for o in found[CLI]])
    own_again = median([o.inside["again"] for o in found["rankproof"]])
    lines = [
        f"### {title}",
        "",
        "| tool | files to figures, s | × rankproof | memory, MB | loaded, first, s | again, s "
        "| × rankproof |",
        "|:--|--:|--:|--:|--:|--:|--:|",
    ]
    for tool, outcomes in found.items():
        total = median([total_of(tool, o) for o in outcomes])
        memory = median([o.memory for o in outcomes])
        if tool == CLI:
            first = again = ratio = "–"
        else:
            first = f"{median([o.inside['evaluate'] for o in outcomes]):.3f}"
            seconds = median([o.inside["again"] for o in outcomes])
            again, ratio = f"{seconds:.3f}", f"{seconds / own_again:.1f}"
        lines.append(
            f"| {tool} | {total:.2f} | {total / own:.1f} | {memory:.0f} | {first} | {again} "
            f"| {ratio} |"
        )
    return [*lines, ""]


def single_query(documents: int) -> float:
    """Seconds for one query whose documents all tie, once imported."""
    code = f"""
import json, time, numpy as np, rankproof as rp
scores = np.full((1, {documents}), 0.5)
grades = np.zeros((1, {documents}), int); grades[0, ::1000] = 1
rp.evaluate_arrays(scores[:, :10], grades[:, :10], ["nDCG@10"])
begin = time.perf_counter()
rp.evaluate_arrays(scores, grades, ["nDCG@10", "RR@10", "AP@100", "R@1000", "nDCG", "AP", "RR"])
print(json.dumps(time.perf_counter() - begin))
"""
    return float(json.loads(subprocess.check_output([sys.executable, "-c", code])))


def start_up(arguments: list[str], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - begin)
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=6980)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--skip", action="append", default=[], metavar="TOOL")
    options = parser.parse_args()
    compileall.compile_dir(HERE.parent / "src", quiet=2)  # as an installation is

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # pip compiles what it installs
    print("making the files", file=sys.stderr)
    place = make(options.queries, options.documents)
    peers = ["pytrec_eval", "ir_measures", "ranx", "mteb", "tie-aware-retrieval-metrics"]
    peers = [tool for tool in peers if tool not in options.skip]
    versions = ", ".join(
        f"{tool} {importlib.metadata.version(PACKAGES.get(tool, tool))}"
        for tool in ["rankproof", *peers]
    )
    report = [
        f"{versions}. Made by `make bench`.",
        "",
        f"A run of {options.queries:,} queries × {options.documents:,} documents as a TREC file, "
        "scores rounded to bfloat16; nDCG@10, RR@10, AP@100 and R@1000. rankproof computes five "
        "figures of each, the others one (tie-aware-retrieval-metrics four). Medians of "
        f"{options.rounds} interleaved rounds ({', '.join(sorted(ONCE))}: one), rankproof and "
        "pytrec_eval each right after an untimed run of its own, so that none pays for memory that "
        "another gave back to the system. The command line prints its table; with `--format json` "
        "it digests its inputs, too.",
        "",
    ]

    print("qrels A", file=sys.stderr)
    a = race([CLI, "rankproof", *peers], place / "a.qrels", place / "run.trec", options.rounds)
    report += table("Qrels A: 1.1 relevant documents per query", a)
    print("qrels B", file=sys.stderr)
    b = race(
        [CLI, "rankproof", *(p for p in peers if p in ("pytrec_eval", "ranx"))],
        place / "b.qrels",
        place / "run.trec",
        options.rounds,
    )
    report += table("Qrels B: 100 judged documents per query, grades 0–3", b)

    print("scattered lines", file=sys.stderr)
    lines = ["### Queries scattered over the file", "", "| | in order, s | scattered, s | ratio |"]
    lines.append("|:--|--:|--:|--:|")
    for name in ("a", "b"):
        times: dict[str, list[float]] = {"run": [], "scattered": []}
        figures = {}
        for _ in range(options.rounds):
            for file, taken in times.items():
                paths = place / f"{name}.qrels", place / f"{file}.trec"
                run(command(CLI, *paths))
                taken.append(run(command(CLI, *paths)).total)
        for file in times:
            paths = place / f"{name}.qrels", place / f"{file}.trec"
            measures = run(command(CLI, *paths, "json")).inside["runs"][0]["measures"]
            figures[file] = [
                (m, k, v)
                for m, f in measures.items()
                for k, v in f.items()
                if k not in ("oblivious", "bias")
            ]
        if figures["run"] != figures["scattered"]:
            raise SystemExit("the order of the lines changed a figure")
        one, other = median(times["run"]), median(times["scattered"])
        lines.append(f"| qrels {name.upper()} | {one:.2f} | {other:.2f} | {other / one:.2f} |")
    report += [*lines, "", "Every figure but oblivious and bias is the same to the last bit.", ""]

    print("ten times the rows", file=sys.stderr)
    small = make(options.queries // 10, options.documents)
    pair = []
    for folder in (small, place):
        outcomes = [
            run(command(CLI, folder / "b.qrels", folder / "run.trec"))
            for _ in range(options.rounds)
        ]
        pair.append((median([o.total for o in outcomes]), median([o.memory for o in outcomes])))
    (t1, m1), (t10, m10) = pair
    few = make(10, 100)
    short = ["-m", "rankproof", "eval", str(few / "b.qrels"), str(few / "run.trec")]
    report += [
        "### Growth",
        "",
        f"Ten times the rows (qrels B) take {t10 / t1:.1f} times the time ({t1:.2f} s to "
        f"{t10:.2f} s) and {m10 / m1:.1f} times the memory ({m1:.0f} MB to {m10:.0f} MB).",
        "",
        f"One query with 1,000,000 tied documents, 7 measures: {single_query(1_000_000):.2f} s.",
        "",
        "### Start",
        "",
        f"`import rankproof`: {start_up(['-c', 'import rankproof'], 5):.3f} s, of which Python "
        f"itself {start_up(['-c', 'pass'], 5):.3f} s. "
        f"`import rankproof; rankproof.evaluate` (loads numpy and polars): "
        f"{start_up(['-c', 'import rankproof; rankproof.evaluate'], 5):.3f} s. "
        f"`rankproof --help`: {start_up(['-m', 'rankproof', '--help'], 5):.3f} s; "
        f"`rankproof eval` of 1,000 lines: {start_up(short, 5):.3f} s.",
        "",
    ]
    results.record("Evaluation beside its peers", report)


if __name__ == "__main__":
    main()
