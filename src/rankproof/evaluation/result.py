"""The scores of a run: of single queries, and their means under every order of the ties."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl

from rankproof.data.tables import Later, as_series, ids_of
from rankproof.data.ties import TieGroups
from rankproof.evaluation.checks import ScoreProfile
from rankproof.evaluation.id_profile import IdProfile
from rankproof.evaluation.policy import Policy
from rankproof.evaluation.presenting import (
    evaluation_caption,
    evaluation_charts,
    evaluation_summary,
    evaluation_tables,
    full_evaluation_tables,
)
from rankproof.evaluation.query_set import QuerySet, no_queries
from rankproof.evaluation.sampled_means import SampledMean, geometric_mean, sampled_mean
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.measures import Measure, Outcomes, parse
from rankproof.presentation.charts import Chart
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain, plain_fields
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Table
from rankproof.statistics.intervals import Interval, mean_intervals

if TYPE_CHECKING:
    from rankproof.evaluation.annotator_estimates import AnnotatorEstimates
    from rankproof.unjudged.bounds import Bound


@dataclass(frozen=True, slots=True)
class MeanScore:
    """A measure's mean over queries, under every order of the ties.

    >>> score = rp.evaluate("try/qrels.txt", "try/saturated.trec", "nDCG@5")["nDCG@5"]
    >>> round(score.expected, 3), round(score.min, 3), round(score.max, 3), score.queries
    (0.477, 0.315, 0.641, 30)
    """

    expected: float
    oblivious: float
    min: float
    max: float
    std: float | None  # None where the measure has no closed form for it
    queries: int  # over which the means are taken
    undefined: int  # queries for which the measure has no value
    ci: Interval | None = None  # 95%, over queries; None where there is none
    sampled: SampledMean | None = None  # None: the expectation is exact

    @property
    def range(self) -> float:
        return self.max - self.min

    @property
    def bias(self) -> float:
        return self.oblivious - self.expected

    def to_dict(self) -> dict[str, Any]:
        means = ("expected", "oblivious", "min", "max", "range", "bias", "std")
        values = plain_fields(self, *means, "queries", "undefined", "ci")
        if self.sampled is not None:
            values["sampled"] = plain_fields(self.sampled, "queries", "orders", "error")
        return values


def _no_queries() -> Any:
    return Later(no_queries)


@as_series(queries="query", missing_queries="query", unjudged_queries="query")
@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Displayed):
    """The scores of one run; `evaluation["nDCG@10"].expected`.

    >>> evaluation = rp.evaluate("try/qrels.txt", "try/saturated.trec", "nDCG@5")
    >>> evaluation.queries.len(), evaluation.tied, round(evaluation["nDCG@5"].range, 3)
    (30, 30, 0.325)
    """

    kind: ClassVar[str] = "evaluation"

    name: str
    queries: pl.Series  # (Q,) the queries averaged over
    outcomes: dict[Measure, Outcomes]
    policy: Policy
    dtype: str  # in which the scores were compared
    missing_queries: pl.Series = field(default_factory=_no_queries)  # judged, not in the run
    unjudged_queries: pl.Series = field(default_factory=_no_queries)  # without judgments
    is_tied: Bool | None = None  # (Q,) the list has a tie group of two or more; None: none has
    notes: tuple[str, ...] = ()
    ties: TieGroups | None = field(default=None, repr=False)  # to draw orders of; None: not kept
    relevant: int = 0  # documents judged relevant, of the queries averaged over
    retrieved: int = -1  # of which the run lists so many; −1: not counted
    score_profile: ScoreProfile | None = field(default=None, repr=False)  # for notes on the run
    id_profile: IdProfile | None = field(default=None, repr=False)  # None: ids were not checked
    # (Q, G) listed documents of grade 1, 2, … or higher; None: not counted
    relevant_listed: Int | None = field(default=None, repr=False)
    # (Q,) lowest and highest values over unjudged documents, if computed
    query_bounds: dict[Measure, tuple[Float, Float]] = field(default_factory=dict, repr=False)
    groups: Int | None = field(default=None, repr=False)  # (Q,) number of each query's source
    judged: dict[Measure, float] = field(default_factory=dict)  # Judged@k of each, if computed
    bounds: dict[Measure, Bound] = field(default_factory=dict)  # over unjudged documents' grades
    grades: str = ""  # that unjudged documents can have, in words, where there are bounds
    annotators: AnnotatorEstimates | None = None  # scores with annotators' labels
    by_judge: bool = False  # the labels are a judge's
    failed_conditions: tuple[str, ...] = ()  # a sentence for each that the run meets
    # of one system, whose mean over repeats this is; (): a single run
    repeats: tuple[Evaluation, ...] = field(default=(), repr=False)
    _summaries: dict[Measure, MeanScore] = field(default_factory=dict, repr=False)

    def __getitem__(self, measure: str | Measure) -> MeanScore:
        key = self._known_measure(measure)
        if key not in self._summaries:
            self._summaries[key] = mean_score(self.outcomes[key], key, self.groups)
        return self._summaries[key]

    def best_estimate(self, measure: Measure) -> float:
        """The mean with annotators' labels, where there are some; else the expected mean."""
        if self.annotators is not None:
            return self.annotators.estimates[measure].estimate
        return self[measure].expected

    @property
    def missing(self) -> int:
        """The number of judged queries that the run lacks."""
        return len(ids_of(self, "missing_queries"))

    @property
    def unjudged(self) -> int:
        """The number of queries of the run that have no judgments."""
        return len(ids_of(self, "unjudged_queries"))

    @property
    def tied(self) -> int:
        """The number of evaluated queries with a tie."""
        return 0 if self.is_tied is None else int(self.is_tied.sum())

    @property
    def id_problem(self) -> str:
        """Why the ids of the run seem not to be those of the judgments; "" if they do."""
        return "" if self.id_profile is None else self.id_profile.problem

    def query_set(self, measure: str | Measure) -> QuerySet:
        """Return which queries the mean of a measure is over, and what became of the others."""
        outcomes = self.outcomes[self._known_measure(measure)]
        has_value = ~np.isnan(outcomes.expected)
        is_averaged = ~np.isnan(outcomes.in_mean())
        is_tied = np.zeros(len(has_value), np.bool_) if self.is_tied is None else self.is_tied
        listed = "listed " if self.policy.candidates_only else ""
        return QuerySet(
            ids=ids_of(self, "queries"),
            is_averaged=is_averaged,
            has_value=has_value,
            is_tied=is_tied,
            missing_ids=ids_of(self, "missing_queries"),
            unjudged_ids=ids_of(self, "unjudged_queries"),
            exclusion=f"no {listed}document is relevant",
            missing_count_zero=self.policy.missing == "zero",
        )

    def answered_share(self, measure: Measure) -> float:
        """Return the mean of a share over the queries that the run answered; NaN if none."""
        values = self.outcomes[measure].in_mean()
        if self.missing and self.policy.missing == "zero":
            is_missing = self.queries.is_in(self.missing_queries.implode()).to_numpy()
            values = np.where(is_missing, np.nan, values)
        values = values[~np.isnan(values)]
        return math.fsum(values.tolist()) / len(values) if len(values) else math.nan

    def _known_measure(self, measure: str | Measure) -> Measure:
        key = parse(measure)
        if key not in self.outcomes:
            available = ", ".join(map(str, self.outcomes))
            raise KeyError(f"{key} was not evaluated; there are {available}")
        return key

    def renamed(self, name: str) -> Evaluation:
        """The same figures under another name."""
        return replace(self, name=name)

    def __iter__(self) -> Iterator[Measure]:
        return iter(self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    @cached_property
    def per_query(self) -> pl.DataFrame:
        """One row per judged query and measure, with its status; null where the mean has no value.

        The columns are query, measure, status, expected, oblivious, min, max and std.
        """
        frames = [self._per_query_frame(measure) for measure in self.outcomes]
        return pl.concat(frames)

    def _per_query_frame(self, measure: Measure) -> pl.DataFrame:
        outcomes = self.outcomes[measure]
        columns = {name: outcomes.in_mean(name) for name in ("expected", "oblivious", "min", "max")}
        if outcomes.variance is not None:
            columns["std"] = np.sqrt(outcomes.in_mean("variance"))
        frame = pl.DataFrame({"query": self.queries, **columns}).fill_nan(None)
        if "std" not in columns:
            frame = frame.with_columns(std=pl.lit(None, pl.Float64))
        skipped = self.missing_queries.filter(~self.missing_queries.is_in(self.queries.implode()))
        if len(skipped):
            frame = pl.concat([frame, pl.DataFrame({"query": skipped})], how="diagonal")
            frame = frame.sort("query")
        queries = self.query_set(measure)
        return frame.select("query", _status(queries), pl.exclude("query")).insert_column(
            1, pl.repeat(str(measure), frame.height, eager=True).alias("measure")
        )

    def tables(self) -> list[Table]:
        """A row for each measure."""
        return evaluation_tables([self])

    def full_tables(self) -> list[Table]:
        """Every value of each measure."""
        return full_evaluation_tables([self])

    def summary(self) -> Summary:
        """What was measured, and what changes how it is read."""
        return evaluation_summary([self])

    def caption(self) -> str:
        """One sentence for a paper: measures, queries, policy, judged share, software."""
        return evaluation_caption([self])

    @property
    def exit_code(self) -> int:
        """1 if a condition of `fail_if` is met."""
        return 1 if self.failed_conditions else 0

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the readers assumed, and the conditions that are met."""
        return (*self.notes, *self.failed_conditions)

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
        values = {
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
            return values
        statistics = ("expected", "min", "max", "oblivious", "variance")
        return values | {
            "relevant": self.relevant,
            "retrieved": self.retrieved,
            "missing_queries": self.missing_queries.to_list(),
            "unjudged_queries": self.unjudged_queries.to_list(),
            "per_query": {
                "query": self.queries.to_list(),
                "relevant_listed": None
                if self.relevant_listed is None
                else self.relevant_listed.tolist(),
                "bounds": {
                    str(measure): [plain(end.tolist()) for end in ends]
                    for measure, ends in self.query_bounds.items()
                },
                "tied": [] if self.is_tied is None else self.is_tied.tolist(),
                "measures": {
                    str(measure): {
                        name: None
                        if getattr(outcomes, name) is None
                        else [None if x != x else x for x in outcomes.in_mean(name).tolist()]
                        for name in statistics
                    }
                    for measure, outcomes in self.outcomes.items()
                },
            },
        }

    def _measure_dict(self, measure: Measure) -> dict[str, Any]:
        """What JSON holds of one measure; some keys are there only where they were asked for."""
        values: dict[str, Any] = self[measure].to_dict()
        values["query_set"] = self.query_set(measure).to_dict()
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


def _status(queries: QuerySet) -> pl.Expr:
    """Return the expression for what became of each judged query."""
    query = pl.col("query")
    return (
        pl.when(query.is_in(queries.undefined.implode()))
        .then(pl.lit("undefined"))
        .when(query.is_in(queries.excluded.implode()))
        .then(pl.lit("excluded"))
        .when(query.is_in(queries.missing.implode()))
        .then(pl.lit("missing"))
        .otherwise(pl.lit("averaged"))
        .alias("status")
    )


def mean_score(outcomes: Outcomes, measure: Measure, groups: Int | None = None) -> MeanScore:
    """Means over the queries that count and define it, correctly rounded in any order."""
    expected = outcomes.in_mean()
    defined = ~np.isnan(expected)
    count = int(defined.sum())
    if measure.definition.geometric and count:
        means = geometric_mean(outcomes)
        return MeanScore(**means, queries=count, undefined=len(defined) - count)

    def mean(values: Float) -> float:
        return math.fsum(values[defined].tolist()) / count if count else math.nan

    std = None
    if outcomes.variance is not None:
        total = math.fsum(outcomes.variance[defined].tolist())
        std = math.sqrt(total) / count if count else math.nan
    return MeanScore(
        expected=mean(outcomes.expected),
        oblivious=mean(outcomes.oblivious),
        min=mean(outcomes.min),
        max=mean(outcomes.max),
        std=std,
        queries=count,
        undefined=len(defined) - count,
        ci=_mean_interval(expected[defined], measure, None if groups is None else groups[defined]),
        sampled=sampled_mean(outcomes),
    )


def _mean_interval(values: Float, measure: Measure, groups: Int | None) -> Interval | None:
    """Return the 95% interval of a mean over queries; None where there is none."""
    if len(values) < 2:
        return None
    low, high = mean_intervals(values[None], measure.upper, groups)[0].tolist()
    return None if math.isnan(low) or math.isnan(high) else (low, high)
