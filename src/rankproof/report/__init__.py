"""One self-contained page from a folder of results.

It computes nothing of its own: results show their stored presentation. Only sweeps and golden
sets, which are folders, have sections that are put together here.

page.py                 all of it as one file; assets/ holds template, style and script
result_files.py         which files are results, and of what
decision.py             the choice of a sweep, which opens the page
choices.py              other sections of a sweep: map, answers, ceilings, load
finalists.py            questions on which the choice and its rival differ
history.py              what the last sweep found best
golden.py               the section of a golden set
configuration_names.py  configurations in words; glossary.py says what measures mean
page_elements.py        sections, paragraphs, tables
"""

from __future__ import annotations

from rankproof.foundation.errors import MissingExtra

try:
    import jinja2  # noqa: F401
except ImportError:
    raise MissingExtra("a report", "jinja2", "report") from None

from rankproof.report.page import write_report

__all__ = ["write_report"]
