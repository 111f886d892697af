"""Queries → pools: rewritten, searched by meaning and by words, merged."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from rankproof.errors import InputError, shorten
from rankproof.golden.settings import GoldenSettings
from rankproof.golden.store import Row, Store
from rankproof.manifest import digest_file
from rankproof.retrieval.identity import identity
from rankproof.retrieval.workshop import Texts, Workshop

if TYPE_CHECKING:
    from rankproof.records.beir import Corpus
    from rankproof.tables import Run

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a golden set is made from."""

    corpus: Corpus
    queries: list[tuple[str, str]]  # id and text, those of the sample
    qrels: Path | None
    digests: dict[str, dict[str, str]]  # by role: file name and SHA-256


def read_inputs(settings: GoldenSettings) -> Inputs:
    """The texts that a configuration names."""
    from rankproof.records.beir import read_corpus

    shipped = settings.corpus / "qrels" / "test.tsv"
    qrels = settings.qrels or (shipped if shipped.is_file() else None)
    if qrels is not None and not qrels.is_file():
        raise InputError("there is no such file", place=str(qrels), remedy="check qrels")
    corpus = read_corpus(settings.corpus, qrels or shipped, settings.queries)
    files = dict(corpus.files)
    if settings.queries is not None:
        files["queries"] = settings.queries
    if qrels is not None:
        files["qrels"] = qrels
    for name in (*corpus.document_ids, *corpus.query_ids):
        if "\x00" in name or name.split() != [name] or not _encodable(name):
            raise InputError(
                f"{shorten(name)} cannot be an id in a TREC file",
                place=corpus.label,
                remedy="give ids without spaces",
            )
    asked = list(zip(corpus.query_ids, corpus.queries, strict=True))
    if settings.only_judged:
        asked = _judged(asked, qrels)
    if settings.sample is not None and settings.sample < len(asked):
        chosen = random.Random(settings.seed).sample(range(len(asked)), settings.sample)
        asked = [asked[at] for at in sorted(chosen)]
    digests = {
        role: {"file": file.name, "sha256": digest_file(file)} for role, file in files.items()
    }
    return Inputs(corpus, [(q, _plain(t)) for q, t in asked], qrels, digests)


def _judged(asked: list[tuple[str, str]], qrels: Path | None) -> list[tuple[str, str]]:
    from rankproof.records import read_qrels

    if qrels is None:
        raise InputError("only_judged without qrels", remedy="name them under qrels")
    labelled = set(read_qrels(qrels).queries.to_list())
    kept = [(query, text) for query, text in asked if query in labelled]
    if not kept:
        raise InputError(
            "labels none of the queries", place=str(qrels), remedy="check that the ids are the same"
        )
    return kept


def _workshop(inputs: Inputs) -> Workshop:
    return Workshop(Texts(inputs.corpus.document_ids, inputs.corpus.documents))


def rewrite(store: Store, settings: GoldenSettings, inputs: Inputs, progress: Progress) -> None:
    """Each question fit to be searched; stored one by one, since a chat model may be paid."""
    how = identity(settings.rewriter)
    known = {}
    if store.meta("rewriter", "none yet") == how:
        known = {
            (query, text): asked
            for query, text, asked in store.rows("SELECT query, text, asked FROM queries")
        }
    rows = [
        (query, at, text, known.get((query, text)))
        for at, (query, text) in enumerate(inputs.queries, 1)
    ]
    with store.transaction():
        store.replace("queries", rows)
        store.set_meta("rewriter", how)
    if settings.rewriter is None:
        store.execute("UPDATE queries SET asked = text")
        return
    with _workshop(inputs) as shop:
        for query, _, text, asked in rows:
            if asked is None:
                found = _plain(shop.rewrite(settings.rewriter, text).text)
                store.execute("UPDATE queries SET asked = ? WHERE query = ?", (found, query))
            progress(1)


def retrieve(store: Store, settings: GoldenSettings, inputs: Inputs, progress: Progress) -> None:
    """The best passages of each query: by vectors, by words, and by engines of the user's."""
    corpus = inputs.corpus
    rows = store.rows("SELECT query, asked FROM queries ORDER BY position")
    questions = Texts([query for query, _ in rows], [text for _, text in rows])
    found: dict[str, Run] = {}
    depths = settings.depths
    with _workshop(inputs) as shop:
        if depths.dense:
            for texts in (shop.passages, questions):
                shop.vectors(settings.embedder, texts, progress)
            found["dense"] = shop.dense_list(
                settings.embedder, None, settings.index, questions, depths.dense
            )
        if depths.bm25:
            found["bm25"] = shop.sparse_list(settings.sparse, questions, depths.bm25)
        for name, chosen in settings.retrievers.items():
            found[name] = shop.engine_list(chosen, questions, depths.retrievers)
    lists = [row for name, run in found.items() for row in _ranked(name, run)]
    pooled = {row[2] for row in lists}
    passages = zip(corpus.document_ids, corpus.documents, corpus.sources, strict=True)
    with store.transaction():
        store.replace("retrieved", lists)
        store.replace("passages", ((d, _plain(t), s) for d, t, s in passages if d in pooled))


def merge(store: Store, settings: GoldenSettings) -> None:
    """RRF of the lists; of equal sums the document with the smaller id comes first."""
    from rankproof.records import read_run
    from rankproof.retrieval.fusion import rrf

    rows = store.rows("SELECT query, list, doc, score FROM retrieved ORDER BY query, list, rank")
    if not rows:
        raise InputError(
            "nothing was retrieved", place=str(store.path), remedy="check the queries and depths"
        )
    frame = pl.DataFrame(rows, ["query", "list", "doc", "score"], orient="row")
    runs = [
        read_run(part.select("query", "doc", "score"))
        for part in frame.partition_by("list", maintain_order=True)
    ]
    fused = (
        rrf(runs)
        .to_frame()
        .sort("query", "score", "doc", descending=[False, True, False])
        .with_columns(position=pl.int_range(1, pl.len() + 1).over("query"))
        .filter(pl.col("position") <= settings.depths.pool)
    )
    with store.transaction():
        store.replace("pool", fused.select("query", "doc", "position", "score").iter_rows())


def _ranked(name: str, run: Run) -> list[Row]:
    frame = run.to_frame().with_columns(
        rank=pl.col("score").rank("ordinal", descending=True).over("query")
    )
    rows: Sequence[Row] = frame.select("query", "doc", "rank", "score").rows()
    return [(query, name, doc, rank, score) for query, doc, rank, score in rows]


def _plain(text: str) -> str:
    """Text that UTF-8 can hold: JSON may bring lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
