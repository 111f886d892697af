"""Queries → pools: rewritten, searched by meaning and by words, merged."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from rankproof.foundation.errors import InputError
from rankproof.foundation.manifest import digest, digest_file
from rankproof.foundation.printable import printable_path
from rankproof.foundation.redaction import redact
from rankproof.golden.judgments import Row, cut, pair, storable
from rankproof.golden.settings import GoldenSettings
from rankproof.golden.store import Store
from rankproof.retrieval.identity import identity, value_identity
from rankproof.retrieval.workshop import Texts, Workshop
from rankproof.statistics.resampling import first_of_permutation

if TYPE_CHECKING:
    from rankproof.data.beir import Corpus
    from rankproof.data.tables import Run
    from rankproof.tradeoffs.plan import Configuration, SweepSettings

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a golden set is made from."""

    corpus: Corpus
    queries: list[tuple[str, str]]  # id and text, those of the sample
    qrels: Path | None
    digests: dict[str, dict[str, str]]  # by role: file name and SHA-256


def read_inputs(settings: GoldenSettings, held: Sequence[str] = ()) -> Inputs:
    """The texts that a configuration names; a sample keeps the queries that are `held` already."""
    from rankproof.data.beir import read_corpus
    from rankproof.data.trec import check_trec_ids

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
    queries = pl.Series(corpus.query_ids, dtype=pl.String)
    check_trec_ids(queries, pl.Series(corpus.document_ids, dtype=pl.String), corpus.label)
    asked = list(zip(corpus.query_ids, corpus.queries, strict=True))
    if settings.only_judged:
        asked = _judged(asked, qrels)
    if settings.sample is not None and settings.sample < len(asked):
        drawn = first_of_permutation(len(asked), settings.sample, settings.seed).tolist()
        known = set(held)
        stays = [at for at, (query, _) in enumerate(asked) if query in known]
        chosen = [*stays, *(at for at in drawn if at not in set(stays))][: settings.sample]
        asked = [asked[at] for at in sorted(chosen)]
    digests = {
        role: {"file": file.name, "sha256": digest_file(file)} for role, file in files.items()
    }
    return Inputs(corpus, [(q, storable(t)) for q, t in asked], qrels, digests)


def _judged(asked: list[tuple[str, str]], qrels: Path | None) -> list[tuple[str, str]]:
    from rankproof.data import read_qrels

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
        rewrite = shop.rewriting(settings.rewriter)
        for query, _, text, asked in rows:
            if asked is None:
                found = storable(rewrite(text).text)
                store.execute("UPDATE queries SET asked = ? WHERE query = ?", (found, query))
            progress(1)


def makers(settings: GoldenSettings) -> dict[str, Any]:
    """Who fills the pools: each list by its name, with what decides it."""
    depths, pool = settings.depths, settings.pool
    found: dict[str, Any] = {}
    index = identity(settings.index)
    if depths.dense:
        found["dense"] = [identity(settings.embedder), index]
    if depths.bm25:
        found["bm25"] = identity(settings.sparse)
    found |= {name: identity(chosen) for name, chosen in settings.retrievers.items()}
    found |= {name: [identity(chosen), index] for name, chosen in pool.embedders.items()}
    found |= {name: identity(chosen) for name, chosen in pool.sparse.items()}
    found |= {_system(run): digest_file(run) for run in pool.runs if run.is_file()}
    if pool.sweep is not None:
        sweep = _sweep(pool.sweep)
        found |= {name: [value_identity(sweep), name] for name in _swept(sweep)}
    return found


def retrieve(store: Store, settings: GoldenSettings, inputs: Inputs, progress: Progress) -> None:
    """The best passages of each query: by vectors, by words, by engines and runs of the user's.

    What earlier lists alone had brought into the pools stays on record as theirs.
    """
    corpus = inputs.corpus
    rows = store.rows("SELECT query, asked FROM queries ORDER BY position")
    questions = Texts([query for query, _ in rows], [text for _, text in rows])
    found: dict[str, Run] = {}
    depths, more = settings.depths, settings.pool
    with _workshop(inputs) as shop:

        def dense(embedder: Any) -> Run:
            for texts in (shop.passages, questions):
                shop.vectors(embedder, texts, progress)
            return shop.dense_list(embedder, None, settings.index, questions, depths.dense or 100)

        if depths.dense:
            found["dense"] = dense(settings.embedder)
        if depths.bm25:
            found["bm25"] = shop.sparse_list(settings.sparse, questions, depths.bm25)
        for name, chosen in settings.retrievers.items():
            found[name] = shop.engine_list(chosen, questions, depths.retrievers)
        found |= {name: dense(embedder) for name, embedder in more.embedders.items()}
        for name, chosen in more.sparse.items():
            found[name] = shop.sparse_list(chosen, questions, depths.bm25 or 100)
        found |= {_system(run): _given(run, settings, inputs) for run in more.runs}
        if more.sweep is not None:
            found |= _by_sweep(shop, _sweep(more.sweep), questions)
    lists = [row for name, run in found.items() for row in _ranked(name, run)]
    kept = _earlier(store, makers(settings), {row[:3] for row in lists})
    needed = {row[2] for row in (*lists, *kept)} | {
        doc for (doc,) in store.rows("SELECT doc FROM answers UNION SELECT doc FROM corrections")
    }
    passages = zip(corpus.document_ids, corpus.documents, corpus.sources, strict=True)
    with store.transaction():
        store.replace("retrieved", [*lists, *kept])
        store.replace("lists", _named(store, makers(settings), kept))
        store.replace("passages", ((d, storable(t), s) for d, t, s in passages if d in needed))


def _earlier(store: Store, current: dict[str, Any], found: set[Row]) -> list[Row]:
    """Rows of lists that put a passage into a pool and do not hold it any more.

    They go under the list's name with ~ and a part of what decided it, so that a list which
    changed, or the same list on another corpus, never looks like the one of today.
    """
    known: dict[str, str] = dict(store.rows("SELECT list, digest FROM lists"))
    rows = store.rows(
        "SELECT query, list, doc, rank, score FROM retrieved JOIN pool USING (query, doc)"
    )
    kept = {}
    for query, name, doc, rank, score in rows:
        base = name.split("~")[0]
        same = base in current and digest(current[base]) == known.get(name)
        if same and (query, base, doc) in found:
            continue
        earlier = f"{base}~{known.get(name, '')[:6]}"
        kept[query, earlier, doc] = (query, earlier, doc, rank, score)
    return list(kept.values())


def _named(store: Store, current: dict[str, Any], kept: Sequence[Row]) -> list[Row]:
    """The lists of the store: today's, and those of which something is kept."""
    before = {
        f"{name.split('~')[0]}~{held[:6]}": (held, said)
        for name, held, said in store.rows("SELECT list, digest, said FROM lists")
    }
    rows = [
        (name, digest(said), json.dumps(redact(said), default=str), 1)
        for name, said in current.items()
    ]
    earlier = dict.fromkeys(row[1] for row in kept)
    return [*rows, *((name, *before.get(name, ("", "null")), 0) for name in earlier)]


def _given(path: Path, settings: GoldenSettings, inputs: Inputs) -> Run:
    """The head of a run: of the queries and passages that are there."""
    from rankproof.data import read_run
    from rankproof.retrieval.ranked_lists import keep_first

    if not path.is_file():
        raise InputError("there is no such run", place=str(path), remedy="check pool.runs")
    frame = keep_first(read_run(path, name=_system(path)), settings.depths.runs).to_frame()
    here = pl.col("query").is_in([q for q, _ in inputs.queries])
    there = pl.col("doc").is_in(inputs.corpus.document_ids)
    kept = frame.filter(here & there)
    if kept.is_empty():
        raise InputError(
            "holds no passage of this corpus for these queries",
            place=str(path),
            remedy="give runs over the same corpus and queries",
        )
    return read_run(kept.select("query", "doc", "score"), name=_system(path))


def _sweep(path: Path) -> SweepSettings:
    from rankproof.foundation.config import read_config
    from rankproof.tradeoffs.plan import SweepSettings

    return read_config(path, SweepSettings)


def _swept(sweep: SweepSettings) -> dict[str, Configuration]:
    """The configurations that rank differently, by names that a run may have."""
    from rankproof.tradeoffs.plan import configurations

    return {
        re.sub(r"[^\w.+-]", "-", c.name.split(" top ")[0].replace("K=", "")): c
        for c in configurations(sweep)
    }


def _by_sweep(shop: Workshop, sweep: SweepSettings, questions: Texts) -> dict[str, Run]:
    """What each configuration of a sweep returns for the questions."""
    from rankproof.tradeoffs.stack import Stack

    grid = _swept(sweep)
    stack = Stack(shop, sweep, questions, list(grid.values()))
    stack.rerank()
    return {name: stack.ranked(c).final for name, c in grid.items()}


def _system(run: Path) -> str:
    return printable_path(run.name.split(".")[0])


def merge(store: Store, settings: GoldenSettings, judges: Iterable[int]) -> None:
    """RRF of the lists; of equal sums the document with the smaller id comes first.

    Beside the best, what one of the `judges` or a person graded before stays in the pool.
    """
    from rankproof.data import read_run
    from rankproof.retrieval.fusion import rrf

    rows = store.rows(
        "SELECT query, list, doc, score FROM retrieved JOIN lists USING (list) WHERE current "
        "ORDER BY query, list, rank"
    )
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
    )
    best = fused.filter(pl.col("position") <= settings.depths.pool)
    names = ("query", "doc", "position", "score")
    rows = best.select(names).rows()
    questions: dict[str, str] = dict(store.rows("SELECT query, text FROM queries"))
    texts: dict[str, str] = dict(store.rows("SELECT doc, text FROM passages"))
    most = settings.passage_chars
    stays = _judged_before(store, judges, questions, texts, most)
    stays -= {(query, doc) for query, doc, _, _ in rows}
    if stays:  # behind the best, in their own order
        late = fused.select(names).rows_by_key(("query", "doc"), unique=True)
        after = sorted((q, *late.get((q, d), (math.inf, 0.0)), d) for q, d in stays)
        place = Counter(query for query, _, _, _ in rows)
        for query, _, score, doc in after:
            place[query] += 1
            rows.append((query, doc, place[query], score))
    pairs = [(q, d, pair(questions[q], cut(texts[d], most))) for q, d, _, _ in rows]
    with store.transaction():
        store.replace("pool", rows)
        store.replace("pairs", pairs)


def _judged_before(
    store: Store,
    judges: Iterable[int],
    questions: dict[str, str],
    texts: dict[str, str],
    most: int | None,
) -> set[tuple[str, str]]:
    """(query, doc) of what was graded with the texts of today."""
    who = ", ".join(map(str, judges))
    said = store.rows(
        f"SELECT query, doc, pair FROM answers WHERE grade NOT NULL AND judge IN ({who})"
    )
    found = {
        (query, doc)
        for query, doc, held in said
        if query in questions
        and doc in texts
        and pair(questions[query], cut(texts[doc], most)) == held
    }
    people = {(c.query, c.doc) for c in store.active_corrections()}
    return found | {(query, doc) for query, doc in people if query in questions and doc in texts}


def _ranked(name: str, run: Run) -> list[Row]:
    frame = run.to_frame().with_columns(
        rank=pl.col("score").rank("ordinal", descending=True).over("query")
    )
    rows: Sequence[Row] = frame.select("query", "doc", "rank", "score").rows()
    return [(query, name, doc, rank, score) for query, doc, rank, score in rows]
