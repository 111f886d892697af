"""Read an Arrow stream one record batch at a time, since polars reads a stream whole.

A stream is a sequence of messages: a schema, dictionaries, record batches. Each message is
ff ff ff ff, the length of its header, the header (a FlatBuffer), and a body whose length the header
states.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import IO

import polars as pl

from rankproof.data.sources import Source
from rankproof.foundation.errors import InputError

_CONTINUATION = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3  # MessageHeader


def arrow_batches(source: Source, limit: int) -> Iterator[pl.DataFrame]:
    """Yield the record batches of a stream as frames; `limit` bounds the bytes of one."""
    with source.open(source.report) as file:
        preamble = b""  # the schema and all dictionaries, which reading a batch needs
        while (message := _message(file, source, limit)) is not None:
            kind, data = message
            if kind == _BATCH:
                yield pl.read_ipc_stream(io.BytesIO(preamble + data))
            elif kind in (_SCHEMA, _DICTIONARY):
                preamble += data
                if len(preamble) > limit:
                    raise _too_large(source, len(preamble))


def _message(file: IO[bytes], source: Source, limit: int) -> tuple[int, bytes] | None:
    """Return the kind of the next message and all its bytes; None at the end."""
    begin = file.read(8)
    if len(begin) < 8:
        return None
    mark, length = struct.unpack("<II", begin)
    if mark != _CONTINUATION or not length:
        return None
    if length > limit:
        raise _too_large(source, length)
    header = file.read(length)
    try:
        kind, size = _parse_header(header)
    except (struct.error, IndexError):
        raise _cut_short(source) from None
    if not 0 <= size <= limit:
        raise _too_large(source, size)
    body = file.read(size)
    if len(header) < length or len(body) < size:
        raise _cut_short(source)
    return kind, begin + header + body


def _parse_header(header: bytes) -> tuple[int, int]:
    """Return the kind of a message and the length of its body: fields 1 and 3 of its table."""

    def number(form: str, offset: int) -> int:
        return int(struct.unpack_from(form, header, offset)[0])

    root = number("<I", 0)
    fields = root - number("<i", root)
    count = (number("<H", fields) - 4) // 2

    def field(index: int, form: str) -> int:
        offset = number("<H", fields + 4 + 2 * index) if index < count else 0
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
