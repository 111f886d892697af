"""Annotators' labels as files: import from judgments and tables, export of everybody's labels.

A file with a column `who` holds the labels of several people, as an export writes them: query, doc,
who, grade, and optionally sure, note, settles. Any other file is read as judgments of one person.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from rankproof.data import read_qrels
from rankproof.data.beir import qrels_file
from rankproof.data.columns import no_rows
from rankproof.data.frames import choose_columns, find_columns, plain_name, polars_reads, scan
from rankproof.data.sources import ENDINGS, Source, ending
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.files import read_csv_rows, read_json_lines
from rankproof.foundation.phrasing import plural
from rankproof.foundation.printable import escape_formula
from rankproof.golden.annotators import Key, labels_by_person, settled_labels
from rankproof.golden.judgments import Correction
from rankproof.golden.store import Store
from rankproof.presentation.display import Displayed
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Table

COLUMNS = ("query", "doc", "who", "grade", "sure", "settles", "note", "at")
_FLAGS = dict.fromkeys(("true", "yes", "1"), True) | dict.fromkeys(("false", "no", "0"), False)
_SCALE = frozenset(range(1, 6))


class TableRow(NamedTuple):
    """A row of a file, and the line where it ends (or its number, where there are no lines)."""

    line: int
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Label:
    """One person's label of a passage."""

    query: str
    doc: str
    who: str
    grade: int | None
    sure: bool = True
    note: str | None = None
    settles: bool = False  # decides a disagreement between other people


@dataclass(frozen=True)
class Imported(Displayed):
    """How many labels of a file were stored, and why others were not."""

    kind: ClassVar[str] = "golden import"

    new: int
    known: int  # the same label was stored before
    elsewhere: int  # of passages outside the pools
    empty: int  # rows without grade, doubt and note
    people: tuple[str, ...]

    def summary(self) -> Summary:
        """How many labels were stored, and why others were not."""
        names = ", ".join(self.people) or "nobody"
        parts = [f"{plural(self.new, 'label')} of {names}"]
        if self.known:
            parts.append(f"{plural(self.known, 'was', 'were')} there already")
        if self.elsewhere:
            parts.append(f"{self.elsewhere} of passages outside the pools skipped")
        if self.empty:
            parts.append(f"{plural(self.empty, 'row')} without a label skipped")
        return Summary("; ".join(parts))

    def tables(self) -> list[Table]:
        return []

    def figures(self) -> dict[str, float]:
        return {name: float(value) for name, value in asdict(self).items() if name != "people"}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def parse_grades(text: str) -> dict[int, int]:
    """Parse "0=1,1=4": what each grade of a file means on the scale from 1 to 5."""
    try:
        pairs = [part.split("=") for part in text.split(",")]
        return {int(file_grade): int(grade) for file_grade, grade in pairs}
    except ValueError:
        raise InputError(
            f"grades {text!r} cannot be read", place="--grades", remedy="write 0=1,1=4"
        ) from None


def read_labels(
    path: str | Path, who: str | None, grades: Mapping[int, int] | None = None
) -> list[Label]:
    """Read the labels of a file; `grades` maps the file's grades to the scale from 1 to 5."""
    source = Source(qrels_file(path))
    rows = _table_rows(source)
    if rows is None:
        labels = _judgment_labels(source, who)
    else:
        labels = _labels_of_several(source.label, rows)
    used = {label.grade for label in labels if label.grade is not None}
    if grades is None and used and max(used & _SCALE, default=0) < 4:
        listed = ", ".join(map(str, sorted(used)[:8]))
        raise InputError(
            f"its grades are {listed}{', …' * (len(used) > 8)}: not the scale from 1 to 5",
            place=str(path),
            remedy="say what they mean there, as in --grades 0=1,1=4",
        )
    meanings = {grade: grade for grade in _SCALE} if grades is None else grades
    for label in labels:
        if label.grade is not None and meanings.get(label.grade) not in _SCALE:
            raise InputError(
                f"grade {shorten(label.grade)} of query {shorten(label.query)}, "
                f"document {shorten(label.doc)} has no meaning from 1 to 5",
                place=str(path),
                remedy="correct it, or give each grade one, as in --grades 0=1,1=4",
            )
    return [
        label if label.grade is None else replace(label, grade=meanings[label.grade])
        for label in labels
    ]


def import_labels(store: Store, labels: Sequence[Label]) -> Imported:
    """Store labels in a golden set, each as a correction by its author, unless it is stored."""
    pooled: dict[Key, int | None] = {
        (query, doc): grade
        for query, doc, grade in store.rows(
            "SELECT query, doc, grade FROM pool LEFT JOIN grades USING (query, doc)"
        )
    }
    new = known = elsewhere = empty = 0
    with store.transaction():
        active = store.active_corrections()
        stored, settled = labels_by_person(active), settled_labels(active)
        for label in labels:
            key = (label.query, label.doc)
            earlier = settled.get(key) if label.settles else stored.get(key, {}).get(label.who)
            content = (label.grade, label.sure, label.note)
            if label.grade is None and label.sure and label.note is None:
                empty += 1
            elif key not in pooled:
                elsewhere += 1
            elif earlier and (earlier.new, earlier.sure, earlier.note) == content:
                known += 1
            else:
                new += 1
                store.insert_correction(
                    label.query,
                    label.doc,
                    "grade",
                    old=pooled[key] if earlier is None else earlier.new,
                    new=label.grade,
                    who=label.who,
                    note=label.note,
                    sure=label.sure,
                    settles=label.settles,
                )
    people = tuple(sorted({label.who for label in labels}))
    return Imported(new=new, known=known, elsewhere=elsewhere, empty=empty, people=people)


def label_rows(corrections: Sequence[Correction]) -> Iterator[dict[str, Any]]:
    """Rows of `COLUMNS`: everybody's label of each passage, and what was settled."""
    labels = [
        (key, label)
        for key, by_person in labels_by_person(corrections).items()
        for label in by_person.values()
    ]
    labels += list(settled_labels(corrections).items())
    for _, label in sorted(labels, key=lambda item: (item[0], item[1].id)):
        yield {
            "query": label.query,
            "doc": label.doc,
            "who": label.who,
            "grade": label.new,
            "sure": label.sure,
            "settles": label.settles,
            "note": label.note,
            "at": label.at,
        }


def csv_lines(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """Lines of a CSV file without line ends; no cell is a formula to a spreadsheet."""

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="")
    for row in ([*columns], *([row[name] for name in columns] for row in rows)):
        writer.writerow(["" if value is None else escape_formula(str(value)) for value in row])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


# -------------------------------------------------------------------------------------- reading


def _table_rows(source: Source) -> list[TableRow] | None:
    """Rows by the names of `COLUMNS`; None if the file has no column `who`."""
    rows = _raw_rows(source)
    if rows is None:
        return None
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    by_plain_name = {plain_name(name): name for name in reversed(names)}
    if "who" not in by_plain_name:
        return None
    columns = {name: by_plain_name.get(name) for name in COLUMNS} | find_columns(names, "qrels")
    has_labels = any(columns[name] for name in ("grade", "sure", "settles", "note"))
    if columns["query"] and columns["doc"] and not has_labels:
        choose_columns(names, "qrels", source.label)  # raises the error about missing grades
    return [
        TableRow(line, {name: row.get(key) for name, key in columns.items() if key is not None})
        for line, row in rows
    ]


def _raw_rows(source: Source) -> list[TableRow] | None:
    """Rows by the names that the file has; None if it cannot be a table of labels."""
    form = ENDINGS.get(ending(source.path))
    if form == "jsonl":
        return _jsonl_rows(source.label, source.text())
    if form in ("parquet", "arrow"):
        with polars_reads(source.label, form):
            dicts = scan(source, form).collect().to_dicts()
        return [TableRow(number, row) for number, row in enumerate(dicts, 1)]
    if form == "json":
        return _json_rows(source.text())
    first_line = source.head.decode(errors="replace").lstrip().replace("\r", "\n").split("\n")[0]
    for separator in ",;\t":  # spreadsheets use ; where decimals have a comma
        if "who" in map(plain_name, first_line.split(separator)):
            rows = _csv_rows(source.label, source.text(), separator)
            if not rows:
                raise no_rows(source.label)
            return rows
    return None


def _json_rows(text: str) -> list[TableRow] | None:
    """The objects of a JSON list; None for other JSON, of which read_qrels says what is wrong."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        return None
    return [TableRow(number, row) for number, row in enumerate(value, 1)]


def _csv_rows(label: str, text: str, separator: str) -> list[TableRow]:
    """Read the rows of a CSV file, without empty ones; `label` is the file in errors."""
    reader = read_csv_rows(text, separator)
    remedy = "put a cell that holds a mark or an end of a line in quotes"
    rows = []
    try:
        names = reader.fieldnames or []
        duplicate = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if duplicate is not None:
            raise InputError(
                f"two columns are called {shorten(duplicate)}",
                place=f"{label}:1",
                remedy="keep one",
            )
        for row in reader:
            if None in row:
                problem = "more cells than the first line names"
                raise InputError(problem, place=f"{label}:{reader.line_num}", remedy=remedy)
            if any(cell and cell.strip() for cell in row.values()):
                values = {name: _unescape_formula(cell) for name, cell in row.items()}
                rows.append(TableRow(reader.line_num, values))
    except csv.Error as error:  # in the row that begins after the last one
        place = f"{label}:{reader.line_num + 1}"
        raise InputError(f"this is not CSV ({error})", place=place, remedy=remedy) from None
    return rows


def _unescape_formula(cell: Any) -> Any:
    """Undo `escape_formula`."""
    escaped = isinstance(cell, str) and cell[:1] == "'" and escape_formula(cell[1:]) == cell
    return cell[1:] if escaped else cell


def _jsonl_rows(label: str, text: str) -> list[TableRow]:
    rows = [TableRow(line, value) for line, value in read_json_lines(text)]
    for line, value in rows:
        if not isinstance(value, dict):
            raise InputError(
                "this is not a JSON object", place=f"{label}:{line}", remedy="give one a line"
            )
    return rows


def _labels_of_several(label: str, rows: Sequence[TableRow]) -> list[Label]:
    """Labels of a table with a column `who`; each person labels a passage once."""
    labels: dict[tuple[str, str, str, bool], Label] = {}
    for line, row in rows:
        place = f"{label}:{line}"
        names = {name: _text(row.get(name), name, place) for name in ("query", "doc", "who")}
        for name, value in names.items():
            if not value:
                raise InputError(f"no {name} is given", place=place, remedy="give every row one")
        query, doc, who = names["query"], names["doc"], names["who"]
        sure = _flag(row.get("sure"), "sure", True, place)
        settles = _flag(row.get("settles"), "settles", False, place)
        note = _text(row.get("note"), "note", place) or None
        if (query, doc, who, settles) in labels:
            raise InputError(
                f"{shorten(who)} labels query {shorten(query)}, document {shorten(doc)} again",
                place=place,
                remedy="keep one of the two",
            )
        grade = _whole_number(row.get("grade"), place)
        labels[query, doc, who, settles] = Label(
            query=query, doc=doc, who=who, grade=grade, sure=sure, note=note, settles=settles
        )
    return list(labels.values())


def _text(cell: Any, name: str, place: str) -> str:
    """A cell as stripped text; "" where it is empty."""
    if cell is not None and (isinstance(cell, bool) or not isinstance(cell, str | int | float)):
        raise InputError(f"{name} {shorten(cell)} is not text", place=place, remedy="make it text")
    text = "" if cell is None else str(cell).strip()
    if any("\ud800" <= character <= "\udfff" for character in text):
        problem = f"{name} {shorten(text)} is not valid Unicode"
        raise InputError(problem, place=place, remedy="remove its lone surrogates")
    return text


def _whole_number(cell: Any, place: str) -> int | None:
    """A grade, also if written 3.0, as in tables with gaps; None where there is none."""
    if cell is None or str(cell).strip() == "":
        return None
    try:
        number = float(str(cell))
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise InputError(
            f"grade {shorten(cell)} is not a whole number", place=place, remedy="give one, or none"
        )
    return int(number)


def _flag(cell: Any, name: str, default: bool, place: str) -> bool:
    word = str("" if cell is None else cell).strip().lower()
    if word and word not in _FLAGS:
        raise InputError(
            f"{name} {shorten(cell)} is neither true nor false",
            place=place,
            remedy=f"write true or false, or leave it empty for {str(default).lower()}",
        )
    return _FLAGS.get(word, default)


def _judgment_labels(source: Source, who: str | None) -> list[Label]:
    """The judgments of a file as labels of one person."""
    if who is None or not who.strip():
        raise InputError("it does not say who labelled", place=source.label, remedy="add --as NAME")
    rows = read_qrels(source).to_frame().iter_rows()
    return [Label(query, doc, who.strip(), grade) for query, doc, grade in rows]
