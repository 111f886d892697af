"""The rules that choose a configuration within limits.

    within an SLA, a budget, a memory    the best quality
    at a quality target                  the lowest latency, then the lowest cost
    ties in all of these                 the smaller prompt, then the simpler configuration

Latencies that differ by less than the jitter count as equal. Configurations that another dominates
beyond noise (`pareto.py`) are never chosen. A row is one configuration of the table that
`recommend` builds; the report's sliders follow the same rules in JavaScript.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from rankproof.foundation.arrays import Bool, Float
from rankproof.foundation.phrasing import amount
from rankproof.tradeoffs.pareto import undominated
from rankproof.tradeoffs.results import EQUAL_QUALITY, money

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that a configuration has to keep; None is no limit."""

    sla_ms: float | None = None
    budget: float | None = None  # per 1,000 queries, in the currency of the prices
    quality: float | None = None
    memory_mb: float | None = None
    currency: str = "USD"

    @property
    def name(self) -> str:
        """The kinds of limit that are set: "SLA + budget", or "best" without any."""
        limits = {
            "SLA": self.sla_ms,
            "budget": self.budget,
            "quality": self.quality,
            "memory": self.memory_mb,
        }
        return " + ".join(name for name, limit in limits.items() if limit is not None) or "best"

    def words(self) -> str:
        """The limits in words: "within 300 ms and at a quality of 0.8 or more"."""
        upper = []
        if self.sla_ms is not None:
            upper.append(f"{self.sla_ms:g} ms")
        if self.budget is not None:
            upper.append(f"{money(self.budget, self.currency, 'g')} per 1,000 queries")
        if self.memory_mb is not None:
            upper.append(f"{self.memory_mb:g} MB")
        parts = [f"within {' and '.join(upper)}"] if upper else []
        if self.quality is not None:
            parts.append(f"at a quality of {self.quality:g} or more")
        return " and ".join(parts) or "without a limit"

    def lead(self) -> str:
        """The limits in words, to begin a sentence: "Within 300 ms"."""
        words = self.words()
        return f"{words[0].upper()}{words[1:]}"


def pick(table: pl.DataFrame, limits: Limits) -> tuple[Row, Bool]:
    """Return the row that the rules choose, and (N,) which rows are within the limits.

    Where none is, the row is the closest: the one that exceeds its worst limit by the least share.
    """
    excess = _excess(table, limits)
    is_within: Bool = excess <= 0
    if is_within.any():
        feasible = table.filter(pl.Series(is_within))
        candidates = feasible.filter(pl.Series(is_undominated(feasible, "prompt_k")))
        choose = _fastest if limits.quality is not None else _best
        return choose(candidates), is_within
    closest = table.filter(pl.Series(excess == excess.min())).sort(
        "quality", "latency", "cost", descending=[True, False, False]
    )
    return closest.row(0, named=True), is_within


def is_undominated(table: pl.DataFrame, *extra: str) -> Bool:
    """Return (N,) which rows no other dominates in cost, memory, latency, quality and `extra`."""
    undominated_rows = np.ones(len(table), np.bool_)
    filled = table.with_columns(
        pl.col("cost", "memory", *extra).cast(pl.Float64).fill_null(0.0),
        low=pl.col("low").fill_nan(None).fill_null(pl.col("quality")),
        high=pl.col("high").fill_nan(None).fill_null(pl.col("quality")),
    )
    # Costs cannot be compared unless the same stages have a price.
    groups = filled.with_row_index("row").group_by("unpriced", maintain_order=True)
    for _, rows in groups:
        exact = rows.select("cost", "memory", *extra).to_numpy()
        names = ("latency", "quality", "low", "high", "jitter", "among_network")
        columns = {name: rows[name].to_numpy() for name in names}
        undominated_rows[rows["row"].to_numpy()] = undominated(exact, **columns)
    return undominated_rows


def _excess(table: pl.DataFrame, limits: Limits) -> Float:
    """Return (N,) the share by which a row exceeds its worst limit; at most 0 if it keeps all."""
    worst = np.full(len(table), -math.inf)
    sides = (
        (table["latency"], limits.sla_ms, 1.0),
        (table["cost"], limits.budget, 1.0),
        (table["memory"], limits.memory_mb, 1.0),
        (table["surely"], limits.quality, -1.0),
    )
    for column, limit, sign in sides:
        if limit is not None:
            excess = sign * (column.to_numpy() - limit)
            with np.errstate(over="ignore"):  # an infinite share still orders correctly
                worst = np.maximum(worst, excess / limit if limit > 0 else excess)
    return worst


def _best(feasible: pl.DataFrame) -> Row:
    """Return the best quality; of equal ones the smallest prompt, then the fastest."""
    best_quality = feasible["quality"].to_numpy().max()
    top = feasible.filter(pl.col("quality") >= best_quality - EQUAL_QUALITY)
    smallest = top["prompt_k"].min()
    return _fastest(top if smallest is None else top.filter(pl.col("prompt_k") == smallest))


def _fastest(feasible: pl.DataFrame) -> Row:
    """Return the lowest latency up to jitter; then the cheapest, smallest prompt, simplest."""
    fastest = feasible.sort("latency", "jitter").row(0, named=True)
    jitter = pl.max_horizontal(pl.col("jitter"), pl.lit(fastest["jitter"]))
    if fastest["among_network"] > 0:
        jitter = pl.max_horizontal(jitter, pl.col("among_network"))
    equally_fast = feasible.filter(pl.col("latency") - fastest["latency"] <= jitter)
    tie_breakers = ("cost", "prompt_k", "stages", "k", "latency", "configuration")
    return equally_fast.sort(*tie_breakers, nulls_last=True).row(0, named=True)


def own_jitter(row: Row) -> float:
    """Milliseconds by which the latency of one row may vary."""
    return float(max(row["jitter"], row["among_network"]))


def shared_jitter(a: Row, b: Row) -> float:
    """Milliseconds by which the latencies of two rows may differ by noise alone."""
    if min(a["among_network"], b["among_network"]) > 0:
        return max(own_jitter(a), own_jitter(b))
    return float(max(a["jitter"], b["jitter"]))


def faster(other: Row, row: Row) -> bool:
    """True if the other is faster by more than the jitter of the two."""
    return bool(row["latency"] - other["latency"] > shared_jitter(row, other))


def cheaper_or_faster(other: Row, row: Row) -> bool:
    """True if the other costs less, or is faster by more than the jitter of the two."""
    return faster(other, row) or bool(other["cost"] < row["cost"])


def shortfall(row: Row, limits: Limits) -> str:
    """Say by how much a row misses its limits; "" if it keeps all."""
    parts = []
    if limits.sla_ms is not None and row["latency"] > limits.sla_ms:
        parts.append(f"{amount(row['latency'] - limits.sla_ms, 1)} ms too slow")
    if limits.budget is not None and row["cost"] > limits.budget:
        parts.append(f"{money(row['cost'] - limits.budget, limits.currency)} too expensive")
    if limits.memory_mb is not None and row["memory"] > limits.memory_mb:
        parts.append(f"{amount(row['memory'] - limits.memory_mb, 1)} MB too large")
    if limits.quality is not None and row["quality"] < limits.quality:
        parts.append(f"{amount(limits.quality - row['quality'], 3)} short in quality")
    elif limits.quality is not None and row["surely"] < limits.quality:
        end = "the lower end of its quality"
        if row["low"] is not None and row["low"] >= limits.quality:  # its own interval suffices
            end += f" as one of many, {row['surely']:.3f},"
        parts.append(f"{end} is {amount(limits.quality - row['surely'], 3)} short")
    return " and ".join(parts)
