"""Read a large file in whole lines, on every core, for compiled code.

A run of millions of lines takes longer to read than anything else that `rankproof eval` does. The
command line therefore begins to read it in threads before numpy and polars are loaded
(`read_ahead`), so this module imports next to nothing.
"""

from __future__ import annotations

import importlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Thread

from rankproof.foundation.memory import available_memory

TYPE_CHECKING = False  # typing itself is slow to load
if TYPE_CHECKING:
    from types import ModuleType
    from typing import IO, Any

CHUNK = 1 << 20  # bytes read at a time: they stay in a core's cache
LINE = 1 << 22  # bytes of the longest line that is accepted
CORES = max(1, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4))

BOM = b"\xef\xbb\xbf"
RUN_COLUMNS = 6
_TAIL = 1 << 12  # bytes read past the end of a piece, where its last line is likely to end
_TOO_LONG = -2  # the compiled reader's code for a line of more than LINE bytes


def compiled() -> ModuleType | None:
    """Return the compiled kernels; None if they were not built or RANKPROOF_NATIVE=0."""
    if os.environ.get("RANKPROOF_NATIVE") != "0":
        with suppress(ImportError):
            return importlib.import_module("rankproof.foundation._native")
    return None


class LineTooLong(Exception):
    """A line has more than LINE bytes."""


class LinePieces:
    """Read whole lines from byte ranges of an open file, whose first `bom` bytes are not text."""

    def __init__(self, file: IO[bytes], bom: int, step: int):
        self._file, self._bom = file, bom
        self._buffer = bytearray(step + _TAIL)

    def between(self, begin: int, end: int) -> memoryview:
        """Return the lines that begin in [begin, end), whole. The next call overwrites them."""
        start = max(0, begin - 1)  # the byte before tells whether a line begins at `begin`
        self._file.seek(start)
        filled = self._fill(0, end - start)
        first = self._bom
        if not filled:  # the file became shorter
            return memoryview(b"")
        if begin:
            first = self._buffer.find(b"\n", 0, min(filled, end - begin)) + 1
            if not first:
                return memoryview(b"")
        stop = self._buffer.find(b"\n", end - 1 - start, filled)
        line = self._buffer.rfind(b"\n", 0, min(end - 1 - start, filled)) + 1
        while stop < 0:  # the last line goes on behind the buffer
            if filled == len(self._buffer):
                self._buffer = self._buffer + bytes(filled)
            before, filled = filled, self._fill(filled, filled + 1)
            # At the end of the file its last byte ends the line.
            stop = self._buffer.find(b"\n", before, filled) if filled > before else filled - 1
            if (filled if stop < 0 else stop) - line > LINE:
                raise LineTooLong
        return memoryview(self._buffer)[first : stop + 1]

    def _fill(self, filled: int, needed: int) -> int:
        """Fill the buffer up to `needed` bytes or more; return how far (less at the file's end)."""
        while filled < needed:
            count = self._file.readinto(memoryview(self._buffer)[filled:])  # type: ignore[attr-defined]
            if not count:
                break
            filled += count
        return filled


def iter_pieces(path: str, begin: int, end: int, bom: int, step: int) -> Iterator[memoryview]:
    """Yield the lines that begin in [begin, end) of a plain file; each overwrites the last."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        pieces = LinePieces(file, bom, step)
        for low in range(begin, end, step):
            yield pieces.between(low, min(low + step, end))


class BackgroundRead:
    """A parser that threads feed with the lines of a file.

    `feed(reader)` is called once in each thread; it returns False where a line is malformed.
    """

    def __init__(self, parser: Any, feed: Callable[[int], bool], readers: int):
        self.parser = parser
        self._is_malformed = False
        self._errors: list[BaseException] = []

        def run(reader: int) -> None:
            try:
                if not feed(reader):
                    self._is_malformed = True
            except BaseException as error:
                parser.stop()  # the other threads need not wait for this piece
                self._errors.append(error)

        self._threads = [Thread(target=run, args=(reader,)) for reader in range(readers)]
        for thread in self._threads:
            thread.start()

    def finish(self) -> Any:
        """Wait, then return the parser; None if a line is malformed."""
        try:
            for thread in self._threads:
                thread.join()
        except BaseException:  # Ctrl-C
            self.parser.stop()
            raise
        if self._errors:
            raise self._errors[0]
        return None if self._is_malformed else self.parser


def read_in_background(
    native: ModuleType,
    columns: int,
    path: str,
    begin: int,
    end: int,
    bom: int,
    step: int,
    threads: int,
    on_read: Callable[[int], None] | None = None,
) -> BackgroundRead:
    """Begin to parse the lines that begin in [begin, end) of a plain file.

    `on_read` is called with the bytes of each piece, from any thread.
    """
    count = -(-(end - begin) // step)
    threads = max(1, min(threads, count // 2))
    parser = native.TrecParser(columns, threads, count)
    pieces_per_call = 1 if on_read else count

    def feed(reader: int) -> bool:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            place = file.fileno(), begin, end, bom, step, LINE
            while (size := parser.fetch(*place, reader, pieces_per_call)) > 0:
                if on_read:
                    on_read(size)
        if size == _TOO_LONG:
            raise LineTooLong
        return bool(size == 0)

    return BackgroundRead(parser, feed, threads)


# ----------------------------------------------------------------------------- before numpy loads

_LARGE = 1 << 24  # bytes from which reading takes long enough to begin early
_MEMORY_FACTOR = 32  # available memory over file size; the shortest lines need half of it

# By path: the file's signature, and the read in progress.
_read_ahead: dict[str, tuple[tuple[int, int, int], BackgroundRead]] = {}


def read_ahead(path: str) -> bool:
    """Begin to read a run while other modules load, if it is large and looks like one.

    `take_read_ahead` returns it. Only the command line does this, which owns its process.
    """
    with suppress(OSError, ValueError):
        signature = file_signature(path)
        size = signature[0]
        if size < _LARGE or size * _MEMORY_FACTOR > available_memory():
            return False
        with open(path, "rb") as file:  # noqa: PTH123
            first_line = file.readline(_TAIL)
        native = compiled()
        if native is None or len(first_line.split()) != RUN_COLUMNS:
            return False
        bom = len(BOM) if first_line.startswith(BOM) else 0
        reading = read_in_background(native, RUN_COLUMNS, path, 0, size, bom, CHUNK, CORES)
        _read_ahead[path] = signature, reading
        return True
    return False


def pending_paths() -> list[str]:
    """Return the runs that are being read ahead and were not taken yet."""
    return list(_read_ahead)


def take_read_ahead(path: str) -> Any:
    """Return the parser that read a whole run ahead; None if there is none or it failed.

    An error is not raised here: reading the file again reports it with its line.
    """
    if path not in _read_ahead:
        return None
    signature, reading = _read_ahead.pop(path)
    try:
        parser = reading.finish()
    except Exception:
        return None
    if parser is None or file_signature(path) != signature:
        return None
    return parser


def file_signature(path: str) -> tuple[int, int, int]:
    """Return size, time of change and inode of a file; they differ after somebody wrote to it."""
    status = os.stat(path)  # noqa: PTH116
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    return size, status.st_mtime_ns, status.st_ino
