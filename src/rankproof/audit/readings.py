"""What an audit measures: readings of a model in one setting, and differences between settings.

A setting is a `ScoringPipeline`; its reading holds the evaluation of the ranking under every order
of ties, the ties themselves and the agreement with the float32 ranking. Differences between two
readings are means over the queries for which both have the measure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.tables import Run
from rankproof.evaluation import Evaluation
from rankproof.evaluation.tie_counts import CUTOFFS, TieStatistics, tie_statistics
from rankproof.foundation.arrays import Array
from rankproof.measures import Measure, parse
from rankproof.precision.pipeline import ScoringPipeline
from rankproof.presentation.json_values import plain, plain_fields
from rankproof.presentation.lead_wording import sign
from rankproof.statistics.intervals import (
    Interval,
    count_differing,
    difference_intervals,
    few_changes_bound,
    interval_or_none,
    possible_range,
)
from rankproof.statistics.labels import Label, label_of

CURVE = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)  # k of the curves


@dataclass(frozen=True, slots=True)
class Agreement:
    """Mean of Spearman's ρ to the float32 ranking, over the queries that have one."""

    mean: float  # NaN where no query has one
    queries: int  # over which the mean is taken
    undefined: int  # queries whose scores all tie


def rank_agreement(query_index: Array, reference: Array, scores: Array) -> Agreement:
    """Return Spearman's ρ of scores (N,) to reference scores of the same documents, by query.

    `query_index` (N,) is the query of each document; tied documents share their mean rank.
    """
    # float64: polars computes with ranks in the type of the columns.
    frame = pl.DataFrame(
        {
            "query": query_index,
            "reference": reference.astype(np.float64),
            "score": scores.astype(np.float64),
        }
    )
    correlation = pl.corr("reference", "score", method="spearman").alias("rho")
    rho = frame.group_by("query").agg(correlation)["rho"]
    defined = rho.filter(rho.is_not_null() & rho.is_not_nan())
    count = len(defined)
    mean = math.fsum(defined) / count if count else math.nan
    return Agreement(mean, count, len(rho) - count)


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One model in one number format, scored in one way.

    >>> vectors = np.eye(2, dtype="float32")
    >>> audit = rp.audit_vectors({"0": {"0": 1}}, vectors, vectors, ["RR"], formats=["bit"])
    >>> audit.readings[0].bytes_per_vector
    5.0
    """

    model: str
    pipeline: ScoringPipeline
    dimensions: int | None  # of the vectors; None for logits
    evaluation: Evaluation
    ties: TieStatistics
    agreement: Agreement  # with the float32 ranking
    cut: int  # lists (of results, or of candidates to rescore) that end inside a tie
    open: dict[Measure, int]  # lists where documents beyond such an end could change the measure
    bytes_per_vector: float | None
    seconds: float
    curve: pl.DataFrame | None = None  # measure, k, expected, oblivious, min, max
    dataset: str | None = None  # where several are audited
    run: str | None = None  # the format the model itself ran in, where it was run
    noise: dict[Measure, float] | None = None  # spread of expected values over repeated runs

    @property
    def format(self) -> str:
        """The number format."""
        return self.pipeline.format

    @property
    def scoring(self) -> str:
        """The way of scoring: plain, high precision, decoded or original."""
        return self.pipeline.scoring

    @property
    def is_full(self) -> bool:
        """True if the vectors were not cut to fewer dimensions."""
        return self.pipeline.dimensions is None

    @property
    def subject(self) -> tuple[str, str | None]:
        """The model and the dataset that are audited."""
        return self.model, self.dataset

    def to_dict(self) -> dict[str, Any]:
        """Return the reading as JSON shows it."""
        evaluation = self.evaluation.to_dict()
        return {
            **plain_fields(self, "model", "dataset", "run", "format", "scoring", "dimensions"),
            **plain_fields(self, "bytes_per_vector", "seconds", "noise", "cut", "open"),
            "spearman": plain(self.agreement),
            **{key: evaluation[key] for key in ("queries", "missing", "tied", "score_dtype")},
            "measures": evaluation["measures"],
            "ties": [
                plain_fields(at, "cutoff", "distinct", "group_size", "crossed")
                for at in self.ties.at
            ],
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean difference of one measure between two readings, over the queries that both have."""

    expected: float
    oblivious: float
    lowest: float  # over every tie-break of both
    highest: float
    ci: Interval  # of the expected difference, over queries; NaN where fewer than six differ
    queries: int
    differing: int  # queries that differ
    bound: Interval  # of the mean where fewer than six differ

    def label(self, better: int, equal_within: float | None = None) -> Label:
        """The label of the first reading; `better` is 1 if larger values are better."""
        return label_of(
            self.ci,
            better,
            differing=self.differing,
            bound=self.bound,
            equal_within=equal_within,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the expected difference as JSON shows it beside a reading."""
        return {"mean": self.expected, "ci": interval_or_none(self.ci), "queries": self.queries}


@dataclass(frozen=True, slots=True)
class Lead:
    """A measure of model a minus that of model b, both in the same setting.

    >>> vectors = np.eye(2, dtype="float32")
    >>> inputs = (vectors, {"0": {"0": 1}}, ["RR"])
    >>> a = rp.audit.audit_embeddings(vectors, *inputs, name="a", formats=["float32"])
    >>> b = rp.audit.audit_embeddings(vectors[::-1], *inputs, name="b", formats=["float32"])
    >>> rp.Audit.together([a, b]).leads[0].expected
    0.5
    """

    a: str
    b: str
    dataset: str | None
    pipeline: ScoringPipeline
    measure: Measure
    difference: Difference

    @property
    def expected(self) -> float:
        """The expected difference over every tie-break."""
        return self.difference.expected

    @property
    def is_float32(self) -> bool:
        """True if whole float32 vectors, or float32 logits, are compared."""
        return self.pipeline.format == "float32" and self.pipeline.dimensions is None

    @property
    def certain(self) -> bool:
        """True if every tie-break gives the same sign."""
        return sign(self.difference.lowest) == sign(self.difference.highest)

    @property
    def reversed(self) -> bool:
        """True if the stated tie-break and the expectation favor different models."""
        return sign(self.difference.oblivious) * sign(self.expected) < 0

    def to_dict(self) -> dict[str, Any]:
        """Return the lead as JSON shows it."""
        return {
            **plain_fields(self, "a", "b", "dataset"),
            **plain_fields(self.pipeline, "format", "scoring", "dimensions"),
            **plain_fields(self.difference, "expected", "oblivious", "lowest", "highest"),
            **plain_fields(self, "certain", "reversed"),
            "queries": self.difference.queries,
            "measure": str(self.measure),
            "ci": interval_or_none(self.difference.ci),
        }


def find_leads(
    readings: Iterable[Reading], subjects: Sequence[tuple[str, str | None]]
) -> Iterator[Lead]:
    """Yield each pair of models on one dataset, in each setting in which both were audited."""
    by_setting: dict[tuple[str, str | None], dict[str, Reading]] = {}
    for reading in readings:
        by_setting.setdefault(reading.subject, {})[reading.pipeline.name] = reading
    for a, b in combinations(subjects, 2):
        if a[1] != b[1]:
            continue
        for setting, reading in by_setting[a].items():
            if setting not in by_setting[b]:
                continue
            differences = mean_differences(reading.evaluation, by_setting[b][setting].evaluation)
            for measure in reading.evaluation:
                if str(measure) in differences:
                    difference = differences[str(measure)]
                    yield Lead(a[0], b[0], a[1], reading.pipeline, measure, difference)


def mean_differences(a: Evaluation, b: Evaluation) -> dict[str, Difference]:
    """Return mean differences a − b by measure, over the queries for which both are defined."""
    both = a.per_query.join(b.per_query, on=["query", "measure"], suffix="_b").filter(
        pl.col("expected").is_not_nan() & pl.col("expected_b").is_not_nan()
    )
    return {
        str(measure): _mean_difference(parse(str(measure)), rows)
        for (measure,), rows in both.group_by("measure")
    }


def _mean_difference(measure: Measure, rows: pl.DataFrame) -> Difference:
    """Return the mean difference of one measure over rows of both models' values."""

    def mean(column: str, other: str) -> float:
        return math.fsum(rows[column] - rows[other]) / rows.height

    differences = (rows["expected"] - rows["expected_b"]).to_numpy()
    values = rows.select("expected", "expected_b").to_numpy()
    least, largest = possible_range(values, measure.upper)
    low, high = difference_intervals(differences[None], largest - least)[0].tolist()
    return Difference(
        expected=mean("expected", "expected_b"),
        oblivious=mean("oblivious", "oblivious_b"),
        lowest=mean("min", "max_b"),
        highest=mean("max", "min_b"),
        ci=(low, high),
        queries=rows.height,
        differing=int(count_differing(differences)),
        bound=few_changes_bound(differences),
    )


def count_ties(run: Run) -> TieStatistics:
    """Return the ties of a run at the usual cutoffs, as far as its longest list reaches."""
    longest = int((run.start[1:] - run.start[:-1]).max())
    return tie_statistics(run, [cutoff for cutoff in CUTOFFS if cutoff <= longest])


def curve_measures(measures: Iterable[Measure], depth: int) -> list[Measure]:
    """Return the measures that take a cutoff at every k of CURVE up to a depth."""
    families = dict.fromkeys(replace(m, cutoff=None) for m in measures if m.definition.takes_cutoff)
    return [family @ k for family in families for k in CURVE if k <= depth]


def curve_frame(evaluation: Evaluation) -> pl.DataFrame:
    """Return measure, k, expected, oblivious, min, max of an evaluation of `curve_measures`."""
    rows = []
    for measure in evaluation:
        summary = evaluation[measure]
        rows.append(
            {
                "measure": str(replace(measure, cutoff=None)),
                "k": measure.cutoff,
                "expected": summary.expected,
                "oblivious": summary.oblivious,
                "min": summary.min,
                "max": summary.max,
            }
        )
    return pl.DataFrame(rows)
