"""Read frames of any library, and tables on disk: CSV, TSV, Parquet and Arrow.

polars reads the tables. It reports errors without their place, so that a wrong row is found by
reading again: halves of the records until one is left (`csv_records`), then its line (`csv_place`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeVar

import polars as pl

from rankproof.data.columns import (
    VALUE,
    Columns,
    Kind,
    Place,
    Refusal,
    cast_numbers,
    encode,
    exact_text,
    first_of,
    id_column,
    invalid_id,
    invalid_number,
    no_rows,
    not_a_number,
    refuse_first,
    rest_of,
)
from rankproof.data.sources import Source
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, first_line, shorten

_T = TypeVar("_T")

# Usual names of columns, letters and digits only; the first that exists is used. Names
# that can only be ids come first: PyTerrier's `query` is a text beside `qid`, and its `docid` a
# number inside the index beside `docno`.
_QUERY = ("queryid", "qid", "topicid", "topic", "query", "q")
_DOC = ("docno", "docid", "documentid", "corpusid", "passageid", "pid", "did", "document", "doc")
_SCORE = ("score", "similarity", "sim")
_GRADE = ("grade", "relevance", "rel", "label", "judgement", "judgment", "score")


def plain_name(name: str) -> str:
    """Return the letters and digits of a column's name: `query-id` and `queryId` are one."""
    return "".join(c for c in name.lower() if c.isalnum())


def is_header(names: Iterable[str]) -> bool:
    """True if these words are the names of columns rather than a row."""
    plain = {plain_name(name) for name in names}
    return not any(plain.isdisjoint(spellings) for spellings in (_QUERY, _DOC, _SCORE + _GRADE))


def find_columns(names: Iterable[str], kind: Kind) -> dict[str, str | None]:
    """Map query, doc and score or grade to the names of their columns; None if there is none."""
    plain = {plain_name(name): name for name in reversed(list(names))}
    usual = {"query": _QUERY, "doc": _DOC, VALUE[kind]: _SCORE if kind == "run" else _GRADE}
    return {
        role: next((plain[spelling] for spelling in spellings if spelling in plain), None)
        for role, spellings in usual.items()
    }


def choose_columns(names: Iterable[str], kind: Kind, label: str) -> list[str]:
    """Return the names of the columns with query, document and number, or refuse the table."""
    names = list(names)
    by_role = find_columns(names, kind)
    chosen = []
    for role, name in by_role.items():
        if name is None:
            existing = ", ".join(shorten(name, 30) for name in names[:12]) or "none"
            remedy = f"name one of them {role!r}"
            if not any(by_role.values()):
                remedy = f"name them query, doc, {VALUE[kind]}; in a file, on its first line"
            raise InputError(
                f"no column {role!r}; there are: {existing}{', …' if len(names) > 12 else ''}",
                place=label,
                remedy=remedy,
            )
        chosen.append(name)
    return chosen


def is_frame(source: Any) -> bool:
    """True if a value is a table of some library (one column of a table is not)."""
    frames = (pl.DataFrame, pl.LazyFrame)
    if isinstance(source, pl.Series) or getattr(source, "ndim", 2) == 1:
        return False
    return isinstance(source, frames) or any(
        hasattr(source, protocol) for protocol in ("__arrow_c_stream__", "__dataframe__")
    )


def read_frame(source: Any, kind: Kind) -> Columns:
    """Return the columns of a frame of polars, pandas, pyarrow, or whatever else speaks Arrow."""
    if not isinstance(source, pl.DataFrame | pl.LazyFrame):
        try:
            source = pl.DataFrame(source)
        except (
            *(ImportError, TypeError, ValueError, NotImplementedError),  # pyarrow raises these too
            pl.exceptions.PolarsError,
        ) as error:
            raise InputError(
                f"polars cannot take this {type(source).__name__} ({first_line(error)})",
                place=kind,
                remedy="make each column of one type, ids as text and numbers as floats",
            ) from None
    return _from_frame(source, kind, kind, lambda row: f"{kind}: row {row + 1}")


def _from_frame(
    frame: pl.DataFrame | pl.LazyFrame, kind: Kind, label: str, place: Place, text: bool = False
) -> Columns:
    """Return the columns of a table; with `text`, its numbers are written as text (CSV)."""
    names = choose_columns(frame.collect_schema().names(), kind, label)
    table = frame.lazy().select(names).collect()
    if not table.height:
        raise no_rows(label)
    typed = typed_columns(table, kind, label, place, text)
    if typed.query.null_count() or typed.doc.null_count():
        _check_ids(typed.query, typed.doc, place)
    queries, codes = encode(typed.query)
    if kernels.first_invalid_id(queries) is not None:
        _check_ids(typed.query, typed.doc, place)
    return Columns(
        queries,
        codes,
        typed.doc,
        typed.value,
        place,
        typed.dtype,
        typed.rest,
        unchecked=True,
    )


class TypedColumns(NamedTuple):
    """The three columns of a table, converted."""

    query: pl.Series  # text
    doc: pl.Series  # text
    value: Float
    dtype: str  # the format of the numbers in the table
    rest: Float | None  # exact value − float64 value; None if all are 0


def checked_columns(
    table: pl.DataFrame, kind: Kind, label: str, place: Place, text: bool = False
) -> TypedColumns:
    """`typed_columns`, with the ids checked."""
    typed = typed_columns(table, kind, label, place, text)
    _check_ids(typed.query, typed.doc, place)
    return typed


def _check_ids(
    query: pl.Series, doc: pl.Series, place: Place, *problems: tuple[int | None, Refusal]
) -> None:
    """Raise the error of the first row with an invalid id or one of the given problems."""
    refuse_first(
        *problems,
        (kernels.first_invalid_id(query), lambda row: invalid_id(query[row], "query", place(row))),
        (kernels.first_invalid_id(doc), lambda row: invalid_id(doc[row], "document", place(row))),
    )


def typed_columns(
    table: pl.DataFrame, kind: Kind, label: str, place: Place, text: bool = False
) -> TypedColumns:
    """Return the three columns of a table as ids, ids and numbers."""
    query, doc, value = table.get_columns()
    # Renamed first: a column name with a NUL, passed on as Arrow, would crash the process.
    query, doc = id_column(query.alias("query"), label), id_column(doc.alias("doc"), label)
    if text:
        return _typed_text(query, doc, value, kind, place)
    if not (value.dtype.is_numeric() or (value.dtype == pl.Boolean and kind == "qrels")):
        raise InputError(
            f"column {value.name!r} holds {value.dtype}, not numbers",
            place=label,
            remedy="cast it to Float64",
        )
    missing = value.is_null()
    if kind == "run" and value.dtype.is_float():
        missing |= value.is_nan()
    if missing.any():

        def missing_number(row: int) -> InputError:
            return not_a_number(kind, value[row], place(row))

        _check_ids(query, doc, place, (first_of(missing), missing_number))
    numbers = value.cast(pl.Float64).to_numpy(writable=True)
    dtype = str(value.dtype).lower() if value.dtype.is_float() else "float64"
    rest = None
    if value.dtype.is_integer() or value.dtype.is_decimal():
        rest = rest_of(numbers, lambda row: Fraction(value[row]))
    return TypedColumns(query, doc, numbers, dtype, rest)


def _typed_text(
    query: pl.Series, doc: pl.Series, value: pl.Series, kind: Kind, place: Place
) -> TypedColumns:
    """Return typed columns of a table whose numbers are written as text."""
    written = value.str.strip_chars()
    numbers, invalid = cast_numbers(written)
    if invalid is not None:

        def wrong_number(row: int) -> InputError:
            return invalid_number(kind, written[row], place(row))

        _check_ids(query, doc, place, (invalid, wrong_number))
    floats = numbers.to_numpy(writable=True)
    rest = rest_of(floats, lambda row: exact_text(written[row]))
    return TypedColumns(query, doc, floats, "float64", rest)


# ---------------------------------------------------------------------------- tables on disk


@contextmanager
def polars_reads(
    label: str, form: str | None = None, remedy: str = "fetch or write the file again"
) -> Iterator[None]:
    """Turn errors of polars about a file into an InputError that names the file."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        problem = "cannot read it as a table" if form is None else f"not {form}, or cut short"
        raise InputError(f"{problem} ({first_line(error)})", place=label, remedy=remedy) from None


def read_table(
    source: Source,
    kind: Kind,
    form: Literal["csv", "tsv", "parquet", "arrow"],
) -> Columns:
    """Return the columns of a table on disk."""
    if form in ("csv", "tsv"):
        return _read_csv(source, kind, form)
    with polars_reads(source.label, form):
        frame = scan(source, form)
        return _from_frame(frame, kind, source.label, lambda row: f"{source.label}: row {row + 1}")


def scan(source: Source, form: str) -> pl.LazyFrame:
    """Return a table in Parquet or Arrow (a file or a stream) as a lazy frame."""
    data = io.BytesIO(source.read(source.report))
    if form == "parquet":
        return pl.scan_parquet(data)
    is_stream = not source.head.startswith(b"ARROW1")
    return (pl.read_ipc_stream(data) if is_stream else pl.read_ipc(data)).lazy()


SEPARATOR = {"csv": ",", "tsv": "\t"}


def _read_csv(source: Source, kind: Kind, form: str) -> Columns:
    """Return the columns of a CSV file with a header; lines without any value are skipped."""
    header, data = csv_header(source.read(source.report), form)

    def read(frame: pl.DataFrame, place: Place, check: bool) -> Columns | None:
        names = choose_columns(frame.columns, kind, source.label)
        if check:  # else the ids of documents are checked while they are indexed
            checked_columns(frame.select(names), kind, source.label, place, text=True)
        return _from_frame(frame, kind, source.label, place, text=True) if frame.height else None

    records = CsvRecords(source, header, form)
    columns = records.read(data, read, lines_before=header.count(b"\n"), rows_before=0)
    if columns is None:
        raise no_rows(source.label)
    return columns


def csv_header(data: bytes, form: str) -> tuple[bytes, bytes]:
    """Split off the first record that is not blank."""
    blank = len(data) - len(data.lstrip(b"\r\n"))
    end = next((end for end in record_ends(data, quote_of(SEPARATOR[form])) if end > blank), blank)
    return data[:end], data[end:]


_BLOCK = 1 << 16  # records that are read at a time to find the first wrong one


class CsvRecords:
    """Read parts of a CSV file with its header, or raise the error of the first wrong record."""

    def __init__(self, source: Source, header: bytes, form: str):
        self._source, self._header, self._form = source, header, form
        self._separator = SEPARATOR[form]

    def read(
        self,
        data: bytes,
        read: Callable[[pl.DataFrame, Place, bool], _T],
        *,
        lines_before: int,
        rows_before: int,
    ) -> _T:
        """Return `read(frame, place, check)` of the records in `data`.

        `lines_before` and `rows_before` of the file precede `data`. If the records cannot be read,
        the first wrong one is found by bisection; only then is `check` True and are places real,
        since finding the line of a row takes as long as reading.
        """

        def frame_of(end: int, begin: int = 0, with_place: bool = False) -> pl.DataFrame:
            self._source.decode(self._header)
            lines = lines_before + data.count(b"\n", 0, begin)
            self._source.decode(data[begin:end], lines)
            with polars_reads(self._source.label, self._form):
                text = self._header + data[begin:end]
                return csv_frame(self._source, text, self._separator, with_place)

        with suppress(InputError):
            frame = frame_of(len(data))
            return read(frame, csv_place(self._source, self._separator, rows_before), False)

        def no_place(row: int) -> str:
            return self._source.label

        def height_if_valid(begin: int, end: int) -> int | None:
            try:
                frame = frame_of(end, begin)
                read(frame, no_place, True)
            except InputError:
                return None
            return frame.height

        ends = [0, *record_ends(data, quote_of(self._separator))]
        good = bad = 0  # numbers of records: the first `good` are valid, the first `bad` are not
        rows = rows_before
        if height_if_valid(0, 0) is not None:  # the header
            bad = min(_BLOCK, len(ends) - 1)
            while bad < len(ends) - 1:
                height = height_if_valid(ends[good], ends[bad])
                if height is None:
                    break
                rows += height
                good, bad = bad, min(bad + _BLOCK, len(ends) - 1)
        begin = ends[good]
        while bad - good > 1:
            middle = (good + bad) // 2
            if height_if_valid(begin, ends[middle]) is None:
                bad = middle
            else:
                good = middle
        frame = frame_of(ends[bad], begin, with_place=True)
        return read(frame, csv_place(self._source, self._separator, rows), True)


def record_ends(data: bytes, quote: str | None) -> Iterator[int]:
    """Yield where records end: after a line feed outside quotes, and at the end of the text."""
    position = quotes = 0
    while (line_end := data.find(b"\n", position)) >= 0:
        quotes += data.count(quote.encode(), position, line_end) if quote else 0
        position = line_end + 1
        if quotes % 2 == 0:
            yield position
    if position < len(data) or quotes % 2:
        yield len(data)


def end_of_record(data: bytearray, quote: str | None) -> int:
    """Return where the last complete record of a text ends."""
    if quote is None:
        return data.rfind(b"\n") + 1
    mark = quote.encode()
    end, quotes = len(data), data.count(mark)
    while (line_end := data.rfind(b"\n", 0, end)) >= 0:
        quotes -= data.count(mark, line_end, end)
        if quotes % 2 == 0:
            return line_end + 1
        end = line_end
    return 0


def csv_place(source: Source, separator: str, rows_before: int = 0) -> Place:
    """Return a function that finds the line of a row by reading again."""

    def place(row: int) -> str:
        rows = _csv_rows(source, separator)
        number = rows_before + row + 1  # row 0 is the header
        line = next((line for index, (line, _) in enumerate(rows) if index == number), None)
        # Python's reader may see fewer rows than polars does.
        return source.label if line is None else f"{source.label}:{line}"

    return place


def csv_frame(source: Source, data: bytes, separator: str, with_place: bool = True) -> pl.DataFrame:
    """Return a table with a header as text; with `with_place`, errors name their line."""
    try:
        frame = pl.read_csv(
            io.BytesIO(data),
            separator=separator,
            quote_char=quote_of(separator),
            infer_schema=False,  # ids are text: 007 stays 007
        )
    except pl.exceptions.NoDataError:
        raise no_rows(source.label) from None
    except pl.exceptions.ComputeError:
        if not with_place:
            raise
        rows = _csv_rows(source, separator)
        _, header = next(rows, (0, []))
        for line, cells in rows:
            if len(cells) > len(header):
                raise InputError(
                    f"{len(cells)} columns where the header has {len(header)}",
                    place=f"{source.label}:{line}",
                    remedy="fix the line",
                ) from None
        raise
    if separator == "," and b'"' in data:
        _check_quotes(source, data, with_place)
    return frame.filter(~pl.all_horizontal(pl.all().is_null()))


def quote_of(separator: str) -> str | None:
    """Return the quotation mark of a table; tab-separated tables have none."""
    return '"' if separator == "," else None


def _csv_rows(source: Source, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line and cells of each row, header first; slower than polars, but it has the lines."""
    quote = quote_of(separator)
    with source.open() as file:
        rows = csv.reader(
            io.TextIOWrapper(file, "utf-8", "replace", newline=""),
            delimiter=separator,
            quotechar=quote,
            quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        )
        try:
            for cells in rows:
                if any(cells):
                    yield rows.line_num, cells
        except csv.Error as error:  # such as a field of more than 128 KiB
            raise InputError(
                f"not a line of a table ({error})",
                place=f"{source.label}:{rows.line_num}",
                remedy="fix the line",
            ) from None


def _check_quotes(source: Source, data: bytes, with_place: bool) -> None:
    """Refuse a quoted field that goes on after its closing quote: readers disagree about it."""
    try:
        for _ in csv.reader(io.StringIO(data.decode(), newline=""), strict=True):
            pass
    except csv.Error as error:
        if not with_place:
            raise InputError(str(error)) from None
        with source.open() as file:
            text = io.TextIOWrapper(file, "utf-8", "replace", newline="")
            rows = csv.reader(text, strict=True)
            with suppress(csv.Error):
                for _ in rows:
                    pass
            line = rows.line_num
        raise InputError(
            f"a quoted field is not well formed ({error})",
            place=f"{source.label}:{line}",
            remedy='put quotes around the whole field, and write a quote inside it as ""',
        ) from None
