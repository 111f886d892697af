"""A judged corpus to search: what an ablation or a level of noise costs end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from rankproof.data import read_qrels
from rankproof.data.beir import read_corpus
from rankproof.data.tables import Qrels
from rankproof.evaluation import Policy, evaluate_tables
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import out_of
from rankproof.measures import Measure, parse
from rankproof.precision.exact_search import find_top_k, to_run
from rankproof.precision.pipeline import ScoringPipeline
from rankproof.precision.topk import TopK
from rankproof.retrieval.protocols import Embedder, Vectors
from rankproof.retrieval.workshop import Texts, Workshop
from rankproof.statistics.resampling import draw_sample

K = 10
SET, LIST = parse(f"NRecall4@{K}"), parse(f"nDCG@{K}")


@dataclass(frozen=True, slots=True)
class JudgedCorpus:
    """Passages, and the queries for which at least one of them was judged relevant.

    >>> from rankproof.diagnostics import JudgedCorpus
    >>> len(JudgedCorpus.read("try/corpus").queries)
    44
    """

    label: str
    document_ids: list[str]
    documents: list[str]
    query_ids: list[str]
    queries: list[str]
    qrels: Qrels
    measure: Measure
    files: dict[str, Path]

    @classmethod
    def read(cls, folder: str | Path, qrels: str | Path | None = None) -> JudgedCorpus:
        """A BEIR folder. Grades 1 to 5 are measured by NRecall4@10, others by nDCG@10."""
        texts = read_corpus(folder, qrels)
        judged = read_qrels(texts.qrels)
        graded = judged.grade.min(initial=5) >= 1 and 4 <= judged.grade.max(initial=0) <= 5
        relevant = _relevant(judged, 4 if graded else 1)
        wanted = set(relevant["query"])
        kept = [
            (query, text)
            for query, text in zip(texts.query_ids, texts.queries, strict=True)
            if query in wanted
        ]
        if len(kept) < 2:
            raise InputError(
                f"{out_of(len(kept), len(texts.queries), 'query', 'has', 'have')} "
                "a relevant passage",
                place=str(texts.qrels),
                remedy="check that queries and judgements belong together",
            )
        return cls(
            Path(folder).name,
            texts.document_ids,
            texts.documents,
            [query for query, _ in kept],
            [text for _, text in kept],
            judged,
            SET if graded else LIST,
            {**texts.files, "qrels": texts.qrels},
        )

    def sample(self, queries: int, seed: int) -> JudgedCorpus:
        """At most so many queries, in their order."""
        if len(self.queries) <= queries:
            return self
        return self.only(draw_sample(np.arange(len(self.queries)), queries, [seed, 4]).tolist())

    def only(self, rows: Sequence[int]) -> JudgedCorpus:
        """These queries alone."""
        return replace(
            self,
            query_ids=[self.query_ids[row] for row in rows],
            queries=[self.queries[row] for row in rows],
        )

    def index(self, embedder: Embedder) -> Index:
        """Embed the passages."""
        with Workshop(Texts(self.document_ids, self.documents)) as shop:
            return Index(self, shop.vectors(embedder, shop.passages))


class Index:
    """Passages that can be searched exactly, and measured."""

    def __init__(self, corpus: JudgedCorpus, vectors: Vectors):
        self._corpus = corpus
        self.vectors = vectors
        self._row = {query: row for row, query in enumerate(corpus.query_ids)}

    def search(self, queries: Float) -> tuple[TopK, Float]:
        """The top K of each query, and the measure (Q,) in expectation over ties."""
        corpus = self._corpus
        pipeline = ScoringPipeline.of("float32")
        best = find_top_k(queries.astype(np.float32), self.vectors, K, pipeline)
        run = to_run(
            best,
            corpus.query_ids,
            corpus.document_ids,
            len(self.vectors),
            dtype=pipeline.score_dtype,
            name=corpus.label,
        )
        found = evaluate_tables(run, corpus.qrels, [corpus.measure], Policy.of(None, "skip", False))
        values = np.full(len(corpus.queries), np.nan)
        values[[self._row[query] for query in found.queries]] = found.outcomes[
            corpus.measure
        ].expected
        return best, values

    def relevant(self) -> Float:
        """(Q, D) the mean vector of each query's relevant passages: a product is a mean cosine.

        NaN where none of them is in the corpus.
        """
        corpus = self._corpus
        judged = _relevant(corpus.qrels, 4 if corpus.measure == SET else 1)
        places = {document: row for row, document in enumerate(corpus.document_ids)}
        means = np.full((len(corpus.queries), self.vectors.shape[1]), np.nan)
        for (query,), rows in judged.group_by("query", maintain_order=True):
            held = [places[document] for document in rows["doc"] if document in places]
            if query in self._row and held:
                means[self._row[str(query)]] = self.vectors[held].mean(axis=0)
        return means


def _relevant(judged: Qrels, least: int) -> pl.DataFrame:
    return judged.to_frame().filter(pl.col("grade") >= least)
