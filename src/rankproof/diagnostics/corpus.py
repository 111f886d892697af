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
# Measures for grades 1 to 5, of which 4 and 5 count as relevant, and for all other grades.
_GRADED, _RELEVANT = parse(f"NRecall4@{K}"), parse(f"nDCG@{K}")


@dataclass(frozen=True, slots=True)
class JudgedCorpus:
    """Passages, and the queries for which at least one passage was judged relevant.

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
        """Read a BEIR folder. With grades 1 to 5 the measure is NRecall4@10, else nDCG@10."""
        texts = read_corpus(folder, qrels)
        judged = read_qrels(texts.qrels)
        is_graded = judged.grade.min(initial=5) >= 1 and 4 <= judged.grade.max(initial=0) <= 5
        measure = _GRADED if is_graded else _RELEVANT
        has_relevant = set(_relevant_judgments(judged, measure)["query"])
        rows = [row for row, query in enumerate(texts.query_ids) if query in has_relevant]
        if len(rows) < 2:
            raise InputError(
                f"{out_of(len(rows), len(texts.queries), 'query', 'has', 'have')} "
                "a relevant passage",
                place=str(texts.qrels),
                remedy="check that queries and judgements belong together",
            )
        corpus = cls(
            label=Path(folder).name,
            document_ids=texts.document_ids,
            documents=texts.documents,
            query_ids=texts.query_ids,
            queries=texts.queries,
            qrels=judged,
            measure=measure,
            files={**texts.files, "qrels": texts.qrels},
        )
        return corpus.only(rows)

    def sample(self, queries: int, seed: int) -> JudgedCorpus:
        """Return the corpus with at most so many queries, drawn and kept in order."""
        if len(self.queries) <= queries:
            return self
        return self.only(draw_sample(np.arange(len(self.queries)), queries, [seed, 4]).tolist())

    def only(self, rows: Sequence[int]) -> JudgedCorpus:
        """Return the corpus with only these queries, by their index."""
        return replace(
            self,
            query_ids=[self.query_ids[row] for row in rows],
            queries=[self.queries[row] for row in rows],
        )

    def index(self, embedder: Embedder) -> Index:
        """Embed the passages for searching."""
        with Workshop(Texts(self.document_ids, self.documents)) as shop:
            return Index(self, shop.vectors(embedder, shop.passages))


class Index:
    """The embedded passages of a corpus, searched exactly."""

    def __init__(self, corpus: JudgedCorpus, vectors: Vectors):
        self._corpus = corpus
        self.vectors = vectors  # (N, D)
        self._row_of = {query: row for row, query in enumerate(corpus.query_ids)}

    def search(self, queries: Float) -> tuple[TopK, Float]:
        """Return the top K of each query vector (Q, D), and the measure (Q,) expected over ties."""
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
        policy = Policy.of(missing="skip")
        evaluation = evaluate_tables(run, corpus.qrels, [corpus.measure], policy)
        values = np.full(len(corpus.queries), np.nan)
        rows = [self._row_of[query] for query in evaluation.queries]
        values[rows] = evaluation.outcomes[corpus.measure].expected
        return best, values

    def mean_relevant_vectors(self) -> Float:
        """(Q, D) the mean vector of each query's relevant passages; NaN if the corpus has none.

        The product with a query vector is the mean cosine to these passages.
        """
        corpus = self._corpus
        relevant = _relevant_judgments(corpus.qrels, corpus.measure)
        passage_row = {document: row for row, document in enumerate(corpus.document_ids)}
        means = np.full((len(corpus.queries), self.vectors.shape[1]), np.nan)
        for (query,), judgments in relevant.group_by("query", maintain_order=True):
            rows = [
                passage_row[document] for document in judgments["doc"] if document in passage_row
            ]
            if query in self._row_of and rows:
                means[self._row_of[str(query)]] = self.vectors[rows].mean(axis=0)
        return means


def _relevant_judgments(judged: Qrels, measure: Measure) -> pl.DataFrame:
    lowest_relevant = 4 if measure == _GRADED else 1
    return judged.to_frame().filter(pl.col("grade") >= lowest_relevant)
