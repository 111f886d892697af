"""A golden set in one SQLite file: every reply of the judge the moment it arrives, and all else.

A reply is paid for once. The table `replies` is the record and the cache: a request is known by its
digest, and one that is there is never sent again. What the other tables hold follows from it, so a
process that is killed at any instant leaves a store from which the same command goes on.

Tables (version 1). Ids are text; `position` and `rank` count from 1; `at` is UTC, ISO 8601.

    meta         key, value (JSON): "config", "made", "judge", "done" (stage → digest), …
    queries      query, position, text as given, asked: what was searched (NULL: not yet)
    passages     doc, text, source: those that were retrieved for a query
    retrieved    query, list ("dense" or "bm25"), doc, rank, score
    pool         query, doc, position, rrf: the lists merged
    replies      a row for each reply of the judge; see `Reply`
    grades       query, doc, grade 1–5 or NULL with failure, reply (its id in replies)
    subset       query, doc, position: the passages whose order is judged
    orders       query, round, batch, reply: which replies the order rests on, in this order
    ranking      query, doc, rank, mean, sd, low, high (95% interval of the rank), top (P(in top))
    refined      query, reason it ended, calls, failed, overlap expected, locks (JSON: [above,
                 below, certainty], those that follow from others left out)
    corrections  what people changed; see `Correction`

`corrections` only grows. A correction names a field (`grade`, or `rank`: the place to which a
passage is moved) with its old and new value, who and when; an undo is a row whose `undoes` is the
id of the row it takes back, and may itself be undone. `rankproof.golden.result` applies them.

SQLite's write-ahead log keeps every commit through a kill of the process; a power cut may lose
the last moments, never more.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from rankproof.database import connect, told, transaction, write_ahead
from rankproof.errors import InputError, shorten
from rankproof.locks import Lock
from rankproof.redaction import redact, without_secrets
from rankproof.version import __version__

VERSION = 1
_APPLICATION = 0x72706773  # "rpgs": what file(1) and we know a store by
LONGEST = 100_000  # characters of a reply; more is never an answer, and one more is kept

_SCHEMA = """
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

Kind = Literal["grade", "order"]
Field = Literal["grade", "rank"]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the judge answered to one request, and what that took."""

    request: str  # digest of the content, the judge's model and its parameters
    content: str  # digest of the exact messages, the schema, the attempt and the repeat
    kind: Kind
    query: str
    documents: tuple[str, ...]  # as labelled: A, B, C, …
    attempt: int  # 1, or 2 for the second asking after a reply that could not be used
    repeat: int  # 0; 1, 2, … where the judge is asked the same again, past what is stored
    prompt: str  # digest of the prompt file
    model: str
    parameters: dict[str, Any]
    text: str
    result: dict[str, int] | list[str] | None  # grade of each document, or documents best first
    failure: str | None  # why there is no result
    tokens_in: int
    tokens_out: int
    counted: bool  # by the server; else estimated
    cost: float | None  # US dollars; None where no price is known
    seconds: float
    tries: int  # requests it took until one was answered
    at: str = field(default_factory=lambda: now())
    id: int = 0  # given by the store


@dataclass(frozen=True, slots=True)
class Correction:
    """What a person changed. `undoes` names the correction that this one takes back."""

    id: int
    query: str
    doc: str
    field: Field
    old: int | None
    new: int | None  # None: as the judge has it
    who: str
    at: str
    note: str | None
    undoes: int | None


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Store:
    """An open golden set. One process writes, any number read; threads may share one."""

    def __init__(self, path: str | Path, *, write: bool = False, create: bool = False):
        self.path = Path(path)
        self.write = write or create
        self._mutex = threading.RLock()
        self._lock: Lock | None = None
        exists = self.path.is_file() and self.path.stat().st_size > 0
        if not exists and not create:
            there = self.path.exists()
            raise InputError(
                "this is not a golden set" if there else "there is no such golden set",
                place=str(self.path),
                remedy="make one with `rankproof golden build CONFIG`",
            )
        if self.write:
            self._lock = Lock(self.path)
        try:
            with self._told():
                self._db = connect(self.path, self.write)
                self._prepare()
        except BaseException:
            if self._lock is not None:
                self._lock.release()
            raise

    def close(self) -> None:
        try:
            with self._told():
                self._db.close()
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ------------------------------------------------------------------------------ any table

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of the block's writes, or none."""
        with self._mutex, self._told(), transaction(self._db):
            yield

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        with self._mutex, self._told():
            return self._db.execute(sql, parameters).fetchall()

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        with self._mutex, self._told():
            self._db.execute(sql, parameters)

    def replace(self, table: str, rows: Iterable[Row]) -> None:
        """The whole of a table, anew; inside a transaction."""
        with self._mutex, self._told():
            width = len(self._db.execute(f"SELECT * FROM {table} LIMIT 0").description)
            self._db.execute(f"DELETE FROM {table}")
            places = ", ".join("?" * width)
            self._db.executemany(f"INSERT INTO {table} VALUES ({places})", rows)

    def meta(self, key: str, default: Any = None) -> Any:
        found = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return json.loads(found[0][0]) if found else default

    def set_meta(self, key: str, value: Any) -> None:
        text = json.dumps(redact(value), ensure_ascii=False)
        self.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, text))

    # -------------------------------------------------------------------------------- replies

    def reply(self, request: str) -> Reply | None:
        """The reply to a request that was answered before."""
        found = self.rows(f"{_REPLIES} WHERE request = ? AND retired = 0", (request,))
        return _reply(found[0]) if found else None

    def replies(self, where: str = "retired = 0", parameters: Sequence[Any] = ()) -> list[Reply]:
        """Replies in the order in which they came."""
        return [
            _reply(row) for row in self.rows(f"{_REPLIES} WHERE {where} ORDER BY id", parameters)
        ]

    def add_reply(self, reply: Reply) -> int:
        """Keep a reply; when this returns it is committed. Its id."""
        text = without_secrets(
            reply.text[: LONGEST + 1]
        )  # too long here as well, when it is replayed
        result = None if reply.result is None else json.dumps(reply.result, ensure_ascii=False)
        with self._mutex, self._told():
            done = self._db.execute(
                f"INSERT INTO replies ({_COLUMNS}) VALUES ({_PLACES})",
                (
                    *(reply.request, reply.content, reply.kind, reply.query),
                    json.dumps(reply.documents, ensure_ascii=False),
                    *(reply.attempt, reply.repeat, reply.prompt, without_secrets(reply.model)),
                    json.dumps(reply.parameters, ensure_ascii=False, sort_keys=True),
                    *(_storable(text), result, redact(reply.failure)),
                    *(reply.tokens_in, reply.tokens_out),
                    *(int(reply.counted), reply.cost, reply.seconds, reply.tries, reply.at),
                ),
            )
            return int(done.lastrowid or 0)

    def failed_requests(self) -> int:
        """How many requests have no reply that could be used."""
        sql = f"SELECT COUNT(*) FROM (SELECT DISTINCT {_SAME} FROM replies WHERE {_UNUSABLE})"
        return int(self.rows(sql)[0][0])

    def retire_failed(self) -> int:
        """Forget, as answers, what could not be used in the end; it stays as a record.

        How many requests will be asked again.
        """
        with self.transaction():
            count = self.failed_requests()
            self.execute(f"UPDATE replies SET retired = id WHERE {_UNUSABLE}")
        return count

    def spent(self) -> float:
        """US dollars of every reply, where a price was known."""
        return float(self.rows("SELECT COALESCE(SUM(cost), 0) FROM replies")[0][0])

    # ---------------------------------------------------------------------------- corrections

    def corrections(self) -> list[Correction]:
        """Every one, oldest first, those undone included."""
        names = "id, query, doc, field, old, new, who, at, note, undoes"
        return [
            Correction(*row) for row in self.rows(f"SELECT {names} FROM corrections ORDER BY id")
        ]

    def active_corrections(self) -> list[Correction]:
        """Those that hold: neither undone nor an undo. An undo that is undone does not count."""
        undone: set[int] = set()
        holding = []
        for correction in reversed(self.corrections()):
            if correction.id in undone:
                continue
            if correction.undoes is not None:
                undone.add(correction.undoes)
            else:
                holding.append(correction)
        return holding[::-1]

    def correct(
        self, query: str, doc: str, field: Field, new: int, *, who: str, note: str | None = None
    ) -> int:
        """Add a correction; its id."""
        what = f"query {shorten(query)}, document {shorten(doc)}"
        if field == "grade" and new not in range(1, 6):
            raise InputError(f"grade {new} for {what}", remedy="give 1, 2, 3, 4 or 5")
        if not who.strip():
            raise InputError(f"nobody is named for {what}", remedy="say who corrects it")
        with self.transaction():
            table, column = ("pool", "1") if field == "grade" else ("ranking", "rank")
            found = self.rows(
                f"SELECT {column} FROM {table} WHERE query = ? AND doc = ?", (query, doc)
            )
            if not found:
                raise InputError(
                    f"{what} has no {field}",
                    place=str(self.path),
                    remedy="correct a passage that the golden set holds",
                )
            ((size,),) = self.rows("SELECT COUNT(*) FROM ranking WHERE query = ?", (query,))
            if field == "rank" and not 1 <= new <= size:
                raise InputError(f"rank {new} for {what}", remedy=f"give a rank from 1 to {size}")
            row = (query, doc, field, self._current(query, doc, field), new, who, now(), note, None)
            return self._correction(row)

    def undo(self, correction: int, *, who: str, note: str | None = None) -> int:
        """Take a correction (or an undo) back; the id of the row that does so."""
        with self.transaction():
            row = next((c for c in self.corrections() if c.id == correction), None)
            if row is None:
                raise InputError(
                    f"there is no correction {correction}",
                    place=str(self.path),
                    remedy="name one that is there",
                )
            taken = [c.undoes for c in self.corrections() if c.undoes is not None]
            if correction in taken:
                raise InputError(f"correction {correction} is undone already", place=str(self.path))
            old = self._current(row.query, row.doc, row.field)
            made = self._correction(
                (row.query, row.doc, row.field, old, None, who, now(), note, correction)
            )
            new = self._current(row.query, row.doc, row.field)
            self.execute("UPDATE corrections SET new = ? WHERE id = ?", (new, made))
            return made

    def _correction(self, row: Row) -> int:
        columns = "query, doc, field, old, new, who, at, note, undoes"
        places = ", ".join("?" * 9)
        done = self._db.execute(f"INSERT INTO corrections ({columns}) VALUES ({places})", row)
        return int(done.lastrowid or 0)

    def _current(self, query: str, doc: str, field: Field) -> int | None:
        """The value that holds: the judge's, with every active correction of the query applied."""
        active = [c for c in self.active_corrections() if (c.query, c.field) == (query, field)]
        if field == "rank":
            ranked = self.rows("SELECT doc FROM ranking WHERE query = ? ORDER BY rank", (query,))
            order = moved([name for (name,) in ranked], active)
            return order.index(doc) + 1 if doc in order else None
        held = [c.new for c in active if c.doc == doc]
        if held:
            return held[-1]
        found = self.rows("SELECT grade FROM grades WHERE query = ? AND doc = ?", (query, doc))
        return found[0][0] if found else None

    # -------------------------------------------------------------------------------- opening

    def _prepare(self) -> None:
        ((application,),) = self._db.execute("PRAGMA application_id").fetchall()
        ((version,),) = self._db.execute("PRAGMA user_version").fetchall()
        ((tables,),) = self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchall()
        fresh = application == 0 and tables == 0
        if not fresh and application != _APPLICATION:
            self._db.close()
            raise InputError(
                "this is not a golden set", place=str(self.path), remedy="name another file"
            )
        if version > VERSION:
            self._db.close()
            raise InputError(
                f"made by a newer rankproof (its format is {version}, this one reads {VERSION})",
                place=str(self.path),
                remedy="pip install -U rankproof",
            )
        if fresh and not self.write:
            self._db.close()
            raise InputError(
                "this golden set is empty", place=str(self.path), remedy="build it first"
            )
        if self.write:
            write_ahead(self._db, "NORMAL")
        if fresh:
            with self.transaction():
                for statement in _SCHEMA.split(";\n"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id = {_APPLICATION}")
                self._db.execute(f"PRAGMA user_version = {VERSION}")
                self.set_meta("made", {"at": now(), "rankproof": __version__})

    def _told(self) -> AbstractContextManager[None]:
        return told(self.path, "a golden set")


_FIELDS = (
    *("request", "content", "kind", "query", "documents", "attempt", "repeat", "prompt", "model"),
    *("parameters", "text", "result", "failure", "tokens_in", "tokens_out", "counted", "cost"),
    *("seconds", "tries", "at"),
)
_COLUMNS = ", ".join(_FIELDS)
_PLACES = ", ".join("?" * len(_FIELDS))
_REPLIES = f"SELECT {_COLUMNS}, id FROM replies"
_SAME = "kind, query, documents, repeat"  # of both attempts of a request
_UNUSABLE = (
    f"retired = 0 AND ({_SAME}) NOT IN "
    f"(SELECT {_SAME} FROM replies WHERE result IS NOT NULL AND retired = 0)"
)


def moved(order: Sequence[str], corrections: Iterable[Correction]) -> list[str]:
    """Documents by rank, after each move: a passage goes to its place, those between make room."""
    docs = list(order)
    for correction in corrections:
        if correction.field == "rank" and correction.new and correction.doc in docs:
            docs.remove(correction.doc)
            docs.insert(correction.new - 1, correction.doc)
    return docs


def _reply(row: Row) -> Reply:
    value = dict(zip((*_FIELDS, "id"), row, strict=True))
    return Reply(
        **value
        | {
            "documents": tuple(json.loads(value["documents"])),
            "parameters": json.loads(value["parameters"]),
            "result": None if value["result"] is None else json.loads(value["result"]),
            "counted": bool(value["counted"]),
        }
    )


def _storable(text: str) -> str:
    """Text without lone surrogates, which JSON can hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")
