"""The evaluations of several runs on the same judgments, as one result."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from rankproof.evaluation.checks import merge_notes
from rankproof.evaluation.policy import Policy
from rankproof.evaluation.presenting import (
    evaluation_caption,
    evaluation_charts,
    evaluation_summary,
    evaluation_tables,
    full_evaluation_tables,
)
from rankproof.evaluation.result import Evaluation
from rankproof.foundation.printable import escape_formulas
from rankproof.presentation.charts import Chart
from rankproof.presentation.display import Displayed
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Table


@dataclass(frozen=True, eq=False, repr=False)
class Evaluations(Displayed, Mapping[str, Evaluation]):
    """The evaluations by the names of the runs, in the order in which the runs were named.

    >>> runs = {"a": "try/saturated.trec", "b": "try/plain.trec"}
    >>> evaluations = rp.evaluate("try/qrels.txt", runs, "nDCG@5")
    >>> list(evaluations), round(evaluations["a"]["nDCG@5"].expected, 3)
    (['a', 'b'], 0.477)
    """

    kind: ClassVar[str] = "evaluation"
    evaluations: tuple[Evaluation, ...]
    policy: Policy

    def __getitem__(self, name: str) -> Evaluation:
        for evaluation in self.evaluations:
            if evaluation.name == name:
                return evaluation
        raise KeyError(f"{name} was not evaluated; there are {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return (evaluation.name for evaluation in self.evaluations)

    def __len__(self) -> int:
        return len(self.evaluations)

    def __repr__(self) -> str:
        return f"<Evaluations of {', '.join(self)}>"

    @property
    def exit_code(self) -> int:
        """1 if a run meets a condition of `fail_if`."""
        return max((evaluation.exit_code for evaluation in self.evaluations), default=0)

    @property
    def warnings(self) -> list[str]:
        """What the readers assumed, and the conditions that are met."""
        failed = [line for e in self.evaluations for line in e.failed_conditions]
        return [*merge_notes(self.evaluations), *failed]

    def tables(self) -> list[Table]:
        """A row for each run, or for each measure of a single run."""
        return evaluation_tables(self.evaluations)

    def full_tables(self) -> list[Table]:
        """Every value of each run and measure."""
        return full_evaluation_tables(self.evaluations)

    def summary(self) -> Summary:
        """What was measured, and what changes how it is read."""
        return evaluation_summary(self.evaluations)

    def caption(self) -> str:
        """One sentence for a paper: measures, queries, policy, judged share, software."""
        return evaluation_caption(self.evaluations)

    def charts(self) -> list[Chart]:
        """The range of each score over all orders of ties."""
        return evaluation_charts(self.evaluations)

    def figures(self) -> dict[str, float]:
        """The expected values, as "run/measure"."""
        return {
            f"{evaluation.name}/{measure}": value
            for evaluation in self.evaluations
            for measure, value in evaluation.figures().items()
        }

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof eval --format json` prints."""
        runs = [evaluation.to_dict() for evaluation in self.evaluations]
        return {"runs": runs, "policy": self.policy.to_dict()}

    def to_stored_dict(self) -> dict[str, Any]:
        """What `rankproof eval --out` writes: also the values of single queries."""
        runs = [evaluation.to_dict(per_query=True) for evaluation in self.evaluations]
        return {"runs": runs, "policy": self.policy.to_dict()}

    @property
    def per_query(self) -> pl.DataFrame:
        """One row per run, query and measure."""
        return pl.concat(
            evaluation.per_query.select(pl.lit(evaluation.name).alias("run"), pl.all())
            for evaluation in self.evaluations
        )

    def per_query_file(self, ending: str) -> bytes:
        """Per-query values as a file of .csv or .parquet."""
        file = io.BytesIO()
        if ending == ".parquet":
            self.per_query.write_parquet(file)
        else:
            escape_formulas(self.per_query).write_csv(file)
        return file.getvalue()
