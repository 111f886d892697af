"""What is shown of ceilings: how much better ranking, and better retrieval, could add."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rankproof.foundation.phrasing import plural
from rankproof.presentation.judged_column import judged_note
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Cell, Column, Table
from rankproof.presentation.terminal import shorten_middle
from rankproof.tradeoffs.results import interval_cell

if TYPE_CHECKING:
    from rankproof.tradeoffs.ceilings import Ceiling, Ceilings

SLIGHT = 0.05  # headroom below this is not worth a change
_WORK_ON = {"ordering": "ranking", "pool": "retrieval", "either": "either", "neither": "neither"}
_NAME_WIDTH = 30  # of a run in a sentence
_DEFINITIONS = (
    "PROC: the best value that any order of the candidates reaches, normalized by all judged "
    "passages. Better ranking: PROC − score. Better retrieval: what all judged passages allow "
    "− PROC.",
    f"Work on: neither if the 95% interval of what is left ends below {SLIGHT}, or nothing is "
    "left; else the larger of the two, or either if they do not differ significantly.",
)


def headroom_summary(runs: Sequence[Ceilings], extra: Sequence[str] = ()) -> Summary:
    """Return what better ranking and better retrieval could add; `extra` notes come first."""
    is_ideal = all(run.own for run in runs)
    return Summary.of(
        _answer([(run, ceiling) for run in runs for ceiling in run.measures.values()]),
        [*extra, *_notes(runs)],
        next_step="rankproof holes {inputs} --judge-next 50" if is_ideal else "",
        details=[*_DEFINITIONS, *_pools(runs)],
    )


def _answer(ceilings: Sequence[tuple[Ceilings, Ceiling]]) -> str:
    if len(ceilings) == 1:
        return ceilings[0][1].words()
    ranking = max(ceilings, key=lambda item: item[1].ordering)
    retrieval = max(ceilings, key=lambda item: item[1].retrieval)
    has_runs = len({run.name for run, _ in ceilings}) > 1

    def place(item: tuple[Ceilings, Ceiling]) -> str:
        run = f" of {shorten_middle(item[0].name, _NAME_WIDTH)}" if has_runs else ""
        return f"{item[1].measure}{run}"

    return (
        f"Better ranking could add up to {ranking[1].ordering:.3f} ({place(ranking)}), better "
        f"retrieval up to {retrieval[1].retrieval:.3f} ({place(retrieval)})."
    )


def _notes(runs: Sequence[Ceilings]) -> list[str]:
    """Return the notes of all runs; one that not all runs have names its run."""
    by_note: dict[str, list[str]] = {}
    for run in runs:
        for note in run.notes():
            by_note.setdefault(note, []).append(shorten_middle(run.name, _NAME_WIDTH))
    notes = [
        note if len(names) == len(runs) else f"{', '.join(names)}: {note}"
        for note, names in by_note.items()
    ]
    judged = {run.name: {m: c.judged for m, c in run.measures.items()} for run in runs}
    return [*notes, *judged_note(judged)]


def _pools(runs: Sequence[Ceilings]) -> list[str]:
    """Return whose candidates each run reorders, and the extremes of PROC over tie-breaks."""
    lines = []
    for run in runs:
        owner = "its own documents" if run.pool == run.name else run.pool
        lines.append(f"{run.name} reorders {owner}{f', top {run.depth}' if run.depth else ''}.")
        lines += [
            f"{measure}: PROC is {c.proc_min:.4f}–{c.proc_max:.4f} over tie-breaks at the end of "
            "the pool."
            for measure, c in run.measures.items()
            if c.proc_min is not None and c.proc_max is not None and c.proc_min < c.proc_max
        ]
    return lines


def headroom_table(runs: Sequence[Ceilings]) -> Table:
    """Return a row for each run and measure: the score, and what each improvement could add."""
    measures = {measure for run in runs for measure in run.measures}
    has_runs, has_measures = len(runs) > 1, len(measures) > 1
    columns: dict[str, Column | None] = {
        "run": Column("run", "text", folds=True) if has_runs else None,
        "measure": Column("measure", "text") if has_measures or not has_runs else None,
        "score": Column("score"),
        "proc": None if has_runs and has_measures else Column("best order"),
        "ordering": Column("better ranking", "signed", digits=3),
        "retrieval": Column("better retrieval", "signed", digits=3),
        "work on": Column("work on", "text"),
    }
    records: list[dict[str, Any]] = [
        {
            "run": run.name,
            "measure": str(measure),
            "score": c.actual,
            "proc": c.proc,
            "ordering": c.ordering,
            "retrieval": c.retrieval,
            "work on": _WORK_ON[c.knob],
        }
        for run in runs
        for measure, c in run.measures.items()
    ]
    return Table.of_records(columns, records)


def full_ceiling_table(runs: Sequence[Ceilings]) -> Table:
    """Return every value of each run and measure."""
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        *Column.each("actual", "judged", "min", "max", "PROC"),
        Column("%PROC", "text"),
        Column("95%", "text"),
        Column("ordering", "signed"),
        Column("95%", "text"),
        Column("pool lacks"),
        Column("95%", "text"),
        Column("work on", "text"),
        Column("queries"),
    ]
    rows: list[list[Cell]] = []
    for run in runs:
        for measure, c in run.measures.items():
            percent = "–" if math.isnan(c.percent) else f"{c.percent:.1f}"
            cells: list[Cell] = [run.name, str(measure), c.actual, c.judged, c.actual_min]
            cells += [c.actual_max, c.proc, percent, interval_cell(*c.percent_ci, 1)]
            cells += [c.ordering, interval_cell(*c.ordering_ci), c.retrieval]
            rows.append([*cells, interval_cell(*c.retrieval_ci), _WORK_ON[c.knob], c.queries])
    return Table(columns, rows)


def ceiling_words(c: Ceiling) -> str:
    """Return what could be added to one score, and where to work, in a sentence or two."""
    words = (
        f"Better ranking could add {c.ordering:.3f} to {c.measure} ({c.actual:.3f}), better "
        f"retrieval {c.retrieval:.3f}"
    )
    if c.knob == "neither":
        small = c.left_ci[1] < SLIGHT
        return f"{words}: {'little' if small else 'nothing'} is left to gain on these queries."
    if c.knob == "either":
        return f"{words}; {plural(c.queries, 'query does', 'queries do')} not show which is larger."
    return f"{words}."


def run_notes(run: Ceilings) -> list[str]:
    """Return what changes how the ceilings of a run are read."""
    notes = []
    if run.own:
        notes.append(
            "Every judged passage is a candidate, so better retrieval cannot show here: judge "
            "passages of other retrievers first."
        )
    if run.outside:
        count = plural(run.outside, "document in its top is", "documents in its top are")
        notes.append(f"{count} not in the pool: the score may exceed the best order.")
    if run.cut:
        pools = plural(run.cut, "pool ends", "pools end")
        notes.append(f"{pools} inside a tie at depth {run.depth}; the tie-break decides.")
    if run.missing:
        counts = "counts" if run.missing == 1 else "count"
        lacking = plural(run.missing, "judged query is", "judged queries are")
        notes.append(f"{lacking} not in the run and {counts} 0.")
    return [*notes, *run.guessed]
