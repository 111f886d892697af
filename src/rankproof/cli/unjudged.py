"""What was judged, beside the figures of `eval`: a column where it is not all, and `--holes`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rankproof.cli.options import InputFormat

if TYPE_CHECKING:
    from rankproof.cli.output import Cell, Table
    from rankproof.evaluation import Policy
    from rankproof.measures.registry import Measure
    from rankproof.tables import Qrels
    from rankproof.unjudged.beside import Beside


def bounded(
    beside: list[Beside],
    runs: list[str],
    judged: Qrels,
    measures: list[Measure],
    policy: Policy,
    form: InputFormat | None,
) -> list[Beside]:
    """With the lowest and highest figure over every completion; the runs are read whole."""
    from rankproof.cli import inputs
    from rankproof.errors import InputError
    from rankproof.unjudged.beside import bounded

    if "-" in runs:
        raise InputError("--holes reads a run twice", place="-", remedy="name a file")
    return bounded(beside, inputs.load_runs(runs, form), judged, measures, policy)


def columns_added(table: Table, beside: list[Beside]) -> Table:
    """The table with a column for what is judged, where that is not all, and bounds."""
    from rankproof.cli.output import Column

    shares = [share for b in beside for share in b.judged.values()]
    bounds = [bound for b in beside if b.bounds for bound in b.bounds.values()]
    columns: list[Column] = []
    cells: list[tuple[Cell, ...]] = [() for _ in shares]
    notes: list[str] = []
    if any(share < 1 for share in shares):
        columns.append(Column("judged"))
        cells = [(share,) for share in shares]
        notes.append(
            "judged: share of the top k that has a judgement; the rest counts as not relevant"
        )
    if bounds:
        columns += [Column("lowest"), Column("highest")]
        cells = [(*c, b.lowest, b.highest) for c, b in zip(cells, bounds, strict=True)]
        reached = "" if all(b.exact for b in bounds) else "; with ties they are at most these"
        notes.append(
            f"lowest, highest: over every grade that unjudged documents of the top k could have"
            f"{reached}; all other unjudged documents stay not relevant"
        )
    rows = [(*row, *more) for row, more in zip(table.rows, cells, strict=True)]
    return replace(
        table, columns=[*table.columns, *columns], rows=rows, notes=[*table.notes, *notes]
    )
