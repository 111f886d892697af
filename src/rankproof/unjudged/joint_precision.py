"""The highest difference of AP of two runs over every set of relevant unjudged documents.

With w(r) = 1/r in the top k and 0 elsewhere, AP · (relevant documents) is the sum of w(max(r, s))
over all pairs of relevant documents at ranks r ≤ s, each with itself included. If the documents of
a set S are relevant besides the judged ones, that is

    base + Σ_{h ∈ S} added_h + Σ_{g < h in S} min(w_g, w_h)

which both runs divide by the same R + |S|. All sets of documents that both runs list are tried. Of
those that one run alone lists, with any of them relevant, the first of a are best for a − b, and
the last of b: moving a relevant document up never lowers AP.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankproof.foundation.arrays import Array, Float, Int
from rankproof.measures import Measure
from rankproof.measures.linear import within_cutoff
from rankproof.unjudged.unjudged_documents import PartlyJudged

MAX_DOCUMENTS = 12  # unjudged ones of a query: at most 4,096 sets
_CELLS = 1 << 20  # values in memory at a time
_KEY = np.int64(1) << 40  # sort keys are query · _KEY + rank: ranks stay below it


@dataclass(frozen=True, slots=True, eq=False)
class PrecisionSum:
    """AP of a run times the number of relevant documents, by which unjudged ones are relevant."""

    base: Float  # (Q,) with no unjudged document relevant
    added: Float  # (H,) by each unjudged document if it alone is relevant
    weight: Float  # (H,)

    @classmethod
    def of(
        cls, measure: Measure, run: PartlyJudged, query: Int, rank: Int, *, best: bool
    ) -> PrecisionSum:
        """The sum of a run whose ties are broken for the best or the worst value.

        `query` and `rank` (H,) are of the unjudged documents.
        """
        groups, place = run.groups, run.groups.place_by_grade
        relevant = np.flatnonzero(groups.grade >= measure.threshold)
        judged_rank = (groups.best_rank(place) if best else groups.worst_rank(place))[relevant]
        keys = np.sort(groups.doc_query[relevant] * _KEY + judged_rank)
        judged_query = keys // _KEY
        judged_weight = _weights(measure, keys % _KEY)
        first = np.searchsorted(keys, np.arange(groups.queries + 1) * _KEY)
        terms = judged_weight * (np.arange(len(keys)) - first[judged_query] + 1)
        position = np.searchsorted(keys, query * _KEY + np.minimum(rank, _KEY - 1))
        weight_before = np.append(0.0, np.cumsum(judged_weight))
        weight = _weights(measure, rank)
        below = weight_before[first[query + 1]] - weight_before[position]
        return cls(
            base=groups.sum_by_query(judged_query, terms),
            added=weight * (position - first[query] + 1) + below,
            weight=weight,
        )


def _weights(measure: Measure, rank: Int) -> Float:
    """1/rank in the top k, else 0."""
    return np.where(within_cutoff(measure, rank), 1.0 / rank, 0.0)


def highest_gap(a: PrecisionSum, b: PrecisionSum, relevant: Int, count: Int) -> Float:
    """(Q,) the highest (a − b)/(R + |S|) over all sets S; infinite where there are too many.

    `relevant` (Q,) judged documents count as R, `count` (Q,) are unjudged; they ascend by query.
    """
    highest = np.full(len(count), np.inf)
    query = np.repeat(np.arange(len(count)), count)
    only_a = (a.weight > 0) & (b.weight == 0)
    kind = np.where(only_a, 1, np.where(a.weight == 0, 2, 0))  # 0: both runs list it
    order = np.lexsort((np.where(only_a, -a.weight, b.weight), kind, query))
    counts = np.stack([np.bincount(query[kind == k], minlength=len(count)) for k in range(3)])
    start = np.cumsum(count) - count
    shared = np.where(count <= MAX_DOCUMENTS, counts[0], -1)
    for m in np.unique(shared[shared >= 0]).tolist():
        queries = np.flatnonzero(shared == m)
        cells = len(queries) * 2**m * (MAX_DOCUMENTS + 1 - m) ** 2
        for chosen in np.array_split(queries, cells // _CELLS + 1):
            ends = np.cumsum(counts[:, chosen], axis=0) + start[chosen]
            documents = _Documents(
                shared=order[start[chosen, None] + np.arange(m)],
                only_a=_padded(order, ends[0], counts[1, chosen]),
                only_b=_padded(order, ends[1], counts[2, chosen]),
            )
            gap = (a.base - b.base)[chosen]
            highest[chosen] = documents.highest_gap(a, b, gap, relevant[chosen])
    return highest


def _padded(order: Int, start: Int, count: Int) -> Int:
    """(n, m) the documents order[start : start + count] of each query; −1 behind the last."""
    column = np.arange(count.max(initial=0))
    is_document = column < count[:, None]
    return np.where(is_document, order[np.where(is_document, start[:, None] + column, 0)], -1)


@dataclass(frozen=True, slots=True, eq=False)
class _Documents:
    """The unjudged documents of n queries, in the order in which they become relevant."""

    shared: Int  # (n, m)
    only_a: Int  # (n, i) best first; −1: none
    only_b: Int  # (n, j) those that b does not list first, then its last first; −1: none

    def highest_gap(self, a: PrecisionSum, b: PrecisionSum, base: Float, relevant: Int) -> Float:
        """(n,) the highest (a − b)/(R + |S|)."""
        has_document = _sets(self.shared.shape[1])
        sums = base[:, None] + self._sums(a, has_document) - self._sums(b, has_document)
        of_a = self._added_by_first(a, self.only_a, has_document)
        of_b = self._added_by_first(b, self.only_b, has_document)
        gap = sums[:, None, None] + of_a[:, :, None] - of_b[:, None]  # (n, i, j, 2^m)
        first_a, first_b = np.ogrid[: of_a.shape[1], : of_b.shape[1]]
        size = (first_a + first_b)[:, :, None] + has_document.sum(axis=1)
        with np.errstate(invalid="ignore"):
            share = gap / (relevant[:, None, None, None] + size)
        return np.asarray(np.fmax.reduce(share, axis=(1, 2, 3)))

    def _sums(self, run: PrecisionSum, has_document: Float) -> Float:
        """(n, 2^m) what the shared documents add to a run, for each set of them."""
        weight = run.weight[self.shared]
        sums = np.zeros((len(weight), 1))
        for j in range(weight.shape[1]):  # the sets with document j follow those without
            with_earlier = (
                np.minimum(weight[:, :j], weight[:, j, None]) @ has_document[: 2**j, :j].T
            )
            alone = run.added[self.shared[:, j], None]
            sums = np.concatenate([sums, sums + alone + with_earlier], axis=1)
        return sums

    def _added_by_first(self, run: PrecisionSum, documents: Int, has_document: Float) -> Float:
        """(n, i + 1, 2^m) what the first 0 … i of some documents add; NaN where there are fewer."""
        weight, of_shared = run.weight[documents], run.weight[self.shared]
        pairs = np.minimum(weight[:, :, None], weight[:, None])
        alone = run.added[documents] + np.tril(pairs, -1).sum(axis=2)
        with_set = np.minimum(weight[:, :, None], of_shared[:, None]) @ has_document.T
        steps = np.where(documents[:, :, None] >= 0, alone[:, :, None] + with_set, np.nan)
        none = np.zeros((len(documents), 1, len(has_document)))
        return np.concatenate([none, np.cumsum(steps, axis=1)], axis=1)


def _sets(m: int) -> Float:
    """(2^m, m) 1 where a set has a document: set number s where bit j of s is set."""
    has_document: Array = np.arange(2**m)[:, None] >> np.arange(m) & 1
    return has_document.astype(np.float64)
