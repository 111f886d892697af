"""From parts to runs and times: what each configuration ranks, and how long its stages take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankproof.arrays import Bool, Float, Int
from rankproof.manifest import digest
from rankproof.retrieval.depth import choose_depth
from rankproof.retrieval.fusion import combine
from rankproof.retrieval.pools import head, reordered
from rankproof.retrieval.settings import Endpoint, MaxSimSettings
from rankproof.tables import Run, build_run
from rankproof.tradeoffs.latency import KINDS, Kind, Latency, Stage, Times, summarise
from rankproof.tradeoffs.plan import DYNAMIC, NONE, Configuration
from rankproof.tradeoffs.workshop import Dense, Workshop, dense_of

Told = Callable[..., Any]
Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Ranked:
    """The candidates of a configuration, and the order it gives them."""

    pool: Run
    final: Run
    tokens: float  # that the reranker reads for a query, on average
    deep: Bool | None  # (queries,) of a dynamic pool: which went deep
    deep_tokens: float = 0.0  # that it would read if every query went deep


class Stack:
    """Every configuration of a grid, upon one workshop."""

    def __init__(self, shop: Workshop, grid: list[Configuration], progress: Told):
        self.shop = shop
        self.grid = grid
        self.progress = progress
        self._scores: dict[str, pl.DataFrame] = {}

    def _rewrite(self) -> None:
        if self.shop.settings.rewriter is None:
            return
        with self.progress("rewriting", len(self.shop.questions)) as tell:
            for question in self.shop.questions:
                self.shop.rewrite(question)
                tell(1)

    def _embed(self) -> None:
        names = dict.fromkeys(c.embedder for c in self.grid if c.embedder is not None)
        total = len(names) * (len(self.shop.texts) + len(self.shop.corpus.documents))
        with self.progress("embedding", total) as tell:
            for name in names:
                for role in ("queries", "passages"):
                    self.shop.vectors(name, role, tell)

    def depths(self, c: Configuration) -> tuple[int, ...]:
        """How deep its reranker reads: once, or at first and then the rest."""
        if c.pool == DYNAMIC:
            return self.shop.settings.depth.start, self.shop.settings.depth.deep
        return (c.pool,)

    # ----------------------------------------------------------------------------------- runs

    def rerank(self) -> None:
        """Score every candidate that any configuration hands to a reranker, each once."""
        pools: dict[str, list[Run]] = {}
        for c in self.grid:
            if c.reranker != NONE:
                pools.setdefault(c.reranker, []).append(self.shop.pool(c, self.depths(c)[-1]))
        for name, some in pools.items():
            pairs = pl.concat([run.to_frame().select("query", "doc") for run in some])
            with self.progress(f"reranking with {name}", pairs.n_unique()) as tell:
                self._scores[name] = self.shop.scores(name, some, tell)

    def notes(self) -> list[str]:
        """What to know of the tokens; `rerank` comes first."""
        return [
            f"{name} does not say how many tokens it read: a quarter of the bytes is taken"
            for name, scores in self._scores.items()
            if scores["estimated"].any()
        ]

    def ranked(self, c: Configuration) -> Ranked:
        """What a configuration returns; `rerank` comes first."""
        if c.pool == DYNAMIC:
            return self._dynamic(c)
        pool = self.shop.pool(c, c.pool)
        return Ranked(pool, self._order(c, pool), self._tokens(c, pool), None)

    def _order(self, c: Configuration, pool: Run) -> Run:
        if c.reranker == NONE:
            return pool
        scores = self._scores[c.reranker]
        dtype = scores["dtype"][0] if scores.height else "float64"
        found = reordered(pool, scores.select("query", "doc", "score"), dtype)
        share = self.shop.settings.blends.get(c.reranker, 0.0)
        return found if share == 0 else blended(pool, found, share)

    def _tokens(self, c: Configuration, pool: Run) -> float:
        if c.reranker == NONE:
            return 0.0
        pairs = pool.to_frame().select("query", "doc")
        read = pairs.join(self._scores[c.reranker], on=["query", "doc"])["tokens"].sum()
        return float(read) / len(self.shop.query_ids)

    def _dynamic(self, c: Configuration) -> Ranked:
        settings = self.shop.settings.depth
        deep_pool = self.shop.pool(c, settings.deep)
        shallow = head(deep_pool, settings.start)
        deep = np.zeros(len(deep_pool.queries), np.bool_)
        dense = None
        if c.mode != "sparse":
            lists = self.shop.dense_list(dense_of(c), self.shop.wanted(c, settings.deep))
            dense = _rows_by_query(lists, deep_pool.queries)
        reranked = None
        if c.reranker != NONE:
            reranked = _rows_by_query(self._order(c, shallow), deep_pool.queries)
        for at in range(len(deep)):
            deep[at] = (
                choose_depth(
                    settings,
                    dense=None if dense is None else dense[at],
                    reranked=None if reranked is None else reranked[at],
                )
                > settings.start
            )
        k = np.where(deep, settings.deep, settings.start)
        pool = head(deep_pool, k)
        by_query = dict(zip(deep_pool.queries, deep, strict=True))
        return Ranked(
            pool,
            self._order(c, pool),
            self._tokens(c, pool),
            np.array([by_query.get(query, False) for query in self.shop.query_ids]),
            self._tokens(c, deep_pool),
        )

    # ---------------------------------------------------------------------------------- times

    def time(self, file: Path) -> dict[Configuration, Latency]:
        """Times of every stage, then of every configuration.

        Before all questions are rewritten, embedded or their candidates scored over a network, the
        single calls for it are timed: what they return is kept and not asked for again. Local
        stages come last, when what they keep in memory is warm.
        """
        times = Times(file)
        settings = self.shop.settings.latency
        generator = np.random.default_rng(self.shop.settings.seed)
        count = min(settings.queries, len(self.shop.query_ids))
        sample = sorted(generator.choice(len(self.shop.query_ids), count, replace=False).tolist())
        self._measure(times, [s for s in self._rewriting() if s.network], sample, "calling")
        self._rewrite()
        stages = list({s.key: s for c in self.grid for s in self._stages(c)}.values())
        remote = {kind: [s for s in stages if s.network and s.kind == kind] for kind in KINDS}
        self._measure(times, remote["embed"], sample, "calling")
        self._embed()
        self._measure(times, remote["rerank"], sample, "calling")
        self.rerank()
        self._measure(times, [s for s in stages if not s.network], sample, "timing")
        return {
            c: summarise(self._seconds(c, times, sample, settings.repeats), settings.repeats)
            for c in self.grid
        }

    def _measure(self, times: Times, stages: list[Stage], sample: list[int], label: str) -> None:
        if not stages:
            return
        settings = self.shop.settings.latency
        cache = self.shop.cache
        cache.recalls, cache.keeps = False, stages[0].network
        try:
            total = len(stages) * len(sample) * settings.repeats
            with self.progress(f"{label} {len(stages)} stages", total) as tell:
                self.shop.spent += times.measure(stages, sample, settings, tell)
        finally:
            cache.recalls = cache.keeps = True

    def _seconds(
        self, c: Configuration, times: Times, sample: list[int], repeats: int
    ) -> dict[Kind, Float]:
        """(queries, repeats) seconds of each kind of stage."""
        parts: dict[Kind, Float] = {}
        again = self._again(c)
        for stage in self._stages(c):
            seconds = times.read(stage.key, sample, repeats)
            if again is not None and stage.key == again:
                deep = self.ranked(c).deep
                assert deep is not None
                seconds = seconds * deep[sample][:, None]  # only those that went deep
            parts[stage.kind] = parts.get(stage.kind, np.zeros(1)) + seconds
        return parts

    def _again(self, c: Configuration) -> str | None:
        """The stage that only some queries of a dynamic pool come to."""
        if c.pool != DYNAMIC or c.reranker == NONE:
            return None
        return self._stages(c)[-1].key

    def _rewriting(self) -> list[Stage]:
        shop = self.shop
        part = shop.settings.rewriter
        if part is None:
            return []
        decides = [shop.questions, shop.decides(part)]
        rewrite = partial(_rewrite, shop)
        return [_stage("rewrite", ["rewrite"], decides, rewrite, isinstance(part, Endpoint))]

    def _stages(self, c: Configuration) -> list[Stage]:
        """Each told from others by all that decides its time, and by nothing else: what a larger
        grid does not change is not timed, nor paid for, again."""
        shop = self.shop
        settings = shop.settings
        depths = self.depths(c)
        wanted = shop.wanted(c, depths[-1])
        words = [shop.corpus_digest, shop.asked_digest, shop.decides(settings.sparse)]
        found: list[Any] = words if c.mode != "dense" else words[:2]
        stages = self._rewriting()
        if c.mode != "sparse":
            dense = dense_of(c)
            embedder = settings.embedders[dense[0]]
            decides = [shop.asked_digest, shop.decides(embedder)]
            embed = partial(_embed_one, shop, dense[0])
            network = isinstance(embedder, Endpoint)
            stages.append(_stage("embed", ["embed", dense[0]], decides, embed, network))
            decides = [shop.corpus_digest, *decides, shop.decides(settings.indexes[dense[2]])]
            search = partial(_search_one, shop, dense, wanted)
            stages.append(_stage("retrieve", ["dense", dense, wanted], decides, search))
            found = [*found, *decides]
        if c.mode != "dense":
            look = partial(_look_up, shop, wanted)
            stages.append(_stage("retrieve", ["sparse", wanted], words, look))
        if c.mode == "hybrid":
            fuse = partial(_fuse_one, shop, dense_of(c), wanted)
            found = [*found, shop.decides(settings.fusion)]
            stages.append(_stage("retrieve", ["fuse", dense_of(c), wanted], found, fuse))
        if settings.duplicates is not None:
            weed = partial(_weed_one, shop, c, depths[-1])
            key = ["duplicates", c.mode, c.embedder, c.dimensions, c.index, depths[-1]]
            found = [*found, shop.decides(settings.duplicates)]
            stages.append(_stage("retrieve", key, found, weed))
        reranker = settings.rerankers[c.reranker]
        if reranker is not None:
            network = isinstance(reranker, Endpoint)
            decides = [*words[:2], shop.decides(reranker)]
            first = 0
            for last in depths:
                rank = partial(_rerank_one, shop, c, depths[-1], first, last)
                what = ["rerank", c.reranker, first, last]
                keeps = isinstance(reranker, MaxSimSettings)
                stages.append(_stage("rerank", what, decides, rank, network, keeps))
                first = last
        return stages


def _stage(
    kind: Kind,
    what: list[Any],
    decides: list[Any],
    prepare: Callable[[int], Call],
    network: bool = False,
    keeps: bool = False,
) -> Stage:
    label = " ".join(map(str, what))
    return Stage(f"{label} {digest([what, decides])[:16]}", kind, prepare, network, keeps)


def _rewrite(shop: Workshop, query: int) -> Call:
    return partial(shop.rewrite, shop.questions[query])


def _embed_one(shop: Workshop, name: str, query: int) -> Call:
    return partial(shop.embedder(name).embed_queries, [shop.texts[query]])


def _search_one(shop: Workshop, dense: Dense, depth: int, query: int) -> Call:
    vectors = shop.shortened(dense[0], dense[1], "queries")
    return partial(shop.index(dense).search, vectors[query : query + 1], depth)


def _look_up(shop: Workshop, depth: int, query: int) -> Call:
    return partial(shop.bm25.search, [shop.texts[query]], depth)


def _fuse_one(shop: Workshop, dense: Dense, depth: int, query: int) -> Call:
    name = shop.query_ids[query]
    lists = (shop.dense_list(dense, depth), shop.sparse_list(depth))
    return partial(shop.fuse, *(only(run, name) for run in lists))


def _weed_one(shop: Workshop, c: Configuration, k: int, query: int) -> Call:
    return partial(shop.without_duplicates, only(shop.found(c, k), shop.query_ids[query]))


def _rerank_one(
    shop: Workshop, c: Configuration, k: int, first: int, last: int, query: int
) -> Call:
    docs = only(shop.pool(c, k), shop.query_ids[query]).doc.to_list()[first:last]
    passages = [shop.passage[doc] for doc in docs]
    if not passages:  # words that no passage has
        return _nothing
    return partial(shop.reranker(c.reranker).score, shop.texts[query], passages)


def _nothing() -> None:
    """What there is to do for an empty list."""


def blended(pool: Run, reranked: Run, share: float) -> Run:
    """Both orders of the same candidates: a sum of min-max normalised scores."""
    both = combine([pool, reranked], method="weighted", weights=[share, 1.0 - share])
    return replace(both, cut=None if pool.cut is None else _align(pool, both))


def _align(pool: Run, other: Run) -> Int:
    """What the pool's lists leave out, in the order of another run's queries."""
    assert pool.cut is not None
    cut = dict(zip(pool.queries, pool.cut.tolist(), strict=True))
    return np.array([cut[query] for query in other.queries], np.int64)


def only(run: Run, query: str) -> Run:
    """The list of one query."""
    at = run.queries.index_of(query)
    low, high = (0, 0) if at is None else (int(run.start[at]), int(run.start[at + 1]))
    codes = np.zeros(high - low, np.int32)
    ids = pl.Series("query", [query], dtype=pl.String)
    return build_run(run.name, ids, codes, run.doc[low:high], run.score[low:high], run.dtype)


def _rows_by_query(run: Run, queries: pl.Series) -> list[Float]:
    """Scores of each query's list from the best down."""
    at = {query: i for i, query in enumerate(run.queries)}
    found: list[Float] = []
    for query in queries:
        i = at.get(query)
        some: Float = np.zeros(0) if i is None else run.score[run.start[i] : run.start[i + 1]]
        found.append(-np.sort(-some))
    return found


def mean_depth(pool: Run, queries: int) -> float:
    """Candidates of a query, on average."""
    lengths: Int = np.diff(pool.start)
    return float(lengths.sum()) / queries
