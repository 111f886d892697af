"""Dicts of dicts and rows, as Python holds them and as JSON writes them, → columns."""

from __future__ import annotations

import codecs
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from numbers import Integral
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rankproof.data.columns import (
    LARGE,
    VALUE,
    Columns,
    Kind,
    Place,
    Written,
    all_or_first,
    encode,
    exact_text,
    is_large,
    no_rows,
    not_a_number,
    past_every_number,
    rest_of,
    text_ids,
    to_float,
)
from rankproof.data.foreign_tables import unpacked
from rankproof.data.frames import choose_columns, is_frame
from rankproof.data.hits import RANKS, read_hits, unwrapped
from rankproof.data.sources import Source, not_text
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, shorten

_T = TypeVar("_T")
_MTEB = "mteb_model_meta"  # the first key of what MTEB saves


def read_mapping(
    source: Mapping[Any, Any], kind: Kind, label: str | None = None, first: bool = True
) -> Columns:
    """{query: {document: number}}, as pytrec_eval, ranx and BEIR hold it.

    Also {query: [(document, number)]}, and of a run {query: [document]} and whatever a retriever
    returns for a query. An error is of the `first` list that has one, unless nobody asks for it.
    """
    label = label or kind
    if next(iter(source), None) == _MTEB:
        return _predicted(source, kind, label)
    source = {query: unwrapped(listed) for query, listed in source.items()}
    lists = list(source.items())
    read = all_or_first if first else _all
    found = read(lambda count: _of_lists(dict(lists[:count]), kind, label), len(lists))
    if found is None:
        raise no_rows(label)
    return found


def _all(read: Callable[[int], _T], count: int) -> _T:
    return read(count)


def _of_lists(source: Mapping[Any, Any], kind: Kind, label: str) -> Columns | None:
    """None where all lists are empty."""
    ranked = False
    if not all(isinstance(listed, Mapping) for listed in source.values()):
        source, ranked = _from_hits(source, kind, label)
    # A query with an empty list has no rows, as it would have in a file.
    lists = {query: listed for query, listed in source.items() if listed}
    if not lists:
        return None
    queries = list(lists)
    documents = list(chain.from_iterable(lists.values()))
    values = list(chain.from_iterable(listed.values() for listed in lists.values()))
    sizes = [len(listed) for listed in lists.values()]
    owner = np.repeat(np.arange(len(sizes)), sizes)

    def place(row: int) -> str:
        return f"{label}[{shorten(queries[owner[row]])}][{shorten(documents[row])}]"

    distinct, codes = encode(
        text_ids(queries, "query", lambda at: f"{label}[{shorten(queries[at])}]")
    )
    doc = text_ids(documents, "document", place)
    found = Columns(distinct, codes[owner], doc, *_numbers(values, kind, place))
    return replace(found, dtype=RANKS) if ranked else found


def _from_hits(
    source: Mapping[Any, Any], kind: Kind, label: str
) -> tuple[dict[Any, Mapping[Any, Any]], bool]:
    """Lists of hits as dicts of scores, and whether the scores are only minus the rank."""
    lists: dict[Any, Mapping[Any, Any]] = {}
    ranked: list[str] = []  # where
    for query, listed in source.items():
        place = f"{label}[{shorten(query)}]"
        if isinstance(listed, Mapping):
            lists[query] = listed
            continue
        if is_frame(unpacked(listed, kind)[1]):  # a DatasetDict's splits, say
            raise InputError(
                "a table where a dict of documents belongs",
                place=place,
                remedy=f"hand over one table: data[{query!r}]",
            )
        if isinstance(listed, str | bytes) or not isinstance(listed, Iterable):
            remedy = "write {query: {document: number}} or {query: [(document, number)]}"
            if kind == "qrels":
                remedy += "; if these are runs, name them and the judgements the other way round"
            raise InputError(
                f"{shorten(listed)} where a dict of documents belongs", place=place, remedy=remedy
            )
        hits = read_hits(listed, place, kept=True)
        if hits.ranked and kind == "qrels" and hits.ids:
            raise InputError(
                f"document {shorten(hits.ids[0])} has no grade",
                place=place,
                remedy="write {query: {document: grade}}",
            )
        if hits.ranked:
            ranked.append(place)
        lists[query] = dict(zip(hits.ids, hits.scores, strict=True))
    if 0 < len(ranked) < sum(bool(listed) for listed in lists.values()):
        raise without_scores(ranked[0])
    return lists, bool(ranked)


def without_scores(place: str) -> InputError:
    """The error for the first list that has ranks alone where others have scores."""
    return InputError(
        "this list has no scores where others have",
        place=place,
        remedy="score all of them, or none",
    )


def read_rows(source: Any, kind: Kind) -> Columns:
    """(query, document, number, …) rows, such as ir_measures' ScoredDoc and Qrel, or dicts."""
    queries: list[Any] = []
    documents: list[Any] = []
    values: list[Any] = []
    try:
        given = iter(source)
    except TypeError:
        raise _no_rows_in(source, kind, kind) from None
    names: list[str] = []
    for at, row in enumerate(given, 1):
        if isinstance(row, Mapping):
            names = names or choose_columns(map(str, row), kind, f"{kind}: row {at}")
            queries.append(row.get(names[0]))
            documents.append(row.get(names[1]))
            values.append(row.get(names[2]))
            continue
        try:
            query, doc, value = row[0], row[1], row[2]
        except (TypeError, IndexError, KeyError):
            raise _no_rows_in(row, kind, f"{kind}: row {at}") from None
        if isinstance(row, str | bytes):  # whose letters are no ids
            raise _no_rows_in(row, kind, f"{kind}: row {at}")
        queries.append(query)
        documents.append(doc)
        values.append(value)
    return _from_lists(queries, documents, values, kind, kind, lambda row: f"{kind}: row {row + 1}")


def _no_rows_in(value: Any, kind: Kind, place: str) -> InputError:
    return InputError(
        f"cannot read a {kind} from {shorten(value)}",
        place=place,
        remedy=f"give a path, a dict of dicts, a frame or (query, doc, {VALUE[kind]}) rows",
    )


def _from_lists(
    queries: list[Any],
    documents: list[Any],
    values: list[Any],
    kind: Kind,
    label: str,
    place: Place,
) -> Columns:
    if not queries:
        raise no_rows(label)

    def read(count: int) -> Columns:
        distinct, codes = encode(text_ids(queries[:count], "query", place))
        doc = text_ids(documents[:count], "document", place)
        return Columns(distinct, codes, doc, *_numbers(values[:count], kind, place))

    return all_or_first(read, len(queries))


_NARROW = ({"float32"}, {"float16"}, {"bfloat16"})


def _numbers(given: list[Any], kind: Kind, place: Place) -> tuple[Float, Place, str, Float | None]:
    """Numbers as float64, where they stand, the format they came in, and what that left of them.

    The format is that of numpy scalars, if all are such.
    """
    types = {kind.__name__ for kind in set(map(type, given))}
    if types == {"float"}:
        value = np.array(given, np.float64)
        if kind != "run" or not np.isnan(value).any():
            return value, place, "float64", None
    value = np.empty(len(given))
    for at, item in enumerate(given):
        if isinstance(item, str | bytes):
            raise InputError(
                f"{VALUE[kind]} {shorten(item)} is text, not a number",
                place=place(at),
                remedy="convert it with float()",
            )
        if kind == "run" and isinstance(item, bool | np.bool_):  # which says no order
            raise not_a_number(kind, item, place(at))
        try:
            value[at] = to_float(item)
        except OverflowError:
            raise past_every_number(kind, item, place(at)) from None
        except (TypeError, ValueError, ArithmeticError):
            raise not_a_number(kind, item, place(at)) from None
        if kind == "run" and math.isnan(value[at]):  # before what is wrong with a later one
            raise not_a_number(kind, np.nan, place(at))
    rest = rest_of(value, lambda at: _exact(given[at]))
    return value, place, types.pop() if types in _NARROW else "float64", rest


def _exact(number: Any) -> Fraction:
    if isinstance(number, Written):
        return exact_text(number.text)
    if isinstance(number, Decimal | Fraction):
        return Fraction(number)
    return Fraction(int(number) if isinstance(number, Integral) else float(number))


# --------------------------------------------------------------------------------------- JSON


def read_json(source: Source, kind: Kind) -> Columns:
    """{"query": {"document": number}}, or a list of records."""
    if not source.head.lstrip().startswith(b"{"):
        return _exactly(source, lambda loaded: _from_json(loaded, kind, source))
    data = source.read(source.report)
    with suppress(InputError):
        loaded = _parse(source.decode(data), source.label)
        found = read_mapping(loaded, kind, source.label, first=False)
        if not is_inexact(found):
            return found
    # Else in the words of who reads it in parts.
    members = json_queries(source, source.chunks(), sys.maxsize)
    for found in read_members(members, kind, source.label, sys.maxsize):
        return found
    raise no_rows(source.label)


def _exactly(source: Source, read: Callable[[Any], Columns]) -> Columns:
    """The columns of a file that is one JSON text, `read` of what it says."""
    text = source.text(source.report)
    return exactly(lambda exact: read(_parse(text, source.label, exact=exact)))


def exactly(read: Callable[[bool], Columns]) -> Columns:
    """`read(exact=False)`, or True: `json` makes infinity of numbers past float64, and one of
    several past 2⁵³. Where there are such, or an error that may not be the first, all is read once
    more with these as they are: the reader of numbers refuses them, or sees what is left of them.
    """
    with suppress(InputError):
        columns = read(False)
        if not is_inexact(columns):
            return columns
    return read(True)


def is_inexact(columns: Columns) -> bool:
    """Whether `json` may have made one number of several."""
    return is_large(columns.value) or bool(np.isinf(columns.value).any())


def _from_json(loaded: Any, kind: Kind, source: Source) -> Columns:
    if isinstance(loaded, list) and all(isinstance(row, dict) for row in loaded):
        names = choose_columns(loaded[0], kind, source.label) if loaded else []
        query, doc, number = ([row.get(n) for row in loaded] for n in names or ("", "", ""))
        return _from_lists(
            query, doc, number, kind, source.label, lambda row: f"{source.label}[{row}]"
        )
    if not isinstance(loaded, dict):
        remedy = 'write {"query": {"document": number}}, or one object a line (.jsonl)'
        raise _no_object(loaded, source.label, remedy)
    return read_mapping(loaded, kind, source.label)


def _no_object(found: Any, place: str, remedy: str) -> InputError:
    return InputError(
        f"a JSON {type(found).__name__} where an object of objects belongs",
        place=place,
        remedy=remedy,
    )


def read_mteb(source: Source, kind: Kind) -> Columns:
    """Predictions as MTEB saves them: {"mteb_model_meta": …, subset: {split: {query: …}}}."""

    def read(loaded: Any) -> Columns:
        if not isinstance(loaded, dict):
            raise _no_object(loaded, source.label, "name the predictions of a retrieval task")
        return _predicted(loaded, kind, source.label)

    return _exactly(source, read)


def _predicted(loaded: Mapping[str, Any], kind: Kind, label: str) -> Columns:
    subsets = {k: v for k, v in loaded.items() if k != _MTEB}
    found = {
        (subset, split): lists
        for subset, splits in subsets.items()
        if isinstance(splits, dict)
        for split, lists in splits.items()
    }
    tests = [key for key in found if key[1] == "test"]
    chosen = next(iter(found)) if len(found) == 1 else tests[0] if len(tests) == 1 else None
    if chosen is None:
        have = ", ".join(f"{subset}/{split}" for subset, split in found) or "none"
        raise InputError(
            f"MTEB's predictions for several subsets: {have}",
            place=label,
            remedy="load the file and hand over those of one",
        )
    lists = found[chosen]
    if not isinstance(lists, dict):
        raise _no_object(lists, label, "name the predictions of a retrieval task")
    columns = read_mapping(lists, kind, label)
    return replace(columns, notes=(f"MTEB's predictions for {'/'.join(chosen)}",))


def read_json_lines(source: Source, kind: Kind) -> Columns:
    """{"query": "…", "doc": "…", "score": number} on each line."""
    return JsonLines(source, kind).columns(source.read(source.report))


class _Rows(NamedTuple):
    queries: list[Any]
    documents: list[Any]
    values: list[Any]
    lines: list[int]


class JsonLines:
    """JSON lines, all at once or a few after the other; the first says which keys are meant."""

    def __init__(self, source: Source, kind: Kind):
        self._source, self._label = source, source.label
        self._kind: Kind = kind
        self._names: list[str] = []

    def columns(self, data: bytes, before: int = 0) -> Columns:
        """The rows of these lines; `before` lines of the file come before them."""
        text, wrong = self._source.decoded(data, before)
        if wrong is not None and not text.strip():
            raise wrong
        found = exactly(lambda exact: self._columns(text, before, exact))
        if wrong is not None:  # and none before it
            raise wrong
        return found

    def _columns(self, text: str, before: int, exact: bool) -> Columns:
        rows, wrong = _Rows([], [], [], []), None
        try:
            self._read(text, before, exact, rows)
        except InputError as error:
            wrong = error
        if wrong is not None and not rows.lines:
            raise wrong
        place: Place = lambda row: f"{self._label}:{rows.lines[row]}"  # noqa: E731
        found = _from_lists(*rows[:3], self._kind, self._label, place)
        if wrong is not None:  # and none before it
            raise wrong
        return found

    def _read(self, text: str, before: int, exact: bool, rows: _Rows) -> None:
        queries, documents, values, lines = rows
        decode = _decoder(self._label, exact).raw_decode
        for number, line in enumerate(text.split("\n"), before + 1):
            if not line.strip():
                continue
            try:  # a line that is an object and nothing else, which nearly every line is
                row, end = decode(line)
            except (ValueError, RecursionError):
                end = -1
            if end != len(line):
                row = _parse(line, self._label, number, exact)
            if not isinstance(row, dict):
                raise InputError(
                    f"a JSON {type(row).__name__} where an object belongs",
                    place=f"{self._label}:{number}",
                    remedy=f'write {{"query": "…", "doc": "…", "{VALUE[self._kind]}": 1}}',
                )
            if not self._names:
                self._names = choose_columns(row, self._kind, f"{self._label}:{number}")
            query, doc, value = self._names
            queries.append(row.get(query))
            documents.append(row.get(doc))
            values.append(row.get(value))
            lines.append(number)


class Member(NamedTuple):
    """Of one large JSON object."""

    query: str
    listed: Any  # its documents
    text: str  # as they are written


def read_members(members: Iterator[Member], kind: Kind, label: str, rows: int) -> Iterator[Columns]:
    """The columns of members with about so many rows at a time. That a text is not JSON is told
    before what is wrong with one of them.
    """
    decode = _decoder(label, True).decode

    def read(held: list[Member]) -> Columns:
        def lists(exact: bool) -> Columns:
            given = {query: decode(text) if exact else said for query, said, text in held}
            return read_mapping(given, kind, label, first=exact)

        try:
            return exactly(lists)
        except InputError as error:
            wrong = error
        for _ in members:
            pass
        raise wrong

    held: list[Member] = []
    count = 0
    for member in members:
        held.append(member)
        count += len(member.listed) if isinstance(member.listed, dict | list) else 1
        if count >= rows:
            yield read(held)
            held, count = [], 0
    if count:
        yield read(held)


_SPACE = re.compile(r"[ \t\n\r]*")
_TOKEN = 16  # characters, within which of the end an error may be that a word goes on


def json_queries(source: Source, chunks: Iterable[bytes], most: int) -> Iterator[Member]:
    """The members of one large JSON object, one after the other; `most` bounds the text of one."""
    decoder = _decoder(source.label, False)
    decode = codecs.getincrementaldecoder("utf-8")()
    pieces = iter(chunks)
    text, at, ended = "", 0, False
    lines = 0  # before the text
    broken: int | None = None  # the byte behind the text that is none of it
    seen: set[str] = set()

    def place(position: int) -> str:
        return f"{source.label}:{lines + text.count(chr(10), 0, position) + 1}"

    def more() -> bool:
        nonlocal text, at, ended, lines, broken
        if broken is not None:
            raise not_text(broken, place(len(text)))
        if ended or len(text) - at > most:
            return False
        wanted = len(text) - at + 1  # twice what is there, so that a long member costs no square
        parts = [text[at:]]
        while wanted > 0 and not ended and broken is None:
            chunk = next(pieces, b"")
            ended = not chunk
            try:
                parts.append(decode.decode(chunk, final=ended))
            except UnicodeDecodeError as error:  # what comes before it is read first
                broken = error.object[error.start]
                parts.append(error.object[: error.start].decode())
            wanted -= len(parts[-1])
        lines += text.count("\n", 0, at)
        text, at = "".join(parts), 0
        return True

    def skip() -> str:
        nonlocal at
        while True:
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
            if at < len(text) or not more():
                return text[at : at + 1]

    def value() -> tuple[Any, str]:
        nonlocal at
        while True:
            settled = True  # whatever comes behind
            try:
                found, end = decoder.raw_decode(text, at)
            except json.JSONDecodeError as error:
                problem, where = error.msg, error.pos
                settled = where < len(text) - _TOKEN and not problem.startswith("Unterminated")
            except InputError:  # a key that appears twice
                raise
            except (ValueError, RecursionError) as error:  # a number of 5000 digits, too
                problem, where = str(error), at
            else:
                if end < len(text) or ended:  # a number may go on
                    begin, at = at, end
                    return found, text[begin:end]
                problem, where, settled = "it goes on", at, False
            if settled or not more():
                if settled or ended:
                    raise InputError(
                        f"not JSON: {problem}",
                        place=place(where),
                        remedy="check how the file was made",
                    )
                raise InputError(
                    f"not JSON, or one query too large for the memory given ({problem})",
                    place=place(at),
                    remedy="check how the file was made, or give more memory (--memory)",
                )

    def expect(*signs: str) -> str:
        nonlocal at
        found = skip()
        if found not in signs:
            raise InputError(
                f"not JSON: {shorten(found) if found else 'the end'} where "
                f"{' or '.join(signs)} belongs",
                place=place(at),
                remedy='write {"query": {"document": number}}',
            )
        at += 1
        return found

    expect("{")
    if skip() == "}":
        at += 1
    else:
        while True:
            skip()
            query, _ = value()
            if not isinstance(query, str) or query in seen:
                known = isinstance(query, str)
                said = "appears twice in one object" if known else "is not text"
                raise InputError(
                    f"key {shorten(query)} {said}",
                    place=source.label,
                    remedy="keep one of the two" if known else "write ids as text",
                )
            seen.add(query)
            expect(":")
            skip()
            listed, written = value()
            yield Member(query, listed, written)
            if expect(",", "}") == "}":
                break
    if skip():
        raise InputError(
            "not JSON: Extra data", place=place(at), remedy="check how the file was made"
        )


def _distinct(place: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Refuses an object with a key that appears twice."""

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            again = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise InputError(
                f"key {shorten(again)} appears twice in one object",
                place=place,
                remedy="keep one of the two",
            )
        return found

    return distinct


def _decoder(place: str, exact: bool) -> json.JSONDecoder:
    """Of JSON with the keys of each object distinct; `exact` keeps what float64 may not hold."""
    numbers = _number if exact else None
    return json.JSONDecoder(object_pairs_hook=_distinct(place), parse_float=numbers)


def _number(text: str) -> float | Written:
    value = float(text)
    return Written(text) if abs(value) >= LARGE else value


def _parse(text: str, label: str, line: int | None = None, exact: bool = False) -> Any:
    """The JSON of a text; `line` is where it stands."""
    place = label if line is None else f"{label}:{line}"
    try:
        return _decoder(place, exact).decode(text)
    except json.JSONDecodeError as error:
        problem, at = error.msg, line or error.lineno
    except InputError:
        raise
    except (ValueError, RecursionError) as error:  # a number of 5000 digits, 10 000 brackets
        problem, at = str(error), line or 1
    raise InputError(
        f"not JSON: {problem}", place=f"{label}:{at}", remedy="check how the file was made"
    )
