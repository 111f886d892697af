"""`rankproof verify`: whether a result is what its inputs give."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankproof.cli import options
from rankproof.cli.options import Format


def command(
    result: Annotated[
        Path, typer.Argument(metavar="RESULT", help="A file of --out or --format json.")
    ],
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="INPUT",
            help="Its inputs, or folders that hold them, where they are neither beside it nor in "
            "this folder.",
            show_default=False,
        ),
    ] = None,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
) -> None:
    """Digest the inputs of a result again, make it again, and compare every figure.

    Exits with 1 where an input is another file than the one that was read, or a figure differs in
    its last bit. Where a model was run, a judge asked or time measured, the inputs alone are
    checked, and it says so.
    """
    from rankproof.cli.output import Column, Made, Table, deliver
    from rankproof.commands.verification import verify

    found = verify(result, inputs or [])
    columns = [Column("input", "text", folds=True), *Column.each("file", "SHA-256", style="text")]
    rows = [(g.role, g.file, "the same" if g.same else "another") for g in found.inputs]
    files = {"result": str(result)} | {given.role: str(given.found) for given in found.inputs}
    made = Made("verification", files, {})
    deliver(form, [Table(columns, rows)], found.to_dict(), made, remarks=found.words())
    if not found.same:
        raise typer.Exit(1)
