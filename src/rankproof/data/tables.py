"""Run and Qrels: frozen columns, the rows of each query together.

Both are made by `rankproof.data`, which is the only place that validates. A million-row run is
three arrays; nothing here loops over queries or documents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import polars as pl

from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Float, Int
from rankproof.foundation.errors import shorten
from rankproof.foundation.kernels import Ids

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Later:
    """A column that is made when somebody first looks at it."""

    made: Callable[[], Any]


class _Made:
    """A field that may hold a column of later."""

    def __init__(self, cls: type, field_name: str):
        self._slot = cls.__dict__.get(field_name)  # None where instances have a dict
        self._field = field_name

    def held(self, owner: Any) -> Any:
        found = owner.__dict__[self._field] if self._slot is None else self._slot.__get__(owner)
        if type(found) is Later:
            found = found.made()
            self.__set__(owner, found)
        return found

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        return self if owner is None else self.held(owner)

    def __set__(self, owner: Any, value: Any) -> None:
        if self._slot is None:
            owner.__dict__[self._field] = value
        else:
            self._slot.__set__(owner, value)


class _AsSeries(_Made):
    """A field whose ids become a Series when they are first looked at as one.

    An evaluation of TREC files never looks, and need not load polars.
    """

    def __init__(self, cls: type, field_name: str, name: str):
        super().__init__(cls, field_name)
        self._name = name

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        if owner is None:
            return self
        ids = self.held(owner)
        if kernels.is_compiled(ids):
            ids = kernels.as_polars(ids, self._name)
            self.__set__(owner, ids)
        return ids


def as_series(*later: str, **names: str) -> Callable[[type[_T]], type[_T]]:
    """For a class of columns: these fields hold ids of either kind, and are Series of that name;
    others may be made later, too."""

    def changed(cls: type[_T]) -> type[_T]:
        for field_name in later:
            setattr(cls, field_name, _Made(cls, field_name))
        for field_name, name in names.items():
            setattr(cls, field_name, _AsSeries(cls, field_name, name))
        return cls

    return changed


def ids_of(table: Any, field_name: str) -> Any:
    """The ids of a field as they are held."""
    return type(table).__dict__[field_name].held(table)


@as_series("index", queries="query", doc="doc")
@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What a retriever returned: scored documents for each query.

    Rows of one query stand together, in the order in which they were given.

    >>> rp.read_run({"q1": {"a": 0.5}}).to_frame().rows()
    [('q1', 'a', 0.5)]
    """

    name: str
    queries: pl.Series  # (Q,) query ids, in order of appearance
    start: Int  # (Q+1,) query q owns rows start[q]:start[q+1]
    doc: pl.Series  # (N,) document ids
    score: Float  # (N,) as given; float64 holds every narrower format exactly
    dtype: str = "float64"  # the format the scores came in
    cut: Int | None = None  # (Q,) documents left out that tie with the last one, where known
    index: kernels.DocumentIndex | None = field(default=None, repr=False)
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)  # rankings, by policy
    rest: Float | None = None  # (N,) what float64 left of scores past 2⁵³; None where nothing
    notes: tuple[str, ...] = ()  # what reading it took for granted

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
            {"query": _spread(self.queries, self.start), "doc": self.doc, "score": self.score}
        )


@dataclass(frozen=True, slots=True)
class Scale:
    """What grades mean: where binary relevance begins, and which grade gains first."""

    lowest: int
    highest: int
    relevant: int
    gains: int

    def fits(self, grades: Int) -> bool:
        """Whether labels that come without a scale are on this one, as far as they show it: none
        lies outside, and some are relevant."""
        if not len(grades):
            return False
        lowest, highest = int(grades.min()), int(grades.max())
        return self.lowest <= lowest and self.relevant <= highest <= self.highest


SET_SCALE = Scale(1, 5, relevant=4, gains=3)  # as the set measures have it


@as_series(doc="doc")
@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """Documents of the pool that nobody judged."""

    query: Int  # (U,) index of the query, ascending
    doc: pl.Series  # (U,)


@as_series(queries="query", doc="doc")
@dataclass(frozen=True, slots=True, eq=False)
class Qrels:
    """What people judged: a grade for each (query, document) pair, queries sorted by id.

    A negative grade means "in the pool, but not judged" in TREC's files; such rows stand apart in
    `sampled` and count as not judged, as in trec_eval. Of all measures infAP alone asks for them.

    >>> rp.read_qrels({"q1": {"a": 1, "b": 0}}).to_frame().rows()
    [('q1', 'a', 1), ('q1', 'b', 0)]
    """

    name: str
    queries: pl.Series  # (Q,) query ids, ascending
    start: Int  # (Q+1,)
    doc: pl.Series  # (N,)
    grade: Int  # (N,) 0 and up
    sampled: Sampled | None = None  # rows of negative grade
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)  # what evaluations share
    scale: Scale | None = None  # what the grades mean, where somebody said
    notes: tuple[str, ...] = ()  # what reading it took for granted

    def __len__(self) -> int:
        return len(self.grade)

    def scale_beside(self, judge: Scale | None) -> Scale | None:
        """The scale of people's labels beside a judge's: their own, else the judge's if they show
        that they are on it."""
        on_it = self.scale is None and judge is not None and judge.fits(self.grade)
        return judge if on_it else self.scale

    @property
    def negative(self) -> int:
        """How many rows say that nobody judged."""
        return 0 if self.sampled is None else len(self.sampled.query)

    def __repr__(self) -> str:
        count = len(self.start) - 1
        return f"Qrels({self.name!r}, {count:,} queries, {len(self):,} judgements)"

    def place(self, row: int) -> str:
        """Where a row stands, for an error message."""
        query = self.queries[int(np.searchsorted(self.start, row, side="right")) - 1]
        return f"{self.name}: query {shorten(query)}, document {shorten(self.doc[row])}"

    def to_frame(self) -> pl.DataFrame:
        """The judgements as a polars frame with columns query, doc, grade."""
        return pl.DataFrame(
            {"query": _spread(self.queries, self.start), "doc": self.doc, "grade": self.grade}
        )


@dataclass(frozen=True, slots=True)
class Laid:
    """Rows with those of each query together, and indexed."""

    start: Int  # (Q+1,) query q owns rows start[q]:start[q+1]
    doc: Any  # (N,) ids of either kind
    value: Array  # (N,)
    index: kernels.DocumentIndex | None


def lay(queries: int, codes: Array, doc: Any, value: Array, check: bool = False) -> Laid:
    """Rows in any order → Laid. Raises `kernels.Repeated` with the first such row as given.

    With `check` a document's id that is none raises `kernels.Unfit`.
    """
    start, laid, value = kernels.group_rows(codes, queries, doc, value)
    laid = laid if kernels.is_compiled(laid) else laid.rechunk().alias("doc")
    try:
        return Laid(start, laid, value, kernels.index_documents(laid, start, check))
    except (kernels.RepeatedDocument, kernels.InvalidId) as found:
        rows = kernels.query_groups(codes, queries)[1]
        if rows is None:
            raise
        # Of the queries one is the first to have it, which need not be the first row that has it.
        end = int(rows[found.row]) + 1
        given = kernels.as_polars(doc, "doc").head(end)
        unfit = isinstance(found, kernels.InvalidId)
        row = (
            kernels.first_invalid_id(given)
            if unfit
            else kernels.first_repeated_row(codes[:end], given)
        )
        raise type(found)(end - 1 if row is None else row) from None


def build_run(
    name: str,
    queries: Ids,
    codes: Array,
    doc: Any,  # ids of either kind
    score: Float,
    dtype: str,
    cut: Int | None = None,
    rest: Float | None = None,
    check: bool = False,
    laid: Laid | None = None,
) -> Run:
    """Columns in any order → Run. Raises as `lay` does, unless that was done before."""
    found = laid or lay(len(queries), codes, doc, score, check)
    if rest is not None and found.value is not score:
        rest = rest[kernels.query_groups(codes, len(queries))[1]]
    score = np.ascontiguousarray(found.value)
    for column in (found.start, score):
        column.flags.writeable = False
    named = _named(queries)
    return Run(name, named, found.start, found.doc, score, dtype, cut, found.index, rest=rest)


def build_qrels(
    name: str, queries: Ids, codes: Array, doc: Any, grade: Int, check: bool = False
) -> Qrels:
    """Columns in any order → Qrels. Raises as `lay` does."""
    ends = np.array([0, len(queries)])
    place, _ = kernels.rank_rows(np.zeros(len(queries)), ends, queries, descending=False)
    ascending = np.empty(len(queries), np.int64)
    ascending[place] = np.arange(len(queries))
    codes = place.astype(np.int32)[codes]
    laid = lay(len(queries), codes, doc, grade, check)
    start, doc, grade = laid.start, laid.doc, laid.value
    keep, sampled = grade >= 0, None
    if not keep.all():
        left = np.flatnonzero(~keep)
        query = np.searchsorted(start, left, side="right") - 1
        sampled = Sampled(query, doc.gather(left))
        kept = np.concatenate([[0], np.cumsum(keep)])
        doc, grade, start = doc.gather(np.flatnonzero(keep)), grade[keep], kept[start]
    for column in (start, grade):
        column.flags.writeable = False
    return Qrels(name, _named(queries.gather(ascending)), start, doc, grade, sampled)


def _named(queries: Any) -> Any:
    return queries if kernels.is_compiled(queries) else queries.alias("query")


def _spread(queries: pl.Series, start: Int) -> pl.Series:
    """One query id per row."""
    return queries.gather(np.repeat(np.arange(len(queries)), np.diff(start)))
