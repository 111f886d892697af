-- The tables of a golden set in SQLite. Ids are text; `position` and `rank` count from 1; `at` is
-- UTC in ISO 8601. A `pair` is the digest of a question and a passage (judgments.pair_digest).

CREATE TABLE meta (  -- "config", "made", "judge", "done" (stage → digest), …
    key TEXT PRIMARY KEY, value TEXT NOT NULL  -- JSON
) WITHOUT ROWID;

CREATE TABLE queries (
    query TEXT PRIMARY KEY, position INTEGER NOT NULL, text TEXT NOT NULL,
    asked TEXT  -- what was searched; NULL: not rewritten yet
) WITHOUT ROWID;

-- Passages that were retrieved for a query.
CREATE TABLE passages (doc TEXT PRIMARY KEY, text TEXT NOT NULL, source TEXT);

CREATE TABLE retrieved (
    query TEXT NOT NULL, list TEXT NOT NULL, doc TEXT NOT NULL, rank INTEGER NOT NULL,
    score REAL NOT NULL, PRIMARY KEY (query, list, doc)
) WITHOUT ROWID;

-- The systems that fill the pools; earlier ones, with ~ in their names, for the passages that they
-- alone retrieved.
CREATE TABLE lists (
    list TEXT PRIMARY KEY, digest TEXT NOT NULL, said TEXT NOT NULL,  -- its identity as JSON
    current INTEGER NOT NULL
) WITHOUT ROWID;

-- The lists merged.
CREATE TABLE pool (
    query TEXT NOT NULL, doc TEXT NOT NULL, position INTEGER NOT NULL, rrf REAL NOT NULL,
    PRIMARY KEY (query, doc)
) WITHOUT ROWID;

-- The pair of each pooled passage, as judges are shown it.
CREATE TABLE pairs (
    query TEXT NOT NULL, doc TEXT NOT NULL, pair TEXT NOT NULL, PRIMARY KEY (query, doc)
) WITHOUT ROWID;
CREATE INDEX pairs_pair ON pairs (pair);

CREATE TABLE judges (
    id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE,
    said TEXT NOT NULL  -- all that decides a judge's replies except the texts, as JSON
);

-- A row for each reply of a judge (judgments.Reply).
CREATE TABLE replies (
    id INTEGER PRIMARY KEY, request TEXT NOT NULL, content TEXT NOT NULL, kind TEXT NOT NULL,
    query TEXT NOT NULL, documents TEXT NOT NULL, attempt INTEGER NOT NULL,
    repeat INTEGER NOT NULL, prompt TEXT NOT NULL, model TEXT NOT NULL, parameters TEXT NOT NULL,
    text TEXT NOT NULL, result TEXT, failure TEXT, tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL, counted INTEGER NOT NULL, cost REAL, seconds REAL NOT NULL,
    tries INTEGER NOT NULL, at TEXT NOT NULL,
    retired INTEGER NOT NULL DEFAULT 0,  -- its id, once its request is to be asked again
    judge INTEGER NOT NULL DEFAULT 0, pairs TEXT NOT NULL DEFAULT '[]', spread TEXT,
    CHECK ((result IS NULL) <> (failure IS NULL))
);
CREATE UNIQUE INDEX replies_request ON replies (request) WHERE retired = 0;
CREATE INDEX replies_repeat ON replies (query) WHERE repeat > 0;

-- What a judge said of a pair, whichever batch the passage was in.
CREATE TABLE answers (
    judge INTEGER NOT NULL, pair TEXT NOT NULL, query TEXT NOT NULL, doc TEXT NOT NULL,
    grade INTEGER, mean REAL, sd REAL,  -- mean and sd if the judge gave probabilities
    failure TEXT, reply INTEGER NOT NULL,
    PRIMARY KEY (judge, pair),
    CHECK ((grade IS NULL) <> (failure IS NULL)), CHECK (grade BETWEEN 1 AND 5)
) WITHOUT ROWID;

-- The grade of each passage by the judge, or by all judges of a panel together.
CREATE TABLE grades (
    query TEXT NOT NULL, doc TEXT NOT NULL, grade INTEGER, failure TEXT, reply INTEGER NOT NULL,
    PRIMARY KEY (query, doc),
    CHECK ((grade IS NULL) <> (failure IS NULL)), CHECK (grade BETWEEN 1 AND 5)
) WITHOUT ROWID;

-- The passages whose order is judged.
CREATE TABLE subset (
    query TEXT NOT NULL, doc TEXT NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (query, doc)
) WITHOUT ROWID;

-- The replies that the ranking was computed from.
CREATE TABLE orders (
    query TEXT NOT NULL, round INTEGER NOT NULL, batch INTEGER NOT NULL, reply INTEGER NOT NULL,
    PRIMARY KEY (query, round, batch)
) WITHOUT ROWID;

CREATE TABLE ranking (
    query TEXT NOT NULL, doc TEXT NOT NULL, rank INTEGER NOT NULL, mean REAL NOT NULL,
    sd REAL NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL,  -- 95% interval of the rank
    top REAL NOT NULL,  -- P(in the top)
    PRIMARY KEY (query, doc)
) WITHOUT ROWID;

-- How the ranking of each query ended.
CREATE TABLE refined (
    query TEXT PRIMARY KEY, reason TEXT NOT NULL, calls INTEGER NOT NULL, failed INTEGER NOT NULL,
    overlap REAL NOT NULL,  -- expected
    locks TEXT NOT NULL  -- [[above, below, certainty], …] without those that follow from others
) WITHOUT ROWID;

CREATE TABLE posteriors (
    query TEXT PRIMARY KEY, documents TEXT NOT NULL,  -- a JSON list
    covariance BLOB NOT NULL  -- of their utilities: float64, upper triangle
) WITHOUT ROWID;

-- The pairs that a finished order was to hold.
CREATE TABLE offered (judge INTEGER NOT NULL, pair TEXT NOT NULL, PRIMARY KEY (judge, pair))
    WITHOUT ROWID;

-- Finished orders, by a digest of all that decides this, and why they are finished.
CREATE TABLE settled (
    query TEXT NOT NULL, key TEXT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (query, key)
) WITHOUT ROWID;

-- What people said (judgments.Correction).
CREATE TABLE corrections (
    id INTEGER PRIMARY KEY, query TEXT NOT NULL, doc TEXT NOT NULL,
    field TEXT NOT NULL CHECK (field IN ('grade', 'rank')), old INTEGER, new INTEGER,
    who TEXT NOT NULL, at TEXT NOT NULL, note TEXT, undoes INTEGER REFERENCES corrections (id),
    pair TEXT, sure INTEGER NOT NULL DEFAULT 1, settles INTEGER NOT NULL DEFAULT 0,
    above TEXT NOT NULL DEFAULT '[]', below TEXT NOT NULL DEFAULT '[]'
);
CREATE INDEX corrections_query ON corrections (query);

-- Who is to label which passage, and its position in their queue.
CREATE TABLE assigned (
    who TEXT NOT NULL, query TEXT NOT NULL, doc TEXT NOT NULL, position INTEGER NOT NULL,
    PRIMARY KEY (who, query, doc)
) WITHOUT ROWID;
