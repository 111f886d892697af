"""Models on Ray: what was done before a death is not done again, and nothing is done twice."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from ray_session import TESTS, ray

import rankproof as rp
from rankproof import cluster
from rankproof.cluster import embedding

__all__ = ["ray"]  # a fixture, found by its name

pytestmark = pytest.mark.usefixtures("ray")

CORPUS = {f"d{at}": f"text number {at}" for at in range(60)}


def vector(text: str) -> list[float]:
    return [byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:6]]


class Hashes:
    """An embedder that notes what it embeds, and may die of one text, itself or its driver."""

    fingerprint = "hashes"

    def __init__(self, log: Path, deadly: str | None = None, driver: int | None = None):
        self.log = log
        self.deadly = deadly
        self.driver = driver

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        flag = self.log / "killed"
        if self.deadly in texts and not flag.exists():
            flag.touch()
            os.kill(self.driver or os.getpid(), signal.SIGKILL)
            if self.driver:
                signal.pause()  # what is in work when the driver dies is never finished
        for text in texts:
            with (self.log / "seen").open("a") as file:  # one short line: appended whole
                file.write(f"{text}\n")
        return [vector(text) for text in texts]


def seen(log: Path) -> list[str]:
    return sorted((log / "seen").read_text().splitlines())


def check(made: Any, corpus: dict[str, str] = CORPUS) -> None:
    """Each passage once, in order, with its vector."""
    frame = pl.concat([pl.read_parquet(file) for file in made.files])
    assert frame["id"].to_list() == list(corpus)
    expected = np.array([vector(text) for text in corpus.values()], np.float32)
    assert (frame["vector"].to_numpy() == expected).all()
    assert made.rows == len(corpus)
    listed = json.loads((made.folder / "_manifest.json").read_text())["parts"]
    assert listed == [file.name for file in made.files]
    assert sorted(made.folder.glob("part-*")) == sorted(made.files)


@pytest.mark.slow
def test_a_corpus_is_embedded_once_and_a_second_run_does_nothing(tmp_path: Path) -> None:
    made = cluster.embed(CORPUS, Hashes(tmp_path), tmp_path / "out", shard=7, workers=1)
    check(made)
    assert (made.reused, len(made.files)) == (0, 9)
    again = cluster.embed(CORPUS, Hashes(tmp_path), tmp_path / "out", shard=7, workers=1)
    check(again)
    assert again.reused == 9
    assert seen(tmp_path) == sorted(CORPUS.values())


@pytest.mark.slow
def test_only_what_changed_is_embedded_again(tmp_path: Path) -> None:
    cluster.embed(CORPUS, Hashes(tmp_path), tmp_path / "out", shard=10, workers=1)
    (tmp_path / "seen").unlink()
    changed = CORPUS | {"d15": "another text"}
    made = cluster.embed(changed, Hashes(tmp_path), tmp_path / "out", shard=10, workers=1)
    check(made, changed)
    assert made.reused == 5
    assert seen(tmp_path) == sorted(list(changed.values())[10:20])


@pytest.mark.slow
def test_a_damaged_shard_is_embedded_again(tmp_path: Path) -> None:
    made = cluster.embed(CORPUS, Hashes(tmp_path), tmp_path / "out", shard=20, workers=1)
    made.files[1].write_bytes(made.files[1].read_bytes()[:100])
    mended = cluster.embed(CORPUS, Hashes(tmp_path), tmp_path / "out", shard=20, workers=1)
    check(mended)
    assert mended.reused == 2


@pytest.mark.slow
def test_a_killed_worker_is_restarted_and_repeats_its_shard(tmp_path: Path) -> None:
    model = Hashes(tmp_path, deadly="text number 33")
    check(cluster.embed(CORPUS, model, tmp_path / "out", shard=10, workers=2))
    assert (tmp_path / "killed").exists()
    assert seen(tmp_path) == sorted(CORPUS.values())  # it died before it noted anything


DRIVER = """
import os, sys
from pathlib import Path
from rankproof import cluster
from test_cluster_models import CORPUS, Hashes
if __name__ == "__main__":
    log = Path(sys.argv[1])
    model = Hashes(log, "text number 33", os.getpid())
    cluster.embed(CORPUS, model, log / "out", shard=5, workers=1, address=sys.argv[2])
"""


@pytest.mark.slow
def test_a_killed_driver_loses_only_the_unfinished_shard(
    tmp_path: Path, ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", TESTS, prepend=os.pathsep)
    address = ray.get_runtime_context().gcs_address
    died = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path), address],
        capture_output=True,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    texts = list(CORPUS.values())
    assert seen(tmp_path) == sorted(texts[:30])  # six shards of five; d33 is in the seventh
    made = cluster.embed(CORPUS, Hashes(tmp_path), tmp_path / "out", shard=5, workers=1)
    check(made)
    assert made.reused == 6
    assert seen(tmp_path) == sorted(texts)


@pytest.mark.slow
def test_a_folder_of_another_model_is_refused(tmp_path: Path) -> None:
    cluster.embed(CORPUS, Hashes(tmp_path), tmp_path / "out", shard=50, workers=1)
    with pytest.raises(rp.InputError, match="what another model made"):
        cluster.embed(CORPUS, Hashes(tmp_path), tmp_path / "out", shard=50, fingerprint="other")


@pytest.mark.slow
def test_a_model_may_be_a_function_or_be_made_by_the_worker(tmp_path: Path) -> None:
    for at, model in enumerate(
        (lambda texts: [vector(t) for t in texts], partial(Hashes, tmp_path))
    ):
        name: Any = {"fingerprint": "words"} if at == 0 else {}
        check(cluster.embed(CORPUS, model, tmp_path / str(at), shard=50, **name))
    with pytest.raises(rp.InputError, match="has no fingerprint"):
        cluster.embed(CORPUS, len, tmp_path / "none")


@pytest.mark.slow
def test_settings_of_an_embedder_are_a_model(tmp_path: Path) -> None:
    pytest.importorskip("wordllama")
    from rankproof.retrieval.embedders import make_embedder
    from rankproof.retrieval.embedders.wordllama import WordllamaSettings

    settings = WordllamaSettings(dimensions=64)
    made = cluster.embed(CORPUS, settings, tmp_path / "out", shard=60, workers=1)
    expected = make_embedder(settings).embed_passages(list(CORPUS.values()))
    found = pl.read_parquet(made.files[0])["vector"].to_numpy()
    assert (found == expected).all()


@pytest.mark.slow
def test_json_lines_and_parquet_are_corpora(tmp_path: Path) -> None:
    lines = [{"_id": "a", "title": "One", "text": "two"}, {"_id": "b", "text": "three"}]
    file = tmp_path / "corpus.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    expected = {"a": "One two", "b": "three"}
    check(cluster.embed(file, Hashes(tmp_path), tmp_path / "1"), expected)
    pl.DataFrame({"id": list(expected), "text": list(expected.values())}).write_parquet(
        tmp_path / "corpus.parquet"
    )
    check(cluster.embed(tmp_path / "corpus.parquet", Hashes(tmp_path), tmp_path / "2"), expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"_id": "a", "text": "x"}\n{"_id": "b"}\n', "corpus.jsonl:2: .* lacks _id or text"),
        ("not json\n", "corpus.jsonl:1: .* lacks _id or text"),
        ('{"text": "x"}\n', "corpus.jsonl:1: .* lacks _id or text"),
        ('{"_id": null, "text": "x"}\n', "corpus.jsonl:1: .* lacks _id or text"),
    ],
)
def test_a_bad_line_of_a_corpus_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "corpus.jsonl").write_text(text)
    with pytest.raises(rp.InputError, match=words):
        list(embedding._read_texts(tmp_path / "corpus.jsonl"))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda texts: [[np.nan] * 3 for _ in texts], "passage 'a': the model made a number that"),
        (lambda texts: [[1.0] * 3], r"an array of shape \(1, 3\) of 2 texts"),
    ],
)
def test_vectors_and_scores_of_a_model_are_checked(tmp_path: Path, model: Any, words: str) -> None:
    with pytest.raises(rp.InputError, match=words):
        embedding._EmbeddingWorker(model, "bad").work(
            [("a", "x"), ("b", "y")], tmp_path / "part.parquet"
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_error_of_a_worker_is_one_line_in_the_driver(tmp_path: Path) -> None:
    with pytest.raises(rp.InputError, match=r"^corpus: id 'a' appears twice; make ids unique$"):
        cluster.embed([("a", "x"), ("a", "y")], Hashes(tmp_path), tmp_path / "out", workers=1)
    with pytest.raises(rp.InputError, match="no rows"):
        cluster.embed({}, Hashes(tmp_path), tmp_path / "none", workers=1)


def overlap(query: str, passages: Sequence[str]) -> list[float]:
    words = set(query.split())
    return [len(words & set(passage.split())) / 7 for passage in passages]


@pytest.mark.slow
def test_a_run_is_scored_again_in_shards_and_resumed(tmp_path: Path) -> None:
    queries = {f"q{at}": f"number {at} text" for at in range(9)}
    run = {q: {f"d{at + 3 * i}": 1.0 / (i + 1) for i in range(5)} for at, q in enumerate(queries)}
    again = {
        q: dict(zip(docs, overlap(queries[q], [CORPUS[d] for d in docs]), strict=True))
        for q, docs in run.items()
    }
    for reused in (0, 5):
        found = cluster.score(
            run, queries, CORPUS, overlap, tmp_path / "out", fingerprint="overlap", shard=2
        )
        assert found.to_frame().equals(rp.read_run(again).to_frame()), reused
    assert len(list((tmp_path / "out").glob("part-*"))) == 5
    with pytest.raises(rp.InputError, match="document 'd0' of the run has no text"):
        cluster.score(run, queries, {}, overlap, tmp_path / "none", fingerprint="overlap")
