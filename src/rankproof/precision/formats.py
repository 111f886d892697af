"""Number formats for vectors: what an index stores, and how exact the numbers still are.

    float32, float16, bfloat16          casts
    float8_e4m3, float8_e5m2            casts, held at the largest finite value
    int8, int4                          a scale per vector
    int8_dimension                      a scale per dimension
    bit                                 the sign of each number, eight to a byte

Rounding is to nearest, halves to even. numpy and ml_dtypes do the work; no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError, check_choice, import_extra
from rankproof.precision import fixed_sum

Format = Literal[
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3",
    "float8_e5m2",
    "int8",
    "int8_dimension",
    "int4",
    "bit",
]
"""The name of a number format.

>>> from rankproof.precision import FORMATS, Format
>>> coarsest: Format = FORMATS[-1]
>>> coarsest
'bit'
"""
FORMATS: tuple[Format, ...] = get_args(Format)
"""Every number format, the widest first.

>>> from rankproof.precision import FORMATS
>>> FORMATS[0], FORMATS[-1]
('float32', 'bit')
"""
FLOATS = ("float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2")
_BITS: dict[str, int] = {
    "float32": 32,
    "float16": 16,
    "bfloat16": 16,
    "float8_e4m3": 8,
    "float8_e5m2": 8,
    "int8": 8,
    "int8_dimension": 8,
    "int4": 4,
    "bit": 1,
}
_ML_DTYPES = {"bfloat16": "bfloat16", "float8_e4m3": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}
_BLOCK_NUMBERS = 1 << 20  # numbers encoded at a time
_WHOLE_NUMBERS = 1 << 24  # float32 holds every whole number up to here


class FloatShape(NamedTuple):
    """What a floating-point format can hold; compiled code takes the five values in this order."""

    significand_bits: int
    smallest_normal: float  # the smallest number with all significand bits
    smallest: float
    largest: float
    saturates: bool  # larger numbers become the largest one, not infinity


SHAPES: dict[str, FloatShape] = {
    "float32": FloatShape(24, 2.0**-126, 2.0**-149, (2 - 2.0**-23) * 2.0**127, False),
    "float16": FloatShape(11, 2.0**-14, 2.0**-24, 65504.0, False),
    "bfloat16": FloatShape(8, 2.0**-126, 2.0**-133, (2 - 2.0**-7) * 2.0**127, False),
    "float8_e4m3": FloatShape(4, 2.0**-6, 2.0**-9, 448.0, True),
    "float8_e5m2": FloatShape(3, 2.0**-14, 2.0**-16, 57344.0, True),
}
native: Any = fixed_sum.compiled("_topk")


def check_format(form: str) -> None:
    """Refuse a name that is not one of FORMATS."""
    check_choice("number format", form, FORMATS)


def numpy_dtype(form: str) -> Any:
    """Return numpy's type for a floating-point format; ml_dtypes has the ones numpy lacks."""
    if form not in _ML_DTYPES:
        return np.dtype(form)
    ml_dtypes = import_extra("ml_dtypes", f"the format {form}", "scoring")
    return np.dtype(getattr(ml_dtypes, _ML_DTYPES[form]))


def largest_code(form: str) -> int:
    """Return the largest magnitude of a number in a format made of codes."""
    return {"bit": 1, "int4": 7}.get(form, 127)


def exact_pieces(form: str, dimensions: int) -> list[slice]:
    """Return ranges of dimensions whose sums of code products float32 holds exactly."""
    step = (_WHOLE_NUMBERS - 1) // largest_code(form) ** 2
    return [slice(first, first + step) for first in range(0, dimensions, step)]


def round_to(values: Array, form: str) -> Array:
    """Return float32 values rounded to a floating-point format, still as float32."""
    if form == "float32":
        return values.astype(np.float32, copy=False)
    dtype = numpy_dtype(form)
    if native is not None and values.dtype == np.float32:
        out = np.array(values, order="C")
        fixed_sum.run_on_threads(
            lambda low, high: native.narrow(out, *SHAPES[form], low, high), out.size, out.size
        )
        return out
    if form.startswith("float8"):
        largest = SHAPES[form].largest
        values = np.clip(values, -largest, largest)
    with np.errstate(over="ignore"):
        return values.astype(dtype).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Codes:
    """Vectors in a number format: codes, and the scale that turns them back into numbers.

    >>> from rankproof.precision import encode
    >>> encode(np.array([[0.3, -0.2]], "float32"), "int8").bytes_per_vector
    6.0
    """

    format: Format
    codes: Array  # (N, D); int4 (N, ⌈D/2⌉) and bit (N, ⌈D/8⌉) are packed into uint8
    scale: Array | None  # float32 (N, 1) per vector, (1, D) per dimension, None for casts
    dimensions: int

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Codes:
        """Return the vectors of these rows."""
        scale = self.scale
        if scale is not None and self.format != "int8_dimension":
            scale = scale[rows]
        return Codes(self.format, self.codes[rows], scale, self.dimensions)

    @property
    def bytes_per_vector(self) -> float:
        """Bytes of a vector, with its own scale."""
        has_own_scale = self.scale is not None and self.format != "int8_dimension"
        code_bytes = float(np.ceil(self.dimensions * _BITS[self.format] / 8))
        return code_bytes + (4.0 if has_own_scale else 0.0)

    def numbers(self) -> Array:
        """Return the codes as plain numbers (N, D) float32, without their scale."""
        if self.format == "bit":
            bits = np.unpackbits(self.codes, axis=1, count=self.dimensions)
            return bits.astype(np.float32) * 2 - 1
        if self.format == "int4":
            low = (self.codes & 0x0F).astype(np.int8) - 8
            high = (self.codes >> 4).astype(np.int8) - 8
            pairs = np.stack([low, high], axis=2).reshape(len(low), 2 * low.shape[1])
            return pairs[:, : self.dimensions].astype(np.float32)
        return self.codes.astype(np.float32)

    def decode(self) -> Array:
        """Return the vectors (N, D) float32 that the codes stand for."""
        numbers = self.numbers()
        return numbers if self.scale is None else numbers * self.scale


@fixed_sum.keep_subnormals()
def encode(vectors: Any, form: Format) -> Codes:
    """Return vectors (N, D) in a number format.

    A cast keeps each number to half a unit in its last place. With a scale s per vector or
    dimension, the largest magnitude maps to 127 (int8) or 7 (int4) and each number is kept to
    s/2. One bit keeps the sign (0 counts as negative), with the vector's mean magnitude as scale.

    >>> from rankproof.precision import encode
    >>> encode(np.array([[0.3, -0.2]], "float32"), "bit").decode().tolist()
    [[0.25, -0.25]]
    """
    check_format(form)
    if getattr(vectors, "is_cuda", False):
        from rankproof.precision import gpu_formats

        return gpu_formats.encode(vectors, form)
    values = np.asarray(vectors, np.float32)
    dimensions = values.shape[1]
    if form in FLOATS:
        rounded = round_to(values, form).astype(numpy_dtype(form), copy=False)
        return Codes(form, rounded, None, dimensions)
    shared_scale = None
    if form == "int8_dimension":
        peak = np.maximum(values.max(axis=0, initial=0.0), -values.min(axis=0, initial=0.0))
        shared_scale = _scale_of(np.abs(peak)[None, :], form)
    width = -(-dimensions * _BITS[form] // 8)
    codes = np.empty((len(values), width), np.int8 if _BITS[form] == 8 else np.uint8)
    scale = np.empty((len(values), 1), np.float32) if shared_scale is None else shared_scale
    rows_per_block = max(1, _BLOCK_NUMBERS // max(1, dimensions))  # intermediate arrays stay small
    for first in range(0, max(1, len(values)), rows_per_block):
        block = slice(first, first + rows_per_block)
        codes[block], block_scale = _encode_block(values[block], form, shared_scale)
        if shared_scale is None:
            scale[block] = block_scale
    return Codes(form, codes, scale, dimensions)


def _encode_block(values: Array, form: Format, shared_scale: Array | None) -> tuple[Array, Array]:
    """Return the codes of a block of vectors, and their scale: the shared one or one per vector."""
    if form == "bit":
        return np.packbits(values > 0, axis=1), fixed_sum.row_means(np.abs(values))
    scale = shared_scale
    if scale is None:
        scale = _scale_of(np.abs(values).max(axis=1, keepdims=True, initial=0.0), form)
    divisor = np.where(scale > 0, scale, np.float32(1.0))
    largest = largest_code(form)
    codes = np.clip(np.rint(values / divisor), -largest, largest).astype(np.int8)
    if form == "int4":
        shifted = (codes + 8).astype(np.uint8)
        if values.shape[1] % 2:
            shifted = np.pad(shifted, ((0, 0), (0, 1)), constant_values=8)
        codes = shifted[:, ::2] | (shifted[:, 1::2] << 4)
    return codes, scale


def _scale_of(peak: Array, form: str) -> Array:
    """Return peak / largest code, rounded down where the largest code would stand for infinity."""
    largest = largest_code(form)
    scale = peak / np.float32(largest)
    with np.errstate(over="ignore"):
        scale = np.where(np.isinf(scale * largest), np.nextafter(scale, np.float32(0.0)), scale)
    return scale.astype(np.float32)


@fixed_sum.keep_subnormals()
def truncate(vectors: Any, dimensions: int) -> Array:
    """Return the first dimensions of Matryoshka embeddings, with the length they had before.

    >>> from rankproof.precision import truncate
    >>> truncate(np.array([[0.0, 0.6, 0.8]]), 2).tolist()
    [[0.0, 1.0]]
    """
    values = np.asarray(vectors, np.float32)
    if not 1 <= dimensions <= values.shape[1]:
        raise InputError(
            f"{dimensions} of {values.shape[1]} dimensions",
            remedy=f"keep between 1 and {values.shape[1]}",
        )
    first = values[:, :dimensions]
    length, first_length = fixed_sum.lengths(values), fixed_sum.lengths(first)
    factor = np.where(first_length > 0, length / np.where(first_length > 0, first_length, 1.0), 1.0)
    return (first * factor[:, None]).astype(np.float32)
