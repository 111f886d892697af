"""Datasets by name: downloaded with a library and written once as a BEIR folder."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rankproof.audit.datasets import candidates_in, dataset_folder
from rankproof.data import read_qrels, read_run
from rankproof.data.beir import read_corpus
from rankproof.foundation.errors import InputError, MissingExtra


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RANKPROOF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def task(top_ranked: Any) -> Any:
    split = {
        "corpus": [{"id": "d1", "title": "T", "text": "one"}, {"id": "d2", "text": "two"}],
        "queries": [{"id": "q1", "text": "which"}],
        "relevant_docs": {"q1": {"d1": 2}},
        "top_ranked": top_ranked,
    }
    return SimpleNamespace(load_data=lambda: None, dataset={"default": {"test": split}})


def test_a_task_of_mteb_becomes_a_folder_once(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []

    def get_task(name: str) -> Any:
        requested.append(name)
        return task({"q1": ["d2", "d1"]})

    monkeypatch.setitem(sys.modules, "mteb", SimpleNamespace(get_task=get_task))
    folder = dataset_folder("mteb:Tiny")
    assert dataset_folder("mteb:Tiny") == folder
    assert requested == ["Tiny"]
    corpus = read_corpus(folder)
    assert (corpus.document_ids, corpus.documents) == (["d1", "d2"], ["T one", "two"])
    assert (corpus.query_ids, corpus.queries) == (["q1"], ["which"])
    assert read_qrels(corpus.qrels).to_frame().rows() == [("q1", "d1", 2)]
    candidates = candidates_in(folder)
    assert candidates is not None
    assert read_run(candidates).doc.to_list() == ["d2", "d1"]  # in the order of the task


def test_a_dataset_of_ir_datasets_becomes_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = SimpleNamespace(
        docs_iter=lambda: [
            SimpleNamespace(doc_id="d1", title="T", text="one"),
            SimpleNamespace(doc_id="d2", default_text=lambda: "body of two"),
        ],
        queries_iter=lambda: [SimpleNamespace(query_id="q1", text="which")],
        qrels_iter=lambda: [SimpleNamespace(query_id="q1", doc_id="d2", relevance=1)],
    )
    monkeypatch.setitem(sys.modules, "ir_datasets", SimpleNamespace(load=lambda name: tiny))
    folder = dataset_folder("irds:tiny/test")
    corpus = read_corpus(folder)
    assert corpus.documents == ["T one", "body of two"]
    assert read_qrels(corpus.qrels).to_frame().rows() == [("q1", "d2", 1)]
    assert candidates_in(folder) is None


def test_a_dataset_that_cannot_be_loaded_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def get_task(name: str) -> Any:
        raise KeyError(f"no task {name}")

    monkeypatch.setitem(sys.modules, "mteb", SimpleNamespace(get_task=get_task))
    with pytest.raises(InputError, match=r"mteb:Nothing: it cannot be loaded .*no task Nothing"):
        dataset_folder("mteb:Nothing")
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(MissingExtra, match=r"the dataset irds:x needs ir-datasets: pip install"):
        dataset_folder("irds:x")
    assert dataset_folder("some/folder") == "some/folder"
