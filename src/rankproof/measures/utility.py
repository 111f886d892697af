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
from rankproof.measures.linear import last_listed_rank
from rankproof.measures.outcomes import Outcomes
from rankproof.measures.properties import Extremes
from rankproof.measures.registry import measure

_THIRDS = {3: 2, 2: 1}  # grade → thirds of a distraction
_NOTHING = -45.0  # the logarithm of a term that no float64 holds beside 1


@measure(
    "UDCG",
    at="cutoff",
    limits={"penalty": (0.0, 1.0)},
    grades=(1, 5),
    unjudged=Extremes(low=3, high=5),  # what nearly answers distracts most
    best_by_grade=False,
    splits_ties=True,
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
    places = last_listed_rank(groups, cutoff)
    fits = np.clip(places[groups.query] - groups.first + 1, 0, size)
    helps, near, far = (
        np.bincount(groups.doc_group[chosen], minlength=len(size))
        for chosen in (groups.grade >= 4, groups.grade == 3, groups.grade == 2)
    )

    def score(help_: Array, thirds: Array, places: Array) -> Float:
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = (help_ - penalty * thirds / 3.0) / places
        return np.where(places > 0, 1.0 / (1.0 + np.exp(-mean)), 0.0)

    def totals(helping: Int, three: Int, two: Int) -> tuple[Float, Float]:
        thirds = _THIRDS[3] * three + _THIRDS[2] * two
        return groups.sum_by_query(groups.query, helping), groups.sum_by_query(groups.query, thirds)

    def filled(*counts: Int) -> list[Int]:
        """Return how many of each kind are in the top k if each group ranks the kinds in turn."""
        free, listed = fits, []
        for count in counts:
            listed.append(np.minimum(count, free))
            free = free - listed[-1]
        return listed

    neither = size - helps - near - far
    best_help, _, best_far, best_near = filled(helps, neither, far, near)
    worst_near, worst_far, _, worst_help = filled(near, far, neither, helps)
    inside = groups.rank <= places[groups.doc_query]
    stated = [
        np.bincount(groups.doc_group[inside & chosen], minlength=len(size))
        for chosen in (groups.grade >= 4, groups.grade == 3, groups.grade == 2)
    ]
    whole = fits == size
    certain = totals(helps * whole, near * whole, far * whole)
    expected = score(*certain, places)
    variance = np.zeros(groups.queries)
    cut = np.flatnonzero((fits > 0) & ~whole)  # at most one group of a query
    for at in cut:
        query = groups.query[at]
        counts = np.array([helps[at], near[at], far[at], neither[at]], np.float64)
        base = certain[0][query] - penalty * certain[1][query] / 3.0
        worth = np.array([1.0, -penalty * 2.0 / 3.0, -penalty / 3.0, 0.0])
        listed = places[query]
        expected[query], variance[query] = _logistic_moments(
            base / listed, counts, worth / listed, int(fits[at])
        )
    return Outcomes(
        expected=expected,
        min=score(*totals(worst_help, worst_near, worst_far), places),
        max=score(*totals(best_help, best_near, best_far), places),
        oblivious=score(*totals(*stated), places),
        variance=variance,
    )


_STEP = 0.15  # of ω: the trapezoid's error is e^(−2π/step), about 1e-18
_OMEGA = _STEP * np.arange(90)  # up to where 1/sinh(πω) is nothing beside 1


def _logistic_moments(base: float, counts: Float, worth: Float, drawn: int) -> tuple[float, float]:
    """Mean and variance of σ(x), x = base + the worth of `drawn` documents of these kinds.

    With φ(ω) = E[exp(iωx)], and with ½·tanh(x/2) = ∫₀^∞ sin(ωx)/sinh(πω) dω,

        E[σ] = ½ + ∫ Im φ/sinh(πω) dω,   E[σ²] = E[σ] − E[σ'] = E[σ] − ∫ ω · Re φ/sinh(πω) dω.

    φ(ω) is the coefficient of z^t in Π (1 − p + p·z·e^(iω·worth))^count over that of
    Π (1 − p + p·z)^count, p = t/g: means over points z of the unit circle, all of whose terms
    beyond a few deviations of the binomial number √(g·p·(1 − p)) vanish.
    """
    size = counts.sum()
    share = drawn / size
    points = int(min(size + 1, np.ceil(20.0 * np.sqrt(size * share * (1.0 - share)) + 20.0)))
    angle = 2.0 * np.pi / points * (np.arange(points) - points // 2)
    modulus = size * np.log(np.abs(1.0 + share * np.expm1(1j * angle)))
    angle = angle[modulus > _NOTHING]
    phase = angle[:, None] + _OMEGA[:, None, None] * worth
    logs = (counts * np.log1p(share * np.expm1(1j * phase))).sum(axis=2) - 1j * drawn * angle
    sums = np.exp(logs).sum(axis=1)
    phi = (sums / sums[0] * np.exp(1j * _OMEGA * base))[1:]
    omega = _OMEGA[1:]
    weight = _STEP / np.sinh(np.pi * omega)
    first = _STEP / (2.0 * np.pi)  # of ω = 0, where the integrands are E[x]/π and 1/π
    center = base + share * (counts @ worth)
    mean = 0.5 + first * center + float(weight @ phi.imag)
    return mean, mean - first - float((weight * omega) @ phi.real) - mean * mean
