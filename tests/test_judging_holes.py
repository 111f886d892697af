"""What to judge next, until it is settled; estimates from a sample; leaving a system out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rankproof_cli import rankproof

import rankproof as rp
from rankproof.data.tables import Qrels, Run
from rankproof.evaluation import Policy
from rankproof.measures import REGISTRY, parse
from rankproof.statistics.intervals import sequential_interval
from rankproof.statistics.resampling import first_of_permutation
from rankproof.unjudged.bounds import WorstCases
from rankproof.unjudged.judging_order import (
    QueryDocuments,
    Settling,
    judge_next,
    judging_file,
    merge_judgments,
    settle,
)
from rankproof.unjudged.leave_one_out import contributions, leave_one_out
from rankproof.unjudged.requested_bounds import find_holes
from rankproof.unjudged.sampling import draw, estimate
from rankproof.unjudged.tables import sample_answers
from rankproof.unjudged.unjudged_documents import PartlyJudged, QueryBounds

NDCG, P10 = parse("nDCG@10"), parse("P@10")


@dataclass(frozen=True)
class World:
    """Runs with the true grade of every document, and judgments of what the first run lists."""

    runs: list[Run]
    qrels: Qrels
    truth: dict[str, dict[str, int]]

    def judge(self, documents: QueryDocuments) -> list[int]:
        return [self.truth[query][doc] for query, doc in documents]

    def worst_cases(self) -> WorstCases:
        return WorstCases(self.runs, self.qrels, Policy(), scale=2)

    def complete(self) -> Qrels:
        """The judgments with those of all unjudged documents of the runs."""
        all_runs = list(range(len(self.runs)))
        holes = self.worst_cases().unjudged(all_runs, NDCG)
        names = self.qrels.queries.gather(holes.query)
        grades = [self.truth[q][d] for q, d in zip(names, holes.doc, strict=True)]
        frame = pl.DataFrame({"query": names, "doc": holes.doc, "grade": grades})
        return merge_judgments(self.qrels, rp.read_qrels(frame))


def simulated(
    seed: int, queries: int = 40, documents: int = 30, noise: tuple[float, ...] = (1, 2)
) -> World:
    """Simulate queries that differ in how much is relevant, and judge what the first run lists."""
    rng = np.random.default_rng(seed)
    rate = rng.beta(2, 6, (queries, 1))
    grade = (rng.random((queries, documents)) < rate) * (
        1 + (rng.random((queries, documents)) < 0.3)
    )
    truth = {
        f"q{q:03}": {f"d{d}": int(grade[q, d]) for d in range(documents)} for q in range(queries)
    }
    runs = []
    for number, spread in enumerate(noise):
        score = grade + rng.normal(0, spread, grade.shape)
        top = np.argsort(-score, axis=1)[:, :12]
        lists = {f"q{q:03}": {f"d{d}": float(score[q, d]) for d in top[q]} for q in range(queries)}
        runs.append(rp.read_run(lists, name="ABC"[number]))
    home = runs[0].to_frame()
    judged = {
        query: {doc: truth[query][doc] for doc in rows["doc"].head(10)}
        for (query,), rows in home.group_by("query")
    }
    return World(runs, rp.read_qrels(judged), truth)


# ------------------------------------------------------------------------------------ judge next


def test_an_effect_is_what_the_highest_grade_would_change() -> None:
    simulation = simulated(0, queries=6)
    listed = judge_next(simulation.worst_cases(), NDCG)
    assert listed["effect"].is_sorted(descending=True)

    def difference(qrels: Qrels) -> float:
        a, b = (rp.evaluate(qrels, run, NDCG)[NDCG].expected for run in simulation.runs)
        return a - b

    current = difference(simulation.qrels)
    for query, doc, effect in listed.head(8).iter_rows():
        judged = merge_judgments(simulation.qrels, rp.read_qrels([(query, doc, 2)]))
        assert math.isclose(abs(difference(judged) - current), effect, abs_tol=1e-12)
    assert listed.height == simulation.worst_cases().count([0, 1], NDCG)


def test_one_run_is_judged_by_the_effect_on_its_mean() -> None:
    qrels = {"q": {"a": 1}, "r": {"a": 1}}
    run = rp.read_run({"q": {"x": 3.0, "a": 2.0}, "r": {"a": 3.0, "y": 2.0}}, name="a")
    worst_cases = WorstCases([run], rp.read_qrels(qrels), Policy())
    assert judge_next(worst_cases, parse("RR"), 1).rows() == [("q", "x", 0.25)]


def test_effects_on_inferred_precision_account_for_pooled_documents_without_a_grade() -> None:
    qrels = {"q": {"a": 1, "c": 3, "z": 0, "p": -1}}
    run = {"q": {"x": 2.0, "a": 2.0, "c": 1.0, "p": 1.0, "y": 1.0}}

    def inferred(new_grades: dict[str, int]) -> float:
        return rp.evaluate({"q": qrels["q"] | new_grades}, run, "infAP")["infAP"].expected

    worst_cases = WorstCases([rp.read_run(run, name="a")], rp.read_qrels(qrels), Policy())
    listed = judge_next(worst_cases, parse("infAP"))
    assert set(listed["doc"]) == {"x", "y", "p"}
    for _, doc, effect in listed.iter_rows():
        assert math.isclose(abs(inferred({doc: 3}) - inferred({})), effect, abs_tol=1e-12), doc


def test_a_document_has_no_effect_on_a_query_that_no_mean_includes_even_if_it_is_judged() -> None:
    runs = [{"q": {"d": 1.0}}, {"q": {"x": 2.0, "d": 1.0}}]  # among candidates a has no x
    tables = [rp.read_run(run, name=name) for run, name in zip(runs, "ab", strict=True)]
    worst_cases = WorstCases(tables, rp.read_qrels({"q": {"d": 0}}), Policy(candidates_only=True))
    for name in ("RR", "P@1", "Hits", "AP", "nDCG@2"):
        assert judge_next(worst_cases, parse(name)).rows() == [("q", "x", 0.0)], name


def test_each_of_two_tied_documents_has_an_effect_of_its_own() -> None:
    """Each is graded alone, although both are in one tie group of one list."""
    run = rp.read_run({"q": {"x": 1.0, "a": 1.0, "y": 1.0}}, name="a")
    worst_cases = WorstCases([run], rp.read_qrels({"q": {"a": 1, "b": 1}}), Policy())
    tied = judge_next(worst_cases, parse("P@1"))
    assert tied.rows() == [("q", "x", 1 / 3), ("q", "y", 1 / 3)]


@pytest.mark.parametrize("ending", [".tsv", ".jsonl"])
def test_documents_to_judge_can_be_graded_in_the_file_and_read_back(
    tmp_path: Path, ending: str
) -> None:
    simulation = simulated(1, queries=5)
    path = tmp_path / f"next{ending}"
    path.write_bytes(judging_file(judge_next(simulation.worst_cases(), NDCG, 4), ending))
    assert len(rp.read_qrels(path)) == 0  # −1 is "not judged"
    text = path.read_text()
    path.write_text(text.replace("-1", "2"))
    judged = rp.read_qrels(path)
    assert judged.grade.tolist() == [2, 2, 2, 2]
    assert len(merge_judgments(simulation.qrels, judged)) == len(simulation.qrels) + 4


def test_two_grades_for_one_document_are_refused() -> None:
    one, other = rp.read_qrels({"q": {"a": 1}}), rp.read_qrels({"q": {"a": 2, "b": 1}})
    with pytest.raises(rp.InputError, match="grade 1 in qrels and 2"):
        merge_judgments(one, other)
    assert len(merge_judgments(one, rp.read_qrels({"q": {"a": 1, "b": 0}, "r": {"c": 1}}))) == 3


# -------------------------------------------------------------------------------------- settling


def test_inferred_precision_is_not_settled_while_pooled_documents_lack_a_grade() -> None:
    """Those below the depth count whatever grades the documents above it get."""
    simulation = simulated(0, queries=6)
    pooled = {q: dict.fromkeys(list(docs)[-3:], -1) for q, docs in simulation.truth.items()}
    rows = simulation.qrels.to_frame().rows() + [
        (q, d, g) for q, docs in pooled.items() for d, g in docs.items()
    ]
    qrels = rp.read_qrels({q: {d: g for r, d, g in rows if r == q} for q in simulation.truth})
    settled = settle(simulation.runs, qrels, parse("infAP"), simulation.judge, depth=2, scale=2)
    worst_cases = WorstCases(
        simulation.runs,
        merge_judgments(qrels, rp.read_qrels(settled.judgements)),
        Policy(),
        depth=2,
        scale=2,
    )
    again = worst_cases.pair_bound(0, 1, parse("infAP"))
    assert (settled.bound.lowest, settled.bound.highest) == pytest.approx(
        (again.lowest, again.highest)
    )


def test_the_sentence_on_a_settled_comparison_names_the_lead_that_is_certain() -> None:
    runs = [rp.read_run({"q": docs}, name=docs[0]) for docs in (["a", "b"], ["b"])]
    open_ = rp.holes({"q": {"b": 1}}, {"a": runs[0], "b": runs[1]}, "P@1")
    answer = open_.summary().answer
    assert "Grades for 1 unjudged document could put b ahead, or leave both equal, on P@1" in answer
    simulation = simulated(0, queries=6)
    wide = settle(simulation.runs, simulation.qrels, NDCG, simulation.judge, until=0.05, scale=2)
    low, high = sorted(abs(end) for end in (wide.bound.lowest, wide.bound.highest))
    assert wide.bound.certain
    assert str(wide).endswith(f"is ahead by {low:.3f} to {high:.3f} whatever the others are")


def test_err_needs_a_named_scale_to_be_settled() -> None:
    simulation = simulated(0, queries=6)
    with pytest.raises(rp.InputError, match=r"name it: ERR\(max=3\)@10"):
        settle(simulation.runs, simulation.qrels, parse("ERR@10"), simulation.judge, scale=3)
    assert settle(
        simulation.runs, simulation.qrels, parse("ERR(max=3)@10"), simulation.judge, scale=3
    ).settled


@pytest.mark.parametrize("name", ["nDCG@10", "P@10", "AP@10", "RR@10", "ERR@10", "R@10"])
@pytest.mark.parametrize("batch", [1, 7])
def test_judging_stops_when_no_grades_can_reverse_the_lead(name: str, batch: int) -> None:
    simulation = simulated(2, queries=12, noise=(0.6, 2.5))
    measure = parse(name)
    settled = settle(
        simulation.runs, simulation.qrels, measure, simulation.judge, batch=batch, scale=2
    )
    assert settled.settled
    assert 0 < settled.asked <= settled.holes
    after = f"settled after {settled.asked} of {settled.holes} unjudged documents: "
    assert str(settled).startswith(after)
    assert str(settled).endswith("whatever the others are")
    # The same bounds come out of all judgements at once, and the truth lies within.
    judged = merge_judgments(simulation.qrels, rp.read_qrels(settled.judgements))
    again = WorstCases(simulation.runs, judged, Policy(), scale=2).pair_bound(0, 1, measure)
    assert math.isclose(again.lowest, settled.bound.lowest, abs_tol=1e-12)
    assert math.isclose(again.highest, settled.bound.highest, abs_tol=1e-12)
    # `Settling`, which the command line uses, gives the same.
    settling = Settling(
        WorstCases(simulation.runs, simulation.qrels, Policy(), scale=2), measure, "certain"
    )
    assert str(settling.run(simulation.judge, batch, None)) == str(settled)
    a, b = (
        rp.evaluate(simulation.complete(), r, measure)[measure].expected for r in simulation.runs
    )
    assert (a - b) * settled.bound.expected > 0


def test_scores_past_float64_are_settled_like_any_others() -> None:
    results = []
    for offset in (0, 2**60):
        lists = ({"x": 3, "d": 2, "y": 1}, {"d": 3, "x": 2}), ({"z": 5, "d": 1}, {"d": 5, "z": 1})
        runs = []
        for at, name in enumerate("ab"):
            rows = [
                ("qr"[n], doc, offset + score)
                for n, both in enumerate(lists)
                for doc, score in both[at].items()
            ]
            frame = pl.DataFrame(rows, schema=["query", "doc", "score"], orient="row")
            runs.append(rp.read_run(frame, name=name))
        assert (runs[0].rest is not None) == bool(offset)
        qrels = rp.read_qrels({"q": {"d": 1}, "r": {"d": 1}})
        results.append(settle(runs, qrels, parse("RR"), lambda pairs: [0 for _ in pairs]))
    assert str(results[0]) == str(results[1])
    assert results[1].settled


def test_a_judge_may_give_a_set_measure_a_higher_grade_than_any_judgment_has() -> None:
    lists = ["x", "d", "y"], ["d", "y", "x"]
    runs = [rp.read_run({"q": docs}, name=name) for docs, name in zip(lists, "ab", strict=True)]
    given = rp.read_qrels({"q": {"d": 4}})
    settled = settle(runs, given, parse("RAnWG@2"), lambda pairs: [5 for _ in pairs], until=0.0)
    assert settled.settled
    assert set(settled.judgements["grade"]) == {5}


def test_judging_stops_at_a_width_and_at_a_limit() -> None:
    simulation = simulated(3, queries=12)
    settled = settle(simulation.runs, simulation.qrels, NDCG, simulation.judge, until=0.1, scale=2)
    assert settled.settled
    assert settled.bound.width <= 0.1
    limited = settle(
        simulation.runs,
        simulation.qrels,
        NDCG,
        simulation.judge,
        until=0.1,
        limit=5,
        batch=3,
        scale=2,
    )
    assert limited.asked == 5
    assert not limited.settled
    assert str(limited).startswith("not settled after 5 of")


def test_whole_queries_are_judged_until_the_difference_is_significant() -> None:
    simulation = simulated(3, queries=60, noise=(0.5, 2.5))
    requests: list[str] = []

    def judge(pairs: QueryDocuments) -> list[int]:
        requests.extend(query for query, _ in pairs)
        return simulation.judge(pairs)

    settled = settle(simulation.runs, simulation.qrels, NDCG, judge, until="95%", scale=2, seed=4)
    assert settled.settled
    assert settled.ci is not None
    assert 8 <= settled.queries < 60
    assert settled.asked < settled.holes
    assert str(settled).startswith(
        f"settled after {settled.asked} of {settled.holes} unjudged documents, of "
    )
    assert "A is ahead of B" in str(settled)
    assert len(list(groupby(requests))) == len(set(requests))  # one query after the other
    # The same interval comes out of the judgments, over the queries in the order drawn.
    judged = merge_judgments(simulation.qrels, rp.read_qrels(settled.judgements))
    worst_cases = WorstCases(simulation.runs, judged, Policy(), scale=2)
    order = first_of_permutation(60, 60, 4)
    differences = worst_cases.pair_differences(0, 1, NDCG)[order[: settled.queries]]
    assert settled.ci == pytest.approx(sequential_interval(differences, 60))
    earlier = [sequential_interval(differences[:n], 60) for n in range(settled.queries)]
    assert not any(low > 0 or high < 0 for low, high in earlier)


def test_two_equal_runs_are_undecided_when_the_queries_run_out() -> None:
    simulation = simulated(5, queries=20, noise=(1.0, 1.0))
    settled = settle(
        simulation.runs, simulation.qrels, NDCG, simulation.judge, until="95%", scale=2
    )
    assert not settled.settled
    assert settled.queries == 20
    assert settled.asked == settled.holes
    assert "undecided, A − B from -" in str(settled)


def test_a_document_that_the_judge_cannot_grade_stays_unjudged() -> None:
    simulation = simulated(4, queries=4)
    requests: list[tuple[str, str]] = []

    def fails(pairs: QueryDocuments) -> list[None]:
        requests.extend(pairs)
        return [None for _ in pairs]

    settled = settle(simulation.runs, simulation.qrels, NDCG, fails, scale=2)
    assert not settled.settled
    assert settled.failed == settled.holes == len(set(requests)) == len(requests)
    before = simulation.worst_cases().pair_bound(0, 1, NDCG)
    assert (settled.bound.lowest, settled.bound.highest) == (before.lowest, before.highest)


def test_grades_off_the_scale_and_missing_grades_are_refused() -> None:
    simulation = simulated(4, queries=4)
    judges: list[tuple[Callable[[QueryDocuments], list[int]], str]] = [
        (lambda pairs: [3 for _ in pairs], "outside 0–2"),
        (lambda _: [], "0 grades for 1"),
    ]
    for judge, words in judges:
        with pytest.raises(rp.InputError, match=words):
            settle(simulation.runs, simulation.qrels, NDCG, judge, scale=2)


# --------------------------------------------------------------------------------------- a sample


def test_an_estimate_covers_what_judging_everything_gives() -> None:
    """For all runs at once and for differences, where the pool is one run's home."""
    trials = 40
    covered: dict[str, int] = {}
    naive: dict[str, int] = {}
    for seed in range(trials):
        simulation = simulated(seed, queries=45, noise=(1.0, 1.4, 2.5))
        full = rp.read_qrels(simulation.truth)
        sampled = estimate(simulation.worst_cases(), [NDCG, P10], full, 12, seed=seed)
        complete = simulation.complete()
        true = {run.name: rp.evaluate(complete, run, [NDCG, P10]) for run in simulation.runs}
        for measure in (NDCG, P10):
            for a, figures in sampled.runs.items():
                low, high = figures[measure].ci
                value = true[a][measure].expected
                covered[f"{a} {measure}"] = covered.get(f"{a} {measure}", 0) + (
                    low - 1e-9 <= value <= high + 1e-9
                )
            for (a, b), figures in sampled.pairs.items():
                low, high = figures[measure].ci
                value = true[a][measure].expected - true[b][measure].expected
                key = f"{a} − {b} {measure}"
                covered[key] = covered.get(key, 0) + (low - 1e-9 <= value <= high + 1e-9)
                reported = figures[measure].reported
                naive[key] = naive.get(key, 0) + (low <= reported <= high)
    # 95% of 40 is 38; below 34 has a chance of 1 in 100 for a single figure.
    assert min(covered.values()) >= 34, covered
    assert sum(covered.values()) >= 0.93 * trials * len(covered), covered
    assert naive["A − B nDCG@10"] < trials / 2  # what is reported is far from it


def test_a_larger_sample_contains_the_smaller_one() -> None:
    worst_cases = simulated(0, queries=45, noise=(1.0, 1.4, 2.5)).worst_cases()
    drawn = [set(draw(worst_cases, [NDCG], size, seed=2).rows()) for size in (8, 9, 20, 40)]
    assert all(small < large for small, large in pairwise(drawn))
    assert len({query for query, _ in drawn[0]}) == 8


def test_the_interval_of_a_sample_without_relevant_documents_is_not_a_point() -> None:
    """One unjudged document in twenty is relevant: most samples of eight queries have none."""
    qrels = {f"q{n:02}": {"a": 1, "n": 0} for n in range(60)}
    runs = [
        rp.read_run({q: {"a": 3.0, "u": 2.0, "n": 1.0} for q in qrels}, name="A"),
        rp.read_run({q: {"n": 3.0, "a": 2.0, "v": 1.0} for q in qrels}, name="B"),
    ]
    p3 = parse("P@3")
    worst_cases = WorstCases(runs, rp.read_qrels(qrels), Policy())
    covered = 0
    for seed in range(20):
        rare = np.random.default_rng(seed).random((60, 2)) < 0.05
        truth = {q: dict(zip("uv", map(int, rare[n]), strict=True)) for n, q in enumerate(qrels)}
        low, high = estimate(worst_cases, [p3], rp.read_qrels(truth), 8, seed=seed).runs["A"][p3].ci
        covered += low - 1e-9 <= (1.0 + rare[:, 0].mean()) / 3.0 <= high + 1e-9
    assert covered >= 18, "a point covered 8"
    nothing = estimate(worst_cases, [p3], rp.read_qrels({q: {"u": 0, "v": 0} for q in qrels}), 8)
    (answer,) = sample_answers(nothing)
    assert "8 judged queries do not show whether A or B is better" in answer


@pytest.mark.parametrize("share", [0.02, 0.95])
def test_an_estimate_stays_within_the_bounds_over_all_grades(share: float) -> None:
    """Precision below 0, above 1, or below what is judged relevant already."""
    rng = np.random.default_rng(1)
    for seed in range(6):
        truth = {
            f"q{q:02}": {f"d{d}": int(not d or rng.random() < share) for d in range(8)}
            for q in range(30)
        }
        qrels = {q: {"d0": docs["d0"], "d1": docs["d1"]} for q, docs in truth.items()}
        runs = [
            rp.read_run(
                {q: {f"d{d}": float(at) for d, at in enumerate(rng.permutation(8))} for q in truth},
                name=name,
            )
            for name in "AB"
        ]
        worst_cases = WorstCases(runs, rp.read_qrels(qrels), Policy())
        p5 = parse("P@5")
        sampled = estimate(worst_cases, [p5, parse("P@2")], rp.read_qrels(truth), 8, seed=seed)
        for at, name in enumerate("AB"):
            bound, one = worst_cases.run_bound(at, p5), sampled.runs[name][p5]
            assert bound.lowest - 1e-9 <= one.ci[0] <= one.estimate <= one.ci[1]
            assert one.ci[1] <= bound.highest + 1e-9
            assert 0.0 <= one.ci_new[0] <= one.ci_new[1] <= 1.0
            value = rp.evaluate(truth, runs[at], p5)[p5].expected
            assert one.ci[0] - 1e-9 <= value <= one.ci[1] + 1e-9
            assert sampled.runs[name][parse("P@2")].ci[0] >= 0.0
        bound, one = worst_cases.pair_bound(0, 1, p5), sampled.pairs["A", "B"][p5]
        assert bound.lowest - 1e-9 <= one.ci[0] <= one.ci[1] <= bound.highest + 1e-9


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_estimate_of_a_users_measure_may_lie_outside_0_to_1(sign: float) -> None:
    """The measure declares no upper limit, and its values exceed 1."""
    registered = dict(REGISTRY)

    def ends(measure: rp.Measure, run: PartlyJudged) -> QueryBounds:
        now = run.reported(measure).expected
        then = now + sign * run.unjudged_in_query
        return QueryBounds(np.minimum(now, then), np.maximum(now, then))

    try:

        @rp.measure("Gathered", unjudged=ends)
        def gathered(groups: rp.TieGroups) -> rp.Outcomes:
            """Relevant documents listed; or less them."""
            return rp.Outcomes.certain(sign * groups.sum_by_query(groups.doc_query, groups.grade))

        truth = {
            f"q{q:02}": {f"d{d}": int(d < 3 or q % 3 == 0) for d in range(6)} for q in range(30)
        }
        qrels = {q: {d: docs[d] for d in ("d0", "d1", "d2")} for q, docs in truth.items()}
        runs = [
            rp.read_run({q: {f"d{d}": float(d) for d in range(6)} for q in truth}, name="A"),
            rp.read_run({q: {"d5": 1.0} for q in truth}, name="B"),
        ]
        worst_cases = WorstCases(runs, rp.read_qrels(qrels), Policy())
        sampled = estimate(worst_cases, [gathered, P10], rp.read_qrels(truth), 10)
        for one in (sampled.runs["A"][gathered], sampled.pairs["A", "B"][gathered]):
            assert one.ci_new[0] <= one.ci[0] <= one.estimate <= one.ci[1] <= one.ci_new[1]
            assert abs(one.estimate) > 3.0
    finally:
        REGISTRY.clear()
        REGISTRY.update(registered)


def test_a_sample_that_is_too_small_or_not_judged_is_refused() -> None:
    simulation = simulated(5, queries=20)
    full = rp.read_qrels(simulation.truth)
    with pytest.raises(rp.InputError, match="7 queries is too small"):
        estimate(simulation.worst_cases(), [NDCG], full, 7)
    with pytest.raises(rp.InputError, match="queries have unjudged documents"):
        estimate(simulation.worst_cases(), [NDCG], full, 20)
    drawn = draw(simulation.worst_cases(), [NDCG], 9, seed=3)
    assert drawn["query"].n_unique() == 9
    incomplete = rp.read_qrels(drawn.head(drawn.height - 1).with_columns(pl.lit(1).alias("grade")))
    with pytest.raises(rp.InputError, match=r"1 of .* unjudged documents has no label"):
        estimate(simulation.worst_cases(), [NDCG], incomplete, 9, seed=3)


def test_more_queries_are_drawn_of_a_judge_where_too_few_have_a_value() -> None:
    """Two of three queries have nothing relevant, which only judging them shows."""
    lists = [{f"q{q}": {f"{run}{q}": 2.0, f"c{q}": 1.0} for q in range(60)} for run in "ab"]
    runs = [
        rp.read_run(of_queries, name=name) for name, of_queries in zip("ab", lists, strict=True)
    ]
    qrels = rp.read_qrels({f"q{q}": {"z": 0} for q in range(60)})
    judged: list[set[str]] = []

    def judge(_: WorstCases, to_judge: pl.DataFrame) -> tuple[Qrels, pl.DataFrame]:
        relevant = pl.col("query").str.slice(1).cast(pl.Int64) % 3 == 0
        rows = to_judge.with_columns(grade=relevant.cast(pl.Int64))
        judged.append(set(to_judge["query"]))
        return rp.read_qrels(rows), rows

    found = find_holes(runs, qrels, [NDCG], Policy(), judge_sample=10, judge=judge, seed=1)
    assert found.sampled is not None
    defined = [query for query in found.sampled.sampled if int(query[1:]) % 3 == 0]
    assert len(judged[0]) == 10
    assert len(defined) >= 8
    assert all(fewer < more for fewer, more in pairwise(judged))
    assert judged[-1] == set(found.sampled.sampled)
    labels = {f"q{q}": {f"{d}{q}": int(q % 3 == 0) for d in "abc"} for q in range(60)}
    few = rp.read_qrels(labels)
    with pytest.raises(rp.InputError, match="of the 10 sampled queries"):
        find_holes(runs, qrels, [NDCG], Policy(), judge_sample=10, judged_since=few, seed=1)


def test_intervals_for_new_queries_are_wider() -> None:
    simulation = simulated(6, queries=20)
    sampled = estimate(simulation.worst_cases(), [NDCG], rp.read_qrels(simulation.truth), 10)
    for figures in [*sampled.runs.values(), *sampled.pairs.values()]:
        one = figures[NDCG]
        assert one.ci_new[0] <= one.ci[0] <= one.estimate <= one.ci[1] <= one.ci_new[1]


# -------------------------------------------------------------------------------- leave one out


def test_leave_one_out_removes_the_judgments_that_a_system_alone_contributed() -> None:
    runs = [
        rp.read_run({"q": {"a": 3.0, "b": 2.0}}, name="home"),
        rp.read_run({"q": {"b": 3.0, "c": 2.0}}, name="guest"),
    ]
    qrels = rp.read_qrels({"q": {"a": 1, "b": 1, "c": 0}})
    pool = contributions(runs, qrels, 2)
    assert sorted(pool.rows()) == [
        ("q", "a", "home"), ("q", "b", "guest"), ("q", "b", "home"), ("q", "c", "guest"),
    ]  # fmt: skip
    table = leave_one_out(runs, qrels, [parse("P@2")], pool)
    by_name = {row["system"]: row for row in table.iter_rows(named=True)}
    home = by_name["home"]
    assert (home["value"], home["without"], home["change"]) == (1.0, 0.5, -0.5)
    assert (home["rank"], home["rank_without"], home["judgements"]) == (1, 1, 1)
    assert by_name["guest"]["change"] == 0.0
    with pytest.raises(rp.InputError, match="no column 'system'"):
        leave_one_out(runs, qrels, [parse("P@2")], pool.drop("system"))


# ---------------------------------------------------------------------------------- command line


@pytest.fixture
def files(tmp_path: Path) -> Callable[[str], str]:
    """Two runs, judgements and the truth as files."""
    simulation = simulated(7, queries=24)
    for run in simulation.runs:
        run.to_frame().write_csv(tmp_path / f"{run.name}.tsv", separator="\t")
    simulation.qrels.to_frame().write_csv(tmp_path / "qrels.tsv", separator="\t")
    rp.read_qrels(simulation.truth).to_frame().write_csv(tmp_path / "truth.tsv", separator="\t")
    return lambda name: str(tmp_path / name)


def test_holes_on_the_command_line(files: Callable[[str], str]) -> None:
    inputs = [files("qrels.tsv"), files("A.tsv"), files("B.tsv")]
    todo = files("todo.tsv")
    options = ["-m", "nDCG@10", "-m", "AP", "--depth", "5", "--judge-next", "3", "--to", todo]
    process = rankproof("holes", *inputs, *options, "--format", "json")
    assert process.returncode == 0, process.stderr.decode()
    data = json.loads(process.stdout)
    expected = rp.holes(inputs[0], {"A": inputs[1], "B": inputs[2]}, ["nDCG@10", "AP"], depth=5)
    assert data["runs"] == expected.to_dict()["runs"]
    assert data["pairs"] == expected.to_dict()["pairs"]
    assert [set(row) for row in data["next"]] == [{"query", "doc", "effect"}] * 3
    assert len(Path(todo).read_text().splitlines()) == 4
    table = rankproof("holes", *inputs, "-m", "nDCG@10").stdout.decode()
    assert "put either run ahead on nDCG@10 (A − B between" in table.replace("\n", " ")
    assert "all others stay as they are: not relevant" not in table
    explained = rankproof("holes", *inputs, "-m", "nDCG@10", "--explain").stdout.decode()
    assert "all others stay as they are: not relevant" in explained.replace("\n", " ")
    # The list, judged, is read back beside the judgements.
    Path(todo).write_text(Path(todo).read_text().replace("\t-1", "\t0"))
    options = ["-m", "nDCG@10", "--depth", "5", "--judged", todo, "--format", "json"]
    after = rankproof("holes", *inputs, *options)
    holes = [
        json.loads(x)["pairs"][0]["measures"]["nDCG@10"]["holes"]
        for x in (process.stdout, after.stdout)
    ]
    assert holes[1] == holes[0] - 3


def test_a_sample_on_the_command_line(files: Callable[[str], str]) -> None:
    inputs = [files("qrels.tsv"), files("A.tsv"), files("B.tsv"), "-m", "nDCG@10"]
    drawn = rankproof("holes", *inputs, "--judge-sample", "9", "--to", files("todo.jsonl"))
    assert b"9 queries were drawn" in drawn.stdout
    process = rankproof(
        *("holes", *inputs, "--judge-sample", "9", "--judged", files("truth.tsv")),
        *("--format", "json"),
    )
    assert process.returncode == 0, process.stderr.decode()
    sample = json.loads(process.stdout)["sample"]
    assert len(sample["sampled"]) == 9
    low, high = sample["pairs"][0]["measures"]["nDCG@10"]["ci"]
    assert low < sample["pairs"][0]["measures"]["nDCG@10"]["estimate"] < high
    few = rankproof("holes", *inputs, "--judge-sample", "5")
    assert few.returncode == 2
    assert b"too small" in few.stderr


def test_eval_reports_judged_shares_and_bounds_on_request(files: Callable[[str], str]) -> None:
    inputs = [files("qrels.tsv"), files("A.tsv"), files("B.tsv"), "-m", "nDCG@10", "-m", "AP"]
    plain = json.loads(rankproof("eval", *inputs, "--format", "json").stdout)
    figures = [run["measures"]["nDCG@10"] for run in plain["runs"]]
    assert figures[0]["judged"] == 1.0 > figures[1]["judged"]
    assert "holes" not in figures[0]
    expected = rp.holes(inputs[0], {"A": inputs[1], "B": inputs[2]}, ["nDCG@10", "AP"])
    bounded = json.loads(rankproof("eval", *inputs, "--holes", "--format", "json").stdout)
    for run in bounded["runs"]:
        for name, value in run["measures"].items():
            bound = expected[run["name"]][parse(name)]
            assert value["holes"] == [bound.lowest, bound.highest]
    table = rankproof("eval", *inputs).stdout.decode()
    assert "judged" in table
    assert "lowest" not in table
    alone = rankproof("eval", inputs[0], inputs[1], "-m", "nDCG@10").stdout.decode()
    assert "judged" not in alone  # all of it is
    condensed = rankproof("eval", *inputs, "--condensed").stdout.decode()
    assert "Unjudged documents are removed from the lists (condensed)." in condensed
    refused = rankproof("eval", *inputs, "--condensed", "--holes")
    assert refused.returncode == 2
    assert b"condensed lists have no unjudged documents" in refused.stderr


ODD = ["a b", 'a"b', '"ab"', "#x", "\u00e9", "=1"]


@pytest.mark.parametrize("ending", ["tsv", "jsonl"])
def test_documents_to_judge_are_read_back_with_the_ids_they_have(
    tmp_path: Path, ending: str
) -> None:
    pairs = [(query, doc) for query in ODD for doc in ODD]
    frame = pl.DataFrame(pairs, ["query", "doc"], orient="row").with_columns(grade=pl.lit(1))
    (tmp_path / f"next.{ending}").write_bytes(judging_file(frame, f".{ending}"))
    assert sorted(rp.read_qrels(tmp_path / f"next.{ending}").to_frame().rows()) == sorted(
        (query, doc, 1) for query, doc in pairs
    )


@pytest.mark.parametrize("pair", [("q 1", "d"), ("q", "d 1"), ("#q", "d")])
def test_documents_to_judge_that_a_trec_file_would_lose_are_refused(
    pair: tuple[str, str],
) -> None:
    frame = pl.DataFrame([("q", "d"), pair], ["query", "doc"], orient="row")
    with pytest.raises(rp.InputError, match="cannot be an id in a TREC file"):
        judging_file(frame, ".trec")
