"""A corpus through a model, shard by shard: what is done is on disk and is not done again.

A shard's file is named for a digest of its input and of the model, and appears whole or not at all:
whoever is killed, worker or driver, loses the shards in work, and the next run goes on from there.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankproof.cluster.session import connected, fetched, first_done
from rankproof.cluster.shards import find_files
from rankproof.data import RunLike, read_run
from rankproof.data.frames import polars_reads
from rankproof.data.sources import Source
from rankproof.data.tables import Run
from rankproof.foundation.errors import InputError, check_whole_number, shorten
from rankproof.foundation.files import write_atomically
from rankproof.foundation.manifest import digest, manifest

MANIFEST = "_manifest.json"  # a name that readers of shards leave out

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Shards:
    """What a model made, in files."""

    folder: Path
    files: tuple[Path, ...]  # in the order of the input
    rows: int
    reused: int  # files that were there from an earlier run


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
    progress: Progress | None = None,
) -> Shards:
    """Embed passages into Parquet files of id and vector, which `search` reads.

    `corpus` is a file or folder of JSON lines (_id, title, text) or Parquet (id, text), a mapping
    of ids to texts, or (id, text) pairs; it is read a shard at a time. `model` is the settings of
    an embedder, an Embedder, a class or `functools.partial` that makes one, or a function of
    texts; a function also needs a `fingerprint`, a word that changes when its vectors would. Each
    of `workers` (by default one for each core, or GPU) holds one model, and `gpus` of a GPU.

    >>> from rankproof import cluster
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> texts = {"d1": "Whales breathe air.", "d2": "Sharks are fish."}
    >>> cluster.embed(texts, WordllamaSettings(), "embedded", workers=1).rows
    2
    """
    texts = _texts(corpus)

    def jobs() -> Iterator[tuple[Any, int]]:
        check_whole_number("shard", shard)
        while some := list(islice(texts, shard)):
            yield some, len(some)

    return _run(
        *("embed", jobs(), _Embeds, (model, fingerprint), Path(out).absolute()),
        workers=workers,
        gpus=gpus,
        address=address,
        progress=progress,
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
    progress: Progress | None = None,
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
            for at in range(first, min(first + shard, len(listed.queries))):
                query = listed.queries[at]
                docs = listed.doc[int(listed.start[at]) : int(listed.start[at + 1])].to_list()
                asked = _text_of(queries, query, "query")
                job.append((query, asked, docs, [_text_of(passages, d, "document") for d in docs]))
            yield job, sum(len(docs) for _, _, docs, _ in job)

    made = _run(
        *("score", jobs(), _Scores, (model, fingerprint), Path(out).absolute()),
        workers=workers,
        gpus=gpus,
        address=address,
        progress=progress,
    )
    frame = pl.concat([pl.read_parquet(file) for file in made.files], how="vertical_relaxed")
    return read_run(frame, name=name or listed.name)


def _text_of(texts: Mapping[str, str], key: str, what: str) -> str:
    if key not in texts:
        raise InputError(
            f"{what} {shorten(key)} of the run has no text", remedy="give every text, by its id"
        )
    return texts[key]


# ---------------------------------------------------------------------------------- the texts


def _texts(corpus: Any) -> Iterator[tuple[str, str]]:
    if isinstance(corpus, Mapping):
        yield from corpus.items()
    elif isinstance(corpus, str | os.PathLike):
        for file in find_files(corpus):
            with file.local() as path:
                source = Source(path)
                source.label = file.label
                yield from _parquet(source) if source.head.startswith(b"PAR1") else _lines(source)
    else:
        yield from ((str(one), str(text)) for one, text in corpus)


def _lines(source: Source) -> Iterator[tuple[str, str]]:
    """JSON lines, one at a time."""
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
            words = (title, row["text"]) if isinstance(title, str) and title else (row["text"],)
            yield str(name), " ".join(words)


def _parquet(source: Source) -> Iterator[tuple[str, str]]:
    with polars_reads(source.label, "parquet"):
        scan = pl.scan_parquet(source.path, glob=False, hive_partitioning=False)
        names = scan.collect_schema().names()
        wanted = [next((n for n in names if n in some), "") for some in (("id", "_id"), ("text",))]
        if not all(wanted):
            raise InputError(
                f"no columns id and text; there are: {', '.join(names[:12])}",
                place=source.label,
                remedy="name them so",
            )
        total = scan.select(pl.len()).collect().item()
        for first in range(0, total, 10_000):
            rows = scan.select(pl.col(wanted).cast(pl.String)).slice(first, 10_000).collect()
            for at, (one, text) in enumerate(rows.iter_rows()):
                if one is None or text is None:
                    raise InputError(
                        "the id or the text is empty",
                        place=f"{source.label}: row {first + at + 1}",
                        remedy="give every row both",
                    )
                yield one, text


# --------------------------------------------------------------------------------- the workers


def _made(model: Any, method: str, make: Callable[[Any], Any]) -> Any:
    """The model itself: given, made by a class or a partial, or made from settings."""
    if isinstance(model, type | functools.partial):
        model = model()
    if hasattr(model, method) or not hasattr(model, "model_dump"):
        return model
    return make(model)


def _print(model: Any, given: str | None) -> str:
    found = given or getattr(model, "fingerprint", None)
    if not isinstance(found, str):
        raise InputError(
            f"{shorten(model)} has no fingerprint",
            remedy="give fingerprint=, a word that changes when what it makes would",
        )
    return found


class _Embeds:
    """A worker that embeds."""

    def __init__(self, model: Any, fingerprint: str | None):
        from rankproof.retrieval.embedders import make_embedder

        self.model = _made(model, "embed_passages", make_embedder)
        self.given = fingerprint

    def fingerprint(self) -> str:
        return _print(self.model, self.given)

    def work(self, job: Sequence[tuple[str, str]], path: Path) -> None:
        ids, texts = [one for one, _ in job], [text for _, text in job]
        again = pl.Series(ids).is_duplicated()
        if again.any():
            raise InputError(
                f"id {shorten(ids[int(again.arg_max() or 0)])} appears twice",
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
        wrong = ~np.isfinite(vectors).all(axis=1)
        if wrong.any():
            raise InputError(
                "the model made a number that is not finite",
                place=f"passage {shorten(ids[int(wrong.argmax())])}",
                remedy="look at that text, or run the model in float32",
            )
        shape = pl.Array(pl.Float32, vectors.shape[1])
        frame = pl.DataFrame({"id": ids, "vector": pl.Series(vectors, dtype=shape)})
        write_atomically(path, frame.write_parquet)


class _Scores:
    """A worker that scores pairs."""

    def __init__(self, model: Any, fingerprint: str | None):
        from rankproof.retrieval.rerankers import make_reranker

        self.model = _made(model, "score", make_reranker)
        self.given = fingerprint

    def fingerprint(self) -> str:
        return _print(self.model, self.given)

    def work(self, job: Sequence[tuple[str, str, list[str], list[str]]], path: Path) -> None:
        score = getattr(self.model, "score", self.model)
        frames = []
        for query, asked, docs, texts in job:
            found = score(asked, texts)
            values = np.asarray(getattr(found, "score", found), np.float64)
            if values.shape != (len(texts),) or np.isnan(values).any():
                raise InputError(
                    f"the model scored {len(texts)} passages as {shorten(values)}",
                    place=f"query {shorten(query)}",
                    remedy="return one number for each passage",
                )
            narrow = getattr(found, "dtype", "float64") != "float64"
            frames.append(
                pl.DataFrame(
                    {
                        "query": pl.repeat(query, len(docs), eager=True),
                        "doc": docs,
                        "score": pl.Series(values, dtype=pl.Float32 if narrow else pl.Float64),
                    }
                )
            )
        write_atomically(path, pl.concat(frames, how="vertical_relaxed").write_parquet)


# ---------------------------------------------------------------------------------- the driver


def _run(
    kind: str,
    jobs: Iterable[tuple[Any, int]],
    worker: type,
    settings: tuple[Any, str | None],
    out: Path,
    *,
    workers: int | None,
    gpus: float,
    address: str | None,
    progress: Progress | None,
) -> Shards:
    """Hand jobs to workers as they become free; keep the files in the order of the jobs."""
    files: list[Path] = []
    rows = reused = 0
    with connected(address) as ray:
        resources = ray.cluster_resources()
        room = resources.get("GPU", 0) / gpus if gpus else resources.get("CPU", 1)
        count = workers if workers is not None else max(1, int(room))
        check_whole_number("workers", count)
        # A worker that dies comes back and does its shard again.
        actor = ray.remote(max_restarts=3, max_task_retries=3, num_cpus=1, num_gpus=gpus)(worker)
        crew = [actor.remote(*settings)]  # the others start when there is work for them
        model = fetched(ray, crew[0].fingerprint.remote())
        made = _claim(out, kind, model)
        free = list(crew)
        busy: dict[Any, Any] = {}
        for number, (job, size) in enumerate(jobs):
            key = digest([kind, model, job])
            path = out / f"part-{number:06}-{key[:16]}.parquet"
            files.append(path)
            rows += size
            if _whole(path, size):
                reused += 1
                if progress is not None:
                    progress(1.0)
                continue
            if not free and len(crew) < count:
                crew.append(actor.remote(*settings))
                free.append(crew[-1])
            while not free:
                _collect(ray, busy, free, progress)
            one = free.pop()
            busy[one.work.remote(job, path)] = one
        while busy:
            _collect(ray, busy, free, progress)
        for one in crew:
            ray.kill(one)
    if not files:
        raise InputError("no rows", place=kind, remedy="check how the input was made")
    for stale in set(out.glob("part-*.parquet")) - set(files):
        stale.unlink(missing_ok=True)
    made["parts"] = [path.name for path in files]
    _record(out, made)
    return Shards(out, tuple(files), rows, reused)


def _collect(ray: Any, busy: dict[Any, Any], free: list[Any], progress: Progress | None) -> None:
    """Wait for one worker to be done."""
    done = first_done(ray, list(busy))
    fetched(ray, done)
    free.append(busy.pop(done))
    if progress is not None:
        progress(1.0)


def _whole(path: Path, rows: int) -> bool:
    """Whether a shard is done: what is damaged is made again."""
    if not path.exists():
        return False
    try:
        return bool(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item() == rows)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        return False


def _claim(out: Path, kind: str, model: str) -> dict[str, Any]:
    """Mark a folder as holding what this model makes; refuse that of another."""
    made = {**manifest(kind, config={"model": model}), "parts": []}
    path = out / MANIFEST
    if path.exists():
        try:
            before = json.loads(path.read_text("utf-8"))
            same = before["kind"] == kind and before["config"]["model"] == model
        except (ValueError, KeyError, TypeError):
            same = False
        if not same:
            raise InputError(
                "the folder holds what another model made",
                place=str(out),
                remedy="name another folder, or remove this one",
            )
    else:
        _record(out, made)
    return made


def _record(out: Path, made: dict[str, Any]) -> None:
    text = json.dumps(made, indent=2, ensure_ascii=False) + "\n"
    write_atomically(out / MANIFEST, lambda path: path.write_text(text, "utf-8"))
