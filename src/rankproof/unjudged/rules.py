"""Lowest and highest value of each measure for one run, over every grade of unjudged documents.

A rule reads tie groups with unjudged documents among them and returns both ends for every query,
NaN where no grades define the measure. Which rule applies follows from what the measure declares
(`measures/properties.py`). Rules are exact, ties included, but for nDCG and RAnWG, whose ends are
bounds where an unjudged document ties with something else. Here are the rules of measures for which
one grade is best and one is worst, or which are a share of what there is to find; walks.py and
graded.py have the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from rankproof.foundation import kernels
from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.errors import MeasureError
from rankproof.measures import CountOverNorm, CountOverRelevant, Extremes, GainSum, Measure
from rankproof.measures.expected_reciprocal_rank import stopping
from rankproof.measures.linear import last_rank
from rankproof.measures.properties import Grade
from rankproof.unjudged import walks
from rankproof.unjudged.graded import ndcg, ra_nwg
from rankproof.unjudged.unjudged_documents import Ends, Holed, up_to

Rule = Callable[[Measure, Holed], Ends]
RULES: dict[type | str, Rule] = {
    "ideal gain": ndcg,
    "rarity gain": ra_nwg,
    "average precision": walks.average_precision,
    "inferred precision": walks.inferred,
    "interpolated precision": walks.interpolated,
    "R-precision": walks.r_precision,
    "preference": walks.preference,
}  # by what a measure declares in `unjudged=`


def rule(declared: type | str) -> Callable[[Rule], Rule]:
    """Register the rule of measures that declare this kind of effect."""

    def register(function: Rule) -> Rule:
        RULES[declared] = function
        return function

    return register


def rule_of(measure: Measure) -> Rule | None:
    """The rule that a measure's declaration selects; a function it declares is its own rule."""
    effect = measure.definition.unjudged
    known = RULES.get(effect if isinstance(effect, str) else type(effect))
    return cast(Rule, effect) if known is None and callable(effect) else known


def ends(measure: Measure, holed: Holed) -> Ends:
    """The ends of a measure; without unjudged documents a query has those that its ties give it."""
    rule = rule_of(measure)
    if rule is None:
        raise MeasureError(
            f"{measure.name} does not declare how unjudged documents move it",
            remedy="declare rising=True or unjudged=… where it is registered",
        )
    found = rule(measure, holed)
    open_ = changing(measure, holed)
    tied = holed.now(measure)
    low, high = (np.where(open_, a, b) for a, b in ((found.low, tied.min), (found.high, tied.max)))
    barren = holed.barren(measure) & open_
    # Unjudged counts as the lowest grade: what is reported now is one of the possible values, and
    # rounding must not leave it outside. A measure that ignores unjudged documents reports
    # something else, unless nothing is relevant.
    now = ~barren
    if measure.definition.ignores_unjudged:
        now &= holed.groups.relevant(measure.threshold) == 0
    low = np.where(now, np.fmin(low, tied.min), low)
    high = np.where(now, np.fmax(high, tied.max), high)
    found = Ends(low, high, found.exact or not open_.any())
    return _with_one(measure, holed, found, barren) if barren.any() else found


def changing(measure: Measure, holed: Holed) -> Bool:
    """(Q,) queries whose value unjudged documents could change: those that have any.

    Where ERR takes the highest grade of all judgments for the best, an unjudged document of any
    query with a higher one changes what the grades of every other query are worth.
    """
    if not _has_known_scale(measure, holed):
        return np.full(len(holed.any), holed.any.any())
    return holed.any


def _has_known_scale(measure: Measure, holed: Holed) -> bool:
    """False if an unjudged document could have a grade that changes the worth of all others."""
    return not measure.has_open_scale or holed.top <= holed.groups.pool.max_grade


def _with_one(measure: Measure, holed: Holed, found: Ends, barren: Bool) -> Ends:
    """Both ends where some queries count only with a relevant hole.

    The least is one such hole: the last of the list, or one that the run does not list.
    """
    rel = measure.threshold
    if holed.top < rel:
        low, high = (np.where(barren, np.nan, x) for x in (found.low, found.high))
        return Ends(low, high, found.exact)
    if measure.definition.rising:
        least = measure.outcomes(holed.with_last(rel, barren)).min
        least = np.where(holed.extra > 0, holed.now(measure).min, least)
        return Ends(np.where(barren, least, found.low), found.high, found.exact)
    undefined = np.isnan(holed.now(measure).expected)
    return Ends(found.low, found.high, found.exact and not (barren & ~undefined).any())


# ------------------------------------------------------- a grade that is best, one that is worst


@rule(Extremes)
def extremes(measure: Measure, holed: Holed) -> Ends:
    """One grade of all unjudged documents gives the lowest value, one the highest."""
    effect = cast(Extremes, measure.definition.unjudged)
    lowest = (measure.definition.grades or (0, 0))[0]

    def grade(declared: Grade) -> int | None:
        named = {"lowest": lowest, "highest": holed.top}
        return named[declared] if isinstance(declared, str) else declared

    low, high = grade(effect.low), grade(effect.high)
    now = holed.now(measure)
    return Ends(
        now.min if low is None else measure.outcomes(holed.with_all(low)).min,
        now.max if high is None else measure.outcomes(holed.with_all(high)).max,
    )


@rule(CountOverNorm)
def count_over_norm(measure: Measure, holed: Holed) -> Ends:
    """No unjudged document counts, as it is now, or all that fit into the top k do."""
    effect = cast(CountOverNorm, measure.definition.unjudged)
    now, grades = holed.now(measure), effect.grades
    if grades is None:
        rel = measure.parameters["rel"]
        if rel is None or holed.top < rel:  # every listed document counts, or none can
            return Ends(now.min, now.max)
        grades = rel, holed.top
    judged = holed.chosen(grades[0], None if effect.grades is None else grades[1])
    most = _fitting(measure, holed, judged).most
    return Ends(now.min, most / effect.norm(holed.groups, measure.cutoff))


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
    cut = last_rank(groups, measure.cutoff)

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


@rule("first relevant")
def first_relevant(measure: Measure, holed: Holed) -> Ends:
    """RR and Success: the first group that holds a relevant document or an unjudged one."""
    rel, groups = measure.threshold, holed.groups
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

    reciprocal = holed.once(("first", rel, measure.cutoff), highest)
    if measure.name == "Success":
        return Ends(now.min, (reciprocal > 0).astype(np.float64))
    return Ends(now.min, reciprocal)


@rule(GainSum)
def gain_sum(measure: Measure, holed: Holed) -> Ends:
    """Give every unjudged document the highest grade; the highest gains of a group come first."""
    effect = cast(GainSum, measure.definition.unjudged)
    groups = holed.groups

    def highest() -> Float:
        grade = np.append(np.where(holed.is_hole, holed.top, groups.grade), holed.top)
        ranks = int(max(holed.span.max(initial=0), groups.listed.max(initial=0))) + 1
        gains = np.asarray(effect.gain(measure, grade), np.float64)
        weight = effect.weight(measure, np.arange(ranks))
        weight[0] = 0.0
        gain, top_gain = gains[:-1], float(gains[-1])
        order, rank = holed.line(gain, top_gain)
        if not holed.gaps:
            return groups.sum_by_query(groups.doc_query, gain[order] * weight[rank])
        # All ranks as if no document were judged, and what the judged ones are worth besides.
        more = groups.sum_by_query(groups.doc_query, (gain[order] - top_gain) * weight[rank])
        return more + top_gain * np.cumsum(weight)[holed.span]

    return Ends(holed.now(measure).min, holed.once(measure, highest))


@rule("stopping")
def stopping_early(measure: Measure, holed: Holed) -> Ends:
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
        cut = last_rank(groups, measure.cutoff)
        if kernels.native is None:
            return stopping(lists.groups, stop, rank, cut)
        gap = float(worth[min(grade, top)]) if lists.gaps else 0.0
        value, last = np.empty(groups.queries), cut.copy()
        kernels.map_ranges(
            lambda low, high: kernels.native.cascade(
                *(stop, rank, lists.begin, lists.span, gap, last, value, low, high)
            ),
            *(groups.queries, kernels.thread_count(int(lists.span.sum()))),
        )
        return value

    limited = measure.parameters["max"]
    if _has_known_scale(measure, holed):
        top = limited if isinstance(limited, int) else known
        high = holed.once(measure, lambda: highest(holed.top, top))
        return Ends(holed.now(measure).min, high)
    found = [highest(top, top) for top in range(max(known, 1), holed.top + 1)]
    low = measure(max=holed.top).outcomes(holed.with_all(0)).min
    return Ends(low, np.max(found, axis=0), exact=False)


# ------------------------------------------------------------- a share of what there is to find


@rule("relevant count")
def relevant_count(measure: Measure, holed: Holed) -> Ends:
    """Each hole may be one more."""
    rel = measure.threshold
    known = holed.groups.relevant(rel).astype(np.float64)
    return Ends(known, known + (holed.of_query + holed.extra) * (holed.top >= rel))


@rule("set share")
def set_share(measure: Measure, holed: Holed) -> Ends:
    """Both rise with a relevant document that is listed and fall with one that is not.

    Of h listed of T, n documents listed: F = (β+1)h/(βT + n), AP = h²/(nT).
    """
    rel = measure.threshold
    groups = holed.groups
    possible = holed.top >= rel
    inside, extra = holed.of_query * possible, holed.extra * possible
    found = groups.sum_by_query(groups.query, holed.chosen(rel))
    wanted = groups.relevant(rel)
    listed = np.maximum(groups.listed, 1)
    beta = measure.parameters.get("beta")

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


@rule(CountOverRelevant)
def count_over_relevant(measure: Measure, holed: Holed) -> Ends:
    """Relevant documents in the top k over a norm that grows with their number.

    One more relevant document adds one to the count and at most one to the norm, so it never lowers
    the share where it fits; one that does not fit, or that the run does not list, adds to the norm
    alone.
    """
    effect = cast(CountOverRelevant, measure.definition.unjudged)
    rel = effect.rel or measure.threshold
    groups = holed.groups
    last = last_rank(groups, measure.cutoff)
    relevant = groups.relevant(rel)
    possible = holed.top >= rel
    extra = holed.extra * possible

    def norm(total: Int) -> Float:
        return effect.norm(total, last)

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


@rule("all relevant")
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
