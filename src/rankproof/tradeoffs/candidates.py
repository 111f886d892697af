"""The documents of a run with their ranks, and with the ranks that their tie group takes."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankproof.data.tables import Run
from rankproof.data.ties import Order, rank_run


def candidates(run: Run, order: Order) -> pl.DataFrame:
    """query, doc; rank under the tie-break; first and last rank of the group it ties with."""
    ranking = rank_run(run, order)
    position = np.arange(len(run)) if ranking.position is None else ranking.position
    group = np.searchsorted(ranking.group_start, position, side="right") - 1
    before = np.repeat(ranking.start[:-1], np.diff(ranking.start))  # rows stand by query
    return run.to_frame().select(
        "query",
        "doc",
        rank=pl.Series(position - before + 1),
        first=pl.Series(ranking.group_start[group] - before + 1),
        last=pl.Series(ranking.group_start[group + 1] - before),
    )
