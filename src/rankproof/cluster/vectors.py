"""Exact search over vectors in shards, merged with its ties kept.

A float32 sum of products can differ in its last bit with the shape of the block that BLAS works on.
Work is therefore cut where one machine would cut its blocks, whatever files the rows are in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import polars as pl

from rankproof.arrays import Array
from rankproof.audit.sources import Vectors, read_vectors
from rankproof.cluster.session import connected, gather
from rankproof.cluster.shards import ClusterRun, File, find_files
from rankproof.errors import InputError, shorten
from rankproof.scoring.exact import (
    OVERSAMPLE,
    Metric,
    Rescore,
    best_of,
    block_of,
    on_gpu,
    vectors_of,
)
from rankproof.scoring.formats import FLOATS, Format, check_format, encode
from rankproof.scoring.scorers import Scorer
from rankproof.scoring.topk import TopK
from rankproof.tables import Run, build_run

ROWS = 262_144  # of a task: 0.4 GB of 384 dimensions


@dataclass(frozen=True, slots=True)
class _Shard:
    """A file of vectors, or an array in Ray's store."""

    rows: int
    dimensions: int
    dtype: str
    has_ids: bool
    file: File | None  # None: an array
    at: int  # which of the shards it is


@dataclass(frozen=True, slots=True)
class _Task:
    """What is asked of every range of rows."""

    form: Format
    high_precision: bool
    rescore: Rescore
    count: int  # documents kept, or candidates to be rescored
    metric: Metric
    device: str

    @property
    def two_steps(self) -> bool:
        return self.high_precision and self.form not in FLOATS


@dataclass(frozen=True, slots=True)
class _Best:
    """The best of some rows: by the format, what high precision scores them, and their ids."""

    top: TopK
    exact: Array | None  # (Q, count)
    ids: pl.DataFrame | None  # row, id


def search(
    queries: Any,
    shards: ClusterRun,
    k: int,
    *,
    format: Format | None = None,  # noqa: A002
    high_precision: bool = True,
    rescore: Rescore = "decoded",
    candidates: int | None = None,
    metric: Metric = "dot",
    query_ids: Sequence[str] | None = None,
    document_ids: Sequence[str] | None = None,
    name: str = "search",
    device: str = "cpu",
    address: str | None = None,
    rows_per_task: int = ROWS,
) -> Run:
    """`rankproof.scoring.search` over documents in shards: the same Run, and the same `cut`.

    `shards` are .npy or Parquet files (a column of ids and one of vectors): a folder, an address
    of fsspec, a list of them; or a list of arrays. Documents are numbered through all of them in
    order; ids come from Parquet, from `document_ids`, or are those numbers. With device="cuda"
    each task holds a GPU. A scale per dimension (int8_dimension) is taken from all shards first.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k = {shorten(k)}", remedy="ask for 1 document or more")
    for what, given, known in (
        ("metric", metric, ("dot", "cosine")),
        ("rescore", rescore, ("decoded", "original")),
        ("device", device, ("cpu", "cuda")),
    ):
        if given not in known:
            raise InputError(
                f"{what} {shorten(given)} is unknown", remedy=f"use {' or '.join(known)}"
            )
    query_array = vectors_of(queries, "queries", metric)
    with connected(address) as ray:
        arrays: list[Any] = []
        if _are_arrays(shards):
            arrays = [np.asarray(shard) for shard in shards]
            held = [
                _Shard(len(a), a.shape[1] if a.ndim == 2 else -1, str(a.dtype), False, None, at)
                for at, a in enumerate(arrays)
            ]
            arrays = [ray.put(array) for array in arrays]
        else:
            look = ray.remote(_look)
            held = gather(ray, [look.remote(f, at) for at, f in enumerate(find_files(shards))])
        total = _check(held, query_array)
        form = format or _default(held)
        check_format(form)
        if device == "cuda" and form not in ("float32", "float16", "bfloat16"):
            raise InputError(f"{form} is not searched on a GPU", remedy="use device='cpu'")
        depth = min(int(k), total)
        two_steps = high_precision and form not in FLOATS
        count = min(total, max(depth, candidates or OVERSAMPLE * depth)) if two_steps else depth
        task = _Task(form, high_precision, rescore, count, metric, device)
        step = block_of(len(query_array))
        ranges = _ranges(total, max(1, rows_per_task // step) * step)
        asked = ray.put(query_array)
        largest = (
            _calibrate(ray, held, arrays, ranges, metric) if form == "int8_dimension" else None
        )
        options = {"num_gpus": 1} if device == "cuda" else {}
        find = ray.remote(**options)(_find) if options else ray.remote(_find)
        tasks = []
        for first, last in ranges:
            parts = _parts(held, first, last)
            blocks = [arrays[shard.at] for shard, _, _ in parts if shard.file is None]
            tasks.append(find.remote(asked, parts, first, task, largest, *blocks))
        merged: _Best | None = None
        for best in gather(ray, tasks):
            merged = best if merged is None else _merge(merged, best, count)
    assert merged is not None
    return _to_run(merged, depth, query_ids, document_ids, total, task, name)


def _are_arrays(shards: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(shards, Sequence) and any(hasattr(shard, "shape") for shard in shards)


def _check(shards: Sequence[_Shard], queries: Array) -> int:
    """How many documents there are; refuse dimensions that differ."""
    for at, shard in enumerate(shards):
        where = f"shard {at}" if shard.file is None else shard.file.label
        if shard.dimensions != queries.shape[1]:
            raise InputError(
                f"queries have {queries.shape[1]} dimensions and documents {shard.dimensions}",
                place=where,
                remedy="embed both with the same model",
            )
    total = sum(shard.rows for shard in shards)
    if not total:
        raise InputError("no vectors", place="documents", remedy="name shards that hold some")
    if len({shard.has_ids for shard in shards if shard.rows}) > 1:
        raise InputError(
            "some shards have ids and some have none", remedy="write all of them as Parquet"
        )
    return total


def _default(shards: Sequence[_Shard]) -> Format:
    """The format of the documents, as one machine would take it."""
    types = {shard.dtype for shard in shards}
    found = types.pop() if len(types) == 1 else "float32"
    return found if found in FLOATS else "float32"  # type: ignore[return-value]


def _ranges(total: int, rows: int) -> list[tuple[int, int]]:
    return [(first, min(total, first + rows)) for first in range(0, total, rows)]


def _parts(shards: Sequence[_Shard], first: int, last: int) -> list[tuple[_Shard, int, int]]:
    """The rows of each shard that lie in [first, last) of all."""
    found, begin = [], 0
    for shard in shards:
        low, high = max(first - begin, 0), min(last - begin, shard.rows)
        if low < high:
            found.append((shard, low, high))
        begin += shard.rows
    return found


def _calibrate(
    ray: Any, shards: Sequence[_Shard], arrays: list[Any], ranges: Any, metric: Metric
) -> Array:
    """(1, D) the largest magnitude of each dimension over all documents."""
    largest = ray.remote(_largest)
    tasks = []
    for first, last in ranges:
        parts = _parts(shards, first, last)
        blocks = [arrays[shard.at] for shard, _, _ in parts if shard.file is None]
        tasks.append(largest.remote(parts, metric, *blocks))
    return np.asarray(np.max(gather(ray, tasks), axis=0))


# ------------------------------------------------------------------------------ what workers do


def _look(file: File, at: int) -> _Shard:
    with file.local() as path:
        vectors = _open(path, file.label)
        values = vectors.values
        has_ids = vectors.ids is not None
        return _Shard(len(values), values.shape[1], str(values.dtype), has_ids, file, at)


def _open(path: str, label: str) -> Vectors:
    """A plain .npy file is mapped, so that only the rows that are used are read."""
    with open(path, "rb") as file:  # noqa: PTH123
        plain = file.read(6) == b"\x93NUMPY"
    if plain:
        try:
            values = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError):  # for the reader that says what is wrong
            values = np.zeros(0)
        if values.ndim == 2 and values.dtype.kind in "fiu":
            return Vectors(values, None, label)
    found = read_vectors(path)
    return Vectors(found.values, found.ids, label)


def _read(parts: Sequence[tuple[_Shard, int, int]], blocks: Sequence[Array]) -> tuple[Array, Any]:
    """Rows of several shards as one float32 array, and their ids where they have them."""
    values, ids, left = [], [], list(blocks)
    for shard, low, high in parts:
        if shard.file is None:
            values.append(np.asarray(left.pop(0)[low:high], np.float32))
            continue
        with shard.file.local() as path:
            found = _open(path, shard.file.label)
            values.append(np.asarray(found.values[low:high], np.float32))
            if found.ids is not None:
                ids.append(found.ids[low:high])
    return np.concatenate(values), pl.concat(ids) if ids else None


def _label(parts: Sequence[tuple[_Shard, int, int]]) -> str:
    """For a message: the row it names is counted from the first of these."""
    shard, low, _ = parts[0]
    where = f"shard {shard.at}" if shard.file is None else shard.file.label
    return f"documents from {where}, row {low}, on"


def _largest(parts: Any, metric: Metric, *blocks: Array) -> Array:
    values, _ = _read(parts, blocks)
    return np.asarray(np.abs(vectors_of(values, _label(parts), metric)).max(axis=0, keepdims=True))


def _find(
    queries: Array, parts: Any, first: int, task: _Task, largest: Array | None, *blocks: Array
) -> _Best:
    """The best of one range of rows."""
    values, ids = _read(parts, blocks)
    documents = vectors_of(values, _label(parts), task.metric)
    count = min(task.count, len(documents))
    exact = None
    if task.device == "cuda":
        top = _find_on_gpu(queries, documents, count, task)
    else:
        stored: Any = documents
        if largest is not None:  # a row that is as large as any sets the scale for all shards
            stored = encode(np.concatenate([documents, largest]), task.form)[:-1]
        plain = Scorer(queries, stored, task.form, plain=task.two_steps or not task.high_precision)
        top = best_of(plain, count)
        if task.two_steps:
            against: Any = plain.codes if task.rescore == "decoded" else documents
            form: Format = task.form if task.rescore == "decoded" else "float32"
            exact = Scorer(queries, against, form, plain=False).pairs(top.documents)
    named = None
    if ids is not None:
        rows = np.unique(top.documents)
        named = pl.DataFrame({"row": rows + first, "id": ids.gather(rows)})
    return _Best(TopK(top.scores, top.documents + first, top.cut), exact, named)


def _find_on_gpu(queries: Array, documents: Array, count: int, task: _Task) -> TopK:
    import torch

    there = [torch.from_numpy(np.array(x)).cuda() for x in (queries, documents)]
    return on_gpu(there[0], there[1], count, task.form, task.high_precision, "dot")


# ------------------------------------------------------------------------------------- together


def _merge(a: _Best, b: _Best, count: int) -> _Best:
    """The best of two ranges, b after a; of equal scores the document that comes first.

    A range that kept its `count` best and ends in a score below the last one kept of both has
    left out nothing that ties with it; one that ends in that very score has left out its `cut`.
    """
    scores = np.concatenate([a.top.scores, b.top.scores], axis=1)
    by_score = np.argsort(-scores, axis=1, kind="stable")  # documents ascend from a to b
    kept, rest = by_score[:, :count], by_score[:, count:]
    best = np.take_along_axis(scores, kept, axis=1)
    bar = best[:, -1:]
    cut = (np.take_along_axis(scores, rest, axis=1) == bar).sum(axis=1)
    for one in (a.top, b.top):
        cut = cut + np.where(one.scores[:, -1] == bar[:, 0], one.cut, 0)
    documents = np.concatenate([a.top.documents, b.top.documents], axis=1)
    documents = np.take_along_axis(documents, kept, axis=1)
    exact = None
    if a.exact is not None and b.exact is not None:
        exact = np.take_along_axis(np.concatenate([a.exact, b.exact], axis=1), kept, axis=1)
    ids = None
    if a.ids is not None and b.ids is not None:
        used = pl.DataFrame({"row": np.unique(documents)})
        ids = pl.concat([a.ids, b.ids]).join(used, on="row", how="semi")
    return _Best(TopK(best, documents, cut), exact, ids)


def _to_run(
    best: _Best,
    k: int,
    query_ids: Sequence[str] | None,
    document_ids: Sequence[str] | None,
    total: int,
    task: _Task,
    name: str,
) -> Run:
    top = best.top
    if best.exact is not None:  # of equal scores the candidate found first
        by_score = np.argsort(-best.exact, axis=1, kind="stable")[:, :k]
        top = TopK(
            np.take_along_axis(best.exact, by_score, axis=1),
            np.take_along_axis(top.documents, by_score, axis=1),
            top.cut,
        )
    rows = top.documents.ravel()
    if best.ids is not None and document_ids is None:
        listed = pl.DataFrame({"row": rows}).join(
            best.ids, on="row", how="left", maintain_order="left"
        )
        doc = listed["id"]
    elif document_ids is None:
        doc = pl.Series(rows).cast(pl.String)
    else:
        if len(document_ids) != total:
            raise InputError(
                f"{len(document_ids)} ids for {total} vectors",
                place="document_ids",
                remedy="give one each",
            )
        doc = pl.Series(document_ids, dtype=pl.String).gather(pl.Series(rows))
    count = len(top.documents)
    queries = pl.Series(np.arange(count)).cast(pl.String)
    if query_ids is not None:
        queries = pl.Series(list(query_ids), dtype=pl.String)
        if len(queries) != count or queries.is_duplicated().any():
            raise InputError(
                f"{queries.n_unique()} different ids for {count} queries",
                place="query_ids",
                remedy="give one each",
            )
    dtype = "float32" if task.high_precision or task.form not in FLOATS else task.form
    codes = np.repeat(np.arange(count, dtype=np.int32), top.documents.shape[1])
    return build_run(
        *(name, queries, codes, doc, top.scores.ravel().astype(np.float64), dtype),
        cut=top.cut.astype(np.int64),
    )
