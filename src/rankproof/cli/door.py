"""The door of the command line: what leaves is an exit code and at most one line on stderr.

0 done, 1 a check failed, 2 bad input or a machine that will not do it, 130 Ctrl-C, 141 the reader
of the output went away. RANKPROOF_DEBUG=1 shows the traceback as well.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import shutil
import signal
import sys
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from rankproof.errors import RankproofError, few, first_line
from rankproof.interrupts import INTERRUPTED, interrupted
from rankproof.redaction import redact
from rankproof.visible import visible

DEBUG = "RANKPROOF_DEBUG"
BAD, UNREAD = 2, 141
_EXTRA = re.compile(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)")


@contextmanager
def door() -> Iterator[None]:
    """Turn whatever the block raises into one line and a SystemExit."""
    open_streams()
    try:
        with _words_of_ours():
            yield
    except SystemExit as stop:
        if stop.code == 1:  # typer's and rich's word for a broken pipe; a check that failed returns
            _leave(stop, "", UNREAD)
        raise
    except BrokenPipeError as error:  # the reader of our output went away, as `| head` does
        _leave(error, "", UNREAD)
    except BaseException as error:
        _leave(error, *(("stopped", INTERRUPTED) if interrupted(error) else _words(error)))


@contextmanager
def _words_of_ours() -> Iterator[None]:
    """Without what compiled libraries write to stderr past Python.

    Of a damaged file polars prints fifty lines of its own before it raises what is told in one.
    """
    if os.environ.get(DEBUG) == "1":
        yield
        return
    stderr, held, nowhere = sys.stderr, os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        with suppress(AttributeError, OSError, ValueError):  # a stream of a test's own
            if stderr.fileno() == 2:
                stderr.flush()
                sys.stderr = open(  # noqa: SIM115
                    held, "w", 1, stderr.encoding, "rankproof", closefd=False
                )
        os.dup2(nowhere, 2)
        yield
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        sys.stderr = stderr
        os.dup2(held, 2)
        os.close(held)
        os.close(nowhere)


def _words(error: BaseException) -> tuple[str, int]:
    """What is told of an error, and the exit code."""
    said = first_line(error)
    if isinstance(error, RankproofError):
        return str(error), error.exit_code
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # the parser of arguments
        return _usage(error), int(error.exit_code)
    if type(error).__name__ == "Abort":  # its word for an end of input
        return "stopped", INTERRUPTED
    if isinstance(error, MemoryError):
        return f"not enough memory ({said}); give less to do at once, or see --memory", BAD
    if isinstance(error, RecursionError):
        return f"something is nested too deeply to be read ({said}); {DEBUG}=1 shows where", BAD
    if isinstance(error, UnicodeError):
        return f"text that cannot be written or read ({said}); set PYTHONIOENCODING=utf-8", BAD
    if isinstance(error, OSError):
        where = "standard output" if error.filename is None else str(error.filename)
        return f"{where}: {error.strerror or said}; check the place and its room", BAD
    return f"{type(error).__name__}: {said}; {DEBUG}=1 shows where: please report it", BAD


def _usage(error: BaseException) -> str:
    """A command line that was not understood."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(error.format_message())  # type: ignore[attr-defined]
    message = " ".join(error.format_message().split())  # type: ignore[attr-defined]
    message = message.replace(": Value error, ", ": ")  # which is pydantic's
    if many := _EXTRA.fullmatch(message):  # a pattern of the shell's may be thousands of names
        message = f"unexpected {few(many[1].split())}"
    command = "rankproof" if context is None else context.command_path
    return f"{message.rstrip('.')}; see {command} --help"


def _leave(error: BaseException, words: str, code: int) -> None:
    """One line, and out."""
    with suppress(OSError, ValueError):  # stderr may be gone or full too
        if os.environ.get(DEBUG) == "1":
            traceback.print_exception(error)
        if type(error).__name__ == "NoArgsIsHelpError":
            print(words, file=sys.stderr)
        elif words:
            said = f"rankproof: {visible(redact(words))}"
            if sys.stderr.isatty():
                said = "\n".join(
                    textwrap.wrap(
                        said,
                        max(20, shutil.get_terminal_size().columns),
                        subsequent_indent=" " * len("rankproof: "),
                        break_long_words=False,
                        break_on_hyphens=False,
                    )
                )
            print(said, file=sys.stderr)
        sys.stderr.flush()
    if isinstance(error, OSError | SystemExit):  # what is still held could not be written either
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # type: ignore[union-attr]
    raise SystemExit(code) from None


def open_streams() -> None:
    """Streams that were closed at the start exist and fail when used; the others write any text.

    A closed descriptor is dangerous: the next file to be opened would be standard output. And a
    character that the terminal's encoding lacks is written out, as in `caf\\xe9`.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            # Open the wrong way round, so that reading or writing says "Bad file descriptor".
            os.open(os.devnull, os.O_WRONLY if mode == "r" else os.O_RDONLY)
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
    for stream in (sys.stdout, sys.stderr):
        _writes_anything(stream)
    if hasattr(signal, "SIGXFSZ"):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file that may not grow is an error


_PLAIN = str.maketrans(
    {"−": "-", "–": "-", "…": "...", "→": "->", "≤": "<=", "≥": ">=", "ρ": "rho"}
    | dict.fromkeys("“”", '"')
    | {"’": "'"}
)


def _plainly(error: UnicodeError) -> tuple[str | bytes, int]:
    """Our own signs in ASCII; of what others wrote, the characters' numbers."""
    if isinstance(error, UnicodeEncodeError):
        plain = error.object[error.start : error.end].translate(_PLAIN)
        return plain.encode("ascii", "backslashreplace").decode(), error.end
    raise error


def _writes_anything(stream: TextIO) -> None:
    codecs.register_error("rankproof", _plainly)
    with suppress(AttributeError, ValueError):  # no such stream, as in a test
        stream.reconfigure(errors="rankproof")  # type: ignore[attr-defined]


def at_home(argument: str) -> str:
    """`--out=~/x.json` and `'~/x'` as the user means them: most shells leave these as they are."""
    option, equals, value = argument.rpartition("=") if argument.startswith("--") else ("", "", "")
    named = value if equals else argument
    at_home = named.startswith("~") and named[1:2] in ("/", os.sep)
    return option + equals + os.path.expanduser(named) if at_home else argument  # noqa: PTH111


def shown_arguments(arguments: Sequence[str]) -> list[str]:
    """The command as a result tells it: files by their names, never by their folders."""
    return [_shown(argument) for argument in arguments]


def _shown(argument: str) -> str:
    option, equals, value = argument.partition("=")
    if equals and option.startswith("--"):
        return f"{option}={_shown(value)}"
    with suppress(OSError, ValueError):
        if os.sep in argument and (Path(argument).exists() or Path(argument).is_absolute()):
            return Path(argument).name
    return argument
