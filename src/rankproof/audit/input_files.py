"""Files → vectors with ids, logits, and scores that a server gave."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankproof.audit.array_files import ID, VECTOR, Held, narrow, read_held, stored_as
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
_ONE = ("logit", "logits")
_YES = ("logityes", "yeslogit", "yes", "logittrue", "truelogit", "true", "logit1")
_DOC = ("doc", "docid", "document", "docno", "corpusid")
_NO = ("logitno", "nologit", "no", "logitfalse", "falselogit", "false", "logit0")


@dataclass(frozen=True, slots=True)
class Vectors:
    """Rows of a file, and their ids where it has them."""

    values: Array  # (n, D)
    ids: pl.Series | None
    label: str
    stored: str | None = None  # the format, where it is narrower than float32

    @property
    def notes(self) -> list[str]:
        """How its numbers are stored, where that is in less than float32."""
        return stored_as(self.label, self.stored)


def read_vectors(path: str) -> Vectors:
    """Arrays, tensors and indexes (see array_files.py), which may hold no ids, or Parquet and JSON
    lines with a column of ids and one of vectors."""
    source = Source(path)
    held = read_held(source)
    if held is not None:
        array = held.one(VECTOR, (2,), source.label) if len(held.arrays) > 1 else _only(held)
        _check_array(array, source.label)
        stored = held.stored or narrow(array)
        return Vectors(array, held.texts(ID, len(array)), source.label, stored)
    if source.head.startswith(b"PAR1"):
        return _vector_table(_table(source, "parquet", pl.read_parquet), source)
    if source.head.lstrip().startswith(b"{"):
        return _vector_table(_table(source, "JSON lines", _ndjson), source)
    raise InputError(
        "no file of vectors that is known here",
        place=source.label,
        remedy="write it with numpy.save, as safetensors, or as Parquet with columns id and vector",
    )


def _only(held: Held) -> Array:
    return np.asarray(next(iter(held.arrays.values()), None))


def _check_array(array: Array, label: str) -> None:
    if array.dtype.kind not in "fiuV" or array.dtype.type is np.void:
        raise InputError(
            f"an array of {array.dtype} where numbers belong", place=label, remedy="save float32"
        )
    if array.ndim != 2:
        raise InputError(
            f"an array of shape {array.shape}", place=label, remedy="save it as (rows, dimensions)"
        )


def _ndjson(data: Any) -> pl.DataFrame:
    return pl.read_ndjson(data, infer_schema_length=None)


def _vector_table(frame: pl.DataFrame, source: Source) -> Vectors:
    lists = [n for n, t in frame.schema.items() if t.base_type() in (pl.List, pl.Array)]
    vector = lists[0] if len(lists) == 1 else _named(lists, VECTOR)
    ids = _named([n for n in frame.columns if n not in lists], ID)
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
    names = names.cast(pl.String)
    check_ids(names, "row's", lambda at: f"{source.label}: row {at}")
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
    return Vectors(values, names, source.label)


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


def read_logits(source: Any, pairs: Run | None = None) -> Logits:
    """Logits from a path (CSV, TSV, JSON lines, Parquet, Arrow, or a file of arrays) or a frame.

    An array (N,), (N, 1) or (N, 2) of no and yes says nothing of its rows: they are those of
    `pairs`, in their order, unless the file holds arrays query and doc beside it.
    """
    if isinstance(source, str | Path):
        file = Source(source)
        held = read_held(file)
        return (
            _from_frame(_read_table(file), file.label)
            if held is None
            else _paired(held, file.label, pairs)
        )
    if is_frame(source):
        frame = source if isinstance(source, pl.DataFrame) else pl.DataFrame(source)
        return _from_frame(frame, "logits")
    raise InputError(
        f"cannot read logits from {shorten(source)}",
        remedy="give a path or a frame with columns query, doc and logit",
    )


def _paired(held: Held, label: str, pairs: Run | None) -> Logits:
    array = held.one((*_ONE, "array", "scores", "score"), (1, 2, 3), label)
    if array.dtype.kind not in "fV" or array.dtype.type is np.void:
        raise InputError(
            f"an array of {array.dtype} where logits belong", place=label, remedy="save floats"
        )
    wide = array.shape[-1] if array.ndim > 1 else 1
    count = array.size // max(wide, 1) if wide in (1, 2) else array.size
    query, doc = (held.texts(names, count) for names in (("query", "queryid", "qid"), _DOC))
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
            wide, count = 1, len(doc)
    if count != len(doc) or wide not in (1, 2):
        raise InputError(
            f"an array of shape {array.shape} for {len(doc)} pairs",
            place=label,
            remedy="save (pairs,), or (pairs, 2) of no and yes",
        )
    numbers = array.astype(np.float64).reshape(count, wide)
    no = None if wide == 1 else numbers[:, 0].copy()
    return Logits(query, doc, numbers[:, -1].copy(), no, label, stored=narrow(array))


# -------------------------------------------------------------------------------------- scores


def read_served(path: str, pairs: Run | None = None) -> Logits:
    """Scores that a server gave: a run in any format, or its answers as JSON.

    An answer of Cohere, Jina, vLLM and Infinity (`results`), Voyage and vLLM's score endpoint
    (`data`), or TEI (a list): an index and a score each. {query: answer, …}, or a line
    {"query": …, "response": answer, "documents": [ids]} each; an index counts the documents listed,
    or the query's candidates in `pairs`.
    """
    source = Source(path)
    answers = _answers(source)
    if answers is not None:
        return _from_answers(answers, source.label, pairs)
    held = read_held(source)
    if held is not None:
        return replace(_paired(held, source.label, pairs), scored=True)
    run = read_run(path)
    frame = run.to_frame()
    return Logits(frame["query"], frame["doc"], run.score.copy(), None, source.label, scored=True)


_Answer = tuple[str, list[str] | None, list[Any]]  # query, its documents, what was scored


def _answers(source: Source) -> list[_Answer] | None:
    """The answers of a file; None where it is none of them, a run perhaps."""
    if not source.head.lstrip().startswith((b"{", b"[")):
        return None
    text = source.text()
    try:
        whole = json.loads(text)
        rows = whole if isinstance(whole, list) else [whole]
    except (ValueError, RecursionError):
        try:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            return None  # the reader of runs says what is wrong with it
        whole = None
    if _listed(whole):
        raise InputError(
            "an answer, and nothing says to which query",
            place=source.label,
            remedy='write {"query id": answer, …}',
        )
    if len(rows) == 1 and isinstance(rows[0], dict) and _query(rows[0]) is None:
        rows = [{"query": query, "response": answer} for query, answer in rows[0].items()]
    found: list[_Answer] = []
    for row in rows:
        query = _query(row) if isinstance(row, dict) else None
        answer = row.get("response", row) if isinstance(row, dict) else None
        listed = _listed(answer)
        if query is None or listed is None:
            return None
        documents = row.get("documents", row.get("docs"))
        found.append((query, documents if isinstance(documents, list) else None, listed))
    return found or None


def _query(row: dict[str, Any]) -> str | None:
    found = next((row[key] for key in ("query", "query_id", "query-id", "qid") if key in row), None)
    return str(found) if isinstance(found, str | int) else None


def _listed(answer: Any) -> list[Any] | None:
    inside = answer
    if isinstance(answer, dict):
        inside = next((answer[key] for key in ("results", "data") if key in answer), None)
    if not isinstance(inside, list):
        return None
    return inside if all(isinstance(i, dict) and "index" in i for i in inside) else None


def _from_answers(answers: list[_Answer], label: str, pairs: Run | None) -> Logits:
    known: dict[str, list[str]] = {}
    if pairs is not None:
        by_query = pairs.to_frame().group_by("query", maintain_order=True).agg("doc")
        known = dict(zip(by_query["query"].to_list(), by_query["doc"].to_list(), strict=True))
    queries, docs, scores = [], [], []
    for query, documents, listed in answers:
        ids = known.get(query) if documents is None else [_identifier(d) for d in documents]
        if ids is None:
            raise InputError(
                f"nothing says which documents query {shorten(query)} was asked about",
                place=label,
                remedy='list their ids under "documents", or name the run that was sent with '
                "--candidates",
            )
        for item in listed:
            index, score = item["index"], item.get("relevance_score", item.get("score"))
            if type(index) is not int or not 0 <= index < len(ids):
                raise InputError(
                    f"index {shorten(index)} of {plural(len(ids), 'document')} of query "
                    f"{shorten(query)}",
                    place=label,
                    remedy="name the documents in the order in which they were sent",
                )
            if isinstance(score, bool) or not isinstance(score, int | float):
                raise InputError(
                    f"score {shorten(score)} of query {shorten(query)} is not a number",
                    place=label,
                    remedy="ask the server again",
                )
            queries.append(query)
            docs.append(ids[index])
            scores.append(float(score))
    return Logits(
        pl.Series(queries, dtype=pl.String),
        pl.Series(docs, dtype=pl.String),
        np.array(scores, np.float64),
        None,
        label,
        scored=True,
    )


def _identifier(document: Any) -> str:
    """The id of a document, which may be an object with its text."""
    if isinstance(document, dict):
        document = next((document[k] for k in ("id", "_id", "doc") if k in document), None)
    return str(document)


# -------------------------------------------------------------------------------------- tables


def _read_table(file: Source) -> pl.DataFrame:
    form: str = format_of(file)
    if form in ("trec", "plain", "msmarco"):  # the header of a table of logits says so only here
        line = file.head.split(b"\n", 1)[0]
        form = "tsv" if b"\t" in line else "csv" if b"," in line else form
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
        "jsonl": _ndjson,
        "arrow": pl.read_ipc if file.head.startswith(b"ARROW1") else pl.read_ipc_stream,
    }
    if form not in readers:
        raise InputError(
            "this is not a table of logits",
            place=file.label,
            remedy="write CSV, TSV, JSON lines, Parquet or Arrow with query, doc and logit",
        )
    return _table(file, form, readers[form])


def _table(file: Source, form: str, read: Callable[[Any], pl.DataFrame]) -> pl.DataFrame:
    with polars_reads(file.label, form):
        return read(io.BytesIO(file.read()))


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
