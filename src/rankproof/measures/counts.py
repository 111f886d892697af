"""Measures of a list as a set: how much was retrieved, and how much of it is relevant.

No order changes them, so that no tie does: every figure is the same, and std is 0.
"""

from __future__ import annotations

import math

import numpy as np

from rankproof.data.ties import TieGroups
from rankproof.foundation.arrays import Float
from rankproof.measures.linear import REL
from rankproof.measures.registry import Outcomes, measure


def _found(groups: TieGroups, rel: int) -> Float:
    """(Q,) relevant documents that are listed."""
    return groups.sum_by_query(groups.doc_query, groups.grade >= rel)


@measure("NumRet", limits=REL, aliases=("num_ret",), endless=True)
def num_ret(groups: TieGroups, rel: int | None = None) -> Outcomes:
    """How many documents are listed; with `rel`, how many of at least that grade.

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "NumRet")["NumRet"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (4.0, 4.0, 4.0)
    """
    return Outcomes.certain(
        groups.listed.astype(np.float64) if rel is None else _found(groups, rel)
    )


@measure("NumRel", limits=REL, aliases=("num_rel",), endless=True)
def num_rel(groups: TieGroups, rel: int = 1) -> Outcomes:
    """How many documents are relevant, listed or not: R.

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "NumRel")["NumRel"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (2.0, 2.0, 2.0)
    """
    return Outcomes.certain(groups.relevant(rel).astype(np.float64))


@measure("NumRelRet", limits=REL, aliases=("num_rel_ret",), endless=True)
def num_rel_ret(groups: TieGroups, rel: int = 1) -> Outcomes:
    """How many relevant documents are listed.

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "NumRelRet")
    >>> found = found["NumRelRet"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (2.0, 2.0, 2.0)
    """
    return Outcomes.certain(_found(groups, rel))


@measure("SetP", limits=REL, aliases=("set_P",))
def set_precision(groups: TieGroups, rel: int = 1) -> Outcomes:
    """Precision of the whole list as a set: relevant documents over all that are listed.

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "SetP")["SetP"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (0.5, 0.5, 0.5)
    """
    return Outcomes.certain(_found(groups, rel) / np.maximum(groups.listed, 1))


@measure("SetR", limits=REL, aliases=("set_recall",))
def set_recall(groups: TieGroups, rel: int = 1) -> Outcomes:
    """Recall of the whole list as a set: the share of the R relevant documents that is listed.

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "SetR")["SetR"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (1.0, 1.0, 1.0)
    """
    return Outcomes.certain(_found(groups, rel) / _positive(groups, rel))


@measure("SetF", limits={"rel": (1, math.inf), "beta": (0.0, math.inf)}, aliases=("set_F",))
def set_f(groups: TieGroups, rel: int = 1, beta: float = 1.0) -> Outcomes:
    """Harmonic mean of SetP and SetR: (β + 1) · P · R / (β · P + R), as trec_eval has β.

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "SetF")["SetF"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (0.667, 0.667, 0.667)
    """
    found = _found(groups, rel)
    p = found / np.maximum(groups.listed, 1)
    r = found / np.maximum(groups.relevant(rel), 1)
    share = (beta + 1.0) * p * r / np.where(found > 0, beta * p + r, 1.0)
    return Outcomes.certain(np.where(found > 0, share, 0.0))


@measure("SetAP", limits=REL, aliases=("set_map",))
def set_average_precision(groups: TieGroups, rel: int = 1) -> Outcomes:
    """SetP · SetR: the square of the relevant documents listed over all listed times R.

    >>> found = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "SetAP")["SetAP"]
    >>> round(found.min, 3), round(found.expected, 3), round(found.max, 3)
    (0.5, 0.5, 0.5)
    """
    found = _found(groups, rel)
    return Outcomes.certain(found * found / (np.maximum(groups.listed, 1) * _positive(groups, rel)))


def _positive(groups: TieGroups, rel: int) -> Float:
    """(Q,) R, NaN where it is 0."""
    relevant = groups.relevant(rel).astype(np.float64)
    return np.where(relevant > 0, relevant, np.nan)
