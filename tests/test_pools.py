"""Cutting lists, and how alike two runs are, against literal definitions."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankproof.data import read_run
from rankproof.retrieval.ranked_lists import keep_first, rescore
from rankproof.retrieval.run_similarity import kendall, mean, overlap

Lists = dict[str, dict[str, float]]

scores = st.integers(0, 3).map(float)
lists = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3"]),
    st.dictionaries(st.sampled_from("abcdefgh"), scores, min_size=1, max_size=8),
    min_size=1,
)


def literal_head(run: Lists, k: int) -> tuple[Lists, dict[str, int]]:
    kept: Lists = {}
    cut = {}
    for query, docs in run.items():
        order = sorted(docs, key=lambda d: -docs[d])  # stable: the order given
        kept[query] = {doc: docs[doc] for doc in order[:k]}
        last = docs[order[:k][-1]]
        cut[query] = sum(docs[doc] == last for doc in order[k:])
    return kept, cut


def as_dict(frame_rows: list[tuple[str, str, float]]) -> Lists:
    found: Lists = defaultdict(dict)
    for query, doc, score in frame_rows:
        found[query][doc] = score
    return dict(found)


@given(lists, st.integers(1, 9))
def test_head_keeps_the_best_and_counts_the_ties_it_leaves_out(run: Lists, k: int) -> None:
    cut_run = keep_first(read_run(run), k)
    kept, cut = literal_head(run, k)
    rows = cut_run.to_frame().rows()
    assert as_dict(rows) == kept
    assert [list(docs) for docs in as_dict(rows).values()] == [list(d) for d in kept.values()]
    assert cut_run.cut is not None
    assert dict(zip(cut_run.queries, cut_run.cut.tolist(), strict=True)) == cut


@given(lists, st.integers(1, 9), st.integers(1, 9))
def test_a_head_of_a_head_is_the_shorter_head_and_its_ties(run: Lists, j: int, k: int) -> None:
    whole = read_run(run)
    once, twice = keep_first(whole, min(j, k)), keep_first(keep_first(whole, max(j, k)), min(j, k))
    assert once.to_frame().equals(twice.to_frame())
    assert once.cut is not None
    assert twice.cut is not None
    assert once.cut.tolist() == twice.cut.tolist()


def test_each_query_may_have_its_own_depth() -> None:
    run = read_run({"a": {"x": 3.0, "y": 2.0, "z": 1.0}, "b": {"x": 3.0, "y": 2.0, "z": 1.0}})
    assert keep_first(run, np.array([1, 2])).to_frame().rows() == [
        ("a", "x", 3.0),
        ("b", "x", 3.0),
        ("b", "y", 2.0),
    ]


def test_new_scores_reach_their_documents_whatever_their_order() -> None:
    run = read_run({"a": {"x": 3.0, "y": 2.0}, "b": {"y": 9.0}})
    scored = read_run({"b": {"y": 0.5}, "a": {"y": 0.7, "x": 0.1}}).to_frame()
    found = rescore(run, scored, "float32")
    assert as_dict(found.to_frame().rows()) == {"a": {"x": 0.1, "y": 0.7}, "b": {"y": 0.5}}
    assert found.dtype == "float32"


def top_of(docs: dict[str, float], k: int) -> list[str]:
    return sorted(docs, key=lambda doc: -docs[doc])[:k]


def literal_tau(one: dict[str, float], other: dict[str, float], k: int) -> float:
    """τ-b by its definition over pairs, absent documents behind all others."""

    def ranks(docs: dict[str, float], among: list[str]) -> dict[str, float]:
        top = top_of(docs, k)
        return {d: docs[d] if d in top else -math.inf for d in among}

    tops = [top_of(docs, k) for docs in (one, other)]
    among = sorted(set(tops[0]) | set(tops[1]))
    a, b = ranks(one, among), ranks(other, among)

    def sign(docs: dict[str, float], i: str, j: str) -> int:
        return (docs[i] > docs[j]) - (docs[i] < docs[j])

    pairs = list(combinations(among, 2))
    agree = sum(sign(a, i, j) * sign(b, i, j) for i, j in pairs)
    untied = [sum(sign(docs, i, j) != 0 for i, j in pairs) for docs in (a, b)]
    return agree / math.sqrt(untied[0] * untied[1]) if all(untied) else math.nan


@given(lists, lists, st.integers(1, 6))
def test_overlap_and_tau_are_what_their_definitions_say(a: Lists, b: Lists, k: int) -> None:
    one, other = read_run(a), read_run(b)
    shared = sorted(set(a) & set(b))
    tops = [{q: top_of(run[q], k) for q in shared} for run in (a, b)]
    found = dict(overlap(one, other, k).rows())
    assert found == {
        q: pytest.approx(
            len(set(tops[0][q]) & set(tops[1][q])) / max(len(tops[0][q]), len(tops[1][q]))
        )
        for q in shared
    }
    taus = dict(kendall(one, other, k).rows())
    assert set(taus) == set(shared)
    for q in shared:
        assert taus[q] == pytest.approx(literal_tau(a[q], b[q], k), nan_ok=True)


def test_a_run_is_like_itself() -> None:
    run = read_run({"a": {"x": 3.0, "y": 2.0, "z": 1.0}})
    assert mean(overlap(run, run, 2)["overlap"]) == 1.0
    assert mean(kendall(run, run, 2)["tau"]) == 1.0
