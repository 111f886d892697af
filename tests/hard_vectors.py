"""Vectors that are hard to search: nearly equal, equal, sorted, huge, tiny; seeded."""

from __future__ import annotations

import numpy as np

from rankproof.foundation.arrays import Array


def hard_vectors(
    queries: int = 7, documents: int = 1500, dimensions: int = 70
) -> dict[str, tuple[Array, Array]]:
    """Queries and documents by the name of what is hard about them."""
    rng = np.random.default_rng(12)
    q, d = (rng.normal(size=(n, dimensions)) for n in (queries, documents))
    one = rng.normal(size=dimensions)
    near = np.tile(one, (documents, 1)).astype(np.float32)
    near[np.arange(documents), rng.integers(0, dimensions, documents)] *= np.float32(1 + 2**-22)
    mixed = d * 10.0 ** rng.integers(-12, 12, (documents, 1))
    huge = d * 10.0 ** rng.uniform(17, 19, (documents, 1))
    huge[::50] = 3e38 * np.sign(d[::50])
    cancelling = d.copy()
    half = dimensions // 2
    cancelling[:, 1::2] = -cancelling[:, 0 : 2 * half : 2]
    cancelling[np.arange(documents), rng.integers(0, dimensions, documents)] += 1e-6
    signs = np.repeat(q[:, ::2], 2, axis=1)[:, :dimensions]
    sparse = np.where(rng.random(d.shape) < 0.02, d, 0.0)
    made: dict[str, tuple[Array, Array]] = {
        "random": (q, d),
        "within a few ulp": (q, near),
        "all equal": (q, np.tile(one, (documents, 1))),
        "repeated": (q, d[rng.integers(0, 20, documents)]),
        "rising": (q[:1].repeat(queries, 0), np.outer(np.linspace(1, 2, documents), q[0])),
        "falling": (q[:1].repeat(queries, 0), np.outer(np.linspace(2, 1, documents), q[0])),
        "of all lengths": (q, mixed),
        "huge": (q * 1e18, huge),
        "below normal": (q * 1e-20, d * 1e-23),
        "below normal themselves": (q * 1e30, d * 1e-43),
        "cancelling": (signs, cancelling),
        "zeros": (q, np.zeros_like(d)),
        "mostly zeros": (q, sparse),
        "whole numbers": (np.rint(q), np.rint(d)),
    }
    return {name: (a.astype(np.float32), b.astype(np.float32)) for name, (a, b) in made.items()}
