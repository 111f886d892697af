"""The front against the literal definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankproof as rp
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


def test_a_long_table_is_compared_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    cost, latency, quality = rng.integers(0, 30, (3, 500)).astype(float)
    whole = pareto_front(cost, latency, quality)
    monkeypatch.setattr(pareto, "_CELLS", 3_000)
    assert (pareto_front(cost, latency, quality) == whole).all()
    assert 0 < whole.sum() < 500


def test_equals_are_kept() -> None:
    assert pareto_front([1, 1, 2], [1, 1, 1], [1, 1, 1]).tolist() == [True, True, False]
    assert pareto_front([], [], []).tolist() == []


def test_what_is_not_a_number_is_refused() -> None:
    with pytest.raises(rp.InputError, match="row 2: latency is not a number"):
        pareto_front([1, 1], [1, float("nan")], [1, 1])
    with pytest.raises(rp.InputError, match="columns of the same length"):
        pareto_front([1, 1], [1], [1, 1])
