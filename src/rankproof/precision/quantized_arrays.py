"""Integer arrays: what a quantiser stored, and the numbers that it stands for.

    int8    a number each: as it is, or a step between the least and the largest of its dimension
            (ranges, as sentence-transformers' quantize_embeddings calibrates int8 and uint8)
    bits    the sign of eight numbers in a byte (its binary and ubinary), or a truth value each

An array of integers does not say which it is, and taken for a vector each kind but one ranks by
nonsense. So it is asked for, and what it cannot be is refused.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError, check_choice, shorten
from rankproof.precision.array_types import is_torch
from rankproof.precision.formats import Codes

Stored = Literal["int8", "bits"]
_FULL = 32  # rows from which on codes that fill every dimension's range are taken for calibrated


def decoded(
    queries: Any,
    documents: Any,
    stored: Stored | None = None,
    ranges: Any = None,
    labels: tuple[str, str] = ("queries", "documents"),
) -> tuple[Any, Any]:
    """Both as plain numbers: floats as they are given, integers by what they are said to be."""
    if stored is not None:
        check_choice("stored", stored, get_args(Stored))
    if ranges is not None and stored != "int8":
        raise InputError("ranges belong to int8 codes", remedy="say stored int8, or leave them out")
    pair = [array_of(*each) for each in zip((queries, documents), labels, strict=True)]
    whole = [isinstance(values, np.ndarray) and values.dtype.kind in "iub" for values in pair]
    if stored is not None and not any(whole):
        raise InputError(
            f"neither {labels[0]} nor {labels[1]} hold integers",
            remedy=f"leave stored {stored} out",
        )
    for at, label in enumerate(labels):
        if whole[at]:
            other: Any = pair[1 - at]
            shape: tuple[int, ...] = () if whole[1 - at] else getattr(other, "shape", ())
            width = int(shape[1]) if len(shape) == 2 else None
            pair[at] = numbers(pair[at], label, stored, ranges, width)
    return pair[0], pair[1]


def numbers(
    codes: Array, label: str, stored: Stored | None, ranges: Any = None, width: int | None = None
) -> Array:
    """(n, D) float32 that integers (n, …) stand for; `width` is D where the other side says it."""
    refuse_unsaid(codes, label, stored)
    if codes.ndim != 2 or 0 in codes.shape:
        raise InputError(
            f"the shape is {shorten(codes.shape)}", place=label, remedy="give (rows, dimensions)"
        )
    return _bits(codes, label, width) if stored == "bits" else _int8(codes, label, ranges)


def refuse_unsaid(values: Any, label: str, stored: Stored | None = None) -> None:
    """Refuse an array of integers of which nobody says what it is."""
    dtype = str(getattr(values, "dtype", "")).removeprefix("torch.")
    if stored is None and dtype.startswith(("int", "uint", "bool")):
        raise InputError(
            f"an array of {dtype}: are these numbers, calibrated codes or packed bits?",
            place=label,
            remedy="say stored int8 (with ranges where it was calibrated) or bits, or give floats",
        )


def _bits(codes: Array, label: str, width: int | None) -> Array:
    if codes.dtype == np.bool_:
        return np.where(codes, np.float32(1), np.float32(-1))
    low = int(codes.min())
    _within(codes, label, -128 if low < 0 else 0, 127 if low < 0 or codes.dtype == np.int8 else 255)
    # `binary` is the byte minus 128, so that it fits int8.
    shifted = codes.astype(np.int64) + (128 if codes.dtype == np.int8 or low < 0 else 0)
    signs = np.unpackbits(shifted.astype(np.uint8), axis=1).astype(np.float32) * 2 - 1
    if width is not None and width <= signs.shape[1] < width + 8:
        signs = signs[:, :width]  # the rest fills the last byte
    return signs


def _int8(codes: Array, label: str, ranges: Any) -> Array:
    if codes.dtype == np.bool_:
        raise InputError("truth values", place=label, remedy="say stored bits")
    signed = codes.dtype == np.int8 or int(codes.min()) < 0
    _within(codes, label, *((-128, 127) if signed else (0, 255)))
    if ranges is None:
        if not signed:
            raise InputError(
                "codes from 0 on, of which only their ranges say where 0 lies",
                place=label,
                remedy="give the ranges they were made with: (2, dimensions), least and largest",
            )
        filled = (codes.min(axis=0) == -128) & (codes.max(axis=0) >= 126)
        if len(codes) >= _FULL and filled.mean() > 0.9:
            raise InputError(
                "codes that fill −128 to 127 in every dimension were calibrated",
                place=label,
                remedy="give the ranges they were made with, or float32 to take codes for numbers",
            )
        return codes.astype(np.float32)
    limits = np.asarray(array_of(ranges, "ranges"), np.float64)
    if limits.shape != (2, codes.shape[1]) or not np.isfinite(limits).all():
        raise InputError(
            f"ranges of the shape {shorten(limits.shape)} for {codes.shape[1]} dimensions",
            remedy="give (2, dimensions): the least of each, and the largest",
        )
    step = (limits[1] - limits[0]) / 255
    step = np.where(step == 0, 1.0, step)  # as the quantiser has it
    whole = codes.astype(np.float64) + (128 if signed else 0)
    # A code is the floor: the number lies in the middle of its step, as far as one knows.
    return np.asarray(limits[0] + (whole + 0.5) * step, np.float32)


def _within(codes: Array, label: str, low: int, high: int) -> None:
    wrong = ((codes < low) | (codes > high)).any(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        worst = codes[row][(codes[row] < low) | (codes[row] > high)][0]
        raise InputError(
            f"{worst} is not a code of 8 bits", place=f"{label}: row {row}", remedy="give floats"
        )


def array_of(values: Any, label: str) -> Any:
    """numpy's; tensors of floats, wherever they lie, and encoded vectors as they are. What holds
    no numbers, or hides some, is refused.
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
