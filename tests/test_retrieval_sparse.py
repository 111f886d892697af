"""BM25: the formula, the words it sees, and the lists it returns."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankproof as rp
from rankproof.data.tables import Run
from rankproof.retrieval.archive import write_archive
from rankproof.retrieval.sparse.bm25 import Bm25, Bm25Settings, Words

METHODS = ("lucene", "robertson", "atire", "bm25+", "bm25l")


def lists(run: Run) -> dict[str, list[tuple[str, float]]]:
    result: dict[str, list[tuple[str, float]]] = {query: [] for query in run.queries}
    for query, doc, score in run.to_frame().iter_rows():
        result[query].append((doc, score))
    return result


def corpus(documents: int, words: int, seed: int) -> list[str]:
    generator = np.random.default_rng(seed)
    return [
        " ".join(f"w{n}" for n in generator.zipf(1.5, generator.integers(3, 20)) % words)
        for _ in range(documents)
    ]


def lucene(query: list[str], documents: list[list[str]], k1: float, b: float) -> list[float]:
    """The formula, word by word."""
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        counts, score = Counter(document), 0.0
        for word in query:
            holders = sum(word in d for d in documents)
            idf = math.log(1 + (len(documents) - holders + 0.5) / (holders + 0.5))
            tf = counts[word]
            score += idf * tf / (tf + k1 * (1 - b + b * len(document) / mean))
        scores.append(score)
    return scores


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.9, 0.4), (2.0, 0.0)])
def test_scores_follow_the_formula(k1: float, b: float) -> None:
    texts = corpus(40, 25, seed=1)
    index = Bm25(texts, settings=Bm25Settings(language="none", k1=k1, b=b))
    queries = corpus(12, 25, seed=2)
    result = lists(index.search(queries, 40).run)
    for number, query in enumerate(queries):
        want = lucene(query.split(), [t.split() for t in texts], k1, b)
        assert dict(result[str(number)]) == pytest.approx(
            {str(row): score for row, score in enumerate(want) if score > 0}, rel=1e-5
        )


@pytest.mark.parametrize("method", METHODS)
def test_a_document_that_shares_no_word_is_not_returned(method: str) -> None:
    texts = [*corpus(30, 12, seed=3), "alone entirely", "", "…"]
    index = Bm25(texts, settings=Bm25Settings.model_validate({"method": method}))
    for query in ("w1 w2 nowhere", "w7", "alone"):
        result = lists(index.search([query], 50).run)["0"]
        sharing = {str(i) for i, t in enumerate(texts) if set(t.split()) & set(query.split())}
        assert {doc for doc, _ in result} <= sharing
        # A word that more than half of the documents hold may count nothing.
        if method in ("lucene", "bm25+", "bm25l"):
            assert {doc for doc, _ in result} == sharing
        assert [s for _, s in result] == sorted((s for _, s in result), reverse=True)


def test_of_equal_scores_the_first_stays_and_the_cut_counts_the_others() -> None:
    texts = ["apple pear", "apple", "plum apple", "apple", "apple", "cherry"]
    index = Bm25(texts, ["a", "b", "c", "d", "e", "f"])
    whole = lists(index.search(["apple"], 10).run)["0"]
    assert [doc for doc, _ in whole] == ["b", "d", "e", "a", "c"]
    for k, left in ((1, 2), (2, 1), (3, 0), (4, 1), (5, 0), (9, 0)):
        run = index.search(["apple"], k).run
        assert lists(run)["0"] == whole[:k]
        assert run.cut is not None
        assert run.cut.tolist() == [left]


def test_a_query_without_a_known_word_finds_nothing_and_scores_zero() -> None:
    index = Bm25(["red fox", "blue sky"], ["x", "y"])
    result = index.search(["fox", "the of", "unheard"], 5, ["q1", "q2", "q3"])
    assert [len(rows) for rows in lists(result.run).values()] == [1, 0, 0]
    assert result.seconds.shape == (3,)
    assert (result.seconds > 0).all()
    qrels = {"q1": {"x": 1}, "q2": {"x": 1}, "q3": {"y": 1}}
    assert rp.evaluate(qrels, result.run, "RR")["RR"].expected == pytest.approx(1 / 3)


def test_no_queries_give_an_empty_run() -> None:
    result = Bm25(["red fox"]).search([], 5)
    assert len(result.run) == 0
    assert len(result.run.queries) == 0
    assert result.seconds.shape == (0,)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("the Patient's genes", "patient gene"),
        ("Alzheimer’s diseases", "alzheimer disease"),
        ("naïve résumés", "naive resumes"),
        ("vitamin-C vitamins", "vitamin c vitamin"),
        ("eﬃcient", "efficient"),
        ("caf\u0065\u0301s", "cafés"),
    ],
)
def test_english_words_match_in_any_form(text: str, same: str) -> None:
    words = Words("en")
    assert words(text) == words(same) != []


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("l'élève", "élèves"),
        ("L’ÉLÈVE", "eleve"),
        ("qu'elle développe", "développer"),
        ("d'eau, jusqu’au lac", "eau lac"),
        ("s'il n'y a pas lieu", "lieu"),
        ("des œuvres", "oeuvre"),
        ("la vitamine C", "vitamines c"),
        ("aujourd'hui", "aujourd hui"),
    ],
)
def test_french_words_match_in_any_form(text: str, same: str) -> None:
    words = Words("fr")
    assert words(text) == words(same) != []


def test_folding_drops_every_combining_character_and_nothing_else() -> None:
    import sys
    import unicodedata

    from rankproof.retrieval.sparse.bm25 import _fold

    every = "".join(chr(c) for c in range(sys.maxunicode + 1) if unicodedata.combining(chr(c)))
    assert _fold(f"a{every}") == "a"
    for text in (
        "Éléphant",
        "ǟ ắ",
        "a\u0315\u0300b",
        "हिन्दी",
        "한국어",
        "a\u034fb ’–",
        "é" * 3 + "]-^\\",
    ):
        parts = unicodedata.normalize("NFD", text)
        kept = "".join(c for c in parts if not unicodedata.combining(c))
        assert _fold(text) == unicodedata.normalize("NFC", kept)


@pytest.mark.parametrize("language", ["en", "fr", "none"])
def test_each_character_of_chinese_or_japanese_is_a_word(language: Any) -> None:
    """A sentence of Chinese was one word, which no other had."""
    words = Words(language)
    assert words("東京タワー 2021年 mRNA疫苗") == [
        *"東京タワー",
        "2021",
        "年",
        *words("mRNA"),
        *"疫苗",
    ]
    texts = ["鲸鱼用肺呼吸空气。", "猫喜欢睡觉。"]
    result = Bm25(texts, ["whale", "cat"], Bm25Settings(language=language)).search(
        ["鲸鱼怎样呼吸?"], 5
    )
    assert result.run.doc.to_list() == ["whale"]


def test_french_is_searched_in_french() -> None:
    texts = ["L'économie de l'île", "Les îles grecques", "Une histoire de l’économie"]
    french = Bm25(texts, settings=Bm25Settings(language="fr"))
    assert {d for d, _ in lists(french.search(["l'île"], 5).run)["0"]} == {"0", "1"}
    assert {d for d, _ in lists(french.search(["economies"], 5).run)["0"]} == {"0", "2"}


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_index_finds_the_same(method: str, tmp_path: Path) -> None:
    settings = Bm25Settings.model_validate({"method": method, "language": "none"})
    built = Bm25(corpus(50, 30, seed=4), [f"d{n}" for n in range(50)], settings)
    assert built.save(tmp_path / "index") == tmp_path / "index" / "bm25.npz"
    loaded = Bm25.load(tmp_path / "index")
    queries = corpus(9, 30, seed=5)
    before, after = (index.search(queries, 7).run for index in (built, loaded))
    assert before.to_frame().equals(after.to_frame())
    assert (before.dtype, loaded.settings) == (after.dtype, settings)
    assert (built.bytes, built.build_seconds) == (loaded.bytes, loaded.build_seconds)
    assert [file.name for file in (tmp_path / "index").iterdir()] == ["bm25.npz"]


def test_a_file_that_is_not_an_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rp.InputError, match=r"bm25\.npz: there is no such file"):
        Bm25.load(tmp_path)
    path = Bm25(["red fox"]).save(tmp_path)
    whole = path.read_bytes()
    for wrong in (b"", b"text", whole[: len(whole) // 2]):
        path.write_bytes(wrong)
        with pytest.raises(rp.InputError, match=r"not a BM25 \(2\) index; build it again"):
            Bm25.load(tmp_path)
    write_archive(path, "HNSW (1)", {}, {})
    with pytest.raises(rp.InputError, match=r"not a BM25 \(2\) index; build it again"):
        Bm25.load(tmp_path)


def test_empty_corpora_and_invalid_depths_are_refused() -> None:
    with pytest.raises(rp.InputError, match="BM25: no documents to index"):
        Bm25([])
    with pytest.raises(rp.InputError, match="BM25: no word to index"):
        Bm25(["", "the", "…"])
    with pytest.raises(rp.InputError, match="document_ids: id 'a' appears twice"):
        Bm25(["x", "y"], ["a", "a"])
    with pytest.raises(rp.InputError, match="document_ids: 1 id for 2 rows"):
        Bm25(["x", "y"], ["a"])
    index = Bm25(["red fox"])
    with pytest.raises(rp.InputError, match="k = 0; ask for 1 document or more"):
        index.search(["fox"], 0)
    with pytest.raises(rp.InputError, match="query_ids: id 'q' appears twice"):
        index.search(["fox", "fox"], 1, ["q", "q"])
