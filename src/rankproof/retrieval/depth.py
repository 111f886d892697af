"""Dynamic K: rerank few candidates, and more only where the reranker is unsure of them.

    doubt(s) = − Σ p ln p / ln n,  p = softmax((s − mean)/std)    0 certain, 1 where all are equal

Standard scores make it the same whatever scale a reranker uses: probabilities, logits, cosines. At
which doubt it pays to go deep is learned on pilot queries, whose grades are known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankproof.foundation.arrays import Float
from rankproof.foundation.config import Count, NonNegative, Settings
from rankproof.foundation.errors import InputError


class DepthSettings(Settings):
    """Dynamic K: start shallow, go deep where the reranker is unsure."""

    start: Count = 50
    deep: Count = 100
    pilot: Count = 30  # queries, at most half of all, on which the threshold is learned
    lose: NonNegative = 0.005  # of the quality of all deep


def doubt(scores: Any) -> float:
    """How evenly softmax spreads over n standard scores: 0 certain, 1 uniform.

    A single score has nothing that it could be mistaken for: 0.

    >>> from rankproof.retrieval.depth import doubt
    >>> doubt([0.82, 0.31, 0.30, 0.29]) < doubt([0.62, 0.61, 0.30, 0.29])
    True
    """
    values = _scores(scores)
    if len(values) == 1:
        return 0.0
    values = values / (np.abs(values).max() or 1.0)  # squares stay in range
    spread = values.std()
    if spread < 1e-12:
        return 1.0
    below = (values - values.max()) / spread
    weight = np.exp(below)
    total = weight.sum()
    # ln Σw − Σ w ln w / Σw is −Σ p ln p, without the logarithm of a p that is 0.
    plain = np.log(total) - (weight * below).sum() / total
    return float(np.clip(plain / np.log(len(values)), 0.0, 1.0))


def learn_threshold(doubts: Float, gained: Float, lose: float) -> float:
    """The doubt above which to go deep: the fewest of the pilot queries, the most doubtful first,
    such that staying shallow with the others loses no more than `lose` on average.

    `gained` (P,) is what each query's quality gains by going deep; undefined ones do not count.

    >>> from rankproof.retrieval.depth import learn_threshold
    >>> doubts, gained = np.array([0.5, 0.6, 0.8, 0.9]), np.array([0.0, 0.0, 0.1, 0.2])
    >>> round(learn_threshold(doubts, gained, lose=0.01), 3)
    0.7
    """
    known = ~np.isnan(gained)
    if not known.any():
        return -np.inf
    order = np.argsort(-doubts[known], kind="stable")
    falling, lost = doubts[known][order], gained[known][order]
    # left[j]: the mean loss where the j most doubtful go deep.
    left = (lost.sum() - np.concatenate([[0.0], np.cumsum(lost)])) / len(lost)
    # Queries of equal doubt go together.
    possible = np.concatenate([[True], falling[1:] < falling[:-1], [True]])
    deep = int(np.flatnonzero((left <= lose + 1e-12) & possible)[0])
    if deep == len(falling):
        return -np.inf
    return float(falling[deep] if deep == 0 else (falling[deep - 1] + falling[deep]) / 2)


def _scores(scores: Any) -> Float:
    values = np.asarray(scores, np.float64)
    if values.ndim != 1 or not len(values):
        raise InputError(
            f"scores of the shape {values.shape}", place="depth", remedy="give those of one query"
        )
    if not np.isfinite(values).all():
        raise InputError(
            "a score that is not finite", place="depth", remedy="score that candidate again"
        )
    return values
