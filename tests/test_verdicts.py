"""Verdicts, intervals and worst cases against their definitions, on inputs made for it."""

from __future__ import annotations

import itertools
import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankproof as rp
from rankproof.commands.recording import STORES_RESULT
from rankproof.statistics.family import critical_values
from rankproof.statistics.groups import group_means
from rankproof.statistics.intervals import difference_intervals, mean_intervals

Lists = dict[str, dict[str, float]]


def first_or_second(is_first: list[bool]) -> Lists:
    """A run with the relevant document at rank 1 or 2 of each query."""
    ranked = {True: {"rel": 2.0, "x": 1.0}, False: {"x": 2.0, "rel": 1.0}}
    return {f"q{i}": ranked[first] for i, first in enumerate(is_first)}


# ------------------------------------------------------------------------------------- groups

QRELS = {f"q{i}": {"rel": 1, "x": 0} for i in range(24)}
IN_PAIRS = {f"q{i}": f"g{i // 2}" for i in range(24)}
EVEN, ODD = first_or_second([True, False] * 12), first_or_second([False, True] * 12)
ALL, NONE = first_or_second([True] * 24), first_or_second([False] * 24)


@pytest.mark.parametrize(("a", "b", "mean"), [(EVEN, ODD, 0.0), (EVEN, NONE, 0.25)])
def test_groups_whose_means_are_all_the_same_leave_room_for_what_is_unseen(
    a: Lists, b: Lists, mean: float
) -> None:
    """The differences vary inside the groups alone, so that V is 0 as if all were one value."""
    verdict = rp.compare(QRELS, {"a": a, "b": b}, ["RR"], groups=IN_PAIRS).verdict("a", "b", "RR")
    unseen = 1.0 - 0.025 ** (1.0 / 12.0)  # the share that 12 groups can miss
    assert verdict.ci == pytest.approx((mean - unseen * (mean + 1), mean + unseen * (1 - mean)))


def test_a_mean_of_groups_that_are_all_the_same_has_a_wide_interval_too() -> None:
    values, groups = np.array([[1.0, 0.5] * 12]), np.repeat(np.arange(12), 2)
    low, high = mean_intervals(values, 1.0, groups)[0]
    unseen = 1.0 - 0.025 ** (1.0 / 12.0)
    assert (low, high) == pytest.approx((0.75 - unseen * 0.75, 0.75 + unseen * 0.25))


@pytest.mark.filterwarnings("error")
def test_a_family_has_a_critical_value_although_a_pair_differs_only_inside_its_groups() -> None:
    values = np.array([[1.0, 0.5] * 12, [0.5, 1.0] * 12, [0.5] * 24, [1.0, 0.5, 0.5] * 8])
    first, second = np.triu_indices(4, 1)
    critical = critical_values([values], first, second, np.repeat(np.arange(12), 2))
    assert np.isfinite(critical[0]).all()
    runs = {"even": EVEN, "odd": ODD, "none": NONE, "all": ALL}
    comparison = rp.compare(QRELS, runs, ["RR", "P@1"], groups=IN_PAIRS)
    assert comparison.verdict("even", "odd", "RR").label == "undecided"


@pytest.mark.parametrize("undefined", [0, 3])
def test_with_one_query_in_each_group_every_interval_is_the_same_to_the_last_bit(
    undefined: int,
) -> None:
    generator = np.random.default_rng(4)
    values = generator.choice([0.0, 0.0, 0.0, 0.2, -0.3, 1.0], (40, 17))
    values[5:9] = np.round(generator.normal(size=(4, 17)), 1)
    values[9, :15], values[10] = 0.25, 0.1
    values[:, :undefined] = np.nan
    groups = generator.permutation(17)
    for critical in (0.0, 3.1):
        alone = difference_intervals(values, 1.0, None, critical)
        grouped = difference_intervals(values, 1.0, groups, critical)
        assert alone.tobytes() == grouped.tobytes()
    means = np.abs(values)
    assert mean_intervals(means).tobytes() == mean_intervals(means, 1.0, groups).tobytes()


def test_means_of_groups_leave_out_what_is_undefined() -> None:
    values = np.array([[1.0, np.nan, 3.0, np.nan], [1.0, 2.0, 3.0, 4.0]])
    means = group_means(values, np.array([0, 0, 0, 1]))
    assert means.tolist()[1] == [2.0, 4.0]
    assert means[0, 0] == 2.0
    assert np.isnan(means[0, 1])


# ------------------------------------------------------------------- worst cases within a depth

MEASURES = ("P@3", "R@3", "nDCG@3", "AP", "AP@3", "RR", "Success@2", "RBP", "F1@3", "Rprec", "SetF")
TIED: dict[str, tuple[dict[str, dict[str, int]], Lists, Lists]] = {
    "judged documents alone": (
        {"q": {"d0": 0, "d2": 0, "d3": 1, "d4": 0, "d5": 1}},
        {"q": {"d3": 2.0, "d5": 2.0, "d0": 2.0}},
        {"q": {"d0": 3.0, "d3": 2.0}},
    ),
    "an unjudged document behind the depth as listed": (
        {"q": {"rel": 1, "not": 0}, "r": {"rel": 1}},
        {"q": {"rel": 2.0, "not": 1.0, "new": 1.0}, "r": {"new": 1.0, "rel": 1.0, "other": 1.0}},
        {"q": {"not": 3.0, "new": 2.0, "rel": 1.0}, "r": {"rel": 1.0}},
    ),
    "nothing ties": (
        {"q": {"rel": 1, "not": 0}, "r": {"rel": 1, "far": 1}},
        {"q": {"rel": 3.0, "new": 2.0, "not": 1.0}, "r": {"new": 3.0, "rel": 2.0, "far": 1.0}},
        {"q": {"not": 3.0, "new": 2.0, "rel": 1.0}, "r": {"rel": 3.0, "new": 2.0, "old": 1.0}},
    ),
}


def completions(
    qrels: dict[str, dict[str, int]], depth: int, *runs: Lists
) -> list[dict[str, dict[str, int]]]:
    """The judgments with every grade of every unjudged document whose tie begins in the depth."""
    unjudged = sorted(
        {
            (q, doc)
            for run in runs
            for q, listed in run.items()
            for doc, score in listed.items()
            if doc not in qrels[q] and sum(other > score for other in listed.values()) < depth
        }
    )
    completed = []
    for grades in itertools.product((0, 1), repeat=len(unjudged)):
        judgments = {q: dict(docs) for q, docs in qrels.items()}
        for (q, doc), grade in zip(unjudged, grades, strict=True):
            judgments[q][doc] = grade
        completed.append(judgments)
    return completed


@pytest.mark.parametrize("name", TIED)
@pytest.mark.parametrize(
    ("depth", "candidates_only"), [(1, False), (2, False), (3, False), (2, True), (3, True)]
)
def test_worst_cases_hold_for_lists_that_end_inside_a_tie(
    name: str, depth: int, candidates_only: bool
) -> None:
    qrels, a, b = TIED[name]
    policy: dict[str, Any] = {"depth": depth, "candidates_only": candidates_only}
    evaluation = rp.evaluate(qrels, a, MEASURES, holes=True, **policy)
    comparison = rp.compare(qrels, {"a": a, "b": b}, MEASURES, holes=True, **policy)
    for m in evaluation:
        bound = evaluation.bounds[m]
        assert bound.expected == pytest.approx(evaluation[m].expected)
        assert bound.lowest - 1e-12 <= evaluation[m].min, m
        assert evaluation[m].max <= bound.highest + 1e-12, m
    for reach in range(1, depth + 1):
        measures = [m for m in evaluation if min(depth, m.cutoff or depth) == reach]
        for judgments in completions(qrels, reach, a) if measures else []:
            values = rp.evaluate(judgments, a, measures, **policy)
            for m in measures:
                bound = evaluation.bounds[m]
                assert bound.lowest - 1e-12 <= values[m].expected <= bound.highest + 1e-12, m
        for judgments in completions(qrels, reach, a, b) if measures else []:
            of_a, of_b = (rp.evaluate(judgments, run, measures, **policy) for run in (a, b))
            for m in measures:
                ends, difference = (
                    comparison["a", "b"][m].holes,
                    of_a[m].expected - of_b[m].expected,
                )
                assert ends is not None
                assert ends[0] - 1e-12 <= difference <= ends[1] + 1e-12, (m, judgments)


def test_worst_cases_within_a_deep_cutoff_stay_exact() -> None:
    """A measure that stops before the depth does not see which tied documents are left out."""
    qrels = {"q": {"rel": 1, "not": 0}}
    run = {"q": {"rel": 4.0, "new": 3.0, "not": 2.0, "x": 2.0, "y": 2.0}}
    bounds = rp.evaluate(qrels, run, ["P@2", "R"], holes=True, depth=4).bounds
    assert bounds[rp.P @ 2].exact
    assert (bounds[rp.P @ 2].lowest, bounds[rp.P @ 2].highest) == (0.5, 1.0)
    assert not bounds[rp.R].exact


def test_only_candidates_within_the_depth_count_as_relevant() -> None:
    qrels = {"q": {"first": 1, "third": 1}}
    run = {"q": {"first": 3.0, "second": 2.0, "third": 1.0}}
    assert rp.evaluate(qrels, run, "R", candidates_only=True)["R"].expected == 1.0
    assert rp.evaluate(qrels, run, "R@2", candidates_only=True)["R@2"].expected == 0.5
    assert rp.evaluate(qrels, run, "R", candidates_only=True, depth=2)["R"].expected == 1.0


def draw_pair(seed: int) -> tuple[dict[str, dict[str, int]], Lists, Lists]:
    """Sparse judgments, with nothing relevant in some queries, and two unlike runs."""
    generator = np.random.default_rng(seed)
    docs = [f"d{i}" for i in range(9)]
    qrels: dict[str, dict[str, int]] = {}
    a: Lists = {}
    b: Lists = {}
    for q in map("q{}".format, range(9)):
        judged = generator.random(9) < 0.7
        judged[0] = True
        qrels[q] = {
            doc: int(generator.random() < 0.3)
            for doc, is_judged in zip(docs, judged, strict=True)
            if is_judged
        }
        for run in (a, b):
            listed = generator.permutation(docs)[:4].tolist()
            run[q] = {doc: float(-rank) for rank, doc in enumerate(listed)}
    return qrels, a, b


@pytest.mark.parametrize("like", [None, "trec_eval"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_worst_cases_of_a_stored_baseline_contain_those_of_its_run(
    seed: int, like: Any, tmp_path: Path
) -> None:
    """The candidate's unjudged documents may be relevant ones that the baseline misses."""
    measures = ["nDCG@3", "AP", "RR", "P@3", "R@3", "bpref", "Rprec", "F1@3", "NumRelRet"]
    qrels, before, after = draw_pair(seed)
    stored = tmp_path / "baseline.json"
    token = STORES_RESULT.set(True)
    try:
        whole = rp.gate(qrels, before, before, measures, like=like).to_stored_dict()
    finally:
        STORES_RESULT.reset(token)
    stored.write_text(json.dumps(whole), encoding="utf-8")
    of_run = rp.gate(qrels, before, after, measures, like=like)
    of_stored = rp.gate(qrels, str(stored), after, measures, like=like)
    for m in of_run.measures:
        inner, outer = of_run.measures[m].difference.holes, of_stored.measures[m].difference.holes
        assert inner is not None
        assert outer is not None
        assert outer[0] <= inner[0] + 1e-12, (m, outer, inner)
        assert inner[1] <= outer[1] + 1e-12, (m, outer, inner)


def test_worst_cases_are_no_narrower_than_the_bound_where_few_queries_differ() -> None:
    """Grades can make four lost queries equal, but not the unseen ones, of which more may gain."""
    qrels = {f"q{i}": {"rel": 1} for i in range(20)}
    before = {q: {"rel": 2.0, "new": 1.0} for q in qrels}
    after = {
        q: {"new": 2.0, "rel": 1.0} if number < 4 else listed
        for number, (q, listed) in enumerate(before.items())
    }
    comparison = rp.compare(qrels, {"after": after, "before": before}, ["Success@1"], holes=True)
    verdict = comparison.verdict("after", "before", "Success@1")
    assert verdict.ci is None
    assert verdict.bound is not None
    assert verdict.worst_case is not None
    assert verdict.worst_case[0] <= verdict.bound[0] < 0 < verdict.bound[1] <= verdict.worst_case[1]


# --------------------------------------------------------------------------------- leaderboards


def test_a_leaderboard_counts_the_queries_of_the_difference_that_it_shows() -> None:
    runs = {
        "a": {q: EVEN[q] for q in list(EVEN)[:10]},
        "b": {q: NONE[q] for q in list(NONE)[5:]},
        "c": NONE,
    }
    board = rp.leaderboard(QRELS, runs, ["RR"], missing="skip")
    standing = board.measures[rp.RR]
    for row, name in enumerate(board.runs):
        verdict = standing.verdicts[row]
        if verdict is not None:
            counted = standing.wins[row] + standing.ties[row] + standing.losses[row]
            assert counted == verdict.queries, name
    assert "Scores are over the queries that all runs have, differences over those" in str(board)


# ----------------------------------------------------------------------------------------- ids


def test_queries_that_differ_only_in_unicode_form_are_named_as_such() -> None:
    qrels = {unicodedata.normalize("NFC", f"é{i}"): {"d": 1} for i in range(3)}
    run = {unicodedata.normalize("NFD", f"é{i}"): {"d": 1.0} for i in range(3)}
    with pytest.raises(rp.InputError, match="Unicode form, NFC in qrels, NFD in run"):
        rp.evaluate(qrels, run, ["RR"])
