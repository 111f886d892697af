"""Results printed in the form asked for, and files that appear whole or not at all."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from rankproof.cli import options
from rankproof.cli.options import Format
from rankproof.errors import InputError
from rankproof.files import write_whole
from rankproof.redaction import redact, without_secrets
from rankproof.results.tables import (
    Cell,
    Column,
    Table,
    as_csv,
    as_html,
    as_latex,
    as_markdown,
    draw,
    fitted,
)

__all__ = [
    "Cell",
    "Column",
    "Table",
    "check_frame_path",
    "save",
    "show",
    "warn",
    "write_frame",
]


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
    writer = {
        Format.csv: as_csv,
        Format.md: as_markdown,
        Format.latex: as_latex,
        Format.html: as_html,
    }[form]
    print("\n\n".join(writer(table) for table in tables))


WIDEST = 10_000  # columns: nothing is shortened or left out


def _room(console: Any) -> int:
    """Columns to fill: those of the terminal, or as many as it takes with --wide."""
    if options.wide:
        return WIDEST
    if console.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return int(console.width)
    return 200  # a pipe or a file has no edge to wrap at


def _rich(tables: Sequence[Table], remarks: Sequence[str]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    room = _room(console)
    wide = Console(highlight=False, width=WIDEST)  # rows are fitted before: they never wrap
    words = Console(highlight=False, width=min(room, 200))
    for table in tables:
        shown, padding = fitted(table, room)
        wide.print(draw(shown, padding))
        for note in shown.notes:
            words.print(Text(f"  {note}", style="dim"))
    for remark in remarks:
        words.print(Text(remark))


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
