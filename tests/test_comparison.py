"""Paired tests, corrections and tie verdicts, against their definitions."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from rankproof_cli import in_text
from scipy import stats

import rankproof as rp
from rankproof.comparison import pairs as module
from rankproof.evaluation import Evaluation, Missing, Policy
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


def test_verdicts_tell_certain_doubtful_reversed_and_equal_apart() -> None:
    make = module.Difference
    measure = rp.parse("RR")

    def words(*figures: float, p: float = 0.01) -> str:
        expected, oblivious, lowest, highest = figures
        return make(expected, oblivious, lowest, highest, p, p, (0, 0), 9).verdict(
            "a", "b", measure
        )

    assert "a is ahead of b under every tie-break" in words(0.1, 0.1, 0.1, 0.1)
    assert "chance could explain" in words(0.1, 0.1, 0.1, 0.1, p=0.4)
    assert "b is ahead of a" in words(-0.1, -0.1, -0.1, -0.1)
    assert "rests on how ties are broken" in words(0.1, 0.1, -0.1, 0.2)
    assert "b leads by 0.2000; over all orders a leads by 0.1000" in words(0.1, -0.2, -0.2, 0.2)
    assert "are equal" in words(0.0, 0.0, 0.0, 0.0)


def test_a_verdict_that_ties_turn_says_what_unjudged_documents_could_do() -> None:
    qrels = {"q": {"a": 1}, "r": {"b": 1}}
    tied = {"q": {"x": 2.0, "a": 2.0}, "r": {"y": 2.0, "b": 2.0}}
    plain = {"q": {"a": 2.0, "x": 1.0}, "r": {"u": 3.0, "b": 2.0}}
    found = rp.compare(qrels, {"tied": tied, "plain": plain}, "RR", holes=True)
    assert found.verdicts()[0].endswith("Unjudged documents might turn it, too.")
    judged = {"q": {"a": 1, "x": 0}, "r": {"b": 1, "y": 0, "u": 0}}
    found = rp.compare(judged, {"tied": tied, "plain": plain}, "RR", holes=True)
    assert "Unjudged" not in found.verdicts()[0]


def test_a_run_that_ties_make_level_and_never_behind_is_not_said_to_lead_always() -> None:
    """In half of the orders of b's tie both are level."""
    qrels = {"q": {"r": 1, "n": 0}}
    runs = {"a": {"q": {"r": 2.0, "n": 1.0}}, "b": {"q": {"r": 1.0, "n": 1.0}}}
    found = rp.compare(qrels, runs, "RR")
    (said,) = found.verdicts()
    assert said.startswith("RR: a is ahead of b or level with it under every tie-break (by 0.2500")
    assert "level at worst" in found._repr_html_()
    (difference,) = found["a", "b"].values()
    assert difference.level_at_worst
    assert not difference.certain


@pytest.mark.parametrize("queries", [2, 30])
def test_a_lead_that_ties_make_level_at_worst_is_turned_by_no_order(queries: int) -> None:
    """A tenth of the orders of each query give a its lead: as many are nearly normal, and a normal
    tail reaches past where no order does."""
    qrels = {f"q{n}": {"r": 1, **dict.fromkeys("abcdefghi", 0)} for n in range(queries)}
    lucky = {q: dict.fromkeys(docs, 1.0) for q, docs in qrels.items()}
    never = {q: {"a": 2.0, "r": 1.0} for q in qrels}
    for measure in ("Success@1", "nDCG@1"):
        for pair in ({"a": lucky, "b": never}, {"b": never, "a": lucky}):
            found = rp.compare(qrels, pair, measure)
            (difference,) = found.pairs[0].measures.values()
            assert difference.level_at_worst
            assert difference.flip == 0.0
            assert "a is ahead of b or level with it under every tie-break" in str(found)


def test_of_runs_that_are_level_on_average_a_random_order_turns_nothing() -> None:
    qrels = {"q": {"r": 1, "n": 0}}
    tied = {"q": {"r": 1.0, "n": 1.0}}
    found = rp.compare(qrels, {"a": tied, "b": tied}, "RR")
    assert "0.0000 expected; a random order puts each of them ahead with prob" in str(found)
    (difference,) = found["a", "b"].values()
    assert difference.queries_needed is None, "there is no difference to see"
    assert difference.to_dict()["queries_needed"] is None


def test_no_grade_of_unjudged_documents_tells_a_run_from_itself() -> None:
    qrels = {f"q{n}": {"a": 1, "b": 0} for n in range(8)}
    run = {q: {"x": 4.0, "a": 3.0, "y": 2.0, "b": 1.0} for q in qrels}
    measures = ["AP", "RR", "ERR@3", "F1@3", "bpref", "nDCG@3", "Rprec", "infAP"]
    found = rp.compare(qrels, {"one": run, "two": run}, measures, holes=True)
    assert found.verdicts() == [f"{m}: one and two are equal." for m in measures]
    assert all(d.holes == (0.0, 0.0) for d in found.pairs[0].measures.values())
    changed = run | {"q0": {"a": 3.0, "x": 2.5}}
    (said,) = rp.compare(qrels, {"one": run, "two": changed}, "AP").verdicts()
    assert "at most from -0.0625 to +0.0625" in said
    graded = {q: {"a": 2, "b": 1} for q in qrels}
    swapped = run | {"q1": {"x": 4.0, "b": 3.0, "y": 2.0, "a": 1.0}}
    difference = rp.compare(graded, {"one": run, "two": swapped}, "ERR", holes=True)
    low, high = difference["one", "two"][parse("ERR")].holes or (0.0, 0.0)
    assert low < high, "the same documents, judged otherwise"


def test_what_ties_or_unjudged_documents_turn_is_told_of_those_that_do() -> None:
    """Ends over unjudged documents that only widen the lead, that level it, and that turn it."""
    measure = parse("P@2")
    tied = module.Difference(0.2, 0.2, -0.1, 0.3, 0.01, 0.01, None, 9, flip=0.0)

    def words(holes: tuple[float, float], of: module.Difference = tied) -> str:
        return replace(of, holes=holes, holes_exact=True).verdict("a", "b", measure)

    assert words((-0.1, 0.4)).startswith("P@2: a is ahead of b under nearly every tie-break (by")
    assert "whatever" not in words((-0.1, 0.3))
    assert "rests on unjudged documents" in words((-0.2, 0.3))
    calm = replace(tied, lowest=0.2, highest=0.2)
    assert "under every tie-break and whatever the unjudged documents are" in words(
        (0.1, 0.2), calm
    )
    assert "rests on unjudged documents" in words((-0.2, -0.1), calm), "bpref leaves them out now"
    level = replace(tied, expected=0.0, oblivious=0.0, lowest=0.0, highest=0.0)
    assert "rests on unjudged documents" in words((0.1, 0.2), level)
    assert words((0.0, 0.0), level) == "P@2: a and b are equal."


def test_one_query_that_differs_is_told_in_the_singular() -> None:
    qrels = {"q": {"a": 1}, "r": {"a": 1}}
    runs = {"x": {"q": {"a": 1.0}, "r": {"a": 1.0}}, "y": {"q": {"b": 1.0}, "r": {"a": 1.0}}}
    assert "only 1 query differs)" in str(rp.compare(qrels, runs, "P@1", holes=False))
    qrels["q"]["b"] = 0
    assert "1 of 2 queries differs," in str(rp.gate(qrels, runs["x"], runs["y"], "P@1"))


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
    policies: dict[Missing, str] = {"zero": "count 0", "skip": "are left out"}
    for policy, said in policies.items():
        found = rp.compare(qrels, runs, "AP", missing=policy)
        line = f"10 judged queries are missing from b and 1 from c; missing queries {said}"
        assert line in str(found).splitlines()
        assert line in found.tables()[0].notes
        assert found.to_dict()["missing"] == {"b": 10, "c": 1}
        board = rp.leaderboard(qrels, runs, "AP", missing=policy)
        assert line in board.notes
        assert board.to_dict()["missing"] == {"b": 10, "c": 1}
    whole = rp.compare(qrels, {"a": runs["a"], "z": runs["a"]}, "AP")
    assert "missing" not in str(whole)
    assert "missing" not in whole.to_dict()
    board = rp.leaderboard(qrels, {"a": runs["a"], "z": runs["a"]}, "AP")
    assert "missing" not in board.to_dict()
    assert not any("missing from" in note for note in board.notes)


def test_a_note_on_many_runs_that_lack_queries_stays_one_line() -> None:
    counts = {f"r{n}": n + 1 for n in range(9)}
    (note,) = module.missing_note(counts, Policy())
    assert note == (
        "9 judged queries are missing from r8, 8 from r7, 7 from r6, 6 from r5, 5 from r4 "
        "and some from 4 other runs; missing queries count 0"
    )
    assert module.missing_note({"r": 1}, Policy()) == [
        "1 judged query is missing from r; missing queries count 0"
    ]
    assert module.missing_note({"r": 2}, Policy(candidates_only=True)) == [
        "2 judged queries are missing from r; missing queries are left out"
    ]


@pytest.mark.parametrize("command", ["compare", "leaderboard"])
@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "latex", "html"])
def test_commands_say_how_many_queries_are_missing_in_every_format(
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
        line = "2 judged queries are missing from b; missing queries count 0"
        assert (done.stdout if form == "table" else done.stderr).count(line) == 1
        if form == "json":
            assert json.loads(done.stdout)["missing"] == {"b": 2}
