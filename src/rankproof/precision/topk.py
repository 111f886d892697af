"""The k best documents of every query, exactly, over any number of documents in blocks.

A block holds exact scores, or what a fast product found with the slack between it and the fixed
sum. Documents that can be among the k best are held until the sum has scored them. Of equal scores
the document that comes first is kept, so the result does not depend on the size of the blocks;
`cut` says how many documents were left out that tie with the last one kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankproof.foundation.arrays import Array
from rankproof.precision import fixed_sum
from rankproof.precision.fixed_sum import Slack
from rankproof.precision.formats import SHAPES, round_to

native: Any = fixed_sum.compiled("_topk")

# Scores (P,) of documents rows[start[i]:start[i+1]], ascending, for queries[i].
Score = Callable[[Array, Array, Array], Array]

_HELD = 1 << 22  # documents held for all queries together, where there are not more than 2 k each
_MOST = 1 << 16  # and for one


@dataclass(frozen=True, slots=True)
class TopK:
    """Best documents first.

    >>> from rankproof.precision import TopK
    >>> found = TopK(np.array([[0.9]]), np.array([[4]]), np.array([False]))
    >>> found.documents.tolist()
    [[4]]
    """

    scores: Array  # (Q, k) float32
    documents: Array  # (Q, k) int64, row numbers
    cut: Array  # (Q,) int64, documents left out that tie with the last one kept


class Shortlist:
    """What can be among the k best of what was offered; blocks come in the order of documents.

    `score` gives the fixed sums of documents whose products were offered, in the format `form`.
    """

    def __init__(self, queries: int, k: int, score: Score | None = None, form: str = "float32"):
        self.k = k
        self._queries = queries
        self._score = score
        self._form = form
        few = 2 * k + 256
        self._room = max(few, min(_MOST, _HELD // max(1, queries)))
        # Bounds and documents, of which a query uses the first `count`.
        self._low, self._high = (np.empty((queries, self._room), np.float32) for _ in range(2))
        self._documents = np.empty((queries, self._room), np.uint32)
        self._count = np.zeros(queries, np.int64)
        self._limit = np.full(queries, few, np.int64)
        self._bar = np.full(queries, np.nan, np.float32)  # the k-th best score; none yet
        self._tied = np.zeros(queries, np.int64)

    def offer(self, scores: Array, first: int, slack: Slack | None = None) -> None:
        """Scores (Q, B) of documents first, first + 1, …; final ones where there is no slack."""
        if native is None:
            self._offer_plain(scores, first, slack)
            return
        at = np.zeros(self._queries, np.int64)
        none = np.zeros(self._queries, np.float32)
        factor, extra, lengths = (
            (none, none, None) if slack is None else (slack.factor, slack.extra, slack.lengths)
        )
        while True:
            self._each(
                lambda low, high: native.offer(
                    *(self._held, self.k, self._room, scores, scores.shape[1], first),
                    *(factor, extra, lengths, *SHAPES[self._form], at, low, high),
                )
            )
            # One may be full at the very end of a block, and would have no room for the next.
            stuck = np.flatnonzero((at < scores.shape[1]) | (self._count >= self._limit))
            if not len(stuck):
                return
            self._settle(stuck)  # its bounds do not tell them apart

    def result(self) -> TopK:
        if native is not None:
            self._each(lambda low, high: native.compact(self._held, self.k, self._room, low, high))
            if self._score is not None:
                self._settle(np.arange(self._queries))
        kept = int(self._count.min(initial=self.k))
        if native is None:
            keys = _close(self._low[:, :kept], self._documents[:, :kept])
        else:
            keys = np.empty((self._queries, kept), np.uint64)
            at = (self._held, self.k, self._room, keys.view(np.int64), kept)
            self._each(lambda low, high: native.close(*at, low, high))
        self._each(lambda low, high: keys[low:high].sort(axis=1))
        return TopK(*_open(keys[:, ::-1]), self._tied)

    @property
    def _held(self) -> tuple[Array, ...]:
        return (
            *(self._low, self._high, self._documents),
            *(self._count, self._limit, self._bar, self._tied),
        )

    def _settle(self, queries: Array) -> None:
        """Score all that these queries hold, and keep the k best."""
        assert self._score is not None
        start = np.append(0, np.cumsum(self._count[queries]))
        held = np.empty(start[-1], np.int64)
        where = (self._held, self.k, self._room, queries, start, held)
        native.move(*where, None, self._queries)
        scores = np.ascontiguousarray(self._score(queries, start, held), np.float32)
        native.move(*where, scores, self._queries)
        self._each(lambda low, high: native.compact(self._held, self.k, self._room, low, high))

    def _each(self, work: Any) -> None:
        """`work(low, high)` over all queries, on every core."""
        pieces = min(fixed_sum.THREADS, self._queries)
        if pieces <= 1:
            work(0, self._queries)
            return
        cuts = [self._queries * i // pieces for i in range(pieces + 1)]
        list(fixed_sum.threads().map(work, cuts[:-1], cuts[1:]))

    def _offer_plain(self, scores: Array, first: int, slack: Slack | None) -> None:
        """Without compiled code every block is settled when it comes."""
        scores = scores + np.float32(0.0)
        documents = np.arange(first, first + scores.shape[1])
        keys = _close(scores, documents)
        if slack is not None:
            keys = self._settled(scores, documents, slack)
        held = int(self._count.max(initial=0))
        old = _close(self._low[:, :held], self._documents[:, :held])
        keys = np.sort(np.concatenate([old, keys], axis=1), axis=1)[:, ::-1]
        kept = min(self.k, keys.shape[1])
        if keys.shape[1] >= self.k:
            everything, _ = _open(keys)
            bar = everything[:, self.k - 1]
            left = (everything[:, self.k :] == bar[:, None]).sum(axis=1)
            self._tied = np.where(bar == self._bar, self._tied, 0) + left
            self._bar = bar
        self._low[:, :kept], self._documents[:, :kept] = _open(keys[:, :kept])
        self._count[:] = kept

    def _settled(self, scores: Array, documents: Array, slack: Slack) -> Array:
        """Keys of exact scores; 0 for documents that are not among the k best."""
        assert self._score is not None
        low, high = (round_to(bound, self._form) for bound in slack.bounds(scores))
        bar = np.where(np.isnan(self._bar), np.float32(-np.inf), self._bar)
        if low.shape[1] >= self.k:
            place = low.shape[1] - self.k
            bar = np.maximum(bar, np.partition(low, place, axis=1)[:, place])
        reach = high >= bar[:, None]
        unsure = reach & (low != high)
        start = np.append(0, np.cumsum(unsure.sum(axis=1)))
        chosen = documents[np.nonzero(unsure)[1]]
        low[unsure] = self._score(np.arange(len(low)), start, chosen)
        return np.where(reach, _close(low, documents), np.uint64(0))


def _close(scores: Array, documents: Array) -> Array:
    """Keys of scores (Q, B) and documents (B,) or (Q, B): larger is better, see _topk.c."""
    bits = (scores + np.float32(0.0)).astype(np.float32).view(np.uint32)
    ordered = np.where(bits & np.uint32(0x80000000), ~bits, bits | np.uint32(0x80000000))
    inverted = (~documents.astype(np.uint32)).astype(np.uint64)
    return (ordered.astype(np.uint64) << np.uint64(32)) | inverted


def _open(keys: Array) -> tuple[Array, Array]:
    """Scores and documents of keys."""
    ordered = (keys >> np.uint64(32)).astype(np.uint32)
    top = np.uint32(0x80000000)
    bits = np.where(ordered & top, ordered & ~top, ~ordered)
    documents = (~keys.astype(np.uint32)).astype(np.int64)
    return bits.view(np.float32), documents


def top_k(blocks: Iterable[Array], queries: int, k: int) -> TopK:
    """The k best of exact scores in blocks (Q, B), in document order."""
    shortlist = Shortlist(queries, k)
    first = 0
    for block in blocks:
        shortlist.offer(np.ascontiguousarray(block, np.float32), first)
        first += block.shape[1]
    return shortlist.result()


def near(scores: Array, k: int, slack: float) -> Array:
    """(n,) the rows whose score (N,) float32 lies no further than the slack below the k-th best,
    ascending."""
    if native is not None:
        rows = np.empty(min(len(scores), 4 * k + 256), np.int64)
        count = native.near(scores, k, slack, rows)
        if count >= 0:
            return rows[:count]
    bar = np.partition(scores, len(scores) - k)[len(scores) - k]
    return np.flatnonzero(scores >= float(bar) - slack)
