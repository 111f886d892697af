"""TREC runs (query Q0 doc rank score tag) and qrels (query iteration doc grade).

Two readers of the same language. `read_fast` is compiled code over blocks of whole lines, on every
core; it gives up at the first invalid line. `read_general` is polars over the whole text; it
accepts the same files, and reports what is wrong with others. The language: fields
between any number of blanks (space, tab, CR, VT, FF), lines ended by LF, UTF-8 with or without a
byte-order mark, empty lines and lines that begin with `#` skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.columns import (
    Columns,
    Kind,
    Place,
    columns_of,
    first_of,
    is_large,
    is_number,
    no_rows,
)
from rankproof.data.sources import HEAD, Source, valid_lines
from rankproof.data.tables import GroupedRows, Run, group_rows
from rankproof.foundation import kernels
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.files import write_atomically
from rankproof.foundation.lines import (
    CHUNK,
    LINE,
    LineTooLong,
    iter_pieces,
    pending_paths,
    read_in_background,
    take_read_ahead,
)
from rankproof.foundation.phrasing import plural
from rankproof.foundation.progress import is_shown

_BLANKS = " \t\r\x0b\x0c"
_FIELDS: dict[Kind, tuple[str, ...]] = {
    "run": ("query", "Q0", "doc", "rank", "score", "tag"),
    "qrels": ("query", "iteration", "doc", "grade"),
}


def read_trec(source: Source, kind: Kind) -> Columns:
    """Return the columns of a TREC file, by the compiled reader where it can read the file."""
    columns = read_fast(source, kind)
    # Only the general reader keeps what float64 cannot hold of a large number.
    if columns is None or (kind == "run" and not columns.plain and is_large(columns.value)):
        columns = read_general(source, kind)
    if not len(columns.codes):
        raise no_rows(source.label)
    return columns


def place_in(source: Source) -> Place:
    """Return a function that finds the line of a row by reading again.

    So line numbers cost nothing until an error message needs one.
    """

    def place(row: int) -> str:
        with source.open() as file:
            for number, line in enumerate(file, 1):
                text = line.strip(f"{_BLANKS}\n".encode())
                if text and not text.startswith(b"#"):
                    row -= 1
                    if row < 0:
                        return f"{source.label}:{number}"
        return source.label

    return place


# ------------------------------------------------------------------------------------- compiled


def read_fast(source: Source, kind: Kind) -> Columns | None:
    """Return the columns, or None without compiled code or if a line is malformed."""
    size = source.plain_size
    if kind == "qrels" and size is not None:
        source.check_size(size)
    if size is None:
        return read_blocks(source, kind, blocks_of(source, source.limited_chunks(source.report)))
    return read_range(source, kind, 0, size)


def read_blocks(source: Source, kind: Kind, blocks: Iterable[bytes]) -> Columns | None:
    """`read_fast` for blocks of whole lines."""
    native = kernels.native
    if native is None or not _has_usual_columns(source, kind):
        return None
    parser = native.TrecParser(len(_FIELDS[kind]))
    return _finished(parser, source) if all(map(parser.feed, blocks)) else None


def read_range(source: Source, kind: Kind, begin: int, end: int) -> Columns | None:
    """`read_fast` for the lines that begin in [begin, end) of a plain file."""
    native = kernels.native
    if native is None or not _has_usual_columns(source, kind):
        return None
    parser = None
    with _errors_explained(source):
        if kind == "run" and (begin, end) == (0, source.plain_size):
            if source.path in _grouping:
                columns = _grouping.pop(source.path).result()
                if columns is not None:
                    source.report(end)
                    return replace(columns, place=place_in(source))
            parser = take_read_ahead(source.path)
            if parser is not None:
                source.report(end)
        if parser is None:
            columns_per_line = len(_FIELDS[kind])
            parser = read_in_background(
                native,
                columns_per_line,
                source.path,
                begin,
                end,
                bom=source.bom,
                step=CHUNK,
                threads=kernels.THREADS,
                on_read=source.report if is_shown() else None,
            ).finish()
    return None if parser is None else _finished(parser, source)


def _has_usual_columns(source: Source, kind: Kind) -> bool:
    """True if the first line has the columns that the compiled reader expects.

    Where it has others, all lines do, and a part of the file is no better than the whole.
    """
    return next(_first_columns(source), None) in (None, len(_FIELDS[kind]))


def _finished(parser: Any, source: Source | None) -> Columns | None:
    """Return the columns, or None if an id seems to contain a blank."""
    queries, codes, doc, value = parser.finish()
    if parser.spaced() and not (source and source.as_trec_eval):
        return None
    return Columns(
        queries,
        np.frombuffer(codes, np.int32),
        doc,
        np.frombuffer(value, np.float64),
        place_in(source) if source else str,
        plain=parser.plain(),
    )


_grouping: dict[str, Future[Columns | None]] = {}  # by path: runs whose rows are being grouped


def group_ahead() -> None:
    """Group and index the rows of runs that are read ahead, while the command goes on loading."""
    for path in pending_paths():
        columns: Future[Columns | None] = Future()
        grouped: Future[GroupedRows] = Future()
        _grouping[path] = columns
        Thread(target=_read_and_group, args=(path, columns, grouped), daemon=True).start()


def _read_and_group(
    path: str, columns_result: Future[Columns | None], grouped_result: Future[GroupedRows]
) -> None:
    """Set the columns of a run as soon as it is read, and its grouped rows later."""
    try:
        parser = take_read_ahead(path)
        columns = None if parser is None else _finished(parser, None)
        columns_result.set_result(columns and replace(columns, grouped=grouped_result.result))
    except BaseException as error:  # raised where the result is used
        columns_result.set_exception(error)
        return
    try:
        if columns is not None:
            rows = columns.codes, columns.doc, columns.value
            grouped_result.set_result(group_rows(len(columns.queries), *rows))
    except BaseException as error:
        grouped_result.set_exception(error)


def blocks_of(source: Source, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a stream of the file's content in blocks of whole lines."""
    unfinished: list[bytes] = []  # the beginning of a line that goes on in the next chunk
    length = 0
    for chunk in chunks:
        first_end = chunk.find(b"\n")
        if length + (first_end if first_end >= 0 else len(chunk)) > LINE:
            raise source.too_long()
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join([*unfinished, chunk[:end]])
            unfinished, length = [], 0
        unfinished.append(chunk[end:])
        length += len(chunk) - end
    yield b"".join(unfinished)


def range_blocks(source: Source, begin: int, end: int) -> Iterator[memoryview]:
    """Yield the lines that begin in [begin, end) of a plain file; each overwrites the last."""
    with _errors_explained(source):
        yield from iter_pieces(source.path, begin, end, source.bom, CHUNK)


@contextmanager
def _errors_explained(source: Source) -> Iterator[None]:
    with source.errors_explained():
        try:
            yield
        except LineTooLong:
            raise source.too_long() from None


# --------------------------------------------------------------------------------------- polars


def read_general(source: Source, kind: Kind) -> Columns:
    """Return the columns of any well-formed file, or raise InputError with the line."""
    data = b"".join(blocks_of(source, source.limited_chunks(source.report)))
    return parse(source, data, kind, place_in(source))


def parse(
    source: Source, data: bytes, kind: Kind, place: Place, before: Callable[[], int] = int
) -> Columns:
    """Return the columns of a part of a file; `before` counts the lines before it, for errors.

    A run's tag is not used, and may be in any encoding.
    """
    columns = list(_first_columns(source))
    with suppress(UnicodeDecodeError):
        return parse_text(data.decode(), kind, place, columns, source.as_trec_eval)
    if kind == "run":
        data = b"\n".join(map(_without_tag, data.split(b"\n")))
    text = valid_lines(data)
    parsed = parse_text(text, kind, place, columns, source.as_trec_eval)
    if len(text.encode()) < len(data):  # the lines before it were valid
        source.decode(data, before())
    return parsed


def _first_columns(source: Source) -> Iterator[int]:
    """Yield the number of columns of a file's first lines, known to readers of any part of it."""
    head = source.head
    if len(head) + source.bom == HEAD:  # its last line may be cut
        head = head[: head.rfind(b"\n") + 1]
    rows = map(bytes.split, head.split(b"\n"))
    return (len(row) for row in rows if row and not row[0].startswith(b"#"))


def _without_tag(line: bytes) -> bytes:
    """Return a line with its tag replaced if it is not UTF-8."""
    try:
        line.decode()
    except UnicodeDecodeError:
        fields = line.split()
        return b" ".join(fields[:5] + [x if x.isascii() else b"?" for x in fields[5:]])
    return line


def tag_of(source: Source) -> str | None:
    """Return the tag of a run's last line, as trec_eval does; None if it has none."""
    size, last = source.plain_size, b""
    if size is not None:  # the last line is most likely near the end
        last = _last_line(map(bytes, range_blocks(source, max(0, size - CHUNK), size)))
    last = last or _last_line(blocks_of(source, source.chunks()))
    fields = last.split(None, 6)
    return fields[5].decode(errors="replace") if len(fields) > 5 else None


def _last_line(blocks: Iterable[bytes]) -> bytes:
    """Return the last line that is neither blank nor a comment."""
    last = b""
    for block in blocks:
        lines = map(bytes.strip, block.split(b"\n")[::-1])
        last = next((line for line in lines if line and not line.startswith(b"#")), last)
    return last


def split_fields(text: str) -> tuple[pl.Series, pl.Series]:
    """Return the lines that are neither blank nor comments, and the fields of each."""
    lines = pl.Series("line", text.split("\n"), pl.String)
    lines = lines.str.strip_chars(_BLANKS)
    lines = lines.filter((lines != "") & ~lines.str.starts_with("#"))
    return lines, lines.str.replace_all(f"[{_BLANKS}]+", " ").str.split(" ")


def parse_text(
    text: str, kind: Kind, place: Place, first: list[int], as_trec_eval: bool = False
) -> Columns:
    """Return the columns of lines; `place` returns the location of a row in the file.

    `first` has the number of columns of the file's first lines. A run with 5 columns has no tags;
    with 7 or more it has words after the tag, which are ignored. All lines must be alike. A run
    whose ids seem to contain blanks is refused, except `as_trec_eval`, which reads fields by
    position.
    """
    lines, fields = split_fields(text)
    expected = _FIELDS[kind]
    count = first[0] if first and kind == "run" and first[0] >= 5 else len(expected)
    actual = fields.list.len()
    is_malformed = actual != count if count <= len(expected) else actual < len(expected)
    if count > len(expected):
        is_malformed |= lines.str.contains("\r", literal=True)
    query, doc, number = (
        fields.list.get(column, null_on_oob=True) for column in (0, 2, 4 if kind == "run" else 3)
    )

    def malformed(row: int) -> InputError:
        return _malformed_line(lines[row], fields[row], first, kind, place(row))

    def blank_in_id(row: int) -> InputError:
        return _blank_in_id(lines[row], fields[row].to_list(), place(row))

    spaced = None
    if kind == "run" and not as_trec_eval:
        spaced = _first_blank_in_id(fields, actual)
    problems = (spaced, blank_in_id), (first_of(is_malformed), malformed)
    columns = columns_of(query, doc, number, kind, place, *problems)
    notes: tuple[str, ...] = ()
    if count > len(expected):
        notes = ("words behind a run's tag are not read",)
    elif count < len(expected):
        notes = ("five columns are read as query, Q0, document, rank, score",)
    return replace(columns, notes=notes)


def _first_blank_in_id(fields: pl.Series, actual: pl.Series) -> int | None:
    """Return the first line of a run that seems to have a blank in an id, which shifts its fields.

    `q1 Q0 new york 1 0.9 t` has a number as its tag but not as its rank; `q1 Q0 apollo 11 1 0.9 t`
    has more fields after that number. Without blanks, a numeric tag is a run's real name, and then
    its rank is a number too.
    """
    rank, tag = (fields.list.get(column, null_on_oob=True) for column in (3, 5))
    if tag.eq_missing(tag.first()).all():  # as in nearly every run: test one tag
        tag = tag.head(1)
    has_numeric_tag = is_number(tag)
    if not has_numeric_tag.any():
        return None
    has_rank = rank.cast(pl.Int64, strict=False).is_not_null()  # faster than `is_number`
    if not has_rank.all():
        has_rank = is_number(rank)
    return first_of(has_numeric_tag & (~has_rank | (actual > len(_FIELDS["run"]))))


def _blank_in_id(line: str, fields: list[str], place: str) -> InputError:
    """Return the error for a line whose ids seem to contain a blank."""
    rank, tag = shorten(fields[3]), shorten(fields[5])
    return InputError(
        f"the tag {tag} is a number and "
        + ("more follows it" if fields[6:] else f"the rank {rank} is none")
        + f", as if an id held a blank: {shorten(line)}",
        place=place,
        remedy="write ids without blanks (new_york), or the run as CSV, JSON or Parquet",
    )


def _malformed_line(
    line: str, fields: pl.Series, first: list[int], kind: Kind, place: str
) -> InputError:
    """Return the error for a line with an unexpected number of fields."""
    count, expected = len(fields), _FIELDS[kind]
    if "\r" in line:
        return InputError(
            f"lines end in carriage returns alone: {shorten(line)}",
            place=place,
            remedy="end them in line feeds: tr '\\r' '\\n' < FILE > OTHER",
        )
    wanted = f"a TREC {kind} has {len(expected)} ({' '.join(expected)})"
    if kind == "run" and first and first[0] == len(expected) - 1:
        wanted = f"the first line has {first[0]} ({' '.join(expected[:-1])})"
    blanks = " (ids hold no blanks)" if kind == "qrels" and count > len(expected) else ""
    return InputError(
        f"{plural(count, 'column')} where {wanted}: {shorten(line)}",
        place=place,
        remedy=_swap_remedy(kind, first)
        or f"fix the line{blanks}, or name the file's format (format=, --input-format)",
    )


def _swap_remedy(kind: Kind, first: list[int]) -> str | None:
    """Return the remedy for a run in place of judgments or the reverse; None otherwise."""
    other: Kind = "qrels" if kind == "run" else "run"
    if first and all(count == len(_FIELDS[other]) for count in first):
        words = {"qrels": "judgements", "run": "a run"}
        return f"it looks like {words[other]}: name {words[kind]} here"
    return None


# A line that begins with # is a comment, and a byte-order mark is not part of a file's first id.
_INVALID = {"query": r"^$|\s|^[#\x{feff}]", "doc": r"^$|\s"}


def check_trec_ids(query: pl.Series, doc: pl.Series, place: str) -> None:
    """Refuse ids that a reader of a TREC file would not read back."""
    for ids, invalid in ((query, _INVALID["query"]), (doc, _INVALID["doc"])):
        matches = ids.filter(ids.str.contains(invalid))
        if len(matches):
            spaced = matches.str.contains(r"^$|\s")[0]
            raise InputError(
                f"{shorten(matches[0])} cannot be an id in a TREC file",
                place=place,
                remedy="give ids without spaces" if spaced else "give queries that begin otherwise",
            )


def write_trec(run: Run, to: Path, inputs: Iterable[str | Path] = ()) -> None:
    """Write a run in TREC format, in the run's order, with scores that are read back exactly."""
    tag = "_".join(run.name.split()) or "run"
    frame = run.to_frame().select(
        "query",
        q0=pl.lit("Q0"),
        doc="doc",
        rank=pl.int_range(1, pl.len() + 1).over("query"),
        score="score",
        tag=pl.lit(tag),
    )
    check_trec_ids(frame["query"], frame["doc"], run.name)
    how: dict[str, Any] = {"include_header": False, "separator": " ", "quote_style": "never"}
    write_atomically(to, lambda path: frame.write_csv(path, **how), inputs=inputs)
