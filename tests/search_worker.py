"""Run in a process of its own: digests of many searches, as JSON. See test_scoring_fixed.py."""

from __future__ import annotations

import hashlib
import json
import sys
from itertools import pairwise
from typing import Any

import numpy as np
from described_search import find
from hard_vectors import hard_vectors

from rankproof.cluster import vectors as shards
from rankproof.precision import cosine, dot, exact_search, fixed_sum
from rankproof.precision.pipeline import ScoringPipeline
from rankproof.precision.topk import TopK

SEARCHES: tuple[dict[str, Any], ...] = (
    {"format": "float32"},
    {"format": "float32", "metric": "cosine"},
    {"format": "float16", "metric": "cosine"},
    {"format": "float16", "metric": "cosine", "high_precision": False},
    {"format": "bfloat16"},
    {"format": "bfloat16", "high_precision": False},
    {"format": "float8_e4m3", "high_precision": False},
    {"format": "float8_e5m2", "metric": "cosine"},
    {"format": "int8", "metric": "cosine"},
    {"format": "int8"},
    {"format": "int4", "rescore": "original"},
    {"format": "bit"},
)
K = 20


def digest(*arrays: Any) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()


def whole(best: TopK) -> str:
    return digest(best.scores, best.documents.astype(np.int64), best.cut.astype(np.int64))


def sharded(queries: Any, documents: Any, cuts: tuple[int, ...], settings: dict[str, Any]) -> str:
    """The same through what Ray's workers do, without Ray."""
    pipeline = ScoringPipeline.of(**settings)
    count = pipeline.candidate_count(K, len(documents))
    task = shards._Task(pipeline, count, "cpu")
    asked, _ = exact_search.prepare_vectors(queries, "queries", pipeline)
    edges = [0, *cuts, len(documents)]
    merged: Any = None
    for at, (low, last) in enumerate(pairwise(edges)):
        array = documents[low:last]
        shard = shards._Shard(len(array), array.shape[1], str(array.dtype), False, None, at)
        part = shards._Part(shard, 0, len(array), low)
        best = shards._find(asked, part, task, None, array)
        merged = best if merged is None else shards._merge(merged, best, count)
    top = merged.top
    return whole(
        top if merged.exact is None else exact_search.rescore_candidates(merged.exact, top, K)
    )


def main() -> None:
    threads = int(sys.argv[1])
    fixed_sum.THREADS = threads
    found: dict[str, set[str]] = {}
    products = []
    for name, (queries, documents) in hard_vectors(documents=900, dimensions=50).items():
        if name == "huge":
            documents = documents[np.abs(documents).max(axis=1) < 3e38]  # what bfloat16 holds
        with np.errstate(over="ignore", invalid="ignore"):
            products.append(digest(queries @ documents.T))
        found[f"{name}: dot"] = {digest(dot(queries, documents))}
        pointing = documents[documents.any(axis=1)]
        found[f"{name}: cosine"] = {digest(cosine(queries, pointing))}
        for settings in SEARCHES:
            some = pointing if settings.get("metric") == "cosine" else documents
            if len(some) < 600:
                continue
            blocks = set()
            for cells in (1 << 11, 1 << 12, 1 << 22):
                exact_search._BLOCK_SCORES = cells
                best = find(queries, some, K, **settings)
                blocks.add(whole(best))
            found[f"{name}: {settings}"] = blocks
            cuts: tuple[tuple[int, ...], ...] = ((), (300,), (1, 40, 500))
            found[f"{name}: {settings} in shards"] = {
                sharded(queries, some, cut, settings) for cut in cuts
            }
    listed = {key: sorted(value) for key, value in found.items()}
    print(json.dumps({"products": products, "found": listed}))


if __name__ == "__main__":
    main()
