"""Text from a user's file, made safe to show: it is read, and never acts.

Control characters move a terminal's cursor, bidirectional overrides turn a line round, a line feed
ends a row of a table, and a spreadsheet runs what begins with `=`. All that people are shown goes
through here; what is stored and compared does not.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

# C0 and C1 controls, the marks and overrides of bidirectional text, line and paragraph separators,
# and halves of surrogate pairs, which no encoding can write.
ACTING = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_ACTING = re.compile(f"[{ACTING}]")
_UNDECODED = re.compile("[\ud800-\udfff]+")
_ACTING_IN_TEXT = re.compile(f"(?![\n\t])[{ACTING}]")
# What Markdown reads as a tag, emphasis, a link, a picture, a character's name or the end of a
# cell, and what undoes its own escapes; an underscore inside a word is none.
_MARKUP = re.compile(r"[*<|~]|(?<![^\W_])_|_(?![^\W_])|\](?=\()|&(?=#?\w+;)|\\(?=[!-/:-@\[-`{-~])")
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"


def escape_controls(text: str, *, lines: bool = False) -> str:
    r"""Text with what acts written out: `\x1b`, `\u202e`. With `lines`, line feeds and tabs stay.

    >>> visible("a\x1b[2Jb\u202ec")
    'a\\x1b[2Jb\\u202ec'
    """
    return (_ACTING_IN_TEXT if lines else _ACTING).sub(_written_out, text)


def printable_path(name: str) -> str:
    """Return a file's name as text that every format can hold.

    On Unix a name may be any bytes. Those that are not UTF-8 are written as in an address:
    `r%E9.trec`.
    """
    return _UNDECODED.sub(_percent_encoded, name)


def _percent_encoded(undecoded: re.Match[str]) -> str:
    try:
        data = os.fsencode(undecoded[0])
    except UnicodeEncodeError:  # no file's name: a surrogate of a Python string
        data = undecoded[0].encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in data)


def _written_out(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]


def escape_markdown(text: str) -> str:
    r"""Text that Markdown shows as it is; what stands between backticks stays code.

    >>> in_markdown("_a_b|<c>*")
    '\\_a_b\\|\\<c>\\*'
    """
    return _MARKUP.sub(r"\\\g<0>", text)


def escape_formula(cell: str) -> str:
    """A cell of CSV that no spreadsheet runs: `=1+1` becomes `'=1+1`, a number stays.

    >>> inert("=HYPERLINK(1)"), inert("-0.5"), inert("bm25")
    ("'=HYPERLINK(1)", '-0.5', 'bm25')
    """
    acts = re.match(_FORMULA, cell) and len(cell) > 1 and not re.match(_NUMBER, cell)
    return f"'{cell}" if acts else cell


def escape_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """`inert` for every column of text."""
    import polars as pl

    text = pl.col(pl.String)
    acts = text.str.contains(_FORMULA) & (text.str.len_bytes() > 1) & ~text.str.contains(_NUMBER)
    return frame.with_columns(pl.when(acts).then(pl.lit("'") + text).otherwise(text).name.keep())
