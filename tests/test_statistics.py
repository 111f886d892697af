"""Tie statistics, by hand and by a plain loop."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankproof as rp

lists = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=5)


def as_run(rows: list[list[int]]) -> dict[str, dict[str, float]]:
    return {
        f"q{q}": {f"d{d}": float(score) for d, score in enumerate(row)}
        for q, row in enumerate(rows)
    }


@given(lists, st.integers(1, 14))
def test_statistics_equal_a_plain_loop(rows: list[list[int]], k: int) -> None:
    found = rp.tie_statistics(as_run(rows), [k])
    ranked = [sorted(row, reverse=True) for row in rows]
    groups = [[len(list(g)) for _, g in groupby(row)] for row in ranked]
    distinct = [len(set(row[:k])) for row in ranked]
    (at,) = found.at
    assert at.distinct == pytest.approx(np.mean(distinct))
    assert at.group_size == pytest.approx(
        np.mean([min(k, len(r)) / n for r, n in zip(ranked, distinct, strict=True)])
    )
    assert at.crossed == pytest.approx(np.mean([len(r) > k and r[k - 1] == r[k] for r in ranked]))
    assert found.largest == max(max(g) for g in groups)
    assert found.tied == sum(max(g) > 1 for g in groups)
    total = sum(map(len, rows))
    assert found.tied_documents == pytest.approx(sum(s for g in groups for s in g if s > 1) / total)


def test_a_list_seems_cut_when_full_lists_end_in_a_tie() -> None:
    assert rp.tie_statistics(as_run([[3, 2, 1, 1], [3, 2, 1, 0], [1, 1]])).cut == 1
    assert rp.tie_statistics(as_run([[3, 2, 1, 1], [3, 2]])).cut == 0, "one odd length is no cap"
    assert rp.tie_statistics(as_run([[1] * 10])).cut == 1, "ten is a round cap"


def test_rounding_scores_makes_ties() -> None:
    run = {"q": {"a": 0.5001, "b": 0.5002, "c": 0.9}}
    assert rp.tie_statistics(run).tied == 0
    coarse = rp.tie_statistics(run, score_dtype="bfloat16")
    assert (coarse.tied, coarse.largest, coarse.score_dtype) == (1, 2, "bfloat16")


def test_cutoffs_start_at_1() -> None:
    with pytest.raises(rp.InputError, match="cutoff 0"):
        rp.tie_statistics({"q": {"a": 1.0}}, [0])
