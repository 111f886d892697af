"""A published pair of score lists: one query's candidates in bfloat16 and in high precision.

They are not in the repository: `RANKPROOF_DATA` names a data folder beside which they lie.
"""

from __future__ import annotations

import json
import os
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

import rankproof as rp

DATA = Path(os.environ.get("RANKPROOF_DATA", Path(__file__).parents[2] / "shared" / "data"))
LISTS = DATA.parent / "paper-appendix-b.json"


@pytest.fixture(scope="module")
def lists() -> tuple[list[float], list[float]]:
    if not LISTS.exists():
        pytest.skip("the published lists are not at hand (RANKPROOF_DATA)")
    found = json.loads(LISTS.read_text())
    return found["scores_bf16"], found["scores_hps"]


def test_high_precision_never_contradicts_the_bfloat16_order(
    lists: tuple[list[float], list[float]],
) -> None:
    low, high = (np.array(x) for x in lists)
    ahead = low[:, None] > low[None, :]
    assert (high[:, None] >= high[None, :])[ahead].all()


def test_bfloat16_leaves_33_of_100_scores_and_high_precision_twice_that(
    lists: tuple[list[float], list[float]],
) -> None:
    runs = [{"q": {f"d{i:03d}": s for i, s in enumerate(scores)}} for scores in lists]
    low, high = (rp.tie_statistics(run, [10, 100]) for run in runs)
    sizes = [len(list(g)) for _, g in groupby(lists[0])]
    assert low.at[1].distinct == len(sizes) == 33
    assert low.largest == max(sizes) == 17
    assert (low.at[0].distinct, high.at[0].distinct) == (1, len(set(lists[1][:10])))
    assert high.at[1].distinct == len(set(lists[1])) == 66
    assert high.largest < low.largest / 4


def test_a_tie_at_the_top_makes_recall_arbitrary_in_bfloat16_alone(
    lists: tuple[list[float], list[float]],
) -> None:
    relevant = [[1 if i == 5 else 0 for i in range(100)]]
    low, high = (rp.evaluate_arrays([scores], relevant, "R@3")["R@3"] for scores in lists)
    assert low.expected == pytest.approx(0.3)
    assert low.range == 1.0
    assert high.range == 0.0
