"""Fusion: the formulas on dicts, laws it must obey, and ranx's numbers."""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankproof as rp
from rankproof.data.tables import Run
from rankproof.foundation import kernels
from rankproof.retrieval.fusion import FUSIONS, borda, combine, fuse, fuse_one, isr, rrf

Lists = dict[str, dict[str, float]]

# Ids on both sides of the 12 bytes that a string view holds inline.
ids = st.sampled_from(
    ["a", "b", "c", "é", "document-with-a-long-id-1", "document-with-a-long-id-2"]
)
levels = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.5])
lists = st.dictionaries(
    st.sampled_from("pqr"), st.dictionaries(ids, levels, min_size=1), min_size=1
)
some = st.lists(lists, min_size=1, max_size=4)


def read(given: Lists) -> Run:
    return rp.read_run(given)


def opened(run: Run) -> Lists:
    result: Lists = {query: {} for query in run.queries}
    for query, doc, score in run.to_frame().iter_rows():
        result[query][doc] = score
    return result


def mean_ranks(scores: dict[str, float]) -> dict[str, float]:
    """Each document's rank, by counting: those above it, and half of those level with it."""
    values = list(scores.values())
    return {
        doc: sum(v > s for v in values) + (1 + sum(v == s for v in values)) / 2
        for doc, s in scores.items()
    }


def plain_rrf(runs: list[Lists], k: float, weights: list[float], depth: int | None) -> Lists:
    fused: Lists = {}
    for run, weight in zip(runs, weights, strict=True):
        for query, scores in run.items():
            into = fused.setdefault(query, {})
            for doc, rank in mean_ranks(scores).items():
                if depth is None or rank <= depth:
                    into[doc] = into.get(doc, 0.0) + weight / (k + rank)
    return fused


def plain_scale(scores: dict[str, float], normalise: str) -> dict[str, float]:
    low, high = min(scores.values()), max(scores.values())
    if normalise == "none":
        return scores
    if normalise == "rank":
        return {d: 1 - (r - 1) / len(scores) for d, r in mean_ranks(scores).items()}
    if low == high:
        return dict.fromkeys(scores, 1 / len(scores) if normalise == "sum" else 1.0)
    if normalise == "sum":
        total = sum(score - low for score in scores.values())
        return {doc: (score - low) / total for doc, score in scores.items()}
    unit = high - low if normalise == "minmax" else statistics.pstdev(scores.values())
    return {doc: (score - low) / unit for doc, score in scores.items()}


def plain_combine(runs: list[Lists], method: str, normalise: str, weights: list[float]) -> Lists:
    fused: Lists = {}
    held: dict[tuple[str, str], int] = {}
    for run, weight in zip(runs, weights, strict=True):
        for query, scores in run.items():
            into = fused.setdefault(query, {})
            for doc, score in plain_scale(scores, normalise).items():
                into[doc] = (
                    max(into.get(doc, 0.0), score)
                    if method == "max"
                    else (into.get(doc, 0.0) + weight * score)
                )
                held[query, doc] = held.get((query, doc), 0) + 1
    if method == "mnz":
        return {q: {d: s * held[q, d] for d, s in docs.items()} for q, docs in fused.items()}
    return fused


def agree(result: Run, want: Lists) -> None:
    """The same documents and scores, best first, equal ones by id."""
    fused = opened(result)
    assert fused.keys() == want.keys()
    for query, docs in want.items():
        assert fused[query] == pytest.approx(docs, rel=1e-12, abs=1e-14)
        assert list(fused[query]) == sorted(fused[query], key=lambda d: (-fused[query][d], d))


def same(a: Run, b: Run) -> None:
    assert a.to_frame().equals(b.to_frame())
    assert a.queries.equals(b.queries)
    assert a.start.tolist() == b.start.tolist()
    assert a.cut is not None
    assert b.cut is not None
    assert a.cut.tolist() == b.cut.tolist()


# ----------------------------------------------------------------------------------- definitions


@given(some, st.sampled_from([0, 1, 60, 7.5]), st.sampled_from([None, 1, 2, 4]), st.data())
def test_reciprocal_rank_fusion_is_its_formula(
    runs: list[Lists], k: float, depth: int | None, data: st.DataObject
) -> None:
    weights = data.draw(
        st.lists(st.sampled_from([0.25, 1.0, 3.0]), min_size=len(runs), max_size=len(runs))
    )
    want = plain_rrf(runs, k, weights, depth)
    agree(rrf([read(r) for r in runs], k=k, weights=weights, depth=depth), want)


@given(
    some, st.sampled_from(["sum", "mnz", "max"]), st.sampled_from(["minmax", "z", "rank", "sum"])
)
def test_combinations_of_scores_are_their_formulas(
    runs: list[Lists], method: str, normalise: str
) -> None:
    result = combine([read(r) for r in runs], method, normalise)  # type: ignore[arg-type]
    agree(result, plain_combine(runs, method, normalise, [1.0] * len(runs)))


@given(some)
def test_inverse_square_ranks_are_their_formula(runs: list[Lists]) -> None:
    want: Lists = {}
    held: dict[tuple[str, str], int] = {}
    for run in runs:
        for query, scores in run.items():
            for doc, rank in mean_ranks(scores).items():
                into = want.setdefault(query, {})
                into[doc] = into.get(doc, 0.0) + 1 / rank**2
                held[query, doc] = held.get((query, doc), 0) + 1
    agree(
        isr([read(r) for r in runs]),
        {q: {d: s * held[q, d] for d, s in docs.items()} for q, docs in want.items()},
    )


@given(some)
def test_bordas_count_is_its_formula(runs: list[Lists]) -> None:
    want: Lists = {}
    for query in {query: None for run in runs for query in run}:
        lists = [run.get(query, {}) for run in runs]
        everyone = {doc for listed in lists for doc in listed}
        for listed in lists:
            ranks = mean_ranks(listed) if listed else {}
            left = (len(everyone) - len(listed) + 1) / 2
            for doc in everyone:
                into = want.setdefault(query, {})
                points = len(everyone) - ranks[doc] + 1 if doc in ranks else left
                into[doc] = into.get(doc, 0.0) + points
    agree(borda([read(r) for r in runs]), want)


def test_every_fusion_has_a_name() -> None:
    runs = [read({"q": {"a": 2.0, "b": 1.0}}), read({"q": {"b": 3.0, "c": 1.0}})]
    settings: dict[str, dict[str, Any]] = {"weighted": {"weights": [1.0, 2.0]}}
    for name in FUSIONS:
        assert len(fuse(runs, name, **settings.get(name, {}))) == 3


@given(some)
def test_a_weighted_sum_is_its_formula(runs: list[Lists]) -> None:
    weights = [0.5, 2.0, 0.0, 1.0][: len(runs)]
    result = combine([read(r) for r in runs], "weighted", "minmax", weights)
    agree(result, plain_combine(runs, "weighted", "minmax", weights))


def test_raw_scores_can_be_added_where_none_is_negative() -> None:
    runs = [{"q": {"a": 2.0, "b": 0.5}}, {"q": {"b": 10.0, "c": 0.0}}]
    result = combine([read(r) for r in runs], normalise="none")
    agree(result, {"q": {"b": 10.5, "a": 2.0, "c": 0.0}})


# ------------------------------------------------------------------------------------------ laws


def shuffled(given: Lists, seed: int) -> Lists:
    """The same lists, their documents in another order."""
    order = random.Random(seed)
    return {q: dict(order.sample(list(docs.items()), len(docs))) for q, docs in given.items()}


@given(some, st.integers(0, 5))
def test_the_order_inside_a_list_changes_nothing(runs: list[Lists], seed: int) -> None:
    others = [shuffled(r, seed) for r in runs]
    for method in (
        *(rrf, combine, isr, borda),
        *(lambda x: combine(x, "mnz", "z"), lambda x: combine(x, "max", "sum")),
        *(lambda x: combine(x, "sum", "rank"), lambda x: rrf(x, depth=2, top=3)),
    ):
        same(method([read(r) for r in runs]), method([read(r) for r in others]))


@given(some)
def test_the_order_of_the_lists_changes_no_score(runs: list[Lists]) -> None:
    for method in (rrf, combine, isr, borda, lambda x: combine(x, "mnz", "z")):
        assert opened(method([read(r) for r in runs])) == opened(
            method([read(r) for r in runs[::-1]])
        )


def test_documents_with_the_same_ranks_in_different_lists_tie() -> None:
    """In floating point 1/61 + 1/62 + 1/67 depends on the order of the sum."""
    orders = ["abcdefg", "bgcdefa", "gacdefb"]
    runs = [read({"q": {d: -float(i) for i, d in enumerate(order)}}) for order in orders]
    result = opened(rrf(runs))["q"]
    assert result["a"] == result["b"] == result["g"]
    assert {1 / 61 + 1 / 62 + 1 / 67, 1 / 61 + 1 / 67 + 1 / 62, 1 / 67 + 1 / 62 + 1 / 61} != {
        1 / 61 + 1 / 62 + 1 / 67
    }


def test_tied_documents_share_their_mean_rank() -> None:
    result = opened(rrf([read({"q": {"a": 2.0, "b": 1.0, "c": 1.0, "d": 0.5}})], k=0))["q"]
    assert result == pytest.approx({"a": 1, "b": 1 / 2.5, "c": 1 / 2.5, "d": 1 / 4})


def test_one_list_keeps_its_order() -> None:
    given = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    for method in (rrf, combine, lambda x: combine(x, "mnz", "z")):
        assert list(opened(method([read(given)]))["q"]) == ["a", "b", "c"]


def test_a_list_that_says_nothing_of_order_says_that_it_found() -> None:
    level, other = {"q": {"a": 5.0, "b": 5.0}}, {"q": {"b": 2.0, "c": 1.0, "d": 0.0}}
    for normalise in ("minmax", "z"):
        result = opened(combine([read(level), read(other)], normalise=normalise))["q"]
        assert result["a"] == 1.0
        assert result["b"] > result["a"]
        assert result["d"] == 0.0


@given(
    st.lists(
        st.dictionaries(ids, st.floats(allow_nan=False, allow_infinity=False), min_size=1),
        min_size=1,
        max_size=3,
    )
)
def test_no_finite_scores_make_a_number_that_is_none(given: list[dict[str, float]]) -> None:
    runs = [read({"q": docs}) for docs in given]
    for result in (rrf(runs), combine(runs), combine(runs, "mnz", "z")):
        assert np.isfinite(result.score).all()
        assert len(result) == len(set().union(*given))


@given(some, st.integers(1, 7))
def test_the_top_is_the_top_of_everything_and_the_cut_counts_what_ties(
    runs: list[Lists], top: int
) -> None:
    read_runs = [read(r) for r in runs]
    whole, result = opened(rrf(read_runs)), rrf(read_runs, top=top)
    assert result.cut is not None
    for (query, docs), left in zip(whole.items(), result.cut, strict=True):
        kept = list(docs.items())[:top]
        assert list(opened(result)[query].items()) == kept
        assert left == sum(score == kept[-1][1] for _, score in list(docs.items())[top:])


@pytest.mark.skipif(kernels.native is None, reason="not compiled here")
@given(some)
def test_compiled_and_plain_fusion_are_the_same_to_the_last_bit(runs: list[Lists]) -> None:
    def work() -> list[Run]:
        given = [read(r) for r in runs]
        return [rrf(given, depth=3), combine(given, "mnz", "z"), rrf(given, top=2)]

    compiled = work()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "native", None)
        plain = work()
    for a, b in zip(compiled, plain, strict=True):
        same(a, b)


one_list = st.dictionaries(ids, levels | st.floats(0, 1e300) | st.just(5e-324), min_size=1)


@given(st.lists(one_list, min_size=1, max_size=4), st.sampled_from([1.0, 1e-300]), st.data())
def test_lists_of_one_query_are_fused_to_the_bits_of_columns(
    given: list[dict[str, float]], small: float, data: st.DataObject
) -> None:
    def bits(run: Run) -> tuple[list[str], list[float]]:
        return run.doc.to_list(), run.score.tolist()

    runs = [read({"q": docs}) for docs in given]
    lists = [(list(docs), list(docs.values())) for docs in given]
    weights = [small * w for w in data.draw(st.permutations([1.0, 2.0, 0.5, 3.0]))][: len(given)]
    columns = rrf(runs, k=7.5, weights=weights, top=1000)
    assert fuse_one(lists, k=7.5, weights=weights) == bits(columns)
    same(rrf(runs, k=7.5, weights=weights), columns)
    for method in ("sum", "mnz", "max", "weighted"):
        settings: dict[str, Any] = {"weights": weights} if method == "weighted" else {}
        for normalise in ("minmax", "z", "none"):
            if normalise == "none" and any(min(scores) < 0 for _, scores in lists):
                continue
            result = bits(combine(runs, method, normalise, **settings))
            assert fuse_one(lists, method, normalise=normalise, **settings) == result


def test_many_queries_in_threads_are_fused_as_in_one() -> None:
    generator = np.random.default_rng(0)
    given = [
        read(
            {
                f"q{q}": {
                    f"d{d}": float(s)
                    for d, s in zip(
                        generator.permutation(900)[:400],
                        generator.integers(0, 50, 400),
                        strict=True,
                    )
                }
                for q in range(200)
            }
        )
        for _ in range(2)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "THREADS", 4)
        threads = rrf(given)
        patch.setattr(kernels, "THREADS", 1)
        same(threads, rrf(given))


def test_queries_and_lists_may_be_missing() -> None:
    empty = rp.read_run({"p": {"a": 1.0}})
    result = rrf([read({"q": {"a": 1.0}}), empty, read({"q": {"b": 1.0}, "r": {"c": 0.0}})])
    assert result.queries.to_list() == ["q", "p", "r"]
    assert {q: list(docs) for q, docs in opened(result).items()} == {
        "q": ["a", "b"],
        "p": ["a"],
        "r": ["c"],
    }
    qrels = {"q": {"a": 1}, "r": {"c": 1}}
    assert rp.evaluate(qrels, result, "RR")["RR"].expected == pytest.approx(0.875)


# ----------------------------------------------------------------------------------------- peers


RANX = """
import json, sys
import ranx
runs, cases = json.load(sys.stdin)
for case in cases:
    print(json.dumps(ranx.fuse([ranx.Run.from_dict(run) for run in runs], **case).to_dict()))
"""


@pytest.mark.slow
def test_without_ties_the_figures_are_ranxs() -> None:
    pytest.importorskip("ranx")
    generator = random.Random(0)
    # Every list holds the best score 1 and the worst 0, which min-max leaves as they are.
    runs: list[Lists] = []
    for _ in range(3):
        run: Lists = {}
        for query in ("p", "q"):
            docs = generator.sample([f"d{n}" for n in range(30)], 20)
            run[query] = {d: 1 - i**2 / 19**2 for i, d in enumerate(docs)}
        runs.append(run)
    ours = [read(r) for r in runs]
    cases: list[tuple[Run, dict[str, Any]]] = [
        (rrf(ours), {"norm": None, "method": "rrf"}),
        (rrf(ours, k=7), {"norm": None, "method": "rrf", "params": {"k": 7}}),
        (combine(ours), {"norm": "min-max", "method": "sum"}),
        (combine(ours, "mnz"), {"norm": "min-max", "method": "mnz"}),
        (combine(ours, "max"), {"norm": "min-max", "method": "max"}),
        (combine(ours, normalise="sum"), {"norm": "sum", "method": "sum"}),
        (combine(ours, normalise="rank"), {"norm": "rank", "method": "sum"}),
        (isr(ours), {"norm": None, "method": "isr"}),
        (borda(ours), {"norm": None, "method": "bordafuse"}),
        (
            combine(ours, "weighted", weights=[0.2, 0.5, 0.3]),
            {"norm": "min-max", "method": "wsum", "params": {"weights": (0.2, 0.5, 0.3)}},
        ),
    ]
    # Compiling takes half a minute, and can be left out only in a process of its own.
    done = subprocess.run(
        [sys.executable, "-c", RANX],
        input=json.dumps([runs, [asked for _, asked in cases]]),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    for (result, _), line in zip(cases, done.stdout.splitlines(), strict=True):
        theirs = json.loads(line)
        assert opened(result).keys() == theirs.keys()
        for query, scores in opened(result).items():
            assert scores == pytest.approx(theirs[query], rel=1e-9)


# ---------------------------------------------------------------------------------------- errors


def test_what_cannot_be_fused_is_refused() -> None:
    run = read({"q": {"a": 1.0, "b": -1.0}})
    endless = rp.Run("x", run.queries, run.start, run.doc, np.array([math.inf, 1.0]), "float64")
    refused: list[tuple[Callable[[], Run], str]] = [
        (lambda: rrf([]), "no runs to fuse"),
        (lambda: rrf([run], k=-1), "rrf: k = -1; give 0 or more"),
        (lambda: rrf([run], k=math.nan), "rrf: k = nan"),
        (lambda: rrf([run], depth=0), "rrf: depth 0; read 1 document or more"),
        (lambda: rrf([run], top=0), "fusion: top 0; keep 1 document or more"),
        (lambda: rrf([run], weights=[1, 2]), "weights: 2 weights for 1 run; give one each"),
        (lambda: rrf([run], weights=[-1]), "give numbers of 0 or more, one of them above 0"),
        (lambda: rrf([run], weights=[0]), "one of them above 0"),
        (lambda: combine([run], "anz"), "method 'anz' is unknown; use one of sum,"),  # type: ignore[arg-type]
        (lambda: combine([run], normalise="zz"), "normalisation 'zz' is unknown"),  # type: ignore[arg-type]
        (lambda: fuse([run], "condorcet"), "fusion 'condorcet' is unknown; use one of rrf, sum"),
        (lambda: isr([]), "no runs to fuse"),
        (lambda: borda([run], top=0), "fusion: top 0"),
        (lambda: combine([run], "weighted"), "combine: no weights"),
        (lambda: combine([run], weights=[1]), "combine: weights with the method sum"),
        (lambda: combine([run], normalise="none"), "document 'b': score -1.0 is less than"),
        (lambda: combine([endless]), "x: document 'a': score inf cannot be added to others"),
        (
            lambda: combine([read({"q": {"a": 1e308}})] * 2, normalise="none"),
            "combine: the scores are too large to be added; normalise them",
        ),
    ]
    for call, words in refused:
        with pytest.raises(rp.InputError) as caught:
            call()
        assert words in str(caught.value)
    assert len(rrf([endless])) == 2  # a rank needs no finite score
