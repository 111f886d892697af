"""Scores of logits: upcast to float64, apply the activation, round once to float32.

A model's last layer may be bfloat16; its logits are exact in float64, and a sigmoid computed there
keeps them apart where a bfloat16 sigmoid would give a handful of values. Library sigmoids have
different last bits in their vector and scalar code, so that a score would depend on its place in a
batch; here every step is one IEEE operation, the same for arrays, tensors and batches of any size.
`low=True` scores wholly in the low format instead, for comparison: hardware computes wider and
rounds the result, so that is the float32 score rounded to the format of the input.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rankproof.foundation.errors import InputError
from rankproof.precision.array_types import format_of, is_torch, round_result, upcast

# ln 2 in two parts: the first has 21 zero bits at its end, so that whole multiples of it are exact.
_LN2 = (float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33"))
_LOWEST_EXPONENT = -150.0  # e⁻¹⁵⁰ is 0 in float32, and added to 1 in float64 it is 1


def sigmoid(logits: Any, *, low: bool = False) -> Any:
    """Return 1 / (1 + exp(−z)) as float32, from logits of any format.

    From z = 11.84 (float16) and 14.125 (bfloat16) on, neighboring logits share a score, and past 17
    it is 1. Rank by the pair (score, logit) there: that is the order of the logits, without ties.

    >>> from rankproof.precision import sigmoid
    >>> logits = np.array([8.0, 8.5, 9.0, 9.5], "float16")
    >>> len(set(sigmoid(logits, low=True).tolist())), len(set(sigmoid(logits).tolist()))
    (2, 4)
    """
    return _in_score_format(_sigmoid(upcast(logits, "float64")), logits, low)


def softmax(logits: Any, *, yes: int = 1, low: bool = False) -> Any:
    """Return the probability of column `yes` of two logits (…, 2), as float32.

    Equal to the sigmoid of the difference, which is formed in float64.

    >>> from rankproof.precision import softmax
    >>> softmax(np.array([[0.0, 0.0]])).tolist()
    [0.5]
    """
    z = upcast(logits, "float64")
    if z.shape[-1] != 2:
        raise InputError(
            f"{z.shape[-1]} logits per pair", remedy="give two columns: one for yes, one for no"
        )
    if yes not in (0, 1):
        raise InputError(f"column {yes} of 2", remedy="yes is 0 or 1")
    return _in_score_format(_sigmoid(z[..., yes] - z[..., 1 - yes]), logits, low)


def _in_score_format(score: Any, logits: Any, low: bool) -> Any:
    """Return scores on the device of the logits; with `low`, rounded to the logits' format."""
    if is_torch(logits):
        score = score.to(logits.device)
    return round_result(score, format_of(logits) if low else "float32")


def _sigmoid(z: Any) -> Any:
    """Return float32 scores of float64 logits, by torch only where a GPU holds them."""
    if not is_torch(z):
        return _rounded_sigmoid(z, np)
    import torch

    if z.is_cuda:
        return _rounded_sigmoid(z, torch)
    return torch.as_tensor(_rounded_sigmoid(z.numpy(), np))


def _rounded_sigmoid(z: Any, library: Any) -> Any:
    """Return the sigmoid as float32, computed by numpy or torch."""
    # Only exponentials of numbers below 0 are computed, so that none overflows.
    with np.errstate(invalid="ignore"):
        small = _exponential(library.clip(-abs(z), _LOWEST_EXPONENT, 0.0), library)
        score = library.where(z >= 0, 1.0, small) / (1.0 + small)
    return score.float() if library is not np else score.astype(np.float32)


def _exponential(x: Any, library: Any) -> Any:
    """Return exp(x) of float64 numbers from −150 to 0, to 2 units in the last place.

    With x = n ln 2 + r and |r| ≤ ½ ln 2, exp(x) = 2ⁿ exp(r). The Taylor series of exp(r) is summed
    up to r¹³/13!; 2ⁿ is made by writing the exponent bits.
    """
    n = library.round(x * (1.0 / math.log(2.0)))
    r = (x - n * _LN2[0]) - n * _LN2[1]
    series = 1.0 / math.factorial(13)
    for power in range(12, -1, -1):
        series = series * r + 1.0 / math.factorial(power)
    exponent = n.long() if is_torch(x) else n.astype(np.int64)
    return series * ((exponent + 1023) << 52).view(library.float64)
