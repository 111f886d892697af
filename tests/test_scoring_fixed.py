"""Scores that are the same bits whatever the processor, threads, blocks, shards and compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from described_search import find
from hard_vectors import hard_vectors
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from loopback import PATIENCE

import rankproof as rp
from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError
from rankproof.precision import encode, exact_search, fixed_sum, formats, topk
from rankproof.precision.formats import FORMATS, SHAPES, Format, round_to
from rankproof.precision.pipeline import ScoringPipeline
from rankproof.precision.scorers import Scorer
from rankproof.precision.topk import TopK

HARD = hard_vectors(documents=800)
SMALL = hard_vectors(queries=3, documents=120, dimensions=37)
NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def fixed_sum_by_hand(query: Array, document: Array) -> float:
    """The definition, in Python's own floats."""
    lanes = [0.0] * 32
    for i, (a, b) in enumerate(zip(query.tolist(), document.tolist(), strict=True)):
        lanes[i % 32] += a * b
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[j] + lanes[j + half] for j in range(half)]
    return lanes[0]


def all_sums_by_hand(queries: Array, documents: Array) -> Array:
    with np.errstate(over="ignore", under="ignore"):
        sums = np.array([[fixed_sum_by_hand(q, d) for d in documents] for q in queries])
        return sums.astype(np.float32) + np.float32(0.0)


def best_by_sorting(scores: Array, k: int) -> TopK:
    """Sort everything, earlier documents first among equals."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    kept = np.take_along_axis(scores, order, axis=1)
    last = kept[:, -1:]
    return TopK(kept, order, (scores == last).sum(axis=1) - (kept == last).sum(axis=1))


def are_equal(a: TopK, b: TopK) -> bool:
    """To the last bit."""
    return (
        a.scores.tobytes() == b.scores.tobytes()
        and a.documents.tolist() == b.documents.tolist()
        and a.cut.tolist() == b.cut.tolist()
    )


@pytest.fixture(params=["compiled", "numpy"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the compiled code and without."""
    if request.param == "numpy":
        monkeypatch.setattr(fixed_sum, "native", None)
        monkeypatch.setattr(topk, "native", None)
        monkeypatch.setattr(formats, "native", None)
    elif fixed_sum.native is None or topk.native is None:
        pytest.skip("there is no compiled code")
    return str(request.param)


# ----------------------------------------------------------------------------------- the sum


@pytest.mark.parametrize("name", SMALL)
def test_the_fixed_sum_is_its_definition(name: str, implementation: str) -> None:
    queries, documents = SMALL[name]
    expected = all_sums_by_hand(queries, documents)
    assert fixed_sum.matrix(queries, documents).tobytes() == expected.tobytes()
    start = np.arange(len(queries) + 1) * len(documents)
    out = np.empty(expected.size, np.float32)
    fixed_sum.pairs(
        queries, documents, start, np.tile(np.arange(len(documents)), len(queries)), out=out
    )
    assert out.tobytes() == expected.tobytes()
    lengths = np.sqrt([fixed_sum_by_hand(d, d) for d in documents])
    assert fixed_sum.lengths(documents).tobytes() == lengths.tobytes()
    with np.errstate(under="ignore"):
        wide = documents.astype(np.float64) / np.where(lengths > 0, lengths, 1)[:, None]
        assert fixed_sum.normalize(documents).tobytes() == wide.astype(np.float32).tobytes()


@pytest.mark.parametrize("dimensions", [1, 31, 32, 33, 128, 1000, 4097])
def test_length_bounds_are_tight_upper_bounds(dimensions: int, implementation: str) -> None:
    rng = np.random.default_rng(5)
    plain = rng.standard_normal((64, dimensions), np.float32)
    scale = np.float32(2.0) ** np.arange(-149, 127, 4, dtype=np.float32)
    flat = np.full((9, dimensions), np.float32(1 + 2.0**-12))  # every square rounds down
    several = [plain, np.sign(plain), flat, np.abs(plain[:1]).clip(0.5, 1) * scale[:, None]]
    for values in (*several, np.zeros((3, dimensions), np.float32)):
        length, bound = fixed_sum.lengths(values), fixed_sum.length_bounds(values)
        assert bound.dtype == np.float32
        assert (bound >= length).all()
        near = length * (1 + 2.0**-16) + 2.0**-148
        assert (bound[near < 3e38] <= near[near < 3e38]).all()
    for wrong in (np.nan, np.inf, -np.inf):
        plain[3, -1] = wrong
        assert np.flatnonzero(np.isnan(fixed_sum.length_bounds(plain))).tolist() == [3]
    assert not np.isnan(fixed_sum.length_bounds(np.full((2, dimensions), 3.4e38, np.float32))).any()


@pytest.mark.parametrize("name", SMALL)
def test_the_fixed_sum_is_exact_up_to_float64_rounding(name: str) -> None:
    queries, documents = SMALL[name]
    for query in queries:
        for document in documents[::7]:
            terms = [Fraction(a) * Fraction(b) for a, b in zip(query.tolist(), document.tolist())]  # noqa: B905
            away = abs(Fraction(fixed_sum_by_hand(query, document)) - sum(terms))
            assert away <= sum(map(abs, terms)) * len(terms) * Fraction(2) ** -53


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.just(35)), elements=NUMBERS),
    hnp.arrays(np.float32, st.tuples(st.integers(1, 9), st.just(35)), elements=NUMBERS),
)
def test_any_product_lies_within_its_slack(queries: Array, documents: Array) -> None:
    """Float32 sums forwards, backwards and with small numbers flushed to zero."""
    slack = fixed_sum.slack_of(fixed_sum.lengths(queries), fixed_sum.lengths(documents), 35)
    sums = fixed_sum.matrix(queries, documents)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        flushed = [np.where(np.abs(x) < 2.0**-126, 0, x) for x in (queries, documents)]
        for a, b in ((queries, documents), flushed):
            terms = a[:, None] * b[None]
            for ordered in (terms, terms[:, :, ::-1]):
                best = np.add.accumulate(ordered, axis=2, dtype=np.float32)[:, :, -1]
                low, high = slack.bounds(best)
                assert (low <= sums).all()
                assert (sums <= high).all()
        products = np.stack([fixed_sum.products(q[None], documents) for q in queries])
        low, high = slack.bounds(products)
        assert (low <= sums).all()
        assert (sums <= high).all()


def test_rows_with_gaps_between_them_have_the_same_sums(implementation: str) -> None:
    queries, documents = SMALL["random"]
    for values in (documents[::2], documents[:, 3:20], np.asfortranarray(documents)):
        assert np.array_equal(fixed_sum.lengths(values), fixed_sum.lengths(values.copy(order="C")))
        some = queries[:, : values.shape[1]]
        assert np.array_equal(
            fixed_sum.matrix(some, values), fixed_sum.matrix(some, values.copy(order="C"))
        )


def test_scores_too_large_for_float32_tie_at_infinity(implementation: str) -> None:
    queries = np.full((1, 4), 3e38, np.float32)
    documents = np.array([[1, 1, 1, 1], [3e38, 1, 1, 1], [3e38, 3e38, 0, 0]], np.float32)
    best = find(queries, documents, 1)
    assert (best.scores.tolist(), best.documents.tolist()) == ([[np.inf]], [[0]])
    assert best.cut.tolist() == [2]


# -------------------------------------------------------------------------------- the search


@pytest.mark.parametrize("name", HARD)
def test_no_candidate_is_missing_and_every_tie_is_counted(
    name: str, implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, documents = HARD[name]
    scores = fixed_sum.matrix(queries, documents)
    for k, cells, room in ((1, 1 << 22, 1), (30, 1 << 12, 1), (600, 1 << 11, 1 << 22)):
        monkeypatch.setattr(exact_search, "_BLOCK_SCORES", cells)
        monkeypatch.setattr(topk, "_SHORTLISTED", room)
        assert are_equal(find(queries, documents, k), best_by_sorting(scores, k))


@pytest.mark.parametrize("form", ["float16", "bfloat16", "float8_e4m3", "float8_e5m2"])
@pytest.mark.parametrize("high", [True, False])
def test_rounded_formats_rank_by_the_sum_that_they_round(
    form: Any, high: bool, implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact_search, "_BLOCK_SCORES", 1 << 11)
    for name, (queries, documents) in HARD.items():
        a, b = (round_to(x, form) for x in (queries, documents))
        if not all(np.isfinite(x).all() for x in (a, b)):
            continue
        scores = round_to(fixed_sum.matrix(a, b), "float32" if high else form) + np.float32(0.0)
        best = find(queries, documents, 25, format=form, high_precision=high)
        assert are_equal(best, best_by_sorting(scores, 25)), name


@given(st.data())
def test_small_searches_agree_with_the_definition(data: st.DataObject) -> None:
    dimensions, count = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 25))
    base = data.draw(hnp.arrays(np.float32, dimensions, elements=st.floats(-9, 9, width=32)))
    ulps = hnp.arrays(np.int32, (count, dimensions), elements=st.integers(-2, 2))
    bits = np.tile(base, (count, 1)).view(np.int32) + data.draw(ulps)
    documents = np.nan_to_num(bits.view(np.float32), nan=1.0, posinf=1.0, neginf=1.0)
    queries = np.stack([base, base[::-1]])
    k = data.draw(st.integers(1, count))
    expected = best_by_sorting(all_sums_by_hand(queries, documents), k)
    for native in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not native:
                patch.setattr(fixed_sum, "native", None)
                patch.setattr(topk, "native", None)
                patch.setattr(formats, "native", None)
            assert are_equal(find(queries, documents, k), expected)


@pytest.mark.parametrize("form", [form for form in SHAPES if form != "float32"])
def test_compiled_code_rounds_as_the_types_of_numpy_do(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if formats.native is None:
        pytest.skip("there is no compiled code")
    every = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
    half = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    values = np.concatenate([every, half, np.array([65519.9, 65520, 3.39e38, 3.4e38], np.float32)])
    values = values[~np.isnan(values)]
    between = (values.astype(np.float64)[1:] + values[:-1]) / 2
    with np.errstate(over="ignore", invalid="ignore"):
        between = between.astype(np.float32)
        values = np.concatenate(
            [values, between, np.nextafter(values, 9), np.nextafter(between, 0)]
        )
    values = np.append(values, np.array([np.nan], np.float32))
    for some in (values, values[::-1], values[:-1][::7], values[: 4 * 9].reshape(4, 9).T):
        rounded = round_to(some, form)
        with monkeypatch.context() as patch:
            patch.setattr(formats, "native", None)
            expected = round_to(some, form)
        assert np.array_equal(rounded, expected, equal_nan=True)
        number = ~np.isnan(expected)
        assert np.array_equal(np.signbit(rounded[number]), np.signbit(expected[number]))


@pytest.mark.parametrize("dimensions", [1040, 1041, 3000])
def test_sums_of_codes_are_exact_where_float32_would_round(dimensions: int) -> None:
    rng = np.random.default_rng(3)
    documents = rng.choice([-1.0, 1.0], (40, dimensions)).astype(np.float32)
    documents[::2] = np.abs(documents[::2])
    documents[:, 0] = 1.0
    documents[:, 1:] *= rng.integers(120, 128, (40, dimensions - 1)) / 127
    codes = encode(documents, "int8")
    assert codes.scale is not None
    whole = codes.numbers().astype(np.int64)
    scorer = Scorer(documents, codes, "int8", plain=True)
    out = np.empty((40, 40), np.float32)
    scores, slack = scorer.product(0, 40, out)
    assert slack is None
    expected = (whole @ whole.T).astype(np.float32) * codes.scale * codes.scale[:, 0]
    assert np.array_equal(scores, expected)
    assert np.array_equal(scorer.block(0, 40), expected)
    assert np.array_equal(scorer.pairs(np.tile(np.arange(40), (40, 1))), expected)


def test_numbers_that_a_format_cannot_hold_are_refused() -> None:
    big, small = np.array([[1.0, 2.0], [1e6, 0.0]], np.float32), np.ones((1, 2), np.float32)
    with pytest.raises(rp.InputError, match="documents: row 1: a number is too large for float16"):
        find(small, big, 1, format="float16")
    with pytest.raises(rp.InputError, match="queries: row 1: a number is too large for float16"):
        find(big, small, 1, format="float16")


@pytest.mark.parametrize("name", ["all equal", "within a few ulp", "rising", "falling", "random"])
@pytest.mark.parametrize("width", [277, 278, 279, 300, 556])
def test_a_block_may_end_where_a_shortlist_is_full(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 22 there is room for 300: for the k held and 278 more."""
    queries, documents = HARD[name]
    monkeypatch.setattr(exact_search, "_BLOCK_SCORES", width * len(queries))
    monkeypatch.setattr(topk, "_SHORTLISTED", 1)
    expected = best_by_sorting(fixed_sum.matrix(queries, documents), 22)
    assert are_equal(find(queries, documents, 22), expected)


@pytest.mark.parametrize("form", ["float8_e4m3", "float8_e5m2"])
def test_scores_below_the_smallest_number_of_a_format_tie(form: Any, implementation: str) -> None:
    """However far below it they lie."""
    rng = np.random.default_rng(8)
    queries = np.full((2, 40), 200, np.float32)
    documents = -rng.uniform(50, 400, (700, 40)).astype(np.float32)
    best = find(queries, documents, 3, format=form, high_precision=False)
    assert best.documents.tolist() == [[0, 1, 2]] * 2
    assert best.cut.tolist() == [697] * 2


def test_a_single_dimension_has_one_scale_for_all_documents() -> None:
    queries, documents = (
        np.array([[2.0]], np.float32),
        np.arange(-3, 600, dtype=np.float32)[:, None],
    )
    assert encode(documents, "int8_dimension")[5:9].decode().shape == (4, 1)
    assert encode(documents, "int8_dimension").bytes_per_vector == 1
    for high in (True, False):
        best = find(queries, documents, 2, format="int8_dimension", high_precision=high)
        assert best.scores.tolist() == [[1198, 1198]]
        assert best.cut.tolist() == [0 if high else 1]


def test_subnormal_numbers_count_although_a_library_flushes_them_to_zero() -> None:
    torch = pytest.importorskip("torch")
    if fixed_sum.native is None:
        pytest.skip("there is no compiled code")
    queries, documents = HARD["below normal"]
    expected = find(queries, documents, 9), find(queries, documents, 9, format="int8")
    scores = fixed_sum.matrix(queries, documents)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush")
    try:
        flushed = np.float32(2.0**-126) * np.float32(0.5)
        best = find(queries, documents, 9), find(queries, documents, 9, format="int8")
        again = fixed_sum.matrix(queries, documents)
        still = np.float32(2.0**-126) * np.float32(0.5)
    finally:
        torch.set_flush_denormal(False)
    assert flushed == still == 0  # the thread is left as it was
    assert all(map(are_equal, best, expected))
    assert again.tobytes() == scores.tobytes()


def test_originals_of_another_shape_than_the_codes_are_refused() -> None:
    queries, documents = SMALL["random"]
    for others in (documents[:5], documents[:, :5]):
        with pytest.raises(
            rp.InputError, match=r"originals have the shape .* documents \(120, 37\)"
        ):
            find(queries, documents, 3, format="int8", rescore="original", originals=others)


@pytest.mark.parametrize("form", ["int8", "int8_dimension", "int4", "bit"])
def test_codes_of_the_largest_numbers_stay_finite(form: Any) -> None:
    most = np.finfo(np.float32).max
    documents = np.full((6, 4), most, np.float32) * np.array([[1], [-1], [1], [1], [-1], [1]], "f4")
    assert np.isfinite(encode(documents, form).decode()).all()
    unit = np.ones((1, 4), np.float32)
    best = find(unit, documents, 4, format=form)
    assert best.documents.tolist() == [[0, 2, 3, 5]]
    assert best.scores.tolist() == [[np.inf] * 4]
    if form == "int8_dimension":
        with pytest.raises(rp.InputError, match="queries: row 0: a number is too large for int8_d"):
            find(documents, documents, 4, format=form)
    else:
        assert find(documents, documents, 3, format=form).documents[0].tolist() == [0, 2, 3]


def test_no_queries_or_no_documents_give_empty_results(implementation: str) -> None:
    queries, documents = SMALL["random"]
    for form in FORMATS:
        assert find(queries[:0], documents, 3, format=form).documents.shape == (0, 3)
        assert find(queries, documents[:0], 3, format=form).documents.shape == (3, 0)


def test_unaligned_vectors_have_the_same_scores(implementation: str) -> None:
    queries, documents = SMALL["random"]
    room = np.zeros(len(documents) * (4 * 37 + 1) + 1, np.uint8)
    odd = np.ndarray(documents.shape, np.float32, room.data, 1, (4 * 37 + 1, 4))
    odd[:] = documents
    assert are_equal(find(queries, odd, 5), find(queries, documents, 5))


def _wrong_calls() -> dict[str, tuple[Any, ...]]:
    """Calls of the compiled functions that would read or write what is not theirs."""
    a, b = np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)
    start, rows, out = np.array([0, 2, 4]), np.array([0, 1, 0, 3]), np.empty(4, np.float32)
    sums, by = np.zeros(2), np.ones(2)

    def state(**other: Any) -> tuple[Any, ...]:
        k: dict[str, Any] = {
            "low": np.zeros((2, 5), np.float32),
            "high": np.zeros((2, 5), np.float32),
            "documents": np.zeros((2, 5), np.uint32),
            "count": np.zeros(2, np.int64),
            "limit": np.full(2, 5),
            "bar": np.zeros(2, np.float32),
            "tied": np.zeros(2, np.int64),
        }
        return tuple((k | other).values())

    def offer(at: int = 0, width: int = 6, lengths: int = 6, count: int = 0) -> tuple[Any, ...]:
        one, scores = np.ones(2, np.float32), np.ones((2, 6), np.float32)
        shortlists = state(count=np.full(2, count))
        return (
            *("offer", shortlists, 2, 5, scores, width, 0, one, one),
            *(np.ones(lengths, np.float32), *SHAPES["float32"], np.full(2, at), 0, 2),
        )

    return {
        "lengths of rows that are not there": ("bounds", a, out, 0, 3),
        "lengths before the first": ("bounds", a, out, -1, 2),
        "no room for the lengths": ("bounds", b, out[:3], 0, 4),
        "lengths in float64": ("bounds", a, sums, 0, 2),
        "fewer dimensions": ("pairs", a, b[:, :2], 0, start, rows, out, 0, 2),
        "queries that are not there": ("pairs", a, b, 0, start, rows, out, 0, 3),
        "queries before the first": ("pairs", a, b, 0, start, rows, out, -1, 2),
        "a start before the first": ("pairs", a, b, 0, start - 1, rows, out, 0, 2),
        "a start past the last": ("pairs", a, b, 0, start * 2, rows, out, 0, 2),
        "rows that fall": ("pairs", a, b, 0, start, rows[::-1].copy(), out, 0, 2),
        "no room for the scores": ("pairs", a, b, 0, start, rows, out[:3], 0, 2),
        "whole numbers for vectors": ("pairs", a, b.astype("i4"), 0, start, rows, out, 0, 2),
        "short numbers for rows": ("pairs", a, b, 0, start, rows.astype("i4"), out, 0, 2),
        "fewer rows": ("rows", b, a, np.empty(4), 0, 4),
        "sums in float32": ("rows", a, a, sums.astype("f4"), 0, 2),
        "products of fewer dimensions": ("products", a[:, :2], b, out, 0, 4),
        "products of no query": ("products", a[:0], b, out, 0, 4),
        "products of rows that are not there": ("products", a, b, out, 0, 5),
        "no room for products": ("products", a, b, out[:3], 0, 4),
        "more near ones than scores": ("near", out, 99, 0.0, rows),
        "near ones of float64 scores": ("near", sums, 1, 0.0, rows),
        "near ones as short numbers": ("near", out, 1, 0.0, rows.astype("i4")),
        "fewer divisors": ("divide", a, by[:1], np.empty((2, 3), np.float32), 0, 2),
        "no room for quotients": ("divide", a, by, np.empty((1, 3), np.float32), 0, 2),
        "another state": ("restore", b"?"),
        "a column that is not there": offer(at=7),
        "a column before the first": offer(at=-1),
        "more scores than there are": offer(width=7),
        "fewer lengths": offer(lengths=3),
        "a full shortlist": offer(count=5),
        "no room to hold": ("compact", state(low=np.zeros((1, 5), np.float32)), 2, 5, 0, 2),
        "more held than there is room": ("compact", state(count=np.full(2, 9)), 2, 5, 0, 2),
        "more wanted than there is room": ("compact", state(), 9, 5, 0, 2),
        "a query that is not there": ("move", state(), 2, 5, start[1:2], start, rows, None, 2),
        "no room for what is held": (
            *("move", state(count=np.full(2, 4)), 2, 5, np.arange(2), start, rows, None, 2),
        ),
        "fewer scores": ("move", state(), 2, 5, np.arange(2), start, rows, out[:3], 2),
        "no room for keys": ("close", state(), 2, 5, np.zeros(7, np.int64), 4, 0, 2),
        "more keys than are held": ("close", state(), 2, 5, np.zeros(99, np.int64), 6, 0, 2),
        "scores in float64": ("narrow", np.ones(3), *SHAPES["float16"], 0, 3),
        "more to round than there is": ("narrow", np.ones(3, "f4"), *SHAPES["float16"], 0, 4),
    }


@pytest.mark.parametrize("call", _wrong_calls())
def test_compiled_code_refuses_arrays_that_are_too_short(call: str) -> None:
    if fixed_sum.native is None or topk.native is None:
        pytest.skip("there is no compiled code")
    name, *arguments = _wrong_calls()[call]
    module = fixed_sum.native if hasattr(fixed_sum.native, name) else topk.native
    with pytest.raises(ValueError, match=r"wanted|asked|shortlists|scores|usual"):
        getattr(module, name)(*arguments)


# ----------------------------------------------------------------------- the GPU's way, on a CPU


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("form", ["float32", "float16", "bfloat16"])
def test_searches_by_torch_have_the_bits_of_the_cpu_search(
    name: str, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its ways; bench/gpu_bits.py does the same on a GPU."""
    torch = pytest.importorskip("torch")
    from rankproof.precision import gpu_scores, gpu_search

    queries, documents = (round_to(x, form) for x in HARD[name])
    if not all(np.isfinite(x).all() for x in (queries, documents)):
        return
    monkeypatch.setattr(gpu_search, "BLOCK_CELLS", 1 << 15)
    monkeypatch.setattr(gpu_scores, "BLOCK_CELLS", 1 << 15)
    monkeypatch.setattr(gpu_scores, "PAIRS", 1 << 12)
    tensors = [torch.from_numpy(x).to(getattr(torch, form)) for x in (queries, documents)]
    settings_by_steps: dict[str, dict[str, Any]] = {
        "groups": {"GROUPS": 256},
        "a sample": {
            "FEW_QUERIES": 0,
            "QUERIES_AT_ONCE": 4,
            "SAMPLE_SIZES": (512, 512),
            "GROUP_SAMPLES": 4,
            "RETRIED_DOCUMENTS": 1 << 11,
        },
        "neither": {"FEW_QUERIES": 0},
    }
    for high in (True, False):
        cpu_best = find(queries, documents, 8, format=form, high_precision=high)
        for steps, settings in (
            settings_by_steps.items() if high else [*settings_by_steps.items()][::3]
        ):
            gpu_search.forget()
            with pytest.MonkeyPatch.context() as patch:
                for setting, value in settings.items():
                    patch.setattr(gpu_search, setting, value)
                assert are_equal(
                    gpu_search.top_k(tensors[0], tensors[1], 8, low=not high), cpu_best
                ), (
                    steps,
                    high,
                )
    wide = [x.float() for x in tensors]
    assert (
        gpu_scores.matrix(*wide).numpy().tobytes() == fixed_sum.matrix(queries, documents).tobytes()
    )
    unit = fixed_sum.normalize(documents)
    assert gpu_scores.normalize(wide[1]).numpy().tobytes() == unit.tobytes()


@pytest.mark.parametrize("few", [True, False], ids=["few queries", "many"])
@pytest.mark.parametrize("form", ["float32", "bfloat16"])
def test_duplicate_vectors_are_summed_once_until_the_tensor_changes(
    few: bool, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One vector, several, and several that tie, so that documents of all of them are taken."""
    torch = pytest.importorskip("torch")
    from rankproof.precision import gpu_duplicates, gpu_search

    settings = (
        {"GROUPS": 256}
        if few
        else {
            "FEW_QUERIES": 0,
            "SAMPLE_SIZES": (512, 512),
            "GROUP_SAMPLES": 4,
            "COPIES_WORTH_FINDING": 0,
        }
    )
    for setting, value in settings.items():
        monkeypatch.setattr(gpu_search, setting, value)
    rng = np.random.default_rng(3)
    queries = round_to(rng.standard_normal((5, 20), np.float32), form)
    queries[0] = 0  # all documents tie
    queries[1, 1:] = 0  # vectors tie that have the same first number
    vectors = round_to(rng.standard_normal((90, 20), np.float32), form)
    vectors[:, 0] = np.arange(90) % 3
    documents = np.empty((8_000, 20), np.float32)
    query_tensor, document_tensor = (
        torch.from_numpy(x).to(getattr(torch, form)) for x in (queries, documents)
    )
    for distinct in (1, 10, 90):
        rows = vectors[rng.integers(0, distinct, len(documents))]
        document_tensor.copy_(
            torch.from_numpy(rows)
        )  # the same tensor: what it held is not believed
        scores = fixed_sum.matrix(queries, rows)
        for k in (1, 10, 100):
            assert are_equal(
                gpu_search.top_k(query_tensor, document_tensor, k), best_by_sorting(scores, k)
            ), (distinct, k)
            duplicates = gpu_duplicates.known_duplicates(document_tensor)
            assert duplicates is not None
            assert len(duplicates.first) == distinct
    rows = round_to(rng.standard_normal(rows.shape, np.float32), form)
    half = rng.integers(0, 2, len(rows)) == 0
    rows[half] = 2 * queries[2]  # its best, and one of many to the others
    document_tensor.copy_(torch.from_numpy(rows))
    scores = fixed_sum.matrix(queries[1:], rows)
    for k in (1, 10, 100, 10):
        assert are_equal(
            gpu_search.top_k(query_tensor[1:], document_tensor, k), best_by_sorting(scores, k)
        ), k
        duplicates = gpu_duplicates.known_duplicates(document_tensor)
        assert duplicates is not None
        assert duplicates.size.tolist() == [half.sum()]
    document_tensor[7, 3] = np.inf
    with pytest.raises(InputError, match="documents: row 7"):
        gpu_search.top_k(query_tensor, document_tensor, 10)
    document_tensor.copy_(torch.from_numpy(rng.standard_normal((8_000, 20), np.float32)))
    scores = fixed_sum.matrix(queries, document_tensor.float().numpy())
    assert are_equal(
        gpu_search.top_k(query_tensor, document_tensor, 10), best_by_sorting(scores, 10)
    )
    assert gpu_duplicates.known_duplicates(document_tensor) is None


def test_copies_are_listed_once_although_their_product_overflows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    from rankproof.precision import gpu_duplicates, gpu_search

    gpu_search.forget()
    monkeypatch.setattr(gpu_duplicates, "HEAVY", 20)
    settings = {
        "FEW_QUERIES": 0,
        "SAMPLE_SIZES": (512, 512),
        "GROUP_SAMPLES": 1,
        "COPIES_WORTH_FINDING": 0,
    }
    for setting, value in settings.items():
        monkeypatch.setattr(gpu_search, setting, value)
    rng = np.random.default_rng(3)
    queries, documents = (rng.standard_normal((n, 2), np.float32) for n in (3, 1_400))
    documents[200:] = 1e38 * np.repeat(documents[:40], 30, axis=0)
    queries[2] *= 1e30
    query_tensor, document_tensor = torch.from_numpy(queries), torch.from_numpy(documents)
    best = best_by_sorting(fixed_sum.matrix(queries, documents), 60)
    assert are_equal(gpu_search.top_k(query_tensor, document_tensor, 60), best)
    duplicates = gpu_duplicates.known_duplicates(document_tensor)
    assert duplicates is not None
    assert duplicates.has_others
    assert are_equal(gpu_search.top_k(query_tensor, document_tensor, 60), best)


def test_a_query_that_is_not_finite_is_named_by_its_row_among_all_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    from rankproof.precision import gpu_search

    monkeypatch.setattr(gpu_search, "QUERIES_AT_ONCE", 4)
    queries = torch.ones((9, 2))
    queries[7, 1] = float("nan")
    with pytest.raises(InputError, match="queries: row 7: a number that is not finite"):
        gpu_search.top_k(queries, torch.ones((20, 2)), 3)


@contextmanager
def torch_defaults(dtype: Any = None, device: Any = None) -> Iterator[None]:
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
        torch.set_default_device(None)


@pytest.mark.parametrize("setting_name", ["bfloat16", "float64", "a device", "autocast"])
def test_settings_of_torch_change_no_bit(
    setting_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from rankproof.precision import gpu_duplicates, gpu_formats, gpu_scores, gpu_search

    def torch_setting() -> Any:
        if setting_name == "autocast":
            return torch.autocast("cpu", torch.bfloat16)
        return (
            torch_defaults(device="meta")
            if setting_name == "a device"
            else torch_defaults(getattr(torch, setting_name))
        )

    for setting, value in {
        "SAMPLE_SIZES": (256, 256),
        "GROUP_SAMPLES": 2,
        "COPIES_WORTH_FINDING": 0,
        "GROUPS": 256,
    }.items():
        monkeypatch.setattr(gpu_search, setting, value)
    rng = np.random.default_rng(5)
    queries, documents = (rng.standard_normal((n, 20), np.float32) for n in (3, 900))
    documents[::3] = documents[0] + np.arange(300, dtype=np.float32)[:, None] % 7 * 2.0**-20
    query_tensor, document_tensor = torch.from_numpy(queries), torch.from_numpy(documents)
    scores = fixed_sum.matrix(queries, documents)
    for few_queries in (64, 0):
        monkeypatch.setattr(gpu_search, "FEW_QUERIES", few_queries)
        for k in (7, 70, 300):
            gpu_search.forget()
            gpu_search._sample_rows.cache_clear()
            gpu_duplicates._weights.cache_clear()
            with torch_setting():
                best = gpu_search.top_k(query_tensor, document_tensor, k)
            assert are_equal(best, best_by_sorting(scores, k)), (few_queries, k)
    with torch_setting():
        assert (
            gpu_scores.matrix(query_tensor, document_tensor).numpy().tobytes() == scores.tobytes()
        )
        unit = fixed_sum.normalize(documents)
        assert gpu_scores.normalize(document_tensor).numpy().tobytes() == unit.tobytes()
    forms: list[Format] = ["float8_e5m2", "int8", "int8_dimension", "int4", "bit"]
    for form, high in product(forms, (True, False)):
        cpu_best = find(queries, documents, 7, format=form, high_precision=high)
        with torch_setting():
            pipeline = ScoringPipeline.of(form, high_precision=high)
            gpu_best = gpu_formats.find_top_k(queries, document_tensor, 7, pipeline)
        assert are_equal(gpu_best, cpu_best), (form, high)


def test_a_torch_setting_that_rounds_operands_is_detected() -> None:
    torch = pytest.importorskip("torch")
    from rankproof.precision import gpu_scores

    before = torch.get_float32_matmul_precision()
    assert not gpu_scores.is_coarse(torch.float32)
    try:
        torch.set_float32_matmul_precision("high")
        assert gpu_scores.is_coarse(torch.float32)
        assert not gpu_scores.is_coarse(torch.bfloat16)
    finally:
        torch.set_float32_matmul_precision(before)


# -------------------------------------------------------------------------- on every processor


def runnable_openblas_cores() -> list[str]:
    """OpenBLAS kernels that this processor can run: the machine's own, and older ones."""
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text().split()) if info.exists() else set()
    flags_of_core = {
        "": set(),
        "Prescott": {"pni"},
        "Nehalem": {"sse4_2"},
        "Haswell": {"avx2", "fma"},
    }
    return [core for core, needs in flags_of_core.items() if needs <= flags]


@pytest.mark.slow
def test_processors_threads_blocks_and_shards_give_the_same_bytes() -> None:
    """Products that find differ between these kernels; nothing that comes out does."""
    here = Path(__file__).parent
    running = []
    for core in runnable_openblas_cores():
        for threads in ("1", "2"):
            environment = {
                **os.environ,
                "OPENBLAS_CORETYPE": core,
                "OPENBLAS_NUM_THREADS": threads,
                "OMP_NUM_THREADS": threads,
                "POLARS_MAX_THREADS": "1",
                "PYTHONPATH": os.pathsep.join([str(here), *filter(None, sys.path)]),
            }
            if not core:
                del environment["OPENBLAS_CORETYPE"]
            running.append(
                subprocess.Popen(
                    [sys.executable, str(here / "search_worker.py"), threads],
                    env=environment,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
    outputs = []
    for process in running:
        out, _ = process.communicate(timeout=10 * PATIENCE)
        assert process.returncode == 0
        outputs.append(json.loads(out))
    assert all(len(digests) == 1 for digests in outputs[0]["found"].values())
    for other in outputs[1:]:
        assert other["found"] == outputs[0]["found"]
