"""How long the stages of configurations take, one query at a time, and first stages under load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.tables import Run, build_run
from rankproof.foundation.arrays import Float
from rankproof.foundation.manifest import digest
from rankproof.retrieval.components import uses_network
from rankproof.retrieval.fusion import fuse_one
from rankproof.retrieval.identity import environment_digest, identity
from rankproof.retrieval.model_calls import unit_vectors
from rankproof.statistics.resampling import sampled
from rankproof.tradeoffs.latency import KINDS, Kind, Latency, Stage, Times, summarise
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
    """The stages of a grid, timed."""

    stack: Stack

    def time(self, file: Path) -> dict[Configuration, Latency]:
        """Times of every stage, then of every configuration.

        Before all questions are rewritten, embedded or their candidates scored over a network, the
        single calls for it are timed: what they return is kept and not asked for again. Local
        stages come last, when what they keep in memory is warm.
        """
        times = Times(file)
        settings = self.stack.settings.latency
        every = np.arange(len(self.stack.asked))
        sample = sampled(every, settings.queries, self.stack.settings.seed).tolist()
        rewriting = {s.key: s for c in self.stack.grid for s in self._rewriting(c) if s.network}
        self._measure(times, list(rewriting.values()), sample, "calling")
        self.stack.rewrite()
        stages = list({s.key: s for c in self.stack.grid for s in self._stages(c)}.values())
        remote = {kind: [s for s in stages if s.network and s.kind == kind] for kind in KINDS}
        self._measure(times, remote["embed"], sample, "calling")
        self.stack.embed()
        self._measure(times, remote["retrieve"], sample, "calling")
        self._measure(times, remote["rerank"], sample, "calling")
        self.stack.rerank()
        self._measure(times, [s for s in stages if not s.network], sample, "timing")
        self.stack.remember_memory()
        found = {}
        for c in self.stack.grid:
            parts, here = self._seconds(c, times, sample, settings.repeats)
            found[c] = replace(summarise(parts, settings.repeats), local_seconds=here)
        return found

    def _measure(self, times: Times, stages: list[Stage], sample: list[int], label: str) -> None:
        if not stages:
            return
        settings = self.stack.settings.latency
        cache = self.stack.shop.cache
        cache.recalls, cache.keeps = False, stages[0].network
        try:
            total = len(stages) * len(sample) * settings.repeats
            with self.stack.progress(f"{label} {len(stages)} stages", total) as tell:
                self.stack.shop.spent += times.measure(stages, sample, settings, tell)
        finally:
            cache.recalls = cache.keeps = True

    def _seconds(
        self, c: Configuration, times: Times, sample: list[int], repeats: int
    ) -> tuple[dict[Kind, Float], float]:
        """(queries, repeats) seconds of each kind of stage; and how long it uses this machine."""
        parts: dict[Kind, Float] = {}
        here = 0.0
        again = self._again(c)
        for stage in self._stages(c):
            seconds = times.read(stage.key, sample, repeats)
            if again is not None and stage.key == again:
                deep = self.stack.ranked(c).deep
                assert deep is not None
                seconds = seconds * deep[sample][:, None]  # only those that went deep
            parts[stage.kind] = parts.get(stage.kind, np.zeros(1)) + seconds
            here += 0.0 if stage.network else float(seconds.mean())
        return parts, here

    def _again(self, c: Configuration) -> str | None:
        """The stage that only some queries of a dynamic pool come to."""
        if c.pool != DYNAMIC or c.reranker == NONE:
            return None
        return self._stages(c)[-1].key

    @cached_property
    def _here(self) -> str:
        """A folder that was copied to another machine is timed anew."""
        return environment_digest(PACKAGES)

    def _stage(
        self,
        kind: Kind,
        what: list[Any],
        decides: list[Any],
        prepare: Callable[[int], Call],
        chosen: Any = None,
        keeps: bool = False,
    ) -> Stage:
        network = chosen is not None and uses_network(chosen)
        label = " ".join(map(str, what))
        # A call over a network was paid for: it is not made again for another machine here.
        key = digest([what, decides, None if network else self._here])[:16]
        return Stage(f"{label} {key}", kind, prepare, network, keeps)

    def _rewriting(self, c: Configuration) -> list[Stage]:
        chosen = self.stack.settings.rewriters[c.rewriter]
        if chosen is None:
            return []

        def rewrite(query: int) -> Call:
            return partial(self.stack.shop.rewriting(chosen), self.stack.asked.texts[query])

        decides = [self.stack.asked.texts, identity(chosen)]
        return [self._stage("rewrite", ["rewrite", c.rewriter], decides, rewrite, chosen)]

    def _stages(self, c: Configuration) -> list[Stage]:
        """Each told from others by all that decides its time, and by nothing else: what a larger
        grid does not change is not timed, nor paid for, again."""
        shop, settings = self.stack.shop, self.stack.settings
        depths = self.stack.depths(c)
        wanted = self.stack.wanted(c, depths[-1])
        stages = self._rewriting(c)
        questions = self.stack.questions(c)
        about = [shop.passages.digest, questions.digest]
        found: list[Any] = [*about, identity(settings.sparse)]
        if c.retriever is not None:
            engine = settings.retrievers[c.retriever]
            decides = [*about, identity(engine)]
            ask = partial(self._ask_one, c, engine, wanted)
            stages.append(
                self._stage("retrieve", ["engine", c.retriever, wanted], decides, ask, engine)
            )
            found = [*found, *decides]
        elif c.mode != "sparse":
            embedder, size, index = self.stack.dense(c)
            decides = [questions.digest, identity(embedder)]
            embed = partial(self._embed_one, c, embedder)
            stages.append(self._stage("embed", ["embed", c.embedder], decides, embed, embedder))
            decides = [shop.passages.digest, *decides, identity(index)]
            search = partial(self._search_one, c, wanted)
            what = ["dense", (c.embedder, size, c.index), wanted]
            stages.append(self._stage("retrieve", what, decides, search))
            found = [*found, *decides]
        if c.mode in ("sparse", "hybrid"):
            look = partial(self._look_up, c, wanted)
            words = [*about, identity(settings.sparse)]
            stages.append(self._stage("retrieve", ["sparse", wanted], words, look))
        if c.fusion is not None:
            found = [*found, settings.fusions[c.fusion].model_dump()]
            what = ["fuse", (c.embedder, c.dimensions, c.index), wanted]
            stages.append(self._stage("retrieve", what, found, partial(self._fuse_one, c, wanted)))
        weeded = settings.duplicates[c.duplicates]
        if weeded is not None:
            found = [*found, weeded.model_dump()]
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

    def drivable(self, settings: LoadSettings) -> list[Engine]:
        """Every first stage by name, with what decides its times, and how it is asked: as deep as
        the deepest pool needs."""
        deepest: dict[str, tuple[int, Configuration]] = {}
        for c in self.stack.grid:
            name = c.name.partition(" K=")[0]
            depth = self.stack.wanted(c, self.stack.depths(c)[-1])
            if name not in deepest or depth > deepest[name][0]:
                deepest[name] = depth, c
        engines: list[Engine] = []
        for name, (depth, c) in deepest.items():
            engine = None
            if c.retriever is not None:
                engine = self.stack.shop.retriever(self.stack.settings.retrievers[c.retriever])
            if not getattr(engine, "drivable", True):
                continue
            decides = [name, depth, *(s.key for s in self._stages(c) if s.kind != "rerank")]
            decides += [settings.model_dump(exclude={"qps"}), self.stack.settings.seed, self._here]
            engines.append((name, digest(decides)[:16], self._answering(c, depth)))
        return engines

    def _answering(self, c: Configuration, depth: int) -> Callable[[int], object]:
        """All that a configuration does for one question before it reranks, and no more: its parts
        are looked up before anybody asks."""
        shop, settings = self.stack.shop, self.stack.settings
        asked = self.stack.asked
        rewrite = shop.rewriting(settings.rewriters[c.rewriter])
        ways: list[Callable[[list[str], list[str]], Run]] = []
        if c.retriever is not None:
            engine = shop.retriever(settings.retrievers[c.retriever])
            ways.append(lambda text, name: engine.search(text, depth, name).run)
        elif c.mode != "sparse":
            chosen, size, index = self.stack.dense(c)
            embedder, built = shop.embedder(chosen), shop.index(chosen, size, index)

            def dense(text: list[str], name: list[str]) -> Run:
                vectors = embedder.embed_queries(text)
                if size is not None:
                    vectors = unit_vectors(vectors[:, :size])
                return built.search(vectors, depth, name).run

            ways.append(dense)
        if c.mode in ("sparse", "hybrid"):
            words = shop.sparse(settings.sparse)
            ways.append(lambda text, name: words.search(text, depth, name).run)
        weeded = settings.duplicates[c.duplicates]

        def answer(query: int) -> object:
            text, name = [rewrite(asked.texts[query]).text], [asked.ids[query]]
            lists = [way(text, name) for way in ways]
            found = lists[0] if len(lists) == 1 else self.stack.fuse(c, *lists)
            return found if weeded is None else shop.without_duplicates(found, weeded)

        return answer

    def _text(self, c: Configuration, query: int) -> str:
        return self.stack.questions(c).texts[query]

    # Each returns what is timed: by then its inputs are ready.

    def _embed_one(self, c: Configuration, embedder: Any, query: int) -> Call:
        return partial(self.stack.shop.embedder(embedder).embed_queries, [self._text(c, query)])

    def _search_one(self, c: Configuration, depth: int, query: int) -> Call:
        embedder, size, index = self.stack.dense(c)
        vectors = self.stack.shop.shortened(embedder, size, self.stack.questions(c))
        built = self.stack.shop.index(embedder, size, index)
        return partial(built.search, vectors[query : query + 1], depth)

    def _look_up(self, c: Configuration, depth: int, query: int) -> Call:
        engine = self.stack.shop.sparse(self.stack.settings.sparse)
        return partial(engine.search, [self._text(c, query)], depth)

    def _ask_one(self, c: Configuration, engine: Any, depth: int, query: int) -> Call:
        return partial(self.stack.shop.retriever(engine).search, [self._text(c, query)], depth)

    def _fuse_one(self, c: Configuration, depth: int, query: int) -> Call:
        assert c.fusion is not None
        fusion, name = self.stack.settings.fusions[c.fusion], self.stack.asked.ids[query]
        runs = [
            only(run(c, depth), name) for run in (self.stack.dense_list, self.stack.sparse_list)
        ]
        lists = [(run.doc.to_list(), run.score.tolist()) for run in runs]
        weights = fusion.weights if fusion.method in ("rrf", "weighted") else None
        how = partial(fuse_one, k=fusion.k, normalise=fusion.normalise, weights=weights)
        return partial(how, lists, fusion.method)

    def _weed_one(self, c: Configuration, k: int, query: int) -> Call:
        weeded = self.stack.settings.duplicates[c.duplicates]
        assert weeded is not None
        found = only(self.stack.found(c, k), self.stack.asked.ids[query])
        return partial(self.stack.shop.without_duplicates, found, weeded)

    def _rerank_one(self, c: Configuration, k: int, first: int, last: int, query: int) -> Call:
        docs = only(self.stack.pool(c, k), self.stack.asked.ids[query]).doc.to_list()[first:last]
        passages = [self.stack.shop.text(doc) for doc in docs]
        if not passages:  # words that no passage has
            return _nothing
        reranker = self.stack.shop.reranker(self.stack.settings.rerankers[c.reranker])
        return partial(reranker.score, self._text(c, query), passages)


def load(stacks: Sequence[Stack], settings: LoadSettings, file: Path) -> pl.DataFrame | None:
    """The first stages of all, driven at each rate; None where there is nothing to drive."""
    engines = [engine for stack in stacks for engine in Timing(stack).drivable(settings)]
    if not engines:
        return None
    one = stacks[0]
    caches = [stack.shop.cache for stack in stacks]
    try:
        for cache in caches:
            cache.recalls = cache.keeps = False
        with one.progress("driving", len(engines) * len(settings.qps)) as tell:
            return drive_all(engines, len(one.asked), settings, one.settings.seed, file, tell)
    finally:
        for cache in caches:
            cache.recalls = cache.keeps = True


def _nothing() -> None:
    """What there is to do for an empty list."""


def only(run: Run, query: str) -> Run:
    """The list of one query."""
    at = run.queries.index_of(query)
    low, high = (0, 0) if at is None else (int(run.start[at]), int(run.start[at + 1]))
    codes = np.zeros(high - low, np.int32)
    ids = pl.Series("query", [query], dtype=pl.String)
    return build_run(run.name, ids, codes, run.doc[low:high], run.score[low:high], run.dtype)
