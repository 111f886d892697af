"""Agreement coefficients against peers, published examples and literal definitions."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import krippendorff
import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from rankproof.arrays import Float
from rankproof.errors import InputError
from rankproof.statistics.agreement import (
    Level,
    Weights,
    agreement,
    cohen_kappa,
    confusion,
    gwet_ac,
    krippendorff_alpha,
    self_consistency,
)

N = math.nan
GRADES = (1.0, 2.0, 3.0, 4.0, 5.0)

# Twelve units and four raters, with gaps: the example of Krippendorff and of Gwet's handbook.
FOUR_RATERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, N, N, N],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, N, 3],
    [N, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, N],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, N],
]
# Two abstractors and a hundred women, from the same handbook.
ABSTRACTORS = [[13, 0, 0], [0, 20, 7], [0, 4, 56]]


def two_raters(seed: int, items: int = 60) -> tuple[Float, Float]:
    draw = np.random.default_rng(seed)
    first = draw.integers(1, 6, items).astype(float)
    second = np.clip(first + draw.integers(-1, 2, items), 1, 5).astype(float)
    return first, second


def spelled_out(table: list[list[int]]) -> tuple[list[float], list[float]]:
    cells = [(a, b) for a, row in enumerate(table) for b, n in enumerate(row) for _ in range(n)]
    return [float(a) for a, _ in cells], [float(b) for _, b in cells]


@pytest.mark.parametrize("weights", ["none", "linear", "quadratic"])
@pytest.mark.parametrize("seed", range(4))
def test_kappa_is_that_of_scikit_learn(weights: Weights, seed: int) -> None:
    first, second = two_raters(seed)
    peer = cohen_kappa_score(
        first, second, labels=GRADES, weights=None if weights == "none" else weights
    )
    found = cohen_kappa(first, second, weights, GRADES, resamples=10)
    assert found.value == pytest.approx(peer, abs=1e-12)
    binary = cohen_kappa(first >= 4, second >= 4, resamples=10)
    assert binary.value == pytest.approx(cohen_kappa_score(first >= 4, second >= 4), abs=1e-12)


def test_kappa_looks_at_items_that_both_rated() -> None:
    first, second = two_raters(9)
    gaps = second.copy()
    gaps[::3] = N
    both = ~np.isnan(gaps)
    found = cohen_kappa(first, gaps, resamples=10)
    assert found.items == both.sum()
    assert found.value == cohen_kappa(first[both], second[both], resamples=10).value


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
@pytest.mark.parametrize("seed", range(4))
def test_alpha_is_that_of_the_krippendorff_package_with_missing_ratings(
    level: Level, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    truth = draw.integers(1, 6, 40)
    ratings = np.clip(truth + draw.integers(-1, 2, (4, 40)), 1, 5).astype(float)
    ratings[draw.random((4, 40)) < 0.4] = N
    peer = krippendorff.alpha(reliability_data=ratings, level_of_measurement=level)
    assert krippendorff_alpha(ratings, level, resamples=10).value == pytest.approx(peer, abs=1e-12)


def test_alpha_of_the_published_example() -> None:
    found = krippendorff_alpha(FOUR_RATERS, "nominal", resamples=10)
    assert round(found.value, 3) == 0.743
    assert found.items == 11, "the last unit has one rating alone"


@pytest.mark.parametrize(
    ("weights", "value"),
    [("none", 0.7754441), ("linear", 0.8587391), ("quadratic", 0.9140007), ("ordinal", 0.8989398)],
)
def test_gwets_coefficients_of_the_published_example(weights: Weights, value: float) -> None:
    assert gwet_ac(FOUR_RATERS, weights, resamples=10).value == pytest.approx(value, abs=5e-8)


@pytest.mark.parametrize(
    ("weights", "ac", "kappa"),
    [
        ("none", 0.8493305, 0.7964094),
        ("linear", 0.9000227, 0.8429020),
        ("quadratic", 0.9402369, 0.8921569),
        ("ordinal", 0.9251917, 0.8721079),
    ],
)
def test_both_coefficients_of_the_published_table(
    weights: Weights, ac: float, kappa: float
) -> None:
    first, second = spelled_out(ABSTRACTORS)
    assert gwet_ac([first, second], weights, resamples=10).value == pytest.approx(ac, abs=5e-8)
    found = cohen_kappa(first, second, weights, resamples=10)
    assert found.value == pytest.approx(kappa, abs=5e-8)
    assert confusion(first, second).counts.tolist() == ABSTRACTORS


def literal_gwet(ratings: Float, levels: tuple[float, ...], weights: str) -> float:
    """Pair by pair, from the definition."""
    q = len(levels)

    def weight(a: float, b: float) -> float:
        if weights == "none":
            return float(a == b)
        if weights == "ordinal":
            d = abs(levels.index(a) - levels.index(b))
            return 1 - math.comb(d + 1, 2) / math.comb(q, 2)
        apart = abs(a - b) / (levels[-1] - levels[0])
        return 1 - apart ** (1 if weights == "linear" else 2)

    observed, shares = [], []
    for item in ratings.T:
        given = [float(x) for x in item if not math.isnan(x)]
        if len(given) >= 2:
            observed.append(np.mean([weight(a, b) for a, b in combinations(given, 2)]))
        if given:
            shares.append([given.count(level) / len(given) for level in levels])
    pi = np.mean(shares, axis=0)
    total = sum(weight(a, b) for a in levels for b in levels)
    expected = total / (q * (q - 1)) * sum(pi * (1 - pi))
    return float((np.mean(observed) - expected) / (1 - expected))


@pytest.mark.parametrize("weights", ["none", "linear", "quadratic", "ordinal"])
@pytest.mark.parametrize("seed", range(3))
def test_gwets_coefficients_agree_with_a_literal_reading(weights: Weights, seed: int) -> None:
    draw = np.random.default_rng(seed)
    ratings = draw.integers(1, 6, (3, 25)).astype(float)
    ratings[draw.random((3, 25)) < 0.3] = N
    found = gwet_ac(ratings, weights, GRADES, resamples=10)
    assert found.value == pytest.approx(literal_gwet(ratings, GRADES, weights), abs=1e-12)


def test_the_interval_is_the_percentile_bootstrap_over_items() -> None:
    first, second = two_raters(5, items=40)
    found = cohen_kappa(first, second, "quadratic", GRADES, seed=1, resamples=4000)
    draw = np.random.default_rng(2)
    sampled = []
    for _ in range(2000):
        at = draw.integers(0, 40, 40)
        sampled.append(cohen_kappa(first[at], second[at], "quadratic", GRADES, resamples=1).value)
    low, high = np.quantile(sampled, [0.025, 0.975])
    assert found.low == pytest.approx(low, abs=0.02)
    assert found.high == pytest.approx(high, abs=0.02)
    assert found.low < found.value < found.high


def test_the_seed_decides_the_interval_and_large_tables_are_drawn_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = two_raters(6)
    one, same, other = (gwet_ac([first, second], seed=seed, resamples=300) for seed in (1, 1, 2))
    assert one == same
    assert (one.value, one.low) != (other.value, other.low)
    monkeypatch.setattr("rankproof.statistics.resampling.CELLS", 1000)
    assert gwet_ac([first, second], seed=1, resamples=300) == one


SAME = [4.0] * 6


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (cohen_kappa(SAME, SAME), "one label to every item"),
        (krippendorff_alpha([SAME, SAME]), "nothing could disagree"),
        (gwet_ac([SAME, SAME]), "name the levels"),
        (cohen_kappa([1, 2, N], [N, N, 1]), "no item was rated twice"),
        (krippendorff_alpha([[1, N], [N, 2]]), "no item was rated twice"),
        (gwet_ac([[1, N], [N, 2]]), "no item was rated twice"),
        (cohen_kappa([], []), "no item was rated twice"),
        (krippendorff_alpha([]), "no item was rated twice"),
        (gwet_ac([[N, N], [N, N]]), "no item was rated twice"),
        (krippendorff_alpha([[3], [3]]), "nothing could disagree"),
    ],
)
def test_what_is_not_defined_is_nan_with_a_reason(found: Any, reason: str) -> None:
    assert math.isnan(found.value)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert reason in found.undefined
    assert found.to_dict()["value"] is None


def test_gwets_coefficient_is_defined_where_all_agree_on_a_known_scale() -> None:
    found = gwet_ac([SAME, SAME], "none", GRADES)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


def test_one_item_has_a_value_and_no_interval() -> None:
    found = cohen_kappa([1.0], [2.0])
    assert (found.value, found.items) == (0.0, 1)
    assert math.isnan(found.low)
    assert found.to_dict()["ci"] is None


def test_resamples_without_a_value_are_counted() -> None:
    found = cohen_kappa([1, 1, 1, 2], [1, 1, 1, 2], resamples=1000)
    assert found.value == 1.0
    # A resample misses the only 2 with probability (3/4)⁴.
    assert found.dropped / 1000 == pytest.approx(0.75**4, abs=0.05)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ([1, 2], [1], "raters rated 1, 2 items"),
        ([1, "x"], [1, 2], "a rating is not a number"),
        ([1, math.inf], [1, 2], "a rating is infinite"),
        ([1, 9], [1, 2], "rating 9 is none of the levels"),
    ],
)
def test_ratings_that_cannot_be_used_are_refused(first: Any, second: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        agreement(first, second)


def test_measurements_are_no_levels() -> None:
    values = np.linspace(0, 1, 300)
    with pytest.raises(InputError, match="300 different ratings; round them"):
        krippendorff_alpha([values, values], "interval")


def test_all_coefficients_of_two_raters_at_once() -> None:
    first, second = two_raters(7)
    found = agreement(first, second, resamples=50)
    names = "exact;κ;κ, linear;κ, quadratic;AC1;AC2, linear;AC2, quadratic;AC2, ordinal;"
    names += "α, nominal;α, ordinal;α, interval;κ, 4+;AC1, 4+"
    assert list(found.coefficients) == names.split(";")
    assert found.confusion.counts.sum() == 60
    assert found.coefficients["exact"].value == np.trace(found.confusion.counts) / 60
    binary = cohen_kappa_score(first >= 4, second >= 4)
    assert found.coefficients["κ, 4+"].value == pytest.approx(binary)
    assert found.to_dict()["coefficients"]["κ"]["items"] == 60


def test_self_consistency_by_its_definition() -> None:
    repeats: list[list[float]] = [[3, 4, 5, N, 2], [3, 5, 5, 1, 4], [3, 4, N, N, 3]]
    found = self_consistency(repeats, resamples=100)
    # item by item: 3 3 3; 4 5 4; 5 5; one alone; 2 4 3
    assert found.exact.value == pytest.approx((1 + 1 / 3 + 1 + 0) / 4)
    assert found.difference.value == pytest.approx((0 + 2 / 3 + 0 + 4 / 3) / 4)
    assert found.sd.value == pytest.approx(math.sqrt((0 + 1 / 3 + 0 + 1) / 4))
    assert found.exact.items == 4
    assert found.alpha.value == krippendorff_alpha(repeats, "ordinal", resamples=1).value


def test_self_consistency_of_nothing_repeated_is_undefined() -> None:
    found = self_consistency([[1, 2, 3]])
    for one in (found.exact, found.difference, found.sd, found.alpha):
        assert math.isnan(one.value)
        assert one.undefined == "no item was rated twice"
