"""Warnings about runs: each once per call, and never against what another line says."""

from __future__ import annotations

from typing import Any

import rankproof as rp

QRELS = {"q": {"a": 1, "b": 0}}
RANKS = {"q": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}}


def about_ranks(lines: list[str]) -> list[str]:
    return [line for line in lines if "ranks" in line]


def test_scores_that_count_down_look_like_ranks() -> None:
    notes = rp.evaluate(QRELS, RANKS, "RR").notes
    assert notes == ("the scores of run look like ranks: ties cannot be seen in them",)


def test_one_sentence_names_all_runs_that_look_like_ranks() -> None:
    runs: Any = dict.fromkeys(("first", "second", "third"), RANKS)
    sentence = "the scores of first, second, third look like ranks: ties cannot be seen in them"
    evaluations = rp.evaluate(QRELS, runs, "RR")
    assert about_ranks(evaluations.warnings) == [sentence]
    assert about_ranks(rp.compare(QRELS, runs, "RR").warnings) == [sentence]
    assert about_ranks(list(rp.leaderboard(QRELS, runs, "RR").warnings)) == [sentence]
    many: Any = {f"run {number}": RANKS for number in range(6)}
    (line,) = about_ranks(rp.evaluate(QRELS, many, "RR").warnings)
    assert line.startswith("the scores of run 0, run 1, run 2 and 3 more look like ranks")
