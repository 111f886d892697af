"""What was judged, beside the figures of `eval`: a column where it is not all, and `--holes`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rankproof.cli import inputs
from rankproof.cli.options import InputFormat
from rankproof.cli.output import Cell, Column, Table
from rankproof.results.judged import NOTE, at_most, some_unjudged

if TYPE_CHECKING:
    from rankproof.evaluation import Evaluated, Policy
    from rankproof.measures.registry import Measure
    from rankproof.tables import Qrels
    from rankproof.unjudged.beside import Beside
    from rankproof.unjudged.bounds import View


def view(
    runs: list[str],
    kept: list[Evaluated] | None,
    judged: Qrels,
    policy: Policy,
    form: InputFormat | None,
) -> View:
    """All the runs for bounds of their differences: as they were kept, or read again."""
    from rankproof.unjudged.beside import check_again
    from rankproof.unjudged.bounds import View

    if kept is None or len(kept) < len(runs):
        check_again(runs)
        return View(list(inputs.load_runs(runs, form)), judged, policy)
    return View.of(kept, judged, policy)


def bounded(
    beside: list[Beside],
    runs: list[str],
    judged: Qrels,
    measures: list[Measure],
    policy: Policy,
    form: InputFormat | None,
) -> list[Beside]:
    """With the lowest and highest figure over every completion; the runs are read whole."""
    from rankproof.unjudged.beside import bounded, check_again

    check_again(runs)
    return bounded(beside, inputs.load_runs(runs, form), judged, measures, policy)


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
