"""The audit commands as a process: what they print, draw and refuse."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rankproof_cli import csv_rows, rankproof

import rankproof as rp

DOCUMENT = Path(__file__).parents[1] / "docs" / "audit.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors, ids, logits and judgements as the document makes them."""
    made = tmp_path_factory.mktemp("audit")
    (block,) = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.S | re.M)
    subprocess.run([sys.executable, "-c", block], cwd=made, check=True, capture_output=True)
    return made


def audit(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run with names that stand for files of the folder."""
    return rankproof(
        "audit",
        *(
            str(folder / word) if (folder / word).exists() and word not in ("", ".") else word
            for word in words
        ),
    )


def with_queries(file: Path) -> tuple[str, ...]:
    """An audit of vectors whose queries are another file's."""
    return ("vectors", "qrels.txt", "--queries", str(file), *VECTORS[2:])


def as_json(folder: Path, *words: str) -> Any:
    done = audit(folder, *words, "--format", "json")
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


VECTORS = ("--queries", "queries.npy", "--documents", "documents.npy")
OF_VECTORS = ("vectors", "qrels.txt", *VECTORS)
SOME = ("-m", "nDCG@10", "--formats", "float32,bfloat16")


def test_json_has_the_values_of_the_python_result(folder: Path) -> None:
    data = as_json(folder, *OF_VECTORS, *SOME, "--k", "100", "--dimensions", "32")
    actual = rp.audit.audit_embeddings(
        *(np.load(folder / "queries.npy"), np.load(folder / "documents.npy")),
        *(folder / "qrels.txt", "nDCG@10"),
        formats=["float32", "bfloat16"],
        k=100,
        dimensions=[32],
        name="documents",
    ).to_dict()
    assert data.pop("manifest")["inputs"].keys() >= {"qrels"}
    said = {"paper", "verdict", "words", "notes"}
    assert set(data) == {"version", "made", "policy", "readings", "leads", *said}
    for reading in (*data["readings"], *actual["readings"]):
        assert reading.pop("seconds") >= 0
    assert data == json.loads(json.dumps(actual))
    assert [r["dimensions"] for r in data["readings"]] == [96, 96, 96, 32, 32, 32]
    assert data["readings"][1]["measures"]["nDCG@10"]["range"] > 0
    assert data["readings"][2]["measures"]["nDCG@10"]["range"] == 0


def test_the_output_is_the_answer_and_a_row_for_each_format(folder: Path) -> None:
    lines = audit(folder, *OF_VECTORS, *SOME).stdout.decode().splitlines()
    data = as_json(folder, *OF_VECTORS, *SOME)
    assert lines[0] == data["verdict"][0]
    assert lines[0].startswith("Safe: bfloat16")
    rows = {reading["format"] for reading in data["readings"]}
    assert len(lines) <= 8 + len(rows)
    assert sum(line.startswith("  bfloat16") for line in lines) == 1


def test_full_output_has_every_value_of_every_setting(folder: Path) -> None:
    text = audit(folder, *OF_VECTORS, *SOME, "--full").stdout.decode()
    for heading in ("nDCG@10", "oblivious", "no ρ", "bytes", "k=1000"):
        assert heading in text


def test_no_value_is_truncated_on_a_narrow_terminal(folder: Path) -> None:
    from rankproof.audit.tables import AuditTables

    actual = rp.audit.audit_embeddings(
        *(np.load(folder / "queries.npy"), np.load(folder / "documents.npy")),
        *(folder / "qrels.txt", ["nDCG@10", "R@100"]),
        formats=["float32", "float8_e4m3", "bit"],
        dimensions=[32],
    )
    for table in AuditTables(actual, for_people=True).all():
        widths = [
            max(len(column.name), *(len(column.write(row[at])) for row in table.rows))
            for at, column in enumerate(table.columns)
            if not column.folds
        ]
        folding = sum(column.folds for column in table.columns)
        assert sum(width + 3 for width in widths) + 2 <= 80 - 12 * folding  # a setting's words fit


def test_the_verdict_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rankproof.cli.terminal import print_presentation
    from rankproof.presentation.result import Presentation, Summary

    monkeypatch.setenv("COLUMNS", "80")
    said = "Scored plainly, tie order alone moves " + ", ".join(["nDCG@10 in a-long-name"] * 6)
    summary = Summary(f"{said}\nEvery range is 0.")
    print_presentation(Presentation("audit", summary), "table", explain=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()) == f"{said} Every range is 0."


@pytest.mark.parametrize("form", ["csv", "md", "latex"])
def test_other_formats_have_the_same_rows(folder: Path, form: str) -> None:
    done = audit(folder, *OF_VECTORS, *SOME, "--format", form)
    assert done.returncode == 0
    text = done.stdout.decode()
    assert "high precision" in text
    if form == "csv":
        assert len(re.findall(r"BF16 \+ HPS", text)) == 4  # the paper's tables: 1, 3, 4, 5
        first, *_ = text.split("\n\n")
        rows = csv_rows(first)
        assert [row["format"] for row in rows] == ["float32", "bfloat16", "bfloat16"]
        assert float(rows[1]["max"]) > float(rows[1]["min"])


def test_parquet_and_ids_give_the_same_values(folder: Path, tmp_path: Path) -> None:
    ids = {}
    for name in ("queries", "documents"):
        values = np.load(folder / f"{name}.npy")
        numbers = [str(row) for row in range(len(values))]
        frame = pl.DataFrame({"_id": numbers, "embedding": values})
        frame.sample(fraction=1.0, shuffle=True, seed=3).write_parquet(tmp_path / f"{name}.parquet")
        np.save(tmp_path / f"{name}.npy", values[::-1])
        ids[name] = tmp_path / f"{name}.txt"
        ids[name].write_text("\n".join(reversed(numbers)) + "\n")
    rest = (*SOME, "--k", "100000", "--order", "docid", "--format", "json")
    qrels = str(folder / "qrels.txt")
    runs = [
        ("--queries", str(folder / "queries.npy"), "--documents", str(folder / "documents.npy")),
        (
            *("--queries", str(tmp_path / "queries.parquet")),
            *("--documents", str(tmp_path / "documents.parquet")),
        ),
        (
            *("--queries", str(tmp_path / "queries.npy"), "--query-ids", str(ids["queries"])),
            *("--documents", str(tmp_path / "documents.npy")),
            *("--document-ids", str(ids["documents"])),
        ),
    ]
    actual = []
    for words in runs:
        done = rankproof("audit", "vectors", qrels, *words, *rest)
        assert done.returncode == 0, done.stderr.decode()
        actual.append([r["measures"] for r in json.loads(done.stdout)["readings"]])
    assert actual[0] == actual[1] == actual[2]


def test_logits_are_audited_from_every_kind_of_table(folder: Path, tmp_path: Path) -> None:
    frame = pl.read_csv(folder / "logits.csv", infer_schema_length=None)
    frame.write_parquet(tmp_path / "logits.parquet")
    frame.write_csv(tmp_path / "logits.tsv", separator="\t")
    frame.write_ndjson(tmp_path / "logits.jsonl")
    frame.write_ipc(tmp_path / "logits.arrow")
    words = ("logits", "qrels.txt", "-m", "nDCG@10")
    first = as_json(folder, *words, "logits.csv")["readings"]
    assert len(first) == 6
    assert first[4]["measures"]["nDCG@10"]["range"] > first[1]["measures"]["nDCG@10"]["range"]
    for ending in ("parquet", "tsv", "jsonl", "arrow"):
        other = as_json(folder, *words, str(tmp_path / f"logits.{ending}"))["readings"]
        assert [r["measures"] for r in other] == [r["measures"] for r in first]


def test_answers_of_a_server_are_audited_with_their_decimals(folder: Path, tmp_path: Path) -> None:
    frame = pl.read_csv(folder / "logits.csv", infer_schema_length=None)
    score = (1 / (1 + (-pl.col("logit")).exp())).round(3).alias("relevance_score")
    lines = [
        json.dumps(
            {
                "query": query,
                "documents": rows["doc"].to_list(),
                "response": {
                    "results": [
                        {"index": at, "relevance_score": one}
                        for at, one in enumerate(rows.select(score).to_series())
                    ]
                },
            }
        )
        for (query,), rows in frame.group_by("query", maintain_order=True)
    ]
    answers = tmp_path / "answers.jsonl"
    answers.write_text("\n".join(lines))
    words = ("scores", "qrels.txt", str(answers), "-m", "nDCG@10", "--decimals", "1,3")
    data = as_json(folder, *words)
    assert [r["format"] for r in data["readings"]][-2:] == ["1 decimal", "3 decimals"]
    ranges = [r["measures"]["nDCG@10"]["range"] for r in data["readings"]]
    assert ranges[-1] == ranges[0] < ranges[-2]  # it was served with three
    assert data["made"][0]["decimals"]["least"] is None
    assert any("no number of decimals" in note for note in data["notes"])
    for name in ("qrels.txt", "queries.npy"):
        shutil.copy(folder / name, tmp_path / name)  # beside the result, where verify looks
    low = pytest.importorskip("ml_dtypes").bfloat16
    np.save(tmp_path / "low.npy", np.load(folder / "documents.npy").astype(low))
    out = tmp_path / "result.json"
    done = audit(folder, *words, "--explain", "--out", str(out))
    assert "2000 scores" in " ".join(done.stdout.decode().split())
    assert rankproof("verify", str(out)).returncode == 0
    vectors = (
        "vectors",
        "qrels.txt",
        *VECTORS[:3],
        str(tmp_path / "low.npy"),
        *SOME,
        "--out",
        str(out),
    )
    assert "low.npy: stored as bfloat16" in " ".join(
        audit(folder, *vectors).stdout.decode().split()
    )
    assert rankproof("verify", str(out)).returncode == 0


def test_several_models_are_named_and_compared(folder: Path, tmp_path: Path) -> None:
    noisy = np.load(folder / "queries.npy")
    noisy = noisy + np.random.default_rng(0).standard_normal(noisy.shape).astype(np.float32)
    np.save(tmp_path / "noisy.npy", noisy)
    documents = str(folder / "documents.npy")
    words = (
        *("vectors", "qrels.txt", "--queries", "queries.npy"),
        *("--documents", f"good={documents}"),
        *("--queries", str(tmp_path / "noisy.npy"), "--documents", f"noisy={documents}"),
    )
    data = as_json(folder, *words, *SOME)
    assert [made["model"] for made in data["made"]] == ["good", "noisy"]
    assert {(lead["a"], lead["b"]) for lead in data["leads"]} == {("good", "noisy")}
    assert all(lead["certain"] and lead["expected"] > 0 for lead in data["leads"])
    assert "nDCG@10: good is ahead of noisy in every format" in data["words"][-1]
    assert "good, bfloat16, plain" in audit(folder, *words, *SOME, "--full").stdout.decode()


def test_plots_are_written_and_named_on_stderr(folder: Path, tmp_path: Path) -> None:
    done = audit(folder, *OF_VECTORS, *SOME, "--plots", str(tmp_path / "plots"))
    assert done.returncode == 0
    names = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert names == ["documents-nDCG.svg", "documents-overlaid.svg"]
    assert b"wrote" in done.stderr
    assert b"wrote" not in done.stdout


def test_commands_of_the_document_run(folder: Path) -> None:
    lines = re.findall(r"^\$ rankproof (audit .*)$", DOCUMENT.read_text(), re.M)
    lines = [line for line in lines if "audit model" not in line]
    assert len(lines) >= 3
    for line in lines:
        done = rankproof(*line.split(), cwd=folder)
        assert done.returncode == 0, (line, done.stderr.decode())


def test_the_document_quotes_what_the_command_prints(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = DOCUMENT.read_text()
    quoted = "".join(re.findall(r"^```text\n(.*?)^```", text, re.S | re.M)).splitlines()
    quoted = [line for line in quoted if line]
    assert len(quoted) >= 8
    models = (f"careful={folder}/logits.csv", f"hasty={folder}/hasty.csv")
    printed = "".join(
        audit(folder, *words).stdout.decode()
        for words in (
            (*OF_VECTORS, "-m", "nDCG@10", "--formats", "float32,bfloat16,bit"),
            ("logits", "qrels.txt", "logits.csv", "-m", "nDCG@10"),
            ("logits", "qrels.txt", *models, "-m", "nDCG@10"),
        )
    ).splitlines()
    figure = re.compile(r"\d+\.\d+")
    shapes = {figure.sub("#", line): line for line in printed}
    for line in quoted:
        # Sums of float32 products differ in the last bit from one processor to the next.
        assert list(map(float, figure.findall(line))) == pytest.approx(
            list(map(float, figure.findall(shapes[figure.sub("#", line)]))), abs=0.002
        )


# ---------------------------------------------------------------------------------- bad input


def refused(folder: Path, *words: str) -> str:
    done = audit(folder, *words)
    message = done.stderr.decode()
    assert done.returncode == 2, message
    assert done.stdout == b""
    assert message.startswith("rankproof: ")
    assert message.count("\n") == 1
    return message.replace(f"{folder}/", "")


def broken(name: str, array: Any) -> Any:
    def make(folder: Path) -> None:
        np.save(folder / f"{name}.npy", array)

    return make


def with_value(value: float) -> Any:
    array = np.ones((4, 96), np.float32)
    array[2, 5] = value
    return array


def zero_row() -> Any:
    array = np.ones((4, 96), np.float32)
    array[1] = 0
    return array


BAD_VECTORS = {
    "nan": (with_value(np.nan), "bad.npy: row 2: nan in a vector; embed that text again"),
    "inf": (with_value(np.inf), "bad.npy: row 2: inf in a vector; embed that text again"),
    "narrow": (np.ones((4, 95)), "bad.npy have 95 dimensions and documents.npy 96; embed both"),
    "flat": (np.ones(4), "bad.npy: an array of shape (4,); save it as (rows, dimensions)"),
    "text": (np.array([["a"]]), "bad.npy: an array of <U1 where numbers belong"),
    "empty": (np.ones((0, 96)), "bad.npy: no vectors: the shape is (0, 96)"),
    "large": (with_value(1e5), "bad.npy: row 2: 100000 is too large for float16; leave float16"),
}


@pytest.mark.parametrize("case", BAD_VECTORS)
def test_vectors_that_cannot_be_used_are_refused(folder: Path, tmp_path: Path, case: str) -> None:
    array, message = BAD_VECTORS[case]
    np.save(tmp_path / "bad.npy", array)
    said = refused(folder, *with_queries(tmp_path / "bad.npy")).replace(f"{tmp_path}/", "")
    assert message in said


def test_a_zero_vector_has_no_cosine(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "bad.npy", zero_row())
    words = (*with_queries(tmp_path / "bad.npy"), *SOME)
    assert "row 1: a zero vector has no direction" in refused(folder, *words, "--metric", "cosine")
    assert audit(folder, *words).returncode == 0


def test_objects_are_never_unpickled(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "bad.npy", np.array([{}], object), allow_pickle=True)
    said = refused(folder, *with_queries(tmp_path / "bad.npy"))
    assert "bad.npy: an array of Python objects; save it as float32" in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x93NUMPY\x01\x00v\x00{'des", "not a whole .npy file"),
        (b"PK\x03\x04", "not a whole .npz or .pt file"),
        (b"\x00\x01some bytes", "no file of vectors that is known here; write it with numpy.save"),
        (b"PAR1....", "not parquet, or cut short"),
        (b"", "the file is empty"),
    ],
)
def test_files_that_hold_no_vectors_are_refused(
    folder: Path, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "bad.npy").write_bytes(content)
    said = refused(folder, *with_queries(tmp_path / "bad.npy"))
    assert message in said


def test_parquet_without_ids_or_vectors_is_refused(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    words = with_queries(path)
    pl.DataFrame({"embedding": [[1.0] * 96]}).write_parquet(path)
    assert "no column 'id'; there are: 'embedding'" in refused(folder, *words)
    pl.DataFrame({"id": ["a"], "score": [1.0]}).write_parquet(path)
    assert "no column 'vector'; there are: 'id', 'score'" in refused(folder, *words)
    pl.DataFrame({"id": ["0", "1"], "v": [[1.0] * 96, [1.0] * 3]}).write_parquet(path)
    said = refused(folder, *words)
    assert "row 1: a vector of 3 dimensions where the first has 96; embed that text" in said
    pl.DataFrame({"id": ["0", "0"], "v": [[1.0] * 96, [2.0] * 96]}).write_parquet(path)
    assert "id '0' appears twice; make ids unique" in refused(folder, *words)
    pl.DataFrame({"id": ["0"], "v": [[None, *[1.0] * 95]]}).write_parquet(path)
    assert "column 'v' is not all numbers" in refused(folder, *words)


def test_ids_that_do_not_fit_are_refused(folder: Path, tmp_path: Path) -> None:
    ids = tmp_path / "ids.txt"
    words = (*OF_VECTORS, "--query-ids", str(ids))
    ids.write_text("a\nb\n")
    assert "2 ids for 50 rows; give one each" in refused(folder, *words)
    ids.write_text("\n".join(["a", *map(str, range(48)), "a"]))
    assert "id 'a' appears twice; make ids unique" in refused(folder, *words)
    ids.write_text("a\n\nb\n")
    assert "ids.txt:2: an empty line where an id belongs" in refused(folder, *words)
    ids.write_text("\n".join(f"x{i}" for i in range(50)))
    said = refused(folder, *words)
    assert "no query is both in queries.npy ('x0', 'x1', 'x2', …) and in qrels ('0', '1'," in said
    assert "--query-ids" in said
    ids.write_text("\n".join(f"x{i}" for i in range(4000)))
    said = refused(folder, *OF_VECTORS, "--document-ids", str(ids))
    assert "no document is both in documents.npy ('x0', 'x1', 'x2', …) and in qrels (" in said


LOGITS = {
    "query,doc,score\n0,1,2\n": "no column 'logit', nor 'logit_yes' and 'logit_no'; there are",
    "query,logit\n0,1\n": "no column 'doc'; there are: 'query', 'logit'",
    "query,doc,logit\n0,1,2\n0,2,much\n": "row 2: logit 'much' is not a number; drop the row",
    "query,doc,logit\n0,1,2\n0,2,nan\n": "row 2: logit nan is not a finite number; drop the row",
    "query,doc,logit\n0,3443,2\n0,3443,3\n": "row 2: query '0' lists document '3443' a second time",
    "query,doc,logit\n0,1,1e5\n": "row 1: logit 100000 is too large for float16",
    "query,doc,logit\n": "no rows; check how it was made",
    "query,doc,logit\n0,,1\n": "row 1: the document id is empty",
    "query,doc,logit\nzzz,1,1\n": "no query is both in bad ('zzz') and in qrels",
    '{"a": {"b": 1}}': "this is not a table of logits; write CSV",
}


@pytest.mark.parametrize("content", LOGITS)
def test_logits_that_cannot_be_used_are_refused(folder: Path, tmp_path: Path, content: str) -> None:
    path = tmp_path / ("bad.json" if content.startswith("{") else "bad.csv")
    path.write_text(content)
    assert LOGITS[content] in refused(folder, "logits", "qrels.txt", str(path))


WRONG = {
    "nothing": (("logits", "qrels.txt"), "Missing argument 'FILE...'"),
    "half": (OF_VECTORS[:4], "Missing option '--documents'"),
    "too few": (
        (*OF_VECTORS, "--queries", "logits.csv"),
        "queries are named 2 times and documents 1; name both for each model",
    ),
    "no judgments": (("vectors", *VECTORS), "Missing argument 'QRELS'"),
    "format": (
        (*OF_VECTORS, "--formats", "float32,bf16"),
        "number format 'bf16' is unknown; use one of float32, float16",
    ),
    "format of logits": (
        ("logits", "qrels.txt", "logits.csv", "--formats", "bit"),
        "format 'bit' is not one that logits are audited in; use float32, float16, bfloat16",
    ),
    "no format": (
        (*OF_VECTORS, "--formats", ","),
        "',' names nothing",
    ),
    "measure": ((*OF_VECTORS, "-m", "nDGC@10"), "did you mean nDCG@10?"),
    "dimensions": (
        (*OF_VECTORS, "--dimensions", "97"),
        "97 of 96 dimensions; keep between 1 and 96",
    ),
    "no dimensions": (
        (*OF_VECTORS, "--dimensions", "64,x"),
        "'x' is not a valid integer",
    ),
    "k of logits": (
        ("logits", "qrels.txt", "logits.csv", "--k", "10"),
        "No such option",
    ),
    "file": (("vectors", "qrels.txt", "--queries", "q.npy", *VECTORS[2:]), "there is no such file"),
    "qrels": (("vectors", "none.txt", *VECTORS), "none.txt: there is no such file; check the path"),
    "no dataset": (("model", "m"), "Missing option '--dataset'"),
    "no model": (("model", "--dataset", "x"), "Missing argument 'MODEL...'"),
    "no folder": (("model", "m", "--dataset", "x"), "x: there is no such folder"),
    "plots": (
        (*OF_VECTORS, "--plots", "qrels.txt"),
        "this is a file; name a folder",
    ),
    "no curve": (
        (*OF_VECTORS, "-m", "bpref", "--plots", "x"),
        "no measure named takes a cutoff",
    ),
    "ids": (
        (*OF_VECTORS, "--query-ids", "a", "--query-ids", "b"),
        "query_ids are named 2 times for 1 model",
    ),
    "names": (
        (
            *("logits", "qrels.txt", "a=logits.csv", "a=logits.csv"),
            *("-m", "RR"),
        ),
        "two files are named 'a'; write NAME=path",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_contradicting_options_are_refused(
    folder: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    words, message = WRONG[case]
    assert message in refused(folder, *words)


def test_a_dataset_without_its_files_is_refused(folder: Path, tmp_path: Path) -> None:
    words = ("model", "m", "--dataset", str(tmp_path))
    remedy = "name a BEIR folder: corpus.jsonl, queries.jsonl, qrels/test.tsv"
    assert f"there is no corpus.jsonl in this folder; {remedy}" in refused(folder, *words)
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d", "title": "", "text": "x"}\n{"_id": 1}\n')
    assert "there is no queries.jsonl in this folder" in refused(folder, *words)
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "x"}\n')
    assert "there is no qrels/test.tsv in this folder" in refused(folder, *words)
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    assert "corpus.jsonl:2: {'_id': '1'} lacks _id or text" in refused(folder, *words)
    (tmp_path / "corpus.jsonl").write_text("{\n")
    assert "corpus.jsonl:1: not JSON" in refused(folder, *words)


@pytest.mark.parametrize(
    ("absent", "words", "message"),
    [
        (
            "ml_dtypes",
            OF_VECTORS,
            "the format bfloat16 needs ml_dtypes: pip install 'rankproof[sc",
        ),
        (
            *("torch", ("model", "m", "--dataset", ".", "--qrels", "qrels.txt")),
            "the model m needs torch: pip install 'rankproof[torch]'",
        ),
    ],
)
def test_the_error_names_a_missing_extra(
    folder: Path, absent: str, words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d", "title": "", "text": "x"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "0", "text": "x"}\n')
    shutil.copy(folder / "qrels.txt", tmp_path)
    code = f"""
import sys
sys.modules[{absent!r}] = None
sys.argv = ["rankproof", "audit", *{words!r}]
from rankproof.cli import main
main()
"""
    cwd = tmp_path if "." in words else folder
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"rankproof: {message}")


@pytest.mark.parametrize("words", [OF_VECTORS, ("logits", "qrels.txt", "logits.csv")])
def test_vectors_and_logits_need_no_torch(folder: Path, words: tuple[str, ...]) -> None:
    code = f"""
import sys
sys.modules["torch"] = None
sys.argv = ["rankproof", "audit", *{words!r}, *{SOME!r}]
from rankproof.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
