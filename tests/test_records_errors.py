"""Bad input is refused in one line that gives the place, the value and the remedy."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from rankproof import InputError, Qrels, read_qrels, read_run
from rankproof.data.columns import Kind
from rankproof.foundation import kernels

NAMES = ["query", "doc", "score"]


def refused(source: Any, kind: Kind = "run", **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_run(source, **options) if kind == "run" else read_qrels(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    assert caught.value.remedy, "a message ends with what to do"
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return message


# -------------------------------------------------------------------------------------------- TREC

GOOD = "q1 Q0 a 1 2.5 t\n\n# a comment\nq1 Q0 b 2 1.5 t\n"  # four lines
JUDGED = "q1 0 a 1\n\n# a comment\nq1 0 b 0\n"

CR_RUN = "q1 Q0 a 1 3.0 t\rq1 Q0 b 2 2.0 t\r"
BAD_TREC: dict[str, tuple[Kind, str | bytes, str]] = {
    "only blanks": ("run", " \n\t\r\n\n", "F: no rows; check how it was made"),
    "only a byte-order mark": ("run", b"\xef\xbb\xbf", "F: no rows; check how it was made"),
    "only comments": ("run", "# nothing\n#\n", "F: no rows; check how it was made"),
    "too few columns": (
        "run",
        GOOD + "q1 Q0 c 3 0.5\n",
        "F:5: 5 columns where a TREC run has 6 (query Q0 doc rank score tag): 'q1 Q0 c 3 0.5'; "
        "fix the line, or name the file's format (format=, --input-format)",
    ),
    "too many columns": ("run", GOOD + "q1 Q0 c 3 0.5 t t\n", "F:5: 7 columns where a TREC run"),
    "a qrels line in a run": ("run", "q1 0 a 1", "F:1: 4 columns where a TREC run has 6"),
    "a run line in qrels": ("qrels", JUDGED + GOOD, "F:5: 6 columns where a TREC qrels has 4 ("),
    "text for a score": (
        "run",
        GOOD + "q1 Q0 c 3 high t\n",
        "F:5: score 'high' is not a number; drop the line or rescore it",
    ),
    "an ideographic digit": ("run", GOOD + "q1 Q0 c 3 １ t", "F:5: score '１' is not a number"),
    "nan": (
        "run",
        GOOD + "q1 Q0 c 3 nan t\n",
        "F:5: score 'nan' is not a number; drop the line or rescore it",
    ),
    "-NaN": ("run", GOOD + "q1 Q0 c 3 -NaN t\n", "F:5: score '-NaN' is not a number"),
    "a long value": ("run", f"q Q0 d 1 {'x' * 9999} t", "F:1: score 'xxxxxxxxxxxxxxxxxxxxxxx"),
    "text for a grade": (
        "qrels",
        JUDGED + "q1 0 c good\n",
        "F:5: grade 'good' is not a number; grade it 0, 1, 2, …",
    ),
    "a fraction": (
        "qrels",
        JUDGED + "q1 0 c 0.5\n",
        "F:5: grade 0.5 is not a whole number; grade documents 0, 1, 2, … "
        "(scale fractions up first)",
    ),
    "nearly whole": ("qrels", JUDGED + "q1 0 c 1.0000000001", "F:5: grade 1.0000000001 is not a"),
    "an infinite grade": ("qrels", JUDGED + "q1 0 c inf\n", "F:5: grade inf is not a whole number"),
    "a huge grade": ("qrels", JUDGED + "q1 0 c 1e16\n", "F:5: grade 1e+16 is past 2^53; grade"),
    "a score past every number": (
        "run",
        GOOD + "q1 Q0 c 3 1e308 t\nq1 Q0 d 3 inf t\nq1 Q0 e 3 1e400 t\nq1 Q0 f 3 1e500 t\n",
        "F:7: score '1e400' is past every number; write numbers up to 1.7e308, or inf",
    ),
    "one below every number": ("run", GOOD + "q1 Q0 c 3 -2E308 t\n", "F:5: score '-2E308' is past"),
    "one in digits": ("run", GOOD + f"q Q0 c 3 {'9' * 400} t\n", "F:5: score '999999999999999999"),
    "one before a line that is none": (
        "run",
        GOOD + "q1 Q0 c 3 1e400 t\nq1\n",
        "F:5: score '1e400'",
    ),
    "a grade past every number": (
        "qrels",
        JUDGED + "q1 0 c 1e400\n",
        "F:5: grade '1e400' is past every number; grade it 0, 1, 2, …",
    ),
    "a document twice": (
        "run",
        "\ufeff" + GOOD + "q2 Q0 b 1 1 t\nq1 Q0 b 9 1 t\nq2 Q0 c 1 1 t\n",
        "F:6: query 'q1' lists document 'b' a second time; keep one of the two",
    ),
    "a judgement twice": (
        "qrels",
        JUDGED + "q0 0 b 1\nq1 0 b -1\n",
        "F:6: query 'q1' judges document 'b' a second time; keep one of the two",
    ),
    "latin-1": (
        "run",
        GOOD.encode() + "q1 Q0 café 3 1 t\n".encode("latin1"),
        "F:5: byte 0xe9 is not UTF-8; save the file as UTF-8 (iconv -f latin1",
    ),
    "utf-16": (
        "run",
        GOOD.encode("utf-16"),
        "F: the file is UTF-16; save it as UTF-8 (iconv -t utf-8)",
    ),
    "words": ("run", "nothing\n", "F:1: 1 column where a TREC run has 6 (query Q0 doc"),
    "a run by carriage returns": (
        "run",
        CR_RUN,
        "F:1: lines end in carriage returns alone: 'q1 Q0",
    ),
    "judgements by them": (
        "qrels",
        "q 0 a 1\rq 0 b 1\r",
        "F:1: lines end in carriage returns alone",
    ),
}


@pytest.mark.parametrize("native", [True, False], ids=["compiled", "general"])
@pytest.mark.parametrize("case", BAD_TREC)
def test_a_bad_trec_file_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, native: bool
) -> None:
    if not native:
        monkeypatch.setattr(kernels, "native", None)
    kind, content, expected = BAD_TREC[case]
    path = tmp_path / "F"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert refused(path, kind).removeprefix(f"{tmp_path}/").startswith(expected)


# ---------------------------------------------------------------------------------- other files


def parquet(**columns: Any) -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame(columns).write_parquet(buffer)
    return buffer.getvalue()


WHOLE = parquet(query=["q"] * 99, doc=list(map(str, range(99))), score=[0.5] * 99)
CSV = "query,doc,score\n"

BAD_FILES: dict[str, tuple[Kind, str, str | bytes, str]] = {
    "json: a list": (
        "run",
        "F.json",
        '[["q", "d", 1]]',
        "F.json: a JSON list where an object of objects belongs; "
        'write {"query": {"document": number}}, or one object a line (.jsonl)',
    ),
    "json: a list, unnamed": (
        "run",
        "F",
        '[{"query": 1}]',
        "F: no column 'doc'; there are: 'query'",
    ),
    "json: no query": ("run", "F.json", "{}", "F.json: no rows; check how it was made"),
    "json: no document": ("run", "F.json", '{"q": {}}', "F.json: no rows"),
    "json: blank": ("run", "F.json", "\n", "F.json:2: not JSON: Expecting value; check how"),
    "json: cut short": ("run", "F.json", '{"q":\n {"d": 1,', "F.json:2: not JSON: Expecting"),
    "json: lines": ("run", "F.json", '{"query": 1}\n{}', "F.json:2: not JSON: Extra data"),
    "json: a query twice": (
        "run",
        "F.json",
        '{"q1": {"d": 1}, "q2": {}, "q1": {"e": 1}}',
        "F.json: key 'q1' appears twice in one object; keep one of the two",
    ),
    "json: a document twice": (
        "qrels",
        "F.json",
        '{"q1": {"d": 1, "e": 2, "d": 0}}',
        "F.json: key 'd' appears twice in one object",
    ),
    "json: no dict inside": (
        "run",
        "F.json",
        '{"q1": {"d": 1}, "q2": [1, 2]}',
        "F.json['q2']: this list has no scores where others have; score all of them, or none",
    ),
    "json: text for a number": (
        "run",
        "F.json",
        '{"q": {"d": "1"}}',
        "F.json['q']['d']: score '1' is text, not a number; convert it with float()",
    ),
    "json: null": ("run", "F.json", '{"q": {"d": null}}', "F.json['q']['d']: score None is not a"),
    "json: NaN": ("run", "F.json", '{"q": {"d": NaN}}', "F.json['q']['d']: score nan is not a nu"),
    "json: an endless number": (
        "run",
        "F.json",
        f'{{"q": {{"d": {"1" * 5000}}}}}',
        "F.json:1: not",
    ),
    "json: too deep": ("run", "F", "[" * 200_000, "F:1: not JSON: "),
    "json: half a character": (
        "run",
        "F.json",
        r'{"q": {"a": 1, "\ud800": 1}}',
        r"F.json['q']['\ud800']: document id '\ud800' is not valid Unicode; remove its lone",
    ),
    "json: an empty id": ("run", "F.json", '{"": {"a": 1}}', "F.json['']: the query id is empty"),
    "json: latin-1": ("run", "F.json", b'{"q":\n{"\xe9": 1}}', "F.json:2: byte 0xe9 is not UTF-8"),
    "jsonl: not json": (
        "run",
        "F.jsonl",
        '{"query": 1, "doc": 2, "score": 3}\n\n{"query"\n',
        "F.jsonl:3: not JSON: Expecting ':' delimiter; check how the file was made",
    ),
    "jsonl: no object": (
        "run",
        "F.jsonl",
        "\n[1, 2]\n",
        'F.jsonl:2: a JSON list where an object belongs; write {"query": "…", "doc": "…"',
    ),
    "jsonl: no score": (
        "run",
        "F.jsonl",
        '\n{"query": 1, "doc": 2}\n',
        "F.jsonl:2: no column 'score'; there are: 'query', 'doc'; name one of them 'score'",
    ),
    "jsonl: no score further down": (
        "run",
        "F.jsonl",
        '{"query": 1, "doc": 2, "score": 3}\n\n{"query": 1, "doc": 3}\n',
        "F.jsonl:3: score None is not a number",
    ),
    "jsonl: a fraction for an id": (
        "run",
        "F.jsonl",
        '{"query": 1.0, "doc": 2, "score": 3}\n',
        "F.jsonl:1: query id 1.0 is neither text nor a whole number; make it text",
    ),
    "jsonl: a key twice": (
        "run",
        "F.jsonl",
        '{"doc": 1, "doc": 2}',
        "F.jsonl:1: key 'doc' appears",
    ),
    "jsonl: blank": ("run", "F.jsonl", "\n\n", "F.jsonl: no rows"),
    "jsonl: a document twice": (
        "run",
        "F.jsonl",
        '{"query": 1, "doc": 2, "score": 3}\n\n{"query": "1", "doc": "2", "score": 3}\n',
        "F.jsonl:3: query '1' lists document '2' a second time",
    ),
    "csv: no column": (
        "run",
        "F.csv",
        "topic,page,score\nq,d,1\n",
        "F.csv: no column 'doc'; there are: 'topic', 'page', 'score'; name one of them 'doc'",
    ),
    "csv: no header": (
        "qrels",
        "F.csv",
        "q,d,1\n",
        "F.csv: no column 'doc'; there are: 'q', 'd', '1'; name one of them 'doc'",
    ),
    "csv: no name that is known": (
        "qrels",
        "F.csv",
        "7,d9,1\n",
        "F.csv: no column 'query'; there are: '7', 'd9', '1'; name them query, doc, grade; in a",
    ),
    "csv: semicolons": (
        "run",
        "F.csv",
        "query;doc;score\nq;d;0,5\n",
        "F.csv:1: columns separated by ';': 'query;doc;score'; separate them with commas",
    ),
    "csv: no row": ("run", "F.csv", CSV, "F.csv: no rows"),
    "csv: blank": ("run", "F.csv", "\n\n", "F.csv: no rows"),
    "csv: text for a score": (
        "run",
        "F.csv",
        CSV.replace("\n", ',"a\nremark"\n') + 'q,a,1,"x\ny"\n\n,,,\nq,b,high,\n',
        "F.csv:7: score 'high' is not a number; drop the line or rescore it",
    ),
    "csv: nan": ("run", "F.csv", CSV + "q,b,nan\n", "F.csv:2: score 'nan' is not a number"),
    "csv: no score": ("run", "F.csv", CSV + "q,a,1\nq,b\n", "F.csv:3: score None is not a number"),
    "csv: more behind a quote": (
        "run",
        "F.csv",
        CSV + 'q,"a, b",1\n\n"q "1"2""",b,1\n',
        "F.csv:4: a quoted field is not well formed (',' expected after '\"'); put quotes around",
    ),
    "csv: too many cells": (
        "run",
        "F.csv",
        CSV + "q,a,1\n\nq,b,1,5\n",
        "F.csv:4: 4 columns where the header has 3; fix the line",
    ),
    "csv: an empty id": (
        "run",
        "F.csv",
        CSV + 'q,a,1\n"",b,2\n',
        "F.csv:3: the query id is empty; give every row an id",
    ),
    "csv: a missing id": ("run", "F.csv", CSV + "q,,1\n", "F.csv:2: the document id is empty"),
    "csv: a document twice": (
        "run",
        "F.csv",
        CSV + "q,a,1\n\nq,a,2\n",
        "F.csv:4: query 'q' lists document 'a' a second time; keep one of the two",
    ),
    "tsv: a fraction": (
        "qrels",
        "F.tsv",
        "query-id\tcorpus-id\tscore\r\nq\td\t0.5\r\n",
        "F.tsv:2: grade 0.5 is not a whole number",
    ),
    "tsv: a broken quote": (
        "run",
        "F.csv",
        CSV + '"q,a,1\n',
        "F.csv: not csv, or cut short (could",
    ),
    "csv: a score past every number": (
        "run",
        "F.csv",
        CSV + "q,a,inf\nq,b,+1e400\n",
        "F.csv:3: score '+1e400' is past every number; write numbers up to 1.7e308, or inf",
    ),
    "json: a score past every number": (
        "run",
        "F.json",
        '{"p": {"a": Infinity}, "q": {"a": -Infinity, "b": 1e400}}',
        "F.json['q']['b']: score 1e400 is past every number; write numbers up to 1.7e308, or inf",
    ),
    "json: digits past every number": (
        "qrels",
        "F.json",
        f'{{"q": {{"a": 1{"0" * 400}}}}}',
        "F.json['q']['a']: grade 1000000000000000000000000000000000000000",
    ),
    "json: a hit's score past every number": (
        "run",
        "F.json",
        '{"q": [["a", 1e400]]}',
        "F.json['q']: score 1e400 is past every number",
    ),
    "json: a record's grade past every number": (
        "qrels",
        "F.json",
        '[{"query": "q", "doc": "a", "grade": -1e999}]',
        "F.json[0]: grade -1e999 is past every number; grade it 0, 1, 2, …",
    ),
    "mteb: a score past every number": (
        "run",
        "F.json",
        '{"mteb_model_meta": {}, "s": {"test": {"q": {"a": 1e400}}}}',
        "F.json['q']['a']: score 1e400 is past every number",
    ),
    "json lines: a score past every number": (
        "run",
        "F.jsonl",
        '{"query": "q", "doc": "a", "score": Infinity}\n'
        '{"query": "q", "doc": "b", "score": 1e400}\n',
        "F.jsonl:2: score 1e400 is past every number",
    ),
    "json: a score past what Decimal holds": (
        "run",
        "F.json",
        f'{{"q": {{"a": 1e4{"0" * 30}}}}}',
        f"F.json['q']['a']: score 1e4{'0' * 30} is past every number; write numbers up to",
    ),
    "json: long digits past every number": (
        "run",
        "F.jsonl",
        f'{{"query": "q", "doc": "a", "score": {"9" * 5000}.5}}',
        f"F.jsonl:1: score {'9' * 59}… is past every number; write numbers up to",
    ),
    "json: an id past every number": (
        "run",
        "F.jsonl",
        '{"query": 1e400, "doc": "a", "score": 1}',
        "F.jsonl:1: query id 1e400 is neither text nor a whole number; make it text",
    ),
    "five columns, then six": (
        "run",
        "F",
        "q Q0 a 1 0.5\nq Q0 b 2 0.4 t\n",
        "F:2: 6 columns where the first line has 5 (query Q0 doc rank score): 'q Q0 b 2 0.4 t'; ",
    ),
    "three columns: a number, then a document": (
        "run",
        "F.txt",
        b"q a x\nq \x7f 1\nq\xff a 1\n",
        "F.txt:1: score 'x' is not a number",
    ),
    "three columns: a document, then a byte": (
        "qrels",
        "F.txt",
        b"q \x7f 1\nq\xff a 1\n",
        "F.txt:1: the document id '\\x7f' holds a control character",
    ),
    "three columns: a byte": ("run", "F.txt", b"q a 1\nq\xff a 1\n", "F.txt:2: byte 0xff is not"),
    "three columns: a score past every number": (
        "run",
        "F",
        "q a 0.5\nq b 1e400\n",
        "F:2: score '1e400' is past every number",
    ),
    "parquet: cut short": (
        "run",
        "F.parquet",
        WHOLE[: len(WHOLE) // 2],
        "F.parquet: not parquet, or cut short (parquet: File out of specification",
    ),
    "parquet: something else": (
        "run",
        "F.parquet",
        "q Q0 d 1 1 t\n",
        "F.parquet: the file does not begin as parquet does; fetch or write it again, or name",
    ),
    "parquet: text for scores": (
        "run",
        "F.parquet",
        parquet(query=["q"], doc=["d"], score=["0.5"]),
        "F.parquet: column 'score' holds String, not numbers; cast it to Float64",
    ),
    "parquet: fractions for ids": (
        "run",
        "F.parquet",
        parquet(query=["q"], doc=[7.0], score=[0.5]),
        "F.parquet: column 'doc' holds Float64, not ids; make it text or whole numbers",
    ),
    "parquet: a null id": (
        "run",
        "F.parquet",
        parquet(query=["q", None], doc=["d", "e"], score=[0.5, 0.5]),
        "F.parquet: row 2: the query id is empty; give every row an id",
    ),
    "parquet: a null score": (
        "qrels",
        "F.parquet",
        parquet(query=["q", "q"], doc=["d", "e"], rel=[0, None]),
        "F.parquet: row 2: grade None is not a number; grade it 0, 1, 2, …",
    ),
    "parquet: nan": (
        "run",
        "F.parquet",
        parquet(query=["q", "q"], doc=["d", "e"], score=[1.0, float("nan")]),
        "F.parquet: row 2: score nan is not a number",
    ),
    "parquet: a document twice": (
        "run",
        "F.parquet",
        parquet(query=["p", "q", "p"], doc=["d", "d", "d"], score=[1, 2, 3]),
        "F.parquet: row 3: query 'p' lists document 'd' a second time",
    ),
    "parquet: no row": (
        "run",
        "F.parquet",
        parquet(query=[], doc=[], score=[]),
        "F.parquet: no rows",
    ),
    "parquet: no column": (
        "run",
        "F.parquet",
        parquet(),
        "F.parquet: no column 'query'; there are: none",
    ),
    "arrow: something else": ("run", "F.arrow", "q", "F.arrow: the file does not begin as arrow"),
    "arrow: nothing but a name": (
        "run",
        "F",
        b"ARROW1\0\0 and text",
        "F: not arrow, or cut short (",
    ),
    "arrow: a stream cut short": (
        "run",
        "F",
        b"\xff\xff\xff\xff\x10\0\0\0",
        "F: not arrow, or cut",
    ),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, case: str) -> None:
    kind, name, content, expected = BAD_FILES[case]
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert refused(path, kind).removeprefix(f"{tmp_path}/").startswith(expected)


@pytest.mark.parametrize("write", ["write_parquet", "write_ipc"])
def test_a_binary_file_is_refused_wherever_it_was_cut(tmp_path: Path, write: str) -> None:
    path = tmp_path / "run"
    frame = pl.DataFrame({"query": ["q"] * 99, "doc": range(99), "score": [0.5] * 99})
    getattr(frame, write)(path)
    data = path.read_bytes()
    for kept in range(8, len(data) - 1, max(1, len(data) // 40)):
        path.write_bytes(data[:kept])
        assert "or cut short" in refused(path)


def test_a_file_read_in_a_format_it_has_not_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text(GOOD)
    assert refused(path, format="parquet").startswith(f"{path}: not parquet, or cut short (")
    assert refused(path, format="arrow").startswith(f"{path}: not arrow, or cut short (")
    assert refused(path, format="json").startswith(f"{path}:1: not JSON: Expecting value")
    assert refused(path, format="csv").startswith(f"{path}: no column 'query'; there are: 'q1 Q0")
    assert refused(path, format="xml") == (
        "format 'xml' is unknown; use one of trec, plain, msmarco, csv, tsv, json, jsonl, mteb, "
        "nuggets, parquet, arrow"
    )


# ------------------------------------------------------------------------------------ objects

ROWS = "give a path, a dict of dicts, a frame or (query, doc, score) rows"

BAD_OBJECTS: dict[str, tuple[Any, str]] = {
    "none": (None, f"run: cannot read a run from None; {ROWS}"),
    "a number": (7, f"run: cannot read a run from 7; {ROWS}"),
    "bytes": (b"q Q0 d 1 1 t", f"run: row 1: cannot read a run from 113; {ROWS}"),
    "qrels": (
        Qrels("x", pl.Series(["q"]), np.array([0, 0]), pl.Series([]), np.zeros(0, int)),
        "run: judgements in the place of the run; name the judgments first",
    ),
    "empty dict": ({}, "run: no rows; check how it was made"),
    "empty list": ([], "run: no rows; check how it was made"),
    "empty frame": (pl.DataFrame(schema=NAMES), "run: no rows; check how it was made"),
    "queries alone": ({"q": {}, "r": {}}, "run: no rows"),
    "text inside": (
        {"q": "d1"},
        "run['q']: 'd1' where a dict of documents belongs; write {query: ",
    ),
    "a list's document twice": ({"q": ["a", "a"]}, "run['q']: document 'a' a second time; keep"),
    "a score here and none there": (
        {"q": [("a", 1.0)], "r": ["a"]},
        "run['r']: this list has no scores where others have; score all",
    ),
    "none inside": ({"q": None}, "run['q']: None where a dict of documents belongs"),
    "text for a score": (
        {"q": {"d": 1.0, "e": "2"}},
        "run['q']['e']: score '2' is text, not a num",
    ),
    "none for a score": ({"q": {"d": 1.0, "e": None}}, "run['q']['e']: score None is not a number"),
    "a list for a score": ({"q": {"d": [1.0]}}, "run['q']['d']: score [1.0] is not a number"),
    "nan": (
        {"q": {"d": 1.0, "e": float("nan")}},
        "run['q']['e']: score nan is not a number; drop the line or rescore it",
    ),
    "a score past all floats": ({"q": {"d": 10**400}}, "run['q']['d']: score 1000000000"),
    "none for a query": (
        {None: {"d": 1.0}},
        "run[None]: query id None is neither text nor a whole",
    ),
    "a fraction for a document": ({"q": {7.0: 1.0}}, "run['q'][7.0]: document id 7.0 is neither"),
    "a truth for a document": ({"q": {True: 1.0}}, "run['q'][True]: document id True is neither"),
    "empty text for a document": ({"q": {"": 1.0}}, "run['q']['']: the document id is empty; give"),
    "the same document as number and text": (
        {"q": {7: 1.0, "7": 2.0}},
        "run['q']['7']: query 'q' lists document '7' a second time; keep one of the two",
    ),
    "a pair of rows": (
        [("q", "d", 1.0), ("q", "d")],
        "run: row 2: cannot read a run from ('q', 'd')",
    ),
    "texts for rows": (["abc", "def"], f"run: row 1: cannot read a run from 'abc'; {ROWS}"),
    "dicts for rows": ([{"query": "q"}], "run: row 1: no column 'doc'; there are: 'query'"),
    "a row's text": (
        [("q", "d", 1.0), ("q", "e", "1")],
        "run: row 2: score '1' is text, not a number",
    ),
    "a row twice": ([("q", "d", 1), ("q", "e", 1), ("q", "d", 1)], "run: row 3: query 'q' lists"),
    "a null in a row": (
        [("q", None, 1.0)],
        "run: row 1: document id None is neither text nor a who",
    ),
    "no column": (
        pl.DataFrame({f"c{i}": [1] for i in range(20)}),
        "run: no column 'query'; there are: 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'c8', "
        "'c9', 'c10', 'c11', …; name them query, doc, score; in a file, on its first line",
    ),
    "a number past every number": (
        {"q": {"a": float("inf"), "b": 10**400}},
        "run['q']['b']: score 1000000000000000000000000000000000000000000000000000000000",
    ),
    "a decimal past every number": (
        [("q", "a", Decimal("inf")), ("q", "b", Decimal("1e400"))],
        "run: row 2: score 1E+400 is past every number; write numbers up to 1.7e308, or inf",
    ),
    "mixed pandas": (
        pd.DataFrame({"query": ["q", 1], "doc": ["a", "b"], "score": [1.0, 2.0]}),
        "run: polars cannot take this DataFrame (",
    ),
    "missing in pandas": (
        pd.DataFrame({"query": ["q", "q"], "doc": ["a", "b"], "score": [1.0, None]}),
        "run: row 2: score ",
    ),
    "ids in pandas that were whole": (
        pd.DataFrame({"query": [1, None], "doc": ["a", "b"], "score": [1.0, 2.0]}),
        "run: column 'query' holds Float64, not ids; make it text or whole numbers",
    ),
}


@pytest.mark.parametrize("native", [True, False], ids=["compiled", "general"])
@pytest.mark.parametrize("case", BAD_OBJECTS)
def test_a_bad_object_is_refused_with_its_place(
    monkeypatch: pytest.MonkeyPatch, case: str, native: bool
) -> None:
    if not native:
        monkeypatch.setattr(kernels, "native", None)
    source, expected = BAD_OBJECTS[case]
    assert refused(source).startswith(expected)


def test_grades_of_objects_are_whole_numbers() -> None:
    assert refused({"q": {"d": 0.5}}, "qrels").startswith("qrels['q']['d']: grade 0.5 is not a who")
    assert refused({"q": {"d": float("nan")}}, "qrels").startswith("qrels['q']['d']: grade nan is")
    assert refused([("q", "d", float("inf"))], "qrels").startswith("qrels: row 1: grade inf is not")
    assert refused(None, "qrels").startswith("qrels: cannot read a qrels from None; give a path")


def test_a_long_id_is_not_printed_whole(tmp_path: Path) -> None:
    long = "x" * 1_000_000
    path = tmp_path / "run"
    path.write_text(f"q Q0 {long} 1 1 t\nq Q0 {long} 2 1 t\n")
    for source in (path, json.loads(json.dumps({long: {long: None}})), [(long, long, 1)] * 2):
        assert "xxx…" in refused(source)


def test_an_error_of_the_caller_s_own_is_not_hidden() -> None:
    def rows() -> Any:
        yield ("q", "d", 1.0)
        raise TypeError("the caller's own")

    with pytest.raises(TypeError, match="the caller's own"):
        read_run(rows())


@pytest.mark.parametrize(
    "text", ['""\n"', 'query_id,doc_id,rank,score\nq1,d1,1,2.5\n"q",007,1,1e400\n""']
)
def test_rows_that_readers_count_differently_are_refused_in_a_line(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "run.csv").write_text(text)
    with pytest.raises(InputError):
        read_run(tmp_path / "run.csv", format="csv")


@pytest.mark.parametrize("form", ["plain", "msmarco"])
@pytest.mark.parametrize("text", ["\x0c", " \n\n", "# nothing\n"])
def test_three_columns_of_nothing_are_no_rows(tmp_path: Path, form: str, text: str) -> None:
    path = tmp_path / "F"
    path.write_text(text)
    assert refused(path, format=form) == f"{path}: no rows; check how it was made"
