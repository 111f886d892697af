"""Run and Qrels: immutable columns, with the rows of each query next to each other.

The readers of this package make both and are the only place that validates. A run of a million rows
is three arrays; nothing here loops over queries or documents. Columns that not every command needs
(polars series, the index of documents) are computed when first read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import polars as pl

from rankproof.data.aspects import Aspects
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Float, Int
from rankproof.foundation.errors import shorten
from rankproof.foundation.kernels import Ids

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Later:
    """A column that is computed when it is first read."""

    compute: Callable[[], Any]


class _LazyField:
    """A dataclass field that may hold a `Later`."""

    def __init__(self, cls: type, field_name: str):
        self._slot = cls.__dict__.get(field_name)  # None if instances have a dict
        self._field = field_name

    def column(self, owner: Any) -> Any:
        """Return the column as it is stored, computed if necessary."""
        value = owner.__dict__[self._field] if self._slot is None else self._slot.__get__(owner)
        if type(value) is Later:
            value = value.compute()
            self.__set__(owner, value)
        return value

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        return self if owner is None else self.column(owner)

    def __set__(self, owner: Any, value: Any) -> None:
        if self._slot is None:
            owner.__dict__[self._field] = value
        else:
            self._slot.__set__(owner, value)


class _SeriesField(_LazyField):
    """A field whose ids become a polars Series when they are first read as one.

    An evaluation of TREC files never does, and so need not load polars.
    """

    def __init__(self, cls: type, field_name: str, name: str):
        super().__init__(cls, field_name)
        self._name = name

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        if owner is None:
            return self
        ids = self.column(owner)
        if kernels.is_compiled(ids):
            ids = kernels.as_polars(ids, self._name)
            self.__set__(owner, ids)
        return ids


def as_series(*lazy_fields: str, **names: str) -> Callable[[type[_T]], type[_T]]:
    """Decorate a class of columns: each field in `names` holds ids and reads as a Series of that
    name; `lazy_fields` may hold a `Later` too."""

    def decorate(cls: type[_T]) -> type[_T]:
        for field_name in lazy_fields:
            setattr(cls, field_name, _LazyField(cls, field_name))
        for field_name, name in names.items():
            setattr(cls, field_name, _SeriesField(cls, field_name, name))
        return cls

    return decorate


def ids_of(table: Any, field_name: str) -> Any:
    """Return the ids of a field as they are stored: a Series, or the compiled reader's strings."""
    return type(table).__dict__[field_name].column(table)


@as_series("index", queries="query", doc="doc")
@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What a retriever returned: scored documents for each query.

    Rows are grouped by query, and within a query in input order.

    >>> rp.read_run({"q1": {"a": 0.5}}).to_frame().rows()
    [('q1', 'a', 0.5)]
    """

    name: str
    queries: pl.Series  # (Q,) query ids, in order of appearance
    start: Int  # (Q+1,) query q owns rows start[q]:start[q+1]
    doc: pl.Series  # (N,) document ids
    score: Float  # (N,) float64 holds every narrower format exactly
    dtype: str = "float64"  # the format of the scores in the input
    cut: Int | None = None  # (Q,) dropped documents that tie with the last one, if known
    index: kernels.DocumentIndex | None = field(default=None, repr=False)
    # rankings by tie-break and format
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)
    rest: Float | None = None  # (N,) exact score − float64 score, beyond 2⁵³; None if all are 0
    notes: tuple[str, ...] = ()  # what the reader assumed

    def __len__(self) -> int:
        return len(self.score)

    def __repr__(self) -> str:
        return (
            f"Run({self.name!r}, {len(self.queries):,} queries, {len(self):,} documents, "
            f"{self.dtype})"
        )

    def to_frame(self) -> pl.DataFrame:
        """Return the run as a polars frame with columns query, doc, score."""
        return pl.DataFrame(
            {"query": _repeat_ids(self.queries, self.start), "doc": self.doc, "score": self.score}
        )


@dataclass(frozen=True, slots=True)
class Scale:
    """What grades mean."""

    lowest: int
    highest: int
    relevant: int  # the lowest grade that counts as relevant
    gains: int  # the lowest grade with a gain

    def fits(self, grades: Int) -> bool:
        """True if labels without a stated scale seem to use this one: none lies outside, and some
        are relevant."""
        if not len(grades):
            return False
        lowest, highest = int(grades.min()), int(grades.max())
        return self.lowest <= lowest and self.relevant <= highest <= self.highest


SET_SCALE = Scale(1, 5, relevant=4, gains=3)  # of RA-nWG and the other set measures


@as_series(doc="doc")
@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """Documents that were pooled but not judged."""

    query: Int  # (U,) index of the query, ascending
    doc: pl.Series  # (U,)


@as_series(queries="query", doc="doc")
@dataclass(frozen=True, slots=True, eq=False)
class Qrels:
    """Judgments: a grade for each (query, document) pair, with queries sorted by id.

    In TREC's files a negative grade means "pooled, but not judged". As in trec_eval, such documents
    count as unjudged; they are kept apart in `sampled`, for infAP.

    >>> rp.read_qrels({"q1": {"a": 1, "b": 0}}).to_frame().rows()
    [('q1', 'a', 1), ('q1', 'b', 0)]
    """

    name: str
    queries: pl.Series  # (Q,) query ids, ascending
    start: Int  # (Q+1,)
    doc: pl.Series  # (N,)
    grade: Int  # (N,) 0 and up
    sampled: Sampled | None = None  # rows of negative grade
    # results that evaluations share
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)
    scale: Scale | None = None  # if stated
    notes: tuple[str, ...] = ()  # what the reader assumed
    aspects: Aspects | None = None  # if they were read; `grade` is then the highest of them
    aspect_row: Int | None = None  # (N,) row of each judgment in `aspects`

    def __len__(self) -> int:
        return len(self.grade)

    def scale_beside(self, judge: Scale | None) -> Scale | None:
        """Return the scale of annotators' labels: theirs, or the judge's if they seem to use it."""
        uses_judge_scale = self.scale is None and judge is not None and judge.fits(self.grade)
        return judge if uses_judge_scale else self.scale

    def content(self) -> list[Any]:
        """Return the rows and their aspects, for digests."""
        rows: list[Any] = self.to_frame().rows()
        if self.aspects is None or self.aspect_row is None:
            return rows
        return [rows, self.aspects.rows(self.aspect_row)]

    @property
    def negative(self) -> int:
        """The number of rows with a negative grade."""
        return 0 if self.sampled is None else len(self.sampled.query)

    def __repr__(self) -> str:
        count = len(self.start) - 1
        return f"Qrels({self.name!r}, {count:,} queries, {len(self):,} judgements)"

    def place(self, row: int) -> str:
        """Return the query and document of a row, for an error message."""
        query = self.queries[int(np.searchsorted(self.start, row, side="right")) - 1]
        return f"{self.name}: query {shorten(query)}, document {shorten(self.doc[row])}"

    def to_frame(self) -> pl.DataFrame:
        """Return the judgments as a polars frame with columns query, doc, grade."""
        return pl.DataFrame(
            {"query": _repeat_ids(self.queries, self.start), "doc": self.doc, "grade": self.grade}
        )


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Rows grouped by query, and indexed by document."""

    start: Int  # (Q+1,) query q owns rows start[q]:start[q+1]
    doc: Any  # (N,) ids: a Series, or the compiled reader's strings
    value: Array  # (N,)
    index: kernels.DocumentIndex | None


def group_rows(
    queries: int, codes: Array, doc: Any, value: Array, check: bool = False
) -> GroupedRows:
    """Group rows in any order by query, and index their documents.

    Raises `kernels.RepeatedDocument`, or with `check` also `kernels.InvalidId`, with the first such
    row of the input.
    """
    start, grouped_doc, value = kernels.group_rows(codes, queries, doc, value)
    if not kernels.is_compiled(grouped_doc):
        grouped_doc = grouped_doc.rechunk().alias("doc")
    try:
        index = kernels.index_documents(grouped_doc, start, check)
        return GroupedRows(start, grouped_doc, value, index)
    except (kernels.RepeatedDocument, kernels.InvalidId) as error:
        rows = kernels.query_groups(codes, queries)[1]
        if rows is None:
            raise
        # The error is in the first affected query; an earlier row may belong to a later query.
        end = int(rows[error.row]) + 1
        documents = kernels.as_polars(doc, "doc").head(end)
        if isinstance(error, kernels.InvalidId):
            row = kernels.first_invalid_id(documents)
        else:
            row = kernels.first_repeated_row(codes[:end], documents)
        raise type(error)(end - 1 if row is None else row) from None


def build_run(
    name: str,
    queries: Ids,
    codes: Array,
    doc: Any,
    score: Float,
    dtype: str,
    cut: Int | None = None,
    rest: Float | None = None,
    check: bool = False,
    grouped: GroupedRows | None = None,
) -> Run:
    """Make a run of rows in any order, unless they are grouped already; raises as `group_rows`."""
    rows = grouped or group_rows(len(queries), codes, doc, score, check)
    if rest is not None and rows.value is not score:
        rest = rest[kernels.query_groups(codes, len(queries))[1]]
    score = np.ascontiguousarray(rows.value)
    for column in (rows.start, score):
        column.flags.writeable = False
    return Run(
        name=name,
        queries=_query_column(queries),
        start=rows.start,
        doc=rows.doc,
        score=score,
        dtype=dtype,
        cut=cut,
        index=rows.index,
        rest=rest,
    )


def build_qrels(
    name: str, queries: Ids, codes: Array, doc: Any, grade: Int, check: bool = False
) -> Qrels:
    """Make judgments of rows in any order; raises as `group_rows` does."""
    ends = np.array([0, len(queries)])
    place, _ = kernels.rank_rows(np.zeros(len(queries)), ends, queries, descending=False)
    ascending = np.empty(len(queries), np.int64)
    ascending[place] = np.arange(len(queries))
    codes = place.astype(np.int32)[codes]
    rows = group_rows(len(queries), codes, doc, grade, check)
    start, doc, grade = rows.start, rows.doc, rows.value
    is_judged, sampled = grade >= 0, None
    if not is_judged.all():
        unjudged = np.flatnonzero(~is_judged)
        query = np.searchsorted(start, unjudged, side="right") - 1
        sampled = Sampled(query, doc.gather(unjudged))
        judged_before = np.concatenate([[0], np.cumsum(is_judged)])
        doc, grade = doc.gather(np.flatnonzero(is_judged)), grade[is_judged]
        start = judged_before[start]
    for column in (start, grade):
        column.flags.writeable = False
    return Qrels(name, _query_column(queries.gather(ascending)), start, doc, grade, sampled)


def _query_column(queries: Any) -> Any:
    return queries if kernels.is_compiled(queries) else queries.alias("query")


def _repeat_ids(queries: pl.Series, start: Int) -> pl.Series:
    """Return the query id of each row."""
    return queries.gather(np.repeat(np.arange(len(queries)), np.diff(start)))
