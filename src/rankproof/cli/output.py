"""Tables in five formats, and files that appear whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from rankproof.cli.options import Format
from rankproof.errors import InputError
from rankproof.files import write_whole
from rankproof.redaction import redact, without_secrets

Cell = str | int | float | None


@dataclass(frozen=True)
class Column:
    """A column's heading and how its cells are written."""

    name: str
    style: str = ""  # text | "" for a number | signed | p
    dim: bool = False
    folds: bool = False  # the first to give way on a narrow terminal

    @property
    def is_text(self) -> bool:
        return self.style == "text"

    def write(self, cell: Cell) -> str:
        """A cell for people to read."""
        if cell is None or (isinstance(cell, float) and math.isnan(cell)):
            return "–"
        if isinstance(cell, float):
            if self.style == "p" and cell < 1e-4:
                return f"{cell:.0e}"
            written = f"{cell:+.4f}" if self.style == "signed" else f"{cell:.4f}"
            return "0.0000" if float(written) == 0 else written
        return str(cell)


@dataclass(frozen=True)
class Table:
    """Columns, rows, and lines that belong below them."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    title: str | None = None
    notes: Sequence[str] = field(default=())


def show(form: Format, tables: Sequence[Table], data: Any, remarks: Sequence[str] = ()) -> None:
    """Print a result. `data` is what JSON gets; `remarks` go below a table for people."""
    if form is Format.json:
        print(json.dumps(without_secrets(data), indent=2, ensure_ascii=False, allow_nan=False))
        return
    tables = [
        replace(
            table,
            rows=without_secrets([list(row) for row in table.rows]),
            title=without_secrets(table.title),
            notes=redact(list(table.notes)),
        )
        for table in tables
    ]
    if form is Format.table:
        _rich(tables, redact(list(remarks)))
        return
    writer = {Format.csv: _csv, Format.md: _markdown, Format.latex: _latex}[form]
    print("\n\n".join(writer(table) for table in tables))


def _rich(tables: Sequence[Table], remarks: Sequence[str]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:  # a pipe or a file has no edge to wrap at
        console = Console(highlight=False, width=200)
    for table in tables:
        drawn, width = _drawn(table, console.width)
        Console(highlight=False, width=width).print(drawn, soft_wrap=True)
        for note in table.notes:
            console.print(Text(f"  {note}", style="dim"))
    for remark in remarks:
        console.print(Text(remark))


_FOLDED = 8  # least width of a column that folds


def _drawn(table: Table, room: int) -> tuple[Any, int]:
    """A table that fits into `room` columns if it can, and how wide it is.

    On a narrow terminal padding goes first, then columns that fold do. Figures are never cut: what
    is still too wide is for the terminal to wrap.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table as RichTable
    from rich.text import Text

    written = [
        [column.write(cell) for column, cell in zip(table.columns, row, strict=True)]
        for row in table.rows
    ]
    names = [column.name for column in table.columns]
    widths = [max(map(cell_len, cells)) for cells in zip(names, *written, strict=True)]
    between = 3
    if sum(widths) + between * (len(widths) + 1) > room:
        between = 1
    spare = room - sum(widths) - between * (len(widths) + 1)
    for at, column in enumerate(table.columns):
        if column.folds and spare < 0:
            less = min(-spare, max(0, widths[at] - _FOLDED))
            widths[at] -= less
            spare += less
    drawn = RichTable(
        box=box.SIMPLE_HEAD,
        title=table.title,
        title_justify="left",
        padding=(0, 1) if between == 3 else 0,
    )
    for column, width in zip(table.columns, widths, strict=True):
        drawn.add_column(
            Text(column.name),
            justify="left" if column.is_text else "right",
            style="dim" if column.dim else "",
            header_style="dim bold" if column.dim else "bold",
            overflow="fold",
            width=width,
        )
    for cells in written:
        drawn.add_row(*map(Text, cells))
    return drawn, sum(widths) + between * (len(widths) + 1)


def _csv(table: Table) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    for row in table.rows:
        writer.writerow(["" if c is None or c != c else c for c in row])
    return out.getvalue().rstrip("\n")


def _markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    head = [column.name for column in table.columns]
    rule = [":--" if column.is_text else "--:" for column in table.columns]
    rows = [
        [column.write(cell) for column, cell in zip(table.columns, row, strict=True)]
        for row in table.rows
    ]
    title = [f"**{table.title}**", ""] if table.title else []
    return "\n".join([*title, line(head), line(rule), *map(line, rows)])


_TEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "−": "$-$",
}


def _latex(table: Table) -> str:
    def escape(text: str) -> str:
        return "".join(_TEX.get(c, c) for c in text)

    def line(cells: Sequence[str]) -> str:
        return " & ".join(cells) + r" \\"

    layout = "".join("l" if column.is_text else "r" for column in table.columns)
    rows = [
        line([escape(c.write(cell)) for c, cell in zip(table.columns, row, strict=True)])
        for row in table.rows
    ]
    return "\n".join(
        [
            *([f"% {table.title}"] if table.title else []),
            rf"\begin{{tabular}}{{{layout}}}",
            r"\toprule",
            line([escape(column.name) for column in table.columns]),
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def save(
    path: Path | None,
    kind: str,
    data: dict[str, Any],
    inputs: dict[str, str],
    config: dict[str, Any],
    seed: int | None = None,
) -> None:
    """A result as a file that says how it was made; nothing where no path is given."""
    if path is None:
        return
    from rankproof.manifest import manifest

    files = {role: name for role, name in inputs.items() if Path(name).is_file()}
    made = manifest(kind, config=config, inputs=files, seed=seed)
    kept = without_secrets({"manifest": made, **data})
    text = json.dumps(kept, indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(path, lambda file: file.write_text(text + "\n", encoding="utf-8"))


def warn(message: str) -> None:
    """A line on stderr that does not stop anything."""
    print(f"rankproof: {redact(message)}", file=sys.stderr)


def check_frame_path(path: Path) -> None:
    """Refuse, before any work, a file that `write_frame` could not write."""
    if path.suffix.lower() not in (".parquet", ".csv"):
        raise InputError(
            f"{path.suffix or 'no ending'} is not a format for per-query results",
            place=str(path),
            remedy="end the name in .parquet or .csv",
        )
    if path.is_dir():
        raise InputError("this is a directory", place=str(path), remedy="name a file inside it")
    if not path.parent.is_dir():
        raise InputError(
            f"there is no folder {path.parent}", place=str(path), remedy="make it first"
        )


def write_frame(frame: pl.DataFrame, path: Path) -> None:
    """Write a frame as its file's ending says."""
    write_whole(path, frame.write_csv if path.suffix.lower() == ".csv" else frame.write_parquet)
