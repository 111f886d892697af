"""Paired tests, corrections and tie verdicts, against their definitions."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from rankproof_cli import in_text
from scipy import stats

import rankproof as rp
from rankproof.comparison import pairs as module
from rankproof.evaluation import Evaluation, Missing
from rankproof.measures import REGISTRY, parse
from rankproof.statistics.randomization import holm

Scores = dict[str, dict[str, float]]


def one_document_runs(
    seed: int, queries: int, ties: bool = False
) -> tuple[Scores, Scores, dict[str, dict[str, int]]]:
    """Two runs over five documents each; with ties, scores come from three values."""
    rng = np.random.default_rng(seed)

    def run() -> Scores:
        draw = rng.integers(0, 3, (queries, 5)) if ties else rng.random((queries, 5))
        return {f"q{q}": {f"d{d}": float(draw[q, d]) for d in range(5)} for q in range(queries)}

    qrels = {
        f"q{q}": {f"d{d}": int(rng.integers(0, 3)) for d in range(5)} | {"d0": 1}
        for q in range(queries)
    }
    return run(), run(), qrels


def differences(a: Evaluation, b: Evaluation, measure: str) -> np.ndarray:
    key = rp.parse(measure)
    return a.outcomes[key].expected - b.outcomes[key].expected


def test_p_counts_every_assignment_of_signs_where_there_are_few_queries() -> None:
    a, b, qrels = one_document_runs(1, 9, ties=True)
    found = rp.compare(qrels, {"a": a, "b": b}, "nDCG@3")
    d = differences(rp.evaluate(qrels, a, "nDCG@3"), rp.evaluate(qrels, b, "nDCG@3"), "nDCG@3")
    sums = [abs(np.dot(signs, d)) for signs in product([1, -1], repeat=len(d))]
    exact = np.mean([s >= abs(d.sum()) - 1e-12 for s in sums])
    assert found.exact
    assert found["a", "b"][rp.parse("nDCG@3")].p == pytest.approx(float(exact), abs=1e-15)


def test_sampled_p_agrees_with_scipy_on_many_queries() -> None:
    a, b, qrels = one_document_runs(2, 60)
    found = rp.compare(qrels, {"a": a, "b": b}, "nDCG")
    d = differences(rp.evaluate(qrels, a, "nDCG"), rp.evaluate(qrels, b, "nDCG"), "nDCG")
    peer = stats.permutation_test(
        (d,), np.sum, permutation_type="samples", n_resamples=50_000, rng=np.random.default_rng(3)
    )
    p = found["a", "b"][rp.parse("nDCG")].p
    spread = np.sqrt(p * (1 - p) * (1 / 100_000 + 1 / 50_000))
    assert not found.exact
    assert abs(p - peer.pvalue) < 5 * spread


def test_p_is_1_for_a_run_compared_with_itself() -> None:
    a, _, qrels = one_document_runs(3, 20, ties=True)
    d = rp.compare(qrels, {"a": a, "b": a}, "RR")["a", "b"][rp.parse("RR")]
    assert (d.expected, d.oblivious, d.p, d.ci) == (0.0, 0.0, 1.0, None)


def test_holm_is_the_step_down_correction_over_all_pairs_and_measures() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.005])
    # 0.005·4, 0.01·3, 0.03·2, and 0.04·1 lifted to the one before
    assert holm(p) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.6, 0.7])) == pytest.approx([1.0, 1.0])
    a, b, qrels = one_document_runs(4, 30)
    c, _, _ = one_document_runs(5, 30)
    found = rp.compare(qrels, {"a": a, "b": b, "c": c}, ["AP", "RR"])
    flat = [d for pair in found.pairs for d in pair.measures.values()]
    assert len(flat) == 6
    assert [d.p_holm for d in flat] == list(holm(np.array([d.p for d in flat])))


def test_the_interval_is_students_of_the_paired_differences() -> None:
    a, b, qrels = one_document_runs(6, 80)
    d = differences(rp.evaluate(qrels, a, "AP"), rp.evaluate(qrels, b, "AP"), "AP")
    ends = rp.compare(qrels, {"a": a, "b": b}, "AP")["a", "b"][rp.parse("AP")].ci
    peer = stats.ttest_1samp(d, 0).confidence_interval(0.95)
    assert ends == pytest.approx((peer.low, peer.high), rel=1e-9)


def test_lowest_and_highest_are_reached_by_some_tie_break_of_both() -> None:
    qrels = {"q": {"x": 1}}
    tied = {"q": {"w": 1.0, "x": 1.0}}
    fixed = {"q": {"w": 0.5, "x": 0.4, "y": 0.3}}
    d = rp.compare(qrels, {"tied": tied, "fixed": fixed}, "RR")["tied", "fixed"][rp.parse("RR")]
    assert (d.lowest, d.highest) == (0.0, 0.5)
    assert d.expected == 0.25
    assert not d.certain
    assert not d.reversed


def test_certain_needs_the_same_sign_and_equality_is_one() -> None:
    make = module.Difference
    assert make(0.1, 0.1, 0.05, 0.2, 1, 1, (0, 0), 3).certain
    assert make(-0.1, -0.1, -0.3, -0.2, 1, 1, (0, 0), 3).certain
    assert make(0.0, 0.0, 0.0, 0.0, 1, 1, (0, 0), 3).certain
    assert not make(0.1, 0.1, 0.0, 0.2, 1, 1, (0, 0), 3).certain
    assert not make(0.1, 0.1, -0.05, 0.2, 1, 1, (0, 0), 3).certain
    assert make(0.1, -0.1, -0.2, 0.2, 1, 1, (0, 0), 3).reversed
    assert not make(1e-17, -0.1, -0.2, 0.2, 1, 1, (0, 0), 3).reversed, "rounding is no lead"


def test_the_seed_decides_and_nothing_else_does() -> None:
    a, b, qrels = one_document_runs(7, 40, ties=True)
    shuffled = {
        q: dict(sorted(docs.items(), key=lambda item: hash(item) % 97))
        for q, docs in sorted(a.items(), reverse=True)
    }
    first = rp.compare(qrels, {"a": a, "b": b}, ["AP", "RR"], seed=5).to_dict()
    again = rp.compare(qrels, {"a": a, "b": b}, ["AP", "RR"], seed=5).to_dict()
    moved = rp.compare(qrels, {"a": shuffled, "b": b}, ["AP", "RR"], seed=5).to_dict()
    other = rp.compare(qrels, {"a": a, "b": b}, ["AP", "RR"], seed=6).to_dict()
    assert first == again
    for measure, figures in first["pairs"][0]["measures"].items():
        same = moved["pairs"][0]["measures"][measure]
        for figure in ("expected", "lowest", "highest", "p", "p_holm", "ci"):
            assert figures[figure] == same[figure]
    assert first != other


def test_queries_without_a_value_are_left_out_of_the_pair() -> None:
    a = {"q1": {"d": 1.0}, "q2": {"d": 1.0}}
    b = {"q1": {"e": 1.0}, "q2": {"e": 1.0}}
    qrels = {"q1": {"d": 1}, "q2": {"d": 0}}
    d = rp.compare(qrels, {"a": a, "b": b}, "R@1")["a", "b"][rp.parse("R@1")]
    assert (d.queries, d.expected) == (1, 1.0)


def test_with_missing_skip_the_pair_is_compared_on_shared_queries() -> None:
    a = {"q1": {"d": 1.0}, "q2": {"d": 1.0}}
    b = {"q2": {"e": 1.0}, "q3": {"d": 1.0}}
    qrels = {q: {"d": 1} for q in ("q1", "q2", "q3")}
    zero = rp.compare(qrels, {"a": a, "b": b}, "R@1")["a", "b"][rp.parse("R@1")]
    skip = rp.compare(qrels, {"a": a, "b": b}, "R@1", missing="skip")["a", "b"][rp.parse("R@1")]
    assert (zero.queries, zero.expected) == (3, 1 / 3)
    assert (skip.queries, skip.expected) == (1, 1.0)


def test_runs_that_share_nothing_to_compare_are_refused() -> None:
    a, b = {"q1": {"d": 1.0}}, {"q2": {"d": 1.0}}
    qrels = {"q1": {"d": 1}, "q2": {"d": 1}}
    with pytest.raises(rp.InputError, match="defined on no query"):
        rp.compare(qrels, {"a": a, "b": b}, "R@1", missing="skip")
    with pytest.raises(rp.InputError, match="two runs"):
        rp.compare(qrels, {"a": a}, "R@1")


def ranked(rows: list[list[str]]) -> Scores:
    """Return a run from its lists, best first, for the queries q00, q01, …"""
    return {
        f"q{n:02}": {doc: float(-at) for at, doc in enumerate(docs)} for n, docs in enumerate(rows)
    }


def judged(queries: int) -> dict[str, dict[str, int]]:
    return {f"q{n:02}": {"r": 1, "n": 0, "m": 0} for n in range(queries)}


def test_each_label_is_one_sentence_with_its_number() -> None:
    first, second = ["r", "n", "m"], ["n", "r", "m"]
    a = ranked([first] * 30)
    better = rp.compare(judged(30), {"a": a, "b": ranked([second, first] * 15)}, "RR")
    verdict = better.verdict("a", "b", "RR")
    assert (verdict.label, verdict.estimate) == ("ahead", 0.25)
    (line, *_) = str(better).splitlines()
    assert line.startswith("a beats b on RR by 0.2500 (95% CI 0.1")
    assert line.endswith(", p < .001).")
    worse = rp.compare(judged(30), {"b": ranked([second, first] * 15), "a": a}, "RR")
    assert worse.verdict("b", "a", "RR").label == "behind"
    assert str(worse).splitlines()[0] == line
    same = rp.compare(judged(30), {"a": a, "b": a}, "RR")
    assert str(same).startswith("a and b are equal on RR.")
    few = rp.compare(judged(30), {"a": a, "b": ranked([second] * 5 + [first] * 25)}, "RR")
    assert few.verdict("a", "b", "RR").label == "undecided"
    assert "only 5 queries differ, of at least 6 needed (+0.0833)" in str(few)
    mixed = [first, second] * 15
    open_question = rp.compare(judged(30), {"a": ranked(mixed), "b": ranked(mixed[::-1])}, "RR")
    assert open_question.verdict("a", "b", "RR").depends_on == ("queries",)
    assert "30 queries do not show whether a or b is better (0.0000," in str(open_question)


def test_equality_needs_the_interval_inside_the_tolerance() -> None:
    first, second = ["r", "n", "m"], ["n", "r", "m"]
    runs = {"a": ranked([first] * 100), "b": ranked([second] * 8 + [first] * 92)}
    labels = {}
    for tolerance in (None, 0.01, 0.2):
        found = rp.compare(judged(100), runs, "RR", equal=tolerance)
        labels[tolerance] = found.verdict("a", "b", "RR").label
    assert labels == {None: "ahead", 0.01: "ahead", 0.2: "equal"}
    text = str(rp.compare(judged(100), runs, "RR", equal=0.2))
    assert text.startswith("a and b are equal within 0.2 on RR") or "equal within 0.2 (" in text
    assert "; a has the higher value." in " ".join(text.split())
    few = {"a": ranked([first] * 100), "b": ranked([second] * 2 + [first] * 98)}
    assert rp.compare(judged(100), few, "RR").verdict("a", "b", "RR").label == "undecided"
    near = rp.compare(judged(100), few, "RR", equal=0.1)
    assert near.verdict("a", "b", "RR").label == "equal", "the bound of few changes is inside"


def test_a_verdict_names_ties_and_unjudged_documents_it_depends_on() -> None:
    qrels = {"q": {"a": 1}, "r": {"b": 1}}
    tied = {"q": {"x": 2.0, "a": 2.0}, "r": {"y": 2.0, "b": 2.0}}
    plain = {"q": {"a": 2.0, "x": 1.0}, "r": {"u": 3.0, "b": 2.0}}
    comparison = rp.compare(qrels, {"tied": tied, "plain": plain}, "RR", holes=True)
    assert "Ties matter: -0.2500 to +0.2500 over all orders." in str(comparison)
    assert "ties" in comparison.verdict("tied", "plain", "RR").depends_on
    worst = comparison.verdict("tied", "plain", "RR").worst_case
    assert worst is not None
    assert worst[0] < 0 < worst[1]
    complete = {"q": {"a": 1, "x": 0}, "r": {"b": 1, "y": 0, "u": 0}}
    comparison = rp.compare(complete, {"tied": tied, "plain": plain}, "RR", holes=True)
    assert "unjudged" not in str(comparison)
    assert "unjudged" not in comparison.verdict("tied", "plain", "RR").depends_on


@pytest.mark.parametrize("queries", [2, 30])
def test_a_lead_that_ties_make_level_at_worst_is_reversed_by_no_order(queries: int) -> None:
    """A tenth of the orders of each query give a its lead: as many are nearly normal, and a normal
    tail reaches past where no order does."""
    qrels = {f"q{n}": {"r": 1, **dict.fromkeys("abcdefghi", 0)} for n in range(queries)}
    lucky = {q: dict.fromkeys(docs, 1.0) for q, docs in qrels.items()}
    never = {q: {"a": 2.0, "r": 1.0} for q in qrels}
    for measure in ("Success@1", "nDCG@1"):
        for pair in ({"a": lucky, "b": never}, {"b": never, "a": lucky}):
            comparison = rp.compare(qrels, pair, measure)
            (difference,) = comparison.pairs[0].measures.values()
            assert min(abs(difference.lowest), abs(difference.highest)) == 0.0
            assert difference.flip == 0.0
            assert "Ties do not matter" in str(comparison)


def test_runs_that_are_equal_on_average_need_no_further_queries() -> None:
    qrels = {"q": {"r": 1, "n": 0}}
    tied = {"q": {"r": 1.0, "n": 1.0}}
    comparison = rp.compare(qrels, {"a": tied, "b": tied}, "RR")
    assert str(comparison).startswith("a and b are equal on RR.")
    assert "Ties matter: -0.5000 to +0.5000 over all orders." in str(comparison)
    (difference,) = comparison["a", "b"].values()
    assert difference.queries_needed is None, "there is no difference to see"
    assert difference.to_dict()["queries_needed"] is None


def test_no_grade_of_unjudged_documents_separates_a_run_from_itself() -> None:
    qrels = {f"q{n}": {"a": 1, "b": 0} for n in range(8)}
    run = {q: {"x": 4.0, "a": 3.0, "y": 2.0, "b": 1.0} for q in qrels}
    measures = ["AP", "RR", "ERR@3", "F1@3", "bpref", "nDCG@3", "Rprec", "infAP"]
    comparison = rp.compare(qrels, {"one": run, "two": run}, measures, holes=True)
    for measure, difference in comparison.pairs[0].measures.items():
        assert comparison.verdict("one", "two", measure).label == "equal"
        assert "unjudged" not in comparison.verdict("one", "two", measure).depends_on
        assert difference.holes == (0.0, 0.0)
    changed = run | {"q0": {"a": 3.0, "x": 2.5}}
    one_query = rp.compare(qrels, {"one": run, "two": changed}, "AP")["one", "two"]
    assert one_query[parse("AP")].holes == pytest.approx((-0.0625, 1 / 24))
    graded = {q: {"a": 2, "b": 1} for q in qrels}
    swapped = run | {"q1": {"x": 4.0, "b": 3.0, "y": 2.0, "a": 1.0}}
    other_order = rp.compare(graded, {"one": run, "two": swapped}, "ERR", holes=True)
    low, high = other_order["one", "two"][parse("ERR")].holes or (0.0, 0.0)
    assert low < high, "the same documents, judged otherwise"


def test_unjudged_documents_of_a_query_without_a_value_can_change_a_label() -> None:
    qrels = {"p": {"r": 1}, "q": {"n": 0}}
    runs = {
        "a": {"p": {"r": 2.0}, "q": {"n": 1.0}},
        "b": {"p": {"r": 2.0}, "q": {"x": 2.0, "n": 1.0}},
    }
    verdict = rp.compare(qrels, runs, "RR", holes=True).verdict("a", "b", "RR")
    assert (verdict.label, verdict.depends_on) == ("equal", ("unjudged",))
    assert verdict.worst_case == (-0.5, 0.0)


def test_one_query_that_differs_is_counted_in_the_singular() -> None:
    qrels = {"q": {"a": 1, "b": 0}, "r": {"a": 1}}
    runs = {"x": {"q": {"a": 1.0}, "r": {"a": 1.0}}, "y": {"q": {"b": 1.0}, "r": {"a": 1.0}}}
    text = str(rp.compare(qrels, runs, "P@1", holes=False))
    assert "only 1 query differs, of at least 6 needed" in text
    assert "1 of 2 queries differs." in text
    assert "1 of 2 queries changed" in str(rp.gate(qrels, runs["x"], runs["y"], "P@1"))


@pytest.mark.parametrize("runs", [{}, {"x": {"q": {"b": 1.0}}}])
def test_fewer_than_two_runs_are_refused_in_one_line(runs: dict[str, Scores]) -> None:
    with pytest.raises(rp.InputError, match="one run cannot be compared; name two runs or more"):
        rp.compare({"q": {"a": 1}}, runs, "RR")
    with pytest.raises(rp.InputError, match="one run makes no leaderboard; name two runs or more"):
        rp.leaderboard({"q": {"a": 1}}, runs, "RR")


def test_runs_are_named_or_listed_and_stand_where_they_belong() -> None:
    runs = [rp.read_run({"q": {"a": 1.0}}, name="x"), rp.read_run({"q": {"b": 1.0}}, name="y")]
    qrels = {"q": {"a": 1}}
    assert rp.compare(qrels, runs, "RR").pairs.names == ("x", "y")
    assert [run.name for run in rp.holes(qrels, runs, "RR@1").runs] == ["x", "y"]
    with pytest.raises(rp.InputError, match="judgments come first: compare"):
        rp.compare({"x": "x.trec"}, "qrels.txt", "RR")
    with pytest.raises(rp.InputError, match="judgments come first: leaderboard"):
        rp.leaderboard({"x": "x.trec", "y": "y.trec"}, "qrels.txt", "RR")


def test_a_measure_of_ones_own_below_zero_has_an_interval_around_its_difference() -> None:
    known = dict(REGISTRY)
    try:

        @rp.measure("Waste")
        def waste(groups: rp.TieGroups) -> rp.Outcomes:
            """Less what is listed."""
            return rp.Outcomes.certain(-groups.listed.astype(np.float64))

        qrels = {f"q{q}": {"d0": 1} for q in range(12)}
        short = {q: {"d0": 1.0} for q in qrels}
        long = {q: {f"d{d}": float(d) for d in range(4 + n % 3)} for n, q in enumerate(qrels)}
        for a, b, sign in ((short, long, 1), (long, short, -1)):
            (pair,) = rp.compare(qrels, {"a": a, "b": b}, waste).pairs
            found = pair.measures[waste]
            assert found.expected == sign * 4.0
            assert found.ci is not None
            assert found.ci[0] < found.expected < found.ci[1]
    finally:
        REGISTRY.clear()
        REGISTRY.update(known)


def test_missing_queries_are_counted_for_each_run_in_text_and_json() -> None:
    runs = {
        name: {f"q{n:02}": {"d": 1.0, "x": 0.5} for n in range(count)}
        for name, count in (("a", 40), ("b", 30), ("c", 39))
    }
    qrels = {f"q{n:02}": {"d": 1} for n in range(40)}
    policies: dict[Missing, str] = {"zero": "count 0", "skip": "are skipped"}
    for policy, effect in policies.items():
        notes = [
            f"b: 10 judged queries are missing from the run; missing queries {effect}.",
            f"c: 1 judged query is missing from the run; missing queries {effect}.",
        ]
        for result in (
            rp.compare(qrels, runs, "AP", missing=policy),
            rp.leaderboard(qrels, runs, "AP", missing=policy),
        ):
            assert sorted(result.summary().notes[:2]) == notes
            assert result.to_dict()["missing"] == {"b": 10, "c": 1}
    pair = {"a": runs["a"], "z": runs["a"]}
    for whole in (rp.compare(qrels, pair, "AP"), rp.leaderboard(qrels, pair, "AP")):
        assert "missing" not in str(whole)
        assert "missing" not in whole.to_dict()


def test_a_verdict_counts_the_queries_that_only_one_run_has() -> None:
    qrels = {f"q{n:02}": {"d": 1} for n in range(40)}
    runs = {name: {f"q{n:02}": {"d": 1.0, "x": 0.5} for n in ids} for name, ids in (
        ("a", range(35)), ("b", range(10, 40)),
    )}  # fmt: skip
    comparison = rp.compare(qrels, runs, "AP", missing="skip")
    verdict = comparison.verdict("a", "b", "AP")
    assert (verdict.queries, verdict.only_a, verdict.only_b) == (25, 10, 5)
    assert "missing" in verdict.depends_on
    assert "over the 25 queries that both have" in str(comparison)
    assert "10 queries have a value in a only; 5 queries have a value in b only" in " ".join(
        str(comparison).split()
    )
    plain = comparison.to_dict()["pairs"][0]["measures"]["AP"]["verdict"]
    assert (plain["only_a"], plain["only_b"]) == (10, 5)


def test_a_note_on_many_runs_that_lack_the_same_number_names_five() -> None:
    qrels = {f"q{n}": {"d": 1} for n in range(9)}
    runs = {f"r{n}": {f"q{k}": {"d": 1.0} for k in range(8 if n < 8 else 9)} for n in range(9)}
    note = rp.leaderboard(qrels, runs, "AP").summary().notes[0]
    assert note == (
        "r0, r1, r2, r3, r4 and 3 others: 1 judged query is missing from the run; missing queries "
        "count 0."
    )


@pytest.mark.parametrize("command", ["compare", "leaderboard"])
@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "latex", "html"])
def test_commands_report_missing_queries_in_every_format(
    tmp_path: Path, command: str, form: str
) -> None:
    (tmp_path / "q").write_text("".join(f"q{n} 0 d 1\n" for n in range(9)))
    for name, count in (("a", 9), ("b", 7), ("c", 9)):
        rows = "".join(f"q{n} Q0 d 1 1 t\n" for n in range(count))
        (tmp_path / name).write_text(rows)
    for runs in (["a", "b"], ["a", "b", "c"]):
        paths = [str(tmp_path / name) for name in ("q", *runs)]
        done = in_text(command, *paths, "-m", "AP", "-m", "RR", "--format", form)
        assert done.returncode == 0
        line = "b: 2 judged queries are missing from the run; missing queries count 0."
        if form == "json":
            data = json.loads(done.stdout)
            assert data["missing"] == {"b": 2}
            assert data["query_sets"]["b"]["AP"]["missing"] == {"count": 2, "queries": ["q7", "q8"]}
        elif form == "csv":
            assert "missing" in done.stdout.splitlines()[0] or command == "compare"
        else:
            assert " ".join(done.stdout.split()).count(line) == 1
