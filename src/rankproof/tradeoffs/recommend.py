"""Which configuration to deploy, by rules that are stated [R §3].

    within an SLA, or a budget    the best quality
    at a quality target           the least latency, then the least cost
    what is still equal           the smaller prompt

Two latencies that differ by less than the jitter are called equal. A quality target is met when the
lower end of the 95% interval meets it, where there is one. What is within the limits and not told
apart from the chosen one in quality, by max-T over all of them, is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from rankproof.arrays import Bool, Float
from rankproof.errors import InputError, shorten
from rankproof.results.displayed import Displayed, ranges
from rankproof.results.tables import Table
from rankproof.tradeoffs.pareto import pareto_front, quality_measure
from rankproof.tradeoffs.results import LEVEL, Results, read_results

Percentile = Literal["p50", "p95"]
EFFICIENCY = ("NRecall4@10", "RAnWG@10", "NRecall4@30", "RAnWG@30")

_BESIDE = (  # endings of the columns that stand beside a measure
    *(" low", " high", " min", " max", " queries", "PROC", " judged", " lowest", " highest"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a configuration has to keep to; None is no limit."""

    sla_ms: float | None = None
    budget: float | None = None  # US dollars per 1,000 queries
    quality: float | None = None

    @property
    def name(self) -> str:
        """The rule in a word."""
        given = (self.sla_ms, self.budget, self.quality)
        names = [
            n for n, x in zip(("SLA", "budget", "quality"), given, strict=True) if x is not None
        ]
        return " + ".join(names)

    def words(self) -> str:
        parts = []
        if self.sla_ms is not None:
            parts.append(f"within {self.sla_ms:g} ms")
        if self.budget is not None:
            parts.append(f"within ${self.budget:g} per 1,000 queries")
        if self.quality is not None:
            parts.append(f"at a quality of {self.quality:g} or more")
        return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class Choice:
    """What one rule chooses; where nothing is feasible, what comes closest."""

    limits: Limits
    feasible: bool
    row: dict[str, Any]  # of the table, the configuration chosen
    alike: tuple[str, ...]  # cheaper or faster, and not told apart in quality
    words: str
    unsettled: tuple[
        str, ...
    ] = ()  # within the limits; unjudged passages could put them level or ahead

    @property
    def configuration(self) -> str:
        return str(self.row["configuration"])

    def to_dict(self) -> dict[str, Any]:
        return {
            "sla_ms": self.limits.sla_ms,
            "budget": self.limits.budget,
            "quality": self.limits.quality,
            "feasible": self.feasible,
            "configuration": self.configuration,
            "alike": list(self.alike),
            "unsettled": list(self.unsettled),
            "words": self.words,
        }


@dataclass(frozen=True, slots=True)
class Recommendation(Displayed):
    """Choices in words, and the tables behind them."""

    measure: str
    latency: Percentile
    choices: tuple[Choice, ...]
    table: pl.DataFrame  # configuration, quality, low, high, latency, cost, k, prompt_k, …
    marginal: pl.DataFrame
    unmeasured: int  # configurations without this quality, left out
    results: Results | None = field(default=None, repr=False)  # for a gate

    @property
    def feasible(self) -> bool:
        """Whether every rule found a configuration."""
        return all(choice.feasible for choice in self.choices)

    def _shown(self) -> Table:
        from rankproof.results import views

        chosen = [choice.configuration for choice in self.choices]
        some = self.table.select(
            "configuration", "quality", "low", "high", "latency", "cost", "pareto"
        ).with_columns(chosen=pl.col("configuration").is_in(chosen))
        return views.frame(some, self.words())

    def plot(self) -> Any:
        """The quality of each configuration with its interval, best first."""
        rows = [
            {"configuration": row["configuration"], self.measure: row["quality"]}
            | {"low": row["low"], "high": row["high"]}
            for row in self.table.iter_rows(named=True)
        ]
        return ranges(rows, label="configuration", value=self.measure, low="low", high="high")

    def words(self) -> list[str]:
        lines = [choice.words for choice in self.choices]
        front = self.table.filter("pareto")
        lines.append(
            f"Not dominated in cost, latency and {self.measure}: {len(front)} of "
            f"{len(self.table)} configurations."
        )
        if self.unmeasured:
            lines.append(f"{self.unmeasured} configurations have no {self.measure}: left out.")
        return lines

    def to_dict(self) -> dict[str, Any]:
        return {
            "measure": self.measure,
            "latency": self.latency,
            "choices": [choice.to_dict() for choice in self.choices],
            "configurations": _plain(self.table),
            "marginal": _plain(self.marginal),
            "unmeasured": self.unmeasured,
        }

    def __str__(self) -> str:
        return "\n".join(self.words())


def _plain(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return [
        {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        for row in frame.iter_rows(named=True)
    ]


def recommend(
    results: Any,
    *,
    sla_ms: float | None = None,
    budget: float | None = None,
    quality: float | None = None,
    measure: str | None = None,
    latency: Percentile = "p95",
    jitter_ms: float | None = None,
    seed: int = 0,
) -> Recommendation:
    """Choose a configuration from a sweep's results, by each limit and by all together.

    `results` is a sweep's folder, a table or a frame. `measure` is the quality: by default the one
    that the sweep chose its best by, else RAnWG@10. `latency` is the percentile that the SLA is
    about. `jitter_ms` is what two latencies may differ by and still be equal: by default 75 over
    a network, and what the sweep measured elsewhere.
    """
    for name, limit in (
        ("sla_ms", sla_ms), ("budget", budget), ("quality", quality), ("jitter_ms", jitter_ms)
    ):  # fmt: skip
        if limit is not None and not (math.isfinite(limit) and limit >= 0):
            raise InputError(f"{name} {limit} is not a number from 0", remedy="check the limit")
    if latency not in get_args(Percentile):
        raise InputError(f"latency {shorten(latency)} is unknown", remedy="use p50 or p95")
    found = read_results(results)
    best_by = (found.manifest or {}).get("best_by")
    chosen = str(quality_measure(measure or best_by or "RAnWG@10"))
    table = _table(found, chosen, latency, jitter_ms)
    known = table.filter(pl.col("quality").is_not_null() & pl.col("quality").is_not_nan())
    if not len(known):
        raise InputError(
            f"no configuration has a {chosen}", place=found.label, remedy="name another measure"
        )
    front = pareto_front(
        known["cost"].to_numpy(), known["latency"].to_numpy(), known["quality"].to_numpy()
    )
    known = known.with_columns(pareto=pl.Series(front))
    given = Limits(sla_ms, budget, quality)
    single = [
        Limits(**{name: getattr(given, name)})
        for name in ("sla_ms", "budget", "quality")
        if getattr(given, name) is not None
    ]
    rules = single if len(single) < 2 else [*single, given]
    return Recommendation(
        measure=chosen,
        latency=latency,
        choices=tuple(_choose(known, limits, found, chosen, latency, seed) for limits in rules),
        table=known.sort("quality", "latency", descending=[True, False]),
        marginal=marginal(known, found, chosen),
        unmeasured=len(table) - len(known),
        results=found,
    )


def efficiency(parts: Sequence[float | Float], latency_ms: float | Float) -> Any:
    """Mean of NRecall4@10, RAnWG@10, NRecall4@30 and RAnWG@30 over latency in seconds.

    It orders a shortlist and is no quality: halving the latency of a poor configuration doubles it.
    """
    mean = np.mean(np.stack([np.asarray(p, np.float64) for p in parts]), axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = mean / (np.asarray(latency_ms, np.float64) / 1000.0)
    return float(value) if np.ndim(value) == 0 else value


def _table(found: Results, measure: str, latency: Percentile, jitter: float | None) -> pl.DataFrame:
    """The columns that the rules read, under short names."""
    frame = found.frame
    if measure not in frame.columns:
        have = [c for c in frame.columns if "@" in c and not c.endswith(_BESIDE)]
        raise InputError(
            f"no column {measure!r}",
            place=found.label,
            remedy=f"use one of {', '.join(have)}" if have else "evaluate it in the sweep",
        )

    def column(name: str, kind: Any, otherwise: Any = None) -> pl.Expr:
        if name not in frame.columns:
            return pl.lit(otherwise, dtype=kind)
        return pl.col(name).cast(kind, strict=False)

    number = pl.Float64
    family = column("family", pl.String)
    if "family" not in frame.columns:
        without = pl.col("configuration").str.replace(r"\bK ?= ?\d+", "")
        family = without.str.replace_all(r"\s+", " ").str.strip_chars()
    table = frame.select(
        "configuration",
        family=family,
        quality=column(measure, number),
        low=column(f"{measure} low", number),
        high=column(f"{measure} high", number),
        judged=column(f"{measure} judged", number),
        lowest=column(f"{measure} lowest", number),
        highest=column(f"{measure} highest", number),
        latency=column(f"latency_{latency}_ms", number),
        p50=column("latency_p50_ms", number),
        p95=column("latency_p95_ms", number),
        cost=column("cost_per_1000", number),
        k=column("k", pl.Int64),
        prompt_k=column("prompt_k", pl.Int64),
        jitter=pl.Series(found.jitter(jitter)),
    )
    if all(part in frame.columns for part in EFFICIENCY):
        parts = [
            frame[part].cast(number, strict=False).fill_null(math.nan).to_numpy()
            for part in EFFICIENCY
        ]
        value = efficiency(parts, table["p50"].to_numpy())
        return table.with_columns(efficiency=pl.Series(value))
    return table.with_columns(efficiency=pl.lit(None, dtype=number))


def _choose(
    table: pl.DataFrame,
    limits: Limits,
    found: Results,
    measure: str,
    latency: Percentile,
    seed: int,
) -> Choice:
    excess = _excess(table, limits)
    within = excess <= 0
    if not within.any():
        tied: Bool = excess == excess.min()
        row = table.filter(pl.Series(tied)).sort(
            "quality", "latency", "cost", descending=[True, False, False]
        ).row(0, named=True)  # fmt: skip
        words = (
            f"Nothing is {limits.words()}. Closest comes {_described(row, measure, latency)}: "
            f"{_shortfall(row, limits)}."
        )
        return Choice(limits, False, row, (), words)
    feasible = table.filter(pl.Series(within))
    row = (_fastest if limits.quality is not None else _best)(feasible)
    others = feasible.sort("quality", descending=True)["configuration"].to_list()
    level = found.not_told_apart(str(row["configuration"]), measure, others, seed)
    alike = tuple(
        str(other["configuration"])
        for other in feasible.sort("cost", "latency").iter_rows(named=True)
        if other["configuration"] in level and _cheaper_or_faster(other, row)
    )
    lead = limits.words()
    words = f"{lead[:1].upper()}{lead[1:]}: {_described(row, measure, latency)}."
    if limits.sla_ms is not None and limits.sla_ms - row["latency"] < row["jitter"]:
        words += f" Its latency lies within the jitter ({row['jitter']:.1f} ms) of the limit."
    expected = None
    if limits.quality is None:
        expected = found.best_of(measure, feasible["configuration"].to_list(), seed)
    if expected is not None:
        words += (
            f" It is the best of {len(feasible)} on these queries, and so flattered by chance: on "
            f"queries that it was not chosen by, expect about {expected:.3f}."
        )
    if alike:
        words += f" Not told apart from it in quality, and cheaper or faster: {_some(alike)}."
    rest = tuple(other for other in level if other not in alike)
    if rest:
        words += (
            f" Of the {len(feasible) - 1} others within the limits {len(rest)} "
            f"{'are' if len(rest) > 1 else 'is'} neither told apart from it in quality nor cheaper "
            f"or faster: {_some(rest)}."
        )
    unsettled = found.unsettled(str(row["configuration"]), measure, others)
    if unsettled:
        words += (
            f" Its quality rests on unjudged passages: what they are could put {_some(unsettled)} "
            "level with it or ahead. Judge them (rankproof holes) before it is decided."
        )
    return Choice(limits, True, row, alike, words, unsettled)


def _excess(table: pl.DataFrame, limits: Limits) -> Float:
    """(N,) how far a configuration is past its worst limit, as a share of it; 0 or less: within."""
    past = np.full(len(table), -math.inf)
    sides = (
        (table["latency"], limits.sla_ms, 1.0),
        (table["cost"], limits.budget, 1.0),
        # A target is met when the lower end of the interval meets it: a figure that lies just
        # above it by chance is no promise.
        (table["low"].fill_nan(None).fill_null(table["quality"]), limits.quality, -1.0),
    )
    for column, limit, sign in sides:
        if limit is not None:
            over = sign * (column.to_numpy() - limit)
            past = np.maximum(past, over / limit if limit > 0 else over)
    return past


def _best(feasible: pl.DataFrame) -> dict[str, Any]:
    """The best quality; then the smaller prompt, and of these the fastest."""
    top = feasible.filter(pl.col("quality") >= feasible["quality"].to_numpy().max() - LEVEL)
    prompt = top["prompt_k"].min()
    return _fastest(top if prompt is None else top.filter(pl.col("prompt_k") == prompt))


def _fastest(feasible: pl.DataFrame) -> dict[str, Any]:
    """The least latency, give or take the jitter; then less cost, a smaller prompt and pool."""
    fastest = feasible.sort("latency", "jitter").row(0, named=True)
    jitter = pl.max_horizontal(pl.col("jitter"), pl.lit(fastest["jitter"]))
    level = feasible.filter(pl.col("latency") - fastest["latency"] <= jitter)
    return level.sort("cost", "prompt_k", "k", "latency", nulls_last=True).row(0, named=True)


def _cheaper_or_faster(other: dict[str, Any], row: dict[str, Any]) -> bool:
    faster = row["latency"] - other["latency"] > max(row["jitter"], other["jitter"])
    return bool(faster or other["cost"] < row["cost"])


def _described(row: dict[str, Any], measure: str, latency: Percentile) -> str:
    span = ""
    if row["low"] is not None and row["high"] is not None:
        span = f" ({row['low']:.3f} to {row['high']:.3f})"
    return (
        f"{row['configuration']}, {measure} {row['quality']:.3f}{span}, {latency} "
        f"{row['latency']:.1f} ms, ${row['cost']:.2f} per 1,000 queries"
    )


def _shortfall(row: dict[str, Any], limits: Limits) -> str:
    parts = []
    if limits.sla_ms is not None and row["latency"] > limits.sla_ms:
        parts.append(f"{row['latency'] - limits.sla_ms:.1f} ms too slow")
    if limits.budget is not None and row["cost"] > limits.budget:
        parts.append(f"${row['cost'] - limits.budget:.2f} too dear")
    if limits.quality is not None and row["quality"] < limits.quality:
        parts.append(f"{limits.quality - row['quality']:.3f} short in quality")
    elif limits.quality is not None and row["low"] is not None and row["low"] < limits.quality:
        parts.append(f"the lower end of its quality is {limits.quality - row['low']:.3f} short")
    return " and ".join(parts)


def _told_apart(ends: tuple[float, float]) -> bool:
    """Whether an interval leaves 0 out; NaN, where too few queries differ, does not."""
    return ends[0] > 0 or ends[1] < 0


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def marginal(table: pl.DataFrame, found: Results, measure: str) -> pl.DataFrame:
    """What each step to a larger pool adds, in families that differ in K alone.

    Δquality, Δlatency and Δcost from one K to the next; quality per added millisecond where the
    step is slower by more than the jitter, per added dollar where it costs more. `told_apart` says
    whether the interval of the paired difference leaves 0 out; None where nothing is known.
    """
    rows = []
    for (family,), group in table.filter(pl.col("k").is_not_null()).group_by(
        "family", maintain_order=True
    ):
        steps = group.sort("k", "cost").unique("k", keep="first", maintain_order=True)
        for a, b in zip(
            steps.head(-1).iter_rows(named=True), steps.tail(-1).iter_rows(named=True), strict=True
        ):
            gain, slower, dearer = (b[x] - a[x] for x in ("quality", "latency", "cost"))
            pair = found.differences(b["configuration"], measure, [a["configuration"]])
            told = pair.get(a["configuration"])
            level = abs(slower) <= max(a["jitter"], b["jitter"])
            rows.append(
                {
                    "family": family,
                    "from_k": a["k"],
                    "to_k": b["k"],
                    "quality": gain,
                    "latency_ms": slower,
                    "cost": dearer,
                    "same_latency": level,
                    "per_ms": gain / slower if slower > 0 and not level else None,
                    "per_dollar": gain / dearer if dearer > 0 else None,
                    "told_apart": None if told is None else _told_apart(told),
                }
            )
    schema = {
        "family": pl.String, "from_k": pl.Int64, "to_k": pl.Int64, "quality": pl.Float64,
        "latency_ms": pl.Float64, "cost": pl.Float64, "same_latency": pl.Boolean,
        "per_ms": pl.Float64, "per_dollar": pl.Float64, "told_apart": pl.Boolean,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema)
