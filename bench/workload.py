"""The files that the benchmarks read; made once, seeded, under bench/data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from rankproof.data.ties import round_scores
from rankproof.foundation.arrays import Array

DATA = Path(__file__).parent / "data"
PASSAGES = 8_841_823  # the size of MS MARCO's passage collection
SPARE = 60  # documents near a list that the run does not hold


def make(queries: int, documents: int, folder: Path = DATA) -> Path:
    """A run of queries × documents with bfloat16 scores, in order and scattered, and two qrels.

    Qrels A: 1.1 relevant documents per query; B: 100 judged per query in grades 0–3.
    """
    place = folder / f"{queries}x{documents}"
    if (place / "done").exists():
        return place
    place.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    names = generator.choice(10_000_000, queries, replace=False)
    stride = generator.integers(1, 8_000, (queries, 1))
    begin = generator.integers(0, PASSAGES, (queries, 1))
    near = (begin + stride * np.arange(documents + SPARE)) % PASSAGES
    near = generator.permuted(near, axis=1)
    score = np.sort(generator.normal(0.7, 0.05, (queries, documents)), axis=1)[:, ::-1]
    run = pl.DataFrame(
        {
            "query": np.repeat(names, documents),
            "q0": pl.repeat("Q0", queries * documents, eager=True),
            "doc": near[:, :documents].ravel(),
            "rank": np.tile(np.arange(1, documents + 1), queries),
            "score": round_scores(np.ascontiguousarray(score).ravel(), "bfloat16"),
            "tag": pl.repeat("dense", queries * documents, eager=True),
        }
    )
    _write(run, place / "run.trec")
    _write(run.sample(fraction=1.0, shuffle=True, seed=1), place / "scattered.trec")

    many = generator.random(queries) < 0.1
    query_a = np.concatenate([np.arange(queries), np.flatnonzero(many)])
    at = generator.integers(0, documents + SPARE, len(query_a))
    _write(_qrels(names, near, query_a, at, np.ones(len(query_a), np.int64)), place / "a.qrels")
    judged = min(100, documents)
    at = generator.permuted(np.tile(np.arange(documents + SPARE), (queries, 1)), axis=1)
    grades = generator.integers(0, 4, queries * judged)
    query_b = np.repeat(np.arange(queries), judged)
    _write(_qrels(names, near, query_b, at[:, :judged].ravel(), grades), place / "b.qrels")
    (place / "done").touch()
    return place


def _qrels(names: Array, near: Array, query: Array, at: Array, grade: Array) -> pl.DataFrame:
    frame = pl.DataFrame(
        {"query": names[query], "i": np.zeros_like(query), "doc": near[query, at], "grade": grade}
    )
    return frame.unique(["query", "doc"], maintain_order=True)


def _write(frame: pl.DataFrame, path: Path) -> None:
    frame.write_csv(path, include_header=False, separator=" ")
