"""UDCG: passages that help a generator count for it, those that distract it count against it.

Trappolini et al., arXiv 2510.21440, fit a weight for each position to a generator's answers:
σ(Σ α_i u_i⁺ + Σ β_i u_i⁻). Here is the form in which the authors publish their code, with the same
weight for every position, 1 for what helps and −1/3 for what distracts:

    UDCG@K = σ( (Σ u of relevant passages − penalty · Σ u of the others) / n ),  n = min(K, listed)

There u = 1 − P(the generator abstains when it is given this passage alone), which takes a model. On
grades 1 to 5 we take u = 1 for grades 4 and 5, and for the others (grade − 1)/3: the nearer a
passage that does not answer, the more it distracts. That mapping is ours, not the paper's.
"""

from __future__ import annotations

import numpy as np

from rankproof.data.ties import TieGroups
from rankproof.foundation.arrays import Array, Float, Int
from rankproof.measures.outcomes import Outcomes
from rankproof.measures.properties import Extremes
from rankproof.measures.registry import measure

_THIRDS = {3: 2, 2: 1}  # grade → thirds of a distraction


@measure(
    "UDCG",
    at="cutoff",
    limits={"penalty": (0.0, 1.0)},
    grades=(1, 5),
    unjudged=Extremes(low=3, high=5),  # what nearly answers distracts most
    best_by_grade=False,
)
def udcg(groups: TieGroups, cutoff: int, penalty: float = 1 / 3) -> Outcomes:
    """Utility and distraction aware gain (arXiv 2510.21440), from grades: σ of help less harm.

    u = 1 for grades 4 and 5, which help; (grade − 1)/3 for the others, which distract. Not graded:
    neither, but it takes up a place. A query without a list scores 0.

    >>> result = rp.evaluate_arrays([[3, 2, 2, 1]], [[1, 5, 2, 4]], "UDCG@2")["UDCG@2"]
    >>> round(result.min, 3), round(result.expected, 3), round(result.max, 3)
    (0.486, 0.554, 0.622)
    """
    size = groups.size
    fits = np.clip(cutoff - groups.first + 1, 0, size)
    helps, near, far = (
        np.bincount(groups.doc_group[chosen], minlength=len(size))
        for chosen in (groups.grade >= 4, groups.grade == 3, groups.grade == 2)
    )
    places = np.minimum(groups.listed, cutoff)

    def score(help_: Array, thirds: Array, places: Array) -> Float:
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = (help_ - penalty * thirds / 3.0) / places
        return np.where(places > 0, 1.0 / (1.0 + np.exp(-mean)), 0.0)

    def totals(helping: Int, three: Int, two: Int) -> tuple[Float, Float]:
        thirds = _THIRDS[3] * three + _THIRDS[2] * two
        return groups.sum_by_query(groups.query, helping), groups.sum_by_query(groups.query, thirds)

    def filled(*counts: Int) -> list[Int]:
        """How many of each kind fit when the first kind goes first."""
        left, taken = fits, []
        for count in counts:
            taken.append(np.minimum(count, left))
            left = left - taken[-1]
        return taken

    neither = size - helps - near - far
    best_help, _, best_far, best_near = filled(helps, neither, far, near)
    worst_near, worst_far, _, worst_help = filled(near, far, neither, helps)
    inside = groups.rank <= cutoff
    stated = [
        np.bincount(groups.doc_group[inside & chosen], minlength=len(size))
        for chosen in (groups.grade >= 4, groups.grade == 3, groups.grade == 2)
    ]
    whole = fits == size
    certain = totals(helps * whole, near * whole, far * whole)
    expected = score(*certain, places)
    variance = np.zeros(groups.queries)
    cut = np.flatnonzero((fits > 0) & ~whole)  # at most one group of a query
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, size[cut].max(initial=0) + 1)))])
    for at in cut:
        query = groups.query[at]
        kinds = (int(helps[at]), int(near[at]), int(far[at]), int(neither[at]))
        chance, a, b, c = _draws(kinds, int(fits[at]), logs)
        values = score(
            certain[0][query] + a,
            certain[1][query] + _THIRDS[3] * b + _THIRDS[2] * c,
            np.broadcast_to(places[query], a.shape),
        )
        expected[query] = mean = (chance * values).sum()
        variance[query] = (chance * (values - mean) ** 2).sum()
    return Outcomes(
        expected=expected,
        min=score(*totals(worst_help, worst_near, worst_far), places),
        max=score(*totals(best_help, best_near, best_far), places),
        oblivious=score(*totals(*stated), places),
        variance=variance,
    )


def _draws(
    kinds: tuple[int, int, int, int], drawn: int, logs: Float
) -> tuple[Float, Array, Array, Array]:
    """Every way in which `drawn` of a group fall on its kinds, and its chance.

    P(a, b, c, d) = C(h, a) C(n, b) C(f, c) C(z, d) / C(g, t), d = t − a − b − c; `logs` holds the
    logarithms of factorials, whose common error goes when the chances are made to sum to 1.
    """
    a, b, c = np.ogrid[: kinds[0] + 1, : kinds[1] + 1, : kinds[2] + 1]
    a, b, c = (x.ravel() for x in np.broadcast_arrays(a, b, c))
    d = drawn - a - b - c
    possible = (d >= 0) & (d <= kinds[3])
    a, b, c, d = (x[possible] for x in (a, b, c, d))
    ways = sum(logs[n] - logs[x] - logs[n - x] for n, x in zip(kinds, (a, b, c, d), strict=True))
    chance = np.exp(ways - np.max(ways))
    return chance / chance.sum(), a, b, c
