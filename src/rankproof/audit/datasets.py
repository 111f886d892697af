"""Datasets by name: `mteb:SciFact` or `irds:beir/scifact/test` becomes a BEIR folder in the cache.

A dataset is downloaded and written once; from then on it is read like any other BEIR folder. The
folder of a reranking task also holds its candidates as a run, in the order of the task's lists.
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
class Dataset:
    """A dataset as a library returns it."""

    corpus: Iterable[dict[str, str]]  # _id, title, text
    queries: Iterable[dict[str, str]]  # _id, text
    judgments: Iterable[tuple[str, str, int]]  # query, document, grade
    candidates: Mapping[str, Iterable[str]] | None = None  # documents of each query, as listed


def dataset_folder(name: str) -> str:
    """Return the folder of a named dataset, which is downloaded first if needed.

    Any name that is not `mteb:…` or `irds:…` is a path, and is returned unchanged.
    """
    source, colon, dataset = name.partition(":")
    if not colon or source not in _LOADERS or Path(name).exists():
        return name
    folder = make_cache_folder() / "datasets" / f"{source}-{digest(dataset)[:16]}"
    qrels_file = folder / "qrels" / "test.tsv"
    if not qrels_file.is_file():  # written last: a folder that has it is complete
        _write_beir(_LOADERS[source](dataset), folder, qrels_file)
    return str(folder)


def candidates_in(folder: str) -> str | None:
    """Return the file of candidates that came with a downloaded dataset, or None."""
    file = Path(folder) / CANDIDATES
    return str(file) if file.is_file() and Path(folder).parent.name == "datasets" else None


def _write_beir(dataset: Dataset, folder: Path, qrels_file: Path) -> None:
    """Write a dataset as a BEIR folder, judgments last."""
    for name, rows in (("corpus", dataset.corpus), ("queries", dataset.queries)):
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        _write_text(folder / f"{name}.jsonl", "".join(lines))
    if dataset.candidates is not None:
        run_lines = (
            f"{query} Q0 {doc} {rank} {-rank} listed\n"
            for query, docs in dataset.candidates.items()
            for rank, doc in enumerate(docs, 1)
        )
        _write_text(folder / CANDIDATES, "".join(run_lines))
    judgments = (f"{query}\t{doc}\t{grade}\n" for query, doc, grade in dataset.judgments)
    _write_text(qrels_file, "query-id\tcorpus-id\tscore\n" + "".join(judgments))


def _write_text(file: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8."""
    write_atomically(file, lambda path: path.write_bytes(text.encode()))


def _load_from_mteb(name: str) -> Dataset:
    """Download an MTEB task: its default subset and test split, or the first of each."""
    mteb = import_extra("mteb", f"the dataset mteb:{name}", "mteb")
    try:
        task = mteb.get_task(name)
        task.load_data()
        subsets = task.dataset
        subset = subsets["default"] if "default" in subsets else next(iter(subsets.values()))
        split = subset["test"] if "test" in subset else next(iter(subset.values()))
        return Dataset(
            corpus=[
                {"_id": str(row["id"]), "title": row.get("title") or "", "text": row["text"]}
                for row in split["corpus"]
            ],
            queries=[{"_id": str(row["id"]), "text": row["text"]} for row in split["queries"]],
            judgments=[
                (str(query), str(doc), int(grade))
                for query, docs in split["relevant_docs"].items()
                for doc, grade in docs.items()
            ],
            candidates=split.get("top_ranked"),
        )
    except Exception as error:  # mteb and the hub that it uses raise many kinds
        raise _loading_error(f"mteb:{name}", error) from None


def _load_from_ir_datasets(name: str) -> Dataset:
    """Download a dataset of ir_datasets."""
    library = import_extra("ir_datasets", f"the dataset irds:{name}", "irds")
    try:
        dataset = library.load(name)
        return Dataset(
            corpus=[
                {"_id": doc.doc_id, "title": getattr(doc, "title", ""), "text": _text_of(doc)}
                for doc in dataset.docs_iter()
            ],
            queries=[
                {"_id": query.query_id, "text": _text_of(query)} for query in dataset.queries_iter()
            ],
            judgments=[
                (judgment.query_id, judgment.doc_id, int(judgment.relevance))
                for judgment in dataset.qrels_iter()
            ],
        )
    except Exception as error:  # ir_datasets and the network below it raise many kinds
        raise _loading_error(f"irds:{name}", error) from None


def _text_of(record: Any) -> str:
    """Return the text of a document or query; without a field of that name, the default text."""
    text = getattr(record, "text", None)
    return text if isinstance(text, str) else str(record.default_text())


def _loading_error(name: str, error: Exception) -> InputError:
    """Return the error for a dataset that its library cannot load."""
    return InputError(
        f"it cannot be loaded ({shorten(first_line(error), 90)})",
        place=name,
        remedy="check its name and that the library can reach it, or name a BEIR folder",
    )


_LOADERS: dict[str, Callable[[str], Dataset]] = {
    "mteb": _load_from_mteb,
    "irds": _load_from_ir_datasets,
}
