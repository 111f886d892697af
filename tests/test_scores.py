"""Rounding of scores to narrower formats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankproof as rp
from rankproof.data.ties import round_scores


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_bfloat16_rounds_the_float32_value_to_nearest_even(values: list[float]) -> None:
    with np.errstate(over="ignore"):
        single = np.array(values).astype(np.float32)
    expected = single.astype(ml_dtypes.bfloat16).astype(np.float64)
    assert np.array_equal(round_scores(np.array(values), "bfloat16"), expected)


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_float16_and_float32_round_as_numpy_does(values: list[float]) -> None:
    given_ = np.array(values)
    with np.errstate(over="ignore"):
        single = given_.astype(np.float32)
        half = single.astype(np.float16)
    assert np.array_equal(round_scores(given_, "float32"), single.astype(np.float64))
    assert np.array_equal(round_scores(given_, "float16"), half.astype(np.float64))


def test_every_bfloat16_and_float16_value_stays_what_it_is() -> None:
    patterns = np.arange(2**16, dtype=np.uint16)
    for dtype, name, exponent in (
        (ml_dtypes.bfloat16, "bfloat16", 0x7F80),
        (np.float16, "float16", 0x7C00),
    ):
        numbers = patterns[(patterns & 0x7FFF) <= exponent]  # past it lie the NaNs
        values = numbers.view(dtype).astype(np.float64)
        assert len(values) > 60_000
        assert np.array_equal(round_scores(values, name), values)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(rp.InputError, match=r"'int3'.*float16"):
        rp.evaluate({"q": {"d": 1}}, {"q": {"d": 1.0}}, "RR", score_dtype="int3")  # type: ignore[call-overload]
