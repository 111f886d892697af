"""An Arrow stream, a record batch at a time; polars reads a stream whole.

It is a row of messages: a schema, dictionaries, record batches. Each is ff ff ff ff, the length of
its description (a FlatBuffer), that, and a body whose length the description tells.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import IO

import polars as pl

from rankproof.data.sources import Source
from rankproof.foundation.errors import InputError

_GOES_ON = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3  # MessageHeader


def arrow_batches(source: Source, most: int) -> Iterator[pl.DataFrame]:
    """The record batches of a stream as frames; `most` bounds the bytes of one."""
    with source.open(source.report) as file:
        before = b""  # the schema and all dictionaries, without which a batch cannot be read
        while (message := _message(file, source, most)) is not None:
            kind, data = message
            if kind == _BATCH:
                yield pl.read_ipc_stream(io.BytesIO(before + data))
            elif kind in (_SCHEMA, _DICTIONARY):
                before += data
                if len(before) > most:
                    raise _too_large(source, len(before))


def _message(file: IO[bytes], source: Source, most: int) -> tuple[int, bytes] | None:
    """What a message is and all its bytes; None at the end."""
    begin = file.read(8)
    if len(begin) < 8:
        return None
    mark, length = struct.unpack("<II", begin)
    if mark != _GOES_ON or not length:
        return None
    if length > most:
        raise _too_large(source, length)
    described = file.read(length)
    try:
        kind, size = _described(described)
    except (struct.error, IndexError):
        raise _cut_short(source) from None
    if not 0 <= size <= most:
        raise _too_large(source, size)
    body = file.read(size)
    if len(described) < length or len(body) < size:
        raise _cut_short(source)
    return kind, begin + described + body


def _described(table: bytes) -> tuple[int, int]:
    """What a message is, and the length of its body: fields 1 and 3 of its table."""

    def number(form: str, at: int) -> int:
        return int(struct.unpack_from(form, table, at)[0])

    root = number("<I", 0)
    fields = root - number("<i", root)
    count = (number("<H", fields) - 4) // 2

    def field(which: int, form: str) -> int:
        offset = number("<H", fields + 4 + 2 * which) if which < count else 0
        return number(form, root + offset) if offset else 0

    return field(1, "<B"), field(3, "<q")


def _too_large(source: Source, size: int) -> InputError:
    return InputError(
        f"a record batch of {size} bytes, too large for the memory given",
        place=source.label,
        remedy="write smaller batches, or give more memory (--memory)",
    )


def _cut_short(source: Source) -> InputError:
    return InputError(
        "not arrow, or cut short", place=source.label, remedy="fetch or write the file again"
    )
