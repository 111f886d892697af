"""Exact search on the CPU beside the plain product and faiss; writes a part of bench/RESULTS.md.

    .venv/bin/python bench/search.py

`before` is what a search costs whose scores are the product's own: checked vectors, BLAS, the k
best. The fixed sum of what can be among them is what rankproof adds. All take turns, each with
the cores to itself; the shortest time of each counts, since everything else on the machine only
adds to it.
"""

from __future__ import annotations

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

SHAPES = (  # queries, documents, dimensions
    (1, 1_000_000, 128),
    (1, 1_000_000, 384),
    (32, 100_000, 1024),
    (32, 1_000_000, 128),
    (1000, 100_000, 128),
    (1000, 100_000, 384),
    (1000, 100_000, 1024),
)
SECONDS, LEAST, MOST = 2.0, 3, 40  # for a contender, and rounds
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
    for count, total, dimensions in SHAPES:
        queries, documents = (
            fixed.unit(generator.standard_normal((n, dimensions), np.float32))
            for n in (count, total)
        )
        index = faiss.IndexFlatIP(dimensions)
        index.add(documents)
        for k in (10, 100, 1000):
            contenders: dict[str, Callable[[], Any]] = {
                "rankproof": partial(find, queries, documents, k),
                "product": partial(before, queries, documents, k),
                "faiss": partial(index.search, queries, k),
            }
            found = {name: work() for name, work in contenders.items()}
            taken: dict[str, list[float]] = {name: [] for name in contenders}
            while len(taken["faiss"]) < LEAST or (
                sum(taken["rankproof"]) < SECONDS and len(taken["faiss"]) < MOST
            ):
                for name, work in contenders.items():
                    begin = time.perf_counter()
                    work()
                    taken[name].append(time.perf_counter() - begin)
            ours, product, theirs = (min(taken[name]) for name in contenders)
            pairs = zip(found["rankproof"][0].documents, found["faiss"][1], strict=True)
            shared = np.mean([len(np.intersect1d(a, b)) / k for a, b in pairs])
            lines.append(
                f"| {count:,} | {total:,} | {dimensions:,} | {k:,} | {ours:.3f} | {product:.3f} "
                f"| {ours / product:.2f} | {theirs:.3f} | {ours / theirs:.2f} "
                f"| {100 * shared:.3f}% |"
            )
            print(lines[-1], flush=True)
    results.record("Exact search on the CPU", lines)


if __name__ == "__main__":
    main()
