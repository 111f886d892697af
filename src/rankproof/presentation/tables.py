"""Columns, rows and notes, and every way to write them."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rankproof.foundation.errors import first_few
from rankproof.foundation.printable import escape_controls, escape_formula, escape_markdown


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
    prose: bool = False  # sentences, which go on below where a narrow terminal ends
    drop: int = 0  # left out on a narrow terminal, the lowest number first; 0 stays
    width: int | None = None  # of prose that was fitted

    @classmethod
    def each(cls, *names: str, style: str = "", **how: Any) -> list[Column]:
        """Several columns alike."""
        return [cls(name, style, **how) for name in names]

    @property
    def is_text(self) -> bool:
        return self.style == "text"

    @property
    def heading(self) -> str:
        """The name for people to read: it may be a run's, and never acts."""
        return escape_controls(self.name)

    def write(self, cell: Cell) -> str:
        """A cell for people to read."""
        if isinstance(cell, Marked):
            return self.write(cell.value) + cell.mark
        if cell is None or (isinstance(cell, float) and math.isnan(cell)):
            return "–"
        if isinstance(cell, float):
            if self.style == "p" and cell < 1e-4:
                return f"{cell:.0e}" if cell else "0"
            written = f"{cell:+.4f}" if self.style == "signed" else f"{cell:.4f}"
            return "0.0000" if float(written) == 0 else written
        return escape_controls(str(cell))


@dataclass(frozen=True)
class Table:
    """Columns, rows, and lines that belong below them."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    title: str | None = None
    notes: Sequence[str] = field(default=())

    def written(self) -> list[list[str]]:
        """Every cell for people to read."""
        return [
            [column.write(cell) for column, cell in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]

    def only(self, kept: Sequence[int]) -> Table:
        """The same with some of its columns."""
        return replace(
            self,
            columns=[self.columns[at] for at in kept],
            rows=[[row[at] for at in kept] for row in self.rows],
        )

    def plain(self) -> dict[str, list[Any]]:
        """Columns of values, for frames; NaN stays NaN."""
        values = [[_value(cell) for cell in row] for row in self.rows]
        names = [column.name for column in self.columns]
        return {name: [row[at] for row in values] for at, name in enumerate(names)}


def _value(cell: Cell) -> Any:
    return cell.value if isinstance(cell, Marked) else cell


# ------------------------------------------------------------------------------ the terminal

_SHORT = 16  # a name is shortened to this before a column is left out
_SHORTEST = 8


def middle(text: str, width: int) -> str:
    """A name shortened in the middle: its beginning and its end tell it apart.

    A width is that on the terminal, where a letter of Chinese or an emoji takes two columns.
    """
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return text
    tail = max(0, (width - 1) // 2)
    front = max(0, width - 1 - tail)
    begin, end = text[:front], text[len(text) - tail :]
    while cell_len(begin) > front:
        begin = begin[:-1]
    while cell_len(end) > tail:
        end = end[1:]
    return f"{begin}…{end}"


def _without_common_ends(table: Table) -> Table:
    """Names without the words that all of them end in, which a note says."""
    rows, notes = [list(row) for row in table.rows], list(table.notes)
    for at, column in enumerate(table.columns):
        names = [str(row[at]).split(" ") for row in rows] if column.folds else []
        if len({tuple(name) for name in names}) < 2:
            continue
        same = 0
        while same + 1 < min(map(len, names)) and len({name[-1 - same] for name in names}) == 1:
            same += 1
        if same:
            notes.insert(0, f"every {column.name} ends in: {' '.join(names[0][-same:])}")
            for row, name in zip(rows, names, strict=True):
                row[at] = " ".join(name[:-same])
    return replace(table, rows=rows, notes=notes)


def fitted(table: Table, room: int) -> tuple[Table, int]:
    """What fits into `room` columns, and the spaces on both sides of a cell.

    First padding goes, then what all names end in, then names are shortened in the middle, then
    columns are left out, in their order and with a note: so many that different names still look
    different. A figure is never cut, nor does a row take two lines, but for prose.
    """
    from rich.cells import cell_len

    padding = 1
    kept = list(range(len(table.columns)))
    widest: list[int] = []  # of each column's cells
    texts: list[list[str]] = []

    def measured() -> None:
        texts[:] = table.written()
        widest[:] = [max((cell_len(row[at]) for row in texts), default=0) for at in kept]

    def widths(shortest: int | None) -> list[int]:
        found = []
        for at in kept:
            column, cells = table.columns[at], widest[at]
            head = cell_len(column.heading)
            if shortest is not None:
                gives = column.folds or column.prose
                head = min(head, max(shortest, cells if not gives else 0))
                if gives:
                    cells = min(cells, shortest)
            found.append(max(head, cells))
        return found

    def needed(shortest: int | None) -> int:
        return sum(widths(shortest)) + (1 + 2 * padding) * len(kept) + 1

    def longest(shortest: int) -> int:  # what room is left, names take
        while needed(shortest + 1) <= room and shortest < room:
            shortest += 1
        return shortest

    def told_apart(shortest: int) -> bool:
        for at, size in zip(kept, widths(longest(shortest)), strict=True):
            names = {row[at] for row in texts} if table.columns[at].folds else set()
            if len({middle(name, size) for name in names}) < len(names):
                return False
        return True

    measured()
    if needed(None) > room:
        padding = 0
    if needed(None) > room:
        table = _without_common_ends(table)
        measured()
    shortest: int | None = None
    dropped: list[int] = []
    if needed(None) > room:
        shortest = max([_SHORT, *(cell_len(c.name) for c in table.columns if c.folds)])
        for order in sorted({c.drop for c in table.columns if c.drop}):
            if needed(shortest) <= room and told_apart(shortest):
                break
            gone = [at for at in kept if table.columns[at].drop == order]
            dropped += gone
            kept = [at for at in kept if at not in gone]
        while needed(shortest) > room and shortest > _SHORTEST:
            shortest -= 1
        while needed(shortest) > room and len(kept) > 2:
            dropped.append(kept.pop())
        shortest = longest(shortest)
    sizes = widths(shortest)
    shown = table.only(kept)
    columns = [
        replace(c, name=middle(c.heading, size), width=size if c.prose else None)
        for c, size in zip(shown.columns, sizes, strict=True)
    ]
    rows = [
        [
            middle(c.write(cell), size) if c.folds else cell
            for c, size, cell in zip(columns, sizes, row, strict=True)
        ]
        for row in shown.rows
    ]
    notes = list(table.notes)
    if dropped:
        names = [middle(table.columns[at].heading, 24) for at in sorted(dropped)]
        some = first_few(names, 8)
        shows = "them" if len(names) > 1 else "it"
        notes.append(f"left out for want of room: {some}; --wide shows {shows}")
    return Table(columns, rows, table.title, notes), padding


def draw(table: Table, padding: int) -> Any:
    """A table for rich, each row one line where it holds no prose."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(
        box=box.SIMPLE_HEAD,
        title=table.title and escape_controls(table.title),
        title_justify="left",
        padding=(0, padding),
    )
    for column in table.columns:
        drawn.add_column(
            Text(column.heading),
            justify="left" if column.is_text else "right",
            style="dim" if column.dim else "",
            header_style="dim bold" if column.dim else "bold",
            max_width=column.width,
        )
    for row in table.rows:
        drawn.add_row(
            *(
                Text(c.write(cell), style="bold" if isinstance(cell, Marked) and cell.best else "")
                for c, cell in zip(table.columns, row, strict=True)
            )
        )
    return drawn


# ----------------------------------------------------------------------------------- files


def as_csv(table: Table) -> str:
    """Values as they are, undefined ones empty; marks are left out."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([escape_formula(column.name) for column in table.columns])
    for row in table.rows:
        values = ("" if v is None or v != v else v for v in map(_value, row))
        writer.writerow([escape_formula(v) if isinstance(v, str) else v for v in values])
    return out.getvalue().rstrip("\n")


def as_markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    def cell_of(column: Column, cell: Cell) -> str:
        if isinstance(cell, Marked) and cell.best:
            return f"**{escape_markdown(column.write(cell.value))}**{escape_markdown(cell.mark)}"
        return escape_markdown(column.write(cell))

    head = [escape_markdown(column.heading) for column in table.columns]
    rule = [":--" if column.is_text else "--:" for column in table.columns]
    rows = [
        [cell_of(column, cell) for column, cell in zip(table.columns, row, strict=True)]
        for row in table.rows
    ]
    title = [f"**{escape_markdown(escape_controls(table.title))}**", ""] if table.title else []
    return "\n".join([*title, line(head), line(rule), *map(line, rows)])


_TEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "–": r"\textendash{}",
    "−": "$-$",
    "ρ": r"$\rho$",
    "τ": r"$\tau$",
    "κ": r"$\kappa$",
    "α": r"$\alpha$",
    "Δ": r"$\Delta$",
    "±": r"$\pm$",
    "≥": r"$\ge$",
    "≤": r"$\le$",
    "×": r"$\times$",
    "…": r"\dots{}",
}
_TEX_MARKS = {"†": r"\dagger", "‡": r"\ddagger", "*": "*"}


def as_latex(table: Table) -> str:
    """A booktabs tabular; the best of a column in bold, marks raised."""

    def escape(text: str) -> str:
        return re.sub("-(?=-)", "-{}", "".join(_TEX.get(c, c) for c in text))  # no dash

    def cell_of(column: Column, cell: Cell) -> str:
        value = cell.value if isinstance(cell, Marked) else cell
        text = escape(column.write(value))
        if isinstance(value, int | float):
            text = re.sub("^-(?=.)", "$-$", text)
        if not isinstance(cell, Marked):
            return text
        mark = "".join(_TEX_MARKS.get(c, escape(c)) for c in cell.mark)
        return (rf"\textbf{{{text}}}" if cell.best else text) + (f"$^{{{mark}}}$" if mark else "")

    def line(cells: Sequence[str]) -> str:
        row = " & ".join(cells)
        # The end of the row before would take these for its own.
        return ("{}" if row.startswith(("[", "*")) else "") + row + r" \\"

    layout = "".join("l" if column.is_text else "r" for column in table.columns)
    rows = [
        line([cell_of(c, cell) for c, cell in zip(table.columns, row, strict=True)])
        for row in table.rows
    ]
    return "\n".join(
        [
            *([f"% {escape_controls(table.title)}"] if table.title else []),
            rf"\begin{{tabular}}{{{layout}}}",
            r"\toprule",
            line([escape(column.heading) for column in table.columns]),
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


MOST = 60  # rows of a table in a notebook


def as_html(table: Table, most: int | None = None) -> str:
    """A plain table that takes on the look of the page it stands in."""

    def cell_of(column: Column, cell: Cell) -> str:
        text = html.escape(column.write(cell.value if isinstance(cell, Marked) else cell))
        if isinstance(cell, Marked):
            text = f"<b>{text}</b>" if cell.best else text
            text += f"<sup>{html.escape(cell.mark)}</sup>" if cell.mark else ""
        return text

    def line(tag: str, cells: Sequence[str]) -> str:
        looks = [
            f"text-align:{'left' if column.is_text else 'right'}"
            + ("" if column.prose else ";white-space:nowrap")
            for column in table.columns
        ]
        return "".join(
            f'<{tag} style="{look}">{cell}</{tag}>' for look, cell in zip(looks, cells, strict=True)
        )

    rows = table.rows if most is None else table.rows[:most]
    body = [
        "<tr>"
        + line("td", [cell_of(c, cell) for c, cell in zip(table.columns, row, strict=True)])
        + "</tr>"
        for row in rows
    ]
    notes = list(table.notes)
    if len(rows) < len(table.rows):
        notes.insert(0, f"the first {len(rows)} of {len(table.rows)} rows")
    caption = (
        f"<caption>{html.escape(escape_controls(table.title))}</caption>" if table.title else ""
    )
    head = line("th", [html.escape(column.heading) for column in table.columns])
    below = "".join(f"<br>{html.escape(escape_controls(note))}" for note in notes)
    return "\n".join(
        [
            f"<table>{caption}",
            f"<thead><tr>{head}</tr></thead>",
            f"<tbody>{''.join(body)}</tbody>",
            "</table>",
            *([f'<p style="font-size:smaller;opacity:.7">{below[4:]}</p>'] if below else []),
        ]
    )
