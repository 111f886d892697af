"""Make text from other people's files safe to show.

Control characters move a terminal's cursor, bidirectional overrides reverse a line, a line feed
ends a table's row, and a spreadsheet runs a cell that begins with `=`. Everything that is shown
passes through here; what is stored or compared does not.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

# C0 and C1 controls, the marks and overrides of bidirectional text, line and paragraph separators,
# and halves of surrogate pairs, which no encoding can write.
CONTROLS = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL = re.compile(f"[{CONTROLS}]")
_SURROGATES = re.compile("[\ud800-\udfff]+")
_CONTROL_IN_LINES = re.compile(f"(?![\n\t])[{CONTROLS}]")
# Characters that Markdown reads as markup or as the end of a cell, and backslashes that would undo
# an escape; an underscore inside a word is not markup.
_MARKUP = re.compile(r"[*<|~]|(?<![^\W_])_|_(?![^\W_])|\](?=\()|&(?=#?\w+;)|\\(?=[!-/:-@\[-`{-~])")
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"


def escape_controls(text: str, *, lines: bool = False) -> str:
    r"""Return text with control characters written out (`\x1b`); `lines` keeps line feeds and tabs.

    >>> escape_controls("a\x1b[2Jb\u202ec")
    'a\\x1b[2Jb\\u202ec'
    """
    return (_CONTROL_IN_LINES if lines else _CONTROL).sub(_as_escape, text)


def printable_path(name: str) -> str:
    """Return a file's name as text that every format can hold.

    On Unix a name may be any bytes; those that are not UTF-8 are percent-encoded: `r%E9.trec`.
    """
    return _SURROGATES.sub(_percent_encoded, name)


def _percent_encoded(surrogates: re.Match[str]) -> str:
    try:
        data = os.fsencode(surrogates[0])
    except UnicodeEncodeError:  # a surrogate that does not come from a file's name
        data = surrogates[0].encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in data)


def _as_escape(control: re.Match[str]) -> str:
    return repr(control[0])[1:-1]


def escape_markdown(text: str) -> str:
    r"""Return text that Markdown shows as it is; code between backticks stays code.

    >>> escape_markdown("_a_b|<c>*")
    '\\_a_b\\|\\<c>\\*'
    """
    return _MARKUP.sub(r"\\\g<0>", text)


def escape_formula(cell: str) -> str:
    """Return a CSV cell that no spreadsheet runs: `=1+1` becomes `'=1+1`, a number stays.

    >>> escape_formula("=HYPERLINK(1)"), escape_formula("-0.5"), escape_formula("bm25")
    ("'=HYPERLINK(1)", '-0.5', 'bm25')
    """
    is_formula = re.match(_FORMULA, cell) and len(cell) > 1 and not re.match(_NUMBER, cell)
    return f"'{cell}" if is_formula else cell


def escape_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """Apply `escape_formula` to every text column."""
    import polars as pl

    text = pl.col(pl.String)
    is_formula = text.str.contains(_FORMULA) & ~text.str.contains(_NUMBER)
    escaped = pl.when(is_formula & (text.str.len_bytes() > 1)).then(pl.lit("'") + text)
    return frame.with_columns(escaped.otherwise(text).name.keep())
