"""`rankproof demo`: everything on a small corpus that ships with the package, and what it shows."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated

import typer


def command(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where everything is written.")] = Path(
        "rankproof-demo"
    ),
) -> None:
    """Evaluate, audit, judge, sweep and diagnose a small bilingual corpus, and write a report.

    No key, no GPU, no torch, no download. The second run uses what the first left behind.
    """
    from rankproof.cli.progress import progress
    from rankproof.showcase import build_demo

    demo = build_demo(out, progress)
    print("Five findings worth knowing\n")
    for at, finding in enumerate(demo.findings, 1):
        print(f"{at}. {finding.title}.")
        print(textwrap.fill(finding.words, 92, initial_indent="   ", subsequent_indent="   "))
        print()
    print(
        "The corpus was written for this demo, and the golden set in it was judged by a simulation:"
    )
    print("the figures show what rankproof does, and are evidence of nothing else.\n")
    print(f"Report:  {demo.report}")
    print(f"Files:   {demo.folder}  (try: rankproof eval {out}/qrels.txt {out}/saturated.trec)")
