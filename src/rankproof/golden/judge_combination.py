"""Combine the grades of several judges into one, weighing each by how reliable it proves to be.

A passage has one true grade t, and judge j gives g with probability C_j[t, g] (Dawid and Skene
1979, "Maximum likelihood estimation of observer error-rates using the EM algorithm"). Truths and
probabilities are estimated from each other, alternately:

    P_i(t) ∝ π_t · Π_j C_j[t, g_ij],   C_j[t, g] ∝ ν·K_j[t, g] + Σ_i P_i(t)·[g_ij = g]

Initially a judge is right with rate r_j, itself estimated: K_j[t, t] = r_j, and ∝ e^−|t − g|
elsewhere; this counts as ν labels for each grade. Without people's labels, two judges differ by
little more than it.

While C is estimated, passages that people graded have their grade: a few labels show what every
judge is worth. The combined grade does not use them, since it will be compared with people's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankproof.foundation.arrays import Float, Int

_PRIOR_LABELS = 20.0  # ν
_PRIOR_ACCURACY = 0.6  # r before anything was graded
_MAX_SWEEPS = 50
_TOLERANCE = 1e-6  # change of P_i(t) below which the sweeps end
_GRADES = np.arange(1, 6)


@dataclass(frozen=True, slots=True)
class CombinedGrades:
    """Grades of all judges together, and how reliable each judge is."""

    grade: Int  # (items,) the median of P_i; 0 if no judge graded the item
    mean: Float  # (items,) of P_i
    sd: Float  # (items,)
    accuracy: Float  # (judges,) Σ_t π_t·C_j[t, t]; NaN for a judge that graded nothing
    mean_distance: Float  # (judges,) Σ π_t·C_j[t, g]·|t − g|, in grades


def combine_grades(votes: Int, known: Int) -> CombinedGrades:
    """Combine votes (items, judges), grades 1–5 or 0 for none, with people's grades (items,)."""
    identity = np.eye(5)
    off_diagonal = np.exp(-np.abs(_GRADES[:, None] - _GRADES)) * (1 - identity)
    off_diagonal /= off_diagonal.sum(axis=1, keepdims=True)
    initial = _PRIOR_ACCURACY * identity + (1 - _PRIOR_ACCURACY) * off_diagonal
    confusion = np.repeat(initial[None], votes.shape[1], axis=0)  # C: (judges, true, given)
    base_rates = np.full(5, 0.2)  # π
    is_vote = votes[:, :, None] == _GRADES  # (items, judges, given)
    known_truth = (known[:, None] == _GRADES).astype(np.float64)
    is_known = (known > 0)[:, None]
    is_graded = (votes > 0).any(axis=1)
    previous = np.zeros((len(votes), 5))
    for _ in range(_MAX_SWEEPS):
        truth = np.where(is_known, known_truth, _truth(is_vote, confusion, base_rates))
        base_rates = (truth[is_graded].sum(axis=0) + 1) / (is_graded.sum() + 5)
        counts = np.einsum("it,ijg->jtg", truth, is_vote)
        hits = np.einsum("jtt->j", counts) + 2 * _PRIOR_LABELS * _PRIOR_ACCURACY
        rate = (hits / (counts.sum(axis=(1, 2)) + 2 * _PRIOR_LABELS))[:, None, None]
        counts += _PRIOR_LABELS * (rate * identity + (1 - rate) * off_diagonal)
        confusion = counts / counts.sum(axis=2, keepdims=True)
        if np.abs(truth - previous).max(initial=0.0) < _TOLERANCE:
            break
        previous = truth
    truth = _truth(is_vote, confusion, base_rates)
    mean = truth @ _GRADES
    median = 1 + (np.cumsum(truth, axis=1) < 0.5 - 1e-12).sum(axis=1)
    has_votes = (votes > 0).any(axis=0)
    distance = np.abs(_GRADES[:, None] - _GRADES)
    mean_distance = np.einsum("t,jtg,tg->j", base_rates, confusion, distance)
    return CombinedGrades(
        grade=np.where(is_graded, median, 0),
        mean=mean,
        sd=np.sqrt(np.maximum(truth @ _GRADES**2 - mean**2, 0.0)),
        accuracy=np.where(has_votes, np.einsum("t,jtt->j", base_rates, confusion), np.nan),
        mean_distance=np.where(has_votes, mean_distance, np.nan),
    )


def _truth(is_vote: Int, confusion: Float, base_rates: Float) -> Float:
    """(items, true) P_i(t) given the judges' votes alone."""
    log_likelihood = np.asarray(np.einsum("ijg,jtg->ijt", is_vote, np.log(confusion)))
    log_weight = np.log(base_rates) + log_likelihood.sum(axis=1)
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))
