"""Measures over k with their ranges, as SVG.

One chart per format, and the paper's way: FP32, BF16 and BF16 + HPS over one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from rankproof.audit.paper_tables import SHORT, TITLES, paired_formats
from rankproof.audit.results import Audit
from rankproof.foundation.files import claim_folder
from rankproof.presentation.charts import Chart, Curve, CurveChart
from rankproof.presentation.display import Charts

_SCORINGS = ("plain", "high precision", "decoded", "original")  # in the order of their colors
_CAPTION = "shaded: from the worst to the best order of ties; k on a log scale"


def check(folder: Path) -> None:
    """Refuse, before any work, a folder that `write` could not fill."""
    claim_folder(folder, ("*.svg",), "audit --plots")


def write(audit: Audit, folder: Path) -> list[Path]:
    """Draw every measure of every model; all charts are made before the first is written."""
    check(folder)
    frame = audit.curves()
    drawings = _charts_by_measure(frame) | _overlaid_charts(frame, audit)
    return [
        charts.save(folder / f"{name}.svg")
        for name, charts in sorted((name, Charts(charts)) for name, charts in drawings.items())
    ]


def _charts_by_measure(frame: pl.DataFrame) -> dict[str, list[Chart]]:
    """Return the charts of each model, dataset, dimensions and measure, by the file's name."""
    sizes = frame.group_by("model", "dataset").agg(pl.col("dimensions").n_unique())
    has_sizes = {(model, dataset) for model, dataset, count in sizes.rows() if count > 1}
    drawings: dict[str, list[Chart]] = {}
    groups = frame.group_by("model", "dataset", "dimensions", "measure", maintain_order=True)
    for (model, dataset, dimensions, measure), rows in groups:
        subject = [str(model)] if dataset is None else [str(model), str(dataset)]
        with_size = (model, dataset) in has_sizes
        name = [*subject, str(measure), *([f"{dimensions}d"] if with_size else [])]
        title = ", ".join([f"{measure}@k", *subject])
        title += f", {dimensions} dimensions" if with_size else ""
        drawings["-".join(map(_file_name, name))] = [
            _format_chart(rows.filter(pl.col("format") == number_format), f"{title}: {label}")
            for number_format in rows["format"].unique(maintain_order=True)
            for label in [str(number_format)]
        ]
    return drawings


def _format_chart(rows: pl.DataFrame, title: str) -> CurveChart:
    """Return a measure in one format: a line for each scoring, and one tie-break's dashed."""
    curves = []
    for group, scoring in enumerate(_SCORINGS):
        points = rows.filter(pl.col("scoring") == scoring)
        if points.height:
            curves.append(_curve(points, f"{scoring}, expected", group))
            oblivious = points["oblivious"].to_list()
            label = f"{scoring}, oblivious"
            x = points["k"].cast(pl.Float64).to_list()
            curves.append(Curve(label, x, oblivious, dashed=True, group=group))
    return _curve_chart(curves, title, str(rows["measure"][0]))


def _overlaid_charts(frame: pl.DataFrame, audit: Audit) -> dict[str, list[Chart]]:
    """Return float32, a low format and the same with HPS over one another, by the file's name."""
    formats = paired_formats(audit)
    low = SHORT[formats[0]] if len(formats) == 1 else "low"  # a chart's title says which
    labels = [SHORT["float32"], *(low + suffix for suffix in TITLES.values())]
    drawings: dict[str, list[Chart]] = {}
    for (model, dataset), rows in frame.group_by("model", "dataset", maintain_order=True):
        subject = [str(model)] if dataset is None else [str(model), str(dataset)]
        full = rows.filter(pl.col("dimensions").eq_missing(rows["dimensions"][0]))
        charts: list[Chart] = []
        for number_format in formats:
            settings = [("float32", "plain"), *((number_format, scoring) for scoring in TITLES)]
            parts = [full.filter(format=form, scoring=scoring) for form, scoring in settings]
            if any(part.is_empty() for part in parts):
                continue
            for measure in parts[0]["measure"].unique(maintain_order=True).to_list():
                curves = [
                    _curve(part.filter(measure=measure), label, group)
                    for group, (part, label) in enumerate(zip(parts, labels, strict=True))
                ]
                title = ", ".join([f"{measure}@k", *subject]) + f": {SHORT[number_format]}"
                charts.append(_curve_chart(curves, title, measure))
        if charts:
            drawings["-".join([*map(_file_name, subject), "overlaid"])] = charts
    return drawings


def _curve(points: pl.DataFrame, label: str, group: int) -> Curve:
    """Return the expectation over k with the band of every order of ties."""
    values = points.select("expected", "min", "max").to_dict(as_series=False)
    return Curve(
        label,
        x=points["k"].cast(pl.Float64).to_list(),
        y=values["expected"],
        low=values["min"],
        high=values["max"],
        group=group,
    )


def _curve_chart(curves: Sequence[Curve], title: str, measure: str) -> CurveChart:
    return CurveChart(
        title, curves, x_label="k", y_label=f"{measure}@k", log_x=True, caption=_CAPTION
    )


def _file_name(text: str) -> str:
    """Return a name as part of a file name."""
    return "".join(c if c.isalnum() or c in "._=" else "_" for c in text)
