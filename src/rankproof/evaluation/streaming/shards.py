"""Read the files of a run a chunk of rows at a time.

The readers of `rankproof.data` read whole files; the same parsers are fed here with pieces that
end between two records. Errors name the row in the file, which is counted only when one occurs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl

from rankproof.data.arrow import arrow_batches
from rankproof.data.columns import Columns, Place, encode, is_large, not_a_number
from rankproof.data.formats import format_of
from rankproof.data.frames import (
    SEPARATOR,
    CsvRecords,
    checked_columns,
    choose_columns,
    csv_header,
    end_of_record,
    polars_reads,
    quote_of,
)
from rankproof.data.hits import RANKS
from rankproof.data.objects import JsonLines, json_queries, read_members, without_scores
from rankproof.data.sources import Format, Source, is_folder, is_pipe
from rankproof.data.trec import blocks_of, parse, place_in, range_blocks, read_blocks, read_range
from rankproof.evaluation.streaming.rows import Rows
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.kernels import as_polars
from rankproof.foundation.lines import CHUNK, LINE
from rankproof.foundation.printable import printable_path

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

STREAMABLE = ("trec", "csv", "tsv", "json", "jsonl", "parquet", "arrow")
MIN_TEXT = 1 << 16  # bytes of text read at a time, at least
LONG_LINE = 64  # bytes; if lines are longer, fewer of them are read at a time


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a run."""

    rows: Rows
    place: Place  # of a row of this chunk, for a message
    dtype: str  # the format of the scores in the input
    notes: tuple[str, ...] = ()  # what the reader assumed


class Shard:
    """One file of a run."""

    def __init__(
        self,
        path: str | os.PathLike[str] | Source,
        form: Format | None = None,
        label: str | None = None,
    ):
        self.source = path if isinstance(path, Source) else Source(path)
        if label is not None:
            self.source.label = label
        self.form: Format = form or format_of(self.source)
        self.label = self.source.label

    @property
    def is_scannable(self) -> bool:
        """True if polars can read rows from the middle of the file."""
        return self.form == "parquet" or (
            self.form == "arrow" and self.source.head.startswith(b"ARROW1")
        )

    @property
    def is_json_list(self) -> bool:
        """True if the file is one JSON list of records."""
        return self.form == "json" and self.source.head.lstrip().startswith(b"[")

    @property
    def is_streamable(self) -> bool:
        """True if the file can be read in chunks, and more than once."""
        path = self.source.path
        if path == "-" or is_pipe(path) or self.form not in STREAMABLE or self.is_json_list:
            return False
        is_utf8 = printable_path(path) == path  # polars scans no other paths
        return not self.is_scannable or (is_utf8 and not self.source.compressed)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        with self.source.errors_explained():
            return Path(self.source.path).stat().st_size

    @cached_property
    def row_count(self) -> int:
        """The number of rows: exact if polars can scan the file, else an estimate."""
        if self.is_scannable:
            with self._errors_explained():
                return int(self._scan().select(pl.len()).collect().item())
        bytes_read = 0

        def count(size: int) -> None:
            nonlocal bytes_read
            bytes_read += size

        with self.source.open(count) as file:
            head = file.read(1 << 20)
        if self.source.plain_size is not None:
            bytes_read = len(head)
        # Of a compressed file, `bytes_read` are the compressed bytes that the head took.
        return int(self._count_rows(head) * max(1.0, self.size / max(1, bytes_read)))

    def _count_rows(self, head: bytes) -> int:
        if self.form == "arrow":
            return len(head) // 24  # ids of a few bytes and a number
        return max(1, head.count(b":" if self.form == "json" else b"\n"))

    def chunks(self, rows: int, first: int = 0, last: int | None = None) -> Iterator[Chunk]:
        """Read the file about `rows` rows at a time.

        [first, last) selects rows of a scannable file, or the lines that begin in these bytes of a
        plain TREC file. Other files are always read from beginning to end.
        """
        if self.is_scannable:
            yield from self._scannable(rows, first, self.row_count if last is None else last)
            return
        text = max(MIN_TEXT, min(self.text_size(rows), rows * LONG_LINE))
        if self.form == "arrow":
            yield from self._arrow(text)
        elif self.form == "json":
            yield from self._json(rows, text)
        elif self.form == "jsonl":
            yield from self._json_lines(text)
        elif self.form in ("csv", "tsv"):
            yield from self._csv(text)
        elif self.source.plain_size is None:
            yield from self._compressed_trec(text)
        else:
            end = self.source.plain_size if last is None else last
            yield from self._plain_trec(text, first, end)

    def text_size(self, rows: int) -> int:
        """Return about how many bytes of text hold so many rows."""
        head = self.source.head
        return rows * max(1, len(head) // max(1, head.count(b"\n")))

    # ------------------------------------------------------------------------ Parquet and Arrow

    def _scan(self) -> pl.LazyFrame:
        if self.form == "arrow":
            return pl.scan_ipc(self.source.path, glob=False, hive_partitioning=False)
        return pl.scan_parquet(self.source.path, glob=False, hive_partitioning=False)

    def _errors_explained(self) -> AbstractContextManager[None]:
        return polars_reads(self.label, self.form)

    def _scannable(self, rows: int, first: int, last: int) -> Iterator[Chunk]:
        for begin in range(first, last, rows):
            end = min(last, begin + rows)
            with self._errors_explained():
                scan = self._scan()
                names = choose_columns(scan.collect_schema().names(), "run", self.label)
                table = scan.select(names).slice(begin, end - begin).collect()
            yield self._from_table(table, begin)
            bytes_before, bytes_after = (self.size * row // self.row_count for row in (begin, end))
            self.source.report(bytes_after - bytes_before)

    def _arrow(self, text: int) -> Iterator[Chunk]:
        first = 0
        with self._errors_explained():
            for batch in arrow_batches(self.source, max(LINE, text)):
                if batch.height:
                    names = choose_columns(batch.columns, "run", self.label)
                    yield self._from_table(batch.select(names), first)
                first += batch.height

    def _from_table(self, table: pl.DataFrame, first: int) -> Chunk:
        def place(row: int) -> str:
            return f"{self.label}: row {first + row + 1}"

        return chunk_from_columns(*checked_columns(table, "run", self.label, place), place)

    # --------------------------------------------------------------- CSV, TSV, JSON lines, JSON

    def _records(self, size: int, quote: str | None) -> Iterator[bytes]:
        """Yield about `size` bytes of whole records: lines, or CSV rows with quoted line feeds."""
        pending = bytearray()
        for chunk in self.source.chunks(self.source.report):
            pending += chunk
            end = end_of_record(pending, quote) if len(pending) >= size else 0
            if end:
                yield bytes(pending[:end])
                del pending[:end]
            if len(pending) > size + CHUNK + LINE:
                raise self.source.too_long()
        yield bytes(pending)

    def _csv(self, size: int) -> Iterator[Chunk]:
        header = b""
        rows = lines = 0

        def read(frame: pl.DataFrame, place: Place, _: bool) -> tuple[int, Chunk | None]:
            names = choose_columns(frame.columns, "run", self.label)
            if not frame.height:
                return 0, None
            columns = checked_columns(frame.select(names), "run", self.label, place, text=True)
            return frame.height, chunk_from_columns(*columns, place)

        for records in self._records(size, quote_of(SEPARATOR[self.form])):
            block = records
            if not header.strip(b"\r\n"):
                header, block = csv_header(header + block, self.form)
                lines = header.count(b"\n")
                if not header.strip(b"\r\n"):
                    continue
            part = CsvRecords(self.source, header, self.form)
            count, chunk = part.read(block, read, lines_before=lines, rows_before=rows)
            rows, lines = rows + count, lines + block.count(b"\n")
            if chunk is not None:
                yield chunk

    def _json_lines(self, size: int) -> Iterator[Chunk]:
        reader = JsonLines(self.source, "run")
        lines = 0
        for block in self._records(size, None):
            if block.strip():
                yield _checked_chunk(reader.columns(block, lines))
            lines += block.count(b"\n")

    def _json(self, rows: int, size: int) -> Iterator[Chunk]:
        members = json_queries(self.source, self.source.chunks(self.source.report), max(LINE, size))
        first: Columns | None = None
        for columns in read_members(members, "run", self.label, rows):
            first = first or columns
            if RANKS in {first.dtype, columns.dtype} and first.dtype != columns.dtype:
                ranked = first if first.dtype == RANKS else columns
                raise without_scores(f"{self.label}[{shorten(ranked.queries[0])}]")
            yield _checked_chunk(columns)

    # ------------------------------------------------------------------------------------- TREC

    def _plain_trec(self, size: int, first: int, last: int) -> Iterator[Chunk]:
        for begin in range(first, last, size):
            end = min(last, begin + size)
            columns = read_range(self.source, "run", begin, end)
            offset = max(0, begin - self.source.bom)  # in the text after the byte-order mark
            if columns is None or is_large(columns.value):
                with self.source.errors_explained():
                    data = b"".join(map(bytes, range_blocks(self.source, begin, end)))
                columns = self._parse_any(data, offset)
            chunk = self._trec_chunk(columns, offset)
            if len(chunk.rows):
                yield chunk
            self.source.report(end - begin)

    def _compressed_trec(self, size: int) -> Iterator[Chunk]:
        pending: list[bytes] = []
        offset = pending_size = 0
        for block in blocks_of(self.source, self.source.chunks(self.source.report)):
            pending.append(block)
            pending_size += len(block)
            if pending_size >= size:
                yield from self._trec_blocks(pending, offset)
                offset, pending_size, pending = offset + pending_size, 0, []
        yield from self._trec_blocks(pending, offset)

    def _trec_blocks(self, blocks: list[bytes], offset: int) -> Iterator[Chunk]:
        columns = read_blocks(self.source, "run", blocks)
        if columns is None or is_large(columns.value):
            columns = self._parse_any(b"".join(blocks), offset)
        if len(columns.codes):
            yield self._trec_chunk(columns, offset)

    def _parse_any(self, data: bytes, offset: int) -> Columns:
        """Parse text that the fast reader did not understand; raise the error if it is invalid."""

        def count_lines_before() -> int:
            lines, last = 0, b"\n"
            for text in self._text_before(offset):
                lines, last = lines + text.count(b"\n"), text[-1:]
            return lines + (last != b"\n")  # a line that begins before `offset` ends there

        return parse(self.source, data, "run", self._place(offset), count_lines_before)

    def _text_before(self, offset: int) -> Iterator[bytes]:
        for text in self.source.chunks():
            if offset <= 0:
                return
            yield text[:offset]
            offset -= len(text)

    def _place(self, offset: int) -> Place:
        """Return the locator of rows of a chunk that begins at a byte of the text."""

        def place(row: int) -> str:
            rows_before = 0
            # A line that continues after `offset` counts whole: cut off, it may be blank.
            is_plain = self.source.plain_size is not None
            blocks: Iterable[bytes] = (
                map(bytes, range_blocks(self.source, 0, offset + self.source.bom))
                if is_plain and offset
                else blocks_of(self.source, self._text_before(offset))
            )
            for block in blocks:
                lines = (line.strip(b" \t\r\x0b\x0c") for line in block.split(b"\n"))
                rows_before += sum(bool(line) and not line.startswith(b"#") for line in lines)
            return place_in(self.source)(rows_before + row)

        return place

    def _trec_chunk(self, columns: Columns, offset: int) -> Chunk:
        notes = tuple(f"{self.source.name}: {note}" for note in columns.notes)
        return _checked_chunk(replace(columns, place=self._place(offset), notes=notes))


def _checked_chunk(columns: Columns) -> Chunk:
    queries, doc = as_polars(columns.queries, "query"), as_polars(columns.doc, "doc")
    _check_scores(columns.value, columns.rest, columns.place)
    rows = Rows(queries, columns.codes, doc, columns.value)
    return Chunk(rows, columns.place, columns.dtype, columns.notes)


def chunk_from_columns(
    query: pl.Series, doc: pl.Series, score: Float, dtype: str, rest: Float | None, place: Place
) -> Chunk:
    """Return the chunk of columns that hold one row each."""
    _check_scores(score, rest, place)
    return Chunk(Rows(*encode(query), doc, score), place, dtype)


def _check_scores(score: Float, rest: Float | None, place: Place) -> None:
    """Refuse scores that are not numbers, or that differ by less than float64 shows.

    A run that is read whole keeps such scores apart by `rest`; a run in parts has no `rest`.
    """
    invalid = np.isnan(score)
    if invalid.any():
        raise not_a_number("run", np.nan, place(int(invalid.argmax())))
    if rest is None:
        return
    inexact = np.flatnonzero(rest)
    # The shortest text of a float64, such as -1e30, stands for no other number.
    values, which = np.unique(score[inexact], return_inverse=True)
    shortest = np.array([float(Fraction(repr(x)) - Fraction(x)) for x in values.tolist()])
    ambiguous = inexact[rest[inexact] != shortest[which]]
    if len(ambiguous):
        row = int(ambiguous[0])
        exact = int(Fraction(score[row]) + Fraction(rest[row]))
        raise InputError(
            f"score {shorten(exact)} is past 2^53 and not a float64: reading it would make ties",
            place=place(row),
            remedy="write smaller numbers, or give the memory to read the run whole (--memory)",
        )


def find_shards(source: Paths, form: Format | None = None) -> list[Shard]:
    """Return the shards of a file, of a folder (by path, without hidden files) or of a list."""
    if not isinstance(source, str | os.PathLike):
        shards = [Shard(path, form) for path in source]
        if not shards:
            raise InputError("no file was named", remedy="name at least one shard of the run")
    elif is_folder(source):
        files = (path for path in Path(source).rglob("*") if path.is_file())
        paths = sorted(path for path in files if not is_hidden(path.relative_to(source).parts))
        if not paths:
            raise InputError(
                "this is a directory without files", place=str(source), remedy="name a run"
            )
        shards = [Shard(path, form) for path in paths]
    else:
        shards = [Shard(source, form)]
        if is_pipe(os.fspath(source)):  # its content is held
            return shards
    for shard in shards:
        check_streamable(shard)
    return shards


def is_hidden(parts: Sequence[str]) -> bool:
    """True if a path is one that programs write beside data, such as _SUCCESS or .crc."""
    return any(part.startswith((".", "_")) for part in parts)


def check_streamable(shard: Shard) -> None:
    """Refuse a shard that can only be read whole."""
    if not shard.is_streamable:
        what, remedy = f"a {shard.form} file", "write it as TREC, CSV, JSON lines or Parquet"
        if shard.is_json_list:
            what = "a JSON list"
        elif shard.form in STREAMABLE:
            how = "compressed as a whole" if shard.source.compressed else "a pipe"
            what, remedy = f"{what} that is {how}", "write it to a file, not compressed"
        raise InputError(f"{what} cannot be read in pieces", place=shard.label, remedy=remedy)


def common_dtype(dtypes: Sequence[str]) -> str:
    """Return the score format of all shards; float64 if they differ."""
    return dtypes[0] if len(set(dtypes)) == 1 else "float64"
