"""What users of other tools hold goes in: their files, their tables, their retrievers' answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from rankproof_cli import in_text as command

import rankproof as rp
from rankproof import data
from rankproof.data.sources import ENDINGS

SCORES = {"q1": {"a": 0.5, "b": 0.25, "c": 0.25}, "q2": {"a": 2.0}}
GRADES = {"q1": {"a": 1, "c": 2}, "q2": {"b": 1}}
WANTED = rp.evaluate(GRADES, SCORES, ["nDCG@10", "RR"]).per_query


def same(run: Any, qrels: Any = GRADES) -> bool:
    return bool(rp.evaluate(qrels, run, ["nDCG@10", "RR"]).per_query.equals(WANTED))


def rows(table: dict[str, dict[str, Any]]) -> list[tuple[str, str, Any]]:
    return [(q, d, x) for q, listed in table.items() for d, x in listed.items()]


# ------------------------------------------------------------------------------------- files


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def written(text: str | bytes, name: str = "run.txt") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return written


def test_ms_marcos_ranks_are_a_run_and_the_guess_is_told(write: Any) -> None:
    path = write("q1\ta\t1\nq1\tb\t2\nq2\tc\t1\n", "top.tsv")
    run = rp.read_run(path)
    assert run.score.tolist() == [-1.0, -2.0, -1.0]
    assert run.dtype == "ranks"
    assert len(run.notes) == 1
    assert run.notes[0].startswith("top: three columns are read as query, document, rank")
    notes = rp.evaluate({"q1": {"b": 1}}, path, "RR").notes
    assert notes[-1] == "the scores of top look like ranks: ties cannot be seen in them"
    assert not rp.read_run(path, format="msmarco").notes
    assert rp.read_run(path, format="plain").score.tolist() == [1.0, 2.0, 1.0]
    with pytest.raises(rp.InputError, match=r":1: rank 0.5 is not 1, 2, 3"):
        rp.read_run(write("q a 0.5\n"), format="msmarco")


def test_every_line_of_a_short_file_is_looked_at_for_ranks(write: Any) -> None:
    """The last one too, which need not end in a line feed."""
    assert rp.read_run(write("q a 1\nq b 0.5")).score.tolist() == [1.0, 0.5]
    assert rp.read_run(write("q a 1\nq b 02")).dtype == "ranks"
    with pytest.raises(rp.InputError, match=r":2: score '9*… is past every number"):
        rp.read_run(write(f"q a 1\nq b {'9' * 5000}\n"))
    many = "".join(f"q{at} d 1\n" for at in range(20_000))  # more than is looked at
    assert rp.read_run(write(f"{many}q b 3")).score.tolist()[-1] == -3.0
    with pytest.raises(rp.InputError, match=r":1: rank inf is not 1, 2, 3"):
        rp.read_run(write("q a inf\n"), format="msmarco")


def test_three_columns_are_scores_and_grades(write: Any) -> None:
    run = write("".join(f"{q} {d} {s}\n" for q, d, s in rows(SCORES)))
    qrels = write("".join(f"{q}\t{d}\t{s}\n" for q, d, s in rows(GRADES)), "qrels.txt")
    assert same(run, qrels)
    said = rp.evaluate(qrels, run, "RR").notes
    assert [note.split(" (")[0] for note in said] == [
        "qrels: three columns are read as query, document, grade",
        "run: three columns are read as query, document, score",
    ]
    told = command("eval", str(qrels), str(run), "-m", "RR", "--input-format", "plain")
    assert told.returncode == 0, told.stderr
    assert "document, score" not in told.stdout + told.stderr
    assert "three columns are read as query, document, grade" in " ".join(told.stderr.split())


@pytest.mark.parametrize("tail", ["", " my run of today"])
def test_a_run_without_a_tag_or_with_words_behind_it_is_read(write: Any, tail: str) -> None:
    lines = "".join(f"{q} Q0 {d} 0 {s}{tail}\n" for q, d, s in rows(SCORES))
    run = rp.read_run(write(lines))
    assert same(run)
    assert len(run.notes) == 1
    assert same(write(lines, "run.trec"))  # and through the door for files
    with pytest.raises(rp.InputError, match=":5: "):
        rp.read_run(write(lines + "q2 Q0 b\n"))


def test_a_tag_may_be_latin_1_and_an_id_may_not(write: Any) -> None:
    text = "".join(f"{q} Q0 {d} 0 {s} Gen\xe8ve\n" for q, d, s in rows(SCORES))
    assert same(write(text.encode("latin-1")))
    with pytest.raises(rp.InputError, match=":1: byte 0xe8 is not UTF-8"):
        rp.read_run(write("q Q0 d\xe8 1 0.5 t\n".encode("latin-1")))
    words = "q Q0 d 1 0.5 t\nq Q0 e 2 0.4 \xe8 t\n".encode("latin-1")  # as many as there are
    with pytest.raises(rp.InputError, match=":2: 7 columns where a TREC run has 6"):
        rp.read_run(write(words))


def test_lz4_is_read_as_ranx_writes_it(tmp_path: Path) -> None:
    lz4 = pytest.importorskip("lz4.frame")
    path = tmp_path / "run.lz4"
    path.write_bytes(lz4.compress(json.dumps(SCORES).encode()))
    assert same(path)
    assert rp.read_run(path).name == "run"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(rp.InputError, match="lz4"):
        rp.read_run(path)


def test_a_beir_folder_stands_for_its_judgements(write: Any, tmp_path: Path) -> None:
    text = "query-id\tcorpus-id\tscore\n" + "".join(f"{q}\t{d}\t{s}\n" for q, d, s in rows(GRADES))
    write(text, "beir/qrels/test.tsv")
    write("nothing\n", "beir/qrels/train.tsv")
    assert same(SCORES, tmp_path / "beir")
    chosen = "beir: the judgements are those of qrels/test.tsv"
    assert rp.read_qrels(tmp_path / "beir").notes == (chosen,)
    assert rp.read_qrels(tmp_path / "beir" / "qrels" / "test.tsv").notes == ()
    run = write(json.dumps(SCORES), "run.json")
    assert chosen in command("eval", str(tmp_path / "beir"), str(run), "-m", "RR").stderr
    (tmp_path / "beir" / "qrels" / "test.tsv").rename(tmp_path / "beir" / "qrels" / "dev.tsv")
    with pytest.raises(rp.InputError, match=r"qrels holds dev.tsv, train"):
        rp.read_qrels(tmp_path / "beir")


def test_whole_numbers_are_ids_of_a_corpus(write: Any, tmp_path: Path) -> None:
    from rankproof.data.beir import read_passages, read_questions

    write('{"_id": 7, "text": "one"}\n{"_id": "8", "text": "two"}\n', "corpus.jsonl")
    write('{"_id": 1, "text": "what?"}\n', "queries.jsonl")
    assert read_passages(tmp_path) == {"7": "one", "8": "two"}
    assert read_questions(tmp_path) == {"1": "what?"}


def test_json_lists_of_records_and_of_pairs_are_read(write: Any) -> None:
    data = [{"qid": q, "docno": d, "score": s} for q, d, s in rows(SCORES)]
    assert same(write(json.dumps(data), "run.json"))
    assert same(write(json.dumps(data, indent=1), "run"))
    pairs = {q: list(listed.items()) for q, listed in SCORES.items()}
    assert same(write(json.dumps(pairs), "run.json"))


def test_mtebs_saved_predictions_are_read(write: Any) -> None:
    saved = {"mteb_model_meta": {"model_name": "m"}, "default": {"dev": {}, "test": SCORES}}
    path = write(json.dumps(saved), "NFCorpus_predictions.json")
    assert same(path)
    assert rp.read_run(path).notes == ("NFCorpus_predictions: MTEB's predictions for default/test",)
    with pytest.raises(rp.InputError, match="a JSON list where an object of objects belongs"):
        rp.read_run(write("[1]", "list.json"), format="mteb")
    assert same(saved)  # loaded by the user
    saved["en"] = {"test": SCORES}
    with pytest.raises(rp.InputError, match="several subsets: default/dev, default/test, en/test"):
        rp.read_run(write(json.dumps(saved)))


# ----------------------------------------------------------------------------------- objects


def test_lists_of_pairs_and_of_ids_are_a_run() -> None:
    assert same({q: list(listed.items()) for q, listed in SCORES.items()})
    ids = {"q1": ["a", "c"], "q2": ["b"]}
    result = rp.evaluate(GRADES, ids, "RR")
    assert result["RR"].expected == 1.0
    assert result.notes == ("the scores of run look like ranks: ties cannot be seen in them",)
    with pytest.raises(rp.InputError, match=r"qrels\['q1'\]: document 'a' has no grade"):
        rp.read_qrels(ids)


def test_lists_keep_their_numbers_as_exact_as_dicts_do() -> None:
    large = {"q": {"a": 2**53 + 1, "b": 2**53}}
    narrow = {"q": {"a": np.float32(0.1), "b": np.float32(0.2)}}
    for given in (large, narrow):
        pairs = {q: list(listed.items()) for q, listed in given.items()}
        one, other = rp.read_run(given), rp.read_run(pairs)
        assert one.dtype == other.dtype
        assert (one.rest is None) == (other.rest is None)
        assert (
            rp.evaluate({"q": {"a": 1}}, one, "RR")["RR"]
            == rp.evaluate({"q": {"a": 1}}, other, "RR")["RR"]
        )
    with pytest.raises(rp.InputError, match=r"run\['q'\]: score 10*… is past every number"):
        rp.read_run({"q": [("a", 10**400)]})


def test_rows_may_be_dicts_and_tuples_with_names() -> None:
    scored = namedtuple("scored", "query_id doc_id score")  # as ir_datasets and ir_measures yield
    assert same([{"query_id": q, "doc_id": d, "score": s} for q, d, s in rows(SCORES)])
    assert same(iter([scored(*row) for row in rows(SCORES)]))
    assert same(SCORES, ({"qid": q, "docno": d, "label": g} for q, d, g in rows(GRADES)))


def test_frames_of_pyterrier_and_trectools_are_read() -> None:
    terrier = pd.DataFrame(rows(SCORES), columns=["qid", "docno", "score"])
    terrier["docid"], terrier["rank"], terrier["query"] = 7, 0, "words"
    judged = pd.DataFrame(rows(GRADES), columns=["qid", "docno", "label"])
    assert same(terrier, judged)
    tools = pd.DataFrame(rows(SCORES), columns=["query", "docid", "score"])
    tools["q0"], tools["rank"], tools["system"] = "Q0", 0, "s"
    trec_run = type("TrecRun", (), {"__module__": "trectools.run", "run_data": tools})()
    assert same(tools)
    assert same(trec_run)
    with pytest.raises(rp.InputError, match="a run in the place of the judgements"):
        rp.read_qrels(trec_run)


def test_a_hugging_face_dataset_is_read() -> None:
    datasets = pytest.importorskip("datasets")
    names = ["query-id", "corpus-id", "score"]
    held = datasets.Dataset.from_polars(pl.DataFrame(rows(GRADES), schema=names, orient="row"))
    assert same(SCORES, held)


def test_an_ir_datasets_dataset_stands_for_its_judgements() -> None:
    class Dataset:
        def qrels_iter(self) -> Iterator[tuple[str, str, int, str]]:
            return ((q, d, g, "0") for q, d, g in rows(GRADES))

    Dataset.__module__ = "ir_datasets.datasets"
    assert same(SCORES, Dataset())


RANX = """
import json, sys, warnings
warnings.simplefilter("ignore")
import ranx
import rankproof as rp
scores, grades = json.load(sys.stdin)
run, qrels = ranx.Run(scores, name="bm25"), ranx.Qrels(grades)
print(rp.evaluate(qrels, run, ["nDCG@10", "RR"]).per_query.write_json())
print(rp.read_run(run).name)
try:
    rp.evaluate(run, qrels, "RR")
except rp.InputError as error:
    print(error)
"""


@pytest.mark.slow
def test_ranx_tables_are_read() -> None:
    pytest.importorskip("ranx")
    done = subprocess.run(  # compiling takes a minute, and is left out only in its own process
        [sys.executable, "-c", RANX],
        input=json.dumps([SCORES, GRADES]),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    found, name, refused = done.stdout.splitlines()
    assert json.loads(found) == json.loads(WANTED.write_json())
    assert name == "bm25"
    assert "a run in the place of the judgements; name the judgments first" in refused


def test_what_retrievers_return_is_a_run() -> None:
    def made(kind: str) -> dict[str, list[Any]]:
        makers: dict[str, Any] = {
            "langchain": lambda d, s: (SimpleNamespace(id=None, metadata={"doc_id": d}), s),
            "llama_index": lambda d, s: SimpleNamespace(node_id=d, score=s, metadata={}),
            "haystack": lambda d, s: SimpleNamespace(id=d, score=s, meta={"source": "x"}),
            "dicts": lambda d, s: {"id": d, "score": s},
        }
        return {q: [makers[kind](d, s) for d, s in t.items()] for q, t in SCORES.items()}

    for kind in ("langchain", "llama_index", "haystack", "dicts"):
        assert same(made(kind)), kind
    component = {q: {"documents": listed} for q, listed in made("haystack").items()}
    assert same(component)
    with pytest.raises(rp.InputError, match=r"hand over one table: data\['test'\]"):
        rp.read_qrels({"test": pl.DataFrame({"query": ["q"], "doc": ["d"], "grade": [1]})})
    assert same({q: {"retriever": answer} for q, answer in component.items()})
    with pytest.raises(rp.InputError, match=r"a hit has no id; write {query: \[\(id, score\)\]}"):
        rp.read_run({"q": [SimpleNamespace(text="x")]})


def test_what_an_index_of_numbers_returns_is_a_run() -> None:
    numbered = {q: {str(at): s for at, s in enumerate(t.values())} for q, t in SCORES.items()}
    wanted = rp.read_run(numbered).to_frame()

    def read(listed: Any) -> bool:
        return rp.read_run(listed).to_frame().equals(wanted)

    assert read({q: [(np.int64(d), s) for d, s in t.items()] for q, t in numbered.items()})
    assert read({q: np.array(list(t.items()), object) for q, t in numbered.items()})
    assert read({q: [(d, Decimal(s)) for d, s in t.items()] for q, t in numbered.items()})
    ids = {q: np.array([int(d) for d in t]) for q, t in numbered.items()}
    assert rp.read_run(ids).to_frame()["doc"].equals(wanted["doc"])
    assert rp.read_run({q: pl.Series(d) for q, d in ids.items()}).dtype == "ranks"


def test_a_series_of_scores_is_a_list() -> None:
    pandas = pytest.importorskip("pandas")
    assert same({q: pandas.Series(t) for q, t in SCORES.items()})
    assert rp.evaluate(GRADES, {q: pandas.Series(t) for q, t in SCORES.items()}, "RR")["RR"].queries
    ids = rp.read_run({q: pandas.Series(list(t)) for q, t in SCORES.items()})
    assert ids.dtype == "ranks"


def test_what_has_no_order_is_no_list() -> None:
    for unordered in ({"a", "b"}, frozenset("ab")):
        with pytest.raises(rp.InputError, match="a set, which has no order; return a list"):
            rp.read_run({"q": unordered})


def test_splits_of_a_dataset_are_not_queries() -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_list([{"query": "q", "doc": "d", "score": 1.0}])
    with pytest.raises(rp.InputError, match=r"hand over one table: data\['test'\]"):
        rp.read_run(datasets.DatasetDict(test=table))


def test_a_frame_of_what_arrow_does_not_have_is_refused_in_a_line() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(rp.InputError, match="polars cannot take this DataFrame"):
        rp.read_run(pandas.DataFrame({"query": ["q"], "doc": ["d"], "score": [1j]}))


def test_langchain_and_llama_index_themselves() -> None:
    documents = pytest.importorskip("langchain_core.documents")
    schema = pytest.importorskip("llama_index.core.schema")
    chain = {
        q: [(documents.Document(page_content="x", id=d), s) for d, s in t.items()]
        for q, t in SCORES.items()
    }
    scored = schema.NodeWithScore
    nodes = {
        q: [scored(node=schema.TextNode(id_=d, text="x"), score=s) for d, s in t.items()]
        for q, t in SCORES.items()
    }
    assert same(chain)
    assert same(nodes)


# ----------------------------------------------------------------------- swapped, several, ranks


@pytest.mark.parametrize(
    "run",
    [
        {"q1": {"a": 12, "b": 7, "c": 3}, "q2": {"a": 40}},
        {"q": {f"d{i}": i for i in range(20)}},
    ],
)
def test_swapped_arguments_are_noticed(run: dict[str, dict[str, int]]) -> None:
    qrels = {q: dict.fromkeys(listed, 1) for q, listed in run.items()}
    with pytest.raises(rp.InputError, match="name the judgments first and the run second"):
        rp.evaluate(run, qrels, "nDCG@10")
    assert rp.evaluate(qrels, run, "nDCG@10")["nDCG@10"].expected == pytest.approx(1.0)
    anyway = rp.evaluate(rp.read_qrels(run), rp.read_run(qrels), "nDCG@10")
    assert 0 < anyway["nDCG@10"].expected <= 1


def test_what_may_be_swapped_is_told() -> None:
    """A few small numbers may be either."""
    run = {"q1": {"a": 3, "b": 2, "c": 1}, "q2": {"b": 2, "a": 1}}
    qrels = {"q1": {"a": 1, "b": 1}, "q2": {"b": 1}}
    assert "swapped?" in rp.evaluate(run, qrels, "RR").notes[-1]
    assert "swapped?" not in "".join(rp.evaluate(qrels, run, "RR").notes)


def test_swapped_tables_and_files_are_noticed(write: Any) -> None:
    with pytest.raises(rp.InputError, match="runs stand where judgments belong"):
        rp.evaluate(rp.read_run(SCORES), rp.read_qrels(GRADES), "RR")
    with pytest.raises(rp.InputError, match="runs stand where judgments belong"):
        rp.evaluate(rp.read_run(SCORES), SCORES, "RR")
    run = write("".join(f"{q} Q0 {d} 0 {s} t\n" for q, d, s in rows(SCORES)))
    qrels = write("".join(f"{q} 0 {d} {s}\n" for q, d, s in rows(GRADES)), "qrels.txt")
    with pytest.raises(rp.InputError, match="it looks like a run: name judgements here"):
        rp.evaluate(run, qrels, "RR")
    with pytest.raises(rp.InputError, match="it looks like judgements"):
        rp.read_run(qrels)


def test_files_that_may_be_swapped_are_told(write: Any) -> None:
    """Of JSON and of plain columns either may be either; a table that was asked for stays."""
    scores = {"q1": {"a": 12, "b": 7, "c": 3}, "q2": {"a": 40}}
    grades = {q: dict.fromkeys(listed, 1) for q, listed in scores.items()}
    run, qrels = write(json.dumps(scores), "run.json"), write(json.dumps(grades), "qrels.json")
    told = "are run and judgments swapped? the run's scores look like grades (0 to 1)"
    assert told in rp.evaluate(run, qrels, "RR").notes[-1]
    assert told in command("eval", str(run), str(qrels), "-m", "RR").stderr.replace("\n", " ")
    assert told not in "".join(rp.evaluate(qrels, run, "RR").notes)


def test_documents_that_two_files_name_differently_are_told() -> None:
    """Every figure is 0 then, and nothing else says why."""
    evaluation = rp.evaluate({"q1": {"1": 1}}, {"q1": {"doc_1": 1.0}}, "RR")
    problem = "1 of 1 query returns no document that the judgments know; did ids change?"
    assert evaluation.id_problem == problem
    assert str(evaluation).startswith("Do not trust run: 1 of 1 query returns no document")
    missed = rp.evaluate({"q1": {"1": 1}, "q2": {"2": 1}}, {"q1": {"2": 1.0}}, "RR")
    assert missed["RR"].expected == 0
    assert not missed.notes


def test_every_verb_tells_what_was_guessed(write: Any) -> None:
    run = write("".join(f"{q} {d} {n}\n" for q, d, n in rows(SCORES)), "mine.txt")
    qrels = write("".join(f"{q} 0 {d} {s}\n" for q, d, s in rows(GRADES)), "qrels.txt")
    told = "three columns are read as query, document, score"
    for verb in ("compare", "leaderboard", "holes", "gate"):
        other = write("".join(f"{q} Q0 {d} 0 {s} t\n" for q, d, s in rows(SCORES)), "a.trec")
        said = command(verb, str(qrels), str(other), str(run), "-m", "RR")
        assert told in said.stderr, verb
    for form in ("table", "json"):
        said = command("ties", str(run), "--format", form)
        assert told in (said.stdout if form == "table" else said.stderr)
        said = command("ceilings", str(qrels), str(run), "-m", "RR", "--format", form)
        assert told in (" ".join(said.stdout.split()) if form == "table" else said.stderr)
    assert told in rp.tie_statistics(run).notes[0]
    said = command("trec_eval", str(qrels), str(run))
    assert told in said.stderr
    assert said.stdout.startswith("runid")
    ranks = write("q a 1\nq b 2\nq c 3\n", "ms.txt")
    told = "the scores of ms look like ranks: ties cannot be seen in them"
    assert told in command("ties", str(ranks)).stdout


def test_scores_that_are_grades_of_a_judge_are_a_run() -> None:
    """A reranker that grades 0 to 3 is no swapped pair."""
    run = {"q1": {"a": 3, "b": 0, "c": 3}, "q2": {"a": 1}}
    assert rp.evaluate(GRADES, run, "RR")["RR"].queries == 2


def test_several_runs_give_a_mapping(write: Any) -> None:
    path = write(json.dumps(SCORES), "base.json")
    one, other = rp.read_run(SCORES, name="one"), {"q1": {"c": 1.0}}
    runs: Any = {"x": one, "y": other, "z": str(path)}
    by_name = rp.evaluate(GRADES, runs, "RR")
    assert list(by_name) == ["x", "y", "z"]
    assert by_name["x"].name == "x"
    assert by_name["z"]["RR"] == by_name["x"]["RR"]
    more: list[tuple[Any, list[str]]] = [
        ([one, path], ["one", "base"]),
        ({"a": SCORES, "b": other}, ["a", "b"]),
    ]
    for given, names in more:
        assert list(rp.evaluate(GRADES, given, "RR")) == names
    with pytest.raises(rp.InputError, match="two runs of one name"):
        rp.evaluate(GRADES, [one, one], "RR")


@pytest.mark.parametrize(
    ("scores", "ranks"),
    [
        ([-1.0, -2.0, -3.0], True),
        ([3.0, 2.0, 1.0], True),
        ([2.0, 3.0, 1.0], True),
        ([1.0, 1 / 2, 1 / 3], True),
        ([1 / 61, 1 / 62, 1 / 63], True),
        ([3.0, 2.0, 2.0], False),
        ([3.0, 2.0, 0.5], False),
        ([2.0, 1.0], False),
    ],
)
def test_scores_that_only_count_are_told(scores: list[float], ranks: bool) -> None:
    run = {q: dict(zip("abc", scores, strict=False)) for q in ("q1", "q2")}
    notes = rp.evaluate(GRADES, run, "RR").notes
    assert bool(notes) is ranks
    mixed = rp.evaluate(GRADES, run | {"q3": {"a": 0.3, "b": 0.2, "c": 0.1}}, "RR")
    assert not mixed.notes


# ---------------------------------------------------------------------------- a format of one's own


@pytest.fixture
def semicolons() -> Iterator[None]:
    def read(content: bytes, kind: str) -> list[tuple[str, str, float]]:
        lines = content.decode().split()
        return [(q, d, float(x)) for q, d, x in (line.split(";") for line in lines)]

    data.register("semicolons", read, endings=(".ssv",))
    yield
    data.FORMATS.remove("semicolons")
    del data.formats.REGISTERED["semicolons"]
    del ENDINGS[".ssv"]


def test_a_format_of_ones_own_is_read_like_any_other(semicolons: None, write: Any) -> None:
    text = "".join(f"{q};{d};{s}\n" for q, d, s in rows(SCORES))
    assert same(write(text, "run.ssv"))
    assert rp.read_run(write(text), format="semicolons").name == "run"
    assert "semicolons" in data.FORMATS
    with pytest.raises(rp.InputError, match=r"run.ssv: row 2: query 'q' lists document 'd'"):
        rp.read_run(write("q;d;1\nq;d;2\n", "run.ssv"))
    with pytest.raises(rp.InputError, match="format 'trec' is ours"):
        data.register("trec", lambda content, kind: [])
    with pytest.raises(rp.InputError, match=r"\.json files are json"):
        data.register("mine", lambda content, kind: [], endings=(".json",))


def test_the_command_line_offers_the_formats_that_records_has(write: Any) -> None:
    from rankproof.commands import options

    assert options.FORMATS.split(", ") == data.FORMATS
    files = str(write("q 0 d 1\n", "qrels")), str(write("q Q0 d 1 1 t\n"))
    told = command("eval", *files, "--input-format", "xml")
    assert told.returncode == 2
    assert "format 'xml' is unknown; use one of trec, plain" in told.stderr


def test_runs_of_lists_are_several_runs_too() -> None:
    runs = {"a": {"q": [("d", 1.0), ("e", 0.5)]}, "b": {"q": ["e", "d"]}}
    found: Any = rp.evaluate({"q": {"d": 1}}, runs, "RR")
    assert {name: each["RR"].expected for name, each in found.items()} == {"a": 1.0, "b": 0.5}
