"""What to judge next, until it is settled; estimates from a sample; leaving a system out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rankproof_cli import rankproof

import rankproof as rp
from rankproof.data.tables import Qrels, Run
from rankproof.evaluation import Policy
from rankproof.measures import REGISTRY, parse
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
from rankproof.unjudged.sampling import draw, estimate
from rankproof.unjudged.unjudged_documents import PartlyJudged, QueryBounds

NDCG, P10 = parse("nDCG@10"), parse("P@10")


@dataclass(frozen=True)
class World:
    """Runs of which all is known, and judgements of what the first of them lists."""

    runs: list[Run]
    qrels: Qrels
    truth: dict[str, dict[str, int]]

    def judge(self, asked: QueryDocuments) -> list[int]:
        return [self.truth[query][doc] for query, doc in asked]

    def view(self) -> WorstCases:
        return WorstCases(self.runs, self.qrels, Policy(), scale=2)

    def complete(self) -> Qrels:
        """Judgements with every hole of every run filled in."""
        everyone = list(range(len(self.runs)))
        holes = self.view().unjudged(everyone, NDCG)
        names = self.qrels.queries.gather(holes.query)
        grades = [self.truth[q][d] for q, d in zip(names, holes.doc, strict=True)]
        frame = pl.DataFrame({"query": names, "doc": holes.doc, "grade": grades})
        return merge_judgments(self.qrels, rp.read_qrels(frame))


def world(
    seed: int, queries: int = 40, documents: int = 30, noise: tuple[float, ...] = (1, 2)
) -> World:
    """Queries that differ in how much is relevant; the pool is the first run's home."""
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
    known = world(0, queries=6)
    listed = judge_next(known.view(), NDCG)
    assert listed["effect"].is_sorted(descending=True)

    def difference(qrels: Qrels) -> float:
        a, b = (rp.evaluate(qrels, run, NDCG)[NDCG].expected for run in known.runs)
        return a - b

    now = difference(known.qrels)
    for query, doc, effect in listed.head(8).iter_rows():
        more = merge_judgments(known.qrels, rp.read_qrels([(query, doc, 2)]))
        assert math.isclose(abs(difference(more) - now), effect, abs_tol=1e-12)
    assert listed.height == known.view().count([0, 1], NDCG)


def test_one_run_is_judged_by_the_effect_on_its_mean() -> None:
    qrels = {"q": {"a": 1}, "r": {"a": 1}}
    run = rp.read_run({"q": {"x": 3.0, "a": 2.0}, "r": {"a": 3.0, "y": 2.0}}, name="a")
    view = WorstCases([run], rp.read_qrels(qrels), Policy())
    assert judge_next(view, parse("RR"), 1).rows() == [("q", "x", 0.25)]


def test_an_effect_of_inferred_precision_knows_what_was_pooled_and_not_judged() -> None:
    qrels = {"q": {"a": 1, "c": 3, "z": 0, "p": -1}}
    run = {"q": {"x": 2.0, "a": 2.0, "c": 1.0, "p": 1.0, "y": 1.0}}

    def inferred(more: dict[str, int]) -> float:
        return rp.evaluate({"q": qrels["q"] | more}, run, "infAP")["infAP"].expected

    view = WorstCases([rp.read_run(run, name="a")], rp.read_qrels(qrels), Policy())
    listed = judge_next(view, parse("infAP"))
    assert set(listed["doc"]) == {"x", "y", "p"}
    for _, doc, effect in listed.iter_rows():
        assert math.isclose(abs(inferred({doc: 3}) - inferred({})), effect, abs_tol=1e-12), doc


def test_a_hole_has_no_effect_on_a_query_that_no_mean_is_over_with_it_either() -> None:
    runs = [{"q": {"d": 1.0}}, {"q": {"x": 2.0, "d": 1.0}}]  # among candidates a has no x
    tables = [rp.read_run(run, name=name) for run, name in zip(runs, "ab", strict=True)]
    view = WorstCases(tables, rp.read_qrels({"q": {"d": 0}}), Policy(candidates_only=True))
    for name in ("RR", "P@1", "Hits", "AP", "nDCG@2"):
        assert judge_next(view, parse(name)).rows() == [("q", "x", 0.0)], name


def test_effects_of_holes_that_tie_are_told_apart() -> None:
    """Holes of one query are tried out side by side, and share the tie group of their list."""
    run = rp.read_run({"q": {"x": 1.0, "a": 1.0, "y": 1.0}}, name="a")
    view = WorstCases([run], rp.read_qrels({"q": {"a": 1, "b": 1}}), Policy())
    tied = judge_next(view, parse("P@1"))
    assert tied.rows() == [("q", "x", 1 / 3), ("q", "y", 1 / 3)]


@pytest.mark.parametrize("ending", [".tsv", ".jsonl"])
def test_the_list_is_a_file_that_is_judged_and_read_back(tmp_path: Path, ending: str) -> None:
    known = world(1, queries=5)
    path = tmp_path / f"next{ending}"
    path.write_bytes(judging_file(judge_next(known.view(), NDCG, 4), ending))
    assert len(rp.read_qrels(path)) == 0  # −1 is "not judged"
    text = path.read_text()
    path.write_text(text.replace("-1", "2"))
    judged = rp.read_qrels(path)
    assert judged.grade.tolist() == [2, 2, 2, 2]
    assert len(merge_judgments(known.qrels, judged)) == len(known.qrels) + 4


def test_two_grades_for_one_document_are_refused() -> None:
    one, other = rp.read_qrels({"q": {"a": 1}}), rp.read_qrels({"q": {"a": 2, "b": 1}})
    with pytest.raises(rp.InputError, match="grade 1 in qrels and 2"):
        merge_judgments(one, other)
    assert len(merge_judgments(one, rp.read_qrels({"q": {"a": 1, "b": 0}, "r": {"c": 1}}))) == 3


# -------------------------------------------------------------------------------------- settling


def test_what_was_pooled_and_not_judged_keeps_inferred_precision_from_being_settled() -> None:
    """To a depth the sampled ones below it count, whatever is said of those above."""
    known = world(0, queries=6)
    left = {q: dict.fromkeys(list(docs)[-3:], -1) for q, docs in known.truth.items()}
    rows = known.qrels.to_frame().rows() + [
        (q, d, g) for q, docs in left.items() for d, g in docs.items()
    ]
    qrels = rp.read_qrels({q: {d: g for r, d, g in rows if r == q} for q in known.truth})
    done = settle(known.runs, qrels, parse("infAP"), known.judge, depth=2, scale=2)
    view = WorstCases(
        known.runs,
        merge_judgments(qrels, rp.read_qrels(done.judgements)),
        Policy(),
        depth=2,
        scale=2,
    )
    again = view.pair_bound(0, 1, parse("infAP"))
    assert (done.bound.lowest, done.bound.highest) == pytest.approx((again.lowest, again.highest))


def test_words_name_what_was_reached_and_count_in_good_english() -> None:
    runs = [rp.read_run({"q": found}, name=found[0]) for found in (["a", "b"], ["b"])]
    open_ = rp.holes({"q": {"b": 1}}, {"a": runs[0], "b": runs[1]}, "P@1")
    assert "rests on 1 unjudged document (" in open_.verdicts()[0]
    known = world(0, queries=6)
    wide = settle(known.runs, known.qrels, NDCG, known.judge, until=0.05, scale=2)
    low, high = sorted(abs(end) for end in (wide.bound.lowest, wide.bound.highest))
    assert wide.bound.certain
    assert str(wide).endswith(f"is ahead by {low:.3f} to {high:.3f} whatever the rest")


def test_err_is_not_settled_where_a_hole_could_change_what_every_grade_is_worth() -> None:
    known = world(0, queries=6)
    with pytest.raises(rp.InputError, match=r"name it: ERR\(max=3\)@10"):
        settle(known.runs, known.qrels, parse("ERR@10"), known.judge, scale=3)
    assert settle(known.runs, known.qrels, parse("ERR(max=3)@10"), known.judge, scale=3).settled


@pytest.mark.parametrize("name", ["nDCG@10", "P@10", "AP@10", "RR@10", "ERR@10", "R@10"])
@pytest.mark.parametrize("batch", [1, 7])
def test_judging_stops_when_no_completion_can_turn_the_lead(name: str, batch: int) -> None:
    known = world(2, queries=12, noise=(0.6, 2.5))
    measure = parse(name)
    done = settle(known.runs, known.qrels, measure, known.judge, batch=batch, scale=2)
    assert done.settled
    assert 0 < done.asked <= done.holes
    assert str(done).startswith(f"settled after {done.asked} of {done.holes} holes: ")
    assert str(done).endswith("whatever the rest")
    # The same bounds come out of all judgements at once, and the truth lies within.
    more = merge_judgments(known.qrels, rp.read_qrels(done.judgements))
    again = WorstCases(known.runs, more, Policy(), scale=2).pair_bound(0, 1, measure)
    assert math.isclose(again.lowest, done.bound.lowest, abs_tol=1e-12)
    assert math.isclose(again.highest, done.bound.highest, abs_tol=1e-12)
    # Whoever goes on from a view of the runs, as the command line does, finds the same.
    work = Settling(WorstCases(known.runs, known.qrels, Policy(), scale=2), measure, "certain")
    assert str(work.run(known.judge, batch, None)) == str(done)
    a, b = (rp.evaluate(known.complete(), r, measure)[measure].expected for r in known.runs)
    assert (a - b) * done.bound.expected > 0


def test_scores_past_float64_are_settled_like_any_others() -> None:
    found = []
    for much in (0, 2**60):
        lists = ({"x": 3, "d": 2, "y": 1}, {"d": 3, "x": 2}), ({"z": 5, "d": 1}, {"d": 5, "z": 1})
        runs = []
        for at, name in enumerate("ab"):
            rows = [
                ("qr"[n], doc, much + score)
                for n, both in enumerate(lists)
                for doc, score in both[at].items()
            ]
            frame = pl.DataFrame(rows, schema=["query", "doc", "score"], orient="row")
            runs.append(rp.read_run(frame, name=name))
        assert (runs[0].rest is not None) == bool(much)
        qrels = rp.read_qrels({"q": {"d": 1}, "r": {"d": 1}})
        found.append(settle(runs, qrels, parse("RR"), lambda pairs: [0 for _ in pairs]))
    assert str(found[0]) == str(found[1])
    assert found[1].settled


def test_a_judge_may_give_a_set_measure_a_grade_above_all_there_were() -> None:
    lists = ["x", "d", "y"], ["d", "y", "x"]
    runs = [rp.read_run({"q": found}, name=name) for found, name in zip(lists, "ab", strict=True)]
    given = rp.read_qrels({"q": {"d": 4}})
    done = settle(runs, given, parse("RAnWG@2"), lambda pairs: [5 for _ in pairs], until=0.0)
    assert done.settled
    assert set(done.judgements["grade"]) == {5}


def test_judging_stops_at_a_width_and_at_a_limit() -> None:
    known = world(3, queries=12)
    done = settle(known.runs, known.qrels, NDCG, known.judge, until=0.1, scale=2)
    assert done.settled
    assert done.bound.width <= 0.1
    few = settle(known.runs, known.qrels, NDCG, known.judge, until=0.1, limit=5, batch=3, scale=2)
    assert few.asked == 5
    assert not few.settled
    assert str(few).startswith("not settled after 5 of")


def test_a_document_that_the_judge_cannot_grade_stays_a_hole() -> None:
    known = world(4, queries=4)
    asked: list[tuple[str, str]] = []

    def fails(pairs: QueryDocuments) -> list[None]:
        asked.extend(pairs)
        return [None for _ in pairs]

    done = settle(known.runs, known.qrels, NDCG, fails, scale=2)
    assert not done.settled
    assert done.failed == done.holes == len(set(asked)) == len(asked)
    before = known.view().pair_bound(0, 1, NDCG)
    assert (done.bound.lowest, done.bound.highest) == (before.lowest, before.highest)


def test_a_judge_that_leaves_the_scale_or_the_count_is_refused() -> None:
    known = world(4, queries=4)
    judges: list[tuple[Callable[[QueryDocuments], list[int]], str]] = [
        (lambda pairs: [3 for _ in pairs], "outside 0–2"),
        (lambda _: [], "0 grades for 1"),
    ]
    for judge, words in judges:
        with pytest.raises(rp.InputError, match=words):
            settle(known.runs, known.qrels, NDCG, judge, scale=2)


# --------------------------------------------------------------------------------------- a sample


def test_an_estimate_covers_what_judging_everything_gives() -> None:
    """For all runs at once and for differences, where the pool is one run's home."""
    trials = 40
    covered: dict[str, int] = {}
    naive: dict[str, int] = {}
    for seed in range(trials):
        known = world(seed, queries=45, noise=(1.0, 1.4, 2.5))
        full = rp.read_qrels(known.truth)
        found = estimate(known.view(), [NDCG, P10], full, 12, seed=seed)
        complete = known.complete()
        true = {run.name: rp.evaluate(complete, run, [NDCG, P10]) for run in known.runs}
        for measure in (NDCG, P10):
            for a, figures in found.runs.items():
                low, high = figures[measure].ci
                value = true[a][measure].expected
                covered[f"{a} {measure}"] = covered.get(f"{a} {measure}", 0) + (
                    low - 1e-9 <= value <= high + 1e-9
                )
            for (a, b), figures in found.pairs.items():
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


def test_a_larger_sample_of_queries_holds_the_smaller_one_and_all_its_holes() -> None:
    view = world(0, queries=45, noise=(1.0, 1.4, 2.5)).view()
    drawn = [set(draw(view, [NDCG], size, seed=2).rows()) for size in (8, 9, 20, 40)]
    assert all(small < large for small, large in pairwise(drawn))
    assert len({query for query, _ in drawn[0]}) == 8


def test_a_sample_without_anything_relevant_does_not_say_that_there_is_nothing() -> None:
    """One hole in twenty is relevant: of eight queries most samples hold none."""
    qrels = {f"q{n:02}": {"a": 1, "n": 0} for n in range(60)}
    runs = [
        rp.read_run({q: {"a": 3.0, "u": 2.0, "n": 1.0} for q in qrels}, name="A"),
        rp.read_run({q: {"n": 3.0, "a": 2.0, "v": 1.0} for q in qrels}, name="B"),
    ]
    p3 = parse("P@3")
    view = WorstCases(runs, rp.read_qrels(qrels), Policy())
    covered = 0
    for seed in range(20):
        rare = np.random.default_rng(seed).random((60, 2)) < 0.05
        truth = {q: dict(zip("uv", map(int, rare[n]), strict=True)) for n, q in enumerate(qrels)}
        low, high = estimate(view, [p3], rp.read_qrels(truth), 8, seed=seed).runs["A"][p3].ci
        covered += low - 1e-9 <= (1.0 + rare[:, 0].mean()) / 3.0 <= high + 1e-9
    assert covered >= 18, "a point covered 8"
    nothing = estimate(view, [p3], rp.read_qrels({q: {"u": 0, "v": 0} for q in qrels}), 8)
    assert all("does not tell A and B apart" in said for said in nothing.words())


@pytest.mark.parametrize("share", [0.02, 0.95])
def test_an_estimate_stays_within_what_grades_could_make_of_it(share: float) -> None:
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
        view = WorstCases(runs, rp.read_qrels(qrels), Policy())
        p5 = parse("P@5")
        found = estimate(view, [p5, parse("P@2")], rp.read_qrels(truth), 8, seed=seed)
        for at, name in enumerate("AB"):
            bound, one = view.run_bound(at, p5), found.runs[name][p5]
            assert bound.lowest - 1e-9 <= one.ci[0] <= one.estimate <= one.ci[1]
            assert one.ci[1] <= bound.highest + 1e-9
            assert 0.0 <= one.ci_new[0] <= one.ci_new[1] <= 1.0
            value = rp.evaluate(truth, runs[at], p5)[p5].expected
            assert one.ci[0] - 1e-9 <= value <= one.ci[1] + 1e-9
            assert found.runs[name][parse("P@2")].ci[0] >= 0.0
        bound, one = view.pair_bound(0, 1, p5), found.pairs["A", "B"][p5]
        assert bound.lowest - 1e-9 <= one.ci[0] <= one.ci[1] <= bound.highest + 1e-9


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_estimate_of_a_measure_of_ones_own_is_not_held_between_0_and_1(sign: float) -> None:
    """It was not said to be endless, and values say that it is."""
    known = dict(REGISTRY)

    def ends(measure: rp.Measure, run: PartlyJudged) -> QueryBounds:
        now = run.reported(measure).expected
        then = now + sign * run.unjudged_in_query
        return QueryBounds(np.minimum(now, then), np.maximum(now, then))

    try:

        @rp.measure("Gathered", unjudged=ends)
        def gathered(groups: rp.TieGroups) -> rp.Outcomes:
            """Relevant documents listed; or less them."""
            return rp.Outcomes.certain(sign * groups.sum_by_query(groups.doc_query, groups.grade))

        world = {
            f"q{q:02}": {f"d{d}": int(d < 3 or q % 3 == 0) for d in range(6)} for q in range(30)
        }
        qrels = {q: {d: docs[d] for d in ("d0", "d1", "d2")} for q, docs in world.items()}
        runs = [
            rp.read_run({q: {f"d{d}": float(d) for d in range(6)} for q in world}, name="A"),
            rp.read_run({q: {"d5": 1.0} for q in world}, name="B"),
        ]
        view = WorstCases(runs, rp.read_qrels(qrels), Policy())
        found = estimate(view, [gathered, P10], rp.read_qrels(world), 10)
        for one in (found.runs["A"][gathered], found.pairs["A", "B"][gathered]):
            assert one.ci_new[0] <= one.ci[0] <= one.estimate <= one.ci[1] <= one.ci_new[1]
            assert abs(one.estimate) > 3.0
    finally:
        REGISTRY.clear()
        REGISTRY.update(known)


def test_a_sample_is_refused_where_it_cannot_estimate() -> None:
    known = world(5, queries=20)
    full = rp.read_qrels(known.truth)
    with pytest.raises(rp.InputError, match="7 queries is too small"):
        estimate(known.view(), [NDCG], full, 7)
    with pytest.raises(rp.InputError, match="queries have holes"):
        estimate(known.view(), [NDCG], full, 20)
    wanted = draw(known.view(), [NDCG], 9, seed=3)
    assert wanted["query"].n_unique() == 9
    some = rp.read_qrels(wanted.head(wanted.height - 1).with_columns(pl.lit(1).alias("grade")))
    with pytest.raises(rp.InputError, match=r"1 of .* holes has no label"):
        estimate(known.view(), [NDCG], some, 9, seed=3)


def test_new_queries_are_less_certain_than_these() -> None:
    known = world(6, queries=20)
    found = estimate(known.view(), [NDCG], rp.read_qrels(known.truth), 10)
    for figures in [*found.runs.values(), *found.pairs.values()]:
        one = figures[NDCG]
        assert one.ci_new[0] <= one.ci[0] <= one.estimate <= one.ci[1] <= one.ci_new[1]


# -------------------------------------------------------------------------------- leave one out


def test_a_system_is_shown_without_what_it_alone_contributed() -> None:
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
    known = world(7, queries=24)
    for run in known.runs:
        run.to_frame().write_csv(tmp_path / f"{run.name}.tsv", separator="\t")
    known.qrels.to_frame().write_csv(tmp_path / "qrels.tsv", separator="\t")
    rp.read_qrels(known.truth).to_frame().write_csv(tmp_path / "truth.tsv", separator="\t")
    return lambda name: str(tmp_path / name)


def test_holes_on_the_command_line(files: Callable[[str], str]) -> None:
    named = [files("qrels.tsv"), files("A.tsv"), files("B.tsv")]
    todo = files("todo.tsv")
    asked = ["-m", "nDCG@10", "-m", "AP", "--depth", "5", "--judge-next", "3", "--to", todo]
    done = rankproof("holes", *named, *asked, "--format", "json")
    assert done.returncode == 0, done.stderr.decode()
    data = json.loads(done.stdout)
    found = rp.holes(named[0], {"A": named[1], "B": named[2]}, ["nDCG@10", "AP"], depth=5)
    assert data["runs"] == found.to_dict()["runs"]
    assert data["pairs"] == found.to_dict()["pairs"]
    assert [set(row) for row in data["next"]] == [{"query", "doc", "effect"}] * 3
    assert len(Path(todo).read_text().splitlines()) == 4
    table = rankproof("holes", *named, "-m", "nDCG@10").stdout.decode()
    assert "every other unjudged document stays as it is: not relevant" in table
    assert "rests on" in table or "whatever" in table
    # The list, judged, is read back beside the judgements.
    Path(todo).write_text(Path(todo).read_text().replace("\t-1", "\t0"))
    again = ["-m", "nDCG@10", "--depth", "5", "--judged", todo, "--format", "json"]
    after = rankproof("holes", *named, *again)
    holes = [
        json.loads(x)["pairs"][0]["measures"]["nDCG@10"]["holes"]
        for x in (done.stdout, after.stdout)
    ]
    assert holes[1] == holes[0] - 3


def test_a_sample_on_the_command_line(files: Callable[[str], str]) -> None:
    named = [files("qrels.tsv"), files("A.tsv"), files("B.tsv"), "-m", "nDCG@10"]
    drawn = rankproof("holes", *named, "--judge-sample", "9", "--to", files("todo.jsonl"))
    assert b"9 queries were drawn" in drawn.stdout
    done = rankproof(
        *("holes", *named, "--judge-sample", "9", "--judged", files("truth.tsv")),
        *("--format", "json"),
    )
    assert done.returncode == 0, done.stderr.decode()
    sample = json.loads(done.stdout)["sample"]
    assert len(sample["sampled"]) == 9
    low, high = sample["pairs"][0]["measures"]["nDCG@10"]["ci"]
    assert low < sample["pairs"][0]["measures"]["nDCG@10"]["estimate"] < high
    few = rankproof("holes", *named, "--judge-sample", "5")
    assert few.returncode == 2
    assert b"too small" in few.stderr


def test_eval_carries_what_is_judged_and_bounds_on_request(files: Callable[[str], str]) -> None:
    named = [files("qrels.tsv"), files("A.tsv"), files("B.tsv"), "-m", "nDCG@10", "-m", "AP"]
    plain = json.loads(rankproof("eval", *named, "--format", "json").stdout)
    figures = [run["measures"]["nDCG@10"] for run in plain["runs"]]
    assert figures[0]["judged"] == 1.0 > figures[1]["judged"]
    assert "holes" not in figures[0]
    found = rp.holes(named[0], {"A": named[1], "B": named[2]}, ["nDCG@10", "AP"])
    bounded = json.loads(rankproof("eval", *named, "--holes", "--format", "json").stdout)
    for run in bounded["runs"]:
        for name, value in run["measures"].items():
            bound = found[run["name"]][parse(name)]
            assert value["holes"] == [bound.lowest, bound.highest]
    table = rankproof("eval", *named).stdout.decode()
    assert "judged" in table
    assert "lowest" not in table
    alone = rankproof("eval", named[0], named[1], "-m", "nDCG@10").stdout.decode()
    assert "judged: share" not in alone  # all of it is
    condensed = rankproof("eval", *named, "--condensed").stdout.decode()
    assert "condensed lists: documents that nobody judged are left out" in condensed
    refused = rankproof("eval", *named, "--condensed", "--holes")
    assert refused.returncode == 2
    assert b"condensed lists have no holes" in refused.stderr


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
