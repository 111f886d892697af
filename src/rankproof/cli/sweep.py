"""rankproof sweep: every configuration of a grid, with its quality, ceiling, latency and cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankproof.cli.options import Format, FormatOption, OfflineOption, WideOption
from rankproof.cli.output import Cell, Column, Made, Table, deliver, warn, writer
from rankproof.cli.progress import progress
from rankproof.foundation.errors import first_few
from rankproof.foundation.phrasing import plural, typed
from rankproof.presentation.judged_column import NOTE, some_unjudged
from rankproof.presentation.lead_wording import could, rests

if TYPE_CHECKING:
    import polars as pl

    from rankproof.tradeoffs.plan import SweepSettings
    from rankproof.tradeoffs.sweep import Swept
    from rankproof.unjudged.judging_order import Grader


def command(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="A YAML file that says what to sweep.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results.", show_default="CONFIG-results")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="List the configurations; run and send nothing.")
    ] = False,
    offline: OfflineOption = False,
    form: FormatOption = Format.table,
    wide: WideOption = False,
) -> None:
    """Run every configuration of a grid on one corpus.

    Rewriter × embedder × dimensions × index × mode × fusion × duplicates × pool × reranker ×
    prompt. What configurations share is made once and kept in the folder; a sweep that was stopped
    goes on from there.
    """
    from rankproof.foundation.config import read_config
    from rankproof.tradeoffs.plan import SweepSettings

    settings = read_config(config, SweepSettings)
    if plan:
        _list(settings, config, form)
        return
    from rankproof.tradeoffs.sweep import sweep

    folder = out if out is not None else Path(f"{Path(config).stem}-results")
    swept = sweep(settings, folder, judge=_judge(settings, folder))
    for note in swept.manifest["notes"]:
        warn(note)
    tables = [_table(swept, form), *([] if swept.load is None else [_load(swept.load)])]
    deliver(form, tables, _data(swept), remarks=_remarks(swept))


def _judge(settings: SweepSettings, folder: Path) -> Grader | None:
    """Who grades what nobody judged."""
    if settings.judge is None:
        return None
    from rankproof.golden.passage_grading import hole_grader

    return hole_grader(settings, folder, warn, progress)


def _list(settings: SweepSettings, config: str, form: Format) -> None:
    from rankproof.tradeoffs.plan import configurations, over_network

    grid = list(configurations(settings))
    rows: list[list[Cell]] = [[c.name, "yes" if over_network(settings, c) else "no"] for c in grid]
    columns = [Column("configuration", "text", folds=True), Column("over a network", "text")]
    listed = [c.to_dict() | {"network": over_network(settings, c)} for c in grid]
    made = Made("plan", {"config": config}, settings.model_dump(mode="json"), settings.seed)
    remarks = [plural(len(grid), "configuration")]
    deliver(form, [Table(columns, rows)], {"configurations": listed}, made, remarks=remarks)


def _table(swept: Swept, form: Format) -> Table:
    from rankproof.tradeoffs.results import currency_sign

    written = writer(form)
    by = swept.manifest["best_by"]
    currency = swept.manifest["prices"].get("currency", "USD")
    unpriced = swept.configurations["unpriced"].is_not_null().any()
    frame = swept.configurations.sort(by, descending=True, nulls_last=True, maintain_order=True)
    open_ = f"{by} judged" in frame.columns and some_unjudged(frame[f"{by} judged"])
    plain = next((n for n in frame.columns if n.startswith("nDCG") and " " not in n), None)
    plain = None if plain == by else plain
    ceiling = f"{by} %PROC" if f"{by} %PROC" in frame.columns else None
    columns = [
        Column("configuration", "text", folds=True),
        Column(by),
        Column("95%", "text"),
        *([Column("judged", drop=3), Column("over holes", "text", drop=6)] if open_ else []),
        *([Column(plain, drop=4)] if plain else []),
        *([Column("%PROC", drop=5)] if ceiling else []),
        Column("p50 ms", drop=2),
        Column("p95 ms"),
        Column(f"{currency_sign(currency)}/1000"),
        *([Column("unpriced", "text")] if unpriced else []),
        *Column.each("index MB", "overlap@10", drop=1),
    ]
    rows: list[list[Cell]] = []
    for row in frame.iter_rows(named=True):
        cells: list[Cell] = [row["configuration"], row[by], _span(row, by)]
        if open_:
            ends = (row[f"{by} lowest"], row[f"{by} highest"])
            cells += [row[f"{by} judged"], f"{ends[0]:.3f}–{ends[1]:.3f}"]
        if plain:
            cells.append(row[plain])
        if ceiling:
            cells.append(written(row[ceiling], ".1f"))
        cells += [
            written(row["latency_p50_ms"], ".1f"),
            written(row["latency_p95_ms"], ".1f"),
            written(row["cost_per_1000"], ".2f"),
            *([row["unpriced"] or "–"] if unpriced else []),
            written(row["index_bytes"] / 1e6, ".1f"),
            written(row["overlap@10"], ".2f"),
        ]
        rows.append(cells)
    notes = [
        NOTE,
        f"over holes: the ends of {by} over every grade that a configuration's unjudged passages "
        "in the top k could have; all other unjudged passages stay not relevant",
    ]
    return Table(columns, rows, notes=notes if open_ else [])


def _load(driven: pl.DataFrame) -> Table:
    """What each engine takes at each rate."""
    names = ("p50_ms", "p95_ms", "p99_ms")
    columns = [Column("engine", "text", folds=True), *Column.each("queries/s", "arrivals")]
    columns += [Column(name.replace("_", " ")) for name in names]
    columns += [*Column.each("errors", "unanswered")]
    rows: list[list[Cell]] = [
        [row["engine"], f"{row['qps']:g}", row["arrivals"]]
        + [writer(Format.table)(row[name], ".1f") for name in names]
        + [row["errors"], row["lost"]]
        for row in driven.iter_rows(named=True)
    ]
    return Table(columns, rows, title="Under load")


def _span(row: dict[str, Any], measure: str) -> str:
    low, high = row[f"{measure} low"], row[f"{measure} high"]
    return "–" if low is None or high is None else f"{low:.3f}–{high:.3f}"


def _remarks(swept: Swept) -> list[str]:
    made = swept.manifest
    by = made["best_by"]
    best = swept.configurations.filter("best").row(0, named=True)
    same = swept.configurations[by].to_list().count(best[by]) - 1
    level = f", level with {plural(same, 'other')}" if same else ""
    dynamic = swept.configurations.filter(swept.configurations["deep_share"].is_not_null())
    lines = [
        f"{plural(made['configurations'], 'configuration')} on "
        f"{plural(made['queries'], 'query')}; best by {by}: "
        f"{best['configuration']}{level}."
    ]
    found = swept.unsettled()
    if found:
        others, exact = list(found), all(found.values())
        which = first_few(others, 1)
        lines.append(
            f"That {rests(exact)} unjudged passages: what they are {could(exact)} put {which} "
            "level with it or ahead (`holes: judge` has them judged)."
        )
    for row in dynamic.iter_rows(named=True):
        saved, lost = row["tokens_saved"], row["quality_lost"]
        lines.append(
            f"{row['configuration']}: {row['deep_share']:.0%} of the queries went deep, "
            f"{row['mean_k']:.1f} candidates on average"
            + ("." if saved is None else f"; {saved:.0%} of the tokens of all deep saved")
            + ("" if saved is None or lost is None else f" for {lost:.4f} of {by}")
            + ("" if saved is None else ", on queries that taught it nothing.")
        )
    lines += made.get("answers", {}).get("words", [])
    lines += made.get("load", {}).get("words", [])
    lines += [
        f"prices of {made['prices']['date']} ({made['prices']['source']})",
        f"results: {swept.folder}",
        f"next: rankproof recommend {typed(swept.folder)}",
    ]
    return lines


def _data(swept: Swept) -> dict[str, Any]:
    from rankproof.presentation.json_values import plain

    rows = plain(swept.configurations.to_dicts())
    load = {} if swept.load is None else {"load": swept.load.drop("key").to_dicts()}
    return {"manifest": swept.manifest, "configurations": rows, **load}
