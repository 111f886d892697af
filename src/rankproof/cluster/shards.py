"""The files of a run as pieces of work: on a shared disk, behind fsspec, or in a Ray Dataset."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from rankproof.data.frames import checked_columns, choose_columns
from rankproof.data.sources import Format, is_folder
from rankproof.evaluation.streaming.shards import (
    Chunk,
    Shard,
    check_streamable,
    chunk_from_columns,
    is_hidden,
)
from rankproof.evaluation.streaming.spill import spill_folder
from rankproof.foundation.errors import InputError, import_extra
from rankproof.foundation.lines import file_signature

ClusterRun: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Any"

ROWS_PER_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class File:
    """A file on disk, or in a file system of fsspec."""

    path: str
    system: Any = None
    label: str = ""

    def signature(self) -> tuple[int, int, int] | None:
        """Return what changes when the file is written; None where it is not visible from here."""
        with suppress(OSError, ValueError):
            return file_signature(self.path) if self.system is None else None
        return None

    @contextmanager
    def local(self) -> Iterator[str]:
        """Yield a local path; a remote file is fetched first and removed afterwards."""
        if self.system is None:
            yield self.path
            return
        with spill_folder() as folder:
            copy = folder / Path(self.path).name
            try:
                self.system.get_file(self.path, str(copy))
            except (OSError, ValueError) as error:
                raise InputError(
                    f"cannot fetch it ({error})", place=self.label, remedy="check the address"
                ) from None
            yield str(copy)


def find_files(source: ClusterRun) -> list[File]:
    """Return the files of a path, an address of fsspec, a folder, or a list of these, in order."""
    if not isinstance(source, str | os.PathLike):
        return [file for item in source for file in find_files(item)]
    address = os.fspath(source)
    if "://" not in address and "::" not in address:
        folder = Path(address)
        paths = [folder]
        if is_folder(folder):
            paths = sorted(p for p in folder.rglob("*") if p.is_file())
        # Workers may run in another folder, so the path is absolute; the label is as given.
        matches = [
            File(str(p.absolute()), label=str(p))
            for p in paths
            if p is folder or not is_hidden(p.relative_to(folder).parts)
        ]
    else:
        matches = _find_remote_files(address)
    if not matches:
        raise InputError("there are no files in it", place=address, remedy="name a run")
    return matches


def _find_remote_files(address: str) -> list[File]:
    """Return the file at an address of fsspec, or all files of the folder there."""
    fsspec = import_extra("fsspec", "an address", "ray")
    try:
        system, root = fsspec.core.url_to_fs(address)
        if not system.isdir(root):
            return [File(root, system, address)]
        paths = sorted(system.find(root))
    except (OSError, ValueError, ImportError) as error:
        raise InputError(
            f"cannot list it ({error})", place=address, remedy="check the address"
        ) from None
    prefix = root.rstrip("/")
    visible = [p for p in paths if not is_hidden(p.removeprefix(prefix).strip("/").split("/"))]
    return [File(p, system, f"{address.rstrip('/')}: {p}") for p in visible]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows for one task: [first, last) of a file's rows or bytes, or the whole file (last None)."""

    file: File | None  # None: a block of a Dataset, which is passed separately
    form: Format | None = None
    first: int = 0
    last: int | None = None
    rows: int = 0  # estimated

    def split(self, parts: int, min_rows: int) -> list[Piece]:
        """Split into equal pieces: at most `parts`, of at least `min_rows` rows each."""
        size = 0 if self.last is None else self.last - self.first
        count = min(parts, self.rows // min_rows, size)
        if count < 2:
            return [self]
        ends = [self.first + size * part // count for part in range(count + 1)]
        return [
            replace(self, first=first, last=last, rows=self.rows // count)
            for first, last in pairwise(ends)
        ]

    def chunks(self, block: Any = None) -> Iterator[Chunk]:
        """Yield the rows in order; `block` is that of a Dataset."""
        if self.file is None:
            yield _chunk_of_block(block, self.first)
            return
        with self.file.local() as path:
            shard = Shard(path, self.form, self.file.label)
            yield from shard.chunks(ROWS_PER_CHUNK, first=self.first, last=self.last)


def cut_file(file: File, form: Format | None, rows: int) -> list[Piece]:
    """Cut a file into pieces of about so many rows, unless it must be read from its start."""
    with file.local() as path:
        shard = Shard(path, form, file.label)
        check_streamable(shard)
        whole = Piece(file, shard.form, rows=shard.row_count)
        has_lines = shard.form == "trec" and shard.source.plain_size is not None
        has_ranges = shard.is_scannable or has_lines  # anything else is read from its beginning
        if file.system is not None or not has_ranges or not shard.row_count:
            return [whole]
        total, step = shard.row_count, rows
        if shard.form == "trec":
            total, step = shard.size, shard.text_size(rows)
        return [
            replace(
                whole, first=first, last=min(total, first + step), rows=min(rows, shard.row_count)
            )
            for first in range(0, total, step)
        ]


def is_dataset(source: Any) -> bool:
    """True for a Ray Dataset, told by its module: Ray may not be installed."""
    return type(source).__module__.startswith("ray.data")


def blocks_of(dataset: Any) -> list[Any]:
    """Return references to a Dataset's blocks in its order, which may break ties (`oblivious`)."""
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        blocks: list[Any] = dataset.to_arrow_refs()
    finally:
        options.preserve_order = before
    return blocks


def _chunk_of_block(block: Any, first: int) -> Chunk:
    """Check the columns of a Dataset's block; `first` is its first row in the Dataset."""

    def place(row: int) -> str:
        return f"dataset: row {first + row + 1}"

    frame = pl.from_arrow(block)
    assert isinstance(frame, pl.DataFrame)
    names = choose_columns(frame.columns, "run", "dataset")
    return chunk_from_columns(*checked_columns(frame.select(names), "run", "dataset", place), place)
