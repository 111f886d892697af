"""What is judged beside each figure: evaluated along with it, and kept apart from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rankproof.evaluation import Evaluation
from rankproof.measures.registry import Measure
from rankproof.unjudged.bounds import judged_beside


def with_judged(measures: Sequence[Measure]) -> list[Measure]:
    """The measures, and Judged@k for each of their cutoffs."""
    return list(dict.fromkeys([*measures, *map(judged_beside, measures)]))


def set_beside(evaluation: Evaluation, measures: Sequence[Measure]) -> Evaluation:
    """The evaluation of what was asked for, with what is judged beside each figure."""
    return replace(
        evaluation,
        outcomes={m: evaluation.outcomes[m] for m in measures},
        judged={m: evaluation[judged_beside(m)].expected for m in measures},
    )
