"""Evaluate a run in files of any size within a bound on memory.

The size of a run in memory is estimated first. A run that fits is read whole; a larger one is read
in chunks, and a query is evaluated once all of its rows are there.
"""

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
from rankproof.evaluation import EvaluatedRun, Evaluation, Policy, evaluate_tables
from rankproof.evaluation.checks import check_scales
from rankproof.evaluation.streaming.merging import (
    EXAMPLE_COUNT,
    Pair,
    PartwiseEvaluation,
    RepeatedPair,
    example_queries,
    repeated_pair_error,
    split_by_hash,
)
from rankproof.evaluation.streaming.rows import Rows, concatenate_rows
from rankproof.evaluation.streaming.shards import Chunk, Paths, Shard, common_dtype, find_shards
from rankproof.evaluation.streaming.spill import spill_folder
from rankproof.foundation.arrays import Int
from rankproof.foundation.errors import InputError
from rankproof.foundation.kernels import warn_if_slow
from rankproof.foundation.lines import LINE
from rankproof.foundation.memory import BYTES_PER_ROW, available_memory, parse_memory
from rankproof.measures import Measure

MEMORY_SHARE = 0.5  # of the available memory, unless a bound is given
SPILL_CHUNKS = 3  # chunks held before they are spilled; rows at rest take a quarter of their peak

# For a file that is read whole: the memory of a row as a multiple of BYTES_PER_ROW, and that of its
# text as a multiple of the file.
WHOLE_FILE_COST: dict[Format, tuple[int, int]] = {
    **dict.fromkeys(("trec", "parquet", "arrow"), (1, 4)),
    **dict.fromkeys(("csv", "tsv"), (2, 8)),
    **dict.fromkeys(("json", "jsonl"), (4, 16)),  # Python objects
}
SMALL_FILE = 1 << 24  # bytes of a plain file that always fits; its rows are not counted

_T = TypeVar("_T")


def _memory_limit(memory: int | str | None) -> int:
    return int(MEMORY_SHARE * available_memory()) if memory is None else parse_memory(memory)


@contextmanager
def open_run(
    path: str, memory: int | str | None, spill_dir: str | os.PathLike[str] | None
) -> Iterator[Source]:
    """Open a file or pipe; a pipe's content that is too large to hold is written to disk first."""
    if not is_pipe(path):
        yield Source(path)
        return
    limit = _memory_limit(memory) // WHOLE_FILE_COST["trec"][1]
    chunks = _read_pipe(path)
    pending, size = [], 0
    for chunk in chunks:
        pending.append(chunk)
        size += len(chunk)
        if size > limit:
            break
    else:
        yield Source(path, b"".join(pending))
        return
    with spill_folder(spill_dir) as folder:
        with (folder / "input").open("wb") as file:
            file.writelines(chain(pending, chunks))
        pending.clear()
        source = Source(folder / "input")
        source.label, source.name = label_of(path), stem(path)
        yield source


def _read_pipe(path: str) -> Iterator[bytes]:
    try:
        yield from pipe_chunks(path)
    except OSError as error:
        raise InputError(
            f"cannot read it ({error.strerror or error})",
            place=label_of(path),
            remedy="name a file",
        ) from None


def fits_in_memory(source: Source, form: Format | None, memory: int | str | None) -> bool:
    """Return whether a run may be read whole.

    Sets `source.limit`, the bytes that may be held of it: the estimate may be too low.
    """
    shard = Shard(source, form)
    row_cost, text_cost = WHOLE_FILE_COST.get(shard.form, WHOLE_FILE_COST["json"])
    limit = _memory_limit(memory)
    source.limit = max(LINE, limit // text_cost)
    if not shard.is_streamable:
        return True
    if memory is None and source.plain_size is not None and shard.size < SMALL_FILE:
        return True
    return shard.row_count * row_cost * BYTES_PER_ROW <= limit


def needs_parts(source: object, memory: int | str | None, form: Format | None = None) -> bool:
    """Return whether a run is read in parts: a folder always, a file if it would not fit.

    >>> from rankproof.evaluation.streaming import needs_parts
    >>> needs_parts("try/plain.trec", "1GB")
    False
    """
    if not isinstance(source, str | os.PathLike) or is_pipe(os.fspath(source)):
        return False
    return is_folder(source) or not fits_in_memory(Source(source), form, memory)


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
    kept: list[EvaluatedRun] | None = None,
) -> Evaluation:
    """Evaluate a file or a folder of shards: whole if it fits into memory, else in parts.

    A run that is read whole is appended to `kept`, with its intermediate results.

    >>> from rankproof.evaluation import Policy
    >>> from rankproof.evaluation.streaming import evaluate_file
    >>> qrels = rp.read_qrels("try/qrels.txt")
    >>> evaluate_file("try/plain.trec", qrels, [rp.RR], Policy())["RR"].queries
    30
    """
    label = name or stem(os.fspath(run))
    evaluation = PartwiseEvaluation(qrels, measures, policy, label)

    def evaluate_whole(table: Run) -> Evaluation:
        return evaluate_tables(table, qrels, measures, policy, kept)

    def evaluate_parts(shards: list[Shard]) -> Evaluation:
        return _evaluate_shards(shards, evaluation, memory, spill_dir)

    return read_whole_or_in_parts(
        run, evaluate_whole, evaluate_parts, memory, spill_dir, name=label, form=format
    )


def read_whole_or_in_parts(
    run: str | os.PathLike[str],
    use_whole: Callable[[Run], _T],
    use_shards: Callable[[list[Shard]], _T],
    memory: int | str | None,
    spill_dir: str | os.PathLike[str] | None,
    *,
    name: str,
    form: Format | None,
) -> _T:
    """Return `use_whole` of a run that fits into memory, `use_shards` of one that does not."""
    path = os.fspath(run)
    check_format(form)
    if path and is_folder(path):
        return use_shards(find_shards(run, form))
    with open_run(path, memory, spill_dir) as source:
        if fits_in_memory(source, form, memory):
            try:
                return use_whole(read_run(source, format=form, name=name))
            except TooLarge:
                if not Shard(source, form).is_streamable:
                    raise
        return use_shards([Shard(source, form)])


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
    """Evaluate a file, a folder of shards or several files in parts.

    Rows are in the order of the files, and inside a file in that of its rows. If the rows of each
    query are adjacent, nothing is written to disk; otherwise rows are spilled by a hash of the
    query and read back a part at a time. `memory` bounds what is held of the run (by default half
    of what is available), as long as every single query fits.

    >>> from rankproof.evaluation import Policy
    >>> from rankproof.evaluation.streaming import evaluate_stream
    >>> qrels = rp.read_qrels("try/qrels.txt")
    >>> evaluate_stream("try/plain.trec", qrels, [rp.RR], Policy())["RR"].queries
    30
    """
    label = name or (stem(os.fspath(run)) if isinstance(run, str | os.PathLike) else "run")
    evaluation = PartwiseEvaluation(qrels, measures, policy, label)
    return _evaluate_shards(find_shards(run, format), evaluation, memory, spill_dir)


def _evaluate_shards(
    shards: list[Shard],
    evaluation: PartwiseEvaluation,
    memory: int | str | None,
    spill_dir: str | os.PathLike[str] | None,
) -> Evaluation:
    qrels = evaluation.qrels
    check_scales(qrels, evaluation.measures)
    stream, parts = map_query_parts(shards, evaluation.evaluate, memory, spill_dir)

    return evaluation.merge(parts, stream.dtype, stream.first_queries, notes=stream.notes)


def map_query_parts(
    shards: list[Shard],
    work: Callable[[Rows], _T],
    memory: int | str | None,
    spill_dir: str | os.PathLike[str] | None = None,
) -> tuple[ChunkStream, list[_T]]:
    """Return the stream that was read, and `work` of parts that each hold all rows of queries."""
    stream = ChunkStream(shards, _memory_limit(memory))
    try:
        results, repeated = _map_parts(work, iter_whole_queries(stream.chunks()))
    except ScatteredQueries:
        with spill_folder(spill_dir) as folder:
            results, repeated = _map_parts(work, _iter_hash_parts(stream, folder))
    if repeated:
        raise locate_repeated_pair(repeated, stream.shards, stream.rows_per_chunk)
    return stream, results


def _map_parts(work: Callable[[Rows], _T], parts: Iterable[Rows]) -> tuple[list[_T], list[Pair]]:
    """Return `work` of each part, and the repeated pair of each part that has one.

    All parts are read, since the first repeated pair of the file may be in any of them.
    """
    results: list[_T] = []
    repeated: list[Pair] = []
    for rows in parts:
        try:
            results.append(work(rows))
        except RepeatedPair as error:
            repeated.append(error.pair)
        del rows  # frees its memory before the next part is read
    return results, repeated


class ChunkStream:
    """The chunks of all shards, and what is known of the run after they were read."""

    def __init__(self, shards: list[Shard], memory: int):
        self.shards = shards
        # A chunk exists three times: as read, joined with held rows, and while it is evaluated.
        self.rows_per_chunk = max(1, memory // (3 * BYTES_PER_ROW))
        self.first_queries = pl.Series("query", [], pl.String)
        self.notes: dict[str, None] = {}  # what the readers assumed, each note once
        self._dtypes: dict[str, None] = {}

    @property
    def dtype(self) -> str:
        """The format of all scores."""
        return common_dtype(list(self._dtypes))

    def chunks(self) -> Iterator[Chunk]:
        """Read all shards in order."""
        rows = 0
        for shard in self.shards:
            for chunk in shard.chunks(self.rows_per_chunk):
                self._dtypes[chunk.dtype] = None
                self.notes |= dict.fromkeys(chunk.notes)
                if len(self.first_queries) < EXAMPLE_COUNT:
                    self.first_queries = example_queries([self.first_queries, chunk.rows.queries])
                rows += len(chunk.rows)
                warn_if_slow(rows)
                yield chunk
        for shard in self.shards:
            shard.source.check_unchanged()
        if not rows:
            raise no_rows(self.shards[0].label)


# ---------------------------------------------------------------- if each query's rows are adjacent


class ScatteredQueries(Exception):
    """A query appears again after others."""


def iter_whole_queries(chunks: Iterable[Chunk]) -> Iterator[Rows]:
    """Yield all rows of some queries as soon as they were read; raise ScatteredQueries if one
    appears again after others.

    The last query of a chunk is held back, as the next chunk may continue it.
    """
    distinct = _DistinctIds()
    pending: list[Rows] = []  # rows of the query held back
    for chunk in chunks:
        rows = chunk.rows
        starts = rows.query_starts()
        continues = bool(pending) and pending[-1].queries[0] == rows.queries[0]
        new = rows.queries[1:] if continues else rows.queries
        # `distinct` looks only now and then, but the held query is evaluated with these rows.
        returns = bool(pending) and (new == pending[-1].queries[0]).any()
        if returns or len(starts) > len(rows.queries) or not distinct.add(new):
            raise ScatteredQueries
        last = int(starts[-1])
        if last or not continues:
            complete = [*pending, rows.slice_rows(0, last)] if last else pending
            if complete:
                yield concatenate_rows(complete)
            pending = []
        pending.append(rows.slice_rows(last, len(rows)))
    if pending:
        yield concatenate_rows(pending)
    if not distinct.add(pl.Series([], dtype=pl.String), last=True):
        raise ScatteredQueries


class _DistinctIds:
    """Tells whether ids are distinct, by their hashes: a false alarm costs only time."""

    def __init__(self) -> None:
        self._hashes: list[Int] = []
        self._count = 0
        self._checked = 0

    def add(self, ids: pl.Series, last: bool = False) -> bool:
        """Add ids; return False if a repeated one was noticed.

        Ids are compared whenever their number has doubled, and at the last call.
        """
        self._hashes.append(ids.hash().to_numpy())
        self._count += len(ids)
        if self._count < 2 * self._checked and not last:
            return True
        hashes = np.concatenate(self._hashes)
        self._hashes = [np.unique(hashes)]
        self._checked = self._count
        return len(self._hashes[0]) == len(hashes)


# -------------------------------------------------------------------------- if they are scattered


def _iter_hash_parts(stream: ChunkStream, folder: Path) -> Iterator[Rows]:
    """Write rows to disk by the hash of their query, then yield one part after the other."""
    total = sum(shard.row_count for shard in stream.shards)
    parts = max(1, -(-total // stream.rows_per_chunk))
    files: list[list[Path]] = [[] for _ in range(parts)]
    pending: list[list[pl.DataFrame]] = [[] for _ in range(parts)]
    pending_rows = 0

    def spill() -> None:
        for part, frames in enumerate(pending):
            if frames:
                path = folder / f"{part}-{len(files[part])}.arrow"
                _write_arrow(pl.concat(frames), path)
                files[part].append(path)
                frames.clear()

    for chunk in stream.chunks():
        for frames, rows in zip(pending, split_by_hash(chunk.rows, parts), strict=True):
            if rows.height:
                frames.append(rows)
        pending_rows += len(chunk.rows)
        if pending_rows >= SPILL_CHUNKS * stream.rows_per_chunk:
            spill()
            pending_rows = 0
    spill()
    for paths in filter(None, files):
        yield Rows.from_frame(pl.concat([pl.read_ipc(path) for path in paths]))
        for path in paths:
            path.unlink()


def _write_arrow(frame: pl.DataFrame, path: Path) -> None:
    try:
        frame.write_ipc(path, compression="lz4")
    except pl.exceptions.PolarsError as error:  # a full disk comes as one of these or as OSError
        raise OSError(0, str(error), str(path)) from None


# ------------------------------------------------------------------------------ repeated documents


def locate_repeated_pair(
    pairs: Sequence[Pair], shards: Sequence[Shard], rows_per_chunk: int
) -> InputError:
    """Return the error for the first of these pairs that appears again, found by reading again.

    All shards are read, so that a malformed line is reported first, as if the file were read whole.
    """
    seen: set[Pair] = set()
    error: InputError | None = None
    for chunk in (chunk for shard in shards for chunk in shard.chunks(rows_per_chunk)):
        for row, pair in rows_with_pairs(pairs, chunk):
            if error is None and pair in seen:
                error = repeated_pair_error(pair, chunk.place(row))
            seen.add(pair)
    return error or repeated_pair_error(pairs[0], shards[0].label)


def rows_with_pairs(pairs: Sequence[Pair], chunk: Chunk) -> list[tuple[int, Pair]]:
    """Return the rows of a chunk that hold one of the pairs, in row order."""
    wanted = pl.DataFrame(pairs, ["query", "doc"], orient="row")
    rows = chunk.rows.frame().with_row_index("row").join(wanted, ["query", "doc"], "semi")
    return [(row, (query, doc)) for row, query, doc, _ in rows.sort("row").iter_rows()]
