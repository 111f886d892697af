"""Files of a run, read a chunk of rows at a time."""

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

IN_PIECES = ("trec", "csv", "tsv", "json", "jsonl", "parquet", "arrow")  # the others need all of it
LEAST_TEXT = 1 << 16  # bytes of text read at a time, at least
LONG_LINE = 64  # bytes; where lines are longer, fewer of them are read at a time


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of a run, and where they come from."""

    rows: Rows
    place: Place  # of a row of this chunk, for a message
    dtype: str  # the format the scores came in
    notes: tuple[str, ...] = ()  # what reading it took for granted


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
    def scanned(self) -> bool:
        """Whether polars finds rows in the middle of it."""
        return self.form == "parquet" or (
            self.form == "arrow" and self.source.head.startswith(b"ARROW1")
        )

    @property
    def listed(self) -> bool:
        """Whether it is one JSON list of records."""
        return self.form == "json" and self.source.head.lstrip().startswith(b"[")

    @property
    def streamed(self) -> bool:
        """Whether the file can be read in pieces, and more than once."""
        held = self.source.path == "-" or is_pipe(self.source.path)
        whole = self.form not in IN_PIECES or self.listed
        path = self.source.path  # polars scans none that is not UTF-8
        unscannable = self.scanned and (self.source.compressed or printable_path(path) != path)
        return not unscannable and not held and not whole

    @property
    def size(self) -> int:
        """Bytes on disk."""
        with self.source.errors_explained():
            return Path(self.source.path).stat().st_size

    @cached_property
    def rows(self) -> int:
        """How many rows there are: exactly where polars can tell, else about so many."""
        if self.scanned:
            with self._trouble():
                return int(self._scan().select(pl.len()).collect().item())
        told = [0]

        def count(amount: int) -> None:
            told[0] += amount

        with self.source.open(count) as file:
            head = file.read(1 << 20)
        # Of a compressed file as many bytes were read as the head took.
        read = len(head) if self.source.plain_size is not None else max(1, told[0])
        return int(self._rows_in(head) * max(1.0, self.size / max(1, read)))

    def _rows_in(self, head: bytes) -> int:
        if self.form == "arrow":
            return len(head) // 24  # ids of a few bytes and a number
        return max(1, head.count(b":" if self.form == "json" else b"\n"))

    def chunks(
        self,
        rows: int,
        first: int = 0,
        last: int | None = None,
    ) -> Iterator[Chunk]:
        """The file, about so many rows at a time.

        What can be read in ranges gives [first, last) alone: rows where polars finds them, else
        the lines that begin in these bytes of plain TREC.
        """
        if self.scanned:
            total = self.rows if last is None else last
            for begin in range(first, total, rows):
                end = min(total, begin + rows)
                yield self.scanned_rows(begin, end)
                share = self.size * end // self.rows - self.size * begin // self.rows
                self.source.report(share)
            return
        step = max(LEAST_TEXT, min(self.size_of(rows), rows * LONG_LINE))
        plain = self.source.plain_size
        if self.form == "arrow":
            yield from self._arrow(step)
        elif self.form == "json":
            yield from self._json(rows, step)
        elif self.form == "jsonl":
            yield from self._json_lines(step)
        elif self.form in ("csv", "tsv"):
            yield from self._csv(step)
        elif plain is None:
            yield from self._compressed(step)
        else:
            total = plain if last is None else last
            for begin in range(first, total, step):
                end = min(total, begin + step)
                chunk = self.trec_range(begin, end)
                if len(chunk.rows):
                    yield chunk
                self.source.report(end - begin)

    def size_of(self, rows: int) -> int:
        """About so many bytes of text hold that many rows."""
        head = self.source.head
        return rows * max(1, len(head) // max(1, head.count(b"\n")))

    # ------------------------------------------------------------------------ Parquet and Arrow

    def _scan(self) -> pl.LazyFrame:
        if self.form == "arrow":
            return pl.scan_ipc(self.source.path, glob=False, hive_partitioning=False)
        return pl.scan_parquet(self.source.path, glob=False, hive_partitioning=False)

    def _trouble(self) -> AbstractContextManager[None]:
        return polars_reads(self.label, self.form)

    def scanned_rows(self, first: int, last: int) -> Chunk:
        """Rows [first, last) of a Parquet or Arrow file."""
        with self._trouble():
            scan = self._scan()
            names = choose_columns(scan.collect_schema().names(), "run", self.label)
            table = scan.select(names).slice(first, last - first).collect()
        return self._from_table(table, first)

    def _arrow(self, step: int) -> Iterator[Chunk]:
        first = 0
        with self._trouble():
            for batch in arrow_batches(self.source, max(LINE, step)):
                if batch.height:
                    names = choose_columns(batch.columns, "run", self.label)
                    yield self._from_table(batch.select(names), first)
                first += batch.height

    def _from_table(self, table: pl.DataFrame, first: int) -> Chunk:
        def place(row: int) -> str:
            return f"{self.label}: row {first + row + 1}"

        return chunk_of(*checked_columns(table, "run", self.label, place), place)

    # --------------------------------------------------------------------- CSV, TSV, JSON lines

    def _records(self, step: int, quote: str | None) -> Iterator[bytes]:
        """Whole records: lines, and in CSV whole where a line feed stands between quotes."""
        held = bytearray()
        for chunk in self.source.chunks(self.source.report):
            held += chunk
            end = end_of_record(held, quote) if len(held) >= step else 0
            if end:
                yield bytes(held[:end])
                del held[:end]
            if len(held) > step + CHUNK + LINE:
                raise self.source.too_long()
        yield bytes(held)

    def _csv(self, step: int) -> Iterator[Chunk]:
        separator = SEPARATOR[self.form]
        header = b""
        rows = lines = 0

        def read(frame: pl.DataFrame, place: Place, _: bool) -> tuple[int, Chunk | None]:
            names = choose_columns(frame.columns, "run", self.label)
            if not frame.height:
                return 0, None
            columns = checked_columns(frame.select(names), "run", self.label, place, text=True)
            return frame.height, chunk_of(*columns, place)

        for records in self._records(step, quote_of(separator)):
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

    def _json_lines(self, step: int) -> Iterator[Chunk]:
        reader = JsonLines(self.source, "run")
        lines = 0
        for block in self._records(step, None):
            if block.strip():
                yield _whole(reader.columns(block, lines))
            lines += block.count(b"\n")

    def _json(self, rows: int, step: int) -> Iterator[Chunk]:
        members = json_queries(self.source, self.source.chunks(self.source.report), max(LINE, step))
        first: Columns | None = None
        for columns in read_members(members, "run", self.label, rows):
            first = first or columns
            if RANKS in {first.dtype, columns.dtype} and first.dtype != columns.dtype:
                ranked = first if first.dtype == RANKS else columns
                raise without_scores(f"{self.label}[{shorten(ranked.queries[0])}]")
            yield _whole(columns)

    # ------------------------------------------------------------------------------------- TREC

    def trec_range(self, begin: int, end: int) -> Chunk:
        """The lines that begin in [begin, end) of a plain TREC file."""
        columns = read_range(self.source, "run", begin, end)
        inside = max(0, begin - self.source.bom)  # of the content, which has no byte-order mark
        if columns is None or is_large(columns.value):
            with self.source.errors_explained():
                data = b"".join(map(bytes, range_blocks(self.source, begin, end)))
            columns = self._general(data, inside)
        return self._from_columns(columns, inside)

    def _compressed(self, step: int) -> Iterator[Chunk]:
        held: list[bytes] = []
        begin = size = 0
        for block in blocks_of(self.source, self.source.chunks(self.source.report)):
            held.append(block)
            size += len(block)
            if size >= step:
                yield from self._block(held, begin)
                begin, size, held = begin + size, 0, []
        yield from self._block(held, begin)

    def _block(self, blocks: list[bytes], begin: int) -> Iterator[Chunk]:
        columns = read_blocks(self.source, "run", blocks)
        if columns is None or is_large(columns.value):
            columns = self._general(b"".join(blocks), begin)
        if len(columns.codes):
            yield self._from_columns(columns, begin)

    def _general(self, data: bytes, begin: int) -> Columns:
        """What the fast reader did not understand; the error, if it is one."""

        def before() -> int:
            lines, last = 0, b"\n"
            for chunk in self._before(begin):
                lines, last = lines + chunk.count(b"\n"), chunk[-1:]
            return lines + (last != b"\n")  # a line that begins before ends there

        return parse(self.source, data, "run", self._place(begin), before)

    def _before(self, begin: int) -> Iterator[bytes]:
        """The content up to a byte."""
        for chunk in self.source.chunks():
            if begin <= 0:
                return
            yield chunk[:begin]
            begin -= len(chunk)

    def _place(self, begin: int) -> Place:
        """Rows of a chunk are counted in the file when a message needs one."""

        def place(row: int) -> str:
            before = 0
            # A line that goes on behind counts as a whole: cut off, it may be blanks alone.
            plain = self.source.plain_size is not None
            blocks: Iterable[bytes] = (
                map(bytes, range_blocks(self.source, 0, begin + self.source.bom))
                if plain and begin
                else blocks_of(self.source, self._before(begin))
            )
            for block in blocks:
                lines = (line.strip(b" \t\r\x0b\x0c") for line in block.split(b"\n"))
                before += sum(bool(line) and not line.startswith(b"#") for line in lines)
            return place_in(self.source)(before + row)

        return place

    def _from_columns(self, columns: Columns, begin: int) -> Chunk:
        notes = tuple(f"{self.source.name}: {note}" for note in columns.notes)
        return _whole(replace(columns, place=self._place(begin), notes=notes))


def _whole(columns: Columns) -> Chunk:
    queries, doc = as_polars(columns.queries, "query"), as_polars(columns.doc, "doc")
    _check_scores(columns.value, columns.rest, columns.place)
    rows = Rows(queries, columns.codes, doc, columns.value)
    return Chunk(rows, columns.place, columns.dtype, columns.notes)


def chunk_of(
    query: pl.Series, doc: pl.Series, score: Float, dtype: str, rest: Float | None, place: Place
) -> Chunk:
    _check_scores(score, rest, place)
    return Chunk(Rows(*encode(query), doc, score), place, dtype)


def _check_scores(score: Float, rest: Float | None, place: Place) -> None:
    wrong = np.isnan(score)
    if wrong.any():
        raise not_a_number("run", np.nan, place(int(wrong.argmax())))
    if rest is not None:  # in parts there is nothing beside a score to tell it from others
        large = np.flatnonzero(rest)
        # The shortest text of a float64, such as -1e30, stands for no other number.
        values, which = np.unique(score[large], return_inverse=True)
        own = np.array([float(Fraction(repr(x)) - Fraction(x)) for x in values.tolist()])
        unsure = large[rest[large] != own[which]]
        if len(unsure):
            at = int(unsure[0])
            whole = int(Fraction(score[at]) + Fraction(rest[at]))
            raise InputError(
                f"score {shorten(whole)} is past 2^53 and not a float64: reading it would "
                "make ties",
                place=place(at),
                remedy="write smaller numbers, or give the memory to read the run whole (--memory)",
            )


def find_shards(source: Paths, form: Format | None = None) -> list[Shard]:
    """A file, the files of a folder by name (those that begin with . or _ left out), or several."""
    if isinstance(source, str | os.PathLike):
        if not is_folder(source):
            shard = Shard(source, form)
            if not is_pipe(os.fspath(source)):  # which is held
                check_streamed(shard)
            return [shard]
        paths = sorted(
            path
            for path in Path(source).rglob("*")
            if path.is_file() and not hidden(path.relative_to(source).parts)
        )
        if not paths:
            raise InputError(
                "this is a directory without files", place=str(source), remedy="name a run"
            )
        shards = [Shard(path, form) for path in paths]
    else:
        shards = [Shard(path, form) for path in source]
        if not shards:
            raise InputError("no file was named", remedy="name at least one shard of the run")
    for shard in shards:
        check_streamed(shard)
    return shards


def hidden(parts: Sequence[str]) -> bool:
    """Whether a path is one that the field's writers leave beside the data: _SUCCESS, .crc."""
    return any(part.startswith((".", "_")) for part in parts)


def check_streamed(shard: Shard) -> None:
    if not shard.streamed:
        what, remedy = f"a {shard.form} file", "write it as TREC, CSV, JSON lines or Parquet"
        if shard.listed:
            what = "a JSON list"
        elif shard.form in IN_PIECES:
            how = "compressed as a whole" if shard.source.compressed else "a pipe"
            what, remedy = f"{what} that is {how}", "write it to a file, not compressed"
        raise InputError(f"{what} cannot be read in pieces", place=shard.label, remedy=remedy)


def common_dtype(dtypes: Sequence[str]) -> str:
    """The format of all shards, float64 where they differ."""
    return dtypes[0] if len(set(dtypes)) == 1 else "float64"
