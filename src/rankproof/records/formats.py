"""Which format a file is written in: its first bytes where they decide, else its ending."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal, get_args

from rankproof.errors import InputError, shorten
from rankproof.records.frames import is_header
from rankproof.records.sources import Source

Format = Literal["trec", "csv", "tsv", "json", "jsonl", "parquet", "arrow"]
FORMATS: tuple[Format, ...] = get_args(Format)

_COMPRESSED = (".gz", ".zst", ".bz2", ".xz")
_ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
# Endings that TREC files and tables share, so that they say nothing about the format.
_SHARED = (".trec", ".run", ".res", ".txt", ".qrels", ".qrel", ".tsv")


def format_of(source: Source) -> Format:
    if source.head.startswith(b"PAR1"):
        return "parquet"
    if source.head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):  # a file, a stream
        return "arrow"
    form = _ENDINGS.get(_path(source).suffix.lower())
    if form in ("parquet", "arrow"):
        raise InputError(
            f"the file does not begin as {form} does",
            place=source.label,
            remedy="fetch or write it again, or name its format (format=, --input-format)",
        )
    return form or _by_first_line(source.head.lstrip())


def _by_first_line(head: bytes) -> Format:
    line = head.split(b"\n", 1)[0]
    if re.match(rb'\{\s*["}]|\[\s*["{\[\]]', head):
        try:
            first = json.loads(line)
        except ValueError:  # it goes on in the lines below
            return "json"
        flat = isinstance(first, dict) and first and not isinstance(_any(first), dict)
        return "jsonl" if flat else "json"
    for form, separator in (("tsv", "\t"), ("csv", ",")):
        if is_header(line.decode(errors="replace").split(separator)):
            return form
    return "trec"


def name_of(source: Source) -> str:
    """The file's name without the endings that say how it is written."""
    path = _path(source)
    return path.stem if path.suffix.lower() in (*_SHARED, *_ENDINGS) else path.name


def _path(source: Source) -> Path:
    """Without an ending that says how it is compressed."""
    path = Path("stdin" if source.path == "-" else source.path)
    return path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path


def check_format(name: str | None) -> None:
    if name is not None and name not in FORMATS:
        raise InputError(
            f"format {shorten(name)} is unknown", remedy=f"use one of {', '.join(FORMATS)}"
        )
