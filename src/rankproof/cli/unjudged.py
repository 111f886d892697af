"""What was judged, beside the figures of `eval`: a column where it is not all, and `--holes`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rankproof.cli.options import InputFormat

if TYPE_CHECKING:
    from rankproof.cli.output import Cell, Table
    from rankproof.evaluation import Evaluation, Policy
    from rankproof.measures.registry import Measure
    from rankproof.tables import Qrels
    from rankproof.unjudged import Bound


@dataclass(frozen=True)
class Beside:
    """For one run: the share of the top k that is judged, and bounds where they were asked for."""

    judged: dict[Measure, float]
    bounds: dict[Measure, Bound] | None = None


def with_judged(measures: list[Measure]) -> list[Measure]:
    """The measures, and Judged@k for each of their cutoffs."""
    from rankproof.unjudged.bounds import judged_beside

    return list(dict.fromkeys([*measures, *map(judged_beside, measures)]))


def split(
    evaluations: list[Evaluation], measures: list[Measure]
) -> tuple[list[Evaluation], list[Beside]]:
    """The evaluations of what was asked for, and what is judged beside each figure."""
    from rankproof.unjudged.bounds import judged_beside

    beside = [Beside({m: e[judged_beside(m)].expected for m in measures}) for e in evaluations]
    asked = [replace(e, outcomes={m: e.outcomes[m] for m in measures}) for e in evaluations]
    return asked, beside


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
    from rankproof.unjudged.bounds import View

    if "-" in runs:
        raise InputError("--holes reads a run twice", place="-", remedy="name a file")
    found = []
    for known, run in zip(beside, inputs.load_runs(runs, form), strict=True):
        view = View([run], judged, policy)
        found.append(replace(known, bounds={m: view.run_bound(0, m) for m in measures}))
    return found


def added(run: dict[str, Any], beside: Beside) -> dict[str, Any]:
    """What JSON says of a run, with `judged`, and `holes` where they were asked for."""
    from rankproof.unjudged.bounds import valid

    for measure, share in beside.judged.items():
        figures = run["measures"][str(measure)]
        figures["judged"] = valid(share)
        if beside.bounds is not None:
            bound = beside.bounds[measure]
            figures["holes"] = [valid(bound.lowest), valid(bound.highest)]
            figures["exact"] = bound.exact
    return run


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
