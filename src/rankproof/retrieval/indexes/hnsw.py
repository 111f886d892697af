"""Hierarchical navigable small worlds, by faiss: a graph of neighbours, searched in part.

faiss draws a graph's levels from a generator with a fixed seed; built by one thread, the same
vectors give the same graph.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
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
from rankproof.retrieval.protocols import Retrieved, Vectors
from rankproof.retrieval.row_lists import check_asked, run_of, timed

_KIND = "HNSW (1)"
_STEP = 1000  # passages between two words of progress
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
    progress: Callable[[float], None] | None = None,
) -> HnswIndex:
    """A graph of these vectors: from the cache where it holds one, else built and kept there."""
    if folder is None:
        return HnswIndex.build(settings, vectors, document_ids, progress)
    path = Path(folder) / f"hnsw-{_digest(settings, vectors, document_ids)}.npz"
    try:
        index = HnswIndex.load(path)
    except InputError:  # absent, or of another version
        index = HnswIndex.build(settings, vectors, document_ids, progress)
        index.save(path)
        return index
    index.use(settings)  # the graph is the same, however much of it is searched
    if progress is not None:
        progress(len(vectors))
    return index


def _digest(settings: HnswSettings, vectors: Vectors, document_ids: pl.Series) -> str:
    """Of all that decides what is kept; efSearch is free to change."""
    kept = settings.model_dump(include={"format", "m", "ef_construction"})
    kept |= {"originals": settings.candidates is not None, "faiss": _faiss().__version__}
    sha = hashlib.sha256(json.dumps([_KIND, kept, vectors.shape]).encode())
    sha.update(np.ascontiguousarray(vectors).data)
    sha.update("\0".join(document_ids.to_list()).encode())
    return sha.hexdigest()[:24]


class HnswIndex:
    """A graph, and the original vectors where the settings ask for candidates to be rescored."""

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
        """Search with other settings of the same graph: efSearch, candidates."""
        self.settings = settings
        self._graph.hnsw.efSearch = settings.ef_search

    @classmethod
    def build(
        cls,
        settings: HnswSettings,
        vectors: Vectors,
        document_ids: pl.Series,
        progress: Callable[[float], None] | None = None,
    ) -> HnswIndex:
        faiss = _faiss()
        dimensions = vectors.shape[1]
        metric = faiss.METRIC_INNER_PRODUCT
        begun = time.perf_counter()
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
            for first in range(0, len(values), _STEP):
                some = values[first : first + _STEP]
                graph.add(some)
                if progress is not None:
                    progress(len(some))
        seconds = time.perf_counter() - begun
        originals = None if settings.candidates is None else vectors
        return cls(settings, graph, dimensions, document_ids, originals, seconds)

    @property
    def name(self) -> str:
        return f"hnsw {self.settings.format}"

    @cached_property
    def bytes(self) -> int:
        """The graph with its vectors as faiss writes it, and the original vectors where kept."""
        kept = 0 if self._originals is None else self._originals.nbytes
        return int(self._written().nbytes) + kept

    def _written(self) -> Array:
        faiss = _faiss()
        binary = self.settings.format == "bit"
        write = faiss.serialize_index_binary if binary else faiss.serialize_index
        written: Array = write(self._graph)
        return written

    def search(self, queries: Vectors, k: int, query_ids: Sequence[str] | None = None) -> Retrieved:
        """One query after the other on one thread, each timed by itself.

        faiss looks at max(efSearch, k) passages at a time. What the graph does not reach is not
        found: a list may be shorter than k, and what ties with its last document is not known.
        """
        check_asked(queries, k, self.dimensions)
        values = np.ascontiguousarray(queries, np.float32)
        with _one_thread(_faiss()):
            found, seconds = timed(values[:, None], lambda query: self._best(query, k))
        run = run_of(self.name, query_ids, self.document_ids, found, "float32", None)
        return Retrieved(run, seconds)

    def _best(self, query: Array, k: int) -> tuple[Array, Array]:
        """Rows and scores of one query (1, D)."""
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
        said = {
            "settings": self.settings.model_dump(),
            "build_seconds": self.build_seconds,
            "dimensions": self.dimensions,
            "document_ids": self.document_ids.to_list(),
        }
        arrays = {"graph": self._written()}
        if self._originals is not None:
            arrays["originals"] = self._originals
        return write_archive(Path(path), _KIND, said, arrays)

    @classmethod
    def load(cls, path: str | Path) -> HnswIndex:
        """An index that was saved; InputError where there is none or it cannot be read."""
        said, arrays = read_archive(Path(path), _KIND)
        faiss = _faiss()
        settings = HnswSettings.model_validate(said["settings"])
        binary = settings.format == "bit"
        read = faiss.deserialize_index_binary if binary else faiss.deserialize_index
        return cls(
            settings,
            read(arrays["graph"]),
            said["dimensions"],
            pl.Series(said["document_ids"], dtype=pl.String),
            arrays.get("originals"),
            said["build_seconds"],
        )


def _faiss() -> Any:
    return import_extra("faiss", "an HNSW index", "retrieval")


@contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """Threads that add at the same time would make a graph that depends on their turns."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
