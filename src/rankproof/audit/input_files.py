"""Files that an audit reads: vectors with ids, logits, and scores that a server gave.

Files of arrays and indexes are read by array_files.py, runs by rankproof.data; tables of vectors
and logits, and the JSON answers of reranking servers, are read here.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from rankproof.audit.array_files import (
    ID_NAMES,
    VECTOR_NAMES,
    ArrayFile,
    letters_of,
    list_names,
    narrow_format,
    note_narrow_storage,
    read_arrays,
)
from rankproof.audit.logits import Logits
from rankproof.data import read_run
from rankproof.data.columns import check_ids
from rankproof.data.formats import format_of
from rankproof.data.frames import choose_columns, is_frame, polars_reads
from rankproof.data.sources import Source
from rankproof.data.tables import Run
from rankproof.foundation.arrays import Array, Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import plural

# Names of logit columns, letters and digits alone.
_LOGIT_NAMES = ("logit", "logits")
_YES_NAMES = ("logityes", "yeslogit", "yes", "logittrue", "truelogit", "true", "logit1")
_DOC_NAMES = ("doc", "docid", "document", "docno", "corpusid")
_NO_NAMES = ("logitno", "nologit", "no", "logitfalse", "falselogit", "false", "logit0")


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of a file, with their ids if it has any."""

    values: Array  # (n, D)
    ids: pl.Series | None
    label: str
    stored: str | None = None  # the format, where it is narrower than float32

    @property
    def notes(self) -> list[str]:
        """The note on how its numbers are stored, if in a format narrower than float32."""
        return note_narrow_storage(self.label, self.stored)


def read_vectors(path: str) -> Vectors:
    """Return the vectors of a file.

    Files of arrays and indexes may hold no ids; Parquet and JSON lines have a column of ids and
    one of vectors.
    """
    source = Source(path)
    file = read_arrays(source)
    if file is not None:
        if len(file.arrays) > 1:
            array = file.find_array(VECTOR_NAMES, (2,), source.label)
        else:
            array = np.asarray(next(iter(file.arrays.values()), None))
        _check_array(array, source.label)
        stored = file.stored or narrow_format(array)
        return Vectors(array, file.find_ids(ID_NAMES, len(array)), source.label, stored)
    if source.head.startswith(b"PAR1"):
        return _vectors_of_table(_read_with_polars(source, "parquet", pl.read_parquet), source)
    if source.head.lstrip().startswith(b"{"):
        return _vectors_of_table(_read_with_polars(source, "JSON lines", _read_ndjson), source)
    raise InputError(
        "no file of vectors that is known here",
        place=source.label,
        remedy="write it with numpy.save, as safetensors, or as Parquet with columns id and vector",
    )


def _check_array(array: Array, label: str) -> None:
    """Refuse an array that is not (rows, dimensions) of numbers."""
    if array.dtype.kind not in "fiuV" or array.dtype.type is np.void:
        raise InputError(
            f"an array of {array.dtype} where numbers belong", place=label, remedy="save float32"
        )
    if array.ndim != 2:
        raise InputError(
            f"an array of shape {array.shape}", place=label, remedy="save it as (rows, dimensions)"
        )


def _read_ndjson(data: Any) -> pl.DataFrame:
    """Return JSON lines as a frame; every line is read to infer the types."""
    return pl.read_ndjson(data, infer_schema_length=None)


def _vectors_of_table(frame: pl.DataFrame, source: Source) -> Vectors:
    """Return the vectors and ids of a table with a column of each."""
    lists = [n for n, t in frame.schema.items() if t.base_type() in (pl.List, pl.Array)]
    vector_column = lists[0] if len(lists) == 1 else _find_column(lists, VECTOR_NAMES)
    id_column = _find_column([n for n in frame.columns if n not in lists], ID_NAMES)
    for column_name, kind in ((vector_column, "vector"), (id_column, "id")):
        if column_name is None:
            raise InputError(
                f"no column {kind!r}; there are: {list_names(frame.columns)}",
                place=source.label,
                remedy=f"name one of them {kind!r}",
            )
    ids = frame[str(id_column)]
    if ids.null_count() or not (ids.dtype == pl.String or ids.dtype.is_integer()):
        raise InputError(
            f"column {id_column!r} is not all ids",
            place=source.label,
            remedy="give every row an id",
        )
    ids = ids.cast(pl.String)
    check_ids(ids, "row's", lambda row: f"{source.label}: row {row}")
    return Vectors(_matrix_of(frame[str(vector_column)], source), ids, source.label)


def _matrix_of(column: pl.Series, source: Source) -> Array:
    """Return a column of lists as an array (n, D): float32, or integers unchanged."""
    if column.dtype.base_type() is pl.Array:
        column = column.arr.to_list()
    length = column.list.len()
    differs = length.is_null() | (length != length[0])
    if differs.any():
        row = int(differs.arg_max() or 0)
        raise InputError(
            f"a vector of {length[row]} dimensions where the first has {length[0]}",
            place=f"{source.label}: row {row}",
            remedy="embed that text again",
        )
    flat = column.explode(empty_as_null=False)
    if flat.null_count() or not flat.dtype.is_numeric():
        raise InputError(
            f"column {column.name!r} is not all numbers",
            place=source.label,
            remedy="write lists of float32",
        )
    numbers = flat if flat.dtype.is_integer() else flat.cast(pl.Float32)
    return numbers.to_numpy().reshape(len(column), -1)


def read_ids(path: str) -> pl.Series:
    """Return the ids of a file with one per line."""
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


def read_logits(source: Any, pairs: Run | None = None) -> Logits:
    """Return logits from a path (CSV, TSV, JSON lines, Parquet, Arrow, arrays) or a frame.

    An array (N,), (N, 1) or (N, 2) of no and yes does not name its rows: they are those of
    `pairs`, in their order, unless the file also holds arrays query and doc.
    """
    if isinstance(source, str | Path):
        file = Source(source)
        arrays = read_arrays(file)
        if arrays is None:
            return _from_frame(_read_table(file), file.label)
        return _with_pairs(arrays, file.label, pairs)
    if is_frame(source):
        frame = source if isinstance(source, pl.DataFrame) else pl.DataFrame(source)
        return _from_frame(frame, "logits")
    raise InputError(
        f"cannot read logits from {shorten(source)}",
        remedy="give a path or a frame with columns query, doc and logit",
    )


def _with_pairs(file: ArrayFile, label: str, pairs: Run | None) -> Logits:
    """Return the logits of an array with the query and document of each row."""
    array = file.find_array((*_LOGIT_NAMES, "array", "scores", "score"), (1, 2, 3), label)
    if array.dtype.kind not in "fV" or array.dtype.type is np.void:
        raise InputError(
            f"an array of {array.dtype} where logits belong", place=label, remedy="save floats"
        )
    columns = array.shape[-1] if array.ndim > 1 else 1
    count = array.size // max(columns, 1) if columns in (1, 2) else array.size
    query = file.find_ids(("query", "queryid", "qid"), count)
    doc = file.find_ids(_DOC_NAMES, count)
    if query is None or doc is None:
        if pairs is None:
            raise InputError(
                f"{count} logits, and nothing says of which query and document each is",
                place=label,
                remedy="name the run whose rows they are with --candidates",
            )
        frame = pairs.to_frame()
        query, doc = frame["query"], frame["doc"]
        if array.size == len(doc):  # (queries, candidates): a row of the run each
            columns, count = 1, len(doc)
    if count != len(doc) or columns not in (1, 2):
        raise InputError(
            f"an array of shape {array.shape} for {len(doc)} pairs",
            place=label,
            remedy="save (pairs,), or (pairs, 2) of no and yes",
        )
    numbers = array.astype(np.float64).reshape(count, columns)
    no = None if columns == 1 else numbers[:, 0].copy()
    return Logits(query, doc, numbers[:, -1].copy(), no, label, stored=narrow_format(array))


# -------------------------------------------------------------------------------------- scores


def read_served(path: str, pairs: Run | None = None) -> Logits:
    """Return scores that a server gave: a run in any format, or its answers as JSON.

    An answer of Cohere, Jina, vLLM and Infinity (`results`), Voyage and vLLM's score endpoint
    (`data`), or TEI (a list) holds an index and a score per document. The file is
    {query: answer, …}, or lines {"query": …, "response": answer, "documents": [ids]}; an index
    counts these documents, or the query's candidates in `pairs`.
    """
    source = Source(path)
    answers = _read_answers(source)
    if answers is not None:
        return _from_answers(answers, source.label, pairs)
    arrays = read_arrays(source)
    if arrays is not None:
        return replace(_with_pairs(arrays, source.label, pairs), scored=True)
    run = read_run(path)
    frame = run.to_frame()
    return Logits(frame["query"], frame["doc"], run.score.copy(), None, source.label, scored=True)


class _Answer(NamedTuple):
    """A server's answer about one query."""

    query: str
    documents: list[Any] | None  # as they were sent
    items: list[Any]  # an index and a score each


def _read_answers(source: Source) -> list[_Answer] | None:
    """Return the answers in a JSON file, one per query; None for any other file, such as a run."""
    content = _read_json(source)
    if content is None:
        return None
    whole, rows = content
    if _items_of(whole):
        raise InputError(
            "an answer, and nothing says to which query",
            place=source.label,
            remedy='write {"query id": answer, …}',
        )
    if len(rows) == 1 and isinstance(rows[0], dict) and _query_of(rows[0]) is None:
        rows = [{"query": query, "response": answer} for query, answer in rows[0].items()]
    answers: list[_Answer] = []
    for row in rows:
        query = _query_of(row) if isinstance(row, dict) else None
        items = _items_of(row.get("response", row) if isinstance(row, dict) else None)
        if query is None or items is None:
            return None
        documents = row.get("documents", row.get("docs"))
        answers.append(_Answer(query, documents if isinstance(documents, list) else None, items))
    return answers or None


def _read_json(source: Source) -> tuple[Any, list[Any]] | None:
    """Return the value of a JSON file and its rows, or None and the values of JSON lines.

    Return None alone for a file that is neither.
    """
    if not source.head.lstrip().startswith((b"{", b"[")):
        return None
    text = source.text()
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        try:
            return None, [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            return None  # the reader of runs explains what is wrong with it
    return whole, whole if isinstance(whole, list) else [whole]


def _query_of(row: dict[str, Any]) -> str | None:
    """Return the id of the query that a row answers, if it names one."""
    keys = ("query", "query_id", "query-id", "qid")
    query = next((row[key] for key in keys if key in row), None)
    return str(query) if isinstance(query, str | int) else None


def _items_of(answer: Any) -> list[Any] | None:
    """Return the scored documents of an answer; None if it is not one."""
    items = answer
    if isinstance(answer, dict):
        items = next((answer[key] for key in ("results", "data") if key in answer), None)
    if not isinstance(items, list):
        return None
    return items if all(isinstance(item, dict) and "index" in item for item in items) else None


def _from_answers(answers: list[_Answer], label: str, pairs: Run | None) -> Logits:
    """Return the scores of all answers with the ids of their queries and documents."""
    candidates: dict[str, list[str]] = {}
    if pairs is not None:
        by_query = pairs.to_frame().group_by("query", maintain_order=True).agg("doc")
        candidates = dict(zip(by_query["query"].to_list(), by_query["doc"].to_list(), strict=True))
    queries, docs, scores = [], [], []
    for query, documents, items in answers:
        ids = candidates.get(query) if documents is None else [_id_of(d) for d in documents]
        if ids is None:
            raise InputError(
                f"nothing says which documents query {shorten(query)} was asked about",
                place=label,
                remedy='list their ids under "documents", or name the run that was sent with '
                "--candidates",
            )
        for item in items:
            index, score = _read_item(item, len(ids), query, label)
            queries.append(query)
            docs.append(ids[index])
            scores.append(score)
    return Logits(
        pl.Series(queries, dtype=pl.String),
        pl.Series(docs, dtype=pl.String),
        np.array(scores, np.float64),
        None,
        label,
        scored=True,
    )


def _read_item(item: dict[str, Any], documents: int, query: str, label: str) -> tuple[int, float]:
    """Return the index and score of one scored document; refuse those that cannot be."""
    index, score = item["index"], item.get("relevance_score", item.get("score"))
    if type(index) is not int or not 0 <= index < documents:
        raise InputError(
            f"index {shorten(index)} of {plural(documents, 'document')} of query {shorten(query)}",
            place=label,
            remedy="name the documents in the order in which they were sent",
        )
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise InputError(
            f"score {shorten(score)} of query {shorten(query)} is not a number",
            place=label,
            remedy="ask the server again",
        )
    return index, float(score)


def _id_of(document: Any) -> str:
    """Return the id of a document, which may be an object with its text."""
    if isinstance(document, dict):
        document = next((document[k] for k in ("id", "_id", "doc") if k in document), None)
    return str(document)


# -------------------------------------------------------------------------------------- tables


def _read_table(file: Source) -> pl.DataFrame:
    """Return a table of logits as a frame."""
    form: str = format_of(file)
    if form in ("trec", "plain", "msmarco"):  # a table of logits looks like one of these
        line = file.head.split(b"\n", 1)[0]
        form = "tsv" if b"\t" in line else "csv" if b"," in line else form
    if form in ("csv", "tsv"):
        text = file.text().encode()
        separator = "," if form == "csv" else "\t"
        quote = '"' if form == "csv" else None
        return _read_with_polars(
            file,
            form,
            lambda _: pl.read_csv(
                io.BytesIO(text), separator=separator, quote_char=quote, infer_schema=False
            ),
        )
    readers: dict[str, Callable[[Any], pl.DataFrame]] = {
        "parquet": pl.read_parquet,
        "jsonl": _read_ndjson,
        "arrow": pl.read_ipc if file.head.startswith(b"ARROW1") else pl.read_ipc_stream,
    }
    if form not in readers:
        raise InputError(
            "this is not a table of logits",
            place=file.label,
            remedy="write CSV, TSV, JSON lines, Parquet or Arrow with query, doc and logit",
        )
    return _read_with_polars(file, form, readers[form])


def _read_with_polars(file: Source, form: str, read: Callable[[Any], pl.DataFrame]) -> pl.DataFrame:
    """Return what `read` makes of the file's bytes; its errors become InputErrors."""
    with polars_reads(file.label, form):
        return read(io.BytesIO(file.read()))


def _from_frame(frame: pl.DataFrame, label: str) -> Logits:
    """Return the logits of a frame with query, doc and one or two columns of logits."""
    names = frame.columns
    query, doc, _ = choose_columns([*names, "score"], "run", label)
    single = _find_column(names, _LOGIT_NAMES)
    yes, no = _find_column(names, _YES_NAMES), _find_column(names, _NO_NAMES)
    if yes is None or no is None:
        if single is None:
            raise InputError(
                "no column 'logit', nor 'logit_yes' and 'logit_no'; there are: "
                f"{list_names(names)}",
                place=label,
                remedy="name the logits so; scores after an activation are not logits",
            )
        yes, no = single, None
    return Logits(
        frame[query].cast(pl.String),
        frame[doc].cast(pl.String),
        _numbers(frame[yes], label),
        None if no is None else _numbers(frame[no], label),
        label,
    )


def _numbers(column: pl.Series, label: str) -> Float:
    """Return a column as float64; refuse values that are not numbers."""
    numbers = column.cast(pl.Float64, strict=False)
    if numbers.null_count():
        row = int(numbers.is_null().arg_max() or 0)
        raise InputError(
            f"{column.name} {shorten(column[row])} is not a number",
            place=f"{label}: row {row + 1}",
            remedy="drop the row or score it again",
        )
    return numbers.to_numpy(writable=True)


def _find_column(names: Iterable[str], spellings: tuple[str, ...]) -> str | None:
    """Return the column with the first of the spellings, letters and digits alone."""
    by_letters = {letters_of(name): name for name in names}
    return next((by_letters[s] for s in spellings if s in by_letters), None)
