"""`rankproof compare`: which run is better, and whether ties decide that."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from rankproof.cli import inputs, options, output
from rankproof.cli.options import Format
from rankproof.cli.output import Cell, Column, Table
from rankproof.cli.progress import progress
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import plural, signed
from rankproof.presentation.judged_column import CONDENSED, NOTE, some_unjudged
from rankproof.presentation.lead_wording import rests

if TYPE_CHECKING:
    from rankproof.comparison.pairs import Comparison, Difference
    from rankproof.measures import Measure


SAID = 20  # comparisons put in words


def command(
    qrels: options.QrelsArgument,
    runs: options.RunsArgument,
    measure: options.MeasureOption = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the random sign flips and resamples.")
    ] = 0,
    order: options.OrderOption = None,
    missing: options.MissingOption = None,
    candidates_only: options.CandidatesOption = False,
    score_dtype: options.ScoreDtypeOption = None,
    like: options.LikeOption = None,
    condensed: options.CondensedOption = False,
    t_test: Annotated[
        bool, typer.Option("--t-test", help="Add the p of Student's paired t-test.")
    ] = False,
    holes: options.HolesOption = False,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
    out: options.OutOption = None,
    input_format: options.InputFormatOption = None,
    qrels_format: options.QrelsFormatOption = None,
    memory: options.MemoryOption = None,
    spill_dir: options.SpillOption = None,
) -> None:
    """Compare runs pairwise: a − b, its p-value, and what every tie-break would make of it.

    LOWEST and HIGHEST are the extremes of a − b over all orders of both runs' ties; the lead is
    certain when they agree in sign, and FLIP is the chance that a random order turns it. P is from
    a paired randomisation test, exact or with 100,000 sign flips, corrected by Holm over all pairs
    and measures; the interval is 95%, Student's t over queries.
    """
    from rankproof.comparison.pairs import compare_evaluations
    from rankproof.evaluation import Policy, parse_means
    from rankproof.unjudged.judged_share import evaluate_named

    policy = Policy.of(order, missing, candidates_only, score_dtype, like, condensed)
    measures = parse_means(measure or options.DEFAULT_MEASURES)
    if len(runs) < 2:
        raise InputError("one run cannot be compared", remedy="name two runs or more")
    inputs.check_stdin([qrels, *runs])
    output.check_outputs([qrels, *runs], out)
    judged = inputs.load_qrels(qrels, qrels_format, memory)
    measures = inputs.on_scale(measures, measure, judged.scale)
    evaluations, view = evaluate_named(
        *(inputs.named(runs), judged, measures, policy),
        holes=holes or None,
        **inputs.read_as(runs, input_format, memory, spill_dir),
    )
    with progress("testing", 1.0) as told:
        comparison = compare_evaluations(evaluations, seed=seed, with_t=t_test, progress=told)
    comparison = comparison.over_holes(view, asked=holes)
    holes = "holes_low" in comparison.pairs.figures
    tables = comparison.tables()
    remarks: list[str] = []
    if form is Format.table:
        remarks = verdicts(comparison)
        if len(runs) > 2:
            tables = [_matrix(comparison, m) for m in measures]
            remarks = [*remarks, *comparison.notes]
    data = comparison.to_dict() | {"policy": policy.to_dict(), "seed": seed}
    asked = inputs.asked(measures, policy, input_format, qrels_format)
    asked |= {"holes": holes, "t_test": t_test}
    made = output.Made("comparison", inputs.roles(qrels, runs), asked, seed)
    output.deliver(form, tables, data, made, out, remarks, charts=comparison.charts())
    output.tell(*evaluations)
    if form is not Format.table:
        for note in comparison.notes:
            output.warn(note)


def _matrix(comparison: Comparison, measure: Measure) -> Table:
    """Row minus column, with what ties and chance leave of it."""
    names = [evaluation.name for evaluation in comparison.evaluations]
    known = {(pair.a, pair.b): pair.measures[measure] for pair in comparison.pairs}
    rows: list[tuple[Cell, ...]] = []
    for row in names:
        cells = []
        for column in names:
            sign = 1 if (row, column) in known else -1
            found = known.get((row, column)) or known.get((column, row))
            cells.append("·" if found is None else _cell(found, sign))
        rows.append((row, *cells))
    notes = [
        "row − column, expected; * p < 0.05 after Holm; "
        "~ which is ahead rests on tie order; ! one tie-break reverses the expectation"
    ]
    columns = [Column(str(measure), "text", folds=True), *(Column(name) for name in names)]
    shares = [e.judged.get(measure, math.nan) for e in comparison.evaluations]
    if some_unjudged(shares):
        columns.insert(1, Column("judged"))
        rows = [(row[0], share, *row[1:]) for row, share in zip(rows, shares, strict=True)]
        notes.append(NOTE)
    if comparison.evaluations[0].policy.condensed:
        notes.append(CONDENSED)
    if "holes_low" in comparison.pairs.figures:
        exact = all(d.holes_exact for d in known.values() if d.rests_on_holes)
        notes.append(f"? which is ahead {rests(exact)} unjudged documents")
    return Table(columns, rows, title=None, notes=notes)


def _cell(difference: Difference, sign: int) -> str:
    mark = "!" if difference.reversed else "~" if difference.rests_on_ties else ""
    mark += "?" if difference.rests_on_holes else ""
    value = signed(sign * difference.expected)
    return f"{value}{mark}{'*' if difference.p_holm < 0.05 else ''}"


def verdicts(comparison: Comparison) -> list[str]:
    """In words: everything for one pair, what rests on ties or on holes for more."""
    if len(comparison.pairs) == 1:
        return comparison.verdicts()
    from rankproof.comparison.pairs import doubtful

    on = "how ties are broken"
    if "holes_low" in comparison.pairs.figures:
        on += " or on unjudged documents"
    found = doubtful(comparison)
    loose = [d.verdict(pair.a, pair.b, m) for pair, m, d in islice(found, SAID)]
    more = sum(1 for _ in found)
    if more:
        several = plural(more, "more rests", "more rest")
        loose.append(f"{several} on {on}: --format csv lists every pair.")
    return loose or [f"No order between these runs rests on {on}."]
