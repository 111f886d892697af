"""Each thing is made once, kept by what decides it, and used by whoever asks for it."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_embedder import Toy

from rankproof.foundation.errors import InputError
from rankproof.retrieval.indexes.flat import FlatSettings
from rankproof.retrieval.model_calls import padded_batches
from rankproof.retrieval.sparse.bm25 import Bm25Settings
from rankproof.retrieval.workshop import Texts, Workshop

PASSAGES = Texts(["a", "b", "c"], ["red apples", "green pears", "blue plums"])
QUESTIONS = Texts(["q"], ["pears"])


class Counting:
    """An embedder that counts what it is asked."""

    name = "counting"

    def __init__(self, fingerprint: str = "", salt: float = 1.0):
        self.fingerprint, self.salt = fingerprint, salt
        self.asked: list[str] = []

    def embed_queries(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        return np.array([[len(text), self.salt, text.count("e")] for text in texts])

    embed_passages = embed_queries


def listed(embedder: Any, folder: Path) -> list[tuple[str, float]]:
    with Workshop(PASSAGES, folder) as shop:
        run = shop.dense_list(embedder, None, FlatSettings(), QUESTIONS, 3)
    return list(zip(run.doc.to_list(), run.score.tolist(), strict=True))


def test_results_of_an_object_with_a_fingerprint_are_reused(tmp_path: Path) -> None:
    first, again, other = Counting("one"), Counting("one"), Counting("two", salt=9.0)
    result = listed(first, tmp_path)
    assert listed(again, tmp_path) == result
    assert not again.asked
    assert listed(other, tmp_path) != result
    assert other.asked


def test_results_of_an_object_without_a_fingerprint_are_not_stored(tmp_path: Path) -> None:
    one, other = Counting(), Counting(salt=9.0)
    assert listed(one, tmp_path) != listed(other, tmp_path)
    assert len(one.asked) == len(other.asked) == 4
    assert {file.name for file in tmp_path.rglob("*") if file.is_file()} <= {
        "cache.sqlite",
        "cache.sqlite-shm",
        "cache.sqlite-wal",
    }


def test_vectors_of_a_user_s_embedder_are_brought_to_length_one(tmp_path: Path) -> None:
    with Workshop(PASSAGES, tmp_path) as shop:
        vectors = shop.vectors(Counting("n"), PASSAGES)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (np.ones((2, 3)), r"\(2, 3\) is not a vector for each of 3 texts"),
        (np.ones(3), "is not a vector"),
        (np.full((3, 2), np.nan), "NaN or infinity"),
    ],
)
def test_an_invalid_result_of_an_embedder_is_a_one_line_error(
    returned: Any, words: str, tmp_path: Path
) -> None:
    class Wrong(Counting):
        def embed_passages(self, texts: Sequence[str]) -> Any:
            return returned

    with Workshop(PASSAGES, tmp_path) as shop, pytest.raises(InputError, match=words):
        shop.vectors(Wrong("w"), PASSAGES)


def test_lists_are_searched_once_for_each_depth_and_question(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    with Workshop(PASSAGES, tmp_path) as shop:
        run = shop.sparse_list(Bm25Settings(), QUESTIONS, 2)
        assert run.doc.to_list() == ["b"]
        assert shop.sparse_list(Bm25Settings(), QUESTIONS, 2) is run
    files = sorted((tmp_path / "lists").iterdir())
    with Workshop(PASSAGES, tmp_path) as shop:
        again = shop.sparse_list(Bm25Settings(), QUESTIONS, 2)
        assert again.to_frame().equals(run.to_frame())
        assert sorted((tmp_path / "lists").iterdir()) == files
        shop.sparse_list(Bm25Settings(), Texts(["q"], ["plums"]), 2)
        shop.sparse_list(Bm25Settings(), QUESTIONS, 3)
    assert len(list((tmp_path / "lists").iterdir())) == len(files) + 2


def test_an_engine_that_returns_no_passage_of_the_corpus_is_refused(tmp_path: Path) -> None:
    from rankproof.data.tables import build_run
    from rankproof.retrieval.protocols import Retrieved

    class Strange:
        name, bytes, build_seconds, fingerprint = "strange", 0, 0.0, "s"

        def search(self, texts: Sequence[str], k: int, query_ids: Any = None) -> Retrieved:
            import polars as pl

            run = build_run(
                *("strange", pl.Series(["q"]), np.zeros(1, np.int32), pl.Series(["zz"])),
                *(np.ones(1), "float64"),
            )
            return Retrieved(run, np.zeros(1))

    with (
        Workshop(PASSAGES, tmp_path) as shop,
        pytest.raises(InputError, match="retriever strange: returns no passage of the corpus"),
    ):
        shop.engine_list(Strange(), QUESTIONS, 3)


def test_batches_keep_the_order_and_long_texts_come_last() -> None:
    texts = [f"text {at}" for at in range(10)]
    assert list(padded_batches(texts, 4)) == [texts[:4], texts[4:8], texts[8:]]
    long = "x" * 2_000_000
    parts = list(padded_batches([*texts[:3], long, *texts[3:]], 4))
    assert parts == [texts[:4], texts[4:8], texts[8:], [long]]
    middling = ["y" * 300_000] * 7
    assert max(len(part) for part in padded_batches(middling, 256)) == 3
    assert sum(len(part) for part in padded_batches(middling, 256)) == 7


@pytest.mark.slow
def test_one_text_of_a_megabyte_fits_into_memory(tmp_path: Path) -> None:
    """129 passages of which one is long were killed at 20 GB, padded to the longest."""
    pytest.importorskip("wordllama")
    code = """
from pathlib import Path
from rankproof.retrieval.embedders.wordllama import WordllamaSettings
from rankproof.retrieval.workshop import Texts, Workshop
texts = [f"passage {at} about rain" for at in range(128)] + ["wind and rain " * 75_000]
passages = Texts([str(at) for at in range(129)], texts)
with Workshop(passages, Path("work")) as shop:
    print(shop.vectors(WordllamaSettings(), passages).shape)
"""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "(129, 256)\n", done.stderr[-2000:]


def test_a_note_reports_truncated_passages_in_every_run(tmp_path: Path) -> None:
    class Short(Toy):
        reads, cut, name = 3, 0, "short"
        fingerprint = "short"

        def embed_passages(self, texts: Sequence[str]) -> Any:
            self.cut += sum(len(text.split()) > 3 for text in texts)
            return super().embed_passages(texts)

    passages = Texts(["a", "b"], ["one two three four", "one two"])
    said = ["short reads 3 tokens of a passage: 1 are longer, and what follows is not seen"]
    for _ in ("made", "read from the folder"):
        with Workshop(passages, tmp_path) as shop:
            shop.vectors(Short(), passages)
            assert shop.notes() == said


def test_the_cache_is_readable_by_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKPROOF_CACHE", str(tmp_path / "mine"))
    with Workshop(PASSAGES) as shop:
        shop.vectors(Counting("n"), PASSAGES)
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700
