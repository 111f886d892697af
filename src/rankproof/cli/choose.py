"""`rankproof choose`: from a prepared folder to what to deploy, and a page."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from rankproof.cli.options import Format, FormatOption, OfflineOption, WideOption


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="What `rankproof init` prepared.")
    ],
    sla_ms: Annotated[
        float | None, typer.Option(min=0, help="Best quality within this latency.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(min=0, help="Best quality within this many US dollars per 1,000 queries."),
    ] = None,
    quality: Annotated[
        float | None, typer.Option(min=0, help="Least latency, then cost, at this quality.")
    ] = None,
    judge: Annotated[
        Literal["simulated"] | None,
        typer.Option(help="To try things out only: it is evidence of nothing."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Agree to the cost that is said beforehand.")
    ] = False,
    offline: OfflineOption = False,
    form: FormatOption = Format.table,
    wide: WideOption = False,
) -> None:
    """Judge, sweep, recommend and report in one run that can be stopped at any time.

    What it will cost is said, and asked about, before anything is sent. Run the same command
    again and it goes on: nothing that was answered is asked twice.
    """
    from rankproof.cli.output import deliver, warn
    from rankproof.cli.recommend import shown
    from rankproof.foundation.progress import ask_with
    from rankproof.projects.choosing import choose

    if sys.stdin.isatty() and sys.stderr.isatty():
        ask_with(partial(typer.confirm, err=True))
    found = choose(
        folder,
        sla_ms=sla_ms,
        budget=budget,
        quality=quality,
        judge=judge,
        yes=yes,
    )
    for note in found.notes:
        warn(note)
    tables, first, _ = shown(found.recommendation, form)
    remarks = [*found.recommendation.remarks(), f"page: {found.report}"]
    deliver(form, tables, found.to_dict(), remarks=remarks, first=first)
    if not found.recommendation.feasible:
        raise typer.Exit(1)
