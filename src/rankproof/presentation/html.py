"""A presentation as HTML: a fragment for notebooks and pages, or a page of its own.

There is one writer of tables and figures. In a notebook cells carry their alignment as a style; on
a page that has a style sheet they carry classes, headings explain themselves at the pointer, and
the page's script sorts what is `sortable`.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankproof.presentation.charts import Chart
from rankproof.presentation.markup import Html, element, escape, join, mark_up_sentence
from rankproof.presentation.result import Presentation, Summary
from rankproof.presentation.svg import LIGHT, STYLE, Drawing, draw, variables
from rankproof.presentation.tables import Cell, Column, Marked, Table, unmarked

NOTEBOOK_ROWS = 60  # of a table in a notebook
_LONG = 60  # letters of a cell that no narrow column should hold
_LONG_HEADING = 24
_FAINT = "font-size:smaller;opacity:.7"
_VARIABLES = variables(LIGHT)


@dataclass(frozen=True)
class PageStyle:
    """How tables look on a page that has a style sheet and a script."""

    describe: Callable[[str], str | None]  # what a heading means; None where it is plain


def fragment(presentation: Presentation, rows: int | None = None) -> Html:
    """Return a presentation for a page that has no style of ours; at most `rows` rows a table."""
    return join(
        [
            *answer_lines(presentation.summary),
            *(table_html(table, rows=rows) for table in presentation.tables),
            *note_lines(presentation.summary),
        ]
    )


def answer_lines(summary: Summary) -> list[Html]:
    """Return the answer as paragraphs."""
    return [element("p", line) for line in summary.answer.splitlines()]


def note_lines(summary: Summary) -> list[Html]:
    """Return the notes and the next step as paragraphs."""
    next_step = [f"Next: {summary.next_step}"] if summary.next_step else []
    return [element("p", line, style=_FAINT) for line in [*summary.notes, *next_step]]


# ------------------------------------------------------------------------------------ tables


def table_html(
    table: Table,
    *,
    rows: int | None = None,
    page: PageStyle | None = None,
    sortable: bool = True,
) -> Html:
    """Return a table with its title and notes; of more than `rows` rows the first, and a note."""
    table = table if rows is None else table.shortened(rows)
    head = [_heading(column, page) for column in table.columns]
    body = [
        element("tr", [_data_cell(c, x, page) for c, x in zip(table.columns, row, strict=True)])
        for row in table.rows
    ]
    kind = "sortable" if page is not None and sortable and len(table.rows) > 2 else None
    content = [element("caption", table.title)] if table.title else []
    content += [element("thead", [element("tr", head)]), element("tbody", body)]
    drawn = element("table", content, class_=kind)
    if page is not None:
        notes = [element("p", mark_up_sentence(note), class_="note") for note in table.notes]
        return join([element("div", [drawn], class_="scroll"), *notes])
    below = Html("<br>").join(escape(note) for note in table.notes)
    return join([drawn, element("p", Html(below), style=_FAINT)] if below else [drawn])


def _heading(column: Column, page: PageStyle | None) -> Html:
    if page is None:
        return element("th", column.heading, style=_cell_style(column))
    kind = None if column.is_text else "num"
    if column.is_text and len(column.name) > _LONG_HEADING:
        kind = "name"
    meaning = page.describe(column.name)
    return element("th", column.heading, scope="col", class_=kind, title=meaning, data_tip=meaning)


def _data_cell(column: Column, cell: Cell, page: PageStyle | None) -> Html:
    content = _cell_content(column, cell)
    if page is None:
        return element("td", content, style=_cell_style(column))
    value = unmarked(cell)
    is_long = isinstance(value, str) and len(value) > _LONG
    kind = "num" if not column.is_text else "long" if is_long else None
    return element("td", content, class_=kind)


def _cell_style(column: Column) -> str:
    alignment = f"text-align:{'left' if column.is_text else 'right'}"
    return alignment if column.prose else f"{alignment};white-space:nowrap"


def _cell_content(column: Column, cell: Cell) -> Html:
    """Return a cell for a browser: thousands apart, a true minus, names that break after a `_`."""
    value = unmarked(cell)
    if isinstance(value, bool):
        return escape("yes" if value else "no")
    if isinstance(value, int):
        text = escape(f"{value:,}".replace("-", "−"))
    elif isinstance(value, float):
        text = escape(column.write(value).replace("-", "−", 1))
    else:
        text = Html(escape(column.write(value)).replace("_", "_<wbr>"))
    if not isinstance(cell, Marked):
        return text
    mark = [element("sup", cell.mark)] if cell.mark else []
    return join([element("b", text) if cell.best else text, *mark])


# ----------------------------------------------------------------------------------- figures


def figure(chart: Chart, *, with_data: bool = False) -> Html:
    """Return a chart with its legend and caption; `with_data` adds a table to open."""
    drawing = draw(chart)
    if drawing is None:
        return Html()
    parts = [element("div", [drawing.on_page()], class_="scroll"), _legend(drawing)]
    if chart.caption:
        parts.append(element("figcaption", chart.caption))
    if with_data:
        data = table_html(chart.table(), page=PageStyle(lambda heading: None))
        parts.append(element("details", [element("summary", "Data of this chart"), data]))
    return element("figure", parts)


def _legend(drawing: Drawing) -> Html:
    """Return a legend whose entries the page's script makes switches of their series."""
    buttons = [
        element(
            "button",
            [
                element(
                    "span", class_="key dash" if key.dashed else "key", style=f"color:{key.color}"
                ),
                key.label,
            ],
            type="button",
            data_toggle=str(key.series),
            aria_pressed="true",
        )
        for key in drawing.legend
    ]
    return element("div", buttons, class_="legend") if buttons else Html()


# ------------------------------------------------------------------------------------- pages


def charts_fragment(charts: Sequence[Chart]) -> Html:
    """Return charts for a notebook, with the colors that they need."""
    figures = [join([element("b", chart.title), figure(chart)]) for chart in charts]
    style = Html(f"<style>{STYLE}{_LEGEND_STYLE}</style>")
    return element("div", [style, *figures], style=_VARIABLES + "max-width:58rem")


def charts_page(charts: Sequence[Chart]) -> str:
    """Return charts as one page that needs nothing else, each with its data as a table."""
    title = charts[0].title if charts else "Charts"
    body = [join([element("h2", chart.title), figure(chart, with_data=True)]) for chart in charts]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title>"
        f"<style>:root{{{_VARIABLES}}}{_PAGE_STYLE}{STYLE}{_LEGEND_STYLE}</style></head>"
        f"<body>{join(body)}</body></html>\n"
    )


_PAGE_STYLE = """
body { margin: 1rem auto; max-width: 60rem; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; }
.scroll { overflow-x: auto; } .chart { width: 100%; min-width: 40rem; height: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .2rem .7rem .2rem 0; text-align: left; } .num { text-align: right; }
figure { margin: 1rem 0; } figcaption { font-size: .9rem; color: var(--quiet); }
"""
_LEGEND_STYLE = """
.legend { display: flex; flex-wrap: wrap; gap: .4rem 1rem; }
.legend button { border: 0; background: none; color: inherit; font: inherit; font-size: .88rem; }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: 3px; margin-right: .4rem;
  background: currentColor; }
.key.dash { height: 0; border-radius: 0; background: none; border-top: 3px dashed currentColor; }
"""
