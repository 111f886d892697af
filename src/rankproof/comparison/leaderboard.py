"""Rank many runs on several measures: means, ranks with intervals, and significant differences.

Every pair of runs has the verdict that `compare` gives it in the same call: all pairs and measures
are one family. Means are over the queries that all runs average.
"""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl

from rankproof.comparison.annotated import annotated_values, annotator_note, labels_prefix
from rankproof.comparison.differences import Tests, aligned, difference_columns
from rankproof.comparison.pair_tables import (
    grades_note,
    id_problems,
    next_step,
    unjudged_note,
)
from rankproof.comparison.pairs import Pairs, missing_queries, query_sets_dict
from rankproof.comparison.repeats import merge_repeats, repeat_note, repeats_dict
from rankproof.comparison.verdict import REASONS, Verdict
from rankproof.data.query_groups import number_groups
from rankproof.data.sources import is_file, is_folder, is_pipe
from rankproof.evaluation import Evaluation
from rankproof.evaluation.checks import merge_notes
from rankproof.evaluation.presenting import evaluation_caption
from rankproof.evaluation.query_set import query_set_notes
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.errors import InputError, MeasureError, first_few, shorten
from rankproof.foundation.phrasing import amount, plural, signed
from rankproof.measures import Measure, parse
from rankproof.presentation.charts import Chart, Range, RangeChart
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain, plain_fields
from rankproof.presentation.result import MAX_NOTES, Summary
from rankproof.presentation.tables import Cell, Column, Marked, Table, span
from rankproof.presentation.terminal import name_in_sentence
from rankproof.statistics.intervals import mean_intervals
from rankproof.statistics.labels import AHEAD, BEHIND
from rankproof.statistics.ranks import rank_intervals, ranks_of
from rankproof.statistics.resampling import JOINT_RESAMPLES

if TYPE_CHECKING:
    from rankproof.statistics.groups import Groups
    from rankproof.unjudged.bounds import WorstCases

ALPHA = 0.05
_MEASURES_SHOWN = 4  # as columns of the table
_DRAWN = 40  # runs in a chart, best first
_EQUAL = 1e-12  # means closer than this are equal
_NOT_RUNS = (".json", ".md", ".yaml", ".yml", ".html", ".svg", ".png")  # endings in a folder
_RIVALS = 2  # of the best, named in a sentence
_MARK = "*"


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
    wins: Int  # queries on which it beats the reference, ties, and loses
    ties: Int
    losses: Int
    judged: Float  # share of the top k that is judged; NaN: unknown
    lowest: Float  # worst cases over the run's unjudged documents; NaN: unknown
    highest: Float
    exact: Bool  # some grades reach these ends; else they are bounds
    queries: int  # that all runs average
    defined: int  # that some run averages
    best: int  # index of the first run with rank 1
    reference: int  # index of the run that the others are compared with
    verdicts: tuple[Verdict | None, ...]  # on the reference against each; None for itself
    beats: tuple[tuple[int, ...], ...]  # of each run, those that it is significantly better than

    def is_worse(self, row: int) -> bool:
        """True if the run is significantly worse than the reference."""
        verdict = self.verdicts[row]
        return verdict is not None and verdict.label == "ahead"

    def is_different(self, row: int) -> bool:
        """True if the run is significantly better or worse than the reference."""
        verdict = self.verdicts[row]
        return verdict is not None and verdict.label in ("ahead", "behind")


_COLUMNS = (
    *("expected", "min", "max", "oblivious", "low", "high", "rank", "rank_low", "rank_high"),
    *("oblivious_rank", "group_first", "group_last", "wins", "ties", "losses", "judged"),
)
_SCALARS = ("queries", "defined", "best", "reference", "verdicts", "beats")
_ARRAYS = tuple(name for name in Standing.__slots__ if name not in _SCALARS)


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
    evaluations: tuple[Evaluation, ...]  # in the order of rank
    seed: int
    depends_on: frozenset[str]  # what some verdict depends on
    baseline: str = ""  # that the others are compared with; "" is the best of each measure
    letters: bool = False  # mark every significant difference by the letters of runs
    notes: tuple[str, ...] = ()
    grades: str = ""  # those that unjudged documents could have, if worst cases were computed
    repeats_changed: tuple[float, ...] = ()  # by pair: share of repeats with another label
    annotator_notes: tuple[str, ...] = ()

    def __getitem__(self, measure: str | Measure) -> Standing:
        return self.measures[parse(measure)]

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        return f"<leaderboard of {len(self.runs)} runs on {', '.join(map(str, self.measures))}>"

    @property
    def missing(self) -> dict[str, int]:
        """The number of judged queries that each run lacks, for runs that lack some."""
        return missing_queries(self.evaluations)

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof leaderboard --format json` prints."""
        missing = self.missing
        return {
            "runs": [
                {
                    "name": name,
                    "measures": {str(m): _run_values(s, row) for m, s in self.measures.items()},
                }
                for row, name in enumerate(self.runs)
            ],
            "test": "max-T of bootstrap-t",
            "alpha": ALPHA,
            "resamples": JOINT_RESAMPLES,
            **plain_fields(self, "seed", "notes", *(["grades"] if self.grades else [])),
            "query_sets": query_sets_dict(self.evaluations),
            **repeats_dict(self.evaluations),
            **({"missing": missing} if missing else {}),
            "policy": self.evaluations[0].policy.to_dict(),
        }

    @property
    def warnings(self) -> list[str]:
        """What the readers assumed."""
        return merge_notes(self.evaluations)

    # ------------------------------------------------------------------------------ words

    def summary(self) -> Summary:
        """The best run on each measure, and which runs are significantly worse."""
        policy = self.evaluations[0].policy
        problems = id_problems(self.evaluations)
        answers = [self._answer(m, s) for m, s in self.measures.items()]
        sets = {e.name: {str(m): e.query_set(m) for m in e} for e in self.evaluations}
        is_open = "unjudged" in self.depends_on
        effect = "unjudged documents could change verdicts" if is_open else ""
        notes = [
            *repeat_note(self.evaluations, np.array(self.repeats_changed)),
            *self.annotator_notes,
            *query_set_notes(sets),
            *self.notes,
            *self._query_note(),
            *self._mark_note(),
            *self._tie_note(),
            *unjudged_note(self.evaluations, effect),
            *policy.changes(),
        ]
        dtype = " or ".join(dict.fromkeys(e.dtype for e in self.evaluations))
        notes = list(dict.fromkeys(notes))
        shown = MAX_NOTES - (len(self.measures) > 1)  # which have an answer each
        return Summary.of(
            labels_prefix(self.evaluations) + "\n".join([*problems, *answers]),
            notes[:shown],
            next_step="" if problems else next_step(self.evaluations, set(self.depends_on)),
            details=[
                *notes[shown:],
                *policy.definitions(dtype),
                *_METHOD,
                *grades_note(self.grades),
            ],
        )

    def _answer(self, measure: Measure, s: Standing) -> str:
        """Return who is best, and whom it is significantly ahead of."""
        names = [name_in_sentence(name) for name in self.runs]
        leaders = [names[row] for row in np.flatnonzero(s.rank == 1)]
        queries = plural(s.queries, "query")
        if s.queries < s.defined:
            queries = f"the {s.queries} of {plural(s.defined, 'query')} that all runs have"
        over = f"{measure} over {queries}"
        if len(leaders) > 1:
            shared = f"share the lead with {s.expected[s.best]:.4f}"
            return f"{over}: {first_few(leaders, _RIVALS)} {shared}."
        others = [row for row in range(len(names)) if row != s.best]
        rivals = [names[row] for row in others if row not in s.beats[s.best]]
        if not rivals:
            return f"{over}: {leaders[0]} is best, significantly ahead of all others."
        if len(rivals) == len(others):
            return f"{over}: {leaders[0]} is best, not significantly ahead of any other."
        behind = first_few(rivals, _RIVALS)
        return f"{over}: {leaders[0]} is best, not significantly ahead of {behind}."

    def _query_note(self) -> list[str]:
        """Return that differences are over more queries than scores, where that is so."""
        if all(
            v is None or v.queries == s.queries for s in self.measures.values() for v in s.verdicts
        ):
            return []
        return ["Scores are over the queries that all runs have, differences over those of both."]

    def _mark_note(self) -> list[str]:
        """Return what the mark means, if some runs carry it."""
        rows = range(len(self.runs))
        marked = [s.is_different(row) for s in self.measures.values() for row in rows]
        if not any(marked):
            return []
        if self.letters:
            return [
                "Letters: significantly better than the runs with these letters, p < .05 over all "
                "comparisons together."
            ]
        claim = f"different from {self.baseline}" if self.baseline else "worse than the best"
        return [f"{_MARK} significantly {claim}, p < .05 over all comparisons together."]

    def _tie_note(self) -> list[str]:
        """Return which ranks the order of ties as listed would change."""
        first = next(iter(self.measures.values()))
        changed = int((first.oblivious_rank != first.rank).sum())
        if not changed:
            return []
        return [f"As listed, ties would give {plural(changed, 'run')} another rank."]

    def caption(self) -> str:
        """One sentence for a paper: measures, queries, policy, test, software."""
        return f"{evaluation_caption(self.evaluations)} {_CAPTION}"

    # ------------------------------------------------------------------------------ tables

    def tables(self) -> list[Table]:
        """The runs, best first: one measure in detail, or the means on several."""
        return [self._detail_table() if len(self.measures) == 1 else self._mean_table()]

    def full_tables(self) -> list[Table]:
        """A row for each run, every value of every measure a number: for files and frames."""
        columns = [Column("run", "text")]
        columns += [
            Column(str(m) if name == "expected" else f"{m} {name.replace('_', ' ')}")
            for m in self.measures
            for name in _COLUMNS
        ]
        columns += Column.each("missing", "unjudged queries")
        parts = [getattr(s, name).tolist() for s in self.measures.values() for name in _COLUMNS]
        parts += [[e.missing for e in self.evaluations], [e.unjudged for e in self.evaluations]]
        return [Table(columns, list(zip(self.runs, *parts, strict=True)))]

    def _detail_table(self) -> Table:
        """Return rank, mean, distance to the best with its interval, and queries won and lost."""
        (measure, s), *_ = self.measures.items()
        columns = [
            Column("#"),
            Column("run", "text", folds=True),
            Column(str(measure)),
            Column(f"against {self.baseline} (95% CI)", "text")
            if self.baseline
            else Column("behind best (95% CI)", "text"),
            Column("won/tied/lost", "text", drop=1),
        ]
        rows: list[list[Cell]] = [
            [
                int(s.rank[row]),
                self._labels()[row],
                self._marked(s, row) if self.letters else self._unmarked(s, row),
                _distance(s, row, signed_values=bool(self.baseline)),
                "" if row == s.reference else f"{s.wins[row]}/{s.ties[row]}/{s.losses[row]}",
            ]
            for row in range(len(self.runs))
        ]
        return Table(columns, rows)

    def _mean_table(self) -> Table:
        """Return the means on all measures, marked where a run is worse than the best."""
        first = next(iter(self.measures.values()))
        columns = [Column("#"), Column("run", "text", folds=True)]
        cells: list[list[Cell]] = [first.rank.tolist(), self._labels()]
        for number, (measure, s) in enumerate(self.measures.items()):
            columns.append(Column(str(measure), drop=max(0, number - _MEASURES_SHOWN + 1)))
            cells.append([self._marked(s, row) for row in range(len(self.runs))])
        return Table(columns, list(zip(*cells, strict=True)))

    def _labels(self) -> list[Cell]:
        """Return the names of the runs, with their letters if letters mark differences."""
        if not self.letters:
            return list(self.runs)
        return [f"{name} ({_letter(row)})" for row, name in enumerate(self.runs)]

    def _unmarked(self, s: Standing, row: int) -> Marked:
        return Marked(float(s.expected[row]), bool(s.rank[row] == 1))

    def _marked(self, s: Standing, row: int) -> Marked:
        """Return a run's mean, bold for the best, with its marks of significance."""
        mark = _MARK if s.is_different(row) else ""
        if self.letters:
            mark = "".join(f" {_letter(other)}" for other in sorted(s.beats[row]))
        return Marked(float(s.expected[row]), bool(s.rank[row] == 1), mark)

    def to_polars(self) -> pl.DataFrame:
        """Every value of every run as a polars frame."""
        return pl.DataFrame(self.full_tables()[0].plain())

    def figures(self) -> dict[str, float]:
        """The expected values, as "run/measure"."""
        return {
            f"{run}/{measure}": float(standing.expected[row])
            for measure, standing in self.measures.items()
            for row, run in enumerate(self.runs)
        }

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
                    group=int(s.is_worse(row)),
                    tip=f"{self.runs[row]}: {s.expected[row]:.4f}, rank {s.rank[row]} "
                    f"({span(int(s.rank_low[row]), int(s.rank_high[row]))})",
                )
                for row in order.tolist()
            ]
            groups = ["not significantly worse than the best", "significantly worse"]
            axis = f"{measure}, 95% over queries"
            charts.append(RangeChart(f"Runs by {measure}", rows, axis, groups=groups))
        return charts


_CAPTION = "Significance: p < .05 over all pairs and measures together (max-T of bootstrap-t)."
_METHOD = (
    "behind best: mean difference over the queries that both runs average; the 95% CI holds "
    "together for all pairs and measures of the call.",
    "won/tied/lost: queries on which the run is better than, level with, worse than the best.",
)


def _letter(row: int) -> str:
    """Return a, b, …, z, aa, ab, …

    >>> _letter(0), _letter(25), _letter(26)
    ('a', 'z', 'aa')
    """
    return (_letter(row // 26 - 1) if row > 25 else "") + chr(ord("a") + row % 26)


def _distance(s: Standing, row: int, *, signed_values: bool) -> str:
    """Return how far a run is from the reference, with the interval and the mark."""
    verdict = s.verdicts[row]
    if verdict is None:
        return ""
    ends = verdict.family_ci or verdict.bound
    mark = _MARK if s.is_different(row) else ""
    if signed_values:
        reverse = verdict.reversed()
        span_text = "" if ends is None else f" ({signed(-ends[1])} to {signed(-ends[0])})"
        return f"{signed(reverse.estimate)}{span_text}{mark}"
    if ends is None:
        return f"{amount(abs(verdict.estimate))}{mark}"
    sign = 1 if verdict.estimate >= 0 else -1
    low, high = sorted(sign * end for end in ends)
    text = f"{low:.4f}–{high:.4f}" if low >= 0 else f"{signed(low)} to {signed(high)}"
    return f"{abs(verdict.estimate):.4f} ({text}){mark}"


def _run_values(s: Standing, row: int) -> dict[str, Any]:
    """Return the values of one run as JSON has them."""
    values = {name: getattr(s, name)[row].item() for name in _ARRAYS}
    verdict = s.verdicts[row]
    return dict(
        plain(
            {
                **{name: values[name] for name in ("expected", "min", "max", "oblivious")},
                "ci": [values["low"], values["high"]],  # null for a single query
                "rank": values["rank"],
                "rank_ci": [values["rank_low"], values["rank_high"]],
                "oblivious_rank": values["oblivious_rank"],
                "group": [values["group_first"], values["group_last"]],
                "worse_than": values["above"],
                "better_than": values["below"],
                **{name: values[name] for name in ("wins", "ties", "losses")},
                "queries": s.queries,
                "judged": values["judged"],
                **_worst_case(values),
                "best_against_it": None if verdict is None else verdict.to_dict(),
            }
        )
    )


def _worst_case(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the worst cases of a run as JSON has them, if they are known."""
    if math.isnan(values["lowest"]):
        return {}
    return {"holes": [values["lowest"], values["highest"]], "exact": values["exact"]}


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
    baseline: str = "",
    letters: bool = False,
    groups: Mapping[str, int] | None = None,
    view: WorstCases | None = None,
) -> Leaderboard:
    """Return the leaderboard of evaluations with the same judgments and measures.

    Repeats are averaged. `groups` numbers the source of each query; `view` has the same runs, in
    this order, for worst cases over unjudged documents.
    """
    evaluations = merge_repeats(evaluations)
    if len(evaluations) < 2:
        raise InputError("one run makes no leaderboard", remedy="name two runs or more")
    measures = tuple(evaluations[0].outcomes)
    names = tuple(evaluation.name for evaluation in evaluations)
    if baseline and baseline not in names:
        raise InputError(
            f"no run is called {shorten(baseline)}",
            place="baseline",
            remedy=f"name one of {first_few(list(names))}",
        )
    reference = names.index(baseline) if baseline else None
    first, second = np.triu_indices(len(evaluations), 1)
    tests = Tests(seed=seed, p_values=False, ties=False)
    figures, _ = difference_columns(evaluations, first, second, tests, groups=groups, view=view)
    pairs = Pairs(names, measures, first, second, figures)
    standings = {}
    for m, measure in enumerate(measures):
        values = aligned(evaluations, measure)
        is_shared: Bool = np.asarray(~np.isnan(values["expected"]).any(axis=0))
        _check_shared(is_shared, measure)
        queries = pl.concat([e.queries for e in evaluations]).unique().sort()
        group_of = number_groups(queries.filter(pl.Series(is_shared)), groups)
        shared = {name: column[:, is_shared] for name, column in values.items()}
        standing = _standing(shared, measure, group_of, seed=seed, reference=reference)
        if evaluations[0].annotators is not None:
            all_groups = number_groups(queries, groups)
            by_query = annotated_values(evaluations, measure, queries, all_groups)
            standing = _with_annotators(
                standing,
                evaluations,
                measure,
                rank_intervals(measure.sign * by_query, all_groups, seed),
            )
        standing = _with_counts(standing, measure.sign * values["expected"])
        defined = int((~np.isnan(values["expected"])).any(axis=0).sum())
        judged = np.array([e.judged.get(measure, math.nan) for e in evaluations])
        standing = replace(standing, judged=judged, defined=defined)
        standing = _with_worst_cases(standing, measure, view)
        standings[measure] = _with_verdicts(standing, pairs, m)
    by_rank = np.lexsort((np.arange(len(evaluations)), standings[measures[0]].rank))
    bits = figures["reasons"].astype(np.int64)
    return Leaderboard(
        runs=tuple(evaluations[row].name for row in by_rank.tolist()),
        measures={m: _reordered(s, by_rank) for m, s in standings.items()},
        evaluations=tuple(evaluations[row] for row in by_rank.tolist()),
        seed=seed,
        depends_on=frozenset(n for at, n in enumerate(REASONS) if (bits >> at & 1).any()),
        notes=tuple(f"{m}: less is better." for m in measures if m.sign < 0),
        grades="" if view is None else view.grades(measures),
        baseline=baseline,
        letters=letters,
        repeats_changed=tuple(figures["repeats_changed"].ravel().tolist()),
        annotator_notes=tuple(annotator_note(evaluations, figures)),
    )


def _check_shared(is_shared: Bool, measure: Measure) -> None:
    """Refuse a measure that is defined on no query of all runs."""
    if not is_shared.any():
        raise InputError(
            f"{measure} is defined on no query that all runs share",
            remedy="check the runs, or drop the measure",
        )


def _standing(
    values: dict[str, Float],
    measure: Measure,
    groups: Groups | None,
    *,
    seed: int,
    reference: int | None,
) -> Standing:
    """Return the values of all runs over the queries that they share, without verdicts."""
    queries = values["expected"].shape[1]
    sign = measure.sign
    means = {  # exact sums, rounded once, as `evaluate` computes them
        name: np.array([math.fsum(row) / queries for row in values[name].tolist()])
        for name in ("expected", "min", "max", "oblivious")
    }
    ends = mean_intervals(values["expected"], measure.upper, groups)
    rank = ranks_of(sign * means["expected"])
    rank_low, rank_high = rank_intervals(sign * values["expected"], groups, seed)
    best = int(np.argmin(rank))
    reference = best if reference is None else reference
    none = np.zeros(len(rank), np.int64)
    return Standing(
        **means,
        low=ends[:, 0],
        high=ends[:, 1],
        rank=rank,
        rank_low=np.minimum(rank_low, rank),
        rank_high=np.maximum(rank_high, rank),
        oblivious_rank=ranks_of(sign * means["oblivious"]),
        group_first=rank,
        group_last=rank,
        above=none,
        below=none,
        wins=none,
        ties=none,
        losses=none,
        judged=np.full(len(rank), np.nan),
        lowest=np.full(len(rank), np.nan),
        highest=np.full(len(rank), np.nan),
        exact=np.zeros(len(rank), np.bool_),
        queries=queries,
        defined=queries,
        best=best,
        reference=reference,
        verdicts=(None,) * len(rank),
        beats=((),) * len(rank),
    )


def _with_worst_cases(s: Standing, measure: Measure, view: WorstCases | None) -> Standing:
    """Add the extremes of each run's mean over its unjudged documents, where they are known."""
    if view is None or len(view.runs) != len(s.rank):  # repeats of a system have no single list
        return s
    with suppress(MeasureError):
        bounds = [view.run_bound(run, measure, shared=True) for run in range(len(s.rank))]
        return replace(
            s,
            lowest=np.array([bound.lowest for bound in bounds]),
            highest=np.array([bound.highest for bound in bounds]),
            exact=np.array([bound.exact for bound in bounds]),
        )
    return s


def _with_annotators(
    s: Standing, evaluations: Sequence[Evaluation], measure: Measure, rank_ends: tuple[Int, Int]
) -> Standing:
    """Replace means and ranks by those with annotators' labels."""
    estimates = [e.annotators.estimates[measure] for e in evaluations if e.annotators is not None]
    expected = np.array([estimate.estimate for estimate in estimates])
    rank = ranks_of(measure.sign * expected)
    best = int(np.argmin(rank))
    return replace(
        s,
        expected=expected,
        low=np.array([estimate.ci[0] for estimate in estimates]),
        high=np.array([estimate.ci[1] for estimate in estimates]),
        rank=rank,
        rank_low=np.minimum(rank_ends[0], rank),
        rank_high=np.maximum(rank_ends[1], rank),
        oblivious_rank=rank,
        best=best,
        reference=best if s.reference == s.best else s.reference,
    )


def _with_counts(s: Standing, gain: Float) -> Standing:
    """Count on which of the queries (R, Q) that it shares with the reference each run is better."""
    lead = gain - gain[s.reference]
    return replace(
        s,
        wins=(lead > _EQUAL).sum(axis=1),
        ties=(np.abs(lead) <= _EQUAL).sum(axis=1),
        losses=(lead < -_EQUAL).sum(axis=1),
    )


def _with_verdicts(s: Standing, pairs: Pairs, m: int) -> Standing:
    """Add the groups of runs that do not differ significantly, and the verdicts on the best."""
    runs = len(s.rank)
    is_better = np.zeros((runs, runs), np.bool_)  # row significantly better than column
    label = pairs.figures["label"][:, m]
    ahead, behind = label == AHEAD, label == BEHIND
    is_better[pairs.first[ahead], pairs.second[ahead]] = True
    is_better[pairs.second[behind], pairs.first[behind]] = True
    is_different = is_better | is_better.T
    verdicts: list[Verdict | None] = [None] * runs
    of_reference = (pairs.first == s.reference) | (pairs.second == s.reference)
    for row in np.flatnonzero(of_reference).tolist():
        verdict = pairs.verdict(row, m)
        if pairs.first[row] == s.reference:
            verdicts[int(pairs.second[row])] = verdict
        else:
            verdicts[int(pairs.first[row])] = verdict.reversed()
    return replace(
        s,
        group_first=np.where(is_different, runs, s.rank).min(axis=1),
        group_last=np.where(is_different, 0, s.rank).max(axis=1),
        above=is_better.sum(axis=0),
        below=is_better.sum(axis=1),
        verdicts=tuple(verdicts),
        beats=tuple(tuple(np.flatnonzero(is_better[run]).tolist()) for run in range(runs)),
    )


def _reordered(s: Standing, by_rank: Int) -> Standing:
    """Return the values with the runs in another order."""
    columns = {name: getattr(s, name)[by_rank] for name in _ARRAYS}
    new_row = np.argsort(by_rank)
    return replace(
        s,
        **columns,
        best=int(new_row[s.best]),
        reference=int(new_row[s.reference]),
        verdicts=tuple(s.verdicts[row] for row in by_rank.tolist()),
        beats=tuple(
            tuple(int(new_row[other]) for other in s.beats[row]) for row in by_rank.tolist()
        ),
    )
