"""Dynamic K: what makes a query go deep, and what that saves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankproof as rp
from rankproof.retrieval.depth import DepthSettings, choose_depth, dense_margin, entropy, savings

scores = st.lists(st.floats(-50, 50), min_size=1, max_size=12)


@given(scores)
def test_entropy_is_that_of_the_softmax_over_its_largest(values: list[float]) -> None:
    weights = [math.exp(v) for v in values]
    shares = [w / math.fsum(weights) for w in weights]
    plain = -math.fsum(p * math.log(p) for p in shares if p > 0)
    largest = math.log(len(values)) if len(values) > 1 else 1.0
    assert entropy(values) == pytest.approx(plain / largest, abs=1e-9)


@given(scores, st.floats(-1e3, 1e3))
def test_entropy_does_not_change_when_all_scores_move(values: list[float], by: float) -> None:
    assert entropy(np.array(values) + by) == pytest.approx(entropy(values), abs=1e-6)


def test_entropy_stays_defined_at_the_ends() -> None:
    assert entropy([0.3] * 7) == 1.0
    assert entropy([1e308, 0.0, -1e308]) == 0.0
    assert entropy([5.0]) == 0.0


def test_the_margin_is_from_the_best_to_the_last() -> None:
    assert dense_margin([0.75, 0.5, 0.25]) == 0.5
    assert dense_margin([0.25, 0.25]) == 0.0
    assert dense_margin([0.9]) == math.inf


def test_a_query_goes_deep_for_either_reason() -> None:
    settings = DepthSettings(start=3, deep=10, margin=0.1, entropy=0.9)
    wide, narrow = [0.9, 0.7, 0.6, 0.1], [0.9, 0.88, 0.85, 0.1]
    sure, even = [9.0, 1.0, 0.0], [1.0, 1.1, 0.9]
    assert choose_depth(settings, wide, sure) == 3
    assert choose_depth(settings, narrow, sure) == 10
    assert choose_depth(settings, wide, even) == 10
    assert choose_depth(settings, narrow) == 10
    assert choose_depth(settings, reranked=even) == 10
    assert choose_depth(settings) == 3
    assert choose_depth(settings, [], []) == 3


def test_only_the_best_scores_are_looked_at_in_whatever_order_they_come() -> None:
    settings = DepthSettings(start=2, deep=4, margin=0.1)
    assert choose_depth(settings, [0.2, 0.85, 0.1, 0.9]) == 4  # 0.9 − 0.85
    assert choose_depth(settings, [0.2, 0.9, 0.1, 0.7]) == 2


def test_thresholds_themselves_are_not_past_them() -> None:
    settings = DepthSettings(start=2, deep=4, margin=0.25, entropy=1.0)
    assert choose_depth(settings, [0.75, 0.5], [1.0, 1.0]) == 2


def test_savings_are_those_of_a_plain_count() -> None:
    settings = DepthSettings(start=2, deep=10)
    saved = savings(np.array([2, 10, 2, 2]), settings, np.array([100, 50, 10, 0]))
    assert (saved.queries, saved.deep, saved.mean_depth) == (4, 0.25, 4.0)
    assert saved.tokens == 8 * 100 + 8 * 10
    assert saved.share == pytest.approx(880 / 1600)
    assert savings(np.array([10, 10]), settings).share == 0.0
    assert savings(np.array([], np.int64), settings).queries == 0


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(rp.InputError, match=r"depth: deep \(5\) is less than start \(9\)"):
        choose_depth(DepthSettings(start=9, deep=5))
    with pytest.raises(rp.InputError, match="depth: a score that is not finite"):
        entropy([1.0, float("nan")])
    with pytest.raises(rp.InputError, match="give those of one query"):
        dense_margin([[1.0, 2.0]])
