"""Runs, times and prices → one row per configuration, and one per query and measure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from rankproof.arrays import Float
from rankproof.evaluation import Evaluation, Policy, evaluate_tables
from rankproof.measures import Measure, parse
from rankproof.records.beir import Corpus
from rankproof.retrieval.http import Endpoint
from rankproof.retrieval.likeness import kendall, mean, overlap
from rankproof.statistics.intervals import mean_intervals, percentile_intervals
from rankproof.statistics.resampling import resampled
from rankproof.tables import Qrels, Run, build_run
from rankproof.tradeoffs.candidates import candidates
from rankproof.tradeoffs.ceilings import holds_all
from rankproof.tradeoffs.latency import KINDS, Latency
from rankproof.tradeoffs.plan import NONE, Configuration, SweepSettings, over_network
from rankproof.tradeoffs.prices import generator_cost, read_prices, rerank_cost, search_cost
from rankproof.tradeoffs.stack import Ranked, Stack, mean_depth
from rankproof.unjudged.beside import set_beside, with_judged
from rankproof.unjudged.bounds import Bound, View

LIKE_AT = 10  # overlap and τ to the best configuration are of the top 10
CEILINGS = ("RAnWG", "NRecall4")
BYTES_PER_TOKEN = 4.0  # of a generator's input, where nobody counted: a rule of thumb


class Costs:
    """What 1,000 queries cost, by the price file."""

    def __init__(self, settings: SweepSettings, corpus: Corpus):
        self._settings = settings
        prices = read_prices(settings.prices)
        named = {
            name: settings.rerank_prices.get(name, reranker.model)
            for name, reranker in settings.rerankers.items()
            if isinstance(reranker, Endpoint)
        } | {name: settings.rerank_prices[name] for name in settings.rerank_prices}
        self._rerank = {name: prices.price(model) for name, model in named.items()}
        self.by_search = [
            name for name, price in self._rerank.items() if price.usd_per_1000_searches is not None
        ]
        self._generator = 0.0 if settings.generator is None else prices.per_1k(settings.generator)
        used = [*named.values(), *([settings.generator] if settings.generator else [])]
        self.notes = prices.stale(models=used)
        size = sum(len(text.encode()) for text in corpus.documents) / max(1, len(corpus.documents))
        self.tokens = float(settings.tokens_per_passage or size / BYTES_PER_TOKEN)
        self.said: dict[str, Any] = {
            "date": prices.date,
            "source": prices.source,
            **prices.said(used),
            "tokens_per_passage": self.tokens,
            "tokens_are": "given" if settings.tokens_per_passage else "estimated, 4 bytes a token",
        }

    def rerank(self, reranker: str, tokens: float, searches: float) -> float:
        """Of a reranker that reads so many tokens for a query and bills so many searches; a local
        one costs nothing."""
        price = self._rerank.get(reranker)
        if price is None:
            return 0.0
        by_search = search_cost(searches, price.usd_per_1000_searches or 0.0)
        return by_search + rerank_cost(1, tokens, (price.usd_per_million_tokens or 0.0) / 1000.0)

    def generate(self, passages: int) -> float:
        return generator_cost(passages, self.tokens, self._generator)


def tables(
    stack: Stack,
    latencies: dict[Configuration, Latency],
    qrels: Qrels,
    costs: Costs,
    progress: Callable[..., Any],
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """`configurations.parquet`, `per_query.parquet` and `lists.parquet`."""
    settings = stack.settings
    ranked: dict[Configuration, Ranked] = {}
    evaluations: dict[Configuration, Evaluation] = {}
    ceilings: dict[Configuration, Evaluation] = {}
    bounds: dict[Configuration, Bound] = {}  # of the measure chosen by, over its holes
    best_by = parse(settings.best_by)
    measures = settings.all_measures
    limited = [m for m in measures if m.name in CEILINGS]
    policy = Policy.of(None, None, False, None, None)
    with progress("evaluating", len(stack.grid)) as tell:
        for c in stack.grid:
            same = next((o for o in ranked if _same(o, c)), None)  # but for the prompt
            if same is not None:
                ranked[c], evaluations[c] = ranked[same], evaluations[same]
                ceilings[c], bounds[c] = ceilings[same], bounds[same]
            else:
                ranked[c] = stack.ranked(c)
                found = evaluate_tables(ranked[c].final, qrels, with_judged(measures), policy)
                evaluations[c] = set_beside(found, measures)
                bounds[c] = View([ranked[c].final], qrels, policy).run_bound(0, best_by)
                # Where all candidates tie, the best order is the maximum over orders.
                ceilings[c] = evaluate_tables(level(ranked[c].pool), qrels, limited, policy)
            tell(1)
    best = max(stack.grid, key=lambda c: _sortable(evaluations[c][best_by].expected))
    rows = [
        {
            **_about(stack, c, ranked[c]),
            **_quality(evaluations[c], ceilings[c]),
            f"{best_by} lowest": bounds[c].lowest,
            f"{best_by} highest": bounds[c].highest,
            "holds_all_judged": holds_all(ranked[c].pool.to_frame(), qrels),
            **_time(latencies[c]),
            **_cost(settings, c, ranked[c], costs),
            **_size(stack, c),
            f"overlap@{LIKE_AT}": mean(
                overlap(ranked[c].final, ranked[best].final, LIKE_AT)["overlap"]
            ),
            f"tau@{LIKE_AT}": mean(kendall(ranked[c].final, ranked[best].final, LIKE_AT)["tau"]),
            "best": c == best,
        }
        for c in stack.grid
    ]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    frame = _with_intervals(frame, stack.grid, evaluations, ceilings, settings.seed)
    per_query = pl.concat(
        [
            evaluations[c]
            .per_query.select("query", "measure", value="expected", min="min", max="max")
            .insert_column(
                0,
                pl.repeat(c.name, len(evaluations[c].queries) * len(measures), eager=True).alias(
                    "configuration"
                ),
            )
            for c in stack.grid
        ]
    )
    deepest = max(m.require_cutoff().cutoff or 0 for m in measures)
    lists = pl.concat([_listed(c, ranked[c].final, deepest) for c in stack.grid])
    return frame, per_query, lists


def _listed(c: Configuration, run: Run, depth: int) -> pl.DataFrame:
    """configuration, query, doc, score of what a figure can reach: ties at the end whole."""
    reached = candidates(run, "input")["first"] <= depth
    return run.to_frame().select(
        pl.lit(c.name).cast(pl.Categorical).alias("configuration"),
        pl.col("query", "doc"),
        pl.col("score").cast(pl.Float64),
    ).filter(reached)  # fmt: skip


def _same(one: Configuration, other: Configuration) -> bool:
    plain = (c.to_dict() | {"prompt_k": None} for c in (one, other))
    return next(plain) == next(plain)


def level(run: Run) -> Run:
    """The same candidates, all of one score."""
    codes = np.repeat(np.arange(len(run.queries), dtype=np.int32), np.diff(run.start))
    return build_run(run.name, run.queries, codes, run.doc, np.zeros(len(run)), "float64")


def _sortable(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _about(stack: Stack, c: Configuration, ranked: Ranked) -> dict[str, Any]:
    deep = ranked.deep
    saved = 1.0 - ranked.tokens / ranked.deep_tokens if ranked.deep_tokens else None
    return {
        "configuration": c.name,
        "family": c.family,
        **{key: value for key, value in c.to_dict().items() if key not in ("pool", "prompt_k")},
        "pool": str(c.pool),
        "k": stack.depths(c)[-1],
        "mean_k": mean_depth(ranked.pool, len(stack.asked)),
        "prompt_k": c.prompt_k,
        "deep_share": None if deep is None else float(deep.mean()),
        "tokens_saved": saved,
        "score_dtype": ranked.final.dtype,
        "network": over_network(stack.settings, c),
    }


def _quality(evaluation: Evaluation, ceiling: Evaluation) -> dict[str, Any]:
    found: dict[str, Any] = {"tied": evaluation.tied}
    for measure in evaluation:
        summary = evaluation[measure]
        found[str(measure)] = summary.expected
        found[f"{measure} min"] = summary.min
        found[f"{measure} max"] = summary.max
        found[f"{measure} queries"] = summary.queries
        found[f"{measure} judged"] = evaluation.judged[measure]
        if measure in ceiling.outcomes:
            proc = ceiling[measure].max
            found[f"{measure} PROC"] = proc
            found[f"{measure} %PROC"] = 100.0 * summary.expected / proc if proc > 0 else None
    return found


def _time(latency: Latency) -> dict[str, Any]:
    return {
        "latency_p50_ms": latency.p50,
        "latency_p95_ms": latency.p95,
        "jitter_ms": latency.jitter,
        **{
            f"{kind}_{p}_ms": latency.stages[kind][at] if kind in latency.stages else None
            for kind in KINDS
            for at, p in enumerate(("p50", "p95"))
        },
    }


def _cost(
    settings: SweepSettings, c: Configuration, ranked: Ranked, costs: Costs
) -> dict[str, Any]:
    rerank = 0.0 if c.reranker == NONE else costs.rerank(c.reranker, ranked.tokens, ranked.searches)
    generate = costs.generate(c.prompt_k)
    engine = None if c.retriever is None else settings.retrievers[c.retriever]
    retrieve = float(getattr(engine, "cost_per_1000", None) or 0.0)
    return {
        "retrieve_cost_per_1000": retrieve,
        "rerank_tokens": ranked.tokens,
        "rerank_searches": ranked.searches,
        "rerank_cost_per_1000": rerank,
        "generator_cost_per_1000": generate,
        "cost_per_1000": retrieve + rerank + generate,
    }


def _size(stack: Stack, c: Configuration) -> dict[str, Any]:
    """Bytes and seconds of the indexes a configuration needs."""
    indexes = stack.indexes(c)
    return {
        "index_bytes": sum(getattr(index, "bytes", 0) for index in indexes),
        "build_seconds": sum(getattr(index, "build_seconds", 0.0) for index in indexes),
    }


def _with_intervals(
    frame: pl.DataFrame,
    grid: list[Configuration],
    evaluations: dict[Configuration, Evaluation],
    ceilings: dict[Configuration, Evaluation],
    seed: int,
) -> pl.DataFrame:
    """Columns `low` and `high`: 95% intervals over queries; %PROC of all from the same draws."""
    measures: list[Measure] = list(evaluations[grid[0]])
    added: list[pl.Series] = []
    for measure in measures:
        rows: Float = np.stack([evaluations[c].outcomes[measure].averaged() for c in grid])
        added += _ends(str(measure), mean_intervals(rows).T)
        if measure in ceilings[grid[0]].outcomes:
            best: Float = np.stack([ceilings[c].outcomes[measure].averaged("max") for c in grid])
            added += _ends(f"{measure} PROC", mean_intervals(best).T)
            share = resampled(np.nan_to_num(np.concatenate([rows, best])).T, _percent, seed)
            defined = int((~np.isnan(rows[0])).sum())
            added += _ends(f"{measure} %PROC", percentile_intervals(share, defined))
    return frame.with_columns(added)


def _percent(sums: Float) -> Float:
    """(b, C) a run's sum in percent of its ceiling's, from (b, 2C); undefined queries add 0."""
    actual, proc = np.split(sums, 2, axis=1)
    return np.where(proc > 0, 100.0 * actual / proc, np.nan)


def _ends(name: str, ends: Float) -> list[pl.Series]:
    return [
        pl.Series(f"{name} {side}", [None if math.isnan(x) else x for x in end], dtype=pl.Float64)
        for side, end in zip(("low", "high"), ends.tolist(), strict=True)
    ]
