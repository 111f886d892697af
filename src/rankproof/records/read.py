"""One entry for runs and one for qrels, whatever they are made of."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl

from rankproof import kernels
from rankproof.arrays import Float
from rankproof.errors import InputError, shorten
from rankproof.records.sources import Progress, Source
from rankproof.records.trec import Columns, Kind, read_fast, read_general, to_numbers
from rankproof.tables import Qrels, Run, build_qrels, build_run

Format = Literal["trec", "csv", "tsv", "json", "jsonl", "parquet", "arrow"]
FORMATS: tuple[Format, ...] = ("trec", "csv", "tsv", "json", "jsonl", "parquet", "arrow")

Path_: TypeAlias = "str | os.PathLike[str]"
RunLike: TypeAlias = "Run | Path_ | Mapping[str, Mapping[str, float]] | Iterable[Any] | Any"
QrelsLike: TypeAlias = "Qrels | Path_ | Mapping[str, Mapping[str, int]] | Iterable[Any] | Any"

_EXTENSIONS: dict[str, Format] = {
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

# Column names as the field spells them, letters and digits only, first match wins.
_QUERY = ("query", "queryid", "qid", "topic", "topicid", "q")
_DOC = ("doc", "docid", "docno", "document", "documentid", "corpusid", "pid", "passageid", "did")
_SCORE = ("score", "sim", "similarity")
_GRADE = ("grade", "relevance", "rel", "label", "judgement", "judgment", "score")
_NAMES: dict[Kind, tuple[tuple[str, ...], ...]] = {
    "run": (_QUERY, _DOC, _SCORE),
    "qrels": (_QUERY, _DOC, _GRADE),
}
_VALUE = {"run": "score", "qrels": "grade"}

Place: TypeAlias = Callable[[int], str]  # row → where it stands


def read_run(
    source: RunLike,
    *,
    format: Format | None = None,  # noqa: A002
    name: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """A run from a path (`-` is standard input), dict of dicts, frame or (query, doc, score) rows.

    The format of a file is told by its ending and its first bytes unless `format` names it.
    """
    if isinstance(source, Run):
        return source
    found, columns, place, dtype = _read(source, "run", format, progress)
    value = columns.value
    if np.isnan(value).any():
        at = int(np.isnan(value).argmax())
        raise InputError(
            "score 'nan' is not a number", place=place(at), remedy="drop the line or rescore it"
        )
    try:
        return build_run(name or found, columns.queries, columns.codes, columns.doc, value, dtype)
    except kernels.Repeated as repeated:
        raise _repeated(source, "run", format, columns, place, repeated.row) from None


def read_qrels(
    source: QrelsLike,
    *,
    format: Format | None = None,  # noqa: A002
    name: str | None = None,
    progress: Progress | None = None,
) -> Qrels:
    """Judgements from a path (`-` is standard input), dict of dicts, frame or rows.

    Grades are whole numbers; a negative one means "not judged" and the row is left out.
    """
    if isinstance(source, Qrels):
        return source
    found, columns, place, _ = _read(source, "qrels", format, progress)
    value = columns.value
    whole = np.isfinite(value) & (value == np.trunc(value)) & (np.abs(value) < 2**53)
    if not whole.all():
        at = int((~whole).argmax())
        if columns.line is None and _is_path(source):  # the fast reader keeps no line numbers
            _, columns, place, _ = _read(source, "qrels", "trec", None, general=True)
        raise InputError(
            f"grade {value[at]:g} is not a whole number",
            place=place(at),
            remedy="grade documents 0, 1, 2, … (scale fractions up first)",
        )
    try:
        return build_qrels(
            name or found, columns.queries, columns.codes, columns.doc, value.astype(np.int64)
        )
    except kernels.Repeated as repeated:
        raise _repeated(source, "qrels", format, columns, place, repeated.row) from None


def _repeated(
    source: Any,
    kind: Kind,
    format: Format | None,
    columns: Columns,
    place: Place,
    row: int,  # noqa: A002
) -> InputError:
    """The error for a (query, document) pair that is given twice; `row` is the second time."""
    query, doc = columns.queries[int(columns.codes[row])], columns.doc[row]
    if columns.line is None and _is_path(source) and place(row) == "":
        _, columns, place, _ = _read(source, kind, format, None, general=True)
    verb = "lists" if kind == "run" else "judges"
    return InputError(
        f"query {shorten(query)} {verb} document {shorten(doc)} a second time",
        place=place(row),
        remedy="keep one of the two lines",
    )


def _is_path(source: Any) -> bool:
    return isinstance(source, str | os.PathLike)


def _read(
    source: Any,
    kind: Kind,
    format: Format | None,  # noqa: A002
    progress: Progress | None,
    general: bool = False,
) -> tuple[str, Columns, Place, str]:
    """Name, columns, where each row stands, and the format of the values."""
    if _is_path(source):
        return _read_file(Source(source), kind, format, progress, general)
    if isinstance(source, Mapping):
        columns = _from_mapping(source, kind)
        return kind, columns, _pair_place(kind, columns), "float64"
    frame = _as_frame(source, kind)
    columns, dtype = _from_frame(frame, kind, kind, lambda row: f"{kind}: row {row + 1}")
    return kind, columns, lambda row: f"{kind}: row {row + 1}", dtype


def _pair_place(kind: str, columns: Columns) -> Place:
    return lambda row: f"{kind}[{columns.queries[int(columns.codes[row])]!r}][{columns.doc[row]!r}]"


# ------------------------------------------------------------------------------------- files


def _read_file(
    source: Source,
    kind: Kind,
    format: Format | None,  # noqa: A002
    progress: Progress | None,
    general: bool,
) -> tuple[str, Columns, Place, str]:
    form = format or _format(source)
    if form == "trec":
        columns = None if general else read_fast(source, kind, progress)
        if columns is None:
            columns = read_general(source, kind, progress)
        if not len(columns.codes):
            raise InputError("no rows", place=source.label, remedy="check how the file was made")
        line = columns.line
        place: Place = lambda row: "" if line is None else f"{source.label}:{line[row]}"  # noqa: E731
        return source.stem, columns, place, "float64"
    if form == "json":
        columns = _from_mapping(_load_json(source), kind, source.label)
        return source.stem, columns, _pair_place(source.label, columns), "float64"
    first = 2 if form in ("csv", "tsv") else 1  # a header is line 1
    counted = "row " if form in ("parquet", "arrow") else ""
    separator = ": " if counted else ":"
    place = lambda row: f"{source.label}{separator}{counted}{row + first}"  # noqa: E731
    columns, dtype = _from_frame(_load_frame(source, form, progress), kind, source.label, place)
    return source.stem, columns, place, dtype


def _format(source: Source) -> Format:
    """By first bytes where they decide, else by the ending, else TREC."""
    if source.head.startswith(b"PAR1"):
        return "parquet"
    if source.head.startswith(b"ARROW1"):
        return "arrow"
    if source.extension in _EXTENSIONS:
        form = _EXTENSIONS[source.extension]
        if form in ("parquet", "arrow"):
            raise InputError(
                f"the file does not begin as {form} does",
                place=source.label,
                remedy="it may be cut short, or --input-format may name its format",
            )
        return form
    with source.trouble(), source.open() as file:
        head = file.read(1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip()
    line = head.split(b"\n", 1)[0].strip()
    if head.startswith(b"{"):
        try:
            first = json.loads(line)
        except ValueError:
            return "json"
        nested = any(isinstance(value, dict) for value in first.values())
        return "json" if nested or not first else "jsonl"
    if line.startswith(b"#"):
        return "trec"
    for separator, form in ((b"\t", "tsv"), (b",", "csv")):
        names = {_plain(part.decode("utf-8", "replace")) for part in line.split(separator)}
        if names & set(_QUERY) and names & set(_DOC):
            return form  # type: ignore[return-value]
    return "trec"


def _plain(name: str) -> str:
    """A column name's letters and digits: `query-id`, `query_id` and `queryId` are one."""
    return "".join(c for c in name.strip().strip('"').lower() if c.isalnum())


def _load_json(source: Source) -> Any:
    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            again = next(key for i, key in enumerate(keys) if key in keys[:i])
            raise InputError(
                f"key {shorten(again)} stands twice in one object",
                place=source.label,
                remedy="keep one of the two",
            )
        return found

    try:
        loaded = json.loads(source.text(), object_pairs_hook=distinct)
    except json.JSONDecodeError as error:
        raise InputError(
            f"not JSON: {error.msg}",
            place=f"{source.label}:{error.lineno}",
            remedy="check how the file was made",
        ) from None
    if not isinstance(loaded, dict):
        raise InputError(
            f"a JSON {type(loaded).__name__} where an object of objects belongs",
            place=source.label,
            remedy='write {"query": {"document": number}}, or one object a line (.jsonl)',
        )
    return loaded


def _load_frame(source: Source, form: Format, progress: Progress | None) -> pl.DataFrame:
    try:
        if form in ("parquet", "arrow"):
            data = io.BytesIO(source.read(progress))
            return pl.read_parquet(data) if form == "parquet" else pl.read_ipc(data)
        text = source.text(progress)
        if form == "jsonl":
            return _json_lines(text, source.label)
        return pl.read_csv(
            io.BytesIO(text.encode()),
            separator="\t" if form == "tsv" else ",",
            infer_schema=False,  # ids are text: 007 stays 007
            quote_char=None if form == "tsv" else '"',
        )
    except pl.exceptions.PolarsError as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "unreadable"
        raise InputError(
            f"not {form}: {reason}", place=source.label, remedy="check how the file was made"
        ) from None


def _json_lines(text: str, label: str) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(
                f"not JSON: {error.msg}", place=f"{label}:{number}", remedy="fix the line"
            ) from None
        if not isinstance(row, dict):
            raise InputError(
                f"a JSON {type(row).__name__} where an object belongs",
                place=f"{label}:{number}",
                remedy='write {"query": "…", "doc": "…", "score": 1.0}',
            )
        rows.append(row)
    names = dict.fromkeys(chain.from_iterable(rows))
    return pl.DataFrame(
        {name: pl.Series(name, [row.get(name) for row in rows], strict=False) for name in names}
    )


# ------------------------------------------------------------------------- frames and rows


def _as_frame(source: Any, kind: Kind) -> pl.DataFrame:
    """polars, pandas, pyarrow and anything that speaks Arrow; or an iterable of rows."""
    if isinstance(source, pl.LazyFrame):
        return source.collect()
    if isinstance(source, pl.DataFrame):
        return source
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__dataframe__"):
        try:
            frame = pl.DataFrame(source)
        except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
            raise InputError(
                f"a {type(source).__name__} that polars cannot take ({error})",
                place=kind,
                remedy="convert it with polars first",
            ) from None
        return frame
    names = ("query", "doc", _VALUE[kind])
    try:
        rows = [(row[0], row[1], row[2]) for row in source]
    except (TypeError, IndexError, KeyError):
        raise InputError(
            f"cannot read a {kind} from {shorten(source)}",
            place=kind,
            remedy=f"give a path, a dict of dicts, a frame or ({', '.join(names)}) rows",
        ) from None
    query, doc, value = zip(*rows, strict=True) if rows else ((), (), ())
    return pl.DataFrame(
        [
            _ids(query, names[0]),
            _ids(doc, names[1]),
            pl.Series(names[2], value, strict=False),
        ]
    )


def _ids(values: Iterable[Any], name: str) -> pl.Series:
    """Ids as text; numbers are written as Python writes them."""
    return pl.Series(name, [v if isinstance(v, str) else _id(v, name) for v in values], pl.String)


def _id(value: Any, name: str) -> str | None:
    if value is None or isinstance(value, float):
        return None
    return str(value)


def _from_mapping(source: Mapping[Any, Any], kind: Kind, label: str | None = None) -> Columns:
    """{query: {doc: value}}, as pytrec_eval, ranx and BEIR hold it."""
    label = label or kind
    for query, documents in source.items():
        if not isinstance(documents, Mapping):
            raise InputError(
                f"query {shorten(query)} holds {shorten(documents)}, not a dict of documents",
                place=label,
                remedy="write {query: {document: number}}",
            )
    sizes = [len(documents) for documents in source.values()]
    if not sum(sizes):
        raise InputError("no rows", place=label, remedy=f"check how the {kind} was made")
    queries = _ids(source, "query")
    docs = _ids(chain.from_iterable(source.values()), "doc")
    values = list(chain.from_iterable(d.values() for d in source.values()))
    codes = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    columns = Columns(queries, codes, docs, np.zeros(0))
    value, _ = _values(
        pl.Series(_VALUE[kind], values, strict=False), kind, _pair_place(label, columns), values
    )
    filled = np.flatnonzero(sizes)  # a query with an empty list has no rows
    if len(filled) < len(sizes):
        place = np.full(len(sizes), -1, np.int32)
        place[filled] = np.arange(len(filled), dtype=np.int32)
        queries, codes = queries.gather(filled), place[codes]
    return Columns(queries, codes, docs, value)


def _from_frame(frame: pl.DataFrame, kind: Kind, label: str, place: Place) -> tuple[Columns, str]:
    columns = {_plain(name): name for name in reversed(frame.columns)}
    chosen: list[str] = []
    for spellings, what in zip(_NAMES[kind], ("query", "doc", _VALUE[kind]), strict=True):
        match = next((columns[s] for s in spellings if s in columns), None)
        if match is None:
            have = ", ".join(map(repr, frame.columns)) or "none"
            raise InputError(
                f"no column {what!r} (there are: {shorten(have, 120)})",
                place=label,
                remedy=f"name one of its columns {what!r}",
            )
        chosen.append(match)
    if not frame.height:
        raise InputError("no rows", place=label, remedy="check how it was made")
    query, doc = (_id_column(frame[name], place) for name in chosen[:2])
    value, dtype = _values(frame[chosen[2]], kind, place)
    queries = query.unique(maintain_order=True)
    codes = query.cast(pl.Enum(queries)).to_physical().to_numpy().astype(np.int32)
    return Columns(queries, codes, doc, value), dtype


def _id_column(column: pl.Series, place: Place) -> pl.Series:
    if column.dtype in (pl.Categorical, pl.Enum) or column.dtype.is_integer():
        column = column.cast(pl.String)
    if column.dtype != pl.String:
        raise InputError(
            f"column {column.name!r} holds {column.dtype}, not ids",
            place=place(0),
            remedy="make it text: as numbers, 7.0 and 007 would be lost",
        )
    empty = column.is_null() | (column == "")
    if empty.any():
        at = int(empty.arg_max() or 0)
        raise InputError(
            f"column {column.name!r} is empty", place=place(at), remedy="give every row an id"
        )
    return column


def _values(
    column: pl.Series, kind: Kind, place: Place, given: list[Any] | None = None
) -> tuple[Float, str]:
    """Scores or grades as float64, and the format they came in."""
    what = _VALUE[kind]
    if column.dtype == pl.String and given is None:
        missing = column.is_null()
        if missing.any():
            raise _no_number(what, None, place(int(missing.arg_max() or 0)))
        return to_numbers(column, what, place), "float64"
    numeric = column.dtype.is_numeric() or column.dtype == pl.Boolean
    if not numeric or column.null_count():
        items = given if given is not None else column.to_list()
        converted = np.empty(len(items))
        for row, item in enumerate(items):  # the unusual: mixed types, text, missing values
            try:
                if isinstance(item, str | bytes):
                    raise TypeError
                converted[row] = float(item)
            except (TypeError, ValueError):
                raise _no_number(what, item, place(row)) from None
        return converted, "float64"
    dtype = {pl.Float32: "float32", pl.Float16: "float16"}.get(type(column.dtype), "float64")  # type: ignore[call-overload]
    if column.dtype == pl.Float32:
        dtype = "float32"
    return column.cast(pl.Float64).to_numpy().copy(), dtype


def _no_number(what: str, value: Any, place: str) -> InputError:
    return InputError(
        f"{what} {shorten(value)} is not a number",
        place=place,
        remedy="drop the row or rescore it" if what == "score" else "grade it 0, 1, 2, …",
    )


def is_file(source: Any) -> bool:
    """Whether a source is a path to a file that exists (and so can be counted in bytes)."""
    return _is_path(source) and os.fspath(source) != "-" and Path(source).is_file()
