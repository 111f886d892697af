"""Ranked lists as Runs: made from row numbers or hits, cut to their first k, and rescored.

Indexes return row numbers and search engines return ids; lists may be of any length, also empty.
Cutting a list keeps count of the documents that tie with the last one kept (`Run.cut`), because the
order among them was arbitrary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import polars as pl

from rankproof.data.columns import row_ids
from rankproof.data.hits import RANKS, Hits
from rankproof.data.tables import Run, build_run
from rankproof.data.ties import rank_run
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Float, Int
from rankproof.foundation.errors import InputError, shorten
from rankproof.precision.scorers import check_dimensions, check_vectors

S = TypeVar("S")
T = TypeVar("T")
_ONE_QUERY = pl.Series("query", ["0"], dtype=pl.String)
_UNINDEXED = 1000  # rows of a single list that are searched faster than indexed


def check_depth(k: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k < 1 << 31:
        raise InputError(f"k = {shorten(k)}", remedy="ask for 1 document or more, below 2^31")


def check_queries(queries: Array, k: int, dimensions: int) -> None:
    """Refuse query vectors that are not as long as the indexed ones, and an impossible k."""
    check_depth(k)
    check_vectors(queries, "queries")
    check_dimensions(queries.shape[1], dimensions)


def time_each(queries: Iterable[S], search: Callable[[S], T]) -> tuple[list[T], Float]:
    """Search one query after the other; return the results and the seconds of each."""
    results, seconds = [], []
    for query in queries:
        start = time.perf_counter()
        results.append(search(query))
        seconds.append(time.perf_counter() - start)
    return results, np.array(seconds, np.float64)


def run_from_rows(
    name: str,
    query_ids: Sequence[str] | None,
    document_ids: pl.Series | Sequence[str],
    lists: Sequence[tuple[Array, Array]],
    dtype: str,
    cut: Int | None,
) -> Run:
    """Return a Run of each query's documents, given as row numbers and scores, best first.

    >>> from rankproof.retrieval.ranked_lists import run_from_rows
    >>> lists = [(np.array([2, 0]), np.array([0.9, 0.4]))]
    >>> run_from_rows("mine", ["q1"], ["a", "b", "c"], lists, "float32", None).doc.to_list()
    ['c', 'a']
    """
    start = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(rows) for rows, _ in lists], out=start[1:])
    rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in lists)])
    score = np.concatenate([np.empty(0, np.float64), *(scores for _, scores in lists)])
    if not isinstance(document_ids, pl.Series):
        document_ids = pl.Series(document_ids, dtype=pl.String)
    doc = take_documents(document_ids, rows.astype(np.int64))
    queries = _ONE_QUERY
    if len(lists) != 1 or query_ids is not None:
        queries = row_ids(query_ids, len(lists), "query_ids").alias("query")
    for column in (start, score):
        column.flags.writeable = False
    return Run(name, queries, start, doc, score, dtype, cut, index_documents(doc, start))


def take_documents(ids: pl.Series, rows: Int) -> pl.Series:
    """Return the ids of these rows as a column of documents."""
    # Faster than `gather`, which is planned before it is executed.
    documents = ids[pl.Series(rows.astype(np.uint32))]
    return (documents if documents.n_chunks() == 1 else documents.rechunk()).alias("doc")


def index_documents(doc: pl.Series, start: Int) -> kernels.DocumentIndex | None:
    """Return an index of lists without repeated documents; None for a single short list."""
    return (
        None if len(start) == 2 and len(doc) <= _UNINDEXED else kernels.index_documents(doc, start)
    )


def run_from_hits(
    name: str, query_ids: Sequence[str] | None, lists: Sequence[Hits], cut: Int | None = None
) -> Run:
    """Return a Run of the hits that an engine returned for each query."""
    queries = row_ids(query_ids, len(lists), "query_ids")
    codes = np.repeat(np.arange(len(lists), dtype=np.int32), [len(hits.ids) for hits in lists])
    doc = pl.Series("doc", [doc for hits in lists for doc in hits.ids], dtype=pl.String)
    score: Float = np.array([s for hits in lists for s in hits.scores], np.float64)
    dtype = RANKS if any(hits.ranked for hits in lists) else "float64"
    return build_run(name, queries, codes, doc, score, dtype, cut)


def has_rising_scores(run: Run) -> bool:
    """True if the scores of every list rise from the first document on: they are distances.

    Lists whose scores are all equal do not count; three others are needed.
    """
    lists = [run.score[a:b] for a, b in zip(run.start[:-1], run.start[1:], strict=True)]
    varied = [scores for scores in lists if len(scores) > 1 and scores.min() < scores.max()]
    return len(varied) > 2 and all(bool((np.diff(scores) >= 0).all()) for scores in varied)


def keep_first(run: Run, k: int | Int) -> Run:
    """Return the first k documents of each list, best first; k may be one number per query.

    Of documents that tie at the cut, those that the run lists first stay, and `cut` counts the
    others.
    """
    ranking = rank_run(run)
    order = np.arange(len(run)) if ranking.position is None else np.argsort(ranking.position)
    length = np.diff(run.start)
    query = np.repeat(np.arange(len(length)), length)
    rank = np.arange(len(run)) - run.start[query]  # from 0
    limit = np.minimum(np.broadcast_to(np.asarray(k, np.int64), len(length)), length)
    score = run.score[order]
    last_row = run.start[:-1] + np.maximum(limit, 1) - 1
    last_score = np.zeros(len(length))
    if len(run):
        last_score = score[np.minimum(last_row, len(run) - 1)]
    tied = score == last_score[query]
    cut = np.bincount(query[tied & (rank >= limit[query])], minlength=len(length))
    if run.cut is not None:  # the tie at the cut may go on beyond the end of the given list
        reaches_end = np.zeros(len(length), np.bool_)
        filled = length > 0
        reaches_end[filled] = score[run.start[1:][filled] - 1] == last_score[filled]
        cut = cut + np.where(reaches_end, run.cut, 0)
    keep = rank < limit[query]
    rows = order[keep]
    codes = query[keep].astype(np.int32)
    doc, kept_score = run.doc.gather(rows), run.score[rows]
    return build_run(run.name, run.queries, codes, doc, kept_score, run.dtype, cut)


def rescore(run: Run, scores: pl.DataFrame, dtype: str) -> Run:
    """Return the same candidates with the scores of a frame of query, doc and score."""
    joined = run.to_frame().select("query", "doc")
    joined = joined.join(scores, on=["query", "doc"], how="left", maintain_order="left")
    score: Float = joined["score"].to_numpy().astype(np.float64)
    assert not np.isnan(score).any(), "every candidate was scored"
    codes = np.repeat(np.arange(len(run.queries), dtype=np.int32), np.diff(run.start))
    return build_run(run.name, run.queries, codes, run.doc, score, dtype, run.cut)
