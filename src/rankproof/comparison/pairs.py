"""Compare runs pairwise on the same queries.

For each pair and measure, the difference of means comes with a p-value (paired randomization test),
a 95% interval over queries, and what the arbitrary order of ties and the grades of unjudged
documents could change. Columns of values (P pairs, M measures) hold all pairs; a `Difference` is
made when it is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
import polars as pl

from rankproof.comparison.pair_tables import comparison_sentences, matrix_tables
from rankproof.evaluation import Evaluation, Policy, merge_notes
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import amount, plural, signed
from rankproof.foundation.progress import advance
from rankproof.measures import Measure, Outcomes
from rankproof.presentation.charts import Chart, Range, range_charts
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain_fields
from rankproof.presentation.judged_column import CONDENSED, NOTE, any_unjudged, bounds_clause
from rankproof.presentation.lead_wording import (
    ZERO,
    dependence_verb,
    may_change_sign,
    modal_verb,
    open_question,
    sign,
)
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Cell, Column, Table
from rankproof.statistics import flips
from rankproof.statistics.groups import means_of
from rankproof.statistics.intervals import (
    MIN_QUERIES,
    Interval,
    count_or_none,
    difference_intervals,
    possible_range,
    queries_needed,
)
from rankproof.statistics.randomization import holm, randomization_test, t_test

if TYPE_CHECKING:
    from rankproof.unjudged.bounds import WorstCases

_CELLS = 1 << 20  # values of (pair, query) in memory at a time
_NAMED_RUNS = 5  # in a note on missing queries


@dataclass(frozen=True, slots=True)
class Difference:
    """A measure of run a minus that of run b, over the queries for which both have a value."""

    expected: float
    oblivious: float
    lowest: float  # over all orders of the ties in both runs
    highest: float
    p: float  # paired randomization test on per-query expected values
    p_holm: float  # corrected for every pair and measure compared
    ci: Interval | None  # 95%; None if fewer than six queries differ, or an end is unknown
    queries: int
    differing: int = -1  # queries on which the two differ; −1: not counted
    flip: float = math.nan  # probability that a random order of ties reverses it
    queries_needed: int | None = None  # to see this difference with power 0.8
    p_t: float | None = None  # Student's paired test, if requested; NaN if all differ alike
    judged: tuple[float, float] | None = None  # Judged@k of a and of b, if known
    holes: Interval | None = None  # worst cases over unjudged documents, if requested
    holes_exact: bool | None = None  # True if some grades reach these ends; else they are bounds

    @property
    def certain(self) -> bool:
        """True if every order of ties gives the same sign."""
        return sign(self.lowest) == sign(self.highest)

    @property
    def reversed(self) -> bool:
        """True if the order as listed and the expectation favor different runs."""
        return sign(self.oblivious) * sign(self.expected) < 0

    @property
    def level_at_worst(self) -> bool:
        """True if some order of ties makes both equal, and none puts the other ahead."""
        return not self.certain and not sign(self.lowest) * sign(self.highest)

    @property
    def rests_on_ties(self) -> bool:
        """True if a random order of ties reverses the sign with some probability."""
        return not self.certain and not self.flip < flips.LIKELY

    @property
    def rests_on_holes(self) -> bool:
        """True if grades of unjudged documents could reverse the sign where ties cannot."""
        over_ties = (self.lowest, self.highest)
        return self.holes is not None and may_change_sign(self.expected, over_ties, self.holes)

    @property
    def _certain_over_unjudged(self) -> bool:
        """True if no grades of unjudged documents change who is ahead."""
        ends = {sign(end) for end in self.holes or ()}
        return ends == {sign(self.expected)}

    @property
    def _unjudged_sentence(self) -> str:
        if not self.rests_on_holes:
            return ""
        return f" Unjudged documents {modal_verb(self.holes_exact)} turn it, too."

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON has them; optional ones only if they are known."""
        always = ("expected", "oblivious", "lowest", "highest", "certain", "reversed", "flip", "p")
        values = plain_fields(
            self, *always, "p_holm", "ci", "queries", "differing", "queries_needed"
        )
        optional = ("p_t", "judged", "holes", "holes_exact")
        return values | plain_fields(
            self, *(name for name in optional if getattr(self, name) is not None)
        )

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Difference:
        """Read what `to_dict` wrote; a missing or null value is unknown."""
        values = {item.name: stored[item.name] for item in fields(cls) if item.name in stored}
        for name in ("expected", "oblivious", "lowest", "highest", "p", "p_holm", "flip"):
            values[name] = math.nan if values.get(name) is None else values[name]
        return cls(**{"ci": None, "queries": 0, **values})

    def verdict(self, a: str, b: str, measure: Measure) -> str:
        """Return the comparison as one sentence."""
        ahead, behind = (a, b) if measure.sign * self.expected > 0 else (b, a)
        size = amount(abs(self.expected))
        span = f"from {signed(self.lowest)} to {signed(self.highest)}"
        if self.reversed:
            return (
                f"{measure}: reversed. As its ties happen to be broken, {behind} leads by "
                f"{amount(abs(self.oblivious))}; over all orders {ahead} leads by {size} ({span})."
            ) + self._unjudged_sentence
        if self.rests_on_ties:
            question = open_question(a, b, (self.lowest, self.highest), measure.sign)
            return (
                f"{measure}: {question} rests on how ties are broken "
                f"({a} − {b} {span}, {signed(self.expected)} expected{self._flip_phrase})."
            ) + self._unjudged_sentence
        if self.rests_on_holes and self.holes is not None:
            low, high = self.holes
            at_most_phrase = "" if self.holes_exact else "at most "
            question = open_question(a, b, self.holes, measure.sign)
            return (
                f"{measure}: {question} {dependence_verb(self.holes_exact)} unjudged documents "
                f"({a} − {b} {at_most_phrase}from {signed(low)} to {signed(high)} "
                "over what they could be, "
                f"{signed(self.expected)} with all of them {measure.unjudged_count_as})."
            )
        if sign(self.expected) == 0:
            return f"{measure}: {a} and {b} are equal."
        certainty = "under every tie-break" if self.certain else "under nearly every tie-break"
        if self.level_at_worst:
            certainty = "or level with it under every tie-break"
        if self._certain_over_unjudged:
            certainty += " and whatever the unjudged documents are"
        chance = ""
        if not self.p_holm < 0.05:
            chance = ", a lead that chance could explain: it rests on the sample of queries"
        few_queries = ""
        if 0 <= self.differing < MIN_QUERIES:
            few_queries = f"; only {plural(self.differing, 'query differs', 'queries differ')}"
        return (
            f"{measure}: {ahead} is ahead of {behind} {certainty} "
            f"(by {size}, p = {_p_text(self.p_holm)} after Holm{chance}{few_queries})."
        )

    @property
    def _flip_phrase(self) -> str:
        """What a random order of ties does, in words."""
        if math.isnan(self.flip):
            return ""
        effect = "turns it" if sign(self.expected) else "puts each of them ahead"
        return f"; a random order {effect} with probability {self.flip:.3f}"


def _p_text(value: float) -> str:
    return f"{value:.4f}" if value >= 1e-4 else f"{value:.0e}"


@dataclass(frozen=True, slots=True)
class Pair:
    """Run a compared with run b."""

    a: str
    b: str
    measures: dict[Measure, Difference]


@dataclass(frozen=True, slots=True)
class Pairs(Sequence[Pair]):
    """All pairs; each `Pair` is made from the columns when it is read."""

    names: tuple[str, ...]
    measures: tuple[Measure, ...]
    first: Int  # (P,) run a of each pair
    second: Int  # (P,)
    figures: Mapping[str, Float] = field(repr=False)  # (P, M) each

    def __len__(self) -> int:
        return len(self.first)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | Sequence[Pair]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return Pair(
            self.names[int(self.first[index])],
            self.names[int(self.second[index])],
            {measure: self._difference(index, m) for m, measure in enumerate(self.measures)},
        )

    def _difference(self, index: int, m: int) -> Difference:
        values = {name: float(column[index, m]) for name, column in self.figures.items()}
        holes = _interval(values, "holes_low", "holes_high")
        return Difference(
            expected=values["expected"],
            oblivious=values["oblivious"],
            lowest=values["lowest"],
            highest=values["highest"],
            p=values["p"],
            p_holm=values["p_holm"],
            ci=_interval(values, "low", "high"),
            queries=int(values["queries"]),
            differing=int(values["differing"]),
            flip=values["flip"],
            queries_needed=count_or_none(values["queries_needed"]),
            p_t=values.get("p_t"),
            judged=_interval(values, "judged_a", "judged_b"),
            holes=holes,
            holes_exact=None if holes is None else bool(values["holes_exact"]),
        )


def _interval(values: Mapping[str, float], low: str, high: str) -> tuple[float, float] | None:
    """Return two values by name; None if one is missing or NaN."""
    ends = (values.get(low, math.nan), values.get(high, math.nan))
    return None if any(map(math.isnan, ends)) else ends


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Displayed):
    """Differences of all pairs of runs on all measures.

    >>> runs = {"a": "try/saturated.trec", "b": "try/plain.trec"}
    >>> comparison = rp.compare("try/qrels.txt", runs, ["nDCG@5"])
    >>> comparison.verdicts()[0][:17]
    'nDCG@5: reversed.'
    """

    kind: ClassVar[str] = "comparison"

    evaluations: tuple[Evaluation, ...]
    pairs: Pairs
    seed: int
    exact: bool  # True if every p counts all sign flips rather than a sample
    grades: str = ""  # those that unjudged documents could have, if worst cases were computed

    def __getitem__(self, pair: tuple[str, str]) -> dict[Measure, Difference]:
        names = self.pairs.names
        if all(name in names for name in pair):
            a, b = (names.index(name) for name in pair)
            rows = np.flatnonzero((self.pairs.first == a) & (self.pairs.second == b))
            if len(rows):
                return self.pairs[int(rows[0])].measures
        raise KeyError(f"{pair!r} was not compared; there are {', '.join(names)}, in this order")

    def summary(self) -> Summary:
        """Describe one pair; of several pairs those whose leader is uncertain."""
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
        """Notes on what the readers assumed."""
        return merge_notes(self.evaluations)

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

    def over_holes(self, view: WorstCases | None, asked: bool = True) -> Comparison:
        """Add the worst cases of each difference over unjudged documents.

        `view` has the same runs in the same order. Unless requested (`asked`), they are added only
        if these documents could change who is ahead.
        """
        if view is None:
            return self
        pairs = self.pairs
        bounds = _worst_cases(view, pairs.measures, pairs.first, pairs.second)
        figures = {**pairs.figures, **bounds}
        grades = view.grades(pairs.measures)
        bounded = replace(self, pairs=replace(pairs, figures=figures), grades=grades)
        differences = (d for pair in bounded.pairs for d in pair.measures.values())
        return bounded if asked or any(d.rests_on_holes for d in differences) else self

    def verdicts(self) -> list[str]:
        """Return one sentence for each pair and measure."""
        return [
            difference.verdict(pair.a, pair.b, measure)
            for pair in self.pairs
            for measure, difference in pair.measures.items()
        ]

    @property
    def missing(self) -> dict[str, int]:
        """The number of judged queries that each run lacks, for runs that lack some."""
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
    """Compare evaluations with the same judgments and measures."""
    check_two_runs(evaluations)
    measures = tuple(evaluations[0].outcomes)
    first, second = np.triu_indices(len(evaluations), 1)
    pairs = len(first)
    names = ["expected", "oblivious", "lowest", "highest", "p", "low", "high", "queries"]
    names += ["differing", "flip", "queries_needed", *(["p_t"] if with_t else [])]
    figures = {name: np.empty((pairs, len(measures))) for name in names}
    exact = True
    for m, measure in enumerate(measures):
        aligned_values = aligned(evaluations, measure)
        orders = _TieOrders(evaluations, measure, aligned_values, seed)
        step = max(1, _CELLS // aligned_values["expected"].shape[1])
        for low in range(0, pairs, step):
            block = slice(low, low + step)
            a, b = first[block], second[block]
            _check_shared_queries(aligned_values, a, b, measure, evaluations)
            values, is_exact = _pair_values(aligned_values, a, b, seed, with_t, measure)
            values["flip"] = orders.flips(a, b, values)
            exact &= is_exact
            for name in names:
                figures[name][block, m] = values[name]
            advance(len(a) / pairs / len(measures))
    figures |= _judged_shares(evaluations, measures, first, second)
    figures["p_holm"] = holm(figures["p"].ravel()).reshape(figures["p"].shape)
    runs = tuple(evaluation.name for evaluation in evaluations)
    columns = Pairs(runs, measures, first, second, figures)
    return Comparison(tuple(evaluations), columns, seed, exact)


def _judged_shares(
    evaluations: Sequence[Evaluation], measures: Sequence[Measure], first: Int, second: Int
) -> dict[str, Float]:
    """Return (P, M) the judged shares of both runs of each pair."""
    shares = np.array([[e.judged.get(m, math.nan) for m in measures] for e in evaluations])
    return {"judged_a": shares[first], "judged_b": shares[second]}


def _worst_cases(
    view: WorstCases, measures: Sequence[Measure], first: Int, second: Int
) -> dict[str, Float]:
    """Return (P, M) the ends of each difference over all grades of the unjudged documents."""
    view.check(measures)
    ends = np.empty((3, len(first), len(measures)))
    for row, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        for m, measure in enumerate(measures):
            bound = view.pair_bound(a, b, measure)
            ends[:, row, m] = (bound.lowest, bound.highest, bound.exact)
    return dict(zip(("holes_low", "holes_high", "holes_exact"), ends, strict=True))


def aligned(evaluations: Sequence[Evaluation], measure: Measure) -> dict[str, Float]:
    """Return (R, Q) the values of each run on a common list of queries; NaN if it has none.

    The columns are expected, oblivious, min, max and variance.
    """
    queries = pl.concat([e.queries for e in evaluations]).unique().sort()
    columns = {}
    # Both lists are sorted, and the common one contains every query of a run.
    positions = [queries.search_sorted(e.queries).to_numpy() for e in evaluations]
    for name in ("expected", "oblivious", "min", "max", "variance"):
        values = np.full((len(evaluations), len(queries)), np.nan)
        for row, (evaluation, columns_of_run) in enumerate(
            zip(evaluations, positions, strict=True)
        ):
            outcomes = evaluation.outcomes[measure]
            if getattr(outcomes, name) is not None:
                values[row, columns_of_run] = outcomes.in_mean(name)
        columns[name] = values
    return columns


def missing_queries(evaluations: Iterable[Evaluation]) -> dict[str, int]:
    """Return the number of judged queries that each run lacks, for runs that lack some."""
    listed = list(evaluations)
    known = len(pl.concat([e.queries for e in listed]).unique())
    counts = {e.name: max(e.missing, known - len(e.queries)) for e in listed}
    return {name: count for name, count in counts.items() if count}


def missing_note(missing: Mapping[str, int], policy: Policy) -> list[str]:
    """Return a note on how many judged queries are missing from which runs, if any are."""
    if not missing:
        return []
    by_count = sorted(missing, key=lambda name: -missing[name])
    first, *others = by_count[:_NAMED_RUNS]
    parts = [
        f"{plural(missing[first], 'judged query is', 'judged queries are')} missing from {first}",
        *(f"{missing[name]:,} from {name}" for name in others),
    ]
    if by_count[_NAMED_RUNS:]:
        parts.append(f"some from {plural(len(by_count) - _NAMED_RUNS, 'other run')}")
    counts_zero = policy.missing == "zero" and not (
        policy.candidates_only and policy.undefined == "skip"
    )
    effect = "missing queries count 0" if counts_zero else "missing queries are left out"
    listed = ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]
    return [f"{listed}; {effect}"]


def _check_shared_queries(
    values: dict[str, Float],
    a: Int,
    b: Int,
    measure: Measure,
    evaluations: Sequence[Evaluation],
) -> None:
    """Refuse a pair (P,) without a query for which both runs have a value."""
    is_defined = ~np.isnan(values["expected"])
    without = ~(is_defined[a] & is_defined[b]).any(axis=1)
    if without.any():
        row = int(without.argmax())
        one, other = (evaluations[int(runs[row])].name for runs in (a, b))
        raise InputError(
            f"{measure} is defined on no query that {one} and {other} share",
            remedy="check the judgements, or leave the measure out",
        )


def _pair_values(
    values: dict[str, Float], a: Int, b: Int, seed: int, with_t: bool, measure: Measure
) -> tuple[dict[str, Float], bool]:
    """Return the values of pairs (P,) of runs by name, and whether every p is exact."""
    difference = values["expected"][a] - values["expected"][b]
    difference[np.abs(difference) < ZERO] = 0.0  # equal but for rounding
    means = means_of(difference)
    n, expected = means.n, means.mean
    is_shared = ~np.isnan(difference)

    def mean(of_a: str, of_b: str) -> Float:
        differences = np.where(is_shared, values[of_a][a] - values[of_b][b], 0.0)
        return np.asarray(differences.sum(axis=1) / n)

    p, is_exact = randomization_test(difference, seed=seed)
    smallest, largest = possible_range(values["expected"], measure.upper)
    ends = difference_intervals(difference, largest - smallest)
    differing = (np.where(is_shared, difference, 0.0) != 0).sum(axis=1).astype(np.float64)
    pair_values = {
        "expected": expected,
        "oblivious": mean("oblivious", "oblivious"),
        "lowest": mean("min", "max"),
        "highest": mean("max", "min"),
        "p": p,
        "low": ends[:, 0],
        "high": ends[:, 1],
        "queries": n.astype(np.float64),
        "differing": differing,
        "queries_needed": queries_needed(expected, means.deviation, differing / n),
    }
    if with_t:
        pair_values["p_t"] = t_test(difference)
    return pair_values, bool(is_exact.all())


class _TieOrders:
    """The probability that a random order of ties reverses the sign of a pair's difference.

    It follows from the moments of each run's values where the normal approximation is good, else
    from simulated orders, which are drawn once for each run and set of tied queries.
    """

    def __init__(
        self,
        evaluations: Sequence[Evaluation],
        measure: Measure,
        values: dict[str, Float],
        seed: int,
    ):
        self._evaluations = evaluations
        self._measure = measure
        self._values = values
        self._seed = seed
        self._queries = pl.concat([e.queries for e in evaluations]).unique().sort()
        self._simulated: dict[tuple[int, bytes], Float | None] = {}

    def flips(self, a: Int, b: Int, pair_values: dict[str, Float]) -> Float:
        """Return (P,) the probabilities; 0 where no order reverses the sign."""
        total = pair_values["expected"] * pair_values["queries"]
        # 0 also where some order makes both equal and none goes past that.
        probability = np.zeros(len(a))
        lowest, highest = pair_values["lowest"], pair_values["highest"]
        uncertain = np.flatnonzero((lowest <= -ZERO) & (highest >= ZERO))
        if not len(uncertain):
            return probability
        a, b = a[uncertain], b[uncertain]
        expected, variance = self._values["expected"], self._values["variance"]
        is_shared = ~np.isnan(expected[a] - expected[b])
        v = np.where(is_shared, variance[a] + variance[b], 0.0)
        flip = flips.normal_flips(
            total[uncertain], v.sum(axis=1), (v * v).sum(axis=1), self._measure.step
        )
        for row in np.flatnonzero(np.isnan(flip)):
            of_a = self._simulated_sums(int(a[row]), is_shared[row])
            of_b = self._simulated_sums(int(b[row]), is_shared[row])
            if of_a is not None and of_b is not None:
                flip[row] = flips.simulated_flip(float(total[uncertain[row]]), of_a - of_b)
        probability[uncertain] = flip
        return probability

    def _simulated_sums(self, run: int, is_shared: Bool) -> Float | None:
        """Return (ORDERS,) sums of a run's deviations from its expectation, one for each order.

        None if the evaluation has not kept its tie groups.
        """
        evaluation = self._evaluations[run]
        outcomes = evaluation.outcomes[self._measure]
        # An evaluation's queries are sorted, as are the common ones.
        is_used = is_shared[self._queries.search_sorted(evaluation.queries).to_numpy()]
        tied = np.flatnonzero((outcomes.max > outcomes.min) & is_used)
        key = (run, tied.tobytes())
        if key not in self._simulated:
            self._simulated[key] = self._simulate(evaluation, outcomes, tied)
        return self._simulated[key]

    def _simulate(self, evaluation: Evaluation, outcomes: Outcomes, tied: Int) -> Float | None:
        if not len(tied):
            return np.zeros(flips.ORDERS)
        if evaluation.ties is None:
            return None
        variance = None if outcomes.variance is None else outcomes.variance[tied]
        generator = flips.run_generator(evaluation.name, self._seed)
        return flips.drawn_sums(
            evaluation.ties, self._measure, tied, outcomes.expected[tied], variance, generator
        )


def doubtful(comparison: Comparison) -> Iterator[tuple[Pair, Measure, Difference]]:
    """Yield the differences whose sign depends on ties or on unjudged documents."""
    figures = comparison.pairs.figures
    expected = figures["expected"]
    is_doubtful = ~(figures["flip"] < flips.LIKELY) | (figures["oblivious"] * expected < 0)
    if "holes_low" in figures:
        low, high = figures["holes_low"], figures["holes_high"]
        stays_ahead = (expected > ZERO) & (low > ZERO)
        stays_behind = (expected < -ZERO) & (high < -ZERO)
        is_doubtful |= ~stays_ahead & ~stays_behind
    for row in np.flatnonzero(is_doubtful.any(axis=1)).tolist():
        pair = comparison.pairs[row]
        for measure, difference in pair.measures.items():
            if difference.reversed or difference.rests_on_ties or difference.rests_on_holes:
                yield pair, measure, difference


_DRAWN = 40  # pairs in a chart


def pairs_table(comparison: Comparison) -> Table:
    """Return a table with a row for each pair and measure, and notes on its columns."""
    figures = comparison.pairs.figures
    differences = [d for pair in comparison.pairs for d in pair.measures.values()]
    has_t_test = "p_t" in figures
    has_worst_cases = any(d.holes is not None for d in differences)
    has_unjudged = any_unjudged(share for d in differences for share in d.judged or ())
    columns = [
        *Column.each("a", "b", style="text", folds=True),
        Column("measure", "text"),
        Column("expected", "signed"),
        Column("oblivious", "signed", drop=1),
        *Column.each("lowest", "highest", style="signed", drop=4),
        Column("p", "p", drop=3),
        Column("p (Holm)", "p"),
        *([Column("p (t)", "p", drop=5)] if has_t_test else []),
        *Column.each("ci low", "ci high", style="signed"),
        Column("flip", "p", drop=2),
        Column("ties", "text"),
    ]
    if has_worst_cases:
        columns += Column.each("holes low", "holes high", style="signed", drop=6)
    if has_unjudged:
        columns.append(Column("judged", "text"))
    rows = []
    for pair in comparison.pairs:
        for measure, d in pair.measures.items():
            row: list[Cell] = [pair.a, pair.b, str(measure)]
            row += [d.expected, d.oblivious, d.lowest, d.highest, d.p, d.p_holm]
            row += [d.p_t] if has_t_test else []
            row += [*(d.ci or (None, None)), d.flip, _ties(d)]
            row += list(d.holes or (None, None)) if has_worst_cases else []
            row += ["/".join(f"{x:.2f}" for x in d.judged or ())] if has_unjudged else []
            rows.append(row)
    return Table(columns, rows, notes=_table_notes(comparison, has_worst_cases, has_unjudged))


def _table_notes(comparison: Comparison, has_worst_cases: bool, has_unjudged: bool) -> list[str]:
    """Return what the columns of `pairs_table` mean, as far as it has them."""
    figures = comparison.pairs.figures
    notes = [
        "each figure is a − b; p: paired randomisation test, which takes differences to be "
        "symmetric about 0; ci: 95%, Student's t over queries",
        *comparison.notes,
    ]
    if comparison.exact:
        notes.append("p counts every assignment of signs: it is exact")
    few = figures["differing"] < MIN_QUERIES
    if few.any():
        notes.append(
            f"– under ci: fewer than {MIN_QUERIES} queries differ, too few for an interval"
        )
    if (np.isnan(figures["low"]) & ~few).any():
        notes.append("– under ci: all queries differ alike, in a measure that has no end")
    if has_worst_cases:
        is_bound = (figures["holes_exact"] == 0).any(axis=0)
        bounded = [
            str(m) for m, bound in zip(comparison.pairs.measures, is_bound, strict=True) if bound
        ]
        notes.append(
            "holes: the ends over every grade that unjudged documents in the top k of both could "
            f"have, {comparison.grades}{bounds_clause(bounded)}; all other unjudged documents stay "
            "not relevant"
        )
    is_condensed = comparison.evaluations[0].policy.condensed
    if is_condensed:
        notes.append(CONDENSED)
    if has_unjudged:
        option = "" if has_worst_cases or is_condensed else " (--holes: what that leaves)"
        notes.append(f"{NOTE}; of a and of b{option}")
    return notes


def _ties(difference: Difference) -> str:
    """Return in a word or two what ties could change."""
    if difference.reversed:
        return "reversed"
    if difference.certain:
        return "certain"
    if difference.rests_on_ties:
        return "rests on order"
    return "level at worst" if difference.level_at_worst else "sure enough"
