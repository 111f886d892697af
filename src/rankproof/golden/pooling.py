"""Make the pools of a golden set: rewrite queries, retrieve by several systems, merge by RRF."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from rankproof.foundation.errors import InputError
from rankproof.foundation.manifest import digest, digest_file
from rankproof.foundation.printable import printable_path
from rankproof.foundation.progress import advance
from rankproof.foundation.redaction import redact
from rankproof.golden.annotators import Key
from rankproof.golden.judgments import Row, pair_digest, replace_surrogates, truncate
from rankproof.golden.settings import GoldenSettings
from rankproof.golden.store import Store, sql_list
from rankproof.retrieval.identity import identity, value_identity
from rankproof.retrieval.workshop import Texts, Workshop
from rankproof.statistics.resampling import first_of_permutation

if TYPE_CHECKING:
    from rankproof.data.beir import Corpus
    from rankproof.data.tables import Run
    from rankproof.tradeoffs.plan import Configuration, SweepSettings


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a golden set is made from."""

    corpus: Corpus
    queries: list[tuple[str, str]]  # id and text, those of the sample
    qrels: Path | None
    digests: dict[str, dict[str, str]]  # by role: file name and SHA-256


def read_inputs(settings: GoldenSettings, known_queries: Sequence[str] = ()) -> Inputs:
    """Read the texts that a configuration names; a sample keeps the known queries."""
    from rankproof.data.beir import read_corpus
    from rankproof.data.trec import check_trec_ids

    qrels = settings.human_labels
    if qrels is not None and not qrels.is_file():
        raise InputError("there is no such file", place=str(qrels), remedy="check qrels")
    # Without labels, a name suffices: read_corpus would require the file only if None were given.
    any_qrels = qrels or settings.corpus / "qrels" / "test.tsv"
    corpus = read_corpus(settings.corpus, any_qrels, settings.queries)
    files = dict(corpus.files)
    if settings.queries is not None:
        files["queries"] = settings.queries
    if qrels is not None:
        files["qrels"] = qrels
    query_ids = pl.Series(corpus.query_ids, dtype=pl.String)
    check_trec_ids(query_ids, pl.Series(corpus.document_ids, dtype=pl.String), corpus.label)
    queries = list(zip(corpus.query_ids, corpus.queries, strict=True))
    if settings.only_judged:
        queries = _judged_queries(queries, qrels)
    if settings.sample is not None and settings.sample < len(queries):
        queries = _sample_queries(queries, settings.sample, settings.seed, set(known_queries))
    digests = {
        role: {"file": file.name, "sha256": digest_file(file)} for role, file in files.items()
    }
    return Inputs(corpus, [(q, replace_surrogates(text)) for q, text in queries], qrels, digests)


def _judged_queries(queries: list[tuple[str, str]], qrels: Path | None) -> list[tuple[str, str]]:
    """The (id, text) pairs of queries that the qrels label; it is an error if there are none."""
    from rankproof.data import read_qrels

    if qrels is None:
        raise InputError("only_judged without qrels", remedy="name them under qrels")
    judged_ids = set(read_qrels(qrels).queries.to_list())
    judged = [(query, text) for query, text in queries if query in judged_ids]
    if not judged:
        raise InputError(
            "labels none of the queries", place=str(qrels), remedy="check that the ids are the same"
        )
    return judged


def _sample_queries(
    queries: list[tuple[str, str]], size: int, seed: int, known: set[str]
) -> list[tuple[str, str]]:
    """Return the known queries and then others drawn by seed, in the order of the file."""
    known_indexes = [index for index, (query, _) in enumerate(queries) if query in known]
    drawn = first_of_permutation(len(queries), size, seed).tolist()
    sample = list(dict.fromkeys([*known_indexes, *drawn]))[:size]
    return [queries[index] for index in sorted(sample)]


def _open_workshop(inputs: Inputs) -> Workshop:
    return Workshop(Texts(inputs.corpus.document_ids, inputs.corpus.documents))


def rewrite(store: Store, settings: GoldenSettings, inputs: Inputs) -> None:
    """Rewrite each query for search; stored one by one, since a chat model may be paid."""
    rewriter = identity(settings.rewriter)
    rewritten = {}
    if store.meta("rewriter", "none yet") == rewriter:
        rewritten = {
            (query, text): asked
            for query, text, asked in store.rows("SELECT query, text, asked FROM queries")
        }
    rows = [
        (query, position, text, rewritten.get((query, text)))
        for position, (query, text) in enumerate(inputs.queries, 1)
    ]
    with store.transaction():
        store.replace("queries", rows)
        store.set_meta("rewriter", rewriter)
    if settings.rewriter is None:
        store.execute("UPDATE queries SET asked = text")
        return
    with _open_workshop(inputs) as shop:
        rewrite_text = shop.rewrite_function(settings.rewriter)
        for query, _, text, asked in rows:
            if asked is None:
                new_text = replace_surrogates(rewrite_text(text).text)
                store.execute("UPDATE queries SET asked = ? WHERE query = ?", (new_text, query))
            advance()


def system_identities(settings: GoldenSettings) -> dict[str, Any]:
    """What decides the results of each system that fills the pools, by its list's name."""
    depths, pool = settings.depths, settings.pool
    index = identity(settings.index)
    systems: dict[str, Any] = {}
    if depths.dense:
        systems["dense"] = [identity(settings.embedder), index]
    if depths.bm25:
        systems["bm25"] = identity(settings.sparse)
    systems |= {name: identity(engine) for name, engine in settings.retrievers.items()}
    systems |= {name: [identity(embedder), index] for name, embedder in pool.embedders.items()}
    systems |= {name: identity(sparse) for name, sparse in pool.sparse.items()}
    systems |= {_run_name(run): digest_file(run) for run in pool.runs if run.is_file()}
    if pool.sweep is not None:
        sweep = _read_sweep(pool.sweep)
        systems |= {name: [value_identity(sweep), name] for name in _sweep_configurations(sweep)}
    return systems


def retrieve(store: Store, settings: GoldenSettings, inputs: Inputs) -> None:
    """Store the best passages of each query, by every system.

    Passages that only earlier lists brought into the pools stay recorded under those.
    """
    rows = store.rows("SELECT query, asked FROM queries ORDER BY position")
    questions = Texts([query for query, _ in rows], [text for _, text in rows])
    runs = _run_systems(settings, inputs, questions)
    lists = [row for name, run in runs.items() for row in _list_rows(name, run)]
    systems = system_identities(settings)
    earlier = _earlier_list_rows(store, systems, {row[:3] for row in lists})
    needed = {row[2] for row in (*lists, *earlier)} | {
        doc for (doc,) in store.rows("SELECT doc FROM answers UNION SELECT doc FROM corrections")
    }
    corpus = inputs.corpus
    passages = zip(corpus.document_ids, corpus.documents, corpus.sources, strict=True)
    passage_rows = [(d, replace_surrogates(t), s) for d, t, s in passages if d in needed]
    with store.transaction():
        store.replace("retrieved", [*lists, *earlier])
        store.replace("lists", _system_rows(store, systems, earlier))
        store.replace("passages", passage_rows)


def _run_systems(settings: GoldenSettings, inputs: Inputs, questions: Texts) -> dict[str, Run]:
    """Search by every system; the runs by their lists' names."""
    runs: dict[str, Run] = {}
    depths, pool = settings.depths, settings.pool
    with _open_workshop(inputs) as shop:

        def search_dense(embedder: Any) -> Run:
            for texts in (shop.passages, questions):
                shop.vectors(embedder, texts, advance)
            return shop.dense_list(embedder, None, settings.index, questions, depths.dense or 100)

        if depths.dense:
            runs["dense"] = search_dense(settings.embedder)
        if depths.bm25:
            runs["bm25"] = shop.sparse_list(settings.sparse, questions, depths.bm25)
        for name, engine in settings.retrievers.items():
            runs[name] = shop.engine_list(engine, questions, depths.retrievers)
        for name, embedder in pool.embedders.items():
            runs[name] = search_dense(embedder)
        for name, sparse in pool.sparse.items():
            runs[name] = shop.sparse_list(sparse, questions, depths.bm25 or 100)
        for path in pool.runs:
            runs[_run_name(path)] = _read_run_head(path, settings, inputs)
        if pool.sweep is not None:
            runs |= _run_sweep(shop, _read_sweep(pool.sweep), questions)
    return runs


def _earlier_list_rows(store: Store, systems: Mapping[str, Any], current: set[Row]) -> list[Row]:
    """Rows of lists that brought a passage into a pool and do not contain it any more.

    Such a list is named with ~ and a part of its identity's digest: a system that changed, or that
    searched another corpus, is never taken for the one of today.
    """
    digests: dict[str, str] = dict(store.rows("SELECT list, digest FROM lists"))
    rows = {}
    for query, name, doc, rank, score in store.rows(
        "SELECT query, list, doc, rank, score FROM retrieved JOIN pool USING (query, doc)"
    ):
        base = name.split("~")[0]
        is_unchanged = base in systems and digest(systems[base]) == digests.get(name)
        if is_unchanged and (query, base, doc) in current:
            continue
        earlier = f"{base}~{digests.get(name, '')[:6]}"
        rows[query, earlier, doc] = (query, earlier, doc, rank, score)
    return list(rows.values())


def _system_rows(
    store: Store, systems: Mapping[str, Any], earlier_rows: Sequence[Row]
) -> list[Row]:
    """Rows of `lists`: the systems of today, and those that earlier rows belong to."""
    stored = {
        f"{name.split('~')[0]}~{system_digest[:6]}": (system_digest, system)
        for name, system_digest, system in store.rows("SELECT list, digest, said FROM lists")
    }
    rows = [
        (name, digest(system), json.dumps(redact(system), default=str), 1)
        for name, system in systems.items()
    ]
    earlier_names = dict.fromkeys(row[1] for row in earlier_rows)
    return rows + [(name, *stored.get(name, ("", "null")), 0) for name in earlier_names]


def _read_run_head(path: Path, settings: GoldenSettings, inputs: Inputs) -> Run:
    """The best documents of a given run, restricted to the queries and passages of the inputs."""
    from rankproof.data import read_run
    from rankproof.retrieval.ranked_lists import keep_first

    if not path.is_file():
        raise InputError("there is no such run", place=str(path), remedy="check pool.runs")
    name = _run_name(path)
    frame = keep_first(read_run(path, name=name), settings.depths.runs).to_frame()
    has_query = pl.col("query").is_in([query for query, _ in inputs.queries])
    has_passage = pl.col("doc").is_in(inputs.corpus.document_ids)
    usable = frame.filter(has_query & has_passage)
    if usable.is_empty():
        raise InputError(
            "holds no passage of this corpus for these queries",
            place=str(path),
            remedy="give runs over the same corpus and queries",
        )
    return read_run(usable.select("query", "doc", "score"), name=name)


def _read_sweep(path: Path) -> SweepSettings:
    from rankproof.foundation.config import read_config
    from rankproof.tradeoffs.plan import SweepSettings

    return read_config(path, SweepSettings)


def _sweep_configurations(sweep: SweepSettings) -> dict[str, Configuration]:
    """The configurations of a sweep that rank differently, by names that a run may have."""
    from rankproof.tradeoffs.plan import configurations

    by_name = {}
    for configuration in configurations(sweep):
        ranking_name = configuration.name.split(" top ")[0].replace("K=", "")
        by_name[re.sub(r"[^\w.+-]", "-", ranking_name)] = configuration
    return by_name


def _run_sweep(shop: Workshop, sweep: SweepSettings, questions: Texts) -> dict[str, Run]:
    """What each configuration of a sweep returns for the questions."""
    from rankproof.tradeoffs.stack import Stack

    grid = _sweep_configurations(sweep)
    stack = Stack(shop, sweep, questions, list(grid.values()))
    stack.rerank()
    return {name: stack.ranked(configuration).final for name, configuration in grid.items()}


def _run_name(path: Path) -> str:
    return printable_path(path.name.split(".")[0])


def merge(store: Store, settings: GoldenSettings, judges: Iterable[int]) -> None:
    """Store the pools: the best passages by reciprocal rank fusion, ties by document id.

    What one of the `judges` or a person graded before stays in the pool, behind the best.
    """
    fused = _fuse_lists(store)
    best = fused.filter(pl.col("position") <= settings.depths.pool).rows()
    questions: dict[str, str] = dict(store.rows("SELECT query, text FROM queries"))
    texts: dict[str, str] = dict(store.rows("SELECT doc, text FROM passages"))
    max_chars = settings.passage_chars

    def shown_pair(query: str, doc: str) -> str:
        return pair_digest(questions[query], truncate(texts[doc], max_chars))

    labels = store.active_corrections()
    graded = {(c.query, c.doc) for c in labels if c.query in questions and c.doc in texts}
    for query, doc, pair in store.rows(
        f"SELECT query, doc, pair FROM answers WHERE grade NOT NULL AND judge IN {sql_list(judges)}"
    ):
        if query in questions and doc in texts and shown_pair(query, doc) == pair:
            graded.add((query, doc))
    rows = best + _rows_behind(best, fused, graded)
    pairs = [(query, doc, shown_pair(query, doc)) for query, doc, _, _ in rows]
    with store.transaction():
        store.replace("pool", rows)
        store.replace("pairs", pairs)


def _fuse_lists(store: Store) -> pl.DataFrame:
    """Columns query, doc, position, score of all current lists, fused by RRF."""
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
    lists = frame.partition_by("list", maintain_order=True)
    fused = rrf([read_run(one.select("query", "doc", "score")) for one in lists]).to_frame()
    return (
        fused.sort("query", "score", "doc", descending=[False, True, False])
        .with_columns(position=pl.int_range(1, pl.len() + 1).over("query"))
        .select("query", "doc", "position", "score")
    )


def _rows_behind(best: Sequence[Row], fused: pl.DataFrame, graded: set[Key]) -> list[Row]:
    """Rows of `pool` for graded passages that are not among the best, in the order of RRF."""
    missing = graded - {(query, doc) for query, doc, _, _ in best}
    if not missing:
        return []
    by_key = fused.rows_by_key(("query", "doc"), unique=True)
    unlisted = (math.inf, 0.0)
    last_position = Counter(query for query, _, _, _ in best)
    rows = []
    for query, _, score, doc in sorted((q, *by_key.get((q, d), unlisted), d) for q, d in missing):
        last_position[query] += 1
        rows.append((query, doc, last_position[query], score))
    return rows


def _list_rows(name: str, run: Run) -> list[Row]:
    """Rows of `retrieved` for one run."""
    rank = pl.col("score").rank("ordinal", descending=True).over("query")
    frame = run.to_frame().with_columns(rank=rank)
    rows: Sequence[Row] = frame.select("query", "doc", "rank", "score").rows()
    return [(query, name, doc, position, score) for query, doc, position, score in rows]
