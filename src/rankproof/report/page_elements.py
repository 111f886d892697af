"""What a page is made of: sections with paragraphs, charts and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from rankproof.presentation.html import PageStyle, table_html
from rankproof.presentation.markup import Html, element, mark_up_sentence
from rankproof.presentation.tables import Cell, Column, Table
from rankproof.report.glossary import meaning

PAGE = PageStyle(describe=meaning)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with a heading of its own."""

    key: str  # its anchor
    title: str
    words: list[str]  # sentences at its beginning
    body: list[Html] = field(default_factory=list)
    gist: str = ""  # for the top of the page, where the first sentence is not it
    kind: str = ""  # "decision": it opens the page
    quiet: bool = False  # absent from the top of the page


def paragraph(words: str, kind: str = "") -> Html:
    """Return a paragraph of this class."""
    return element("p", mark_up_sentence(words), class_=kind or None)


def badge(words: str, kind: str) -> Html:
    """Return a word that stands out; the kind is good, warn or plain."""
    return element("span", words, class_=f"badge {kind}")


def fold(title: str, content: Sequence[Html], *, opened: bool = False) -> Html:
    """Return something long, shut until a reader opens it."""
    inside = [element("summary", title), *content]
    return element("details", inside, open="" if opened else None)


def data_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    digits: int = 4,
    caption: str = "",
) -> Html:
    """Return a table whose columns are typed by what they hold: numbers right, whole ones plain."""
    columns = [
        _infer_column(heading, [row[at] for row in rows], digits)
        for at, heading in enumerate(headings)
    ]
    return table_html(Table(columns, rows, caption or None), page=PAGE)


def _infer_column(heading: str, cells: Sequence[Cell], digits: int) -> Column:
    numbers = [cell for cell in cells if isinstance(cell, int | float)]
    if not numbers or len(numbers) < sum(cell is not None for cell in cells):
        return Column(heading, "text")
    if all(math.isfinite(number) and float(number).is_integer() for number in numbers):
        return Column(heading, digits=0)
    if heading.rpartition(" ")[2] in ("ms", "MB"):
        # Milliseconds and megabytes need one decimal where there are ten or more.
        digits = 1 if any(abs(number) >= 10 for number in numbers) else digits
    return Column(heading, digits=digits)
