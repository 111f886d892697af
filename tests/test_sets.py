"""Sets given to a generator: novelty and Acc|Hit, against enumeration of every tie-break."""

from __future__ import annotations

import math
from itertools import chain, groupby, permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from oracles import rarity_weights

import rankproof as rp
from rankproof.tradeoffs.accuracy import accuracy_given_hit
from rankproof.tradeoffs.novelty import novelty

Scored = dict[str, float]


def orders(listed: Scored) -> list[list[str]]:
    """Every order of the documents that the scores allow."""
    ranked = sorted(listed.items(), key=lambda pair: -pair[1])
    groups = [[doc for doc, _ in tied] for _, tied in groupby(ranked, lambda pair: pair[1])]
    return [list(chain(*chosen)) for chosen in product(*map(permutations, groups))]


def discounted(
    order: list[str], grades: dict[str, int], sources: dict[str, str], k: int, beta: float
) -> float:
    """G_nov as it is defined, of one list."""
    weight = rarity_weights(list(grades.values()), 1.0, 1.0, 0.25)
    seen: set[str] = set()
    total = 0.0
    for doc in order[:k]:
        source = sources.get(doc, f"{doc} itself")
        total += (beta if source in seen else 1.0) * weight[grades.get(doc)]
        seen.add(source)
    return total


DOCS = ("a", "b", "c", "d", "e", "f")


@st.composite
def lists(draw: st.DrawFn) -> tuple[Scored, dict[str, int], dict[str, str]]:
    listed = {doc: draw(st.sampled_from((2.0, 1.0, 1.0, 1.0))) for doc in DOCS}
    grades = {
        doc: draw(st.sampled_from((1, 3, 4, 4, 5))) for doc in (*DOCS, "u") if draw(st.booleans())
    }
    sources = {doc: draw(st.sampled_from("xyz")) for doc in DOCS if draw(st.integers(0, 4))}
    return listed, grades | {"v": 5}, sources | {"v": "x"}


@given(case=lists(), k=st.integers(1, 7), beta=st.sampled_from((0.0, 0.3, 0.5, 0.9, 1.0)))
@example(
    # Two passages of one source weigh 1 + 0, two lighter ones of two sources 0.75 + 0.75: the
    # lightest first is not the least in all.
    (
        dict.fromkeys("abcde", 1.0),
        {"a": 5, "b": 5, "c": 4, "d": 4, "e": 5},
        {"a": "x", "b": "x"},
    ),
    2,
    0.0,
)
def test_novelty_is_that_of_the_definition_over_every_ordering(
    case: tuple[Scored, dict[str, int], dict[str, str]], k: int, beta: float
) -> None:
    listed, grades, sources = case
    values = [discounted(order, grades, sources, k, beta) for order in orders(listed)]
    stated = sorted(listed, key=lambda doc: -listed[doc])
    weight = rarity_weights(list(grades.values()), 1.0, 1.0, 0.25)
    ideal = sum(sorted((weight[g] for g in grades.values()), reverse=True)[:k])
    found = novelty({"q": listed}, {"q": grades}, sources or {"-": "-"}, k, beta=beta)
    [row] = found.per_query.iter_rows(named=True)
    if not ideal:
        assert math.isnan(row["expected"])
        return
    assert row["expected"] == pytest.approx(np.mean(values) / ideal, abs=1e-12)
    assert row["min"] == pytest.approx(min(values) / ideal, abs=1e-12)
    assert row["max"] == pytest.approx(max(values) / ideal, abs=1e-12)
    oblivious = discounted(stated, grades, sources, k, beta) / ideal
    assert row["oblivious"] == pytest.approx(oblivious, abs=1e-12)


@given(case=lists(), k=st.integers(1, 5), beta=st.sampled_from((0.0, 0.4, 0.9)))
def test_the_novel_ideal_is_the_best_order_of_all_graded_passages(
    case: tuple[Scored, dict[str, int], dict[str, str]], k: int, beta: float
) -> None:
    listed, grades, sources = case
    best = max(
        discounted(list(o), grades, sources, k, beta)
        for o in permutations(grades, min(k, len(grades)))
    )
    plain = novelty({"q": listed}, {"q": grades}, sources, k, beta=beta)
    novel = novelty({"q": listed}, {"q": grades}, sources, k, beta=beta, ideal="novel")
    weight = rarity_weights(list(grades.values()), 1.0, 1.0, 0.25)
    ideal = sum(sorted((weight[g] for g in grades.values()), reverse=True)[:k])
    assert novel.summary.expected * best == pytest.approx(plain.summary.expected * ideal, abs=1e-12)


def many(seed: int) -> tuple[dict[str, Scored], dict[str, dict[str, int]], dict[str, str]]:
    rng = np.random.default_rng(seed)
    docs = [f"d{i}" for i in range(40)]
    run = {f"q{q}": {d: float(rng.integers(0, 6)) for d in docs} for q in range(30)}
    qrels = {f"q{q}": {d: int(rng.integers(1, 6)) for d in docs[::2]} for q in range(30)}
    return run, qrels, {d: f"s{rng.integers(0, 12)}" for d in docs}


def test_where_no_source_repeats_novelty_is_ranwg() -> None:
    run, qrels, _ = many(1)
    alone = {f"d{i}": f"s{i}" for i in range(40)}
    plain = rp.evaluate(qrels, run, "RAnWG@10")["RAnWG@10"]
    for sources in (alone, {"another": "s"}):
        found = novelty(run, qrels, sources, 10, beta=0.2).summary
        for name in ("expected", "min", "max", "oblivious"):
            assert getattr(found, name) == pytest.approx(getattr(plain, name), abs=1e-12)
    assert novelty(run, qrels, {"another": "s"}, 10).unsourced > 0


def test_novelty_only_lowers_and_rises_with_beta() -> None:
    run, qrels, sources = many(2)
    plain = rp.evaluate(qrels, run, "RAnWG@10").outcomes[rp.parse("RAnWG@10")]
    before = np.zeros(30)
    for beta in (0.0, 0.25, 0.5, 1.0):
        found = novelty(run, qrels, sources, 10, beta=beta).outcomes
        assert (found.expected >= before - 1e-12).all()
        assert (found.expected <= plain.expected + 1e-12).all()
        before = found.expected
    assert before == pytest.approx(plain.expected, abs=1e-12)  # β = 1 discounts nothing


def test_novelty_of_a_large_tie_is_near_that_of_sampled_orders() -> None:
    rng = np.random.default_rng(3)
    docs = [f"d{i}" for i in range(300)]
    grades = {d: int(rng.integers(1, 6)) for d in docs[:60]}
    sources = {d: f"s{rng.integers(0, 25)}" for d in docs}
    found = novelty({"q": dict.fromkeys(docs, 1.0)}, {"q": grades}, sources, 30, beta=0.3)
    values = [discounted(list(rng.permutation(docs)), grades, sources, 30, 0.3) for _ in range(400)]
    weight = rarity_weights(list(grades.values()), 1.0, 1.0, 0.25)
    ideal = sum(sorted((weight[g] for g in grades.values()), reverse=True)[:30])
    error = np.std(values) / ideal / 20
    assert abs(found.summary.expected - np.mean(values) / ideal) < 5 * error
    assert found.summary.min <= min(values) / ideal
    assert found.summary.max >= max(values) / ideal


def test_a_query_that_the_run_lacks_scores_0_and_one_without_gain_is_undefined() -> None:
    qrels = {"a": {"x": 5}, "b": {"x": 5}, "c": {"x": 1}}
    found = novelty({"a": {"x": 1.0}, "c": {"x": 1.0}}, qrels, {"x": "s"}, 3)
    assert found.per_query["expected"].to_list() == pytest.approx([1.0, 0.0, math.nan], nan_ok=True)
    assert (found.summary.queries, found.summary.undefined) == (2, 1)
    assert found.to_dict()["std"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beta": 1.5}, "beta 1.5 is not between 0 and 1; use 0.5, say"),
        ({"ideal": "best"}, "ideal 'best' is unknown; use plain or novel"),
        ({"measure": "nDCG@10"}, "nDCG@10 has no weights to discount; use RAnWG"),
        ({"sources": {}}, "source: no rows; check how it was made"),
        ({"sources": 3}, "cannot read source from 3; give a path, a {doc: source} dict"),
    ],
)
def test_what_novelty_cannot_take_is_refused_in_a_line(
    arguments: dict[str, Any], message: str
) -> None:
    given_sources = arguments.pop("sources", {"x": "s"})
    with pytest.raises(rp.InputError) as caught:
        novelty({"q": {"x": 1.0}}, {"q": {"x": 5}}, given_sources, 3, **arguments)
    assert str(caught.value).startswith(message)


# --------------------------------------------------------------------------------- Acc | Hit


def hits(order: list[str], grades: dict[str, int], k: int) -> bool:
    return {doc for doc, grade in grades.items() if grade >= 4} <= set(order[:k])


@given(
    seed=st.integers(0, 10_000),
    k=st.integers(1, 4),
    shares=st.lists(st.sampled_from((0.0, 0.25, 1.0)), min_size=4, max_size=9),
)
def test_accuracy_given_hit_is_that_of_every_tie_break(
    seed: int, k: int, shares: list[float]
) -> None:
    rng = np.random.default_rng(seed)
    queries = [f"q{i}" for i in range(len(shares))]
    run = {q: {d: float(rng.integers(0, 2)) for d in "abcd"} for q in queries}
    qrels = {q: {d: int(rng.integers(1, 6)) for d in "abc"} for q in queries}
    correct = dict(zip(queries, shares, strict=True))
    defined = [q for q in queries if max(qrels[q].values()) >= 4]
    found = accuracy_given_hit(run, qrels, correct, k)
    chances = {q: [hits(o, qrels[q], k) for o in orders(run[q])] for q in defined}
    expected = {q: np.mean(c) for q, c in chances.items()}
    total = sum(expected.values())
    ratios = []
    for outcome in product(*[sorted(set(c)) for c in chances.values()]):
        right = [correct[q] for q, hit in zip(defined, outcome, strict=True) if hit]
        ratios += [np.mean(right)] if right else []
    assert found.hits == pytest.approx(total)
    assert found.certain == sum(all(c) for c in chances.values())
    assert found.possible == sum(any(c) for c in chances.values())
    assert found.answered == len(defined)
    if total == 0:
        assert math.isnan(found.expected)
        assert math.isnan(found.max)
        return
    share = sum(expected[q] * correct[q] for q in defined) / total
    assert found.expected == pytest.approx(share)
    assert (found.min, found.max) == pytest.approx((min(ratios), max(ratios)))
    assert math.copysign(1.0, found.min) == 1.0  # no -0.0
    seen = [correct[q] for q in defined if expected[q] > 0]
    known = total**2 / sum(chance**2 for chance in expected.values())
    if known < 6 - 1e-9 and len(set(seen)) > 1:  # too few to resample
        assert np.isnan(found.ci).all()
    else:
        assert found.ci[0] - 1e-9 <= found.expected <= found.ci[1] + 1e-9


def test_queries_that_hardly_ever_hit_hardly_make_accuracy_surer() -> None:
    """The first query hits, the others where a tie of many happens to fall well."""
    ties = {f"d{n:03}": 1.0 for n in range(400)}
    run = {f"q{n}": {"a": 1.0} | (ties if n else {}) for n in range(10)}
    qrels = {q: {"a": 5} for q in run}
    found = accuracy_given_hit(run, qrels, dict.fromkeys(run, 1.0), 1)
    assert found.possible == 10
    assert found.ci == pytest.approx((0.025, 1.0), abs=1e-9)
    found = accuracy_given_hit(run, qrels, {q: float(q != "q9") for q in run}, 1)
    assert np.isnan(found.ci).all(), "it is the matter of one query"


def test_a_wrong_answer_where_few_orders_hit_does_not_make_accuracy_sure() -> None:
    """Ten queries that hit are all right; what is wrong counts a hundredth."""
    ties = {f"d{n:02}": 1.0 for n in range(99)}
    run = {f"q{n:02}": {"a": 1.0} | (ties if n >= 10 else {}) for n in range(30)}
    qrels = {q: {"a": 5} for q in run}
    low, high = accuracy_given_hit(run, qrels, {q: float(q != "q20") for q in run}, 1).ci
    assert low < 0.7 < 0.999 < high


def test_queries_that_never_hit_do_not_make_accuracy_sure() -> None:
    run = {f"q{i}": {"a" if i < 2 else "b": 1.0} for i in range(100)}
    qrels = {f"q{i}": {"a": 5} for i in range(100)}
    correct = {f"q{i}": float(i == 0) for i in range(100)}
    found = accuracy_given_hit(run, qrels, correct, 1)
    assert (found.hits, found.answered, found.expected) == (2.0, 100, 0.5)
    assert np.isnan(found.ci).all()  # one right and one wrong


RUN = {"1": {"a": 2.0, "b": 1.0}, "2": {"a": 1.0, "b": 2.0}, "3": {"a": 1.0}}
JSONL = """{"query": "1", "correct": true}
{"query": "2", "correct": false}
{"query": "9", "correct": true}
"""
QRELS = {"1": {"a": 5, "b": 1}, "2": {"a": 4, "b": 1}, "3": {"a": 5}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "query,correct\n1,1\n2,0\n9,1\n"),
        ("a.csv", "\ufeffqid,note,correct\r\n1,x,true\r\n2,y,False\r\n9,z,1\r\n"),
        ("a.tsv", "query\tcorrect\n1\t1.0\n2\t0\n9\t1\n"),
        ("a.jsonl", JSONL),
        ("a.jsonl", JSONL.replace("true", "1").replace("false", "0")),
        ("a.jsonl", JSONL.replace('"1"', "1").replace('"2"', "2").replace('"9"', "9")),
    ],
)
def test_answers_are_read_from_the_formats_people_have(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    found = accuracy_given_hit(RUN, QRELS, tmp_path / name, 1)
    assert (found.expected, found.hits, found.overall) == (1.0, 1.0, 0.5)
    assert (found.answered, found.unanswered, found.unknown) == (2, 1, 1)
    frame = pl.DataFrame({"query": ["1", "2"], "correct": [True, False]})
    assert accuracy_given_hit(RUN, QRELS, frame, 1).expected == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("query,correct\n1,2\n", "query '1': correct '2' is not between 0 and 1; write 1"),
        ("query,correct\n1,nan\n", "query '1': correct 'nan' is not between 0 and 1"),
        ("query,correct\n1,yes\n", "query '1': correct 'yes' is not between 0 and 1"),
        ("query,correct\n1,\n", "query '1' has no correct; fill it in"),
        ("query,correct\n1,1\n1,0\n", "query '1' is given twice; keep one of the two"),
        ("query,right\n1,1\n", "no column 'correct'; there are: 'query', 'right'"),
        ("query,correct\n", "no rows; check how it was made"),
        ("", "the file is empty"),
        ("query,correct\n7,1\n", "no query of qrels has an answer there"),
        ('{"query": 1\n', "cannot read it as a table"),
    ],
)
def test_answers_that_cannot_be_used_are_refused_in_a_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "answers.csv"
    path.write_text(text)
    with pytest.raises(rp.InputError) as caught:
        accuracy_given_hit(RUN, QRELS, path, 1)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)
