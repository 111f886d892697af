"""How far two top-k lists of the same query differ: overlap and Kendall's τ."""

from __future__ import annotations

import numpy as np

from rankproof.foundation.arrays import Float
from rankproof.precision.topk import TopK
from rankproof.statistics.rank_similarity import kendall_tau as tau_b


def overlap(one: TopK, other: TopK) -> Float:
    """(Q,) the share of the first list's documents that the second has, too."""
    is_same = one.documents[:, :, None] == other.documents[:, None, :]
    share: Float = is_same.any(axis=2).mean(axis=1)
    return share


def kendall(one: TopK, other: TopK) -> Float:
    """(Q,) τ-b over the documents of either list.

    A document that a list lacks ranks below all it has, tied with the others it lacks; equal scores
    tie. 1 for equal lists, at least −1, NaN where a list orders no pair.
    """
    absent = -np.inf
    is_same = one.documents[:, :, None] == other.documents[:, None, :]
    # Documents of `one`, then those of `other`; shared ones count at the first place only.
    scores_in_one = np.concatenate([one.scores, np.full(other.scores.shape, absent)], axis=1)
    shared_scores = np.where(is_same, other.scores[:, None, :], absent).max(axis=2)
    scores_in_other = np.concatenate([shared_scores, other.scores], axis=1)
    is_counted = np.concatenate([np.ones(one.scores.shape, bool), ~is_same.any(axis=1)], axis=1)
    return tau_b(scores_in_one, scores_in_other, is_counted)
