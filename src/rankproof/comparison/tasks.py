"""Compare runs over several collections, each with judgments of its own, by the mean over them.

For T tasks with mean differences D_t, their variances V_t and degrees of freedom ν_t,

    D = Σ D_t/T,   V = Σ V_t/T²,   ν = (ΣV_t)²/Σ(V_t²/ν_t)      (Welch and Satterthwaite)

and D ± t_ν·√V is the interval I. Queries (or their groups) are the sample; the tasks are those
named, and not one. For the family, query q of task t with n_t of N queries has the value

    z_q = M + (x_q − M_t)·N/(T·n_t)

whose mean over all queries is the macro mean M; max-T of its resamples gives the critical value c,
and F is I, wider by T_ν⁻¹(Φ(c))/t_ν. A run that lacks a task has no macro mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import polars as pl

from rankproof.comparison.annotated import family_width
from rankproof.comparison.differences import aligned
from rankproof.comparison.repeats import merge_repeats
from rankproof.comparison.verdict import Verdict
from rankproof.data.query_groups import number_groups
from rankproof.evaluation import Evaluation
from rankproof.evaluation.checks import merge_notes
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, first_few
from rankproof.foundation.phrasing import amount, plural, signed
from rankproof.measures import Measure
from rankproof.presentation.charts import Chart, Range, range_charts
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Cell, Column, Marked, Table
from rankproof.statistics.distributions import t_quantile
from rankproof.statistics.family import critical_values
from rankproof.statistics.groups import Groups, means_of
from rankproof.statistics.intervals import (
    CONFIDENCE,
    MIN_QUERIES,
    count_differing,
    possible_range,
    queries_needed_range,
)
from rankproof.statistics.labels import label_codes
from rankproof.statistics.ranks import ranks_of
from rankproof.statistics.resampling import JOINT_RESAMPLES, resampled_means

_MARK = "*"


@dataclass(frozen=True, slots=True)
class MacroMeans:
    """The runs (R,) that have all tasks (T,), on one measure; the first run is the best."""

    runs: tuple[str, ...]
    means: Float  # (R,) mean over tasks
    by_task: Float  # (R, T)
    rank: Float  # (R,) mean rank over tasks
    rank_ci: Float  # (R, 2)
    borda: Float  # (R,) runs beaten, ties ½, sum over tasks
    borda_ci: Float  # (R, 2)
    verdicts: dict[tuple[str, str], Verdict]  # by pair, each in both orders


@dataclass(frozen=True, slots=True, repr=False)
class Collection(Displayed):
    """Runs over several tasks: macro means, Borda counts, mean ranks, and verdicts.

    >>> runs = {"a": "try/saturated.trec", "b": "try/plain.trec"}
    >>> tasks = {"one": ("try/qrels.txt", runs), "two": ("try/qrels.txt", runs)}
    >>> collection = rp.leaderboard(tasks=tasks, measures="nDCG@5")
    >>> collection.measures[rp.nDCG @ 5].runs
    ('b', 'a')
    """

    kind: ClassVar[str] = "collection"

    tasks: dict[str, tuple[Evaluation, ...]]
    measures: dict[Measure, MacroMeans]
    seed: int

    def verdict(self, a: str, b: str, measure: Measure) -> Verdict:
        """Return the verdict on the macro means of two runs."""
        return self.measures[measure].verdicts[a, b]

    @property
    def incomplete(self) -> dict[str, list[str]]:
        """The tasks that runs lack, for runs that lack some."""
        names = dict.fromkeys(e.name for runs in self.tasks.values() for e in runs)
        lacks = {n: [t for t, runs in self.tasks.items() if n not in _names(runs)] for n in names}
        return {name: tasks for name, tasks in lacks.items() if tasks}

    @property
    def warnings(self) -> list[str]:
        """What the readers assumed."""
        return merge_notes(e for runs in self.tasks.values() for e in runs)

    # ------------------------------------------------------------------------------ words

    def summary(self) -> Summary:
        """The best run on each measure, and which are not significantly worse."""
        notes = [
            f"{name} has no run on {first_few(tasks)}: no macro mean."
            for name, tasks in self.incomplete.items()
        ]
        notes.append("The tasks are those named, not a sample of others.")
        if any(
            self._is_worse(s, row) for s in self.measures.values() for row in range(len(s.runs))
        ):
            notes.append(
                f"{_MARK} significantly worse than the best, over all comparisons together."
            )
        answers = [self._answer(measure, means) for measure, means in self.measures.items()]
        first = next(iter(self.tasks.values()))[0]
        return Summary.of(
            "\n".join(answers), notes, details=[*first.policy.definitions(first.dtype), *_METHOD]
        )

    def _answer(self, measure: Measure, s: MacroMeans) -> str:
        over = f"{measure}, mean of {plural(len(self.tasks), 'task')}"
        if len(s.runs) == 2:
            mean = f"the mean {measure} of {plural(len(self.tasks), 'task')}"
            return s.verdicts[s.runs[0], s.runs[1]].sentence(s.runs[0], s.runs[1], mean)
        rivals = [name for row, name in enumerate(s.runs) if row and not self._is_worse(s, row)]
        if not rivals:
            return f"{over}: {s.runs[0]} is best, significantly ahead of all others."
        if len(rivals) == len(s.runs) - 1:
            return f"{over}: {s.runs[0]} is best, not significantly ahead of any other."
        return f"{over}: {s.runs[0]} is best, not significantly ahead of {first_few(rivals)}."

    @staticmethod
    def _is_worse(s: MacroMeans, row: int) -> bool:
        return row > 0 and s.verdicts[s.runs[0], s.runs[row]].label == "ahead"

    # ------------------------------------------------------------------------------ tables

    def tables(self) -> list[Table]:
        """A row for each run, best first."""
        return [self._table(measure, s) for measure, s in self.measures.items()]

    def _table(self, measure: Measure, s: MacroMeans) -> Table:
        columns = [
            Column("#"),
            Column("run", "text", folds=True),
            Column(f"mean {measure}"),
            Column("behind best (95% CI)", "text"),
            Column("Borda", "text"),
            Column("mean rank", "text"),
        ]
        rank = ranks_of(measure.sign * s.means)
        rows: list[list[Cell]] = [
            [
                int(rank[row]),
                name,
                Marked(float(s.means[row]), bool(rank[row] == 1)),
                "" if not row else self._distance(s, row),
                f"{s.borda[row]:g} ({s.borda_ci[row][0]:g}–{s.borda_ci[row][1]:g})",
                f"{s.rank[row]:.1f} ({s.rank_ci[row][0]:.1f}–{s.rank_ci[row][1]:.1f})",
            ]
            for row, name in enumerate(s.runs)
        ]
        rows += [[None, name, None, "", "", ""] for name in self.incomplete]
        return Table(columns, rows)

    def _distance(self, s: MacroMeans, row: int) -> str:
        verdict = s.verdicts[s.runs[0], s.runs[row]]
        mark = _MARK if self._is_worse(s, row) else ""
        if verdict.family_ci is None:
            return f"{amount(abs(verdict.estimate))}{mark}"
        sign = 1 if verdict.estimate >= 0 else -1
        low, high = sorted(sign * end for end in verdict.family_ci)
        text = f"{low:.4f}–{high:.4f}" if low >= 0 else f"{signed(low)} to {signed(high)}"
        return f"{abs(verdict.estimate):.4f} ({text}){mark}"

    def full_tables(self) -> list[Table]:
        """A row for each run and measure, with its mean on every task."""
        columns = [Column("run", "text"), Column("measure", "text"), Column("mean")]
        columns += Column.each("borda", "mean rank", *self.tasks)
        names = [*dict.fromkeys(e.name for runs in self.tasks.values() for e in runs)]
        rows: list[list[Cell]] = []
        for measure, s in self.measures.items():
            for name in sorted(names, key=lambda n: s.runs.index(n) if n in s.runs else len(names)):
                row: list[Cell] = [name, str(measure), None, None, None]
                if name in s.runs:
                    at = s.runs.index(name)
                    row[2:] = [float(x[at]) for x in (s.means, s.borda, s.rank)]
                rows.append(
                    [*row, *(_mean_of(runs, name, measure) for runs in self.tasks.values())]
                )
        return [Table(columns, rows)]

    def charts(self) -> list[Chart]:
        """How far each run is behind the best, with its interval."""
        rows, panels = [], []
        for measure, s in self.measures.items():
            for name in s.runs[1:]:
                verdict = s.verdicts[name, s.runs[0]]
                rows.append(Range(name, verdict.estimate, *(verdict.ci or (None, None))))
                panels.append(str(measure))
        return range_charts(rows, "Distance to the best", "difference", panels=panels, zero=True)

    def figures(self) -> dict[str, float]:
        """The macro means, as "run/measure"."""
        return {
            f"{name}/{measure}": float(s.means[row])
            for measure, s in self.measures.items()
            for row, name in enumerate(s.runs)
        }

    def to_dict(self) -> dict[str, Any]:
        """What `--format json` prints."""
        return {
            "tasks": {
                task: {e.name: {str(m): plain(e[m].expected) for m in self.measures} for e in runs}
                for task, runs in self.tasks.items()
            },
            "measures": {str(m): _measure_dict(s) for m, s in self.measures.items()},
            "incomplete": self.incomplete,
            "policy": next(iter(self.tasks.values()))[0].policy.to_dict(),
            "seed": self.seed,
        }

    def __repr__(self) -> str:
        return f"<{plural(len(self.tasks), 'task')}: {', '.join(self.tasks)}>"


_METHOD = (
    "mean: of the means of all tasks; 95% CI over the queries of each, for the tasks named.",
    "Borda: runs beaten, ties count ½, sum over tasks. Its 95% CI, and that of mean ranks, is from "
    "resampled queries.",
)


def _measure_dict(s: MacroMeans) -> dict[str, Any]:
    """Return the values on one measure as JSON has them."""
    runs = [
        {
            "name": name,
            "mean": plain(float(s.means[row])),
            "mean_rank": plain(float(s.rank[row])),
            "mean_rank_ci": plain(s.rank_ci[row].tolist()),
            "borda": plain(float(s.borda[row])),
            "borda_ci": plain(s.borda_ci[row].tolist()),
        }
        for row, name in enumerate(s.runs)
    ]
    pairs = [
        {"a": a, "b": b, "verdict": verdict.to_dict()}
        for (a, b), verdict in s.verdicts.items()
        if s.runs.index(a) < s.runs.index(b)
    ]
    return {"runs": runs, "pairs": pairs}


def _names(runs: Sequence[Evaluation]) -> list[str]:
    return [evaluation.name for evaluation in runs]


def _mean_of(runs: Sequence[Evaluation], name: str, measure: Measure) -> float | None:
    """Return the mean of a run on one task; None if it lacks the task."""
    return next((e[measure].expected for e in runs if e.name == name), None)


# ------------------------------------------------------------------------------------ columns


def compare_tasks(
    tasks: Mapping[str, Sequence[Evaluation]],
    *,
    seed: int = 0,
    equal_within: float | None = None,
    groups: Mapping[str, Mapping[str, int] | None] | None = None,
) -> Collection:
    """Return the macro means and verdicts of runs on several tasks; repeats are averaged.

    `groups` numbers the sources of each task's queries.
    """
    merged = {task: tuple(merge_repeats(runs)) for task, runs in tasks.items()}
    named = [_names(runs) for runs in merged.values()]
    complete = [name for name in dict.fromkeys(chain(*named)) if all(name in x for x in named)]
    if len(complete) < 2:
        raise InputError(
            f"{plural(len(complete), 'run has', 'runs have')} all of {plural(len(merged), 'task')}",
            remedy="name two runs or more alike in every task",
        )
    runs = [
        [next(e for e in task if e.name == name) for name in complete] for task in merged.values()
    ]
    numbers = [groups.get(task) if groups else None for task in merged]
    measures = tuple(runs[0][0].outcomes)
    tables = {
        m: [_task_values(task, m, own) for task, own in zip(runs, numbers, strict=True)]
        for m in measures
    }
    first, second = np.triu_indices(len(complete), 1)
    pooled = [_pooled(tables[m]) for m in measures]
    # All measures have the same queries, those of some undefined.
    group_of = np.concatenate(
        [own + 1_000_000_000 * t for t, (_, own) in enumerate(tables[measures[0]])]
    )
    critical = critical_values(pooled, first, second, group_of, seed)
    macro = {
        m: _macro_means(m, complete, tables[m], limits, seed=seed, equal_within=equal_within)
        for m, limits in zip(measures, critical, strict=True)
    }
    return Collection(merged, macro, seed)


def _task_values(
    runs: Sequence[Evaluation], measure: Measure, groups: Mapping[str, int] | None
) -> tuple[Float, Groups]:
    """Return (R, Q) values, NaN on queries that not all runs average, and (Q,) groups."""
    values = aligned(runs, measure)["expected"]
    values[:, np.isnan(values).any(axis=0)] = np.nan
    if np.isnan(values).all():
        raise InputError(f"{measure} is defined on no query that all runs of a task share")
    queries = pl.concat([e.queries for e in runs]).unique().sort()
    numbers = number_groups(queries, groups)
    return values, np.arange(len(queries)) if numbers is None else numbers


def _pooled(tables: Sequence[tuple[Float, Groups]]) -> Float:
    """Return (R, N) the values z of all queries, whose means are the macro means."""
    total = sum(int((~np.isnan(values[0])).sum()) for values, _ in tables)
    means = [np.nanmean(values, axis=1, keepdims=True) for values, _ in tables]
    macro = np.mean(means, axis=0)
    weights = [total / len(tables) / (~np.isnan(values[0])).sum() for values, _ in tables]
    parts = [
        macro + (values - mean) * weight
        for (values, _), mean, weight in zip(tables, means, weights, strict=True)
    ]
    return np.concatenate(parts, axis=1)


def _macro_means(
    measure: Measure,
    names: Sequence[str],
    tables: Sequence[tuple[Float, Groups]],
    critical: Float,
    *,
    seed: int,
    equal_within: float | None,
) -> MacroMeans:
    """Return the runs, best first, with the verdicts on every pair."""
    by_task = np.stack([np.nanmean(values, axis=1) for values, _ in tables], axis=1)
    means = by_task.mean(axis=1)
    rank, borda, rank_ci, borda_ci = _ranks(measure.sign, by_task, tables, seed)
    order = np.argsort(-measure.sign * means, kind="stable")
    first, second = np.triu_indices(len(names), 1)
    verdicts = {}
    for row, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        columns = _pair_columns(tables, a, b, float(critical[row]), measure)
        code = _label(columns, measure.sign, equal_within)
        values = columns | {"label": float(code), "reasons": float(code == 0)}
        verdict = Verdict.from_columns(values, equal_within)
        verdicts[names[a], names[b]] = verdict
        verdicts[names[b], names[a]] = verdict.reversed()
    return MacroMeans(
        runs=tuple(names[row] for row in order.tolist()),
        means=means[order],
        by_task=by_task[order],
        rank=rank[order],
        rank_ci=rank_ci[order],
        borda=borda[order],
        borda_ci=borda_ci[order],
        verdicts=verdicts,
    )


def _label(columns: Mapping[str, float], sign: int, equal_within: float | None) -> int:
    """Return the code of a pair's label."""
    family = np.array([[columns["family_low"], columns["family_high"]]])
    differing = np.array([int(columns["differing_units"])])
    return int(label_codes(family, differing, np.full((1, 2), np.nan), sign, equal_within)[0])


def _pair_columns(
    tables: Sequence[tuple[Float, Groups]], a: int, b: int, critical: float, measure: Measure
) -> dict[str, float]:
    """Return the columns of a verdict on run a against run b."""
    parts = []
    queries = differing = units = differing_queries = 0
    for values, groups in tables:
        difference = (values[a] - values[b])[None]
        means = means_of(difference, groups)
        parts.append((float(means.mean[0]), float(means.error[0]) ** 2, float(means.df[0])))
        queries += int(means.n[0])
        units += int(means.units[0])
        differing += int(count_differing(difference, groups)[0])
        differing_queries += int(count_differing(difference)[0])
    mean, variance, df = combine_tasks(parts)
    low = high = family_low = family_high = needed_low = needed_high = math.nan
    if differing >= MIN_QUERIES and not math.isnan(variance):
        least, most = possible_range(np.concatenate([v for v, _ in tables], axis=1), measure.upper)
        limit = 1.0 if most - least <= 1.0 else math.inf
        half = t_quantile((1 + CONFIDENCE) / 2, df) * math.sqrt(variance)
        wide = half * family_width(critical, df)
        low, high = max(mean - half, -limit), min(mean + half, limit)
        family_low, family_high = max(mean - wide, -limit), min(mean + wide, limit)
        needed_low, needed_high = queries_needed_range(
            np.array([low, high]),
            np.array(math.sqrt(variance * queries)),
            np.array(differing_queries / queries),
            np.array(queries),
        ).tolist()
    return {
        "expected": mean,
        "low": low,
        "high": high,
        "worst_exact": 0.0,
        "family_low": family_low,
        "family_high": family_high,
        "needed_low": needed_low,
        "needed_high": needed_high,
        "queries": queries,
        "units": units,
        "differing_units": differing,
        **dict.fromkeys(("only_a", "only_b", "fewer_a", "fewer_b"), 0.0),
    }


def combine_tasks(parts: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Return mean, variance and degrees of freedom of the mean of tasks' means.

    >>> from rankproof.comparison.tasks import combine_tasks
    >>> combine_tasks([(0.2, 0.01, 9.0), (0.4, 0.01, 9.0)])
    (0.30000000000000004, 0.005, 18.0)
    """
    mean = math.fsum(d for d, _, _ in parts) / len(parts)
    total = math.fsum(v for _, v, _ in parts)
    squares = math.fsum(v * v / df for _, v, df in parts if v > 0)
    return mean, total / len(parts) ** 2, total * total / squares if squares else math.inf


def _ranks(
    sign: int, by_task: Float, tables: Sequence[tuple[Float, Groups]], seed: int
) -> tuple[Float, Float, Float, Float]:
    """Return (R,) mean ranks and Borda counts, and (R, 2) their intervals over queries.

    Those of m + √2·(m* − m), m* the means of resamples inside each task (`statistics.ranks`).
    """
    ranks, counts = [], []
    for task, (values, groups) in enumerate(tables):
        observed = by_task[:, task]
        drawn = resampled_means(values.T, seed + task, JOINT_RESAMPLES, groups)
        drawn = np.concatenate([observed[None], observed + math.sqrt(2.0) * (drawn - observed)])
        ranks.append(ranks_of(sign * drawn))
        is_ahead = sign * (drawn[:, :, None] - drawn[:, None, :])
        counts.append(
            (np.sign(np.where(np.abs(is_ahead) < 1e-12, 0, is_ahead)) + 1).sum(axis=2) / 2 - 0.5
        )
    mean_rank, borda = np.mean(ranks, axis=0), np.sum(counts, axis=0)

    def ends(draws: Float) -> Float:
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(draws[1:], [tail, 1 - tail], axis=0)
        return np.stack([np.fmin(low, draws[0]), np.fmax(high, draws[0])], axis=1)

    return mean_rank[0], borda[0], ends(mean_rank), ends(borda)
