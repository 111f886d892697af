"""Tables as plain data: columns, rows and the notes that belong below them.

A table knows how each cell is written for people, and nothing of terminals or files: the writers
(terminal.py, text_formats.py, html.py) take it from here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from rankproof.foundation.printable import escape_controls

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Marked:
    """A number that leads its column, or that carries a mark of significance."""

    value: float | str
    best: bool = False
    mark: str = ""


Cell = str | int | float | Marked | None


@dataclass(frozen=True)
class Column:
    """A column's heading and how its cells are written."""

    name: str
    style: str = ""  # text | "" for a number | signed | p
    dim: bool = False
    folds: bool = False  # text that may be shortened in the middle on a narrow terminal
    prose: bool = False  # sentences, which wrap on a narrow terminal
    drop: int = 0  # order in which columns go on a narrow terminal, lowest first; 0 stays
    width: int | None = None  # of prose that was fitted to a terminal
    digits: int = 4  # decimals of a number
    exact_zero: bool = False  # only 0 itself is written as 0: 0.0004 with two digits stays 0.0004

    @classmethod
    def each(cls, *names: str, style: str = "", **options: Any) -> list[Column]:
        """Return several columns that differ only in their names."""
        return [cls(name, style, **options) for name in names]

    @property
    def is_text(self) -> bool:
        """True if its cells are aligned left, as words are."""
        return self.style == "text"

    @property
    def heading(self) -> str:
        """The name, with control characters written out: it may be the name of a user's run."""
        return escape_controls(self.name)

    def write(self, cell: Cell) -> str:
        """Return a cell as people read it; an undefined value is a dash."""
        if isinstance(cell, Marked):
            return self.write(cell.value) + cell.mark
        if cell is None or (isinstance(cell, float) and math.isnan(cell)):
            return "–"
        if isinstance(cell, float):
            if self.style == "p" and cell < 1e-4:
                return f"{cell:.0e}" if cell else "0"
            sign = "+" if self.style == "signed" else ""
            text = f"{cell:{sign}.{self.digits}f}"
            if float(text) == 0 and cell and self.exact_zero:
                return f"{cell:{sign}.1g}"
            return f"{0:.{self.digits}f}" if float(text) == 0 else text
        return escape_controls(str(cell))


@dataclass(frozen=True)
class Table:
    """Columns, rows, and lines that belong below them."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    title: str | None = None
    notes: Sequence[str] = field(default=())

    def written(self) -> list[list[str]]:
        """Return every cell as people read it."""
        return [
            [column.write(cell) for column, cell in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]

    def only(self, positions: Sequence[int]) -> Table:
        """Return the table with the columns at these positions."""
        return replace(
            self,
            columns=[self.columns[at] for at in positions],
            rows=[[row[at] for at in positions] for row in self.rows],
        )

    def named(self, names: Sequence[str]) -> Table | None:
        """Return the table with the columns of these names, in order; None if one is missing."""
        positions = {column.name: at for at, column in enumerate(self.columns)}
        if any(name not in positions for name in names):
            return None
        return self.only([positions[name] for name in names])

    def shortened(self, limit: int) -> Table:
        """Return at most `limit` rows, with a note that says how many there were."""
        if len(self.rows) <= limit:
            return self
        note = f"the first {limit} of {len(self.rows)} rows"
        return replace(self, rows=self.rows[:limit], notes=[note, *self.notes])

    def plain(self) -> dict[str, list[Any]]:
        """Return columns of values without marks, for frames; NaN stays NaN."""
        values = [[unmarked(cell) for cell in row] for row in self.rows]
        return {c.name: [row[at] for row in values] for at, c in enumerate(self.columns)}

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON holds it; undefined values are null."""
        return {
            "title": self.title,
            "columns": [_without_defaults(column) for column in self.columns],
            "rows": [[_cell_to_json(cell) for cell in row] for row in self.rows],
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Table:
        """Read what `to_dict` returned."""
        return cls(
            columns=[Column(**column) for column in data["columns"]],
            rows=[[_cell_from_json(cell) for cell in row] for row in data["rows"]],
            title=data["title"],
            notes=data["notes"],
        )

    @classmethod
    def of_records(
        cls,
        columns: Mapping[str, Column | None],
        records: Iterable[Mapping[str, Cell]],
        notes: Sequence[str] = (),
    ) -> Table:
        """Return the values of each record under these keys; a key without a column is skipped."""
        shown = {key: column for key, column in columns.items() if column is not None}
        rows = [[record[key] for key in shown] for record in records]
        return cls(list(shown.values()), rows, notes=notes)

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, notes: Sequence[str] = ()) -> Table:
        """Return a frame as a table: text to the left, numbers to the right."""
        import polars as pl

        columns = [
            Column(name, "text" if kind in (pl.String, pl.Boolean) else "", folds=kind == pl.String)
            for name, kind in frame.schema.items()
        ]
        return cls(columns, frame.rows(), notes=notes)


def span(low: float, high: float, digits: int = 4) -> str:
    """Return "0.1200–0.3400", whole numbers as they are, or one number where both ends are equal.

    >>> span(0.12, 0.34), span(8, 100), span(5, 5)
    ('0.1200–0.3400', '8–100', '5')
    """
    ends = [f"{end:,}" if isinstance(end, int) else f"{end:.{digits}f}" for end in (low, high)]
    if ends[0] == ends[1]:
        return ends[0]
    return " to ".join(ends) if ends[0].startswith("-") else "–".join(ends)


def unmarked(cell: Cell) -> str | int | float | None:
    """Return a cell's value without its mark."""
    return cell.value if isinstance(cell, Marked) else cell


def _cell_to_json(cell: Cell) -> Any:
    """Return a cell as JSON holds it: what is undefined is null, what is endless a text."""
    if isinstance(cell, Marked):
        return {**_without_defaults(cell), "value": _cell_to_json(cell.value)}
    if isinstance(cell, float):
        if math.isnan(cell):
            return None
        return float(cell) if math.isfinite(cell) else f"{cell:.4f}"
    return cell


def _cell_from_json(cell: Any) -> Cell:
    return Marked(**cell) if isinstance(cell, dict) else cell


def _without_defaults(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults."""
    return {
        entry.name: getattr(value, entry.name)
        for entry in fields(value)
        if getattr(value, entry.name) != entry.default
    }
