"""What is shown of evaluations: the answer, the table of scores, notes, details and charts.

One run, or one measure, has a row for each score with all that belongs to it. Several runs on
several measures are a matrix, as papers print it. `full_table` has every column, for CSV, frames
and `--wide`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rankproof.evaluation.query_set import SETS, query_set_notes
from rankproof.foundation.phrasing import plural
from rankproof.foundation.version import __version__
from rankproof.measures import Measure
from rankproof.presentation.charts import Chart, Curve, CurveChart, Range, RangeChart
from rankproof.presentation.judged_column import judged_note
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Cell, Column, Table, span

if TYPE_CHECKING:
    from rankproof.evaluation.result import Evaluation, MeanScore

_VISIBLE = 5e-5  # a range of scores that four digits show


# ------------------------------------------------------------------------------------- words


def evaluation_summary(evaluations: Sequence[Evaluation], notes: Sequence[str] = ()) -> Summary:
    """Return the answer and the notes of evaluations; further `notes` come first."""
    policy = evaluations[0].policy
    dtype = " or ".join(dict.fromkeys(e.dtype for e in evaluations))
    sets = {e.name: {str(m): e.query_set(m) for m in e} for e in evaluations}
    own_notes = [
        *notes,
        *query_set_notes(sets),
        *_tie_notes(evaluations),
        *judged_note({e.name: e.judged for e in evaluations}, policy.condensed),
        *_bounds_notes(evaluations),
        *policy.changes(),
    ]
    details = [*policy.definitions(dtype), *_METHOD]
    return Summary.of(_answer(evaluations), own_notes, details=details)


_METHOD = (
    "score: mean over queries of the expectation over every order of tied documents.",
    "95% CI: confidence interval of the mean over queries (docs/statistics.md).",
)


def _answer(evaluations: Sequence[Evaluation]) -> str:
    """Return what was measured, after any reason not to trust it."""
    measures = measures_of(evaluations)
    counts = sorted({e[m].queries for e in evaluations for m in e})
    over = span(counts[0], counts[-1]) if counts else "0"
    queries = f"{over} {'query' if counts == [1] else 'queries'}"
    subject = str(measures[0]) if len(measures) == 1 else plural(len(measures), "measure")
    lines = [f"Do not trust {e.name}: {e.id_problem}" for e in evaluations if e.id_problem]
    if len(evaluations) == len(measures) == 1:
        score = evaluations[0][measures[0]]
        ci = "" if score.ci is None else f", 95% CI {span(*score.ci, digits=3)}"
        return "\n".join(
            [*lines, f"{subject} of {evaluations[0].name} is {score.expected:.4f} ({queries}{ci})."]
        )
    of_run = f" of {evaluations[0].name}" if len(evaluations) == 1 else ""
    return "\n".join([*lines, f"{subject}{of_run} over {queries}"])


def measures_of(evaluations: Sequence[Evaluation]) -> list[Measure]:
    """Return the measures of all evaluations, each once."""
    return list(dict.fromkeys(m for e in evaluations for m in e))


def _tie_notes(evaluations: Sequence[Evaluation]) -> list[str]:
    """Return how far ties move the score they move most; nothing where no tie matters."""
    ranges = [(e[m].range, e.name, m) for e in evaluations for m in e]
    widest, name, measure = max(ranges, key=lambda item: item[0])
    if not widest > _VISIBLE:
        return []
    several = f" of {name}" if len(evaluations) > 1 else ""
    return [
        f"Ties move {measure}{several} by up to {widest:.3f}. Report the score: it is the mean "
        "over every order of tied documents."
    ]


def _bounds_notes(evaluations: Sequence[Evaluation]) -> list[str]:
    """Return what the worst cases over unjudged documents are over, if they were computed."""
    bounded = next((e for e in evaluations if e.bounds), None)
    if bounded is None:
        return []
    loose = ", ".join(dict.fromkeys(str(m) for m, b in bounded.bounds.items() if not b.exact))
    at_most = f" For {loose} they may be too wide." if loose else ""
    return [
        f"Worst cases: unjudged documents of the top k may have any grade, {bounded.grades}."
        f"{at_most}"
    ]


def evaluation_caption(evaluations: Sequence[Evaluation]) -> str:
    """Return one sentence for a paper: measure, queries, policy, ties, judged share, software."""
    policy = evaluations[0].policy
    measures = ", ".join(map(str, measures_of(evaluations)))
    counts = sorted({e[m].queries for e in evaluations for m in e})
    clauses = [f"{measures}, mean over {span(counts[0], counts[-1])} queries"]
    if any(e[m].range > _VISIBLE for e in evaluations for m in e):
        clauses.append("expectation over every order of tied documents")
    clauses += [note.rstrip(".").lower() for note in policy.changes()]
    if any(e.missing for e in evaluations):
        effect = "count 0" if policy.missing == "zero" else "are skipped"
        clauses.append(f"missing queries {effect}")
    judged = judged_note({e.name: e.judged for e in evaluations}, policy.condensed)
    clauses += [note.split(";")[0].rstrip(".") for note in judged]
    return f"{'; '.join(clauses)} (rankproof {__version__})."


# ------------------------------------------------------------------------------------ tables


def evaluation_tables(evaluations: Sequence[Evaluation]) -> list[Table]:
    """Return the table of scores, and that of scores with annotators' labels if there are any."""
    measures = measures_of(evaluations)
    is_matrix = len(evaluations) > 1 and len(measures) > 1
    tables = [(_matrix if is_matrix else _score_table)(evaluations, measures)]
    return [*tables, *_annotator_tables(evaluations)]


def full_evaluation_tables(evaluations: Sequence[Evaluation]) -> list[Table]:
    """Return the tables with every column."""
    return [_full_table(evaluations), *_annotator_tables(evaluations)]


def _annotator_tables(evaluations: Sequence[Evaluation]) -> list[Table]:
    by_run = [e.annotators for e in evaluations if e.annotators is not None]
    if not by_run:
        return []
    from rankproof.evaluation.annotator_estimates import annotators_table

    names, judged = [e.name for e in evaluations], [e.judged for e in evaluations]
    return [annotators_table(names, by_run, judged)]


def _matrix(evaluations: Sequence[Evaluation], measures: Sequence[Measure]) -> Table:
    """Return a row for each run, a column for each measure, the interval of the first measure."""
    first, *others = measures
    columns = [
        Column("run", "text", folds=True),
        Column(str(first)),
        Column("95% CI", "text"),
        *(Column(str(measure)) for measure in others),
    ]
    rows: list[tuple[Cell, ...]] = [
        (
            e.name,
            e[first].expected,
            _interval_cell(e[first]),
            *(e[measure].expected for measure in others),
        )
        for e in evaluations
    ]
    return Table(columns, rows)


def _score_table(evaluations: Sequence[Evaluation], measures: Sequence[Measure]) -> Table:
    """Return a row for each score, with columns for ties only where they matter."""
    several_runs = len(evaluations) > 1
    label = Column("run" if several_runs else "measure", "text", folds=several_runs)
    scores = [(e, m, e[m]) for e in evaluations for m in measures if m in e.outcomes]
    has_ties = any(score.range > _VISIBLE for _, _, score in scores)
    has_bounds = any(m in e.bounds for e, m, _ in scores)
    columns = [label, Column("score"), Column("95% CI", "text")]
    columns += [Column("range from ties", "text"), Column("as listed")] if has_ties else []
    columns += [Column("tied")] if has_ties and not has_bounds else []
    columns += [Column("worst cases", "text")] if has_bounds else []
    rows = []
    for e, m, score in scores:
        row: list[Cell] = [e.name if several_runs else str(m), score.expected]
        row.append(_interval_cell(score))
        if has_ties:
            row += [_tie_cell(score), score.oblivious]
            row += [] if has_bounds else [len(e.query_set(m).tied)]
        if has_bounds:
            bound = e.bounds.get(m)
            row.append(None if bound is None else span(bound.lowest, bound.highest))
        rows.append(row)
    return Table(columns, rows)


def _interval_cell(score: MeanScore) -> str | None:
    return None if score.ci is None else span(*score.ci, digits=3)


def _tie_cell(score: MeanScore) -> str:
    return span(score.min, score.max) if score.range > _VISIBLE else "none"


def _full_table(evaluations: Sequence[Evaluation]) -> Table:
    """Return every value of every score."""
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        *Column.each("expected", "ci low", "ci high", "min", "max", "range", "oblivious"),
        Column("bias", "signed"),
        *Column.each("std over orders", "judged"),
    ]
    scores = [(e, m, e[m]) for e in evaluations for m in e]
    has_bounds = any(m in e.bounds for e, m, _ in scores)
    columns += Column.each("lowest", "highest") if has_bounds else []
    columns += Column.each(*SETS)
    rows = []
    for e, m, s in scores:
        row: list[Cell] = [e.name, str(m), s.expected, *(s.ci or (None, None)), s.min, s.max]
        row += [s.range, s.oblivious, s.bias, s.std, e.judged.get(m, math.nan)]
        if has_bounds:
            bound = e.bounds.get(m)
            row += [None, None] if bound is None else [bound.lowest, bound.highest]
        rows.append([*row, *e.query_set(m).counts().values()])
    return Table(columns, rows)


# ------------------------------------------------------------------------------------ charts

_CHART_CAPTION = (
    "Dot: expectation over every order of ties. Bar: the least and the most that any order gives. "
    "Upright line: the score as listed."
)
_CURVE_CUTOFFS = 4  # from so many cutoffs on, a measure is drawn as a curve over them


def evaluation_charts(evaluations: Sequence[Evaluation]) -> list[Chart]:
    """Return the range of each score over ties; measures at four or more cutoffs become curves."""
    measures = list(dict.fromkeys(m for e in evaluations for m in e))
    families: dict[str, list[Measure]] = {}
    for measure in measures:
        if measure.cutoff is not None:
            families.setdefault(str(replace(measure, cutoff=None)), []).append(measure)
    families = {n: members for n, members in families.items() if len(members) >= _CURVE_CUTOFFS}
    in_curves = {measure for members in families.values() for measure in members}
    rows = [
        _tie_range(evaluation, measure, group)
        for measure in measures
        for group, evaluation in enumerate(evaluations)
        if measure not in in_curves and measure in evaluation.outcomes
    ]
    names = [evaluation.name for evaluation in evaluations]
    title = "Scores and their range over ties"
    chart = RangeChart(title, rows, "score", groups=names, caption=_CHART_CAPTION)
    curves = [_cutoff_curves(name, members, evaluations) for name, members in families.items()]
    return [*([chart] if rows else []), *curves]


def _tie_range(evaluation: Evaluation, measure: Measure, group: int) -> Range:
    summary = evaluation[measure]
    return Range(
        f"{evaluation.name} · {measure}",
        summary.expected,
        summary.min,
        summary.max,
        marker=summary.oblivious,
        group=group,
        tip=f"{evaluation.name}, {measure}: expected {summary.expected:.4f}, from "
        f"{summary.min:.4f} to {summary.max:.4f} by the order of ties; as listed "
        f"{summary.oblivious:.4f}",
    )


def _cutoff_curves(
    family: str, measures: Sequence[Measure], evaluations: Sequence[Evaluation]
) -> CurveChart:
    """Return a measure over its cutoffs, a line for each run, with the band of every tie-break."""
    measures = sorted(measures, key=lambda measure: measure.cutoff or 0)
    curves = []
    for evaluation in evaluations:
        known = [measure for measure in measures if measure in evaluation.outcomes]
        summaries = [evaluation[measure] for measure in known]
        curves.append(
            Curve(
                evaluation.name,
                x=[float(measure.cutoff or 0) for measure in known],
                y=[summary.expected for summary in summaries],
                low=[summary.min for summary in summaries],
                high=[summary.max for summary in summaries],
            )
        )
    return CurveChart(
        f"{family} over k",
        curves,
        x_label="k",
        y_label=family,
        log_x=True,
        caption=f"{family}@k: expectation, and the band of every tie-break.",
    )
