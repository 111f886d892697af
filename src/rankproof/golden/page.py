"""The index.html of an export: a golden set to read, without scripts or anything to load."""

from __future__ import annotations

from html import escape as escape_html
from pathlib import Path
from string import Template

from rankproof.foundation.files import read_text
from rankproof.foundation.phrasing import plural
from rankproof.foundation.printable import escape_controls
from rankproof.golden.result import Golden, GoldenPassage, GoldenQuery

_MAX_PASSAGE_CHARS = 600  # on the page; golden.jsonl has whole passages

_TEMPLATE = Path(__file__).parents[1] / "resources" / "golden_page.html"


def _escape(text: str) -> str:
    """Return a text in which neither HTML nor control characters have an effect."""
    return escape_html(escape_controls(text, lines=True))


def page(golden: Golden) -> str:
    """Return the page: facts about the set, then each query with ranked and failed passages."""
    banner = ""
    if golden.simulated:
        banner = (
            '<p class="banner" role="alert"><strong>Simulated.</strong> The judge knew the answers '
            "beforehand and noise was added: figures made from this golden set are evidence of "
            "nothing.</p>"
        )
    facts = "".join(
        f"<dt>{_escape(name)}</dt><dd>{_escape(value)}</dd>"
        for name, value in _facts(golden).items()
    )
    sections = (_query(query, is_open=n == 0) for n, query in enumerate(golden.queries))
    body = "\n".join(sections)
    title = "Golden set (simulated)" if golden.simulated else "Golden set"
    template = Template(read_text(_TEMPLATE).rstrip("\n"))
    return template.substitute(title=title, banner=banner, facts=facts, body=body)


def _facts(golden: Golden) -> dict[str, str]:
    """What was judged by whom, and what it cost."""
    judge, counts = golden.judge, golden.counts
    return {
        "Judge": f"{judge['name']} ({judge['type']})",
        "Files": ", ".join(sorted({item["file"] for item in golden.inputs.values()})),
        "Queries": str(len(golden.queries)),
        "Passages": f"{counts.total}: {counts.graded} graded, {counts.failed} failed, "
        f"{counts.validated} validated and {counts.corrected} corrected by people",
        "Cost": "not known" if golden.cost is None else f"${golden.cost:.4f}",
        "Seed": str(golden.config["seed"]),
    }


def _query(query: GoldenQuery, is_open: bool) -> str:
    """A query, to be opened with a click, and a table of its ranked and its failed passages."""
    failed = [p for p in query.passages if p.rank is None and p.grade is None]
    shown = [*query.ranked, *failed]
    failed_calls = f", {query.failed} failed" if query.failed else ""
    note = f"{plural(query.calls, 'call')}{failed_calls}."
    if query.overlap is not None:
        note += f" Expected overlap of the top: {query.overlap:.0%}."
    if query.asked != query.text:
        note += f" Searched as: {query.asked}"
    if unranked := len(query.passages) - len(shown):
        passages = plural(unranked, "more passage was", "more passages were")
        note += f" {passages} graded and not put in order."
    table = ""
    if shown:
        table = (
            "<table><thead><tr><th>rank</th><th>95%</th><th>grade</th><th>passage</th></tr>"
            f"</thead><tbody>{''.join(map(_row, shown))}</tbody></table>"
        )
    return (
        f"<details{' open' if is_open else ''}><summary>{_escape(query.text)} "
        f'<span class="note">{_escape(query.query)}</span></summary>'
        f'<p class="note">{_escape(note)}</p>{table}</details>'
    )


def _row(p: GoldenPassage) -> str:
    """A passage with its rank and grade, after those by the judge that people changed."""
    rank = "–" if p.rank is None else f"{_struck_out(p.judged_rank, p.rank)}{p.rank}"
    interval = "" if p.low is None else f"{p.low}–{p.high}"
    if p.grade is None:
        grade = f'<span class="failed">failed: {_escape(p.failure or "")}</span>'
    else:
        mark = " ✓" if p.validated else ""
        struck_out = _struck_out(p.judged, p.grade)
        grade = f'{struck_out}<span class="g g{p.grade}">{p.grade}</span>{mark}'
    text = p.text
    if len(text) > _MAX_PASSAGE_CHARS:
        text = f"{text[:_MAX_PASSAGE_CHARS]}…"
    source = "" if p.source is None else f" · {p.source}"
    return (
        f'<tr><td class="n">{rank}</td><td class="n">{interval}</td><td>{grade}</td>'
        f'<td class="text">{_escape(text)}<br><span class="note">{_escape(p.doc + source)}</span>'
        "</td></tr>"
    )


def _struck_out(judged: int | None, final: int) -> str:
    """The judge's rank or grade, struck out; "" if it has none or it is also the final one."""
    return "" if judged in (None, final) else f"<del>{judged}</del> "
