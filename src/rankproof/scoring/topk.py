"""The k best documents of every query, exactly, over any number of documents in blocks.

Of equal scores the document that comes first is kept, so the result does not depend on the size
of the blocks; `cut` says how many documents were left out that tie with the last one kept.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankproof.arrays import Array

native: Any
try:
    if os.environ.get("RANKPROOF_NATIVE") == "0":
        raise ImportError  # noqa: TRY301
    native = importlib.import_module("rankproof.scoring._topk")
except ImportError:
    native = None

THREADS = max(1, min(8, os.cpu_count() or 1))


@dataclass(frozen=True, slots=True)
class TopK:
    """Best documents first."""

    scores: Array  # (Q, k) float32
    documents: Array  # (Q, k) int64, row numbers
    cut: Array  # (Q,) int64, documents left out that tie with the last one kept


class Shortlist:
    """The k best of what was offered so far; blocks must come in the order of the documents."""

    def __init__(self, queries: int, k: int):
        self.k = k
        self._queries = queries
        self._room = 2 * k + 256
        # A key holds a score above a document number: see _topk.c.
        self._keys = np.zeros((queries, self._room), np.uint64)
        self._count = np.zeros(queries, np.int64)
        self._bar = np.full(queries, -np.inf, np.float32)
        self._tied = np.zeros(queries, np.int64)
        self._pool = ThreadPoolExecutor(THREADS)

    def offer(self, scores: Array, first: int) -> None:
        """Scores (Q, B) of documents first, first + 1, …"""
        if native is None:
            self._offer_plain(scores, first)
            return
        self._each(
            lambda low, high: native.offer(
                *(scores, scores.shape[1], first, self.k, self._keys, self._room),
                *(self._count, self._bar, self._tied, low, high),
            )
        )

    def result(self) -> TopK:
        if native is not None:
            self._each(
                lambda low, high: native.finish(
                    *(self.k, self._keys, self._room, self._count, self._bar, self._tied),
                    *(low, high),
                )
            )
        kept = int(self._count.min(initial=self.k))
        self._each(lambda low, high: self._keys[low:high, :kept].sort(axis=1))
        self._pool.shutdown()
        return TopK(*_open(self._keys[:, :kept][:, ::-1]), self._tied)

    def _each(self, work: Any) -> None:
        """`work(low, high)` over all queries, on every core."""
        cuts = [self._queries * i // THREADS for i in range(THREADS + 1)]
        list(self._pool.map(work, cuts[:-1], cuts[1:]))

    def _offer_plain(self, scores: Array, first: int) -> None:
        fresh = _close(scores, np.arange(first, first + scores.shape[1]))
        held = int(self._count.max(initial=0))
        keys = np.sort(np.concatenate([self._keys[:, :held], fresh], axis=1), axis=1)[:, ::-1]
        kept = min(self.k, keys.shape[1])
        if keys.shape[1] >= self.k:
            everything, _ = _open(keys)
            bar = everything[:, self.k - 1]
            left = (everything[:, self.k :] == bar[:, None]).sum(axis=1)
            self._tied = np.where(bar > self._bar, 0, self._tied) + left
            self._bar = bar
        self._keys[:, :kept] = keys[:, :kept]
        self._count[:] = kept


def _close(scores: Array, documents: Array) -> Array:
    """Keys of scores (Q, B) and documents (B,)."""
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
    """The k best of score blocks (Q, B), in document order."""
    shortlist = Shortlist(queries, k)
    first = 0
    for block in blocks:
        shortlist.offer(np.ascontiguousarray(block, np.float32), first)
        first += block.shape[1]
    return shortlist.result()
