"""Counts, numbers and paths as sentences write them.

Nothing that rounds to 0 has a sign, and a command that is shown can be pasted.
"""

from __future__ import annotations

import math
import shlex
from pathlib import Path


def typed(path: str | Path) -> str:
    """Return a path as it is typed in a shell: quoted, and no option if it begins with a dash.

    >>> typed("my run.trec"), typed("-1"), typed(Path("runs") / "a.trec")
    ("'my run.trec'", './-1', 'runs/a.trec')
    """
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def plural(count: int, singular: str, plural: str | None = None) -> str:
    """Return a count with its noun; `plural` is needed where an s does not make it.

    >>> plural(1, "run"), plural(2, "run"), plural(1_200, "query is", "queries are")
    ('1 run', '2 runs', '1,200 queries are')
    """
    if plural is None:
        plural = f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"
    return f"{count:,} {singular if count == 1 else plural}"


def out_of(count: int, total: int, noun: str, verb: str, plural_verb: str) -> str:
    """Return "1 of 30 queries has": the noun agrees with the total, the verb with the count.

    >>> out_of(1, 30, "query", "has", "have"), out_of(0, 1, "query", "has", "have")
    ('1 of 30 queries has', '0 of 1 query has')
    """
    return f"{count:,} of {plural(total, noun)} {verb if 1 in (count, total) else plural_verb}"


def signed(value: float | None, digits: int = 4) -> str:
    """Return a difference with its sign; an undefined one (None, NaN) is a dash.

    >>> signed(0.25), signed(-1e-9), signed(float("nan"))
    ('+0.2500', '0.0000', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    text = f"{value:+.{digits}f}"
    return text if float(text) else f"{0:.{digits}f}"


def amount(value: float, digits: int = 4) -> str:
    """Return a positive number so that it does not read as 0.

    >>> amount(0.25), amount(3e-6)
    ('0.2500', '3e-06')
    """
    return f"{value:.{digits}f}" if value >= 0.5 * 10**-digits else f"{value:.1g}"


def as_sentence(note: str) -> str:
    """Return a note with a capital letter and a full stop.

    >>> as_sentence("the judge was simulated")
    'The judge was simulated.'
    """
    return f"{note[:1].upper()}{note[1:].rstrip('.')}."
