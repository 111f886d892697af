"""Lowest and highest difference of two runs, over every grade of the unjudged documents of both.

P, Hits, RBP, R, nDCG, RR and Success are exact where no unjudged document ties, AP on queries with
at most 12 (joint_precision.py). A document has one weight in P, Hits, RBP and nDCG, δ = w_a − w_b,
where w is 0 if a run does not list it in its top k. With ties an unjudged document takes its best
rank in one run and its worst in the other: a bound. For the other measures the highest of one run
less the lowest of the other is a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.measures import CountOverRelevant, Measure
from rankproof.measures.linear import all_relevant, discounts, within_cutoff
from rankproof.unjudged.gains import ndcg_highest, ndcg_levels
from rankproof.unjudged.joint_precision import MAX_DOCUMENTS, PrecisionSum, highest_gap
from rankproof.unjudged.rules import bounds, changing
from rankproof.unjudged.shared_documents import (
    SharedDocuments,
    UnjudgedSet,
    WeightGap,
    partly_judged,
)
from rankproof.unjudged.unjudged_documents import (
    MatchedRun,
    PartlyJudged,
    QueryBounds,
    TiedRanks,
)


@dataclass(frozen=True, eq=False)
class PairSide:
    """One of two runs, with the unjudged documents of both."""

    run: PartlyJudged
    look_up: Callable[[], TiedRanks]
    cache: dict[tuple[str, Measure, bool], Float] = field(default_factory=dict)

    @cached_property
    def ranks(self) -> TiedRanks:
        """(H,) where this run has the unjudged documents of both."""
        return self.look_up()

    def has_ties(self, cutoff: int | None) -> bool:
        """True if an unjudged document that counts shares a tie group."""
        if not self.run.tied:
            return False
        last = np.iinfo(np.int64).max if cutoff is None else cutoff
        return bool(((self.ranks.size > 1) & (self.ranks.first <= last)).any())

    def discounts(self, measure: Measure, best: bool) -> Float:
        """(H,) what nDCG multiplies the gain of each document by, at its best or worst rank."""
        best = best or not self.run.tied
        key = ("unjudged", measure, best)
        if key not in self.cache:
            rank = self.ranks.first if best else self.ranks.last
            self.cache[key] = discounts(rank, measure.cutoff)
        return self.cache[key]

    def judged_gain(self, measure: Measure, best: bool) -> Float:
        """(Q,) the judged documents' part of DCG, at its highest or lowest."""
        best = best or not self.run.tied
        key = ("judged", measure, best)
        if key not in self.cache:
            run, groups = self.run, self.run.groups
            judged, place = np.flatnonzero(~run.is_unjudged), groups.place_by_grade
            rank = (groups.best_rank(place) if best else groups.worst_rank(place))[judged]
            gain = ndcg_levels(run, measure).gain(groups.grade[judged])
            weighted = gain * discounts(rank, measure.cutoff)
            self.cache[key] = groups.sum_by_query(groups.doc_query[judged], weighted)
        return self.cache[key]


@dataclass(frozen=True, eq=False)
class RunPair:
    """Two runs with the unjudged documents of both."""

    a: PairSide
    b: PairSide
    documents: UnjudgedSet
    candidates_only: bool  # each run has relevant documents of its own
    is_swapped: bool = False  # b is the first run of `documents`
    cache: dict[Measure, WeightGap] = field(default_factory=dict)

    @property
    def query(self) -> Int:
        """(H,) of each unjudged document."""
        return self.documents.query

    @property
    def any(self) -> Bool:
        """(Q,) True if unjudged documents could change anything."""
        return self.a.run.any | self.b.run.any

    @property
    def is_implicit(self) -> bool:
        """True if all other ranks are unjudged and nothing ties: then their numbers decide."""
        return all(side.run.is_implicit and not side.run.tied for side in (self.a, self.b))

    @cached_property
    def identical(self) -> Bool:
        """(Q,) queries whose two lists are the same and do not tie: no grades separate them."""
        a, b = self.a.run, self.b.run
        if self.candidates_only or not (a.is_implicit and b.is_implicit):
            return np.zeros(len(self.any), np.bool_)
        if self.documents.shared is not None:
            same_rank = self.documents.shared.same_rank
        else:
            at_same_rank = self.query[self.a.ranks.first == self.b.ranks.first]
            same_rank = np.bincount(at_same_rank, minlength=len(self.any))
        all_shared = (a.span == b.span) & (same_rank == self.documents.count)
        identical: Bool = all_shared & ~(a.ties | b.ties)
        if identical.any():  # then the judged documents have the same ranks
            query = a.groups.doc_query[identical[a.groups.doc_query]]
            grades_a, grades_b = (
                run.groups.grade[identical[run.groups.doc_query]] for run in (a, b)
            )
            identical[query[grades_a != grades_b]] = False
        return identical

    def swapped(self) -> RunPair:
        """The same pair with b as the first run."""
        return RunPair(
            self.b,
            self.a,
            self.documents,
            self.candidates_only,
            is_swapped=not self.is_swapped,
            cache=self.cache,
        )

    def weight_gap(
        self,
        measure: Measure,
        weigh: Callable[[Int], Float],
        compute: Callable[[SharedDocuments, Float], WeightGap],
    ) -> WeightGap | None:
        """The gap of documents that have the weight weigh(rank) in each run.

        None if the documents must be identified, since something ties or no compiled code is there.
        """
        shared = self.documents.shared if self.is_implicit else None
        if shared is None:
            return None
        if measure not in self.cache:
            longest = max(int(side.run.span.max(initial=0)) for side in (self.a, self.b))
            self.cache[measure] = compute(shared, weigh(np.arange(longest + 1)))
        gap = self.cache[measure]
        return gap.swapped() if self.is_swapped else gap

    @cached_property
    def ranks(self) -> tuple[Int, Int, Int]:
        """(H,) query, best rank in a, and worst rank in b of each unjudged document."""
        shared = self.documents.shared if self.is_implicit else None
        if shared is None:
            return self.query, self.a.ranks.first, self.b.ranks.last
        query, of_first, of_second = shared.ranks
        return (query, of_second, of_first) if self.is_swapped else (query, of_first, of_second)


def run_pair(
    a: MatchedRun, b: MatchedRun, documents: UnjudgedSet, cutoff: int | None, top_grade: int
) -> RunPair:
    """Two runs on the same judgments, with the unjudged documents of both."""

    def side(run: MatchedRun) -> PairSide:
        partly = partly_judged(run, documents, cutoff, top_grade)
        if cutoff == documents.depth and run in documents.runs:
            return PairSide(
                partly, lambda: run.top_documents(cutoff).tied_ranks(documents.places[run])
            )
        return PairSide(partly, lambda: run.tied_ranks(documents))

    return RunPair(side(a), side(b), documents, a.policy.candidates_only)


Highest = Callable[[Measure, RunPair], Float]


def difference_bounds(measure: Measure, pair: RunPair) -> QueryBounds:
    """Bound a − b for every query."""
    highest = None if pair.candidates_only else _exact_rule(measure)
    has_ties = any(side.has_ties(measure.cutoff) for side in (pair.a, pair.b))
    exact = highest is not None and not has_ties
    low, high = np.full(len(pair.any), -np.inf), np.full(len(pair.any), np.inf)
    if highest is not None:
        high, low = highest(measure, pair), -highest(measure, pair.swapped())
    is_open = changing(measure, pair.a.run) | changing(measure, pair.b.run)
    exact = exact and not (np.isinf(low) | np.isinf(high))[is_open].any()
    if not exact:  # two bounds: the narrower one
        a, b = bounds(measure, pair.a.run), bounds(measure, pair.b.run)
        low = np.maximum(low, a.low - b.high)
        high = np.minimum(high, a.high - b.low)
    reported_a, reported_b = (side.run.reported(measure) for side in (pair.a, pair.b))
    tied_low, tied_high = reported_a.min - reported_b.max, reported_a.max - reported_b.min
    without_relevant = pair.a.run.without_relevant(measure) | pair.b.run.without_relevant(measure)
    if not measure.definition.ignores_unjudged:
        # What is reported now is one of the possible values; rounding must not leave it outside.
        low = np.where(without_relevant, low, np.fmin(low, tied_low))
        high = np.where(without_relevant, high, np.fmax(high, tied_high))
    low, high = np.where(is_open, low, tied_low), np.where(is_open, high, tied_high)
    if pair.a.run.top < measure.threshold:  # no grade makes these queries count
        low, high = (np.where(without_relevant, np.nan, x) for x in (low, high))
    if not exact and is_open.any():
        low, high = (np.where(pair.identical, 0.0 * x, x) for x in (low, high))
        is_open = is_open & ~pair.identical
    return QueryBounds(low, high, exact or not is_open.any())


def _exact_rule(measure: Measure) -> Highest | None:
    """The rule for the highest a − b, where the measure's declaration allows an exact one."""
    effect = measure.definition.unjudged
    if measure.definition.additive is not None:
        return _highest_additive
    if effect == CountOverRelevant(all_relevant):
        return _highest_recall
    return _RULES.get(effect) if isinstance(effect, str) else None


def _highest_additive(measure: Measure, pair: RunPair) -> Float:
    """(Q,) the highest a − b of P, Hits, RBP.

    Each unjudged document with δ > 0 is relevant, and no other.
    """
    rel, scale = measure.threshold, measure.parameters.get("max")
    known = pair.a.run.reported(measure).max - pair.b.run.reported(measure).min
    if scale is None and pair.a.run.top < rel:
        return known
    top_gain = min(pair.a.run.top, scale) / scale if isinstance(scale, int) else 1.0
    add = measure.definition.additive
    assert add is not None

    def weigh(rank: Int) -> Float:
        return add(measure, rank)

    first_ranks = weigh(np.arange(1, (measure.cutoff or 2) + 1))
    is_constant = bool(np.ptp(first_ranks) == 0)
    gap = None if is_constant else pair.weight_gap(measure, weigh, SharedDocuments.weight_gap)
    gained: Array
    if pair.is_implicit and is_constant:  # what both have in the top k helps neither
        only_a, only_b = pair.b.run.unlisted, pair.a.run.unlisted
        one = float(first_ranks[0])
        gained = top_gain * one * only_a
        both = pair.documents.count - only_a - only_b
        most = np.where(only_a > 0, one, np.where(both > 0, 0.0, -one))
    elif gap is not None:
        gained, most = top_gain * gap.gained, gap.most
    else:
        delta = weigh(pair.a.ranks.first) - weigh(pair.b.ranks.last)
        gained = np.bincount(pair.query, top_gain * np.maximum(delta, 0.0), minlength=len(known))
        most = np.full(len(known), -np.inf)
        np.maximum.at(most, pair.query, delta)
    without_relevant = pair.a.run.without_relevant(measure)
    if without_relevant.any():  # at least one is relevant: the one that helps b least
        if isinstance(scale, int):
            most = most * min(rel, scale) / scale
        gained = np.where(without_relevant & (most <= 0), most, gained)
    return known + gained


def _highest_recall(measure: Measure, pair: RunPair) -> Float:
    """(Q,) the highest a − b of R: (h_a − h_b + n_a)/(R + n_a), over R + n_a + n_c if that is < 0.

    h are the relevant documents that a run has in its top k, n_a the unjudged documents that only a
    has there, n_c those that both or neither has.
    """
    rel = measure.threshold
    relevant = pair.a.run.groups.relevant(rel)
    with np.errstate(invalid="ignore"):
        hits_a = np.nan_to_num(pair.a.run.reported(measure).max * relevant)
        hits_b = np.nan_to_num(pair.b.run.reported(measure).min * relevant)
    possible = pair.a.run.top >= rel
    if pair.is_implicit:
        only_a, only_b = pair.b.run.unlisted * possible, pair.a.run.unlisted * possible
        neither = pair.documents.count * possible - only_a - only_b
    else:
        in_a = within_cutoff(measure, pair.a.ranks.first)
        in_b = within_cutoff(measure, pair.b.ranks.last)
        only_a, neither, only_b = (
            np.bincount(pair.query[chosen], minlength=len(relevant)) * possible
            for chosen in (in_a & ~in_b, in_a == in_b, ~in_a & in_b)
        )
    numerator = np.rint(hits_a - hits_b) + only_a
    denominator = relevant + only_a + np.where(numerator < 0, neither, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.clip(numerator / denominator, -1.0, 1.0)
    # Nothing is relevant but a document that changes neither count, or one that only b has.
    otherwise = np.where(neither > 0, 0.0, np.where(only_b > 0, -1.0, np.nan))
    return np.where(denominator > 0, value, otherwise)


def _highest_ndcg(measure: Measure, pair: RunPair) -> Float:
    """(Q,) the highest a − b of nDCG.

    It is one nDCG (gains.py) with D = DCG_a − DCG_b of the judged documents and δ the difference of
    an unjudged document's discounts, since both runs are divided by the same ideal.
    """
    known = pair.a.judged_gain(measure, best=True) - pair.b.judged_gain(measure, best=False)
    levels, cutoff = ndcg_levels(pair.a.run, measure), measure.cutoff

    def compute(shared: SharedDocuments, weight: Float) -> WeightGap:
        ideal = levels.cumulative_discounts(pair.documents.count, cutoff)
        return shared.ndcg_gap(weight, known, levels, ideal)

    gap = pair.weight_gap(measure, lambda rank: discounts(rank, cutoff), compute)
    if gap is not None:
        return gap.most
    delta = pair.a.discounts(measure, best=True) - pair.b.discounts(measure, best=False)
    no_unlisted = np.zeros(len(known), np.int64)
    return ndcg_highest(known, delta[None, :], pair.documents.count, no_unlisted, levels, cutoff)


def _highest_first_relevant(measure: Measure, pair: RunPair) -> Float:
    """(Q,) the highest a − b of RR and Success: at most one unjudged document need be relevant.

    It is the first of them in a; all others could only raise b.
    """
    rel = measure.threshold
    known_a, known_b = pair.a.run.reported(measure).max, pair.b.run.reported(measure).min
    if pair.a.run.top < rel:
        return known_a - known_b
    known_a, known_b = np.nan_to_num(known_a), np.nan_to_num(known_b)

    def value(rank: Int) -> Float:
        credit = 1.0 if measure.name == "Success" else 1.0 / rank
        return np.where(within_cutoff(measure, rank), credit, 0.0)

    highest = np.where(pair.a.run.without_relevant(measure), -np.inf, known_a - known_b)
    query, rank_a, rank_b = pair.ranks
    of_a = np.maximum(known_a[query], value(rank_a))
    of_b = np.maximum(known_b[query], value(rank_b))
    np.maximum.at(highest, query, of_a - of_b)
    return highest


def _highest_precision(measure: Measure, pair: RunPair) -> Float:
    """(Q,) the highest a − b of AP; infinite where a query has more than 12 unjudged documents."""
    if pair.a.run.top < measure.threshold:
        return pair.a.run.reported(measure).max - pair.b.run.reported(measure).min
    if (pair.documents.count > MAX_DOCUMENTS).all():
        return np.full(len(pair.any), np.inf)
    query, rank_a, rank_b = pair.ranks
    a = PrecisionSum.of(measure, pair.a.run, query, rank_a, best=True)
    b = PrecisionSum.of(measure, pair.b.run, query, rank_b, best=False)
    return highest_gap(a, b, pair.a.run.groups.relevant(measure.threshold), pair.documents.count)


_RULES: dict[str, Highest] = {
    "ideal gain": _highest_ndcg,
    "first relevant": _highest_first_relevant,
    "average precision": _highest_precision,
}  # by what a measure declares in `unjudged=`
