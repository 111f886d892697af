"""Audit of logits of rerankers, and of scores that others serve, in low formats.

Plain scoring keeps the logits and the activation in the format. High precision upcasts the logits
first, and ranks each list by (score, logit) in float32.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from rankproof.audit.array_files import note_narrow_storage
from rankproof.audit.embeddings import LARGEST_FLOAT16, MEASURES, is_among, no_common_ids
from rankproof.audit.list_order import ListOrder, describe_bias, find_list_order
from rankproof.audit.readings import (
    Reading,
    count_ties,
    curve_frame,
    curve_measures,
    rank_agreement,
)
from rankproof.audit.results import Audit
from rankproof.data import QrelsLike, read_qrels
from rankproof.data.columns import check_ids, encode
from rankproof.data.tables import Qrels, Run, build_run
from rankproof.data.ties import Order
from rankproof.evaluation import Missing, Policy, evaluate_tables, parse_means
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Float, Int
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import out_of, plural
from rankproof.foundation.progress import advance
from rankproof.measures import Measure
from rankproof.precision.activations import sigmoid, softmax
from rankproof.precision.formats import numpy_dtype, round_to
from rankproof.precision.pipeline import ScoringPipeline

FORMATS = ("float32", "float16", "bfloat16")
MARGIN = 0.001
MOST_DECIMALS = 12


@dataclass(frozen=True, slots=True)
class Logits:
    """A reranker's output for pairs of query and document."""

    query: pl.Series  # (N,) ids
    doc: pl.Series  # (N,) ids
    yes: Float  # (N,) the only logit, or that of "yes"
    no: Float | None = None  # (N,) the logit of "no" where there are two
    label: str = "logits"
    scored: bool = False  # True: scores, after an activation or from a server
    low: Float | None = None  # (N,) these scores, computed in the format that a model ran in
    identity: bool = False  # True: one logit, which the model uses as its score
    stored: str | None = None  # the format of the file, where it is narrower than float32

    def rows(self, is_kept: Array) -> Logits:
        """Return the rows that are marked in `is_kept` (N,)."""
        mask = pl.Series(is_kept)
        return replace(
            self,
            query=self.query.filter(mask),
            doc=self.doc.filter(mask),
            yes=self.yes[is_kept],
            no=None if self.no is None else self.no[is_kept],
            low=None if self.low is None else self.low[is_kept],
        )

    @property
    def activation(self) -> str | None:
        """The function that turns logits into scores; None if they are scores already."""
        if self.scored:
            return None
        if self.no is not None:
            return "softmax"
        return "identity" if self.identity else "sigmoid"

    def place(self, row: int) -> str:
        """Return the file and number of a row, for messages."""
        return f"{self.label}: row {row + 1}"

    def check(self) -> None:
        """Refuse rows without ids, and logits that are not finite numbers."""
        if not len(self.yes):
            raise InputError("no rows", place=self.label, remedy="check how it was made")
        check_ids(self.query, "query", self.place)
        check_ids(self.doc, "document", self.place)
        for values in (self.yes, self.no):
            if values is not None and not np.isfinite(values).all():
                row = int((~np.isfinite(values)).argmax())
                raise InputError(
                    f"logit {values[row]} is not a finite number",
                    place=self.place(row),
                    remedy="drop the row or score it again",
                )

    def check_float16(self) -> None:
        """Refuse logits that float16 would turn into infinity."""
        for values in (self.yes, self.no):
            if values is not None and (np.abs(values) > LARGEST_FLOAT16).any():
                row = int((np.abs(values) > LARGEST_FLOAT16).argmax())
                raise InputError(
                    f"logit {values[row]:g} is too large for float16",
                    place=self.place(row),
                    remedy="leave float16 out of the formats",
                )


@dataclass(frozen=True, slots=True)
class _Task:
    """The judged logits of one model, and what every setting is measured by."""

    name: str
    logits: Logits
    queries: pl.Series  # (Q,) ids
    codes: Int  # (N,) the query of each row
    judged: Qrels
    measures: list[Measure]
    policy: Policy
    paper_strict: bool

    def rank(self, pipeline: ScoringPipeline, scores: Array) -> Run:
        """Return the run that scores (N,) of a setting make."""
        is_rounded = pipeline.is_plain and pipeline.format not in FORMATS
        dtype = "float64" if is_rounded else pipeline.score_dtype
        values = scores.astype(np.float64)
        try:
            return build_run(self.name, self.queries, self.codes, self.logits.doc, values, dtype)
        except kernels.RepeatedDocument as repeated:
            query, doc = self.logits.query[repeated.row], self.logits.doc[repeated.row]
            raise InputError(
                f"query {shorten(query)} lists document {shorten(doc)} a second time",
                place=self.logits.place(repeated.row),
                remedy="keep one of the two",
            ) from None

    def score(self, pipeline: ScoringPipeline) -> Array:
        """Return the scores (N,) of a setting."""
        return score_logits(self.logits, pipeline, self.paper_strict)


def audit_logits(
    logits: Logits | Any,
    qrels: QrelsLike,
    measures: str | Measure | Iterable[str | Measure] = MEASURES,
    *,
    formats: Iterable[str] = FORMATS,
    reference: Logits | None = None,
    paper_strict: bool = False,
    decimals: Iterable[int] = (),
    margin: float = MARGIN,
    name: str = "logits",
    order: Order | None = None,
    missing: Missing | None = None,
    candidates_only: bool = False,
    curves: bool = False,
) -> Audit:
    """Score the same logits in several formats, and measure each list under all tie orders.

    `logits` is a path or a frame with columns query, doc and logit (sigmoid), or logit_yes and
    logit_no (softmax). Plain scoring keeps the logits and the activation wholly in the format. High
    precision upcasts the logits first and ranks by (score, logit) in float32: in the order of the
    logit, or of the difference of two, which is kept where a score saturates. `paper_strict` ranks
    by the float32 score alone, as the paper does.

    ρ compares with the float32 ranking in high precision, or with that of `reference`: the same
    pairs in the same order, scored by a float32 run of the model. `decimals` adds scores rounded to
    these numbers of decimals, as servers print them, and finds the fewest decimals that keep every
    range within `margin`.

    Scores of a server (`Logits` with `scored`) are only rounded: what the server rounded before is
    lost. Of a model whose score is its logit (`identity`), high precision changes nothing, unless
    `paper_strict` applies a sigmoid.

    >>> import polars as pl
    >>> logits = pl.DataFrame({"query": "q", "doc": ["a", "b"], "logit": [9.0, 9.1]})
    >>> audit = rp.audit.audit_logits(logits, {"q": {"b": 1}}, ["RR"], formats=["bfloat16"])
    >>> {reading.scoring: reading.evaluation["RR"].range for reading in audit.readings}
    {'plain': 0.5, 'high precision': 0.0}
    """
    from rankproof.audit.input_files import read_logits

    policy = Policy.of(order, missing, candidates_only)
    parsed = parse_means(measures)
    formats, places = check_formats(formats), _check_decimals(decimals, margin)
    judged = read_qrels(qrels, aspects=any(m.needs_aspects for m in parsed))
    table = logits if isinstance(logits, Logits) else read_logits(logits)
    table.check()
    if "float16" in formats:
        table.check_float16()
    _check_same_pairs(table, reference)
    notes = note_narrow_storage(table.label, table.stored)
    table, reference = _keep_judged(table, reference, judged, notes)
    queries, codes = encode(table.query)
    task = _Task(name, table, queries, codes, judged, parsed, policy, paper_strict)
    exact_scores = score_logits(
        reference or table, ScoringPipeline("float32", "high precision"), paper_strict
    )
    pipelines = list_pipelines(formats, places, table)
    readings, list_order = _read_settings(task, pipelines, exact_scores, curves)
    made = _describe_audit(task, formats, list_order)
    if places:
        fewest = _fewest_decimals(task, margin)
        notes.append(_note_decimals(fewest, margin))
        made["decimals"] = {"asked": list(places), "margin": margin, "least": fewest}
    if list_order is not None:
        notes.append(describe_bias(list_order, readings))
    notes += readings[0].evaluation.notes
    return Audit.together([Audit(tuple(readings), (), tuple(notes), (made,))])


def _describe_audit(
    task: _Task, formats: Sequence[str], list_order: ListOrder | None
) -> dict[str, Any]:
    """Return how the logits were audited, as JSON shows it."""
    has_sigmoid = task.logits.identity and task.paper_strict
    return {
        "model": task.name,
        "kind": "logits",
        "listing": None if list_order is None else list_order.to_dict(),
        "activation": "sigmoid" if has_sigmoid else task.logits.activation,
        "queries": len(task.queries),
        "pairs": len(task.logits.yes),
        "formats": list(formats),
        "paper_strict": task.paper_strict,
        "decimals": None,
    }


def check_formats(formats: Iterable[str]) -> tuple[str, ...]:
    """Return the named formats, each once; refuse those that logits are not audited in."""
    names = tuple(dict.fromkeys(formats))
    for form in names:
        if form not in FORMATS:
            raise InputError(
                f"format {shorten(form)} is not one that logits are audited in",
                remedy=f"use {', '.join(FORMATS)}",
            )
    if not names:
        raise InputError("no number format was named", remedy=f"use {', '.join(FORMATS)}")
    return names


def _check_decimals(decimals: Iterable[int], margin: float) -> tuple[int, ...]:
    """Return the numbers of decimals, each once; refuse others than 0 to MOST_DECIMALS."""
    places = tuple(dict.fromkeys(decimals))
    for count in places:
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_DECIMALS:
            raise InputError(
                f"decimals {shorten(count)}", remedy=f"use whole numbers from 0 to {MOST_DECIMALS}"
            )
    if not (isinstance(margin, int | float) and 0 <= margin < 1):
        raise InputError(f"margin {shorten(margin)}", remedy="use a number from 0 to 1, as 0.001")
    return places


def _check_same_pairs(logits: Logits, reference: Logits | None) -> None:
    """Refuse a reference with other pairs than the logits, or in another order."""
    if reference is None:
        return
    if not (logits.query.equals(reference.query) and logits.doc.equals(reference.doc)):
        raise InputError(
            "the reference has other pairs", place=logits.label, remedy="score the same candidates"
        )


def _keep_judged(
    logits: Logits, reference: Logits | None, judged: Qrels, notes: list[str]
) -> tuple[Logits, Logits | None]:
    """Return the rows of judged queries; add a note on queries without judgments to `notes`."""
    is_judged = is_among(logits.query, judged.queries)
    if is_judged.any() and not is_among(logits.doc, judged.doc).any():
        raise no_common_ids("document", logits.label, logits.doc, judged, judged.doc, "")
    if not is_judged.any() or is_judged.all():
        return logits, reference
    total = logits.query.n_unique()
    unjudged = total - logits.query.filter(pl.Series(is_judged)).n_unique()
    notes.append(f"{out_of(unjudged, total, 'query', 'has', 'have')} no judgments: skipped")
    return logits.rows(is_judged), None if reference is None else reference.rows(is_judged)


def list_pipelines(
    formats: Iterable[str], decimals: Iterable[int] = (), logits: Logits | None = None
) -> list[ScoringPipeline]:
    """Return the settings that logits are audited in.

    Decimals and scores of a server are only scored plainly: the logits behind them are unknown.
    """
    is_served = logits is not None and logits.scored and logits.low is None
    scorings = ("plain",) if is_served else ("plain", "high precision")
    return [
        *(ScoringPipeline(form, scoring) for form in formats for scoring in scorings),  # type: ignore[arg-type]
        *(ScoringPipeline(decimal_format(count), "plain") for count in decimals),
    ]


def _read_settings(
    task: _Task, pipelines: Sequence[ScoringPipeline], exact_scores: Array, has_curves: bool
) -> tuple[list[Reading], ListOrder | None]:
    """Return a reading of each setting, and the order of the lists where it breaks their ties."""
    readings: list[Reading] = []
    list_order: ListOrder | None = None
    for pipeline in pipelines:
        reading, run = _read_setting(task, pipeline, exact_scores, has_curves)
        if not readings and task.policy.order == "input":
            list_order = find_list_order(run, task.judged)
        readings.append(reading)
        advance(1)
    return readings, list_order


def _read_setting(
    task: _Task, pipeline: ScoringPipeline, exact_scores: Array, has_curve: bool
) -> tuple[Reading, Run]:
    """Score in one setting, evaluate the lists, and compare them with the float32 ranking."""
    # The library of a format is loaded before time is measured.
    numpy_dtype(pipeline.format if pipeline.format in FORMATS else "float32")
    begun = time.perf_counter()
    scores = task.score(pipeline)
    seconds = time.perf_counter() - begun
    run = task.rank(pipeline, scores)
    longest = int(np.diff(run.start).max())
    extra = curve_measures(task.measures, longest) if has_curve else []
    curve = None
    if extra:
        curve = curve_frame(evaluate_tables(run, task.judged, extra, task.policy))
    reading = Reading(
        model=task.name,
        pipeline=pipeline,
        dimensions=None,
        evaluation=evaluate_tables(run, task.judged, task.measures, task.policy),
        ties=count_ties(run),
        agreement=rank_agreement(task.codes, exact_scores, scores),
        cut=0,
        open=dict.fromkeys(task.measures, 0),
        bytes_per_vector=None,
        seconds=seconds,
        curve=curve,
    )
    return reading, run


def score_logits(logits: Logits, pipeline: ScoringPipeline, paper_strict: bool = False) -> Array:
    """Return the scores (N,) of logits in a setting.

    Plain scoring applies the activation in the format. High precision returns a float32 value that
    ranks like (score, logit): the logit, or the difference of two; with `paper_strict`, the float32
    score alone.
    """
    if logits.scored:
        if not pipeline.is_plain:
            return logits.yes.astype(np.float32)
        return _round(logits.yes if logits.low is None else logits.low, pipeline.format)
    is_format = pipeline.format in FORMATS
    form = pipeline.format if is_format else "float32"
    columns = [logits.yes] if logits.no is None else [logits.no, logits.yes]
    values = [round_to(column.astype(np.float32), form) for column in columns]
    if logits.identity and not paper_strict:
        return values[0] if is_format else _round(values[0], pipeline.format)
    if not pipeline.is_plain and not paper_strict:
        return values[0] if len(values) == 1 else values[1] - values[0]
    dtype = numpy_dtype(form if pipeline.is_plain else "float32")
    if len(values) == 1:
        scores = np.asarray(sigmoid(values[0].astype(dtype), low=True))
    else:
        scores = np.asarray(softmax(np.stack(values, axis=1).astype(dtype), low=True))
    return scores if is_format else _round(scores, pipeline.format)


def decimal_format(count: int) -> str:
    """Return the name of scores rounded to so many decimals."""
    return f"{count} decimal{'' if count == 1 else 's'}"


def _round(scores: Array, form: str) -> Array:
    """Return scores in a floating-point format, or rounded to the decimals that it names."""
    if form in FORMATS:
        return round_to(scores.astype(np.float32), form)
    return np.round(scores.astype(np.float64), int(form.partition(" ")[0]))


def _fewest_decimals(task: _Task, margin: float) -> int | None:
    """Return the fewest decimals from which on every range stays within the margin."""

    def widest_range(count: int) -> float:
        pipeline = ScoringPipeline(decimal_format(count), "plain")
        run = task.rank(pipeline, task.score(pipeline))
        evaluation = evaluate_tables(run, task.judged, task.measures, task.policy)
        return max(evaluation[m].range for m in evaluation)

    fewest = None
    for count in range(MOST_DECIMALS, -1, -1):
        if widest_range(count) > margin:
            break
        fewest = count
    return fewest


def _note_decimals(fewest: int | None, margin: float) -> str:
    """Return the sentence on the decimals that servers should print."""
    if fewest is None:
        return f"no number of decimals up to {MOST_DECIMALS} keeps every range within {margin:g}"
    singular, plural_form = "decimal is the fewest that keeps", "decimals are the fewest that keep"
    return f"{plural(fewest, singular, plural_form)} every range within {margin:g}"
