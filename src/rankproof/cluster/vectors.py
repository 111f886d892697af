"""Exact search over vectors in shards: each part on its own, then merged.

The result is that of one machine to the last bit, with the number of documents that tie with the
last one and are cut off. So each part reports how many of its own it cut off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
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

ROWS = 262_144  # per task: 0.4 GB at 384 dimensions


@dataclass(frozen=True, slots=True)
class _Shard:
    """A file of vectors, or an array in Ray's store."""

    rows: int
    dimensions: int
    dtype: str
    has_ids: bool
    file: File | None  # None: an array
    index: int  # among the shards

    @property
    def label(self) -> str:
        return f"shard {self.index}" if self.file is None else self.file.label


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows [low, high) of a shard."""

    shard: _Shard
    low: int
    high: int
    first: int  # number of the first document among those of all shards


@dataclass(frozen=True, slots=True)
class _Task:
    """How each part is searched."""

    pipeline: ScoringPipeline
    count: int  # documents returned, or candidates to be rescored
    device: str


@dataclass(frozen=True, slots=True)
class _Best:
    """The best documents of some rows."""

    top: TopK  # by the format
    exact: Array | None  # (Q, count) their scores in high precision, if they are rescored
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

    def pipeline_of(documents: Format) -> ScoringPipeline:
        return ScoringPipeline.of(
            documents,
            high_precision=high_precision,
            rescore=rescore,
            metric=metric,
            candidates=candidates,
        )

    pipeline_of(format or "float32")  # refuses settings before Ray is started
    check_choice("device", device, ("cpu", "cuda"))
    refuse_unlabeled_integers(queries, "queries")
    if hasattr(shards, "shape"):
        raise InputError("one array", place="shards", remedy="give a list of arrays")
    check_whole_number("rows_per_task", rows_per_task)
    with connected(address) as ray:
        documents = _put_arrays(ray, shards) if _are_arrays(shards) else _open_files(ray, shards)
        pipeline = pipeline_of(format or documents.default_format())
        query_array, _ = prepare_vectors(queries, "queries", pipeline)
        total = documents.count(query_array)
        depth = min(int(k), total)
        task = _Task(pipeline, pipeline.candidate_count(depth, total), device)
        best = _search_shards(ray, documents, query_array, task, rows_per_task)
    top, doc = best.top, None
    if best.exact is not None:
        top = rescore_candidates(best.exact, top, depth)
    if best.ids is not None and document_ids is None:
        rows = pl.DataFrame({"row": top.documents.ravel()})
        doc = rows.join(best.ids, on="row", how="left", maintain_order="left")["id"]
    dtype = pipeline.score_dtype
    try:
        return to_run(top, query_ids, document_ids, total, dtype=dtype, name=name, doc=doc)
    except kernels.RepeatedDocument as repeated:
        assert doc is not None
        raise InputError(
            f"two documents have the id {shorten(doc[repeated.row])}",
            place="shards",
            remedy="make ids unique, or give document_ids",
        ) from None


@dataclass(frozen=True, slots=True)
class _Documents:
    """All shards of documents, in order; arrays lie in Ray's store."""

    shards: list[_Shard]
    arrays: list[Any]  # references, one for each shard; empty if the shards are files

    def count(self, queries: Array) -> int:
        """The number of documents; dimensions that differ and missing ids are refused."""
        for shard in self.shards:
            refuse_unlabeled_integers(shard, shard.label)
            check_dimensions(queries.shape[1], shard.dimensions, shard.label)
        total = sum(shard.rows for shard in self.shards)
        if not total:
            raise InputError("no vectors", place="documents", remedy="name shards that hold some")
        if len({shard.has_ids for shard in self.shards if shard.rows}) > 1:
            raise InputError(
                "some shards have ids and some have none", remedy="write all of them as Parquet"
            )
        return total

    def default_format(self) -> Format:
        """The format that a search on one machine would take for these documents."""
        dtypes = {shard.dtype for shard in self.shards}
        dtype = dtypes.pop() if len(dtypes) == 1 else "float32"
        return dtype if dtype in FLOATS else "float32"  # type: ignore[return-value]

    def parts(self, rows: int) -> Iterator[tuple[_Part, Sequence[Any]]]:
        """Yield parts of at most so many rows, each with the reference to its array if it has one.

        Ray replaces a reference by the array only where it is an argument of its own.
        """
        first = 0
        for shard in self.shards:
            array = self.arrays[shard.index : shard.index + 1]
            for low in range(0, shard.rows, rows):
                yield _Part(shard, low, min(shard.rows, low + rows), first + low), array
            first += shard.rows


def _put_arrays(ray: Any, arrays: Sequence[Any]) -> _Documents:
    """Check arrays of documents and put them into Ray's store."""
    documents = _Documents([], [])
    for index, item in enumerate(arrays):
        array = check_array(item, f"shard {index}")
        check_rows(array, f"documents of shard {index}")
        documents.shards.append(
            _Shard(
                rows=len(array),
                dimensions=array.shape[1],
                dtype=format_of(array),
                has_ids=False,
                file=None,
                index=index,
            )
        )
        if is_torch(array):
            array = array.detach().float().cpu().numpy()
        documents.arrays.append(ray.put(array))
    return documents


def _open_files(ray: Any, source: ClusterRun) -> _Documents:
    """Have workers look what each file of vectors holds."""
    describe = ray.remote(_describe_file)
    tasks = [describe.remote(file, index) for index, file in enumerate(find_files(source))]
    return _Documents(gather(ray, tasks), [])


def _search_shards(
    ray: Any, documents: _Documents, queries: Array, task: _Task, rows_per_task: int
) -> _Best:
    """The best documents of all shards."""
    parts = list(documents.parts(rows_per_task))
    queries_reference = ray.put(queries)
    largest: Array | None = None
    if task.pipeline.format == "int8_dimension":  # its scales depend on all documents
        measure = ray.remote(_largest_magnitudes)
        tasks = [measure.remote(part, task, *array) for part, array in parts]
        largest = np.asarray(np.max(gather(ray, tasks), axis=0))
    find = ray.remote(num_gpus=1)(_find) if task.device == "cuda" else ray.remote(_find)
    tasks = [find.remote(queries_reference, part, task, largest, *array) for part, array in parts]
    best: _Best = reduce(partial(_merge, count=task.count), gather(ray, tasks))
    return best


def _are_arrays(shards: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(shards, Sequence) and any(hasattr(shard, "shape") for shard in shards)


# ---------------------------------------------------------------------------------- in workers


def _describe_file(file: File, index: int) -> _Shard:
    with file.local() as path:
        vectors = _open(path, file.label)
        return _Shard(
            rows=len(vectors.values),
            dimensions=vectors.values.shape[1],
            dtype=str(vectors.values.dtype),
            has_ids=vectors.ids is not None,
            file=file,
            index=index,
        )


def _open(path: str, label: str) -> Vectors:
    """Read a file of vectors; a plain .npy file is mapped, so that only used rows are read."""
    with open(path, "rb") as file:  # noqa: PTH123
        is_npy = file.read(6) == b"\x93NUMPY"
    if is_npy:
        try:
            values = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError):  # `read_vectors` raises the error with its place
            values = np.zeros(0)
        if values.ndim == 2 and values.dtype.kind in "fiu":
            return Vectors(values, None, label)
    vectors = read_vectors(path)
    return Vectors(vectors.values, vectors.ids, label)


def _read(part: _Part, task: _Task, array: Array | None) -> tuple[Array, Array, Any]:
    """Read a part: its vectors as they are multiplied, their lengths, and their ids or None."""
    rows, ids = slice(part.low, part.high), None
    label = f"documents from {part.shard.label}, row {part.low}, on"
    if part.shard.file is None:
        assert array is not None
        return *prepare_vectors(array[rows], label, task.pipeline), None
    with part.shard.file.local() as path:
        vectors = _open(path, part.shard.file.label)
        if vectors.ids is not None:
            ids = vectors.ids[rows]
        values = np.array(vectors.values[rows], np.float32)
        return *prepare_vectors(values, label, task.pipeline), ids


def _largest_magnitudes(part: _Part, task: _Task, array: Array | None = None) -> Array:
    """(1, dimensions) the largest magnitude of each dimension in a part."""
    values, _, _ = _read(part, task, array)
    return np.asarray(np.abs(values).max(axis=0, keepdims=True))


def _find(
    queries: Array, part: _Part, task: _Task, largest: Array | None, array: Array | None = None
) -> _Best:
    """The best documents of one part."""
    documents, lengths, ids = _read(part, task, array)
    count = min(task.count, len(documents))
    if task.device == "cuda":
        top, exact = _find_on_gpu(queries, documents, count, task, largest)
    else:
        top, exact = _find_on_cpu(queries, documents, lengths, replace(task, count=count), largest)
    id_of_row = None
    if ids is not None:
        rows = np.unique(top.documents)
        id_of_row = pl.DataFrame({"row": rows + part.first, "id": ids.gather(rows)})
    return _Best(TopK(top.scores, top.documents + part.first, top.cut), exact, id_of_row)


def _find_on_cpu(
    queries: Array, documents: Array, lengths: Array, task: _Task, largest: Array | None
) -> tuple[TopK, Array | None]:
    """The best documents by the format, and their scores in high precision if rescored."""
    stored: Any = documents
    if largest is not None:  # as a last row, the largest magnitudes set the scale of all shards
        stored = encode(np.concatenate([documents, largest]), "int8_dimension")[:-1]
    pipeline = task.pipeline
    scorer = Scorer(
        queries,
        stored,
        pipeline.format,
        plain=pipeline.is_plain or pipeline.rescores,
        lengths=lengths,
        normalize=pipeline.has_decoded_cosine,
    )
    top = find_best(scorer, task.count)
    if not pipeline.rescores:
        return top, None
    is_decoded = pipeline.scoring == "decoded"
    exact_scorer = Scorer(
        queries,
        scorer.codes if is_decoded and scorer.codes is not None else documents,
        pipeline.format if is_decoded else "float32",
        plain=False,
        normalize=is_decoded and pipeline.metric == "cosine",
    )
    return top, exact_scorer.pairs(top.documents)


def _find_on_gpu(
    queries: Array, documents: Array, count: int, task: _Task, largest: Array | None
) -> tuple[TopK, Array | None]:
    """As `_find_on_cpu`, on a GPU."""
    import torch

    def to_gpu(values: Array) -> Any:
        return torch.from_numpy(np.array(values)).cuda()

    vectors = to_gpu(documents)
    pipeline = task.pipeline
    normalize = pipeline.has_decoded_cosine
    if pipeline.format in GPU_FORMATS:
        prepared = pipeline if normalize else replace(pipeline, metric="dot")  # of unit length
        return search_on_gpu(to_gpu(queries), vectors, count, prepared), None
    from rankproof.precision import gpu_formats, gpu_search

    rows = vectors if largest is None else torch.cat([vectors, to_gpu(largest)])
    codes = gpu_formats.encode(rows, pipeline.format)[: len(vectors)]
    best = gpu_formats.find_best(queries, codes, count, low=pipeline.is_plain, normalize=normalize)
    top = gpu_search.as_arrays(*best)
    if not pipeline.rescores:
        return top, None
    is_decoded = pipeline.scoring == "decoded"
    scores = gpu_formats.pairs(
        queries,
        codes if is_decoded else vectors,
        to_gpu(top.documents),
        normalize=is_decoded and pipeline.metric == "cosine",
    )
    return top, scores.cpu().numpy()


# ---------------------------------------------------------------------------------- in the driver


def _merge(a: _Best, b: _Best, count: int) -> _Best:
    """The best of two ranges, b after a; of equal scores the document that comes first.

    The merged `cut` counts the documents beyond `count` with the last score. Besides those of the
    two lists these are the `cut` of each range whose own list ends in that score; a list that
    ends in a lower score has all of them.
    """
    scores = np.concatenate([a.top.scores, b.top.scores], axis=1)
    by_score = np.argsort(-scores, axis=1, kind="stable")  # documents ascend from a to b
    best, beyond = by_score[:, :count], by_score[:, count:]
    best_scores = np.take_along_axis(scores, best, axis=1)
    last_score = best_scores[:, -1:]
    cut = (np.take_along_axis(scores, beyond, axis=1) == last_score).sum(axis=1)
    for top in (a.top, b.top):
        cut = cut + np.where(top.scores[:, -1] == last_score[:, 0], top.cut, 0)
    documents = np.concatenate([a.top.documents, b.top.documents], axis=1)
    documents = np.take_along_axis(documents, best, axis=1)
    exact = None
    if a.exact is not None and b.exact is not None:
        exact = np.take_along_axis(np.concatenate([a.exact, b.exact], axis=1), best, axis=1)
    ids = None
    if a.ids is not None and b.ids is not None:
        best_rows = pl.DataFrame({"row": np.unique(documents)})
        ids = pl.concat([a.ids, b.ids]).join(best_rows, on="row", how="semi")
    return _Best(TopK(best_scores, documents, cut), exact, ids)
