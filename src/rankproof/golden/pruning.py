"""Choose which graded passages are put in order."""

from __future__ import annotations

from collections.abc import Sequence

from rankproof.golden.settings import PruningSettings


def prune(grades: Sequence[int | None], settings: PruningSettings) -> list[int]:
    """Positions of the passages to be put in order, from a pool in RRF order.

    1. Every passage of grade 5 is chosen, however many there are.
    2. So many of the best by RRF of grade 1 or 2 are chosen as `negatives` says, so that the order
       has a foot to stand on.
    3. Passages of grade 4, then 3, 2 and 1, each bucket in RRF order, fill up the places that are
       left of max(size, target).

    A passage that has no grade because the judge failed is not chosen; it is counted elsewhere.
    Positions come back by grade, then RRF.
    """
    buckets = {grade: [at for at, g in enumerate(grades) if g == grade] for grade in range(1, 6)}
    chosen = set(buckets[5])
    chosen |= set(sorted(buckets[1] + buckets[2])[: settings.negatives])
    places = max(settings.size, settings.target)
    for grade in (4, 3, 2, 1):
        free = max(0, places - len(chosen))
        chosen |= set([at for at in buckets[grade] if at not in chosen][:free])
    return [at for grade in (5, 4, 3, 2, 1) for at in buckets[grade] if at in chosen]
