"""One process at a time in a folder; the lock goes with the process, however it ends."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rankproof.errors import InputError

try:
    import fcntl
except ImportError:  # Windows has no flock; sqlite's own locks still hold there
    fcntl = None  # type: ignore[assignment]


@contextmanager
def alone(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder, or refuse with the name of the process that does."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    with path.open("a+", encoding="utf-8") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(
                    f"{_holder(path)} is at work here",
                    place=str(folder),
                    remedy=f"wait for it, or name another place for this {what}",
                ) from None
        file.truncate(0)
        held = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        json.dump(held, file)
        file.flush()
        yield


def _holder(path: Path) -> str:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "another process"
    return f"process {held['pid']} on {held['host']}, since {held['since']},"
