"""TREC files: the compiled reader and the general one give the table that was written."""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import math
import random
import re
import struct
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal, getcontext
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from progress_display import reporting_to
from rankproof_cli import in_text

from rankproof import InputError, read_qrels, read_run
from rankproof.compat import ranx
from rankproof.data import sources, trec
from rankproof.data.columns import Columns, Kind, cast_numbers
from rankproof.data.sources import Source
from rankproof.evaluation import Policy
from rankproof.evaluation.streaming import evaluate_stream
from rankproof.foundation import kernels, lines
from rankproof.foundation.kernels import as_polars
from rankproof.measures import parse

zstd = importlib.import_module(
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstd.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
needs_compiled = pytest.mark.skipif(kernels.native is None, reason="not compiled here")

Row = tuple[str, str, str]  # query, document, number as it is written


def bits(number: float) -> bytes:
    return struct.pack("<d", number)


def table(columns: Columns | None) -> list[tuple[str, str, bytes]]:
    assert columns is not None
    return [
        (columns.queries[int(code)], doc, bits(value))
        for code, doc, value in zip(columns.codes, columns.doc, columns.value, strict=True)
    ]


def meant(rows: list[Row]) -> list[tuple[str, str, bytes]]:
    return [(query, doc, bits(float(number))) for query, doc, number in rows]


def line(row: Row, kind: Kind, blank: str = " ") -> str:
    query, doc, number = row
    fields = [query, "Q0", doc, "1", number, "tag"] if kind == "run" else [query, "0", doc, number]
    return blank.join(fields)


@contextmanager
def chunks_of(size: int, threads: int = 1) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "CHUNK", size)
        patch.setattr(trec, "CHUNK", size)
        patch.setattr(kernels, "THREADS", threads)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trec")


# --------------------------------------------------------------------------- blanks in ids

MIXED = [  # what is written, and what the message says of its last line
    ("q1 Q0 new york 1 0.9 t", "the tag '0.9' is a number and more follows it"),
    ("q1 Q0 apollo 11 1 0.9 t", "the tag '0.9' is a number and more follows it"),
    ("new york Q0 d 1 0.9 t", "the tag '0.9' is a number and more follows it"),
    ("q1 Q0 new york 1 0.9", "the tag '0.9' is a number and the rank 'york' is none"),
    ("q1 Q0 a 1 0.9 t\nq1 Q0 new york 1 -.8e1", "the rank 'york' is none"),
    ("q1 Q0 a 1 0.9 5\nq1 Q0 new york 1 0.8", "the rank 'york' is none"),
    ("q1 Q0 a 1 0.9\nq1 Q0 new york 1 0.8", "the rank 'york' is none"),
    ("q1 Q0 a 1 0.9 t u\nq1 Q0 apollo 11 1 0.8 t u", "more follows it"),
]


def compiled_or_not(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    if not compiled:
        monkeypatch.setattr(kernels, "native", None)
    elif kernels.native is None:
        pytest.skip("not compiled here")


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("ending", sorted(COMPRESS))
@pytest.mark.parametrize(("text", "said"), MIXED)
def test_a_line_whose_ids_hold_blanks_is_refused_by_every_reader(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    said: str,
    ending: str,
    compiled: bool,
) -> None:
    compiled_or_not(monkeypatch, compiled)
    path = tmp_path / f"run{ending}"
    path.write_bytes(COMPRESS[ending](text.encode() + b"\n"))
    last = text.count("\n") + 1
    expected = re.escape(f"{path}:{last}: ") + f".*{re.escape(said)}.*; write ids without blanks"
    with pytest.raises(InputError, match=expected):
        read_run(path)
    with pytest.raises(InputError, match=expected):
        evaluate_stream(path, read_qrels({"q1": {"d": 1}}), [parse("RR")], Policy(), memory="16MiB")


def test_a_blank_in_an_id_is_seen_where_the_tag_is_no_unicode(tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(b"q1 Q0 new york 1 0.9 t\xe9\n")
    with pytest.raises(InputError, match=r"run:1: the tag .* is a number and more follows it"):
        read_run(tmp_path / "run")


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        *("q1 Q0 d 1 0.9 t", "q1 Q0 d 1 0.9 5", "q1 Q0 d 1. 0.9 1e3", "q1 Q0 d 1 0.9 inf"),
        *("q1 Q0 d one 0.9 t", "q1 Q0 d - 0.9 5x", "q1 Q0 d x 0.9 nan", "q1 Q0 d x 0.9 .", ""),
        *("q1 Q0 d 1 0.9", "q1 Q0 d 1 0.9 my run", "q1 Q0 d 1 0.9 my 5", "q1 Q0 d x 0.9 e5"),
    ],
)
def test_a_tag_that_is_a_number_is_one_where_the_rank_is_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, compiled: bool
) -> None:
    compiled_or_not(monkeypatch, compiled)
    (tmp_path / "run").write_text(f"{text or 'q1 Q0 d 10000000000 0.9 12345678'}\n")
    assert read_run(tmp_path / "run").doc.to_list() == ["d"]


@needs_compiled
@given(*[st.text("0159+-.eEiInNfFtTyYx", min_size=1, max_size=9)] * 2)
@example("infinity", "Infinity")
@example("x", "-.5e-1")
@example("1e", "1e5")
@example("123456789", "1")
def test_both_readers_hold_the_same_tags_and_ranks_for_numbers(
    folder: Path, rank: str, tag: str
) -> None:
    (folder / "numbers").write_text(f"q1 Q0 d {rank} 0.9 {tag}\n")
    source = Source(folder / "numbers")
    try:
        trec.read_general(source, "run")
        refused = False
    except InputError:
        refused = True
    assert (trec.read_fast(source, "run") is None) == refused


def test_the_other_tools_read_a_line_as_it_comes(tmp_path: Path) -> None:
    (tmp_path / "q").write_text("q1 0 new 1\n")
    (tmp_path / "run").write_text("q1 Q0 old york 2 0.9\nq1 Q0 new york 1 0.8\n")
    ours = in_text("eval", str(tmp_path / "q"), str(tmp_path / "run"))
    assert (ours.returncode, ours.stdout) == (2, "")
    theirs = in_text("trec_eval", str(tmp_path / "q"), str(tmp_path / "run"), "-m", "map")
    assert theirs.stdout == "map                   \tall\t0.5000\n"
    (tmp_path / "more").write_text("q1 Q0 new york 1 0.9 t\n")
    theirs = in_text("trec_eval", str(tmp_path / "q"), str(tmp_path / "more"), "-m", "map")
    assert theirs.stdout == "map                   \tall\t1.0000\n"
    assert ranx.Run.from_file(tmp_path / "run").to_dict()["q1"] == {"old": 2.0, "new": 1.0}


def test_a_blank_in_an_id_of_judgements_is_refused(tmp_path: Path) -> None:
    for text in ("q1 0 new york 1", "q1 0 d 1\nq1 0 new york 1", "q1 0 apollo 11 1"):
        (tmp_path / "q").write_text(f"{text}\n")
        place = f"q:{text.count(chr(10)) + 1}: 5 columns where a TREC qrels has 4"
        with pytest.raises(InputError, match=f"{place}.*ids hold no blanks"):
            read_qrels(tmp_path / "q")


# ------------------------------------------------------------------------------- whole files

# Ids end around the 12 bytes that are held inline; the rest is text that is no blank.
SIGNS = st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters=" ")
IDS = st.one_of(
    st.integers(10, 14).map(lambda n: "x" * n),
    st.sampled_from(
        ["7", "007", "#1", "é" * 6, "é" * 6 + "a", "日本語文書", "\ufeff", "\xa0", "\u2028"]
    ),
    st.text(SIGNS, min_size=1, max_size=30),
)
QUERIES = st.one_of(st.sampled_from(["q1", "q2", "a-query-of-more-than-12-bytes"]), IDS).filter(
    lambda query: not query.startswith(("#", "\ufeff"))  # a comment, a byte-order mark
)
NUMBERS = st.one_of(
    st.floats(allow_nan=False).map(repr),
    st.sampled_from(
        [
            *("0", "-0.0", "+1", "1.", ".5", "-.5", "1e3", "1E-3", "1e+05", "00012", "0.1e-1"),
            *("inf", "-inf", "Infinity", "+INF", "1e-400", "5e-324"),
            *("12.50386047363281", "0.30000000000000004", "1.7976931348623157e308"),
            *("9007199254740993", "9007199254740992.9999999999", "1e0000000000005"),
            "123456789012345678901234567890",
        ]
    ),
)
BLANKS = st.text(" \t\r\x0b\x0c", min_size=1, max_size=3)
NOISE = st.sampled_from(["", " ", "\t\r", "# a comment", "  #", "#q1 Q0 d 1 1 t"])


@st.composite
def files(draw: st.DrawFn) -> tuple[Kind, list[Row], bytes]:
    """Rows, and the bytes of a file that says them in an awkward way."""
    kind: Kind = draw(st.sampled_from(("run", "qrels")))
    rows = draw(st.lists(st.tuples(QUERIES, IDS, NUMBERS), min_size=1, max_size=25))
    ending = draw(st.sampled_from(["\n", "\r\n", " \n", "\t\r\n"]))
    texts = []
    for row in rows:
        texts += draw(st.lists(NOISE, max_size=1))
        texts.append(draw(st.sampled_from(["", " ", "\t"])) + line(row, kind, draw(BLANKS)))
    text = ending.join(texts) + draw(st.sampled_from(["", ending, ending * 3]))
    bom = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    return kind, rows, bom + text.encode()


@needs_compiled
@settings(max_examples=4 * settings().max_examples)
@given(files(), st.sampled_from(sorted(COMPRESS)), st.integers(1, 99), st.sampled_from([1, 2, 5]))
def test_both_readers_give_the_rows_that_were_written(
    folder: Path, file: tuple[Kind, list[Row], bytes], ending: str, size: int, threads: int
) -> None:
    kind, rows, data = file
    path = folder / f"file{ending}"
    path.write_bytes(COMPRESS[ending](data))
    with chunks_of(size, threads):
        source = Source(path)
        fast, general = trec.read_fast(source, kind), trec.read_general(source, kind)
    assert table(fast) == table(general) == meant(rows)
    assert fast is not None
    assert list(fast.queries) == list(general.queries)
    assert as_polars(fast.doc, "doc").dtype == as_polars(general.doc, "doc").dtype == pl.String
    assert fast.codes.dtype == general.codes.dtype == np.int32


SCATTERED = [("q1", "a", "3"), ("q2", "b-document-of-many-bytes", "2.5"), ("q1", "c", "1e0")]


@needs_compiled
@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_no_cut_of_the_file_changes_the_table(tmp_path: Path, bom: bytes, ending: str) -> None:
    path = tmp_path / "run"
    text = (ending or "\n").join(line(row, "run") for row in SCATTERED) + ending
    path.write_bytes(bom + text.encode())
    source = Source(path)
    for size, threads in product(range(1, 60), (1, 2, 5)):
        with chunks_of(size, threads):
            assert table(trec.read_fast(source, "run")) == meant(SCATTERED), (size, threads)


def test_a_range_of_the_file_holds_the_lines_that_begin_in_it(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    texts = [b"1\n", b"\n", b"a longer line\n", b"\r\n", b"22\n", b"a last line without an end"]
    path.write_bytes(b"".join(texts))
    begins = [sum(map(len, texts[:i])) for i in range(len(texts) + 1)]
    source = Source(path)
    for size, begin in product((1, 2, 3, 7, 64), range(begins[-1])):
        for end in range(begin, begins[-1] + 1):
            with chunks_of(size):
                found = b"".join(map(bytes, trec.range_blocks(source, begin, end)))
            expected = [text for at, text in zip(begins, texts, strict=False) if begin <= at < end]
            assert found == b"".join(expected), (size, begin, end)


@needs_compiled
@pytest.mark.parametrize("ending", sorted(COMPRESS))
def test_ids_may_be_a_megabyte_long(tmp_path: Path, ending: str) -> None:
    long = "é" * (1 << 19)
    rows = [(long, "d", "2"), ("q", long + "x", "1"), (long, long + "y", "0.5")]
    path = tmp_path / f"run{ending}"
    path.write_bytes(COMPRESS[ending]("\n".join(line(row, "run") for row in rows).encode()))
    source = Source(path)
    for size, threads in ((1 << 22, 1), (1 << 12, 1), (1 << 16, 5)):
        with chunks_of(size, threads):
            assert table(trec.read_fast(source, "run")) == meant(rows)
    assert table(trec.read_general(source, "run")) == meant(rows)


@needs_compiled
def test_threads_that_meet_no_line_of_their_own_add_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text(line(("q", "d" * 5000, "1"), "run") + "\n" * 50)
    for threads in (1, 2, 5):
        with chunks_of(16, threads):
            assert table(trec.read_fast(Source(path), "run")) == meant([("q", "d" * 5000, "1")])


@pytest.mark.parametrize("native", [pytest.param(True, marks=needs_compiled), False])
def test_a_run_keeps_the_order_of_the_file_within_each_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    if not native:
        monkeypatch.setattr(kernels, "native", None)
    path = tmp_path / "bm25.trec"
    path.write_text("\n".join(line(row, "run") for row in SCATTERED))
    run = read_run(path)
    assert run.to_frame().rows() == [
        ("q1", "a", 3.0),
        ("q1", "c", 1.0),
        ("q2", "b-document-of-many-bytes", 2.5),
    ]
    assert (run.name, run.dtype) == ("bm25", "float64")


# ---------------------------------------------------------------------------------- numbers

DIGITS = st.text("0123456789", min_size=1, max_size=25)
DECIMALS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    DIGITS,
    st.one_of(st.just(""), st.just("."), DIGITS.map(".{}".format)),
    st.one_of(st.just(""), st.integers(-345, 330).map("e{}".format)),
)


def compiled_numbers(numbers: list[str]) -> list[bytes] | None:
    """What the compiled parser makes of them, or None if it gives up."""
    assert kernels.native is not None
    found = []
    for behind in ("", "#" * 64):  # with room to read eight digits at a time, and without
        parser = kernels.native.TrecParser(4)
        fed = parser.feed(("".join(f"q 0 d {n}\n" for n in numbers) + behind).encode())
        value = np.frombuffer(parser.finish()[3], np.float64) if fed else None
        found.append(None if value is None else [bits(number) for number in value])
    assert found[0] == found[1]
    return found[0]


def general_numbers(numbers: list[str]) -> list[bytes] | None:
    found, wrong = cast_numbers(pl.Series(numbers, dtype=pl.String))
    return None if wrong is not None else [bits(number) for number in found]


@needs_compiled
@given(st.lists(DECIMALS, min_size=1, max_size=100))
@example(["9007199254740993", "2.2250738585072011e-308", "1e23", "8.5e22", "0.000001e-27"])
def test_numbers_are_those_that_python_reads(numbers: list[str]) -> None:
    numbers = [number for number in numbers if not math.isinf(float(number))]
    expected = [bits(float(number)) for number in numbers]
    short = [number for number in numbers if len(number) < 64]
    assert compiled_numbers(short) == [bits(float(number)) for number in short]
    assert general_numbers(numbers) == expected


AROUND = [
    str(whole + step)
    for whole in (2**53, 2**63, 2**64, 2**65, 2**128, 10**18, 10**19, 10**20)
    for step in (-2, -1, 0, 1, 2)
]


@needs_compiled
def test_numbers_where_a_64_bit_word_is_full_are_those_that_python_reads() -> None:
    written = [
        form.format(whole, whole[:at], whole[at:])
        for whole in AROUND
        for at in range(len(whole) + 1)
        for form in ("{1}.{2}", "-000{1}.{2}", "{1}.{2}e3", "{1}.{2}E-30", "0.00{0}", "{0}.000000")
    ]
    numbers = [number for number in [*AROUND, *written] if len(number) < 64]
    expected = [bits(float(number)) for number in numbers]
    assert compiled_numbers(numbers) == expected
    assert general_numbers(numbers) == expected


@pytest.mark.parametrize("native", [True, False], ids=["compiled", "general"])
@pytest.mark.parametrize("grade", ["18446744073709551616", "9223372036854775808.000000"])
def test_a_grade_past_64_bits_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: bool, grade: str
) -> None:
    if not native:
        monkeypatch.setattr(kernels, "native", None)
    (tmp_path / "qrels").write_text(f"q 0 a 1\nq 0 b {grade}\n")
    with pytest.raises(InputError, match=r"qrels:2: grade .* is past 2\^53"):
        read_qrels(tmp_path / "qrels")


def halfway(seed: int, count: int) -> Iterator[str]:
    """Numbers on, just above and just below the middle between two doubles."""
    rng = random.Random(seed)
    getcontext().prec = 60
    for _ in range(count):
        low = rng.uniform(1, 2) * 10.0 ** rng.randint(-12, 25)
        middle = (Decimal(low) + Decimal(float(np.nextafter(low, np.inf)))) / 2
        for digits in (16, 17, 18, 19, 20, 21, 25, 40):
            yield f"{middle:.{digits}e}"
            if digits < 20 and 1e-4 < low < 1e15:
                yield f"{middle:.{max(0, digits - len(str(int(low))))}f}"


@needs_compiled
def test_numbers_near_halfway_between_two_doubles_are_rounded_as_python_rounds() -> None:
    numbers = list(halfway(seed=1, count=3000))
    expected = [bits(float(number)) for number in numbers]
    assert compiled_numbers(numbers) == expected
    assert general_numbers(numbers) == expected


@needs_compiled
def test_many_random_numbers_of_every_length_are_those_that_python_reads() -> None:
    rng = random.Random(2)
    numbers = []
    for _ in range(100_000):
        digits = str(rng.randrange(10 ** rng.randint(1, 21)))
        point = rng.randint(0, len(digits))
        exponent = f"e{rng.randint(-40, 40)}" if rng.random() < 0.5 else ""
        numbers.append(f"{digits[:point]}.{digits[point:]}{exponent}")
    expected = [bits(float(number)) for number in numbers]
    assert compiled_numbers(numbers) == expected
    assert general_numbers(numbers) == expected


@needs_compiled
@settings(max_examples=12 * settings().max_examples)
@given(
    st.one_of(
        st.text("0123456789+-.eE", min_size=1, max_size=12),
        st.text("infatyINFATY+-", min_size=1, max_size=9),
        st.sampled_from(
            ["nan", "NaN", "1e", "1e+", "1_0", "0x10", "١", "1,5", "--1", "in", "infin", "."]
        ),
        st.text(SIGNS, min_size=1, max_size=8),
    )
)
def test_what_is_a_number_is_agreed_on(text: str) -> None:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    plain = text.isascii() and "_" not in text  # Python reads 1_000 and ١٢; a score file does not
    past = math.isinf(number) and "inf" not in text.lower()
    expected = [bits(number)] if plain and number == number and not past else None
    assert compiled_numbers([text]) == expected
    assert general_numbers([text]) == expected


@needs_compiled
def test_a_number_too_long_for_the_compiled_reader_is_still_read(tmp_path: Path) -> None:
    number = "0." + "0" * 80 + "1" * 80
    path = tmp_path / "run"
    path.write_text(line(("q", "d", number), "run"))
    assert trec.read_fast(Source(path), "run") is None
    assert read_run(path).score.tolist() == [float(number)]


# ----------------------------------------------------------------------------------- UTF-8


def accepted(data: bytes) -> bool:
    assert kernels.native is not None
    return bool(kernels.native.TrecParser(4).feed(b"#" + data))


def decodes(data: bytes) -> bool:
    """To text without control characters from DEL on, which no id may hold."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return not any("\x7f" <= sign <= "\x9f" for sign in text)


EDGES = bytes.fromhex("00 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")


@needs_compiled
def test_text_is_valid_where_python_says_so_at_every_edge_of_utf8() -> None:
    for length in (1, 2, 3):
        for data in map(bytes, product(EDGES, repeat=length)):
            assert accepted(data) == decodes(data), data
    for last in map(bytes, product(b"\x7f\x80\x8f\x90\xbf\xc0", repeat=3)):
        for lead in range(0xE0, 0x100):
            data = bytes([lead]) + last
            assert accepted(data) == decodes(data), data


@needs_compiled
@settings(max_examples=8 * settings().max_examples)
@given(st.one_of(st.binary(max_size=40), st.text().map(str.encode)), st.data())
def test_text_is_valid_where_python_says_so(data: bytes, draw: st.DataObject) -> None:
    data = data.replace(b"\n", b"")
    if data and draw.draw(st.booleans()):
        data = data[: draw.draw(st.integers(0, len(data)))]
    assert accepted(data) == decodes(data)


# ------------------------------------------------------------------------ the parser itself


@needs_compiled
def test_a_parser_can_be_used_again_after_it_gave_its_columns_away() -> None:
    assert kernels.native is not None
    parser = kernels.native.TrecParser(6)
    for query in ("one", "a-query-of-more-than-12-bytes", "one"):
        assert parser.feed(line((query, "d", "1"), "run").encode())
        queries, codes, _, value = parser.finish()
        assert as_polars(queries, "query").to_list() == [query]
        assert (bytes(codes), bytes(value)) == (bytes(4), bits(1.0))
    _, codes, docs, _ = parser.finish()
    assert bytes(codes) == b""
    assert as_polars(docs, "doc").to_list() == []


@needs_compiled
def test_columns_outlive_the_parser_and_each_other() -> None:
    assert kernels.native is not None
    rows = [("q", f"document-number-{i}", str(i)) for i in range(10_000)]
    parser: Any = kernels.native.TrecParser(6)
    assert parser.feed("\n".join(line(row, "run") for row in rows).encode())
    _, _, docs, value = parser.finish()
    del parser
    numbers = np.frombuffer(value, np.float64)
    documents = as_polars(docs, "doc")
    del docs, value
    assert documents.to_list() == [doc for _, doc, _ in rows]
    assert numbers.tolist() == list(range(10_000))


@needs_compiled
def test_gathered_ids_hold_the_text_that_they_share() -> None:
    assert kernels.native is not None
    names = ["d", "a-document-of-many-bytes", "twelve-bytes", "another-document-of-many-bytes"]
    parser: Any = kernels.native.TrecParser(4)
    assert parser.feed("\n".join(line(("q", name, "1"), "qrels") for name in names).encode())
    docs = parser.finish()[2]
    some = docs.gather(np.array([3, 1, 1, 0])).gather(np.array([0, 2]))
    shown = as_polars(some, "doc")
    del docs, parser
    assert list(some) == shown.to_list() == [names[3], names[1]]
    del some
    assert shown.to_list() == [names[3], names[1]]
    parser = kernels.native.TrecParser(4)
    assert parser.feed(b"q 0 d 1")
    docs = parser.finish()[2]
    for row in (1, -2):
        with pytest.raises(IndexError):
            docs.gather(np.array([row]))
        with pytest.raises(IndexError):
            docs[row]


@needs_compiled
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), min_size=1, unique=True))
def test_scattered_rows_are_brought_together_alike_compiled_and_not(
    pairs: list[tuple[int, int]],
) -> None:
    native = kernels.native
    assert native is not None
    parser = native.TrecParser(4)
    rows = [(f"q{query}", f"{'long-document-' * (doc % 2)}{doc}", str(doc)) for query, doc in pairs]
    assert parser.feed("\n".join(line(row, "qrels") for row in rows).encode())
    queries, codes, doc, value = parser.finish()
    codes, value = np.frombuffer(codes, np.int32), np.frombuffer(value, np.float64)
    start, docs, values = kernels.group_rows(codes, len(queries), doc, value)
    plain = kernels.group_rows(codes, len(queries), as_polars(doc, "doc"), value)
    assert start.tolist() == plain[0].tolist()
    assert list(docs) == plain[1].to_list()
    assert values.tolist() == plain[2].tolist()
    place, _ = kernels.rank_rows(
        np.zeros(len(queries)), np.array([0, len(queries)]), queries, False
    )
    assert [x for _, x in sorted(zip(place, queries, strict=True))] == sorted(queries)
    assert kernels.match_ids(queries, queries).tolist() == list(range(len(queries)))


@needs_compiled
@pytest.mark.parametrize("readers", [1, 2, 3])
def test_pieces_read_by_several_readers_are_the_rows_of_one_file(readers: int) -> None:
    assert kernels.native is not None
    rows = [(f"q{i * i % 7}", "d" * (i % 30 + 1) + str(i), str(i)) for i in range(500)]
    texts = [line(row, "qrels") for row in rows]
    texts[100:100] = [
        "",
        "# a line that is no row",
        " \t",
    ]  # so that a piece has less rows than texts
    for cuts in ([250], [0, 250, 250, 499, 503], list(range(1, 503))):
        for expected in (0, 1, len(cuts) + 1, 1000):
            parser: Any = kernels.native.TrecParser(4, readers, expected)
            ends = zip([0, *cuts], [*cuts, len(texts)], strict=True)
            for number, (begin, end) in enumerate(ends):
                piece = "".join(f"{text}\n" for text in texts[begin:end]).encode()
                assert parser.feed(piece, number, number * 5 % readers)
            assert parser.feed(line(("q0", "the-last-document", "9"), "qrels").encode())
            queries, codes, doc, value = parser.finish()
            found = Columns(
                as_polars(queries, "query"),
                np.frombuffer(codes, np.int32),
                as_polars(doc, "doc"),
                np.frombuffer(value, np.float64),
                str,
            )
            assert table(found) == meant([*rows, ("q0", "the-last-document", "9")])
            assert list(found.queries) == list(dict.fromkeys(query for query, _, _ in rows))


@needs_compiled
def test_a_piece_waits_for_its_place_and_no_longer_than_there_is_hope() -> None:
    assert kernels.native is not None
    parser: Any = kernels.native.TrecParser(4, 3, 3)
    with ThreadPoolExecutor(2) as pool:
        third = pool.submit(parser.feed, b"q 0 c 3", 2, 2)
        second = pool.submit(parser.feed, b"q 0 b 2", 1, 1)
        assert parser.feed(b"q 0 a 1", 0, 0)
        assert second.result()
        assert third.result()
    assert list(parser.finish()[2]) == ["a", "b", "c"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(parser.feed, b"q 0 c 3", 2, 2)
        parser.stop()
        assert not waiting.result()
    with pytest.raises(RuntimeError, match="gave up"):
        parser.finish()


@needs_compiled
def test_a_parser_refuses_pieces_and_readers_that_there_are_not() -> None:
    assert kernels.native is not None
    parser: Any = kernels.native.TrecParser(4, 2)
    assert parser.feed(b"q 0 a 1")
    with pytest.raises(RuntimeError, match="read before"):
        parser.feed(b"q 0 a 1", 0)
    for reader in (-1, 2):
        with pytest.raises(ValueError, match="no such reader"):
            parser.feed(b"q 0 a 1", 1, reader)
    for readers, pieces in ((0, 1), (-1, 1), (5000, 1), (1, -1), (1, 1 << 40)):
        with pytest.raises(ValueError, match="there cannot be"):
            kernels.native.TrecParser(4, readers, pieces)


SHAPES = [
    "1",
    "-2.5",
    "0.8671875",
    "12345678.5",
    "1e-3",
    ".5",
    "7.",
    "+4",
    "0.1234567890123456",
    "123.1234567890123456789",
    "-0.0",
    "inf",
    "00000000000000000001.5",
    "1234567.12345678",
    "12345678901234567890",
    "3.14159265358979312",
    "1E5",
    "-.25e2",
]


@needs_compiled
@given(st.lists(st.sampled_from(SHAPES), min_size=1))
def test_a_number_means_the_same_wherever_it_stands(numbers: list[str]) -> None:
    assert kernels.native is not None
    parser = kernels.native.TrecParser(6)
    text = "".join(f"q Q0 d{i} 1 {number} t\n" for i, number in enumerate(numbers))
    assert parser.feed(text.encode())
    found = np.frombuffer(parser.finish()[3], np.float64)
    assert found.tobytes() == np.array([float(number) for number in numbers]).tobytes()


@needs_compiled
@pytest.mark.parametrize("columns", [0, 5, 7, -1])
def test_a_parser_knows_runs_and_qrels_only(columns: int) -> None:
    assert kernels.native is not None
    with pytest.raises(ValueError, match="6 columns"):
        kernels.native.TrecParser(columns)


@needs_compiled
def test_a_file_that_cannot_be_read_stops_all_of_its_readers() -> None:
    assert kernels.native is not None
    parser = kernels.native.TrecParser(6, 2, 4)
    with pytest.raises(OSError, match="descriptor"):
        parser.fetch(-1, 0, 9, 0, 4, 100, 0, 1)
    assert not parser.feed(b"q Q0 d 1 1 t\n", 3, 1)  # nobody waits for the pieces before


# ------------------------------------------------------------------------------ read ahead


@needs_compiled
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_a_run_read_ahead_is_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bom: bytes
) -> None:
    monkeypatch.setattr(lines, "_LARGE", 1)
    path = tmp_path / "run"
    path.write_bytes(bom + "\n".join(line(row, "run") for row in SCATTERED).encode())
    lines.read_ahead(str(path))
    assert list(lines._read_ahead) == [str(path)]
    amounts: list[float] = []
    with reporting_to(amounts.append):
        assert table(trec.read_fast(Source(path), "run")) == meant(SCATTERED)
    assert amounts == [path.stat().st_size]
    assert not lines._read_ahead


@needs_compiled
def test_a_run_laid_out_ahead_is_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    path.write_text("\n".join(line(row, "run") for row in SCATTERED))
    run = read_run(path)
    monkeypatch.setattr(lines, "_LARGE", 1)
    lines.read_ahead(str(path))
    trec.group_ahead()
    amounts: list[float] = []
    with reporting_to(amounts.append):
        ahead = read_run(path)
    assert ahead.to_frame().equals(run.to_frame())
    assert ahead.index is not None
    assert amounts == [path.stat().st_size]
    assert not trec._grouping
    path.write_text("q Q0 d 1 2 t\np Q0 d 1 1 t\nq Q0 d 2 1 t\n")
    lines.read_ahead(str(path))
    trec.group_ahead()
    with pytest.raises(InputError, match="run:3: query 'q' lists document 'd' a second time"):
        read_run(path)
    path.write_text("q Q0 d 1 one t\n")
    lines.read_ahead(str(path))
    trec.group_ahead()
    with pytest.raises(InputError, match="run:1: score 'one'"):
        read_run(path)


@needs_compiled
def test_what_was_read_ahead_of_a_file_that_changed_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_LARGE", 1)
    path = tmp_path / "run"
    path.write_text(line(("q", "d", "1"), "run"))
    lines.read_ahead(str(path))
    path.write_text("\n".join(line(row, "run") for row in SCATTERED))
    assert table(trec.read_fast(Source(path), "run")) == meant(SCATTERED)


@needs_compiled
def test_what_cannot_be_read_ahead_is_told_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_LARGE", 1)
    path = tmp_path / "run"
    for text, words in (("q Q0 d 1 one t\n" * 3, "one"), ("x" * (lines.LINE + 2), "MiB")):
        path.write_text(text)
        lines.read_ahead(str(path))
        with pytest.raises(InputError, match=words):
            trec.read_trec(Source(path), "run")
    lines.read_ahead(str(tmp_path))
    lines.read_ahead(str(tmp_path / "none"))
    lines.read_ahead("\0")
    monkeypatch.setattr(lines, "available_memory", lambda: 10)
    lines.read_ahead(str(path))
    assert not lines._read_ahead


def test_a_file_that_became_empty_has_no_lines_left_to_wait_for(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.touch()
    assert [bytes(piece) for piece in lines.iter_pieces(str(path), 0, 9, 0, 4)] == [b""] * 3
    if kernels.native is not None:
        parser = lines.read_in_background(kernels.native, 6, str(path), 0, 9, 0, 4, 2).finish()
        assert not len(parser.finish()[2])


def test_a_line_as_long_as_lines_may_be_is_one(tmp_path: Path) -> None:
    path = tmp_path / "run"
    text = f"# {'x' * (lines.LINE - 2)}"
    path.write_text(f"{line(('q', 'd', '1'), 'run')}\n{text}\n")
    assert len(read_run(path)) == 1
    path.write_text(f"{line(('q', 'd', '1'), 'run')}\n{text}x\n{line(('q', 'e', '1'), 'run')}\n")
    with pytest.raises(InputError, match="run:2: a line of more than 4 MiB"):
        read_run(path)
