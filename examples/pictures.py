"""Draw the pictures of README and docs anew, from the demo: `make pictures`.

They are charts of the demo's report with their legends, each as a file of its own that follows
light and dark.
"""

from __future__ import annotations

import re
import sys
import tempfile
from html import unescape
from importlib.resources import files
from pathlib import Path

from rankproof.cli.progress import progress
from rankproof.commands.showcase import build_demo

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PICTURES = {  # what a chart of the report is called → its file
    "Differences": "demo-gate",
    "nDCG over k": "demo-ties",
    "RAnWG@10 in every number format": "demo-precision",
    "Configurations by latency and quality": "demo-configurations",
    "Ceilings of RAnWG@10": "demo-ceilings",
    "Name margin by ablation": "demo-names",
    "Cosine by level of noise": "demo-noise",
}


def main() -> None:
    """Build the demo, or use the folder named on the command line."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "demo"
    page = build_demo(folder, progress).report.read_text(encoding="utf-8")
    style = (files("rankproof.report") / "assets" / "page.css").read_text(encoding="utf-8")
    for chart, below in re.findall(
        r"(<svg .*?</svg>)(<div class=\"legend\">.*?</div>)?", page, re.S
    ):
        name = re.search(r'aria-label="([^"]*)"', chart)
        target = PICTURES.pop(name[1], None) if name else None
        if target is None:
            continue
        opened = _with_legend(chart, below).replace(
            "<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1
        )
        ground = "svg { background: var(--paper); font-family: system-ui, sans-serif; }"
        styled = opened.replace(">", f"><style>{style}\n{ground}</style>", 1)
        (IMAGES / f"{target}.svg").write_text(styled, encoding="utf-8")
        print(IMAGES / f"{target}.svg")
    if PICTURES:
        raise SystemExit(f"the report lacks {', '.join(PICTURES)}")


def _with_legend(chart: str, legend: str) -> str:
    """The legend, which the page has below a chart, drawn into it."""
    keys = re.findall(r'class="(key[^"]*)" style="([^"]*)"></span>(.*?)</button>', legend)
    box = re.search(r'viewBox="0 0 (\S+) (\S+)"', chart)
    if not keys or box is None:
        return chart
    width, height = float(box[1]), float(box[2])
    parts, x, y = [], 10.0, height + 12
    for kind, style, label in keys:
        room = 30 + 7.2 * len(unescape(label))
        if x + room > width:
            x, y = 10.0, y + 22
        parts.append(
            f'<line x1="{x}" x2="{x + 14}" y1="{y}" y2="{y}" class="line dashed" style="{style}"/>'
            if "dash" in kind
            else f'<rect x="{x}" y="{y - 6}" width="12" height="12" rx="3" class="part" '
            f'style="{style}"/>'
        )
        parts.append(f'<text x="{x + 19}" y="{y + 4}">{label}</text>')
        x += room
    taller = chart.replace(box[0], f'viewBox="0 0 {width:g} {y + 14:g}"')
    return taller.replace("</svg>", "".join(parts) + "</svg>")


if __name__ == "__main__":
    main()
