"""`rp.bench`: retrievers of others in one call."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from small_corpus import write_corpus

import rankproof as rp
from rankproof.foundation.errors import InputError
from rankproof.retrieval.sparse.bm25 import Bm25

ROOT = Path(__file__).parents[1]
CORPUS = {
    "d1": "foxes hunt hens at night",
    "d2": "hens lay eggs",
    "d3": "glass is made of sand",
    "d4": "foxes hunt hens at night",
}
QUERIES = {"q1": "what hunts hens", "q2": "glass from sand", "q3": "eggs of hens"}
QRELS = {"q1": {"d1": 1}, "q2": {"d3": 1}, "q3": {"d2": 1, "d1": 0}}


def words(text: str, k: int) -> list[tuple[str, float]]:
    asked = set(text.split())
    found = [(doc, float(len(asked & set(text.split())))) for doc, text in CORPUS.items()]
    return sorted((hit for hit in found if hit[1]), key=lambda hit: -hit[1])[:k]


def test_a_function_is_measured_as_its_run_would_be() -> None:
    found = rp.bench({"words": words}, corpus=CORPUS, queries=QUERIES, qrels=QRELS, k=3)
    run = {query: dict(words(text, 3)) for query, text in QUERIES.items()}
    wanted = rp.evaluate(QRELS, run, ["nDCG@10", "RR@10"])
    row = found.configurations.row(0, named=True)
    assert row["configuration"] == "words K=3 top 3"
    for measure in ("nDCG@10", "RR@10"):
        assert row[measure] == pytest.approx(wanted[measure].expected)
        assert row[f"{measure} min"] == pytest.approx(wanted[measure].min)
        assert row[f"{measure} max"] == pytest.approx(wanted[measure].max)
    assert row["nDCG@10 min"] < row["nDCG@10 max"]  # d1 and d4 say the same
    assert row["tied"] == wanted.tied >= 1
    assert row["latency_p50_ms"] <= row["latency_p95_ms"]
    per_query = found.per_query.filter(measure="RR@10").sort("query")
    assert per_query["query"].to_list() == ["q1", "q2", "q3"]
    assert str(found).startswith("nDCG@10 of words K=3 top 3 is 0.903 over 3 queries.")


def test_the_best_of_several_can_be_recommended() -> None:
    def nothing(text: str, k: int) -> list[str]:
        return []

    found = rp.bench(
        {"words": words, "nothing": nothing}, corpus=CORPUS, queries=QUERIES, qrels=QRELS
    )
    choice = found.recommend(sla_ms=1e6).choices[0]
    assert choice.configuration == "words K=20 top 20"
    assert found.manifest["best_by"] == "nDCG@10"
    assert "retriever nothing returns nothing for 3 of 3 questions" in found.manifest["notes"]


def test_a_corpus_may_be_a_folder_or_be_left_out(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "corpus")
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    texts = {row["_id"]: f"{row['title']} {row['text']}" for row in rows}
    bm25 = Bm25(list(texts.values()), list(texts))

    def find(text: str, k: int) -> dict[str, float]:
        return dict(bm25.search([text], k).run.to_frame().select("doc", "score").rows())

    asked = {
        row["_id"]: row["text"]
        for row in map(json.loads, (folder / "queries.jsonl").read_text().splitlines())
    }
    measures: list[Any] = [rp.nDCG @ 10, "RAnWG@10"]
    whole = rp.bench({"bm25": find}, corpus=folder, measures=measures)
    bare = rp.bench(
        {"bm25": find}, queries=asked, qrels=folder / "qrels/test.tsv", measures=measures
    )
    own = rp.bench({"bm25": bm25}, corpus=texts, queries=folder / "queries.jsonl",
                   qrels=rp.read_qrels(folder / "qrels/test.tsv"), measures=measures)  # fmt: skip
    for other in (bare, own):
        for measure in ("nDCG@10", "RAnWG@10"):
            assert whole.configurations[measure][0] == other.configurations[measure][0]
    (note,) = bare.manifest["notes"]
    assert note.startswith("unjudged passages may have grades 0 to 5, the largest that occurs")


def test_results_are_kept_where_one_asks_for_it(tmp_path: Path) -> None:
    found = rp.bench(
        {"words": words}, corpus=CORPUS, queries=QUERIES, qrels=QRELS, out=tmp_path / "kept"
    )
    assert found.folder == tmp_path / "kept"
    made = json.loads((tmp_path / "kept/sweep.json").read_text())
    assert set(made["inputs"]) == {"corpus", "queries", "qrels"}
    assert (tmp_path / "kept/configurations.parquet").is_file()


def test_settings_of_an_engine_stand_beside_functions(tmp_path: Path) -> None:
    lines = [
        f"{query} Q0 {doc} {rank} {score} past\n"
        for query, text in QUERIES.items()
        for rank, (doc, score) in enumerate(words(text, 9), 1)
    ]
    (tmp_path / "past.trec").write_text("".join(lines))
    past = {"type": "run", "file": str(tmp_path / "past.trec"), "latency_ms": 3}
    found = rp.bench({"now": words, "past": past}, corpus=CORPUS, queries=QUERIES, qrels=QRELS)
    now, then = found.configurations["nDCG@10"]
    assert now == then
    assert found.configurations["latency_p95_ms"][1] == 3


class Node:
    def __init__(self, name: str, score: float | None):
        self.node_id, self.score = name, score


def test_retrievers_are_known_by_their_shape() -> None:
    class Invoked:
        def invoke(self, text: str) -> list[Any]:
            return [{"metadata": {"id": doc}} for doc, _ in words(text, 9)]

    class Retrieving:
        def retrieve(self, text: str) -> list[Any]:
            return [Node(doc, score) for doc, score in words(text, 9)]

    given: dict[str, Any] = {"corpus": CORPUS, "queries": QUERIES, "qrels": QRELS}
    ranked = rp.bench({"invoked": Invoked()}, id="metadata.id", **given)
    scored = rp.bench({"retrieving": Retrieving()}, **given)
    called = rp.bench({"words": words}, **given)
    assert scored.configurations["nDCG@10"][0] == called.configurations["nDCG@10"][0]
    assert ranked.configurations["tied"].to_list() == [0]
    note = (
        "retriever invoked returns no scores: its order is used as it is, and ties cannot be seen"
    )
    assert note in ranked.manifest["notes"]
    assert f"R{note[1:]}." in ranked.summary().details


def test_a_retriever_of_langchain_is_benched() -> None:
    retrievers = pytest.importorskip("langchain_core.retrievers")
    documents = pytest.importorskip("langchain_core.documents")

    class Words(retrievers.BaseRetriever):  # type: ignore[name-defined, misc]
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
            return [
                documents.Document(page_content=CORPUS[doc], metadata={"id": doc})
                for doc, _ in words(query, 9)
            ]

    found = rp.bench(
        {"langchain": Words()}, corpus=CORPUS, queries=QUERIES, qrels=QRELS, id="metadata.id"
    )
    assert found.configurations["nDCG@10"][0] == pytest.approx(1.0)
    with pytest.raises(InputError, match='langchain: a hit has no id; say where it is: id="meta'):
        rp.bench({"langchain": Words()}, corpus=CORPUS, queries=QUERIES, qrels=QRELS)


@pytest.mark.slow
def test_a_retriever_of_llama_index_is_benched() -> None:
    core = pytest.importorskip("llama_index.core.retrievers")
    schema = pytest.importorskip("llama_index.core.schema")

    class Words(core.BaseRetriever):  # type: ignore[name-defined, misc]
        def _retrieve(self, query_bundle: Any) -> list[Any]:
            return [
                schema.NodeWithScore(node=schema.TextNode(text=CORPUS[doc], id_=doc), score=score)
                for doc, score in words(query_bundle.query_str, 9)
            ]

    found = rp.bench({"llama": Words()}, corpus=CORPUS, queries=QUERIES, qrels=QRELS)
    called = rp.bench({"words": words}, corpus=CORPUS, queries=QUERIES, qrels=QRELS)
    for column in ("nDCG@10", "nDCG@10 min", "nDCG@10 max", "tied"):
        assert found.configurations[column][0] == called.configurations[column][0]
    known = ("PROC", "unjudged passages may have grades")
    assert all(any(text in note for text in known) for note in found.manifest["notes"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"retrievers": {}}, "retrievers: {}"),
        ({"retrievers": {"x": 7}}, "x: 7 cannot be asked"),
        ({"retrievers": {"a b": words}}, "a b"),
        ({"queries": None}, "there are no queries"),
        ({"qrels": None}, "there are no qrels"),
        ({"corpus": {"d1": 7}}, "7 where a text by its id belongs"),
        ({"corpus": "nowhere"}, "there is no such folder"),
        ({"measures": ["nDGC@10"]}, "nDGC"),
        ({"qrels": {"q9": {"d1": 1}}}, "no question of the queries is judged"),
        ({"k": 0}, "pools"),
    ],
)
def test_what_cannot_be_benched_is_one_line(given: dict[str, Any], said: str) -> None:
    whole: dict[str, Any] = {"corpus": CORPUS, "queries": QUERIES, "qrels": QRELS}
    whole |= {"retrievers": {"w": words}, **given}
    with pytest.raises(InputError) as error:
        rp.bench(whole.pop("retrievers"), **whole)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_the_hybrid_search_of_lancedb_ties_as_the_documents_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lancedb")
    pytest.importorskip("wordllama")
    from rankproof.commands.showcase import unpack

    monkeypatch.syspath_prepend(ROOT / "examples")
    example = importlib.import_module("bench_lancedb")
    unpack(tmp_path / "try")
    frame = example.measure(tmp_path / "try" / "corpus").configurations
    page = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    for name, row in zip(("words", "vector", "hybrid"), frame.iter_rows(named=True), strict=True):
        assert row["configuration"].startswith(name)
        said = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
        cells = [cell.strip(" *") for cell in said.split("|")]
        low, high = row["nDCG@10 min"], row["nDCG@10 max"]
        assert cells[5:8] == [
            f"{row['nDCG@10']:.3f}",
            f"{low:.3f} – {high:.3f}",
            f"{row['tied']} of 44",
        ]


@pytest.mark.slow
def test_langchain_llama_index_and_milvus_find_what_the_documents_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("langchain_core", "llama_index.core", "milvus_lite", "pymilvus", "wordllama"):
        pytest.importorskip(package)
    from rankproof.commands.showcase import unpack

    monkeypatch.syspath_prepend(ROOT / "examples")
    example = importlib.import_module("bench_retrievers")
    unpack(tmp_path / "try")
    frame = example.measure(tmp_path / "try" / "corpus").configurations
    assert [name.split()[0] for name in frame["configuration"]] == [
        "langchain",
        "llama-index",
        "milvus",
    ]
    page = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"each has nDCG@10 (\S+) on the demo", page)
    assert {f"{value:.3f}" for value in frame["nDCG@10"]} == {said}
