"""RAnWG that counts a source once: a second passage of the same source is worth less.

δ = 1 for the first passage of a source in the list and β for the others; G_nov = Σ δ · w over the
top K [R §2.4]. Which passage of a source comes first is random inside a tie, so this is not linear
in the rank; it is exact all the same. Of a group of g, t fit into the top K. A source with n
passages of mean weight w̄ in the group and none before it adds, by symmetry among its passages,

    E = w̄ · P + β · w̄ · (n·t/g − P),   P = 1 − C(g−n, t)/C(g, t), the chance that any of them fits

and one that had a passage before adds β · w̄ · n·t/g.

    max: a source's best passage first. The best of each new source counts w, all else β·w; the t
         largest of these can be had together, for no other passage of a source is worth more.
    min: a source's worst passage first. j passages of a new source cost least when they are its j
         lightest: (1−β)·w₁ + β·(w₁ + … + w_j). The j of each source are chosen by dynamic
         programming, since the first one may cost more than the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from rankproof.data import QrelsLike, RunLike, read_qrels, read_run
from rankproof.data.tables import Qrels
from rankproof.data.ties import Order, check_order
from rankproof.evaluation import Summary, check_scale, summarise
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.measures import Measure, Outcomes, parse
from rankproof.measures.hypergeometric import none_drawn
from rankproof.presentation.json_values import plain_fields
from rankproof.tradeoffs.candidates import candidates
from rankproof.tradeoffs.ceilings import graded_weights
from rankproof.tradeoffs.pairs import read_pairs

Ideal = Literal["plain", "novel"]


@dataclass(frozen=True, slots=True)
class Novelty:
    """Novelty-discounted RAnWG of one run.

    >>> from rankproof.tradeoffs import novelty
    >>> run, qrels = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 5, "b": 5}}
    >>> found = novelty(run, qrels, {"a": "x", "b": "x"}, 2)
    >>> found.unsourced
    0
    """

    name: str
    measure: Measure  # the RAnWG whose weights are discounted
    beta: float
    ideal: Ideal
    queries: pl.Series  # (Q,)
    outcomes: Outcomes
    unsourced: int  # documents near the top that have no source: each counts as one of its own

    @property
    def summary(self) -> Summary:
        """Means over the queries where it is defined."""
        return summarise(self.outcomes)

    @property
    def per_query(self) -> pl.DataFrame:
        """One row per query: query, expected, oblivious, min, max."""
        figures = {n: getattr(self.outcomes, n) for n in ("expected", "oblivious", "min", "max")}
        return pl.DataFrame({"query": self.queries, **figures})

    def to_dict(self) -> dict[str, Any]:
        named = plain_fields(self, "name", "beta", "ideal", "unsourced")
        return {**named, "measure": str(self.measure), **self.summary.to_dict()}


def novelty(
    run: RunLike,
    qrels: QrelsLike,
    sources: Any,
    at: int = 10,
    *,
    beta: float = 0.5,
    measure: str | Measure | None = None,
    ideal: Ideal = "plain",
    order: Order = "input",
) -> Novelty:
    """RAnWG@K in which repeats of a source count β, over every order of ties.

    `sources` says which source each document is from: a {doc: source} dict, a frame or a file
    with columns doc and source. A document without one is a source of its own. Every passage of
    the list takes part, graded or not: a poor first passage of a source makes the next a repeat.
    `measure` sets other weights, such as "RAnWG(alpha=0.5)@10".

    The gain is divided by RAnWG's own ideal, so that it can only be lower than RAnWG, and reaches
    1 only if the best K come from K sources; ideal="novel" divides by the best discounted gain of
    all graded passages instead. There is no closed form for the standard deviation.

    >>> from rankproof.tradeoffs import novelty
    >>> run, qrels = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 5, "b": 5}}
    >>> novelty(run, qrels, {"a": "one book", "b": "one book"}, 2, beta=0.5).summary.expected
    0.75
    """
    check_order(order)
    weighed = parse(f"RAnWG@{at}" if measure is None else measure)
    if weighed.name != "RAnWG":
        raise InputError(f"{weighed} has no weights to discount", remedy="use RAnWG")
    k = weighed.cutoff or at
    if not (isinstance(beta, int | float) and 0 <= beta <= 1):
        raise InputError(f"beta {shorten(beta)} is not between 0 and 1", remedy="use 0.5, say")
    if ideal not in get_args(Ideal):
        raise InputError(f"ideal {shorten(ideal)} is unknown", remedy="use plain or novel")
    judged, mine = read_qrels(qrels), read_run(run)
    check_scale(weighed, judged.grade, judged.place)
    origin = read_pairs(sources, "doc", "source").frame.with_columns(
        pl.col("source").cast(pl.String)
    )
    weights = judged.to_frame().select(
        "query", "doc", weight=pl.Series(graded_weights(judged, weighed))
    )
    listed = (
        candidates(mine, order)
        .filter(pl.col("first") <= k)
        .join(judged.to_frame(), on="query", how="semi")
        .join(weights, on=["query", "doc"], how="left")
        .with_columns(pl.col("weight").fill_null(0.0))
    )
    if not len(listed):
        raise InputError(
            f"no query is both in {mine.name} and in {judged.name}",
            remedy="check that the two files belong together",
        )
    listed = _sourced(listed, origin)
    norm = _ideal(_sourced(weights, origin), judged, k, beta if ideal == "novel" else 1.0)
    expected, least, most, stated = (
        _by_query(frame, judged) / norm for frame in _figures(listed, k, beta)
    )
    outcomes = Outcomes(expected, least, most, stated, variance=None).consistent()
    return Novelty(
        name=mine.name,
        measure=weighed,
        beta=float(beta),
        ideal=ideal,
        queries=judged.queries,
        outcomes=outcomes,
        unsourced=int(listed["alone"].sum()),
    )


def _sourced(frame: pl.DataFrame, origin: pl.DataFrame) -> pl.DataFrame:
    """With `source`, and `alone` where a document has none and stands for itself."""
    return frame.join(origin, on="doc", how="left").with_columns(
        alone=pl.col("source").is_null(), source=pl.col("source").fill_null(pl.col("doc"))
    )


def _by_query(frame: pl.DataFrame, qrels: Qrels) -> Float:
    """(Q,) sums of `gain`, 0 for a query that lists nothing."""
    sums = frame.group_by("query").agg(pl.col("gain").sort().sum())
    joined = pl.DataFrame({"query": qrels.queries}).join(
        sums, on="query", how="left", maintain_order="left"
    )
    return joined["gain"].fill_null(0.0).to_numpy()


def _ideal(weights: pl.DataFrame, qrels: Qrels, k: int, beta: float) -> Float:
    """(Q,) the best K of all graded passages; β = 1 makes a repeat count in full."""
    best = pl.col("weight").rank("ordinal", descending=True).over("query", "alone", "source") == 1
    valued = weights.with_columns(gain=pl.col("weight") * pl.when(best).then(1.0).otherwise(beta))
    top = pl.col("gain").rank("ordinal", descending=True).over("query") <= k
    norm = _by_query(valued.filter(top), qrels)
    return np.where(norm > 0, norm, np.nan)


def _figures(listed: pl.DataFrame, k: int, beta: float) -> list[pl.DataFrame]:
    """Frames of query and gain for expected, min, max and oblivious."""
    source = ["query", "alone", "source"]
    group = ["query", "first"]
    listed = listed.with_columns(
        size=pl.col("last") - pl.col("first") + 1,
        fits=pl.min_horizontal("last", pl.lit(k)) - pl.col("first") + 1,
        fresh=pl.col("first") == pl.col("first").min().over(source),
    )
    each = listed.group_by(*source, "first").agg(
        pl.col("size", "fits", "fresh").first(),
        n=pl.len().cast(pl.Int64),
        total=pl.col("weight").sort().sum(),
        least=pl.col("weight").min(),
    )
    size, n, fits = (each[name].to_numpy() for name in ("size", "n", "fits"))
    total, fresh = each["total"].to_numpy(), each["fresh"].to_numpy()
    any_fits = 1.0 - none_drawn(size, n, fits)
    first = np.where(fresh, total / n * any_fits, 0.0)  # expected weight of a new source's first
    expected = each.select("query", gain=pl.Series(first + beta * (total * fits / size - first)))

    best = pl.col("weight").rank("ordinal", descending=True).over(*source, "first") == 1
    full = pl.when(pl.col("fresh") & best).then(1.0).otherwise(beta)
    most = listed.with_columns(gain=pl.col("weight") * full).filter(
        pl.col("gain").rank("ordinal", descending=True).over(group) <= pl.col("fits")
    )
    whole = each.filter(pl.col("fits") == pl.col("size")).select(
        "query",
        gain=beta * pl.col("total")
        + pl.when("fresh").then((1.0 - beta) * pl.col("least")).otherwise(0.0),
    )
    cut = listed.filter(pl.col("fits") < pl.col("size"))
    least = [
        (query, _lightest(frame, int(frame["fits"][0]), beta))
        for (query,), frame in cut.group_by("query")  # one group of a query is cut
    ]
    least_cut = pl.DataFrame(least, schema={"query": pl.String, "gain": pl.Float64}, orient="row")
    new = pl.col("rank") == pl.col("rank").min().over(source)
    stated = listed.filter(pl.col("rank") <= k).with_columns(
        gain=pl.col("weight") * pl.when(new).then(1.0).otherwise(beta)
    )
    return [expected, pl.concat([whole, least_cut]), most, stated]


def _lightest(group: pl.DataFrame, fits: int, beta: float) -> float:
    """The least that `fits` passages of a tie group can add.

    Passages without weight cost nothing and make what follows of their source a repeat: they go
    first. Then best[j] is the least cost of j more, source after source.
    """
    weightless = group["weight"] == 0.0
    left = fits - int(weightless.sum())
    if left <= 0:
        return 0.0
    opened = group.filter(weightless).select("alone", "source").unique()
    heavy = group.filter(~weightless)
    repeats = heavy.join(opened, on=["alone", "source"], how="semi")
    seen = pl.concat([repeats, heavy.filter(~pl.col("fresh"))]).unique("doc")
    new = heavy.join(seen, on="doc", how="anti")
    ladders = [beta * np.cumsum(np.sort(seen["weight"].to_numpy()))]
    for _, frame in new.group_by("alone", "source", maintain_order=True):
        weight = np.sort(frame["weight"].to_numpy())
        ladders.append((1.0 - beta) * weight[0] + beta * np.cumsum(weight))
    best = np.concatenate([[0.0], np.full(left, math.inf)])
    for ladder in ladders:
        before = best.copy()
        for j, cost in enumerate(ladder[:left], 1):
            best[j:] = np.minimum(best[j:], before[:-j] + cost)
    return float(best[left])
