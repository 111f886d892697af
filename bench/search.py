"""Exact search on the CPU beside the plain product and faiss; writes parts of bench/RESULTS.md.

    .venv/bin/python bench/search.py            # both
    .venv/bin/python bench/search.py one        # one question at a time alone: two minutes

One question at a time is what a sweep calls latency: flat search, BM25 and fusion beside faiss,
bm25s and a dict.

`before` is what a search costs whose scores are the product's own: checked vectors, BLAS, the k
best. The fixed sum of what can be among them is what rankproof adds. All take turns, each with
the cores to itself; the shortest time of each counts, since everything else on the machine only
adds to it.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import bm25s
import faiss
import numpy as np
import polars as pl
import results
import Stemmer

from rankproof.foundation.arrays import Array
from rankproof.precision import fixed_sum
from rankproof.precision.exact_search import find_top_k
from rankproof.precision.pipeline import ScoringPipeline
from rankproof.precision.topk import TopK, top_k
from rankproof.retrieval.fusion import fuse_one
from rankproof.retrieval.indexes.flat import FlatIndex, FlatSettings
from rankproof.retrieval.sparse.bm25 import Bm25

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
        "rankproof": partial(find_top_k, queries, documents, k, ScoringPipeline.of("float32")),
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


ASKED, EACH = 20, 0.05  # questions; seconds for a contender
VOCABULARY, WORDS, QUESTION = 20_000, 60, 8  # of a text and of a question


def in_turn(ours: Sequence[Callable[[], Any]], theirs: Sequence[Callable[[], Any]]) -> str:
    """Cells of a table: the medians of this process's own time, and their ratio."""
    taken: tuple[list[int], list[int]] = ([], [])
    for repeat in itertools.count():
        for pair in zip(ours, theirs, strict=True):
            for work, times in zip(pair, taken, strict=True):
                begun = time.process_time_ns()
                work()
                times.append(time.process_time_ns() - begun)
        if repeat and sum(map(sum, taken)) > 2e9 * EACH:
            break
    mine, other = (statistics.median(times[len(ours) :]) / 1000 for times in taken)  # warm
    return f"{mine:,.1f} | {other:,.1f} | {mine / other:.2f}"


def flat(total: int, dimensions: int, generator: np.random.Generator) -> Iterator[str]:
    vectors, asked = (
        fixed_sum.normalize(generator.standard_normal((n, dimensions), np.float32))
        for n in (total, ASKED)
    )
    index = FlatIndex(FlatSettings(), vectors, pl.Series(range(total)).cast(pl.String))
    peer = faiss.IndexFlatIP(dimensions)
    peer.add(vectors)
    for k in (10, 100):
        pairs = [[partial(x, q[None], k) for q in asked] for x in (index.best, peer.search)]
        yield f"| flat, {total:,} × {dimensions:,} | {k} | faiss | {in_turn(*pairs)} |"


def sparse(total: int, generator: np.random.Generator) -> Iterator[str]:
    chance = 1.0 / np.arange(1, VOCABULARY + 1)
    drawn, asked = (
        generator.choice(VOCABULARY, size, p=chance / chance.sum()).tolist()
        for size in ((total, WORDS), (ASKED, QUESTION))
    )
    texts, questions = ([" ".join(f"w{i}x" for i in x) for x in some] for some in (drawn, asked))
    index, peer, stemmer = Bm25(texts), bm25s.BM25(), Stemmer.Stemmer("english")
    words = partial(bm25s.tokenize, stopwords="en", stemmer=stemmer, show_progress=False)
    peer.index(words(texts), show_progress=False)

    def search(question: str, k: int) -> Any:
        return peer.retrieve(words([question]), k=k, show_progress=False, n_threads=0)

    for k in (10, 100):
        pairs = [[partial(x, q, k) for q in questions] for x in (index.best, search)]
        yield f"| BM25, {total:,} texts | {k} | bm25s | {in_turn(*pairs)} |"


def by_dict(lists: Sequence[tuple[Sequence[str], Sequence[float]]]) -> list[tuple[str, float]]:
    sums: dict[str, float] = {}
    for ids, _ in lists:
        for rank, doc in enumerate(ids, 1):
            sums[doc] = sums.get(doc, 0.0) + 1 / (60 + rank)
    return sorted(sums.items(), key=lambda found: -found[1])


def fused(length: int, generator: np.random.Generator) -> Iterator[str]:
    scores = sorted(generator.random(length).tolist(), reverse=True)
    pools = [
        [([f"doc{i}" for i in generator.permutation(2 * length)[:length]], scores) for _ in "ab"]
        for _ in range(ASKED)
    ]
    pairs = [[partial(x, lists) for lists in pools] for x in (fuse_one, by_dict)]
    yield f"| RRF, 2 lists of {length:,} | all | a dict | {in_turn(*pairs)} |"


def one() -> None:
    """What a single question takes."""
    generator = np.random.default_rng(0)
    faiss.omp_set_num_threads(1)  # its threads wait for each other, and waiting counts as time
    lines = [
        f"Time of the process's own, medians over {ASKED} questions asked in turns for "
        f"{EACH:g} s and more; what a sweep calls the latency of a stage. faiss "
        f"{faiss.__version__}, IndexFlatIP, one thread; bm25s {bm25s.__version__} from a "
        "question's text; a dict without ties and without fixed point.",
        "",
        "| | k | beside | rankproof, µs | it, µs | × |",
        "|:--|--:|:--|--:|--:|--:|",
    ]
    rows = itertools.chain(
        *(flat(n, d, generator) for n in (1_000, 10_000, 100_000) for d in (128, 384, 1024)),
        *(sparse(n, generator) for n in (1_000, 10_000, 100_000)),
        *(fused(n, generator) for n in (20, 100, 1_000)),
    )
    for line in rows:
        lines.append(line)
        print(line, flush=True)
    results.record("One question at a time", lines)


def many() -> None:
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
            fixed_sum.normalize(generator.standard_normal((n, dimensions), np.float32))
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
    one()
    if sys.argv[1:] != ["one"]:
        many()
