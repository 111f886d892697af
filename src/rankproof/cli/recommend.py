"""`rankproof recommend`: which configuration to deploy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rankproof.cli import options, output
from rankproof.cli.options import Format
from rankproof.cli.output import Column, Table
from rankproof.foundation.phrasing import plural
from rankproof.presentation.judged_column import NOTE, some_unjudged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rankproof.tradeoffs.recommend import Recommendation

SHORTLIST = 5


def command(
    results: Annotated[
        str,
        typer.Argument(
            metavar="RESULTS",
            help="A sweep's folder, or a table of configurations (.parquet, .csv).",
        ),
    ],
    sla_ms: Annotated[
        float | None, typer.Option(min=0, help="Best quality within this latency.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Best quality within this cost per 1,000 queries, in the currency of the prices.",
        ),
    ] = None,
    quality: Annotated[
        float | None, typer.Option(min=0, help="Least latency, then cost, at this quality.")
    ] = None,
    memory_mb: Annotated[
        float | None, typer.Option(min=0, help="Best quality within this much memory.")
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(
            "-m",
            "--measure",
            metavar="MEASURE",
            help="The quality; RAnWG@prompt is that of each at its own prompt.",
            show_default="what the sweep chose by, else RAnWG@10",
        ),
    ] = None,
    latency: Annotated[
        Literal["p50", "p95"], typer.Option(help="The percentile that the SLA is about.")
    ] = "p95",
    jitter_ms: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Latencies that differ by no more are equal.",
            show_default="75 between two over a network, else as measured",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resamples.")] = 0,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
) -> None:
    """Choose a configuration within an SLA, a budget, a memory, at a quality, or all together.

    The choice and the reason come first, in five lines; without a limit, the best. Exits with 1
    where a limit cannot be kept, and says what comes closest. The table holds the configurations
    that no other dominates in cost, latency, memory and quality, and those chosen.
    """
    from rankproof.tradeoffs.recommend import recommend

    asked: dict[str, Any] = {"sla_ms": sla_ms, "budget": budget, "quality": quality}
    asked |= {"memory_mb": memory_mb, "measure": measure, "latency": latency}
    asked |= {"jitter_ms": jitter_ms}
    found = recommend(results, **asked, seed=seed)
    tables, first, remarks = shown(found, form)
    made = output.Made("recommendation", {"results": results}, asked, seed)
    output.deliver(form, tables, found.to_dict(), made, remarks=remarks, first=first)
    if not found.feasible:
        raise typer.Exit(1)


def shown(found: Recommendation, form: Format) -> tuple[list[Table], Sequence[str], list[str]]:
    """Tables, the choice in lines before them, and remarks below."""
    remarks = [*found.remarks(), *_shortlist(found)]
    first: Sequence[str] = ()
    if form is Format.table:
        first = found.choices[-1].lines
        remarks = [*_in_words(found), *remarks]
    written = output.writer(form)
    tables = [_table(found, written)]
    if len(found.marginal):
        tables.append(_marginal(found, written))
    return tables, first, remarks


def _in_words(found: Recommendation) -> list[str]:
    """The choice of all limits whole; of a single limit, where it is another."""
    *single, last = found.choices
    lines = []
    for choice in single:
        lead = choice.limits.words()
        same = choice.feasible and choice.configuration == last.configuration
        lines.append(f"{lead[:1].upper()}{lead[1:]} alone: the same." if same else choice.words)
    return [last.words, *lines]


def _table(found: Recommendation, written: output.Writer) -> Table:
    import polars as pl

    from rankproof.tradeoffs.results import currency_sign

    chosen = [choice.configuration for choice in found.choices]
    shown = found.table.filter(pl.col("pareto") | pl.col("configuration").is_in(chosen))
    open_ = some_unjudged(found.table["judged"].drop_nulls())
    sized = bool(found.table["memory"].is_not_null().any())
    unpriced = bool(found.table["unpriced"].is_not_null().any())
    columns = [
        Column("configuration", "text", folds=True),
        Column(found.measure),
        Column("95%", "text", dim=True),
        *([Column("judged", drop=4)] if open_ else []),
        Column("p50 ms", drop=5),
        Column("p95 ms"),
        Column(f"{currency_sign(found.currency)}/1000"),
        *([Column("MB", drop=3)] if sized else []),
        *([Column("unpriced", "text")] if unpriced else []),
        Column("K", drop=1),
        Column("prompt", drop=1),
        Column("efficiency", dim=True, drop=2),
        Column("chosen", "text"),
    ]
    rows = [
        (
            row["configuration"],
            row["quality"],
            "–" if row["low"] is None else f"{row['low']:.3f} … {row['high']:.3f}",
            *([row["judged"]] if open_ else []),
            written(row["p50"], ".1f"),
            written(row["p95"], ".1f"),
            written(row["cost"], ".2f"),
            *([written(row["memory"], ".1f")] if sized else []),
            *([row["unpriced"] or "–"] if unpriced else []),
            row["k"],
            row["prompt_k"],
            written(row["efficiency"], ".3f"),
            "; ".join(
                c.limits.name if c.feasible else f"closest to {c.limits.name}"
                for c in found.choices
                if c.configuration == row["configuration"]
            ),
        )
        for row in shown.iter_rows(named=True)
    ]
    hidden = len(found.table) - len(shown)
    are = plural(hidden, "dominated configuration is", "dominated configurations are")
    notes = [f"{are} not shown"] if hidden else []
    notes += [NOTE] if open_ else []
    if found.table["efficiency"].null_count() < len(found.table):
        notes.append(
            "efficiency: mean of NRecall4 and RAnWG at 10 and 30 over p50 seconds; it orders a "
            "shortlist and does not measure quality"
        )
    return Table(columns, rows, notes=notes)


def _marginal(found: Recommendation, written: output.Writer) -> Table:
    from rankproof.tradeoffs.results import currency_sign

    sign = currency_sign(found.currency)
    columns = [
        Column("a larger pool of", "text", folds=True),
        *Column.each("from K", "to K"),
        Column(f"Δ {found.measure}", "signed"),
        *Column.each("Δ ms", f"Δ {sign}/1000", "per 100 ms", f"per {sign}", style="signed"),
        Column("told apart", "text"),
    ]
    rows = [
        (
            row["family"],
            row["from_k"],
            row["to_k"],
            row["quality"],
            written(row["latency_ms"], "+.1f"),
            written(row["cost"], "+.2f"),
            None if row["per_ms"] is None else 100.0 * row["per_ms"],
            row["per_dollar"],
            {None: "–", True: "yes", False: "no"}[row["told_apart"]],
        )
        for row in found.marginal.iter_rows(named=True)
    ]
    notes = [f"– per 100 ms: not slower by more than the jitter; – per {sign}: not more expensive"]
    return Table(columns, rows, notes=notes)


def _shortlist(found: Recommendation) -> list[str]:
    """By efficiency, where its parts were measured."""
    ranked = found.table.filter(found.table["efficiency"].is_finite()).sort(
        "efficiency", descending=True
    )
    if not len(ranked):
        return []
    names = ", ".join(
        f"{row['configuration']} ({row['efficiency']:.3f})"
        for row in ranked.head(SHORTLIST).iter_rows(named=True)
    )
    return [f"Shortlist by efficiency: {names}."]
