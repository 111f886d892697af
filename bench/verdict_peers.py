"""What other packages make of the samples that bench/verdicts.py draws; run by another Python.

    PYTHON bench/verdict_peers.py SAMPLES.npz ANSWERS.json

PYTHON (3.12 or later) has evalstats, evalconfidence, rag-ci and toolkit-rag-quality. A sample is
an array (2, n): baseline and candidate. `intervals…` are to be compared, `gates…` to be gated with
a margin of .02; all settings are the packages' defaults.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import evalconfidence
import numpy as np
from evalstats.core.paired import pairwise_differences
from ragci.baseline import decide
from ragci.runner import CaseResult, RunRecord
from toolkit_rag_quality.compare import CompareBudget, compare_reports
from toolkit_rag_quality.report import RAGReport

MARGIN = 0.02


def evalstats_interval(sample: Any) -> list[float]:
    """Ends of candidate − baseline."""
    result = pairwise_differences(sample, 1, 0, rng=np.random.default_rng(0))
    return [float(result.ci_low), float(result.ci_high)]


def evalconfidence_interval(sample: Any) -> list[float]:
    """Ends of candidate − baseline."""
    baseline, candidate = (
        [
            evalconfidence.ItemResult(item_id=str(at), model_id=name, score=float(score))
            for at, score in enumerate(scores)
        ]
        for name, scores in zip("ab", sample, strict=True)
    )
    low, high = evalconfidence.compare(candidate, baseline).ci_diff
    return [float(low), float(high)]


def rag_ci_passes(sample: Any) -> bool:
    """True if rag-ci does not block, with the margin as least effect."""
    records = [
        RunRecord(
            golden_hash="q",
            config={},
            primary_metric="recall",
            case_results=[
                CaseResult(case_id=str(at), status="ok", scores={"recall": float(score)})
                for at, score in enumerate(scores)
            ],
        )
        for scores in sample
    ]
    return bool(decide(*records, min_effect=MARGIN).passed)


def toolkit_passes(sample: Any) -> bool:
    """True if toolkit-rag-quality passes at α = .05, the margin as percent of the baseline."""
    reports = [
        RAGReport(
            summary={"recall_at_k": float(scores.mean()), "k": 10, "queries": len(scores)},
            per_query=[{"id": str(at), "recall": float(score)} for at, score in enumerate(scores)],
        )
        for scores in sample
    ]
    percent = 100 * MARGIN / float(sample[0].mean())
    verdict = compare_reports(
        baseline=reports[0],
        candidate=reports[1],
        budget=CompareBudget(max_recall_regression_pct=percent),
        alpha=0.05,
    )
    return bool(verdict["passed"])


PEERS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "intervals": {"evalstats": evalstats_interval, "evalconfidence": evalconfidence_interval},
    "gates": {"rag-ci": rag_ci_passes, "toolkit-rag-quality": toolkit_passes},
}


def main() -> None:
    samples, answers = sys.argv[1:]
    found: dict[str, Any] = {"versions": {}, "answers": {}, "ms": {}}
    for name, stack in np.load(samples).items():  # (samples, 2, n)
        for peer, answer in PEERS[name.split("|")[0]].items():
            begin = time.perf_counter()
            found["answers"][f"{name}|{peer}"] = [answer(sample) for sample in stack]
            took = (time.perf_counter() - begin) / len(stack)
            found["ms"][peer] = max(found["ms"].get(peer, 0.0), 1_000 * took)
            found["versions"][peer] = version(peer)
    Path(answers).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
