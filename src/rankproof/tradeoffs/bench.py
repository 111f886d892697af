"""Measure a user's own retrievers in one call: quality, ties, latency, and which to choose.

    rp.bench({"langchain": retriever, "lance": lambda text, k: [(id, score), …]},
             corpus="scifact", k=20, measures=["nDCG@10"], id="metadata.id")

It is a sweep of engines alone. A retriever is called as `.invoke(text)` (LangChain),
`.retrieve(text)` (LlamaIndex), `.search(texts, k)` (a Retriever of this package), or as a function
of (text, k).
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankproof.data import read_qrels
from rankproof.data.beir import Corpus, qrels_file, read_passages, read_questions
from rankproof.data.tables import Qrels
from rankproof.foundation.config import Settings, check_config
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.manifest import digest
from rankproof.measures import Measure
from rankproof.retrieval.retrievers.python import FunctionRetriever
from rankproof.tradeoffs.plan import SweepSettings
from rankproof.tradeoffs.sweep import Swept, sweep_texts

Texts = Mapping[str, Any] | str | os.PathLike[str] | None


def bench(
    retrievers: Mapping[str, Any],
    *,
    corpus: Texts = None,
    qrels: Any = None,
    queries: Texts = None,
    k: int = 20,
    measures: Sequence[str | Measure] = ("nDCG@10", "RR@10"),
    id: str | None = None,  # noqa: A002
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
) -> Swept:
    """Ask every retriever every judged question; return the results of a sweep.

    `retrievers` are objects or functions by name, or settings of an engine such as
    `{"type": "elasticsearch", …}`. `corpus` is a BEIR folder or {id: text}, and may be omitted if
    no engine needs it; `queries` (a file like queries.jsonl, or {id: text}) and `qrels` (whatever
    `evaluate` takes) default to those of the folder. `id` is where a result has its id, such as
    `metadata.id`. Results are written to the folder `out`, by default to a temporary one that is
    deleted when Python exits.

    >>> mine = {"mine": lambda text, k: [("a", 2.0), ("b", 1.0)]}
    >>> qrels = {"q": {"b": 1}}
    >>> swept = rp.bench(mine, queries={"q": "x?"}, qrels=qrels, k=2, measures=["RR@2"])
    >>> swept.configurations["RR@2"].to_list()
    [0.5]
    """
    if not isinstance(retrievers, Mapping) or not retrievers:
        raise InputError(
            f"retrievers: {shorten(retrievers)}", place="bench", remedy="give {name: retriever}"
        )
    folder = Path(corpus) if isinstance(corpus, str | os.PathLike) else None
    passages = read_passages(folder) if folder is not None else _read_mapping(corpus, "corpus")
    questions = _read_questions(queries, folder)
    judgments = _read_judgments(qrels, folder)
    engines = {name: _engine(name, retriever, id) for name, retriever in retrievers.items()}
    settings = check_config(
        {
            "corpus": folder or "corpus",
            "modes": [],
            "retrievers": engines,
            "pools": [k],
            "prompts": [k],
            "at": [],
            "measures": [str(measure) for measure in measures],
            "seed": seed,
        },
        SweepSettings,
        place="bench",
    )
    texts = Corpus(
        document_ids=list(passages),
        documents=list(passages.values()),
        query_ids=list(questions),
        queries=list(questions.values()),
        qrels=Path(judgments.name),
        label="the queries",
        sources=[None] * len(passages),
        empty=sum(not text.strip() for text in passages.values()),
    )
    inputs = {
        "corpus": digest(passages),
        "queries": digest(questions),
        "qrels": digest(judgments.to_frame().rows()),
    }
    results = _temporary_folder() if out is None else Path(out)
    return sweep_texts(settings, texts, judgments, inputs, results)


def _engine(name: str, retriever: Any, id_path: str | None) -> Any:
    """Return settings and Retrievers unchanged, and wrap any other object or function."""
    if isinstance(retriever, Settings | dict):
        return retriever
    if callable(getattr(retriever, "search", None)) and hasattr(retriever, "build_seconds"):
        return retriever
    return FunctionRetriever(str(name), retriever, id_path)


def _read_mapping(source: Any, argument: str) -> dict[str, str]:
    """Return texts by id; a text may be a dict of title and text, as BEIR's loader has it."""
    if source is None:
        return {}
    texts: dict[str, str] = {}
    for name, text in source.items() if isinstance(source, Mapping) else [(None, source)]:
        if isinstance(text, Mapping):
            text = " ".join(filter(None, (text.get("title"), text.get("text"))))
        if not isinstance(name, str) or not isinstance(text, str):
            raise InputError(
                f"{shorten(text)} where a text by its id belongs",
                place=f"bench: {argument}",
                remedy="give {id: text}, or a BEIR folder",
            )
        texts[name] = text
    return texts


def _read_questions(queries: Texts, folder: Path | None) -> dict[str, str]:
    """Read the questions, by default those of the BEIR folder."""
    source = folder if queries is None else queries
    if isinstance(source, str | os.PathLike):
        return read_questions(Path(source))
    questions = _read_mapping(source, "queries")
    if not any(text.strip() for text in questions.values()):
        raise InputError(
            "there are no queries",
            place="bench",
            remedy="give queries={id: text}, or a BEIR folder",
        )
    return questions


def _read_judgments(qrels: Any, folder: Path | None) -> Qrels:
    """Read the judgments, by default those of the BEIR folder."""
    if qrels is None and folder is None:
        raise InputError("there are no qrels", place="bench", remedy="give qrels=")
    return read_qrels(qrels if folder is None or qrels is not None else qrels_file(folder))


def _temporary_folder() -> Path:
    """Make a folder that is deleted when Python exits."""
    folder = Path(tempfile.mkdtemp(prefix="rankproof-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
