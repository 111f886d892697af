"""Runs in shards → Evaluation: a task measures the queries that lie whole in the piece it reads.

A query at the end of a piece may go on in the next one: its rows alone travel. Only where a query
comes again after others do all rows go by a hash of their query to the task that measures them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Unpack

import numpy as np
import polars as pl

from rankproof.cluster.session import connected, fetched, gather, gathered, use_own_cores
from rankproof.cluster.shards import (
    ClusterRun,
    File,
    Piece,
    blocks_of,
    cut_file,
    find_files,
    is_dataset,
)
from rankproof.comparison.pairs import Comparison, compare_evaluations
from rankproof.data import QrelsLike, read_qrels
from rankproof.data.columns import no_rows
from rankproof.data.sources import Format, changed, stem
from rankproof.data.tables import Qrels
from rankproof.evaluation import Choices, Evaluation, Policy, parse_all
from rankproof.evaluation.checks import check_scales
from rankproof.evaluation.streaming.evaluate import (
    ScatteredQueries,
    iter_whole_queries,
    rows_with_pairs,
)
from rankproof.evaluation.streaming.merging import (
    EXAMPLE_COUNT,
    Pair,
    PartwiseEvaluation,
    RepeatedPair,
    example_queries,
    example_rows,
    first_rows_if_all_unjudged,
    repeated_pair_error,
    split_by_hash,
)
from rankproof.evaluation.streaming.rows import Rows
from rankproof.evaluation.streaming.shards import Chunk, common_dtype
from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError, check_whole_number
from rankproof.measures import Measure
from rankproof.unjudged.judged_share import set_beside, with_judged

ROWS = 1 << 21  # of a task, read or measured
LAST, PARTS = 2, 4  # tasks of each worker that are cut again, so that all workers end together
LEAST = 1 << 17  # rows of such a part

Progress = Callable[[float], None]
Measured = Evaluation | list[Pair]  # or what is the first in it that is listed twice
# Parts, formats, first queries, what reading took for granted.
Found = tuple[list[Measured], list[str], pl.Series, list[str]]


def evaluate(
    run: ClusterRun,
    qrels: QrelsLike,
    measures: str | Measure | Iterable[str | Measure],
    *,
    name: str | None = None,
    address: str | None = None,
    rows_per_task: int = ROWS,
    **settings: Unpack[Choices],
) -> Evaluation:
    """`rankproof.evaluate` on Ray, with the same figures to the last bit.

    `run` is a file, a folder of Parquet or TREC files, an address that fsspec knows (s3://…), a
    list of these, or a Ray Dataset. A query's rows may be spread over files: their order is that
    of the files by name, and in them of the rows. `address` is as in `connected`.

    >>> from rankproof import cluster
    >>> found = cluster.evaluate("try/saturated.trec", "try/qrels.txt", "nDCG@5")
    >>> round(found["nDCG@5"].expected, 4)
    0.4771
    """
    policy = Policy.of(**settings)
    with connected(address):
        return evaluate_shards(
            *(run, read_qrels(qrels), parse_all(measures), policy),
            name=name,
            rows_per_task=rows_per_task,
        )


def compare(
    runs: Mapping[str, ClusterRun],
    qrels: QrelsLike,
    measures: str | Measure | Iterable[str | Measure],
    *,
    seed: int = 0,
    address: str | None = None,
    rows_per_task: int = ROWS,
    **settings: Unpack[Choices],
) -> Comparison:
    """`rankproof.compare` of runs in shards; settings are those of `evaluate`.

    >>> from rankproof import cluster
    >>> runs = {name: f"try/{name}.trec" for name in ("saturated", "plain")}
    >>> found = cluster.compare(runs, "try/qrels.txt", "nDCG@5")
    >>> round(found["saturated", "plain"][rp.nDCG @ 5].expected, 4)
    -0.1103
    """
    judged, parsed = read_qrels(qrels), parse_all(measures)
    policy = Policy.of(**settings)
    wanted = with_judged(parsed)
    with connected(address):
        evaluations = [
            set_beside(
                evaluate_shards(
                    run, judged, wanted, policy, name=name, rows_per_task=rows_per_task
                ),
                parsed,
            )
            for name, run in runs.items()
        ]
    return compare_evaluations(evaluations, seed=seed)


def evaluate_shards(
    run: ClusterRun,
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    *,
    name: str | None = None,
    format: Format | None = None,  # noqa: A002
    rows_per_task: int = ROWS,
    progress: Progress | None = None,
) -> Evaluation:
    """`evaluate` for judgements read and measures parsed before, in the session there is."""
    check_whole_number("rows_per_task", rows_per_task)
    check_scales(qrels, measures)
    label = name or (stem(os.fspath(run)) if isinstance(run, str | os.PathLike) else "run")
    with connected() as ray:
        work = _Work(ray, run, format, rows_per_task)
        evaluation = PartwiseEvaluation(qrels, list(measures), policy, label)
        shared = ray.put(evaluation)
        found = _where_they_stand(work, shared, progress)
        if found is None:  # pieces that were told of are not told of again
            found = _by_hash(work, shared)
        measured, dtypes, first, notes = found
        pairs = [pair for part in measured if isinstance(part, list) for pair in part]
        if pairs:
            raise work.place_repeated(pairs)
        work.check_unchanged()
        parts = [part for part in measured if not isinstance(part, list)]
        return evaluation.merge(
            parts,
            common_dtype(dtypes),
            first,
            notes=dict.fromkeys(notes),
            find_unjudged_rows=lambda: work.find_unjudged_rows(shared),
        )


def _where_they_stand(work: _Work, shared: Any, progress: Progress | None) -> Found | None:
    """Every query measured by the task that reads it; None where one comes again after others."""
    ray = work.ray
    read = ray.remote(num_returns=3)(_read)
    tasks = [read.remote(shared, piece, block) for piece, block in work.pieces]
    # Each has its own share of the one run that the bar is told of.
    told = None if progress is None else lambda done: progress(done / len(tasks))
    # One after the other: of a piece that was left where queries came again nobody has seen all,
    # and what is wrong with a later one is not the first that is wrong.
    pieces: Iterator[_Read | None] = gathered(ray, [task[0] for task in tasks], told)
    found, ends, listed, dtypes, notes = [], [], [], [], []
    for piece, (_, first, last) in zip(pieces, tasks, strict=True):
        if piece is None:
            return None
        if len(piece.queries):
            listed.append(piece.queries)
            dtypes.append(piece.dtype)
            notes += piece.notes
            found += piece.found
            ends.append((piece.queries[0], piece.first, first))
            ends.append((piece.queries[-1], piece.last, last))
    if not listed:
        raise no_rows(work.label)
    queries = pl.concat(listed)
    begun = queries.rle().struct.field("value")  # one that goes on over pieces, once
    if begun.n_unique() < len(begun):
        return None
    measure = ray.remote(_measure)
    found += gather(ray, [measure.remote(shared, *some) for some in _batches(ends, work.rows)])
    return found, dtypes, begun.head(EXAMPLE_COUNT), notes


def _batches(ends: Sequence[tuple[str, int, Any]], most: int) -> Iterator[list[Any]]:
    """All ends of some queries at a time, given as (query, rows, what stands for them)."""
    batch: list[Any] = []
    size, before = 0, None
    for query, rows, reference in ends:
        if batch and query != before and size + rows > most:
            yield batch
            batch, size = [], 0
        batch.append(reference)
        size, before = size + rows, query
    yield batch


def _by_hash(work: _Work, shared: Any) -> Found:
    """Every row sent by a hash of its query to the task that measures it."""
    ray = work.ray
    count = max(1, -(-sum(piece.rows for piece, _ in work.pieces) // work.rows))
    cut = ray.remote(num_returns=count + 1)(_split)
    pieces = [cut.remote(piece, block, count) for piece, block in work.pieces]
    heads = [head for head in gather(ray, [piece[0] for piece in pieces]) if head is not None]
    measure = ray.remote(_measure)
    tasks = [
        measure.remote(shared, *(piece[1 + part] for piece in pieces)) for part in range(count)
    ]
    notes = [note for _, _, told in heads for note in told]
    first = example_queries([queries for _, queries, _ in heads])
    return gather(ray, tasks), [dtype for dtype, _, _ in heads], first, notes


class _Work:
    """What there is to read, in pieces of about so many rows."""

    def __init__(self, ray: Any, run: ClusterRun, form: Format | None, rows: int):
        self.ray = ray
        self.rows = rows
        self.pieces: list[tuple[Piece, Any]] = []
        self._files: list[tuple[File, Any]] = []
        if is_dataset(run):
            self.label = "dataset"
            self._from_dataset(run)
        else:
            files = find_files(run)
            self.label = files[0].label
            self._files = [(file, file.known()) for file in files]
            self._from_files(files, form)

    def _from_files(self, files: list[File], form: Format | None) -> None:
        cut = self.ray.remote(cut_file)
        tasks = [cut.remote(file, form, self.rows) for file in files]
        found = [piece for pieces in gather(self.ray, tasks) for piece in pieces]
        last = max(0, len(found) - LAST * int(self.ray.cluster_resources().get("CPU", 0)))
        found[last:] = [part for piece in found[last:] for part in piece.parts(PARTS, LEAST)]
        self.pieces = [(piece, None) for piece in found]

    def _from_dataset(self, dataset: Any) -> None:
        blocks = blocks_of(dataset)
        count = self.ray.remote(_height)
        first = 0
        for block, rows in zip(
            blocks, gather(self.ray, [count.remote(block) for block in blocks]), strict=True
        ):
            if rows:
                self.pieces.append((Piece(None, first=first, rows=rows), block))
            first += rows
        if not self.pieces:
            raise no_rows(self.label)

    def check_unchanged(self) -> None:
        """Refuse what somebody wrote to while tasks read it."""
        for file, before in self._files:
            if file.known() != before:
                raise changed(file.label)

    def place_repeated(self, pairs: list[Pair]) -> InputError:
        """The error for the first of these pairs that comes again, with its place."""
        look, where = self.ray.remote(_listed), self.ray.remote(_place)
        found = gather(self.ray, [look.remote(pairs, *piece) for piece in self.pieces])
        seen: set[Pair] = set()
        for piece, listed_there in zip(self.pieces, found, strict=True):
            for row, pair in listed_there:
                if pair in seen:
                    return repeated_pair_error(pair, fetched(self.ray, where.remote(row, *piece)))
                seen.add(pair)
        return repeated_pair_error(pairs[0], self.label)

    def find_unjudged_rows(self, shared: Any) -> pl.DataFrame | None:
        """The first rows where no document is judged."""
        look = self.ray.remote(_unjudged_rows)
        found = gather(self.ray, [look.remote(shared, *piece) for piece in self.pieces])
        return None if any(rows is None for rows in found) else example_rows(pl.concat(found))


# ------------------------------------------------------------------------------ what workers do


def _height(block: Any) -> int:
    return int(block.num_rows)


@dataclass(frozen=True, slots=True)
class _Read:
    """What a task found in its piece."""

    queries: pl.Series  # in their order
    dtype: str
    notes: list[str]
    found: list[Measured]  # of the queries but the first and the last
    first: int  # rows of the first query
    last: int  # rows of the last, 0 where it is the first


def _read(
    evaluation: PartwiseEvaluation, piece: Piece, block: Any
) -> tuple[_Read | None, Any, Any]:
    """A piece measured, then the rows of its first and of its last query, which may go on.

    None where a query comes again after others.
    """
    use_own_cores()
    queries: list[pl.Series] = [pl.Series("query", [], pl.String)]
    found: list[Measured] = []
    dtypes: list[str] = []
    notes: list[str] = []
    # Rows wait until others come, as the last query is not whole.
    first = waiting = Rows.empty()

    def chunks() -> Iterator[Chunk]:
        for chunk in piece.chunks(block):
            dtypes.append(chunk.dtype)
            notes.extend(chunk.notes)
            yield chunk

    try:
        for rows in iter_whole_queries(chunks()):
            queries.append(rows.queries)
            if len(waiting):
                found.append(_measured(evaluation, waiting))
            waiting = rows
            if not len(first):
                end = int([*rows.query_starts(), len(rows)][1])
                first, waiting = rows.slice_rows(0, end), rows.slice_rows(end, len(rows))
    except ScatteredQueries:
        return None, None, None
    seen = pl.concat(queries)
    report = _Read(seen, common_dtype(dtypes), notes, found, len(first), len(waiting))
    return report, _pack([first.frame()]), _pack([waiting.frame()])


def _split(piece: Piece, block: Any, parts: int) -> list[Any]:
    """The format, first queries and notes of a piece, then its rows for each part as bytes."""
    use_own_cores()
    held: list[list[pl.DataFrame]] = [[] for _ in range(parts)]
    dtypes: list[str] = []
    notes: list[str] = []
    first = pl.Series("query", [], pl.String)
    for chunk in piece.chunks(block):
        if len(first) < EXAMPLE_COUNT:
            first = example_queries([first, chunk.rows.queries])
        dtypes.append(chunk.dtype)
        notes.extend(chunk.notes)
        for frames, some in zip(held, split_by_hash(chunk.rows, parts), strict=True):
            frames.append(some)
    head = (common_dtype(dtypes), first, notes) if dtypes else None
    return [head, *(_pack(frames) for frames in held)]


def _pack(frames: list[pl.DataFrame]) -> Array | None:
    """Rows as bytes that Ray shares between processes without a copy."""
    frame = pl.concat(frames) if frames else pl.DataFrame()
    if not frame.height:
        return None
    out = BytesIO()
    frame.write_ipc(out)
    return np.frombuffer(out.getbuffer(), np.uint8)


def _measure(evaluation: PartwiseEvaluation, *packed: Array | None) -> Measured:
    """The figures of the judged queries of one part; `packed` in the order of the pieces."""
    use_own_cores()
    frames = [pl.read_ipc(BytesIO(rows.data)) for rows in packed if rows is not None]
    return _measured(evaluation, Rows.from_frame(pl.concat(frames)) if frames else Rows.empty())


def _measured(evaluation: PartwiseEvaluation, rows: Rows) -> Measured:
    """Whole queries measured, unless one lists a document twice: the first may be in other rows."""
    try:
        return evaluation.evaluate(rows)
    except RepeatedPair as repeated:
        return [repeated.pair]


def _unjudged_rows(evaluation: PartwiseEvaluation, piece: Piece, block: Any) -> pl.DataFrame | None:
    rows = (chunk.rows for chunk in piece.chunks(block))
    return first_rows_if_all_unjudged(rows, evaluation.qrels)


def _listed(pairs: list[Pair], piece: Piece, block: Any) -> list[tuple[int, Pair]]:
    """The rows of a piece that hold one of these, in their order."""
    found, before = [], 0
    for chunk in piece.chunks(block):
        found += [(before + row, pair) for row, pair in rows_with_pairs(pairs, chunk)]
        before += len(chunk.rows)
    return found


def _place(row: int, piece: Piece, block: Any) -> str:
    """Where a row of a piece stands."""
    for chunk in piece.chunks(block):
        if row < len(chunk.rows):
            return chunk.place(row)
        row -= len(chunk.rows)
    raise changed(piece.file.label if piece.file else "dataset")
