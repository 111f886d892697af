"""Two pictures: margins by ablation, cosines by level of noise; SVG, PNG and HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankproof.diagnostics.names import NamesDiagnosis
from rankproof.diagnostics.noise import NoiseDiagnosis
from rankproof.foundation.phrasing import plural
from rankproof.presentation.json_values import plain
from rankproof.presentation.notebook import drawing, write_charts

# Okabe and Ito's palette, told apart with any colour vision.
COLOURS = {"base": "#555555", "identity": "#D55E00", "formatting": "#0072B2", "layout": "#009E73"}
WAYS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7")


def write_plots(diagnosis: NamesDiagnosis | NoiseDiagnosis, folder: Path) -> list[Path]:
    """names.svg, .png and .html, or noise.*; all are made before the first is written."""
    if isinstance(diagnosis, NamesDiagnosis):
        stem, chart = "names", _names(diagnosis)
    else:
        stem, chart = "noise", _noise(diagnosis)
    return write_charts({folder / f"{stem}{kind}": chart for kind in (".svg", ".png", ".html")})


def _names(diagnosis: NamesDiagnosis) -> Any:
    alt = drawing("altair")
    rows = [
        {
            "condition": row.ablation,
            "family": row.family or "base",
            "margin": plain(row.margin["name"].mean),
            "low": plain(row.margin["name"].ci[0]),
            "high": plain(row.margin["name"].ci[1]),
        }
        for row in diagnosis.rows
    ]
    data = alt.Data(values=rows)
    y = alt.Y("condition:N", title=None, sort=[row["condition"] for row in rows])
    colour = alt.Color("family:N", title="family").scale(
        domain=list(COLOURS), range=list(COLOURS.values())
    )
    rule = (
        alt.Chart(alt.Data(values=[rows[0]]))
        .mark_rule(strokeDash=[4, 3], color=COLOURS["base"])
        .encode(alt.X("margin:Q"))
    )
    bars = (
        alt.Chart(data)
        .mark_rule(strokeWidth=3)
        .encode(
            alt.X(
                "low:Q", title="Δname: cosine to the author's passage − to the nearest impostor's"
            ),
            alt.X2("high:Q"),
            y,
            colour,
        )
    )
    points = alt.Chart(data).mark_point(filled=True, size=70).encode(alt.X("margin:Q"), y, colour)
    return _titled(
        rule + bars + points,
        f"What a name is worth to {diagnosis.embedder} ({diagnosis.language})",
        f"means of {plural(diagnosis.queries, 'query')} × {plural(diagnosis.runs, 'run')}, "
        "95% intervals over queries",
        width=420,
        height=270,
    )


def _noise(diagnosis: NoiseDiagnosis) -> Any:
    alt = drawing("altair")
    ways = ["as typed", *diagnosis.rewriters]
    panels = []
    for cosine, title in (("clean", "to the clean query"), ("passage", "to the relevant passage")):
        rows = [
            {
                "level": row.level,
                "way": row.rewriter or "as typed",
                "cosine": row.cosine[cosine].mean,
                "low": plain(row.cosine[cosine].ci[0]),
                "high": plain(row.cosine[cosine].ci[1]),
            }
            for row in diagnosis.rows
        ]
        x = alt.X("level:O", title="level of noise").axis(labelAngle=0)
        colour = alt.Color("way:N", title="query").scale(domain=ways, range=list(WAYS[: len(ways)]))
        chart = alt.Chart(alt.Data(values=rows))
        lowest = min((row["low"] for row in rows if row["low"] is not None), default=0.0)
        scale = alt.Scale(domain=[min(0.0, lowest), 1.0])
        band = chart.mark_errorband().encode(
            x, alt.Y("low:Q", title="cosine").scale(scale), alt.Y2("high:Q"), colour
        )
        line = chart.mark_line(point=True).encode(x, alt.Y("cosine:Q").scale(scale), colour)
        panels.append((band + line).properties(width=260, height=230, title=title))
    return _titled(
        alt.hconcat(*panels),
        f"What conversation costs {diagnosis.embedder} ({diagnosis.language})",
        f"means of {plural(diagnosis.queries, 'query')} × {plural(diagnosis.runs, 'run')}, "
        "95% intervals over queries",
    )


def _titled(chart: Any, title: str, subtitle: str, **size: int) -> Any:
    alt = drawing("altair")
    return (
        chart.properties(title=alt.Title(title, subtitle=subtitle, anchor="start"), **size)
        .configure_axis(labelFontSize=12, titleFontSize=12, labelLimit=240)
        .configure_title(fontSize=13, subtitleFontSize=11)
        .configure_legend(labelFontSize=12, titleFontSize=12)
    )
