"""What a configuration costs, what its candidates allow, and which one to deploy.

ceilings.py     the best any order of a pool reaches, and where there is something to gain
sensitivity.py  whether the constants of RAnWG decide the order of runs
novelty.py      RAnWG in which a source counts once
accuracy.py     how often the answer is right where all that answers was given
pairs.py        a source per document, a verdict per query, from whatever people hold
candidates.py   documents with their ranks, and with those of their tie group
prices.py       prices with a date, and the arithmetic of cost
chunked.py      a corpus cut in several ways, judged by the same spans
answers.py      what a prompt is worth to who answers from it
plan.py         what a sweep runs: its settings and configurations
stack.py        configurations from those parts
timing.py       how long their stages take, alone and under load
latency.py      times of single queries
outcomes.py     runs, times and prices → tables
sweep.py        every configuration of a grid, in a folder
results.py      that folder, or a table from elsewhere: the one reader; money as it is printed
pareto.py       which configurations no other dominates beyond noise
selection.py    limits, and the rules that choose within them
recommend.py    the choice within each limit, and what qualifies it, in words
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankproof.tradeoffs.accuracy import Accuracy, accuracy_given_hit
from rankproof.tradeoffs.ceilings import Ceiling, Ceilings, ceilings
from rankproof.tradeoffs.novelty import Novelty, novelty
from rankproof.tradeoffs.pareto import pareto_front
from rankproof.tradeoffs.recommend import Recommendation, efficiency, recommend
from rankproof.tradeoffs.sensitivity import Sensitivity, sensitivity

if TYPE_CHECKING:
    from rankproof.tradeoffs.prices import (
        Prices,
        generator_cost,
        machine_cost,
        read_prices,
        rerank_cost,
        search_cost,
    )

__all__ = [
    "Accuracy",
    "Ceiling",
    "Ceilings",
    "Novelty",
    "Prices",
    "Recommendation",
    "Sensitivity",
    "accuracy_given_hit",
    "ceilings",
    "efficiency",
    "generator_cost",
    "machine_cost",
    "novelty",
    "pareto_front",
    "read_prices",
    "recommend",
    "rerank_cost",
    "search_cost",
    "sensitivity",
]


def __getattr__(name: str) -> Any:
    """Prices are read with pydantic, which evaluating does not need."""
    if name not in __all__:
        raise AttributeError(f"module 'rankproof.tradeoffs' has no attribute {name!r}")
    import rankproof.foundation.config  # noqa: F401  names the extra where pydantic is not installed
    from rankproof.tradeoffs import prices

    return getattr(prices, name)
