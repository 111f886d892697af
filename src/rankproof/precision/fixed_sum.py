"""A sum of products with the same bits on every machine, and how far a fast product may be from it.

A BLAS product depends on the kernel chosen for the processor, on the shape of the block and on the
number of threads. It only finds; what it found is scored by one sum that IEEE arithmetic fixes:

    lane_j = ((x_j + x_{j+32}) + x_{j+64}) + …,  j = 0 … 31,  x_i = q_i · d_i in float64, exact
    16, 8, 4, 2, 1 times: lane_j = lane_j + lane_{j + half}
    score = lane_0, rounded to float32

In C (`_fixed.c`) where it was compiled, otherwise numpy; gpu_scores.py does the same on a GPU.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankproof.foundation.arrays import Array, Float


def compiled(name: str) -> Any:
    """A module of compiled code; None where there is none, or it is not wanted."""
    try:
        wanted = os.environ.get("RANKPROOF_NATIVE") != "0"
        return importlib.import_module(f"rankproof.precision.{name}") if wanted else None
    except ImportError:
        return None


native: Any = compiled("_fixed")

LANES = 32
THREADS = max(1, min(8, os.cpu_count() or 1))
_CELLS = 1 << 20  # float64 numbers held at a time
_SMALL = 1 << 18  # products below which a second thread costs more than it saves
CPU, GPU = 2.0**-24, 2.0**-23  # what one float32 operation loses; tensor cores truncate


@contextmanager
def keep_subnormals() -> Iterator[None]:
    """Keep numbers below the smallest normal one, whatever this thread was told.

    `torch.set_flush_denormal(True)`, or a library built with -ffast-math, makes them 0 in numpy
    too. Without compiled code there is no way to tell the processor.
    """
    before = None if native is None else native.usual()
    try:
        yield
    finally:
        if before is not None:
            native.restore(before)


@dataclass(frozen=True, slots=True)
class Slack:
    """How far a product may lie from the fixed sum: factor · length + extra.

    Any order of float32 sums errs by at most γ Σ|q_i d_i| ≤ γ ‖q‖ ‖d‖, γ = n u / (1 − n u) for
    n = D operations; eight more cover the rounding of the fixed sum and of these bounds. Where
    numbers below the smallest normal one are taken for zero, each term may lose as much again.
    """

    factor: Array  # (Q,) float32
    extra: Array  # (Q,) float32
    lengths: Array  # (B,) float32, infinite where the product may overflow

    def __getitem__(self, queries: Any) -> Slack:
        return Slack(self.factor[queries], self.extra[queries], self.lengths)

    def bounds(self, scores: Array) -> tuple[Array, Array]:
        """Below and above the fixed sums of scores (Q, B)."""
        with np.errstate(invalid="ignore", over="ignore"):
            away = self.factor.astype(np.float64)[:, None] * self.lengths + self.extra[:, None]
            low, high = (scores - away).astype(np.float32), (scores + away).astype(np.float32)
        low[np.isnan(low)] = -np.inf  # it may be anything
        high[np.isnan(high)] = np.inf
        return low, high


def slack_of(queries: Float, documents: Array, dimensions: int) -> Slack:
    """For products of queries (Q,) and documents (B,) of these lengths; float32 ones are bounds."""
    steps = (dimensions + 8) * CPU
    tiny = 2.0**-124 * (dimensions + 8)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        factor = (steps / (1 - steps) if steps < 0.5 else np.inf) * queries + tiny
        extra = tiny * (1 + queries)
        bound = documents if documents.dtype == np.float32 else round_up(documents)
        safe = 2.0**126 / max(1.0, queries.max(initial=0.0))
        if bound.max(initial=0.0) >= safe:
            bound = np.where(bound >= safe, np.float32(np.inf), bound)
        return Slack(round_up(factor), round_up(extra), bound)


def round_up(values: Float) -> Array:
    """float32 numbers that are not below these."""
    with np.errstate(over="ignore", under="ignore"):
        return np.nextafter(values.astype(np.float32), np.float32(np.inf))


@functools.cache
def threads() -> ThreadPoolExecutor:
    """Kept, since a small search takes no longer than to start them; see `keep_subnormals`."""
    return ThreadPoolExecutor(THREADS, initializer=None if native is None else native.usual)


if hasattr(os, "register_at_fork"):  # a child of this process has none of its threads
    os.register_at_fork(after_in_child=threads.cache_clear)


def run_on_threads(work: Callable[[int, int], Any], count: int, products: int) -> None:
    """`work(low, high)` over [0, count), on every core where that is worth it."""
    pieces = min(THREADS, count) if products > _SMALL else 1
    if pieces <= 1:
        work(0, count)
        return
    cuts = [count * i // pieces for i in range(pieces + 1)]
    list(threads().map(work, cuts[:-1], cuts[1:]))


def paired_sums(a: Array, b: Array) -> Float:
    """(n,) float64 the sum of products of each row of `a` (n, D) with that of `b` (n, D)."""
    sums = np.empty(len(a), np.float64)
    if native is not None:
        a, b = _in_rows(a), _in_rows(b)
        run_on_threads(lambda low, high: native.rows(a, b, sums, low, high), len(a), a.size)
        return sums
    step = max(1, _CELLS // max(1, a.shape[1]))
    for low in range(0, len(a), step):
        some = slice(low, low + step)
        sums[some] = _sum(a[some].astype(np.float64) * b[some])
    return sums


def lengths(values: Array) -> Float:
    """(n,) float64 the length of each vector (n, D) float32; not finite where a number is not."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.sqrt(paired_sums(values, values))


def length_bounds(values: Array) -> Array:
    """(n,) float32 not below the length of each vector (n, D) float32, and hardly above.

    NaN where a number is not finite.
    """
    if native is not None:
        values, out = _in_rows(values), np.empty(len(values), np.float32)
        run_on_threads(
            lambda low, high: native.bounds(values, out, low, high), len(out), values.size
        )
        return out
    length = lengths(values)
    return np.where(np.isfinite(length), round_up(length), np.float32(np.nan))


def row_means(values: Array) -> Array:
    """(n, 1) float32 the mean of each row (n, D) float32."""
    ones = np.broadcast_to(np.float32(1.0), values.shape[1:])
    sums = paired_sums(values, np.broadcast_to(np.ascontiguousarray(ones), values.shape))
    mean: Array = (sums / max(1, values.shape[1])).astype(np.float32)
    return mean[:, None]


def normalize(values: Array, length: Float | None = None) -> Array:
    """float32 vectors (n, D) at length 1, rounded once; one of zeros stays."""
    length = lengths(values) if length is None else length
    divisor = np.where(length > 0, length, 1.0)
    out = np.empty(values.shape, np.float32)
    if native is not None:
        values = _in_rows(values)
        run_on_threads(
            lambda low, high: native.divide(values, divisor, out, low, high), len(out), out.size
        )
        return out
    step = max(1, _CELLS // max(1, values.shape[1]))
    for low in range(0, len(out), step):
        some = slice(low, low + step)
        out[some] = values[some] / divisor[some, None]
    return out


def pairs(
    queries: Array, documents: Array, start: Array, chosen: Array, out: Array, first: int = 0
) -> None:
    """out (P,) float32 the scores of rows chosen[start[q]:start[q+1]], ascending, for each query.

    `documents` are the rows from `first` on; what is chosen of others stays as it is.
    """
    start, chosen = (np.ascontiguousarray(x, np.int64) for x in (start, chosen))
    if native is not None:
        queries, documents = _in_rows(queries), _in_rows(documents)
        run_on_threads(
            lambda low, high: native.pairs(
                queries, documents, first, start, chosen, out, low, high
            ),
            len(queries),
            len(chosen) * queries.shape[1],
        )
        return
    here = np.flatnonzero((chosen >= first) & (chosen < first + len(documents)))
    owner = np.repeat(np.arange(len(queries)), np.diff(start))
    step = max(1, _CELLS // max(1, queries.shape[1]))
    for low in range(0, len(here), step):
        some = here[low : low + step]
        products = queries[owner[some]].astype(np.float64)
        products *= documents[chosen[some] - first]
        with np.errstate(over="ignore", invalid="ignore"):
            out[some] = _sum(products).astype(np.float32) + np.float32(0.0)


def products(query: Array, documents: Array) -> Array:
    """(N,) float32 the products of one query (1, D) with documents (N, D): fast, no fixed sum.

    Not by BLAS, whose threads wait for each other longer than this takes wherever a machine has
    more to do than this.
    """
    out = np.empty(len(documents), np.float32)
    if native is None:
        with keep_subnormals():
            return np.matmul(documents, query[0], out=out)
    documents = _in_rows(documents)
    run_on_threads(
        lambda low, high: native.products(query, documents, out, low, high),
        len(out),
        documents.size >> 4,  # a quick product: 16 of them take as long as one fixed sum
    )
    return out


@keep_subnormals()
def matrix(queries: Array, documents: Array) -> Array:
    """(Q, N) float32 the scores of all pairs.

    Any float64 product is so near to the fixed sum that both round to the same float32, but for
    a few that lie in the middle between two: those are summed.
    """
    scores = np.empty((len(queries), len(documents)), np.float32)
    wide = queries.astype(np.float64)
    reach = lengths(queries) * ((queries.shape[1] + 8) * 2.0**-51)
    step = max(1, _CELLS // max(1, len(queries), queries.shape[1]))
    for first in range(0, len(documents), step):
        some = documents[first : first + step]
        with np.errstate(over="ignore", invalid="ignore"):
            product = wide @ some.T.astype(np.float64)
            away = reach[:, None] * lengths(some)
            low, high = ((product + sign * away).astype(np.float32) for sign in (-1.0, 1.0))
        block = low + np.float32(0.0)
        doubtful = low != high
        if doubtful.any():
            start = np.append(0, np.cumsum(doubtful.sum(axis=1)))
            out = np.empty(start[-1], np.float32)
            pairs(queries, some, start, np.nonzero(doubtful)[1], out)
            block[doubtful] = out
        scores[:, first : first + step] = block
    return scores


def _in_rows(values: Array) -> Array:
    """The same with each row's numbers side by side, at addresses that a processor reads."""
    alike = values.strides[1] == 4 and values.flags.aligned
    return values if alike else np.array(values, order="C")


def _sum(products: Float) -> Float:
    """(n,) products (n, D) in lanes, then pairwise."""
    count, dimensions = products.shape
    lanes = np.zeros((count, LANES), np.float64)
    for first in range(0, dimensions, LANES):
        some = products[:, first : first + LANES]
        lanes[:, : some.shape[1]] += some
    half = LANES // 2
    while half:
        lanes[:, :half] += lanes[:, half : 2 * half]
        half //= 2
    return lanes[:, 0]
