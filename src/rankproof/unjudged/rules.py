"""Lowest and highest value of each measure for one run, over every grade of unjudged documents.

A rule reads tie groups with unjudged documents among them and returns both bounds for every query,
NaN where no grades define the measure. Which rule applies follows from what the measure declares
(`measures/properties.py`). Rules are exact, ties included, but for nDCG and RAnWG, whose bounds are
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
from rankproof.measures import CountOverNorm, CountOverRelevant, Extremes, Measure
from rankproof.measures.expected_reciprocal_rank import stopping
from rankproof.measures.linear import last_rank
from rankproof.measures.properties import GainSum, Grade
from rankproof.unjudged import walks
from rankproof.unjudged.graded import ndcg, ra_nwg
from rankproof.unjudged.unjudged_documents import PartlyJudged, QueryBounds, running_total

Rule = Callable[[Measure, PartlyJudged], QueryBounds]
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


def bounds(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """The bounds of a measure; a query without unjudged documents has those of its ties."""
    rule = rule_of(measure)
    if rule is None:
        raise MeasureError(
            f"{measure.name} does not declare how unjudged documents move it",
            remedy="declare rising=True or unjudged=… where it is registered",
        )
    found = rule(measure, run)
    open_ = changing(measure, run)
    tied = run.reported(measure)
    low, high = (np.where(open_, a, b) for a, b in ((found.low, tied.min), (found.high, tied.max)))
    without_relevant = run.without_relevant(measure) & open_
    # Unjudged counts as the lowest grade: what is reported now is one of the possible values, and
    # rounding must not leave it outside. A measure that ignores unjudged documents reports
    # something else, unless nothing is relevant.
    now = ~without_relevant
    if measure.definition.ignores_unjudged:
        now &= run.groups.relevant(measure.threshold) == 0
    low = np.where(now, np.fmin(low, tied.min), low)
    high = np.where(now, np.fmax(high, tied.max), high)
    found = QueryBounds(low, high, found.exact or not open_.any())
    return (
        _with_one_relevant(measure, run, found, without_relevant)
        if without_relevant.any()
        else found
    )


def changing(measure: Measure, run: PartlyJudged) -> Bool:
    """(Q,) queries whose value unjudged documents could change: those that have any.

    Where ERR takes the highest grade of all judgments for the best, an unjudged document of any
    query with a higher one changes what the grades of every other query are worth.
    """
    if not _has_known_scale(measure, run):
        return np.full(len(run.any), run.any.any())
    return run.any


def _has_known_scale(measure: Measure, run: PartlyJudged) -> bool:
    """False if an unjudged document could have a grade that changes the worth of all others."""
    return not measure.has_open_scale or run.top <= run.groups.pool.max_grade


def _with_one_relevant(
    measure: Measure, run: PartlyJudged, found: QueryBounds, without_relevant: Bool
) -> QueryBounds:
    """Both bounds where some queries count only with a relevant hole.

    The lowest value has one such document: the last of the list, or one that the run does not list.
    """
    rel = measure.threshold
    if run.top < rel:
        low, high = (np.where(without_relevant, np.nan, x) for x in (found.low, found.high))
        return QueryBounds(low, high, found.exact)
    if measure.definition.rising:
        least = measure.outcomes(run.last_graded(rel, without_relevant)).min
        least = np.where(run.unlisted > 0, run.reported(measure).min, least)
        return QueryBounds(np.where(without_relevant, least, found.low), found.high, found.exact)
    undefined = np.isnan(run.reported(measure).expected)
    return QueryBounds(
        found.low, found.high, found.exact and not (without_relevant & ~undefined).any()
    )


# ------------------------------------------------------- a grade that is best, one that is worst


@rule(Extremes)
def extremes(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """One grade of all unjudged documents gives the lowest value, one the highest."""
    effect = cast(Extremes, measure.definition.unjudged)
    lowest = (measure.definition.grades or (0, 0))[0]

    def grade(declared: Grade) -> int | None:
        named = {"lowest": lowest, "highest": run.top}
        return named[declared] if isinstance(declared, str) else declared

    low, high = grade(effect.low), grade(effect.high)
    now = run.reported(measure)
    return QueryBounds(
        now.min if low is None else measure.outcomes(run.all_graded(low)).min,
        now.max if high is None else measure.outcomes(run.all_graded(high)).max,
    )


@rule(CountOverNorm)
def count_over_norm(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """No unjudged document counts, as it is now, or all that fit into the top k do."""
    effect = cast(CountOverNorm, measure.definition.unjudged)
    now, grades = run.reported(measure), effect.grades
    if grades is None:
        rel = measure.parameters["rel"]
        if rel is None or run.top < rel:  # every listed document counts, or none can
            return QueryBounds(now.min, now.max)
        grades = rel, run.top
    judged = run.judged_with(grades[0], None if effect.grades is None else grades[1])
    most = _count_in_top(measure, run, judged).most
    return QueryBounds(now.min, most / effect.norm(run.groups, measure.cutoff))


@dataclass(frozen=True, slots=True)
class TopCounts:
    """(Q,) documents in the top k that count, and unjudged ones that may."""

    least: Int  # that count for certain
    most: Int  # with all unjudged ones that fit
    unjudged: Int  # that fit
    avoidable: Int  # unjudged ones that need not be in the top k


def _count_in_top(measure: Measure, run: PartlyJudged, m: Int, possible: bool = True) -> TopCounts:
    """Count what fits into the top k, where (G,) m documents of each group count.

    A tie group that straddles k leaves out what it can; unjudged documents that tie with nothing
    judged are the ranks that no group has.
    """
    groups = run.groups
    cut = last_rank(groups, measure.cutoff)

    def by_query(values: Array) -> Int:
        return groups.sum_by_query(groups.query, values).astype(np.int64)

    n = run.unjudged_in_group * possible
    if run.tied:
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
    if run.is_implicit and possible:
        between = np.minimum(cut, run.span) - taken
        most, holes = most + between, holes + between
        left_out = left_out + run.span - sizes - between
    return TopCounts(least, most, holes, left_out)


@rule("first relevant")
def first_relevant(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """RR and Success: the first group with a relevant document or an unjudged one."""
    rel, groups = measure.threshold, run.groups
    now = run.reported(measure)
    if run.top < rel:
        return QueryBounds(now.min, now.max)

    def highest() -> Float:
        some = (run.judged_with(rel) + run.unjudged_in_group) > 0
        rank = groups.first
        last = np.zeros(groups.queries, np.int64)  # a rank behind all groups, where there is one
        if run.is_implicit:  # the first rank that no group has, if there is one before
            ahead = running_total(groups.size, groups.query) - groups.size
            some |= rank - 1 > ahead
            rank = ahead + 1
            sizes = groups.sum_by_query(groups.query, groups.size).astype(np.int64)
            last = np.where(sizes < run.span, sizes + 1, 0)
        found = np.flatnonzero(some)
        found = found[np.diff(groups.query[found], prepend=-1) != 0]
        last[groups.query[found]] = rank[found]
        with np.errstate(divide="ignore"):
            return np.where(last > 0, 1.0 / last, 0.0)

    reciprocal = run.cached(("first", rel, measure.cutoff), highest)
    if measure.name == "Success":
        return QueryBounds(now.min, (reciprocal > 0).astype(np.float64))
    return QueryBounds(now.min, reciprocal)


@rule(GainSum)
def gain_sum(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Give every unjudged document the highest grade; the highest gains of a group come first."""
    effect = cast(GainSum, measure.definition.unjudged)
    groups = run.groups

    def highest() -> Float:
        grade = np.append(np.where(run.is_unjudged, run.top, groups.grade), run.top)
        ranks = int(max(run.span.max(initial=0), groups.listed.max(initial=0))) + 1
        gains = np.asarray(effect.gain(measure, grade), np.float64)
        weight = effect.weight(measure, np.arange(ranks))
        weight[0] = 0.0
        gain, top_gain = gains[:-1], float(gains[-1])
        order, rank = run.extreme_order(gain, top_gain)
        if not run.is_implicit:
            return groups.sum_by_query(groups.doc_query, gain[order] * weight[rank])
        # All ranks as if no document were judged, and what the judged ones are worth besides.
        more = groups.sum_by_query(groups.doc_query, (gain[order] - top_gain) * weight[rank])
        return more + top_gain * np.cumsum(weight)[run.span]

    return QueryBounds(run.reported(measure).min, run.cached(measure, highest))


@rule("stopping")
def stopping_early(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound ERR, which rises with grades; a higher top grade also changes what each is worth.

    Stop probabilities fall when the highest grade rises, so every highest grade is tried.
    """
    groups, known = run.groups, run.groups.pool.max_grade

    def highest(grade: int, top: int) -> Float:
        worth = np.exp2(np.arange(top + 1) - top) - np.exp2(-float(top))
        lists = run if kernels.native is not None else run.explicit
        grades = np.where(lists.is_unjudged, grade, lists.groups.grade)
        order, rank = lists.extreme_order(grades, grade)
        stop = worth[np.minimum(grades[order], top)]
        cut = last_rank(groups, measure.cutoff)
        if kernels.native is None:
            return stopping(lists.groups, stop, rank, cut)
        gap = float(worth[min(grade, top)]) if lists.is_implicit else 0.0
        value, last = np.empty(groups.queries), cut.copy()
        kernels.map_ranges(
            lambda low, high: kernels.native.cascade(
                *(stop, rank, lists.begin, lists.span, gap, last, value, low, high)
            ),
            *(groups.queries, kernels.thread_count(int(lists.span.sum()))),
        )
        return value

    limited = measure.parameters["max"]
    if _has_known_scale(measure, run):
        top = limited if isinstance(limited, int) else known
        high = run.cached(measure, lambda: highest(run.top, top))
        return QueryBounds(run.reported(measure).min, high)
    found = [highest(top, top) for top in range(max(known, 1), run.top + 1)]
    low = measure(max=run.top).outcomes(run.all_graded(0)).min
    return QueryBounds(low, np.max(found, axis=0), exact=False)


# ------------------------------------------------------------- a share of what there is to find


@rule("relevant count")
def relevant_count(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound NumRel: each unjudged document may be one more."""
    rel = measure.threshold
    known = run.groups.relevant(rel).astype(np.float64)
    return QueryBounds(known, known + (run.unjudged_in_query + run.unlisted) * (run.top >= rel))


@rule("set share")
def set_share(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound SetF and SetAP, which rise with listed relevant documents and fall with others.

    Of h listed of T, n documents listed: F = (β+1)h/(βT + n), AP = h²/(nT).
    """
    rel = measure.threshold
    groups = run.groups
    possible = run.top >= rel
    inside, extra = run.unjudged_in_query * possible, run.unlisted * possible
    found = groups.sum_by_query(groups.query, run.judged_with(rel))
    wanted = groups.relevant(rel)
    listed = np.maximum(groups.listed, 1)
    beta = measure.parameters.get("beta")

    def value(found: Array, wanted: Array) -> Float:
        with np.errstate(invalid="ignore", divide="ignore"):
            if isinstance(beta, float):
                share = (beta + 1.0) * found / (beta * wanted + listed)
                return np.where(found > 0, share, 0.0)
            return np.where(wanted > 0, found * found / (listed * wanted), np.nan)

    # If nothing is relevant now: one unlisted relevant document gives 0, a listed one the least.
    low, high = value(found, wanted + extra), value(found + inside, wanted + inside)
    low = np.where(np.isnan(low) & (inside > 0), value(np.ones(len(low)), np.ones(len(low))), low)
    return QueryBounds(low, np.where(np.isnan(high) & (extra > 0), 0.0, high))


@rule(CountOverRelevant)
def count_over_relevant(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Relevant documents in the top k over a norm that grows with their number.

    One more relevant document adds one to the count and at most one to the norm, so it never lowers
    the share where it fits; one that does not fit, or that the run does not list, adds to the norm
    alone.
    """
    effect = cast(CountOverRelevant, measure.definition.unjudged)
    rel = effect.rel or measure.threshold
    groups = run.groups
    last = last_rank(groups, measure.cutoff)
    relevant = groups.relevant(rel)
    possible = run.top >= rel
    extra = run.unlisted * possible

    def norm(total: Int) -> Float:
        return effect.norm(total, last)

    fit = run.cached(
        (measure, "fit"), lambda: _count_in_top(measure, run, run.judged_with(rel), possible)
    )
    left_out = fit.avoidable + extra
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = fit.least / norm(relevant + left_out), fit.most / norm(relevant + fit.unjudged)
        only = np.where(fit.unjudged > 0, 1.0 / norm(np.ones_like(relevant)), np.nan)
    low = np.where(norm(relevant + left_out) > 0, low, only)
    high = np.where(
        norm(relevant + fit.unjudged) > 0,
        high,
        np.where(run.unjudged_in_query * possible + extra > 0, 0.0, np.nan),
    )
    return QueryBounds(low, high)


@rule("all relevant")
def hit(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound Hit: an unjudged document that can fall out of the top K can be the one missed."""
    groups, cutoff = run.groups, measure.cutoff
    assert cutoff is not None
    wanted = groups.relevant(4)
    now = run.reported(measure)
    none = np.zeros(len(groups.size), np.int64)
    can_miss = (_count_in_top(measure, run, none).avoidable > 0) | (run.unlisted > 0)
    none = np.where(run.any, np.where(can_miss, 0.0, 1.0), np.nan)
    one = np.where(run.any, np.where(run.unjudged_in_query > 0, 1.0, 0.0), np.nan)
    return QueryBounds(
        np.where(wanted > 0, np.where(can_miss, 0.0, now.min), none),
        np.where(wanted > 0, now.max, one),
    )
