"""Vectors in every number format, searched plainly and in high precision."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import polars as pl

from rankproof.arrays import Array
from rankproof.audit.agreement import agreement
from rankproof.audit.results import (
    Audit,
    Reading,
    Scoring,
    curve_frame,
    curve_measures,
    statistics,
)
from rankproof.errors import InputError, shorten
from rankproof.evaluation import Evaluation, Missing, Policy, evaluate_tables, parse_all
from rankproof.measures.registry import Measure
from rankproof.records import QrelsLike, read_qrels
from rankproof.scoring import fixed
from rankproof.scoring.backend import is_torch
from rankproof.scoring.exact import OVERSAMPLE, Metric, Rescore, find, to_run
from rankproof.scoring.formats import FLOATS, FORMATS, Format, check_format, encode, truncate
from rankproof.scoring.scorers import Scorer, check_vectors
from rankproof.scoring.topk import TopK
from rankproof.tables import Qrels
from rankproof.ties import Order

MEASURES = ("nDCG@10", "RR@10", "AP@100", "R@100")
LARGEST_FLOAT16 = 65504.0

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class _Vectors:
    """What is searched: rows at the dimensions kept, of unit length under the cosine."""

    queries: Array  # (Q, D) float32
    documents: Array  # (N, D) float32
    query_ids: pl.Series
    document_ids: pl.Series
    k: int
    candidates: int  # of codes, to be rescored
    full: bool  # not cut to fewer dimensions

    @property
    def dimensions(self) -> int:
        return int(self.queries.shape[1])


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
    of the same vectors. ρ is to the float32 ranking of the whole vectors. Queries without
    judgements are left out. `labels` name the two inputs in messages; `progress` is told of each
    setting when it is done.
    """
    policy = Policy.of(order, missing, candidates_only)
    parsed = parse_all(measures)
    wanted = _formats(formats)
    ways = _ways(rescore)
    _whole_number(k, "k", "ask for 1 document or more")
    _whole_number(candidates_factor, "candidates_factor", "rescore 1 × k candidates or more")
    if metric not in get_args(Metric):
        raise InputError(f"metric {shorten(metric)} is unknown", remedy="use dot or cosine")
    judged = read_qrels(qrels)

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
    query_names = ids_of(query_ids, len(query_array), f"ids of {labels[0]}")
    document_names = ids_of(document_ids, len(document_array), f"ids of {labels[1]}")
    kept, notes = _judged_rows(judged, query_names, document_names, labels)
    query_array, query_names = query_array[kept], query_names.filter(pl.Series(kept))

    depth = min(int(k), len(document_array))
    count = min(len(document_array), candidates_factor * depth)
    sizes = [query_array.shape[1], *dict.fromkeys(int(d) for d in dimensions)]
    cuts = [sizes[0], *(d for d in sizes[1:] if d != sizes[0])]

    task = _Task(name, judged, parsed, policy, curves)
    readings: list[Reading] = []
    reference: TopK | None = None
    for size in cuts:
        pair = []
        for values, label in zip((query_array, document_array), labels, strict=True):
            shown = label if size == sizes[0] else f"{label} cut to {size} dimensions"
            pair.append(_ready(values, size, metric, shown))
        full = size == sizes[0]
        vectors = _Vectors(pair[0], pair[1], query_names, document_names, depth, count, full)
        if reference is None:
            reference, _ = find(vectors.queries, vectors.documents, depth, format="float32")
        for form in wanted:
            for scoring in _scorings(form, ways):
                readings.append(_read(vectors, form, scoring, reference, task))
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
        "k": depth,
        "candidates": count if any(form not in FLOATS for form in wanted) else None,
    }
    notes += list(readings[0].evaluation.notes[: 1 if judged.negative else 0])
    return Audit.together([Audit(tuple(readings), (), tuple(notes), (made,))])


def settings(formats: Iterable[str], rescore: Sequence[Rescore], dimensions: int) -> int:
    """How many settings an audit of embeddings has, for a bar of progress."""
    ways = _ways(rescore)
    return (1 + dimensions) * sum(len(_scorings(form, ways)) for form in _formats(formats))


def _read(
    vectors: _Vectors, form: Format, scoring: Scoring, reference: TopK, task: _Task
) -> Reading:
    """One setting: search, evaluate, compare with the float32 ranking."""
    own = encode(vectors.documents[:1], form).bytes_per_vector  # loads what the format needs
    begun = time.perf_counter()
    rescored = scoring in ("decoded", "original")
    best, _ = find(
        *(vectors.queries, vectors.documents, vectors.candidates if rescored else vectors.k),
        format=form,
        high_precision=scoring != "plain",
        rescore="original" if scoring == "original" else "decoded",
        candidates=vectors.candidates,
    )
    seconds = time.perf_counter() - begun
    top = TopK(best.scores[:, : vectors.k], best.documents[:, : vectors.k], best.cut)
    dtype = form if scoring == "plain" and form in FLOATS else "float32"
    run = to_run(
        *(top, vectors.query_ids.to_list(), vectors.document_ids.to_list()),
        *(len(vectors.documents), dtype, task.name),
    )
    scores = _scores_of(reference, vectors, form, scoring, best)
    owner = np.repeat(np.arange(len(scores)), scores.shape[1])
    extra = curve_measures(task.measures, vectors.k) if task.curves else []

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
        cut=int((top.cut > 0).sum()),
        open=_open(top, task.measures, rescored),
        bytes_per_vector=own + 4.0 * vectors.dimensions if scoring == "original" else own,
        seconds=seconds,
        curve=curve_frame(evaluate(extra)) if extra else None,
    )


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
    reference: TopK, vectors: _Vectors, form: Format, scoring: Scoring, best: TopK
) -> Array:
    """(Q, k) what a setting scores the documents of the float32 list.

    A document that codes did not make a candidate is never rescored: it ranks below all that were.
    """
    if form == "float32" and vectors.full:
        return reference.scores
    if scoring == "original":
        scorer = Scorer(vectors.queries, vectors.documents, "float32", plain=False)
    else:
        scorer = Scorer(vectors.queries, vectors.documents, form, plain=scoring == "plain")
    scores = scorer.pairs(reference.documents)
    if scoring not in ("decoded", "original"):
        return scores
    total = len(vectors.documents)
    offset = np.arange(len(scores), dtype=np.int64)[:, None] * total
    found = np.isin(reference.documents + offset, best.documents + offset)
    return np.where(found, scores, -np.inf)


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


def _ways(rescore: Sequence[str]) -> tuple[Rescore, ...]:
    known = get_args(Rescore)
    for way in rescore:
        if way not in known:
            raise InputError(
                f"rescore {shorten(way)} is unknown", remedy=f"use {' or '.join(known)}"
            )
    return tuple(dict.fromkeys(rescore))  # type: ignore[arg-type]


def _whole_number(value: Any, what: str, remedy: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{what} = {shorten(value)}", remedy=remedy)


def _rows(values: Any, label: str) -> Array:
    """(n, D) float32, every number finite."""
    if is_torch(values):
        values = values.detach().float().cpu().numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "fiuV":
        raise InputError(
            f"{array.dtype} where numbers belong", place=label, remedy="give (rows, dimensions)"
        )
    with np.errstate(over="ignore"):  # past float32 lies inf, which is refused with its row
        array = array.astype(np.float32, copy=False)
    if array.ndim == 2 and 0 in array.shape:
        raise InputError(
            f"no vectors: the shape is {array.shape}", place=label, remedy="check how it was made"
        )
    check_vectors(array, label)
    return array


def _ready(values: Array, size: int, metric: Metric, label: str) -> Array:
    """Rows at the dimensions kept, of unit length under the cosine."""
    if size != values.shape[1]:
        values = truncate(values, size)
    if metric == "cosine":
        values = fixed.unit(values, check_vectors(values, label, unit=True))
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


def ids_of(given: Any, count: int, label: str) -> pl.Series:
    """Ids as text, one for each row, all different; row numbers where none are given."""
    if given is None:
        return pl.Series("id", np.arange(count)).cast(pl.String)
    ids = given if isinstance(given, pl.Series) else pl.Series(list(map(str, given)))
    ids = ids.cast(pl.String).alias("id")
    if len(ids) != count:
        raise InputError(
            f"{len(ids)} ids for {count} vectors", place=label, remedy="give one id for each row"
        )
    again = ids.is_duplicated()
    if again.any():
        row = int(again.arg_max() or 0)
        raise InputError(
            f"id {shorten(ids[row])} stands twice", place=label, remedy="make ids unique"
        )
    return ids


def _judged_rows(
    judged: Qrels, query_ids: pl.Series, document_ids: pl.Series, labels: tuple[str, str]
) -> tuple[Array, list[str]]:
    """(Q,) which queries have judgements, and what to say of the others."""
    kept = among(query_ids, judged.queries)
    if not kept.any():
        raise _strangers("query", labels[0], query_ids, judged, judged.queries)
    known = among(judged.doc, document_ids)
    if not known.any():
        raise _strangers("document", labels[1], document_ids, judged, judged.doc)
    notes = []
    if not kept.all():
        notes.append(f"{int((~kept).sum())} of {len(kept)} queries have no judgements: left out")
    if not known.all():
        notes.append(
            f"{int((~known).sum())} of {len(known)} judged documents are not among {labels[1]}"
        )
    return kept, notes


def among(ids: pl.Series, others: pl.Series) -> Array:
    frame = pl.DataFrame({"id": ids}).with_row_index("row")
    found = frame.join(pl.DataFrame({"id": others}), on="id", how="semi")["row"].to_numpy()
    flags = np.zeros(len(ids), np.bool_)
    flags[found] = True
    return flags


def _strangers(
    what: str, label: str, ids: pl.Series, judged: Qrels, theirs: pl.Series
) -> InputError:
    return InputError(
        f"no {what} is both in {label} ({_some(ids)}) and in {judged.name} ({_some(theirs)})",
        remedy=f"give the ids that the judgements use (--{what}-ids, {what}_ids=)",
    )


def _some(ids: pl.Series) -> str:
    shown = ", ".join(shorten(i, 24) for i in ids.head(3))
    return f"{shown}, …" if len(ids) > 3 else shown
