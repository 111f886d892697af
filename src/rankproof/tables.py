"""Run and Qrels: frozen columns, the rows of each query together.

Both are made by `rankproof.records`, which is the only place that validates. A million-row run is
three arrays; nothing here loops over queries or documents.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from rankproof import kernels
from rankproof.arrays import Array, Float, Int
from rankproof.errors import shorten


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What a retriever returned: scored documents for each query.

    Rows of one query stand together, in the order in which they were given.
    """

    name: str
    queries: pl.Series  # (Q,) query ids, in order of appearance
    start: Int  # (Q+1,) query q owns rows start[q]:start[q+1]
    doc: pl.Series  # (N,) document ids
    score: Float  # (N,) as given; float64 holds every narrower format exactly
    dtype: str = "float64"  # the format the scores came in
    cut: Int | None = None  # (Q,) documents left out that tie with the last one, where known
    index: kernels.Index | None = field(default=None, repr=False)
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)  # rankings, by policy
    rest: Float | None = None  # (N,) what float64 left of scores past 2⁵³; None where nothing

    def __len__(self) -> int:
        return len(self.score)

    def __repr__(self) -> str:
        return (
            f"Run({self.name!r}, {len(self.queries):,} queries, {len(self):,} documents, "
            f"{self.dtype})"
        )

    def to_frame(self) -> pl.DataFrame:
        """The run as a polars frame with columns query, doc, score."""
        return pl.DataFrame(
            {
                "query": _spread(self.queries, self.start),
                "doc": self.doc,
                "score": self.score,
            }
        )


@dataclass(frozen=True, slots=True, eq=False)
class Qrels:
    """What people judged: a grade for each (query, document) pair, queries sorted by id.

    A negative grade means "not judged" in TREC's files; such rows are counted in `negative` and
    left out, as trec_eval does.
    """

    name: str
    queries: pl.Series  # (Q,) query ids, ascending
    start: Int  # (Q+1,)
    doc: pl.Series  # (N,)
    grade: Int  # (N,) 0 and up
    negative: int = 0
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)  # what evaluations share

    def __len__(self) -> int:
        return len(self.grade)

    def __repr__(self) -> str:
        return f"Qrels({self.name!r}, {len(self.queries):,} queries, {len(self):,} judgements)"

    def place(self, row: int) -> str:
        """Where a row stands, for an error message."""
        query = self.queries[int(np.searchsorted(self.start, row, side="right")) - 1]
        return f"{self.name}: query {shorten(query)}, document {shorten(self.doc[row])}"

    def to_frame(self) -> pl.DataFrame:
        """The judgements as a polars frame with columns query, doc, grade."""
        return pl.DataFrame(
            {
                "query": _spread(self.queries, self.start),
                "doc": self.doc,
                "grade": self.grade,
            }
        )


def build_run(
    name: str,
    queries: pl.Series,
    codes: Array,
    doc: pl.Series,
    score: Float,
    dtype: str,
    cut: Int | None = None,
    rest: Float | None = None,
    check: bool = False,
) -> Run:
    """Columns in any order → Run. Raises `kernels.Repeated` with the position given.

    With `check` a document's id that is none raises `kernels.Unfit`.
    """
    start, rows = kernels.group(codes, len(queries))
    if rows is not None:
        doc, score = doc.gather(rows), score[rows]
        rest = None if rest is None else rest[rows]
    doc = doc.rechunk().alias("doc")
    score = np.ascontiguousarray(score)
    for column in (start, score):
        column.flags.writeable = False
    try:
        index = kernels.index(doc, start, check)
    except (kernels.Repeated, kernels.Unfit) as found:
        raise type(found)(found.row if rows is None else int(rows[found.row])) from None
    return Run(name, queries.alias("query"), start, doc, score, dtype, cut, index, rest=rest)


def build_qrels(
    name: str, queries: pl.Series, codes: Array, doc: pl.Series, grade: Int, check: bool = False
) -> Qrels:
    """Columns in any order → Qrels. Raises as `build_run` does."""
    ascending = queries.arg_sort().to_numpy()
    place = np.empty(len(queries), np.int32)
    place[ascending] = np.arange(len(queries), dtype=np.int32)
    start, rows = kernels.group(place[codes], len(queries))
    if rows is not None:
        doc, grade = doc.gather(rows), grade[rows]
    doc = doc.rechunk().alias("doc")
    try:
        kernels.index(doc, start, check)
    except (kernels.Repeated, kernels.Unfit) as found:
        raise type(found)(found.row if rows is None else int(rows[found.row])) from None
    queries = queries.gather(ascending).alias("query")
    negative = int((grade < 0).sum())
    if negative:
        keep = grade >= 0
        kept = np.concatenate([[0], np.cumsum(keep)])
        doc, grade, start = doc.filter(pl.Series(keep)).rechunk(), grade[keep], kept[start]
    for column in (start, grade):
        column.flags.writeable = False
    return Qrels(name, queries, start, doc, grade, negative)


def _spread(queries: pl.Series, start: Int) -> pl.Series:
    """One query id per row."""
    return queries.gather(np.repeat(np.arange(len(queries)), np.diff(start)))
