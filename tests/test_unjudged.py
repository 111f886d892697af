"""Bounds over unjudged documents against enumeration of their grades and of the orders of ties."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import ASPECT_ORACLES, ORACLES, Pool, Ranked, enumerate_orderings
from rankproof_cli import rankproof

import rankproof as rp
from rankproof.evaluation import Policy
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Float, Int
from rankproof.measures import REGISTRY, Measure, parse
from rankproof.measures.linear import linear
from rankproof.unjudged import holes_of as bounded
from rankproof.unjudged.bounds import Bound, Unjudged, lowest_mean
from rankproof.unjudged.judging_order import fill_holes, merge_judgments, settle
from rankproof.unjudged.rules import rule_of
from rankproof.unjudged.tables import pair_sentence

GRADED = [
    "Hits@2", "P@1", "P@3", "P(rel=2)@3", "R@2", "R@4", "R(rel=2)@3", "R", "F1@2", "F1@4",
    "Rprec", "Rprec(rel=2)", "RBP@3", "RBP(p=0.5)", "nDCG@1", "nDCG@2", "nDCG@3", "nDCG",
    "DCG@2", "DCG(gain='exp',rel=2)@3", "nDCG(gain='exp')@3", "nDCG(rel=2)@3",
    "nDCG(gain='exp',rel=2)@2",
    "RR@1", "RR@3", "RR", "Success@2", "AP@2", "AP@3", "AP", "AP(rel=2)@3",
    "ERR@3", "ERR(max=3)@3", "bpref", "bpref(rel=2)", "RBP(p=0.5,max=2)@3",
    "nDCG(gain={1: 1, 2: 5})@3", "SetP", "SetR", "SetF(beta=2.0)", "SetAP(rel=2)", "NumRet",
    "NumRel", "NumRelRet(rel=2)", "IPrec(rel=2)@0.5", "AP11",
    "infAP", "infAP(rel=2)",
]  # fmt: skip
SETS = [
    "RAnWG@2", "RAnWG@3", "RAnWG(alpha=0.5,cap4=0.3)@3", "NRecall4@1", "NRecall4@3", "NRecall5@2",
    "P4@2", "Harm@2", "Harm@3", "Hit@2", "Hit@3", "UDCG@2", "UDCG(penalty=1.0)@3",
]  # fmt: skip
EXACT_PAIRS = {"AP", "RR", "Success", "P", "Hits", "RBP", "R", "SetR", "nDCG"}

Scores = Mapping[str, float]
Grades = Mapping[str, int]


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(a) and math.isnan(b))


def holes_of(scores: Scores, grades: Grades, cutoff: int | None) -> set[str]:
    """Unjudged documents that can stand in the top k under some order of the ties."""
    return {
        doc
        for doc, score in scores.items()
        if doc not in grades
        and (cutoff is None or sum(other > score for other in scores.values()) < cutoff)
    }


def all_gradings(holes: set[str], grades: Grades, scale: range) -> Iterator[dict[str, int]]:
    """The grades with every combination of grades for the unjudged documents."""
    names = sorted(holes)
    for new_grades in product(scale, repeat=len(names)):
        yield {**grades, **dict(zip(names, new_grades, strict=True))}


def values(measure: Measure, scores: Scores, grades: Grades) -> list[float]:
    """The measure under every order of the ties."""
    pool = list(grades.values())
    orders = enumerate_orderings(list(scores.values()), [grades.get(doc) for doc in scores])
    oracle = ORACLES[measure.name]
    return [oracle(o, pool, measure.cutoff, max(pool), **dict(measure.explicit)) for o in orders]


@dataclass(frozen=True)
class Case:
    a: dict[str, float]
    b: dict[str, float]
    grades: dict[str, int]


@st.composite
def cases(draw: st.DrawFn, grades: list[int], ties: bool, holes: int = 3) -> Case:
    """Two short lists of the same documents, few of them unjudged."""
    docs = [f"d{i}" for i in range(6)]
    lists = []
    for _ in range(2):
        listed = draw(st.permutations(docs))[: draw(st.integers(1, 4))]
        palette = [2.0, 1.0] if ties else None
        lists.append(
            {
                doc: draw(st.sampled_from(palette)) if palette else float(-rank)
                for rank, doc in enumerate(listed)
            }
        )
    unjudged = set(draw(st.permutations(docs))[: draw(st.integers(0, holes))])
    judged = {doc: draw(st.sampled_from(grades)) for doc in docs if doc not in unjudged}
    return Case(lists[0], lists[1], judged or {"z": grades[0]})


def is_averaged(measure: Measure, grades: Grades) -> bool:
    """True if a mean includes a query with these grades."""
    if measure.definition.grades is not None:
        return True
    return max(grades.values()) >= (dict(measure.resolved).get("rel") or 1)  # type: ignore[operator]


def bounds_over(
    qrels: Any,
    runs: dict[str, Any],
    specs: list[str],
    *,
    scale: int | None = None,
    depth: int | None = None,
    like: str | None = None,
) -> Unjudged:
    """Bounds over the unjudged documents of the first `depth`; the lists go on behind it."""
    tables = [rp.read_run(run, name=name) for name, run in runs.items()]
    measures = [parse(spec) for spec in specs]
    policy = Policy.of(like=like)
    return bounded(tables, rp.read_qrels(qrels), measures, policy, depth=depth, scale=scale)


def check_run(
    case: Case, specs: list[str], scale: range, ties: bool, depth: int | None = None
) -> None:
    runs = {"a": {"q": case.a}}
    report = bounds_over({"q": case.grades}, runs, specs, scale=_scale(scale), depth=depth)
    for measure in map(parse, specs):
        bound = report.runs[0].measures[measure]
        holes = holes_of(case.a, case.grades, measure.cutoff or depth)
        possible = [
            value
            for graded in all_gradings(holes, case.grades, scale)
            if is_averaged(measure, graded)
            for value in values(measure, case.a, graded)
            if not math.isnan(value)
        ]
        low, high = (min(possible), max(possible)) if possible else (math.nan, math.nan)
        # An unjudged document above the highest grade changes what ERR takes every grade for.
        has_known_scale = not measure.has_open_scale or max(case.grades.values()) == scale[-1]
        # NumRel is at least 1 if a query counts, which its rule ignores; AP11's bounds are the
        # means of those of its levels; below a depth infAP is within 0.00001 of AP.
        may_be_wide = (measure.name == "AP11" and holes) or (measure.name == "infAP" and depth)
        if (
            not ties
            and has_known_scale
            and (measure.name != "NumRel" or is_averaged(measure, case.grades))
        ):
            assert bound.exact or may_be_wide
        if bound.exact:
            assert close(bound.lowest, low), (measure, bound, low, high)
            assert close(bound.highest, high), (measure, bound, low, high)
        elif possible:
            assert bound.lowest <= low + 1e-9, (measure, bound, low, high)
            assert bound.highest >= high - 1e-9, (measure, bound, low, high)


def _scale(scale: range) -> int | None:
    return None if scale[0] else scale[-1]


@given(cases([0, 1, 2], ties=False))
@settings(max_examples=60)
def test_without_ties_a_runs_bounds_are_the_extremes_over_all_grades(case: Case) -> None:
    check_run(case, GRADED, range(3), ties=False)


@given(cases([0, 1, 2], ties=True))
def test_with_ties_a_runs_bounds_hold_for_all_grades_and_orders(case: Case) -> None:
    check_run(case, GRADED, range(3), ties=True)


@given(cases([1, 2, 3, 4, 5], ties=False))
def test_without_ties_the_bounds_of_set_measures_are_the_extremes_over_all_grades(
    case: Case,
) -> None:
    check_run(case, SETS, range(1, 6), ties=False)


@given(cases([1, 2, 3, 4, 5], ties=True, holes=2))
def test_with_ties_the_bounds_of_set_measures_hold_for_all_grades_and_orders(case: Case) -> None:
    check_run(case, SETS, range(1, 6), ties=True)


def check_pair(
    case: Case,
    specs: list[str],
    scale: range,
    ties: bool,
    depth: int | None = None,
    like: Literal["trec_eval"] | None = None,
) -> None:
    runs = {"a": {"q": case.a}, "b": {"q": case.b}}
    report = bounds_over(
        {"q": case.grades}, runs, specs, scale=_scale(scale), depth=depth, like=like
    )
    for measure in map(parse, specs):
        bound = report["a", "b"][measure]
        cutoff = measure.cutoff or depth
        both = [holes_of(scores, case.grades, cutoff) for scores in (case.a, case.b)]
        possible = [
            0.0 if math.isnan(a - b) else a - b
            for graded in all_gradings(both[0] | both[1], case.grades, scale)
            if like or is_averaged(measure, graded)
            for a in set(values(measure, case.a, graded))
            for b in set(values(measure, case.b, graded))
            if like or not math.isnan(a - b)
        ]
        low, high = (min(possible), max(possible)) if possible else (math.nan, math.nan)
        if not ties and (measure.name in EXACT_PAIRS or not (both[0] | both[1])):
            assert bound.exact
        if bound.exact:
            assert close(bound.lowest, low), (measure, bound, low, high)
            assert close(bound.highest, high), (measure, bound, low, high)
        elif possible:
            assert bound.lowest <= low + 1e-9, (measure, bound, low, high)
            assert bound.highest >= high - 1e-9, (measure, bound, low, high)


@given(cases([0, 1, 2], ties=False))
@settings(max_examples=60)
def test_without_ties_the_bounds_of_a_difference_are_the_extremes_over_all_grades(
    case: Case,
) -> None:
    check_pair(case, GRADED, range(3), ties=False)


def test_average_precision_of_two_runs_is_exact_up_to_twelve_unjudged_documents() -> None:
    generator = np.random.default_rng(48)
    docs = [f"d{i}" for i in range(12)]
    for _ in range(12):
        lists = [generator.permutation(docs)[: generator.integers(4, 9)].tolist() for _ in "ab"]
        a, b = ({doc: float(-rank) for rank, doc in enumerate(listed)} for listed in lists)
        judged = generator.permutation(docs)[:5].tolist()
        grades = {doc: int(generator.integers(0, 2)) for doc in judged}
        check_pair(Case(a, b, grades), ["AP", "AP@5"], range(2), ties=False)
    for unjudged, exact in ((12, True), (13, False)):
        runs = {
            "a": {"q": {"x": 99.0} | {f"u{i}": -float(i) for i in range(unjudged)}},
            "b": {"q": {f"u{i}": float(i) for i in range(unjudged)} | {"x": -1.0}},
        }
        report = bounds_over({"q": {"x": 1}}, runs, ["AP"])
        assert report["a", "b"][parse("AP")].exact is exact


@given(cases([0, 0, 2], ties=False))
def test_a_query_that_some_grades_leave_undefined_counts_0_under_trec_evals_policy(
    case: Case,
) -> None:
    check_pair(case, GRADED, range(3), ties=False, like="trec_eval")


@given(cases([0, 1, 2], ties=True))
@settings(max_examples=30)
def test_with_ties_the_bounds_of_a_difference_hold_for_all_grades_and_orders(case: Case) -> None:
    check_pair(case, GRADED, range(3), ties=True)


@given(cases([0, 1, 2], ties=False), st.booleans())
def test_with_a_depth_only_unjudged_documents_above_it_count(case: Case, ties: bool) -> None:
    """An unjudged document of one run may be below the depth in the other."""
    if ties:
        a, b = ({doc: score // 2 for doc, score in run.items()} for run in (case.a, case.b))
        case = Case(a, b, case.grades)
    whole = ["R", "RBP(p=0.5)", "nDCG", "RR", "AP", "ERR", "Rprec", "bpref", "infAP", "IPrec@0.5"]
    check_run(case, whole, range(3), ties, depth=2)
    check_pair(case, whole, range(3), ties, depth=2)


@given(cases([1, 2, 3, 4, 5], ties=False, holes=2))
def test_without_ties_the_bounds_of_a_difference_of_set_measures_hold_for_all_grades(
    case: Case,
) -> None:
    check_pair(case, SETS, range(1, 6), ties=False)


@given(cases([1, 2, 3, 4, 5], ties=True, holes=2))
@settings(max_examples=20)
def test_with_ties_the_bounds_of_a_difference_of_set_measures_hold_for_all_grades(
    case: Case,
) -> None:
    check_pair(case, SETS, range(1, 6), ties=True)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_measure_declares_how_unjudged_documents_move_it(name: str) -> None:
    assert rule_of(Measure.of(name)) is not None, f"{name} declares neither rising nor unjudged"
    assert name in ("Judged", "RBPResidual", "GMAP", *ASPECT_ORACLES) or any(
        parse(spec).name == name for spec in GRADED + SETS
    )


# --------------------------------------------------------------------- a measure of one's own


@pytest.fixture
def root_gain() -> Iterator[None]:
    """RootGain, a user's measure: relevant documents, each over the square root of its rank."""

    def one_document(measure: Measure, rank: Int) -> Float:
        inside = (rank > 0) & (rank <= (measure.cutoff or 0))
        return np.where(inside, 1.0 / np.sqrt(np.maximum(rank, 1)), 0.0)

    @rp.measure("RootGain", at="cutoff", endless=True, rising=True, additive=one_document)
    def gain(groups: rp.TieGroups, cutoff: int, rel: int = 1) -> rp.Outcomes:
        """Relevant documents in the top k, each over the square root of its rank."""
        relevant = (groups.grade >= rel).astype(float)
        return linear(groups, relevant, 1.0, cutoff, weigh=lambda gain, rank: gain / np.sqrt(rank))

    def oracle(ranked: Ranked, pool: Pool, cutoff: int, max_grade: int, rel: int = 1) -> float:
        top = enumerate(ranked[:cutoff], 1)
        return sum(1 / math.sqrt(rank) for rank, grade in top if grade is not None and grade >= rel)

    ORACLES["RootGain"] = oracle
    EXACT_PAIRS.add("RootGain")
    yield
    EXACT_PAIRS.remove("RootGain")
    del ORACLES["RootGain"], REGISTRY["RootGain"]


@pytest.mark.usefixtures("root_gain")
def test_a_users_measure_is_bounded_by_what_it_declares() -> None:
    @given(cases([0, 1, 2], ties=False) | cases([0, 1, 2], ties=True))
    def check(case: Case) -> None:
        ties = len(set(case.a.values())) < len(case.a) or len(set(case.b.values())) < len(case.b)
        check_run(case, ["RootGain@2", "RootGain(rel=2)@3"], range(3), ties)
        check_pair(case, ["RootGain@2", "RootGain(rel=2)@3"], range(3), ties)

    check()


@pytest.mark.usefixtures("root_gain")
def test_a_users_measure_has_flips_intervals_and_bounds_in_a_comparison() -> None:
    rng = np.random.default_rng(2)
    docs = [f"d{d}" for d in range(8)]
    qrels = {f"q{q}": {doc: int(rng.integers(2)) for doc in docs[:6]} for q in range(12)}
    runs = {
        name: {q: {doc: float(rng.integers(3)) for doc in docs} for q in qrels} for name in "ab"
    }
    comparison = rp.compare(qrels, runs, "RootGain@5")
    difference = comparison.pairs[0].measures[parse("RootGain@5")]
    assert 0.0 < difference.flip < 0.5
    assert difference.ci is not None
    assert difference.ci[0] < difference.expected < difference.ci[1]
    bound = rp.holes(qrels, runs, "RootGain@5").pairs[0].measures[parse("RootGain@5")]
    assert bound.lowest < difference.expected < bound.highest


# ---------------------------------------------------------------------------------------- laws


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Two runs and judgements of three queries, with ties and holes."""
    runs: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    qrels: dict[str, Any] = {}
    for query in ("p", "q", "r"):
        case = draw(cases([0, 1, 2], ties=draw(st.booleans()), holes=4))
        runs[0][query], runs[1][query] = case.a, case.b
        qrels[query] = case.grades
    return runs[0], runs[1], qrels


LAWS = ["nDCG@3", "AP@3", "R@2", "P@3", "RR", "RBP", "Rprec", "F1@3", "Success@2", "bpref"]


@given(worlds(), st.data())
def test_judging_a_document_never_widens_the_bounds(
    world: tuple[Any, Any, Any], data: st.DataObject
) -> None:
    a, b, qrels = world
    before = rp.holes(qrels, {"a": a, "b": b}, LAWS, scale=2)
    query = data.draw(st.sampled_from(sorted(qrels)))
    unjudged = sorted((set(a[query]) | set(b[query])) - set(qrels[query]))
    if not unjudged:
        return
    doc, grade = data.draw(st.sampled_from(unjudged)), data.draw(st.integers(0, 2))
    judged = {**qrels, query: {**qrels[query], doc: grade}}
    after = rp.holes(judged, {"a": a, "b": b}, LAWS, scale=2)
    lists: list[tuple[str | tuple[str, str], list[Any]]]
    lists = [("a", [a]), ("b", [b]), (("a", "b"), [a, b])]
    for key, runs in lists:
        for measure, bound in after[key].items():
            wider = before[key][measure]
            holes = [holes_of(run[query], qrels[query], measure.cutoff) for run in runs]
            # The bounds assume that documents outside the top k of these runs stay unjudged.
            if doc not in set().union(*holes) or math.isnan(bound.lowest):
                continue
            assert wider.lowest - 1e-9 <= bound.lowest, (key, measure)
            assert bound.highest <= wider.highest + 1e-9, (key, measure)


@given(worlds())
def test_without_unjudged_documents_the_bounds_are_those_over_ties(
    world: tuple[Any, Any, Any],
) -> None:
    a, b, qrels = world
    for query, grades in qrels.items():
        for doc in {*a[query], *b[query]} - set(grades):
            grades[doc] = 0
    assume(any(max(grades.values()) for grades in qrels.values()))
    found = rp.holes(qrels, {"a": a, "b": b}, LAWS)
    compared = rp.compare(qrels, {"a": a, "b": b}, ["P@3", "RR"])
    evaluated = rp.evaluate(qrels, a, LAWS)
    for measure, bound in found["a"].items():
        summary = evaluated[measure]
        assert close(bound.lowest, summary.min)
        assert close(bound.highest, summary.max)
        assert bound.exact
    for measure, difference in compared["a", "b"].items():
        bound = found["a", "b"][measure]
        assert close(bound.lowest, difference.lowest)
        assert close(bound.highest, difference.highest)


LONG = [
    *("P@5", "RBP", "RBP(p=0.5,max=2)@6", "R@5", "R", "F1@5", "nDCG@5", "nDCG", "AP@5", "AP", "RR"),
    *("nDCG(gain='exp')@8", "ERR", "ERR(max=3)@4", "SetF", "SetAP", "bpref", "bpref(rel=2)"),
    *("infAP", "AP11", "IPrec@0.0", "IPrec(rel=2)@0.3", "IPrec@1.0", "Rprec", "Success@3"),
]


@pytest.mark.parametrize("seed", range(12))
def test_compiled_code_bounds_long_lists_as_numpy_does(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numpy tries every number of relevant documents of bpref and IPrec; compiled code skips."""
    if kernels.native is None:
        pytest.skip("not compiled here")
    rng = np.random.default_rng(seed)
    queries = [f"q{q}" for q in range(4)]
    runs: dict[str, dict[str, dict[str, float]]] = {"a": {}, "b": {}}
    for name, query in product(runs, queries[: 4 - seed % 2]):
        docs = rng.permutation(60)[: rng.integers(1, 41)]
        score = rng.normal(size=len(docs))
        score = np.round(2 * score) if seed % 3 == 0 else score
        runs[name][query] = {f"d{d}": float(s) for d, s in zip(docs, score, strict=True)}
    unjudged = (0.1, 0.5, 0.9)[seed % 3]
    qrels = {
        query: {"z": 1}
        | {f"d{d}": int(rng.integers(0, 3)) for d in range(60) if rng.random() > unjudged}
        for query in queries
    }
    depth, like = (None, None, 7)[seed % 3], (None, "trec_eval")[seed % 2]
    _check_compiled(monkeypatch, qrels, runs, LONG, depth=depth, like=like)
    graded = {q: {d: g + 1 + seed % 3 for d, g in docs.items()} for q, docs in qrels.items()}
    sets = ["RAnWG@3", "RAnWG(alpha=0.5)@6", "RAnWG(cap4=0.3,cap3=1.0)@4"]
    _check_compiled(monkeypatch, graded, runs, sets)


def _check_compiled(
    monkeypatch: pytest.MonkeyPatch, qrels: Any, runs: Any, measures: list[str], **settings: Any
) -> None:
    results = []
    for native in (kernels.native, None):
        with monkeypatch.context() as patched:
            patched.setattr(kernels, "native", native)
            results.append(rp.holes(qrels, runs, measures, **settings))
    compiled, interpreted = results
    assert compiled.runs[0].holes == interpreted.runs[0].holes
    assert compiled.pairs[0].holes == interpreted.pairs[0].holes
    for key in ("a", "b", ("a", "b")):
        for measure, bound in compiled[key].items():
            expected = interpreted[key][measure]
            assert bound.exact == expected.exact, (key, measure)
            assert close(bound.lowest, expected.lowest), (key, measure)
            assert close(bound.highest, expected.highest), (key, measure)


def test_merging_judgments_keeps_pooled_documents_without_a_grade() -> None:
    """They have a negative grade, and infAP counts them."""
    qrels = {"q": {"a": 1, "b": 0, "c": -1, "d": -1}}
    merged = merge_judgments(rp.read_qrels(qrels), rp.read_qrels({"q": {"c": 1}}))
    run = {"q": {"b": 5.0, "d": 4.0, "c": 3.0, "e": 2.0, "a": 1.0}}
    expected = rp.evaluate({"q": qrels["q"] | {"c": 1}}, run, "infAP")
    assert rp.evaluate(merged, run, "infAP")["infAP"] == expected["infAP"]
    assert merged.negative == 1


def _bounds_to_depth_3(qrels: Any, run: Any, measures: list[str]) -> dict[Measure, Bound]:
    """Bounds over the unjudged documents of the first three; the list goes on."""
    return bounds_over(qrels, {"a": run}, measures, depth=3).runs[0].measures


def test_inferred_precision_to_a_depth_is_unbounded_if_pooled_documents_lack_a_grade() -> None:
    """Without pooled documents that nobody judged, infAP is within 0.00001 of AP."""
    run = {"q": {f"d{i}": -float(i) for i in range(10)}}
    qrels = {"q": {"d0": 1, "d4": 0, "d8": 1}}
    found = _bounds_to_depth_3(qrels, run, ["infAP", "AP"])
    inferred, plain = found[parse("infAP")], found[parse("AP")]
    assert not inferred.exact
    assert inferred.lowest == pytest.approx(plain.lowest, abs=2e-5)
    assert inferred.highest == pytest.approx(plain.highest, abs=2e-5)
    (bound,) = _bounds_to_depth_3({"q": {**qrels["q"], "d7": -1}}, run, ["infAP"]).values()
    assert (bound.lowest, bound.highest) == (0.0, 1.0)


def test_the_width_of_rbp_is_its_residual() -> None:
    """Moffat and Zobel: each unjudged rank leaves (1 − p) p^(r−1) open."""
    run = {"q": {f"d{i}": -float(i) for i in range(6)}}
    bound = rp.holes({"q": {"d0": 1, "d3": 0}}, run, "RBP(p=0.8)").runs[0].measures
    (found,) = bound.values()
    assert close(found.width, sum(0.2 * 0.8**i for i in (1, 2, 4, 5)))


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_the_lowest_mean_includes_queries_that_only_some_grades_define_if_they_lower_it(
    rows: list[tuple[float, bool, bool]],
) -> None:
    low = np.array([math.nan if never and not always else v for v, always, never in rows])
    defined = np.array([always for _, always, _ in rows])
    optional = [v for v, d in zip(low, defined, strict=True) if not d and not math.isnan(v)]
    certain = list(low[defined])
    means = [
        sum([*certain, *chosen]) / len([*certain, *chosen])
        for mask in product([False, True], repeat=len(optional))
        for chosen in [[v for v, m in zip(optional, mask, strict=True) if m]]
        if certain or chosen
    ]
    assert close(lowest_mean(low, defined), min(means) if means else math.nan)


def test_a_mean_is_bounded_over_all_grades_of_all_its_queries() -> None:
    """The second query has nothing relevant: nDCG is undefined there unless y or z is."""
    qrels = {"p": {"a": 1, "b": 0}, "q": {"a": 0}}
    run = {"p": {"b": 3.0, "a": 2.0, "x": 1.0}, "q": {"y": 3.0, "a": 2.0, "z": 1.0}}
    means = []
    for x, y, z in product((0, 1), repeat=3):
        done = {"p": {**qrels["p"], "x": x}, "q": {**qrels["q"], "y": y, "z": z}}
        means.append(rp.evaluate(done, run, "nDCG@3")["nDCG@3"].expected)
    (bound,) = rp.holes(qrels, run, "nDCG@3").runs[0].measures.values()
    assert close(bound.lowest, min(means))
    assert close(bound.highest, max(means))


def test_a_larger_depth_counts_more_unjudged_documents_of_a_list() -> None:
    run = {"q": {f"d{i}": -float(i) for i in range(10)}}
    qrels = {"q": {"d0": 1}}
    widths = [
        bounds_over(qrels, {"a": run}, ["RBP"], depth=depth).runs[0].measures[parse("RBP")].width
        for depth in (1, 2, 5, None)
    ]
    assert widths == sorted(widths)
    assert widths[0] == 0 < widths[1] < widths[3]


def test_the_scale_is_that_of_the_judgments_unless_it_is_named() -> None:
    run = {"q": {"x": 2.0, "a": 1.0}}
    assert rp.holes({"q": {"a": 3}}, run, "nDCG@1").scale == 3
    assert rp.holes({"q": {"a": 3}}, run, "nDCG@1", scale=4).scale == 4
    assert rp.holes({"q": {"a": 0}}, run, "P@1").scale == 1
    with pytest.raises(rp.InputError, match="too short"):
        rp.holes({"q": {"a": 3}}, run, "nDCG@1", scale=2)


@pytest.mark.parametrize("names_scale", [True, False])
def test_the_highest_grade_is_the_top_of_the_scale_or_else_stated_as_the_largest_that_occurs(
    tmp_path: Path, names_scale: bool
) -> None:
    """Judgments on a scale 0–3 that happen to be 0–2; every command."""
    write_trec(tmp_path)
    if names_scale:
        scale = '{"grades": [0, 3], "relevant": 1, "gains": 1}'
        (tmp_path / "qrels.scale").write_text(scale, encoding="utf-8")
    runs = {"home": str(tmp_path / "home"), "away": str(tmp_path / "away")}
    top, measure = 3 if names_scale else 2, parse("nDCG@3")
    wanted = rp.holes(POOLED, runs, measure, scale=top)
    found = rp.holes(str(tmp_path / "qrels"), runs, measure)
    assert found.scale == top
    assert found["home", "away"] == wanted["home", "away"]
    words = f"0 to {top}" if names_scale else f"0 to {top}, the largest that occurs"
    assert any(f"any grade from {words}" in line for line in found.assumptions())
    keys: list[Any] = ["away", ("home", "away")]
    ends = {key: [b.lowest, b.highest] for key in keys for b in [wanted[key][measure]]}
    for command, key in (("eval", "away"), ("leaderboard", "away"), ("compare", ("home", "away"))):
        data = json.loads(
            run_command(command, tmp_path, "home", "away", "--holes", "--format=json")
        )
        rows = data["pairs" if command == "compare" else "runs"]
        row = rows[-1]["measures"]["nDCG@3"]
        if command == "leaderboard":  # which has the worst case of the verdict on the best run
            low, high = row["best_against_it"]["worst_case"]
            assert low < ends["home", "away"][0]
            assert high > ends["home", "away"][1]
        else:
            assert row["holes"] == pytest.approx(ends[key])
        assert row.get("grades", data.get("grades")) == words
        shown = run_command(command, tmp_path, "home", "away", "--holes", "--explain")
        assert f"any grade, {words}." in " ".join(shown.split())
    gated = rp.gate(str(tmp_path / "qrels"), runs["home"], runs["away"], measure, 0.0)
    holes = gated.measures[measure].difference.holes
    assert holes == pytest.approx([-x for x in reversed(ends["home", "away"])])
    assert gated.measures[measure].grades == words
    assert any(f"any grade, {words}." in line for line in gated.summary().details)


def test_new_judgments_stay_on_the_scale_of_the_earlier_ones(tmp_path: Path) -> None:
    write_trec(tmp_path)
    scale = '{"grades": [0, 3], "relevant": 1, "gains": 1}'
    (tmp_path / "qrels.scale").write_text(scale, encoding="utf-8")
    known = rp.read_qrels(str(tmp_path / "qrels"))
    assert merge_judgments(known, rp.read_qrels({"q1": {"x": 1}})).scale == known.scale
    requests: list[tuple[str, str]] = []

    def judge(pairs: list[tuple[str, str]]) -> list[int]:
        requests.extend(pairs)
        return [5 for _ in pairs]

    run = rp.read_run(str(tmp_path / "away"))
    filled, _ = fill_holes([run], known, [parse("nDCG@3")], judge)
    assert requests
    assert filled.grade.max() == 3  # a judge's 5 is the top of the scale, not of what occurs


def test_a_measure_that_declares_nothing_about_unjudged_documents_is_refused_in_one_line() -> None:
    registered = dict(REGISTRY)
    try:

        @rp.measure("Mine", at="cutoff")
        def mine(groups: rp.TieGroups, cutoff: int) -> rp.Outcomes:
            """Nothing."""
            zero = np.zeros(groups.queries)
            return rp.Outcomes(zero, zero, zero, zero, zero)

        with pytest.raises(
            rp.InputError,
            match="Mine does not declare how unjudged documents move it; declare rising",
        ):
            rp.holes({"q": {"a": 1}}, {"q": {"b": 1.0}}, mine @ 3)
    finally:
        REGISTRY.clear()
        REGISTRY.update(registered)


def test_bounds_hold_under_every_policy() -> None:
    qrels = {"q": {"a": 1, "z": 1}, "r": {"a": 1}}
    runs = {"a": {"q": {"a": 2.0, "x": 1.0}}, "b": {"q": {"x": 2.0, "a": 1.0}}}
    policies: list[dict[str, Any]]
    policies = [{"candidates_only": True}, {"missing": "skip"}, {"like": "trec_eval"}]
    for policy in policies:
        found = rp.holes(qrels, runs, ["R@2", "nDCG@1"], **policy)
        for x in (0, 1):
            done = {**qrels, "q": {**qrels["q"], "x": x}}
            results = {
                name: rp.evaluate(done, run, ["R@2", "nDCG@1"], **policy)
                for name, run in runs.items()
            }
            for measure in map(parse, ("R@2", "nDCG@1")):
                for name, result in results.items():
                    bound = found[name][measure]
                    assert bound.lowest <= result[measure].expected <= bound.highest
                bound = found["a", "b"][measure]
                difference = results["a"][measure].expected - results["b"][measure].expected
                assert bound.lowest - 1e-12 <= difference <= bound.highest + 1e-12


def test_with_candidates_only_the_unjudged_documents_of_one_run_do_not_change_another() -> None:
    runs = {"a": {"q": {"d": 2.0}}, "b": {"q": {"d": 2.0, "x": 1.0}}}
    specs = ["R@2", "nDCG@2", "Hits", "RR", "AP"]
    found = rp.holes({"q": {"d": 1}}, runs, specs, candidates_only=True)
    for measure, bound in found["a", "b"].items():
        ends = found["b"][measure]
        assert close(bound.lowest, 1.0 - ends.highest), measure
        assert close(bound.highest, 1.0 - ends.lowest), measure
    # a has nothing relevant, whatever x is: no grade defines a difference.
    found = rp.holes({"q": {"d": 0, "z": 1}}, runs, specs, candidates_only=True)
    for measure, bound in found["a", "b"].items():
        assert math.isnan(bound.lowest), measure
        assert math.isnan(bound.highest), measure
        assert math.isnan(found["a"][measure].lowest), measure


def test_the_assumed_grades_are_stated_for_the_requested_measures() -> None:
    qrels, run = {"q": {"a": 3}}, {"q": {"x": 2.0, "a": 1.0}}
    for measures, words in (
        (["P@1"], "any grade from 0 to 3, the largest that occurs (--scale names another)"),
        (["Harm@1", "P4@1"], "any grade from 1 to 5 for Harm@1, P4@1"),
        (["P@1", "P4@1"], "occurs (--scale names another); 1 to 5 for P4@1"),
    ):
        assert rp.holes(qrels, run, measures).assumptions()[0].endswith(words)
    unwanted = rp.holes({"q": {"a": 0}}, run, "P@1").assumptions()
    assert unwanted[0].endswith("any grade from 0 to 1"), "which does not occur"


def test_a_lead_that_ties_alone_could_reverse_is_attributed_to_ties() -> None:
    qrels = {f"q{n}": {"d0": 1, "d1": 0, "d2": 0} for n in range(12)}
    ahead = {q: {"d0": 1.0, "d1": 1.0, "d2": 0.5} for q in qrels}
    behind = {q: {"d0": 1.0, "d1": 1.0, "d2": 1.0, "x": 0.5} for q in qrels}
    sentence = rp.holes(qrels, {"a": ahead, "b": behind}, "RR").summary().answer
    assert "Undecided: the order of ties decides who is ahead on RR (a − b" in sentence
    above = {q: {**listed, "x": 2.0} for q, listed in behind.items()}
    sentence = rp.holes(qrels, {"a": ahead, "b": above}, "RR").summary().answer
    assert "Grades for 12 unjudged documents could put either run ahead on RR (a" in sentence


def test_the_result_states_its_assumptions_and_which_bounds_are_exact() -> None:
    tied = {"q": {"a": 1.0, "x": 1.0, "y": 0.0}}
    plain = {"q": {"a": 3.0, "x": 2.0, "y": 1.0}}
    found = rp.holes({"q": {"a": 2, "b": 1}}, {"tied": tied, "plain": plain}, "nDCG@2")
    measure = parse("nDCG@2")
    assert found["plain"][measure].exact
    assert not found["tied"][measure].exact
    assert "at most" in found["tied"][measure].span
    assert "at most" not in found["plain"][measure].span
    assert any("stay as they are: not relevant" in line for line in found.assumptions())
    written = found.to_dict()
    assert written["next"] == []
    assert set(written) >= {"runs", "pairs"}
    assert {"judged", "lowest", "expected", "highest"} <= set(
        written["runs"][0]["measures"]["nDCG@2"]
    )
    assert {"difference", "lowest", "highest", "certain"} <= set(
        written["pairs"][0]["measures"]["nDCG@2"]
    )


def test_figures_are_the_same_without_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from rankproof.foundation import kernels

    rng = np.random.default_rng(3)
    docs = [f"d{i}" for i in range(30)]
    runs = {
        name: {f"q{q}": {d: float(rng.integers(0, 9)) for d in docs} for q in range(5)}
        for name in "ab"
    }
    qrels = {f"q{q}": {d: int(rng.integers(0, 3)) for d in docs[::3]} for q in range(5)}
    compiled = rp.holes(qrels, runs, LAWS).to_dict()
    monkeypatch.setattr(kernels, "native", None)
    assert rp.holes(qrels, runs, LAWS).to_dict() == compiled


# ----------------------------------------------------------------------------- condensed lists


def test_condensed_lists_are_evaluations_of_runs_without_unjudged_documents() -> None:
    qrels = {"q": {"a": 1, "b": 0, "z": 1}, "r": {"a": 1}}
    run = {"q": {"x": 9.0, "a": 2.0, "y": 2.0, "b": 2.0}, "r": {"x": 1.0}}
    shorter = {"q": {"a": 2.0, "b": 2.0}}
    specs = ["nDCG@2", "AP", "RR", "P@2", "Judged@2"]
    whole = rp.evaluate(qrels, run, specs, condensed=True)
    assert whole.policy.condensed
    assert any("condensed" in line for line in whole.policy.changes())
    for spec in specs:
        if spec != "Judged@2":
            assert close(whole[spec].expected, rp.evaluate(qrels, shorter, spec)[spec].expected)
    tables = rp.read_run(run), rp.read_qrels(qrels)
    with pytest.raises(rp.InputError, match="condensed lists have no unjudged documents"):
        bounded([tables[0]], tables[1], [parse("P@1")], Policy(condensed=True))


def test_a_note_says_that_scores_of_condensed_lists_look_like_ranks() -> None:
    qrels = {"q": {"a": 1, "b": 0}}
    for score in ({"b": 3, "c": 1, "a": 2}, {"a": 2, "b": 3, "c": 1}, {"b": 3, "a": 2, "c": 1}):
        found = rp.evaluate(qrels, {"q": score}, "RR", condensed=True)
        assert found["RR"].expected == 0.5
        assert any("look like ranks" in note for note in found.notes), found.notes


def test_condensed_figures_are_those_of_ir_measures_and_trec_eval() -> None:
    ir_measures = pytest.importorskip("ir_measures")
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(0)
    docs = [f"d{i}" for i in range(40)]
    run = {
        f"{q}": {d: float(s) for d, s in zip(docs, rng.random(40), strict=True)} for q in range(9)
    }
    qrels = {
        f"{q}": {d: int(rng.integers(0, 4)) for d in rng.permutation(docs)[:15]} for q in range(9)
    }
    ours = rp.evaluate(qrels, run, ["nDCG@10", "P@5", "RR", "AP"], condensed=True, like="trec_eval")
    names = ("nDCG(judged_only=True)@10", "P(judged_only=True)@5", "RR(judged_only=True)")
    theirs = ir_measures.calc_aggregate(map(ir_measures.parse_measure, names), qrels, run)
    assert len(theirs) == 3
    for measure, value in theirs.items():
        name = str(measure).replace("(judged_only=True)", "")
        assert close(ours[name].oblivious, value), name
    evaluator = pytrec_eval.RelevanceEvaluator(
        qrels, {"map", "ndcg_cut_10", "recip_rank"}, judged_docs_only_flag=True
    )
    found = list(evaluator.evaluate(run).values())
    for name, key in (("AP", "map"), ("nDCG@10", "ndcg_cut_10"), ("RR", "recip_rank")):
        assert close(ours[name].oblivious, float(np.mean([row[key] for row in found]))), name


def test_holes_and_eval_report_the_same_mean_if_nothing_is_relevant() -> None:
    qrels = {"q1": {"a": 1, "b": 0}, "q2": {"a": 0}, "q3": {"a": 0}}
    run = {"q1": {"a": 2.0, "b": 1.0}, "q2": {"a": 2.0, "x": 1.0}, "q3": {"a": 1.0}}
    other = {"q1": {"b": 2.0, "a": 1.0}, "q2": {"y": 2.0, "a": 1.0}, "q3": {"a": 1.0}}
    for measure in ("P@2", "RR@2", "nDCG@2", "Judged@2", "RBP@2"):
        found = rp.holes(qrels, {"a": run, "b": other}, measure)
        for name, lists in (("a", run), ("b", other)):
            reported = rp.evaluate(qrels, lists, measure)[measure]
            bound = found[name][rp.parse(measure)]
            assert (bound.expected, bound.queries) == (reported.expected, reported.queries)
            # q2 joins the mean if its unjudged document is relevant.
            best = qrels | {"q2": {"a": 0, "x" if name == "a" else "y": 1}}
            best_value = rp.evaluate(best, lists, measure)[measure].expected
            assert bound.lowest - 1e-12 <= best_value <= bound.highest + 1e-12
        pair = found["a", "b"][rp.parse(measure)]
        compared = rp.compare(qrels, {"a": run, "b": other}, measure)["a", "b"]
        assert pair.expected == compared[rp.parse(measure)].expected


# -------------------------------------------------------------------------- beside every figure

POOLED = {f"q{q}": {"a": 2, "b": 1, "c": 0} for q in range(24)}
AT_HOME = {q: {"a": 3.0, "b": 2.0, "c": 1.0} for q in POOLED}
AWAY = {q: {"x": 3.0, "a": 2.0, "y": 1.0} for q in POOLED}


def test_a_comparison_reports_judged_shares_and_worst_cases() -> None:
    plain = rp.compare(POOLED, {"home": AT_HOME, "away": AWAY}, "nDCG@3", holes=False)
    difference = plain["home", "away"][parse("nDCG@3")]
    assert difference.judged == pytest.approx((1.0, 1 / 3))
    assert difference.holes is None
    assert str(plain).startswith("home beats away")
    assert plain.verdict("home", "away", "nDCG@3").worst_case is None
    bounded = rp.compare(POOLED, {"home": AT_HOME, "away": AWAY}, "nDCG@3", holes=True)
    assert str(rp.compare(POOLED, {"home": AT_HOME, "away": AWAY}, "nDCG@3")) == str(bounded)
    difference = bounded["home", "away"][parse("nDCG@3")]
    wanted = rp.holes(POOLED, {"home": AT_HOME, "away": AWAY}, "nDCG@3")
    bound = wanted["home", "away"][parse("nDCG@3")]
    assert difference.holes == (bound.lowest, bound.highest)
    verdict = bounded.verdict("home", "away", "nDCG@3")
    assert verdict.label == "ahead"
    assert verdict.depends_on == ("unjudged",)
    assert verdict.worst_case is not None
    assert verdict.worst_case[0] <= bound.lowest < 0 < bound.highest <= verdict.worst_case[1]
    assert "grades of the other documents could change the verdict" in " ".join(
        str(bounded).split()
    )
    assert difference.to_dict()["holes"] == [bound.lowest, bound.highest]
    for fills in ({"x": 2, "y": 2}, {"x": 0, "y": 0}):
        done = {q: grades | fills for q, grades in POOLED.items()}
        value = rp.compare(done, {"home": AT_HOME, "away": AWAY}, "nDCG@3")
        expected = value["home", "away"][parse("nDCG@3")].expected
        assert bound.lowest - 1e-12 <= expected <= bound.highest + 1e-12
        assert (expected < 0) == (fills["x"] == 2)


def test_bounds_are_computed_and_shown_without_being_requested() -> None:
    """As on the command line: a verdict that they could change says so, another does not."""
    late = {q: {"c": 3.0, "z": 2.0, "b": 1.0} for q in POOLED}
    for runs, is_open in (({"h": AT_HOME, "x": AWAY}, True), ({"h": AT_HOME, "x": late}, False)):
        compared = rp.compare(POOLED, runs, "nDCG@3")
        verdict = compared.verdict("h", "x", "nDCG@3")
        assert verdict.label == "ahead"
        assert ("unjudged" in verdict.depends_on) == is_open
        assert verdict.worst_case is not None
        assert (verdict.worst_case[0] <= 0) == is_open
        assert ("could change the verdict" in " ".join(str(compared).split())) == is_open
        board = rp.leaderboard(POOLED, runs, "nDCG@3")
        assert board["nDCG@3"].judged.min() < 1
        (on_best,) = (v for v in board["nDCG@3"].verdicts if v is not None)
        assert on_best == verdict
        assert ("unjudged documents could change verdicts" in str(board)) == is_open


def test_a_leaderboard_reports_judged_shares_and_verdicts_that_unjudged_documents_change() -> None:
    poor = {q: {"c": 3.0, "b": 2.0} for q in POOLED}
    runs = {"home": AT_HOME, "away": AWAY, "poor": poor}
    board = rp.leaderboard(POOLED, runs, "nDCG@3", holes=True)
    assert board.runs[0] == "home"
    standing = board["nDCG@3"]
    by_name = dict(zip(board.runs, standing.judged.tolist(), strict=True))
    assert by_name == pytest.approx({"home": 1.0, "away": 1 / 3, "poor": 1.0})
    verdicts = dict(zip(board.runs, standing.verdicts, strict=True))
    assert verdicts["home"] is None
    assert verdicts["away"] is not None
    assert verdicts["poor"] is not None
    assert (verdicts["away"].label, verdicts["away"].depends_on) == ("ahead", ("unjudged",))
    assert (verdicts["poor"].label, verdicts["poor"].depends_on) == ("ahead", ())
    assert "unjudged documents could change verdicts" in str(board)
    assert "judged" not in str(rp.leaderboard(POOLED, {"home": AT_HOME, "poor": poor}, "nDCG@3"))


def run_command(command: str, folder: Path, *runs: str) -> str:
    paths = [str(folder / run) if not run.startswith("-") else run for run in ("qrels", *runs)]
    process = rankproof(command, *paths, "-m", "nDCG@3")
    assert process.returncode == 0, process.stderr.decode()
    return process.stdout.decode()


@pytest.mark.parametrize("command", ["compare", "leaderboard"])
def test_the_judged_share_is_shown_if_something_is_unjudged(tmp_path: Path, command: str) -> None:
    write_trec(tmp_path)
    late = [f"{q} Q0 {d} 1 {s} late" for q in POOLED for d, s in (("c", 3), ("z", 2), ("b", 1))]
    (tmp_path / "late").write_text("\n".join(late) + "\n", encoding="utf-8")
    shown = " ".join(run_command(command, tmp_path, "home", "late").split())
    assert "67–100% of each top 3 is judged; unjudged documents count as not relevant." in shown
    assert "judged" not in run_command(command, tmp_path, "home", "home2")
    for options in ([], ["--holes"]):  # a verdict that they could change says so unasked
        shown = " ".join(run_command(command, tmp_path, "home", "away", *options).split())
        assert "33–100% of each top 3 is judged; " in shown
        assert "could change" in shown
        found = run_command(command, tmp_path, "home", "away", *options, "--format=json")
        rows = json.loads(found)["pairs" if command == "compare" else "runs"]
        values = rows[-1]["measures"]["nDCG@3"]
        verdict = values["verdict" if command == "compare" else "best_against_it"]
        assert verdict["depends_on"] == ["unjudged"]
        assert verdict["worst_case"][0] < 0 < verdict["worst_case"][1]


def write_trec(folder: Path) -> None:
    lines = [f"{q} 0 {d} {g}" for q, grades in POOLED.items() for d, g in grades.items()]
    (folder / "qrels").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, run in (("home", AT_HOME), ("home2", AT_HOME), ("away", AWAY)):
        rows = [f"{q} Q0 {d} 1 {s} {name}" for q, docs in run.items() for d, s in docs.items()]
        (folder / name).write_text("\n".join(rows) + "\n", encoding="utf-8")


@pytest.mark.parametrize("command", ["eval", "compare", "leaderboard"])
def test_condensed_lists_are_stated_with_the_share_that_was_judged(
    tmp_path: Path, command: str
) -> None:
    write_trec(tmp_path)
    found = json.loads(
        run_command(command, tmp_path, "home", "away", "--condensed", "--format=json")
    )
    assert found["policy"]["condensed"]
    rows = found["pairs" if command == "compare" else "runs"]
    shares = [row["measures"]["nDCG@3"]["judged"] for row in rows]
    assert np.ravel(shares) == pytest.approx([1.0, 1 / 3])  # of the lists as they were
    shown = " ".join(run_command(command, tmp_path, "home", "away", "--condensed").split())
    assert "Unjudged documents are removed from the lists (condensed)." in shown
    assert "could change" not in shown
    alone = rp.evaluate(POOLED, {q: {"a": 2.0} for q in POOLED}, "nDCG@3")["nDCG@3"].expected
    compared = rp.compare(POOLED, {"h": AT_HOME, "x": AWAY}, "nDCG@3", condensed=True)
    (difference,) = compared["h", "x"].values()
    assert difference.expected == pytest.approx(1 - alone)
    assert difference.holes is None


def test_a_small_lead_is_not_printed_as_0() -> None:
    from rankproof.foundation.phrasing import amount

    assert (amount(0.0214, 3), amount(0.0004, 3)) == ("0.021", "0.0004")
    assert amount(0.00004, 4) == "4e-05"


def test_leave_one_out_names_runs_that_lead_only_by_their_own_judgments(tmp_path: Path) -> None:
    write_trec(tmp_path)
    found = run_command("holes", tmp_path, "home", "away", "--leave-one-out=3", "--format=json")
    rows = {row["system"]: row for row in json.loads(found)["leave_one_out"]}
    assert (rows["home"]["judgements"], rows["away"]["judgements"]) == (48, 0)  # b and c
    assert rows["home"]["value"] == pytest.approx(1.0)
    shorter = {q: {"a": 2} for q in POOLED}
    alone = rp.evaluate(shorter, AT_HOME, "nDCG@3")["nDCG@3"].expected
    assert rows["home"]["without"] == pytest.approx(alone)
    shown = " ".join(run_command("holes", tmp_path, "home", "away", "--leave-one-out=3").split())
    assert "No run falls behind another" in shown
    lines = [*(f"{q} 0 b 1" for q in POOLED), "q1 0 x 1"]  # x is what the other brought in
    (tmp_path / "qrels").write_text("\n".join(lines) + "\n", encoding="utf-8")
    shown = " ".join(run_command("holes", tmp_path, "home", "away", "--leave-one-out=3").split())
    assert "home falls from rank 1 to 2 without the 24 judgments" in shown


def test_a_comparison_with_holes_is_verified(tmp_path: Path) -> None:
    write_trec(tmp_path)
    out = tmp_path / "compared.json"
    run_command("compare", tmp_path, "home", "away", "--holes", "--t-test", f"--out={out}")
    checked = rankproof("verify", str(out))
    assert checked.returncode == 0, checked.stdout.decode() + checked.stderr.decode()


def test_leaving_one_out_by_a_provenance_is_verified(tmp_path: Path) -> None:
    write_trec(tmp_path)
    rows = ["query\tdoc\tsystem", *(f"{q}\t{d}\thome" for q in POOLED for d in "abc")]
    (tmp_path / "provenance.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    out = tmp_path / "holes.json"
    brought = f"--provenance={tmp_path / 'provenance.tsv'}"
    run_command("holes", tmp_path, "home", "away", brought, f"--out={out}")
    assert json.loads(out.read_text())["leave_one_out"][0]["judgements"] == 72
    checked = rankproof("verify", str(out))
    assert checked.returncode == 0, checked.stdout.decode() + checked.stderr.decode()


def test_judging_a_tied_document_does_not_loosen_a_bound_that_was_exact() -> None:
    """A judged document that ties with an unjudged one makes the bound inexact, but not wider."""
    run = {"q": {"d4": 2.0, "d0": 1.0, "d2": 1.0}}
    before, after = (
        rp.holes({"q": grades}, {"a": run}, ["nDCG@3"], scale=2)["a"][rp.nDCG @ 3]
        for grades in ({"d1": 0, "d4": 1}, {"d1": 0, "d4": 1, "d0": 0})
    )
    assert before.exact
    assert after.lowest >= before.lowest - 1e-12


def test_an_unjudged_document_above_all_grades_changes_err_on_other_queries() -> None:
    """ERR scales gains by the highest grade of all queries."""
    qrels = {"p": {"a": 1}, "q": {"a": 1}}
    run = {"p": {"a": 1.0}, "q": {"a": 2.0, "x": 1.0}}
    means = [
        rp.evaluate({**qrels, "q": {"a": 1, "x": grade}}, run, "ERR")["ERR"].expected
        for grade in range(4)
    ]
    (bound,) = rp.holes(qrels, run, "ERR", scale=3).runs[0].measures.values()
    assert bound.lowest <= min(means) + 1e-9
    assert bound.highest >= max(means) - 1e-9


def test_queries_that_no_grade_makes_relevant_add_nothing_to_a_difference() -> None:
    qrels = {"p": {"a": 2, "b": 0}, "q": {"a": 1, "b": 0}}
    runs = {"a": {"p": {"a": 1.0}, "q": {"x": 1.0}}, "b": {"p": {"b": 1.0}, "q": {"y": 1.0}}}
    for measure in ("P(rel=3)@1", "R(rel=3)@1", "RR(rel=3)@1"):
        (bound,) = rp.holes(qrels, runs, measure, scale=2).pairs[0].measures.values()
        assert math.isnan(bound.lowest)
        assert math.isnan(bound.highest)


def test_sentences_on_a_difference_that_only_some_grades_define() -> None:
    """No judged document is relevant, so no measure has a value yet."""
    qrels = {"q": {"a": 0}}
    runs = {"a": {"q": {"x": 2.0, "a": 1.0}}, "b": {"q": {"a": 2.0, "x": 1.0}}}
    found = rp.holes(qrels, runs, ["RR", "R"])
    assert [pair_sentence(found.pairs[0], m) for m in found.pairs[0].measures] == [
        "RR is undefined until 1 unjudged document is graded (a − b between +0.5000 and +0.5000).",
        "R is undefined until 1 unjudged document is graded (a − b between 0.0000 and 0.0000).",
    ]
    tables = [rp.read_run(run, name=name) for name, run in runs.items()]
    done = settle(tables, rp.read_qrels(qrels), rp.RR, lambda pairs: [0 for _ in pairs])
    assert (
        str(done)
        == "not settled after 1 of 1 unjudged document: RR is undefined, for nothing is relevant"
    )
    done = settle(tables, rp.read_qrels(qrels), rp.RR, lambda pairs: [1 for _ in pairs])
    assert str(done) == (
        "settled after 1 of 1 unjudged document: a is ahead by 0.500 whatever the others are"
    )
    alone = rp.holes(qrels, {"a": runs["a"]}, "RR").summary().answer
    assert (
        alone
        == "RR of a is undefined, and could be 1.0000 with grades for its 1 unjudged document."
    )
    never = rp.holes(qrels, runs, "RR(rel=2)", scale=1)
    assert never.summary().answer.endswith("undefined whatever the 1 unjudged document may be.")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize("command", ["compare", "leaderboard"])
@pytest.mark.parametrize("holes", [None, True])
def test_bounds_read_a_run_only_once(tmp_path: Path, command: str, holes: bool | None) -> None:
    """A pipe cannot be read a second time."""
    pipe, b, qrels = tmp_path / "a", tmp_path / "b", {"q": {"r": 1, "n": 0}}
    b.write_text("q Q0 r 1 3 b\nq Q0 y 2 2 b\n")
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_text, args=["q Q0 x 1 3 a\nq Q0 r 2 2 a\n"])
    writer.start()
    if command == "compare":
        compared = rp.compare(qrels, {"a": pipe, "b": b}, "RR", holes=holes)
        assert compared.pairs[0].measures[rp.RR].holes == (-0.5, 0.0)
    else:
        board = rp.leaderboard(qrels, {"a": pipe, "b": b}, "RR", holes=holes)
        assert board.runs == ("b", "a")
        (verdict,) = (v for v in board["RR"].verdicts if v is not None)
        assert (verdict.estimate, verdict.worst_case_exact) == (0.5, True)
    writer.join()


def test_bounds_of_a_run_in_parts_are_computed_only_on_request(tmp_path: Path) -> None:
    b, folder, qrels = tmp_path / "b", tmp_path / "a", {"q": {"r": 1, "n": 0}}
    b.write_text("q Q0 r 1 3 b\nq Q0 y 2 2 b\n")
    folder.mkdir()
    (folder / "part.trec").write_text("q Q0 x 1 3 a\nq Q0 r 2 2 a\n")
    found = rp.compare(qrels, {"a": folder, "b": b}, "RR")
    assert found.pairs[0].measures[rp.RR].holes is None
    with pytest.raises(rp.InputError, match="a folder is read in parts"):
        rp.compare(qrels, {"a": folder, "b": b}, "RR", holes=True)
