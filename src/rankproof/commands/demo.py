"""`demo`: everything on a small corpus that ships with the package, and what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankproof.commands.options import DEMO
from rankproof.commands.registry import Option, command

if TYPE_CHECKING:
    from rankproof.presentation.table_result import TableResult


@command(group="Tools", needs=DEMO, replay="it holds none that follows from its inputs alone")
def demo(
    *,
    out: Annotated[Path, Option(metavar="DIR"), "Where everything is written."] = Path(
        "rankproof-demo"
    ),
) -> TableResult:
    """Run `choose` and the other commands on a small bilingual corpus, and write a report.

    No key, no GPU, no torch, no download. The second run uses what the first left behind.

    $ rankproof demo
    """
    from rankproof.commands.showcase import build_demo, demo_lines
    from rankproof.presentation.table_result import TableResult

    built = build_demo(out)
    data = {"folder": str(built.folder), "report": str(built.report)}
    return TableResult("demo", data, answer="\n".join(demo_lines(built)))
