"""Search a corpus with one retriever of a sweep's settings, without the sweep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rankproof.data.beir import read_passages
from rankproof.data.tables import Run
from rankproof.foundation.config import read_config
from rankproof.foundation.errors import InputError
from rankproof.retrieval.ranked_lists import keep_first
from rankproof.retrieval.workshop import Texts, Workshop
from rankproof.tradeoffs.chunked import cut_documents
from rankproof.tradeoffs.plan import DYNAMIC, Configuration, SweepSettings, configurations
from rankproof.tradeoffs.stack import Stack


def search_settings(source: str | Path) -> SweepSettings:
    """Read the settings of a sweep; a BEIR folder has those of a sweep by default."""
    if Path(source).is_dir():
        return SweepSettings(corpus=Path(source))
    return read_config(source, SweepSettings)


def search_files(settings: SweepSettings, source: str | Path) -> dict[str, Path]:
    """Return the files that a search reads, by role, so that no output replaces one."""
    files = {} if Path(source).is_dir() else {"config": Path(source)}
    for name in ("corpus", "queries"):
        matches = sorted(settings.corpus.glob(f"{name}.jsonl*"))
        files |= {name: matches[0]} if matches else {}
    runs = {name: getattr(engine, "file", None) for name, engine in settings.retrievers.items()}
    return files | {f"retriever {name}": Path(file) for name, file in runs.items() if file}


def search(
    settings: SweepSettings, questions: dict[str, str], name: str | None, k: int
) -> tuple[Run, dict[str, str]]:
    """Return the first k passages of each question, and the texts of the corpus by id."""
    documents = read_passages(settings.corpus)
    chosen = _first_configuration(settings, name)
    whole = Texts(list(documents), list(documents.values()))
    passages, _ = cut_documents(settings.chunkings[chosen.chunking], whole)
    with Workshop(passages) as shop:
        stack = Stack(shop, settings, Texts(list(questions), list(questions.values())), [chosen])
        if name == chosen.name:
            stack.rerank()
            run = keep_first(stack.ranked(chosen).final, k)
        else:
            run = stack.pool(chosen, k)
            name = chosen.retriever or chosen.mode
        return replace(run, name=name), dict(passages.by_id)


def _first_configuration(settings: SweepSettings, name: str | None) -> Configuration:
    """Return the configuration of this name, or the first one of a retriever or mode."""
    grid: dict[str, Configuration] = {}
    for c in configurations(settings):
        grid.setdefault(c.retriever or c.mode, c)
        if name == c.name and c.pool != DYNAMIC:  # how deep to go is learned from judgments
            return c
    if name is None:
        name = next(iter([*settings.retrievers, *(["sparse"] if "sparse" in grid else [])]), None)
        name = name or next(iter(grid))
    if name not in grid:
        raise InputError(
            f"there is no retriever {name!r}", place="search", remedy=f"use {', '.join(grid)}"
        )
    return grid[name]
