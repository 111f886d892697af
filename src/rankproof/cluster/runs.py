"""Runs in shards → Evaluation: rows go by a hash of their query to the task that measures them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import polars as pl

from rankproof.arrays import Array
from rankproof.cluster.session import connected, gather, use_own_cores
from rankproof.cluster.shards import ClusterRun, File, Piece, cut_file, find_files, is_dataset
from rankproof.comparison import Comparison, compare_evaluations
from rankproof.errors import InputError
from rankproof.evaluation import Evaluation, Like, Missing, Policy, parse_all
from rankproof.measures.registry import Measure, Outcomes
from rankproof.records import QrelsLike, read_qrels
from rankproof.records.columns import no_rows
from rankproof.records.sources import Format, stem
from rankproof.streaming.parts import (
    RepeatedPair,
    check_grades,
    evaluate_part,
    merge,
    repeated,
    split,
)
from rankproof.streaming.shards import common_dtype
from rankproof.tables import Qrels
from rankproof.ties import Order, ScoreType, TieGroups
from rankproof.unjudged.beside import set_beside, with_judged

ROWS = 4_000_000  # of a task, read or measured: about 0.7 GB at its peak

Progress = Callable[[float], None]
# Queries, figures, unjudged, tied, ties to draw orders of, relevant documents listed.
Found = tuple[pl.Series, list[Outcomes], int, int, TieGroups | None, int]


def evaluate(
    run: ClusterRun,
    qrels: QrelsLike,
    measures: str | Measure | Iterable[str | Measure],
    *,
    order: Order | None = None,
    missing: Missing | None = None,
    candidates_only: bool = False,
    score_dtype: ScoreType | None = None,
    like: Like | None = None,
    name: str | None = None,
    address: str | None = None,
    rows_per_task: int = ROWS,
) -> Evaluation:
    """`rankproof.evaluate` on Ray, with the same figures to the last bit.

    `run` is a file, a folder of Parquet or TREC files, an address that fsspec knows (s3://…), a
    list of these, or a Ray Dataset. A query's rows may be spread over files: their order is that
    of the files by name, and in them of the rows. `address` is as in `connected`.
    """
    policy = Policy.of(order, missing, candidates_only, score_dtype, like)
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
    **settings: Any,
) -> Comparison:
    """`rankproof.compare` of runs in shards; settings are those of `evaluate`."""
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
    if rows_per_task < 1:
        raise InputError(f"rows_per_task = {rows_per_task}", remedy="give 1 or more")
    check_grades(qrels, measures)
    label = name or (stem(os.fspath(run)) if isinstance(run, str | os.PathLike) else "run")
    with connected() as ray:
        work = _Work(ray, run, format, rows_per_task)
        count = work.parts
        cut = ray.remote(num_returns=count + 1)(_split)
        pieces = [cut.remote(piece, block, count) for piece, block in work.pieces]
        try:
            heads = gather(ray, [piece[0] for piece in pieces])
            dtypes = [dtype for _, dtype, _ in heads if dtype is not None]
            if not dtypes:
                raise no_rows(work.label)
            first = next(some for rows, _, some in heads if rows)
            shared = ray.put((qrels, list(measures), policy, label))
            measure = ray.remote(_measure)
            tasks = [
                measure.remote(shared, *(piece[1 + part] for piece in pieces))
                for part in range(count)
            ]
            # Each has its own share of the one run that the bar is told of.
            told = None if progress is None else lambda done: progress(done / count)
            found: list[Found] = gather(ray, tasks, told)
        except RepeatedPair as pair:
            raise work.place(pair) from None
    parts = [
        Evaluation(
            name=label,
            queries=queries,
            outcomes=dict(zip(measures, figures, strict=True)),
            missing=0,
            unjudged=unjudged,
            tied=tied,
            policy=policy,
            dtype="",
            ties=ties,
            retrieved=retrieved,
        )
        for queries, figures, unjudged, tied, ties, retrieved in found
    ]
    dtype = common_dtype(dtypes)
    return merge(parts, qrels, measures, policy, label, dtype, first)


class _Work:
    """What there is to read, in pieces, and into how many parts it goes."""

    def __init__(self, ray: Any, run: ClusterRun, form: Format | None, rows: int):
        self.ray = ray
        self.pieces: list[tuple[Piece, Any]] = []
        if is_dataset(run):
            self.label = "dataset"
            self._from_dataset(run)
        else:
            files = find_files(run)
            self.label = files[0].label
            self._from_files(files, form, rows)
        total = sum(piece.rows for piece, _ in self.pieces)
        self.parts = max(1, -(-total // rows))

    def _from_files(self, files: list[File], form: Format | None, rows: int) -> None:
        cut = self.ray.remote(cut_file)
        tasks = [cut.remote(file, form, rows) for file in files]
        found = [piece for pieces in gather(self.ray, tasks) for piece in pieces]
        self.pieces = [(piece, None) for piece in found]

    def _from_dataset(self, dataset: Any) -> None:
        options = dataset.context.execution_options
        before = options.preserve_order
        options.preserve_order = True  # `oblivious` may break ties by the order of the rows
        try:
            blocks = dataset.to_arrow_refs()
        finally:
            options.preserve_order = before
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

    def place(self, pair: RepeatedPair) -> InputError:
        """The error for a pair that is listed twice, with the second place."""
        look = self.ray.remote(_places)
        tasks = [look.remote(piece, block, pair.query, pair.doc) for piece, block in self.pieces]
        found = [place for places in gather(self.ray, tasks) for place in places]
        return repeated(pair, found[1] if len(found) > 1 else self.label)


# ------------------------------------------------------------------------------ what workers do


def _height(block: Any) -> int:
    return int(block.num_rows)


def _split(piece: Piece, block: Any, parts: int) -> list[Any]:
    """(rows, format, first queries) of a piece, then its rows for each part as Arrow bytes."""
    use_own_cores()
    held: list[list[pl.DataFrame]] = [[] for _ in range(parts)]
    rows, dtypes, first = 0, [], pl.Series("query", [], pl.String)
    for chunk in piece.chunks(block):
        if not rows:
            first = chunk.rows["query"].unique(maintain_order=True).head(4)
        rows += chunk.rows.height
        dtypes.append(chunk.dtype)
        for frames, some in zip(held, split(chunk.rows, parts), strict=True):
            frames.append(some)
    head = (rows, common_dtype(dtypes) if rows else None, first)
    return [head, *(_pack(frames) for frames in held)]


def _pack(frames: list[pl.DataFrame]) -> Array | None:
    """Rows as bytes that Ray shares between processes without a copy."""
    frame = pl.concat(frames) if frames else pl.DataFrame()
    if not frame.height:
        return None
    out = BytesIO()
    frame.write_ipc(out)
    return np.frombuffer(out.getbuffer(), np.uint8)


def _measure(shared: tuple[Qrels, list[Measure], Policy, str], *packed: Array | None) -> Found:
    """The figures of the judged queries of one part; `packed` in the order of the pieces."""
    use_own_cores()
    qrels, measures, policy, name = shared
    frames = [pl.read_ipc(BytesIO(rows.data)) for rows in packed if rows is not None]
    if not frames:
        frames = [pl.DataFrame(schema={"query": pl.String, "doc": pl.String, "score": pl.Float64})]
    found = evaluate_part(pl.concat(frames), qrels, measures, policy, name, "float64")
    figures = [found.outcomes[measure] for measure in measures]
    return found.queries, figures, found.unjudged, found.tied, found.ties, found.retrieved


def _places(piece: Piece, block: Any, query: str, doc: str) -> list[str]:
    """Where a piece lists a pair: the first two places."""
    found: list[str] = []
    for chunk in piece.chunks(block):
        same = (chunk.rows["query"] == query) & (chunk.rows["doc"] == doc)
        found += [chunk.place(int(row)) for row in same.arg_true().head(2 - len(found))]
        if len(found) == 2:
            break
    return found
