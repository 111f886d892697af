"""`rankproof search`: one question to one retriever, or many into a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rankproof_cli import rankproof
from small_corpus import write_corpus

import rankproof as rp
from rankproof.data.tables import build_run
from rankproof.data.trec import write_trec
from rankproof.foundation.errors import InputError
from rankproof.retrieval.sparse.bm25 import Bm25


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RANKPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "corpus")
    (tmp_path / "past.trec").write_text("question Q0 bees-1 1 2.5 x\nquestion Q0 ice-0 2 2.5 x\n")
    (tmp_path / "sweep.yaml").write_text(
        "corpus: corpus\nretrievers: {past: {type: run, file: past.trec}}\n"
    )
    return tmp_path


def bm25(folder: Path) -> tuple[Bm25, dict[str, str]]:
    rows = map(json.loads, (folder / "corpus/corpus.jsonl").read_text().splitlines())
    texts = {row["_id"]: f"{row['title']} {row['text']}" for row in rows}
    return Bm25(list(texts.values()), list(texts)), texts


def test_a_folder_is_searched_by_words(folder: Path) -> None:
    done = rankproof("search", "corpus", "beehives in winter", "-k", "3", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["retriever"] == "sparse"
    engine, texts = bm25(folder)
    wanted = engine.search(["beehives in winter"], 3).run
    assert [hit["doc"] for hit in found["hits"]] == wanted.doc.to_list()
    assert [hit["score"] for hit in found["hits"]] == wanted.score.tolist()
    assert found["hits"][0]["text"] == texts[found["hits"][0]["doc"]]


@pytest.mark.slow
def test_an_engine_of_a_configuration_is_asked_and_ties_share_their_ranks(folder: Path) -> None:
    done = rankproof("search", "sweep.yaml", "whatever", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(hit["rank"], hit["doc"]) for hit in found["hits"]] == [
        ("1–2", "bees-1"),
        ("1–2", "ice-0"),
    ]
    text = rankproof("search", "sweep.yaml", "whatever", "-k", "1").stdout.decode()
    assert "1 more tie with the last one." in text
    dense = rankproof("search", "sweep.yaml", "tides", "--retriever", "dense", "--format", "json")
    assert json.loads(dense.stdout)["hits"][0]["doc"].startswith("tides")


def test_many_questions_become_a_run(folder: Path) -> None:
    command = ["search", "corpus", "--queries", "corpus/queries.jsonl", "-k", "4", "--out"]
    done = rankproof(*command, "run.trec")
    assert done.returncode == 0, done.stderr
    run = rp.read_run("run.trec")
    assert all(line.endswith(" sparse") for line in Path("run.trec").read_text().splitlines())
    engine, _ = bm25(folder)
    rows = map(json.loads, (folder / "corpus/queries.jsonl").read_text().splitlines())
    asked = {row["_id"]: row["text"] for row in rows}
    wanted = engine.search(list(asked.values()), 4, list(asked)).run
    assert run.to_frame().equals(wanted.to_frame())
    piped = rankproof(*command, "-")
    assert piped.stdout == Path("run.trec").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["corpus"], "one question, or a file of them"),
        (["corpus", "x", "--queries", "q.jsonl"], "one question, or a file of them"),
        (["corpus", "--queries", "corpus/queries.jsonl"], "one question, or a file of them"),
        (["corpus", "x", "--retriever", "none"], "there is no retriever 'none'; use dense, sparse"),
        (["nowhere", "x"], "there is no such file"),
    ],
)
def test_what_cannot_be_searched_is_one_line(folder: Path, arguments: list[str], said: str) -> None:
    done = rankproof("search", *arguments)
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_run_is_written_so_that_it_is_read_back_whole(tmp_path: Path) -> None:
    score = np.array([1 / 3, 1e-300, -0.1, 5e300, 2.0, np.nextafter(2.0, 3.0)])
    docs = pl.Series([f"d{at}" for at in range(6)])
    codes = np.array([0, 0, 0, 1, 1, 1], np.int32)
    run = build_run("two words", pl.Series(["a", "é"]), codes, docs, score, "float64")
    write_trec(run, tmp_path / "r.trec")
    assert rp.read_run(tmp_path / "r.trec").to_frame().equals(run.to_frame())
    assert (tmp_path / "r.trec").read_text().startswith("a Q0 d0 1 0.3333333333333333 two_words\n")
    spaced = build_run(
        "x", pl.Series(["a"]), np.zeros(1, np.int32), pl.Series(["b c"]), np.ones(1), ""
    )
    with pytest.raises(InputError, match="'b c' cannot be an id in a TREC file"):
        write_trec(spaced, tmp_path / "s.trec")
    for query in ("#1", "\ufeffq"):  # a comment, and a byte-order mark
        lost = rp.read_run({query: {"#d": 1.0}, "q": {"d": 1.0}})
        with pytest.raises(InputError, match=r"cannot be an id in a TREC file; give queries"):
            write_trec(lost, tmp_path / "s.trec")
    kept = rp.read_run({"q": {"#d": 1.0, "\ufeffd": 1.0}})
    write_trec(kept, tmp_path / "s.trec")
    assert rp.read_run(tmp_path / "s.trec").doc.to_list() == ["#d", "\ufeffd"]
