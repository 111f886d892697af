"""`rankproof trec_eval`: its arguments, its output."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

Judged = Literal["qrels", "qrels_jg", "qrels_prefs", "prefs"]
Listed = Literal["trec_results"]


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
        int, typer.Option("-N", metavar="N", help="Documents in the collection, for utility.")
    ] = 0,
    no_summary: Annotated[bool, typer.Option("-n", help="Print no summary.")] = False,
    judged_as: Annotated[
        Judged,
        typer.Option(
            "-R",
            help="Format of QRELS: the second column names who judged (qrels_jg), grades are "
            "preferences (qrels_prefs), or each line holds query, person, part, document, level "
            "(prefs).",
        ),
    ] = "qrels",
    listed_as: Annotated[Listed, typer.Option("-T", help="Format of RUN.")] = "trec_results",
    reference: Annotated[
        str | None,
        typer.Option(
            "-Z",
            metavar="FILE",
            help="Print standard scores; FILE holds query, measure, mean, deviation of other runs.",
        ),
    ] = None,
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
    from rankproof.compat.preferences import read_people
    from rankproof.data import read_run
    from rankproof.data.sources import Source
    from rankproof.data.trec import tag_of
    from rankproof.foundation.errors import InputError

    if ties and (judged_as != "qrels" or reference):
        raise InputError(
            "these figures are of one order of the ties",
            place="--ties",
            remedy="leave out --ties, or -R and -Z",
        )
    inputs.check_stdin([path for path in (qrels, run, reference) if path])
    source = Source(run, as_trec_eval=True)  # which holds what comes through a pipe
    table = read_run(source)
    judged = (
        inputs.load_qrels(qrels, None) if judged_as == "qrels" else read_people(qrels, judged_as)
    )
    found = trec_eval.trec_eval(
        judged,
        table,
        measure or (),
        tag=tag_of(source) or table.name,
        complete=complete,
        level=level,
        depth=depth,
        judged_only=judged_only,
        collection=collection,
        form=judged_as,
        ties=ties,
        reference=None if reference is None else trec_eval.read_reference(reference),
    )
    if per_query:
        sys.stdout.writelines(found.single())
    if not no_summary:
        sys.stdout.writelines(found.summary())
    noted = [each for each in (judged, table) if getattr(each, "notes", ())]
    if noted:  # else nothing need load polars
        from rankproof.cli.output import tell

        tell(*noted)
