"""Lists of authors and topics: those that ship with rankproof, or a user's CSV."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal, get_args

from rankproof.foundation.errors import InputError, shorten

Language = Literal["en", "fr"]
LANGUAGES: tuple[Language, ...] = get_args(Language)

# Words that belong to the family name that follows them.
_PARTICLES = """
abu af aït al ben bent bin bint bou da das de degli dei del della den der des di do dos du e el ibn
la las le lo los mac mc ní ó o op ould san st te ten ter umm van vom von y zu zum zur
"""
PARTICLES = frozenset(_PARTICLES.split())


@dataclass(frozen=True, slots=True)
class Author:
    """An author: an invented person, or one from the user's list.

    >>> from rankproof.diagnostics import Author
    >>> Author("Ada", "Example").full
    'Ada Example'
    """

    given: str  # given names; empty if the person has one name only
    family: str  # family name with its particles

    @property
    def full(self) -> str:
        return f"{self.given} {self.family}" if self.given else self.family


@dataclass(frozen=True, slots=True)
class NameLists:
    """Authors and topics from which bundles are drawn; they differ in more than case and accents.

    >>> from rankproof.diagnostics import shipped_lists
    >>> lists = shipped_lists("en")
    >>> lists.authors[0].full, lists.topics[0]
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


def shipped_lists(language: str) -> NameLists:
    """Return the invented authors and the topics that ship with rankproof.

    >>> from rankproof.diagnostics import shipped_lists
    >>> len(shipped_lists("fr").authors)
    282
    """
    data = files("rankproof") / "resources"
    known = check_language(language)
    rows = csv.DictReader(io.StringIO((data / f"names.{known}.csv").read_text("utf-8")))
    authors = tuple(Author(row["given"], row["family"]) for row in rows)
    topics = tuple((data / f"topics.{known}.txt").read_text("utf-8").splitlines())
    return NameLists(authors, topics, f"rankproof's {known} lists")


def read_lists(path: str | Path) -> NameLists:
    """Read a CSV with the columns author and topic: two lists side by side, each value once.

    One list may be longer. Names are written as "Ada Lindqvist" or "Lindqvist, Ada".

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
    topics = _column(rows[1:], head.index("topic"), "topic", path)
    names = _column(rows[1:], head.index("author"), "author", path)
    return NameLists(tuple(map(split_name, names)), tuple(topics), Path(path).name)


def check_lists(lists: NameLists) -> NameLists:
    """Return the lists; refuse fewer than the three authors and two topics of a bundle."""
    for count, minimum, noun in (
        (len(lists.authors), 3, "authors"),
        (len(lists.topics), 2, "topics"),
    ):
        if count < minimum:
            raise InputError(
                f"{count} {noun if count != 1 else noun[:-1]}",
                place=lists.label,
                remedy=f"give {minimum} {noun} or more: a bundle needs wrong ones too",
            )
    return lists


def split_name(name: str) -> Author:
    """Split a name: the family name precedes a comma, or is the last word with its particles.

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
    """Return only letters and digits, without case and accents, to recognize repeated names."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in decomposed if c.isalnum())


def _column(
    rows: Sequence[tuple[int, list[str]]], at: int, noun: str, path: str | Path
) -> list[str]:
    """Return the values of a column, without empty cells; refuse a repeated value."""
    seen: dict[str, tuple[int, str]] = {}
    for line, row in rows:
        if len(row) <= at or not row[at].strip():
            continue
        text = unicodedata.normalize("NFC", " ".join(row[at].split()))
        key = normalised(text) or text
        if key in seen:
            earlier_line, earlier = seen[key]
            same = f"as {shorten(earlier)}, but for case, accents and signs,"
            raise InputError(
                f"{noun} {shorten(text)} stands {'already' if earlier == text else same} "
                f"on line {earlier_line}",
                place=f"{path}:{line}",
                remedy=f"write each {noun} once",
            )
        seen[key] = (line, text)
    return [text for _, text in seen.values()]
