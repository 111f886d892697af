"""What a file says, read the plain way: `bytes.split`, `float` and `json`, row by row.

Slow, and no judge of what is well formed: whatever a reader of rankproof accepts must read the
same here, and a line that this one cannot make sense of is one that rankproof has to refuse. Only
the names that columns may bear are the readers' own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from rankproof.data.columns import Kind
from rankproof.data.frames import choose_columns
from rankproof.data.sources import Format

Row = tuple[str, str, float]

_IDS = ("id", "_id", "doc_id", "node_id")
_SCORES = ("score", "_score", "relevance_score", "_relevance_score")


def rows(data: bytes, kind: Kind, form: Format) -> list[Row]:
    """The rows in the order of the file; ValueError, KeyError and the like where there are none."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    if form == "trec":
        return list(_trec(data, kind))
    if form in ("plain", "msmarco"):
        sign = -1 if form == "msmarco" else 1  # of ranks the first is the best
        found = (_texts(fields, 3) for fields in _lines(data))
        return [(query, doc, sign * float(number)) for query, doc, number in found]
    text = data.decode()
    if form == "json":
        loaded = json.loads(text)
        return list(_named(iter(loaded), kind) if isinstance(loaded, list) else _lists(loaded))
    if form == "mteb":
        return list(_lists(_of_mteb(json.loads(text))))
    if form == "jsonl":
        return list(_named((json.loads(line) for line in text.split("\n") if line.strip()), kind))
    return list(_named(_csv(text, "," if form == "csv" else "\t"), kind))


def ranks(data: bytes) -> bool:
    """Whether three columns are MS MARCO's: the third counts 1, 2, 3, … through each list."""
    counted: dict[bytes, int] = {}
    for query, _, number in _lines(data.removeprefix(b"\xef\xbb\xbf")):
        counted[query] = counted.get(query, 0) + 1
        if not re.fullmatch(rb"0*%d" % counted[query], number):
            return False
    return True


# ------------------------------------------------------------------------------ fields and blanks


def _lines(data: bytes) -> Iterator[list[bytes]]:
    """The fields of each line that says something. A CR is a blank like others."""
    for line in data.split(b"\n"):
        fields = line.split()
        if fields and not fields[0].startswith(b"#"):
            yield fields


def _texts(fields: list[bytes], count: int) -> list[str]:
    """So many fields and no more."""
    if len(fields) != count:
        raise ValueError(fields)
    return [field.decode() for field in fields]


def _trec(data: bytes, kind: Kind) -> Iterator[Row]:
    """A run's tag may be no word or several, in all of a file alike, and is not read."""
    first = 0
    for fields in _lines(data):
        first = first or len(fields)
        if kind == "qrels":
            query, _, doc, number = _texts(fields, 4)
        elif len(fields) < min(first, 6) or (first <= 6 and len(fields) != first):
            raise ValueError(fields)
        else:
            query, _, doc, _, number = _texts(fields[:5], 5)
        yield query, doc, float(number)


# ------------------------------------------------------------------------------------------ JSON


def _of_mteb(loaded: dict[str, Any]) -> dict[str, Any]:
    """The predictions of the only split, or of the only one that is called test."""
    splits = [
        (name, lists)
        for subset, found in loaded.items()
        if subset != "mteb_model_meta" and isinstance(found, dict)
        for name, lists in found.items()
    ]
    tests = [split for split in splits if split[0] == "test"]
    ((_, lists),) = splits if len(splits) == 1 else tests
    return dict(lists)


def _lists(listed: dict[str, Any]) -> Iterator[Row]:
    for query, hits in listed.items():
        pairs = list(hits.items()) if isinstance(hits, dict) else list(map(_pair, hits))
        for rank, (doc, score) in enumerate(pairs, 1):
            yield query, _id(doc), -float(rank) if score is None else float(score)


def _pair(hit: Any) -> tuple[Any, Any]:
    """(document, score) of one hit; None where it has no score."""
    if isinstance(hit, list):
        doc, score = hit
        return (_pair(doc)[0] if isinstance(doc, dict | list) else doc), score
    if not isinstance(hit, dict):
        return hit, None
    beside = [hit.get(name) for name in ("metadata", "meta", "payload")]
    homes = [hit, *(home for home in beside if isinstance(home, dict))]
    ids = [home[name] for home in homes for name in _IDS if home.get(name) is not None]
    scores = [hit[name] for name in _SCORES if name in hit]
    return ids[0], scores[0] if scores else None


def _id(given: Any) -> str:
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise TypeError(given)
    return str(given)


# ---------------------------------------------------------------------------------------- tables


def _csv(text: str, separator: str) -> Iterator[dict[str, Any]]:
    lines = (cells for cells in _cells(text, separator) if any(c.strip("\r") for c in cells))
    names = next(lines)
    for cells in lines:  # a row may end early; of two columns of one name the first is meant
        yield dict(reversed(list(zip(names, cells, strict=False))))


def _cells(text: str, separator: str) -> Iterator[list[str]]:
    """RFC 4180: rows end in LF or CRLF; a field that begins with a quote ends with one.

    In tab-separated files a quote is a letter like others.
    """
    quoted = '"((?:[^"]|"")*)"|(?!")' if separator == "," else "()"
    field = re.compile(rf"(?:{quoted}([^{separator}\n]*?))({separator}|\r?\n|\Z)")
    cells: list[str] = []
    at = 0
    while at < len(text) or cells:
        found = field.match(text, at)
        if found is None:
            raise ValueError(text[at:])
        inside, plain, end = found.groups()
        cells.append((inside or "").replace('""', '"') or plain or "")
        at = found.end()
        if end != separator:
            yield cells
            cells = []


def _named(given: Iterator[dict[str, Any]], kind: Kind) -> Iterator[Row]:
    names: list[str] = []
    for row in given:
        names = names or choose_columns(row, kind, "")
        query, doc, value = (row[name] for name in names)
        yield _id(query), _id(doc), float(value)
