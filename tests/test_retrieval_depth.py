"""Dynamic K: what a reranker's doubt is, and the threshold that is learned from it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankproof as rp
from rankproof.retrieval.depth import doubt, learn_threshold

scores = st.lists(st.integers(-50, 50).map(float), min_size=2, max_size=12)


@given(scores)
def test_doubt_is_the_entropy_of_a_softmax_of_standardized_scores(values: list[float]) -> None:
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
    weights = [math.exp((v - mean) / std) if std else 1.0 for v in values]
    shares = [w / math.fsum(weights) for w in weights]
    plain = -math.fsum(p * math.log(p) for p in shares)
    assert doubt(values) == pytest.approx(plain / math.log(len(values)), abs=1e-9)


@given(scores, st.floats(1e-6, 1e6), st.floats(-1e3, 1e3))
def test_doubt_is_the_same_on_every_scale(values: list[float], times: float, by: float) -> None:
    moved = np.array(values) * times
    assert doubt(moved) == pytest.approx(doubt(values), abs=1e-6)
    assert doubt(np.array(values) + by) == pytest.approx(doubt(values), abs=1e-6)


def test_doubt_is_small_if_one_score_stands_out() -> None:
    sharp = [0.99, *[0.01] * 49]
    assert doubt(sharp) < 0.2  # the entropy of a softmax over these is 0.995
    assert doubt([0.5] * 50) == 1.0
    assert doubt([5.0]) == 0.0
    assert doubt([1e308, 0.0, -1e308]) == pytest.approx(doubt([1.0, 0.0, -1.0]))


gains = st.lists(
    st.tuples(st.sampled_from((0.1, 0.2, 0.3)), st.sampled_from((-0.1, 0.0, 0.2, math.nan))),
    min_size=1,
    max_size=8,
)


@given(gains, st.sampled_from((0.0, 0.02, 0.1)))
def test_the_threshold_reranks_the_fewest_queries_deep_within_the_tolerated_loss(
    pilot: list[tuple[float, float]], lose: float
) -> None:
    doubts, gained = (np.array(column) for column in zip(*pilot, strict=True))
    known = ~np.isnan(gained)
    result = learn_threshold(doubts, gained, lose)

    def lost(threshold: float) -> float:
        return float(np.where(doubts > threshold, 0.0, gained)[known].sum() / known.sum())

    if not known.any():
        assert result == -math.inf
        return
    tried = [-math.inf, *sorted(set(doubts[known].tolist()))]
    fewest = max(t for t in tried if lost(t) <= lose + 1e-9)
    assert (doubts[known] > result).tolist() == (doubts[known] > fewest).tolist()


def test_invalid_scores_are_refused() -> None:
    with pytest.raises(rp.InputError, match="depth: a score that is not finite"):
        doubt([1.0, float("nan")])
    with pytest.raises(rp.InputError, match="give those of one query"):
        doubt([[1.0, 2.0]])
