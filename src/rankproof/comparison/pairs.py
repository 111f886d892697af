"""Two runs or more: paired tests, and what ties alone could change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
import polars as pl

from rankproof.comparison.pair_tables import comparison_sentences, matrix_tables
from rankproof.evaluation import Evaluation, Policy
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import amount, plural, signed
from rankproof.foundation.progress import advance
from rankproof.measures import Measure
from rankproof.presentation.charts import Chart, Range, range_charts
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import told
from rankproof.presentation.judged_column import CONDENSED, NOTE, at_most, some_unjudged
from rankproof.presentation.lead_wording import ZERO, asked, could, rests, sign, turned
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Column, Table
from rankproof.statistics import flips
from rankproof.statistics.intervals import (
    MIN_QUERIES,
    Interval,
    count_or_none,
    difference_intervals,
    mean_and_deviation,
    possible_range,
    queries_needed,
)
from rankproof.statistics.randomization import holm, randomization_test, t_test

if TYPE_CHECKING:
    from rankproof.unjudged.bounds import View

_CELLS = 1 << 20  # of the differences held at a time
_NAMED = 5  # runs that a note on missing queries names


@dataclass(frozen=True, slots=True)
class Difference:
    """A measure of run a minus that of run b: means over the queries both have it for."""

    expected: float
    oblivious: float
    lowest: float  # over every tie-break of both runs
    highest: float
    p: float  # paired randomization test on per-query expected values
    p_holm: float  # corrected for every pair and measure compared
    ci: Interval | None  # 95%; None where fewer than six queries differ, or no end is known
    queries: int
    differing: int = -1  # queries on which the two differ; −1: not counted
    flip: float = math.nan  # chance that a random order of ties turns the sign; NaN: not known
    queries_needed: int | None = None  # to see this difference with power 0.8
    p_t: float | None = None  # Student's paired test, where asked for; NaN: all differ alike
    judged: tuple[float, float] | None = None  # Judged@k of a and of b, where known
    holes: Interval | None = None  # over every completion of unjudged documents, where asked for
    holes_exact: bool | None = None  # whether completions reach these ends; else at most so far

    @property
    def certain(self) -> bool:
        """Whether every tie-break gives the same sign."""
        return sign(self.lowest) == sign(self.highest)

    @property
    def reversed(self) -> bool:
        """Whether the stated tie-break and the expectation favour different runs."""
        return sign(self.oblivious) * sign(self.expected) < 0

    @property
    def level_at_worst(self) -> bool:
        """Whether some tie-break makes both level, and none puts the other one ahead."""
        return not self.certain and not sign(self.lowest) * sign(self.highest)

    @property
    def rests_on_ties(self) -> bool:
        """Whether a random order of ties might well turn the sign."""
        return not self.certain and not self.flip < flips.LIKELY

    @property
    def rests_on_holes(self) -> bool:
        """Whether grades of unjudged documents could turn the sign, beyond what ties do."""
        tied = (self.lowest, self.highest)
        return self.holes is not None and turned(self.expected, tied, self.holes)

    @property
    def _settled(self) -> bool:
        """Whether unjudged documents are known to change nothing in who is ahead."""
        ends = {sign(end) for end in self.holes or ()}
        return ends == {sign(self.expected)}

    @property
    def _open(self) -> str:
        may = could(self.holes_exact)
        return f" Unjudged documents {may} turn it, too." if self.rests_on_holes else ""

    def to_dict(self) -> dict[str, Any]:
        names = ("expected", "oblivious", "lowest", "highest", "certain", "reversed", "flip", "p")
        found = told(self, *names, "p_holm", "ci", "queries", "differing", "queries_needed")
        more = ("p_t", "judged", "holes", "holes_exact")
        return found | told(self, *(name for name in more if getattr(self, name) is not None))

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Difference:
        """What `to_dict` wrote; a figure that is not there, or null, is not known."""
        held = {each.name: found[each.name] for each in fields(cls) if each.name in found}
        for name in ("expected", "oblivious", "lowest", "highest", "p", "p_holm", "flip"):
            held[name] = math.nan if held.get(name) is None else held[name]
        return cls(**{"ci": None, "queries": 0, **held})

    def verdict(self, a: str, b: str, measure: Measure) -> str:
        """The comparison in words."""
        ahead, behind = (a, b) if measure.sign * self.expected > 0 else (b, a)
        size = amount(abs(self.expected))
        span = f"from {signed(self.lowest)} to {signed(self.highest)}"
        if self.reversed:
            return (
                f"{measure}: reversed. As its ties happen to be broken, {behind} leads by "
                f"{amount(abs(self.oblivious))}; over all orders {ahead} leads by {size} ({span})."
            ) + self._open
        if self.rests_on_ties:
            open_ = asked(a, b, (self.lowest, self.highest), measure.sign)
            return (
                f"{measure}: {open_} rests on how ties are broken "
                f"({a} − {b} {span}, {signed(self.expected)} expected{self._chance})."
            ) + self._open
        if self.rests_on_holes and self.holes is not None:
            low, high = self.holes
            most = "" if self.holes_exact else "at most "
            open_ = asked(a, b, self.holes, measure.sign)
            return (
                f"{measure}: {open_} {rests(self.holes_exact)} unjudged documents "
                f"({a} − {b} {most}from {signed(low)} to {signed(high)} over what they could be, "
                f"{signed(self.expected)} with all of them {measure.unjudged_count_as})."
            )
        if sign(self.expected) == 0:
            return f"{measure}: {a} and {b} are equal."
        how = "under every tie-break" if self.certain else "under nearly every tie-break"
        if self.level_at_worst:
            how = "or level with it under every tie-break"
        if self._settled:
            how += " and whatever the unjudged documents are"
        noise = "" if self.p_holm < 0.05 else ", a lead that chance could explain"
        if noise:
            noise += ": it rests on the sample of queries"
        few = ""
        if 0 <= self.differing < MIN_QUERIES:
            few = f"; only {plural(self.differing, 'query differs', 'queries differ')}"
        return (
            f"{measure}: {ahead} is ahead of {behind} {how} "
            f"(by {size}, p = {_p(self.p_holm)} after Holm{noise}{few})."
        )

    @property
    def _chance(self) -> str:
        """What a random order of ties does, in words."""
        if math.isnan(self.flip):
            return ""
        does = "turns it" if sign(self.expected) else "puts each of them ahead"
        return f"; a random order {does} with probability {self.flip:.3f}"


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 1e-4 else f"{value:.0e}"


@dataclass(frozen=True, slots=True)
class Pair:
    """Run a against run b."""

    a: str
    b: str
    measures: dict[Measure, Difference]


@dataclass(frozen=True, slots=True)
class Pairs(Sequence[Pair]):
    """Every pair, each made when it is asked for: a column of figures holds them all."""

    names: tuple[str, ...]
    measures: tuple[Measure, ...]
    first: Int  # (P,) run a of each pair
    second: Int  # (P,)
    figures: Mapping[str, Float] = field(repr=False)  # (P, M) each

    def __len__(self) -> int:
        return len(self.first)

    @overload
    def __getitem__(self, at: int) -> Pair: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Pair]: ...
    def __getitem__(self, at: int | slice) -> Pair | Sequence[Pair]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        return Pair(
            self.names[int(self.first[at])],
            self.names[int(self.second[at])],
            {measure: self._difference(at, m) for m, measure in enumerate(self.measures)},
        )

    def _difference(self, at: int, m: int) -> Difference:
        f = {name: float(values[at, m]) for name, values in self.figures.items()}
        ends, holes = (f["low"], f["high"]), _both(f, "holes_low", "holes_high")
        return Difference(
            *(f["expected"], f["oblivious"], f["lowest"], f["highest"], f["p"], f["p_holm"]),
            ci=None if math.isnan(ends[0]) else ends,
            queries=int(f["queries"]),
            differing=int(f["differing"]),
            flip=f["flip"],
            queries_needed=count_or_none(f["queries_needed"]),
            p_t=f.get("p_t"),
            judged=_both(f, "judged_a", "judged_b"),
            holes=holes,
            holes_exact=None if holes is None else bool(f["holes_exact"]),
        )


def _both(figures: Mapping[str, float], one: str, other: str) -> tuple[float, float] | None:
    found = (figures.get(one, math.nan), figures.get(other, math.nan))
    return None if any(map(math.isnan, found)) else found


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Displayed):
    """Every pair of the runs, on every measure.

    >>> runs = {"a": "try/saturated.trec", "b": "try/plain.trec"}
    >>> found = rp.compare("try/qrels.txt", runs, ["nDCG@5"])
    >>> found.verdicts()[0][:17]
    'nDCG@5: reversed.'
    """

    evaluations: tuple[Evaluation, ...]
    pairs: Pairs
    seed: int
    exact: bool  # every p counts all sign flips, rather than a sample
    grades: str = ""  # that unjudged documents can have, in words, where there are their ends

    def __getitem__(self, pair: tuple[str, str]) -> dict[Measure, Difference]:
        names = self.pairs.names
        if all(name in names for name in pair):
            chosen = [names.index(name) for name in pair]
            found = np.flatnonzero(
                (self.pairs.first == chosen[0]) & (self.pairs.second == chosen[1])
            )
            if len(found):
                return self.pairs[int(found[0])].measures
        raise KeyError(f"{pair!r} was not compared; there are {', '.join(names)}, in this order")

    kind: ClassVar[str] = "comparison"

    def summary(self) -> Summary:
        """One pair in words; of several the pairs whose leader is open."""
        return Summary(notes=comparison_sentences(self))

    def tables(self) -> list[Table]:
        """A row for each pair and measure."""
        return [pairs_table(self)]

    def tables_for(self, form: str) -> list[Table]:
        """On a terminal, more than two runs are a matrix for each measure."""
        if form == "table" and len(self.evaluations) > 2:
            return matrix_tables(self)
        return self.tables()

    def figures(self) -> dict[str, float]:
        """Each expected difference, as "a − b/measure"."""
        return {
            f"{pair.a} − {pair.b}/{measure}": difference.expected
            for pair in self.pairs
            for measure, difference in pair.measures.items()
        }

    @property
    def warnings(self) -> list[str]:
        """What was guessed of the files."""
        return [note for evaluation in self.evaluations for note in evaluation.notes]

    @property
    def file_warnings(self) -> list[str]:
        """What changes how the differences are read."""
        return self.notes

    def charts(self) -> list[Chart]:
        """For each measure a dot for each difference, and its interval over queries."""
        differences = [
            (f"{pair.a} − {pair.b}", measure, difference)
            for pair in islice(self.pairs, _DRAWN)
            for measure, difference in pair.measures.items()
        ]
        rows = [Range(name, d.expected, *(d.ci or (None, None))) for name, _, d in differences]
        panels = [str(measure) for _, measure, _ in differences]
        caption = "Dot: the difference. Bar: its 95% interval over queries."
        return range_charts(
            rows, "Differences", "difference", panels=panels, zero=True, caption=caption
        )

    def __repr__(self) -> str:
        names = ", ".join(self.pairs.names[:4]) + (", …" if len(self.pairs.names) > 4 else "")
        pairs = plural(len(self.pairs), "pair")
        return f"<{pairs} of {names} on {', '.join(map(str, self.pairs.measures))}>"

    def over_holes(self, view: View | None, asked: bool = True) -> Comparison:
        """With the ends of each difference over what unjudged documents could be.

        The view is of the same runs, in the same order. Not asked for, they are there where these
        documents could turn who is ahead.
        """
        if view is None:
            return self
        p = self.pairs
        figures = {**p.figures, **_bounds(view, p.measures, p.first, p.second)}
        grades = view.grades(p.measures)
        wider = replace(self, pairs=replace(p, figures=figures), grades=grades)
        every = (d for pair in wider.pairs for d in pair.measures.values())
        return wider if asked or any(d.rests_on_holes for d in every) else self

    def verdicts(self) -> list[str]:
        """Every comparison in words."""
        return [
            difference.verdict(pair.a, pair.b, measure)
            for pair in self.pairs
            for measure, difference in pair.measures.items()
        ]

    @property
    def missing(self) -> dict[str, int]:
        """How many judged queries each run lacks; runs that lack none are not in it."""
        return missing_queries(self.evaluations)

    @property
    def notes(self) -> list[str]:
        """What changes how the differences are read: queries that runs lack."""
        return missing_note(self.missing, self.evaluations[0].policy)

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof compare --format json` prints."""
        missing = self.missing
        return {
            "pairs": [
                {
                    "a": pair.a,
                    "b": pair.b,
                    "measures": {str(m): d.to_dict() for m, d in pair.measures.items()},
                }
                for pair in self.pairs
            ],
            **({"grades": self.grades} if self.grades else {}),
            **({"missing": missing} if missing else {}),
            "policy": self.evaluations[0].policy.to_dict(),
            "seed": self.seed,
        }

    def __str__(self) -> str:
        return "\n".join([*self.verdicts(), *self.notes])


def check_two_runs(runs: Sized) -> None:
    """Refuse to compare fewer than two runs."""
    if len(runs) < 2:
        raise InputError("one run cannot be compared", remedy="name two runs or more")


def compare_evaluations(
    evaluations: Sequence[Evaluation],
    *,
    seed: int = 0,
    with_t: bool = False,
) -> Comparison:
    """`compare` for runs evaluated before, on the same judgements and measures."""
    check_two_runs(evaluations)
    measures = tuple(evaluations[0].outcomes)
    first, second = np.triu_indices(len(evaluations), 1)
    pairs = len(first)
    names = ["expected", "oblivious", "lowest", "highest", "p", "low", "high", "queries"]
    names += ["differing", "flip", "queries_needed", *(["p_t"] if with_t else [])]
    figures = {name: np.empty((pairs, len(measures))) for name in names}
    exact = True
    for m, measure in enumerate(measures):
        figure = aligned(evaluations, measure)
        orders = _Orders(evaluations, measure, figure, seed)
        step = max(1, _CELLS // figure["expected"].shape[1])
        for low in range(0, pairs, step):
            some = slice(low, low + step)
            a, b = first[some], second[some]
            found, sure = _paired(figure, a, b, seed, with_t, measure, evaluations)
            found["flip"] = orders.flips(a, b, found)
            exact &= sure
            for name in names:
                figures[name][some, m] = found[name]
            advance(len(a) / pairs / len(measures))
    figures |= _judged(evaluations, measures, first, second)
    figures["p_holm"] = holm(figures["p"].ravel()).reshape(figures["p"].shape)
    runs = tuple(evaluation.name for evaluation in evaluations)
    columns = Pairs(runs, measures, first, second, figures)
    return Comparison(tuple(evaluations), columns, seed, exact)


def _judged(
    evaluations: Sequence[Evaluation], measures: Sequence[Measure], first: Int, second: Int
) -> dict[str, Float]:
    """(P, M) what is judged of both runs of each pair."""
    shares = np.array([[e.judged.get(m, math.nan) for m in measures] for e in evaluations])
    return {"judged_a": shares[first], "judged_b": shares[second]}


def _bounds(view: View, measures: Sequence[Measure], first: Int, second: Int) -> dict[str, Float]:
    """(P, M) the ends of each difference over every completion of the holes of both."""
    view.check(measures)
    ends = np.empty((3, len(first), len(measures)))
    for at, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        for m, measure in enumerate(measures):
            bound = view.pair_bound(a, b, measure)
            ends[:, at, m] = (bound.lowest, bound.highest, bound.exact)
    return dict(zip(("holes_low", "holes_high", "holes_exact"), ends, strict=True))


def aligned(evaluations: Sequence[Evaluation], measure: Measure) -> dict[str, Float]:
    """(R, Q) each figure of a measure on a common list of queries; NaN where a run has none."""
    queries = pl.concat([e.queries for e in evaluations]).unique().sort()
    figures = {}
    # Both lists are sorted and an evaluation's queries are among the others.
    at = [queries.search_sorted(e.queries).to_numpy() for e in evaluations]
    for name in ("expected", "oblivious", "min", "max", "variance"):
        values = np.full((len(evaluations), len(queries)), np.nan)
        for row, (evaluation, places) in enumerate(zip(evaluations, at, strict=True)):
            outcomes = evaluation.outcomes[measure]
            if getattr(outcomes, name) is not None:
                values[row, places] = outcomes.in_mean(name)
        figures[name] = values
    return figures


def missing_queries(evaluations: Iterable[Evaluation]) -> dict[str, int]:
    """Return by run how many judged queries it lacks; runs that lack none are not in it."""
    several = list(evaluations)
    known = len(pl.concat([e.queries for e in several]).unique())
    counts = {e.name: max(e.missing, known - len(e.queries)) for e in several}
    return {name: count for name, count in counts.items() if count}


def missing_note(missing: Mapping[str, int], policy: Policy) -> list[str]:
    """Say how many judged queries are missing from which runs; nothing where none is."""
    if not missing:
        return []
    most = sorted(missing, key=lambda name: -missing[name])
    first, *others = most[:_NAMED]
    parts = [
        f"{plural(missing[first], 'judged query is', 'judged queries are')} missing from {first}",
        *(f"{missing[name]:,} from {name}" for name in others),
    ]
    if most[_NAMED:]:
        parts.append(f"some from {plural(len(most) - _NAMED, 'other run')}")
    zero = policy.missing == "zero" and not (policy.candidates_only and policy.undefined == "skip")
    said = "missing queries count 0" if zero else "missing queries are left out"
    listed = ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]
    return [f"{listed}; {said}"]


def _paired(
    figure: dict[str, Float],
    a: Int,
    b: Int,
    seed: int,
    with_t: bool,
    measure: Measure,
    evaluations: Sequence[Evaluation],
) -> tuple[dict[str, Float], bool]:
    """The figures of some pairs (P,), and whether every p is exact."""
    apart = figure["expected"][a] - figure["expected"][b]
    apart[np.abs(apart) < ZERO] = 0.0  # a query on which both are level but for rounding
    n, expected, sd = mean_and_deviation(apart)
    if not n.all():
        at = int((n == 0).argmax())
        one, other = (evaluations[int(x[at])].name for x in (a, b))
        raise InputError(
            f"{measure} is defined on no query that {one} and {other} share",
            remedy="check the judgements, or leave the measure out",
        )
    shared = ~np.isnan(apart)

    def mean(one: str, other: str) -> Float:
        values = np.where(shared, figure[one][a] - figure[other][b], 0.0)
        return np.asarray(values.sum(axis=1) / n)

    p, exact = randomization_test(apart, seed=seed)
    least, most = possible_range(figure["expected"], measure.upper)
    ends = difference_intervals(apart, most - least)
    differing = (np.where(shared, apart, 0.0) != 0).sum(axis=1).astype(np.float64)
    found = {
        "expected": expected,
        "oblivious": mean("oblivious", "oblivious"),
        "lowest": mean("min", "max"),
        "highest": mean("max", "min"),
        "p": p,
        "low": ends[:, 0],
        "high": ends[:, 1],
        "queries": n.astype(np.float64),
        "differing": differing,
        "queries_needed": queries_needed(expected, sd, differing / n),
    }
    if with_t:
        found["p_t"] = t_test(apart)
    return found, bool(exact.all())


class _Orders:
    """What random orders of ties make of one measure: moments of each run, drawn where needed."""

    def __init__(
        self,
        evaluations: Sequence[Evaluation],
        measure: Measure,
        figure: dict[str, Float],
        seed: int,
    ):
        self._evaluations = evaluations
        self._measure = measure
        self._figure = figure
        self._seed = seed
        self._queries = pl.concat([e.queries for e in evaluations]).unique().sort()
        self._drawn: dict[tuple[int, bytes], Float | None] = {}

    def flips(self, a: Int, b: Int, found: dict[str, Float]) -> Float:
        """(P,) the chance that a random order turns the sign; 0 where none can."""
        n = found["queries"]
        total = found["expected"] * n
        flip = np.zeros(len(a))  # as where some order makes both level and none goes past that
        open_ = np.flatnonzero((found["lowest"] <= -ZERO) & (found["highest"] >= ZERO))
        if not len(open_):
            return flip
        one, other = a[open_], b[open_]
        shared = ~np.isnan(self._figure["expected"][one] - self._figure["expected"][other])
        v = np.where(shared, self._figure["variance"][one] + self._figure["variance"][other], 0.0)
        step = self._measure.step
        chance = flips.normal_flips(total[open_], v.sum(axis=1), (v * v).sum(axis=1), step)
        for at in np.flatnonzero(np.isnan(chance)):
            sums = [self._sums(int(run[at]), shared[at]) for run in (one, other)]
            if sums[0] is None or sums[1] is None:
                chance[at] = math.nan
            else:
                chance[at] = flips.simulated_flip(float(total[open_[at]]), sums[0] - sums[1])
        flip[open_] = chance
        return flip

    def _sums(self, run: int, shared: Bool) -> Float | None:
        """(ORDERS,) of the deviations from expectation of a run's tied queries; None: not kept."""
        evaluation = self._evaluations[run]
        values = evaluation.outcomes[self._measure]
        # The places of its queries are those that the alignment filled, in the same order.
        own = shared[self._queries.search_sorted(evaluation.queries).to_numpy()]
        tied = np.flatnonzero((values.max > values.min) & own)
        key = (run, tied.tobytes())
        if key in self._drawn:
            return self._drawn[key]
        sums: Float | None = np.zeros(flips.ORDERS)
        if len(tied):
            sums = None
            if evaluation.ties is not None:
                sums = flips.drawn_sums(
                    *(evaluation.ties, self._measure, tied, values.expected[tied]),
                    None if values.variance is None else values.variance[tied],
                    flips.run_generator(evaluation.name, self._seed),
                )
        self._drawn[key] = sums
        return sums


def doubtful(comparison: Comparison) -> Iterator[tuple[Pair, Measure, Difference]]:
    """The differences whose sign might well rest on ties, or on unjudged documents."""
    figures = comparison.pairs.figures
    loose = ~(figures["flip"] < flips.LIKELY) | (figures["oblivious"] * figures["expected"] < 0)
    if "holes_low" in figures:
        ahead, low, high = (figures[name] for name in ("expected", "holes_low", "holes_high"))
        loose |= ~((ahead > ZERO) & (low > ZERO)) & ~((ahead < -ZERO) & (high < -ZERO))
    for at in np.flatnonzero(loose.any(axis=1)).tolist():
        pair = comparison.pairs[at]
        for measure, difference in pair.measures.items():
            if difference.reversed or difference.rests_on_ties or difference.rests_on_holes:
                yield pair, measure, difference


_DRAWN = 40  # pairs in a chart


def pairs_table(comparison: Comparison) -> Table:
    """Return a row for each pair and measure, with what the columns mean below."""
    columns = [
        *Column.each("a", "b", style="text", folds=True),
        Column("measure", "text"),
        Column("expected", "signed"),
        Column("oblivious", "signed", drop=1),
        *Column.each("lowest", "highest", style="signed", drop=4),
        Column("p", "p", drop=3),
        Column("p (Holm)", "p"),
        *Column.each("ci low", "ci high", style="signed"),
        Column("flip", "p", drop=2),
        Column("ties", "text"),
    ]
    with_t = "p_t" in comparison.pairs.figures
    if with_t:
        columns.insert(9, Column("p (t)", "p", drop=5))
    known = [d for pair in comparison.pairs for d in pair.measures.values()]
    open_ = some_unjudged(share for d in known for share in d.judged or ())
    bounded = any(d.holes is not None for d in known)
    if bounded:
        columns += [*Column.each("holes low", "holes high", style="signed", drop=6)]  # or none
    if open_:
        columns.append(Column("judged", "text"))
    rows = []
    for pair in comparison.pairs:
        for m, d in pair.measures.items():
            low, high = d.ci or (None, None)
            student = [d.p_t] if with_t else []
            ends = list(d.holes or (None, None)) if bounded else []
            shares = ["/".join(f"{x:.2f}" for x in d.judged or ())] if open_ else []
            rows.append(
                (
                    *(pair.a, pair.b, str(m), d.expected, d.oblivious, d.lowest, d.highest),
                    *(d.p, d.p_holm, *student, low, high, d.flip, _ties(d), *ends, *shares),
                )
            )
    notes = [
        "each figure is a − b; p: paired randomisation test, which takes differences to be "
        "symmetric about 0; ci: 95%, Student's t over queries"
    ]
    notes += comparison.notes
    if comparison.exact:
        notes.append("p counts every assignment of signs: it is exact")
    few = comparison.pairs.figures["differing"] < MIN_QUERIES
    if few.any():
        notes.append(
            f"– under ci: fewer than {MIN_QUERIES} queries differ, too few for an interval"
        )
    if (np.isnan(comparison.pairs.figures["low"]) & ~few).any():
        notes.append("– under ci: all queries differ alike, in a measure that has no end")
    if bounded:
        loose = (comparison.pairs.figures["holes_exact"] == 0).any(axis=0)
        reached = at_most(
            str(m) for m, some in zip(comparison.pairs.measures, loose, strict=True) if some
        )
        notes.append(
            "holes: the ends over every grade that unjudged documents in the top k of both could "
            f"have, {comparison.grades}{reached}; all other unjudged documents stay not relevant"
        )
    condensed = comparison.evaluations[0].policy.condensed
    if condensed:
        notes.append(CONDENSED)
    if open_:
        more = "" if bounded or condensed else " (--holes: what that leaves)"
        notes.append(f"{NOTE}; of a and of b{more}")
    return Table(columns, rows, notes=notes)


def _ties(difference: Difference) -> str:
    if difference.reversed:
        return "reversed"
    if difference.certain:
        return "certain"
    if difference.rests_on_ties:
        return "rests on order"
    return "level at worst" if difference.level_at_worst else "sure enough"
