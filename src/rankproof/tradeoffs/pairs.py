"""Small tables of two columns that people bring: a source per document, a verdict per query."""

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
    """Columns of a key, text that stands once, and of a value as it came."""

    frame: pl.DataFrame
    label: str  # for messages


def read_pairs(source: Any, key: str, value: str) -> Pairs:
    """A mapping, a frame, or a CSV, TSV, JSON-lines or Parquet file → columns `key` and `value`."""
    if isinstance(source, Pairs):
        return source
    if isinstance(source, Mapping):
        rows = {key: [str(k) for k in source], value: list(source.values())}
        return _checked(pl.DataFrame(rows, strict=False), key, value, value)
    if isinstance(source, pl.DataFrame):
        return _checked(_chosen(source, key, value, value), key, value, value)
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"cannot read {value} from {shorten(source)}",
            remedy=f"give a path, a {{{key}: {value}}} dict or a frame with these columns",
        )
    file = Source(source)
    remedy = f"give CSV, TSV or JSON lines with the columns {key} and {value}"
    with polars_reads(file.label, remedy=remedy):
        frame = _read(file)
    return _checked(_chosen(frame, key, value, file.label), key, value, file.label)


def _read(file: Source) -> pl.DataFrame:
    if file.head.startswith(b"PAR1"):
        return pl.read_parquet(io.BytesIO(file.read()))
    text = file.text()
    if file.head.lstrip().startswith(b"{"):
        return pl.read_ndjson(io.BytesIO(text.encode()), infer_schema_length=None)
    first = text.split("\n", 1)[0]
    tabs = ending(file.path) == ".tsv" or ("\t" in first and "," not in first)
    return pl.read_csv(
        io.BytesIO(text.replace("\r\n", "\n").encode()),
        separator="\t" if tabs else ",",
        infer_schema=False,  # ids are text: 007 stays 007
    )


def _chosen(frame: pl.DataFrame, key: str, value: str, label: str) -> pl.DataFrame:
    plain = {name.strip().lower(): name for name in reversed(frame.columns)}
    found = next((plain[name] for name in _KEYS[key] if name in plain), None)
    for what, name in ((key, found), (value, plain.get(value))):
        if name is None:
            have = ", ".join(shorten(c, 30) for c in frame.columns[:12]) or "none"
            raise InputError(
                f"no column {what!r}; there are: {have}",
                place=label,
                remedy=f"name one of them {what!r}",
            )
    return frame.select(pl.col(str(found)).alias(key), pl.col(plain[value]).alias(value))


def _checked(frame: pl.DataFrame, key: str, value: str, label: str) -> Pairs:
    if not len(frame):
        raise InputError("no rows", place=label, remedy="check how it was made")
    frame = frame.with_columns(pl.col(key).cast(pl.String))
    check_ids(frame[key], key, lambda row: f"{label}: row {row + 1}")
    again = frame[key].is_duplicated()
    if again.any():
        raise InputError(
            f"{key} {shorten(frame.filter(again)[key][0])} is given twice",
            place=label,
            remedy="keep one of the two",
        )
    missing = frame[value].is_null()
    if missing.any():
        at = int(missing.arg_max() or 0)
        raise InputError(
            f"{key} {shorten(frame[key][at])} has no {value}", place=label, remedy="fill it in"
        )
    return Pairs(frame, label)
