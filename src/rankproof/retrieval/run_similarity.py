"""How alike two runs rank: overlap@K and Kendall's τ of their top K."""

from __future__ import annotations

import math

import polars as pl

from rankproof.data.tables import Run
from rankproof.foundation.arrays import Float
from rankproof.retrieval.ranked_lists import keep_first
from rankproof.statistics.rank_similarity import kendall_tau as tau_b


def overlap(a: Run, b: Run, k: int) -> pl.DataFrame:
    """query, overlap: |top K of a ∩ top K of b| / K', K' the longer of the two lists.

    Over the queries of both; lists that end before K are as long as they are.
    """
    joined = _both(a, b, k)
    return joined.select("query", overlap=pl.col("shared") / pl.max_horizontal("long_a", "long_b"))


def kendall(a: Run, b: Run, k: int) -> pl.DataFrame:
    """query, tau: Kendall's τ-b over the documents in either top K.

    A document that one list lacks stands behind all that it has, tied with the others it lacks;
    documents of equal score tie. Undefined (NaN) where a list ties all of them.
    """
    ranks = _ranks(a, k).join(_ranks(b, k), on=["query", "doc"], how="full", coalesce=True)
    queries = set(a.queries.to_list()) & set(b.queries.to_list())
    ranks = ranks.filter(pl.col("query").is_in(pl.Series(sorted(queries)).implode()))
    behind = float(k + 1)
    ranks = ranks.with_columns(pl.col("rank", "rank_right").fill_null(behind))
    ranks = ranks.sort("query", "doc").with_columns(count=pl.len().over("query"))
    found = [pl.DataFrame(schema={"query": pl.String, "tau": pl.Float64})]
    for (count,), some in ranks.group_by("count", maintain_order=True):  # lists of one length
        one, other = (
            some[name].to_numpy().reshape(-1, int(str(count))) for name in ("rank", "rank_right")
        )
        asked = some["query"].gather_every(int(str(count)))
        found.append(pl.DataFrame({"query": asked, "tau": tau_b(one, other)}))
    return pl.concat(found).sort("query")


def _both(a: Run, b: Run, k: int) -> pl.DataFrame:
    one, other = (keep_first(run, k).to_frame().select("query", "doc") for run in (a, b))
    shared = one.join(other, on=["query", "doc"]).group_by("query").agg(shared=pl.len())
    return (
        one.group_by("query")
        .agg(long_a=pl.len())
        .join(other.group_by("query").agg(long_b=pl.len()), on="query")
        .join(shared, on="query", how="left")
        .with_columns(pl.col("shared").fill_null(0))
        .sort("query")
    )


def _ranks(run: Run, k: int) -> pl.DataFrame:
    """query, doc, rank of the top k; documents that tie share their mean rank."""
    return (
        keep_first(run, k)
        .to_frame()
        .with_columns(rank=pl.col("score").rank("average", descending=True).over("query"))
        .drop("score")
    )


def mean(values: pl.Series) -> float:
    """Over the queries where it is defined."""
    defined: Float = values.drop_nulls().drop_nans().to_numpy()
    return math.fsum(defined) / len(defined) if len(defined) else math.nan
