"""Retrievers of the user's own, measured in one call: quality, ties, latency, and which to take.

    rp.bench({"langchain": retriever, "lance": lambda text, k: [(id, score), …]},
             corpus="scifact", k=20, measures=["nDCG@10"], id="metadata.id")

A sweep of nothing but engines: each is asked as `.invoke(text)` (LangChain), `.retrieve(text)`
(LlamaIndex), `.search(texts, k)` (a Retriever of this package) or called with (text, k).
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
from rankproof.retrieval.retrievers.python import Called
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
    """Ask every retriever every judged question, and return what a sweep returns.

    `corpus` is a BEIR folder or {id: text}, and may be left out where no engine needs it; `queries`
    (a file like queries.jsonl, or {id: text}) and `qrels` (whatever `evaluate` takes) default to
    those of the folder. `id` says where a result has its id, such as `metadata.id`. Settings of an
    engine (`{"type": "elasticsearch", …}`) may stand among the retrievers. Results go to the
    folder `out`, or to a temporary one that ends with the process.

    >>> mine = {"mine": lambda text, k: [("a", 2.0), ("b", 1.0)]}
    >>> qrels = {"q": {"b": 1}}
    >>> found = rp.bench(mine, queries={"q": "x?"}, qrels=qrels, k=2, measures=["RR@2"])
    >>> found.configurations["RR@2"].to_list()
    [0.5]
    """
    if not isinstance(retrievers, Mapping) or not retrievers:
        raise InputError(
            f"retrievers: {shorten(retrievers)}", place="bench", remedy="give {name: retriever}"
        )
    folder = Path(corpus) if isinstance(corpus, str | os.PathLike) else None
    passages = read_passages(folder) if folder is not None else _by_id(corpus, "corpus")
    asked = _questions(queries, folder)
    judged = _judged(qrels, folder)
    settings = check_config(
        {
            "corpus": folder or "corpus",
            "modes": [],
            "retrievers": {name: _engine(name, given, id) for name, given in retrievers.items()},
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
        query_ids=list(asked),
        queries=list(asked.values()),
        qrels=Path(judged.name),
        label="the queries",
        sources=[None] * len(passages),
        empty=sum(not text.strip() for text in passages.values()),
    )
    inputs = {"corpus": digest(passages), "queries": digest(asked)}
    inputs["qrels"] = digest(judged.to_frame().rows())
    return sweep_texts(settings, texts, judged, inputs, _temporary() if out is None else Path(out))


def _engine(name: str, given: Any, path: str | None) -> Any:
    """Settings and Retrievers as they are; anything else by its shape."""
    if isinstance(given, Settings | dict):
        return given
    if callable(getattr(given, "search", None)) and hasattr(given, "build_seconds"):
        return given
    return Called(str(name), given, path)


def _by_id(given: Any, what: str) -> dict[str, str]:
    if given is None:
        return {}
    found: dict[str, str] = {}
    for name, text in given.items() if isinstance(given, Mapping) else [(None, given)]:
        if isinstance(text, Mapping):  # as BEIR's loader has it
            text = " ".join(filter(None, (text.get("title"), text.get("text"))))
        if not isinstance(name, str) or not isinstance(text, str):
            raise InputError(
                f"{shorten(text)} where a text by its id belongs",
                place=f"bench: {what}",
                remedy="give {id: text}, or a BEIR folder",
            )
        found[name] = text
    return found


def _questions(given: Texts, folder: Path | None) -> dict[str, str]:
    source = folder if given is None else given
    if isinstance(source, str | os.PathLike):
        return read_questions(Path(source))
    found = _by_id(source, "queries")
    if not any(text.strip() for text in found.values()):
        raise InputError(
            "there are no queries",
            place="bench",
            remedy="give queries={id: text}, or a BEIR folder",
        )
    return found


def _judged(given: Any, folder: Path | None) -> Qrels:
    if given is None and folder is None:
        raise InputError("there are no qrels", place="bench", remedy="give qrels=")
    return read_qrels(given if folder is None or given is not None else qrels_file(folder))


def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="rankproof-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
