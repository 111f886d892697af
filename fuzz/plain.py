"""What a file says, read the plain way: `str.split`, `float`, `csv` and `json`, row by row.

Slow, and no judge of what is well formed: whatever a reader of rankproof accepts must read the
same here, and a line that this one cannot make sense of is one that rankproof has to refuse.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any

from rankproof.records.columns import Kind
from rankproof.records.frames import choose_columns
from rankproof.records.sources import Format

Row = tuple[str, str, float]

_BLANKS = " \t\r\x0b\x0c"


def rows(text: str, kind: Kind, form: Format) -> list[Row]:
    """The rows in the order of the file; ValueError, KeyError and the like where there are none."""
    if form == "trec":
        return list(_trec(text, kind))
    if form == "json":
        listed = json.loads(text)
        if isinstance(listed, list):
            return list(_named(iter(listed), kind))
        found = []
        for query, docs in listed.items():
            pairs = docs.items() if isinstance(docs, dict) else map(_pair, docs, range(len(docs)))
            found += [(query, str(doc), float(value)) for doc, value in pairs]
        return found
    if form == "jsonl":
        return list(_named((json.loads(line) for line in text.split("\n") if line.strip()), kind))
    return list(_named(_csv(text, "," if form == "csv" else "\t"), kind))


def _trec(text: str, kind: Kind) -> Iterator[Row]:
    width, at = (6, 4) if kind == "run" else (4, 3)
    first = 0  # a run's tag may be no word or several, in all of a file alike
    for line in text.split("\n"):
        stripped = line.strip(_BLANKS)
        if stripped and not stripped.startswith("#"):
            fields = re.split(f"[{_BLANKS}]+", stripped)
            first = first or (len(fields) if kind == "run" and len(fields) >= 5 else width)
            if len(fields) < min(first, width) or (first <= width and len(fields) != first):
                raise ValueError(line)
            yield fields[0], fields[2], float(fields[at])


def _pair(item: Any, at: int) -> tuple[Any, float]:
    """(document, score) of an item of a list; minus the rank where it has no score."""
    if isinstance(item, list):
        return item[0], item[1]
    return item, -(at + 1.0)


def _csv(text: str, separator: str) -> Iterator[dict[str, Any]]:
    file = io.StringIO(text, newline="")
    table = (
        csv.reader(file, strict=True)
        if separator == ","
        else csv.reader(file, delimiter=separator, quoting=csv.QUOTE_NONE, strict=True)
    )
    lines = (cells for cells in table if any(cells))
    names = next(lines)
    for cells in lines:
        yield dict(zip(names, cells, strict=False))  # a row may end early; its id is missed below


def _named(given: Iterator[dict[str, Any]], kind: Kind) -> Iterator[Row]:
    names: list[str] = []
    for row in given:
        names = names or choose_columns(row, kind, "")
        query, doc, value = (row[name] for name in names)
        yield str(query), str(doc), float(value)
