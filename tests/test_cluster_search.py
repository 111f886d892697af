"""Exact search over shards: one machine's lists, scores and cuts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
import pytest
from ray_session import ray

import rankproof as rp
from rankproof import cluster, precision
from rankproof.cluster import vectors
from rankproof.foundation.arrays import Array
from rankproof.precision.formats import Format
from rankproof.precision.pipeline import ScoringPipeline
from rankproof.precision.topk import TopK

__all__ = ["ray"]  # a fixture, found by its name

pytestmark = pytest.mark.usefixtures("ray")

QUERIES, DOCUMENTS, DIMENSIONS = 2000, 7000, 12  # one machine takes 2,097 documents at a time


def made(coarse: bool) -> tuple[Array, Array]:
    """Vectors; coarse ones tie again and again."""
    generator = np.random.default_rng(4)
    queries, documents = (generator.normal(size=(n, DIMENSIONS)) for n in (QUERIES, DOCUMENTS))
    if coarse:
        queries, documents = np.rint(queries), np.rint(documents)
        documents[~documents.any(axis=1)] = 1.0
        queries[~queries.any(axis=1)] = 1.0
    return queries.astype(np.float32), documents.astype(np.float32)


def pieces(documents: Array) -> list[Array]:
    return [documents[:10], documents[10:3001], documents[3001:3001], documents[3001:]]


def alike(a: rp.Run, b: rp.Run) -> None:
    assert a.to_frame().equals(b.to_frame())
    assert a.cut is not None
    assert b.cut is not None
    assert a.cut.tolist() == b.cut.tolist()
    assert (a.dtype, a.name) == (b.dtype, b.name)


@pytest.mark.slow
@pytest.mark.parametrize("coarse", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        {"metric": "cosine"},
        {"format": "float16", "metric": "cosine"},
        {"format": "float8_e5m2", "metric": "cosine"},
        {"format": "int8", "metric": "cosine"},
        {"format": "bfloat16", "high_precision": False},
        {"format": "float16"},
        {"format": "int8"},
        {"format": "int8_dimension", "metric": "cosine"},
        {"format": "int8_dimension", "high_precision": False},
        {"format": "int4", "rescore": "original", "candidates": 60},
        {"format": "bit", "high_precision": False},
        {"format": "bit", "metric": "cosine"},
    ],
    ids=str,
)
def test_shards_are_searched_as_one_machine_would(settings: dict[str, Any], coarse: bool) -> None:
    queries, documents = made(coarse)
    whole = precision.search(queries, documents, 10, **settings)
    found = cluster.search(queries, pieces(documents), 10, rows_per_task=1500, **settings)
    alike(found, whole)
    if coarse:
        assert whole.cut is not None
        assert (whole.cut > 0).any()


def test_ids_and_format_are_read_from_files(tmp_path: Path) -> None:
    queries, documents = made(coarse=True)
    half = documents.astype(np.float16)
    for at, part in enumerate(pieces(half)):
        np.save(tmp_path / f"{at}.npy", part)
    whole = precision.search(queries, half, 5)
    alike(cluster.search(queries, tmp_path, 5, rows_per_task=2500), whole)
    ids = [f"doc-{at}" for at in range(DOCUMENTS)]
    folder = tmp_path / "parquet"
    folder.mkdir()
    for at in range(4):
        rows = slice(at * 1750, (at + 1) * 1750)
        pl.DataFrame({"id": ids[rows], "vector": documents[rows].tolist()}).with_columns(
            pl.col("vector").cast(pl.List(pl.Float32))
        ).write_parquet(folder / f"{at}.parquet")
    names = [f"q{at}" for at in range(QUERIES)]
    whole = precision.search(queries, documents, 5, query_ids=names, document_ids=ids)
    alike(cluster.search(queries, folder, 5, query_ids=names, rows_per_task=1500), whole)


def test_a_row_without_an_id_is_named(tmp_path: Path) -> None:
    shard = tmp_path / "0.parquet"
    pl.DataFrame({"id": ["a", ""], "vector": [[1.0, 0.0], [0.0, 1.0]]}).write_parquet(shard)
    with pytest.raises(rp.InputError, match=r"0\.parquet: row 1: the row's id is empty"):
        cluster.search(np.eye(2, dtype=np.float32), shard, 1)


def test_an_id_in_two_shards_is_named(tmp_path: Path) -> None:
    for at in range(2):
        pl.DataFrame({"id": ["a", f"b{at}"], "vector": [[1.0, 0.0], [0.0, 1.0]]}).write_parquet(
            tmp_path / f"{at}.parquet"
        )
    with pytest.raises(rp.InputError, match="shards: two documents have the id 'a'; make ids"):
        cluster.search(np.eye(2, dtype=np.float32), tmp_path, 2)


def test_more_documents_can_be_requested_than_exist() -> None:
    queries, documents = made(coarse=True)
    whole = precision.search(queries[:3], documents[:40], 100)
    alike(cluster.search(queries[:3], pieces(documents[:40])[:2], 100), whole)


def test_merging_counts_the_tied_documents_that_each_part_cut_off() -> None:
    def best(scores: list[float], first: int, cut: int) -> vectors._Best:
        documents = np.arange(first, first + len(scores))[None]
        return vectors._Best(
            TopK(np.array([scores], np.float32), documents, np.array([cut])), None, None
        )

    a, b = best([3, 2, 2], 0, 4), best([3, 2, 1], 100, 0)
    merged = vectors._merge(a, b, 3).top
    assert merged.documents.tolist() == [[0, 100, 1]]
    assert merged.cut.tolist() == [4 + 2]  # four that a left out; rows 2 and 101
    merged = vectors._merge(a, best([3, 3, 3], 100, 9), 3).top
    assert merged.documents.tolist() == [[0, 100, 101]]
    assert merged.cut.tolist() == [1 + 9]


@pytest.mark.parametrize("form", get_args(Format))
def test_a_gpu_finds_the_same_documents_of_a_part_as_the_cpu(
    form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the GPU's way on a CPU: Ray would wait for a GPU."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    queries, documents = made(coarse=True)
    part = vectors._Part(vectors._Shard(500, DIMENSIONS, "float32", False, None, 0), 100, 450, 7)
    largest = np.full((1, DIMENSIONS), 9, np.float32) if form == "int8_dimension" else None
    for high, rescore in ((False, "decoded"), (True, "decoded"), (True, "original")):
        for metric in ("dot", "cosine"):
            pipeline = ScoringPipeline.of(form, high_precision=high, rescore=rescore, metric=metric)
            cpu, gpu = (
                vectors._find(
                    queries[:20],
                    part,
                    vectors._Task(pipeline, 30, device),
                    largest,
                    documents[:500],
                )
                for device in ("cpu", "cuda")
            )
            for name in ("scores", "documents", "cut"):
                assert np.array_equal(getattr(cpu.top, name), getattr(gpu.top, name)), name
            assert (cpu.exact is None) == (gpu.exact is None)
            if cpu.exact is not None and gpu.exact is not None:
                assert np.array_equal(cpu.exact, gpu.exact)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"k": 0}, "k = 0"),
        ({"metric": "l2"}, "metric 'l2' is unknown"),
        ({"format": "int7"}, "number format 'int7' is unknown"),
        ({"device": "tpu"}, "device 'tpu' is unknown"),
        ({"shards": [np.zeros((3, 5), np.float32)]}, "shard 0: queries have 12 dimensions and"),
        ({"shards": [np.full((3, 12), np.nan, np.float32)]}, "shard 0, row 0, on: row 0"),
        ({"shards": [np.zeros((0, 12), np.float32)]}, "no vectors"),
        ({"shards": np.zeros((3, 12), np.float32)}, "shards: one array; give a list of arrays"),
        ({"shards": [np.zeros(12, np.float32)]}, "documents of shard 0 have the shape"),
        ({"shards": [np.zeros((3, 12), complex)]}, "shard 0: complex128 where numbers belong"),
        ({"rows_per_task": 0}, "rows_per_task = 0"),
        ({"format": "int8", "candidates": 0}, "candidates = 0"),
        ({"document_ids": ["a"]}, "1 id for 7,000 rows"),
        ({"query_ids": ["a"]}, "1 id for 2,000 rows"),
    ],
    ids=str,
)
def test_input_that_cannot_be_searched_is_an_error_of_one_line(
    change: dict[str, Any], words: str
) -> None:
    queries, documents = made(coarse=False)
    settings: dict[str, Any] = {"queries": queries, "shards": pieces(documents), "k": 3} | change
    with pytest.raises(rp.InputError, match=words):
        cluster.search(**settings)


def test_shards_may_be_tensors_of_any_float() -> None:
    torch = pytest.importorskip("torch")
    queries, documents = made(coarse=False)
    tensors = [torch.from_numpy(x).bfloat16().requires_grad_() for x in pieces(documents)]
    whole = precision.search(queries[:50], torch.cat(tensors), 5, high_precision=False)
    alike(cluster.search(queries[:50], tensors, 5, high_precision=False), whole)
