"""Cutting and reordering lists of candidates, with their ties kept in mind."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankproof.data.tables import Run, build_run
from rankproof.data.ties import rank_run
from rankproof.foundation.arrays import Float, Int


def head(run: Run, k: int | Int) -> Run:
    """The first k of each list, from best to worst; k may differ from query to query.

    Of documents that tie at the cut those stay which the run lists first, and `cut` counts those
    left out.
    """
    ranking = rank_run(run)
    order = np.arange(len(run)) if ranking.position is None else np.argsort(ranking.position)
    length = np.diff(run.start)
    query = np.repeat(np.arange(len(length)), length)
    place = np.arange(len(run)) - run.start[query]
    most = np.minimum(np.broadcast_to(np.asarray(k, np.int64), len(length)), length)
    score = run.score[order]
    last = run.start[:-1] + np.maximum(most, 1) - 1  # where each shortened list ends
    ends = np.zeros(len(length)) if not len(run) else score[np.minimum(last, len(run) - 1)]
    level = score == ends[query]
    cut = np.bincount(query[level & (place >= most[query])], minlength=len(length))
    if run.cut is not None:  # the tie at the cut may go on past the list's own end
        reaches = np.zeros(len(length), np.bool_)
        held = length > 0
        reaches[held] = score[run.start[1:][held] - 1] == ends[held]
        cut = cut + np.where(reaches, run.cut, 0)
    keep = place < most[query]
    rows = order[keep]
    codes = query[keep].astype(np.int32)
    doc, kept = run.doc.gather(rows), run.score[rows]
    return build_run(run.name, run.queries, codes, doc, kept, run.dtype, cut)


def reordered(run: Run, scores: pl.DataFrame, dtype: str) -> Run:
    """The same candidates with new scores, from a frame of query, doc and score."""
    joined = run.to_frame().select("query", "doc")
    joined = joined.join(scores, on=["query", "doc"], how="left", maintain_order="left")
    score: Float = joined["score"].to_numpy().astype(np.float64)
    assert not np.isnan(score).any(), "every candidate was scored"
    codes = np.repeat(np.arange(len(run.queries), dtype=np.int32), np.diff(run.start))
    return build_run(run.name, run.queries, codes, run.doc, score, dtype, run.cut)
