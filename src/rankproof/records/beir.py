"""BEIR folders: corpus.jsonl, queries.jsonl, qrels/test.tsv."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankproof.errors import InputError, shorten
from rankproof.records.sources import Source


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
    if not place.is_dir():
        raise InputError("there is no such folder", place=str(folder), remedy="check the path")
    judgements = place / "qrels" / "test.tsv" if qrels is None else Path(qrels)
    found = {name: _file(place, name) for name in ("corpus", "queries")}
    if queries is not None:
        found["queries"] = Path(queries)
    absent = [f"{name}.jsonl" for name, file in found.items() if file is None]
    if qrels is None and not judgements.is_file():
        absent.append("qrels/test.tsv")
    if absent:
        raise InputError(
            f"there is no {absent[0]} in this folder",
            place=str(folder),
            remedy="name a BEIR folder: corpus.jsonl, queries.jsonl, qrels/test.tsv",
        )
    passages, asked = (list(_rows(file)) for file in found.values() if file is not None)
    documents = [" ".join(filter(None, (_title(row), row["text"]))) for row in passages]
    empty = sum(not text.strip() for text in documents)
    for file, rows, texts in (
        (found["corpus"], passages, documents),
        (found["queries"], asked, [row["text"] for row in asked]),
    ):
        if not any(text.strip() for text in texts):
            raise InputError(
                "no text in it" if rows else "the file is empty",
                place=str(file),
                remedy='write {"_id": "…", "title": "…", "text": "…"}, a line each',
            )
    silent = next((row for row in asked if not row["text"].strip()), None)
    if silent is not None:
        raise InputError(
            f"query {shorten(silent['_id'])} has no text",
            place=str(found["queries"]),
            remedy="write the question, or drop the line",
        )
    return Corpus(
        [row["_id"] for row in passages],
        documents,
        [row["_id"] for row in asked],
        [row["text"] for row in asked],
        judgements,
        str(folder),
        [_source(row) for row in passages],
        empty,
    )


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
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise InputError(
                f"not JSON: {first}", place=f"{file}:{number}", remedy="check how the file was made"
            ) from None
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
                "half a surrogate pair (\\ud800 to \\udfff), which is no character",
                place=f"{file}:{number}",
                remedy="check how the file was made",
            )
        if row["_id"] in seen:
            raise InputError(
                f"_id {shorten(row['_id'])} is already on line {seen[row['_id']]}",
                place=f"{file}:{number}",
                remedy="give each line an id of its own",
            )
        seen[row["_id"]] = number
        yield row
