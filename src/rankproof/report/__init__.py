"""One self-contained page from a folder of results.

found.py      which files are results, and of what
ties.py       sections: evaluations, comparisons, gates, leaderboards, audits
decision.py   the choice of a sweep, which opens the page
choices.py    sections: the map of a sweep, its answers and ceilings
finalists.py  questions on which the choice and its rival differ
history.py    what the last sweep said
wording.py    configurations in words, and what every figure means
evidence.py   sections: golden sets, names, noise
svg.py        charts
parts.py      sections, tables, figures
page.py       all of it as one file; assets/ holds the template, style and script
"""

from __future__ import annotations

from rankproof.foundation.errors import MissingExtra

try:
    import jinja2  # noqa: F401  (markupsafe, of which every part is made, comes with it)
except ImportError:
    raise MissingExtra("a report", "jinja2", "report") from None

from rankproof.report.page import write_report

__all__ = ["write_report"]
