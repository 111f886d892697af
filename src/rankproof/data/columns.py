"""What every reader hands on: the rows of a run or of qrels as columns, ids and numbers checked."""

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

from rankproof.data.tables import Laid
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import plural

Kind = Literal["run", "qrels"]
VALUE: dict[Kind, str] = {"run": "score", "qrels": "grade"}
_MEND: dict[Kind, str] = {"run": "drop the line or rescore it", "qrels": "grade it 0, 1, 2, …"}

_T = TypeVar("_T")
Place: TypeAlias = Callable[[int], str]  # row → where it stands, for a message


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows in the order in which they were given."""

    queries: kernels.Ids  # (Q,) distinct ids in order of appearance
    codes: Array  # (N,) int32, which of them
    doc: kernels.Ids  # (N,)
    value: Float  # (N,) score or grade
    place: Place
    dtype: str = "float64"  # the format the values came in
    rest: Float | None = None  # (N,) what float64 left of each value; None where nothing
    unchecked: bool = False  # the ids of the documents, which are looked at as they are indexed
    notes: tuple[str, ...] = ()  # what was guessed
    plain: bool = False  # values are known to be below 2⁵³ in size, and grades whole
    laid: Callable[[], Laid] | None = None  # where somebody is at it already


def encode(ids: pl.Series) -> tuple[pl.Series, Array]:
    """Distinct ids in order of appearance, and for each row which of them (int32)."""
    runs = ids.rle().struct  # in nearly every file the rows of a query stand together
    value, length = runs.field("value"), runs.field("len")
    distinct = value.unique(maintain_order=True).alias(ids.name)
    codes = value.cast(pl.Enum(distinct)).to_physical().to_numpy().astype(np.int32)
    return distinct, np.repeat(codes, length.to_numpy())


def check_ids(ids: pl.Series, what: str, place: Place) -> None:
    """Refuse rows without an id, and ids that hold a control character."""
    at = kernels.first_invalid_id(ids)
    if at is not None:
        raise unfit(ids[at], what, place(at))


def unfit(found: str | None, what: str, place: str) -> InputError:
    """The error for an id that is none."""
    if not found:
        return InputError(f"the {what} id is empty", place=place, remedy="give every row an id")
    return InputError(
        f"the {what} id {shorten(found)} holds a control character",
        place=place,
        remedy="remove it",
    )


def text_ids(given: list[Any], what: str, place: Place) -> pl.Series:
    """Ids as text; whole numbers are written out."""
    if set(map(type, given)) != {str}:
        given = [_id(value, what, place, at) for at, value in enumerate(given)]
    try:
        ids = pl.Series(what, given, pl.String)
    except UnicodeEncodeError:
        at = next(at for at, value in enumerate(given) if not is_text(value))
        raise not_unicode(what, given[at], place(at)) from None
    check_ids(ids, what, place)
    return ids


def _id(value: Any, what: str, place: Place, at: int) -> str:
    if isinstance(value, str):
        return str.__str__(value)  # of an enum's member too, the text alone
    if not isinstance(value, bool) and isinstance(value, Integral):
        return str(int(value))
    raise InputError(
        f"{what} id {shorten(value)} is neither text nor a whole number",
        place=place(at),
        remedy="make it text",
    )


def not_unicode(what: str, found: str, place: str) -> InputError:
    """The error for an id that nothing can write."""
    return InputError(
        f"{what} id {shorten(found)} is not valid Unicode",
        place=place,
        remedy="remove its lone surrogates",
    )


def is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def id_column(column: pl.Series, label: str) -> pl.Series:
    """A column of ids as text; what is missing stays so."""
    if column.dtype in (pl.Categorical, pl.Enum, pl.Null) or column.dtype.is_integer():
        column = column.cast(pl.String)
    if column.dtype != pl.String:
        raise InputError(
            f"column {column.name!r} holds {column.dtype}, not ids",
            place=label,
            remedy="make it text or whole numbers",
        )
    return column


def row_ids(given: Any, count: int, what: str) -> pl.Series:
    """Ids of rows as a column, each once; the numbers of the rows where none are given."""
    if given is None:
        return pl.Series(np.arange(count)).cast(pl.String)
    if isinstance(given, str | bytes | set | frozenset) or not isinstance(given, Iterable):
        raise InputError(
            f"{shorten(given)} is not a list of ids", place=what, remedy="give one for each row"
        )
    # Arrow's columns and arrays hold things of their own.
    unpack = getattr(given, "to_pylist", None) or getattr(given, "tolist", None)
    listed = given if isinstance(given, pl.Series) else list(unpack() if unpack else given)
    if len(listed) != count:
        raise InputError(
            f"{plural(len(listed), 'id')} for {plural(count, 'row')}",
            place=what,
            remedy="give one each",
        )
    if isinstance(listed, pl.Series):
        ids = id_column(listed.alias("id"), what)
        check_ids(ids, "row's", lambda at: f"{what}: row {at}")
    else:
        ids = text_ids(listed, "row's", lambda at: f"{what}: row {at}")
    if ids.is_duplicated().any():
        again = ids.filter(ids.is_duplicated())[0]
        raise InputError(f"id {shorten(again)} appears twice", place=what, remedy="make ids unique")
    return ids


_NUMBER = r"^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity))$"


def is_number(text: pl.Series) -> pl.Series:
    """Return whether each text is a number; null is none."""
    return text.str.contains(_NUMBER).fill_null(False)


def cast_numbers(text: pl.Series) -> tuple[pl.Series, int | None]:
    """Text → float64, correctly rounded, and the first row that cannot be: what is not a number,
    and what is so large that it would tie with infinity.
    """
    wrong = ~is_number(text)
    numbers = text.str.strip_prefix("+").cast(pl.Float64, strict=False)
    if (infinite := numbers.is_infinite()).any():
        wrong |= infinite & ~text.str.contains("(?i)inf")
    return numbers, first_of(wrong)


def not_written(kind: Kind, text: str | None, place: str) -> InputError:
    """The error for a text that `cast_numbers` finds wrong."""
    large = text is not None and re.match(_NUMBER, text)
    return (past_every_number if large else not_a_number)(kind, text, place)


@dataclass(frozen=True, slots=True)
class Written:
    """A number as it is written, where float64 may have no such one."""

    text: str

    def __float__(self) -> float:
        value = float(self.text)
        if math.isinf(value):
            raise OverflowError
        return value

    def __repr__(self) -> str:
        return self.text


def to_float(number: Any) -> float:
    """`float`, and OverflowError also where that makes infinity of what is not: a Decimal, say."""
    value = float(number)
    if math.isinf(value) and number != value:
        raise OverflowError
    return value


LARGE = 2.0**53  # up to here float64 holds every whole number


def is_large(value: Float) -> bool:
    """Whether a value is past what float64 holds exactly, infinity apart."""
    if not len(value) or (value.max() < LARGE and value.min() > -LARGE):  # NaN is told of elsewhere
        return False
    return bool((np.isfinite(value) & (np.abs(value) >= LARGE)).any())


def rest_of(value: Float, exact: Callable[[int], Fraction | int]) -> Float | None:
    """(N,) what float64 left of large values; `exact` tells what one was. None where nothing.

    Whole numbers past 2⁵³ that differ may be one float64. With the rest they are told apart, up to
    106 bits, and no tie is made by reading.
    """
    if not is_large(value):
        return None
    rest = np.zeros(len(value))
    for at in np.flatnonzero(np.isfinite(value) & (np.abs(value) >= LARGE)):
        rest[at] = float(exact(int(at)) - Fraction(float(value[at])))
    return rest if rest.any() else None


def exact_text(text: str) -> Fraction:
    """The number that a text is; `Fraction` itself takes no more than 4300 digits."""
    return Fraction(Decimal(text))


def not_a_number(kind: Kind, value: Any, place: str) -> InputError:
    return InputError(
        f"{VALUE[kind]} {shorten(value)} is not a number", place=place, remedy=_MEND[kind]
    )


def past_every_number(kind: Kind, value: Any, place: str) -> InputError:
    """The error for a finite number that float64 has not: as infinity it would tie with others."""
    said = shorten(value)
    if isinstance(value, Decimal):
        said = shorten(Written(str(value)))
    remedy = "write numbers up to 1.7e308, or inf" if kind == "run" else _MEND[kind]
    return InputError(f"{VALUE[kind]} {said} is past every number", place=place, remedy=remedy)


def no_rows(label: str) -> InputError:
    return InputError("no rows", place=label, remedy="check how it was made")


def first_of(flags: pl.Series) -> int | None:
    """The first row where a flag is set."""
    return int(flags.arg_max() or 0) if flags.any() else None


Refusal: TypeAlias = Callable[[int], InputError]  # row → what is wrong with it


def refuse_first(*found: tuple[int | None, Refusal]) -> None:
    """Raise the error of the first row that has one, so that a file read whole and one read in
    parts are refused for the same line.
    """
    wrong = [(at, error) for at, error in found if at is not None]
    if wrong:
        at, error = min(wrong, key=lambda each: each[0])
        raise error(at)


def columns_of(
    query: pl.Series,
    doc: pl.Series,
    number: pl.Series,
    kind: Kind,
    place: Place,
    *wrong: tuple[int | None, Refusal],
) -> Columns:
    """Return the columns of three texts a row, or raise the error of the first row that is `wrong`,
    or whose number or id is none.
    """
    numbers, bad = cast_numbers(number)
    refuse_first(
        *wrong,
        (bad, lambda at: not_written(kind, number[at], place(at))),
        (kernels.first_invalid_id(query), lambda at: unfit(query[at], "query", place(at))),
        (kernels.first_invalid_id(doc), lambda at: unfit(doc[at], "document", place(at))),
    )
    value = numbers.to_numpy(writable=True)
    rest = rest_of(value, lambda at: exact_text(number[at]))
    return Columns(*encode(query), doc, value, place, rest=rest)


def all_or_first(read: Callable[[int], _T], count: int) -> _T:
    """`read` of `count` items, or what it raises for the fewest first ones for which it does: that
    is of the first wrong one, whatever is looked at first.
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
