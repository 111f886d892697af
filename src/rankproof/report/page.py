"""Write the results of a folder as one HTML file that needs nothing else.

Every result shows its presentation: answer, charts, tables, notes, next step. Sweeps and golden
sets have sections of their own, since a page shows more of them than a command prints.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import polars as pl

from rankproof.foundation.errors import InputError
from rankproof.foundation.files import check_output, write_atomically
from rankproof.foundation.redaction import redact
from rankproof.foundation.version import __version__
from rankproof.presentation.html import figure, table_html
from rankproof.presentation.markup import Html, element, escape, mark_up_sentence
from rankproof.presentation.result import Presentation
from rankproof.presentation.svg import DARK, LIGHT, STYLE, variables
from rankproof.report.choices import sweep_sections
from rankproof.report.glossary import TERMS, meaning, measures_in
from rankproof.report.golden import golden_section
from rankproof.report.page_elements import (
    PAGE,
    Section,
    data_table,
    fold,
    paragraph,
)
from rankproof.report.result_files import StoredResult, find_results, first_line_of, titled
from rankproof.tradeoffs.results import EARLIER, find_row, read_results
from rankproof.tradeoffs.selection import Limits

_TITLES = {
    "agreement": "Agreement",
    "audit": "Precision",
    "ceilings": "Ceilings",
    "comparison": "Comparison",
    "evaluation": "Scores",
    "gate": "Gate",
    "holes": "Unjudged documents",
    "leaderboard": "Leaderboard",
    "recommendation": "Recommendation",
    "ties": "Ties",
}
_VERDICT_LINES = 12  # at the top of the page
_LARGEST_PAGE = 1_000_000  # bytes, above which fewer configurations of a sweep are shown
_CONFIGURATIONS = (400, 250, 150, 80, 40)  # numbers to show, tried in this order
_HEADING = re.compile(r"<th [^>]*data-tip[^>]*>([^<]*)</th>")
# What building a section from a file of another shape can raise.
_MISSHAPEN = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    OSError,
    pl.exceptions.PolarsError,
)


def write_report(
    folder: str | Path,
    out: str | Path | None = None,
    title: str | None = None,
    row: str | None = None,
    limits: Limits | None = None,
) -> tuple[Path, list[str]]:
    """Write the page (by default `report.html` in the folder); return it and what was unreadable.

    `row` names the configuration of the folder's sweep that the page opens with, in place of the
    best; `limits` are those that its sliders begin with.

    >>> from rankproof.report import write_report
    >>> path, unread = write_report("try/results")
    >>> path.name, unread
    ('report.html', [])
    """
    place = Path(folder)
    results, problems = find_results(place)
    if row is not None:
        find_row(read_results(place).frame, row, str(folder))
    path = place / "report.html" if out is None else Path(out)
    inputs = [result.path for result in results]
    check_output(path if out is None else out, inputs)
    heading = title or f"Results in {place.resolve().name}"
    has_sweep = any(result.kind == "sweep" for result in results)
    for configurations in _CONFIGURATIONS if has_sweep else _CONFIGURATIONS[:1]:
        page = _PageBuilder(place, results, row, limits, configurations)
        sections = page.sections()
        if not page.shown:
            raise _nothing_shown(problems + page.problems)
        data = render(sections, heading).encode()
        if len(data) < _LARGEST_PAGE:
            break
    written = write_atomically(path, lambda file: file.write_bytes(data), inputs=inputs)
    return written, problems + page.problems


def _nothing_shown(problems: list[str]) -> InputError:
    listed = "; ".join(problems[:3])
    others = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
    return InputError(listed + others, remedy="make it again with rankproof")


@dataclass
class _PageBuilder:
    """The sections of a page; collects the results shown, and why others could not be."""

    place: Path
    results: list[StoredResult]
    row: str | None
    limits: Limits | None
    configurations: int  # of a sweep that are shown

    def __post_init__(self) -> None:
        self.shown: list[StoredResult] = []
        self.problems: list[str] = []

    def sections(self) -> list[Section]:
        """Return a section for each result, the glossary, and where the values come from."""
        sections: list[Section] = []
        sweeps = {r.path.parent: r for r in self.results if r.kind == "sweep"}
        for position, result in enumerate(self.results):
            folder = result.path.parent
            if folder.name == EARLIER and folder.parent in sweeps:
                continue  # the section of the sweep that replaced it mentions it
            earlier = sweeps.get(folder / EARLIER)
            try:
                sections += self._sections_of(result, position, earlier)
                self.shown.append(result)
            except _MISSHAPEN as error:
                problem = f"no {error}" if isinstance(error, KeyError) else first_line_of(error)
                self.problems.append(
                    f"{result.name}: not the {result.kind} that rankproof writes ({problem})"
                )
        return [*sections, _glossary(sections), _provenance(self.shown)]

    def _sections_of(
        self, result: StoredResult, position: int, earlier: StoredResult | None
    ) -> list[Section]:
        if result.kind == "golden":
            return [golden_section(result, position)]
        if result.presentation is not None:
            is_only = [other.kind for other in self.results].count(result.kind) == 1
            return [presentation_section(result, result.presentation, position, is_only)]
        row = self.row if result.path.parent == self.place else None
        return sweep_sections(
            result, position, earlier, row, self.limits, limit=self.configurations
        )


def presentation_section(
    result: StoredResult, presentation: Presentation, position: int, is_only: bool
) -> Section:
    """Return what a result presents as a section: answer, charts, tables, notes, next step.

    Its title names the file or its folder, unless it `is_only` one of its kind.
    """
    summary = presentation.summary
    notes = [note for note in summary.notes if note.strip()]
    answer = summary.answer.splitlines() or notes[:1]
    body = [figure(chart, with_data=True) for chart in presentation.charts]
    body += [table_html(table, page=PAGE) for table in presentation.tables]
    body += [paragraph(note, "note") for note in notes[0 if summary.answer else 1 :]]
    if summary.next_step:
        body.append(element("p", summary.next_step, class_="command"))
    if summary.details:
        body.append(fold("Definitions and method", [paragraph(d) for d in summary.details]))
    kind = result.kind
    stem = result.path.stem
    title = _TITLES.get(kind, kind[:1].upper() + kind[1:])
    if not is_only:
        title = titled(title, result) if stem == kind else f"{title}: {stem}"
    return Section(f"{kind.replace(' ', '-')}-{position}", title, answer, body)


# --------------------------------------------------------------------- glossary and provenance


def _glossary(sections: list[Section]) -> Section:
    """Return what every measure and heading on the page means."""
    texts = [text for s in sections for text in (*s.words, s.title, *map(str, s.body))]
    headings = {html.unescape(match[1]) for text in texts for match in _HEADING.finditer(text)}
    meanings = {name: meaning(name) for name in measures_in(texts)}
    meanings |= {term: meaning(term) for term in TERMS if term in headings}
    entries = [
        part
        for term, words in meanings.items()
        if words is not None
        for part in (element("dt", term), element("dd", words))
    ]
    return Section(
        "glossary", "What the words mean", [], [element("dl", entries, class_="glossary")]
    )


def _provenance(results: Iterable[StoredResult]) -> Section:
    """Return how every result was made: a row each, and its manifest to open."""
    rows = []
    details = []
    for result in results:
        manifest = result.manifest
        machine = manifest.get("machine") or {}
        made = manifest.get("made")
        rows.append(
            [
                result.name,
                result.kind,
                manifest.get("rankproof") or manifest.get("version") or "",
                made if isinstance(made, str) else "",
                manifest.get("seed"),
                f"{machine.get('cores')} cores, {machine.get('machine')}" if machine else "",
            ]
        )
        shown = _shown_manifest(result)
        text = json.dumps(redact(shown), indent=2, ensure_ascii=False, default=str)
        details.append(fold(result.name, [element("pre", text)]))
    headings = ["file", "kind", "rankproof", "made", "seed", "machine"]
    body = [data_table(headings, rows), *details]
    return Section("provenance", "Where every figure comes from", [], body)


def _shown_manifest(result: StoredResult) -> dict[str, Any]:
    """Return the parts of a manifest that say how a result was made."""
    keys = ("config", "inputs", "versions", "machine", "prices", "policy", "made")
    shown = {key: result.manifest[key] for key in keys if result.manifest.get(key) is not None}
    if result.kind in ("names", "noise"):
        described = ("fingerprint", "language", "lists", "source", "queries", "runs")
        shown |= {key: result.data[key] for key in described if key in result.data}
    return shown


# -------------------------------------------------------------------------------------- page


def render(sections: list[Section], title: str) -> str:
    """Return the page as text."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: escape(value) if isinstance(value, str) else value,
    )
    environment.filters["sentence"] = mark_up_sentence
    assets = files("rankproof.report") / "assets"
    template = environment.from_string((assets / "page.html").read_text(encoding="utf-8"))
    verdict = _verdict(sections)
    return template.render(
        title=title,
        version=__version__,
        verdict=verdict[:_VERDICT_LINES],
        further=len(verdict) - _VERDICT_LINES,
        sections=sections,
        style=page_style(),
        script=Html((assets / "page.js").read_text(encoding="utf-8")),
    )


def page_style() -> Html:
    """Return the style sheet: colors in light and dark, the page's rules and the charts'."""
    css = (files("rankproof.report") / "assets" / "page.css").read_text(encoding="utf-8")
    for name, colors in (("/*LIGHT*/", LIGHT), ("/*DARK*/", DARK)):
        css = css.replace(name, variables(colors))
    return Html(css + STYLE)


def _verdict(sections: list[Section]) -> list[tuple[Section, str]]:
    """Return what matters most: the gist of each section, with where to read on."""
    gists = [
        (section, section.gist or next(iter(section.words), ""))
        for section in sections
        if not section.quiet
    ]
    return [(section, gist) for section, gist in gists if gist]
