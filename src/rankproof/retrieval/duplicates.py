"""Near-duplicate passages, dropped before a reranker is paid for them.

    similarity(a, b) = |A ∩ B| / |A ∪ B|

where A and B are the sets of shingles (n consecutive words) of the two texts (Broder 1997).
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

    # Jaccard similarity of word shingles; with 0 every passage would repeat every other.
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.9
    shingle: Count = 3


@dataclass(frozen=True, slots=True)
class Suppressed:
    """The passages of a ranked pool that were kept and dropped."""

    kept: Int  # (K,) positions in the pool, ascending
    dropped: dict[str, str]  # id → id of the kept passage that it nearly repeats


def suppress(
    ids: Sequence[str], texts: Sequence[str], settings: DuplicatesSettings | None = None
) -> Suppressed:
    """Drop each passage that is at least `threshold` similar to a better one that was kept.

    Passages are given best first. A passage is compared only with those kept: where b repeats a,
    and c repeats b but not a, c stays. One that repeats several is recorded with the most similar,
    among equally similar ones with the best. A passage without words repeats nothing.

    >>> from rankproof.retrieval.duplicates import suppress
    >>> suppress(["d1", "d2"], ["the red fox saw a hen", "The red fox saw a hen."]).dropped
    {'d2': 'd1'}
    """
    settings = settings or DuplicatesSettings()
    sets = _number_by_rarity([shingles(text, settings.shingle) for text in texts])
    kept: list[int] = []
    dropped: dict[str, str] = {}
    index = _SimilarSets(settings.threshold)
    for position, numbers in enumerate(sets):
        similar = index.most_similar(numbers)
        if similar is None:
            index.add(numbers)
            kept.append(position)
        else:
            dropped[ids[position]] = ids[kept[similar]]
    return Suppressed(np.array(kept, np.int64), dropped)


def _number_by_rarity(sets: Sequence[Collection[Hashable]]) -> list[Int]:
    """Return each set as ascending numbers; the rarer a shingle, the lower its number."""
    counts = Counter(chain.from_iterable(sets))
    number = {shingle: n for n, (shingle, _) in enumerate(reversed(counts.most_common()))}
    return [np.sort(np.array([number[x] for x in members], np.int64)) for members in sets]


_ROUNDING = 1e-6  # shingles by which a computed bound may be too high


class _SimilarSets:
    """Finds the most similar of the sets added, without comparing with all of them.

    Sets a and b with similarity t share at least α = t/(1+t) · (|a| + |b|) shingles, and so at
    least t·|a|. By number, the first shared one is therefore among the |a| − ⌈t·|a|⌉ + 1 first of
    a (its prefix), and likewise of b; from there on both must contain α more. Shingles that all
    passages share have the highest numbers and are in no prefix (Bayardo, Ma and Srikant 2007).
    """

    def __init__(self, threshold: float):
        self._threshold = threshold
        # By shingle: the sets with it in their prefix, how many of each set's shingles follow
        # (itself included), and the size of each set.
        self._postings: dict[int, tuple[array[int], array[int], array[int]]] = {}
        self._shingles = array("q")  # of all sets, one after the other
        self._start = array("q", [0])

    def _prefix(self, members: Int) -> Int:
        """Return the shingles of a set, of which a similar set must share one."""
        shared = math.ceil(self._threshold * len(members) - _ROUNDING)
        return members[: len(members) - shared + 1]

    def add(self, members: Int) -> None:
        """Add a set to the index, under each shingle of its prefix."""
        set_number = len(self._start) - 1
        for position, shingle in enumerate(self._prefix(members).tolist()):
            posting = self._postings.setdefault(shingle, (array("q"), array("q"), array("q")))
            values = (set_number, len(members) - position, len(members))
            for column, value in zip(posting, values, strict=True):
                column.append(value)
        self._shingles.frombytes(members.tobytes())
        self._start.append(len(self._shingles))

    def most_similar(self, members: Int) -> int | None:
        """Return the number of the most similar set, the first among equally similar ones.

        Return None if all are less similar than the threshold.
        """
        candidates = self._candidates(members)
        if not len(candidates):
            return None
        start = np.frombuffer(self._start, np.int64)
        size = start[candidates + 1] - start[candidates]
        ends = np.cumsum(size)
        rows = np.arange(ends[-1]) + np.repeat(start[candidates] - ends + size, size)
        other_shingles = np.frombuffer(self._shingles, np.int64)[rows]
        places = np.minimum(np.searchsorted(members, other_shingles), len(members) - 1)
        shared = members[places] == other_shingles
        count = np.add.reduceat(shared, ends - size, dtype=np.int64)
        similarity = count / (len(members) + size - count)
        best = int(similarity.argmax())
        return int(candidates[best]) if similarity[best] >= self._threshold else None

    def _candidates(self, members: Int) -> Int:
        """Return the numbers of the added sets that may be similar enough, ascending.

        At a shared shingle, the sets can have at most as many in common as still follow in the
        shorter remainder; α of them are needed.
        """
        candidates = [np.empty(0, np.int64)]
        share = self._threshold / (1 + self._threshold)
        for position, shingle in enumerate(self._prefix(members).tolist()):
            if shingle not in self._postings:
                continue
            number, following, size = (np.frombuffer(x, np.int64) for x in self._postings[shingle])
            most_shared = np.minimum(len(members) - position, following)
            is_enough = most_shared >= share * (len(members) + size) - _ROUNDING
            candidates.append(number[is_enough])
        return np.unique(np.concatenate(candidates))


def shingles(text: str, size: int) -> frozenset[tuple[str, ...]]:
    """Return each run of `size` words, ignoring case; a shorter text is one shingle."""
    words = WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    if not words:
        return frozenset()
    last = max(1, len(words) - size + 1)
    return frozenset(tuple(words[first : first + size]) for first in range(last))
