"""A comparison of several runs for people: a matrix for each measure, and what is still open."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from rankproof.foundation.phrasing import plural, signed
from rankproof.presentation.judged_column import CONDENSED, NOTE, any_unjudged
from rankproof.presentation.lead_wording import dependence_verb
from rankproof.presentation.tables import Cell, Column, Table

if TYPE_CHECKING:
    from rankproof.comparison.pairs import Comparison, Difference
    from rankproof.measures import Measure

_SENTENCES = 20  # pairs put in words
_SIGNIFICANT = 0.05


def matrix_tables(comparison: Comparison) -> list[Table]:
    """A matrix for each measure; what changes how all are read stands below the last."""
    tables = [_matrix(comparison, measure) for measure in comparison.pairs.measures]
    tables[-1] = replace(tables[-1], notes=[*tables[-1].notes, *comparison.notes])
    return tables


def _matrix(comparison: Comparison, measure: Measure) -> Table:
    """Row minus column, with what ties and chance leave of it."""
    names = [evaluation.name for evaluation in comparison.evaluations]
    differences = {(pair.a, pair.b): pair.measures[measure] for pair in comparison.pairs}
    rows: list[tuple[Cell, ...]] = [
        (row, *(_matrix_cell(differences, row, column) for column in names)) for row in names
    ]
    notes = [
        "row − column, expected; * p < 0.05 after Holm; "
        "~ which is ahead rests on tie order; ! one tie-break reverses the expectation"
    ]
    columns = [Column(str(measure), "text", folds=True), *(Column(name) for name in names)]
    shares = [e.judged.get(measure, math.nan) for e in comparison.evaluations]
    if any_unjudged(shares):
        columns.insert(1, Column("judged"))
        rows = [(row[0], share, *row[1:]) for row, share in zip(rows, shares, strict=True)]
        notes.append(NOTE)
    if comparison.evaluations[0].policy.condensed:
        notes.append(CONDENSED)
    if "holes_low" in comparison.pairs.figures:
        exact = all(d.holes_exact for d in differences.values() if d.rests_on_holes)
        notes.append(f"? which is ahead {dependence_verb(exact)} unjudged documents")
    return Table(columns, rows, notes=notes)


def _matrix_cell(differences: dict[tuple[str, str], Difference], row: str, column: str) -> str:
    """Row minus column, from the one order in which the pair was compared."""
    if row == column:
        return "·"
    sign = 1 if (row, column) in differences else -1
    difference = differences[(row, column) if sign > 0 else (column, row)]
    mark = "!" if difference.reversed else "~" if difference.rests_on_ties else ""
    mark += "?" if difference.rests_on_holes else ""
    mark += "*" if difference.p_holm < _SIGNIFICANT else ""
    return f"{signed(sign * difference.expected)}{mark}"


def comparison_sentences(comparison: Comparison) -> list[str]:
    """All of one pair in words; of several the pairs whose order is open."""
    if len(comparison.pairs) == 1:
        return comparison.verdicts()
    from rankproof.comparison.pairs import doubtful

    reasons = "how ties are broken"
    if "holes_low" in comparison.pairs.figures:
        reasons += " or on unjudged documents"
    open_pairs = doubtful(comparison)
    sentences = [d.verdict(pair.a, pair.b, m) for pair, m, d in islice(open_pairs, _SENTENCES)]
    others = sum(1 for _ in open_pairs)
    if others:
        rest = plural(others, "more rests", "more rest")
        sentences.append(f"{rest} on {reasons}: --format csv lists every pair.")
    return sentences or [f"No order between these runs rests on {reasons}."]
