"""Logits of rerankers, and scores that others serve: what a format makes of their order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from rankproof.audit.array_files import stored_as
from rankproof.audit.embeddings import LARGEST_FLOAT16, MEASURES, among, strangers
from rankproof.audit.list_order import Listing, habit, sentence
from rankproof.audit.rank_correlation import agreement
from rankproof.audit.results import Audit, Reading, Scoring, curve_frame, curve_measures, statistics
from rankproof.data import QrelsLike, read_qrels
from rankproof.data.columns import check_ids, encode
from rankproof.data.tables import Run, build_run
from rankproof.data.ties import Order
from rankproof.evaluation import Missing, Policy, evaluate_tables, parse_means
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import out_of, plural
from rankproof.measures import Measure
from rankproof.precision.activations import sigmoid, softmax
from rankproof.precision.formats import numpy_dtype, round_to

FORMATS = ("float32", "float16", "bfloat16")
SCORINGS: tuple[Scoring, ...] = ("plain", "high precision")
MARGIN = 0.001
MOST_DECIMALS = 12


@dataclass(frozen=True, slots=True)
class Logits:
    """A reranker's output for pairs of query and document."""

    query: pl.Series  # (N,) ids
    doc: pl.Series  # (N,)
    yes: Float  # (N,) the logit, or that of "yes"
    no: Float | None = None  # (N,) where there are two
    label: str = "logits"
    scored: bool = False  # scores, which went through an activation before
    low: Float | None = None  # (N,) such scores as the format of a model's run makes them
    identity: bool = False  # one logit, which the model takes for its score as it is
    stored: str | None = None  # the format of the file, where it is narrower than float32

    def some(self, kept: Array) -> Logits:
        """The rows that are marked."""
        return replace(
            self,
            query=self.query.filter(pl.Series(kept)),
            doc=self.doc.filter(pl.Series(kept)),
            yes=self.yes[kept],
            no=None if self.no is None else self.no[kept],
            low=None if self.low is None else self.low[kept],
        )

    @property
    def activation(self) -> str | None:
        if self.scored:
            return None
        return "softmax" if self.no is not None else "identity" if self.identity else "sigmoid"

    def place(self, row: int) -> str:
        return f"{self.label}: row {row + 1}"

    def check(self) -> None:
        """Refuse rows without ids, and logits that are no finite numbers."""
        if not len(self.yes):
            raise InputError("no rows", place=self.label, remedy="check how it was made")
        check_ids(self.query, "query", self.place)
        check_ids(self.doc, "document", self.place)
        for values in (self.yes, self.no):
            if values is None:
                continue
            wrong = ~np.isfinite(values)
            if wrong.any():
                row = int(wrong.argmax())
                raise InputError(
                    f"logit {values[row]} is not a finite number",
                    place=self.place(row),
                    remedy="drop the row or score it again",
                )


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
    progress: Callable[[float], None] | None = None,
) -> Audit:
    """Score the same logits in several formats, and measure each list under all tie orders.

    `logits` is a path or a frame with columns query, doc and logit (sigmoid), or logit_yes and
    logit_no (softmax). Plain, the logits and the activation are wholly in the format. With high
    precision the logits are upcast first and the list is ranked by (score, logit) in float32: the
    order of the logit, or of the difference of two, which loses nothing where a score saturates.
    `paper_strict` ranks by the float32 score alone, as the paper does. ρ is to the float32 ranking
    with high precision, or to that of `reference`: the same pairs in the same order, as a float32
    run of the model scored them. `decimals` adds scores rounded to so many, as servers print them,
    and the least number of them that keeps every range within `margin`. Scores that a server gave
    (`Logits` with `scored`) are only rounded: what it rounded before is lost. A model that takes
    its logit for the score as it is (`identity`) has no activation to lose by, but in the paper.

    >>> import polars as pl
    >>> logits = pl.DataFrame({"query": "q", "doc": ["a", "b"], "logit": [9.0, 9.1]})
    >>> found = rp.audit_logits(logits, {"q": {"b": 1}}, ["RR"], formats=["bfloat16"])
    >>> {reading.scoring: reading.evaluation["RR"].range for reading in found.readings}
    {'plain': 0.5, 'high precision': 0.0}
    """
    from rankproof.audit.input_files import read_logits

    policy = Policy.of(order, missing, candidates_only)
    parsed = parse_means(measures)
    wanted = tuple(dict.fromkeys(formats))
    for form in wanted:
        if form not in FORMATS:
            raise InputError(
                f"format {shorten(form)} is not one that logits are audited in",
                remedy=f"use {', '.join(FORMATS)}",
            )
    if not wanted:
        raise InputError("no number format was named", remedy=f"use {', '.join(FORMATS)}")
    places = tuple(dict.fromkeys(decimals))
    for count in places:
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_DECIMALS:
            raise InputError(
                f"decimals {shorten(count)}", remedy=f"use whole numbers from 0 to {MOST_DECIMALS}"
            )
    if not (isinstance(margin, int | float) and 0 <= margin < 1):
        raise InputError(f"margin {shorten(margin)}", remedy="use a number from 0 to 1, as 0.001")
    judged = read_qrels(qrels)
    given = logits if isinstance(logits, Logits) else read_logits(logits)
    given.check()
    if "float16" in wanted:
        _fits(given)

    if reference is not None and not (
        given.query.equals(reference.query) and given.doc.equals(reference.doc)
    ):
        raise InputError(
            "the reference has other pairs", place=given.label, remedy="score the same candidates"
        )
    kept = among(given.query, judged.queries)
    if kept.any() and not among(given.doc, judged.doc).any():
        raise strangers("document", given.label, given.doc, judged, judged.doc, "")
    queries, codes = encode(given.query)
    notes = stored_as(given.label, given.stored)
    if kept.any() and not kept.all():
        others = len(queries) - given.query.filter(pl.Series(kept)).n_unique()
        silent = out_of(others, len(queries), "query", "has", "have")
        notes.append(f"{silent} no judgements: left out")
        given = given.some(kept)
        reference = None if reference is None else reference.some(kept)
        queries, codes = encode(given.query)

    exact = _score(reference or given, "float32", "high precision", paper_strict)

    def listed(scores: Array, dtype: str) -> Run:
        return _run(given, queries, codes, scores, dtype, name)

    readings: list[Reading] = []
    order_given: Listing | None = None
    for form, scoring in _settings(wanted, places, given.scored and given.low is None):
        numpy_dtype(form if form in FORMATS else "float32")  # loads it, before the clock runs
        begun = time.perf_counter()
        scores = _score(given, form, scoring, paper_strict)
        seconds = time.perf_counter() - begun
        dtype = form if scoring == "plain" else "float32"
        run = listed(scores, dtype if dtype in FORMATS else "float64")
        if not readings and policy.order == "input":
            order_given = habit(run, judged)
        longest = int(np.diff(run.start).max())
        extra = curve_measures(parsed, longest) if curves else []
        readings.append(
            Reading(
                model=name,
                format=form,
                scoring=scoring,
                dimensions=None,
                full=True,
                evaluation=evaluate_tables(run, judged, parsed, policy),
                ties=statistics(run),
                agreement=agreement(codes, exact, scores),
                cut=0,
                open=dict.fromkeys(parsed, 0),
                bytes_per_vector=None,
                seconds=seconds,
                curve=curve_frame(evaluate_tables(run, judged, extra, policy)) if extra else None,
            )
        )
        if progress is not None:
            progress(1.0)
    least = None
    if places:

        def widest(count: int) -> float:
            run = listed(_score(given, decimal_format(count), "plain"), "float64")
            found = evaluate_tables(run, judged, parsed, policy)
            return max(found[m].range for m in found)

        least = _least(widest, margin)
        notes.append(
            f"no number of decimals up to {MOST_DECIMALS} keeps every range within {margin:g}"
            if least is None
            else plural(
                least, "decimal is the fewest that keeps", "decimals are the fewest that keep"
            )
            + f" every range within {margin:g}"
        )
    if order_given is not None:
        notes.append(sentence(order_given, readings))
    made = {
        "model": name,
        "kind": "logits",
        "listing": None if order_given is None else order_given.to_dict(),
        "activation": "sigmoid" if given.identity and paper_strict else given.activation,
        "queries": len(queries),
        "pairs": len(given.yes),
        "formats": list(wanted),
        "paper_strict": paper_strict,
        "decimals": {"asked": list(places), "margin": margin, "least": least} if places else None,
    }
    notes += readings[0].evaluation.notes
    return Audit.together([Audit(tuple(readings), (), tuple(notes), (made,))])


def _score(given: Logits, form: str, scoring: Scoring, paper_strict: bool = False) -> Array:
    """(N,) float32: the activation in the format, or what (score, logit) in float32 ranks by.

    As the paper has it, the float32 score alone.
    """
    if given.scored:
        plain = given.yes if given.low is None else given.low
        return _rounded(plain, form) if scoring == "plain" else given.yes.astype(np.float32)
    columns = [given.yes] if given.no is None else [given.no, given.yes]
    own = form if form in FORMATS else "float32"
    low = [round_to(column.astype(np.float32), own) for column in columns]
    if given.identity and not paper_strict:
        return low[0] if form == own else _rounded(low[0], form)
    if scoring == "high precision" and not paper_strict:
        return low[0] if len(low) == 1 else low[1] - low[0]
    dtype = numpy_dtype("float32" if scoring == "high precision" else own)
    if len(low) == 1:
        score = np.asarray(sigmoid(low[0].astype(dtype), low=True))
    else:
        score = np.asarray(softmax(np.stack(low, axis=1).astype(dtype), low=True))
    return score if form == own else _rounded(score, form)


def decimal_format(count: int) -> str:
    """The name of scores rounded to so many decimals."""
    return f"{count} decimal{'' if count == 1 else 's'}"


def _rounded(scores: Array, form: str) -> Array:
    """In a floating-point format, or to so many decimals."""
    if form in FORMATS:
        return round_to(scores.astype(np.float32), form)
    return np.round(scores.astype(np.float64), int(form.partition(" ")[0]))


def _settings(
    formats: Iterable[str], places: Iterable[int], scored: bool
) -> list[tuple[str, Scoring]]:
    """Decimals and what a server gave have nothing left to score in high precision."""
    ways = SCORINGS[:1] if scored else SCORINGS
    decimal: list[tuple[str, Scoring]] = [(decimal_format(count), "plain") for count in places]
    return [(form, scoring) for form in formats for scoring in ways] + decimal


def _least(widest: Callable[[int], float], margin: float) -> int | None:
    """The fewest decimals that keep the range within the margin, and all more of them do."""
    found = None
    for count in range(MOST_DECIMALS, -1, -1):
        if widest(count) > margin:
            break
        found = count
    return found


def _run(
    given: Logits, queries: pl.Series, codes: Array, scores: Array, dtype: str, name: str
) -> Run:
    try:
        return build_run(name, queries, codes, given.doc, scores.astype(np.float64), dtype)
    except kernels.RepeatedDocument as repeated:
        query, doc = given.query[repeated.row], given.doc[repeated.row]
        raise InputError(
            f"query {shorten(query)} lists document {shorten(doc)} a second time",
            place=given.place(repeated.row),
            remedy="keep one of the two",
        ) from None


def _fits(given: Logits) -> None:
    for values in (given.yes, given.no):
        if values is not None and (np.abs(values) > LARGEST_FLOAT16).any():
            row = int((np.abs(values) > LARGEST_FLOAT16).argmax())
            raise InputError(
                f"logit {values[row]:g} is too large for float16",
                place=given.place(row),
                remedy="leave float16 out of the formats",
            )
