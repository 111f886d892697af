"""Read small files, and write results so that nothing is lost or left half-written.

A file appears whole or not at all (written beside its place, synced, renamed). Before any work,
`check_output` refuses a place that must not be written to: one of the inputs under whatever name, a
place inside an input folder, and anything that exists but is no regular file (a pipe, a device, a
folder). A symbolic link is followed. `-` is standard output.
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

STDOUT = "-"
SMALL = 64 << 20  # bytes of the largest file that is read as one text
_OWNER_ONLY = 0o600
# Files that file browsers leave in a folder, and the page that `rankproof report` writes there.
_ALWAYS_ALLOWED = (".*", "Thumbs.db", "desktop.ini", "report.html")


class WriteError(InputError):
    """A file or folder cannot be written: no permission, or no space."""


# ----------------------------------------------------------------------------------- checks


def check_output(path: str | Path, inputs: Iterable[str | Path] = ()) -> Path:
    """Return the file behind links that would be written, or refuse it (see the module)."""
    check_name(path)
    place = Path(path)
    if str(path) == STDOUT:
        return place
    try:
        target = place.resolve() if place.is_symlink() else place
        status = _status(target)
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise _refused(path, "this is a directory", "name a file inside it")
        if status is not None and not stat.S_ISREG(status.st_mode):
            remedy = "name a file, or - for standard output"
            raise _refused(path, "this is not a regular file", remedy)
        for source in inputs:
            _check_not_input(path, target, status, source)
    except (OSError, RuntimeError) as error:  # both are raised for a loop of links
        raise _write_error(path, error) from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise _write_error(path, error) from None  # a name with a NUL
    return target


def _check_not_input(
    path: str | Path, target: Path, status: os.stat_result | None, source: str | Path
) -> None:
    """Refuse an output that is an input, or that lies inside an input folder."""
    if str(source) == STDOUT:
        return
    try:
        source_status = _status(Path(source))
    except OSError:  # such as a loop of links, which reading the input reports
        return
    if source_status is None:
        return
    is_folder = stat.S_ISDIR(source_status.st_mode)
    if is_folder and target.resolve().is_relative_to(Path(source).resolve()):
        raise _refused(path, f"this lies in an input ({source})", "name another folder")
    if status is not None and os.path.samestat(status, source_status):
        raise _refused(path, f"this is an input ({source})", "name another file")


def check_name(path: str | Path) -> None:
    """Refuse a file's name that ends in a slash; check strings, since `Path` drops the slash."""
    if str(path).endswith(("/", os.sep)) and str(path) != os.sep:
        raise _refused(path, "this names a folder", "name a file inside it")


def check_ending(path: Path, endings: Sequence[str], content: str) -> str:
    """Return the ending of a file's name in lower case, if it is allowed; for `-` the first one."""
    ending = endings[0] if str(path) == STDOUT else path.suffix.lower()
    if ending not in endings:
        *first, last = endings
        raise _refused(
            path,
            f"{ending or 'no ending'} is not a format for {content}",
            f"end the name in {', '.join(first)} or {last}",
        )
    return ending


def check_folder(path: str | Path) -> Path:
    """Return an existing folder to read from."""
    place = Path(path)
    if place.exists() and not place.is_dir():
        raise _refused(path, "this is a file", "name the folder that it is in")
    if not place.is_dir():
        raise _refused(path, "there is no such folder", "check the path")
    return place


def claim_folder(folder: str | Path, own_files: Iterable[str], owner: str) -> Path:
    """Return a folder to fill, if everything in it was written by `owner`.

    `own_files` are names or patterns such as `*.svg`.
    """
    place = Path(folder)
    allowed = (*own_files, *_ALWAYS_ALLOWED)
    try:
        if not place.exists():
            return place
        if not place.is_dir():
            raise _refused(place, "this is a file", "name a folder")
        for name in sorted(os.listdir(place)):  # noqa: PTH208 - names are enough
            if not any(fnmatchcase(name, pattern) for pattern in allowed):
                raise _refused(
                    place,
                    f"this folder holds {shorten(name)}, which {owner} did not write",
                    "name a new folder, or an empty one",
                )
    except OSError as error:
        raise _write_error(place, error) from None
    return place


# ---------------------------------------------------------------------------------- writing


def write_atomically(
    path: Path, write: Callable[[Path], object], *, inputs: Iterable[str | Path] = ()
) -> Path:
    """Let `write` fill a temporary file, sync it, and rename it to `path`.

    Readers see the old content or the new, also after a power cut. A replaced file hands on its
    permissions. For `-` the content goes to standard output.
    """
    target = check_output(path, inputs)
    if str(path) == STDOUT:
        _write_to_stdout(write)
        return path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Names may have 255 bytes, and polars needs text.
        prefix = f".{printable_path(target.name)[:40]}."
        handle, name = tempfile.mkstemp(prefix=prefix, dir=target.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            status = _status(target)
            temporary.chmod(_default_mode() if status is None else stat.S_IMODE(status.st_mode))
            _sync(temporary)
            temporary.replace(target)
            _sync_folder(target.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _write_error(path, error) from None
    except TypeError:  # polars takes only names that are UTF-8
        if printable_path(str(target.parent)) == str(target.parent):
            raise
        raise WriteError(
            "its folder has a name that is not UTF-8",
            place=str(path),
            remedy="name another folder",
        ) from None
    return path


def _write_to_stdout(write: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / "whole"
        write(temporary)
        sys.stdout.flush()
        with temporary.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.flush()


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Write lines of text atomically, without holding them all."""

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)

    return write_atomically(path, write)


def create_private(path: Path) -> None:
    """Create an empty file that only its owner can read, unless it exists.

    An error is left to whoever opens the file next.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OWNER_ONLY))


def _default_mode() -> int:
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
    """Sync the entry of a renamed file; Windows keeps renames in its file system's journal."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    with suppress(OSError):  # some network file systems refuse it for a folder
        os.fsync(handle)
    os.close(handle)


# ---------------------------------------------------------------------------------- reading


def read_text(path: str | Path, limit: int = SMALL) -> str:
    """Return the text of a small UTF-8 file, such as a configuration; refuse devices."""
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            is_device = stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
            data = b"" if is_device else file.read(limit + 1)
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        raise _refused(path, "there is no such file", "check the path") from None
    except UnicodeDecodeError:
        raise _refused(path, "cannot read it (not UTF-8)", "save it as UTF-8") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        reason = getattr(error, "strerror", None) or error
        raise _refused(path, f"cannot read it ({reason})", "check the path") from None
    if is_device or len(data) > limit:
        kind = "a device" if is_device else f"larger than {limit >> 20} MiB"
        raise _refused(path, f"it is {kind}, not a file to be read whole", "check the path")
    return text


def read_csv_rows(text: str, delimiter: str) -> csv.DictReader[str]:
    """Return the rows of a CSV table, parsed strictly; a cell may be of any length."""
    import csv
    import io

    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # for the whole process
    return csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)


def read_json_lines(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the number and value of each line that is not blank; None for one that is not JSON."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError):
                yield number, None


# ----------------------------------------------------------------------------------- errors


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _refused(path: str | Path, problem: str, remedy: str) -> InputError:
    return InputError(problem, place=str(path), remedy=remedy)


def _write_error(path: str | Path, error: BaseException) -> InputError:
    reason = getattr(error, "strerror", None) or next(iter(str(error).splitlines()), "")
    return WriteError(
        f"cannot write it ({reason or type(error).__name__})",
        place=str(path),
        remedy="make room, or name another place",
    )
