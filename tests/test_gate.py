"""The gate: its verdicts, what it says, and that its errors are as rare as it states."""

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
from rankproof.measures import Outcomes, parse
from rankproof.statistics.intervals import difference_intervals

ROOT = Path(__file__).parents[1]
DATA = Path(rp.__file__).parent / "resources"
QRELS, PLAIN, TIED = (
    str(DATA / name) for name in ("demo-qrels.txt", "demo-plain.trec", "demo-saturated.trec")
)
NDCG = parse("nDCG@10")


def rankproof(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return in_text(*arguments, env={"COLUMNS": "200", "NO_COLOR": "1", **environment})


def side(name: str, values: np.ndarray) -> Side:
    queries = pl.Series("query", [f"q{at:04d}" for at in range(len(values))])
    outcomes = {NDCG: Outcomes(values, values, values, values, np.zeros(len(values)))}
    return Side(Evaluation(name, queries, outcomes, Policy(), "float64"))


def judgements(queries: int) -> Qrels:
    return rp.read_qrels({f"q{at:04d}": {"d": 1} for at in range(queries)})


def verdict(difference: np.ndarray, margin: float = 0.05, **more: Any) -> rp.Gate:
    base = np.maximum(0.5, -difference)  # nDCG is never below 0
    return gate_sides(
        judgements(len(difference)),
        side("old", base),
        side("new", base + difference),
        [NDCG],
        {NDCG: margin},
        **more,
    )


def test_verdicts_are_read_from_the_interval_and_the_margin() -> None:
    noise = np.random.default_rng(0).normal(0, 0.05, 100)
    noise -= noise.mean()
    assert verdict(noise).verdict == "passed"
    assert verdict(noise - 0.2).verdict == "worse"
    unsure = verdict(noise * 8, margin=0.01)
    assert unsure.verdict == "undecided"
    assert not unsure
    assert verdict(noise * 8, margin=0.01, allow_undecided=True)
    within = verdict(noise - 0.02)
    assert within.verdict == "passed", "a loss within the margin for sure is what a margin is for"
    assert "The queries show it to be worse, by less than the margin" in str(within)


def test_the_sentence_says_what_differs_where_and_what_would_decide_it() -> None:
    difference = np.random.default_rng(1).normal(-0.01, 0.1, 40)
    difference[7] = -0.49
    found = verdict(difference, margin=0.01)
    gated = found.measures[NDCG]
    said = str(found)
    assert "q0007 -0.490" in said
    assert len(gated.most) == 5
    assert [abs(x) for _, x in gated.most] == sorted((abs(x) for _, x in gated.most), reverse=True)
    assert gated.needed is not None
    assert f"About {gated.needed} queries would decide it: {gated.needed - 40} more." in said
    assert repr(found) == said


def test_what_is_decided_needs_no_more_queries_in_the_table() -> None:
    """A table said worse by 30 queries, and beside it that 32 would decide it."""
    noise = np.random.default_rng(1).normal(0, 0.1, 30)
    for shift, needs in ((-0.2, False), (0.0, False), (-0.03, True)):
        found = verdict(noise - noise.mean() + shift)
        (needed,) = found.tables()[0].plain()["queries needed"]
        assert (found.verdict == "undecided") == needs == (needed is not None)


def test_equal_runs_pass_whatever_the_margin() -> None:
    found = verdict(np.zeros(3), margin=0.0)
    assert found.passed
    assert "No query of 3 differs." in str(found)


def test_queries_that_all_change_alike_leave_what_others_would_do_open() -> None:
    found = verdict(np.full(8, -0.01), margin=0.05)
    assert found.verdict == "undecided", "a point of an interval let it pass"
    for few in (found, verdict(np.full(2, -0.2))):
        assert few.measures[NDCG].needed is None
        assert "would decide it" not in str(few)
    assert "95% from -0.3" in str(found)
    assert verdict(np.full(8, -0.9)).verdict == "worse"
    qrels = {f"q{n}": {"r": 1, "n": 0} for n in range(8)}
    before = {q: {"r": 2.0, "n": 1.0, "m": 0.5} for q in qrels}
    after = {q: {"r": 2.0, "n": 1.0} for q in qrels}  # one less, which is not the most there is
    far = rp.gate(qrels, before, after, "NumRet")
    assert far.verdict == "undecided"
    assert "all alike, and so without an interval" in str(far)
    assert far.to_dict()["measures"]["NumRet"]["bounds"] == [None, None]
    assert verdict(np.zeros(3)).to_dict()["measures"]["nDCG@10"]["queries_needed"] is None


def test_three_cases_that_flake_are_undecided_and_not_worse() -> None:
    # recall .467 → .400 on three cases, with nothing changed
    found = verdict(np.array([0.0, -0.2, 0.0]), margin=0.02)
    assert found.verdict == "undecided"
    assert found.measures[NDCG].difference.ci is None
    assert "too few for an interval" in str(found)


def test_few_small_changes_among_many_queries_pass() -> None:
    difference = np.zeros(400)
    difference[:3] = -0.1
    assert verdict(difference, margin=0.01).verdict == "passed"
    difference[:3] = -0.5
    assert verdict(difference, margin=0.001).verdict == "undecided"


@pytest.mark.parametrize("queries", [12, 50])
def test_its_error_rates_are_those_it_states(queries: int) -> None:
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
        found = verdict(row, margin)
        low, high = difference_intervals(row[None], 1.0)[0]
        expected = "passed" if low > -margin else "worse" if high < 0 else "undecided"
        assert found.verdict == expected


def test_each_measure_has_its_margin_and_one_worse_is_enough() -> None:
    found = rp.gate(QRELS, PLAIN, TIED, {"nDCG@10": 0.5, "RR@10": 0.0})
    assert [g.verdict for g in found.measures.values()] == ["passed", "worse"]
    assert found.verdict == "worse"
    assert not found.passed
    again = rp.gate(QRELS, PLAIN, TIED, ["nDCG@10", "RR@10"], [0.5, 0.0])
    assert again.to_dict()["measures"] == found.to_dict()["measures"]
    with pytest.raises(rp.InputError, match="3 margins for 2 measures"):
        rp.gate(QRELS, PLAIN, TIED, ["nDCG@10", "RR@10"], [0.1, 0.2, 0.3])
    with pytest.raises(rp.InputError, match="not a number from 0"):
        rp.gate(QRELS, PLAIN, TIED, "nDCG@10", -0.1)


def turned(path: str, target: Path, share: float = 1.0) -> str:
    """The same run over a corpus whose ids turned over."""
    lines = []
    for line in Path(path).read_text().splitlines():
        parts = line.split()
        if int(parts[0].strip("q")) <= 30 * share:
            parts[2] = f"chunk-{parts[2]}"
        lines.append(" ".join(parts))
    target.write_text("\n".join(lines) + "\n")
    return str(target)


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_labels_that_no_longer_describe_the_corpus_are_not_called_worse(
    tmp_path: Path, share: float
) -> None:
    new = turned(PLAIN, tmp_path / "new.trec", share)
    found = rp.gate(QRELS, PLAIN, new, "nDCG@10", 0.01)
    assert found.labels.stale
    assert found.verdict == "undecided"
    assert not found.passed
    assert "labels no longer describe the corpus" in str(found)
    assert not rp.gate(QRELS, PLAIN, new, "nDCG@10", 0.01, allow_undecided=True)


@pytest.mark.parametrize(("hits", "verdict"), [(0.7, "undecided"), (0.2, "worse")])
@pytest.mark.parametrize("stored", [True, False])
def test_few_labels_in_a_large_corpus_are_not_stale(
    hits: float, verdict: str, stored: bool
) -> None:
    """One label a query, as in MS MARCO: nearly all that another engine lists is new."""
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
    found = rp.gate(qrels, before, run(hits), NDCG)
    assert not found.labels.stale
    assert found.verdict == verdict


def test_labels_that_neither_run_lists_do_not_let_both_pass_at_zero(tmp_path: Path) -> None:
    new = turned(PLAIN, tmp_path / "new.trec")
    found = rp.gate(QRELS, new, new, "nDCG@10", 0.01)
    assert found.measures[NDCG].difference.expected == 0
    assert found.labels.neither == found.labels.relevant > 0
    assert (found.verdict, found.passed) == ("undecided", False)


def test_a_candidate_that_is_bad_on_known_documents_is_worse_and_not_stale(tmp_path: Path) -> None:
    lines = [line.split() for line in Path(PLAIN).read_text().splitlines()]
    bad = "\n".join(f"{q} Q0 {doc} 1 {-float(score)} bad" for q, _, doc, _, score, _ in lines)
    (tmp_path / "bad.trec").write_text(bad + "\n")
    found = rp.gate(QRELS, PLAIN, str(tmp_path / "bad.trec"), "nDCG@10")
    assert (found.labels.stale, found.verdict) == (False, "worse")


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
    assert "No query of 30 differs." in again.stdout


def test_a_baseline_may_tell_more_of_its_policy_than_is_known_here(tmp_path: Path) -> None:
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
    assert "the judgements have changed; evaluate the baseline again" in done.stderr
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


def test_json_is_as_it_was_fixed_and_exit_codes_too(tmp_path: Path) -> None:
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
    assert "Changed most" in str(suite.findtext("testcase/failure"))
    assert "| nDCG@10 | worse |" in summary.read_text()
    assert rankproof("gate", QRELS, PLAIN, str(tmp_path / "none.trec")).returncode == 2


def test_junit_is_xml_whatever_a_run_is_called() -> None:
    base = np.full(40, 0.5)
    names = [side('a\x0b<&"]]>\x1b[31m\n', base), side("b\ud83d", base - 0.3)]
    found = gate_sides(judgements(40), names[0], names[1], [NDCG], {NDCG: 0.01})
    suite = ET.fromstring(found.junit())
    assert suite.attrib["failures"] == "1"
    (failure,) = suite.iter("failure")
    assert "nDCG@10: worse." in (failure.text or "")


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
    found = rp.gate(qrels, old, new, "RAnWG@10", 0.05)
    assert (found.candidate, found.measures[parse("RAnWG@10")].difference.queries) == (
        "dense K=10 (candidate)",
        30,
    )
    named = rp.gate(qrels, old, f"{new}::bm25 K=10", "RAnWG@10", 0.05)
    assert named.candidate == "bm25 K=10"
    chosen = recommend(new, budget=0.7)
    assert rp.gate(qrels, old, chosen, "RAnWG@10", 0.05).candidate == "bm25 K=10"
    stale = rp.gate(qrels, old, moved, "RAnWG@10", 0.05)
    assert "corpus differs by digest" in str(stale)
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
    found = rp.gate(JUDGED, before, after, "AP", allow_undecided=True, **policy)
    assert found.verdict in ("undecided", "worse")
    assert not found.passed
    (reason,) = [line for line in found.sentences() if line.startswith("Cannot pass: ")]
    assert "92" in reason
    wanted = "rerank the same candidates" if "candidates_only" in policy else "--missing zero"
    assert wanted in reason
    assert "92 judged queries are missing from" in str(found)
    assert list(found.to_dict()["missing"].values()) == [92]
    suite = ET.fromstring(found.junit())
    assert suite.get("failures") == "1"
    assert "Cannot pass: " in str(suite.findtext("testcase/failure"))
    assert "Cannot pass: " in found.markdown()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "json", "md", "csv"])
def test_the_command_says_why_it_did_not_pass_and_stops(tmp_path: Path, form: str) -> None:
    before = written_run(tmp_path / "base", WHOLE)
    after = written_run(tmp_path / "cand", part_of(WHOLE, 8))
    qrels = tmp_path / "q"
    qrels.write_text("".join(f"{q} 0 {d} 1\n" for q, docs in JUDGED.items() for d in docs))
    options = ("-m", "AP", "--like", "trec_eval", "--format", form, "--allow-undecided")
    kept = tmp_path / "kept.json"
    done = rankproof("gate", str(qrels), before, after, *options, "--out", str(kept))
    assert done.returncode == 1
    reason = (
        "Cannot pass: cand has no value for 92 of the 100 queries of base; "
        "run it on all queries, or count missing queries as 0 (--missing zero)."
    )
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
    assert rankproof("gate", str(qrels), str(stored), after, *options).returncode == 1
    assert rankproof("gate", str(qrels), str(stored), before, *options).returncode == 0


def test_a_candidate_that_counts_missing_queries_as_0_may_lack_one() -> None:
    found = rp.gate(JUDGED, WHOLE, part_of(WHOLE, 99), "AP", margin=0.1)
    assert found.passed
    assert "1 judged query is missing from candidate; missing queries count 0." in str(found)
    same = rp.gate(JUDGED, WHOLE, WHOLE, "AP", like="trec_eval")
    assert same.passed
    assert "missing" not in str(same)
    assert "missing" not in same.to_dict()
    more = rp.gate(JUDGED, part_of(WHOLE, 8), WHOLE, "AP", like="trec_eval")
    assert more.passed, "the candidate may have more queries than the baseline"


def test_a_condition_on_fewer_queries_says_so(tmp_path: Path) -> None:
    run = written_run(tmp_path / "cand", part_of(WHOLE, 8))
    qrels = tmp_path / "q"
    qrels.write_text("".join(f"{q} 0 {d} 1\n" for q, docs in JUDGED.items() for d in docs))
    command = ("eval", str(qrels), run, "--fail-if", "AP < 0.9")
    skipped = rankproof(*command, "--missing", "skip")
    assert skipped.returncode == 0
    assert "92 judged queries are missing from cand; missing queries are left out" in skipped.stderr
    assert rankproof(*command).returncode == 1, "they count 0"


def test_as_many_queries_as_the_baseline_are_not_enough_if_they_are_others() -> None:
    qrels, names = JUDGED, list(WHOLE)
    before = {name: WHOLE[name] for name in names[:60]}
    after = {name: WHOLE[name] for name in names[40:]}
    found = rp.gate(qrels, before, after, "AP", missing="skip")
    assert not found.passed
    assert "no value for 40 of the 60 queries" in str(found)


def test_a_missing_query_is_no_gain_where_less_is_better() -> None:
    qrels = {f"q{n}": {"good": 5, "bad": 1} for n in range(40)}
    harmful = {q: {"bad": 2.0, "good": 1.0} for q in qrels}
    after = {q: docs for q, docs in harmful.items() if q < "q2"}
    for candidate in (after, rp.evaluate(qrels, after, "Harm@2")):
        found = rp.gate(qrels, harmful, candidate, "Harm@2")
        assert not found.passed
        assert found.measures[parse("Harm@2")].shortfall.queries == len(qrels) - len(after)
        assert "run it on all queries" in str(found)
    helped = {q: {"good": 2.0} for q in qrels}
    assert rp.gate(qrels, harmful, helped, "Harm@2").passed


def test_a_candidate_that_finds_fewer_relevant_documents_does_not_pass_by_hiding_them() -> None:
    """Among candidates alone, what a run does not find does not count against it."""
    qrels = {f"q{n}": {"a": 1, "b": 1, "c": 2} for n in range(20)}
    before: Any = {q: {"a": 4.0, "x": 3.0, "b": 2.0, "c": 1.0} for q in qrels}
    fewer = {q: {"a": 4.0, "x": 3.0} if n < 5 else before[q] for n, q in enumerate(qrels)}
    for measure in ("nDCG", "AP", "R@10"):
        stored = rp.evaluate(qrels, before, measure, candidates_only=True)
        for baseline in (before, stored):
            found = rp.gate(qrels, baseline, fewer, measure, candidates_only=True)
            (gated,) = found.measures.values()
            assert gated.shortfall.relevant == 10
            assert found.verdict == "undecided"
            assert not found.passed
            assert "candidate lists 10 relevant documents fewer than" in str(found)
    assert rp.gate(qrels, before, before, "nDCG", candidates_only=True).passed
    assert not rp.gate(qrels, before, fewer, "nDCG", 0.01)


def test_more_relevant_documents_on_one_query_do_not_hide_fewer_on_another() -> None:
    qrels = {f"q{n}": {"a": 1, "b": 1, "c": 2} for n in range(20)}
    some, every = {"a": 2.0, "c": 1.0}, {"a": 3.0, "b": 2.0, "c": 1.0}
    before = {q: every if n < 10 else some for n, q in enumerate(qrels)}
    after = {q: some if n < 10 else every for n, q in enumerate(qrels)}
    found = rp.gate(qrels, before, after, "RR", candidates_only=True)
    assert found.measures[rp.RR].shortfall.relevant == 10
    assert not found.passed
    lower = {q: {"a": 2.0, "b": 1.0} if n < 10 else some for n, q in enumerate(qrels)}
    graded = rp.gate(qrels, dict.fromkeys(qrels, some), lower, "RR", candidates_only=True)
    assert graded.measures[rp.RR].shortfall.relevant == 10, "as many, but of a lower grade"
    assert not graded.passed


def test_a_stored_result_whose_judgements_changed_is_refused_where_queries_are_skipped() -> None:
    stored = rp.evaluate(JUDGED, WHOLE, "AP", missing="skip")
    more = {q: {**docs, "y": 1} for q, docs in JUDGED.items()}
    with pytest.raises(rp.InputError, match="its queries now have 200: the judgements have"):
        rp.gate(more, stored, WHOLE, "AP", missing="skip")


def test_a_sweep_with_fewer_queries_does_not_pass(tmp_path: Path) -> None:
    old, new = sweep_folder(tmp_path / "old", 1, "a"), sweep_folder(tmp_path / "new", 1, "a")
    values = pl.read_parquet(new / "per_query.parquet")
    values.filter(pl.col("query").is_in(["q1", "q2", "q3"])).write_parquet(
        new / "per_query.parquet"
    )
    qrels = {f"q{q}": {"d": 5} for q in range(30)}
    found = rp.gate(qrels, old, new, "RAnWG@10")
    assert found.verdict == "undecided"
    assert "has no value for 27 of the 30 queries of dense K=10 (baseline)" in str(found)
    assert found.to_dict()["missing"] == {"dense K=10 (candidate)": 27}


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
    assert "Changed most: q02 -0.510" in done.stdout
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


def test_what_only_ties_could_turn_is_not_laid_to_unjudged_documents() -> None:
    qrels = {f"q{n}": {"d0": 1, "d1": 0, "d2": 0} for n in range(12)}
    ahead = {q: {"d0": 1.0, "d1": 1.0, "d2": 0.5} for q in qrels}
    behind = {q: {"d0": 1.0, "d1": 1.0, "d2": 1.0} for q in qrels}
    said = str(rp.gate(qrels, ahead, behind, "RR@3", margin=0.01))
    assert "ties" in said
    assert "nobody judged" not in said
    unjudged = {q: {"x": 2.0, **listed} for q, listed in behind.items()}
    assert "nobody judged" in str(rp.gate(qrels, ahead, unjudged, "RR@3", margin=0.01))


def test_as_many_queries_would_decide_it_as_an_interval_needs_to_differ() -> None:
    """Two queries that differ alike: the formula of power asks for two."""
    qrels = {q: {"r": 1, "n": 0} for q in ("p", "q", "s")}
    before = {q: {"r": 2.0, "n": 1.0} for q in qrels}
    after = {q: {"n": 2.0, "r": 1.0} if q != "s" else before["s"] for q in qrels}
    found = rp.gate(qrels, before, after, "RR")
    assert found.verdict == "undecided"
    assert "About 9 queries would decide it: 6 more." in str(found)
    assert found.measures[rp.RR].needed == 9
    assert "where fewer than 6 queries differ" in found.tables()[0].notes[0]


def test_unjudged_documents_that_could_only_make_it_worse_are_told_too() -> None:
    """The baseline's second document is unjudged; the candidate has a judged one there."""
    qrels = {f"q{n:03}": {"r": 1, "n": 0, "m": 0} for n in range(400)}
    before = {q: {"r": 3.0, "u": 2.0, "m": 1.0} for q in qrels}
    after = {
        q: {"n": 3.0, "m": 2.0} if n < 9 else {"r": 3.0, "n": 2.0} for n, q in enumerate(qrels)
    }
    found = rp.gate(qrels, before, after, "P@2", margin=0.03)
    assert found.verdict == "passed"
    assert "show it to be worse" not in str(found)
    assert "nobody judged could make it anything from -0.5112 to -0.0112" in str(found)
    level = rp.gate(qrels, before, {q: {"r": 3.0, "n": 2.0} for q in qrels}, "P@2", margin=0.03)
    assert "No query of 400 differs. Documents that nobody judged" in str(level)
    same = rp.gate(qrels, before, before, ["AP", "P@2"])
    assert "nobody judged" not in str(same)
    assert same.measures[parse("AP")].holes == (0.0, 0.0)


def test_a_loss_that_ties_could_turn_is_not_said_to_be_one() -> None:
    qrels = {f"q{n:02}": {"r": 1, "n": 0, "m": 0} for n in range(60)}
    sure, tied = {"r": 2.0, "n": 1.0}, {"r": 1.0, "n": 1.0, "m": 1.0}
    before = {q: sure if at % 2 else tied for at, q in enumerate(qrels)}
    after = {q: {"r": 1.0, "n": 1.0} if at in range(1, 14, 2) else before[q]
             for at, q in enumerate(qrels)}  # fmt: skip
    found = rp.gate(qrels, before, after, "RR", margin=0.2)
    assert found.verdict == "passed"
    assert found.measures[rp.RR].bounds[1] < 0
    assert "Which is ahead rests on how ties are broken" in str(found)
    assert "worse" not in str(found)


def test_more_of_what_harms_is_worse() -> None:
    qrels = {f"q{n}": {"good": 5, "bad": 1, "poor": 2} for n in range(40)}
    sound = {q: {"good": 2.0, "x": 1.0} for q in qrels}
    harmful = {q: {"bad": 2.0, "poor": 1.0} if n % 2 else sound[q] for n, q in enumerate(qrels)}
    harm = parse("Harm@2")
    worse, better = rp.gate(qrels, sound, harmful, harm), rp.gate(qrels, harmful, sound, harm)
    assert (worse.verdict, better.verdict) == ("worse", "passed")
    assert worse.measures[harm].difference.expected > 0
    assert "a change of +0.5000 (less is better, margin 0.01)" in worse.markdown()
    judged = {q: {**docs, "x": 3} for q, docs in qrels.items()}
    slight = rp.gate(judged, sound, harmful, harm, margin=0.9)
    assert slight.verdict == "passed"
    assert "The queries show it to be worse, by less than the margin" in str(slight)
