"""Which configurations no other dominates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankproof.arrays import Array, Bool
from rankproof.errors import InputError
from rankproof.measures.registry import Measure, parse

_CELLS = 1 << 22  # of the comparisons held at a time


def quality_measure(name: str) -> Measure:
    """A measure of which more is better, so that it can be a quality."""
    measure = parse(name)
    if measure.name == "Harm":
        raise InputError(f"{measure} is no quality: less is better", remedy="use P4@10, say")
    return measure


def pareto_front(
    cost: Sequence[float] | Array,
    latency: Sequence[float] | Array,
    quality: Sequence[float] | Array,
) -> Bool:
    """(N,) whether no other is as cheap, as fast and as good, and better in one of these.

    Configurations that are equal in all three do not dominate each other: all are kept.
    """
    columns = [np.asarray(x, np.float64) for x in (cost, latency, quality)]
    if any(x.ndim != 1 for x in columns) or len({len(x) for x in columns}) != 1:
        shapes = ", ".join(str(x.shape) for x in columns)
        raise InputError(
            f"cost, latency and quality of shapes {shapes}",
            remedy="give three columns of the same length",
        )
    for name, column in zip(("cost", "latency", "quality"), columns, strict=True):
        if np.isnan(column).any():
            raise InputError(
                f"{name} is not a number",
                place=f"row {int(np.isnan(column).argmax()) + 1}",
                remedy="measure it, or leave the configuration out",
            )
    worse = np.stack([columns[0], columns[1], -columns[2]], axis=1)  # less is better in each
    kept = np.empty(len(worse), np.bool_)
    step = max(1, _CELLS // max(1, len(worse)))
    for low in range(0, len(worse), step):
        mine = worse[low : low + step, None, :]
        no_worse: Bool = np.all(worse[None, :, :] <= mine, axis=2)
        better: Bool = np.any(worse[None, :, :] < mine, axis=2)
        kept[low : low + step] = ~np.any(no_worse & better, axis=1)
    return kept
