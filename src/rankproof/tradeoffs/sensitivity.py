"""Whether the constants of RAnWG decide which run is ahead.

RAnWG weights a passage by its grade and by how rare that grade is [R §2.4]. How much rarity counts
(alpha) and the caps on the weights of grades 4 and 3 are conventions. So the score is computed
under every combination of them, and the order of the runs is compared with that of the defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from rankproof.data import QrelsLike, RunLike, read_qrels, read_run
from rankproof.data.tables import Run
from rankproof.evaluation import Policy, evaluate_tables
from rankproof.foundation.errors import InputError
from rankproof.measures import parse
from rankproof.presentation.json_values import plain
from rankproof.presentation.lead_wording import ZERO
from rankproof.statistics.rank_similarity import kendall_tau

ALPHA = (0.0, 0.5, 1.0, 2.0)
CAP4 = (0.75, 1.0)
CAP3 = (0.20, 0.25, 0.33)
DEFAULT = (1.0, 1.0, 0.25)  # alpha, cap4, cap3


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """RAnWG@K of runs under every combination of its constants.

    >>> from rankproof.tradeoffs import sensitivity
    >>> varied = sensitivity({"one": {"q": {"a": 2.0}}}, {"q": {"a": 5, "b": 4}}, at=2)
    >>> len(varied.frame)
    24
    """

    k: int
    runs: tuple[str, ...]
    frame: pl.DataFrame  # run, alpha, cap4, cap3, expected, min, max, queries, tau

    @property
    def spread(self) -> dict[str, tuple[float, float]]:
        """The lowest and highest expected value of each run over the constants."""
        bounds = self.frame.group_by("run").agg(low=pl.min("expected"), high=pl.max("expected"))
        return {run: (low, high) for run, low, high in bounds.sort("run").iter_rows()}

    @property
    def changed(self) -> pl.DataFrame:
        """Constants that order the runs otherwise than the defaults do: alpha, cap4, cap3, tau.

        τ is Kendall's τ to the order under the defaults; null where all runs are level.
        """
        settings = self.frame.select("alpha", "cap4", "cap3", "tau").unique(maintain_order=True)
        if len(self.runs) < 2:
            return settings.clear()
        return settings.filter(pl.col("tau").is_null() | (pl.col("tau") < 1.0))

    def words(self) -> str:
        """Say in a sentence whether the constants matter."""
        choices = f"{len(self.frame) // len(self.runs)} choices of its constants"
        if len(self.runs) < 2:
            low, high = self.spread[self.runs[0]]
            between = f"between {low:.4f} and {high:.4f}"
            return f"RAnWG@{self.k} of {self.runs[0]} lies {between} over {choices}."
        lead = f"The order of the {len(self.runs)} runs by RAnWG@{self.k}"
        if not (changed := len(self.changed)):
            return f"{lead} is the same under all {choices}."
        return f"{lead} changes under {changed} of {choices}: do not rest a claim on it."

    def to_dict(self) -> dict[str, Any]:
        """The values under every combination, and how many of them change the order."""
        return {
            "k": self.k,
            "runs": list(self.runs),
            "settings": plain(self.frame.to_dicts()),
            "changed": len(self.changed),
        }


def sensitivity(
    runs: RunLike | Mapping[str, RunLike],
    qrels: QrelsLike,
    at: int = 10,
    *,
    alpha: Sequence[float] = ALPHA,
    cap4: Sequence[float] = CAP4,
    cap3: Sequence[float] = CAP3,
) -> Sensitivity:
    """Evaluate RAnWG@K under every combination of α, cap4 and cap3.

    `runs` is one run, or {name: run} to learn whether the order of the runs changes.

    >>> from rankproof.tradeoffs import sensitivity
    >>> sensitivity({"one": {"q": {"a": 2.0}}}, {"q": {"a": 5, "b": 4}}, at=2).words()
    'RAnWG@2 of one lies between 0.6667 and 0.6667 over 24 choices of its constants.'
    """
    judgments = read_qrels(qrels)
    run_by_name = _read_runs(runs)
    settings = list(product(alpha, cap4, cap3))
    if not settings or not run_by_name:
        raise InputError("no run or no constants were given", remedy="give one of each at least")
    measures = {
        s: parse(f"RAnWG(alpha={s[0]!r},cap4={s[1]!r},cap3={s[2]!r})@{at}")
        for s in [*settings, DEFAULT]
    }
    evaluations = {
        name: evaluate_tables(run, judgments, list(dict.fromkeys(measures.values())), Policy())
        for name, run in run_by_name.items()
    }
    default = [e[measures[DEFAULT]].expected for e in evaluations.values()]
    rows = []
    for setting in settings:
        summaries = {name: e[measures[setting]] for name, e in evaluations.items()}
        tau = _tau(default, [s.expected for s in summaries.values()])
        for name, s in summaries.items():
            rows.append((name, *map(float, setting), s.expected, s.min, s.max, s.queries, tau))
    columns = ("run", "alpha", "cap4", "cap3", "expected", "min", "max", "queries", "tau")
    kinds = [pl.String, *[pl.Float64] * 6, pl.Int64, pl.Float64]
    frame = pl.DataFrame(rows, schema=dict(zip(columns, kinds, strict=True)), orient="row")
    return Sensitivity(at, tuple(run_by_name), frame)


def _read_runs(runs: Any) -> dict[str, Run]:
    """Read {name: run}, or one run; {query: {document: score}} is one run."""
    if isinstance(runs, Mapping):
        first = next(iter(runs.values()), None)
        is_one_run = isinstance(first, Mapping) and not any(
            isinstance(value, Mapping) for value in first.values()
        )
        if not is_one_run:
            return {str(name): read_run(run, name=str(name)) for name, run in runs.items()}
    run = read_run(runs)
    return {run.name: run}


def _tau(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return Kendall's τ-b; None where all values of one side are equal up to rounding."""
    tau = float(kendall_tau(np.array([a]), np.array([b]), tolerance=ZERO)[0])
    return None if math.isnan(tau) else tau
