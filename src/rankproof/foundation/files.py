"""Where results go: nothing is destroyed, and a file appears whole or not at all.

    check_output   refuse, before any work, a place that must not be written to
    check_name     refuse a name of a file that ends in a slash: it is a folder's
    check_ending   refuse a name whose ending says no format that can be written
    read_text      a small file, whole
    csv_rows       a table of CSV
    json_lines     JSON lines, each with its number
    write_whole    a file: written beside, synced, renamed; the folder synced
    claim_folder   a folder for a verb to fill, refused if it holds what the verb does not write

A symbolic link is followed to what it names. What is there and is no regular file (a pipe, a
device, a folder) is refused, and so is one of the inputs, by whatever name, and a place inside one
that is a folder. `-` is standard output.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.printable import printable_path

if TYPE_CHECKING:
    import csv

STDOUT = "-"  # the name of standard output, as of standard input
SMALL = 64 << 20  # bytes of a file that is read as one text
_PRIVATE = 0o600
_MARKS = (".*", "Thumbs.db", "desktop.ini", "report.html")  # of the system, and of `report`


class WriteError(InputError):
    """A file or folder that the system does not let anybody write, or has no room for."""


def check_output(path: str | Path, inputs: Iterable[str | Path] = ()) -> Path:
    """The file that would be written: behind links, no input, and regular if it is there."""
    check_name(path)
    place = Path(path)
    if str(path) == STDOUT:
        return place
    try:
        target = place.resolve() if place.is_symlink() else place
        there = _status(target)
        if there is not None and stat.S_ISDIR(there.st_mode):
            raise _refused(path, "this is a directory", "name a file inside it")
        if there is not None and not stat.S_ISREG(there.st_mode):
            raise _refused(
                path, "this is not a regular file", "name a file, or - for standard output"
            )
        for given in inputs:
            other = None
            if str(given) != STDOUT:
                with suppress(OSError):  # a loop of links, say: whoever reads it says so
                    other = _status(Path(given))
            if other is None:
                continue
            if stat.S_ISDIR(other.st_mode) and target.resolve().is_relative_to(
                Path(given).resolve()
            ):
                raise _refused(path, f"this lies in an input ({given})", "name another folder")
            if there is not None and os.path.samestat(there, other):
                raise _refused(path, f"this is an input ({given})", "name another file")
    except (OSError, RuntimeError) as error:  # a loop of links is one or the other
        raise _cannot_write(path, error) from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise _cannot_write(path, error) from None  # a name with a NUL
    return target


def check_name(path: str | Path) -> None:
    """A `Path` has lost its last slash: whoever is given a string asks before making one of it."""
    if str(path).endswith(("/", os.sep)) and str(path) != os.sep:
        raise _refused(path, "this names a folder", "name a file inside it")


def check_ending(path: Path, endings: Sequence[str], what: str) -> str:
    """The ending of a file's name, in small letters, where it is one of these; of `-` the first."""
    ending = endings[0] if str(path) == STDOUT else path.suffix.lower()
    if ending not in endings:
        *first, last = endings
        raise _refused(
            path,
            f"{ending or 'no ending'} is not a format for {what}",
            f"end the name in {', '.join(first)} or {last}",
        )
    return ending


def write_atomically(
    path: Path, write: Callable[[Path], object], *, inputs: Iterable[str | Path] = ()
) -> Path:
    """Let `write` fill a temporary file, then rename it: readers see all of it or nothing.

    It is on disk when this returns, also if the power goes. A file that is replaced hands on its
    permissions.
    """
    target = check_output(path, inputs)
    if str(path) == STDOUT:
        with tempfile.TemporaryDirectory() as folder:
            temporary = Path(folder) / "whole"
            write(temporary)
            sys.stdout.flush()
            with temporary.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.flush()
        return path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{printable_path(target.name)[:40]}."  # of 255 bytes; text, which polars needs
        handle, name = tempfile.mkstemp(prefix=prefix, dir=target.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            there = _status(target)
            temporary.chmod(_usual_mode() if there is None else stat.S_IMODE(there.st_mode))
            _sync(temporary)
            temporary.replace(target)
            _sync_folder(target.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _cannot_write(path, error) from None
    except TypeError:
        if printable_path(str(target.parent)) == str(target.parent):
            raise
        raise WriteError(  # polars takes no other names
            "its folder has a name that is not UTF-8",
            place=str(path),
            remedy="name another folder",
        ) from None
    return path


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Text that is written whole, a line at a time."""

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)

    return write_atomically(path, write)


def check_folder(path: str | Path) -> Path:
    """A folder to read: one that is there, and no file."""
    place = Path(path)
    if place.exists() and not place.is_dir():
        raise _refused(path, "this is a file", "name the folder that it is in")
    if not place.is_dir():
        raise _refused(path, "there is no such folder", "check the path")
    return place


def read_text(path: str | Path, most: int = SMALL) -> str:
    """A small file that people write or read, such as a configuration; never what has no end."""
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            device = stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
            data = b"" if device else file.read(most + 1)
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        raise _refused(path, "there is no such file", "check the path") from None
    except UnicodeDecodeError:
        raise _refused(path, "cannot read it (not UTF-8)", "save it as UTF-8") from None
    except (OSError, ValueError) as error:  # a name with a NUL is one of the latter
        said = getattr(error, "strerror", None) or error
        raise _refused(path, f"cannot read it ({said})", "check the path") from None
    if device or len(data) > most:
        what = "a device" if device else f"larger than {most >> 20} MiB"
        raise _refused(path, f"it is {what}, not a file to be read whole", "check the path")
    return text


def create_private(path: Path) -> None:
    """An empty file that its owner alone may read, where there is none yet: it will hold texts.

    Where that cannot be, whoever opens the file says why.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _PRIVATE))


def claim_folder(folder: str | Path, ours: Iterable[str], what: str) -> Path:
    """A folder that holds nothing but what `what` writes: names, or patterns such as `*.svg`."""
    place = Path(folder)
    allowed = (*ours, *_MARKS)
    try:
        if not place.exists():
            return place
        if not place.is_dir():
            raise _refused(place, "this is a file", "name a folder")
        for name in sorted(os.listdir(place)):  # noqa: PTH208 - names are all that is asked for
            if not any(fnmatchcase(name, pattern) for pattern in allowed):
                raise _refused(
                    place,
                    f"this folder holds {shorten(name)}, which {what} did not write",
                    "name a new folder, or an empty one",
                )
    except OSError as error:
        raise _cannot_write(place, error) from None
    return place


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _refused(path: str | Path, problem: str, remedy: str) -> InputError:
    return InputError(problem, place=str(path), remedy=remedy)


def _cannot_write(path: str | Path, error: BaseException) -> InputError:
    said = getattr(error, "strerror", None) or next(iter(str(error).splitlines()), "")
    return WriteError(
        f"cannot write it ({said or type(error).__name__})",
        place=str(path),
        remedy="make room, or name another place",
    )


def _usual_mode() -> int:
    mask = os.umask(0)  # it can be read only by setting it
    os.umask(mask)
    return 0o666 & ~mask


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(path: Path) -> None:
    """Windows has no such call: there a rename is in the journal of the file system."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    with suppress(OSError):  # some network file systems refuse it for a folder
        os.fsync(handle)
    os.close(handle)


def read_csv_rows(text: str, delimiter: str) -> csv.DictReader[str]:
    """The rows of a table, read strictly; a cell may be of any length."""
    import csv
    import io

    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # of the whole process
    return csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)


def read_json_lines(text: str) -> Iterator[tuple[int, Any]]:
    """Number and value of each line that is not blank; None for one that is not JSON."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError):
                yield number, None
