"""Exact search on the CPU beside faiss's flat index; writes its part of bench/RESULTS.md.

    .venv/bin/python bench/search.py

1,000 queries × 100,000 documents × 384 dimensions in float32. Both take turns; medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import faiss
import numpy as np
import results

from rankproof.scoring.exact import find

QUERIES, DOCUMENTS, DIMENSIONS, ROUNDS = 1000, 100_000, 384, 9


def main() -> None:
    generator = np.random.default_rng(0)
    queries, documents = (
        generator.normal(size=(n, DIMENSIONS)).astype(np.float32) for n in (QUERIES, DOCUMENTS)
    )
    for vectors in (queries, documents):
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = faiss.IndexFlatIP(DIMENSIONS)
    index.add(documents)
    lines = [
        f"{QUERIES:,} queries × {DOCUMENTS:,} documents × {DIMENSIONS} dimensions, float32; "
        f"medians of {ROUNDS} interleaved rounds. faiss {faiss.__version__}, IndexFlatIP.",
        "",
        "| k | rankproof, s | faiss, s | rankproof/faiss | same documents |",
        "|--:|--:|--:|--:|--:|",
    ]
    for k in (10, 100, 1000):
        contenders: dict[str, Callable[[], Any]] = {
            "rankproof": partial(find, queries, documents, k),
            "faiss": partial(index.search, queries, k),
        }
        found = {name: work() for name, work in contenders.items()}
        taken: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(ROUNDS):
            for name, work in contenders.items():
                begin = time.perf_counter()
                work()
                taken[name].append(time.perf_counter() - begin)
        ours, theirs = (statistics.median(taken[name]) for name in ("rankproof", "faiss"))
        pairs = zip(found["rankproof"][0].documents, found["faiss"][1], strict=True)
        shared = np.mean([len(np.intersect1d(a, b)) / k for a, b in pairs])
        lines.append(
            f"| {k:,} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.2f} | {100 * shared:.3f}% |"
        )
    results.record("Exact search on the CPU", lines)


if __name__ == "__main__":
    main()
