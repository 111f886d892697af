"""Row numbers that an index found → a Run with ids. Lists may be of any length, also empty."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import polars as pl

from rankproof.data.columns import row_ids
from rankproof.data.tables import Run
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Float, Int
from rankproof.foundation.errors import InputError, shorten
from rankproof.precision.scorers import check_dimensions, check_vectors

S = TypeVar("S")
T = TypeVar("T")


def check_depth(k: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k < 1 << 31:
        raise InputError(f"k = {shorten(k)}", remedy="ask for 1 document or more, below 2^31")


def check_asked(queries: Array, k: int, dimensions: int) -> None:
    """Vectors to be searched with, as long as those that are indexed."""
    check_depth(k)
    check_vectors(queries, "queries")
    check_dimensions(queries.shape[1], dimensions)


def timed(asked: Iterable[S], answer: Callable[[S], T]) -> tuple[list[T], Float]:
    """What each is answered, one after the other, and the seconds that each took by itself."""
    found, seconds = [], []
    for one in asked:
        begun = time.perf_counter()
        found.append(answer(one))
        seconds.append(time.perf_counter() - begun)
    return found, np.array(seconds, np.float64)


def run_of(
    name: str,
    query_ids: Sequence[str] | None,
    document_ids: pl.Series | Sequence[str],
    found: Sequence[tuple[Array, Array]],
    dtype: str,
    cut: Int | None,
) -> Run:
    """A Run of each query's documents (row numbers, and scores), best first.

    >>> from rankproof.retrieval.row_lists import run_of
    >>> found = [(np.array([2, 0]), np.array([0.9, 0.4]))]
    >>> run_of("mine", ["q1"], ["a", "b", "c"], found, "float32", None).doc.to_list()
    ['c', 'a']
    """
    start = np.zeros(len(found) + 1, np.int64)
    np.cumsum([len(rows) for rows, _ in found], out=start[1:])
    rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in found)])
    score = np.concatenate([np.empty(0, np.float64), *(scores for _, scores in found)])
    if not isinstance(document_ids, pl.Series):
        document_ids = pl.Series(document_ids, dtype=pl.String)
    doc = picked(document_ids, rows.astype(np.int64))
    if len(found) == 1 and query_ids is None:
        queries = _FIRST
    else:
        queries = row_ids(query_ids, len(found), "query_ids").alias("query")
    for column in (start, score):
        column.flags.writeable = False
    return Run(name, queries, start, doc, score, dtype, cut, index_of(doc, start))


_FIRST = pl.Series("query", ["0"], dtype=pl.String)
_SHORT = 1000  # rows of one list, which is looked through sooner than indexed


def picked(ids: pl.Series, rows: Int) -> pl.Series:
    """The ids of these rows, as a column of documents."""
    found = ids[pl.Series(rows.astype(np.uint32))]  # which spares the planning of `gather`
    return (found if found.n_chunks() == 1 else found.rechunk()).alias("doc")


def index_of(doc: pl.Series, start: Int) -> kernels.DocumentIndex | None:
    """Of lists whose documents are told apart already: a short one needs none."""
    return None if len(start) == 2 and len(doc) <= _SHORT else kernels.index_documents(doc, start)
