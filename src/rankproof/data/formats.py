"""Find out in which format a file is written.

The first bytes decide where they can, else the ending, else a guess, which is stated in a note.

    data.register("mine", read, endings=(".mine",))

adds a format: `read(content, kind)` gets the decompressed bytes and "run" or "qrels", and returns
anything that `read_run` takes except a path: a dict, a frame, rows. A package names a module that
registers formats under the entry point `rankproof.readers`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from rankproof.data.columns import Kind
from rankproof.data.frames import is_header
from rankproof.data.sources import ENDINGS, HEAD, Format, Source, ending
from rankproof.data.three_columns import guess
from rankproof.foundation import plugins
from rankproof.foundation.errors import InputError, shorten

GROUP = "rankproof.readers"
FORMATS: list[Format] = [
    *("trec", "plain", "msmarco", "csv", "tsv", "json", "jsonl", "mteb", "nuggets"),
    *("parquet", "arrow"),
]
"""The formats that can be read; `register` adds to them.

>>> from rankproof.data import FORMATS
>>> "trec" in FORMATS
True
"""
_NUGGETS = re.compile(rb'\{.*"nuggets"\s*:\s*\[')
REGISTERED: dict[Format, Callable[[bytes, Kind], Any]] = {}

# Notes about guesses; the reader of TREC files writes its own.
GUESSED: dict[tuple[Format, Kind], str] = {
    ("msmarco", "run"): "three columns are read as query, document, rank, as MS MARCO has them "
    "(--input-format plain: a score)",
    ("plain", "run"): "three columns are read as query, document, score "
    "(--input-format msmarco: a rank)",
    ("plain", "qrels"): "three columns are read as query, document, grade",
}


def register(
    name: str, read: Callable[[bytes, Kind], Any], *, endings: tuple[str, ...] = ()
) -> None:
    """Add a format under a new name; files with these endings are read in it.

    >>> import polars as pl
    >>> from rankproof.data import register
    >>> register("pipes", lambda data, kind: pl.read_csv(data, separator="|"))
    >>> from pathlib import Path
    >>> _ = Path("run.pipes").write_text("query|doc|score" + chr(10) + "q1|a|0.5")
    >>> rp.read_run("run.pipes", format="pipes").score.tolist()
    [0.5]
    """
    if name in FORMATS and name not in REGISTERED:
        raise InputError(f"format {shorten(name)} is ours", remedy="give yours another name")
    conflict = next((e for e in endings if ENDINGS.get(e, name) not in (name, None)), None)
    if conflict is not None:
        raise InputError(
            f"{conflict} files are {ENDINGS[conflict]}",
            remedy="leave that ending out, or convert them",
        )
    if name not in REGISTERED:
        FORMATS.append(name)
    REGISTERED[name] = read
    ENDINGS.update(dict.fromkeys(endings, name))


@cache
def load_plugins() -> None:
    """Import the formats of other packages; needed only if no format of ours fits."""
    plugins.load(GROUP, "readers")


def format_of(source: Source, kind: Kind = "run") -> Format:
    """Return the format of a file, from its first bytes and its ending."""
    if source.head.startswith(b"PAR1"):
        return "parquet"
    if source.head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):  # a file, a stream
        return "arrow"
    suffix = ending(source.path)
    if suffix and suffix not in ENDINGS:
        load_plugins()
    form = ENDINGS.get(suffix)
    if form in ("parquet", "arrow"):
        raise InputError(
            f"the file does not begin as {form} does",
            place=source.label,
            remedy="fetch or write it again, or name its format (format=, --input-format)",
        )
    head = source.head.lstrip()
    if form in (None, "json") and re.match(rb'\{\s*"mteb_model_meta"', head):
        return "mteb"
    if form in (None, "json", "jsonl") and _NUGGETS.match(head.split(b"\n", 1)[0]):
        return "nuggets"
    if len(source.head) + source.bom == HEAD:  # its last line may be cut
        head = head[: head.rfind(b"\n") + 1] or head
    if form == "csv":
        names = head.split(b"\n", 1)[0].decode(errors="replace")
        if is_header(names.split("\t")):
            return "tsv"
        if is_header(names.split(";")):
            raise InputError(
                f"columns separated by ';': {shorten(names.strip())}",
                place=f"{source.label}:1",
                remedy="separate them with commas, and write decimals with points",
            )
    return form or _by_first_line(head, kind)


def _by_first_line(head: bytes, kind: Kind) -> Format:
    """Return the format that the first line of a file suggests."""
    line = head.split(b"\n", 1)[0]
    if re.match(rb'\{\s*["}]|\[\s*["{\[\]]', head):
        try:
            first = json.loads(line)
        except (ValueError, RecursionError):  # it spans several lines, or is not JSON
            return "json"
        if isinstance(first, dict) and first:
            is_nested = any(isinstance(value, dict | list) for value in first.values())
            return "json" if is_nested else "jsonl"
        return "json"
    names = line.decode(errors="replace")
    if is_header(names.split("\t")):
        return "tsv"
    if is_header(names.split(",")):
        return "csv"
    return guess(head, kind) or "trec"


def check_format(name: str | None) -> None:
    """Refuse an unknown name of a format."""
    if name is not None and name not in FORMATS:
        load_plugins()
    if name is not None and name not in FORMATS:
        raise InputError(
            f"format {shorten(name)} is unknown", remedy=f"use one of {', '.join(FORMATS)}"
        )
