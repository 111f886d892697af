"""`search`: one question to one retriever of a configuration, or many questions into a run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from rankproof.commands.options import RETRIEVAL
from rankproof.commands.registry import Option, Source, command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rankproof.data.tables import Run
    from rankproof.presentation.result import Summary
    from rankproof.presentation.tables import Table
    from rankproof.tradeoffs.plan import SweepSettings

_EXCERPT = 100  # characters of a passage in the table


@dataclass(frozen=True)
class SearchResult:
    """Passages found by one retriever, with their texts.

    >>> rp.search("try/corpus", "What do whales breathe?", k=1).hits[0]["rank"]
    '1'
    """

    kind: ClassVar[str] = "search"
    exit_code: ClassVar[int] = 0
    run: Run
    texts: Mapping[str, str]  # of the corpus, by id
    settings: SweepSettings
    files: Mapping[str, Path]  # that were read, by role
    is_written: bool = False  # the run went to a file, and nothing is printed

    def summary(self) -> Summary:
        from rankproof.presentation.result import Summary

        if self.is_written:
            return Summary("")
        if not len(self.run):
            return Summary("", ["Nothing was found."])
        return Summary("", [f"{self.cut} more tie with the last one."] if self.cut else [])

    def full_tables(self) -> list[Table]:
        """The same tables."""
        return self.tables()

    def tables(self) -> list[Table]:
        """One row for each passage."""
        from rankproof.presentation.tables import Column, Table

        if self.is_written:
            return []
        columns = [
            Column("rank", "text"),
            Column("score"),
            Column("doc", "text"),
            Column("text", "text", prose=True),
        ]
        rows = [(hit["rank"], hit["score"], hit["doc"], _excerpt(hit["text"])) for hit in self.hits]
        return [Table(columns, rows)]

    def charts(self) -> list[Any]:
        return []

    def figures(self) -> dict[str, float]:
        return {}

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof search --format json` prints."""
        return {"retriever": self.run.name, "hits": self.hits, "cut": self.cut}

    @property
    def record(self) -> dict[str, Any]:
        """The settings, and the digests of the files behind them."""
        from rankproof.foundation.manifest import input_digest

        files = {role: input_digest(file) for role, file in self.files.items()}
        return {"settings": self.settings.model_dump(mode="json"), "inputs": files}

    @property
    def cut(self) -> int:
        """Documents beyond k that tie with the last one."""
        return 0 if self.run.cut is None else int(self.run.cut.sum())

    @property
    def hits(self) -> list[dict[str, Any]]:
        """Hits from best to worst; documents that tie share their ranks: "2–4"."""
        scores = self.run.score.tolist()
        hits = []
        for doc, score in zip(self.run.doc.to_list(), scores, strict=True):
            first = scores.index(score) + 1
            last = first + scores.count(score) - 1
            rank = str(first) if first == last else f"{first}–{last}"
            text = self.texts.get(doc, "")
            hits.append({"rank": rank, "score": score, "doc": doc, "text": text})
        return hits


def _excerpt(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _EXCERPT else f"{words[: _EXCERPT - 1]}…"


@command(group="RAG", needs=RETRIEVAL, replay="a retriever was asked")
def search(
    source: Annotated[
        str | os.PathLike[str],
        Source("SOURCE", "source"),
        "A sweep's YAML file, or a BEIR folder.",
    ],
    question: Annotated[
        str | None, Option(metavar="QUESTION", positional=True), "A question."
    ] = None,
    *,
    retriever: Annotated[
        str | None,
        Option(metavar="NAME", default_text="its first retriever, else sparse"),
        "One of the file's retrievers, dense, sparse, hybrid, or a configuration by its name.",
    ] = None,
    k: Annotated[int, Option(("-k",), minimum=1), "Passages for each question."] = 10,
    queries: Annotated[
        str | os.PathLike[str] | None,
        Source("FILE", "queries"),
        "Search with every question of this file, in the format of queries.jsonl.",
    ] = None,
    out: Annotated[
        Path | None,
        Option(metavar="RUN", recorded=False),
        "With --queries: the run, in TREC's format.",
    ] = None,
) -> SearchResult:
    """Search a corpus with a retriever or a configuration of a sweep.

    Passages of the same score share their ranks. A configuration named as in the sweep reranks its
    candidates too. Indexes and vectors are cached.

    $ rankproof search corpus "What do whales breathe?"
    $ rankproof search sweep.yaml "What do whales breathe?" --retriever "sparse K=30 top 10"
    $ rankproof search sweep.yaml --queries corpus/queries.jsonl --out run.trec

    >>> rp.search("try/corpus", "What do whales breathe?", k=3).run.name
    'sparse'
    """
    from rankproof.foundation.errors import InputError
    from rankproof.foundation.files import check_output
    from rankproof.retrieval.ranked_lists import check_depth
    from rankproof.tradeoffs import single_retriever

    check_depth(k)
    if (question is None) == (queries is None) or (queries is None) != (out is None):
        raise InputError(
            "one question, or a file of them and a run to write",
            place="search",
            remedy='write "QUESTION", or --queries queries.jsonl --out run.trec',
        )
    place = Path(source)
    settings = single_retriever.search_settings(place)
    files = single_retriever.search_files(settings, place)
    if queries is None or out is None:
        questions = {"question": str(question)}
        run, texts = single_retriever.search(settings, questions, retriever, k)
        return SearchResult(run, texts, settings, files)
    from rankproof.data.beir import read_questions
    from rankproof.data.trec import write_trec

    inputs = [*map(str, files.values()), str(queries)]
    check_output(out, inputs)
    run, texts = single_retriever.search(settings, read_questions(Path(queries)), retriever, k)
    write_trec(run, out, inputs)
    return SearchResult(run, texts, settings, files, is_written=True)
