"""Ties of many documents, whose orders cannot be enumerated one by one."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import oracles
import pytest

import rankproof as rp
from rankproof.measures import average_precision, expected_reciprocal_rank, interpolated_precision

CASES = 150  # 10,000 take a few minutes


def draws(counts: list[int], drawn: int) -> list[tuple[int, list[int]]]:
    """Every way in which the drawn documents fall on the kinds, and how many orders have it."""
    if len(counts) == 1:
        return [(math.comb(counts[0], drawn), [drawn])]
    return [
        (math.comb(counts[0], first) * ways, [first, *others])
        for first in range(min(counts[0], drawn) + 1)
        for ways, others in draws(counts[1:], drawn - first)
        if ways
    ]


def test_udcg_is_that_of_every_draw_from_the_tie_at_the_cutoff() -> None:
    rng = Random(1)
    for _ in range(CASES):
        counts = [rng.choice([0, 1, rng.randint(0, 6), rng.randint(0, 14)]) for _ in range(4)]
        size = sum(counts)
        if size < 2:
            continue
        before, drawn = [rng.choice([5, 3, 2, 1]) for _ in range(rng.randint(0, 3))], 0
        drawn = rng.randint(1, size)
        penalty = rng.choice([0.0, 1 / 3, 0.7, 1.0])
        worth = {5: 1.0, 3: -penalty * 2 / 3, 2: -penalty / 3, 1: 0.0}
        tied = [grade for grade, count in zip(worth, counts, strict=True) for _ in range(count)]
        rng.shuffle(tied)
        k = len(before) + drawn
        measure = rp.UDCG(penalty=penalty) @ k
        scores = [float(len(before) - i) for i in range(len(before))] + [0.0] * size
        found = rp.evaluate_arrays([scores], [before + tied], [measure])[measure]
        total = mean = square = 0.0
        for ways, taken in draws(counts, drawn):
            help_ = sum(map(worth.__getitem__, before))
            help_ += sum(n * w for n, w in zip(taken, worth.values(), strict=True))
            value = 1 / (1 + math.exp(-help_ / k))
            total, mean, square = total + ways, mean + ways * value, square + ways * value**2
        mean, square = mean / total, square / total
        assert found.expected == pytest.approx(mean, rel=0, abs=1e-13), (counts, drawn)
        assert found.std is not None
        assert found.std**2 == pytest.approx(square - mean**2, rel=0, abs=1e-13), (counts, drawn)


def test_udcg_of_a_tie_of_a_million_documents_has_a_mean() -> None:
    grades = [5, 3, 2, 1] * 250_000
    found = rp.evaluate_arrays([[1.0] * len(grades)], [grades], "UDCG@300000")["UDCG@300000"]
    center = 1 / (1 + math.exp(-(0.25 - 0.25 / 3)))
    assert found.expected == pytest.approx(center, abs=1e-6)
    assert found.std == pytest.approx(0.0, abs=1e-3)
    assert found.min < found.expected < found.max


# --------------------------------------------------------------------- expected reciprocal rank


def survival_of_every_draw(counts: dict[int, int], top: int) -> list[Fraction]:
    """For each t, the mean product of 1 − stop over every set of t documents."""
    sums = [Fraction(1)]
    for grade, count in counts.items():
        passing = 1 - Fraction(2**grade - 1, 2**top)
        for _ in range(count):
            longer = [Fraction(0), *sums]
            sums = [a + passing * b for a, b in zip([*sums, Fraction(0)], longer, strict=True)]
    size = len(sums) - 1
    return [total / math.comb(size, t) for t, total in enumerate(sums)]


@pytest.mark.parametrize("seed", range(20))
def test_err_of_a_long_tie_is_that_of_every_set_of_documents_above(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected_reciprocal_rank, "_CELLS", 0)
    rng = Random(seed)
    top = rng.choice([1, 3, 50])
    counts = {grade: rng.randint(0, 40) for grade in {0, 1, rng.randint(1, top), top}}
    size = sum(counts.values())
    tied = [grade for grade, count in counts.items() for _ in range(count)]
    k = rng.randint(1, size + 5)
    mean = survival_of_every_draw(counts, top)
    wanted = sum((mean[t - 1] - mean[t]) / t for t in range(1, min(k, size) + 1))
    measure = rp.ERR(max=top) @ k
    found = rp.evaluate_arrays([[0.0] * size], [tied], [measure])[measure]
    assert found.expected == pytest.approx(float(wanted), rel=1e-12, abs=1e-14)


# ------------------------------------------------------------------------------ a sample of orders


def test_expectations_with_too_many_orders_are_sampled_and_state_their_error() -> None:
    grades = [1] * 200 + [0] * 800
    result = rp.evaluate_arrays([[0.0] * 1_000, [2.0, 1.0]], [grades, [1, 1]], ["AP11", "AP"])
    assert result["AP"].sampled is None, "no other measure is affected"
    summary = result["AP11"]
    assert summary.sampled is not None
    assert (summary.sampled.queries, summary.sampled.orders) == (1, 1_000)
    assert 0 < summary.sampled.error < 0.002
    sampled: Any = summary.to_dict()["sampled"]
    assert sampled["error"] == summary.sampled.error
    assert "sampled" not in result["AP"].to_dict()
    assert any(
        "AP11 of arrays: estimated from 1,000 random orders of 1 query" in n for n in result.notes
    )
    # The second query alone is exact.
    assert result.per_query.filter(measure="AP11", query="1")["expected"].to_list() == [1.0]


@pytest.mark.parametrize("spec", ["AP11", "IPrec@0.2", "IPrec@0.5", "GMAP"])
def test_sampled_expectations_agree_with_exact_ones(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(3)
    rows = [[rng.choice([0, 0, 0, 1, 2]) for _ in range(9)] for _ in range(60)]
    scores = [[float(rng.randint(0, 2)) for _ in row] for row in rows]
    exact = rp.evaluate_arrays(scores, rows, [spec])[spec]
    assert exact.sampled is None
    monkeypatch.setattr(average_precision, "_QUERY_STEPS", 0)
    monkeypatch.setattr(interpolated_precision, "_QUERY_STEPS", 0)
    found = rp.evaluate_arrays(scores, rows, [spec])[spec]
    assert found.sampled is not None
    assert abs(found.expected - exact.expected) < 3.5 * found.sampled.error
    assert found.sampled.error < 0.01
    assert (found.min, found.max) == (exact.min, exact.max)
    if exact.std is not None:
        assert found.std == pytest.approx(exact.std, rel=0.05)


def test_a_sample_depends_on_nothing_but_the_query_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpolated_precision, "_QUERY_STEPS", 0)
    grades = [[1, 0, 0, 1, 0], [0, 1, 0, 0, 1, 1], [1, 0, 0, 1, 0]]
    together = rp.evaluate_arrays([[1.0] * len(row) for row in grades], grades, "IPrec@0.5")
    values = together.per_query["expected"].to_list()
    for row, value in zip(grades, values, strict=True):
        alone = rp.evaluate_arrays([[1.0] * len(row)], [sorted(row)], "IPrec@0.5")
        assert alone["IPrec@0.5"].expected == value
    sampling = together.outcomes[rp.parse("IPrec@0.5")].sampling
    assert sampling is not None
    a, b, c = sampling.error.tolist()
    assert a == c, "queries that are alike have the same orders"
    error = together["IPrec@0.5"].sampled
    assert error is not None
    assert error.error == pytest.approx(math.hypot(2 * a, b) / 3)


# ------------------------------------------------------------------------ geometric mean of AP


def geometric_mean_by_enumeration(rows: list[tuple[list[float], list[int]]]) -> tuple[float, float]:
    by_query = [
        [oracles.geometric(order, grades, None, 1) for order in orders]
        for scores, grades in rows
        for orders in [list(oracles.enumerate_orderings(scores, grades))]
    ]
    values = [math.prod(values) ** (1 / len(rows)) for values in product(*by_query)]
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(max(0.0, math.fsum(v * v for v in values) / len(values) - mean**2))


def test_gmap_is_the_mean_over_the_orders_of_all_queries_together() -> None:
    rng = Random(5)
    for _ in range(CASES):
        rows = []
        for _ in range(rng.randint(1, 3)):
            grades = [rng.choice([0, 0, 1]) for _ in range(rng.randint(1, 6))]
            grades[rng.randrange(len(grades))] = 1
            rows.append(([float(rng.randint(0, 2)) for _ in grades], grades))
        scores = [row[0] for row in rows]
        found = rp.evaluate_arrays(scores, [row[1] for row in rows], "GMAP")["GMAP"]
        mean, deviation = geometric_mean_by_enumeration(rows)
        assert found.expected == pytest.approx(mean, rel=1e-11), rows
        assert found.std == pytest.approx(deviation, abs=1e-7), rows
