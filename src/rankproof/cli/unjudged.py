"""What was judged, beside the figures of `eval`: a column where it is not all, and `--holes`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rankproof.cli.output import Cell, Column, Table
from rankproof.presentation.judged_column import NOTE, at_most, some_unjudged

if TYPE_CHECKING:
    from rankproof.unjudged.judged_share import Beside


def columns_added(table: Table, beside: list[Beside]) -> Table:
    """The table with a column for what is judged, where that is not all, and bounds."""
    shares = [share for b in beside for share in b.judged.values()]
    bounds = [bound for b in beside if b.bounds for bound in b.bounds.values()]
    columns: list[Column] = []
    cells: list[tuple[Cell, ...]] = [() for _ in shares]
    notes: list[str] = []
    if some_unjudged(shares):
        columns.append(Column("judged"))
        cells = [(share,) for share in shares]
        notes.append(NOTE)
    if bounds:
        columns += [Column("lowest"), Column("highest")]
        cells = [(*c, b.lowest, b.highest) for c, b in zip(cells, bounds, strict=True)]
        held = [(m, bound) for b in beside if b.bounds for m, bound in b.bounds.items()]
        reached = at_most(str(m) for m, bound in held if not bound.exact)
        notes.append(
            f"lowest, highest: over every grade that unjudged documents of the top k could have, "
            f"{beside[0].grades}{reached}; all other unjudged documents stay not relevant"
        )
    rows = [(*row, *more) for row, more in zip(table.rows, cells, strict=True)]
    return replace(
        table, columns=[*table.columns, *columns], rows=rows, notes=[*table.notes, *notes]
    )
