"""Read runs and judgments from whatever holds them: the two public readers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from rankproof.data.aspect_rows import (
    ASPECT_MEASURES,
    build_aspect_qrels,
    read_file_aspects,
    read_nuggets,
    read_object_aspects,
)
from rankproof.data.beir import chosen_among, qrels_file
from rankproof.data.columns import LARGE, Columns, Kind, invalid_id, not_a_number
from rankproof.data.foreign_tables import swapped, unpacked
from rankproof.data.formats import GUESSED, REGISTERED, check_format, format_of
from rankproof.data.frames import is_frame, read_frame, read_table
from rankproof.data.objects import read_json, read_json_lines, read_mapping, read_mteb, read_rows
from rankproof.data.scales import read_scale
from rankproof.data.sources import Format, Source
from rankproof.data.tables import Qrels, Run, build_qrels, build_run
from rankproof.data.three_columns import read_msmarco, read_plain
from rankproof.data.trec import read_trec
from rankproof.foundation import kernels
from rankproof.foundation.errors import InputError, shorten

FilePath: TypeAlias = "str | os.PathLike[str]"
RunLike: TypeAlias = "Run | FilePath | Mapping[str, Mapping[str, float]] | Iterable[Any] | Any"
"""Whatever `read_run` takes.

>>> from rankproof.data import RunLike
>>> scores: RunLike = {"q1": {"a": 0.5}}
>>> rp.read_run(scores).score.tolist()
[0.5]
"""
QrelsLike: TypeAlias = "Qrels | FilePath | Mapping[str, Mapping[str, int]] | Iterable[Any] | Any"
"""Whatever `read_qrels` takes.

>>> from rankproof.data import QrelsLike
>>> grades: QrelsLike = {"q1": {"a": 1}}
>>> rp.read_qrels(grades).grade.tolist()
[1]
"""


def read_run(
    source: RunLike,
    *,
    format: Format | None = None,  # noqa: A002
    name: str | None = None,
) -> Run:
    """Read a run from a path (`-` is standard input), a dict of dicts, a frame or rows.

    Rows are (query, doc, score). Also accepted: {query: [(doc, score)]}, {query: [doc]}, what
    retrievers of LangChain, LlamaIndex and Haystack return for each query, and the tables of ranx,
    Hugging Face and ir_datasets. Without `format`, a file's format follows from its ending and its
    first bytes; a guess is stated in `notes`.

    >>> rp.read_run([("q1", "a", 0.5), ("q1", "b", 0.25)]).score.tolist()
    [0.5, 0.25]
    """
    if isinstance(source, Run):
        return source if name is None else replace(source, name=name)
    if isinstance(source, Qrels):
        raise swapped("run", "judgements")
    source_name, columns = _read(source, "run", format)
    kernels.warn_if_slow(len(columns.value))
    if not columns.plain and np.isnan(columns.value.min()):
        row = int(np.isnan(columns.value).argmax())
        raise not_a_number("run", np.nan, columns.place(row))
    try:
        run = build_run(
            name or source_name,
            columns.queries,
            columns.codes,
            columns.doc,
            columns.value,
            columns.dtype,
            rest=columns.rest,
            check=columns.unchecked,
            grouped=columns.grouped and columns.grouped(),
        )
    except (kernels.RepeatedDocument, kernels.InvalidId) as error:
        raise _row_error("lists", columns, error) from None
    return replace(run, notes=columns.notes) if columns.notes else run


def read_qrels(
    source: QrelsLike,
    *,
    format: Format | None = None,  # noqa: A002
    name: str | None = None,
    aspects: bool = False,
) -> Qrels:
    """Read judgments from a path (`-` is standard input), a dict of dicts, a frame or rows.

    Grades are whole numbers; a negative one means "pooled, but not judged". The meaning of the
    grades is read from a file of the same name with `.scale` added, if there is one. With `aspects`
    the second column of TREC's format, of tuples, or a column `aspect` says which aspect of the
    query a grade is for; a document's own grade is then the highest of them.

    >>> rp.read_qrels("try/qrels.txt").queries.len()
    30
    """
    if isinstance(source, Qrels):
        if aspects and source.aspects is None:
            raise InputError(
                f"the judgments {source.name} were read without aspects",
                remedy="read them with read_qrels(…, aspects=True)",
            )
        return source if name is None else replace(source, name=name)
    if isinstance(source, Run):
        raise swapped("qrels", "a run")
    choice_notes: tuple[str, ...] = ()
    if isinstance(source, str | os.PathLike):
        file = qrels_file(source)
        source, choice_notes = file, chosen_among(source, file)
    source_name, columns = _read(source, "qrels", format, aspects)
    if choice_notes:
        columns = replace(columns, notes=(*choice_notes, *columns.notes))
    if not columns.plain:
        _check_whole(columns)
    qrels = _built(name or source_name, columns)
    path = source.path if isinstance(source, Source) else source
    scale = read_scale(os.fspath(path)) if isinstance(path, str | os.PathLike) else None
    return qrels if scale is None else replace(qrels, scale=scale)


def _built(name: str, columns: Columns) -> Qrels:
    """Return the judgments in some columns; refuse a document that is judged twice."""
    if columns.aspect is not None:
        return build_aspect_qrels(name, columns)
    try:
        qrels = build_qrels(
            name,
            columns.queries,
            columns.codes,
            columns.doc,
            columns.value.astype(np.int64),
            check=columns.unchecked,
        )
    except (kernels.RepeatedDocument, kernels.InvalidId) as error:
        raise _row_error("judges", columns, error) from None
    return replace(qrels, notes=columns.notes) if columns.notes else qrels


def _check_whole(columns: Columns) -> None:
    """Refuse grades that are not whole numbers below 2⁵³, above which float64 has gaps."""
    value = columns.value
    is_whole = value == np.trunc(value)
    is_valid = is_whole & (np.abs(value) < LARGE)
    if not is_valid.all():
        row = int((~is_valid).argmax())
        is_large = is_whole[row] and np.isfinite(value[row])
        raise InputError(
            f"grade {float(value[row])} is {'past 2^53' if is_large else 'not a whole number'}",
            place=columns.place(row),
            remedy="grade documents 0, 1, 2, … (scale fractions up first); if these are a run's "
            "scores, name run and judgements the other way round",
        )


def _row_error(
    relation: str, columns: Columns, error: kernels.RepeatedDocument | kernels.InvalidId
) -> InputError:
    """Return the message for an invalid id, or for a repeated (query, document) pair."""
    row = error.row
    query, doc = columns.queries[int(columns.codes[row])], columns.doc[row]
    if isinstance(error, kernels.InvalidId):
        return invalid_id(doc, "document", columns.place(row))
    remedy = "keep one of the two"
    if relation == "judges":
        remedy += f"; if they judge aspects of the query, ask for {', '.join(ASPECT_MEASURES)}"
    return InputError(
        f"query {shorten(query)} {relation} document {shorten(doc)} a second time",
        place=columns.place(row),
        remedy=remedy,
    )


def _read(
    source: Any, kind: Kind, form: Format | None, aspects: bool = False
) -> tuple[str, Columns]:
    """Return a name for the input, and its columns."""
    check_format(form)
    if isinstance(source, str | os.PathLike | Source):
        file = source if isinstance(source, Source) else Source(source)
        actual_format = form or format_of(file, kind)
        columns = _read_file(file, kind, actual_format, aspects)
        file.check_unchanged()
        guess = GUESSED.get((actual_format, kind)) if form is None else None
        notes = [f"{file.name}: {note}" for note in (*columns.notes, guess) if note]
        return file.name, replace(columns, notes=tuple(notes))
    name, table = unpacked(source, kind)
    return name or kind, _read_object(table, kind, aspects)


def _read_object(table: Any, kind: Kind, aspects: bool) -> Columns:
    if aspects:
        return read_object_aspects(table)
    if isinstance(table, Mapping):
        return read_mapping(table, kind)
    return read_frame(table, kind) if is_frame(table) else read_rows(table, kind)


def _read_file(source: Source, kind: Kind, form: Format, aspects: bool) -> Columns:
    if form in REGISTERED:
        table = REGISTERED[form](source.read(source.report), kind)
        columns = _read_object(table, kind, aspects)
        return replace(columns, place=lambda row: f"{source.label}: row {row + 1}")
    if aspects and form != "nuggets":  # which always have them
        return read_file_aspects(source, form)
    if form in ("csv", "tsv", "parquet", "arrow"):
        return read_table(source, kind, form)  # type: ignore[arg-type]
    return READERS[form](source, kind)


READERS: dict[Format, Callable[[Source, Kind], Columns]] = {
    "trec": read_trec,
    "plain": read_plain,
    "msmarco": read_msmarco,
    "json": read_json,
    "jsonl": read_json_lines,
    "mteb": read_mteb,
    "nuggets": read_nuggets,
}
