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
    """Run `choose` and the other verbs on a small bilingual corpus, and write a report.

    No key, no GPU, no torch, no download. The second run uses what the first left behind.
    """
    from rankproof.cli.output import warn
    from rankproof.cli.progress import progress
    from rankproof.commands.showcase import build_demo
    from rankproof.foundation.phrasing import typed

    demo = build_demo(out, progress, warn)
    print("What to deploy\n")
    for line in demo.chosen.words():
        print(textwrap.fill(line, 78, initial_indent="   ", subsequent_indent="   "))
    print("\nFive findings worth knowing\n")
    for at, finding in enumerate(demo.findings, 1):
        print(f"{at}. {finding.title}.")
        print(textwrap.fill(finding.words, 78, initial_indent="   ", subsequent_indent="   "))
        print()
    print("The corpus was written for this demo, and a simulation judged it: the figures")
    print("show what rankproof does, and are evidence of nothing else.\n")
    print(f"Report:  {demo.report}")
    corpus, qrels, run = (typed(out / n) for n in ("corpus", "qrels.txt", "saturated.trec"))
    print(f"Again:   rankproof choose {corpus} --judge simulated --sla-ms 5")
    print(f"Ties:    rankproof eval {qrels} {run}")
