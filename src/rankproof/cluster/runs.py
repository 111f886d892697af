"""Evaluate and compare runs on Ray.

A task measures the queries whose rows lie completely in the piece that it reads. The first and the
last query of a piece may continue in its neighbors, so their rows alone are sent to other tasks.
Only if a query occurs again after others are all rows sent, by a hash of their query, to the tasks
that measure them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Unpack

import numpy as np
import polars as pl

from rankproof.cluster.session import connected, fetch, gather, use_own_cores
from rankproof.cluster.shards import (
    ClusterRun,
    File,
    Piece,
    blocks_of,
    cut_file,
    find_files,
    is_dataset,
)
from rankproof.comparison.differences import Tests
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
    repeated_pair_error,
    split_by_hash,
)
from rankproof.evaluation.streaming.rows import Rows
from rankproof.evaluation.streaming.shards import Chunk, common_dtype
from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError, check_whole_number
from rankproof.foundation.progress import advance
from rankproof.measures import Measure
from rankproof.unjudged.judged_share import attach_judged, with_judged

ROWS = 1 << 21  # of a task, read or measured
# The last pieces are split again, so that all workers end at about the same time:
LAST_PIECES = 2  # pieces per worker that are split
SPLITS = 4  # parts of such a piece
MIN_ROWS = 1 << 17  # of a part

Measured = Evaluation | list[Pair]  # or the first pair of query and document that occurs twice


@dataclass(frozen=True, slots=True)
class _Results:
    """What was measured of a run by all tasks."""

    parts: list[Measured]
    dtypes: list[str]
    first_queries: pl.Series
    notes: list[str]  # assumptions made while reading


def evaluate(
    qrels: QrelsLike,
    run: ClusterRun,
    measures: str | Measure | Iterable[str | Measure],
    *,
    name: str | None = None,
    address: str | None = None,
    rows_per_task: int = ROWS,
    **settings: Unpack[Choices],
) -> Evaluation:
    """`rankproof.evaluate` on Ray, with the same values to the last bit.

    `run` is a file, a folder of Parquet or TREC files, an address that fsspec knows (s3://…), a
    list of these, or a Ray Dataset. A query's rows may be spread over files; they are ordered by
    the names of the files, and in a file by row. `address` is as in `connected`.

    >>> from rankproof import cluster
    >>> evaluation = cluster.evaluate("try/qrels.txt", "try/saturated.trec", "nDCG@5")
    >>> round(evaluation["nDCG@5"].expected, 4)
    0.4771
    """
    parsed = parse_all(measures)
    judged = read_qrels(qrels, aspects=any(m.needs_aspects for m in parsed))
    policy = Policy.of(**settings)
    with connected(address):
        return evaluate_shards(
            run,
            judged,
            parsed,
            policy,
            name=name,
            rows_per_task=rows_per_task,
        )


def compare(
    qrels: QrelsLike,
    runs: Mapping[str, ClusterRun],
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
    >>> comparison = cluster.compare("try/qrels.txt", runs, "nDCG@5")
    >>> round(comparison["saturated", "plain"][rp.nDCG @ 5].expected, 4)
    -0.1103
    """
    parsed = parse_all(measures)
    judged = read_qrels(qrels, aspects=any(m.needs_aspects for m in parsed))
    policy = Policy.of(**settings)
    measures_with_judged = with_judged(parsed)
    evaluations = []
    with connected(address):
        for name, run in runs.items():
            evaluation = evaluate_shards(
                run, judged, measures_with_judged, policy, name=name, rows_per_task=rows_per_task
            )
            evaluations.append(attach_judged(evaluation, parsed))
    return compare_evaluations(evaluations, Tests(seed=seed))


def evaluate_shards(
    run: ClusterRun,
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    *,
    name: str | None = None,
    format: Format | None = None,  # noqa: A002
    rows_per_task: int = ROWS,
) -> Evaluation:
    """`evaluate` for read judgments and parsed measures, in the current session.

    The whole run advances an open task of progress by 1.
    """
    check_whole_number("rows_per_task", rows_per_task)
    check_scales(qrels, measures)
    label = name or (stem(os.fspath(run)) if isinstance(run, str | os.PathLike) else "run")
    with connected() as ray:
        source = _PiecesOfRun(ray, run, format, rows_per_task)
        evaluation = PartwiseEvaluation(qrels, list(measures), policy, label)
        shared = ray.put(evaluation)
        results = _measure_in_place(source, shared)
        if results is None:
            results = _measure_by_hash(source, shared)
        pairs = [pair for part in results.parts if isinstance(part, list) for pair in part]
        if pairs:
            raise source.repeated_pair_error(pairs)
        source.check_unchanged()
        return evaluation.merge(
            [part for part in results.parts if not isinstance(part, list)],
            common_dtype(results.dtypes),
            results.first_queries,
            notes=dict.fromkeys(results.notes),
        )


def _measure_in_place(source: _PiecesOfRun, shared: Any) -> _Results | None:
    """Measure every query in the task that reads it; None if one occurs again after others."""
    ray = source.ray
    read = ray.remote(num_returns=3)(_read_piece)
    tasks = [read.remote(shared, piece, block) for piece, block in source.pieces]
    parts: list[Measured] = []
    ends: list[tuple[str, int, Any]] = []  # query, rows, reference to the rows
    queries, dtypes, notes = [], [], []
    # In order, so that of several errors the first one in the run is reported. (A piece in which a
    # query occurred again was not read to its end.)
    for report_reference, first_rows, last_rows in tasks:
        report: _PieceReport | None = fetch(ray, report_reference)
        advance(1 / len(tasks))
        if report is None:
            return None
        if len(report.queries):
            queries.append(report.queries)
            dtypes.append(report.dtype)
            notes += report.notes
            parts += report.parts
            ends.append((report.queries[0], report.rows_of_first, first_rows))
            ends.append((report.queries[-1], report.rows_of_last, last_rows))
    if not queries:
        raise no_rows(source.label)
    # A query that continues in the next piece counts once.
    in_order = pl.concat(queries).rle().struct.field("value")
    if in_order.n_unique() < len(in_order):
        return None
    measure = ray.remote(_measure_packed)
    batches = _batch_by_query(ends, source.rows)
    parts += gather(ray, [measure.remote(shared, *batch) for batch in batches])
    return _Results(parts, dtypes, in_order.head(EXAMPLE_COUNT), notes)


def _batch_by_query(ends: Sequence[tuple[str, int, Any]], max_rows: int) -> Iterator[list[Any]]:
    """Yield references in batches of about so many rows; those of one query stay together."""
    batch: list[Any] = []
    size, previous_query = 0, None
    for query, rows, reference in ends:
        if batch and query != previous_query and size + rows > max_rows:
            yield batch
            batch, size = [], 0
        batch.append(reference)
        size, previous_query = size + rows, query
    yield batch


def _measure_by_hash(source: _PiecesOfRun, shared: Any) -> _Results:
    """Send every row to a task by a hash of its query, and measure there."""
    ray = source.ray
    count = max(1, -(-sum(piece.rows for piece, _ in source.pieces) // source.rows))
    split_rows = ray.remote(num_returns=count + 1)(_split_piece)
    pieces = [split_rows.remote(piece, block, count) for piece, block in source.pieces]
    heads = [head for head in gather(ray, [piece[0] for piece in pieces]) if head is not None]
    measure = ray.remote(_measure_packed)
    tasks = [
        measure.remote(shared, *(piece[1 + number] for piece in pieces)) for number in range(count)
    ]
    return _Results(
        parts=gather(ray, tasks),
        dtypes=[head.dtype for head in heads],
        first_queries=example_queries([head.first_queries for head in heads]),
        notes=[note for head in heads for note in head.notes],
    )


class _PiecesOfRun:
    """A run cut into pieces of about so many rows, and questions to all of them."""

    def __init__(self, ray: Any, run: ClusterRun, form: Format | None, rows: int):
        self.ray = ray
        self.rows = rows
        self.pieces: list[tuple[Piece, Any]] = []  # with the block of a Dataset
        self._signatures: list[tuple[File, Any]] = []
        if is_dataset(run):
            self.label = "dataset"
            self._cut_dataset(run)
        else:
            files = find_files(run)
            self.label = files[0].label
            self._signatures = [(file, file.signature()) for file in files]
            self._cut_files(files, form)

    def _cut_files(self, files: list[File], form: Format | None) -> None:
        cut = self.ray.remote(cut_file)
        tasks = [cut.remote(file, form, self.rows) for file in files]
        pieces = [piece for of_file in gather(self.ray, tasks) for piece in of_file]
        workers = int(self.ray.cluster_resources().get("CPU", 0))
        last = max(0, len(pieces) - LAST_PIECES * workers)
        pieces[last:] = [part for piece in pieces[last:] for part in piece.split(SPLITS, MIN_ROWS)]
        self.pieces = [(piece, None) for piece in pieces]

    def _cut_dataset(self, dataset: Any) -> None:
        blocks = blocks_of(dataset)
        count = self.ray.remote(_count_rows)
        counts = gather(self.ray, [count.remote(block) for block in blocks])
        first = 0
        for block, rows in zip(blocks, counts, strict=True):
            if rows:
                self.pieces.append((Piece(None, first=first, rows=rows), block))
            first += rows
        if not self.pieces:
            raise no_rows(self.label)

    def check_unchanged(self) -> None:
        """Refuse files that were written to while tasks read them."""
        for file, signature in self._signatures:
            if file.signature() != signature:
                raise changed(file.label)

    def repeated_pair_error(self, pairs: list[Pair]) -> InputError:
        """Return the error for the first of these pairs that occurs again, with its place."""
        find, locate = self.ray.remote(_find_pairs), self.ray.remote(_place_of_row)
        rows_of_pieces = gather(self.ray, [find.remote(pairs, *piece) for piece in self.pieces])
        earlier: set[Pair] = set()
        for piece, rows in zip(self.pieces, rows_of_pieces, strict=True):
            for row, pair in rows:
                if pair in earlier:
                    return repeated_pair_error(pair, fetch(self.ray, locate.remote(row, *piece)))
                earlier.add(pair)
        return repeated_pair_error(pairs[0], self.label)


# ------------------------------------------------------------------------------ in workers


def _count_rows(block: Any) -> int:
    return int(block.num_rows)


@dataclass(frozen=True, slots=True)
class _PieceReport:
    """What a task read and measured of its piece."""

    queries: pl.Series  # in their order
    dtype: str
    notes: list[str]
    parts: list[Measured]  # all queries but the first and the last
    rows_of_first: int
    rows_of_last: int  # 0 if it is also the first


@dataclass(frozen=True, slots=True)
class _PieceHead:
    """What is known of a piece whose rows are sent to other tasks."""

    dtype: str
    first_queries: pl.Series
    notes: list[str]


def _read_piece(
    evaluation: PartwiseEvaluation, piece: Piece, block: Any
) -> tuple[_PieceReport | None, Any, Any]:
    """Measure a piece; return a report, and the rows of its first and its last query.

    The report is None if a query occurs again after others.
    """
    use_own_cores()
    queries: list[pl.Series] = [pl.Series("query", [], pl.String)]
    parts: list[Measured] = []
    dtypes: list[str] = []
    notes: list[str] = []
    # Rows wait for others to follow, since the last query may be incomplete.
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
                parts.append(_measure(evaluation, waiting))
            waiting = rows
            if not len(first):
                end = int([*rows.query_starts(), len(rows)][1])
                first, waiting = rows.slice_rows(0, end), rows.slice_rows(end, len(rows))
    except ScatteredQueries:
        return None, None, None
    report = _PieceReport(
        queries=pl.concat(queries),
        dtype=common_dtype(dtypes),
        notes=notes,
        parts=parts,
        rows_of_first=len(first),
        rows_of_last=len(waiting),
    )
    return report, _pack([first.frame()]), _pack([waiting.frame()])


def _split_piece(piece: Piece, block: Any, parts: int) -> list[Any]:
    """Return the head of a piece (None if it is empty), then its packed rows for each part."""
    use_own_cores()
    frames_of_parts: list[list[pl.DataFrame]] = [[] for _ in range(parts)]
    dtypes: list[str] = []
    notes: list[str] = []
    first = pl.Series("query", [], pl.String)
    for chunk in piece.chunks(block):
        if len(first) < EXAMPLE_COUNT:
            first = example_queries([first, chunk.rows.queries])
        dtypes.append(chunk.dtype)
        notes.extend(chunk.notes)
        for frames, rows in zip(frames_of_parts, split_by_hash(chunk.rows, parts), strict=True):
            frames.append(rows)
    head = _PieceHead(common_dtype(dtypes), first, notes) if dtypes else None
    return [head, *(_pack(frames) for frames in frames_of_parts)]


def _pack(frames: list[pl.DataFrame]) -> Array | None:
    """Return rows as bytes that Ray shares between processes without a copy."""
    frame = pl.concat(frames) if frames else pl.DataFrame()
    if not frame.height:
        return None
    buffer = BytesIO()
    frame.write_ipc(buffer)
    return np.frombuffer(buffer.getbuffer(), np.uint8)


def _measure_packed(evaluation: PartwiseEvaluation, *packed: Array | None) -> Measured:
    """Measure the queries in packed rows, given in the order of the pieces."""
    use_own_cores()
    frames = [pl.read_ipc(BytesIO(rows.data)) for rows in packed if rows is not None]
    return _measure(evaluation, Rows.from_frame(pl.concat(frames)) if frames else Rows.empty())


def _measure(evaluation: PartwiseEvaluation, rows: Rows) -> Measured:
    """Measure complete queries; return the pair if one of them lists a document twice.

    The first such pair of the run may be in other rows, so that no error is raised here.
    """
    try:
        return evaluation.evaluate(rows)
    except RepeatedPair as error:
        return [error.pair]


def _find_pairs(pairs: list[Pair], piece: Piece, block: Any) -> list[tuple[int, Pair]]:
    """Return the rows of a piece that hold one of these pairs, in their order."""
    matches, offset = [], 0
    for chunk in piece.chunks(block):
        matches += [(offset + row, pair) for row, pair in rows_with_pairs(pairs, chunk)]
        offset += len(chunk.rows)
    return matches


def _place_of_row(row: int, piece: Piece, block: Any) -> str:
    """Return file and line of a row of a piece."""
    for chunk in piece.chunks(block):
        if row < len(chunk.rows):
            return chunk.place(row)
        row -= len(chunk.rows)
    raise changed(piece.file.label if piece.file else "dataset")
