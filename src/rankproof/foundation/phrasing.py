"""Numbers and paths as sentences say them: `1 query`, `2 queries`; nothing that rounds to 0 has a
sign, and a command that is told can be typed."""

from __future__ import annotations

import math
import shlex
from pathlib import Path


def typed(path: str | Path) -> str:
    """A path as it stands in a command to type: quoted, and no option if it begins with a dash.

    >>> typed("my run.trec"), typed("-1"), typed(Path("runs") / "a.trec")
    ("'my run.trec'", './-1', 'runs/a.trec')
    """
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def plural(count: int, one: str, more: str | None = None) -> str:
    """A count and what it counts; `more` where an s does not make the plural.

    >>> counted(1, "run"), counted(2, "run"), counted(1_200, "query is", "queries are")
    ('1 run', '2 runs', '1,200 queries are')
    """
    if more is None:
        more = f"{one[:-1]}ies" if one.endswith("y") else f"{one}s"
    return f"{count:,} {one if count == 1 else more}"


def out_of(count: int, total: int, one: str, does: str, do: str) -> str:
    """So many of so many, and what they do: the noun is the total's, the verb the count's.

    >>> part(1, 30, "query", "has", "have"), part(0, 1, "query", "has", "have")
    ('1 of 30 queries has', '0 of 1 query has')
    """
    return f"{count:,} of {plural(total, one)} {does if 1 in (count, total) else do}"


def signed(value: float | None, digits: int = 4) -> str:
    """Write a difference with its sign; one that is undefined (None, NaN) is a dash.

    >>> signed(0.25), signed(-1e-9), signed(float("nan"))
    ('+0.2500', '0.0000', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    written = f"{value:+.{digits}f}"
    return written if float(written) else f"{0:.{digits}f}"


def amount(value: float, digits: int = 4) -> str:
    """A number above 0 that does not read as 0.

    >>> amount(0.25), amount(3e-6)
    ('0.2500', '3e-06')
    """
    return f"{value:.{digits}f}" if value >= 0.5 * 10**-digits else f"{value:.1g}"
