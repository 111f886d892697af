"""Runs × judgements × measures → what unjudged documents could change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankproof.data.tables import Qrels, Run
from rankproof.data.ties import in_order
from rankproof.evaluation import (
    EvaluatedRun,
    Policy,
    averaged_queries,
    check_scale,
    no_common_query,
)
from rankproof.foundation.arrays import Array, Bool, Float
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import amount, plural, signed
from rankproof.measures import Measure
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain, plain_fields
from rankproof.presentation.lead_wording import (
    dependence_verb,
    may_change_sign,
    open_question,
    sign,
)
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Table
from rankproof.unjudged.differences import difference_ends, two
from rankproof.unjudged.judged_share import judged_beside
from rankproof.unjudged.rules import ends
from rankproof.unjudged.shared_documents import Holes, holed
from rankproof.unjudged.unjudged_documents import Ends, Reach

if TYPE_CHECKING:
    import polars as pl

    from rankproof.unjudged.judging_order import Settled
    from rankproof.unjudged.sampling import Sampled


@dataclass(frozen=True, slots=True)
class Bound:
    """A mean over queries: what it is now, and its ends over every completion of the holes.

    >>> found = rp.holes("try/qrels.txt", {"a": "try/saturated.trec"}, ["RR"])
    >>> bound = found.runs[0].measures[rp.RR]
    >>> bound.lowest <= bound.expected <= bound.highest
    True
    """

    expected: float  # with unjudged documents as they are: not relevant
    lowest: float
    highest: float
    exact: bool  # some completion and tie order reach both ends; else they are at most these
    queries: int  # over which `expected` is taken

    @property
    def width(self) -> float:
        return self.highest - self.lowest

    @property
    def certain(self) -> bool:
        """Whether every completion gives the same sign; one that defines no figure gives none."""
        return not math.isnan(self.expected) and sign(self.lowest) == sign(self.highest)

    @property
    def kind(self) -> str:
        """Whether the ends are reached."""
        return "exact" if self.exact else "at most"

    @property
    def span(self) -> str:
        """The interval in words."""
        if math.isnan(self.lowest):
            return "whatever the unjudged documents are"
        if self.exact:
            return f"between {signed(self.lowest)} and {signed(self.highest)}"
        return f"at most between {signed(self.lowest)} and {signed(self.highest)}"


def figured(value: float, form: str) -> str:
    """A figure that may be none."""
    return "undefined" if math.isnan(value) else f"{value:{form}}"


@dataclass(frozen=True, slots=True)
class RunHoles:
    """What the holes of one run leave open.

    >>> found = rp.holes("try/qrels.txt", {"a": "try/saturated.trec"}, ["RR"]).runs[0]
    >>> found.name, found.holes[rp.RR]
    ('a', 960)
    """

    name: str
    judged: dict[Measure, float]  # share of the top k that is judged, mean over lists
    holes: dict[Measure, int]
    measures: dict[Measure, Bound]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "measures": {
                str(m): {
                    "judged": plain(self.judged[m]),
                    **plain_fields(b, "lowest", "expected", "highest", "exact"),
                    "holes": self.holes[m],
                }
                for m, b in self.measures.items()
            },
        }


@dataclass(frozen=True, slots=True)
class PairHoles:
    """What the holes of two runs leave open of a − b.

    >>> runs = {"a": "try/saturated.trec", "b": "try/plain.trec"}
    >>> found = rp.holes("try/qrels.txt", runs, ["nDCG@5"]).pairs[0]
    >>> found.measures[rp.nDCG @ 5].certain
    False
    """

    a: str
    b: str
    holes: dict[Measure, int]
    measures: dict[Measure, Bound]
    ties: dict[Measure, tuple[float, float]]  # the ends over ties alone

    def to_dict(self) -> dict[str, Any]:
        return {
            "a": self.a,
            "b": self.b,
            "measures": {
                str(m): {
                    "difference": plain(b.expected),
                    **plain_fields(b, "lowest", "highest", "certain", "exact"),
                    "holes": self.holes[m],
                }
                for m, b in self.measures.items()
            },
        }

    def verdict(self, measure: Measure) -> str:
        """What the holes leave of the difference, in words."""
        bound = self.measures[measure]
        if not self.holes[measure]:
            return f"{measure}: every document in reach is judged."
        if math.isnan(bound.lowest):
            return f"{measure}: undefined, whatever the unjudged documents are."
        what = plural(self.holes[measure], "unjudged document")
        if bound.certain and sign(bound.lowest):
            leads = measure.sign * bound.lowest > 0
            ahead, behind = (self.a, self.b) if leads else (self.b, self.a)
            least = min(abs(bound.lowest), abs(bound.highest))
            return (
                f"{measure}: {ahead} is ahead of {behind} by {amount(least)} or more, whatever "
                f"the {what} may be."
            )
        if bound.certain:
            return f"{measure}: {self.a} and {self.b} are equal, whatever the {what} may be."
        taken = measure.unjudged_count_as
        if math.isnan(bound.expected):
            return (
                f"{measure}: undefined with {what} {taken}; where grades define it "
                f"{self.a} − {self.b} is {bound.span}."
            )
        ends = (bound.lowest, bound.highest)
        on = f"{dependence_verb(bound.exact)} {what}"
        if not may_change_sign(bound.expected, self.ties[measure], ends):
            on = f"rests on how ties are broken, even without {what}"
        them = "it" if self.holes[measure] == 1 else "all of them"
        question = open_question(self.a, self.b, ends, measure.sign)
        return (
            f"{measure}: {question} {on} ({self.a} − {self.b} is "
            f"{bound.span}, {signed(bound.expected)} with {them} {taken})."
        )


@dataclass(frozen=True, slots=True, repr=False)
class Unjudged(Displayed):
    """What unjudged documents could change, for runs and for every pair of them.

    >>> runs = {"a": "try/saturated.trec", "b": "try/plain.trec"}
    >>> rp.holes("try/qrels.txt", runs, ["nDCG@5"]).words()[0][:67]
    'nDCG@5: which of a and b is ahead might rest on 153 unjudged docume'
    """

    kind: ClassVar[str] = "holes"

    runs: tuple[RunHoles, ...]
    pairs: tuple[PairHoles, ...]
    scale: int  # grades 0 … scale; set measures have 1 … 5
    said: bool  # that this is the scale; else it is the largest grade that occurs
    depth: int | None
    policy: Policy
    # What was asked for beside the bounds; None where it was not.
    settled: Settled | None = None
    to_judge: pl.DataFrame | None = None  # query, doc, effect: documents to judge next
    judgments: pl.DataFrame | None = None  # query, doc, grade: those a judge made for the sample
    sampled: Sampled | None = None  # estimates from a sample of queries
    sample_was_drawn: bool = False  # `to_judge` are all unjudged documents of a sample
    left_out: pl.DataFrame | None = None  # each run without the judgments it alone brought in
    pool_depth: int | None = None
    warnings: tuple[str, ...] = ()  # what was guessed of the files

    def __getitem__(self, key: str | tuple[str, str]) -> dict[Measure, Bound]:
        if isinstance(key, str):
            for run in self.runs:
                if run.name == key:
                    return run.measures
        else:
            for pair in self.pairs:
                if (pair.a, pair.b) == key:
                    return pair.measures
        raise KeyError(f"{key!r} was not looked at")

    def assumptions(self) -> list[str]:
        """What the intervals take for granted."""
        depth = "the whole list" if self.depth is None else f"the first {self.depth}"
        graded: dict[tuple[int, int] | None, list[str]] = {}
        for m in self.runs[0].measures if self.runs else ():
            graded.setdefault(m.definition.grades, []).append(str(m))
        said = [f"{own[0]} to {own[1]} for {', '.join(m)}" for own, m in graded.items() if own]
        if None in graded:
            another = "" if self.said else " (--scale names another)"
            said.insert(0, f"{_up_to(self.scale, self.said)}{another}")
        return [
            f"a hole is an unjudged document in the top k of a run ({depth} where a measure has no "
            f"k); it may have any grade from {'; '.join(said)}",
            "a run is bounded over its own holes, a difference over those of both; every other "
            "unjudged document stays as it is: not relevant, and not in the ideal list",
        ]

    def verdicts(self) -> list[str]:
        """What the holes leave of each difference, in words."""
        return [pair.verdict(m) for pair in self.pairs for m in pair.measures]

    def words(self) -> list[str]:
        """The verdicts, and a warning where bounds say little by nature."""
        said = self.verdicts()
        seen = [v for run in self.runs for v in run.judged.values() if not math.isnan(v)]
        known = [b.certain for pair in self.pairs for b in pair.measures.values()]
        if seen and sum(seen) / len(seen) < 0.5 and not (known and all(known)):
            said.append(
                "Most of what these runs list is unjudged, so bounds say little: judge all holes "
                "of a sample of queries instead (--judge-sample 15)."
            )
        return said

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof holes --format json` prints."""
        return {
            "runs": [run.to_dict() for run in self.runs],
            "pairs": [pair.to_dict() for pair in self.pairs],
            "next": [] if self.to_judge is None else self.to_judge.to_dicts(),
            "scale": self.scale,
            "depth": self.depth,
            "assumed": self.assumptions(),
            "policy": self.policy.to_dict(),
            **({} if self.settled is None else {"settled": self.settled.to_dict()}),
            **({} if self.sampled is None else {"sample": self.sampled.to_dict()}),
            **({} if self.left_out is None else {"leave_one_out": self.left_out.to_dicts()}),
        }

    @property
    def record(self) -> dict[str, Any]:
        """The judge's grades, without which `verify` could not repeat the call."""
        made = self.judgments if self.settled is None else self.settled.judgements
        if made is None:
            return {}
        return {
            "judgements": made.rows(),
            "batch": 1 if self.settled is None else self.settled.batch,
        }

    def tables(self) -> list[Table]:
        """Runs, pairs, and whatever was asked for beside them."""
        from rankproof.unjudged.tables import holes_tables

        return holes_tables(self)

    def summary(self) -> Summary:
        """The widest question first."""
        from rankproof.unjudged.tables import holes_sentences

        return Summary(notes=holes_sentences(self))

    def figures(self) -> dict[str, float]:
        """Both ends of each score, as "run/measure/lowest"."""
        return {
            f"{run.name}/{measure}/{end}": getattr(bound, end)
            for run in self.runs
            for measure, bound in run.measures.items()
            for end in ("lowest", "highest")
        }

    def judging_file(self, ending: str) -> bytes:
        """The documents to judge, or the judgments made, as a file of this ending."""
        from rankproof.unjudged.judging_order import judging_file

        made = self.judgments if self.settled is None else self.settled.judgements
        frame = self.to_judge if made is None else made
        if frame is None:
            raise InputError(
                "nothing to write", place="to", remedy="add --judge-next 50 or --judge-sample 15"
            )
        return judging_file(frame, ending)

    def __str__(self) -> str:
        lines = [
            f"{run.name}: {m} {figured(b.expected, '.4f')}, {b.span}"
            for run in self.runs
            for m, b in run.measures.items()
        ]
        return "\n".join([*lines, *self.words()])


def check_reach(depth: int | None, scale: int | None, qrels: Qrels) -> int:
    """The top of the scale; refuses what cannot be one."""
    if depth is not None and depth < 1:
        raise InputError(f"depth {depth} is below 1", remedy="name a rank such as 100")
    largest = top_grade(qrels)
    if scale is None:
        return largest
    if scale < largest:
        raise InputError(
            f"a scale up to {scale} is too short: {qrels.name} has grade {largest}",
            remedy=f"give {largest} or more",
        )
    return scale


def top_grade(qrels: Qrels) -> int:
    """The highest that a document can have: as the scale says, or the largest that occurs."""
    said = 1 if qrels.scale is None else qrels.scale.highest
    return max(1, said, int(qrels.grade.max(initial=0)))


def _is_said(qrels: Qrels) -> bool:
    """Whether that is known: a scale says so, or what occurs is no more than not relevant."""
    return qrels.scale is not None or int(qrels.grade.max(initial=0)) < 1


def grades_of(qrels: Qrels) -> str:
    """The grades that a hole can have, in words."""
    return _up_to(top_grade(qrels), _is_said(qrels))


def _up_to(top: int, said: bool) -> str:
    return f"0 to {top}" if said else f"0 to {top}, the largest that occurs"


def holes_of(
    runs: Sequence[Run],
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    *,
    depth: int | None = None,
    scale: int | None = None,
) -> Unjudged:
    """`holes` for tables and parsed measures.

    >>> from rankproof.evaluation import Policy
    >>> from rankproof.unjudged import holes_of
    >>> run, qrels = rp.read_run("try/saturated.trec"), rp.read_qrels("try/qrels.txt")
    >>> holes_of([run], qrels, [rp.RR], Policy()).runs[0].name
    'saturated'
    """
    return WorstCases(runs, qrels, policy, depth=depth, scale=scale).found(measures)


class WorstCases:
    """Several runs on the same judgements, and the ends of their figures for every query."""

    def __init__(
        self,
        runs: Sequence[Run],
        qrels: Qrels,
        policy: Policy,
        *,
        depth: int | None = None,
        scale: int | None = None,
        seen: Sequence[EvaluatedRun] | None = None,
    ):
        if policy.depth is not None and seen is None:  # evaluations were cut before
            runs = [in_order(r, policy.order, policy.score_dtype, policy.depth) for r in runs]
        if policy.condensed:
            raise InputError(
                "condensed lists have no holes", remedy="ask for bounds or for condensed lists"
            )
        self.runs, self.qrels, self.policy, self.depth = runs, qrels, policy, depth
        self._seen = [None] * len(runs) if seen is None else seen
        self.scale = check_reach(depth, scale, qrels)
        self.said = scale is not None or _is_said(qrels)
        self._holes: dict[tuple[tuple[int, ...], int | None], Holes] = {}

    @classmethod
    def of(cls, seen: Sequence[EvaluatedRun], qrels: Qrels, policy: Policy) -> WorstCases:
        """Of runs as they were evaluated under this policy."""
        return cls([each.run for each in seen], qrels, policy, seen=seen)

    def check(self, measures: Sequence[Measure]) -> None:
        """Refuse grades off a measure's scale, and runs of other queries."""
        for measure in measures:
            check_scale(measure, self.qrels.grade, self.qrels.place)
        for reach in self.reaches:
            if not (reach.met.listed >= 0).any():
                raise no_common_query(reach.run.name, reach.run.queries, self.qrels)

    def found(self, measures: Sequence[Measure]) -> Unjudged:
        """Every run and every pair."""
        self.check(measures)
        return Unjudged(
            tuple(
                RunHoles(
                    run.name,
                    {m: self.judged(at, m) for m in measures},
                    {m: self.count([at], m) for m in measures},
                    {m: self.run_bound(at, m) for m in measures},
                )
                for at, run in enumerate(self.runs)
            ),
            tuple(
                PairHoles(
                    self.runs[a].name,
                    self.runs[b].name,
                    {m: self.count([a, b], m) for m in measures},
                    {m: self.pair_bound(a, b, m) for m in measures},
                    {m: self.pair_ties(a, b, m) for m in measures},
                )
                for a, b in combinations(range(len(self.runs)), 2)
            ),
            self.scale,
            self.said,
            self.depth,
            self.policy,
        )

    @cached_property
    def reaches(self) -> list[Reach]:
        pairs = zip(self.runs, self._seen, strict=True)
        return [Reach(run, self.qrels, self.policy, seen) for run, seen in pairs]

    def top(self, measure: Measure) -> int:
        """The highest grade that a hole can have."""
        grades = measure.definition.grades
        return self.scale if grades is None else grades[1]

    def grades(self, measures: Iterable[Measure]) -> str:
        """Those that a hole can have, in words."""
        own = {m.definition.grades for m in measures}
        said = [f"{own_[0]} to {own_[1]}" for own_ in own if own_ is not None]
        return " or ".join([_up_to(self.scale, self.said)] * (None in own) + said)

    def holes(self, which: Sequence[int], measure: Measure) -> Holes:
        """The holes of some of the runs."""
        depth = self.depth if measure.cutoff is None else measure.cutoff
        key = (tuple(which), depth)
        if key not in self._holes:
            self._holes[key] = Holes([self.reaches[at] for at in which], depth)
        return self._holes[key]

    def count(self, which: Sequence[int], measure: Measure) -> int:
        """How many holes some of the runs have, in the queries that count."""
        return int(self.holes(which, measure).count[self._counted(which)].sum())

    def _counted(self, runs: Sequence[int]) -> Bool:
        """(Q,) the queries that all of some runs are evaluated on."""
        return np.asarray(np.logical_and.reduce([self.reaches[at].counted for at in runs]))

    def judged(self, at: int, measure: Measure) -> float:
        """Judged@k, of the whole list where a measure has no k; mean over the queries."""
        depth = self.depth if measure.cutoff is None else measure.cutoff
        reach = self.reaches[at]
        groups = reach.judged_within(depth)
        inside: Array = groups.judged
        cut = groups.listed if depth is None else np.minimum(depth, groups.listed)
        if reach.span(depth).tied:
            last = cut[groups.query] - groups.first + 1
            inside = inside * np.clip(last, 0, groups.size) / groups.size
        found = groups.sum_by_query(groups.query, inside)
        share = np.divide(found, cut, out=np.zeros(len(cut)), where=cut > 0)
        return _mean(share, reach.counted & self._counts(at, judged_beside(measure, depth)))

    def run_ends(self, at: int, measure: Measure, among: Sequence[int] | None = None) -> Ends:
        """Both ends of one run, for every query, over its holes or over those `among` some runs."""
        reach = self.reaches[at]
        open_ = self.holes([at] if among is None else among, measure)
        run = holed(reach, open_, measure.cutoff, self.top(measure))
        found = ends(measure, run)
        return self._counting(found, run.any | self._counts(at, measure))

    def pair_ends(self, a: int, b: int, measure: Measure) -> Ends:
        """Both ends of a − b, for every query."""
        one, other = self.reaches[a], self.reaches[b]
        both = self.holes([a, b], measure)
        pair = two(one, other, both, measure.cutoff, self.top(measure))
        is_counted = (pair.a.run.any | self._counts(a, measure)) & (
            pair.b.run.any | self._counts(b, measure)
        )
        return self._counting(difference_ends(measure, pair), is_counted)

    def _counts(self, at: int, measure: Measure) -> Bool:
        """(Q,) the queries that the mean of an evaluation is over."""
        if self.policy.undefined == "zero":
            return np.ones(self.reaches[at].queries, np.bool_)
        return averaged_queries(self.reaches[at].judged, measure)

    def _counting(self, found: Ends, some: Bool) -> Ends:
        """NaN where neither an evaluation nor any completion counts the query."""
        if some.all():
            return found
        low, high = (np.where(some, x, np.nan) for x in (found.low, found.high))
        return Ends(low, high, found.exact)

    def expected(self, at: int, measure: Measure) -> Float:
        """(Q,) what is reported now; NaN where it does not count in the mean."""
        now = self.reaches[at].now(measure).expected
        return np.where(self._counts(at, measure), now, np.nan)

    def run_bound(
        self, at: int, measure: Measure, among: Sequence[int] | None = None, *, shared: bool = False
    ) -> Bound:
        """The ends of a run's mean over its queries, or over those that all runs share."""
        return self._over(
            self.run_ends(at, measure, among), self.expected(at, measure), [at], measure, shared
        )

    def pair_bound(self, a: int, b: int, measure: Measure, *, shared: bool = False) -> Bound:
        """The ends of a mean difference over the queries of both, or those that all runs share."""
        values = [self.expected(at, measure) for at in (a, b)]
        return self._over(
            self.pair_ends(a, b, measure), values[0] - values[1], [a, b], measure, shared
        )

    def turns(self, a: int, b: int, measure: Measure) -> Bound | None:
        """The bound where holes could turn which of two is ahead, past what ties alone could do."""
        bound = self.pair_bound(a, b, measure)
        ends = (bound.lowest, bound.highest)
        return (
            bound if may_change_sign(bound.expected, self.pair_ties(a, b, measure), ends) else None
        )

    def pair_ties(self, a: int, b: int, measure: Measure) -> tuple[float, float]:
        """The ends of a mean difference as it is reported now, over ties alone."""
        one, other = (self.reaches[at].now(measure) for at in (a, b))
        now = self.expected(a, measure) - self.expected(b, measure)
        is_counted = self._counted([a, b]) & ~np.isnan(now)
        return _mean(one.min - other.max, is_counted), _mean(one.max - other.min, is_counted)

    def _over(
        self, found: Ends, now: Float, runs: Sequence[int], measure: Measure, shared: bool
    ) -> Bound:
        if shared:
            runs = range(len(self.runs))
            now = now + 0.0 * sum(self.expected(at, measure) for at in runs)  # NaN where any is
        return self.bound(found, now, self._counted(runs))

    def bound(self, found: Ends, expected: Float, is_counted: Bool) -> Bound:
        low, high, now = found.low[is_counted], found.high[is_counted], expected[is_counted]
        defined = ~np.isnan(now)
        return Bound(
            expected=_mean(now, defined),
            lowest=lowest_mean(low, defined),
            highest=0.0 - lowest_mean(-high, defined),  # never −0
            exact=found.exact,
            queries=int(defined.sum()),
        )


def _mean(values: Float, chosen: Bool) -> float:
    count = int(chosen.sum())
    return math.fsum(values[chosen].tolist()) / count if count else math.nan


def lowest_mean(low: Float, defined: Bool) -> float:
    """The lowest mean over completions of values whose lowest are `low`.

    A query on which the measure is not `defined` now counts only in the completions that define
    it, so the lowest mean takes in those, from the least up, that bring it down.
    """
    certain = low[defined]
    optional = np.sort(low[~defined & ~np.isnan(low)])
    totals = math.fsum(certain.tolist()) + np.append(0.0, np.cumsum(optional))
    counts = len(certain) + np.arange(len(totals))
    some = counts > 0
    return float((totals[some] / counts[some]).min()) if some.any() else math.nan
