"""Read dicts of dicts and rows, from Python objects and from JSON.

Python's `json` turns numbers beyond float64 into infinity, and different whole numbers beyond 2⁵³
into one float. Where a file has such numbers, it is read again with numbers kept as text
(`exactly`), so that reading neither invents ties nor hides an error.
"""

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
    """Return the columns of {query: {document: number}}, as pytrec_eval, ranx and BEIR hold it.

    Also of {query: [(document, number)]}; for a run also of {query: [document]} and of whatever a
    retriever returns for a query. With `first`, an error is that of the first invalid list.
    """
    label = label or kind
    if next(iter(source), None) == _MTEB:
        return _predicted(source, kind, label)
    source = {query: unwrapped(listed) for query, listed in source.items()}
    lists = list(source.items())

    def read(count: int) -> Columns | None:
        return _columns_of_lists(dict(lists[:count]), kind, label)

    columns = all_or_first(read, len(lists)) if first else read(len(lists))
    if columns is None:
        raise no_rows(label)
    return columns


def _columns_of_lists(source: Mapping[Any, Any], kind: Kind, label: str) -> Columns | None:
    """Return the columns of lists by query; None if all are empty."""
    has_ranks_only = False
    if not all(isinstance(listed, Mapping) for listed in source.values()):
        source, has_ranks_only = _scores_of_hits(source, kind, label)
    # A query with an empty list has no rows, as it would have in a file.
    lists = {query: listed for query, listed in source.items() if listed}
    if not lists:
        return None
    queries = list(lists)
    documents = list(chain.from_iterable(lists.values()))
    values = list(chain.from_iterable(listed.values() for listed in lists.values()))
    sizes = [len(listed) for listed in lists.values()]
    query_of_row = np.repeat(np.arange(len(sizes)), sizes)

    def place(row: int) -> str:
        return f"{label}[{shorten(queries[query_of_row[row]])}][{shorten(documents[row])}]"

    distinct, codes = encode(
        text_ids(queries, "query", lambda row: f"{label}[{shorten(queries[row])}]")
    )
    doc = text_ids(documents, "document", place)
    columns = Columns(distinct, codes[query_of_row], doc, *_numbers(values, kind, place))
    return replace(columns, dtype=RANKS) if has_ranks_only else columns


def _scores_of_hits(
    source: Mapping[Any, Any], kind: Kind, label: str
) -> tuple[dict[Any, Mapping[Any, Any]], bool]:
    """Return lists of hits as dicts of scores, and whether all scores are only minus the rank."""
    lists: dict[Any, Mapping[Any, Any]] = {}
    without_score: list[str] = []  # the places of lists without scores
    for query, listed in source.items():
        place = f"{label}[{shorten(query)}]"
        if isinstance(listed, Mapping):
            lists[query] = listed
            continue
        if is_frame(unpacked(listed, kind)[1]):  # such as the splits of a DatasetDict
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
        hits = read_hits(listed, place, stored=True)
        if hits.ranked and kind == "qrels" and hits.ids:
            raise InputError(
                f"document {shorten(hits.ids[0])} has no grade",
                place=place,
                remedy="write {query: {document: grade}}",
            )
        if hits.ranked:
            without_score.append(place)
        lists[query] = dict(zip(hits.ids, hits.scores, strict=True))
    if 0 < len(without_score) < sum(bool(listed) for listed in lists.values()):
        raise without_scores(without_score[0])
    return lists, bool(without_score)


def without_scores(place: str) -> InputError:
    """Return the error for a list without scores where other lists have them."""
    return InputError(
        "this list has no scores where others have",
        place=place,
        remedy="score all of them, or none",
    )


def read_rows(source: Any, kind: Kind) -> Columns:
    """Return the columns of (query, document, number, …) rows, as of ir_measures, or of dicts."""
    queries: list[Any] = []
    documents: list[Any] = []
    values: list[Any] = []
    try:
        rows = iter(source)
    except TypeError:
        raise _unreadable(source, kind, kind) from None
    names: list[str] = []
    for number, row in enumerate(rows, 1):
        if isinstance(row, Mapping):
            names = names or choose_columns(map(str, row), kind, f"{kind}: row {number}")
            queries.append(row.get(names[0]))
            documents.append(row.get(names[1]))
            values.append(row.get(names[2]))
            continue
        try:
            query, doc, value = row[0], row[1], row[2]
        except (TypeError, IndexError, KeyError):
            raise _unreadable(row, kind, f"{kind}: row {number}") from None
        if isinstance(row, str | bytes):  # its letters are not ids
            raise _unreadable(row, kind, f"{kind}: row {number}")
        queries.append(query)
        documents.append(doc)
        values.append(value)
    return columns_of_rows(
        queries, documents, values, kind, kind, lambda row: f"{kind}: row {row + 1}"
    )


def _unreadable(value: Any, kind: Kind, place: str) -> InputError:
    return InputError(
        f"cannot read a {kind} from {shorten(value)}",
        place=place,
        remedy=f"give a path, a dict of dicts, a frame or (query, doc, {VALUE[kind]}) rows",
    )


def columns_of_rows(
    queries: list[Any],
    documents: list[Any],
    values: list[Any],
    kind: Kind,
    label: str,
    place: Place,
) -> Columns:
    """Return the columns of rows, or raise the error of the first invalid one."""
    if not queries:
        raise no_rows(label)

    def read(count: int) -> Columns:
        distinct, codes = encode(text_ids(queries[:count], "query", place))
        doc = text_ids(documents[:count], "document", place)
        return Columns(distinct, codes, doc, *_numbers(values[:count], kind, place))

    return all_or_first(read, len(queries))


_NARROW = ({"float32"}, {"float16"}, {"bfloat16"})


class _Numbers(NamedTuple):
    """The last fields of `Columns`."""

    value: Float
    place: Place
    dtype: str  # that of numpy scalars, if all are such
    rest: Float | None


def _numbers(numbers: list[Any], kind: Kind, place: Place) -> _Numbers:
    """Return numbers as float64, or raise the error of the first invalid one."""
    types = {number_type.__name__ for number_type in set(map(type, numbers))}
    if types == {"float"}:
        value = np.array(numbers, np.float64)
        if kind != "run" or not np.isnan(value).any():
            return _Numbers(value, place, "float64", None)
    value = np.empty(len(numbers))
    for row, item in enumerate(numbers):
        if isinstance(item, str | bytes):
            raise InputError(
                f"{VALUE[kind]} {shorten(item)} is text, not a number",
                place=place(row),
                remedy="convert it with float()",
            )
        if kind == "run" and isinstance(item, bool | np.bool_):  # it gives no order
            raise not_a_number(kind, item, place(row))
        try:
            value[row] = to_float(item)
        except OverflowError:
            raise past_every_number(kind, item, place(row)) from None
        except (TypeError, ValueError, ArithmeticError):
            raise not_a_number(kind, item, place(row)) from None
        if kind == "run" and math.isnan(value[row]):  # before the error of a later row
            raise not_a_number(kind, np.nan, place(row))
    rest = rest_of(value, lambda row: _exact(numbers[row]))
    return _Numbers(value, place, types.pop() if types in _NARROW else "float64", rest)


def _exact(number: Any) -> Fraction:
    """Return the exact value of a number of any type."""
    if isinstance(number, Written):
        return exact_text(number.text)
    if isinstance(number, Decimal | Fraction):
        return Fraction(number)
    return Fraction(int(number) if isinstance(number, Integral) else float(number))


# --------------------------------------------------------------------------------------- JSON


def read_json(source: Source, kind: Kind) -> Columns:
    """Return the columns of {"query": {"document": number}}, or of a list of records."""
    if not source.head.lstrip().startswith(b"{"):
        return _read_exactly(source, lambda loaded: _from_json(loaded, kind, source))
    data = source.read(source.report)
    with suppress(InputError):
        loaded = parse_json(source.decode(data), source.label)
        columns = read_mapping(loaded, kind, source.label, first=False)
        if not is_inexact(columns):
            return columns
    # Read in parts, which reports errors in the same words as streaming.
    members = json_queries(source, source.chunks(), sys.maxsize)
    for columns in read_members(members, kind, source.label, sys.maxsize):
        return columns
    raise no_rows(source.label)


def _read_exactly(source: Source, read: Callable[[Any], Columns]) -> Columns:
    """Return `read` of the value in a file that is one JSON text."""
    text = source.text(source.report)
    return exactly(lambda exact: read(parse_json(text, source.label, exact=exact)))


def exactly(read: Callable[[bool], Columns]) -> Columns:
    """Return `read(False)`, or `read(True)` if that fails or has large numbers.

    `read(exact)` parses with numbers as floats, or exactly (see the module). The second reading
    reports the first error of the file.
    """
    with suppress(InputError):
        columns = read(False)
        if not is_inexact(columns):
            return columns
    return read(True)


def is_inexact(columns: Columns) -> bool:
    """True if `json` may have turned different numbers into one."""
    return is_large(columns.value) or bool(np.isinf(columns.value).any())


def _from_json(loaded: Any, kind: Kind, source: Source) -> Columns:
    if isinstance(loaded, list) and all(isinstance(row, dict) for row in loaded):
        names = choose_columns(loaded[0], kind, source.label) if loaded else []
        query, doc, number = ([row.get(name) for row in loaded] for name in names or ("", "", ""))
        return columns_of_rows(
            query, doc, number, kind, source.label, lambda row: f"{source.label}[{row}]"
        )
    if not isinstance(loaded, dict):
        remedy = 'write {"query": {"document": number}}, or one object a line (.jsonl)'
        raise _not_an_object(loaded, source.label, remedy)
    return read_mapping(loaded, kind, source.label)


def _not_an_object(value: Any, place: str, remedy: str) -> InputError:
    return InputError(
        f"a JSON {type(value).__name__} where an object of objects belongs",
        place=place,
        remedy=remedy,
    )


def read_mteb(source: Source, kind: Kind) -> Columns:
    """Return predictions saved by MTEB: {"mteb_model_meta": …, subset: {split: {query: …}}}."""

    def read(loaded: Any) -> Columns:
        if not isinstance(loaded, dict):
            raise _not_an_object(loaded, source.label, "name the predictions of a retrieval task")
        return _predicted(loaded, kind, source.label)

    return _read_exactly(source, read)


def _predicted(loaded: Mapping[str, Any], kind: Kind, label: str) -> Columns:
    """Return the only split of MTEB's predictions, or their only test split."""
    subsets = {key: value for key, value in loaded.items() if key != _MTEB}
    splits_found = {
        (subset, split): lists
        for subset, splits in subsets.items()
        if isinstance(splits, dict)
        for split, lists in splits.items()
    }
    candidates = list(splits_found)
    if len(candidates) > 1:
        candidates = [key for key in candidates if key[1] == "test"]
    if len(candidates) != 1:
        names = ", ".join(f"{subset}/{split}" for subset, split in splits_found) or "none"
        raise InputError(
            f"MTEB's predictions for several subsets: {names}",
            place=label,
            remedy="load the file and hand over those of one",
        )
    (chosen,) = candidates
    lists = splits_found[chosen]
    if not isinstance(lists, dict):
        raise _not_an_object(lists, label, "name the predictions of a retrieval task")
    columns = read_mapping(lists, kind, label)
    return replace(columns, notes=(f"MTEB's predictions for {'/'.join(chosen)}",))


def read_json_lines(source: Source, kind: Kind) -> Columns:
    """Return the columns of lines {"query": "…", "doc": "…", "score": number}."""
    return JsonLines(source, kind).columns(source.read(source.report))


class _Rows(NamedTuple):
    queries: list[Any]
    documents: list[Any]
    values: list[Any]
    lines: list[int]


class JsonLines:
    """Read JSON lines, all at once or in parts; the first line decides which keys are used."""

    def __init__(self, source: Source, kind: Kind):
        self._source, self._label = source, source.label
        self._kind: Kind = kind
        self._names: list[str] = []

    def columns(self, data: bytes, before: int = 0) -> Columns:
        """Return the columns of lines that come after `before` lines of the file."""
        text, encoding_error = self._source.decoded(data, before)
        if encoding_error is not None and not text.strip():
            raise encoding_error
        columns = exactly(lambda exact: self._columns(text, before, exact))
        if encoding_error is not None:  # all lines before it are valid
            raise encoding_error
        return columns

    def _columns(self, text: str, before: int, exact: bool) -> Columns:
        rows, syntax_error = _Rows([], [], [], []), None
        try:
            self._fill(rows, text, before, exact)
        except InputError as error:
            syntax_error = error
        if syntax_error is not None and not rows.lines:
            raise syntax_error

        def place(row: int) -> str:
            return f"{self._label}:{rows.lines[row]}"

        columns = columns_of_rows(
            rows.queries, rows.documents, rows.values, self._kind, self._label, place
        )
        if syntax_error is not None:  # all rows before it are valid
            raise syntax_error
        return columns

    def _fill(self, rows: _Rows, text: str, before: int, exact: bool) -> None:
        """Append the rows of a text, up to the first line that is not an object."""
        decode = _decoder(self._label, exact).raw_decode
        for number, line in enumerate(text.split("\n"), before + 1):
            if not line.strip():
                continue
            try:  # nearly every line is an object and nothing else
                row, end = decode(line)
            except (ValueError, RecursionError):
                end = -1
            if end != len(line):
                row = parse_json(line, self._label, number, exact)
            if not isinstance(row, dict):
                raise InputError(
                    f"a JSON {type(row).__name__} where an object belongs",
                    place=f"{self._label}:{number}",
                    remedy=f'write {{"query": "…", "doc": "…", "{VALUE[self._kind]}": 1}}',
                )
            if not self._names:
                self._names = choose_columns(row, self._kind, f"{self._label}:{number}")
            query, doc, value = self._names
            rows.queries.append(row.get(query))
            rows.documents.append(row.get(doc))
            rows.values.append(row.get(value))
            rows.lines.append(number)


class Member(NamedTuple):
    """A query of one large JSON object."""

    query: str
    listed: Any  # its documents, parsed
    text: str  # its documents as written


def read_members(members: Iterator[Member], kind: Kind, label: str, rows: int) -> Iterator[Columns]:
    """Yield the columns of members, about `rows` rows at a time.

    An error in the JSON itself is raised before an error in a member.
    """
    decode = _decoder(label, True).decode

    def read(batch: list[Member]) -> Columns:
        def read_lists(exact: bool) -> Columns:
            lists = {query: decode(text) if exact else listed for query, listed, text in batch}
            return read_mapping(lists, kind, label, first=exact)

        try:
            return exactly(read_lists)
        except InputError as error:
            member_error = error
        for _ in members:  # raises if the rest of the file is not JSON
            pass
        raise member_error

    batch: list[Member] = []
    count = 0
    for member in members:
        batch.append(member)
        count += len(member.listed) if isinstance(member.listed, dict | list) else 1
        if count >= rows:
            yield read(batch)
            batch, count = [], 0
    if count:
        yield read(batch)


_SPACE = re.compile(r"[ \t\n\r]*")
_TOKEN = 16  # characters; an error this close to the end may be a word that is cut


def json_queries(source: Source, chunks: Iterable[bytes], limit: int) -> Iterator[Member]:
    """Yield the members of one large JSON object; `limit` bounds the text of one."""
    stream = _JsonStream(source, chunks, limit)
    seen: set[str] = set()
    stream.expect("{")
    if stream.next_sign() == "}":
        stream.expect("}")
    else:
        while True:
            stream.next_sign()
            query, _ = stream.value()
            if not isinstance(query, str) or query in seen:
                is_repeated = isinstance(query, str)
                problem = "appears twice in one object" if is_repeated else "is not text"
                raise InputError(
                    f"key {shorten(query)} {problem}",
                    place=source.label,
                    remedy="keep one of the two" if is_repeated else "write ids as text",
                )
            seen.add(query)
            stream.expect(":")
            stream.next_sign()
            listed, written = stream.value()
            yield Member(query, listed, written)
            if stream.expect(",", "}") == "}":
                break
    if stream.next_sign():
        raise InputError(
            "not JSON: Extra data", place=stream.place(), remedy="check how the file was made"
        )


class _JsonStream:
    """Parse JSON values from chunks of a file, with only the current value in memory."""

    def __init__(self, source: Source, chunks: Iterable[bytes], limit: int):
        self._label = source.label
        self._chunks = iter(chunks)
        self._limit = limit  # characters of the longest value
        self._decoder = _decoder(source.label, False)
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._text = ""  # decoded and not yet dropped
        self._position = 0  # of the next character in the text
        self._lines_before = 0  # lines of the file before the text
        self._has_ended = False
        self._invalid_byte: int | None = None  # that follows the text and is not UTF-8

    def place(self, position: int | None = None) -> str:
        """Return the file and line of a position in the text."""
        end = self._position if position is None else position
        return f"{self._label}:{self._lines_before + self._text.count(chr(10), 0, end) + 1}"

    def next_sign(self) -> str:
        """Skip white space; return the next character, or "" at the end."""
        while True:
            self._position = _SPACE.match(self._text, self._position).end()  # type: ignore[union-attr]
            if self._position < len(self._text) or not self._read_more():
                return self._text[self._position : self._position + 1]

    def expect(self, *signs: str) -> str:
        """Skip white space and one of the given characters; return it."""
        sign = self.next_sign()
        if sign not in signs:
            raise InputError(
                f"not JSON: {shorten(sign) if sign else 'the end'} where "
                f"{' or '.join(signs)} belongs",
                place=self.place(),
                remedy='write {"query": {"document": number}}',
            )
        self._position += 1
        return sign

    def value(self) -> tuple[Any, str]:
        """Return the next value and its text, reading as many chunks as it needs."""
        while True:
            is_final = True  # the error remains whatever follows
            try:
                value, end = self._decoder.raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:
                problem, position = error.msg, error.pos
                is_unterminated = problem.startswith("Unterminated")
                is_final = position < len(self._text) - _TOKEN and not is_unterminated
            except InputError:  # a key that appears twice
                raise
            except (ValueError, RecursionError) as error:  # such as a number of 5000 digits
                problem, position = str(error), self._position
            else:
                if end < len(self._text) or self._has_ended:
                    begin, self._position = self._position, end
                    return value, self._text[begin:end]
                # A number at the end of the text may go on in the next chunk.
                problem, position, is_final = "it goes on", self._position, False
            if is_final or not self._read_more():
                raise self._error(problem, position, is_final)

    def _error(self, problem: str, position: int, is_final: bool) -> InputError:
        if is_final or self._has_ended:
            return InputError(
                f"not JSON: {problem}",
                place=self.place(position),
                remedy="check how the file was made",
            )
        return InputError(
            f"not JSON, or one query too large for the memory given ({problem})",
            place=self.place(),
            remedy="check how the file was made, or give more memory (--memory)",
        )

    def _read_more(self) -> bool:
        """Drop what was read and decode more chunks; False at the end or beyond the limit."""
        if self._invalid_byte is not None:
            raise not_text(self._invalid_byte, self.place(len(self._text)))
        remaining = self._text[self._position :]
        if self._has_ended or len(remaining) > self._limit:
            return False
        needed = len(remaining) + 1  # doubles the text, so that long values take linear time
        parts = [remaining]
        while needed > 0 and not self._has_ended and self._invalid_byte is None:
            chunk = next(self._chunks, b"")
            self._has_ended = not chunk
            try:
                parts.append(self._utf8.decode(chunk, final=self._has_ended))
            except UnicodeDecodeError as error:  # the text before it is parsed first
                self._invalid_byte = error.object[error.start]
                parts.append(error.object[: error.start].decode())
            needed -= len(parts[-1])
        self._lines_before += self._text.count("\n", 0, self._position)
        self._text, self._position = "".join(parts), 0
        return True


def _distinct(place: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Return a hook for `json` that refuses an object in which a key appears twice."""

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise InputError(
                f"key {shorten(repeated)} appears twice in one object",
                place=place,
                remedy="keep one of the two",
            )
        return members

    return distinct


def _decoder(place: str, exact: bool) -> json.JSONDecoder:
    """Return a decoder that refuses repeated keys; `exact` keeps large numbers as text."""
    numbers = _number if exact else None
    return json.JSONDecoder(object_pairs_hook=_distinct(place), parse_float=numbers)


def _number(text: str) -> float | Written:
    value = float(text)
    return Written(text) if abs(value) >= LARGE else value


def parse_json(text: str, label: str, line: int | None = None, exact: bool = False) -> Any:
    """Return the value of a JSON text; `line` is its line in the file."""
    place = label if line is None else f"{label}:{line}"
    try:
        return _decoder(place, exact).decode(text)
    except json.JSONDecodeError as error:
        problem, error_line = error.msg, line or error.lineno
    except InputError:
        raise
    except (ValueError, RecursionError) as error:  # such as 10,000 brackets
        problem, error_line = str(error), line or 1
    raise InputError(
        f"not JSON: {problem}", place=f"{label}:{error_line}", remedy="check how the file was made"
    )
