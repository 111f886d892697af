"""Files of a run, read a chunk of rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl

from rankproof.arrays import Float
from rankproof.errors import InputError
from rankproof.records.columns import Columns, Place, not_a_number
from rankproof.records.formats import format_of
from rankproof.records.frames import checked, choose_columns
from rankproof.records.sources import Format, Progress, Source
from rankproof.records.trec import (
    blocks_of,
    parse_text,
    place_in,
    range_blocks,
    read_blocks,
    read_range,
)

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

STREAMED: tuple[Format, ...] = ("parquet", "trec")
LEAST_TEXT = 1 << 16  # bytes of text read at a time, at least


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of a run in the order of the file."""

    rows: pl.DataFrame  # query and doc as text, score as float64
    place: Place  # of a row of this chunk, for a message
    dtype: str  # the format the scores came in


class Shard:
    """One file of a run, in a format that can be read in pieces."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        form: Format | None = None,
        label: str | None = None,
    ):
        self.source = Source(path)
        if label is not None:
            self.source.label = label
        self.form: Format = form or format_of(self.source)
        self.label = self.source.label

    @property
    def streamed(self) -> bool:
        """Whether the file can be read in pieces, and more than once."""
        return self.form in STREAMED and self.source.path != "-"

    @property
    def size(self) -> int:
        """Bytes on disk."""
        with self.source.trouble():
            return Path(self.source.path).stat().st_size

    @cached_property
    def rows(self) -> int:
        """How many rows there are: exactly for Parquet, about so many for TREC."""
        if self.form == "parquet":
            with self._trouble():
                return int(self._scan().select(pl.len()).collect().item())
        told = [0]

        def count(amount: int) -> None:
            told[0] += amount

        with self.source.open(count) as file:
            head = file.read(1 << 20)
        # Of a compressed file as many bytes were read as the head took.
        read = len(head) if self.source.plain_size is not None else max(1, told[0])
        return int(max(1, head.count(b"\n")) * max(1.0, self.size / max(1, read)))

    def chunks(self, rows: int, progress: Progress | None = None) -> Iterator[Chunk]:
        """The whole file, about so many rows at a time."""
        if self.form == "parquet":
            for first in range(0, self.rows, rows):
                last = min(self.rows, first + rows)
                yield self.parquet_rows(first, last)
                if progress is not None:
                    progress(self.size * last // self.rows - self.size * first // self.rows)
            return
        step = max(LEAST_TEXT, self.size_of(rows))
        plain = self.source.plain_size
        if plain is None:
            yield from self._compressed(step, progress)
            return
        for begin in range(0, plain, step):
            chunk = self.trec_range(begin, min(plain, begin + step))
            if chunk.rows.height:
                yield chunk
            if progress is not None:
                progress(min(plain, begin + step) - begin)

    def size_of(self, rows: int) -> int:
        """About so many bytes of text hold that many rows."""
        head = self.source.head
        return rows * max(1, len(head) // max(1, head.count(b"\n")))

    # ---------------------------------------------------------------------------------- Parquet

    def _scan(self) -> pl.LazyFrame:
        return pl.scan_parquet(self.source.path, glob=False, hive_partitioning=False)

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise InputError(
                f"not parquet, or cut short ({first})",
                place=self.label,
                remedy="fetch or write the file again",
            ) from None

    def parquet_rows(self, first: int, last: int) -> Chunk:
        """Rows [first, last) of a Parquet file."""

        def place(row: int) -> str:
            return f"{self.label}: row {first + row + 1}"

        with self._trouble():
            scan = self._scan()
            names = choose_columns(scan.collect_schema().names(), "run", self.label)
            table = scan.select(names).slice(first, last - first).collect()
        query, doc, score, dtype = checked(table, "run", self.label, place)
        return chunk_of(query, doc, score, dtype, place)

    # ------------------------------------------------------------------------------------- TREC

    def trec_range(self, begin: int, end: int) -> Chunk:
        """The lines that begin in [begin, end) of a plain TREC file."""
        columns = read_range(self.source, "run", begin, end)
        inside = max(0, begin - self.source.bom)  # of the content, which has no byte-order mark
        if columns is None:
            with self.source.trouble():
                data = b"".join(map(bytes, range_blocks(self.source, begin, end, None)))
            columns = self._general(data, inside)
        return self._from_columns(columns, inside)

    def _compressed(self, step: int, progress: Progress | None) -> Iterator[Chunk]:
        held: list[bytes] = []
        begin = size = 0
        for block in blocks_of(self.source.chunks(progress)):
            held.append(block)
            size += len(block)
            if size >= step:
                yield from self._block(held, begin)
                begin, size, held = begin + size, 0, []
        yield from self._block(held, begin)

    def _block(self, blocks: list[bytes], begin: int) -> Iterator[Chunk]:
        columns = read_blocks(self.source, "run", blocks)
        if columns is None:
            columns = self._general(b"".join(blocks), begin)
        if len(columns.codes):
            yield self._from_columns(columns, begin)

    def _general(self, data: bytes, begin: int) -> Columns:
        """What the fast reader did not understand; the error, if it is one."""
        lines, last = 0, b"\n"
        for chunk in self._before(begin):
            lines, last = lines + chunk.count(b"\n"), chunk[-1:]
        lines += last != b"\n"  # a line that begins before ends there
        return parse_text(self.source.decode(data, lines), "run", self._place(begin))

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
            for block in blocks_of(self._before(begin)):
                lines = (line.strip(b" \t\r\x0b\x0c") for line in block.split(b"\n"))
                before += sum(bool(line) and not line.startswith(b"#") for line in lines)
            return place_in(self.source)(before + row)

        return place

    def _from_columns(self, columns: Columns, begin: int) -> Chunk:
        query = columns.queries.gather(columns.codes)
        place = self._place(begin)
        return chunk_of(query, columns.doc, columns.value, columns.dtype, place)


def chunk_of(query: pl.Series, doc: pl.Series, score: Float, dtype: str, place: Place) -> Chunk:
    wrong = np.isnan(score)
    if wrong.any():
        raise not_a_number("run", np.nan, place(int(wrong.argmax())))
    rows = pl.DataFrame({"query": query, "doc": doc, "score": score})
    return Chunk(rows, place, dtype)


def find_shards(source: Paths, form: Format | None = None) -> list[Shard]:
    """A file, the files of a folder by name (those that begin with . or _ left out), or several."""
    if isinstance(source, str | os.PathLike):
        if not Path(source).is_dir():
            return [Shard(source, form)]
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
        raise InputError(
            f"{shard.form} is read whole, not in pieces",
            place=shard.label,
            remedy=f"write the shards as {' or '.join(STREAMED)}",
        )


def common_dtype(dtypes: Sequence[str]) -> str:
    """The format of all shards, float64 where they differ."""
    return dtypes[0] if len(set(dtypes)) == 1 else "float64"
