"""One pool's posterior with its log evidence, which tests compare with slopes and integrals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankproof.foundation.arrays import Float
from rankproof.golden.plackett_luce import OrderTable, Posterior, find_modes, invert_symmetric


@dataclass(frozen=True, slots=True)
class LaplaceFit(Posterior):
    """A posterior, and the log evidence of the orders by Laplace's approximation."""

    evidence: float = math.nan


def fit_posterior(
    orders: Sequence[Sequence[int]],
    prior_mean: Float,
    prior_precision: Float | float,
    start: Float | None = None,
) -> LaplaceFit:
    """Fit a pool under the prior N(mean, precision⁻¹); the precision is a number or (n,)."""
    mean = np.asarray(prior_mean, np.float64)
    precision = np.broadcast_to(np.asarray(prior_precision, np.float64), mean.shape)
    table = OrderTable.from_orders(orders, len(mean))
    theta, _ = find_modes(table, mean, precision, start)
    value, _, hessian = table.derivatives(theta)
    hessian += np.diag(precision)
    evidence = float(value) - 0.5 * float(np.sum(precision * (theta - mean) ** 2))
    evidence += 0.5 * float(np.sum(np.log(precision)) - np.linalg.slogdet(hessian)[1])
    return LaplaceFit(theta, invert_symmetric(hessian), evidence)
