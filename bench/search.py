"""Exact search on the CPU beside the plain product and faiss; writes a part of bench/RESULTS.md.

    .venv/bin/python bench/search.py

`before` is what a search costs whose scores are the product's own: checked vectors, BLAS, the k
best. The fixed sum of what can be among them is what rankproof adds. All take turns, each with
the cores to itself; the shortest time of each counts, since everything else on the machine only
adds to it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import faiss
import numpy as np
import results

from rankproof.arrays import Array
from rankproof.scoring import fixed
from rankproof.scoring.exact import find
from rankproof.scoring.topk import TopK, top_k

QUERIES, DOCUMENTS, DIMENSIONS, K = (
    (1, 32, 1000),
    (100_000, 1_000_000),
    (128, 384, 1024),
    (10, 100, 1000),
)
PRODUCTS = 5 * 10**11  # of two numbers, in one search: more takes minutes
SECONDS, LEAST, MOST = 1.0, 2, 20  # for a contender, and rounds
CELLS = 1 << 22


def before(queries: Array, documents: Array, k: int) -> TopK:
    """The best by the product itself."""
    for vectors in (queries, documents):
        assert np.isfinite(vectors.sum(axis=1)).all()
    step = max(256, CELLS // len(queries))

    def blocks() -> Iterator[Array]:
        held = np.empty((len(queries), step), np.float32)
        for first in range(0, len(documents), step):
            some = documents[first : first + step]
            yield np.matmul(queries, some.T, out=held if len(some) == step else None)

    return top_k(blocks(), len(queries), k)


def measure(queries: Array, documents: Array, index: Any, k: int) -> str:
    """One line of the table."""
    contenders: dict[str, Callable[[], Any]] = {
        "rankproof": partial(find, queries, documents, k),
        "product": partial(before, queries, documents, k),
        "faiss": partial(index.search, queries, k),
    }
    found: dict[str, Any] = {}
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    while len(taken["faiss"]) < LEAST or (
        sum(taken["rankproof"]) < SECONDS and len(taken["faiss"]) < MOST
    ):
        for name, work in contenders.items():
            begin = time.perf_counter()
            found[name] = work()
            taken[name].append(time.perf_counter() - begin)
    ours, product, theirs = (min(taken[name]) for name in contenders)
    pairs = zip(found["rankproof"][0].documents, found["faiss"][1], strict=True)
    shared = np.mean([len(np.intersect1d(a, b)) / k for a, b in pairs])
    return (
        f"| {len(queries):,} | {len(documents):,} | {documents.shape[1]:,} | {k:,} | {ours:.4f} "
        f"| {product:.4f} | {ours / product:.2f} | {theirs:.4f} | {ours / theirs:.2f} "
        f"| {100 * shared:.3f}% |"
    )


def main() -> None:
    generator = np.random.default_rng(0)
    lines = [
        f"float32, unit vectors; the shortest of {LEAST} to {MOST} interleaved rounds. `product`: "
        f"the same search with the scores that BLAS makes. faiss {faiss.__version__}, IndexFlatIP.",
        "",
        "| queries | documents | dimensions | k | rankproof, s | product, s | × product | faiss, s "
        "| × faiss | same documents |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for total, dimensions in itertools.product(DOCUMENTS, DIMENSIONS):
        queries, documents = (
            fixed.unit(generator.standard_normal((n, dimensions), np.float32))
            for n in (max(QUERIES), total)
        )
        index = faiss.IndexFlatIP(dimensions)
        index.add(documents)
        for count, k in itertools.product(QUERIES, K):
            if count * total * dimensions <= PRODUCTS:
                lines.append(measure(queries[:count], documents, index, k))
                print(lines[-1], flush=True)
        del index, documents  # before the next are made: the largest take 8 GB
    results.record("Exact search on the CPU", lines)


if __name__ == "__main__":
    main()
