"""Passages nearly equal to a better one, left out before they cost a reranker anything.

similarity(a, b) = |A ∩ B| / |A ∪ B|,  A and B the sets of n consecutive words of each text
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankproof.arrays import Int
from rankproof.config import Count, Settings, Share
from rankproof.errors import InputError

_WORD = re.compile(r"[^\W_]+")


class DuplicatesSettings(Settings):
    """Passages nearly equal to a better one are dropped before reranking."""

    threshold: Share = 0.9  # Jaccard similarity of word shingles
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
    """
    settings = settings or DuplicatesSettings()
    if settings.threshold == 0:
        raise InputError(
            "with the threshold 0 every passage repeats every other",
            place="duplicates",
            remedy="give a similarity above 0, such as 0.9",
        )
    kept: list[int] = []
    dropped: dict[str, str] = {}
    sets: list[frozenset[tuple[str, ...]]] = []
    holders: dict[tuple[str, ...], list[int]] = {}  # of each shingle: kept passages, by number
    for position, (identity, text) in enumerate(zip(ids, texts, strict=True)):
        own = shingles(text, settings.shingle)
        shared: dict[int, int] = {}
        for shingle in own:
            for number in holders.get(shingle, ()):
                shared[number] = shared.get(number, 0) + 1
        nearest, most = -1, 0.0
        for number, count in sorted(shared.items()):
            similarity = count / (len(own) + len(sets[number]) - count)
            if similarity >= settings.threshold and similarity > most:
                nearest, most = number, similarity
        if nearest >= 0:
            dropped[identity] = ids[kept[nearest]]
            continue
        for shingle in own:
            holders.setdefault(shingle, []).append(len(kept))
        kept.append(position)
        sets.append(own)
    return Suppressed(np.array(kept, np.int64), dropped)


def shingles(text: str, size: int) -> frozenset[tuple[str, ...]]:
    """Each run of `size` words; of a shorter text all its words as one. Case does not count."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    if not words:
        return frozenset()
    last = max(1, len(words) - size + 1)
    return frozenset(tuple(words[first : first + size]) for first in range(last))
