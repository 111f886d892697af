"""Results of a folder → one HTML file that needs nothing else."""

from __future__ import annotations

import html
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import polars as pl
from markupsafe import Markup

from rankproof.foundation.errors import InputError
from rankproof.foundation.files import check_output, write_atomically
from rankproof.foundation.redaction import redact
from rankproof.foundation.version import __version__
from rankproof.report.choices import sweep
from rankproof.report.configuration_names import TERMS, meaning, measures_in
from rankproof.report.evidence import golden, names, noise
from rankproof.report.page_elements import Section, fold, table
from rankproof.report.result_files import Result, find, reason
from rankproof.report.svg import element, shown
from rankproof.report.ties import audit, comparison, evaluation, gate, leaderboard
from rankproof.tradeoffs.results import EARLIER, find_row, read_results
from rankproof.tradeoffs.selection import Limits

_ONE = {
    "evaluation": evaluation,
    "comparison": comparison,
    "audit": audit,
    "gate": gate,
    "leaderboard": leaderboard,
    "golden": golden,
    "names": names,
    "noise": noise,
}
_VERDICT = 12  # lines of it
_LARGEST = 1_000_000  # bytes of a page, and the configurations of a sweep that it then shows
_MOST = (400, 250, 150, 80, 40)
_HEAD = re.compile(r"<th [^>]*data-tip[^>]*>([^<]*)</th>")
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
    """Write the page (by default `report.html` in the folder); files that could not be read. `row`
    names the configuration of the folder's sweep that it opens with, in place of the best;
    `limits` are those that its sliders begin with.

    >>> from rankproof.report import write_report
    >>> path, unread = write_report("try/results")
    >>> path.name, unread
    ('report.html', [])
    """
    place = Path(folder)
    found, broken = find(place)
    if row is not None:
        find_row(read_results(place).frame, row, str(folder))
    path = place / "report.html" if out is None else Path(out)
    inputs = [result.path for result in found]
    check_output(path if out is None else out, inputs)
    named = title or f"Results in {place.resolve().name}"
    sweeps = any(result.kind == "sweep" for result in found)
    for most in _MOST if sweeps else _MOST[:1]:  # which shortens sweeps alone
        sections, misshapen = _sections(found, place, row, limits, most)
        data = render(sections, named).encode()
        if len(data) < _LARGEST:
            break
    written = write_atomically(path, lambda file: file.write_bytes(data), inputs=inputs)
    return written, broken + misshapen


def _sections(
    found: list[Result], place: Path, row: str | None, limits: Limits | None, most: int
) -> tuple[list[Section], list[str]]:
    """What can be shown, and files that say they are results and are not shaped like them."""
    sections: list[Section] = []
    shown: list[Result] = []
    misshapen: list[str] = []
    former = {result.path.parent: result for result in found if result.kind == "sweep"}
    for at, result in enumerate(found):
        if result.path.parent.name == EARLIER and result.path.parent.parent in former:
            continue  # the section of the sweep that took its place speaks of it
        try:
            one = _ONE.get(result.kind)
            if one is None:
                named = row if result.path.parent == place else None
                earlier = former.get(result.path.parent / EARLIER)
                sections += sweep(result, at, earlier, named, limits, most=most)
            else:
                sections.append(one(result, at))
            shown.append(result)
        except _MISSHAPEN as error:
            said = f"no {error}" if isinstance(error, KeyError) else reason(error)
            misshapen.append(f"{result.name}: not the {result.kind} that rankproof writes ({said})")
    if not shown:
        first, *more = misshapen
        raise InputError(
            first + (f", and {len(more)} more" if more else ""),
            remedy="make it again with rankproof",
        )
    return [*sections, _glossary(sections), _provenance(shown)], misshapen


def _glossary(sections: list[Section]) -> Section:
    """What every measure and heading on the page means."""
    texts = [text for s in sections for text in (*s.words, s.title, *map(str, s.body))]
    heads = (match[1] for text in texts for match in _HEAD.finditer(text))
    terms = dict.fromkeys(html.unescape(head) for head in heads)
    said = {name: meaning(name) for name in measures_in(texts)}
    said |= {term: meaning(term) for term in terms if term in TERMS}
    entries = [
        part
        for term, words in said.items()
        if words is not None
        for part in (element("dt", term), element("dd", words))
    ]
    return Section(
        "glossary", "What the words mean", [], [element("dl", entries, class_="glossary")]
    )


def render(sections: list[Section], title: str) -> str:
    """The page as text."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: shown(value) if isinstance(value, str) else value,
    )
    environment.filters["said"] = _said
    assets = files("rankproof.report") / "assets"
    template = environment.from_string((assets / "page.html").read_text(encoding="utf-8"))
    return template.render(
        title=title,
        version=__version__,
        verdict=(said := _verdict(sections))[:_VERDICT],
        further=len(said) - _VERDICT,
        sections=sections,
        style=Markup((assets / "page.css").read_text(encoding="utf-8")),
        script=Markup((assets / "page.js").read_text(encoding="utf-8")),
    )


# A word is looked at from its first letter alone: a long id would be read from each on.
# Words in a row are one name; the colon or full stop behind it is the sentence's.
_WORD = r"[^\s<>&;,()]*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc][^\s<>&;,()]*"
_BACKWARD = re.compile(rf"(?<![^\s<>&;,()]){_WORD}(?: {_WORD})*(?<![:.?!])")


def _said(words: str) -> Markup:
    """Words with what stands between backticks as code, and ids that run from right to left apart
    from the figures beside them."""
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(shown(words)))
    return Markup(_BACKWARD.sub(r"<bdi>\g<0></bdi>", escaped))


def _verdict(sections: list[Section]) -> list[tuple[Section, str]]:
    """What matters most: the first words of each section, with where to read on."""
    said = [
        (section, section.gist or next(iter(section.words), ""))
        for section in sections
        if not section.quiet
    ]
    return [(section, words) for section, words in said if words]


_DIAGNOSES = ("names", "noise")
_SAID = ("fingerprint", "language", "lists", "source", "queries", "runs")  # of a diagnosis


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
        if result.kind in _DIAGNOSES:
            kept |= {key: result.data[key] for key in _SAID if key in result.data}
        text = json.dumps(redact(kept), indent=2, ensure_ascii=False, default=str)
        details.append(fold(result.name, [element("pre", text)]))
    heads = ["file", "kind", "rankproof", "made", "seed", "machine"]
    words: list[str] = []
    return Section(
        "provenance", "Where every figure comes from", words, [table(heads, rows), *details]
    )
