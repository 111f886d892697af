"""A golden set as one page of HTML: no script, nothing loaded, every text escaped."""

from __future__ import annotations

from html import escape as escape_html

from rankproof.foundation.phrasing import plural
from rankproof.foundation.printable import escape_controls
from rankproof.golden.result import Golden, GoldenPassage, GoldenQuery

_SHOWN = 600  # characters of a passage; all of it is in golden.jsonl

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1f24; background: #fff }
h1 { font-size: 1.5rem } h1, h2, summary { font-weight: 600 }
.banner { background: #b42318; color: #fff; padding: .75rem 1rem; border-radius: 6px }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem } dt { color: #57606a }
dd { margin: 0 }
details { border-top: 1px solid #d0d7de; padding: .6rem 0 } summary { cursor: pointer }
.note { color: #57606a; font-size: .875rem; font-weight: 400 }
table { border-collapse: collapse; width: 100%; font-size: .9rem } th { text-align: left }
th, td { padding: .35rem .5rem; vertical-align: top; border-top: 1px solid #eaeef2 }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
td.text { overflow-wrap: anywhere; white-space: pre-line }
.g { display: inline-block; min-width: 1.4em; text-align: center; border-radius: 4px;
  border: 1px solid #57606a }
.g5 { background: #1a7f37; color: #fff } .g4 { background: #aceebb } .g3 { background: #fff8c5 }
.failed { color: #b42318 } del { color: #57606a }
@media (prefers-color-scheme: dark) {
  body { color: #e6edf3; background: #0d1117 } .note, dt, del { color: #9198a1 }
  details, th, td { border-color: #30363d } .failed { color: #ff8a80 }
  .g4, .g3 { color: #1b1f24 }
}
"""


def escape(text: str) -> str:
    """Text on the page: what has a meaning in HTML is escaped, what acts is written out."""
    return escape_html(escape_controls(text, lines=True))


def page(golden: Golden) -> str:
    """The page."""
    judge, counts = golden.judge, golden.counts
    banner = (
        '<p class="banner" role="alert"><strong>Simulated.</strong> The judge knew the answers '
        "beforehand and noise was added: figures made from this golden set are evidence of "
        "nothing.</p>"
        if golden.simulated
        else ""
    )
    facts = {
        "Judge": f"{judge['name']} ({judge['type']})",
        "Files": ", ".join(sorted({item["file"] for item in golden.inputs.values()})),
        "Queries": str(len(golden.queries)),
        "Passages": f"{counts.total}: {counts.graded} graded, {counts.failed} failed, "
        f"{counts.validated} validated and {counts.corrected} corrected by people",
        "Cost": "not known" if golden.cost is None else f"${golden.cost:.4f}",
        "Seed": str(golden.config["seed"]),
    }
    listed = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    body = "\n".join(_query(query, first=at == 0) for at, query in enumerate(golden.queries))
    title = "Golden set (simulated)" if golden.simulated else "Golden set"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{title}</h1>
{banner}
<dl>{listed}</dl>
<p class="note">Grades: 5 answers clearly, 4 highly relevant, 3 partial, 2 weak, 1 not relevant.
The interval of a rank is where it lies with a probability of 95%, as far as the judge's answers
and people's labels tell. A grade or rank that people changed stands after the judge's, which is
struck out; a grade that people gave has a mark.</p>
{body}
</body>
</html>"""


def _query(query: GoldenQuery, first: bool) -> str:
    ranked = [p for p in query.passages if p.rank is not None]
    failed = [p for p in query.passages if p.grade is None]
    rest = len(query.passages) - len(ranked) - sum(p.rank is None for p in failed)
    rewritten = "" if query.asked == query.text else f" Searched as: {query.asked}"
    sure = "" if query.overlap is None else f" Expected overlap of the top: {query.overlap:.0%}."
    lost = f", {query.failed} failed" if query.failed else ""
    note = f"{plural(query.calls, 'call')}{lost}.{sure}{rewritten}"
    if rest:
        more = plural(rest, "more passage was", "more passages were")
        note += f" {more} graded and not put in order."
    rows = "".join(_row(p) for p in [*ranked, *(p for p in failed if p.rank is None)])
    table = (
        "<table><thead><tr><th>rank</th><th>95%</th><th>grade</th><th>passage</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
        if rows
        else ""
    )
    return (
        f"<details{' open' if first else ''}><summary>{escape(query.text)} "
        f'<span class="note">{escape(query.query)}</span></summary>'
        f'<p class="note">{escape(note)}</p>{table}</details>'
    )


def _row(p: GoldenPassage) -> str:
    rank = _changed(p.judged_rank, p.rank)
    interval = "" if p.low is None else f"{p.low}–{p.high}"
    if p.grade is None:
        grade = f'<span class="failed">failed: {escape(p.failure or "")}</span>'
    else:
        old = "" if p.judged in (None, p.grade) else f"<del>{p.judged}</del> "
        said = " ✓" if p.validated else ""
        grade = f'{old}<span class="g g{p.grade}">{p.grade}</span>{said}'
    text = p.text if len(p.text) <= _SHOWN else f"{p.text[:_SHOWN]}…"
    source = "" if p.source is None else f" · {p.source}"
    return (
        f'<tr><td class="n">{rank}</td><td class="n">{interval}</td><td>{grade}</td>'
        f'<td class="text">{escape(text)}<br><span class="note">{escape(p.doc + source)}</span>'
        "</td></tr>"
    )


def _changed(old: int | None, new: int | None) -> str:
    if new is None:
        return "–"
    return str(new) if old == new else f"<del>{old}</del> {new}"
