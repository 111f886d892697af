"""Dynamic K: rerank few candidates, and more only where the ranking is unsure.

A query goes deep where its dense margin is small or its reranker's entropy is high:

    margin(s)  = s₁ − s_n                              of n scores from the best down
    entropy(s) = − Σ p ln p / ln n,  p = softmax(s)    0 certain, 1 where all are equal
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from rankproof.arrays import Float, Int
from rankproof.config import Count, Settings
from rankproof.errors import InputError


class DepthSettings(Settings):
    """Dynamic K: start shallow, go deep where the ranking is unsure."""

    start: Count = 50
    deep: Count = 100
    margin: Annotated[float, Field(ge=0)] = 0.15  # dense: below it, go deep
    entropy: Annotated[float, Field(ge=0, le=1)] = (
        0.9  # of the reranker, 1 is uniform: above it, go deep
    )


def dense_margin(scores: Any) -> float:
    """How far the best of n scores stands above the last of them.

    A single score has nothing below it that it could be mistaken for: infinity.
    """
    values = _scores(scores)
    return float(values.max() - values.min()) if len(values) > 1 else float("inf")


def entropy(scores: Any) -> float:
    """How evenly softmax spreads over n scores: 0 certain, 1 uniform. A single one is certain.

    Scores should be logits: probabilities lie so close together that softmax makes nearly equal
    shares of them.
    """
    values = _scores(scores)
    if len(values) == 1:
        return 0.0
    with np.errstate(over="ignore"):
        below = np.maximum(values - values.max(), -1e4)  # far below, exp is 0 in any case
    weight = np.exp(below)
    total = weight.sum()
    # ln Σw − Σ w ln w / Σw is −Σ p ln p, without the logarithm of a p that is 0.
    plain = np.log(total) - (weight * below).sum() / total
    return float(np.clip(plain / np.log(len(values)), 0.0, 1.0))


def choose_depth(
    settings: DepthSettings, dense: Any | None = None, reranked: Any | None = None
) -> int:
    """`deep` where the margin is below its threshold or the entropy above it, else `start`.

    `dense` are the first stage's scores of one query, of which the best `start` are looked at;
    `reranked` are the reranker's scores of the `start` candidates. Without scores there is nothing
    to be unsure of.
    """
    check_depths(settings)
    if dense is not None and len(dense):
        best = np.sort(_scores(dense))[::-1][: settings.start]
        if dense_margin(best) < settings.margin:
            return settings.deep
    unsure = reranked is not None and len(reranked) > 0 and entropy(reranked) > settings.entropy
    return settings.deep if unsure else settings.start


def check_depths(settings: DepthSettings) -> None:
    if settings.deep < settings.start:
        raise InputError(
            f"deep ({settings.deep}) is less than start ({settings.start})",
            place="depth",
            remedy="give a deep of at least start",
        )


@dataclass(frozen=True, slots=True)
class Savings:
    """What dynamic K saves beside going deep everywhere."""

    queries: int
    deep: float  # share of the queries that went deep
    mean_depth: float
    tokens: float  # that the reranker did not read
    share: float  # of what it would have read


def savings(depth: Int, settings: DepthSettings, tokens: Any = 1.0) -> Savings:
    """Of depths (Q,); `tokens` is what one candidate costs, a number or one for each query (Q,)."""
    if not len(depth):
        return Savings(0, 0.0, 0.0, 0.0, 0.0)
    each: Float = np.broadcast_to(np.asarray(tokens, np.float64), depth.shape)
    saved = float(((settings.deep - depth) * each).sum())
    everywhere = float(each.sum()) * settings.deep
    return Savings(
        len(depth),
        float((depth > settings.start).mean()),
        float(depth.mean()),
        saved,
        saved / everywhere if everywhere else 0.0,
    )


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
