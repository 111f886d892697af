"""Files → vectors with ids, and logits."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankproof.arrays import Array, Float
from rankproof.audit.logits import Logits
from rankproof.errors import InputError, shorten
from rankproof.records.formats import format_of
from rankproof.records.frames import choose_columns, is_frame
from rankproof.records.sources import Source

_NPY = b"\x93NUMPY"
_VECTOR = ("vector", "embedding", "embeddings", "emb", "values")
_ID = (
    *("id", "docno", "docid", "documentid", "corpusid", "passageid", "pid", "did"),
    *("queryid", "qid", "topicid", "topic", "query", "document", "doc"),
)
# Names of logit columns, letters and digits alone.
_ONE = ("logit", "logits")
_YES = ("logityes", "yeslogit", "yes", "logittrue", "truelogit", "true", "logit1")
_NO = ("logitno", "nologit", "no", "logitfalse", "falselogit", "false", "logit0")


@dataclass(frozen=True, slots=True)
class Vectors:
    """Rows of a file, and their ids where it has them."""

    values: Array  # (n, D)
    ids: pl.Series | None
    label: str


def read_vectors(path: str) -> Vectors:
    """A .npy file, which holds no ids, or Parquet with a column of ids and one of vectors."""
    source = Source(path)
    if source.head.startswith(_NPY):
        return Vectors(_read_npy(source), None, source.label)
    if source.head.startswith(b"PAR1"):
        return _read_parquet(source)
    raise InputError(
        "neither a .npy nor a Parquet file",
        place=source.label,
        remedy="write it with numpy.save, or as Parquet with columns id and vector",
    )


def _read_npy(source: Source) -> Array:
    try:
        # Never unpickled: an object array can run any code.
        array = np.load(io.BytesIO(source.read()), allow_pickle=False)
    except (ValueError, OSError, EOFError, MemoryError) as error:
        if isinstance(error, MemoryError):  # more often a header that lies than an honest array
            problem, remedy = f"too large for memory ({_first_line(error)})", "check the file"
        elif "allow_pickle" in str(error):
            problem, remedy = "an array of Python objects", "save it as float32, one row a vector"
        else:
            problem = f"not a whole .npy file ({_first_line(error)})"
            remedy = "write the file again"
        raise InputError(problem, place=source.label, remedy=remedy) from None
    if array.dtype.kind not in "fiu":
        raise InputError(
            f"an array of {array.dtype} where numbers belong",
            place=source.label,
            remedy="save it as float32",
        )
    if array.ndim != 2:
        raise InputError(
            f"an array of shape {array.shape}",
            place=source.label,
            remedy="save it as (rows, dimensions)",
        )
    return np.asarray(array)


def _read_parquet(source: Source) -> Vectors:
    frame = _table(source, "parquet", lambda data: pl.read_parquet(data))
    lists = [n for n, t in frame.schema.items() if t.base_type() in (pl.List, pl.Array)]
    vector = lists[0] if len(lists) == 1 else _named(lists, _VECTOR)
    ids = _named([n for n in frame.columns if n not in lists], _ID)
    for found, what in ((vector, "vector"), (ids, "id")):
        if found is None:
            have = ", ".join(shorten(name, 30) for name in frame.columns[:12])
            raise InputError(
                f"no column {what!r}; there are: {have}",
                place=source.label,
                remedy=f"name one of them {what!r}",
            )
    column, names = frame[str(vector)], frame[str(ids)]
    if names.null_count() or not (names.dtype == pl.String or names.dtype.is_integer()):
        raise InputError(
            f"column {ids!r} is not all ids", place=source.label, remedy="give every row an id"
        )
    if column.dtype.base_type() is pl.Array:
        column = column.arr.to_list()
    length = column.list.len()
    wrong = length.is_null() | (length != length[0])
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        raise InputError(
            f"a vector of {length[row]} dimensions where the first has {length[0]}",
            place=f"{source.label}: row {row}",
            remedy="embed that text again",
        )
    flat = column.explode(empty_as_null=False)
    if flat.null_count() or not flat.dtype.is_numeric():
        raise InputError(
            f"column {vector!r} is not all numbers",
            place=source.label,
            remedy="write lists of float32",
        )
    plain = flat if flat.dtype.is_integer() else flat.cast(pl.Float32)
    values = plain.to_numpy().reshape(frame.height, -1)
    return Vectors(values, names.cast(pl.String), source.label)


def read_ids(path: str) -> pl.Series:
    """One id per line."""
    source = Source(path)
    lines = source.text().split("\n")
    if lines and not lines[-1].strip():
        lines.pop()
    ids = pl.Series("id", [line.strip() for line in lines], pl.String)
    empty = ids == ""
    if empty.any():
        raise InputError(
            "an empty line where an id belongs",
            place=f"{source.label}:{int(empty.arg_max() or 0) + 1}",
            remedy="write one id per line",
        )
    return ids


# ------------------------------------------------------------------------------------- logits


def read_logits(source: Any) -> Logits:
    """Logits from a path (CSV, TSV, JSON lines, Parquet, Arrow) or a frame."""
    if isinstance(source, str | Path):
        file = Source(source)
        return _from_frame(_read_table(file), file.label)
    if is_frame(source):
        frame = source if isinstance(source, pl.DataFrame) else pl.DataFrame(source)
        return _from_frame(frame, "logits")
    raise InputError(
        f"cannot read logits from {shorten(source)}",
        remedy="give a path or a frame with columns query, doc and logit",
    )


def _read_table(file: Source) -> pl.DataFrame:
    form: str = format_of(file)
    if form == "trec":  # the header of a table of logits says so only here
        line = file.head.split(b"\n", 1)[0]
        form = "tsv" if b"\t" in line else "csv" if b"," in line else "trec"
    if form in ("csv", "tsv"):
        text = file.text().encode()
        separator = "," if form == "csv" else "\t"
        quote = '"' if form == "csv" else None
        return _table(
            file,
            form,
            lambda _: pl.read_csv(
                io.BytesIO(text), separator=separator, quote_char=quote, infer_schema=False
            ),
        )
    readers: dict[str, Callable[[Any], pl.DataFrame]] = {
        "parquet": pl.read_parquet,
        "jsonl": lambda data: pl.read_ndjson(data, infer_schema_length=None),
        "arrow": pl.read_ipc if file.head.startswith(b"ARROW1") else pl.read_ipc_stream,
    }
    if form not in readers:
        raise InputError(
            "this is no table of logits",
            place=file.label,
            remedy="write CSV, TSV, JSON lines, Parquet or Arrow with query, doc and logit",
        )
    return _table(file, form, readers[form])


def _table(file: Source, form: str, read: Callable[[Any], pl.DataFrame]) -> pl.DataFrame:
    try:
        return read(io.BytesIO(file.read()))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise InputError(
            f"not {form}, or cut short ({_first_line(error)})",
            place=file.label,
            remedy="fetch or write the file again",
        ) from None


def _from_frame(frame: pl.DataFrame, label: str) -> Logits:
    names = frame.columns
    query, doc, _ = choose_columns([*names, "score"], "run", label)
    one, yes, no = (_named(names, spellings) for spellings in (_ONE, _YES, _NO))
    if yes is None or no is None:
        if one is None:
            have = ", ".join(shorten(name, 30) for name in names[:12])
            raise InputError(
                f"no column 'logit', nor 'logit_yes' and 'logit_no'; there are: {have}",
                place=label,
                remedy="name the logits so; scores after an activation are not logits",
            )
        yes, no = one, None
    return Logits(
        frame[query].cast(pl.String),
        frame[doc].cast(pl.String),
        _numbers(frame[yes], label),
        None if no is None else _numbers(frame[no], label),
        label,
    )


def _numbers(column: pl.Series, label: str) -> Float:
    numbers = column.cast(pl.Float64, strict=False)
    if numbers.null_count():
        row = int(numbers.is_null().arg_max() or 0)
        raise InputError(
            f"{column.name} {shorten(column[row])} is not a number",
            place=f"{label}: row {row + 1}",
            remedy="drop the row or score it again",
        )
    return numbers.to_numpy(writable=True)


def _named(names: Iterable[str], spellings: tuple[str, ...]) -> str | None:
    """The first column whose letters and digits are one of the spellings."""
    plain = {"".join(c for c in name.lower() if c.isalnum()): name for name in names}
    return next((plain[spelling] for spelling in spellings if spelling in plain), None)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
