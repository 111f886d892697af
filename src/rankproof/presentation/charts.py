"""Charts as plain data; svg.py draws them.

Four kinds are enough for every result: ranges (a value and what it could have been), curves with
bands, a scatter plot, and stacked bars. Each names its axes, carries the sentence that explains it,
and can show its data as a table, for readers who do not see it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from rankproof.presentation.json_values import plain
from rankproof.presentation.tables import Cell, Column, Table


def is_known(value: float | None) -> bool:
    """True if there is a number to draw: neither None nor NaN."""
    return value is not None and not math.isnan(value)


@dataclass(frozen=True)
class Range:
    """A row of a range chart: a value between the ends of what it could have been."""

    label: str
    value: float | None
    low: float | None = None  # None: no bounds are known
    high: float | None = None
    marker: float | None = None  # a second value, drawn as an upright line
    group: int = 0  # position of its color
    tip: str = ""  # shown at the pointer; by default label, value and bounds

    @property
    def description(self) -> str:
        """The words shown when somebody points at the row."""
        if self.tip or not is_known(self.value):
            return self.tip or f"{self.label}: undefined"
        bounds = ""
        if is_known(self.low) and is_known(self.high):
            bounds = f", from {self.low:.4f} to {self.high:.4f}"
        return f"{self.label}: {self.value:.4f}{bounds}"


@dataclass(frozen=True)
class RangeChart:
    """Horizontal bars from low to high, with a dot at each value."""

    type: ClassVar[str] = "ranges"
    title: str
    rows: Sequence[Range]
    axis: str
    groups: Sequence[str] = ()  # what the colors mean
    zero: bool = False  # the axis includes 0
    ramp: bool = False  # the groups are ordered: shades of one color
    caption: str = ""

    def table(self) -> Table:
        """Return the values and bounds of all rows."""
        columns = [Column("", "text", folds=True), *Column.each(self.axis, "low", "high")]
        rows: list[Sequence[Cell]] = [(r.label, r.value, r.low, r.high) for r in self.rows]
        if any(is_known(row.marker) for row in self.rows):
            columns.append(Column("line"))
            rows = [(*cells, r.marker) for cells, r in zip(rows, self.rows, strict=True)]
        return Table(columns, rows, self.title)


@dataclass(frozen=True)
class Curve:
    """A line with a band around it."""

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    dashed: bool = False
    group: int | None = None  # position of its color, where two lines share one


@dataclass(frozen=True)
class CurveChart:
    """Lines over x with shaded bands."""

    type: ClassVar[str] = "curves"
    title: str
    curves: Sequence[Curve]
    x_label: str
    y_label: str
    log_x: bool = False
    caption: str = ""

    def table(self) -> Table:
        """Return every point of every line."""
        columns = [Column("line", "text"), *Column.each(self.x_label, self.y_label, "low", "high")]
        rows: list[Sequence[Cell]] = []
        for curve in self.curves:
            absent = [None] * len(curve.x)
            points = zip(curve.x, curve.y, curve.low or absent, curve.high or absent, strict=True)
            rows += [(curve.label, *point) for point in points]
        return Table(columns, rows, self.title)


@dataclass(frozen=True)
class Point:
    """A point of a scatter plot; its area grows with `size`."""

    label: str
    x: float
    y: float
    size: float
    tip: str
    group: int = 0  # position of its color
    low: float | None = None  # of y
    high: float | None = None
    row: int = 0  # its row in the table that the page's script reads
    on_front: bool = False
    chosen: bool = False
    represented: bool = False  # another point represents it


@dataclass(frozen=True)
class ScatterChart:
    """Points with intervals over a logarithmic x, the Pareto front among them joined."""

    type: ClassVar[str] = "scatter"
    title: str
    points: Sequence[Point]
    x_label: str
    y_label: str
    groups: Sequence[str] = ()
    caption: str = ""

    def table(self) -> Table:
        """Return the coordinates of all points."""
        columns = [
            Column("", "text", folds=True),
            *Column.each(self.x_label, self.y_label, "low", "high"),
        ]
        return Table(columns, [(p.label, p.x, p.y, p.low, p.high) for p in self.points], self.title)


@dataclass(frozen=True)
class StackedBar:
    """A bar made of parts, each with a name and a size."""

    label: str
    parts: Sequence[tuple[str, float]]


@dataclass(frozen=True)
class StackedChart:
    """Horizontal bars made of parts."""

    type: ClassVar[str] = "stacked"
    title: str
    bars: Sequence[StackedBar]
    total: float | None = None  # value of a full bar; by default that of the longest
    digits: int = 3
    ramp: bool = False  # the parts are ordered: shades of one color
    caption: str = ""

    @property
    def part_names(self) -> list[str]:
        """The names of all parts, in the order in which they appear."""
        return list(dict.fromkeys(name for bar in self.bars for name, _ in bar.parts))

    def table(self) -> Table:
        """Return the size of every part of every bar."""
        names = self.part_names
        columns = [Column("", "text", folds=True), *Column.each(*names, digits=self.digits)]
        rows = [(bar.label, *(dict(bar.parts).get(name) for name in names)) for bar in self.bars]
        return Table(columns, rows, self.title)


Chart = RangeChart | CurveChart | ScatterChart | StackedChart

_TYPES: dict[str, tuple[type[Any], str, type[Any]]] = {
    chart.type: (chart, items, item)
    for chart, items, item in (
        (RangeChart, "rows", Range),
        (CurveChart, "curves", Curve),
        (ScatterChart, "points", Point),
        (StackedChart, "bars", StackedBar),
    )
}


def chart_to_dict(chart: Chart) -> dict[str, Any]:
    """Return a chart as JSON holds it, without values that are the default."""
    _, items, _ = _TYPES[chart.type]
    data = {"type": chart.type, **_set_fields(chart)}
    return {**data, items: [_set_fields(item) for item in getattr(chart, items)]}


def chart_from_dict(data: dict[str, Any]) -> Chart:
    """Read what `chart_to_dict` returned."""
    chart, items, item = _TYPES[data["type"]]
    values = {name: value for name, value in data.items() if name != "type"}
    read: Chart = chart(**values | {items: [item(**entry) for entry in data[items]]})
    return read


def _set_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that were set, as JSON has them."""
    values = {entry.name: (getattr(value, entry.name), entry.default) for entry in fields(value)}
    return {name: plain(given) for name, (given, default) in values.items() if given != default}


def range_charts(
    rows: Iterable[Range], title: str, axis: str, *, panels: Sequence[str], **options: Any
) -> list[Chart]:
    """Return one range chart for each panel; `panels[i]` is the panel of row i."""
    by_panel: dict[str, list[Range]] = {}
    for row, panel in zip(rows, panels, strict=True):
        by_panel.setdefault(panel, []).append(row)
    return [
        RangeChart(f"{title}: {panel}" if title else panel, members, axis, **options)
        for panel, members in by_panel.items()
    ]
