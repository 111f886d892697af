"""Every error that a user can see.

    RankproofError
    ├── InputError          a file, frame, name or setting that cannot be used
    │   └── MeasureError    a measure that does not exist, or a parameter that it cannot take
    └── MissingExtra        a package that is not installed

Packages add subclasses of InputError for what their callers handle (a server refused, a budget is
spent). The command line prints the message in one line and exits with `exit_code`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from numbers import Integral
from typing import Any

from rankproof.foundation.redaction import redact

_MESSAGE_LIMIT = 1000  # characters; a name or a value in a message may be of any length


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class RankproofError(Exception):
    """Anything that rankproof refuses to do, explained in one line.

    >>> issubclass(rp.InputError, rp.RankproofError)
    True
    """

    exit_code = 2  # of the command line


class InputError(RankproofError, ValueError):
    """Input that cannot be used: its location, the problem, and a remedy.

    >>> str(rp.InputError("score 'nan' is not a number", place="run.trec:41",
    ...                   remedy="drop the line or rescore it"))
    "run.trec:41: score 'nan' is not a number; drop the line or rescore it"
    """

    def __init__(self, problem: str, *, place: str | None = None, remedy: str | None = None):
        self.problem = problem = _cut(redact(problem), _MESSAGE_LIMIT)
        self.place = place = redact(place)
        self.remedy = remedy = remedy and _cut(redact(remedy), 2 * _MESSAGE_LIMIT)
        prefix = f"{place}: " if place else ""
        suffix = f"; {remedy}" if remedy else ""
        super().__init__(f"{prefix}{problem}{suffix}")


class MeasureError(InputError):
    """A measure that does not exist, or a parameter it cannot take.

    >>> rp.parse("nDGC@10")
    Traceback (most recent call last):
        ...
    rankproof.foundation.errors.MeasureError: unknown measure 'nDGC'; did you mean nDCG@10?
    """


class MissingExtra(RankproofError, ImportError):
    """A package that an optional part needs is not installed.

    >>> str(rp.MissingExtra("audit", "torch", "torch"))
    "audit needs torch: pip install 'rankproof[torch]'"
    """

    def __init__(self, feature: str, package: str, extra: str):
        super().__init__(f"{feature} needs {package}: pip install 'rankproof[{extra}]'")


_PACKAGES = {  # distributions whose name differs from their module
    "Stemmer": "PyStemmer",
    "faiss": "faiss-cpu",
    "ml_dtypes": "ml_dtypes",
}


def import_extra(module: str, feature: str, extra: str) -> Any:
    """Import a module that an extra installs; without it, MissingExtra says what needs it."""
    try:
        return import_module(module)
    except ImportError:
        first = module.partition(".")[0]
        package = _PACKAGES.get(first, first.replace("_", "-"))
        raise MissingExtra(feature, package, extra) from None


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a value that is not one of the choices."""
    words = list(choices)
    if value not in words:
        known = " or ".join(words) if len(words) == 2 else f"one of {', '.join(words)}"
        raise InputError(f"{name} {shorten(value)} is unknown", remedy=f"use {known}")


def check_whole_number(
    name: str, value: object, minimum: int = 1, remedy: str | None = None
) -> None:
    """Refuse a value that is not a whole number, or below the minimum."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        raise InputError(f"{name} = {shorten(value)}", remedy=remedy or f"give {minimum} or more")


_DISK_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}


def disk_remedy(remedy: str, error: OSError) -> str:
    """Return the remedy of a failed write: to free space if the disk or a quota is full."""
    return "make room" if error.errno in _DISK_FULL else remedy


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, or its type where it has no text."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def first_few(names: Sequence[str], limit: int = 3) -> str:
    """Return the first names of a list and the number of the others."""
    remaining = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + remaining


def shorten(value: object, limit: int = 60) -> str:
    """Return `repr` of a value for one line of an error message, however large the value is.

    Nested lists and mappings are visited only as far as they are shown: with aliases, a few lines
    of YAML can stand for billions of values. Secrets are removed before the text is cut, since half
    of a secret could not be recognized.
    """
    parts: list[str] = []
    size = 0
    for part in _repr_parts(value):
        parts.append(redact(part))
        size += len(parts[-1])
        if size > limit:
            break
    text: str = redact("".join(parts))
    return text if size <= limit else f"{text[: limit - 1]}…"


_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    dict: ("{", "}"),
}


def _repr_parts(value: Any) -> Iterator[str]:
    """Yield `repr` of a value in pieces, so that the caller can stop early."""
    kind = type(value)
    if kind not in _BRACKETS or (kind is set and not value):
        try:
            yield repr(value)
        except Exception:  # a user's class, or an integer of thousands of digits
            yield f"<{kind.__name__}>"
        return
    opening, closing = _BRACKETS[kind]
    yield opening
    for index, item in enumerate(value):
        if index:
            yield ", "
        yield from _repr_parts(item)
        if kind is dict:
            yield ": "
            yield from _repr_parts(value[item])
    yield f",{closing}" if kind is tuple and len(value) == 1 else closing
