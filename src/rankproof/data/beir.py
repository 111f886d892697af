"""Read BEIR folders: corpus.jsonl, queries.jsonl, qrels/test.tsv (graded.tsv of golden sets)."""

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
    """Passages, questions about them, and the place of the judgments."""

    document_ids: list[str]
    documents: list[str]  # title and text
    query_ids: list[str]
    queries: list[str]
    qrels: Path
    label: str
    sources: list[str | None]  # the source of each passage (a book, a page), if the file states it
    empty: int  # number of passages with neither title nor text

    @property
    def files(self) -> dict[str, Path]:
        """The files that were read, by role."""
        files = {name: _file(Path(self.label), name) for name in ("corpus", "queries")}
        return {name: file for name, file in files.items() if file is not None}


def read_corpus(
    folder: str | Path, qrels: str | Path | None = None, queries: str | Path | None = None
) -> Corpus:
    """Read the texts of a BEIR folder.

    Files may be compressed (corpus.jsonl.gz). A passage's source is its "source", or that in its
    "metadata". `queries` is a file to use in place of queries.jsonl.
    """
    place = Path(folder)
    judgements = Path(qrels_file(place)) if qrels is None else Path(qrels)
    texts = _text_file(place, "corpus")  # all files must exist before the first is read
    questions = _text_file(place, "queries") if queries is None else queries
    if qrels is None and not judgements.is_file():
        raise InputError(
            "there is no qrels/test.tsv in this folder",
            place=str(place),
            remedy="name the judgements (`qrels: golden/qrels.txt`), or put them there",
        )
    passages, questions_by_id = _texts(texts), read_questions(questions)
    documents = [text for _, text in passages]
    return Corpus(
        document_ids=[row["_id"] for row, _ in passages],
        documents=documents,
        query_ids=list(questions_by_id),
        queries=list(questions_by_id.values()),
        qrels=judgements,
        label=str(folder),
        sources=[_source(row) for row, _ in passages],
        empty=sum(not text.strip() for text in documents),
    )


def qrels_file(source: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the judgments in a BEIR folder; any other path unchanged.

    The export of a golden set also has graded.tsv, with all its grades, which is preferred.
    """
    folder = os.fspath(source)
    if not is_folder(Path(folder) / "qrels"):
        return source
    graded = Path(folder) / "qrels" / "graded.tsv"
    if graded.is_file():
        return graded
    files = _judgment_files(Path(folder) / "qrels")
    tests = [file for file in files if file.name.startswith("test.")]
    if len(files) != 1 and len(tests) != 1:
        names = ", ".join(file.name for file in files) or "nothing"
        raise InputError(
            f"which judgements are meant? qrels holds {names}",
            place=folder,
            remedy="name the file",
        )
    return (tests or files)[0]


def chosen_among(source: str | os.PathLike[str], file: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return a note on which judgments of a BEIR folder are used, if it has others."""
    if file is source or Path(file).name == "graded.tsv":
        return ()
    if _judgment_files(Path(file).parent) == [Path(file)]:
        return ()
    return (f"{Path(source).name}: the judgements are those of qrels/{Path(file).name}",)


def _judgment_files(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.glob("*.tsv*")) if file.suffix != ".scale"]


def read_passages(folder: str | Path) -> dict[str, str]:
    """Return title and text of each passage of a BEIR folder, by id.

    >>> from rankproof.data.beir import read_passages
    >>> len(read_passages("try/corpus"))
    172
    """
    return {row["_id"]: text for row, text in _texts(_text_file(Path(folder), "corpus"))}


def read_questions(source: str | Path) -> dict[str, str]:
    """Return the questions of a BEIR folder, or of a file like queries.jsonl, by id."""
    place = Path(source)
    file = _text_file(place, "queries") if place.is_dir() else place
    questions = {row["_id"]: row["text"] for row, _ in _texts(file)}
    empty = next((name for name, text in questions.items() if not text.strip()), None)
    if empty is not None:
        raise InputError(
            f"query {shorten(empty)} has no text",
            place=str(file),
            remedy="write the question, or drop the line",
        )
    return questions


def read_answers(file: str | Path) -> dict[str, list[str]]:
    """Return the reference answers of a file like queries.jsonl, by id.

    They are the "answer" or "answers" of a line or of its "metadata"; questions without one are
    skipped.
    """
    answers = {}
    for row in _rows(Path(file)):
        metadata = row.get("metadata")
        fields = {**(metadata if isinstance(metadata, dict) else {}), **row}
        value = fields.get("answers", fields.get("answer"))
        candidates = value if isinstance(value, list) else [value]
        texts = [text for text in candidates if isinstance(text, str) and text.strip()]
        if texts:
            answers[row["_id"]] = texts
    return answers


def _text_file(folder: Path, name: str) -> Path:
    """Return the file of a BEIR folder with the passages or the questions."""
    check_folder(folder)
    file = _file(folder, name)
    if file is None:
        raise InputError(
            f"there is no {name}.jsonl in this folder",
            place=str(folder),
            remedy="name a BEIR folder: corpus.jsonl, queries.jsonl, qrels/test.tsv",
        )
    return file


def _texts(file: Path) -> list[tuple[dict[str, Any], str]]:
    """Return the rows of a file, each with its title and text joined."""
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
    default = metadata.get("source") if isinstance(metadata, dict) else None
    source = row.get("source", default)
    return None if source is None else str(source)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a JSON lines file, each checked: _id, text, characters, distinct ids."""
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
        if not row["_id"] or not row["_id"].isprintable():  # a quick test that some valid ids fail
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
