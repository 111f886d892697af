"""What candidates allow: ceilings, accuracy given a hit, novelty, and the constants of RAnWG."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from rankproof.foundation.phrasing import plural
from rankproof.presentation.charts import Chart
from rankproof.presentation.display import Displayed
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Cell, Column, Table
from rankproof.tradeoffs.accuracy import Accuracy
from rankproof.tradeoffs.ceilings import Ceilings
from rankproof.tradeoffs.headroom import full_ceiling_table, headroom_summary, headroom_table
from rankproof.tradeoffs.novelty import Novelty
from rankproof.tradeoffs.results import interval_cell
from rankproof.tradeoffs.sensitivity import Sensitivity


@dataclass(frozen=True, slots=True, repr=False)
class CeilingReport(Displayed):
    """The ceilings of several runs; None for a part that was not requested.

    >>> report = rp.ceilings("try/qrels.txt", "try/plain.trec", "nDCG@5")
    >>> report.ceilings[0]["nDCG@5"].proc >= report.ceilings[0]["nDCG@5"].actual
    True
    """

    kind: ClassVar[str] = "ceilings"
    ceilings: list[Ceilings] = field(default_factory=list)
    accuracy: list[tuple[str, Accuracy]] | None = None  # by name of the run, for each cutoff
    novelty: list[Novelty] | None = None
    sensitivity: Sensitivity | None = None

    @property
    def warnings(self) -> list[str]:
        """What the readers assumed."""
        return [note for run in self.ceilings for note in run.guessed]

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof ceilings --format json` prints."""
        data: dict[str, Any] = {"runs": [c.to_dict() for c in self.ceilings]}
        if self.accuracy is not None:
            data["accuracy"] = [{"run": name, **a.to_dict()} for name, a in self.accuracy]
        if self.novelty is not None:
            data["novelty"] = [n.to_dict() for n in self.novelty]
        if self.sensitivity is not None:
            data["sensitivity"] = self.sensitivity.to_dict()
        return data

    def figures(self) -> dict[str, float]:
        """What each run reaches and what its pool allows."""
        values = {}
        for run in self.ceilings:
            for measure, ceiling in run.measures.items():
                values[f"{run.name}/{measure}/actual"] = ceiling.actual
                values[f"{run.name}/{measure}/PROC"] = ceiling.proc
        return values

    def charts(self) -> list[Chart]:
        """What each run reaches and what its pool allows."""
        return [chart for run in self.ceilings for chart in run.charts()]

    def summary(self) -> Summary:
        """What better ranking and better retrieval could add."""
        extra = [] if self.sensitivity is None else [self.sensitivity.words()]
        return headroom_summary(self.ceilings, extra)

    def tables(self) -> list[Table]:
        """The scores with what could be added, then a table for each part that was requested."""
        return [headroom_table(self.ceilings), *self._requested_tables()]

    def full_tables(self) -> list[Table]:
        """Every value, and the scores under each choice of the constants of RAnWG."""
        tables = [full_ceiling_table(self.ceilings), *self._requested_tables()]
        return (
            tables if self.sensitivity is None else [*tables, _sensitivity_table(self.sensitivity)]
        )

    def _requested_tables(self) -> list[Table]:
        tables = []
        if self.accuracy is not None:
            tables.append(_accuracy_table(self.accuracy))
        if self.novelty is not None:
            tables.append(_novelty_table(self.novelty))
        return tables


def _accuracy_table(by_run: list[tuple[str, Accuracy]]) -> Table:
    """Return the accuracy of answers given a hit, a row for each run."""
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        *Column.each("expected", "min", "max"),
        Column("95%", "text", dim=True),
        *Column.each("hits", "queries", "all answers"),
    ]
    rows: list[list[Cell]] = [
        [
            *(name, f"Acc|Hit@{a.k}", a.expected, a.min, a.max, interval_cell(*a.ci)),
            *(a.hits, a.answered, a.overall),
        ]
        for name, a in by_run
    ]
    first = by_run[0][1]
    notes = ["Acc|Hit is over the queries whose passages of grade 4 and 5 are all in the top K"]
    if first.unanswered or first.unknown:
        unanswered = plural(first.unanswered, "judged query has", "judged queries have")
        unknown = plural(first.unknown, "query of the file is", "queries of the file are")
        notes.append(f"{unanswered} no answer in the file; {unknown} not judged")
    return Table(columns, rows, notes=notes)


def _novelty_table(runs: list[Novelty]) -> Table:
    """Return the novelty-discounted RAnWG of each run."""
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        *Column.each("expected", "min", "max", "oblivious", "queries"),
    ]
    rows: list[list[Cell]] = []
    for run in runs:
        s = run.summary
        means = (s.expected, s.min, s.max, s.oblivious, s.queries)
        rows.append([run.name, f"novel {run.measure}", *means])
    notes = [f"a repeat of a source counts {runs[0].beta:g} of its weight"]
    unsourced = max(run.unsourced for run in runs)
    if unsourced:
        have = plural(unsourced, "document has", "documents have")
        notes.append(f"up to {have} no source: each counts as one of its own")
    return Table(columns, rows, notes=notes)


def _sensitivity_table(sensitivity: Sensitivity) -> Table:
    """Return a row for each combination of constants, a column for each run."""
    constants = ("alpha", "cap4", "cap3")
    columns = [
        *Column.each(*constants),
        *(Column(name) for name in sensitivity.runs),
        Column("τ to the default"),
    ]
    by_constants = sensitivity.frame.pivot(
        "run", index=[*constants, "tau"], values="expected", maintain_order=True
    )
    rows: list[list[Cell]] = [
        [
            *(f"{row[name]:g}" for name in constants),
            *(row[name] for name in sensitivity.runs),
            row["tau"],
        ]
        for row in by_constants.iter_rows(named=True)
    ]
    return Table(columns, rows, title=f"RAnWG@{sensitivity.k} by its constants")
