"""A corpus cut in several ways, and the same judgements for each of them.

A judged span counts once, however it was cut: it is found by the first chunk in a list that holds
it (`retrieval/chunks.py` says when). So figures are of judged spans: where a list has such a chunk,
the spans that it holds stand in its place, the best grade first, and those of the lowest grade only
where it holds no better one. Further chunks of a span that was found stay, and are not judged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from rankproof.data.tables import Qrels, Run, build_run
from rankproof.retrieval.chunks import ChunkSettings, chunk_documents, judged_spans, match_judgments
from rankproof.retrieval.workshop import Texts
from rankproof.tradeoffs.candidates import candidates

AGAIN = "~"  # after the id of a chunk that is judged itself, where another was found first


@dataclass(frozen=True, slots=True)
class Cut:
    """The passages of one chunking, and the judged spans that each holds."""

    passages: Texts
    held: pl.DataFrame  # query, doc, judged, grade

    @property
    def known(self) -> pl.DataFrame:
        """query, doc that hold something judged: found again, they are no holes."""
        once = self.held.select("query", "doc").unique(maintain_order=True)
        return pl.concat([once, once.with_columns(pl.col("doc") + AGAIN)])

    def credited(self, run: Run) -> Run:
        """A list of chunks as one of judged spans."""
        listed = candidates(run, "input").with_columns(score=pl.Series(run.score))
        met = listed.select("query", "doc", "rank").join(self.held, on=["query", "doc"])
        found = met.sort("rank").unique(["query", "judged"], keep="first", maintain_order=True)
        lowest = self.held["grade"].min()
        best = pl.max("grade").over("query", "doc")
        found = found.filter((pl.col("grade") > lowest) | (best == pl.col("grade")))
        found = found.sort("grade", descending=True, maintain_order=True)
        places = listed.join(
            found.select("query", "doc", "judged"),
            on=["query", "doc"], how="left", maintain_order="left_right",
        )  # fmt: skip
        known = self.held.select("query", doc="judged", own=True).unique()
        places = places.join(known, on=["query", "doc"], how="left", maintain_order="left")
        again = pl.when("own").then(pl.col("doc") + AGAIN).otherwise("doc")
        further = pl.int_range(pl.len()).over("query", "doc")  # of the spans in one chunk's place
        places = places.with_columns(further=further, doc=pl.coalesce("judged", again))
        score, extra = places["score"].to_numpy().copy(), places["further"].to_numpy()
        for step in range(int(extra.max()) if len(extra) else 0):
            score[extra > step] = np.nextafter(score[extra > step], -np.inf)
        at = pl.DataFrame({"query": run.queries, "at": np.arange(len(run.queries), dtype=np.int32)})
        codes = places.join(at, on="query", how="left", maintain_order="left")["at"].to_numpy()
        doc = places["doc"]
        return build_run(run.name, run.queries, codes, doc, score, run.dtype, run.cut)


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


def cut_and_judged(chosen: ChunkSettings | None, documents: Texts, qrels: Qrels) -> Cut:
    """A chunking, with the judgements that fall on it."""
    passages, chunks = cut(chosen, documents)
    frame = qrels.to_frame().select("query", "doc", "grade")
    return Cut(passages, match_judgments(chunks, judged_spans(frame, documents.ids)))
