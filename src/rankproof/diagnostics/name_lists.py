"""Names and topics: the lists that ship with the package, or a user's CSV."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal, TypeVar, get_args

from rankproof.foundation.errors import InputError, shorten

Language = Literal["en", "fr"]
T = TypeVar("T")
LANGUAGES: tuple[Language, ...] = get_args(Language)

# Small words that belong to the family name they stand before.
_PARTICLES = """
abu af aït al ben bent bin bint bou da das de degli dei del della den der des di do dos du e el ibn
la las le lo los mac mc ní ó o op ould san st te ten ter umm van vom von y zu zum zur
"""
PARTICLES = frozenset(_PARTICLES.split())


@dataclass(frozen=True, slots=True)
class Author:
    """A person who does not exist, or one from the user's list.

    >>> from rankproof.diagnostics import Author
    >>> Author("Ada", "Example").full
    'Ada Example'
    """

    given: str  # empty where a person has one name
    family: str  # with its particles

    @property
    def full(self) -> str:
        return f"{self.given} {self.family}" if self.given else self.family


@dataclass(frozen=True, slots=True)
class Lists:
    """Who may write, and on what: all different, also once accents and case are taken off.

    >>> from rankproof.diagnostics import shipped
    >>> found = shipped("en")
    >>> found.authors[0].full, found.topics[0]
    ('Maud Ashmorrow', 'soil chemistry')
    """

    authors: tuple[Author, ...]
    topics: tuple[str, ...]
    label: str


def check_language(language: str) -> Language:
    if language not in LANGUAGES:
        raise InputError(
            f"language {shorten(language)} has no templates", remedy=f"use {' or '.join(LANGUAGES)}"
        )
    return language


def shipped(language: str) -> Lists:
    """The made-up names and the topics of the package.

    >>> from rankproof.diagnostics import shipped
    >>> len(shipped("fr").authors)
    282
    """
    data = files("rankproof") / "resources"
    known = check_language(language)
    rows = csv.DictReader(io.StringIO((data / f"names.{known}.csv").read_text("utf-8")))
    authors = tuple(Author(row["given"], row["family"]) for row in rows)
    topics = tuple((data / f"topics.{known}.txt").read_text("utf-8").splitlines())
    return Lists(authors, topics, f"rankproof's {known} lists")


def read_lists(path: str | Path) -> Lists:
    """A CSV with the columns author and topic: two lists side by side, each value once.

    A column may end before the other. "Ada Lindqvist" and "Lindqvist, Ada" are both understood.

    >>> from rankproof.diagnostics import read_lists
    >>> from pathlib import Path
    >>> _ = Path("lists.csv").write_text("author,topic" + chr(10) + "Ada Example,tides")
    >>> [author.full for author in read_lists("lists.csv").authors]
    ['Ada Example']
    """
    from rankproof.data.sources import Source

    reader = csv.reader(io.StringIO(Source(path).text(), newline=""), strict=True)
    try:
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InputError(
            f"not CSV: {error}", place=f"{path}:{reader.line_num}", remedy="check that line"
        ) from None
    if not rows:
        raise InputError("the file is empty", place=str(path), remedy="write author,topic and rows")
    head = [cell.strip().casefold() for cell in rows[0][1]]
    for column in ("author", "topic"):
        if head.count(column) != 1:
            raise InputError(
                f"there is no column {column!r}"
                if column not in head
                else f"column {column!r} appears twice",
                place=str(path),
                remedy="the first line must name the columns author and topic",
            )
    found = {
        column: [
            (line, unicodedata.normalize("NFC", " ".join(row[at].split())))
            for line, row in rows[1:]
            if len(row) > at and row[at].strip()
        ]
        for column, at in (("author", head.index("author")), ("topic", head.index("topic")))
    }
    topics = _once(found["topic"], str, "topic", str(path))
    authors = _once(found["author"], split_name, "author", str(path))
    return Lists(tuple(authors), tuple(topics), Path(path).name)


def check_lists(lists: Lists) -> Lists:
    """A bundle takes three people and two topics."""
    for count, least, what in (
        (len(lists.authors), 3, "authors"),
        (len(lists.topics), 2, "topics"),
    ):
        if count < least:
            raise InputError(
                f"{count} {what if count != 1 else what[:-1]}",
                place=lists.label,
                remedy=f"give {least} {what} or more: a bundle needs wrong ones too",
            )
    return lists


def split_name(name: str) -> Author:
    """The family name is the last word and the particles before it, or what stands before a comma.

    >>> split_name("Ilse van der Holm")
    Author(given='Ilse', family='van der Holm')
    """
    before, comma, after = (part.strip() for part in name.partition(","))
    if comma and before and after:
        return Author(after, before)
    words = name.split()
    first = len(words) - 1
    while first > 1 and words[first - 1].casefold().strip("’'") in PARTICLES:
        first -= 1
    return Author(" ".join(words[:first]), " ".join(words[first:]))


def normalised(text: str) -> str:
    """Letters and digits alone, without case or accents: two names equal here are one person."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in decomposed if c.isalnum())


def _once(
    values: Sequence[tuple[int, str]], make: Callable[[str], T], what: str, path: str
) -> list[T]:
    """What a column holds; a value that another one equals is refused."""
    seen: dict[str, tuple[int, str]] = {}
    for line, text in values:
        key = normalised(text) or text
        if key in seen:
            earlier, other = seen[key]
            alike = f"as {shorten(other)}, but for case, accents and signs,"
            same = "already" if other == text else alike
            raise InputError(
                f"{what} {shorten(text)} stands {same} on line {earlier}",
                place=f"{path}:{line}",
                remedy=f"write each {what} once",
            )
        seen[key] = (line, text)
    return [make(text) for _, text in values]
