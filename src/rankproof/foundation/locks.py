"""Let only one process write to a store or a folder.

The lock is one of the operating system (through filelock), so a killed process releases it. Its
owner is described in a second file, because Windows lets nobody read a locked one.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from rankproof.foundation.errors import InputError, disk_remedy

_LOCK_TIMEOUT = 1.0  # seconds; readers hold the lock for a moment to find its owner


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that writes to a store or a folder."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class Lock:
    """The right to write to a store, from construction until `release` or the process ends."""

    def __init__(self, store: Path):
        self.path = _sibling(store, "lock")
        self._owner_file = _sibling(store, "owner")
        self._lock = FileLock(self.path, thread_local=False)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=_LOCK_TIMEOUT, poll_interval=0.02)
        except Timeout:
            raise InputError(
                f"in use by {_read_owner(self._owner_file) or 'another process'}",
                place=str(store),
                remedy="wait until it has finished, or stop it",
            ) from None
        except OSError as error:
            raise self._lock_error(error) from None
        try:
            since = datetime.now(UTC).isoformat(timespec="seconds")
            text = json.dumps({"pid": os.getpid(), "host": platform.node(), "since": since})
            self._owner_file.write_text(text, encoding="utf-8")
        except OSError as error:
            self._lock.release()
            raise self._lock_error(error) from None

    def _lock_error(self, error: OSError) -> InputError:
        return InputError(
            f"cannot lock it ({error.strerror or error})",
            place=str(self.path),
            remedy=disk_remedy("name a folder that can be written to", error),
        )

    def release(self) -> None:
        """Let others write; removes the files of the lock."""
        self._owner_file.unlink(missing_ok=True)
        if os.name != "nt":  # while the lock is held, so that no other process's file is removed
            self.path.unlink(missing_ok=True)
        self._lock.release()

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_owner(store: Path) -> Owner | None:
    """Return the process that writes to a store now; None if there is none."""
    path = _sibling(store, "lock")
    if not path.exists():
        return None
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return _read_owner(_sibling(store, "owner")) or Owner(0, "this machine", "just now")
    except OSError:  # a folder without permission to write: its locks cannot be tried
        return None
    lock.release()
    return None


def _sibling(store: Path, ending: str) -> Path:
    return store.with_name(f"{store.name}.{ending}")


def _read_owner(path: Path) -> Owner | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return Owner(int(value["pid"]), str(value["host"]), str(value["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # the owner is writing it
