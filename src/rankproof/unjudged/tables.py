"""Tables and sentences of `rankproof holes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankproof.foundation.phrasing import plural
from rankproof.presentation.tables import Column, Table
from rankproof.unjudged.leave_one_out import words as leave_one_out_sentences

if TYPE_CHECKING:
    import polars as pl

    from rankproof.unjudged.bounds import Unjudged
    from rankproof.unjudged.sampling import Sampled


def holes_tables(report: Unjudged) -> list[Table]:
    """Runs, pairs, and whatever was asked for beside them."""
    tables = [runs_table(report)]
    if report.pairs:
        tables.append(pairs_table(report))
    if report.to_judge is not None and not report.sample_was_drawn:
        tables.append(next_table(report.to_judge, str(next(iter(report.runs[0].measures)))))
    if report.sampled is not None:
        tables.append(sample_table(report.sampled))
    if report.leave_one_out is not None:
        tables.append(leave_one_out_table(report.leave_one_out, report.pool_depth))
    return tables


def holes_sentences(report: Unjudged) -> list[str]:
    """The result in words, the widest question first."""
    sentences = report.words()
    if report.settled is not None:
        sentences = [str(report.settled), *sentences]
    if report.sampled is not None:
        sentences = [*report.verdicts(), *report.sampled.words()]
    elif report.sample_was_drawn and report.to_judge is not None:
        queries = report.to_judge["query"].n_unique()
        sentences = [
            f"{plural(queries, 'query was', 'queries were')} drawn; judge the "
            f"{plural(report.to_judge.height, 'unjudged document')} of "
            f"{'it' if queries == 1 else 'them'}, then run this again with --judged FILE."
        ]
    if report.leave_one_out is not None:
        sentences = [*leave_one_out_sentences(report.leave_one_out), *sentences]
    return sentences


def runs_table(report: Unjudged) -> Table:
    """A row for each run and measure."""
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        *Column.each("judged", "lowest", "expected", "highest", "holes"),
        Column("ends", "text"),
    ]
    rows = [
        (
            run.name,
            str(measure),
            run.judged[measure],
            bound.lowest,
            bound.expected,
            bound.highest,
            run.holes[measure],
            bound.kind,
        )
        for run in report.runs
        for measure, bound in run.measures.items()
    ]
    return Table(columns, rows, notes=report.assumptions())


def pairs_table(report: Unjudged) -> Table:
    """A row for each pair of runs and measure."""
    columns = [
        *Column.each("a", "b", style="text", folds=True),
        Column("measure", "text"),
        *Column.each("lowest", "difference", "highest", style="signed"),
        Column("certain", "text"),
        Column("holes"),
        Column("ends", "text"),
    ]
    rows = [
        (
            pair.a,
            pair.b,
            str(measure),
            bound.lowest,
            bound.expected,
            bound.highest,
            "yes" if bound.certain else "no",
            pair.holes[measure],
            bound.kind,
        )
        for pair in report.pairs
        for measure, bound in pair.measures.items()
    ]
    return Table(columns, rows, notes=["each figure is a − b"])


def next_table(to_judge: pl.DataFrame, measure: str) -> Table:
    """The documents whose judgment could change most."""
    columns = [Column("query", "text"), Column("doc", "text", folds=True), Column("effect")]
    note = f"effect: how far the highest grade would move the mean {measure} or its difference"
    return Table(columns, to_judge.rows(), title="Judge next", notes=[note])


def sample_table(sampled: Sampled) -> Table:
    """Estimates from a sample of queries, for runs and pairs."""
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        *Column.each("reported", "estimate", "ci low", "ci high"),
    ]
    pairs = ((f"{a} − {b}", estimates) for (a, b), estimates in sampled.pairs.items())
    rows = [
        (name, str(measure), estimate.reported, estimate.estimate, *estimate.ci)
        for name, estimates in [*sampled.runs.items(), *pairs]
        for measure, estimate in estimates.items()
    ]
    note = (
        f"as if all {sampled.holes} holes were judged: {len(sampled.sampled)} queries drawn at "
        f"random, all {sampled.judged} holes of them judged; 95% intervals for these "
        f"{sampled.queries} queries"
    )
    return Table(columns, rows, title="Estimated from the sample", notes=[note])


def leave_one_out_table(rows: pl.DataFrame, pool_depth: int | None) -> Table:
    """Each run with and without the judgments that it alone brought in."""
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        *Column.each("its own", "value", "without"),
        Column("change", "signed"),
        *Column.each("rank", "rank without"),
    ]
    pooled = f", as its first {plural(pool_depth, 'document')}" if pool_depth is not None else ""
    note = (
        f"without the judgements that a run alone brought in{pooled}; "
        "ranks are among these runs, each time on the same judgements"
    )
    return Table(columns, rows.rows(), title="Leave one out", notes=[note])
