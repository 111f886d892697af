"""One tool, one pair of files, one fresh process: prints what it took as JSON.

    python bench/contenders.py TOOL QRELS RUN

Every tool computes nDCG@10, RR@10, AP@100 and R@1000 from the files. `load` is reading them,
`evaluate` the first evaluation of what was loaded, `again` a second one.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

MEASURES = ["nDCG@10", "RR@10", "AP@100", "R@1000"]
Tool = Callable[[str, str], tuple[Callable[[], Any], Callable[[Any], dict[str, float]]]]


def rankproof(qrels_path: str, run_path: str) -> Any:
    import rankproof as rp

    qrels, run = rp.read_qrels(qrels_path), rp.read_run(run_path)

    def figures(result: Any) -> dict[str, float]:
        return {m: result[m].expected for m in MEASURES} | {
            f"{m} oblivious": result[m].oblivious for m in MEASURES
        }

    return lambda: rp.evaluate(qrels, run, MEASURES), figures


def pytrec_eval(qrels_path: str, run_path: str) -> Any:
    import pytrec_eval

    with open(qrels_path) as file:  # noqa: PTH123
        qrels = pytrec_eval.parse_qrel(file)
    with open(run_path) as file:  # noqa: PTH123
        run = pytrec_eval.parse_run(file)
    names = {"ndcg_cut.10", "recip_rank", "map_cut.100", "recall.1000"}

    def figures(result: Any) -> dict[str, float]:
        keys = {"nDCG@10": "ndcg_cut_10", "AP@100": "map_cut_100", "R@1000": "recall_1000"}
        count = len(result)
        return {m: sum(r[k] for r in result.values()) / count for m, k in keys.items()}

    return lambda: pytrec_eval.RelevanceEvaluator(qrels, names).evaluate(run), figures


def ir_measures(qrels_path: str, run_path: str) -> Any:
    import ir_measures as ir

    measures = [ir.nDCG @ 10, ir.RR @ 10, ir.AP @ 100, ir.R @ 1000]
    qrels = list(ir.read_trec_qrels(qrels_path))
    run = list(ir.read_trec_run(run_path))
    return (
        lambda: ir.calc_aggregate(measures, qrels, run),
        lambda result: {str(m): float(v) for m, v in result.items()},
    )


def ranx(qrels_path: str, run_path: str) -> Any:
    import ranx as r

    qrels = r.Qrels.from_file(qrels_path, kind="trec")
    run = r.Run.from_file(run_path, kind="trec")
    names = ["ndcg@10", "mrr@10", "map@100", "recall@1000"]

    def figures(result: Any) -> dict[str, float]:
        return {m: float(result[n]) for m, n in zip(MEASURES, names, strict=True)}

    return lambda: r.evaluate(qrels, run, names, make_comparable=True), figures


def tie_aware(qrels_path: str, run_path: str) -> Any:
    import trm

    grades: dict[str, dict[str, int]] = defaultdict(dict)
    with open(qrels_path) as file:  # noqa: PTH123
        for line in file:
            query, _, doc, grade = line.split()
            grades[query][doc] = int(grade)
    scores: dict[str, list[float]] = defaultdict(list)
    relevant: dict[str, list[bool]] = defaultdict(list)
    with open(run_path) as file:  # noqa: PTH123
        for line in file:
            query, _, doc, _, score, _ = line.split()
            scores[query].append(float(score))
            relevant[query].append(grades[query].get(doc, 0) > 0)
    s, r = [scores[q] for q in scores], [relevant[q] for q in scores]
    wanted = (("ndcg", 10), ("mrr", 10), ("map", 100), ("recall", 1000))

    def evaluate() -> Any:
        return [trm.evaluate(s, r, [name], [k]).metrics[name][k] for name, k in wanted]

    return evaluate, lambda result: {m: x.expected for m, x in zip(MEASURES, result, strict=True)}


def mteb(qrels_path: str, run_path: str) -> Any:
    import pytrec_eval
    from mteb._evaluators.retrieval_metrics import calculate_retrieval_scores

    with open(qrels_path) as file:  # noqa: PTH123
        qrels = pytrec_eval.parse_qrel(file)
    with open(run_path) as file:  # noqa: PTH123
        run = pytrec_eval.parse_run(file)
    return (
        lambda: calculate_retrieval_scores(run, qrels, [10, 100, 1000]),
        lambda result: {"nDCG@10": result.ndcg["NDCG@10"]},
    )


TOOLS: dict[str, Tool] = {
    "rankproof": rankproof,
    "pytrec_eval": pytrec_eval,
    "ir_measures": ir_measures,
    "ranx": ranx,
    "tie-aware-retrieval-metrics": tie_aware,
    "mteb": mteb,
}


def main() -> None:
    tool, qrels, run = sys.argv[1:]
    begin = time.perf_counter()
    evaluate, figures = TOOLS[tool](qrels, run)
    loaded = time.perf_counter()
    result = evaluate()
    first = time.perf_counter()
    evaluate()
    second = time.perf_counter()
    print(
        json.dumps(
            {
                "load": loaded - begin,
                "evaluate": first - loaded,
                "again": second - first,
                "figures": figures(result),
            }
        )
    )


if __name__ == "__main__":
    main()
