"""`rankproof ties`: what ties a run holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rankproof.cli import inputs, options, output
from rankproof.cli.options import Format
from rankproof.cli.output import Column, Table
from rankproof.data.hits import RANKS
from rankproof.foundation.phrasing import out_of
from rankproof.foundation.progress import progress

if TYPE_CHECKING:
    from rankproof.evaluation.tie_counts import TieStatistics


def command(
    runs: options.RunsArgument,
    at: Annotated[
        str, typer.Option(metavar="K,K,...", help="Cutoffs.")
    ] = "1,3,5,10,20,50,100,1000",
    score_dtype: options.ScoreDtypeOption = None,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
    input_format: options.InputFormatOption = None,
    memory: options.MemoryOption = None,
    spill_dir: options.SpillOption = None,
) -> None:
    """Count ties: distinct scores and group sizes at cutoffs, and how often a tie crosses them."""
    from rankproof.evaluation.tie_counts import tie_statistics

    cutoffs = sorted(set(inputs.whole_numbers(at, "--at", "1,10,100")))
    inputs.check_stdin(runs)
    found = []
    with progress("reading", inputs.size_of(runs)):
        for name, path in inputs.named(runs).items():
            statistics = tie_statistics(
                *(path, cutoffs),
                score_dtype=score_dtype,
                memory=memory,
                spill_dir=spill_dir,
                name=name,
                format=input_format,
            )
            found.append(statistics)
    data = {"runs": [s.to_dict() for s in found]}
    asked = {"cutoffs": cutoffs, "score_dtype": score_dtype, "input_format": input_format}
    made = output.Made("ties", inputs.named(runs), asked)
    tables = [_whole(found)] if form is Format.csv else [_overview(found), _at_cutoffs(found)]
    output.deliver(form, tables, data, made)
    if form is not Format.table:
        output.tell(*found)


def _overview(found: list[TieStatistics]) -> Table:
    columns = [
        Column("run", "text", folds=True),
        Column("queries"),
        Column("documents", drop=2),
        Column("scores", "text", drop=1),
        *Column.each("tied queries", "tied documents", "largest group", "cut in a tie"),
    ]
    rows = [
        (s.name, s.queries, s.documents, s.score_dtype, s.tied, s.tied_documents, s.largest, s.cut)
        for s in found
    ]
    notes = [
        f"{s.name}: {out_of(s.cut, s.queries, 'list', 'ends', 'end')} inside a tie at full length; "
        "the retriever "
        "may have left out documents that tie with the last"
        for s in found
        if s.cut
    ]
    notes += [
        f"the scores of {s.name} are only ranks: ties cannot be seen in them"
        for s in found
        if s.score_dtype == RANKS
    ]
    notes += [note for s in found for note in s.notes]
    return Table(columns, rows, notes=notes)


def _whole(found: list[TieStatistics]) -> Table:
    """One table: a row for each run and cutoff, with what is said of the whole run in each."""
    run, at = _overview(found), _at_cutoffs(found)
    runs = {row[0]: row for row in run.rows}
    rows = [(*runs[row[0]], *row[1:]) for row in at.rows]
    return Table([*run.columns, *at.columns[1:]], rows)


def _at_cutoffs(found: list[TieStatistics]) -> Table:
    columns = [
        Column("run", "text", folds=True),
        *Column.each("k", "distinct scores", "mean group size", "tie crosses k"),
    ]
    rows = [
        (s.name, at.cutoff, at.distinct, at.group_size, at.crossed) for s in found for at in s.at
    ]
    notes = [
        "means over queries; “tie crosses k” is the share of queries where rank k splits a tie"
    ]
    return Table(columns, rows, notes=notes)
