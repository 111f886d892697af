"""Exact search over vectors in shards, merged with its ties kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np
import polars as pl

from rankproof.audit.input_files import Vectors, read_vectors
from rankproof.cluster.session import connected, gather
from rankproof.cluster.shards import ClusterRun, File, find_files
from rankproof.data.tables import Run
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError, check_choice, check_whole_number, shorten
from rankproof.precision.array_types import format_of, is_torch
from rankproof.precision.exact_search import (
    GPU_FORMATS,
    check_depth,
    find_best,
    prepare_vectors,
    rescore_candidates,
    search_on_gpu,
    to_run,
)
from rankproof.precision.formats import FLOATS, Format, encode
from rankproof.precision.pipeline import Metric, Rescore, ScoringPipeline
from rankproof.precision.quantized_arrays import check_array, refuse_unlabeled_integers
from rankproof.precision.scorers import Scorer, check_dimensions, check_rows
from rankproof.precision.topk import TopK

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

    @property
    def label(self) -> str:
        return f"shard {self.at}" if self.file is None else self.file.label


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of a shard, and how many documents come before them in all."""

    shard: _Shard
    low: int
    high: int
    first: int


@dataclass(frozen=True, slots=True)
class _Task:
    """A search of some rows."""

    pipeline: ScoringPipeline
    count: int  # documents kept, or candidates to be rescored
    device: str


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
    """`rankproof.precision.search` over documents in shards: the same Run, and the same `cut`.

    `shards` are .npy or Parquet files (a column of ids and one of vectors): a folder, an address
    of fsspec, a list of them; or a list of arrays. Documents are numbered through all of them in
    order; ids come from Parquet, from `document_ids`, or are those numbers. They hold floats. With
    device="cuda" each task holds a GPU. A scale per dimension (int8_dimension) is taken from all
    shards first.

    >>> from rankproof import cluster
    >>> shards = [np.eye(4, dtype=np.float32)[:2], np.eye(4, dtype=np.float32)[2:]]
    >>> cluster.search(np.eye(4, dtype=np.float32)[3:], shards, k=1).doc.to_list()
    ['3']
    """
    check_depth(k)
    pipeline = ScoringPipeline.of(
        format or "float32",
        high_precision=high_precision,
        rescore=rescore,
        metric=metric,
        candidates=candidates,
    )
    check_choice("device", device, ("cpu", "cuda"))
    refuse_unlabeled_integers(queries, "queries")
    if hasattr(shards, "shape"):
        raise InputError("one array", place="shards", remedy="give a list of arrays")
    check_whole_number("rows_per_task", rows_per_task)
    with connected(address) as ray:
        arrays: list[Any] = []
        held: list[_Shard] = []
        if _are_arrays(shards):
            for at, shard in enumerate(shards):
                array = check_array(shard, f"shard {at}")
                check_rows(array, f"documents of shard {at}")
                held.append(_Shard(len(array), array.shape[1], format_of(array), False, None, at))
                if is_torch(array):
                    array = array.detach().float().cpu().numpy()
                arrays.append(ray.put(array))
        else:
            look = ray.remote(_look)
            held = gather(ray, [look.remote(f, at) for at, f in enumerate(find_files(shards))])
        if format is None:
            pipeline = ScoringPipeline.of(
                _default(held),
                high_precision=high_precision,
                rescore=rescore,
                metric=metric,
                candidates=candidates,
            )
        query_array, _ = prepare_vectors(queries, "queries", pipeline)
        total = _check(held, query_array)
        depth = min(int(k), total)
        count = pipeline.candidate_count(depth, total)
        task = _Task(pipeline, count, device)
        parts = _parts(held, rows_per_task)
        asked = ray.put(query_array)
        largest: Array | None = None
        if (
            pipeline.format == "int8_dimension"
        ):  # the largest magnitude of each dimension in all documents
            look_for = ray.remote(_largest)
            tasks = [look_for.remote(part, task, *_held(arrays, part)) for part in parts]
            largest = np.asarray(np.max(gather(ray, tasks), axis=0))
        options = {"num_gpus": 1} if device == "cuda" else {}
        find = ray.remote(**options)(_find) if options else ray.remote(_find)
        tasks = [find.remote(asked, part, task, largest, *_held(arrays, part)) for part in parts]
        merged: _Best | None = None
        for best in gather(ray, tasks):
            merged = best if merged is None else _merge(merged, best, count)
    assert merged is not None
    top, doc = merged.top, None
    if merged.exact is not None:
        top = rescore_candidates(merged.exact, top, depth)
    if merged.ids is not None and document_ids is None:
        rows = pl.DataFrame({"row": top.documents.ravel()})
        doc = rows.join(merged.ids, on="row", how="left", maintain_order="left")["id"]
    dtype = pipeline.score_dtype
    try:
        return to_run(top, query_ids, document_ids, total, dtype=dtype, name=name, doc=doc)
    except kernels.RepeatedDocument as again:
        assert doc is not None
        raise InputError(
            f"two documents have the id {shorten(doc[again.row])}",
            place="shards",
            remedy="make ids unique, or give document_ids",
        ) from None


def _are_arrays(shards: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(shards, Sequence) and any(hasattr(shard, "shape") for shard in shards)


def _check(shards: Sequence[_Shard], queries: Array) -> int:
    """How many documents there are; refuse dimensions that differ."""
    for shard in shards:
        refuse_unlabeled_integers(shard, shard.label)
        check_dimensions(queries.shape[1], shard.dimensions, shard.label)
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


def _parts(shards: Sequence[_Shard], rows: int) -> list[_Part]:
    """Every shard in parts of at most that many rows."""
    found: list[_Part] = []
    first = 0
    for shard in shards:
        found += [
            _Part(shard, low, min(shard.rows, low + rows), first + low)
            for low in range(0, shard.rows, rows)
        ]
        first += shard.rows
    return found


def _held(arrays: Sequence[Any], part: _Part) -> Sequence[Any]:
    """The array that a part is of, where it is not of a file."""
    return arrays[part.shard.at : part.shard.at + 1]


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


def _read(part: _Part, task: _Task, array: Array | None) -> tuple[Array, Array, Any]:
    """Rows as they are multiplied, their lengths, and their ids where they have them."""
    rows, ids = slice(part.low, part.high), None
    label = f"documents from {part.shard.label}, row {part.low}, on"
    if part.shard.file is None:
        assert array is not None
        return *prepare_vectors(array[rows], label, task.pipeline), None
    with part.shard.file.local() as path:
        found = _open(path, part.shard.file.label)
        if found.ids is not None:
            ids = found.ids[rows]
        values = np.array(found.values[rows], np.float32)
        return *prepare_vectors(values, label, task.pipeline), ids


def _largest(part: _Part, task: _Task, array: Array | None = None) -> Array:
    values, _, _ = _read(part, task, array)
    return np.asarray(np.abs(values).max(axis=0, keepdims=True))


def _find(
    queries: Array, part: _Part, task: _Task, largest: Array | None, array: Array | None = None
) -> _Best:
    """The best of one part."""
    documents, lengths, ids = _read(part, task, array)
    count = min(task.count, len(documents))
    exact = None
    if task.device == "cuda":
        top, exact = _find_on_gpu(queries, documents, count, task, largest)
    else:
        stored: Any = documents
        if largest is not None:  # a row that is as large as any sets the scale for all shards
            stored = encode(np.concatenate([documents, largest]), "int8_dimension")[:-1]
        pipeline = task.pipeline
        first_step = Scorer(
            queries,
            stored,
            pipeline.format,
            plain=pipeline.is_plain or pipeline.rescores,
            lengths=lengths,
            normalize=pipeline.has_decoded_cosine,
        )
        top = find_best(first_step, count)
        if pipeline.rescores:
            is_decoded = pipeline.scoring == "decoded"
            scorer = Scorer(
                queries,
                first_step.codes if is_decoded and first_step.codes is not None else documents,
                pipeline.format if is_decoded else "float32",
                plain=False,
                normalize=is_decoded and pipeline.metric == "cosine",
            )
            exact = scorer.pairs(top.documents)
    named = None
    if ids is not None:
        rows = np.unique(top.documents)
        named = pl.DataFrame({"row": rows + part.first, "id": ids.gather(rows)})
    return _Best(TopK(top.scores, top.documents + part.first, top.cut), exact, named)


def _find_on_gpu(
    queries: Array, documents: Array, count: int, task: _Task, largest: Array | None
) -> tuple[TopK, Array | None]:
    """The best of documents as they are multiplied, and what high precision scores them."""
    import torch

    def there(values: Array) -> Any:
        return torch.from_numpy(np.array(values)).cuda()

    held = there(documents)
    pipeline = task.pipeline
    normalize = pipeline.has_decoded_cosine
    if pipeline.format in GPU_FORMATS:
        prepared = pipeline if normalize else replace(pipeline, metric="dot")  # of unit length
        return search_on_gpu(there(queries), held, count, prepared), None
    from rankproof.precision import gpu_formats, gpu_search

    rows = held if largest is None else torch.cat([held, there(largest)])
    codes = gpu_formats.encode(rows, pipeline.format)[: len(held)]
    low = pipeline.is_plain
    best = gpu_formats.find_best(queries, codes, count, low=low, normalize=normalize)
    top = gpu_search.as_arrays(*best)
    if not pipeline.rescores:
        return top, None
    is_decoded = pipeline.scoring == "decoded"
    scores = gpu_formats.pairs(
        queries,
        codes if is_decoded else held,
        there(top.documents),
        normalize=is_decoded and pipeline.metric == "cosine",
    )
    return top, scores.cpu().numpy()


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
