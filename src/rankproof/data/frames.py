"""Frames of any library, and tables on disk, → columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from typing import Any, Literal, TypeVar

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

# How the field names its columns, letters and digits alone; the first that is there is taken. Names
# that can only be ids come first: PyTerrier's `query` is a text beside `qid`, and its `docid` a
# number inside the index beside `docno`.
_QUERY = ("queryid", "qid", "topicid", "topic", "query", "q")
_DOC = ("docno", "docid", "documentid", "corpusid", "passageid", "pid", "did", "document", "doc")
_SCORE = ("score", "similarity", "sim")
_GRADE = ("grade", "relevance", "rel", "label", "judgement", "judgment", "score")


def plain_name(name: str) -> str:
    """A column name's letters and digits: `query-id`, `query_id` and `queryId` are one."""
    return "".join(c for c in name.lower() if c.isalnum())


def is_header(names: Iterable[str]) -> bool:
    """Whether a line of these words names columns rather than being a row."""
    plain = {plain_name(name) for name in names}
    return not any(plain.isdisjoint(spellings) for spellings in (_QUERY, _DOC, _SCORE + _GRADE))


def find_columns(names: Iterable[str], kind: Kind) -> dict[str, str | None]:
    """The columns that hold query, document and number; None where none is called so."""
    plain = {plain_name(name): name for name in reversed(list(names))}
    wanted = {"query": _QUERY, "doc": _DOC, VALUE[kind]: _SCORE if kind == "run" else _GRADE}
    return {
        what: next((plain[spelling] for spelling in spellings if spelling in plain), None)
        for what, spellings in wanted.items()
    }


def choose_columns(names: Iterable[str], kind: Kind, label: str) -> list[str]:
    """The columns that hold query, document and number."""
    names = list(names)
    found = find_columns(names, kind)
    chosen = []
    for what, name in found.items():
        if name is None:
            have = ", ".join(shorten(name, 30) for name in names[:12]) or "none"
            remedy = f"name one of them {what!r}"
            if not any(found.values()):
                remedy = f"name them query, doc, {VALUE[kind]}; in a file, on its first line"
            raise InputError(
                f"no column {what!r}; there are: {have}{', …' if len(names) > 12 else ''}",
                place=label,
                remedy=remedy,
            )
        chosen.append(name)
    return chosen


def is_frame(source: Any) -> bool:
    frames = (pl.DataFrame, pl.LazyFrame)
    if isinstance(source, pl.Series) or getattr(source, "ndim", 2) == 1:  # one column of it
        return False
    return isinstance(source, frames) or any(
        hasattr(source, protocol) for protocol in ("__arrow_c_stream__", "__dataframe__")
    )


def read_frame(source: Any, kind: Kind) -> Columns:
    """polars, pandas, pyarrow, and whatever else speaks Arrow."""
    if not isinstance(source, pl.DataFrame | pl.LazyFrame):
        try:
            source = pl.DataFrame(source)
        except (
            *(ImportError, TypeError, ValueError, NotImplementedError),  # Arrow's, too
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
    """`text` says that numbers are written out, as in CSV."""
    names = choose_columns(frame.collect_schema().names(), kind, label)
    table = frame.lazy().select(names).collect()
    if not table.height:
        raise no_rows(label)
    query, doc, numbers, dtype, rest = typed(table, kind, label, place, text)
    if query.null_count() or doc.null_count():
        _check_both(query, doc, place)
    queries, codes = encode(query)
    if kernels.first_invalid_id(queries) is not None:
        _check_both(query, doc, place)
    return Columns(queries, codes, doc, numbers, place, dtype, rest, unchecked=True)


def checked(
    table: pl.DataFrame, kind: Kind, label: str, place: Place, text: bool = False
) -> tuple[pl.Series, pl.Series, Float, str, Float | None]:
    """The same, the ids looked at."""
    found = typed(table, kind, label, place, text)
    _check_both(found[0], found[1], place)
    return found


def _check_both(
    query: pl.Series, doc: pl.Series, place: Place, *others: tuple[int | None, Refusal]
) -> None:
    """Refuse the first row whose id is none, or which is one of the others."""
    refuse_first(
        *others,
        (kernels.first_invalid_id(query), lambda at: invalid_id(query[at], "query", place(at))),
        (kernels.first_invalid_id(doc), lambda at: invalid_id(doc[at], "document", place(at))),
    )


def typed(
    table: pl.DataFrame, kind: Kind, label: str, place: Place, text: bool = False
) -> tuple[pl.Series, pl.Series, Float, str, Float | None]:
    """Three columns as texts, texts, numbers; the format the numbers came in, and their rest."""
    query, doc, value = table.get_columns()
    # A name with a NUL in it, handed on as Arrow, would end the process.
    query, doc = id_column(query.alias("query"), label), id_column(doc.alias("doc"), label)
    rest = None
    if text:
        written = value.str.strip_chars()
        number, wrong = cast_numbers(written)
        if wrong is not None:
            error: Refusal = lambda at: invalid_number(kind, written[at], place(at))  # noqa: E731
            _check_both(query, doc, place, (wrong, error))
        numbers, dtype = number.to_numpy(writable=True), "float64"
        rest = rest_of(numbers, lambda at: exact_text(written[at]))
    elif not (value.dtype.is_numeric() or (value.dtype == pl.Boolean and kind == "qrels")):
        raise InputError(
            f"column {value.name!r} holds {value.dtype}, not numbers",
            place=label,
            remedy="cast it to Float64",
        )
    else:
        missing = value.is_null()
        if kind == "run" and value.dtype.is_float():
            missing |= value.is_nan()
        if missing.any():
            error = lambda at: not_a_number(kind, value[at], place(at))  # noqa: E731
            _check_both(query, doc, place, (first_of(missing), error))
        numbers = value.cast(pl.Float64).to_numpy(writable=True)
        dtype = str(value.dtype).lower() if value.dtype.is_float() else "float64"
        if value.dtype.is_integer() or value.dtype.is_decimal():
            rest = rest_of(numbers, lambda at: Fraction(value[at]))
    return query, doc, numbers, dtype, rest


# ---------------------------------------------------------------------------- tables on disk


@contextmanager
def polars_reads(
    label: str, form: str | None = None, remedy: str = "fetch or write the file again"
) -> Iterator[None]:
    """What polars says of a file that it cannot read, in one line that names the file."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        what = "cannot read it as a table" if form is None else f"not {form}, or cut short"
        problem = f"{what} ({first_line(error)})"
        raise InputError(problem, place=label, remedy=remedy) from None


def read_table(
    source: Source,
    kind: Kind,
    form: Literal["csv", "tsv", "parquet", "arrow"],
) -> Columns:
    if form in ("csv", "tsv"):
        return _read_csv(source, kind, form)
    with polars_reads(source.label, form):
        frame = scan(source, form)
        return _from_frame(frame, kind, source.label, lambda row: f"{source.label}: row {row + 1}")


def scan(source: Source, form: str) -> pl.LazyFrame:
    """A table in Parquet, or in Arrow, be it a file or a stream."""
    data = io.BytesIO(source.read(source.report))
    if form == "parquet":
        return pl.scan_parquet(data)
    streamed = not source.head.startswith(b"ARROW1")
    return (pl.read_ipc_stream(data) if streamed else pl.read_ipc(data)).lazy()


SEPARATOR = {"csv": ",", "tsv": "\t"}


def _read_csv(source: Source, kind: Kind, form: str) -> Columns:
    """A header, then rows; lines without a single value are skipped."""
    header, data = csv_header(source.read(source.report), form)

    def read(frame: pl.DataFrame, place: Place, again: bool) -> Columns | None:
        names = choose_columns(frame.columns, kind, source.label)
        if again:  # the ids of documents too, which are looked at as they are indexed
            checked(frame.select(names), kind, source.label, place, text=True)
        return _from_frame(frame, kind, source.label, place, text=True) if frame.height else None

    found = csv_records(source, header, data, form, header.count(b"\n"), 0, read)
    if found is None:
        raise no_rows(source.label)
    return found


def csv_header(data: bytes, form: str) -> tuple[bytes, bytes]:
    """The first record that says something, and what comes behind it."""
    blank = len(data) - len(data.lstrip(b"\r\n"))
    end = next((end for end in record_ends(data, quote_of(SEPARATOR[form])) if end > blank), blank)
    return data[:end], data[end:]


def csv_records(
    source: Source,
    header: bytes,
    data: bytes,
    form: str,
    lines: int,
    rows: int,
    read: Callable[[pl.DataFrame, Place, bool], _T],
) -> _T:
    """`read` of some records, or the error of the first that is wrong, whatever is looked at first:
    where there is one they are read `again`. `lines` and `rows` of the file come before them.
    """
    separator = SEPARATOR[form]
    height = 0
    told = False  # where a row stands, which takes as long as reading, is asked for at the end

    def place(row: int) -> str:
        return csv_place(source, separator, rows)(row) if told else source.label

    def table(begin: int, end: int, again: bool = True) -> _T:
        nonlocal height
        source.decode(header)
        source.decode(data[begin:end], lines + data.count(b"\n", 0, begin))
        with polars_reads(source.label, form):
            frame = csv_frame(source, header + data[begin:end], separator, told)
        height = frame.height
        return read(frame, place, again)

    def wrong(begin: int, end: int, again: bool = True) -> bool:
        try:
            table(begin, end, again)
        except InputError:
            return True
        return False

    with suppress(InputError):
        found = table(0, len(data), again=False)
        told = True
        return found
    ends = [0, *record_ends(data, quote_of(separator))]
    good = bad = 0
    if not wrong(0, 0):  # the header
        good, bad = 0, min(_BLOCK, len(ends) - 1)
        while bad < len(ends) - 1 and not wrong(ends[good], ends[bad]):
            rows += height
            good, bad = bad, min(bad + _BLOCK, len(ends) - 1)
    begin = ends[good]
    while bad - good > 1:
        middle = (good + bad) // 2
        if wrong(begin, ends[middle]):
            bad = middle
        else:
            good = middle
    told = True
    return table(begin, ends[bad])


_BLOCK = 1 << 16  # records among which the first wrong one is looked for


def record_ends(data: bytes, quote: str | None) -> Iterator[int]:
    """Where records end: after a line feed outside quotes, and where the text does."""
    at = inside = 0
    while (found := data.find(b"\n", at)) >= 0:
        inside += data.count(quote.encode(), at, found) if quote else 0
        at = found + 1
        if not inside % 2:
            yield at
    if at < len(data) or inside % 2:
        yield len(data)


def end_of_record(data: bytearray, quote: str | None) -> int:
    """Where the last whole record of a text ends."""
    if quote is None:
        return data.rfind(b"\n") + 1
    mark = quote.encode()
    end, inside = len(data), data.count(mark)
    while (found := data.rfind(b"\n", 0, end)) >= 0:
        inside -= data.count(mark, found, end)
        if not inside % 2:
            return found + 1
        end = found
    return 0


def csv_place(source: Source, separator: str, before: int = 0) -> Place:
    """Where a row stands, `before` rows of the file having gone before; found by reading again."""

    def place(row: int) -> str:
        rows = _csv_rows(source, separator)
        wanted = before + row + 1
        line = next((line for at, (line, _) in enumerate(rows) if at == wanted), None)
        return source.label if line is None else f"{source.label}:{line}"  # readers differ on it

    return place


def csv_frame(source: Source, data: bytes, separator: str, told: bool = True) -> pl.DataFrame:
    """The rows of a table with a header, all of them text; errors have a place where `told`."""
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
        if not told:
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
        _check_quotes(source, data, told)
    return frame.filter(~pl.all_horizontal(pl.all().is_null()))


def quote_of(separator: str) -> str | None:
    return '"' if separator == "," else None


def _csv_rows(source: Source, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Line and cells of each row, the header first: slower than polars, but it knows the line."""
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
        except csv.Error as error:  # a field of more than 128 KiB, say
            raise InputError(
                f"not a line of a table ({error})",
                place=f"{source.label}:{rows.line_num}",
                remedy="fix the line",
            ) from None


def _check_quotes(source: Source, data: bytes, told: bool) -> None:
    """Refuse a quoted field that goes on behind its closing quote: every reader makes something
    else of it, and polars says nothing. The line is that of the whole file.
    """
    try:
        for _ in csv.reader(io.StringIO(data.decode(), newline=""), strict=True):
            pass
    except csv.Error as error:
        if not told:
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
