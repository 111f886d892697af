"""From runs, times and prices to tables: one row per configuration, one per query and measure.

The scores of a list are computed once, cached under a digest of all that decides them, and shared
by the configurations that differ in their prompt alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.beir import Corpus
from rankproof.data.tables import Qrels, Run, build_run
from rankproof.evaluation import Policy, evaluate_tables
from rankproof.foundation.arrays import Float
from rankproof.foundation.manifest import digest
from rankproof.foundation.progress import advance, progress
from rankproof.foundation.version import __version__
from rankproof.measures import Measure, parse
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import calls_server, uses_network
from rankproof.retrieval.run_similarity import kendall, mean, overlap
from rankproof.statistics.intervals import mean_intervals, percent_intervals
from rankproof.statistics.resampling import resampled
from rankproof.tradeoffs.candidates import candidates
from rankproof.tradeoffs.ceilings import holds_all
from rankproof.tradeoffs.latency import KINDS, Latency
from rankproof.tradeoffs.plan import (
    DYNAMIC,
    NONE,
    Configuration,
    SweepSettings,
    over_network,
    parts_of,
)
from rankproof.tradeoffs.prices import (
    Price,
    generator_cost,
    machine_cost,
    read_prices,
    search_cost,
    token_cost,
)
from rankproof.tradeoffs.results import AT_PROMPT
from rankproof.tradeoffs.stack import Ranked, Stack, mean_depth
from rankproof.unjudged.bounds import WorstCases
from rankproof.unjudged.judged_share import attach_judged, with_judged

SIMILARITY_DEPTH = 10  # overlap and τ to the best configuration are of the top 10
CEILINGS = ("RAnWG", "NRecall4")
BYTES_PER_TOKEN = 4.0  # rule of thumb for a generator's input that was not counted
COST_COLUMNS = (  # costs, and the token counts behind them
    *("rewrite_tokens", "rewrite_cost_per_1000", "embed_tokens", "embed_cost_per_1000"),
    *("passages_cost_per_million", "retrieve_cost_per_1000", "rerank_cost_per_1000"),
    *("generator_cost_per_1000", "machine_cost_per_1000"),
)
Row = dict[str, Any]


# ------------------------------------------------------------------------------------- costs


class Costs:
    """The cost of 1,000 queries at each stage, by the price file.

    A stage that calls a server costs tokens, searches or what its settings say; any other costs
    machine time. A stage without a price is named, and missing from the sum.
    """

    def __init__(self, settings: SweepSettings, corpus: Corpus):
        """Read the price file of the settings; raise InputError if the generator has no price."""
        self._settings = settings
        self._mean_tokens: dict[str, float] = {}  # per passage, by digest of the passages
        self._prices = prices = read_prices(settings.prices)
        components = [(name, part) for name, part in _components(settings) if part is not None]
        self._names = {id(part): name for name, part in components}
        known = [self._price_name(part) for _, part in components if uses_network(part)]
        known += list(settings.rerank_prices.values())
        used = [name for name in dict.fromkeys(known) if name in prices.models]
        if settings.generator is not None:
            prices.per_1k(settings.generator)
            used.append(settings.generator)
        self.by_search = [name for name in settings.rerankers if self._is_paid_by_search(name)]
        self.notes = prices.stale(models=used)
        estimate = _mean_bytes(corpus.documents) / BYTES_PER_TOKEN
        self.summary: dict[str, Any] = {
            "date": prices.date,
            "source": prices.source,
            "currency": prices.currency,
            **prices.select(used),
            "machine": None if prices.machine is None else prices.machine.model_dump(),
            "tokens_per_passage": float(settings.tokens_per_passage or estimate),
            "tokens_are": "given" if settings.tokens_per_passage else "estimated, 4 bytes a token",
        }

    def _is_paid_by_search(self, reranker: str) -> bool:
        name = self._reranker_price_name(reranker)
        price = None if name is None else self.price_of(name)
        return price is not None and price.per_1000_searches is not None

    def _price_name(self, part: Any) -> str:
        """Name of a component in the price file: its model, or its name in the sweep."""
        return str(getattr(part, "model", None) or self._names.get(id(part), ""))

    def _reranker_price_name(self, name: str) -> str | None:
        """Name of a reranker in the price file; None for one that only takes machine time."""
        part = self._settings.rerankers[name]
        if name in self._settings.rerank_prices:
            return self._settings.rerank_prices[name]
        return self._price_name(part) if part is not None and uses_network(part) else None

    def _passage_tokens(self, stack: Stack) -> float:
        """Mean tokens of a passage, as the corpus was chunked."""
        if self._settings.tokens_per_passage is not None:
            return float(self._settings.tokens_per_passage)
        key = stack.shop.passages.digest
        if key not in self._mean_tokens:
            self._mean_tokens[key] = _mean_bytes(stack.shop.passages.texts) / BYTES_PER_TOKEN
        return self._mean_tokens[key]

    def price_of(self, model: str) -> Price | None:
        """Return the price of a model; None if the file does not name it."""
        return self._prices.models.get(model)

    def row(self, stack: Stack, c: Configuration, ranked: Ranked, local_seconds: float) -> Row:
        """Return the cost of each stage of a configuration, their sum, and unpriced stages."""
        bill = _Bill(self._prices.models)
        costs: Row = dict.fromkeys(COST_COLUMNS, 0.0)
        costs |= self._rewriting(stack, c, bill)
        costs |= self._embedding(stack, c, bill)
        costs["retrieve_cost_per_1000"] = self._retrieving(c, bill)
        costs["rerank_cost_per_1000"] = self._reranking(c, ranked, bill)
        costs["generator_cost_per_1000"] = self._generating(stack, c)
        machine = self._prices.machine
        if machine is not None:
            gigabytes = stack.memory(c) / 1e9
            costs["machine_cost_per_1000"] = machine_cost(
                local_seconds, machine.per_hour, gigabytes, machine.per_gb_hour
            )
        elif local_seconds > 0:
            bill.unpriced.append("machine time")
        stages = [name for name in COST_COLUMNS if name.endswith("cost_per_1000")]
        return {
            **costs,
            "rerank_tokens": ranked.tokens,
            "rerank_searches": ranked.searches,
            "cost_per_1000": math.fsum(costs[name] for name in stages),
            "unpriced": ", ".join(dict.fromkeys(bill.unpriced)) or None,
        }

    def _rewriting(self, stack: Stack, c: Configuration, bill: _Bill) -> Row:
        """Return the tokens and cost of rewriting questions; none for a local rewriter."""
        rewriter = self._settings.rewriters[c.rewriter]
        if rewriter is None or not uses_network(rewriter):
            return {}
        read, written = stack.rewrite_tokens(c)
        price = bill.price("rewrite", self._price_name(rewriter))
        cost = token_cost(read, price.per_million_tokens or 0.0)
        cost += token_cost(written, price.per_written)
        return {"rewrite_tokens": read + written, "rewrite_cost_per_1000": cost}

    def _embedding(self, stack: Stack, c: Configuration, bill: _Bill) -> Row:
        """Return the tokens and cost of embedding questions, and the cost of a million passages."""
        embedder = _question_embedder(self._settings, c)
        if embedder is None or not uses_network(embedder):
            return {}
        per_million = bill.price("embed", self._price_name(embedder)).per_million_tokens or 0.0
        question_tokens, passage_tokens = stack.embed_tokens(c, embedder)
        return {
            "embed_tokens": question_tokens,
            "embed_cost_per_1000": token_cost(question_tokens, per_million),
            "passages_cost_per_million": passage_tokens * per_million,
        }

    def _retrieving(self, c: Configuration, bill: _Bill) -> float:
        """Return the cost of searches: what the settings state, else the price by the search."""
        cost = 0.0
        for part in [part for stage, part in parts_of(self._settings, c) if stage == "retrieve"]:
            own_cost = getattr(part, "cost_per_1000", None)
            if own_cost is not None:
                cost += float(own_cost)
            elif calls_server(part):
                price = bill.price("retrieve", self._price_name(part), "per_1000_searches")
                cost += search_cost(1.0, price.per_1000_searches or 0.0)
        return cost

    def _reranking(self, c: Configuration, ranked: Ranked, bill: _Bill) -> float:
        """Return the cost of the searches and tokens that the reranker is billed for."""
        name = None if c.reranker == NONE else self._reranker_price_name(c.reranker)
        if name is None:
            return 0.0
        kind = "per_1000_searches" if c.reranker in self.by_search else "per_million_tokens"
        price = bill.price("rerank", name, kind)
        cost = search_cost(ranked.searches, price.per_1000_searches or 0.0)
        return cost + token_cost(ranked.tokens, price.per_million_tokens or 0.0)

    def _generating(self, stack: Stack, c: Configuration) -> float:
        """Return the cost of a generator that reads the prompt and writes an answer."""
        settings = self._settings
        if settings.generator is None:
            return 0.0
        price = self._prices.price(settings.generator)
        per_1k = (price.per_million_tokens or 0.0) / 1000.0
        cost = generator_cost(c.prompt_k, self._passage_tokens(stack), per_1k)
        return cost + token_cost(float(settings.tokens_per_answer or 0), price.per_written)


class _Bill:
    """Looks prices up for one configuration, and collects the stages that have none."""

    def __init__(self, models: dict[str, Price]):
        self._models = models
        self.unpriced: list[str] = []

    def price(self, stage: str, name: str, kind: str = "per_million_tokens") -> Price:
        """Return the price of a model, or 0; a missing price of this kind is noted."""
        price = self._models.get(name)
        if price is None:
            self.unpriced.append(f"{stage} ({name})")
        elif getattr(price, kind) is None:
            self.unpriced.append(f"{stage} ({name}: no {kind})")
        return price or Price(per_million_tokens=0.0)


def _mean_bytes(texts: Sequence[str]) -> float:
    return sum(len(text.encode()) for text in texts) / max(1, len(texts))


def _components(settings: SweepSettings) -> list[tuple[str, Any]]:
    """Return every component of a sweep with its name, embedders inside engines included."""
    inside = {n: getattr(engine, "embedder", None) for n, engine in settings.retrievers.items()}
    axes: tuple[dict[str, Any], ...] = (settings.rewriters, settings.embedders, settings.indexes)
    axes += (settings.rerankers, settings.retrievers, inside)
    return [pair for axis in axes for pair in axis.items()]


def _question_embedder(settings: SweepSettings, c: Configuration) -> Any:
    """Return the embedder that is paid for a configuration's questions; None if there is none.

    An engine may have its own, which is part of the engine's cost where the settings state that.
    """
    if c.embedder is not None:
        return settings.embedders[c.embedder]
    engine = None if c.retriever is None else settings.retrievers[c.retriever]
    has_cost = getattr(engine, "cost_per_1000", None) is not None
    return None if has_cost else getattr(engine, "embedder", None)


# ------------------------------------------------------------------------------------ tables


def build_tables(
    stacks: Sequence[Stack], latencies: dict[Configuration, Latency], costs: Costs
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return the contents of `configurations.parquet`, `per_query.parquet` and `lists.parquet`.

    There is a stack for each chunking, with its own judgments of the same queries.
    """
    settings = stacks[0].settings
    stack_of = {c: stack for stack in stacks for c in stack.grid}
    grid = list(stack_of)
    evaluators = {stack: Evaluator.of_stack(stack) for stack in stacks}
    ranked, scores = _evaluate_grid(stack_of, evaluators)
    quality = {c: scores[c].row[str(settings.quality(c))] for c in grid}
    best = max(grid, key=lambda c: -math.inf if math.isnan(quality[c]) else quality[c])
    similarity = _compare_to_best(ranked, best)
    rows = []
    for c, stack in stack_of.items():
        lowest, highest = scores[c].bounds[str(settings.quality(c))]
        overlap_share, tau = similarity[id(ranked[c].final)]
        rows.append(
            {
                **_describe(stack, c, ranked[c]),
                **scores[c].row,
                f"{settings.chosen_by} lowest": lowest,
                f"{settings.chosen_by} highest": highest,
                **_latency_columns(latencies[c]),
                **costs.row(stack, c, ranked[c], latencies[c].local_seconds),
                "index_bytes": stack.memory(c),
                "build_seconds": sum(getattr(i, "build_seconds", 0.0) for i in stack.indexes(c)),
                f"overlap@{SIMILARITY_DEPTH}": overlap_share,
                f"tau@{SIMILARITY_DEPTH}": tau,
                "best": c == best,
            }
        )
    frame = pl.DataFrame(rows, infer_schema_length=None)
    frame = frame.with_columns(pl.col("unpriced").cast(pl.String))
    all_scores = [scores[c] for c in grid]
    frame = _add_intervals(frame, all_scores, evaluators[stack_of[best]], settings.seed)
    frame = _add_prompt_columns(frame, settings)
    per_query = [_per_query(c, scores[c], evaluators[stack_of[c]], settings) for c in grid]
    deepest = max(m.require_cutoff().cutoff or 0 for m in settings.all_measures)
    lists = [_list_to_depth(c, ranked[c].final, deepest) for c in grid]
    return frame, pl.concat(per_query), pl.concat(lists)


def _evaluate_grid(
    stack_of: dict[Configuration, Stack], evaluators: dict[Stack, Evaluator]
) -> tuple[dict[Configuration, Ranked], dict[Configuration, Scores]]:
    """Return what each configuration ranks, and its scores; the same list is evaluated once."""
    ranked: dict[Configuration, Ranked] = {}
    scores: dict[Configuration, Scores] = {}
    first_with: dict[Configuration, Configuration] = {}  # the same list, whatever the prompt
    with progress("evaluating", len(stack_of)):
        for c, stack in stack_of.items():
            first = first_with.setdefault(c if c.pool == DYNAMIC else c.ranks, c)
            if first is c:
                ranked[c] = stack.judged_ranked(c)
                scores[c] = evaluators[stack].evaluate(ranked[c], stack.shop.cache)
            else:
                ranked[c], scores[c] = ranked[first], scores[first]
            advance()
    return ranked, scores


def _compare_to_best(
    ranked: dict[Configuration, Ranked], best: Configuration
) -> dict[int, tuple[float, float]]:
    """Return the mean overlap and τ of each list with the best one, by the id of the run."""
    runs = {id(r.final): r.final for r in ranked.values()}
    best_run = ranked[best].final
    return {
        key: (
            mean(overlap(run, best_run, SIMILARITY_DEPTH)["overlap"]),
            mean(kendall(run, best_run, SIMILARITY_DEPTH)["tau"]),
        )
        for key, run in runs.items()
    }


def _add_prompt_columns(frame: pl.DataFrame, settings: SweepSettings) -> pl.DataFrame:
    """Add columns `RAnWG@prompt …`: in each row those at the passages that it gives."""
    added = []
    for base in settings.at_prompt:
        names = {k: str(parse(f"{base}@{k}")) for k in settings.prompts}
        first = next(iter(names.values()))
        endings = [n.removeprefix(first) for n in frame.columns if n.split(" ")[0] == first]
        for ending in endings:
            value = pl.lit(None)
            for k, name in names.items():
                value = pl.when(pl.col("prompt_k") == k).then(f"{name}{ending}").otherwise(value)
            added.append(value.alias(f"{base}{AT_PROMPT}{ending}"))
    return frame.with_columns(added)


def _per_query(
    c: Configuration, scores: Scores, evaluator: Evaluator, settings: SweepSettings
) -> pl.DataFrame:
    """configuration, query, measure, value, min, max; also at the prompt, where prompts differ."""
    queries, measures = evaluator.qrels.queries, [str(m) for m in evaluator.measures]
    values = pl.DataFrame(
        {
            "configuration": pl.repeat(c.name, len(queries) * len(measures), eager=True),
            "query": pl.concat([queries] * len(measures)),
            "measure": pl.Series(measures).repeat_by(len(queries)).explode(),
            **{name: scores.values[name].ravel() for name in ("value", "min", "max")},
        }
    )
    at_prompt = {
        str(parse(f"{base}@{c.prompt_k}")): f"{base}{AT_PROMPT}" for base in settings.at_prompt
    }
    copies = values.filter(pl.col("measure").is_in(list(at_prompt)))
    return pl.concat([values, copies.with_columns(pl.col("measure").replace(at_prompt))])


def _list_to_depth(c: Configuration, run: Run, depth: int) -> pl.DataFrame:
    """configuration, query, doc, score down to the deepest cutoff; ties at the end are whole."""
    is_within = candidates(run, "input")["first"] <= depth
    return run.to_frame().select(
        pl.lit(c.name).cast(pl.Categorical).alias("configuration"),
        pl.col("query", "doc"),
        pl.col("score").cast(pl.Float64),
    ).filter(is_within)  # fmt: skip


def _describe(stack: Stack, c: Configuration, ranked: Ranked) -> Row:
    """Columns that say what a configuration is and does."""
    deep = ranked.deep
    return {
        "configuration": c.name,
        "family": c.family,
        **{key: value for key, value in c.to_dict().items() if key not in ("pool", "prompt_k")},
        "pool": str(c.pool),
        "k": stack.depths(c)[-1],
        "mean_k": mean_depth(stack.ranked(c).pool, len(stack.typed_questions)),
        "prompt_k": c.prompt_k,
        "deep_share": None if deep is None else float(deep.mean()),
        "tokens_saved": ranked.tokens_saved,
        "quality_lost": ranked.quality_lost,
        "stages": stack.stages(c),
        "score_dtype": ranked.final.dtype,
        "network": over_network(stack.settings, c),
    }


def _latency_columns(latency: Latency) -> Row:
    columns: Row = {
        "latency_p50_ms": latency.p50,
        "latency_p95_ms": latency.p95,
        "latency_p95_low": latency.p95_low,
        "latency_p95_high": latency.p95_high,
        "jitter_ms": latency.jitter,
    }
    for kind in KINDS:
        p50, p95 = latency.stages.get(kind, (None, None))
        columns |= {f"{kind}_p50_ms": p50, f"{kind}_p95_ms": p95}
    return columns


# ------------------------------------------------------------------------------------ scores


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one list on M measures, L of which have a ceiling, for Q queries."""

    row: Row  # means, as columns of the table
    bounds: dict[str, tuple[float, float]]  # of each quality, over grades of unjudged passages
    values: dict[str, Float]  # (M, Q) value, min, max, counted in the mean; (L, Q) proc


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Scores lists by one set of measures and judgments."""

    qrels: Qrels
    measures: list[Measure]
    limited: list[Measure]  # those with a ceiling
    qualities: list[Measure]  # bounded over unjudged passages

    @classmethod
    def of_stack(cls, stack: Stack) -> Evaluator:
        """Return the evaluator of a stack's settings and judgments."""
        settings = stack.settings
        measures = settings.all_measures
        return cls(
            qrels=stack.judgments,
            measures=measures,
            limited=[m for m in measures if m.name in CEILINGS],
            qualities=list(dict.fromkeys(settings.quality(c) for c in stack.grid)),
        )

    def evaluate(self, ranked: Ranked, cache: Cache) -> Scores:
        """Return the scores of a list and its candidates, from the cache if they are there."""
        roles = (self.measures, self.limited, self.qualities)
        names = [[str(measure) for measure in measures] for measures in roles]
        inputs = [names, list_digest(ranked.final), list_digest(ranked.pool), __version__]
        if "digest" not in self.qrels.cache:
            self.qrels.cache["digest"] = digest(self.qrels.content())
        key = digest([*inputs, self.qrels.cache["digest"], repr(self.qrels.scale)])
        text, arrays = (cache.get_many("figures", role, [key])[0] for role in ("row", "values"))
        if text is None or arrays is None:
            scores = self._compute(ranked)
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **scores.values)
            text, arrays = json.dumps([scores.row, scores.bounds]).encode(), buffer.getvalue()
            cache.put_many("figures", "row", {key: text})
            cache.put_many("figures", "values", {key: arrays})
        row, bounds = json.loads(text)
        with np.load(io.BytesIO(arrays), allow_pickle=False) as stored:
            values = {name: stored[name] for name in stored.files}
        return Scores(row, {name: (low, high) for name, (low, high) in bounds.items()}, values)

    def _compute(self, ranked: Ranked) -> Scores:
        """Evaluate a list, the best order of its candidates, and its worst cases."""
        policy = Policy.of(None, None, False, None, None)
        judged = evaluate_tables(ranked.final, self.qrels, with_judged(self.measures), policy)
        evaluation = attach_judged(judged, self.measures)
        # Where all candidates tie, the best order is the maximum over orders.
        ceiling = evaluate_tables(with_equal_scores(ranked.pool), self.qrels, self.limited, policy)
        row: Row = {"tied": evaluation.tied}
        for measure in self.measures:
            summary = evaluation[measure]
            row[str(measure)] = summary.expected
            row[f"{measure} min"] = summary.min
            row[f"{measure} max"] = summary.max
            row[f"{measure} queries"] = summary.queries
            row[f"{measure} judged"] = evaluation.judged[measure]
            if measure in ceiling.outcomes:
                proc = ceiling[measure].max
                row[f"{measure} PROC"] = proc
                row[f"{measure} %PROC"] = 100.0 * summary.expected / proc if proc > 0 else None
        row["holds_all_judged"] = holds_all(ranked.pool.to_frame(), self.qrels)
        view = WorstCases([ranked.final], self.qrels, policy)
        bounds = {str(m): view.run_bound(0, m) for m in self.qualities}
        outcomes = [evaluation.outcomes[m] for m in self.measures]
        best = [ceiling.outcomes[m].in_mean("max") for m in self.limited]
        values: dict[str, Float] = {
            "value": np.stack([o.expected for o in outcomes]),
            "min": np.stack([o.min for o in outcomes]),
            "max": np.stack([o.max for o in outcomes]),
            "counted": np.stack([o.in_mean() for o in outcomes]),
            "proc": np.stack(best) if best else np.empty((0, len(self.qrels.queries))),
        }
        return Scores(row, {n: (b.lowest, b.highest) for n, b in bounds.items()}, values)


def with_equal_scores(run: Run) -> Run:
    """Return the same candidates, all tied."""
    codes = np.repeat(np.arange(len(run.queries), dtype=np.int32), np.diff(run.start))
    return build_run(run.name, run.queries, codes, run.doc, np.zeros(len(run)), "float64")


def list_digest(run: Run) -> str:
    """Return a digest of all that decides the scores of a list."""
    sha = hashlib.sha256(run.start.tobytes() + run.score.tobytes() + run.dtype.encode())
    sha.update(b"" if run.cut is None else run.cut.tobytes())
    for ids in (run.queries, run.doc):
        sha.update("\n".join(ids.to_list()).encode("utf-8", "surrogatepass") + b"\0")
    return sha.hexdigest()


def _add_intervals(
    frame: pl.DataFrame, scores: list[Scores], evaluator: Evaluator, seed: int
) -> pl.DataFrame:
    """Add columns `low` and `high`, 95% intervals over queries; all %PROC from the same draws."""
    added: list[pl.Series] = []
    for at, measure in enumerate(evaluator.measures):
        actual: Float = np.stack([s.values["counted"][at] for s in scores])
        added += _interval_columns(str(measure), mean_intervals(actual, measure.upper).T)
        if measure in evaluator.limited:
            place = evaluator.limited.index(measure)
            proc: Float = np.stack([s.values["proc"][place] for s in scores])
            added += _interval_columns(f"{measure} PROC", mean_intervals(proc, measure.upper).T)
            both = np.nan_to_num(np.concatenate([actual, proc])).T
            percent = resampled(both, _percent_of_ceiling, seed)
            intervals = percent_intervals(percent, actual, proc)
            added += _interval_columns(f"{measure} %PROC", intervals)
    return frame.with_columns(added)


def _percent_of_ceiling(sums: Float) -> Float:
    """Return (b, C) a run's sum in percent of its ceiling's, from (b, 2C); undefined ones add 0."""
    actual, proc = np.split(sums, 2, axis=1)
    return np.where(proc > 0, 100.0 * actual / proc, np.nan)


def _interval_columns(name: str, ends: Float) -> list[pl.Series]:
    """Turn (2, C) ends into columns `name low` and `name high`, null for NaN."""
    return [
        pl.Series(f"{name} {side}", [None if math.isnan(x) else x for x in end], dtype=pl.Float64)
        for side, end in zip(("low", "high"), ends.tolist(), strict=True)
    ]
