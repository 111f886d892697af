"""Rows of unequal length as padded tables, so that running sums and products are one call.

A row's result must not depend on which other rows share its table: sums and products run from
left to right (`cumsum`, `cumprod`), never pairwise, and padding is at the right.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankproof.foundation.arrays import Bool, Float, Int

_CELLS = 1 << 20  # of one table


def tables(length: Int, cells: int = _CELLS) -> Iterator[tuple[Int, Int, Bool]]:
    """Lay out rows of similar length as tables of at most `cells` cells (or one row).

    Yields, for each table, the indices of its rows, (1, width) column numbers 0, 1, 2, …, and
    (rows, width) which cells are real, not padding. Rows of length 0 are in no table.
    """
    by_length = np.argsort(length, kind="stable")
    sizes = length[by_length]
    low = int(np.searchsorted(sizes, 1))
    while low < len(sizes):
        high = int(np.searchsorted(sizes, 2 * sizes[low]))
        high = min(high, low + max(1, cells // int(sizes[high - 1])))
        chosen = by_length[low:high]
        column = np.arange(int(sizes[high - 1]))[None, :]
        yield chosen, column, column < length[chosen, None]
        low = high


def alike(kinds: tuple[Int, ...], width: Int) -> Iterator[tuple[list[int], Int]]:
    """Group the rows for which every column of `kinds` has the same value.

    Yields those values and the indices of the rows, of at most as many rows as fit in a table when
    each takes `width` cells.
    """
    order = np.lexsort(kinds)
    differs = np.zeros(max(0, len(order) - 1), bool)
    for kind in kinds:
        differs |= np.diff(kind[order]) != 0
    for rows in np.split(order, np.flatnonzero(differs) + 1):
        step = max(1, _CELLS // int(width[rows[0]])) if len(rows) else 1
        for begin in range(0, len(rows), step):
            yield [int(kind[rows[0]]) for kind in kinds], rows[begin : begin + step]


def row_sum(table: Float) -> Float:
    """Sum of each row from left to right."""
    return np.cumsum(table, axis=1)[:, -1]


def row_product(table: Float) -> Float:
    """Product of each row from left to right."""
    return np.asarray(np.cumprod(table, axis=1)[:, -1], np.float64)
