"""What bounds over holes cost beside the evaluation, and how few judgements settle a comparison.

    .venv/bin/python bench/holes.py [--queries 1000] [--documents 1000] [--repeat 3]

Both sides start from tables that were read before, and rank anew each time. The comparisons to
settle are seeded pools of graded documents, judged to the depth of run A, with two more runs; and
SciFact's test claims where RANKPROOF_DATA names a folder that holds it. Writes its part of
bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import results
from workload import make

import rankproof as rp
from rankproof.arrays import Float
from rankproof.evaluation import Policy, evaluate_tables, parse_all
from rankproof.tables import Qrels, Run
from rankproof.unjudged import holes_of
from rankproof.unjudged.bounds import View
from rankproof.unjudged.judging import Asked, effects, settle

MEASURES = ["nDCG@10", "RR@10", "P@10", "R@100", "AP@100"]


def fresh(run: Run) -> Run:
    """The run without the rankings it keeps."""
    return replace(run, cache={})


def best_of(times: int, work: Callable[[], object]) -> float:
    """Least seconds of several."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def cost(queries: int, documents: int, repeat: int) -> list[str]:
    """Seconds of an evaluation, and of the bounds of one run and of two."""
    place = make(queries, documents)
    run = rp.read_run(place / "run.trec", name="a")
    other = replace(fresh(run), name="b", score=run.score[::-1].copy())
    lines = [
        f"{queries * documents:,} rows, ids and scores in memory, ranked anew; seconds.",
        "",
        "| qrels | measure | evaluate | holes of one run | of two, with their difference |",
        "|:--|:--|--:|--:|--:|",
    ]
    policy = Policy()
    for name in ("a", "b"):
        for measure in [*MEASURES, " ".join(MEASURES)]:
            parsed = parse_all(measure.split())
            qrels = rp.read_qrels(place / f"{name}.qrels")

            def bounds(runs: list[Run]) -> object:
                return holes_of([fresh(r) for r in runs], qrels, parsed, policy)  # noqa: B023

            spent = [
                best_of(repeat, lambda: evaluate_tables(fresh(run), qrels, parsed, policy)),  # noqa: B023
                best_of(repeat, lambda: bounds([run])),
                best_of(repeat, lambda: bounds([run, other])),
            ]
            cells = " | ".join(f"{s:.3f}" for s in spent)
            lines.append(f"| {name} | {'all' if ' ' in measure else measure} | {cells} |")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    print("\n".join(cost(chosen.queries, chosen.documents, chosen.repeat)))
