"""What a generator is given: measures of the top K as a set, on grades 1 to 5.

5 answers clearly, 4 is highly relevant, 3 partial, 2 weak, 1 not relevant. The pool of a query is
every passage that was graded for it. All but Hit are linear in the rank; ties are exact in all.
"""

from __future__ import annotations

import math

import numpy as np

from rankproof.data.ties import Pool, TieGroups
from rankproof.foundation.arrays import Array, Float, Int
from rankproof.measures.hypergeometric import none_drawn
from rankproof.measures.linear import counted, last_listed_rank, linear, places
from rankproof.measures.outcomes import Outcomes
from rankproof.measures.properties import CountOverNorm, CountOverRelevant
from rankproof.measures.registry import measure

SCALE = (1, 5)


@measure(
    "RAnWG",
    at="cutoff",
    limits={"alpha": (0.0, math.inf), "cap4": (0.0, 1.0), "cap3": (0.0, 1.0)},
    aliases=("RA-nWG", "ra_nwg"),
    meaning="How much of the best set of k passages the top k is, from 0 to 1. Passages are "
    "graded 1 to 5; those that answer count most, the more so the rarer they are.",
    grades=SCALE,
    unjudged="rarity gain",
    splits_ties=True,
)
def ra_nwg(
    groups: TieGroups, cutoff: int, alpha: float = 1.0, cap4: float = 1.0, cap3: float = 0.25
) -> Outcomes:
    """Rarity-aware normalised weighted gain [R §2.4]: Σ w(grade) in the top K over the best K.

    w5 = 1; w4 = min(r4/r5, cap4), w3 = min(r3/r5, cap3), w2 = w1 = 0, with r_g = b_g / p_g^alpha,
    b5, b4, b3 = 1, 0.5, 0.1 and p_g the share of grade g in the pool. Without a grade 5 in the
    pool w4 = 1 and w3 = 0.2. Undefined where the pool holds nothing of grade 3 or more.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[1, 5, 2, 4]], "RAnWG@2")["RAnWG@2"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.0, 0.333, 0.667)
    """
    weight = rarity_weights(groups.pool, alpha, cap4, cap3)
    # A rare grade 3 can outweigh a common grade 4: the ideal takes the largest weights.
    pool = groups.pool
    pooled = weight[pool.query, pool.grade]
    pooled = pooled[np.lexsort((-pooled, pool.query))]
    best = pool.place <= cutoff
    ideal = groups.sum_by_query(pool.query[best], pooled[best])
    gain = weight[groups.doc_query, groups.grade]
    return linear(groups, gain, ideal, cutoff, by="gain")


def rarity_weights(pool: Pool, alpha: float, cap4: float, cap3: float) -> Float:
    """(Q, 6) the weight of each grade for each query, indexed by grade."""
    count = np.stack([pool.count(g, g) for g in range(6)], axis=1).astype(np.float64)
    share = count / np.maximum(count.sum(axis=1, keepdims=True), 1.0)
    base = np.array([0.0, 0.0, 0.0, 0.1, 0.5, 1.0])
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        rarity = np.where(count > 0, base / share**alpha, 0.0)
        relative = rarity / rarity[:, 5:]
    weight = np.zeros_like(rarity)
    answered = count[:, 5] > 0
    weight[:, 5] = 1.0
    weight[:, 4] = np.where(answered, np.fmin(relative[:, 4], cap4), 1.0)
    weight[:, 3] = np.where(answered, np.fmin(relative[:, 3], cap3), 0.2)
    return weight


def _most_that_fit(relevant: Int, cutoff: Array | int) -> Float:
    """The norm of recall in a set: min(K, R)."""
    return np.minimum(relevant, cutoff).astype(np.float64)


def _normalized_recall(groups: TieGroups, cutoff: int, rel: int) -> Outcomes:
    norm = _most_that_fit(groups.relevant(rel), cutoff)
    return counted(groups, groups.grade >= rel, norm, cutoff)


@measure(
    "NRecall4",
    at="cutoff",
    aliases=("N-Recall4+", "nrecall4+"),
    meaning="Of the passages graded 4 or 5 that k places could hold, the share in the top k.",
    grades=SCALE,
    unjudged=CountOverRelevant(_most_that_fit, rel=4),
    splits_ties=True,
)
def n_recall_4(groups: TieGroups, cutoff: int) -> Outcomes:
    """Passages of grade 4 or 5 in the top K over the most that fit, min(K, R4) [R §2.4].

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[1, 5, 2, 4]], "NRecall4@2")["NRecall4@2"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.0, 0.25, 0.5)
    """
    return _normalized_recall(groups, cutoff, 4)


@measure(
    "NRecall5",
    at="cutoff",
    aliases=("N-Recall5", "nrecall5"),
    meaning="Of the passages graded 5 that k places could hold, the share in the top k.",
    grades=SCALE,
    unjudged=CountOverRelevant(_most_that_fit, rel=5),
    splits_ties=True,
)
def n_recall_5(groups: TieGroups, cutoff: int) -> Outcomes:
    """Passages of grade 5 in the top K over the most that fit, min(K, R5) [R §2.4].

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[1, 5, 2, 4]], "NRecall5@2")["NRecall5@2"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.0, 0.5, 1.0)
    """
    return _normalized_recall(groups, cutoff, 5)


@measure(
    "P4",
    at="cutoff",
    aliases=("Precision4+",),
    meaning="The share of the top k that is graded 4 or 5.",
    grades=SCALE,
    step="1/k",
    unjudged=CountOverNorm(places, grades=(4, 5)),
    splits_ties=True,
)
def precision_4(groups: TieGroups, cutoff: int) -> Outcomes:
    """The share of the top K that has grade 4 or 5 [R §2.4].

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[1, 5, 2, 4]], "P4@2")["P4@2"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.0, 0.25, 0.5)
    """
    return counted(groups, groups.grade >= 4, cutoff, cutoff)


@measure(
    "Harm",
    at="cutoff",
    aliases=("harm",),
    meaning="The share of the top k that is graded 1 or 2: text that misleads. Less is better.",
    grades=SCALE,
    less_is_better=True,
    step="1/k",
    unjudged=CountOverNorm(places, grades=(1, 2)),
    best_by_grade=False,
    splits_ties=True,
)
def harm(groups: TieGroups, cutoff: int) -> Outcomes:
    """The share of the top K that has grade 1 or 2 [R §2.4]; lower is better.

    An unjudged passage counts as neither harm nor help: read Judged@K beside it.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[1, 5, 2, 4]], "Harm@2")["Harm@2"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.5, 0.75, 1.0)
    """
    return counted(groups, groups.grade <= 2, cutoff, cutoff)


@measure(
    "Hit",
    at="cutoff",
    aliases=("all_hit", "hit_all"),
    grades=SCALE,
    step=1.0,
    unjudged="all relevant",
    splits_ties=True,
)
def hit(groups: TieGroups, cutoff: int) -> Outcomes:
    """1 if every passage of grade 4 or 5 is in the top K, else 0 [R §2.4]: E = C(t, m)/C(g, m).

    Of the group that straddles K, m of whose g passages count, t fit. Elsewhere "hit" often means
    that one relevant passage is in the top K: that is Success(rel=4)@K. Undefined where no passage
    has grade 4 or more.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[1, 5, 2, 4]], "Hit@3")["Hit@3"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.0, 0.0, 0.0)
    """
    wanted = groups.relevant(4)
    g = groups.size
    last = last_listed_rank(groups, cutoff)
    t = np.clip(last[groups.query] - groups.first + 1, 0, g)
    m = np.bincount(groups.doc_group[groups.grade >= 4], minlength=len(g))
    within = groups.sum_by_query(groups.query, m) == wanted
    counted_in = (groups.grade >= 4) & (groups.rank <= last[groups.doc_query])
    oblivious = np.bincount(groups.doc_query[counted_in], minlength=groups.queries) == wanted

    def in_all(chance: Float) -> Float:
        """A product over groups; only one straddles K, so at most one factor is not 0 or 1."""
        product = np.ones(groups.queries)
        np.multiply.at(product, groups.query, chance)
        return np.where(wanted > 0, np.where(within, product, 0.0), np.nan)

    expected = in_all(none_drawn(g, m, g - t))
    return Outcomes(
        expected=expected,
        min=in_all(((m == 0) | (t == g)).astype(np.float64)),
        max=in_all((m <= t).astype(np.float64)),
        oblivious=np.where(wanted > 0, oblivious, np.nan),
        variance=expected * (1.0 - expected),
    )
