"""Draw charts as SVG, without a library and without a script.

On a page the colors are CSS variables (`--c0` … `--c7`, Okabe and Ito's palette; `--g0` … for
ordered groups), which the page sets for light and dark; in a file of its own a drawing has the
light ones and its legend inside. Marks carry what they show as `<title>`, which browsers show at
the pointer, and rows are in the tab order.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankproof.foundation.printable import escape_controls
from rankproof.presentation.charts import (
    Chart,
    Curve,
    CurveChart,
    Point,
    Range,
    RangeChart,
    ScatterChart,
    StackedBar,
    StackedChart,
    is_known,
)
from rankproof.presentation.markup import Html, coordinate, element, escape

LABEL_LENGTH = 34  # letters of a row's label
LONG_LABEL_LENGTH = 50  # the same in a chart with narrow marks
_RIGHT = 770.0
_ROW_HEIGHT = 26.0
_LEGEND_HEIGHT = 22.0

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1a1d21",
    "quiet": "#5b6470",
    "line": "#d9dee4",
    "c0": "#d55e00",
    "c1": "#0072b2",
    "c2": "#009e73",
    "c3": "#cc79a7",
    "c4": "#b8860b",
    "c5": "#56b4e9",
    "c6": "#6b6b6b",
    "c7": "#7f3c8d",
    "g0": "#08306b",
    "g1": "#2171b5",
    "g2": "#6baed6",
    "g3": "#a6cbe3",
    "g4": "#cbd1d8",
    "g5": "#b8860b",
}
DARK = {
    "paper": "#14171b",
    "ink": "#e8eaed",
    "quiet": "#a4adb8",
    "line": "#343b44",
    "c0": "#ff8a3d",
    "c1": "#4aa8e0",
    "c2": "#2ec99a",
    "c3": "#e3a3c6",
    "c4": "#e0b93a",
    "c5": "#8fd0f5",
    "c6": "#a0a0a0",
    "c7": "#c08ad0",
    "g0": "#cfe6ff",
    "g1": "#7db8f0",
    "g2": "#4285c6",
    "g3": "#30587f",
    "g4": "#3d4650",
    "g5": "#e0b93a",
}
STYLE = """
.chart { font: 12.5px system-ui, sans-serif; }
.chart text { fill: var(--ink); }
.chart .label { text-anchor: end; }
.chart .tick { fill: var(--quiet); font-size: 11.5px; }
.chart .axis { fill: var(--quiet); text-anchor: middle; }
.chart .middle { text-anchor: middle; }
.chart .end { text-anchor: end; }
.chart .grid { stroke: var(--line); }
.chart .zero { stroke: var(--quiet); }
.chart .range { fill: currentColor; opacity: .35; }
.chart .dot { fill: currentColor; }
.chart .marker { stroke: var(--ink); stroke-width: 2; }
.chart .band { fill: currentColor; opacity: .18; }
.chart .line { fill: none; stroke: currentColor; stroke-width: 2; }
.chart .dashed { stroke-dasharray: 5 4; }
.chart .front { fill: none; stroke: var(--quiet); stroke-width: 1.5; }
.chart .point { fill: currentColor; fill-opacity: .7; stroke: var(--paper); stroke-width: 1; }
.chart .point.front { stroke: var(--ink); stroke-width: 2; }
.chart .whisker { stroke: currentColor; stroke-width: 1.5; opacity: .45; }
.chart .member { fill-opacity: .6; stroke: none; }
.chart .out { opacity: .12; }
.chart .point.chosen { fill-opacity: 1; stroke: var(--ink); stroke-width: 4; }
.chart .whisker.chosen { opacity: 1; stroke-width: 2.5; }
.chart .part { fill: currentColor; }
.chart .inside { fill: var(--paper); font-weight: 600; font-size: 11.5px; pointer-events: none; }
.chart .inside.faint { fill: var(--ink); }
.chart .off { visibility: hidden; }
"""


@dataclass(frozen=True)
class Key:
    """An entry of a legend: a name, its color, and the series that it switches."""

    label: str
    color: str
    series: int
    dashed: bool = False


@dataclass(frozen=True)
class Drawing:
    """The marks of one chart, its size, and its legend."""

    title: str
    width: float
    height: float
    marks: Sequence[Html]
    legend: Sequence[Key] = ()

    def on_page(self) -> Html:
        """Return the drawing for a page that sets the colors; the legend is the page's."""
        return element(
            "svg",
            self.marks,
            viewBox=f"0 0 {coordinate(self.width)} {coordinate(self.height)}",
            role="group",
            aria_label=self.title,
            class_="chart",
        )


def draw(chart: Chart) -> Drawing | None:
    """Return a chart's drawing; None where it has nothing to draw."""
    if isinstance(chart, RangeChart):
        return _draw_ranges(chart)
    if isinstance(chart, CurveChart):
        return _draw_curves(chart)
    if isinstance(chart, ScatterChart):
        return _draw_scatter(chart)
    return _draw_stacked(chart)


def to_svg(charts: Sequence[Chart], *, themed: bool = False) -> str:
    """Return charts below one another as an SVG file, with titles and legends.

    Colors are the light ones; a `themed` file follows a browser's light or dark theme, but other
    programs do not know its variables.
    """
    parts: list[Html] = []
    top, width = 0.0, 0.0
    for drawing in filter(None, map(draw, charts)):
        parts.append(_text(8, top + 18, drawing.title, class_="title"))
        move = f"translate(0 {coordinate(top + 28)})"
        parts.append(element("g", drawing.marks, transform=move))
        top += 28 + drawing.height
        legend, height = _draw_legend(drawing.legend, top)
        parts += legend
        top += height + 12
        width = max(width, drawing.width)
    style = STYLE + ".chart .title { font-size: 15px; font-weight: 600; }\n"
    drawn = element(
        "svg",
        [element("rect", width="100%", height="100%", fill="var(--paper)"), *parts],
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {coordinate(width)} {coordinate(top)}",
        width=width,
        height=top,
        class_="chart",
    )
    if themed:
        style += (
            f":root {{ {variables(LIGHT)} }}\n"
            f"@media (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)} }} }}\n"
        )
    whole = drawn.replace(">", f"><style>{style}</style>", 1) + "\n"
    if themed:
        return whole
    return re.sub(r"var\(--(\w+)\)", lambda variable: LIGHT[variable[1]], whole)


def variables(colors: Mapping[str, str]) -> str:
    """Return colors as variables of a style sheet."""
    return " ".join(f"--{name}: {color};" for name, color in colors.items())


def _draw_legend(keys: Sequence[Key], top: float) -> tuple[list[Html], float]:
    """Return a legend's marks in rows from `top` down, and their height."""
    x, y, parts = 16.0, top, []
    for key in keys:
        width = 34 + sum(map(_letter_width, key.label))
        if x > 16 and x + width > _RIGHT:
            x, y = 16.0, y + _LEGEND_HEIGHT
        style = f"color:{key.color}"
        kind = "line dashed" if key.dashed else "line"
        parts += [
            _line(x, y + 10, x + 16, y + 10, kind, style=style, stroke_width="4"),
            _text(x + 22, y + 14, key.label),
        ]
        x += width
    return parts, (y - top + _LEGEND_HEIGHT if keys else 0.0)


# ------------------------------------------------------------------------------------ scales


@dataclass(frozen=True, slots=True)
class Scale:
    """Data → pixels, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = (math.log10(max(v, 1e-12)) for v in (low, high, value))
        share = 0.5 if high == low else (value - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Return about `count` round numbers between the ends."""
        return (
            _log_ticks(self.low, self.high) if self.log else nice_ticks(self.low, self.high, count)
        )


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return at most `count` + 1 multiples of 1, 2, 2.5 or 5 × 10ⁿ between two ends."""
    if not high > low:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / count))
    for factor in (1, 2, 2.5, 5, 10):
        if (high - low) / (step * factor) <= count:
            step *= factor
            break
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(position * step, 12) for position in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 × 10ⁿ between two ends, or powers of ten alone where those are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    inside = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
    return inside if len(inside) <= 7 else [t for t in inside if f"{t:e}".startswith("1")]


def short(value: float) -> str:
    """Return a number as an axis shows it."""
    if value == 0:
        return "0"
    return f"{value:.10g}" if abs(value) >= 1e-4 else f"{value:.0e}"


# ------------------------------------------------------------------------------------- marks


def color(group: int, ramp: bool = False) -> str:
    """Return the color of a group: one of eight that differ, or a shade from strong to pale."""
    return f"var(--g{min(group, 5)})" if ramp else f"var(--c{group % 8})"


def clip(label: str, length: int) -> str:
    """Return a label that fits; its end stays, which often tells two apart."""
    return label if len(label) <= length else f"{label[: length - 11]}…{label[-10:]}"


def _label_width(labels: Iterable[str], length: int = LABEL_LENGTH) -> float:
    """Return the pixels at the left that labels need as they are clipped."""
    clipped = (clip(escape_controls(label), length) for label in labels)
    return 28.0 + max((sum(map(_letter_width, label)) for label in clipped), default=0.0)


def _letter_width(letter: str) -> float:
    """Return the pixels that a letter takes in a font that runs wide."""
    if letter in "mwMW@%" or unicodedata.east_asian_width(letter) in "WF":
        return 13.0
    if not letter.isascii():
        return 10.0
    return 9.0 if letter.isupper() or letter.isdigit() else 7.0


def _text(x: float, y: float, words: str, **attributes: object) -> Html:
    return element("text", words, x=float(x), y=float(y), **attributes)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str, **attributes: object) -> Html:
    return element("line", (), x1=x1, y1=y1, x2=x2, y2=y2, class_=kind, **attributes)


def _row_label(label: str, left: float, y: float, length: int) -> Html:
    return element(
        "text",
        [element("title", label), escape(clip(label, length))],
        x=left - 10,
        y=y + 4,
        class_="label",
    )


def _vertical_grid(scale: Scale, top: float, bottom: float) -> list[Html]:
    """Return lines across, with their numbers below."""
    parts = []
    for tick in scale.ticks():
        x = scale(tick)
        parts.append(_line(x, top, x, bottom, "grid"))
        parts.append(_text(x, bottom + 16, short(tick), class_="tick middle"))
    return parts


def _horizontal_grid(scale: Scale, left: float, right: float, count: int = 5) -> list[Html]:
    """Return lines from left to right, with their numbers at the left."""
    parts = []
    for tick in scale.ticks(count):
        y = scale(tick)
        parts.append(_line(left, y, right, y, "grid"))
        parts.append(_text(left - 8, y + 4, short(tick), class_="tick end"))
    return parts


def _keys(labels: Sequence[str], ramp: bool = False) -> list[Key]:
    """Return a legend for labels; one label alone needs none."""
    if len(labels) < 2:
        return []
    return [Key(label, color(at, ramp), at) for at, label in enumerate(labels)]


def _polyline(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{coordinate(x)},{coordinate(y)}" for x, y in points)


# ------------------------------------------------------------------------------------ ranges


def _draw_ranges(chart: RangeChart) -> Drawing | None:
    values = [
        float(value)
        for row in chart.rows
        for value in (row.low, row.high, row.value, row.marker)
        if value is not None and not math.isnan(value)
    ]
    if not values:
        return None
    top, left = 8.0, _label_width(row.label for row in chart.rows)
    bottom = top + _ROW_HEIGHT * len(chart.rows)
    scale = _range_scale(values, left, chart.zero)
    marks = _vertical_grid(scale, top, bottom)
    if chart.zero:
        marks.append(_line(scale(0), top, scale(0), bottom, "zero"))
    for position, row in enumerate(chart.rows):
        y = top + _ROW_HEIGHT * (position + 0.5)
        marks.append(_row_label(row.label, left, y, LABEL_LENGTH))
        marks.append(_draw_range(row, scale, y, chart.ramp))
    marks.append(_text((left + _RIGHT) / 2, bottom + 34, chart.axis, class_="axis"))
    return Drawing(
        chart.title, _RIGHT + 20, bottom + 42, marks, legend=_keys(chart.groups, chart.ramp)
    )


def _range_scale(values: Sequence[float], left: float, zero: bool) -> Scale:
    """Return a scale with a margin of 4% on both sides of all values; none at 0 if `zero`."""
    low, high = min(values), max(values)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    margin = (high - low) * 0.04 or 0.05
    return Scale(low - (0 if zero and low == 0 else margin), high + margin, left, _RIGHT)


def _draw_range(row: Range, scale: Scale, y: float, ramp: bool) -> Html:
    parts = [element("title", row.description)]
    if row.low is not None and row.high is not None and is_known(row.low) and is_known(row.high):
        ends = scale(row.low), scale(row.high)
        width = max(abs(ends[1] - ends[0]), 1.0)
        rect = element("rect", x=min(ends), y=y - 5, width=width, height=10, rx=3, class_="range")
        parts.append(rect)
    if row.marker is not None and is_known(row.marker):
        x = scale(row.marker)
        parts.append(_line(x, y - 8, x, y + 8, "marker"))
    if row.value is not None and is_known(row.value):
        parts.append(element("circle", cx=scale(row.value), cy=y, r=4.5, class_="dot"))
    return element(
        "g",
        parts,
        class_="bar",
        style=f"color:{color(row.group, ramp)}",
        data_series=str(row.group),
        tabindex="0",
        role="img",
    )


# ------------------------------------------------------------------------------------ curves


def _draw_curves(chart: CurveChart) -> Drawing | None:
    width, height, left, bottom, top = 780.0, 330.0, 56.0, 280.0, 12.0
    xs = sorted({x for curve in chart.curves for x in curve.x})
    ys = [
        float(value)
        for curve in chart.curves
        for value in (*curve.y, *curve.low, *curve.high)
        if value is not None and not math.isnan(value)
    ]
    if not xs or not ys:
        return None
    margin = (max(ys) - min(ys)) * 0.06 or 0.02
    x_scale = Scale(xs[0], xs[-1], left, width - 16, log=chart.log_x)
    y_scale = Scale(min(ys) - margin, max(ys) + margin, bottom, top)
    marks = _horizontal_grid(y_scale, left, width - 16, 7)
    marks += [
        _text(x_scale(x), bottom + 18, short(x), class_="tick middle")
        for x in (xs if len(xs) <= 12 else x_scale.ticks(8))
    ]
    legend = []
    for position, curve in enumerate(chart.curves):
        hue = color(position if curve.group is None else curve.group)
        parts = _draw_curve(curve, chart.x_label, x_scale, y_scale)
        style = f"color:{hue}"
        series = element("g", parts, class_="series", data_series=str(position), style=style)
        marks.append(series)
        legend.append(Key(curve.label, hue, position, curve.dashed))
    marks.append(_text((left + width) / 2, height - 8, chart.x_label, class_="axis"))
    marks.append(_text(left, top - 2, chart.y_label, class_="tick"))
    return Drawing(chart.title, width, height, marks, legend if len(legend) > 1 else [])


def _draw_curve(curve: Curve, x_label: str, x_scale: Scale, y_scale: Scale) -> list[Html]:
    """Return the band, the line and the points of a curve; undefined points are skipped."""
    parts = []
    if curve.low and curve.high:
        upper = _known_points(curve.x, curve.high, x_scale, y_scale)
        lower = _known_points(curve.x, curve.low, x_scale, y_scale)
        parts.append(element("polygon", points=_polyline([*upper, *lower[::-1]]), class_="band"))
    line = _polyline(_known_points(curve.x, curve.y, x_scale, y_scale))
    kind = "line dashed" if curve.dashed else "line"
    parts.append(element("polyline", points=line, class_=kind))
    for position, (x, y) in enumerate(zip(curve.x, curve.y, strict=True)):
        if y is None or not is_known(y):
            continue
        low, high = (ends[position] if ends else None for ends in (curve.low, curve.high))
        bounds = ""
        if low is not None and high is not None:
            bounds = f", {low:.4f} to {high:.4f}"
        tip = element("title", f"{curve.label}, {x_label} {short(x)}: {y:.4f}{bounds}")
        parts.append(element("circle", [tip], cx=x_scale(x), cy=y_scale(y), r=3.5, class_="dot"))
    return parts


def _known_points(
    xs: Sequence[float], ys: Sequence[float | None], x_scale: Scale, y_scale: Scale
) -> list[tuple[float, float]]:
    points = zip(xs, ys, strict=True)
    return [(x_scale(x), y_scale(y)) for x, y in points if y is not None and is_known(y)]


# ----------------------------------------------------------------------------------- scatter


def _draw_scatter(chart: ScatterChart) -> Drawing | None:
    if not chart.points:
        return None
    width, height, left, bottom, top = 780.0, 400.0, 60.0, 344.0, 16.0
    xs = [p.x for p in chart.points]
    ys = [y for p in chart.points for y in (p.y, p.low, p.high) if y is not None]
    margin = (max(ys) - min(ys)) * 0.08 or 0.02
    x_scale = Scale(min(xs) / 1.25, max(xs) * 1.25, left, width - 16, log=True)
    y_scale = Scale(min(ys) - margin, max(ys) + margin, bottom, top)
    marks = _horizontal_grid(y_scale, left, width - 16)
    for tick in x_scale.ticks():
        marks.append(_line(x_scale(tick), top, x_scale(tick), bottom, "grid"))
        marks.append(_text(x_scale(tick), bottom + 18, short(tick), class_="tick middle"))
    front = _polyline((x_scale(p.x), y_scale(p.y)) for p in _front(chart.points))
    marks.append(element("polyline", points=front, class_="front"))
    sizes = [p.size for p in chart.points]
    largest = max(sizes) if max(sizes) > min(sizes) else None
    # Points that represent others are drawn last, on top of those.
    for point in sorted(chart.points, key=lambda p: not p.represented):
        marks += _draw_point(point, x_scale(point.x), y_scale, largest)
    marks.append(_text((left + width) / 2, height - 8, chart.x_label, class_="axis"))
    marks.append(_text(left, top - 4, chart.y_label, class_="tick"))
    return Drawing(chart.title, width, height, marks, legend=_keys(chart.groups))


def _front(points: Sequence[Point]) -> list[Point]:
    """Return the points of the front that nothing with a smaller x equals, from left to right."""
    front: list[Point] = []
    for point in sorted((p for p in points if p.on_front), key=lambda p: (p.x, -p.y)):
        if not front or point.y > front[-1].y:
            front.append(point)
    return front


def _draw_point(point: Point, x: float, y_scale: Scale, largest: float | None) -> list[Html]:
    """Return a point with its interval; `largest` is the size of the largest, None if all agree."""
    attributes: dict[str, Any] = {
        "style": f"color:{color(point.group)}",
        "data_series": str(point.group),
        "data_at": str(point.row),
    }
    tip, y = [element("title", point.tip)], y_scale(point.y)
    if point.represented:
        return [element("circle", tip, cx=x, cy=y, r=3.5, class_="point member", **attributes)]
    parts = []
    state = " chosen" if point.chosen else ""
    if point.low is not None and point.high is not None:
        ends = y_scale(point.low), y_scale(point.high)
        parts.append(_line(x, ends[0], x, ends[1], f"whisker{state}", **attributes))
    radius = 7.0 if largest is None else 5.0 + 7.0 * math.sqrt(point.size / largest)
    attributes |= {"class_": ("point front" if point.on_front else "point") + state}
    attributes |= {"tabindex": "0", "role": "img"}
    parts.append(element("circle", tip, cx=x, cy=y, r=radius, **attributes))
    return parts


# ------------------------------------------------------------------------------ stacked bars


def _draw_stacked(chart: StackedChart) -> Drawing | None:
    if not chart.bars:
        return None
    top, left = 4.0, _label_width((bar.label for bar in chart.bars), LONG_LABEL_LENGTH)
    longest = max(sum(size for _, size in bar.parts) for bar in chart.bars)
    pixels = (_RIGHT - left) / (chart.total or longest or 1.0)
    marks: list[Html] = []
    for position, bar in enumerate(chart.bars):
        y = top + _ROW_HEIGHT * position
        marks.append(_row_label(bar.label, left, y + _ROW_HEIGHT / 2, LONG_LABEL_LENGTH))
        marks += _draw_parts(bar, chart, left, y, pixels)
    height = top + _ROW_HEIGHT * len(chart.bars) + 4
    return Drawing(
        chart.title, _RIGHT + 20, height, marks, legend=_keys(chart.part_names, chart.ramp)
    )


def _draw_parts(
    bar: StackedBar, chart: StackedChart, left: float, y: float, pixels: float
) -> list[Html]:
    """Return the parts of a bar, with their sizes where these fit; `pixels` is the width of 1."""
    names = chart.part_names
    marks, x = [], left
    for name, size in bar.parts:
        width, group = max(0.0, size) * pixels, names.index(name)
        number = f"{size:.{chart.digits}f}"
        marks.append(
            element(
                "rect",
                [element("title", f"{bar.label}: {name} {number}")],
                x=x,
                y=y + 4,
                width=width,
                height=_ROW_HEIGHT - 8,
                class_="part",
                style=f"color:{color(group, chart.ramp)}",
                data_series=str(group),
            )
        )
        if width > 46:
            faint = " faint" if chart.ramp and group > 1 else ""
            middle = x + width / 2, y + _ROW_HEIGHT / 2 + 4
            kind = f"inside middle{faint}"
            marks.append(_text(*middle, number, class_=kind, data_series=str(group)))
        x += width
    return marks
