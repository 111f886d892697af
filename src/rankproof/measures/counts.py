"""Measures of a whole list as a set: how much was retrieved, and how much of it is relevant.

No order of the list changes them, so ties do not either: all statistics are equal, and std is 0.
"""

from __future__ import annotations

import math

import numpy as np

from rankproof.data.ties import TieGroups
from rankproof.foundation.arrays import Float, Int
from rankproof.measures.linear import REL, all_relevant, one
from rankproof.measures.outcomes import Outcomes
from rankproof.measures.properties import CountOverNorm, CountOverRelevant
from rankproof.measures.registry import measure


def _relevant_listed(groups: TieGroups, rel: int) -> Float:
    """(Q,) relevant documents that are listed."""
    return groups.sum_by_query(groups.doc_query, groups.grade >= rel)


@measure(
    "NumRet",
    limits=REL,
    aliases=("num_ret",),
    endless=True,
    rising=True,
    unjudged=CountOverNorm(one),
)
def num_ret(groups: TieGroups, rel: int | None = None) -> Outcomes:
    """How many documents are listed; with `rel`, how many of at least that grade.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "NumRet")["NumRet"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (4.0, 4.0, 4.0)
    """
    return Outcomes.certain(
        groups.listed.astype(np.float64) if rel is None else _relevant_listed(groups, rel)
    )


@measure("NumRel", limits=REL, aliases=("num_rel",), endless=True, unjudged="relevant count")
def num_rel(groups: TieGroups, rel: int = 1) -> Outcomes:
    """How many documents are relevant, listed or not: R.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "NumRel")["NumRel"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (2.0, 2.0, 2.0)
    """
    return Outcomes.certain(groups.relevant(rel).astype(np.float64))


@measure(
    "NumRelRet",
    limits=REL,
    aliases=("num_rel_ret",),
    endless=True,
    rising=True,
    unjudged=CountOverNorm(one),
    reads="relevant",
)
def num_rel_ret(groups: TieGroups, rel: int = 1) -> Outcomes:
    """How many relevant documents are listed.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "NumRelRet")["NumRelRet"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (2.0, 2.0, 2.0)
    """
    return Outcomes.certain(_relevant_listed(groups, rel))


def _listed(groups: TieGroups, cutoff: int | None) -> Int:
    """The norm of precision: documents listed, 1 for an empty list."""
    return np.maximum(groups.listed, 1)


@measure(
    "SetP",
    limits=REL,
    aliases=("set_P",),
    rising=True,
    unjudged=CountOverNorm(_listed),
    reads="relevant",
)
def set_precision(groups: TieGroups, rel: int = 1) -> Outcomes:
    """Precision of the whole list as a set: relevant documents over all that are listed.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "SetP")["SetP"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.5, 0.5, 0.5)
    """
    return Outcomes.certain(_relevant_listed(groups, rel) / _listed(groups, None))


@measure(
    "SetR",
    limits=REL,
    aliases=("set_recall",),
    unjudged=CountOverRelevant(all_relevant),
    reads="relevant",
)
def set_recall(groups: TieGroups, rel: int = 1) -> Outcomes:
    """Recall of the whole list as a set: the share of the R relevant documents that is listed.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "SetR")["SetR"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (1.0, 1.0, 1.0)
    """
    return Outcomes.certain(_relevant_listed(groups, rel) / _positive(groups, rel))


@measure(
    "SetF",
    limits={**REL, "beta": (0.0, math.inf)},
    aliases=("set_F",),
    rising=True,
    unjudged="set share",
    reads="relevant",
)
def set_f(groups: TieGroups, rel: int = 1, beta: float = 1.0) -> Outcomes:
    """Harmonic mean of SetP and SetR: (β + 1) · P · R / (β · P + R), as trec_eval has β.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "SetF")["SetF"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.667, 0.667, 0.667)
    """
    hits = _relevant_listed(groups, rel)
    p = hits / _listed(groups, None)
    r = hits / np.maximum(groups.relevant(rel), 1)
    share = (beta + 1.0) * p * r / np.where(hits > 0, beta * p + r, 1.0)
    return Outcomes.certain(np.where(hits > 0, share, 0.0))


@measure("SetAP", limits=REL, aliases=("set_map",), unjudged="set share", reads="relevant")
def set_average_precision(groups: TieGroups, rel: int = 1) -> Outcomes:
    """SetP · SetR: the square of the relevant documents listed over all listed times R.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "SetAP")["SetAP"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.5, 0.5, 0.5)
    """
    hits = _relevant_listed(groups, rel)
    return Outcomes.certain(hits * hits / (_listed(groups, None) * _positive(groups, rel)))


def _positive(groups: TieGroups, rel: int) -> Float:
    """(Q,) R, NaN where it is 0."""
    relevant = groups.relevant(rel).astype(np.float64)
    return np.where(relevant > 0, relevant, np.nan)
