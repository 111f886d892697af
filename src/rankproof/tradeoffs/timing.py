"""How long the stages of configurations take, one query at a time, and first stages under load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.tables import Run, build_run
from rankproof.foundation.arrays import Float
from rankproof.foundation.manifest import digest
from rankproof.foundation.progress import progress
from rankproof.retrieval.components import uses_network
from rankproof.retrieval.fusion import fuse_one
from rankproof.retrieval.identity import environment_digest, identity
from rankproof.retrieval.model_calls import unit_vectors
from rankproof.statistics.resampling import draw_sample
from rankproof.tradeoffs.latency import KINDS, Kind, Latency, Stage, Times, summarize_times
from rankproof.tradeoffs.load import Engine, LoadSettings, drive_all
from rankproof.tradeoffs.plan import DYNAMIC, NONE, Configuration
from rankproof.tradeoffs.stack import Stack

PACKAGES = (
    *("numpy", "polars", "scipy", "bm25s", "PyStemmer", "faiss-cpu", "wordllama"),
    *("sentence-transformers", "torch", "psycopg", "pgvector", "pymilvus"),
)
Call = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Times the stages of a stack's configurations."""

    stack: Stack

    def time(self, file: Path) -> dict[Configuration, Latency]:
        """Time every stage, and return the latency of every configuration.

        The single calls over a network are timed before all questions are rewritten, embedded or
        their candidates scored: what they return is kept and not requested again. Local stages come
        last, when what they keep in memory is warm.
        """
        times = Times(file)
        stack, settings = self.stack, self.stack.settings.latency
        queries = np.arange(len(stack.typed_questions))
        sample = draw_sample(queries, settings.queries, stack.settings.seed).tolist()
        rewriting = {s.key: s for c in stack.grid for s in self._rewriting(c) if s.network}
        self._measure(times, list(rewriting.values()), sample, "calling")
        stack.rewrite()
        stages = list({s.key: s for c in stack.grid for s in self._stages(c)}.values())
        remote = {kind: [s for s in stages if s.network and s.kind == kind] for kind in KINDS}
        self._measure(times, remote["embed"], sample, "calling")
        stack.embed()
        self._measure(times, remote["retrieve"], sample, "calling")
        self._measure(times, remote["rerank"], sample, "calling")
        stack.rerank()
        self._measure(times, [s for s in stages if not s.network], sample, "timing")
        stack.remember_memory()
        latencies = {}
        for c in stack.grid:
            by_kind, local_seconds = self._seconds(c, times, sample, settings.repeats)
            latency = summarize_times(by_kind, settings.repeats)
            latencies[c] = replace(latency, local_seconds=local_seconds)
        return latencies

    def _measure(self, times: Times, stages: list[Stage], sample: list[int], label: str) -> None:
        """Time some stages, without recalling what was computed before."""
        if not stages:
            return
        settings = self.stack.settings.latency
        total = len(stages) * len(sample) * settings.repeats
        with (
            _without_cache([self.stack], stages[0].network),
            progress(f"{label} {len(stages)} stages", total),
        ):
            self.stack.shop.seconds_spent += times.measure(stages, sample, settings)

    def _seconds(
        self, c: Configuration, times: Times, sample: list[int], repeats: int
    ) -> tuple[dict[Kind, Float], float]:
        """Return (queries, repeats) seconds per kind of stage, and the mean on this machine."""
        by_kind: dict[Kind, Float] = {}
        local_seconds = 0.0
        stages = self._stages(c)
        # The second reranking of a dynamic pool, which only some queries need.
        is_dynamic = c.pool == DYNAMIC and c.reranker != NONE
        second_key = stages[-1].key if is_dynamic else None
        for stage in stages:
            seconds = times.read(stage.key, sample, repeats)
            if stage.key == second_key:
                deep = self.stack.ranked(c).deep
                assert deep is not None
                seconds = seconds * deep[sample][:, None]
            by_kind[stage.kind] = by_kind.get(stage.kind, np.zeros(1)) + seconds
            local_seconds += 0.0 if stage.network else float(seconds.mean())
        return by_kind, local_seconds

    # --------------------------------------------------------------------------------- stages

    @cached_property
    def _environment(self) -> str:
        """Identifies this machine: a folder that was copied to another is timed again."""
        return environment_digest(PACKAGES)

    def _stage(
        self,
        kind: Kind,
        names: list[Any],
        inputs: list[Any],
        prepare: Callable[[int], Call],
        component: Any = None,
        keeps: bool = False,
    ) -> Stage:
        """Make a stage whose key is a digest of `inputs`, all that decides its time.

        A call over a network was paid for and is not repeated on another machine.
        """
        network = component is not None and uses_network(component)
        label = " ".join(map(str, names))
        key = digest([names, inputs, None if network else self._environment])[:16]
        return Stage(f"{label} {key}", kind, prepare, network, keeps)

    def _rewriting(self, c: Configuration) -> list[Stage]:
        chosen = self.stack.settings.rewriters[c.rewriter]
        if chosen is None:
            return []
        texts = self.stack.typed_questions.texts

        def rewrite(query: int) -> Call:
            return partial(self.stack.shop.rewrite_function(chosen), texts[query])

        inputs = [texts, identity(chosen)]
        return [self._stage("rewrite", ["rewrite", c.rewriter], inputs, rewrite, chosen)]

    def _stages(self, c: Configuration) -> list[Stage]:
        """Return the stages of a configuration, each keyed by all that decides its time.

        The key holds nothing else, so that enlarging the grid repeats no timing and no payment.
        """
        return [*self._rewriting(c), *self._retrieving(c), *self._reranking(c)]

    def _retrieving(self, c: Configuration) -> list[Stage]:
        """The stages up to the pool; fusing and removing duplicates depend on all before them."""
        shop, settings = self.stack.shop, self.stack.settings
        k = self.stack.depths(c)[-1]
        depth = self.stack.list_depth(c, k)
        questions = self.stack.questions(c)
        texts = [shop.passages.digest, questions.digest]
        stages: list[Stage] = []
        inputs: list[Any] = [*texts, identity(settings.sparse)]  # of all stages so far
        if c.retriever is not None:
            engine = settings.retrievers[c.retriever]
            engine_inputs = [*texts, identity(engine)]
            search = partial(self._call_engine, c, engine, depth)
            names = ["engine", c.retriever, depth]
            stages.append(self._stage("retrieve", names, engine_inputs, search, engine))
            inputs += engine_inputs
        elif c.mode != "sparse":
            embedder, size, index = self.stack.dense_parts(c)
            embed_inputs = [questions.digest, identity(embedder)]
            embed = partial(self._embed_query, c, embedder)
            names = ["embed", c.embedder]
            stages.append(self._stage("embed", names, embed_inputs, embed, embedder))
            search_inputs = [shop.passages.digest, *embed_inputs, identity(index)]
            search = partial(self._search_index, c, depth)
            names = ["dense", (c.embedder, size, c.index), depth]
            stages.append(self._stage("retrieve", names, search_inputs, search))
            inputs += search_inputs
        if c.mode in ("sparse", "hybrid"):
            search = partial(self._search_sparse, c, depth)
            sparse_inputs = [*texts, identity(settings.sparse)]
            stages.append(self._stage("retrieve", ["sparse", depth], sparse_inputs, search))
        if c.fusion is not None:
            inputs = [*inputs, settings.fusions[c.fusion].model_dump()]
            names = ["fuse", (c.embedder, c.dimensions, c.index), depth]
            stages.append(self._stage("retrieve", names, inputs, partial(self._fuse, c, depth)))
        duplicates = settings.duplicates[c.duplicates]
        if duplicates is not None:
            inputs = [*inputs, duplicates.model_dump()]
            names = ["duplicates", c.mode, c.embedder, c.dimensions, c.index, c.retriever, k]
            remove = partial(self._remove_duplicates, c, k)
            stages.append(self._stage("retrieve", names, inputs, remove))
        return stages

    def _reranking(self, c: Configuration) -> list[Stage]:
        """The calls of the reranker: one, or two for a dynamic pool."""
        reranker = self.stack.settings.rerankers[c.reranker]
        if reranker is None:
            return []
        texts = [self.stack.shop.passages.digest, self.stack.questions(c).digest]
        depths = self.stack.depths(c)
        keeps = bool(getattr(reranker, "keeps", False))
        stages = []
        for first, last in zip((0, *depths), depths, strict=False):
            rerank = partial(self._rerank, c, depths[-1], first, last)
            names, inputs = ["rerank", c.reranker, first, last], [*texts, identity(reranker)]
            stages.append(self._stage("rerank", names, inputs, rerank, reranker, keeps))
        return stages

    # Each of these makes the inputs of a stage ready for one query, and returns what is timed.

    def _text(self, c: Configuration, query: int) -> str:
        return self.stack.questions(c).texts[query]

    def _embed_query(self, c: Configuration, embedder: Any, query: int) -> Call:
        return partial(self.stack.shop.embedder(embedder).embed_queries, [self._text(c, query)])

    def _search_index(self, c: Configuration, depth: int, query: int) -> Call:
        embedder, size, index = self.stack.dense_parts(c)
        vectors = self.stack.shop.truncated_vectors(embedder, size, self.stack.questions(c))
        built = self.stack.shop.index(embedder, size, index)
        return partial(built.search, vectors[query : query + 1], depth)

    def _search_sparse(self, c: Configuration, depth: int, query: int) -> Call:
        engine = self.stack.shop.sparse(self.stack.settings.sparse)
        return partial(engine.search, [self._text(c, query)], depth)

    def _call_engine(self, c: Configuration, engine: Any, depth: int, query: int) -> Call:
        return partial(self.stack.shop.retriever(engine).search, [self._text(c, query)], depth)

    def _fuse(self, c: Configuration, depth: int, query: int) -> Call:
        assert c.fusion is not None
        fusion, name = self.stack.settings.fusions[c.fusion], self.stack.typed_questions.ids[query]
        runs = [
            query_run(make_list(c, depth), name)
            for make_list in (self.stack.dense_list, self.stack.sparse_list)
        ]
        lists = [(run.doc.to_list(), run.score.tolist()) for run in runs]
        weights = fusion.weights if fusion.method in ("rrf", "weighted") else None
        return partial(
            fuse_one,
            lists,
            fusion.method,
            k=fusion.k,
            normalise=fusion.normalise,
            weights=weights,
        )

    def _remove_duplicates(self, c: Configuration, k: int, query: int) -> Call:
        duplicates = self.stack.settings.duplicates[c.duplicates]
        assert duplicates is not None
        run = query_run(self.stack.first_stage(c, k), self.stack.typed_questions.ids[query])
        return partial(self.stack.shop.without_duplicates, run, duplicates)

    def _rerank(self, c: Configuration, k: int, first: int, last: int, query: int) -> Call:
        run = query_run(self.stack.pool(c, k), self.stack.typed_questions.ids[query])
        passages = [self.stack.shop.text(doc) for doc in run.doc.to_list()[first:last]]
        if not passages:  # the question has no word that a passage has
            return _do_nothing
        reranker = self.stack.shop.reranker(self.stack.settings.rerankers[c.reranker])
        return partial(reranker.score, self._text(c, query), passages)

    # ---------------------------------------------------------------------------------- load

    def drivable(self, settings: LoadSettings) -> list[Engine]:
        """Return every first stage, to be driven as deep as its deepest pool needs."""
        deepest: dict[str, tuple[int, Configuration]] = {}
        for c in self.stack.grid:
            name = c.name.partition(" K=")[0]
            depth = self.stack.list_depth(c, self.stack.depths(c)[-1])
            if name not in deepest or depth > deepest[name][0]:
                deepest[name] = depth, c
        engines: list[Engine] = []
        for name, (depth, c) in deepest.items():
            engine = None
            if c.retriever is not None:
                engine = self.stack.shop.retriever(self.stack.settings.retrievers[c.retriever])
            if not getattr(engine, "drivable", True):
                continue
            inputs = [name, depth, *(s.key for s in self._stages(c) if s.kind != "rerank")]
            inputs += [settings.model_dump(exclude={"qps"}), self.stack.settings.seed]
            key = digest([*inputs, self._environment])[:16]
            engines.append(Engine(name, key, self._first_stage_call(c, depth)))
        return engines

    def _first_stage_call(self, c: Configuration, depth: int) -> Callable[[int], object]:
        """Return a function that does all that happens to one question before reranking.

        Its components are looked up now, so that driving times nothing but their work.
        """
        shop, settings = self.stack.shop, self.stack.settings
        questions = self.stack.typed_questions
        rewrite = shop.rewrite_function(settings.rewriters[c.rewriter])
        searches = self._searches(c, depth)
        duplicates = settings.duplicates[c.duplicates]

        def answer(query: int) -> object:
            text, name = [rewrite(questions.texts[query]).text], [questions.ids[query]]
            lists = [search(text, name) for search in searches]
            run = lists[0] if len(lists) == 1 else self.stack.fuse(c, *lists)
            return run if duplicates is None else shop.without_duplicates(run, duplicates)

        return answer

    def _searches(
        self, c: Configuration, depth: int
    ) -> list[Callable[[list[str], list[str]], Run]]:
        """Return one function for each list: (texts, ids) → run."""
        shop, settings = self.stack.shop, self.stack.settings
        searches: list[Callable[[list[str], list[str]], Run]] = []
        if c.retriever is not None:
            engine = shop.retriever(settings.retrievers[c.retriever])
            searches.append(lambda text, name: engine.search(text, depth, name).run)
        elif c.mode != "sparse":
            chosen, size, index = self.stack.dense_parts(c)
            embedder, built = shop.embedder(chosen), shop.index(chosen, size, index)

            def search_dense(text: list[str], name: list[str]) -> Run:
                vectors = embedder.embed_queries(text)
                if size is not None:
                    vectors = unit_vectors(vectors[:, :size])
                return built.search(vectors, depth, name).run

            searches.append(search_dense)
        if c.mode in ("sparse", "hybrid"):
            sparse = shop.sparse(settings.sparse)
            searches.append(lambda text, name: sparse.search(text, depth, name).run)
        return searches


def drive_stacks(
    stacks: Sequence[Stack], settings: LoadSettings, file: Path
) -> pl.DataFrame | None:
    """Drive the first stages of all stacks at each rate; None where there is nothing to drive."""
    engines = [engine for stack in stacks for engine in Timing(stack).drivable(settings)]
    if not engines:
        return None
    count, seed = len(stacks[0].typed_questions), stacks[0].settings.seed
    with (
        _without_cache(stacks, keeps=False),
        progress("driving", len(engines) * len(settings.qps)),
    ):
        return drive_all(engines, count, settings, seed, file)


@contextmanager
def _without_cache(stacks: Sequence[Stack], keeps: bool) -> Iterator[None]:
    """Recall nothing from the caches inside the block; store what is computed only if `keeps`."""
    caches = [stack.shop.cache for stack in stacks]
    try:
        for cache in caches:
            cache.is_readable, cache.is_writable = False, keeps
        yield
    finally:
        for cache in caches:
            cache.is_readable = cache.is_writable = True


def _do_nothing() -> None:
    """Stands for the reranking of an empty list."""


def query_run(run: Run, query: str) -> Run:
    """Return the list of one query as a run."""
    at = run.queries.index_of(query)
    low, high = (0, 0) if at is None else (int(run.start[at]), int(run.start[at + 1]))
    codes = np.zeros(high - low, np.int32)
    ids = pl.Series("query", [query], dtype=pl.String)
    return build_run(run.name, ids, codes, run.doc[low:high], run.score[low:high], run.dtype)
