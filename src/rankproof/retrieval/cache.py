"""Cache on disk of what was computed or paid for, keyed by a digest of all that decides it.

It is one SQLite file in WAL mode: several processes may read and write it, and a killed one loses
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
_KEYS_PER_STATEMENT = 500  # old builds of SQLite allow 999 parameters
_SCHEMA_VERSION = 1


def cache_folder() -> Path:
    """Return $RANKPROOF_CACHE, or `rankproof` in the folder where this system keeps caches."""
    if path := os.environ.get(VARIABLE):
        return Path(path).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "rankproof"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/rankproof"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rankproof"


def make_cache_folder() -> Path:
    """Make the cache folder, readable by its owner alone since it holds texts, and return it."""
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
    """Return the SHA-256 of the three, each preceded by its length to keep them apart."""
    sha = hashlib.sha256()
    for part in (fingerprint, role, text):
        data = part.encode("utf-8", "surrogatepass")
        sha.update(len(data).to_bytes(8, "little"))
        sha.update(data)
    return sha.digest()


class Cache:
    """Bytes by (fingerprint, role, text). The file is opened at first use; threads may share it.

    >>> from rankproof.retrieval.cache import Cache
    >>> with Cache("my-cache") as cache:
    ...     cache.put_many("a fingerprint", "passage", {"The heart pumps blood.": b"any bytes"})
    ...     cache.get_many("a fingerprint", "passage", ["The heart pumps blood.", "Stars shine."])
    [b'any bytes', None]
    """

    def __init__(self, folder: str | Path | None = None):
        self.path = (make_cache_folder() if folder is None else Path(folder)) / FILE
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None

    def get_many(self, fingerprint: str, role: str, texts: Sequence[str]) -> list[bytes | None]:
        """Return the value of each text, None where it has none."""
        keys = [cache_key(fingerprint, role, text) for text in texts]
        entries: dict[bytes, bytes] = {}
        with self._open() as connection:
            for first in range(0, len(keys), _KEYS_PER_STATEMENT):
                batch = keys[first : first + _KEYS_PER_STATEMENT]
                marks = ",".join("?" * len(batch))
                query = f"SELECT key, value FROM entries WHERE key IN ({marks})"
                entries.update(connection.execute(query, batch))
        return [entries.get(key) for key in keys]

    def put_many(self, fingerprint: str, role: str, values: Mapping[str, bytes]) -> None:
        """Store the value of each text, all of them or none; on return they are on the disk."""
        rows = [(cache_key(fingerprint, role, text), value) for text, value in values.items()]
        with self._open() as connection, transaction(connection):
            connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?)", rows)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
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
        return Cache, (self.path.parent,)  # a worker process opens the file itself

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for this thread alone; its errors become one line."""
        remedy = f"delete the file, or name another folder in ${VARIABLE}"
        with self._lock, explain_database_errors(self.path, "the cache", remedy):
            if self._connection is None:
                self._connection = self._connect()
            yield self._connection

    def _connect(self) -> sqlite3.Connection:
        """Open the file and prepare its table; close it if that fails."""
        connection = connect(self.path)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        weakref.finalize(self, connection.close)
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Create the table of entries; refuse a file of another version."""
        (layout,) = connection.execute("PRAGMA user_version").fetchone()
        if layout not in (0, _SCHEMA_VERSION):
            raise InputError(
                f"the cache has layout {layout}, this version knows {_SCHEMA_VERSION}",
                place=str(self.path),
                remedy=f"update rankproof, or name another folder in ${VARIABLE}",
            )
        write_ahead(connection, "FULL")
        if not layout:
            with transaction(connection):
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB NOT NULL)"
                )
                connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
