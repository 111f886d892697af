"""`report`: one self-contained page from a folder of results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankproof.commands.registry import Needs, Option, Source, command

if TYPE_CHECKING:
    import os

    from rankproof.presentation.table_result import TableResult


@command(
    group="Tools",
    needs=Needs("report", ("jinja2",)),
    replay="it holds none that follows from its inputs alone",
)
def report(
    folder: Annotated[
        str | os.PathLike[str],
        Source("DIR", "results", digested=False),
        "A folder of results; DIR::ROW opens with a row of the sweep there.",
    ],
    *,
    out: Annotated[
        Path | None, Option(metavar="FILE", default_text="DIR/report.html"), "The page."
    ] = None,
    title: Annotated[str | None, "Its title."] = None,
) -> TableResult:
    """Write one HTML page from a folder of results of any command.

    Every result in the folder or below it that `--out` wrote is shown. The page needs nothing
    else: no server, no network, and no script to read it.

    $ rankproof report results/
    """
    from rankproof.commands.recording import split_row
    from rankproof.presentation.table_result import TableResult
    from rankproof.report import write_report

    place, row = split_row(str(folder))
    path, unread = write_report(place, out, title, row.removeprefix("::") or None)
    warnings = [f"skipped: {line}" for line in unread]
    data = {"page": str(path), "unread": unread}
    return TableResult("report", data, answer=str(path), warnings=warnings)
