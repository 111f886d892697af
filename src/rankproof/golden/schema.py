"""The tables of a golden set, and the way from each format of the file to the next.

Tables. Ids are text; `position` and `rank` count from 1; `at` is UTC, ISO 8601.

    meta         key, value (JSON): "config", "made", "judge", "done" (stage → digest), …
    queries      query, position, text as given, asked: what was searched (NULL: not yet)
    passages     doc, text, source: those that were retrieved for a query
    retrieved    query, list ("dense" or "bm25"), doc, rank, score
    pool         query, doc, position, rrf: the lists merged
    judges       id, digest, said (JSON): what decides a judge's word beside the texts it is shown
    replies      a row for each reply of a judge; see `Reply`
    answers      judge, pair → grade 1–5 (mean and sd where the judge said how sure) or failure:
                 what a judge says of a passage, whatever batch it stood in; see `pair`
    grades       query, doc, grade 1–5 or NULL with failure, reply (its id in replies)
    subset       query, doc, position: the passages whose order is judged
    orders       query, round, batch, reply: which replies the order rests on, in this order
    ranking      query, doc, rank, mean, sd, low, high (95% interval of the rank), top (P(in top))
    refined      query, reason it ended, calls, failed, overlap expected, locks (JSON: [above,
                 below, certainty], those that follow from others left out)
    offered      judge, pair: the passages that a finished order was to hold
    settled      query, key, reason: orders that are finished, by all that decides this, and why
    lists        list, digest, said (JSON), current: who fills the pools; and who did before, with
                 a ~ in its name, for the passages that it alone had brought in
    pairs        query, doc, pair: the pool's, as the judge is shown them
    posteriors   query, documents (JSON), covariance of their utilities (float64, upper triangle)
    corrections  what people said; see `Correction`
    assigned     who is to label which passage (query, doc), and its place in their queue
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rankproof.foundation.manifest import digest
from rankproof.foundation.version import __version__
from rankproof.golden.judgments import Row, cut, now, pair

if TYPE_CHECKING:
    from rankproof.golden.store import Store

_FIRST = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE queries (
    query TEXT PRIMARY KEY, position INTEGER NOT NULL, text TEXT NOT NULL, asked TEXT
) WITHOUT ROWID;
CREATE TABLE passages (doc TEXT PRIMARY KEY, text TEXT NOT NULL, source TEXT);
CREATE TABLE retrieved (
    query TEXT NOT NULL, list TEXT NOT NULL, doc TEXT NOT NULL, rank INTEGER NOT NULL,
    score REAL NOT NULL, PRIMARY KEY (query, list, doc)
) WITHOUT ROWID;
CREATE TABLE pool (
    query TEXT NOT NULL, doc TEXT NOT NULL, position INTEGER NOT NULL, rrf REAL NOT NULL,
    PRIMARY KEY (query, doc)
) WITHOUT ROWID;
CREATE TABLE replies (
    id INTEGER PRIMARY KEY,
    request TEXT NOT NULL,
    content TEXT NOT NULL,
    kind TEXT NOT NULL,
    query TEXT NOT NULL,
    documents TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    repeat INTEGER NOT NULL,
    prompt TEXT NOT NULL,
    model TEXT NOT NULL,
    parameters TEXT NOT NULL,
    text TEXT NOT NULL,
    result TEXT,
    failure TEXT,
    tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL,
    counted INTEGER NOT NULL,
    cost REAL,
    seconds REAL NOT NULL,
    tries INTEGER NOT NULL,
    at TEXT NOT NULL,
    retired INTEGER NOT NULL DEFAULT 0,
    CHECK ((result IS NULL) <> (failure IS NULL))
);
CREATE UNIQUE INDEX replies_request ON replies (request) WHERE retired = 0;
CREATE INDEX replies_repeat ON replies (query) WHERE repeat > 0;
CREATE TABLE grades (
    query TEXT NOT NULL, doc TEXT NOT NULL, grade INTEGER, failure TEXT, reply INTEGER NOT NULL,
    PRIMARY KEY (query, doc),
    CHECK ((grade IS NULL) <> (failure IS NULL)), CHECK (grade BETWEEN 1 AND 5)
) WITHOUT ROWID;
CREATE TABLE subset (
    query TEXT NOT NULL, doc TEXT NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (query, doc)
) WITHOUT ROWID;
CREATE TABLE orders (
    query TEXT NOT NULL, round INTEGER NOT NULL, batch INTEGER NOT NULL, reply INTEGER NOT NULL,
    PRIMARY KEY (query, round, batch)
) WITHOUT ROWID;
CREATE TABLE ranking (
    query TEXT NOT NULL, doc TEXT NOT NULL, rank INTEGER NOT NULL, mean REAL NOT NULL,
    sd REAL NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL, top REAL NOT NULL,
    PRIMARY KEY (query, doc)
) WITHOUT ROWID;
CREATE TABLE refined (
    query TEXT PRIMARY KEY, reason TEXT NOT NULL, calls INTEGER NOT NULL, failed INTEGER NOT NULL,
    overlap REAL NOT NULL, locks TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE corrections (
    id INTEGER PRIMARY KEY,
    query TEXT NOT NULL, doc TEXT NOT NULL,
    field TEXT NOT NULL CHECK (field IN ('grade', 'rank')),
    old INTEGER, new INTEGER,
    who TEXT NOT NULL, at TEXT NOT NULL, note TEXT,
    undoes INTEGER REFERENCES corrections (id)
);
"""

_BY_WHAT_DECIDES = """
CREATE TABLE judges (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, said TEXT NOT NULL);
ALTER TABLE replies ADD COLUMN judge INTEGER NOT NULL DEFAULT 0;
ALTER TABLE replies ADD COLUMN pairs TEXT NOT NULL DEFAULT '[]';
ALTER TABLE replies ADD COLUMN spread TEXT;
CREATE TABLE answers (
    judge INTEGER NOT NULL, pair TEXT NOT NULL, query TEXT NOT NULL, doc TEXT NOT NULL,
    grade INTEGER, mean REAL, sd REAL, failure TEXT, reply INTEGER NOT NULL,
    PRIMARY KEY (judge, pair),
    CHECK ((grade IS NULL) <> (failure IS NULL)), CHECK (grade BETWEEN 1 AND 5)
) WITHOUT ROWID;
CREATE TABLE offered (judge INTEGER NOT NULL, pair TEXT NOT NULL, PRIMARY KEY (judge, pair))
    WITHOUT ROWID;
CREATE TABLE settled (
    query TEXT NOT NULL, key TEXT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (query, key)
) WITHOUT ROWID;
CREATE TABLE pairs (
    query TEXT NOT NULL, doc TEXT NOT NULL, pair TEXT NOT NULL, PRIMARY KEY (query, doc)
) WITHOUT ROWID;
CREATE INDEX pairs_pair ON pairs (pair);
CREATE TABLE lists (
    list TEXT PRIMARY KEY, digest TEXT NOT NULL, said TEXT NOT NULL, current INTEGER NOT NULL
) WITHOUT ROWID;
ALTER TABLE corrections ADD COLUMN pair TEXT;
"""

_SEVERAL_PEOPLE = """
ALTER TABLE corrections ADD COLUMN sure INTEGER NOT NULL DEFAULT 1;
ALTER TABLE corrections ADD COLUMN settles INTEGER NOT NULL DEFAULT 0;
ALTER TABLE corrections ADD COLUMN above TEXT NOT NULL DEFAULT '[]';
ALTER TABLE corrections ADD COLUMN below TEXT NOT NULL DEFAULT '[]';
CREATE INDEX corrections_query ON corrections (query);
CREATE TABLE posteriors (
    query TEXT PRIMARY KEY, documents TEXT NOT NULL, covariance BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE assigned (
    who TEXT NOT NULL, query TEXT NOT NULL, doc TEXT NOT NULL, position INTEGER NOT NULL,
    PRIMARY KEY (who, query, doc)
) WITHOUT ROWID;
"""


def _first(store: Store) -> None:
    store.script(_FIRST)
    store.set_meta("made", {"at": now(), "rankproof": __version__})


def _by_what_decides(store: Store) -> None:
    """Batches no longer decide what is known: whatever was answered is known by its texts."""
    store.script(_BY_WHAT_DECIDES)
    said, config = store.meta("judge"), store.meta("config") or {}
    most = config.get("passage_chars")
    questions: dict[str, str] = dict(store.rows("SELECT query, text FROM queries"))
    texts: dict[str, str] = dict(store.rows("SELECT doc, text FROM passages"))
    for number, query, doc in store.rows("SELECT id, query, doc FROM corrections"):
        if query in questions and doc in texts:
            what = pair(questions[query], texts[doc])
            store.execute("UPDATE corrections SET pair = ? WHERE id = ?", (what, number))
    store.script("INSERT INTO lists SELECT DISTINCT list, '', 'null', 1 FROM retrieved")
    pooled = store.rows("SELECT query, doc FROM pool")
    store.replace(
        "pairs",
        (
            (query, doc, pair(questions[query], cut(texts[doc], most)))
            for query, doc in pooled
            if query in questions and doc in texts
        ),
    )
    if said is None:
        return
    known: dict[Row, int] = {}
    old = "id, kind, query, documents, prompt, parameters, content"
    for number, kind, query, documents, prompt, parameters, content in store.rows(
        f"SELECT {old} FROM replies ORDER BY id"
    ):
        settings = _deciding(said, json.loads(parameters))
        key = (kind, prompt, digest(settings))
        if key not in known:
            known[key] = store.judge(_as_said(said, kind, prompt, settings))
        asked = questions.get(query)
        shown = [texts.get(doc) for doc in json.loads(documents)]
        pairs = [
            "" if text is None or asked is None else pair(asked, cut(text, most)) for text in shown
        ]
        store.execute(
            "UPDATE replies SET judge = ?, pairs = ?, request = ? WHERE id = ?",
            (known[key], json.dumps(pairs), digest([content, said["model"], settings]), number),
        )
    for reply in store.replies("kind = 'grade' AND retired = 0"):
        store.answer(reply)
    settings = _deciding(said, said.get("parameters") or {})
    numbers = {
        kind: store.judge(_as_said(said, kind, prompt, settings))
        for kind, prompt in said.get("prompts", {}).items()
    }
    store.set_meta("judge", said | {"parameters": settings, "numbers": numbers})
    store.set_meta("carried", True)


def _as_said(
    judge: dict[str, Any], kind: str, prompt: str, parameters: dict[str, Any]
) -> dict[str, Any]:
    """The judge of a store of the first format, as `judges.standard` has it."""
    return {
        "kind": kind,
        "prompt": prompt,
        "model": judge.get("model"),
        "parameters": parameters,
        "simulated": bool(judge.get("simulated")),
        "name": judge.get("name"),
    }


def _deciding(judge: dict[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """How long a chat model's reply may be, and of what form, does not decide what it says."""
    left = ("max_tokens", "structured") if judge.get("type") == "llm" else ()
    return {name: value for name, value in parameters.items() if name not in left}


def _several_people(store: Store) -> None:
    """A move says which passages it puts another above and below, not only the rank it then had."""
    store.script(_SEVERAL_PEOPLE)
    orders: dict[str, list[str]] = {}
    for query, doc in store.rows("SELECT query, doc FROM ranking ORDER BY query, rank"):
        orders.setdefault(query, []).append(doc)
    for each in store.active_corrections():
        order = orders.get(each.query, [])
        if each.field == "rank" and each.new and each.doc in order:
            order.remove(each.doc)
            order.insert(each.new - 1, each.doc)
            sides = order[each.new :], order[: each.new - 1]
            store.execute(
                "UPDATE corrections SET above = ?, below = ? WHERE id = ?",
                (*(json.dumps(side, ensure_ascii=False) for side in sides), each.id),
            )


STEPS: tuple[Callable[[Store], None], ...] = (_first, _by_what_decides, _several_people)
"""From each format to the next, the first from nothing: `user_version` says how many were taken.

A step is never changed once it was released; add another.
"""
VERSION = len(STEPS)
