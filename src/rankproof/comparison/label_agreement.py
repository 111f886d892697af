"""Whether other judgments, such as a judge's, rank the same runs alike: a judge is judged.

Both rankings are over the queries that both label. Kendall's τ_b counts all pairs of runs alike;
τ_AP counts, for each run in the other ranking, how many of those above it are above it in the
reference (Yilmaz, Aslam and Robertson 2008), so that changes at the top weigh more:

    τ_AP = 2/(n−1) · Σ_{i=2..n} C(i)/(i−1) − 1

Intervals are percentiles of resamples of the queries, with the observed value inside. Resampled
means scatter about means that scatter themselves, which makes them rather too wide: with 6 or 10
runs and 50 or 200 queries they cover .95 to 1.00 (less their mean shift .81 to .95).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from rankproof.comparison.differences import Tests, aligned, difference_columns
from rankproof.comparison.repeats import merge_repeats
from rankproof.data.query_groups import number_groups
from rankproof.evaluation import Evaluation
from rankproof.evaluation.checks import merge_notes
from rankproof.foundation.arrays import Float, Int
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import plural
from rankproof.measures import Measure
from rankproof.presentation.charts import Chart, Range, range_charts
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Cell, Column, Table
from rankproof.statistics.intervals import Interval
from rankproof.statistics.labels import AHEAD, BEHIND
from rankproof.statistics.rank_similarity import kendall_tau
from rankproof.statistics.ranks import ranks_of
from rankproof.statistics.resampling import RESAMPLES, resampled_means

_TOP = 5
_SHOWN = 5  # runs with the largest shifts
_EQUAL = 1e-12
_BLOCK = 50  # resamples whose pairs of runs are in memory at a time


@dataclass(frozen=True, slots=True)
class RankAgreement:
    """Two rankings of the same runs (R,) on one measure."""

    tau: float
    tau_ci: Interval
    tau_ap: float
    tau_ap_ci: Interval
    kept: int  # pairs that differ significantly, with the same sign, by both
    lost: int  # by the reference alone, or with another sign
    invented: int  # by the other labels alone
    rank: Int  # (R,) by the reference
    other_rank: Int  # (R,)
    queries: int

    def top(self, names: Sequence[str], size: int = _TOP) -> tuple[list[str], list[str]]:
        """Return who leaves the top by the other labels, and who enters it."""
        leaves = [n for n, a, b in self._ranked(names) if a <= size < b]
        enters = [n for n, a, b in self._ranked(names) if b <= size < a]
        return leaves, enters

    def _ranked(self, names: Sequence[str]) -> list[tuple[str, int, int]]:
        return list(zip(names, self.rank.tolist(), self.other_rank.tolist(), strict=True))


@dataclass(frozen=True, slots=True, repr=False)
class LabelAgreement(Displayed):
    """How well other judgments rank the same runs.

    >>> runs = ["try/saturated.trec", "try/plain.trec"]
    >>> agreement = rp.leaderboard("try/qrels.txt", runs, "nDCG@5", against="try/qrels.txt")
    >>> agreement.measures[rp.nDCG @ 5].tau
    1.0
    """

    kind: ClassVar[str] = "label agreement"

    reference: str
    other: str
    runs: tuple[str, ...]
    measures: dict[Measure, RankAgreement]
    evaluations: tuple[Evaluation, ...]  # by the reference
    seed: int

    @property
    def warnings(self) -> list[str]:
        """What the readers assumed."""
        return merge_notes(self.evaluations)

    def summary(self) -> Summary:
        """How alike the rankings are, and which verdicts change."""
        answers = [
            f"{self.other} ranks {len(self.runs)} runs on {m} as {self.reference} does with "
            f"τ {a.tau:.2f} (95% CI {_span(a.tau_ci)})."
            for m, a in self.measures.items()
        ]
        notes = [note for m, a in self.measures.items() for note in self._notes(m, a)]
        policy = self.evaluations[0].policy
        details = [*policy.definitions(self.evaluations[0].dtype), *_METHOD]
        return Summary.of("\n".join(answers), notes, details=details)

    def _notes(self, measure: Measure, a: RankAgreement) -> list[str]:
        of = f" on {measure}" if len(self.measures) > 1 else ""
        leaves, enters = a.top(self.runs)
        size = min(_TOP, len(self.runs))
        top = f"the top {size} stays"
        if leaves:
            top = f"the top {size} loses {', '.join(leaves)} to {', '.join(enters) or 'none'}"
        return [
            f"Significant pairs{of}: {a.kept} kept, {a.lost} lost, {a.invented} invented; {top}.",
            f"τ_AP{of}, which weighs the top more: {a.tau_ap:.2f} ({_span(a.tau_ap_ci)}), over "
            f"{plural(a.queries, 'query')} that both label.",
        ]

    def tables(self) -> list[Table]:
        """The runs with the largest shifts of rank, on each measure."""
        return [self._table(m, a, _SHOWN) for m, a in self.measures.items()]

    def full_tables(self) -> list[Table]:
        """Every run, on each measure."""
        return [self._table(m, a, len(self.runs)) for m, a in self.measures.items()]

    def _table(self, measure: Measure, a: RankAgreement, size: int) -> Table:
        columns = [
            Column(f"rank by {measure} of", "text", folds=True),
            Column(self.reference),
            Column(self.other),
            Column("shift", "signed", digits=0),
        ]
        shift = a.other_rank - a.rank
        order = np.lexsort((a.rank, -np.abs(shift)))[:size]
        rows: list[list[Cell]] = [
            [self.runs[row], int(a.rank[row]), int(a.other_rank[row]), int(shift[row])]
            for row in order.tolist()
        ]
        return Table(columns, rows)

    def charts(self) -> list[Chart]:
        """τ and τ_AP with their intervals."""
        rows, panels = [], []
        for m, a in self.measures.items():
            rows += [Range("τ_b", a.tau, *a.tau_ci), Range("τ_AP", a.tau_ap, *a.tau_ap_ci)]
            panels += [str(m)] * 2
        return range_charts(rows, "Agreement of rankings", "correlation", panels=panels)

    def figures(self) -> dict[str, float]:
        """τ_b and τ_AP by measure."""
        values = {f"{m}/tau": a.tau for m, a in self.measures.items()}
        return values | {f"{m}/tau_ap": a.tau_ap for m, a in self.measures.items()}

    def to_dict(self) -> dict[str, Any]:
        """What `--format json` prints."""
        return {
            "reference": self.reference,
            "other": self.other,
            "measures": {
                str(m): {
                    "tau": plain(a.tau),
                    "tau_ci": plain(a.tau_ci),
                    "tau_ap": plain(a.tau_ap),
                    "tau_ap_ci": plain(a.tau_ap_ci),
                    "significant_pairs": {
                        name: getattr(a, name) for name in ("kept", "lost", "invented")
                    },
                    "queries": a.queries,
                    "ranks": {n: [x, y] for n, x, y in a._ranked(self.runs)},
                }
                for m, a in self.measures.items()
            },
            "policy": self.evaluations[0].policy.to_dict(),
            "seed": self.seed,
        }

    def __repr__(self) -> str:
        return f"<{self.other} against {self.reference}, {len(self.runs)} runs>"


_METHOD = (
    "τ_b: pairs of runs in the same order less those in another, with ties; 95% CI from resampled "
    "queries.",
    "kept, lost, invented: pairs that differ significantly by both labels, by the first alone, by "
    "the second alone.",
)


def _span(ci: Interval) -> str:
    return f"{ci[0]:.2f}–{ci[1]:.2f}" if ci[0] >= 0 else f"{ci[0]:+.2f} to {ci[1]:+.2f}"


def compare_labels(
    evaluations: Sequence[Evaluation],
    others: Sequence[Evaluation],
    rescaled: Mapping[Measure, Measure],
    names: tuple[str, str],
    *,
    seed: int = 0,
    groups: Mapping[str, int] | None = None,
) -> LabelAgreement:
    """Compare the rankings of runs by the labels of the reference and by others.

    `rescaled` gives each measure on the scale of the others; `names` are those of the labels.
    """
    evaluations, others = merge_repeats(evaluations), merge_repeats(others)
    if len(evaluations) < 2:
        raise InputError("one run has no ranking", remedy="name two runs or more")
    first, second = np.triu_indices(len(evaluations), 1)
    tests = Tests(seed=seed, p_values=False, ties=False)
    labels = []
    for runs in (evaluations, others):
        columns, _ = difference_columns(runs, first, second, tests, groups=groups)
        labels.append(columns["label"])
    other_measures = list(others[0].outcomes)
    agreements = {}
    for m, (measure, other) in enumerate(rescaled.items()):
        pair = [labels[0][:, m], labels[1][:, other_measures.index(other)]]
        x, y, own_groups = _common(evaluations, others, (measure, other), groups)
        agreements[measure] = _agreement(x, y, pair, measure.sign, groups=own_groups, seed=seed)
    run_names = tuple(evaluation.name for evaluation in evaluations)
    return LabelAgreement(*names, run_names, agreements, tuple(evaluations), seed)


def _common(
    evaluations: Sequence[Evaluation],
    others: Sequence[Evaluation],
    measures: tuple[Measure, Measure],
    groups: Mapping[str, int] | None,
) -> tuple[Float, Float, Int | None]:
    """Return (R, Q) the values by both labels, and groups, of queries that all have by both."""
    tables, queries = [], []
    for runs, measure in zip((evaluations, others), measures, strict=True):
        values = aligned(runs, measure)["expected"]
        is_defined = ~np.isnan(values).any(axis=0)
        listed = pl.concat([e.queries for e in runs]).unique().sort()
        queries.append(listed.filter(pl.Series(is_defined)))
        tables.append(values[:, is_defined])
    shared = queries[0].filter(queries[0].is_in(queries[1].implode()))
    if not len(shared):
        raise InputError("no query is labeled in both judgments", remedy="check their ids")
    x, y = (
        values[:, own.search_sorted(shared).to_numpy()]
        for values, own in zip(tables, queries, strict=True)
    )
    return x, y, number_groups(shared, groups)


def _agreement(
    x: Float, y: Float, labels: Sequence[Float], sign: int, *, groups: Int | None, seed: int
) -> RankAgreement:
    """Return how alike the rankings by values x and y (R, Q) are."""
    runs, queries = x.shape
    drawn = resampled_means(np.concatenate([x, y]).T, seed, RESAMPLES, groups)
    means = np.concatenate([[[*x.mean(axis=1), *y.mean(axis=1)]], drawn]) * sign
    of_x, of_y = means[:, :runs], means[:, runs:]
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(means), _BLOCK)]
    tau = np.concatenate([kendall_tau(of_x[b], of_y[b], tolerance=_EQUAL) for b in blocks])
    tau_ap = np.array([tau_of_top(a, b) for a, b in zip(of_x, of_y, strict=True)])
    significant = [np.isin(codes, (AHEAD, BEHIND)) for codes in labels]
    same = significant[0] & (labels[0] == labels[1])
    return RankAgreement(
        tau=float(tau[0]),
        tau_ci=_percentile_interval(tau),
        tau_ap=float(tau_ap[0]),
        tau_ap_ci=_percentile_interval(tau_ap),
        kept=int(same.sum()),
        lost=int((significant[0] & ~same).sum()),
        invented=int((significant[1] & ~significant[0]).sum()),
        rank=ranks_of(of_x[0]),
        other_rank=ranks_of(of_y[0]),
        queries=queries,
    )


def tau_of_top(reference: Float, other: Float) -> float:
    """Return τ_AP of values (R,) against those of a reference; a tie counts ½.

    >>> import numpy as np
    >>> from rankproof.comparison.label_agreement import tau_of_top
    >>> tau_of_top(np.array([3.0, 2.0, 1.0]), np.array([2.0, 3.0, 1.0]))
    0.0
    """
    order = np.argsort(-other, kind="stable")
    ranked, ties = reference[order], other[order]
    above = ranked[:, None] - ranked[None]  # of an earlier run (row) less a later one
    agree = np.where(np.abs(above) <= _EQUAL, 0.5, above > 0)
    agree = np.where(np.abs(ties[:, None] - ties[None]) <= _EQUAL, 0.5, agree)
    share = np.triu(agree, 1).sum(axis=0)[1:] / np.arange(1, len(other))
    return float(2.0 * share.mean() - 1.0)


def _percentile_interval(draws: Float) -> Interval:
    """Return the 95% interval from the observed value (first) and its resamples."""
    low, high = np.nanquantile(draws[1:], [0.025, 0.975])
    return min(float(low), float(draws[0])), max(float(high), float(draws[0]))
