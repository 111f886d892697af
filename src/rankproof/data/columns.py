"""The columns that every reader returns, and the checks of ids and numbers that all share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Integral
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import polars as pl

from rankproof.data.tables import GroupedRows
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Bool, Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import plural

Kind = Literal["run", "qrels"]
VALUE: dict[Kind, str] = {"run": "score", "qrels": "grade"}
_REMEDY: dict[Kind, str] = {"run": "drop the line or rescore it", "qrels": "grade it 0, 1, 2, …"}

_T = TypeVar("_T")
Place: TypeAlias = Callable[[int], str]  # row → its location, for a message


@dataclass(frozen=True, slots=True)
class Columns:
    """The rows of a run or of judgments, in input order."""

    queries: kernels.Ids  # (Q,) distinct ids in order of appearance
    codes: Array  # (N,) int32 index of each row's query
    doc: kernels.Ids  # (N,)
    value: Float  # (N,) score or grade
    place: Place
    dtype: str = "float64"  # the format of the values in the input
    rest: Float | None = None  # (N,) exact value − float64 value; None if all are 0
    unchecked: bool = False  # document ids are checked only while they are indexed
    notes: tuple[str, ...] = ()  # what the reader assumed
    plain: bool = False  # all values are below 2⁵³ in size, and grades whole
    grouped: Callable[[], GroupedRows] | None = None  # if a thread is already grouping the rows
    aspect: pl.Series | None = None  # (N,) that the grade is for, if aspects are read
    vital: Bool | None = None  # (N,) importance, if the aspects are nuggets


def encode(ids: pl.Series) -> tuple[pl.Series, Array]:
    """Return distinct ids in order of appearance, and the index of each row's id (int32)."""
    runs = ids.rle().struct  # in nearly every file the rows of a query are adjacent
    value, length = runs.field("value"), runs.field("len")
    distinct = value.unique(maintain_order=True).alias(ids.name)
    codes = value.cast(pl.Enum(distinct)).to_physical().to_numpy().astype(np.int32)
    return distinct, np.repeat(codes, length.to_numpy())


def check_ids(ids: pl.Series, kind: str, place: Place) -> None:
    """Refuse rows without an id, and ids that hold a control character."""
    row = kernels.first_invalid_id(ids)
    if row is not None:
        raise invalid_id(ids[row], kind, place(row))


def invalid_id(text: str | None, kind: str, place: str) -> InputError:
    """Return the error for an id that is missing, empty or has a control character."""
    if not text:
        return InputError(f"the {kind} id is empty", place=place, remedy="give every row an id")
    return InputError(
        f"the {kind} id {shorten(text)} holds a control character",
        place=place,
        remedy="remove it",
    )


def text_ids(values: list[Any], kind: str, place: Place) -> pl.Series:
    """Return ids as text; whole numbers are converted."""
    if set(map(type, values)) != {str}:
        values = [_text_id(value, kind, place, row) for row, value in enumerate(values)]
    try:
        ids = pl.Series(kind, values, pl.String)
    except UnicodeEncodeError:
        row = next(row for row, value in enumerate(values) if not is_text(value))
        raise not_unicode(kind, values[row], place(row)) from None
    check_ids(ids, kind, place)
    return ids


def _text_id(value: Any, kind: str, place: Place, row: int) -> str:
    if isinstance(value, str):
        return str.__str__(value)  # an enum's member may write itself in another way
    if not isinstance(value, bool) and isinstance(value, Integral):
        return str(int(value))
    raise InputError(
        f"{kind} id {shorten(value)} is neither text nor a whole number",
        place=place(row),
        remedy="make it text",
    )


def not_unicode(kind: str, text: str, place: str) -> InputError:
    """Return the error for an id with lone surrogates, which no encoding can write."""
    return InputError(
        f"{kind} id {shorten(text)} is not valid Unicode",
        place=place,
        remedy="remove its lone surrogates",
    )


def is_text(value: str) -> bool:
    """True if a string can be encoded."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def id_column(column: pl.Series, label: str) -> pl.Series:
    """Return a column of ids as text; missing ids stay null."""
    if column.dtype in (pl.Categorical, pl.Enum, pl.Null) or column.dtype.is_integer():
        column = column.cast(pl.String)
    if column.dtype != pl.String:
        raise InputError(
            f"column {column.name!r} holds {column.dtype}, not ids",
            place=label,
            remedy="make it text or whole numbers",
        )
    return column


def row_ids(ids_like: Any, count: int, argument: str) -> pl.Series:
    """Return distinct ids for `count` rows: `ids_like`, or the row numbers if that is None."""
    if ids_like is None:
        return pl.Series(np.arange(count)).cast(pl.String)
    if isinstance(ids_like, str | bytes | set | frozenset) or not isinstance(ids_like, Iterable):
        raise InputError(
            f"{shorten(ids_like)} is not a list of ids",
            place=argument,
            remedy="give one for each row",
        )
    # The items of Arrow's columns and of arrays are objects of their own types.
    unpack = getattr(ids_like, "to_pylist", None) or getattr(ids_like, "tolist", None)
    listed = ids_like if isinstance(ids_like, pl.Series) else list(unpack() if unpack else ids_like)
    if len(listed) != count:
        raise InputError(
            f"{plural(len(listed), 'id')} for {plural(count, 'row')}",
            place=argument,
            remedy="give one each",
        )
    if isinstance(listed, pl.Series):
        ids = id_column(listed.alias("id"), argument)
        check_ids(ids, "row's", lambda row: f"{argument}: row {row}")
    else:
        ids = text_ids(listed, "row's", lambda row: f"{argument}: row {row}")
    if ids.is_duplicated().any():
        repeated = shorten(ids.filter(ids.is_duplicated())[0])
        raise InputError(f"id {repeated} appears twice", place=argument, remedy="make ids unique")
    return ids


_NUMBER = r"^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity))$"


def is_number(text: pl.Series) -> pl.Series:
    """Return which texts are numbers; null is not."""
    return text.str.contains(_NUMBER).fill_null(False)


def cast_numbers(text: pl.Series) -> tuple[pl.Series, int | None]:
    """Return texts as correctly rounded float64, and the first row that is invalid.

    Invalid is a text that is not a number, or so large that it would tie with infinity.
    """
    invalid = ~is_number(text)
    numbers = text.str.strip_prefix("+").cast(pl.Float64, strict=False)
    if (infinite := numbers.is_infinite()).any():
        invalid |= infinite & ~text.str.contains("(?i)inf")
    return numbers, first_of(invalid)


def invalid_number(kind: Kind, text: str | None, place: str) -> InputError:
    """Return the error for a text that `cast_numbers` finds invalid."""
    if text is not None and re.match(_NUMBER, text):
        return past_every_number(kind, text, place)
    return not_a_number(kind, text, place)


@dataclass(frozen=True, slots=True)
class Written:
    """A number as it is written in the input, which float64 may not be able to hold."""

    text: str

    def __float__(self) -> float:
        value = float(self.text)
        if math.isinf(value):
            raise OverflowError
        return value

    def __repr__(self) -> str:
        return self.text


def to_float(number: Any) -> float:
    """Convert like `float`, but raise OverflowError if a finite Decimal would become infinite."""
    value = float(number)
    if math.isinf(value) and number != value:
        raise OverflowError
    return value


LARGE = 2.0**53  # up to which float64 holds every whole number


def is_large(value: Float) -> bool:
    """True if a finite value exceeds 2⁵³, so that float64 may have rounded it."""
    if not len(value) or (value.max() < LARGE and value.min() > -LARGE):  # NaN is refused elsewhere
        return False
    return bool((np.isfinite(value) & (np.abs(value) >= LARGE)).any())


def rest_of(value: Float, exact: Callable[[int], Fraction | int]) -> Float | None:
    """Return (N,) the exact value minus the float64 value; None if all are 0.

    Different whole numbers beyond 2⁵³ may be the same float64. With this difference they stay
    different (up to 106 bits), so that reading creates no ties. `exact` returns the value of a row.
    """
    if not is_large(value):
        return None
    rest = np.zeros(len(value))
    for row in np.flatnonzero(np.isfinite(value) & (np.abs(value) >= LARGE)):
        rest[row] = float(exact(int(row)) - Fraction(float(value[row])))
    return rest if rest.any() else None


def exact_text(text: str) -> Fraction:
    """Return the number in a text of any length; `Fraction` itself takes at most 4300 digits."""
    return Fraction(Decimal(text))


def not_a_number(kind: Kind, value: Any, place: str) -> InputError:
    """Return the error for a score or grade that is not a number."""
    return InputError(
        f"{VALUE[kind]} {shorten(value)} is not a number", place=place, remedy=_REMEDY[kind]
    )


def past_every_number(kind: Kind, value: Any, place: str) -> InputError:
    """Return the error for a finite number too large for float64: as infinity it would tie."""
    text = shorten(Written(str(value)) if isinstance(value, Decimal) else value)
    remedy = "write numbers up to 1.7e308, or inf" if kind == "run" else _REMEDY[kind]
    return InputError(f"{VALUE[kind]} {text} is past every number", place=place, remedy=remedy)


def no_rows(label: str) -> InputError:
    """Return the error for an input without rows."""
    return InputError("no rows", place=label, remedy="check how it was made")


def first_of(flags: pl.Series) -> int | None:
    """Return the first row whose flag is set."""
    return int(flags.arg_max() or 0) if flags.any() else None


Refusal: TypeAlias = Callable[[int], InputError]  # row → its error


def refuse_first(*problems: tuple[int | None, Refusal]) -> None:
    """Raise the error of the first row that has one.

    A file read whole and one read in parts are then refused for the same line.
    """
    rows = [(row, error) for row, error in problems if row is not None]
    if rows:
        row, error = min(rows, key=lambda problem: problem[0])
        raise error(row)


def columns_of(
    query: pl.Series,
    doc: pl.Series,
    number: pl.Series,
    kind: Kind,
    place: Place,
    *problems: tuple[int | None, Refusal],
) -> Columns:
    """Return the columns of rows given as text, or raise the error of the first invalid row.

    `problems` are errors that the caller has found already.
    """
    numbers, invalid = cast_numbers(number)
    refuse_first(
        *problems,
        (invalid, lambda row: invalid_number(kind, number[row], place(row))),
        (kernels.first_invalid_id(query), lambda row: invalid_id(query[row], "query", place(row))),
        (kernels.first_invalid_id(doc), lambda row: invalid_id(doc[row], "document", place(row))),
    )
    value = numbers.to_numpy(writable=True)
    rest = rest_of(value, lambda row: exact_text(number[row]))
    return Columns(*encode(query), doc, value, place, rest=rest)


def all_or_first(read: Callable[[int], _T], count: int) -> _T:
    """Return `read(count)`, or raise its error for the first invalid item, found by bisection.

    `read(n)` reads the first n items and may report any of several invalid ones.
    """
    good, bad = 0, count
    try:
        return read(count)
    except InputError as error:
        first = error
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            read(middle)
            good = middle
        except InputError as error:
            first, bad = error, middle
    raise first from None
