"""Passages nearly equal to a better one, left out before they cost a reranker anything.

similarity(a, b) = |A ∩ B| / |A ∪ B|,  A and B the sets of n consecutive words of each text
"""

from __future__ import annotations

import math
import unicodedata
from array import array
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated

import numpy as np
from pydantic import Field

from rankproof.foundation.arrays import Int
from rankproof.foundation.config import Count, Settings
from rankproof.retrieval.languages import WORD


class DuplicatesSettings(Settings):
    """Passages nearly equal to a better one are dropped before reranking.

    >>> from rankproof.retrieval.duplicates import DuplicatesSettings
    >>> DuplicatesSettings().threshold
    0.9
    """

    # Jaccard similarity of word shingles; with 0 every passage repeats every other.
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.9
    shingle: Count = 3


@dataclass(frozen=True, slots=True)
class Suppressed:
    """What is left of a ranked pool, and what was dropped for which."""

    kept: Int  # (K,) positions, in the order given
    dropped: dict[str, str]  # id → id of the kept passage that it nearly repeats


def suppress(
    ids: Sequence[str], texts: Sequence[str], settings: DuplicatesSettings | None = None
) -> Suppressed:
    """Drop each passage that is at least `threshold` similar to a better one that was kept.

    Passages stand best first. A passage is compared with those kept alone: where b repeats a, and c
    repeats b but not a, c stays. One that repeats several goes for the most similar, of equally
    similar ones for the best. A passage without words repeats nothing.

    >>> from rankproof.retrieval.duplicates import suppress
    >>> suppress(["d1", "d2"], ["the red fox saw a hen", "The red fox saw a hen."]).dropped
    {'d2': 'd1'}
    """
    settings = settings or DuplicatesSettings()
    sets = _ordered([shingles(text, settings.shingle) for text in texts])
    kept: list[int] = []
    dropped: dict[str, str] = {}
    index = _Index(settings.threshold)
    for position, (identity, own) in enumerate(zip(ids, sets, strict=True)):
        found = index.nearest(own)
        if found is None:
            index.add(own)
            kept.append(position)
        else:
            dropped[identity] = ids[kept[found]]
    return Suppressed(np.array(kept, np.int64), dropped)


def _ordered(sets: Sequence[Collection[Hashable]]) -> list[Int]:
    """Each set as numbers, ascending; the rarer a shingle, the lower its number."""
    held = Counter(chain.from_iterable(sets))
    by_rarity = {shingle: at for at, (shingle, _) in enumerate(reversed(held.most_common()))}
    return [np.sort(np.array([by_rarity[x] for x in own], np.int64)) for own in sets]


class _Index:
    """Which of the sets kept may be so similar to another, without a look at the common shingles.

    Sets a and b with similarity t share at least α = t/(1+t) · (|a| + |b|) shingles, and so at
    least t·|a|: by number, the first they share is among the |a| − ⌈t·|a|⌉ + 1 first of a, and of b
    likewise. From there on both must hold α more. What all passages share stands last.
    """

    def __init__(self, threshold: float):
        self._threshold = threshold
        # Of each shingle: which sets hold it, how much of the set is left there, and its size.
        self._holders: dict[int, tuple[array[int], array[int], array[int]]] = {}
        self._shingles = array("q")  # of all sets, one after the other
        self._start = array("q", [0])

    def _first(self, own: Int) -> Int:
        least = math.ceil(self._threshold * len(own) - _ROUNDING)
        return own[: len(own) - least + 1]

    def add(self, own: Int) -> None:
        count = len(self._start) - 1
        for at, shingle in enumerate(self._first(own).tolist()):
            holders = self._holders.setdefault(shingle, (array("q"), array("q"), array("q")))
            for column, value in zip(holders, (count, len(own) - at, len(own)), strict=True):
                column.append(value)
        self._shingles.frombytes(own.tobytes())
        self._start.append(len(self._shingles))

    def nearest(self, own: Int) -> int | None:
        """The number of the most similar set, of equally similar ones the first; None where all are
        less similar than the threshold.
        """
        some = self._candidates(own)
        if not len(some):
            return None
        start = np.frombuffer(self._start, np.int64)
        size = start[some + 1] - start[some]
        ends = np.cumsum(size)
        at = np.arange(ends[-1]) + np.repeat(start[some] - ends + size, size)
        theirs = np.frombuffer(self._shingles, np.int64)[at]
        shared = own[np.minimum(np.searchsorted(own, theirs), len(own) - 1)] == theirs
        count = np.add.reduceat(shared, ends - size, dtype=np.int64)
        similarity = count / (len(own) + size - count)
        best = int(similarity.argmax())
        return int(some[best]) if similarity[best] >= self._threshold else None

    def _candidates(self, own: Int) -> Int:
        """The numbers of the sets that may be as similar, ascending."""
        found = [np.empty(0, np.int64)]
        share = self._threshold / (1 + self._threshold)
        for at, shingle in enumerate(self._first(own).tolist()):
            if shingle not in self._holders:
                continue
            number, left, size = (np.frombuffer(x, np.int64) for x in self._holders[shingle])
            most = np.minimum(len(own) - at, left)
            enough = most >= share * (len(own) + size) - _ROUNDING
            found.append(number[enough])
        return np.unique(np.concatenate(found))


_ROUNDING = 1e-6  # shingles: a bound may be off by that, a similarity never


def shingles(text: str, size: int) -> frozenset[tuple[str, ...]]:
    """Each run of `size` words; of a shorter text all its words as one. Case does not count."""
    words = WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    if not words:
        return frozenset()
    last = max(1, len(words) - size + 1)
    return frozenset(tuple(words[first : first + size]) for first in range(last))
