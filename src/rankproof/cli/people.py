"""People beside a judge: who labels what, labels from files, figures as people would have them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankproof.cli import options, output
from rankproof.cli.options import Format
from rankproof.cli.output import Cell
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import plural

if TYPE_CHECKING:
    pass

StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="A golden set: NAME.golden.")]


def assign(
    store: StoreArgument,
    to: Annotated[list[str], typer.Option(metavar="NAME", help="A person; may be repeated.")],
    each: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many people label every passage.", show_default="2, or 1 alone"
        ),
    ] = None,
    shared: Annotated[
        int, typer.Option("--all", min=0, help="How many passages everybody labels.")
    ] = 0,
    queries: Annotated[
        int | None, typer.Option(min=1, help="From this many queries, drawn by the set's seed.")
    ] = None,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
) -> None:
    """Deal the passages out to people: each has a queue, and some passages have several people.

    Whole queries are dealt, so that a query has a figure as people would have it. Asked
    again with more people or queries, it adds to the queues and takes nothing away.
    """
    from rankproof.golden.annotators import assign as deal
    from rankproof.golden.annotators import labels
    from rankproof.golden.store import Store

    each = min(2, len(to)) if each is None else each
    with Store(store, write=True) as opened:
        count = deal(opened, to, each, shared, queries)
        given: dict[str, int] = dict(
            opened.rows("SELECT who, COUNT(*) FROM assigned GROUP BY who ORDER BY who")
        )
        said = labels(opened.active_corrections())
    done = {
        who: sum(who in label and label[who].new is not None for label in said.values())
        for who in given
    }
    columns = [output.Column("who", "text"), output.Column("given"), output.Column("labelled")]
    rows: list[tuple[Cell, ...]] = [(who, given[who], done[who]) for who in given]
    data = {
        "passages": count,
        "people": [{"who": who, "given": given[who], "labelled": done[who]} for who in given],
    }
    note = (
        f"{plural(count, 'passage')}, each to {each} of "
        f"{plural(len(to), 'person', 'people')}; {shared} of them to all"
    )
    asked = {"to": to, "each": each, "all": shared, "queries": queries}
    made = output.Made("assignment", {"golden": str(store)}, asked)
    output.deliver(form, [output.Table(columns, rows, notes=[note])], data, made)


def take_in(
    store: StoreArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Qrels, CSV, JSON lines: as any judgements.")
    ],
    who: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="Who labelled, where the file does not say."),
    ] = None,
    grades: Annotated[
        str | None,
        typer.Option(
            metavar="FROM=TO,…", help="What the file's grades are from 1 to 5, such as 0=1,1=4."
        ),
    ] = None,
) -> None:
    """Take in labels of people: each is a row of its author, as if given in the viewer.

    A file with a column `who` holds several people's (query, doc, who, grade, and optionally
    sure and note), as an export's labels.csv and labels.jsonl do; any other is one person's.
    """
    from rankproof.golden.labels import import_labels, read_labels
    from rankproof.golden.store import Store

    found = read_labels(file, who, None if grades is None else _scale(grades))
    with Store(store, write=True) as opened:
        print(import_labels(opened, found).words())


def _scale(text: str) -> dict[int, int]:
    try:
        pairs = [part.split("=") for part in text.split(",")]
        return {int(was): int(now) for was, now in pairs}
    except ValueError:
        raise InputError(
            f"grades {text!r} cannot be read", place="--grades", remedy="write 0=1,1=4"
        ) from None
