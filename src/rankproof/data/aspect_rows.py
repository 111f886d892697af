"""Read judgments of aspects: rows of query, aspect, document, grade, and nuggets.

In TREC's diversity qrels the aspect is the second column, in tables a column of one of the names
below, in tuples the second of four values. In the retrieval assignments of nuggetizer (TREC's RAG
track) each line says which nuggets of its query a passage supports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.aspects import NOT_COVERED, PARTIAL, Aspects
from rankproof.data.columns import Columns, check_ids, encode, id_column, no_rows, text_ids
from rankproof.data.frames import (
    SEPARATOR,
    csv_frame,
    csv_header,
    is_frame,
    plain_name,
    read_frame,
    read_table,
    scan,
)
from rankproof.data.objects import columns_of_rows, parse_json, read_rows
from rankproof.data.sources import Format, Source
from rankproof.data.tables import Qrels, build_qrels
from rankproof.data.trec import read_general, split_fields
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Bool
from rankproof.foundation.errors import InputError, shorten

# The measures that read aspects, for errors of this layer; a test compares them with the registry.
ASPECT_MEASURES = ("alpha_nDCG", "alpha_DCG", "ERR_IA", "nERR_IA", "P_IA", "AP_IA", "StRecall")
_ASPECT = ("aspect", "subtopic", "subtopicid", "intent", "facet", "nugget", "iteration", "iter")
_SUPPORT = {"support": 1, "partial_support": PARTIAL, "not_support": NOT_COVERED}
_REMEDY = "hand over query, aspect, document and grade, or ask for measures without aspects"


def read_file_aspects(source: Source, form: Format) -> Columns:
    """Return the columns of a file with aspects."""
    if form == "trec":
        columns = read_general(source, "qrels")
        _, fields = split_fields(source.text())
        return _with_aspects(columns, fields.list.get(1))
    if form in ("csv", "tsv", "parquet", "arrow"):
        columns = read_table(source, "qrels", form)  # type: ignore[arg-type]
        if form in SEPARATOR:
            frame = csv_frame(source, b"".join(csv_header(source.read(), form)), SEPARATOR[form])
        else:
            frame = scan(source, form).collect()
        return _with_aspects(columns, _aspect_column(frame, source.label))
    if form not in ("json", "jsonl"):
        raise InputError(f"{form} holds no aspects", place=source.label, remedy=_REMEDY)
    if form == "json":
        listed = parse_json(source.text(), source.label)
        places = [f"{source.label}[{row}]" for row in range(len(listed))]
    else:
        lines = [(n, line) for n, line in enumerate(source.text().split("\n"), 1) if line.strip()]
        listed = [parse_json(line, source.label, number) for number, line in lines]
        places = [f"{source.label}:{number}" for number, _ in lines]
    columns = read_object_aspects(listed, source.label)
    return replace(columns, place=places.__getitem__)


def read_object_aspects(table: Any, label: str = "qrels") -> Columns:
    """Return the columns of a frame, or of rows: tuples of four, named tuples or dicts."""
    if is_frame(table):
        frame = table.collect() if isinstance(table, pl.LazyFrame) else pl.DataFrame(table)
        return _with_aspects(read_frame(frame, "qrels"), _aspect_column(frame, label))
    if isinstance(table, Mapping) or not isinstance(table, Iterable):
        raise InputError("a dict holds no aspects", place=label, remedy=_REMEDY)
    rows = [row._asdict() if hasattr(row, "_asdict") else row for row in table]
    if rows and all(isinstance(row, tuple | list) and len(row) == 4 for row in rows):
        columns = read_rows([(query, doc, grade) for query, _, doc, grade in rows], "qrels")
        aspects = [row[1] for row in rows]
    elif rows and all(isinstance(row, Mapping) for row in rows):
        name = _aspect_name(rows[0], label)
        columns, aspects = read_rows(rows, "qrels"), [row.get(name) for row in rows]
    else:
        raise InputError("rows without aspects", place=label, remedy=_REMEDY)
    return _with_aspects(columns, text_ids(aspects, "aspect", columns.place))


def _aspect_name(names: Iterable[Any], label: str) -> str:
    by_plain_name = {plain_name(str(name)): str(name) for name in names}
    name = next((by_plain_name[usual] for usual in _ASPECT if usual in by_plain_name), None)
    if name is None:
        raise InputError("no column 'aspect'", place=label, remedy=_REMEDY)
    return name


def _aspect_column(frame: pl.DataFrame, label: str) -> pl.Series:
    return id_column(frame[_aspect_name(frame.columns, label)].alias("aspect"), label)


def _with_aspects(columns: Columns, aspect: pl.Series) -> Columns:
    check_ids(aspect, "aspect", columns.place)
    return replace(columns, aspect=aspect)


# -------------------------------------------------------------------------------------- nuggets


def read_nuggets(source: Source, kind: str) -> Columns:
    """Return a row for each passage and nugget of nuggetizer's retrieval assignments."""
    if kind == "run":
        raise InputError("nuggets are judgments", place=source.label, remedy="name a run here")
    rows: list[tuple[str, str, int, str, bool, int]] = []
    for number, line in enumerate(source.text(source.report).split("\n"), 1):
        if line.strip():
            record = parse_json(line, source.label, number)
            rows += _assignments(record, f"{source.label}:{number}", number)
    if not rows:
        raise no_rows(source.label)
    query, doc, grade, nugget, vital, lines = map(list, zip(*rows, strict=True))

    def place(row: int) -> str:
        return f"{source.label}:{lines[row]}"

    columns = columns_of_rows(query, doc, grade, "qrels", source.label, place)
    return replace(columns, aspect=pl.Series(nugget), vital=np.array(vital))


def _assignments(record: Any, place: str, line: int) -> list[tuple[Any, Any, int, str, bool, int]]:
    """Return query, passage, grade, nugget and importance of each nugget of a line."""
    if not isinstance(record, dict) or not isinstance(record.get("nuggets"), list):
        raise InputError("no list of nuggets", place=place, remedy="name retrieval assignments")
    if "docid" not in record:
        raise InputError(
            "answer assignments have no docid: they judge answers, not passages",
            place=place,
            remedy="name retrieval assignments (nuggetizer assign --input-kind retrieval)",
        )
    rows, repeats = [], Counter[str]()
    for nugget in record["nuggets"]:
        values = nugget if isinstance(nugget, dict) else {}
        text, importance, assignment = map(values.get, ("text", "importance", "assignment"))
        if assignment not in _SUPPORT or importance not in ("vital", "okay"):
            raise InputError(
                f"nugget {shorten(nugget)} has no importance (vital, okay) or no assignment "
                f"({', '.join(_SUPPORT)})",
                place=place,
                remedy="name retrieval assignments (nuggetizer assign --input-kind retrieval)",
            )
        repeats[str(text)] += 1
        name = f"{text} ({repeats[str(text)]})"
        is_vital = importance == "vital"
        rows.append(
            (record.get("qid"), record["docid"], _SUPPORT[assignment], name, is_vital, line)
        )
    return rows


# ---------------------------------------------------------------------------------------- tables


def build_aspect_qrels(name: str, columns: Columns) -> Qrels:
    """Return judgments of documents with the highest grade over aspects, and their aspects."""
    assert columns.aspect is not None
    doc = kernels.as_polars(columns.doc, "doc")
    check_ids(doc, "document", columns.place)
    queries = kernels.as_polars(columns.queries, "query")
    names, aspect = encode(columns.aspect)
    is_nuggets = columns.vital is not None
    rows = pl.DataFrame(
        {
            "query": queries.gather(columns.codes),
            "doc": doc,
            "aspect": aspect.astype(np.int64),
            "grade": columns.value.astype(np.int64),
            "vital": columns.vital if is_nuggets else np.zeros(len(doc), np.bool_),
        }
    )
    _refuse_repeated(rows, names, columns.place)
    grade = pl.col("grade").clip(lower_bound=0) if is_nuggets else pl.col("grade")
    best = rows.group_by("query", "doc", maintain_order=True).agg(grade.max())
    qrels = build_qrels(name, *encode(best["query"]), best["doc"], best["grade"].to_numpy())
    entries = (
        rows.filter(pl.lit(is_nuggets) | (pl.col("grade") > 0))
        .join(qrels.to_frame().with_row_index("judgment").drop("grade"), on=["query", "doc"])
        .sort("judgment", "aspect")
    )
    judgment = entries["judgment"].to_numpy()
    vital: Bool | None = entries["vital"].to_numpy() if is_nuggets else None
    counts = np.bincount(judgment, minlength=len(qrels))
    aspects = Aspects(
        start=np.append(0, np.cumsum(counts)),
        aspect=entries["aspect"].to_numpy(),
        grade=entries["grade"].to_numpy(),
        vital=vital,
        by_id=-qrels.doc.rank("dense").to_numpy().astype(np.int64),
    )
    notes = columns.notes
    if rows.group_by("query").agg(pl.n_unique("aspect"))["aspect"].max() == 1:
        notes = (*notes, f"no query of {name} has two aspects: are these diversity judgments?")
    return replace(qrels, aspects=aspects, aspect_row=np.arange(len(qrels)), notes=notes)


def _refuse_repeated(rows: pl.DataFrame, names: pl.Series, place: Callable[[int], str]) -> None:
    """Raise the error of the first document that is judged twice for one aspect."""
    is_first = rows.select(pl.struct("query", "doc", "aspect").is_first_distinct()).to_series()
    if is_first.all():
        return
    row = int((~is_first).arg_max() or 0)
    query, doc, aspect = rows.row(row)[:3]
    raise InputError(
        f"query {shorten(query)} judges document {shorten(doc)} a second time for aspect "
        f"{shorten(names[aspect])}",
        place=place(row),
        remedy="keep one of the two",
    )
