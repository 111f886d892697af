"""Files of a run as pieces of work: on a disk that all see, behind fsspec, or in a Ray Dataset."""

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

STEP = 1 << 20  # rows read at a time


@dataclass(frozen=True, slots=True)
class File:
    """Where a file is: on disk, or in a file system of fsspec."""

    path: str
    system: Any = None
    label: str = ""

    def known(self) -> tuple[int, int, int] | None:
        """What the system says of it; None where it is not to be seen from here."""
        with suppress(OSError, ValueError):
            return file_signature(self.path) if self.system is None else None
        return None

    @contextmanager
    def local(self) -> Iterator[str]:
        """A path to read; what is elsewhere is fetched first and removed afterwards."""
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
    """The files that a path, an address of fsspec, a folder or a list of them names, in order."""
    if not isinstance(source, str | os.PathLike):
        return [file for one in source for file in find_files(one)]
    where = os.fspath(source)
    if "://" not in where and "::" not in where:
        folder = Path(where)
        paths = [folder]
        if is_folder(folder):
            paths = sorted(p for p in folder.rglob("*") if p.is_file())
        # Workers may run in another folder: the path is absolute, the label as it was given.
        found = [
            File(str(p.absolute()), label=str(p))
            for p in paths
            if p is folder or not is_hidden(p.relative_to(folder).parts)
        ]
    else:
        found = _remote(where)
    if not found:
        raise InputError("there are no files in it", place=where, remedy="name a run")
    return found


def _remote(where: str) -> list[File]:
    fsspec = import_extra("fsspec", "an address", "ray")
    try:
        system, root = fsspec.core.url_to_fs(where)
        if not system.isdir(root):
            return [File(root, system, where)]
        paths = sorted(system.find(root))
    except (OSError, ValueError, ImportError) as error:
        raise InputError(
            f"cannot list it ({error})", place=where, remedy="check the address"
        ) from None
    prefix = root.rstrip("/")
    kept = [p for p in paths if not is_hidden(p.removeprefix(prefix).strip("/").split("/"))]
    return [File(p, system, f"{where.rstrip('/')}: {p}") for p in kept]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows for one task: [first, last) of a file's rows or bytes, or all of it (last None)."""

    file: File | None  # None: the block of a Dataset, handed over beside it
    form: Format | None = None
    first: int = 0
    last: int | None = None
    rows: int = 0  # about so many

    def parts(self, most: int, least: int) -> list[Piece]:
        """The same rows in so many pieces of as many rows, or in fewer of at least so many."""
        size = 0 if self.last is None else self.last - self.first
        count = min(most, self.rows // least, size)
        if count < 2:
            return [self]
        ends = [self.first + size * part // count for part in range(count + 1)]
        return [
            replace(self, first=first, last=last, rows=self.rows // count)
            for first, last in pairwise(ends)
        ]

    def chunks(self, block: Any = None) -> Iterator[Chunk]:
        """The rows, in order."""
        if self.file is None:
            yield _from_block(block, self.first)
            return
        with self.file.local() as path:
            shard = Shard(path, self.form, self.file.label)
            yield from shard.chunks(STEP, first=self.first, last=self.last)


def cut_file(file: File, form: Format | None, rows: int) -> list[Piece]:
    """A file as pieces of about that many rows; what cannot be read in ranges stays whole."""
    with file.local() as path:
        shard = Shard(path, form, file.label)
        check_streamable(shard)
        whole = Piece(file, shard.form, rows=shard.row_count)
        lines = shard.form == "trec" and shard.source.plain_size is not None
        cut = shard.is_scannable or lines  # anything else is read from its beginning
        if file.system is not None or not cut or not shard.row_count:
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
    return type(source).__module__.startswith("ray.data")


def blocks_of(dataset: Any) -> list[Any]:
    """References to a Dataset's blocks in its order, by which `oblivious` may break ties."""
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        blocks: list[Any] = dataset.to_arrow_refs()
    finally:
        options.preserve_order = before
    return blocks


def _from_block(block: Any, first: int) -> Chunk:
    def place(row: int) -> str:
        return f"dataset: row {first + row + 1}"

    frame = pl.from_arrow(block)
    assert isinstance(frame, pl.DataFrame)
    names = choose_columns(frame.columns, "run", "dataset")
    return chunk_from_columns(*checked_columns(frame.select(names), "run", "dataset", place), place)
