"""LanceDB's three searches measured: words, vectors, and its hybrid of the two, which ties.

    python examples/bench_lancedb.py [BEIR FOLDER]

Without a folder, on the corpus that ships with rankproof. Needs `pip install lancedb` and the extra
`retrieval`. Everything runs here; nothing is downloaded.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lancedb
from lancedb.index import FTS

import rankproof as rp
from rankproof.commands.showcase import unpack
from rankproof.data.beir import read_passages
from rankproof.retrieval.embedders import make_embedder
from rankproof.retrieval.embedders.wordllama import WordllamaSettings
from rankproof.tradeoffs.sweep import Swept

Find = Callable[[str, int], list[tuple[str, float]]]


def engines(passages: dict[str, str], folder: Path) -> dict[str, Find]:
    """A table of texts and vectors, and three ways to search it."""
    embedder = make_embedder(WordllamaSettings())
    vectors = embedder.embed_passages(list(passages.values()))
    rows = [
        {"id": name, "text": text, "vector": vector}
        for (name, text), vector in zip(passages.items(), vectors, strict=True)
    ]
    table: Any = lancedb.connect(folder).create_table("passages", rows)
    table.create_index("text", config=FTS())

    def words(text: str, k: int) -> list[tuple[str, float]]:
        found = table.search(plain(text), query_type="fts").limit(k).to_list()
        return [(row["id"], row["_score"]) for row in found]

    def vector(text: str, k: int) -> list[tuple[str, float]]:
        asked = embedder.embed_queries([text])[0]
        found = table.search(asked, query_type="vector").limit(k).to_list()
        return [(row["id"], -row["_distance"]) for row in found]  # more is better

    def hybrid(text: str, k: int) -> list[tuple[str, float]]:
        asked = embedder.embed_queries([text])[0]
        search = table.search(query_type="hybrid").vector(asked).text(plain(text))
        return [(row["id"], row["_relevance_score"]) for row in search.limit(k).to_list()]

    return {"words": words, "vector": vector, "hybrid": hybrid}


def plain(text: str) -> str:
    """Without the signs that its query language reads."""
    return " ".join("".join(c if c.isalnum() else " " for c in text).split())


def measure(corpus: Path) -> Swept:
    with tempfile.TemporaryDirectory() as folder:
        found = engines(read_passages(corpus), Path(folder))
        return rp.bench(found, corpus=corpus, k=20, measures=["nDCG@10", "RR@10"])


def main() -> None:
    if len(sys.argv) > 1:
        print(measure(Path(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        unpack(Path(folder) / "try")
        print(measure(Path(folder) / "try" / "corpus"))


if __name__ == "__main__":
    main()
