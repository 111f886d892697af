"""bpref: how often relevant documents are above the judged non-relevant ones.

Unjudged documents play no part. In a group with m relevant and n non-relevant documents, the
number K of non-relevant ones above a given relevant one is uniform on 0…n. For two relevant ones
P(K=a, K'=b) = (1 + [a=b]) / ((n+1)(n+2)). With f(K) the share that K costs, both moments follow
from Σf and Σf².
"""

from __future__ import annotations

import numpy as np

from rankproof.data.ties import TieGroups
from rankproof.foundation.arrays import Float, Int
from rankproof.measures.linear import REL
from rankproof.measures.outcomes import Outcomes
from rankproof.measures.registry import measure


@measure(
    "bpref",
    limits=REL,
    aliases=("binary_preference",),
    unjudged="preference",
    ignores_unjudged=True,
    best_by_grade=False,
)
def bpref(groups: TieGroups, rel: int = 1) -> Outcomes:
    """Binary preference: (1/R) Σ over relevant retrieved of 1 − min(K, R)/min(R, N).

    K counts the judged non-relevant documents above, N those in the judgements.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[0, 1, 0, 1]], "bpref")["bpref"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.0, 0.125, 0.25)
    """
    relevant = groups.relevant(rel)
    cap = np.minimum(relevant, np.diff(groups.pool.start) - relevant)  # (Q,) min(R, N)

    is_relevant = groups.grade >= rel
    above_listed = before((~is_relevant).astype(np.float64), groups.doc_query)
    norm = np.where(relevant > 0, relevant.astype(np.float64), np.nan)

    def cost(k: Float, query: Int) -> Float:
        bound = cap[query]
        return np.where(bound > 0, np.minimum(k, bound) / np.maximum(bound, 1), 0.0)

    def total(k: Float) -> Float:
        """The measure when k non-relevant documents are above each judged one."""
        share = (1.0 - cost(k, groups.doc_query))[is_relevant]
        return groups.sum_by_query(groups.doc_query[is_relevant], share) / norm

    if groups.alone:
        return Outcomes.certain(total(above_listed))
    m = groups.sum_by_group(is_relevant)
    n = groups.sum_by_group(~is_relevant)
    above = before(n, groups.query)  # (G,) non-relevant documents in the groups before
    bound = cap[groups.query].astype(np.float64)

    # Σ and Σ² of min(above + j, bound)/bound over j = 0…n, by arithmetic series.
    free = np.clip(bound - above, 0.0, n + 1.0)  # values of j below the bound
    safe = np.maximum(bound, 1.0)
    low = free * above + free * (free - 1.0) / 2.0
    low_squares = (
        free * above**2
        + above * free * (free - 1.0)
        + (free - 1.0) * free * (2.0 * free - 1.0) / 6.0
    )
    capped = np.where(bound > 0, n + 1.0 - free, 0.0)
    sums = low / safe + capped
    squares = low_squares / safe**2 + capped
    sums, squares = (np.where(bound > 0, x, 0.0) for x in (sums, squares))
    mean = sums / (n + 1.0)
    pair = (sums**2 + squares) / ((n + 1.0) * (n + 2.0))
    variance = m * squares / (n + 1.0) + m * (m - 1.0) * pair - (m * mean) ** 2
    return Outcomes(
        expected=groups.sum_by_query(groups.query, m * (1.0 - mean)) / norm,
        min=total((above + n)[groups.doc_group]),
        max=total(above[groups.doc_group]),
        oblivious=total(above_listed),
        variance=groups.sum_by_query(groups.query, np.maximum(variance, 0.0)) / norm**2,
    )


def before(counts: Float | Int, query: Int) -> Float:
    """Sum of the whole numbers before each one in its query; exact."""
    total = np.cumsum(counts) - counts
    new = np.ones(len(query), np.bool_)
    new[1:] = query[1:] != query[:-1]
    start = np.maximum.accumulate(np.where(new, np.arange(len(query)), 0))
    return np.asarray(total - total[start], np.float64)
