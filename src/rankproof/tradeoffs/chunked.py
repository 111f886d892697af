"""A corpus cut into chunks in several ways, and the same judgments for each of them.

Chunkings can only be compared on what was judged, which is spans of documents. So a list of chunks
is turned into a list of judged spans: a span is retrieved by the first chunk that holds it
(`retrieval/chunks.py` says when), and counts once, however the corpus was cut. A chunk is replaced
by the spans that it is the first to hold, best grade first; spans of the lowest grade only where it
holds no better one. A judged chunk none of whose spans are new stays, as an unjudged passage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from rankproof.data.tables import Qrels, Run, build_run
from rankproof.retrieval.chunks import ChunkSettings, chunk_documents, judged_spans, match_judgments
from rankproof.retrieval.workshop import Texts
from rankproof.tradeoffs.candidates import candidates

_REPEATED = "~"  # ends the id of a judged chunk whose span an earlier chunk retrieved


@dataclass(frozen=True, slots=True)
class Cut:
    """The passages of one chunking, and the judged spans that each holds."""

    passages: Texts
    spans: pl.DataFrame  # query, doc, judged, grade: `judged` is the id of a span in `doc`

    @property
    def judged_chunks(self) -> pl.DataFrame:
        """query, doc of each chunk that holds a judged span, also under the id of a repeat."""
        chunks = self.spans.select("query", "doc").unique(maintain_order=True)
        return pl.concat([chunks, chunks.with_columns(pl.col("doc") + _REPEATED)])

    def credit(self, run: Run) -> Run:
        """Return a list of chunks as a list of judged spans.

        Spans that replace one chunk have its score, each the next smaller number than the one
        before, so that they do not tie.
        """
        chunks = candidates(run, "input").with_columns(score=pl.Series(run.score))
        rows = chunks.join(
            self._first_retrieved(chunks).select("query", "doc", "judged"),
            on=["query", "doc"], how="left", maintain_order="left_right",
        )  # fmt: skip
        span_ids = self.spans.select("query", doc="judged", is_span=True).unique()
        rows = rows.join(span_ids, on=["query", "doc"], how="left", maintain_order="left")
        own_id = pl.when("is_span").then(pl.col("doc") + _REPEATED).otherwise("doc")
        place = pl.int_range(pl.len()).over("query", "doc")  # among the spans of one chunk
        rows = rows.with_columns(place=place, doc=pl.coalesce("judged", own_id))
        score, places = rows["score"].to_numpy().copy(), rows["place"].to_numpy()
        for step in range(int(places.max()) if len(places) else 0):
            score[places > step] = np.nextafter(score[places > step], -np.inf)
        indexes = np.arange(len(run.queries), dtype=np.int32)
        index_of = pl.DataFrame({"query": run.queries, "index": indexes})
        codes = rows.join(index_of, on="query", how="left", maintain_order="left")["index"]
        return build_run(
            run.name, run.queries, codes.to_numpy(), rows["doc"], score, run.dtype, run.cut
        )

    def _first_retrieved(self, chunks: pl.DataFrame) -> pl.DataFrame:
        """Return each span that a list retrieves, with the first chunk that holds it."""
        retrieved = (
            chunks.select("query", "doc", "rank")
            .join(self.spans, on=["query", "doc"])
            .sort("rank")
            .unique(["query", "judged"], keep="first", maintain_order=True)
        )
        lowest_grade = self.spans["grade"].min()
        best_of_chunk = pl.max("grade").over("query", "doc")
        is_counted = (pl.col("grade") > lowest_grade) | (best_of_chunk == pl.col("grade"))
        return retrieved.filter(is_counted).sort("grade", descending=True, maintain_order=True)


def cut_documents(settings: ChunkSettings | None, documents: Texts) -> tuple[Texts, pl.DataFrame]:
    """Return passages, and doc, source, start, end of each; without settings, whole documents."""
    if settings is None:
        ids, lengths = documents.ids, [len(text) for text in documents.texts]
        schema = {"doc": pl.String, "source": pl.String, "start": pl.Int64, "end": pl.Int64}
        columns = {"doc": ids, "source": ids, "start": 0, "end": lengths}
        return documents, pl.DataFrame(columns, schema=schema)
    chunks = chunk_documents(documents.ids, documents.texts, settings)
    return Texts(chunks["doc"].to_list(), chunks["text"].to_list()), chunks.drop("text")


def cut_with_judgments(settings: ChunkSettings | None, documents: Texts, qrels: Qrels) -> Cut:
    """Cut documents into passages, and find the judged spans that each holds."""
    passages, chunks = cut_documents(settings, documents)
    judgments = qrels.to_frame().select("query", "doc", "grade")
    return Cut(passages, match_judgments(chunks, judged_spans(judgments, documents.ids)))
