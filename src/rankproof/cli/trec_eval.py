"""`rankproof trec_eval`: its arguments, its output."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

_FORMATS = {"-R": "qrels", "-T": "trec_results"}


def command(
    qrels: Annotated[str, typer.Argument(metavar="QRELS", help="Judgements.")],
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run.")],
    per_query: Annotated[
        bool, typer.Option("-q", help="Print the figures of each query, too.")
    ] = False,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "-m",
            metavar="MEASURE",
            help="A measure as trec_eval names it (map, P.5,10, all_trec); may be repeated.",
            show_default="official",
        ),
    ] = None,
    complete: Annotated[
        bool, typer.Option("-c", help="Average over every judged query; one not in RUN counts 0.")
    ] = False,
    level: Annotated[
        int, typer.Option("-l", metavar="GRADE", help="The lowest grade that is relevant.")
    ] = 1,
    depth: Annotated[
        int | None, typer.Option("-M", min=1, metavar="N", help="Read the first N of each list.")
    ] = None,
    judged_only: Annotated[
        bool, typer.Option("-J", help="Leave out documents that nobody judged.")
    ] = False,
    collection: Annotated[
        int, typer.Option("-N", metavar="N", help="Documents there are, for utility.")
    ] = 0,
    no_summary: Annotated[bool, typer.Option("-n", help="Print no summary.")] = False,
    judged_as: Annotated[
        str, typer.Option("-R", metavar="FORMAT", help="Of QRELS: qrels, no other.")
    ] = _FORMATS["-R"],
    listed_as: Annotated[
        str, typer.Option("-T", metavar="FORMAT", help="Of RUN: trec_results, no other.")
    ] = _FORMATS["-T"],
    ties: Annotated[
        bool,
        typer.Option(
            "--ties",
            help="Add to each line what all orders of ties give: expected, lowest, highest.",
        ),
    ] = False,
) -> None:
    """Print what trec_eval 9 prints, byte for byte, so that a script changes one word.

    `rankproof eval --like trec_eval` gives the same figures with all that we say about them.
    """
    from rankproof.cli import inputs
    from rankproof.compat import trec_eval
    from rankproof.errors import InputError, shorten
    from rankproof.records import read_run
    from rankproof.records.trec import tag_of

    for option, given in (("-R", judged_as), ("-T", listed_as)):
        if given != _FORMATS[option]:
            raise InputError(
                f"trec_eval's format {shorten(given)} is not offered",
                place=option,
                remedy=f"{option} {_FORMATS[option]} alone is read; leave it out",
            )
    inputs.check_stdin([qrels, run])
    judged = inputs.load_qrels(qrels, None)
    table = read_run(run)
    found = trec_eval.trec_eval(
        judged,
        table,
        measure or (),
        tag=table.name if run == "-" else tag_of(run) or table.name,
        complete=complete,
        level=level,
        depth=depth,
        judged_only=judged_only,
        collection=collection,
        ties=ties,
    )
    if per_query:
        sys.stdout.writelines(found.single())
    if not no_summary:
        sys.stdout.writelines(found.summary())
