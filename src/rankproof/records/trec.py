"""TREC runs (query Q0 doc rank score tag) and qrels (query iteration doc grade).

Two readers of the same language. `read_fast` is compiled code over chunks of the file, on every
core; it stops at the first line it does not understand. `read_general` is polars over whole lines;
it understands the same files, and says what is wrong with the others. The language: fields
between any number of blanks (space, tab, CR, VT, FF), lines ended by LF, UTF-8 with or without a
byte-order mark, empty lines and lines that begin with `#` skipped.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from rankproof import kernels
from rankproof.arrays import Array, Float
from rankproof.errors import InputError, shorten
from rankproof.records.sources import CHUNK, Progress, Source

Kind = Literal["run", "qrels"]

_BLANKS = " \t\r\x0b\x0c"
_COLUMNS = {"run": 6, "qrels": 4}
_SHAPE = {"run": "query Q0 doc rank score tag", "qrels": "query iteration doc grade"}
_VALUE = {"run": "score", "qrels": "grade"}
_NUMBER = r"^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity))$"


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows as they stand in the file."""

    queries: pl.Series  # (Q,) distinct ids in order of appearance
    codes: Array  # (N,) int32, which of them
    doc: pl.Series  # (N,)
    value: Float  # (N,) score or grade
    line: Array | None = None  # (N,) line of each row, where it is known


class _Arrow:
    """Lets polars import a pair of Arrow capsules."""

    def __init__(self, pair: Any):
        self._pair = pair

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._pair


def read_fast(source: Source, kind: Kind, progress: Progress | None = None) -> Columns | None:
    """The columns, or None if there is no compiled reader or a line is not well formed."""
    if kernels.native is None:
        return None
    size = source.plain_size
    with source.trouble():
        if size is None:
            pieces = [_parse_stream(source, kind, progress)]
        else:
            count = max(1, min(kernels.THREADS, size // (2 * CHUNK)))
            cuts = [size * i // count for i in range(count + 1)]
            with ThreadPoolExecutor(count) as pool:
                pieces = list(
                    pool.map(
                        lambda a, b: _parse_range(source.path, kind, a, b, progress),
                        cuts[:-1],
                        cuts[1:],
                    )
                )
    if any(piece is None for piece in pieces):
        return None
    return _join([piece for piece in pieces if piece is not None])


def _parse_stream(source: Source, kind: Kind, progress: Progress | None) -> Columns | None:
    parser = kernels.native.TrecParser(_COLUMNS[kind])
    rest = b""
    begun = False
    for chunk in source.chunks(progress):
        data = rest + chunk
        if not begun:
            data = data.removeprefix(b"\xef\xbb\xbf")
            begun = True
        end = data.rfind(b"\n") + 1
        if not parser.feed(memoryview(data)[:end]):
            return None
        rest = data[end:]
    return _columns(parser) if parser.feed(rest) else None


def _parse_range(
    path: str, kind: Kind, begin: int, end: int, progress: Progress | None
) -> Columns | None:
    """The lines that begin in [begin, end) of a plain file."""
    parser = kernels.native.TrecParser(_COLUMNS[kind])
    buffer = bytearray(CHUNK)
    with Path(path).open("rb", buffering=0) as file:
        position = begin
        if begin:  # a line that begins before this range belongs to the range before
            file.seek(begin - 1)
            while (found := (chunk := file.read(1 << 16)).find(b"\n")) < 0:
                if not chunk:
                    return _columns(parser)
                begin += len(chunk)
            position = begin + found
        else:
            position = 3 if file.read(3) == b"\xef\xbb\xbf" else 0
        file.seek(position)
        held = 0  # bytes of an unfinished line at the front of the buffer
        while position < end:
            with memoryview(buffer) as view:
                count = file.readinto(view[held:]) or 0
                filled = held + count
                if not count:  # the last line has no line feed
                    return _columns(parser) if parser.feed(view[:held]) else None
                stop = buffer.rfind(b"\n", 0, filled) + 1
                if position + filled > end:  # the line that holds byte end − 1 is the last
                    stop = buffer.find(b"\n", max(0, end - 1 - position), filled) + 1 or stop
                if not parser.feed(view[:stop]):
                    return None
            position += stop
            held = filled - stop
            buffer[:held] = buffer[stop:filled]
            if held == len(buffer):  # a line longer than the buffer
                buffer.extend(bytes(len(buffer)))
            if progress is not None:
                progress(stop)
    return _columns(parser)


def _columns(parser: Any) -> Columns:
    queries, codes, doc, value = parser.finish()
    return Columns(
        pl.Series("query", _Arrow(queries), dtype=pl.String),
        np.frombuffer(codes, np.int32),
        pl.Series("doc", _Arrow(doc), dtype=pl.String),
        np.frombuffer(value, np.float64),
    )


def _join(pieces: list[Columns]) -> Columns:
    """Pieces of one file in order; a query may go on from one piece to the next."""
    if len(pieces) == 1:
        return pieces[0]
    every = pl.concat([piece.queries for piece in pieces])
    queries = every.unique(maintain_order=True)
    place = every.cast(pl.Enum(queries)).to_physical().to_numpy().astype(np.int32)
    codes = np.empty(sum(len(piece.codes) for piece in pieces), np.int32)
    row = begin = 0
    for piece in pieces:
        np.take(
            place[begin : begin + len(piece.queries)],
            piece.codes,
            out=codes[row : row + len(piece.codes)],
        )
        begin += len(piece.queries)
        row += len(piece.codes)
    return Columns(
        queries,
        codes,
        pl.concat([piece.doc for piece in pieces]).rechunk(),
        np.concatenate([piece.value for piece in pieces]),
    )


def read_general(source: Source, kind: Kind, progress: Progress | None = None) -> Columns:
    """The columns of any well-formed file; an InputError with the line for the others."""
    lines = pl.DataFrame({"text": source.text(progress).split("\n")}).with_row_index("line", 1)
    lines = lines.with_columns(pl.col("text").str.strip_chars(_BLANKS)).filter(
        (pl.col("text") != "") & ~pl.col("text").str.starts_with("#")
    )
    fields = lines["text"].str.replace_all(f"[{_BLANKS}]+", " ").str.split(" ")
    line = lines["line"]
    expected = _COLUMNS[kind]
    wrong = fields.list.len() != expected
    if wrong.any():
        at = int(wrong.arg_max() or 0)
        raise InputError(
            f"{len(fields[at])} columns where a TREC {kind} has {expected} ({_SHAPE[kind]}): "
            f"{shorten(lines['text'][at])}",
            place=f"{source.label}:{line[at]}",
            remedy="fix the line, or name another format with --input-format",
        )
    text = fields.list.get(4 if kind == "run" else 3)
    value = to_numbers(text, _VALUE[kind], lambda at: f"{source.label}:{line[at]}")
    query = fields.list.get(0)
    queries = query.unique(maintain_order=True)
    return Columns(
        queries,
        query.cast(pl.Enum(queries)).to_physical().to_numpy().astype(np.int32),
        fields.list.get(2),
        value,
        line.to_numpy(),
    )


def to_numbers(text: pl.Series, what: str, place: Any) -> Float:
    """Text → float64, or an InputError at the first one that is not a number."""
    valid = text.str.contains(_NUMBER)
    if not valid.all():
        at = int((~valid).arg_max() or 0)
        raise InputError(
            f"{what} {shorten(text[at])} is not a number",
            place=place(at),
            remedy="drop the line or rescore it" if what == "score" else "grade it 0, 1, 2, …",
        )
    return text.str.strip_prefix("+").cast(pl.Float64).to_numpy().copy()
