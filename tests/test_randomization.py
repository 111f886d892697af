"""Laws of the paired randomisation test, of intervals over queries, and of random tie orders."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import polars as pl
import pytest
from scipy import special, stats

import rankproof as rp
from rankproof.comparison.pairs import compare_evaluations
from rankproof.evaluation import Evaluation, Policy
from rankproof.measures import Outcomes, parse, random_orders
from rankproof.statistics import distributions, flips, randomization
from rankproof.statistics.intervals import (
    MIN_QUERIES,
    difference_intervals,
    mean_intervals,
    percent_intervals,
    percentile_interval,
    percentile_intervals,
    queries_needed,
)
from rankproof.statistics.resampling import (
    draw_counts,
    draw_sample,
    resampled_means,
)


def exact_p(numerators: list[int]) -> float:
    """By definition, in whole numbers."""
    total = abs(sum(numerators))
    sums = [
        abs(sum(s * d for s, d in zip(signs, numerators, strict=True)))
        for signs in product((1, -1), repeat=len(numerators))
    ]
    return float(Fraction(sum(s >= total for s in sums), len(sums)))


def evaluation(name: str, values: np.ndarray, measure: str = "P@5") -> Evaluation:
    queries = pl.Series("query", [f"q{at:04d}" for at in range(len(values))])
    outcomes = Outcomes(values, values, values, values, np.zeros(len(values)))
    return Evaluation(name, queries, {parse(measure): outcomes}, Policy(), "float64")


def test_sums_equal_in_exact_arithmetic_count_as_equal() -> None:
    rng = np.random.default_rng(0)
    steps = rng.integers(-3, 4, (60, 9))
    found, exact = randomization.randomization_test(steps / 5)
    assert exact.all()
    assert found == pytest.approx([exact_p(row.tolist()) for row in steps], abs=1e-15)
    # 0.1 + 0.2 is not 0.3 in floats
    assert randomization.randomization_test(np.array([[0.1, 0.2, -0.3]]))[0][0] == 1.0


@pytest.mark.parametrize("queries", [6, 14, 15, 22, 28, 29, 60, 200])
def test_proportional_measures_have_the_same_p(queries: int) -> None:
    rng = np.random.default_rng(queries)
    hits = rng.integers(-5, 6, (5, queries)).astype(np.float64)
    found = [
        randomization.randomization_test(d)[0]
        for d in (hits, hits / 5, hits / 5 * 0.3, hits / 7, -hits)
    ]
    for other in found[1:]:
        assert np.array_equal(found[0], other)


def test_p_at_k_and_hits_at_k_have_the_same_p_in_one_call() -> None:
    rng = np.random.default_rng(3)
    qrels = {f"q{q}": {f"d{d}": int(rng.random() < 0.4) for d in range(8)} for q in range(17)}
    qrels = {q: {**docs, "d0": 1} for q, docs in qrels.items()}
    runs = {
        name: {q: {f"d{d}": float(rng.random()) for d in range(8)} for q in qrels} for name in "abc"
    }
    found = rp.compare(qrels, runs, ["P@5", "Hits@5"])
    for pair in found.pairs:
        assert pair.measures[parse("P@5")].p == pair.measures[parse("Hits@5")].p


@pytest.mark.parametrize("queries", [15, 21, 28])
def test_the_two_halves_give_what_enumeration_gives(queries: int) -> None:
    rng = np.random.default_rng(queries)
    d = rng.normal(0.3, 1, (3, queries)).round(2)
    whole = randomization._in_units(d)
    # the distribution by steps is exact too: values are hundredths
    steps = np.rint(d * 100).astype(np.int64)
    assert [randomization._p_by_halves(row) for row in whole] == pytest.approx(
        [randomization._p_on_lattice(row) for row in steps], abs=1e-12
    )


@pytest.mark.parametrize("lattice", [True, False])
def test_exact_p_agrees_with_scipy(lattice: bool) -> None:
    rng = np.random.default_rng(5)
    rows = rng.integers(-4, 5, (4, 13)) / 10 if lattice else rng.normal(0.3, 1, (4, 13))
    found, exact = randomization.randomization_test(rows)
    assert exact.all()
    for row, p in zip(rows, found, strict=True):
        peer = stats.permutation_test((row,), np.sum, permutation_type="samples")
        assert p == pytest.approx(peer.pvalue, abs=1e-12)


@pytest.mark.parametrize("lattice", [True, False])
def test_p_of_many_queries_agrees_with_scipys_sample(lattice: bool) -> None:
    rng = np.random.default_rng(6)
    row = rng.integers(-4, 6, 60) / 10 if lattice else rng.normal(0.2, 1, 60)
    (p,), (exact,) = randomization.randomization_test(row[None])
    peer = stats.permutation_test(
        (row,), np.sum, permutation_type="samples", n_resamples=40_000, rng=rng
    )
    assert exact == lattice
    assert abs(p - peer.pvalue) < 5 * math.sqrt(p * (1 - p) / 40_000)


def test_the_paired_t_test_agrees_with_scipy() -> None:
    rng = np.random.default_rng(7)
    d = rng.normal(0.1, 1, (5, 20))
    assert randomization.t_test(d) == pytest.approx(
        [stats.ttest_1samp(row, 0).pvalue for row in d], rel=1e-10
    )
    qrels = {f"q{q}": {"d": 1} for q in range(9)}
    runs = {name: {q: {"d": 1.0, "e": float(rng.integers(0, 3))} for q in qrels} for name in "ab"}
    found = rp.compare(qrels, runs, "RR", t_test=True)["a", "b"][parse("RR")]
    assert found.to_dict()["p_t"] == found.p_t
    assert "p_t" not in rp.compare(qrels, runs, "RR")["a", "b"][parse("RR")].to_dict()


def several(queries: int, ties: bool = False) -> tuple[dict[str, dict], dict]:  # type: ignore[type-arg]
    rng = np.random.default_rng(8)
    qrels = {
        f"q{q:03d}": {f"d{d}": int(rng.random() < 0.4) for d in range(9)} | {"d0": 1}
        for q in range(queries)
    }
    runs = {
        name: {
            q: {f"d{d}": float(rng.integers(0, 4) if ties else rng.random()) for d in range(9)}
            for q in qrels
        }
        for name in ("a", "b", "c")
    }
    return runs, qrels


@pytest.mark.parametrize("queries", [20, 60])
def test_a_comparison_is_symmetric_in_a_and_b(queries: int) -> None:
    runs, qrels = several(queries, ties=True)
    measures = ["nDCG@5", "P@5", "RR"]
    one = rp.compare(qrels, {"a": runs["a"], "b": runs["b"]}, measures)["a", "b"]
    other = rp.compare(qrels, {"b": runs["b"], "a": runs["a"]}, measures)["b", "a"]
    for m in one:
        x, y = one[m], other[m]
        assert (x.p, x.p_holm, x.queries_needed, x.differing) == (
            y.p, y.p_holm, y.queries_needed, y.differing,
        )  # fmt: skip
        assert x.expected == -y.expected
        assert x.ci is not None
        assert y.ci is not None
        assert x.ci == (-y.ci[1], -y.ci[0])
        assert x.flip == y.flip


@pytest.mark.parametrize("queries", [20, 60])
def test_a_pair_is_unchanged_by_an_added_third_run(queries: int) -> None:
    runs, qrels = several(queries, ties=True)
    runs["c"]["q000"] = {"elsewhere": 1.0}
    measures = ["nDCG@5", "AP", "P@5"]
    alone = rp.compare(qrels, {n: runs[n] for n in "ab"}, measures)["a", "b"]
    among = rp.compare(qrels, runs, measures)["a", "b"]
    for m in alone:
        for figure in ("expected", "p", "ci", "flip", "lowest", "highest", "queries_needed"):
            assert getattr(alone[m], figure) == getattr(among[m], figure)


@pytest.mark.parametrize("queries", [29, 50])
def test_a_sampled_p_does_not_depend_on_how_many_others_are_tested(queries: int) -> None:
    rng = np.random.default_rng(queries)
    few = rng.normal(0.05, 0.3, (5, queries))
    many = np.concatenate([few, rng.normal(0, 1, (5000, queries))])
    p = randomization.randomization_test
    alone = np.concatenate([p(row[None])[0] for row in few])
    assert (p(many)[0][:5] == alone).all()
    assert (p(-few)[0] == alone).all()


def test_a_sampled_p_is_the_same_however_few_signs_are_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = np.random.default_rng(0).normal(size=(2, 45))
    expected, _ = randomization.randomization_test(rows)
    monkeypatch.setattr(randomization, "_QUERIES", 16)
    monkeypatch.setattr(randomization, "_ROWS", 1)
    assert randomization.randomization_test(rows)[0].tolist() == expected.tolist()


def test_the_same_difference_has_the_same_interval_everywhere(tmp_path: object) -> None:
    from rankproof.tradeoffs.results import Results

    runs, qrels = several(40)
    a, b = (rp.evaluate(qrels, runs[n], "nDCG@5") for n in "ab")
    compared = rp.compare(qrels, {n: runs[n] for n in "ab"}, "nDCG@5")["a", "b"][parse("nDCG@5")]
    gated = rp.gate(qrels, runs["b"], runs["a"], "nDCG@5").measures[parse("nDCG@5")]
    per_query = pl.concat(
        [
            e.per_query.select("query", "measure", value="expected").with_columns(
                configuration=pl.lit(n)
            )
            for n, e in (("a", a), ("b", b))
        ]
    )
    swept = Results("x", pl.DataFrame(), per_query).paired_intervals([("a", "b")], "nDCG@5")[0]
    assert compared.ci is not None
    assert gated.difference.ci == pytest.approx(compared.ci, rel=1e-12)
    assert swept == pytest.approx(compared.ci, rel=1e-12)
    d = a.outcomes[parse("nDCG@5")].expected - b.outcomes[parse("nDCG@5")].expected
    peer = stats.ttest_1samp(d, 0).confidence_interval(0.95)
    assert compared.ci == pytest.approx((peer.low, peer.high), rel=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_samples_are_nested_and_ascend(seed: int) -> None:
    among = np.arange(1000, 1300)
    samples = [draw_sample(among, count, seed) for count in (0, 1, 15, 30, 299, 300)]
    for sample, count in zip(samples, (0, 1, 15, 30, 299, 300), strict=True):
        assert len(sample) == count
        assert np.array_equal(sample, np.unique(sample))
        assert np.isin(sample, among).all()
    assert all(set(small) < set(large) for small, large in pairwise(samples))


def test_every_query_is_as_likely_to_be_sampled() -> None:
    drawn = np.concatenate([draw_sample(np.arange(20), 5, seed) for seed in range(4000)])
    assert stats.chisquare(np.bincount(drawn, minlength=20)).pvalue > 0.001


def test_too_few_differing_queries_give_no_interval_but_words() -> None:
    same = np.full(30, 0.5)
    other = same.copy()
    other[: MIN_QUERIES - 1] += 0.25
    found = compare_evaluations([evaluation("a", other), evaluation("b", same)])
    d = found["a", "b"][parse("P@5")]
    assert d.ci is None
    assert d.to_dict()["ci"] is None
    assert d.verdict is not None
    assert d.verdict.label == "undecided"
    sentence = d.verdict.sentence("a", "b", "P@5")
    assert f"only {MIN_QUERIES - 1} queries differ" in sentence
    other[MIN_QUERIES - 1] += 0.25
    assert compare_evaluations([evaluation("a", other), evaluation("b", same)])["a", "b"][
        parse("P@5")
    ].ci


def test_quantiles_and_tails_are_those_of_scipy() -> None:
    for df in (1, 2, 3, 9, 49, 500):
        assert distributions.t_quantile(0.975, df) == pytest.approx(stats.t.ppf(0.975, df))
        points = np.array([0.0, 0.3, 2.0, 8.0])
        assert distributions.t_tail(points, df) == pytest.approx(2 * stats.t.sf(points, df))
    assert distributions.share_upper_bound(3, 100, 0.975) == pytest.approx(
        stats.beta.ppf(0.975, 4, 97)
    )
    assert distributions.share_upper_bound(5, 5, 0.975) == 1.0


# ------------------------------------------------------------------------------ simulations


def kinds(rng: np.random.Generator, rows: int, queries: int) -> dict[str, tuple[np.ndarray, float]]:
    """Differences with their true mean: continuous, on a lattice, and few that differ."""
    lattice = rng.integers(-2, 3, (rows, queries)) / 5 + 0.0
    few = np.where(rng.random((rows, queries)) < 0.3, rng.normal(0.1, 0.3, (rows, queries)), 0.0)
    return {
        "normal": (rng.normal(0.05, 0.2, (rows, queries)), 0.05),
        "lattice": (lattice, 0.0),
        "few": (few, 0.03),
    }


@pytest.mark.parametrize("queries", [10, 30, 50])
def test_the_interval_of_a_difference_covers(queries: int) -> None:
    rng = np.random.default_rng(queries)
    rows = 20_000
    for kind, (d, truth) in kinds(rng, rows, queries).items():
        ends = difference_intervals(d, 1.0)
        known = ~np.isnan(ends[:, 0])
        if known.sum() < rows / 4:  # too few differ to say anything: no interval was given
            continue
        covered = ((ends[:, 0] <= truth) & (truth <= ends[:, 1]))[known].mean()
        assert 0.93 < covered < 0.975, (kind, queries, covered)


def test_the_widened_percentile_interval_is_as_wide_as_students_for_a_mean() -> None:
    values = np.random.default_rng(1).normal(0.5, 0.2, 25)
    drawn = resampled_means(values[:, None], 0)[:, 0]
    low, high = percentile_interval(drawn, 25)
    ((least, most),) = difference_intervals(values[None], 1.0)
    assert high - low == pytest.approx(most - least, rel=0.03)


def test_an_interval_of_a_measure_stays_inside_its_range() -> None:
    ends = mean_intervals(np.array([[1.0] * 9 + [0.8], [0.0] * 9 + [0.1]]))
    assert 0.99 < ends[0, 1] < 1.0
    assert 0.0 < ends[1, 0] < 0.01


def test_values_that_are_all_alike_have_the_interval_of_what_may_be_unseen() -> None:
    """Of ones and zeros the exact one of the binomial; Student's would be a point."""
    for n in (1, 2, 10, 200):
        rows = np.stack([np.ones(n), np.zeros(n), np.full(n, 0.1 + 0.2)])
        (of_ones, of_zeros, between) = mean_intervals(rows)
        exact = stats.binomtest(n, n).proportion_ci(0.95, "exact")
        assert of_ones == pytest.approx((exact.low, 1.0), abs=1e-12)
        assert of_zeros == pytest.approx((0.0, 1.0 - exact.low), abs=1e-12)
        assert between == pytest.approx((0.3 * exact.low, 1.0 - 0.7 * exact.low), abs=1e-12)
    rounded = np.array([[0.3, 0.1 + 0.2, 0.3], [1.0, 1.0 + 2**-52, 1.0]])
    ends = mean_intervals(rounded)
    assert ends[0, 1] - ends[0, 0] > 0.5
    assert ends[1, 1] == 1.0 > ends[1, 0] + 0.5
    large = mean_intervals(np.array([[5.0] * 3, [1.0] * 3, [0.8, 1.0, 0.9]]))
    assert np.isnan(large[:2]).all(), "nobody knows how large such a figure may be"
    assert large[2, 1] > 1.0


@pytest.mark.parametrize("queries", [5, 10, 20, 50, 200])
@pytest.mark.parametrize("truth", [0.99, 0.95])
def test_intervals_of_a_mean_near_its_end_cover_it(truth: float, queries: int) -> None:
    """Most samples are of ones alone: a point at 1 covered .99 in .05 to .87 of them."""
    drawn = np.random.default_rng(5).random((4_000, queries)) < truth
    ends = mean_intervals(drawn.astype(np.float64))
    covered = ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()
    assert covered > 0.92, (truth, queries, covered)


@pytest.mark.parametrize("queries", [3, 6, 10, 20, 30])
@pytest.mark.parametrize("near", [0.99, 1.0 - 1e-6])
def test_intervals_of_values_that_hardly_differ_cover_what_is_rare(
    near: float, queries: int
) -> None:
    """A fiftieth finds nothing, a tenth nearly all: Student's alone covered .4 to .6."""
    luck = np.random.default_rng(9).random((4_000, queries))
    values = np.select([luck < 0.02, luck < 0.12], [0.0, near], 1.0)
    truth = 0.98 - 0.1 * (1.0 - near)
    ends = mean_intervals(values)
    assert ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean() > 0.92, (near, queries)
    assert ((ends >= 0.0) & (ends <= 1.0)).all()


def test_one_query_that_differs_a_little_does_not_make_an_interval_a_point() -> None:
    alike, nearly = mean_intervals(np.array([[1.0] * 10, [1.0] * 9 + [0.99]]))
    assert nearly == pytest.approx(alike, abs=0.002)
    alike, nearly = difference_intervals(np.array([[0.5] * 10, [0.5] * 9 + [0.51]]), 1.0)
    assert nearly == pytest.approx(alike, abs=0.002)
    (known,) = mean_intervals(np.array([[1.0] * 9 + [5.0]]))
    assert known == pytest.approx((0.4951, 2.3049), abs=1e-4), "where nobody knows the most"
    many = np.repeat([[1.0, 0.99]], [20, 6], axis=1)  # six are enough to tell how they vary
    mean, half = many.mean(), stats.sem(many[0]) * stats.t.ppf(0.975, 25)
    assert difference_intervals(many, 1.0)[0] == pytest.approx((mean - half, min(mean + half, 1.0)))
    half /= mean * (1 - mean)
    ends = special.expit(special.logit(mean) + np.array([-half, half]))
    assert mean_intervals(many)[0] == pytest.approx(ends)


def test_an_interval_of_a_difference_stays_inside_its_range() -> None:
    rows = np.array([[1.0] * 6 + [0.7], [0.97, 0.98, 0.99, 1.0, 0.95, 0.5, 0.99]])
    for ends in (difference_intervals(rows, 1.0), -difference_intervals(-rows, 1.0)[:, ::-1]):
        assert (ends[:, 1] == 1.0).all()
        assert (ends[:, 0] > -1.0).all()
    assert difference_intervals(rows, 2.0)[1, 1] > 1.0


def test_queries_that_differ_by_rounding_do_not_differ() -> None:
    rows = np.array([[0.5] + [1e-17] * 20, [0.5] + [0.0] * 20])
    assert np.isnan(difference_intervals(rows, 1.0)).all()


def test_queries_that_all_differ_alike_have_an_interval_but_no_students_p() -> None:
    rows = np.array([[1.0] * 6, [0.1 + 0.2] * 5 + [0.3], [-0.5] * 6, [7.0] * 6, [0.0] * 6])
    ends = difference_intervals(rows, 1.0)
    assert np.isnan(difference_intervals(rows, 2.0)).all(), "nobody knows how far they go"
    rare = 0.025 ** (1 / 6)
    assert ends[0] == pytest.approx((2 * rare - 1, 1.0))
    assert ends[1] == pytest.approx((1.3 * rare - 1, 1 - 0.7 * rare))
    assert ends[2] == pytest.approx((0.5 * rare - 1, 1 - 1.5 * rare))
    assert np.isnan(ends[3:]).all(), "no difference, or one that nobody knows the most of"
    p = randomization.t_test(rows)
    assert np.isnan(p[:4]).all()
    assert p[4] == 1.0
    qrels = {f"q{n}": {"r": 1, "n": 0} for n in range(6)}
    runs = {
        name: {q: {"r": 1.0, "n": other} for q in qrels} for name, other in (("a", 0.0), ("b", 2.0))
    }
    found = rp.compare(qrels, runs, ["RR", "NumRet"], t_test=True)
    assert found.to_dict()["pairs"][0]["measures"]["RR"]["p_t"] is None
    assert found["a", "b"][parse("RR")].ci == pytest.approx((1.5 * rare - 1, 1 - 0.5 * rare))


@pytest.mark.parametrize("queries", [6, 10, 20])
@pytest.mark.parametrize("truth", [0.98, 0.9])
def test_intervals_of_a_difference_near_its_end_cover_it(truth: float, queries: int) -> None:
    """A point at 1 covered .98 in 0 to .34 of samples."""
    drawn = np.random.default_rng(6).random((4_000, queries)) < truth
    ends = difference_intervals(drawn.astype(np.float64), 1.0)
    told = ~np.isnan(ends[:, 0])
    covered = ((ends[:, 0] <= truth) & (truth <= ends[:, 1]))[told].mean()
    assert covered > 0.92, (truth, queries, covered)


def test_no_interval_ends_at_the_most_that_was_seen_where_a_measure_has_no_end() -> None:
    """Of two draws of what has no end a half lies below the mean: so often the end did, too."""
    drawn = 1.0 + np.random.default_rng(7).exponential(1.0, (4_000, 2))
    ends = mean_intervals(drawn)
    assert ((ends[:, 0] <= 2.0) & (ends[:, 1] >= 2.0)).mean() > 0.9
    below = mean_intervals(-drawn)
    assert below[:, 0] == pytest.approx(-ends[:, 1])


def test_fewer_than_six_queries_have_no_percentile_interval() -> None:
    """No resample of five goes beyond them, and all five lie on one side in 1 of 16."""
    drawn = np.random.default_rng(8).random((500, 2))
    assert np.isnan(percentile_intervals(drawn, 5)).all()
    assert not np.isnan(percentile_intervals(drawn, 6)).any()
    assert np.isnan(percent_intervals(drawn, np.array([[0.1, 0.9]] * 2), np.ones((2, 2)))).all()
    steady = percent_intervals(np.full((500, 1), 80.0), np.full((1, 2), 0.4), np.full((1, 2), 0.5))
    assert steady[:, 0] == pytest.approx((80 * 0.025**0.5, 100 - 20 * 0.025**0.5))


def test_percentages_that_hardly_vary_cover_what_is_rare() -> None:
    """A fiftieth is ordered as badly as can be, a tenth nearly well; a fifth says nothing of it."""
    rng = np.random.default_rng(10)
    covered = 0
    for seed in range(60):
        luck = rng.random(20)
        best = np.where(rng.random(20) < 0.2, 0.0, 0.5)
        actual = best * np.select([luck < 0.02, luck < 0.12], [0.0, 0.99], 1.0)
        a, b = resampled_means(np.stack([actual, best], axis=1), seed, 500).T
        ((low,), (high,)) = percent_intervals((100 * a / b)[:, None], actual[None], best[None])
        covered += low <= 97.9 <= high
    assert covered >= 55, "the bootstrap's alone: about 25"


def test_draws_depend_on_the_seed_and_the_number_of_queries_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.random.default_rng(1).normal(size=(20, 2))
    both = resampled_means(values, 7, 50)
    assert np.allclose(both[:, :1], resampled_means(values[:, :1], 7, 50))
    monkeypatch.setattr("rankproof.statistics.resampling.CELLS", 100)
    assert np.allclose(both, resampled_means(values, 7, 50)), "in parts, the same draws"
    assert all((times.sum(axis=1) == 20).all() for times in draw_counts(20, 7, 50))


@pytest.mark.slow
def test_a_million_null_pairs_give_p_below_05_in_5_percent() -> None:
    rng = np.random.default_rng(11)
    queries, pairs, block = 10, 1_000_000, 250_000
    below = 0
    for _ in range(pairs // block):
        p, exact = randomization.randomization_test(rng.normal(size=(block, queries)))
        assert exact.all()
        below += int((p <= 0.05).sum())
    # With 2¹⁰ assignments p is a multiple of 1/512: the level is ⌊.05·512⌋/512.
    level = math.floor(0.05 * 512) / 512
    assert abs(below / pairs - level) < 4 * math.sqrt(level * (1 - level) / pairs)


def test_sampled_p_of_null_pairs_is_below_05_in_5_percent() -> None:
    rng = np.random.default_rng(12)
    p, exact = randomization.randomization_test(rng.normal(size=(20_000, 40)), permutations=999)
    assert not exact.any()
    assert abs((p <= 0.05).mean() - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 20_000) + 0.002


def test_power_is_what_the_number_of_queries_promises() -> None:
    needed = int(queries_needed(np.array(0.05), np.array(0.2), np.array(1.0)))
    assert needed == math.ceil(((1.959964 + 0.841621) * 0.2 / 0.05) ** 2)
    rng = np.random.default_rng(13)
    ends = difference_intervals(rng.normal(0.05, 0.2, (20_000, needed)), 1.0)
    assert (ends[:, 0] > 0).mean() == pytest.approx(0.8, abs=0.02)
    assert math.isinf(queries_needed(np.array(0.0), np.array(0.2), np.array(1.0)))
    large = rng.normal(1.0, 0.4, (500, 6))
    for spread in (0.0, 0.4):  # the formula asks for two, of which no p falls below .5
        assert queries_needed(np.array(1.0), np.array(spread), np.array(1.0)) == 6
    assert (randomization.randomization_test(large)[0] < 0.05).mean() > 0.8
    assert queries_needed(np.array(0.5), np.array(0.5), np.array(0.5)) == 12


# ----------------------------------------------------------------------------------- flips


def chance_of_flip(runs: dict, qrels: dict, measure: str, draws: int = 4000) -> float:  # type: ignore[type-arg]
    """By breaking the ties of both runs at random, again and again."""
    rng = np.random.default_rng(0)
    expected = rp.compare(qrels, runs, measure)["a", "b"][parse(measure)].expected
    turned = 0
    for _ in range(draws):
        values = []
        for run in runs.values():
            broken = {
                q: dict(
                    sorted({d: s + 1e-6 * float(rng.random()) for d, s in docs.items()}.items())
                )
                for q, docs in run.items()
            }
            values.append(rp.evaluate(qrels, broken, measure)[measure].expected)
        turned += (values[0] - values[1]) * expected < -1e-12
    return turned / draws


@pytest.mark.parametrize("measure", ["nDCG@3", "P@2", "AP"])
def test_flip_is_how_often_a_random_order_of_ties_turns_the_sign(measure: str) -> None:
    rng = np.random.default_rng(4)
    qrels = {f"q{q}": {"d0": 1, "d1": 2, "d2": 0} for q in range(5)}
    runs = {
        name: {q: {f"d{d}": float(rng.integers(0, 2)) for d in range(5)} for q in qrels}
        for name in "ab"
    }
    d = rp.compare(qrels, runs, measure)["a", "b"][parse(measure)]
    assert not d.certain
    truth = chance_of_flip(runs, qrels, measure, 400)
    assert abs(d.flip - truth) < 5 * math.sqrt(max(truth, 0.01) / 400)


def test_a_flip_that_no_order_reaches_is_0_with_one_tied_query() -> None:
    qrels = {"q1": {"x": 1}, "q2": {"x": 1}}
    a = {"q1": {"x": 1.0, "y": 1.0}, "q2": {"x": 1.0}}
    b = {"q1": {"y": 2.0, "x": 1.0}, "q2": {"x": 1.0}}
    d = rp.compare(qrels, {"a": a, "b": b}, "RR")["a", "b"][parse("RR")]
    assert (d.lowest, d.highest, d.certain) == (0.0, 0.25, False)
    assert d.flip == 0.0, "the worst order makes them equal, none turns the sign"
    assert d.verdict is not None
    assert "ties" not in d.verdict.depends_on


def test_certain_pairs_never_flip_and_verdicts_name_likely_flips() -> None:
    runs, qrels = several(30, ties=True)
    for pair in rp.compare(qrels, runs, ["nDCG@5", "RR"]).pairs:
        for d in pair.measures.values():
            assert not d.certain or d.flip == 0.0
            assert d.verdict is not None
            assert ("ties" in d.verdict.depends_on) == (d.flip >= 0.05 or d.reversed)


def test_the_normal_flip_agrees_with_drawing_orders_where_many_queries_tie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs, qrels = several(60, ties=True)
    measures = ["P@5", "nDCG@5"]
    normal = rp.compare(qrels, runs, measures)
    monkeypatch.setattr(flips, "ENOUGH", 1e9)
    drawn = rp.compare(qrels, runs, measures)
    for one, other in zip(normal.pairs, drawn.pairs, strict=True):
        for m in one.measures:
            assert one.measures[m].flip == pytest.approx(other.measures[m].flip, abs=0.02)


def test_random_orders_have_the_moments_of_the_closed_form() -> None:
    runs, qrels = several(6, ties=True)
    for name in ("AP", "nDCG@4", "RR", "P@3"):
        found = rp.evaluate(qrels, runs["a"], name)
        values = found.outcomes[parse(name)]
        tied = np.flatnonzero(values.max > values.min)
        assert found.ties is not None
        assert values.variance is not None
        every = values.variance[tied]
        for known in (None, every):
            sums = flips.drawn_sums(
                *(found.ties, parse(name), tied, values.expected[tied], known),
                np.random.default_rng(1),
            )
            assert sums.mean() == pytest.approx(0, abs=5 * math.sqrt(every.sum() / len(sums)))
            assert sums.var() == pytest.approx(every.sum(), rel=0.1)


def test_places_are_drawn_one_after_the_other_among_those_still_free() -> None:
    rng = np.random.default_rng(0)
    for many in (1, 2, 3, 7, 20):
        size = many + rng.integers(0, 30, 4)
        free = [list(range(n)) for n in size for _ in range(3)]
        drawn, again = np.random.default_rng(many), np.random.default_rng(many)
        places = np.empty((3, 4, many), int)
        for i in range(many):
            number = again.integers(0, size - i, (3, 4))
            for copy, group in np.ndindex(3, 4):
                left = free[group * 3 + copy]
                places[copy, group, i] = left.pop(number[copy, group])
        np.testing.assert_array_equal(random_orders._distinct_places(size, many, 3, drawn), places)


def test_more_queries_than_a_lattice_has_steps_are_sampled() -> None:
    rows = np.full((1, 9000), 0.1)
    rows[0, ::2] = -0.1
    assert not randomization.randomization_test(rows, permutations=1000)[1].any()
