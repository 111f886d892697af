"""Spearman's ρ to the float32 ranking."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankproof.foundation.arrays import Array


@dataclass(frozen=True, slots=True)
class Agreement:
    """Mean of ρ over the queries that have one: where all scores tie there is none."""

    mean: float  # NaN where no query has one
    queries: int  # over which the mean is taken
    undefined: int


def agreement(owner: Array, reference: Array, scores: Array) -> Agreement:
    """ρ of scores (N,) to reference scores of the same documents, query by query; ties share ranks.

    `owner` (N,) is the query of each document.
    """
    # Widened: polars keeps the arithmetic of ranks in the type of the columns.
    wide = {"reference": reference.astype(np.float64), "score": scores.astype(np.float64)}
    frame = pl.DataFrame({"owner": owner, **wide})
    found = frame.group_by("owner").agg(
        pl.corr("reference", "score", method="spearman").alias("rho")
    )["rho"]
    defined = found.filter(found.is_not_null() & found.is_not_nan())
    count = len(defined)
    mean = math.fsum(defined) / count if count else math.nan
    return Agreement(mean, count, len(found) - count)
