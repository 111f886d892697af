"""People's labels of some queries and a judge's of all: what they say together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from rankproof.foundation.arrays import Float, Int
from rankproof.statistics.two_phase import two_phase

N = math.nan


def drawn(generator: np.random.Generator, total: int, n: int, noise: float) -> tuple[Float, Float]:
    """Per-query values as a measure has them, in steps, and a judge that is biased upwards."""
    truth = np.round(np.clip(generator.beta(1.6, 1.2, total), 0, 1) * 20) / 20
    judge = np.clip(0.4 + 0.5 * truth + noise * generator.standard_normal(total), 0, 1)
    people = truth.copy()
    people[generator.permutation(total)[n:]] = N
    return judge, people


@pytest.mark.parametrize(("n", "noise"), [(30, 0.2), (30, 0.1), (15, 0.15)])
def test_the_interval_covers_what_people_would_say_and_the_judge_alone_never_does(
    n: int, noise: float
) -> None:
    generator = np.random.default_rng(7)
    truth = float(np.mean(np.round(generator.beta(1.6, 1.2, 400_000) * 20) / 20))
    covered = narrower = biased = 0
    rounds = 600
    for _ in range(rounds):
        found = two_phase(*drawn(generator, 300, n, noise))
        covered += found.ci[0] <= truth <= found.ci[1]
        narrower += found.ci[1] - found.ci[0] < found.people_ci[1] - found.people_ci[0]
        biased += abs(found.judge - truth) > 0.03
    assert 0.925 <= covered / rounds <= 0.975
    assert narrower / rounds > 0.85
    assert biased / rounds > 0.95


def test_it_is_the_formula_spelled_out() -> None:
    judge, people = drawn(np.random.default_rng(3), 50, 12, 0.2)
    at = ~np.isnan(people)
    f, y = judge[at], people[at]
    slope, intercept = np.polyfit(f, y, 1)
    shift = f.mean() - judge.mean()
    theta = y.mean() - slope * shift
    error = np.sum((y - intercept - slope * f) ** 2) / 10
    variance = error * (1 / 12 - 1 / 50 + shift**2 / np.sum((f - f.mean()) ** 2))
    variance += y.var(ddof=1) / 50
    half = student.ppf(0.975, 10) * math.sqrt(variance)
    found = two_phase(judge, people)
    assert found.estimate == pytest.approx(theta, abs=1e-12)
    assert found.ci == pytest.approx((theta - half, theta + half), abs=1e-9)
    rho = np.corrcoef(f, y)[0, 1]
    assert found.rho == pytest.approx(rho, abs=1e-12)
    assert found.worth == pytest.approx(12 / (1 - rho**2 * (1 - 12 / 50)))
    assert (found.n, found.total) == (12, 50)
    assert "12 queries that people labelled, with the judge's 50, are worth" in found.words()
    assert "in fewer than one query of 4 may not be among them" in found.words()


def test_where_people_labelled_everything_the_judge_adds_nothing() -> None:
    judge, people = drawn(np.random.default_rng(4), 40, 40, 0.2)
    found = two_phase(judge, people)
    assert found.estimate == pytest.approx(people.mean(), abs=1e-12)
    assert found.worth == pytest.approx(40)
    assert found.ci == pytest.approx(
        tuple(
            people.mean()
            + np.array([-1, 1]) * student.ppf(0.975, 38) * people.std(ddof=1) / math.sqrt(40)
        )
    )


def test_a_judge_that_says_the_same_of_all_tells_nothing_and_does_no_harm() -> None:
    _, people = drawn(np.random.default_rng(5), 40, 20, 0.2)
    found = two_phase(np.full(40, 0.7), people)
    assert found.estimate == found.people
    assert math.isnan(found.rho)
    assert found.worth == 20
    assert "tells nothing" in found.words()


def test_queries_that_only_one_side_leaves_undefined_do_no_harm() -> None:
    """The judge finds nothing relevant mostly where the run is bad; people now and then."""
    generator = np.random.default_rng(11)

    def draw(total: int) -> tuple[Float, Float, Int]:
        truth = np.round(generator.beta(1.2, 1.0, total) * 10) / 10
        judge = np.clip(truth + 0.1 * generator.standard_normal(total), 0, 1)
        judge[generator.random(total) < 0.5 * (1 - truth)] = N
        people: Float = np.where(generator.random(total) < 0.15 * truth, N, truth)
        return judge, people, generator.permutation(total)

    _, everybody, _ = draw(400_000)
    target = float(np.nanmean(everybody))
    covered, rounds = 0, 600
    for _ in range(rounds):
        judge, people, order = draw(300)
        labelled = np.zeros(300, bool)
        labelled[order[:30]] = True
        found = two_phase(judge, np.where(labelled, people, N), labelled)
        covered += found.ci[0] <= target <= found.ci[1]
    assert 0.925 <= covered / rounds <= 0.975


def seldom(generator: np.random.Generator, kind: str, total: int) -> tuple[Float, Float]:
    """A judge that is right of most queries, and far off of some, always to the same side."""
    if kind == "hit or miss":
        truth = (generator.random(total) < 0.6).astype(float)
        return np.where((truth == 0) & (generator.random(total) < 0.15), 1.0, truth), truth
    if kind == "nearly all hit":
        truth = (generator.random(total) < 0.9).astype(float)
        return np.where(generator.random(total) < 0.1, 1 - truth, truth), truth
    if kind == "close, else nothing":
        truth = np.round(generator.beta(1.6, 1.2, total) * 20) / 20
        near = np.clip(truth + 0.03 * generator.standard_normal(total), 0, 1)
        return np.where(generator.random(total) < 0.05, 0.0, near), truth
    truth = np.round(generator.beta(1.6, 1.2, total) * 20) / 20
    return np.where(generator.random(total) < 0.08, 0.0, truth), truth


@pytest.mark.parametrize("n", [6, 10, 15, 30])
@pytest.mark.parametrize(
    "kind", ["hit or miss", "nearly all hit", "finds nothing", "close, else nothing"]
)
def test_a_judge_that_errs_rarely_is_used_and_its_errors_are_covered(kind: str, n: int) -> None:
    """By the formula alone .62 to .92 are covered: errors not seen count."""
    generator = np.random.default_rng(5)
    target = float(seldom(generator, kind, 400_000)[1].mean())
    told = []
    for _ in range(500):
        judge, truth = seldom(generator, kind, 300)
        found = two_phase(judge, np.where(np.arange(300) < n, truth, N))
        if not math.isnan(found.ci[0]):
            told.append(found.ci[0] <= target <= found.ci[1])
        else:
            assert truth[:n].min() == truth[:n].max()
    assert np.mean(told) >= 0.88


def test_a_judge_that_people_never_saw_err_is_used_with_the_variance_of_one_unseen_error() -> None:
    """A good judge was thrown away in a quarter of samples: those in which it never erred."""
    _, people = drawn(np.random.default_rng(6), 60, 60, 0.0)
    found = two_phase(people, np.where(np.arange(60) < 20, people, N))
    y = people[:20]
    shift = (y.mean() - people.mean()) ** 2 / np.sum((y - y.mean()) ** 2)
    variance = 2 * y.var(ddof=1) / 21 * (1 / 20 - 1 / 60 + shift) + y.var(ddof=1) / 60
    half = student.ppf(0.975, 18) * math.sqrt(variance)
    assert found.used
    assert found.estimate == pytest.approx(people.mean())
    assert (found.ci[1] - found.ci[0]) / 2 == pytest.approx(half)


def test_values_that_never_vary_have_the_binomials_interval_whatever_the_judge_says() -> None:
    judge = np.random.default_rng(1).random(40)
    found = two_phase(judge, np.where(np.arange(40) < 12, 1.0, N))
    assert found.estimate == 1.0
    assert found.ci == found.people_ci == pytest.approx((0.025 ** (1 / 12), 1.0))
    assert "never varies" in found.words()


def test_a_judge_seen_to_be_nearly_exact_is_not_taken_to_be_so_of_all() -> None:
    _, people = drawn(np.random.default_rng(6), 60, 60, 0.0)
    judge = people + 0.001 * np.random.default_rng(7).standard_normal(60)
    for n in (12, 40):
        found = two_phase(judge, np.where(np.arange(60) < n, people, N))
        assert found.used
        y, f = people[:n], judge[:n]
        floor = 2 * y.var(ddof=1) / (n + 1)
        shift = (f.mean() - judge.mean()) ** 2 / np.sum((f - f.mean()) ** 2)
        variance = floor * (1 / n - 1 / 60 + shift) + y.var(ddof=1) / 60
        half = student.ppf(0.975, n - 2) * math.sqrt(variance)
        assert (found.ci[1] - found.ci[0]) / 2 == pytest.approx(half, rel=1e-2)


def test_a_judge_that_says_the_opposite_tells_as_much() -> None:
    judge, people = drawn(np.random.default_rng(2), 80, 25, 0.05)
    one, other = two_phase(judge, people), two_phase(1 - judge, people)
    assert other.rho == pytest.approx(-one.rho)
    assert (other.estimate, *other.ci) == pytest.approx((one.estimate, *one.ci))
    assert other.worth == pytest.approx(one.worth)
    assert "saves little" not in other.words()


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 4)), min_size=1, max_size=40),
    st.integers(0, 40),
)
def test_whatever_is_given_the_estimate_is_a_mean_that_the_interval_holds(
    rows: list[tuple[int, int]], n: int
) -> None:
    judge = [f / 4 for f, _ in rows]
    people = [y / 4 if y >= 0 and at < n else N for at, (_, y) in enumerate(rows)]
    found = two_phase(judge, people, np.arange(len(rows)) < n)
    if found.n == 0:
        assert math.isnan(found.estimate)
        return
    assert 0 <= found.estimate <= 1
    if not math.isnan(found.ci[0]):
        assert found.n >= 6
        assert 0 <= found.ci[0] <= found.estimate <= found.ci[1] <= 1
        assert found.ci[0] < found.ci[1]
        assert found.worth >= found.n


def test_few_of_peoples_queries_have_no_interval_and_undefined_ones_do_not_count() -> None:
    found = two_phase([0.1, 0.2, 0.3, 0.4, N], [0.1, 0.3, N, N, N])
    assert (found.n, found.total) == (2, 5)
    assert math.isnan(found.ci[0])
    assert found.to_dict()["ci"] is None
    assert "too few" in found.words()
    assert math.isnan(two_phase([], []).estimate)


def test_queries_unlike_the_others_do_not_take_a_figure_past_what_it_can_be() -> None:
    """People labelled where the run is bad: by the judge the others would be at 1.4."""
    generator = np.random.default_rng(7)
    judge = np.concatenate([0.4 * generator.random(12), 0.6 + 0.4 * generator.random(88)])
    people = np.full(100, N)
    people[:12] = np.clip(2.2 * judge[:12] + 0.02 * generator.standard_normal(12), 0, 1)
    for turned in (False, True):
        found = two_phase(1 - judge if turned else judge, 1 - people if turned else people)
        assert 0 <= found.ci[0] <= found.estimate <= found.ci[1] <= 1
        assert not found.used
        assert "drawn at random" in found.words()
