"""Read lines of three columns without a header: query, document, and a number.

    plain     the number is a score or a grade
    msmarco   the number is a rank, as in MS MARCO's submissions; the score is minus the rank

Which of the two a run is has to be guessed: msmarco if the third column counts 1, 2, 3, … within
each list of the first lines.
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
    """Return `plain` or `msmarco` if the first lines have three columns, else None."""
    lines = map(bytes.split, head.split(b"\n"))
    rows = [row for row in lines if row and not row[0].startswith(b"#")]
    if not rows or any(len(row) != 3 for row in rows):
        return None
    if kind == "qrels":
        return "plain"
    next_rank: dict[bytes, int] = {}
    for query, _, number in rows:
        rank = next_rank.get(query, 1)
        if number.lstrip(b"0") != b"%d" % rank:
            return "plain"
        next_rank[query] = rank + 1
    return "msmarco"


def read_plain(source: Source, kind: Kind) -> Columns:
    """Return query, document and score or grade."""
    return _columns(source, kind)


def read_msmarco(source: Source, kind: Kind) -> Columns:
    """Return ranks as descending scores; documents that share a rank are not a measured tie."""
    if kind == "qrels":
        raise InputError(
            "MS MARCO's ranks are a run", place=source.label, remedy="name the judgements"
        )
    columns = _columns(source, kind)
    rank = columns.value
    is_invalid = (rank < 1) | (rank != np.trunc(rank)) | np.isinf(rank)
    if is_invalid.any():
        row = int(is_invalid.argmax())
        raise InputError(
            f"rank {rank[row]:g} is not 1, 2, 3, …",
            place=columns.place(row),
            remedy="name the format that it is (format=, --input-format plain)",
        )
    return replace(columns, value=-rank, dtype=RANKS, rest=None)


def _columns(source: Source, kind: Kind) -> Columns:
    place = place_in(source)
    text, encoding_error = source.decoded(source.read(source.report))
    lines, fields = split_fields(text)
    query, doc, number = (fields.list.get(column, null_on_oob=True) for column in range(3))

    def not_three(row: int) -> InputError:
        return InputError(
            f"{plural(len(fields[row]), 'column')} where the others have 3: {shorten(lines[row])}",
            place=place(row),
            remedy="fix the line, or name the file's format (format=, --input-format)",
        )

    uneven = first_of(fields.list.len() != 3), not_three
    columns = columns_of(query, doc, number, kind, place, uneven)
    if encoding_error is not None:  # all lines before it are valid
        raise encoding_error
    if not len(lines):
        raise no_rows(source.label)
    return columns
