"""Scores with annotators' labels: a judge graded every query, annotators some of them.

The estimate combines both (`statistics.two_phase`); this module applies it to an evaluation and
shows the result as a table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from rankproof.foundation.arrays import Float
from rankproof.foundation.phrasing import plural
from rankproof.presentation.tables import Cell, Column, Table
from rankproof.statistics.two_phase import TwoPhase, two_phase_of

if TYPE_CHECKING:
    from rankproof.evaluation.result import Evaluation
    from rankproof.measures.registry import Measure

_WARNED_SHARE = 0.95  # of the judge's labeled share of the top, below which a note says so


@dataclass(frozen=True)
class AnnotatorEstimates:
    """A run's scores with annotators' labels, by the measure on the judge's scale."""

    estimates: dict[Measure, TwoPhase]
    rescaled: Mapping[Measure, Measure]  # each measure on the scale of the annotators' labels
    judged: Mapping[Measure, float] = field(default_factory=dict)  # share of the top k they labeled
    unknown_queries: int = 0  # that annotators labeled and the judge did not
    labeled: Evaluation | None = field(default=None, repr=False)  # by the annotators' labels alone

    def values(self, measure: Measure, queries: pl.Series) -> Float:
        """(Q,) the annotators' values of sorted queries; NaN without a label."""
        assert self.labeled is not None  # a judge's agreement has no single run
        own = pl.DataFrame(
            {
                "query": self.labeled.queries,
                "value": self.labeled.outcomes[self.rescaled[measure]].in_mean(),
            }
        )
        joined = pl.DataFrame({"query": queries}).join(
            own, on="query", how="left", maintain_order="left"
        )
        return np.asarray(joined["value"].fill_null(math.nan).to_numpy(), np.float64)

    def to_dict(self, measure: Measure) -> dict[str, Any]:
        """What JSON holds under `as_people` of a measure."""
        return {"measure": str(self.rescaled[measure])} | self.estimates[measure].to_dict()


def estimate_with_annotators(
    judged: Evaluation,
    labeled: Evaluation,
    rescaled: Mapping[Measure, Measure],
    unknown_queries: int = 0,
) -> AnnotatorEstimates:
    """Estimate each score of `judged` from the annotators' evaluation of the same run."""
    estimates = two_phase_of(judged, labeled, rescaled)
    return AnnotatorEstimates(estimates, rescaled, labeled.judged, unknown_queries, labeled)


def annotators_table(
    names: Sequence[str],
    by_run: Sequence[AnnotatorEstimates],
    judged: Sequence[Mapping[Measure, float]] = (),
) -> Table:
    """A row for each run and measure; `judged` is the judge's labeled share of each run's top k."""
    columns = [Column("run", "text", folds=True), Column("measure", "text")]
    columns += [Column(name) for name in ("estimate", "ci low", "ci high", "people", "judge")]
    columns.append(Column("worth"))
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            str(run.rescaled[measure]),
            estimate.estimate,
            *estimate.ci,
            estimate.people,
            estimate.judge,
            None if math.isnan(estimate.worth) else round(estimate.worth),
        )
        for name, run in zip(names, by_run, strict=True)
        for measure, estimate in run.estimates.items()
    ]
    notes = _notes(by_run) + _share_notes(by_run, judged)
    return Table(columns, rows, title="As people would have it", notes=list(dict.fromkeys(notes)))


def _notes(by_run: Sequence[AnnotatorEstimates]) -> list[str]:
    notes = [
        "estimate: as people would have it, had they labelled every query; people, judge: by "
        "their labels alone; worth: people's queries that alone would tell as much"
    ]
    words = [estimate.words() for run in by_run for estimate in run.estimates.values()]
    notes += list(dict.fromkeys(words))[:3]
    others = {m: n for run in by_run for m, n in run.rescaled.items() if m != n}
    if others:
        theirs, judges = ", ".join(map(str, others.values())), ", ".join(map(str, others))
        notes.append(f"{theirs} by people's labels, {judges} by the judge's")
    outside = max((run.unknown_queries for run in by_run), default=0)
    if outside:
        queries = plural(outside, "query", "queries")
        notes.append(f"{queries} that people labelled without a label of the judge: left out")
    return notes


def _share_notes(
    by_run: Sequence[AnnotatorEstimates], judged: Sequence[Mapping[Measure, float]]
) -> list[str]:
    """For each run the first measure of whose top annotators labeled clearly less."""
    notes = []
    for shares, run in zip(judged, by_run, strict=False):
        for measure, share in shares.items():
            own = run.judged.get(run.rescaled[measure], math.nan)
            if own < _WARNED_SHARE * share:
                notes.append(
                    f"{run.rescaled[measure]}: people labelled {own:.0%} of the top, the judge "
                    f"{share:.0%}; the rest counts as not relevant, and lowers the figure"
                )
                break
    return notes
