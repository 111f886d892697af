"""Open SQLite files of rankproof's own, and explain what goes wrong with them.

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

_BUSY_TIMEOUT = 60.0  # seconds to wait for another process that writes


def connect(path: Path, write: bool = True) -> sqlite3.Connection:
    """Open a connection that any thread may use, in autocommit mode.

    Nothing is changed yet, so that the caller can first check whose file it is. A file to read may
    lie in a folder without permission to write.
    """
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
        create_private(path)  # these files hold passages and what annotators wrote about them
    log = path.with_name(f"{path.name}-wal")
    has_log = log.is_file() and log.stat().st_size > 0  # the last rows of a killed writer
    if not write and not has_log and not os.access(path.parent, os.W_OK):
        mode = "ro&immutable=1"  # otherwise even a reader writes files beside the database
    return sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=_BUSY_TIMEOUT,
    )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit everything the block does, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


_WRITE_FAILED = ("it could not be written", "make room and run again: what is there stays")
# SQLite calls only ENOSPC "full"; a quota or a limit on file size is a failed write.
_PROBLEMS = {  # beginning of SQLite's error name → problem and remedy
    "SQLITE_FULL": ("the disk is full", "make room and run again: what is there stays"),
    "SQLITE_IOERR_WRITE": _WRITE_FAILED,
    "SQLITE_IOERR_SHMSIZE": _WRITE_FAILED,
    "SQLITE_IOERR": ("the disk failed", "see to it and run again: what is there stays"),
    "SQLITE_NOTADB": ("this is not {kind}", "{remedy}"),
    "SQLITE_CORRUPT": ("the file is damaged", "take a copy, or {remedy}"),
    "SQLITE_READONLY": ("it cannot be written to", "copy it to where you may write"),
    "SQLITE_CANTOPEN": ("it cannot be opened", "check the path and its rights"),
    "SQLITE_BUSY": ("another program holds it", "close that one and run again"),
}


@contextmanager
def explain_database_errors(
    path: Path, kind: str, remedy: str = "name another file"
) -> Iterator[None]:
    """Turn SQLite's errors about a file into an InputError; `kind` is what it should be."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorname", "") or ""
        name = next((name for name in _PROBLEMS if code.startswith(name)), None)
        if name is None:
            raise  # a mistake in our SQL, not in the user's file
        problem, advice = _PROBLEMS[name]
        raise InputError(
            problem.format(kind=kind), place=str(path), remedy=advice.format(remedy=remedy)
        ) from None


def write_ahead(connection: sqlite3.Connection, synchronous: Literal["FULL", "NORMAL"]) -> None:
    """Switch the file to a write-ahead log; with FULL, stored rows survive a power cut.

    When two processes switch at once, SQLite refuses one of them at once, so this repeats.
    """
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    deadline = time.monotonic() + _BUSY_TIMEOUT
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
