"""Refining the order of pools: rounds, replay, stops, and what a ranking says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from laplace_fit import fit_posterior
from simulated_pools import SimulatedJudge, SimulatedPool, simulate_pool

from rankproof.foundation.errors import InputError
from rankproof.golden.plackett_luce import Posterior
from rankproof.golden.prior import (
    PoolStack,
    Scale,
    fit_pools,
    pool_features,
    scale_step,
    shrink_log_factors,
)
from rankproof.golden.rag_gs_ordering import AS_PUBLISHED, RagGsConstants, RagGsRefiner
from rankproof.golden.refinement import (
    Batch,
    MethodName,
    Pool,
    Ranking,
    Refinement,
    Refiner,
    RefineSettings,
    make_ranking,
    transitive_reduction,
)


def make_pools(seed: int, count: int, **settings: Any) -> list[SimulatedPool]:
    draw = np.random.default_rng(seed)
    return [simulate_pool(draw, **settings) for _ in range(count)]


def as_pools(pools: list[SimulatedPool]) -> list[Pool]:
    return [Pool(pool.grade, pool.rrf) for pool in pools]


def reply(pool: SimulatedPool, batch: Batch, judge: SimulatedJudge, salt: int = 0) -> Batch:
    """Seeded by what is asked, so that it does not depend on when."""
    return judge.order(pool.utility, batch, np.random.default_rng([salt, *batch]))


def refine(
    pools: list[SimulatedPool],
    judge: SimulatedJudge,
    settings: RefineSettings,
    method: MethodName = "posterior",
) -> Refinement:
    refinement = Refinement(as_pools(pools), settings, seed=5, method=method)
    while asked := refinement.next_round():
        refinement.add([reply(pools[at], batch, judge) for at, batch in asked])
    return refinement


def by_grade(pool: SimulatedPool) -> Any:
    return np.lexsort((-pool.rrf, -pool.grade))


# --------------------------------------------------------------------------------------- rounds


def test_batches_of_a_round_have_no_item_in_common() -> None:
    (pool,) = make_pools(0, 1, items=(46, 46))
    refiner = Refiner(pool_features(pool.grade, pool.rrf), RefineSettings(per_round=6, target=1))
    for _ in range(5):
        asked = refiner.next_round()
        assert [len(batch) for batch in asked] == [5] * 6
        items = [item for batch in asked for item in batch]
        assert len(set(items)) == 30
        assert set(items) <= set(range(46))
        refiner.add([reply(pool, batch, SimulatedJudge()) for batch in asked])


def test_a_round_is_the_same_until_it_is_answered() -> None:
    (pool,) = make_pools(1, 1)
    refiner = Refiner(pool_features(pool.grade, pool.rrf))
    first = refiner.next_round()
    assert refiner.next_round() == first
    refiner.add([reply(pool, batch, SimulatedJudge()) for batch in first])
    assert refiner.next_round() != first


def settled_pool(settings: RefineSettings) -> Refiner:
    """Every sample has one order, but that ranks 20 and 21 tie: it is never done."""
    grade = -np.arange(60, dtype=float)
    grade[20] = grade[19]
    return Refiner(pool_features(grade, grade), settings, scale=Scale(10, 0, 0.01), learn=False)


def test_a_batch_straddles_the_depth_or_lies_above_it() -> None:
    refiner = settled_pool(RefineSettings(per_round=1, budget=40, target=1))
    while asked := refiner.next_round():
        (batch,) = asked
        best, worst = min(batch), max(batch)
        assert worst - best <= 5
        assert best < 20
        refiner.add([sorted(batch)])
    assert refiner.calls == 40


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (1.0, 12), (0.25, 3), (0.5, 6)])
def test_the_share_of_the_boundary_is_a_setting(share: float, expected: int) -> None:
    refiner = settled_pool(RefineSettings(per_round=1, budget=12, target=1, boundary=share))
    straddling = 0
    while asked := refiner.next_round():
        straddling += max(asked[0]) > 20
        refiner.add([sorted(asked[0])])
    assert straddling == expected


def test_a_small_pool_is_one_batch_and_a_single_passage_needs_none() -> None:
    refiner = Refiner(pool_features([1, 2, 3], [0, 0, 0]), RefineSettings(per_round=2))
    assert [sorted(batch) for batch in refiner.next_round()] == [[0, 1, 2]] * 2
    assert Refiner(pool_features([4], [1])).done == "order"
    empty = Refiner(pool_features([], []))
    assert (empty.done, empty.next_round(), empty.ranking().order.tolist()) == ("order", [], [])


def test_in_a_small_pool_the_depth_is_two_thirds_of_it() -> None:
    settings = RefineSettings()
    assert [settings.depth_of(n) for n in (1, 2, 3, 15, 29, 30, 46)] == [1, 1, 2, 10, 19, 20, 20]
    (pool,) = make_pools(16, 1, items=(15, 15))
    refiner = Refiner(pool_features(pool.grade, pool.rrf), RefineSettings(per_round=1))
    refiner.add([reply(pool, batch, SimulatedJudge()) for batch in refiner.next_round()])
    assert refiner.done is None, "a top 20 of 15 passages would be right whatever their order"
    assert refiner.ranking().depth == 10


@pytest.mark.parametrize("method", ["posterior", "seed", "seed-code"])
def test_the_budget_is_never_passed(method: MethodName) -> None:
    pools = make_pools(2, 2)
    refinement = refine(pools, SimulatedJudge(), RefineSettings(budget=10, target=1), method)
    assert refinement.done == ["budget"] * 2
    assert [r.calls for r in refinement.rankings()] == [10, 10]
    assert refinement.next_round() == []


def test_a_budget_of_nothing_leaves_the_order_of_the_prior() -> None:
    (pool,) = make_pools(3, 1)
    refiner = Refiner(pool_features(pool.grade, pool.rrf), RefineSettings(budget=0))
    assert refiner.done == "budget"
    prior = pool_features(pool.grade, pool.rrf) @ Scale().weights
    assert refiner.ranking().order.tolist() == np.argsort(-prior, kind="stable").tolist()


# --------------------------------------------------------------------------------------- replay


@pytest.mark.parametrize("method", ["posterior", "seed", "seed-code"])
def test_replaying_recorded_replies_chooses_the_same_batches(method: MethodName) -> None:
    pools = make_pools(4, 3)
    settings = RefineSettings(budget=24, target=1)

    def failing(at: int, batch: Batch) -> Batch | None:
        return None if sum(batch) % 5 == 0 else reply(pools[at], batch, SimulatedJudge())

    whole = Refinement(as_pools(pools), settings, 9, method)
    record: dict[tuple[int, int, Batch], Batch | None] = {}
    rounds: list[list[tuple[int, Batch]]] = []
    while asked := whole.next_round():
        for at, batch in asked:
            record[len(rounds), at, batch] = failing(at, batch)
        whole.add([record[len(rounds), at, batch] for at, batch in asked])
        rounds.append(asked)
    assert any(found is None for found in record.values())

    again = Refinement(as_pools(pools), settings, 9, method)
    for number, expected in enumerate(rounds):
        asked = again.next_round()
        assert asked == expected
        again.add([record[number, at, batch] for at, batch in asked])
    for one, other in zip(whole.rankings(), again.rankings(), strict=True):
        assert np.array_equal(one.order, other.order)
        assert np.array_equal(one.posterior.mean, other.posterior.mean)
        assert (one.overlap, one.calls, one.failed) == (other.overlap, other.calls, other.failed)


@pytest.mark.parametrize("method", ["posterior", "seed", "seed-code"])
def test_a_failed_reply_counts_as_a_call_and_is_not_repeated_for_ever(
    method: MethodName,
) -> None:
    pools = make_pools(5, 1)
    refinement = Refinement(as_pools(pools), RefineSettings(budget=12), 0, method)
    before = refinement.rankings()[0].posterior
    seen = []
    while asked := refinement.next_round():
        seen += [batch for _, batch in asked]
        refinement.add([None] * len(asked))
    (after,) = refinement.rankings()
    assert (after.calls, after.failed) == (12, 12)
    assert np.array_equal(after.posterior.mean, before.mean)
    assert np.array_equal(after.posterior.covariance, before.covariance)
    assert len({tuple(sorted(batch)) for batch in seen}) > 1


def test_the_seed_decides_what_is_asked() -> None:
    pools = as_pools(make_pools(6, 2))
    first, same, other = (Refinement(pools, seed=seed).next_round() for seed in (1, 1, 2))
    assert first == same
    assert first != other


@pytest.mark.parametrize(
    ("replies", "words"),
    [
        ([(0, 1, 2)], "1 reply to 4 batches"),
        ([(0, 1, 2, 3, 99)] * 4, "does not order the batch"),
        ([()] * 4, "does not order the batch"),
    ],
)
def test_a_reply_that_does_not_order_its_batch_is_refused_and_nothing_is_added(
    replies: Sequence[Batch], words: str
) -> None:
    refinement = Refinement(as_pools(make_pools(7, 1)))
    asked = refinement.next_round()
    with pytest.raises(InputError, match=words):
        refinement.add(replies)
    assert refinement.next_round() == asked
    assert refinement.rankings()[0].calls == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": 1},
        {"depth": 0},
        {"target": 0},
        {"target": 1.1},
        {"boundary": -0.1},
        {"budget": -1},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"refinement: {next(iter(wrong))} is"):
        RefineSettings(**wrong)


# ---------------------------------------------------------------------------------------- prior


def test_features_are_centred_grades_and_standardised_rrf() -> None:
    found = pool_features([5, 3, 1, 3], [0.4, 0.1, 0.2, 0.3])
    assert found[:, 0].tolist() == [2, 0, -2, 0]
    assert found[:, 1].mean() == pytest.approx(0, abs=1e-15)
    assert found[:, 1].std() == pytest.approx(1)


def test_unknown_or_equal_values_become_zero() -> None:
    found = pool_features([5, np.nan, 3], [0.2, 0.2, 0.2])
    assert found.tolist() == [[1, 0], [0, 0], [-1, 0]]
    with pytest.raises(InputError, match="infinite"):
        pool_features([1, np.inf], [0, 0])


@pytest.mark.parametrize("beta", [1.0, 3.0])
def test_the_learned_scale_has_nearly_the_highest_evidence(beta: float) -> None:
    pools = make_pools(8, 6)
    learners: list[Refiner] = []
    for pool in pools:
        refiner = Refiner(pool_features(pool.grade, pool.rrf), learn=False)
        draw = np.random.default_rng(len(learners))
        batches = [tuple(draw.choice(len(pool.grade), 5, replace=False)) for _ in range(60)]
        refiner.add_orders([reply(pool, batch, SimulatedJudge(beta)) for batch in batches])
        learners.append(refiner)
    for _ in range(10):
        fit_pools(learners)
    found = learners[0].scale

    def evidence(scale: Scale) -> float:
        return sum(
            fit_posterior(
                learner.orders,
                learner.factor * (learner.features @ scale.weights),
                (learner.factor * scale.spread) ** -2,
            ).evidence
            for learner in learners
        )

    reached = evidence(found)
    grid = [
        Scale(found.grade * a, found.rrf * b, found.spread * c)
        for a in (0.5, 0.75, 1.0, 1.25, 1.5)
        for b in (0.5, 1.0, 1.5)
        for c in (0.5, 0.75, 1.0, 1.25, 1.5)
    ]
    best = max(grid, key=evidence)
    assert 0.75 <= best.spread / found.spread <= 1.25
    assert 0.75 <= best.grade / found.grade <= 1.25
    assert reached > evidence(best) - 1  # of a thousand; the first guess pulls a little


def test_the_slope_of_the_evidence_knows_that_the_hessian_moves_with_the_mode() -> None:
    (pool,) = make_pools(11, 1)
    refiner = Refiner(pool_features(pool.grade, pool.rrf), learn=False)
    draw = np.random.default_rng(3)
    batches = [tuple(draw.choice(len(pool.grade), 5, replace=False)) for _ in range(40)]
    refiner.add_orders([reply(pool, batch, SimulatedJudge(4)) for batch in batches])
    stack = PoolStack([refiner])
    hints, precision = stack.features[0], 1 / stack.prior_variance[0]
    rest, found = stack.mean[0] - stack.prior_mean[0], stack.covariance[0]

    def evidence(grade: float, log_spread: float) -> float:
        scale = replace(stack.scale, grade=stack.scale.grade + grade)
        spread = scale.spread * float(np.exp(log_spread))
        return fit_posterior(refiner.orders, hints @ scale.weights, spread**-2).evidence

    by_grade = float(hints[:, 0] @ (precision * rest))
    leaning = float(stack.implicit_slope((hints[:, 0] * precision)[None])[0])
    slope = (evidence(1e-3, 0) - evidence(-1e-3, 0)) / 2e-3
    assert slope == pytest.approx(by_grade + leaning, abs=1e-3)
    assert abs(leaning) > 1
    by_spread = float(rest @ (precision * rest) - len(rest) + np.sum(np.diag(found) * precision))
    leaning = float(stack.implicit_slope((2 * rest * precision)[None])[0])
    slope = (evidence(0, 1e-3) - evidence(0, -1e-3)) / 2e-3
    assert slope == pytest.approx(by_spread + leaning, abs=1e-3)
    assert abs(leaning) > 0.5


def test_a_judge_all_but_without_noise_does_not_drive_the_scale_away() -> None:
    pools = [
        replace(pool, utility=pool.grade + np.random.default_rng(at).random(len(pool.grade)))
        for at, pool in enumerate(make_pools(9, 8))
    ]
    found = refine(pools, SimulatedJudge(3.0), RefineSettings(budget=20, target=1)).scale
    assert 1.5 < found.grade < 6  # 3 in truth
    true = 3 * np.sqrt(1 / 12)  # too wide asks more, too narrow would lie
    assert true / 2 < found.spread < 2 * true
    assert 2.5 < found.grade / found.spread < 5  # 3.5


def test_a_judge_with_less_noise_has_a_larger_scale() -> None:
    pools = make_pools(9, 8)
    settings = RefineSettings(budget=24, target=1)
    learned = [refine(pools, SimulatedJudge(beta), settings).scale for beta in (1.0, 4.0)]
    assert learned[1].grade > 2 * learned[0].grade
    assert learned[1].spread > 2 * learned[0].spread


def test_a_pool_with_closer_utilities_gets_a_smaller_factor() -> None:
    generator = np.random.default_rng(5)
    pools = [
        simulate_pool(generator, spread=spread, grade_noise=0.8 * spread, rrf_noise=2 * spread)
        for spread in [1.2, 0.15] * 6
    ]
    refinement = Refinement([Pool(p.grade, p.rrf) for p in pools], RefineSettings(budget=24), 0)
    while asked := refinement.next_round():
        judge = SimulatedJudge(3.0)
        refinement.add([judge.order(pools[at].utility, batch, generator) for at, batch in asked])
    factors = [pool.factor for pool in refinement._refiners]
    assert min(factors[::2]) > max(factors[1::2])
    for at, found in enumerate(refinement.rankings()):
        assert found.overlap == pytest.approx(
            refinement._refiners[at]._expected_overlap(), abs=1e-12
        )


def test_factors_of_two_kinds_of_pools_shrink_towards_their_kind() -> None:
    draw = np.random.default_rng(3)
    true = np.repeat([-1.0, 1.0], 60)
    mean, variance = shrink_log_factors(true + 0.4 * draw.standard_normal(120), np.full(120, 0.16))
    assert np.std(mean - true) < 0.3  # by themselves .4
    assert np.abs(mean - true).mean() < 0.2
    assert np.mean((mean - true) ** 2 / variance) < 2


def test_factors_that_differ_by_chance_are_shrunk_together() -> None:
    said = 0.4 * np.random.default_rng(4).standard_normal(100)
    mean, _ = shrink_log_factors(said, np.full(100, 0.16))
    assert np.std(mean) < 0.15
    wide, _ = shrink_log_factors(said, np.full(100, 1e6))  # no orders: as the others may be
    assert np.ptp(wide) < 1e-3


def test_a_single_pool_is_shrunk_towards_the_first_guess() -> None:
    mean, variance = shrink_log_factors(np.array([1.0]), np.array([0.25]))
    assert 0.1 < mean[0] < 0.9
    assert 0 < variance[0] < 0.25


def test_a_grade_that_the_judge_is_unsure_of_says_less() -> None:
    grade, rrf = [5.0, 4.0, 3.0, 2.0, 1.0], [0.0] * 5
    sure, unsure = (
        Refinement([Pool(grade, rrf, doubt)], RefineSettings(budget=8, target=1)).rankings()[0]
        for doubt in (None, [0.0, 1.0, 0.0, 0.0, 0.0])
    )
    assert unsure.posterior.mean == pytest.approx(sure.posterior.mean)
    assert unsure.posterior.sd[1] == pytest.approx(np.sqrt(2.0))  # σ² + (w·sd)², both 1 at first
    assert unsure.posterior.sd[2] == pytest.approx(sure.posterior.sd[2])


def test_without_judgements_the_scale_stays_near_the_first_guess() -> None:
    found, _ = scale_step(Scale(), [PoolStack([Refiner(pool_features([1, 2], [0, 1]))])])
    assert (found.grade, found.rrf, found.spread) == pytest.approx((1.0, 0.3, 1.0))


# -------------------------------------------------------------------------------------- ranking


def random_posterior(seed: int, n: int) -> Posterior:
    draw = np.random.default_rng(seed)
    root = draw.normal(size=(n, n))
    return Posterior(3 * draw.normal(size=n), root @ root.T / n)


def stated(posterior: Posterior, depth: int = 5, samples: int = 500) -> Ranking:
    settings = RefineSettings(depth=depth, samples=samples)
    return make_ranking(posterior, settings, np.random.default_rng(0))


def test_the_figures_of_a_ranking_are_those_of_the_posterior_by_definition() -> None:
    posterior = random_posterior(1, 12)
    found = stated(posterior, samples=20_000)
    assert found.order.tolist() == sorted(range(12), key=lambda i: -posterior.mean[i])
    drawn = posterior.sample(np.random.default_rng(1), 20_000)
    shared, ranks = [], []
    for theta in drawn:
        true = sorted(range(12), key=lambda i: -theta[i])
        shared.append(len({*true[:5]} & {*found.order[:5].tolist()}) / 5)
        ranks.append([true.index(i) + 1 for i in range(12)])
    assert found.overlap == pytest.approx(np.mean(shared), abs=0.01)
    assert found.top == pytest.approx((np.array(ranks) <= 5).mean(axis=0), abs=0.02)
    low, high = np.quantile(ranks, [0.025, 0.975], axis=0)
    assert np.abs(found.low - low).max() <= 1
    assert np.abs(found.high - high).max() <= 1


@pytest.mark.parametrize("seed", range(20))
def test_locks_are_the_certain_pairs_and_form_a_transitive_order(seed: int) -> None:
    posterior = random_posterior(seed, 15)
    locks = stated(posterior).locks(0.9)
    assert np.array_equal(locks, posterior.certainty() >= 0.9)
    place = np.empty(15, int)
    place[stated(posterior).order] = np.arange(15)
    for i, j in np.argwhere(locks):
        assert place[i] < place[j]
        for k in np.flatnonzero(locks[j]):
            assert locks[i, k]


@pytest.mark.parametrize("seed", range(5))
def test_the_reduction_is_the_smallest_relation_with_the_same_closure(seed: int) -> None:
    locks = stated(random_posterior(seed, 12)).locks(0.8)
    small = transitive_reduction(locks)

    def closure(relation: Any) -> Any:
        reach = relation.copy()
        for k in range(12):
            reach |= reach[:, k : k + 1] & reach[k]
        return reach

    assert np.array_equal(closure(small), locks)
    for i, j in np.argwhere(small):
        without = small.copy()
        without[i, j] = False
        assert not closure(without)[i, j], "a pair that others imply"


@pytest.mark.parametrize("certainty", [0.5, 1.0, float("nan")])
def test_a_lock_needs_a_certainty_between_a_half_and_one(certainty: float) -> None:
    with pytest.raises(InputError, match="of a lock"):
        stated(random_posterior(0, 3)).locks(certainty)


# -------------------------------------------------------------------------------------- quality


def test_half_the_calls_of_the_rag_gs_rule_give_a_better_order() -> None:
    pools = make_pools(10, 6)
    judge = SimulatedJudge(1.5)
    seeds = refine(pools, judge, RefineSettings(budget=1000), "seed-code")
    assert set(seeds.done) == {"stable"}
    calls = int(np.mean([r.calls for r in seeds.rankings()]) / 2)
    ours = refine(pools, judge, RefineSettings(budget=calls // 4 * 4, target=1))

    def quality(refinement: Refinement) -> float:
        return float(
            np.mean([p.ndcg(r.order) for p, r in zip(pools, refinement.rankings(), strict=True)])
        )

    assert quality(ours) > quality(seeds) + 0.02
    assert quality(ours) > np.mean([p.ndcg(by_grade(p)) for p in pools]) + 0.05


def test_a_judge_without_noise_is_followed_to_the_true_order() -> None:
    pools = make_pools(11, 3)
    refinement = refine(pools, SimulatedJudge(1000), RefineSettings(budget=80, target=1))
    for pool, found in zip(pools, refinement.rankings(), strict=True):
        assert pool.overlap(found.order) >= 0.95
        assert pool.ndcg(found.order) > 0.99


def test_a_pool_stops_when_the_expected_overlap_reaches_the_target() -> None:
    pools = make_pools(12, 6)
    refinement = refine(pools, SimulatedJudge(5), RefineSettings(target=0.85))
    assert refinement.done == ["overlap"] * 6
    for found in refinement.rankings():
        assert found.overlap >= 0.85
        assert 0 < found.calls < 80


@pytest.mark.slow
@pytest.mark.parametrize(
    "judge",
    [
        SimulatedJudge(3),
        SimulatedJudge(3, noise="normal"),
        SimulatedJudge(3, position=2),
    ],
    ids=["Plackett–Luce", "Thurstone", "position bias"],
)
def test_the_stated_overlap_is_the_true_one_on_average(judge: SimulatedJudge) -> None:
    pools = make_pools(13, 24)
    refinement = refine(pools, judge, RefineSettings(budget=80, target=0.9))
    found = refinement.rankings()
    stated = np.mean([r.overlap for r in found])
    true = np.mean([p.overlap(r.order) for p, r in zip(pools, found, strict=True)])
    assert abs(stated - true) < 0.05
    locks = [(r.locks(), p.utility) for p, r in zip(pools, found, strict=True)]
    wrong = sum(int((held & (u[:, None] < u)).sum()) for held, u in locks)
    assert wrong / sum(int(held.sum()) for held, _ in locks) < 0.05


# ------------------------------------------------------------------------------- the seed's rule


def literal_seed_step(
    score: list[float], order: Batch, turn: int
) -> tuple[list[float], dict[int, float]]:
    """One update, spelled out."""
    eta = max(0.05 / (1 + turn / 50) ** 0.5, 0.01)
    moved, information = list(score), dict.fromkeys(order, 0.0)
    delta = dict.fromkeys(order, 0.0)
    for stage, winner in enumerate(order):
        left = order[stage:]
        total = sum(np.exp(score[item]) for item in left)
        for item in left:
            p = float(np.exp(score[item]) / total)
            delta[item] += eta * ((item == winner) - p)
            information[item] += p * (1 - p)
    for item, change in delta.items():
        moved[item] += float(np.clip(change, -0.2, 0.2))
    if (turn + 1) % 50 == 0:
        mean = sum(moved) / len(moved)
        moved = [value - mean for value in moved]
    return moved, information


def test_the_seeds_rule_steps_clips_and_recentres_as_written() -> None:
    (pool,) = make_pools(14, 1)
    refiner = RagGsRefiner(pool.grade, RefineSettings(budget=120), 3, AS_PUBLISHED)
    score = [float(g) for g in pool.grade]
    information = np.full(len(score), 1e-6)
    turn = 0
    while asked := refiner.next_round():
        order = reply(pool, asked[0], SimulatedJudge(2))
        refiner.add([order])
        score, gained = literal_seed_step(score, order, turn)
        for item, value in gained.items():
            information[item] += value
        turn += 1
        assert refiner.score == pytest.approx(score, abs=1e-12)
        assert refiner.information == pytest.approx(information, abs=1e-12)
    assert turn > 50


def test_the_seeds_locks_never_form_a_cycle_and_its_order_obeys_them() -> None:
    (pool,) = make_pools(15, 1)
    refiner = RagGsRefiner(pool.grade, RefineSettings(budget=150), 1, AS_PUBLISHED)
    before = refiner.locked.copy()
    while asked := refiner.next_round():
        refiner.add([reply(pool, asked[0], SimulatedJudge(0.5))])
        assert (refiner.locked | ~before).all(), "a lock was revoked"
        before = refiner.locked.copy()
        assert not (refiner.above & refiner.above.T).any()
    assert before.sum() > 20
    place = np.empty(len(pool.grade), int)
    place[refiner.order()] = np.arange(len(pool.grade))
    for i, j in np.argwhere(refiner.locked):
        assert place[i] < place[j]


def test_the_seeds_rule_locks_a_pair_at_its_second_win() -> None:
    refiner = RagGsRefiner([3.0, 3.0, 3.0, 3.0, 3.0], RefineSettings(batch=5))
    refiner.next_round()
    refiner.add([(4, 3, 2, 1, 0)])
    assert not refiner.locked.any()
    refiner.add([(4, 3, 2, 1, 0)])
    assert refiner.order().tolist() == [4, 3, 2, 1, 0]
    assert refiner.above.sum() == 10
    refiner.add([(0, 1, 2, 3, 4)])
    assert refiner.order().tolist() == [4, 3, 2, 1, 0], "a lock holds against what is judged later"


def test_the_papers_rule_stops_after_three_quiet_turns_and_its_code_after_fifteen() -> None:
    (pool,) = make_pools(4, 1)
    turns = {}
    for constants in (RagGsConstants(), AS_PUBLISHED):
        refiner = RagGsRefiner(pool.grade, RefineSettings(budget=1000), 1, constants)
        orders = []
        while asked := refiner.next_round():
            refiner.add([reply(pool, batch, SimulatedJudge(3.0)) for batch in asked])
            orders.append(refiner.order()[:20].tolist())
        quiet = constants.stable
        assert all(order == orders[-1] for order in orders[-quiet - 1 :])
        assert refiner.done == "stable"
        turns[quiet] = len(orders)
    assert turns[3] < turns[15]


def test_the_papers_rule_locks_by_the_scores_after_the_step() -> None:
    # One call moves two level passages apart: with no doubt left, the scores after it lock them.
    sure = RagGsConstants(margin=0.0, confirmations=9)
    for constants, locked in ((sure, 1), (replace(sure, lock_after=False), 0)):
        refiner = RagGsRefiner([3.0, 3.0], RefineSettings(batch=2), 0, constants)
        refiner.add([refiner.next_round()[0]])
        assert refiner.locked.sum() == locked
