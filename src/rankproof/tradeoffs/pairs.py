"""Tables of two columns from users: a source for each document, a verdict for each query."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from rankproof.data.columns import check_ids
from rankproof.data.frames import polars_reads
from rankproof.data.sources import Source, ending
from rankproof.foundation.errors import InputError, shorten

_KEYS = {
    "query": ("query", "query_id", "query-id", "qid", "_id", "id"),
    "doc": ("doc", "doc_id", "docno", "docid", "corpus-id", "passage", "_id", "id"),
}


@dataclass(frozen=True, slots=True)
class Pairs:
    """A column of keys, unique and as text, and a column of values as they were read."""

    frame: pl.DataFrame
    label: str  # for messages


def read_pairs(source: Any, key: str, value: str) -> Pairs:
    """Read columns `key` and `value` of a mapping, a frame, or a CSV, TSV, JSON-lines or Parquet
    file; the key may be called otherwise, such as `qid` or `docno`."""
    if isinstance(source, Pairs):
        return source
    if isinstance(source, Mapping):
        columns = {key: [str(k) for k in source], value: list(source.values())}
        return _check_pairs(pl.DataFrame(columns, strict=False), key, value, value)
    if isinstance(source, pl.DataFrame):
        frame, label = source, value
    elif isinstance(source, str | os.PathLike):
        file = Source(source)
        remedy = f"give CSV, TSV or JSON lines with the columns {key} and {value}"
        with polars_reads(file.label, remedy=remedy):
            frame, label = _read_frame(file), file.label
    else:
        raise InputError(
            f"cannot read {value} from {shorten(source)}",
            remedy=f"give a path, a {{{key}: {value}}} dict or a frame with these columns",
        )
    return _check_pairs(_select_columns(frame, key, value, label), key, value, label)


def _read_frame(file: Source) -> pl.DataFrame:
    """Read a table whose format shows in its first bytes."""
    if file.head.startswith(b"PAR1"):
        return pl.read_parquet(io.BytesIO(file.read()))
    text = file.text()
    if file.head.lstrip().startswith(b"{"):
        return pl.read_ndjson(io.BytesIO(text.encode()), infer_schema_length=None)
    header = text.split("\n", 1)[0]
    has_tabs = ending(file.path) == ".tsv" or ("\t" in header and "," not in header)
    return pl.read_csv(
        io.BytesIO(text.replace("\r\n", "\n").encode()),
        separator="\t" if has_tabs else ",",
        infer_schema=False,  # ids are text: 007 stays 007
    )


def _select_columns(frame: pl.DataFrame, key: str, value: str, label: str) -> pl.DataFrame:
    """Return the two columns under the names `key` and `value`; raise InputError if one is absent.

    Headings are compared without regard to case and blanks.
    """
    by_heading = {name.strip().lower(): name for name in reversed(frame.columns)}
    key_column = next((by_heading[name] for name in _KEYS[key] if name in by_heading), None)
    value_column = by_heading.get(value)
    if key_column is None or value_column is None:
        absent = key if key_column is None else value
        have = ", ".join(shorten(c, 30) for c in frame.columns[:12]) or "none"
        raise InputError(
            f"no column {absent!r}; there are: {have}",
            place=label,
            remedy=f"name one of them {absent!r}",
        )
    return frame.select(pl.col(key_column).alias(key), pl.col(value_column).alias(value))


def _check_pairs(frame: pl.DataFrame, key: str, value: str, label: str) -> Pairs:
    """Raise InputError for an empty table, a key that appears twice, or a missing value."""
    if not len(frame):
        raise InputError("no rows", place=label, remedy="check how it was made")
    frame = frame.with_columns(pl.col(key).cast(pl.String))
    check_ids(frame[key], key, lambda row: f"{label}: row {row + 1}")
    duplicates = frame.filter(frame[key].is_duplicated())
    if len(duplicates):
        raise InputError(
            f"{key} {shorten(duplicates[key][0])} is given twice",
            place=label,
            remedy="keep one of the two",
        )
    without_value = frame.filter(frame[value].is_null())
    if len(without_value):
        raise InputError(
            f"{key} {shorten(without_value[key][0])} has no {value}",
            place=label,
            remedy="fill it in",
        )
    return Pairs(frame, label)
