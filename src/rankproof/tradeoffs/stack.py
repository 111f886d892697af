"""From parts to runs and times: what each configuration ranks, and how long its stages take."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankproof.arrays import Bool, Float, Int
from rankproof.manifest import digest
from rankproof.records.hits import RANKS
from rankproof.retrieval.depth import choose_depth
from rankproof.retrieval.fusion import combine, rrf
from rankproof.retrieval.identity import circumstances, identity
from rankproof.retrieval.parts import is_network
from rankproof.retrieval.pools import head, reordered
from rankproof.retrieval.texts import unit
from rankproof.retrieval.workshop import Texts, Workshop
from rankproof.tables import Run, build_run
from rankproof.tradeoffs.latency import KINDS, Kind, Latency, Stage, Times, summarise
from rankproof.tradeoffs.load import Ask, LoadSettings, drive_all
from rankproof.tradeoffs.plan import DYNAMIC, NONE, Configuration, SweepSettings

PACKAGES = (
    *("numpy", "polars", "scipy", "bm25s", "PyStemmer", "faiss-cpu", "wordllama"),
    *("sentence-transformers", "torch", "psycopg", "pgvector", "pymilvus"),
)
SEARCH = 100  # candidates that one search bills, as a rule
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
    searches: float = 0.0  # billed for a query, on average


class Stack:
    """Every configuration of a grid, upon one workshop."""

    def __init__(
        self,
        shop: Workshop,
        settings: SweepSettings,
        asked: Texts,
        grid: Sequence[Configuration],
        progress: Told,
    ):
        self.shop = shop
        self.settings = settings
        self.asked = asked  # as people typed them
        self.grid = list(grid)
        self.progress = progress
        self._scores: dict[str, pl.DataFrame] = {}
        self._made: dict[Any, Any] = {}

    @cached_property
    def questions(self) -> Texts:
        """The questions as they are searched."""
        return self.shop.rewritten(self.settings.rewriter, self.asked)

    def _rewrite(self) -> None:
        if self.settings.rewriter is None:
            return
        with self.progress("rewriting", len(self.asked)) as tell:
            self.shop.rewritten(self.settings.rewriter, self.asked, tell)

    def asked_and_searched(self) -> pl.DataFrame:
        """query, typed, searched, kept: each question as typed and as searched, and why one stayed
        as it was though it was to be rewritten."""
        made = [self.shop.rewrite(self.settings.rewriter, text) for text in self.asked.texts]
        columns = (self.asked.ids, self.asked.texts, [m.text for m in made], [m.kept for m in made])
        names = ("query", "typed", "searched", "kept")
        schema = dict.fromkeys(names, pl.String)
        return pl.DataFrame(dict(zip(names, columns, strict=True)), schema=schema)

    def _embed(self) -> None:
        names = dict.fromkeys(c.embedder for c in self.grid if c.embedder is not None)
        total = len(names) * (len(self.asked) + len(self.shop.passages))
        with self.progress("embedding", total) as tell:
            for name in names:
                for texts in (self.questions, self.shop.passages):
                    self.shop.vectors(self.settings.embedders[name], texts, tell)

    def depths(self, c: Configuration) -> tuple[int, ...]:
        """How deep its reranker reads: once, or at first and then the rest."""
        if c.pool == DYNAMIC:
            return self.settings.depth.start, self.settings.depth.deep
        return (c.pool,)

    # ---------------------------------------------------------------------------------- pools

    def _dense(self, c: Configuration) -> tuple[Any, int | None, Any]:
        assert c.embedder is not None
        assert c.index is not None
        return self.settings.embedders[c.embedder], c.dimensions, self.settings.indexes[c.index]

    def dense_list(self, c: Configuration, depth: int) -> Run:
        return self.shop.dense_list(*self._dense(c), self.questions, depth)

    def sparse_list(self, depth: int) -> Run:
        return self.shop.sparse_list(self.settings.sparse, self.questions, depth)

    def found(self, c: Configuration, k: int) -> Run:
        """Its one list, or the two made one, as deep as a pool of k needs."""
        wanted = self.wanted(c, k)
        if c.retriever is not None:
            chosen = self.settings.retrievers[c.retriever]
            return self.shop.engine_list(chosen, self.questions, wanted)
        if c.mode == "sparse":
            return self.sparse_list(wanted)
        if c.mode == "dense":
            return self.dense_list(c, wanted)
        return self.fuse(self.dense_list(c, wanted), self.sparse_list(wanted))

    def pool(self, c: Configuration, k: int) -> Run:
        """The first k candidates that a configuration hands to its reranker."""
        key = (c.mode, c.embedder, c.dimensions, c.index, c.retriever, k)
        if key not in self._made:
            found = self.found(c, k)
            if self.settings.duplicates is not None:
                found = self.shop.without_duplicates(found, self.settings.duplicates)
            self._made[key] = head(found, k)
        made: Run = self._made[key]
        return made

    def wanted(self, c: Configuration, k: int) -> int:
        """How deep the lists behind a pool of k go: duplicates leave gaps to fill."""
        deep = k if self.settings.duplicates is None else 2 * k
        return max(deep, self.settings.fusion.depth) if c.mode == "hybrid" else deep

    def fuse(self, dense: Run, sparse: Run) -> Run:
        fusion = self.settings.fusion
        if fusion.method == "rrf":
            return rrf([dense, sparse], k=fusion.k, weights=fusion.weights)
        return combine(
            [dense, sparse],
            method=fusion.method,
            normalise=fusion.normalise,
            weights=fusion.weights if fusion.method == "weighted" else None,
        )

    def indexes(self, c: Configuration) -> list[Any]:
        """Every index that a configuration needs."""
        if c.retriever is not None:
            return [self.shop.retriever(self.settings.retrievers[c.retriever])]
        found: list[Any] = [] if c.mode == "dense" else [self.shop.sparse(self.settings.sparse)]
        return found if c.mode == "sparse" else [*found, self.shop.index(*self._dense(c))]

    # ----------------------------------------------------------------------------------- runs

    def rerank(self) -> None:
        """Score every candidate that any configuration hands to a reranker, each once."""
        pools: dict[str, list[Run]] = {}
        for c in self.grid:
            if c.reranker != NONE:
                pools.setdefault(c.reranker, []).append(self.pool(c, self.depths(c)[-1]))
        for name, some in pools.items():
            pairs = pl.concat([run.to_frame().select("query", "doc") for run in some])
            with self.progress(f"reranking with {name}", pairs.n_unique()) as tell:
                chosen = self.settings.rerankers[name]
                self._scores[name] = self.shop.scores(chosen, some, self.questions, tell)

    def notes(self, by_search: Container[str] = ()) -> list[str]:
        """What to know of tokens, of searches where they are paid, and of engines; `rerank` comes
        first."""
        unsaid = [
            f"{name} does not say how many searches it bills: one for {SEARCH} candidates is taken"
            for name, scores in self._scores.items()
            if name in by_search
            and ("searches" not in scores.columns or scores["searches"].null_count())
        ]
        estimated = [
            f"{name} does not say how many tokens it read: a quarter of the bytes is taken"
            for name, scores in self._scores.items()
            if scores["estimated"].any()
        ]
        return [*unsaid, *estimated, *self._notes_of_engines()]

    def _notes_of_engines(self) -> Iterator[str]:
        deepest = {c.retriever: c for c in self.grid if c.retriever is not None}
        for name, c in deepest.items():
            assert name is not None
            yield from getattr(self.shop.retriever(self.settings.retrievers[name]), "notes", [])
            found = self.found(c, self.depths(c)[-1])
            if found.dtype == RANKS:
                yield f"{name} gives no scores: its order is taken as it is, ties cannot be seen"
            if silent := int((np.diff(found.start) == 0).sum()):
                yield f"{name} returns nothing for {silent} of {len(self.asked)} questions"

    def ranked(self, c: Configuration) -> Ranked:
        """What a configuration returns; `rerank` comes first."""
        if c.pool == DYNAMIC:
            return self._dynamic(c)
        pool = self.pool(c, c.pool)
        searches = self._searches(c, pool)
        return Ranked(pool, self._order(c, pool), self._tokens(c, pool), None, searches=searches)

    def _order(self, c: Configuration, pool: Run) -> Run:
        if c.reranker == NONE:
            return pool
        scores = self._scores[c.reranker]
        dtype = scores["dtype"][0] if scores.height else "float64"
        found = reordered(pool, scores.select("query", "doc", "score"), dtype)
        share = self.settings.blends.get(c.reranker, 0.0)
        return found if share == 0 else blended(pool, found, share)

    def _tokens(self, c: Configuration, pool: Run) -> float:
        if c.reranker == NONE:
            return 0.0
        pairs = pool.to_frame().select("query", "doc")
        read = pairs.join(self._scores[c.reranker], on=["query", "doc"])["tokens"].sum()
        return float(read) / len(self.asked)

    def _searches(self, c: Configuration, pool: Run) -> float:
        """Σ over queries of ⌈shares of the searches billed⌉, on average: part of one is paid whole.

        Where the server does not say, one search takes a hundred candidates.
        """
        if c.reranker == NONE:
            return 0.0
        pairs = pool.to_frame().select("query", "doc")
        scores = self._scores[c.reranker]
        if "searches" not in scores.columns:  # kept from before they were counted
            scores = scores.with_columns(searches=pl.lit(None, pl.Float64))
        billed = (
            pairs.join(scores, on=["query", "doc"])
            .group_by("query")
            .agg(searches=(pl.col("searches").fill_null(1 / SEARCH).sum() - 1e-9).ceil())
        )
        return float(billed["searches"].sum()) / len(self.asked)

    def _dynamic(self, c: Configuration) -> Ranked:
        settings = self.settings.depth
        deep_pool = self.pool(c, settings.deep)
        shallow = head(deep_pool, settings.start)
        deep = np.zeros(len(deep_pool.queries), np.bool_)
        dense = None
        if c.embedder is not None:
            lists = self.dense_list(c, self.wanted(c, settings.deep))
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
            np.array([by_query.get(query, False) for query in self.asked.ids]),
            self._tokens(c, deep_pool),
            self._searches(c, pool),
        )

    # ---------------------------------------------------------------------------------- times

    def time(self, file: Path) -> dict[Configuration, Latency]:
        """Times of every stage, then of every configuration.

        Before all questions are rewritten, embedded or their candidates scored over a network, the
        single calls for it are timed: what they return is kept and not asked for again. Local
        stages come last, when what they keep in memory is warm.
        """
        times = Times(file)
        settings = self.settings.latency
        generator = np.random.default_rng(self.settings.seed)
        count = min(settings.queries, len(self.asked))
        sample = sorted(generator.choice(len(self.asked), count, replace=False).tolist())
        self._measure(times, [s for s in self._rewriting() if s.network], sample, "calling")
        self._rewrite()
        stages = list({s.key: s for c in self.grid for s in self._stages(c)}.values())
        remote = {kind: [s for s in stages if s.network and s.kind == kind] for kind in KINDS}
        self._measure(times, remote["embed"], sample, "calling")
        self._embed()
        self._measure(times, remote["retrieve"], sample, "calling")
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
        settings = self.settings.latency
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

    @cached_property
    def _here(self) -> str:
        """A folder that was copied to another machine is timed anew."""
        return circumstances(PACKAGES)

    def _stage(
        self,
        kind: Kind,
        what: list[Any],
        decides: list[Any],
        prepare: Callable[[int], Call],
        chosen: Any = None,
        keeps: bool = False,
    ) -> Stage:
        network = chosen is not None and is_network(chosen)
        label = " ".join(map(str, what))
        # A call over a network was paid for: it is not made again for another machine here.
        key = digest([what, decides, None if network else self._here])[:16]
        return Stage(f"{label} {key}", kind, prepare, network, keeps)

    def _rewriting(self) -> list[Stage]:
        chosen = self.settings.rewriter
        if chosen is None:
            return []

        def rewrite(query: int) -> Call:
            return partial(self.shop.rewrite, chosen, self.asked.texts[query])

        decides = [self.asked.texts, identity(chosen)]
        return [self._stage("rewrite", ["rewrite"], decides, rewrite, chosen)]

    def _stages(self, c: Configuration) -> list[Stage]:
        """Each told from others by all that decides its time, and by nothing else: what a larger
        grid does not change is not timed, nor paid for, again."""
        shop, settings = self.shop, self.settings
        depths = self.depths(c)
        wanted = self.wanted(c, depths[-1])
        stages = self._rewriting()
        about = [shop.passages.digest, self.questions.digest]
        found: list[Any] = [*about, identity(settings.sparse)]
        if c.retriever is not None:
            engine = settings.retrievers[c.retriever]
            decides = [*about, identity(engine)]
            ask = partial(self._ask_one, engine, wanted)
            stages.append(
                self._stage("retrieve", ["engine", c.retriever, wanted], decides, ask, engine)
            )
            found = [*found, *decides]
        elif c.mode != "sparse":
            embedder, size, index = self._dense(c)
            decides = [self.questions.digest, identity(embedder)]
            embed = partial(self._embed_one, embedder)
            stages.append(self._stage("embed", ["embed", c.embedder], decides, embed, embedder))
            decides = [shop.passages.digest, *decides, identity(index)]
            search = partial(self._search_one, c, wanted)
            what = ["dense", (c.embedder, size, c.index), wanted]
            stages.append(self._stage("retrieve", what, decides, search))
            found = [*found, *decides]
        if c.mode in ("sparse", "hybrid"):
            look = partial(self._look_up, wanted)
            words = [*about, identity(settings.sparse)]
            stages.append(self._stage("retrieve", ["sparse", wanted], words, look))
        if c.mode == "hybrid":
            found = [*found, settings.fusion.model_dump()]
            what = ["fuse", (c.embedder, c.dimensions, c.index), wanted]
            stages.append(self._stage("retrieve", what, found, partial(self._fuse_one, c, wanted)))
        if settings.duplicates is not None:
            found = [*found, settings.duplicates.model_dump()]
            what = ["duplicates", c.mode, c.embedder, c.dimensions, c.index, c.retriever]
            weed = partial(self._weed_one, c, depths[-1])
            stages.append(self._stage("retrieve", [*what, depths[-1]], found, weed))
        reranker = settings.rerankers[c.reranker]
        if reranker is not None:
            first = 0
            for last in depths:
                rank = partial(self._rerank_one, c, depths[-1], first, last)
                what = ["rerank", c.reranker, first, last]
                keeps = bool(getattr(reranker, "keeps", False))
                decides = [*about, identity(reranker)]
                stages.append(self._stage("rerank", what, decides, rank, reranker, keeps))
                first = last
        return stages

    # ---------------------------------------------------------------------------------- load

    def load(self, settings: LoadSettings, file: Path) -> pl.DataFrame | None:
        """Every first stage driven at each rate; None where there is nothing to drive."""
        engines: dict[str, tuple[str, Ask]] = {}
        for c in self.grid:
            name = c.name.partition(" K=")[0]
            depth = self.wanted(c, self.depths(c)[-1])
            engine = None
            if c.retriever is not None:
                engine = self.shop.retriever(self.settings.retrievers[c.retriever])
            if not getattr(engine, "drivable", True):
                continue
            decides = [name, depth, *(s.key for s in self._stages(c) if s.kind != "rerank")]
            decides += [settings.model_dump(exclude={"qps"}), self.settings.seed, self._here]
            engines[name] = digest(decides)[:16], partial(self._answer, c, depth)
        if not engines:
            return None
        cache = self.shop.cache
        cache.recalls = cache.keeps = False
        try:
            with self.progress("driving", len(engines) * len(settings.qps)) as tell:
                listed = [(name, *engine) for name, engine in engines.items()]
                return drive_all(listed, len(self.asked), settings, self.settings.seed, file, tell)
        finally:
            cache.recalls = cache.keeps = True

    def _answer(self, c: Configuration, depth: int, query: int) -> object:
        """All that the first stage of a configuration does for one question."""
        text, only_one = [self.questions.texts[query]], ["q"]
        if c.retriever is not None:
            engine = self.shop.retriever(self.settings.retrievers[c.retriever])
            return engine.search(text, depth, [self.asked.ids[query]])
        found = []
        if c.mode != "sparse":
            embedder, size, index = self._dense(c)
            vectors = self.shop.embedder(embedder).embed_queries(text)
            if size is not None:
                vectors = unit(vectors[:, :size])
            built = self.shop.index(embedder, size, index)
            found.append(built.search(vectors, depth, only_one).run)
        if c.mode != "dense":
            sparse = self.shop.sparse(self.settings.sparse)
            found.append(sparse.search(text, depth, only_one).run)
        return found[0] if len(found) == 1 else self.fuse(*found)

    # Each returns what is timed: by then its inputs are ready.

    def _embed_one(self, embedder: Any, query: int) -> Call:
        return partial(self.shop.embedder(embedder).embed_queries, [self.questions.texts[query]])

    def _search_one(self, c: Configuration, depth: int, query: int) -> Call:
        embedder, size, index = self._dense(c)
        vectors = self.shop.shortened(embedder, size, self.questions)
        built = self.shop.index(embedder, size, index)
        return partial(built.search, vectors[query : query + 1], depth)

    def _look_up(self, depth: int, query: int) -> Call:
        engine = self.shop.sparse(self.settings.sparse)
        return partial(engine.search, [self.questions.texts[query]], depth)

    def _ask_one(self, engine: Any, depth: int, query: int) -> Call:
        return partial(self.shop.retriever(engine).search, [self.questions.texts[query]], depth)

    def _fuse_one(self, c: Configuration, depth: int, query: int) -> Call:
        name = self.asked.ids[query]
        lists = (self.dense_list(c, depth), self.sparse_list(depth))
        return partial(self.fuse, *(only(run, name) for run in lists))

    def _weed_one(self, c: Configuration, k: int, query: int) -> Call:
        assert self.settings.duplicates is not None
        found = only(self.found(c, k), self.asked.ids[query])
        return partial(self.shop.without_duplicates, found, self.settings.duplicates)

    def _rerank_one(self, c: Configuration, k: int, first: int, last: int, query: int) -> Call:
        docs = only(self.pool(c, k), self.asked.ids[query]).doc.to_list()[first:last]
        passages = [self.shop.text(doc) for doc in docs]
        if not passages:  # words that no passage has
            return _nothing
        reranker = self.shop.reranker(self.settings.rerankers[c.reranker])
        return partial(reranker.score, self.questions.texts[query], passages)


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
