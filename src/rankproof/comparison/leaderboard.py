"""Rank many runs on several measures, with intervals of ranks and significant differences.

All pairs of a measure are tested together by the randomized Tukey HSD test (Carterette 2012). If
all runs were equally good, a query's values could belong to any of them, so runs are shuffled
within each query. Two runs are significantly different if their means differ by more than the best
and the worst run do in all but 5% of the shuffles. Holm is not usable here: with 556 runs its first
step needs p < 3e-7, below the resolution of sampled sign flips. Two runs that differ on fewer than
six queries are never significantly different: copies of one of them narrow the shuffled ranges
without adding evidence.
"""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl

from rankproof.comparison.pairs import aligned, missing_note, missing_queries
from rankproof.data.sources import is_file, is_folder, is_pipe
from rankproof.evaluation import Evaluation, Policy, merge_notes
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.errors import InputError, first_few, import_extra
from rankproof.foundation.phrasing import plural
from rankproof.foundation.progress import progress
from rankproof.measures import Measure
from rankproof.presentation.charts import Chart, Range, RangeChart
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain, plain_fields
from rankproof.presentation.judged_column import NOTE, any_unjudged, bounds_clause
from rankproof.presentation.lead_wording import ahead_clause
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Cell, Column, Marked, Table
from rankproof.statistics.intervals import MIN_QUERIES, mean_intervals
from rankproof.statistics.randomization import tukey_p, tukey_ranges
from rankproof.statistics.ranks import rank_intervals, ranks_of

if TYPE_CHECKING:
    from rankproof.unjudged.bounds import WorstCases

SHUFFLES = 5_000
ALPHA = 0.05

_COLUMNS = (
    *("expected", "min", "max", "oblivious", "low", "high", "rank", "rank_low", "rank_high"),
    *("oblivious_rank", "group_first", "group_last", "wins", "ties", "losses", "judged"),
)
_EQUAL = 1e-12  # means closer than this are equal
_NOT_RUNS = (".json", ".md", ".yaml", ".yml", ".html", ".svg", ".png")  # endings in a folder


@dataclass(frozen=True, slots=True)
class Standing:
    """The values of all runs (R,) on one measure."""

    expected: Float
    min: Float  # over all orders of ties
    max: Float
    oblivious: Float
    low: Float  # 95% interval of the mean over queries
    high: Float
    rank: Int  # by expected; equal means share the best rank
    rank_low: Int  # 95% interval of the rank, over queries
    rank_high: Int
    oblivious_rank: Int
    group_first: Int  # best rank among the runs it is not significantly different from
    group_last: Int
    above: Int  # runs that are significantly better
    below: Int
    wins: Int  # queries on which it beats the best run, ties, and loses
    ties: Int
    losses: Int
    judged: Float  # share of the top k that is judged; NaN: unknown
    lowest: Float  # worst case over its unjudged documents; NaN: not requested
    highest: Float
    exact: Bool  # True if some grades reach these ends; else they are bounds
    could_lead: Bool  # True if grades might put it ahead of the best run
    lead_exact: Bool  # True if some grades do
    queries: int
    best: int  # index of the run that the others are compared with, one of those with rank 1


@dataclass(frozen=True, slots=True, repr=False)
class Leaderboard(Displayed):
    """All runs on all measures, sorted by the first measure.

    >>> runs = {"a": "try/saturated.trec", "b": "try/plain.trec"}
    >>> rp.leaderboard("try/qrels.txt", runs, ["nDCG@5"]).runs
    ('b', 'a')
    """

    kind: ClassVar[str] = "leaderboard"

    runs: tuple[str, ...]  # in the order of rank
    measures: dict[Measure, Standing]
    shuffles: int
    seed: int
    notes: tuple[str, ...] = field(default=())
    grades: str = ""  # those that unjudged documents could have, if worst cases were computed
    missing: Mapping[str, int] = field(default_factory=dict)  # judged queries, by run
    policy: Policy = field(default_factory=Policy)
    warnings: tuple[str, ...] = ()  # what the readers assumed

    def __getitem__(self, measure: str | Measure) -> Standing:
        from rankproof.measures import parse

        return self.measures[parse(measure)]

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        return f"<leaderboard of {len(self.runs)} runs on {', '.join(map(str, self.measures))}>"

    def __str__(self) -> str:
        lines = []
        for measure, s in self.measures.items():
            first = [self.runs[row] for row in np.flatnonzero(s.rank == 1)]
            leads = f"{first_few(first)} share the lead" if len(first) > 1 else f"{first[0]} leads"
            similar = int((s.group_first == 1).sum()) - len(first)
            others = f", not told apart from {plural(similar, 'other')}" if similar else ""
            unjudged = self._unjudged_phrase(s)
            lines.append(f"{measure}: {leads} with {s.expected[s.best]:.4f}{others}{unjudged}")
        return "\n".join(lines)

    def where_others_could_lead(self) -> Leaderboard:
        """Return the leaderboard without worst cases, unless they could change who leads."""
        if any(s.could_lead.any() for s in self.measures.values()):
            return self
        unknown = np.full(len(self.runs), np.nan)
        no_run = np.zeros(len(self.runs), np.bool_)
        measures = {
            m: replace(s, lowest=unknown, highest=unknown, could_lead=no_run)
            for m, s in self.measures.items()
        }
        return replace(self, measures=measures, grades="")

    def _unjudged_phrase(self, s: Standing) -> str:
        """Return what unjudged documents could change about the lead, in words."""
        others = [
            (self.runs[row], bool(s.lead_exact[row]))
            for row in np.flatnonzero(s.could_lead).tolist()
        ]
        if not others and (np.isnan(s.lowest).all() or (s.judged == 1).all()):
            return ""
        if not others:
            return "; no grade of unjudged documents puts another ahead"
        return f"; unjudged documents {ahead_clause(others)}"

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof leaderboard --format json` prints."""
        return {
            "runs": [
                {
                    "name": name,
                    "measures": {str(m): _run_values(s, row) for m, s in self.measures.items()},
                }
                for row, name in enumerate(self.runs)
            ],
            "test": "randomised Tukey HSD",
            "alpha": ALPHA,
            **plain_fields(self, "shuffles", "seed", "notes", *(["grades"] if self.grades else [])),
            **({"missing": dict(self.missing)} if self.missing else {}),
            "policy": self.policy.to_dict(),
        }

    @property
    def file_warnings(self) -> list[str]:
        """Judged queries that runs lack."""
        return missing_note(self.missing, self.policy)

    def summary(self) -> Summary:
        """The best run, and what its lead depends on."""
        return Summary(notes=str(self).splitlines())

    def tables(self) -> list[Table]:
        """The runs, best first."""
        return [self.table()]

    def tables_for(self, form: str) -> list[Table]:
        """Every value in CSV; in LaTeX and Markdown the values and marks that papers print."""
        if form == "csv":
            return [self.full_table()]
        return [self.table(full=form not in ("latex", "md"))]

    def figures(self) -> dict[str, float]:
        """The expected values, as "run/measure"."""
        return {
            f"{run}/{measure}": float(standing.expected[row])
            for measure, standing in self.measures.items()
            for row, run in enumerate(self.runs)
        }

    def table(self, full: bool = True) -> Table:
        """Return a row for each run; `full` adds details of the first measure."""
        first = next(iter(self.measures.values()))
        shares = [tuple(s.judged.tolist()) for s in self.measures.values()]
        has_unjudged = any_unjudged(share for column in shares for share in column)
        shared_judged = has_unjudged and len(set(shares)) == 1  # one column for all measures
        columns = [Column("rank"), Column("run", "text", folds=True)]
        cells: list[list[Cell]] = [first.rank.tolist(), list(self.runs)]
        for measure, s in self.measures.items():
            for column, values in self._measure_columns(measure, s):
                columns.append(column)
                cells.append(values)
            if has_unjudged and not shared_judged:
                columns.append(Column(f"judged ({measure})"))
                cells.append(s.judged.tolist())
        if shared_judged:
            columns.append(Column("judged"))
            cells.append(first.judged.tolist())
        if full:
            for column, values in self._detail_columns(first):
                columns.append(column)
                cells.append(values)
        rows = list(zip(*cells, strict=True))
        return Table(columns, rows, notes=self._table_notes(has_unjudged))

    def _measure_columns(self, measure: Measure, s: Standing) -> list[tuple[Column, list[Cell]]]:
        """Return the columns of one measure: means, and ranges over ties and unjudged documents."""
        rows = range(len(self.runs))
        columns: list[tuple[Column, list[Cell]]] = [
            (Column(str(measure)), [_marked(s, row) for row in rows])
        ]
        if (s.max - s.min > 5e-5).any():
            ends = [(f"{s.min[row]:.4f}", f"{s.max[row]:.4f}") for row in rows]
            ranges: list[Cell] = [f"{low}–{high}" if low != high else "" for low, high in ends]
            columns.append((Column(f"{measure} over ties", "text", drop=2), ranges))
        if not np.isnan(s.lowest).all():
            worst: list[Cell] = [f"{s.lowest[row]:.4f}–{s.highest[row]:.4f}" for row in rows]
            columns.append((Column(f"{measure} over holes", "text", drop=5), worst))
        return columns

    def _detail_columns(self, s: Standing) -> list[tuple[Column, list[Cell]]]:
        """Return rank intervals, groups and query counts of the first measure."""
        rows = range(len(self.runs))
        columns: list[tuple[Column, list[Cell]]] = [
            (
                Column("rank 95%", "text", drop=4),
                [_span(s.rank_low[row], s.rank_high[row]) for row in rows],
            ),
            (
                Column("group", "text", drop=6),
                [_span(s.group_first[row], s.group_last[row]) for row in rows],
            ),
            (
                Column("w/t/l", "text", drop=3),
                [f"{s.wins[row]}/{s.ties[row]}/{s.losses[row]}" for row in rows],
            ),
        ]
        if (s.oblivious_rank != s.rank).any():
            columns.append((Column("oblivious rank", drop=1), s.oblivious_rank.tolist()))
        return columns

    def _table_notes(self, has_unjudged: bool) -> list[str]:
        """Return what the columns and marks of the table mean."""
        lead, first = next(iter(self.measures.items()))
        notes = [
            f"rank, its 95% interval over queries, group and w/t/l are those of {lead}; group: "
            "the ranks that a run is not told apart from; w/t/l: queries won, tied and lost "
            f"against {self.runs[first.best]}",
            f"† worse than the best of the column, p < {ALPHA:g}: Tukey's HSD over all pairs, "
            f"{self.shuffles:,} shuffles of runs within queries; {MIN_QUERIES} queries must differ",
        ]
        if has_unjudged:
            notes.append(NOTE)
        if not np.isnan(first.lowest).all():
            bounded = bounds_clause(str(m) for m, s in self.measures.items() if not s.exact.all())
            notes.append(
                "over holes: the ends over every grade that a run's unjudged documents in the top "
                f"k could have, {self.grades}{bounded}; all other unjudged documents stay not "
                "relevant"
            )
        return [*notes, *self.notes]

    def full_table(self) -> Table:
        """A row for each run, every figure of every measure a number: for files and frames."""
        columns = [Column("run", "text")]
        columns += [
            Column(str(m) if name == "expected" else f"{m} {name.replace('_', ' ')}")
            for m in self.measures
            for name in _COLUMNS
        ]
        parts = [getattr(s, name).tolist() for s in self.measures.values() for name in _COLUMNS]
        return Table(columns, list(zip(self.runs, *parts, strict=True)))

    def to_polars(self) -> pl.DataFrame:
        """Every figure of every run as a polars frame."""
        return pl.DataFrame(self.full_table().plain())

    def to_pandas(self) -> Any:
        """Every figure of every run as a pandas frame."""
        return import_extra("pandas", "a pandas frame", "report").DataFrame(
            self.full_table().plain()
        )

    def charts(self) -> list[Chart]:
        """For each measure the means with their intervals, best first."""
        charts: list[Chart] = []
        for measure, s in self.measures.items():
            order = np.lexsort((np.arange(len(self.runs)), s.rank))[:_DRAWN]
            rows = [
                Range(
                    f"{s.rank[row]}. {self.runs[row]}",
                    float(s.expected[row]),
                    float(s.low[row]),
                    float(s.high[row]),
                    group=int(s.group_first[row] > 1),
                    tip=f"{self.runs[row]}: {s.expected[row]:.4f}, rank {s.rank[row]} "
                    f"({_span(s.rank_low[row], s.rank_high[row])})",
                )
                for row in order.tolist()
            ]
            groups = ["not significantly different from the best", "significantly different"]
            axis = f"{measure}, 95% over queries"
            charts.append(RangeChart(f"Runs by {measure}", rows, axis, groups=groups))
        return charts


_DRAWN = 40  # runs in a chart, best first
_MEANS = ("expected", "min", "max", "oblivious")
_RUN_COLUMNS = [name for name in Standing.__slots__ if name not in ("queries", "best")]


def _run_values(s: Standing, row: int) -> dict[str, Any]:
    """Return the values of one run as JSON has them."""
    own = {name: getattr(s, name)[row].item() for name in _RUN_COLUMNS}
    values = {
        **{name: own[name] for name in _MEANS},
        "ci": [own["low"], own["high"]],  # null for a single query
        "rank": own["rank"],
        "rank_ci": [own["rank_low"], own["rank_high"]],
        "oblivious_rank": own["oblivious_rank"],
        "group": [own["group_first"], own["group_last"]],
        "worse_than": own["above"],
        "better_than": own["below"],
        **{name: own[name] for name in ("wins", "ties", "losses")},
        "queries": s.queries,
        "judged": own["judged"],
    }
    if not np.isnan(s.lowest).all():
        values |= {"holes": [own["lowest"], own["highest"]], "exact": own["exact"]}
        values |= {"could_lead": own["could_lead"], "lead_exact": own["lead_exact"]}
    return dict(plain(values))


def _span(low: Any, high: Any) -> str:
    """Return "2–5", or "2" where both are equal."""
    return f"{low}–{high}" if low != high else f"{low}"


def _marked(s: Standing, row: int) -> Marked:
    """Return a run's mean, bold for the best, with † if it is significantly worse."""
    mark = "†" if s.group_first[row] > 1 else ""
    return Marked(float(s.expected[row]), bool(s.rank[row] == 1), mark)


def expand(paths: Iterable[str], qrels: Any = None) -> list[str]:
    """Return paths with folders and patterns replaced by their files, sorted, each once.

    The file of judgments is skipped if it lies among them.
    """
    qrels_path = qrels if isinstance(qrels, str | os.PathLike) and is_file(qrels) else None

    def without_qrels(files: Iterable[str]) -> list[str]:
        return [f for f in files if qrels_path is None or not Path(f).samefile(qrels_path)]

    expanded: list[str] = []
    for path in paths:
        if is_folder(path):
            files = without_qrels(
                str(file)
                for file in sorted(Path(path).iterdir())
                if file.is_file() and not file.name.endswith(_NOT_RUNS) and file.name[0] != "."
            )
            if not files:
                raise InputError("no run in this folder", place=path, remedy="check the path")
            expanded += files
        elif glob.has_magic(path) and not is_file(path) and not is_pipe(path):
            files = without_qrels(sorted(glob.glob(path)))  # noqa: PTH207
            if not files:
                raise InputError("no file matches", place=path, remedy="check the pattern")
            expanded += files
        else:
            expanded.append(path)
    return list(dict.fromkeys(expanded))


def rank_evaluations(
    evaluations: Sequence[Evaluation],
    *,
    seed: int = 0,
    holes: WorstCases | None = None,
) -> Leaderboard:
    """Return the leaderboard of evaluations with the same judgments and measures.

    `holes` is a view of the same runs, in this order, for worst cases over unjudged documents.
    """
    if len(evaluations) < 2:
        raise InputError("one run makes no leaderboard", remedy="name two runs or more")
    measures = tuple(evaluations[0].outcomes)
    aligned_values = [aligned(evaluations, m) for m in measures]
    missing = missing_queries(evaluations)
    notes = missing_note(missing, evaluations[0].policy)
    columns: list[Float] = []
    shared: list[Bool] = []  # (Q,) by measure: queries for which all runs have a value
    for m, values in zip(measures, aligned_values, strict=True):
        is_shared: Bool = np.asarray(~np.isnan(values["expected"]).any(axis=0))
        if not is_shared.any():
            raise InputError(
                f"{m} is defined on no query that all runs share",
                remedy="check the runs, or leave the measure out",
            )
        defined = int((~np.isnan(values["expected"])).any(axis=0).sum())
        count = int(is_shared.sum())
        if defined > count:
            notes.append(f"{m}: over the {count} of {plural(defined, 'query')} that all runs share")
        shared.append(is_shared)
        columns.append(values["expected"][:, is_shared])
    ranges = _shuffled_ranges(columns, shared, seed)
    standings = {
        m: _standing(values, is_shared, shuffled, seed, m)
        for m, values, is_shared, shuffled in zip(
            measures, aligned_values, shared, ranges, strict=True
        )
    }
    standings = {m: _with_unjudged(s, m, evaluations, holes) for m, s in standings.items()}
    notes += [f"{m}: less is better" for m in measures if m.sign < 0]
    first = standings[measures[0]]
    by_rank = np.lexsort((np.arange(len(evaluations)), first.rank))
    dtypes = dict.fromkeys(e.dtype for e in evaluations)
    notes += evaluations[0].policy.definitions(" or ".join(dtypes))
    return Leaderboard(
        runs=tuple(evaluations[row].name for row in by_rank.tolist()),
        measures={m: _reordered(s, by_rank) for m, s in standings.items()},
        shuffles=SHUFFLES,
        seed=seed,
        notes=tuple(notes),
        grades="" if holes is None else holes.grades(measures),
        missing=missing,
        policy=evaluations[0].policy,
        warnings=tuple(merge_notes(evaluations)),
    )


def _shuffled_ranges(columns: list[Float], shared: list[Bool], seed: int) -> list[Float]:
    """Return the shuffled ranges of each measure; equal sets of queries share their shuffles."""
    by_queries: dict[bytes, list[int]] = {}
    for m, is_shared in enumerate(shared):
        by_queries.setdefault(is_shared.tobytes(), []).append(m)
    ranges: dict[int, Float] = {}
    with progress("shuffling", len(by_queries)):
        for numbers in by_queries.values():
            rows = tukey_ranges([columns[m] for m in numbers], seed=seed, permutations=SHUFFLES)
            ranges.update(zip(numbers, rows, strict=True))
    return [ranges[m] for m in range(len(columns))]


def _standing(
    aligned_values: dict[str, Float], is_shared: Bool, ranges: Float, seed: int, measure: Measure
) -> Standing:
    """Return the values of all runs over the queries that they share, judged shares unknown."""
    values = {name: column[:, is_shared] for name, column in aligned_values.items()}
    sign = measure.sign
    queries = int(is_shared.sum())
    means = {  # exact sums, rounded once, as `evaluate` computes them
        name: np.array([math.fsum(row) / queries for row in values[name].tolist()])
        for name in ("expected", "min", "max", "oblivious")
    }
    ends = mean_intervals(values["expected"], measure.upper)
    gain = sign * means["expected"]
    rank = ranks_of(gain)
    runs = len(rank)
    few_differ = np.stack([_differs_on_few(values["expected"], row) for row in range(runs)])
    rank_low, rank_high = rank_intervals(sign * values["expected"], seed=seed)
    # A difference is significant if it exceeds the shuffled range in all but 5% of the shuffles;
    # the smallest such difference is the same for all pairs.
    loss = gain[None] - gain[:, None]  # (R, R) of each run to each other
    is_significant = ~few_differ & (np.abs(loss) > _critical_difference(ranges))
    best = int(np.argmin(rank))
    lead = sign * (values["expected"] - values["expected"][best])
    unknown = np.full(runs, np.nan)
    return Standing(
        **means,
        low=ends[:, 0],
        high=ends[:, 1],
        rank=rank,
        rank_low=rank_low,
        rank_high=rank_high,
        oblivious_rank=ranks_of(sign * means["oblivious"]),
        group_first=np.where(is_significant, runs, rank).min(axis=1),
        group_last=np.where(is_significant, 0, rank).max(axis=1),
        above=(is_significant & (loss > 0)).sum(axis=1),
        below=(is_significant & (loss < 0)).sum(axis=1),
        wins=(lead > _EQUAL).sum(axis=1),
        ties=(np.abs(lead) <= _EQUAL).sum(axis=1),
        losses=(lead < -_EQUAL).sum(axis=1),
        judged=unknown,
        lowest=unknown,
        highest=unknown,
        exact=np.ones(runs, np.bool_),
        could_lead=np.zeros(runs, np.bool_),
        lead_exact=np.ones(runs, np.bool_),
        queries=queries,
        best=best,
    )


def _differs_on_few(values: Float, run: int) -> Bool:
    """Return (R,) which rows of (R, Q) differ from one row on fewer than six queries."""
    is_few: Bool = (np.abs(values - values[run]) > _EQUAL).sum(axis=1) < MIN_QUERIES
    return is_few


def _with_unjudged(
    s: Standing, measure: Measure, evaluations: Sequence[Evaluation], view: WorstCases | None
) -> Standing:
    """Add judged shares, and with a view the worst cases over unjudged documents."""
    s = replace(s, judged=np.array([e.judged.get(measure, math.nan) for e in evaluations]))
    if view is None:
        return s
    view.check([measure])
    runs = range(len(evaluations))
    bounds = [view.run_bound(run, measure, shared=True) for run in runs]

    def could_lead(run: int) -> tuple[bool, bool]:
        """Return whether grades might put a run ahead of the best one where ties alone cannot, and
        whether some grades do."""
        if run == s.best:
            return False, True
        a, b = (run, s.best) if measure.sign > 0 else (s.best, run)
        by_ties = max(0.0, float(s.max[a] - s.min[b]))
        bound = view.pair_bound(a, b, measure, shared=True)
        return bound.highest > by_ties + _EQUAL, bound.exact

    might_lead, is_reached = zip(*map(could_lead, runs), strict=True)
    return replace(
        s,
        lowest=np.array([b.lowest for b in bounds]),
        highest=np.array([b.highest for b in bounds]),
        exact=np.array([b.exact for b in bounds]),
        could_lead=np.array(might_lead, np.bool_),
        lead_exact=np.array(is_reached, np.bool_),
    )


def _critical_difference(ranges: Float) -> float:
    """Return the largest difference of means that is not significant (p ≥ α)."""
    size = len(ranges)
    # (#{range ≥ d} + 1)/(size + 1) < α  ⇔  #{range ≥ d} < α(size + 1) − 1
    allowed = int(np.ceil(ALPHA * (size + 1) - 1.0)) - 1  # ranges that may reach it
    if allowed < 0:
        return float(np.inf)
    limit = float(ranges[size - 1 - allowed])
    assert tukey_p(np.array(limit), ranges) >= ALPHA
    return max(limit * (1.0 + 1e-9), _EQUAL)


def _reordered(s: Standing, by_rank: Int) -> Standing:
    """Return the values with the runs in another order."""
    columns = {name: getattr(s, name)[by_rank] for name in _RUN_COLUMNS}
    return replace(s, **columns, best=int(np.flatnonzero(by_rank == s.best)[0]))
