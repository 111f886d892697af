"""One writer at a time: a lock of the operating system, which a killed process lets go of."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from rankproof.errors import InputError


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
        self.path = _beside(store)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = self._acquire(store)
            since = datetime.now(UTC).isoformat(timespec="seconds")
            text = json.dumps({"pid": os.getpid(), "host": platform.node(), "since": since})
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, text.encode(), 0)
        except OSError as error:
            raise InputError(
                f"cannot lock it ({error.strerror or error})",
                place=str(self.path),
                remedy="name a folder that can be written to",
            ) from None

    def _acquire(self, store: Path) -> int:
        found: Owner | None = None
        for patience in (0.02, 0.05, 0.1, 0.0):  # somebody may be looking who holds it (`owner`)
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            if _take(handle):
                if _same(handle, self.path):
                    return handle
                os.close(handle)  # its last owner removed it as we opened it
                continue
            found = _read(handle)
            os.close(handle)
            time.sleep(patience)
        raise InputError(
            f"in use by {found or 'another process'}",
            place=str(store),
            remedy="wait until it has finished, or stop it",
        )

    def release(self) -> None:
        self.path.unlink(missing_ok=True)  # while it is held, so that nobody else's is removed
        os.close(self._handle)

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def owner(store: Path) -> Owner | None:
    """Who writes to a store now; None if nobody does."""
    path = _beside(store)
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return None if _take(handle) else _read(handle)
    finally:
        os.close(handle)


def _beside(store: Path) -> Path:
    return store.with_name(f"{store.name}.lock")


def _take(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        raise InputError(
            "this system has no fcntl, which keeps two writers apart",
            remedy="use Linux or macOS for this",
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _same(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _read(handle: int) -> Owner | None:
    try:
        value = json.loads(os.pread(handle, 4096, 0))
        return Owner(int(value["pid"]), str(value["host"]), str(value["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it is being written
