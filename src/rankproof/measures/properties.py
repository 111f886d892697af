"""What a measure can declare: how unjudged documents move it, and what of the judgments it reads.

Most measures are one of four kinds, whose worst cases over unjudged documents follow from a few
values; `unjudged/bounds_by_measure.py` computes them. A measure with an algorithm of its own names
that algorithm instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rankproof.data.ties import TieGroups
from rankproof.foundation.arrays import Array, Float, Int

if TYPE_CHECKING:
    from rankproof.measures.registry import Measure

Grade = int | Literal["lowest", "highest"] | None  # of the scale; None leaves documents unjudged


@dataclass(frozen=True, slots=True)
class Extremes:
    """Each unjudged document moves the measure on its own, and one grade is the extreme for all.

    The value is lowest when all unjudged documents have grade `low`, and highest when all have
    grade `high`.

    >>> rp.Judged.definition.unjudged
    Extremes(low=None, high='lowest')
    """

    low: Grade
    high: Grade


@dataclass(frozen=True, slots=True)
class CountOverNorm:
    """M = (documents in the top k with one of the `grades`) / norm; no grade changes the norm.

    >>> rp.Harm.definition.unjudged.grades
    (1, 2)
    """

    norm: Callable[[TieGroups, int | None], Array | float]  # of tie groups and cutoff
    grades: tuple[int, int] | None = None  # lowest and highest; None: from the parameter `rel` up


@dataclass(frozen=True, slots=True)
class CountOverRelevant:
    """M = (relevant documents in the top k) / norm(R, k), for R relevant documents in all.

    >>> relevant = np.array([2, 5])
    >>> rp.R.definition.unjudged.norm(relevant, np.array([10, 10])).tolist()
    [2.0, 5.0]
    """

    norm: Callable[[Int, Int], Float]  # (Q,) of R (Q,) and k (Q,)
    rel: int | None = None  # the lowest relevant grade; None: the parameter `rel`


@dataclass(frozen=True, slots=True)
class GainSum:
    """M = Σ_r w(r) · x(grade at rank r), where w never rises with r and x never falls."""

    gain: Callable[[Measure, Int], Float]  # x of grades
    weight: Callable[[Measure, Int], Float]  # w of ranks from 1; 0 past the cutoff


# Measures whose worst cases take an algorithm of their own.
Algorithm = Literal[
    "first relevant",
    "stopping",
    "ideal gain",
    "rarity gain",
    "average precision",
    "inferred precision",
    "interpolated precision",
    "R-precision",
    "preference",
    "set share",
    "relevant count",
    "all relevant",
    "covered aspects",
    "covered aspects, ideal",
]
# A function of a measure and an `unjudged.RunLists`, which returns `unjudged.Ends`.
UnjudgedEffect = (
    Extremes | CountOverNorm | CountOverRelevant | GainSum | Algorithm | Callable[..., Any]
)

# Which judged documents decide a measure, so that the others need no random order:
#   all       every judged document, those of grade 0 too
#   relevant  those above grade 0, listed or not; grade 0 is as good as unjudged
#   best      of those the k best, and those that are listed
#   listed    those above grade 0 that are listed
#   first     the first relevant document
#   aspects   every judged document, and which aspects of the query each covers
Reads = Literal["all", "relevant", "best", "listed", "first", "aspects"]


def is_free_of_unlisted(effect: object) -> bool:
    """True if unjudged documents that a run does not list cannot change its value.

    >>> from rankproof.measures.properties import is_free_of_unlisted
    >>> [is_free_of_unlisted(m.definition.unjudged) for m in (rp.P, rp.RR, rp.nDCG, rp.AP)]
    [True, True, False, False]
    """
    independent = ("first relevant", "stopping", "covered aspects")
    return isinstance(effect, CountOverNorm | GainSum | Extremes) or effect in independent
