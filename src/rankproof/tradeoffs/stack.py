"""From parts to runs: what each configuration ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.hits import RANKS
from rankproof.data.tables import Qrels, Run
from rankproof.evaluation import Policy, evaluate_tables
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.manifest import digest
from rankproof.foundation.phrasing import plural
from rankproof.retrieval.chat import estimate_tokens
from rankproof.retrieval.depth import doubt, learn_threshold
from rankproof.retrieval.fusion import combine, rrf
from rankproof.retrieval.identity import identity
from rankproof.retrieval.ranked_lists import keep_first, rescore
from rankproof.retrieval.rewriters.llm import prompt
from rankproof.retrieval.workshop import Texts, Workshop
from rankproof.statistics.resampling import first_of_permutation
from rankproof.tradeoffs.chunked import Cut
from rankproof.tradeoffs.plan import DYNAMIC, NONE, Configuration, SweepSettings

SEARCH = 100  # candidates that one search bills, as a rule
_UNCOUNTED = "{} does not say how many tokens it read: a quarter of the bytes is taken"
Told = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Ranked:
    """The candidates of a configuration, and the order it gives them."""

    pool: Run
    final: Run
    tokens: float  # that the reranker reads for a query, on average
    deep: Bool | None  # (queries,) of a dynamic pool: which went deep
    tokens_saved: float | None = None  # of a dynamic pool: share of those of all deep
    quality_lost: float | None = None  # beside all deep; both on queries that taught it nothing
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
        qrels: Qrels | None = None,  # by which the depth of dynamic pools is learned
        cut: Cut | None = None,  # where the corpus was cut: judged are spans of documents
    ):
        self.shop = shop
        self.settings = settings
        self.asked = asked  # as people typed them
        self.grid = list(grid)
        self.progress = progress
        self.qrels, self.cut = qrels, cut
        self._scores: dict[tuple[str, str], pl.DataFrame] = {}  # by reranker and rewriter
        self._made: dict[Any, Any] = {}
        self._guessed: dict[str, None] = {}  # parts that do not count what they read

    @property
    def judged(self) -> Qrels:
        """The judgements."""
        assert self.qrels is not None
        return self.qrels

    def judge_by(self, qrels: Qrels, cut: Cut | None) -> None:
        """Other judgements from here on."""
        self.qrels, self.cut = qrels, cut
        self._made = {key: made for key, made in self._made.items() if key[0] != "judged"}

    def questions(self, c: Configuration) -> Texts:
        """The questions as a configuration searches them."""
        return self.shop.rewritten(self.settings.rewriters[c.rewriter], self.asked)

    def rewrite(self) -> None:
        """All questions, by every rewriter."""
        chosen = [one for one in self.settings.rewriters.values() if one is not None]
        if not chosen:
            return
        with self.progress("rewriting", len(chosen) * len(self.asked)) as tell:
            for one in chosen:
                self.shop.rewritten(one, self.asked, tell)

    def asked_and_searched(self) -> pl.DataFrame:
        """rewriter, query, typed, searched, kept: each question as typed and as searched, and why
        one stayed as it was though it was to be rewritten."""
        names = ("rewriter", "query", "typed", "searched", "kept")
        rows = [
            (name, query, typed, made.text, made.kept)
            for name, chosen in self.settings.rewriters.items()
            if chosen is not None
            for rewrite in [self.shop.rewriting(chosen)]
            for query, typed in zip(self.asked.ids, self.asked.texts, strict=True)
            for made in [rewrite(typed)]
        ]
        return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")

    def embed(self) -> None:
        """All questions and passages, by every embedder."""
        pairs = {(c.embedder, c.rewriter): c for c in self.grid if c.embedder is not None}
        names = dict.fromkeys(name for name, _ in pairs)
        total = len(pairs) * len(self.asked) + len(names) * len(self.shop.passages)
        with self.progress("embedding", total) as tell:
            for (name, _), c in pairs.items():
                self.shop.vectors(self.settings.embedders[name], self.questions(c), tell)
            for name in names:
                self.shop.vectors(self.settings.embedders[name], self.shop.passages, tell)

    def depths(self, c: Configuration) -> tuple[int, ...]:
        """How deep its reranker reads: once, or at first and then the rest."""
        if c.pool == DYNAMIC:
            return self.settings.depth.start, self.settings.depth.deep
        return (c.pool,)

    # ---------------------------------------------------------------------------------- pools

    def dense(self, c: Configuration) -> tuple[Any, int | None, Any]:
        """Embedder, dimensions and index."""
        assert c.embedder is not None
        assert c.index is not None
        return self.settings.embedders[c.embedder], c.dimensions, self.settings.indexes[c.index]

    def dense_list(self, c: Configuration, depth: int) -> Run:
        return self.shop.dense_list(*self.dense(c), self.questions(c), depth)

    def sparse_list(self, c: Configuration, depth: int) -> Run:
        return self.shop.sparse_list(self.settings.sparse, self.questions(c), depth)

    def found(self, c: Configuration, k: int) -> Run:
        """Its one list, or the two made one, as deep as a pool of k needs."""
        wanted = self.wanted(c, k)
        if c.retriever is not None:
            chosen = self.settings.retrievers[c.retriever]
            return self.shop.engine_list(chosen, self.questions(c), wanted)
        if c.mode == "sparse":
            return self.sparse_list(c, wanted)
        if c.mode == "dense":
            return self.dense_list(c, wanted)
        return self.fuse(c, self.dense_list(c, wanted), self.sparse_list(c, wanted))

    def pool(self, c: Configuration, k: int) -> Run:
        """The first k candidates that a configuration hands to its reranker."""
        key = (*_first_stage(c), k)
        if key not in self._made:
            found = self.found(c, k)
            weeded = self.settings.duplicates[c.duplicates]
            if weeded is not None:
                found = self.shop.without_duplicates(found, weeded)
            self._made[key] = keep_first(found, k)
        made: Run = self._made[key]
        return made

    def wanted(self, c: Configuration, k: int) -> int:
        """How deep the lists behind a pool of k go: duplicates leave gaps to fill."""
        deep = k if c.duplicates == NONE else 2 * k
        return deep if c.fusion is None else max(deep, self.settings.fusions[c.fusion].depth)

    def fuse(self, c: Configuration, dense: Run, sparse: Run) -> Run:
        assert c.fusion is not None
        fusion = self.settings.fusions[c.fusion]
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
        return found if c.mode == "sparse" else [*found, self.shop.index(*self.dense(c))]

    # ----------------------------------------------------------------------------------- runs

    def rerank(self) -> None:
        """Score every candidate that any configuration hands to a reranker, each once."""
        pools: dict[tuple[str, str], dict[Any, tuple[Configuration, Run]]] = {}
        for c in self.grid:
            if c.reranker != NONE:
                k = self.depths(c)[-1]
                some = pools.setdefault((c.reranker, c.rewriter), {})
                some.setdefault((*_first_stage(c), k), (c, self.pool(c, k)))
        for (name, rewriter), found in pools.items():
            runs = [run for _, run in found.values()]
            questions = self.questions(next(c for c, _ in found.values()))
            pairs = pl.concat([run.to_frame().select("query", "doc") for run in runs])
            with self.progress(f"reranking with {name}", pairs.n_unique()) as tell:
                chosen = self.settings.rerankers[name]
                self._scores[name, rewriter] = self.shop.scores(chosen, runs, questions, tell)

    def notes(self, by_search: Container[str] = ()) -> list[str]:
        """What to know of tokens, of searches where they are paid, and of engines; `rerank` comes
        first."""
        unsaid = [
            f"{name} does not say how many searches it bills: one for {SEARCH} candidates is taken"
            for (name, _), scores in self._scores.items()
            if name in by_search
            and ("searches" not in scores.columns or scores["searches"].null_count())
        ]
        estimated = [
            _UNCOUNTED.format(name)
            for (name, _), scores in self._scores.items()
            if scores["estimated"].any()
        ]
        guessed = [_UNCOUNTED.format(name) for name in self._guessed]
        return [*dict.fromkeys([*unsaid, *estimated, *guessed]), *self._notes_of_engines()]

    def _notes_of_engines(self) -> Iterator[str]:
        deepest = {c.retriever: c for c in self.grid if c.retriever is not None}
        for name, c in deepest.items():
            assert name is not None
            yield from getattr(self.shop.retriever(self.settings.retrievers[name]), "notes", [])
            found = self.found(c, self.depths(c)[-1])
            if found.dtype == RANKS:
                yield f"{name} gives no scores: its order is taken as it is, ties cannot be seen"
            if silent := int((np.diff(found.start) == 0).sum()):
                yield (
                    f"{name} returns nothing for {silent} of {plural(len(self.asked), 'question')}"
                )

    def judged_ranked(self, c: Configuration) -> Ranked:
        """The same as it is judged: of a corpus that was cut, by the spans that chunks hold."""
        found = self.ranked(c)
        if self.cut is None:
            return found
        key = ("judged", c if c.pool == DYNAMIC else c.ranks)
        if key not in self._made:
            pool, final = (self.cut.credited(run) for run in (found.pool, found.final))
            self._made[key] = replace(found, pool=pool, final=final)
        made: Ranked = self._made[key]
        return made

    def ranked(self, c: Configuration) -> Ranked:
        """What a configuration returns; `rerank` comes first."""
        key = ("ranked", c if c.pool == DYNAMIC else c.ranks)
        if key not in self._made:
            self._made[key] = self._ranked(c)
        made: Ranked = self._made[key]
        return made

    def _ranked(self, c: Configuration) -> Ranked:
        if c.pool == DYNAMIC:
            return self._dynamic(c)
        pool = self.pool(c, c.pool)
        searches = self._searches(c, pool)
        return Ranked(pool, self._order(c, pool), self._tokens(c, pool), None, searches=searches)

    def stages(self, c: Configuration) -> int:
        """How many things are done for a query: the fewer, the simpler."""
        lists = {"hybrid": 4, "dense": 2}.get(c.mode, 1)  # embed, search; look up; fuse
        return lists + sum(part != NONE for part in (c.rewriter, c.duplicates, c.reranker))

    def memory(self, c: Configuration) -> int:
        """Bytes of the indexes that it needs, and of what its reranker keeps of passages."""
        held = sum(int(getattr(index, "bytes", 0)) for index in self.indexes(c))
        chosen: Any = self.settings.rerankers[c.reranker]
        if not getattr(chosen, "keeps", False):
            return held
        (kept,) = self.shop.cache.get_many("memory", "reranker", [digest(identity(chosen))])
        each = 0.0 if kept is None else float(kept)
        return held + min(round(each * len(self.shop.passages)), int(chosen.memory_mb) << 20)

    def remember_memory(self) -> None:
        """What rerankers that keep passages in memory take for one: known once they were timed."""
        for chosen in self.settings.rerankers.values():
            if not getattr(chosen, "keeps", False):
                continue
            key = digest(identity(chosen))
            (known,) = self.shop.cache.get_many("memory", "reranker", [key])
            if known is None and (each := self.shop.reranker(chosen).bytes_each) is not None:  # type: ignore[attr-defined]
                self.shop.cache.put_many("memory", "reranker", {key: repr(each).encode()})

    def rewrite_tokens(self, c: Configuration) -> tuple[float, float]:
        """Tokens that a model reads and writes to rewrite a question, on average; a quarter of the
        bytes where the server does not count."""
        rewrite = self.shop.rewriting(self.settings.rewriters[c.rewriter])
        read = written = 0.0
        for text in self.asked.texts:
            made = rewrite(text)
            guess = (estimate_tokens("".join(prompt("en", text))), estimate_tokens(made.text))
            some = guess if made.tokens is None else made.tokens
            if made.tokens is None:
                self._guessed[c.rewriter] = None
            read, written = read + some[0], written + some[1]
        return read / len(self.asked), written / len(self.asked)

    def embed_tokens(self, c: Configuration, chosen: Any) -> tuple[float, float]:
        """Tokens that an embedder reads of a question and of a passage, on average."""
        embedder: Any = self.shop.embedder(chosen)
        sides = ((self.questions(c), "query"), (self.shop.passages, "passage"))
        found = []
        for texts, role in sides:
            said = [None] * len(texts)
            if hasattr(embedder, "tokens_of"):
                said = embedder.tokens_of(texts.texts, role)
            if None in said:
                self._guessed[str(c.embedder or c.retriever)] = None
            pairs = zip(said, texts.texts, strict=True)
            found.append(
                math.fsum(estimate_tokens(t) if s is None else s for s, t in pairs) / len(texts)
            )
        return found[0], found[1]

    def _order(self, c: Configuration, pool: Run) -> Run:
        if c.reranker == NONE:
            return pool
        scores = self._scores[c.reranker, c.rewriter]
        dtype = scores["dtype"][0] if scores.height else "float64"
        found = rescore(pool, scores.select("query", "doc", "score"), dtype)
        share = self.settings.blends.get(c.reranker, 0.0)
        return found if share == 0 else blended(pool, found, share)

    def _tokens(self, c: Configuration, pool: Run) -> float:
        return float(self._read(c, pool).mean())

    def _read(self, c: Configuration, pool: Run) -> Float:
        """(Q,) tokens that the reranker reads of each question's candidates."""
        if c.reranker == NONE:
            return np.zeros(len(self.asked))
        pairs = pool.to_frame().select("query", "doc")
        read = pairs.join(self._scores[c.reranker, c.rewriter], on=["query", "doc"])
        sums = read.group_by("query").agg(pl.col("tokens").sum())
        asked = pl.DataFrame({"query": self.asked.ids}, schema={"query": pl.String})
        return (
            asked.join(sums, on="query", how="left", maintain_order="left")["tokens"]
            .fill_null(0.0)
            .to_numpy()
        )

    def _searches(self, c: Configuration, pool: Run) -> float:
        """Σ over queries of ⌈candidates · the least share of a search billed for one⌉, on average:
        part of one is paid whole, and what another configuration had asked before would not have
        been asked for alone.

        Where the server does not say, one search takes a hundred candidates.
        """
        if c.reranker == NONE:
            return 0.0
        pairs = pool.to_frame().select("query", "doc")
        scores = self._scores[c.reranker, c.rewriter]
        if "searches" not in scores.columns:  # kept from before they were counted
            scores = scores.with_columns(searches=pl.lit(None, pl.Float64))
        billed = (
            pairs.join(scores, on=["query", "doc"])
            .group_by("query")
            .agg(searches=(pl.len() * pl.col("searches").fill_null(1 / SEARCH).min() - 1e-9).ceil())
        )
        return float(billed["searches"].sum()) / len(self.asked)

    def _dynamic(self, c: Configuration) -> Ranked:
        """Deep where the reranker doubts what it sees of the first candidates; how much doubt that
        takes is learned on pilot queries, and what it saves and loses is told of the others."""
        settings = self.settings.depth
        deep_pool = self.pool(c, settings.deep)
        shallow = self._order(c, keep_first(deep_pool, settings.start))
        whole = self._order(c, deep_pool)
        rows = _rows_by_query(shallow, pl.Series(self.asked.ids, dtype=pl.String))
        doubts = np.array([doubt(scores) if len(scores) else 0.0 for scores in rows])
        gained = self._quality(c, whole) - self._quality(c, shallow)
        count = min(settings.pilot, len(self.asked) // 2)
        pilot = np.zeros(len(self.asked), np.bool_)
        pilot[first_of_permutation(len(self.asked), count, self.settings.seed)] = True
        deep = doubts > learn_threshold(doubts[pilot], gained[pilot], settings.lose)
        by_query = dict(zip(self.asked.ids, deep.tolist(), strict=True))
        k = [settings.deep if by_query[q] else settings.start for q in deep_pool.queries]
        pool = keep_first(deep_pool, np.array(k, np.int64))
        read, most = self._read(c, pool)[~pilot].sum(), self._read(c, deep_pool)[~pilot].sum()
        lost = np.where(deep, 0.0, gained)[~pilot]
        return Ranked(
            pool,
            self._order(c, pool),
            self._tokens(c, pool),
            deep,
            float(1.0 - read / most) if most else None,
            float(np.nanmean(lost)) if (~np.isnan(lost)).any() else None,
            self._searches(c, pool),
        )

    def _quality(self, c: Configuration, run: Run) -> Float:
        """(Q,) what the sweep chooses by, of each question; NaN where it is undefined."""
        assert self.qrels is not None
        measure = self.settings.quality(c)
        run = run if self.cut is None else self.cut.credited(run)
        found = evaluate_tables(run, self.qrels, [measure], Policy())
        table = pl.DataFrame({"query": found.queries, "value": found.outcomes[measure].in_mean()})
        asked = pl.DataFrame({"query": self.asked.ids}, schema={"query": pl.String})
        joined = asked.join(table, on="query", how="left", maintain_order="left")
        return joined["value"].fill_null(math.nan).to_numpy()


def _first_stage(c: Configuration) -> tuple[Any, ...]:
    """What decides the candidates of a configuration, but for how many."""
    dense = (c.embedder, c.dimensions, c.index)
    return (c.mode, *dense, c.retriever, c.rewriter, c.fusion, c.duplicates)


def blended(pool: Run, reranked: Run, share: float) -> Run:
    """Both orders of the same candidates: a sum of min-max normalised scores."""
    both = combine([pool, reranked], method="weighted", weights=[share, 1.0 - share])
    return replace(both, cut=None if pool.cut is None else _align(pool, both))


def _align(pool: Run, other: Run) -> Int:
    """What the pool's lists leave out, in the order of another run's queries."""
    assert pool.cut is not None
    cut = dict(zip(pool.queries, pool.cut.tolist(), strict=True))
    return np.array([cut[query] for query in other.queries], np.int64)


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
