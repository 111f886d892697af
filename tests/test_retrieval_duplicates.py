"""Near-duplicates, against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankproof as rp
from rankproof.foundation.config import check_config
from rankproof.retrieval.duplicates import DuplicatesSettings, shingles, suppress


def suppress_by_definition(
    texts: list[str], threshold: float, size: int
) -> tuple[list[int], dict[str, str]]:
    """Each passage against every kept one, sets and all."""

    def cut(text: str) -> set[str]:
        words = text.lower().split()
        if not words:
            return set()
        return {" ".join(words[i : i + size]) for i in range(max(1, len(words) - size + 1))}

    kept: list[int] = []
    dropped = {}
    for i, text in enumerate(texts):
        own = cut(text)
        near = [
            (len(own & cut(texts[j])) / len(own | cut(texts[j])), -j)
            for j in kept
            if own | cut(texts[j])
        ]
        best = max(near, default=(0.0, 0))
        if best[0] >= threshold:
            dropped[str(i)] = str(-best[1])
        else:
            kept.append(i)
    return kept, dropped


texts = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "D"]), max_size=7).map(" ".join), max_size=9
)


@given(texts, st.sampled_from([0.1, 0.5, 0.8, 0.9, 1.0]), st.integers(1, 4))
def test_kept_and_dropped_passages_follow_the_definition(
    pool: list[str], threshold: float, size: int
) -> None:
    result = suppress(
        [str(i) for i in range(len(pool))],
        pool,
        DuplicatesSettings(threshold=threshold, shingle=size),
    )
    assert (result.kept.tolist(), result.dropped) == suppress_by_definition(pool, threshold, size)


@given(
    st.lists(st.integers(0, 12), min_size=2, max_size=12),
    st.sampled_from([0.5, 0.8, 0.9, 0.95]),
    st.integers(0, 9),
)
def test_passages_with_shared_boilerplate_are_distinguished_by_their_other_words(
    own: list[int], threshold: float, seed: int
) -> None:
    """Around every threshold: a page header of 40 words and a few words of each passage."""
    header = [f"h{i}" for i in range(40)]
    pool = [
        " ".join([*header[: 40 - (i * seed) % 7], *(f"w{i % 5}x{j}" for j in range(count))])
        for i, count in enumerate(own)
    ]
    result = suppress(
        [str(i) for i in range(len(pool))],
        pool,
        DuplicatesSettings(threshold=threshold, shingle=1),
    )
    assert (result.kept.tolist(), result.dropped) == suppress_by_definition(pool, threshold, 1)


def test_a_passage_is_compared_with_all_similar_ones_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def counted(name: str) -> None:
        whole = getattr(np, name)

        def count(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            return whole(*arguments, **options)

        monkeypatch.setattr(np, name, count)

    counted("intersect1d")
    counted("searchsorted")
    pool = [f"w{i % 7} w{7 + i % 11} w{18 + i % 13}" for i in range(400)]
    result = suppress([str(i) for i in range(400)], pool, DuplicatesSettings(shingle=1))
    assert len(result.kept) == 400
    assert len(calls) <= len(pool)


def test_passages_are_compared_with_kept_passages_only() -> None:
    chain = ["a b c d e f g h", "b c d e f g h i", "c d e f g h i j"]
    settings = DuplicatesSettings(threshold=0.7, shingle=1)
    result = suppress(["x", "y", "z"], chain, settings)  # y repeats x; z repeats y, but not x
    assert result.kept.tolist() == [0, 2]
    assert result.dropped == {"y": "x"}


def test_the_best_ranked_passage_stays() -> None:
    pair = ["Red fox, red hen!", "red FOX red hen"]
    assert suppress(["a", "b"], pair).dropped == {"b": "a"}
    assert suppress(["b", "a"], pair[::-1]).dropped == {"a": "b"}


def test_passages_without_words_repeat_nothing() -> None:
    assert suppress(["a", "b", "c"], ["", "…", ""]).kept.tolist() == [0, 1, 2]
    assert suppress([], []).kept.tolist() == []


def test_a_text_shorter_than_a_shingle_is_one_shingle() -> None:
    assert shingles("Two words", 3) == {("two", "words")}
    assert suppress(["a", "b"], ["two words", "Two  words."]).dropped == {"b": "a"}


def test_a_threshold_of_zero_is_refused() -> None:
    """As the settings are read: not where a sweep has come to it."""
    with pytest.raises(rp.InputError, match="threshold: 0; input should be greater than 0"):
        check_config({"threshold": 0}, DuplicatesSettings, place="sweep.yaml")


def test_nearly_equal_passages_of_chinese_are_found() -> None:
    texts = ["鲸鱼是用肺呼吸空气的大型海洋哺乳动物", "鲸鱼是用肺呼吸空气的大型海洋哺乳动物吗"]
    assert suppress(["a", "b"], texts).dropped == {"b": "a"}
