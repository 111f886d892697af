"""Read which queries share a source: two columns, query and group.

Scores of questions about one document, or of paraphrases, are correlated, so intervals and tests
count the groups and not the queries. The file has two columns, separated by tabs, commas or blanks;
a first line `query group` is a header.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from rankproof.data.frames import is_frame
from rankproof.foundation.arrays import Int
from rankproof.foundation.errors import InputError, shorten

GroupsLike: TypeAlias = "str | os.PathLike[str] | Mapping[str, str | int] | Any"


def read_groups(groups: GroupsLike) -> dict[str, int]:
    """Return the number of each query's group, from a file, a mapping or a frame.

    >>> from rankproof.data.query_groups import read_groups
    >>> read_groups({"q1": "doc a", "q2": "doc a", "q3": "doc b"})
    {'q1': 0, 'q2': 0, 'q3': 1}
    """
    if isinstance(groups, str | os.PathLike):
        return _numbered(_lines_of(groups), os.fspath(groups))
    if isinstance(groups, Mapping):
        return _numbered((("", query, group) for query, group in groups.items()), "groups")
    if is_frame(groups):
        rows = zip(list(groups["query"]), list(groups["group"]), strict=True)
        return _numbered((("", query, group) for query, group in rows), "groups")
    raise InputError(
        f"groups {shorten(groups)}", remedy="give a file, {query: group} or a frame of both columns"
    )


def _lines_of(path: str | os.PathLike[str]) -> Iterable[tuple[str, str, str]]:
    """Yield place, query and group of each line of a file."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8", place=os.fspath(path), remedy="convert it") from None
    except OSError as error:
        raise InputError(
            f"cannot read it ({error.strerror})", place=os.fspath(path), remedy="check the path"
        ) from None
    lines = text.splitlines()
    separator = next((s for s in ("\t", ",") if lines and s in lines[0]), None)
    for number, line in enumerate(lines, 1):
        fields = [field.strip() for field in line.split(separator)]
        if not line.strip() or (number == 1 and fields == ["query", "group"]):
            continue
        place = f"{os.fspath(path)}:{number}"
        if len(fields) != 2 or not all(fields):
            raise InputError(
                f"{shorten(line)} is not a query and a group", place=place, remedy="two columns"
            )
        yield place, fields[0], fields[1]


def _numbered(rows: Iterable[tuple[str, Any, Any]], label: str) -> dict[str, int]:
    """Return the number of each query's group; refuse a query in two groups."""
    numbers: dict[str, int] = {}
    group_of: dict[str, int] = {}
    for place, query, group in rows:
        number = numbers.setdefault(str(group), len(numbers))
        if group_of.setdefault(str(query), number) != number:
            raise InputError(
                f"query {shorten(query)} is in two groups",
                place=place or label,
                remedy="keep one of the two",
            )
    if not group_of:
        raise InputError("no query", place=label, remedy="give two columns: query and group")
    return group_of


def number_groups(queries: pl.Series, groups: Mapping[str, int] | None) -> Int | None:
    """Return (Q,) the number of each query's group; an unlisted query is its own group."""
    if groups is None:
        return None
    offset = max(groups.values(), default=-1) + 1
    return np.array(
        [groups.get(q, offset + at) for at, q in enumerate(queries.to_list())], np.int64
    )
