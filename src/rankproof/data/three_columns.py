"""Lines of three columns without a header: query, document, and a number.

    plain     the number is a score, or a grade
    msmarco   it is a rank, as in MS MARCO's submissions: the score is minus the rank

Which of the two a run is can only be guessed: it is MS MARCO's where the third column counts 1, 2,
3, … through each list of the first lines.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankproof.data.columns import Columns, Kind, columns_of, first_of, no_rows
from rankproof.data.hits import RANKS
from rankproof.data.sources import Source
from rankproof.data.trec import place_in, split_fields
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import plural


def guess(head: bytes, kind: Kind) -> str | None:
    """`plain` or `msmarco` where the first lines have three columns; None otherwise."""
    lines = map(bytes.split, head.split(b"\n"))
    rows = [row for row in lines if row and not row[0].startswith(b"#")]
    if not rows or any(len(row) != 3 for row in rows):
        return None
    if kind == "qrels":
        return "plain"
    next_rank: dict[bytes, int] = {}
    for query, _, number in rows:
        wanted = next_rank.get(query, 1)
        if number.lstrip(b"0") != b"%d" % wanted:
            return "plain"
        next_rank[query] = wanted + 1
    return "msmarco"


def read_plain(source: Source, kind: Kind) -> Columns:
    return _columns(source, kind)


def read_msmarco(source: Source, kind: Kind) -> Columns:
    """Ranks as scores that fall; a rank that two documents share is no tie that was measured."""
    if kind == "qrels":
        raise InputError(
            "MS MARCO's ranks are a run", place=source.label, remedy="name the judgements"
        )
    found = _columns(source, kind)
    wrong = (found.value < 1) | (found.value != np.trunc(found.value)) | np.isinf(found.value)
    if wrong.any():
        at = int(wrong.argmax())
        raise InputError(
            f"rank {found.value[at]:g} is not 1, 2, 3, …",
            place=found.place(at),
            remedy="name the format that it is (format=, --input-format plain)",
        )
    return replace(found, value=-found.value, dtype=RANKS, rest=None)


def _columns(source: Source, kind: Kind) -> Columns:
    place = place_in(source)
    text, wrong = source.decoded(source.read(source.report))
    lines, fields = split_fields(text)
    query, doc, number = (fields.list.get(at, null_on_oob=True) for at in range(3))

    def not_three(at: int) -> InputError:
        return InputError(
            f"{plural(len(fields[at]), 'column')} where the others have 3: {shorten(lines[at])}",
            place=place(at),
            remedy="fix the line, or name the file's format (format=, --input-format)",
        )

    uneven = first_of(fields.list.len() != 3), not_three
    found = columns_of(query, doc, number, kind, place, uneven)
    if wrong is not None:  # and none before it
        raise wrong
    if not len(lines):
        raise no_rows(source.label)
    return found
