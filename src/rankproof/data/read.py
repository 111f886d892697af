"""One entry for runs and one for qrels, whatever they are made of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

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
>>> found: RunLike = {"q1": {"a": 0.5}}
>>> rp.read_run(found).score.tolist()
[0.5]
"""
QrelsLike: TypeAlias = "Qrels | FilePath | Mapping[str, Mapping[str, int]] | Iterable[Any] | Any"
"""Whatever `read_qrels` takes.

>>> from rankproof.data import QrelsLike
>>> judged: QrelsLike = {"q1": {"a": 1}}
>>> rp.read_qrels(judged).grade.tolist()
[1]
"""


def read_run(
    source: RunLike,
    *,
    format: Format | None = None,  # noqa: A002
    name: str | None = None,
) -> Run:
    """A run from a path (`-` is standard input), dict of dicts, frame or (query, doc, score) rows.

    Also {query: [(doc, score)]}, {query: [doc]}, what retrievers of LangChain, LlamaIndex and
    Haystack return for each query, and the tables of ranx, Hugging Face and ir_datasets. The format
    of a file is told by its ending and its first bytes unless `format` names it; what is guessed
    stands in `notes`.

    >>> rp.read_run([("q1", "a", 0.5), ("q1", "b", 0.25)]).score.tolist()
    [0.5, 0.25]
    """
    if isinstance(source, Run):
        return source if name is None else replace(source, name=name)
    if isinstance(source, Qrels):
        raise swapped("run", "judgements")
    found, columns = _read(source, "run", format)
    kernels.warn_if_slow(len(columns.value))
    if not columns.plain and np.isnan(columns.value.min()):
        wrong = np.isnan(columns.value)
        raise not_a_number("run", np.nan, columns.place(int(wrong.argmax())))
    try:
        run = build_run(
            name or found,
            columns.queries,
            columns.codes,
            columns.doc,
            columns.value,
            columns.dtype,
            rest=columns.rest,
            check=columns.unchecked,
            grouped=columns.grouped and columns.grouped(),
        )
    except (kernels.RepeatedDocument, kernels.InvalidId) as odd:
        raise _refused("lists", columns, odd) from None
    return replace(run, notes=columns.notes) if columns.notes else run


def read_qrels(
    source: QrelsLike,
    *,
    format: Format | None = None,  # noqa: A002
    name: str | None = None,
) -> Qrels:
    """Judgements from a path (`-` is standard input), dict of dicts, frame or rows.

    Grades are whole numbers; a negative one means "not judged" and the row is left out. What they
    mean is read from a file of the same name with `.scale` after it, where there is one.

    >>> rp.read_qrels("try/qrels.txt").queries.len()
    30
    """
    if isinstance(source, Qrels):
        return source if name is None else replace(source, name=name)
    if isinstance(source, Run):
        raise swapped("qrels", "a run")
    chosen: tuple[str, ...] = ()
    if isinstance(source, str | os.PathLike):
        file = qrels_file(source)
        source, chosen = file, chosen_among(source, file)
    found, columns = _read(source, "qrels", format)
    if chosen:
        columns = replace(columns, notes=(*chosen, *columns.notes))
    if not columns.plain:
        _check_whole(columns)
    try:
        qrels = build_qrels(
            *(name or found, columns.queries, columns.codes, columns.doc),
            columns.value.astype(np.int64),
            check=columns.unchecked,
        )
    except (kernels.RepeatedDocument, kernels.InvalidId) as odd:
        raise _refused("judges", columns, odd) from None
    path = source.path if isinstance(source, Source) else source
    scale = read_scale(os.fspath(path)) if isinstance(path, str | os.PathLike) else None
    if scale is None and not columns.notes:
        return qrels
    return replace(qrels, scale=scale, notes=columns.notes)


def _check_whole(columns: Columns) -> None:
    value = columns.value
    whole = value == np.trunc(value)
    small = np.abs(value) < LARGE  # past which float64 has gaps
    if not (whole & small).all():
        at = int((~(whole & small)).argmax())
        large = whole[at] and np.isfinite(value[at])
        raise InputError(
            f"grade {float(value[at])} is {'past 2^53' if large else 'not a whole number'}",
            place=columns.place(at),
            remedy="grade documents 0, 1, 2, … (scale fractions up first); if these are a run's "
            "scores, name run and judgements the other way round",
        )


def _refused(
    verb: str, columns: Columns, odd: kernels.RepeatedDocument | kernels.InvalidId
) -> InputError:
    """The error for an id that is none, or a (query, document) pair that is given twice."""
    row = odd.row
    query, doc = columns.queries[int(columns.codes[row])], columns.doc[row]
    if isinstance(odd, kernels.InvalidId):
        return invalid_id(doc, "document", columns.place(row))
    return InputError(
        f"query {shorten(query)} {verb} document {shorten(doc)} a second time",
        place=columns.place(row),
        remedy="keep one of the two",
    )


def _read(source: Any, kind: Kind, form: Format | None) -> tuple[str, Columns]:
    """A name for the table, and its columns."""
    check_format(form)
    if isinstance(source, str | os.PathLike | Source):
        file = source if isinstance(source, Source) else Source(source)
        known = form or format_of(file, kind)
        columns = _read_file(file, kind, known)
        file.check_unchanged()
        said = GUESSED.get((known, kind)) if form is None else None
        told = [f"{file.name}: {note}" for note in (*columns.notes, said) if note]
        return file.name, replace(columns, notes=tuple(told))
    name, held = unpacked(source, kind)
    return name or kind, _read_object(held, kind)


def _read_object(held: Any, kind: Kind) -> Columns:
    if isinstance(held, Mapping):
        return read_mapping(held, kind)
    return read_frame(held, kind) if is_frame(held) else read_rows(held, kind)


def _read_file(source: Source, kind: Kind, form: Format) -> Columns:
    if form in REGISTERED:
        found = REGISTERED[form](source.read(source.report), kind)
        with_place = _read_object(found, kind)
        return replace(with_place, place=lambda row: f"{source.label}: row {row + 1}")
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
}
