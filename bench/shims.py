"""rankproof.compat beside the tools that it stands for; writes its part of bench/RESULTS.md.

    .venv/bin/python bench/shims.py

A million rows as scripts hold them, in few long lists and in many short ones, to the figures of
every query. Time is of the processor, in turns, so that others on the machine do not count.
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
import pandas as pd
import pytrec_eval
import ranx
import results

import rankproof.compat.ir_measures as our_ir_measures
import rankproof.compat.pytrec_eval as our_pytrec_eval
import rankproof.compat.ranx as our_ranx

ROUNDS = 2
Table = dict[str, dict[str, Any]]
Tool = Callable[[Any, Any], Any]


def tables(queries: int, documents: int, judged: float, digits: int = 17) -> tuple[Table, Table]:
    """Scores of two digits tie; judgements have ids of their own, as when read from a file."""
    draw = random.Random(0)
    run = {
        f"q{q}": {
            f"doc{draw.randrange(10**7)}": round(draw.random(), digits) for _ in range(documents)
        }
        for q in range(queries)
    }
    qrels = {
        q: {"".join(doc): draw.choice([0, 1, 2]) for doc in listed if draw.random() < judged}
        for q, listed in run.items()
    }
    return run, {q: listed or {"none": 1} for q, listed in qrels.items()}


def frames(run: Table, qrels: Table) -> tuple[Any, Any]:
    def frame(table: Table, value: str) -> Any:
        rows = [(q, doc, x) for q, listed in table.items() for doc, x in listed.items()]
        return pd.DataFrame(rows, columns=["query_id", "doc_id", value])

    return frame(run, "score"), frame(qrels, "relevance")


def tuples(run: Table, qrels: Table) -> tuple[Any, Any]:
    return (
        [ir_measures.ScoredDoc(q, d, x) for q, listed in run.items() for d, x in listed.items()],
        [ir_measures.Qrel(q, d, x) for q, listed in qrels.items() for d, x in listed.items()],
    )


FEW = ["map", "ndcg_cut.10", "recip_rank", "recall.100"]
ALL = sorted(pytrec_eval.supported_measures - {"relstring", "runid"})


def by_pytrec_eval(module: Any, names: list[str]) -> Tool:
    return lambda run, qrels: dict(module.RelevanceEvaluator(qrels, set(names)).evaluate(run))


def by_ir_measures(module: Any) -> Tool:
    asked = [ir_measures.nDCG @ 10, ir_measures.AP, ir_measures.RR, ir_measures.R @ 100]
    return lambda run, qrels: module.calc_aggregate(asked, qrels, run)


def by_ranx(module: Any) -> Tool:
    names = ["ndcg@10", "map", "mrr", "recall@100"]
    return lambda run, qrels: module.evaluate(module.Qrels(qrels), module.Run(run), names)


Cases = dict[str, tuple[Tool, Tool]]
PYTREC: Cases = {
    "one measure": tuple(by_pytrec_eval(m, ["map"]) for m in (pytrec_eval, our_pytrec_eval)),  # type: ignore[dict-item]
    "four": tuple(by_pytrec_eval(m, FEW) for m in (pytrec_eval, our_pytrec_eval)),  # type: ignore[dict-item]
    "all": tuple(by_pytrec_eval(m, ALL) for m in (pytrec_eval, our_pytrec_eval)),  # type: ignore[dict-item]
}
IRM = by_ir_measures(ir_measures), by_ir_measures(our_ir_measures)
RANX = by_ranx(ranx), by_ranx(our_ranx)
SHAPES = ((10, 100_000), (1000, 1000), (50_000, 20))
SHARES = (0.01, 0.1, 0.5, 1.0)


def ratio(pair: tuple[Tool, Tool], run: Any, qrels: Any) -> tuple[float, float, bool]:
    """Seconds of theirs and ours, and whether the figures are the same."""
    taken: list[list[float]] = [[], []]
    found: list[Any] = [None, None]
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            begun = time.process_time()
            found[which] = pair[which](run, qrels)
            taken[which].append(time.process_time() - begun)
    theirs, ours = map(statistics.median, taken)
    return theirs, ours, str(found[0]) == str(found[1]) or found[0] == found[1]


def main() -> None:
    warnings.simplefilter("ignore")  # numba's, on ranx's hashes
    small = tables(2, 100, 0.5)
    for tool in (*RANX, *IRM, *PYTREC["all"]):
        tool(*small)  # compiles, imports
    head = ["10 × 100,000", "1,000 × 1,000", "50,000 × 20"]
    rows: dict[str, list[str]] = {}
    for queries, documents in SHAPES:
        for share in SHARES:
            run, qrels = tables(queries, documents, share)
            cases: dict[str, tuple[tuple[Tool, Tool], Any]] = {
                f"pytrec_eval, {name}": (pair, (run, qrels)) for name, pair in PYTREC.items()
            }
            cases["ir_measures, dicts"] = IRM, (run, qrels)
            if share == 0.1:
                cases["ir_measures, frames"] = IRM, frames(run, qrels)
                cases["ir_measures, tuples"] = IRM, tuples(run, qrels)
                tied = tables(queries, documents, share, digits=2)
                cases["pytrec_eval, four, ten tie"] = PYTREC["four"], tied
            if queries == 1000:  # compiled for many queries
                cases["ranx"] = RANX, (run, qrels)
            for name, (pair, given) in cases.items():
                theirs, ours, same = ratio(pair, *given)
                label = f"{name} | {share:.0%}"
                cell = f"{theirs / ours:.1f} × ({theirs:.2f} s)" + ("" if same else ", rounded")
                rows.setdefault(label, [""] * 3)[SHAPES.index((queries, documents))] = cell
                print(label, queries, cell, flush=True)
    packages = ("pytrec-eval-terrier", "ir-measures", "ranx")
    results.record(
        "Other tools' interfaces",
        [
            "How many times as long the other tool takes, and its seconds of processor time, "
            f"median of {ROUNDS} in turns; queries × documents, a million rows in all. "
            + ", ".join(f"{name} {version(name)}" for name in packages)
            + ". Four measures: AP, nDCG@10, RR, R@100; all: what pytrec_eval offers. Figures are "
            "the same to the last bit unless a cell says that they are to rounding.",
            "",
            f"| stands for, measures | judged | {' | '.join(head)} |",
            "|:--|--:|--:|--:|--:|",
            *(f"| {label} | {' | '.join(cells)} |" for label, cells in sorted(rows.items())),
        ],
    )


if __name__ == "__main__":
    main()
