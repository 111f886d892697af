"""Print a presentation on a terminal, with rich.

Rows are fitted to the terminal before they are drawn: a number is never cut, and a row takes one
line, except for sentences. With `--wide`, or if the output goes to a pipe, every column is shown.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from rankproof.foundation.errors import first_few
from rankproof.foundation.printable import escape_controls
from rankproof.presentation.result import Presentation
from rankproof.presentation.tables import Column, Marked, Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WIDEST = 10_000  # columns: no name is shortened, no column dropped
_PIPE_WIDTH = 200  # of a pipe or a file, which have no edge to wrap at
_INDENT = 2  # spaces before each line of a table
_NAME_WIDTH = 16  # names are shortened to this before a column is dropped
_SHORTEST_NAME = 8
NAME_IN_SENTENCE = 24  # to which names of runs are shortened in sentences


def print_presentation(
    presentation: Presentation, *, wide: bool = False, explain: bool = False
) -> None:
    """Print a presentation on standard output, as wide as the terminal."""
    _write(presentation, _console(), WIDEST if wide else _terminal_width(), explain)


def to_text(presentation: Presentation, width: int = 80) -> str:
    """Return a presentation as a terminal of this width shows it, without colors."""
    file = io.StringIO()
    _write(presentation, _console(file), width)
    return file.getvalue().rstrip("\n")


def _console(file: TextIO | None = None) -> Console:
    """Return a console that never wraps: lines are fitted before."""
    from rich.console import Console

    return Console(highlight=False, width=WIDEST, file=file)


def _write(presentation: Presentation, console: Console, width: int, explain: bool = False) -> None:
    """Write the answer, the tables with their notes, the notes of all, and the next step."""
    summary = presentation.summary
    blocks: list[Callable[[], None]] = []
    if summary.answer:
        blocks.append(partial(_write_lines, summary.answer.splitlines(), console, width))
    blocks += [partial(_write_table, table, console, width) for table in presentation.tables]
    last_lines = list(filter(None, [summary.caption, *summary.notes]))
    if summary.next_step:
        last_lines.append(f"Next: {summary.next_step}")
    if last_lines:
        blocks.append(partial(_write_lines, last_lines, console, width))
    if explain and summary.details:
        blocks.append(partial(_write_lines, summary.details, console, width))
    for number, write_block in enumerate(blocks):
        if number:
            console.print()
        write_block()


def _write_table(table: Table, console: Console, width: int) -> None:
    """Write a table and the notes that belong to its columns."""
    fitted, gap = fit(table, width - _INDENT)
    for line in drawn_lines(fitted, gap):
        console.print(line, soft_wrap=True)
    _write_lines([f"  {note}" for note in fitted.notes], console, width, "dim")


def _terminal_width() -> int:
    """Return the columns to fill: the terminal's, or those that COLUMNS names."""
    from rich.console import Console

    console = Console()
    if console.is_terminal or os.environ.get("COLUMNS", "").strip("0").isdigit():
        return console.width or 80  # some terminals report 0
    return _PIPE_WIDTH


def print_lines(lines: Iterable[str], *, wide: bool = False) -> None:
    """Print sentences on standard output, wrapped between words."""
    _write_lines(lines, _console(), WIDEST if wide else _terminal_width())


def _write_lines(lines: Iterable[str], console: Console, width: int, style: str = "") -> None:
    from rich.text import Text

    for line in lines:
        for part in wrap(escape_controls(line), min(width, _PIPE_WIDTH)):
            console.print(Text(part, style), soft_wrap=True)


def wrap(line: str, width: int) -> list[str]:
    """Return a line broken between words; what continues it begins where its text began.

    A command or a path to be copied stays whole: the terminal breaks it, and copies no line end.
    """
    from rich.text import Text

    if re.match(r" {6}|Next: |page: ", line):
        return [line.rstrip()]
    prefix = re.match(r" *(?:rankproof: )?", line)
    indent = len(prefix[0]) if prefix else 0
    parts = Text(line[indent:]).wrap(_console(), max(20, width - indent))
    wrapped = [f"{' ' * indent}{part.plain}".rstrip() for part in parts]
    return [line[:indent] + wrapped[0][indent:], *wrapped[1:]] if wrapped else [line.rstrip()]


# ------------------------------------------------------------------------------------ tables


def shorten_middle(text: str, width: int) -> str:
    """Return a name shortened in the middle, since beginning and end tell names apart.

    A width is that on the terminal, where a Chinese character or an emoji takes two columns.
    """
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return text
    tail_width = max(0, (width - 1) // 2)
    head_width = max(0, width - 1 - tail_width)
    head, tail = text[:head_width], text[len(text) - tail_width :]
    while cell_len(head) > head_width:
        head = head[:-1]
    while cell_len(tail) > tail_width:
        tail = tail[1:]
    return f"{head}…{tail}"


def name_in_sentence(name: str) -> str:
    """Return a run's name as sentences have it: tables have the whole name."""
    return shorten_middle(name, NAME_IN_SENTENCE)


def fit(table: Table, width: int) -> tuple[Table, int]:
    """Return what fits into `width` columns, and the spaces between cells.

    First a space between cells goes, then the words that all names end in, then names are shortened
    in the middle, then columns are dropped in their order, with a note: so many that different
    names still look different. A number is never cut.
    """
    layout = _Layout(table, width)
    layout.fit()
    return layout.fitted_table(), layout.gap


@dataclass
class _Layout:
    """A table on its way to fit a width; each step of `fit` gives up a little more."""

    table: Table
    width: int
    gap: int = 2  # spaces between cells
    name_width: int | None = None  # to which names and sentences are shortened; None: not at all

    def __post_init__(self) -> None:
        self.columns = list(range(len(self.table.columns)))  # positions of those that stay
        self._measure()

    def _measure(self) -> None:
        from rich.cells import cell_len

        self.texts = self.table.written()
        self.cell_widths = [
            max((cell_len(row[at]) for row in self.texts), default=0)
            for at in range(len(self.table.columns))
        ]

    def fit(self) -> None:
        """Give up spaces, common endings, long names and columns until the table fits."""
        if self._needed(None) > self.width:
            self.gap = 1
        if self._needed(None) > self.width:
            self.table = _without_common_endings(self.table)
            self._measure()
        if self._needed(None) > self.width:
            self._shorten_names()

    def _shorten_names(self) -> None:
        """Drop columns until shortened names fit and differ, then widen names to the full width."""
        from rich.cells import cell_len

        headings = [cell_len(c.name) for c in self.table.columns if c.folds]
        name_width = max([_NAME_WIDTH, *headings])
        for order in sorted({c.drop for c in self.table.columns if c.drop}):
            if self._needed(name_width) <= self.width and self._names_differ(name_width):
                break
            self.columns = [at for at in self.columns if self.table.columns[at].drop != order]
        while self._needed(name_width) > self.width and name_width > _SHORTEST_NAME:
            name_width -= 1
        while self._needed(name_width) > self.width and len(self.columns) > 2:
            self.columns.pop()
        self.name_width = self._widest_names(name_width)

    def _column_widths(self, name_width: int | None) -> list[int]:
        """Return the width of each column that stays, names shortened to `name_width`."""
        from rich.cells import cell_len

        widths = []
        for at in self.columns:
            column, cells = self.table.columns[at], self.cell_widths[at]
            heading = cell_len(column.heading)
            if name_width is not None:
                shrinks = column.folds or column.prose
                heading = min(heading, max(name_width, 0 if shrinks else cells))
                cells = min(cells, name_width) if shrinks else cells
            widths.append(max(heading, cells))
        return widths

    def _needed(self, name_width: int | None) -> int:
        """Return the width of the whole table."""
        gaps = self.gap * (len(self.columns) - 1)
        return sum(self._column_widths(name_width)) + gaps

    def _widest_names(self, name_width: int) -> int:
        """Return the largest width of names with which the table still fits."""
        while self._needed(name_width + 1) <= self.width and name_width < self.width:
            name_width += 1
        return name_width

    def _names_differ(self, name_width: int) -> bool:
        """True if different names still look different when they are shortened."""
        widths = self._column_widths(self._widest_names(name_width))
        for at, width in zip(self.columns, widths, strict=True):
            if self.table.columns[at].folds:
                names = {row[at] for row in self.texts}
                if len({shorten_middle(name, width) for name in names}) < len(names):
                    return False
        return True

    def fitted_table(self) -> Table:
        """Return the table with shortened names, and a note of the columns that were dropped."""
        widths = self._column_widths(self.name_width)
        shown = self.table.only(self.columns)
        columns = [
            replace(
                column,
                name=shorten_middle(column.heading, width),
                width=width if column.prose else None,
            )
            for column, width in zip(shown.columns, widths, strict=True)
        ]
        rows = [
            [
                shorten_middle(column.write(cell), width) if column.folds else cell
                for column, width, cell in zip(columns, widths, row, strict=True)
            ]
            for row in shown.rows
        ]
        return Table(columns, rows, shown.title, [*shown.notes, *self._note_of_dropped()])

    def _note_of_dropped(self) -> list[str]:
        dropped = [at for at in range(len(self.table.columns)) if at not in self.columns]
        if not dropped:
            return []
        names = [shorten_middle(self.table.columns[at].heading, 24) for at in dropped]
        pronoun = "them" if len(names) > 1 else "it"
        listed = first_few(names, 8)
        return [f"not shown: {listed}; --wide shows {pronoun}"]


def _without_common_endings(table: Table) -> Table:
    """Return a table whose names lack the last words that all of them share; a note has those."""
    rows, notes = [list(row) for row in table.rows], list(table.notes)
    for at, column in enumerate(table.columns):
        names = [str(row[at]).split(" ") for row in rows] if column.folds else []
        if len({tuple(name) for name in names}) < 2:
            continue
        shared = _common_ending(names)
        if shared:
            notes.insert(0, f"every {column.name} ends in: {' '.join(names[0][-shared:])}")
            for row, name in zip(rows, names, strict=True):
                row[at] = " ".join(name[:-shared])
    return replace(table, rows=rows, notes=notes)


def _common_ending(names: Sequence[Sequence[str]]) -> int:
    """Return how many last words all names share; each keeps at least one of its own."""
    shared = 0
    shortest = min(map(len, names))
    while shared + 1 < shortest and len({name[-1 - shared] for name in names}) == 1:
        shared += 1
    return shared


def drawn_lines(table: Table, gap: int) -> list[Text]:
    """Return the lines of a table: its title and headings in bold, then the rows.

    A row takes one line, except where it holds sentences, which wrap inside their column.
    """
    from rich.text import Text

    columns = table.columns
    bold = ["dim bold" if column.dim else "bold" for column in columns]
    headings = [
        [Text(part, style) for part in _wrapped_cell(column.heading, column)]
        for column, style in zip(columns, bold, strict=True)
    ]
    rows = [
        [_cell_lines(c, cell) for c, cell in zip(columns, row, strict=True)] for row in table.rows
    ]
    widths = [
        max(part.cell_len for cell in (heading, *(row[at] for row in rows)) for part in cell)
        for at, heading in enumerate(headings)
    ]
    title = [Text(escape_controls(table.title), "bold")] if table.title else []
    return title + [
        line for cells in (headings, *rows) for line in _row_lines(cells, columns, widths, gap)
    ]


def _row_lines(
    cells: Sequence[list[Text]], columns: Sequence[Column], widths: Sequence[int], gap: int
) -> list[Text]:
    """Return the lines of one row; text is aligned left, numbers right."""
    from rich.text import Text

    lines = []
    for number in range(max(map(len, cells))):
        line = Text(" " * _INDENT)
        for at, (cell, column, width) in enumerate(zip(cells, columns, widths, strict=True)):
            part = cell[number].copy() if number < len(cell) else Text()
            space = " " * (width - part.cell_len)
            line.append_text(part if column.is_text else Text(space).append_text(part))
            is_last = at == len(columns) - 1
            line.append("" if is_last else (space if column.is_text else "") + " " * gap)
        line.rstrip()
        lines.append(line)
    return lines


def _cell_lines(column: Column, cell: Any) -> list[Text]:
    from rich.text import Text

    style = "bold" if isinstance(cell, Marked) and cell.best else "dim" if column.dim else ""
    return [Text(part, style) for part in _wrapped_cell(column.write(cell), column)]


def _wrapped_cell(text: str, column: Column) -> list[str]:
    """Return the lines of a cell: several where sentences were fitted to a width."""
    from rich.text import Text

    if column.width is None:
        return [text]
    return [part.plain for part in Text(text).wrap(_console(), max(1, column.width))] or [""]
