"""rankproof.compat beside the tools that it stands for; writes its part of bench/RESULTS.md.

    .venv/bin/python bench/shims.py

1,000 queries × 1,000 documents, dicts of dicts as scripts hold them, to the figures of every query.
Time is of the processor, in turns, so that others on the machine do not count.
"""

from __future__ import annotations

import random
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import ir_measures
import pytrec_eval
import ranx
import results

import rankproof.compat.ir_measures as our_ir_measures
import rankproof.compat.pytrec_eval as our_pytrec_eval
import rankproof.compat.ranx as our_ranx

QUERIES, DOCUMENTS, ROUNDS = 1000, 1000, 5
Table = dict[str, dict[str, Any]]


def tables(queries: int, judged: int = 50, digits: int = 17) -> tuple[Table, Table]:
    """Scores of two digits tie, ten documents to each."""
    draw = random.Random(0)

    def score() -> float:
        return round(draw.random(), digits)

    run = {
        f"q{q}": {f"doc{draw.randrange(10**7)}": score() for _ in range(DOCUMENTS)}
        for q in range(queries)
    }
    step = DOCUMENTS // judged
    qrels = {q: {doc: draw.choice([1, 2]) for doc in list(t)[::step]} for q, t in run.items()}
    return run, qrels


def by_pytrec_eval(module: Any) -> Callable[[Table, Table], Any]:
    names = {"map", "ndcg_cut.10", "recip_rank", "recall.100"}
    return lambda run, qrels: dict(module.RelevanceEvaluator(qrels, names).evaluate(run))


def by_ir_measures(module: Any) -> Callable[[Table, Table], Any]:
    asked = [ir_measures.nDCG @ 10, ir_measures.AP, ir_measures.RR, ir_measures.R @ 100]
    return lambda run, qrels: module.calc_aggregate(asked, qrels, run)


def by_ranx(module: Any) -> Callable[[Table, Table], Any]:
    names = ["ndcg@10", "map", "mrr", "recall@100"]
    return lambda run, qrels: module.evaluate(module.Qrels(qrels), module.Run(run), names)


CASES = {
    "pytrec_eval": (by_pytrec_eval(pytrec_eval), by_pytrec_eval(our_pytrec_eval)),
    "ir_measures": (by_ir_measures(ir_measures), by_ir_measures(our_ir_measures)),
    "ranx": (by_ranx(ranx), by_ranx(our_ranx)),
}
PACKAGES = {"pytrec_eval": "pytrec-eval-terrier", "ir_measures": "ir-measures", "ranx": "ranx"}


# What is evaluated: judged documents of a query, digits of a score.
LOADS = {"all differ": (50, 17), "ten tie": (50, 2), "all differ, half of it judged": (500, 17)}


def main() -> None:
    warnings.simplefilter("ignore")  # numba's, on ranx's hashes
    small = tables(2)
    rows = []
    for load, settings in LOADS.items():
        whole = tables(QUERIES, *settings)
        for name, pair in CASES.items():
            if load == "ten tie" and name == "ranx":  # which has no rule for ties
                continue
            taken: list[list[float]] = [[], []]
            found: list[Any] = [None, None]
            for tool in pair:
                tool(*small)  # compiles, imports
            for number in range(ROUNDS):
                for which in (0, 1) if number % 2 else (1, 0):
                    begun = time.process_time()
                    found[which] = pair[which](*whole)
                    taken[which].append(time.process_time() - begun)
            theirs, ours = map(statistics.median, taken)
            same = "yes" if found[0] == found[1] else "to rounding"
            rows.append(
                f"| {name} {version(PACKAGES[name])} | {load} | {theirs:.3f} | {ours:.3f} | "
                f"{theirs / ours:.1f} × | {same} |"
            )
            print(rows[-1], flush=True)
    results.record(
        "Other tools' interfaces",
        [
            f"{QUERIES:,} queries × {DOCUMENTS:,} documents in dicts of dicts, 50 judged each "
            "unless said, to AP, nDCG@10, RR and R@100 of every query. Seconds of processor time, "
            f"median of {ROUNDS} in turns, after a first call on two queries.",
            "",
            "| stands for | scores | its time | ours | it takes | same figures |",
            "|:--|:--|--:|--:|--:|:--|",
            *rows,
        ],
    )


if __name__ == "__main__":
    main()
