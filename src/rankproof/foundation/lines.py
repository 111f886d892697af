"""Whole lines of a file, in pieces, for compiled code on every core.

Nothing here needs numpy, or much else that takes its time to load, so that the command line can
begin to read a large file at once, and load while it is read.
"""

from __future__ import annotations

import importlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Thread

from rankproof.foundation.memory import available_memory

TYPE_CHECKING = False  # as typing has it, which is slow to load
if TYPE_CHECKING:
    from types import ModuleType
    from typing import IO, Any

CHUNK = 1 << 20  # bytes read at a time: as many as stay in a core's cache
LINE = 1 << 22  # bytes of the longest line; a longer one is no line of a run
CORES = max(1, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4))
Progress = Callable[[int], None]  # told how many bytes of the file were read since the last call

BOM = b"\xef\xbb\xbf"
RUN = 6  # columns of a run
_TAIL = 1 << 12  # bytes read past the end of a piece, where its last line is likely to end
_TOO_LONG = -2  # as the compiled reader says it


def compiled() -> ModuleType | None:
    """The compiled inner loops; None where they were not built, or are turned off."""
    if os.environ.get("RANKPROOF_NATIVE") != "0":
        with suppress(ImportError):
            return importlib.import_module("rankproof.foundation._native")
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
        if not filled:  # the file is not as long as it was
            return memoryview(b"")
        if begin:
            first = self._buffer.find(b"\n", 0, min(filled, end - begin)) + 1
            if not first:
                return memoryview(b"")
        stop = self._buffer.find(b"\n", end - 1 - at, filled)
        line = self._buffer.rfind(b"\n", 0, min(end - 1 - at, filled)) + 1
        while stop < 0:  # the line that holds the last byte goes on
            if filled == len(self._buffer):
                self._buffer = self._buffer + bytes(filled)
            before, filled = filled, self._read(filled, filled + 1)
            # or ends with the file
            stop = self._buffer.find(b"\n", before, filled) if filled > before else filled - 1
            if (filled if stop < 0 else stop) - line > LINE:
                raise TooLong
        return memoryview(self._buffer)[first : stop + 1]

    def _read(self, filled: int, wanted: int) -> int:
        """Fill the buffer to `wanted` or further; how far, less only at the end of the file."""
        while filled < wanted:
            count = self._file.readinto(memoryview(self._buffer)[filled:])  # type: ignore[attr-defined]
            if not count:
                break
            filled += count
        return filled


def iter_pieces(path: str, begin: int, end: int, bom: int, step: int) -> Iterator[memoryview]:
    """The lines that begin in [begin, end) of a plain file, whole; the next overwrites each."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        lines = Lines(file, bom, step)
        for low in range(begin, end, step):
            yield lines.between(low, min(low + step, end))


class BackgroundRead:
    """A parser that threads feed with a file's lines; `work` of a reader tells whether all went
    well.
    """

    def __init__(self, parser: Any, work: Callable[[int], bool], readers: int):
        self.parser = parser
        self._bad: list[BaseException | None] = []  # None: a line that was not understood

        def run(reader: int) -> None:
            try:
                if not work(reader):
                    self._bad.append(None)
            except BaseException as error:
                parser.stop()  # nobody need wait for this piece
                self._bad.append(error)

        self._threads = [Thread(target=run, args=(reader,)) for reader in range(readers)]
        for thread in self._threads:
            thread.start()

    def done(self) -> Any:
        """The parser, once all is read; None if it did not understand a line."""
        try:
            for thread in self._threads:
                thread.join()
        except BaseException:  # Ctrl-C
            self.parser.stop()
            raise
        for error in self._bad:
            if error is not None:
                raise error
        return None if self._bad else self.parser


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
) -> BackgroundRead:
    """Begin to read the lines that begin in [begin, end) of a plain file."""
    count = -(-(end - begin) // step)
    threads = max(1, min(threads, count // 2))
    parser = native.TrecParser(columns, threads, count)
    most = 1 if told else count  # pieces until somebody is told

    def work(reader: int) -> bool:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            where = file.fileno(), begin, end, bom, step, LINE
            while (size := parser.fetch(*where, reader, most)) > 0:
                if told:
                    told(size)
        if size == _TOO_LONG:
            raise TooLong
        return bool(size == 0)

    return BackgroundRead(parser, work, threads)


# --------------------------------------------------------------------------------- before numpy

_LARGE = 1 << 24  # bytes of a file that takes long enough
_ROOM = 32  # times its bytes that memory is to have: a run of the shortest lines takes half of it


# By path: what the system says of the file, and its reading.
_ahead: dict[str, tuple[tuple[int, int, int], BackgroundRead]] = {}


def read_ahead(path: str) -> bool:
    """Begin to read a run while other modules load, if it is large and looks like one; `taken` then
    has it. For the command alone, whose process this is.
    """
    with suppress(OSError, ValueError):
        found = file_signature(path)
        if found[0] < _LARGE or found[0] * _ROOM > available_memory():
            return False
        with open(path, "rb") as file:  # noqa: PTH123
            first = file.readline(_TAIL)
        native = compiled()
        if native is None or len(first.split()) != RUN:
            return False
        bom = len(BOM) if first.startswith(BOM) else 0
        reading = read(native, RUN, path, 0, found[0], bom, CHUNK, CORES)
        _ahead[path] = found, reading
        return True
    return False


def pending_paths() -> list[str]:
    """The runs that are read ahead and not taken yet."""
    return list(_ahead)


def take_read_ahead(path: str, told: Progress | None = None) -> Any:
    """The parser that read a whole run ahead; None where there is none, or it did not do."""
    if path not in _ahead:
        return None
    found, reading = _ahead.pop(path)
    try:
        parser = reading.done()
    except Exception:  # which reading it again tells in its own words
        return None
    if parser is None or file_signature(path) != found:
        return None
    if told:
        told(found[0])
    return parser


def file_signature(path: str) -> tuple[int, int, int]:
    """What the system says of a file, which is another where somebody wrote to it."""
    found = os.stat(path)  # noqa: PTH116
    size = found.st_size if stat.S_ISREG(found.st_mode) else 0
    return size, found.st_mtime_ns, found.st_ino
