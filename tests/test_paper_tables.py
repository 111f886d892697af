"""Printed figures of arXiv 2511.09545, computed again from their printed inputs.

A printed figure stands for every number that rounds to it. It follows from its inputs if some
inputs that round to what is printed give a number that rounds to it. Those that do not follow are
listed by name.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import polars as pl
import pytest

from rankproof.tradeoffs.ceilings import percent_of
from rankproof.tradeoffs.pareto import pareto_front
from rankproof.tradeoffs.prices import generator_cost, read_prices, rerank_cost
from rankproof.tradeoffs.recommend import efficiency, recommend


def follows(
    function: Callable[..., float], inputs: list[tuple[float, int]], printed: float, digits: int
) -> bool:
    """Whether inputs, each printed to so many digits, can give the printed figure.

    The functions here rise or fall with each input, so their extremes are at the corners.
    """
    corners = product(*((x - 0.5 * 10.0**-d, x + 0.5 * 10.0**-d) for x, d in inputs))
    values = [function(*corner) for corner in corners]
    half = 0.5 * 10.0**-digits + 1e-12
    return min(values) <= printed + half and max(values) >= printed - half


def test_a_figure_follows_only_within_rounding() -> None:
    assert follows(percent_of, [(0.918, 3), (0.988, 3)], 92.9, 1)
    assert not follows(percent_of, [(0.918, 3), (0.988, 3)], 93.1, 1)


@pytest.mark.parametrize(
    ("model", "k", "printed"),
    [
        ("rerank-2.5", 50, 1.25), ("rerank-2.5", 100, 2.5),
        ("rerank-2.5", 150, 3.75), ("rerank-2.5", 200, 5.0),
        ("rerank-2.5-lite", 50, 0.5), ("rerank-2.5-lite", 100, 1.0),
        ("rerank-2.5-lite", 150, 1.5), ("rerank-2.5-lite", 200, 2.0),
    ],
)  # fmt: skip
def test_the_cost_of_reranking_1000_queries(model: str, k: int, printed: float) -> None:
    assert rerank_cost(k, 500, read_prices().per_1k(model)) == pytest.approx(printed, rel=1e-12)


@pytest.mark.parametrize(
    ("model", "k", "printed"),
    [
        ("GPT-5", 10, 6.25), ("GPT-5", 20, 12.5), ("GPT-5", 30, 18.75),
        ("GPT-5 mini", 10, 1.25), ("GPT-5 mini", 20, 2.5), ("GPT-5 mini", 30, 3.75),
        ("GPT-5 nano", 10, 0.25), ("GPT-5 nano", 20, 0.5), ("GPT-5 nano", 30, 0.75),
    ],
)  # fmt: skip
def test_the_cost_of_the_input_of_1000_answers(model: str, k: int, printed: float) -> None:
    assert generator_cost(k, 500, read_prices().per_1k(model)) == pytest.approx(printed, rel=1e-12)


@pytest.mark.parametrize(
    ("actual", "proc", "printed"),
    [(0.852, 1.0, 85.2), (0.918, 0.988, 92.9), (0.882, 1.0, 88.2), (0.930, 0.985, 94.4)],
)
def test_table_4_percent_of_proc_is_the_ratio_of_means(
    actual: float, proc: float, printed: float
) -> None:
    assert round(percent_of(actual, proc), 1) == printed


FLAT = [0.592, 0.596, 0.566, 0.636, 0.677, 0.625, 47.6]
COLUMNS = ["N-Recall4+@10", "N-Recall5@10", "RA-nWG@10",
           "N-Recall4+@20", "N-Recall5@20", "RA-nWG@20", "latency"]  # fmt: skip
TABLE_7 = {
    "hnsw-f32": (
        [0.592, 0.596, 0.566, 0.594, 0.616, 0.580, 35.4],
        [0.0, 0.0, 0.0, 0.8, -0.7, 0.6, -25.6],
    ),
    "hnsw-int8-fast50": (
        [0.521, 0.507, 0.497, 0.526, 0.555, 0.522, 35.0],
        [-12.0, -14.9, -12.1, -17.3, -18.1, -16.5, -26.3],
    ),
}
DO_NOT_FOLLOW = {
    ("hnsw-f32", "N-Recall4+@20"): -6.6,  # printed +0.8
    ("hnsw-f32", "N-Recall5@20"): -9.0,  # printed −0.7
    ("hnsw-f32", "RA-nWG@20"): -7.2,  # printed +0.6
}


def change(value: float, base: float) -> float:
    return percent_of(value, base) - 100.0


@pytest.mark.parametrize("index", TABLE_7)
@pytest.mark.parametrize("column", COLUMNS)
def test_table_7_changes_follow_but_for_those_named(index: str, column: str) -> None:
    at = COLUMNS.index(column)
    value, printed = (part[at] for part in TABLE_7[index])
    digits = 1 if column == "latency" else 3
    if value == FLAT[at]:  # the same run: no rounding can part them
        assert printed == 0.0
        return
    inputs = [(value, digits), (FLAT[at], digits)]
    ours = DO_NOT_FOLLOW.get((index, column))
    assert follows(change, inputs, printed, 1) == (ours is None)
    if ours is not None:
        assert round(change(value, FLAT[at]), 1) == ours
        assert follows(change, inputs, ours, 1)


TABLE_9 = [  # average, latency in ms, efficiency; in the order printed
    (0.817, 332.9, 2.454),
    (0.818, 337.2, 2.426),
    (0.812, 338.8, 2.397),
    (0.782, 330.9, 2.362),
    (0.799, 339.5, 2.353),
]


@pytest.mark.parametrize(("average", "latency", "printed"), TABLE_9)
def test_table_9_efficiency_follows(average: float, latency: float, printed: float) -> None:
    def ratio(mean: float, ms: float) -> float:
        return float(efficiency([mean] * 4, ms))

    assert follows(ratio, [(average, 3), (latency, 1)], printed, 3)


def test_table_9_average_of_the_first_row_follows() -> None:
    assert efficiency([0.835, 0.804, 0.819, 0.810], 1000.0) == pytest.approx(0.817, abs=1e-12)
    assert round(efficiency([0.835, 0.804, 0.819, 0.810], 332.9), 3) == 2.454


TABLE_8: list[dict[str, Any]] = [
    {"configuration": name, "k": k, "cost_per_1000": cost, "latency_p50_ms": ms,
     "latency_p95_ms": ms, "RAnWG@10": ten, "RAnWG@30": thirty}
    for name, k, cost, ms, ten, thirty in (
        ("Baseline", 50, 1.25, 332.9, 0.804, 0.810),
        ("Cost saver", 50, 0.5, 403.8, 0.692, 0.732),
        ("Quality push", 100, 2.5, 478.1, 0.791, 0.828),
        ("Efficient small-dim", 100, 2.5, 483.1, 0.793, 0.824),
        ("High-K check", 200, 5.0, 2931.1, 0.792, 0.818),
    )
]  # fmt: skip


def test_table_8_scenarios_are_chosen_by_the_rules() -> None:
    table = pl.DataFrame(TABLE_8)

    def chosen(**limits: Any) -> str:
        [choice] = recommend(table, **limits).choices
        assert choice.feasible
        return choice.configuration

    assert chosen(sla_ms=350) == "Baseline"
    assert chosen(budget=1.0) == "Cost saver"
    assert chosen(budget=2.5, measure="RAnWG@10") == "Baseline"
    assert chosen(sla_ms=500, measure="RAnWG@30") == "Quality push"
    assert chosen(quality=0.82, measure="RAnWG@30") == "Quality push"
    # By RAnWG@10 a deeper pool costs more, takes longer and is worse: the baseline dominates it.
    front = pareto_front(table["cost_per_1000"], table["latency_p50_ms"], table["RAnWG@10"])  # type: ignore[arg-type]
    assert table.filter(pl.Series(front))["configuration"].to_list() == ["Baseline", "Cost saver"]


@pytest.mark.parametrize(("row"), TABLE_8, ids=lambda row: str(row["configuration"]))
def test_table_8_costs_are_those_of_their_reranker(row: dict[str, Any]) -> None:
    model = "rerank-2.5-lite" if row["configuration"] == "Cost saver" else "rerank-2.5"
    cost = rerank_cost(row["k"], 500, read_prices().per_1k(model))
    assert cost == pytest.approx(row["cost_per_1000"], rel=1e-12)
