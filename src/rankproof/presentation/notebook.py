"""What results share: a small table in notebooks, frames, and a picture."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from rankproof.foundation.errors import import_extra
from rankproof.foundation.files import check_ending, write_atomically
from rankproof.foundation.redaction import redact
from rankproof.presentation.json_values import plain
from rankproof.presentation.tables import MOST, Table, as_html


class Displayed(ABC):
    """A result that is a table; `plot` gives a figure of altair where it is a picture too."""

    __slots__ = ()

    @abstractmethod
    def _shown(self) -> Table:
        """Rows for people to read."""

    def _repr_html_(self) -> str:
        return as_html(self._shown(), MOST)

    def to_polars(self) -> pl.DataFrame:
        """The rows of the table as a polars frame."""
        return pl.DataFrame(self._shown().plain(), strict=False)

    def to_pandas(self) -> Any:
        """The rows of the table as a pandas frame."""
        return import_extra("pandas", "a pandas frame", "report").DataFrame(self._shown().plain())


def drawing(module: str) -> Any:
    """altair, or its converter."""
    return import_extra(module, "drawing a figure", "report")


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito's


def ranges(
    rows: Sequence[Sequence[Any]],
    label: str,
    value: str,
    low: str = "low",
    high: str = "high",
    *,
    zero: bool = False,
    title: str = "",
) -> Any:
    """A dot and the bar of its range for each (name, value, low, high); a fifth is its panel."""
    alt = drawing("altair")
    if rows and len(rows[0]) > 4:
        panels = [
            ranges(
                [r[:4] for r in rows if r[4] == at], label, value, low, high, zero=zero, title=at
            )
            for at in dict.fromkeys(row[4] for row in rows)
        ]
        return alt.hconcat(*panels) if len(panels) < 3 else alt.vconcat(*panels)
    order = list(dict.fromkeys(row[0] for row in rows))
    y = alt.Y(f"{label}:N", sort=order, title=None, axis=alt.Axis(labelLimit=280))
    scale = alt.Scale(zero=zero)
    tips = [alt.Tooltip(f"{label}:N"), *(alt.Tooltip(f"{c}:Q") for c in (value, low, high))]
    values = [dict(zip((label, value, low, high), plain(row), strict=True)) for row in rows]
    base = alt.Chart(alt.Data(values=values)).encode(y=y, tooltip=tips)
    bars = base.mark_rule(color=COLOURS[0], strokeWidth=2).encode(
        x=alt.X(f"{low}:Q", scale=scale, title=value), x2=f"{high}:Q"
    )
    dots = base.mark_point(color=COLOURS[0], filled=True, size=45, opacity=1).encode(
        x=alt.X(f"{value}:Q", scale=scale)
    )
    layers = [bars, dots]
    if zero:
        rule = alt.Chart(alt.Data(values=[{"at": 0}])).mark_rule(strokeDash=[3, 3], color="#777")
        layers.insert(0, rule.encode(x="at:Q"))
    return alt.layer(*layers).properties(width=420, title=title)


def check_chart(path: Path) -> str:
    """The format that a figure's file is to have."""
    return check_ending(path, (".svg", ".png", ".html"), "pictures")


def write_chart(chart: Any, path: Path, inputs: Iterable[str] = ()) -> None:
    """A figure as its file's ending says: .svg, .png or .html."""
    content = drawn(chart, check_chart(path))
    write_atomically(path, lambda file: file.write_bytes(content), inputs=inputs)


def write_charts(charts: dict[Path, Any]) -> list[Path]:
    """Several, all drawn before the first is written."""
    contents = {path: drawn(chart, path.suffix) for path, chart in sorted(charts.items())}
    return [
        write_atomically(at, partial(Path.write_bytes, data=held)) for at, held in contents.items()
    ]


def drawn(chart: Any, kind: str) -> bytes:
    """A figure as .svg, .png or .html: whatever names something in it, without secrets."""
    chart = type(chart).from_dict(redact(chart.to_dict()))
    if kind == ".html":
        return bytes(chart.to_html(inline=True).encode())
    converter, made = drawing("vl_convert"), chart.to_json()
    if kind == ".svg":
        return bytes(converter.vegalite_to_svg(made).encode())
    return bytes(converter.vegalite_to_png(made, scale=2))
