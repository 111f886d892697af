"""The SQLite tables of a golden set.

Ids are text; `position` and `rank` count from 1; `at` is UTC, ISO 8601. A `pair` is the digest of a
question and a passage's text (`judgments.pair_digest`).

    meta         key, value (JSON): "config", "made", "judge", "done" (stage → digest), …
    queries      query, position, text as given, asked: what was searched (NULL: not yet)
    passages     doc, text, source: those that were retrieved for a query
    retrieved    query, list ("dense" or "bm25"), doc, rank, score
    pool         query, doc, position, rrf: the lists merged
    judges       id, digest, said (JSON): all that decides a judge's replies except the texts
    replies      a row for each reply of a judge; see `Reply`
    answers      judge, pair → grade 1–5 (with mean and sd if the judge gave probabilities) or
                 failure, whichever batch the passage was in
    grades       query, doc, grade 1–5 or NULL with failure, reply (its id in replies)
    subset       query, doc, position: the passages whose order is judged
    orders       query, round, batch, reply: the replies that the ranking was computed from
    ranking      query, doc, rank, mean, sd, low, high (95% interval of the rank), top (P(in top))
    refined      query, reason it ended, calls, failed, overlap expected, locks (JSON: [above,
                 below, certainty], without those that follow from others)
    offered      judge, pair: the passages that a finished order was to hold
    settled      query, key, reason: finished orders, by a digest of all that decides this, and why
    lists        list, digest, said (JSON), current: the systems that fill the pools; earlier ones,
                 with ~ in their names, for the passages that they alone had found
    pairs        query, doc, pair: of the pooled passages, as judges are shown them
    posteriors   query, documents (JSON), covariance of their utilities (float64, upper triangle)
    corrections  what people said; see `Correction`
    assigned     who is to label which passage (query, doc), and its position in their queue
"""

from __future__ import annotations

VERSION = 3  # of the format, as SQLite's user_version
TABLES = """
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
    id INTEGER PRIMARY KEY, request TEXT NOT NULL, content TEXT NOT NULL, kind TEXT NOT NULL,
    query TEXT NOT NULL, documents TEXT NOT NULL, attempt INTEGER NOT NULL,
    repeat INTEGER NOT NULL, prompt TEXT NOT NULL, model TEXT NOT NULL, parameters TEXT NOT NULL,
    text TEXT NOT NULL, result TEXT, failure TEXT, tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL, counted INTEGER NOT NULL, cost REAL, seconds REAL NOT NULL,
    tries INTEGER NOT NULL, at TEXT NOT NULL, retired INTEGER NOT NULL DEFAULT 0,
    judge INTEGER NOT NULL DEFAULT 0, pairs TEXT NOT NULL DEFAULT '[]', spread TEXT,
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
    id INTEGER PRIMARY KEY, query TEXT NOT NULL, doc TEXT NOT NULL,
    field TEXT NOT NULL CHECK (field IN ('grade', 'rank')), old INTEGER, new INTEGER,
    who TEXT NOT NULL, at TEXT NOT NULL, note TEXT, undoes INTEGER REFERENCES corrections (id),
    pair TEXT, sure INTEGER NOT NULL DEFAULT 1, settles INTEGER NOT NULL DEFAULT 0,
    above TEXT NOT NULL DEFAULT '[]', below TEXT NOT NULL DEFAULT '[]'
);
CREATE TABLE judges (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, said TEXT NOT NULL);
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
CREATE INDEX corrections_query ON corrections (query);
CREATE TABLE posteriors (
    query TEXT PRIMARY KEY, documents TEXT NOT NULL, covariance BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE assigned (
    who TEXT NOT NULL, query TEXT NOT NULL, doc TEXT NOT NULL, position INTEGER NOT NULL,
    PRIMARY KEY (who, query, doc)
) WITHOUT ROWID;
"""
