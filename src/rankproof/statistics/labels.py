"""The rule that turns the interval of a difference into its label.

`comparison/verdict.py` states it. Everything that compares two runs or configurations calls it, so
that the same differences and the same family have the same label in every command.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from rankproof.foundation.arrays import Float, Int
from rankproof.statistics.groups import Groups
from rankproof.statistics.intervals import (
    MIN_QUERIES,
    NO_DIFFERENCE,
    Interval,
    count_differing,
    difference_intervals,
    few_changes_bound,
)

Label = Literal["undecided", "equal", "ahead", "behind"]

LABELS: tuple[Label, ...] = ("undecided", "equal", "ahead", "behind")
UNDECIDED, EQUAL, AHEAD, BEHIND = range(4)


def difference_labels(
    differences: Float,
    span: float,
    groups: Groups | None,
    critical: float | Float,
    *,
    sign: int = 1,
    equal_within: float | None = None,
) -> Int:
    """Return (P,) the codes of labels of mean differences, rows (P, Q) with NaN if undefined.

    `span` is that of the measure, `critical` that of the family, `sign` −1 where less is better.
    """
    return label_codes(
        difference_intervals(differences, span, groups, critical),
        count_differing(differences, groups),
        few_changes_bounds(differences, groups),
        sign,
        equal_within,
    )


def label_codes(
    family: Float, differing: Int, bound: Float, sign: int, equal_within: float | None
) -> Int:
    """Return (P,) the codes of labels.

    `family` (P, 2) are the ends F; `differing` (P,) counts groups that differ; `bound` (P, 2) is
    that of few changes; `sign` is −1 where less is better.
    """
    codes = np.full(len(family), UNDECIDED, np.int64)
    with np.errstate(invalid="ignore"):
        is_above, is_below = family[:, 0] > 0, family[:, 1] < 0
        codes[is_above] = AHEAD if sign > 0 else BEHIND
        codes[is_below] = BEHIND if sign > 0 else AHEAD
        if equal_within is not None:
            is_inside = (family[:, 0] > -equal_within) & (family[:, 1] < equal_within)
            is_inside |= (bound[:, 0] > -equal_within) & (bound[:, 1] < equal_within)
            codes[is_inside] = EQUAL
    few = differing < MIN_QUERIES
    codes[few & (codes != EQUAL)] = UNDECIDED
    codes[differing == 0] = EQUAL
    return codes


def few_changes_bounds(differences: Float, groups: Groups | None = None) -> Float:
    """Return (P, 2) the bounds of means of which queries of fewer than six groups differ, else NaN.

    NaN in a row (Q,) is a query that is not compared.
    """
    bounds = np.full((len(differences), 2), np.nan)
    for row in np.flatnonzero(count_differing(differences, groups) < MIN_QUERIES):
        is_shared = ~np.isnan(differences[row])
        groups_of_row = None if groups is None else groups[is_shared]
        bounds[row] = few_changes_bound(differences[row][is_shared], groups_of_row)
    return bounds


def label_of(
    ends: Interval,
    sign: int,
    *,
    differing: int = MIN_QUERIES,
    bound: Interval = (math.nan, math.nan),
    equal_within: float | None = None,
) -> Label:
    """Return the label of a for one interval of a − b; an interval of 0 alone is equal.

    >>> label_of((0.01, 0.03), 1), label_of((0.01, 0.03), -1), label_of((-0.01, 0.03), 1)
    ('ahead', 'behind', 'undecided')
    """
    rounded = [0.0 if abs(end) < NO_DIFFERENCE else end for end in ends]
    count = differing if any(rounded) else 0
    codes = label_codes(
        np.array([rounded]), np.array([count]), np.array([bound]), sign, equal_within
    )
    return LABELS[int(codes[0])]
