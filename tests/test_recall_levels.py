"""How many relevant documents reach a level of recall: trec_eval 9 rounds up, 10 to the nearest."""

from __future__ import annotations

import pytest

import rankproof as rp
from rankproof.evaluation import Like

RANKS = (1, 3, 6, 8, 11, 13, 15)
QRELS = {"q": {f"d{rank}": 1 for rank in RANKS}}
RUN = {"q": {f"d{rank}": -float(rank) for rank in range(1, 16)}}


def test_like_trec_eval_10_a_fifth_of_seven_documents_is_one() -> None:
    versions: tuple[Like, Like] = ("trec_eval", "trec_eval10")
    by_version = {
        like: rp.evaluate(QRELS, RUN, ["IPrec@0.2", "AP11"], like=like) for like in versions
    }
    assert by_version["trec_eval"]["IPrec@0.2"].expected == pytest.approx(2 / 3)
    assert by_version["trec_eval10"]["IPrec@0.2"].expected == 1.0
    nearest = rp.evaluate(QRELS, RUN, "AP11(rounding='nearest')")
    assert by_version["trec_eval10"]["AP11"].expected == nearest.figures().popitem()[1]


def test_bounds_over_unjudged_documents_round_alike() -> None:
    run = {"q": RUN["q"] | {"unjudged": -3.5}}
    cases: list[tuple[str, Like]] = [
        ("IPrec@0.2", "trec_eval10"),
        ("IPrec(rounding='nearest')@0.2", "trec_eval"),
    ]
    by_policy, explicit = (
        rp.evaluate(QRELS, run, measure, like=like, holes=True).bounds.popitem()[1]
        for measure, like in cases
    )
    assert by_policy == explicit
    assert by_policy.expected == 1.0
