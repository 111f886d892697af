"""`rankproof ceilings`: the best that any order of the candidates reaches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from rankproof.cli import inputs, options, output
from rankproof.cli.options import Format
from rankproof.cli.output import Cell, Column, Table
from rankproof.foundation.phrasing import plural
from rankproof.presentation.judged_column import some_unjudged

if TYPE_CHECKING:
    from rankproof.tradeoffs.accuracy import Accuracy
    from rankproof.tradeoffs.ceilings import Ceilings
    from rankproof.tradeoffs.novelty import Novelty
    from rankproof.tradeoffs.sensitivity import Sensitivity


def command(
    qrels: options.QrelsArgument,
    runs: options.RunsArgument,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "-m",
            "--measure",
            metavar="MEASURE",
            help="Such as RAnWG, at every K of --at, or nDCG@10; may be repeated.",
            show_default="RAnWG, NRecall4",
        ),
    ] = None,
    at: Annotated[str, typer.Option(metavar="K,K,...", help="Cutoffs.")] = "10,20,30",
    pool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN",
            help="Candidates that may be reordered; repeated, they are united.",
            show_default="those of each run",
        ),
    ] = None,
    pool_depth: Annotated[
        int | None,
        typer.Option(min=1, help="Take this many from the top of each pool.", show_default="all"),
    ] = None,
    correct: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Answers, with columns query and correct (0 to 1): adds Acc|Hit, accuracy where "
            "every passage of grade 4 or 5 was given.",
        ),
    ] = None,
    sources: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Sources, with columns doc and source: adds RAnWG in which a repeat of a source "
            "counts --beta.",
        ),
    ] = None,
    beta: Annotated[float, typer.Option(help="What a repeat of a source counts, 0 to 1.")] = 0.5,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity",
            help="Also RAnWG at the first K under 24 choices of its constants, and whether the "
            "order of the runs changes.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resamples.")] = 0,
    order: options.OrderOption = None,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
    input_format: options.InputFormatOption = None,
    qrels_format: options.QrelsFormatOption = None,
) -> None:
    """Say what the candidates allow: actual, PROC, and whether to work on the pool or the order.

    PROC@K is the best that any order of the pool reaches, normalised by all graded passages, as
    the measure is. ORDERING is PROC − actual: what a perfect reranker would add. POOL LACKS is
    1 − PROC: what only better retrieval can add.
    """
    from rankproof.evaluation.recorded_inputs import Given
    from rankproof.tradeoffs.ceiling_report import allowed
    from rankproof.tradeoffs.ceilings import MEASURES, measures_at

    cutoffs = sorted(set(inputs.whole_numbers(at, "--at", "1,10,100")))
    wanted = measures_at(measure or MEASURES, cutoffs)
    inputs.check_stdin([qrels, *runs, *(pool or []), correct or "", sources or ""])
    files = inputs.roles(qrels, runs) | {f"pool {at}": p for at, p in enumerate(pool or [], 1)}
    files |= {what: f for what, f in (("correct", correct), ("sources", sources)) if f is not None}
    asked = {
        "measures": [str(m) for m in wanted],
        "cutoffs": cutoffs,
        "pool_depth": pool_depth,
        "beta": beta,
    }
    asked |= {"order": order or "input", "sensitivity": sensitivity}
    asked |= {"input_format": input_format, "qrels_format": qrels_format}
    judged = inputs.load_qrels(qrels, qrels_format)
    found = allowed(Given(asked, files, seed, judged, inputs.load_runs(runs, input_format)))
    tables = [_table(found.ceilings)]
    remarks = _words(found.ceilings)
    if found.accuracy is not None:
        tables.append(_accuracy(found.accuracy))
    if found.novelty is not None:
        tables.append(_novelty(found.novelty))
    if found.sensitivity is not None:
        tables.append(_sensitivity(found.sensitivity))
        remarks.append(found.sensitivity.words())
    made = output.Made("ceilings", files, asked, seed)
    output.deliver(
        form,
        tables,
        found.to_dict(),
        made,
        remarks=remarks,
        charts=[chart for c in found.ceilings for chart in c.charts()],
    )
    if form is not Format.table:
        for note in dict.fromkeys(note for c in found.ceilings for note in c.notes()):
            output.warn(note)


def _table(found: list[Ceilings]) -> Table:
    open_ = some_unjudged(x.judged for c in found for x in c.measures.values())
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        Column("actual"),
        *([Column("judged", drop=4)] if open_ else []),
        *Column.each("min", "max", dim=True, drop=1),
        Column("PROC"),
        Column("%PROC", "text"),
        Column("95%", "text", dim=True, drop=3),
        Column("ordering", "signed"),
        Column("95%", "text", dim=True, drop=3),
        Column("pool lacks"),
        Column("95%", "text", dim=True, drop=3),
        Column("queries", drop=2),
    ]
    rows: list[tuple[Cell, ...]] = [
        (
            c.name,
            str(m),
            x.actual,
            *([x.judged] if open_ else []),
            x.actual_min,
            x.actual_max,
            x.proc,
            "–" if math.isnan(x.percent) else f"{x.percent:.1f}",
            _span(x.percent_ci, 1),
            x.ordering,
            _span(x.ordering_ci, 3),
            x.retrieval,
            _span(x.retrieval_ci, 3),
            x.queries,
        )
        for c in found
        for m, x in c.measures.items()
    ]
    notes = [
        "actual is the mean over all orders of ties, min and max the worst and best of them",
        "%PROC is mean actual over mean PROC; 95% intervals over queries",
    ]
    for c in found:
        whose = "its own documents" if c.pool == c.name else c.pool
        pool = f"{c.name}: reorders {whose}" + (f", top {c.depth}" if c.depth else "")
        notes.append("; ".join([pool, *c.notes()]))
        for m, x in c.measures.items():
            if x.proc_min is not None and x.proc_max is not None and x.proc_min < x.proc_max:
                notes.append(
                    f"{m}: PROC lies between {x.proc_min:.4f} and {x.proc_max:.4f} over tie-breaks "
                    "at the end of the pool"
                )
    return Table(columns, rows, notes=notes)


def _span(ends: tuple[float, float], digits: int) -> str:
    if any(end != end for end in ends):
        return "–"
    low, high = (f"{end:.{digits}f}" for end in ends)
    return f"{low} … {high}"


def _words(found: list[Ceilings]) -> list[str]:
    """Which knob to turn, and the rule by which it was chosen."""
    from rankproof.tradeoffs.ceilings import SLIGHT

    lines = [
        (f"{c.name}, " if len(found) > 1 else "") + x.words()
        for c in found
        for x in c.measures.values()
    ]
    rule = (
        f"(Rule: nothing is advised where the upper end of what is left in all is below {SLIGHT}, "
        "or these queries leave nothing; else the larger of the two, unless the interval of their "
        "difference holds 0.)"
    )
    return [*lines, rule]


def _accuracy(found: list[tuple[str, Accuracy]]) -> Table:
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        *Column.each("expected", "min", "max"),
        Column("95%", "text", dim=True),
        *Column.each("hits", "queries", "all answers"),
    ]
    rows = [
        (
            name,
            f"Acc|Hit@{a.k}",
            a.expected,
            a.min,
            a.max,
            _span(a.ci, 3),
            a.hits,
            a.answered,
            a.overall,
        )
        for name, a in found
    ]
    first = found[0][1]
    notes = ["Acc|Hit is over the queries whose passages of grade 4 and 5 are all in the top K"]
    if first.unanswered or first.unknown:
        notes.append(
            f"{plural(first.unanswered, 'judged query has', 'judged queries have')} no answer in "
            f"the file; {plural(first.unknown, 'query of the file is', 'queries of the file are')}"
            " not judged"
        )
    return Table(columns, rows, notes=notes)


def _novelty(found: list[Novelty]) -> Table:
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        *Column.each("expected", "min", "max", "oblivious", "queries"),
    ]
    rows = [
        (n.name, f"novel {n.measure}", s.expected, s.min, s.max, s.oblivious, s.queries)
        for n in found
        for s in [n.summary]
    ]
    notes = [f"a repeat of a source counts {found[0].beta:g} of its weight"]
    alone = max(n.unsourced for n in found)
    if alone:
        several = plural(alone, "document has", "documents have")
        notes.append(f"up to {several} no source: each counts as one of its own")
    return Table(columns, rows, notes=notes)


def _sensitivity(found: Sensitivity) -> Table:
    columns = [
        *Column.each("alpha", "cap4", "cap3"),
        *(Column(name) for name in found.runs),
        Column("τ to the default"),
    ]
    wide = found.frame.pivot(
        "run", index=["alpha", "cap4", "cap3", "tau"], values="expected", maintain_order=True
    )
    rows = [
        (
            *(f"{row[name]:g}" for name in ("alpha", "cap4", "cap3")),
            *(row[name] for name in found.runs),
            row["tau"],
        )
        for row in wide.iter_rows(named=True)
    ]
    return Table(columns, rows, title=f"RAnWG@{found.k} by its constants")
