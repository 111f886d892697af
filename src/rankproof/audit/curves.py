"""Measures over k with their ranges, as PNG and SVG.

One panel per format, and the paper's way: FP32, BF16 and BF16 + HPS over one another.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from rankproof.audit.paper_tables import SHORT, TITLES, lows
from rankproof.audit.results import Audit
from rankproof.foundation.files import claim_folder
from rankproof.presentation.notebook import drawing, write_charts

# Okabe and Ito's palette, told apart with any colour vision; dashes tell the lines apart too.
COLOURS = {
    "plain": "#D55E00",
    "high precision": "#0072B2",
    "decoded": "#009E73",
    "original": "#CC79A7",
}
WIDTHS = {"plain": 3.2, "high precision": 1.4, "decoded": 1.4, "original": 1.4}  # none hides one
OVERLAID = ("#333333", COLOURS["plain"], COLOURS["high precision"])
LINES = {"expected": [1, 0], "oblivious": [4, 3]}


def check(folder: Path) -> None:
    """Refuse, before any work, what `write` could not do."""
    drawing("altair")
    drawing("vl_convert")
    claim_folder(folder, ("*.svg", "*.png"), "audit --plots")


def write(audit: Audit, folder: Path) -> list[Path]:
    """Draw every measure of every model; all pictures are made before the first is written."""
    check(folder)
    frame = audit.curves()
    charts: dict[str, Any] = {}
    sizes = frame.group_by("model", "dataset").agg(pl.col("dimensions").n_unique())
    cut = {(model, dataset) for model, dataset, count in sizes.rows() if count > 1}
    groups = frame.group_by("model", "dataset", "dimensions", "measure", maintain_order=True)
    for (model, dataset, dimensions, measure), rows in groups:
        where = [] if dataset is None else [str(dataset)]
        several = (model, dataset) in cut
        parts = [str(model), *where, str(measure), *([f"{dimensions}d"] if several else [])]
        title = ", ".join([f"{measure}@k", str(model), *where])
        title += f", {dimensions} dimensions" if several else ""
        charts["-".join(map(_slug, parts))] = _chart(rows, title, str(measure))
    for (model, dataset), rows in frame.group_by("model", "dataset", maintain_order=True):
        panels = _overlaid(
            rows.filter(pl.col("dimensions").eq_missing(rows["dimensions"][0])), audit
        )
        if panels is None:
            continue
        where = [str(model)] if dataset is None else [str(model), str(dataset)]
        charts["-".join([*map(_slug, where), "overlaid"])] = _titled(panels, ", ".join(where))
    kinds = (".svg", ".png")
    return write_charts(
        {folder / f"{name}{k}": chart for name, chart in charts.items() for k in kinds}
    )


def _chart(rows: pl.DataFrame, title: str, measure: str) -> Any:
    alt = drawing("altair")
    formats = rows["format"].unique(maintain_order=True).to_list()
    scorings = [s for s in COLOURS if s in rows["scoring"].unique()]
    lines = rows.unpivot(
        on=["expected", "oblivious"],
        index=["format", "scoring", "k"],
        variable_name="figure",
        value_name="value",
    )
    x, scale = _x(alt, rows), _scale(alt, rows)
    colour = (
        alt.Color("scoring:N", title="scoring")
        .scale(domain=scorings, range=[COLOURS[s] for s in scorings])
        .legend(symbolType="square", symbolOpacity=1)
    )
    panels = []
    for form in formats:
        band = (
            alt.Chart(_values(alt, rows.filter(pl.col("format") == form)))
            .mark_area(opacity=0.25)
            .encode(x, alt.Y("min:Q", title=f"{measure}@k").scale(scale), alt.Y2("max:Q"), colour)
        )
        line = (
            alt.Chart(_values(alt, lines.filter(pl.col("format") == form)))
            .mark_line()
            .encode(
                x,
                alt.Y("value:Q", title=f"{measure}@k").scale(scale),
                colour,
                alt.StrokeWidth("scoring:N", legend=None).scale(
                    domain=scorings, range=[WIDTHS[s] for s in scorings]
                ),
                alt.StrokeDash("figure:N", title="line")
                .scale(domain=list(LINES), range=list(LINES.values()))
                .legend(symbolStrokeColor="#333333", symbolType="stroke"),
            )
        )
        panels.append((band + line).properties(width=230, height=170, title=form))
    return _titled(alt.concat(*panels, columns=3), title)


def _overlaid(rows: pl.DataFrame, audit: Audit) -> Any:
    """A panel for each low format and measure: float32, the format and the same with HPS."""
    alt = drawing("altair")
    panels = []
    formats = lows(audit)
    low = SHORT[formats[0]] if len(formats) == 1 else "low"  # a panel's title says which
    names = [SHORT["float32"], *(low + after for after in TITLES.values())]
    legend = alt.Legend(symbolType="stroke", symbolOpacity=1)
    look = {"title": "setting", "sort": names, "legend": legend}
    colour = alt.Color("setting:N", **look).scale(domain=names, range=list(OVERLAID))
    dash = alt.StrokeDash("setting:N", **look).scale(domain=names, range=[[1, 0], [6, 2], [2, 2]])
    for form in formats:
        wanted = [("float32", "plain"), *((form, scoring) for scoring in TITLES)]
        some = [rows.filter(pl.col("format") == f, pl.col("scoring") == s) for f, s in wanted]
        if any(part.is_empty() for part in some):
            continue
        named = pl.concat(
            part.with_columns(pl.lit(name).alias("setting"))
            for part, name in zip(some, names, strict=True)
        )
        for (measure,), part in named.group_by("measure", maintain_order=True):
            y = {"title": f"{measure}@k"}
            base = alt.Chart(_values(alt, part))
            x, scale = _x(alt, part), _scale(alt, part)
            band = base.mark_area(opacity=0.25).encode(
                x, alt.Y("min:Q", **y).scale(scale), alt.Y2("max:Q"), colour
            )
            line = base.mark_line().encode(x, alt.Y("expected:Q", **y).scale(scale), colour, dash)
            panels.append((band + line).properties(width=230, height=170, title=SHORT[form]))
    columns = min(3, rows["measure"].n_unique())  # a row of panels for each format
    return alt.concat(*panels, columns=columns) if panels else None


def _x(alt: Any, rows: pl.DataFrame) -> Any:
    longest = int(rows["k"].max())  # type: ignore[arg-type]
    ticks = [k for k in (1, 2, 5, 10, 20, 50, 100) if k <= longest]
    return alt.X("k:Q", title="k").scale(type="log", nice=False).axis(values=ticks, format="d")


def _scale(alt: Any, rows: pl.DataFrame) -> Any:
    low, high = float(rows["min"].min()), float(rows["max"].max())  # type: ignore[arg-type]
    margin = 0.05 * (high - low) or 0.05
    return alt.Scale(domain=[max(0.0, low - margin), min(1.0, high + margin)], nice=False)


def _titled(panels: Any, title: str) -> Any:
    alt = drawing("altair")
    return (
        panels.properties(
            title=alt.Title(
                title,
                subtitle="shaded: from the worst to the best order of ties; k on a log scale",
                anchor="start",
            )
        )
        .configure_axis(labelFontSize=11, titleFontSize=12)
        .configure_title(fontSize=13, subtitleFontSize=11)
        .configure_legend(labelFontSize=12, titleFontSize=12)
    )


def _values(alt: Any, rows: pl.DataFrame) -> Any:
    return alt.Data(values=rows.to_dicts())


def _slug(text: str) -> str:
    """A name as part of a file name."""
    return "".join(c if c.isalnum() or c in "._=" else "_" for c in text)
