"""Drawing without replacement: what decides which of a tie group's documents fit."""

from __future__ import annotations

import numpy as np

from rankproof.foundation.arrays import Float, Int
from rankproof.measures.padded_rows import row_product, tables


def log_factorials(most: int) -> Float:
    """(most + 1,) ln 0!, ln 1!, …"""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, most + 1.0)))])


def none_drawn(size: Int, marked: Int, drawn: Int) -> Float:
    """(N,) P(none of `marked` documents is among `drawn` of `size`) = C(g−m, t)/C(g, t).

    It is Π_{i<a} (g−b−i)/(g−i) with {a, b} = {t, m}: the shorter product is taken, since binomials
    overflow.
    """
    short, long = np.minimum(marked, drawn), np.maximum(marked, drawn)
    chance = np.ones(len(size))
    for chosen, step, valid in tables(short):
        g, b = size[chosen, None], long[chosen, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(valid, np.maximum(g - b - step, 0) / (g - step), 1.0)
        chance[chosen] = row_product(factor)
    return chance
