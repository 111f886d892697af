"""One writer at a time: a lock of the operating system, which a killed process lets go of.

`filelock` takes it on Linux, macOS and Windows alike. Who holds it stands in a file of its own:
Windows lets nobody read a file that is locked.
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

_PATIENCE = 1.0  # seconds: somebody may be looking who holds it (`owner`), or say one word


@dataclass(frozen=True, slots=True)
class Owner:
    """Who writes to a store or a folder."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class Lock:
    """Held from the moment it is made until `release`, or until the process ends in any way."""

    def __init__(self, store: Path):
        self.path = _beside(store, "lock")
        self._owner = _beside(store, "owner")
        self._lock = FileLock(self.path, thread_local=False)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=_PATIENCE, poll_interval=0.02)
        except Timeout:
            raise InputError(
                f"in use by {_read(self._owner) or 'another process'}",
                place=str(store),
                remedy="wait until it has finished, or stop it",
            ) from None
        except OSError as error:
            raise self._cannot(error) from None
        try:
            since = datetime.now(UTC).isoformat(timespec="seconds")
            text = json.dumps({"pid": os.getpid(), "host": platform.node(), "since": since})
            self._owner.write_text(text, encoding="utf-8")
        except OSError as error:
            self._lock.release()
            raise self._cannot(error) from None

    def _cannot(self, error: OSError) -> InputError:
        return InputError(
            f"cannot lock it ({error.strerror or error})",
            place=str(self.path),
            remedy=disk_remedy("name a folder that can be written to", error),
        )

    def release(self) -> None:
        self._owner.unlink(missing_ok=True)
        if os.name != "nt":  # while it is held, so that nobody else's is removed
            self.path.unlink(missing_ok=True)
        self._lock.release()

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def owner(store: Path) -> Owner | None:
    """Who writes to a store now; None if nobody does."""
    path = _beside(store, "lock")
    if not path.exists():
        return None
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return _read(_beside(store, "owner")) or Owner(0, "this machine", "just now")
    except OSError:  # a folder that we may not write to: nobody is seen
        return None
    lock.release()
    return None


def _beside(store: Path, ending: str) -> Path:
    return store.with_name(f"{store.name}.{ending}")


def _read(path: Path) -> Owner | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return Owner(int(value["pid"]), str(value["host"]), str(value["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it is being written
