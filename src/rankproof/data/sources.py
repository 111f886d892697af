"""Read the bytes of files, compressed files and pipes, with errors that name the file."""

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

HEAD = 1 << 16  # bytes, enough for a first line

Format: TypeAlias = str  # one of formats.FORMATS
"""The name of a format, one of FORMATS.

>>> from rankproof.data import Format
>>> rp.read_run("try/plain.trec", format=Format("trec")).queries.len()
30
"""

# The format that an ending implies; None where TREC files and tables share the ending.
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
    """Return the ending without that of compression: `.trec` for `Run.TREC.gz`."""
    return _uncompressed(path).suffix.lower()


def stem(path: str) -> str:
    """Return a name for a file's content: `run` for `data/run.trec.gz`; `run.k1=0.9` stays."""
    if path == "-":
        return "stdin"
    file = _uncompressed(path)
    return printable_path(file.stem if file.suffix.lower() in ENDINGS else file.name)


def names_of(paths: Sequence[str]) -> list[str]:
    """Return distinct names for runs: stems, or whole paths where stems repeat."""
    stems = [stem(path) for path in paths]
    if len(set(stems)) == len(stems):
        return stems
    names = [printable_path(path) for path in paths]
    repeated = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if repeated is not None:
        raise InputError(f"run {repeated!r} is named twice", remedy="name each run once")
    return names


def _uncompressed(path: str) -> Path:
    file = Path(path)
    return file.with_suffix("") if file.suffix.lower() in COMPRESSED else file


def _zstd() -> Any:
    """Return Python's module for zstd, or its backport before Python 3.14."""
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    return importlib.import_module(name)


def _lz4() -> Any:
    """Return the module for .lz4 files, which ranx writes; its package comes with ranx."""
    return import_extra("lz4.frame", "reading .lz4", "lz4")


_OPENERS: dict[str, Callable[[Any], Any]] = {
    "gz": lambda file: gzip.GzipFile(fileobj=file),
    "zst": lambda file: _zstd().ZstdFile(file),
    "bz2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    "lz4": lambda file: _lz4().LZ4FrameFile(file),
}


def _compression(head: bytes) -> str | None:
    """Return the compression that the first bytes prove; text never begins with them."""
    if head.startswith(b"BZh") and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return "bz2"
    magic = {"gz": b"\x1f\x8b", "zst": b"\x28\xb5\x2f\xfd", "xz": b"\xfd7zXZ\x00"}
    magic["lz4"] = b"\x04\x22\x4d\x18"
    return next((name for name, first in magic.items() if head.startswith(first)), None)


def label_of(path: str) -> str:
    """Return a path for messages, shortened if it is long: content passed in place of a path."""
    if path == "-":
        return "<stdin>"
    return f"{path[:60]!r}…" if len(path) > 200 else path or "''"


def changed(label: str) -> InputError:
    """Return the error for a file that was written to while it was read."""
    return InputError(
        "the file changed while it was read", place=label, remedy="wait until it is written"
    )


class TooLarge(InputError):
    """The content exceeds the memory limit; it has to be read in parts."""


def is_pipe(path: str) -> bool:
    """True if a path can be read only once: standard input, or a pipe as in `<(zcat run.gz)`."""
    return path == "-" or _has_mode(path, stat.S_ISFIFO)


def is_folder(path: str | os.PathLike[str]) -> bool:
    """True if a folder exists; False for what cannot be a path, which opening it reports."""
    return _has_mode(path, stat.S_ISDIR)


def is_file(path: str | os.PathLike[str]) -> bool:
    """True if a regular file exists (not a folder, pipe or device)."""
    return _has_mode(path, stat.S_ISREG)


def _has_mode(path: str | os.PathLike[str], test: Callable[[int], bool]) -> bool:
    with suppress(OSError, ValueError):  # too long, or with a NUL
        return test(Path(path).stat().st_mode)
    return False


def pipe_chunks(path: str) -> Iterator[bytes]:
    """Yield the content of a pipe, and record its size and digest for the manifest."""
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
    """A file that can be read more than once; standard input and pipes are kept in memory.

    `content` is that of a pipe that was read already. With `as_trec_eval`, lines are split as that
    tool splits them, even if an id seems to contain a blank.
    """

    label: str  # for messages
    name: str  # for the run or judgments in it
    head: bytes  # the first bytes of the content, without a byte-order mark
    limit: int | None  # bytes of content that may be in memory at once

    def __init__(
        self,
        path: str | os.PathLike[str],
        content: bytes | None = None,
        limit: int | None = None,
        *,
        as_trec_eval: bool = False,
    ):
        self.path = os.fspath(path)
        self.limit = limit
        self.as_trec_eval = as_trec_eval
        self.label = label_of(self.path)
        self.name = stem(self.path)
        self._content = content
        self._unreported: int | None = None  # bytes on disk; None before the first report
        self._compression: str | None = None
        self.bom = 0  # bytes of a byte-order mark
        with self.errors_explained():
            if not self.path or "\0" in self.path:  # which Python reports in its own way
                raise FileNotFoundError
            if content is None and is_pipe(self.path):
                self._content = b"".join(self._within(pipe_chunks(self.path)))
            elif content is None and not Path(self.path).is_file():
                self._refuse_device()
            self._signature = None if self._content is not None else file_signature(self.path)
            with self._raw() as file:
                self._compression = _compression(file.read(16))
            with self.open() as stream:
                self.head = stream.read(HEAD)
            if self.head and self._signature is not None and not self._signature[0]:
                # A file without a size (/proc) is generated when it is read: no part can be sought.
                with self._raw() as file:
                    self._content = b"".join(self._within(iter(lambda: file.read(CHUNK), b"")))
                self._signature = None
        if not self.head:
            raise InputError("the file is empty", place=self.label, remedy="check how it was made")
        if self.head.startswith(BOM):
            self.bom = len(BOM)
            self.head = self.head[self.bom :]

    def _refuse_device(self) -> None:
        """Raise the error of opening a path that is no file and no pipe, or refuse a device."""
        with Path(self.path).open("rb"):
            pass
        if self.path != os.devnull:
            raise OSError(errno.EINVAL, "this is a device, not a file")
        self._content = b""

    @property
    def plain_size(self) -> int | None:
        """Bytes of an uncompressed file on disk; None if ranges of it cannot be read."""
        if self._compression or self._content is not None:
            return None
        with self.errors_explained():
            return Path(self.path).stat().st_size

    def check_unchanged(self) -> None:
        """Refuse a file that was written to while it was read."""
        with self.errors_explained():
            is_same = self._signature is None or file_signature(self.path) == self._signature
        if not is_same:
            raise changed(self.label)

    def report(self, count: int) -> None:
        """Report bytes that were read to the progress display, those of a second pass not again."""
        if self._unreported is None:
            self._unreported = self._signature[0] if self._signature else sys.maxsize
        count = min(count, self._unreported)
        self._unreported -= count
        advance(count)

    def _raw(self) -> IO[bytes]:
        return (
            io.BytesIO(self._content) if self._content is not None else Path(self.path).open("rb")
        )

    @contextmanager
    def open(self, on_read: Callable[[int], None] | None = None) -> Iterator[IO[bytes]]:
        """Open the content as a stream: decompressed, and without a byte-order mark."""
        with self.errors_explained(), self._raw() as file:
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
        """True if the file is compressed."""
        return self._compression is not None

    def chunks(self, on_read: Callable[[int], None] | None = None) -> Iterator[bytes]:
        """Yield the content in chunks; `on_read` is called with the bytes read from disk."""
        with self.open(on_read) as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def limited_chunks(self, on_read: Callable[[int], None] | None = None) -> Iterator[bytes]:
        """Yield the content for a reader that keeps all of it; raises TooLarge beyond `limit`."""
        return self._within(self.chunks(on_read))

    def _within(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        size = 0
        for chunk in chunks:
            size += len(chunk)
            self.check_size(size)
            yield chunk

    def check_size(self, size: int) -> None:
        """Refuse content that exceeds `limit`."""
        if self.limit is not None and size > self.limit:
            raise TooLarge(
                f"it holds more than {self.limit / 1e6:.0f} MB, too much for the memory given",
                place=self.label,
                remedy="give more (--memory, memory=)",
            )

    def read(self, on_read: Callable[[int], None] | None = None) -> bytes:
        """Return all of the content, within `limit`."""
        return b"".join(self.limited_chunks(on_read))

    def too_long(self) -> InputError:
        """Return the error for a line that is too long, with its number, found by reading again."""
        number, length = 1, 0
        for chunk in self.chunks():
            begin = 0
            while (end := chunk.find(b"\n", begin)) >= 0 and length + end - begin <= LINE:
                number, length, begin = number + 1, 0, end + 1
            length += (end if end >= 0 else len(chunk)) - begin
            if length > LINE:
                break
        return InputError(
            f"a line of more than {LINE >> 20} MiB",
            place=f"{self.label}:{number}",
            remedy="check how the file was made",
        )

    def text(self, on_read: Callable[[int], None] | None = None) -> str:
        """Return all of the content as text."""
        return self.decode(self.read(on_read))

    def decode(self, data: bytes, lines: int = 0) -> str:
        """Decode a part of the content that comes after `lines` lines of the file."""
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
        """Return the lines before the first that is not UTF-8, and the error for that one.

        The caller checks the lines first: an earlier one may be wrong in another way.
        """
        try:
            return self.decode(data, lines), None
        except InputError as error:
            return valid_lines(data), error

    @contextmanager
    def errors_explained(self) -> Iterator[None]:
        """Turn whatever reading can raise into an InputError about this file."""
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
            else:  # gzip and bz2 raise an OSError without a number
                problem = f"the {self._compression} data is damaged ({error})"
        else:
            return
        raise InputError(problem, place=self.label, remedy=remedy) from None


def not_text(byte: int, place: str) -> InputError:
    """Return the error for a byte that is not UTF-8."""
    return InputError(
        f"byte 0x{byte:02x} is not UTF-8",
        place=place,
        remedy="save the file as UTF-8 (iconv -f latin1 -t utf-8, if it is Latin-1)",
    )


def valid_lines(data: bytes) -> str:
    """Return the lines before the first that is not UTF-8."""
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
