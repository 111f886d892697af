"""What is shown of a comparison: the answer, a table for two runs, matrices for more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rankproof.comparison.annotated import annotator_note, labels_prefix
from rankproof.comparison.repeats import repeat_note
from rankproof.comparison.verdict import MOSTLY_UNJUDGED, REASONS, Verdict
from rankproof.evaluation.query_set import query_set_notes
from rankproof.foundation.phrasing import amount, out_of, plural, signed
from rankproof.presentation.judged_column import any_unjudged, judged_note
from rankproof.presentation.lead_wording import ZERO
from rankproof.presentation.result import MAX_NOTES, Summary
from rankproof.presentation.tables import Cell, Column, Table
from rankproof.presentation.terminal import name_in_sentence
from rankproof.statistics.labels import AHEAD, BEHIND, LABELS

if TYPE_CHECKING:
    from rankproof.comparison.pairs import Comparison, Pair
    from rankproof.evaluation import Evaluation
    from rankproof.measures import Measure

_MATRIX_RUNS = 6  # of more runs, each is compared with the best alone
_RIVALS = 3  # of the best, named in a sentence
_MARK = "*"


# ------------------------------------------------------------------------------------- words


def comparison_summary(comparison: Comparison) -> Summary:
    """Return the verdict on two runs, or what the comparison of several shows."""
    problems = id_problems(comparison.evaluations)
    two_runs = len(comparison.pairs) == 1
    answers = (_pair_answers if two_runs else _family_answers)(comparison)
    if problems and two_runs:
        answers = []
    step = "" if problems else next_step(comparison.evaluations, reasons(comparison))
    has_row_per_measure = two_runs and len(comparison.pairs.measures) > 1
    shown = 1 if has_row_per_measure else MAX_NOTES - bool(step)
    notes = list(dict.fromkeys(_notes(comparison)))
    dtype = " or ".join(dict.fromkeys(e.dtype for e in comparison.evaluations))
    definitions = comparison.evaluations[0].policy.definitions(dtype)
    return Summary.of(
        labels_prefix(comparison.evaluations) + "\n".join([*problems, *answers]),
        notes[:shown],
        next_step=step,
        details=[*notes[shown:], *definitions, *_METHOD, *grades_note(comparison.grades)],
    )


def _notes(comparison: Comparison) -> list[str]:
    """Return what changes how the comparison is read, the weightiest first."""
    sets = {e.name: {str(m): e.query_set(m) for m in e} for e in comparison.evaluations}
    changed = comparison.pairs.figures["repeats_changed"].ravel()
    return [
        *repeat_note(comparison.evaluations, changed),
        *annotator_note(comparison.evaluations, comparison.pairs.figures),
        *query_set_notes(sets),
        *(_pair_notes if len(comparison.pairs) == 1 else _family_notes)(comparison),
        *comparison.evaluations[0].policy.changes(),
    ]


def id_problems(evaluations: Sequence[Evaluation]) -> list[str]:
    """Return a sentence for each run whose ids are not those of the judgments."""
    return [f"Undecided: in {e.name} {e.id_problem}" for e in evaluations if e.id_problem]


_METHOD = (
    "difference: mean over the queries that both runs average, of the expectation over ties.",
    "95% CI: of the mean difference, holding together for all pairs and measures of the call.",
    "p: paired randomization test, which takes differences to be symmetric about 0.",
)


def reasons(comparison: Comparison) -> set[str]:
    """Return everything that some verdict of the comparison depends on."""
    bits = comparison.pairs.figures["reasons"].astype(np.int64)
    return {name for at, name in enumerate(REASONS) if (bits >> at & 1).any()}


def is_mostly_unjudged(evaluations: Sequence[Evaluation]) -> bool:
    """True if so little of the top k is judged that worst cases say nothing."""
    shares = [share for e in evaluations for share in e.judged.values() if not math.isnan(share)]
    return bool(shares) and sum(shares) / len(shares) < MOSTLY_UNJUDGED


def next_step(evaluations: Sequence[Evaluation], depends_on: set[str]) -> str:
    """Return the cheapest command that could settle what is open; "" if there is none."""
    if "unjudged" not in depends_on:
        is_by_judge = "judge" in depends_on
        return "label 30 queries, drawn at random, and add --human LABELS" if is_by_judge else ""
    sample = "--judge-sample 15" if is_mostly_unjudged(evaluations) else "--judge-next 50"
    return f"rankproof holes {{inputs}} {sample}"


def _pair_answers(comparison: Comparison) -> list[str]:
    """Return the verdict on one measure with its number and p, or the labels on several."""
    pair = comparison.pairs[0]
    a, b = name_in_sentence(pair.a), name_in_sentence(pair.b)
    if len(pair.measures) == 1:
        ((measure, d),) = pair.measures.items()
        p = d.p if comparison.evaluations[0].annotators is None else None
        return [_verdict(pair, measure).sentence(a, b, str(measure), p=p)]
    by_claim: dict[str, list[str]] = {}
    for measure in pair.measures:
        by_claim.setdefault(_claim(_verdict(pair, measure), a, b), []).append(str(measure))
    clauses = [f"{claim} on {', '.join(measures)}" for claim, measures in by_claim.items()]
    if clauses[0].startswith("equal"):
        clauses[0] = f"{a} and {b} are {clauses[0]}"
    elif clauses[0].startswith("undecided"):
        clauses[0] = f"U{clauses[0][1:]}"
    return [f"{'; '.join(clauses)}."]


def _claim(verdict: Verdict, a: str, b: str) -> str:
    """Return a label in words, without its number."""
    if verdict.label == "equal" and verdict.differing:
        return f"equal within {verdict.equal_within:g}"
    claims = {"ahead": f"{a} beats {b}", "behind": f"{b} beats {a}"}
    return claims.get(verdict.label, verdict.label)


def _verdict(pair: Pair, measure: Measure) -> Verdict:
    verdict = pair.measures[measure].verdict
    assert verdict is not None  # every difference that was computed has one
    return verdict


def _pair_notes(comparison: Comparison) -> list[str]:
    """Return what else there is to know of two runs, the weightiest first."""
    pair = comparison.pairs[0]
    tie_notes = [note for measure in pair.measures for note in _tie_note(pair, measure)]
    counts = [_counts_sentence(pair)]
    if len(pair.measures) > 1:
        return [*tie_notes, *_unjudged_note(comparison), *counts]
    return [*counts, *tie_notes, *_unjudged_note(comparison)]


def _counts_sentence(pair: Pair) -> str:
    """Return how many queries were compared, differ, and would be needed."""
    measure, d = next(iter(pair.measures.items()))
    verdict = _verdict(pair, measure)
    of = f" on {measure}" if len(pair.measures) > 1 else ""
    parts = [f"{out_of(d.differing, d.queries, 'query', 'differs', 'differ')}{of}"]
    if verdict.annotated is not None:
        parts[0] += ", by the judge's labels"
    elif verdict.groups < verdict.queries:
        parts.append(f"in {plural(verdict.groups, 'group')}")
    for count, name in ((verdict.only_a, pair.a), (verdict.only_b, pair.b)):
        if count:
            parts.append(f"{plural(count, 'query has', 'queries have')} a value in {name} only")
    more = verdict.more_queries()
    if more:
        parts.append(f"{more} would decide")
    return f"{'; '.join(parts)}."


def _tie_note(pair: Pair, measure: Measure) -> list[str]:
    """Return what ties could change, if anything."""
    d = pair.measures[measure]
    verdict = _verdict(pair, measure)
    if d.highest - d.lowest < ZERO or verdict.annotated is not None:
        return []
    span = f"{signed(d.lowest)} to {signed(d.highest)} over all orders"
    if "ties" not in verdict.depends_on:
        if len(pair.measures) > 1:
            return []
        return [f"Ties do not matter: the difference is {span}."]
    of = f" on {measure}" if len(pair.measures) > 1 else ""
    listed = f"; as listed {signed(d.oblivious)}" if d.reversed else ""
    return [f"Ties matter{of}: {span}{listed}."]


def _unjudged_note(comparison: Comparison) -> list[str]:
    """Return what unjudged documents could change."""
    evaluations = comparison.evaluations
    bits = comparison.pairs.figures["reasons"].astype(np.int64)
    changed = int((bits >> REASONS.index("unjudged") & 1).sum())
    if not changed:
        return unjudged_note(evaluations, "")
    if bits.size == 1:
        worst = comparison.pairs.verdict(0, 0).worst_case
        span = "" if worst is None else f" ({signed(worst[0])} to {signed(worst[1])})"
        return unjudged_note(
            evaluations, f"grades of the other documents could change the verdict{span}"
        )
    verdicts = f"{changed} of {plural(bits.size, 'verdict')}"
    return unjudged_note(evaluations, f"grades of the other documents could change {verdicts}")


def unjudged_note(evaluations: Sequence[Evaluation], effect: str) -> list[str]:
    """Return how much of the top k is judged, if not all is, and what the other grades could do.

    `effect` is "" if they could change no verdict.
    """
    judged = judged_note({e.name: e.judged for e in evaluations}, evaluations[0].policy.condensed)
    if not effect or not judged:
        return judged
    share = judged[0].split(";")[0]
    if is_mostly_unjudged(evaluations):
        return [f"{share}, so worst cases are not informative."]
    return [f"{share}; {effect}."]


def grades_note(grades: str) -> list[str]:
    """Return which grades the worst cases over unjudged documents allow, if these were computed."""
    return [f"Worst cases: unjudged documents may have any grade, {grades}."] if grades else []


def _family_answers(comparison: Comparison) -> list[str]:
    """Return who is best on each measure, and how many pairs differ significantly."""
    lines = []
    for m, measure in enumerate(comparison.pairs.measures):
        label = comparison.pairs.figures["label"][:, m]
        significant = int(np.isin(label, (AHEAD, BEHIND)).sum())
        total = len(label)
        if significant in (0, total):  # then a matrix has no marks
            count = f"all {total} pairs differ" if significant else "no pair differs"
            lines.append(f"{measure}: {best_clause(comparison, m)}; {count} significantly.")
        else:
            lines.append(f"{measure}: {lead_clause(comparison, m)}.")
    return lines


def lead_clause(comparison: Comparison, m: int) -> str:
    """Return which run has the best mean, and which are not significantly worse."""
    best = best_run(comparison, m)
    names = comparison.pairs.names
    lead = best_clause(comparison, m)
    rivals = [name for name, label in against(comparison, m, best).items() if label != "behind"]
    if not rivals:
        return f"{lead}, significantly ahead of all others"
    if len(rivals) == len(names) - 1:
        return f"{lead}, not significantly ahead of any"
    shown = ", ".join(map(name_in_sentence, rivals[:_RIVALS]))
    more = len(rivals) - _RIVALS
    return f"{lead}, not significantly ahead of {shown}{f' and {more} more' if more > 0 else ''}"


def best_clause(comparison: Comparison, m: int) -> str:
    """Return which run has the best mean, and that mean."""
    best = best_run(comparison, m)
    mean = comparison.evaluations[best].best_estimate(comparison.pairs.measures[m])
    return f"{name_in_sentence(comparison.pairs.names[best])} is best with {mean:.4f}"


def best_run(comparison: Comparison, m: int) -> int:
    """Return the number of the run with the best mean."""
    measure = comparison.pairs.measures[m]
    means = [measure.sign * e.best_estimate(measure) for e in comparison.evaluations]
    return int(np.argmax(np.nan_to_num(np.array(means), nan=-math.inf)))


def against(comparison: Comparison, m: int, reference: int) -> dict[str, str]:
    """Return the label of every other run against a reference run."""
    pairs = comparison.pairs
    opposite = {"ahead": "behind", "behind": "ahead"}
    labels = {}
    for row in np.flatnonzero((pairs.first == reference) | (pairs.second == reference)):
        label = LABELS[int(pairs.figures["label"][row, m])]
        if pairs.first[row] == reference:
            labels[pairs.names[int(pairs.second[row])]] = opposite.get(label, label)
        else:
            labels[pairs.names[int(pairs.first[row])]] = str(label)
    return labels


def _family_notes(comparison: Comparison) -> list[str]:
    bits = comparison.pairs.figures["reasons"].astype(np.int64)
    by_ties = int((bits >> REASONS.index("ties") & 1).sum())
    notes = []
    if by_ties:
        notes.append(f"Ties matter for {by_ties} of {plural(bits.size, 'verdict')}.")
    return [*notes, *_unjudged_note(comparison)]


# ------------------------------------------------------------------------------------ tables


def comparison_tables(comparison: Comparison) -> list[Table]:
    """Return one table for two runs, or a matrix for each measure."""
    if len(comparison.pairs) == 1:
        is_one_measure = len(comparison.pairs.measures) == 1
        return [(_run_table if is_one_measure else _measure_table)(comparison)]
    if len(comparison.evaluations) > _MATRIX_RUNS:
        return [_best_table(comparison, m) for m in range(len(comparison.pairs.measures))]
    matrices = [_matrix(comparison, m) for m in range(len(comparison.pairs.measures))]
    notes = [note for table in matrices for note in table.notes]
    bare = [replace(table, notes=[]) for table in matrices]
    return [*bare[:-1], replace(bare[-1], notes=list(dict.fromkeys(notes)))]


def _run_table(comparison: Comparison) -> Table:
    """Return a row for each of two runs."""
    measure = comparison.pairs.measures[0]
    columns = [Column("run", "text", folds=True), Column(str(measure))]
    shares = [e.judged.get(measure, math.nan) for e in comparison.evaluations]
    is_partly_judged = any_unjudged(shares)
    if is_partly_judged:
        columns.append(Column("judged", digits=2))
    rows = []
    for evaluation, share in zip(comparison.evaluations, shares, strict=True):
        row: list[Cell] = [evaluation.name, evaluation.best_estimate(measure)]
        rows.append([*row, share] if is_partly_judged else row)
    return Table(columns, rows)


def _measure_table(comparison: Comparison) -> Table:
    """Return a row for each measure of two runs."""
    pair = comparison.pairs[0]
    columns = [
        Column("measure", "text"),
        *(Column(e.name) for e in comparison.evaluations),
        Column("difference, 95% CI", "text"),
        Column("verdict", "text"),
    ]
    rows = []
    for measure in pair.measures:
        verdict = _verdict(pair, measure)
        ends = verdict.family_ci or verdict.bound
        row: list[Cell] = [str(measure)]
        row += [e.best_estimate(measure) for e in comparison.evaluations]
        row.append(None if ends is None else f"{signed(ends[0])} to {signed(ends[1])}")
        row.append(_label_cell(verdict, pair))
        rows.append(row)
    return Table(columns, rows)


def _label_cell(verdict: Verdict, pair: Pair) -> str:
    """Return the label, naming who is ahead."""
    if verdict.label in ("ahead", "behind"):
        return f"{pair.a if verdict.label == 'ahead' else pair.b} ahead"
    return verdict.label


def _matrix(comparison: Comparison, m: int) -> Table:
    """Return row minus column, marked where that is significant and not all pairs are."""
    pairs = comparison.pairs
    names = pairs.names
    estimates = pairs.figures["expected"][:, m]
    significant = np.isin(pairs.figures["label"][:, m], (AHEAD, BEHIND))
    has_marks = significant.any() and not significant.all()
    cells = [["·"] * len(names) for _ in names]
    for row in range(len(pairs)):
        a, b = int(pairs.first[row]), int(pairs.second[row])
        mark = _MARK if has_marks and significant[row] else ""
        cells[a][b] = f"{signed(float(estimates[row]))}{mark}"
        cells[b][a] = f"{signed(-float(estimates[row]))}{mark}"
    columns = [Column(str(pairs.measures[m]), "text", folds=True), *map(Column, names)]
    notes = []
    if has_marks:
        notes = [f"row − column; {_MARK} significantly different, over all comparisons together"]
    rows = [(name, *row) for name, row in zip(names, cells, strict=True)]
    return Table(columns, rows, notes=notes)


def _best_table(comparison: Comparison, m: int) -> Table:
    """Return each run's mean, how far it is behind the best, and the verdict on that."""
    measure = comparison.pairs.measures[m]
    best = best_run(comparison, m)
    labels = against(comparison, m, best)
    top = comparison.evaluations[best].best_estimate(measure)
    by_mean = sorted(comparison.evaluations, key=lambda e: -measure.sign * e.best_estimate(measure))
    rows: list[list[Cell]] = [
        [
            e.name,
            e.best_estimate(measure),
            "" if e.name not in labels else amount(abs(top - e.best_estimate(measure))),
            labels.get(e.name, "best"),
        ]
        for e in by_mean
    ]
    columns = [
        Column("run", "text", folds=True),
        Column(str(measure)),
        Column("from best"),
        Column("verdict", "text"),
    ]
    return Table(columns, rows)


def full_pairs_table(comparison: Comparison) -> Table:
    """Return every value of each pair and measure."""
    figures = comparison.pairs.figures
    names = [name for name in _FULL if name in figures]
    columns = [
        *Column.each("a", "b", style="text", folds=True),
        *Column.each("measure", "verdict", "depends on", style="text"),
        *(Column(_FULL[name], "signed" if name in _SIGNED else "") for name in names),
    ]
    rows = []
    for number, pair in enumerate(comparison.pairs):
        for m, measure in enumerate(pair.measures):
            verdict = _verdict(pair, measure)
            row: list[Cell] = [pair.a, pair.b, str(measure), verdict.label]
            row.append(", ".join(verdict.depends_on))
            rows.append([*row, *(float(figures[name][number, m]) for name in names)])
    return Table(columns, rows)


_SIGNED = (
    *("expected", "oblivious", "lowest", "highest", "low", "high", "family_low", "family_high"),
    *("worst_low", "worst_high", "holes_low", "holes_high"),
)
_FULL = {
    **{name: name for name in ("expected", "oblivious", "lowest", "highest", "p")},
    "p_holm": "p (Holm)",
    "p_t": "p (t)",
    "low": "ci low",
    "high": "ci high",
    "family_low": "family ci low",
    "family_high": "family ci high",
    "worst_low": "worst case low",
    "worst_high": "worst case high",
    "holes_low": "holes low",
    "holes_high": "holes high",
    "flip": "flip",
    "judged_a": "judged a",
    "judged_b": "judged b",
    "queries": "queries",
    "differing": "differing",
    "only_a": "only a",
    "only_b": "only b",
}
