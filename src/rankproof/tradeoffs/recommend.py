"""Recommend a configuration to deploy, by stated rules [R §3].

The best of a sweep is not simply the top of its table: qualities differ by chance, the best of many
looks better than it is, and unjudged passages may change the order. So `recommend` applies the
rules of `selection.py` within each limit and within all together, and qualifies the choice: which
configurations are not significantly worse, what to expect on new queries, and which verdicts depend
on unjudged passages.

A quality target is met when the lower end of the 95% interval meets it, where there is one; of
several configurations, the lower end of their joint intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import polars as pl

from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import as_sentence, plural, typed
from rankproof.presentation.charts import Chart, Range, RangeChart
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain, plain_fields
from rankproof.presentation.judged_column import NOTE, any_unjudged
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Column, Table, span
from rankproof.presentation.terminal import shorten_middle
from rankproof.statistics.intervals import Interval
from rankproof.tradeoffs.configuration_table import (
    NAME_WIDTH,
    configuration_table,
    name_and_sizes,
)
from rankproof.tradeoffs.pareto import quality_measure
from rankproof.tradeoffs.results import (
    AT_PROMPT,
    CHOSEN,
    JUDGEMENTS,
    LEVEL,
    Label,
    Results,
    currency_sign,
    interval_cell,
    read_results,
)
from rankproof.tradeoffs.selection import (
    Limits,
    Row,
    cheaper_or_faster,
    is_undominated,
    own_jitter,
    pick,
    shared_jitter,
    shortfall,
)

Percentile = Literal["p50", "p95"]
EFFICIENCY = ("NRecall4@10", "RAnWG@10", "NRecall4@30", "RAnWG@30")

_EFFICIENCY_NOTE = (
    "efficiency: mean of NRecall4 and RAnWG at 10 and 30 over p50 seconds; it orders a shortlist "
    "and does not measure quality"
)
_DRAWN = 40  # configurations in the chart, best first
_ROUNDING = 1e-9  # by which the end of an interval may be past its mean
_MEASURE_SUFFIXES = (  # of the columns that accompany a measure
    *(" low", " high", " min", " max", " queries", "PROC", " judged", " lowest", " highest"),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What the rules choose within some limits, or the closest configuration if nothing fits."""

    limits: Limits
    feasible: bool
    row: Row  # of the table: the configuration chosen
    labels: dict[str, Label] | None = None  # of all within the limits; None: unknown
    alike: tuple[str, ...] = ()  # cheaper or faster, and not significantly worse
    unsettled: tuple[str, ...] = ()  # whose label depends on unjudged passages
    expected: float | None = None  # quality of the best of several on new queries
    expected_ci: Interval | None = None
    sentences: tuple[str, ...] = ()  # the answer, then what changes how it is read

    @property
    def configuration(self) -> str:
        """Name of the configuration."""
        return str(self.row["configuration"])

    @property
    def similar(self) -> tuple[str, ...] | None:
        """Names of the others that do not differ significantly in quality; None: unknown."""
        if self.labels is None:
            return None
        return tuple(name for name, label in self.labels.items() if label == LEVEL)

    @property
    def words(self) -> str:
        """The answer and what changes how it is read, in one paragraph."""
        return " ".join(self.sentences)

    def to_dict(self) -> dict[str, Any]:
        """The choice as JSON has it."""
        return {
            **plain_fields(self.limits, "sla_ms", "budget", "quality", "memory_mb"),
            **plain_fields(self, "feasible", "configuration", "alike", "expected", "expected_ci"),
            **plain_fields(self, "labels", "unsettled"),
            "not_told_apart": plain(self.similar),
            "words": self.words,
        }


@dataclass(frozen=True, slots=True, repr=False)
class Recommendation(Displayed):
    """The configurations chosen, and the tables behind them.

    >>> from rankproof.tradeoffs import recommend
    >>> _ = rp.choose("try/corpus", judge="simulated")
    >>> recommend("try/corpus/swept-simulated", sla_ms=1000).feasible
    True
    """

    kind: ClassVar[str] = "recommendation"

    measure: str
    latency: Percentile
    choices: tuple[Choice, ...]  # of each limit, then of all together
    table: pl.DataFrame  # configuration, quality, low, high, latency, cost, memory, k, prompt_k, …
    marginal: pl.DataFrame
    unmeasured: int  # configurations skipped because they lack this quality
    results: Results | None = field(default=None, repr=False)  # for a gate
    notes: tuple[str, ...] = ()  # about the measure

    @property
    def feasible(self) -> bool:
        """True if every rule found a configuration."""
        return all(choice.feasible for choice in self.choices)

    @property
    def currency(self) -> str:
        """Currency of the costs."""
        return "USD" if self.results is None else self.results.currency

    @property
    def exit_code(self) -> int:
        """1 if a limit cannot be kept."""
        return 0 if self.feasible else 1

    def figures(self) -> dict[str, float]:
        """Quality, latency and cost of the choice within all limits."""
        row = self.choices[-1].row
        return {name: float(row[name]) for name in ("quality", "latency", "cost")}

    def summary(self) -> Summary:
        """The choice within all limits; the choice of each limit alone is among the details."""
        *single, last = self.choices
        answer, *notes = last.sentences
        details = [choice.words for choice in single if choice.configuration != last.configuration]
        return Summary.of(
            answer,
            [*notes, *self.notes],
            next_step=self._next_step(last),
            details=[*details, *self.remarks(), *_METHOD],
        )

    def _next_step(self, choice: Choice) -> str:
        """Return the command that looks closer at the choice; "" if there is no folder."""
        if self.results is None or self.results.lists is None:
            return ""
        folder = self.results.label
        if choice.unsettled:
            rows = (
                typed(f"{folder}::{name}") for name in (choice.configuration, choice.unsettled[0])
            )
            judgments = typed(Path(folder) / JUDGEMENTS)
            return f"rankproof holes {judgments} {' '.join(rows)} --judge-next 50"
        return f"rankproof report {typed(folder)}"

    def tables(self) -> list[Table]:
        """The chosen configuration beside the best others, best first."""
        last = self.choices[-1]
        return [
            configuration_table(
                self.table,
                self.verdicts(),
                first=[last.configuration],
                measure=self.measure,
                latency=self.latency,
                limits=last.limits,
            )
        ]

    def verdicts(self) -> dict[str, str]:
        """The verdict on each configuration within all limits; a dash if it is unknown."""
        choice = self.choices[-1]
        names, within = self.table["configuration"].to_list(), pick(self.table, choice.limits)[1]
        labels: dict[str, str] = dict.fromkeys(names, "outside the limits")
        labels |= dict.fromkeys(np.array(names)[within].tolist(), "–")
        chosen = CHOSEN if choice.feasible else "closest"
        return labels | dict(choice.labels or {}) | {choice.configuration: chosen}

    def full_tables(self) -> list[Table]:
        """Every configuration with all its values, and what each larger pool adds."""
        return [self._choice_table(), *([self._marginal_table()] if len(self.marginal) else [])]

    def _choice_table(self) -> Table:
        """Return every configuration with all its values."""
        verdicts = self.verdicts()
        has_unjudged = any_unjudged(self.table["judged"].drop_nulls())
        has_memory, has_unpriced = (
            bool(self.table[name].is_not_null().any()) for name in ("memory", "unpriced")
        )
        fine: dict[str, Any] = {"exact_zero": True}
        columns = {
            "configuration": Column("configuration", "text", folds=True),
            "quality": Column(self.measure),
            "interval": Column("95%", "text", dim=True),
            "judged": Column("judged", drop=4) if has_unjudged else None,
            "p50": Column("p50 ms", drop=5, digits=1, **fine),
            "p95": Column("p95 ms", digits=1, **fine),
            "cost": Column(f"{currency_sign(self.currency)}/1000", digits=2, **fine),
            "memory": Column("MB", drop=3, digits=1, **fine) if has_memory else None,
            "unpriced": Column("unpriced", "text") if has_unpriced else None,
            "k": Column("K", drop=1),
            "prompt_k": Column("prompt", drop=1),
            "efficiency": Column("efficiency", dim=True, drop=2, digits=3, **fine),
            "chosen": Column("chosen", "text"),
            "label": Column("verdict", "text"),
            "dominated": Column("dominated", "text"),
        }
        records = [
            {
                **row,
                "interval": interval_cell(row["low"], row["high"]),
                "unpriced": row["unpriced"] or "–",
                "chosen": self._rules_that_chose(row["configuration"]),
                "label": verdicts[row["configuration"]],
                "dominated": "no" if row["pareto"] else "yes",
            }
            for row in self.table.iter_rows(named=True)
        ]
        notes = [NOTE] if has_unjudged else []
        if self.table["efficiency"].null_count() < len(self.table):
            notes.append(_EFFICIENCY_NOTE)
        return Table.of_records(columns, records, notes)

    def _rules_that_chose(self, name: str) -> str:
        """Return the limits within which a configuration was chosen: "SLA; SLA + budget"."""
        return "; ".join(
            choice.limits.name if choice.feasible else f"closest to {choice.limits.name}"
            for choice in self.choices
            if choice.configuration == name
        )

    def _marginal_table(self) -> Table:
        """Return what each step to a larger pool adds."""
        sign = currency_sign(self.currency)
        columns = {
            "family": Column("a larger pool of", "text", folds=True),
            "from_k": Column("from K"),
            "to_k": Column("to K"),
            "quality": Column(f"Δ {self.measure}", "signed"),
            "latency_ms": Column("Δ ms", "signed", digits=1, exact_zero=True),
            "cost": Column(f"Δ {sign}/1000", "signed", digits=2, exact_zero=True),
            "per_100_ms": Column("per 100 ms", "signed"),
            "per_dollar": Column(f"per {sign}", "signed"),
            "significant": Column("significant", "text"),
        }
        steps = self.marginal.with_columns(
            per_100_ms=100.0 * pl.col("per_ms"),
            significant=pl.col("told_apart").replace_strict(
                {True: "yes", False: "no"}, default="–", return_dtype=pl.String
            ),
        )
        note = f"– per 100 ms: not slower by more than the jitter; – per {sign}: not more expensive"
        return Table.of_records(columns, steps.iter_rows(named=True), [note])

    def charts(self) -> list[Chart]:
        """The quality of each configuration with its interval, best first."""
        return [quality_chart(self.table, self.measure, "quality")]

    def words(self) -> list[str]:
        """The choices in sentences, then the remarks on all of them."""
        return [*(choice.words for choice in self.choices), *self.remarks(), *self.notes]

    def remarks(self) -> list[str]:
        """Sentences that apply to all choices."""
        front = self.table.filter("pareto")
        lines = [
            f"Not dominated in cost, latency, memory and {self.measure}: {len(front)} of "
            f"{plural(len(self.table), 'configuration')}."
        ]
        if self.unmeasured:
            without = plural(self.unmeasured, "configuration has", "configurations have")
            lines.append(f"{without} no {self.measure}: skipped.")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof recommend --format json` prints."""
        return {
            **plain_fields(
                self, "measure", "latency", "currency", "choices", "unmeasured", "notes"
            ),
            "configurations": plain(self.table.to_dicts()),
            "marginal": plain(self.marginal.to_dicts()),
        }

    def __repr__(self) -> str:
        return str(self)


_METHOD = (
    "verdict: 95% interval of the paired difference from the chosen configuration, holding for all "
    "within the limits together (max-T of bootstrap-t; the best is chosen again in each resample).",
    "expect: the best is chosen on resampled questions and scored on the others.",
)


def quality_chart(best: pl.DataFrame, measure: str, column: str) -> Chart:
    """Draw the quality of each configuration with its interval; the rows are sorted, best first."""
    low, high = ("low", "high") if column == "quality" else (f"{column} low", f"{column} high")
    rows = best.select("configuration", column, low, high).head(_DRAWN).rows()
    return RangeChart("Quality of configurations", [Range(*row) for row in rows], measure)


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
    """Choose a configuration from a sweep's results, by each limit and by all together.

    `results` is a sweep's folder, a table or a frame; without a limit, the best is chosen.
    `measure` is the quality: by default the one that the sweep chose its best by, else RAnWG@10;
    RAnWG@prompt is that of each configuration at the passages that it gives. `latency` is the
    percentile that the SLA is about. Latencies that differ by at most `jitter_ms` are equal: by
    default 75 between two that answer over a network, else what the sweep measured.

    >>> from rankproof.tradeoffs import recommend
    >>> _ = rp.choose("try/corpus", judge="simulated")
    >>> recommend("try/corpus/swept-simulated", quality=2).feasible
    False
    """
    limits = {"sla_ms": sla_ms, "budget": budget, "quality": quality, "memory_mb": memory_mb}
    for name, limit in (*limits.items(), ("jitter_ms", jitter_ms)):
        if limit is not None and not (math.isfinite(limit) and limit >= 0):
            raise InputError(f"{name} {limit} is not a number from 0", remedy="check the limit")
    if latency not in get_args(Percentile):
        raise InputError(f"latency {shorten(latency)} is unknown", remedy="use p50 or p95")
    sweep = read_results(results)
    best_by = (sweep.manifest or {}).get("best_by")
    chosen_measure, is_comparable, notes = _find_quality(sweep, measure or best_by or "RAnWG@10")
    table = _build_table(sweep, chosen_measure, latency, jitter_ms)
    table = _check_table(table, sweep.label, chosen_measure).filter(is_comparable)
    measured = table.filter(pl.col("quality").is_not_null() & pl.col("quality").is_not_nan())
    if not len(measured):
        raise InputError(
            f"no configuration has a {chosen_measure}",
            place=sweep.label,
            remedy="name another measure",
        )
    _check_limits_known(measured, sweep, budget, memory_mb)
    measured = measured.with_columns(
        _certain_quality(measured, sweep, chosen_measure, seed),
        pareto=pl.Series(is_undominated(measured)),
    )
    measured = measured.sort("quality", "latency", descending=[True, False], maintain_order=True)
    chooser = _Chooser(measured, sweep, chosen_measure, latency, seed)
    return Recommendation(
        measure=chosen_measure,
        latency=latency,
        choices=tuple(chooser.choose(rule) for rule in _rules(limits, sweep.currency)),
        table=measured,
        marginal=marginal(measured, sweep, chosen_measure),
        unmeasured=len(table) - len(measured),
        results=sweep,
        notes=tuple(notes),
    )


def _rules(limits: dict[str, float | None], currency: str) -> list[Limits]:
    """Return each limit alone, then all together; one entry where there is at most one limit."""
    single = [
        Limits(**{name: limit}, currency=currency)
        for name, limit in limits.items()
        if limit is not None
    ]
    return single if len(single) == 1 else [*single, Limits(**limits, currency=currency)]


def _check_limits_known(
    table: pl.DataFrame, results: Results, budget: float | None, memory_mb: float | None
) -> None:
    """Raise InputError if a limit is on a cost or a memory that is not known."""
    if budget is not None and table["unpriced"].null_count() < len(table):
        raise InputError(
            f"{table['unpriced'].drop_nulls()[0]} has no price, and what it costs may break any "
            "budget",
            place=results.label,
            remedy="add it to the price file and run the sweep again",
        )
    if memory_mb is not None and table["memory"].null_count():
        problem = "no column 'index_bytes'"
        if "index_bytes" in results.frame.columns:
            name = table.filter(pl.col("memory").is_null())["configuration"][0]
            problem = f"index_bytes of {shorten(name)} is not known"
        raise InputError(problem, place=results.label, remedy="a sweep writes it; or add it")


def _certain_quality(table: pl.DataFrame, results: Results, measure: str, seed: int) -> pl.Series:
    """Return the quality that each row meets for certain, as column `surely`.

    It is the lower end of the row's own interval, but at most the lower end that holds for all rows
    at once: one of many is above any target by chance.
    """
    names = table["configuration"].to_list()
    joint = results.joint_lower_ends(measure, names, seed)
    joint_ends = pl.Series("surely", [joint.get(name) for name in names], dtype=pl.Float64)
    own_ends = table["low"].fill_nan(None).fill_null(table["quality"])
    return pl.DataFrame([own_ends, joint_ends]).min_horizontal().alias("surely")


def _find_quality(results: Results, name: str) -> tuple[str, pl.Series, list[str]]:
    """Return the quality column, (N,) the rows that it can compare, and notes on that.

    A measure at K is the quality of a prompt of K passages. Where prompts differ, it says nothing
    about the others; where all have the same size, any K compares them.
    """
    frame = results.frame
    all_rows = pl.repeat(True, len(frame), eager=True)
    prompts: list[int] = []
    if "prompt_k" in frame.columns:
        prompts = frame["prompt_k"].cast(pl.Int64, strict=False).drop_nulls().unique().to_list()
    if name.endswith(AT_PROMPT):
        base = name.removesuffix(AT_PROMPT)
        if len(prompts) > 1 or name in frame.columns:
            quality_measure(f"{base}@1")
            return name, all_rows, []
        if not prompts:
            raise InputError(
                f"no column 'prompt_k' for {name}",
                place=results.label,
                remedy=f"use {base}@10, say",
            )
        name = f"{base}@{prompts[0]}"
    measure = quality_measure(name)
    if measure.cutoff is None or not prompts or prompts == [measure.cutoff]:
        return str(measure), all_rows, []
    if len(prompts) == 1:
        passages = plural(measure.cutoff, "passage")
        return (
            str(measure),
            all_rows,
            [f"{measure} is of {passages}; the prompt holds {prompts[0]}."],
        )
    at_prompt = str(measure).rpartition("@")[0] + AT_PROMPT
    if measure.cutoff not in prompts:
        sizes = " and ".join(map(str, sorted(prompts)))
        raise InputError(
            f"{measure} is not the quality of prompts of {sizes} passages",
            place=results.label,
            remedy=f"use {at_prompt}: each at its own",
        )
    has_cutoff = (frame["prompt_k"].cast(pl.Int64, strict=False) == measure.cutoff).fill_null(True)
    others = plural(int((~has_cutoff).sum()), "configuration gives", "configurations give")
    note = (
        f"{others} another number of passages than {measure.cutoff}: skipped; {at_prompt} "
        "compares each at its own."
    )
    return str(measure), has_cutoff, [note]


def efficiency(parts: Sequence[float | Float], latency_ms: float | Float) -> Any:
    """Return the mean of NRecall4@10, RAnWG@10, NRecall4@30 and RAnWG@30 per second of latency.

    It orders a shortlist and does not measure quality: halving the latency of a poor configuration
    doubles it.

    >>> from rankproof.tradeoffs import efficiency
    >>> efficiency([0.5, 0.5, 0.7, 0.7], latency_ms=300)
    2.0
    """
    mean = np.mean(np.stack([np.asarray(part, np.float64) for part in parts]), axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = mean / (np.asarray(latency_ms, np.float64) / 1000.0)
    return float(value) if np.ndim(value) == 0 else value


_SOURCES = {  # short name → column of the results
    "quality": "{measure}",
    "low": "{measure} low",
    "high": "{measure} high",
    "judged": "{measure} judged",
    "lowest": "{measure} lowest",
    "highest": "{measure} highest",
    "latency": "latency_{latency}_ms",
    "p50": "latency_p50_ms",
    "p95": "latency_p95_ms",
    "cost": "cost_per_1000",
    "k": "k",
    "prompt_k": "prompt_k",
    "p95_low": "latency_p95_low",
    "p95_high": "latency_p95_high",
    "memory": "index_bytes",
    "unpriced": "unpriced",
    "stages": "stages",
}
_KINDS = {"k": pl.Int64, "prompt_k": pl.Int64, "stages": pl.Int64, "unpriced": pl.String}


def _build_table(
    results: Results, measure: str, latency: Percentile, jitter: float | None
) -> pl.DataFrame:
    """Select the columns that the rules read, under short names; null where one is absent."""
    frame = results.frame
    if measure not in frame.columns:
        known = [c for c in frame.columns if "@" in c and not c.endswith(_MEASURE_SUFFIXES)]
        raise InputError(
            f"no column {measure!r}",
            place=results.label,
            remedy=f"use one of {', '.join(known)}" if known else "evaluate it in the sweep",
        )
    columns = {}
    for name, source in _SOURCES.items():
        column, kind = source.format(measure=measure, latency=latency), _KINDS.get(name, pl.Float64)
        is_known = column in frame.columns
        expression = pl.col(column) if is_known else pl.lit(None)
        columns[name] = expression.cast(kind, strict=False)
    family = pl.col("family") if "family" in frame.columns else _FAMILY_BY_NAME
    own_jitters, network_jitters = results.latency_jitter(jitter)
    table = frame.select(
        "configuration",
        family=family.cast(pl.String),
        **columns,
        jitter=pl.Series(own_jitters),
        among_network=pl.Series(network_jitters),
    ).with_columns(pl.col("memory") / 1e6)
    values = pl.lit(None, dtype=pl.Float64)
    if all(part in frame.columns for part in EFFICIENCY):
        parts = frame.select(pl.col(EFFICIENCY).cast(pl.Float64, strict=False).fill_null(math.nan))
        values = pl.lit(pl.Series(efficiency(list(parts.to_numpy().T), table["p50"].to_numpy())))
    return table.with_columns(efficiency=values)


_FAMILY_BY_NAME = (  # the name without the size of the pool
    pl.col("configuration")
    .str.replace(r"\bK ?= ?\d+", "")
    .str.replace_all(r"\s+", " ")
    .str.strip_chars()
)


def _check_table(table: pl.DataFrame, label: str, measure: str) -> pl.DataFrame:
    """Return the table with null for NaN; raise InputError for values that cannot be."""
    table = table.with_columns(pl.col(pl.Float64).fill_nan(None))
    names = ("quality", "low", "high", "memory", "p95_low", "p95_high")
    is_wrong = {name: pl.col(name).is_infinite() for name in names}
    for name in ("memory", "p95_low", "p95_high"):
        is_wrong[name] |= pl.col(name) < 0
    is_wrong["low"] |= pl.col("low") > pl.col("quality") + _ROUNDING
    is_wrong["high"] |= pl.col("high") < pl.col("quality") - _ROUNDING
    for name in names:
        wrong = table.filter(is_wrong[name])
        if wrong.height:
            column = _SOURCES[name].format(measure=measure)
            value = wrong[name][0] * (1e6 if name == "memory" else 1)
            quality = wrong["quality"][0]
            beside = ""
            if quality is not None and name in ("low", "high"):
                beside = f" beside {quality:g}"
            raise InputError(
                f"{column} of {shorten(wrong['configuration'][0])} is {value:g}{beside}",
                place=label,
                remedy="correct it, or leave the configuration out",
            )
    return table


# ------------------------------------------------------------------------------ the choice


@dataclass(frozen=True, slots=True)
class _Chooser:
    """Chooses from one table under different limits, and explains each choice."""

    table: pl.DataFrame  # best quality first
    results: Results
    measure: str
    latency: Percentile
    seed: int

    def choose(self, limits: Limits) -> Choice:
        """Apply the rules within the limits."""
        row, is_within = pick(self.table, limits)
        if not is_within.any():
            sentences = self._shortfall_sentences(row, limits)
            return Choice(limits, feasible=False, row=row, sentences=sentences)
        feasible = self.table.filter(pl.Series(is_within))
        names = feasible["configuration"].to_list()  # best first
        name = str(row["configuration"])
        labels = self.results.labels(name, self.measure, names, self.seed)
        expected = None
        if limits.quality is None:
            expected = self.results.expected_best(self.measure, names, self.seed)
        choice = Choice(
            limits=limits,
            feasible=True,
            row=row,
            labels=labels,
            alike=tuple(
                str(other["configuration"])
                for other in feasible.sort("cost", "latency").iter_rows(named=True)
                if (labels or {}).get(other["configuration"]) == LEVEL
                and cheaper_or_faster(other, row)
            ),
            unsettled=self.results.unsettled(name, self.measure, names, self.seed),
            expected=expected,
            expected_ci=expected_interval(row, expected),
        )
        sentences = tuple(self._sentences(choice, len(feasible)))
        return replace(choice, sentences=sentences)

    def _shortfall_sentences(self, row: Row, limits: Limits) -> tuple[str, ...]:
        """Say that nothing is within the limits, by how much the closest misses, and what helps."""
        loosen = "Loosen the limits" if " + " in limits.name else "Loosen the limit"
        # Only the interval of the quality misses the target: more queries narrow it.
        is_wide = limits.quality is not None and row["surely"] < limits.quality <= row["quality"]
        judge = ", judge more queries" if is_wide else ""
        name = shorten_middle(row["configuration"], NAME_WIDTH)
        return (
            f"Nothing is {limits.words()}. Closest comes {name}: {shortfall(row, limits)}.",
            f"{loosen}{judge}, or sweep more: other pools, indexes or rerankers.",
        )

    def _sentences(self, choice: Choice, feasible: int) -> Iterator[str]:
        """Yield the answer, then what changes how it is read; `feasible` configurations fit."""
        yield self._answer(choice, feasible)
        if choice.expected is not None:
            yield (
                f"Expect about {choice.expected:.3f}{in_brackets(choice.expected_ci)} on new "
                "questions."
            )
        yield from self._latency_sentences(choice)
        yield from map(as_sentence, (self.results.manifest or {}).get("caveats", ()))
        if choice.unsettled:
            comparisons = plural(len(choice.unsettled), "comparison")
            yield f"Unjudged passages could change {comparisons}: judge them first."
        if choice.labels is None and feasible > 1:
            yield "Whether others are as good is unknown: there are no values per query."

    def _answer(self, choice: Choice, feasible: int) -> str:
        """Say which configuration to use, of how many, and with how many passages."""
        limits, row = choice.limits, choice.row
        rule = "best" if limits.quality is None else "fastest"
        within = "" if limits.name == "best" else f" {limits.words()}"
        of = f", {rule} of {feasible:,}{within}" if feasible > 1 else within
        if feasible == 1 and within:
            of = f", the only one{within}"
        name, sizes = name_and_sizes(row)
        return f"Use {shorten_middle(name, NAME_WIDTH)}{of}{': ' if sizes else ''}{sizes}."

    def _latency_sentences(self, choice: Choice) -> Iterator[str]:
        """Yield why the choice may break the limit on latency."""
        sla = choice.limits.sla_ms
        if sla is None:
            return
        highest = choice.row["p95_high"] if self.latency == "p95" else None
        if sla - choice.row["latency"] < (jitter := own_jitter(choice.row)):
            yield f"Its latency is within the jitter ({jitter:.1f} ms) of the limit."
        if highest is not None and highest > sla:
            yield f"Its p95 may be {highest:.1f} ms (end of its 95% interval), above the limit."


def expected_interval(row: Row, expected: float | None) -> Interval | None:
    """Return the interval of what to expect of a chosen row on new queries; None where unknown.

    It reaches from the lower end about the expectation to the upper end about the observed value:
    which of the two is closer to the truth depends on how far the row is ahead of the others. The
    lower end is at most what the row certainly reaches; a share stays between 0 and 1.
    """
    if expected is None or row["low"] is None or row["high"] is None:
        return None
    shift = expected - row["quality"]
    low, high = row["low"] + min(shift, 0.0), row["high"] + max(shift, 0.0)
    low = min(low, row["surely"])
    is_share = row["low"] >= 0 and row["high"] <= 1
    return (max(low, 0.0), min(high, 1.0)) if is_share else (low, high)


def in_brackets(interval: Interval | None, digits: int = 3) -> str:
    """Write an interval to follow its value, " (0.100–0.200)"; "" where there is none."""
    if interval is None:
        return ""
    return f" ({span(*interval, digits=digits)})"


# ------------------------------------------------------------------------- marginal gains

_MARGINAL_SCHEMA = {
    "family": pl.String,
    "from_k": pl.Int64,
    "to_k": pl.Int64,
    "quality": pl.Float64,
    "latency_ms": pl.Float64,
    "cost": pl.Float64,
    "same_latency": pl.Boolean,
    "per_ms": pl.Float64,
    "per_dollar": pl.Float64,
    "told_apart": pl.Boolean,
}


def marginal(table: pl.DataFrame, results: Results, measure: str) -> pl.DataFrame:
    """Return what each step to a larger pool adds, in families that differ in K alone.

    Δquality, Δlatency and Δcost from one K to the next; quality per added millisecond where the
    step is slower by more than the jitter, per added dollar where it costs more. `told_apart` is
    true if the 95% interval of the paired difference excludes 0; null where that is not known.
    """
    steps = []
    with_pool = table.filter(pl.col("k").is_not_null()).sort("k", "cost", maintain_order=True)
    for _, group in with_pool.group_by("family", maintain_order=True):
        one_per_k = group.unique("k", keep="first", maintain_order=True)
        steps += list(pairwise(one_per_k.iter_rows(named=True)))
    families = {family: at for at, family in enumerate(table["family"].unique(maintain_order=True))}
    steps.sort(key=lambda step: families[step[0]["family"]])
    names = [(after["configuration"], before["configuration"]) for before, after in steps]
    intervals = results.paired_intervals(names, measure)
    rows = [
        _marginal_row(before, after, interval)
        for (before, after), interval in zip(steps, intervals, strict=True)
    ]
    return pl.DataFrame(rows, schema=_MARGINAL_SCHEMA)


def _marginal_row(before: Row, after: Row, interval: Interval | None) -> Row:
    gain, slower, dearer = (after[key] - before[key] for key in ("quality", "latency", "cost"))
    is_same_latency = abs(slower) <= shared_jitter(before, after)
    return {
        "family": before["family"],
        "from_k": before["k"],
        "to_k": after["k"],
        "quality": gain,
        "latency_ms": slower,
        "cost": dearer,
        "same_latency": is_same_latency,
        "per_ms": gain / slower if slower > 0 and not is_same_latency else None,
        "per_dollar": gain / dearer if dearer > 0 else None,
        # NaN, where fewer than six queries differ, does not exclude 0.
        "told_apart": None if interval is None else interval[0] > 0 or interval[1] < 0,
    }
