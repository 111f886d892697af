"""Vectors in every number format, searched plainly and in high precision."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import polars as pl

from rankproof.audit.list_order import habit, sentence
from rankproof.audit.rank_correlation import agreement
from rankproof.audit.results import Audit, Reading, Scoring, curve_frame, curve_measures, statistics
from rankproof.data import QrelsLike, RunLike, read_qrels, read_run
from rankproof.data.columns import row_ids
from rankproof.data.tables import Qrels, Run, build_run
from rankproof.data.ties import Order
from rankproof.evaluation import Evaluation, Missing, Policy, evaluate_tables, parse_means, some_of
from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError, check_whole_number, shorten
from rankproof.foundation.phrasing import out_of
from rankproof.measures import Measure
from rankproof.precision.array_types import is_torch
from rankproof.precision.exact_search import (
    OVERSAMPLE,
    Metric,
    Rescore,
    check_asked,
    find,
    scorer_of,
    to_run,
)
from rankproof.precision.formats import FLOATS, FORMATS, Format, check_format, encode, truncate
from rankproof.precision.quantized_arrays import Stored, array_of, decoded
from rankproof.precision.scorers import Scorer, check_vectors
from rankproof.precision.topk import TopK

MEASURES = ("nDCG@10", "RR@10", "AP@100", "R@100")
LARGEST_FLOAT16 = 65504.0
_WHOLE = ("int", "uint", "bool")

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class _Vectors:
    """What is searched: rows at the dimensions kept."""

    queries: Array  # (Q, D) float32
    documents: Array  # (N, D) float32
    query_ids: pl.Series
    document_ids: pl.Series
    metric: Metric
    k: int
    candidates: int  # of codes, to be rescored
    full: bool  # not cut to fewer dimensions
    fixed: _Fixed | None  # what is reranked, where nothing is searched

    @property
    def dimensions(self) -> int:
        return int(self.queries.shape[1])


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Candidates of each query, to be reranked."""

    start: Array  # (Q + 1,)
    rows: Array  # (P,) documents, ascending within each query
    place: Array  # (P,) where each stands in the order given
    owner: Array  # (P,) its query

    def scores(self, scorer: Scorer) -> Array:
        """(P,) of every candidate, in the order of `rows`."""
        return scorer.chosen(np.arange(len(self.start) - 1), self.start, self.rows)


@dataclass(frozen=True, slots=True)
class _Reference:
    """The float32 ranking that others are compared with."""

    documents: Array | None  # (Q, k); None where candidates are fixed
    scores: Array  # (Q, k) or (P,)
    own: bool  # of the vectors audited, not of another run of the model


@dataclass(frozen=True, slots=True)
class _Task:
    """What is asked of every setting."""

    name: str
    judged: Qrels
    measures: list[Measure]
    policy: Policy
    curves: bool


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
    candidates_factor: int = OVERSAMPLE,
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
    progress: Progress | None = None,
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
    judgements are left out. `labels` name the two inputs in messages; `progress` is told of each
    setting when it is done.

    >>> vectors = np.eye(3, dtype="float32")
    >>> found = rp.audit_embeddings(vectors, vectors, {"0": {"0": 1}}, "RR", formats=["float16"])
    >>> [reading.format for reading in found.readings]
    ['float16', 'float16']
    """
    policy = Policy.of(order, missing, candidates_only)
    parsed = parse_means(measures)
    wanted = _formats(formats)
    ways = tuple(dict.fromkeys(rescore))
    for way in ways or get_args(Rescore):
        check_asked(k, metric, way)
    check_whole_number(
        "candidates_factor", candidates_factor, remedy="rescore 1 × k candidates or more"
    )
    judged = read_qrels(qrels)

    whole = [
        label
        for label, values in zip(labels, (queries, documents), strict=True)
        if str(getattr(values, "dtype", "")).removeprefix("torch.").startswith(_WHOLE)
    ]
    queries, documents = decoded(queries, documents, stored, ranges, labels)
    query_array, document_array = (
        _rows(values, label) for values, label in zip((queries, documents), labels, strict=True)
    )
    if query_array.shape[1] != document_array.shape[1]:
        raise InputError(
            f"{labels[0]} have {query_array.shape[1]} dimensions and {labels[1]} "
            f"{document_array.shape[1]}",
            remedy="embed both with the same model",
        )
    _fits(wanted, query_array, labels[0])
    _fits(wanted, document_array, labels[1])
    query_names = row_ids(query_ids, len(query_array), f"ids of {labels[0]}")
    document_names = row_ids(document_ids, len(document_array), f"ids of {labels[1]}")
    kept, notes = _judged_rows(judged, query_names, document_names, labels)
    if whole:
        notes.append(
            f"{' and '.join(whole)}: stored as {stored}; formats are applied to the numbers that "
            "these codes stand for"
        )
    fixed_ = None
    if candidates is not None:
        fixed_, kept = _fix(read_run(candidates), query_names, document_names, kept, labels)
    query_array, query_names = query_array[kept], query_names.filter(pl.Series(kept))
    other = None
    if reference is not None:
        other = [
            _rows(values, f"{label} of the reference")
            for values, label in zip(reference, labels, strict=True)
        ]
        if other[0].shape != (len(kept), query_array.shape[1]) or (
            other[1].shape != document_array.shape
        ):
            raise InputError(
                f"the reference has the shapes {other[0].shape} and {other[1].shape}",
                remedy=f"give as many vectors as {labels[0]} and {labels[1]} have, and as long",
            )
        other[0] = other[0][kept]

    depth = min(int(k), len(document_array))
    count = min(len(document_array), candidates_factor * depth)
    sizes = [query_array.shape[1], *dict.fromkeys(int(d) for d in dimensions)]
    cuts = [sizes[0], *(d for d in sizes[1:] if d != sizes[0])]

    task = _Task(name, judged, parsed, policy, curves)
    readings: list[Reading] = []
    compared: _Reference | None = None
    for size in cuts:
        pair = []
        for values, label in zip((query_array, document_array), labels, strict=True):
            shown = label if size == sizes[0] else f"{label} cut to {size} dimensions"
            pair.append(_ready(values, size, metric, shown))
        full = size == sizes[0]
        vectors = _Vectors(
            *(pair[0], pair[1], query_names, document_names, metric, depth, count, full, fixed_)
        )
        if compared is None:
            if other is not None:
                pair = [_ready(values, size, metric, "the reference") for values in other]
            compared = _compared(pair[0], pair[1], metric, depth, fixed_, other is None)
        for form in wanted:
            for scoring in _scorings(form, ways):
                readings.append(_read(vectors, form, scoring, compared, task))
                if progress is not None:
                    progress(1.0)
    made = {
        "model": name,
        "kind": "embeddings",
        "queries": len(query_array),
        "documents": len(document_array),
        "dimensions": cuts,
        "formats": list(wanted),
        "metric": metric,
        "k": depth if fixed_ is None else None,
        "candidates": count if fixed_ is None and any(f not in FLOATS for f in wanted) else None,
        "pairs": None if fixed_ is None else len(fixed_.rows),
        "stored": stored,
    }
    if candidates is not None and policy.order == "input":
        order_given = habit(read_run(candidates), judged)
        if order_given is not None:
            made["listing"] = order_given.to_dict()
            notes.append(sentence(order_given, readings))
    notes += list(readings[0].evaluation.notes[: 1 if judged.negative else 0])
    return Audit.together([Audit(tuple(readings), (), tuple(notes), (made,))])


def settings(formats: Iterable[str], rescore: Sequence[Rescore], dimensions: int) -> int:
    """How many settings an audit of embeddings has, for a bar of progress."""
    return (1 + dimensions) * sum(len(_scorings(form, rescore)) for form in _formats(formats))


def _compared(
    queries: Array, documents: Array, metric: Metric, depth: int, fixed_: _Fixed | None, own: bool
) -> _Reference:
    if fixed_ is None:
        best, _ = find(queries, documents, depth, format="float32", metric=metric)
        return _Reference(best.documents, best.scores, own)
    exact = scorer_of(queries, documents, "float32", plain=False, metric=metric)
    return _Reference(None, fixed_.scores(exact), own)


def _read(
    vectors: _Vectors, form: Format, scoring: Scoring, reference: _Reference, task: _Task
) -> Reading:
    """One setting: search or rerank, evaluate, compare with the float32 ranking."""
    own = encode(vectors.documents[:1], form).bytes_per_vector  # loads what the format needs
    look = _search if vectors.fixed is None else _rerank
    run, scores, seconds, cut, open_ = look(vectors, form, scoring, reference, task)
    depth = vectors.k if vectors.fixed is None else int(np.diff(run.start).max())
    extra = curve_measures(task.measures, depth) if task.curves else []
    owner = np.repeat(np.arange(len(scores)), scores.shape[1]) if scores.ndim > 1 else None
    if owner is None:
        assert vectors.fixed is not None
        owner = vectors.fixed.owner

    def evaluate(measures: list[Measure]) -> Evaluation:
        return evaluate_tables(run, task.judged, measures, task.policy)

    return Reading(
        model=task.name,
        format=form,
        scoring=scoring,
        dimensions=vectors.dimensions,
        full=vectors.full,
        evaluation=evaluate(task.measures),
        ties=statistics(run),
        agreement=agreement(owner, reference.scores.ravel(), scores.ravel()),
        cut=cut,
        open=open_,
        bytes_per_vector=own + 4.0 * vectors.dimensions if scoring == "original" else own,
        seconds=seconds,
        curve=curve_frame(evaluate(extra)) if extra else None,
    )


_Found = tuple[Run, Array, float, int, dict[Measure, int]]
"""The lists, scores of what the reference ranks, seconds, lists cut in a tie, and open ones."""


def _search(
    vectors: _Vectors, form: Format, scoring: Scoring, reference: _Reference, task: _Task
) -> _Found:
    begun = time.perf_counter()
    rescored = scoring in ("decoded", "original")
    best, _ = find(
        *(vectors.queries, vectors.documents, vectors.candidates if rescored else vectors.k),
        format=form,
        high_precision=scoring != "plain",
        rescore="original" if scoring == "original" else "decoded",
        candidates=vectors.candidates,
        metric=vectors.metric,
    )
    seconds = time.perf_counter() - begun
    top = TopK(best.scores[:, : vectors.k], best.documents[:, : vectors.k], best.cut)
    run = to_run(
        *(top, vectors.query_ids.to_list(), vectors.document_ids.to_list()),
        *(len(vectors.documents), _dtype(form, scoring), task.name),
    )
    scores = _scores_of(reference, vectors, form, scoring, best)
    return run, scores, seconds, int((top.cut > 0).sum()), _open(top, task.measures, rescored)


def _rerank(
    vectors: _Vectors, form: Format, scoring: Scoring, _reference: _Reference, task: _Task
) -> _Found:
    """Every candidate is scored, so that none is cut off."""
    fixed_ = vectors.fixed
    assert fixed_ is not None
    begun = time.perf_counter()
    scores = fixed_.scores(_scorer(vectors, form, scoring))
    seconds = time.perf_counter() - begun
    given = np.empty(len(scores), np.int64)
    given[fixed_.place] = np.arange(len(scores))
    run = build_run(
        *(task.name, vectors.query_ids, fixed_.owner[given].astype(np.int32)),
        vectors.document_ids.gather(pl.Series(fixed_.rows[given])),
        scores[given].astype(np.float64),
        _dtype(form, scoring),
    )
    return run, scores, seconds, 0, dict.fromkeys(task.measures, 0)


def _scorer(vectors: _Vectors, form: Format, scoring: Scoring) -> Scorer:
    against: Format = "float32" if scoring == "original" else form
    plain = scoring == "plain"
    return scorer_of(
        vectors.queries, vectors.documents, against, plain=plain, metric=vectors.metric
    )


def _dtype(form: Format, scoring: Scoring) -> str:
    return form if scoring == "plain" and form in FLOATS else "float32"


def _open(top: TopK, measures: list[Measure], rescored: bool) -> dict[Measure, int]:
    """In how many lists documents left out of the last tie could change each measure.

    In a plain list they can where that tie begins at the measure's cutoff or before. Left out of
    the candidates they might have been rescored to any rank.
    """
    cut = top.cut > 0
    begins = (top.scores == top.scores[:, -1:]).argmax(axis=1) + 1
    return {
        m: int((cut & (begins <= m.cutoff)).sum())
        if m.cutoff is not None and not rescored
        else int(cut.sum())
        for m in measures
    }


def _scores_of(
    reference: _Reference, vectors: _Vectors, form: Format, scoring: Scoring, best: TopK
) -> Array:
    """(Q, k) scores of the reference's documents in a setting.

    A document that codes did not make a candidate is never rescored: it ranks below all that were.
    """
    assert reference.documents is not None
    if form == "float32" and vectors.full and reference.own:
        return reference.scores
    scores = _scorer(vectors, form, scoring).pairs(reference.documents)
    if scoring not in ("decoded", "original"):
        return scores
    total = len(vectors.documents)
    offset = np.arange(len(scores), dtype=np.int64)[:, None] * total
    found = np.isin(reference.documents + offset, best.documents + offset)
    return np.where(found, scores, -np.inf)


def _fix(
    given: Run, query_ids: pl.Series, document_ids: pl.Series, kept: Array, labels: tuple[str, str]
) -> tuple[_Fixed, Array]:
    """The candidates by row, and which queries have both judgements and candidates."""
    asked = pl.DataFrame({"query": query_ids}).with_row_index("at").filter(pl.Series(kept))
    pairs = (
        given.to_frame()
        .select("query", "doc")
        .join(asked, on="query", how="inner", maintain_order="left")
    )
    if not pairs.height:
        raise InputError(
            f"no judged query is both in {labels[0]} and in {given.name}",
            remedy="check that they belong together",
        )
    known = pl.DataFrame({"doc": document_ids}).with_row_index("row")
    pairs = pairs.join(known, on="doc", how="left", maintain_order="left")
    absent = pairs.filter(pl.col("row").is_null())["doc"]
    if len(absent):
        raise InputError(
            f"document {shorten(absent[0])} of {given.name} has no vector",
            place=labels[1],
            remedy="rerank candidates that were retrieved from these documents",
        )
    flags = np.zeros(len(kept), np.bool_)
    flags[pairs["at"].to_numpy()] = True
    pairs = pairs.with_columns(owner=pl.Series(np.cumsum(flags) - 1).gather(pairs["at"]))
    pairs = pairs.with_row_index("place").sort("owner", "row")
    owner = pairs["owner"].to_numpy()
    start = np.searchsorted(owner, np.arange(int(flags.sum()) + 1))
    row, place = (pairs[name].to_numpy().astype(np.int64) for name in ("row", "place"))
    return _Fixed(start, row, place, owner), flags


def _scorings(form: str, ways: Sequence[Rescore]) -> tuple[Scoring, ...]:
    """float32 has nothing to round: plain is high precision there."""
    if form == "float32":
        return ("plain",)
    return ("plain", "high precision") if form in FLOATS else ("plain", *ways)


def _formats(formats: Iterable[str]) -> tuple[Format, ...]:
    wanted = tuple(dict.fromkeys(formats))
    for form in wanted:
        check_format(form)
    if not wanted:
        raise InputError("no number format was named", remedy=f"use {', '.join(FORMATS)}")
    return wanted  # type: ignore[return-value]


def _rows(values: Any, label: str) -> Array:
    """(n, D) float32, every number finite."""
    values = array_of(values, label)
    if is_torch(values):
        values = values.detach().float().cpu().numpy()
    with np.errstate(over="ignore"):  # past float32 lies inf, which is refused with its row
        array: Array = values.astype(np.float32, copy=False)
    if array.ndim == 2 and 0 in array.shape:
        raise InputError(
            f"no vectors: the shape is {array.shape}", place=label, remedy="check how it was made"
        )
    check_vectors(array, label)
    return array


def _ready(values: Array, size: int, metric: Metric, label: str) -> Array:
    """Rows at the dimensions kept; one without a direction is refused under the cosine."""
    if size != values.shape[1]:
        values = truncate(values, size)
    if metric == "cosine":
        check_vectors(values, label, unit=True)
    return values


def _fits(formats: Sequence[str], values: Array, label: str) -> None:
    """Refuse numbers that float16 would turn into inf."""
    if "float16" not in formats:
        return
    largest = np.abs(values).max(axis=1)
    if (largest > LARGEST_FLOAT16).any():
        row = int((largest > LARGEST_FLOAT16).argmax())
        raise InputError(
            f"{largest[row]:g} is too large for float16",
            place=f"{label}: row {row}",
            remedy="leave float16 out of the formats, or scale the vectors",
        )


def _judged_rows(
    judged: Qrels, query_ids: pl.Series, document_ids: pl.Series, labels: tuple[str, str]
) -> tuple[Array, list[str]]:
    """(Q,) which queries have judgements, and what to say of the others."""
    kept = among(query_ids, judged.queries)
    if not kept.any():
        raise strangers("query", labels[0], query_ids, judged, judged.queries)
    known = among(judged.doc, document_ids)
    if not known.any():
        raise strangers("document", labels[1], document_ids, judged, judged.doc)
    notes = []
    if not kept.all():
        silent = out_of(int((~kept).sum()), len(kept), "query", "has", "have")
        notes.append(f"{silent} no judgements: left out")
    if not known.all():
        absent = out_of(int((~known).sum()), len(known), "judged document", "is", "are")
        notes.append(f"{absent} not among {labels[1]}")
    return kept, notes


def among(ids: pl.Series, others: pl.Series) -> Array:
    frame = pl.DataFrame({"id": ids}).with_row_index("row")
    found = frame.join(pl.DataFrame({"id": others}), on="id", how="semi")["row"].to_numpy()
    flags = np.zeros(len(ids), np.bool_)
    flags[found] = True
    return flags


def strangers(
    what: str,
    label: str,
    ids: pl.Series,
    judged: Qrels,
    theirs: pl.Series,
    option: str = " (--{what}-ids, {what}_ids=)",
) -> InputError:
    """What to say where two files have no id in common."""
    return InputError(
        f"no {what} is both in {label} ({some_of(ids)}) and in {judged.name} ({some_of(theirs)})",
        remedy=f"give the ids that the judgements use{option.format(what=what)}",
    )
