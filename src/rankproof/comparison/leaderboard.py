"""Many runs on several measures: ranks with their intervals, and who is told apart from whom.

All pairs of a measure are tested together by Tukey's HSD, randomised (Carterette 2012): if all runs
were alike, a query's values could have belonged to any of them, so runs are shuffled within each
query; two runs are told apart where their means differ by more than the best and the worst run do
in all but 5% of the shuffles. Holm over all pairs is no choice here: with 556 runs the first of its
steps asks for p < 3·10⁻⁷, which no sample of sign flips reaches. Two runs that differ on fewer than
six queries are not told apart: copies of one of them make the range of shuffles smaller, and add no
query that could tell.
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
from rankproof.evaluation import Evaluation, Policy
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.errors import InputError, first_few, import_extra
from rankproof.foundation.phrasing import plural
from rankproof.foundation.progress import progress
from rankproof.measures import Measure
from rankproof.presentation.charts import Chart, Range, RangeChart
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain, told
from rankproof.presentation.judged_column import NOTE, at_most, some_unjudged
from rankproof.presentation.lead_wording import put_ahead
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Cell, Column, Marked, Table
from rankproof.statistics.intervals import MIN_QUERIES, mean_intervals, percentile_intervals
from rankproof.statistics.randomization import tukey_p, tukey_ranges
from rankproof.statistics.resampling import resampled_means

if TYPE_CHECKING:
    from rankproof.unjudged.bounds import View

SHUFFLES = 5_000
RESAMPLES = 2_000  # behind the intervals of ranks
ALPHA = 0.05

_COLUMNS = (
    *("expected", "min", "max", "oblivious", "low", "high", "rank", "rank_low", "rank_high"),
    *("oblivious_rank", "group_first", "group_last", "wins", "ties", "losses", "judged"),
)
_LEVEL = 1e-12  # means closer than this are the same figure
_ENDINGS = (".json", ".md", ".yaml", ".yml", ".html", ".svg", ".png")  # no runs, in a folder


@dataclass(frozen=True, slots=True)
class Standing:
    """One measure: (R,) figures of every run, runs in the order given."""

    expected: Float
    min: Float  # over every order of ties
    max: Float
    oblivious: Float
    low: Float  # 95% interval of the mean over queries
    high: Float
    rank: Int  # by expected; equal means share the best
    rank_low: Int  # 95% interval of the rank, over queries
    rank_high: Int
    oblivious_rank: Int
    group_first: Int  # the best rank that it is not told apart from
    group_last: Int
    above: Int  # runs that are told apart from it and better
    below: Int
    wins: Int  # queries on which it beats the best run, ties, and loses
    ties: Int
    losses: Int
    judged: Float  # share of the top k that has a judgement; NaN: not known
    lowest: Float  # over every completion of its unjudged documents; NaN: not asked for
    highest: Float
    exact: Bool  # whether completions reach these ends; else they are at most so far apart
    could_lead: Bool  # whether these leave it open that one puts it ahead of the best run
    lead_exact: Bool  # whether one does; else it only might
    queries: int
    best: int  # of the runs that share rank 1 the one that the others are held against


@dataclass(frozen=True, slots=True, repr=False)
class Leaderboard(Displayed):
    """Runs × measures, best first by the first measure.

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
    grades: str = ""  # that unjudged documents can have, in words, where there are their ends
    missing: Mapping[str, int] = field(default_factory=dict)  # judged queries, by run
    policy: Policy = field(default_factory=Policy)
    warnings: tuple[str, ...] = ()  # what was guessed of the files

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
            first = [self.runs[at] for at in np.flatnonzero(s.rank == 1)]
            leads = f"{first_few(first)} share the lead" if len(first) > 1 else f"{first[0]} leads"
            alike = int((s.group_first == 1).sum()) - len(first)
            rest = f", not told apart from {plural(alike, 'other')}" if alike else ""
            lines.append(f"{measure}: {leads} with {s.expected[s.best]:.4f}{rest}{self._open(s)}")
        return "\n".join(lines)

    def where_others_could_lead(self) -> Leaderboard:
        """As it is where unjudged documents could change who leads, and else without their ends."""
        if any(s.could_lead.any() for s in self.measures.values()):
            return self
        none = np.full(len(self.runs), np.nan)
        nobody = np.zeros(len(self.runs), np.bool_)
        measures = {
            m: replace(s, lowest=none, highest=none, could_lead=nobody)
            for m, s in self.measures.items()
        }
        return replace(self, measures=measures, grades="")

    def _open(self, s: Standing) -> str:
        """What unjudged documents leave of the lead, in words."""
        others = [
            (self.runs[at], bool(s.lead_exact[at])) for at in np.flatnonzero(s.could_lead).tolist()
        ]
        if not others and (np.isnan(s.lowest).all() or (s.judged == 1).all()):
            return ""
        if not others:
            return "; no grade of unjudged documents puts another ahead"
        return f"; unjudged documents {put_ahead(others)}"

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof leaderboard --format json` prints."""
        return {
            "runs": [
                {
                    "name": name,
                    "measures": {str(m): _figures(s, at) for m, s in self.measures.items()},
                }
                for at, name in enumerate(self.runs)
            ],
            "test": "randomised Tukey HSD",
            "alpha": ALPHA,
            **told(self, "shuffles", "seed", "notes", *(["grades"] if self.grades else [])),
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
            f"{run}/{measure}": float(standing.expected[at])
            for measure, standing in self.measures.items()
            for at, run in enumerate(self.runs)
        }

    def table(self, full: bool = True) -> Table:
        """A row for each run; with `full`, the figures behind the first measure too."""
        lead, first = next(iter(self.measures.items()))
        tied = {m: bool((s.max - s.min > 5e-5).any()) for m, s in self.measures.items()}
        moved = bool((first.oblivious_rank != first.rank).any())
        shares = [tuple(s.judged.tolist()) for s in self.measures.values()]
        open_ = some_unjudged(share for column in shares for share in column)
        alike = len(set(shares)) == 1  # then one column says it for all
        columns = [Column("rank"), Column("run", "text", folds=True)]
        for m, s in self.measures.items():
            columns.append(Column(str(m)))
            if tied[m]:
                columns.append(Column(f"{m} over ties", "text", drop=2))
            if not np.isnan(s.lowest).all():
                columns.append(Column(f"{m} over holes", "text", drop=5))
            if open_ and not alike:
                columns.append(Column(f"judged ({m})"))
        if open_ and alike:
            columns.append(Column("judged"))
        if full:
            columns += [
                Column("rank 95%", "text", drop=4),
                Column("group", "text", drop=6),
                Column("w/t/l", "text", drop=3),
            ]
            if moved:
                columns.append(Column("oblivious rank", drop=1))
        rows: list[list[Cell]] = []
        for at, name in enumerate(self.runs):
            row: list[Cell] = [int(first.rank[at]), name]
            for m, s in self.measures.items():
                row.append(_marked(s, at))
                if tied[m]:
                    ends = (f"{s.min[at]:.4f}", f"{s.max[at]:.4f}")
                    row.append("–".join(ends) if ends[0] != ends[1] else "")
                if not np.isnan(s.lowest).all():
                    row.append(f"{s.lowest[at]:.4f}–{s.highest[at]:.4f}")
                if open_ and not alike:
                    row.append(float(s.judged[at]))
            if open_ and alike:
                row.append(float(first.judged[at]))
            if full:
                row += [
                    _span(first.rank_low[at], first.rank_high[at]),
                    _span(first.group_first[at], first.group_last[at]),
                    f"{first.wins[at]}/{first.ties[at]}/{first.losses[at]}",
                ]
                if moved:
                    row.append(int(first.oblivious_rank[at]))
            rows.append(row)
        notes = [
            f"rank, its 95% interval over queries, group and w/t/l are those of {lead}; group: "
            "the ranks that a run is not told apart from; w/t/l: queries won, tied and lost "
            f"against {self.runs[first.best]}",
            f"† worse than the best of the column, p < {ALPHA:g}: Tukey's HSD over all pairs, "
            f"{self.shuffles:,} shuffles of runs within queries; {MIN_QUERIES} queries must differ",
        ]
        if open_:
            notes.append(NOTE)
        if not np.isnan(first.lowest).all():
            reached = at_most(str(m) for m, s in self.measures.items() if not s.exact.all())
            notes.append(
                "over holes: the ends over every grade that a run's unjudged documents in the top "
                f"k could have, {self.grades}{reached}; all other unjudged documents stay not "
                "relevant"
            )
        return Table(columns, rows, notes=[*notes, *self.notes])

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
                    f"{s.rank[at]}. {self.runs[at]}",
                    float(s.expected[at]),
                    float(s.low[at]),
                    float(s.high[at]),
                    group=int(s.group_first[at] > 1),
                    tip=f"{self.runs[at]}: {s.expected[at]:.4f}, rank {s.rank[at]} "
                    f"({_span(s.rank_low[at], s.rank_high[at])})",
                )
                for at in order.tolist()
            ]
            groups = ["not significantly different from the best", "significantly different"]
            axis = f"{measure}, 95% over queries"
            charts.append(RangeChart(f"Runs by {measure}", rows, axis, groups=groups))
        return charts


_DRAWN = 40  # runs in a chart, best first
_MEANS = ("expected", "min", "max", "oblivious")
_EACH = [name for name in Standing.__slots__ if name not in ("queries", "best")]  # run has its own


def _figures(s: Standing, at: int) -> dict[str, Any]:
    own = {name: getattr(s, name)[at].item() for name in _EACH}
    found = {
        **{name: own[name] for name in _MEANS},
        "ci": [own["low"], own["high"]],  # one query has none
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
        found |= {"holes": [own["lowest"], own["highest"]], "exact": own["exact"]}
        found |= {"could_lead": own["could_lead"], "lead_exact": own["lead_exact"]}
    done: dict[str, Any] = plain(found)
    return done


def _span(low: Any, high: Any) -> str:
    return f"{low}–{high}" if low != high else f"{low}"


def _marked(s: Standing, at: int) -> Marked:
    return Marked(
        float(s.expected[at]), bool(s.rank[at] == 1), "†" if s.group_first[at] > 1 else ""
    )


def expand(paths: Iterable[str], qrels: Any = None) -> list[str]:
    """Files of folders and globs, in order of name; each once, and not the judgements' own."""

    def runs(files: Iterable[str]) -> list[str]:
        judged = qrels if isinstance(qrels, str | os.PathLike) and is_file(qrels) else None
        return [f for f in files if judged is None or not Path(f).samefile(judged)]

    found: list[str] = []
    for path in paths:
        if is_folder(path):
            files = runs(
                str(p)
                for p in sorted(Path(path).iterdir())
                if p.is_file() and not p.name.endswith(_ENDINGS) and not p.name.startswith(".")
            )
            if not files:
                raise InputError("no run in this folder", place=path, remedy="check the path")
            found += files
        elif glob.has_magic(path) and not is_file(path) and not is_pipe(path):
            files = runs(sorted(glob.glob(path)))  # noqa: PTH207
            if not files:
                raise InputError("no file matches", place=path, remedy="check the pattern")
            found += files
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def rank_evaluations(
    evaluations: Sequence[Evaluation],
    *,
    seed: int = 0,
    holes: View | None = None,
) -> Leaderboard:
    """`leaderboard` for runs evaluated before, on the same judgements and measures.

    `holes` is the view of the same runs, in this order, that bounds each figure.
    """
    if len(evaluations) < 2:
        raise InputError("one run makes no leaderboard", remedy="name two runs or more")
    measures = tuple(evaluations[0].outcomes)
    figures = [aligned(evaluations, m) for m in measures]
    missing = missing_queries(evaluations)
    notes = missing_note(missing, evaluations[0].policy)
    columns: list[Float] = []
    shared: list[Bool] = []
    for m, figure in zip(measures, figures, strict=True):
        every: Bool = np.asarray(~np.isnan(figure["expected"]).any(axis=0))
        if not every.any():
            raise InputError(
                f"{m} is defined on no query that all runs share",
                remedy="check the runs, or leave the measure out",
            )
        some = int((~np.isnan(figure["expected"])).any(axis=0).sum())
        if some > every.sum():
            notes.append(
                f"{m}: over the {int(every.sum())} of {plural(some, 'query')} that all runs share"
            )
        shared.append(every)
        columns.append(figure["expected"][:, every])
    ranges = _ranges(columns, shared, seed)
    standings = {
        m: _standing(figure, every, found, seed, m)
        for m, figure, every, found in zip(measures, figures, shared, ranges, strict=True)
    }
    standings = {m: _beside(s, m, evaluations, holes) for m, s in standings.items()}
    notes += [f"{m}: less is better" for m in measures if m.sign < 0]
    first = standings[measures[0]]
    by_rank = np.lexsort((np.arange(len(evaluations)), first.rank))
    dtypes = dict.fromkeys(e.dtype for e in evaluations)
    notes += evaluations[0].policy.words(" or ".join(dtypes))
    return Leaderboard(
        runs=tuple(evaluations[at].name for at in by_rank.tolist()),
        measures={m: _ordered(s, by_rank) for m, s in standings.items()},
        shuffles=SHUFFLES,
        seed=seed,
        notes=tuple(notes),
        grades="" if holes is None else holes.grades(measures),
        missing=missing,
        policy=evaluations[0].policy,
        warnings=tuple(dict.fromkeys(note for e in evaluations for note in e.notes)),
    )


def _ranges(columns: list[Float], shared: list[Bool], seed: int) -> list[Float]:
    """The shuffled ranges of each measure; measures on the same queries share their shuffles."""
    by_queries: dict[bytes, list[int]] = {}
    for at, every in enumerate(shared):
        by_queries.setdefault(every.tobytes(), []).append(at)
    ranges: dict[int, Float] = {}
    with progress("shuffling", len(by_queries)):
        for alike in by_queries.values():
            rows = tukey_ranges([columns[at] for at in alike], seed=seed, permutations=SHUFFLES)
            ranges.update(zip(alike, rows, strict=True))
    return [ranges[at] for at in range(len(columns))]


def _standing(
    figure: dict[str, Float], every: Bool, ranges: Float, seed: int, measure: Measure
) -> Standing:
    values = {name: column[:, every] for name, column in figure.items()}
    sign = measure.sign
    queries = int(every.sum())
    expected, least, most, stated = (  # rounded once, as `evaluate` does
        np.array([math.fsum(row) / queries for row in values[name].tolist()])
        for name in ("expected", "min", "max", "oblivious")
    )
    ends = mean_intervals(values["expected"], measure.upper)
    gained = sign * expected
    rank = _ranked(gained)
    few_differ = np.stack([_level(values["expected"], one) for one in range(len(rank))])
    rank_low, rank_high = _likely_ranks(sign * values["expected"], rank, few_differ, seed)
    # Told apart where the difference is larger than the shuffled range in all but 5%: the least
    # such difference is the same for all pairs.
    lost = gained[None] - gained[:, None]  # (R, R) of each to each
    told = ~few_differ & (np.abs(lost) > _critical(ranges))
    first = np.where(told, len(rank), rank).min(axis=1)
    last = np.where(told, 0, rank).max(axis=1)
    above, below = ((told & side).sum(axis=1) for side in (lost > 0, lost < 0))
    best = int(np.argmin(rank))
    lead = sign * (values["expected"] - values["expected"][best])
    unknown = np.full(len(rank), np.nan)
    return Standing(
        *(expected, least, most, stated, ends[:, 0], ends[:, 1], rank),
        *(rank_low, rank_high, _ranked(sign * stated)),
        *(first, last, above, below),
        *((lead > _LEVEL).sum(axis=1), (np.abs(lead) <= _LEVEL).sum(axis=1)),
        (lead < -_LEVEL).sum(axis=1),
        unknown,
        unknown,
        unknown,
        np.ones(len(rank), np.bool_),
        np.zeros(len(rank), np.bool_),
        np.ones(len(rank), np.bool_),
        queries,
        best,
    )


def _level(values: Float, one: int) -> Bool:
    """(R,) the rows of (R, Q) that differ from one of them on fewer than six queries."""
    few_differ: Bool = (np.abs(values - values[one]) > _LEVEL).sum(axis=1) < MIN_QUERIES
    return few_differ


def _likely_ranks(gained: Float, rank: Int, few_differ: Bool, seed: int) -> tuple[Int, Int]:
    """(R,) 95% intervals of the ranks of rows (R, Q), over queries.

    Fewer than six queries leave every rank open, and so two runs that differ on fewer than six
    leave it open which of them is ahead: no resample holds what these did not show.
    """
    runs, queries = gained.shape
    if queries < MIN_QUERIES:
        return np.ones(runs, np.int64), np.full(runs, runs)
    drawn = resampled_means(gained.T, seed, RESAMPLES)
    ranks = np.empty(drawn.shape, np.float32)
    for at, row in enumerate(drawn):
        ranks[at] = _ranked(row)
    open_ = few_differ.sum(axis=1) - 1  # but for itself
    for one in np.flatnonzero(open_).tolist():
        ahead = drawn[:, ~few_differ[one]] > drawn[:, one, None] + _LEVEL
        ranks[:, one] = 1 + ahead.sum(axis=1)
    low, high = percentile_intervals(ranks, queries)
    return (
        np.fmin(np.floor(low), rank).astype(np.int64),
        np.fmax(np.ceil(high) + open_, rank).astype(np.int64),
    )


def _beside(
    s: Standing, measure: Measure, evaluations: Sequence[Evaluation], view: View | None
) -> Standing:
    """With what is judged of each run, and what the rest could make of it."""
    s = replace(s, judged=np.array([e.judged.get(measure, math.nan) for e in evaluations]))
    if view is None:
        return s
    view.check([measure])
    runs = range(len(evaluations))
    bounds = [view.run_bound(at, measure, shared=True) for at in runs]

    def could(at: int) -> tuple[bool, bool]:
        """Whether a completion puts it ahead of the best run, past what ties alone could do, and
        whether that end is reached."""
        if at == s.best:
            return False, True
        a, b = (at, s.best) if measure.sign > 0 else (s.best, at)
        tied = max(0.0, float(s.max[a] - s.min[b]))
        bound = view.pair_bound(a, b, measure, shared=True)
        return bound.highest > tied + _LEVEL, bound.exact

    ahead, reached = zip(*map(could, runs), strict=True)
    return replace(
        s,
        lowest=np.array([b.lowest for b in bounds]),
        highest=np.array([b.highest for b in bounds]),
        exact=np.array([b.exact for b in bounds]),
        could_lead=np.array(ahead, np.bool_),
        lead_exact=np.array(reached, np.bool_),
    )


def _critical(ranges: Float) -> float:
    """The largest difference that is not told apart: p ≥ α."""
    size = len(ranges)
    # (#{range ≥ d} + 1)/(size + 1) < α  ⇔  #{range ≥ d} < α(size + 1) − 1
    allowed = int(np.ceil(ALPHA * (size + 1) - 1.0)) - 1  # at most so many ranges reach it
    if allowed < 0:
        return float(np.inf)
    limit = float(ranges[size - 1 - allowed])
    assert tukey_p(np.array(limit), ranges) >= ALPHA
    return max(limit * (1.0 + 1e-9), _LEVEL)


def _ranked(means: Float) -> Int:
    """(R,) 1 for the largest; means that are equal but for rounding share the best rank."""
    order = np.argsort(-means, kind="stable")
    fallen = np.concatenate([[True], -np.diff(means[order]) > _LEVEL])
    ranks = np.empty(len(means), np.int64)
    ranks[order] = np.maximum.accumulate(np.where(fallen, np.arange(1, len(means) + 1), 0))
    return ranks


def _ordered(s: Standing, by_rank: Int) -> Standing:
    columns = {name: getattr(s, name)[by_rank] for name in _EACH}
    return replace(s, **columns, best=int(np.flatnonzero(by_rank == s.best)[0]))
