"""A sum of products with the same bits on every machine, and how far a fast product may be from it.

The last bits of a BLAS product depend on the processor, the shape of the block and the number of
threads. So a product only selects documents; the selected ones are scored by a sum whose every step
is one IEEE operation in a fixed order (the fixed sum):

    lane_j = ((x_j + x_{j+32}) + x_{j+64}) + …,  j = 0 … 31,  x_i = q_i · d_i in float64, exact
    16, 8, 4, 2, 1 times: lane_j = lane_j + lane_{j + half}
    score = lane_0, rounded to float32

In C (`_fixed.c`) where it was compiled, otherwise numpy; gpu_scores.py does the same on a GPU.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankproof.foundation.arrays import Array, Float


def compiled(name: str) -> Any:
    """Return a module of compiled code; None if it was not built or RANKPROOF_NATIVE is 0."""
    try:
        is_allowed = os.environ.get("RANKPROOF_NATIVE") != "0"
        return importlib.import_module(f"rankproof.precision.{name}") if is_allowed else None
    except ImportError:
        return None


native: Any = compiled("_fixed")

LANES = 32
THREADS = max(1, min(8, os.cpu_count() or 1))
_BLOCK_NUMBERS = 1 << 20  # float64 numbers in memory at a time
_ONE_THREAD = 1 << 18  # products below which a second thread costs more than it saves
CPU, GPU = 2.0**-24, 2.0**-23  # relative error of a float32 operation; tensor cores truncate


@contextmanager
def keep_subnormals() -> Iterator[None]:
    """Keep numbers below the smallest normal one, even where this thread flushes them to 0.

    `torch.set_flush_denormal(True)`, or a library built with -ffast-math, makes them 0 in numpy
    too. Without compiled code this does nothing: only C can set the processor's mode.
    """
    before = None if native is None else native.usual()
    try:
        yield
    finally:
        if before is not None:
            native.restore(before)


@dataclass(frozen=True, slots=True)
class Slack:
    """The largest distance of a product from the fixed sum: factor · length + extra.

    A float32 sum of n = D products in any order errs by at most γ Σ|q_i d_i| ≤ γ ‖q‖ ‖d‖ with
    γ = n u / (1 − n u) (Higham 2002, Section 3.1). Eight more operations cover the rounding of the
    fixed sum and of these bounds; `tiny` covers hardware that flushes subnormal numbers to zero.
    """

    factor: Array  # (Q,) float32
    extra: Array  # (Q,) float32
    lengths: Array  # (B,) float32, infinite where the product may overflow

    def __getitem__(self, queries: Any) -> Slack:
        """Return the slack of some of the queries."""
        return Slack(self.factor[queries], self.extra[queries], self.lengths)

    def bounds(self, scores: Array) -> tuple[Array, Array]:
        """Return lower and upper bounds of the fixed sums, given products (Q, B)."""
        with np.errstate(invalid="ignore", over="ignore"):
            reach = self.factor.astype(np.float64)[:, None] * self.lengths + self.extra[:, None]
            low, high = (scores - reach).astype(np.float32), (scores + reach).astype(np.float32)
        low[np.isnan(low)] = -np.inf  # after an overflow the sum may be anything
        high[np.isnan(high)] = np.inf
        return low, high


def slack_of(queries: Float, documents: Array, dimensions: int) -> Slack:
    """Return the slack of products of queries and documents, given lengths (Q,) and (B,).

    Document lengths in float32 must be upper bounds; others are rounded up.
    """
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
    """Return float32 numbers that are not below these."""
    with np.errstate(over="ignore", under="ignore"):
        return np.nextafter(values.astype(np.float32), np.float32(np.inf))


@functools.cache
def threads() -> ThreadPoolExecutor:
    """Return the thread pool of this process, which is kept since starting threads is slow.

    Its threads keep subnormal numbers (`keep_subnormals`).
    """
    return ThreadPoolExecutor(THREADS, initializer=None if native is None else native.usual)


if hasattr(os, "register_at_fork"):  # a forked child has none of the parent's threads
    os.register_at_fork(after_in_child=threads.cache_clear)


def run_on_threads(work: Callable[[int, int], Any], count: int, products: float = math.inf) -> None:
    """Call `work(low, high)` on parts of [0, count) in threads; in this one if products are few."""
    pieces = min(THREADS, count) if products > _ONE_THREAD else 1
    if pieces <= 1:
        work(0, count)
        return
    cuts = [count * i // pieces for i in range(pieces + 1)]
    list(threads().map(work, cuts[:-1], cuts[1:]))


def paired_sums(a: Array, b: Array) -> Float:
    """Return the fixed sums (n,) float64 of each row of `a` (n, D) with the same row of `b`."""
    sums = np.empty(len(a), np.float64)
    if native is not None:
        a, b = _contiguous_rows(a), _contiguous_rows(b)
        run_on_threads(lambda low, high: native.rows(a, b, sums, low, high), len(a), a.size)
        return sums
    step = max(1, _BLOCK_NUMBERS // max(1, a.shape[1]))
    for low in range(0, len(a), step):
        block = slice(low, low + step)
        sums[block] = _sum_lanes(a[block].astype(np.float64) * b[block])
    return sums


def lengths(values: Array) -> Float:
    """Return the lengths (n,) float64 of vectors (n, D) float32; not finite if a number is not."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.sqrt(paired_sums(values, values))


def length_bounds(values: Array) -> Array:
    """Return tight float32 upper bounds (n,) of the lengths of vectors (n, D) float32.

    NaN where a number is not finite.
    """
    if native is not None:
        values, out = _contiguous_rows(values), np.empty(len(values), np.float32)
        run_on_threads(
            lambda low, high: native.bounds(values, out, low, high), len(out), values.size
        )
        return out
    length = lengths(values)
    return np.where(np.isfinite(length), round_up(length), np.float32(np.nan))


def row_means(values: Array) -> Array:
    """Return the mean (n, 1) float32 of each row (n, D) float32."""
    ones = np.broadcast_to(np.float32(1.0), values.shape[1:])
    sums = paired_sums(values, np.broadcast_to(np.ascontiguousarray(ones), values.shape))
    mean: Array = (sums / max(1, values.shape[1])).astype(np.float32)
    return mean[:, None]


def normalize(values: Array, length: Float | None = None) -> Array:
    """Return float32 vectors (n, D) at length 1, each number rounded once; zeros stay zeros."""
    length = lengths(values) if length is None else length
    divisor = np.where(length > 0, length, 1.0)
    out = np.empty(values.shape, np.float32)
    if native is not None:
        values = _contiguous_rows(values)
        run_on_threads(
            lambda low, high: native.divide(values, divisor, out, low, high), len(out), out.size
        )
        return out
    step = max(1, _BLOCK_NUMBERS // max(1, values.shape[1]))
    for low in range(0, len(out), step):
        block = slice(low, low + step)
        out[block] = values[block] / divisor[block, None]
    return out


def pairs(
    queries: Array, documents: Array, start: Array, chosen: Array, *, out: Array, first: int = 0
) -> None:
    """Write to `out` (P,) float32 the scores of rows chosen[start[q]:start[q+1]] for each query q.

    `documents` are the rows numbered from `first` on. Where `chosen` names other rows, `out` keeps
    its values.
    """
    start, chosen = (np.ascontiguousarray(x, np.int64) for x in (start, chosen))
    if native is not None:
        queries, documents = _contiguous_rows(queries), _contiguous_rows(documents)
        run_on_threads(
            lambda low, high: native.pairs(
                queries, documents, first, start, chosen, out, low, high
            ),
            len(queries),
            len(chosen) * queries.shape[1],
        )
        return
    places = np.flatnonzero((chosen >= first) & (chosen < first + len(documents)))
    owner = np.repeat(np.arange(len(queries)), np.diff(start))
    step = max(1, _BLOCK_NUMBERS // max(1, queries.shape[1]))
    for low in range(0, len(places), step):
        block = places[low : low + step]
        terms = queries[owner[block]].astype(np.float64)
        terms *= documents[chosen[block] - first]
        with np.errstate(over="ignore", invalid="ignore"):
            out[block] = _sum_lanes(terms).astype(np.float32) + np.float32(0.0)


def products(query: Array, documents: Array) -> Array:
    """Return fast products (N,) float32 of one query (1, D) with documents (N, D), not fixed sums.

    BLAS is not used: on a busy machine its threads wait for each other longer than this takes.
    """
    out = np.empty(len(documents), np.float32)
    if native is None:
        with keep_subnormals():
            return np.matmul(documents, query[0], out=out)
    documents = _contiguous_rows(documents)
    run_on_threads(
        lambda low, high: native.products(query, documents, out, low, high),
        len(out),
        documents.size >> 4,  # a quick product: 16 of them take as long as one fixed sum
    )
    return out


@keep_subnormals()
def matrix(queries: Array, documents: Array) -> Array:
    """Return the scores (Q, N) float32 of all pairs.

    A float64 product is so close to the fixed sum that both nearly always round to the same
    float32. Where the bounds of the fixed sum round to two numbers, that sum is computed.
    """
    scores = np.empty((len(queries), len(documents)), np.float32)
    wide = queries.astype(np.float64)
    reach = lengths(queries) * ((queries.shape[1] + 8) * 2.0**-51)
    step = max(1, _BLOCK_NUMBERS // max(1, len(queries), queries.shape[1]))
    for first in range(0, len(documents), step):
        rows = documents[first : first + step]
        with np.errstate(over="ignore", invalid="ignore"):
            product = wide @ rows.T.astype(np.float64)
            error = reach[:, None] * lengths(rows)
            low, high = (product - error).astype(np.float32), (product + error).astype(np.float32)
        block = low + np.float32(0.0)
        is_open = low != high
        if is_open.any():
            start = np.append(0, np.cumsum(is_open.sum(axis=1)))
            sums = np.empty(start[-1], np.float32)
            pairs(queries, rows, start, np.nonzero(is_open)[1], out=sums)
            block[is_open] = sums
        scores[:, first : first + step] = block
    return scores


def _contiguous_rows(values: Array) -> Array:
    """Return float32 values with each row contiguous and aligned, as the compiled code needs."""
    is_contiguous = values.strides[1] == 4 and values.flags.aligned
    return values if is_contiguous else np.array(values, order="C")


def _sum_lanes(products: Float) -> Float:
    """Return the fixed sums (n,) of products (n, D): 32 lanes, which are then added pairwise."""
    count, dimensions = products.shape
    lanes = np.zeros((count, LANES), np.float64)
    for first in range(0, dimensions, LANES):
        chunk = products[:, first : first + LANES]
        lanes[:, : chunk.shape[1]] += chunk
    half = LANES // 2
    while half:
        lanes[:, :half] += lanes[:, half : 2 * half]
        half //= 2
    return lanes[:, 0]
