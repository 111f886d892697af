"""Compare runs pairwise on the same queries.

For each pair and measure, the difference of means comes with one verdict, a p-value (paired
randomization test), a 95% interval over queries, and what the arbitrary order of ties and the
grades of unjudged documents could change. Columns of values (P pairs, M measures) hold all pairs; a
`Difference` is made when it is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np

from rankproof.comparison.differences import Tests, difference_columns
from rankproof.comparison.pair_tables import (
    comparison_summary,
    comparison_tables,
    full_pairs_table,
)
from rankproof.comparison.repeats import merge_repeats, repeats_dict
from rankproof.comparison.verdict import Verdict
from rankproof.evaluation import Evaluation
from rankproof.evaluation.checks import merge_notes
from rankproof.evaluation.presenting import evaluation_caption
from rankproof.foundation.arrays import Float, Int
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import plural
from rankproof.measures import Measure, parse
from rankproof.presentation.charts import Chart, Range, range_charts
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain_fields
from rankproof.presentation.lead_wording import sign
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Table
from rankproof.statistics.intervals import Interval, count_or_none

if TYPE_CHECKING:
    from rankproof.unjudged.bounds import WorstCases

_DRAWN = 40  # pairs in a chart


@dataclass(frozen=True, slots=True)
class Difference:
    """A measure of run a minus that of run b, over the queries that both average."""

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
    holes: Interval | None = None  # worst cases over unjudged documents, if computed
    holes_exact: bool | None = None  # True if some grades reach these ends; else they are bounds
    verdict: Verdict | None = None  # None if read from a stored result

    @property
    def certain(self) -> bool:
        """True if every order of ties gives the same sign."""
        return sign(self.lowest) == sign(self.highest)

    @property
    def reversed(self) -> bool:
        """True if the order as listed and the expectation favor different runs."""
        return sign(self.oblivious) * sign(self.expected) < 0

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON has them; optional ones only if they are known."""
        always = ("expected", "oblivious", "lowest", "highest", "certain", "reversed", "flip", "p")
        values = plain_fields(
            self, *always, "p_holm", "ci", "queries", "differing", "queries_needed"
        )
        optional = ("p_t", "judged", "holes", "holes_exact", "verdict")
        return values | plain_fields(
            self, *(name for name in optional if getattr(self, name) is not None)
        )

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Difference:
        """Read what `to_dict` wrote, without its verdict; a missing or null value is unknown."""
        names = [item.name for item in fields(cls) if item.name != "verdict"]
        values = {name: stored[name] for name in names if name in stored}
        for name in ("expected", "oblivious", "lowest", "highest", "p", "p_holm", "flip"):
            values[name] = math.nan if values.get(name) is None else values[name]
        return cls(**{"ci": None, "queries": 0, **values})


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
    equal_within: float | None = None  # δ of the verdicts

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

    def verdict(self, index: int, m: int) -> Verdict:
        """Return the verdict on a pair and a measure, both by number."""
        values = {name: float(column[index, m]) for name, column in self.figures.items()}
        return Verdict.from_columns(values, self.equal_within)

    def _difference(self, index: int, m: int) -> Difference:
        values = {name: float(column[index, m]) for name, column in self.figures.items()}
        holes = _interval(values, "holes_low", "holes_high")
        return Difference(
            expected=values["expected"],
            oblivious=values["oblivious"],
            lowest=values["lowest"],
            highest=values["highest"],
            p=values.get("p", math.nan),
            p_holm=values.get("p_holm", math.nan),
            ci=_interval(values, "low", "high"),
            queries=int(values["queries"]),
            differing=int(values["differing"]),
            flip=values["flip"],
            queries_needed=count_or_none(values["queries_needed"]),
            p_t=values.get("p_t"),
            judged=_interval(values, "judged_a", "judged_b"),
            holes=holes,
            holes_exact=None if holes is None else bool(values["holes_exact"]),
            verdict=Verdict.from_columns(values, self.equal_within),
        )


def _interval(values: Mapping[str, float], low: str, high: str) -> Interval | None:
    """Return two values by name; None if one is missing or NaN."""
    ends = (values.get(low, math.nan), values.get(high, math.nan))
    return None if any(map(math.isnan, ends)) else ends


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Displayed):
    """Differences of all pairs of runs on all measures, with one verdict for each.

    >>> runs = {"a": "try/saturated.trec", "b": "try/plain.trec"}
    >>> comparison = rp.compare("try/qrels.txt", runs, ["nDCG@5"])
    >>> comparison.verdict("a", "b", "nDCG@5").label
    'behind'
    """

    kind: ClassVar[str] = "comparison"

    evaluations: tuple[Evaluation, ...]
    pairs: Pairs
    seed: int
    exact: bool  # True if every p counts all sign flips rather than a sample
    grades: str = ""  # those that unjudged documents could have, if worst cases were computed

    def __getitem__(self, pair: tuple[str, str]) -> dict[Measure, Difference]:
        return self.pairs[self._row(*pair)].measures

    def _row(self, a: str, b: str) -> int:
        names = self.pairs.names
        if a in names and b in names:
            first, second = names.index(a), names.index(b)
            rows = np.flatnonzero((self.pairs.first == first) & (self.pairs.second == second))
            if len(rows):
                return int(rows[0])
        raise KeyError(f"{(a, b)!r} was not compared; there are {', '.join(names)}, in this order")

    def verdict(self, a: str, b: str, measure: str | Measure) -> Verdict:
        """Return the verdict on run a against run b, in the order in which they were named."""
        return self.pairs.verdict(self._row(a, b), self.pairs.measures.index(parse(measure)))

    def summary(self) -> Summary:
        """Describe one pair, or the best of several runs."""
        return comparison_summary(self)

    def caption(self) -> str:
        """One sentence for a paper: measures, queries, policy, judged share, software."""
        return evaluation_caption(self.evaluations)

    def tables(self) -> list[Table]:
        """Two runs in one table; of more, a matrix for each measure."""
        return comparison_tables(self)

    def full_tables(self) -> list[Table]:
        """A row for each pair and measure, with every value."""
        return [full_pairs_table(self)]

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

    @property
    def missing(self) -> dict[str, int]:
        """The number of judged queries that each run lacks, for runs that lack some."""
        return missing_queries(self.evaluations)

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
            "query_sets": query_sets_dict(self.evaluations),
            **repeats_dict(self.evaluations),
            **({"grades": self.grades} if self.grades else {}),
            **({"missing": missing} if missing else {}),
            "policy": self.evaluations[0].policy.to_dict(),
            "seed": self.seed,
        }


def query_sets_dict(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """Return the query sets by run and measure, as JSON has them."""
    return {e.name: {str(m): e.query_set(m).to_dict() for m in e} for e in evaluations}


def check_two_runs(runs: Sized) -> None:
    """Refuse to compare fewer than two runs."""
    if len(runs) < 2:
        raise InputError("one run cannot be compared", remedy="name two runs or more")


def compare_evaluations(
    evaluations: Sequence[Evaluation],
    tests: Tests = Tests(),  # noqa: B008
    *,
    groups: Mapping[str, int] | None = None,
    view: WorstCases | None = None,
) -> Comparison:
    """Compare evaluations with the same judgments and measures; repeats are averaged.

    `groups` numbers the source of each query; `view` has the same runs in the same order, for
    worst cases over unjudged documents.
    """
    evaluations = merge_repeats(evaluations)
    check_two_runs(evaluations)
    first, second = np.triu_indices(len(evaluations), 1)
    figures, exact = difference_columns(evaluations, first, second, tests, groups=groups, view=view)
    names = tuple(evaluation.name for evaluation in evaluations)
    measures = tuple(evaluations[0].outcomes)
    pairs = Pairs(names, measures, first, second, figures, tests.equal_within)
    grades = "" if view is None else view.grades(measures)
    return Comparison(tuple(evaluations), pairs, tests.seed, exact, grades)


def missing_queries(evaluations: Sequence[Evaluation]) -> dict[str, int]:
    """Return the number of judged queries that each run lacks, for runs that lack some."""
    return {e.name: e.missing for e in evaluations if e.missing}
