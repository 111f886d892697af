"""Recommendations against their rules, written out."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankproof_cli import rankproof

import rankproof as rp
from rankproof.statistics.intervals import mean_intervals
from rankproof.tradeoffs.recommend import efficiency, expected_interval, recommend
from rankproof.tradeoffs.results import read_results
from rankproof.tradeoffs.selection import Limits, shortfall

Row = dict[str, Any]


def row(name: str, quality: float, latency: float, cost: float, **others: Any) -> Row:
    found = {
        "configuration": name,
        "RAnWG@10": quality,
        "latency_p50_ms": latency / 2,
        "latency_p95_ms": latency,
        "cost_per_1000": cost,
        "prompt_k": 10,
        "jitter_ms": 0.0,
        "network": False,
    }
    return found | others


TABLE = pl.DataFrame(
    [
        row("slow and good", 0.90, 900.0, 5.0),
        row("dear", 0.85, 300.0, 9.0),
        row("cheap", 0.70, 320.0, 0.5),
        row("fast", 0.60, 20.0, 1.0),
    ]
)


@pytest.mark.parametrize(
    ("limits", "configuration"),
    [
        ({"sla_ms": 350}, "dear"),
        ({"sla_ms": 300}, "dear"),  # a limit may be met exactly
        ({"sla_ms": 150, "latency": "p50"}, "dear"),
        ({"budget": 5}, "slow and good"),
        ({"budget": 0.6}, "cheap"),
        ({"quality": 0.6}, "fast"),
        ({"quality": 0.65}, "dear"),
        ({"quality": 0.86}, "slow and good"),
    ],
)
def test_a_limit_chooses_by_its_rule(limits: dict[str, Any], configuration: str) -> None:
    [choice] = recommend(TABLE, **limits).choices
    assert choice.feasible
    assert choice.configuration == configuration


def test_several_limits_have_a_choice_each_and_one_within_all() -> None:
    found = recommend(TABLE, sla_ms=350, budget=2.5)
    assert [c.configuration for c in found.choices] == ["dear", "cheap", "cheap"]
    assert found.choices[-1].limits.name == "SLA + budget"
    assert found.feasible


VALUES = st.sampled_from((0.1, 0.2, 0.3, 0.4))


@given(
    rows=st.lists(st.tuples(VALUES, VALUES, VALUES, st.integers(1, 3)), min_size=1, max_size=8),
    limits=st.fixed_dictionaries(
        {}, optional={"sla_ms": VALUES, "budget": VALUES, "quality": VALUES}
    ),
)
def test_the_choice_within_all_limits_follows_the_rule(
    rows: list[tuple[float, float, float, int]], limits: dict[str, float]
) -> None:
    table = pl.DataFrame([row(f"c{i}", q, t, c, prompt_k=p) for i, (q, t, c, p) in enumerate(rows)])
    table = table.rename({"RAnWG@10": "RAnWG@prompt"})
    found = recommend(table, measure="RAnWG@prompt", **limits)  # type: ignore[arg-type]
    feasible = [
        (q, t, c, p)
        for q, t, c, p in rows
        if t <= limits.get("sla_ms", 9) and c <= limits.get("budget", 9)
        and q >= limits.get("quality", 0)
    ]  # fmt: skip
    choice = found.choices[-1]
    assert choice.feasible == bool(feasible)
    q, t, c, p = rows[int(choice.configuration[1:])]
    if not feasible:
        assert "Nothing is" in choice.words
        return
    if "quality" in limits:
        assert (t, c, p) == min((t, c, p) for q, t, c, p in feasible)
    else:
        assert (-q, p, t, c) == min((-q, p, t, c) for q, t, c, p in feasible)


def test_latencies_within_the_jitter_are_equal_and_cost_decides() -> None:
    rows = [row("dear", 0.8, 100.0, 9.0), row("cheap", 0.8, 160.0, 1.0)]
    assert recommend(pl.DataFrame(rows), quality=0.8).choices[0].configuration == "dear"
    far = [r | {"network": True} for r in rows]
    assert recommend(pl.DataFrame(far), quality=0.8).choices[0].configuration == "cheap"
    assert (
        recommend(pl.DataFrame(far), quality=0.8, jitter_ms=10).choices[0].configuration == "dear"
    )
    shaky = [r | {"jitter_ms": 61.0} for r in rows]
    assert recommend(pl.DataFrame(shaky), quality=0.8).choices[0].configuration == "cheap"
    [choice] = recommend(pl.DataFrame(far), sla_ms=170, budget=2).choices[-1:]
    assert "within the jitter (75.0 ms) of the limit" in choice.words


def test_a_p95_whose_interval_exceeds_the_limit_is_mentioned() -> None:
    ends = {"latency_p95_low": 90.0, "latency_p95_high": 140.0}
    frame = pl.DataFrame([row("one", 0.8, 100.0, 1.0) | ends])
    found = [recommend(frame, sla_ms=limit).choices[0] for limit in (130, 150)]
    told = [
        "Its p95 may be 140.0 ms (end of its 95% interval), above the limit." in c.words
        for c in found
    ]
    assert told == [True, False]


def test_of_equal_configurations_the_smaller_prompt_is_chosen() -> None:
    rows = [row("long", 0.8, 100.0, 1.0, prompt_k=30), row("short", 0.8, 100.0, 1.0, prompt_k=10)]
    for limits in ({"sla_ms": 200}, {"budget": 2}, {"quality": 0.5}):
        found = recommend(pl.DataFrame(rows), **limits)
        assert found.choices[0].configuration == "short"


def test_a_latency_below_the_jitter_does_not_buy_a_deeper_pool() -> None:
    rows = [
        row("shallow", 0.8, 10.4, 1.0, k=30, jitter_ms=0.5),
        row("deep", 0.8, 10.0, 1.0, k=60, jitter_ms=0.1),
    ]
    for limits in ({"sla_ms": 200}, {"budget": 2}, {"quality": 0.5}):
        found = recommend(pl.DataFrame(rows), **limits)
        assert found.choices[0].configuration == "shallow"


@pytest.mark.parametrize(
    ("limits", "configuration", "shortfall"),
    [
        ({"sla_ms": 10}, "fast", "10.0 ms too slow"),
        ({"budget": 0.1}, "cheap", "$0.40 too expensive"),
        ({"budget": 0}, "cheap", "$0.50 too expensive"),
        ({"quality": 0.95}, "slow and good", "0.050 short in quality"),
    ],
)
def test_where_nothing_is_feasible_the_closest_is_named(
    limits: dict[str, Any], configuration: str, shortfall: str
) -> None:
    found = recommend(TABLE, **limits)
    [choice] = found.choices
    assert not found.feasible
    assert choice.configuration == configuration
    answer, remedy = choice.sentences
    assert answer.startswith("Nothing is ")
    assert answer.endswith(f": {shortfall}.")
    assert remedy.startswith("Loosen the limit, or sweep more:")


def sweep(folder: Path, gap: float) -> Path:
    """A results folder whose second configuration is `gap` better on each query, give or take."""
    rng = np.random.default_rng(1)
    base = rng.random(60) * 0.5
    noise = rng.normal(0, 0.02, 60)
    values = {"rerank K=50": base, "rerank K=100": base + gap + noise - noise.mean()}
    pl.DataFrame(
        [
            row("rerank K=50", base.mean(), 100.0, 1.0, k=50),
            row("rerank K=100", values["rerank K=100"].mean(), 300.0, 3.0, k=100),
        ]
    ).write_parquet(folder / "configurations.parquet")
    pl.DataFrame(
        [
            {"configuration": name, "query": f"q{i}", "measure": "RAnWG@10", "value": value}
            for name, column in values.items()
            for i, value in enumerate(column)
        ]
    ).write_parquet(folder / "per_query.parquet")
    (folder / "sweep.json").write_text(json.dumps({"best_by": "RAnWG@10"}))
    return folder


def test_a_cheaper_one_that_is_not_significantly_worse_is_labeled_so(tmp_path: Path) -> None:
    [choice] = recommend(sweep(tmp_path, 0.001), budget=5).choices
    assert choice.configuration == "rerank K=100"
    assert choice.alike == ("rerank K=50",)
    assert choice.labels == {"rerank K=100": "chosen", "rerank K=50": "not significantly worse"}


def test_a_cheaper_one_that_is_significantly_worse_is_not_named(tmp_path: Path) -> None:
    found = recommend(sweep(tmp_path, 0.05), budget=5)
    assert found.choices[0].alike == ()
    assert found.choices[0].labels == {"rerank K=100": "chosen", "rerank K=50": "worse"}
    assert found.marginal["told_apart"].to_list() == [True]


def test_marginal_quality_is_per_step_of_k_within_a_family(tmp_path: Path) -> None:
    rows = [
        row("a K=100 x", 0.80, 300.0, 2.5, k=100),
        row("a K=50 x", 0.70, 100.0, 1.25, k=50),
        row("a K=200 x", 0.78, 310.0, 5.0, k=200, jitter_ms=20.0),
        row("b K=50 x", 0.50, 100.0, 0.0, k=50),
        row("b K=100 x", 0.55, 90.0, 0.0, k=100),
    ]
    found = recommend(pl.DataFrame(rows)).marginal
    assert found["family"].to_list() == ["a x", "a x", "b x"]
    assert found.select("from_k", "to_k").rows() == [(50, 100), (100, 200), (50, 100)]
    assert found["quality"].to_list() == pytest.approx([0.10, -0.02, 0.05])
    assert found["per_ms"].to_list() == [pytest.approx(0.1 / 200), None, None]
    assert found["per_dollar"].to_list() == pytest.approx([0.08, -0.008, None])
    assert found["told_apart"].to_list() == [None] * 3
    named = [r | {"family": "one"} for r in rows[:2]]
    assert recommend(pl.DataFrame(named)).marginal["family"].to_list() == ["one"]


def test_efficiency_is_the_mean_of_four_over_seconds() -> None:
    assert efficiency([0.8, 0.6, 0.7, 0.5], 325.0) == pytest.approx(0.65 / 0.325)
    assert efficiency([np.array([0.8, 0.4])] * 4, np.array([100.0, 50.0])) == pytest.approx([8, 8])
    parts = {"NRecall4@10": 0.8, "NRecall4@30": 0.7, "RAnWG@30": 0.5}
    found = recommend(pl.DataFrame([row("x", 0.6, 650.0, 1.0, **parts)]))
    assert found.table["efficiency"].to_list() == pytest.approx([0.65 / 0.325])


def test_configurations_without_the_measure_are_skipped_and_counted() -> None:
    rows = [row("x", 0.6, 10.0, 1.0), row("y", math.nan, 10.0, 1.0), row("z", 0.1, 9.0, 1.0)]
    rows[2]["RAnWG@10"] = None
    found = recommend(pl.DataFrame(rows), sla_ms=20)
    assert found.choices[0].configuration == "x"
    assert found.unmeasured == 2
    assert "2 configurations have no RAnWG@10: skipped." in found.words()


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        (TABLE.drop("cost_per_1000"), {}, "results: no column 'cost_per_1000'"),
        (TABLE.clear(), {}, "results: no configurations"),
        (pl.concat([TABLE, TABLE]), {}, "results: configuration 'slow and good' appears twice"),
        (TABLE.with_columns(latency_p95_ms=pl.lit(math.nan)), {}, "results: latency_p95_ms of"),
        (
            TABLE.with_columns(cost_per_1000=pl.lit("1")),
            {},
            "results: column 'cost_per_1000' holds",
        ),
        (TABLE.with_columns(jitter_ms=pl.lit("n/a")), {}, "results: column 'jitter_ms' holds"),
        (TABLE.with_columns(jitter_ms=pl.lit(-1.0)), {}, "results: jitter_ms of 'slow and good'"),
        (TABLE.with_columns(network=pl.lit("no")), {}, "results: column 'network' holds"),
        (TABLE.with_columns(pl.lit(None).alias("RAnWG@10")), {}, "results: no configuration has a"),
        (TABLE, {"measure": "nDCG@5"}, "results: no column 'nDCG@5'; use one of RAnWG@10"),
        (TABLE, {"measure": "ndgc@5"}, "unknown measure 'ndgc'; did you mean nDCG@5?"),
        (TABLE, {"measure": "Harm@10"}, "Harm@10 does not measure quality: less is better"),
        (TABLE, {"sla_ms": -1.0}, "sla_ms -1.0 is not a number from 0"),
        (TABLE, {"budget": math.nan}, "budget nan is not a number from 0"),
        (TABLE, {"latency": "p99"}, "latency 'p99' is unknown; use p50 or p95"),
        (3, {}, "cannot read results from 3"),
    ],
)
def test_unusable_tables_and_arguments_are_refused_in_one_line(
    table: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(rp.InputError) as caught:
        recommend(table, **arguments)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_sweep_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(rp.InputError, match=r"there is no configurations\.parquet in this folder"):
        read_results(tmp_path)
    with pytest.raises(rp.InputError, match="there is no such file or folder"):
        read_results(tmp_path / "nowhere")
    sweep(tmp_path, 0.1)
    whole = (tmp_path / "configurations.parquet").read_bytes()
    (tmp_path / "configurations.parquet").write_bytes(whole[:100])
    with pytest.raises(rp.InputError, match="cannot read it as a table"):
        read_results(tmp_path)
    (tmp_path / "configurations.parquet").write_bytes(whole)
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(rp.InputError, match="not JSON"):
        read_results(tmp_path)


# ------------------------------------------------------------------------------ command line


def test_the_answer_comes_before_the_table_and_what_qualifies_it_after(tmp_path: Path) -> None:
    done = rankproof("recommend", str(sweep(tmp_path, 0.05)), "--budget", "5")
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0] == "Use rerank K=100, best of 2 within $5 per 1,000 queries."
    headings = next(at for at, line in enumerate(lines) if "$/1000" in line)
    assert any(
        re.match(r"Expect about 0\.31\d on new questions", line) for line in lines[headings:]
    )
    assert lines[-1].startswith("Expect about"), "without a folder of lists there is no next step"
    assert done.stderr == b""


def test_a_limit_that_no_configuration_keeps_ends_with_exit_code_1(tmp_path: Path) -> None:
    done = rankproof("recommend", str(sweep(tmp_path, 0.05)), "--sla-ms", "5", "--format", "json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["choices"][0]["feasible"] is False
    assert found["choices"][0]["configuration"] == "rerank K=50"
    assert found.pop("manifest")["command"][0] == "recommend"
    assert found == json.loads(json.dumps(recommend(tmp_path, sla_ms=5).to_dict()))


def test_a_table_may_be_csv(tmp_path: Path) -> None:
    TABLE.write_csv(tmp_path / "mine.csv")
    done = rankproof(
        "recommend", str(tmp_path / "mine.csv"), "--quality", "0.65", "--format", "csv"
    )
    assert done.returncode == 0, done.stderr
    assert b"dear,0.85" in done.stdout
    done = rankproof("recommend", str(tmp_path / "mine.csv"), "-m", "nDCG@5")
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("measure", ["RAnWG@2", "RAnWG@3"])
def test_a_choice_that_unjudged_passages_could_change_says_so(
    tmp_path: Path, judged: bool, measure: str
) -> None:
    """At 3 the rival's own passages lift it to 2/3, and the ideal so far that the chosen falls."""
    qrels = {f"q{q}": {"a": 5, "b": 4, "c": 1} for q in range(8)}
    if judged:
        qrels = {q: grades | {"x": 1, "y": 1} for q, grades in qrels.items()}
    runs = {
        "home": {q: {"a": 3.0, "b": 2.0, "c": 1.0} for q in qrels},
        "away": {q: {"x": 3.0, "y": 2.0, "c": 1.0} for q in qrels},
        "poor": {q: {"c": 3.0} for q in qrels},
    }
    found = {
        run.name: run.measures[rp.parse(measure)] for run in rp.holes(qrels, runs, measure).runs
    }
    pl.DataFrame(
        [
            row(name, 0.0, 10.0, 1.0)
            | {measure: b.expected, f"{measure} lowest": b.lowest, f"{measure} highest": b.highest}
            for name, b in found.items()
        ]
    ).write_parquet(tmp_path / "configurations.parquet")
    pl.DataFrame(
        [(name, q, d, s) for name, run in runs.items() for q in run for d, s in run[q].items()],
        schema=["configuration", "query", "doc", "score"],
        orient="row",
    ).write_parquet(tmp_path / "lists.parquet")
    rp.read_qrels(qrels).to_frame().write_parquet(tmp_path / "judgements.parquet")
    [choice] = recommend(tmp_path, budget=2, measure=measure).choices
    assert choice.configuration == "home"
    assert judged or found["home"].lowest == 1.0 > found["away"].highest - (measure == "RAnWG@2")
    assert list(choice.unsettled) == ([] if judged else ["away"])
    assert ("could change 1 comparison: judge them first" in choice.words) is not judged
    kept = read_results(tmp_path)
    loose = {"home": {"a": 3.0, "b": 3.0, "c": 3.0, "z": 1.0}, "away": {"a": 3.0, "c": 2.0}}
    tied = [(n, q, d, s) for n, listed in loose.items() for q in qrels for d, s in listed.items()]
    lists = pl.DataFrame(tied, schema=["configuration", "query", "doc", "score"], orient="row")
    assert replace(kept, lists=lists).unsettled("home", "RR", ["away"], 0) == (), "ties, not z"


def equals(
    folder: Path, seed: int, share: float | None, queries: int = 30, configurations: int = 20
) -> Path:
    """A sweep of configurations that are equal in truth, in cost and in latency: of values from 0
    to 1, or of which that share is 1 and the rest 0."""
    rng = np.random.default_rng(seed)
    values = rng.random((configurations, queries))
    if share is not None:
        values = (values < share).astype(np.float64)
    ends = mean_intervals(values)
    pl.DataFrame(
        [
            row(f"c{i}", values[i].mean(), 10.0, 1.0)
            | {"RAnWG@10 low": ends[i, 0], "RAnWG@10 high": ends[i, 1]}
            for i in range(configurations)
        ]
    ).write_parquet(folder / "configurations.parquet")
    pl.DataFrame(
        {
            "configuration": np.repeat([f"c{i}" for i in range(configurations)], queries),
            "query": [f"q{q}" for q in range(queries)] * configurations,
            "measure": ["RAnWG@10"] * values.size,
            "value": values.ravel(),
        }
    ).write_parquet(folder / "per_query.parquet")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("share", [None, 0.9])
def test_the_best_of_equals_differs_significantly_from_none_and_meets_no_target_above_them(
    share: float | None, tmp_path: Path
) -> None:
    truth = share or 0.5
    claimed = met = covered = flattered = 0
    figures = []
    for seed in range(40):
        folder = equals(tmp_path, seed, share)
        found = recommend(folder, budget=2, quality=truth + 0.02, measure="RAnWG@10")
        within = found.choices[0]
        assert within.similar is not None
        assert within.alike == ()
        claimed += len(within.similar) < 19
        met += found.choices[1].feasible
        assert within.expected is not None
        assert within.expected_ci is not None
        figures.append(within.expected)
        covered += within.expected_ci[0] <= truth <= within.expected_ci[1]
        flattered += within.row["low"] <= truth <= within.row["high"]
    assert claimed <= 6  # 5% of 40 is 2; more than 6 has a chance of 1 in 100
    assert abs(np.mean(figures) - truth) < 0.015  # the winner's own mean lies 0.1 above
    assert covered >= 35
    if share is None:  # of ones alone the interval is wide
        assert flattered <= 32  # the interval of the winner's own mean covers too rarely
    assert met <= 3  # 2.5% of 40 is 1; the means alone meet it in nearly all


@pytest.mark.parametrize("queries", [1, 2])
def test_a_query_or_two_meet_no_target_of_a_measure_without_an_end(
    queries: int, tmp_path: Path
) -> None:
    """Values that are all one value above 1 have no interval, whose lower end would miss it."""
    measure = "DCG(rel=3)@3"
    one = {k: v for k, v in row("c", 3.0, 10.0, 1.0).items() if k != "RAnWG@10"}
    pl.DataFrame([one | {measure: 3.0, f"{measure} low": None, f"{measure} high": None}]).cast(
        {f"{measure} {end}": pl.Float64 for end in ("low", "high")}
    ).write_parquet(tmp_path / "configurations.parquet")
    values = {"configuration": "c", "measure": measure, "value": 3.0}
    pl.DataFrame([values | {"query": f"q{q}"} for q in range(queries)]).write_parquet(
        tmp_path / "per_query.parquet"
    )
    (choice,) = recommend(tmp_path, quality=2.5, measure=measure).choices
    assert not choice.feasible
    assert "the lower end of its quality is 2." in choice.words


def test_a_target_that_only_the_mean_meets_is_missed() -> None:
    table = pl.DataFrame([row("near", 0.72, 10.0, 1.0) | {"RAnWG@10 low": 0.66}])
    [choice] = recommend(table, quality=0.7).choices
    assert not choice.feasible
    assert "the lower end of its quality is 0.040 short" in choice.words
    assert choice.sentences[-1].startswith("Loosen the limit, judge more queries, or sweep more:")
    assert recommend(table, quality=0.66).choices[0].feasible
    limits, shown = Limits(quality=0.6), {"quality": 0.8, "low": 0.65, "surely": 0.55}
    assert shortfall(shown, limits) == (
        "the lower end of its quality as one of many, 0.550, is 0.050 short"
    )


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("RAnWG@10", math.inf, "RAnWG@10 of 'b' is inf; correct it"),
        ("RAnWG@10 low", 0.9, "RAnWG@10 low of 'b' is 0.9 beside 0.8"),
        ("RAnWG@10 high", 0.5, "RAnWG@10 high of 'b' is 0.5 beside 0.8"),
        ("RAnWG@10 low", -math.inf, "RAnWG@10 low of 'b' is -inf beside 0.8"),
        ("index_bytes", -1.0, "index_bytes of 'b' is -1;"),
        ("index_bytes", math.nan, "index_bytes of 'b' is not known"),
        ("latency_p95_high", math.inf, "latency_p95_high of 'b' is inf"),
    ],
)
def test_impossible_values_are_refused_with_their_row(name: str, value: float, said: str) -> None:
    """A table may come from anywhere: two rows whose intervals lie beside their figures dominated
    each other, and nothing was left to choose."""
    fine = {"RAnWG@10 low": 0.7, "RAnWG@10 high": 0.9, "index_bytes": 5.0, "latency_p95_high": 9.0}
    rows = [row("a", 0.8, 5.0, 1.0) | fine, row("b", 0.8, 5.0, 1.0) | fine | {name: value}]
    with pytest.raises(rp.InputError, match=re.escape(f"results: {said}")):
        recommend(pl.DataFrame(rows), memory_mb=1)


def test_an_end_that_is_not_a_number_is_not_shown() -> None:
    ends = {"RAnWG@10 low": math.nan, "RAnWG@10 high": 0.9, "latency_p95_low": math.nan}
    [choice] = recommend(pl.DataFrame([row("a", 0.8, 5.0, 1.0) | ends])).choices
    assert choice.words == "Use a."


# -------------------------------------------------------- random sweeps against the rules by hand


def random_rows(rng: np.random.Generator) -> list[Row]:
    """Configurations on a coarse grid, so that much is equal; with noise of every kind."""
    rows = []
    for at in range(int(rng.integers(1, 12))):
        quality = float(rng.integers(3, 8)) / 10
        half = float(rng.choice([0.0, 0.05, 0.1]))
        rows.append(
            row(
                f"c{at}",
                quality,
                float(rng.choice([1.0, 2.0, 10.0, 70.0, 100.0, 140.0])),
                float(rng.choice([0.0, 1.0, 2.0])),
                jitter_ms=float(rng.choice([0.0, 0.5, 5.0])),
                network=bool(rng.integers(0, 2)),
                prompt_k=10,
                stages=int(rng.integers(1, 4)),
                index_bytes=int(rng.integers(1, 4)) * 1_000_000,
                k=int(rng.choice([30, 60])),
            )
            | {"RAnWG@10 low": quality - half, "RAnWG@10 high": quality + half}
        )
    return rows


def noise(a: Row, b: Row) -> float:
    both = a["network"] and b["network"]
    return float(max(a["jitter_ms"], b["jitter_ms"], 75.0 if both else 0.0))


def beats(a: Row, b: Row) -> bool:
    """The definition at the top of pareto.py, and in the prompt."""
    slower = a["latency_p95_ms"] - b["latency_p95_ms"]
    exact = ("cost_per_1000", "index_bytes", "prompt_k")
    no_worse = all(a[x] <= b[x] for x in exact) and a["RAnWG@10"] >= b["RAnWG@10"]
    no_worse = no_worse and slower <= noise(a, b)
    better = any(a[x] < b[x] for x in exact) or a["RAnWG@10 low"] > b["RAnWG@10 high"]
    return no_worse and (better or slower < -noise(a, b))


def by_hand(rows: list[Row], limits: dict[str, float]) -> str | None:
    within = [
        r
        for r in rows
        if r["latency_p95_ms"] <= limits.get("sla_ms", math.inf)
        and r["cost_per_1000"] <= limits.get("budget", math.inf)
        and r["index_bytes"] / 1e6 <= limits.get("memory_mb", math.inf)
        and r["RAnWG@10 low"] >= limits.get("quality", -math.inf)
    ]
    sound = [b for b in within if not any(beats(a, b) for a in within)]
    if not sound:
        assert not within  # something is always left of what is feasible
        return None
    if "quality" not in limits:
        best = max(r["RAnWG@10"] for r in sound)
        sound = [r for r in sound if r["RAnWG@10"] >= best - 1e-12]
    fastest = min(sound, key=lambda r: (r["latency_p95_ms"], r["jitter_ms"]))
    level = []
    for r in sound:
        both = r["network"] and fastest["network"]
        slack = max(r["jitter_ms"], fastest["jitter_ms"], 75.0 if both else 0.0)
        if r["latency_p95_ms"] - fastest["latency_p95_ms"] <= slack:
            level.append(r)
    order = ("cost_per_1000", "prompt_k", "stages", "k", "latency_p95_ms", "configuration")
    return str(min(level, key=lambda r: tuple(r[x] for x in order))["configuration"])


@pytest.mark.parametrize("seed", range(200))
def test_the_choice_of_a_random_sweep_is_that_of_the_rules_by_hand(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng)
    every = {
        "sla_ms": float(rng.choice([1.5, 50.0, 120.0])),
        "budget": float(rng.choice([0.0, 1.0, 2.0])),
        "memory_mb": float(rng.choice([1.0, 2.0, 3.0])),
        "quality": float(rng.choice([0.3, 0.5])),
    }
    limits = {name: every[name] for name in every if rng.random() < 0.6}
    found = recommend(pl.DataFrame(rows), **limits)  # type: ignore[arg-type]
    front = dict(found.table.select("configuration", "pareto").iter_rows())
    for b in rows:  # every prompt is the same here
        assert front[b["configuration"]] == (not any(beats(a, b) for a in rows))
    if not limits:
        return
    wanted = by_hand(rows, limits)
    choice = found.choices[-1]
    assert choice.feasible == (wanted is not None)
    if wanted is not None:
        assert choice.configuration == wanted
        assert choice.sentences[0].startswith(f"Use {wanted}, ")
        chosen = choice.row
        for r in found.table.iter_rows(named=True):  # nothing is better in every respect
            assert not (
                r["quality"] > chosen["quality"]
                and r["latency"] < chosen["latency"] - max(r["jitter"], chosen["jitter"])
                and r["cost"] < chosen["cost"]
                and r["memory"] < chosen["memory"]
                and r["low"] >= limits.get("quality", 0)
            )


def test_a_row_over_a_network_does_not_lend_its_jitter_to_the_others() -> None:
    rows = [
        row("here", 0.8, 0.3, 1.0, k=60),
        row("there", 0.8, 70.0, 1.0, k=30, network=True),
    ]
    found = recommend(pl.DataFrame(rows), quality=0.7)
    assert found.choices[0].configuration == "here"
    assert found.table.filter("pareto")["configuration"].to_list() == ["here"]


def test_noise_of_either_is_no_reason_to_leave_the_simpler_one() -> None:
    """Faster by less than the jitter, the longer way was the only one on the front."""
    short, long = row("short", 0.8, 101.0, 1.0, stages=2), row("long", 0.8, 100.0, 1.0, stages=5)
    over = [r | {"network": True} for r in (long, short)]
    shaky = [long | {"jitter_ms": 5.0}, short]
    for rows in (over, shaky):
        for limits in ({"quality": 0.7}, {"sla_ms": 200.0}):
            found = recommend(pl.DataFrame(rows), **limits)  # type: ignore[arg-type]
            assert found.table["pareto"].all()
            assert found.choices[0].configuration == "short"


def test_memory_is_a_limit_and_an_axis_of_the_front() -> None:
    rows = [
        row("large", 0.8, 10.0, 1.0, index_bytes=9_000_000),
        row("small", 0.7, 10.0, 1.0, index_bytes=1_000_000),
    ]
    found = recommend(pl.DataFrame(rows), memory_mb=2)
    assert found.choices[0].configuration == "small"
    assert found.choices[0].words.startswith("Use small, the only one within 2 MB.")
    assert found.table["pareto"].all()
    [choice] = recommend(pl.DataFrame(rows), memory_mb=0.5).choices
    assert choice.sentences[0].endswith("0.5 MB too large.")
    with pytest.raises(rp.InputError, match="no column 'index_bytes'"):
        recommend(TABLE, memory_mb=2)


def test_prompts_of_several_sizes_are_each_judged_at_their_own() -> None:
    rows = [
        row("short", 0.5, 10.0, 1.0, prompt_k=5) | {"RAnWG@20": 0.9, "RAnWG@prompt": 0.4},
        row("long", 0.5, 10.0, 4.0, prompt_k=20) | {"RAnWG@20": 0.9, "RAnWG@prompt": 0.9},
    ]
    found = recommend(pl.DataFrame(rows), budget=5, measure="RAnWG@20")
    assert found.choices[0].configuration == "long"  # the only one that gives twenty passages
    assert "gives another number of passages than 20: skipped" in " ".join(found.words())
    found = recommend(pl.DataFrame(rows), budget=5, measure="RAnWG@prompt")
    assert found.choices[0].configuration == "long"
    with pytest.raises(rp.InputError, match=r"RAnWG@10 is not the quality of prompts of 5 and 20"):
        recommend(pl.DataFrame(rows), budget=5, measure="RAnWG@10")
    alone = recommend(pl.DataFrame(rows[:1]), budget=5, measure="RAnWG@20")
    assert "RAnWG@20 is of 20 passages; the prompt holds 5." in alone.words()


def test_amounts_are_in_the_currency_of_the_prices(tmp_path: Path) -> None:
    folder = sweep(tmp_path, 0.05)
    made = {"best_by": "RAnWG@10", "prices": {"currency": "EUR"}}
    (folder / "sweep.json").write_text(json.dumps(made))
    words = recommend(folder, budget=5).choices[0].words
    assert words.startswith("Use rerank K=100, best of 2 within €5 per 1,000 queries.")
    assert "€/1000" in str(recommend(folder, budget=5))
    done = rankproof("recommend", str(folder), "--budget", "5", "--wide")
    assert re.search(r"Δ €/1000 +per 100 ms +per € ", done.stdout.decode())
    assert b"$" not in done.stdout


def test_small_amounts_are_not_rounded_to_nothing() -> None:
    rows = [row("a", 0.5, 10.0, 0.004)]
    [choice] = recommend(pl.DataFrame(rows), sla_ms=9.98, budget=0.0039).choices[-1:]
    assert "0.02 ms too slow and $0.0001 too expensive" in choice.words
    [choice] = recommend(pl.DataFrame(rows), quality=0.5001).choices
    assert "0.0001 short in quality" in choice.words


def test_the_expected_interval_of_a_share_stays_between_0_and_1() -> None:
    row = {"quality": 0.9, "low": 0.05, "high": 0.99, "surely": 0.3}
    assert expected_interval(row, 0.93) == (0.05, 1.0)
    assert expected_interval(row, 0.8) == (0.0, 0.99)
    gain = {"quality": 3.0, "low": 2.0, "high": 4.0, "surely": 2.5}
    assert expected_interval(gain, 3.5) == (2.0, 4.5)
    assert expected_interval(gain | {"surely": 1.5}, 3.5) == (1.5, 4.5)
    assert expected_interval(row, None) is None
