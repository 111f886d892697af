"""Charts as inline SVG: drawn here, so that they are there without a script, and in print.

Colours are CSS variables (`--c0` … `--c7`, Okabe and Ito's set) which the page sets for light and
dark. Marks that say something carry it as `<title>`, which a browser shows by itself and the page's
script sooner, and to the keyboard.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup, escape

from rankproof.foundation.printable import escape_controls

COLOURS = 8
GRADES = 6  # of the ramp
CLIP = 34  # letters of a label
LONG = 50  # where the rest of a row needs less room


def number(value: float) -> str:
    """A coordinate."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def colour(at: int, ramp: bool = False) -> str:
    """Colours that differ, or a ramp from strong to pale for what has an order."""
    return f"var(--g{min(at, GRADES - 1)})" if ramp else f"var(--c{at % COLOURS})"


def margin(labels: Iterable[str], most: int = CLIP) -> float:
    """Room at the left for labels as they are clipped, in a font that runs wide."""
    clipped = (clip(escape_controls(label), most) for label in labels)
    return 28.0 + max((sum(map(_broad, label)) for label in clipped), default=0.0)


def _broad(letter: str) -> float:
    """Pixels that a letter may take."""
    if letter in "mwMW@%" or unicodedata.east_asian_width(letter) in "WF":
        return 13.0
    return 9.0 if letter.isupper() or letter.isdigit() else 7.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Data → pixels, straight or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = (math.log10(max(v, 1e-12)) for v in (low, high, value))
        share = 0.5 if high == low else (at - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        if self.log:
            return _log_ticks(self.low, self.high)
        return nice_ticks(self.low, self.high, count)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between two ends."""
    if not high > low:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / count))
    for times in (1, 2, 2.5, 5, 10):
        if (high - low) / (step * times) <= count:
            step *= times
            break
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(at * step, 12) for at in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    found = [
        times * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for times in (1, 2, 5)
    ]
    inside = [tick for tick in found if low * 0.999 <= tick <= high * 1.001]
    return inside if len(inside) <= 7 else [t for t in inside if f"{t:e}".startswith("1")]


def short(value: float) -> str:
    """A number on an axis."""
    if value == 0:
        return "0"
    return f"{value:.10g}" if abs(value) >= 1e-4 else f"{value:.0e}"


def element(tag: str, content: Iterable[Markup] | str = (), **attributes: object) -> Markup:
    """One element; a trailing underscore frees a keyword, other underscores become dashes."""
    inside = shown(content) if isinstance(content, str) else "".join(map(escape, content))
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_written(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{named}>{inside}</{tag}>")  # of escaped parts: `format` takes ten times


def _written(value: object) -> str:
    return number(value) if isinstance(value, float) else escape_controls(str(value), lines=True)


def shown(words: str) -> Markup:
    """Text on the page: what has a meaning in HTML is escaped, what acts is written out."""
    return words if isinstance(words, Markup) else Markup.escape(escape_controls(words, lines=True))


def mark(tag: str, tip: str, *, reach: bool = False, **attributes: object) -> Markup:
    """An element that says something when pointed at; `reach` puts it in the tab order."""
    extra = {"tabindex": "0", "role": "img"} if reach else {}
    return element(tag, [element("title", tip)], **extra, **attributes)


def picture(width: float, height: float, title: str, content: Iterable[Markup]) -> Markup:
    """A drawing with a name for those who do not see it."""
    return element(
        "svg",
        content,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="group",
        aria_label=title,
        class_="chart",
    )


def text(x: float, y: float, words: str, **attributes: object) -> Markup:
    return element("text", words, x=x, y=y, **attributes)


def clip(words: str, most: int) -> str:
    """A label that fits, with its end, which often tells two apart; the whole is in the tip."""
    return words if len(words) <= most else f"{words[: most - 11]}…{words[-10:]}"


# ------------------------------------------------------------------------------------- charts


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of a range chart: a value, what it could have been, and marks beside it."""

    label: str
    value: float
    low: float | None  # None: no bounds are known
    high: float | None
    tip: str
    other: float | None = None  # a second mark: what one tie-break says
    group: int = 0  # its colour


def ranges(
    bars: Sequence[Bar],
    title: str,
    *,
    axis: str,
    groups: Sequence[str] = (),
    zero: bool = False,
    ramp: bool = False,
) -> Markup:
    """Horizontal bars from low to high with a dot at the value and a tick at the other.

    `groups` says what the colours are.
    """
    if not bars:
        return Markup("")
    left, right, row, top = margin(b.label for b in bars), 770.0, 26.0, 8.0
    values = [v for b in bars for v in (b.low, b.high, b.value, b.other) if v is not None]
    low, high = min(values), max(values)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    spare = (high - low) * 0.04 or 0.05
    scale = Scale(low - (0 if zero and low == 0 else spare), high + spare, left, right)
    bottom = top + row * len(bars)
    parts = _grid(scale, top, bottom)
    if zero:
        parts.append(_line(scale(0), top, scale(0), bottom, "zero"))
    for at, bar in enumerate(bars):
        y = top + row * (at + 0.5)
        parts.append(
            element(
                "text",
                [element("title", bar.label), shown(clip(bar.label, CLIP))],
                x=left - 10,
                y=y + 4,
                class_="label",
            )
        )
        inside = []
        if bar.low is not None and bar.high is not None:
            ends = scale(bar.low), scale(bar.high)
            inside.append(
                element(
                    "rect",
                    x=min(ends),
                    y=y - 5,
                    width=max(abs(ends[1] - ends[0]), 1.0),
                    height=10,
                    rx=3,
                    class_="range",
                )
            )
        if bar.other is not None:
            x = scale(bar.other)
            inside.append(_line(x, y - 8, x, y + 8, "other"))
        inside.append(element("circle", cx=scale(bar.value), cy=y, r=4.5, class_="dot"))
        parts.append(
            element(
                "g",
                [element("title", bar.tip), *inside],
                class_="bar",
                style=f"--c:{colour(bar.group, ramp)}",
                data_series=str(bar.group),
                tabindex="0",
                role="img",
            )
        )
    parts.append(text((left + right) / 2, bottom + 34, axis, class_="axis"))
    return picture(right + 20, bottom + 42, title, parts) + legend(groups, ramp=ramp)


@dataclass(frozen=True, slots=True)
class Series:
    """A line with a band."""

    label: str
    x: list[float]
    y: list[float]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    dashed: bool = False
    group: int | None = None  # its colour, where two lines share one


def curves(
    series: Sequence[Series], title: str, *, across: str, up: str, log: bool = False
) -> Markup:
    """Lines over x with shaded bands; a legend whose entries switch them."""
    width, height, left, bottom, top = 780.0, 330.0, 56.0, 280.0, 12.0
    xs = sorted({x for s in series for x in s.x})
    ys = [v for s in series for v in (*s.y, *s.low, *s.high) if not math.isnan(v)]
    if not xs or not ys:
        return Markup("")
    spare = (max(ys) - min(ys)) * 0.06 or 0.02
    ahead = Scale(xs[0], xs[-1], left, width - 16, log=log)
    above = Scale(min(ys) - spare, max(ys) + spare, bottom, top)
    parts, keys = [], []
    for tick in above.ticks(7):
        parts.append(_line(left, above(tick), width - 16, above(tick), "grid"))
        parts.append(text(left - 8, above(tick) + 4, short(tick), class_="tick end"))
    parts += [
        text(ahead(x), bottom + 18, short(x), class_="tick middle")
        for x in (xs if len(xs) <= 12 else ahead.ticks(8))
    ]
    for at, s in enumerate(series):
        inside = []
        if s.low:
            there = [
                f"{number(ahead(x))},{number(above(v))}" for x, v in zip(s.x, s.high, strict=True)
            ]
            back = [
                f"{number(ahead(x))},{number(above(v))}" for x, v in zip(s.x, s.low, strict=True)
            ]
            inside.append(element("polygon", points=" ".join([*there, *back[::-1]]), class_="band"))
        points = " ".join(
            f"{number(ahead(x))},{number(above(y))}" for x, y in zip(s.x, s.y, strict=True)
        )
        inside.append(
            element("polyline", points=points, class_="line dashed" if s.dashed else "line")
        )
        for i, (x, y) in enumerate(zip(s.x, s.y, strict=True)):
            span = f", {s.low[i]:.4f} to {s.high[i]:.4f}" if s.low else ""
            tip = f"{s.label}, {across} {short(x)}: {y:.4f}{span}"
            inside.append(mark("circle", tip, cx=ahead(x), cy=above(y), r=3.5, class_="dot"))
        hue = colour(at if s.group is None else s.group)
        parts.append(element("g", inside, class_="series", data_series=str(at), style=f"--c:{hue}"))
        keys.append(_key(s.label, at, hue, "key dash" if s.dashed else "key"))
    parts.append(text((left + width) / 2, height - 8, across, class_="axis"))
    parts.append(text(left, top - 2, up, class_="tick"))
    return picture(width, height, title, parts) + element("div", keys, class_="legend")


def legend(labels: Sequence[str], *, ramp: bool = False) -> Markup:
    """What each colour is; the page's script makes the entries switch their series."""
    if not labels:
        return Markup("")
    keys = [_key(label, at, colour(at, ramp)) for at, label in enumerate(labels)]
    return element("div", keys, class_="legend")


def _key(label: str, at: int, hue: str, kind: str = "key") -> Markup:
    return element(
        "button",
        [element("span", class_=kind, style=f"--c:{hue}"), shown(label)],
        type="button",
        data_toggle=str(at),
        aria_pressed="true",
    )


@dataclass(frozen=True, slots=True)
class Point:
    """A configuration on a map of latency and quality."""

    label: str
    x: float
    y: float
    cost: float
    front: bool
    tip: str
    group: int = 0
    low: float | None = None  # of y
    high: float | None = None
    at: int = 0  # its row in the page's table of candidates
    chosen: bool = False
    member: bool = False  # another stands for it


def scatter(
    points: Sequence[Point], title: str, *, across: str, up: str, groups: Sequence[str]
) -> Markup:
    """Points with their intervals, the front among them joined; x is logarithmic."""
    width, height, left, bottom, top = 780.0, 400.0, 60.0, 344.0, 16.0
    xs = [p.x for p in points]
    ys = [y for p in points for y in (p.y, p.low, p.high) if y is not None]
    spare = (max(ys) - min(ys)) * 0.08 or 0.02
    ahead = Scale(min(xs) / 1.25, max(xs) * 1.25, left, width - 16, log=True)
    above = Scale(min(ys) - spare, max(ys) + spare, bottom, top)
    parts = []
    for tick in above.ticks():
        parts.append(_line(left, above(tick), width - 16, above(tick), "grid"))
        parts.append(text(left - 8, above(tick) + 4, short(tick), class_="tick end"))
    for tick in ahead.ticks():
        parts.append(_line(ahead(tick), top, ahead(tick), bottom, "grid"))
        parts.append(text(ahead(tick), bottom + 18, short(tick), class_="tick middle"))
    # Of a front over more than is drawn, those that nothing faster equals.
    front: list[Point] = []
    for p in sorted((p for p in points if p.front), key=lambda p: (p.x, -p.y)):
        if not front or p.y > front[-1].y:
            front.append(p)
    joined = " ".join(f"{number(ahead(p.x))},{number(above(p.y))}" for p in front)
    parts.append(element("polyline", points=joined, class_="front"))
    most = max(p.cost for p in points)
    varied = most > min(p.cost for p in points)
    for p in sorted(points, key=lambda p: not p.member):  # those that stand for others on top
        about: dict[str, Any] = {
            "style": f"--c:{colour(p.group)}",
            "data_series": str(p.group),
            "data_at": str(p.at),
        }
        x, y = ahead(p.x), above(p.y)
        more = " chosen" if p.chosen else ""
        if p.member:
            parts.append(mark("circle", p.tip, cx=x, cy=y, r=3.5, class_="point member", **about))
            continue
        if p.low is not None and p.high is not None:
            y1, y2 = above(p.low), above(p.high)
            parts.append(
                element("line", x1=x, x2=x, y1=y1, y2=y2, class_=f"whisker{more}", **about)
            )
        radius = 5.0 + (7.0 * math.sqrt(p.cost / most) if varied else 2.0)
        kind = ("point front" if p.front else "point") + more
        parts.append(mark("circle", p.tip, reach=True, cx=x, cy=y, r=radius, class_=kind, **about))
    parts.append(text((left + width) / 2, height - 8, across, class_="axis"))
    parts.append(text(left, top - 4, up, class_="tick"))
    return picture(width, height, title, parts) + legend(groups)


@dataclass(frozen=True, slots=True)
class Stack:
    """A bar made of parts, each with a name and a size."""

    label: str
    parts: list[tuple[str, float]]


def stacked(
    stacks: Sequence[Stack],
    title: str,
    *,
    total: float | None = None,
    form: str = ".3f",
    ramp: bool = False,
) -> Markup:
    """Horizontal bars of parts; `total` is what a full bar stands for."""
    if not stacks:
        return Markup("")
    left, right, row, top = margin((s.label for s in stacks), LONG), 770.0, 26.0, 4.0
    full = total or max(sum(size for _, size in s.parts) for s in stacks) or 1.0
    names = list(dict.fromkeys(name for s in stacks for name, _ in s.parts))
    parts = []
    for at, s in enumerate(stacks):
        y = top + row * at
        parts.append(
            element(
                "text",
                [element("title", s.label), shown(clip(s.label, LONG))],
                x=left - 10,
                y=y + row / 2 + 4,
                class_="label",
            )
        )
        x = left
        for name, size in s.parts:
            width = max(0.0, size) / full * (right - left)
            group = names.index(name)
            parts.append(
                mark(
                    "rect",
                    f"{s.label}: {name} {size:{form}}",
                    x=x,
                    y=y + 4,
                    width=width,
                    height=row - 8,
                    class_="part",
                    style=f"--c:{colour(group, ramp)}",
                    data_series=str(group),
                )
            )
            if width > 46:
                parts.append(
                    text(
                        x + width / 2,
                        y + row / 2 + 4,
                        f"{size:{form}}",
                        class_="inside middle" + (" faint" if ramp and group > 1 else ""),
                        data_series=str(group),
                    )
                )
            x += width
    return picture(right + 20, top + row * len(stacks) + 4, title, parts) + legend(names, ramp=ramp)


def _grid(scale: Scale, top: float, bottom: float) -> list[Markup]:
    parts = []
    for tick in scale.ticks():
        x = scale(tick)
        parts.append(_line(x, top, x, bottom, "grid"))
        parts.append(text(x, bottom + 16, short(tick), class_="tick middle"))
    return parts


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)
