"""A golden set in one SQLite file, in which every reply of a judge is stored as it arrives.

Replies cost money, so none is paid for twice. The table `replies` is both record and cache: a
request is known by its digest, and one that has a reply is never sent again. All other tables
follow from it, so that a process killed at any instant leaves a store from which the same command
resumes. A reply counts for whatever decides it (judge, question, passage texts), not for the batch
or round that asked for it: a set can grow, and only what is new is asked.

`corrections` only grows, too. A correction names a field (`grade`, or `rank` with the passages that
it was put above and below), its old and new value, who and when. An undo is a row whose `undoes` is
the id of the row it takes back, and may itself be undone. `annotators` computes grades from
corrections, `result` applies them.

SQLite's write-ahead log keeps every commit if the process is killed; after a power cut the last
moments may be missing, but nothing else.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankproof.foundation.database import connect, explain_database_errors, transaction, write_ahead
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.files import read_text
from rankproof.foundation.locks import Lock
from rankproof.foundation.manifest import digest
from rankproof.foundation.redaction import redact, remove_secrets
from rankproof.foundation.version import __version__
from rankproof.golden.judgments import (
    MAX_ATTEMPTS,
    MAX_REPLY_CHARS,
    NO_ANSWER_FAILURES,
    Correction,
    Field,
    Kind,
    Reply,
    Row,
    pair_digest,
    replace_surrogates,
    undone_ids,
    utc_now,
)

_TABLES = Path(__file__).parents[1] / "resources" / "golden.sql"
_VERSION = 3  # of the tables, stored as SQLite's user_version
_APPLICATION_ID = 0x72706773  # "rpgs", by which file(1) and we recognize a store


class ConcurrentChange(InputError):
    """Another correction of the same passage was stored since its author last looked."""


class NotBuilt(InputError):
    """A golden set that does not exist or is still empty."""


class Store:
    """An open golden set. One process writes, any number read; threads may share one.

    >>> from rankproof.golden.store import Store
    >>> with Store("try/corpus/simulated.golden") as store:
    ...     len(store.rows("SELECT query FROM queries"))
    44
    """

    def __init__(self, path: str | Path, *, write: bool = False, create: bool = False):
        """Open to read; with `write`, lock the file; with `create`, make it if it is absent."""
        self.path = Path(path)
        self.write = write or create
        self._mutex = threading.RLock()
        self._lock: Lock | None = None
        has_content = self.path.is_file() and self.path.stat().st_size > 0
        if not has_content and not create:
            exists = self.path.exists()
            raise NotBuilt(
                "this is not a golden set" if exists else "there is no such golden set",
                place=str(self.path),
                remedy="make one with `rankproof golden build CONFIG`",
            )
        if self.write:
            self._lock = Lock(self.path)
        try:
            with self._readable_errors():
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

    def _prepare(self) -> None:
        """Check that the file is a golden set of this format; make the tables of a new one."""
        ((application_id,),) = self._db.execute("PRAGMA application_id").fetchall()
        ((version,),) = self._db.execute("PRAGMA user_version").fetchall()
        ((tables,),) = self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchall()
        is_new = application_id == 0 and tables == 0
        if not is_new and application_id != _APPLICATION_ID:
            raise InputError(
                "this is not a golden set", place=str(self.path), remedy="name another file"
            )
        if not is_new and version != _VERSION:
            age, remedy = "newer", "pip install -U rankproof"
            if version < _VERSION:
                age, remedy = "older", "build it again"
            raise InputError(
                f"made by a {age} rankproof (its format is {version}, this one reads {_VERSION})",
                place=str(self.path),
                remedy=remedy,
            )
        if is_new and not self.write:
            raise NotBuilt(
                "this golden set is empty", place=str(self.path), remedy="build it first"
            )
        if self.write:
            write_ahead(self._db, "NORMAL")
        if is_new:
            with self.transaction():
                for statement in read_text(_TABLES).split(";\n"):
                    self._db.execute(statement)
                self.set_meta("made", {"at": utc_now(), "rankproof": __version__})
                self._db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                self._db.execute(f"PRAGMA user_version = {_VERSION}")

    def close(self) -> None:
        """Write everything into the main file, close it and release the lock."""
        try:
            with self._readable_errors():
                if self.write:
                    # SQLite does this only when the last connection closes. While a viewer is
                    # open, a copy or digest of the file would lack what was written since.
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

    def _readable_errors(self) -> AbstractContextManager[None]:
        """Turn SQLite's errors into one-line messages that name the file."""
        return explain_database_errors(self.path, "a golden set")

    # ------------------------------------------------------------------------------ any table

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all writes of the block, or none."""
        with self._mutex, self._readable_errors(), transaction(self._db):
            yield

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """All rows of a query."""
        with self._mutex, self._readable_errors():
            return self._db.execute(sql, parameters).fetchall()

    def number(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """The single number that a query returns; NULL is 0."""
        return int(self.rows(sql, parameters)[0][0] or 0)

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Run one statement."""
        with self._mutex, self._readable_errors():
            self._db.execute(sql, parameters)

    def execute_many(self, sql: str, rows: Iterable[Row]) -> None:
        """Run a statement for each row; inside a transaction."""
        with self._mutex, self._readable_errors():
            self._db.executemany(sql, rows)

    def replace(self, table: str, rows: Iterable[Row]) -> None:
        """Replace all rows of a table; inside a transaction."""
        with self._mutex, self._readable_errors():
            width = len(self._db.execute(f"SELECT * FROM {table} LIMIT 0").description)
            self._db.execute(f"DELETE FROM {table}")
            places = ", ".join("?" * width)
            self._db.executemany(f"INSERT INTO {table} VALUES ({places})", rows)

    def meta(self, key: str, default: Any = None) -> Any:
        """The JSON value of a key in `meta`."""
        rows = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return json.loads(rows[0][0]) if rows else default

    def set_meta(self, key: str, value: Any) -> None:
        """Store a JSON value in `meta`, without secrets."""
        text = json.dumps(redact(value), ensure_ascii=False)
        self.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, text))

    # -------------------------------------------------------------------------------- replies

    def reply(self, request: str) -> Reply | None:
        """The reply to the request with this digest, or None."""
        replies = self.replies("request = ? AND retired = 0", (request,))
        return replies[0] if replies else None

    def replies(self, where: str = "retired = 0", parameters: Sequence[Any] = ()) -> list[Reply]:
        """Replies that meet an SQL condition, in the order in which they came."""
        sql = f"SELECT {', '.join(_REPLY_COLUMNS)} FROM replies WHERE {where} ORDER BY id"
        return [_read_reply(row) for row in self.rows(sql, parameters)]

    def add_reply(self, reply: Reply) -> int:
        """Store a reply and return its id; it is committed when this returns."""
        # One character too many is kept, so that a replay finds the reply too long as well.
        text = remove_secrets(reply.text[: MAX_REPLY_CHARS + 1])
        row = {name: getattr(reply, name) for name in _REPLY_COLUMNS if name != "id"} | {
            "documents": _to_json(reply.documents),
            "model": remove_secrets(reply.model),
            "parameters": json.dumps(redact(reply.parameters), ensure_ascii=False, sort_keys=True),
            "text": replace_surrogates(text),
            "result": None if reply.result is None else _to_json(reply.result),
            "failure": redact(reply.failure),
            "counted": int(reply.counted),
            "pairs": json.dumps(reply.pairs),
            "spread": None if reply.spread is None else _to_json(reply.spread),
        }
        with self.transaction():
            reply_id = self._insert("replies", row)
            self._store_answers(replace(reply, id=reply_id))
        return reply_id

    def _store_answers(self, reply: Reply) -> None:
        """Store a reply's grades by judge and pair; a failure never replaces a grade."""
        if reply.kind != "grade" or reply.repeat or not reply.final:
            return
        grades = reply.result if isinstance(reply.result, dict) else {}
        failure, reply_id = redact(reply.failure), reply.id
        rows = []
        for doc, pair in zip(reply.documents, reply.pairs, strict=False):
            mean, sd = (reply.spread or {}).get(doc, (None, None))
            passage = (reply.judge, pair, reply.query, doc)
            rows.append((*passage, grades.get(doc), mean, sd, failure, reply_id))
        self._db.executemany(
            "INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "query = excluded.query, doc = excluded.doc, grade = excluded.grade, "
            "mean = excluded.mean, sd = excluded.sd, failure = excluded.failure, "
            "reply = excluded.reply WHERE excluded.grade NOT NULL OR answers.grade IS NULL",
            rows,
        )

    def judge_id(self, identity: dict[str, Any]) -> int:
        """The id of the judge with this `judges.judge_identity`; a new one is stored."""
        identity_digest = digest([identity[name] for name in _DECISIVE])
        sql, parameters = "SELECT id FROM judges WHERE digest = ?", (identity_digest,)
        with self._mutex:
            if not self.rows(sql, parameters):
                row = (identity_digest, _to_json(redact(identity)))
                self.execute("INSERT INTO judges (digest, said) VALUES (?, ?)", row)
            return self.number(sql, parameters)

    def judge_identities(self) -> dict[int, dict[str, Any]]:
        """Every judge that ever answered, by its id."""
        rows = self.rows("SELECT id, said FROM judges")
        return {number: json.loads(identity) for number, identity in rows}

    def current_judges(self, kind: Kind) -> list[int]:
        """Ids of the judges whose replies count: one, or those of a panel."""
        return [member["numbers"][kind] for member in self.panel_members() if "numbers" in member]

    def panel_members(self) -> list[dict[str, Any]]:
        """What `meta` holds of the judge, or of each judge of a panel; [{}] before the first."""
        judge = self.meta("judge") or {}
        return judge.get("members") or [judge]

    def count_failed_requests(self, judges: Sequence[int] | None = None) -> int:
        """Number of requests without a usable reply, of all judges or of these."""
        condition = _failed_condition(judges)
        distinct = f"SELECT DISTINCT {_REQUEST_COLUMNS} FROM replies WHERE {condition}"
        return self.number(f"SELECT COUNT(*) FROM ({distinct})")

    def retire_failed(self, judges: Sequence[int] | None = None) -> int:
        """Make failed requests be asked again, and return their number; the replies stay stored."""
        with self.transaction():
            count = self.count_failed_requests(judges)
            self.execute(f"UPDATE replies SET retired = id WHERE {_failed_condition(judges)}")
            retired = "FROM replies WHERE retired > 0"
            self.execute(f"DELETE FROM answers WHERE reply IN (SELECT id {retired})")
            self.execute(f"DELETE FROM settled WHERE query IN (SELECT query {retired})")
        return count

    def retire(self, reply_ids: Sequence[int]) -> None:
        """Make the requests of these replies be asked again; the replies stay stored."""
        ids = sql_list(reply_ids)
        with self.transaction():
            self.execute(f"UPDATE replies SET retired = id WHERE id IN {ids}")
            self.execute(f"DELETE FROM answers WHERE reply IN {ids}")

    def total_cost(self) -> float:
        """US dollars of all replies whose price is known."""
        return float(self.rows("SELECT COALESCE(SUM(cost), 0) FROM replies")[0][0])

    # ---------------------------------------------------------------------------- corrections

    def corrections(self, query: str | None = None) -> list[Correction]:
        """All corrections, or those of a query, oldest first; undone ones included."""
        condition, parameters = of_query(query)
        columns = ", ".join(_CORRECTION_COLUMNS)
        sql = f"SELECT {columns} FROM corrections WHERE {condition} ORDER BY id"
        return [_read_correction(row) for row in self.rows(sql, parameters)]

    def active_corrections(self, query: str | None = None) -> list[Correction]:
        """Corrections that count: not undone, not an undo, and made upon today's texts."""
        corrections = self.corrections(query)
        inactive = undone_ids(corrections) | {c.id for c in self.outdated_corrections(query)}
        return [c for c in corrections if c.undoes is None and c.id not in inactive]

    def outdated_corrections(self, query: str | None = None) -> list[Correction]:
        """Corrections of a question or a passage whose text has changed since."""
        condition, parameters = of_query(query)
        current_pairs = {
            correction_id: pair_digest(question, text)
            for correction_id, question, text in self.rows(
                "SELECT corrections.id, queries.text, passages.text FROM corrections "
                "JOIN queries USING (query) JOIN passages USING (doc) "
                f"WHERE pair NOT NULL AND {condition}",
                parameters,
            )
        }
        return [c for c in self.corrections(query) if current_pairs.get(c.id, c.pair) != c.pair]

    def add_correction(
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
        """Check and store a correction; return its id. A move says what it is above and below.

        `seen` is the id of the last correction by this author that they saw, 0 for none: if there
        is a newer one, `ConcurrentChange` is raised and nothing is stored.
        """
        passage = f"query {shorten(query)}, document {shorten(doc)}"
        is_label = new in range(1, 6) or (new is None and (note or not sure))
        if field == "grade" and not is_label:
            raise InputError(f"grade {new} for {passage}", remedy="give 1, 2, 3, 4 or 5")
        if field == "rank" and not (above or below):
            raise InputError(f"{passage} is put above and below nothing", remedy="name another")
        if not who.strip():
            raise InputError(f"nobody is named for {passage}", remedy="say who corrects it")
        with self.transaction():
            if not self.rows("SELECT 1 FROM pool WHERE query = ? AND doc = ?", (query, doc)):
                raise InputError(
                    f"{passage} is in no pool",
                    place=str(self.path),
                    remedy="correct a passage that the golden set holds",
                )
            earlier = self._own_corrections(query, doc, field, who=who, settles=settles)
            if seen is not None:
                _check_last(earlier, seen, passage)
            values = {"who": who, "note": note, "sure": sure, "settles": settles}
            if field == "grade":
                old = self._last_grade(query, doc, earlier)
            else:
                values |= {"above": _to_json(above), "below": _to_json(below)}
            return self.insert_correction(query, doc, field, old=old, new=new, **values)

    def undo(self, correction_id: int, *, who: str, note: str | None = None) -> int:
        """Take back one's own correction or undo; return the id of the row that does so."""
        with self.transaction():
            query_rows = self.rows("SELECT query FROM corrections WHERE id = ?", (correction_id,))
            corrections = self.corrections(query_rows[0][0]) if query_rows else []
            target = next((c for c in corrections if c.id == correction_id), None)
            if target is None:
                raise InputError(
                    f"there is no correction {correction_id}",
                    place=str(self.path),
                    remedy="name one that is there",
                )
            if target.who != who:
                raise InputError(
                    f"correction {correction_id} was made by {shorten(target.who)}",
                    place=str(self.path),
                    remedy="undo your own; say another thing yourself",
                )
            if correction_id in undone_ids(corrections):
                raise InputError(
                    f"correction {correction_id} is undone already", place=str(self.path)
                )
            values = {"who": who, "note": note, "undoes": correction_id}
            values |= {"sure": target.sure, "settles": target.settles}
            query, doc, field = target.query, target.doc, target.field
            if field == "rank":
                old, new = target.new, target.old
                return self.insert_correction(query, doc, field, old=old, new=new, **values)

            def last_grade() -> int | None:
                earlier = self._own_corrections(query, doc, field, who=who, settles=target.settles)
                return self._last_grade(query, doc, earlier)

            undo_id = self.insert_correction(
                query, doc, field, old=last_grade(), new=None, **values
            )
            sql = "UPDATE corrections SET new = ? WHERE id = ?"
            self.execute(sql, (last_grade(), undo_id))  # the grade that the undo restores
            return undo_id

    def _own_corrections(
        self, query: str, doc: str, field: Field, *, who: str, settles: bool
    ) -> list[Correction]:
        """A person's active corrections of a passage, or of a query's order.

        Corrections that settle a disagreement are those of everybody who settles.
        """
        return [
            c
            for c in self.active_corrections(query)
            if c.field == field
            and (field == "rank" or c.doc == doc)
            and c.settles == settles
            and (settles or c.who == who)
        ]

    def _last_grade(self, query: str, doc: str, corrections: Sequence[Correction]) -> int | None:
        """The grade in the last of these corrections, or the judge's if there is none."""
        if corrections:
            return corrections[-1].new
        sql = "SELECT grade FROM grades WHERE query = ? AND doc = ?"
        rows = self.rows(sql, (query, doc))
        return rows[0][0] if rows else None

    def insert_correction(
        self,
        query: str,
        doc: str,
        field: Field,
        *,
        old: int | None,
        new: int | None,
        **values: Any,
    ) -> int:
        """Store a correction that was checked before, and return its id; inside a transaction."""
        row = {"query": query, "doc": doc, "field": field, "old": old, "new": new}
        row |= {"at": utc_now(), "pair": self.current_pair(query, doc)} | values
        return self._insert("corrections", row)

    def current_pair(self, query: str, doc: str) -> str | None:
        """The pair of a question and a passage with its whole text, as people see it."""
        rows = self.rows(
            "SELECT queries.text, passages.text FROM queries, passages WHERE query = ? AND doc = ?",
            (query, doc),
        )
        return pair_digest(*rows[0]) if rows else None

    def _insert(self, table: str, row: Mapping[str, Any]) -> int:
        columns, places = ", ".join(row), ", ".join("?" * len(row))
        sql = f"INSERT INTO {table} ({columns}) VALUES ({places})"
        return int(self._db.execute(sql, list(row.values())).lastrowid or 0)


@contextmanager
def open_if_built(path: Path) -> Iterator[Store | None]:
    """Open a golden set to read it; None if it is not built yet."""
    try:
        store = Store(path)
    except NotBuilt:
        yield None
        return
    with store:
        yield store


_CORRECTION_COLUMNS = (
    *("id", "query", "doc", "field", "old", "new", "who", "at", "note", "undoes", "pair"),
    *("sure", "settles", "above", "below"),
)
_DECISIVE = ("kind", "prompt", "model", "parameters", "simulated")  # of a judge's identity
_REPLY_COLUMNS = (
    *("request", "content", "kind", "query", "documents", "attempt", "repeat", "prompt", "model"),
    *("parameters", "text", "result", "failure", "tokens_in", "tokens_out", "counted", "cost"),
    *("seconds", "tries", "at", "judge", "pairs", "spread", "id"),
)
_REQUEST_COLUMNS = "judge, kind, query, documents, repeat"  # the same for both attempts
FINAL_FAILURE = (  # SQL condition: a failed reply whose request is not asked again
    f"result IS NULL AND (attempt >= {MAX_ATTEMPTS} OR "
    + " OR ".join(f"failure LIKE '{word}%'" for word in NO_ANSWER_FAILURES)
    + ")"
)


def _failed_condition(judges: Sequence[int] | None) -> str:
    """SQL condition: replies to requests that have no usable reply."""
    by_judges = "" if judges is None else f"judge IN {sql_list(judges)} AND "
    # If a batch was asked in parts, each of its passages has an answer of its own.
    failed_answer = "id IN (SELECT reply FROM answers WHERE grade IS NULL)"
    return (
        f"retired = 0 AND {by_judges}({_REQUEST_COLUMNS}) NOT IN "
        f"(SELECT {_REQUEST_COLUMNS} FROM replies WHERE result IS NOT NULL AND retired = 0) "
        "AND (kind = 'order' OR repeat > 0 OR "
        f"({_REQUEST_COLUMNS}) IN (SELECT {_REQUEST_COLUMNS} FROM replies WHERE {failed_answer}))"
    )


def of_query(query: str | None, column: str = "query") -> tuple[str, tuple[str, ...]]:
    """SQL condition for one query or, if None, for all; and its parameters."""
    return ("TRUE", ()) if query is None else (f"{column} = ?", (query,))


def sql_list(ids: Iterable[int]) -> str:
    """Ids as a list in SQL: (1, 2, 3)."""
    return f"({', '.join(map(str, ids))})"


def _check_last(corrections: Sequence[Correction], seen: int, passage: str) -> None:
    """Raise `ConcurrentChange` unless `seen` is the id of the last correction, 0 for none."""
    last = corrections[-1] if corrections else None
    if seen != (last.id if last else 0):
        change = f"{last.who}, {last.at[:16]}: {last.new}" if last else "an undo"
        raise ConcurrentChange(
            f"{passage} was changed elsewhere meanwhile ({change})",
            remedy="look again and repeat it if you still want to",
        )


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _read_correction(row: Row) -> Correction:
    """Read a row with `_CORRECTION_COLUMNS`."""
    values = dict(zip(_CORRECTION_COLUMNS, row, strict=True))
    values |= {name: bool(values[name]) for name in ("sure", "settles")}
    values |= {name: tuple(json.loads(values[name])) for name in ("above", "below")}
    return Correction(**values)


def _read_reply(row: Row) -> Reply:
    """Read a row with `_REPLY_COLUMNS`."""
    values = dict(zip(_REPLY_COLUMNS, row, strict=True))
    values["counted"] = bool(values["counted"])
    values["parameters"] = json.loads(values["parameters"])
    values |= {name: tuple(json.loads(values[name])) for name in ("documents", "pairs")}
    if values["result"] is not None:
        values["result"] = json.loads(values["result"])
    if values["spread"] is not None:
        spread = json.loads(values["spread"])
        values["spread"] = {doc: (mean, sd) for doc, (mean, sd) in spread.items()}
    return Reply(**values)
