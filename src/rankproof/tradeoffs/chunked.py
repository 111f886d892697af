"""A corpus cut in several ways, and the same judgements for each of them."""

from __future__ import annotations

import polars as pl

from rankproof.records import read_qrels
from rankproof.retrieval.chunks import (
    SPAN,
    ChunkSettings,
    chunk_documents,
    judge_chunks,
    judged_spans,
)
from rankproof.retrieval.workshop import Texts
from rankproof.tables import Qrels


def cut(chosen: ChunkSettings | None, documents: Texts) -> tuple[Texts, pl.DataFrame]:
    """The passages, and where each comes from: doc, source, start, end. Without settings a
    document is a passage."""
    if chosen is None:
        lengths = [len(text) for text in documents.texts]
        whole = {"doc": documents.ids, "source": documents.ids, "start": 0, "end": lengths}
        kinds = {"doc": pl.String, "source": pl.String, "start": pl.Int64, "end": pl.Int64}
        return documents, pl.DataFrame(whole, schema=kinds)
    chunks = chunk_documents(documents.ids, documents.texts, chosen)
    return Texts(chunks["doc"].to_list(), chunks["text"].to_list()), chunks.drop("text")


def cut_and_judged(
    chosen: ChunkSettings | None, documents: Texts, qrels: Qrels
) -> tuple[Texts, Qrels]:
    """A chunking with the judgements that fall on it; what is judged and not in the corpus stays as
    it is, since every chunking misses it."""
    passages, spans = cut(chosen, documents)
    frame = qrels.to_frame().select("query", "doc", "grade")
    judged = judged_spans(frame, documents.ids)
    known = frame.with_columns(source=pl.col("doc").str.replace(SPAN, "")).filter(
        pl.col("doc").is_in(documents.ids) | pl.col("source").is_in(documents.ids)
    )
    absent = frame.join(known, on=["query", "doc"], how="anti")
    graded = pl.concat([judge_chunks(judged, spans), absent.cast({"grade": pl.Int64})])
    return passages, read_qrels(graded, name=qrels.name)
