"""People's labels as files: in from qrels and tables, out with everybody's word.

A file with a column `who` holds the labels of several people, as an export writes them: query, doc,
who, grade, and if it likes sure, note, settles. Any other is read as judgements of one person.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rankproof.data import read_qrels
from rankproof.data.beir import qrels_file
from rankproof.data.columns import no_rows
from rankproof.data.frames import choose_columns, find_columns, plain_name, polars_reads, scan
from rankproof.data.sources import ENDINGS, Source, ending
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.files import read_csv_rows, read_json_lines
from rankproof.foundation.phrasing import plural
from rankproof.foundation.printable import escape_formula
from rankproof.golden.annotators import Key, labels, settled
from rankproof.golden.judgments import Correction
from rankproof.golden.store import Store

Row: TypeAlias = tuple[int, dict[str, Any]]  # and the line where it ends, or which row it is

COLUMNS = ("query", "doc", "who", "grade", "sure", "settles", "note", "at")
_WORDS = dict.fromkeys(("true", "yes", "1"), True) | dict.fromkeys(("false", "no", "0"), False)


@dataclass(frozen=True, slots=True)
class Label:
    """One person's word on a passage."""

    query: str
    doc: str
    who: str
    grade: int | None
    sure: bool = True
    note: str | None = None
    settles: bool = False  # said to settle what others said


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of an import."""

    new: int
    known: int  # the same label was there
    elsewhere: int  # of passages that no pool holds
    empty: int  # rows without grade, doubt and note
    people: tuple[str, ...]

    def words(self) -> str:
        names = ", ".join(self.people)
        more = f"; {plural(self.known, 'was', 'were')} there already" if self.known else ""
        more += f"; {self.elsewhere} of passages outside the pools left out" * bool(self.elsewhere)
        more += f"; {plural(self.empty, 'row')} without a label left out" * bool(self.empty)
        return f"{plural(self.new, 'label')} of {names or 'nobody'}{more}"


def read_labels(
    path: str | Path, who: str | None, grades: Mapping[int, int] | None = None
) -> list[Label]:
    """The labels of a file; `grades` says what its grades are on the scale from 1 to 5."""
    source = Source(qrels_file(path))
    rows = _rows(source)
    found = _several(source.label, rows) if rows is not None else _one(source, who)
    told = {each.grade for each in found if each.grade is not None}
    scale = set(range(1, 6))
    if grades is None and told and max(told & scale, default=0) < 4:
        listed = ", ".join(map(str, sorted(told)[:8]))
        raise InputError(
            f"its grades are {listed}{', …' * (len(told) > 8)}: not the scale from 1 to 5",
            place=str(path),
            remedy="say what they mean there, as in --grades 0=1,1=4",
        )
    grades = {grade: grade for grade in scale} if grades is None else grades
    for each in found:
        if each.grade is not None and grades.get(each.grade) not in scale:
            raise InputError(
                f"grade {shorten(each.grade)} of query {shorten(each.query)}, "
                f"document {shorten(each.doc)} has no meaning from 1 to 5",
                place=str(path),
                remedy="correct it, or give each grade one, as in --grades 0=1,1=4",
            )
    return [
        Label(
            *(each.query, each.doc, each.who),
            None if each.grade is None else grades[each.grade],
            *(each.sure, each.note, each.settles),
        )
        for each in found
    ]


def import_labels(store: Store, given: Sequence[Label]) -> Imported:
    """Add labels to a golden set, each as a row of its author; one that is there is left."""
    pooled: dict[Key, int | None] = {
        (query, doc): grade
        for query, doc, grade in store.rows(
            "SELECT query, doc, grade FROM pool LEFT JOIN grades USING (query, doc)"
        )
    }
    new = known = elsewhere = empty = 0
    with store.transaction():
        active = store.active_corrections()
        held, done = labels(active), settled(active)
        for each in given:
            key = (each.query, each.doc)
            if each.grade is None and each.sure and each.note is None:
                empty += 1
                continue
            if key not in pooled:
                elsewhere += 1
                continue
            mine = done.get(key) if each.settles else held.get(key, {}).get(each.who)
            said = (each.grade, each.sure, each.note)
            if mine is not None and (mine.new, mine.sure, mine.note) == said:
                known += 1
                continue
            old = pooled[key] if mine is None else mine.new
            store.add_label(*key, old, each.grade, each.who, each.note, each.sure, each.settles)
            new += 1
    return Imported(new, known, elsewhere, empty, tuple(sorted({each.who for each in given})))


def label_rows(corrections: Sequence[Correction]) -> Iterator[dict[str, Any]]:
    """Everybody's label of each passage, and what was settled; of corrections that hold."""
    everyone = [(key, c) for key, each in labels(corrections).items() for c in each.values()]
    everyone += list(settled(corrections).items())
    for (query, doc), c in sorted(everyone, key=lambda each: (each[0], each[1].id)):
        values = (query, doc, c.who, c.new, c.sure, c.settles, c.note, c.at)
        yield dict(zip(COLUMNS, values, strict=True))


def csv_lines(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """Lines of a CSV file, without their ends."""

    class Line:
        text = ""

        def write(self, text: str) -> None:
            self.text = text

    line = Line()
    writer = csv.writer(line, lineterminator="")
    for row in ([*columns], *([row[name] for name in columns] for row in rows)):
        writer.writerow(["" if value is None else escape_formula(str(value)) for value in row])
        yield line.text


# -------------------------------------------------------------------------------------- reading


def _rows(source: Source) -> list[Row] | None:
    """(line, row) of a file that says who, by the names of `COLUMNS`; None of one that does not."""
    form = ENDINGS.get(ending(source.path))
    found: list[Row]
    if form == "jsonl":
        found = _jsonl(source.label, source.text())
    elif form in ("parquet", "arrow"):
        with polars_reads(source.label, form):
            found = list(enumerate(scan(source, form).collect().to_dicts(), 1))
    elif form == "json":
        try:
            said = json.loads(source.text())
        except (ValueError, RecursionError):
            return None  # whoever reads judgements says what is wrong with it
        if not isinstance(said, list) or not all(isinstance(row, dict) for row in said):
            return None
        found = list(enumerate(said, 1))
    else:
        first = source.head.decode(errors="replace").lstrip().replace("\r", "\n").partition("\n")[0]
        marks = (mark for mark in ",;\t" if "who" in map(plain_name, first.split(mark)))
        mark = next(marks, None)  # spreadsheets put a semicolon where decimals have a comma
        if mark is None:
            return None
        found = _csv(source.label, source.text(), mark)
        if not found:
            raise no_rows(source.label)
    names = list(dict.fromkeys(name for _, row in found for name in row))
    called = {plain_name(name): name for name in reversed(names)}
    if "who" not in called:
        return None
    columns = {name: called.get(name) for name in COLUMNS} | find_columns(names, "qrels")
    says = any(columns[name] for name in ("grade", "sure", "settles", "note"))
    if columns["query"] and columns["doc"] and not says:
        choose_columns(names, "qrels", source.label)
    return [
        (line, {name: row.get(was) for name, was in columns.items() if was is not None})
        for line, row in found
    ]


def _csv(label: str, text: str, mark: str) -> list[Row]:
    reader = read_csv_rows(text, mark)
    remedy = "put a cell that holds a mark or an end of a line in quotes"
    found = []
    try:
        named = reader.fieldnames or []
        again = next((name for at, name in enumerate(named) if name in named[:at]), None)
        if again is not None:
            raise InputError(
                f"two columns are called {shorten(again)}", place=f"{label}:1", remedy="keep one"
            )
        for row in reader:
            if None in row:
                wrong = "more cells than the first line names"
                raise InputError(wrong, place=f"{label}:{reader.line_num}", remedy=remedy)
            if any(cell and cell.strip() for cell in row.values()):
                found.append((reader.line_num, {name: _as_was(cell) for name, cell in row.items()}))
    except csv.Error as error:  # in the row that begins here
        place = f"{label}:{reader.line_num + 1}"
        raise InputError(f"this is not CSV ({error})", place=place, remedy=remedy) from None
    return found


def _as_was(cell: Any) -> Any:
    """What `inert` made of a cell, taken back."""
    made = isinstance(cell, str) and cell[:1] == "'" and escape_formula(cell[1:]) == cell
    return cell[1:] if made else cell


def _jsonl(label: str, text: str) -> list[Row]:
    found = list(read_json_lines(text))  # a note may hold other ends of lines
    for n, value in found:
        if not isinstance(value, dict):
            raise InputError(
                "this is not a JSON object", place=f"{label}:{n}", remedy="give one a line"
            )
    return found


def _several(label: str, rows: Sequence[Row]) -> list[Label]:
    found: dict[tuple[str, str, str, bool], Label] = {}
    for n, row in rows:
        place = f"{label}:{n}"
        query, doc, who = (_text(row.get(name), name, place) for name in ("query", "doc", "who"))
        for name, value in (("query", query), ("doc", doc), ("who", who)):
            if not value:
                raise InputError(f"no {name} is given", place=place, remedy="give every row one")
        sure, settles = (
            _flag(row.get(name), name, usual, place)
            for name, usual in (("sure", True), ("settles", False))
        )
        note = _text(row.get("note"), "note", place) or None
        if (query, doc, who, settles) in found:
            raise InputError(
                f"{shorten(who)} labels query {shorten(query)}, document {shorten(doc)} again",
                place=place,
                remedy="keep one of the two",
            )
        grade = _whole(row.get("grade"), place)
        found[query, doc, who, settles] = Label(query, doc, who, grade, sure, note, settles)
    return list(found.values())


def _text(told: Any, name: str, place: str) -> str:
    """What a cell says; nothing where it is empty."""
    if told is not None and (isinstance(told, bool) or not isinstance(told, str | int | float)):
        raise InputError(f"{name} {shorten(told)} is not text", place=place, remedy="make it text")
    text = "" if told is None else str(told).strip()
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        wrong = f"{name} {shorten(text)} is not valid Unicode"
        raise InputError(wrong, place=place, remedy="remove its lone surrogates")
    return text


def _whole(told: Any, place: str) -> int | None:
    """A grade, be it written 3.0, as tables with gaps are; None: there is none."""
    if told is None or str(told).strip() == "":
        return None
    try:
        number = float(str(told))
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise InputError(
            f"grade {shorten(told)} is not a whole number", place=place, remedy="give one, or none"
        )
    return int(number)


def _flag(told: Any, name: str, usual: bool, place: str) -> bool:
    word = str("" if told is None else told).strip().lower()
    if word and word not in _WORDS:
        raise InputError(
            f"{name} {shorten(told)} is neither true nor false",
            place=place,
            remedy=f"write true or false, or leave it empty for {str(usual).lower()}",
        )
    return _WORDS.get(word, usual)


def _one(source: Source, who: str | None) -> list[Label]:
    if who is None or not who.strip():
        raise InputError("it does not say who labelled", place=source.label, remedy="add --as NAME")
    rows = read_qrels(source).to_frame().iter_rows()
    return [Label(query, doc, who.strip(), grade) for query, doc, grade in rows]
