"""From components to runs: what each configuration of a grid ranks.

Configurations share most of their work. A stack makes each list, pool and score once, upon a
workshop that keeps vectors and scores on disk, and hands out the run of any configuration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import polars as pl

from rankproof.data.hits import RANKS
from rankproof.data.tables import Qrels, Run
from rankproof.evaluation import Policy, evaluate_tables
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.manifest import digest
from rankproof.foundation.phrasing import plural
from rankproof.foundation.progress import progress
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

_T = TypeVar("_T")
CANDIDATES_PER_SEARCH = 100  # that one billed search usually covers
_UNCOUNTED = "{} does not say how many tokens it read: a quarter of the bytes is taken"


@dataclass(frozen=True, slots=True)
class Ranked:
    """The candidates of a configuration, and the order it gives them."""

    pool: Run
    final: Run
    tokens: float  # that the reranker reads per query, on average
    deep: Bool | None  # (Q,) of a dynamic pool: the queries that went deep
    tokens_saved: float | None = None  # of a dynamic pool: share of the tokens of all deep
    quality_lost: float | None = None  # against all deep; both on queries outside the pilot
    searches: float = 0.0  # billed per query, on average


class Stack:
    """Every configuration of a grid under one chunking, upon one workshop."""

    def __init__(
        self,
        shop: Workshop,
        settings: SweepSettings,
        questions: Texts,
        grid: Sequence[Configuration],
        qrels: Qrels | None = None,
        cut: Cut | None = None,
    ):
        """`qrels` teach dynamic pools how deep to go; `cut` maps chunks to judged spans."""
        self.shop = shop
        self.settings = settings
        self.typed_questions = questions  # before any rewriting
        self.grid = list(grid)
        self.qrels, self.cut = qrels, cut
        self._scores: dict[tuple[str, str], pl.DataFrame] = {}  # by reranker and rewriter
        self._made: dict[tuple[Any, ...], Any] = {}  # pools and rankings, see `_once`
        self._estimated: dict[str, None] = {}  # components that do not count their tokens

    @property
    def judgments(self) -> Qrels:
        """The judgments; a stack without them cannot be evaluated."""
        assert self.qrels is not None
        return self.qrels

    def judge_by(self, qrels: Qrels, cut: Cut | None) -> None:
        """Replace the judgments; runs credited by the old ones are forgotten."""
        self.qrels, self.cut = qrels, cut
        self._made = {key: made for key, made in self._made.items() if key[0] != "judged"}

    # -------------------------------------------------------------------- questions, vectors

    def questions(self, c: Configuration) -> Texts:
        """Return the questions as a configuration searches them."""
        return self.shop.rewrite_all(self.settings.rewriters[c.rewriter], self.typed_questions)

    def rewrite(self) -> None:
        """Rewrite all questions with every rewriter."""
        rewriters = [chosen for chosen in self.settings.rewriters.values() if chosen is not None]
        if rewriters:
            with progress("rewriting", len(rewriters) * len(self.typed_questions)):
                for chosen in rewriters:
                    self.shop.rewrite_all(chosen, self.typed_questions)

    def rewritten_questions(self) -> pl.DataFrame:
        """rewriter, query, typed, searched, kept; `kept` says why one was not rewritten."""
        questions = self.typed_questions
        rows = []
        for name, chosen in self.settings.rewriters.items():
            if chosen is not None:
                rewrite = self.shop.rewrite_function(chosen)
                for query, typed in zip(questions.ids, questions.texts, strict=True):
                    rewritten = rewrite(typed)
                    rows.append((name, query, typed, rewritten.text, rewritten.kept))
        names = ("rewriter", "query", "typed", "searched", "kept")
        return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")

    def embed(self) -> None:
        """Embed all questions and passages with every embedder."""
        by_pair = {(c.embedder, c.rewriter): c for c in self.grid if c.embedder is not None}
        names = dict.fromkeys(name for name, _ in by_pair)
        total = len(by_pair) * len(self.typed_questions) + len(names) * len(self.shop.passages)
        with progress("embedding", total):
            for (name, _), c in by_pair.items():
                self.shop.vectors(self.settings.embedders[name], self.questions(c))
            for name in names:
                self.shop.vectors(self.settings.embedders[name], self.shop.passages)

    # ---------------------------------------------------------------------------------- pools

    def depths(self, c: Configuration) -> tuple[int, ...]:
        """Return how deep its reranker reads: once, or for a dynamic pool at first and at most."""
        if c.pool == DYNAMIC:
            return self.settings.depth.start, self.settings.depth.deep
        return (c.pool,)

    def list_depth(self, c: Configuration, k: int) -> int:
        """Return how deep the lists behind a pool of k go: removed duplicates have to be filled."""
        depth = k if c.duplicates == NONE else 2 * k
        return depth if c.fusion is None else max(depth, self.settings.fusions[c.fusion].depth)

    def dense_parts(self, c: Configuration) -> tuple[Any, int | None, Any]:
        """Return the settings of embedder, dimensions and index."""
        assert c.embedder is not None
        assert c.index is not None
        return self.settings.embedders[c.embedder], c.dimensions, self.settings.indexes[c.index]

    def dense_list(self, c: Configuration, depth: int) -> Run:
        """Return the first passages by vectors."""
        return self.shop.dense_list(*self.dense_parts(c), self.questions(c), depth)

    def sparse_list(self, c: Configuration, depth: int) -> Run:
        """Return the first passages by words."""
        return self.shop.sparse_list(self.settings.sparse, self.questions(c), depth)

    def first_stage(self, c: Configuration, k: int) -> Run:
        """Return its one list, or both fused, as deep as a pool of k needs."""
        depth = self.list_depth(c, k)
        if c.retriever is not None:
            engine = self.settings.retrievers[c.retriever]
            return self.shop.engine_list(engine, self.questions(c), depth)
        if c.mode == "sparse":
            return self.sparse_list(c, depth)
        if c.mode == "dense":
            return self.dense_list(c, depth)
        return self.fuse(c, self.dense_list(c, depth), self.sparse_list(c, depth))

    def pool(self, c: Configuration, k: int) -> Run:
        """Return the first k candidates that a configuration hands to its reranker."""

        def make() -> Run:
            run = self.first_stage(c, k)
            duplicates = self.settings.duplicates[c.duplicates]
            if duplicates is not None:
                run = self.shop.without_duplicates(run, duplicates)
            return keep_first(run, k)

        return self._once((*_first_stage_key(c), k), make)

    def fuse(self, c: Configuration, dense: Run, sparse: Run) -> Run:
        """Fuse two lists as the configuration says."""
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
        """Return every index that a configuration searches."""
        if c.retriever is not None:
            return [self.shop.retriever(self.settings.retrievers[c.retriever])]
        sparse: list[Any] = [] if c.mode == "dense" else [self.shop.sparse(self.settings.sparse)]
        return sparse if c.mode == "sparse" else [*sparse, self.shop.index(*self.dense_parts(c))]

    # ----------------------------------------------------------------------------------- runs

    def rerank(self) -> None:
        """Score every candidate that any configuration hands to a reranker, each once."""
        pools: dict[tuple[str, str], dict[Any, tuple[Configuration, Run]]] = {}
        for c in self.grid:
            if c.reranker != NONE:
                k = self.depths(c)[-1]
                by_first_stage = pools.setdefault((c.reranker, c.rewriter), {})
                by_first_stage.setdefault((*_first_stage_key(c), k), (c, self.pool(c, k)))
        for (name, rewriter), by_first_stage in pools.items():
            runs = [run for _, run in by_first_stage.values()]
            questions = self.questions(next(c for c, _ in by_first_stage.values()))
            pairs = pl.concat([run.to_frame().select("query", "doc") for run in runs])
            with progress(f"reranking with {name}", pairs.n_unique()):
                self._scores[name, rewriter] = self.shop.scores(
                    self.settings.rerankers[name], runs, questions
                )

    def ranked(self, c: Configuration) -> Ranked:
        """Return what a configuration ranks; call `rerank` first."""
        key = ("ranked", c if c.pool == DYNAMIC else c.ranks)
        return self._once(key, lambda: self._rank(c))

    def judged_ranked(self, c: Configuration) -> Ranked:
        """Return the same as it is judged: after chunking, by the judged spans in its chunks."""
        ranked, cut = self.ranked(c), self.cut
        if cut is None:
            return ranked

        def credit() -> Ranked:
            return replace(ranked, pool=cut.credit(ranked.pool), final=cut.credit(ranked.final))

        return self._once(("judged", c if c.pool == DYNAMIC else c.ranks), credit)

    def _once(self, key: tuple[Any, ...], make: Callable[[], _T]) -> _T:
        """Return what was made under this key, and make it the first time."""
        if key not in self._made:
            self._made[key] = make()
        made: _T = self._made[key]
        return made

    def _rank(self, c: Configuration) -> Ranked:
        if c.pool == DYNAMIC:
            return self._rank_dynamic(c)
        pool = self.pool(c, c.pool)
        tokens = float(self._read_tokens(c, pool).mean())
        return Ranked(pool, self._order(c, pool), tokens, None, searches=self._searches(c, pool))

    def _rank_dynamic(self, c: Configuration) -> Ranked:
        """Go deep where the reranker doubts the first candidates.

        How much doubt that takes is learned on pilot queries; what it saves and loses is measured
        on the others.
        """
        settings = self.settings.depth
        questions = self.typed_questions
        deep_pool = self.pool(c, settings.deep)
        shallow = self._order(c, keep_first(deep_pool, settings.start))
        rows = _scores_by_query(shallow, pl.Series(questions.ids, dtype=pl.String))
        doubts = np.array([doubt(scores) if len(scores) else 0.0 for scores in rows])
        gained = self._quality(c, self._order(c, deep_pool)) - self._quality(c, shallow)
        count = min(settings.pilot, len(questions) // 2)
        pilot = np.zeros(len(questions), np.bool_)
        pilot[first_of_permutation(len(questions), count, self.settings.seed)] = True
        deep = doubts > learn_threshold(doubts[pilot], gained[pilot], settings.lose)
        is_deep = dict(zip(questions.ids, deep.tolist(), strict=True))
        depth = [settings.deep if is_deep[q] else settings.start for q in deep_pool.queries]
        pool = keep_first(deep_pool, np.array(depth, np.int64))
        read, read_all_deep = (self._read_tokens(c, run)[~pilot].sum() for run in (pool, deep_pool))
        lost = np.where(deep, 0.0, gained)[~pilot]
        return Ranked(
            pool=pool,
            final=self._order(c, pool),
            tokens=float(self._read_tokens(c, pool).mean()),
            deep=deep,
            tokens_saved=float(1.0 - read / read_all_deep) if read_all_deep else None,
            quality_lost=float(np.nanmean(lost)) if (~np.isnan(lost)).any() else None,
            searches=self._searches(c, pool),
        )

    def _order(self, c: Configuration, pool: Run) -> Run:
        """Return a pool in the order of the reranker's scores, blended with the first stage's."""
        if c.reranker == NONE:
            return pool
        scores = self._scores[c.reranker, c.rewriter]
        dtype = scores["dtype"][0] if scores.height else "float64"
        reranked = rescore(pool, scores.select("query", "doc", "score"), dtype)
        share = self.settings.blends.get(c.reranker, 0.0)
        return reranked if share == 0 else blend(pool, reranked, share)

    def _quality(self, c: Configuration, run: Run) -> Float:
        """Return (Q,) the measure that the sweep chooses by; NaN where it is undefined."""
        measure = self.settings.quality(c)
        run = run if self.cut is None else self.cut.credit(run)
        evaluation = evaluate_tables(run, self.judgments, [measure], Policy())
        values = evaluation.outcomes[measure].in_mean()
        return self._by_question(
            pl.DataFrame({"query": evaluation.queries, "value": values}), "value", math.nan
        )

    def _by_question(self, frame: pl.DataFrame, column: str, default: float) -> Float:
        """Return (Q,) a column in the order of the questions."""
        queries = pl.DataFrame({"query": self.typed_questions.ids}, schema={"query": pl.String})
        joined = queries.join(frame, on="query", how="left", maintain_order="left")
        return joined[column].fill_null(default).to_numpy()

    # ------------------------------------------------------------------------ what it takes

    def stages(self, c: Configuration) -> int:
        """Return the number of steps per query: the fewer, the simpler."""
        lists = {"hybrid": 4, "dense": 2}.get(c.mode, 1)  # embed, search; look up; fuse
        return lists + sum(part != NONE for part in (c.rewriter, c.duplicates, c.reranker))

    def memory(self, c: Configuration) -> int:
        """Return the bytes of its indexes, and of what its reranker keeps of passages."""
        index_bytes = sum(int(getattr(index, "bytes", 0)) for index in self.indexes(c))
        reranker: Any = self.settings.rerankers[c.reranker]
        if not getattr(reranker, "keeps", False):
            return index_bytes
        (stored,) = self.shop.cache.get_many("memory", "reranker", [digest(identity(reranker))])
        per_passage = 0.0 if stored is None else float(stored)
        kept = round(per_passage * len(self.shop.passages))
        return index_bytes + min(kept, int(reranker.memory_mb) << 20)

    def remember_memory(self) -> None:
        """Store the bytes per passage that rerankers keep; they are known once it was timed."""
        for chosen in self.settings.rerankers.values():
            if not getattr(chosen, "keeps", False):
                continue
            key = digest(identity(chosen))
            (stored,) = self.shop.cache.get_many("memory", "reranker", [key])
            if stored is None:
                reranker: Any = self.shop.reranker(chosen)
                if (size := reranker.bytes_each) is not None:
                    self.shop.cache.put_many("memory", "reranker", {key: repr(size).encode()})

    def rewrite_tokens(self, c: Configuration) -> tuple[float, float]:
        """Return the mean tokens that a model reads and writes to rewrite a question.

        They are a quarter of the bytes where the server does not count.
        """
        rewrite = self.shop.rewrite_function(self.settings.rewriters[c.rewriter])
        read = written = 0.0
        for text in self.typed_questions.texts:
            rewritten = rewrite(text)
            tokens = rewritten.tokens
            if tokens is None:
                self._estimated[c.rewriter] = None
                asked = "".join(prompt("en", text))
                tokens = (estimate_tokens(asked), estimate_tokens(rewritten.text))
            read, written = read + tokens[0], written + tokens[1]
        return read / len(self.typed_questions), written / len(self.typed_questions)

    def embed_tokens(self, c: Configuration, chosen: Any) -> tuple[float, float]:
        """Return the mean tokens that an embedder reads of a question and of a passage."""
        embedder: Any = self.shop.embedder(chosen)
        means = []
        for texts, role in ((self.questions(c), "query"), (self.shop.passages, "passage")):
            counts = [None] * len(texts)
            if hasattr(embedder, "tokens_of"):
                counts = embedder.tokens_of(texts.texts, role)
            if None in counts:
                self._estimated[str(c.embedder or c.retriever)] = None
            tokens = (
                estimate_tokens(text) if count is None else count
                for count, text in zip(counts, texts.texts, strict=True)
            )
            means.append(math.fsum(tokens) / len(texts))
        return means[0], means[1]

    def _read_tokens(self, c: Configuration, pool: Run) -> Float:
        """Return (Q,) the tokens that the reranker reads of each question's candidates."""
        if c.reranker == NONE:
            return np.zeros(len(self.typed_questions))
        pairs = pool.to_frame().select("query", "doc")
        scored = pairs.join(self._scores[c.reranker, c.rewriter], on=["query", "doc"])
        sums = scored.group_by("query").agg(pl.col("tokens").sum())
        return self._by_question(sums, "tokens", 0.0)

    def _searches(self, c: Configuration, pool: Run) -> float:
        """Return the mean of ⌈candidates · smallest share of a search billed for one⌉ per query.

        A part of a search is billed whole. The smallest share counts, because candidates that
        another configuration had scored before would not have been billed alone. Where the server
        does not say, one search covers a hundred candidates.
        """
        if c.reranker == NONE:
            return 0.0
        pairs = pool.to_frame().select("query", "doc")
        scores = self._scores[c.reranker, c.rewriter]
        if "searches" not in scores.columns:  # stored before searches were counted
            scores = scores.with_columns(searches=pl.lit(None, pl.Float64))
        share = pl.col("searches").fill_null(1 / CANDIDATES_PER_SEARCH).min()
        billed = (
            pairs.join(scores, on=["query", "doc"])
            .group_by("query")
            .agg(searches=(pl.len() * share - 1e-9).ceil())
        )
        return float(billed["searches"].sum()) / len(self.typed_questions)

    def notes(self, by_search: Container[str] = ()) -> list[str]:
        """Return notes on uncounted tokens and searches, and on engines; call `rerank` first."""
        uncounted = []
        for (name, _), scores in self._scores.items():
            has_none = "searches" not in scores.columns or scores["searches"].null_count()
            if name in by_search and has_none:
                uncounted.append(
                    f"{name} does not say how many searches it bills: one for "
                    f"{CANDIDATES_PER_SEARCH} candidates is taken"
                )
        rerankers = [name for (name, _), s in self._scores.items() if s["estimated"].any()]
        uncounted += [_UNCOUNTED.format(name) for name in (*rerankers, *self._estimated)]
        return [*dict.fromkeys(uncounted), *self._engine_notes()]

    def _engine_notes(self) -> Iterator[str]:
        deepest = {c.retriever: c for c in self.grid if c.retriever is not None}
        for name, c in deepest.items():
            assert name is not None
            yield from getattr(self.shop.retriever(self.settings.retrievers[name]), "notes", [])
            run = self.first_stage(c, self.depths(c)[-1])
            if run.dtype == RANKS:
                yield (
                    f"retriever {name} returns no scores: its order is used as it is, and ties "
                    "cannot be seen"
                )
            if empty := int((np.diff(run.start) == 0).sum()):
                questions = plural(len(self.typed_questions), "question")
                yield f"retriever {name} returns nothing for {empty} of {questions}"


def _first_stage_key(c: Configuration) -> tuple[Any, ...]:
    """Return what decides the candidates of a configuration, but for their number."""
    dense = (c.embedder, c.dimensions, c.index)
    return (c.mode, *dense, c.retriever, c.rewriter, c.fusion, c.duplicates)


def blend(pool: Run, reranked: Run, share: float) -> Run:
    """Return share · first stage + (1 − share) · reranker, min-max normalized per query."""
    blended = combine([pool, reranked], method="weighted", weights=[share, 1.0 - share])
    if pool.cut is None:
        return replace(blended, cut=None)
    cut = dict(zip(pool.queries, pool.cut.tolist(), strict=True))
    return replace(blended, cut=np.array([cut[query] for query in blended.queries], np.int64))


def _scores_by_query(run: Run, queries: pl.Series) -> list[Float]:
    """Return the scores of each query's list in descending order."""
    row_by_query = {query: row for row, query in enumerate(run.queries)}
    scores: list[Float] = []
    for query in queries:
        row = row_by_query.get(query)
        own: Float = np.zeros(0) if row is None else run.score[run.start[row] : run.start[row + 1]]
        scores.append(-np.sort(-own))
    return scores


def mean_depth(pool: Run, queries: int) -> float:
    """Return the mean number of candidates per query."""
    lengths: Int = np.diff(pool.start)
    return float(lengths.sum()) / queries
