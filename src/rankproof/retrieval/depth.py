"""Dynamic depth: rerank few candidates, and more only where the reranker is uncertain.

    doubt(s) = − Σ p ln p / ln n,  p = softmax((s − mean)/std)    0 certain, 1 where all are equal

This is the normalized entropy of the scores. Standardizing them makes it independent of the scale
that a reranker uses: probabilities, logits, cosines. The threshold of doubt above which it pays to
rerank deep is learned on pilot queries, whose grades are known.
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
    """Return the normalized entropy of one query's scores: 0 certain, 1 uniform.

    It is 0 for a single score.

    >>> from rankproof.retrieval.depth import doubt
    >>> doubt([0.82, 0.31, 0.30, 0.29]) < doubt([0.62, 0.61, 0.30, 0.29])
    True
    """
    values = _check_scores(scores)
    if len(values) == 1:
        return 0.0
    values = values / (np.abs(values).max() or 1.0)  # squares stay in range
    spread = values.std()
    if spread < 1e-12:
        return 1.0
    log_weight = (values - values.max()) / spread
    weight = np.exp(log_weight)
    total = weight.sum()
    # −Σ p ln p written as ln Σw − Σ w ln w / Σw, which avoids the logarithm of a p that is 0.
    entropy = np.log(total) - (weight * log_weight).sum() / total
    return float(np.clip(entropy / np.log(len(values)), 0.0, 1.0))


def learn_threshold(doubts: Float, gained: Float, lose: float) -> float:
    """Return the doubt above which to rerank deep.

    With it as few pilot queries as possible are reranked deep, those with the largest doubt first,
    while the mean quality lost on the others is at most `lose`. `gained` (P,) is the quality that
    deep reranking adds to each query; queries with NaN are ignored.

    >>> from rankproof.retrieval.depth import learn_threshold
    >>> doubts, gained = np.array([0.5, 0.6, 0.8, 0.9]), np.array([0.0, 0.0, 0.1, 0.2])
    >>> round(learn_threshold(doubts, gained, lose=0.01), 3)
    0.7
    """
    is_known = ~np.isnan(gained)
    if not is_known.any():
        return -np.inf
    order = np.argsort(-doubts[is_known], kind="stable")
    doubts, gained = doubts[is_known][order], gained[is_known][order]  # the largest doubt first
    # mean_loss[j]: where the first j queries are reranked deep.
    mean_loss = (gained.sum() - np.concatenate([[0.0], np.cumsum(gained)])) / len(gained)
    # A threshold cannot separate queries of equal doubt.
    is_boundary = np.concatenate([[True], doubts[1:] < doubts[:-1], [True]])
    deep = int(np.flatnonzero((mean_loss <= lose + 1e-12) & is_boundary)[0])
    if deep == len(doubts):
        return -np.inf
    return float(doubts[deep] if deep == 0 else (doubts[deep - 1] + doubts[deep]) / 2)


def _check_scores(scores: Any) -> Float:
    """Return the scores of one query as float64; refuse other shapes and numbers not finite."""
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
