"""Number formats for vectors: what an index stores, and what is left of the numbers.

    float32, float16, bfloat16          casts
    float8_e4m3, float8_e5m2            casts, held at the largest finite value
    int8, int4                          a scale per vector
    int8_dimension                      a scale per dimension
    bit                                 the sign of each number, eight to a byte

Rounding is to nearest, halves to even. numpy and ml_dtypes do the work; no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

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
# Bits of the significand, the smallest number that has them all, the smallest one,
# the largest, and whether what lies beyond is held there.
SHAPES: dict[str, tuple[int, float, float, float, bool]] = {
    "float32": (24, 2.0**-126, 2.0**-149, (2 - 2.0**-23) * 2.0**127, False),
    "float16": (11, 2.0**-14, 2.0**-24, 65504.0, False),
    "bfloat16": (8, 2.0**-126, 2.0**-133, (2 - 2.0**-7) * 2.0**127, False),
    "float8_e4m3": (4, 2.0**-6, 2.0**-9, 448.0, True),
    "float8_e5m2": (3, 2.0**-14, 2.0**-16, 57344.0, True),
}
_BLOCK = 1 << 20  # numbers encoded at a time
native: Any = fixed_sum.compiled("_topk")
_ML_DTYPES = {"bfloat16": "bfloat16", "float8_e4m3": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}


def check_format(form: str) -> None:
    check_choice("number format", form, FORMATS)


def numpy_dtype(form: str) -> Any:
    """numpy's type for a floating-point format; ml_dtypes has the ones numpy lacks."""
    if form not in _ML_DTYPES:
        return np.dtype(form)
    ml_dtypes = import_extra("ml_dtypes", f"the format {form}", "scoring")
    return np.dtype(getattr(ml_dtypes, _ML_DTYPES[form]))


def round_to(values: Array, form: str) -> Array:
    """float32 values as a floating-point format would hold them, still float32."""
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
        largest = SHAPES[form][3]
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
        """Some of the vectors."""
        scale = self.scale
        if scale is not None and self.format != "int8_dimension":
            scale = scale[rows]
        return Codes(self.format, self.codes[rows], scale, self.dimensions)

    @property
    def bytes_per_vector(self) -> float:
        """Bytes that a vector takes, its own scale included."""
        own = 0.0 if self.scale is None or self.format == "int8_dimension" else 4.0
        return float(np.ceil(self.dimensions * _BITS[self.format] / 8)) + own

    def numbers(self) -> Array:
        """(N, D) float32 the codes as plain numbers, without their scale."""
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
        """(N, D) float32 the vectors that the codes stand for."""
        numbers = self.numbers()
        return numbers if self.scale is None else numbers * self.scale


@fixed_sum.keep_subnormals()
def encode(vectors: Any, form: Format) -> Codes:
    """Vectors (N, D) in a number format.

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
        if form == "float32":
            return Codes(form, values, None, dimensions)
        return Codes(form, round_to(values, form).astype(numpy_dtype(form)), None, dimensions)
    rows = max(1, _BLOCK // max(1, dimensions))
    blocks = [slice(low, low + rows) for low in range(0, max(1, len(values)), rows)]
    shared = None
    if form == "int8_dimension":
        peak = np.maximum(values.max(axis=0, initial=0.0), -values.min(axis=0, initial=0.0))
        shared = _scale(np.abs(peak)[None, :], 127)
    codes = np.empty(
        (len(values), -(-dimensions * _BITS[form] // 8)), np.int8 if _BITS[form] == 8 else np.uint8
    )
    scale = np.empty((len(values), 1), np.float32) if shared is None else shared
    for block in blocks:  # so that what lies between is a few megabytes
        codes[block], own = _encoded(values[block], form, shared)
        if shared is None:
            scale[block] = own
    return Codes(form, codes, scale, dimensions)


def _encoded(values: Array, form: Format, shared: Array | None) -> tuple[Array, Array]:
    """Codes of some vectors, and their scale, which may be given."""
    if form == "bit":
        return np.packbits(values > 0, axis=1), fixed_sum.row_means(np.abs(values))
    most = 7 if form == "int4" else 127
    scale = shared
    if scale is None:
        scale = _scale(np.abs(values).max(axis=1, keepdims=True, initial=0.0), most)
    divisor = np.where(scale > 0, scale, np.float32(1.0))
    codes = np.clip(np.rint(values / divisor), -most, most).astype(np.int8)
    if form == "int4":
        shifted = (codes + 8).astype(np.uint8)
        if values.shape[1] % 2:
            shifted = np.pad(shifted, ((0, 0), (0, 1)), constant_values=8)
        codes = shifted[:, ::2] | (shifted[:, 1::2] << 4)
    return codes, scale


def _scale(peak: Array, most: int) -> Array:
    """What the largest code is to stand for, over that code."""
    scale = peak / np.float32(most)
    with np.errstate(over="ignore"):  # the largest code must stand for a finite number
        scale = np.where(np.isinf(scale * most), np.nextafter(scale, np.float32(0.0)), scale)
    return scale.astype(np.float32)


@fixed_sum.keep_subnormals()
def truncate(vectors: Any, dimensions: int) -> Array:
    """The first dimensions of Matryoshka embeddings, back at unit length where they had it.

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
    kept = values[:, :dimensions]
    length, shorter = fixed_sum.lengths(values), fixed_sum.lengths(kept)
    back = np.where(shorter > 0, length / np.where(shorter > 0, shorter, 1.0), 1.0)
    return (kept * back[:, None]).astype(np.float32)
