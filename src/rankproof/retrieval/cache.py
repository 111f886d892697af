"""What was computed or paid for once is kept on disk, under a digest of all that decides it.

One SQLite file in WAL mode: several processes may read and write it, and a killed one loses
nothing that it had stored. The file can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

from rankproof.foundation.database import connect, explain_database_errors, transaction, write_ahead
from rankproof.foundation.errors import InputError, disk_remedy

VARIABLE = "RANKPROOF_CACHE"
FILE = "cache.sqlite"
_AT_ONCE = 500  # keys in one statement; SQLite's oldest limit is 999
_LAYOUT = 1  # of the file: a newer rankproof may need another


def cache_folder() -> Path:
    """$RANKPROOF_CACHE, or `rankproof` in the folder where this system keeps caches."""
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "rankproof"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/rankproof"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rankproof"


def own_folder() -> Path:
    """The same, made where it is not there: it holds what passages were turned into, so that nobody
    else may read it."""
    folder = cache_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder ({error.strerror or error})",
            place=str(folder),
            remedy=disk_remedy(f"name another in ${VARIABLE}", error),
        ) from None
    return folder


def cache_key(fingerprint: str, role: str, text: str) -> bytes:
    """SHA-256 of the three; each is preceded by its length, so that none runs into the next."""
    sha = hashlib.sha256()
    for part in (fingerprint, role, text):
        data = part.encode("utf-8", "surrogatepass")
        sha.update(len(data).to_bytes(8, "little"))
        sha.update(data)
    return sha.digest()


class Cache:
    """Bytes by (fingerprint, role, text). Opened when first used; any thread may use it.

    >>> from rankproof.retrieval.cache import Cache
    >>> with Cache("my-cache") as cache:
    ...     cache.put_many("a fingerprint", "passage", {"The heart pumps blood.": b"any bytes"})
    ...     cache.get_many("a fingerprint", "passage", ["The heart pumps blood.", "Stars shine."])
    [b'any bytes', None]
    """

    def __init__(self, folder: str | Path | None = None):
        self.path = (own_folder() if folder is None else Path(folder)) / FILE
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None

    def get_many(self, fingerprint: str, role: str, texts: Sequence[str]) -> list[bytes | None]:
        """The value of each text, None where there is none."""
        keys = [cache_key(fingerprint, role, text) for text in texts]
        found: dict[bytes, bytes] = {}
        with self._open() as connection:
            for first in range(0, len(keys), _AT_ONCE):
                some = keys[first : first + _AT_ONCE]
                marks = ",".join("?" * len(some))
                query = f"SELECT key, value FROM entries WHERE key IN ({marks})"
                found.update(connection.execute(query, some))
        return [found.get(key) for key in keys]

    def put_many(self, fingerprint: str, role: str, values: Mapping[str, bytes]) -> None:
        """Store values by text, all of them or none; on return they are on the disk."""
        rows = [(cache_key(fingerprint, role, text), value) for text, value in values.items()]
        with self._open() as connection, transaction(connection):
            connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?)", rows)

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Cache({str(self.path.parent)!r})"

    def __reduce__(self) -> tuple[type[Cache], tuple[Path]]:
        return Cache, (self.path.parent,)  # another process opens the file for itself

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone; what goes wrong with it in one line."""
        remedy = f"delete the file, or name another folder in ${VARIABLE}"
        with self._lock, explain_database_errors(self.path, "the cache", remedy):
            if self._connection is None:
                self._connection = self._connect()
            yield self._connection

    def _connect(self) -> sqlite3.Connection:
        connection = connect(self.path)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        weakref.finalize(self, connection.close)
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (layout,) = connection.execute("PRAGMA user_version").fetchone()
        if layout not in (0, _LAYOUT):
            raise InputError(
                f"the cache has layout {layout}, this version knows {_LAYOUT}",
                place=str(self.path),
                remedy=f"update rankproof, or name another folder in ${VARIABLE}",
            )
        write_ahead(connection, "FULL")
        if not layout:
            with transaction(connection):
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB NOT NULL)"
                )
                connection.execute(f"PRAGMA user_version = {_LAYOUT}")
