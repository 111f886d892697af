"""Integer arrays that an embedding library quantized, and the vectors that they stand for.

    int8    one number per integer: the integer itself, or a step between the least and the largest
            number of its dimension (`ranges`, as sentence-transformers' quantize_embeddings
            calibrates int8 and uint8)
    bits    the signs of eight numbers in a byte (its binary and ubinary), or one truth value each

Nothing in an array of integers tells which of these it is, and decoding it as the wrong kind gives
a meaningless ranking. So the caller names the kind (`stored`), and arrays that cannot be of that
kind are refused.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError, check_choice, shorten
from rankproof.precision.array_types import is_torch
from rankproof.precision.formats import Codes

Stored = Literal["int8", "bits"]
_CALIBRATED_ROWS = 32  # with so many rows, codes that fill every dimension's range are calibrated


def as_numbers(
    queries: Any,
    documents: Any,
    stored: Stored | None = None,
    ranges: Any = None,
    labels: tuple[str, str] = ("queries", "documents"),
) -> tuple[Any, Any]:
    """Return both as vectors of floats: floats unchanged, integers decoded as `stored` says."""
    if stored is not None:
        check_choice("stored", stored, get_args(Stored))
    if ranges is not None and stored != "int8":
        raise InputError("ranges belong to int8 codes", remedy="say stored int8, or leave them out")
    arrays = [check_array(queries, labels[0]), check_array(documents, labels[1])]
    is_integer = [isinstance(a, np.ndarray) and a.dtype.kind in "iub" for a in arrays]
    if stored is not None and not any(is_integer):
        raise InputError(
            f"neither {labels[0]} nor {labels[1]} hold integers",
            remedy=f"leave stored {stored} out",
        )
    dimensions = None  # of packed bits, where the other array has floats
    for array, integer in zip(arrays, is_integer, strict=True):
        shape: tuple[int, ...] = getattr(array, "shape", ())
        if not integer and len(shape) == 2:
            dimensions = int(shape[1])
    for side, label in enumerate(labels):
        if is_integer[side]:
            arrays[side] = decode_integers(arrays[side], label, stored, ranges, dimensions)
    return arrays[0], arrays[1]


def decode_integers(
    codes: Array,
    label: str,
    stored: Stored | None,
    ranges: Any = None,
    dimensions: int | None = None,
) -> Array:
    """Return the vectors (n, D) float32 that integers (n, …) stand for.

    `dimensions` is D, if it is known from the other array. Packed bits need it where D is not a
    multiple of 8, since they fill whole bytes.
    """
    refuse_unlabeled_integers(codes, label, stored)
    if codes.ndim != 2 or 0 in codes.shape:
        raise InputError(
            f"the shape is {shorten(codes.shape)}", place=label, remedy="give (rows, dimensions)"
        )
    if stored == "bits":
        return _decode_bits(codes, label, dimensions)
    return _decode_int8(codes, label, ranges)


def refuse_unlabeled_integers(values: Any, label: str, stored: Stored | None = None) -> None:
    """Refuse an array of integers where `stored` does not say what they are."""
    dtype = str(getattr(values, "dtype", "")).removeprefix("torch.")
    if stored is None and dtype.startswith(("int", "uint", "bool")):
        raise InputError(
            f"an array of {dtype}: are these numbers, calibrated codes or packed bits?",
            place=label,
            remedy="say stored int8 (with ranges where it was calibrated) or bits, or give floats",
        )


def _decode_bits(codes: Array, label: str, dimensions: int | None) -> Array:
    """Return signs ±1 (n, D) of truth values or packed bytes."""
    if codes.dtype == np.bool_:
        return np.where(codes, np.float32(1), np.float32(-1))
    smallest = int(codes.min())
    is_signed = codes.dtype == np.int8 or smallest < 0
    _check_byte_range(codes, label, -128 if smallest < 0 else 0, 127 if is_signed else 255)
    # sentence-transformers' `binary` is the byte minus 128, so that it fits int8.
    bytes_ = codes.astype(np.int64) + (128 if is_signed else 0)
    signs = np.unpackbits(bytes_.astype(np.uint8), axis=1).astype(np.float32) * 2 - 1
    if dimensions is not None and dimensions <= signs.shape[1] < dimensions + 8:
        signs = signs[:, :dimensions]  # the other bits only fill the last byte
    return signs


def _decode_int8(codes: Array, label: str, ranges: Any) -> Array:
    """Return the numbers (n, D) of 8-bit codes: themselves, or steps of calibrated ranges."""
    if codes.dtype == np.bool_:
        raise InputError("truth values", place=label, remedy="say stored bits")
    is_signed = codes.dtype == np.int8 or int(codes.min()) < 0
    _check_byte_range(codes, label, -128 if is_signed else 0, 127 if is_signed else 255)
    if ranges is None:
        _refuse_calibrated(codes, label, is_signed)
        return codes.astype(np.float32)
    limits = np.asarray(check_array(ranges, "ranges"), np.float64)
    if limits.shape != (2, codes.shape[1]) or not np.isfinite(limits).all():
        raise InputError(
            f"ranges of the shape {shorten(limits.shape)} for {codes.shape[1]} dimensions",
            remedy="give (2, dimensions): the least of each, and the largest",
        )
    step = (limits[1] - limits[0]) / 255
    step = np.where(step == 0, 1.0, step)  # as quantize_embeddings does
    step_number = codes.astype(np.float64) + (128 if is_signed else 0)
    # A code is rounded down, so the best estimate of its number is the middle of the step.
    return np.asarray(limits[0] + (step_number + 0.5) * step, np.float32)


def _refuse_calibrated(codes: Array, label: str, is_signed: bool) -> None:
    """Refuse 8-bit codes that cannot be plain numbers but come without their ranges."""
    if not is_signed:
        raise InputError(
            "codes from 0 on, of which only their ranges say where 0 lies",
            place=label,
            remedy="give the ranges they were made with: (2, dimensions), least and largest",
        )
    fills_range = (codes.min(axis=0) == -128) & (codes.max(axis=0) >= 126)
    if len(codes) >= _CALIBRATED_ROWS and fills_range.mean() > 0.9:
        raise InputError(
            "codes that fill −128 to 127 in every dimension were calibrated",
            place=label,
            remedy="give the ranges they were made with, or float32 to take codes for numbers",
        )


def _check_byte_range(codes: Array, label: str, least: int, most: int) -> None:
    """Refuse integers outside the range of a byte."""
    is_outside = (codes < least) | (codes > most)
    if is_outside.any():
        row = int(is_outside.any(axis=1).argmax())
        raise InputError(
            f"{codes[row][is_outside[row]][0]} is not a code of 8 bits",
            place=f"{label}: row {row}",
            remedy="give floats",
        )


def check_array(values: Any, label: str) -> Any:
    """Return Codes and tensors of floats unchanged, anything else as a numpy array of numbers.

    Refuse what holds no numbers, and masked or sparse arrays, which hide some.
    """
    if isinstance(values, Codes):
        return values
    problem = ""
    if is_torch(values):
        if str(values.layout) != "torch.strided" or values.is_meta or values.is_quantized:
            problem = "a tensor that does not hold its numbers one by one"
        elif values.is_floating_point():
            return values
        else:
            values = values.detach().cpu().numpy()
    elif np.ma.is_masked(values):
        problem = "a mask over numbers"
    if not problem:
        try:
            array = np.asarray(values)
        except (TypeError, ValueError):
            problem = "rows that do not make one array"
        else:
            if array.dtype.kind in "fiubV" and array.dtype.type is not np.void:
                return array
            problem = f"{array.dtype} where numbers belong"
    raise InputError(problem, place=label, remedy="give (rows, dimensions)")
