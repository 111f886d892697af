"""Two runs: the lowest and highest difference over every completion of the holes of both.

P, Hits, RBP, R and nDCG are exact where no hole ties; each hole then has one weight,
δ = w_a − w_b, 0 where a run does not list it in its top k. With ties a hole takes its best rank in
one run and its worst in the other: a bound. For the other measures the highest of one less the
lowest of the other is a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.measures import CountOverRelevant, Measure
from rankproof.measures.linear import all_relevant, discounts, within_cutoff
from rankproof.unjudged.gains import levels, ndcg_highest
from rankproof.unjudged.rules import changing, ends
from rankproof.unjudged.shared_documents import Holes, Lead, Shared, holed
from rankproof.unjudged.unjudged_documents import Ends, Holed, Reach, Seen


@dataclass(frozen=True, eq=False)
class Side:
    """One of two runs, with the holes of both."""

    run: Holed
    look: Callable[[], Seen]
    kept: dict[tuple[str, Measure, bool], Float] = field(default_factory=dict)

    @cached_property
    def seen(self) -> Seen:
        """(H,) where it has the holes."""
        return self.look()

    def tied(self, cutoff: int | None) -> bool:
        """Whether a hole that counts shares a tie group."""
        if not self.run.tied:
            return False
        most = np.iinfo(np.int64).max if cutoff is None else cutoff
        return bool(((self.seen.size > 1) & (self.seen.first <= most)).any())

    def discounts(self, measure: Measure, best: bool) -> Float:
        """(H,) what nDCG multiplies the gain of each hole by, at its best or its worst rank."""
        best = best or not self.run.tied
        key = ("holes", measure, best)
        if key not in self.kept:
            rank = self.seen.first if best else self.seen.last
            self.kept[key] = discounts(rank, measure.cutoff)
        return self.kept[key]

    def gained(self, measure: Measure, best: bool) -> Float:
        """(Q,) the judged documents' part of DCG, at its highest or its lowest."""
        best = best or not self.run.tied
        key = ("judged", measure, best)
        if key not in self.kept:
            run, groups = self.run, self.run.groups
            known, place = np.flatnonzero(~run.is_hole), groups.place_by_grade
            rank = (groups.best_rank(place) if best else groups.worst_rank(place))[known]
            gain = levels(run, measure).gain(groups.grade[known])
            weighted = gain * discounts(rank, measure.cutoff)
            self.kept[key] = groups.sum_by_query(groups.doc_query[known], weighted)
        return self.kept[key]


@dataclass(frozen=True, eq=False)
class Two:
    """Two runs with the holes of both."""

    a: Side
    b: Side
    holes: Holes
    candidates_only: bool  # each run has relevant documents of its own
    first: bool = True  # whether a is the first of the runs that the holes are of
    kept: dict[Measure, Lead] = field(default_factory=dict)

    @property
    def query(self) -> Int:
        """(H,) of each hole."""
        return self.holes.query

    @property
    def any(self) -> Bool:
        """(Q,) whether a completion could change anything."""
        return self.a.run.any | self.b.run.any

    @property
    def plain(self) -> bool:
        """Whether all else in reach are holes, and nothing ties: then numbers of them say most."""
        return all(side.run.gaps and not side.run.tied for side in (self.a, self.b))

    @cached_property
    def alike(self) -> Bool:
        """(Q,) queries whose two lists are one, grade by grade and hole by hole, and do not tie:
        no completion tells them apart."""
        a, b = self.a.run, self.b.run
        if self.candidates_only or not (a.gaps and b.gaps):
            return np.zeros(len(self.any), np.bool_)
        shared = self.holes.shared
        if shared is not None:
            level = shared.level
        else:
            same = self.query[self.a.seen.first == self.b.seen.first]
            level = np.bincount(same, minlength=len(self.any))
        alike: Bool = (a.span == b.span) & (level == self.holes.count) & ~(a.ties | b.ties)
        if alike.any():  # then what is judged stands at the same ranks
            one, other = (x.groups.grade[alike[x.groups.doc_query]] for x in (a, b))
            query = a.groups.doc_query[alike[a.groups.doc_query]]
            alike[query[one != other]] = False
        return alike

    def turned(self) -> Two:
        """b before a."""
        return Two(self.b, self.a, self.holes, self.candidates_only, not self.first, self.kept)

    def lead(
        self, measure: Measure, weigh: Callable[[Int], Float], find: Callable[[Shared, Float], Lead]
    ) -> Lead | None:
        """What is found of holes that weigh so much at each rank of a and of b; None where that
        takes a search."""
        shared = self.holes.shared
        if shared is None or not self.plain:
            return None
        if measure not in self.kept:
            longest = max(int(side.run.span.max(initial=0)) for side in (self.a, self.b))
            self.kept[measure] = find(shared, weigh(np.arange(longest + 1)))
        found = self.kept[measure]
        return found if self.first else found.turned()


def two(a: Reach, b: Reach, holes: Holes, cutoff: int | None, top: int) -> Two:
    """Two runs on the same judgements, with the holes of both."""

    def side(reach: Reach) -> Side:
        run = holed(reach, holes, cutoff, top)
        if cutoff == holes.depth and reach in holes.reaches:
            return Side(run, lambda: reach.front(cutoff).see(holes.near[reach]))
        return Side(run, lambda: reach.see(holes))

    return Two(side(a), side(b), holes, a.policy.candidates_only)


Highest = Callable[[Measure, Two], Float]


def difference_ends(measure: Measure, pair: Two) -> Ends:
    """Both ends of a − b for every query."""
    highest = None if pair.candidates_only else _exact_rule(measure)
    exact = highest is not None and not any(s.tied(measure.cutoff) for s in (pair.a, pair.b))
    low, high = np.full(len(pair.any), -np.inf), np.full(len(pair.any), np.inf)
    if highest is not None:
        high, low = highest(measure, pair), -highest(measure, pair.turned())
    open_ = changing(measure, pair.a.run) | changing(measure, pair.b.run)
    if not exact:  # two bounds: the narrower one
        one, other = ends(measure, pair.a.run), ends(measure, pair.b.run)
        low = np.maximum(low, one.low - other.high)
        high = np.minimum(high, one.high - other.low)
    now_a, now_b = (x.run.now(measure) for x in (pair.a, pair.b))
    tied_low, tied_high = now_a.min - now_b.max, now_a.max - now_b.min
    barren = pair.a.run.barren(measure) | pair.b.run.barren(measure)
    if not measure.definition.ignores_unjudged:
        # What is reported now is one of the possible values; rounding must not leave it outside.
        now = ~barren
        low = np.where(now, np.fmin(low, tied_low), low)
        high = np.where(now, np.fmax(high, tied_high), high)
    low, high = np.where(open_, low, tied_low), np.where(open_, high, tied_high)
    if pair.a.run.top < measure.threshold:  # nor does any completion count these
        low, high = (np.where(barren, np.nan, x) for x in (low, high))
    if not exact and open_.any():
        low, high = (np.where(pair.alike, 0.0 * x, x) for x in (low, high))
        open_ = open_ & ~pair.alike
    return Ends(low, high, exact or not open_.any())


def _exact_rule(measure: Measure) -> Highest | None:
    """The rule for the highest a − b, where the measure's declaration allows an exact one."""
    effect = measure.definition.unjudged
    if measure.definition.additive is not None:
        return _additive
    if effect == "ideal gain":
        return _ndcg
    return _recall if effect == CountOverRelevant(all_relevant) else None


def _additive(measure: Measure, pair: Two) -> Float:
    """P, Hits, RBP: each unjudged document that helps a more than b is relevant, and no other."""
    rel, top = measure.threshold, measure.parameters.get("max")
    known = pair.a.run.now(measure).max - pair.b.run.now(measure).min
    if top is None and pair.a.run.top < rel:
        return known
    worth = min(pair.a.run.top, top) / top if isinstance(top, int) else 1.0
    add = measure.definition.additive
    assert add is not None

    def weigh(rank: Int) -> Float:
        return add(measure, rank)

    is_constant = bool(np.ptp(weigh(np.arange(1, (measure.cutoff or 2) + 1))) == 0)
    barren = pair.a.run.barren(measure)
    lead = None if is_constant else pair.lead(measure, weigh, Shared.lead)
    gained: Array
    if pair.plain and is_constant:  # what both have in the top k helps neither
        only_a, only_b = pair.b.run.extra, pair.a.run.extra
        one = float(weigh(np.ones(1, np.int64))[0])
        gained = worth * one * only_a
        both = pair.holes.count - only_a - only_b
        least = np.where(only_a > 0, one, np.where(both > 0, 0.0, -one))
    elif lead is not None:
        gained, least = worth * lead.gained, lead.most
    else:
        delta = weigh(pair.a.seen.first) - weigh(pair.b.seen.last)
        gained = np.bincount(pair.query, worth * np.maximum(delta, 0.0), minlength=len(known))
        least = np.full(len(known), -np.inf)
        np.maximum.at(least, pair.query, delta)
    if barren.any():  # one at least is relevant: the one that helps b least
        if isinstance(top, int):
            least = least * min(rel, top) / top
        gained = np.where(barren & (least <= 0), least, gained)
    return known + gained


def _recall(measure: Measure, pair: Two) -> Float:
    """(h_a − h_b + a)/(R + a), over R + a + c where the numerator is below 0.

    `a` counts the holes that only a can be given, `c` those that change neither count.
    """
    rel = measure.threshold
    relevant = pair.a.run.groups.relevant(rel)
    with np.errstate(invalid="ignore"):
        found_a = np.nan_to_num(pair.a.run.now(measure).max * relevant)
        found_b = np.nan_to_num(pair.b.run.now(measure).min * relevant)
    above = np.rint(found_a - found_b)
    possible = pair.a.run.top >= rel
    if pair.plain:
        only_a, only_b = pair.b.run.extra * possible, pair.a.run.extra * possible
        neither = pair.holes.count * possible - only_a - only_b
    else:
        in_a, in_b = (within_cutoff(measure, r) for r in (pair.a.seen.first, pair.b.seen.last))
        only_a, neither, only_b = (
            np.bincount(pair.query[some], minlength=len(relevant)) * possible
            for some in (in_a & ~in_b, in_a == in_b, ~in_a & in_b)
        )
    above = above + only_a
    below = relevant + only_a + np.where(above < 0, neither, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.clip(above / below, -1.0, 1.0)
    # Nothing is relevant but a hole that changes neither count, or one that only b has.
    nothing = np.where(neither > 0, 0.0, np.where(only_b > 0, -1.0, np.nan))
    return np.where(below > 0, value, nothing)


def _ndcg(measure: Measure, pair: Two) -> Float:
    known = pair.a.gained(measure, best=True) - pair.b.gained(measure, best=False)
    steps = levels(pair.a.run, measure)

    def find(shared: Shared, weight: Float) -> Lead:
        return shared.gains(weight, known, steps, steps.ideal(pair.holes.count, measure.cutoff))

    lead = pair.lead(measure, lambda rank: discounts(rank, measure.cutoff), find)
    if lead is not None:
        return lead.most
    delta = pair.a.discounts(measure, best=True) - pair.b.discounts(measure, best=False)
    none = np.zeros(len(known), np.int64)
    return ndcg_highest(known, delta[None, :], pair.holes.count, none, steps, measure.cutoff)
