"""RAnWG in which a source counts once: a second passage of the same source is worth less.

    G_nov = Σ δ · w over the top K,   δ = 1 for the first passage of its source in the list, else β

[R §2.4], with w the weights of RAnWG. Within a tie it is random which passage of a source comes
first, so that G_nov is not linear in the ranks; its mean and extremes are exact all the same. Let t
of the g passages of a tie group be in the top K, and n of them, of mean weight w̄, be of one source.
If no earlier passage is of this source, its expected gain is, by symmetry among its n passages,

    E = w̄ · P + β · w̄ · (n·t/g − P),   P = 1 − C(g−n, t)/C(g, t) = P(any of them is in the top K)

and β · w̄ · n·t/g if there is an earlier one. The extremes over orders within the group:

    max   The best passage of each new source counts w and all others β·w; the t largest of these
          can occur together, since no other passage of a source is worth more than its best.
    min   The j lightest passages w₁ ≤ … ≤ w_j of a new source, in this order, cost
          (1−β)·w₁ + β·(w₁ + … + w_j). Dynamic programming chooses the j of each source: a greedy
          choice fails where the first passage of a source costs more than the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from rankproof.data import QrelsLike, RunLike, read_qrels, read_run
from rankproof.data.tables import Qrels, Run
from rankproof.data.ties import Order, check_order
from rankproof.evaluation import MeanScore, check_scale, mean_score
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
    >>> novelty(run, qrels, {"a": "x", "b": "x"}, 2).unsourced
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
    def summary(self) -> MeanScore:
        """Means over the queries where RAnWG is defined."""
        return mean_score(self.outcomes, self.measure)

    @property
    def per_query(self) -> pl.DataFrame:
        """One row per query: query, expected, oblivious, min, max."""
        names = ("expected", "oblivious", "min", "max")
        return pl.DataFrame(
            {"query": self.queries, **{name: getattr(self.outcomes, name) for name in names}}
        )

    def to_dict(self) -> dict[str, Any]:
        """The settings and the means, as JSON has them."""
        settings = plain_fields(self, "name", "beta", "ideal", "unsourced")
        return {**settings, "measure": str(self.measure), **self.summary.to_dict()}


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
    """Evaluate RAnWG@K with repeats of a source counting β, over every order of ties.

    `sources` is the source of each document: a {doc: source} dict, a frame or a file with columns
    doc and source. A document without one is a source of its own. Ungraded passages take part too:
    an irrelevant first passage of a source makes the next one a repeat. `measure` sets other
    weights, such as "RAnWG(alpha=0.5)@10".

    The gain is divided by RAnWG's own ideal, so that it is never above RAnWG and reaches 1 only if
    the best K come from K sources; ideal="novel" divides by the best discounted gain of all graded
    passages instead. There is no closed form for the standard deviation.

    >>> from rankproof.tradeoffs import novelty
    >>> run, qrels = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 5, "b": 5}}
    >>> novelty(run, qrels, {"a": "one book", "b": "one book"}, 2, beta=0.5).summary.expected
    0.75
    """
    check_order(order)
    ranwg = parse(f"RAnWG@{at}" if measure is None else measure)
    if ranwg.name != "RAnWG":
        raise InputError(f"{ranwg} has no weights to discount", remedy="use RAnWG")
    k = ranwg.cutoff or at
    if not (isinstance(beta, int | float) and 0 <= beta <= 1):
        raise InputError(f"beta {shorten(beta)} is not between 0 and 1", remedy="use 0.5, say")
    if ideal not in get_args(Ideal):
        raise InputError(f"ideal {shorten(ideal)} is unknown", remedy="use plain or novel")
    judgments, ranked = read_qrels(qrels), read_run(run)
    check_scale(ranwg, judgments.grade, judgments.place)
    source_of = read_pairs(sources, "doc", "source").frame
    source_of = source_of.with_columns(pl.col("source").cast(pl.String))
    weights = judgments.to_frame().select(
        "query", "doc", weight=pl.Series(graded_weights(judgments, ranwg))
    )
    weights = _add_source(weights, source_of)
    listed = _add_source(_top_with_weights(ranked, judgments, weights, k, order), source_of)
    norm = _ideal_gain(weights, judgments, k, beta if ideal == "novel" else 1.0)
    by_source = _summarize_sources(listed)
    gains = (
        _expected_gain(by_source, beta),
        _lowest_gain(listed, by_source, beta),
        _highest_gain(listed, beta),
        _listed_gain(listed, k, beta),
    )
    expected, lowest, highest, as_listed = (_sum_by_query(gain, judgments) / norm for gain in gains)
    return Novelty(
        name=ranked.name,
        measure=ranwg,
        beta=float(beta),
        ideal=ideal,
        queries=judgments.queries,
        outcomes=Outcomes(expected, lowest, highest, as_listed, variance=None).consistent(),
        unsourced=int(listed["alone"].sum()),
    )


# Frames of passages have a row per passage: query, doc, weight, source, alone; those of a run also
# rank, first, last (see `candidates`), size, fits and is_new (see `_top_with_weights`).
_SOURCE = ("query", "alone", "source")
_TIE_GROUP = ("query", "first")


def _add_source(passages: pl.DataFrame, source_of: pl.DataFrame) -> pl.DataFrame:
    """Add `source`, and `alone`: true for a document without one, which is its own source."""
    return passages.join(source_of, on="doc", how="left").with_columns(
        alone=pl.col("source").is_null(), source=pl.col("source").fill_null(pl.col("doc"))
    )


def _top_with_weights(
    run: Run, judgments: Qrels, weights: pl.DataFrame, k: int, order: Order
) -> pl.DataFrame:
    """Return the passages that some order of ties puts into the top K, with their weights.

    `size` is that of the tie group, `fits` the number of its passages that are in the top K.
    """
    first, last = pl.col("first"), pl.col("last")
    listed = (
        candidates(run, order)
        .filter(first <= k)
        .join(judgments.to_frame(), on="query", how="semi")
        .join(weights.select("query", "doc", "weight"), on=["query", "doc"], how="left")
        .with_columns(
            pl.col("weight").fill_null(0.0),
            size=last - first + 1,
            fits=pl.min_horizontal(last, pl.lit(k)) - first + 1,
        )
    )
    if not len(listed):
        raise InputError(
            f"no query is both in {run.name} and in {judgments.name}",
            remedy="check that the two files belong together",
        )
    return listed


def _sum_by_query(gains: pl.DataFrame, judgments: Qrels) -> Float:
    """Return (Q,) the sum of `gain` for each query, 0 for one without rows."""
    sums = gains.group_by("query").agg(pl.col("gain").sort().sum())
    queries = pl.DataFrame({"query": judgments.queries})
    joined = queries.join(sums, on="query", how="left", maintain_order="left")
    return joined["gain"].fill_null(0.0).to_numpy()


def _discounted(is_first: pl.Expr, beta: float) -> pl.Expr:
    """The weight of a passage, times β unless it is the first of its source."""
    return pl.col("weight") * pl.when(is_first).then(1.0).otherwise(beta)


def _best_of(groups: Sequence[str]) -> pl.Expr:
    """True for one passage of the highest weight in each group."""
    return pl.col("weight").rank("ordinal", descending=True).over(*groups) == 1


def _ideal_gain(weights: pl.DataFrame, judgments: Qrels, k: int, beta: float) -> Float:
    """Return (Q,) the gain of the best K of all graded passages; NaN for 0.

    β = 1 is the ideal of RAnWG itself, in which repeats count in full.
    """
    gains = weights.with_columns(gain=_discounted(_best_of(_SOURCE), beta))
    is_top = pl.col("gain").rank("ordinal", descending=True).over("query") <= k
    ideal = _sum_by_query(gains.filter(is_top), judgments)
    return np.where(ideal > 0, ideal, np.nan)


def _is_new() -> pl.Expr:
    """True for a passage in the first tie group that has its source."""
    return pl.col("first") == pl.col("first").min().over(_SOURCE)


def _summarize_sources(listed: pl.DataFrame) -> pl.DataFrame:
    """Return for each source in each tie group its number of passages, and their total weight."""
    return (
        listed.with_columns(is_new=_is_new())
        .group_by(*_SOURCE, "first")
        .agg(
            pl.col("size", "fits", "is_new").first(),
            n=pl.len().cast(pl.Int64),
            total=pl.col("weight").sort().sum(),
            least=pl.col("weight").min(),
        )
    )


def _expected_gain(by_source: pl.DataFrame, beta: float) -> pl.DataFrame:
    """Return query and gain: the formula for E above, of each source in each tie group."""
    size, n, fits = (by_source[name].to_numpy() for name in ("size", "n", "fits"))
    total, is_new = by_source["total"].to_numpy(), by_source["is_new"].to_numpy()
    any_fits = 1.0 - none_drawn(size, n, fits)
    first_passage = np.where(is_new, total / n * any_fits, 0.0)
    gain = first_passage + beta * (total * fits / size - first_passage)
    return by_source.select("query", gain=pl.Series(gain))


def _highest_gain(listed: pl.DataFrame, beta: float) -> pl.DataFrame:
    """Return query and gain of the passages that fit where those worth most come first."""
    gains = listed.with_columns(gain=_discounted(_is_new() & _best_of([*_SOURCE, "first"]), beta))
    place = pl.col("gain").rank("ordinal", descending=True).over(_TIE_GROUP)
    return gains.filter(place <= pl.col("fits"))


def _lowest_gain(listed: pl.DataFrame, by_source: pl.DataFrame, beta: float) -> pl.DataFrame:
    """Return query and gain where passages worth least come first.

    A tie group that fits whole only decides which passage of a new source counts in full: the
    lightest. Of the group that ends past K, at most one of a query, `_lightest_choice` decides.
    """
    first_passage = pl.when("is_new").then((1.0 - beta) * pl.col("least")).otherwise(0.0)
    whole = by_source.filter(pl.col("fits") == pl.col("size")).select(
        "query", gain=beta * pl.col("total") + first_passage
    )
    is_cut = pl.col("fits") < pl.col("size")
    cut = listed.with_columns(is_new=_is_new()).filter(is_cut).group_by("query")
    lowest = [(query, _lightest_choice(group, beta)) for (query,), group in cut]
    schema = {"query": pl.String, "gain": pl.Float64}
    return pl.concat([whole, pl.DataFrame(lowest, schema=schema, orient="row")])


def _listed_gain(listed: pl.DataFrame, k: int, beta: float) -> pl.DataFrame:
    """Return query and gain of the top K as the stated tie-break orders it."""
    is_first = pl.col("rank") == pl.col("rank").min().over(_SOURCE)
    return listed.filter(pl.col("rank") <= k).with_columns(gain=_discounted(is_first, beta))


def _lightest_choice(group: pl.DataFrame, beta: float) -> float:
    """Return the least gain of the passages of one tie group that fit into the top K.

    Passages of weight 0 come first: they cost nothing and turn what follows of their source into
    repeats. Then lowest[j] is the least gain of j further passages from the sources so far.
    """
    is_weightless = group["weight"] == 0.0
    remaining = int(group["fits"][0]) - int(is_weightless.sum())
    if remaining <= 0:
        return 0.0
    opened = group.filter(is_weightless).select("alone", "source").unique()
    weighted = group.filter(~is_weightless)
    of_opened = weighted.join(opened, on=["alone", "source"], how="semi")
    repeats = pl.concat([of_opened, weighted.filter(~pl.col("is_new"))]).unique("doc")
    new = weighted.join(repeats, on="doc", how="anti")
    costs = [beta * np.cumsum(np.sort(repeats["weight"].to_numpy()))]  # of 1, 2, … passages
    for _, passages in new.group_by("alone", "source", maintain_order=True):
        weight = np.sort(passages["weight"].to_numpy())
        costs.append((1.0 - beta) * weight[0] + beta * np.cumsum(weight))
    lowest = np.concatenate([[0.0], np.full(remaining, math.inf)])
    for cost_of_source in costs:
        without = lowest.copy()
        for j, cost in enumerate(cost_of_source[:remaining], 1):
            lowest[j:] = np.minimum(lowest[j:], without[:-j] + cost)
    return float(lowest[remaining])
