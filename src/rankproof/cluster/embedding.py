"""Embed a corpus, or score a run, shard by shard on Ray.

A shard's file is named by a digest of its input and of the model, and is written atomically. A
worker or driver that is killed loses only the unfinished shards; the next run continues from there.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankproof.cluster.session import connected, fetch, wait_for_one
from rankproof.cluster.shards import find_files
from rankproof.data import RunLike, read_run
from rankproof.data.frames import polars_reads
from rankproof.data.sources import Source
from rankproof.data.tables import Run
from rankproof.foundation.errors import InputError, check_whole_number, shorten
from rankproof.foundation.files import write_atomically
from rankproof.foundation.manifest import digest, manifest
from rankproof.foundation.progress import advance

MANIFEST = "_manifest.json"  # readers of shards skip names with an underscore


@dataclass(frozen=True, slots=True)
class Shards:
    """The files that a model's output was written to."""

    folder: Path
    files: tuple[Path, ...]  # in the order of the input
    rows: int
    reused: int  # files that an earlier run had finished


def embed(
    corpus: Any,
    model: Any,
    out: str | os.PathLike[str],
    *,
    fingerprint: str | None = None,
    shard: int = 10_000,
    workers: int | None = None,
    gpus: float = 0,
    address: str | None = None,
) -> Shards:
    """Embed passages into Parquet files of id and vector, which `search` reads.

    `corpus` is a file or folder of JSON lines (_id, title, text) or Parquet (id, text), a mapping
    of ids to texts, or (id, text) pairs; it is read `shard` passages at a time. `model` is the
    settings of an embedder, an Embedder, a class or `functools.partial` that makes one, or a
    function of texts. A function also needs a `fingerprint`, a word that changes when its vectors
    would. Each of `workers` (by default one for each core, or GPU) holds one model and that share
    of a GPU.

    >>> from rankproof import cluster
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> texts = {"d1": "Whales breathe air.", "d2": "Sharks are fish."}
    >>> cluster.embed(texts, WordllamaSettings(), "embedded", workers=1).rows
    2
    """
    texts = _read_texts(corpus)

    def jobs() -> Iterator[tuple[Any, int]]:
        check_whole_number("shard", shard)
        while batch := list(islice(texts, shard)):
            yield batch, len(batch)

    settings = (model, fingerprint)
    out = Path(out).absolute()
    return _run_jobs(
        "embed",
        jobs(),
        _EmbeddingWorker,
        settings,
        out,
        workers=workers,
        gpus=gpus,
        address=address,
    )


def score(
    run: RunLike,
    queries: Mapping[str, str],
    passages: Mapping[str, str],
    model: Any,
    out: str | os.PathLike[str],
    *,
    fingerprint: str | None = None,
    shard: int = 16,
    workers: int | None = None,
    gpus: float = 0,
    address: str | None = None,
    name: str | None = None,
) -> Run:
    """Score a run's documents again with a cross-encoder, `shard` queries at a time.

    `model` is the settings of a reranker, a Reranker, what makes one, or a function of a query
    and its passages, as in `embed`. The files are Parquet with query, doc and score.

    >>> from rankproof import cluster
    >>> def length(query, passages):
    ...     return [float(len(text)) for text in passages]
    >>> texts = {"d1": "Whales breathe air.", "d2": "Sharks are fish."}
    >>> run = {"q": {"d1": 1.0, "d2": 2.0}}
    >>> cluster.score(run, {"q": "?"}, texts, length, "scored", fingerprint="1").doc.to_list()
    ['d1', 'd2']
    """
    listed = read_run(run)

    def jobs() -> Iterator[tuple[Any, int]]:
        check_whole_number("shard", shard)
        for first in range(0, len(listed.queries), shard):
            job = []
            for row in range(first, min(first + shard, len(listed.queries))):
                query = listed.queries[row]
                docs = listed.doc[int(listed.start[row]) : int(listed.start[row + 1])].to_list()
                question = _text_of(queries, query, "query")
                texts = [_text_of(passages, doc, "document") for doc in docs]
                job.append((query, question, docs, texts))
            yield job, sum(len(docs) for _, _, docs, _ in job)

    settings = (model, fingerprint)
    out = Path(out).absolute()
    shards = _run_jobs(
        "score", jobs(), _ScoringWorker, settings, out, workers=workers, gpus=gpus, address=address
    )
    frame = pl.concat([pl.read_parquet(file) for file in shards.files], how="vertical_relaxed")
    return read_run(frame, name=name or listed.name)


def _text_of(texts: Mapping[str, str], key: str, kind: str) -> str:
    if key not in texts:
        raise InputError(
            f"{kind} {shorten(key)} of the run has no text", remedy="give every text, by its id"
        )
    return texts[key]


# ---------------------------------------------------------------------------------- the texts


def _read_texts(corpus: Any) -> Iterator[tuple[str, str]]:
    """Yield id and text of every passage, without reading the whole corpus into memory."""
    if isinstance(corpus, Mapping):
        yield from corpus.items()
    elif isinstance(corpus, str | os.PathLike):
        for file in find_files(corpus):
            with file.local() as path:
                source = Source(path)
                source.label = file.label
                is_parquet = source.head.startswith(b"PAR1")
                yield from _read_parquet(source) if is_parquet else _read_json_lines(source)
    else:
        yield from ((str(name), str(text)) for name, text in corpus)


def _read_json_lines(source: Source) -> Iterator[tuple[str, str]]:
    """Yield id and text, with the title before it, of each line as BEIR writes them."""
    with source.open() as content:
        for number, line in enumerate(content, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            row = row if isinstance(row, dict) else {}
            name = row.get("_id", row.get("id"))
            if type(name) not in (str, int) or name == "" or not isinstance(row.get("text"), str):
                raise InputError(
                    f"{shorten(line.decode(errors='replace').strip())} lacks _id or text",
                    place=f"{source.label}:{number}",
                    remedy='write {"_id": "…", "title": "…", "text": "…"}',
                )
            title = row.get("title")
            has_title = isinstance(title, str) and title
            yield str(name), f"{title} {row['text']}" if has_title else row["text"]


def _read_parquet(source: Source) -> Iterator[tuple[str, str]]:
    """Yield the columns id (or _id) and text of each row, a block of rows at a time."""
    with polars_reads(source.label, "parquet"):
        scan = pl.scan_parquet(source.path, glob=False, hive_partitioning=False)
        names = scan.collect_schema().names()
        id_column = next((name for name in names if name in ("id", "_id")), None)
        if id_column is None or "text" not in names:
            raise InputError(
                f"no columns id and text; there are: {', '.join(names[:12])}",
                place=source.label,
                remedy="name them so",
            )
        total = scan.select(pl.len()).collect().item()
        for first in range(0, total, 10_000):
            rows = (
                scan.select(pl.col(id_column, "text").cast(pl.String))
                .slice(first, 10_000)
                .collect()
            )
            for row, (name, text) in enumerate(rows.iter_rows(), first + 1):
                if name is None or text is None:
                    raise InputError(
                        "the id or the text is empty",
                        place=f"{source.label}: row {row}",
                        remedy="give every row both",
                    )
                yield name, text


# --------------------------------------------------------------------------------- the workers


class _Worker:
    """Holds one model in a process of Ray."""

    method: str  # by which a model is recognized

    def __init__(self, model: Any, fingerprint: str | None):
        """Take the model itself, or make it by a class, a partial, or from settings."""
        if isinstance(model, type | functools.partial):
            model = model()
        if not hasattr(model, self.method) and hasattr(model, "model_dump"):
            model = self.make_model(model)
        self.model = model
        self.given_fingerprint = fingerprint

    def make_model(self, settings: Any) -> Any:
        raise NotImplementedError

    def fingerprint(self) -> str:
        fingerprint = self.given_fingerprint or getattr(self.model, "fingerprint", None)
        if not isinstance(fingerprint, str):
            raise InputError(
                f"{shorten(self.model)} has no fingerprint",
                remedy="give fingerprint=, a word that changes when what it makes would",
            )
        return fingerprint


class _EmbeddingWorker(_Worker):
    """Embeds passages into a file of id and vector."""

    method = "embed_passages"

    def make_model(self, settings: Any) -> Any:
        from rankproof.retrieval.embedders import make_embedder

        return make_embedder(settings)

    def work(self, job: Sequence[tuple[str, str]], path: Path) -> None:
        """Embed one shard of (id, text) and write its file."""
        ids, texts = [name for name, _ in job], [text for _, text in job]
        is_repeated = pl.Series(ids).is_duplicated()
        if is_repeated.any():
            raise InputError(
                f"id {shorten(ids[int(is_repeated.arg_max() or 0)])} appears twice",
                place="corpus",
                remedy="make ids unique",
            )
        embed_passages = getattr(self.model, "embed_passages", self.model)
        vectors = np.asarray(embed_passages(texts), np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise InputError(
                f"the model made an array of shape {vectors.shape} of {len(texts)} texts",
                remedy="return (texts, dimensions)",
            )
        is_invalid = ~np.isfinite(vectors).all(axis=1)
        if is_invalid.any():
            raise InputError(
                "the model made a number that is not finite",
                place=f"passage {shorten(ids[int(is_invalid.argmax())])}",
                remedy="look at that text, or run the model in float32",
            )
        shape = pl.Array(pl.Float32, vectors.shape[1])
        frame = pl.DataFrame({"id": ids, "vector": pl.Series(vectors, dtype=shape)})
        write_atomically(path, frame.write_parquet)


class _ScoringWorker(_Worker):
    """Scores the candidates of queries into a file of query, doc and score."""

    method = "score"

    def make_model(self, settings: Any) -> Any:
        from rankproof.retrieval.rerankers import make_reranker

        return make_reranker(settings)

    def work(self, job: Sequence[tuple[str, str, list[str], list[str]]], path: Path) -> None:
        """Score one shard of (query id, question, document ids, texts) and write its file."""
        score = getattr(self.model, "score", self.model)
        frames = []
        for query, question, docs, texts in job:
            scored = score(question, texts)
            values = np.asarray(getattr(scored, "score", scored), np.float64)
            if values.shape != (len(texts),) or np.isnan(values).any():
                raise InputError(
                    f"the model scored {len(texts)} passages as {shorten(values)}",
                    place=f"query {shorten(query)}",
                    remedy="return one number for each passage",
                )
            is_float64 = getattr(scored, "dtype", "float64") == "float64"
            frames.append(
                pl.DataFrame(
                    {
                        "query": pl.repeat(query, len(docs), eager=True),
                        "doc": docs,
                        "score": pl.Series(values, dtype=pl.Float64 if is_float64 else pl.Float32),
                    }
                )
            )
        write_atomically(path, pl.concat(frames, how="vertical_relaxed").write_parquet)


# ---------------------------------------------------------------------------------- the driver


def _run_jobs(
    kind: str,
    jobs: Iterable[tuple[Any, int]],
    worker: type[_Worker],
    settings: tuple[Any, str | None],
    out: Path,
    *,
    workers: int | None,
    gpus: float,
    address: str | None,
) -> Shards:
    """Give jobs (input, number of rows) to workers as they become free; skip finished ones.

    Each finished job advances an open task of progress by 1.
    """
    files: list[Path] = []
    rows = reused = 0
    with connected(address) as ray:
        crew = _Crew(ray, worker, settings, workers=workers, gpus=gpus)
        model = fetch(ray, crew.actors[0].fingerprint.remote())
        record = _claim_folder(out, kind, model)
        for number, (job, size) in enumerate(jobs):
            key = digest([kind, model, job])
            path = out / f"part-{number:06}-{key[:16]}.parquet"
            files.append(path)
            rows += size
            if _is_complete(path, size):
                reused += 1
                advance()
            else:
                crew.start(job, path)
        crew.finish()
    if not files:
        raise InputError("no rows", place=kind, remedy="check how the input was made")
    for stale in set(out.glob("part-*.parquet")) - set(files):
        stale.unlink(missing_ok=True)
    record["parts"] = [path.name for path in files]
    _write_manifest(out, record)
    return Shards(out, tuple(files), rows, reused)


class _Crew:
    """Workers that are started when there is a job for them."""

    def __init__(
        self,
        ray: Any,
        worker: type[_Worker],
        settings: tuple[Any, str | None],
        *,
        workers: int | None,
        gpus: float,
    ):
        resources = ray.cluster_resources()
        capacity = resources.get("GPU", 0) / gpus if gpus else resources.get("CPU", 1)
        self._size = workers if workers is not None else max(1, int(capacity))
        check_whole_number("workers", self._size)
        self._ray, self._settings = ray, settings
        # A worker that dies is started again and repeats its job.
        options = {"max_restarts": 3, "max_task_retries": 3, "num_cpus": 1, "num_gpus": gpus}
        self._actor_class = ray.remote(**options)(worker)
        self.actors = [self._actor_class.remote(*settings)]
        self._free = list(self.actors)
        self._running: dict[Any, Any] = {}  # worker by its task

    def start(self, job: Any, path: Path) -> None:
        """Give a job to a free worker, waiting for one if all are busy."""
        if not self._free and len(self.actors) < self._size:
            self.actors.append(self._actor_class.remote(*self._settings))
            self._free.append(self.actors[-1])
        while not self._free:
            self._wait_for_one()
        actor = self._free.pop()
        self._running[actor.work.remote(job, path)] = actor

    def finish(self) -> None:
        """Wait for all jobs, and end the workers."""
        while self._running:
            self._wait_for_one()
        for actor in self.actors:
            self._ray.kill(actor)

    def _wait_for_one(self) -> None:
        task = wait_for_one(self._ray, list(self._running))
        fetch(self._ray, task)
        self._free.append(self._running.pop(task))
        advance()


def _is_complete(path: Path, rows: int) -> bool:
    """True if a shard's file has all its rows; False for a damaged file."""
    if not path.exists():
        return False
    try:
        return bool(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item() == rows)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        return False


def _claim_folder(out: Path, kind: str, model: str) -> dict[str, Any]:
    """Write the folder's manifest, or refuse a folder with the output of another model."""
    record = {**manifest(kind, config={"model": model}), "parts": []}
    path = out / MANIFEST
    if path.exists():
        try:
            earlier = json.loads(path.read_text("utf-8"))
            is_same = earlier["kind"] == kind and earlier["config"]["model"] == model
        except (ValueError, KeyError, TypeError):
            is_same = False
        if not is_same:
            raise InputError(
                "the folder holds what another model made",
                place=str(out),
                remedy="name another folder, or remove this one",
            )
    else:
        _write_manifest(out, record)
    return record


def _write_manifest(out: Path, record: dict[str, Any]) -> None:
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    write_atomically(out / MANIFEST, lambda path: path.write_text(text, "utf-8"))
