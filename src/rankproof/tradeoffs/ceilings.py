"""PROC@K: the highest value of a measure that any reordering of a pool of candidates reaches.

A low score has two causes: passages that were not retrieved, and retrieved ones in a poor order.
PROC separates them:

    ordering headroom    PROC − actual    what a perfect reranker of the same candidates would add
    retrieval headroom   ideal − PROC     what no order adds, because the candidates lack it

where the ideal is the best order of all graded passages. If all candidates tie, every order of them
is possible, so that PROC is the maximum of the measure over the orders of a single tie group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import polars as pl

from rankproof.data import QrelsLike, RunLike, read_qrels, read_run
from rankproof.data.tables import Qrels, Run
from rankproof.data.ties import Order, Pool, check_order
from rankproof.evaluation import Policy, evaluate_tables
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, MeasureError
from rankproof.measures import REGISTRY, Measure, parse
from rankproof.measures.sets import rarity_weights
from rankproof.presentation.charts import Chart, Range, RangeChart
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain_fields
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Table
from rankproof.statistics.intervals import (
    Interval,
    mean_intervals,
    percent_intervals,
    possible_range,
)
from rankproof.statistics.labels import AHEAD, BEHIND, difference_labels
from rankproof.statistics.resampling import RESAMPLES, resampled_means
from rankproof.tradeoffs.candidates import candidates
from rankproof.tradeoffs.headroom import (
    SLIGHT,
    ceiling_words,
    full_ceiling_table,
    headroom_summary,
    headroom_table,
    run_notes,
)
from rankproof.unjudged.judged_share import attach_judged, with_judged

MEASURES = ("RAnWG", "NRecall4")
CUTOFFS = (10, 20, 30)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One measure: what the run reaches, its pool allows, and all graded passages allow.

    Means over the queries where the measure is defined; intervals are 95% over them.

    >>> from rankproof.tradeoffs import ceilings
    >>> run, qrels = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 1, "b": 5}}
    >>> found = ceilings(run, qrels, ["RAnWG@1"])["RAnWG@1"]
    >>> found.actual, found.proc
    (0.0, 1.0)
    """

    measure: Measure
    actual: float  # expected over ties
    actual_min: float
    actual_max: float
    proc: float  # of the pool under the stated tie-break
    proc_min: float | None  # over every tie-break at the end of the pool; None for a union
    proc_max: float | None
    ideal: float  # of all graded passages: 1 for a normalised measure
    ratio: float  # mean over queries of actual/proc, where proc > 0
    ratio_queries: int
    queries: int
    actual_ci: Interval
    proc_ci: Interval
    percent_ci: Interval
    ordering_ci: Interval
    retrieval_ci: Interval
    balance: int  # code of the label of ordering − retrieval (statistics/labels.py)
    left_ci: Interval  # of ordering + retrieval
    judged: float = math.nan  # share of the run's top k that has a judgement

    @property
    def percent(self) -> float:
        """%PROC: mean actual over mean PROC, in percent."""
        return percent_of(self.actual, self.proc)

    @property
    def ordering(self) -> float:
        """What a perfect order of the same pool would add."""
        return self.proc - self.actual

    @property
    def retrieval(self) -> float:
        """What the pool lacks: no order of it can add this."""
        return self.ideal - self.proc

    @property
    def knob(self) -> str:
        """Where there is more to gain: "ordering", "pool", "either" or "neither"."""
        is_perfect = self.queries > 1 and self.actual == self.ideal
        if is_perfect or self.left_ci[1] < SLIGHT:
            return "neither"
        return {AHEAD: "ordering", BEHIND: "pool"}.get(self.balance, "either")

    def words(self) -> str:
        """What better ranking and better retrieval could add, in a sentence."""
        return ceiling_words(self)

    def to_dict(self) -> dict[str, Any]:
        """All values and intervals, as JSON has them."""
        return plain_fields(
            *(self, "actual", "actual_min", "actual_max", "proc", "proc_min", "proc_max", "ideal"),
            *("percent", "ratio", "ordering", "retrieval", "actual_ci", "proc_ci", "percent_ci"),
            *("ordering_ci", "retrieval_ci", "knob", "judged", "queries", "ratio_queries"),
        )


def percent_of(part: float, whole: float) -> float:
    """Return a part in percent of the whole; NaN if the whole is 0."""
    return 100.0 * part / whole if whole > 0 else math.nan


@dataclass(frozen=True, slots=True)
class Ceilings(Displayed):
    """The ceilings of one run; `ceilings["RAnWG@10"].proc`.

    >>> from rankproof.tradeoffs import ceilings
    >>> run, qrels = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 1, "b": 5}}
    >>> found = ceilings(run, qrels, ["RAnWG@1"])
    >>> list(found.measures)
    [RAnWG@1]
    """

    kind: ClassVar[str] = "ceilings"

    name: str
    pool: str  # whose candidates may be reordered
    depth: int | None
    measures: dict[Measure, Ceiling]
    cut: int  # queries whose pool ends inside a tie group
    outside: int  # documents in the top K of the run, K the largest, that the pool lacks
    missing: int  # judged queries that the run lacks
    seed: int
    own: bool = False  # the candidates hold every judged passage: PROC is the ideal
    guessed: tuple[str, ...] = ()  # what was guessed when the files were read

    def __getitem__(self, measure: str | Measure) -> Ceiling:
        key = parse(measure)
        if key not in self.measures:
            raise KeyError(
                f"{key} was not computed; there are {', '.join(map(str, self.measures))}"
            )
        return self.measures[key]

    def summary(self) -> Summary:
        """What better ranking and better retrieval could add."""
        return headroom_summary([self])

    def tables(self) -> list[Table]:
        """The score of each measure, and what each improvement could add."""
        return [headroom_table([self])]

    def full_tables(self) -> list[Table]:
        """Every value of each measure."""
        return [full_ceiling_table([self])]

    def charts(self) -> list[Chart]:
        """What the run reaches and what its pool allows, a row for each measure."""
        rows = [Range(str(m), c.actual, c.actual, c.proc) for m, c in self.measures.items()]
        caption = "Dot: the run. Bar: up to the best order of the same candidates (PROC)."
        return [RangeChart(f"Ceilings of {self.name}", rows, "score", caption=caption)]

    def notes(self) -> list[str]:
        """What changes how the ceilings are read."""
        return run_notes(self)

    def to_dict(self) -> dict[str, Any]:
        """The run, its pool and the ceilings, as JSON has them."""
        return plain_fields(
            self, "name", "pool", "depth", "cut", "outside", "missing", "own", "seed", "measures"
        )


def ceilings(
    run: RunLike,
    qrels: QrelsLike,
    measures: str | Measure | Iterable[str | Measure] = MEASURES,
    at: int | Sequence[int] = CUTOFFS,
    pool: RunLike | Sequence[RunLike] | None = None,
    pool_depth: int | None = None,
    *,
    order: Order = "input",
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Ceilings:
    """What a run reaches beside the best any order of its candidates reaches.

    The candidates are the run's own documents, or those of `pool`: another run, or a list of runs
    whose documents are united. `pool_depth` takes the top so many of each. A measure without a
    cutoff is computed at every K of `at`. PROC is normalised by all graded passages, as the
    measure itself is. `order` breaks ties at the end of a pool.

    >>> from rankproof.tradeoffs import ceilings
    >>> run, qrels = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 1, "b": 5}}
    >>> found = ceilings(run, qrels, ["RAnWG@1"])
    >>> found["RAnWG@1"].ordering
    1.0
    """
    check_order(order)
    if pool_depth is not None and pool_depth < 1:
        raise InputError(f"pool depth {pool_depth} is below 1", remedy="take the top 100, say")
    judgments, own_run = read_qrels(qrels), read_run(run)
    parsed = measures_at(measures, at)
    pools = [own_run] if pool is None else _read_pools(pool)
    ranks = [candidates(p, order) for p in pools]
    united = pl.concat([_top(frame, pool_depth) for frame in ranks])
    policy = Policy(order=order)
    actual = attach_judged(evaluate_tables(own_run, judgments, with_judged(parsed), policy), parsed)
    proc = _best_order(united, judgments, parsed, policy)
    ideal = _best_order(judgments.to_frame(), judgments, parsed, policy)
    cut_queries = pl.concat([frame.filter(_straddles(pool_depth))["query"] for frame in ranks])
    extremes: dict[Measure, tuple[Float, Float]] = {}  # not known of a union
    if len(pools) == 1:
        extremes = {measure: (values, values) for measure, values in proc.items()}
        if len(cut_queries):
            extremes = _extremes(ranks[0], judgments, parsed, policy, pool_depth)
    values = {m: (actual.outcomes[m].in_mean(), proc[m], ideal[m]) for m in parsed}
    columns = np.stack([column for three in values.values() for column in three], axis=1)
    means = resampled_means(columns, seed, resamples)  # all measures from the same draws
    by_measure = {}
    for place, measure in enumerate(parsed):
        outcomes = actual.outcomes[measure]
        ceiling = _summarize(
            measure,
            values[measure],
            over_ties=(outcomes.min, outcomes.max),
            proc_extremes=extremes.get(measure),
            means=means[:, 3 * place : 3 * place + 3],
        )
        by_measure[measure] = replace(ceiling, judged=actual.judged[measure])
    deepest = max(m.cutoff or 0 for m in parsed)
    top = _top(candidates(own_run, order), deepest or None)
    outside = top.join(united, on=["query", "doc"], how="anti")
    notes = (*judgments.notes, *(note for p in (own_run, *pools) for note in p.notes))
    return Ceilings(
        name=own_run.name,
        pool=" + ".join(p.name for p in pools),
        depth=pool_depth,
        measures=by_measure,
        cut=cut_queries.n_unique(),
        outside=len(outside.join(judgments.to_frame(), on="query", how="semi")),
        missing=actual.missing,
        seed=seed,
        own=holds_all(united, judgments),
        guessed=tuple(dict.fromkeys(notes)),
    )


def holds_all(pool: pl.DataFrame, qrels: Qrels) -> bool:
    """True if every judged passage is among the candidates."""
    return not len(qrels.to_frame().join(pool, on=["query", "doc"], how="anti"))


def measures_at(
    measures: str | Measure | Iterable[str | Measure], at: int | Sequence[int]
) -> list[Measure]:
    """Return each measure at each cutoff; one that has its own cutoff keeps it."""
    several = [measures] if isinstance(measures, str | Measure) else list(measures)
    cutoffs = [at] if isinstance(at, int) else list(at)
    if not several or not cutoffs:
        raise InputError("no measure or no cutoff was named", remedy="name RAnWG and 10, say")
    with_cutoffs: dict[Measure, None] = {}
    for measure in several:
        # A measure without a cutoff may not be readable: the text gets its cutoff first.
        if isinstance(measure, Measure) and measure.cutoff is None:
            with_cutoffs |= {measure @ k: None for k in cutoffs}
        elif isinstance(measure, Measure) or "@" in measure:
            with_cutoffs[parse(measure)] = None
        else:
            with_cutoffs |= {parse(f"{measure}@{k}"): None for k in cutoffs}
    for measure in with_cutoffs:
        if not measure.definition.best_by_grade:
            better = ", ".join(name for name, d in REGISTRY.items() if d.best_by_grade)
            raise MeasureError(f"{measure} has no ceiling", remedy=f"use one of {better}")
    return list(with_cutoffs)


def _read_pools(pool: Any) -> list[Run]:
    """Read one run, or several in a list; a list of (query, doc, score) rows is one run."""
    is_several = isinstance(pool, list | tuple) and not any(
        isinstance(p, list | tuple) for p in pool
    )
    runs = [read_run(p) for p in (pool if is_several else [pool])]
    if not runs:
        raise InputError("the list of pools is empty", remedy="name a run, or leave it out")
    return runs


def _top(ranks: pl.DataFrame, depth: int | None) -> pl.DataFrame:
    """Return query and doc of the first `depth` of each list; None: all."""
    top = ranks if depth is None else ranks.filter(pl.col("rank") <= depth)
    return top.select("query", "doc")


def _straddles(depth: int | None) -> pl.Expr:
    """True for a document whose tie group continues past the end of the pool."""
    if depth is None:
        return pl.lit(False)
    return (pl.col("first") <= depth) & (pl.col("last") > depth)


def _best_order(
    pool: pl.DataFrame, qrels: Qrels, measures: Sequence[Measure], policy: Policy
) -> dict[Measure, Float]:
    """Return (Q,) per measure the best that any order of the candidates reaches."""
    distinct = pool.select("query", "doc").unique(maintain_order=True)
    tied = read_run(distinct.with_columns(score=pl.lit(0.0)), name="pool")
    evaluation = evaluate_tables(tied, qrels, measures, policy)
    return {measure: outcomes.max for measure, outcomes in evaluation.outcomes.items()}


def _extremes(
    ranks: pl.DataFrame,
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    depth: int | None,
) -> dict[Measure, tuple[Float, Float]]:
    """Return (Q,) PROC if the tie at the end of the pool admits its worst, and its best, documents.

    The best order of a pool only gains from a document of higher gain, so these are the extremes.
    Gain rises with the grade, except for RAnWG, where a rare 3 may outweigh a 4.
    """
    reached = ranks.filter(pl.col("first") <= depth)
    by_constants: dict[Any, list[Measure]] = {}  # measures with the same gains
    for measure in measures:
        constants = measure.resolved if measure.name == "RAnWG" else None
        by_constants.setdefault(constants, []).append(measure)
    extremes: dict[Measure, tuple[Float, Float]] = {}
    for constants, several in by_constants.items():
        gain = qrels.grade if constants is None else graded_weights(qrels, several[0])
        gains = qrels.to_frame().select("query", "doc", gain=pl.Series(gain).cast(pl.Float64))
        graded = reached.join(gains, on=["query", "doc"], how="left", maintain_order="left")
        graded = graded.with_columns(pl.col("gain").fill_null(0.0))
        worst, best = (
            _best_order(_admit_by_gain(graded, depth, descending), qrels, several, policy)
            for descending in (False, True)
        )
        extremes |= {measure: (worst[measure], best[measure]) for measure in several}
    return extremes


def _admit_by_gain(graded: pl.DataFrame, depth: int | None, descending: bool) -> pl.DataFrame:
    """Return the pool if the tie at its end is broken by gain."""
    place = pl.col("gain").rank("ordinal", descending=descending).over("query", "first")
    fits = pl.col("first") + place.cast(pl.Int64) - 1 <= depth
    return graded.filter((pl.col("last") <= depth) | (_straddles(depth) & fits))


def graded_weights(qrels: Qrels, measure: Measure) -> Float:
    """Return (N,) the weight that RAnWG with these parameters gives each judged passage."""
    pool = Pool(qrels.start, int(qrels.grade.max(initial=0)), qrels.grade)
    weight = rarity_weights(pool, **measure.parameters)
    return weight[pool.query, qrels.grade]


def _summarize(
    measure: Measure,
    values: tuple[Float, Float, Float],
    *,
    over_ties: tuple[Float, Float],
    proc_extremes: tuple[Float, Float] | None,
    means: Float,
) -> Ceiling:
    """Summarize values per query (actual, PROC, ideal) and their resampled means (R, 3)."""
    actual, proc, ideal = values
    defined = ~np.isnan(actual)
    if not defined.any():
        remedy = "check the judgements, or leave the measure out"
        if (scale := measure.definition.grades) is not None:
            remedy = (
                f"it reads grades {scale[0]} to {scale[1]}, and finds none that is relevant: "
                "check the judgements, or name another measure, such as -m nDCG@10"
            )
        raise InputError(f"{measure} is defined on no query", remedy=remedy)

    def mean(values: Float) -> float:
        return math.fsum(values[defined]) / int(defined.sum())

    def ends(values: Float) -> Interval:
        low, high = mean_intervals(values[None], measure.upper)[0]
        return (float(low), float(high))

    left = ends(ideal - actual)

    def part(values: Float) -> Interval:
        """The interval of a part of what is left, which is at most all that is left."""
        low, high = ends(values)
        return (low, min(high, left[1]))

    reached = defined & (proc > 0)
    ratios = actual[reached] / proc[reached]
    actual_means, proc_means, _ = means.T
    with np.errstate(invalid="ignore", divide="ignore"):
        percent = np.where(proc_means > 0, 100.0 * actual_means / proc_means, np.nan)
    excess = ((proc - actual) - (ideal - proc))[None]
    least, most = possible_range(np.stack([actual, ideal]), measure.upper)
    balance = difference_labels(excess, most - least, None, 0.0)
    low, high = percent_intervals(percent[:, None], actual[None], proc[None])[:, 0].tolist()
    return Ceiling(
        measure=measure,
        actual=mean(actual),
        actual_min=mean(over_ties[0]),
        actual_max=mean(over_ties[1]),
        proc=mean(proc),
        proc_min=None if proc_extremes is None else mean(proc_extremes[0]),
        proc_max=None if proc_extremes is None else mean(proc_extremes[1]),
        ideal=mean(ideal),
        ratio=math.fsum(ratios) / len(ratios) if len(ratios) else math.nan,
        ratio_queries=len(ratios),
        queries=int(defined.sum()),
        actual_ci=ends(actual),
        proc_ci=ends(proc),
        percent_ci=(low, high),
        ordering_ci=part(proc - actual),
        retrieval_ci=part(ideal - proc),
        balance=int(balance[0]),
        left_ci=left,
    )
