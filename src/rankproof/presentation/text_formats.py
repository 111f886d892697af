"""A presentation as CSV, Markdown or LaTeX: its tables, with all that the terminal says of them.

CSV holds values as they are; sentences follow each table in lines that begin with `# `, which
`pandas.read_csv(file, comment="#")` and `polars.read_csv(file, comment_prefix="#")` skip. Fields
with a `#` of their own are quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rankproof.foundation.printable import escape_controls, escape_formula, escape_markdown
from rankproof.presentation.result import Presentation, Summary
from rankproof.presentation.tables import Cell, Column, Marked, Table, unmarked


def to_csv(presentation: Presentation) -> str:
    """Return the tables as CSV; the header is the first line, sentences are comments below."""
    summary = presentation.summary
    caption = [summary.caption] if summary.caption else []
    comments = _csv_comments([*summary.answer.splitlines(), *caption, *_lines_after(summary)])
    # An empty line after the last table would be a row to some readers.
    return "\n".join(filter(None, [_join(map(csv_table, presentation.tables)), comments]))


def to_markdown(presentation: Presentation) -> str:
    """Return the answer, the tables with their notes, and what is said below them."""
    summary = presentation.summary
    answer = escape_markdown(escape_controls(summary.answer))
    tables = map(markdown_table, presentation.tables)
    caption = f"*{escape_markdown(summary.caption)}*" if summary.caption else ""
    return _join([answer, *tables, caption, _markdown_lines(_lines_after(summary))])


def to_latex(presentation: Presentation) -> str:
    """Return the tables as booktabs; all notes are printed below the last of them."""
    summary, tables = presentation.summary, list(presentation.tables)
    if tables:
        tables[-1] = replace(tables[-1], notes=[*tables[-1].notes, *filter(None, summary.notes)])
    comments = "\n".join(f"% {escape_controls(line)}" for line in summary.answer.splitlines())
    written = list(map(latex_table, tables))
    if summary.caption:
        caption = _escape_latex(escape_controls(summary.caption))
        table = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}"]
        written = ["\n".join([*table, *written, r"\end{table}"])]
    return _join([comments, *written])


def _join(parts: Iterable[str]) -> str:
    """Return the parts that are not empty, with an empty line between them."""
    return "\n\n".join(filter(None, parts))


def _lines_after(summary: Summary) -> list[str]:
    """Return what is said below the tables."""
    notes = [note for note in summary.notes if note]
    return [*notes, *([f"Next: {summary.next_step}"] if summary.next_step else [])]


# ------------------------------------------------------------------------------------ CSV


def csv_table(table: Table) -> str:
    """Return values as they are, undefined ones empty, without marks; notes are comments."""
    header = _csv_line(escape_formula(column.name) for column in table.columns)
    rows = [_csv_line(map(_csv_text, row)) for row in table.rows]
    return "\n".join([header, *rows, *filter(None, [_csv_comments(table.notes)])])


def _csv_text(cell: Cell) -> str:
    """Return a value as text; texts are written so that no spreadsheet runs them."""
    value = unmarked(cell)
    if value is None or value != value:
        return ""
    return escape_formula(value) if isinstance(value, str) else str(value)


def _csv_line(fields: Iterable[str]) -> str:
    quoted = [
        '"' + text.replace('"', '""') + '"' if re.search('[",#\r\n]', text) else text
        for text in fields
    ]
    return '""' if quoted == [""] else ",".join(quoted)


def _csv_comments(lines: Sequence[str]) -> str:
    return "\n".join(f"# {escape_controls(line)}" for line in lines)


# ------------------------------------------------------------------------------- Markdown


def markdown_table(table: Table) -> str:
    """Return a table of GitHub's Markdown, its title in bold above it, its notes below."""

    def write_line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    rules = [":--" if column.is_text else "--:" for column in table.columns]
    rows = [
        [_markdown_cell(column, cell) for column, cell in zip(table.columns, row, strict=True)]
        for row in table.rows
    ]
    title = [f"**{escape_markdown(escape_controls(table.title))}**", ""] if table.title else []
    header = write_line([escape_markdown(column.heading) for column in table.columns])
    notes = ["", _markdown_lines(table.notes)] if table.notes else []
    return "\n".join([*title, header, write_line(rules), *map(write_line, rows), *notes])


def _markdown_cell(column: Column, cell: Cell) -> str:
    if isinstance(cell, Marked) and cell.best:
        return f"**{escape_markdown(column.write(cell.value))}**{escape_markdown(cell.mark)}"
    return escape_markdown(column.write(cell))


def _markdown_lines(lines: Sequence[str]) -> str:
    return "\n".join(f"- {escape_markdown(escape_controls(line))}" for line in lines)


# ---------------------------------------------------------------------------------- LaTeX

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
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "→": r"$\to$",
}
_TEX_MARKS = {"†": r"\dagger", "‡": r"\ddagger", "*": "*"}


def latex_table(table: Table) -> str:
    """Return a booktabs tabular: the best of a column in bold, marks raised.

    Notes follow in `tablenotes`, for which the document needs the package threeparttable.
    """
    layout = "".join("l" if column.is_text else "r" for column in table.columns)
    rows = [
        _latex_line([_latex_cell(c, cell) for c, cell in zip(table.columns, row, strict=True)])
        for row in table.rows
    ]
    tabular = [
        rf"\begin{{tabular}}{{{layout}}}",
        r"\toprule",
        _latex_line([_escape_latex(column.heading) for column in table.columns]),
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    title = [f"% {escape_controls(table.title)}"] if table.title else []
    if not table.notes:
        return "\n".join([*title, *tabular])
    return "\n".join(
        [
            *title,
            r"\begin{threeparttable}",
            *tabular,
            r"\begin{tablenotes}\footnotesize",
            *(rf"\item[] {_escape_latex(escape_controls(note))}" for note in table.notes),
            r"\end{tablenotes}",
            r"\end{threeparttable}",
        ]
    )


def _escape_latex(text: str) -> str:
    """Return text that LaTeX prints as it is; two hyphens do not become a dash."""
    return re.sub("-(?=-)", "-{}", "".join(_TEX.get(c, c) for c in text))


def _latex_cell(column: Column, cell: Cell) -> str:
    value = unmarked(cell)
    text = _escape_latex(column.write(value))
    if isinstance(value, int | float):
        text = re.sub("^-(?=.)", "$-$", text)
    if not isinstance(cell, Marked):
        return text
    mark = "".join(_TEX_MARKS.get(c, _escape_latex(c)) for c in cell.mark)
    return (rf"\textbf{{{text}}}" if cell.best else text) + (f"$^{{{mark}}}$" if mark else "")


def _latex_line(cells: Sequence[str]) -> str:
    row = " & ".join(cells)
    # `\\` takes a following [ or * for its own argument.
    return ("{}" if row.startswith(("[", "*")) else "") + row + r" \\"
