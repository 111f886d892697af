"""Errors of the command line: an exit code and at most one line on stderr.

0 done, 1 a check failed, 2 bad input or a machine that cannot do it, 130 Ctrl-C, 141 the reader of
the output closed it. RANKPROOF_DEBUG=1 shows the traceback as well.
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

from rankproof.foundation.errors import RankproofError, disk_remedy, first_few, first_line
from rankproof.foundation.interrupts import INTERRUPTED, interrupted
from rankproof.foundation.printable import escape_controls
from rankproof.foundation.redaction import redact

DEBUG = "RANKPROOF_DEBUG"
BAD_INPUT, OUTPUT_CLOSED = 2, 141
_EXTRA_ARGUMENTS = re.compile(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)")
_PREFIX = "rankproof: "


@contextmanager
def errors_as_one_line() -> Iterator[None]:
    """Turn whatever the block raises into one line on stderr and a SystemExit."""
    repair_streams()
    try:
        with _silence_libraries():
            yield
    except SystemExit as stop:
        if stop.code == 1:  # what click and rich make of a broken pipe; a failed check returns 1
            _exit(stop, "", OUTPUT_CLOSED)
        raise
    except BrokenPipeError as error:  # the reader closed the pipe, as `| head` does
        _exit(error, "", OUTPUT_CLOSED)
    except BaseException as error:
        message, code = ("stopped", INTERRUPTED) if interrupted(error) else _message(error)
        _exit(error, message, code)


@contextmanager
def _silence_libraries() -> Iterator[None]:
    """Hide what compiled libraries write to file descriptor 2; Python's own stderr stays.

    Of a damaged file polars prints fifty lines before it raises an error that one line describes.
    """
    if os.environ.get(DEBUG) == "1":
        yield
        return
    python_stderr, saved, null = sys.stderr, os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        with suppress(AttributeError, OSError, ValueError):  # a test may use a stream of its own
            if python_stderr.fileno() == 2:
                python_stderr.flush()
                encoding = python_stderr.encoding
                sys.stderr = open(saved, "w", 1, encoding, "rankproof", closefd=False)  # noqa: SIM115
        os.dup2(null, 2)
        yield
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        sys.stderr = python_stderr
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


def _message(error: BaseException) -> tuple[str, int]:
    """The line that describes an error, and the exit code."""
    text = first_line(error)
    if isinstance(error, RankproofError):
        return str(error), error.exit_code
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # of the argument parser
        return _usage_message(error), int(error.exit_code)
    if type(error).__name__ == "Abort":  # click's name for an end of input
        return "stopped", INTERRUPTED
    if isinstance(error, MemoryError):
        return f"not enough memory ({text}); give less to do at once, or see --memory", BAD_INPUT
    if isinstance(error, RecursionError):
        problem = f"something is nested too deeply to be read ({text})"
        return f"{problem}; {DEBUG}=1 shows where", BAD_INPUT
    if isinstance(error, UnicodeError):
        remedy = "give files and folders names that are UTF-8"
        return f"text that cannot be written or read ({text}); {remedy}", BAD_INPUT
    if isinstance(error, OSError):
        place = "standard output" if error.filename is None else str(error.filename)
        remedy = disk_remedy("check the place and its room", error)
        return f"{place}: {error.strerror or text}; {remedy}", BAD_INPUT
    name = type(error).__name__
    return f"{name}: {text}; {DEBUG}=1 shows where: please report it", BAD_INPUT


def _usage_message(error: BaseException) -> str:
    """The error of the argument parser on one line, with the command that prints the help."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(error.format_message())  # type: ignore[attr-defined]
    message = " ".join(error.format_message().split())  # type: ignore[attr-defined]
    message = message.replace(": Value error, ", ": ")  # pydantic adds this
    if extra := _EXTRA_ARGUMENTS.fullmatch(message):  # a shell's pattern may be thousands of names
        message = f"unexpected {first_few(extra[1].split())}"
    command = "rankproof" if context is None else context.command_path
    see = " See" if message.endswith("?") else "; see"
    return f"{message.rstrip('.')}{see} {command} --help"


def _exit(error: BaseException, message: str, code: int) -> None:
    """Print the message on stderr and raise SystemExit."""
    with suppress(OSError, ValueError):  # stderr may be closed or full too
        if os.environ.get(DEBUG) == "1":
            traceback.print_exception(error)
        if type(error).__name__ == "NoArgsIsHelpError":  # the message is a whole help page
            print(message, file=sys.stderr)
        elif message:
            print(_fitted(f"{_PREFIX}{escape_controls(redact(message))}"), file=sys.stderr)
        sys.stderr.flush()
    if isinstance(error, OSError | SystemExit):  # buffered output could not be written either
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # type: ignore[union-attr]
    raise SystemExit(code) from None


def _fitted(line: str) -> str:
    """The line wrapped at the width of the terminal, if stderr is one."""
    if not sys.stderr.isatty():
        return line
    width = max(20, shutil.get_terminal_size().columns)
    parts = textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * len(_PREFIX),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(parts)


# ------------------------------------------------------------------------------------ streams


def repair_streams() -> None:
    """Replace standard streams that were closed at the start; let the others write any text.

    A closed descriptor is dangerous: the next file to be opened would be standard output. And a
    character that the terminal's encoding lacks is escaped, as in `caf\\xe9`.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            # Opened in the wrong direction, so that reading or writing says "Bad file descriptor".
            os.open(os.devnull, os.O_WRONLY if mode == "r" else os.O_RDONLY)
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
    codecs.register_error("rankproof", _replace_unencodable)
    for stream in (sys.stdout, sys.stderr):
        _escape_unencodable(stream)
    if hasattr(signal, "SIGXFSZ"):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file that may not grow raises an error


_ASCII = str.maketrans(
    {"−": "-", "–": "-", "…": "...", "→": "->", "≤": "<=", "≥": ">=", "ρ": "rho"}
    | dict.fromkeys("“”", '"')
    | {"’": "'"}
)


def _replace_unencodable(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace rankproof's own signs by ASCII, other characters by their numbers.

    The codec's error handler of this name: returns the replacement and where to go on.
    """
    if isinstance(error, UnicodeEncodeError):
        text = error.object[error.start : error.end].translate(_ASCII)
        return text.encode("ascii", "backslashreplace").decode(), error.end
    raise error


def _escape_unencodable(stream: TextIO) -> None:
    """Have a stream escape characters that its encoding lacks."""
    with suppress(AttributeError, ValueError):  # a test's stream has no such method
        stream.reconfigure(errors="rankproof")  # type: ignore[attr-defined]


# ---------------------------------------------------------------------------------- arguments


def expand_home(argument: str) -> str:
    """Expand `~` in `--out=~/x.json` and `'~/x'`, which most shells leave as they are."""
    option, equals, value = argument.rpartition("=") if argument.startswith("--") else ("", "", "")
    path = value if equals else argument
    is_home = path.startswith("~") and path[1:2] in ("/", os.sep)
    return option + equals + os.path.expanduser(path) if is_home else argument  # noqa: PTH111


def shown_arguments(arguments: Sequence[str]) -> list[str]:
    """The command as a manifest shows it: files by their names, without their folders."""
    return [_shown_argument(argument) for argument in arguments]


def _shown_argument(argument: str) -> str:
    option, equals, value = argument.partition("=")
    if equals and option.startswith("--"):
        return f"{option}={_shown_argument(value)}"
    with suppress(OSError, ValueError):
        if os.sep in argument and (Path(argument).exists() or Path(argument).is_absolute()):
            return Path(argument).name
    return argument
