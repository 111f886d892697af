"""What the page is made of: sections of words, charts and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from rankproof.report.configuration_names import meaning
from rankproof.report.svg import element, shown


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with a heading of its own."""

    key: str  # its anchor
    title: str
    words: list[str]  # what it says, first
    body: list[Markup] = field(default_factory=list)
    gist: str = ""  # for the top of the page, where its first words are not it
    kind: str = ""  # "decision": it opens the page
    quiet: bool = False  # the top of the page does not speak of it


def paragraph(words: str, kind: str = "") -> Markup:
    return element("p", words, class_=kind or None)


def figure(picture: Markup, words: str) -> Markup:
    """A chart with what it shows below it."""
    if not picture:
        return Markup("")
    scroll = element("div", [picture], class_="scroll")
    return element("figure", [scroll, element("figcaption", words)])


_LONG = 60  # letters of a cell that no narrow column should hold

Cell = str | float | int | None | Markup


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    digits: int = 4,
    sort: bool = True,
    caption: str = "",
) -> Markup:
    """A table; numbers stand right, and the page's script sorts and filters it."""
    numeric = [
        any(isinstance(row[at], int | float) for row in rows)
        and all(row[at] is None or isinstance(row[at], int | float) for row in rows)
        for at in range(len(heads))
    ]
    exact = [
        numeric[at] and all(row[at] is None or float(row[at]).is_integer() for row in rows)  # type: ignore[arg-type]
        for at in range(len(heads))
    ]
    places = [_places(name, [row[at] for row in rows], digits) for at, name in enumerate(heads)]
    head = [
        element("th", head, scope="col", class_=_head_class(head, numeric[at]), **_meant(head))
        for at, head in enumerate(heads)
    ]
    body = [
        element(
            "tr",
            [_cell(x, numeric[at], 0 if exact[at] else places[at]) for at, x in enumerate(row)],
        )
        for row in rows
    ]
    inside = [element("caption", caption)] if caption else []
    inside += [element("thead", [element("tr", head)]), element("tbody", body)]
    kind = "sortable" if sort and len(rows) > 2 else None
    return element("div", [element("table", inside, class_=kind)], class_="scroll")


def _places(head: str, cells: Sequence[Cell], digits: int) -> int:
    """Decimals of a column: of milliseconds and megabytes one, where there are ten or more."""
    if head.rpartition(" ")[2] not in ("ms", "MB"):
        return digits
    return 1 if any(isinstance(x, int | float) and abs(x) >= 10 for x in cells) else digits


def _head_class(head: str, numeric: bool) -> str | None:
    """A name as a heading breaks where it is longer than any word of ours."""
    return "num" if numeric else "name" if len(head) > 24 else None


def _meant(head: str) -> dict[str, str]:
    """What a heading means, for the pointer."""
    said = meaning(head)
    return {} if said is None else {"title": said, "data_tip": said}


def _cell(cell: Cell, numeric: bool, digits: int) -> Markup:
    if cell is None or cell != cell:
        return element("td", "–", class_="num" if numeric else None)
    if isinstance(cell, Markup):
        return element("td", [cell])
    if isinstance(cell, bool):
        return element("td", "yes" if cell else "no")
    if isinstance(cell, float):
        return element("td", figured(cell, digits), class_="num")
    if isinstance(cell, int):
        return element("td", f"{cell:,}", class_="num")
    broken = Markup("_<wbr>").join(shown(part) for part in cell.split("_"))
    return element("td", [broken], class_="long" if len(cell) > _LONG else None)


def figured(value: float, digits: int, sign: str = "") -> str:
    """Write a number for people: a true minus, no −0, and a dash for one that is undefined."""
    if math.isnan(value):
        return "–"
    written = f"{value:{sign},.{digits}f}"
    return written.replace("-", "−") if round(value, digits) else f"{0:.{digits}f}"


def badge(words: str, kind: str) -> Markup:
    """A word that stands out: good, warn or plain."""
    return element("span", words, class_=f"badge {kind}")


def fold(title: str, content: Sequence[Markup], *, opened: bool = False) -> Markup:
    """Something long, shut until it is opened."""
    inside = [element("summary", title), *content]
    return element("details", inside, open="" if opened else None)
