"""Whether the constants of RAnWG decide which run is ahead."""

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
from rankproof.statistics.rank_similarity import kendall_tau as tau_b

ALPHA = (0.0, 0.5, 1.0, 2.0)
CAP4 = (0.75, 1.0)
CAP3 = (0.20, 0.25, 0.33)
DEFAULT = (1.0, 1.0, 0.25)


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """RAnWG@K of runs under every combination of its constants.

    >>> from rankproof.tradeoffs import sensitivity
    >>> found = sensitivity({"one": {"q": {"a": 2.0}}}, {"q": {"a": 5, "b": 4}}, at=2)
    >>> len(found.frame)
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
        """The constants under which the order of the runs is another one: alpha, cap4, cap3, tau.

        τ is Kendall's to the order under the defaults; None where all runs are level.
        """
        settings = self.frame.select("alpha", "cap4", "cap3", "tau").unique(maintain_order=True)
        if len(self.runs) < 2:
            return settings.clear()
        return settings.filter(pl.col("tau").is_null() | (pl.col("tau") < 1.0))

    def words(self) -> str:
        """In a sentence."""
        settings = len(self.frame) // len(self.runs)
        if len(self.runs) < 2:
            low, high = self.spread[self.runs[0]]
            return (
                f"RAnWG@{self.k} of {self.runs[0]} lies between {low:.4f} and {high:.4f} over "
                f"{settings} choices of its constants."
            )
        changed = len(self.changed)
        if not changed:
            return (
                f"The order of the {len(self.runs)} runs by RAnWG@{self.k} is the same under all "
                f"{settings} choices of its constants."
            )
        return (
            f"The order of the {len(self.runs)} runs by RAnWG@{self.k} changes under {changed} of "
            f"{settings} choices of its constants: do not rest a claim on it."
        )

    def to_dict(self) -> dict[str, Any]:
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
    """RAnWG@K under every combination of α, cap4 and cap3.

    `runs` is one run, or {name: run}: then also whether the order of the runs changes.

    >>> from rankproof.tradeoffs import sensitivity
    >>> sensitivity({"one": {"q": {"a": 2.0}}}, {"q": {"a": 5, "b": 4}}, at=2).words()
    'RAnWG@2 of one lies between 0.6667 and 0.6667 over 24 choices of its constants.'
    """
    judged = read_qrels(qrels)
    several = _named(runs)
    settings = list(product(alpha, cap4, cap3))
    if not settings or not several:
        raise InputError("no run or no constants were given", remedy="give one of each at least")
    spelled = {
        s: parse(f"RAnWG(alpha={s[0]!r},cap4={s[1]!r},cap3={s[2]!r})@{at}")
        for s in [*settings, DEFAULT]
    }
    evaluations = {
        name: evaluate_tables(run, judged, list(dict.fromkeys(spelled.values())), Policy())
        for name, run in several.items()
    }
    default = [e[spelled[DEFAULT]].expected for e in evaluations.values()]
    rows = []
    for setting in settings:
        summaries = {name: e[spelled[setting]] for name, e in evaluations.items()}
        tau = kendall(default, [s.expected for s in summaries.values()])
        for name, s in summaries.items():
            figures = (s.expected, s.min, s.max, s.queries)
            rows.append((name, *map(float, setting), *figures, None if math.isnan(tau) else tau))
    columns = ("run", "alpha", "cap4", "cap3", "expected", "min", "max", "queries", "tau")
    kinds = [pl.String, *[pl.Float64] * 6, pl.Int64, pl.Float64]
    frame = pl.DataFrame(rows, schema=dict(zip(columns, kinds, strict=True)), orient="row")
    return Sensitivity(at, tuple(several), frame)


def _named(runs: Any) -> dict[str, Run]:
    """{name: run}; a run given as a dict of dicts of numbers is one run."""
    if isinstance(runs, Mapping):
        inner = next(iter(runs.values()), None)
        numbers = isinstance(inner, Mapping) and not any(
            isinstance(value, Mapping) for value in inner.values()
        )
        if not numbers:
            return {str(name): read_run(run, name=str(name)) for name, run in runs.items()}
    run = read_run(runs)
    return {run.name: run}


def kendall(a: Sequence[float], b: Sequence[float]) -> float:
    """Kendall's τ-b over a handful of values; NaN where one side is all level."""
    return float(tau_b(np.array([a]), np.array([b]), tolerance=ZERO)[0])
