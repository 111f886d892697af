"""The figures of a run: of single queries, and their means under every order of the ties."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.tables import as_series, ids_of
from rankproof.data.ties import TieGroups
from rankproof.evaluation.checks import Seen
from rankproof.evaluation.policy import Policy
from rankproof.foundation.arrays import Float
from rankproof.foundation.phrasing import plural
from rankproof.measures import Measure, Outcomes, parse
from rankproof.presentation.json_values import told
from rankproof.presentation.notebook import Displayed
from rankproof.presentation.tables import Table


@dataclass(frozen=True, slots=True)
class Summary:
    """A measure's mean over queries, under every order of the ties.

    >>> found = rp.evaluate("try/saturated.trec", "try/qrels.txt", "nDCG@5")["nDCG@5"]
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
        return told(self, *figures, "queries", "undefined")


@as_series(queries="query")
@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Displayed):
    """The figures of one run; `evaluation["nDCG@10"].expected`.

    >>> found = rp.evaluate("try/saturated.trec", "try/qrels.txt", "nDCG@5")
    >>> found.queries.len(), found.tied, round(found["nDCG@5"].range, 3)
    (30, 30, 0.325)
    """

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
    seen: Seen | None = field(default=None, repr=False)  # of the run, where notes are made of it
    judged: dict[Measure, float] = field(default_factory=dict)  # Judged@k beside each, where asked
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

    def _shown(self) -> Table:
        from rankproof.presentation import views

        return views.evaluations([self])

    def plot(self) -> Any:
        """A dot for each measure, and the range that its ties leave open."""
        from rankproof.presentation.notebook import ranges

        rows = [(str(m), s.expected, s.min, s.max) for m in self for s in [self[m]]]
        return ranges(rows, "measure", "expected", "min", "max")

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
            "measures": {str(measure): self[measure].to_dict() for measure in self.outcomes},
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
