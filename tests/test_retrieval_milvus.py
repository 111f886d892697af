"""Milvus, the real one: milvus-lite in a folder, through the client that speaks to clusters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_corpus import write_corpus
from toy_embedder import Toy

from rankproof.foundation.config import check_config, read_config
from rankproof.foundation.errors import InputError
from rankproof.retrieval.components import make_component, uses_network
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.indexes import make_index
from rankproof.retrieval.indexes.flat import FlatSettings
from rankproof.retrieval.indexes.milvus import MilvusIndex, MilvusSettings
from rankproof.retrieval.model_calls import unit_vectors
from rankproof.retrieval.protocols import Vectors
from rankproof.retrieval.retrievers.milvus import MilvusRetrieverSettings
from rankproof.tradeoffs.plan import SweepSettings
from rankproof.tradeoffs.sweep import sweep

pymilvus = pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")


def some_vectors(count: int = 300, size: int = 16) -> Vectors:
    vectors = np.random.default_rng(0).normal(size=(count, size)).astype(np.float32)
    vectors[7] = vectors[8] = vectors[9]  # a tie of three
    return unit_vectors(vectors)


def settings(folder: Path, **more: Any) -> MilvusSettings:
    return MilvusSettings.model_validate({"type": "milvus", "uri": str(folder / "m.db"), **more})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("milvus")


def built(folder: Path, **more: Any) -> MilvusIndex:
    index = make_index(settings(folder, **more), some_vectors(), folder=folder)
    assert isinstance(index, MilvusIndex)
    return index


@pytest.mark.parametrize("kind", ["flat", "hnsw", "hnsw_sq", "ivf_flat", "ivf_sq8"])
def test_every_index_finds_what_an_exact_search_finds(folder: Path, kind: str) -> None:
    index = built(folder, index=kind, nlist=8, nprobe=8, ef_search=300)
    vectors = some_vectors()
    exact = make_index(FlatSettings(), vectors).search(vectors[:20], 10).run
    run = index.search(vectors[:20], 10).run
    shared = [len(set(run.doc[a : a + 10]) & set(exact.doc[a : a + 10])) for a in range(0, 200, 10)]
    assert np.mean(shared) > (9.0 if kind in ("hnsw_sq", "ivf_sq8") else 9.9)
    assert run.dtype == "float32"
    assert index.name == f"milvus {kind}"
    assert index.bytes > 0
    assert (run.cut is None) == (kind != "flat")


def test_an_index_is_on_the_disk_before_it_is_searched(folder: Path) -> None:
    """milvus-lite says Finished earlier, and compares every vector until then."""
    index = built(folder, index="ivf_sq8", nlist=4)
    files = list((folder / "m.db/collections" / index.collection).rglob("*.ivf_sq8.idx"))
    assert len(files) == 1
    assert index.bytes == files[0].stat().st_size


def test_what_an_index_is_built_with_reaches_it(folder: Path) -> None:
    """milvus-lite takes its own defaults where it does not find a parameter, and says nothing."""
    thin, wide = (built(folder, index="hnsw", m=m).bytes for m in (2, 64))
    assert wide > thin + 300 * 4 * (64 - 2)
    few, many = (built(folder, index="ivf_flat", nlist=nlist).bytes for nlist in (2, 200))
    assert many > few + (200 - 2) * 16 * 4


def test_flat_scores_are_those_of_numpy_and_ties_at_the_cut_are_counted(folder: Path) -> None:
    vectors = some_vectors()
    run = built(folder).search(vectors[7:8], 2, ["q"]).run
    assert run.doc.to_list() == ["7", "8"]
    assert run.score == pytest.approx([1.0, 1.0])
    assert run.cut is not None
    assert run.cut.tolist() == [1]
    whole = built(folder).search(vectors[7:8], 300).run
    expected = np.sort(vectors.astype(np.float64) @ vectors[7].astype(np.float64))[::-1]
    assert np.sort(whole.score)[::-1] == pytest.approx(expected, abs=1e-6)
    assert whole.cut is not None
    assert whole.cut.tolist() == [0]


def test_a_filter_leaves_out_what_it_says(folder: Path) -> None:
    run = built(folder, filter='id like "1%"').search(some_vectors()[7:8], 20).run
    assert len(run) == 20
    assert all(doc.startswith("1") for doc in run.doc)
    with pytest.raises(InputError, match=r"Milvus m\.db: "):
        built(folder, filter="nonsense ===").search(some_vectors()[:1], 2)


def test_a_collection_that_is_whole_is_used_again_and_one_that_was_stopped_goes_on(
    folder: Path,
) -> None:
    first = built(folder, index="hnsw", m=4)
    client = first.server.client
    again = built(folder, index="hnsw", m=4)
    assert again.collection == first.collection
    assert again.build_seconds == first.build_seconds > 0
    client.delete(first.collection, filter="row >= 200")  # as if it had been stopped there
    resumed = make_index(settings(folder, index="hnsw", m=4), some_vectors(), folder=folder)
    (row,) = client.query(first.collection, filter="", output_fields=["count(*)"])
    assert row["count(*)"] == 300
    assert resumed.search(some_vectors()[250:251], 1).run.doc.to_list() == ["250"]


def test_collections_of_others_are_not_touched(tmp_path: Path) -> None:
    client = pymilvus.MilvusClient(str(tmp_path / "m.db"))
    client.create_collection("passages", dimension=16)
    client.insert("passages", [{"id": 1, "vector": [0.0] * 16}])
    client.flush("passages")
    index = built(tmp_path)
    assert index.collection.startswith("rankproof_")
    assert set(client.list_collections()) == {"passages", index.collection}
    index.drop()
    assert client.list_collections() == ["passages"]
    assert client.get_collection_stats("passages")["row_count"] == 1


def test_what_a_collection_holds_decides_its_name_and_how_it_is_searched_does_not(
    folder: Path,
) -> None:
    one = built(folder, index="hnsw", ef_search=20)
    assert built(folder, index="hnsw", ef_search=50).collection == one.collection
    assert built(folder, index="hnsw", m=8).collection != one.collection
    assert fingerprint(settings(folder)) == fingerprint(settings(folder / "elsewhere"))
    assert fingerprint(settings(folder, ef_search=7)) != fingerprint(settings(folder))


def test_an_address_is_a_network_and_a_folder_is_none(tmp_path: Path) -> None:
    assert not uses_network(settings(tmp_path))
    far = {"type": "milvus", "uri": "https://user:word@milvus.example:19530"}
    assert uses_network(MilvusSettings.model_validate(far))
    near = {"type": "milvus", "uri": "http://localhost:19530"}
    assert not uses_network(MilvusSettings.model_validate(near))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"uri": "passages"}, "uri is neither an address nor a path that ends in .db"),
        ({"index": "hnsv"}, "index"),
        ({"token_env": "NOT_SET"}, "the environment variable NOT_SET is not set"),
        ({"uri": "http://127.0.0.1:1"}, "no server answers; start it, or check the uri"),
    ],
)
def test_a_place_that_cannot_be_used_is_one_line(
    tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    data = {"type": "milvus", "uri": str(tmp_path / "m.db"), **more}

    def open_it() -> None:
        chosen = check_config(data, MilvusSettings, place="x")
        make_index(chosen, some_vectors(), folder=tmp_path)

    with pytest.raises(InputError) as error:
        open_it()
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_folder_that_another_process_has_open_is_one_line(tmp_path: Path) -> None:
    opened = f"MilvusClient({str(tmp_path / 'm.db')!r}); print('open', flush=True); input()"
    other = subprocess.Popen(
        [sys.executable, "-c", f"from pymilvus import MilvusClient; {opened}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(InputError, match="another process may have it open"):
            built(tmp_path)
    finally:
        other.communicate("\n")


SWEEP = """
corpus: corpus
embedders: {toy: {type: "toy_embedder:Toy"}}
modes: [dense]
indexes:
  flat: {type: flat}
  milvus: {type: milvus}
  graph: {type: milvus, uri: ./m.db, index: hnsw}
retrievers:
  engine: {type: milvus, uri: ./m.db, index: hnsw, embedder: {type: "toy_embedder:Toy"}}
pools: [10]
prompts: [5]
at: [5]
best_by: RAnWG@5
latency: {queries: 2, repeats: 1, warmup: 0}
"""


def test_milvus_is_a_knob_of_the_grid_and_an_engine_beside_it(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    result = sweep(read_config(tmp_path / "sweep.yaml", SweepSettings), tmp_path / "out")
    assert result.configurations["configuration"].to_list() == [
        "dense toy flat K=10 top 5",
        "dense toy milvus K=10 top 5",
        "dense toy graph K=10 top 5",
        "engine K=10 top 5",
    ]
    assert (
        result.configurations["nDCG(rel=3)@10"].n_unique() == 1
    )  # thirty passages: a graph finds all
    assert (result.configurations["index_bytes"] > 0).all()
    assert not result.configurations["network"].any()
    assert result.manifest["config"]["retrievers"]["engine"]["uri"] == "m.db"


def test_a_collection_of_the_users_own_is_searched_and_not_written(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "corpus")
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    toy = Toy()
    vectors = toy.embed_passages([f"{row['title']} {row['text']}" for row in rows])
    client = pymilvus.MilvusClient(str(tmp_path / "m.db"))
    client.create_collection(
        "theirs",
        dimension=vectors.shape[1],
        id_type="string",
        max_length=64,
        metric_type="L2",
        auto_id=False,
    )
    client.insert(
        "theirs",
        [
            {"id": row["_id"], "vector": vector, "topic": row["_id"].split("-")[0]}
            for row, vector in zip(rows, vectors, strict=True)
        ],
    )
    client.flush("theirs")
    chosen = MilvusRetrieverSettings.model_validate(
        {
            "type": "milvus",
            "uri": str(tmp_path / "m.db"),
            "collection": "theirs",
            "filter": 'topic == "bees"',
            "embedder": toy,
        }
    )
    engine = make_component("retriever", chosen, [], [], vectors=None, embedder=lambda given: given)
    run = engine.search(["bees on rooftops"], 30, ["q"]).run
    assert sorted(run.doc) == [f"bees-{at}" for at in range(5)]
    asked = toy.embed_queries(["bees on rooftops"])[0]
    expected = {
        row["_id"]: -float(((vector - asked) ** 2).sum())
        for row, vector in zip(rows, vectors, strict=True)
    }
    frame = run.to_frame()
    assert frame["score"].to_list() == pytest.approx([expected[doc] for doc in frame["doc"]])
    assert frame["score"].is_sorted(descending=True)
    assert client.list_collections() == ["theirs"]
    absent = chosen.model_copy(update={"collection": "nobodys"})
    with pytest.raises(InputError, match="there is no collection 'nobodys'"):
        make_component("retriever", absent, [], [], vectors=None, embedder=lambda given: given)


def test_ids_are_a_column_that_filters_can_name(folder: Path) -> None:
    vectors = some_vectors(40)
    names = pl.Series([f"{'en' if at % 2 else 'fr'}-{at}" for at in range(40)])
    index = make_index(
        settings(folder, filter='id like "fr-%"'), vectors, names.to_list(), folder=folder
    )
    run = index.search(vectors[:1], 40).run
    assert len(run) == 20
