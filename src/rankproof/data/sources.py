"""Files: what their names say, and their bytes, with errors that name the file."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import importlib
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

from rankproof.foundation.errors import InputError, import_extra
from rankproof.foundation.lines import BOM, CHUNK, LINE, file_signature
from rankproof.foundation.manifest import READ_ONCE
from rankproof.foundation.printable import printable_path
from rankproof.foundation.progress import advance

HEAD = 1 << 16  # enough for a first line

Format: TypeAlias = str  # one of formats.FORMATS
"""The name of a format, one of FORMATS.

>>> from rankproof.data import Format
>>> rp.read_run("try/plain.trec", format=Format("trec")).queries.len()
30
"""

# What an ending says; nothing where TREC files and tables share it.
ENDINGS: dict[str, Format | None] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    **dict.fromkeys((".trec", ".run", ".res", ".txt", ".qrels", ".qrel", ".tsv")),
}


COMPRESSED = (".gz", ".zst", ".bz2", ".xz", ".lz4")


def ending(path: str) -> str:
    """The ending that says the format, compression apart: `.trec` of `Run.TREC.gz`."""
    return _uncompressed(path).suffix.lower()


def stem(path: str) -> str:
    """A name for what the file holds: `run` for `data/run.trec.gz`, `run.k1=0.9` for itself."""
    if path == "-":
        return "stdin"
    file = _uncompressed(path)
    return printable_path(file.stem if file.suffix.lower() in ENDINGS else file.name)


def names_of(paths: Sequence[str]) -> list[str]:
    """The shortest names that tell runs apart: stems, else paths."""
    stems = [stem(path) for path in paths]
    chosen = stems if len(set(stems)) == len(stems) else [printable_path(path) for path in paths]
    again = next((path for i, path in enumerate(chosen) if path in chosen[:i]), None)
    if again is not None:
        raise InputError(f"run {again!r} is named twice", remedy="name each run once")
    return chosen


def _uncompressed(path: str) -> Path:
    file = Path(path)
    return file.with_suffix("") if file.suffix.lower() in COMPRESSED else file


def _zstd() -> Any:
    """Python's own module from 3.14 on, its backport before."""
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    return importlib.import_module(name)


def _lz4() -> Any:
    """What ranx writes; its package comes with ranx."""
    return import_extra("lz4.frame", "reading .lz4", "lz4")


_OPENERS: dict[str, Callable[[Any], Any]] = {
    "gz": lambda file: gzip.GzipFile(fileobj=file),
    "zst": lambda file: _zstd().ZstdFile(file),
    "bz2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    "lz4": lambda file: _lz4().LZ4FrameFile(file),
}


def _compression(head: bytes) -> str | None:
    """What the first bytes say; bytes that could begin a line of text say nothing."""
    if head.startswith(b"BZh") and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return "bz2"
    magic = {"gz": b"\x1f\x8b", "zst": b"\x28\xb5\x2f\xfd", "xz": b"\xfd7zXZ\x00"}
    magic["lz4"] = b"\x04\x22\x4d\x18"
    return next((name for name, first in magic.items() if head.startswith(first)), None)


def label_of(path: str) -> str:
    """A path in a message; most likely the content was given for the path if it is long."""
    if path == "-":
        return "<stdin>"
    return f"{path[:60]!r}…" if len(path) > 200 else path or "''"


def changed(label: str) -> InputError:
    return InputError(
        "the file changed while it was read", place=label, remedy="wait until it is written"
    )


class TooLarge(InputError):
    """The content is more than may be held at once; it has to be read in pieces."""


def is_pipe(path: str) -> bool:
    """Whether it can be read only once: standard input, or a pipe such as `<(zcat run.gz)`."""
    return path == "-" or _mode(path, stat.S_ISFIFO)


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether there is such a folder. Of what cannot be a path, such as the content of a file given
    for its name, whoever opens it says so.
    """
    return _mode(path, stat.S_ISDIR)


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether there is such a file, and no folder, pipe or device."""
    return _mode(path, stat.S_ISREG)


def _mode(path: str | os.PathLike[str], asked: Callable[[int], bool]) -> bool:
    with suppress(OSError, ValueError):  # too long, or with a NUL
        return asked(Path(path).stat().st_mode)
    return False


def pipe_chunks(path: str) -> Iterator[bytes]:
    """What comes out of a pipe; its size and digest are kept."""
    size, sha = 0, hashlib.sha256()
    if path == "-" and sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    with Path(path).open("rb") if path != "-" else nullcontext(sys.stdin.buffer) as file:
        while chunk := file.read(CHUNK):
            size += len(chunk)
            sha.update(chunk)
            yield chunk
    READ_ONCE[path] = size, sha.hexdigest()


class Source:
    """A file that can be read more than once; standard input and pipes are held in memory.

    `held` is the content of a pipe that was read before. With `as_trec_eval` lines are read as that
    tool reads them, also where an id seems to hold a blank.
    """

    label: str  # for messages
    name: str  # of what it holds
    head: bytes  # how the content begins, without a byte-order mark
    limit: int | None  # bytes of content that may be held at once

    def __init__(
        self,
        path: str | os.PathLike[str],
        held: bytes | None = None,
        limit: int | None = None,
        *,
        as_trec_eval: bool = False,
    ):
        self.path = os.fspath(path)
        self.limit = limit
        self.as_trec_eval = as_trec_eval
        self.label = label_of(self.path)
        self.name = stem(self.path)
        self._held = held
        self._unreported: int | None = None  # bytes on disk; None before the first report
        self._compression: str | None = None
        self.bom = 0  # bytes of a byte-order mark
        with self.trouble():
            if not self.path or "\0" in self.path:  # which Python reports in its own way
                raise FileNotFoundError
            if held is None and is_pipe(self.path):
                self._held = b"".join(self._within(pipe_chunks(self.path)))
            elif held is None and not Path(self.path).is_file():
                self._refuse_device()
            self._known = None if self._held is not None else file_signature(self.path)
            with self._raw() as file:
                self._compression = _compression(file.read(16))
            with self.open() as content:
                self.head = content.read(HEAD)
            if self.head and self._known is not None and not self._known[0]:
                # Made as it is read (/proc): nobody can say where a part of it is.
                with self._raw() as file:
                    self._held = b"".join(self._within(iter(lambda: file.read(CHUNK), b"")))
                self._known = None
        if not self.head:
            raise InputError("the file is empty", place=self.label, remedy="check how it was made")
        if self.head.startswith(BOM):
            self.bom = len(BOM)
            self.head = self.head[self.bom :]

    def _refuse_device(self) -> None:
        """What is no file and no pipe: raise what opening it does, or say that it has no end."""
        with Path(self.path).open("rb"):
            pass
        if self.path != os.devnull:
            raise OSError(errno.EINVAL, "this is a device, not a file")
        self._held = b""

    @property
    def plain_size(self) -> int | None:
        """Bytes of an uncompressed file on disk; None where ranges of it cannot be read."""
        if self._compression or self._held is not None:
            return None
        with self.trouble():
            return Path(self.path).stat().st_size

    def check_unchanged(self) -> None:
        """Refuse what somebody wrote to while it was read: a part may be of another file."""
        with self.trouble():
            same = self._known is None or file_signature(self.path) == self._known
        if not same:
            raise changed(self.label)

    def report(self, count: int) -> None:
        """Report bytes that were read to the progress display, those of a second pass not again."""
        if self._unreported is None:
            self._unreported = self._known[0] if self._known else sys.maxsize
        count = min(count, self._unreported)
        self._unreported -= count
        advance(count)

    def _raw(self) -> IO[bytes]:
        return io.BytesIO(self._held) if self._held is not None else Path(self.path).open("rb")

    @contextmanager
    def open(self, on_read: Callable[[int], None] | None = None) -> Iterator[IO[bytes]]:
        """The content as a stream: decompressed, without a byte-order mark."""
        with self.trouble(), self._raw() as file:
            raw: Any = file if on_read is None else _CountingReader(file, on_read)
            if self._compression is None:
                raw.read(self.bom)
                yield raw
                return
            with _OPENERS[self._compression](raw) as content:
                content.read(self.bom)
                yield content

    @property
    def compressed(self) -> bool:
        return self._compression is not None

    def chunks(self, on_read: Callable[[int], None] | None = None) -> Iterator[bytes]:
        with self.open(on_read) as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def held_chunks(self, on_read: Callable[[int], None] | None = None) -> Iterator[bytes]:
        """`chunks` for a reader that holds them all, which `limit` bounds."""
        return self._within(self.chunks(on_read))

    def _within(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        size = 0
        for chunk in chunks:
            size += len(chunk)
            self.check_size(size)
            yield chunk

    def check_size(self, size: int) -> None:
        """Refuse content that is more than may be held."""
        if self.limit is not None and size > self.limit:
            raise TooLarge(
                f"it holds more than {self.limit / 1e6:.0f} MB, too much for the memory given",
                place=self.label,
                remedy="give more (--memory, memory=)",
            )

    def read(self, on_read: Callable[[int], None] | None = None) -> bytes:
        return b"".join(self.held_chunks(on_read))

    def too_long(self) -> InputError:
        """The error for a line longer than any, with its place, found by reading again."""
        number, length = 1, 0
        for chunk in self.chunks():
            begin = 0
            while (found := chunk.find(b"\n", begin)) >= 0 and length + found - begin <= LINE:
                number, length, begin = number + 1, 0, found + 1
            length += (found if found >= 0 else len(chunk)) - begin
            if length > LINE:
                break
        return InputError(
            f"a line of more than {LINE >> 20} MiB",
            place=f"{self.label}:{number}",
            remedy="check how the file was made",
        )

    def text(self, on_read: Callable[[int], None] | None = None) -> str:
        return self.decode(self.read(on_read))

    def decode(self, data: bytes, lines: int = 0) -> str:
        """Some of the content as text; `lines` of the file come before it."""
        if not lines and data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise InputError(
                "the file is UTF-16", place=self.label, remedy="save it as UTF-8 (iconv -t utf-8)"
            )
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            lines += data.count(b"\n", 0, error.start)
            raise not_text(data[error.start], f"{self.label}:{lines + 1}") from None

    def decoded(self, data: bytes, lines: int = 0) -> tuple[str, InputError | None]:
        """The lines before the first that is not UTF-8, and what is to be said of that one: one
        before may be wrong in another way.
        """
        try:
            return self.decode(data, lines), None
        except InputError as error:
            return until_wrong(data), error

    @contextmanager
    def trouble(self) -> Iterator[None]:
        """Turn what reading can raise into one line about this file."""
        try:
            yield
        except FileNotFoundError:
            problem, remedy = "there is no such file", "check the path"
        except IsADirectoryError:
            problem, remedy = "this is a directory", "name a file inside it"
        except PermissionError:
            problem, remedy = "no permission to read it", "chmod it or run as its owner"
        except EOFError:
            problem = f"the {self._compression} data ends too early"
            remedy = "the file was cut short; fetch or write it again"
        except (OSError, zlib.error, lzma.LZMAError, _zstd().ZstdError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and self._compression != "lz4":
                raise
            remedy = "fetch or write the file again"
            if isinstance(error, OSError) and error.errno is not None:
                problem, remedy = error.strerror or str(error), "check the path and the disk"
            else:  # gzip and bz2 raise an OSError that the system did not
                problem = f"the {self._compression} data is damaged ({error})"
        else:
            return
        raise InputError(problem, place=self.label, remedy=remedy) from None


def not_text(byte: int, place: str) -> InputError:
    return InputError(
        f"byte 0x{byte:02x} is not UTF-8",
        place=place,
        remedy="save the file as UTF-8 (iconv -f latin1 -t utf-8, if it is Latin-1)",
    )


def until_wrong(data: bytes) -> str:
    """The lines before the first that is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return data[: data.rfind(b"\n", 0, error.start) + 1].decode()


class _CountingReader:
    """A file that calls `on_read` with the number of bytes of each read."""

    def __init__(self, file: IO[bytes], on_read: Callable[[int], None]):
        self._file = file
        self._on_read = on_read

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._on_read(len(data))
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
