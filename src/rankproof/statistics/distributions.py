"""Normal, Student's t and beta distributions: what intervals and power need, without scipy."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from rankproof.foundation.arrays import Array, Float

_NORMAL = NormalDist()
_STEPS = 300  # of the continued fraction; it converges in O(√max(a, b))
_TINY = 1e-300


def normal_cdf(x: Array) -> Float:
    """Φ(x) of each value."""
    flat = [0.5 * math.erfc(-value / math.sqrt(2.0)) for value in np.ravel(x).tolist()]
    return np.array(flat, np.float64).reshape(np.shape(x))


def normal_quantile(p: float) -> float:
    """Φ⁻¹(p)."""
    return _NORMAL.inv_cdf(p)


def beta_cdf(x: Array, a: float, b: float) -> Float:
    """I_x(a, b) of each value, by Lentz's continued fraction."""
    values = np.clip(np.atleast_1d(np.asarray(x, np.float64)), 0.0, 1.0)
    turned = values > (a + 1.0) / (a + b + 2.0)  # where the other tail converges faster
    found = np.empty_like(values)
    found[~turned] = _lower(values[~turned], a, b)
    found[turned] = 1.0 - _lower(1.0 - values[turned], b, a)
    return found.reshape(np.shape(x))


def _lower(x: Float, a: float, b: float) -> Float:
    with np.errstate(divide="ignore"):
        front = np.exp(
            math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * np.log(x) + b * np.log1p(-x)
        )
    c = np.ones_like(x)
    d = _away(1.0 - (a + b) * x / (a + 1.0))
    d = 1.0 / d
    h = d.copy()
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _away(1.0 + term * d)
            c = _away(1.0 + term / c)
            step = c * d
            h = h * step
        if not len(x) or np.abs(step - 1.0).max() < 1e-15:
            break
    return np.where(x > 0, front * h / a, 0.0)


def _away(x: Float) -> Float:
    return np.where(np.abs(x) < _TINY, _TINY, x)


def t_tail(t: Array, df: float) -> Float:
    """P(|T| ≥ |t|) of each value, two-sided."""
    squared = np.square(np.asarray(t, np.float64))
    return beta_cdf(df / (df + squared), df / 2.0, 0.5)


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """The p-quantile of Student's t, p ≥ ½, by bisection of its tail."""
    low, high = 0.0, 2.0
    while float(t_tail(np.array(high), df)) > 2.0 * (1.0 - p):
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        if float(t_tail(np.array(middle), df)) > 2.0 * (1.0 - p):
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


@lru_cache(maxsize=4096)
def largest_share(count: int, of: int, confidence: float) -> float:
    """Clopper and Pearson's upper bound of a share of which `count` were seen among `of`."""
    if count >= of:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2.0
        seen = 1.0 - float(beta_cdf(np.array(middle), count + 1.0, float(of - count)))
        low, high = (middle, high) if seen > 1.0 - confidence else (low, middle)
    return high
