"""A golden set in one SQLite file: every reply of the judge the moment it arrives, and all else.

A reply is paid for once. The table `replies` is the record and the cache: a request is known by its
digest, and one that is there is never sent again. What the other tables hold follows from it, so a
process that is killed at any instant leaves a store from which the same command goes on.

A reply is kept by what decides it (the judge, the question, the passages' texts), never by the
batch or the round that asked: so a set grows, and only what is new is asked.

`corrections` only grows. A correction names a field (`grade`, or `rank`: the place that a passage
was given, with those it was put above and below) with its old and new value, who and when; an undo
is a row whose `undoes` is the id of the row it takes back, and may itself be undone. A person's
label of a passage is the last row of theirs that holds. `rankproof.golden.annotators` says what
follows from them all, `rankproof.golden.result` applies it.

SQLite's write-ahead log keeps every commit through a kill of the process; a power cut may lose
the last moments, never more.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankproof.foundation.database import connect, explain_database_errors, transaction, write_ahead
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.locks import Lock
from rankproof.foundation.manifest import digest
from rankproof.foundation.redaction import redact, remove_secrets
from rankproof.golden.judgments import (
    ATTEMPTS,
    LONGEST,
    UNHEARD,
    Correction,
    Field,
    Kind,
    Reply,
    Row,
    now,
    pair,
    storable,
    undone,
)
from rankproof.golden.schema import STEPS, VERSION

_APPLICATION = 0x72706773  # "rpgs": what file(1) and we know a store by


class Meanwhile(InputError):
    """Somebody, or oneself elsewhere, has said something since one last looked."""


class NotBuilt(InputError):
    """A golden set that does not exist, or holds nothing: its making was stopped at once."""


class Store:
    """An open golden set. One process writes, any number read; threads may share one.

    >>> from rankproof.golden.store import Store
    >>> with Store("try/corpus/simulated.golden") as store:
    ...     len(store.rows("SELECT query FROM queries"))
    44
    """

    def __init__(self, path: str | Path, *, write: bool = False, create: bool = False):
        self.path = Path(path)
        self.write = write or create
        self._mutex = threading.RLock()
        self._lock: Lock | None = None
        exists = self.path.is_file() and self.path.stat().st_size > 0
        if not exists and not create:
            there = self.path.exists()
            raise NotBuilt(
                "this is not a golden set" if there else "there is no such golden set",
                place=str(self.path),
                remedy="make one with `rankproof golden build CONFIG`",
            )
        if self.write:
            self._lock = Lock(self.path)
        try:
            with self._told():
                self._db = connect(self.path, self.write)
                try:
                    self._prepare()
                except BaseException:
                    self._db.close()
                    raise
        except BaseException:
            if self._lock is not None:
                self._lock.release()
            raise

    def close(self) -> None:
        try:
            with self._told():
                if self.write:
                    # SQLite does so for the last to close alone: while a viewer is open, whoever
                    # copies or digests the file would have it without what was written since.
                    with suppress(sqlite3.Error):
                        self._db.execute("PRAGMA wal_checkpoint")
                self._db.close()
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
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

    def execute_many(self, sql: str, rows: Iterable[Row]) -> None:
        """One statement for each row; inside a transaction."""
        with self._mutex, self._told():
            self._db.executemany(sql, rows)

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
        text = remove_secrets(
            reply.text[: LONGEST + 1]
        )  # too long here as well, when it is replayed
        result = None if reply.result is None else json.dumps(reply.result, ensure_ascii=False)
        spread = None if reply.spread is None else json.dumps(reply.spread, ensure_ascii=False)
        with self.transaction():
            done = self._db.execute(
                f"INSERT INTO replies ({_COLUMNS}) VALUES ({_PLACES})",
                (
                    *(reply.request, reply.content, reply.kind, reply.query),
                    json.dumps(reply.documents, ensure_ascii=False),
                    *(reply.attempt, reply.repeat, reply.prompt, remove_secrets(reply.model)),
                    json.dumps(redact(reply.parameters), ensure_ascii=False, sort_keys=True),
                    *(storable(text), result, redact(reply.failure)),
                    *(reply.tokens_in, reply.tokens_out),
                    *(int(reply.counted), reply.cost, reply.seconds, reply.tries, reply.at),
                    *(reply.judge, json.dumps(reply.pairs), spread),
                ),
            )
            number = int(done.lastrowid or 0)
            self.answer(replace(reply, id=number))
        return number

    def answer(self, reply: Reply) -> None:
        """A grade is found by what decides it; a failure never takes the place of one."""
        if reply.kind != "grade" or reply.repeat or not reply.final:
            return
        graded = reply.result if isinstance(reply.result, dict) else {}
        sure = reply.spread or {}
        self._db.executemany(
            "INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "query = excluded.query, doc = excluded.doc, grade = excluded.grade, "
            "mean = excluded.mean, sd = excluded.sd, failure = excluded.failure, "
            "reply = excluded.reply WHERE excluded.grade NOT NULL OR answers.grade IS NULL",
            [
                (
                    *(reply.judge, what, reply.query, doc, graded.get(doc)),
                    *sure.get(doc, (None, None)),
                    *(redact(reply.failure), reply.id),
                )
                for doc, what in zip(reply.documents, reply.pairs, strict=False)
                if what  # of an old store's reply a text may not be known any more
            ],
        )

    def judge(self, said: dict[str, Any]) -> int:
        """The number of a judge, by all that decides its word beside the texts that it is shown."""
        known = digest([said[name] for name in _DECIDES])
        with self._mutex:
            found = self.rows("SELECT id FROM judges WHERE digest = ?", (known,))
            if not found:
                text = json.dumps(redact(said), ensure_ascii=False)
                self.execute("INSERT INTO judges (digest, said) VALUES (?, ?)", (known, text))
                found = self.rows("SELECT id FROM judges WHERE digest = ?", (known,))
        return int(found[0][0])

    def in_force(self, kind: Kind) -> list[int]:
        """The numbers of the judges whose word counts: one, or a panel's."""
        said = self.meta("judge") or {}
        every = said.get("members") or [said]
        return [each["numbers"][kind] for each in every if "numbers" in each]

    def failed_requests(self, judges: Sequence[int] | None = None) -> int:
        """How many requests have no reply that could be used: of all judges, or of some."""
        where = _unusable(judges)
        sql = f"SELECT COUNT(*) FROM (SELECT DISTINCT {_SAME} FROM replies WHERE {where})"
        return int(self.rows(sql)[0][0])

    def retire_failed(self, judges: Sequence[int] | None = None) -> int:
        """Forget, as answers, what could not be used in the end; it stays as a record.

        How many requests will be asked again.
        """
        with self.transaction():
            count = self.failed_requests(judges)
            self.execute(f"UPDATE replies SET retired = id WHERE {_unusable(judges)}")
            gone = "FROM replies WHERE retired > 0"
            self.execute(f"DELETE FROM answers WHERE reply IN (SELECT id {gone})")
            self.execute(f"DELETE FROM settled WHERE query IN (SELECT query {gone})")
        return count

    def retire(self, replies: Sequence[int]) -> None:
        """Forget some replies as answers; they stay as a record."""
        which = ", ".join(map(str, replies))
        with self.transaction():
            self.execute(f"UPDATE replies SET retired = id WHERE id IN ({which})")
            self.execute(f"DELETE FROM answers WHERE reply IN ({which})")

    def spent(self) -> float:
        """US dollars of every reply, where a price was known."""
        return float(self.rows("SELECT COALESCE(SUM(cost), 0) FROM replies")[0][0])

    # ---------------------------------------------------------------------------- corrections

    def corrections(self, query: str | None = None) -> list[Correction]:
        """Every one, or those of a query, oldest first; those undone included."""
        one, given = ("", ()) if query is None else ("WHERE query = ?", (query,))
        sql = f"SELECT {_SAID} FROM corrections {one} ORDER BY id"
        return [_said(row) for row in self.rows(sql, given)]

    def active_corrections(self, query: str | None = None) -> list[Correction]:
        """Those that hold: neither undone nor an undo. An undo that is undone does not count, nor
        what was said of a question or a passage that has another text now."""
        every = self.corrections(query)
        gone = undone(every) | {correction.id for correction in self.outdated_corrections(query)}
        return [c for c in every if c.undoes is None and c.id not in gone]

    def outdated_corrections(self, query: str | None = None) -> list[Correction]:
        """Those of a question or a passage that was edited since."""
        one, given = ("TRUE", ()) if query is None else ("query = ?", (query,))
        now_there = {
            number: pair(question, text)
            for number, question, text in self.rows(
                "SELECT corrections.id, queries.text, passages.text FROM corrections "
                "JOIN queries USING (query) JOIN passages USING (doc) "
                f"WHERE pair NOT NULL AND {one}",
                given,
            )
        }
        return [c for c in self.corrections(query) if now_there.get(c.id, c.pair) != c.pair]

    def correct(
        self,
        query: str,
        doc: str,
        field: Field,
        new: int | None,
        *,
        who: str,
        note: str | None = None,
        sure: bool = True,
        settles: bool = False,
        above: Sequence[str] = (),
        below: Sequence[str] = (),
        old: int | None = None,
        seen: int | None = None,
    ) -> int:
        """Add a correction; its id. A move says what it puts the passage above and below.

        `seen` is the id of the last such row that its author knew of, 0 for none: where another
        has come since, nothing is written.
        """
        what = f"query {shorten(query)}, document {shorten(doc)}"
        graded = new in range(1, 6) or (new is None and (note or not sure))
        if field == "grade" and not graded:
            raise InputError(f"grade {new} for {what}", remedy="give 1, 2, 3, 4 or 5")
        if field == "rank" and not (above or below):
            raise InputError(f"{what} is put above and below nothing", remedy="name another")
        if not who.strip():
            raise InputError(f"nobody is named for {what}", remedy="say who corrects it")
        with self.transaction():
            if not self.rows("SELECT 1 FROM pool WHERE query = ? AND doc = ?", (query, doc)):
                raise InputError(
                    f"{what} is in no pool",
                    place=str(self.path),
                    remedy="correct a passage that the golden set holds",
                )
            mine = self._own(query, doc, field, who, settles)
            last = mine[-1] if mine else None
            if seen is not None and seen != (last.id if last else 0):
                said = "an undo" if last is None else f"{last.who}, {last.at[:16]}: {last.new}"
                raise Meanwhile(
                    f"{what} was changed elsewhere meanwhile ({said})",
                    remedy="look again and repeat it if you still want to",
                )
            if field == "grade":
                old = self._grade(query, doc, mine)
            row = (query, doc, field, old, new, who, now(), note, None)
            return self._correction((*row, sure, settles, _list(above), _list(below)))

    def add_label(
        self,
        query: str,
        doc: str,
        old: int | None,
        new: int | None,
        who: str,
        note: str | None,
        sure: bool,
        settles: bool = False,
    ) -> int:
        """A label that was checked before; inside a transaction."""
        row = (query, doc, "grade", old, new, who, now(), note, None, sure, settles, "[]", "[]")
        return self._correction(row)

    def undo(self, correction: int, *, who: str, note: str | None = None) -> int:
        """Take one's own correction (or undo) back; the id of the row that does so."""
        with self.transaction():
            of = self.rows("SELECT query FROM corrections WHERE id = ?", (correction,))
            every = self.corrections(of[0][0]) if of else []
            row = next((c for c in every if c.id == correction), None)
            if row is None:
                raise InputError(
                    f"there is no correction {correction}",
                    place=str(self.path),
                    remedy="name one that is there",
                )
            if row.who != who:
                raise InputError(
                    f"correction {correction} was made by {shorten(row.who)}",
                    place=str(self.path),
                    remedy="undo your own; say another thing yourself",
                )
            if correction in undone(every):
                raise InputError(f"correction {correction} is undone already", place=str(self.path))
            what = (row.query, row.doc, row.field)
            old, new = row.new, row.old
            if row.field == "grade":
                old = self._grade(row.query, row.doc, self._own(*what, who, row.settles))
            made = self._correction(
                (*what, old, new, who, now(), note, correction, row.sure, row.settles, "[]", "[]")
            )
            if row.field == "grade":
                new = self._grade(row.query, row.doc, self._own(*what, who, row.settles))
                self.execute("UPDATE corrections SET new = ? WHERE id = ?", (new, made))
            return made

    def _own(self, query: str, doc: str, field: Field, who: str, settles: bool) -> list[Correction]:
        """What one said of a passage, or of a query's order; of who settles, all who do."""
        return [
            c
            for c in self.active_corrections(query)
            if c.field == field
            and (field == "rank" or c.doc == doc)
            and c.settles == settles
            and (settles or c.who == who)
        ]

    def _grade(self, query: str, doc: str, said: Sequence[Correction]) -> int | None:
        """The last grade said, else the judge's."""
        judged = "SELECT grade FROM grades WHERE query = ? AND doc = ?"
        found = [(said[-1].new,)] if said else self.rows(judged, (query, doc))
        return found[0][0] if found else None

    def _correction(self, row: Row) -> int:
        columns = _SAID.removeprefix("id, ")
        row = (*row[:9], self.pair_of(row[0], row[1]), *row[9:])
        places = ", ".join("?" * len(row))
        done = self._db.execute(f"INSERT INTO corrections ({columns}) VALUES ({places})", row)
        return int(done.lastrowid or 0)

    def pair_of(self, query: str, doc: str) -> str | None:
        """The pair of a question and a passage with the whole of its text, as people see it."""
        found = self.rows(
            "SELECT queries.text, passages.text FROM queries, passages WHERE query = ? AND doc = ?",
            (query, doc),
        )
        return pair(*found[0]) if found else None

    # -------------------------------------------------------------------------------- opening

    def _prepare(self) -> None:
        ((application,),) = self._db.execute("PRAGMA application_id").fetchall()
        ((version,),) = self._db.execute("PRAGMA user_version").fetchall()
        ((tables,),) = self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchall()
        fresh = application == 0 and tables == 0
        if not fresh and application != _APPLICATION:
            raise InputError(
                "this is not a golden set", place=str(self.path), remedy="name another file"
            )
        if version > VERSION:
            raise InputError(
                f"made by a newer rankproof (its format is {version}, this one reads {VERSION})",
                place=str(self.path),
                remedy="pip install -U rankproof",
            )
        if fresh and not self.write:
            raise NotBuilt(
                "this golden set is empty", place=str(self.path), remedy="build it first"
            )
        if self.write:
            write_ahead(self._db, "NORMAL")
        if fresh or version < VERSION:
            self._carry()

    def _carry(self) -> None:
        """Take the steps from the format of a store to today's: all of them, or none.

        Who only reads carries the file over too, so that what is written later is seen; where that
        cannot be, a copy in memory is.
        """
        lent: Lock | None = None
        if not self.write:
            self._db.close()
            try:
                lent = Lock(self.path)
                self._db = connect(self.path)
                write_ahead(self._db, "NORMAL")
            except (InputError, sqlite3.OperationalError):  # another writes, or nobody may
                self._db.close()
                self._db = sqlite3.connect(
                    ":memory:", isolation_level=None, check_same_thread=False
                )
                with closing(connect(self.path, write=False)) as file:
                    file.backup(self._db)
        try:
            with self.transaction():
                ((version,),) = self.rows("PRAGMA user_version")  # another may have been faster
                for step in STEPS[version:]:
                    step(self)
                self._db.execute(f"PRAGMA application_id = {_APPLICATION}")
                self._db.execute(f"PRAGMA user_version = {VERSION}")
        finally:
            if lent is not None:
                lent.release()

    def script(self, statements: str) -> None:
        """Several statements, inside a transaction."""
        for statement in statements.split(";\n"):
            self._db.execute(statement)

    def _told(self) -> AbstractContextManager[None]:
        return explain_database_errors(self.path, "a golden set")


@contextmanager
def opened_if_built(path: Path) -> Iterator[Store | None]:
    """Open a golden set to read it; None where it is not built yet."""
    try:
        store = Store(path)
    except NotBuilt:
        yield None
        return
    with store:
        yield store


_SAID = "id, query, doc, field, old, new, who, at, note, undoes, pair, sure, settles, above, below"
_DECIDES = ("kind", "prompt", "model", "parameters", "simulated")
_FIELDS = (
    *("request", "content", "kind", "query", "documents", "attempt", "repeat", "prompt", "model"),
    *("parameters", "text", "result", "failure", "tokens_in", "tokens_out", "counted", "cost"),
    *("seconds", "tries", "at", "judge", "pairs", "spread"),
)
_COLUMNS = ", ".join(_FIELDS)
_PLACES = ", ".join("?" * len(_FIELDS))
_REPLIES = f"SELECT {_COLUMNS}, id FROM replies"
_SAME = "judge, kind, query, documents, repeat"  # of both attempts of a request
LAST = (  # SQL: a reply that is the last word, and a failure
    f"result IS NULL AND (attempt >= {ATTEMPTS} OR "
    + " OR ".join(f"failure LIKE '{word}%'" for word in UNHEARD)
    + ")"
)


def _unusable(judges: Sequence[int] | None) -> str:
    """SQL: replies to requests that have none which could be used."""
    of = "" if judges is None else f"judge IN ({', '.join(map(str, judges))}) AND "
    # Of a batch that was asked in parts each passage has an answer of its own.
    last = "id IN (SELECT reply FROM answers WHERE grade IS NULL)"
    return (
        f"retired = 0 AND {of}({_SAME}) NOT IN "
        f"(SELECT {_SAME} FROM replies WHERE result IS NOT NULL AND retired = 0) "
        "AND (kind = 'order' OR repeat > 0 OR "
        f"({_SAME}) IN (SELECT {_SAME} FROM replies WHERE {last}))"
    )


def _list(names: Iterable[str]) -> str:
    return json.dumps(list(names), ensure_ascii=False)


def _names(text: str) -> tuple[str, ...]:
    return () if text == "[]" else tuple(json.loads(text))


def _said(row: Row) -> Correction:
    value = dict(zip(_SAID.split(", "), row, strict=True))
    value |= {name: bool(value[name]) for name in ("sure", "settles")}
    return Correction(**value | {name: _names(value[name]) for name in ("above", "below")})


def _reply(row: Row) -> Reply:
    value = dict(zip((*_FIELDS, "id"), row, strict=True))
    return Reply(
        **value
        | {
            "documents": tuple(json.loads(value["documents"])),
            "parameters": json.loads(value["parameters"]),
            "result": None if value["result"] is None else json.loads(value["result"]),
            "counted": bool(value["counted"]),
            "pairs": tuple(json.loads(value["pairs"])),
            "spread": _spread(value["spread"]),
        }
    )


def _spread(text: str | None) -> dict[str, tuple[float, float]] | None:
    return None if text is None else {d: (mean, sd) for d, (mean, sd) in json.loads(text).items()}
