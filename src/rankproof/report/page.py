"""Results of a folder → one HTML file that needs nothing else."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from rankproof.errors import MissingExtra
from rankproof.files import write_whole
from rankproof.report.choices import sweep
from rankproof.report.evidence import golden, names, noise
from rankproof.report.found import Result, find
from rankproof.report.parts import Section, fold, table
from rankproof.report.svg import element
from rankproof.report.ties import audit, comparison, evaluation
from rankproof.version import __version__

_ONE = {
    "evaluation": evaluation,
    "comparison": comparison,
    "audit": audit,
    "golden": golden,
    "names": names,
    "noise": noise,
}
_VERDICT = 10  # lines of it


def write_report(
    folder: str | Path, out: str | Path | None = None, title: str | None = None
) -> tuple[Path, list[str]]:
    """Write the page (by default `report.html` in the folder); files that could not be read."""
    place = Path(folder)
    found, broken = find(place)
    path = place / "report.html" if out is None else Path(out)
    text = render(found, title or f"Results in {place.resolve().name}")
    return write_whole(path, lambda file: file.write_text(text, encoding="utf-8")), broken


def render(found: list[Result], title: str) -> str:
    """The page as text."""
    try:
        import jinja2
    except ImportError:
        raise MissingExtra("a report", "jinja2", "report") from None
    sections: list[Section] = []
    for at, result in enumerate(found):
        if result.kind == "sweep":
            sections += sweep(result, at)
        else:
            sections.append(_ONE[result.kind](result, at))
    sections.append(_provenance(found))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    assets = files("rankproof.report") / "assets"
    template = environment.from_string((assets / "page.html").read_text(encoding="utf-8"))
    return template.render(
        title=title,
        version=__version__,
        verdict=_verdict(sections),
        sections=sections,
        style=Markup((assets / "page.css").read_text(encoding="utf-8")),
        script=Markup((assets / "page.js").read_text(encoding="utf-8")),
    )


def _verdict(sections: list[Section]) -> list[tuple[str, str]]:
    """What matters most: the first words of each section, with where to read on."""
    said = [(s.key, s.gist or next(iter(s.words), "")) for s in sections]
    return [(key, words) for key, words in said if words][:_VERDICT]


def _provenance(found: list[Result]) -> Section:
    rows: list[list[Any]] = []
    details = []
    for result in found:
        made = result.manifest
        machine = made.get("machine") or {}
        rows.append(
            [
                result.name,
                result.kind,
                made.get("rankproof") or made.get("version") or "",
                made.get("made") if isinstance(made.get("made"), str) else "",
                made.get("seed"),
                f"{machine.get('cores')} cores, {machine.get('machine')}" if machine else "",
            ]
        )
        kept = {
            key: made.get(key)
            for key in ("config", "inputs", "versions", "machine", "prices", "policy", "made")
            if made.get(key) is not None
        }
        text = json.dumps(kept, indent=2, ensure_ascii=False, default=str)
        details.append(fold(result.name, [element("pre", text)]))
    heads = ["file", "kind", "rankproof", "made", "seed", "machine"]
    words: list[str] = []
    return Section(
        "provenance", "Where every figure comes from", words, [table(heads, rows), *details]
    )
