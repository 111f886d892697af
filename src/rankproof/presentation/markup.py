"""Elements of HTML and SVG, put together so that no text from a user's file can act.

Text is escaped when an element is made and is `Html` from then on; template engines know such a
class by `__html__` and do not escape it again.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from rankproof.foundation.printable import escape_controls


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()

    def __html__(self) -> Html:
        return self

    def __add__(self, other: str) -> Html:
        return Html(str(self) + escape(other))


def escape(text: str) -> Html:
    """Return text as HTML: what has a meaning there is escaped, control characters written out."""
    if isinstance(text, Html):
        return text
    if hasattr(text, "__html__"):  # as a template engine's own class of HTML has it
        return Html(text)
    return Html(html.escape(escape_controls(text, lines=True)))


def join(parts: Iterable[str]) -> Html:
    """Return the parts behind one another; those that are not HTML are escaped."""
    return Html("".join(map(escape, parts)))


def element(tag: str, content: Iterable[str] | str = (), **attributes: object) -> Html:
    """Return one element.

    Attributes that are None are absent. A trailing underscore frees a keyword of Python (`class_`),
    other underscores become dashes.
    """
    inside = escape(content) if isinstance(content, str) else join(content)
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Html(f"<{tag}{named}>{inside}</{tag}>")


def _attribute(value: object) -> str:
    text = coordinate(value) if isinstance(value, float) else str(value)
    return html.escape(escape_controls(text, lines=True))


def coordinate(value: float) -> str:
    """Return a number of pixels with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


# A word is looked at from its first letter alone: a long id would be read from each on.
# Words in a row are one name; the colon or full stop behind it is the sentence's.
_WORD = r"[^\s<>&;,()]*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc][^\s<>&;,()]*"
_RIGHT_TO_LEFT = re.compile(rf"(?<![^\s<>&;,()]){_WORD}(?: {_WORD})*(?<![:.?!])")


def mark_up_sentence(words: str) -> Html:
    """Return a sentence with code between backticks, and names written from right to left isolated.

    Without `<bdi>` such a name would turn round the numbers beside it.
    """
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(words)))
    return Html(_RIGHT_TO_LEFT.sub(r"<bdi>\g<0></bdi>", escaped))
