"""The Plackett–Luce posterior against its definition, finite differences and choix."""

from __future__ import annotations

import math
from itertools import permutations

import choix
import numpy as np
import pytest
from laplace_fit import fit_posterior

from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError
from rankproof.golden.plackett_luce import (
    OrderTable,
    Posterior,
    find_modes,
    invert_symmetric,
)

Orders = list[tuple[int, ...]]


def literal_log_likelihood(orders: Orders, theta: Float) -> float:
    total = 0.0
    for order in orders:
        for stage in range(len(order)):
            left = [math.exp(theta[item]) for item in order[stage:]]
            total += theta[order[stage]] - math.log(sum(left))
    return total


def random_orders(seed: int, items: int, count: int, sizes: tuple[int, int]) -> Orders:
    draw = np.random.default_rng(seed)
    theta = draw.normal(size=items)
    orders = []
    for _ in range(count):
        batch = draw.choice(items, size=int(draw.integers(sizes[0], sizes[1] + 1)), replace=False)
        seen = theta[batch] + draw.gumbel(size=len(batch))
        orders.append(tuple(int(item) for item in batch[np.argsort(-seen)]))
    return orders


def test_the_probabilities_of_all_orders_of_a_batch_sum_to_one() -> None:
    theta = np.array([0.3, -1.2, 2.0, 0.0, 5.0])
    total = sum(
        math.exp(OrderTable.from_orders([order], 5).log_likelihood(theta))
        for order in permutations((0, 2, 3, 4))
    )
    assert total == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("sizes", [(2, 2), (5, 5), (1, 8)])
def test_likelihood_gradient_and_hessian_agree_with_the_definition(sizes: tuple[int, int]) -> None:
    orders = random_orders(1, 8, 30, sizes)
    theta = np.random.default_rng(2).normal(size=8)
    value, gradient, hessian = OrderTable.from_orders(orders, 8).derivatives(theta)
    assert value == pytest.approx(literal_log_likelihood(orders, theta), rel=1e-12)
    step = 1e-5
    for i in range(8):
        unit = step * np.eye(8)[i]
        up, down = (literal_log_likelihood(orders, theta + s * unit) for s in (1, -1))
        assert gradient[i] == pytest.approx((up - down) / (2 * step), abs=1e-6)
        slope = [
            OrderTable.from_orders(orders, 8).derivatives(theta + s * unit)[1] for s in (1, -1)
        ]
        assert hessian[i] == pytest.approx((slope[1] - slope[0]) / (2 * step), abs=1e-6)


@pytest.mark.parametrize("sizes", [(8, 8), (2, 6)], ids=["complete", "partial"])
@pytest.mark.parametrize("alpha", [0.01, 0.5])
def test_the_mode_is_that_of_choix_under_the_same_prior(
    sizes: tuple[int, int], alpha: float
) -> None:
    orders = random_orders(3, 8, 15, sizes)
    peer = choix.opt_rankings(8, orders, alpha=alpha, method="Newton-CG", tol=1e-12)
    found = fit_posterior(orders, np.zeros(8), 2 * alpha)  # choix subtracts α Σθ²
    assert found.mean == pytest.approx(peer, abs=1e-6)


def test_with_a_flat_prior_the_mode_is_the_maximum_of_the_likelihood() -> None:
    orders = random_orders(4, 7, 120, (3, 5))
    peer = choix.ilsr_rankings(7, orders, alpha=0.0, tol=1e-12)
    found = fit_posterior(orders, np.zeros(7), 1e-9)
    assert found.mean - found.mean.mean() == pytest.approx(peer - peer.mean(), abs=1e-6)


def test_the_posterior_is_the_prior_when_nothing_was_judged() -> None:
    mean = np.array([1.0, -2.0, 0.5])
    for orders in ([], [()], [(1,), (2,)]):
        found = fit_posterior(orders, mean, np.array([1.0, 4.0, 0.25]))
        assert found.mean == pytest.approx(mean, abs=1e-15)
        assert found.covariance == pytest.approx(np.diag([1, 0.25, 4]), abs=1e-15)
        assert found.evidence == pytest.approx(0, abs=1e-12)


def test_a_precision_may_be_a_number_or_a_diagonal() -> None:
    orders = random_orders(5, 6, 10, (3, 3))
    mean = np.arange(6.0)
    first, other = (fit_posterior(orders, mean, form) for form in (2.0, np.full(6, 2.0)))
    assert np.array_equal(first.mean, other.mean)
    assert np.array_equal(first.covariance, other.covariance)


def test_stacked_pools_give_the_same_as_each_pool_alone() -> None:
    draw = np.random.default_rng(9)
    sizes, n = (8, 5, 3), 8
    orders = [random_orders(at, size, 6, (2, size)) for at, size in enumerate(sizes)]
    orders[2] = []  # nobody judged it
    tables = [
        OrderTable.from_orders(some, size, draw.uniform(0.5, 2, len(some)))
        for some, size in zip(orders, sizes, strict=True)
    ]
    joined = OrderTable.stack(tables, n)
    theta, mean = draw.normal(size=(2, 3, n))
    precision = draw.uniform(0.5, 2, (3, n))
    value, gradient, hessian = joined.derivatives(theta)
    found, spread = find_modes(joined, mean, precision), invert_symmetric(hessian + np.eye(n))
    flatter = joined.curvature_gradient(theta, spread)
    for at, (table, size) in enumerate(zip(tables, sizes, strict=True)):
        own = slice(size)
        alone = table.derivatives(theta[at, own])
        assert value[at] == pytest.approx(alone[0]) == table.log_likelihood(theta[at, own])
        assert gradient[at, own] == pytest.approx(alone[1])
        assert hessian[at, own, own] == pytest.approx(alone[2])
        assert not hessian[at, size:].any()
        assert not hessian[at, :, size:].any()
        mode, curved = find_modes(table, mean[at, own], precision[at, own])
        assert found[0][at, own] == pytest.approx(mode)
        assert found[1][at, own, own] == pytest.approx(curved, abs=1e-4)
        assert found[0][at, size:] == pytest.approx(mean[at, size:])
        assert flatter[at, own] == pytest.approx(
            table.curvature_gradient(theta[at, own], spread[at, own, own])
        )


def test_curvature_gradient_is_the_gradient_of_the_trace_of_the_hessian() -> None:
    draw = np.random.default_rng(10)
    judged = OrderTable.from_orders(random_orders(4, 6, 9, (2, 6)), 6, draw.uniform(0.5, 2, 9))
    theta, root = draw.normal(size=6), draw.normal(size=(6, 6))
    spread = root @ root.T

    def trace(at: Float) -> float:
        return -0.5 * float(np.trace(spread @ judged.derivatives(at)[2]))

    found = judged.curvature_gradient(theta, spread)
    for i, axis in enumerate(1e-5 * np.eye(6)):
        slope = (trace(theta + axis) - trace(theta - axis)) / 2e-5
        assert found[i] == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize("start", [0.0, 30.0, -500.0])
def test_every_start_leads_to_the_same_mode(start: float) -> None:
    orders = random_orders(6, 9, 25, (2, 5))
    plain = fit_posterior(orders, np.zeros(9), 0.3)
    far = fit_posterior(orders, np.zeros(9), 0.3, start=start * np.linspace(-1, 1, 9))
    assert far.mean == pytest.approx(plain.mean, abs=1e-9)


def test_a_prior_far_from_the_judgements_still_converges() -> None:
    orders: Orders = [(0, 1, 2)] * 50
    mean = np.array([-400.0, 0.0, 400.0])
    found = fit_posterior(orders, mean, 1e-3)
    judged = OrderTable.from_orders(orders, 3)
    _, gradient, _ = judged.derivatives(found.mean)
    assert gradient - 1e-3 * (found.mean - mean) == pytest.approx(np.zeros(3), abs=1e-8)
    assert found.mean[0] > found.mean[1] > found.mean[2]


def test_the_evidence_is_close_to_the_integral() -> None:
    orders: Orders = [*[(0, 1)] * 14, *[(1, 0)] * 6]
    precision = 0.5
    found = fit_posterior(orders, np.zeros(2), precision)
    # Only the difference matters: it is normal with variance 2/precision.
    d = np.linspace(-40, 40, 400_001)
    density = np.exp(-(d**2) * precision / 4) / math.sqrt(4 * math.pi / precision)
    likelihood = np.exp(-14 * np.logaddexp(0, -d) - 6 * np.logaddexp(0, d))
    exact = math.log(float(np.sum(density * likelihood) * (d[1] - d[0])))
    assert found.evidence == pytest.approx(exact, abs=0.02)


def test_samples_have_the_mean_the_covariance_and_the_pairwise_certainty() -> None:
    posterior = fit_posterior(random_orders(7, 5, 12, (3, 4)), np.zeros(5), 0.7)
    drawn = posterior.sample(np.random.default_rng(8), 200_000)
    assert drawn.mean(axis=0) == pytest.approx(posterior.mean, abs=0.02)
    assert np.cov(drawn.T) == pytest.approx(posterior.covariance, abs=0.03)
    wins = (drawn[:, :, None] > drawn[:, None, :]).mean(axis=0)
    off = ~np.eye(5, dtype=bool)
    certainty = posterior.certainty()
    assert certainty[off] == pytest.approx(wins[off], abs=0.005)
    assert np.array_equal(np.diag(certainty), np.full(5, 0.5))
    assert posterior.sd == pytest.approx(drawn.std(axis=0), abs=0.02)


def test_certainty_of_utilities_known_exactly_is_zero_or_one() -> None:
    posterior = Posterior(np.array([1.0, 0.0, 0.0]), np.zeros((3, 3)))
    expected = [[0.5, 1, 1], [0, 0.5, 0.5], [0, 0.5, 0.5]]
    assert posterior.certainty().tolist() == expected


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ((0, 1, 0), "order (0, 1, 0) repeats an item"),
        ((0, 4), "order (0, 4) holds an item outside the pool"),
        ((-1, 2), "order (-1, 2) holds an item outside the pool"),
    ],
)
def test_an_invalid_order_is_refused(order: tuple[int, ...], words: str) -> None:
    with pytest.raises(InputError) as caught:
        fit_posterior([(1, 2), order], np.zeros(4), 1.0)
    assert words in str(caught.value)
    assert str(caught.value).startswith("judgement 2: ")
    assert "0 to 3" in str(caught.value)
