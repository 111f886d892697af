"""Number formats: what encoding keeps, bounded against float64."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import rankproof as rp
from rankproof.foundation.arrays import Array
from rankproof.precision import FORMATS, encode, formats, truncate
from rankproof.precision.formats import Format, round_to

VECTORS = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(1, 19)),
    elements=st.floats(-100, 100, width=32, allow_subnormal=False),
)
PRECISION = {  # bits of the significand, smallest normal number, largest
    "float16": (11, 2.0**-14, 65504.0),
    "bfloat16": (8, 2.0**-126, 3e38),
    "float8_e4m3": (4, 2.0**-6, 448.0),
    "float8_e5m2": (3, 2.0**-14, 57344.0),
}


@pytest.mark.parametrize("form", PRECISION)
@given(VECTORS)
def test_a_cast_keeps_half_a_unit_in_the_last_place(form: str, vectors: Array) -> None:
    bits, smallest, largest = PRECISION[form]
    decoded = encode(vectors, form).decode().astype(np.float64)  # type: ignore[arg-type]
    exact = np.clip(vectors.astype(np.float64), -largest, largest)
    unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(exact), smallest))) - (bits - 1))
    assert (np.abs(decoded - exact) <= unit / 2).all()


def test_numbers_past_the_largest_float8_are_held_at_it() -> None:
    for form, largest in (("float8_e4m3", 448.0), ("float8_e5m2", 57344.0)):
        decoded = encode([[1e9, -1e9]], form).decode()  # type: ignore[arg-type]
        assert decoded.tolist() == [[largest, -largest]]


@pytest.mark.parametrize(("form", "most"), [("int8", 127), ("int4", 7), ("int8_dimension", 127)])
@given(VECTORS)
def test_a_scale_keeps_half_of_itself(form: str, most: int, vectors: Array) -> None:
    codes = encode(vectors, form)  # type: ignore[arg-type]
    axis = 0 if form == "int8_dimension" else 1
    scale = np.abs(vectors.astype(np.float64)).max(axis=axis, keepdims=True) / most
    error = np.abs(codes.decode().astype(np.float64) - vectors.astype(np.float64))
    assert (error <= scale / 2 * (1 + 1e-5) + 1e-30).all()
    assert np.abs(codes.numbers()).max() <= most


@given(VECTORS)
def test_one_bit_keeps_the_sign_and_the_mean_magnitude(vectors: Array) -> None:
    codes = encode(vectors, "bit")
    assert np.array_equal(codes.numbers() > 0, vectors > 0)
    mean = np.abs(vectors.astype(np.float64)).mean(axis=1, keepdims=True)
    assert np.allclose(np.abs(codes.decode()), mean, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("form", FORMATS)
def test_codes_are_as_small_as_they_say_and_may_be_picked_by_row(form: str) -> None:
    vectors = np.random.default_rng(0).normal(size=(7, 20)).astype(np.float32)
    codes = encode(vectors, form)  # type: ignore[arg-type]
    own_scale = 4 if form in ("int8", "int4", "bit") else 0
    assert codes.bytes_per_vector == codes.codes[0].nbytes + own_scale
    rows = np.array([5, 0, 5])
    assert np.array_equal(codes[rows].decode(), codes.decode()[rows])
    assert len(codes) == 7


@pytest.mark.parametrize("form", ["int8", "int8_dimension", "int4", "bit"])
def test_vectors_encoded_in_blocks_are_those_encoded_at_once(
    form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    whole = encode(vectors, form)
    monkeypatch.setattr(formats, "_BLOCK_NUMBERS", 20)
    parts = encode(vectors, form)
    assert whole.scale is not None
    assert parts.scale is not None
    np.testing.assert_array_equal(parts.codes, whole.codes)
    np.testing.assert_array_equal(parts.scale, whole.scale)
    assert len(encode(vectors[:0], form)) == 0


def test_zero_vectors_stay_zero_where_the_format_can_say_so() -> None:
    for form in FORMATS:
        if form != "bit":
            assert not encode(np.zeros((2, 5)), form).decode().any()
    assert not encode(np.zeros((2, 5)), "bit").decode().any(), "its scale is 0"


def test_truncation_keeps_the_first_dimensions_and_the_length() -> None:
    vectors = np.random.default_rng(1).normal(size=(9, 16)).astype(np.float32)
    short = truncate(vectors, 5)
    assert short.shape == (9, 5)
    assert np.allclose(np.linalg.norm(short, axis=1), np.linalg.norm(vectors, axis=1), rtol=1e-6)
    ratio = short / vectors[:, :5]
    assert np.allclose(ratio, ratio[:, :1], rtol=1e-5)
    assert not truncate(np.zeros((1, 4)), 2).any()
    with pytest.raises(rp.InputError, match="17 of 16 dimensions"):
        truncate(vectors, 17)


def test_rounding_results_agrees_with_ml_dtypes() -> None:
    values = np.random.default_rng(2).normal(size=10_000).astype(np.float32)
    assert np.array_equal(
        round_to(values, "bfloat16"), values.astype(ml_dtypes.bfloat16).astype(np.float32)
    )


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(rp.InputError, match=r"'int3' is unknown; use one of float32, .*bit"):
        encode([[1.0]], "int3")  # type: ignore[arg-type]


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(rp.MissingExtra, match=r"bfloat16 needs ml_dtypes.*rankproof\[scoring\]"):
        encode([[1.0]], "bfloat16")
