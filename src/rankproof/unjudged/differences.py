"""Two runs: the lowest and highest difference over every completion of the holes of both.

P, Hits, RBP, R and nDCG are exact where no hole ties; each hole then has one weight,
δ = w_a − w_b, 0 where a run does not list it in its top k. With ties a hole takes its best rank in
one run and its worst in the other: a bound. For the other measures the highest of one less the
lowest of the other is a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankproof.arrays import Bool, Float, Int
from rankproof.measures.registry import Measure
from rankproof.unjudged.gains import levels, ndcg_highest, weights
from rankproof.unjudged.reach import HOLE, Holed, Holes, Reach, Seen
from rankproof.unjudged.rules import IGNORING, Ends, ends


@dataclass(frozen=True, slots=True, eq=False)
class Two:
    """Two runs with the holes of both."""

    a: Holed
    b: Holed
    query: Int  # (H,) of each hole
    seen_a: Seen  # (H,)
    seen_b: Seen  # (H,)
    candidates_only: bool  # each run has relevant documents of its own

    @property
    def any(self) -> Bool:
        """(Q,) whether a completion could change anything."""
        return self.a.any | self.b.any

    def tied(self, cutoff: int | None) -> bool:
        """Whether a hole that counts shares a tie group."""
        most = np.iinfo(np.int64).max if cutoff is None else cutoff
        return any(
            bool(((s.size > 1) & (s.first <= most)).any()) for s in (self.seen_a, self.seen_b)
        )

    def turned(self) -> Two:
        """b before a."""
        return Two(self.b, self.a, self.query, self.seen_b, self.seen_a, self.candidates_only)


def holed(reach: Reach, holes: Holes, cutoff: int | None, top: int) -> Holed:
    """A run's tie groups with those of `holes` that it lists; the others are extra."""
    if cutoff is not None and cutoff == holes.depth and reach in holes.whose:
        groups = reach.within(cutoff)  # whatever other runs list, these are its own
    else:
        row = reach.find(holes)
        groups = reach.holed(holes.query[row >= 0], row[row >= 0])
        if cutoff is not None:
            groups = groups.within(cutoff)
    inside = groups.doc_query[groups.grade == HOLE]
    everyone = np.bincount(holes.query, minlength=reach.queries)
    extra = everyone - np.bincount(inside, minlength=reach.queries)
    return Holed(groups, reach.now, extra, top)


def union(reaches: list[Reach], depth: int | None) -> Holes:
    """The holes of several runs, each once, ascending by query."""
    if len(reaches) == 1:
        return reaches[0].holes(depth)
    parts: list[Holes] = []
    for number, reach in enumerate(reaches):
        holes = reach.holes(depth)
        new = np.ones(len(holes), np.bool_)
        for earlier in reaches[:number]:
            new &= ~earlier.has(earlier.find(holes), depth)
        parts.append(_some(holes, np.flatnonzero(new)))
    query = np.concatenate([part.query for part in parts])
    by_query = np.argsort(query, kind="stable")

    def names() -> pl.Series:
        return pl.concat([part.doc for part in parts], rechunk=True).gather(by_query)

    rows = {r: np.concatenate([r.find(part) for part in parts])[by_query] for r in reaches}
    return Holes(query[by_query], names, rows, depth, frozenset(reaches))


def _some(holes: Holes, kept: Int) -> Holes:
    """Some of the holes, with what is known of them."""
    rows = {reach: row[kept] for reach, row in holes.rows.items()}
    return Holes(holes.query[kept], lambda: holes.doc.gather(kept), rows)


def two(a: Reach, b: Reach, holes: Holes, cutoff: int | None, top: int) -> Two:
    """Two runs on the same judgements, with the holes of both."""
    return Two(
        holed(a, holes, cutoff, top),
        holed(b, holes, cutoff, top),
        holes.query,
        a.see(holes),
        b.see(holes),
        a.policy.candidates_only,
    )


Highest = Callable[[Measure, Two], Float]


def difference_ends(measure: Measure, pair: Two) -> Ends:
    """Both ends of a − b for every query."""
    highest = None if pair.candidates_only else _HIGHEST.get(measure.name)
    exact = highest is not None and not pair.tied(measure.cutoff)
    low, high = np.full(len(pair.any), -np.inf), np.full(len(pair.any), np.inf)
    if highest is not None:
        high, low = highest(measure, pair), -highest(measure, pair.turned())
    if not exact:  # two bounds: the narrower one
        one, other = ends(measure, pair.a), ends(measure, pair.b)
        low = np.maximum(low, one.low - other.high)
        high = np.minimum(high, one.high - other.low)
    now_a, now_b = (x.now(measure) for x in (pair.a, pair.b))
    tied_low, tied_high = now_a.min - now_b.max, now_a.max - now_b.min
    if measure.name not in IGNORING:  # what is reported now is a completion; rounding keeps it
        low, high = np.fmin(low, tied_low), np.fmax(high, tied_high)
    low, high = np.where(pair.any, low, tied_low), np.where(pair.any, high, tied_high)
    return Ends(low, high, exact or not pair.any.any())


def _inside(rank: Int, measure: Measure) -> Bool:
    return rank < (1 << 59) if measure.cutoff is None else rank <= measure.cutoff


def _linear(measure: Measure, pair: Two) -> Float:
    """P, Hits, RBP: each hole that helps a more than b is relevant, and no other."""
    parameters = dict(measure.resolved)
    rel, p, top = (parameters.get(name) for name in ("rel", "p", "max"))
    assert isinstance(rel, int)
    known = pair.a.now(measure).max - pair.b.now(measure).min
    if top is None and pair.a.top < rel:
        return known
    worth = min(pair.a.top, top) / top if isinstance(top, int) else 1.0

    def weigh(rank: Int) -> Float:
        inside = _inside(rank, measure)
        if p is None:
            return inside / (float(measure.cutoff or 1) if measure.name == "P" else 1.0)
        assert isinstance(p, float)
        return np.where(inside, (1.0 - p) * p ** (np.where(inside, rank, 1) - 1.0), 0.0)

    delta = weigh(pair.seen_a.first) - weigh(pair.seen_b.last)
    gained = np.bincount(pair.query, worth * np.maximum(delta, 0.0), minlength=len(known))
    return known + gained


def _recall(measure: Measure, pair: Two) -> Float:
    """(h_a − h_b + a)/(R + a), over R + a + c where the numerator is below 0.

    `a` counts the holes that only a can be given, `c` those that change neither count.
    """
    rel = dict(measure.resolved)["rel"]
    assert isinstance(rel, int)
    relevant = pair.a.groups.relevant(rel)
    with np.errstate(invalid="ignore"):
        found_a = np.nan_to_num(pair.a.now(measure).max * relevant)
        found_b = np.nan_to_num(pair.b.now(measure).min * relevant)
    above = np.rint(found_a - found_b)
    possible = pair.a.top >= rel
    in_a, in_b = (_inside(r, measure) for r in (pair.seen_a.first, pair.seen_b.last))
    only_a = np.bincount(pair.query[in_a & ~in_b], minlength=len(relevant)) * possible
    neither = np.bincount(pair.query[in_a == in_b], minlength=len(relevant)) * possible
    only_b = np.bincount(pair.query[~in_a & in_b], minlength=len(relevant)) * possible
    above = above + only_a
    below = relevant + only_a + np.where(above < 0, neither, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.clip(above / below, -1.0, 1.0)
    # Nothing is relevant but a hole that changes neither count, or one that only b has.
    nothing = np.where(neither > 0, 0.0, np.where(only_b > 0, -1.0, np.nan))
    return np.where(below > 0, value, nothing)


def _ndcg(measure: Measure, pair: Two) -> Float:
    steps = levels(pair.a.groups, pair.a.top, measure)

    def judged(of: Holed, best: bool) -> Float:
        groups = of.groups
        place = groups.place_by_grade
        rank = groups.best_rank(place) if best else groups.worst_rank(place)
        weighted = steps.gain(groups.grade) * weights(rank, measure.cutoff)
        return groups.sum_by_query(groups.doc_query[~of.is_hole], weighted[~of.is_hole])

    known = judged(pair.a, best=True) - judged(pair.b, best=False)
    delta = weights(pair.seen_a.first, measure.cutoff) - weights(pair.seen_b.last, measure.cutoff)
    none = np.zeros(len(known), np.int64)
    return ndcg_highest(known, delta[None, :], pair.query, none, steps, measure.cutoff)


_HIGHEST: dict[str, Highest] = {
    "Hits": _linear,
    "P": _linear,
    "RBP": _linear,
    "R": _recall,
    "nDCG": _ndcg,
}
