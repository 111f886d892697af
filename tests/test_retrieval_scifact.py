"""BM25, vectors and both together on SciFact: real texts, real questions, known figures."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import rankproof as rp
from rankproof.data.beir import read_corpus
from rankproof.data.tables import Run
from rankproof.retrieval.fusion import rrf
from rankproof.retrieval.indexes import make_index
from rankproof.retrieval.indexes.flat import FlatSettings
from rankproof.retrieval.indexes.hnsw import HnswSettings
from rankproof.retrieval.protocols import Vectors
from rankproof.retrieval.sparse.bm25 import Bm25

DATA = Path(os.environ.get("RANKPROOF_DATA", Path(__file__).parents[2] / "shared" / "data"))
SCIFACT = DATA / "scifact"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SCIFACT.is_dir(), reason="SciFact is not under RANKPROOF_DATA"),
]


@dataclass(frozen=True)
class Set:
    query_ids: list[str]
    queries: list[str]
    document_ids: list[str]
    documents: list[str]
    qrels: rp.Qrels

    def ndcg(self, run: Run) -> float:
        return rp.evaluate(self.qrels, run, "nDCG@10")["nDCG@10"].expected


@pytest.fixture(scope="module")
def scifact() -> Set:
    corpus = read_corpus(SCIFACT)
    qrels = rp.read_qrels(corpus.qrels)
    judged = set(qrels.queries)
    asked = [
        pair for pair in zip(corpus.query_ids, corpus.queries, strict=True) if pair[0] in judged
    ]
    return Set(
        [query for query, _ in asked],
        [text for _, text in asked],
        corpus.document_ids,
        corpus.documents,
        qrels,
    )


@pytest.fixture(scope="module")
def words(scifact: Set) -> Run:
    index = Bm25(scifact.documents, scifact.document_ids)
    return index.search(scifact.queries, 1000, scifact.query_ids).run


@pytest.fixture(scope="module")
def vectors(scifact: Set) -> tuple[Vectors, Vectors]:
    """Queries and documents by wordllama's static vectors, from the files in its package."""
    wordllama = pytest.importorskip("wordllama")
    folder = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    queries, documents = (
        np.asarray(model.embed(texts, norm=True), np.float32)
        for texts in (scifact.queries, scifact.documents)
    )
    return queries, documents


def test_bm25_reaches_the_published_level(scifact: Set, words: Run) -> None:
    """Lucene's figure with its defaults is 0.68."""
    assert scifact.ndcg(words) >= 0.655
    assert scifact.ndcg(words) == pytest.approx(0.6857, abs=2e-3)


def test_a_graph_costs_less_than_one_percent(
    scifact: Set, vectors: tuple[Vectors, Vectors]
) -> None:
    queries, documents = vectors
    flat, graph = (
        make_index(settings, documents, scifact.document_ids)
        .search(queries, 10, scifact.query_ids)
        .run
        for settings in (FlatSettings(), HnswSettings(type="hnsw"))
    )
    assert scifact.ndcg(graph) >= 0.99 * scifact.ndcg(flat)


def test_both_together_find_more_than_vectors_alone(
    scifact: Set, words: Run, vectors: tuple[Vectors, Vectors]
) -> None:
    """Static vectors are far weaker than words here: equal ranks are not equal evidence."""
    queries, documents = vectors
    index = make_index(FlatSettings(), documents, scifact.document_ids)
    dense = index.search(queries, 1000, scifact.query_ids).run
    fused = rrf([words, dense])
    print(*(f"{run.name} {scifact.ndcg(run):.4f}" for run in (words, dense, fused)))
    assert scifact.ndcg(fused) > scifact.ndcg(dense)
    weighted = rrf([words, dense], weights=[0.8, 0.2])
    print(f"weighted {scifact.ndcg(weighted):.4f}")
    assert scifact.ndcg(weighted) >= scifact.ndcg(fused)
