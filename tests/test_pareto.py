"""The front against the literal definition."""

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
def test_the_front_is_what_no_other_dominates(points: list[Point]) -> None:
    columns = [[p[i] for p in points] for i in range(3)]
    wanted = [not any(dominates(other, mine) for other in points) for mine in points]
    assert pareto_front(*columns).tolist() == wanted


def test_a_front_of_all_rows_is_found_without_setting_each_against_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs = []
    dominate = pareto._dominate

    def counted(rows: Float, others: Float) -> Bool:
        pairs.append(len(others))
        return dominate(rows, others)

    monkeypatch.setattr(pareto, "_dominate", counted)
    size = 5_000
    cost, latency = np.random.default_rng(0).random((2, size))
    assert pareto_front(cost, latency, cost + latency).all()
    assert sum(pairs) < 150 * size


def test_a_long_table_is_compared_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    cost, latency, quality = rng.integers(0, 30, (3, 500)).astype(float)
    whole = pareto_front(cost, latency, quality)
    monkeypatch.setattr(pareto, "_PAIRS", 100)
    assert (pareto_front(cost, latency, quality) == whole).all()
    assert 0 < whole.sum() < 500


LATER = st.sampled_from((0.0, 0.5, 3.0))


@given(
    points=st.lists(
        st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS, LATER, LATER, st.booleans()), max_size=9
    )
)
def test_noise_neither_dominates_nor_saves(points: list[tuple[float, ...]]) -> None:
    """cost, latency, quality, memory, jitter, half an interval, whether over a network."""

    def beats(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
        slack = max(a[4], b[4], 2.0 if a[6] and b[6] else 0.0)
        no_worse = a[0] <= b[0] and a[3] <= b[3] and a[2] >= b[2] and a[1] <= b[1] + slack
        told = a[2] - a[5] > b[2] + b[5]
        return no_worse and (a[0] < b[0] or a[3] < b[3] or a[1] < b[1] - slack or told)

    cost, latency, quality, memory, jitter, half, far = (
        np.array([p[i] for p in points], np.float64) for i in range(7)
    )
    found = pareto_front(
        *(cost, latency, quality),
        memory=memory,
        low=quality - half,
        high=quality + half,
        jitter=jitter,
        among_network=np.where(far > 0, np.maximum(jitter, 2.0), 0.0),
    )
    wanted = [not any(beats(a, b) for a in points) for b in points]
    assert found.tolist() == wanted
    assert not points or any(wanted)


def test_equals_are_kept() -> None:
    assert pareto_front([1, 1, 2], [1, 1, 1], [1, 1, 1]).tolist() == [True, True, False]
    assert pareto_front([], [], []).tolist() == []


def test_what_is_not_a_number_is_refused() -> None:
    with pytest.raises(rp.InputError, match="row 2: latency is not a number"):
        pareto_front([1, 1], [1, float("nan")], [1, 1])
    with pytest.raises(rp.InputError, match="columns of the same length"):
        pareto_front([1, 1], [1], [1, 1])
