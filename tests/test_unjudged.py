"""Bounds over holes against enumeration: every completion, and every order of the ties."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import ORACLES, enumerate_orderings

import rankproof as rp
from rankproof.measures import REGISTRY, Measure, parse
from rankproof.unjudged.bounds import lowest_mean
from rankproof.unjudged.rules import RULES

GRADED = [
    "Hits@2", "P@1", "P@3", "P(rel=2)@3", "R@2", "R@4", "R(rel=2)@3", "R", "F1@2", "F1@4",
    "Rprec", "Rprec(rel=2)", "RBP@3", "RBP(p=0.5)", "nDCG@1", "nDCG@2", "nDCG@3", "nDCG",
    "nDCG(gain='exp')@3", "RR@1", "RR@3", "RR", "Success@2", "AP@2", "AP@3", "AP", "AP(rel=2)@3",
    "ERR@3", "ERR(max=3)@3", "bpref", "bpref(rel=2)",
]  # fmt: skip
SETS = [
    "RAnWG@2", "RAnWG@3", "RAnWG(alpha=0.5,cap4=0.3)@3", "NRecall4@1", "NRecall4@3", "NRecall5@2",
    "P4@2", "Harm@2", "Harm@3", "Hit@2", "Hit@3", "UDCG@2", "UDCG(penalty=1.0)@3",
]  # fmt: skip
EXACT_PAIRS = {"P", "Hits", "RBP", "R", "nDCG"}

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


def completions(holes: set[str], grades: Grades, scale: range) -> Iterator[dict[str, int]]:
    names = sorted(holes)
    for given_grades in product(scale, repeat=len(names)):
        yield {**grades, **dict(zip(names, given_grades, strict=True))}


def values(measure: Measure, scores: Scores, grades: Grades) -> list[float]:
    """The measure under every order of the ties."""
    pool = list(grades.values())
    orders = enumerate_orderings(list(scores.values()), [grades.get(doc) for doc in scores])
    oracle = ORACLES[measure.name]
    return [oracle(o, pool, measure.cutoff, max(pool), **dict(measure.given)) for o in orders]


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


def check_run(case: Case, specs: list[str], scale: range, ties: bool) -> None:
    found = rp.holes({"q": case.grades}, {"q": case.a}, specs, scale=_scale(scale))
    for measure in map(parse, specs):
        bound = found.runs[0].measures[measure]
        holes = holes_of(case.a, case.grades, measure.cutoff)
        every = [
            value
            for done in completions(holes, case.grades, scale)
            for value in values(measure, case.a, done)
            if not math.isnan(value)
        ]
        low, high = (min(every), max(every)) if every else (math.nan, math.nan)
        # A hole above the highest grade so far changes what ERR takes every grade for.
        if not ties and (str(measure) != "ERR@3" or max(case.grades.values()) == scale[-1]):
            assert bound.exact
        if bound.exact:
            assert close(bound.lowest, low), (measure, bound, low, high)
            assert close(bound.highest, high), (measure, bound, low, high)
        else:
            assert bound.lowest <= low + 1e-9, (measure, bound, low, high)
            assert bound.highest >= high - 1e-9, (measure, bound, low, high)


def _scale(scale: range) -> int | None:
    return None if scale[0] else scale[-1]


@given(cases([0, 1, 2], ties=False))
@settings(max_examples=120)
def test_without_ties_a_runs_ends_are_those_of_every_completion(case: Case) -> None:
    check_run(case, GRADED, range(3), ties=False)


@given(cases([0, 1, 2], ties=True))
@settings(max_examples=120)
def test_with_ties_a_runs_ends_hold_every_completion_and_order(case: Case) -> None:
    check_run(case, GRADED, range(3), ties=True)


@given(cases([1, 2, 3, 4, 5], ties=False))
def test_without_ties_the_ends_of_set_measures_are_those_of_every_completion(case: Case) -> None:
    check_run(case, SETS, range(1, 6), ties=False)


@given(cases([1, 2, 3, 4, 5], ties=True, holes=2))
def test_with_ties_the_ends_of_set_measures_hold_every_completion_and_order(case: Case) -> None:
    check_run(case, SETS, range(1, 6), ties=True)


def check_pair(case: Case, specs: list[str], scale: range, ties: bool) -> None:
    runs = {"a": {"q": case.a}, "b": {"q": case.b}}
    found = rp.holes({"q": case.grades}, runs, specs, scale=_scale(scale))
    for measure in map(parse, specs):
        bound = found["a", "b"][measure]
        both = [holes_of(scores, case.grades, measure.cutoff) for scores in (case.a, case.b)]
        every = [
            a - b
            for done in completions(both[0] | both[1], case.grades, scale)
            for a in set(values(measure, case.a, done))
            for b in set(values(measure, case.b, done))
            if not math.isnan(a - b)
        ]
        low, high = (min(every), max(every)) if every else (math.nan, math.nan)
        if not ties:
            assert bound.exact == (measure.name in EXACT_PAIRS or not (both[0] | both[1]))
        if bound.exact:
            assert close(bound.lowest, low), (measure, bound, low, high)
            assert close(bound.highest, high), (measure, bound, low, high)
        elif every:
            assert bound.lowest <= low + 1e-9, (measure, bound, low, high)
            assert bound.highest >= high - 1e-9, (measure, bound, low, high)


@given(cases([0, 1, 2], ties=False))
@settings(max_examples=120)
def test_without_ties_a_differences_ends_are_those_of_every_completion(case: Case) -> None:
    check_pair(case, GRADED, range(3), ties=False)


@given(cases([0, 1, 2], ties=True))
@settings(max_examples=60)
def test_with_ties_a_differences_ends_hold_every_completion_and_order(case: Case) -> None:
    check_pair(case, GRADED, range(3), ties=True)


@given(cases([1, 2, 3, 4, 5], ties=False, holes=2))
def test_a_difference_of_set_measures_holds_every_completion(case: Case) -> None:
    check_pair(case, SETS, range(1, 6), ties=False)


@given(cases([1, 2, 3, 4, 5], ties=True, holes=2))
@settings(max_examples=20)
def test_a_difference_of_set_measures_holds_every_completion_and_order(case: Case) -> None:
    check_pair(case, SETS, range(1, 6), ties=True)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_registered_measure_has_a_rule_for_holes(name: str) -> None:
    assert name in RULES, f"{name} has no rule in rankproof/unjudged/rules.py"
    assert name == "Judged" or any(parse(spec).name == name for spec in GRADED + SETS)
