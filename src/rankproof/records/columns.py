"""What every reader hands on: the rows of a run or of qrels as columns, ids and numbers checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl

from rankproof import kernels
from rankproof.arrays import Array, Float
from rankproof.errors import InputError, shorten
from rankproof.tables import Laid

Kind = Literal["run", "qrels"]
VALUE: dict[Kind, str] = {"run": "score", "qrels": "grade"}
_MEND: dict[Kind, str] = {"run": "drop the line or rescore it", "qrels": "grade it 0, 1, 2, …"}

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
    distinct = ids.unique(maintain_order=True)
    return distinct, ids.cast(pl.Enum(distinct)).to_physical().to_numpy().astype(np.int32)


def check_ids(ids: pl.Series, what: str, place: Place) -> None:
    """Refuse rows without an id, and ids that hold a control character."""
    at = kernels.first_unfit(ids)
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
        at = next(at for at, value in enumerate(given) if not _is_text(value))
        raise InputError(
            f"{what} id {shorten(given[at])} is not valid Unicode",
            place=place(at),
            remedy="remove its lone surrogates",
        ) from None
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


def _is_text(value: str) -> bool:
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
        raise InputError(f"{len(listed)} ids for {count} rows", place=what, remedy="give one each")
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


def parse_numbers(text: pl.Series, kind: Kind, place: Place) -> tuple[Float, Float | None]:
    """Text → float64, correctly rounded, and its rest; a missing one is not a number either."""
    at = first_not_number(text)
    if at is not None:
        raise not_a_number(kind, text[at], place(at))
    value = text.str.strip_prefix("+").cast(pl.Float64).to_numpy(writable=True)
    return value, rest_of(value, lambda at: Fraction(text[at]))


def first_not_number(text: pl.Series) -> int | None:
    """The first row whose text is not a number."""
    return first_of(~text.str.contains(_NUMBER).fill_null(False))


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


def not_a_number(kind: Kind, value: Any, place: str) -> InputError:
    return InputError(
        f"{VALUE[kind]} {shorten(value)} is not a number", place=place, remedy=_MEND[kind]
    )


def no_rows(label: str) -> InputError:
    return InputError("no rows", place=label, remedy="check how it was made")


def first_of(flags: pl.Series) -> int | None:
    """The first row where a flag is set."""
    return int(flags.arg_max() or 0) if flags.any() else None


def refuse_first(*found: tuple[int | None, Callable[[int], InputError]]) -> None:
    """Raise the error of the first row that has one, so that a file read whole and one read in
    parts are refused for the same line.
    """
    wrong = [(at, error) for at, error in found if at is not None]
    if wrong:
        at, error = min(wrong, key=lambda each: each[0])
        raise error(at)
