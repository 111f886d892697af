"""The figures of a run: of single queries, and their means under every order of the ties."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl

from rankproof.data.tables import as_series, ids_of
from rankproof.data.ties import TieGroups
from rankproof.evaluation.checks import ScoreProfile, merge_notes
from rankproof.evaluation.policy import Policy
from rankproof.foundation.arrays import Float
from rankproof.foundation.phrasing import out_of, plural
from rankproof.measures import Measure, Outcomes, parse
from rankproof.presentation.charts import Chart, Curve, CurveChart, Range, RangeChart
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain, plain_fields
from rankproof.presentation.judged_column import NOTE, any_unjudged, bounds_clause
from rankproof.presentation.tables import Cell, Column, Table

if TYPE_CHECKING:
    from rankproof.evaluation.annotator_estimates import AnnotatorEstimates
    from rankproof.unjudged.bounds import Bound


@dataclass(frozen=True, slots=True)
class Summary:
    """A measure's mean over queries, under every order of the ties.

    >>> found = rp.evaluate("try/qrels.txt", "try/saturated.trec", "nDCG@5")["nDCG@5"]
    >>> round(found.expected, 3), round(found.min, 3), round(found.max, 3), found.queries
    (0.477, 0.315, 0.641, 30)
    """

    expected: float
    oblivious: float
    min: float
    max: float
    std: float | None  # None where the measure has no closed form for it
    queries: int  # over which the means are taken
    undefined: int  # queries for which the measure has no value

    @property
    def range(self) -> float:
        return self.max - self.min

    @property
    def bias(self) -> float:
        return self.oblivious - self.expected

    def to_dict(self) -> dict[str, float | int | None]:
        figures = ("expected", "oblivious", "min", "max", "range", "bias", "std")
        return plain_fields(self, *figures, "queries", "undefined")


@as_series(queries="query")
@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Displayed):
    """The scores of one run; `evaluation["nDCG@10"].expected`.

    >>> found = rp.evaluate("try/qrels.txt", "try/saturated.trec", "nDCG@5")
    >>> found.queries.len(), found.tied, round(found["nDCG@5"].range, 3)
    (30, 30, 0.325)
    """

    kind: ClassVar[str] = "evaluation"

    name: str
    queries: pl.Series  # (Q,) the queries averaged over
    outcomes: dict[Measure, Outcomes]
    missing: int  # judged queries that the run lacks
    unjudged: int  # queries of the run that have no judgements
    tied: int  # evaluated queries with a tie group of two or more
    policy: Policy
    dtype: str  # in which the scores were compared
    notes: tuple[str, ...] = ()
    ties: TieGroups | None = field(default=None, repr=False)  # to draw orders of; None: not kept
    relevant: int = 0  # documents judged relevant, of the queries averaged over
    retrieved: int = -1  # of which the run lists so many; −1: not counted
    score_profile: ScoreProfile | None = field(default=None, repr=False)  # for notes on the run
    judged: dict[Measure, float] = field(default_factory=dict)  # Judged@k of each, if computed
    bounds: dict[Measure, Bound] = field(default_factory=dict)  # over unjudged documents' grades
    grades: str = ""  # that unjudged documents can have, in words, where there are bounds
    annotators: AnnotatorEstimates | None = None  # scores with annotators' labels
    failed_conditions: tuple[str, ...] = ()  # a sentence for each that the run meets
    _summaries: dict[Measure, Summary] = field(default_factory=dict, repr=False)

    def __getitem__(self, measure: str | Measure) -> Summary:
        key = parse(measure)
        if key not in self.outcomes:
            have = ", ".join(map(str, self.outcomes))
            raise KeyError(f"{key} was not evaluated; there are {have}")
        if key not in self._summaries:
            geometric = key.definition.geometric
            self._summaries[key] = summarise(self.outcomes[key], geometric)
        return self._summaries[key]

    def renamed(self, name: str) -> Evaluation:
        """The same figures under another name."""
        return replace(self, name=name)

    def __iter__(self) -> Iterator[Measure]:
        return iter(self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    @cached_property
    def per_query(self) -> pl.DataFrame:
        """One row per query and measure: query, measure, expected, oblivious, min, max, std."""
        frames = []
        for measure, values in self.outcomes.items():
            variance = values.variance
            frames.append(
                pl.DataFrame(
                    {
                        "query": self.queries,
                        "measure": pl.repeat(str(measure), len(self.queries), eager=True),
                        "expected": values.expected,
                        "oblivious": values.oblivious,
                        "min": values.min,
                        "max": values.max,
                        "std": pl.Series(
                            [None] * len(self.queries) if variance is None else np.sqrt(variance),
                            dtype=pl.Float64,
                        ),
                    }
                )
            )
        return pl.concat(frames)

    def tables(self) -> list[Table]:
        """One row per measure."""
        return evaluation_tables([self])

    @property
    def exit_code(self) -> int:
        """1 if a condition of `fail_if` is met."""
        return 1 if self.failed_conditions else 0

    @property
    def warnings(self) -> tuple[str, ...]:
        """The conditions that are met."""
        return self.failed_conditions

    def figures(self) -> dict[str, float]:
        """The expected value of each measure."""
        return {str(measure): self[measure].expected for measure in self}

    def charts(self) -> list[Chart]:
        """A dot for each measure, and the range that its ties leave open."""
        return evaluation_charts([self])

    def __repr__(self) -> str:
        return f"<{str(self).splitlines()[0]}; {', '.join(map(str, self.outcomes))}>"

    def to_dict(self, per_query: bool = False) -> dict[str, Any]:
        """What `rankproof eval --format json` prints for this run.

        With `per_query`, as `eval --out` writes it: also the values of single queries, from which
        a later `gate` takes its baseline.
        """
        found = {
            "name": self.name,
            "queries": len(ids_of(self, "queries")),
            "missing": self.missing,
            "unjudged": self.unjudged,
            "tied": self.tied,
            "score_dtype": self.dtype,
            "measures": {str(measure): self._measure_dict(measure) for measure in self.outcomes},
            "notes": list(self.notes),
        }
        if not per_query:
            return found
        figures = ("expected", "min", "max", "oblivious", "variance")
        return found | {
            "relevant": self.relevant,
            "retrieved": self.retrieved,
            "per_query": {
                "query": self.queries.to_list(),
                "measures": {
                    str(measure): {
                        figure: None
                        if getattr(values, figure) is None
                        else [None if x != x else x for x in values.in_mean(figure).tolist()]
                        for figure in figures
                    }
                    for measure, values in self.outcomes.items()
                },
            },
        }

    def _measure_dict(self, measure: Measure) -> dict[str, Any]:
        """What JSON holds of one measure; some keys are there only where they were asked for."""
        values: dict[str, Any] = self[measure].to_dict()
        if measure in self.judged:
            values["judged"] = plain(self.judged[measure])
        if measure in self.bounds:
            bound = self.bounds[measure]
            values["holes"] = plain([bound.lowest, bound.highest])
            values["exact"] = bound.exact
            values["grades"] = self.grades
        if self.annotators is not None:
            values["as_people"] = self.annotators.to_dict(measure)
        return values

    def __str__(self) -> str:
        rows = [
            f"{measure!s:<16} expected {s.expected:.4f}  oblivious {s.oblivious:.4f}  "
            f"[{s.min:.4f}, {s.max:.4f}]  n={s.queries}"
            for measure in self.outcomes
            for s in [self[measure]]
        ]
        count = len(ids_of(self, "queries"))
        return "\n".join([f"{self.name}: {plural(count, 'query')}, {self.tied} tied", *rows])


def summarise(outcomes: Outcomes, geometric: bool = False) -> Summary:
    """Means over the queries that count and define it, correctly rounded in any order."""
    defined = ~np.isnan(outcomes.in_mean())
    count = int(defined.sum())

    def mean(values: Float) -> float:
        if geometric and count:
            least = np.maximum(values[defined], 1e-5)  # where undefined counts as 0
            return math.exp(math.fsum(map(math.log, least)) / count)
        return math.fsum(values[defined].tolist()) / count if count else math.nan

    std = None
    if outcomes.variance is not None and not geometric:
        total = math.fsum(outcomes.variance[defined].tolist())
        std = math.sqrt(total) / count if count else math.nan
    return Summary(
        expected=mean(outcomes.expected),
        oblivious=mean(outcomes.oblivious),
        min=mean(outcomes.min),
        max=mean(outcomes.max),
        std=std,
        queries=count,
        undefined=len(defined) - count,
    )


def evaluation_tables(evaluations: Sequence[Evaluation]) -> list[Table]:
    """Return the table of scores, and that of scores with annotators' labels if there are any."""
    tables = [_with_unjudged(evaluations_table(evaluations), evaluations)]
    by_run = [e.annotators for e in evaluations if e.annotators is not None]
    if by_run:
        from rankproof.evaluation.annotator_estimates import annotators_table

        names, judged = [e.name for e in evaluations], [e.judged for e in evaluations]
        tables.append(annotators_table(names, by_run, judged))
    return tables


def _with_unjudged(table: Table, evaluations: Sequence[Evaluation]) -> Table:
    """Add the judged share, where not everything is judged, and bounds, where there are any."""
    shares = [e.judged.get(m, math.nan) for e in evaluations for m in e]
    bounds = [e.bounds[m] for e in evaluations for m in e if m in e.bounds]
    columns: list[Column] = []
    cells: list[tuple[Cell, ...]] = [() for _ in shares]
    notes: list[str] = []
    if any_unjudged(shares):
        columns.append(Column("judged"))
        cells = [(share,) for share in shares]
        notes.append(NOTE)
    if bounds:
        columns += [Column("lowest"), Column("highest")]
        cells = [(*c, b.lowest, b.highest) for c, b in zip(cells, bounds, strict=True)]
        reached = bounds_clause(str(m) for e in evaluations for m in e if not e.bounds[m].exact)
        notes.append(
            f"lowest, highest: over every grade that unjudged documents of the top k could have, "
            f"{evaluations[0].grades}{reached}; all other unjudged documents stay not relevant"
        )
    rows = [(*row, *extra) for row, extra in zip(table.rows, cells, strict=True)]
    return replace(
        table, columns=[*table.columns, *columns], rows=rows, notes=[*table.notes, *notes]
    )


def evaluations_table(evaluations: Sequence[Evaluation]) -> Table:
    """Return a row for each run and measure, with the policy below."""
    summaries = [(e, m, e[m]) for e in evaluations for m in e]
    calm = all(s.range == 0 for _, _, s in summaries)
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        Column("expected"),
        *Column.each("min", "max", dim=calm, drop=4),
        Column("range", dim=calm, drop=2),
        Column("oblivious", dim=calm, drop=5),
        Column("bias", "signed", dim=calm, drop=3),
        Column("std", dim=calm, drop=1),
        Column("queries", drop=6),
    ]
    rows = [
        (e.name, str(m), s.expected, s.min, s.max, s.range, s.oblivious, s.bias, s.std, s.queries)
        for e, m, s in summaries
    ]
    return Table(columns, rows, notes=_table_notes(evaluations, calm))


def _table_notes(evaluations: Sequence[Evaluation], calm: bool) -> list[str]:
    """Return what the rows rest on: ties, missing and undefined queries, the policy."""
    notes = []
    for e in evaluations:
        parts = [f"{out_of(e.tied, len(ids_of(e, 'queries')), 'query', 'has', 'have')} ties"]
        if e.missing:
            parts.append(
                f"{plural(e.missing, 'judged query is', 'judged queries are')} not in the run"
            )
        if e.unjudged:
            several = plural(e.unjudged, "query of the run has", "queries of the run have")
            parts.append(f"{several} no judgements")
        undefined = {m: e[m].undefined for m in e if e[m].undefined}
        if len(undefined) == len(e) and len(set(undefined.values())) == 1:
            left = plural(next(iter(undefined.values())), "is", "are")
            parts.append(f"{left} left out of every measure")
        elif undefined:
            parts.append("undefined: " + ", ".join(f"{m} for {n}" for m, n in undefined.items()))
        notes.append(f"{e.name}: {'; '.join(parts)}")
    is_cut = any(e.score_profile is not None and e.score_profile.cut_lists for e in evaluations)
    if calm and not is_cut:
        notes.append("no tie changes any of these figures")
    if any(s.std is None for e in evaluations for s in [e[m] for m in e]):
        notes.append("– under std: no closed form for this measure")
    dtypes = dict.fromkeys(e.dtype for e in evaluations)
    notes += evaluations[0].policy.words(" or ".join(dtypes))
    return notes + merge_notes(evaluations)


_CHART_CAPTION = (
    "Dot: expectation over every order of ties. Bar: the least and the most that any order gives. "
    "Upright line: what one tie-break reports."
)
_CURVE_CUTOFFS = 4  # from so many cutoffs on, a measure is drawn as a curve over them


def evaluation_charts(evaluations: Sequence[Evaluation]) -> list[Chart]:
    """Return the range of each score over ties; measures at four or more cutoffs become curves."""
    measures = list(dict.fromkeys(m for e in evaluations for m in e))
    families: dict[str, list[Measure]] = {}
    for measure in measures:
        if measure.cutoff is not None:
            families.setdefault(str(replace(measure, cutoff=None)), []).append(measure)
    families = {n: members for n, members in families.items() if len(members) >= _CURVE_CUTOFFS}
    in_curves = {measure for members in families.values() for measure in members}
    rows = [
        _tie_range(evaluation, measure, group)
        for measure in measures
        for group, evaluation in enumerate(evaluations)
        if measure not in in_curves and measure in evaluation.outcomes
    ]
    names = [evaluation.name for evaluation in evaluations]
    title = "Scores and what ties could make of them"
    chart = RangeChart(title, rows, "score", groups=names, caption=_CHART_CAPTION)
    curves = [_cutoff_curves(name, members, evaluations) for name, members in families.items()]
    return [*([chart] if rows else []), *curves]


def _tie_range(evaluation: Evaluation, measure: Measure, group: int) -> Range:
    summary = evaluation[measure]
    return Range(
        f"{evaluation.name} · {measure}",
        summary.expected,
        summary.min,
        summary.max,
        marker=summary.oblivious,
        group=group,
        tip=f"{evaluation.name}, {measure}: expected {summary.expected:.4f}, from "
        f"{summary.min:.4f} to {summary.max:.4f} by the order of ties; one tie-break says "
        f"{summary.oblivious:.4f}",
    )


def _cutoff_curves(
    family: str, measures: Sequence[Measure], evaluations: Sequence[Evaluation]
) -> CurveChart:
    """Return a measure over its cutoffs, a line for each run, with the band of every tie-break."""
    measures = sorted(measures, key=lambda measure: measure.cutoff or 0)
    curves = []
    for evaluation in evaluations:
        known = [measure for measure in measures if measure in evaluation.outcomes]
        summaries = [evaluation[measure] for measure in known]
        curves.append(
            Curve(
                evaluation.name,
                x=[float(measure.cutoff or 0) for measure in known],
                y=[summary.expected for summary in summaries],
                low=[summary.min for summary in summaries],
                high=[summary.max for summary in summaries],
            )
        )
    return CurveChart(
        f"{family} over k",
        curves,
        x_label="k",
        y_label=family,
        log_x=True,
        caption=f"{family}@k: expectation, and the band of every tie-break.",
    )
