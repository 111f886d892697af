"""Several judges on one set, joined by how reliable each proves to be."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_sets import honest, ordering, reply, settings, shown, truth, write_corpus
from hypothesis import given
from hypothesis import strategies as st
from loopback import Reply, Request, loopback
from rankproof_cli import rankproof
from simulated_pools import SimulatedJudge, simulate_pool

from rankproof.foundation.arrays import Int
from rankproof.foundation.errors import InputError
from rankproof.golden.build_status import read_status
from rankproof.golden.building import Build
from rankproof.golden.export_files import export_files
from rankproof.golden.health import panel_health
from rankproof.golden.judge_agreement import compare_people, repeat_grading
from rankproof.golden.judge_combination import combine_grades
from rankproof.golden.plackett_luce import OrderTable
from rankproof.golden.plan import make_plan
from rankproof.golden.refinement import Pool, Refinement, RefineSettings
from rankproof.golden.result import read_golden
from rankproof.golden.store import Store


def seen(draw: np.random.Generator, true: Int, wrong: float) -> Int:
    """True grades, so many of them replaced by any."""
    other = draw.integers(1, 6, len(true))
    return np.asarray(np.where(draw.random(len(true)) < wrong, other, true))


# --------------------------------------------------------------------------------------- grades


def test_of_three_judges_the_one_that_guesses_counts_for_little() -> None:
    draw = np.random.default_rng(1)
    true = 1 + draw.choice(5, 400, p=[0.4, 0.25, 0.15, 0.12, 0.08])
    said = np.stack([seen(draw, true, wrong) for wrong in (0.3, 0.4, 1.0)], axis=1)
    found = combine_grades(said, np.zeros(400, np.int64))
    right = (said == true[:, None]).mean(axis=0)
    assert (found.grade == true).mean() > max(right)
    assert (np.median(said, axis=1) == true).mean() < (found.grade == true).mean() - 0.05
    assert found.accuracy == pytest.approx(right, abs=0.06)
    away = np.abs(said - true[:, None]).mean(axis=0)
    assert found.mean_distance == pytest.approx(away, abs=0.2)


def test_a_few_labels_of_people_teach_which_of_two_judges_to_trust() -> None:
    draw = np.random.default_rng(2)
    true = draw.integers(1, 6, 300)
    said = np.stack([seen(draw, true, 0.1), seen(draw, true, 0.7)], axis=1)
    known = np.where(np.arange(300) < 60, true, 0)
    without, taught = combine_grades(said, np.zeros(300, np.int64)), combine_grades(said, known)
    assert (taught.grade == true)[60:].mean() > 0.85
    assert (taught.grade == true)[60:].mean() > (without.grade == true)[60:].mean()
    assert taught.accuracy[0] > 0.8
    assert taught.accuracy[1] < 0.6


def test_a_judge_that_is_one_grade_too_kind_is_set_right_by_people() -> None:
    draw = np.random.default_rng(3)
    true = draw.integers(1, 5, 300)
    said = np.stack([true + 1, np.minimum(true + 1, 5)], axis=1)
    found = combine_grades(said, np.where(np.arange(300) < 80, true, 0))
    assert (found.grade == true)[80:].mean() > 0.9


def test_people_s_grades_of_a_passage_do_not_change_the_combined_grade_of_the_judges() -> None:
    said = np.full((50, 2), 2)
    known = np.zeros(50, np.int64)
    known[0] = 5
    assert combine_grades(said, known).grade[0] == 2


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30),
    st.integers(0, 5),
)
def test_a_combined_grade_is_on_the_scale_and_exists_where_a_judge_graded(
    votes: list[tuple[int, int]], label: int
) -> None:
    said = np.array(votes)
    found = combine_grades(said, np.full(len(votes), label))
    assert ((found.grade > 0) == (said > 0).any(axis=1)).all()
    assert (found.grade <= 5).all()
    assert ((found.mean >= 1 - 1e-9) & (found.mean <= 5 + 1e-9)).all()
    swapped = combine_grades(said[:, ::-1], np.full(len(votes), label))
    assert np.allclose(swapped.mean, found.mean)
    assert np.allclose(swapped.accuracy[::-1], found.accuracy, equal_nan=True)


# --------------------------------------------------------------------------------------- orders


def test_an_order_by_a_sharper_judge_is_the_order_of_utilities_farther_apart() -> None:
    orders = [(0, 1, 2), (2, 0)]
    theta = np.array([0.3, -0.2, 0.5])
    sharp = OrderTable.from_orders(orders, 3, np.full(2, 2.0))
    assert sharp.log_likelihood(theta) == pytest.approx(
        OrderTable.from_orders(orders, 3).log_likelihood(2 * theta)
    )
    value, gradient, hessian = sharp.derivatives(theta)
    assert value == pytest.approx(sharp.log_likelihood(theta))
    step = 1e-5
    for at, axis in enumerate(np.eye(3)):
        more, less = (sharp.derivatives(theta + side * step * axis) for side in (1, -1))
        assert gradient[at] == pytest.approx((more[0] - less[0]) / (2 * step), abs=1e-6)
        assert hessian[at] == pytest.approx(-(more[1] - less[1]) / (2 * step), abs=1e-6)


def test_each_order_is_as_likely_under_each_draw_as_by_itself() -> None:
    orders, sharp = [(0, 1, 2, 3), (2, 0)], np.array([1.5, 0.5])
    drawn = np.random.default_rng(0).normal(size=(5, 4))
    alone = [
        [
            OrderTable.from_orders([order], 4, sharp[at : at + 1]).log_likelihood(theta)
            for at, order in enumerate(orders)
        ]
        for theta in drawn
    ]
    assert OrderTable.from_orders(orders, 4, sharp).log_likelihood_by_order(drawn) == pytest.approx(
        np.array(alone)
    )


def refined(betas: Sequence[float], together: bool) -> tuple[float, list[float]]:
    """True overlap of pools that judges of these sharpnesses ordered in turns; what was learned."""
    draw = np.random.default_rng(7)
    pools = [simulate_pool(draw) for _ in range(14)]
    refinement = Refinement(
        [Pool(p.grade, p.rrf) for p in pools],
        RefineSettings(budget=24, target=1),
        judges=len(betas) if together else 1,
    )
    judges = [SimulatedJudge(beta) for beta in betas]
    turn = 0
    while asked := refinement.next_round():
        whose = (
            refinement.judges_of_round()
            if together
            else [(turn + n) % 2 for n in range(len(asked))]
        )
        turn += len(asked)
        refinement.add(
            [
                judges[who].order(pools[at].utility, batch, draw)
                for who, (at, batch) in zip(whose, asked, strict=True)
            ]
        )
    found = zip(pools, refinement.rankings(), strict=True)
    return float(np.mean([p.overlap(r.order) for p, r in found])), refinement.sharpness


def test_how_sharp_each_judge_is_shows_in_what_they_order() -> None:
    better, (sharp, blunt) = refined((6.0, 0.5), together=True)
    assert 4 < sharp / blunt < 36  # 12 in truth
    assert better > refined((6.0, 0.5), together=False)[0]
    _, (one, other) = refined((3.0, 3.0), together=True)
    assert 0.5 < one / other < 2


def test_judges_take_turns_in_every_pool() -> None:
    draw = np.random.default_rng(8)
    pools = [simulate_pool(draw) for _ in range(3)]
    refinement = Refinement(
        [Pool(p.grade, p.rrf) for p in pools],
        RefineSettings(budget=9, target=1, per_round=3),
        judges=2,
    )
    turns: Counter[tuple[int, int]] = Counter()
    while asked := refinement.next_round():
        for judge, (at, _) in zip(refinement.judges_of_round(), asked, strict=True):
            turns[at, judge] += 1
        refinement.add([batch for _, batch in asked])
    assert sorted(turns.values()) == [4, 4, 4, 5, 5, 5]
    assert {judge for (_, judge), times in turns.items() if times == 5} == {0, 1}


# -------------------------------------------------------------------------------- the whole of it


def babbles(request: Request) -> Reply:
    return reply("I would rather not.")


def unkind(request: Request) -> Reply:
    """Grades one step lower than it should, and orders as it is shown."""
    query, passages, _ = shown(request)
    if ordering(request):
        return reply(json.dumps({"order": [label for label, _ in passages]}))
    return reply(json.dumps({label: max(1, truth(query, doc) - 1) for label, doc in passages}))


def by_model(second: Callable[[Request], Reply]) -> Callable[[Request], Reply]:
    return lambda request: honest(request) if request.json["model"] == "one" else second(request)


def one(url: str, model: str, **more: Any) -> dict[str, Any]:
    return {"type": "llm", "url": f"{url}/v1", "model": model, "attempts": 1, **more}


def both(url: str) -> dict[str, Any]:
    judges = {"first": one(url, "one"), "second": one(url, "two")}
    return {"type": "panel", "judges": judges}


def test_a_judge_that_joins_is_asked_for_all_grades_and_the_others_for_none(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    path = tmp_path / "set.golden"
    with loopback(by_model(unkind)) as server:

        def build(judge: dict[str, Any]) -> Counter[tuple[str, bool]]:
            before = len(server.requests)
            with Store(path, create=True) as store:
                Build(settings(corpus, judge=judge), store).run()
            sent = server.requests[before:]
            return Counter((r.json["model"], ordering(r)) for r in sent)

        alone = build(one(server.url, "one"))
        assert set(alone) == {("one", False), ("one", True)}
        joined = build(both(server.url))
        assert joined["one", False] == 0
        assert joined["two", False] == alone["one", False]
        assert joined["two", True] > 0
        assert joined["two", True] >= joined["one", True]
        assert build(both(server.url)) == {}
        assert build(one(server.url, "one")) == {}
        assert build(both(server.url)) == {}
    with Store(path) as store:
        golden = read_golden(store)
        assert golden.judge["name"] == "first + second"
        for query in golden.queries:
            for p in query.passages:
                right = truth(query.query, p.doc)
                assert p.votes == {"first": right, "second": max(1, right - 1)}
        found = read_status(store)
        assert [each.name for each in found.judges] == ["first", "second"]
        assert found.graded == found.pooled
        assert not found.stale
        cards = {each.name: each for each in panel_health(store)}
        assert any("copies the order" in word for word in cards["second"].health.words)
        assert (cards["first"].sharpness or 0) > (cards["second"].sharpness or 0)
        written = export_files(store, tmp_path / "out")
    lines = written["golden.jsonl"].read_text().splitlines()
    assert json.loads(lines[0])["passages"][0]["judges"].keys() == {"first", "second"}
    made = json.loads(written["manifest.json"].read_text())
    assert [each["name"] for each in made["judges"]] == ["first", "second"]
    assert "several judges say together" in written["README.md"].read_text()
    words = rankproof("golden", "status", str(path)).stdout.decode()
    assert "graded by first + second" in " ".join(words.split())
    assert "second: " in words


def test_labels_show_which_judge_to_trust_and_are_compared_with_each_judge(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", queries=4, documents=20)
    with loopback(by_model(unkind)) as server, Store(tmp_path / "s.golden", create=True) as store:
        build = Build(settings(corpus, judge=both(server.url)), store)
        build.run()

        def right() -> float:
            every = [(q.query, p) for q in read_golden(store).queries for p in q.passages]
            return float(np.mean([p.judged == truth(query, p.doc) for query, p in every]))

        before = right()
        for query, doc in store.rows("SELECT query, doc FROM pool WHERE query IN ('q0', 'q1')"):
            store.add_correction(query, doc, "grade", truth(query, doc), who="ada")
        sent = len(server.requests)
        assert build.run() == ["prune", "rank"]
        assert build.run() == []
        assert all(ordering(r) for r in server.requests[sent:])
        assert right() > max(before, 0.95)
        pairs = compare_people(store, read_golden(store))["pairs"]
        exact = {each["with"]: each["figures"]["exact"]["value"] for each in pairs}
        assert exact["first"] == 1.0
        assert exact["second"] < 0.5
        again = repeat_grading(build, 3, 1)
        assert again.keys() == {"first", "second"}


def test_where_a_judge_fails_the_grades_of_the_others_count(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", queries=2)
    with loopback(by_model(babbles)) as server, Store(tmp_path / "s.golden", create=True) as store:
        Build(settings(corpus, judge=both(server.url)), store).run()
        found = read_status(store)
        assert (found.graded, found.failed) == (found.pooled, 0)
        assert found.orders > 0
        assert found.orders_failed > 0
        golden = read_golden(store)
        assert all(set(p.votes) == {"first"} for q in golden.queries for p in q.passages)


def test_a_plan_has_a_line_for_each_judge_and_counts_its_stored_replies(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", queries=2)
    with loopback(honest) as server, Store(tmp_path / "s.golden", create=True) as store:
        alone = settings(corpus, judge=one(server.url, "one"))
        Build(alone, store).run()
        plan = {
            step.stage: step
            for step in make_plan(settings(corpus, judge=both(server.url)), store).steps
        }
        assert plan["grade first"].calls == 0
        assert plan["grade second"].calls > 0
        assert plan["rank second"].stored == 0
        other = make_plan(settings(corpus, judge=one(server.url, "two")), store)
        assert [step.stored for step in other.steps] == [0, 0, 0]


@pytest.mark.parametrize(
    ("judge", "more", "words"),
    [
        ({"type": "panel", "judges": {"a": {"type": "simulated"}}}, {}, "at least 2"),
        (both("http://x"), {"ranking": {"method": "seed"}}, "this method has one judge"),
        (
            {"type": "panel", "judges": {"a": both("http://x"), "b": {"type": "simulated"}}},
            {},
            "a is a panel itself",
        ),
    ],
)
def test_a_panel_that_makes_no_sense_is_refused(
    tmp_path: Path, judge: dict[str, Any], more: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        settings(tmp_path, judge=judge, **more)


def test_a_panel_with_one_judge_twice_is_refused(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", queries=1)
    judge = {"type": "panel", "judges": {name: {"type": "simulated"} for name in "ab"}}
    with (
        Store(tmp_path / "s.golden", create=True) as store,
        pytest.raises(InputError, match="in the panel twice"),
    ):
        Build(settings(corpus, judge=judge), store).run()
