"""Which format a file is written in: its first bytes where they decide, else its ending."""

from __future__ import annotations

import json
import re
from typing import get_args

from rankproof.errors import InputError, shorten
from rankproof.records.frames import is_header
from rankproof.records.sources import ENDINGS, Format, Source, ending

FORMATS: tuple[Format, ...] = get_args(Format)


def format_of(source: Source) -> Format:
    if source.head.startswith(b"PAR1"):
        return "parquet"
    if source.head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):  # a file, a stream
        return "arrow"
    form = ENDINGS.get(ending(source.path))
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
        except (ValueError, RecursionError):  # it goes on in the lines below, or is none
            return "json"
        if isinstance(first, dict) and first:
            nested = any(isinstance(value, dict) for value in first.values())
            return "json" if nested else "jsonl"
        return "json"
    names = line.decode(errors="replace")
    if is_header(names.split("\t")):
        return "tsv"
    return "csv" if is_header(names.split(",")) else "trec"


def check_format(name: str | None) -> None:
    if name is not None and name not in FORMATS:
        raise InputError(
            f"format {shorten(name)} is unknown", remedy=f"use one of {', '.join(FORMATS)}"
        )
