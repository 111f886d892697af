"""Intervals, bounds and families for queries that share a source, against their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest
from scipy import stats

from rankproof.foundation.arrays import Array, Float, Int
from rankproof.statistics import family, randomization
from rankproof.statistics.groups import means_of
from rankproof.statistics.intervals import (
    difference_intervals,
    few_changes_bound,
    mean_intervals,
    queries_needed,
    queries_needed_range,
    sequential_interval,
)
from rankproof.statistics.labels import AHEAD, EQUAL, UNDECIDED, difference_labels
from rankproof.statistics.ranks import rank_intervals, ranks_of
from rankproof.statistics.resampling import first_of_permutation, resampled_means
from rankproof.statistics.two_phase import two_phase_difference


def correlated(generator: np.random.Generator, rows: int, groups: Int, correlation: float) -> Float:
    """Standard normal values (rows, Q), correlated within each group."""
    shared = generator.normal(size=(rows, int(groups.max()) + 1))[:, groups]
    single = generator.normal(size=(rows, len(groups)))
    return np.asarray(math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * single)


def covers(ends: Float, truth: float) -> float:
    known = ~np.isnan(ends[:, 0])
    return float(((ends[:, 0] <= truth) & (truth <= ends[:, 1]))[known].mean())


# ------------------------------------------------------------------------------- one comparison


def test_the_error_of_grouped_queries_is_cr2_with_bell_and_mccaffreys_degrees() -> None:
    rng = np.random.default_rng(1)
    groups = np.array([7, 7, 7, 3, 3, 9, 1, 1, 1, 1])
    values = rng.normal(size=(3, 10))
    names = np.unique(groups)
    indicator = (groups[None] == names[:, None]).astype(float)
    m, n = indicator.sum(axis=1), 10.0
    a = 1 / np.sqrt(1 - m / n)
    p = np.outer(a, a) * (np.diag(m) - np.outer(m, m) / n) / n**2
    s = (values - values.mean(axis=1, keepdims=True)) @ indicator.T
    means = means_of(values, groups)
    assert means.error**2 == pytest.approx((a**2 * s**2).sum(axis=1) / n**2)
    assert means.df == pytest.approx(np.full(3, np.trace(p) ** 2 / np.trace(p @ p)))
    assert (means.units == 4).all()
    undefined = np.insert(values, 4, np.nan, axis=1)
    again = means_of(undefined, np.insert(groups, 4, 100))
    assert again.error == pytest.approx(means.error), "a query without a value has no group"
    assert again.df == pytest.approx(means.df)


def test_one_query_in_each_group_changes_no_bit() -> None:
    rng = np.random.default_rng(2)
    d = np.round(rng.normal(0.03, 0.2, (40, 31)), 2) * (rng.random((40, 31)) < 0.6)
    d[3, 5] = np.nan
    groups = rng.permutation(31) * 3
    assert (means_of(d, groups).df == means_of(d).df).all()
    for single, grouped in (
        (difference_intervals(d, 1.0), difference_intervals(d, 1.0, groups)),
        (mean_intervals(np.abs(d)), mean_intervals(np.abs(d), groups=groups)),
        (randomization.randomization_test(d)[0], randomization.randomization_test(d, groups)[0]),
        (randomization.t_test(d), randomization.t_test(d, groups)),
        (resampled_means(d[:3].T, 0, 50), resampled_means(d[:3].T, 0, 50, groups)),
    ):
        assert np.array_equal(single, grouped, equal_nan=True)
    first, second = np.triu_indices(5, 1)
    values = [np.nan_to_num(d[:5])]
    (alone,) = family.critical_values(values, first, second)
    (grouped,) = family.critical_values(values, first, second, groups)
    assert np.array_equal(alone, grouped)
    assert (alone > 2).all()
    few = np.where(np.arange(31) < 4, d[0], 0.0)
    assert few_changes_bound(few) == few_changes_bound(few, groups)


@pytest.mark.parametrize(("sources", "each", "correlation"), [(10, 40, 0.1), (20, 10, 0.3)])
def test_questions_that_share_sources_are_covered_where_students_interval_is_not(
    sources: int, each: int, correlation: float
) -> None:
    groups = np.repeat(np.arange(sources), each)
    d = 0.1 * correlated(np.random.default_rng(3), 3_000, groups, correlation)
    assert covers(difference_intervals(d, 1.0), 0.0) < 0.75
    assert covers(difference_intervals(d, 1.0, groups), 0.0) > 0.935
    assert (randomization.t_test(d, groups) < 0.05).mean() < 0.065
    values = 1 / (1 + np.exp(-2 * 10 * d - 2))  # a skewed measure from 0 to 1
    truth = float(values.mean())
    assert covers(mean_intervals(values, groups=groups), truth) > 0.92


def test_sign_flips_turn_whole_groups() -> None:
    groups = np.array([0, 0, 1, 1, 2, 3, 4, 4, 4, 5])
    d = np.array([[0.3, 0.1, -0.1, 0.2, 0.4, 0.0, 0.1, 0.1, 0.2, -0.2]])
    sums = np.array([d[0, groups == g].sum() for g in range(6)])
    flips = np.array(list(product((1, -1), repeat=6)))
    exact = np.mean(np.abs(flips @ sums) >= abs(sums.sum()) - 1e-9)
    p, is_exact = randomization.randomization_test(d, groups)
    assert is_exact.all()
    assert p[0] == pytest.approx(exact)
    cancels = np.where(groups == 0, np.array([0.1, -0.1] + [0] * 8), 0.0)[None]
    assert randomization.randomization_test(cancels, groups)[0][0] == 1.0


def test_few_changes_are_bounded_by_the_share_of_groups_that_could_change() -> None:
    d = np.zeros(40)
    d[[0, 3, 8]] = (0.5, -0.2, 0.1)
    groups = np.repeat(np.arange(20), 2)
    alone = stats.binomtest(3, 40).proportion_ci(0.95, "exact").high * 0.5
    assert few_changes_bound(d) == pytest.approx((-alone, alone))
    shared = stats.binomtest(3, 20).proportion_ci(0.95, "exact").high * 0.25
    assert few_changes_bound(d, groups) == pytest.approx((-shared, shared))
    assert few_changes_bound(np.zeros(5)) == (0.0, 0.0)
    assert math.isnan(few_changes_bound(np.ones(6))[0])
    assert few_changes_bound(np.ones(6), np.repeat(np.arange(3), 2)) == (-1.0, 1.0)
    ends = difference_intervals(np.where(np.arange(40) < 9, 0.1, d)[None], 1.0, groups)
    assert np.isnan(ends).all(), "nine queries of five groups differ"


def test_a_skewed_mean_is_covered_on_the_logit_scale() -> None:
    """Student's interval covers .83 of samples of six from Beta(.3, 3)."""
    drawn = np.random.default_rng(4).beta(0.3, 3.0, (8_000, 6))
    ends = mean_intervals(drawn)
    assert covers(ends, 0.3 / 3.3) > 0.895
    assert ((ends > 0.0) & (ends < 1.0)).all()
    doubled = mean_intervals(2 * drawn, 2.0)
    assert doubled == pytest.approx(2 * ends)


@pytest.mark.parametrize("margin", [0.0, 0.02])
def test_more_queries_needed_are_the_least_and_the_most_over_the_interval(margin: float) -> None:
    deviation, share, n = np.array(0.2), np.array(0.8), np.array(50)
    for low, high in ((0.01, 0.09), (-0.05, -0.02), (-0.015, 0.03), (-0.2, -0.001)):
        values = np.append(np.linspace(low, high, 2_001), np.clip(-margin / 2, low, high))
        distance = np.maximum(values + margin, -values) if margin else np.abs(values)
        needed = queries_needed(distance, deviation, share)
        fewest, most = queries_needed_range(np.array([low, high]), deviation, share, n, margin)
        assert fewest == max(needed.min() - 50, 1)
        assert most == (math.inf if math.isinf(needed.max()) else max(needed.max() - 50, 1))


def test_a_sequential_interval_holds_at_every_look() -> None:
    rng = np.random.default_rng(5)
    missed = student = 0
    rounds, planned = 300, 100
    t = {n: float(stats.t.ppf(0.975, n - 1)) for n in range(8, planned + 1, 4)}
    for _ in range(rounds):
        d = rng.normal(0, 0.3, planned)
        ends = {n: sequential_interval(d[:n], planned) for n in t}
        missed += any(not low <= 0 <= high for low, high in ends.values())
        student += any(abs(d[:n].mean()) > t[n] * stats.sem(d[:n]) for n in t)
    assert missed / rounds <= 0.05
    assert student / rounds > 0.15
    assert math.isnan(sequential_interval(d[:7], planned)[0])
    assert math.isnan(sequential_interval(np.where(np.arange(20) < 5, d[:20], 0.0), planned)[0])


def test_samples_of_queries_are_nested() -> None:
    ten, twenty = (set(first_of_permutation(300, n, 4).tolist()) for n in (10, 20))
    assert ten < twenty
    assert len(twenty) == 20


# ------------------------------------------------------------------------------------- families


def t_by_definition(d: Float, groups: Int, times: Array) -> list[float]:
    """|d̄* − d̄|/max(se*, .6·se) of each resample of groups, in plain loops."""
    known = ~np.isnan(d)
    names = np.unique(groups)
    sums = np.array([np.nansum(d[groups == g]) for g in names])
    sizes = np.array([known[groups == g].sum() for g in names])
    units = (sizes > 0).sum()

    def mean_and_error(row: Array) -> tuple[float, float]:
        n = float(row @ sizes)
        mean = float(row @ sums) / n
        return mean, math.sqrt(row @ (sums - sizes * mean) ** 2 * units / (units - 1)) / n

    mean, error = mean_and_error(np.ones(len(names)))
    return [
        abs(drawn - mean) / max(spread, 0.6 * error) for drawn, spread in map(mean_and_error, times)
    ]


@pytest.mark.parametrize("grouped", [False, True])
def test_critical_values_step_down_from_the_largest_studentized_difference(
    grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(6)
    groups = np.array([0, 0, 1, 2, 2, 2, 3, 4, 5, 6, 7, 7]) if grouped else np.arange(12)
    units = len(np.unique(groups))
    measures = [rng.random((4, 12)), rng.random((4, 12))]
    measures[0][0] += 0.9  # far from the others: claimed at once
    measures[0][1, 3] = np.nan
    measures[1][3] = measures[1][2]  # a copy never differs
    times = rng.multinomial(units, np.ones(units) / units, 400)

    def draws(count: int, seed: int, resamples: int) -> Iterator[Array]:
        yield times[:150].astype(float)
        yield times[150:].astype(float)

    monkeypatch.setattr(family, "draw_counts", draws)
    monkeypatch.setattr(family, "_STEPS", 100)
    first, second = np.triu_indices(4, 1)
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    members = [(m, p) for m in range(2) for p in range(6) if (m, p) != (1, 5)]
    d = {(m, p): measures[m][pairs[p][0]] - measures[m][pairs[p][1]] for m, p in members}
    means = {key: means_of(row[None], groups) for key, row in d.items()}
    t = {key: float(abs(m.mean / m.error)[0]) for key, m in means.items()}
    drawn = {key: t_by_definition(row, groups, times) for key, row in d.items()}
    expected: dict[tuple[int, int], float] = {}
    remaining = sorted(members, key=lambda key: -t[key])
    while remaining:
        largest = np.max([drawn[key] for key in remaining], axis=0)
        limit = float(np.quantile(largest, 0.95, method="higher"))
        claimed = t[remaining[0]] > limit
        expected |= dict.fromkeys(remaining[:1] if claimed else remaining, limit)
        remaining = remaining[1:] if claimed else []
    values = family.critical_values(measures, first, second, groups)
    assert {key: float(values[key[0]][key[1]]) for key in members} == pytest.approx(expected)
    assert values[1][5] == pytest.approx(max(expected.values()))
    assert len({round(limit, 9) for limit in expected.values()}) > 2


def test_the_best_row_is_chosen_in_each_resample_and_worse_ones_step_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(13)
    values = rng.random((4, 15))
    values[3] *= 0.1
    times = rng.multinomial(15, np.ones(15) / 15, 300)

    def draws(count: int, seed: int, resamples: int) -> Iterator[Array]:
        yield times.astype(float)

    monkeypatch.setattr(family, "draw_counts", draws)

    def limit(rows: list[int]) -> float:
        centered = values[rows] - values[rows].mean(axis=1, keepdims=True)
        largest = []
        for row in times:
            best = int((centered @ row).argmax())
            others = [centered[best] - c for at, c in enumerate(centered) if at != best]
            largest.append(max(t_by_definition(d, np.arange(15), row[None])[0] for d in others))
        return float(np.quantile(largest, 0.95, method="higher"))

    best = int(values.mean(axis=1).argmax())
    critical = family.critical_values_of_best(values)
    assert critical[best] == 0.0
    assert critical[3] == pytest.approx(limit([0, 1, 2, 3]))
    others = [row for row in range(3) if row != best]
    assert critical[others] == pytest.approx(limit([0, 1, 2]))


def test_one_difference_is_no_family_and_its_interval_is_that_of_a_single_one() -> None:
    values = np.random.default_rng(7).random((3, 20))
    values[2] = values[1]
    assert family.critical_values([values[:2]], np.array([0]), np.array([1])) == [0.0]
    assert (family.critical_values_of_best(values[:2]) == 0.0).all()
    d = (values[0] - values[1])[None]
    assert np.array_equal(difference_intervals(d, 1.0, critical=0.0), difference_intervals(d, 1.0))
    wider = difference_intervals(d, 1.0, critical=4.0)[0]
    half = 4.0 * d.std(ddof=1) / math.sqrt(20)
    assert wider == pytest.approx((d.mean() - half, d.mean() + half))


@pytest.mark.parametrize("grouped", [False, True])
def test_families_of_equal_runs_rarely_have_a_false_claim(grouped: bool) -> None:
    rng = np.random.default_rng(8)
    groups = np.arange(40) // 2 if grouped else None
    first, second = np.triu_indices(6, 1)
    false = alone = 0
    rounds = 150
    for _ in range(rounds):
        noise = correlated(rng, 6, np.arange(40) if groups is None else groups, 0.4)
        values = 0.5 + 0.1 * rng.normal(size=40) + 0.1 * noise
        (critical,) = family.critical_values([values], first, second, groups)
        d = values[first] - values[second]
        for counted, level in ((False, critical), (True, np.zeros(15))):
            ends = difference_intervals(d, 1.0, groups, level)
            claim = bool(((ends[:, 0] > 0) | (ends[:, 1] < 0)).any())
            alone += claim and counted
            false += claim and not counted
    assert false / rounds <= 0.08
    assert alone / rounds > 0.2


def test_a_near_copy_and_a_run_of_zeros_hardly_change_the_critical_values() -> None:
    rng = np.random.default_rng(9)
    values = np.clip(rng.normal(0.5, 0.2, 40) + rng.normal(0, 0.15, (6, 40)), 0, 1)
    copy = values[0].copy()
    copy[:6] += 0.01
    first, second = np.triu_indices(6, 1)
    (alone,) = family.critical_values([values], first, second)
    for extra in (np.zeros(40), copy):
        more = np.concatenate([values, extra[None]])
        a, b = np.triu_indices(7, 1)
        (critical,) = family.critical_values([more], a, b)
        assert (critical[b < 6] < 1.1 * alone).all()


# ---------------------------------------------------------------------------------------- ranks


def test_ranks_are_one_more_than_the_number_of_larger_means() -> None:
    means = np.round(np.random.default_rng(10).random((50, 7)), 1)
    means[:, 3] = means[:, 0] + 1e-15
    expected = 1 + (means[:, None, :] > means[:, :, None] + 1e-12).sum(axis=2)
    assert np.array_equal(ranks_of(means), expected)


@pytest.mark.parametrize("grouped", [False, True])
def test_rank_intervals_cover_the_true_ranks(grouped: bool) -> None:
    rng = np.random.default_rng(11)
    groups = np.arange(60) // 2 if grouped else None
    truth = np.linspace(0.5, 0.56, 8)
    hits = []
    for seed in range(60):
        noise = rng.normal(size=(8, 60)) if groups is None else correlated(rng, 8, groups, 0.5)
        low, high = rank_intervals(truth[:, None] + 0.15 * noise, groups, seed)
        hits += ((low <= np.arange(8, 0, -1)) & (np.arange(8, 0, -1) <= high)).tolist()
    assert np.mean(hits) > 0.9


# ------------------------------------------------------------------------------------ annotators


@pytest.mark.parametrize("sources", [12, 40])
def test_annotators_differences_with_a_judge_cover_within_groups(sources: int) -> None:
    rng = np.random.default_rng(12)
    groups = np.arange(200) % sources
    narrower, hits = [], []
    for _ in range(300):
        y = 0.2 * correlated(rng, 1, groups, 0.2)[0]
        judge = 0.1 + y + 0.12 * correlated(rng, 1, groups, 0.2)[0]
        labelled = rng.permutation(200) < 40
        estimate = two_phase_difference(judge, np.where(labelled, y, np.nan), 1.0, groups)
        hits.append(estimate.ci[0] <= 0 <= estimate.ci[1])
        narrower.append(np.diff(estimate.ci)[0] < np.diff(estimate.people_ci)[0])
    assert np.mean(hits) > 0.91
    assert np.mean(narrower) > 0.7


EQUALS: dict[str, Callable[[np.random.Generator, int, int], Float]] = {
    "0 or 1": lambda rng, c, q: (rng.random((c, q)) < 0.5).astype(np.float64),
    "graded": lambda rng, c, q: rng.binomial(4, rng.beta(0.7, 0.5, q), (c, q)) / 4,
    "continuous": lambda rng, c, q: rng.random((c, q)) + rng.random(q),
}


def labels_against(chosen: int, values: Float) -> Int:
    """The labels of one row of a family against every row, itself included."""
    critical = family.critical_values_of_best(values)
    return difference_labels(values[chosen] - values, 1.0, None, critical)


@pytest.mark.parametrize("kind", EQUALS)
@pytest.mark.parametrize(("queries", "configurations"), [(30, 20), (60, 5), (300, 2)])
def test_the_best_of_equals_seldom_seems_ahead_of_another(
    kind: str, queries: int, configurations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(family, "JOINT_RESAMPLES", 500)
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(300):
        values = EQUALS[kind](rng, configurations, queries)
        wrong += AHEAD in labels_against(int(values.mean(axis=1).argmax()), values)
    assert wrong <= 24  # 5% of 300 is 15; more than 24 has a chance of 1 in 100


def test_the_chosen_row_is_ahead_of_what_differs_and_of_nothing_that_few_queries_differ_on() -> (
    None
):
    rng = np.random.default_rng(4)
    chosen = rng.random(40)
    few = chosen.copy()
    few[:5] -= 0.5
    rows = np.stack([chosen, chosen - 0.3 + 0.05 * rng.normal(size=40), few, chosen, chosen - 0.25])
    assert labels_against(0, rows).tolist() == [EQUAL, AHEAD, UNDECIDED, EQUAL, AHEAD]
