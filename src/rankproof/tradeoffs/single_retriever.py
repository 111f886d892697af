"""A corpus searched by one retriever of a sweep's configuration, without the sweep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rankproof.data.beir import read_passages
from rankproof.data.tables import Run
from rankproof.foundation.config import read_config
from rankproof.foundation.errors import InputError
from rankproof.retrieval.workshop import Texts, Workshop, silent
from rankproof.tradeoffs.chunked import cut
from rankproof.tradeoffs.plan import Configuration, SweepSettings, configurations
from rankproof.tradeoffs.stack import Stack


def search_settings(source: str | Path) -> SweepSettings:
    """Of a sweep's file; a BEIR folder is searched with what a sweep has by default."""
    if Path(source).is_dir():
        return SweepSettings(corpus=Path(source))
    return read_config(source, SweepSettings)


def search_files(settings: SweepSettings, source: str | Path) -> dict[str, Path]:
    """The files that a search reads, by role: no output may replace one."""
    named = {} if Path(source).is_dir() else {"config": Path(source)}
    for name in ("corpus", "queries"):
        found = sorted(settings.corpus.glob(f"{name}.jsonl*"))
        named |= {name: found[0]} if found else {}
    runs = {name: getattr(chosen, "file", None) for name, chosen in settings.retrievers.items()}
    return named | {f"retriever {name}": Path(file) for name, file in runs.items() if file}


def search(
    settings: SweepSettings, questions: dict[str, str], name: str | None, k: int
) -> tuple[Run, dict[str, str]]:
    """The first k passages of each question, best first; and the texts of the corpus."""
    documents = read_passages(settings.corpus)
    chosen = _chosen(settings, name)
    asked = Texts(list(questions), list(questions.values()))
    whole = Texts(list(documents), list(documents.values()))
    passages, _ = cut(settings.chunkings[chosen.chunking], whole)
    with Workshop(passages) as shop:
        stack = Stack(shop, settings, asked, [chosen], silent)
        run = stack.pool(chosen, k)
        return replace(run, name=chosen.retriever or chosen.mode), dict(passages.by_id)


def _chosen(settings: SweepSettings, name: str | None) -> Configuration:
    """The first configuration of a retriever or mode."""
    grid: dict[str, Configuration] = {}
    for c in configurations(settings):
        grid.setdefault(c.retriever or c.mode, c)
    if name is None:
        name = next(iter([*settings.retrievers, *(["sparse"] if "sparse" in grid else [])]), None)
        name = name or next(iter(grid))
    if name not in grid:
        raise InputError(
            f"there is no retriever {name!r}", place="search", remedy=f"use {', '.join(grid)}"
        )
    return grid[name]
