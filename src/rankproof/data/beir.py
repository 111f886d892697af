"""BEIR folders: corpus.jsonl, queries.jsonl, qrels/test.tsv (or graded.tsv, of a golden set)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from rankproof.data.columns import check_ids
from rankproof.data.sources import Source, is_folder
from rankproof.foundation.errors import InputError, first_line, shorten
from rankproof.foundation.files import check_folder


@dataclass(frozen=True, slots=True)
class Corpus:
    """Passages to be searched and questions to be asked of them."""

    document_ids: list[str]
    documents: list[str]  # title and text
    query_ids: list[str]
    queries: list[str]
    qrels: Path
    label: str
    sources: list[str | None]  # what each passage comes from, where the file says: a book, a page
    empty: int  # passages that have neither title nor text

    @property
    def files(self) -> dict[str, Path]:
        """What was read, by role."""
        found = {name: _file(Path(self.label), name) for name in ("corpus", "queries")}
        return {name: file for name, file in found.items() if file is not None}


def read_corpus(
    folder: str | Path, qrels: str | Path | None = None, queries: str | Path | None = None
) -> Corpus:
    """The texts of a BEIR folder, and where its judgements are.

    Files may be compressed (corpus.jsonl.gz). A passage's source is its "source", or that of its
    "metadata". `queries` is a file in place of queries.jsonl.
    """
    place = Path(folder)
    judgements = Path(qrels_file(place)) if qrels is None else Path(qrels)
    texts = _named(place, "corpus")  # all must be there before the first is read
    questions = _named(place, "queries") if queries is None else queries
    if qrels is None and not judgements.is_file():
        raise InputError(
            "there is no qrels/test.tsv in this folder",
            place=str(place),
            remedy="name the judgements (`qrels: golden/qrels.txt`), or put them there",
        )
    passages, asked = _texts(texts), read_questions(questions)
    documents = [text for _, text in passages]
    return Corpus(
        [row["_id"] for row, _ in passages],
        documents,
        list(asked),
        list(asked.values()),
        judgements,
        str(folder),
        [_source(row) for row, _ in passages],
        sum(not text.strip() for text in documents),
    )


def qrels_file(source: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The judgements of a BEIR folder; a path that is none as it is.

    A golden set's export also has them as they were graded: those are meant.
    """
    folder = os.fspath(source)
    if not is_folder(Path(folder) / "qrels"):
        return source
    graded = Path(folder) / "qrels" / "graded.tsv"
    if graded.is_file():
        return graded
    found = _judgements(Path(folder) / "qrels")
    tests = [file for file in found if file.name.startswith("test.")]
    if len(found) != 1 and len(tests) != 1:
        have = ", ".join(file.name for file in found) or "nothing"
        raise InputError(
            f"which judgements are meant? qrels holds {have}",
            place=folder,
            remedy="name the file",
        )
    return (tests or found)[0]


def chosen_among(source: str | os.PathLike[str], file: str | os.PathLike[str]) -> tuple[str, ...]:
    """A line on which judgements of a BEIR folder are meant, where it has others."""
    if file is source or Path(file).name == "graded.tsv":
        return ()
    others = [each for each in _judgements(Path(file).parent) if each != Path(file)]
    told = f"{Path(source).name}: the judgements are those of qrels/{Path(file).name}"
    return (told,) if others else ()


def _judgements(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.glob("*.tsv*")) if file.suffix != ".scale"]


def read_passages(folder: str | Path) -> dict[str, str]:
    """Title and text of each passage of a BEIR folder, by id.

    >>> from rankproof.data.beir import read_passages
    >>> len(read_passages("try/corpus"))
    172
    """
    return {row["_id"]: text for row, text in _texts(_named(Path(folder), "corpus"))}


def read_questions(source: str | Path) -> dict[str, str]:
    """The questions of a BEIR folder, or of a file like queries.jsonl, by id."""
    place = Path(source)
    file = _named(place, "queries") if place.is_dir() else place
    asked = {row["_id"]: row["text"] for row, _ in _texts(file)}
    silent = next((name for name, text in asked.items() if not text.strip()), None)
    if silent is not None:
        raise InputError(
            f"query {shorten(silent)} has no text",
            place=str(file),
            remedy="write the question, or drop the line",
        )
    return asked


def read_answers(file: str | Path) -> dict[str, list[str]]:
    """Reference answers of a file like queries.jsonl, by id: "answer" or "answers" of a line, or of
    its "metadata"; questions without one are left out."""
    found = {}
    for row in _rows(Path(file)):
        inside = row.get("metadata")
        said = {**(inside if isinstance(inside, dict) else {}), **row}
        given = said.get("answers", said.get("answer"))
        several = given if isinstance(given, list) else [given]
        texts = [text for text in several if isinstance(text, str) and text.strip()]
        if texts:
            found[row["_id"]] = texts
    return found


def _named(folder: Path, name: str) -> Path:
    """The file of a BEIR folder that holds these texts."""
    check_folder(folder)
    file = _file(folder, name)
    if file is None:
        raise _absent(folder, f"{name}.jsonl")
    return file


def _absent(folder: Path, name: str) -> InputError:
    return InputError(
        f"there is no {name} in this folder",
        place=str(folder),
        remedy="name a BEIR folder: corpus.jsonl, queries.jsonl, qrels/test.tsv",
    )


def _texts(file: Path) -> list[tuple[dict[str, Any], str]]:
    """The rows of a file, and title and text of each."""
    rows = list(_rows(file))
    texts = [" ".join(filter(None, (_title(row), row["text"]))) for row in rows]
    if not any(text.strip() for text in texts):
        raise InputError(
            "no text in it" if rows else "the file is empty",
            place=str(file),
            remedy='write {"_id": "…", "title": "…", "text": "…"}, a line each',
        )
    return list(zip(rows, texts, strict=True))


def _file(folder: Path, name: str) -> Path | None:
    names = (f"{name}.jsonl{compressed}" for compressed in ("", ".gz", ".zst", ".bz2", ".xz"))
    return next((folder / file for file in names if (folder / file).is_file()), None)


def _title(row: dict[str, Any]) -> str:
    title = row.get("title")
    return title if isinstance(title, str) else ""


def _source(row: dict[str, Any]) -> str | None:
    metadata = row.get("metadata")
    inside = metadata.get("source") if isinstance(metadata, dict) else None
    found = row.get("source", inside)
    return None if found is None else str(found)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    seen: dict[str, int] = {}
    for number, line in enumerate(Source(file).text().split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"not JSON: {first_line(error)}",
                place=f"{file}:{number}",
                remedy="check how the file was made",
            ) from None
        if isinstance(row, dict) and type(row.get("_id")) is int:
            row["_id"] = str(row["_id"])
        fields = ("_id", "text")
        if not isinstance(row, dict) or not all(isinstance(row.get(f), str) for f in fields):
            raise InputError(
                f"{shorten(row)} lacks _id or text",
                place=f"{file}:{number}",
                remedy='write {"_id": "…", "title": "…", "text": "…"}',
            )
        texts = (row["_id"], row["text"], _title(row), _source(row) or "")
        if any("\ud800" <= c <= "\udfff" for text in texts for c in text if c > "\ud7ff"):
            raise InputError(
                "half a surrogate pair (\\ud800 to \\udfff), which is not a character",
                place=f"{file}:{number}",
                remedy="check how the file was made",
            )
        if not row["_id"] or not row["_id"].isprintable():  # which some that are fit are not
            place = f"{file}:{number}"
            check_ids(pl.Series([row["_id"]]), "text's", lambda _, place=place: place)  # type: ignore[misc]
        if row["_id"] in seen:
            raise InputError(
                f"_id {shorten(row['_id'])} is already on line {seen[row['_id']]}",
                place=f"{file}:{number}",
                remedy="give each line an id of its own",
            )
        seen[row["_id"]] = number
        yield row
