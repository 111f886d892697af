"""Grades of several judges → one, by how reliable each has proved to be.

A passage has one true grade t, and judge j says g with chance C_j[t, g] (Dawid and Skene, 1979).
Both are found from what was said, each from the other, again and again:

    P_i(t) ∝ π_t · Π_j C_j[t, said_ij],   C_j[t, g] ∝ ν·K_j[t, g] + Σ_i P_i(t)·[said_ij = g]

While C is learned, a passage that people graded has the grade they gave it: a few of their labels
teach what every judge is worth. What the judges say together of it is told without that label, for
it is to be compared with it. The first guess of a judge who is right with chance r_j, itself
learned, is K_j[t, t] = r_j and ∝ e^−|t − g| elsewhere, ν labels' worth for each grade. Without
people two judges are told apart by little more than it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankproof.foundation.arrays import Float, Int

_GUESS = 20.0  # ν
_RIGHT = 0.6  # r, before anything was said
_SWEEPS = 50
_SETTLED = 1e-6
_LEVELS = np.arange(1, 6)


@dataclass(frozen=True, slots=True)
class Joined:
    """What several judges say together."""

    grade: Int  # (items,) the median of P_i; 0 where nobody said anything
    mean: Float  # (items,)
    sd: Float
    right: Float  # (judges,) Σ_t π_t·C_j[t, t]: the share of a judge's grades that are right
    apart: Float  # (judges,) Σ π_t·C_j[t, g]·|t − g|: how many grades they lie away


def join(said: Int, known: Int) -> Joined:
    """(items, judges) grades 1–5, 0 where a judge gave none; (items,) people's, 0 where none."""
    items, judges = said.shape
    same = np.eye(5)
    near = np.exp(-np.abs(_LEVELS[:, None] - _LEVELS)) * (1 - same)
    near /= near.sum(axis=1, keepdims=True)
    chance = np.repeat((_RIGHT * same + (1 - _RIGHT) * near)[None], judges, axis=0)  # true, said
    share = np.full(5, 0.2)
    told = said[:, :, None] == _LEVELS  # (items, judges, 5)
    fixed = (known[:, None] == _LEVELS).astype(np.float64)
    given = known > 0

    def heard() -> Float:
        """(items, judges, true) log chance of what each judge said."""
        return np.asarray(np.einsum("ijg,jtg->ijt", told, np.log(chance)))

    def judged(evidence: Float) -> Float:
        weight = np.log(share) + evidence
        found = np.exp(weight - weight.max(axis=1, keepdims=True))
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def truth(evidence: Float) -> Float:
        return np.where(given[:, None], fixed, judged(evidence))

    any_said = (said > 0).any(axis=1)
    before = np.zeros((items, 5))
    for _ in range(_SWEEPS):
        found = truth(heard().sum(axis=1))
        share = (found[any_said].sum(axis=0) + 1) / (any_said.sum() + 5)
        counts = np.einsum("it,ijg->jtg", found, told)
        hits = np.einsum("jtt->j", counts) + 2 * _GUESS * _RIGHT
        rate = (hits / (counts.sum(axis=(1, 2)) + 2 * _GUESS))[:, None, None]
        counts += _GUESS * (rate * same + (1 - rate) * near)
        chance = counts / counts.sum(axis=2, keepdims=True)
        if np.abs(found - before).max(initial=0.0) < _SETTLED:
            break
        before = found
    spoken = (said > 0).any(axis=0)
    right = np.where(spoken, np.einsum("t,jtt->j", share, chance), np.nan)
    away = np.abs(_LEVELS[:, None] - _LEVELS)
    apart = np.where(spoken, np.einsum("t,jtg,tg->j", share, chance, away), np.nan)
    found = judged(heard().sum(axis=1))
    mean = found @ _LEVELS
    sd = np.sqrt(np.maximum(found @ _LEVELS**2 - mean**2, 0.0))
    grade = 1 + (np.cumsum(found, axis=1) < 0.5 - 1e-12).sum(axis=1)
    return Joined(np.where(any_said, grade, 0), mean, sd, right, apart)
