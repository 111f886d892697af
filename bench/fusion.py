"""Reciprocal rank fusion beside ranx; writes its part of bench/RESULTS.md.

    .venv/bin/python bench/fusion.py

10 lists × 1,000 documents × 6,980 queries without ties: each list holds 1,000 of 3,000 documents
that a query's lists share. Both tools start from runs they have loaded, ranked or not as they load
them, and end with a run that is ranked and can be evaluated.
"""

from __future__ import annotations

import gc
import statistics
import time
from importlib.metadata import version

import numpy as np
import polars as pl
import ranx
import results
from workload import PASSAGES

from rankproof.data.tables import Run, build_run
from rankproof.foundation.arrays import Array
from rankproof.retrieval.fusion import rrf

LISTS, DOCUMENTS, SHARED, QUERIES, PART, ROUNDS = 10, 1000, 3000, 6980, 698, 3


def lists(queries: int, generator: np.random.Generator) -> list[tuple[Array, Array]]:
    """(queries, DOCUMENTS) passages and scores of each list, best first."""
    stride = generator.integers(1, 2_000, (queries, 1))
    near = (generator.integers(0, PASSAGES, (queries, 1)) + stride * np.arange(SHARED)) % PASSAGES
    steps = np.arange(DOCUMENTS, 0, -1) / DOCUMENTS
    return [
        (generator.permuted(near, axis=1)[:, :DOCUMENTS], np.tile(steps, (queries, 1)))
        for _ in range(LISTS)
    ]


def ours(passages: Array, scores: Array) -> Run:
    """The run as `rankproof.read_run` leaves it."""
    count = len(passages)
    return build_run(
        "list",
        pl.Series(np.arange(count)).cast(pl.String),
        np.repeat(np.arange(count, dtype=np.int32), passages.shape[1]),
        pl.Series(passages.ravel()).cast(pl.String),
        scores.ravel().copy(),
        "float64",
    )


def theirs(passages: Array, scores: Array) -> ranx.Run:
    return ranx.Run.from_dict(
        {
            str(query): dict(zip(map(str, found), given, strict=True))
            for query, (found, given) in enumerate(
                zip(passages.tolist(), scores.tolist(), strict=True)
            )
        }
    )


def main() -> None:
    generator = np.random.default_rng(0)
    small = [theirs(*columns) for columns in lists(2, generator)]
    ranx.fuse(small, norm=None, method="rrf")  # compiles
    mine = other = furthest = 0.0
    held: list[list[tuple[Array, Array]]] = []
    for part in range(QUERIES // PART):
        columns = lists(PART, generator)
        held.append(columns)
        runs, peers = [ours(*c) for c in columns], [theirs(*c) for c in columns]
        for tool in ("rankproof", "ranx") if part % 2 else ("ranx", "rankproof"):
            gc.collect()
            begun = time.perf_counter()
            if tool == "rankproof":
                fused = rrf(runs)
                mine += time.perf_counter() - begun
            else:
                peer = ranx.fuse(peers, norm=None, method="rrf")
                other += time.perf_counter() - begun
        frame = fused.to_frame()
        for query in ("0", str(PART - 1)):
            rows = frame.filter(pl.col("query") == query)
            same = dict(peer.run[query])
            assert set(rows["doc"]) == set(same)
            difference = rows["score"].to_numpy() - np.array([same[d] for d in rows["doc"]])
            furthest = max(furthest, float(np.abs(difference).max()))
        print(f"after {part + 1} parts: rankproof {mine:.2f} s, ranx {other:.2f} s", flush=True)
        del runs, peers, peer, fused, frame
    whole = [
        (np.concatenate([p[number][0] for p in held]), np.concatenate([p[number][1] for p in held]))
        for number in range(LISTS)
    ]
    del held, columns
    runs = [ours(*c) for c in whole]
    del whole
    taken = []
    for _ in range(ROUNDS):
        for run in runs:
            run.cache.clear()
        begun = time.perf_counter()
        fused = rrf(runs)
        taken.append(time.perf_counter() - begun)
    at_once = statistics.median(taken)
    results.record(
        "Reciprocal rank fusion",
        [
            f"{LISTS} lists × {DOCUMENTS:,} documents × {QUERIES:,} queries without ties, a "
            f"query's lists drawn from {SHARED:,} documents: {LISTS * DOCUMENTS * QUERIES:,} rows "
            f"in, {len(fused):,} out. Runs are loaded before; what is counted is the fusion, and "
            f"for rankproof ranking the lists, ranking the result and its index. In parts of "
            f"{PART} queries, the tools in turns, times summed, so that ranx's memory is not "
            f"what is measured. ranx {version('ranx')}.",
            "",
            "| | s | ranx takes |",
            "|:--|--:|--:|",
            f"| ranx, in parts | {other:.2f} | |",
            f"| rankproof, in parts | {mine:.2f} | {other / mine:.1f} × |",
            f"| rankproof, all at once (median of {ROUNDS}) | {at_once:.2f} | "
            f"{other / at_once:.1f} × |",
            "",
            f"Largest difference of a score in the {2 * QUERIES // PART} queries compared: "
            f"{furthest:.1e}.",
        ],
    )


if __name__ == "__main__":
    main()
