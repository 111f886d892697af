"""What is judged beside each figure: evaluated along with it, and kept apart from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rankproof.evaluation import Evaluation
from rankproof.measures.registry import Measure
from rankproof.unjudged.bounds import judged_beside

NOTE = "judged: share of the top k that has a judgement; the rest counts as not relevant"


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


def some_unjudged(shares: Iterable[float]) -> bool:
    """Whether a table needs the column; a share that is not known (NaN) needs none."""
    return any(share < 1 for share in shares if not math.isnan(share))
