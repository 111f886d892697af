"""Draw the pictures of README and docs again, from the demo: `make pictures`.

They are charts of the demo's report, each as a file of its own that follows light and dark.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import polars as pl

from rankproof.commands.showcase import build_demo
from rankproof.presentation.charts import Chart
from rankproof.presentation.svg import to_svg
from rankproof.report.choices import ceilings_chart, group_alike, map_chart
from rankproof.report.decision import read_sweep
from rankproof.report.result_files import StoredResult, find_results

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PICTURES = {  # a result's file in the demo → its first chart's picture
    "results/gate.json": "demo-gate",
    "results/evaluation.json": "demo-ties",
    "results/audit.json": "demo-precision",
    "results/en/names.json": "demo-names",
    "results/en/noise.json": "demo-noise",
}


def main() -> None:
    """Build the demo, or use the folder named on the command line."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "demo"
    build_demo(folder)
    results = find_results(folder)[0]
    presented = {result.name: result.presentation for result in results}
    charts: dict[str, Chart] = {}
    for name, picture in PICTURES.items():
        presentation = presented[name]
        assert presentation is not None
        # The demo's evaluation has one curve over k, after the chart of its other measures.
        position = -1 if picture == "demo-ties" else 0
        charts[picture] = presentation.charts[position]
    charts |= sweep_charts(next(result for result in results if result.kind == "sweep"))
    for picture, chart in charts.items():
        path = IMAGES / f"{picture}.svg"
        path.write_text(to_svg([chart], themed=True), encoding="utf-8")
        print(path)


def sweep_charts(result: StoredResult) -> dict[str, Chart]:
    """Return the map of a sweep and its ceilings, by picture."""
    sweep = read_sweep(result, None, None, limit=400)
    measure = sweep.measure
    frame = pl.read_parquet(result.path.parent / "configurations.parquet")
    bounded = frame.filter(pl.col(f"{measure} PROC").is_not_null())
    best = bounded.sort(measure, descending=True, maintain_order=True)
    return {
        "demo-configurations": map_chart(sweep, frame, group_alike(sweep)),
        "demo-ceilings": ceilings_chart(sweep, best),
    }


if __name__ == "__main__":
    main()
