"""Runs, times and prices → one row per configuration, and one per query and measure."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.beir import Corpus
from rankproof.data.tables import Qrels, Run, build_run
from rankproof.evaluation import Policy, evaluate_tables
from rankproof.foundation.arrays import Float
from rankproof.foundation.manifest import digest
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
from rankproof.unjudged.bounds import View
from rankproof.unjudged.judged_share import set_beside, with_judged

LIKE_AT = 10  # overlap and τ to the best configuration are of the top 10
CEILINGS = ("RAnWG", "NRecall4")
BYTES_PER_TOKEN = 4.0  # of a generator's input, where nobody counted: a rule of thumb
COSTS = (  # and what they are made of
    *("rewrite_tokens", "rewrite_cost_per_1000", "embed_tokens", "embed_cost_per_1000"),
    *("passages_cost_per_million", "retrieve_cost_per_1000", "rerank_cost_per_1000"),
    *("generator_cost_per_1000", "machine_cost_per_1000"),
)
Row = dict[str, Any]


class Costs:
    """What 1,000 queries cost at each stage, by the price file.

    A stage that asks a server costs tokens, searches or what its settings say; all others take time
    of the machine. What has no price is named, and left out of the sum.
    """

    def __init__(self, settings: SweepSettings, corpus: Corpus):
        self._settings = settings
        self._by_cut: dict[str, float] = {}
        self._prices = prices = read_prices(settings.prices)
        self._names = {id(part): name for name, part in _named(settings) if part is not None}
        known = [self._name(p) for _, p in _named(settings) if p is not None and uses_network(p)]
        known += list(settings.rerank_prices.values())
        used = [name for name in dict.fromkeys(known) if name in prices.models]
        if settings.generator is not None:
            prices.per_1k(settings.generator)  # one that is named has to have a price
            used.append(settings.generator)
        self.by_search = [
            name
            for name in settings.rerankers
            if (price := self._price(self._reranker(name))) and price.per_1000_searches is not None
        ]
        self.notes = prices.stale(models=used)
        size = sum(len(text.encode()) for text in corpus.documents) / max(1, len(corpus.documents))
        self.tokens = float(settings.tokens_per_passage or size / BYTES_PER_TOKEN)
        self.said: dict[str, Any] = {
            "date": prices.date,
            "source": prices.source,
            "currency": prices.currency,
            **prices.said(used),
            "machine": None if prices.machine is None else prices.machine.model_dump(),
            "tokens_per_passage": self.tokens,
            "tokens_are": "given" if settings.tokens_per_passage else "estimated, 4 bytes a token",
        }

    def _name(self, part: Any) -> str:
        """What a part is called in the price file: its model, or its name in the sweep."""
        return str(getattr(part, "model", None) or self._names.get(id(part), ""))

    def _reranker(self, name: str) -> str | None:
        """What a reranker is called in the price file; None for one that only takes time."""
        part = self._settings.rerankers[name]
        if name in self._settings.rerank_prices:
            return self._settings.rerank_prices[name]
        return self._name(part) if part is not None and uses_network(part) else None

    def _tokens(self, stack: Stack) -> float:
        """Of a passage, as the corpus was cut."""
        if self._settings.tokens_per_passage is not None:
            return self.tokens
        key = stack.shop.passages.digest
        if key not in self._by_cut:
            texts = stack.shop.passages.texts
            size = sum(len(text.encode()) for text in texts) / max(1, len(texts))
            self._by_cut[key] = size / BYTES_PER_TOKEN
        return self._by_cut[key]

    def price_of(self, model: str) -> Price | None:
        """Of a model that the price file names."""
        return self._price(model)

    def _price(self, name: str | None) -> Price | None:
        return None if name is None else self._prices.models.get(name)

    def row(self, stack: Stack, c: Configuration, ranked: Ranked, local_seconds: float) -> Row:
        """The cost of each stage of a configuration, their sum, and the stages without a price."""
        settings, unpriced = self._settings, list[str]()
        found: Row = dict.fromkeys(COSTS, 0.0)

        def price(stage: str, name: str, kind: str = "per_million_tokens") -> Price:
            known = self._price(name)
            if known is None:
                unpriced.append(f"{stage} ({name})")
            elif getattr(known, kind) is None:
                unpriced.append(f"{stage} ({name}: no {kind})")
            return known or Price(per_million_tokens=0.0)

        rewriter = settings.rewriters[c.rewriter]
        if rewriter is not None and uses_network(rewriter):
            read, written = stack.rewrite_tokens(c)
            each = price("rewrite", self._name(rewriter))
            found["rewrite_tokens"] = read + written
            found["rewrite_cost_per_1000"] = token_cost(
                read, each.per_million_tokens or 0.0
            ) + token_cost(written, each.per_written)
        embedder = _embedder(settings, c)
        if embedder is not None and uses_network(embedder):
            each = price("embed", self._name(embedder))
            per_million = each.per_million_tokens or 0.0
            tokens, passage = stack.embed_tokens(c, embedder)
            found["embed_tokens"] = tokens
            found["embed_cost_per_1000"] = token_cost(tokens, per_million)
            found["passages_cost_per_million"] = passage * per_million
        for part in [part for stage, part in parts_of(settings, c) if stage == "retrieve"]:
            said = getattr(part, "cost_per_1000", None)
            if said is not None:
                found["retrieve_cost_per_1000"] += float(said)
            elif calls_server(part):
                each = price("retrieve", self._name(part), "per_1000_searches")
                found["retrieve_cost_per_1000"] += search_cost(1.0, each.per_1000_searches or 0.0)
        reranker = None if c.reranker == NONE else self._reranker(c.reranker)
        if reranker is not None:
            by = "per_1000_searches" if c.reranker in self.by_search else "per_million_tokens"
            each = price("rerank", reranker, by)
            found["rerank_cost_per_1000"] = search_cost(
                ranked.searches, each.per_1000_searches or 0.0
            ) + token_cost(ranked.tokens, each.per_million_tokens or 0.0)
        if settings.generator is not None:
            each = self._prices.price(settings.generator)
            written = float(settings.tokens_per_answer or 0)
            found["generator_cost_per_1000"] = generator_cost(
                c.prompt_k, self._tokens(stack), (each.per_million_tokens or 0.0) / 1000.0
            ) + token_cost(written, each.per_written)
        machine = self._prices.machine
        if machine is not None:
            gigabytes = stack.memory(c) / 1e9
            found["machine_cost_per_1000"] = machine_cost(
                local_seconds, machine.per_hour, gigabytes, machine.per_gb_hour
            )
        elif local_seconds > 0:
            unpriced.append("machine time")
        stages = [name for name in COSTS if name.endswith("cost_per_1000")]
        return {
            **found,
            "rerank_tokens": ranked.tokens,
            "rerank_searches": ranked.searches,
            "cost_per_1000": math.fsum(found[name] for name in stages),
            "unpriced": ", ".join(dict.fromkeys(unpriced)) or None,
        }


def _named(settings: SweepSettings) -> list[tuple[str, Any]]:
    axes = (settings.rewriters, settings.embedders, settings.indexes, settings.rerankers)
    inside = {n: getattr(engine, "embedder", None) for n, engine in settings.retrievers.items()}
    return [pair for axis in (*axes, settings.retrievers, inside) for pair in axis.items()]


def _embedder(settings: SweepSettings, c: Configuration) -> Any:
    """Who embeds its questions, if somebody does: an engine may have an embedder of its own, and
    says what that costs where it says what it costs itself."""
    if c.embedder is not None:
        return settings.embedders[c.embedder]
    engine = None if c.retriever is None else settings.retrievers[c.retriever]
    said = getattr(engine, "cost_per_1000", None) is not None
    return None if said else getattr(engine, "embedder", None)


def tables(
    stacks: Sequence[Stack],
    latencies: dict[Configuration, Latency],
    costs: Costs,
    progress: Callable[..., Any],
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """`configurations.parquet`, `per_query.parquet` and `lists.parquet`; a stack for each way in
    which the corpus was cut, with its own judgements of the same queries."""
    settings = stacks[0].settings
    of = {c: stack for stack in stacks for c in stack.grid}
    grid = list(of)
    ranked: dict[Configuration, Ranked] = {}
    figures: dict[Configuration, Figures] = {}
    measures = settings.all_measures
    limited = [m for m in measures if m.name in CEILINGS]
    qualities = list(dict.fromkeys(settings.quality(c) for c in grid))
    wanted = {stack: Wanted(stack.judged, measures, limited, qualities) for stack in stacks}
    seen: dict[Configuration, Configuration] = {}
    with progress("evaluating", len(grid)) as tell:
        for c in grid:
            stack = of[c]
            same = seen.setdefault(c if c.pool == DYNAMIC else c.ranks, c)  # but for the prompt
            ranked[c] = ranked[same] if same is not c else stack.judged_ranked(c)
            made = same is c
            figures[c] = wanted[stack].of(ranked[c], stack.shop.cache) if made else figures[same]
            tell(1)
    quality = {c: figures[c].row[str(settings.quality(c))] for c in grid}
    best = max(grid, key=lambda c: -math.inf if math.isnan(quality[c]) else quality[c])
    alike = {
        id(run): (
            mean(overlap(run, ranked[best].final, LIKE_AT)["overlap"]),
            mean(kendall(run, ranked[best].final, LIKE_AT)["tau"]),
        )
        for run in {id(r.final): r.final for r in ranked.values()}.values()
    }
    by = settings.chosen_by
    rows = []
    for c in grid:
        stack = of[c]
        lowest, highest = figures[c].bounds[str(settings.quality(c))]
        shared, tau = alike[id(ranked[c].final)]
        rows.append(
            {
                **_about(stack, c, ranked[c]),
                **figures[c].row,
                f"{by} lowest": lowest,
                f"{by} highest": highest,
                **_time(latencies[c]),
                **costs.row(stack, c, ranked[c], latencies[c].local_seconds),
                **_size(stack, c),
                f"overlap@{LIKE_AT}": shared,
                f"tau@{LIKE_AT}": tau,
                "best": c == best,
            }
        )
    frame = pl.DataFrame(rows, infer_schema_length=None)
    frame = frame.with_columns(pl.col("unpriced").cast(pl.String))
    frame = _with_intervals(frame, [figures[c] for c in grid], wanted[of[best]], settings.seed)
    frame = _with_prompts(frame, settings)
    per_query = pl.concat([_per_query(c, figures[c], wanted[of[c]], settings) for c in grid])
    deepest = max(m.require_cutoff().cutoff or 0 for m in measures)
    lists = pl.concat([_listed(c, ranked[c].final, deepest) for c in grid])
    return frame, per_query, lists


def _with_prompts(frame: pl.DataFrame, settings: SweepSettings) -> pl.DataFrame:
    """Columns `RAnWG@prompt …`: of each row those at the passages that it gives."""
    added = []
    for base in settings.at_prompt:
        own = {k: str(parse(f"{base}@{k}")) for k in settings.prompts}
        first = next(iter(own.values()))
        for ending in [n.removeprefix(first) for n in frame.columns if n.split(" ")[0] == first]:
            value = pl.lit(None)
            for k, name in own.items():
                value = pl.when(pl.col("prompt_k") == k).then(f"{name}{ending}").otherwise(value)
            added.append(value.alias(f"{base}{AT_PROMPT}{ending}"))
    return frame.with_columns(added)


def _per_query(
    c: Configuration, figures: Figures, wanted: Wanted, settings: SweepSettings
) -> pl.DataFrame:
    """configuration, query, measure, value, min, max; also at the prompt, where prompts differ."""
    queries, measures = wanted.qrels.queries, [str(m) for m in wanted.measures]
    values = pl.DataFrame(
        {
            "configuration": pl.repeat(c.name, len(queries) * len(measures), eager=True),
            "query": pl.concat([queries] * len(measures)),
            "measure": pl.Series(measures).repeat_by(len(queries)).explode(),
            **{name: figures.values[name].ravel() for name in ("value", "min", "max")},
        }
    )
    own = {str(parse(f"{base}@{c.prompt_k}")): base for base in settings.at_prompt}
    at_prompt = values.filter(pl.col("measure").is_in(list(own)))
    renamed = {measure: f"{base}{AT_PROMPT}" for measure, base in own.items()}
    return pl.concat([values, at_prompt.with_columns(pl.col("measure").replace(renamed))])


def _listed(c: Configuration, run: Run, depth: int) -> pl.DataFrame:
    """configuration, query, doc, score of what a figure can reach: ties at the end whole."""
    reached = candidates(run, "input")["first"] <= depth
    return run.to_frame().select(
        pl.lit(c.name).cast(pl.Categorical).alias("configuration"),
        pl.col("query", "doc"),
        pl.col("score").cast(pl.Float64),
    ).filter(reached)  # fmt: skip


def level(run: Run) -> Run:
    """The same candidates, all of one score."""
    codes = np.repeat(np.arange(len(run.queries), dtype=np.int32), np.diff(run.start))
    return build_run(run.name, run.queries, codes, run.doc, np.zeros(len(run)), "float64")


def _about(stack: Stack, c: Configuration, ranked: Ranked) -> dict[str, Any]:
    deep = ranked.deep
    return {
        "configuration": c.name,
        "family": c.family,
        **{key: value for key, value in c.to_dict().items() if key not in ("pool", "prompt_k")},
        "pool": str(c.pool),
        "k": stack.depths(c)[-1],
        "mean_k": mean_depth(stack.ranked(c).pool, len(stack.asked)),
        "prompt_k": c.prompt_k,
        "deep_share": None if deep is None else float(deep.mean()),
        "tokens_saved": ranked.tokens_saved,
        "quality_lost": ranked.quality_lost,
        "stages": stack.stages(c),
        "score_dtype": ranked.final.dtype,
        "network": over_network(stack.settings, c),
    }


@dataclass(frozen=True, slots=True)
class Figures:
    """What a list is worth, kept by a digest of all that decides it."""

    row: Row  # columns of the table
    bounds: dict[str, tuple[float, float]]  # of each quality, over its holes
    values: dict[str, Float]  # value, min, max, counted (M, Q); proc (L, Q)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which figures, on which judgements."""

    qrels: Qrels
    measures: list[Measure]
    limited: list[Measure]  # those with a ceiling
    qualities: list[Measure]  # those whose bounds over holes are wanted

    def of(self, ranked: Ranked, cache: Cache) -> Figures:
        """The figures of a list and its candidates; what was computed once is not again."""
        names = [[str(m) for m in some] for some in (self.measures, self.limited, self.qualities)]
        decides = [names, list_digest(ranked.final), list_digest(ranked.pool), __version__]
        known = self.qrels.cache
        if "digest" not in known:
            known["digest"] = digest(self.qrels.to_frame().rows())
        key = digest([*decides, known["digest"], repr(self.qrels.scale)])
        said, arrays = (cache.get_many("figures", role, [key])[0] for role in ("row", "values"))
        if said is None or arrays is None:
            made = self._made(ranked)
            held = io.BytesIO()
            np.savez(held, allow_pickle=False, **made.values)
            said = json.dumps([made.row, made.bounds]).encode()
            arrays = held.getvalue()
            cache.put_many("figures", "row", {key: said})
            cache.put_many("figures", "values", {key: arrays})
        row, bounds = json.loads(said)
        with np.load(io.BytesIO(arrays), allow_pickle=False) as found:
            values = {name: found[name] for name in found.files}
        return Figures(row, {name: (ends[0], ends[1]) for name, ends in bounds.items()}, values)

    def _made(self, ranked: Ranked) -> Figures:
        policy = Policy.of(None, None, False, None, None)
        found = evaluate_tables(ranked.final, self.qrels, with_judged(self.measures), policy)
        evaluation = set_beside(found, self.measures)
        # Where all candidates tie, the best order is the maximum over orders.
        ceiling = evaluate_tables(level(ranked.pool), self.qrels, self.limited, policy)
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
        view = View([ranked.final], self.qrels, policy)
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
        return Figures(row, {n: (b.lowest, b.highest) for n, b in bounds.items()}, values)


def list_digest(run: Run) -> str:
    """Of all that decides the figures of a list."""
    sha = hashlib.sha256(run.start.tobytes() + run.score.tobytes() + run.dtype.encode())
    sha.update(b"" if run.cut is None else run.cut.tobytes())
    for ids in (run.queries, run.doc):
        sha.update("\n".join(ids.to_list()).encode("utf-8", "surrogatepass") + b"\0")
    return sha.hexdigest()


def _time(latency: Latency) -> dict[str, Any]:
    return {
        "latency_p50_ms": latency.p50,
        "latency_p95_ms": latency.p95,
        "latency_p95_low": latency.p95_low,
        "latency_p95_high": latency.p95_high,
        "jitter_ms": latency.jitter,
        **{
            f"{kind}_{p}_ms": latency.stages[kind][at] if kind in latency.stages else None
            for kind in KINDS
            for at, p in enumerate(("p50", "p95"))
        },
    }


def _size(stack: Stack, c: Configuration) -> dict[str, Any]:
    """Bytes of all that a configuration keeps in memory, and seconds to build its indexes."""
    return {
        "index_bytes": stack.memory(c),
        "build_seconds": sum(getattr(index, "build_seconds", 0.0) for index in stack.indexes(c)),
    }


def _with_intervals(
    frame: pl.DataFrame, figures: list[Figures], wanted: Wanted, seed: int
) -> pl.DataFrame:
    """Columns `low` and `high`: 95% intervals over queries; %PROC of all from the same draws."""
    added: list[pl.Series] = []
    for at, measure in enumerate(wanted.measures):
        rows: Float = np.stack([f.values["counted"][at] for f in figures])
        added += _ends(str(measure), mean_intervals(rows, measure.upper).T)
        if measure in wanted.limited:
            place = wanted.limited.index(measure)
            best: Float = np.stack([f.values["proc"][place] for f in figures])
            added += _ends(f"{measure} PROC", mean_intervals(best, measure.upper).T)
            share = resampled(np.nan_to_num(np.concatenate([rows, best])).T, _percent, seed)
            added += _ends(f"{measure} %PROC", percent_intervals(share, rows, best))
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
