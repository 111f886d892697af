"""What somebody's engine answered to each query, as a Run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from rankproof.data.columns import row_ids
from rankproof.data.hits import RANKS, Hits
from rankproof.data.tables import Run, build_run
from rankproof.foundation.arrays import Float, Int


def run_of_hits(
    name: str, query_ids: Sequence[str] | None, found: Sequence[Hits], cut: Int | None = None
) -> Run:
    """A Run of what an engine answered to each query."""
    queries = row_ids(query_ids, len(found), "query_ids")
    codes = np.repeat(np.arange(len(found), dtype=np.int32), [len(hits.ids) for hits in found])
    doc = pl.Series("doc", [doc for hits in found for doc in hits.ids], dtype=pl.String)
    score: Float = np.array([s for hits in found for s in hits.scores], np.float64)
    dtype = RANKS if any(hits.ranked for hits in found) else "float64"
    return build_run(name, queries, codes, doc, score, dtype, cut)


def rises(run: Run) -> bool:
    """Whether every list of two scores or more goes from the lowest to the highest: distances."""
    lists = [run.score[a:b] for a, b in zip(run.start[:-1], run.start[1:], strict=True)]
    told = [scores for scores in lists if len(scores) > 1 and scores.min() < scores.max()]
    return len(told) > 2 and all(bool((np.diff(scores) >= 0).all()) for scores in told)
