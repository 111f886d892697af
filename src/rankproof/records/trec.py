"""TREC runs (query Q0 doc rank score tag) and qrels (query iteration doc grade).

Two readers of the same language. `read_fast` is compiled code over blocks of whole lines, on every
core; it gives up at the first line it does not understand. `read_general` is polars over the whole
text; it understands the same files, and says what is wrong with the others. The language: fields
between any number of blanks (space, tab, CR, VT, FF), lines ended by LF, UTF-8 with or without a
byte-order mark, empty lines and lines that begin with `#` skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np
import polars as pl

from rankproof import kernels
from rankproof.errors import InputError, shorten
from rankproof.files import write_whole
from rankproof.records.columns import (
    Columns,
    Kind,
    Place,
    check_ids,
    encode,
    is_large,
    no_rows,
    parse_numbers,
)
from rankproof.records.sources import CHUNK, LINE, Progress, Source
from rankproof.tables import Run

_BLANKS = " \t\r\x0b\x0c"
_FIELDS: dict[Kind, tuple[str, ...]] = {
    "run": ("query", "Q0", "doc", "rank", "score", "tag"),
    "qrels": ("query", "iteration", "doc", "grade"),
}


def read_trec(source: Source, kind: Kind, progress: Progress | None = None) -> Columns:
    columns = read_fast(source, kind, progress)
    # The general reader also sees what float64 leaves of a large number. Bytes that the fast
    # reader told of are not told of again.
    if columns is None or (kind == "run" and is_large(columns.value)):
        columns = read_general(source, kind, progress if kernels.native is None else None)
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


def read_fast(source: Source, kind: Kind, progress: Progress | None = None) -> Columns | None:
    """The columns, or None if there is no compiled reader or a line is not well formed."""
    size = source.plain_size
    if kind == "qrels" and size is not None:
        source.check_size(size)
    if size is None:
        return read_blocks(source, kind, blocks_of(source, source.held_chunks(progress)))
    return read_range(source, kind, 0, size, progress)


def read_blocks(source: Source, kind: Kind, blocks: Iterable[bytes]) -> Columns | None:
    """`read_fast` of some of a file's lines, whole."""
    native = kernels.native
    if native is None:
        return None
    return _finished(source, [_fed(native.TrecParser(len(_FIELDS[kind])), blocks)])


def read_range(
    source: Source, kind: Kind, begin: int, end: int, progress: Progress | None = None
) -> Columns | None:
    """`read_fast` of the lines that begin in [begin, end) of a plain file."""
    native = kernels.native
    if native is None:
        return None
    columns = len(_FIELDS[kind])
    told = _one_at_a_time(progress) if progress else None
    with source.trouble():
        parsers = kernels.in_threads(
            lambda first, last: _fed(
                native.TrecParser(columns),
                range_blocks(source, begin + first, begin + last, told),
                last - first if first else end - begin,  # the first takes over what others read
            ),
            end - begin,
            (end - begin) // (2 * CHUNK),
        )
    return _finished(source, parsers)


def _finished(source: Source, parsers: list[Any]) -> Columns | None:
    if None in parsers:
        return None
    whole = parsers[0]
    for parser in parsers[1:]:  # a query may go on from one range to the next
        whole.absorb(parser)
    queries, codes, doc, value = whole.finish()
    return Columns(
        queries,
        np.frombuffer(codes, np.int32),
        doc,
        np.frombuffer(value, np.float64),
        place_in(source),
    )


def _one_at_a_time(progress: Progress) -> Progress:
    lock = Lock()

    def told(count: int) -> None:
        with lock:
            progress(count)

    return told


def blocks_of(source: Source, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a stream of the file's content, whole."""
    held: list[bytes] = []  # an unfinished line
    length = 0
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join([*held, chunk[:end]])
            held, length = [], 0
        held.append(chunk[end:])
        length += len(chunk) - end
        if length > LINE:
            raise source.too_long()
    yield b"".join(held)


def range_blocks(
    source: Source, begin: int, end: int, progress: Progress | None
) -> Iterator[memoryview]:
    """The lines that begin in [begin, end) of a plain file, whole; the next overwrites each."""
    buffer = bytearray(CHUNK)
    held = 0  # bytes of an unfinished line at the front of the buffer
    told = begin
    with Path(source.path).open("rb", buffering=0) as file:
        position = max(_next_line(file, begin), source.bom)  # of the buffer's first byte
        file.seek(position)
        while position < end:
            if held == len(buffer):  # a line longer than the buffer
                if held > LINE:
                    raise source.too_long()
                buffer = buffer + bytes(held)
            filled = held + (file.readinto(memoryview(buffer)[held:]) or 0)
            if filled == held:  # the last line of the file has no line feed
                yield memoryview(buffer)[:held]
                break
            stop = buffer.rfind(b"\n", 0, filled) + 1
            if position + filled > end:  # the line that holds byte end − 1 is the last
                stop = buffer.find(b"\n", max(0, end - 1 - position), filled) + 1
            yield memoryview(buffer)[:stop]
            position += stop
            held = filled - stop
            buffer[:held] = buffer[stop:filled]
            if progress and position < end:
                progress(position - told)
                told = position
    if progress:
        progress(end - told)


def _next_line(file: IO[bytes], begin: int) -> int:
    """Where the first line that begins at `begin` or later does so."""
    if begin == 0:
        return 0
    file.seek(begin - 1)
    while chunk := file.read(1 << 16):
        found = chunk.find(b"\n")
        if found >= 0:
            return begin + found
        begin += len(chunk)
    return begin


def _fed(parser: Any, blocks: Iterable[bytes | memoryview], size: int = 0) -> Any:
    """The parser after these lines, or None if it did not understand one.

    It makes room for about `size` bytes at once.
    """
    for number, block in enumerate(blocks):
        if not parser.feed(block):
            return None
        if number == 0 and size > len(block) > 0:
            parser.expect(1.02 * size / len(block))
    return parser


# --------------------------------------------------------------------------------------- polars


def read_general(source: Source, kind: Kind, progress: Progress | None = None) -> Columns:
    """The columns of any well-formed file; an InputError with the line for the others."""
    text = decoded(source, source.read(progress), kind)
    return parse_text(text, kind, place_in(source), width(source, kind))


def width(source: Source, kind: Kind) -> int:
    """How many columns the first line has, where that may differ: a run's tag may be no word or
    several, in all of a file alike.
    """
    lines = (line.strip(f"{_BLANKS}\n".encode()) for line in source.head.split(b"\n"))
    first = next((line for line in lines if line and not line.startswith(b"#")), b"")
    count = len(first.split())
    return count if kind == "run" and count >= 5 else len(_FIELDS[kind])


def decoded(source: Source, data: bytes, kind: Kind, lines: int = 0) -> str:
    """Text whose ids are UTF-8; a run's tag, which nobody reads, may be in any encoding."""
    if kind == "run" and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return data.decode()
        except UnicodeDecodeError:
            data = b"\n".join(map(_without_tag, data.split(b"\n")))
    return source.decode(data, lines)


def _without_tag(line: bytes) -> bytes:
    try:
        line.decode()
    except UnicodeDecodeError:
        fields = line.split(None, 5)
        return b" ".join([*fields[:5], b"?"]) if len(fields) == 6 else line
    return line


def tag_of(path: str) -> str | None:
    """The tag of a run: of its last line, as trec_eval has it; None where it has none."""
    last = b""
    for block in blocks_of(source := Source(path), source.chunks()):
        lines = (line for line in block.split(b"\n")[::-1] if line.strip())
        last = next(lines, last)
    fields = last.split(None, 6)
    return fields[5].decode(errors="replace") if len(fields) > 5 else None


def split_fields(text: str) -> tuple[pl.Series, pl.Series]:
    """The lines that say something, and the fields of each."""
    lines = pl.Series("line", text.split("\n"), pl.String)
    lines = lines.str.strip_chars(_BLANKS)
    lines = lines.filter((lines != "") & ~lines.str.starts_with("#"))
    return lines, lines.str.replace_all(f"[{_BLANKS}]+", " ").str.split(" ")


def parse_text(text: str, kind: Kind, place: Place, first: int | None = None) -> Columns:
    """The columns of lines; `place` says where a row of them stands in the file.

    `first` is how many columns its first line has: 5 leave out the tag of a run, 7 and more are
    words behind it, which are not read.
    """
    lines, fields = split_fields(text)
    expected = _FIELDS[kind]
    count = len(expected) if first is None else first
    found = fields.list.len()
    wrong = found != count if count <= len(expected) else found < len(expected)
    if wrong.any():
        at = int(wrong.arg_max() or 0)
        count = len(fields[at])
        raise InputError(
            f"{count} column{'s' if count != 1 else ''} where a TREC {kind} has {len(expected)} "
            f"({' '.join(expected)}): {shorten(lines[at])}",
            place=place(at),
            remedy=_other_way(kind, fields)
            or "fix the line, or name the file's format (format=, --input-format)",
        )
    value, rest = parse_numbers(fields.list.get(4 if kind == "run" else 3), kind, place)
    query, doc = fields.list.get(0), fields.list.get(2)
    check_ids(query, "query", place)
    check_ids(doc, "document", place)
    notes: tuple[str, ...] = ()
    if count > len(expected):
        notes = ("words behind a run's tag are not read",)
    elif count < len(expected):
        notes = ("five columns are read as query, Q0, document, rank, score",)
    return Columns(*encode(query), doc, value, place, rest=rest, notes=notes)


def _other_way(kind: Kind, fields: pl.Series) -> str | None:
    """A remedy where a run stands for qrels or qrels for a run."""
    other: Kind = "qrels" if kind == "run" else "run"
    if (fields.list.len() == len(_FIELDS[other])).all():
        found = "judgements" if other == "qrels" else "a run"
        return f"it looks like {found}: name run and judgements the other way round"
    return None


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
    for name in ("query", "doc"):
        spaced = frame.filter(pl.col(name).str.contains(r"^$|\s"))
        if spaced.height:
            raise InputError(
                f"{shorten(spaced[name][0])} cannot be an id in a TREC file",
                place=run.name,
                remedy="give ids without spaces",
            )
    how: dict[str, Any] = {"include_header": False, "separator": " ", "quote_style": "never"}
    write_whole(to, lambda path: frame.write_csv(path, **how), inputs=inputs)
