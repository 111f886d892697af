"""Datasets by name: `mteb:SciFact`, `irds:beir/scifact/test` → a BEIR folder in the cache.

Written once and read as any other folder. A reranking task also has its candidates, in the order
in which it lists them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankproof.foundation.errors import InputError, first_line, import_extra, shorten
from rankproof.foundation.files import write_atomically
from rankproof.foundation.manifest import digest
from rankproof.retrieval.cache import make_cache_folder

CANDIDATES = "candidates.trec"


@dataclass(frozen=True, slots=True)
class Texts:
    """What a library says of a dataset."""

    corpus: Iterable[dict[str, str]]  # _id, title, text
    queries: Iterable[dict[str, str]]  # _id, text
    judged: Iterable[tuple[str, str, int]]
    candidates: Mapping[str, Iterable[str]] | None = None


def folder_of(name: str) -> str:
    """The folder that a name stands for; a path is one already."""
    source, colon, rest = name.partition(":")
    if not colon or source not in _LIBRARIES or Path(name).exists():
        return name
    folder = make_cache_folder() / "datasets" / f"{source}-{digest(rest)[:16]}"
    last = folder / "qrels" / "test.tsv"
    if not last.is_file():  # written last: a folder that has it is whole
        _write(_LIBRARIES[source](rest), folder, last)
    return str(folder)


def candidates_in(folder: str) -> str | None:
    """The run that came with a dataset fetched by its name."""
    file = Path(folder) / CANDIDATES
    return str(file) if file.is_file() and Path(folder).parent.name == "datasets" else None


def _write(texts: Texts, folder: Path, last: Path) -> None:
    for name, rows in (("corpus", texts.corpus), ("queries", texts.queries)):
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        _put(folder / f"{name}.jsonl", text)
    if texts.candidates is not None:
        _put(
            folder / CANDIDATES,
            "".join(
                f"{query} Q0 {doc} {rank} {-rank} listed\n"
                for query, docs in texts.candidates.items()
                for rank, doc in enumerate(docs, 1)
            ),
        )
    judged = "".join(f"{query}\t{doc}\t{grade}\n" for query, doc, grade in texts.judged)
    _put(last, f"query-id\tcorpus-id\tscore\n{judged}")


def _put(file: Path, text: str) -> None:
    write_atomically(file, lambda path: path.write_bytes(text.encode()))


def _from_mteb(name: str) -> Texts:
    mteb = import_extra("mteb", f"the dataset mteb:{name}", "mteb")
    place = f"mteb:{name}"
    try:
        task = mteb.get_task(name)
        task.load_data()
        subsets = task.dataset
        subset = subsets["default"] if "default" in subsets else next(iter(subsets.values()))
        split = subset["test"] if "test" in subset else next(iter(subset.values()))
        return Texts(
            [
                {"_id": str(row["id"]), "title": row.get("title") or "", "text": row["text"]}
                for row in split["corpus"]
            ],
            [{"_id": str(row["id"]), "text": row["text"]} for row in split["queries"]],
            [
                (str(query), str(doc), int(grade))
                for query, docs in split["relevant_docs"].items()
                for doc, grade in docs.items()
            ],
            split.get("top_ranked"),
        )
    except Exception as error:  # whatever mteb and the hub below raise
        raise _unreachable(place, error) from None


def _from_ir_datasets(name: str) -> Texts:
    datasets = import_extra("ir_datasets", f"the dataset irds:{name}", "irds")
    place = f"irds:{name}"
    try:
        found = datasets.load(name)
        corpus = [
            {"_id": one.doc_id, "title": getattr(one, "title", ""), "text": _text(one)}
            for one in found.docs_iter()
        ]
        queries = [{"_id": one.query_id, "text": _text(one)} for one in found.queries_iter()]
        judged = [(one.query_id, one.doc_id, int(one.relevance)) for one in found.qrels_iter()]
    except Exception as error:  # whatever ir_datasets and the network below raise
        raise _unreachable(place, error) from None
    return Texts(corpus, queries, judged)


def _text(one: Any) -> str:
    """Its text, or all of it as the library puts it together."""
    text = getattr(one, "text", None)
    return text if isinstance(text, str) else str(one.default_text())


def _unreachable(place: str, error: Exception) -> InputError:
    return InputError(
        f"it cannot be loaded ({shorten(first_line(error), 90)})",
        place=place,
        remedy="check its name and that the library can reach it, or name a BEIR folder",
    )


_LIBRARIES: dict[str, Callable[[str], Texts]] = {"mteb": _from_mteb, "irds": _from_ir_datasets}
