"""One place that embeds, indexes, searches, fuses, reranks and rewrites, each thing once.

    questions ─ rewrite ─▶ vectors ─ index ─▶ lists ─ fuse ─▶ pools ─ rerank ─▶ scores
    passages ────────────▶ vectors ─┘

What was made is kept on disk under a digest of all that decides it (`identity.py`): a part that is
there is never made again, whichever verb asks for it, and a run that was killed goes on where it
stopped. A choice is the settings of a part, or an object of its Protocol.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import polars as pl

from rankproof.data.tables import Run, build_run
from rankproof.foundation.config import Settings
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.files import write_atomically
from rankproof.foundation.manifest import digest
from rankproof.retrieval.cache import Cache, own_folder
from rankproof.retrieval.components import Foreign, is_network, make
from rankproof.retrieval.duplicates import DuplicatesSettings, suppress
from rankproof.retrieval.embedders import make_embedder
from rankproof.retrieval.hits import rises
from rankproof.retrieval.identity import fingerprint, identity, lasting
from rankproof.retrieval.indexes import make_index
from rankproof.retrieval.pools import head
from rankproof.retrieval.protocols import (
    Embedder,
    Index,
    Reranker,
    Retriever,
    Rewritten,
    Scored,
    Vectors,
)
from rankproof.retrieval.rerankers import make_reranker
from rankproof.retrieval.rewriters import make_rewriter
from rankproof.retrieval.texts import unit

T = TypeVar("T")
Tell = Callable[[float], None]
PART = 1024  # texts embedded between two writes


def quiet(amount: float) -> None:
    """For those who do not want to be told of work done."""


Told = Callable[[str, float], AbstractContextManager[Tell]]  # (label, total) → a bar, say


def silent(label: str, total: float) -> AbstractContextManager[Tell]:
    """For those who do not want to see it."""
    return nullcontext(quiet)


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


class Texts:
    """Texts by id, known by a digest of all of them."""

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
    """Embedders, vectors, indexes, lists and scores over one corpus, kept in a folder."""

    def __init__(self, passages: Texts, folder: Path | None = None):
        self.passages = passages
        self.folder = folder or own_folder()
        self.cache = Recorder(self.folder)
        self.spent = 0.0  # seconds inside embedders, indexes and rerankers
        self._made: dict[Any, Any] = {}
        self._cut: dict[str, tuple[str, int, int]] = {}  # embedder, what it reads, texts longer

    def notes(self) -> list[str]:
        """What was left out of texts, and by which embedder."""
        longer: dict[tuple[str, int], int] = {}
        for name, reads, count in self._cut.values():
            longer[name, reads] = longer.get((name, reads), 0) + count
        return [
            f"{name} reads {reads} tokens of a passage: {count:,} are longer, and what follows is "
            "not seen"
            for (name, reads), count in longer.items()
        ]

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        self.cache.close()
        self._scratch.cleanup()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Time that is the parts' own."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.spent += time.perf_counter() - begun

    def _once(self, what: str, decides: Any, make: Callable[[], T]) -> T:
        key = (what, digest(decides))
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found

    @cached_property
    def _scratch(self) -> TemporaryDirectory[str]:
        """For what an object made that does not say what decides it: it is not asked for again."""
        return TemporaryDirectory(prefix="rankproof-")

    def _file(self, kind: str, decides: Any, ending: str) -> Path:
        folder = self.folder if lasting(decides) else Path(self._scratch.name)
        return folder / kind / f"{digest(decides)[:32]}{ending}"

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

    def rewriter(self, chosen: Any) -> Any:
        return self._once("rewriter", identity(chosen), lambda: make_rewriter(chosen))

    def rewriting(self, chosen: Any) -> Callable[[str], Rewritten]:
        """How questions are rewritten; what a server answered is kept and not asked again."""
        if chosen is None:
            return Rewritten
        rewriter = self.rewriter(chosen)

        def ask(question: str) -> Rewritten:
            if not hasattr(rewriter, "rewritten"):
                return Rewritten(str(rewriter.rewrite(question)))
            told: Rewritten = rewriter.rewritten(question)
            return told

        if not is_network(chosen):
            return ask
        role = ("rewriting", fingerprint(chosen))

        def ask_once(question: str) -> Rewritten:
            (held,) = self.cache.get_many(*role, [question])
            if held is None:
                found = ask(question)
                held = json.dumps([found.text, found.kept, None, found.tokens]).encode()
                self.cache.put_many(*role, {question: held})
            text, kept, *rest = json.loads(held)
            return Rewritten(text, kept, tokens=tuple(rest[1]) if rest and rest[1] else None)

        return ask_once

    def rewritten(self, chosen: Any, questions: Texts, tell: Tell = quiet) -> Texts:
        """All questions as they are searched."""
        if chosen is None:
            return questions

        def make() -> Texts:
            found, rewrite = [], self.rewriting(chosen)
            for question in questions.texts:
                with self.working():
                    found.append(rewrite(question).text)
                tell(1)
            return Texts(questions.ids, found)

        return self._once("rewritten", [identity(chosen), questions.digest], make)

    # -------------------------------------------------------------------------------- vectors

    def embedder(self, chosen: Any) -> Embedder:
        def make() -> Embedder:
            with self.working():
                return make_embedder(chosen, self.cache)

        return self._once("embedder", identity(chosen), make)

    def vectors(self, chosen: Any, texts: Texts, tell: Tell = quiet) -> Vectors:
        """(n, D) of the passages, or of questions; a part is on disk before the next is made."""
        role = "passages" if texts is self.passages else "queries"
        key = [identity(chosen), role, texts.digest]
        return self._once("vectors", key, lambda: self._embed(chosen, role, texts.texts, tell))

    def _embed(self, chosen: Any, role: str, texts: Sequence[str], tell: Tell) -> Vectors:
        parts = []
        for first in range(0, len(texts), PART):
            some = texts[first : first + PART]
            file = self._file("vectors", [identity(chosen), role, some], ".npy")
            make = partial(self._embed_part, chosen, role, some, file)
            parts.append(self._kept(file, _load, make))
            (cut,) = self.cache.get_many("cut", role, [file.stem])
            if cut is not None:
                self._cut[file.stem] = json.loads(cut)
            tell(len(some))
        if not parts:
            raise InputError("there is nothing to embed", remedy="give one text or more")
        return np.concatenate(parts)

    def _embed_part(self, chosen: Any, role: str, texts: Sequence[str], file: Path) -> None:
        embedder = self.embedder(chosen)
        before = getattr(embedder, "cut", 0)
        with self.working():
            passages = role == "passages"
            made = (embedder.embed_passages if passages else embedder.embed_queries)(texts)
        vectors = check_embedded(made, len(texts), embedder.name)
        if not isinstance(chosen, Settings) or isinstance(chosen, Foreign):
            vectors = unit(vectors)  # ours are of length 1 already
        write_atomically(file, partial(_save, vectors))
        if longer := getattr(embedder, "cut", 0) - before:
            said = json.dumps([embedder.name, getattr(embedder, "reads", None), longer])
            self.cache.put_many("cut", role, {file.stem: said.encode()})

    def shortened(self, chosen: Any, size: int | None, texts: Texts) -> Vectors:
        """The first dimensions of each vector, at length 1 again."""
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
            "shortened", [identity(chosen), size, role], lambda: unit(vectors[:, :size])
        )

    # -------------------------------------------------------------------------------- indexes

    def index(self, embedder: Any, size: int | None, index: Any) -> Index:
        def make() -> Index:
            vectors = self.shortened(embedder, size, self.passages)
            with self.working():
                return make_index(index, vectors, self.passages.ids, folder=self.folder / "indexes")

        key = [identity(embedder), size, identity(index), self.passages.digest]
        return self._once("index", key, make)

    def sparse(self, chosen: Any) -> Retriever:
        return self._engine("sparse", chosen)

    def retriever(self, chosen: Any) -> Retriever:
        return self._engine("retriever", chosen)

    def _engine(self, kind: Any, chosen: Any) -> Retriever:
        """A sparse index, or a whole engine, over the passages."""
        decides = [identity(chosen), self.passages.digest]

        def made() -> Retriever:
            name = chosen.type if hasattr(chosen, "type") else kind
            with self.working():
                found: Retriever = make(
                    *(kind, chosen, self.passages.texts, self.passages.ids),
                    folder=self._file(str(name).replace(":", "."), decides, ""),
                    cache=self.cache,
                    vectors=lambda embedder: self.vectors(embedder, self.passages),
                    embedder=self.embedder,
                )
            return found

        return self._once(kind, decides, made)

    # ---------------------------------------------------------------------------------- lists

    def dense_list(
        self, embedder: Any, size: int | None, index: Any, questions: Texts, depth: int
    ) -> Run:
        def search() -> Run:
            queries = self.shortened(embedder, size, questions)
            built = self.index(embedder, size, index)
            with self.working():
                return built.search(queries, depth, questions.ids).run

        decides = [size, depth, identity(embedder), identity(index)]
        return self._list(decides, questions, search)

    def sparse_list(self, chosen: Any, questions: Texts, depth: int) -> Run:
        return self._searched("sparse", chosen, questions, depth)

    def engine_list(self, chosen: Any, questions: Texts, depth: int) -> Run:
        """What an engine of any kind returns for the questions."""
        return self._searched("retriever", chosen, questions, depth)

    def _searched(self, kind: Any, chosen: Any, questions: Texts, depth: int) -> Run:
        def search() -> Run:
            engine = self._engine(kind, chosen)
            with self.working():
                run = engine.search(questions.texts, depth, questions.ids).run
            if len(run) and len(self.passages) and not run.doc.is_in(self.passages.ids).any():
                raise InputError(
                    f"returns no passage of the corpus ({shorten(run.doc[0])}, …)",
                    place=f"the {kind} {getattr(engine, 'name', '')}".strip(),
                    remedy="have it return the ids that corpus.jsonl has",
                )
            if rises(run):
                raise InputError(
                    "the scores rise from the first hit to the last in every list",
                    place=f"the {kind} {getattr(engine, 'name', '')}".strip(),
                    remedy="return similarities, of which more is better: minus a distance, say",
                )
            return run

        return self._list([kind, depth, identity(chosen)], questions, search)

    def _list(self, decides: Any, questions: Texts, search: Callable[[], Run]) -> Run:
        key = [self.passages.digest, questions.digest, decides]

        def read_or_make() -> Run:
            file = self._file("lists", key, ".parquet")
            read = partial(read_list, query_ids=questions.ids)
            return self._kept(file, read, lambda: write_run(search(), file))

        return self._once("list", key, read_or_make)

    def without_duplicates(self, run: Run, settings: DuplicatesSettings) -> Run:
        ranked = head(run, int(np.diff(run.start).max(initial=0)))  # from best to worst
        ids = ranked.doc.to_list()
        kept = []
        for low, high in zip(ranked.start[:-1], ranked.start[1:], strict=True):
            some = ids[low:high]
            texts = [self.passages.by_id.get(doc, "") for doc in some]
            kept.append(low + suppress(some, texts, settings).kept)
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

    def reranker(self, chosen: Any) -> Reranker:
        def make() -> Reranker:
            with self.working():
                return make_reranker(chosen, self.cache)

        return self._once("reranker", identity(chosen), make)

    def text(self, document: str) -> str:
        """Of a passage that a list holds."""
        try:
            return self.passages.by_id[document]
        except KeyError:
            raise InputError(
                f"passage {shorten(document)} was found and is not in the corpus",
                remedy="rerank what was retrieved from this corpus",
            ) from None

    def scores(
        self, chosen: Any, pools: Sequence[Run], questions: Texts, tell: Tell = quiet
    ) -> pl.DataFrame:
        """Each candidate of any pool scored once: query, doc, score, tokens, searches (null where
        nobody says), whether the tokens are estimated, dtype."""
        pairs = pl.concat([pool.to_frame().select("query", "doc") for pool in pools])
        pairs = pairs.unique(maintain_order=True)
        decides = [identity(chosen), questions.digest, self.passages.digest, pairs.rows()]
        file = self._file("scores", decides, ".parquet")
        return self._kept(
            file,
            pl.read_parquet,
            lambda: write_atomically(
                file, self._score(chosen, pairs, questions, tell).write_parquet
            ),
        )

    def _score(
        self, chosen: Any, pairs: pl.DataFrame, questions: Texts, tell: Tell
    ) -> pl.DataFrame:
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
        for (query,), some in pairs.group_by("query", maintain_order=True):
            passages = [self.text(doc) for doc in some["doc"]]
            before = getattr(reranker, "estimated", 0)
            with self.working():
                scored = reranker.score(questions.by_id[str(query)], passages)
            frames.append(
                some.with_columns(
                    pl.Series("score", scored.score, dtype=pl.Float64),
                    pl.lit(scored.tokens / len(passages)).alias("tokens"),
                    pl.lit(_share(scored, len(passages)), pl.Float64).alias("searches"),
                    pl.lit(getattr(reranker, "estimated", 0) > before).alias("estimated"),
                    pl.lit(scored.dtype).alias("dtype"),
                )
            )
            tell(len(passages))
        return pl.concat(frames)

    def logits(
        self, chosen: Any, pairs: pl.DataFrame, questions: Texts, tell: Tell = quiet
    ) -> Vectors:
        """(N, 1 or 2) a cross-encoder's output for pairs of query and doc, before any activation; a
        part is on disk before the next is made."""
        parts = []
        for first in range(0, pairs.height, PART):
            some = pairs[first : first + PART].select("query", "doc").rows()
            asked = [(questions.by_id[query], self.text(doc)) for query, doc in some]
            file = self._file("logits", [identity(chosen), asked], ".npy")
            parts.append(self._kept(file, _load, partial(self._logits, chosen, asked, file)))
            tell(len(asked))
        return np.concatenate(parts)

    def _logits(self, chosen: Any, pairs: Sequence[tuple[str, str]], file: Path) -> None:
        reranker: Any = self.reranker(chosen)
        with self.working():
            made = reranker.logits(pairs)
        write_atomically(file, partial(_save, made))


def row_each(values: Any, dtype: Any, count: int, name: str) -> Any:
    """(count, D) numbers, from whatever an embedder returned for so many texts."""
    try:
        vectors = np.asarray(values, dtype)
        said = f"{shorten(vectors.shape)} is not a vector for each of {count} texts"
        fits = vectors.ndim == 2 and len(vectors) == count and vectors.shape[1] > 0
    except (TypeError, ValueError) as error:
        why = " ".join(str(error).split())[:100]
        said, fits = f"no numbers, or rows of several lengths ({why})", False
    if not fits:
        raise InputError(said, place=name, remedy="return (texts, dimensions)")
    return vectors


def check_embedded(values: Any, count: int, name: str) -> Vectors:
    """What an embedder returned, as float32 of one row a text; a user's own may return anything."""
    vectors: Vectors = row_each(values, np.float32, count, name)
    if not np.isfinite(vectors).all():
        raise InputError("a vector holds NaN or infinity", place=name, remedy="check the embedder")
    return vectors


def _share(scored: Scored, passages: int) -> float | None:
    """Of a search, a passage's: as in the largest request, since what is scored here may be what
    smaller ones left; a user's own reranker may know of none."""
    billed: float | None = getattr(scored, "searches", None)
    least: float | None = getattr(scored, "share", None)
    return None if billed is None else billed / passages if least is None else least


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
    frame = run.to_frame().with_columns(cut.alias("cut"), pl.lit(run.dtype).alias("dtype"))
    write_atomically(file, frame.write_parquet)


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
