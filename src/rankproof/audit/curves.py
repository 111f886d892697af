"""Measures over k with their ranges, as PNG and SVG: one panel per format."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from rankproof.audit.results import Audit
from rankproof.errors import MissingExtra
from rankproof.files import claim_folder, write_whole

# Okabe and Ito's palette, told apart with any colour vision; dashes tell the lines apart too.
COLOURS = {
    "plain": "#D55E00",
    "high precision": "#0072B2",
    "decoded": "#009E73",
    "original": "#CC79A7",
}
WIDTHS = {"plain": 3.2, "high precision": 1.4, "decoded": 1.4, "original": 1.4}  # none hides one
LINES = {"expected": [1, 0], "oblivious": [4, 3]}


def check(folder: Path) -> None:
    """Refuse, before any work, what `write` could not do."""
    _library("altair")
    _library("vl_convert")
    claim_folder(folder, ("*.svg", "*.png"), "audit --plots")


def write(audit: Audit, folder: Path) -> list[Path]:
    """Draw every measure of every model; all pictures are made before the first is written."""
    check(folder)
    frame = audit.curves()
    pictures: dict[str, bytes] = {}
    converter = _library("vl_convert")
    several = frame["dimensions"].n_unique() > 1
    groups = frame.group_by("model", "dataset", "dimensions", "measure", maintain_order=True)
    for (model, dataset, dimensions, measure), rows in groups:
        where = [] if dataset is None else [str(dataset)]
        parts = [str(model), *where, str(measure), *([f"{dimensions}d"] if several else [])]
        title = ", ".join([f"{measure}@k", str(model), *where])
        title += f", {dimensions} dimensions" if several else ""
        specification = _chart(rows, title, str(measure)).to_json()
        stem = "-".join(map(_slug, parts))
        pictures[f"{stem}.svg"] = converter.vegalite_to_svg(specification).encode()
        pictures[f"{stem}.png"] = converter.vegalite_to_png(specification, scale=2)
    return [
        write_whole(folder / name, partial(_fill, content=content))
        for name, content in sorted(pictures.items())
    ]


def _fill(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _chart(rows: pl.DataFrame, title: str, measure: str) -> Any:
    alt = _library("altair")
    formats = rows["format"].unique(maintain_order=True).to_list()
    scorings = [s for s in COLOURS if s in rows["scoring"].unique()]
    lines = rows.unpivot(
        on=["expected", "oblivious"],
        index=["format", "scoring", "k"],
        variable_name="figure",
        value_name="value",
    )
    longest = int(rows["k"].max())  # type: ignore[arg-type]
    ticks = [k for k in (1, 2, 5, 10, 20, 50, 100) if k <= longest]
    x = alt.X("k:Q", title="k").scale(type="log", nice=False).axis(values=ticks, format="d")
    low, high = float(rows["min"].min()), float(rows["max"].max())  # type: ignore[arg-type]
    margin = 0.05 * (high - low) or 0.05
    scale = alt.Scale(domain=[max(0.0, low - margin), min(1.0, high + margin)], nice=False)
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
            .encode(
                x,
                alt.Y("min:Q", title=f"{measure}@k").scale(scale),
                alt.Y2("max:Q"),
                colour,
            )
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
    return (
        alt.concat(*panels, columns=3)
        .properties(
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


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        package = {"vl_convert": "vl-convert-python"}.get(name, name)
        raise MissingExtra("drawing curves", package, "report") from None


def _slug(text: str) -> str:
    """A name as part of a file name."""
    return "".join(c if c.isalnum() or c in "._=" else "_" for c in text)
