"""Which aspects of its query each judged document covers: diversity qrels, and nuggets.

A judgment with aspects is one row of `Qrels`, whose grade is the highest over its aspects: measures
that do not use aspects read it like any other. The aspects are stored in separate arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from rankproof.foundation.arrays import Bool, Int

PARTIAL, NOT_COVERED = 0, -1  # grades of nuggets that a passage supports in part, or not at all


@dataclass(frozen=True, slots=True, eq=False)
class Covered:
    """The aspects that each of N judged documents covers at some threshold."""

    start: Int  # (N+1,) document n covers aspect[start[n]:start[n+1]]
    aspect: Int  # ascending within a document
    kind: Int  # (N,) equal for documents that cover the same aspects; −1: none


@dataclass(frozen=True, slots=True, eq=False)
class Aspects:
    """The grades of N judgments for single aspects.

    >>> rows = [("q1", "1", "a", 1), ("q1", "2", "a", 1), ("q1", "2", "b", 2)]
    >>> qrels = rp.read_qrels(rows, aspects=True)
    >>> qrels.grade.tolist(), qrels.aspects.aspect.tolist()
    ([1, 2], [0, 1, 1])
    """

    start: Int  # (N+1,) judgment n has entries start[n]:start[n+1] of the next three
    aspect: Int  # (E,) numbered in order of appearance; ascending within a judgment
    grade: Int  # (E,) from 1; of nuggets also PARTIAL and NOT_COVERED
    vital: Bool | None  # (E,) of nuggets; None: the aspects have no importance
    by_id: Int  # (N,) place of the document among all ids, descending
    cache: dict[Any, Covered] = field(default_factory=dict, repr=False)

    def covered(self, rel: int, vital_only: bool = False) -> Covered:
        """Return the aspects with at least grade `rel`; computed once."""
        if (rel, vital_only) not in self.cache:
            chosen = self.grade >= rel
            if vital_only and self.vital is not None:
                chosen &= self.vital
            self.cache[rel, vital_only] = _covered(self.start, self.aspect, chosen)
        return self.cache[rel, vital_only]

    def rows(self, judgment: Int) -> list[list[int]]:
        """Return judgment, aspect, grade and importance of the entries of some judgments."""
        owner = np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))
        vital = np.zeros(len(owner), np.bool_) if self.vital is None else self.vital
        table = np.stack([owner, self.aspect, self.grade, vital], axis=1)
        return [list(row) for row in table[np.isin(owner, judgment)].tolist()]


def _covered(start: Int, aspect: Int, chosen: Bool) -> Covered:
    judgment = np.repeat(np.arange(len(start) - 1), np.diff(start))[chosen]
    aspect = aspect[chosen]
    counts = np.bincount(judgment, minlength=len(start) - 1)
    kind = np.full(len(start) - 1, -1)
    sets = (
        pl.DataFrame({"judgment": judgment, "aspect": aspect})
        .group_by("judgment", maintain_order=True)
        .agg(pl.col("aspect").cast(pl.String).str.join(" "))
    )
    kind[sets["judgment"].to_numpy()] = sets["aspect"].rank("dense").to_numpy().astype(np.int64)
    return Covered(np.append(0, np.cumsum(counts)), aspect, kind)
