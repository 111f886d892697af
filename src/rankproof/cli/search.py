"""`rankproof search`: ask one retriever a question, or all of them into a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankproof.cli import options
from rankproof.cli.options import Format
from rankproof.cli.output import Cell, Column, Made, Table, check_outputs, deliver
from rankproof.foundation.errors import InputError

if TYPE_CHECKING:
    from rankproof.data.tables import Run

_EXCERPT = 100  # characters of a passage


def command(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A sweep's YAML file, or a BEIR folder.")
    ],
    question: Annotated[
        str | None, typer.Argument(metavar="QUESTION", help="What is asked.")
    ] = None,
    retriever: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="One of the file's retrievers, or dense, sparse, hybrid.",
            show_default="its first retriever, else sparse",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Passages for each question.")] = 10,
    queries: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Ask every question of this file, written like queries.jsonl."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="With --queries: the run, in TREC's format.")
    ] = None,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
) -> None:
    """Search a corpus with any retriever that a sweep could measure.

    Passages of the same score share their ranks. What was made is kept in the cache and used again.
    """
    from rankproof.retrieval.ranked_lists import check_depth
    from rankproof.tradeoffs.single_retriever import search, search_files, search_settings

    check_depth(k)
    if (question is None) == (queries is None) or (queries is None) != (out is None):
        raise InputError(
            "one question, or a file of them and a run to write",
            place="search",
            remedy='write "QUESTION", or --queries queries.jsonl --out run.trec',
        )
    settings = search_settings(source)
    files = search_files(settings, source)
    if queries is not None and out is not None:
        from rankproof.data.beir import read_questions
        from rankproof.data.trec import write_trec

        given = [*map(str, files.values()), str(queries)]
        check_outputs(given, out)
        run, _ = search(settings, read_questions(queries), retriever, k)
        write_trec(run, out, given)
        return
    dumped = settings.model_dump(mode="json")
    run, texts = search(settings, {"question": str(question)}, retriever, k)
    asked = {"question": question, "retriever": run.name, "k": k, "settings": dumped}
    _show(run, texts, form, Made("search", {r: str(f) for r, f in files.items()}, asked))


def _show(run: Run, texts: dict[str, str], form: Format, made: Made) -> None:
    hits = _ranked(run, texts)
    columns = [
        Column("rank", "text"),
        Column("score"),
        Column("doc", "text"),
        Column("text", "text", prose=True),
    ]
    rows: list[list[Cell]] = [
        [hit["rank"], hit["score"], hit["doc"], _excerpt(hit["text"])] for hit in hits
    ]
    cut = 0 if run.cut is None else int(run.cut.sum())
    remarks = [f"{cut} more tie with the last one."] if cut else []
    data = {"retriever": run.name, "hits": hits, "cut": cut}
    remarks = remarks if hits else ["Nothing was found."]
    deliver(form, [Table(columns, rows)], data, made, remarks=remarks)


def _ranked(run: Run, texts: dict[str, str]) -> list[dict[str, Any]]:
    """Hits from best to worst; those that tie have the ranks they share: 2–4."""
    frame = run.to_frame()
    scores = frame["score"].to_list()
    hits = []
    for doc, score in frame.select("doc", "score").rows():
        first = scores.index(score) + 1
        last = first + scores.count(score) - 1
        rank = str(first) if first == last else f"{first}–{last}"
        hits.append({"rank": rank, "score": score, "doc": doc, "text": texts.get(doc, "")})
    return hits


def _excerpt(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _EXCERPT else f"{words[: _EXCERPT - 1]}…"
