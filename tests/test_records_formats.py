"""Whatever holds a run or judgements, the table is the same."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from rankproof import Qrels, Run, read_qrels, read_run
from rankproof.data import FORMATS
from rankproof.foundation import kernels

RUN = [
    ("q1", "007", 3.5),
    ("q1", "7", -0.25),
    ("日本", "d with blanks", 1e-300),
    ("q1", "é,\"'", 0.1),
]
GROUPED = [RUN[0], RUN[1], RUN[3], RUN[2]]  # a query's rows stand together
QRELS = [("q2", "007", 0), ("q1", "7", 3), ("q2", "x" * 13, 1)]
SORTED = [QRELS[1], QRELS[0], QRELS[2]]  # judgements are sorted by query


def frame(rows: list[tuple[Any, ...]], *names: str) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=list(names), orient="row")


def nested(rows: Iterable[tuple[str, str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for query, doc, value in rows:
        found.setdefault(query, {})[doc] = value
    return found


def lines(rows: list[tuple[str, str, Any]], *names: str) -> bytes:
    return "\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows).encode()


def written(write: str, rows: list[tuple[Any, ...]], *names: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    getattr(frame(rows, *names), write)(buffer, **options)
    return buffer.getvalue()


RUN_NAMES = ("query_id", "doc_id", "score")
RUN_FILES: dict[str, bytes] = {
    "run.csv": written("write_csv", RUN, *RUN_NAMES),
    "run.tsv": written("write_csv", RUN, *RUN_NAMES, separator="\t", quote_style="never"),
    "run.json": json.dumps(nested(RUN)).encode(),
    "pretty.json": json.dumps(nested(RUN), indent=2, ensure_ascii=False).encode(),
    "run.jsonl": lines(RUN, *RUN_NAMES),
    "blank.ndjson": lines(RUN, *RUN_NAMES).replace(b"\n", b"\r\n\r\n") + b"\n\n",
    "run.parquet": written("write_parquet", RUN, *RUN_NAMES),
    "run.arrow": written("write_ipc", RUN, *RUN_NAMES),
    "compressed.feather": written("write_ipc", RUN, *RUN_NAMES, compression="zstd"),
    "stream.arrow": written("write_ipc_stream", RUN, *RUN_NAMES),
}


@pytest.mark.parametrize("name", RUN_FILES)
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_every_file_format_gives_the_same_run(tmp_path: Path, name: str, bom: bytes) -> None:
    path = tmp_path / name
    binary = name.endswith(("parquet", "arrow", "feather"))  # which have no byte-order mark
    path.write_bytes(RUN_FILES[name] if binary else bom + RUN_FILES[name])
    run = read_run(path)
    assert sorted(run.to_frame().rows()) == sorted(RUN)
    assert run.queries.to_list() == ["q1", "日本"]
    assert (run.name, run.dtype) == (path.stem, "float64")


@pytest.mark.parametrize("name", RUN_FILES)
def test_the_content_tells_the_format_where_the_name_does_not(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run.txt"
    path.write_bytes(RUN_FILES[name])
    assert sorted(read_run(path).to_frame().rows()) == sorted(RUN)


@pytest.mark.parametrize("name", RUN_FILES)
def test_format_overrides_the_name(tmp_path: Path, name: str) -> None:
    ending = {"ndjson": "jsonl", "feather": "arrow"}.get(name.split(".")[1], name.split(".")[1])
    path = tmp_path / ("run.csv" if ending != "csv" else "run.json")
    path.write_bytes(RUN_FILES[name])
    (form,) = (form for form in FORMATS if form == ending)
    assert sorted(read_run(path, format=form).to_frame().rows()) == sorted(RUN)


class ScoredDoc(NamedTuple):  # as ir_measures has it
    query_id: str
    doc_id: str
    score: float


class Judgement(NamedTuple):  # ir_measures.Qrel
    query_id: str
    doc_id: str
    relevance: int
    iteration: str = "0"


RUN_OBJECTS: dict[str, Callable[[], Any]] = {
    "dict": lambda: nested(RUN),
    "mapping": lambda: MappingProxyType(nested(RUN)),
    "polars": lambda: frame(RUN, *RUN_NAMES),
    "lazy": lambda: frame(RUN, *RUN_NAMES).lazy(),
    "pandas": lambda: pd.DataFrame(RUN, columns=list(RUN_NAMES)),
    "pandas by category": lambda: pd.DataFrame(RUN, columns=list(RUN_NAMES)).astype(
        {"query_id": "category", "doc_id": "category"}
    ),
    "pyarrow": lambda: pa.table(dict(zip(RUN_NAMES, zip(*RUN, strict=True), strict=True))),
    "record batch": lambda: pa.record_batch(
        {
            name: pa.array(column)
            for name, column in zip(RUN_NAMES, zip(*RUN, strict=True), strict=True)
        }
    ),
    "reader": lambda: frame(RUN, *RUN_NAMES).to_arrow().to_reader(),
    "tuples": lambda: RUN,
    "generator": lambda: iter(RUN),
    "namedtuples": lambda: [ScoredDoc(*row) for row in RUN],
    "numpy text": lambda: [(np.str_(q), np.str_(d), np.float64(s)) for q, d, s in RUN],
    "array": lambda: np.array(RUN, object),
}


@pytest.mark.parametrize("kind", RUN_OBJECTS)
def test_every_object_gives_the_same_run(kind: str) -> None:
    run = read_run(RUN_OBJECTS[kind]())
    assert run.to_frame().rows() == GROUPED
    assert (run.name, run.dtype) == ("run", "float64")


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    "source",
    [
        nested(QRELS),
        frame(QRELS, "query", "doc", "grade"),
        frame(QRELS, "qid", "docno", "label").to_pandas(),
        frame(QRELS, "query-id", "corpus-id", "score").to_arrow(),
        QRELS,
        [Judgement(*row) for row in QRELS],
    ],
    ids=["dict", "polars", "pandas", "pyarrow", "tuples", "namedtuples"],
)
def test_every_object_gives_the_same_judgements(
    monkeypatch: pytest.MonkeyPatch, source: Any, native: bool
) -> None:
    if not native:
        monkeypatch.setattr(kernels, "native", None)
    qrels = read_qrels(source)
    assert qrels.to_frame().rows() == SORTED
    assert (qrels.name, qrels.negative) == ("qrels", 0)


def test_the_real_ir_measures_tuples_are_read() -> None:
    ir_measures = pytest.importorskip("ir_measures")
    assert read_qrels([ir_measures.Qrel(*row) for row in QRELS]).to_frame().rows() == SORTED
    assert read_run([ir_measures.ScoredDoc(*row) for row in RUN]).to_frame().rows() == GROUPED


QRELS_FILES: dict[str, bytes] = {
    "test.tsv": b"query-id\tcorpus-id\tscore\nq2\t007\t0\nq1\t7\t3\nq2\txxxxxxxxxxxxx\t1\n",
    "dos.tsv": b"query-id\tcorpus-id\tscore\r\nq2\t007\t0\r\nq1\t7\t3\r\n\r\nq2\txxxxxxxxxxxxx\t1",
    "qrels.txt": b"q2 0 007 0\nq1 0 7 3\nq2 0 xxxxxxxxxxxxx 1\n",
    "tabs.csv": b"query-id\tcorpus-id\tscore\nq2\t007\t0\nq1\t7\t3\nq2\txxxxxxxxxxxxx\t1\n",
    "tabs.tsv": b"q2\t0\t007\t0\nq1\t0\t7\t3\nq2\t0\txxxxxxxxxxxxx\t1\n",
    "fractions.txt": b"q2 0 007 0.0\nq1 0 7 3e0\nq2 0 xxxxxxxxxxxxx 1.\n",
    "qrels.json": json.dumps(nested(QRELS)).encode(),
    "qrels.jsonl": lines(QRELS, "qid", "pid", "relevance"),
    "qrels.csv": b"Query ID, Doc ID ,Rel\nq2,007, 0\nq1,7, 3\n\nq2,xxxxxxxxxxxxx,1 \n\n",
    "qrels.parquet": written("write_parquet", QRELS, "q_id", "documentId", "judgment"),
}


@pytest.mark.parametrize("name", QRELS_FILES)
def test_every_file_format_gives_the_same_judgements(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(QRELS_FILES[name])
    qrels = read_qrels(path)
    assert qrels.to_frame().rows() == SORTED
    assert qrels.name == path.stem


def test_negative_grades_are_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "qrels"
    path.write_text("q1 0 a -1\nq1 0 b 1\nq2 0 a -2\nq2 0 c 0\n")
    qrels = read_qrels(path)
    assert qrels.to_frame().rows() == [("q1", "b", 1), ("q2", "c", 0)]
    assert qrels.negative == 2


# ------------------------------------------------------------------------------------------- ids


def test_ids_are_text_and_whole_numbers_are_written_out() -> None:
    expected = [("1", "7", 0.5), ("1", "9007199254740993", 0.25)]
    rows = [(1, 7, 0.5), (1, 9007199254740993, 0.25)]
    for source in (
        nested(rows),  # type: ignore[arg-type]
        rows,
        frame(rows, *RUN_NAMES),
        frame(rows, *RUN_NAMES).to_pandas(),
        frame(rows, *RUN_NAMES).to_arrow(),
        [(np.int32(q), np.uint64(d), s) for q, d, s in rows],
    ):
        assert read_run(source).to_frame().rows() == expected


def test_ids_from_an_enumeration_are_its_text() -> None:
    class Topic(str, Enum):  # noqa: UP042 - its str() is 'Topic.FIRST'
        FIRST = "t1"

    assert read_run({Topic.FIRST: {"d": 1.0}}).queries.to_list() == ["t1"]


def test_a_query_named_as_number_and_as_text_is_one_query() -> None:
    run = read_run({7: {"a": 1.0}, "8": {"b": 1.0}, "7": {"c": 2.0}})
    assert run.to_frame().rows() == [("7", "a", 1.0), ("7", "c", 2.0), ("8", "b", 1.0)]


def test_a_query_without_documents_has_no_rows() -> None:
    assert read_run({"q1": {}, "q2": {"d": 1.0}}).queries.to_list() == ["q2"]


def test_ids_may_be_a_megabyte_long_in_every_format(tmp_path: Path) -> None:
    long = "é" * (1 << 19)
    rows = [(long, "d", 2.0), (long, long, 1.0)]
    (tmp_path / "run.csv").write_bytes(written("write_csv", rows, *RUN_NAMES))
    (tmp_path / "run.jsonl").write_bytes(lines(rows, *RUN_NAMES))
    (tmp_path / "run.parquet").write_bytes(written("write_parquet", rows, *RUN_NAMES))
    for source in (*tmp_path.iterdir(), nested(rows), rows):
        assert read_run(source).to_frame().rows() == rows


def test_the_column_that_can_only_be_an_id_is_taken() -> None:
    retrieved = pd.DataFrame(  # as PyTerrier returns it
        {
            "qid": ["1"],
            "docid": [5],
            "docno": ["d5"],
            "rank": [0],
            "score": [2.5],
            "query": ["chemical reactions"],
        }
    )
    assert read_run(retrieved).to_frame().rows() == [("1", "d5", 2.5)]


def test_only_the_columns_that_are_needed_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    table = frame(RUN, *RUN_NAMES).with_columns(text=pl.lit("x"))
    table.write_parquet(path, compression="uncompressed")
    data = path.read_bytes()  # a page of `text` that nobody can decode is no trouble
    assert data.count(b"\x01\x00\x00\x00x") == 1
    path.write_bytes(data.replace(b"\x01\x00\x00\x00x", b"\xff\xff\xff\x7fx"))
    assert sorted(read_run(path).to_frame().rows()) == sorted(RUN)
    with pytest.raises(pl.exceptions.ComputeError):
        pl.read_parquet(path)


# ---------------------------------------------------------------------------------------- scores


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("library", ["polars", "pandas", "pyarrow", "parquet", "arrow", "numpy"])
def test_the_format_of_the_scores_is_remembered_and_the_scores_are_exact(
    tmp_path: Path, dtype: str, library: str
) -> None:
    if dtype == "float16" and library != "numpy" and not hasattr(pl, "Float16"):
        pytest.skip("this polars knows float16 as float32")
    score = np.array([0.1, 1 / 3, 6e-5], dtype)
    ids = {"query": ["q", "q", "q"], "doc": ["a", "b", "c"]}
    source: Any = pd.DataFrame({**ids, "score": score})
    if library == "pyarrow":
        source = pa.table({**ids, "score": score})
    elif library == "numpy":
        source = {"q": dict(zip("abc", score, strict=True))}
    elif library != "pandas":
        source = pl.DataFrame(source)
    if library in ("parquet", "arrow"):
        path = tmp_path / f"run.{library}"
        source.write_parquet(path) if library == "parquet" else source.write_ipc(path)
        source = path
    run = read_run(source)
    assert run.dtype == dtype
    assert run.score.dtype == np.float64
    assert run.score.tolist() == score.astype(np.float64).tolist()


def test_bfloat16_scores_are_remembered_too() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    run = read_run([("q", "a", bfloat16(0.1)), ("q", "b", bfloat16(3))])
    assert run.dtype == "bfloat16"
    assert run.score.tolist() == [0.10009765625, 3.0]


def test_scores_that_are_whole_numbers_or_of_several_kinds_are_float64() -> None:
    cases: list[list[Any]] = [[3, 1], [np.float32(3), 1.0], [np.int64(3), 0.5]]
    for values in cases:
        run = read_run({"q": dict(zip("ab", values, strict=True))})
        assert run.dtype == "float64"
        assert run.score.tolist() == [float(value) for value in values]
    assert read_run(frame([("q", "a", 3)], *RUN_NAMES)).dtype == "float64"


def test_infinite_scores_are_an_order() -> None:
    run = read_run({"q": {"a": float("inf"), "b": float("-inf")}})
    assert run.score.tolist() == [float("inf"), float("-inf")]


# ----------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("bm25.trec", "bm25"),
        ("bm25.run.gz", "bm25"),
        ("BM25.TXT", "BM25"),
        ("input.BM25", "input.BM25"),
        ("run.k1=0.9.txt", "run.k1=0.9"),
        ("run.k1=0.9", "run.k1=0.9"),
        (".hidden", ".hidden"),
    ],
)
def test_a_table_is_named_after_its_file(tmp_path: Path, file: str, name: str) -> None:
    path = tmp_path / file
    path.write_text("q Q0 d 1 0.5 t\n")
    assert read_run(path).name == name
    assert read_run(str(path), name="mine").name == "mine"


def test_tables_pass_through_and_can_be_renamed() -> None:
    run, qrels = read_run(RUN), read_qrels(QRELS)
    assert read_run(run) is run
    assert read_qrels(qrels) is qrels
    renamed, regraded = read_run(run, name="a"), read_qrels(qrels, name="b")
    assert isinstance(renamed, Run)
    assert isinstance(regraded, Qrels)
    assert (renamed.name, regraded.name) == ("a", "b")
    assert renamed.score is run.score


def test_a_mapping_of_another_library_is_a_mapping() -> None:
    class Results(Mapping[str, Mapping[str, float]]):
        def __getitem__(self, key: str) -> Mapping[str, float]:
            return {"d": 1.0}

        def __iter__(self) -> Any:
            return iter(["q"])

        def __len__(self) -> int:
            return 1

    assert read_run(Results()).to_frame().rows() == [("q", "d", 1.0)]


@pytest.mark.parametrize("name", ["doc\0id", "\0doc_id", "doc_id\0\0"])
def test_a_nul_in_the_name_of_a_column_ends_nothing(tmp_path: Path, name: str) -> None:
    """polars hands names on to Arrow as C strings, and aborts."""
    (tmp_path / "run.csv").write_text(f"query_id,{name},score\nq,d,1\n")
    assert read_run(tmp_path / "run.csv").doc.to_list() == ["d"]
    frame = pl.DataFrame({"query_id": ["q"], name: ["d"], "score": [1.0]})
    assert read_run(frame).doc.to_list() == ["d"]
