"""Exact search against a full sort, in every format, with ties counted."""

from __future__ import annotations

import pickle
import warnings
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
from described_search import find
from hypothesis import given
from hypothesis import strategies as st

import rankproof as rp
from rankproof.data.ties import in_order
from rankproof.foundation.arrays import Array
from rankproof.precision import FORMATS, Format, cosine, encode, exact_search, fixed_sum, search
from rankproof.precision import topk as topk_module
from rankproof.precision.exact_search import GPU_FORMATS, prepare_vectors, search_on_gpu, to_run
from rankproof.precision.formats import FLOATS, round_to
from rankproof.precision.pipeline import ScoringPipeline
from rankproof.precision.scorers import Scorer
from rankproof.precision.topk import TopK, top_k


def best_by_sorting(scores: Array, k: int) -> TopK:
    """The definition: sort everything, earlier documents first among equals."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    kept = np.take_along_axis(scores, order, axis=1)
    last = kept[:, -1:]
    cut = (scores == last).sum(axis=1) - (kept == last).sum(axis=1)
    return TopK(kept, order, cut)


def are_equal(a: TopK, b: TopK) -> bool:
    return all(
        np.array_equal(getattr(a, field), getattr(b, field))
        for field in ("scores", "documents", "cut")
    )


@pytest.mark.parametrize("compiled", [True, False])
@given(st.data())
def test_the_best_over_blocks_are_the_best_by_sorting(compiled: bool, data: st.DataObject) -> None:
    queries, total, k = data.draw(
        st.tuples(st.integers(1, 4), st.integers(1, 900), st.integers(1, 40))
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    values = data.draw(st.sampled_from([3, 50, 10_000]))
    scores = (rng.integers(-values, values, (queries, total)) / 7).astype(np.float32)
    step = data.draw(st.integers(1, total))
    blocks = [scores[:, first : first + step] for first in range(0, total, step)]
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(topk_module, "native", None)
        elif topk_module.native is None:
            pytest.skip("there is no compiled code")
        assert are_equal(
            top_k(blocks, queries, min(k, total)), best_by_sorting(scores, min(k, total))
        )


@pytest.mark.parametrize("compiled", [True, False])
@given(st.data())
def test_rows_near_the_top_are_those_found_by_sorting(compiled: bool, data: st.DataObject) -> None:
    total, k = data.draw(st.tuples(st.integers(1, 1500), st.integers(1, 40)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    values = data.draw(st.sampled_from([3, 50, 10_000]))  # of 3 there are more than it has room for
    scores = (rng.integers(-values, values, total) / 7).astype(np.float32)
    k, slack = min(k, total), data.draw(st.sampled_from([0.0, 1e-9, 0.5, 10.0]))
    bar = float(np.sort(scores)[-k])
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(topk_module, "native", None)
        elif topk_module.native is None:
            pytest.skip("there is no compiled code")
        best = topk_module.rows_near_top(scores, k, slack).tolist()
    expected = [row for row, score in enumerate(scores.tolist()) if score >= bar - slack]
    assert best == expected


def test_minus_zero_and_zero_tie() -> None:
    best = top_k([np.array([[0.0, -0.0, 0.0]], np.float32)], 1, 2)
    assert best.documents.tolist() == [[0, 1]]
    assert best.cut.tolist() == [1]


@pytest.fixture(scope="module")
def vectors() -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    return (
        rng.normal(size=(12, 48)).astype(np.float32),
        rng.normal(size=(700, 48)).astype(np.float32),
    )


@pytest.mark.parametrize("form", FORMATS)
def test_plain_search_ranks_by_scores_of_the_format(
    form: Any, vectors: tuple[Array, Array]
) -> None:
    queries, documents = vectors
    best = find(queries, documents, 15, format=form, high_precision=False)
    scores = Scorer(queries, documents, form, plain=True).block(0, len(documents))
    assert are_equal(best, best_by_sorting(scores, 15))


@pytest.mark.parametrize("form", FORMATS)
def test_high_precision_ranks_by_float32_scores_of_the_stored_numbers(
    form: Any, vectors: tuple[Array, Array]
) -> None:
    queries, documents = vectors
    everything = len(documents)
    best = find(queries, documents, 15, format=form, candidates=everything)
    stored = encode(documents, form).decode().astype(np.float64)
    query_tensor = encode(queries, form).decode() if form in FLOATS else queries
    exact = query_tensor.astype(np.float64) @ stored.T
    ranked = np.argsort(-exact, axis=1)[:, :15]
    assert (best.documents == ranked).mean() > 0.99
    picked = np.take_along_axis(exact, best.documents, axis=1)
    assert np.allclose(best.scores, picked, rtol=1e-4, atol=1e-4)


def test_hamming_scores_are_dimensions_minus_twice_the_distance(
    vectors: tuple[Array, Array],
) -> None:
    queries, documents = vectors
    scores = Scorer(queries, documents, "bit", plain=True).block(0, len(documents))
    distance = ((queries > 0)[:, None] != (documents > 0)[None]).sum(axis=2)
    assert np.array_equal(scores, 48 - 2 * distance)


def test_rescoring_with_the_originals_recovers_the_exact_order(
    vectors: tuple[Array, Array],
) -> None:
    queries, documents = vectors
    exact = find(queries, documents, 10)
    plain = find(queries, documents, 10, format="bit", high_precision=False)
    decoded = find(queries, documents, 10, format="bit", candidates=200)
    original = find(queries, documents, 10, format="bit", candidates=200, rescore="original")
    overlap = [
        np.mean(
            [
                len(np.intersect1d(a, b)) / 10
                for a, b in zip(x.documents, exact.documents, strict=True)
            ]
        )
        for x in (plain, decoded, original)
    ]
    assert overlap[0] < overlap[1] < overlap[2]
    from_codes = find(
        *(queries, encode(documents, "bit"), 10),
        candidates=200,
        rescore="original",
        originals=documents,
    )
    assert are_equal(from_codes, original)


def test_pairs_have_the_same_scores_as_blocks(vectors: tuple[Array, Array]) -> None:
    queries, documents = vectors
    rows = np.random.default_rng(0).integers(0, len(documents), (len(queries), 9))
    for form in FORMATS:
        for plain in (True, False):
            scorer = Scorer(queries, documents, form, plain)
            block = np.take_along_axis(scorer.block(0, len(documents)), rows, axis=1)
            agree = np.isclose(scorer.pairs(rows), block, rtol=2e-2 if plain else 1e-5, atol=1e-3)
            assert agree.all()


def test_the_run_knows_its_ids_its_format_and_where_it_was_cut() -> None:
    documents = np.array([[1.0, 0], [1, 0], [1, 0], [0, 1]])
    run = search(
        *(np.array([[1.0, 0]]), documents, 2),
        query_ids=["q"],
        document_ids=["a", "b", "c", "d"],
        format="bfloat16",
        high_precision=False,
        name="tiny",
    )
    assert run.to_frame().rows() == [("q", "a", 1.0), ("q", "b", 1.0)]
    assert (run.name, run.dtype) == ("tiny", "bfloat16")
    assert run.cut is not None
    assert run.cut.tolist() == [1]
    result = rp.evaluate({"q": {"c": 1}}, run, "R@2")
    assert "1 list of tiny ends inside a tie" in result.notes[0]


def test_only_ids_of_results_are_made() -> None:
    best = TopK(np.ones((1, 2), "f4"), np.array([[7, 10**15]]), np.zeros(1, np.int64))
    run = to_run(best, None, None, 10**15 + 1, dtype="float32", name="wide")
    assert run.to_frame()["doc"].to_list() == ["7", "1000000000000000"]


def test_ids_are_made_on_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    named = []
    convert = exact_search._row_numbers_as_ids

    def counted(rows: Any, documents: int) -> Any:
        named.append(documents)
        return convert(rows, documents)

    monkeypatch.setattr(exact_search, "_row_numbers_as_ids", counted)
    run = search(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32), 2)
    assert (len(run), run.score.tolist(), repr(run)) == (
        *(6, [1.0, 0.0] * 3),
        "Run('search', 3 queries, 6 documents, float32)",
    )
    assert not named
    again = pickle.loads(pickle.dumps(run))
    expected = [1.0, 0.5, 0.5]
    for each in (run, again):
        result = rp.evaluate({"0": {"0": 1}, "1": {"0": 1}, "2": {"0": 1}}, each, "RR")
        assert result.per_query["expected"].to_list() == expected
    assert named[0] == 3


def test_a_search_of_nothing_has_no_ties_to_count() -> None:
    vectors = np.eye(2, dtype=np.float32)
    for queries, documents in ((vectors[:0], vectors), (vectors, vectors[:0])):
        with pytest.raises(rp.InputError, match="search: no rows; check how it was made"):
            rp.tie_statistics(search(queries, documents, 2))


def test_a_shorter_list_counts_ties_past_the_end_of_the_longer_one() -> None:
    """As a search for fewer documents does."""
    documents = np.array([[2.0], [1.0], [1.0], [1.0], [1.0], [0.0]], np.float32)
    queries = np.array([[1.0], [0.0], [-1.0]], np.float32)
    for k, depth in product(range(1, 7), range(1, 7)):
        shorter = in_order(search(queries, documents, k), "input", depth=depth)
        expected = search(queries, documents, min(k, depth))
        assert shorter.to_frame().equals(expected.to_frame())
        assert shorter.cut is not None
        assert expected.cut is not None
        assert shorter.cut.tolist() == expected.cut.tolist(), (k, depth)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["a", None], r"document_ids: row 1: row's id None is neither text nor a whole number"),
        ([b"a", b"b"], r"document_ids: row 0: row's id b'a' is neither text"),
        ([1.0, 2.0], r"document_ids: row 0: row's id 1.0 is neither text"),
        (["a", ""], r"document_ids: row 1: the row's id is empty; give every row an id"),
        (["a\n", "b"], r"document_ids: row 0: the row's id 'a\\n' holds a control character"),
        (["a", "\ud800"], r"document_ids: row 1: row's id '\\ud800' is not valid Unicode"),
        (pl.Series(["a", None]), r"document_ids: row 1: the row's id is empty"),
        (pl.Series(["", "b"]), r"document_ids: row 0: the row's id is empty"),
        (pl.Series([[1], [2]]), r"document_ids: column 'id' holds List\(Int64\), not ids"),
        (pl.Series([b"\xff", b"b"]), r"document_ids: column 'id' holds Binary, not ids"),
        ({"a", "b"}, r"document_ids: \{'.', '.'\} is not a list of ids; give one for each row"),
        ("ab", r"document_ids: 'ab' is not a list of ids"),
        (5, r"document_ids: 5 is not a list of ids"),
    ],
)
def test_ids_of_rows_must_be_valid_ids_of_a_run(ids: Any, words: str) -> None:
    vectors = np.eye(2, dtype=np.float32)
    with pytest.raises(rp.InputError, match=words):
        search(vectors, vectors, 2, document_ids=ids)
    with pytest.raises(rp.InputError, match=words.replace("document_ids", "query_ids")):
        search(vectors, vectors, 2, query_ids=ids)


def test_ids_may_be_any_kind_of_column() -> None:
    none: Any = pl.Series([])
    vectors = np.eye(2, dtype=np.float32)
    given: Any = ("1", "2"), np.array(["1", "2"]), np.array([1, 2]), pl.Series([1, 2])
    for ids in (
        *given,
        pl.Series(["1", "2"], dtype=pl.Categorical),
        pl.Series(["1", "2"]).to_arrow(),
    ):
        run = search(vectors, vectors, 1, query_ids=ids, document_ids=ids)
        assert run.to_frame().rows() == [("1", "1", 1.0), ("2", "2", 1.0)]
    assert search(vectors, vectors[:0], 1, document_ids=none).doc.to_list() == []


def test_cosine_ignores_length_and_dot_does_not() -> None:
    queries, documents = np.array([[1.0, 1.0]]), np.array([[5.0, 0.0], [1.0, 1.0]])
    assert find(queries, documents, 1).documents.tolist() == [[0]]
    assert find(queries, documents, 1, metric="cosine").documents.tolist() == [[1]]


def matrix(best: TopK, documents: int) -> Array:
    """(Q, N) scores of a search that lists every document."""
    scores = np.full((len(best.scores), documents), np.nan, np.float32)
    np.put_along_axis(scores, best.documents, best.scores, axis=1)
    return scores


def vectors_of_many_lengths(form: Format) -> tuple[Array, Array]:
    """Vectors of any length whose numbers the format holds."""
    rng = np.random.default_rng(6)
    drawn = (rng.normal(size=(n, 48)) * rng.uniform(0.05, 20, (n, 1)) for n in (12, 300))
    queries, documents = (round_to(values.astype(np.float32), form) for values in drawn)
    return queries, documents


@pytest.mark.parametrize("form", FLOATS)
def test_the_cosine_in_high_precision_is_that_of_the_stored_numbers(form: Format) -> None:
    """Nothing is rounded that the format holds already."""
    queries, documents = vectors_of_many_lengths(form)
    expected = cosine(queries, documents)
    every = len(documents)
    for stored in (documents, encode(documents, form)):
        best = find(queries, stored, every, format=form, metric="cosine")
        assert np.array_equal(matrix(best, every), expected)


@pytest.mark.parametrize("form", ["float32", "float16", "bfloat16", "float8_e5m2"])
def test_tensors_and_arrays_have_the_same_cosine_in_high_precision(form: Any) -> None:
    torch = pytest.importorskip("torch")
    queries, documents = (torch.from_numpy(values) for values in vectors_of_many_lengths(form))
    query_tensor, document_tensor = (
        values.to(getattr(torch, form)) for values in (queries, documents)
    )
    expected = cosine(queries.numpy(), documents.numpy())
    assert np.array_equal(cosine(query_tensor, document_tensor).numpy(), expected)
    best = find(query_tensor, document_tensor, len(documents), metric="cosine")
    assert np.array_equal(matrix(best, len(documents)), expected)
    if form in GPU_FORMATS:
        pipeline = ScoringPipeline.of(form, metric="cosine")
        best = search_on_gpu(query_tensor, document_tensor, len(documents), pipeline)
        assert np.array_equal(matrix(best, len(documents)), expected)


@pytest.mark.parametrize("form", FORMATS)
def test_the_cosine_in_high_precision_divides_by_the_lengths_of_decoded_numbers(
    form: Format,
) -> None:
    queries, documents = vectors_of_many_lengths("float32")
    every = len(documents)
    settings: Any = {"format": form, "metric": "cosine", "candidates": every}
    query_tensor = round_to(queries, form) if form in FLOATS else queries
    decoded = encode(documents if form in FLOATS else fixed_sum.normalize(documents), form).decode()
    best = find(queries, documents, every, **settings)
    assert np.array_equal(matrix(best, every), cosine(query_tensor, decoded))
    assert best.scores.max() <= 1 + 2.0**-20
    codes = encode(documents, form)  # of vectors of any length
    best = find(queries, codes, every, **settings)
    assert np.array_equal(matrix(best, every), cosine(query_tensor, codes.decode()))


@pytest.mark.parametrize("form", ["int8", "int8_dimension", "int4"])
def test_codes_become_candidates_by_their_cosine_whatever_their_length(form: Format) -> None:
    queries, documents = vectors_of_many_lengths("float32")
    codes = encode(documents, form)
    best = find(queries, codes, len(documents), metric="cosine", high_precision=False)
    assert np.abs(matrix(best, len(documents)) - cosine(queries, codes.decode())).max() < 0.15
    assert np.abs(best.scores).max() < 1.01


@pytest.mark.parametrize("form", ["float16", "float8_e4m3", "float8_e5m2"])
def test_a_vector_beyond_the_range_of_a_format_keeps_its_direction(form: Format) -> None:
    documents = np.random.default_rng(0).normal(size=(200, 48)).astype(np.float32)
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    near = find(documents[:9], documents, 5, format=form, metric="cosine")
    for factor in (1e9, 1e-12):
        far = find(documents[:9] * np.float32(factor), documents * np.float32(factor), 5,
                   format=form, metric="cosine")  # fmt: skip
        assert np.array_equal(far.documents[:, 0], near.documents[:, 0])
        assert np.abs(far.scores - near.scores).max() < 2e-3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"queries": [[1.0, np.nan]]}, "queries: row 0: nan in a vector"),
        ({"documents": [[1.0, 2.0], [np.inf, 0.0]]}, "documents: row 1: inf in a vector"),
        ({"queries": [[1.0]]}, "queries have 1 dimensions and documents 2"),
        ({"documents": [[0.0, 0.0]], "metric": "cosine"}, "documents: row 0: a zero vector"),
        ({"format": "int3"}, "'int3' is unknown"),
        ({"k": 0}, "k = 0"),
        ({"metric": "l2"}, "'l2' is unknown"),
        ({"query_ids": ["a", "b"]}, "query_ids: 2 ids for 1 row"),
        ({"document_ids": ["a", "a"]}, "id 'a' appears twice"),
        ({"format": "bit", "rescore": "magic"}, "'magic' is unknown"),
        ({"queries": [1.0, 2.0]}, "shape"),
        ({"format": "int8", "candidates": 0}, "candidates = 0; rescore 1 candidate or more"),
        ({"format": "int8", "candidates": "3"}, "candidates = '3'; rescore 1 candidate or more"),
    ],
)
def test_bad_vectors_and_settings_are_refused(arguments: dict[str, Any], words: str) -> None:
    given_: dict[str, Any] = {
        "queries": [[1.0, 2.0]],
        "documents": [[1.0, 2.0], [3.0, 4.0]],
        "k": 1,
    }
    given_ |= arguments
    with pytest.raises(rp.InputError, match=words):
        search(np.array(given_.pop("queries")), np.array(given_.pop("documents")), **given_)


@pytest.mark.parametrize(
    ("vectors", "words"),
    [
        ([[1.0, 2.0], [1.0]], "rows that do not make one array"),
        (pl.Series([[1.0, 2.0], [3.0, 4.0]]), "object where numbers belong"),
        (np.array([[1j, 2.0]]), "complex128 where numbers belong"),
        (np.array([["1", "2"]]), "<U1 where numbers belong"),
        (np.ma.masked_array([[1.0, 2.0]], [[True, False]]), "a mask over numbers"),
        (pl.DataFrame([[1, 2], [3, 4]]), "an array of int64: are these numbers, calibrated codes"),
    ],
)
def test_values_that_are_not_an_array_of_numbers_are_refused(vectors: Any, words: str) -> None:
    fine = np.ones((1, 2), np.float32)
    with pytest.raises(rp.InputError, match=f"queries: {words}"):
        search(vectors, fine, 1)
    with pytest.raises(rp.InputError, match=f"documents: {words}"):
        search(fine, vectors, 1)


def test_sparse_meta_and_quantized_tensors_are_refused() -> None:
    torch = pytest.importorskip("torch")
    fine = np.ones((1, 2), np.float32)
    for tensor in (torch.ones((1, 2)).to_sparse(), torch.ones((1, 2), device="meta")):
        with pytest.raises(rp.InputError, match="documents: a tensor that does not hold its num"):
            search(fine, tensor, 1)
    with pytest.raises(rp.InputError, match="documents: complex64 where numbers belong"):
        search(fine, torch.ones((1, 2), dtype=torch.complex64), 1)


def test_codes_of_another_format_or_without_originals_are_refused() -> None:
    codes = encode(np.eye(3), "int8")
    with pytest.raises(rp.InputError, match="the documents are int8, not bit"):
        search(np.eye(3), codes, 1, format="bit")
    with pytest.raises(rp.InputError, match="no original vectors"):
        search(np.eye(3), codes, 1, rescore="original")


def test_torch_tensors_on_the_cpu_give_the_same_run(vectors: tuple[Array, Array]) -> None:
    torch = pytest.importorskip("torch")
    queries, documents = vectors
    cpu_run = search(queries, documents, 5, format="bfloat16")
    tensor_run = search(torch.tensor(queries).bfloat16(), torch.tensor(documents).bfloat16(), 5)
    assert cpu_run.to_frame().equals(tensor_run.to_frame())


def test_the_gpu_search_gives_the_same_result_on_the_cpu(vectors: tuple[Array, Array]) -> None:
    """Its slow way needs no GPU; the filter is checked by bench/gpu.py on one."""
    torch = pytest.importorskip("torch")
    from rankproof.precision import gpu_search

    rng = np.random.default_rng(5)
    queries = torch.tensor(rng.integers(-3, 4, (5, 8))).bfloat16()
    documents = torch.tensor(rng.integers(-3, 4, (900, 8))).bfloat16()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_search, "BLOCK_CELLS", 2000)
        best = gpu_search.top_k(queries, documents, 30)
    scores = (queries.float() @ documents.float().T).numpy()
    assert are_equal(best, best_by_sorting(scores, 30))
    assert best.cut.any()


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [50, 1500])
@pytest.mark.parametrize("form", [form for form in FORMATS if form not in FLOATS[:3]])
def test_codes_on_a_gpu_have_the_bits_of_those_on_the_cpu(form: Any, dimensions: int) -> None:
    """Encoding, plain scores, and both ways to rescore; the same torch runs without a GPU."""
    torch = pytest.importorskip("torch")
    from rankproof.precision import gpu_formats

    rng = np.random.default_rng(0)
    queries, documents = (rng.normal(size=(n, dimensions)).astype("f4") for n in (6, 500))
    documents[100:150] = documents[:50]
    cpu_codes, gpu_codes = (
        encode(documents, form),
        gpu_formats.encode(torch.from_numpy(documents), form),
    )
    assert np.array_equal(gpu_formats.numbers(gpu_codes).float().numpy(), cpu_codes.numbers())
    assert np.array_equal(gpu_formats.decode(gpu_codes).numpy(), cpu_codes.decode())
    document_tensor = torch.from_numpy(documents)
    for metric, high, rescore in (
        ("dot", False, "decoded"),
        ("dot", True, "decoded"),
        ("cosine", False, "decoded"),
        ("cosine", True, "decoded"),
        ("cosine", True, "original"),
    ):
        settings: Any = {"format": form, "high_precision": high, "rescore": rescore}
        expected = find(queries, documents, 9, metric=metric, **settings)
        pipeline = ScoringPipeline.of(**settings, metric=metric)
        prepared_queries, _ = prepare_vectors(queries, "queries", pipeline)
        best = gpu_formats.find_top_k(prepared_queries, document_tensor, 9, pipeline)
        assert are_equal(best, expected), (metric, high, rescore)
    for high in (False, True):  # codes of vectors of any length
        expected = find(queries, cpu_codes, 9, metric="cosine", high_precision=high)
        pipeline = ScoringPipeline.of(form, high_precision=high, metric="cosine")
        prepared_queries, _ = prepare_vectors(queries, "queries", pipeline)
        best = gpu_formats.find_top_k(prepared_queries, gpu_codes, 9, pipeline)
        assert are_equal(best, expected), ("codes", high)


@pytest.mark.parametrize(
    "ways",
    [{}, {"FEW_QUERIES": 0, "SAMPLE_SIZES": (64, 64), "GROUP_SAMPLES": 4}, {"FEW_QUERIES": 0}],
)
def test_the_gpu_search_refuses_numbers_that_are_not_finite(ways: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    from rankproof.precision import gpu_scores, gpu_search

    good, bad = torch.randn(900, 8), torch.randn(900, 8)
    bad[7, 3] = float("nan")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ways.items():
            patch.setattr(gpu_search, name, value)
        with pytest.raises(rp.InputError, match="documents: row 7: a number that is not finite"):
            gpu_search.top_k(good[:3], bad, 2)
        with pytest.raises(rp.InputError, match="queries: row 7: a number that is not finite"):
            gpu_search.top_k(bad[:9], good, 2)
        assert gpu_search.top_k(good[:0], good, 2).scores.shape == (0, 2)
    cosine_in_float16 = ScoringPipeline("float16", "plain", "cosine")
    with pytest.raises(rp.InputError, match="documents: row 7: a zero vector has no direction"):
        gpu_scores.prepare_vectors(
            torch.arange(10.0).sub(7)[:, None] * good[0], "documents", cosine_in_float16
        )
    with pytest.raises(rp.InputError, match="documents: row 0: a number is too large for float16"):
        gpu_scores.prepare_vectors(good * 1e6, "documents", ScoringPipeline.of("float16"))


def test_documents_on_a_gpu_are_searched_with_arrays_or_tensors(
    vectors: tuple[Array, Array],
) -> None:
    torch = pytest.importorskip("torch")
    queries, documents = vectors
    document_tensor = torch.from_numpy(documents).requires_grad_()
    expected = find(queries, documents, 3)
    assert are_equal(
        search_on_gpu(queries, document_tensor, 3, ScoringPipeline.of("float32")), expected
    )
    with pytest.raises(rp.InputError, match=r"queries have the shape \(48,\)"):
        search_on_gpu(torch.ones(48), document_tensor, 3, ScoringPipeline.of("float32"))


def test_running_out_of_gpu_memory_halves_the_blocks_with_a_warning() -> None:
    torch = pytest.importorskip("torch")
    from rankproof.precision import gpu_scores, gpu_search

    tries = []

    def short_of_memory(*arguments: Any) -> Any:
        tries.append(arguments[-1])
        if len(tries) < 3:
            raise torch.cuda.OutOfMemoryError
        return "found", "it"

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        patch.setattr(gpu_search, "_search", short_of_memory)
        ones = torch.ones(1, 1)
        assert gpu_search.keys_of_best(ones, ones, 3) == ("found", "it")
    assert tries == [
        gpu_scores.BLOCK_CELLS,
        gpu_scores.BLOCK_CELLS // 2,
        gpu_scores.BLOCK_CELLS // 4,
    ]
    assert len(caught) == 2
    assert "out of GPU memory" in str(caught[0].message)
