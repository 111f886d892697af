"""Whole lines of a file, in pieces, for compiled code on every core.

Nothing here needs numpy, so that the command line can begin to read a large file while it loads.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from rankproof.memory import available_memory

CHUNK = 1 << 20  # bytes read at a time: as many as stay in a core's cache
LINE = 1 << 22  # bytes of the longest line; a longer one is no line of a run
CORES = max(1, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4))
Progress = Callable[[int], None]  # told how many bytes of the file were read since the last call

BOM = b"\xef\xbb\xbf"
RUN = 6  # columns of a run
_TAIL = 1 << 12  # bytes read past the end of a piece, where its last line is likely to end


def compiled() -> ModuleType | None:
    """The compiled inner loops; None where they were not built, or are turned off."""
    if os.environ.get("RANKPROOF_NATIVE") != "0":
        with suppress(ImportError):
            return importlib.import_module("rankproof._native")
    return None


class TooLong(Exception):
    """A line of more than LINE bytes."""


class Lines:
    """Pieces of an open file; the first `bom` bytes of it are no text."""

    def __init__(self, file: IO[bytes], bom: int, step: int):
        self._file, self._bom = file, bom
        self._buffer = bytearray(step + _TAIL)

    def between(self, begin: int, end: int) -> memoryview:
        """The lines that begin in [begin, end), whole; the next call overwrites them."""
        at = max(0, begin - 1)  # whether a line begins is said by the byte before
        self._file.seek(at)
        filled = self._read(0, end - at)
        first = self._bom
        if begin:
            first = self._buffer.find(b"\n", 0, min(filled, end - begin)) + 1
            if not first:
                return memoryview(b"")
        stop = self._buffer.find(b"\n", end - 1 - at, filled)
        while stop < 0:  # the line that holds the last byte goes on
            if filled - self._buffer.rfind(b"\n", 0, end - 1 - at) > LINE:
                raise TooLong
            if filled == len(self._buffer):
                self._buffer = self._buffer + bytes(filled)
            before, filled = filled, self._read(filled, filled + 1)
            # or ends with the file
            stop = self._buffer.find(b"\n", before, filled) if filled > before else filled - 1
        return memoryview(self._buffer)[first : stop + 1]

    def _read(self, filled: int, wanted: int) -> int:
        """Fill the buffer to `wanted` or further; how far, less only at the end of the file."""
        while filled < wanted:
            count = self._file.readinto(memoryview(self._buffer)[filled:])  # type: ignore[attr-defined]
            if not count:
                break
            filled += count
        return filled


def pieces(
    path: str, begin: int, end: int, bom: int, step: int, told: Progress | None = None
) -> Iterator[memoryview]:
    """The lines that begin in [begin, end) of a plain file, whole; the next overwrites each."""
    with Path(path).open("rb", buffering=0) as file:
        lines = Lines(file, bom, step)
        for low in range(begin, end, step):
            high = min(low + step, end)
            yield lines.between(low, high)
            if told:
                told(high - low)


@dataclass(frozen=True, slots=True)
class Reading:
    """A parser that threads feed with a file's lines."""

    parser: Any
    threads: list[Future[bool]]

    def done(self) -> Any:
        """The parser, once all is read; None if it did not understand a line."""
        good = [thread.result() for thread in self.threads]
        return self.parser if all(good) else None


def read(
    native: ModuleType,
    columns: int,
    path: str,
    begin: int,
    end: int,
    bom: int,
    step: int,
    threads: int,
    told: Progress | None = None,
) -> Reading:
    """Begin to read the lines that begin in [begin, end) of a plain file."""
    count = -(-(end - begin) // step)
    threads = max(1, min(threads, count // 2))
    parser = native.TrecParser(columns, threads, count)
    numbers = iter(range(count))  # whoever is free takes the next

    def work(reader: int) -> bool:
        try:
            with Path(path).open("rb", buffering=0) as file:
                lines = Lines(file, bom, step)
                for number in numbers:
                    low = begin + number * step
                    high = min(low + step, end)
                    if not parser.feed(lines.between(low, high), number, reader):
                        return False
                    if told:
                        told(high - low)
        except BaseException:
            parser.stop()  # nobody need wait for this piece
            raise
        return True

    pool = ThreadPoolExecutor(threads)
    running = [pool.submit(work, reader) for reader in range(threads)]
    pool.shutdown(wait=False)
    return Reading(parser, running)


# --------------------------------------------------------------------------------- before numpy

_LARGE = 1 << 24  # bytes of a file that takes long enough
_ROOM = 32  # times its bytes that memory is to have: a run of the shortest lines takes half of it
_QUICK = 2e-4  # s after which whoever loads modules lets a reader have its next piece


@dataclass(frozen=True, slots=True)
class _Ahead:
    stat: tuple[int, int, int]
    reading: Reading
    interval: float


_ahead: dict[str, _Ahead] = {}


def read_ahead(path: str) -> bool:
    """Begin to read a run while other modules load, if it is large and looks like one; `taken` then
    has it. For the command alone, whose process this is.
    """
    with suppress(OSError, ValueError):
        stat = _stat(path) if Path(path).is_file() else (0, 0, 0)
        if stat[0] < _LARGE or stat[0] * _ROOM > available_memory():
            return False
        with Path(path).open("rb") as file:
            first = file.readline(_TAIL)
        native = compiled()
        if native is None or len(first.split()) != RUN:
            return False
        bom = len(BOM) if first.startswith(BOM) else 0
        # The threads that numpy's BLAS starts would wait for work in a loop, in the readers' way.
        os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_QUICK)
        reading = read(native, RUN, path, 0, stat[0], bom, CHUNK, CORES)
        _ahead[path] = _Ahead(stat, reading, interval)
        return True
    return False


def taken(path: str, told: Progress | None = None) -> Any:
    """The parser that read a whole run ahead; None where there is none, or it did not do."""
    begun = _ahead.pop(path, None)
    if begun is None:
        return None
    sys.setswitchinterval(begun.interval)
    try:
        parser = begun.reading.done()
    except Exception:  # which reading it again tells in its own words
        return None
    if parser is None or _stat(path) != begun.stat:
        return None
    if told:
        told(begun.stat[0])
    return parser


def _stat(path: str) -> tuple[int, int, int]:
    found = Path(path).stat()
    return found.st_size, found.st_mtime_ns, found.st_ino
