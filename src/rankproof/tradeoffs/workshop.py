"""The parts of a sweep, each made once and kept on disk under a digest of what decides it.

A part that is there is never made again: configurations share it, and a sweep that was killed goes
on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from rankproof.config import Settings
from rankproof.errors import InputError
from rankproof.files import write_whole
from rankproof.manifest import digest
from rankproof.records.beir import Corpus
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.duplicates import suppress
from rankproof.retrieval.embedders import make_embedder
from rankproof.retrieval.fusion import combine, rrf
from rankproof.retrieval.indexes import make_index
from rankproof.retrieval.models import digest_folder
from rankproof.retrieval.pools import head
from rankproof.retrieval.protocols import Embedder, Index, Reranker, Vectors
from rankproof.retrieval.rerankers import make_reranker
from rankproof.retrieval.rewriting import make_rewriter
from rankproof.retrieval.settings import OPERATION, Endpoint
from rankproof.retrieval.sparse import Bm25
from rankproof.tables import Run, build_run
from rankproof.tradeoffs.plan import Configuration, SweepSettings

T = TypeVar("T")
Tell = Callable[[float], None]
_PART = 1024  # passages embedded between two writes

Dense = tuple[str, int | None, str]  # embedder, dimensions, index


class Recorder(Cache):
    """A cache that can be told not to recall, so that calls can be timed, and not to keep: the
    time of a local call is not that of writing to a disk."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.recalls = self.keeps = True

    def get_many(self, fingerprint: str, role: str, texts: Sequence[str]) -> list[bytes | None]:
        if self.recalls:
            return super().get_many(fingerprint, role, texts)
        return [None] * len(texts)

    def put_many(self, fingerprint: str, role: str, values: Mapping[str, bytes]) -> None:
        if self.keeps:
            super().put_many(fingerprint, role, values)


class Workshop:
    """Embedders, vectors, indexes, lists and scores of one sweep."""

    def __init__(self, settings: SweepSettings, corpus: Corpus, asked: Sequence[int], folder: Path):
        self.settings = settings
        self.corpus = corpus
        self.query_ids = [corpus.query_ids[at] for at in asked]
        self.questions = [corpus.queries[at] for at in asked]
        self.folder = folder
        self.cache = Recorder(folder)
        self.spent = 0.0  # seconds inside embedders, indexes and rerankers
        self._made: dict[Any, Any] = {}

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        self.cache.close()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Time that is the parts' own."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.spent += time.perf_counter() - begun

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def decides(self, part: Settings) -> dict[str, Any]:
        """All that decides what a part returns: its settings, and a model's files in a folder."""
        said = part.model_dump(exclude=set(OPERATION))
        if "model" in said and not isinstance(part, Endpoint):
            model = said["model"]
            said["files"] = self._once(("files", model), lambda: digest_folder(model))
        return said

    def _file(self, kind: str, decides: Any, ending: str) -> Path:
        return self.folder / kind / f"{digest(decides)[:32]}{ending}"

    def _kept(self, file: Path, read: Callable[[Path], T], make: Callable[[], object]) -> T:
        """What a file holds; `make` writes it where it is absent, or damaged by a power cut."""
        if file.is_file():
            try:
                return read(file)
            except (pl.exceptions.PolarsError, OSError, ValueError, EOFError):
                pass
        make()
        return read(file)

    # ------------------------------------------------------------------------------ questions

    @cached_property
    def corpus_digest(self) -> str:
        return digest([self.corpus.document_ids, self.corpus.documents])

    @cached_property
    def asked_digest(self) -> str:
        return digest([self.query_ids, self.texts])

    @cached_property
    def rewriter(self) -> Any:
        return None if self.settings.rewriter is None else make_rewriter(self.settings.rewriter)

    @cached_property
    def texts(self) -> list[str]:
        """The questions as they are searched."""
        with self.working():
            return [self.rewrite(question) for question in self.questions]

    def rewrite(self, question: str) -> str:
        """A question as it is searched; what a server answered is kept and not asked for again."""
        settings = self.settings.rewriter
        if not isinstance(settings, Endpoint):
            return question if settings is None else str(self.rewriter.rewrite(question))
        role = ("rewriting", digest(self.decides(settings)))
        (kept,) = self.cache.get_many(*role, [question])
        if kept is None:
            kept = str(self.rewriter.rewrite(question)).encode("utf-8", "surrogatepass")
            self.cache.put_many(*role, {question: kept})
        return kept.decode("utf-8", "surrogatepass")

    # -------------------------------------------------------------------------------- vectors

    def embedder(self, name: str) -> Embedder:
        def make() -> Embedder:
            with self.working():
                return make_embedder(self.settings.embedders[name], self.cache)

        found: Embedder = self._once(("embedder", name), make)
        return found

    def vectors(self, name: str, role: str, tell: Tell = lambda _: None) -> Vectors:
        """(n, D) all questions or all passages; a part is on disk before the next is made."""
        return self._once(("vectors", name, role), lambda: self._embed(name, role, tell))  # type: ignore[no-any-return]

    def _embed(self, name: str, role: str, tell: Tell) -> Vectors:
        texts = self.corpus.documents if role == "passages" else self.texts
        parts = []
        for first in range(0, len(texts), _PART):
            some = texts[first : first + _PART]
            decides = [self.decides(self.settings.embedders[name]), role, some]
            file = self._file("vectors", decides, ".npy")
            make = partial(self._embed_part, name, role, some, file)
            parts.append(self._kept(file, _load, make))
            tell(len(some))
        return np.concatenate(parts)

    def _embed_part(self, name: str, role: str, texts: Sequence[str], file: Path) -> None:
        embedder = self.embedder(name)
        with self.working():
            passages = role == "passages"
            made = (embedder.embed_passages if passages else embedder.embed_queries)(texts)
        write_whole(file, partial(_save, made))

    def shortened(self, name: str, size: int | None, role: str) -> Vectors:
        """The first dimensions of each vector, at length 1 again."""
        return self._once(("shortened", name, size, role), lambda: self._shorten(name, size, role))  # type: ignore[no-any-return]

    def _shorten(self, name: str, size: int | None, role: str) -> Vectors:
        vectors = self.vectors(name, role)
        if size is None or size == vectors.shape[1]:
            return vectors
        if size > vectors.shape[1]:
            raise InputError(
                f"dimensions: {size} where embedder {name} has {vectors.shape[1]}",
                remedy="ask for as many as it has, or fewer",
            )
        return unit(vectors[:, :size])

    # -------------------------------------------------------------------------------- indexes

    def index(self, dense: Dense) -> Index:
        return self._once(("index", dense), lambda: self._build(dense))  # type: ignore[no-any-return]

    def _build(self, dense: Dense) -> Index:
        embedder, size, index = dense
        vectors = self.shortened(embedder, size, "passages")
        with self.working():
            return make_index(
                self.settings.indexes[index],
                vectors,
                self.corpus.document_ids,
                cache_folder=self.folder / "indexes",
            )

    @cached_property
    def bm25(self) -> Bm25:
        settings = self.settings.sparse
        folder = self._file("bm25", [settings.model_dump(), self.corpus_digest], "")
        with self.working():
            try:
                return Bm25.load(folder)
            except InputError:  # not built yet, or killed while it was written
                built = Bm25(self.corpus.documents, self.corpus.document_ids, settings)
                built.save(folder)
                return built

    # ---------------------------------------------------------------------------------- lists

    def dense_list(self, dense: Dense, depth: int) -> Run:
        embedder, size, index = dense
        decides = [
            *(self.corpus_digest, self.asked_digest, size, depth),
            self.decides(self.settings.embedders[embedder]),
            self.decides(self.settings.indexes[index]),
        ]

        def make() -> Run:
            queries, built = self.shortened(embedder, size, "queries"), self.index(dense)
            with self.working():
                return built.search(queries, depth, self.query_ids).run

        return self._list(decides, make)

    def sparse_list(self, depth: int) -> Run:
        decides = [self.corpus_digest, self.asked_digest, depth, self.settings.sparse.model_dump()]

        def make() -> Run:
            bm25 = self.bm25
            with self.working():
                return bm25.search(self.texts, depth, self.query_ids).run

        return self._list(decides, make)

    def _list(self, decides: Any, make: Callable[[], Run]) -> Run:
        def read_or_make() -> Run:
            file = self._file("lists", decides, ".parquet")
            read = partial(read_list, query_ids=self.query_ids)
            return self._kept(file, read, lambda: write_run(make(), file))

        found: Run = self._once(("list", digest(decides)), read_or_make)
        return found

    def pool(self, configuration: Configuration, k: int) -> Run:
        """The first k candidates that a configuration hands to its reranker."""
        c = configuration
        key = ("pool", c.mode, c.embedder, c.dimensions, c.index, k)
        return self._once(key, lambda: self._pool(c, k))  # type: ignore[no-any-return]

    def found(self, c: Configuration, k: int) -> Run:
        """Its one list, or the two made one, as deep as a pool of k needs."""
        wanted = self.wanted(c, k)
        if c.mode == "sparse":
            return self.sparse_list(wanted)
        if c.mode == "dense":
            return self.dense_list(dense_of(c), wanted)
        return self.fuse(self.dense_list(dense_of(c), wanted), self.sparse_list(wanted))

    def _pool(self, c: Configuration, k: int) -> Run:
        found = self.found(c, k)
        if self.settings.duplicates is not None:
            found = self.without_duplicates(found)
        return head(found, k)

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

    @cached_property
    def passage(self) -> Mapping[str, str]:
        """Text by id."""
        return dict(zip(self.corpus.document_ids, self.corpus.documents, strict=True))

    def without_duplicates(self, run: Run) -> Run:
        assert self.settings.duplicates is not None
        ranked = head(run, int(np.diff(run.start).max(initial=0)))  # from best to worst
        ids = ranked.doc.to_list()
        kept = []
        for low, high in zip(ranked.start[:-1], ranked.start[1:], strict=True):
            some = ids[low:high]
            texts = [self.passage[doc] for doc in some]
            kept.append(low + suppress(some, texts, self.settings.duplicates).kept)
        rows = np.concatenate([*kept, np.zeros(0, np.int64)]).astype(np.int64)
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

    def reranker(self, name: str) -> Reranker:
        """One for each that differs: two names may stand for the same, blended otherwise."""
        settings = self.settings.rerankers[name]
        assert settings is not None

        def make() -> Reranker:
            with self.working():
                return make_reranker(settings, self.cache)

        found: Reranker = self._once(("reranker", settings), make)
        return found

    def scores(self, name: str, pools: Sequence[Run], tell: Tell) -> pl.DataFrame:
        """Each candidate of any pool scored once: query, doc, score, tokens, whether these are
        estimated, dtype."""
        pairs = pl.concat([pool.to_frame().select("query", "doc") for pool in pools])
        pairs = pairs.unique(maintain_order=True)
        settings = self.settings.rerankers[name]
        assert settings is not None
        decides = [self.decides(settings), self.asked_digest, self.corpus_digest, pairs.rows()]
        file = self._file("scores", decides, ".parquet")
        return self._kept(
            file,
            pl.read_parquet,
            lambda: write_whole(file, self._score(name, pairs, tell).write_parquet),
        )

    def _score(self, name: str, pairs: pl.DataFrame, tell: Tell) -> pl.DataFrame:
        reranker = self.reranker(name)
        text = dict(zip(self.query_ids, self.texts, strict=True))
        frames = [
            pairs.clear().with_columns(
                score=pl.lit(0.0),
                tokens=pl.lit(0.0),
                estimated=pl.lit(False),
                dtype=pl.lit("float64"),
            )
        ]
        for (query,), some in pairs.group_by("query", maintain_order=True):
            passages = [self.passage[doc] for doc in some["doc"]]
            before = getattr(reranker, "estimated", 0)
            with self.working():
                scored = reranker.score(text[str(query)], passages)
            frames.append(
                some.with_columns(
                    pl.Series("score", scored.score, dtype=pl.Float64),
                    pl.lit(scored.tokens / len(passages)).alias("tokens"),
                    pl.lit(getattr(reranker, "estimated", 0) > before).alias("estimated"),
                    pl.lit(scored.dtype).alias("dtype"),
                )
            )
            tell(len(passages))
        return pl.concat(frames)


def dense_of(c: Configuration) -> Dense:
    assert c.embedder is not None
    assert c.index is not None
    return c.embedder, c.dimensions, c.index


def unit(vectors: Vectors) -> Vectors:
    """Vectors at length 1; one of zeros stays."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(length > 0, length, 1.0)).astype(np.float32)


def _load(path: Path) -> Vectors:
    vectors: Vectors = np.load(path, allow_pickle=False)
    return vectors


def _save(vectors: Vectors, path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, vectors)


def write_run(run: Run, file: Path) -> None:
    """A run as Parquet, with its format and what its lists leave out, where that is known."""
    cut = pl.lit(None, pl.Int64)
    if run.cut is not None:
        cut = pl.lit(pl.Series(np.repeat(run.cut, np.diff(run.start))))
    frame = run.to_frame().with_columns(
        cut.alias("cut"),
        pl.lit(run.dtype).alias("dtype"),
    )
    write_whole(file, frame.write_parquet)


def read_list(file: Path, query_ids: Sequence[str]) -> Run:
    """What `write_run` wrote, with an empty list for each query that it does not hold."""
    frame = pl.read_parquet(file)
    queries = pl.Series("query", query_ids, dtype=pl.String)
    at = pl.DataFrame({"query": queries, "at": np.arange(len(queries), dtype=np.int32)})
    codes = frame.join(at, on="query", how="left", maintain_order="left")["at"].to_numpy()
    cut = np.zeros(len(queries), np.int64)
    if known := frame["cut"].null_count() == 0:
        cut[codes] = frame["cut"].to_numpy()
    return build_run(
        file.stem,
        queries,
        codes,
        frame["doc"],
        frame["score"].to_numpy(),
        frame["dtype"][0] if frame.height else "float64",
        cut if known else None,
    )
