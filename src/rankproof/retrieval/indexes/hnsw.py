"""HNSW index: a graph of neighbors that faiss builds and searches in part (Malkov, Yashunin 2018).

faiss draws the levels of a graph from a generator with a fixed seed. Built by one thread, the same
vectors give the same graph.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import Field

from rankproof.foundation.arrays import Array
from rankproof.foundation.config import Count, Settings
from rankproof.foundation.errors import InputError, import_extra
from rankproof.precision import fixed_sum
from rankproof.retrieval.archive import read_archive, write_archive
from rankproof.retrieval.components import part
from rankproof.retrieval.identity import contents_digest
from rankproof.retrieval.protocols import Retrieved, Vectors
from rankproof.retrieval.ranked_lists import check_queries, run_from_rows, time_each

_KIND = "HNSW (1)"
_ROWS_PER_CALL = 1000
_QUANTISERS = {"float16": "QT_fp16", "bfloat16": "QT_bf16", "int8": "QT_8bit"}


class HnswSettings(Settings):
    """A graph that is searched in part, by faiss.

    >>> from rankproof.retrieval.indexes.hnsw import HnswSettings
    >>> HnswSettings(type="hnsw", ef_search=128).ef_search
    128
    """

    type: Literal["hnsw"]
    format: Literal["float32", "float16", "bfloat16", "int8", "bit"] = "float32"
    m: Annotated[int, Field(ge=2, le=256)] = 32
    ef_construction: Count = 200
    ef_search: Count = 64
    candidates: Count | None = None  # rescored with the original vectors where given


@part("index", "hnsw", extra="retrieval", imports=("faiss",), packages=("faiss-cpu",))
def make_hnsw(
    settings: HnswSettings,
    vectors: Vectors,
    document_ids: pl.Series,
    folder: str | Path | None = None,
) -> HnswIndex:
    """Load the graph of these vectors from the folder, or build it and keep it there."""
    if folder is None:
        return HnswIndex.build(settings, vectors, document_ids)
    path = Path(folder) / f"hnsw-{_digest(settings, vectors, document_ids)}.npz"
    try:
        index = HnswIndex.load(path)
    except InputError:  # absent, or of another version
        index = HnswIndex.build(settings, vectors, document_ids)
        index.save(path)
        return index
    index.use(settings)  # the graph does not depend on how it is searched
    return index


def _digest(settings: HnswSettings, vectors: Vectors, document_ids: pl.Series) -> str:
    """Return a digest of all that decides the stored index, which ef_search does not."""
    stored = settings.model_dump(include={"format", "m", "ef_construction"})
    stored |= {"originals": settings.candidates is not None, "faiss": _faiss().__version__}
    return contents_digest([_KIND, stored, vectors.shape], vectors, document_ids.to_list())[:24]


class HnswIndex:
    """A graph, and the original vectors if the settings have candidates rescored by them."""

    def __init__(
        self,
        settings: HnswSettings,
        graph: Any,
        dimensions: int,
        document_ids: pl.Series,
        originals: Vectors | None,
        build_seconds: float,
    ):
        self.dimensions = dimensions
        self.document_ids = document_ids
        self.build_seconds = build_seconds
        self._graph = graph
        self._originals = originals
        self.use(settings)

    def use(self, settings: HnswSettings) -> None:
        """Search with other settings of the same graph: ef_search, candidates."""
        self.settings = settings
        self._graph.hnsw.efSearch = settings.ef_search

    @classmethod
    def build(cls, settings: HnswSettings, vectors: Vectors, document_ids: pl.Series) -> HnswIndex:
        """Build the graph of these vectors on one thread."""
        faiss = _faiss()
        dimensions = vectors.shape[1]
        metric = faiss.METRIC_INNER_PRODUCT
        start = time.perf_counter()
        values: Array = np.ascontiguousarray(vectors, np.float32)
        if settings.format == "bit":
            values = np.packbits(values > 0, axis=1)
            graph = faiss.IndexBinaryHNSW(8 * values.shape[1], settings.m)
        elif settings.format == "float32":
            graph = faiss.IndexHNSWFlat(dimensions, settings.m, metric)
        else:
            kind = getattr(faiss.ScalarQuantizer, _QUANTISERS[settings.format])
            graph = faiss.IndexHNSWSQ(dimensions, kind, settings.m, metric)
        graph.hnsw.efConstruction = settings.ef_construction
        with _one_thread(faiss):
            if not graph.is_trained:
                graph.train(values)
            for first in range(0, len(values), _ROWS_PER_CALL):  # between calls Ctrl-C is noticed
                graph.add(values[first : first + _ROWS_PER_CALL])
        seconds = time.perf_counter() - start
        originals = None if settings.candidates is None else vectors
        return cls(settings, graph, dimensions, document_ids, originals, seconds)

    @property
    def name(self) -> str:
        return f"hnsw {self.settings.format}"

    @cached_property
    def bytes(self) -> int:
        """Size of the graph with its vectors as faiss writes it, and of kept original vectors."""
        originals = 0 if self._originals is None else self._originals.nbytes
        return int(self._serialize().nbytes) + originals

    def _serialize(self) -> Array:
        """Return the graph as the bytes that faiss writes."""
        faiss = _faiss()
        is_binary = self.settings.format == "bit"
        serialize = faiss.serialize_index_binary if is_binary else faiss.serialize_index
        serialized: Array = serialize(self._graph)
        return serialized

    def search(self, queries: Vectors, k: int, query_ids: Sequence[str] | None = None) -> Retrieved:
        """Search one query after the other on one thread, each timed by itself.

        faiss follows max(efSearch, k) passages at a time. Passages that the search does not reach
        are missed: a list may be shorter than k, and ties with its last document are unknown.
        """
        check_queries(queries, k, self.dimensions)
        values = np.ascontiguousarray(queries, np.float32)
        with _one_thread(_faiss()):
            lists, seconds = time_each(values[:, None], lambda query: self._best(query, k))
        run = run_from_rows(self.name, query_ids, self.document_ids, lists, "float32", None)
        return Retrieved(run, seconds)

    def _best(self, query: Array, k: int) -> tuple[Array, Array]:
        """Return the rows and scores of the k best of one query (1, D), ties by row number."""
        count = min(len(self.document_ids), max(k, self.settings.candidates or 0))
        if self.settings.format == "bit":
            distance, rows = self._graph.search(np.packbits(query > 0, axis=1), count)
            scores = -distance[0].astype(np.float64)
        else:
            scores, rows = self._graph.search(query, count)
            scores = scores[0].astype(np.float64)
        rows, scores = rows[0][rows[0] >= 0], scores[rows[0] >= 0]
        if self._originals is not None:
            scores = fixed_sum.matrix(query, self._originals[rows])[0].astype(np.float64)
        best = np.lexsort((rows, -scores))[:k]
        return rows[best], scores[best]

    def save(self, path: str | Path) -> Path:
        """Write the index into one file: all of it or nothing."""
        header = {
            "settings": self.settings.model_dump(),
            "build_seconds": self.build_seconds,
            "dimensions": self.dimensions,
            "document_ids": self.document_ids.to_list(),
        }
        arrays = {"graph": self._serialize()}
        if self._originals is not None:
            arrays["originals"] = self._originals
        return write_archive(Path(path), _KIND, header, arrays)

    @classmethod
    def load(cls, path: str | Path) -> HnswIndex:
        """Load a saved index; raise InputError where there is none or it cannot be read."""
        header, arrays = read_archive(Path(path), _KIND)
        faiss = _faiss()
        settings = HnswSettings.model_validate(header["settings"])
        is_binary = settings.format == "bit"
        deserialize = faiss.deserialize_index_binary if is_binary else faiss.deserialize_index
        return cls(
            settings,
            deserialize(arrays["graph"]),
            header["dimensions"],
            document_ids=pl.Series(header["document_ids"], dtype=pl.String),
            originals=arrays.get("originals"),
            build_seconds=header["build_seconds"],
        )


def _faiss() -> Any:
    return import_extra("faiss", "an HNSW index", "retrieval")


@contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """Run faiss on one thread: the graph would depend on the order in which threads add."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
