"""How far two top-k lists of the same query differ: overlap and Kendall's τ."""

from __future__ import annotations

import numpy as np

from rankproof.foundation.arrays import Float
from rankproof.precision.topk import TopK
from rankproof.statistics.rank_similarity import kendall_tau as tau_b


def overlap(one: TopK, other: TopK) -> Float:
    """(Q,) the share of a list's documents that the other holds too."""
    shared = one.documents[:, :, None] == other.documents[:, None, :]
    share: Float = shared.any(axis=2).mean(axis=1)
    return share


def kendall(one: TopK, other: TopK) -> Float:
    """(Q,) τ-b over the documents of either list.

    A document that a list lacks stands below all it holds, tied with the others it lacks; equal
    scores tie. 1 for equal lists, −1 at the least, NaN where a list orders no pair.
    """
    absent = -np.inf
    same = one.documents[:, :, None] == other.documents[:, None, :]
    found = np.where(same, other.scores[:, None, :], absent).max(axis=2)
    alone = ~same.any(axis=1)  # of the other list's documents
    ours = np.concatenate([one.scores, np.full(other.scores.shape, absent)], axis=1)
    theirs = np.concatenate([found, other.scores], axis=1)
    counted = np.concatenate([np.ones(one.scores.shape, bool), alone], axis=1)
    return tau_b(ours, theirs, counted)
