"""Ties of many documents, whose orders cannot be enumerated one by one."""

from __future__ import annotations

import math
from random import Random

import pytest

import rankproof as rp

CASES = 150  # 10,000 take a few minutes


def draws(counts: list[int], drawn: int) -> list[tuple[int, list[int]]]:
    """Every way in which the drawn documents fall on the kinds, and how many orders have it."""
    if len(counts) == 1:
        return [(math.comb(counts[0], drawn), [drawn])]
    return [
        (math.comb(counts[0], first) * ways, [first, *others])
        for first in range(min(counts[0], drawn) + 1)
        for ways, others in draws(counts[1:], drawn - first)
        if ways
    ]


def test_udcg_is_that_of_every_draw_from_the_tie_at_the_cutoff() -> None:
    rng = Random(1)
    for _ in range(CASES):
        counts = [rng.choice([0, 1, rng.randint(0, 6), rng.randint(0, 14)]) for _ in range(4)]
        size = sum(counts)
        if size < 2:
            continue
        before, drawn = [rng.choice([5, 3, 2, 1]) for _ in range(rng.randint(0, 3))], 0
        drawn = rng.randint(1, size)
        penalty = rng.choice([0.0, 1 / 3, 0.7, 1.0])
        worth = {5: 1.0, 3: -penalty * 2 / 3, 2: -penalty / 3, 1: 0.0}
        tied = [grade for grade, count in zip(worth, counts, strict=True) for _ in range(count)]
        rng.shuffle(tied)
        k = len(before) + drawn
        measure = rp.UDCG(penalty=penalty) @ k
        scores = [float(len(before) - i) for i in range(len(before))] + [0.0] * size
        found = rp.evaluate_arrays([scores], [before + tied], [measure])[measure]
        total = mean = square = 0.0
        for ways, taken in draws(counts, drawn):
            help_ = sum(map(worth.__getitem__, before))
            help_ += sum(n * w for n, w in zip(taken, worth.values(), strict=True))
            value = 1 / (1 + math.exp(-help_ / k))
            total, mean, square = total + ways, mean + ways * value, square + ways * value**2
        mean, square = mean / total, square / total
        assert found.expected == pytest.approx(mean, rel=0, abs=1e-13), (counts, drawn)
        assert found.std is not None
        assert found.std**2 == pytest.approx(square - mean**2, rel=0, abs=1e-13), (counts, drawn)


def test_udcg_of_a_tie_of_a_million_documents_has_a_mean() -> None:
    grades = [5, 3, 2, 1] * 250_000
    found = rp.evaluate_arrays([[1.0] * len(grades)], [grades], "UDCG@300000")["UDCG@300000"]
    center = 1 / (1 + math.exp(-(0.25 - 0.25 / 3)))
    assert found.expected == pytest.approx(center, abs=1e-6)
    assert found.std == pytest.approx(0.0, abs=1e-3)
    assert found.min < found.expected < found.max
