"""Lowest and highest value of each measure for one run, over every grade of unjudged documents.

A rule reads tie groups with unjudged documents among them and returns both bounds for every query,
NaN where no grades define the measure. Which rule applies follows from what the measure declares
(`measures/properties.py`). Rules are exact, ties included, but for nDCG and RAnWG, whose bounds may
be too wide where an unjudged document ties with a judged one. Here are the rules of measures for
which one grade is best and one is worst, or which are a share of the relevant documents; walks.py
and graded.py have the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
    registered = RULES.get(effect if isinstance(effect, str) else type(effect))
    return cast(Rule, effect) if registered is None and callable(effect) else registered


def bounds(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound a measure for every query; without unjudged documents, over the orders of ties."""
    rule = rule_of(measure)
    if rule is None:
        raise MeasureError(
            f"{measure.name} does not declare how unjudged documents move it",
            remedy="declare rising=True or unjudged=… where it is registered",
        )
    by_rule = rule(measure, run)
    is_open = changing(measure, run)
    reported = run.reported(measure)
    low = np.where(is_open, by_rule.low, reported.min)
    high = np.where(is_open, by_rule.high, reported.max)
    without_relevant = run.without_relevant(measure) & is_open
    # Unjudged counts as the lowest grade: what is reported now is one of the possible values, and
    # rounding must not leave it outside. A measure that ignores unjudged documents reports
    # something else, unless nothing is relevant.
    is_possible = ~without_relevant
    if measure.definition.ignores_unjudged:
        is_possible &= run.groups.relevant(measure.threshold) == 0
    low = np.where(is_possible, np.fmin(low, reported.min), low)
    high = np.where(is_possible, np.fmax(high, reported.max), high)
    result = QueryBounds(low, high, by_rule.exact or not is_open.any())
    if not without_relevant.any():
        return result
    return _with_one_relevant(measure, run, result, without_relevant)


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
    measure: Measure, run: PartlyJudged, by_query: QueryBounds, without_relevant: Bool
) -> QueryBounds:
    """Correct the bounds of queries that count only if an unjudged document is relevant.

    Their lowest value has one relevant document: the last unjudged one of the list, or one that the
    run does not list. NaN if no unjudged document can have a relevant grade.
    """
    rel = measure.threshold
    if run.top < rel:
        low, high = (
            np.where(without_relevant, np.nan, end) for end in (by_query.low, by_query.high)
        )
        return QueryBounds(low, high, by_query.exact)
    if measure.definition.rising:
        least = measure.outcomes(run.last_graded(rel, without_relevant)).min
        least = np.where(run.unlisted > 0, run.reported(measure).min, least)
        return replace(by_query, low=np.where(without_relevant, least, by_query.low))
    is_defined = ~np.isnan(run.reported(measure).expected)
    exact = by_query.exact and not (without_relevant & is_defined).any()
    return replace(by_query, exact=exact)


# ------------------------------------------------------- a grade that is best, one that is worst


@rule(Extremes)
def extremes(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound a measure by one grade of all unjudged documents for each end.

    A declared grade of None means that an end is what is reported now.
    """
    effect = cast(Extremes, measure.definition.unjudged)
    lowest = (measure.definition.grades or (0, 0))[0]

    def to_number(declared: Grade) -> int | None:
        by_name = {"lowest": lowest, "highest": run.top}
        return by_name[declared] if isinstance(declared, str) else declared

    low, high = to_number(effect.low), to_number(effect.high)
    reported = run.reported(measure)
    return QueryBounds(
        reported.min if low is None else measure.outcomes(run.all_graded(low)).min,
        reported.max if high is None else measure.outcomes(run.all_graded(high)).max,
    )


@rule(CountOverNorm)
def count_over_norm(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound P, Hits and the like: as reported now, or with all unjudged documents that fit."""
    effect = cast(CountOverNorm, measure.definition.unjudged)
    reported, grades = run.reported(measure), effect.grades
    if grades is None:
        rel = measure.parameters["rel"]
        if rel is None or run.top < rel:  # every listed document counts, or none can
            return QueryBounds(reported.min, reported.max)
        judged = run.judged_with(rel)
    else:
        judged = run.judged_with(*grades)
    most = _count_in_top(measure, run, judged).most
    return QueryBounds(reported.min, most / effect.norm(run.groups, measure.cutoff))


@dataclass(frozen=True, slots=True)
class TopCounts:
    """(Q,) documents in the top k that count, and unjudged ones that may."""

    least: Int  # that count for certain
    most: Int  # with all unjudged ones that fit
    unjudged: Int  # that fit
    avoidable: Int  # unjudged ones that need not be in the top k


def _count_in_top(
    measure: Measure, run: PartlyJudged, counting: Int, is_possible: bool = True
) -> TopCounts:
    """Count what fits into the top k, where (G,) `counting` judged documents of each group count.

    Of a tie group that straddles k as many as possible are taken for `most`, as few as possible for
    `least`. Unjudged documents that tie with nothing judged have the ranks that no group has.
    Without `is_possible` no grade makes an unjudged document count.
    """
    groups = run.groups
    cutoff = last_rank(groups, measure.cutoff)

    def by_query(values: Array) -> Int:
        return groups.sum_by_query(groups.query, values).astype(np.int64)

    unjudged = run.unjudged_in_group * is_possible
    if run.tied:
        slots = np.clip(cutoff[groups.query] - groups.first + 1, 0, groups.size)
        inside = np.clip(slots - counting, 0, unjudged)
        outside = np.clip(groups.size - slots - counting, 0, unjudged)
        least = by_query(np.maximum(counting + slots - groups.size, 0))
        most, avoidable = by_query(np.minimum(counting + inside, slots)), by_query(outside)
        fitting, ranks, sizes = by_query(inside), by_query(slots), by_query(groups.size)
    else:  # all these groups are in the top k
        least = by_query(counting)
        fitting = by_query(unjudged)
        most, avoidable = least + fitting, np.zeros_like(least)
        ranks = sizes = np.bincount(groups.query, minlength=groups.queries)
    if run.is_implicit and is_possible:
        between = np.minimum(cutoff, run.span) - ranks
        most, fitting = most + between, fitting + between
        avoidable = avoidable + run.span - sizes - between
    return TopCounts(least=least, most=most, unjudged=fitting, avoidable=avoidable)


@rule("first relevant")
def first_relevant(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound RR and Success by the first rank that a relevant or unjudged document can have."""
    rel = measure.threshold
    reported = run.reported(measure)
    if run.top < rel:
        return QueryBounds(reported.min, reported.max)
    key = ("first", rel, measure.cutoff)
    rank = run.cached(key, lambda: _first_possible_rank(run, rel))
    if measure.name == "Success":
        return QueryBounds(reported.min, (rank > 0).astype(np.float64))
    with np.errstate(divide="ignore"):
        return QueryBounds(reported.min, np.where(rank > 0, 1.0 / rank, 0.0))


def _first_possible_rank(run: PartlyJudged, rel: int) -> Int:
    """(Q,) the first rank that a relevant or unjudged document can have; 0 if there is none."""
    groups = run.groups
    is_candidate = (run.judged_with(rel) + run.unjudged_in_group) > 0
    rank = groups.first
    first = np.zeros(groups.queries, np.int64)
    if run.is_implicit:  # every rank that no group has is an unjudged document's
        ranks_before = running_total(groups.size, groups.query) - groups.size
        is_candidate |= rank - 1 > ranks_before
        rank = ranks_before + 1
        sizes = groups.sum_by_query(groups.query, groups.size).astype(np.int64)
        first = np.where(sizes < run.span, sizes + 1, 0)  # behind all groups
    candidates = np.flatnonzero(is_candidate)
    of_query = candidates[np.diff(groups.query[candidates], prepend=-1) != 0]
    first[groups.query[of_query]] = rank[of_query]
    return first


@rule(GainSum)
def gain_sum(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound DCG and the like: with the highest grade for every unjudged document.

    The highest gains of a tie group come first.
    """
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
        # All ranks as if no document were judged, and what the judged ones add to that.
        added = groups.sum_by_query(groups.doc_query, (gain[order] - top_gain) * weight[rank])
        return added + top_gain * np.cumsum(weight)[run.span]

    return QueryBounds(run.reported(measure).min, run.cached(measure, highest))


@rule("stopping")
def stopping_early(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound ERR, which rises with grades; a higher top grade also changes what each is worth.

    Stop probabilities fall when the highest grade rises, so every highest grade is tried.
    """
    known = run.groups.pool.max_grade
    limit = measure.parameters["max"]
    if _has_known_scale(measure, run):
        top = limit if isinstance(limit, int) else known
        high = run.cached(measure, lambda: _highest_err(measure, run, run.top, top))
        return QueryBounds(run.reported(measure).min, high)
    tops = range(max(known, 1), run.top + 1)
    high = np.max([_highest_err(measure, run, top, top) for top in tops], axis=0)
    low = measure(max=run.top).outcomes(run.all_graded(0)).min
    return QueryBounds(low, high, exact=False)


def _highest_err(measure: Measure, run: PartlyJudged, grade: int, top: int) -> Float:
    """(Q,) ERR in the best order of ties if unjudged documents have a grade on a scale 0–top."""
    probability = np.exp2(np.arange(top + 1) - top) - np.exp2(-float(top))
    lists = run if kernels.native is not None else run.explicit
    grades = np.where(lists.is_unjudged, grade, lists.groups.grade)
    order, rank = lists.extreme_order(grades, grade)
    stop = probability[np.minimum(grades[order], top)]
    cutoff = last_rank(run.groups, measure.cutoff)
    if kernels.native is None:
        return stopping(lists.groups, stop, rank, cutoff)
    unjudged_stop = float(probability[min(grade, top)]) if lists.is_implicit else 0.0
    value, last = np.empty(run.groups.queries), cutoff.copy()
    kernels.map_ranges(
        lambda low, high: kernels.native.cascade(
            *(stop, rank, lists.begin, lists.span, unjudged_stop, last, value, low, high)
        ),
        *(len(value), kernels.thread_count(int(lists.span.sum()))),
    )
    return value


@rule("covered aspects")
@rule("covered aspects, ideal")
def covered_aspects(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound measures of aspects, of which an unjudged document may cover any that are known.

    One that covers all aspects makes StRecall 1. A measure over an ideal order, or over the
    relevant documents, may fall when more documents cover an aspect.
    """
    now = run.reported(measure)
    falls = measure.definition.unjudged == "covered aspects, ideal"
    low, high = now.min * (0.0 if falls else 1.0), np.maximum(now.max, measure.upper)
    return QueryBounds(low, np.where(np.isnan(now.max), np.nan, high), measure.name == "StRecall")


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
    is_possible = run.top >= rel
    listed_holes, unlisted = run.unjudged_in_query * is_possible, run.unlisted * is_possible
    hits = groups.sum_by_query(groups.query, run.judged_with(rel))
    relevant = groups.relevant(rel)
    listed = np.maximum(groups.listed, 1)
    beta = measure.parameters.get("beta")

    def value(hits: Array, relevant: Array) -> Float:
        with np.errstate(invalid="ignore", divide="ignore"):
            if isinstance(beta, float):
                share = (beta + 1.0) * hits / (beta * relevant + listed)
                return np.where(hits > 0, share, 0.0)
            return np.where(relevant > 0, hits * hits / (listed * relevant), np.nan)

    low = value(hits, relevant + unlisted)
    high = value(hits + listed_holes, relevant + listed_holes)
    # If nothing is relevant now: one unlisted relevant document gives 0, a listed one the least.
    one = np.ones(len(low))
    low = np.where(np.isnan(low) & (listed_holes > 0), value(one, one), low)
    return QueryBounds(low, np.where(np.isnan(high) & (unlisted > 0), 0.0, high))


@rule(CountOverRelevant)
def count_over_relevant(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound R and the like: relevant documents in the top k over a norm that grows with all.

    One more relevant document adds one to the count and at most one to the norm, so it never lowers
    the share where it fits; one that does not fit, or that the run does not list, adds to the norm
    alone.
    """
    effect = cast(CountOverRelevant, measure.definition.unjudged)
    rel = effect.rel or measure.threshold
    # The norm has the cutoff itself, also where a list is shorter.
    cutoff = run.groups.listed if measure.cutoff is None else np.asarray(measure.cutoff)
    relevant = run.groups.relevant(rel)
    is_possible = run.top >= rel
    unlisted = run.unlisted * is_possible
    counts = run.cached(
        (measure, "fit"), lambda: _count_in_top(measure, run, run.judged_with(rel), is_possible)
    )
    norm_low = effect.norm(relevant + counts.avoidable + unlisted, cutoff)
    norm_high = effect.norm(relevant + counts.unjudged, cutoff)
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = counts.least / norm_low, counts.most / norm_high
        one_listed = 1.0 / effect.norm(np.ones_like(relevant), cutoff)
    # Nothing relevant is sure to be in the norm: the lowest value has one relevant document.
    low = np.where(norm_low > 0, low, np.where(counts.unjudged > 0, one_listed, np.nan))
    has_unjudged = run.unjudged_in_query * is_possible + unlisted > 0
    high = np.where(norm_high > 0, high, np.where(has_unjudged, 0.0, np.nan))
    return QueryBounds(low, high)


@rule("all relevant")
def hit(measure: Measure, run: PartlyJudged) -> QueryBounds:
    """Bound Hit: an unjudged document that can fall out of the top K can be the one missed."""
    groups, cutoff = run.groups, measure.cutoff
    assert cutoff is not None
    has_relevant = groups.relevant(4) > 0
    reported = run.reported(measure)
    no_judged = np.zeros(len(groups.size), np.int64)
    can_miss = (_count_in_top(measure, run, no_judged).avoidable > 0) | (run.unlisted > 0)
    # Without a relevant document yet, one of the unjudged ones is relevant.
    low_of_one = np.where(run.any, np.where(can_miss, 0.0, 1.0), np.nan)
    high_of_one = np.where(run.any, np.where(run.unjudged_in_query > 0, 1.0, 0.0), np.nan)
    return QueryBounds(
        np.where(has_relevant, np.where(can_miss, 0.0, reported.min), low_of_one),
        np.where(has_relevant, reported.max, high_of_one),
    )
