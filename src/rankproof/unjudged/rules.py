"""One run: the lowest and highest value of each measure over every completion of its holes.

A rule reads tie groups with holes among them and gives both ends for every query, NaN where no
completion defines the measure. Rules are exact, ties included, but for nDCG and RAnWG, whose ends
are bounds where a hole ties with something else. Here are those of measures for which one grade of
a hole is best and one is worst, or which are a share of what there is to find; walks.py and
graded.py have the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankproof.evaluation import threshold
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.errors import MeasureError
from rankproof.measures.expected_reciprocal_rank import stopping
from rankproof.measures.linear import counted_from, graded, limit
from rankproof.measures.registry import Measure
from rankproof.measures.sets import SCALE
from rankproof.unjudged import walks
from rankproof.unjudged.gains import weights
from rankproof.unjudged.graded import ndcg, ra_nwg
from rankproof.unjudged.unjudged_documents import Ends, Holed, up_to
from rankproof.unjudged.walks import parameter

Rule = Callable[[Measure, Holed], Ends]
RULES: dict[str, Rule] = {}

IGNORING = ("bpref", "infAP")  # holes: what they report now is no completion, and may lie outside


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register how holes bound a measure."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def ends(measure: Measure, holed: Holed) -> Ends:
    """The ends of a measure; a query without holes has those that its ties give it."""
    if measure.name not in RULES:
        raise MeasureError(
            f"{measure.name} has no rule for holes",
            remedy=f"register one with rankproof.unjudged.rules.rule({measure.name!r})",
        )
    found = RULES[measure.name](measure, holed)
    with_holes = changing(measure, holed)
    tied = holed.now(measure)
    low, high = (
        np.where(with_holes, a, b) for a, b in ((found.low, tied.min), (found.high, tied.max))
    )
    barren = holed.barren(measure) & with_holes
    # Unjudged counts as the lowest grade: what is reported now is one of the completions, and
    # rounding must not leave it outside. Where holes are ignored it is none, unless nothing is
    # relevant.
    now = ~barren
    if measure.name in IGNORING:
        now &= holed.groups.relevant(parameter(measure, "rel")) == 0
    low = np.where(now, np.fmin(low, tied.min), low)
    high = np.where(now, np.fmax(high, tied.max), high)
    found = Ends(low, high, found.exact or not with_holes.any())
    return _with_one(measure, holed, found, barren) if barren.any() else found


def changing(measure: Measure, holed: Holed) -> Bool:
    """(Q,) queries that a completion could change: those with a hole.

    Where ERR takes the highest grade of all judgements for the best, a hole of any query that is
    above it changes what the grades of every other query are worth.
    """
    if measure.name == "ERR" and not _fixed(measure, holed):
        return np.full(len(holed.any), holed.any.any())
    return holed.any


def _fixed(measure: Measure, holed: Holed) -> bool:
    """Whether no hole changes what ERR takes for the best grade."""
    known = holed.groups.pool.max_grade
    return dict(measure.resolved)["max"] is not None or holed.top <= known


# Defined where nothing is relevant, and never falling when a grade rises.
_RISING = {"Hits", "P", "RBP", "DCG", "RR", "Success", "ERR", "F1"}
_RISING |= {"SetP", "SetF", "NumRelRet", "NumRet"}


def _with_one(measure: Measure, holed: Holed, found: Ends, barren: Bool) -> Ends:
    """Both ends where some queries count only with a relevant hole.

    The least is one such hole: the last of the list, or one that the run does not list.
    """
    rel = threshold(measure)
    if holed.top < rel:
        low, high = (np.where(barren, np.nan, x) for x in (found.low, found.high))
        return Ends(low, high, found.exact)
    if measure.name in _RISING:
        least = measure.outcomes(holed.with_last(rel, barren)).min
        least = np.where(holed.extra > 0, holed.now(measure).min, least)
        return Ends(np.where(barren, least, found.low), found.high, found.exact)
    undefined = np.isnan(holed.now(measure).expected)
    return Ends(found.low, found.high, found.exact and not (barren & ~undefined).any())


rule("nDCG")(ndcg)
rule("RAnWG")(ra_nwg)
rule("AP", "GMAP")(walks.average_precision)
rule("infAP")(walks.inferred)
rule("IPrec", "AP11")(walks.interpolated)
rule("Rprec")(walks.r_precision)
rule("bpref")(walks.preference)


# ------------------------------------------------------- a grade that is best, one that is worst


@rule("Hits", "P", "Success", "SetP", "NumRelRet", "NumRet")
def rising(measure: Measure, holed: Holed) -> Ends:
    """Never falls when a grade rises: every hole 0, as it is now, or the highest."""
    rel, now = dict(measure.resolved)["rel"], holed.now(measure)
    if not isinstance(rel, int) or holed.top < rel:  # or what is listed counts, whatever it is
        return Ends(now.min, now.max)
    most = _fitting(measure, holed, holed.chosen(rel)).most
    if measure.name == "Success":
        return Ends(now.min, (most > 0).astype(np.float64))
    if measure.name == "P":
        return Ends(now.min, most / (measure.cutoff or 1))
    return Ends(now.min, most / np.maximum(holed.groups.listed if measure.name == "SetP" else 1, 1))


@dataclass(frozen=True, slots=True)
class Fitting:
    """(Q,) Of documents that count and holes that may, those in the top k."""

    least: Int  # without the holes
    most: Int  # with all that fit
    holes: Int  # that fit
    left_out: Int  # holes that need not be there


def _fitting(measure: Measure, holed: Holed, m: Int, possible: bool = True) -> Fitting:
    """What fits into the top k, where (G,) m documents of each group count.

    A tie group that straddles k leaves out what it can; holes that tie with nothing judged are
    those ranks that no group has.
    """
    groups = holed.groups
    cut = limit(groups, measure.cutoff)

    def by_query(values: Array) -> Int:
        return groups.sum_by_query(groups.query, values).astype(np.int64)

    n = holed.of_group * possible
    if holed.tied:
        t = np.clip(cut[groups.query] - groups.first + 1, 0, groups.size)
        inside = np.clip(t - m, 0, n)
        outside = np.clip(groups.size - t - m, 0, n)
        least = by_query(np.maximum(m + t - groups.size, 0))
        most, left_out = by_query(np.minimum(m + inside, t)), by_query(outside)
        holes, taken, sizes = by_query(inside), by_query(t), by_query(groups.size)
    else:  # all these groups are in the top k
        least = by_query(m)
        holes = by_query(n)
        most, left_out = least + holes, np.zeros_like(least)
        taken = sizes = np.bincount(groups.query, minlength=groups.queries)
    if holed.gaps and possible:
        between = np.minimum(cut, holed.span) - taken
        most, holes = most + between, holes + between
        left_out = left_out + holed.span - sizes - between
    return Fitting(least, most, holes, left_out)


@rule("RR")
def reciprocal(measure: Measure, holed: Holed) -> Ends:
    """The first group that holds a relevant document or a hole."""
    rel, groups = parameter(measure, "rel"), holed.groups
    now = holed.now(measure)
    if holed.top < rel:
        return Ends(now.min, now.max)

    def highest() -> Float:
        some = (holed.chosen(rel) + holed.of_group) > 0
        rank = groups.first
        last = np.zeros(groups.queries, np.int64)  # a rank behind all groups, where there is one
        if holed.gaps:  # the first rank that no group has, if there is one before
            ahead = up_to(groups.size, groups.query) - groups.size
            some |= rank - 1 > ahead
            rank = ahead + 1
            sizes = groups.sum_by_query(groups.query, groups.size).astype(np.int64)
            last = np.where(sizes < holed.span, sizes + 1, 0)
        found = np.flatnonzero(some)
        found = found[np.diff(groups.query[found], prepend=-1) != 0]
        last[groups.query[found]] = rank[found]
        with np.errstate(divide="ignore"):
            return np.where(last > 0, 1.0 / last, 0.0)

    return Ends(now.min, holed.once(measure, highest))


@rule("RBP", "DCG")
def weighed(measure: Measure, holed: Holed) -> Ends:
    """What each hole adds at the top of the scale, the highest gains of a group first."""
    settings: dict[str, Any] = dict(measure.resolved)
    rel, groups, cutoff = settings["rel"], holed.groups, measure.cutoff

    def highest() -> Float:
        grade = np.append(np.where(holed.is_hole, holed.top, groups.grade), holed.top)
        ranks = int(max(holed.span.max(initial=0), groups.listed.max(initial=0))) + 1
        if measure.name == "DCG":
            gain = graded(counted_from(rel, grade), settings["gain"], np.zeros(1, np.int64))
            weight = weights(np.arange(ranks), cutoff)
        else:
            p, top = settings["p"], settings["max"]
            gain = np.asarray(grade >= rel if top is None else np.minimum(grade, top) / top)
            weight = (1.0 - p) * p ** np.arange(-1.0, ranks - 1.0)
            weight[ranks if cutoff is None else cutoff + 1 :] = 0.0
        weight[0] = 0.0
        gain, hole = gain[:-1].astype(np.float64), float(gain[-1])
        order, rank = holed.line(gain, hole)
        # All ranks as if they were holes, and what the judged ones are worth besides.
        own = gain[order] - hole if holed.gaps else gain[order]
        value = groups.sum_by_query(groups.doc_query, own * weight[rank])
        return value + hole * np.cumsum(weight)[holed.span] if holed.gaps else value

    return Ends(holed.now(measure).min, holed.once(measure, highest))


@rule("ERR")
def cascade(measure: Measure, holed: Holed) -> Ends:
    """As the others that rise; a scale above the judgements also changes what each grade is worth.

    Stop probabilities fall when the highest grade rises, so every highest grade is tried.
    """
    groups, known = holed.groups, holed.groups.pool.max_grade

    def highest(grade: int, top: int) -> Float:
        worth = np.exp2(np.arange(top + 1) - top) - np.exp2(-float(top))
        lists = holed if kernels.native is not None else holed.spelled
        grades = np.where(lists.is_hole, grade, lists.groups.grade)
        order, rank = lists.line(grades, grade)
        stop = worth[np.minimum(grades[order], top)]
        cut = limit(groups, measure.cutoff)
        if kernels.native is None:
            return stopping(lists.groups, stop, rank, cut)
        gap = float(worth[min(grade, top)]) if lists.gaps else 0.0
        value, last = np.empty(groups.queries), cut.copy()
        kernels.in_threads(
            lambda low, high: kernels.native.cascade(
                *(stop, rank, lists.begin, lists.span, gap, last, value, low, high)
            ),
            *(groups.queries, kernels.pieces(int(lists.span.sum()))),
        )
        return value

    limited = dict(measure.resolved)["max"]
    if _fixed(measure, holed):
        top = limited if isinstance(limited, int) else known
        high = holed.once(measure, lambda: highest(holed.top, top))
        return Ends(holed.now(measure).min, high)
    found = [highest(top, top) for top in range(max(known, 1), holed.top + 1)]
    low = measure(max=holed.top).outcomes(holed.with_all(0)).min
    return Ends(low, np.max(found, axis=0), exact=False)


@rule("P4", "Harm")
def in_a_set(measure: Measure, holed: Holed) -> Ends:
    """A hole adds nothing as it is, and most if it helps, or if it harms."""
    counted = holed.chosen(4) if measure.name == "P4" else holed.chosen(SCALE[0], 2)
    most = _fitting(measure, holed, counted).most
    return Ends(holed.now(measure).min, most / (measure.cutoff or 1))


@rule("UDCG")
def utility(measure: Measure, holed: Holed) -> Ends:
    """What nearly answers distracts most: grade 3 is the worst, 5 the best."""
    low, high = (measure.outcomes(holed.with_all(grade)) for grade in (3, 5))
    return Ends(low.min, high.max)


@rule("Judged")
def judged(measure: Measure, holed: Holed) -> Ends:
    """From what is judged now to all of the list; no grade matters."""
    now = holed.now(measure).min
    return Ends(now, measure.outcomes(holed.with_all(0)).max)


@rule("RBPResidual")
def residual(measure: Measure, holed: Holed) -> Ends:
    """From what is left when all of the list is judged to what is left now."""
    now = holed.now(measure).max
    return Ends(measure.outcomes(holed.with_all(0)).min, now)


# ------------------------------------------------------------- a share of what there is to find


@rule("NumRel")
def wanted(measure: Measure, holed: Holed) -> Ends:
    """Each hole may be one more."""
    rel = parameter(measure, "rel")
    known = holed.groups.relevant(rel).astype(np.float64)
    return Ends(known, known + (holed.of_query + holed.extra) * (holed.top >= rel))


@rule("SetF", "SetAP")
def set_share(measure: Measure, holed: Holed) -> Ends:
    """Both rise with a relevant document that is listed and fall with one that is not.

    Of h listed of T, n documents listed: F = (β+1)h/(βT + n), AP = h²/(nT).
    """
    rel = parameter(measure, "rel")
    groups = holed.groups
    possible = holed.top >= rel
    inside, extra = holed.of_query * possible, holed.extra * possible
    found = groups.sum_by_query(groups.query, holed.chosen(rel))
    wanted = groups.relevant(rel)
    listed = np.maximum(groups.listed, 1)
    beta = dict(measure.resolved).get("beta")

    def value(found: Array, wanted: Array) -> Float:
        with np.errstate(invalid="ignore", divide="ignore"):
            if isinstance(beta, float):
                share = (beta + 1.0) * found / (beta * wanted + listed)
                return np.where(found > 0, share, 0.0)
            return np.where(wanted > 0, found * found / (listed * wanted), np.nan)

    # Undefined as it is: one relevant hole outside gives 0, one inside as little as can be.
    low, high = value(found, wanted + extra), value(found + inside, wanted + inside)
    low = np.where(np.isnan(low) & (inside > 0), value(np.ones(len(low)), np.ones(len(low))), low)
    return Ends(low, np.where(np.isnan(high) & (extra > 0), 0.0, high))


@rule("R", "SetR", "F1", "NRecall4", "NRecall5")
def share(measure: Measure, holed: Holed) -> Ends:
    """Relevant documents in the top k over a norm that grows with their number.

    A relevant hole adds one to the count and at most one to the norm, so it never lowers the share
    where it fits; one that does not fit, or that the run does not list, adds to the norm alone.
    """
    rel = {"NRecall4": 4, "NRecall5": 5}.get(measure.name) or parameter(measure, "rel")
    groups = holed.groups
    cut = limit(groups, measure.cutoff)
    relevant = groups.relevant(rel)
    possible = holed.top >= rel
    extra = holed.extra * possible

    def norm(total: Int) -> Float:
        if measure.name == "F1":
            return (cut + total) / 2.0
        return (total if measure.name in ("R", "SetR") else np.minimum(total, cut)).astype(
            np.float64
        )

    fit = holed.once(
        (measure, "fit"), lambda: _fitting(measure, holed, holed.chosen(rel), possible)
    )
    left_out = fit.left_out + extra
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = fit.least / norm(relevant + left_out), fit.most / norm(relevant + fit.holes)
        only = np.where(fit.holes > 0, 1.0 / norm(np.ones_like(relevant)), np.nan)
    low = np.where(norm(relevant + left_out) > 0, low, only)
    high = np.where(
        norm(relevant + fit.holes) > 0,
        high,
        np.where(holed.of_query * possible + extra > 0, 0.0, np.nan),
    )
    return Ends(low, high)


@rule("Hit")
def hit(measure: Measure, holed: Holed) -> Ends:
    """A hole that surely is in the top K cannot miss; one that can fall out can."""
    groups, cutoff = holed.groups, measure.cutoff
    assert cutoff is not None
    wanted = groups.relevant(4)
    now = holed.now(measure)
    none = np.zeros(len(groups.size), np.int64)
    can_miss = (_fitting(measure, holed, none).left_out > 0) | (holed.extra > 0)
    none = np.where(holed.any, np.where(can_miss, 0.0, 1.0), np.nan)
    one = np.where(holed.any, np.where(holed.of_query > 0, 1.0, 0.0), np.nan)
    return Ends(
        np.where(wanted > 0, np.where(can_miss, 0.0, now.min), none),
        np.where(wanted > 0, now.max, one),
    )
