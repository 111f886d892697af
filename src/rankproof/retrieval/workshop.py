"""Embeds, indexes, searches, reranks and rewrites over one corpus, and computes each result once.

    questions ─ rewrite ─▶ vectors ─ index ─▶ lists ─ fuse ─▶ pools ─ rerank ─▶ scores
    passages ────────────▶ vectors ─┘

Every result is stored on disk under a digest of everything that decides it (`identity.py`). So no
command computes it again, and an interrupted run resumes where it stopped. A choice (`chosen`) is
the settings of a component, or an object that satisfies its Protocol.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeVar

import numpy as np
import polars as pl

from rankproof.data.tables import Run, build_run
from rankproof.foundation.config import Settings
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.files import write_atomically
from rankproof.foundation.manifest import digest
from rankproof.foundation.progress import advance
from rankproof.retrieval.cache import Cache, make_cache_folder
from rankproof.retrieval.components import ForeignSettings, make_component, uses_network
from rankproof.retrieval.duplicates import DuplicatesSettings, suppress
from rankproof.retrieval.identity import fingerprint, identity, is_reproducible
from rankproof.retrieval.indexes import make_index
from rankproof.retrieval.model_calls import unit_vectors
from rankproof.retrieval.protocols import (
    Embedder,
    Index,
    Reranker,
    Retriever,
    Rewritten,
    Scored,
    Vectors,
)
from rankproof.retrieval.ranked_lists import has_rising_scores, keep_first

T = TypeVar("T")
ReportProgress = Callable[[float], None]  # called with the number of texts done
EngineKind = Literal["sparse", "retriever"]
PART = 1024  # texts embedded between two writes


class SwitchableCache(Cache):
    """A cache that can be switched off while calls are timed.

    Without reading every call is made again; without writing its time does not include the disk's.
    """

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.is_readable = self.is_writable = True

    def get_many(self, fingerprint: str, role: str, texts: Sequence[str]) -> list[bytes | None]:
        if self.is_readable:
            return super().get_many(fingerprint, role, texts)
        return [None] * len(texts)

    def put_many(self, fingerprint: str, role: str, values: Mapping[str, bytes]) -> None:
        if self.is_writable:
            super().put_many(fingerprint, role, values)


class Texts:
    """Texts with their ids, identified by a digest of all of them."""

    def __init__(self, ids: Sequence[str], texts: Sequence[str]):
        self.ids, self.texts = list(ids), list(texts)

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def digest(self) -> str:
        return digest([self.ids, self.texts])

    @cached_property
    def by_id(self) -> Mapping[str, str]:
        return dict(zip(self.ids, self.texts, strict=True))


class Workshop:
    """Embedders, vectors, indexes, lists and scores over one corpus, stored in a folder."""

    def __init__(self, passages: Texts, folder: Path | None = None):
        self.passages = passages
        self.folder = folder or make_cache_folder()
        self.cache = SwitchableCache(self.folder)
        self.seconds_spent = 0.0  # inside embedders, indexes and rerankers
        self._results: dict[tuple[str, str], Any] = {}  # in memory, by kind and digest
        # Of each file of vectors: embedder, its token limit, texts that exceed it.
        self._truncated: dict[str, tuple[str, int, int]] = {}

    def notes(self) -> list[str]:
        """Return one note for each embedder that truncated passages."""
        counts: dict[tuple[str, int], int] = {}
        for name, limit, count in self._truncated.values():
            counts[name, limit] = counts.get((name, limit), 0) + count
        return [
            f"{name} reads {limit} tokens of a passage: {count:,} are longer, and what follows is "
            "not seen"
            for (name, limit), count in counts.items()
        ]

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        self.cache.close()
        self._scratch.cleanup()

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the time of the block to `seconds_spent`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds_spent += time.perf_counter() - start

    # ----------------------------------------------------- results in memory and on disk

    def _once(self, kind: str, decides: Any, make: Callable[[], T]) -> T:
        """Return the result that these values decide; `make` it the first time."""
        key = (kind, digest(decides))
        if key not in self._results:
            self._results[key] = make()
        result: T = self._results[key]
        return result

    def _make(self, kind: Any, chosen: Any) -> Any:
        """Make an embedder, reranker or rewriter once; models are loaded, servers not called."""

        def make() -> Any:
            with self.timed():
                return make_component(kind, chosen, cache=self.cache)

        return self._once(kind, identity(chosen), make)

    @cached_property
    def _scratch(self) -> TemporaryDirectory[str]:
        """Temporary folder for results of objects without a fingerprint, which are not reused."""
        return TemporaryDirectory(prefix="rankproof-")

    def _file(self, kind: str, decides: Any, ending: str) -> Path:
        """Return the file of the result that these values decide."""
        folder = self.folder if is_reproducible(decides) else Path(self._scratch.name)
        return folder / kind / f"{digest(decides)[:32]}{ending}"

    def _read_or_make(
        self, file: Path, read: Callable[[Path], T], write: Callable[[], object]
    ) -> T:
        """Return the content of a file; `write` it first if it is absent or damaged."""
        if file.is_file():
            try:
                return read(file)
            except (pl.exceptions.PolarsError, OSError, ValueError, EOFError):
                pass  # damaged by a power cut, say
        write()
        return read(file)

    # ------------------------------------------------------------------------------ questions

    def rewriter(self, chosen: Any) -> Any:
        return self._make("rewriter", chosen)

    def rewrite_function(self, chosen: Any) -> Callable[[str], Rewritten]:
        """Return the function that rewrites a question; replies of servers are cached."""
        if chosen is None:
            return Rewritten
        rewriter = self.rewriter(chosen)

        def rewrite(question: str) -> Rewritten:
            if not hasattr(rewriter, "rewritten"):
                return Rewritten(str(rewriter.rewrite(question)))
            rewritten: Rewritten = rewriter.rewritten(question)
            return rewritten

        if not uses_network(chosen):
            return rewrite
        key = ("rewriting", fingerprint(chosen))

        def rewrite_cached(question: str) -> Rewritten:
            """Rewrite a question, unless its rewriting is cached."""
            (entry,) = self.cache.get_many(*key, [question])
            if entry is None:
                rewritten = rewrite(question)
                # The third value was the refused reply, which is no longer stored.
                values = [rewritten.text, rewritten.kept, None, rewritten.tokens]
                entry = json.dumps(values).encode()
                self.cache.put_many(*key, {question: entry})
            text, kept, _, tokens = (*json.loads(entry), None, None)[:4]  # old entries have fewer
            return Rewritten(text, kept, tokens=tuple(tokens) if tokens else None)

        return rewrite_cached

    def rewrite_all(self, chosen: Any, questions: Texts) -> Texts:
        """Return all questions as they are searched: rewritten, if a rewriter was chosen."""
        if chosen is None:
            return questions

        def make() -> Texts:
            texts, rewrite = [], self.rewrite_function(chosen)
            for question in questions.texts:
                with self.timed():
                    texts.append(rewrite(question).text)
                advance()
            return Texts(questions.ids, texts)

        return self._once("rewritten", [identity(chosen), questions.digest], make)

    # -------------------------------------------------------------------------------- vectors

    def embedder(self, chosen: Any) -> Embedder:
        embedder: Embedder = self._make("embedder", chosen)
        return embedder

    def vectors(self, chosen: Any, texts: Texts, report: ReportProgress = advance) -> Vectors:
        """Return vectors (n, D) of the passages or of questions, stored part by part."""
        role = "passages" if texts is self.passages else "queries"
        key = [identity(chosen), role, texts.digest]
        return self._once("vectors", key, lambda: self._embed(chosen, role, texts.texts, report))

    def _embed(
        self, chosen: Any, role: str, texts: Sequence[str], report: ReportProgress
    ) -> Vectors:
        """Return vectors of texts, read from stored parts or computed and stored."""
        parts = []
        for first in range(0, len(texts), PART):
            batch = texts[first : first + PART]
            file = self._file("vectors", [identity(chosen), role, batch], ".npy")
            write = partial(self._write_vectors, chosen, role, batch, file)
            parts.append(self._read_or_make(file, _load, write))
            (truncated,) = self.cache.get_many("cut", role, [file.stem])
            if truncated is not None:
                self._truncated[file.stem] = json.loads(truncated)
            report(len(batch))
        if not parts:
            raise InputError("there is nothing to embed", remedy="give one text or more")
        return np.concatenate(parts)

    def _write_vectors(self, chosen: Any, role: str, texts: Sequence[str], file: Path) -> None:
        """Embed texts and store their vectors, and the number of texts that were truncated."""
        embedder = self.embedder(chosen)
        truncated_before = getattr(embedder, "cut", 0)
        embed = embedder.embed_passages if role == "passages" else embedder.embed_queries
        with self.timed():
            embedded = embed(texts)
        vectors = check_embedded(embedded, len(texts), embedder.name)
        if not isinstance(chosen, Settings) or isinstance(chosen, ForeignSettings):
            vectors = unit_vectors(vectors)  # embedders of rankproof return unit vectors
        write_atomically(file, partial(_save, vectors))
        if truncated := getattr(embedder, "cut", 0) - truncated_before:
            entry = json.dumps([embedder.name, getattr(embedder, "reads", None), truncated])
            self.cache.put_many("cut", role, {file.stem: entry.encode()})

    def truncated_vectors(self, chosen: Any, size: int | None, texts: Texts) -> Vectors:
        """Return the first `size` dimensions of each vector, scaled to length 1 again."""
        vectors = self.vectors(chosen, texts)
        if size is None or size == vectors.shape[1]:
            return vectors
        if size > vectors.shape[1]:
            raise InputError(
                f"dimensions: {size} where the embedder {self.embedder(chosen).name} has "
                f"{vectors.shape[1]}",
                remedy="ask for as many as it has, or fewer",
            )
        role = "passages" if texts is self.passages else texts.digest
        return self._once(
            "shortened", [identity(chosen), size, role], lambda: unit_vectors(vectors[:, :size])
        )

    # -------------------------------------------------------------------------------- indexes

    def index(self, embedder: Any, size: int | None, index: Any) -> Index:
        """Return the index of the passages' vectors."""

        def make() -> Index:
            vectors = self.truncated_vectors(embedder, size, self.passages)
            with self.timed():
                return make_index(index, vectors, self.passages.ids, folder=self.folder / "indexes")

        key = [identity(embedder), size, identity(index), self.passages.digest]
        return self._once("index", key, make)

    def sparse(self, chosen: Any) -> Retriever:
        return self._engine("sparse", chosen)

    def retriever(self, chosen: Any) -> Retriever:
        return self._engine("retriever", chosen)

    def _engine(self, kind: EngineKind, chosen: Any) -> Retriever:
        """Return a sparse index, or a whole search engine, over the passages."""
        decides = [identity(chosen), self.passages.digest]
        name = str(getattr(chosen, "type", kind)).replace(":", ".")

        def make() -> Retriever:
            with self.timed():
                engine: Retriever = make_component(
                    kind,
                    chosen,
                    self.passages.texts,
                    self.passages.ids,
                    folder=self._file(name, decides, ""),
                    cache=self.cache,
                    vectors=lambda embedder: self.vectors(embedder, self.passages),
                    embedder=self.embedder,
                )
            return engine

        return self._once(kind, decides, make)

    # ---------------------------------------------------------------------------------- lists

    def dense_list(
        self, embedder: Any, size: int | None, index: Any, questions: Texts, depth: int
    ) -> Run:
        """Return the lists that an index finds for the questions' vectors."""

        def search() -> Run:
            queries = self.truncated_vectors(embedder, size, questions)
            built_index = self.index(embedder, size, index)
            with self.timed():
                return built_index.search(queries, depth, questions.ids).run

        decides = [size, depth, identity(embedder), identity(index)]
        return self._list(decides, questions, search)

    def sparse_list(self, chosen: Any, questions: Texts, depth: int) -> Run:
        """Return the lists that a sparse index finds for the questions' words."""
        return self._engine_list("sparse", chosen, questions, depth)

    def engine_list(self, chosen: Any, questions: Texts, depth: int) -> Run:
        """Return the lists that a whole search engine finds for the questions."""
        return self._engine_list("retriever", chosen, questions, depth)

    def _engine_list(self, kind: EngineKind, chosen: Any, questions: Texts, depth: int) -> Run:
        """Return an engine's lists; refuse unknown passages, and distances instead of scores."""

        def search() -> Run:
            engine = self._engine(kind, chosen)
            with self.timed():
                run = engine.search(questions.texts, depth, questions.ids).run
            place = f"the {kind} {getattr(engine, 'name', '')}".strip()
            if len(run) and len(self.passages) and not run.doc.is_in(self.passages.ids).any():
                raise InputError(
                    f"returns no passage of the corpus ({shorten(run.doc[0])}, …)",
                    place=place,
                    remedy="have it return the ids that corpus.jsonl has",
                )
            if has_rising_scores(run):
                raise InputError(
                    "the scores rise from the first hit to the last in every list",
                    place=place,
                    remedy="return similarities, of which more is better: minus a distance, say",
                )
            return run

        return self._list([kind, depth, identity(chosen)], questions, search)

    def _list(self, decides: Any, questions: Texts, search: Callable[[], Run]) -> Run:
        """Return the lists that these values decide, read from disk or searched and stored."""
        key = [self.passages.digest, questions.digest, decides]

        def read_or_search() -> Run:
            file = self._file("lists", key, ".parquet")
            read = partial(read_list, query_ids=questions.ids)
            return self._read_or_make(file, read, lambda: write_run(search(), file))

        return self._once("list", key, read_or_search)

    def without_duplicates(self, run: Run, settings: DuplicatesSettings) -> Run:
        """Drop the passages of each list that nearly repeat a better one."""
        ranked = keep_first(run, int(np.diff(run.start).max(initial=0)))  # sorted, best first
        ids = ranked.doc.to_list()
        kept_rows = []
        for first, end in zip(ranked.start[:-1], ranked.start[1:], strict=True):
            texts = [self.passages.by_id.get(doc, "") for doc in ids[first:end]]
            kept_rows.append(first + suppress(ids[first:end], texts, settings).kept)
        rows = np.concatenate([*kept_rows, np.zeros(0, np.int64)]).astype(np.int64)
        query = np.searchsorted(ranked.start, rows, side="right") - 1
        return build_run(
            run.name,
            ranked.queries,
            query.astype(np.int32),
            ranked.doc.gather(rows),
            ranked.score[rows],
            ranked.dtype,
            ranked.cut,
        )

    # ------------------------------------------------------------------------------ reranking

    def reranker(self, chosen: Any) -> Reranker:
        reranker: Reranker = self._make("reranker", chosen)
        return reranker

    def text(self, document: str) -> str:
        """Return the text of a passage; refuse one that is not in the corpus."""
        try:
            return self.passages.by_id[document]
        except KeyError:
            raise InputError(
                f"passage {shorten(document)} was found and is not in the corpus",
                remedy="rerank what was retrieved from this corpus",
            ) from None

    def scores(self, chosen: Any, pools: Sequence[Run], questions: Texts) -> pl.DataFrame:
        """Return the scores of all candidates of the pools, each scored once.

        Columns: query, doc, score, tokens, searches (null where the server does not say), estimated
        (true if the tokens are estimates), dtype.
        """
        pairs = pl.concat([pool.to_frame().select("query", "doc") for pool in pools])
        pairs = pairs.unique(maintain_order=True)
        decides = [identity(chosen), questions.digest, self.passages.digest, pairs.rows()]
        file = self._file("scores", decides, ".parquet")

        def write() -> None:
            write_atomically(file, self._score(chosen, pairs, questions).write_parquet)

        return self._read_or_make(file, pl.read_parquet, write)

    def _score(self, chosen: Any, pairs: pl.DataFrame, questions: Texts) -> pl.DataFrame:
        """Return `scores` of pairs (query, doc), computed by the reranker query by query."""
        reranker = self.reranker(chosen)
        frames = [
            pairs.clear().with_columns(
                score=pl.lit(0.0),
                tokens=pl.lit(0.0),
                searches=pl.lit(None, pl.Float64),
                estimated=pl.lit(False),
                dtype=pl.lit("float64"),
            )
        ]
        for (query,), candidates in pairs.group_by("query", maintain_order=True):
            passages = [self.text(doc) for doc in candidates["doc"]]
            estimated_before = getattr(reranker, "estimated", 0)
            with self.timed():
                scored = reranker.score(questions.by_id[str(query)], passages)
            frames.append(
                candidates.with_columns(
                    pl.Series("score", scored.score, dtype=pl.Float64),
                    pl.lit(scored.tokens / len(passages)).alias("tokens"),
                    pl.lit(_search_share(scored, len(passages)), pl.Float64).alias("searches"),
                    pl.lit(getattr(reranker, "estimated", 0) > estimated_before).alias("estimated"),
                    pl.lit(scored.dtype).alias("dtype"),
                )
            )
            advance(len(passages))
        return pl.concat(frames)

    def logits(
        self,
        chosen: Any,
        pairs: pl.DataFrame,
        questions: Texts,
        report: ReportProgress = advance,
    ) -> Vectors:
        """Return outputs (N, 1 or 2) of a cross-encoder for pairs, before any activation.

        `pairs` has the columns query and doc; the outputs are stored part by part.
        """
        parts = []
        for first in range(0, pairs.height, PART):
            rows = pairs[first : first + PART].select("query", "doc").rows()
            texts = [(questions.by_id[query], self.text(doc)) for query, doc in rows]
            file = self._file("logits", [identity(chosen), texts], ".npy")
            parts.append(
                self._read_or_make(file, _load, partial(self._write_logits, chosen, texts, file))
            )
            report(len(texts))
        return np.concatenate(parts)

    def _write_logits(self, chosen: Any, pairs: Sequence[tuple[str, str]], file: Path) -> None:
        """Compute the outputs of a cross-encoder for pairs of texts, and store them."""
        reranker: Any = self.reranker(chosen)
        with self.timed():
            logits = reranker.logits(pairs)
        write_atomically(file, partial(_save, logits))


def check_rows(values: Any, dtype: Any, count: int, name: str) -> Any:
    """Return an embedder's output for `count` texts as an array (count, D); refuse other shapes."""
    try:
        vectors = np.asarray(values, dtype)
        problem = f"{shorten(vectors.shape)} is not a vector for each of {count} texts"
        is_valid = vectors.ndim == 2 and len(vectors) == count and vectors.shape[1] > 0
    except (TypeError, ValueError) as error:
        message = " ".join(str(error).split())[:100]
        problem, is_valid = f"no numbers, or rows of several lengths ({message})", False
    if not is_valid:
        raise InputError(problem, place=name, remedy="return (texts, dimensions)")
    return vectors


def check_embedded(values: Any, count: int, name: str) -> Vectors:
    """Return an embedder's output as finite float32 vectors, one for each of `count` texts."""
    vectors: Vectors = check_rows(values, np.float32, count, name)
    if not np.isfinite(vectors).all():
        raise InputError("a vector holds NaN or infinity", place=name, remedy="check the embedder")
    return vectors


def _search_share(scored: Scored, passages: int) -> float | None:
    """Return the share of a billed search that one passage costs, None if it is unknown.

    `share` is that of the largest request, which is the smallest: a request for the few passages
    that the cache lacks costs more per passage. A user's own reranker may have neither attribute.
    """
    billed: float | None = getattr(scored, "searches", None)
    smallest_share: float | None = getattr(scored, "share", None)
    if billed is None:
        return None
    return billed / passages if smallest_share is None else smallest_share


def _load(path: Path) -> Vectors:
    vectors: Vectors = np.load(path, allow_pickle=False)
    return vectors


def _save(vectors: Vectors, path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, vectors)


def write_run(run: Run, file: Path) -> None:
    """Write a run as Parquet, with its score format and the ties cut from each list, if known."""
    cut = pl.lit(None, pl.Int64)
    if run.cut is not None:
        cut = pl.lit(pl.Series(np.repeat(run.cut, np.diff(run.start))))
    frame = run.to_frame().with_columns(cut.alias("cut"), pl.lit(run.dtype).alias("dtype"))
    write_atomically(file, frame.write_parquet)


def read_list(file: Path, query_ids: Sequence[str]) -> Run:
    """Read a run written by `write_run`; queries that it does not contain get an empty list."""
    frame = pl.read_parquet(file)
    queries = pl.Series("query", query_ids, dtype=pl.String)
    numbers = pl.DataFrame({"query": queries, "number": np.arange(len(queries), dtype=np.int32)})
    numbered = frame.join(numbers, on="query", how="left", maintain_order="left")
    codes = numbered["number"].to_numpy()
    cut = np.zeros(len(queries), np.int64)
    is_known = frame["cut"].null_count() == 0
    if is_known:
        cut[codes] = frame["cut"].to_numpy()
    return build_run(
        file.stem,
        queries,
        codes,
        frame["doc"],
        frame["score"].to_numpy(),
        frame["dtype"][0] if frame.height else "float64",
        cut if is_known else None,
    )
