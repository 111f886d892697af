"""A folder on disk that goes away with the process, however it ends."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rankproof.foundation.errors import InputError

if TYPE_CHECKING:
    from filelock import FileLock

PREFIX = "rankproof-spill-"


@contextmanager
def spill_folder(parent: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """A new folder, removed at the end: also after an error, Ctrl-C or SIGTERM.

    A killed process cannot remove its own; the next one to spill here does. Each holds a lock in
    its folder, which the system lets go when the process is gone.
    """
    above = Path(tempfile.gettempdir() if parent is None else parent)
    if not above.is_dir():
        raise InputError("there is no such folder", place=str(above), remedy="make it first")
    with _terminable():
        try:
            _sweep(above)
            folder, lock = _make(above)
        except OSError as error:
            raise _no_room(above, error) from None
        try:
            yield folder
        except OSError as error:
            if error.filename is not None and str(folder) not in str(error.filename):
                raise
            raise _no_room(above, error) from None
        finally:
            if os.name == "nt":  # where a locked file cannot be removed
                lock.release()
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()


def _no_room(above: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot spill there ({error.strerror or error})",
        place=str(above),
        remedy="make room, or name another folder (--spill-dir, spill_dir=)",
    )


def _make(above: Path) -> tuple[Path, FileLock]:
    from filelock import FileLock, Timeout  # loaded when something is spilled

    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=above))
        with suppress(FileNotFoundError, Timeout):  # a sweeper was between the two lines
            lock = FileLock(folder / "lock", thread_local=False)
            lock.acquire(blocking=False)
            if folder.exists():
                return folder, lock
            lock.release()


def _sweep(above: Path) -> None:
    """Remove what dead processes left."""
    from filelock import FileLock, Timeout

    for folder in above.glob(f"{PREFIX}*"):
        with suppress(OSError, Timeout):  # another user's, at work, or a sweeper was faster
            if not (folder / "lock").exists():
                folder.rmdir()  # only if it is empty: its maker has not come to the lock yet
                continue
            lock = FileLock(folder / "lock", thread_local=False)
            lock.acquire(blocking=False)
            if os.name == "nt":
                lock.release()
            shutil.rmtree(folder)
            lock.release()


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the program as Ctrl-C does, unless it handles them itself."""
    held = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                held[number] = signal.signal(number, _leave)
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
