"""Runs of 7, 70 and 350 million rows: one machine in parts, and Ray with one and two workers.

    .venv/bin/python bench/scale.py [--rows 7,70,350] [--scattered] [--memory 1GB] [--engines …]

Every measurement is a process of its own. Times are of the evaluation, after imports and Ray's
start: of the clock, and of all processors for the whole process tree, which other work on the
machine lengthens little. Memory is the largest of the process tree and of one worker, shared pages
counted once (PSS), sampled twice a second, or less often where it would take over 2% of a core.
Figures of all engines must be equal to the last bit. Writes its part of bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import psutil
import results
from workload import DATA, PASSAGES

MILLION = 1_000_000
DEPTH = 1000  # documents of a query
FILES = 10  # million rows in a file
MEASURES = ["nDCG@10", "RR@10", "AP@100", "R@100"]

WORK = """
import json, sys, time
from contextlib import nullcontext
import psutil
import rankproof as rp
from rankproof import cluster
from rankproof.evaluation.streaming import evaluate_stream

def started(_):  # what a worker needs before its first task
    from rankproof import cluster
    from rankproof.evaluation.streaming import evaluate_stream
    time.sleep(1)

def spent():  # by each process
    me = psutil.Process()
    return {one.pid: sum(one.cpu_times()[:2]) for one in [me, *me.children(recursive=True)]}

engine, run, qrels, memory, measures = sys.argv[1:]
names = measures.split()
if __name__ == "__main__":
    workers = 0 if engine == "stream" else int(engine.split("-")[1])
    session = cluster.connected(num_cpus=workers, object_store_memory=2 * 10**9)
    with session if workers else nullcontext() as ray:
        if workers:
            ray.get([ray.remote(started).remote(at) for at in range(workers)])
        begun, before = time.perf_counter(), spent()
        if workers:
            found = cluster.evaluate(qrels, run, names)
        else:
            found = rp.evaluate(qrels, run, names, memory=memory)
        seconds = time.perf_counter() - begun
        each = [after - before.get(pid, 0) for pid, after in spent().items()]
    figures = found.to_dict()["measures"]
    print(json.dumps([seconds, sum(each), max(each), figures], sort_keys=True))
"""


def make(millions: int, scattered: bool) -> Path:
    """A folder of Parquet files with whole numbers as ids, and judgements beside it."""
    place = DATA / f"{millions}m{'-scattered' if scattered else ''}"
    if (place / "done").exists():
        return place
    (place / "run").mkdir(parents=True, exist_ok=True)
    queries = millions * MILLION // DEPTH
    for part, first in enumerate(range(0, millions, FILES)):
        rows = min(FILES, millions - first) * MILLION
        generator = np.random.default_rng(part)
        at = first * MILLION + np.arange(rows, dtype=np.int64)
        # Scattered: a query's rows are spread evenly over all files.
        query = at % queries if scattered else at // DEPTH
        within = at // queries if scattered else at % DEPTH
        score = (1.0 - within / DEPTH + generator.normal(0, 0.02, rows)).astype(np.float32)
        score = (score.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)  # ties of bfloat16
        doc = (query * 7919 + within * 4001) % PASSAGES  # all different: 4001 is no divisor
        frame = pl.DataFrame(
            {"query": query.astype(np.int32), "doc": doc.astype(np.int32), "score": score}
        )
        frame.write_parquet(place / "run" / f"part-{part:04}.parquet", row_group_size=MILLION)
    generator = np.random.default_rng(0)
    with (place / "qrels.txt").open("w") as file:
        for number in range(queries):
            for rank in np.unique(generator.integers(0, DEPTH, 2)):
                file.write(
                    f"{number} 0 {(number * 7919 + rank * 4001) % PASSAGES} {1 + rank % 3}\n"
                )
    (place / "done").touch()
    return place


@dataclass(frozen=True, slots=True)
class Measured:
    seconds: float
    processor: float  # seconds of all processors
    busiest: float  # of the process that took most of them
    tree: float  # the most gigabytes of all processes
    worker: float  # of one that Ray started
    figures: str


def measure(engine: str, place: Path, memory: str) -> Measured:
    arguments = [engine, str(place / "run"), str(place / "qrels.txt"), memory, " ".join(MEASURES)]
    with subprocess.Popen(
        [sys.executable, "-c", WORK, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        most = [0, 0]
        while process.poll() is None:
            begun = time.process_time()
            most = [max(pair) for pair in zip(most, tree_memory(process.pid), strict=True)]
            time.sleep(max(0.5, 50 * (time.process_time() - begun)))
        assert process.stdout is not None
        # Ray writes to standard output too, when it kills a task for memory and repeats it.
        said = process.stdout.read().strip().splitlines()[-1:]
    if process.returncode:
        raise SystemExit(f"{engine} on {place.name} ended with {process.returncode}")
    seconds, processor, busiest, figures = json.loads(said[0])
    tree, worker = (size / 1e9 for size in most)
    return Measured(seconds, processor, busiest, tree, worker, json.dumps(figures))


def tree_memory(pid: int) -> tuple[int, int]:
    """Bytes of a process and all below it, what they share counted once; of the largest worker."""
    total, largest = 0, 0
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                size = process.memory_full_info().pss
                total += size
                if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::"):
                    largest = max(largest, size)
    return total, largest


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="7,70,350", help="in millions")
    parser.add_argument("--engines", default="stream,ray-1,ray-2")
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--scattered", action="store_true")
    chosen = parser.parse_args()
    lines = [
        f"Queries of {DEPTH:,} documents, "
        f"{'their rows scattered over all files' if chosen.scattered else 'their rows together'}; "
        f"Parquet with whole numbers as ids; {', '.join(MEASURES)}. Streaming is bounded to "
        f"{chosen.memory}; Ray has a store of 2 GB. Times are of the evaluation, after imports and "
        "Ray's start: s of the clock, CPU s of all processes and of the busiest. "
        "Load is the machine's average before the run: above 0 other work shared the "
        "cores, and the clock says little.",
        "",
        "| rows | engine | s | CPU s | × streaming's | busiest, CPU s | one worker, GB | all, GB "
        "| load before |",
        "|--:|:--|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for millions in map(int, chosen.rows.split(",")):
        place = make(millions, chosen.scattered)
        seen: dict[str, Measured] = {}
        figures = set()
        for engine in chosen.engines.split(","):
            load = os.getloadavg()[0]
            found = measure(engine, place, chosen.memory)
            seen[engine] = found
            figures.add(found.figures)
            beside = seen.get("stream", found)
            worker = f"{found.worker:.2f}" if found.worker else "–"
            lines.append(
                f"| {millions} M | {engine} | {found.seconds:.1f} | {found.processor:.1f} "
                f"| {found.processor / beside.processor:.2f} | {found.busiest:.1f} "
                f"| {worker} | {found.tree:.2f} | {load:.1f} |"
            )
            print(lines[-1], flush=True)
        if len(figures) > 1:
            raise SystemExit(f"the engines disagree on {millions} M rows: {json.dumps([*figures])}")
        lines_done = [*lines, "", "All engines gave the same figures to the last bit."]
        title = f"Scale: {'scattered' if chosen.scattered else 'grouped'} rows"
        results.record(title, lines_done)


if __name__ == "__main__":
    main()
