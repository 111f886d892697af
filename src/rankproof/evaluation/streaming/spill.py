"""A folder on disk that is removed with the process, however the process ends."""

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
    """Make a new folder and remove it at the end, also after an error, Ctrl-C or SIGTERM.

    A killed process cannot remove its folder; the next process that spills here does. It knows it
    by its lock, which the operating system releases when the process is gone.
    """
    root = Path(tempfile.gettempdir() if parent is None else parent)
    if not root.is_dir():
        raise InputError("there is no such folder", place=str(root), remedy="make it first")
    with _unwound_by_signals():
        try:
            _remove_abandoned(root)
            folder, lock = _make_locked(root)
        except OSError as error:
            raise _disk_error(root, error) from None
        try:
            yield folder
        except OSError as error:
            if error.filename is not None and str(folder) not in str(error.filename):
                raise
            raise _disk_error(root, error) from None
        finally:
            if os.name == "nt":  # a locked file cannot be removed there
                lock.release()
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()


def _disk_error(root: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot spill there ({error.strerror or error})",
        place=str(root),
        remedy="make room, or name another folder (--spill-dir, spill_dir=)",
    )


def _make_locked(root: Path) -> tuple[Path, FileLock]:
    """Make a folder and lock it; try again if another process removes it in between."""
    from filelock import FileLock, Timeout  # loaded when something is spilled

    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        with suppress(FileNotFoundError, Timeout):
            lock = FileLock(folder / "lock", thread_local=False)
            lock.acquire(blocking=False)
            if folder.exists():
                return folder, lock
            lock.release()


def _remove_abandoned(root: Path) -> None:
    """Remove the folders of processes that are gone."""
    from filelock import FileLock, Timeout

    for folder in root.glob(f"{PREFIX}*"):
        # Skip the folders of other users, those in use, and those that another process removes.
        with suppress(OSError, Timeout):
            if not (folder / "lock").exists():
                folder.rmdir()  # succeeds if it is empty: its process has not locked it yet
                continue
            lock = FileLock(folder / "lock", thread_local=False)
            lock.acquire(blocking=False)
            if os.name == "nt":
                lock.release()
            shutil.rmtree(folder)
            lock.release()


@contextmanager
def _unwound_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit, unless the program handles them itself."""
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                handlers[number] = signal.signal(number, _exit)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
