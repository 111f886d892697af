"""What holds for every file: a clean error, or the same table whoever reads it.

Each file is read with the compiled code and without it, cut into blocks of a few bytes, a few rows
at a time as large runs are, and by `plain.py`. Nothing but a `RankproofError` of one line may come
out.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import plain

from rankproof import read_qrels, read_run
from rankproof.data import sources, trec
from rankproof.data.beir import read_corpus
from rankproof.data.columns import Kind
from rankproof.data.formats import format_of
from rankproof.data.sources import Format, Source
from rankproof.evaluation.streaming import shards
from rankproof.foundation import kernels
from rankproof.foundation.errors import RankproofError

Lists = dict[str, list[tuple[str, bytes]]]  # of each query: documents and the bits of their numbers


class Found(AssertionError):
    """Two readers disagree."""


@contextmanager
def _cut(size: int, threads: int, native: Any) -> Iterator[None]:
    """Blocks of so many bytes, so that lines go on from one to the next."""
    with (
        mock.patch.object(sources, "CHUNK", size),
        mock.patch.object(trec, "CHUNK", size),
        mock.patch.object(shards, "CHUNK", size),
        mock.patch.object(shards, "MIN_TEXT", size),
        mock.patch.object(kernels, "THREADS", threads),
        mock.patch.object(kernels, "_ROWS_PER_THREADING", 0),
        mock.patch.object(kernels, "native", native),
    ):
        yield


def _bits(value: float) -> bytes:
    return struct.pack("<d", value + 0.0)


def _read(path: Path, kind: Kind, form: Format | None) -> Lists | str:
    """The table by query, or the message of a clean error."""
    read: Any = read_run if kind == "run" else read_qrels
    return _lists(lambda: read(path, format=form).to_frame().rows())


def _streamed(path: Path, form: Format | None, rows: int) -> Lists | str | None:
    """The same a few rows at a time; None where it has to be read whole."""
    try:
        shard = shards.Shard(path, form)
    except RankproofError as error:
        return str(error)
    if not shard.is_streamable:
        return None
    return _lists(
        lambda: (row for chunk in shard.chunks(rows) for row in chunk.rows.frame().rows())
    )


def _needs_all(compiled: Lists | str, streamed: Lists | str) -> bool:
    """What a few rows at a time do not show, or what nobody finds the words for twice."""
    said = f"{compiled} {streamed}"
    return any(
        words in said
        for words in (
            "past 2^53",  # told apart where all are read
            " a second time; ",  # of pairs whoever brings the rows together tells
            "no rows; ",
            "where { belongs",  # of what is no object
            "CSV malformed",  # in polars' own words
        )
    )


def _lists(rows: Callable[[], Iterable[tuple[str, str, float]]]) -> Lists | str:
    lists: Lists = defaultdict(list)
    try:
        for query, doc, value in rows():
            lists[query].append((doc, _bits(value)))
    except RankproofError as error:
        message = str(error)
        if "\n" in message or not message:
            raise Found(f"a message of more than one line: {message!r}") from error
        return message
    return dict(lists)


def _plain(path: Path, kind: Kind, form: Format | None) -> Lists:
    source = Source(path)
    data = source.read()
    known = form or format_of(source, kind)
    if form is None and known in ("plain", "msmarco"):
        ranks = kind == "run" and plain.ranks(data)
        if ranks != (known == "msmarco"):
            raise Found(f"three columns are taken for {known}")
    lists: Lists = defaultdict(list)
    for query, doc, value in plain.rows(data, kind, known):
        if kind == "run" or value >= 0:  # a negative grade says that nobody judged
            lists[query].append((doc, _bits(value)))
    return dict(lists)


def check_table(folder: Path, data: bytes, kind: Kind, form: Format | None) -> bool:
    """Whether the file was accepted; raises where readers disagree."""
    path = folder / "file"
    path.write_bytes(data)
    spread = sum(data[:64])  # decided by the file, so that it fails again
    with _cut(1 + spread % 97, 1 + spread % 3, kernels.native):
        compiled = _read(path, kind, form)
    with _cut(1 << 22, 1, None):
        other = _read(path, kind, form)
    if compiled != other:
        raise Found(f"compiled: {compiled!r}\nwithout: {other!r}")
    if kind == "run":
        with _cut(1 + spread % 97, 1, kernels.native):
            streamed = _streamed(path, form, 1 + spread % 5)
        if streamed not in (None, compiled) and not _needs_all(compiled, streamed):
            raise Found(f"at once: {compiled!r}\nin parts: {streamed!r}")
    if isinstance(compiled, str):
        return False
    expected = _plain(path, kind, form)
    if compiled != expected:
        raise Found(f"rankproof: {compiled!r}\nplain: {expected!r}")
    return True


def check_corpus(folder: Path, data: bytes) -> bool:
    """A BEIR folder: corpus, queries and judgements, one after the other in the file."""
    parts = [*data.split(b"\x00\n"), b"", b""]
    (folder / "qrels").mkdir(exist_ok=True)
    for name, part in zip(("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"), parts, strict=False):
        (folder / name).write_bytes(part)
    try:
        corpus = read_corpus(folder)
        qrels = read_qrels(corpus.qrels)
    except RankproofError as error:
        if "\n" in str(error):
            raise Found(f"a message of more than one line: {str(error)!r}") from error
        return False
    for part, ids in zip(parts, (corpus.document_ids, corpus.query_ids), strict=False):
        text = part.decode("utf-8-sig")
        if ids != [str(json.loads(line)["_id"]) for line in text.split("\n") if line.strip()]:
            raise Found(f"ids of {part!r}: {ids!r}")
    return len(qrels) >= 0


Check = Callable[[Path, bytes], bool]


def _table(kind: Kind, form: Format | None) -> Check:
    return partial(check_table, kind=kind, form=form)


TARGETS: dict[str, Check] = {
    "trec-run": _table("run", "trec"),
    "trec-qrels": _table("qrels", "trec"),
    "plain-run": _table("run", "plain"),
    "msmarco-run": _table("run", "msmarco"),
    "csv-run": _table("run", "csv"),
    "tsv-qrels": _table("qrels", "tsv"),
    "json-run": _table("run", "json"),
    "json-qrels": _table("qrels", "json"),
    "mteb-run": _table("run", "mteb"),
    "jsonl-run": _table("run", "jsonl"),
    "jsonl-qrels": _table("qrels", "jsonl"),
    "any-run": _table("run", None),  # the format is told by the first bytes
    "any-qrels": _table("qrels", None),
    "beir": check_corpus,
}
