"""TREC runs (query Q0 doc rank score tag) and qrels (query iteration doc grade).

Two readers of the same language. `read_fast` is compiled code over blocks of whole lines, on every
core; it gives up at the first line it does not understand. `read_general` is polars over the whole
text; it understands the same files, and says what is wrong with the others. The language: fields
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
    Refusal,
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
    columns = read_fast(source, kind)
    # The general reader also sees what float64 leaves of a large number.
    if columns is None or (kind == "run" and not columns.plain and is_large(columns.value)):
        columns = read_general(source, kind)
    if not len(columns.codes):
        raise no_rows(source.label)
    return columns


def place_in(source: Source) -> Place:
    """Lines are counted anew when a message needs one, so that reading keeps no numbers."""

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
    """The columns, or None if there is no compiled reader or a line is not well formed."""
    size = source.plain_size
    if kind == "qrels" and size is not None:
        source.check_size(size)
    if size is None:
        return read_blocks(source, kind, blocks_of(source, source.limited_chunks(source.report)))
    return read_range(source, kind, 0, size)


def read_blocks(source: Source, kind: Kind, blocks: Iterable[bytes]) -> Columns | None:
    """`read_fast` of some of a file's lines, whole."""
    native = kernels.native
    if native is None or not _usual(source, kind):
        return None
    parser = native.TrecParser(len(_FIELDS[kind]))
    return _finished(parser, source) if all(map(parser.feed, blocks)) else None


def read_range(source: Source, kind: Kind, begin: int, end: int) -> Columns | None:
    """`read_fast` of the lines that begin in [begin, end) of a plain file."""
    native = kernels.native
    if native is None or not _usual(source, kind):
        return None
    parser = None
    with _trouble(source):
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


def _usual(source: Source, kind: Kind) -> bool:
    """Whether a file's first line has the columns of the compiled reader: where it has others all
    lines do, and a part in which none does is no better than the whole.
    """
    return next(_first_columns(source), None) in (None, len(_FIELDS[kind]))


def _finished(parser: Any, source: Source | None) -> Columns | None:
    """Return the columns read, or None if an id seems to hold a blank, which the general reader
    refuses with its place.
    """
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
    """The lines of a stream of the file's content, whole."""
    held: list[bytes] = []  # an unfinished line
    length = 0
    for chunk in chunks:
        first = chunk.find(b"\n")
        if length + (first if first >= 0 else len(chunk)) > LINE:
            raise source.too_long()
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join([*held, chunk[:end]])
            held, length = [], 0
        held.append(chunk[end:])
        length += len(chunk) - end
    yield b"".join(held)


def range_blocks(source: Source, begin: int, end: int) -> Iterator[memoryview]:
    """The lines that begin in [begin, end) of a plain file, whole; the next overwrites each."""
    with _trouble(source):
        yield from iter_pieces(source.path, begin, end, source.bom, CHUNK)


@contextmanager
def _trouble(source: Source) -> Iterator[None]:
    with source.errors_explained():
        try:
            yield
        except LineTooLong:
            raise source.too_long() from None


# --------------------------------------------------------------------------------------- polars


def read_general(source: Source, kind: Kind) -> Columns:
    """The columns of any well-formed file; an InputError with the line for the others."""
    data = b"".join(blocks_of(source, source.limited_chunks(source.report)))
    return parse(source, data, kind, place_in(source))


def parse(
    source: Source, data: bytes, kind: Kind, place: Place, before: Callable[[], int] = int
) -> Columns:
    """The columns of some of a file's lines; `before` counts those before, where that is asked.

    A run's tag, which nobody reads, may be in any encoding.
    """
    columns = list(_first_columns(source))
    with suppress(UnicodeDecodeError):
        return parse_text(data.decode(), kind, place, columns, source.as_trec_eval)
    if kind == "run":
        data = b"\n".join(map(_without_tag, data.split(b"\n")))
    text = valid_lines(data)
    found = parse_text(text, kind, place, columns, source.as_trec_eval)
    if len(text.encode()) < len(data):  # unless a line before was wrong in another way
        source.decode(data, before())
    return found


def _first_columns(source: Source) -> Iterator[int]:
    """How many columns the first lines of a file have: whoever reads a part of it knows them."""
    head = source.head
    if len(head) + source.bom == HEAD:  # its last line may go on
        head = head[: head.rfind(b"\n") + 1]
    rows = map(bytes.split, head.split(b"\n"))
    return (len(row) for row in rows if row and not row[0].startswith(b"#"))


def _without_tag(line: bytes) -> bytes:
    try:
        line.decode()
    except UnicodeDecodeError:
        fields = line.split()
        return b" ".join(fields[:5] + [x if x.isascii() else b"?" for x in fields[5:]])
    return line


def tag_of(source: Source) -> str | None:
    """The tag of a run: of its last line, as trec_eval has it; None where it has none."""
    size, last = source.plain_size, b""
    if size is not None:  # then it stands near the end, most likely
        last = _last_line(map(bytes, range_blocks(source, max(0, size - CHUNK), size)))
    last = last or _last_line(blocks_of(source, source.chunks()))
    fields = last.split(None, 6)
    return fields[5].decode(errors="replace") if len(fields) > 5 else None


def _last_line(blocks: Iterable[bytes]) -> bytes:
    """Of whole lines the last that says something."""
    last = b""
    for block in blocks:
        lines = map(bytes.strip, block.split(b"\n")[::-1])
        last = next((line for line in lines if line and not line.startswith(b"#")), last)
    return last


def split_fields(text: str) -> tuple[pl.Series, pl.Series]:
    """The lines that say something, and the fields of each."""
    lines = pl.Series("line", text.split("\n"), pl.String)
    lines = lines.str.strip_chars(_BLANKS)
    lines = lines.filter((lines != "") & ~lines.str.starts_with("#"))
    return lines, lines.str.replace_all(f"[{_BLANKS}]+", " ").str.split(" ")


def parse_text(
    text: str, kind: Kind, place: Place, first: list[int], as_trec_eval: bool = False
) -> Columns:
    """Return the columns of lines; `place` says where a row of them stands in the file.

    `first` is how many columns its first lines have. Of a run 5 leave out the tag, 7 and more are
    words behind it, which are not read: in all of a file alike. A run whose ids seem to hold blanks
    is refused, but `as_trec_eval`, which takes the fields as they come.
    """
    lines, fields = split_fields(text)
    expected = _FIELDS[kind]
    count = first[0] if first and kind == "run" and first[0] >= 5 else len(expected)
    have = fields.list.len()
    wrong = have != count if count <= len(expected) else have < len(expected)
    if count > len(expected):
        wrong |= lines.str.contains("\r", literal=True)
    query, doc, number = (
        fields.list.get(at, null_on_oob=True) for at in (0, 2, 4 if kind == "run" else 3)
    )
    uneven: Refusal = lambda at: _not_a_line(lines[at], fields[at], first, kind, place(at))  # noqa: E731
    spaced = None
    if kind == "run" and not as_trec_eval:
        spaced = _spaced(fields, have)
    blank: Refusal = lambda at: _with_blank(lines[at], fields[at].to_list(), place(at))  # noqa: E731
    refusals = (spaced, blank), (first_of(wrong), uneven)
    found = columns_of(query, doc, number, kind, place, *refusals)
    notes: tuple[str, ...] = ()
    if count > len(expected):
        notes = ("words behind a run's tag are not read",)
    elif count < len(expected):
        notes = ("five columns are read as query, Q0, document, rank, score",)
    return replace(found, notes=notes)


def _spaced(fields: pl.Series, have: pl.Series) -> int | None:
    """Return the first line of a run that seems to have a blank in an id, which shifts the fields.

    `q1 Q0 new york 1 0.9 t` has a number for a tag and none for a rank; `q1 Q0 apollo 11 1 0.9 t`
    has more behind the number. A run without blanks has a number for a tag only if somebody called
    it so, and then a number for a rank.
    """
    rank, tag = (fields.list.get(at, null_on_oob=True) for at in (3, 5))
    if tag.eq_missing(tag.first()).all():  # as in nearly every run: one look is enough
        tag = tag.head(1)
    named = is_number(tag)
    if not named.any():
        return None
    ranked = rank.cast(pl.Int64, strict=False).is_not_null()  # sooner than looking for any number
    if not ranked.all():
        ranked = is_number(rank)
    return first_of(named & (~ranked | (have > len(_FIELDS["run"]))))


def _with_blank(line: str, fields: list[str], place: str) -> InputError:
    """Return the error for a line whose ids seem to hold a blank."""
    rank, tag = shorten(fields[3]), shorten(fields[5])
    return InputError(
        f"the tag {tag} is a number and "
        + ("more follows it" if fields[6:] else f"the rank {rank} is none")
        + f", as if an id held a blank: {shorten(line)}",
        place=place,
        remedy="write ids without blanks (new_york), or the run as CSV, JSON or Parquet",
    )


def _not_a_line(
    line: str, fields: pl.Series, first: list[int], kind: Kind, place: str
) -> InputError:
    """The error for a line with another number of fields."""
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
        remedy=_other_way(kind, first)
        or f"fix the line{blanks}, or name the file's format (format=, --input-format)",
    )


def _other_way(kind: Kind, first: list[int]) -> str | None:
    """A remedy where a run stands for qrels or qrels for a run."""
    other: Kind = "qrels" if kind == "run" else "run"
    if first and all(count == len(_FIELDS[other]) for count in first):
        words = {"qrels": "judgements", "run": "a run"}
        return f"it looks like {words[other]}: name {words[kind]} here"
    return None


# A line that begins with # is a comment, and a byte-order mark is no part of a file's first id.
_UNFIT = {"query": r"^$|\s|^[#\x{feff}]", "doc": r"^$|\s"}


def check_trec_ids(query: pl.Series, doc: pl.Series, place: str) -> None:
    """Refuse ids that whoever reads a TREC file would not find in it."""
    for ids, unfit in ((query, _UNFIT["query"]), (doc, _UNFIT["doc"])):
        found = ids.filter(ids.str.contains(unfit))
        if len(found):
            spaced = found.str.contains(r"^$|\s")[0]
            raise InputError(
                f"{shorten(found[0])} cannot be an id in a TREC file",
                place=place,
                remedy="give ids without spaces" if spaced else "give queries that begin otherwise",
            )


def write_trec(run: Run, to: Path, inputs: Iterable[str | Path] = ()) -> None:
    """A run as TREC has it, each list in the run's order; scores so that they are read back whole.

    A file appears whole or not at all.
    """
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
