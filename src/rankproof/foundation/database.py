"""SQLite files of ours, opened and complained of in one way.

A write-ahead log lets several processes read while one writes, and a killed writer loses nothing
that it had stored.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from rankproof.foundation.errors import InputError, disk_remedy
from rankproof.foundation.files import create_private

_WAIT_S = 60.0  # for another process that is writing


def connect(path: Path, write: bool = True) -> sqlite3.Connection:
    """A connection that any thread may use; each statement is its own transaction unless BEGIN says
    otherwise. Nothing is changed yet: whose file it is can be looked at first. For reading, a
    folder that cannot be written to will do."""
    mode = "rwc" if write else "ro"
    if write:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the folder ({error.strerror or error})",
                place=str(path.parent),
                remedy=disk_remedy("name another place", error),
            ) from None
        create_private(path)  # they hold passages, and what people and models said of them
    log = path.with_name(f"{path.name}-wal")
    logged = log.is_file() and log.stat().st_size > 0  # a killed writer's last rows
    if not write and not logged and not os.access(path.parent, os.W_OK):
        mode = "ro&immutable=1"  # a reader of a write-ahead log writes beside it, else
    return sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=_WAIT_S,
    )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def explain_database_errors(
    path: Path, what: str, remedy: str = "name another file"
) -> Iterator[None]:
    """What goes wrong with a file, in one line: `what` is what it should be, such as a cache."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        known = {
            "SQLITE_FULL": ("the disk is full", "make room and run again: what is there stays"),
            # SQLite calls only ENOSPC full; a quota or a largest file size is a failed write.
            **dict.fromkeys(
                ("SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE"),
                ("it could not be written", "make room and run again: what is there stays"),
            ),
            "SQLITE_IOERR": ("the disk failed", "see to it and run again: what is there stays"),
            "SQLITE_NOTADB": (f"this is not {what}", remedy),
            "SQLITE_CORRUPT": ("the file is damaged", f"take a copy, or {remedy}"),
            "SQLITE_READONLY": ("it cannot be written to", "copy it to where you may write"),
            "SQLITE_CANTOPEN": ("it cannot be opened", "check the path and its rights"),
            "SQLITE_BUSY": ("another program holds it", "close that one and run again"),
        }
        code = getattr(error, "sqlite_errorname", "") or ""
        found = next((said for name, said in known.items() if code.startswith(name)), None)
        if found is None:
            raise  # a mistake of ours, not of the user's
        raise InputError(found[0], place=str(path), remedy=found[1]) from None


def write_ahead(connection: sqlite3.Connection, synchronous: Literal["FULL", "NORMAL"]) -> None:
    """Change the file to a write-ahead log; FULL has what was stored survive a power cut too.

    Of two processes that do so at once SQLite refuses one, unwaited.
    """
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        if mode != "wal":
            raise sqlite3.OperationalError(f"no write-ahead log here, but {mode!r}")
        return
