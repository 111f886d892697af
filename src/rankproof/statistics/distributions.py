"""Normal, Student's t and beta distributions, as intervals and power need them, without scipy."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from rankproof.foundation.arrays import Array, Float

_MAX_STEPS = 300  # of the continued fraction; it converges in O(√max(a, b))
_SMALLEST = 1e-300  # stands in for 0 in a denominator


def normal_cdf(x: Array) -> Float:
    """Φ(x) of each value."""
    flat = [0.5 * math.erfc(-value / math.sqrt(2.0)) for value in np.ravel(x).tolist()]
    return np.array(flat, np.float64).reshape(np.shape(x))


def normal_quantile(p: float) -> float:
    """Φ⁻¹(p)."""
    from statistics import NormalDist  # takes longer to load than a small evaluation

    return NormalDist().inv_cdf(p)


def beta_cdf(x: Array, a: float, b: float) -> Float:
    """I_x(a, b) of each value, by Lentz's continued fraction."""
    values = np.clip(np.atleast_1d(np.asarray(x, np.float64)), 0.0, 1.0)
    is_upper = values > (a + 1.0) / (a + b + 2.0)  # the other tail converges faster there
    cdf = np.empty_like(values)
    cdf[~is_upper] = _continued_fraction(values[~is_upper], a, b)
    cdf[is_upper] = 1.0 - _continued_fraction(1.0 - values[is_upper], b, a)
    return cdf.reshape(np.shape(x))


def _continued_fraction(x: Float, a: float, b: float) -> Float:
    """I_x(a, b) for x in the lower tail."""
    with np.errstate(divide="ignore"):
        front = np.exp(
            math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * np.log(x) + b * np.log1p(-x)
        )
    c = np.ones_like(x)
    d = 1.0 / _nonzero(1.0 - (a + b) * x / (a + 1.0))
    h = d.copy()
    for m in range(1, _MAX_STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _nonzero(1.0 + term * d)
            c = _nonzero(1.0 + term / c)
            step = c * d
            h = h * step
        if not len(x) or np.abs(step - 1.0).max() < 1e-15:
            break
    return np.where(x > 0, front * h / a, 0.0)


def _nonzero(x: Float) -> Float:
    return np.where(np.abs(x) < _SMALLEST, _SMALLEST, x)


def t_tail(t: Array, df: float) -> Float:
    """P(|T| ≥ |t|) of each value, two-sided."""
    squared = np.square(np.asarray(t, np.float64))
    return beta_cdf(df / (df + squared), df / 2.0, 0.5)


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """The p-quantile of Student's t, p ≥ ½, by Newton's method.

    The tail is convex, so that steps from 0 approach the quantile from below.
    """
    log_height = math.lgamma((df + 1.0) / 2.0) - math.lgamma(df / 2.0) - math.log(df * math.pi) / 2
    t = 0.0
    for _ in range(100):
        density = math.exp(log_height - (df + 1.0) / 2.0 * math.log1p(t * t / df))
        step = (float(t_tail(np.array(t), df)) - 2.0 * (1.0 - p)) / (2.0 * density)
        t += step
        if step <= 1e-15 * t:
            break
    return t


@lru_cache(maxsize=4096)
def share_upper_bound(count: int, of: int, confidence: float) -> float:
    """Clopper and Pearson's upper bound of a share, when `count` were observed among `of`."""
    if count >= of:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2.0
        tail = 1.0 - float(beta_cdf(np.array(middle), count + 1.0, float(of - count)))
        low, high = (middle, high) if tail > 1.0 - confidence else (low, middle)
    return high
