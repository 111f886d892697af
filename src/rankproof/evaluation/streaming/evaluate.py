"""A run in files of any size → Evaluation, within a bound on memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl

from rankproof.data import read_run
from rankproof.data.columns import no_rows
from rankproof.data.formats import check_format
from rankproof.data.sources import (
    Format,
    Source,
    TooLarge,
    is_folder,
    is_pipe,
    label_of,
    pipe_chunks,
    stem,
)
from rankproof.data.tables import Qrels, Run
from rankproof.evaluation import Evaluated, Evaluation, Policy, evaluate_tables
from rankproof.evaluation.streaming.merging import (
    FEW,
    Pair,
    RepeatedPair,
    check_grades,
    evaluate_part,
    first_queries,
    merge,
    repeated,
    split,
    strange,
)
from rankproof.evaluation.streaming.rows import Rows, joined
from rankproof.evaluation.streaming.shards import (
    Chunk,
    Paths,
    Shard,
    common_dtype,
    find_shards,
)
from rankproof.evaluation.streaming.spill import spill_folder
from rankproof.foundation.arrays import Int
from rankproof.foundation.errors import InputError
from rankproof.foundation.kernels import warn_if_slow
from rankproof.foundation.lines import LINE
from rankproof.foundation.memory import BYTES_PER_ROW, available_memory, parse_memory
from rankproof.measures import Measure

SHARE = 0.5  # of the memory available, where no bound is named
WAITING = 3  # chunks held before they are spilled; rows at rest take a quarter of their peak


# For a file that is read whole: the memory of a row as a multiple of BYTES_PER_ROW, and that of its
# text as a multiple of the file.
WHOLE: dict[Format, tuple[int, int]] = {
    **dict.fromkeys(("trec", "parquet", "arrow"), (1, 4)),
    **dict.fromkeys(("csv", "tsv"), (2, 8)),
    **dict.fromkeys(("json", "jsonl"), (4, 16)),  # Python's own objects
}
SMALL = 1 << 24  # bytes of a plain file that are not worth a look


def _bound(memory: int | str | None) -> int:
    return int(SHARE * available_memory()) if memory is None else parse_memory(memory)


@contextmanager
def opened(
    path: str, memory: int | str | None, spill_dir: str | os.PathLike[str] | None
) -> Iterator[Source]:
    """A file to be read whole or in parts. What comes out of a pipe and is too much to hold is
    written to disk first.
    """
    if not is_pipe(path):
        yield Source(path)
        return
    most = _bound(memory) // WHOLE["trec"][1]
    chunks = _pipe(path)
    held, size = [], 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size > most:
            break
    else:
        yield Source(path, b"".join(held))
        return
    with spill_folder(spill_dir) as folder:
        with (folder / "input").open("wb") as file:
            file.writelines(chain(held, chunks))
        held.clear()
        source = Source(folder / "input")
        source.label, source.name = label_of(path), stem(path)
        yield source


def _pipe(path: str) -> Iterator[bytes]:
    """What comes out of a pipe; an error of reading in one line."""
    try:
        yield from pipe_chunks(path)
    except OSError as error:
        raise InputError(
            f"cannot read it ({error.strerror or error})",
            place=label_of(path),
            remedy="name a file",
        ) from None


def fits(source: Source, form: Format | None, memory: int | str | None) -> bool:
    """Whether a run may be read whole; sets how much of it may be held, should it be more."""
    shard = Shard(source, form)
    row, text = WHOLE.get(shard.form, WHOLE["json"])
    bound = _bound(memory)
    source.limit = max(LINE, bound // text)
    if not shard.streamed:
        return True
    if memory is None and source.plain_size is not None and shard.size < SMALL:
        return True
    return shard.rows * row * BYTES_PER_ROW <= bound


def streams(source: object, memory: int | str | None, form: Format | None = None) -> bool:
    """Whether a run is read in parts: a folder always, a file if it would not fit.

    >>> from rankproof.evaluation.streaming import streams
    >>> streams("try/plain.trec", "1GB")
    False
    """
    if not isinstance(source, str | os.PathLike) or is_pipe(os.fspath(source)):
        return False
    return is_folder(source) or not fits(Source(source), form, memory)


def evaluate_file(
    run: str | os.PathLike[str],
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    *,
    memory: int | str | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
    name: str | None = None,
    format: Format | None = None,  # noqa: A002
    kept: list[Evaluated] | None = None,
) -> Evaluation:
    """A file or a folder of shards → Evaluation: whole where it fits, else in parts.

    What is seen of a run that is read whole is added to `kept`.

    >>> from rankproof.evaluation import Policy
    >>> from rankproof.evaluation.streaming import evaluate_file
    >>> qrels = rp.read_qrels("try/qrels.txt")
    >>> evaluate_file("try/plain.trec", qrels, [rp.RR], Policy())["RR"].queries
    30
    """
    label = name or stem(os.fspath(run))

    def whole(table: Run) -> Evaluation:
        return evaluate_tables(table, qrels, measures, policy, kept)

    def parts(shards: list[Shard]) -> Evaluation:
        return _evaluate(shards, qrels, measures, policy, memory, spill_dir=spill_dir, label=label)

    return whole_or_parts(run, whole, parts, memory, spill_dir, name=label, form=format)


_T = TypeVar("_T")


def whole_or_parts(
    run: str | os.PathLike[str],
    whole: Callable[[Run], _T],
    parts: Callable[[list[Shard]], _T],
    memory: int | str | None,
    spill_dir: str | os.PathLike[str] | None,
    *,
    name: str,
    form: Format | None,
) -> _T:
    """`whole` of a run that fits into memory, `parts` of the shards of one that does not."""
    path = os.fspath(run)
    check_format(form)
    if path and is_folder(path):
        return parts(find_shards(run, form))
    with opened(path, memory, spill_dir) as source:
        if fits(source, form, memory):
            try:
                return whole(read_run(source, format=form, name=name))
            except TooLarge:
                shard = Shard(source, form)
                if not shard.streamed:
                    raise
        return parts([Shard(source, form)])


def evaluate_stream(
    run: Paths,
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    *,
    memory: int | str | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
    name: str | None = None,
    format: Format | None = None,  # noqa: A002
) -> Evaluation:
    """`evaluate` for a file, a folder of shards or several files, in parts.

    Rows are in the order of the files, and in them of their rows. Where the rows of each query
    stand together nothing is written to disk; otherwise rows are spilled by a hash of the query
    and read back a part at a time. `memory` bounds what is held of the run (by default half of
    what is available), as long as every single query fits.

    >>> from rankproof.evaluation import Policy
    >>> from rankproof.evaluation.streaming import evaluate_stream
    >>> qrels = rp.read_qrels("try/qrels.txt")
    >>> evaluate_stream("try/plain.trec", qrels, [rp.RR], Policy())["RR"].queries
    30
    """
    label = name or (stem(os.fspath(run)) if isinstance(run, str | os.PathLike) else "run")
    shards = find_shards(run, format)
    return _evaluate(shards, qrels, measures, policy, memory, spill_dir=spill_dir, label=label)


def _evaluate(
    shards: list[Shard],
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    memory: int | str | None,
    *,
    spill_dir: str | os.PathLike[str] | None,
    label: str,
) -> Evaluation:
    check_grades(qrels, measures)

    def evaluate(rows: Rows) -> Evaluation:
        return evaluate_part(rows, qrels, measures, policy, label, "float64")

    stream, found = in_parts(shards, evaluate, memory, spill_dir)
    return merge(
        *(found, qrels, measures, policy, label, stream.dtype, stream.first),
        notes=stream.notes,
        strange=lambda: strange((chunk.rows for chunk in stream.chunks()), qrels),
    )


def in_parts(
    shards: list[Shard],
    work: Callable[[Rows], _T],
    memory: int | str | None,
    spill_dir: str | os.PathLike[str] | None = None,
) -> tuple[_Stream, list[_T]]:
    """`work` done on all rows of some queries at a time; what is known of the whole, and each."""
    stream = _Stream(shards, _bound(memory))
    try:
        found = _all(work, whole_queries(stream.chunks()))
    except Scattered:
        with spill_folder(spill_dir) as folder:
            found = _all(work, _by_hash(stream, folder))
    done, pairs = found
    if pairs:
        raise place_repeated(pairs, stream.shards, stream.step)
    return stream, done


def _all(work: Callable[[Rows], _T], parts: Iterable[Rows]) -> tuple[list[_T], list[Pair]]:
    """`work` of each part, and the first pair that each lists twice: the file's may be in any."""
    done: list[_T] = []
    pairs: list[Pair] = []
    for rows in parts:
        try:
            done.append(work(rows))
        except RepeatedPair as again:
            pairs.append(again.pair)
        del rows  # the next part is read now
    return done, pairs


class _Stream:
    """The chunks of all shards, and what is known of them after a pass."""

    def __init__(self, shards: list[Shard], bound: int):
        self.shards = shards
        self.bound = bound
        # A chunk is read, brought together with what was held back, and evaluated: three times.
        self.step = max(1, bound // (3 * BYTES_PER_ROW))
        self.first = pl.Series("query", [], pl.String)
        self.notes: dict[str, None] = {}  # what reading took for granted, each once
        self._dtypes: dict[str, None] = {}

    @property
    def dtype(self) -> str:
        return common_dtype(list(self._dtypes))

    def chunks(self) -> Iterator[Chunk]:
        rows = 0
        for shard in self.shards:
            for chunk in shard.chunks(self.step):
                self._dtypes[chunk.dtype] = None
                self.notes |= dict.fromkeys(chunk.notes)
                if len(self.first) < FEW:
                    self.first = first_queries([self.first, chunk.rows.queries])
                rows += len(chunk.rows)
                warn_if_slow(rows)
                yield chunk
        for shard in self.shards:
            shard.source.check_unchanged()
        if not rows:
            raise no_rows(self.shards[0].label)


# -------------------------------------------------------------------------- by ranges of queries


class Scattered(Exception):
    """A query comes again after others."""


def whole_queries(chunks: Iterable[Chunk]) -> Iterator[Rows]:
    """All rows of some queries at a time as they go by, those of the last query alone."""
    seen = _Seen()
    held: list[Rows] = []  # rows of the query that may go on in the next chunk
    for chunk in chunks:
        rows = chunk.rows
        begins = rows.begins()
        goes_on = bool(held) and held[-1].queries[0] == rows.queries[0]
        new = rows.queries[1:] if goes_on else rows.queries
        # The held query is looked for at once: it is measured together with these.
        again = bool(held) and (new == held[-1].queries[0]).any()
        if again or len(begins) > len(rows.queries) or not seen.add(new):
            raise Scattered
        last = int(begins[-1])
        if last or not goes_on:
            whole = [*held, rows.between(0, last)] if last else held
            if whole:
                yield joined(whole)
            held = []
        held.append(rows.between(last, len(rows)))
    if held:
        yield joined(held)
    if not seen.add(pl.Series([], dtype=pl.String), last=True):
        raise Scattered


class _Seen:
    """Whether ids are all different, by their hashes: a false alarm costs time, not truth."""

    def __init__(self) -> None:
        self._hashes: list[Int] = []
        self._count = 0
        self._checked = 0

    def add(self, ids: pl.Series, last: bool = False) -> bool:
        """Looks when there are twice as many as the last time, and at the end."""
        self._hashes.append(ids.hash().to_numpy())
        self._count += len(ids)
        if self._count < 2 * self._checked and not last:
            return True
        hashes = np.concatenate(self._hashes)
        self._hashes = [np.unique(hashes)]
        self._checked = self._count
        return len(self._hashes[0]) == len(hashes)


# --------------------------------------------------------------------------------------- by hash


def _by_hash(stream: _Stream, folder: Path) -> Iterator[Rows]:
    """Write rows to disk by the hash of their query, then give one part after the other."""
    total = sum(shard.rows for shard in stream.shards)
    parts = max(1, -(-total // stream.step))
    pieces: list[list[Path]] = [[] for _ in range(parts)]
    held: list[list[pl.DataFrame]] = [[] for _ in range(parts)]
    waiting = 0

    def write() -> None:
        for part, frames in enumerate(held):
            if frames:
                path = folder / f"{part}-{len(pieces[part])}.arrow"
                _write(pl.concat(frames), path)
                pieces[part].append(path)
                frames.clear()

    for chunk in stream.chunks():
        for frames, rows in zip(held, split(chunk.rows, parts), strict=True):
            if rows.height:
                frames.append(rows)
        waiting += len(chunk.rows)
        if waiting >= WAITING * stream.step:
            write()
            waiting = 0
    write()
    for part in range(parts):
        if pieces[part]:
            yield Rows.of(pl.concat([pl.read_ipc(path) for path in pieces[part]]))
            for path in pieces[part]:
                path.unlink()


def _write(frame: pl.DataFrame, path: Path) -> None:
    try:
        frame.write_ipc(path, compression="lz4")
    except pl.exceptions.PolarsError as error:  # a full disk comes as one of these or as OSError
        raise OSError(0, str(error), str(path)) from None


def place_repeated(pairs: Sequence[Pair], shards: Sequence[Shard], step: int) -> InputError:
    """The error for the first of these pairs that comes again, with its place, found by reading
    again.

    All is read: a line that is none is told of first, as where a file is read whole.
    """
    seen: set[Pair] = set()
    error: InputError | None = None
    for chunk in (chunk for shard in shards for chunk in shard.chunks(step)):
        for row, pair in listed(pairs, chunk):
            if error is None and pair in seen:
                error = repeated(pair, chunk.place(row))
            seen.add(pair)
    return error or repeated(pairs[0], shards[0].label)


def listed(pairs: Sequence[Pair], chunk: Chunk) -> list[tuple[int, Pair]]:
    """The rows of a chunk that hold one of these, in their order."""
    wanted = pl.DataFrame(pairs, ["query", "doc"], orient="row")
    rows = chunk.rows.frame().with_row_index("row").join(wanted, ["query", "doc"], "semi")
    return [(row, (query, doc)) for row, query, doc, _ in rows.sort("row").iter_rows()]
