"""Bounds of means and of mean differences over the grades that unjudged documents could have.

`WorstCases` takes the bounds of each query from the rules of measures, and finds the lowest and
highest mean over them; `Unjudged` is what `rankproof holes` reports of every run and pair.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankproof.data.tables import Qrels, Run
from rankproof.evaluation import (
    EvaluatedRun,
    Policy,
    averaged_queries,
    check_scale,
    end_lists,
    no_common_query,
)
from rankproof.foundation.arrays import Array, Bool, Float
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import signed
from rankproof.measures import Measure
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain, plain_fields
from rankproof.presentation.lead_wording import sign
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Table
from rankproof.statistics.labels import Label, label_of
from rankproof.unjudged.differences import difference_bounds, run_pair
from rankproof.unjudged.judged_share import judged_at
from rankproof.unjudged.rules import bounds
from rankproof.unjudged.shared_documents import UnjudgedSet, partly_judged
from rankproof.unjudged.unjudged_documents import MatchedRun, QueryBounds

if TYPE_CHECKING:
    import polars as pl

    from rankproof.unjudged.judging_order import Settled
    from rankproof.unjudged.sampling import Sampled


@dataclass(frozen=True, slots=True)
class Bound:
    """A mean over queries as it is now, and its worst cases over unjudged documents.

    >>> report = rp.holes("try/qrels.txt", {"a": "try/saturated.trec"}, ["RR"])
    >>> bound = report.runs[0].measures[rp.RR]
    >>> bound.lowest <= bound.expected <= bound.highest
    True
    """

    expected: float  # with unjudged documents as they are: not relevant
    lowest: float
    highest: float
    exact: bool  # some grades and tie order reach both ends; else they may be too wide
    queries: int  # over which `expected` is taken

    @property
    def width(self) -> float:
        return self.highest - self.lowest

    @property
    def certain(self) -> bool:
        """True if all grades give the same sign, and the mean is defined now."""
        return not math.isnan(self.expected) and sign(self.lowest) == sign(self.highest)

    @property
    def kind(self) -> str:
        """In a word, whether some grades reach the ends."""
        return "exact" if self.exact else "at most"

    def label(self, better: int) -> Label:
        """The label that holds with every grade; `better` is 1 if larger values are better."""
        if math.isnan(self.expected) or math.isnan(self.lowest):
            return "undecided"
        return label_of((self.lowest, self.highest), better)

    @property
    def span(self) -> str:
        """The interval in words."""
        if math.isnan(self.lowest):
            return "whatever the unjudged documents are"
        if self.exact:
            return f"between {signed(self.lowest)} and {signed(self.highest)}"
        return f"at most between {signed(self.lowest)} and {signed(self.highest)}"


@dataclass(frozen=True, slots=True)
class RunHoles:
    """The bounds of one run over its unjudged documents.

    >>> run = rp.holes("try/qrels.txt", {"a": "try/saturated.trec"}, ["RR"]).runs[0]
    >>> run.name, run.holes[rp.RR]
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
    """The bounds of a − b over the unjudged documents of two runs.

    >>> runs = {"a": "try/saturated.trec", "b": "try/plain.trec"}
    >>> pair = rp.holes("try/qrels.txt", runs, ["nDCG@5"]).pairs[0]
    >>> pair.measures[rp.nDCG @ 5].certain
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


@dataclass(frozen=True, slots=True, repr=False)
class Unjudged(Displayed):
    """What unjudged documents could change, for runs and for every pair of them.

    >>> runs = {"a": "try/saturated.trec", "b": "try/plain.trec"}
    >>> rp.holes("try/qrels.txt", runs, ["nDCG@5"]).summary().answer[:38]
    'Undecided: only 43% of the two top 5s '
    """

    kind: ClassVar[str] = "holes"

    runs: tuple[RunHoles, ...]
    pairs: tuple[PairHoles, ...]
    scale: int  # grades 0 … scale; set measures have 1 … 5
    is_scale_known: bool  # else `scale` is the largest grade that occurs
    depth: int | None
    policy: Policy
    # What was requested beside the bounds; None where it was not.
    settled: Settled | None = None
    to_judge: pl.DataFrame | None = None  # query, doc, effect: documents to judge next
    judgments: pl.DataFrame | None = None  # query, doc, grade: those a judge made for the sample
    sampled: Sampled | None = None  # estimates from a sample of queries
    sample_was_drawn: bool = False  # `to_judge` are all unjudged documents of a sample
    leave_one_out: pl.DataFrame | None = None  # each run without the judgments it alone brought in
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
        """The assumptions behind the bounds, in sentences."""
        depth = "the whole list" if self.depth is None else f"the first {self.depth}"
        by_grades: dict[tuple[int, int] | None, list[str]] = {}
        for m in self.runs[0].measures if self.runs else ():
            by_grades.setdefault(m.definition.grades, []).append(str(m))
        scales = [
            f"{grades[0]} to {grades[1]} for {', '.join(names)}"
            for grades, names in by_grades.items()
            if grades
        ]
        if None in by_grades:
            another = "" if self.is_scale_known else " (--scale names another)"
            scales.insert(0, f"{_up_to(self.scale, self.is_scale_known)}{another}")
        return [
            f"unjudged documents are those in the top k of a run ({depth} where a measure has no "
            f"k); each may have any grade from {'; '.join(scales)}",
            "a run is bounded over its own unjudged documents, a difference over those of both; "
            "all others stay as they are: not relevant, and not in the ideal list",
        ]

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
            **(
                {}
                if self.leave_one_out is None
                else {"leave_one_out": self.leave_one_out.to_dicts()}
            ),
        }

    @property
    def record(self) -> dict[str, Any]:
        """The judge's grades, without which `verify` could not repeat the call."""
        new = self.new_judgments
        if new is None:
            return {}
        batch = 1 if self.settled is None else self.settled.batch
        return {"judgements": new.rows(), "batch": batch}

    @property
    def new_judgments(self) -> pl.DataFrame | None:
        """query, doc, grade: what a judge graded for this result; None without a judge."""
        return self.judgments if self.settled is None else self.settled.judgements

    def tables(self) -> list[Table]:
        """What was requested, or the worst cases where one sentence does not say them."""
        from rankproof.unjudged.tables import holes_tables

        return holes_tables(self)

    def full_tables(self) -> list[Table]:
        """Runs, pairs, and whatever was requested, with every column."""
        from rankproof.unjudged.tables import full_holes_tables

        return full_holes_tables(self)

    def summary(self) -> Summary:
        """What unjudged documents leave open, and what to judge next."""
        from rankproof.unjudged.tables import holes_summary

        return holes_summary(self)

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

        frame = self.to_judge if self.new_judgments is None else self.new_judgments
        if frame is None:
            raise InputError(
                "nothing to write", place="to", remedy="add --judge-next 50 or --judge-sample 15"
            )
        return judging_file(frame, ending)


def check_depth_and_scale(depth: int | None, scale: int | None, qrels: Qrels) -> int:
    """Return the highest grade of the scale; an InputError for an impossible depth or scale."""
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
    """The highest grade a document can have: by the scale, or else the largest that occurs."""
    named = 1 if qrels.scale is None else qrels.scale.highest
    return max(1, named, int(qrels.grade.max(initial=0)))


def _is_scale_known(qrels: Qrels) -> bool:
    """True if a scale names the grades, or nothing is graded higher than "not relevant"."""
    return qrels.scale is not None or int(qrels.grade.max(initial=0)) < 1


def grades_of(qrels: Qrels) -> str:
    """The grades that an unjudged document can have, in words."""
    return _up_to(top_grade(qrels), _is_scale_known(qrels))


def _up_to(top: int, is_scale_known: bool) -> str:
    return f"0 to {top}" if is_scale_known else f"0 to {top}, the largest that occurs"


def holes_of(
    runs: Sequence[Run],
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    *,
    depth: int | None = None,
    scale: int | None = None,
) -> Unjudged:
    """Bound tables by parsed measures; `depth` is that of measures without a cutoff.

    >>> from rankproof.evaluation import Policy
    >>> from rankproof.unjudged import holes_of
    >>> run, qrels = rp.read_run("try/saturated.trec"), rp.read_qrels("try/qrels.txt")
    >>> holes_of([run], qrels, [rp.RR], Policy()).runs[0].name
    'saturated'
    """
    return WorstCases(runs, qrels, policy, depth=depth, scale=scale).analyze(measures)


class WorstCases:
    """Several runs on the same judgments, and their bounds over unjudged documents.

    Runs are named by their index. What several measures or pairs need is computed once.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        qrels: Qrels,
        policy: Policy,
        *,
        depth: int | None = None,
        scale: int | None = None,
        evaluated: Sequence[EvaluatedRun] | None = None,
    ):
        if evaluated is None:  # lists of evaluations end there
            runs = [end_lists(run, policy) for run in runs]
        if policy.condensed:
            raise InputError(
                "condensed lists have no unjudged documents",
                remedy="ask for bounds or for condensed lists",
            )
        self.runs, self.qrels, self.policy, self.depth = runs, qrels, policy, depth
        self._evaluated = [None] * len(runs) if evaluated is None else evaluated
        self.scale = check_depth_and_scale(depth, scale, qrels)
        self.is_scale_known = scale is not None or _is_scale_known(qrels)
        self._unjudged: dict[tuple[tuple[int, ...], int | None], UnjudgedSet] = {}

    @classmethod
    def of(cls, evaluated: Sequence[EvaluatedRun], qrels: Qrels, policy: Policy) -> WorstCases:
        """The worst cases of runs that were evaluated under this policy."""
        runs = [evaluation.run for evaluation in evaluated]
        return cls(runs, qrels, policy, evaluated=evaluated)

    def check(self, measures: Sequence[Measure]) -> None:
        """Refuse grades off a measure's scale, and runs without a judged query."""
        for measure in measures:
            check_scale(measure, self.qrels.grade, self.qrels.place)
        for matched in self.matched:
            if not (matched.matching.listed >= 0).any():
                raise no_common_query(matched.run.name, matched.run.queries, self.qrels)

    def analyze(self, measures: Sequence[Measure]) -> Unjudged:
        """Bound every run and every pair."""
        self.check(measures)
        runs = tuple(
            RunHoles(
                run.name,
                judged={m: self.judged_share(index, m) for m in measures},
                holes={m: self.count([index], m) for m in measures},
                measures={m: self.run_bound(index, m) for m in measures},
            )
            for index, run in enumerate(self.runs)
        )
        pairs = tuple(
            PairHoles(
                self.runs[a].name,
                self.runs[b].name,
                holes={m: self.count([a, b], m) for m in measures},
                measures={m: self.pair_bound(a, b, m) for m in measures},
                ties={m: self.pair_ties(a, b, m) for m in measures},
            )
            for a, b in combinations(range(len(self.runs)), 2)
        )
        return Unjudged(runs, pairs, self.scale, self.is_scale_known, self.depth, self.policy)

    @cached_property
    def matched(self) -> list[MatchedRun]:
        """Each run on the judged queries."""
        pairs = zip(self.runs, self._evaluated, strict=True)
        return [MatchedRun(run, self.qrels, self.policy, evaluated) for run, evaluated in pairs]

    def top(self, measure: Measure) -> int:
        """The highest grade that an unjudged document can have."""
        grades = measure.definition.grades
        return self.scale if grades is None else grades[1]

    def grades(self, measures: Iterable[Measure]) -> str:
        """The grades that unjudged documents can have, in words."""
        scales = {m.definition.grades for m in measures}
        words = [_up_to(self.scale, self.is_scale_known)] if None in scales else []
        return " or ".join([*words, *(f"{s[0]} to {s[1]}" for s in scales if s is not None)])

    def _depth(self, measure: Measure) -> int | None:
        return self.depth if measure.cutoff is None else measure.cutoff

    def unjudged(self, runs: Sequence[int], measure: Measure) -> UnjudgedSet:
        """The unjudged documents that these runs list within the depth of a measure."""
        depth = self._depth(measure)
        key = (tuple(runs), depth)
        if key not in self._unjudged:
            self._unjudged[key] = UnjudgedSet([self.matched[run] for run in runs], depth)
        return self._unjudged[key]

    def count(self, runs: Sequence[int], measure: Measure) -> int:
        """The number of unjudged documents of these runs, in the queries that count."""
        return int(self.unjudged(runs, measure).count[self._counted_queries(runs)].sum())

    def _counted_queries(self, runs: Sequence[int]) -> Bool:
        """(Q,) queries on which all of these runs are evaluated."""
        return np.asarray(np.logical_and.reduce([self.matched[run].is_counted for run in runs]))

    def judged_share(self, run: int, measure: Measure) -> float:
        """Judged@k of a run, of whole lists for a measure without k; mean over the queries."""
        depth = self._depth(measure)
        matched = self.matched[run]
        groups = matched.judged_within(depth)
        judged: Array = groups.judged
        cutoff = groups.listed if depth is None else np.minimum(depth, groups.listed)
        if matched.top_span(depth).tied:
            ranks_left = cutoff[groups.query] - groups.first + 1
            judged = judged * np.clip(ranks_left, 0, groups.size) / groups.size
        counts = groups.sum_by_query(groups.query, judged)
        share = np.divide(counts, cutoff, out=np.zeros(len(cutoff)), where=cutoff > 0)
        judged_at_k = judged_at(measure, depth)
        return _mean(share, matched.is_counted & self._in_mean(run, judged_at_k))

    def run_bounds_by_query(
        self, run: int, measure: Measure, among: Sequence[int] | None = None
    ) -> QueryBounds:
        """The bounds of a run by query, over its unjudged documents or those of runs `among`."""
        measure = self.policy.apply(measure)
        documents = self.unjudged([run] if among is None else among, measure)
        partly = partly_judged(self.matched[run], documents, measure.cutoff, self.top(measure))
        by_query = bounds(measure, partly)
        is_loose = partly.any & self.matched[run].is_cut_in_tie(measure)
        if is_loose.any():  # which of the tied documents the list ends with is open, too
            least, most = by_query.low * 0.0, np.full(len(is_loose), measure.upper)
            most = np.where(np.isinf(most), by_query.high, np.fmax(by_query.high, most))
            by_query = _widened(by_query, is_loose, least, most + by_query.high * 0.0)
        return _only_where(partly.any | self._in_mean(run, measure), by_query)

    def pair_bounds_by_query(self, a: int, b: int, measure: Measure) -> QueryBounds:
        """The bounds of a − b by query."""
        measure = self.policy.apply(measure)
        documents = self.unjudged([a, b], measure)
        pair = run_pair(
            self.matched[a], self.matched[b], documents, measure.cutoff, self.top(measure)
        )
        counts_a = pair.a.run.any | self._in_mean(a, measure)
        counts_b = pair.b.run.any | self._in_mean(b, measure)
        by_query = difference_bounds(measure, pair)
        is_loose = self.matched[a].is_cut_in_tie(measure) | self.matched[b].is_cut_in_tie(measure)
        is_loose &= documents.count > 0
        if is_loose.any():
            of_a, of_b = (self.run_bounds_by_query(run, measure, [a, b]) for run in (a, b))
            least, most = of_a.low - of_b.high, of_a.high - of_b.low
            by_query = _widened(by_query, is_loose, least, most)
        return _only_where(counts_a & counts_b, by_query)

    def _in_mean(self, run: int, measure: Measure) -> Bool:
        """(Q,) queries that the mean of an evaluation is over."""
        if self.policy.undefined == "zero":
            return np.ones(self.matched[run].queries, np.bool_)
        return averaged_queries(self.matched[run].judged, measure)

    def expected(self, run: int, measure: Measure) -> Float:
        """(Q,) what is reported now; NaN for queries that the mean skips."""
        reported = self.matched[run].reported(measure).expected
        return np.where(self._in_mean(run, measure), reported, np.nan)

    def pair_differences(self, a: int, b: int, measure: Measure) -> Float:
        """(Q,) a − b as it is reported now; NaN for queries that the mean of either skips."""
        return self.expected(a, measure) - self.expected(b, measure)

    def run_bound(
        self,
        run: int,
        measure: Measure,
        among: Sequence[int] | None = None,
        *,
        shared: bool = False,
    ) -> Bound:
        """The bound of a run's mean, over its queries or, if `shared`, those that all runs share.

        The open documents are its own unjudged ones, or those of the runs `among`.
        """
        by_query = self.run_bounds_by_query(run, measure, among)
        return self._bound_of([run], measure, by_query, self.expected(run, measure), shared)

    def pair_bound(self, a: int, b: int, measure: Measure, *, shared: bool = False) -> Bound:
        """The bound of a mean difference, over the queries of both or those that all runs share."""
        by_query = self.pair_bounds_by_query(a, b, measure)
        differences = self.pair_differences(a, b, measure)
        return self._bound_of([a, b], measure, by_query, differences, shared)

    def pair_ties(self, a: int, b: int, measure: Measure) -> tuple[float, float]:
        """Lowest and highest mean difference over orders of ties alone, as it is reported now."""
        reported_a, reported_b = (self.matched[run].reported(measure) for run in (a, b))
        is_defined = ~np.isnan(self.pair_differences(a, b, measure))
        in_mean = self._counted_queries([a, b]) & is_defined
        low, high = reported_a.min - reported_b.max, reported_a.max - reported_b.min
        return _mean(low, in_mean), _mean(high, in_mean)

    def _bound_of(
        self,
        runs: Sequence[int],
        measure: Measure,
        by_query: QueryBounds,
        expected: Float,
        shared: bool,
    ) -> Bound:
        """The bound of a mean over the queries of these runs or, if `shared`, of all runs."""
        if shared:
            runs = range(len(self.runs))
            # NaN where it is for any run.
            expected = expected + 0.0 * sum(self.expected(run, measure) for run in runs)
        return self.bound(by_query, expected, self._counted_queries(runs))

    def bound(self, by_query: QueryBounds, expected: Float, is_counted: Bool) -> Bound:
        """The bound of a mean from the bounds (Q,) and the reported value (Q,) of each query.

        The mean is over the counted queries; NaN is a query that the mean skips now.
        """
        low, high, now = by_query.low[is_counted], by_query.high[is_counted], expected[is_counted]
        is_defined = ~np.isnan(now)
        return Bound(
            expected=_mean(now, is_defined),
            lowest=lowest_mean(low, is_defined),
            highest=0.0 - lowest_mean(-high, is_defined),  # never −0
            exact=by_query.exact,
            queries=int(is_defined.sum()),
        )


def _widened(by_query: QueryBounds, is_loose: Bool, low: Float, high: Float) -> QueryBounds:
    """The bounds with other ends where they are loose (Q,)."""
    return QueryBounds(
        np.where(is_loose, np.fmin(by_query.low, low), by_query.low),
        np.where(is_loose, np.fmax(by_query.high, high), by_query.high),
        exact=False,
    )


def _only_where(counts: Bool, by_query: QueryBounds) -> QueryBounds:
    """The bounds with NaN for queries (Q,) that count neither now nor with any grades."""
    if counts.all():
        return by_query
    low, high = (np.where(counts, end, np.nan) for end in (by_query.low, by_query.high))
    return QueryBounds(low, high, by_query.exact)


def _mean(values: Float, chosen: Bool) -> float:
    """The exactly rounded mean of the chosen values; NaN if there are none."""
    count = int(chosen.sum())
    return math.fsum(values[chosen].tolist()) / count if count else math.nan


def lowest_mean(low: Float, is_defined: Bool) -> float:
    """The lowest mean over all grades of queries whose lowest values are `low`.

    A query on which the measure is not defined now counts only with grades that define it, so the
    lowest mean takes in as many of these queries, from the lowest up, as bring it down.
    """
    certain = low[is_defined]
    optional = np.sort(low[~is_defined & ~np.isnan(low)])
    totals = math.fsum(certain.tolist()) + np.append(0.0, np.cumsum(optional))
    counts = len(certain) + np.arange(len(totals))
    nonempty = counts > 0
    return float((totals[nonempty] / counts[nonempty]).min()) if nonempty.any() else math.nan
