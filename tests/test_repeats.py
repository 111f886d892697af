"""Repeats of one system are averaged per query; verdicts are for them, and say what one shows."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

import rankproof as rp
from rankproof.comparison.repeats import common_name, merge_repeats, system_of

Scores = dict[str, dict[str, float]]
RR = rp.parse("RR")


def judgments(queries: int) -> dict[str, dict[str, int]]:
    return {f"q{q:02}": {"r": 1, "n": 0} for q in range(queries)}


def draw_run(seed: int, queries: int, share: float, tied: float = 0.0) -> Scores:
    """A run that lists the relevant document first on a share of queries, or ties it."""
    rng = np.random.default_rng(seed)
    return {
        f"q{q:02}": {"r": float(rng.random() < share) or 0.5 * (rng.random() < tied), "n": 0.5}
        for q in range(queries)
    }


def write_run(path: Path, run: Scores) -> str:
    lines = [
        f"{query} Q0 {doc} {rank} {score} t\n"
        for query, scores in run.items()
        for rank, (doc, score) in enumerate(sorted(scores.items(), key=lambda x: -x[1]), 1)
    ]
    path.write_text("".join(lines))
    return str(path)


def test_runs_numbered_from_one_without_gaps_are_repeats() -> None:
    names = ["a@2", "b", "a@1", "c@1", "c@3", "bm25@10", "bm25@100", "d@1", "e@1", "e@2", "e"]
    systems = system_of(names)
    assert [name for name, system in systems.items() if system == "a"] == ["a@1", "a@2"]
    others = [name for name in names if not name.startswith("a@")]
    assert all(systems[name] == name for name in others), "a gap, one alone, or a name that is used"
    assert list(systems)[:2] == ["a@1", "a@2"], "they stand one after the other"


def test_repeats_are_named_by_what_their_names_share() -> None:
    assert common_name(["dense-seed1", "dense-seed2"]) == "dense"
    assert common_name(["bm25", "bm25"]) == "bm25"
    assert common_name(["x", "y"]) == "x"


def test_the_value_of_a_query_is_the_mean_over_repeats() -> None:
    qrels = judgments(12)
    repeats = [draw_run(seed, 12, 0.6, tied=0.5) for seed in range(3)]
    runs = {"b": draw_run(9, 12, 0.4), "a": repeats}
    comparison = rp.compare(qrels, runs, "RR")
    alone = [rp.evaluate(qrels, run, "RR") for run in repeats]
    merged = comparison.evaluations[1]
    assert merged.name == "a"
    assert len(merged.repeats) == 3
    for name in ("expected", "min", "max", "oblivious"):
        mean = np.mean([getattr(e.outcomes[RR], name) for e in alone], axis=0)
        assert getattr(merged.outcomes[RR], name) == pytest.approx(mean)
    variances = np.array([e.outcomes[RR].variance for e in alone])
    assert merged.outcomes[RR].variance == pytest.approx(variances.sum(axis=0) / 9)
    named = {"b": runs["b"], **{f"a@{n}": run for n, run in enumerate(repeats, 1)}}
    assert rp.compare(qrels, named, "RR").to_dict() == comparison.to_dict()
    board = rp.leaderboard(qrels, named, "RR")
    assert set(board.runs) == {"a", "b"}
    assert board.to_dict()["repeats"]["a"]["RR"] == [e["RR"].expected for e in alone]


def test_the_flip_of_an_average_counts_every_order_of_every_repeat() -> None:
    qrels = judgments(3)
    tie, first, last = ({"r": 1.0, "n": score} for score in (1.0, 0.0, 2.0))
    repeats = [{"q00": tie, "q01": first, "q02": last}, {"q00": tie, "q01": last, "q02": tie}]
    other = {"q00": tie, "q01": last, "q02": first}
    difference = rp.compare(qrels, {"a": repeats, "b": other}, "RR")["a", "b"][RR]
    orders = list(product([0.5, 1.0], repeat=4))
    values = [(a + 1 + 0.5 + b + 0.5 + c) / 2 - (d + 0.5 + 1) for a, b, c, d in orders]
    assert difference.expected == pytest.approx(np.mean(values) / 3)
    share = np.mean([value * np.mean(values) < -1e-9 for value in values])
    assert difference.flip == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("seeds", [(1, 2, 3), (4, 5, 6), (7, 8, 9)])
def test_a_share_says_how_many_repeats_alone_would_change_the_verdict(
    seeds: tuple[int, ...],
) -> None:
    qrels = judgments(40)
    repeats = [
        draw_run(seed, 40, share) for seed, share in zip(seeds, (0.6, 0.7, 0.85), strict=True)
    ]
    other = [draw_run(seed + 50, 40, 0.5) for seed in (1, 2)]
    comparison = rp.compare(qrels, {"a": repeats, "b": other}, "RR")
    verdict = comparison.verdict("a", "b", "RR")
    labels = [
        rp.compare(qrels, {"a": a, "b": b}, "RR").verdict("a", "b", "RR").label
        for a, b in product(repeats, other)
    ]
    assert verdict.repeats_changed == np.mean([label != verdict.label for label in labels])
    gate = rp.gate(qrels, other, repeats, "RR").measures[RR]
    alone = [rp.gate(qrels, b, a, "RR").verdict for a, b in product(repeats, other)]
    assert gate.repeats_changed == np.mean([label != gate.label for label in alone])
    note = comparison.summary().notes[0]
    assert note.startswith("For these 3 repeats of a (")
    assert " of 6 pairs alone would" in note


def test_worst_cases_of_an_average_hold_whatever_the_unjudged_documents_are() -> None:
    rng = np.random.default_rng(3)
    documents, queries = ["r", "n", "u1", "u2"], [f"q{q}" for q in range(8)]
    qrels = {q: {"r": 1, "n": 0} for q in queries}

    def run() -> Scores:
        return {
            q: dict(zip(documents, rng.permutation(4).astype(float), strict=True)) for q in queries
        }

    runs = {"a": [run(), run()], "b": run()}
    comparison = rp.compare(qrels, runs, "P@2", holes=True)
    low, high = comparison["a", "b"][rp.parse("P@2")].holes or (np.nan, np.nan)
    assert low < high
    for grades in product([0, 1], repeat=2):
        completed = {
            q: {"r": 1, "n": 0, **dict(zip(("u1", "u2"), grades, strict=True))} for q in queries
        }
        value = rp.compare(completed, runs, "P@2")["a", "b"][rp.parse("P@2")].expected
        assert low - 1e-12 <= value <= high + 1e-12


def test_a_list_a_folder_and_a_pattern_name_the_same_repeats(tmp_path: Path) -> None:
    qrels, baseline = judgments(30), draw_run(1, 30, 0.6)
    folder = tmp_path / "new"
    folder.mkdir()
    repeats = [draw_run(seed, 30, 0.7) for seed in (2, 3, 4)]
    files = [write_run(folder / f"new@{n}.trec", run) for n, run in enumerate(repeats, 1)]
    verdicts = [
        rp.gate(qrels, baseline, candidate, "RR").to_dict()["measures"]
        for candidate in (repeats, files, str(folder), str(folder / "*.trec"))
    ]
    assert all(verdict == verdicts[0] for verdict in verdicts)


def test_files_of_different_queries_are_one_run_and_not_repeats(tmp_path: Path) -> None:
    qrels, run = judgments(20), draw_run(1, 20, 0.6)
    queries = list(run)
    for part, chosen in enumerate((queries[:12], queries[12:])):
        write_run(tmp_path / f"part-{part}.trec", {q: run[q] for q in chosen})
    gate = rp.gate(qrels, run, str(tmp_path), "RR")
    assert not gate.evaluation.repeats
    assert gate.measures[RR].verdict.differing == 0


def test_repeats_without_a_common_query_are_refused() -> None:
    qrels = judgments(8)
    parts = [draw_run(1, 8, 0.5), draw_run(1, 8, 0.5)]
    halves = [{q: r for q, r in parts[0].items() if q < "q04"}, {"q06": parts[1]["q06"]}]
    evaluations = [
        rp.evaluate(qrels, half, "RR", missing="skip").renamed(f"a@{n}")
        for n, half in enumerate(halves, 1)
    ]
    with pytest.raises(rp.InputError, match="share no query"):
        merge_repeats(evaluations)


def test_p_turns_whole_groups_of_queries() -> None:
    qrels, groups = judgments(24), {f"q{q:02}": q // 3 for q in range(24)}
    runs = {"a": draw_run(1, 24, 0.8), "b": draw_run(2, 24, 0.4)}
    comparison = rp.compare(qrels, runs, "RR", groups=groups)
    values = [e.outcomes[RR].expected for e in comparison.evaluations]
    sums = (values[0] - values[1]).reshape(8, 3).sum(axis=1)
    flips = np.array(list(product([1, -1], repeat=8))) @ sums
    share = np.mean(np.abs(flips) >= abs(sums.sum()) - 1e-12)
    assert comparison["a", "b"][RR].p == pytest.approx(share)
