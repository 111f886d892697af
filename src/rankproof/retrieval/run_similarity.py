"""Similarity of two runs' rankings: overlap@K and Kendall's τ of their top K."""

from __future__ import annotations

import math

import polars as pl

from rankproof.data.tables import Run
from rankproof.foundation.arrays import Float
from rankproof.retrieval.ranked_lists import keep_first
from rankproof.statistics.rank_similarity import kendall_tau as tau_b


def overlap(a: Run, b: Run, k: int) -> pl.DataFrame:
    """Return query and overlap: |top K of a ∩ top K of b| / K', K' the longer of the two lists.

    Only queries of both runs count. K' is less than K where both lists are shorter.
    """
    sizes = _shared_documents(a, b, k)
    return sizes.select("query", overlap=pl.col("shared") / pl.max_horizontal("long_a", "long_b"))


def kendall(a: Run, b: Run, k: int) -> pl.DataFrame:
    """Return query and tau: Kendall's τ-b over the documents in either top K.

    A document that one list lacks is ranked behind all of it, tied with the others it lacks;
    documents of equal score tie. τ is undefined (NaN) where a list ties all documents.
    """
    ranks = _ranks(a, k).join(_ranks(b, k), on=["query", "doc"], how="full", coalesce=True)
    queries = set(a.queries.to_list()) & set(b.queries.to_list())
    ranks = ranks.filter(pl.col("query").is_in(pl.Series(sorted(queries)).implode()))
    last_rank = float(k + 1)
    ranks = ranks.with_columns(pl.col("rank", "rank_right").fill_null(last_rank))
    ranks = ranks.sort("query", "doc").with_columns(count=pl.len().over("query"))
    frames = [pl.DataFrame(schema={"query": pl.String, "tau": pl.Float64})]
    for (key,), group in ranks.group_by("count", maintain_order=True):  # lists of one length
        count = int(str(key))
        ranks_a, ranks_b = (
            group[name].to_numpy().reshape(-1, count) for name in ("rank", "rank_right")
        )
        query = group["query"].gather_every(count)
        frames.append(pl.DataFrame({"query": query, "tau": tau_b(ranks_a, ranks_b)}))
    return pl.concat(frames).sort("query")


def _shared_documents(a: Run, b: Run, k: int) -> pl.DataFrame:
    """Return query, long_a and long_b (lengths of the two lists), and shared documents."""
    top_a, top_b = (keep_first(run, k).to_frame().select("query", "doc") for run in (a, b))
    shared = top_a.join(top_b, on=["query", "doc"]).group_by("query").agg(shared=pl.len())
    return (
        top_a.group_by("query")
        .agg(long_a=pl.len())
        .join(top_b.group_by("query").agg(long_b=pl.len()), on="query")
        .join(shared, on="query", how="left")
        .with_columns(pl.col("shared").fill_null(0))
        .sort("query")
    )


def _ranks(run: Run, k: int) -> pl.DataFrame:
    """Return query, doc and rank of the top k; documents that tie share their mean rank."""
    return (
        keep_first(run, k)
        .to_frame()
        .with_columns(rank=pl.col("score").rank("average", descending=True).over("query"))
        .drop("score")
    )


def mean(values: pl.Series) -> float:
    """Return the mean over the queries for which a value is defined."""
    defined: Float = values.drop_nulls().drop_nans().to_numpy()
    return math.fsum(defined) / len(defined) if len(defined) else math.nan
