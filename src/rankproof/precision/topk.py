"""The k best documents of every query, exactly, over any number of documents in blocks.

Scores come in blocks of documents. They are exact, or products with a slack: bounds of the fixed
sums. Documents that can still be among the k best stay on a shortlist until the fixed sum has
scored them. Of documents with equal scores the one with the lower row number is kept, so that the
result does not depend on the size of the blocks; `cut` counts the documents outside the k best that
tie with the last one inside.

Compiled code (`_topk.c`) works on the shortlist's arrays; without it, numpy finds the k best after
each block. Results are ordered by 64-bit keys: the score in the upper 32 bits, the inverted row
number in the lower.
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

# Returns scores (P,) of documents rows[start[i]:start[i+1]], ascending, for queries[i].
Score = Callable[[Array, Array, Array], Array]

_SHORTLISTED = 1 << 22  # documents on all shortlists together; more only if 2 k each need it
_PER_QUERY = 1 << 16  # documents on one shortlist at most


@dataclass(frozen=True, slots=True)
class TopK:
    """The k best documents of each query, best first.

    >>> from rankproof.precision import TopK
    >>> best = TopK(np.array([[0.9]]), np.array([[4]]), np.array([False]))
    >>> best.documents.tolist()
    [[4]]
    """

    scores: Array  # (Q, k) float32
    documents: Array  # (Q, k) int64, row numbers
    cut: Array  # (Q,) int64, documents outside that tie with the last one inside


class Shortlist:
    """For each query, the documents that can still be among its k best.

    Blocks must come in the order of rows. `score` returns exact scores of documents that were
    offered as products; `form` is the format that these scores are rounded to.
    """

    def __init__(self, queries: int, k: int, score: Score | None = None, form: str = "float32"):
        self.k = k
        self._queries = queries
        self._score = score
        self._form = form
        smallest = 2 * k + 256
        self._capacity = max(smallest, min(_PER_QUERY, _SHORTLISTED // max(1, queries)))
        # Bounds of the score, and the document; query q uses the first count[q] of each.
        self._low, self._high = (np.empty((queries, self._capacity), np.float32) for _ in range(2))
        self._documents = np.empty((queries, self._capacity), np.uint32)
        self._count = np.zeros(queries, np.int64)
        self._limit = np.full(queries, smallest, np.int64)  # count at which C code drops losers
        self._threshold = np.full(queries, np.nan, np.float32)  # k-th best score; NaN: none yet
        self._tied = np.zeros(queries, np.int64)  # dropped documents that tie with the threshold

    def offer(self, scores: Array, first: int, slack: Slack | None = None) -> None:
        """Add scores (Q, B) of documents first, first + 1, …; without slack they are exact."""
        if native is None:
            self._offer_plain(scores, first, slack)
            return
        position = np.zeros(self._queries, np.int64)  # next document of the block, by query
        zeros = np.zeros(self._queries, np.float32)
        factor, extra, lengths = (
            (zeros, zeros, None) if slack is None else (slack.factor, slack.extra, slack.lengths)
        )
        shape = SHAPES[self._form]

        def offer_part(low: int, high: int) -> None:
            state = (self._arrays, self.k, self._capacity)
            block = (scores, scores.shape[1], first, factor, extra, lengths)
            native.offer(*state, *block, *shape, position, low, high)

        while True:
            self._run_on_threads(offer_part)
            # A list may also be full at the end of a block, without space for the next block.
            is_full = (position < scores.shape[1]) | (self._count >= self._limit)
            if not is_full.any():
                return
            self._score_exactly(np.flatnonzero(is_full))

    def result(self) -> TopK:
        """Return the k best of everything that was offered."""
        if native is not None:
            self._compact()
            if self._score is not None:
                self._score_exactly(np.arange(self._queries))
        list_length = int(self._count.min(initial=self.k))
        if native is None:
            keys = _keys_of(self._low[:, :list_length], self._documents[:, :list_length])
        else:
            keys = np.empty((self._queries, list_length), np.uint64)
            state = (self._arrays, self.k, self._capacity, keys.view(np.int64), list_length)
            self._run_on_threads(lambda low, high: native.close(*state, low, high))
        self._run_on_threads(lambda low, high: keys[low:high].sort(axis=1))
        return TopK(*_open_keys(keys[:, ::-1]), self._tied)

    @property
    def _arrays(self) -> tuple[Array, ...]:
        """The state that compiled code reads and writes, in its order."""
        bounds = (self._low, self._high, self._documents)
        return (*bounds, self._count, self._limit, self._threshold, self._tied)

    def _compact(self) -> None:
        """Drop documents that can no longer be among the k best."""
        state = (self._arrays, self.k, self._capacity)
        self._run_on_threads(lambda low, high: native.compact(*state, low, high))

    def _score_exactly(self, queries: Array) -> None:
        """Replace the bounds of all documents of these queries by their sums; keep the k best."""
        assert self._score is not None
        start = np.append(0, np.cumsum(self._count[queries]))
        documents = np.empty(start[-1], np.int64)
        state = (self._arrays, self.k, self._capacity, queries, start, documents)
        native.move(*state, None, self._queries)  # reads the documents
        scores = np.ascontiguousarray(self._score(queries, start, documents), np.float32)
        native.move(*state, scores, self._queries)  # writes their scores
        self._compact()

    def _run_on_threads(self, work: Callable[[int, int], Any]) -> None:
        """Call `work(low, high)` over all queries, on every core."""
        fixed_sum.run_on_threads(work, self._queries)

    def _offer_plain(self, scores: Array, first: int, slack: Slack | None) -> None:
        """Do the work of `offer` without compiled code: find the k best after each block."""
        scores = scores + np.float32(0.0)
        documents = np.arange(first, first + scores.shape[1])
        if slack is None:
            keys = _keys_of(scores, documents)
        else:
            keys = self._exact_keys(scores, documents, slack)
        count = int(self._count.max(initial=0))
        earlier = _keys_of(self._low[:, :count], self._documents[:, :count])
        keys = np.sort(np.concatenate([earlier, keys], axis=1), axis=1)[:, ::-1]
        list_length = min(self.k, keys.shape[1])
        if keys.shape[1] >= self.k:
            all_scores, _ = _open_keys(keys)
            threshold = all_scores[:, self.k - 1]
            dropped_ties = (all_scores[:, self.k :] == threshold[:, None]).sum(axis=1)
            self._tied = np.where(threshold == self._threshold, self._tied, 0) + dropped_ties
            self._threshold = threshold
        self._low[:, :list_length], self._documents[:, :list_length] = _open_keys(
            keys[:, :list_length]
        )
        self._count[:] = list_length

    def _exact_keys(self, scores: Array, documents: Array, slack: Slack) -> Array:
        """Return keys (Q, B) of fixed sums; 0 for documents that cannot be among the k best."""
        assert self._score is not None
        low, high = (round_to(bound, self._form) for bound in slack.bounds(scores))
        threshold = np.where(np.isnan(self._threshold), np.float32(-np.inf), self._threshold)
        if low.shape[1] >= self.k:
            place = low.shape[1] - self.k
            threshold = np.maximum(threshold, np.partition(low, place, axis=1)[:, place])
        can_win = high >= threshold[:, None]
        is_open = can_win & (low != high)
        start = np.append(0, np.cumsum(is_open.sum(axis=1)))
        chosen = documents[np.nonzero(is_open)[1]]
        low[is_open] = self._score(np.arange(len(low)), start, chosen)
        return np.where(can_win, _keys_of(low, documents), np.uint64(0))


def _keys_of(scores: Array, documents: Array) -> Array:
    """Return keys of scores (Q, B) and documents (B,) or (Q, B): a larger key is better.

    `_topk.c` makes the same keys.
    """
    bits = (scores + np.float32(0.0)).astype(np.float32).view(np.uint32)
    ordered = np.where(bits & np.uint32(0x80000000), ~bits, bits | np.uint32(0x80000000))
    inverted = (~documents.astype(np.uint32)).astype(np.uint64)
    return (ordered.astype(np.uint64) << np.uint64(32)) | inverted


def _open_keys(keys: Array) -> tuple[Array, Array]:
    """Return the scores and documents of keys."""
    ordered = (keys >> np.uint64(32)).astype(np.uint32)
    sign = np.uint32(0x80000000)
    bits = np.where(ordered & sign, ordered & ~sign, ~ordered)
    documents = (~keys.astype(np.uint32)).astype(np.int64)
    return bits.view(np.float32), documents


def top_k(blocks: Iterable[Array], queries: int, k: int) -> TopK:
    """Return the k best of exact scores in blocks (Q, B), in document order."""
    shortlist = Shortlist(queries, k)
    first = 0
    for block in blocks:
        shortlist.offer(np.ascontiguousarray(block, np.float32), first)
        first += block.shape[1]
    return shortlist.result()


def rows_near_top(scores: Array, k: int, slack: float) -> Array:
    """Return the rows (n,), ascending, whose score is at most `slack` below the k-th best."""
    if native is not None:
        rows = np.empty(min(len(scores), 4 * k + 256), np.int64)
        count = native.near(scores, k, slack, rows)
        if count >= 0:
            return rows[:count]
    threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
    return np.flatnonzero(scores >= float(threshold) - slack)
