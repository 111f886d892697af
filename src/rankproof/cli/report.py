"""rankproof report: one self-contained page from a folder of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="A folder of results; DIR::ROW opens with a row of the sweep there."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page.", show_default="DIR/report.html")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Its title.")] = None,
) -> None:
    """Write one HTML page from evaluations, comparisons, audits, sweeps, golden sets, diagnostics.

    Whichever of these are in the folder or below it. The page needs nothing else: no server, no
    network, and no script to read it.
    """
    from rankproof.cli.output import warn
    from rankproof.foundation.files import STDOUT
    from rankproof.report import write_report

    place, _, row = folder.partition("::") if not Path(folder).is_dir() else (folder, "", "")
    path, broken = write_report(place, out, title, row or None)
    for line in broken:
        warn(f"left out: {line}")
    if str(path) != STDOUT:
        print(path)
