"""The Pareto front against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankproof as rp
from rankproof.foundation.arrays import Bool, Float
from rankproof.tradeoffs import pareto
from rankproof.tradeoffs.pareto import pareto_front

Point = tuple[float, float, float]


def dominates(a: Point, b: Point) -> bool:
    no_worse = a[0] <= b[0] and a[1] <= b[1] and a[2] >= b[2]
    return no_worse and (a[0] < b[0] or a[1] < b[1] or a[2] > b[2])


NUMBERS = st.sampled_from((0.0, 0.5, 1.0, 2.0))


@given(points=st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=12))
def test_the_front_holds_what_no_other_dominates(points: list[Point]) -> None:
    columns = [[p[i] for p in points] for i in range(3)]
    expected = [not any(dominates(other, point) for other in points) for point in points]
    assert pareto_front(*columns).tolist() == expected


def test_a_front_of_all_rows_is_found_without_comparing_every_pair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared_pairs = []
    dominates = pareto._dominates

    def count_pairs(rows: Float, others: Float) -> Bool:
        compared_pairs.append(len(others))
        return dominates(rows, others)

    monkeypatch.setattr(pareto, "_dominates", count_pairs)
    size = 5_000
    cost, latency = np.random.default_rng(0).random((2, size))
    assert pareto_front(cost, latency, cost + latency).all()
    assert sum(compared_pairs) < 150 * size


def test_a_long_table_is_compared_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    cost, latency, quality = rng.integers(0, 30, (3, 500)).astype(float)
    whole = pareto_front(cost, latency, quality)
    monkeypatch.setattr(pareto, "_PAIRS", 100)
    assert (pareto_front(cost, latency, quality) == whole).all()
    assert 0 < whole.sum() < 500


NOISE = st.sampled_from((0.0, 0.5, 3.0))


@given(
    points=st.lists(
        st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NOISE, NOISE, st.booleans()), max_size=9
    )
)
def test_differences_within_the_noise_do_not_dominate(points: list[tuple[float, ...]]) -> None:
    """Points are cost, latency, quality, memory, jitter, half an interval, is over a network."""

    def clearly_dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
        pair_jitter = max(a[4], b[4], 2.0 if a[6] and b[6] else 0.0)
        no_worse = a[0] <= b[0] and a[3] <= b[3] and a[2] >= b[2] and a[1] <= b[1] + pair_jitter
        better = a[2] - a[5] > b[2] + b[5]
        return no_worse and (a[0] < b[0] or a[3] < b[3] or a[1] < b[1] - pair_jitter or better)

    cost, latency, quality, memory, jitter, half_interval, remote = (
        np.array([p[i] for p in points], np.float64) for i in range(7)
    )
    front = pareto_front(
        *(cost, latency, quality),
        memory=memory,
        low=quality - half_interval,
        high=quality + half_interval,
        jitter=jitter,
        among_network=np.where(remote > 0, np.maximum(jitter, 2.0), 0.0),
    )
    expected = [not any(clearly_dominates(a, b) for a in points) for b in points]
    assert front.tolist() == expected
    assert not points or any(expected)


def test_equal_configurations_are_all_on_the_front() -> None:
    assert pareto_front([1, 1, 2], [1, 1, 1], [1, 1, 1]).tolist() == [True, True, False]
    assert pareto_front([], [], []).tolist() == []


def test_missing_numbers_and_unequal_lengths_are_refused() -> None:
    with pytest.raises(rp.InputError, match="row 2: latency is not a number"):
        pareto_front([1, 1], [1, float("nan")], [1, 1])
    with pytest.raises(rp.InputError, match="columns of the same length"):
        pareto_front([1, 1], [1], [1, 1])
