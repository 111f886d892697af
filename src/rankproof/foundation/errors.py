"""Every error a user can meet.

    RankproofError
    ├── InputError          a file, frame, name or setting that cannot be used
    │   ├── MeasureError    a measure that does not exist or cannot take that value
    │   ├── Refused         a server says no (retrieval/http.py)
    │   ├── Unanswered      a server gave no answer in all attempts (retrieval/http.py)
    │   ├── CostReached     a golden set may cost no more (golden/judge_client.py): exit code 1
    │   └── TooManyFailed   too many judgements failed to export (golden/export.py): exit code 1
    └── MissingExtra        something needs a package that is not installed

The command line prints the message alone and exits with 2; nothing else is caught.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from numbers import Integral
from typing import Any

from rankproof.foundation.redaction import redact

_LONGEST = 1000  # characters of a message; a name or a value in it may have any number


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class RankproofError(Exception):
    """Anything rankproof refuses to do, said in one line.

    >>> issubclass(rp.InputError, rp.RankproofError)
    True
    """

    exit_code = 2  # of the command line


class InputError(RankproofError, ValueError):
    """Input that cannot be used: where it stands, what is wrong, what to do about it.

    >>> str(rp.InputError("score 'nan' is not a number", place="run.trec:41",
    ...                   remedy="drop the line or rescore it"))
    "run.trec:41: score 'nan' is not a number; drop the line or rescore it"
    """

    def __init__(self, problem: str, *, place: str | None = None, remedy: str | None = None):
        self.problem = problem = _cut(redact(problem), _LONGEST)
        self.place = place = redact(place)
        self.remedy = remedy = remedy and _cut(redact(remedy), 2 * _LONGEST)
        before = f"{place}: " if place else ""
        after = f"; {remedy}" if remedy else ""
        super().__init__(f"{before}{problem}{after}")


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

    def __init__(self, what: str, package: str, extra: str):
        super().__init__(f"{what} needs {package}: pip install 'rankproof[{extra}]'")


_PACKAGES = {
    "Stemmer": "PyStemmer",
    "faiss": "faiss-cpu",
    "ml_dtypes": "ml_dtypes",
    "vl_convert": "vl-convert-python",
}


def import_extra(module: str, what: str, extra: str) -> Any:
    """A module that an extra brings; without it, what cannot be done and how to install it."""
    try:
        return import_module(module)
    except ImportError:
        first = module.partition(".")[0]
        package = _PACKAGES.get(first, first.replace("_", "-"))
        raise MissingExtra(what, package, extra) from None


def check_choice(what: str, given: object, known: Iterable[str]) -> None:
    """Refuse a word that is none of those known."""
    words = list(known)
    if given not in words:
        ways = " or ".join(words) if len(words) == 2 else f"one of {', '.join(words)}"
        raise InputError(f"{what} {shorten(given)} is unknown", remedy=f"use {ways}")


def check_whole_number(what: str, given: object, least: int = 1, remedy: str | None = None) -> None:
    """Refuse what is no whole number, or less than the least."""
    if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
        raise InputError(f"{what} = {shorten(given)}", remedy=remedy or f"give {least} or more")


_NO_ROOM = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}


def disk_remedy(remedy: str, error: OSError) -> str:
    """Return the remedy of a failed write: to make room on a full disk or in a full quota."""
    return "make room" if error.errno in _NO_ROOM else remedy


def first_line(error: BaseException) -> str:
    """What an error of another library says, or its kind where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def first_few(names: Sequence[str], most: int = 3) -> str:
    """The first of many, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def shorten(value: object, limit: int = 60) -> str:
    """Return `repr` of a value for one line of an error message, however large the value is.

    Of nested lists and mappings no more is visited than is shown: a few lines of YAML can stand for
    billions of values. Secrets go first: half of one that was cut in two would not be known again.
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
    """Yield `repr` of a value a piece at a time, so that whoever has enough can stop."""
    kind = type(value)
    if kind not in _BRACKETS or (kind is set and not value):
        try:
            yield repr(value)
        except Exception:  # a class of the user's, or an integer of thousands of digits
            yield f"<{kind.__name__}>"
        return
    opening, closing = _BRACKETS[kind]
    yield opening
    for at, item in enumerate(value):
        if at:
            yield ", "
        yield from _repr_parts(item)
        if kind is dict:
            yield ": "
            yield from _repr_parts(value[item])
    yield f",{closing}" if kind is tuple and len(value) == 1 else closing
