"""Logits → scores: upcast first, then the function, in float32.

A model's last layer may be bfloat16; its logits are exact in float32, and a sigmoid computed there
keeps them apart where a bfloat16 sigmoid would give a handful of values. `low=True` scores wholly
in the low format instead, for comparison: arithmetic units compute wider and round the result, so
that is the float32 score rounded to the format of the input.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankproof.errors import InputError
from rankproof.scoring.backend import is_torch, name_of, round_result, upcast


def sigmoid(logits: Any, *, low: bool = False) -> Any:
    """1 / (1 + exp(−z)) as float32, from logits of any format.

    From z = 11.84 (float16) and 14.125 (bfloat16) on neighbouring logits share a score, and past 17
    it is 1: rank on the pair (score, logit), which is the order of the logits and loses nothing.

    >>> from rankproof.scoring import sigmoid
    >>> logits = np.array([8.0, 8.5, 9.0, 9.5], "float16")
    >>> len(set(sigmoid(logits, low=True).tolist())), len(set(sigmoid(logits).tolist()))
    (2, 4)
    """
    form = name_of(logits)
    z = upcast(logits)
    if is_torch(z):
        import torch

        return round_result(torch.sigmoid(z), form if low else "float32")
    # exp of a negative number only, so that neither side overflows; in float64 and rounded once,
    # which keeps the result within one unit in the last place of the exact value.
    wide = np.asarray(z, np.float64)
    small = np.exp(-np.abs(wide))
    score = np.where(wide >= 0, 1.0 / (1.0 + small), small / (1.0 + small)).astype(np.float32)
    return round_result(score, form if low else "float32")


def softmax(logits: Any, *, yes: int = 1, low: bool = False) -> Any:
    """The probability of column `yes` of two logits (…, 2), as float32.

    Equal to the sigmoid of the difference, which is formed in float32 where it is exact or
    rounded once.

    >>> from rankproof.scoring import softmax
    >>> softmax(np.array([[0.0, 0.0]])).tolist()
    [0.5]
    """
    z = upcast(logits)
    if z.shape[-1] != 2:
        raise InputError(
            f"{z.shape[-1]} logits per pair", remedy="give two columns: one for yes, one for no"
        )
    if yes not in (0, 1):
        raise InputError(f"column {yes} of 2", remedy="yes is 0 or 1")
    form = name_of(logits)
    score = sigmoid(z[..., yes] - z[..., 1 - yes])
    return round_result(score, form if low else "float32")
