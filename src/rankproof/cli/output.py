"""Results printed in the form asked for, and files that say how they were made.

What a user's file holds is shown as `visible` writes it: names cannot move the cursor, end a row or
run in a spreadsheet.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from rankproof.cli.options import Format
from rankproof.cli.terminal import print_presentation
from rankproof.cli.terminal import say as say
from rankproof.cli.terminal import warn as warn
from rankproof.foundation.errors import InputError
from rankproof.foundation.files import STDOUT, check_ending, check_output, write_atomically
from rankproof.foundation.redaction import remove_secrets
from rankproof.presentation.charts import Chart
from rankproof.presentation.result import KEY as PRESENTATION
from rankproof.presentation.result import Presentation, Summary, stored
from rankproof.presentation.tables import Cell, Column, Table

__all__ = ["Cell", "Column", "Made", "Table", "check_outputs", "deliver", "warn", "write_frame"]
from rankproof.foundation.printable import escape_formulas


@dataclass(frozen=True)
class Made:
    """How a result was made: what its manifest says, and what no output may replace."""

    kind: str
    inputs: dict[str, str]  # files and folders by role
    config: dict[str, Any]
    seed: int | None = None

    def manifest(self) -> dict[str, Any]:
        from rankproof.foundation.manifest import manifest

        return manifest(self.kind, config=self.config, inputs=self.inputs, seed=self.seed)


def deliver(
    form: Format,
    tables: Sequence[Table],
    data: dict[str, Any],
    made: Made | None = None,
    out: Path | None = None,
    remarks: Sequence[str] = (),
    file: dict[str, Any] | None = None,
    first: Sequence[str] = (),
    quiet: bool = False,
    charts: Sequence[Chart] = (),
) -> None:
    """Print a result, and write it to `out`; JSON says how it was made, in `data` or by `made`.

    `-` is standard output, which then holds the JSON alone. `file` is what is written where that
    is more than what is shown; `first` are lines for people, before any table. `quiet` prints
    nothing: standard output is another output's.
    """
    kept = data if file is None else file
    presentation: Presentation | None = None
    if form is not Format.json or out is not None:
        summary = Summary("\n".join(first), list(remarks))
        presentation = Presentation.assemble(made.kind if made else "", summary, tables, charts)
    if made is not None and (out is not None or form is Format.json):
        how = made.manifest()
        data, kept = {"manifest": how, **data}, {"manifest": how, **kept}
        if out is not None and presentation is not None:
            kept |= {PRESENTATION: stored(presentation)}
    if str(out) == STDOUT:
        print(_json(kept))
        return
    if out is not None:
        text = _json(kept, unicode=True) + "\n"
        encoded = text.encode("utf-8", "backslashreplace")  # `\udce9`, as JSON writes it
        inputs = () if made is None else made.inputs.values()
        write_atomically(out, lambda file: file.write_bytes(encoded), inputs=inputs)
    if quiet:
        return
    if form is Format.json or presentation is None:
        print(_json(data))
    else:
        print_presentation(presentation, form.value)


def load() -> None:
    """Load what tables are drawn with, while other threads are at work."""
    importlib.import_module("rich.console")
    importlib.import_module("rich.table")


Writer = Callable[[float | None, str], Cell]


def writer(form: Format) -> Writer:
    """Milliseconds and dollars need no four decimals, but in a file for programs; what is not 0
    does not read as 0."""

    def write(value: float | None, digits: str) -> Cell:
        if form is Format.csv:
            return value
        if value is None or value != value:
            return None
        text = format(value, digits)
        return text if float(text) or not value else format(value, re.sub(r"\.\d+f", ".1g", digits))

    return write


def _json(data: Any, unicode: bool | None = None) -> str:
    """JSON in the encoding of standard output; where that is not Unicode, in ASCII."""
    if unicode is None:
        unicode = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    return json.dumps(remove_secrets(data), indent=2, ensure_ascii=not unicode, allow_nan=False)


def tell(*noted: Any) -> None:
    """What evaluations, runs and judgements noted as they were read, each note once."""
    for note in dict.fromkeys(note for each in noted for note in each.notes):
        warn(note)


def check_outputs(inputs: Iterable[str], *outputs: Path | None) -> None:
    """Refuse, before any work, files that could not be written or must not be."""
    given = list(inputs)
    named = [path for path in outputs if path is not None]
    targets = [check_output(path, given) for path in named]
    again = next((at for at, path in enumerate(targets) if path in targets[:at]), None)
    if again is not None and str(named[again]) == STDOUT:
        raise InputError("standard output (-) is named twice", remedy="name a file")
    if again is not None:
        raise InputError("it is named twice", place=str(named[again]), remedy="name two files")


def check_frame(path: Path) -> None:
    """The same of a file of per-query figures."""
    check_ending(path, (".csv", ".parquet"), "per-query results")
    if not path.parent.is_dir():
        raise InputError(
            f"there is no folder {path.parent}", place=str(path), remedy="make it first"
        )


def write_frame(frame: pl.DataFrame, path: Path, inputs: Iterable[str] = ()) -> None:
    """Write a frame as its file's ending says; `-` is CSV on standard output."""
    plain = path.suffix.lower() != ".parquet"
    write = escape_formulas(frame).write_csv if plain else frame.write_parquet
    write_atomically(path, write, inputs=inputs)
