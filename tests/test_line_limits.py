"""How long outputs are: an answer, a table, at most three notes and the next step, at 80 columns.

The limits hold whatever the runs are like: with and without ties, all judged or hardly any, one
query, many runs, missing queries, long names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rankproof as rp
from rankproof.presentation.result import Presentation
from rankproof.presentation.terminal import to_text

Runs = dict[str, dict[str, dict[str, float]]]
Judgments = dict[str, dict[str, int]]

MEASURES = ["nDCG@10", "RR@10", "AP@100"]
KINDS = (
    "plain",
    "tied",
    "sparse judgments",
    "one query",
    "long names",
    "missing queries",
    "equal runs",
    "unjudged queries",
    "long ids",
)


def collection(kind: str, runs: int) -> tuple[Judgments, Runs]:
    """Return judgments and runs of growing quality, special in one respect."""
    rng = np.random.default_rng(runs)
    queries = [f"q{n:02}" for n in range(1 if kind == "one query" else 40)]
    if kind == "long ids":
        queries = [f"{name}-a-query-with-a-rather-long-identifier" for name in queries]
    docs = [f"d{n}" for n in range(30)]
    judged = {q: {doc: int(n < 4) for n, doc in enumerate(docs)} for q in queries}
    if kind == "sparse judgments":
        judged = {q: {"d0": 1, "d9": 0} for q in queries}
    decimals = 0 if kind == "tied" else 9
    lists: Runs = {}
    for number in range(runs):
        skill = 0.0 if kind == "equal runs" else 2.0 * (number + 1) / runs
        name = f"run{number}"
        if kind == "long names":
            name = f"a-rather-long-name-of-a-configuration-with-many-parts-{number}-" + "x" * 40
        lists[name] = {
            q: {
                doc: float(np.round(rng.normal() + skill * (n < 4), decimals))
                for n, doc in enumerate(docs)
            }
            for q in queries[: len(queries) - (number if kind == "missing queries" else 0)]
        }
    if kind == "equal runs":
        first = next(iter(lists.values()))
        lists = dict.fromkeys(lists, first)
    if kind == "unjudged queries":
        for run in lists.values():
            run["unknown"] = {"d0": 1.0}
    return judged, lists


def lines_of(result: Any) -> list[str]:
    return to_text(Presentation.of(result), 80).splitlines()


def check(result: Any, limit: int) -> None:
    lines = lines_of(result)
    assert len(lines) <= limit, "\n".join(lines)
    assert all(len(line) <= 80 for line in lines if not line.startswith("Next: "))


@pytest.mark.parametrize("kind", KINDS)
def test_eval_of_three_runs_takes_at_most_12_lines(kind: str) -> None:
    qrels, runs = collection(kind, 3)
    check(rp.evaluate(qrels, runs, "nDCG@10"), 12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("measures", [1, 3])
def test_compare_of_two_runs_takes_at_most_10_lines(kind: str, measures: int) -> None:
    qrels, runs = collection(kind, 2)
    check(rp.compare(qrels, runs, MEASURES[:measures]), 10)


@pytest.mark.parametrize("kind", KINDS)
def test_compare_of_five_runs_on_three_measures_takes_at_most_30_lines(kind: str) -> None:
    qrels, runs = collection(kind, 5)
    check(rp.compare(qrels, runs, MEASURES), 30)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [2, 8, 40])
def test_a_leaderboard_takes_at_most_10_lines_more_than_it_has_runs(kind: str, number: int) -> None:
    qrels, runs = collection(kind, number)
    check(rp.leaderboard(qrels, runs, "nDCG@10"), 10 + number)


@pytest.mark.parametrize("kind", KINDS)
def test_a_leaderboard_on_three_measures_is_as_short(kind: str) -> None:
    qrels, runs = collection(kind, 5)
    check(rp.leaderboard(qrels, runs, MEASURES), 15)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("margin", [0.0, 0.01, 0.5])
def test_a_gate_takes_at_most_8_lines(kind: str, order: int, margin: float) -> None:
    qrels, runs = collection(kind, 2)
    baseline, candidate = [rp.read_run(run, name=name) for name, run in list(runs.items())[::order]]
    check(rp.gate(qrels, baseline, candidate, "nDCG@10", margin), 8)


def test_the_demo_runs_fit_with_the_measures_that_are_the_default() -> None:
    from pathlib import Path

    data = Path(rp.__file__).parent / "resources"
    qrels = str(data / "demo-qrels.txt")
    runs = [str(data / f"demo-{name}.trec") for name in ("plain", "saturated")]
    check(rp.evaluate(qrels, runs), 12)
    check(rp.compare(qrels, runs), 10)
    check(rp.leaderboard(qrels, runs), 12)
    check(rp.gate(qrels, runs[0], runs[1]), 8)
