"""Agreement coefficients against peers, published examples and literal definitions."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import krippendorff
import numpy as np
import pytest
from scipy.stats import t
from sklearn.metrics import cohen_kappa_score

from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError
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
    found = cohen_kappa(first, second, weights, GRADES)
    assert found.value == pytest.approx(peer, abs=1e-12)
    binary = cohen_kappa(first >= 4, second >= 4)
    assert binary.value == pytest.approx(cohen_kappa_score(first >= 4, second >= 4), abs=1e-12)


def test_kappa_looks_at_items_that_both_rated() -> None:
    first, second = two_raters(9)
    gaps = second.copy()
    gaps[::3] = N
    both = ~np.isnan(gaps)
    found = cohen_kappa(first, gaps)
    assert found.items == both.sum()
    assert found.value == cohen_kappa(first[both], second[both]).value


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
    assert krippendorff_alpha(ratings, level).value == pytest.approx(peer, abs=1e-12)


def test_alpha_of_the_published_example() -> None:
    found = krippendorff_alpha(FOUR_RATERS, "nominal")
    assert round(found.value, 3) == 0.743
    assert found.items == 11, "the last unit has one rating alone"


@pytest.mark.parametrize(
    ("weights", "value"),
    [("none", 0.7754441), ("linear", 0.8587391), ("quadratic", 0.9140007), ("ordinal", 0.8989398)],
)
def test_gwets_coefficients_of_the_published_example(weights: Weights, value: float) -> None:
    assert gwet_ac(FOUR_RATERS, weights).value == pytest.approx(value, abs=5e-8)


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
    assert gwet_ac([first, second], weights).value == pytest.approx(ac, abs=5e-8)
    found = cohen_kappa(first, second, weights)
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
    found = gwet_ac(ratings, weights, GRADES)
    assert found.value == pytest.approx(literal_gwet(ratings, GRADES, weights), abs=1e-12)


def test_the_interval_is_the_jackknife_over_queries_spelled_out() -> None:
    first, second = two_raters(5, items=40)
    queries = [f"q{n % 8}" for n in range(40)]
    found = cohen_kappa(first, second, "quadratic", GRADES, queries=queries)
    of = np.arange(40) % 8
    left = np.array(
        [
            np.arctanh(
                cohen_kappa(first[of != q], second[of != q], "quadratic", GRADES).value,
            )
            for q in range(8)
        ]
    )
    error = math.sqrt(7 / 8 * ((left - left.mean()) ** 2).sum())
    ends = np.arctanh(found.value) + np.array([-1, 1]) * t.ppf(0.975, 7) * error
    assert (found.low, found.high) == pytest.approx(tuple(np.tanh(ends)), abs=1e-9)
    assert (found.items, found.queries) == (40, 8)


def likes(generator: np.random.Generator, queries: int, each: int) -> tuple[Float, Float, Any]:
    """Two raters of passages; how well they agree depends on the query."""
    of = np.repeat(np.arange(queries), each)
    near = generator.beta(1.0, 1.0, queries)[of]
    first = generator.integers(1, 6, len(of)).astype(float)
    other = generator.integers(1, 6, len(of)).astype(float)
    return first, np.where(generator.random(len(of)) < near, first, other), of


def test_the_interval_over_queries_covers_where_that_over_passages_does_not() -> None:
    truth = gwet_ac(likes(np.random.default_rng(0), 20_000, 10)[:2], "quadratic", GRADES).value
    generator = np.random.default_rng(1)
    covered, by_passages = 0, 0
    for _ in range(300):
        first, second, of = likes(generator, 15, 10)
        for queries in (of.tolist(), None):
            found = gwet_ac([first, second], "quadratic", GRADES, queries=queries)
            if queries is None:
                by_passages += found.low <= truth <= found.high
            else:
                covered += found.low <= truth <= found.high
    assert 0.91 <= covered / 300 <= 0.98
    assert by_passages / 300 < 0.85


def test_few_queries_or_few_that_hold_what_is_relevant_have_no_interval() -> None:
    first, second = two_raters(6)
    few = agreement(first, second, queries=[n % 5 for n in range(60)])
    assert all(math.isnan(c.low) for c in few.coefficients.values())
    some = agreement(
        np.where(np.arange(60) < 12, 5.0, np.minimum(first, 3)),
        np.where(np.arange(60) < 12, 4.0, np.minimum(second, 3)),
        queries=[n // 4 for n in range(60)],
    ).coefficients
    assert not math.isnan(some["κ"].low)
    assert math.isnan(some["κ, 4+"].low)  # three queries hold all that is relevant
    with pytest.raises(InputError, match="3 queries of 60 items"):
        agreement(first, second, queries=["a", "b", "c"])


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


def test_where_all_agree_the_value_is_1_and_what_never_varied_has_no_interval() -> None:
    found = gwet_ac([SAME, SAME], "none", GRADES)
    assert found.value == 1.0
    assert math.isnan(found.low)
    assert found.undefined is None


def test_one_item_has_a_value_and_no_interval() -> None:
    found = cohen_kappa([1.0], [2.0])
    assert (found.value, found.items) == (0.0, 1)
    assert math.isnan(found.low)
    assert found.to_dict()["ci"] is None


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ([1, 2], [1], "raters rated 1, 2 items"),
        ([1, "x"], [1, 2], "a rating is not a number"),
        ([1, math.inf], [1, 2], "a rating is infinite"),
        ([1, 9], [1, 2], "rating 9 is not one of the levels"),
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
    found = agreement(first, second)
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
    found = self_consistency(repeats)
    # item by item: 3 3 3; 4 5 4; 5 5; one alone; 2 4 3
    assert found.exact.value == pytest.approx((1 + 1 / 3 + 1 + 0) / 4)
    assert found.difference.value == pytest.approx((0 + 2 / 3 + 0 + 4 / 3) / 4)
    assert found.sd.value == pytest.approx(math.sqrt((0 + 1 / 3 + 0 + 1) / 4))
    assert found.exact.items == 4
    assert found.alpha.value == krippendorff_alpha(repeats, "ordinal").value


def test_self_consistency_of_nothing_repeated_is_undefined() -> None:
    found = self_consistency([[1, 2, 3]])
    for one in (found.exact, found.difference, found.sd, found.alpha):
        assert math.isnan(one.value)
        assert one.undefined == "no item was rated twice"


def test_a_rater_who_always_says_the_same_has_no_interval() -> None:
    person = [1, 0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 0]
    queries = [f"q{at // 2}" for at in range(len(person))]
    dull = cohen_kappa([1] * len(person), person, queries=queries)
    assert dull.value == 0
    assert math.isnan(dull.low)  # it cannot be anything else: that is not to be sure of it
    assert math.isnan(dull.high)
