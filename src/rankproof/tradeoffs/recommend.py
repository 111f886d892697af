"""Which configuration to deploy, by rules that are stated [R §3].

    within an SLA, a budget, a memory    the best quality; without any limit, too
    at a quality target                  the least latency, then the least cost
    what is still equal                  the smaller prompt, then the simpler

Two latencies that differ by less than the jitter are called equal. A quality target is met when the
lower end of the 95% interval meets it, where there is one; of several configurations, the lower end
of their intervals together. What another dominates beyond noise
(`pareto.py`) is never chosen. What is within the limits and not told apart from the chosen one in
quality, by max-T over all of them, is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from rankproof.foundation.arrays import Bool, Float
from rankproof.foundation.errors import InputError, first_few, shorten
from rankproof.foundation.phrasing import amount, plural
from rankproof.presentation.json_values import plain, told
from rankproof.presentation.lead_wording import could
from rankproof.presentation.notebook import Displayed, ranges
from rankproof.presentation.tables import Table
from rankproof.statistics.intervals import Interval
from rankproof.tradeoffs.amounts import money
from rankproof.tradeoffs.pareto import quality_measure, undominated
from rankproof.tradeoffs.results import AT_PROMPT, LEVEL, Results, read_results

Percentile = Literal["p50", "p95"]
EFFICIENCY = ("NRecall4@10", "RAnWG@10", "NRecall4@30", "RAnWG@30")

_APART = 1e-9  # by which the end of an interval may be past its figure: rounding
_BESIDE = (  # endings of the columns that stand beside a measure
    *(" low", " high", " min", " max", " queries", "PROC", " judged", " lowest", " highest"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a configuration has to keep to; None is no limit."""

    sla_ms: float | None = None
    budget: float | None = None  # per 1,000 queries, in the currency of the prices
    quality: float | None = None
    memory_mb: float | None = None
    currency: str = "USD"

    @property
    def name(self) -> str:
        """The rule in a word."""
        given = (self.sla_ms, self.budget, self.quality, self.memory_mb)
        words = ("SLA", "budget", "quality", "memory")
        return " + ".join(n for n, x in zip(words, given, strict=True) if x is not None) or "best"

    def words(self) -> str:
        inside = []
        if self.sla_ms is not None:
            inside.append(f"{self.sla_ms:g} ms")
        if self.budget is not None:
            inside.append(f"{money(self.budget, self.currency, 'g')} per 1,000 queries")
        if self.memory_mb is not None:
            inside.append(f"{self.memory_mb:g} MB")
        parts = [f"within {' and '.join(inside)}"] if inside else []
        if self.quality is not None:
            parts.append(f"at a quality of {self.quality:g} or more")
        return " and ".join(parts) or "without a limit"


@dataclass(frozen=True, slots=True)
class Choice:
    """What one rule chooses; where nothing is feasible, what comes closest."""

    limits: Limits
    feasible: bool
    row: dict[str, Any]  # of the table, the configuration chosen
    alike: tuple[str, ...]  # cheaper or faster, and not told apart in quality
    words: str
    # Within the limits; unjudged passages could put them level or ahead: whether some grades do.
    unsettled: dict[str, bool] = field(default_factory=dict)
    lines: tuple[str, ...] = ()  # the choice and the reason, in five
    level: tuple[str, ...] | None = None  # not told apart in quality, best first; None: not known
    expected: float | None = None  # of the best of several, on queries it was not chosen by
    expected_ci: Interval | None = None

    @property
    def configuration(self) -> str:
        return str(self.row["configuration"])

    def to_dict(self) -> dict[str, Any]:
        return {
            **told(self.limits, "sla_ms", "budget", "quality", "memory_mb"),
            **told(self, "feasible", "configuration", "alike", "expected", "expected_ci"),
            "not_told_apart": plain(self.level),
            "unsettled": list(self.unsettled),
            **told(self, "words", "lines"),
        }


@dataclass(frozen=True, slots=True)
class Recommendation(Displayed):
    """Choices in words, and the tables behind them.

    >>> from rankproof.tradeoffs import recommend
    >>> _ = rp.choose("try/corpus", judge="simulated")
    >>> found = recommend("try/corpus/swept-simulated", sla_ms=1000)
    >>> found.feasible
    True
    """

    measure: str
    latency: Percentile
    choices: tuple[Choice, ...]
    table: pl.DataFrame  # configuration, quality, low, high, latency, cost, memory, k, prompt_k, …
    marginal: pl.DataFrame
    unmeasured: int  # configurations without this quality, left out
    results: Results | None = field(default=None, repr=False)  # for a gate
    notes: tuple[str, ...] = ()  # what to know of the measure

    @property
    def feasible(self) -> bool:
        """Whether every rule found a configuration."""
        return all(choice.feasible for choice in self.choices)

    @property
    def currency(self) -> str:
        return "USD" if self.results is None else self.results.currency

    def _shown(self) -> Table:
        from rankproof.presentation import views

        chosen = [choice.configuration for choice in self.choices]
        some = self.table.select(
            "configuration", "quality", "low", "high", "latency", "cost", "pareto"
        ).with_columns(chosen=pl.col("configuration").is_in(chosen))
        return views.frame(some, self.words())

    def plot(self) -> Any:
        """The quality of each configuration with its interval, best first."""
        rows = self.table.select("configuration", "quality", "low", "high").rows()
        return ranges(rows, "configuration", self.measure)

    def words(self) -> list[str]:
        return [*(choice.words for choice in self.choices), *self.remarks()]

    def remarks(self) -> list[str]:
        """What is true of all choices."""
        front = self.table.filter("pareto")
        lines = [
            f"Not dominated in cost, latency, memory and {self.measure}: {len(front)} of "
            f"{plural(len(self.table), 'configuration')}."
        ]
        if self.unmeasured:
            without = plural(self.unmeasured, "configuration has", "configurations have")
            lines.append(f"{without} no {self.measure}: left out.")
        return [*lines, *self.notes]

    def to_dict(self) -> dict[str, Any]:
        return {
            **told(self, "measure", "latency", "currency", "choices", "unmeasured", "notes"),
            "configurations": plain(self.table.to_dicts()),
            "marginal": plain(self.marginal.to_dicts()),
        }

    def __str__(self) -> str:
        return "\n".join(self.words())

    __repr__ = __str__


def recommend(
    results: Any,
    *,
    sla_ms: float | None = None,
    budget: float | None = None,
    quality: float | None = None,
    memory_mb: float | None = None,
    measure: str | None = None,
    latency: Percentile = "p95",
    jitter_ms: float | None = None,
    seed: int = 0,
) -> Recommendation:
    """Choose a configuration from a sweep's results, by each limit and by all together; without a
    limit, the best.

    `results` is a sweep's folder, a table or a frame. `measure` is the quality: by default the one
    that the sweep chose its best by, else RAnWG@10; RAnWG@prompt is that of each configuration at
    the passages that it gives. `latency` is the percentile that the SLA is about. `jitter_ms` is
    what two latencies may differ by and still be equal: by default 75 between two that answer over
    a network, and what the sweep measured elsewhere.

    >>> from rankproof.tradeoffs import recommend
    >>> _ = rp.choose("try/corpus", judge="simulated")
    >>> recommend("try/corpus/swept-simulated", quality=2).feasible
    False
    """
    asked = {"sla_ms": sla_ms, "budget": budget, "quality": quality, "memory_mb": memory_mb}
    for name, limit in (*asked.items(), ("jitter_ms", jitter_ms)):
        if limit is not None and not (math.isfinite(limit) and limit >= 0):
            raise InputError(f"{name} {limit} is not a number from 0", remedy="check the limit")
    if latency not in get_args(Percentile):
        raise InputError(f"latency {shorten(latency)} is unknown", remedy="use p50 or p95")
    found = read_results(results)
    best_by = (found.manifest or {}).get("best_by")
    chosen, kept, notes = _quality_of(found, measure or best_by or "RAnWG@10")
    table = _sound(_table(found, chosen, latency, jitter_ms), found.label, chosen).filter(kept)
    known = table.filter(pl.col("quality").is_not_null() & pl.col("quality").is_not_nan())
    if not len(known):
        raise InputError(
            f"no configuration has a {chosen}", place=found.label, remedy="name another measure"
        )
    if budget is not None and known["unpriced"].null_count() < len(known):
        raise InputError(
            f"{known['unpriced'].drop_nulls()[0]} has no price, and what it costs may break any "
            "budget",
            place=found.label,
            remedy="add it to the price file and run the sweep again",
        )
    if memory_mb is not None and known["memory"].null_count():
        problem = "no column 'index_bytes'"
        if "index_bytes" in found.frame.columns:
            whose = known.filter(pl.col("memory").is_null())["configuration"][0]
            problem = f"index_bytes of {shorten(whose)} is not known"
        raise InputError(problem, place=found.label, remedy="a sweep writes it; or add it")
    known = known.with_columns(_surely(known, found, chosen, seed), pareto=pl.Series(_front(known)))
    known = known.sort("quality", "latency", descending=[True, False], maintain_order=True)
    given = Limits(**asked, currency=found.currency)
    single = [
        Limits(**{name: limit}, currency=found.currency)
        for name, limit in asked.items()
        if limit is not None
    ]
    rules = single if len(single) == 1 else [*single, given]
    return Recommendation(
        measure=chosen,
        latency=latency,
        choices=tuple(_choose(known, limits, found, chosen, latency, seed) for limits in rules),
        table=known,
        marginal=marginal(known, found, chosen),
        unmeasured=len(table) - len(known),
        results=found,
        notes=tuple(notes),
    )


def _surely(table: pl.DataFrame, found: Results, measure: str, seed: int) -> pl.Series:
    """The quality that each meets for certain: the lower end of its interval, and no more than what
    all of them reach together, since one of many lies above any target by chance."""
    names = table["configuration"].to_list()
    together = found.surely(measure, names, seed)
    ends = pl.Series("surely", [together.get(name) for name in names], dtype=pl.Float64)
    low = table["low"].fill_nan(None).fill_null(table["quality"])
    return pl.DataFrame([low, ends]).min_horizontal().alias("surely")


def _quality_of(found: Results, name: str) -> tuple[str, pl.Series, list[str]]:
    """The column of the quality; which rows it is the quality of; and what to know of that.

    A figure at K is the quality of a prompt of K passages. Where prompts differ, it says nothing of
    the others; where all have the same, rows can be compared by any.
    """
    frame = found.frame
    every = pl.repeat(True, len(frame), eager=True)
    prompts: list[int] = []
    if "prompt_k" in frame.columns:
        prompts = frame["prompt_k"].cast(pl.Int64, strict=False).drop_nulls().unique().to_list()
    if name.endswith(AT_PROMPT):
        base = name.removesuffix(AT_PROMPT)
        if len(prompts) > 1 or name in frame.columns:
            quality_measure(f"{base}@1")
            return name, every, []
        if not prompts:
            raise InputError(
                f"no column 'prompt_k' for {name}", place=found.label, remedy=f"use {base}@10, say"
            )
        name = f"{base}@{prompts[0]}"
    measure = quality_measure(name)
    if measure.cutoff is None or not prompts or prompts == [measure.cutoff]:
        return str(measure), every, []
    if len(prompts) == 1:
        said = (
            f"{measure} is of {plural(measure.cutoff, 'passage')}; the prompt holds {prompts[0]}."
        )
        return str(measure), every, [said]
    at_prompt = str(measure).rpartition("@")[0] + AT_PROMPT
    if measure.cutoff not in prompts:
        listed = " and ".join(map(str, sorted(prompts)))
        raise InputError(
            f"{measure} is not the quality of prompts of {listed} passages",
            place=found.label,
            remedy=f"use {at_prompt}: each at its own",
        )
    kept = (frame["prompt_k"].cast(pl.Int64, strict=False) == measure.cutoff).fill_null(True)
    said = (
        f"{plural(int((~kept).sum()), 'configuration gives', 'configurations give')} another "
        "number of passages than "
        f"{measure.cutoff}: left out; {at_prompt} compares each at its own."
    )
    return str(measure), kept, [said]


def _front(table: pl.DataFrame, *more: str) -> Bool:
    """(N,) what no other dominates, in cost, memory, latency and quality, and in `more`."""
    kept = np.ones(len(table), np.bool_)
    with_ends = {
        "low": pl.col("low").fill_nan(None).fill_null(pl.col("quality")),
        "high": pl.col("high").fill_nan(None).fill_null(pl.col("quality")),
    }
    plain = table.with_columns(
        pl.col("cost", "memory", *more).cast(pl.Float64).fill_null(0.0), **with_ends
    )
    # Costs without the same stages cannot be compared.
    for (_,), some in plain.with_row_index("at").group_by("unpriced", maintain_order=True):
        exact = some.select("cost", "memory", *more).to_numpy()
        names = ("latency", "quality", "low", "high", "jitter", "among_network")
        columns = {name: some[name].to_numpy() for name in names}
        kept[some["at"].to_numpy()] = undominated(exact, **columns)
    return kept


def efficiency(parts: Sequence[float | Float], latency_ms: float | Float) -> Any:
    """Mean of NRecall4@10, RAnWG@10, NRecall4@30 and RAnWG@30 over latency in seconds.

    It orders a shortlist and does not measure quality: halving the latency of a poor configuration
    doubles it.

    >>> from rankproof.tradeoffs import efficiency
    >>> efficiency([0.5, 0.5, 0.7, 0.7], latency_ms=300)
    2.0
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

    def column(name: str, kind: Any) -> pl.Expr:
        if name not in frame.columns:
            return pl.lit(None, dtype=kind)
        return pl.col(name).cast(kind, strict=False)

    number = pl.Float64
    own, both = found.jitter(jitter)
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
        p95_low=column("latency_p95_low", number),
        p95_high=column("latency_p95_high", number),
        memory=column("index_bytes", number) / 1e6,
        unpriced=column("unpriced", pl.String),
        stages=column("stages", pl.Int64),
        jitter=pl.Series(own),
        among_network=pl.Series(both),
    )
    if all(part in frame.columns for part in EFFICIENCY):
        parts = [
            frame[part].cast(number, strict=False).fill_null(math.nan).to_numpy()
            for part in EFFICIENCY
        ]
        value = efficiency(parts, table["p50"].to_numpy())
        return table.with_columns(efficiency=pl.Series(value))
    return table.with_columns(efficiency=pl.lit(None, dtype=number))


def _sound(table: pl.DataFrame, label: str, measure: str) -> pl.DataFrame:
    """What is not a number is not known; other figures that cannot be are refused."""
    table = table.with_columns(pl.col(pl.Float64).fill_nan(None))
    said = {
        "quality": measure,
        "low": f"{measure} low",
        "high": f"{measure} high",
        "memory": "index_bytes",
        "p95_low": "latency_p95_low",
        "p95_high": "latency_p95_high",
    }
    wrong = {name: pl.col(name).is_infinite() for name in said}
    wrong |= {name: wrong[name] | (pl.col(name) < 0) for name in ("memory", "p95_low", "p95_high")}
    wrong["low"] |= pl.col("low") > pl.col("quality") + _APART
    wrong["high"] |= pl.col("high") < pl.col("quality") - _APART
    for name, column in said.items():
        bad = table.filter(wrong[name])
        if bad.height:
            value = bad[name][0] * (1e6 if name == "memory" else 1)
            it = bad["quality"][0]
            beside = "" if it is None or not column.startswith(f"{measure} ") else f" beside {it:g}"
            raise InputError(
                f"{column} of {shorten(bad['configuration'][0])} is {value:g}{beside}",
                place=label,
                remedy="mend it, or leave the configuration out",
            )
    return table


def _choose(
    table: pl.DataFrame,
    limits: Limits,
    found: Results,
    measure: str,
    latency: Percentile,
    seed: int,
) -> Choice:
    row, within = pick(table, limits)
    if not within.any():
        missed = shortfall(row, limits)
        words = (
            f"Nothing is {limits.words()}. Closest comes "
            f"{_described(row, measure, latency, limits.currency)}: {missed}."
        )
        lines = (
            f"Nothing is {limits.words()}.",
            f"Closest comes {row['configuration']}:",
            f"  {missed}.",
            f"  {_figures(row, measure, latency, limits.currency)}",
            _remedy(row, limits),
        )
        return Choice(limits, False, row, (), words, lines=lines)
    feasible = table.filter(pl.Series(within))
    others = feasible["configuration"].to_list()  # best first
    told = found.not_told_apart(str(row["configuration"]), measure, others, seed)
    level = set(told or ())
    alike = tuple(
        str(other["configuration"])
        for other in feasible.sort("cost", "latency").iter_rows(named=True)
        if other["configuration"] in level and cheaper_or_faster(other, row)
    )
    lead = limits.words()
    words = f"{lead[:1].upper()}{lead[1:]}: {_described(row, measure, latency, limits.currency)}."
    near = limits.sla_ms is not None and limits.sla_ms - row["latency"] < _jitter(row)
    if near:
        words += f" Its latency lies within the jitter ({_jitter(row):.1f} ms) of the limit."
    slow = ""
    most = row["p95_high"] if latency == "p95" else None
    if limits.sla_ms is not None and most is not None and most > limits.sla_ms:
        slow = f"By its interval its p95 may be {most:.1f} ms, past the limit."
        words += f" {slow}"
    expected = None
    if limits.quality is None:
        expected = found.best_of(measure, others, seed)
    fair = fair_interval(row, expected)
    if expected is not None:
        words += (
            f" It is the best of {len(feasible)} on these queries, and so flattered by chance: on "
            f"queries that it was not chosen by, expect about {expected:.3f}{in_brackets(fair)}."
        )
    if alike:
        words += f" Not told apart from it in quality, and cheaper or faster: {first_few(alike)}."
    named = set(alike)
    rest = tuple(other for other in others if other in level and other not in named)
    inside = "" if limits.name == "best" else " within the limits"
    if rest:
        words += (
            f" Of the {plural(len(feasible) - 1, 'other')}{inside} "
            f"{plural(len(rest), 'is', 'are')} neither told apart from it in quality nor cheaper "
            f"or faster: {first_few(rest)}."
        )
    unsettled = found.unsettled(str(row["configuration"]), measure, others)
    may = could(all(unsettled.values()))
    if unsettled:
        words += (
            f" Its quality rests on unjudged passages: what they are{found.assumed(measure)} {may} "
            f"put {first_few(list(unsettled))} level with it or ahead. Judge them "
            "(rankproof holes) before it is decided."
        )
    rule = f"the best {measure} of {len(feasible)}"
    if limits.quality is not None:
        rule = f"the fastest of {len(feasible)}, then the cheapest"
    figures = _quality(row, measure)
    if expected is not None:
        rule += f", {row['quality']:.3f}"
        figures = f"expect about {expected:.3f}{in_brackets(fair)} on others"
    if alike:
        rival = f"Not told apart, and cheaper or faster: {first_few(alike, 1)}."
    elif rest:
        rival = f"Not told apart from it in quality: {first_few(rest, 1)}."
    elif len(feasible) == 1:
        rival = f"Nothing else {'is within the limits' if inside else 'was swept'}."
    elif told is None:
        rival = "Whether others are as good is not known: there are no values of single queries."
    else:
        rival = f"Every other{inside} is told apart from it in quality."
    if unsettled:
        rivals = first_few(list(unsettled), 1)
        caution = f"Unjudged passages {may} put {rivals} level or ahead: judge them first."
    elif near:
        caution = f"Its latency lies within the jitter ({_jitter(row):.1f} ms) of the limit."
    elif slow:
        caution = slow
    else:
        caution = "Neither unjudged passages nor known jitter speak against it."
    spent = f"{latency} {row['latency']:.1f} ms, {money(row['cost'], limits.currency)} per 1,000"
    lines = (
        f"{row['configuration']}", f"  {lead}: {rule}.", f"  {figures}, {spent}", rival, caution
    )  # fmt: skip
    return Choice(limits, True, row, alike, words, unsettled, lines, told, expected, fair)


def fair_interval(row: dict[str, Any], expected: float | None) -> Interval | None:
    """From the lower end about what to expect of the chosen one to the upper end about what was
    seen: which of the two is nearer to its truth depends on how far ahead it is of the others; the
    lower end is not above what it surely reaches. A share stays between 0 and 1."""
    if expected is None or row["low"] is None or row["high"] is None:
        return None
    shift = expected - row["quality"]
    low, high = row["low"] + min(shift, 0.0), row["high"] + max(shift, 0.0)
    low = min(low, row["surely"])
    share = row["low"] >= 0 and row["high"] <= 1
    return (max(low, 0.0), min(high, 1.0)) if share else (low, high)


def in_brackets(ends: Interval | None) -> str:
    """An interval behind its figure; nothing where there is none."""
    return "" if ends is None else f" ({ends[0]:.3f} to {ends[1]:.3f})"


def _jitter(row: dict[str, Any]) -> float:
    return float(max(row["jitter"], row["among_network"]))


def pick(table: pl.DataFrame, limits: Limits) -> tuple[dict[str, Any], Bool]:
    """The row that the rules choose, and (N,) which are within the limits; where none is, the one
    that comes closest."""
    excess = _excess(table, limits)
    within: Bool = excess <= 0
    if within.any():
        feasible = table.filter(pl.Series(within))
        sound = feasible.filter(pl.Series(_front(feasible, "prompt_k")))
        return (_fastest if limits.quality is not None else _best)(sound), within
    closest = table.filter(pl.Series(excess == excess.min())).sort(
        "quality", "latency", "cost", descending=[True, False, False]
    )
    return closest.row(0, named=True), within


def _excess(table: pl.DataFrame, limits: Limits) -> Float:
    """(N,) how far a configuration is past its worst limit, as a share of it; 0 or less: within."""
    past = np.full(len(table), -math.inf)
    sides = (
        (table["latency"], limits.sla_ms, 1.0),
        (table["cost"], limits.budget, 1.0),
        (table["memory"], limits.memory_mb, 1.0),
        (table["surely"], limits.quality, -1.0),
    )
    for column, limit, sign in sides:
        if limit is not None:
            over = sign * (column.to_numpy() - limit)
            with np.errstate(over="ignore"):  # so far past that one limit is as good as another
                past = np.maximum(past, over / limit if limit > 0 else over)
    return past


def _best(feasible: pl.DataFrame) -> dict[str, Any]:
    """The best quality; then the smaller prompt, and of these the fastest."""
    top = feasible.filter(pl.col("quality") >= feasible["quality"].to_numpy().max() - LEVEL)
    prompt = top["prompt_k"].min()
    return _fastest(top if prompt is None else top.filter(pl.col("prompt_k") == prompt))


def _fastest(feasible: pl.DataFrame) -> dict[str, Any]:
    """The least latency, give or take the jitter; then less cost, a smaller prompt, the simpler."""
    fastest = feasible.sort("latency", "jitter").row(0, named=True)
    jitter = pl.max_horizontal(pl.col("jitter"), pl.lit(fastest["jitter"]))
    if fastest["among_network"] > 0:
        jitter = pl.max_horizontal(jitter, pl.col("among_network"))
    level = feasible.filter(pl.col("latency") - fastest["latency"] <= jitter)
    simplest = ("cost", "prompt_k", "stages", "k", "latency", "configuration")
    return level.sort(*simplest, nulls_last=True).row(0, named=True)


def _noise(a: dict[str, Any], b: dict[str, Any]) -> float:
    """What the latencies of two may differ by and mean nothing."""
    both = min(a["among_network"], b["among_network"]) > 0
    return float(max(map(_jitter, (a, b))) if both else max(a["jitter"], b["jitter"]))


def faster(other: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether it is, by more than the jitter of the two."""
    return bool(row["latency"] - other["latency"] > _noise(row, other))


def cheaper_or_faster(other: dict[str, Any], row: dict[str, Any]) -> bool:
    return faster(other, row) or bool(other["cost"] < row["cost"])


def _described(row: dict[str, Any], measure: str, latency: Percentile, currency: str) -> str:
    return f"{row['configuration']}, {_figures(row, measure, latency, currency)}"


def _figures(row: dict[str, Any], measure: str, latency: Percentile, currency: str) -> str:
    return f"{_quality(row, measure)}, {_paid(row, latency, currency)}"


def _quality(row: dict[str, Any], measure: str) -> str:
    known = row["low"] is not None and row["high"] is not None
    ends = in_brackets((row["low"], row["high"]) if known else None)
    return f"{measure} {row['quality']:.3f}{ends}"


def _paid(row: dict[str, Any], latency: Percentile, currency: str) -> str:
    """What it takes: time and money."""
    slow = ""
    if latency == "p95" and row["p95_low"] is not None and row["p95_high"] is not None:
        slow = f" ({row['p95_low']:.1f} to {row['p95_high']:.1f})"
    spent = f"{money(row['cost'], currency)} per 1,000 queries"
    return f"{latency} {row['latency']:.1f} ms{slow}, {spent}"


def shortfall(row: dict[str, Any], limits: Limits) -> str:
    """By what a configuration misses its limits."""
    parts = []
    if limits.sla_ms is not None and row["latency"] > limits.sla_ms:
        parts.append(f"{amount(row['latency'] - limits.sla_ms, 1)} ms too slow")
    if limits.budget is not None and row["cost"] > limits.budget:
        parts.append(f"{money(row['cost'] - limits.budget, limits.currency)} too dear")
    if limits.memory_mb is not None and row["memory"] > limits.memory_mb:
        parts.append(f"{amount(row['memory'] - limits.memory_mb, 1)} MB too large")
    if limits.quality is not None and row["quality"] < limits.quality:
        parts.append(f"{amount(limits.quality - row['quality'], 3)} short in quality")
    elif limits.quality is not None and row["surely"] < limits.quality:
        end = "the lower end of its quality"
        if row["low"] is not None and row["low"] >= limits.quality:  # as it is shown by itself
            end += f" as one of many, {row['surely']:.3f},"
        parts.append(f"{end} is {amount(limits.quality - row['surely'], 3)} short")
    return " and ".join(parts)


def _remedy(row: dict[str, Any], limits: Limits) -> str:
    """What helps where nothing keeps to the limits; more queries where an interval is too wide."""
    loosen = "Loosen the limits" if " + " in limits.name else "Loosen the limit"
    wide = limits.quality is not None and row["surely"] < limits.quality <= row["quality"]
    more = ", judge more queries" if wide else ""
    return f"{loosen}{more}, or sweep more: other pools, indexes or rerankers."


def _told_apart(ends: tuple[float, float]) -> bool:
    """Whether an interval leaves 0 out; NaN, where too few queries differ, does not."""
    return ends[0] > 0 or ends[1] < 0


def marginal(table: pl.DataFrame, found: Results, measure: str) -> pl.DataFrame:
    """What each step to a larger pool adds, in families that differ in K alone.

    Δquality, Δlatency and Δcost from one K to the next; quality per added millisecond where the
    step is slower by more than the jitter, per added dollar where it costs more. `told_apart` says
    whether the interval of the paired difference leaves 0 out; None where nothing is known.
    """
    pairs = []
    steps = table.filter(pl.col("k").is_not_null()).sort("k", "cost", maintain_order=True)
    for _, group in steps.group_by("family", maintain_order=True):
        each = list(group.unique("k", keep="first", maintain_order=True).iter_rows(named=True))
        pairs += list(pairwise(each))
    order = {family: at for at, family in enumerate(table["family"].unique(maintain_order=True))}
    pairs.sort(key=lambda pair: order[pair[0]["family"]])
    named = [(b["configuration"], a["configuration"]) for a, b in pairs]
    rows = []
    for (a, b), apart in zip(pairs, found.differences(named, measure), strict=True):
        gain, slower, dearer = (b[x] - a[x] for x in ("quality", "latency", "cost"))
        level = abs(slower) <= _noise(a, b)
        rows.append(
            {
                "family": a["family"],
                "from_k": a["k"],
                "to_k": b["k"],
                "quality": gain,
                "latency_ms": slower,
                "cost": dearer,
                "same_latency": level,
                "per_ms": gain / slower if slower > 0 and not level else None,
                "per_dollar": gain / dearer if dearer > 0 else None,
                "told_apart": None if apart is None else _told_apart(apart),
            }
        )
    schema = {
        "family": pl.String, "from_k": pl.Int64, "to_k": pl.Int64, "quality": pl.Float64,
        "latency_ms": pl.Float64, "cost": pl.Float64, "same_latency": pl.Boolean,
        "per_ms": pl.Float64, "per_dollar": pl.Float64, "told_apart": pl.Boolean,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema)
