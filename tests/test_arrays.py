"""evaluate_arrays: numpy, torch, lists, padding, ragged rows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankproof as rp

MEASURES = ["nDCG@3", "RR", "AP", "R@2", "bpref", "infAP"]
rows = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 3)), min_size=1, max_size=6),
    min_size=1,
    max_size=4,
)


@given(rows)
def test_arrays_give_the_figures_of_the_same_run_as_dicts(
    data: list[list[tuple[int, int]]],
) -> None:
    scores = [[float(s) for s, _ in row] for row in data]
    grades = [[g for _, g in row] for row in data]
    run = {str(q): {str(d): s for d, s in enumerate(row)} for q, row in enumerate(scores)}
    qrels = {str(q): {str(d): g for d, g in enumerate(row)} for q, row in enumerate(grades)}
    ours = rp.evaluate_arrays(scores, grades, MEASURES)
    theirs = rp.evaluate(qrels, run, MEASURES)
    for measure in MEASURES:
        a, b = ours[measure], theirs[measure]
        assert repr(a) == repr(b)


def test_a_negative_grade_is_pooled_and_not_judged_to_infap_as_in_a_file() -> None:
    found = rp.evaluate_arrays([[4.0, 3.0, 2.0, 1.0]], [[1, -1, 0, 1]], "infAP")
    assert found["infAP"].expected == pytest.approx(0.8125, abs=1e-5)


def test_minus_infinity_is_padding_and_its_grade_does_not_count() -> None:
    padded = rp.evaluate_arrays([[2.0, 1.0, -np.inf]], [[0, 1, 1]], ["R@5", "Judged@3"])
    ragged = rp.evaluate_arrays([[2.0, 1.0]], [[0, 1]], ["R@5", "Judged@3"])
    for measure in ("R@5", "Judged@3"):
        assert padded[measure] == ragged[measure]
    assert padded["R@5"].expected == 1.0


def test_a_query_of_padding_alone_has_an_empty_list() -> None:
    result = rp.evaluate_arrays([[-np.inf, -np.inf], [1.0, 0.5]], [[1, 1], [1, 0]], ["RR", "P@1"])
    assert result["RR"].expected == 1.0, "a query without a relevant document is left out"
    assert (result["P@1"].queries, result["P@1"].undefined) == (1, 1)
    assert result.per_query.filter(measure="RR")["expected"].to_list() == [None, 1.0]


def test_torch_tensors_of_every_type_are_taken_and_name_their_format() -> None:
    torch = pytest.importorskip("torch")
    values = [[0.9971, 0.9969, 0.1]]
    grades = torch.tensor([[0, 1, 0]])
    for dtype, name, tied in (
        (torch.float32, "float32", 0),
        (torch.bfloat16, "bfloat16", 1),
        (torch.float16, "float16", 1),
        (torch.float64, "float64", 0),
    ):
        scores = torch.tensor(values, dtype=dtype, requires_grad=True)
        result = rp.evaluate_arrays(scores, grades, "RR")
        assert (result.dtype, result.tied) == (name, tied)
    assert rp.evaluate_arrays([torch.tensor([1.0, 2.0])], [torch.tensor([0, 1])], "RR").tied == 0


def test_numpy_formats_are_kept() -> None:
    scores = np.array([[0.9971, 0.9969]])
    for dtype, name in ((np.float32, "float32"), (ml_dtypes.bfloat16, "bfloat16")):
        assert rp.evaluate_arrays(scores.astype(dtype), [[0, 1]], "RR").dtype == name
    assert rp.evaluate_arrays(np.array([[3, 2]]), [[0, 1]], "RR")["RR"].expected == 0.5


def test_whole_scores_past_float64_tie_only_where_they_are_equal() -> None:
    big = 2**60
    for scores in ([[big, big + 1, big + 1]], [[big, big + 1, big + 1], [1]]):
        for each in (scores, [np.array(row) for row in scores]):
            grades = [[0, 1, 0], [0]][: len(scores)]
            found = rp.evaluate_arrays(each, grades, "RR")
            assert (found["RR"].min, found["RR"].max, found.tied) == (0.5, 1.0, 1)
    narrow = rp.evaluate_arrays([[big, big + 1]], [[1, 0]], "RR", score_dtype="float32")
    assert narrow.tied == 1


@pytest.mark.parametrize(
    ("scores", "grades", "words"),
    [
        ([[1.0, np.nan]], [[0, 1]], "row 0, column 1: score nan"),
        ([[1.0], [2.0, 1.0]], [[0], [1, 0.5]], "row 1, column 1: grade 0.5"),
        ([[1.0]], [[0, 1]], "row 0: 1 score and 2 grades"),
        ([[1.0]], [[0], [1]], "1 row of scores and 2 of relevance"),
        ([], [], "no scores"),
        (["ab"], [[1]], r"scores\[0\]: 'ab' is not a row of numbers"),
        ([[1.0]], [[np.inf]], "grade inf"),
        ([[1.0]], [[1e300]], r"row 0, column 0: grade 1e\+300 is not a whole number"),
        ([[1.0]], np.array([[2**63]], np.uint64), "row 0, column 0: grade 9.22337e"),
        ([[1.0, 1j]], [[1, 0]], r"scores\[0\]: \[1.0, 1j\] is not a row of numbers"),
        (np.array([["2020"]], "M8[Y]"), [[1]], r"scores\[0\]: .* is not a row of numbers"),
        (np.ma.array([[1.0, 2.0]], mask=[[False, True]]), [[1, 0]], "a masked array"),
        ([[1.0, 2.0]], [np.ma.array([1, 0], mask=[False, True])], "grades with −1"),
    ],
)
def test_bad_arrays_are_refused_with_their_place(scores: Any, grades: Any, words: str) -> None:
    with pytest.raises(rp.InputError, match=words):
        rp.evaluate_arrays(scores, grades, "RR")


def test_grades_off_the_scale_of_a_set_measure_are_refused() -> None:
    with pytest.raises(rp.InputError, match=r"row 1 of relevance: grade 0 is outside 1–5"):
        rp.evaluate_arrays([[1.0], [1.0]], [[1], [0]], "P4@5")
    assert rp.evaluate_arrays([[1.0], [1.0]], [[5], [-1]], "P4@1")["P4@1"].expected == 0.5


def test_cells_taken_some_queries_at_a_time_give_the_same_to_the_last_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rankproof.evaluation import matrices
    from rankproof.measures.random_orders import select_queries

    random = np.random.default_rng(3)
    scores = random.integers(0, 6, (40, 9)).astype(np.float64)
    scores[random.random(scores.shape) < 0.2] = -np.inf
    grades = random.integers(-1, 4, scores.shape)
    measures = ["nDCG@3", "AP", "ERR", "RR@2", "bpref", "nDCG(gain='exp')"]
    whole = rp.evaluate_arrays(scores, grades, measures)
    for cells in (1, 7, 30):
        monkeypatch.setattr(matrices, "_BLOCK", cells)
        parts = rp.evaluate_arrays(scores, grades, measures)
        assert parts.per_query.equals(whole.per_query)
        assert (parts.tied, parts.to_dict()) == (whole.tied, whole.to_dict())
        assert whole.ties is not None
        assert parts.ties is not None
        for found in whole.outcomes.values():  # groups that an order could be drawn of
            open_ = np.flatnonzero(found.max > found.min)
            one, other = (
                select_queries(whole.ties, open_),
                select_queries(parts.ties, open_),
            )
            assert one.size.tolist() == other.size.tolist()
            assert one.grade.tolist() == other.grade.tolist()
