"""How far two top-k lists of the same query differ: overlap and Kendall's τ."""

from __future__ import annotations

import numpy as np

from rankproof.arrays import Float
from rankproof.scoring.topk import TopK


def overlap(one: TopK, other: TopK) -> Float:
    """(Q,) the share of a list's documents that the other holds too."""
    shared = one.documents[:, :, None] == other.documents[:, None, :]
    share: Float = shared.any(axis=2).mean(axis=1)
    return share


def kendall(one: TopK, other: TopK) -> Float:
    """(Q,) τ-b over the documents of either list.

    A document that a list lacks stands below all it holds, tied with the others it lacks; equal
    scores tie. τ = Σ s·s′ / √(Σ s² · Σ s′²) over pairs, s = −1, 0, 1 as a list orders the pair:
    1 for equal lists, −1 at the least, NaN where a list orders no pair.
    """
    absent = -np.inf
    same = one.documents[:, :, None] == other.documents[:, None, :]
    found = np.where(same, other.scores[:, None, :], absent).max(axis=2)
    alone = ~same.any(axis=1)  # of the other list's documents
    ours = np.concatenate([one.scores, np.full(other.scores.shape, absent)], axis=1)
    theirs = np.concatenate([found, other.scores], axis=1)
    counted = np.concatenate([np.ones(one.scores.shape, bool), alone], axis=1)
    pairs = counted[:, :, None] & counted[:, None, :]
    s, t = (_order(scores) * pairs for scores in (ours, theirs))
    squares = (s * s).sum(axis=(1, 2)) * (t * t).sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        tau: Float = np.where(squares > 0, (s * t).sum(axis=(1, 2)) / np.sqrt(squares), np.nan)
    return tau


def _order(scores: Float) -> Float:
    """(Q, n, n) 1 where the first of a pair stands above the second, −1 below, 0 in a tie."""
    first, second = scores[:, :, None], scores[:, None, :]
    return (first > second).astype(np.float64) - (first < second)
