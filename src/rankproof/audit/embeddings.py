"""Audit of vectors: every number format, searched plainly and in high precision.

Each setting (`ScoringPipeline`) ranks the same documents for the same queries. Its reading holds
the measures under every order of ties, and the agreement with the float32 ranking.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, get_args

import numpy as np
import polars as pl

from rankproof.audit.list_order import describe_bias, find_list_order
from rankproof.audit.readings import (
    Reading,
    count_ties,
    curve_frame,
    curve_measures,
    rank_agreement,
)
from rankproof.audit.results import Audit
from rankproof.data import QrelsLike, RunLike, read_qrels, read_run
from rankproof.data.columns import row_ids
from rankproof.data.tables import Qrels, Run, build_run
from rankproof.data.ties import Order
from rankproof.evaluation import (
    Evaluation,
    Missing,
    Policy,
    evaluate_tables,
    example_ids,
    parse_means,
)
from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError, check_whole_number, shorten
from rankproof.foundation.phrasing import out_of
from rankproof.foundation.progress import advance
from rankproof.measures import Measure
from rankproof.precision.array_types import is_torch
from rankproof.precision.exact_search import check_depth, final_scorer, find_top_k, to_run
from rankproof.precision.formats import FLOATS, FORMATS, Format, check_format, encode, truncate
from rankproof.precision.pipeline import OVERSAMPLING, Metric, Rescore, Scoring, ScoringPipeline
from rankproof.precision.quantized_arrays import Stored, as_numbers, check_array
from rankproof.precision.scorers import Scorer, check_vectors
from rankproof.precision.topk import TopK

MEASURES = ("nDCG@10", "RR@10", "AP@100", "R@100")
LARGEST_FLOAT16 = 65504.0
_INTEGER_TYPES = ("int", "uint", "bool")


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Documents to rerank for each query, by row number."""

    start: Array  # (Q + 1,)
    rows: Array  # (P,) documents, ascending within each query
    place: Array  # (P,) position of each document in the order of the run
    query_index: Array  # (P,) the query of each document

    def scores(self, scorer: Scorer) -> Array:
        """Return scores (P,) of all candidates, in the order of `rows`."""
        return scorer.chosen(np.arange(len(self.start) - 1), self.start, self.rows)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Queries and documents as the caller passed them."""

    queries: Any
    documents: Any
    query_ids: Sequence[str] | pl.Series | None
    document_ids: Sequence[str] | pl.Series | None
    stored: Stored | None
    ranges: Any
    labels: tuple[str, str]  # names of queries and documents in messages


@dataclass(frozen=True, slots=True)
class _Vectors:
    """The judged queries and the documents of one model, at the dimensions that are audited."""

    queries: Array  # (Q, D) float32
    documents: Array  # (N, D) float32
    query_ids: pl.Series
    document_ids: pl.Series
    labels: tuple[str, str]
    candidates: _Candidates | None = None  # where documents are reranked instead of searched

    def of_queries(self, is_kept: Array) -> _Vectors:
        """Return only the queries marked in `is_kept` (Q,), with all documents."""
        query_ids = self.query_ids.filter(pl.Series(is_kept))
        return replace(self, queries=self.queries[is_kept], query_ids=query_ids)

    def cut_to(self, dimensions: int | None, metric: Metric) -> _Vectors:
        """Return the first dimensions of the vectors; refuse zero vectors under the cosine."""
        pair = []
        for values, label in zip((self.queries, self.documents), self.labels, strict=True):
            if dimensions is not None:
                values = truncate(values, dimensions)
                label = f"{label} cut to {dimensions} dimensions"
            if metric == "cosine":
                check_vectors(values, label, unit=True)
            pair.append(values)
        return replace(self, queries=pair[0], documents=pair[1])


@dataclass(frozen=True, slots=True)
class _Reference:
    """The float32 ranking that every setting is compared with."""

    documents: Array | None  # (Q, k); None where candidates are reranked
    scores: Array  # (Q, k) or (P,)
    is_audited_run: bool  # True: of the audited vectors; False: of another run of the model


@dataclass(frozen=True, slots=True)
class _Task:
    """What is the same for every setting: judgments, measures, metric, length of the lists."""

    name: str  # of the model
    judged: Qrels
    measures: list[Measure]
    policy: Policy
    has_curves: bool
    metric: Metric
    k: int  # length of the lists, at most the number of documents

    def evaluate(self, run: Run, measures: list[Measure]) -> Evaluation:
        """Return the measures of a run."""
        return evaluate_tables(run, self.judged, measures, self.policy)


class _Ranking(NamedTuple):
    """The lists of one setting."""

    run: Run
    reference_scores: Array  # of the documents that the reference ranks
    query_index: Array  # the query of each of these
    seconds: float
    cut: int  # lists that end inside a tie
    open: dict[Measure, int]  # lists where that could change the measure


def audit_embeddings(
    queries: Any,
    documents: Any,
    qrels: QrelsLike,
    measures: str | Measure | Iterable[str | Measure] = MEASURES,
    *,
    formats: Iterable[str] = FORMATS,
    dimensions: Iterable[int] = (),
    k: int = 1000,
    metric: Metric = "dot",
    rescore: Sequence[Rescore] = get_args(Rescore),
    candidates_factor: int = OVERSAMPLING,
    query_ids: Sequence[str] | pl.Series | None = None,
    document_ids: Sequence[str] | pl.Series | None = None,
    candidates: RunLike | None = None,
    reference: tuple[Any, Any] | None = None,
    stored: Stored | None = None,
    ranges: Any = None,
    name: str = "embeddings",
    order: Order | None = None,
    missing: Missing | None = None,
    candidates_only: bool = False,
    curves: bool = False,
    labels: tuple[str, str] = ("queries", "documents"),
) -> Audit:
    """Search the same vectors in every number format, and measure each list under all tie orders.

    `queries` (Q, D) and `documents` (N, D) are arrays or tensors. A floating-point format is
    scored plainly (the score rounded to the format) and with high precision (the float32 sum kept).
    Codes (int8, int4, bit) are scored plainly, and their candidates_factor · k best again with the
    full query against `decoded` and `original` documents. `dimensions` adds Matryoshka truncations
    of the same vectors. With `candidates` nothing is searched: each query ranks the documents
    that this run lists for it. ρ is to the float32 ranking of the whole vectors, or of `reference`:
    queries and documents in the same rows, as another run of the model made them. Integers are
    `stored` "int8" or "bits" (`ranges` (2, D) where int8 or uint8 was calibrated). Queries without
    judgments are dropped. `labels` name the two inputs in messages.

    >>> vectors = np.eye(3, dtype="float32")
    >>> qrels = {"0": {"0": 1}}
    >>> audit = rp.audit.audit_embeddings(vectors, vectors, qrels, "RR", formats=["float16"])
    >>> [reading.format for reading in audit.readings]
    ['float16', 'float16']
    """
    policy = Policy.of(order, missing, candidates_only)
    parsed = parse_means(measures)
    formats, rescorings = check_formats(formats), tuple(dict.fromkeys(rescore))
    _check_search(k, metric, rescorings, candidates_factor)
    judged = read_qrels(qrels, aspects=any(m.needs_aspects for m in parsed))
    inputs = _Inputs(queries, documents, query_ids, document_ids, stored, ranges, labels)
    vectors, is_kept, notes = _read_vectors(inputs, judged, formats)
    candidate_run = None if candidates is None else read_run(candidates)
    if candidate_run is not None:
        row_candidates, is_kept = _find_candidates(candidate_run, vectors, is_kept)
        vectors = replace(vectors, candidates=row_candidates)
    other_vectors = None if reference is None else _read_reference(reference, vectors, is_kept)
    vectors = vectors.of_queries(is_kept)
    total, width = vectors.documents.shape
    task = _Task(
        name=name,
        judged=judged,
        measures=parsed,
        policy=policy,
        has_curves=curves,
        metric=metric,
        k=min(int(k), total),
    )
    pipelines = list_pipelines(formats, rescorings, metric, candidates_factor * k)
    cuts = [size for size in dict.fromkeys(map(int, dimensions)) if size != width]
    readings = _read_settings(vectors, other_vectors, pipelines, cuts, task)
    made = _describe_audit(vectors, task, cuts, formats, candidates_factor) | {"stored": stored}
    if candidate_run is not None and policy.order == "input":
        list_order = find_list_order(candidate_run, judged)
        if list_order is not None:
            made["listing"] = list_order.to_dict()
            notes.append(describe_bias(list_order, readings))
    notes += list(readings[0].evaluation.notes[: 1 if judged.negative else 0])
    return Audit.together([Audit(tuple(readings), (), tuple(notes), (made,))])


def _check_search(
    k: int, metric: Metric, rescorings: Sequence[Rescore], candidates_factor: int
) -> None:
    """Refuse depths below 1, and unknown names of a metric or of a way of rescoring."""
    check_depth(k)
    for rescoring in rescorings or get_args(Rescore):
        ScoringPipeline.of("bit", metric=metric, rescore=rescoring)
    check_whole_number(
        "candidates_factor", candidates_factor, remedy="rescore 1 × k candidates or more"
    )


def _describe_audit(
    vectors: _Vectors,
    task: _Task,
    cuts: Sequence[int],
    formats: Sequence[str],
    candidates_factor: int,
) -> dict[str, Any]:
    """Return how the vectors were audited, as JSON shows it."""
    total, width = vectors.documents.shape
    rescores_codes = vectors.candidates is None and any(form not in FLOATS for form in formats)
    return {
        "model": task.name,
        "kind": "embeddings",
        "queries": len(vectors.queries),
        "documents": total,
        "dimensions": [width, *cuts],
        "formats": list(formats),
        "metric": task.metric,
        "k": None if vectors.candidates else task.k,
        "candidates": min(total, candidates_factor * task.k) if rescores_codes else None,
        "pairs": len(vectors.candidates.rows) if vectors.candidates else None,
    }


def check_formats(formats: Iterable[str]) -> tuple[Format, ...]:
    """Return the named number formats, each once; refuse unknown ones, or none at all."""
    names = tuple(dict.fromkeys(formats))
    for form in names:
        check_format(form)
    if not names:
        raise InputError("no number format was named", remedy=f"use {', '.join(FORMATS)}")
    return names  # type: ignore[return-value]


def list_pipelines(
    formats: Iterable[str],
    rescorings: Sequence[Rescore] = get_args(Rescore),
    metric: Metric = "dot",
    candidates: int | None = None,
) -> list[ScoringPipeline]:
    """Return every way of scoring the formats; plain float32 is high precision already."""
    pipelines = []
    for form in check_formats(formats):
        scorings: list[Scoring] = ["plain"]
        if form not in FLOATS:
            scorings += rescorings
        elif form != "float32":
            scorings.append("high precision")
        pipelines += [ScoringPipeline(form, scoring, metric, candidates) for scoring in scorings]
    return pipelines


def _read_settings(
    vectors: _Vectors,
    other_vectors: _Vectors | None,
    pipelines: Sequence[ScoringPipeline],
    cuts: Sequence[int],
    task: _Task,
) -> list[Reading]:
    """Return a reading for every pipeline, with whole vectors and cut to fewer dimensions.

    All are compared with the float32 ranking of the whole vectors, or of `other_vectors`.
    """
    readings: list[Reading] = []
    reference: _Reference | None = None
    for size in (None, *cuts):
        setting_vectors = vectors.cut_to(size, task.metric)
        if reference is None:
            whole = setting_vectors
            if other_vectors is not None:
                whole = other_vectors.cut_to(None, task.metric)
            reference = _rank_in_float32(whole, task, is_audited_run=other_vectors is None)
        for pipeline in pipelines:
            setting = replace(pipeline, dimensions=size)
            readings.append(_read_setting(setting_vectors, setting, reference, task))
            advance(1)
    return readings


def _rank_in_float32(vectors: _Vectors, task: _Task, is_audited_run: bool) -> _Reference:
    """Return the float32 ranking of whole vectors."""
    exact = ScoringPipeline("float32", "high precision", task.metric)
    if vectors.candidates is None:
        best = find_top_k(vectors.queries, vectors.documents, task.k, exact)
        return _Reference(best.documents, best.scores, is_audited_run)
    scorer = final_scorer(vectors.queries, vectors.documents, exact)
    return _Reference(None, vectors.candidates.scores(scorer), is_audited_run)


def _read_setting(
    vectors: _Vectors, pipeline: ScoringPipeline, reference: _Reference, task: _Task
) -> Reading:
    """Rank in one setting, evaluate the lists, and compare them with the float32 ranking."""
    # Encoding one vector also loads the library of a format, before time is measured.
    code_bytes = encode(vectors.documents[:1], pipeline.format).bytes_per_vector  # type: ignore[arg-type]
    if vectors.candidates is None:
        depth, ranking = task.k, _search(vectors, pipeline, reference, task)
    else:
        ranking = _rerank(vectors, vectors.candidates, pipeline, task)
        depth = int(np.diff(ranking.run.start).max())
    extra = curve_measures(task.measures, depth) if task.has_curves else []
    dimensions = vectors.queries.shape[1]
    original_bytes = 4.0 * dimensions if pipeline.scoring == "original" else 0.0
    return Reading(
        model=task.name,
        pipeline=pipeline,
        dimensions=dimensions,
        evaluation=task.evaluate(ranking.run, task.measures),
        ties=count_ties(ranking.run),
        agreement=rank_agreement(
            ranking.query_index, reference.scores.ravel(), ranking.reference_scores.ravel()
        ),
        cut=ranking.cut,
        open=ranking.open,
        bytes_per_vector=code_bytes + original_bytes,
        seconds=ranking.seconds,
        curve=curve_frame(task.evaluate(ranking.run, extra)) if extra else None,
    )


def _search(
    vectors: _Vectors, pipeline: ScoringPipeline, reference: _Reference, task: _Task
) -> _Ranking:
    """Return the k best of all documents; of codes, all candidates are scored."""
    begun = time.perf_counter()
    count = pipeline.candidate_count(task.k, len(vectors.documents))
    best = find_top_k(vectors.queries, vectors.documents, count, pipeline)
    seconds = time.perf_counter() - begun
    top = TopK(best.scores[:, : task.k], best.documents[:, : task.k], best.cut)
    run = to_run(
        top,
        vectors.query_ids.to_list(),
        vectors.document_ids.to_list(),
        len(vectors.documents),
        dtype=pipeline.score_dtype,
        name=task.name,
    )
    scores = _score_reference(reference, vectors, pipeline, best)
    return _Ranking(
        run=run,
        reference_scores=scores,
        query_index=np.repeat(np.arange(len(scores)), scores.shape[1]),
        seconds=seconds,
        cut=int((top.cut > 0).sum()),
        open=_count_open(top, task.measures, pipeline.rescores),
    )


def _rerank(
    vectors: _Vectors, candidates: _Candidates, pipeline: ScoringPipeline, task: _Task
) -> _Ranking:
    """Return the candidates by their scores; every candidate is scored, so no tie is cut."""
    begun = time.perf_counter()
    scores = candidates.scores(final_scorer(vectors.queries, vectors.documents, pipeline))
    seconds = time.perf_counter() - begun
    as_listed = np.empty(len(scores), np.int64)
    as_listed[candidates.place] = np.arange(len(scores))
    run = build_run(
        task.name,
        vectors.query_ids,
        candidates.query_index[as_listed].astype(np.int32),
        vectors.document_ids.gather(pl.Series(candidates.rows[as_listed])),
        scores[as_listed].astype(np.float64),
        pipeline.score_dtype,
    )
    return _Ranking(
        run=run,
        reference_scores=scores,
        query_index=candidates.query_index,
        seconds=seconds,
        cut=0,
        open=dict.fromkeys(task.measures, 0),
    )


def _count_open(top: TopK, measures: list[Measure], rescores: bool) -> dict[Measure, int]:
    """Return for each measure the number of lists in which a tie at the end could change it.

    Such a list leaves out documents that tie with its last one. They could change a measure if the
    tie begins at its cutoff or before. Where candidates are rescored they always could: documents
    that were not candidates might have been rescored to any rank.
    """
    is_cut = top.cut > 0
    tie_begin = (top.scores == top.scores[:, -1:]).argmax(axis=1) + 1
    counts = {}
    for measure in measures:
        is_open = is_cut
        if measure.cutoff is not None and not rescores:
            is_open = is_cut & (tie_begin <= measure.cutoff)
        counts[measure] = int(is_open.sum())
    return counts


def _score_reference(
    reference: _Reference, vectors: _Vectors, pipeline: ScoringPipeline, best: TopK
) -> Array:
    """Return scores (Q, k) of the reference's documents in a setting.

    A document that was no candidate is never rescored: it ranks below all that were.
    """
    assert reference.documents is not None
    if pipeline.format == "float32" and pipeline.dimensions is None and reference.is_audited_run:
        return reference.scores
    scorer = final_scorer(vectors.queries, vectors.documents, pipeline)
    scores = scorer.pairs(reference.documents)
    if not pipeline.rescores:
        return scores
    offset = np.arange(len(scores), dtype=np.int64)[:, None] * len(vectors.documents)
    is_candidate = np.isin(reference.documents + offset, best.documents + offset)
    return np.where(is_candidate, scores, -np.inf)


# ------------------------------------------------------------------------------- reading the inputs


def _read_pair(inputs: _Inputs, formats: Sequence[str]) -> tuple[Array, Array]:
    """Return queries and documents as float32, both of the same dimensions."""
    labels = inputs.labels
    pair = as_numbers(
        inputs.queries,
        inputs.documents,
        stored=inputs.stored,
        ranges=inputs.ranges,
        labels=labels,
    )
    query_array, document_array = (
        _as_float32(values, label) for values, label in zip(pair, labels, strict=True)
    )
    if query_array.shape[1] != document_array.shape[1]:
        raise InputError(
            f"{labels[0]} have {query_array.shape[1]} dimensions and {labels[1]} "
            f"{document_array.shape[1]}",
            remedy="embed both with the same model",
        )
    if "float16" in formats:
        _check_float16(query_array, labels[0])
        _check_float16(document_array, labels[1])
    return query_array, document_array


def _note_stored(inputs: _Inputs) -> list[str]:
    """Return the note on inputs that hold integer codes, if any do."""
    coded_labels = [
        label
        for label, values in zip(inputs.labels, (inputs.queries, inputs.documents), strict=True)
        if str(getattr(values, "dtype", "")).removeprefix("torch.").startswith(_INTEGER_TYPES)
    ]
    if not coded_labels:
        return []
    return [
        f"{' and '.join(coded_labels)}: stored as {inputs.stored}; formats are applied to the "
        "numbers that these codes stand for"
    ]


def _read_vectors(
    inputs: _Inputs, judged: Qrels, formats: Sequence[str]
) -> tuple[_Vectors, Array, list[str]]:
    """Return the vectors with ids, which queries are judged (Q,), and notes on the inputs."""
    labels = inputs.labels
    queries, documents = _read_pair(inputs, formats)
    query_ids = row_ids(inputs.query_ids, len(queries), f"ids of {labels[0]}")
    document_ids = row_ids(inputs.document_ids, len(documents), f"ids of {labels[1]}")
    is_judged = is_among(query_ids, judged.queries)
    if not is_judged.any():
        raise no_common_ids("query", labels[0], query_ids, judged, judged.queries)
    is_present = is_among(judged.doc, document_ids)
    if not is_present.any():
        raise no_common_ids("document", labels[1], document_ids, judged, judged.doc)
    notes = []
    if not is_judged.all():
        unjudged = out_of(int((~is_judged).sum()), len(is_judged), "query", "has", "have")
        notes.append(f"{unjudged} no judgments: skipped")
    if not is_present.all():
        absent = out_of(int((~is_present).sum()), len(is_present), "judged document", "is", "are")
        notes.append(f"{absent} not among {labels[1]}")
    notes += _note_stored(inputs)
    return _Vectors(queries, documents, query_ids, document_ids, labels), is_judged, notes


def _find_candidates(run: Run, vectors: _Vectors, is_judged: Array) -> tuple[_Candidates, Array]:
    """Return a run's documents as rows, and which queries have judgments and candidates (Q,)."""
    query_rows = pl.DataFrame({"query": vectors.query_ids}).with_row_index("query_row")
    pairs = (
        run.to_frame()
        .select("query", "doc")
        .join(query_rows.filter(pl.Series(is_judged)), on="query", maintain_order="left")
    )
    if not pairs.height:
        raise InputError(
            f"no judged query is both in {vectors.labels[0]} and in {run.name}",
            remedy="check that they belong together",
        )
    document_rows = pl.DataFrame({"doc": vectors.document_ids}).with_row_index("row")
    pairs = pairs.join(document_rows, on="doc", how="left", maintain_order="left")
    absent = pairs.filter(pl.col("row").is_null())["doc"]
    if len(absent):
        raise InputError(
            f"document {shorten(absent[0])} of {run.name} has no vector",
            place=vectors.labels[1],
            remedy="rerank candidates that were retrieved from these documents",
        )
    is_kept = np.zeros(len(is_judged), np.bool_)
    is_kept[pairs["query_row"].to_numpy()] = True
    new_index = pl.Series(np.cumsum(is_kept) - 1)  # of each query among those kept
    pairs = pairs.with_columns(query_index=new_index.gather(pairs["query_row"]))
    pairs = pairs.with_row_index("place").sort("query_index", "row")
    query_index = pairs["query_index"].to_numpy()
    start = np.searchsorted(query_index, np.arange(int(is_kept.sum()) + 1))
    rows, place = (pairs[name].to_numpy().astype(np.int64) for name in ("row", "place"))
    return _Candidates(start, rows, place, query_index), is_kept


def _read_reference(reference: tuple[Any, Any], vectors: _Vectors, is_kept: Array) -> _Vectors:
    """Return the vectors that another run of the model made of the same queries and documents."""
    queries, documents = (
        _as_float32(values, f"{label} of the reference")
        for values, label in zip(reference, vectors.labels, strict=True)
    )
    if queries.shape != vectors.queries.shape or documents.shape != vectors.documents.shape:
        raise InputError(
            f"the reference has the shapes {queries.shape} and {documents.shape}",
            remedy="give as many vectors as {} and {} have, and as long".format(*vectors.labels),
        )
    names = ("the reference", "the reference")
    return replace(vectors, queries=queries[is_kept], documents=documents, labels=names)


def _as_float32(values: Any, label: str) -> Array:
    """Return vectors (n, D) as float32, every number finite."""
    values = check_array(values, label)
    if is_torch(values):
        values = values.detach().float().cpu().numpy()
    with np.errstate(over="ignore"):  # a number beyond float32 becomes inf and is refused below
        array: Array = values.astype(np.float32, copy=False)
    if array.ndim == 2 and 0 in array.shape:
        raise InputError(
            f"no vectors: the shape is {array.shape}", place=label, remedy="check how it was made"
        )
    check_vectors(array, label)
    return array


def _check_float16(values: Array, label: str) -> None:
    """Refuse numbers that float16 would turn into infinity."""
    largest = np.abs(values).max(axis=1)
    if (largest > LARGEST_FLOAT16).any():
        row = int((largest > LARGEST_FLOAT16).argmax())
        raise InputError(
            f"{largest[row]:g} is too large for float16",
            place=f"{label}: row {row}",
            remedy="leave float16 out of the formats, or scale the vectors",
        )


def is_among(ids: pl.Series, other_ids: pl.Series) -> Array:
    """Return a mask (n,) of the ids that are among other ids."""
    frame = pl.DataFrame({"id": ids}).with_row_index("row")
    rows = frame.join(pl.DataFrame({"id": other_ids}), on="id", how="semi")["row"].to_numpy()
    flags = np.zeros(len(ids), np.bool_)
    flags[rows] = True
    return flags


def no_common_ids(
    noun: str,
    label: str,
    ids: pl.Series,
    judged: Qrels,
    judged_ids: pl.Series,
    option: str = " (--{noun}-ids, {noun}_ids=)",
) -> InputError:
    """Return the error for inputs and judgments that share no id."""
    return InputError(
        f"no {noun} is both in {label} ({example_ids(ids)}) and in {judged.name} "
        f"({example_ids(judged_ids)})",
        remedy=f"give the ids that the judgements use{option.format(noun=noun)}",
    )
