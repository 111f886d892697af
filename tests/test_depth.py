"""A depth ends every list after a rank, in every order of its ties."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from test_measures_by_enumeration import GRADED, SETS, Case, by_definition, one_query, random_case

import rankproof as rp
from rankproof.measures import REGISTRY, Outcomes, split_ties

CASES = 40  # of each kind; 10,000 take some minutes


def check_depth(case: Case, specs: list[str], depth: int) -> None:
    """Compare each figure with the definition over every order of whole lists, cut at the depth."""
    evaluation = rp.evaluate(case.qrels, case.run, specs, depth=depth)
    for measure, outcomes in evaluation.outcomes.items():
        for row, query in enumerate(case.queries):
            pool, top = case.pool(query), case.max_grade
            orders = [*case.orderings(query), case.ranked(query, "input")]
            *of_orders, stated = (by_definition(measure, o[:depth], pool, top) for o in orders)
            values = np.array(of_orders)
            found = (outcomes.expected, outcomes.min, outcomes.max, outcomes.oblivious)
            wanted = (values.mean(), values.min(), values.max(), stated)
            got = tuple(column[row] for column in found)
            assert got == pytest.approx(wanted, abs=1e-9, nan_ok=True), (
                measure,
                case,
                depth,
                query,
            )
            if outcomes.variance is not None and not math.isnan(stated):
                assert outcomes.variance[row] == pytest.approx(values.var(), abs=1e-9), (
                    measure,
                    case,
                )


def small_case(rng: Random, grades: list[int | None]) -> Case:
    length = rng.randint(1, 7)
    scores = [float(rng.randint(0, 2)) for _ in range(length)]
    listed = [rng.choice(grades) for _ in scores]
    unretrieved = [g for g in (rng.choice(grades) for _ in range(rng.randint(0, 2))) if g]
    if all(grade is None or grade < 0 for grade in listed):
        listed[0] = grades[-1]
    return one_query(scores, listed, unretrieved)


def test_graded_measures_to_a_depth_are_those_of_every_order() -> None:
    rng = Random(1)
    for _ in range(CASES):
        check_depth(small_case(rng, [None, 0, 0, 1, 2, -1, 3]), GRADED, rng.randint(1, 6))


def test_set_measures_to_a_depth_are_those_of_every_order() -> None:
    rng = Random(2)
    for _ in range(CASES):
        check_depth(small_case(rng, [None, 1, 2, 3, 4, 5]), SETS, rng.randint(1, 6))


def test_rr_to_depth_1_is_rr_at_1() -> None:
    found = rp.evaluate({"q": {"b": 1}}, {"q": {"a": 1.0, "b": 1.0}}, "RR", depth=1)["RR"]
    assert (found.expected, found.min, found.max) == (0.5, 0.0, 1.0)


def test_a_measure_of_ones_own_needs_to_know_nothing_of_depth() -> None:
    def total(groups: rp.TieGroups) -> Outcomes:
        """The sum of the grades of what is listed."""
        return Outcomes.certain(groups.sum_by_query(groups.doc_query, groups.grade))

    measure = rp.measure("TotalGrade", endless=True)(total)
    qrels, run = {"q": {"a": 3, "b": 1, "c": 2}}, {"q": {"a": 2.0, "b": 1.0, "c": 1.0, "d": 1.0}}
    try:
        found = rp.evaluate(qrels, run, measure, depth=2)[measure]
    finally:
        del REGISTRY["TotalGrade"]
    assert found.expected == pytest.approx(3 + (1 + 2 + 0) / 3)
    assert (found.min, found.max, found.oblivious) == (3.0, 5.0, 4.0)


def test_where_a_tie_allows_too_many_lists_some_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    case = random_case(4, 30, 30, [None, 0, 1, 2, 3])
    exact = rp.evaluate(case.qrels, case.run, ["bpref", "infAP"], depth=9)
    monkeypatch.setattr(split_ties, "_DRAWN", 200)
    monkeypatch.setattr(split_ties, "_FEWEST_DRAWN", 200)
    monkeypatch.setattr(split_ties, "_QUERY_CELLS", 0)
    found = rp.evaluate(case.qrels, case.run, ["bpref", "infAP"], depth=9)
    for measure in found:
        sampled = found[measure].sampled
        assert sampled is not None
        assert abs(found[measure].expected - exact[measure].expected) < 3.5 * sampled.error


def test_a_depth_past_every_list_changes_nothing() -> None:
    case = random_case(5, 40, 20, [None, 0, 1, 2, 3])
    whole = rp.evaluate(case.qrels, case.run, GRADED)
    deep = rp.evaluate(case.qrels, case.run, GRADED, depth=100)
    for measure in whole:
        assert replace(whole[measure]) == replace(deep[measure])
