"""The gate: its verdicts, its sentences, and that its errors are as rare as it states."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from rankproof_cli import in_text

import rankproof as rp
from rankproof.comparison.gate import gate_sides
from rankproof.comparison.gate_inputs import Side
from rankproof.data.tables import Qrels
from rankproof.evaluation import Evaluation, Policy
from rankproof.measures import Measure, Outcomes, parse
from rankproof.statistics.intervals import difference_intervals

ROOT = Path(__file__).parents[1]
DATA = Path(rp.__file__).parent / "resources"
QRELS, PLAIN, TIED = (
    str(DATA / name) for name in ("demo-qrels.txt", "demo-plain.trec", "demo-saturated.trec")
)
NDCG = parse("nDCG@10")


def rankproof(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return in_text(*arguments, env={"COLUMNS": "200", "NO_COLOR": "1", **environment})


def side(name: str, values: np.ndarray, judged: dict[Measure, float] | None = None) -> Side:
    queries = pl.Series("query", [f"q{at:04d}" for at in range(len(values))])
    outcomes = {NDCG: Outcomes(values, values, values, values, np.zeros(len(values)))}
    return Side(Evaluation(name, queries, outcomes, Policy(), "float64", judged=judged or {}))


def judgments(queries: int) -> Qrels:
    return rp.read_qrels({f"q{at:04d}": {"d": 1} for at in range(queries)})


def gate_of(difference: np.ndarray, margin: float = 0.05, **options: Any) -> rp.Gate:
    """Return the gate of a candidate that changes by `difference`; every document is judged."""
    base = np.maximum(0.5, -difference)  # nDCG is never below 0
    return gate_sides(
        judgments(len(difference)),
        side("old", base, {NDCG: 1.0}),
        side("new", base + difference, {NDCG: 1.0}),
        {NDCG: margin},
        **options,
    )


def test_verdicts_are_read_from_the_interval_and_the_margin() -> None:
    noise = np.random.default_rng(0).normal(0, 0.05, 100)
    noise -= noise.mean()
    assert gate_of(noise).verdict == "passed"
    worse = gate_of(noise - 0.2)
    assert (worse.verdict, worse.exit_code) == ("worse", 1)
    undecided = gate_of(noise * 8, margin=0.01)
    assert (undecided.verdict, undecided.exit_code) == ("undecided", 3)
    assert not undecided
    allowed = gate_of(noise * 8, margin=0.01, allow_undecided=True)
    assert (allowed.verdict, allowed.exit_code) == ("undecided", 0)
    within = gate_of(noise - 0.02)
    assert within.verdict == "passed", "a loss that is surely within the margin is tolerated"
    assert "new loses at most 0.0296 on nDCG@10 (margin 0.05)" in str(within)


def test_a_loss_as_judged_stays_undecided_where_unjudged_documents_are_unknown() -> None:
    loss = np.random.default_rng(0).normal(-0.2, 0.05, 100)
    base = np.full(100, 0.5)
    for shares, label, code in (
        ({}, "undecided", 3),
        ({NDCG: 0.6}, "undecided", 3),
        ({NDCG: 0.4}, "worse", 1),  # mostly unjudged: worst cases show nothing
        ({NDCG: 1.0}, "worse", 1),
    ):
        gate = gate_sides(
            judgments(100),
            side("old", base, shares),
            side("new", base + loss, shares),
            {NDCG: 0.05},
            allow_undecided=True,
        )
        assert (gate.verdict, gate.exit_code) == (label, code)
        if label == "undecided":
            assert "What unjudged documents could change is unknown." in str(gate)


def test_the_output_names_the_largest_changes_and_the_queries_to_add() -> None:
    noise = np.random.default_rng(0).normal(0, 0.4, 100)
    gate = gate_of(noise - noise.mean(), margin=0.01)
    gated = gate.measures[NDCG]
    assert f"most: {gated.changed_most[0][0]} " in str(gate)
    sizes = [abs(change) for _, change in gated.changed_most]
    assert len(sizes) == 5
    assert sizes == sorted(sizes, reverse=True)
    assert gated.queries_needed is not None
    fewest, most = gated.queries_needed
    assert fewest > 0
    until = "" if most is None else f" to {most:,}"
    next_step = f"judge {fewest:,}{until} more queries, or widen --margin, or --allow-undecided"
    assert gate.summary().next_step == next_step
    assert repr(gate) == "<gate: new against old: undecided>"


def test_a_decided_gate_names_no_further_queries() -> None:
    noise = np.random.default_rng(1).normal(0, 0.1, 30)
    for shift, label in ((-0.2, "worse"), (0.0, "passed"), (-0.03, "undecided")):
        gate = gate_of(noise - noise.mean() + shift)
        assert gate.verdict == label
        if label != "undecided":
            assert gate.measures[NDCG].queries_needed is None
            assert gate.summary().next_step == ""


def test_equal_runs_pass_whatever_the_margin() -> None:
    gate = gate_of(np.zeros(3), margin=0.0)
    assert gate.passed
    assert "no query differs on nDCG@10" in str(gate)


def test_queries_that_all_change_alike_do_not_decide_what_others_would_do() -> None:
    gate = gate_of(np.full(8, -0.01), margin=0.05)
    assert gate.verdict == "undecided", "an interval of a single point let it pass"
    for few in (gate, gate_of(np.full(2, -0.2))):
        assert few.measures[NDCG].queries_needed is None
        assert few.summary().next_step == ""
    assert "-0.3757 to +0.3631" in str(gate)
    assert gate_of(np.full(8, -0.9)).verdict == "worse"
    qrels = {f"q{n}": {"r": 1, "n": 0} for n in range(8)}
    before = {q: {"r": 2.0, "n": 1.0, "m": 0.5} for q in qrels}
    after = {q: {"r": 2.0, "n": 1.0} for q in qrels}  # one less, which is not the most there is
    unbounded = rp.gate(qrels, before, after, "NumRet")
    assert unbounded.verdict == "undecided"
    assert "all queries change alike on NumRet: no interval." in str(unbounded)
    assert unbounded.to_dict()["measures"]["NumRet"]["bounds"] == [None, None]
    assert gate_of(np.zeros(3)).to_dict()["measures"]["nDCG@10"]["queries_needed"] is None


def test_three_queries_that_flake_are_undecided_and_not_worse() -> None:
    # recall .467 → .400 on three queries, with nothing changed
    gate = gate_of(np.array([0.0, -0.2, 0.0]), margin=0.02)
    assert gate.verdict == "undecided"
    assert gate.measures[NDCG].difference.ci is None


def test_few_small_changes_among_many_queries_pass() -> None:
    difference = np.zeros(400)
    difference[:3] = -0.1
    assert gate_of(difference, margin=0.01).verdict == "passed"
    difference[:3] = -0.5
    assert gate_of(difference, margin=0.001).verdict == "undecided"


@pytest.mark.parametrize("queries", [12, 50])
def test_error_rates_are_those_of_a_95_percent_interval(queries: int) -> None:
    """Equal candidates are called worse, and ones worse by the margin pass, in 2.5% of cases."""
    rng = np.random.default_rng(queries)
    trials, margin = 40_000, 0.05
    error = 4 * np.sqrt(0.025 * 0.975 / trials) + 0.004  # lattices are not normal
    for noise in (
        rng.normal(0, 0.2, (trials, queries)),
        rng.integers(-2, 3, (trials, queries)) / 10,
    ):
        equal = difference_intervals(noise, 1.0)
        worse = difference_intervals(noise - margin, 1.0)
        assert abs((equal[:, 1] < 0).mean() - 0.025) < error
        assert abs((worse[:, 0] > -margin).mean() - 0.025) < error
    # the verdict itself reads these ends
    for row in rng.normal(0, 0.2, (20, queries)):
        gate = gate_of(row, margin)
        low, high = difference_intervals(row[None], 1.0)[0]
        label = "passed" if low > -margin else "worse" if high < 0 else "undecided"
        assert gate.verdict == label


def test_each_measure_has_its_margin_and_one_worse_is_enough() -> None:
    qrels = {f"q{n}": {"r": 1, "n": 0, "m": 0} for n in range(40)}
    before = {q: {"r": 3.0, "n": 2.0, "m": 1.0} for q in qrels}
    after = {q: {"n": 3.0, "r": 2.0, "m": 1.0} if n % 3 else before[q] for n, q in enumerate(qrels)}
    gate = rp.gate(qrels, before, after, {"nDCG@3": 0.5, "RR": 0.0})
    assert [gated.label for gated in gate.measures.values()] == ["passed", "worse"]
    assert (gate.verdict, gate.exit_code) == ("worse", 1)
    again = rp.gate(qrels, before, after, ["nDCG@3", "RR"], [0.5, 0.0])
    assert again.to_dict()["measures"] == gate.to_dict()["measures"]
    with pytest.raises(rp.InputError, match="3 margins for 2 measures"):
        rp.gate(QRELS, PLAIN, TIED, ["nDCG@10", "RR@10"], [0.1, 0.2, 0.3])
    with pytest.raises(rp.InputError, match="not a number from 0"):
        rp.gate(QRELS, PLAIN, TIED, "nDCG@10", -0.1)


def test_every_measure_must_pass_on_its_own_interval_and_worse_needs_all_together() -> None:
    margins = {parse("nDCG@10"): 0.5, parse("RR@10"): 0.0}
    alone = rp.gate(QRELS, PLAIN, TIED, "RR@10", 0.0).measures[parse("RR@10")].verdict
    beside = rp.gate(QRELS, PLAIN, TIED, margins)
    shared = beside.measures[parse("RR@10")].verdict
    assert alone.ci == alone.family_ci == shared.ci
    assert shared.family_ci is not None
    assert shared.ci is not None
    assert shared.family_ci[0] <= shared.ci[0]
    assert shared.ci[1] <= shared.family_ci[1]
    worse = "worse" if shared.family_ci[1] < 0 else "undecided"  # most of the top 10 is unjudged
    assert [gated.label for gated in beside.measures.values()] == ["passed", worse]


def renumbered(path: str, target: Path, share: float = 1.0) -> str:
    """Write the run with other ids for the documents of a share of the queries."""
    lines = []
    for line in Path(path).read_text().splitlines():
        parts = line.split()
        if int(parts[0].strip("q")) <= 30 * share:
            parts[2] = f"chunk-{parts[2]}"
        lines.append(" ".join(parts))
    target.write_text("\n".join(lines) + "\n")
    return str(target)


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_changed_ids_leave_the_gate_undecided_before_any_number(
    tmp_path: Path, share: float
) -> None:
    new = renumbered(PLAIN, tmp_path / "new.trec", share)
    gate = rp.gate(QRELS, PLAIN, new, "nDCG@10", 0.01)
    assert gate.labels.stale
    assert (gate.verdict, gate.exit_code) == ("undecided", 3)
    (sentence,) = gate.sentences()
    assert f"{30 * share:.0f} of 30 queries return no document that the judgments know" in sentence
    assert gate.tables() == []
    allowed = rp.gate(QRELS, PLAIN, new, "nDCG@10", 0.01, allow_undecided=True)
    assert allowed.exit_code == 3


@pytest.mark.parametrize(("hits", "label"), [(0.7, "undecided"), (0.2, "worse")])
@pytest.mark.parametrize("stored", [True, False])
def test_few_judgments_in_a_large_corpus_do_not_count_as_changed_ids(
    hits: float, label: str, stored: bool
) -> None:
    """Each query has one judgment, as in MS MARCO: nearly all that another engine lists is new."""
    rng = np.random.default_rng(0)
    gold = rng.choice(100_000, 200, replace=False)

    def run(share: float) -> dict[str, dict[str, float]]:
        lists = rng.integers(0, 100_000, (200, 20))
        lists[:, 3] = np.where(rng.random(200) < share, gold, lists[:, 3])
        return {
            f"q{q}": {f"d{doc}": -float(at) for at, doc in enumerate(docs)}
            for q, docs in enumerate(lists.tolist())
        }

    qrels = {f"q{q}": {f"d{doc}": 1} for q, doc in enumerate(gold.tolist())}
    before: Any = run(0.7)
    if stored:
        before = rp.evaluate(qrels, before, NDCG)
    gate = rp.gate(qrels, before, run(hits), NDCG)
    assert not gate.labels.stale
    assert gate.verdict == label


def test_runs_that_both_list_no_judged_document_do_not_pass_as_equal(tmp_path: Path) -> None:
    new = renumbered(PLAIN, tmp_path / "new.trec")
    gate = rp.gate(QRELS, new, new, "nDCG@10", 0.01)
    assert gate.measures[NDCG].difference.expected == 0
    assert gate.labels.neither == gate.labels.relevant > 0
    assert (gate.verdict, gate.passed) == ("undecided", False)


def test_a_candidate_that_is_bad_on_known_documents_is_worse_and_not_stale(tmp_path: Path) -> None:
    lines = [line.split() for line in Path(PLAIN).read_text().splitlines()]
    bad = "\n".join(f"{q} Q0 {doc} 1 {-float(score)} bad" for q, _, doc, _, score, _ in lines)
    (tmp_path / "bad.trec").write_text(bad + "\n")
    gate = rp.gate(QRELS, PLAIN, str(tmp_path / "bad.trec"), "nDCG@10")
    assert (gate.labels.stale, gate.verdict) == (False, "worse")


def test_a_baseline_may_be_what_eval_or_gate_wrote(tmp_path: Path) -> None:
    evaluated, gated = tmp_path / "eval.json", tmp_path / "gate.json"
    assert rankproof("eval", QRELS, PLAIN, "-m", "nDCG@10", "--out", str(evaluated)).returncode == 0
    done = rankproof(
        "gate",
        QRELS,
        str(evaluated),
        TIED,
        "-m",
        "nDCG@10",
        "--out",
        str(gated),
        "--format",
        "json",
    )
    assert done.returncode == 1
    direct = rp.gate(QRELS, PLAIN, TIED, "nDCG@10").to_dict()["measures"]["nDCG@10"]
    stored = json.loads(done.stdout)["measures"]["nDCG@10"]
    for figure in ("difference", "ci", "lowest", "highest", "verdict", "queries_needed", "p"):
        assert stored[figure] == pytest.approx(direct[figure])
    again = rankproof("gate", QRELS, str(gated), TIED, "-m", "nDCG@10")
    assert again.returncode == 0, again.stdout
    assert "PASSED: no query differs on nDCG@10." in again.stdout


def test_a_baseline_may_have_a_policy_field_of_a_later_version(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    rankproof("eval", QRELS, PLAIN, "-m", "nDCG@10", "--out", str(kept))
    data = json.loads(kept.read_text())
    data["policy"]["of a later version"] = True
    kept.write_text(json.dumps(data))
    assert rp.gate(QRELS, kept, PLAIN, "nDCG@10").passed


def test_a_baseline_of_other_judgements_or_another_policy_is_refused(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    rankproof("eval", QRELS, PLAIN, "-m", "nDCG@10", "--out", str(kept))
    more = Path(QRELS).read_text() + "q01 0 unheard-of 2\n"
    (tmp_path / "qrels.txt").write_text(more)
    done = rankproof("gate", str(tmp_path / "qrels.txt"), str(kept), PLAIN, "-m", "nDCG@10")
    assert done.returncode == 2
    assert "the judgments have changed; evaluate the baseline again" in done.stderr
    skipping = rp.evaluate(QRELS, PLAIN, "nDCG@10", missing="skip")
    with pytest.raises(rp.InputError, match="missing was 'skip' there and is 'zero' here"):
        rp.gate(QRELS, skipping, PLAIN, "nDCG@10")


def test_a_result_without_single_queries_says_how_to_write_one(tmp_path: Path) -> None:
    path = tmp_path / "eval.json"
    path.write_text(rankproof("eval", QRELS, PLAIN, "-m", "nDCG@10", "--format", "json").stdout)
    done = rankproof("gate", QRELS, str(path), TIED, "-m", "nDCG@10")
    assert done.returncode == 2
    assert "no values of single queries" in done.stderr
    assert "eval --out" in done.stderr
    kept = tmp_path / "kept.json"
    rankproof("eval", QRELS, PLAIN, "-m", "nDCG@10", "--out", str(kept))
    with pytest.raises(rp.InputError, match=r"no values of RR@10; there are nDCG@10"):
        rp.gate(QRELS, kept, TIED, "RR@10")
    with pytest.raises(rp.InputError, match="order was 'input' there and is 'docid' here"):
        rp.gate(QRELS, kept, TIED, "nDCG@10", order="docid")


def test_json_has_its_keys_and_the_exit_code_is_that_of_the_verdict(tmp_path: Path) -> None:
    done = rankproof("gate", QRELS, PLAIN, PLAIN, "-m", "nDCG@10", "--format", "json")
    assert done.returncode == 0
    data = json.loads(done.stdout)
    assert (data["passed"], data["verdict"]) == (True, "passed")
    figures = data["measures"]["nDCG@10"]
    wanted = {"difference", "ci", "lowest", "highest", "holes", "margin", "queries_needed"}
    assert wanted <= set(figures)
    assert figures["holes"][0] <= figures["difference"] <= figures["holes"][1]
    junit, summary = tmp_path / "junit.xml", tmp_path / "summary.md"
    done = rankproof(
        *("gate", QRELS, PLAIN, TIED, "-m", "nDCG@10", "-m", "R@100", "--junit", str(junit)),
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert done.returncode == 1
    suite = ET.fromstring(junit.read_text())
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert "demo-saturated loses 0.0826 on nDCG@10" in str(suite.findtext("testcase/failure"))
    assert re.search(r"\| nDCG@10 .*\| worse *\|", summary.read_text())
    assert rankproof("gate", QRELS, PLAIN, str(tmp_path / "none.trec")).returncode == 2


def test_junit_is_xml_whatever_a_run_is_called() -> None:
    base = np.full(40, 0.5)
    shares = {NDCG: 1.0}
    sides = [side('a\x0b<&"]]>\x1b[31m\n', base, shares), side("b\ud83d", base - 0.3, shares)]
    gate = gate_sides(judgments(40), sides[0], sides[1], {NDCG: 0.01})
    suite = ET.fromstring(gate.junit())
    assert suite.attrib["failures"] == "1"
    (failure,) = suite.iter("failure")
    assert failure.get("message") == "worse"
    assert "loses 0.3000 on nDCG@10" in (failure.text or "")


def test_fail_if_is_the_simple_case(tmp_path: Path) -> None:
    assert rankproof("eval", QRELS, PLAIN, "--fail-if", "nDCG@10 < 0.42").returncode == 0
    done = rankproof("eval", QRELS, PLAIN, TIED, "--fail-if", "nDCG@10 < 0.65")
    assert done.returncode == 1
    assert "demo-saturated: nDCG@10 is 0.5979: nDCG@10 < 0.65" in done.stderr
    assert "demo-plain:" not in done.stderr
    for wrong in ("nDCG@10", "nDCG@10 < much", "nDCG@10 = 0.4", "nDCG@10 < nan"):
        assert rankproof("eval", QRELS, PLAIN, "--fail-if", wrong).returncode == 2


def test_a_condition_means_the_level_that_the_option_gives(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("q1 0 a 1\nq1 0 b 2\n")
    (tmp_path / "run").write_text("q1 Q0 a 1 2 t\nq1 Q0 b 2 1 t\n")
    files = (str(tmp_path / "qrels"), str(tmp_path / "run"))
    for names in (["-m", "AP"], []):
        done = rankproof("eval", *files, *names, "--level", "2", "--fail-if", "AP < 0.9")
        assert done.returncode == 1
        assert "run: AP(rel=2) is 0.5000: AP < 0.9" in done.stderr
    conditions = ("--fail-if", "map < 0.9", "--fail-if", "AP(rel=1) < 0.9")
    done = rankproof("eval", *files, "-m", "AP", "--level", "2", *conditions)
    assert done.stderr.count("map < 0.9") == 1
    assert "AP(rel=1)" not in done.stderr, "a measure that names its level keeps it"
    same = ("-m", "AP", "-m", "AP(rel=2)", "--level", "2", "--format", "json")
    (run,) = json.loads(rankproof("eval", *files, *same).stdout)["runs"]
    assert list(run["measures"]) == ["AP(rel=2)"]


def sweep_folder(folder: Path, seed: int, digest: str) -> Path:
    rng = np.random.default_rng(seed)
    folder.mkdir()
    names = ["dense K=10", "bm25 K=10"]
    pl.DataFrame(
        {"configuration": names, "cost_per_1000": [1.0, 0.5], "latency_p50_ms": [5.0, 4.0]}
        | {"latency_p95_ms": [9.0, 8.0], "best": [True, False], "RAnWG@10": [0.6, 0.5]}
    ).write_parquet(folder / "configurations.parquet")
    rows = [
        {"configuration": name, "query": f"q{q}", "measure": "RAnWG@10", "value": float(value)}
        for name in names
        for q, value in enumerate(rng.random(30))
    ]
    pl.DataFrame(rows).write_parquet(folder / "per_query.parquet")
    made = {"best_by": "RAnWG@10", "inputs": {"corpus": {"file": "c", "sha256": digest}}}
    (folder / "sweep.json").write_text(json.dumps(made))
    return folder


def test_sweeps_and_recommendations_can_be_gated(tmp_path: Path) -> None:
    from rankproof.tradeoffs.recommend import recommend

    old = sweep_folder(tmp_path / "old", 1, "a")
    new = sweep_folder(tmp_path / "new", 2, "a")
    moved = sweep_folder(tmp_path / "moved", 2, "b")
    qrels = {f"q{q}": {"d": 5} for q in range(30)}
    gate = rp.gate(qrels, old, new, "RAnWG@10", 0.05)
    assert (gate.candidate, gate.measures[parse("RAnWG@10")].difference.queries) == (
        "dense K=10 (candidate)",
        30,
    )
    named = rp.gate(qrels, old, f"{new}::bm25 K=10", "RAnWG@10", 0.05)
    assert named.candidate == "bm25 K=10"
    chosen = recommend(new, budget=0.7)
    assert rp.gate(qrels, old, chosen, "RAnWG@10", 0.05).candidate == "bm25 K=10"
    stale = rp.gate(qrels, old, moved, "RAnWG@10", 0.05)
    assert "the corpus is another one (corpus differs by digest)" in str(stale)
    assert stale.verdict == "undecided"


# ---------------------------------------------------- a candidate that was evaluated on less


def part_of(run: dict[str, dict[str, float]], queries: int) -> dict[str, dict[str, float]]:
    return dict(list(run.items())[:queries])


WHOLE = {f"q{n:03}": {f"d{n}": 1.0, "x": 0.0} for n in range(100)}
JUDGED = {f"q{n:03}": {f"d{n}": 1} for n in range(100)}


def written_run(path: Path, run: dict[str, dict[str, float]]) -> str:
    rows = [
        f"{query} Q0 {doc} 1 {score} t\n"
        for query, docs in run.items()
        for doc, score in docs.items()
    ]
    path.write_text("".join(rows))
    return str(path)


LESS: list[dict[str, Any]] = [
    {"like": "trec_eval"},
    {"like": "trec_eval10"},
    {"like": "mteb"},
    {"like": "gdeval"},
    {"missing": "skip"},
    {"candidates_only": True},
    {"candidates_only": True, "missing": "skip"},
    {"candidates_only": True, "like": "ir_measures"},
]


@pytest.mark.parametrize("policy", LESS, ids=str)
@pytest.mark.parametrize("stored", ["neither", "baseline", "both"])
def test_a_candidate_on_fewer_queries_never_passes(policy: dict[str, Any], stored: str) -> None:
    before: Any = WHOLE
    after: Any = part_of(WHOLE, 8)
    if stored != "neither":
        before = rp.evaluate(JUDGED, before, "AP", **policy)
    if stored == "both":
        after = rp.evaluate(JUDGED, after, "AP", **policy)
    gate = rp.gate(JUDGED, before, after, "AP", allow_undecided=True, **policy)
    if "ir_measures" in policy.values():  # counts missing queries as 0
        label = "worse" if stored == "neither" else "undecided"  # stored without bounds
        assert (gate.verdict, gate.passed) == (label, False)
        return
    assert (gate.verdict, gate.exit_code) == ("undecided", 3), "allowing undecided changes nothing"
    (reason,) = gate.sentences()
    assert "92 of 100 queries" in reason
    if "candidates_only" in policy:
        assert "rerank the same candidates" in reason
    else:
        assert f"are missing from {gate.candidate}" in reason
    assert list(gate.to_dict()["missing"].values()) == [92]
    suite = ET.fromstring(gate.junit())
    assert suite.get("failures") == "1"
    assert "92 of 100 queries" in str(suite.findtext("testcase/failure"))
    assert "92 of 100 queries" in gate.markdown()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "json", "md", "csv"])
def test_a_candidate_without_most_queries_exits_3_and_says_why_in_every_format(
    tmp_path: Path, form: str
) -> None:
    before = written_run(tmp_path / "base", WHOLE)
    after = written_run(tmp_path / "cand", part_of(WHOLE, 8))
    qrels = tmp_path / "q"
    qrels.write_text("".join(f"{q} 0 {d} 1\n" for q, docs in JUDGED.items() for d in docs))
    options = ("-m", "AP", "--like", "trec_eval", "--format", form, "--allow-undecided")
    kept = tmp_path / "kept.json"
    done = rankproof("gate", str(qrels), before, after, *options, "--out", str(kept))
    assert done.returncode == 3
    reason = "UNDECIDED (exit 3): 92 of 100 queries are missing from cand."
    assert reason in json.loads(kept.read_text())["sentences"]
    if form in ("table", "md"):
        assert reason in done.stdout
    if form == "json":
        data = json.loads(done.stdout)
        assert (data["passed"], data["verdict"]) == (False, "undecided")
        assert data["missing"] == {"cand": 92}
        assert data["measures"]["AP"]["shortfall"] == {"queries": 92, "relevant": 0}
    stored = tmp_path / "base.json"
    evaluated = ("-m", "AP", "--like", "trec_eval", "--out", str(stored))
    assert rankproof("eval", str(qrels), before, *evaluated).returncode == 0
    assert rankproof("gate", str(qrels), str(stored), after, *options).returncode == 3
    assert rankproof("gate", str(qrels), str(stored), before, *options).returncode == 0


def test_a_candidate_that_counts_missing_queries_as_0_may_lack_one() -> None:
    gate = rp.gate(JUDGED, WHOLE, part_of(WHOLE, 99), "AP", margin=0.1)
    assert gate.passed
    assert "candidate: 1 judged query is missing from the run; missing queries count 0." in str(
        gate
    )
    same = rp.gate(JUDGED, WHOLE, WHOLE, "AP", like="trec_eval")
    assert same.passed
    assert "missing" not in str(same)
    assert "missing" not in same.to_dict()
    more = rp.gate(JUDGED, part_of(WHOLE, 8), WHOLE, "AP", like="trec_eval")
    assert more.passed, "the candidate may have more queries than the baseline"


def test_a_condition_fails_where_queries_are_missing_and_skipped(tmp_path: Path) -> None:
    run = written_run(tmp_path / "cand", part_of(WHOLE, 8))
    qrels = tmp_path / "q"
    qrels.write_text("".join(f"{q} 0 {d} 1\n" for q, docs in JUDGED.items() for d in docs))
    command = ("eval", str(qrels), run, "--fail-if", "AP < 0.9")
    skipped = rankproof(*command, "--missing", "skip")
    assert skipped.returncode == 1
    assert "cand: 92 of 100 judged queries are missing from the run (AP < 0.9)" in skipped.stderr
    assert rankproof(*command).returncode == 1, "they count 0"


def test_as_many_queries_as_the_baseline_are_not_enough_if_they_are_others() -> None:
    qrels, names = JUDGED, list(WHOLE)
    before = {name: WHOLE[name] for name in names[:60]}
    after = {name: WHOLE[name] for name in names[40:]}
    gate = rp.gate(qrels, before, after, "AP", missing="skip")
    assert not gate.passed
    assert "40 of 60 queries are without a value in candidate" in str(gate)


def test_a_missing_query_is_no_gain_where_less_is_better() -> None:
    qrels = {f"q{n}": {"good": 5, "bad": 1} for n in range(40)}
    harmful = {q: {"bad": 2.0, "good": 1.0} for q in qrels}
    after = {q: docs for q, docs in harmful.items() if q < "q2"}
    for candidate in (after, rp.evaluate(qrels, after, "Harm@2")):
        gate = rp.gate(qrels, harmful, candidate, "Harm@2")
        assert not gate.passed
        assert f"lacks {len(qrels) - len(after)} queries of baseline" in str(gate)
        assert "run it on all queries" in str(gate)
    helped = {q: {"good": 2.0} for q in qrels}
    assert rp.gate(qrels, harmful, helped, "Harm@2").passed


def test_a_candidate_that_lists_fewer_relevant_documents_does_not_pass() -> None:
    """Among candidates alone, what a run does not find does not count against it."""
    qrels = {f"q{n}": {"a": 1, "b": 1, "c": 2} for n in range(20)}
    before: Any = {q: {"a": 4.0, "x": 3.0, "b": 2.0, "c": 1.0} for q in qrels}
    fewer = {q: {"a": 4.0, "x": 3.0} if n < 5 else before[q] for n, q in enumerate(qrels)}
    for measure in ("nDCG", "AP", "R@10"):
        stored = rp.evaluate(qrels, before, measure, candidates_only=True)
        for baseline in (before, stored):
            gate = rp.gate(
                qrels, baseline, fewer, measure, candidates_only=True, allow_undecided=True
            )
            (gated,) = gate.measures.values()
            assert gated.lost_relevant == 10
            assert (gate.verdict, gate.exit_code) == ("undecided", 3)
            sentence = " ".join(gate.sentences())
            assert "candidate lists 10 relevant documents fewer than" in sentence
            assert "in 5 queries" in sentence
    assert rp.gate(qrels, before, before, "nDCG", candidates_only=True).passed
    assert not rp.gate(qrels, before, fewer, "nDCG", 0.01)


def test_more_relevant_documents_on_one_query_do_not_hide_fewer_on_another() -> None:
    qrels = {f"q{n}": {"a": 1, "b": 1, "c": 2} for n in range(20)}
    some, every = {"a": 2.0, "c": 1.0}, {"a": 3.0, "b": 2.0, "c": 1.0}
    before = {q: every if n < 10 else some for n, q in enumerate(qrels)}
    after = {q: some if n < 10 else every for n, q in enumerate(qrels)}
    gate = rp.gate(qrels, before, after, "RR", candidates_only=True)
    assert gate.measures[rp.RR].lost_relevant == 10
    assert not gate.passed
    lower = {q: {"a": 2.0, "b": 1.0} if n < 10 else some for n, q in enumerate(qrels)}
    graded = rp.gate(qrels, dict.fromkeys(qrels, some), lower, "RR", candidates_only=True)
    assert graded.measures[rp.RR].lost_relevant == 10, "as many, but of a lower grade"
    assert not graded.passed


def test_a_stored_result_whose_judgements_changed_is_refused_where_queries_are_skipped() -> None:
    stored = rp.evaluate(JUDGED, WHOLE, "AP", missing="skip")
    more = {q: {**docs, "y": 1} for q, docs in JUDGED.items()}
    with pytest.raises(rp.InputError, match="its queries now have 200: the judgments have"):
        rp.gate(more, stored, WHOLE, "AP", missing="skip")


def test_a_sweep_with_fewer_queries_does_not_pass(tmp_path: Path) -> None:
    old, new = sweep_folder(tmp_path / "old", 1, "a"), sweep_folder(tmp_path / "new", 1, "a")
    values = pl.read_parquet(new / "per_query.parquet")
    values.filter(pl.col("query").is_in(["q1", "q2", "q3"])).write_parquet(
        new / "per_query.parquet"
    )
    qrels = {f"q{q}": {"d": 5} for q in range(30)}
    gate = rp.gate(qrels, old, new, "RAnWG@10")
    assert gate.verdict == "undecided"
    assert "27 of 30 queries are without a value in dense K=10" in str(gate)
    assert gate.measures[parse("RAnWG@10")].verdict.only_b == 27


# --------------------------------------------------------------------------- the documents

PAGE = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")


def block(language: str, holding: str) -> str:
    blocks: list[str] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.S | re.M)
    return next(text for text in blocks if holding in text)


@pytest.mark.slow
def test_the_pytest_example_of_the_page_fails_with_the_sentence(tmp_path: Path) -> None:
    for name, source in (("qrels.txt", QRELS), ("baseline.trec", PLAIN), ("candidate.trec", TIED)):
        (tmp_path / name).write_bytes(Path(source).read_bytes())
    (tmp_path / "test_retrieval.py").write_text(block("python", "def test_"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_retrieval.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert "most: q02 -0.510" in done.stdout
    (tmp_path / "candidate.trec").write_bytes(Path(PLAIN).read_bytes())
    again = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_retrieval.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert again.returncode == 0, again.stdout


def commands(text: str) -> list[list[str]]:
    joined = text.replace("\\\n", " ")
    return [line.split() for line in joined.splitlines() if line.strip().startswith("rankproof ")]


def test_the_workflow_of_the_page_is_yaml_and_its_commands_run(tmp_path: Path) -> None:
    workflow = yaml.safe_load(block("yaml", "runs-on"))
    steps = workflow["jobs"]["gate"]["steps"]
    lines = [words for step in steps for words in commands(step.get("run", ""))]
    assert lines
    for name, source in (("qrels.txt", QRELS), ("baseline.trec", PLAIN), ("candidate.trec", PLAIN)):
        (tmp_path / name).write_bytes(Path(source).read_bytes())
    for words in lines:
        done = in_text(*words[1:], cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)
    assert (tmp_path / "gate.xml").is_file()


def test_the_pre_commit_example_of_the_page_is_yaml_and_its_entry_runs(tmp_path: Path) -> None:
    hook = yaml.safe_load(block("yaml", "hooks:"))["repos"][0]["hooks"][0]
    (words,) = commands(hook["entry"])
    for name, source in (("qrels.txt", QRELS), ("baseline.trec", PLAIN), ("candidate.trec", TIED)):
        (tmp_path / name).write_bytes(Path(source).read_bytes())
    assert in_text(*words[1:], cwd=tmp_path).returncode == 1


def test_ties_are_named_apart_from_unjudged_documents() -> None:
    qrels = {f"q{n}": {"d0": 1, "d1": 0, "d2": 0} for n in range(12)}
    ahead = {q: {"d0": 1.0, "d1": 1.0, "d2": 0.5} for q in qrels}
    behind = {q: {"d0": 1.0, "d1": 1.0, "d2": 1.0} for q in qrels}
    text = str(rp.gate(qrels, ahead, behind, "RR@3", margin=0.01))
    assert "Ties matter on RR@3: -0.6667 to +0.5000 over all orders; the mean decides." in text
    assert "unjudged" not in text
    unjudged = {q: {"x": 2.0, **listed} for q, listed in behind.items()}
    gate = rp.gate(qrels, ahead, unjudged, "RR@3", margin=0.01, allow_undecided=True)
    assert gate.exit_code == 3, "a loss as judged is final until the documents are judged"
    assert "candidate loses 0.4722 on RR@3, but only as judged." in str(gate)
    assert "Grades of unjudged documents could make it -1.0000 to +0.6323 on RR@3." in str(gate)
    assert gate.summary().next_step == "rankproof holes {inputs} --judge-next 50"


def test_two_queries_that_differ_are_too_few_to_plan_with() -> None:
    qrels = {q: {"r": 1, "n": 0} for q in ("p", "q", "s")}
    before = {q: {"r": 2.0, "n": 1.0} for q in qrels}
    after = {q: {"n": 2.0, "r": 1.0} if q != "s" else before["s"] for q in qrels}
    gate = rp.gate(qrels, before, after, "RR")
    assert gate.verdict == "undecided"
    assert gate.measures[rp.RR].queries_needed is None


def test_a_pass_says_what_unjudged_documents_could_make_of_it() -> None:
    """The baseline's second document is unjudged; the candidate has a judged one there."""
    qrels = {f"q{n:03}": {"r": 1, "n": 0, "m": 0} for n in range(400)}
    before = {q: {"r": 3.0, "u": 2.0, "m": 1.0} for q in qrels}
    after = {
        q: {"n": 3.0, "m": 2.0} if n < 9 else {"r": 3.0, "n": 2.0} for n, q in enumerate(qrels)
    }
    gate = rp.gate(qrels, before, after, "P@2", margin=0.03)
    assert gate.verdict == "passed"
    assert "Grades of unjudged documents could make it -0.5185 to -0.0040 on P@2." in str(gate)
    level = rp.gate(qrels, before, {q: {"r": 3.0, "n": 2.0} for q in qrels}, "P@2", margin=0.03)
    assert level.passed
    assert "Grades of unjudged documents could make it -0.5046 to 0.0000 on P@2." in str(level)
    same = rp.gate(qrels, before, before, ["AP", "P@2"])
    assert "Grades of unjudged" not in str(same)
    worst = same.measures[parse("AP")].verdict.worst_case
    assert worst == (0.0, 0.0)


def test_a_small_loss_that_ties_could_reverse_passes_with_a_note_on_ties() -> None:
    qrels = {f"q{n:02}": {"r": 1, "n": 0, "m": 0} for n in range(60)}
    sure, tied = {"r": 2.0, "n": 1.0}, {"r": 1.0, "n": 1.0, "m": 1.0}
    before = {q: sure if at % 2 else tied for at, q in enumerate(qrels)}
    after = {q: {"r": 1.0, "n": 1.0} if at in range(1, 14, 2) else before[q]
             for at, q in enumerate(qrels)}  # fmt: skip
    gate = rp.gate(qrels, before, after, "RR", margin=0.2)
    assert gate.verdict == "passed"
    assert gate.measures[rp.RR].bounds[1] < 0
    assert "Ties matter on RR" in str(gate)


def test_more_of_what_harms_is_worse() -> None:
    qrels = {f"q{n}": {"good": 5, "bad": 1, "poor": 2} for n in range(40)}
    sound = {q: {"good": 2.0, "x": 1.0} for q in qrels}
    harmful = {q: {"bad": 2.0, "poor": 1.0} if n % 2 else sound[q] for n, q in enumerate(qrels)}
    harm = parse("Harm@2")
    worse, better = rp.gate(qrels, sound, harmful, harm), rp.gate(qrels, harmful, sound, harm)
    assert (worse.verdict, better.verdict) == ("worse", "passed")
    assert worse.measures[harm].difference.expected > 0
    assert "candidate loses 0.5000 on Harm@2 (margin 0.01)" in worse.markdown()
    judged = {q: {**docs, "x": 3} for q, docs in qrels.items()}
    slight = rp.gate(judged, sound, harmful, harm, margin=0.9)
    assert slight.verdict == "passed"
    assert "candidate loses at most 0.6619 on Harm@2 (margin 0.9)" in str(slight)


def test_the_page_of_the_gate_shows_the_measured_table() -> None:
    root = Path(__file__).parents[1]
    page = (root / "docs" / "gate.md").read_text(encoding="utf-8")
    measured = (root / "bench" / "RESULTS.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| R@10, ")]
    assert len(rows) == 9
    assert rows == [line for line in measured.splitlines() if line.startswith("| R@10, ")]
